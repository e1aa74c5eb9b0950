"""People in the order of a score: their places, whom a rule takes, and sums over rows by place.

A first pass says how many people stand at each place of an order: a place is a row, or a fine bin
of rows in pieces. What is asked of the order becomes a number for each place, and a second pass
adds up the rows' terms times these numbers, with their products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, IntArray
from unjoined._validation import OutcomeCoding, shown
from unjoined.data.fold import Additive
from unjoined.errors import InputError
from unjoined.evaluate.curves import group_ties
from unjoined.evaluate.estimate import Estimate, Totals
from unjoined.evaluate.regions import NamedFeatures, say_left_out
from unjoined.evaluate.sensitivity import Claim, Sensitivity, sensitivity_of
from unjoined.evaluate.terms import EvaluationRows, Sums, cell_positions

FINE_BINS = 1000  # of the score; treated as tied inside
FEW_SCORES = 2000  # different scores that each have a bin of their own
FEWEST = 2  # rows of each table in a group that has an interval
WINDOW = 0.05  # on either side of a cut-off, in shares of people: whose uplift counts as there
N_DRAWS = 20_000  # of the largest deviation of a curve
T = TypeVar("T")
# A number h of each place, and what its own estimate adds to the influence per share of people
# there, which averages to 0.
Functional = tuple[Array | float, Array | float]


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
    edges: Array | None = (
        None  # (b - 1,) greatest key of all bins but the last; None for rows
    )

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


def count_people(orders: Sequence[Order], piece: Piece) -> Array:
    """Add up rows at each place of orders in bins, one order after the other: the first pass.

    Columns (b, 6) are p and p key; p aim omega times 1, effect, key and cost.
    """
    rows, share, people = piece.rows, piece.rows.share, piece.rows.people
    sums = []
    for order in orders:
        key = order.key(piece.columns)
        at = np.asarray(order.places(piece))
        cost = 0.0 if order.cost is None else piece.columns[:, order.cost]
        values = (
            share,
            share * key,
            people,
            people * rows.effect,
            people * key,
            people * cost,
        )
        counts = [np.bincount(at, value, minlength=order.n_bins) for value in values]
        sums.append(np.column_stack(counts))
    return np.concatenate(sums)


class Place(NamedTuple):
    """Where rows stand when the best come first: what is used up above, and by their ties."""

    above: Array  # (n,)
    size: Array  # (n,)

    @classmethod
    def by_key(cls, key: Array, demand: Array, fold: IntArray | None) -> Place:
        """Return where rows stand by a key, the largest first, each fold by itself.

        The demand of a fold is scaled to the total of all, as if it stood for everybody.
        """
        above = np.empty(len(key))
        size = np.empty(len(key))
        total = float(demand.sum())
        for at in [np.arange(len(key))] if fold is None else cell_positions(fold):
            ties = group_ties(key[at], demand[at])
            scale = total / max(float(ties.size.sum()), 1e-300)
            from_top = np.cumsum(ties.size[::-1])[::-1] - ties.size
            above[at] = (from_top * scale)[ties.group]
            size[at] = (ties.size * scale)[ties.group]
        return cls(above, size)

    def filled(self, capacity: float) -> Array:
        """Return which share of each row is taken until the capacity is used up."""
        size = np.where(self.size > 0.0, self.size, 1.0)
        share = np.clip((capacity - self.above) / size, 0.0, 1.0)
        return np.where(self.size > 0.0, share, (self.above < capacity) * 1.0)

    def near(self, at: float, width: float) -> Array:
        """Return how much of each row lies within ``width`` of a point, from 0 to 1."""
        low = np.maximum(self.above, at - width)
        inside = np.maximum(np.minimum(self.above + self.size, at + width) - low, 0.0)
        return np.asarray(inside / np.where(self.size > 0.0, self.size, 1.0))


@dataclass(frozen=True, eq=False)
class Scored:
    """People in the order of a score, by their places: a row each, or a bin of rows each."""

    order: Any  # the `Order` that says where rows stand, or None
    score: Array  # (b,)
    people: Array  # (b,) share of the people spoken for, adds up to 1
    effect: Array  # (b,) nuisance uplift, outcome units
    fold: IntArray | None = None  # (b,) to be ranked within; None ranks all together
    ends: Array | None = None  # (b,) greatest score at each place; None for rows
    cost: Array | float = 1.0  # (b,) of treating a person

    @cached_property
    def place(self) -> Place:
        """Where people stand, the best first."""
        return Place.by_key(self.score, self.people, self.fold)

    @property
    def rank(self) -> Array:
        """Share of people with a lower score, ties counted half, shape (n,)."""
        # Rounded, so that a score that is the same for everyone has rank 1/2 exactly.
        return np.round(1.0 - self.place.above - 0.5 * self.place.size, 14)

    def everyone(self) -> Functional:
        """Return the rule that treats all."""
        return 1.0, 0.0

    def top(self, share: float) -> Functional:
        r"""Treat the best share; a row adds :math:`-\bar u(c) (h - c)` through the cut-off."""
        h = self.place.filled(share)
        return h, -self._uplift_near(self.place, share, WINDOW) * (h - share)

    def area(self) -> Functional:
        """Weigh by rank, which makes the AUUC; a row adds the curve at its own rank."""
        F = self.rank
        ties = group_ties(F)
        total = ties.sums(self.people * self.effect)
        if len(total) == 1:  # nobody is ranked, so that there is no rank to estimate
            return F, 0.0
        curve = (np.cumsum(total[::-1])[::-1] - 0.5 * total)[ties.group]
        return F, curve - self.people @ curve

    def budget(self, budget: float, cost: Array | float) -> Functional:
        """Spend a budget per person on the best uplift per cost, as long as it is above 0."""
        helped = self.score > 0.0
        spend = np.where(helped, self.people * cost, 0.0)
        place = Place.by_key(
            np.where(helped, self.score / cost, -np.inf), spend, self.fold
        )
        h = np.where(helped, place.filled(budget), 0.0)
        if (
            float(spend.sum()) <= budget
        ):  # money is left over, so that no cut-off is estimated
            return h, 0.0
        width = WINDOW * float(np.sum(self.people * cost))
        return h, -self._uplift_near(place, budget, width, cost) * (cost * h - budget)

    def _uplift_near(
        self, place: Place, at: float, width: float, cost: Array | float = 1.0
    ) -> float:
        """Return the average nuisance uplift per cost of those around a cut-off."""
        near = self.people * place.near(at, width)
        total = float(np.sum(near * cost))
        return float(near @ self.effect) / total if total > 0.0 else 0.0

    def rule(self, kind: str, *numbers: Any) -> Functional:
        """Return the functional of a checked rule."""
        if kind == "share":
            return self.top(numbers[0])
        if kind == "threshold":
            # A bin lies on one side of the threshold; its mean may be off by rounding.
            reached = self.score if self.ends is None else self.ends
            return (reached >= numbers[0]) * 1.0, 0.0
        return self.budget(*numbers)

    def mean_score(self) -> Array | float:
        """Return the mean score, or that of each place's fold."""
        if self.fold is None:
            return float(self.people @ self.score)
        total = np.bincount(self.fold, weights=self.people * self.score)
        return np.asarray(
            (total / np.bincount(self.fold, weights=self.people))[self.fold]
        )

    def in_bins(self, n_bins: int) -> tuple[Array, IntArray]:
        """Cut the scores so that each bin has about as many people; ties stay together.

        Return the greatest score of all bins but the last, and the bin of each place. Edges are
        taken as given. Rows ranked within folds are cut within folds, and edges are means over the
        folds: fits that left out a fold of high uplift predict too little for it, and the other
        way round.
        """
        counted = self.people > 0.0
        wanted = np.arange(1, n_bins) / n_bins
        if self.fold is None:
            order = np.argsort(self.score, kind="stable")
            order = order[counted[order]]
            ends = self.score if self.ends is None else self.ends
            mass = np.cumsum(self.people[order])
            score = ends[order]
            at = np.searchsorted(mass, wanted * mass[-1] - 1e-12)
            edges = np.unique(score[np.minimum(at, len(score) - 1)])
            edges = edges[edges < score[-1]]
            return edges, np.searchsorted(edges, ends, side="left")
        bins = np.searchsorted(wanted, self.rank, side="left")
        kept = np.unique(bins[counted])
        tops = []
        for b in kept[:-1]:
            below = [
                at[counted[at] & (bins[at] <= b)] for at in cell_positions(self.fold)
            ]
            tops.append(np.mean([self.score[at].max() for at in below if len(at)]))
        return np.array(tops), np.searchsorted(kept, np.minimum(bins, kept[-1]))


