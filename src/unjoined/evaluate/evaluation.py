"""What evaluations and comparisons found, with intervals, and how it is shown and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unjoined._typing import Array, Frame
from unjoined._validation import check_option
from unjoined.evaluate.estimate import (
    UNBOUNDED,
    Estimate,
    ResultTable,
    Shown,
    as_frame,
    cells,
    draw_intervals,
    estimate_dict,
    new_axes,
    number,
    with_interval,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
    how: str = "held-out rows"
    n_rows: int = 0

    def to_frame(self, library: str | None = None) -> Frame:
        """Return the estimates as a data frame: what, value, standard error, interval.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        named = self._named().items()
        rows = [{"what": name} | estimate_dict(e, self.level) for name, e in named]
        return as_frame(rows, library)

    def _named(self) -> dict[str, Estimate]:
        """Return all estimates by name."""
        named = {"average": self.average, "auuc": self.auuc, "qini": self.qini}
        named |= {f"rule: {name}": value for name, value in self.rules.items()}
        named |= {f"uplift at {k:.0%}": value for k, value in self.at_k.items()}
        named |= {f"bin {b}": each.uplift for b, each in enumerate(self.bins, 1)}
        for name in ("slope", "intercept"):
            if (value := getattr(self.calibration, name)) is not None:
                named[f"calibration {name}"] = value
        return named

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super(Evaluation, self).to_dict()
        return plain | {"rows": plain.pop("n_rows")}

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
        ax = ax or new_axes(4.2)
        ax.set_title(f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium")
        return draw_curve(self, ax) if what == "curve" else draw_bins(self, ax)

    def sentences(self) -> list[str]:
        """Return what was found in words, the average first."""
        return [
            f"Average uplift {with_interval(self.average, self.level)}, from {self.how}; "
            f"{self.level:.0%} intervals.",
            f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}",
            *([] if self.calibration.slope is None else [_ranking(self)]),
            *_calibration(self),
        ]

    def result_tables(self) -> list[ResultTable]:
        """Return the tables that are shown, as text."""
        head = ("", "estimate", f"{self.level:.0%} interval", "plain doubly robust")
        summary: list[tuple[str, ...]] = []
        named = {"everyone": self.average} | self.rules
        for name, value in named.items():
            plain = self.plain["average" if name == "everyone" else name]
            summary.append((name, *cells(value, self.level), cells(plain, self.level)[1]))
        areas: list[tuple[str, ...]] = [
            (name, *cells(value, self.level), cells(self.plain[name], self.level)[1])
            for name, value in (("auuc", self.auuc), ("qini", self.qini))
        ]
        best: list[tuple[str, ...]] = [
            (f"best {k:.0%}", *cells(value, self.level)) for k, value in self.at_k.items()
        ]
        bins: list[tuple[str, ...]] = [
            (
                number(b.low),
                number(b.high),
                f"{b.share:.0%}",
                number(b.predicted),
                *cells(b.uplift, self.level),
            )
            for b in self.bins
        ]
        columns = ("score from", "to", "people", "predicted", "uplift", head[2])
        return [
            ("Gain per person over treating nobody", ("treat", *head[1:]), summary),
            ("How well the score orders people", ("area", *head[1:]), areas),
            ("Average uplift of those with the best scores", ("who", *head[1:3]), best),
            ("Uplift by score", columns, bins),
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
        found = f"AUUC {with_interval(self.auuc, level)}"
        if low > 0.0:
            return f"{self.first} orders people better than {self.second}: {found} more."
        if self.auuc.value == self.auuc.standard_error == 0.0:
            return f"{self.first} and {self.second} order people alike."
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
        plain = super(Comparison, self).to_dict()
        for said, each in zip(plain["differences"], self.differences, strict=True):
            said["sentence"] = each.sentence(self.level)
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
        named = [(f"{each.first} less {each.second}", each.auuc) for each in self.differences]
        ax = draw_intervals(named, self.level, ax)
        ax.set_xlabel(f"difference in AUUC, {self.level:.0%} interval")
        ax.set_title(f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium")
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
        f"Line of uplift on the score: slope {with_interval(line.slope, level)}, 1 if the score is "
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
    ax.set_xticks(np.linspace(0.0, 1.0, 6), [f"{p:.0%}" for p in np.linspace(0.0, 1.0, 6)])
    ax.set_xlabel("share of people treated, best first")
    ax.set_ylabel("gain per person over treating nobody")
    ax.spines[["top", "right"]].set_visible(False)
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
        ax.plot(predicted[~bounded], rest, "o", mfc="none", color="C0", label="unbounded interval")
    ax.axline(
        (predicted[0], predicted[0]), slope=1.0, color="0.55", ls="--", lw=1.2, label="as predicted"
    )
    line = evaluation.calibration
    if line.slope is not None and line.intercept is not None:
        fitted = line.intercept.value + line.slope.value * predicted
        ax.plot(predicted, fitted, color="C1", lw=1.4, label="line through the people")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlabel("predicted uplift, mean of the bin")
    ax.set_ylabel("uplift of the bin")
    ax.spines[["top", "right"]].set_visible(False)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.3 * (high - low))  # room for the legend above the bars
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax
