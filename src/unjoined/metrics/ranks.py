"""From two numbers per row to what a score is worth: ranks, curve, areas, bins, calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import RandomState as Rng
from scipy.stats import chi2

from unjoined._typing import Array, BoolArray, IntArray
from unjoined.metrics.curves import group_ties
from unjoined.metrics.estimate import Estimate, Totals
from unjoined.metrics.evaluation import Calibration, CurveBand, Evaluation, ScoreBin
from unjoined.metrics.ratio import Column, cell_positions

WINDOW = 0.05  # on either side of a cut-off, in shares of people: whose uplift counts as there
SHARES = np.arange(1, 21) / 20.0  # of the curve
AT_K = (0.1, 0.2, 0.3, 0.5)
N_BINS = 10
N_DRAWS = 20_000  # of the largest deviation of the curve


class Terms(Protocol):
    """What is asked of the terms of rows, or of sums of them in bins."""

    @property
    def people(self) -> Array:
        """Share of the people spoken for; they add up to 1."""

    @property
    def effect(self) -> Array:
        """Nuisance uplift, outcome units."""

    @property
    def speaks_for(self) -> float:
        """Share of the target that the answer speaks for."""

    def sums(self, columns: Sequence[Column]) -> Totals:
        """Return the totals of columns, and their covariance."""

    def least_variance(self, inside: BoolArray) -> float:
        """Return the least variance of a group's numerator."""


class Functional(NamedTuple):
    """A function h of the rows, and how its own estimate adds to the influence of a row."""

    weight: Array  # (n,) h
    rank: Array  # (n,) extra influence per share of people, which averages to 0; or a plain 0


class Place(NamedTuple):
    """Where rows stand when the best come first: what is used up above, and by their ties."""

    above: Array  # (n,)
    size: Array  # (n,)

    def filled(self, capacity: float) -> Array:
        """Return which share of each row is taken until the capacity is used up."""
        some = np.where(self.size > 0.0, self.size, 1.0)
        share = np.clip((capacity - self.above) / some, 0.0, 1.0)
        return np.where(self.size > 0.0, share, (self.above < capacity) * 1.0)

    def near(self, at: float, width: float) -> Array:
        """Return how much of each row lies within ``width`` of a point, from 0 to 1."""
        low = np.maximum(self.above, at - width)
        inside = np.maximum(np.minimum(self.above + self.size, at + width) - low, 0.0)
        return np.asarray(inside / np.where(self.size > 0.0, self.size, 1.0))


