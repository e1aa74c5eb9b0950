"""What raises and lowers the uplift of single people, against the average person."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._typing import Array, BoolArray, MatrixLike
from unjoined.data.encode import own_columns
from unjoined.evaluate.estimate import ResultTable, Shown
from unjoined.words import Unit, in_digits, interval

MOST_NAMED = 2  # features in a reason
MOST_SHOWN = 5  # people that are printed one by one
SMALL = 0.1  # of the largest part: what adds less is no reason


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Shown):
    """What each feature adds to the uplift of people. Printing it shows the first few of them.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : tuple of list
        What people have of each feature.
    uplift : array of shape (n,)
        Predicted uplift, outcome units.
    low, high : array of shape (n,)
        Ends of its interval by model uncertainty.
    average : float
        Predicted uplift of the average person of the fit: all parts are 0.
    parts : array of shape (n, d)
        What each feature raises (above 0) or lowers it by. A pair of features counts for half in
        both.
    rest : array of shape (n,)
        Uplift less average and parts: 0 for outcomes on the real line, else what features add only
        together.
    unit : Unit
        What outcomes are called.
    level : float
        Level of the intervals.
    """

    names: tuple[str, ...]
    values: tuple[list[Any], ...]
    uplift: Array
    low: Array
    high: Array
    average: float
    parts: Array
    rest: Array
    unit: Unit
    level: float = 0.95

    def value(self, i: int, j: int) -> str:
        """Return what a person has of a feature, in words."""
        value = self.values[j][i]
        if value is None or value != value:
            return "missing"
        if isinstance(value, float | np.floating):
            return in_digits(float(value), 4)
        return str(value)

    def in_unit(self, unit: Unit) -> Explanation:
        """Return the same, with outcomes called by another name."""
        return replace(self, unit=unit)

    def told(self, i: int, sign: float, most: int) -> str:
        """Return the features that raise (sign 1) or lower (-1) a person's uplift most."""
        toward = sign * self.parts[i]
        least = max(SMALL * float(toward.max()), 1e-12)
        best = [
            j for j in np.argsort(-toward, kind="stable")[:most] if toward[j] > least
        ]
        return ", ".join(
            f"{self.names[j]} {self.value(i, j)} ({self.unit.rate(self.parts[i, j])})"
            for j in best
        )

    def reasons(self, raised: BoolArray) -> list[str]:
        """Return for each person the features that raise the uplift most, or else lower it."""
        sign = np.where(raised, 1.0, -1.0)[:, None]
        toward = np.maximum(sign * self.parts, 0.0)
        order = np.argsort(-toward, axis=1, kind="stable")[:, :MOST_NAMED]
        said = []
        for i, best in enumerate(order.tolist()):
            least = max(SMALL * toward[i, best[0]], 1e-12)
            some = [
                f"{self.names[j]} {self.value(i, j)}"
                for j in best
                if toward[i, j] > least
            ]
            verb = "raise" if raised[i] else "lower"
            said.append(
                f"{' and '.join(some)} {verb}{'s' * (len(some) == 1)} it"
                if some
                else ""
            )
        return said

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row for each person and feature."""
        return [
            {"person": i, "feature": name, "value": self.value(i, j)}
            | {"adds": float(self.parts[i, j])}
            for i in range(len(self.uplift))
            for j, name in enumerate(self.names)
        ]

    def sentences(self) -> list[str]:
        """Return the uplift of the first few people, beside that of the average person."""
        usual = f"the average person has {self.unit.rate(self.average)}"
        shown = range(min(len(self.uplift), MOST_SHOWN))
        which = [f"Person {i}: uplift" for i in shown] if len(shown) > 1 else ["uplift"]
        said = [
            f"{name} {self.unit.rate(self.uplift[i])} {self.unit.per} ({self._ends(i)}); {usual}."
            for name, i in zip(which, shown, strict=True)
        ]
        left = len(self.uplift) - len(shown)
        return said + [f"{left:,} more people are not shown; see parts."] * (left > 0)

    def _ends(self, i: int) -> str:
        ends = float(self.low[i]), float(self.high[i])
        return interval(*ends, self.level, self.unit.rate)

    def result_tables(self) -> list[ResultTable]:
        """Return what each feature adds for the first few people, the largest first."""
        tables: list[ResultTable] = []
        n = min(len(self.uplift), MOST_SHOWN)
        for i in range(n):
            rows = [
                (self.names[j], self.value(i, j), self.unit.rate(self.parts[i, j]))
                for j in np.argsort(-np.abs(self.parts[i]), kind="stable")
            ]
            if abs(self.rest[i]) > 1e-9 * max(abs(self.uplift[i]), 1e-300):
                rows.append(("together", "", self.unit.rate(self.rest[i])))
            title = f"What raises (+) and lowers (-) it, {self.unit.per}"
            if n > 1:
                title = f"Person {i}: {title[:1].lower()}{title[1:]}"
            tables.append((title, ("feature", "value", "adds"), rows))
        return tables


def named_columns(
    model: Any, X: MatrixLike
) -> tuple[tuple[str, ...], tuple[list[Any], ...], list[list[int]]]:
    """Return the features that users know, people's values, and the places of each in a model."""
    if not hasattr(model, "encoder_"):
        matrix = np.asarray(X)
        known = getattr(model, "feature_names_in_", None)
        numbers = range(matrix.shape[1])
        names = (
            [f"x{j + 1}" for j in numbers] if known is None else list(map(str, known))
        )
        values = tuple(matrix[:, j].tolist() for j in numbers)
        return tuple(names), values, [[j] for j in numbers]
    encoder = model.encoder_
    names = [code.name for code in encoder.columns_]
    frame: Any = nw.from_native(own_columns(X, names), eager_only=True)
    sizes = [len(code.names("codes")) for code in encoder.columns_]
    ends = np.cumsum(sizes)
    at = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    return tuple(names), tuple(frame[name].to_list() for name in frame.columns), at
