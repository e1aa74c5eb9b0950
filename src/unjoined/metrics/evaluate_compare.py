"""Compare what several models are worth on the same rows of separate tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, Frame, IntArray, MatrixLike, RandomState
from unjoined.errors import InputError
from unjoined.metrics.estimate import (
    Estimate,
    ResultTable,
    Shown,
    Totals,
    as_frame,
    cells,
    critical_value,
    estimate_dict,
    new_axes,
    with_interval,
)
from unjoined.metrics.held_out import HeldOutTables, Rules, Scores
from unjoined.metrics.ranks import functionals
from unjoined.metrics.ratio import OVERLAP, evaluation_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more one model is worth than another, on the same rows.

    Attributes
    ----------
    first, second : str
        Names of the models; the first has the larger AUUC.
    auuc : Estimate
        Difference of the areas under the uplift curves, outcome units per person.
    rules : dict of str to Estimate
        Difference of the gains of each rule.
    """

    first: str
    second: str
    auuc: Estimate
    rules: dict[str, Estimate]

    def sentence(self, level: float) -> str:
        """Say whether the two can be told apart by the order they put people in."""
        low, _ = self.auuc.interval(level)
        found = f"AUUC {with_interval(self.auuc, level)}"
        if low > 0.0:
            return f"{self.first} orders people better than {self.second}: {found} more."
        return (
            f"{self.first} and {self.second} cannot be told apart by these rows: {found}, an "
            "interval that holds 0."
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Shown):
    """Models held against each other on the same rows. Printing it shows all of it.

    Attributes
    ----------
    auuc : dict of str to Estimate
        Area under the uplift curve of each model, the largest first, outcome units per person.
    rules : dict of str to dict of str to Estimate
        Gain of each rule by each model, per person over treating nobody.
    differences : tuple of Difference
        Of each pair of models. Intervals are of one difference each, not of all together.
    speaks_for : float
        Share of people the numbers speak for.
    left_out : str
        Who counts less or not at all, in words.
    level : float
        Level of the intervals that are shown.
    """

    auuc: dict[str, Estimate]
    rules: dict[str, dict[str, Estimate]]
    differences: tuple[Difference, ...]
    speaks_for: float
    left_out: str
    level: float

    def sentences(self) -> list[str]:
        """Return what was found in words."""
        lines = [each.sentence(self.level) for each in self.differences]
        spoken = f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}"
        return [*lines, spoken]

    def to_frame(self, library: str | None = None) -> Frame:
        """Return the differences as a data frame: which models, what, value, interval.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        rows = []
        for each in self.differences:
            for what, value in ({"auuc": each.auuc} | each.rules).items():
                pair = {"first": each.first, "second": each.second, "what": what}
                rows.append(pair | estimate_dict(value, self.level))
        return as_frame(rows, library)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""

        def said(named: dict[str, Estimate]) -> dict[str, Any]:
            return {name: estimate_dict(value, self.level) for name, value in named.items()}

        return {
            "level": self.level,
            "speaks_for": self.speaks_for,
            "left_out": self.left_out,
            "auuc": said(self.auuc),
            "rules": {name: said(values) for name, values in self.rules.items()},
            "differences": [
                {"first": d.first, "second": d.second, "sentence": d.sentence(self.level)}
                | said({"auuc": d.auuc})
                | {"rules": said(d.rules)}
                for d in self.differences
            ],
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the differences of the areas with their intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = ax or new_axes(1.2 + 0.5 * len(self.differences))
        for y, each in enumerate(self.differences):
            low, high = each.auuc.interval(self.level)
            apart = low > 0.0
            colour = "C0" if apart else "0.5"
            ax.plot([low, high], [y, y], color=colour, lw=2)
            ax.plot([each.auuc.value], [y], "o", color=colour, ms=6)
        names = [f"{each.first} less {each.second}" for each in self.differences]
        ax.set_yticks(range(len(names)), names, fontsize="small")
        ax.invert_yaxis()
        ax.margins(y=0.25)
        ax.axvline(0.0, color="0.3", lw=0.8)
        ax.set_xlabel(f"difference in AUUC, {self.level:.0%} interval")
        ax.set_title(f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def result_tables(self) -> list[ResultTable]:
        """Return worths and differences, as text."""
        interval = f"{self.level:.0%} interval"
        worth: list[tuple[str, ...]] = [
            (name, what, *cells(value, self.level))
            for name, area in self.auuc.items()
            for what, value in ({"auuc": area} | self.rules[name]).items()
        ]
        apart: list[tuple[str, ...]] = [
            (f"{d.first} less {d.second}", what, *cells(value, self.level))
            for d in self.differences
            for what, value in ({"auuc": d.auuc} | d.rules).items()
        ]
        return [
            ("What each is worth, per person", ("model", "what", "estimate", interval), worth),
            ("Differences on the same rows", ("models", "what", "estimate", interval), apart),
        ]


def compare_uplift(
    models: Mapping[str, Any],
    data: Mapping[str, Any],
    *,
    weight: str = OVERLAP,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Comparison:
    """Compare what several models are worth on rows that none of them has seen.

    Differences are paired: both models are evaluated by the same rows, policies and outcome
    models, so that most of the noise cancels.

    Parameters
    ----------
    models : mapping of str to model, function or array
        Two or more, by name; each as in `evaluate_uplift`.
    data, weight, target, rules, level, shift, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    Comparison
        Differences of the areas under the uplift curves and of the gains of the rules, and
        sentences that say which models cannot be told apart. Costs one cross-fitting of policies
        and outcomes, and a sort for each model.

    See Also
    --------
    unjoined.UpliftSearchCV : chooses by scores with less noise than the AUUC.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> data = problem.draw(1000, random_state=0)
    >>> truth = problem.uplift(data.X)
    >>> found = compare_uplift({"truth": truth, "opposite": -truth}, data, random_state=0)
    >>> print(found.sentences()[0][:41])
    truth orders people better than opposite:
    """
    critical_value(level)
    if not isinstance(models, Mapping) or len(models) < 2:
        raise InputError(
            "models must be a mapping of two names or more to models, such as "
            "{'linear': one, 'smooth': other}. Use evaluate_uplift for a single model."
        )
    tables = HeldOutTables.of(data, target)
    checked = tables.rules(rules)
    scores = {str(name): tables.scores(model) for name, model in models.items()}
    rows = evaluation_rows(
        tables.rows,
        target=tables.target_rows,
        shift=shift,
        n_jobs=n_jobs,
        rng=check_random_state(random_state),
        stacklevel=3,
    )
    return _compare(Scores(tables, rows, weight), scores, checked, level)


def compare_out_of_fold(
    scores: Mapping[str, Array], data: Mapping[str, Any], fold: IntArray, *, rng: Rng
) -> Comparison:
    """Compare scores of rows by fits without their folds (n,), within which rows are ranked."""
    tables = HeldOutTables.of(data, None)
    rows = evaluation_rows(tables.rows, fold=fold, rng=rng)
    return _compare(Scores(tables, rows, OVERLAP, fold), scores, tables.rules(None), 0.95)


def _compare(
    people: Scores,
    scores: Mapping[str, Array],
    rules: Mapping[str, tuple[Any, ...]],
    level: float,
) -> Comparison:
    what = ["auuc", *rules]
    totals = _all_totals(people, scores, rules)
    worth = {name: _ratios(totals, what, i * len(what)) for i, name in enumerate(scores)}
    names = sorted(scores, key=lambda name: -worth[name]["auuc"].value)
    at = {name: i for i, name in enumerate(scores)}
    differences = []
    for one, two in combinations(names, 2):
        found = _ratios(_apart(totals, len(what), at[one], at[two]), what, 0)
        differences.append(Difference(one, two, found.pop("auuc"), found))
    return Comparison(
        auuc={name: worth[name].pop("auuc") for name in names},
        rules={name: worth[name] for name in names},
        differences=tuple(differences),
        speaks_for=people.terms.speaks_for,
        left_out=people.left_out(),
        level=level,
    )


def _all_totals(
    people: Scores, scores: Mapping[str, Array], rules: Mapping[str, tuple[Any, ...]]
) -> Totals:
    """Return the area and the rules of each score, one score after the other, then D."""
    columns = []
    for score in scores.values():
        scored = people.scored(score)
        named = functionals(scored, rules)
        columns += [named[name] for name in ("auuc", *rules)]
    return scored.totals(columns)


def _ratios(totals: Totals, what: Sequence[str], start: int) -> dict[str, Estimate]:
    """Return some totals over the last one."""
    last = len(totals.value) - 1
    return {name: totals.ratio(start + j, last) for j, name in enumerate(what)}


def _apart(totals: Totals, n: int, one: int, two: int) -> Totals:
    """Return the differences of two models' totals, and the denominator."""
    weights = np.zeros((n + 1, len(totals.value)))
    weights[-1, -1] = 1.0
    for j in range(n):
        weights[j, one * n + j] += 1.0
        weights[j, two * n + j] -= 1.0
    return totals.combined(weights)