def place(key: Array, demand: Array, fold: IntArray | None) -> Place:
    """Return where rows stand by a key, the largest first, each fold by itself.

    The demand of a fold is scaled to the total of all, as if it stood for everybody.
    """
    above, size = np.empty(len(key)), np.empty(len(key))
    total = float(demand.sum())
    for at in [np.arange(len(key))] if fold is None else cell_positions(fold):
        ties = group_ties(key[at], demand[at])
        own = max(float(ties.size.sum()), 1e-300)
        from_top = np.cumsum(ties.size[::-1])[::-1] - ties.size
        above[at] = (from_top * (total / own))[ties.group]
        size[at] = (ties.size * (total / own))[ties.group]
    return Place(above, size)


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Terms of rows, or of bins of rows, a score of each, and where each stands by it."""

    terms: Terms
    score: Array  # (n,)
    fold: IntArray | None = None  # (n,) to be ranked within; None ranks all rows together
    ends: Array | None = None  # (n,) greatest score in each bin; None for rows
    people: Array = field(init=False)  # (n,) share of the people spoken for, adds up to 1
    order: Place = field(init=False)

    def __post_init__(self) -> None:
        """Rank the rows among those the answer speaks for."""
        people = self.terms.people
        object.__setattr__(self, "people", people)
        object.__setattr__(self, "order", place(self.score, people, self.fold))

    @property
    def rank(self) -> Array:
        """Share of people with a lower score, ties counted half, shape (n,)."""
        # Rounded, so that a score that is the same for everyone has rank 1/2 exactly.
        return np.round(1.0 - self.order.above - 0.5 * self.order.size, 14)

    def everyone(self) -> Functional:
        """Return the rule that treats all."""
        return Functional(np.ones(len(self.score)), np.zeros(1))

    def top(self, share: float) -> Functional:
        r"""Treat the best share; a row adds :math:`-\bar u(c) (h - c)` through the cut-off."""
        h = self.order.filled(share)
        return Functional(h, -self._uplift_near(self.order, share, WINDOW) * (h - share))

    def area(self) -> Functional:
        """Weigh by rank, which makes the AUUC; a row adds the curve at its own rank."""
        F = self.rank
        ties = group_ties(F)
        total = ties.sums(self.people * self.terms.effect)
        above = np.cumsum(total[::-1])[::-1] - 0.5 * total
        if len(total) == 1:  # nobody is ranked, so that there is no rank to estimate
            return Functional(F, np.zeros(1))
        curve = above[ties.group]
        return Functional(F, curve - self.people @ curve)

    def budget(self, budget: float, cost: Array | float) -> Functional:
        """Spend a budget per person on the best uplift per cost, as long as it is above 0."""
        helped = self.score > 0.0
        spend = np.where(helped, self.people * cost, 0.0)
        key = np.where(helped, self.score / cost, -np.inf)
        order = place(key, spend, self.fold)
        h = np.where(helped, order.filled(budget), 0.0)
        if float(spend.sum()) <= budget:  # money is left over, so that no cut-off is estimated
            return Functional(h, np.zeros(1))
        width = WINDOW * float(np.sum(self.people * cost))
        per_cost = self._uplift_near(order, budget, width, cost)
        return Functional(h, -per_cost * (cost * h - budget))

    def _uplift_near(
        self, order: Place, at: float, width: float, cost: Array | float = 1.0
    ) -> float:
        """Return the average nuisance uplift per cost of those around a cut-off."""
        near = self.people * order.near(at, width)
        total = float(np.sum(near * cost))
        return float(near @ self.terms.effect) / total if total > 0.0 else 0.0

    def totals(self, functionals: Sequence[Functional]) -> Totals:
        """Return N of each functional with its rank term, then D."""
        D = Column(denominator=1.0)
        scale = float(self.terms.sums([D]).value[0]) / self.terms.speaks_for
        each = [Column(weight, aim=scale * rank) for weight, rank in functionals]
        return self.terms.sums([*each, D])

    def estimates(self, functionals: Mapping[str, Functional]) -> dict[str, Estimate]:
        """Return the gain per person of each functional."""
        totals, last = self.totals(list(functionals.values())), len(functionals)
        return {name: totals.ratio(j, last) for j, name in enumerate(functionals)}

    def curve(self, level: float, rng: Rng) -> tuple[CurveBand, dict[float, Estimate]]:
        """Return the uplift curve with its uniform band, and each point as an estimate."""
        m = len(SHARES)
        totals = self.totals([self.top(share) for share in SHARES.tolist()])
        points = {share: totals.ratio(j, m) for j, share in enumerate(SHARES.tolist())}
        theta = np.array([point.value for point in points.values()])
        away = totals.combined(np.column_stack([np.eye(m), -theta]))
        z = largest_deviation(away.covariance, level, rng)
        ends = [_hull(point, z) for point in points.values()]
        low, high = (np.array(end) for end in zip(*ends, strict=True))
        zero = np.zeros(1)
        band = CurveBand(*(np.concatenate([zero, a]) for a in (SHARES, theta, low, high)))
        return band, points


def _hull(estimate: Estimate, z: float) -> tuple[float, float]:
    """Return the ends of Fieller's set at a given number of standard errors."""
    if estimate.ratio is None:
        return estimate.value - z * estimate.standard_error, estimate.value
    pieces = estimate.ratio.fieller(z)
    return pieces[0][0], pieces[-1][1]


