"""What a report says in numbers, each from the object that made it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_not_negative,
    check_share,
    check_worth,
    shown,
)
from unjoined.data.labels import SeparateLabels
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.evaluate.arms import arm_labels, cross_fit_arms
from unjoined.evaluate.bounds import uplift_bounds
from unjoined.evaluate.diagnosis import diagnose
from unjoined.evaluate.estimate import UNKNOWN
from unjoined.evaluate.evaluate import cross_evaluate, evaluate_uplift
from unjoined.evaluate.planner import plan_study
from unjoined.evaluate.regions import NamedFeatures, tree_conditions
from unjoined.evaluate.tables import cross_fit, ranked_by, was_fitted_to
from unjoined.report.drivers import FEWEST, People, find_drivers
from unjoined.targeting import (
    TreeRule,
    assign_arms,
    budget_rule,
    learn_rule,
    optimal_rule,
    profit_rule,
    top_share_rule,
)

if TYPE_CHECKING:
    from unjoined.evaluate.diagnosis import Diagnosis
    from unjoined.evaluate.estimate import Estimate
    from unjoined.evaluate.evaluate import Evaluation
    from unjoined.evaluate.planner import StudyPlan
    from unjoined.evaluate.sensitivity import Claim
    from unjoined.model.crossfit import CrossFit

DEPTH, SMALLEST_SEGMENT = 3, 0.05  # of the tree that describes segments; of the people
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
        What one unit of the outcome is worth, money. Without it, gains are in units of the
        outcome only. More of the outcome is better: if yours is a loss, turn its sign first.
    cost : float, default=0.0
        What treating one person costs, money.
    currency : str, default=""
        Written after amounts of money.
    share : float, optional
        Share of the people to treat, 0 to 1. Default: all whose treatment pays.
    budget : float, optional
        Most that may be spent, money. Needs a cost above 0.
    costs : mapping of str to float, optional
        Of several treatments, what one person costs by each, money. Needs ``value``.

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
    costs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check each of them, and that they belong together."""
        check_not_negative("cost", self.cost)
        for arm, cost in self.costs.items():
            check_not_negative(f"the cost of {arm!r}", cost)
        if self.value is not None:
            check_worth("value", self.value)
        if self.share is not None:
            check_share("share", self.share, zero_allowed=True)
        if self.budget is not None:
            check_not_negative("budget", self.budget)
            if not self.cost and not any(self.costs.values()):
                raise InputError(
                    "a budget needs a cost per person above 0: give cost as well."
                )
            if self.share is not None:
                raise InputError(
                    "share and budget both say how many are treated: give one."
                )

    @property
    def has_money(self) -> bool:
        """Whether gains can be told in money."""
        return self.value is not None

    def of_arm(self, arm: str) -> Terms:
        """Return the terms of one of several treatments by itself."""
        return replace(self, cost=self.costs[arm], costs={}, budget=None)

    def assign(self, arms: Sequence[str], uplift: Array) -> IntArray:
        """Return which of several treatments each person gets, from 1, or 0, by predictions."""
        if {*self.costs} != {*arms}:
            raise InputError(
                f"costs must name each of the treatments {shown(arms)}, got "
                f"{shown(list(self.costs)) or 'none'}."
            )
        if self.share is not None or self.cost:
            raise InputError(
                "share and cost are for one treatment. Of several say costs, such as "
                "costs={'mail': 0.5, 'phone': 3.0}, with value and perhaps budget."
            )
        if any(self.costs.values()) and self.value is None:
            raise InputError(
                "costs need value, what one unit of the outcome is worth, so that treatments can "
                "be held against what they cost."
            )
        return assign_arms(
            uplift,
            value=1.0 if self.value is None else self.value,
            cost=[self.costs[arm] for arm in arms],
            budget=self.budget,
        )

    def rule(self, uplift: Array) -> Array:
        """Return whom to treat, 0 to 1 each, by predictions alone."""
        if self.share is not None:
            return top_share_rule(uplift, self.share)
        if self.value is not None:
            return profit_rule(
                uplift, value=self.value, cost=self.cost, budget=self.budget
            )
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
    author : str, default=""
        Who made it.
    """

    title: str = "Whom to treat"
    command: str | None = None
    list_file: str | None = None
    left_out: tuple[str, ...] = ()
    list_command: str | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """What treating a share of the people, the best first, is expected to bring."""

    share: float
    people: float
    gain: float  # over treating nobody, outcome units, summed
    low: float  # of its interval; infinite if the tables cannot bound it
    high: float

    def part(self, share: float) -> Stage:
        """Return a share of it: of the people, whoever they are, and of what they gain."""
        return Stage(*(share * part for part in astuple(self)))

    def net(self, terms: Terms) -> tuple[float, float, float]:
        """Return value of the gain less costs, and the interval of it, money."""
        value = terms.value or 0.0
        spent = terms.cost * self.people
        net, low, high = (
            value * gain - spent if value else -spent
            for gain in (self.gain, self.low, self.high)
        )
        return net, low, high

    def ends(self, terms: Terms) -> tuple[float, float]:
        """Return the interval of the gain, after costs if there is money."""
        return self.net(terms)[1:] if terms.has_money else (self.low, self.high)


# What a firmer answer needs: the open question, "" if nothing is open and the study would just
# halve the interval; the half width wanted, outcome units; and a plan.
Study = tuple[str, float, "StudyPlan"]


class Facts:
    """All that a report says of a model, data and people; see `report` for the parameters."""

    def __init__(
        self,
        model: Any,
        data: SeparateLabels,
        *,
        people: MatrixLike | None = None,
        terms: Terms | None = None,
        origin: Origin | None = None,
        diagnosis: Diagnosis | None = None,
        evaluation: Evaluation | None = None,
        held_out: bool = False,
        never_harms: bool = False,
        crossfit: CrossFit | None = None,
        arm: str = "",
        rule: Array | None = None,
        random_state: RandomState = 0,
    ) -> None:
        names = getattr(model, "feature_names_in_", None)
        self.people = People.of(
            data.X if people is None else people,
            None if names is None else list(map(str, names)),
        )
        _check_many(data, self.people)
        self.model, self.data = model, data
        self.own_people = people is not None
        self.held_out = held_out
        self.terms = terms or Terms()
        self.origin = origin or Origin()
        self.arm = arm  # of several treatments, the one that this is about
        if crossfit is None:
            crossfit = _cross_fit(
                model, data, held_out=held_out, random_state=random_state
            )
        shared: dict[str, Any] = {"crossfit": crossfit, "random_state": random_state}
        target = None if people is None else self.people.X
        # Whether what is done is to make an offer, which people take up or not.
        self.offers = bool(getattr(model, "randomised", False))
        self.diagnosis = diagnosis or diagnose(
            data, target, randomised=self.offers, never_harms=never_harms, **shared
        )
        self.bounds = None
        if self.diagnosis.bounds is not None:
            self.bounds = uplift_bounds(
                model, data, never_harms=never_harms, level=LEVEL, **shared
            )
        evaluate = evaluate_uplift if held_out else cross_evaluate
        evaluation = evaluation or evaluate(model, data, level=LEVEL, **shared)
        self.uplift = ranked_by(model)(self.people.X)
        self.record = getattr(model, "gain_", None)
        bounded = np.isfinite(evaluation.average.interval(LEVEL)).all()
        if self.record is not None and bounded and not held_out:
            # One average, that of the fit's summary.
            relative = None if self.offers else self.record.relative
            evaluation = replace(
                evaluation, average=self.record.everyone(), relative=relative
            )
        self.evaluation, self.level = evaluation, evaluation.level
        self.sensitivity = evaluation.sensitivity
        outcomes = np.asarray(data.y)[data.rows(OUTCOME)]
        self.is_binary = set(np.unique(outcomes)) <= {0.0, 1.0}
        # The people advised, and the share of them whom populations treat differently enough.
        rule = self.terms.rule(self.uplift) if rule is None else rule
        self.chosen = self._stage(rule)
        self.told = evaluation.speaks_for
        if self.record is not None and rule.any():
            self.told = float(self.record.told(self.uplift, rule))
        self.claim = self._claim(rule)
        if self.claim is not None:  # the list is what is decided on
            self.diagnosis = self.diagnosis.without("sensitivity")
        self.stages = self._stages()
        self.drivers = find_drivers(
            model, self.people, check_random_state(random_state)
        )
        self.segments = self._segments()
        self.typical = list(self._typical())
        self.study = _plan(data, evaluation, shared | {"randomised": self.offers})
        self.readable = None
        if self.is_told and not arm:
            costs = self.terms.cost if self.terms.has_money else 0.0
            self.readable = _readable(
                *(model, data, self.terms, costs, len(self.people), shared),
                held_out=held_out,
            )

    @property
    def is_told(self) -> bool:
        """Whether the tables identify the average uplift; if not, no number says anything."""
        bounded = np.isfinite(self.evaluation.average.interval(self.level)).all()
        return bool(bounded) and self.diagnosis.verdict != UNKNOWN

    @property
    def everyone(self) -> Stage:
        """What treating everyone is expected to bring."""
        return self.stages[-1]

    @property
    def surely(self) -> Stage | None:
        """The largest share of which the gain is above its cost at the interval's lower end."""
        if self.terms.cost and not self.terms.value:
            return None
        paid = [s for s in self.stages if s.people and s.ends(self.terms)[0] > 0.0]
        return max(paid, key=lambda stage: stage.share, default=None)

    @property
    def best(self) -> Stage | None:
        """A larger share than was asked for that is expected to bring more; None if none is."""
        terms = self.terms
        if (
            terms.share is None
            or not self.chosen.people
            or (terms.cost and not terms.value)
        ):
            return None

        def worth(stage: Stage) -> float:
            return stage.net(terms)[0] if terms.has_money else stage.gain

        best = max(self.stages, key=worth)
        is_more = best.share > self.chosen.share and worth(best) > worth(self.chosen)
        return best if is_more else None

    @property
    def outside(self) -> float:
        """Share of the people unlike all rows of the fit; nan if not known."""
        try:
            return float(np.mean(self.model.outside_training(self.people.X)))
        except (AttributeError, InputError):
            return math.nan

    def _stage(self, rule: Array) -> Stage:
        """Return what a rule is expected to bring: by the model's record, or the evaluated curve.

        Without a record it treats the best first.
        """
        n = len(rule)
        treated = float(rule.sum())
        share = treated / n
        if self.record is not None:
            gain = self.record.gain(self.uplift, rule)
            return Stage(share, treated, gain.value, *gain.interval(self.level))
        curve = self.evaluation.curve
        parts = (curve.value, curve.low, curve.high)
        return Stage(
            share,
            treated,
            *(n * float(np.interp(share, curve.share, y)) for y in parts),
        )

    def _claim(self, rule: Array) -> Claim | None:
        """Return the claim that the people advised gain more than they cost, if that is open.

        Where chance decided who is in which population, people are alike.
        """
        terms = self.terms
        if self.diagnosis.sensitivity is None or self.offers or not rule.any():
            return None
        if terms.cost and not terms.value:
            return None
        cost = terms.cost / terms.value if terms.value else 0.0
        if self.record is not None:
            claim: Claim = self.record.claim(self.uplift, rule, cost=cost)
            return claim
        if rule.all() and self.sensitivity is not None:
            return self.sensitivity.at(cost=cost).average
        return None

    def _stages(self) -> list[Stage]:
        """Return what shares are expected to bring, a hundredth apart, and the one advised."""
        n = len(self.uplift)
        chosen = self.chosen
        shares = [k / 100 for k in range(101) if k == 0 or k * n / 100 >= FEWEST]
        found = [self._stage(top_share_rule(self.uplift, share)) for share in shares]
        ranked = not self.arm  # else those who get it are not the best
        if (
            ranked
            and chosen.people >= FEWEST
            and not any(abs(s.share - chosen.share) < 1e-9 for s in found)
        ):
            found.append(chosen)
        return sorted(found, key=lambda stage: stage.share)

    def _group(self, name: str, inside: BoolArray) -> dict[str, Any]:
        """Return some of the people: what is predicted, and what people with such scores gained."""
        gain = None if self.record is None else self.record.average(self.uplift, inside)
        predicted = float(self.uplift[inside].mean())
        return {
            "name": name,
            "people": int(inside.sum()),
            "predicted": predicted,
            "gain": gain,
        }

    def _segments(self) -> list[dict[str, Any]]:
        """Return groups that conditions on features describe, the largest predicted uplift first.

        A tree of depth 3 explains the predictions; a group has 5 % of the people and 20 at least.
        """
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UnjoinedWarning
            )  # the fit has warned of odd columns
            matrix, features = NamedFeatures.of(self.people.X)
        least = max(FEWEST, math.ceil(SMALLEST_SEGMENT * len(self.people)))
        tree = DecisionTreeRegressor(
            max_depth=DEPTH, min_samples_leaf=least, random_state=0
        )
        leaf = tree.fit(matrix, self.uplift).apply(matrix)
        where = tree_conditions(tree.tree_)
        found = [
            self._group(features.in_words(where[i]), leaf == i) for i in np.unique(leaf)
        ]
        return sorted(found, key=lambda group: -group["predicted"])

    def _typical(self) -> Iterator[dict[str, Any]]:
        """Describe the best, the middle and the worst people by their averages.

        Each is a group, what features add to its uplift, and what the rest adds.
        """
        n = len(self.people)
        mean = float(self.uplift.mean())
        size = min(max(FEWEST, round(TYPICAL * n)), n)
        rank = np.argsort(np.argsort(-self.uplift, kind="stable"))
        starts = {
            "among the best": 0,
            "in the middle": (n - size) // 2,
            "among the worst": n - size,
        }
        for name, start in starts.items():
            inside = (rank >= start) & (rank < start + size)
            parts = []
            for driver in self.drivers[:4]:
                everyone = driver.column.values
                added = driver.at(everyone[inside]).mean() - driver.at(everyone).mean()
                usual = driver.usual(everyone[inside])
                parts.append((driver.column.name, usual, float(added)))
            group = self._group(name, inside)
            rest = group["predicted"] - mean - sum(added for *_, added in parts)
            yield {"group": group, "parts": parts, "rest": rest}


