"""Evaluate and compare predicted uplift on separate tables, with intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_bool,
    check_count,
    check_option,
    check_vector,
)
from unjoined.data.columns import take_rows
from unjoined.data.rows import deal_rows
from unjoined.errors import InputError
from unjoined.evaluate.checks import warn_of_tables
from unjoined.evaluate.estimate import (
    Estimate,
    ResultTable,
    Shown,
    bare_axes,
    critical_value,
    draw_intervals,
    estimate_dict,
)
from unjoined.evaluate.pieces import RowsInPieces, Scorer, Source
from unjoined.evaluate.placebo import control_placebo, earlier_rows, with_earlier
from unjoined.evaluate.ranks import EvaluatedTables, Gain, Scored, Sheet
from unjoined.evaluate.sensitivity import EVERYONE, Claim, Sensitivity
from unjoined.evaluate.strength import GainByScore, ranking_noise
from unjoined.evaluate.tables import (
    Asked,
    HeldOutTables,
    RowsInMemory,
    Rules,
    is_source,
    ranked_by,
    warn_of_own_rows,
    was_fitted_to,
)
from unjoined.evaluate.terms import N_FOLDS, relative_effect
from unjoined.model.crossfit import CrossFit
from unjoined.model.regressors import check_folds
from unjoined.words import (
    UNBOUNDED,
    brief,
    cells,
    compliers_in_words,
    in_brackets,
    relative_in_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = np.arange(1, 21) / 20.0  # of the curve
AT_K = (0.1, 0.2, 0.3, 0.5)
N_BINS = 10
COMPARED_ROWS = 20_000  # at most, at which fits without one fold each are compared
Same = Sequence[Sequence[str]] | None  # populations that have the same base
ROUNDING = 1e-7  # standard errors: less is no difference


@dataclass(frozen=True, slots=True, eq=False)
class CurveBand:
    """Gain per person of treating the best share of people, with a band for the whole curve.

    Attributes
    ----------
    share : array of shape (21,)
        Share treated, 0 to 1.
    value : array of shape (21,)
        Gain per person over treating nobody, outcome units.
    low, high : array of shape (21,)
        The uniform band: the whole true curve lies inside in that share of repeated draws
        which is the level of the evaluation. Infinite where the tables cannot bound it.
    """

    share: Array
    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """People whose score lies above ``low`` (the first bin: from it on) and is at most ``high``.

    Attributes
    ----------
    low, high : float
        Edges, in units of the score. They are taken as given: uplift is that of the people
        between these very edges.
    share : float
        Share of the people the evaluation speaks for.
    predicted : float
        Their mean score.
    uplift : Estimate
        Their average uplift, outcome units.
    """

    low: float
    high: float
    share: float
    predicted: float
    uplift: Estimate


@dataclass(frozen=True, slots=True)
class Calibration:
    """Whether predicted uplift can be taken at its word.

    Attributes
    ----------
    slope : Estimate or None
        Of the line of uplift on the score: 1 if predictions are right, below 1 if they are too
        spread out, 0 if they say nothing. None if the score is the same for everyone.
    intercept : Estimate or None
        Of that line, outcome units: 0 if predictions are right.
    p_value : float
        Of the hypothesis that the predictions are right on average in every bin.
    """

    slope: Estimate | None
    intercept: Estimate | None
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Shown):
    """What a score is worth, from separate tables. Printing it shows all of it.

    Made by `evaluate_uplift` and `cross_evaluate`. All numbers are for the people the evaluation
    speaks for, in outcome units; gains are per person, treated or not.

    Attributes
    ----------
    average : Estimate
        Average uplift, which is the gain of treating everyone.
    auuc, qini : Estimate
        Area under the uplift curve, and between the curve and that of a random order.
    rules : dict of str to Estimate
        Gain of each rule over treating nobody.
    curve : CurveBand
        The uplift curve at 20 shares, with a uniform band.
    at_k : dict of float to Estimate
        Average uplift of the best share of people, per person treated.
    bins : tuple of ScoreBin
        Uplift by deciles of the score, the lowest first.
    calibration : Calibration
        Line of uplift on the score, and a joint test over the bins.
    speaks_for : float
        Share of people the numbers speak for.
    left_out : str
        Who counts less or not at all, in words.
    plain : dict of str to Estimate
        The same quantities by the plain doubly robust score, for comparison. It needs policies
        that differ clearly; its intervals are too short where they do not.
    level : float
        Level of the intervals that are shown and of the band.
    how : str
        Which rows the score was evaluated on.
    n_rows : int
        Labelled rows.
    relative : Estimate or None
        Average uplift over the mean outcome that the people spoken for would have untreated: 0.5
        is half as much again. None if an outcome is negative or that mean cannot be told from 0.
        For the people of a list give them as ``target``.
    sensitivity : Sensitivity or None
        By how much equal people may differ between populations, for other reasons than treatment,
        before the average and the rules no longer gain. None where chance decided on populations.
    compliers, complier_share : Estimate or None
        Average uplift of those who take an offer up because of it, and their share of people, if
        chance decided who was made it. All gains are those of making the offer then. Of tables that
        are read in pieces they are those of a sample.
    """

    average: Estimate
    auuc: Estimate
    qini: Estimate
    rules: dict[str, Estimate]
    curve: CurveBand
    at_k: dict[float, Estimate]
    bins: tuple[ScoreBin, ...]
    calibration: Calibration
    speaks_for: float
    left_out: str
    plain: dict[str, Estimate]
    level: float
    sensitivity: Sensitivity | None
    how: str = "held-out rows"
    n_rows: int = 0
    relative: Estimate | None = None
    compliers: Estimate | None = None
    complier_share: Estimate | None = None

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return all estimates by name: value, standard error, interval."""
        named = {"average": self.average, "auuc": self.auuc, "qini": self.qini}
        if self.relative is not None:
            named["relative"] = self.relative
        named |= {f"rule: {name}": value for name, value in self.rules.items()}
        named |= {f"uplift at {k:.0%}": value for k, value in self.at_k.items()}
        named |= {f"bin {b}": people.uplift for b, people in enumerate(self.bins, 1)}
        for name in ("slope", "intercept"):
            if (value := getattr(self.calibration, name)) is not None:
                named[f"calibration {name}"] = value
        return [
            {"what": name} | estimate_dict(e, self.level) for name, e in named.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        turns = self.sensitivity
        return plain | {
            "rows": plain.pop("n_rows"),
            "sensitivity": turns if turns is None else turns.to_dict(),
        }

    def plot(self, ax: Axes | None = None, *, what: str = "curve") -> Axes:
        """Draw the uplift curve with its band, or uplift against what was predicted.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        what : {"curve", "calibration"}, default="curve"
            The uplift curve, or the bins of the score.

        Returns
        -------
        matplotlib Axes
        """
        check_option("what", what, ("curve", "calibration"))
        ax = bare_axes(ax, 4.2)
        ax.set_title(
            f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium"
        )
        return draw_curve(self, ax) if what == "curve" else draw_bins(self, ax)

    def sentences(self) -> list[str]:
        """Return what was found in words, the average first."""
        relative, turns = self.relative, self.sensitivity
        ranking = [] if self.calibration.slope is None else [_ranking(self)]
        source = f", from {self.how}; {self.level:.0%} intervals."
        if self.compliers is not None:
            return [
                f"Gain of making the offer to everybody: {in_brackets(self.average, self.level)} "
                f"a person{source}",
                compliers_in_words(self.compliers, self.complier_share),
                *ranking,
                "All gains are of the offer. The score is the effect on those who take it up "
                "because of it, so that it is not compared with them in size.",
            ]
        return [
            f"Average uplift {in_brackets(self.average, self.level)}{source}",
            *(
                []
                if relative is None
                else [f"It is {relative_in_words(relative, self.level)}."]
            ),
            f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}",
            *([] if turns is None else [turns.in_words(turns.average)]),
            *([] if turns is None else turns.benchmark_words()),
            *([] if turns is None else turns.beside_words()),
            *ranking,
            *_calibration(self),
        ]

    def result_tables(self) -> list[ResultTable]:
        """Return the tables that are shown, as text."""
        interval = f"{self.level:.0%} interval"

        def both(name: str, value: Estimate, plain: Estimate) -> tuple[str, ...]:
            return name, *cells(value, self.level), cells(plain, self.level)[1]

        gains = [both("everyone", self.average, self.plain["average"])]
        gains += [
            both(name, value, self.plain[name]) for name, value in self.rules.items()
        ]
        areas = [
            both(name, getattr(self, name), self.plain[name])
            for name in ("auuc", "qini")
        ]
        best = [
            (f"best {k:.0%}", *cells(value, self.level))
            for k, value in self.at_k.items()
        ]
        bins = [
            (
                brief(b.low),
                brief(b.high),
                f"{b.share:.0%}",
                brief(b.predicted),
                *cells(b.uplift, self.level),
            )
            for b in self.bins
        ]
        head = ("estimate", interval, "plain doubly robust")
        gain, treat, uplift = "treating nobody", "treat", "uplift"
        if self.compliers is not None:
            gain, treat, uplift = "offering to nobody", "offer to", "gain by the offer"
        columns = ("score from", "to", "people", "predicted", uplift, interval)
        return [
            (f"Gain per person over {gain}", (treat, *head), gains),
            *(
                []
                if self.sensitivity is None
                else self.sensitivity.claims_table(
                    with_gains=self.sensitivity.average.cost > 0.0
                )
            ),
            *([] if self.sensitivity is None else self.sensitivity.beside_tables()),
            ("How well the score orders people", ("area", *head), areas),
            (
                f"Average {uplift} of those with the best scores",
                ("who", *head[:2]),
                best,
            ),
            (f"{uplift.capitalize()} by score", columns, bins),
        ]


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
        more = f"AUUC {in_brackets(self.auuc, level)}"
        if low > 0.0:
            return f"{self.first} orders people better than {self.second}: {more} more."
        if self.auuc.value == self.auuc.standard_error == 0.0:
            return f"{self.first} and {self.second} order people alike."
        return (
            f"{self.first} and {self.second} cannot be told apart by these rows: {more}, an "
            "interval that holds 0."
        )


