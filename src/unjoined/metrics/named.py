"""Features as users know them: from their table to numbers, and from numbers back to words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import narwhals as nw
import numpy as np

from unjoined._typing import Array, MatrixLike
from unjoined._validation import (
    check_feature_sizes,
    check_finite_features,
    check_numeric_columns,
    check_row_width,
    did_you_mean,
    shown,
)
from unjoined.data import ColumnCode, TableEncoder, column_names, feature_matrix
from unjoined.errors import InputError, TableError

Conditions = dict[int, tuple[float, float]]  # of a feature: above the first, at most the second

NUMBER, TRUTH, DATE, LEVEL, MISSING = "number", "truth", "date", "level", "missing"
FIRST_DATE = 3650.0  # days since 1970; durations and times of day are fewer


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of numbers, and what it is to the user."""

    name: str  # of the column of numbers
    column: str  # of the user's table
    holds: str  # a number, a truth value, a date, a category or that a value is missing
    level: str = ""  # the category that it is 1 for
    levels: tuple[str, ...] = ()  # all categories of the user's column
    values: tuple[float, float] | None = None  # if it has two
    is_whole: bool = False  # whether all values are whole numbers


@dataclass(frozen=True, slots=True)
class NamedFeatures:
    """How a user's table becomes numbers, and what to call them."""

    each: tuple[Feature, ...]
    encoder: TableEncoder | None  # None for a plain array

    @classmethod
    def of(cls, X: MatrixLike) -> tuple[Array, NamedFeatures]:
        """Return features as numbers; text, dates and missing values are encoded."""
        names, encoder, truths = column_names(X), None, set()
        if names is None:
            matrix = feature_matrix(X)
            parts = [Feature(name, name, NUMBER) for name in _plain_names(matrix.shape[1])]
        else:
            encoder, truths = TableEncoder().fit(X), _truth_columns(X)
            matrix = encoder.encode(X).matrix
            parts = [part for code in encoder.columns_ for part in _parts(code)]
        each = [_look(part, matrix[:, j], truths) for j, part in enumerate(parts)]
        named = cls(tuple(each), encoder)
        check_finite_features(matrix, named.names)
        check_feature_sizes(matrix, named.names)
        return matrix, named

    @classmethod
    def of_numbers(cls, matrix: Array, encoder: TableEncoder | None) -> NamedFeatures:
        """Return what to call the columns of numbers that an encoder made, or of an array."""
        if encoder is None:
            parts = [Feature(name, name, NUMBER) for name in _plain_names(matrix.shape[1])]
        else:
            parts = [part for code in encoder.columns_ for part in _parts(code)]
        return cls(tuple(_look(part, matrix[:, j], set()) for j, part in enumerate(parts)), encoder)

    @property
    def names(self) -> list[str]:
        """Names of the columns of numbers."""
        return [feature.name for feature in self.each]

    def numbers(self, X: MatrixLike, *, table: str) -> tuple[Array, list[str]]:
        """Return another table with the same columns as numbers, and what is strange about it."""
        found = column_names(X)
        if self.encoder is not None and found is not None:
            wanted = self.encoder.feature_names_in_.tolist()
            if missing := [name for name in wanted if name not in found]:
                raise TableError(
                    f"{table} lacks the column {missing[0]!r} that the tables have; its columns "
                    f"are {shown(found)}{did_you_mean(missing[0], found)}"
                )
            encoded = self.encoder.encode(X, table=table)
            return encoded.matrix, encoded.notes
        check_numeric_columns(X)
        matrix = feature_matrix(X)
        check_row_width(matrix, len(self.each))
        check_finite_features(matrix, self.names, table=table)
        return matrix, []

    def in_words(self, conditions: Conditions) -> str:
        """Say conditions in words, features in the order of the table."""
        columns: dict[str, list[int]] = {}
        for j, bounds in sorted(conditions.items()):
            if np.isfinite(bounds).any():
                columns.setdefault(self.each[j].column, []).append(j)
        words = [
            word
            for at in columns.values()
            for word in _said([self.each[j] for j in at], [conditions[j] for j in at])
        ]
        return " and ".join(words) or "everyone"


