"""What a report says in numbers, each from the object that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

import unjoined.metrics as metrics
from unjoined._typing import Array, MatrixLike, RandomState
from unjoined._validation import OUTCOME, check_finite, check_not_negative, check_share
from unjoined.data import SeparateLabels
from unjoined.errors import InputError
from unjoined.metrics import Estimate
from unjoined.report.people import (
    FEWEST,
    Driver,
    People,
    Segment,
    find_drivers,
    find_segments,
)
from unjoined.targeting import budget_rule, optimal_rule, profit_rule, top_share_rule

if TYPE_CHECKING:
    from unjoined.metrics import Diagnosis, Evaluation, StudyPlan

TYPICAL = 0.1  # share of the people that each example stands for
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Terms:
    """What a decision is about: what an outcome is worth, what treating costs, how many may be.

    Parameters
    ----------
    unit : str, default="units of the outcome"
        What one unit of the outcome is called, in the plural: "purchases", "euros", "visits".
    value : float, optional
        What one unit of the outcome is worth, money; negative if it is a loss. Without it, gains
        are in units of the outcome only.
    cost : float, default=0.0
        What treating one person costs, money.
    currency : str, default=""
        Written after amounts of money.
    share : float, optional
        Share of the people to treat, 0 to 1. Default: all whose treatment pays.
    budget : float, optional
        Most that may be spent, money. Needs a cost above 0.

    Examples
    --------
    >>> Terms(unit="purchases", value=30.0, cost=0.8, currency="EUR").has_money
    True
    """

    unit: str = "units of the outcome"
    value: float | None = None
    cost: float = 0.0
    currency: str = ""
    share: float | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check each of them, and that they belong together."""
        check_not_negative("cost", self.cost)
        if self.value is not None:
            check_finite("value", self.value)
        if self.share is not None:
            check_share("share", self.share, zero_allowed=True)
        if self.budget is not None:
            check_not_negative("budget", self.budget)
            if not self.cost:
                raise InputError("a budget needs a cost per person above 0: give cost as well.")
            if self.share is not None:
                raise InputError("share and budget both say how many are treated: give one.")

    @property
    def has_money(self) -> bool:
        """Whether gains can be told in money."""
        return self.value is not None

    def rule(self, uplift: Array) -> Array:
        """Return whom to treat, 0 to 1 each, by predictions alone."""
        if self.share is not None:
            return top_share_rule(uplift, self.share)
        if self.value is not None:
            return profit_rule(uplift, value=self.value, cost=self.cost, budget=self.budget)
        if self.budget is not None:
            return budget_rule(uplift, self.budget, cost=self.cost)
        return optimal_rule(uplift)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a report comes from, as it says at its end.

    Parameters
    ----------
    title : str, default="Whom to treat"
        Heading of the report.
    command : str, optional
        The command that makes the report again.
    list_file : str, optional
        Name of a file beside the report that holds the list of people, for a link to it.
    left_out : sequence of str, default=()
        Columns of the tables that are not features, each perhaps with the reason.
    list_command : str, optional
        The command that writes the list, without the share.
    """

    title: str = "Whom to treat"
    command: str | None = None
    list_file: str | None = None
    left_out: tuple[str, ...] = ()
    list_command: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """What treating a share of the people, the best first, is expected to bring."""

    share: float
    people: float
    gain: float  # over treating nobody, outcome units, summed
    low: float  # of its interval; infinite if the tables cannot bound it
    high: float

    @classmethod
    def of(cls, share: float, people: float, gain: Estimate, level: float) -> Stage:
        """Return what an estimate says of a share."""
        return cls(share, people, gain.value, *gain.interval(level))

    def net(self, terms: Terms) -> tuple[float, float, float]:
        """Return value of the gain less costs, and the interval of it, money."""
        value, spent = terms.value or 0.0, terms.cost * self.people
        ends = [value * end - spent if value else -spent for end in (self.low, self.high)]
        return value * self.gain - spent, min(ends), max(ends)


@dataclass(frozen=True, slots=True)
class Measured:
    """A segment, and what people with such scores gained in rows the model had not seen."""

    segment: Segment
    people: int
    gain: Estimate | None  # for each person treated, outcome units


@dataclass(frozen=True, slots=True)
class Typical:
    """An example person: the average of many with such scores, and why the score is what it is."""

    name: str
    people: int
    predicted: float
    parts: tuple[tuple[str, str, float], ...]  # feature, its value, what it adds
    rest: float  # what other features and combinations add


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """What a firmer answer needs: which number, how well it is to be known, and the plan for it."""

    name: str
    shows: str  # what the study would show, "" if it would just halve the interval
    half_width: float  # wanted, outcome units
    plan: StudyPlan


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """All that a report says."""

    model: Any
    data: SeparateLabels
    people: People
    own_people: bool  # whether they are others than those of the tables
    uplift: Array = field(repr=False)
    outside: float  # share of the people unlike all rows of the fit; nan if not known
    terms: Terms
    origin: Origin
    level: float
    is_binary: bool
    diagnosis: Diagnosis
    evaluation: Evaluation
    held_out: bool
    stages: tuple[Stage, ...]
    chosen: Stage
    segments: tuple[Measured, ...]
    drivers: tuple[Driver, ...]
    typical: tuple[Typical, ...]
    study: Study | None

    @property
    def everyone(self) -> Stage:
        """What treating everyone is expected to bring."""
        return self.stages[-1]


def collect(
    model: Any,
    data: SeparateLabels,
    *,
    people: MatrixLike | None = None,
    terms: Terms | None = None,
    origin: Origin | None = None,
    diagnosis: Diagnosis | None = None,
    evaluation: Evaluation | None = None,
    held_out: bool = False,
    random_state: RandomState = 0,
) -> Facts:
    """Measure all that a report says; see `report` for the parameters."""
    terms, origin = terms or Terms(), origin or Origin()
    names = getattr(model, "feature_names_in_", None)
    everyone = People.of(
        data.X if people is None else people, None if names is None else list(map(str, names))
    )
    _check_many(data, everyone)
    if diagnosis is None:
        target = None if people is None else everyone.X
        diagnosis = metrics.diagnose(data, target, random_state=random_state)
    if evaluation is None and held_out:
        evaluation = metrics.evaluate_uplift(model, data, level=LEVEL, random_state=random_state)
    elif evaluation is None:
        evaluation = metrics.cross_evaluate(
            clone(model), data, level=LEVEL, random_state=random_state
        )
    uplift = model.predict(everyone.X)
    gains = Gains(getattr(model, "gain_", None), evaluation, uplift)
    drivers = find_drivers(model, everyone, check_random_state(random_state))
    return Facts(
        model=model,
        data=data,
        people=everyone,
        own_people=people is not None,
        uplift=uplift,
        outside=_outside(model, everyone),
        terms=terms,
        origin=origin,
        level=evaluation.level,
        is_binary=set(np.unique(np.asarray(data.y)[data.rows(OUTCOME)])) <= {0.0, 1.0},
        diagnosis=diagnosis,
        evaluation=evaluation,
        held_out=held_out,
        stages=tuple(gains.stages(terms.rule(uplift))),
        chosen=gains.stage(terms.rule(uplift)),
        segments=tuple(gains.measured(find_segments(everyone, uplift))),
        drivers=tuple(drivers),
        typical=tuple(_typical(everyone, uplift, drivers)),
        study=_plan(data, evaluation, random_state),
    )


def _plan(data: SeparateLabels, evaluation: Evaluation, random_state: RandomState) -> Study | None:
    """Plan a study that settles what is open, the ranking first; else one twice as precise.

    What is 2.8 standard errors away from 0 (1.96 + 0.84) is told from it in four studies of five.
    """
    level, average, qini = evaluation.level, evaluation.average, evaluation.qini
    ends = [each.interval(level) for each in (average, qini)]
    if not np.isfinite(ends).all():
        return None
    wanted, name, shows = (ends[0][1] - ends[0][0]) / 4.0, "average", ""
    for open_name, what, estimate in (
        ("average", "that treating everyone helps, or harms", average),
        ("qini", "that the ranking beats a random order", qini),
    ):
        low, high = estimate.interval(level)
        if low <= 0.0 <= high and estimate.value:
            wanted, name, shows = 0.7 * abs(estimate.value), open_name, what
    try:
        plan = metrics.plan_study(
            data, quantity=name, half_width=wanted, level=level, random_state=random_state
        )
    except InputError:  # no policy gap to plan with
        return None
    return Study("Qini" if name == "qini" else "average uplift", shows, wanted, plan)


def _check_many(data: SeparateLabels, people: People) -> None:
    """Refuse data of which a report could show single people."""
    few = [table for table in data.summary() if table.n_rows < FEWEST]
    if few or len(people) < FEWEST:
        what = (
            f"the {few[0].kind} table of {few[0].population!r} has {few[0].n_rows}"
            if few
            else f"there are {len(people)} people to score"
        )
        raise InputError(
            f"a report shows nothing but averages of {FEWEST} people or more, and {what}. Give "
            "more rows."
        )


def _outside(model: Any, people: People) -> float:
    try:
        return float(np.mean(model.outside_training(people.X)))
    except (AttributeError, InputError):
        return float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Gains:
    """What rules are expected to bring: by the model's own record, or by the evaluated curve."""

    record: Any  # GainByScore or None
    evaluation: Evaluation
    uplift: Array

    def stage(self, rule: Array) -> Stage:
        """Return what a rule is expected to bring; without a record it treats the best first."""
        n, treated, level = len(rule), float(rule.sum()), self.evaluation.level
        share = treated / n
        if self.record is not None:
            return Stage.of(share, treated, self.record.gain(self.uplift, rule), level)
        curve = self.evaluation.curve
        parts = (curve.value, curve.low, curve.high)
        gain, low, high = (n * float(np.interp(share, curve.share, part)) for part in parts)
        return Stage(share, treated, gain, low, high)

    def stages(self, rule: Array) -> list[Stage]:
        """Return what shares are expected to bring, in steps of a hundredth, and one rule more."""
        n = len(self.uplift)
        shares = {k / 100 for k in range(101) if k == 0 or k * n / 100 >= FEWEST}
        chosen = self.stage(rule)
        found = [self.stage(top_share_rule(self.uplift, share)) for share in sorted(shares)]
        if chosen.people >= FEWEST and not any(abs(s.share - chosen.share) < 1e-9 for s in found):
            found.append(chosen)
        return sorted(found, key=lambda stage: stage.share)

    def measured(self, segments: list[Segment]) -> list[Measured]:
        """Return segments with what people of such scores gained."""
        return [
            Measured(
                each,
                int(each.inside.sum()),
                None if self.record is None else self.record.average(self.uplift, each.inside),
            )
            for each in segments
        ]


