"""People to be scored: their features in words, and what uplift varies with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._typing import Array, MatrixLike
from unjoined.data.chunks import feature_matrix
from unjoined.data.columns import column_names
from unjoined.data.encode import TableEncoder, own_columns
from unjoined.errors import UnjoinedWarning
from unjoined.words import in_digits

FEWEST = 20  # people behind any number in a report
FEW_VALUES = 8  # a column of numbers with at most so many is shown as bars
GRID = 21  # values at which a curve is computed
CURVE_ROWS = 500  # people over whom partial dependences are averaged, at most
LEVEL_ROWS = 50  # the same, for categories that have no bar
MOST_LEVELS = 12  # bars of one category
NUMBERS, TIMES, CATEGORIES = "numbers", "times", "categories"


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One feature as the user knows it, for the people at hand."""

    name: str
    holds: str
    values: Array  # (n,) numbers, days since 1970, or places among the levels; nan if missing
    levels: tuple[str, ...] = ()

    def said(self, value: float) -> str:
        """Return a value in words: a number, a date or a category."""
        if self.holds == CATEGORIES:
            return (
                self.levels[int(value)] if value < len(self.levels) else "another value"
            )
        if self.holds == TIMES:
            return str(
                (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=value)).date()
            )
        if float(value).is_integer() or abs(value) >= 1e4:
            return f"{value:,.0f}"
        return in_digits(value, 3 if abs(value) < 100.0 else 4)

    @property
    def steps(self) -> Array | None:
        """Values that may be drawn as bars, each of 20 people at least; None for a curve."""
        kinds, count = np.unique(
            self.values[~np.isnan(self.values)], return_counts=True
        )
        if self.holds != CATEGORIES and len(kinds) > FEW_VALUES:
            return None
        if self.holds == CATEGORIES:  # nobody is given a rare one
            kinds, count = (
                kinds[kinds < len(self.levels)],
                count[kinds < len(self.levels)],
            )
        return kinds[count >= FEWEST]

    @property
    def grid(self) -> Array:
        """Values between which nearly all people lie, 20 of them at least beyond each end."""
        known = self.values[~np.isnan(self.values)]
        edge = max(0.02, min(FEWEST / max(len(known), 1), 0.5))
        low, high = np.quantile(known, [edge, 1.0 - edge])
        return np.linspace(low, high, GRID) if high > low else np.array([low])


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """The people a report is about, as the model takes them and in words."""

    X: MatrixLike
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, X: MatrixLike, names: list[str] | None) -> People:
        """Return people with the columns that the model knows, whatever these hold."""
        if column_names(X) is None:
            matrix = feature_matrix(X)
            names = names or [f"x{j + 1}" for j in range(matrix.shape[1])]
            columns = (Column(n, NUMBERS, matrix[:, j]) for j, n in enumerate(names))
            return cls(matrix, tuple(columns))
        if names is not None:
            X = own_columns(X, names)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UnjoinedWarning
            )  # the fit has warned of them
            encoder = TableEncoder("codes").fit(X)
            matrix = encoder.encode(X).matrix
        frame: Any = nw.from_native(X, eager_only=True)
        found, at = [], 0
        for code in encoder.columns_:
            gone = frame[code.name].is_null().to_numpy()
            found.append(
                Column(
                    code.name,
                    code.holds,
                    np.where(gone, np.nan, matrix[:, at]),
                    code.levels,
                )
            )
            at += len(code.names("codes"))
        return cls(X, tuple(found))

    def __len__(self) -> int:
        """Return how many people there are."""
        return len(self.columns[0].values)

    def sample(self, most: int, rng: np.random.RandomState) -> MatrixLike:
        """Return the features of some of the people."""
        return _sample(self.X, len(self), most, rng)


def _sample(X: MatrixLike, n: int, most: int, rng: np.random.RandomState) -> MatrixLike:
    if n <= most:
        return X
    at = np.sort(rng.permutation(n)[:most])
    if isinstance(X, np.ndarray):
        return X[at]
    sampled: MatrixLike = nw.from_native(X, eager_only=True)[at].to_native()
    return sampled


def _with_value(X: MatrixLike, j: int, column: Column, value: float) -> MatrixLike:
    """Return the features with everyone given one value of one column."""
    if isinstance(X, np.ndarray):
        changed = X.copy()
        changed[:, j] = value
        return changed
    frame: Any = nw.from_native(X, eager_only=True)
    cell: Any = column.said(value) if column.holds != NUMBERS else value
    cells = nw.new_series(
        frame.columns[j], [cell] * len(frame), backend=frame.implementation
    )
    given: MatrixLike = frame.with_columns(cells).to_native()
    return given