class Column(NamedTuple):
    """What a total adds up: one of each row's terms, times a number of the row's place."""

    term: str  # one or both columns of `RatioTerms`
    times: Array | float = 1.0
    order: int = 0  # whose places are meant
    own: int | None = None  # column of the piece that all is multiplied by


class Gain(NamedTuple):
    """Columns of a sheet that make the gain of a functional."""

    numerator: int
    rank: int | None
    plain: int | None
    # how far it moves if people respond unalike, in two ways, and how many are treated
    swayed: tuple[int, int, int] | None


class Sheet:
    """The columns to add up for all that is asked, and their totals once they are added up.

    The first three are D, E[omega], and D as if policies were known. A sum of columns is what each
    is multiplied by, shape (m,).
    """

    totals: Totals

    def __init__(self) -> None:
        self.columns = [Column("denominator"), Column("aim"), Column("counted")]
        self.group: IntArray | None = None  # of each place of the first order

    def add(self, *column: Any) -> int:
        """Add a column, and return where it is."""
        self.columns.append(Column(*column))
        return len(self.columns) - 1

    def gain(
        self,
        functional: Functional,
        *,
        plain: bool = False,
        swayed: bool = False,
        order: int = 0,
        own: int | None = None,
    ) -> Gain:
        """Add the columns of a functional."""
        weight, rank = functional
        beside = None
        if swayed:
            terms = ("sway", "picked", "aim")
            sway, picked, aim = (self.add(term, weight, order, own) for term in terms)
            beside = sway, picked, aim
        return Gain(
            self.add("gain", weight, order, own),
            self.add("aim", rank, order, own) if np.any(rank) else None,
            self.add("plain", weight, order, own) if plain else None,
            beside,
        )

    @property
    def speaks_for(self) -> float:
        """Share of people the numbers speak for."""
        return float(self.totals.value[1])

    def __getitem__(self, column: int) -> Array:
        """Return a column by itself."""
        return np.asarray(np.eye(1, len(self.columns), column)[0])

    def numerator(self, gain: Gain, *, plain: bool = False) -> Array:
        """Return the numerator of a gain, with what ranks add to its influence."""
        first = gain.plain if plain and gain.plain is not None else gain.numerator
        if gain.rank is None:
            return self[first]
        scale = 1.0 if plain else float(self.totals.value[0]) / self.speaks_for
        return np.asarray(self[first] + scale * self[gain.rank])

    def per_person(self, numerator: Array, *, plain: bool = False) -> Estimate:
        """Return a numerator per person spoken for; by the plain score with a normal interval."""
        if not plain:
            return self.totals.per_person(numerator, self[0], self[2])
        ratio = self.totals.per_person(numerator, self[1], self[1])
        return Estimate(ratio.value, ratio.standard_error)

    def claim(self, name: str, gain: Gain, estimate: Estimate) -> Claim:
        """Return the claim that a rule gains, given the estimate of its gain."""
        value = self.totals.value
        sway, picked, aim = (value[j] for j in gain.swayed or ())
        D = abs(float(value[0]))
        treated = float(aim) / self.speaks_for
        sway, picked = (float(v) / D if D > 0.0 else math.inf for v in (sway, picked))
        return Claim(name, estimate, treated, sway, picked)

    def deviations(
        self, numerators: Array, level: float, rng: Rng
    ) -> tuple[list[Estimate], float]:
        """Return numerators (m, ...) per person, and a quantile of their largest deviation.

        It is in standard errors, and that of correlated normal deviations.
        """
        points = [self.per_person(numerator) for numerator in numerators]
        theta = np.array([point.value for point in points])
        left = numerators - theta[:, None] * self[2]
        covariance = self.totals.combined(left).covariance
        if not np.isfinite(covariance).all():
            return points, math.inf
        error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        moves = error > 0.0
        if not moves.any():
            return points, 0.0
        correlation = covariance[np.ix_(moves, moves)] / np.outer(
            error[moves], error[moves]
        )
        size, directions = np.linalg.eigh(correlation)
        root = directions * np.sqrt(np.maximum(size, 0.0))
        draws = rng.standard_normal((N_DRAWS, len(size))) @ root.T
        return points, float(np.quantile(np.abs(draws).max(axis=1), level))


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
        counted = self.sums.count > 0.0
        square, fourth = self.residual
        inside = self.inside[counted]
        mean = self.reach[counted] / np.maximum(inside, 1.0)
        least = mean.sum(axis=0) * (fourth / square if square > 0.0 else 0.0)
        return np.where((inside >= FEWEST).all(axis=0), least, np.nan)


