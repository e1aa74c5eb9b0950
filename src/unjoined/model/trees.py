"""Shallow trees that assign treatments: of depth two the best there is, deeper ones by steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from unjoined._typing import Array, BoolArray, IntArray

MOST_CUTS = 23  # of a feature
ROUNDEST = 12  # digits that are tried
Bounds = dict[
    int, tuple[float, float]
]  # of a feature: above the first, at most the second


def meets(X: Array, bounds: Bounds) -> BoolArray:
    """Tell which rows are within bounds."""
    inside = np.ones(len(X), dtype=np.bool_)
    for j, (low, high) in bounds.items():
        inside &= (X[:, j] > low) & (X[:, j] <= high)
    return inside


class Leaf(NamedTuple):
    """Rows that get one treatment: 0 for none, else from 1."""

    bounds: Bounds
    treatment: int

    def holds(self, X: Array) -> BoolArray:
        """Tell which rows are in it."""
        return meets(X, self.bounds)


def assigned(leaves: tuple[Leaf, ...], X: Array) -> IntArray:
    """Return the treatment of each row."""
    given = np.zeros(len(X), dtype=np.int64)
    for leaf in leaves:
        if leaf.treatment:
            given[leaf.holds(X)] = leaf.treatment
    return given


def cut_points(x: Array) -> Array:
    """Return the numbers that a tree may cut a feature at, each as round as can be."""
    values = np.unique(x)
    low, high = values[:-1], values[1:]
    if len(low) > MOST_CUTS:
        shares = np.arange(1, MOST_CUTS + 1) / (MOST_CUTS + 1)
        low = np.quantile(x, shares, method="lower")
        low = np.unique(low[low < values[-1]])
        # A cut may move by a quarter of its bin to be round.
        after = np.quantile(x, np.minimum(shares + 0.25 / MOST_CUTS, 1.0))
        high = np.append(low[1:], values[-1])
        following = values[np.searchsorted(values, low) + 1]
        near = after[
            np.minimum(np.searchsorted(after, low, side="right"), len(after) - 1)
        ]
        high = np.maximum(following, np.minimum(high, near))
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return np.unique([_roundest(one, two) for one, two in pairs])


def _roundest(low: float, high: float) -> float:
    """Return the number of fewest digits from ``low`` up to, but not with, ``high``."""
    whole = -int(np.floor(np.log10(max(abs(low), abs(high)))))
    for digits in range(whole, whole + ROUNDEST):
        near = round(0.5 * (low + high), digits)
        if low <= near < high:
            return near
    return low


@dataclass(frozen=True, eq=False)
class Grower:
    """Rows that a tree is grown on: what each treatment brings, and what it uses."""

    codes: IntArray  # (n, p) how many cuts of each feature lie below the row
    cuts: tuple[Array, ...]  # of each feature, rising
    brings: Array  # (n, J)
    uses: Array  # (n, J)
    weight: Array  # (n,) share of the people
    least: float  # weight of a leaf

    @classmethod
    def of_rows(
        cls, X: Array, brings: Array, uses: Array, weight: Array, least: float
    ) -> Grower:
        """Put rows into bins."""
        cuts = tuple(map(cut_points, X.T))
        codes = [
            np.searchsorted(c, x, side="left") for c, x in zip(cuts, X.T, strict=True)
        ]
        return cls(np.column_stack(codes), cuts, brings, uses, weight, least)

    def tree(self, depth: int, dearer: float = 0.0) -> tuple[Leaf, ...]:
        """Return the leaves of a tree that brings most, if what is used costs ``dearer`` each.

        Of depth two and below it is the best there is. Deeper ones begin with the cut that is best
        for two. Costs O(n p^2) for each node two above a leaf.
        """
        return tuple(
            Leaf(bounds, given) for bounds, given in self._grown(depth, dearer)
        )

    def _grown(self, depth: int, dearer: float) -> Iterator[tuple[Bounds, int]]:
        node = self._best(min(depth, 2), dearer)
        if node.feature is None:
            yield {}, node.treatment
            return
        j = node.feature
        cut = float(self.cuts[j][node.at])
        below = self.codes[:, j] <= node.at
        for inside, child, ends in (
            (below, node.children[0], (-np.inf, cut)),
            (~below, node.children[1], (cut, np.inf)),
        ):
            leaves: Iterator[tuple[Bounds, int]] = child.leaves(self.cuts)
            if depth > 2:
                leaves = self._part(inside)._grown(depth - 1, dearer)
            for bounds, given in leaves:
                low, high = bounds.get(j, (-np.inf, np.inf))
                yield bounds | {j: (max(low, ends[0]), min(high, ends[1]))}, given

    def _part(self, inside: BoolArray) -> Grower:
        return replace(
            self,
            codes=self.codes[inside],
            brings=self.brings[inside],
            uses=self.uses[inside],
            weight=self.weight[inside],
        )

    @cached_property
    def _below(self) -> Array:
        """Sums below any two cuts, (p, p, b, b, 2 J + 1): what is brought, used and weighs."""
        p = self.codes.shape[1]
        b = 1 + max(map(len, self.cuts))
        columns = np.column_stack([self.brings, self.uses, self.weight])
        sums = np.zeros((p, p, b, b, columns.shape[1]))
        for j in range(p):
            for k in range(j, p):
                place = self.codes[:, j] * b + self.codes[:, k]
                for m, column in enumerate(columns.T):
                    sums[j, k, ..., m] = np.bincount(place, column, b * b).reshape(b, b)
                sums[k, j] = sums[j, k].transpose(1, 0, 2)
        return sums.cumsum(axis=2).cumsum(axis=3)

    def _best(self, depth: int, dearer: float) -> _Node:
        """Return the best tree of depth 0, 1 or 2."""
        J = self.brings.shape[1]
        below = self._below
        net = below[..., :J] - dearer * below[..., J : 2 * J]
        size = below[..., 2 * J]
        whole = net[0, 0, -1, -1]
        best = _Node.leaf(whole)
        if depth == 0:
            return best
        # By one cut of any feature: of the rows below and above each.
        first = net[:, 0, :, -1], size[:, 0, :, -1]
        sides = [first, (whole - first[0], size[0, 0, -1, -1] - first[1])]
        values = [_of(side) for side, _ in sides]
        below_second: list[tuple[Array, Array]] = []
        if depth == 2:
            below_second = [(net, size), (net[:, :, -1:] - net, size[:, :, -1:] - size)]
            for s, (side, weighs) in enumerate(below_second):
                found = self._split_value(side, weighs)  # (p, p, b, b)
                values[s] = np.maximum(values[s], found.max(axis=(1, 3)))
        fits = np.minimum(sides[0][1], sides[1][1]) >= self.least
        total = np.where(fits, values[0] + values[1], -np.inf)
        j, at = _first_best(total)
        if not total[j, at] > best.value + _slack(total[j, at]):
            return best
        children = []
        for s, (side, _) in enumerate(sides):
            child = _Node.leaf(side[j, at])
            if depth == 2:
                inner, weighs = below_second[s]
                child = self._second(inner[j, :, at], weighs[j, :, at], child)
            children.append(child)
        return _Node(float(total[j, at]), 0, j, at, (children[0], children[1]))

    def _split_value(self, below: Array, weighs: Array) -> Array:
        """Return what both sides of each last cut bring, of sums below it; -inf for small ones."""
        rest = below[..., -1:, :] - below
        fits = np.minimum(weighs, weighs[..., -1:] - weighs) >= self.least
        return np.where(fits, _of(below) + _of(rest), -np.inf)

    def _second(self, below: Array, weighs: Array, leaf: _Node) -> _Node:
        """Return the best single cut of a part, of sums (p, b, J) below each."""
        total = self._split_value(below, weighs)
        k, at = _first_best(total)
        if not total[k, at] > leaf.value + _slack(total[k, at]):
            return leaf
        ends = _Node.leaf(below[k, at]), _Node.leaf(below[k, -1] - below[k, at])
        return _Node(float(total[k, at]), 0, k, at, ends)


def _of(net: Array) -> Array:
    """Return what rows bring with the treatment that is best for all of them, or none."""
    return np.asarray(np.maximum(net.max(axis=-1), 0.0))


def _first_best(total: Array) -> tuple[int, int]:
    """Return the first place of the largest number, whichever of equal ones rounding favours."""
    most = float(total.max())
    feature, at = np.unravel_index(np.argmax(total >= most - _slack(most)), total.shape)
    return int(feature), int(at)


def _slack(value: float) -> float:
    """Return what a cut must add, so that rounding makes none."""
    return 1e-12 * max(abs(value), 1e-300)


@dataclass(frozen=True)
class _Node:
    """A part of the rows: what it brings, and the cut or the treatment that does."""

    value: float
    treatment: int
    feature: int | None = None
    at: int = 0
    children: tuple[_Node, ...] = ()

    @classmethod
    def leaf(cls, net: Array) -> _Node:
        """Return a part that is not cut."""
        best = int(np.argmax(net))
        value = float(max(net[best], 0.0))
        return cls(value, best + 1 if net[best] > 0.0 else 0)

    def leaves(self, cuts: tuple[Array, ...]) -> Iterator[tuple[Bounds, int]]:
        """Yield the bounds and treatment of each leaf of a node with one cut at most."""
        if self.feature is None:
            yield {}, self.treatment
            return
        cut = float(cuts[self.feature][self.at])
        for child, ends in zip(
            self.children, ((-np.inf, cut), (cut, np.inf)), strict=True
        ):
            yield {self.feature: ends}, child.treatment
