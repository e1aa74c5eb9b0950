"""Sums over rows in fine bins of a score, and the same numbers from them as from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unjoined._typing import Array, BoolArray
from unjoined.metrics.estimate import Totals
from unjoined.metrics.ratio import FEWEST, Column, EvaluationRows, residual_sums

FINE_BINS = 1000  # of the score; treated as tied inside
FEW_SCORES = 2000  # different scores that each have a bin of their own


@dataclass(frozen=True, eq=False)
class Order:
    """Bins of the rows by a key, and which of their vectors are added up."""

    edges: Array  # (b - 1,) greatest key of all bins but the last
    own: int | None = None  # column of the scorer that rows are treated by
    cost: int | None = None  # column of the scorer that the score is divided by

    def key(self, columns: Array) -> Array:
        """Return what rows are ordered by, from the scorer's columns."""
        score = columns[:, 0]
        if self.cost is None:
            return score
        return np.where(score > 0.0, score / columns[:, self.cost], 0.0)

    def settled(self, columns: Array, people: Array, extra: Sequence[float]) -> Order:
        """Return the order with edges that cut a sample into fine bins of equal shares."""
        if self.own is not None:
            return self
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
class BinSums:
    """Sums over the rows of each cell and bin of one order; those of parts add up."""

    count: Array  # (C, B) rows
    first: Array  # (C, B, 5) of p v, v being 1, numerator, denominator, aim, and q
    second: Array  # (C, B, 5, 5) of p^2 v v'
    floor: Array  # (C, B) of the squared reach of an unseen residual
    people: Array  # (B, 3) of p aim times effect, key and cost
    key: Array  # (B, 2) of p and p times key

    @classmethod
    def of_rows(
        cls, rows: EvaluationRows, omega: Array, columns: Array, times: Array, order: Order
    ) -> BinSums:
        """Add up rows; q is what treatment rows take off the numerator of the plain score."""
        terms, K = rows.terms(omega), rows.n_populations
        C, B = 2 * K + 1, len(order.edges) + 1
        key = order.key(columns)
        at = rows.cell * B + np.searchsorted(order.edges, key, side="left")
        reach = omega * rows.contrast() * rows.ratio
        treated = (rows.cell >= K) & rows.is_labelled
        rule = 1.0 if order.own is None else columns[:, order.own]
        v = np.column_stack(
            [
                np.ones(len(at)),
                terms.numerator * rule,
                terms.denominator,
                terms.aim,
                np.where(treated, rows.effect * reach * rows.residual, 0.0) * rule,
            ]
        )
        p = terms.share * times
        square = terms.share * p

        def add(values: Array) -> Array:
            total = np.bincount(at, weights=values, minlength=C * B)
            return total.astype(np.float64, copy=False).reshape(C, B)

        k = v.shape[1]
        second = np.empty((C, B, k, k))
        for i in range(k):
            for j in range(i + 1):
                second[..., i, j] = second[..., j, i] = add(square * v[:, i] * v[:, j])
        cost = columns[:, order.cost] if order.cost is not None else np.zeros(len(at))
        aim = p * terms.aim
        outcome = np.where(rows.cell < K, reach, 0.0)
        return cls(
            add(times),
            np.stack([add(p * v[:, i]) for i in range(k)], axis=-1),
            second,
            add(square * outcome**2),
            np.stack([add(aim * x).sum(axis=0) for x in (terms.effect, key, cost)], axis=-1),
            np.stack([add(p * x).sum(axis=0) for x in (np.ones(len(at)), key)], axis=-1),
        )

    def plus(self, other: BinSums) -> BinSums:
        """Return the sums of the rows of both."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return BinSums(*(one + two for one, two in pairs))


@dataclass(frozen=True, slots=True, eq=False)
class PassSums:
    """What one pass adds up: the sums of each order, and the size of residuals."""

    orders: tuple[BinSums, ...]
    residual: Array  # (2,) sums of squares and of fourth powers, over outcome rows
    n_rows: float

    @classmethod
    def of_rows(
        cls,
        rows: EvaluationRows,
        columns: Array,
        times: Array,
        orders: Sequence[Order],
        weight: str,
    ) -> PassSums:
        """Add up rows for all orders."""
        omega = rows.omega(weight)
        at = rows.cell < rows.n_populations
        return cls(
            tuple(BinSums.of_rows(rows, omega, columns, times, each) for each in orders),
            np.array(residual_sums(rows.residual[at], (rows.share * times)[at])),
            float(times.sum()),
        )

    def plus(self, other: PassSums) -> PassSums:
        """Return the sums of the rows of both."""
        orders = zip(self.orders, other.orders, strict=True)
        return PassSums(
            tuple(one.plus(two) for one, two in orders),
            self.residual + other.residual,
            self.n_rows + other.n_rows,
        )


@dataclass(frozen=True, eq=False)
class BinnedTerms:
    """Terms of the bins that have rows, as `RatioTerms` are of rows."""

    sums_of: BinSums
    size: float  # of residuals
    is_plain: bool = False

    @cached_property
    def held(self) -> BoolArray:
        """Which bins have rows."""
        return np.asarray(self.sums_of.count.sum(axis=0) > 0.0)

    @property
    def speaks_for(self) -> float:
        """Share of the target that the answer speaks for, E[omega]."""
        return float(self.sums_of.first[..., 3].sum())

    @property
    def people(self) -> Array:
        """Share of the people spoken for in each bin; they add up to 1."""
        return np.asarray(self.sums_of.first[:, self.held, 3].sum(axis=0) / self.speaks_for)

    def mean(self, column: int) -> Array:
        """Return a mean over the people of each bin: of the effect, the key or the cost."""
        total = self.sums_of.people[self.held, column]
        mass = self.sums_of.first[:, self.held, 3].sum(axis=0)
        mean: Array = np.divide(total, mass, out=np.zeros(len(mass)), where=mass > 0.0)
        return mean

    @property
    def effect(self) -> Array:
        """Mean nuisance uplift of each bin."""
        return self.mean(0)

    @property
    def key(self) -> Array:
        """Mean key of each bin, by people if it has any."""
        mass, total = self.sums_of.key[self.held].T
        return np.where(self.people > 0.0, self.mean(1), total / mass)

    def sums(self, columns: Sequence[Column]) -> Totals:
        """Return the totals of columns, and their covariance."""
        B = int(self.held.sum())
        C = np.zeros((len(columns), B, 5))
        for c, (numerator, denominator, aim) in zip(C, columns, strict=True):
            if self.is_plain:
                c[:, 1], c[:, 4], c[:, 3] = numerator, -np.asarray(numerator), denominator + aim
            else:
                c[:, 1], c[:, 2], c[:, 3] = numerator, denominator, aim
        flat = C.reshape(len(columns), -1)
        value, covariance = np.zeros(len(columns)), np.zeros((len(columns),) * 2)
        for cell in np.flatnonzero(self.sums_of.count.sum(axis=1) > 0.0).tolist():
            n = float(self.sums_of.count[cell].sum())
            second = self.sums_of.second[cell, self.held]
            mean = flat @ self.sums_of.first[cell, self.held].ravel()
            once = flat @ second[..., 0].ravel()  # of p^2 times the column
            both = np.einsum("mbk,bkl->mbl", C, second).reshape(len(columns), -1) @ flat.T
            off = both - np.outer(mean, once) - np.outer(once, mean)
            off += np.outer(mean, mean) * float(second[..., 0, 0].sum())
            value += mean
            covariance += off * (n / (n - 1.0) if n > 1.0 else math.nan)
        return Totals(value, covariance)

    def least_variance(self, inside: BoolArray) -> float:
        """Return the least variance of a group's numerator; nan if a table has too few rows."""
        least = 0.0
        for cell in np.flatnonzero(self.sums_of.count.sum(axis=1) > 0.0).tolist():
            n = float(self.sums_of.count[cell, self.held][inside].sum())
            if n < FEWEST:
                return math.nan
            floor = float(self.sums_of.floor[cell, self.held][inside].sum())
            least += floor * self.size**2 / n
        return least
