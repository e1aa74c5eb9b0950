"""From places in an order to what a score is worth: ranks, curve, areas, bins, calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.stats import chi2

from unjoined._typing import Array, IntArray
from unjoined.evaluate.curves import group_ties
from unjoined.evaluate.estimate import Estimate, Totals
from unjoined.evaluate.evaluation import Calibration, CurveBand, Evaluation, ScoreBin
from unjoined.evaluate.terms import cell_positions

WINDOW = 0.05  # on either side of a cut-off, in shares of people: whose uplift counts as there
SHARES = np.arange(1, 21) / 20.0  # of the curve
AT_K = (0.1, 0.2, 0.3, 0.5)
N_BINS = 10
N_DRAWS = 20_000  # of the largest deviation of the curve


class Column(NamedTuple):
    """What a total adds up: parts of each row's terms, times a number of the row's place."""

    numerator: Array | float = 0.0
    denominator: Array | float = 0.0
    aim: Array | float = 0.0
    plain: Array | float = 0.0
    order: int = 0  # whose places are meant
    own: int | None = None  # column of the piece that all is multiplied by


class Functional(NamedTuple):
    """A function h of the rows, and how its own estimate adds to the influence of a row."""

    weight: Array | float  # (b,) h
    rank: Array | float  # (b,) extra influence per share of people, which averages to 0


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
class Scored:
    """People in the order of a score, by their places: a row each, or a bin of rows each."""

    order: Any  # the `Order` that says where rows stand
    score: Array  # (b,)
    people: Array  # (b,) share of the people spoken for, adds up to 1
    effect: Array  # (b,) nuisance uplift, outcome units
    fold: IntArray | None = None  # (b,) to be ranked within; None ranks all together
    ends: Array | None = None  # (b,) greatest score at each place; None for rows
    cost: Array | float = 1.0  # (b,) of treating a person

    @cached_property
    def place(self) -> Place:
        """Where people stand, the best first."""
        return place(self.score, self.people, self.fold)

    @property
    def rank(self) -> Array:
        """Share of people with a lower score, ties counted half, shape (n,)."""
        # Rounded, so that a score that is the same for everyone has rank 1/2 exactly.
        return np.round(1.0 - self.place.above - 0.5 * self.place.size, 14)

    def everyone(self) -> Functional:
        """Return the rule that treats all."""
        return Functional(1.0, 0.0)

    def top(self, share: float) -> Functional:
        r"""Treat the best share; a row adds :math:`-\bar u(c) (h - c)` through the cut-off."""
        h = self.place.filled(share)
        return Functional(h, -self._uplift_near(self.place, share, WINDOW) * (h - share))

    def area(self) -> Functional:
        """Weigh by rank, which makes the AUUC; a row adds the curve at its own rank."""
        F = self.rank
        ties = group_ties(F)
        total = ties.sums(self.people * self.effect)
        above = np.cumsum(total[::-1])[::-1] - 0.5 * total
        if len(total) == 1:  # nobody is ranked, so that there is no rank to estimate
            return Functional(F, 0.0)
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
            return Functional(h, 0.0)
        width = WINDOW * float(np.sum(self.people * cost))
        per_cost = self._uplift_near(order, budget, width, cost)
        return Functional(h, -per_cost * (cost * h - budget))

    def _uplift_near(
        self, order: Place, at: float, width: float, cost: Array | float = 1.0
    ) -> float:
        """Return the average nuisance uplift per cost of those around a cut-off."""
        near = self.people * order.near(at, width)
        total = float(np.sum(near * cost))
        return float(near @ self.effect) / total if total > 0.0 else 0.0

    def mean_score(self) -> Array | float:
        """Return the mean score, or that of each place's fold."""
        if self.fold is None:
            return float(self.people @ self.score)
        parts = (self.people * self.score, self.people)
        total, mass = (np.bincount(self.fold, weights=part) for part in parts)
        return np.asarray((total / mass)[self.fold])

    def rule(self, kind: str, *numbers: Any) -> Functional:
        """Return the functional of a checked rule."""
        if kind == "share":
            return self.top(numbers[0])
        if kind == "threshold":
            # A bin lies on one side of the threshold; its mean may be off by rounding.
            reached = self.score if self.ends is None else self.ends
            return Functional((reached >= numbers[0]) * 1.0, 0.0)
        return self.budget(*numbers)


class Gain(NamedTuple):
    """Columns of a sheet that make the gain of a functional."""

    numerator: int
    rank: int | None
    plain: int | None


class Sheet:
    """The columns to add up for all that is asked; the first two are D and E[omega]."""

    def __init__(self) -> None:
        self.columns = [Column(denominator=1.0), Column(aim=1.0)]
        self.groups: list[IntArray] = []  # of each place of the first order, if asked for

    def add(self, **parts: Any) -> int:
        """Add a column, and return where it is."""
        self.columns.append(Column(**parts))
        return len(self.columns) - 1

    def gain(self, functional: Functional, *, plain: bool = False, **whose: Any) -> Gain:
        """Add the columns of a functional."""
        weight, rank = functional
        return Gain(
            self.add(numerator=weight, **whose),
            self.add(aim=rank, **whose) if np.any(rank) else None,
            self.add(plain=weight, **whose) if plain else None,
        )