class ArmFacts:
    """All that a report says of several treatments: each against none, and who gets which.

    See `report` for the parameters.
    """

    offers = False

    def __init__(
        self,
        model: Any,
        data: SeparateLabels,
        *,
        people: MatrixLike | None = None,
        terms: Terms | None = None,
        origin: Origin | None = None,
        diagnosis: Any = None,
        evaluation: Any = None,
        held_out: bool = False,
        never_harms: bool = False,
        random_state: RandomState = 0,
    ) -> None:
        if diagnosis is not None:
            raise InputError(
                "a diagnosis is about one treatment, and the report makes that of each. Leave out "
                "diagnosis."
            )
        crossfits = _cross_fit_arms(
            model, data, held_out=held_out, random_state=random_state
        )
        views = arm_labels(data, crossfits.values())
        self.model, self.data, self.control = model, data, model.control_
        self.terms = terms or Terms()
        if not self.terms.costs:
            free = dict.fromkeys(model.arms_, self.terms.cost)
            self.terms = replace(self.terms, cost=0.0, costs=free)
        self.origin = origin or Origin()
        self.own_people = people is not None
        chosen = self.terms.assign(
            model.arms_, model.predict(data.X if people is None else people)
        )
        self.arms = {
            arm: Facts(
                model.models_[arm],
                views[arm],
                people=people,
                terms=self.terms.of_arm(arm),
                evaluation=None if evaluation is None else evaluation.arms[arm],
                held_out=held_out,
                never_harms=never_harms,
                crossfit=crossfits[arm],
                arm=arm,
                rule=1.0 * (chosen == j),
                random_state=random_state,
            )
            for j, arm in enumerate(model.arms_, 1)
        }
        first = next(iter(self.arms.values()))
        self.readable = None
        if self.is_told:
            shared = {"crossfit": crossfits, "random_state": random_state}
            costs = dict(self.terms.costs)
            self.readable = _readable(
                *(model, data, self.terms, costs, len(first.people), shared),
                held_out=held_out,
            )
        self.people, self.level = first.people, first.level
        self.values: dict[str, Estimate] = model.values_

    @property
    def is_told(self) -> bool:
        """Whether the tables identify the average uplift of every treatment."""
        return all(facts.is_told for facts in self.arms.values())

    @property
    def total(self) -> Stage:
        """What all treatments bring together; its interval is at least as wide as it need be.

        Ends are sums of ends: errors that go along add up, and others partly cancel.
        """
        each = zip(*(astuple(f.chosen) for f in self.arms.values()), strict=True)
        return Stage(*map(sum, each))

    @property
    def spent(self) -> dict[str, float]:
        """What each treatment costs, money."""
        return {a: f.terms.cost * f.chosen.people for a, f in self.arms.items()}

    @property
    def net(self) -> tuple[float, float, float]:
        """The same in money, after costs."""
        each = zip(*(f.chosen.net(f.terms) for f in self.arms.values()), strict=True)
        value, low, high = map(sum, each)
        return value, low, high