def add_columns(
    columns: Sequence[Column],
    group: IntArray | None,
    orders: Sequence[Order],
    piece: Piece,
) -> Added:
    """Add up columns of some rows, and what the groups of places hold: the second pass."""
    rows, K = piece.rows, piece.rows.n_populations
    terms = rows.terms(rows.omega())
    C = 2 * K + 1
    places = [order.places(piece) for order in orders]

    def column(term: str, times: Array | float, order: int, own: int | None) -> Array:
        here = times[places[order]] if isinstance(times, np.ndarray) else times
        value = getattr(terms, term) * here
        return np.asarray(value if own is None else value * piece.columns[:, own])

    outcome = rows.cell < K
    share = rows.share[outcome]
    square = rows.residual[outcome] ** 2
    in_groups: Array = np.zeros((2, C, 0))
    if group is not None:
        g = int(group.max()) + 1
        at = rows.cell * g + group[places[0]]
        both = (np.ones(len(at)), (terms.share * terms.reach) ** 2)
        in_groups = np.array([np.bincount(at, w, C * g) for w in both]).reshape(2, C, g)
    return Added(
        Sums.of_rows(
            rows.cell,
            rows.share,
            (column(*each) for each in columns),
            C,
            rows.unit,
            rows.count,
        ),
        np.array([share @ square, share @ square**2]),
        *in_groups,
    )


