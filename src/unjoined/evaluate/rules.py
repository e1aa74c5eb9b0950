"""Rules that people can read: a shallow tree that says whom to treat, judged on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    check_count,
    check_finite,
    check_not_negative,
    check_positive,
    check_share,
    did_you_mean,
    shown,
)
from unjoined.data.labels import SeparateLabels, as_data
from unjoined.errors import InputError
from unjoined.evaluate.arms import arm_labels, cross_fit_arms
from unjoined.evaluate.estimate import (
    Estimate,
    ResultTable,
    Shown,
    bare_axes,
    critical_value,
)
from unjoined.evaluate.evaluate import COMPARED_ROWS, is_randomised
from unjoined.evaluate.regions import SMALLEST_SHARE, NamedFeatures
from unjoined.evaluate.strength import ranking_noise
from unjoined.evaluate.tables import Asked, HeldOutTables, was_fitted_to
from unjoined.evaluate.terms import EvaluationRows, RatioTerms, agreed_average
from unjoined.model.crossfit import CrossFit
from unjoined.model.trees import Bounds, Grower, Leaf, assigned, cut_points
from unjoined.words import cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEEPEST = 4
MOST_FEATURES = 24  # that a tree chooses among
TREE_ROWS = 50_000  # that a tree is grown on
GROUPS = 4  # of the people, by each feature
HALVINGS = 16  # of what the scarce thing costs
# What people get where there is one treatment.
TREAT, OFFER, UNIT = "treat", "offer", "one unit more"
# To do it, and doing it.
WORDS = {
    TREAT: ("treat", "treating"),
    OFFER: ("make the offer to", "making it to"),
    UNIT: ("give one unit more to", "giving it to"),
}


@dataclass(frozen=True, slots=True)
class RuleLeaf:
    """People whom a rule treats alike.

    Attributes
    ----------
    where : str
        The conditions in words, such as "age is above 40 and orders is at least 2".
    treatment : str
        What they get; "" for those who are left alone.
    share : float
        Of the people in question.
    uplift : float
        Their mean predicted uplift, by fits that have not seen them; outcome units. Of several
        treatments that of the one they get, or of the best one.
    bounds : dict
        The same for machines: columns of numbers, each above the first and at most the second.
    """

    where: str
    treatment: str
    share: float
    uplift: float
    bounds: Bounds


@dataclass(frozen=True, eq=False, repr=False)
class TreeRule(Shown):
    """A rule that people can read, and what it is worth. Printing it shows all of it.

    Attributes
    ----------
    leaves : tuple of RuleLeaf
        Who gets what; everybody is in one of them.
    treatments : tuple of str
        What may be given.
    share : float
        Share of the people who are treated.
    gain : Estimate
        Net gain per person over treating nobody, of rules so learnt, on people that had no part in
        learning them; in the units of value and cost.
    ranking : Estimate
        The same of treating, within the same budget, whoever is predicted to be worth it, one by
        one.
    everyone : Estimate
        The same of treating everyone, with the treatment for which that is best; no budget.
    kept : Estimate or None
        Gain of the rule as a part of that of the ranking; None where the latter is not clear of 0.
    level : float
        Level of the intervals that are shown.
    features : NamedFeatures
        How the columns of the tables become numbers.
    """

    leaves: tuple[RuleLeaf, ...]
    treatments: tuple[str, ...]
    share: float
    gain: Estimate
    ranking: Estimate
    everyone: Estimate
    kept: Estimate | None
    level: float
    features: NamedFeatures

    def assign(self, X: MatrixLike) -> IntArray:
        """Return the treatment of each person, from 1 in the order of `treatments`, 0 for none.

        ``X`` has the columns of the tables. O(n) time.
        """
        matrix, _ = self.features.numbers(X, table="X")
        number = {"": 0} | {name: j for j, name in enumerate(self.treatments, 1)}
        leaves = tuple(
            Leaf(leaf.bounds, number[leaf.treatment]) for leaf in self.leaves
        )
        return assigned(leaves, matrix)

    def sentences(self, unit: str = "") -> list[str]:
        """Return the rule in words, and what it is worth; ``unit`` is what gains are called."""
        lines = [line for name in self.treatments if (line := self._who(name))]
        do, doing = WORDS.get(self.treatments[0], WORDS[TREAT])
        if not lines:
            nobody = "nobody: no group that such a tree can tell is worth it."
            lines = [f"{do[0].upper()}{do[1:]} {nobody}"]
        gain, ends = cells(self.gain, self.level)
        gain = f"{gain} {unit}".rstrip()
        lines.append(
            f"Rules so learnt gain {gain} per person ({self.level:.0%} interval {ends}) over "
            f"{doing} nobody, on people that had no part in learning them."
        )
        if self.kept is not None:
            low, high = self.kept.interval(self.level)
            lines.append(
                f"That keeps {self.kept.value:.0%} ({low:.0%} to {high:.0%}) of "
                f"what {doing} people one by one gains, by their predicted uplift."
            )
        return lines

    def _who(self, treatment: str) -> str:
        """Say who gets a treatment."""
        groups = [leaf for leaf in self.leaves if leaf.treatment == treatment]
        if not groups:
            return ""
        do, _ = WORDS.get(treatment, (f"give {treatment} to", ""))
        verb = do[0].upper() + do[1:]
        if len(self.leaves) == 1:
            return f"{verb} everyone."
        who = ", and people where ".join(leaf.where for leaf in groups)
        share = sum(leaf.share for leaf in groups)
        return f"{verb} people where {who} ({share:.0%} of people)."

    def result_tables(self) -> list[ResultTable]:
        """Return the tables that are shown, as text: the leaves, and what rules gain."""
        leaves = [
            (
                leaf.where,
                leaf.treatment or "none",
                f"{leaf.share:.0%}",
                f"{leaf.uplift:+.4g}",
            )
            for leaf in self.leaves
        ]
        head = ("people where", "treatment", "share", "predicted uplift")
        gains = [(name, *cells(gain, self.level)) for name, gain in self._gains()]
        columns = ("who gets it", "estimate", f"{self.level:.0%} interval")
        _, doing = WORDS.get(self.treatments[0], WORDS[TREAT])
        return [
            ("Who gets what", head, leaves),
            (f"Net gain per person over {doing} nobody", columns, gains),
        ]

    def _gains(self) -> list[tuple[str, Estimate]]:
        return [
            ("those of the rule", self.gain),
            ("one by one, by predicted uplift", self.ranking),
            ("everyone", self.everyone),
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the leaves, a row each."""
        names = ("where", "treatment", "share", "uplift")
        return [{name: getattr(leaf, name) for name in names} for leaf in self.leaves]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        del plain["features"]
        return plain | {"leaves": self.frame_rows(), "sentences": self.sentences()}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the leaves as bars: as long as their uplift, as thick as their share.

        Those who are treated are in colour.
        """
        ax = bare_axes(ax, 1.0 + 0.7 * len(self.leaves))
        top = 0.0
        for leaf in self.leaves:
            colour = (
                f"C{self.treatments.index(leaf.treatment)}"
                if leaf.treatment
                else "0.75"
            )
            ax.barh(
                top + leaf.share / 2.0, leaf.uplift, 0.94 * leaf.share, color=colour
            )
            top += leaf.share
        ends = np.cumsum([leaf.share for leaf in self.leaves])
        middles = ends - [leaf.share / 2.0 for leaf in self.leaves]
        words = [
            f"{leaf.where}\n{leaf.treatment or 'left alone'}, {leaf.share:.0%} of people"
            for leaf in self.leaves
        ]
        ax.set_yticks(middles, words, fontsize="small")
        ax.invert_yaxis()
        ax.axvline(0.0, color="0.3", lw=0.8)
        ax.set_xlabel("predicted uplift, in units of the outcome")
        return ax


class Prices(NamedTuple):
    """What an outcome is worth, what treatments cost, and what they use of what is scarce."""

    value: float
    cost: Array  # (J,)
    use: Array  # (J,) of the budget, or of the share that may be treated
    most: float  # that may be used per person

    def net(self, uplift: Array, counted: Array) -> Array:
        """Return what treatments bring, (n, J), of uplift that is counted so often."""
        return np.asarray(self.value * uplift - counted * self.cost)

    def within(
        self, choose: Callable[[float], IntArray], weight: Array, effect: Array
    ) -> float:
        """Return by how much the scarce must be dearer for choices of people to keep to it."""
        use = np.concatenate([[0.0], self.use])

        def fits(dearer: float) -> bool:
            return float(weight @ use[choose(dearer)]) <= self.most * (1.0 + 1e-9)

        if fits(0.0):
            return 0.0
        low, high = (
            0.0,
            float(np.max(self.net(effect, np.ones_like(effect)) / self.use)),
        )
        while not fits(high):
            low, high = high, 2.0 * high
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high


@dataclass(frozen=True, eq=False)
class RuleRows:
    """The rows of an evaluation, with their shares of what each treatment gains."""

    X: Array  # (n, p) of the columns that may be in the rule
    fold: IntArray  # (n,) whose rows the fits have not seen
    effect: Array  # (n, J) predicted uplift, by fits that have not seen the row
    gained: (
        Array  # (2, n, J) numerators, outcome units: how they vary, what they add up to
    )
    counted: Array  # (2, n, J) what numerators are counted by
    terms: RatioTerms  # whose denominator is that of all
    without: Callable[
        [int], Array
    ]  # predicted uplift (n, J) by the fits without a fold

    @classmethod
    def of(
        cls,
        found: Sequence[EvaluationRows],
        X: Array,
        without: Callable[[int], Array],
        change: float,
    ) -> RuleRows:
        """Return those of one treatment, or of several, whom all policies must tell apart.

        All people are taken to gain more by ``change`` than was measured of one treatment.
        """
        effect = np.column_stack([rows.effect for rows in found])
        if len(found) == 1:
            terms = found[0].everyone().shifted(change)
            gained, counted = terms.gain[..., None], terms.counted[..., None]
        else:
            omega = np.min([rows.omega() for rows in found], axis=0)
            each = [rows.terms(omega) for rows in found]
            terms = replace(each[0], denominator=each[0].aim)
            gained = np.tile(np.column_stack([one.plain for one in each]), (2, 1, 1))
            counted = np.broadcast_to(terms.aim[:, None], gained.shape)
        return cls(X, found[0].fold, effect, gained, counted, terms, without)

    def grow(
        self, at: IntArray, effect: Array, prices: Prices, depth: int
    ) -> tuple[Leaf, ...]:
        """Return the rule that brings most on some rows, by what is predicted for all rows.

        Predictions are corrected by what the rows say beyond them, as far as that is no noise.
        """
        at = at[:: max(len(at) // TREE_ROWS, 1)]
        aim = (self.terms.share * self.terms.aim)[at]
        share = self.terms.share[at, None]
        weight = aim / aim.sum()
        predicted = prices.net(aim[:, None] * effect[at], aim[:, None])
        counted = share * self.counted[1, at]
        seen = prices.net(share * self.gained[1, at], counted)
        columns = self._telling(at, predicted, weight)
        true = self._reliability(at, (seen - predicted) / share, columns)
        brings = predicted + true * (seen - predicted)
        used = aim[:, None] + true * (counted - aim[:, None])
        grower = Grower.of_rows(
            self.X[at][:, columns], brings, used * prices.use, weight, SMALLEST_SHARE
        )

        def tree(dearer: float) -> tuple[Leaf, ...]:
            found = grower.tree(depth, dearer)
            return tuple(
                Leaf(
                    {int(columns[j]): ends for j, ends in leaf.bounds.items()},
                    leaf.treatment,
                )
                for leaf in found
            )

        X = self.X[at]
        choose = lambda dearer: assigned(tree(dearer), X)  # noqa: E731
        return tree(prices.within(choose, weight, effect[at]))

    def _telling(self, at: IntArray, net: Array, weight: Array) -> IntArray:
        """Return the features that what is predicted goes along with most, if there are many."""
        p = self.X.shape[1]
        if p <= MOST_FEATURES:
            return np.arange(p)
        told = np.zeros(p)
        for j in range(p):
            place = np.searchsorted(cut_points(self.X[at, j]), self.X[at, j])
            size = np.bincount(place, weight)
            for column in net.T:
                told[j] += np.sum(
                    np.bincount(place, column) ** 2 / np.maximum(size, 1e-12)
                )
        return np.sort(np.argsort(-told, kind="stable")[:MOST_FEATURES])

    def _reliability(self, at: IntArray, beyond: Array, columns: IntArray) -> float:
        """Return which part of what groups bring beyond what is predicted is no noise."""
        found = noise = 0.0
        terms = _some(self.terms, at)
        for j in columns:
            x = self.X[at, j]
            place = np.searchsorted(np.unique(np.quantile(x, (0.25, 0.5, 0.75))), x)
            for column in beyond.T:
                totals = terms.by_bin(place, GROUPS, column)
                found += float(np.sum(totals.value**2))
                noise += float(totals.variance.sum())
        return max(0.0, 1.0 - noise / found) if found > 0.0 else 0.0

    def one_by_one(self, effect: Array, prices: Prices) -> IntArray:
        """Return the treatment of each row that is predicted to bring most, within the budget."""
        net = prices.net(effect, np.ones_like(effect))

        def choose(dearer: float) -> IntArray:
            worth = net - dearer * prices.use
            best = np.argmax(worth, axis=1)
            return np.where(worth[np.arange(len(worth)), best] > 0.0, best + 1, 0)

        return choose(prices.within(choose, self.terms.people, effect))

    def gains(
        self, prices: Prices, given: Sequence[tuple[IntArray, float]]
    ) -> tuple[list[Estimate], Estimate]:
        """Return what assignments gain, each with its share of noise, and the first of the second.

        Where assignments by fits without one fold each are noise, what one finds in the other's
        fold is found the other way round as well, so that their gains beyond those of the same
        treatments for anybody vary more.
        """
        net = prices.net(self.gained, self.counted)
        people = self.terms.people
        columns, apart = [], []
        for chosen, _ in given:
            member = chosen[:, None] == np.arange(1, net.shape[-1] + 1)
            columns.append(np.sum(net * member, axis=-1))
            apart.append(columns[-1] - net @ (people @ member))
        everyone = self.terms.denominator, self.terms.counted
        totals = self.terms.totals(*columns, *everyone, *apart)
        n = len(given)
        for j, (_, noise) in enumerate(given):
            totals.ways[:, j, j] += noise * totals.ways[:, n + 2 + j, n + 2 + j]
        place = np.eye(len(totals.value))
        each = [totals.per_person(place[j], *place[n : n + 2]) for j in range(n)]
        return each, totals.ratio(0, 1)


def _some(terms: RatioTerms, at: IntArray) -> RatioTerms:
    """Return the terms of some rows."""
    columns = {item.name: getattr(terms, item.name) for item in fields(terms)}
    arrays: dict[str, Any] = {
        name: column[at]
        for name, column in columns.items()
        if isinstance(column, np.ndarray)
    }
    return replace(terms, **arrays)


def learn_rule(
    model: Any,
    data: Any,
    *,
    max_depth: int = 2,
    value: float = 1.0,
    cost: float | Mapping[str, float] = 0.0,
    budget: float | None = None,
    share: float | None = None,
    features: Sequence[str] | None = None,
    level: float = 0.95,
    crossfit: CrossFit | Mapping[str, CrossFit] | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> TreeRule:
    """Learn a rule that people can read: a few conditions on a few columns say whom to treat.

    Parameters
    ----------
    model : fitted estimator
        `Uplift` or any other, or `ArmUplift` of several treatments. Its ranking is what the rule is
        held against.
    data : SeparateLabels or mapping
        The rows it was fitted to, or others, in memory.
    max_depth : int, default=2
        Most conditions that lead to a group, up to 4. To depth 2 the best of all trees is found;
        deeper ones go on from there.
    value : float, default=1.0
        What one unit of the outcome is worth; below 0 if less of it is better.
    cost : float or mapping of str to float, default=0.0
        What treating one person costs, in the same money; of several treatments one for all, or
        that of each.
    budget : float, optional
        Most that may be spent, per person in question, treated or not.
    share : float, optional
        Most that may be treated, as a share of all, instead of a budget.
    features : sequence of str, optional
        Columns that the rule may name; by default all.
    level : float, default=0.95
        Of the intervals.
    crossfit : CrossFit or mapping of str to CrossFit, optional
        That of the data, or of each treatment, if it is at hand. An `Uplift` or `ArmUplift` fitted
        to the data brings its own.
    n_jobs : int or None, default=None
        Threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of the folds, where a cross-fit has to be made.

    Returns
    -------
    TreeRule
        Print it, or use ``assign``. Costs six trees, and a cross-fit if there is none.

    Raises
    ------
    InputError
        A column is not in the tables, or a budget has no cost to be spent on.

    Notes
    -----
    The tree is fitted to doubly robust values of rows: what is predicted for them, by fits that
    have not seen them, and what outcomes and treatments of rows say beyond it, as far as groups of
    people show that to be no noise. What rules gain is measured for rules learnt without each fold,
    on that fold. A group holds at least 5 % of the people.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(2000, random_state=0)
    >>> rule = learn_rule(Uplift(random_state=0).fit(data), data, value=20.0, cost=1.0)
    >>> print(rule.sentences()[0])
    Treat people where ... of people).
    """
    critical_value(level)
    depth = check_count("max_depth", max_depth)
    if depth > DEEPEST:
        raise InputError(
            f"max_depth must be {DEEPEST} at most, got {depth}: deeper rules are hard to read, and "
            "the model's ranking is better than they are."
        )
    tables = as_data(data)
    if tables.is_streamed:
        raise InputError("learn_rule needs all rows in memory: leave out stream.")
    rng = check_random_state(random_state)
    treatments = tuple(tables.checked.arms[1:])
    if not treatments:
        plain = TREAT if tables.checked.dose is None else UNIT
        treatments = (OFFER if is_randomised({"": model}) else plain,)
    prices = _prices(treatments, value, cost, budget, share)
    known: list[CrossFit] = []
    if isinstance(crossfit, Mapping):
        known = [crossfit[name] for name in treatments]
    elif crossfit is not None:
        known = [crossfit]
    held, rows, scored = _rows(model, tables, treatments, known, features, n_jobs, rng)
    every = np.arange(len(rows.fold))
    leaves = rows.grow(every, rows.effect, prices, depth)
    given = np.zeros(len(every), dtype=np.int64)
    few = np.sort(rng.permutation(len(every))[:COMPARED_ROWS])
    compared, scores = [], []
    for j in np.unique(rows.fold).tolist():
        inside = rows.fold == j
        predicted = rows.without(j)
        learnt = rows.grow(np.flatnonzero(~inside), predicted, prices, depth)
        given[inside] = assigned(learnt, rows.X[inside])
        compared.append(assigned(learnt, rows.X[few]))
        scores.append(predicted[few])
    ranked = rows.one_by_one(rows.effect if scored is None else scored, prices)
    of_fits = np.stack(scores, axis=-1)  # (m, J, K)
    by_noise = (
        0.0 if scored is not None else max(map(ranking_noise, of_fits.swapaxes(0, 1)))
    )
    single = [(np.full(len(every), a), 0.0) for a in range(1, len(treatments) + 1)]
    gains, kept = rows.gains(
        prices,
        [(given, _noise(np.column_stack(compared))), (ranked, by_noise), *single],
    )
    named = held.features
    people = rows.terms.people
    number = assigned(leaves, rows.X)
    return TreeRule(
        leaves=tuple(_leaf(leaf, rows, named, treatments) for leaf in leaves),
        treatments=treatments,
        share=float(people @ (number > 0)),
        gain=gains[0],
        ranking=gains[1],
        everyone=max(gains[2:], key=lambda gain: gain.value),
        kept=kept if gains[1].interval(level)[0] > 0.0 else None,
        level=level,
        features=named,
    )


def _leaf(
    leaf: Leaf, rows: RuleRows, named: NamedFeatures, treatments: Sequence[str]
) -> RuleLeaf:
    """Say who is in a leaf, and what is predicted for them."""
    inside = rows.terms.people * leaf.holds(rows.X)
    share = float(inside.sum())
    mean = inside @ rows.effect / max(share, 1e-300)
    return RuleLeaf(
        named.in_words(leaf.bounds),
        treatments[leaf.treatment - 1] if leaf.treatment else "",
        share,
        float(mean[leaf.treatment - 1] if leaf.treatment else mean.max()),
        leaf.bounds,
    )


def _noise(compared: IntArray) -> float:
    """Return the share of noise in the rules without one fold each, of their assignments (m, K)."""
    each = [ranking_noise((compared == a) * 1.0) for a in np.unique(compared) if a]
    return max(each, default=0.0)


def _prices(
    treatments: Sequence[str],
    value: float,
    cost: float | Mapping[str, float],
    budget: float | None,
    share: float | None,
) -> Prices:
    """Check what treatments bring and cost."""
    worth = check_finite("value", value)
    if worth == 0.0:
        raise InputError("value must not be 0: then no treatment brings anything.")
    if isinstance(cost, Mapping):
        if {*cost} != {*treatments}:
            raise InputError(
                f"cost names {shown(list(cost))}, and the treatments are {shown(treatments)}. Give "
                "a number for each."
            )
        each = [
            check_not_negative(f"cost[{name!r}]", cost[name]) for name in treatments
        ]
    else:
        each = [check_not_negative("cost", cost)] * len(treatments)
    costs = np.array(each)
    if budget is not None and share is not None:
        raise InputError("give budget or share, not both.")
    if share is not None:
        most = check_share("share", share, zero_allowed=False)
        return Prices(worth, costs, np.ones(len(costs)), most)
    if budget is None:
        return Prices(worth, costs, np.zeros(len(costs)), np.inf)
    if not costs.all():
        raise InputError(
            "a budget is spent on costs: give cost, above 0 for every treatment, or say with share "
            "how many may be treated."
        )
    return Prices(worth, costs, costs, check_positive("budget", budget))


def _rows(
    model: Any,
    tables: SeparateLabels,
    treatments: Sequence[str],
    known: Sequence[CrossFit],
    features: Sequence[str] | None,
    n_jobs: int | None,
    rng: Rng,
) -> tuple[HeldOutTables, RuleRows, Array | None]:
    """Return the rows of all treatments, and the scores of a model that has not seen them."""
    models = getattr(model, "models_", None)
    models = dict.fromkeys(treatments, model) if models is None else models
    if {*models} != {*treatments}:
        raise InputError(
            f"the model is of {shown(list(models))}, and the tables are of {shown(treatments)}. "
            "Give rows in which the model's treatments were given."
        )
    own = was_fitted_to(model, tables)
    if own and not known:
        fitted = [getattr(models[name], "crossfit_", None) for name in treatments]
        known = [one for one in fitted if one is not None]
    is_known = len(known) == len(treatments)
    several = bool(tables.checked.arms)
    chance = not several and is_randomised({"": model})
    if several:
        if not is_known:
            known = list(cross_fit_arms(tables, n_jobs=n_jobs, rng=rng).values())
        views = arm_labels(tables, known).values()
        held = [HeldOutTables.of(view, None) for view in views]
    else:
        held = [HeldOutTables.of(tables, None, randomised=chance)]
        if not is_known:
            known = [held[0].cross_fit(n_jobs=n_jobs, rng=rng)]
    found = [
        one.evaluated(crossfit, n_jobs=n_jobs, rng=rng)
        for one, crossfit in zip(held, known, strict=True)
    ]
    reach = np.ones(len(found[0].cell))
    change = 0.0
    if own and not chance:  # as much as the average of the fit
        _, change = agreed_average(found[0], known[0])
    if chance:
        low, high = found[0].arms
        reach = found[0].policies[:, high] - found[0].policies[:, low]
        found = [found[0].offered((low, high))]
    numbers = [
        _numbers(one, crossfit) for one, crossfit in zip(held, known, strict=True)
    ]

    def without(j: int) -> Array:
        each = [
            _effect_without(j, crossfit, X)
            for crossfit, X in zip(known, numbers, strict=True)
        ]
        return np.asarray(reach[:, None] * np.column_stack(each))

    allowed = _allowed(held[0].features, features)
    X = np.where(allowed, found[0].X, 0.0)
    rows = RuleRows.of(found, X, without, change)
    if own:
        return held[0], rows, None
    scores = [
        one.computed(Asked({"": models[name]}, {}, in_pieces=False).columns)[:, 0]
        for one, name in zip(held, treatments, strict=True)
    ]
    return held[0], rows, np.column_stack(scores)


def _effect_without(j: int, crossfit: CrossFit, X: Array) -> Array:
    """Return the effect at rows, outcome units, by the fits without a fold."""
    models = crossfit.models
    fold = np.full(len(X), j)
    found = models(X, fold, fold % len(models.policies))
    return np.asarray(crossfit.rows.coding.scale * found.effect)


def _numbers(held: HeldOutTables, crossfit: CrossFit) -> Array:
    """Return the features of all rows as the models of a cross-fit take them."""
    if held.target_rows is None:
        return crossfit.rows.X
    people = held.target_rows[0]
    if crossfit.encode is not None and held.people is not None:
        people = crossfit.encode(held.people)
    return np.concatenate([crossfit.rows.X, people])


def _allowed(named: NamedFeatures, features: Sequence[str] | None) -> BoolArray:
    """Return which columns of numbers the rule may name."""
    columns = [feature.column for feature in named.columns]
    if features is None:
        return np.ones(len(columns), dtype=np.bool_)
    if isinstance(features, str) or not len(features):
        raise InputError("features must be a list of one column or more.")
    for name in features:
        if name not in columns:
            raise InputError(
                f"features names {name!r}, which is no feature of the tables; they are "
                f"{shown(list(dict.fromkeys(columns)))}{did_you_mean(name, columns)}"
            )
    return np.asarray(np.isin(columns, list(features)))