def largest_deviation(covariance: Array, level: float, rng: Rng) -> float:
    """Return the quantile of the largest of correlated normal deviations, in standard errors."""
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    moves = error > 0.0
    if not moves.any() or not np.isfinite(covariance).all():
        return math.inf if not np.isfinite(covariance).all() else 0.0
    correlation = covariance[np.ix_(moves, moves)] / np.outer(error[moves], error[moves])
    size, directions = np.linalg.eigh(correlation)
    root = directions * np.sqrt(np.maximum(size, 0.0))
    draws = rng.standard_normal((N_DRAWS, len(size))) @ root.T
    return float(np.quantile(np.abs(draws).max(axis=1), level))


def at_share(point: Estimate, share: float) -> Estimate:
    """Return the gain per person of treating a share as the mean uplift of those treated."""
    ratio = point.ratio
    if ratio is None:
        return Estimate(point.value / share, point.standard_error / share)
    return Estimate.of_ratio(
        replace(
            ratio,
            numerator=ratio.numerator / share,
            numerator_variance=ratio.numerator_variance / share**2,
            covariance=ratio.covariance / share,
        )
    )


@dataclass(frozen=True, eq=False)
class Bins:
    """People in groups by their score, with the edges taken as given."""

    edges: Array  # (b - 1,) greatest score of all bins but the last
    of_row: IntArray  # (n,)

    @classmethod
    def cut(cls, rows: ScoredRows, n_bins: int) -> Bins:
        """Cut the scores so that each bin has about as many people; ties stay together.

        Rows ranked within folds are cut within folds, and edges are means over the folds: fits
        that left out a fold of high uplift predict too little for it, and the other way round.
        """
        if rows.fold is not None:
            return cls._within_folds(rows, cell_positions(rows.fold), n_bins)
        order = np.argsort(rows.score, kind="stable")
        held = order[rows.people[order] > 0.0]
        ends = rows.score if rows.ends is None else rows.ends
        mass, score = np.cumsum(rows.people[held]), ends[held]
        wanted = np.arange(1, n_bins) / n_bins
        at = np.searchsorted(mass, wanted * mass[-1] - 1e-12)
        edges = np.unique(score[np.minimum(at, len(score) - 1)])
        edges = edges[edges < score[-1]]
        return cls(edges, np.searchsorted(edges, ends, side="left"))

    @classmethod
    def _within_folds(cls, rows: ScoredRows, folds: list[IntArray], n_bins: int) -> Bins:
        """Cut the ranks, which are those within the folds."""
        held = rows.people > 0.0
        bins = np.searchsorted(np.arange(1, n_bins) / n_bins, rows.rank, side="left")
        kept = np.unique(bins[held])
        tops = []
        for b in kept[:-1]:
            below = [rows.score[at[held[at] & (bins[at] <= b)]] for at in folds]
            tops.append(float(np.mean([scores.max() for scores in below if len(scores)])))
        return cls(np.array(tops), np.searchsorted(kept, np.minimum(bins, kept[-1])))


def score_bins(rows: ScoredRows, n_bins: int) -> tuple[tuple[ScoreBin, ...], float]:
    """Return the uplift in bins of the score, and the p-value that all predictions are right."""
    bins, found = Bins.cut(rows, n_bins), []
    n = len(bins.edges) + 1
    inside = [(bins.of_row == b) * 1.0 for b in range(n)]
    columns = [Column(numerator=each) for each in inside]
    columns += [Column(denominator=each) for each in inside]
    columns += [Column(each, -each * rows.score) for each in inside]
    totals = rows.terms.sums(columns)
    variance = totals.covariance.copy()
    least = np.array([rows.terms.least_variance(bins.of_row == b) for b in range(n)])
    for j in (*range(n), *range(2 * n, 3 * n)):
        variance[j, j] = np.maximum(variance[j, j], least[j % n])  # nan stays nan
    totals = Totals(totals.value, variance)
    held = rows.score[rows.people > 0.0]
    edges = [float(held.min()), *bins.edges.tolist(), float(held.max())]
    for b in range(n):
        people = rows.people * inside[b]
        share = float(people.sum())
        predicted = float(people @ rows.score) / share
        found.append(ScoreBin(edges[b], edges[b + 1], share, predicted, totals.ratio(b, n + b)))
    return tuple(found), _joint_p(totals, 2 * n + np.flatnonzero(np.isfinite(least)))