def _cross_fit_arms(
    model: Any, data: SeparateLabels, *, held_out: bool, random_state: RandomState
) -> dict[str, CrossFit]:
    """Return the cross-fits of several treatments: the model's own if it was fitted to the rows."""
    if data.checked.arms[1:] != tuple(model.arms_):
        raise InputError(
            f"the model is of the treatments {shown(model.arms_)}, and the tables are of "
            f"{shown(data.checked.arms[1:]) or 'one'}. Give tables in which each is given, and "
            "say with control which is none."
        )
    if held_out:
        return cross_fit_arms(data, rng=check_random_state(random_state))
    models = model.models_
    if not all(hasattr(one, "crossfit_") for one in models.values()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnjoinedWarning)
            models = clone(model).fit(data).models_
    return {arm: one.crossfit_ for arm, one in models.items()}


def _cross_fit(
    model: Any, data: SeparateLabels, *, held_out: bool, random_state: RandomState
) -> CrossFit:
    """Return the cross-fit of the tables: a model's own if it was fitted to them and keeps one."""
    if held_out or not getattr(model, "keeps_crossfit", False):
        return cross_fit(data, random_state=random_state)
    if not hasattr(
        model, "crossfit_"
    ):  # it comes from a file, which holds nobody's rows
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UnjoinedWarning
            )  # the first fit has said them
            model = clone(model).fit(data)
    crossfit: CrossFit = model.crossfit_
    return crossfit


