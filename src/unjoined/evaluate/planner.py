r"""How many rows, and how different policies, a wanted precision needs.

The variance of an estimate from separate tables is, with n outcome rows and m treatment rows of
each population and N people in all,

.. math::

    \Omega^{-2} \Big\{ \frac1n \sum_k E[\omega^2 c_k^2 h^2 r^2]
    + \frac1m \sum_k E[\omega^2 c_k^2 h^2 u^2 e_k (1 - e_k)]
    + \frac1N \mathrm{Var}(\omega (h u - \theta)) \Big\}

with r the residual of an outcome that its model has not seen. A pilot measures all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, BoolArray, RandomState
from unjoined._validation import (
    LARGEST,
    check_bool,
    check_finite,
    check_not_negative,
    check_option,
    check_positive,
    check_share,
)
from unjoined.errors import InputError
from unjoined.evaluate.estimate import (
    STRONG,
    Estimate,
    ResultTable,
    Shown,
    bare_axes,
    critical_value,
)
from unjoined.evaluate.ranks import Functional, Scored
from unjoined.evaluate.tables import HeldOutTables
from unjoined.evaluate.terms import EvaluationRows
from unjoined.model.crossfit import CrossFit
from unjoined.words import in_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
GRID = 10_000  # ranks at which a guess is averaged
LEAST_GAP, LARGEST_GAP = 1e-6, 0.95
FEWEST_ROWS = 50
SCATTER, POWER = (
    0.25,
    0.75,
)  # of standard errors from single pilots of 125 rows, as a share
SMALL_PILOT = 500  # rows of a table, below which a plan says how rough it is
CAREFUL_PILOT = 250  # below, pilots ask for more than is needed, on average
CHEAP = 0.1  # share of the variance below which treatment rows are called cheap


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
        _check_unit(
            outcome_sd=self.outcome_sd, uplift=self.uplift, uplift_sd=self.uplift_sd
        )
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
class PlanPoint:
    """What a study of some size would reach.

    Attributes
    ----------
    gap : float
        Root mean square of the policy gap over people.
    rows, treatment_rows : int
        Rows of each population's outcome table, and of each treatment table.
    standard_error, half_width : float
        Of the quantity, and of its interval; outcome units.
    strength : float
        Of the gap: its square over its variance; below 17 intervals are wider than this, or
        unbounded.
    speaks_for : float
        Share of people the answer would speak for; nan if it is not known.
    """

    gap: float
    rows: int
    treatment_rows: int
    standard_error: float
    half_width: float
    strength: float
    speaks_for: float


@dataclass(frozen=True, eq=False, repr=False)
class StudyPlan(Shown):
    """Rows and policy gaps, and the precision they reach. Printing it shows all of it.

    Attributes
    ----------
    quantity : str
        What is to be known, in words.
    level : float
        Level of the intervals.
    wanted : float or None
        Half width that was asked for, outcome units.
    gap : float
        Policy gap of the pilot or of the guess, root mean square.
    needs : tuple of PlanPoint
        The rows that the wanted precision needs, for several gaps; empty if none was asked for.
    table : tuple of PlanPoint
        What several sizes and gaps reach.
    shares : dict
        Shares of the variance at the present gap: "outcomes", "treatments", "people".
    is_rough : bool
        Whether it comes from a guess. The average is then within 15 percent or so, if the numbers
        are right; AUUC and Qini may be a third too small. How rough a pilot is says ``scatter``.
    pilot_rows : int or None
        Rows of the pilot's smallest table.
    pilot_strength : float or None
        Strength of the policy gap in the pilot.
    known_share : float
        Share of the pilot's outcome rows with both labels, or with a chance of treatment that
        varies among people with the same features.
    """

    quantity: str
    level: float
    wanted: float | None
    gap: float
    needs: tuple[PlanPoint, ...]
    table: tuple[PlanPoint, ...]
    shares: dict[str, float]
    is_rough: bool
    pilot_rows: int | None
    pilot_strength: float | None
    known_share: float = 0.0

    @property
    def treatment_rows(self) -> bool:
        """Whether a study needs tables of treatments at all."""
        return any(point.treatment_rows for point in self.table)

    @property
    def scatter(self) -> float | None:
        """How far standard errors planned from single pilots of this size scatter, as a share.

        None for a guess. It was found by simulation (`benchmarks/planner.py`).
        """
        return (
            None
            if self.pilot_rows is None
            else SCATTER * (125.0 / self.pilot_rows) ** POWER
        )

    @property
    def needed(self) -> PlanPoint | None:
        """What the wanted precision needs at the present gap, None if none was asked for."""
        return next((need for need in self.needs if need.gap == self.gap), None)

    def sentences(self) -> list[str]:
        """Return the answer and what to make of it, a sentence or two each."""
        return [self._answer(), self._parts(), *self._doubts()]

    def _answer(self) -> str:
        """Say what the wanted precision needs, or what rows as many as the pilot's reach."""
        where = "the guess" if self.is_rough else "the pilot"
        if (need := self.needed) is not None:
            wanted = in_digits(self.wanted or 0.0, 3)
            and_treated = (
                f" and {need.treatment_rows:,} in each treatment table"
                if need.treatment_rows
                else ""
            )
            return (
                f"To know {self.quantity} within +-{wanted} ({self.level:.0%} interval), "
                f"collect {need.rows:,} rows in each outcome table{and_treated}, {self._as(where)}."
            )
        fewest = self.pilot_rows or 0
        reached = next(p for p in self.table if p.gap == self.gap and p.rows >= fewest)
        return (
            f"With {reached.rows:,} rows in each table, {self._as(where)}, {self.quantity} is "
            f"known within +-{in_digits(reached.half_width, 3)} ({self.level:.0%} interval)."
        )

    def _as(self, where: str) -> str:
        """Say what a study has in common with what it is planned by."""
        if self.known_share:
            if self.known_share == 1.0:
                return f"with treatment, or its chance, known of all as in {where}"
            known = f"with treatment, or its chance, known of {self.known_share:.0%} of them"
            return f"{known} and policies as far apart as in {where} ({self.gap:.2f})"
        return f"with policies as far apart as in {where} ({self.gap:.2f})"

    def _parts(self) -> str:
        """Say what the variance is made of."""
        noise, luck, people = (f"{share:.0%}" for share in self.shares.values())
        parts = (
            f"Of its variance {noise} is noise of outcomes, {luck} chance of treatment, {people} "
            "who happens to be in the tables."
        )
        if self.treatment_rows and self.shares["treatments"] < CHEAP:
            fewer = math.sqrt(1.0 + self.shares["treatments"]) - 1.0
            parts += (
                " Treatment rows are cheap here: with half as many the interval would be "
                f"{fewer:.1%} wider. Spend on outcome rows."
            )
        if not self.treatment_rows:
            parts += " As treatment is known of every outcome row, no treatment table is needed."
        if self.known_share == 1.0:
            return parts
        return f"{parts} Twice the gap is worth about four times the rows."

    def _doubts(self) -> Iterator[str]:
        """Yield how rough the plan is."""
        if self.pilot_rows is None or self.pilot_strength is None:
            yield (
                "This is rough: it takes the gap as the same for everyone, uplift as normal and a "
                "ranking as perfect. Areas may come out a third too small. A pilot does better."
            )
        elif self.pilot_strength < STRONG:
            yield (
                "The pilot hardly shows a difference of policies "
                f"(strength {self.pilot_strength:.1f}, below {STRONG:g}), so that this plan means "
                "little. Vary treatment more, then plan again."
            )
        elif self.scatter and self.pilot_rows < SMALL_PILOT:
            yield (
                f"This is rough, as the pilot is small ({self.pilot_rows} rows in its smallest "
                "table): standard errors from single pilots of this size scatter by about "
                f"{self.scatter:.0%}, and the rows they ask for by {2.0 * self.scatter:.0%}."
            )
            if self.pilot_rows < CAREFUL_PILOT:
                yield "On average they ask for too much, by 5 to 15% of the standard error."

    def result_tables(self) -> list[ResultTable]:
        """Return rows needed by gap, and precision by rows and gap, as text."""
        tables: list[ResultTable] = []
        if self.needs:
            names = ("gap", "outcome rows", "treatment rows", "speaks for")
            needs = [
                (
                    f"{p.gap:.2f}",
                    f"{p.rows:,}",
                    f"{p.treatment_rows:,}" if p.treatment_rows else "none",
                    "-" if math.isnan(p.speaks_for) else f"{p.speaks_for:.0%}",
                )
                for p in self.needs
            ]
            tables.append(("Rows of each table that it needs", names, needs))
        gaps = sorted({p.gap for p in self.table})
        reached = {(p.rows, p.gap): in_digits(p.half_width, 3) for p in self.table}
        sizes = sorted({p.rows for p in self.table})
        lines = [(f"{n:,}", *(reached[n, gap] for gap in gaps)) for n in sizes]
        title = f"Half width of the {self.level:.0%} interval, by rows of each table and gap"
        return [
            *tables,
            (title, ("outcome rows", *(f"gap {gap:.2f}" for gap in gaps)), lines),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        return super().to_dict() | {
            "scatter": self.scatter,
            "sentences": self.sentences(),
        }

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return gap, rows and precision, for each size and gap."""
        return [asdict(point) for point in self.table]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the half width against the rows of a table, a line for each gap.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = bare_axes(ax, 3.8)
        for gap in sorted({point.gap for point in self.table}):
            line = [point for point in self.table if point.gap == gap]
            ax.plot(
                [point.rows for point in line],
                [point.half_width for point in line],
                marker="o",
                markersize=3,
                lw=2.2 if gap == self.gap else 1.0,
                label=f"gap {gap:.2f}" + (" (now)" if gap == self.gap else ""),
            )
        if self.wanted is not None:
            ax.axhline(self.wanted, color="0.3", lw=0.8, ls="--", label="wanted")
        ax.set_xscale("log")
        ax.set_yscale("log")
        sizes = sorted({point.rows for point in self.table})
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.minorticks_off()
        widths = [point.half_width for point in self.table]
        ticks = np.geomspace(min(widths), max(widths), 5)
        ax.set_yticks(ticks, [in_digits(width, 2) for width in ticks])
        ax.set_xlabel("rows of each outcome table")
        ax.set_ylabel(f"half width of the {self.level:.0%} interval")
        ax.set_title(self.quantity.capitalize(), loc="left")
        ax.legend(frameon=False, fontsize="small")
        return ax


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
    randomised: bool = False,
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
    randomised : bool, default=False
        Whether chance decided who is in which population. What is to be known is then a gain of
        making the offer.
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
    z = critical_value(level)
    wanted = _half_width(half_width, standard_error, z)
    largest_gap, pilot, known_share = LARGEST_GAP, None, 0.0
    if isinstance(known, StudyGuess):
        largest_gap = known.largest_gap
        variances: Callable[[float], Variances] = partial(
            _guessed, known, quantity, share
        )
    else:
        rows, ranked_by, real = _pilot(
            known, score, crossfit, random_state, randomised=randomised
        )
        variances = Measured(rows, ranked_by, quantity, share, real).variances
        pilot = np.bincount(rows.cell)
        known_share = float(rows.population_share @ rows.known[:, 0])
    now = variances(1.0)
    K = now.n_populations
    others = [f for f in FACTORS if f == 1.0 or f <= largest_gap / now.gap]
    if known_share == 1.0 or K == 1:  # no matter how far policies are apart
        others = [1.0]
    treatment_rows = treatment_rows if now.weakness > 0.0 else 0.0
    by_gap = [now if factor == 1.0 else variances(factor) for factor in others]
    base = 2000.0 if pilot is None else float(pilot.min())
    needs: list[PlanPoint] = []
    if wanted is not None:
        needs = [v.point(*v.needed(wanted / z, treatment_rows), z) for v in by_gap]
        base = float(now.needed(wanted / z, treatment_rows)[0])
    sizes = sorted({_round(base * step) for step in STEPS})
    least = 1 if treatment_rows else 0
    table = [
        v.point(n, max(round(treatment_rows * n), least), z)
        for v in by_gap
        for n in sizes
    ]
    parts = {
        "outcomes": now.outcome,
        "treatments": now.treatment / treatment_rows if treatment_rows else 0.0,
        "people": now.people / (K * (1.0 + treatment_rows)),
    }
    return StudyPlan(
        quantity=QUANTITIES[quantity].format(share=share),
        level=level,
        wanted=wanted,
        gap=now.gap,
        needs=tuple(needs),
        table=tuple(table),
        shares={name: part / sum(parts.values()) for name, part in parts.items()},
        is_rough=pilot is None,
        pilot_rows=None if pilot is None else int(pilot.min()),
        pilot_strength=None if pilot is None else now.strength(float(pilot[K:].min())),
        known_share=known_share,
    )


def _half_width(
    half_width: float | None, error: float | None, z: float
) -> float | None:
    """Return the half width that was asked for."""
    if half_width is not None and error is not None:
        raise InputError(
            "give half_width or standard_error, not both: one follows from the other."
        )
    _check_unit(half_width=half_width, standard_error=error)
    if error is not None:
        return z * check_positive("standard_error", error)
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

    def point(self, rows: int, treatment_rows: int, z: float) -> PlanPoint:
        """Return what so many rows in each table reach."""
        people = self.people / (self.n_populations * (rows + treatment_rows))
        luck = self.treatment / treatment_rows if treatment_rows else 0.0
        error = math.sqrt(self.outcome / rows + luck + people)
        strength = self.strength(treatment_rows)
        return PlanPoint(
            self.gap, rows, treatment_rows, error, z * error, strength, self.speaks_for
        )

    def strength(self, treatment_rows: float) -> float:
        """Return the strength of the gap; infinite if it is known."""
        return treatment_rows / self.weakness if self.weakness > 0.0 else math.inf

    def needed(self, error: float, per_row: float) -> tuple[int, int]:
        """Return the outcome and treatment rows of a table that a standard error needs."""
        people = self.people / (self.n_populations * (1.0 + per_row))
        luck = self.treatment / per_row if per_row else 0.0
        rows = (self.outcome + luck + people) / error**2
        rows = max(math.ceil(rows), FEWEST_ROWS)
        if not per_row:
            return rows, 0
        fewest = max(math.ceil(STRONG * self.weakness), FEWEST_ROWS)
        return rows, max(math.ceil(per_row * rows), fewest)


def _guessed(
    guess: StudyGuess, quantity: str, share: float, factor: float
) -> Variances:
    """Return the variances if the gap were a multiple of what is guessed.

    The gap is the same for everyone, uplift normal, and ranks perfect.
    """
    rank = (np.arange(GRID) + 0.5) / GRID
    uplift = guess.uplift + guess.uplift_sd * ndtri(rank)
    h = {
        AVERAGE: np.ones(GRID),
        AUUC: rank,
        QINI: rank - 0.5,
        TOP: (rank > 1.0 - share) * 1.0,
    }[quantity]
    size = float(np.mean(h**2))
    gap = factor * guess.gap
    policies = np.array([guess.treated + gap / 2.0, guess.treated - gap / 2.0])
    weakness = float(np.sum(policies * (1.0 - policies))) / gap**2
    return Variances(
        gap=gap,
        outcome=2.0 * size * guess.outcome_sd**2 / gap**2,
        treatment=float(np.mean((h * uplift) ** 2)) * weakness,
        people=size * guess.uplift_sd**2,
        weakness=weakness,
        speaks_for=math.nan,
        n_populations=2,
    )


def _pilot(
    data: Mapping[str, Any],
    score: ArrayLike | None,
    crossfit: CrossFit | None,
    seed: RandomState,
    *,
    randomised: bool,
) -> tuple[EvaluationRows, Array, BoolArray]:
    """Check a pilot and cross-fit its nuisances.

    Also return what people are ranked by, and which rows hold treatments that chance decided.
    """
    tables = HeldOutTables.of(
        data, None, randomised=check_bool("randomised", randomised)
    )
    if tables.rows.dose is not None:
        raise InputError(
            "a plan is for people who are treated or not, and these rows have doses. Of a pilot "
            "with doses, errors shrink with the root of its rows: see average_effect_ of a fit."
        )
    fewest = min(len(at) for at in tables.rows.all_cells())
    if fewest < FEWEST_ROWS:
        raise InputError(
            f"a pilot needs {FEWEST_ROWS} rows or more in each table, the smallest has "
            f"{fewest}. Give more, or a StudyGuess of a few numbers."
        )
    rows = tables.evaluated(crossfit, rng=check_random_state(seed))
    ranked_by = rows.effect
    if randomised:
        rows = rows.offered(rows.arms)
    labelled = tables.rows
    drawn = rows.is_treatment & (not randomised)
    if labelled.policy is not None:
        known = labelled.is_copy & ~np.isnan(labelled.policy)
        if labelled.joint is not None:
            known &= np.isnan(labelled.joint)
        drawn[: len(known)] &= ~known
    if score is None:
        return rows, ranked_by, drawn
    return rows, tables.values("score", score)[: len(rows.cell)], drawn


class Measured:
    """Variances from a pilot.

    They are scaled so that at the pilot's own gap and size they are what the pilot's rows show:
    the parts are products of means, which few rows get wrong by some percent.
    """

    def __init__(
        self,
        rows: EvaluationRows,
        score: Array,
        quantity: str,
        share: float,
        drawn: BoolArray,
    ) -> None:
        self.rows, self.score, self.quantity, self.share = rows, score, quantity, share
        self.drawn = drawn  # rows with a treatment that chance decided
        now = self._parts(1.0)
        count = np.bincount(rows.cell)
        K = rows.n_populations
        # Sizes of tables that differ: each population has its part of what rows add.
        n = K / np.sum(1.0 / count[:K])
        m = K / np.sum(1.0 / count[K:])
        expected = now.outcome / n + now.treatment / m + now.people / count.sum()
        self.scale = float(self._estimate(rows).standard_error ** 2 / expected)

    def variances(self, factor: float) -> Variances:
        """Return the variances if everyone's gap were a multiple of what it is."""
        parts = self._parts(factor)
        return replace(
            parts,
            outcome=self.scale * parts.outcome,
            treatment=self.scale * parts.treatment,
            people=self.scale * parts.people,
        )

    def _estimate(self, rows: EvaluationRows) -> Estimate:
        terms = rows.terms(rows.omega())
        weight, rank = self._functional(terms.people)
        scale = float(terms.share @ terms.denominator) / terms.speaks_for
        gain = terms.gain * weight + scale * terms.aim * rank
        columns = gain, terms.denominator, terms.counted
        return terms.totals(*columns).per_person(*np.eye(3))

    def _parts(self, factor: float) -> Variances:
        rows, K = self.rows, self.rows.n_populations
        middle = rows.policies.mean(axis=1, keepdims=True)
        policies = np.clip(middle + factor * (rows.policies - middle), CLIP, 1.0 - CLIP)
        rows = replace(rows, policies=policies)
        omega = rows.omega()
        terms = rows.terms(omega)
        weight, rank = self._functional(terms.people)
        Omega = terms.speaks_for
        reach = omega * rows.contrast() * rows.ratio
        own = policies[np.arange(len(reach)), rows.cell % K]
        # Times a square: the variance of n rows, times n.
        per_row = np.bincount(rows.cell)[rows.cell] * rows.share**2 / Omega**2
        noise = per_row * (reach * weight * rows.residual) ** 2
        luck = per_row * (reach * rows.known_rest) ** 2 * own * (1.0 - own)
        luck, gain = luck[self.drawn], (weight * rows.effect)[self.drawn]
        people = rows.share * rows.aim
        plug_in = people @ (omega * weight * rows.effect) / Omega
        apart = omega * (weight * rows.effect - plug_in + rank) / Omega
        return Variances(
            gap=float(np.sqrt(people @ rows.gap**2)),
            outcome=float(np.sum(noise[rows.cell < K])),
            treatment=float(luck @ gain**2),
            people=float(people @ apart**2),
            weakness=float(luck.sum()),
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
        F, rank = scored.area()
        # The Qini is the AUUC less half of the average, whose ranks add nothing.
        return (F if self.quantity == AUUC else F - 0.5), rank