@dataclass(frozen=True, eq=False, repr=False)
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
        lines = [pair.sentence(self.level) for pair in self.differences]
        lines.append(
            f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}"
        )
        return lines

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the differences: which models, what, value, interval."""
        return [
            {"first": pair.first, "second": pair.second, "what": what}
            | estimate_dict(value, self.level)
            for pair in self.differences
            for what, value in ({"auuc": pair.auuc} | pair.rules).items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        for said, pair in zip(plain["differences"], self.differences, strict=True):
            said["sentence"] = pair.sentence(self.level)
        return plain

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
        named = [
            (f"{pair.first} less {pair.second}", pair.auuc) for pair in self.differences
        ]
        ax = draw_intervals(named, self.level, ax)
        ax.set_xlabel(f"difference in AUUC, {self.level:.0%} interval")
        ax.set_title(
            f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium"
        )
        return ax

    def result_tables(self) -> list[ResultTable]:
        """Return worths and differences, as text."""
        interval = f"{self.level:.0%} interval"
        worth = [
            (name, what, *cells(value, self.level))
            for name, area in self.auuc.items()
            for what, value in ({"auuc": area} | self.rules[name]).items()
        ]
        apart = [
            (f"{d.first} less {d.second}", what, *cells(value, self.level))
            for d in self.differences
            for what, value in ({"auuc": d.auuc} | d.rules).items()
        ]
        return [
            (
                "What each is worth, per person",
                ("model", "what", "estimate", interval),
                worth,
            ),
            (
                "Differences on the same rows",
                ("models", "what", "estimate", interval),
                apart,
            ),
        ]


def _ranking(evaluation: Evaluation) -> str:
    """Say whether the order by score is better than a random one."""
    low, high = evaluation.qini.interval(evaluation.level)
    if low > 0.0:
        return "The score orders people better than chance: its Qini is above 0."
    if high < 0.0:
        return "The score orders people worse than chance: its Qini is below 0."
    return (
        "Whether the score orders people better than chance cannot be told from these rows: the "
        "interval of its Qini holds 0."
    )


def _calibration(evaluation: Evaluation) -> list[str]:
    """Say whether predictions can be taken at their word."""
    line, level = evaluation.calibration, evaluation.level
    if line.slope is None:
        return ["The score is the same for everyone, so that it orders nobody."]
    verdict = "contradict" if line.p_value < 1.0 - level else "do not contradict"
    p = "below 0.001" if line.p_value < 0.001 else f"{line.p_value:.2g}"
    return [
        f"Line of uplift on the score: slope {in_brackets(line.slope, level)}, 1 if the score is "
        f"the uplift. The rows {verdict} the predictions (joint test over "
        f"{len(evaluation.bins)} bins, p {'=' if p[0] != 'b' else 'is'} {p})."
    ]


def draw_curve(evaluation: Evaluation, ax: Axes) -> Axes:
    """Draw the uplift curve with its uniform band and the line of a random order."""
    curve = evaluation.curve
    low, high = (np.where(np.isfinite(a), a, np.nan) for a in (curve.low, curve.high))
    label: str | None = f"{evaluation.level:.0%} band for the whole curve"
    if np.isnan(low[1:]).all() or np.isnan(high[1:]).all():
        label = f"no {evaluation.level:.0%} band: {UNBOUNDED}"
    ax.fill_between(curve.share, low, high, alpha=0.18, lw=0, color="C0", label=label)
    ax.plot(curve.share, curve.value, color="C0", lw=1.8, label="by score, best first")
    ends = [0.0, curve.value[-1]]
    ax.plot([0.0, 1.0], ends, color="0.55", ls="--", lw=1.2, label="random order")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlim(0.0, 1.0)
    ax.set_xticks(
        np.linspace(0.0, 1.0, 6), [f"{p:.0%}" for p in np.linspace(0.0, 1.0, 6)]
    )
    ax.set_xlabel("share of people treated, best first")
    ax.set_ylabel("gain per person over treating nobody")
    ax.legend(frameon=False, fontsize="small")
    return ax


def draw_bins(evaluation: Evaluation, ax: Axes) -> Axes:
    """Draw uplift with intervals against the mean prediction of each bin."""
    level = evaluation.level
    predicted = np.array([b.predicted for b in evaluation.bins])
    value = np.array([b.uplift.value for b in evaluation.bins])
    ends = np.array([b.uplift.interval(level) for b in evaluation.bins])
    bounded = np.isfinite(ends).all(axis=1)
    error = np.abs(ends - value[:, None]).T[:, bounded]
    if bounded.any():
        ax.errorbar(
            predicted[bounded],
            value[bounded],
            error,
            fmt="o",
            color="C0",
            capsize=2.5,
            ms=5,
            label=f"uplift of a bin, {level:.0%} interval",
        )
    if not bounded.all():
        rest = value[~bounded]
        ax.plot(
            predicted[~bounded],
            rest,
            "o",
            mfc="none",
            color="C0",
            label="unbounded interval",
        )
    ax.axline(
        (predicted[0], predicted[0]),
        slope=1.0,
        color="0.55",
        ls="--",
        lw=1.2,
        label="as predicted",
    )
    line = evaluation.calibration
    if line.slope is not None and line.intercept is not None:
        fitted = line.intercept.value + line.slope.value * predicted
        ax.plot(predicted, fitted, color="C1", lw=1.4, label="line through the people")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlabel("predicted uplift, mean of the bin")
    ax.set_ylabel("uplift of the bin")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.3 * (high - low))  # room for the legend above the bars
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def evaluate_uplift(
    model_or_scores: Any,
    data: Any,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    same: Same = None,
    crossfit: CrossFit | None = None,
    randomised: bool | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    r"""Say what predicted uplift is worth, from separate tables, with an interval on every number.

    The model must not have been fitted to these rows: keep some aside, or use `cross_evaluate`.

    Parameters
    ----------
    model_or_scores : fitted model, function or array of shape (n,)
        A model with ``predict``, a function of the features, or the score of each row of the
        data: predicted uplift, or anything that orders people. Models and functions get the
        features as they are in the data.
    data : SeparateLabels or mapping
        ``X``, ``y``, ``treatment``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more; data frames may hold text, dates and missing values. If
        streamed, they are gone through in pieces; see Notes.
    target : array or data frame of shape (m, d), optional
        The people the answer is for. Default: rows without a label if there are any, else the
        people in the tables.
    rules : mapping of str to rule, optional
        Whom to treat: ``("share", 0.3)``, ``("threshold", 0.02)`` in units of the score,
        ``("budget", 0.5, cost)`` with the amount per person and the cost of treating (a number, an
        array or a function of the features; 1 by default), a function of the features or an
        array with the probability of treatment of each row. Default: the best 10 % and 30 %, and
        all whose score is not below 0.
    level : float, default=0.95
        Level of the band and of the intervals that are shown.
    shift : {None, "classifier"}, default=None
        How tables are weighted to the people in question, as in `MinMaxUplift`. None takes all
        tables for the same people; small differences then do little harm.
    same : sequence of sequences of str, optional
        Populations that have the same base, such as ``[["north", "south"], ["east", "west"]]``,
        if people of others may respond unalike: each is compared with those of its own group
        alone. Default: all have the same.
    crossfit : CrossFit, optional
        That of the same rows in memory, if it is at hand: nothing is cross-fitted then.
    randomised : bool, optional
        Whether chance decided who is in which population. Gains are those of making the offer
        then. By default as the model was fitted.
    n_jobs : int or None, default=None
        Threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed for folds and for the width of the band.

    Returns
    -------
    Evaluation
        Print it, or read ``average``, ``rules``, ``curve``, ``auuc``, ``qini``, ``bins``.

    Raises
    ------
    InputError
        Scores, rules or tables do not fit together, or a table has fewer rows than folds.

    See Also
    --------
    cross_evaluate : the same without rows kept aside.
    compare_uplift : differences of several models on the same rows.
    diagnose : whether the tables identify uplift at all.

    Notes
    -----
    Every number is a ratio of two sums over the rows, with Fieller's interval, which holds
    however little the policies differ; it may be unbounded. Costs the cross-fitting of policies
    and outcomes, a second or two for 20,000 rows, and a sort of the scores.

    Of a source, a first look says what the columns hold and a second pass keeps a sample, which
    settles policies, outcome models and a thousand bins of the score. A third counts the people in
    each bin and a fourth adds up all rows, on Dask where the partitions are; scores within a bin
    count as tied. Memory is the sample and a chunk. How rows are cut changes nothing but rounding;
    their order counts as a seed does. Scores and rules are then models and functions, scores have
    seven digits, and ``shift`` is not to be had.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> model = WeightedUplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    >>> found = evaluate_uplift(model, problem.draw(1000, random_state=1), random_state=0)
    >>> low, high = found.average.interval(0.95)
    >>> bool(low < 0.07 < high)  # the truth
    True
    """
    critical_value(level)
    rng = check_random_state(random_state)
    warn_of_own_rows([model_or_scores], data, stacklevel=2)
    options = target, shift, n_jobs, rng, crossfit, same
    models = {"": model_or_scores}
    chance = is_randomised(models, randomised)
    asked, tables = prepare(models, data, rules, *options, randomised=chance)
    return _evaluate(asked, tables, level, rng, randomised=chance)


def cross_evaluate(
    estimator: Any,
    data: Mapping[str, Any],
    n_folds: int = N_FOLDS,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    same: Same = None,
    crossfit: CrossFit | None = None,
    randomised: bool | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    """Evaluate an estimator on the rows it is fitted to, each by a fit that has not seen it.

    The estimator, the policies and the outcome models are all fitted without each fold in turn.
    `Uplift` does that by itself, so that one fit of it is enough. Rows are ranked within their
    fold, since scores of different fits may not compare.

    Parameters
    ----------
    estimator : estimator
        Not fitted, or fitted to anything: a copy of it is fitted ``n_folds`` times, or once if it
        is an `Uplift` and there are five folds.
    data : SeparateLabels or mapping
        As in `evaluate_uplift`, in memory.
    n_folds : int, default=5
        At least 2, and at most the rows of the smallest table.
    crossfit : CrossFit, optional
        That of the data, if it is at hand. Of an `Uplift`, that of its fit to the data.
    target, rules, level, shift, same, randomised, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    Evaluation
        Of fits to all folds but one, which are a little worse than a fit to all rows. Costs
        ``n_folds`` fits more than `evaluate_uplift`.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> found = cross_evaluate(WeightedUplift(random_state=0), data, random_state=0)
    >>> found.how
    'rows left out of each fit, 5 folds'
    """
    critical_value(level)
    if isinstance(estimator, type):
        name = estimator.__name__
        raise InputError(
            f"estimator must be an object, not a class. Write {name}() for {name}."
        )
    chance = is_randomised({"": estimator}, randomised)
    held = HeldOutTables.of(data, target, randomised=chance, same=same)
    rng = check_random_state(random_state)
    check_folds(held.rows, n_folds, (OUTCOME, TREATMENT))
    others = Asked({"": _no_scores}, rules, in_pieces=False)
    columns = held.computed(others.columns)
    own = n_folds == N_FOLDS and getattr(estimator, "keeps_crossfit", False)
    if own and crossfit is None:
        crossfit = clone(estimator).fit(held.data).crossfit_
    rows = held.evaluated(crossfit, shift=shift, n_jobs=n_jobs, rng=rng, stacklevel=2)
    few = np.sort(rng.permutation(len(held.rows))[:COMPARED_ROWS])
    if own and crossfit is not None:
        ranked = rows.offered(rows.arms) if chance else rows
        columns[:, 0], fold = ranked.effect, rows.fold
        compared = crossfit.models.scores(crossfit.rows.X[few])
    else:
        fold = _deal(held, len(rows.cell), n_folds, rng)
        columns[:, 0], compared = out_of_fold_scores(estimator, held, fold, few)
    how = f"rows left out of each fit, {n_folds} folds"
    tables = RowsInMemory(held, rows, columns, fold, how)
    noise = ranking_noise(compared)
    return _evaluate(others, tables, level, rng, noise, randomised=chance)


def sensitivity(
    model: Any,
    data: Any,
    *,
    rules: Rules | None = None,
    cost: float = 0.0,
    delta: float | None = None,
    before: Any = None,
    controls: Mapping[str, ArrayLike] | None = None,
    same: Same = None,
    target: MatrixLike | None = None,
    level: float = 0.95,
    crossfit: CrossFit | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Sensitivity:
    r"""Say by how much equal people may respond unalike before decisions turn.

    With two populations no table shows whether people with the same features respond alike in
    both. This says how wrong it may be: the largest difference, for other reasons than treatment,
    at which a decision still gains, and what difference a hidden trait as telling as each column
    would make.

    Parameters
    ----------
    model : fitted model, function, array of shape (n,) or None
        As in `evaluate_uplift`. One that was fitted to these very rows is evaluated by
        `cross_evaluate`. None: the average alone.
    data : SeparateLabels or mapping
        As in `evaluate_uplift`.
    rules : mapping of str to rule, optional
        As in `evaluate_uplift`. A function that is 1 for some people makes a claim about this
        group.
    cost : float, default=0.0
        Of treating a person, outcome units: what a rule gains has to exceed it.
    delta : float, optional
        Largest difference of equal people that intervals are to allow for, outcome units.
    before : mapping, optional
        ``X``, ``y`` and ``population``: the outcome at an earlier time when nobody was treated,
        of the same populations. It says how equal people differed then, and claims are told with
        that difference taken off as well. Rows are in memory.
    controls : mapping of str to array of shape (n,), optional
        Other outcomes that treatment cannot have changed, by name, for each row of the data that
        has an outcome. They say by how many spreads of an outcome equal people differ.
    same, target, level, crossfit, n_jobs, random_state
        As in `evaluate_uplift`. A claim is sure if its interval of this level is.

    Returns
    -------
    Sensitivity
        Print it, or read ``claims``, ``benchmarks``. Costs an evaluation, whose ``sensitivity`` it
        is, a fit of the earlier means, and a cross-fit for each control; ``at`` changes costs and
        delta for nothing.

    Raises
    ------
    InputError
        Cost or delta is negative, or as `evaluate_uplift`.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(1000, random_state=0)
    >>> model = Uplift(random_state=0).fit(data)
    >>> found = sensitivity(model, data, rules={"best half": ("share", 0.5)}, cost=0.02)
    >>> best = found.claims[1]
    >>> best.name, best.breakdown() > best.breakdown(0.8) > 0.0
    ('best half', True)
    """
    if model is None:
        model, rules = _no_scores, {}
    is_own = was_fitted_to(model, data)
    if is_own:
        crossfit = crossfit or getattr(model, "crossfit_", None)
    beside = before is not None or bool(controls)
    rng = check_random_state(random_state)
    if beside and crossfit is None:
        crossfit = HeldOutTables.of(data, None).cross_fit(n_jobs=n_jobs, rng=rng)
    evaluate = cross_evaluate if is_own else evaluate_uplift
    found = evaluate(
        model,
        data,
        rules=rules,
        same=same,
        target=target,
        level=level,
        crossfit=crossfit,
        n_jobs=n_jobs,
        random_state=random_state,
    ).sensitivity
    if found is None:
        raise InputError(
            "chance decided who is in which population, so that equal people of two populations "
            "are alike, and no hidden difference is to be feared."
        )
    if beside and crossfit is not None:
        held = HeldOutTables.of(data, target, same=same)
        rows = held.evaluated(crossfit, n_jobs=n_jobs, rng=rng)
        options: dict[str, Any] = {"n_jobs": n_jobs, "rng": rng}
        if before is not None:
            earlier = earlier_rows(before, held, rows, crossfit, **options)
            asked = Asked({"": model}, rules, in_pieces=False)
            columns = held.computed(asked.columns)
            if is_own:
                columns[:, 0] = rows.effect
            found = with_earlier(found, asked, columns, rows, earlier)
        placebos = tuple(
            control_placebo(name, y, held.data, found.sigma, level=level, **options)
            for name, y in (controls or {}).items()
        )
        found = replace(found, placebos=found.placebos + placebos)
    return found.at(cost=cost, delta=delta)


def is_randomised(models: Mapping[str, Any], given: bool | None = None) -> bool:
    """Tell whether chance decided on populations: as was said, or as models were fitted."""
    if given is not None:
        return check_bool("randomised", given)
    return any(getattr(model, "randomised", False) for model in models.values())


def _no_scores(X: MatrixLike) -> Array:
    return np.zeros(len(X))


def _deal(tables: HeldOutTables, n: int, n_folds: int, rng: Rng) -> IntArray:
    """Return the folds of labelled rows, and of the people in question behind them, n in all."""
    fold = tables.rows.deal(n_folds, rng)
    return np.concatenate([fold, deal_rows(n - len(fold), n_folds, rng)])


def out_of_fold_scores(
    estimator: Any, tables: HeldOutTables, fold: IntArray, few: IntArray
) -> tuple[Array, Array]:
    """Return the score of each row by a fit without the row's fold, those of the target last.

    Also return the scores of some labelled rows, ``few``, by all of the fits.
    """
    data = tables.data
    at = tables.used
    n = len(at)
    people = tables.people
    score = np.empty(len(fold))
    compared = np.empty((len(few), int(fold.max()) + 1))
    for j in range(compared.shape[1]):
        train = np.ones(data.n_rows, dtype=np.bool_)
        train[at[fold[:n] == j]] = False
        scores = ranked_by(clone(estimator).fit(**data.take(train)))
        inside = np.flatnonzero(fold[:n] == j)
        score[inside] = scores(take_rows(data.X, at[inside]))
        asked = np.flatnonzero(fold[n:] == j)
        if people is not None and len(asked):
            score[n + asked] = scores(take_rows(people, asked))
        compared[:, j] = scores(take_rows(data.X, at[few]))
    return check_vector("the model's predictions", score), compared


def compare_uplift(
    models: Mapping[str, Any],
    data: Any,
    *,
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
    data, target, rules, level, shift, n_jobs, random_state
        As in `evaluate_uplift`; sources are gone through in pieces.

    Returns
    -------
    Comparison
        Differences of the areas under the uplift curves and of the gains of the rules, and
        sentences that say which models cannot be told apart. Costs one cross-fitting of policies
        and outcomes, and a sort for each model.

    See Also
    --------
    uplift_scorer : scores with less noise than the AUUC, to choose by.

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
    warn_of_own_rows(models.values(), data, stacklevel=2)
    rng = check_random_state(random_state)
    options = target, shift, n_jobs, rng
    chance = is_randomised(models)
    asked, tables = prepare(models, data, rules, *options, randomised=chance)
    if chance:
        tables.become_offers()
    return _compare(asked, tables, level)


def record_gain(
    model: Any,
    data: Mapping[str, Any],
    *,
    n_folds: int = N_FOLDS,
    crossfit: CrossFit | None = None,
    random_state: RandomState = None,
) -> GainByScore:
    """Measure what lists by a fitted model gain, and keep it with the model as ``gain_``.

    `Uplift` has it from its fit. Any other estimator is fitted again
    without each fold, so that people are ranked by fits that have not seen their labels.

    Parameters
    ----------
    model : estimator
        Fitted to ``data``. It gets the attribute ``gain_``; a clone of it is fitted.
    data : SeparateLabels or mapping
        The rows it was fitted to.
    n_folds : int, default=5
        Folds, dealt table by table.
    crossfit : CrossFit, optional
        That of the data, if it is at hand: policies and outcome models are not fitted then.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Returns
    -------
    GainByScore
        Costs ``n_folds`` fits of the estimator, and those of policies and outcome models.

    Raises
    ------
    InputError
        There are fewer rows in a table than folds, or fewer than two folds.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = WeightedUplift(basis="linear").fit(data)
    >>> record_gain(model, data, random_state=0)
    GainByScore(10 bins, speaks for ... of people)
    """
    check_is_fitted(model)
    if check_count("n_folds", n_folds) < 2:
        raise InputError(f"n_folds must be 2 or above, got {n_folds}.")
    rng = check_random_state(random_state)
    tables = HeldOutTables.of(data, None)
    check_folds(tables.rows, n_folds, (OUTCOME, TREATMENT))
    evaluation = tables.evaluated(crossfit, rng=rng)
    fold = _deal(tables, len(evaluation.cell), n_folds, rng)
    few = np.sort(rng.permutation(len(tables.rows))[:COMPARED_ROWS])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the fit to all rows has said what there is to say
        score, compared = out_of_fold_scores(model, tables, fold, few)
        predicted = ranked_by(model)(take_rows(tables.data.X, tables.used))
    noise = ranking_noise(compared)
    gain = GainByScore.of_rows(
        evaluation, score, predicted, tables.rows.people_weight, noise
    )
    model.gain_ = gain
    return gain


def prepare(
    models: Mapping[str, Any],
    data: Any,
    rules: Rules | None,
    target: MatrixLike | None,
    shift: Any,
    n_jobs: int | None,
    rng: Rng,
    crossfit: CrossFit | None = None,
    same: Same = None,
    *,
    randomised: bool = False,
) -> tuple[Asked, EvaluatedTables]:
    """Return what is asked, and the tables with their cross-fitted nuisances."""
    in_pieces = is_source(data)
    asked = Asked(models, rules, in_pieces=in_pieces)
    if not in_pieces:
        held = HeldOutTables.of(data, target, randomised=randomised, same=same)
        warn_of_tables(held.rows, stacklevel=3)
        columns = held.computed(asked.columns)
        rows = held.evaluated(
            crossfit, shift=shift, n_jobs=n_jobs, rng=rng, stacklevel=3
        )
        return asked, RowsInMemory(held, rows, columns)
    if same is not None:
        raise InputError(
            "same needs all rows in memory. Leave it out for tables that are read in pieces."
        )
    if shift is not None:
        raise InputError(
            "shift needs all rows in memory. Leave it out for tables that are read in pieces, or "
            "read them with SeparateLabels."
        )
    source = Source.look_through(data, Scorer(tuple(asked.columns)))
    return asked, RowsInPieces(source, target, n_jobs, rng)


def _evaluate(
    asked: Asked,
    tables: EvaluatedTables,
    level: float,
    rng: Rng,
    noise: float = 0.0,
    *,
    randomised: bool = False,
) -> Evaluation:
    """Return all that is said of a score; ``noise`` is its share in the ranks of several fits."""
    compliers = share = None
    if randomised:
        compliers, share = tables.sample.compliers()
        tables.become_offers()
    scored = tables.scored(asked.orders, asked.edges())
    sheet = Sheet()
    gains = asked.gains(0, scored, sheet, plain=True, swayed=True)
    appraisal = Appraisal(scored[0], sheet, gains)
    least = tables.add(sheet, scored).least_variance()
    if noise > 0.0:
        appraisal.allow_for(noise)
    ratios, plain = (appraisal.gains(plain=plain) for plain in (False, True))
    curve, points = appraisal.curve(level, rng)
    bins, p_value = appraisal.bins(least)
    average, auuc, qini = (ratios.pop(name) for name in ("average", "auuc", "qini"))
    # Of an offer the base is that of people without it, some of whom are treated.
    has_base = tables.sample.has_base and not randomised
    relative = appraisal.relative() if has_base else None
    return Evaluation(
        average=average,
        auuc=auuc,
        qini=qini,
        rules=ratios,
        curve=curve,
        at_k={k: points[k].times(1.0 / k) for k in AT_K},
        bins=bins,
        calibration=appraisal.calibration(average, p_value),
        speaks_for=sheet.speaks_for,
        left_out=tables.left_out(),
        plain=plain,
        level=level,
        sensitivity=None
        if randomised  # which makes people alike
        else tables.sensitivity(appraisal.claims(average, ratios), level),
        how=tables.how,
        n_rows=tables.n_rows,
        relative=relative,
        compliers=compliers,
        complier_share=share,
    )


class Appraisal:
    """All that is asked of one score, and what the totals of a sheet say of it."""

    def __init__(self, scored: Scored, sheet: Sheet, rules: Mapping[str, Gain]) -> None:
        self.scored, self.sheet, self.rules = scored, sheet, rules
        self.everyone = sheet.gain(scored.everyone(), plain=True, swayed=True)
        self.area = sheet.gain(scored.area(), plain=True)
        self.base = sheet.add("seen"), sheet.add("due")
        self.tops = [sheet.gain(scored.top(share)) for share in SHARES.tolist()]
        score = scored.score
        self.edges, sheet.group = scored.in_bins(N_BINS)
        inside = [(sheet.group == b) * 1.0 for b in range(len(self.edges) + 1)]
        self.inside = inside
        self.in_bins = (
            [sheet.add("gain", members) for members in inside],
            [sheet.add("denominator", members) for members in inside],
            [sheet.add("counted", members) for members in inside],
            [sheet.add("numerator", members) for members in inside],
            [sheet.add("denominator", members * score) for members in inside],
        )
        # About their mean, or that of each fold, so that squares lose no digits.
        off = score - scored.mean_score()
        self.line = (
            sheet.add("gain", off),
            sheet.add("counted", off),
            sheet.add("counted", off**2),
            sheet.add("denominator", off),
            sheet.add("denominator", off**2),
            sheet.add("denominator", score),
        )

    def allow_for(self, noise: float) -> None:
        """Let totals vary as much as those of fits that saw each other's rows do.

        Where fits without one fold each rank by noise, what one finds in the other's fold is found
        the other way round as well. What people gain beyond the average then varies twice as much
        as their rows say; see `GainByScore`.
        """
        totals = {"gain": self.everyone.numerator, "plain": self.everyone.plain}
        apart = np.zeros((len(self.sheet.columns), len(self.sheet.columns)))
        for j, column in enumerate(self.sheet.columns):
            total = totals.get(column.term)
            if total is not None and isinstance(column.times, np.ndarray):
                apart[j, j] = 1.0
                apart[j, total] -= float(self.scored.people @ column.times)
        V = self.sheet.totals.ways
        self.sheet.totals = replace(
            self.sheet.totals, ways=V + noise * apart @ V @ apart.T
        )

    def gains(self, *, plain: bool) -> dict[str, Estimate]:
        """Return the average, both areas and the rules."""
        sheet = self.sheet
        everyone, area = (
            sheet.numerator(g, plain=plain) for g in (self.everyone, self.area)
        )
        named = {"average": everyone, "auuc": area, "qini": area - 0.5 * everyone}
        named |= {
            name: sheet.numerator(gain, plain=plain)
            for name, gain in self.rules.items()
        }
        return {
            name: sheet.per_person(gain, plain=plain) for name, gain in named.items()
        }

    def relative(self) -> Estimate | None:
        """Return the average over what the outcome would be untreated, if that is known."""
        columns = (self.everyone.numerator, 0, 1, *self.base, 2)
        return relative_effect(
            self.sheet.totals.combined(np.array([self.sheet[j] for j in columns]))
        )

    def claims(self, average: Estimate, rules: Mapping[str, Estimate]) -> list[Claim]:
        """Return what is claimed of everyone and of the rules, given their gains."""
        named = {EVERYONE: (self.everyone, average)}
        named |= {name: (gain, rules[name]) for name, gain in self.rules.items()}
        return [self.sheet.claim(name, *each) for name, each in named.items()]

    def curve(self, level: float, rng: Rng) -> tuple[CurveBand, dict[float, Estimate]]:
        """Return the uplift curve with its uniform band, and each point as an estimate."""
        gains = np.array([self.sheet.numerator(gain) for gain in self.tops])
        points, z = self.sheet.deviations(gains, level, rng)
        sets = [point.within(z) for point in points]
        columns = (
            SHARES,
            [point.value for point in points],
            [pieces[0][0] for pieces in sets],
            [pieces[-1][1] for pieces in sets],
        )
        band = CurveBand(*(np.concatenate([[0.0], column]) for column in columns))
        return band, dict(zip(SHARES.tolist(), points, strict=True))

    def bins(self, least: Array) -> tuple[tuple[ScoreBin, ...], float]:
        """Return the uplift in bins of the score, and the p-value that predictions are right."""
        scored = self.scored
        n = len(self.inside)
        N, D, counted, seen, said = (
            np.array([self.sheet[j] for j in columns]) for columns in self.in_bins
        )
        # Whoever counts, predictions that are right leave nothing: the test needs no known policy.
        asked = np.concatenate([N, D, counted, seen - said])
        totals = self.sheet.totals.combined(asked)
        at = np.r_[:n, 3 * n : 4 * n]
        totals.ways[:, at, at] = np.maximum(totals.ways[:, at, at], np.tile(least, 2))
        place = np.eye(4 * n)
        scores = scored.score[scored.people > 0.0]
        edges = [float(scores.min()), *self.edges.tolist(), float(scores.max())]
        bins = []
        for b, members in enumerate(self.inside):
            share = float(scored.people @ members)
            predicted = float((scored.people * members) @ scored.score) / share
            uplift = totals.per_person(place[b], place[n + b], place[2 * n + b])
            bins.append(ScoreBin(edges[b], edges[b + 1], share, predicted, uplift))
        tested = 3 * n + np.flatnonzero(np.isfinite(least))
        test = totals.combined(place[tested])
        return tuple(bins), test.chi_square()[1]

    def calibration(self, average: Estimate, p_value: float) -> Calibration:
        r"""Return the line of uplift on the score, :math:`u \approx a + b s`, and the joint test.

        With :math:`c = D(s) / D(1)` the slope is :math:`N(s - c) / D((s - c)^2)`, a ratio whose
        interval is Fieller's. A constant score has no slope, and its intercept is the average.
        Scores of several fits are centred at the mean of each.
        """
        s = self.scored.score[self.scored.people > 0.0]
        if float(np.ptp(s)) <= 1e-12 * max(1.0, float(np.abs(s).max())):
            return Calibration(None, average, p_value)
        sheet, value, theta = self.sheet, self.sheet.totals.value, average.value
        one = sheet[self.everyone.numerator]
        D, counted = sheet[0], sheet[2]
        n_off, c_off, c_square, d_off, d_square, d_score = (sheet[j] for j in self.line)
        c = float(d_score @ value / value[0])
        if self.scored.fold is None:  # off the mean by D, no longer by people
            shift = float(d_off @ value / value[0])
            d_square = d_square - 2.0 * shift * d_off + shift**2 * D
            c_square = c_square - 2.0 * shift * c_off + shift**2 * counted
            n_off = n_off - shift * one
            c_off = c_off - shift * counted
        left = n_off - theta * c_off
        slope = sheet.totals.per_person(left, d_square, c_square)
        # k (n - d (theta + b off)) with k = 1 / D - c off / D(off^2)
        k = c / float(d_square @ value)
        b = slope.value
        influence = (one - theta * counted - b * c_off) / value[0]
        influence -= k * (left - b * c_square)
        variance = float(sheet.totals.combined(influence[None]).variance[0])
        intercept = Estimate(theta - b * c, math.sqrt(max(variance, 0.0)))
        return Calibration(slope, intercept, p_value)


def _apart(sheet: Sheet, one: Array, two: Array) -> Estimate:
    """Return how much more one sum is per person than another; 0 if it is rounding alone."""
    difference = sheet.per_person(one - two)
    noise = sheet.per_person(one).standard_error
    if max(abs(difference.value), difference.standard_error) <= ROUNDING * noise:
        return Estimate(0.0, 0.0)
    return difference


def _compare(asked: Asked, tables: EvaluatedTables, level: float) -> Comparison:
    """Return what each score is worth, and all differences of two."""
    scored = tables.scored(asked.orders, asked.edges())
    sheet = Sheet()
    gains = {}
    for m, name in enumerate(asked.models):
        area = sheet.gain(scored[m].area(), order=m)
        gains[str(name)] = {"auuc": area} | asked.gains(m, scored, sheet, plain=False)
    tables.add(sheet, scored)
    sums = {
        name: {what: sheet.numerator(gain) for what, gain in own.items()}
        for name, own in gains.items()
    }
    worth = {
        name: {what: sheet.per_person(gain) for what, gain in own.items()}
        for name, own in sums.items()
    }
    names = sorted(worth, key=lambda name: -worth[name]["auuc"].value)
    differences = []
    for one, two in combinations(names, 2):
        apart = {
            what: _apart(sheet, gain, sums[two][what])
            for what, gain in sums[one].items()
        }
        differences.append(Difference(one, two, apart.pop("auuc"), apart))
    return Comparison(
        auuc={name: worth[name].pop("auuc") for name in names},
        rules={name: worth[name] for name in names},
        differences=tuple(differences),
        speaks_for=sheet.speaks_for,
        left_out=tables.left_out(),
        level=level,
    )
