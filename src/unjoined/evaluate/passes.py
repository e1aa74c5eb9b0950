"""Passes over the rows of an evaluation, in memory or in pieces: all they add up is sums.

A first pass says how many people stand at each place of an order: a place is a row, or a fine bin
of rows in pieces. What is asked of the order becomes a number for each place, and a second pass
adds up the rows' terms times these numbers, with their products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import shown
from unjoined.data.additive import Additive
from unjoined.errors import InputError
from unjoined.evaluate.ranks import Column, Scored, Sheet
from unjoined.evaluate.regions import NamedFeatures, say_left_out
from unjoined.evaluate.terms import EvaluationRows, Sums

FINE_BINS = 1000  # of the score; treated as tied inside
FEW_SCORES = 2000  # different scores that each have a bin of their own
FEWEST = 2  # rows of each table in a group that has an interval
T = TypeVar("T")


class Piece(NamedTuple):
    """Some rows of an evaluation, and what was computed of them."""

    rows: EvaluationRows
    columns: Array  # (n, k) scores, then what rules need
    at: slice = slice(None)  # where the rows are, if each has a place of its own


@dataclass(frozen=True, eq=False)
class Order:
    """An order that rows are put in: by a score, or by a score per cost."""

    score: int = 0  # column of the piece
    cost: int | None = None  # column of the piece that the score is divided by
    edges: Array | None = None  # (b - 1,) greatest key of all bins but the last; None for rows

    @property
    def n_bins(self) -> int:
        """Number of bins; 0 if each row has a place of its own."""
        return 0 if self.edges is None else len(self.edges) + 1

    def key(self, columns: Array) -> Array:
        """Return what rows are ordered by."""
        score = columns[:, self.score]
        if self.cost is None:
            return score
        return np.where(score > 0.0, score / columns[:, self.cost], 0.0)

    def places(self, piece: Piece) -> IntArray | slice:
        """Return the place of each row."""
        if self.edges is None:
            return piece.at
        return np.searchsorted(self.edges, self.key(piece.columns), side="left")

    def in_bins(self, columns: Array, people: Array, extra: Sequence[float]) -> Order:
        """Return the order with edges that cut a sample into fine bins of equal shares."""
        key = self.key(columns)
        values = np.unique(key)
        if len(values) > FEW_SCORES:
            by_key = np.argsort(key, kind="stable")
            mass = np.cumsum(people[by_key])
            wanted = np.arange(1, FINE_BINS) / FINE_BINS * mass[-1]
            at = np.minimum(np.searchsorted(mass, wanted), len(key) - 1)
            values = np.unique(key[by_key][at])
        return replace(self, edges=np.unique([*values.tolist(), *extra]))


@dataclass(frozen=True, slots=True, eq=False)
class PlaceSums(Additive):
    """Sums over the rows at each place, all orders one after the other."""

    places: Array  # (b, 6) p and p key; p aim times 1, effect, key and cost


@dataclass(frozen=True, eq=False)
class Placing:
    """The first pass: who stands at each place of some orders."""

    orders: tuple[Order, ...]

    def __call__(self, piece: Piece) -> PlaceSums:
        """Add up some rows."""
        rows, share = piece.rows, piece.rows.share
        people = share * rows.aim * rows.omega()
        found = []
        for order in self.orders:
            key, at = order.key(piece.columns), np.asarray(order.places(piece))
            cost = 0.0 if order.cost is None else piece.columns[:, order.cost]
            parts = (share, share * key, people, people * rows.effect, people * key, people * cost)
            sums = [np.bincount(at, part, minlength=order.n_bins) for part in parts]
            found.append(np.column_stack(sums))
        return PlaceSums(np.concatenate(found))


@dataclass(frozen=True, slots=True, eq=False)
class Added(Additive):
    """What the second pass adds up."""

    sums: Sums
    residual: Array  # (2,) sums of squares and of fourth powers, over outcome rows
    inside: Array  # (C, g) rows in each group
    reach: Array  # (C, g) of the squared reach of a residual of 1

    def least_variance(self) -> Array:
        """Return the least variance of each group's numerator; nan if a table has too few rows.

        No group is surer of it than one unseen residual in each outcome table allows, of the size
        of those that make up the variance.
        """
        held = self.sums.count > 0.0
        square, fourth = self.residual
        inside = self.inside[held]
        mean = self.reach[held] / np.maximum(inside, 1.0)
        least = mean.sum(axis=0) * (fourth / square if square > 0.0 else 0.0)
        return np.where((inside >= FEWEST).all(axis=0), least, np.nan)


@dataclass(frozen=True, eq=False)
class Adding:
    """The second pass: totals of columns."""

    columns: tuple[Column, ...]
    orders: tuple[Order, ...]
    groups: tuple[IntArray, ...]  # group of each place of the first order, if any are asked for

    def __call__(self, piece: Piece) -> Added:
        """Add up some rows."""
        rows, K = piece.rows, piece.rows.n_populations
        terms, C = rows.terms(rows.omega()), 2 * K + 1
        places = [order.places(piece) for order in self.orders]
        values = np.zeros((len(rows.cell), len(self.columns)))
        for j, column in enumerate(self.columns):
            for name in ("numerator", "denominator", "aim", "plain"):
                times = getattr(column, name)
                if np.ndim(times):
                    values[:, j] += getattr(terms, name) * times[places[column.order]]
                elif times:
                    values[:, j] += getattr(terms, name) * times
            if column.own is not None:
                values[:, j] *= piece.columns[:, column.own]
        outcome = rows.cell < K
        share, square = rows.share[outcome], rows.residual[outcome] ** 2
        inside = reach = np.zeros((C, 0))
        for group in self.groups:
            g = int(group.max()) + 1
            at = rows.cell * g + group[places[0]]
            inside, reach = (
                np.bincount(at, part, minlength=C * g).astype(np.float64).reshape(C, g)
                for part in (None, (terms.share * terms.reach) ** 2)
            )
        return Added(
            Sums.of_rows(rows.cell, rows.share, values, C),
            np.array([share @ square, share @ square**2]),
            inside,
            reach,
        )


class EvaluatedTables:
    """The rows of an evaluation, wherever they are, and the people they speak for."""

    sample: EvaluationRows  # all rows, or some that stand for them
    features: NamedFeatures
    names: Sequence[Any]  # of the populations
    n_rows: int
    how: str

    def over(self, work: Callable[[Piece], T]) -> T:
        """Return the sum of what a pass finds in all pieces."""
        raise NotImplementedError

    def scored(self, orders: Sequence[Order], extra: Sequence[Sequence[float]]) -> list[Scored]:
        """Return the places of each order; ``extra`` are edges that bins of it must have."""
        raise NotImplementedError

    def add(self, sheet: Sheet, scored: Sequence[Scored]) -> Added:
        """Add up all that is asked for on a sheet."""
        orders = tuple(each.order for each in scored)
        return self.over(Adding(tuple(sheet.columns), orders, tuple(sheet.groups)))

    def left_out(self) -> str:
        """Say who counts less, in words."""
        return say_left_out(self.sample, self.sample.omega(), self.features)

    def refuse_alike(self) -> None:
        """Refuse populations whose policies are equal for everyone."""
        people = self.sample.share * self.sample.aim
        if not float(people @ self.sample.omega()) > 0.0:
            raise InputError(
                f"the populations {shown(self.names)} treat everyone alike, as far as these tables "
                "tell, so that no number can be given. Uplift needs policies that differ."
            )