def _readable(
    model: Any,
    data: SeparateLabels,
    terms: Terms,
    cost: Any,
    n_people: int,
    shared: dict[str, Any],
    *,
    held_out: bool,
) -> TreeRule | None:
    """Return the rule that people can read; None if nothing is worth treating or nobody may be."""
    worth = 1.0 if terms.value is None else terms.value
    if worth == 0.0 or terms.share == 0.0 or terms.budget == 0.0:
        return None
    limits: dict[str, Any] = {"share": terms.share}
    if terms.budget is not None and terms.has_money:
        limits["budget"] = terms.budget / n_people
    elif terms.budget is not None:  # of a treatment whose worth is not known
        limits["share"] = min(1.0, terms.budget / terms.cost / n_people)
    if not (held_out or was_fitted_to(model, data)):
        shared = shared | {"crossfit": None}  # it is of the rows of the fit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnjoinedWarning)
        return learn_rule(
            model, data, value=worth, cost=cost, level=LEVEL, **limits, **shared
        )


def _plan(
    data: SeparateLabels, evaluation: Evaluation, shared: dict[str, Any]
) -> Study | None:
    """Plan a study that settles what is open, the ranking first; else one twice as precise.

    What is 2.8 standard errors away from 0 (1.96 + 0.84) is told from it in four studies of five.
    """
    level, average, qini = evaluation.level, evaluation.average, evaluation.qini
    ends = [each.interval(level) for each in (average, qini)]
    if not np.isfinite(ends).all():
        return None
    wanted = (ends[0][1] - ends[0][0]) / 4.0
    quantity = "average"
    question = ""
    for name, estimate, (low, high), asked in (
        ("average", average, ends[0], "treating everyone helps or harms"),
        ("qini", qini, ends[1], "the ranking beats a random order"),
    ):
        if low <= 0.0 <= high and estimate.value:
            wanted = 0.7 * abs(estimate.value)
            quantity = name
            question = asked
    try:
        plan = plan_study(
            data, quantity=quantity, half_width=wanted, level=level, **shared
        )
    except InputError:  # no policy gap to plan with
        return None
    return question, wanted, plan


def _check_many(data: SeparateLabels, people: People) -> None:
    """Refuse data of which a report could show single people."""
    kinds = (OUTCOME, TREATMENT)
    few = [t for t in data.summary() if t.kind in kinds and t.n_rows < FEWEST]
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