@dataclass(frozen=True, slots=True, eq=False)
class Driver:
    """How uplift varies with one feature, all others as they are."""

    column: Column
    values: Array  # (m,) where it was computed
    change: (
        Array  # (m,) mean uplift if all had the value, less mean uplift, outcome units
    )
    error: Array  # (m,) model uncertainty; nan if the estimator offers none
    is_curve: bool
    levels: tuple[
        Array, Array
    ]  # all values, also those of few people, and their changes

    @property
    def has_band(self) -> bool:
        """Whether the model says how uncertain the changes are."""
        return bool(np.isfinite(self.error).all())

    @property
    def spread(self) -> float:
        """Standard deviation over people of the change at their own value."""
        return float(np.std(self.at(self.column.values)))

    def at(self, values: Array) -> Array:
        """Return the change at people's own values; 0 where it is not known."""
        there = ~np.isnan(values) if self.is_curve else np.isin(values, self.levels[0])
        return np.where(there, np.interp(values, *self.levels), 0.0)

    def usual(self, values: Array) -> str:
        """Return the mean of numbers, or the category that most have and how many have it."""
        known = values[~np.isnan(values)]
        if len(known) < FEWEST:
            return "mostly missing"
        if self.is_curve:
            return self.column.said(float(known.mean()))
        kinds, count = np.unique(known, return_counts=True)
        most = int(np.argmax(count))
        if count[most] < FEWEST:
            return "mixed"
        return (
            f"{self.column.said(float(kinds[most]))} ({count[most] / len(values):.0%})"
        )


def find_drivers(
    model: Any, people: People, rng: np.random.RandomState
) -> list[Driver]:
    """Return how uplift varies with each feature, those it varies with most first.

    The additive models say it with an error (`mean_change`); of others it is the partial
    dependence of their predictions.
    """
    X = people.sample(CURVE_ROWS, rng)
    changes = getattr(model, "mean_change", None)
    drivers = []
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UnjoinedWarning
        )  # no one has such values on purpose
        before = 0.0 if changes else float(model.predict(X).mean())
        for j, column in enumerate(people.columns):
            steps, levels = column.steps, None
            if column.holds == CATEGORIES:
                levels = _level_changes(
                    model, X, min(len(people), CURVE_ROWS), j, column
                )
                steps = _telling(steps, *levels)
            values = column.grid if steps is None else steps
            if len(values) < 2 and (levels is None or len(levels[0]) < 2):
                continue
            change = np.zeros(len(values))
            error = np.full(len(values), np.nan)
            for i, value in enumerate(values):
                changed = _with_value(X, j, column, float(value))
                if changes:
                    estimate = changes(X, changed)
                    change[i], error[i] = estimate.value, estimate.standard_error
                else:
                    change[i] = float(model.predict(changed).mean()) - before
            levels = levels or (values, change)
            drivers.append(Driver(column, values, change, error, steps is None, levels))
    return sorted(drivers, key=lambda driver: -driver.spread)


def _level_changes(
    model: Any, X: MatrixLike, n: int, j: int, column: Column
) -> tuple[Array, Array]:
    """Return all categories that the people have, and how mean uplift changes if all had each.

    Categories of a few people are among them. They count in averages and have no bar.
    """
    kinds = np.unique(column.values[~np.isnan(column.values)])
    kinds = kinds[kinds < len(column.levels)]
    if not len(kinds):
        return kinds, kinds
    few = _sample(X, n, LEVEL_ROWS, np.random.RandomState(0))
    given: list[Any] = [_with_value(few, j, column, float(value)) for value in kinds]
    if isinstance(few, np.ndarray):
        stacked = np.concatenate(given)
    else:
        frames = [nw.from_native(frame, eager_only=True) for frame in given]
        stacked = nw.concat(frames, how="vertical").to_native()
    means = model.predict(stacked).reshape(len(kinds), -1).mean(axis=1)
    return kinds, means - float(model.predict(few).mean())


def _telling(steps: Array | None, kinds: Array, changes: Array) -> Array | None:
    """Return the categories that get a bar: if they are many, the lowest and the highest."""
    if steps is None or len(steps) <= MOST_LEVELS:
        return steps
    order = steps[np.argsort(changes[np.searchsorted(kinds, steps)], kind="stable")]
    half = MOST_LEVELS // 2
    return np.sort(np.concatenate([order[:half], order[-half:]]))
