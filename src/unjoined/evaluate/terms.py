"""Two numbers per row that make every average of the uplift a ratio of two sums."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.tree import DecisionTreeRegressor

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike
from unjoined._validation import OUTCOME
from unjoined.data.chunks import feature_matrix
from unjoined.data.fold import Additive
from unjoined.data.rows import MOST_UNITS, LabelledRows, Rows, check_rows
from unjoined.errors import InputError
from unjoined.evaluate.estimate import Estimate, Totals, widening
from unjoined.model.crossfit import CrossFit, EffectNuisances
from unjoined.model.linear import cross_fit_linear
from unjoined.model.shift import weigh_shift

FULL_GAP = 0.2  # from this gap on a person counts fully
N_FOLDS = 5
MOST_DOSES = 21  # ends of the ranges of doses that are told apart
BY_CHANCE = 0.1  # share of its variance that is left of what features do not decide
MEAN_ROWS = 20_000  # about, over which predictions are averaged
TREE_ROWS, MOST_TREE_ROWS, LEAF_ROWS = 60, 2000, 10


@dataclass(frozen=True, slots=True, eq=False)
class Sums(Additive):
    """Sums over the rows of each cell, of some columns and of their products.

    The first of the columns is 1 for every row. Rows that depend on each other are one draw: there
    are sums of each draw in place of products. A column may vary in two ways: all sums are kept of
    each, and what it adds up to is the last.
    """

    count: Array  # (C,) people
    first: Array  # (w, C, m + 1) of p v
    second: Array  # (w, C, m + 1, m + 1) of p^2 v v', 0 where rows are no draws
    units: Array  # (w, U, C, m + 1) of p v, of each draw; U is 0 where rows are draws

    @classmethod
    def of_rows(
        cls,
        cell: IntArray,
        share: Array,
        columns: Iterable[Array],
        n_cells: int,
        unit: IntArray | None = None,
        people: Array | None = None,
    ) -> Sums:
        """Add up columns of rows that have shares p, and belong to the draws named.

        A column is (n,), or (w, n) if it varies in several ways. ``people`` (n,) says how many
        alike draws a row stands for, if it is more than one.
        """
        values = in_ways(columns)
        w, m = len(values), values.shape[2] + 1
        if unit is not None:
            at = unit * n_cells + cell
            units = np.empty((w, MOST_UNITS * n_cells, m))
            units[..., 0] = np.bincount(at, share, MOST_UNITS * n_cells)
            for way, of_way in zip(units, values, strict=True):
                for j, column in enumerate(of_way.T, start=1):
                    way[:, j] = np.bincount(at, share * column, MOST_UNITS * n_cells)
            count = np.bincount(cell, minlength=n_cells).astype(np.float64)
            return cls.of_units(count, units.reshape(w, MOST_UNITS, n_cells, m))
        count = np.zeros(n_cells)
        first = np.zeros((w, n_cells, m))
        second = np.zeros((w, n_cells, m, m))
        for at in cell_positions(cell):
            c = cell[at[0]]
            count[c] = len(at) if people is None else people[at].sum()
            for way, of_way in enumerate(values):
                v = np.column_stack([np.ones(len(at)), of_way[at]])
                first[way, c] = share[at] @ v
                v *= share[at, None]
                each = v if people is None else v / people[at, None]
                second[way, c] = v.T @ each
        return cls(count, first, second, np.zeros((w, 0, n_cells, m)))

    @classmethod
    def of_units(cls, count: Array, units: Array) -> Sums:
        """Return sums of draws, with the rows of each cell."""
        w, _, C, m = units.shape
        return cls(count, units.sum(axis=1), np.zeros((w, C, m, m)), units)

    def totals(self) -> Totals:
        """Return the totals of the columns, and their covariance.

        Rows of a cell are independent draws, and so are cells: the covariance adds up products of
        a cell's rows, centred within the cell. Sums of a draw are centred in the same way, and
        those in several cells are added up before they are multiplied; of few draws errors are as
        much larger as Student's t says.
        """
        counted = self.count > 0.0
        mean = self.first[:, counted, 1:]
        value = mean[-1].sum(axis=0)
        if self.units.shape[1]:
            units = self.units[:, :, counted]
            n = np.count_nonzero(units[0, ..., 0], axis=0).astype(np.float64)
            times = np.divide(n, n - 1.0, out=np.full(len(n), math.nan), where=n > 1.0)
            apart = units[..., 1:] - units[..., :1] * mean[:, None]
            off = np.einsum("wucm,c->wum", apart, np.sqrt(times))
            spread = widening(int(n.min())) ** 2
            return Totals(value, spread * off.transpose(0, 2, 1) @ off)
        n = self.count[counted]
        second = self.second[:, counted]
        once = np.einsum("wci,wcj->wcij", mean, second[:, :, 0, 1:])
        both = np.einsum("wci,wcj->wcij", mean, mean) * second[..., :1, :1]
        off = second[..., 1:, 1:] - once - once.swapaxes(2, 3) + both
        times = np.divide(n, n - 1.0, out=np.full(len(n), math.nan), where=n > 1.0)
        return Totals(value, np.einsum("c,wcij->wij", times, off))


def in_ways(columns: Iterable[Array]) -> Array:
    """Return columns (n,) or (w, n) as (w, n, m), of each way that any of them varies in."""
    return np.stack(np.broadcast_arrays(*map(np.atleast_2d, columns)), axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class RatioTerms:
    r"""Rows' shares of numerators N(h) and denominators D(h), for any function h of the features.

    .. math::

        N(h) = \sum_i p_i n_i h(x_i), \qquad D(h) = \sum_i p_i d_i h(x_i)

    estimate :math:`E[\omega h u]` and :math:`E[\omega h]` over the target; p are shares of weight
    that add up to one in each cell, which was drawn by itself. It is centred on the truth whatever
    the models of outcomes are. The plain doubly robust score, whose treatment rows correct the
    numerator, has numerators of its own and the aim for its denominator.
    """

    cell: IntArray  # (n,) outcome cells 0 to K - 1, treatment cells K to 2 K - 1, target 2 K
    share: Array  # (n,) p
    numerator: Array  # (n,) n, outcome units
    denominator: Array  # (n,) d
    aim: Array  # (n,) the part of d that describes the target: sum of p times aim is E[omega]
    plain: Array  # (n,) numerator of the plain score, outcome units
    reach: Array  # (n,) how far a residual of 1 moves n; 0 but for outcome rows
    seen: Array  # (n,) part in omega times the mean of all outcomes, treated or not
    exposed: Array  # (n,) share treated among all outcome rows of such features
    met: Array  # (n,) chance of treatment that an outcome row met
    unit: IntArray | None  # (n,) the draw that a row belongs to, None if it is one
    count: Array | None  # (n,) people that a row stands for, None if it is one
    dose: float  # what outcomes are divided by, 1 where treatments are no doses

    @property
    def speaks_for(self) -> float:
        """Share of the target that the answer speaks for, E[omega]."""
        return float(self.share @ self.aim)

    @property
    def people(self) -> Array:
        """Share of the people spoken for that each row stands for; they add up to 1."""
        return self.share * self.aim / self.speaks_for

    @property
    def sway(self) -> Array:
        r"""How far n moves at most if equal people of two populations differ by 1, shape (n,).

        See `unjoined.evaluate.sensitivity`.
        """
        return np.asarray(0.5 * np.abs(self.reach) / self.dose)

    @property
    def picked(self) -> Array:
        """The same if those treated gain by 1 more or less than their equals would, shape (n,)."""
        return np.asarray(np.abs(self.reach) * self.met)

    @property
    def gain(self) -> Array:
        """Numerators as columns of sums, with two ways to vary, (2, n).

        Treatment rows correct what outcome rows were told of the policies by fits to other rows.
        As far as fits follow them, they correct whom these make count too: the plain score varies
        by both. Nobody knows how far fits do, so that `Totals.per_person` looks at both ways.
        """
        return np.stack([self.plain, self.numerator])

    @property
    def counted(self) -> Array:
        """Denominators that vary as if the policies were known, and as they do, (2, n)."""
        return np.stack([self.aim, self.denominator])

    def totals(self, *columns: Array) -> Totals:
        """Return the totals of columns (n,) or (2, n), and their covariance."""
        C = int(self.cell.max()) + 1
        return Sums.of_rows(
            self.cell, self.share, columns, C, self.unit, self.count
        ).totals()

    def by_bin(self, place: IntArray, n_bins: int, *columns: Array) -> Totals:
        """Return totals of columns in groups that have no row in common, column by column."""
        J, k = n_bins, len(columns)
        C = int(self.cell.max()) + 1
        if self.unit is not None:
            inside = [place == j for j in range(J)]
            apart = [column * each for column in columns for each in inside]
            return self.totals(*apart)
        bins = Sums.of_rows(
            self.cell * J + place, self.share, columns, C * J, None, self.count
        )
        w = len(bins.first)
        first = bins.first.reshape(w, C, J, k + 1)
        second = bins.second.reshape(w, C, J, k + 1, k + 1)
        products = np.zeros((w, C, k * J + 1, k * J + 1))  # those of two groups stay 0
        at = np.arange(1, J + 1) + J * np.arange(k)[:, None]
        products[:, :, at[:, None], at[None]] = second[..., 1:, 1:].transpose(
            0, 1, 3, 4, 2
        )
        products[:, :, 0, 0] = second[..., 0, 0].sum(axis=2)
        products[:, :, 0, 1:] = second[..., 0, 1:].swapaxes(2, 3).reshape(w, C, -1)
        products[:, :, 1:, 0] = products[:, :, 0, 1:]
        sums = first[..., 1:].swapaxes(2, 3).reshape(w, C, -1)
        sums = np.concatenate([first[..., :1].sum(axis=2), sums], axis=2)
        nothing = np.zeros((w, 0, C, k * J + 1))
        count = bins.count.reshape(C, J).sum(axis=1)
        return Sums(count, sums, products, nothing).totals()

    def average(self) -> Estimate:
        """Return the average uplift of those whom the answer speaks for, outcome units."""
        return self.value(np.ones(len(self.share)))

    def value(self, rule: Array, member: BoolArray | Array | float = 1.0) -> Estimate:
        """Return the gain of treating by a rule (n,), over treating nobody, per person.

        Or per member of a group, given as a mask or as shares of membership.
        """
        columns = self.gain * rule, self.denominator * member, self.counted * member
        return self.totals(*columns).per_person(*np.eye(3))

    @property
    def due(self) -> Array:
        """Numerators of what treatment has done to the mean outcome, as `gain`."""
        return np.asarray(self.exposed * self.gain)

    def shifted(self, change: float) -> RatioTerms:
        """Return the terms of people who gain more by ``change`` each, outcome units."""
        return replace(
            self,
            numerator=self.numerator + change * self.denominator,
            plain=self.plain + change * self.aim,
        )

    def group(self, member: BoolArray | Array) -> Estimate:
        """Return the average uplift of a group, given as a mask or as shares of membership."""
        return self.value(np.asarray(member), member)


# Columns of `RatioTerms` whose totals make the relative effect.
RELATIVE = ("gain", "denominator", "aim", "seen", "due", "counted")


def relative_effect(totals: Totals) -> Estimate | None:
    r"""Return the average uplift over the mean outcome without treatment, :math:`E[u] / E[Y_0]`.

    ``totals`` are those of `RELATIVE`: N, D, :math:`E[\omega]`, Q, H and D again. At features x let
    :math:`\tilde e = \sum_k p_k e_k` be treated of all outcome rows together. What they would be
    without is what is seen of them, less what treatment did: with
    :math:`a_k = p_k - \tilde e c_k`, the weights of least variance that have
    :math:`\sum_k a_k = 1` and :math:`\sum_k a_k e_k = 0`,

    .. math::

        E[Y_0 \mid x] = \sum_k a_k E_k[y \mid x]
            = \sum_k p_k E_k[y \mid x] - \tilde e \sum_k c_k E_k[y \mid x].

    The first sum is Q over :math:`E[\omega]`, known well. The second is a ratio as the average
    is, H over D, so that the base is :math:`q - H / D` and the relative effect
    :math:`N / (q D - H)`: linear in what is noisy, and Fieller's interval holds however little
    policies differ. None where the interval of the base does not lie above 0.
    """
    N, D, counted, Q, H = totals.value[:5]
    if not (D > 0.0 and counted > 0.0):
        return None
    q = Q / counted
    moved = np.array([0.0, 1.0, 0.0, 0.0, 0.0, -1.0]) / D  # see `Totals.per_person`
    gain = np.eye(6)[0] + N * moved
    base = np.array([0.0, q, -q * D / counted, D / counted, -1.0, 0.0]) - H * moved
    both = totals.combined(np.array([gain, base, np.eye(6)[1]]))
    low, _ = both.ratio(1, 2).interval(0.95)
    return both.ratio(0, 1) if low > 0.0 else None


def cell_positions(cell: IntArray) -> list[IntArray]:
    """Return the positions of the rows of each cell that has any."""
    order = np.argsort(cell, kind="stable")
    return (
        np.split(order, 1 + np.flatnonzero(np.diff(cell[order]))) if len(cell) else []
    )


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationRows:
    """Labelled rows, then target rows if they are others, with cross-fitted nuisances.

    What no choice of people changes. `terms` makes the two numbers of each row from it.
    """

    X: Array  # (n, d)
    cell: IntArray  # (n,) as in `RatioTerms`
    fold: IntArray  # (n,) whose rows the nuisances have not seen
    share: Array  # (n,)
    residual: Array  # (n,) y - m - (e_k - mean e) f, t - e_k, or 0 for target rows
    ratio: Array  # (n,) density ratio of the target to the cell
    aim: Array  # (n,) share among the target rows, over the row's own share
    policies: Array  # (n, K)
    effect: Array  # (n,) f, outcome units
    untreated: Array  # (n,) mean outcome without treatment, outcome units
    size: Array  # (K,) outcome rows of each population
    exposure: Array | None  # (n,) treatment or policy where it is known, NaN elsewhere
    known: Array  # (K, 2) share of the outcome rows whose exposure is known, and its variance
    aside: (
        Array | None
    )  # (n,) what other treatments add beyond their policies, outcome units
    given: (
        Array | None
    )  # (n,) chance of the treatment itself, where policies are what others leave of it
    unit: IntArray | None  # (n,) as in `RatioTerms`
    count: Array | None  # (n,) as in `RatioTerms`
    is_amount: bool  # whether outcomes are 0 or more
    dose: float  # what outcomes are divided by, 1 where treatments are no doses
    base: IntArray | None = None  # (K,) populations of one number have the same base

    @property
    def n_populations(self) -> int:
        """Number of populations K."""
        return len(self.size)

    @property
    def has_base(self) -> bool:
        """Whether outcomes are amounts, and nothing but one treatment adds to their base."""
        return self.is_amount and self.aside is None

    @property
    def people(self) -> Array:
        """How much each row counts for the people spoken for; it adds up to their share."""
        return self.share * self.aim * self.omega()

    def take(self, at: IntArray | slice) -> EvaluationRows:
        """Return some of the rows."""
        names = (
            "X",
            "cell",
            "fold",
            "share",
            "residual",
            "ratio",
            "aim",
            "policies",
            "effect",
            "untreated",
        )
        beside = ("exposure", "aside", "given", "unit", "count")
        given = [name for name in beside if getattr(self, name) is not None]
        some = {name: getattr(self, name)[at] for name in (*names, *given)}
        return replace(self, **some)

    def thinned(self, at: IntArray) -> EvaluationRows:
        """Return some rows that stand for all: in each cell, and of the people in question."""
        rows = self.take(at)
        share = rows.share / np.bincount(rows.cell, rows.share)[rows.cell]
        people = rows.share * rows.aim
        return replace(rows, share=share, aim=people / people.sum() / share)

    @property
    def is_labelled(self) -> BoolArray:
        """Which rows carry a label, shape (n,)."""
        return np.asarray(self.cell < 2 * self.n_populations)

    @property
    def is_treatment(self) -> BoolArray:
        """Which rows carry a treatment, shape (n,)."""
        return np.asarray(self.is_labelled & (self.cell >= self.n_populations))

    @property
    def gap(self) -> Array:
        r"""Root mean square of the differences of two policies, shape (n,).

        Pairs count by the product of their sizes; of two populations it is :math:`|e_1 - e_2|`.
        """
        return np.asarray(np.sqrt(self.spread / self.pairs))

    @property
    def population_share(self) -> Array:
        """Share of each population in the outcome rows, shape (K,)."""
        return np.asarray(self.size / self.size.sum())

    @property
    def pairs(self) -> float:
        """What the variance over the populations is of a mean square over all pairs of them."""
        if self.n_populations == 1:  # as of two of the same size
            return 0.25
        return float(0.5 * (1.0 - self.population_share @ np.diag(self.beside)))

    @property
    def beside(self) -> Array:
        """Weight of each population (columns) in the mean that another is held against, (K, K).

        Its share of all populations, or of those that have the same base.
        """
        p = np.tile(self.population_share, (self.n_populations, 1))
        if self.base is not None:
            p = p * (self.base[:, None] == self.base)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    @property
    def apart(self) -> Array:
        """Each policy minus the mean policy of populations that have the same base, (n, K)."""
        if self.base is None:
            return np.asarray(self.policies - self.exposed[:, None])
        return np.asarray(self.policies - self.policies @ self.beside.T)

    @property
    def exposed(self) -> Array:
        """Policy of all populations together, shape (n,)."""
        return np.asarray(self.policies @ self.population_share)

    @property
    def spread(self) -> Array:
        r"""Variance of what is known of treatment at each person's features, shape (n,).

        That of the policies over the populations and, of outcome rows whose treatment or policy is
        known one by one, that within populations: :math:`e_k (1 - e_k)` of treatments.
        """
        return self.between + self.within

    @property
    def between(self) -> Array:
        """Variance of the policies over the populations, shape (n,)."""
        return np.asarray(self.apart**2 @ self.population_share)

    @property
    def within(self) -> Array:
        """Variance of known exposures within the populations, shape (n,); 0 without any."""
        return np.asarray(self.each_within @ self.population_share)

    @property
    def each_within(self) -> Array:
        """The same of each population, shape (n, K)."""
        share, variance = self.known.T
        own = self.policies * (1.0 - self.policies)
        return np.asarray(share * np.where(np.isnan(variance), own, variance))

    @property
    def correction(self) -> Array:
        """Residuals as they correct sums over outcome rows, shape (n,).

        Treatment rows correct what policies were taken for. Of outcome rows whose treatment or
        policy is known nothing is to be corrected.
        """
        return self.known_rest * self.residual

    @property
    def known_rest(self) -> Array:
        """Share of the outcomes that a treatment row speaks for, shape (n,); 1 of other rows."""
        rest = 1.0 - self.known[self.cell % self.n_populations, 0]
        return np.where(self.is_treatment, rest, 1.0)

    def contrast(self) -> Array:
        r"""Return :math:`c_k(x)` of each row's population: they add up to 0, with :math:`e_k` to 1.

        Of two populations :math:`\pm 1 / (e_1 - e_2)`; of more, the combination of least variance
        when outcomes vary alike. 0 where no policy differs from another, and for target rows.
        Outcome rows whose treatment or policy is known have their own.
        """
        population = self.cell % self.n_populations
        spread = self.spread
        own = self.apart[np.arange(len(population)), population]
        if self.exposure is not None:
            mine = self.policies[np.arange(len(population)), population]
            is_known = ~np.isnan(self.exposure) & (self.cell < self.n_populations)
            own = own + np.where(is_known, self.exposure - mine, 0.0)
        own = (
            self.population_share[population]
            * own
            / np.where(spread > 0.0, spread, 1.0)
        )
        return np.where(self.is_labelled & (spread > 0.0), own, 0.0)

    @property
    def met(self) -> Array:
        """Chance of treatment that each row met: that of its population, or the known one, (n,)."""
        if self.given is not None:
            return self.given
        own = self.policies[np.arange(len(self.cell)), self.cell % self.n_populations]
        if self.exposure is None:
            return own
        is_known = ~np.isnan(self.exposure) & (self.cell < self.n_populations)
        return np.where(is_known, self.exposure, own)

    def omega(self) -> Array:
        """Return how much each row's person counts, from 0 to 1, shape (n,).

        People count fully where policies differ by 0.2 or more, and less by the square of the gap
        below.
        """
        return np.minimum(1.0, (self.gap / FULL_GAP) ** 2)

    def gap_in_errors(self) -> float:
        """Return how many standard errors the policy gap is away from 0, over all people.

        Infinite if treatment, or a chance of it that varies, is known of every outcome row.
        """
        square = self.gap**2
        reach = np.where(self.is_treatment, square * self.contrast() * self.ratio, 0.0)
        own = reach * self.correction
        D, V = self.total_given_target(self.aim * square + own, reach * self.known_rest)
        if D > 0.0 and np.all(self.known[:, 0] == 1.0):
            return math.inf
        return float(D / np.sqrt(V)) if V > 0.0 else 0.0

    def dose_weights(self, dose: Array) -> Array:
        r"""Return how much each range of doses counts in the average: from, to and weight, (m, 3).

        With :math:`F_k(a \mid x)` the law of the dose, the ratio averages the slopes of any
        response by :math:`\sum_k c_k(x) (1 - F_k(a \mid x))`, which adds up to 1 over doses a.
        ``dose`` (n,) is that of treatment rows, NaN where only a mean is known. Main effects of the
        features cancel between populations; a linear one is taken out to spare noise. Costs O(n d)
        for each of at most twenty ranges.
        """
        at = np.flatnonzero(self.is_treatment & ~np.isnan(dose))
        if not len(at):
            return np.empty((0, 3))
        grid = np.unique(dose[at])
        if len(grid) > MOST_DOSES:
            grid = np.unique(np.quantile(dose[at], np.linspace(0.0, 1.0, MOST_DOSES)))
        omega = self.omega()
        reach = (self.share * omega * self.contrast() * self.ratio)[at]
        B = np.column_stack([np.ones(len(at)), self.X[at]])
        above = (dose[at, None] > grid[:-1]).astype(np.float64)
        above -= B @ np.linalg.lstsq(B, above, rcond=None)[0]
        weight = (reach @ above) * np.diff(grid)
        return np.column_stack([grid[:-1], grid[1:], weight / weight.sum()])

    def average(self) -> Estimate:
        """Return the average uplift of the people spoken for."""
        return self.everyone().average()

    def everyone(self) -> RatioTerms:
        """Return the two numbers of each row for all people, who count as in every average."""
        return self.terms(self.omega())

    def relative(self, terms: RatioTerms | None = None) -> Estimate | None:
        """Return the average of terms, by default `everyone`, over what it would be untreated.

        None where that has no sense or the base is not clear of 0; see `relative_effect`.
        """
        if not self.has_base:
            return None
        terms = self.everyone() if terms is None else terms
        return relative_effect(terms.totals(*(getattr(terms, c) for c in RELATIVE)))

    def design_effect(self) -> float | None:
        """Return how much more the average varies than if no row depended on another."""
        if self.unit is None:
            return None
        alone = replace(self, unit=None).average().standard_error
        return (self.average().standard_error / alone) ** 2

    def where_it_shows(self, place: IntArray, n_groups: int) -> RatioTerms:
        """Return the two numbers of each row, measured by the squared gap within each group.

        People count as ever, by `omega`. What the nuisances leave of the effect is taken to be
        the same within a group, and is measured where policies differ most: of all ways to weigh
        rows, that has the least variance if outcomes vary alike. For tests of whether people
        differ; averages may not take it for granted.
        """
        omega = self.omega()
        square = self.gap**2
        people = self.share * self.aim
        counted, measured = (
            np.bincount(place, people * w, n_groups) for w in (omega, square)
        )
        times = np.divide(
            counted, measured, out=np.zeros(n_groups), where=measured > 0.0
        )
        return self.terms(omega, times[place] * square)

    def terms(self, omega: Array, measured: Array | None = None) -> RatioTerms:
        """Return the two numbers of each row, for people who count by ``omega`` (n,).

        What is left of the effect by the nuisances is measured on people who count by
        ``measured``, by default the same.
        """
        reach = (omega if measured is None else measured) * self.contrast() * self.ratio
        own = reach * self.correction
        outcome = self.cell < self.n_populations
        treatment = self.is_treatment
        aim = self.aim * omega
        numerator = np.where(outcome, own, 0.0) + aim * self.effect
        if self.aside is not None:
            corrected = reach * self.aside
            numerator = numerator - np.where(treatment, corrected, 0.0)
        p = self.population_share[self.cell % self.n_populations]
        seen = omega * p * self.ratio * self.correction
        exposed = self.exposed
        return RatioTerms(
            self.cell,
            self.share,
            numerator,
            aim + np.where(treatment, own, 0.0),
            aim,
            numerator - np.where(treatment, self.effect * own, 0.0),
            np.where(outcome, reach, 0.0),
            np.where(outcome, seen, 0.0)
            - np.where(treatment, self.effect * seen, 0.0)
            + aim * (self.untreated + exposed * self.effect),
            exposed,
            self.met,
            self.unit,
            self.count,
            self.dose,
        )

    def compliers(self) -> tuple[Estimate, Estimate]:
        """Return the average uplift of those treated in one population alone, and their share.

        Where chance decided on the population and nobody is treated only where fewer are. People
        count by the gap, so that no fit of the policies decides who counts.
        """
        terms = self.terms(self.gap)
        total = terms.totals(terms.numerator, terms.denominator)
        error = float(np.sqrt(total.covariance[1, 1]))
        return total.ratio(0, 1), Estimate(float(total.value[1]), error)

    @property
    def arms(self) -> tuple[int, int]:
        """The populations in which fewest people are treated, and most."""
        mean = (self.share * self.aim) @ self.policies
        return int(np.argmin(mean)), int(np.argmax(mean))

    def offered(self, arms: tuple[int, int]) -> EvaluationRows:
        """Return the rows as those of a trial of an offer: who was made it, and not who took it up.

        The effect is that of the offer then, of the second of two ``arms`` against the first. It
        is that of treatment on those who take it up because of the offer, times their share at
        the same features. How many took it up was estimated for that, but need not be. Untreated is
        who was not made the offer.
        """
        low, high = arms
        apart = self.policies[:, high] - self.policies[:, low]
        reached = np.divide(
            self.policies - self.policies[:, [low]],
            apart[:, None],
            out=np.full_like(self.policies, 0.5),
            where=apart[:, None] != 0.0,
        )
        reached = np.clip(reached, 0.0, 1.0)
        reached[:, [low, high]] = 0.0, 1.0
        return replace(
            self,
            policies=reached,
            effect=apart * self.effect,
            untreated=self.untreated + self.policies[:, low] * self.effect,
            residual=np.where(self.is_treatment, 0.0, self.residual),
            exposure=None,
            known=np.column_stack(
                [np.zeros_like(self.size), np.full_like(self.size, np.nan)]
            ),
        )

    def totals(self, *columns: Array) -> Totals:
        """Return the totals of columns (n,) or (n, m), and their covariance."""
        C = 2 * self.n_populations + 1
        each = np.column_stack(columns).T
        sums = Sums.of_rows(self.cell, self.share, each, C, self.unit, self.count)
        return sums.totals()

    def total_given_target(self, column: Array, reach: Array) -> tuple[float, float]:
        """Return the total of a column (n,) and its variance, with target rows taken as given.

        What the draw of the target adds to a gap it adds to the uplift's numerator too, so that it
        says nothing about how well the gap is known. Where nobody was treated against a rule, the
        variance is that of one such person in each table, who would count by ``reach`` (n,).
        """
        target = ~self.is_labelled
        total = self.totals(
            np.where(target, self.share[target] @ column[target], column)
        )
        one = np.zeros(2 * self.n_populations + 1)
        each = self.share if self.count is None else self.share / self.count
        np.maximum.at(one, self.cell, np.where(target, 0.0, np.abs(each * reach)))
        return float(total.value[0]), max(
            float(total.covariance[0, 0]), float(one @ one)
        )


def labelled_rows(
    X: MatrixLike, **columns: ArrayLike | None
) -> tuple[LabelledRows, Rows]:
    """Check rows; return those that carry a label and a weight, and all as they were given."""
    matrix = feature_matrix(X)
    rows, _ = check_rows(columns, len(matrix))
    return rows.labelled(matrix), rows


def evaluation_rows(
    rows: LabelledRows,
    crossfit: CrossFit,
    *,
    target: tuple[Array, Array] | None = None,
    given: MatrixLike | None = None,
    shift: Any = None,
    n_jobs: int | None = None,
    rng: Rng,
    stacklevel: int = 2,
) -> EvaluationRows:
    """Return what evaluations are made of, by the cross-fit of the rows.

    ``target`` are features and weights of the people the answer is for, by default all labelled
    rows, and ``given`` the same people as they came; ``shift`` says how density ratios of the
    target to each table are estimated, as in `weigh_shift`. None takes them as 1: right if the
    tables describe the same people, and a small error if they do not and the outcome models are
    good.
    """
    X, weight = (None, None) if target is None else target
    ratio = np.ones(len(rows.label))
    if shift is not None:
        # Rows are numbered through their labels, since rows of ratio 0 are left out of the result.
        numbered = replace(rows, label=np.arange(len(rows.label), dtype=np.float64))
        weighted, _ = weigh_shift(
            numbered, X, shift, rng=rng, target_weight=weight, stacklevel=stacklevel + 1
        )
        at = weighted.label.astype(np.int64)
        ratio = np.zeros(len(rows.label))
        ratio[at] = weighted.weight / rows.weight[at]
    if X is None or weight is None:
        return evaluation_of(rows, crossfit.fold, crossfit.nuisances, ratio)
    labelled = labelled_part(rows, crossfit.fold, crossfit.nuisances, ratio)
    nuisances, dealt = crossfit.elsewhere(X, given, n_jobs=n_jobs, rng=rng)
    return with_target(labelled, X, weight, dealt, nuisances, rows)


def refuse_few(rows: LabelledRows) -> None:
    """Refuse tables that the usual folds leave empty."""
    fewest = min(rows.people)
    if fewest < N_FOLDS:
        raise InputError(
            f"an evaluation fits policies and outcomes without each of {N_FOLDS} folds (n_folds="
            f"{N_FOLDS}), so that each table needs {N_FOLDS} rows or more; the smallest has "
            f"{fewest}. Collect more rows; plan_study says how many a wanted precision needs."
        )


def evaluation_of(
    rows: LabelledRows,
    fold: IntArray,
    nuisances: EffectNuisances,
    ratio: Array | None = None,
) -> EvaluationRows:
    """Return labelled rows whose nuisances are known, all of them being the target."""
    labelled = labelled_part(rows, fold, nuisances, ratio)
    weight = rows.people_weight
    return replace(labelled, aim=weight / (weight.sum() * labelled.share))


def average_effect(rows: LabelledRows) -> Estimate:
    """Return the average uplift of those for whom policies differ enough, outcome units.

    The ratio form with nuisances that are fitted by ridge regression without each fold. It is
    centred on the truth whatever they are. Costs O(n d^2).
    """
    return linear_evaluation(rows).average()


def agreed_average(rows: EvaluationRows, crossfit: CrossFit) -> tuple[float, float]:
    """Return what predictions, and what was measured, are short of an average between both.

    The mean prediction is surer than what was measured, if base and effect are right: what was
    measured is brought to it as far as both agree. Where the tables cannot bound the average, both
    are left as they are.
    """
    average = rows.average()
    X = crossfit.rows.X
    some = slice(None, None, max(len(X) // MEAN_ROWS, 1))
    counted = rows.people[: len(X)][some]
    if not (np.isfinite(average.interval(0.95)).all() and counted.any()):
        return 0.0, 0.0
    scale = float(crossfit.likelihood.outcome_scaling.scale[0])
    mean, error = (scale * each for each in crossfit.fit.mean_uplift(X[some], counted))
    agreed = average.shrunk_towards(Estimate(mean, error))
    return agreed - mean, agreed - average.value


def linear_evaluation(rows: LabelledRows) -> EvaluationRows:
    """Return rows with nuisances that are fitted by ridge regression without each fold."""
    fold = rows.deal(N_FOLDS, Rng(0))  # the same for all estimators
    return evaluation_of(rows, fold, cross_fit_linear(rows, fold))


def labelled_part(
    rows: LabelledRows,
    fold: IntArray,
    nuisances: EffectNuisances,
    ratio: Array | None = None,
) -> EvaluationRows:
    """Return labelled rows with their residuals, in outcome units, and no say in the target."""
    n = len(rows.label)
    scale = rows.coding.scale
    own = nuisances.policies[np.arange(n), rows.population]
    exposure = _beyond_features(rows, own)
    met = own if exposure is None else np.where(np.isnan(exposure), own, exposure)
    expected = nuisances.outcome_mean + (met - nuisances.mean_policy) * nuisances.effect
    residual = np.where(
        rows.is_outcome, scale * (rows.label - expected), 0.5 + 0.5 * rows.label - own
    )
    K = len(rows.names)
    return EvaluationRows(
        X=rows.X,
        cell=rows.cell.astype(np.int64),
        fold=fold,
        share=K * rows.share,
        residual=residual,
        ratio=np.ones(n) if ratio is None else ratio,
        aim=np.zeros(n),
        policies=nuisances.policies,
        effect=scale * nuisances.effect,
        untreated=rows.coding.offset + scale * nuisances.untreated,
        size=np.bincount(rows.cell, rows.count, 2 * K)[:K].astype(np.float64),
        exposure=exposure,
        known=_known_exposures(rows, own, exposure),
        aside=None if rows.aside is None else scale * rows.aside,
        given=rows.given,
        unit=rows.unit,
        count=rows.count,
        is_amount=rows.coding.is_amount,
        dose=rows.dose or 1.0,
    )


def _beyond_features(rows: LabelledRows, own: Array) -> Array | None:
    """Return exposures that vary among people with the same features, NaN elsewhere.

    A policy that is a function of the features is known from its copies among treatment rows, as a
    fitted one is from treatments, and no error of its fit biases a ratio then. ``own`` (n,) is the
    policy of each row. None if nothing varies.
    """
    if rows.exposure is None:
        return None
    exposure = np.where(rows.is_outcome, rows.exposure, np.nan)
    is_treatment = (exposure == 0.0) | (exposure == 1.0)
    for k in range(len(rows.names)):
        cell = rows.at(OUTCOME, k)
        cell = cell[~np.isnan(exposure[cell])]
        for at in (cell[is_treatment[cell]], cell[~is_treatment[cell]]):
            columns = rows.X[at], exposure[at], own[at], rows.weight[at]
            if len(at) and not _varies(*columns):
                exposure[at] = np.nan
    return None if np.isnan(exposure).all() else exposure


def _varies(X: Array, exposure: Array, own: Array, weight: Array) -> bool:
    """Tell whether exposures vary at equal features, and not by what a policy's fit has missed.

    A tree finds in one half of the rows what was missed, and is met by the other half.
    """
    if np.ptp(exposure) == 0.0:
        return False
    middle = np.average(exposure, weights=weight)
    total = float(np.average((exposure - middle) ** 2, weights=weight))
    off = exposure - own
    square = float(np.average(off**2, weights=weight))
    rest = square
    if len(off) >= TREE_ROWS:
        at = np.arange(len(off))[:: -(-len(off) // MOST_TREE_ROWS)]
        half = np.arange(len(at)) % 2
        left = np.empty(len(at))
        for j in (0, 1):
            learnt, met = at[half != j], half == j
            tree = DecisionTreeRegressor(min_samples_leaf=LEAF_ROWS, random_state=0)
            tree.fit(X[learnt], off[learnt], sample_weight=weight[learnt])
            left[met] = (off[at[met]] - tree.predict(X[at[met]])) ** 2
        rest = min(square, float(np.average(left, weights=weight[at])))
    return rest > max(BY_CHANCE * total, 0.5 * square)


def _known_exposures(rows: LabelledRows, own: Array, exposure: Array | None) -> Array:
    """Return the share of known exposures of each population, and their variance at equal features.

    That of treatments is NaN, as the policy says it. ``own`` (n,) is the policy of each row.
    """
    known = np.column_stack(
        [np.zeros(len(rows.names)), np.full(len(rows.names), np.nan)]
    )
    if exposure is None:
        return known
    is_known = ~np.isnan(exposure)
    for k in range(len(rows.names)):
        cell = rows.at(OUTCOME, k)
        at = cell[is_known[cell]]
        known[k, 0] = np.average(is_known[cell], weights=rows.weight[cell])
        is_real = rows.dose is not None
        if len(at) and (
            is_real or ((exposure[at] != 0.0) & (exposure[at] != 1.0)).any()
        ):
            off = (exposure[at] - own[at]) ** 2
            known[k, 1] = np.average(off, weights=rows.weight[at])
    return known


def with_target(
    labelled: EvaluationRows,
    X: Array,
    weight: Array,
    fold: IntArray,
    nuisances: EffectNuisances,
    rows: LabelledRows,
) -> EvaluationRows:
    """Return labelled rows with target rows behind them, a cell of their own."""
    zeros = np.zeros(len(X))
    ones = np.ones(len(X))
    behind = {
        "X": X,
        "cell": np.full(len(X), 2 * labelled.n_populations),
        "fold": fold,
        "share": weight / weight.sum(),
        "residual": zeros,
        "ratio": ones,
        "aim": ones,
        "policies": nuisances.policies,
        "effect": rows.coding.scale * nuisances.effect,
        "untreated": rows.coding.offset + rows.coding.scale * nuisances.untreated,
    }
    both: dict[str, Any] = {
        name: np.concatenate([getattr(labelled, name), new])
        for name, new in behind.items()
    }
    for name in ("aside", "given"):
        if (column := getattr(labelled, name)) is not None:
            both[name] = np.append(column, zeros)
    if labelled.exposure is not None:
        both["exposure"] = np.append(labelled.exposure, np.full(len(X), np.nan))
    if labelled.unit is not None:
        both["unit"] = np.append(labelled.unit, np.arange(len(X)) % MOST_UNITS)
    if labelled.count is not None:
        both["count"] = np.append(labelled.count, ones)
    return replace(labelled, **both)