@dataclass(frozen=True, eq=False)
class Read:
    """The totals of a sheet. A sum of its columns is what each is multiplied by, shape (m,)."""

    totals: Totals

    @property
    def speaks_for(self) -> float:
        """Share of people the numbers speak for."""
        return float(self.totals.value[1])

    def __getitem__(self, column: int) -> Array:
        """Return a column by itself."""
        return np.asarray(np.eye(1, len(self.totals.value), column)[0])

    def gain(self, gain: Gain, *, plain: bool = False) -> Array:
        """Return the numerator of a gain, with what ranks add to its influence."""
        first = gain.plain if plain and gain.plain is not None else gain.numerator
        if gain.rank is None:
            return self[first]
        scale = 1.0 if plain else float(self.totals.value[0]) / self.speaks_for
        return np.asarray(self[first] + scale * self[gain.rank])

    def per_person(self, numerator: Array, *, plain: bool = False) -> Estimate:
        """Return a numerator per person spoken for; by the plain score with a normal interval."""
        found = self.totals.combined(np.array([numerator, self[int(plain)]])).ratio(0, 1)
        return Estimate(found.value, found.standard_error) if plain else found


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
    of_place: IntArray  # (b,) the bin of each place

    @property
    def n(self) -> int:
        """Number of bins."""
        return len(self.edges) + 1

    @classmethod
    def cut(cls, rows: Scored, n_bins: int) -> Bins:
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
    def _within_folds(cls, rows: Scored, folds: list[IntArray], n_bins: int) -> Bins:
        """Cut the ranks, which are those within the folds."""
        held = rows.people > 0.0
        bins = np.searchsorted(np.arange(1, n_bins) / n_bins, rows.rank, side="left")
        kept = np.unique(bins[held])
        tops = []
        for b in kept[:-1]:
            below = [rows.score[at[held[at] & (bins[at] <= b)]] for at in folds]
            tops.append(float(np.mean([scores.max() for scores in below if len(scores)])))
        return cls(np.array(tops), np.searchsorted(kept, np.minimum(bins, kept[-1])))