def refuse_no_target(target: Array) -> None:
    """Refuse a target without people."""
    if len(target) == 0:
        raise InputError("target has no rows. Leave it out, or give the people in question.")


def range_in_words(name: str, low: float, high: float) -> str:
    """Say that a column of numbers lies above one value and is at most another."""
    return _between(Feature(name, name, NUMBER), low, high)


def _plain_names(d: int) -> list[str]:
    return [f"x{j + 1}" for j in range(d)]


def _truth_columns(X: MatrixLike) -> set[str]:
    schema = nw.from_native(X, eager_only=True).schema
    return {str(name) for name, dtype in schema.items() if dtype == nw.Boolean}


def _parts(code: ColumnCode) -> Iterator[Feature]:
    """Yield what each column of numbers says of the user's column."""
    names = code.names("one-hot")
    if code.holds == "categories":
        places = [place for j, place in enumerate(code.places) if j != code.base]
        for name, place in zip(names, places, strict=True):
            yield Feature(name, code.name, LEVEL, place, code.places)
        return
    yield Feature(names[0], code.name, DATE if code.holds == "times" else NUMBER)
    for name in names[1:]:
        yield Feature(name, code.name, MISSING)


def _look(feature: Feature, values: Array, truths: set[str]) -> Feature:
    """Add what the values of a feature tell of it."""
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    two = low < high and bool(np.all((values == low) | (values == high)))
    holds = feature.holds
    if holds == DATE and low < FIRST_DATE:
        holds = NUMBER
    if holds == NUMBER and feature.column in truths:
        holds = TRUTH
    return Feature(
        feature.name,
        feature.column,
        holds,
        feature.level,
        feature.levels,
        (low, high) if two else None,
        not two and bool(np.all(values == np.floor(values))),
    )


def _said(features: Sequence[Feature], bounds: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Say the conditions on one column of the user's table."""
    column = features[0].column
    if features[0].holds == LEVEL:
        is_it = [low >= 0.0 for low, _ in bounds]
        chosen = [f.level for f, yes in zip(features, is_it, strict=True) if yes]
        excluded = {feature.level for feature in features}
        left = [level for level in features[0].levels if level not in excluded]
        yield f"{column} is {_listed(chosen or left, excluded if not chosen else set())}"
        return
    for feature, (low, high) in zip(features, bounds, strict=True):
        if feature.holds == MISSING:
            yield f"{column} is {'missing' if low >= 0.0 else 'known'}"
        elif feature.values is not None:
            value = feature.values[int(feature.values[0] <= low)]
            truth = {0.0: "false", 1.0: "true"}.get(value, f"{value:.5g}")
            plain = f"{column} = {_shown(feature, value)}"
            yield f"{column} is {truth}" if feature.holds == TRUTH else plain
        else:
            yield _between(feature, low, high)


def _listed(left: list[str], excluded: set[str]) -> str:
    """Say which categories are left, or which are not if these are fewer."""
    if len(left) == 1 or not excluded:
        return " or ".join(left)
    if len(left) < len(excluded):
        return "one of " + ", ".join(left)
    return "not " + " or ".join(sorted(excluded))


def _between(feature: Feature, low: float, high: float) -> str:
    """Say between what a number or a date lies."""
    if not np.isfinite(low):
        return f"{feature.column} <= {_shown(feature, high)}"
    if not np.isfinite(high):
        return f"{feature.column} > {_shown(feature, low)}"
    return f"{_shown(feature, low)} < {feature.column} <= {_shown(feature, high)}"


def _shown(feature: Feature, value: float) -> str:
    if feature.holds == DATE:
        return str(np.datetime64(int(np.floor(value)), "D"))
    if feature.is_whole:
        return f"{np.floor(value):.0f}"
    return f"{value:.4g}"
