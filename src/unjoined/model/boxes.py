"""Boxes of people, bounded in a few features, that boosted trees find beside a smooth fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unjoined._typing import Array, BoolArray, IntArray
from unjoined.model.basis import weighted_quantile
from unjoined.model.families import Family

Rule = tuple[tuple[int, float, bool], ...]  # column, cut, and whether values lie above
N_BINS = 16  # of a feature
FEWEST = 20.0  # rows on either side of a cut


class Boosting(NamedTuple):
    """How trees are grown, and how many of their boxes are kept."""

    of_effect: bool  # or else of the base
    depth: int
    n_trees: int
    ridge: float  # precision of what a leaf adds
    most: int
    rows: float  # for each box that is kept
    rate: float = 0.2


# Boxes are chosen by the rows that are fitted to them afterwards. More of the effect, whose noise
# is large, are chosen by chance.
OF_BASE = Boosting(False, depth=2, n_trees=40, ridge=60.0, most=20, rows=50.0)
OF_EFFECT = Boosting(True, depth=3, n_trees=8, ridge=40.0, most=6, rows=150.0)


class Bins(NamedTuple):
    """Features cut at quantiles, or between values if these are few."""

    columns: tuple[int, ...]
    cuts: tuple[Array, ...]  # of each column
    codes: IntArray  # (columns, n) the bin of each row, those of all columns numbered through

    @classmethod
    def of_rows(cls, X: Array, weight: Array, columns: Sequence[int]) -> Bins:
        """Cut some columns."""
        levels = tuple((np.arange(1, N_BINS) / N_BINS).tolist())
        cuts = []
        codes = np.empty((len(columns), len(X)), dtype=np.int64)
        for j, c in enumerate(columns):
            values = np.unique(X[:, c])
            if len(values) <= N_BINS:
                cut = 0.5 * values[1:] + 0.5 * values[:-1]
            else:
                cut = np.unique(weighted_quantile(X[:, c], weight, levels))
            cuts.append(cut)
            codes[j] = j * N_BINS + np.searchsorted(cut, X[:, c], side="left")
        return cls(tuple(columns), tuple(cuts), codes)

    def sums(self, values: Sequence[Array], at: IntArray) -> list[Array]:
        """Return the sums of values at some rows up to the end of each bin, (columns, bins)."""
        d = len(self.columns)
        codes = self.codes[:, at].ravel()
        sums = [np.bincount(codes, np.tile(v[at], d), d * N_BINS) for v in values]
        return [np.cumsum(each.reshape(d, N_BINS), axis=1) for each in sums]

    def above(self, at: IntArray, j: int, b: int) -> BoolArray:
        """Tell which of some rows lie above the end of a bin."""
        return np.asarray(self.codes[j, at] > j * N_BINS + b)


def find_rules(
    rows: tuple[Array, Array, Array, Array],
    columns: Sequence[int],
    family: Family,
    base: Array,
    effect: Array,
    how: Boosting,
) -> tuple[Rule, ...]:
    """Boost base or effect of a fit by shallow trees and return the boxes that gained most.

    ``rows`` are their features, outcomes, exposures and weights. Each tree takes one Newton step of
    the likelihood. Costs O(n d) for each level of each tree.
    """
    X, y, exposure, weight = rows
    if not columns:
        return ()
    bins = Bins.of_rows(X, weight, columns)
    parts = [base.copy(), effect.copy()]
    moved = parts[how.of_effect]
    gained: dict[Rule, float] = {}
    for _ in range(how.n_trees):
        terms = family(y, exposure, *parts)
        slope, curvature = terms.by_base, terms.base_base
        if how.of_effect:
            slope, curvature = terms.by_effect, terms.effect_effect
        sums = (weight * slope, weight * curvature, weight)
        leaves: list[tuple[IntArray, Rule]] = [(np.arange(len(y)), ())]
        for _ in range(how.depth):
            leaves = [
                leaf
                for at, rule in leaves
                for leaf in _split(bins, at, rule, sums, how.ridge, gained)
            ]
        for at, _ in leaves:
            moved[at] -= how.rate * sums[0][at].sum() / (sums[1][at].sum() + how.ridge)
    best = sorted(gained, key=lambda rule: -gained[rule])
    return tuple(best[: min(how.most, int(weight.sum() / how.rows))])


def _split(
    bins: Bins,
    at: IntArray,
    rule: Rule,
    sums: tuple[Array, Array, Array],
    ridge: float,
    gained: dict[Rule, float],
) -> list[tuple[IntArray, Rule]]:
    """Split a leaf where the loss falls most, if it can be, and note what its halves gain."""
    slope, curvature, weight = bins.sums(sums, at)

    def fall(slope: Array, curvature: Array) -> Array:
        return slope**2 / (curvature + ridge)

    gain = fall(slope, curvature) - fall(slope[:, -1:], curvature[:, -1:])
    gain += fall(slope[:, -1:] - slope, curvature[:, -1:] - curvature)
    is_large = (weight >= FEWEST) & (weight[:, -1:] - weight >= FEWEST)
    gain[~is_large] = 0.0
    j, b = (int(each) for each in np.unravel_index(np.argmax(gain), gain.shape))
    if gain[j, b] <= 0.0:
        return [(at, rule)]
    above = bins.above(at, j, b)
    column, cut = bins.columns[j], float(bins.cuts[j][b])
    halves = []
    for side in (True, False):
        half: Rule = tuple(sorted({*rule, (column, cut, side)}))
        halves.append((at[above == side], half))
        if side or rule:  # of a single cut, one side is the other turned round
            gained[half] = gained.get(half, 0.0) + float(gain[j, b])
    return halves


def write_rules(rules: Sequence[Rule], X: Array, out: Array) -> None:
    """Write 1 where a row is inside of a box and 0 elsewhere, (rules, n)."""
    known: dict[tuple[int, float, bool], BoolArray] = {}
    for rule, row in zip(rules, out, strict=True):
        inside: BoolArray = np.ones(len(X), dtype=np.bool_)
        for column, cut, side in rule:
            bound = (column, cut, side)
            if bound not in known:
                known[bound] = (X[:, column] > cut) == side
            inside &= known[bound]
        row[:] = inside