class Appraisal:
    """All that is asked of one score, and what the totals say of it."""

    def __init__(self, scored: Scored, sheet: Sheet, rules: Mapping[str, Gain]) -> None:
        self.scored, self.rules = scored, rules
        self.everyone = sheet.gain(scored.everyone(), plain=True)
        self.area = sheet.gain(scored.area(), plain=True)
        self.curve = {share: sheet.gain(scored.top(share)) for share in SHARES.tolist()}
        self.bins = Bins.cut(scored, N_BINS)
        sheet.groups.append(self.bins.of_place)
        score, inside = scored.score, [self.bins.of_place == b for b in range(self.bins.n)]
        self.in_bins = (
            [sheet.add(numerator=each * 1.0) for each in inside],
            [sheet.add(denominator=each * 1.0) for each in inside],
            [sheet.add(denominator=each * score) for each in inside],
        )
        # About their mean, or that of each fold, so that squares lose no digits.
        off = score - scored.mean_score()
        self.line = (
            sheet.add(numerator=off),
            sheet.add(denominator=off),
            sheet.add(denominator=off**2),
            sheet.add(denominator=score),
        )

    def allowing_for(self, noise: float, totals: Totals, sheet: Sheet) -> Totals:
        """Return totals that vary as much as those of fits that saw each other's rows do.

        Where fits without one fold each rank by noise, what one finds in the other's fold is found
        the other way round as well. What people gain beyond the average then varies twice as much
        as their rows say; see `GainByScore`.
        """
        if noise == 0.0:
            return totals
        apart = np.zeros((len(sheet.columns), len(sheet.columns)))
        for j, column in enumerate(sheet.columns):
            for weight, total in (
                (column.numerator, self.everyone.numerator),
                (column.plain, self.everyone.plain),
            ):
                if np.ndim(weight) and total is not None:
                    apart[j, j] = 1.0
                    apart[j, total] -= float(self.scored.people @ weight)
        covariance = totals.covariance
        return replace(totals, covariance=covariance + noise * apart @ covariance @ apart.T)

    def evaluation(self, read: Read, least: Array, level: float, rng: Rng) -> Evaluation:
        """Return all that is said of the score but for whom it leaves out, in both forms."""
        found, plain = (self._gains(read, plain=plain) for plain in (False, True))
        curve, points = self._curve(read, level, rng)
        bins, p_value = self._bins(read, least)
        average, area, qini = (found.pop(name) for name in ("average", "auuc", "qini"))
        return Evaluation(
            average=average,
            auuc=area,
            qini=qini,
            rules=found,
            curve=curve,
            at_k={k: at_share(points[k], k) for k in AT_K},
            bins=bins,
            calibration=self._calibration(read, average, p_value),
            speaks_for=read.speaks_for,
            left_out="",
            plain=plain,
            level=level,
        )

    def _gains(self, read: Read, *, plain: bool) -> dict[str, Estimate]:
        """Return the average, both areas and the rules."""
        everyone, area = (read.gain(gain, plain=plain) for gain in (self.everyone, self.area))
        named = {"average": everyone, "auuc": area, "qini": area - 0.5 * everyone}
        named |= {name: read.gain(gain, plain=plain) for name, gain in self.rules.items()}
        return {name: read.per_person(gain, plain=plain) for name, gain in named.items()}

    def _curve(self, read: Read, level: float, rng: Rng) -> tuple[CurveBand, dict[float, Estimate]]:
        """Return the uplift curve with its uniform band, and each point as an estimate."""
        m = len(SHARES)
        totals = read.totals.combined(np.array([*map(read.gain, self.curve.values()), read[0]]))
        points = {share: totals.ratio(j, m) for j, share in enumerate(SHARES.tolist())}
        theta = np.array([point.value for point in points.values()])
        away = totals.combined(np.column_stack([np.eye(m), -theta]))
        z = largest_deviation(away.covariance, level, rng)
        ends = [_hull(point, z) for point in points.values()]
        low, high = (np.array(end) for end in zip(*ends, strict=True))
        zero = np.zeros(1)
        band = CurveBand(*(np.concatenate([zero, a]) for a in (SHARES, theta, low, high)))
        return band, points

    def _bins(self, read: Read, least: Array) -> tuple[tuple[ScoreBin, ...], float]:
        """Return the uplift in bins of the score, and the p-value that predictions are right."""
        n, scored = self.bins.n, self.scored
        N, D, said = (np.array([read[j] for j in columns]) for columns in self.in_bins)
        totals = read.totals.combined(np.concatenate([N, D, N - said]))
        variance = totals.covariance
        for j in (*range(n), *range(2 * n, 3 * n)):
            variance[j, j] = np.maximum(variance[j, j], least[j % n])  # nan stays nan
        held = scored.score[scored.people > 0.0]
        edges = [float(held.min()), *self.bins.edges.tolist(), float(held.max())]
        found = []
        for b in range(n):
            people = scored.people * (self.bins.of_place == b)
            share = float(people.sum())
            predicted = float(people @ scored.score) / share
            found.append(ScoreBin(edges[b], edges[b + 1], share, predicted, totals.ratio(b, n + b)))
        return tuple(found), _joint_p(totals, 2 * n + np.flatnonzero(np.isfinite(least)))

    def _calibration(self, read: Read, average: Estimate, p_value: float) -> Calibration:
        r"""Return the line of uplift on the score, :math:`u \approx a + b s`, and the joint test.

        With :math:`c = D(s) / D(1)` the slope is :math:`N(s - c) / D((s - c)^2)`, a ratio whose
        interval is Fieller's. A constant score has no slope, and its intercept is the average.
        Scores of several fits are centred at the mean of each.
        """
        s = self.scored.score[self.scored.people > 0.0]
        if float(np.ptp(s)) <= 1e-12 * max(1.0, float(np.abs(s).max())):
            return Calibration(None, average, p_value)
        value, theta = read.totals.value, average.value
        one, D = read[self.everyone.numerator], read[0]
        n_off, d_off, d_square, d_score = (read[j] for j in self.line)
        c = float(d_score @ value / value[0])
        if self.scored.fold is None:  # off the mean by D, no longer by people
            shift = float(d_off @ value / value[0])
            d_square = d_square - 2.0 * shift * d_off + shift**2 * D
            n_off, d_off = n_off - shift * one, d_off - shift * D
        totals = read.totals.combined(np.array([n_off - theta * d_off, d_square]))
        slope = totals.ratio(0, 1)
        # k (n - d (theta + b off)) with k = 1 / D - c off / D(off^2)
        k, b = c / totals.value[1], slope.value
        influence = (one - theta * D - b * d_off) / value[0]
        influence -= k * (n_off - theta * d_off - b * d_square)
        error = read.totals.combined(influence[None]).covariance[0, 0]
        intercept = Estimate(theta - b * c, math.sqrt(max(float(error), 0.0)))
        return Calibration(slope, intercept, p_value)


def _joint_p(totals: Totals, at: IntArray) -> float:
    """Return the p-value that some totals are all 0."""
    if not len(at):
        return math.nan
    some = Totals(totals.value[at], totals.covariance[np.ix_(at, at)])
    statistic, degrees = some.chi_square(slice(0, len(at)))
    return float(chi2.sf(statistic, degrees)) if degrees else math.nan
