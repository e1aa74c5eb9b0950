r"""How many rows, and how different policies, a wanted precision needs.

The variance of an estimate from separate tables is, with n outcome rows and m treatment rows of
each population and N people in all,

.. math::

    \Omega^{-2} \Big\{ \frac1n \sum_k E[\omega^2 c_k^2 h^2 r^2]
    + \frac{\theta^2}{m} \sum_k E[\omega^2 c_k^2 e_k (1 - e_k)]
    + \frac1N \mathrm{Var}(\omega (h u - \theta)) \Big\}

with r the residual of an outcome that its model has not seen. A pilot measures all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, IntArray, RandomState
from unjoined._validation import (
    LARGEST,
    check_finite,
    check_not_negative,
    check_option,
    check_positive,
    check_share,
)
from unjoined.errors import InputError
from unjoined.evaluate.estimate import STRONG, Estimate, critical_value
from unjoined.evaluate.ranks import Functional, Scored
from unjoined.evaluate.study_plan import PlanPoint, StudyPlan
from unjoined.evaluate.tables import HeldOutTables
from unjoined.evaluate.terms import OVERLAP, EvaluationRows
from unjoined.model.crossfit import CrossFit

AVERAGE, AUUC, QINI, TOP = "average", "auuc", "qini", "top"
QUANTITIES = {
    AVERAGE: "the average uplift",
    AUUC: "the AUUC",
    QINI: "the Qini",
    TOP: "the value of treating the best {share:.0%}",
}
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)  # of the policy gap
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the rows
CLIP = 0.005  # policies stay this far from 0 and 1
LEAST_GAP, LARGEST_GAP = 1e-6, 0.95
FEWEST_ROWS = 50
PARTS = ("outcomes", "treatments", "people")


@dataclass(frozen=True, slots=True)
class StudyGuess:
    """What is known of a study before there is a pilot, as a few numbers.

    Attributes
    ----------
    gap : float
        Difference of the two populations' chances of treatment, above 0 and below 1.
    outcome_sd : float
        Standard deviation of the outcome around what features predict, outcome units. For a 0/1
        outcome of rate p it is sqrt(p (1 - p)) at most.
    uplift : float
        Average uplift that is expected, outcome units.
    uplift_sd : float
        Standard deviation of uplift over people, outcome units.
    treated : float
        Share treated, average of the two populations.
    """

    gap: float
    outcome_sd: float
    uplift: float = 0.0
    uplift_sd: float = 0.0
    treated: float = 0.5

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        check_positive("outcome_sd", self.outcome_sd)
        check_finite("uplift", self.uplift)
        check_not_negative("uplift_sd", self.uplift_sd)
        _check_unit(outcome_sd=self.outcome_sd, uplift=self.uplift, uplift_sd=self.uplift_sd)
        if not 0.0 < self.treated < 1.0:
            raise InputError(f"treated must lie between 0 and 1, got {self.treated}.")
        if not LEAST_GAP <= self.gap <= self.largest_gap + 1e-9:
            raise InputError(
                f"gap must lie above 0, by {LEAST_GAP:g} or more, and be at most "
                f"{self.largest_gap:g}, so that both populations have a chance of treatment around "
                f"treated={self.treated:g}; got {self.gap:g}. For instance gap=0.3 with "
                "treated=0.5 means 65 and 35 percent."
            )

    @property
    def largest_gap(self) -> float:
        """The largest gap that the share treated allows."""
        return min(2.0 * min(self.treated, 1.0 - self.treated), LARGEST_GAP)


@dataclass(frozen=True, slots=True)
class Variances:
    """What the rows of each kind add to the variance, times their number."""

    gap: float  # root mean square
    outcome: float  # over the outcome rows of a table
    treatment: float  # over the treatment rows of a table
    people: float  # over the rows of all tables
    weakness: float  # inverse of the strength, times the treatment rows of a table
    speaks_for: float
    n_populations: int

    def at(self, rows: float, treatment_rows: float) -> float:
        """Return the standard error with so many rows in each table."""
        people = self.people / (self.n_populations * (rows + treatment_rows))
        return math.sqrt(self.outcome / rows + self.treatment / treatment_rows + people)

    def needed(self, error: float, per_row: float) -> tuple[int, int]:
        """Return the outcome and treatment rows of a table that a standard error needs."""
        people = self.people / (self.n_populations * (1.0 + per_row))
        rows = (self.outcome + self.treatment / per_row + people) / error**2
        rows = max(math.ceil(rows), FEWEST_ROWS)
        fewest = max(math.ceil(STRONG * self.weakness), FEWEST_ROWS)
        return rows, max(math.ceil(per_row * rows), fewest)


def plan_study(
    known: Mapping[str, Any] | StudyGuess,
    *,
    quantity: str = AVERAGE,
    share: float = 0.3,
    half_width: float | None = None,
    standard_error: float | None = None,
    level: float = 0.95,
    treatment_rows: float = 1.0,
    score: ArrayLike | None = None,
    crossfit: CrossFit | None = None,
    random_state: RandomState = 0,
) -> StudyPlan:
    """Say how many rows, and how large a policy gap, a wanted precision needs.

    Parameters
    ----------
    known : SeparateLabels, mapping or StudyGuess
        A pilot: tables of the same kind, two populations or more, as `diagnose` takes them. Or a
        few numbers, for a rough plan of two populations.
    quantity : {"average", "auuc", "qini", "top"}, default="average"
        The average uplift, an area under the uplift curve, or the gain per person of treating the
        best ``share``.
    share : float, default=0.3
        Of people treated, for "top".
    half_width, standard_error : float, optional
        The wanted precision, one of the two, in units of the outcome. Without either, the table
        says what several sizes reach.
    level : float, default=0.95
        Level of the interval whose half width is meant.
    treatment_rows : float, default=1.0
        Treatment rows for each outcome row.
    score : array of shape (n_rows,), optional
        Predicted uplift of the pilot's rows, by a model that has not seen them: what areas and
        top shares rank by. Default: a cross-fitted effect.
    crossfit : CrossFit, optional
        ``crossfit_`` of a model that was fitted to the pilot; nothing is cross-fitted then.
    random_state : int, RandomState or None, default=0
        Seed for folds.

    Returns
    -------
    StudyPlan
        ``print`` it, or read ``needed``, ``table``, ``shares``.

    See Also
    --------
    diagnose : Whether tables that you have can tell.

    Notes
    -----
    Costs one cross-fit of the pilot, a few seconds for 20,000 rows. Other gaps are the pilot's,
    times a factor at everyone. Standard errors from pilots of 250 rows or more in each table are
    within 10 percent of simulated ones on average, those from 125 rows 5 to 15 percent too large.
    Single pilots scatter: by 10 percent at 500 rows, by 25 at 125, as ``StudyPlan.scatter`` says.

    Examples
    --------
    >>> guess = StudyGuess(gap=0.4, outcome_sd=0.3, uplift=0.05)
    >>> plan_study(guess, half_width=0.02).needed.rows
    10868
    """
    check_option("quantity", quantity, QUANTITIES)
    check_share("share", share, zero_allowed=False)
    check_positive("treatment_rows", treatment_rows)
    wanted = _wanted(half_width, standard_error, level)
    if isinstance(known, StudyGuess):
        make: _Guessed | _Measured = _Guessed.of(known, quantity, share)
    else:
        make = _Measured.of(known, score, random_state, quantity, share, crossfit)
    pilot = make.cells if isinstance(make, _Measured) else None
    now = make(1.0)
    K = now.n_populations
    most = (known.largest_gap if isinstance(known, StudyGuess) else LARGEST_GAP) / now.gap
    each = [now if f == 1.0 else make(f) for f in FACTORS if f == 1.0 or f <= most]
    z = critical_value(level)
    base = 2000.0 if pilot is None else float(pilot.min())
    if wanted is not None:
        base = float(now.needed(wanted / z, treatment_rows)[0])
    sizes = sorted({_round(base * step) for step in STEPS})
    parts = np.array([now.outcome, now.treatment / treatment_rows, 0.0])
    parts[2] = now.people / (K * (1.0 + treatment_rows))
    needs = () if wanted is None else [(v, *v.needed(wanted / z, treatment_rows)) for v in each]
    table = [(v, n, max(round(treatment_rows * n), 1)) for v in each for n in sizes]
    return StudyPlan(
        quantity=QUANTITIES[quantity].format(share=share),
        level=level,
        wanted=wanted,
        gap=now.gap,
        needs=tuple(_point(v, n, m, z) for v, n, m in needs),
        table=tuple(_point(v, n, m, z) for v, n, m in table),
        shares=dict(zip(PARTS, (parts / parts.sum()).tolist(), strict=True)),
        is_rough=pilot is None,
        pilot_rows=None if pilot is None else int(pilot.min()),
        pilot_strength=None if pilot is None else float(pilot[K:].min()) / now.weakness,
    )


def _wanted(half_width: float | None, standard_error: float | None, level: float) -> float | None:
    """Return the half width that was asked for."""
    z = critical_value(level)
    if half_width is not None and standard_error is not None:
        raise InputError("give half_width or standard_error, not both: one follows from the other.")
    _check_unit(half_width=half_width, standard_error=standard_error)
    if standard_error is not None:
        return z * check_positive("standard_error", standard_error)
    return None if half_width is None else check_positive("half_width", half_width)


def _check_unit(**numbers: float | None) -> None:
    """Refuse numbers in outcome units whose squares arithmetic would lose."""
    for name, value in numbers.items():
        if value and not 1.0 / LARGEST <= abs(value) <= LARGEST:
            raise InputError(
                f"{name} must not be beyond {LARGEST:g} or below {1.0 / LARGEST:g}, got {value!r}. "
                "Change the unit of the outcome."
            )


def _round(n: float) -> int:
    """Return a number of rows with two digits that count."""
    digits = 10.0 ** max(math.floor(math.log10(max(n, 1.0))) - 1, 0)
    return max(int(round(n / digits) * digits), FEWEST_ROWS)


def _point(v: Variances, rows: int, treatment_rows: int, z: float) -> PlanPoint:
    error = v.at(rows, treatment_rows)
    strength = treatment_rows / v.weakness
    return PlanPoint(v.gap, rows, treatment_rows, error, z * error, strength, v.speaks_for)


@dataclass(frozen=True, slots=True)
class _Guessed:
    """Variances from a few numbers, by the law of a constant gap and a perfect ranking."""

    guess: StudyGuess
    size: float  # E[h^2]
    theta: float

    @classmethod
    def of(cls, guess: StudyGuess, quantity: str, share: float) -> _Guessed:
        """Take uplift as normal, and ranks as perfect."""
        normal = NormalDist()
        spread = guess.uplift_sd / (2.0 * math.sqrt(math.pi))  # E[u (F - 1/2)]
        top = share * guess.uplift
        if share < 1.0:
            top += guess.uplift_sd * normal.pdf(normal.inv_cdf(1.0 - share))
        size, theta = {
            AVERAGE: (1.0, guess.uplift),
            AUUC: (1.0 / 3.0, 0.5 * guess.uplift + spread),
            QINI: (1.0 / 12.0, spread),
            TOP: (share, top),
        }[quantity]
        return cls(guess, size, theta)

    def __call__(self, factor: float) -> Variances:
        """Return the variances if the gap were a multiple of what it is."""
        g = self.guess
        gap = factor * g.gap
        chances = np.array([g.treated + gap / 2.0, g.treated - gap / 2.0])
        weakness = float(np.sum(chances * (1.0 - chances))) / gap**2
        return Variances(
            gap=gap,
            outcome=2.0 * self.size * g.outcome_sd**2 / gap**2,
            treatment=self.theta**2 * weakness,
            people=self.size * g.uplift_sd**2,
            weakness=weakness,
            speaks_for=math.nan,
            n_populations=2,
        )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Variances from a pilot."""

    rows: EvaluationRows
    score: Array  # (n,)
    quantity: str
    share: float

    @classmethod
    def of(
        cls,
        data: Mapping[str, Any],
        score: ArrayLike | None,
        seed: RandomState,
        quantity: str,
        share: float,
        crossfit: CrossFit | None,
    ) -> _Measured:
        """Check a pilot and cross-fit its nuisances."""
        tables = HeldOutTables.of(data, None)
        fewest = min(len(at) for at in tables.rows.all_cells())
        if fewest < FEWEST_ROWS:
            raise InputError(
                f"a pilot needs {FEWEST_ROWS} rows or more in each table, the smallest has "
                f"{fewest}. Give more, or a StudyGuess of a few numbers."
            )
        rows = tables.evaluated(crossfit, rng=check_random_state(seed))
        given = rows.effect if score is None else tables.values("score", score)[: len(rows.cell)]
        return cls(rows, given, quantity, share)

    @property
    def cells(self) -> IntArray:
        """Rows of each table."""
        return np.bincount(self.rows.cell)

    def __call__(self, factor: float) -> Variances:
        """Return the variances if everyone's gap were a multiple of what it is.

        They are scaled so that at the pilot's own gap and size they are what the pilot's rows
        show: the parts are products of means, which few rows get wrong by some percent.
        """
        found = self._parts(factor)
        parts = ("outcome", "treatment", "people")
        return replace(found, **{name: self._scale * getattr(found, name) for name in parts})

    @cached_property
    def _scale(self) -> float:
        """What the rows show of the variance over what its parts add up to."""
        now, rows = self._parts(1.0), self.rows
        K, count = rows.n_populations, self.cells
        # Sizes of tables that differ: each population has its part of what rows add.
        n, m = K / np.sum(1.0 / count[:K]), K / np.sum(1.0 / count[K:])
        expected = now.outcome / n + now.treatment / m + now.people / count.sum()
        return float(self._estimate(rows).standard_error ** 2 / expected)

    def _estimate(self, rows: EvaluationRows) -> Estimate:
        terms = rows.terms(rows.omega(OVERLAP))
        weight, rank = self._functional(terms.people)
        scale = float(terms.share @ terms.denominator) / terms.speaks_for
        gain = terms.numerator * weight + scale * terms.aim * rank
        return terms.totals(gain, terms.denominator).ratio(0, 1)

    def _parts(self, factor: float) -> Variances:
        rows = self.rows
        middle = rows.policies.mean(axis=1, keepdims=True)
        policies = middle + factor * (rows.policies - middle)
        rows = replace(rows, policies=np.clip(policies, CLIP, 1.0 - CLIP))
        omega, K = rows.omega(OVERLAP), rows.n_populations
        terms = rows.terms(omega)
        weight, rank = self._functional(terms.people)
        Omega, theta = terms.speaks_for, self._estimate(rows).value
        own = omega * rows.contrast() * rows.ratio
        chance = rows.policies[np.arange(len(own)), rows.cell % K]
        outcome, treated = rows.cell < K, (rows.cell >= K) & rows.is_labelled
        count = np.bincount(rows.cell)[rows.cell]
        per_row = count * rows.share**2 / Omega**2  # times a square: n rows' variance, times n
        noise = per_row * (own * weight * rows.residual) ** 2
        luck = float(np.sum((per_row * own**2 * chance * (1.0 - chance))[treated]))
        people = rows.share * rows.aim
        plug_in = people @ (omega * weight * rows.effect) / Omega
        apart = omega * (weight * rows.effect - plug_in + rank) / Omega
        return Variances(
            gap=float(np.sqrt(people @ rows.gap**2)),
            outcome=float(np.sum(noise[outcome])),
            treatment=theta**2 * luck,
            people=float(people @ apart**2),
            weakness=luck,
            speaks_for=Omega,
            n_populations=K,
        )

    def _functional(self, people: Array) -> Functional:
        """Return the weights of the quantity, and what ranks add."""
        scored = Scored(None, self.score, people, self.rows.effect)
        if self.quantity == AVERAGE:
            return scored.everyone()
        if self.quantity == TOP:
            return scored.top(self.share)
        area = scored.area()
        if self.quantity == AUUC:
            return area
        # The Qini is the AUUC less half of the average, whose ranks add nothing.
        return area[0] - 0.5, area[1]