def _joint_p(totals: Totals, at: IntArray) -> float:
    """Return the p-value that some totals are all 0."""
    if not len(at):
        return math.nan
    some = Totals(totals.value[at], totals.covariance[np.ix_(at, at)])
    statistic, degrees = some.chi_square(slice(0, len(at)))
    return float(chi2.sf(statistic, degrees)) if degrees else math.nan


def calibration_line(rows: ScoredRows, average: Estimate, p_value: float) -> Calibration:
    r"""Return the line of uplift on the score, :math:`u \approx a + b s`, and the joint test.

    With :math:`c = D(s) / D(1)` the slope is :math:`N(s - c) / D((s - c)^2)`, a ratio whose
    interval is Fieller's. A constant score has no slope, and its intercept is the average.
    Scores of several fits are centred at the mean of each.
    """
    s, held = rows.score, rows.people > 0.0
    if float(np.ptp(s[held])) <= 1e-12 * max(1.0, float(np.abs(s[held]).max())):
        return Calibration(None, average, p_value)
    sums = rows.terms.sums
    N, D, weighted = sums([Column(1.0), Column(denominator=1.0), Column(denominator=s)]).value
    theta, c = float(N / D), float(weighted / D)
    off = s - (c if rows.fold is None else _fold_means(rows))
    totals = sums([Column(off, -theta * off), Column(denominator=off**2)])
    slope = totals.ratio(0, 1)
    k = 1.0 / D - c * off / totals.value[1]
    error = sums([Column(k, -k * (theta + slope.value * off))]).covariance[0, 0]
    intercept = Estimate(theta - slope.value * c, math.sqrt(max(float(error), 0.0)))
    return Calibration(slope, intercept, p_value)


def _fold_means(rows: ScoredRows) -> Array:
    """Return the mean score of each row's fold, shape (n,)."""
    fold = np.zeros(len(rows.score), dtype=np.int64) if rows.fold is None else rows.fold
    total, mass = (np.bincount(fold, weights=w) for w in (rows.people * rows.score, rows.people))
    return np.asarray((total / mass)[fold])


def rule_of(rows: ScoredRows, rule: tuple[Any, ...]) -> Functional:
    """Return the functional of a checked rule."""
    kind, *numbers = rule
    if kind == "share":
        return rows.top(numbers[0])
    if kind == "threshold":
        return Functional((rows.score >= numbers[0]) * 1.0, np.zeros(1))
    if kind == "budget":
        return rows.budget(*numbers)
    return Functional(numbers[0], np.zeros(1))


def functionals(rows: ScoredRows, rules: Mapping[str, tuple[Any, ...]]) -> dict[str, Functional]:
    """Return the average, both areas and the rules, by name."""
    area = rows.area()
    named = {
        "average": rows.everyone(),
        "auuc": area,
        "qini": Functional(area.weight - 0.5, area.rank),
    }
    return named | {name: rule_of(rows, rule) for name, rule in rules.items()}


def make_evaluation(
    rows: ScoredRows,
    plain: ScoredRows,
    rules: Mapping[str, tuple[Any, ...]],
    level: float,
    rng: Rng,
) -> Evaluation:
    """Return all that is said of a score but for whom it leaves out, in both forms."""
    named = functionals(rows, rules)
    found, doubly = rows.estimates(named), plain.estimates(named)
    curve, points = rows.curve(level, rng)
    bins, p_value = score_bins(rows, N_BINS)
    average = found.pop("average")
    return Evaluation(
        average=average,
        auuc=found.pop("auuc"),
        qini=found.pop("qini"),
        rules=found,
        curve=curve,
        at_k={k: at_share(points[k], k) for k in AT_K},
        bins=bins,
        calibration=calibration_line(rows, average, p_value),
        speaks_for=rows.terms.speaks_for,
        left_out="",
        plain={n: Estimate(e.value, e.standard_error) for n, e in doubly.items()},
        level=level,
    )