class EvaluatedTables:
    """The rows of an evaluation, wherever they are, and the people they speak for."""

    sample: EvaluationRows  # all rows, or some that stand for them
    features: NamedFeatures
    names: Sequence[Any]  # of the populations
    coding: OutcomeCoding
    n_rows: int
    how: str

    def over(self, work: Callable[[Piece], T]) -> T:
        """Return the sum of what a pass finds in all pieces."""
        raise NotImplementedError

    def scored(
        self, orders: Sequence[Order], extra: Sequence[Sequence[float]]
    ) -> list[Scored]:
        """Return the places of each order; ``extra`` are edges that bins of it must have."""
        raise NotImplementedError

    def add(self, sheet: Sheet, scored: Sequence[Scored]) -> Added:
        """Add up all that is asked for on a sheet."""
        orders = tuple(people.order for people in scored)
        added = self.over(
            partial(add_columns, tuple(sheet.columns), sheet.group, orders)
        )
        sheet.totals = added.sums.totals()
        return added

    def sensitivity(self, claims: Sequence[Claim], level: float) -> Sensitivity:
        """Return how far claims stand if people respond unalike, given the sums of a sheet."""
        return sensitivity_of(
            claims,
            self.sample,
            self.features,
            self.names,
            is_rate=self.coding.is_rate,
            level=level,
        )

    def become_offers(self) -> None:
        """Look at the rows as those of a trial of an offer from here on."""
        self.sample = self.sample.offered(self.sample.arms)

    def left_out(self) -> str:
        """Say who counts less, in words."""
        return say_left_out(self.sample, self.sample.omega(), self.features)

    def refuse_alike(self) -> None:
        """Refuse populations whose policies are equal for everyone."""
        if float(self.sample.people.sum()) > 0.0:
            return
        if len(self.names) == 1:
            raise InputError(
                "there is one population, and what is known of treatment does not vary among "
                "people with the same features, so that no number can be given. Give a second "
                "population, or chances that were drawn by lot."
            )
        raise InputError(
            f"the populations {shown(self.names)} treat everyone alike, as far as these tables "
            "tell, so that no number can be given. Uplift needs policies that differ."
        )