def _typical(people: People, uplift: Array, drivers: list[Driver]) -> list[Typical]:
    """Describe the best, the middle and the worst people by their averages."""
    n = len(people)
    size = min(max(FEWEST, round(TYPICAL * n)), n)
    order = np.argsort(-uplift, kind="stable")
    starts = {"among the best": 0, "in the middle": (n - size) // 2, "among the worst": n - size}
    found = []
    for name, start in starts.items():
        at = order[start : start + size]
        parts = []
        for driver in drivers[:4]:
            own = driver.column.values[at]
            added = float(driver.at(own).mean() - driver.at(driver.column.values).mean())
            parts.append((driver.column.name, _usual(driver, own), added))
        predicted = float(uplift[at].mean())
        rest = predicted - float(uplift.mean()) - sum(part[2] for part in parts)
        found.append(Typical(name, size, predicted, tuple(parts), rest))
    return found


def _usual(driver: Driver, values: Array) -> str:
    """Return the mean of numbers, or the category that most have and how many have it."""
    known = values[~np.isnan(values)]
    if len(known) < FEWEST:
        return "mostly missing"
    if driver.is_curve:
        return driver.column.said(float(known.mean()))
    kinds, count = np.unique(known, return_counts=True)
    most = int(np.argmax(count))
    if count[most] < FEWEST:
        return "mixed"
    return f"{driver.column.said(float(kinds[most]))} ({count[most] / len(values):.0%})"
