r"""How wrong "people respond alike in all populations" may be before a decision turns.

Let people with features x have a mean outcome that is higher by :math:`\delta_k(x)` in population k
than treatment explains,

.. math:: E_k[y \mid x] = m_0(x) + \delta_k(x) + e_k(x) u(x).

An evaluation's numerator is a mean over outcome rows of :math:`\omega h c_k y`, where the contrast
:math:`c_k(x)` adds up to 0 over the populations and is 1 along their policies. So it is off by

.. math:: E[\omega h \sum_k c_k \delta_k], \qquad
          |\sum_k c_k \delta_k| \le \tfrac12 \sum_k |c_k| \, (\max_k \delta_k - \min_k \delta_k),

for what all populations have in common drops out, and the worst case gives the larger
:math:`\delta` to those with :math:`c_k > 0`. If equal people of any two populations differ by at
most :math:`\Delta`, the numerator is off by at most :math:`\Delta G(h)` with

.. math:: G(h) = \tfrac12 \sum_k E_k[\omega h |c_k|],

and no bound is smaller. Of two populations :math:`c = \pm 1 / (e_1 - e_2)`, so that a difference of
1 moves the average by about 1 over the gap. An outcome row whose treatment or policy is known has a
contrast of its own, which tells it from other rows of its population: G then allows its people to
differ from those as well, for hidden reasons of treatment. Rows' weights, counts and clusters are
in the sums as ever. With three populations or more the tables refute part of the :math:`\delta_k`.

"The list h gains more than c for each treated" is :math:`N(h) - c D(h) > 0` and needs no ratio: it
holds up to the breakdown value

.. math:: \Delta^* = (N - c D - z \, \mathrm{se}) / G(h),

z being 0 for the estimate and 1.96 for 95 percent, so that a claim is sure where its interval lies
above 0, or below. Nothing is sure where D cannot be told from 0,
so that the interval of the ratio is unbounded. The interval of a ratio that allows for
:math:`\Delta` has Fieller's lower end for :math:`N - \Delta G` and the upper one for
:math:`N + \Delta G`. G is known far better than N and is taken as given.

If those treated in population k gain by :math:`\kappa_k(x)` more than equal people would, because
they were picked for it or because the effect itself differs, :math:`E_k[y | x]` has
:math:`e_k \kappa_k` more: with :math:`|\kappa_k| \le \kappa` the numerator is off by at most
:math:`\kappa \sum_k E_k[\omega h |c_k| e_k]`. Reasons that go along with the level of the outcome
do no harm.

A hidden trait that differs by S standard deviations between populations among equal people, and
whose correlation with the outcome is R among them, makes :math:`\Delta = R S \sigma`, where
:math:`\sigma` is the spread of the outcome around what the features say (after Cinelli and Hazlett,
2020). A column of the tables says what is usual: R and S are what they would be if it alone was
hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_not_negative
from unjoined.evaluate.estimate import (
    BOUNDED,
    Estimate,
    ResultTable,
    Shown,
    bare_axes,
    critical_value,
    estimate_dict,
    widening,
)
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.terms import EvaluationRows
from unjoined.model.basis import Scaling
from unjoined.words import (
    UNITS,
    brief,
    cells,
    difference_in_words,
    in_brackets,
    in_digits,
    p_text,
    robustness_in_words,
    span,
    times_in_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY_POPULATIONS = 8  # from which populations may be taken for draws of many
ORDINARY = 0.25  # share of the columns that tell as much as one of ordinary strength
SURE = (
    0.05  # p-value below which an outcome that must gain nothing tells of a difference
)
LEANS = 0.9  # share of people treated more in one population from which it is named
MOST_SQUARES = 20  # features up to which squares are among the functions
REACH = 3.0  # standard deviations that a feature is kept within
MOST_ROWS = 100_000  # outcome rows that benchmarks are made of
RIDGE = 1e-8  # so that columns which repeat others do no harm
NOTHING = 0.005  # of a breakdown value that is not told
SHOWN = 6  # benchmarks that are printed
EVERYONE = "everyone"
# What an outcome says that must gain nothing, by whether it is rejected and whether it is silent.
SAYS = {
    (True, False): "people differ",
    (False, True): "nothing",
    (False, False): "too little to turn it",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """That treating some people gains more than it costs, and how far that may be trusted.

    Attributes
    ----------
    name : str
        Who is treated: "everyone", or the name of a rule.
    gain : Estimate
        Of the people spoken for, over treating nobody: per person, treated or not.
    treated : float
        Share of them who are treated.
    sway : float
        How far the gain moves at most if equal people of two populations differ by 1.
    picked : float
        How far it moves at most if those treated gain by 1 more or less than equal people would.
    cost : float
        Of treating a person, outcome units.
    """

    name: str
    gain: Estimate
    treated: float
    sway: float
    picked: float
    cost: float = 0.0

    @property
    def net(self) -> Estimate:
        """Gain after costs, per person spoken for, outcome units."""
        spent = self.cost * self.treated
        ratio = self.gain.ratio
        if ratio is None or not spent:
            return self.gain
        variance = ratio.numerator_variance - 2.0 * spent * ratio.covariance
        return Estimate.of_ratio(
            replace(
                ratio,
                numerator=ratio.numerator - spent * ratio.denominator,
                numerator_variance=variance + spent**2 * ratio.denominator_variance,
                covariance=ratio.covariance - spent * ratio.denominator_variance,
            )
        )

    @property
    def gains(self) -> bool:
        """Whether the estimate is a gain after costs: what is claimed. Else it is the contrary."""
        return self.net.value > 0.0

    @property
    def is_bounded(self) -> bool:
        """Whether the policies surely differ, so that intervals are bounded."""
        ratio = self.gain.ratio
        return ratio is None or (ratio.denominator > 0.0 and ratio.strength >= BOUNDED)

    def breakdown(self, level: float | None = None) -> float:
        """Return by how much equal people may differ before the claim turns, outcome units.

        Parameters
        ----------
        level : float, optional
            That of an interval, which turns no sooner. Default: none, the value at which the
            estimate itself turns.

        Returns
        -------
        float
            0 if the claim does not hold at this level even if people respond alike, or if policies
            are so alike that intervals are unbounded; infinite if no difference moves the estimate.
        """
        return self._up_to(self.sway, level)

    def breakdown_picked(self, level: float | None = None) -> float:
        """Return the same for how much more, or less, those treated gain than equal people would.

        Parameters
        ----------
        level : float, optional
            As in `breakdown`.

        Returns
        -------
        float
            Outcome units.
        """
        return self._up_to(self.picked, level)

    def _up_to(self, per_unit: float, level: float | None) -> float:
        ratio = self.net.ratio
        if ratio is None or math.isnan(ratio.value):
            return math.nan
        left = abs(ratio.numerator)
        if level is not None:
            if not self.is_bounded:
                return 0.0
            left -= critical_value(level) * math.sqrt(
                max(ratio.numerator_variance, 0.0)
            )
        if left <= 0.0:
            return 0.0
        moved = per_unit * abs(ratio.denominator)
        return left / moved if moved > 0.0 else math.inf

    def interval(self, delta: float, level: float) -> tuple[float, float]:
        """Return the interval of the net gain if equal people differ by at most ``delta``.

        Parameters
        ----------
        delta : float
            Outcome units.
        level : float
            Share of repeated draws whose interval covers the truth, at the least.

        Returns
        -------
        tuple of float
            Both ends, outcome units; infinite where the tables cannot bound the gain.
        """
        ratio = self.net.ratio
        if ratio is None:
            return math.nan, math.nan
        off = delta * self.sway * ratio.denominator
        ends = [
            Estimate.of_ratio(replace(ratio, numerator=ratio.numerator + side))
            for side in (-off, off)
        ]
        low, high = ends[0].interval(level)[0], ends[1].interval(level)[1]
        bounded = math.isfinite(low) and math.isfinite(high)
        return (low, high) if bounded else (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a column would do if it alone was hidden.

    Attributes
    ----------
    column : str
        Its name.
    outcome : float
        R: its correlation with the outcome among people who are equal in all other columns, 0 to
        1. A hidden trait as telling explains as much of what the features leave.
    population : float
        S: how far its means differ at most between two populations among such people, in its
        standard deviations among them, less what the draw of rows adds.
    delta : float
        How much a hidden trait as telling makes equal people differ, outcome units: R S times the
        spread of the outcome around what the features say.
    moves : float
        By how much the average moves if this column is left out, outcome units, by a linear
        calculation.
    """

    column: str
    outcome: float
    population: float
    delta: float
    moves: float


@dataclass(frozen=True, slots=True)
class Placebo:
    """What an outcome seems to gain that treatment cannot have changed; it should be nothing.

    Attributes
    ----------
    name : str
        The outcome.
    gain : Estimate
        Of treating everyone, in units of that outcome.
    delta : float
        Difference of equal people that would make it, in units of the outcome in question: of
        outcomes of another kind, as many of its spreads.
    largest : float
        The largest difference that the interval of the gain allows, in the same units.
    p_value : float
        Of the hypothesis that equal people do not differ.
    """

    name: str
    gain: Estimate
    delta: float
    largest: float
    p_value: float

    @property
    def is_rejected(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p_value < SURE


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Shown):
    """How wrong "people respond alike" may be before decisions turn. Printing it shows all of it.

    Attributes
    ----------
    claims : tuple of Claim
        The average first, then each rule.
    benchmarks : tuple of Benchmark
        What each column would do if it was hidden, the worst first.
    sides : tuple of str or None
        The population that treats nearly everyone more, then the other; None if neither does, or
        if there are more than two.
    sigma : float
        Spread of the outcome around what the features say, outcome units.
    is_rate : bool
        Whether outcomes are 0 or 1, so that differences are told in 100 people.
    level : float
        Level of the intervals that are shown, and of claims.
    delta : float or None
        Largest difference of equal people that robust intervals allow for, outcome units.
    placebos : tuple of Placebo
        What outcomes seem to gain that treatment cannot have changed.
    differenced : tuple of Claim
        The claims if populations differ now as they did before, with that difference taken off;
        empty without earlier outcomes.
    without : dict of str to Estimate
        The average without one population at a time, of three or more.
    """

    claims: tuple[Claim, ...]
    benchmarks: tuple[Benchmark, ...]
    sides: tuple[str, str] | None
    sigma: float
    is_rate: bool
    level: float
    delta: float | None = None
    placebos: tuple[Placebo, ...] = ()
    differenced: tuple[Claim, ...] = ()
    without: dict[str, Estimate] = field(default_factory=dict)

    @property
    def jackknife(self) -> Estimate | None:
        """The average with the error of populations that are draws of many; None if they are few.

        From what leaving out one population at a time moves it by, widened for so many.
        """
        K = len(self.without)
        if K < MANY_POPULATIONS:
            return None
        values = np.array([each.value for each in self.without.values()])
        error = math.sqrt((K - 1) * float(np.mean((values - values.mean()) ** 2)))
        return Estimate(self.average.gain.value, widening(K) * error)

    @property
    def average(self) -> Claim:
        """The claim that treating everyone gains."""
        return self.claims[0]

    @property
    def ordinary(self) -> Benchmark | None:
        """The column that one in four is as telling as; None without columns."""
        return self.benchmarks[self._n_telling - 1] if self.benchmarks else None

    @property
    def _n_telling(self) -> int:
        """How many columns tell as much as the ordinary one."""
        return math.ceil(ORDINARY * len(self.benchmarks))

    @property
    def ordinary_share(self) -> str:
        """How many of the columns tell as much as the ordinary one, in words."""
        n, total = self._n_telling, len(self.benchmarks)
        return f"{n} of {total} columns {'is' if n == 1 else 'are'}"

    def overturns(self, claim: Claim) -> Benchmark | None:
        """Return the ordinary column if a hidden trait as telling would turn a claim.

        Parameters
        ----------
        claim : Claim
            Of this record, or another one about the same tables.

        Returns
        -------
        Benchmark or None
        """
        usual = self.ordinary
        if usual is None or usual.delta < claim.breakdown():
            return None
        return usual

    def is_silent(self, placebo: Placebo) -> bool:
        """Tell whether an outcome that must gain nothing has too wide an interval to say anything.

        Parameters
        ----------
        placebo : Placebo
            One of these.

        Returns
        -------
        bool
            Whether it neither tells of a difference nor rules out one that turns the average.
        """
        rules_out = placebo.largest < self.average.breakdown()
        return not (placebo.is_rejected or rules_out)

    def robustness(self, delta: float) -> float:
        """Return the R = S at which a hidden trait makes equal people differ by ``delta``.

        Parameters
        ----------
        delta : float
            Outcome units, such as a breakdown value.

        Returns
        -------
        float
            Above 1 if no trait can: R is a correlation.
        """
        return math.sqrt(delta / self.sigma) if self.sigma > 0.0 else math.inf

    def at(self, *, cost: float = 0.0, delta: float | None = None) -> Sensitivity:
        """Return the same with costs, and with intervals that allow for a difference.

        Parameters
        ----------
        cost : float, default=0.0
            Of treating a person, outcome units.
        delta : float, optional
            Largest difference of equal people, outcome units.

        Returns
        -------
        Sensitivity
            Costs nothing: all of it is made of the same sums.
        """
        check_not_negative("cost", cost)
        if delta is not None:
            check_not_negative("delta", delta)
        claims, differenced = (
            tuple(replace(claim, cost=float(cost)) for claim in each)
            for each in (self.claims, self.differenced)
        )
        return replace(self, claims=claims, differenced=differenced, delta=delta)

    def said(self, difference: float, unit: str = UNITS) -> str:
        """Return a difference of outcomes in words, of 100 people if outcomes are 0 or 1."""
        return difference_in_words(difference, is_rate=self.is_rate, unit=unit)

    def in_words(
        self, claim: Claim, subject: str | None = None, unit: str = UNITS
    ) -> str:
        """Say of a claim what would have to be so for it to turn, a sentence.

        Parameters
        ----------
        claim : Claim
            One of these, or of another record about the same tables.
        subject : str, optional
            What is said to help: "The list". By default it names the rule.
        unit : str, optional
            What outcomes are called, in the plural.

        Returns
        -------
        str
        """
        everyone = claim.name == EVERYONE
        named = "Treating everyone" if everyone else f"The rule {claim.name!r}"
        return robustness_in_words(
            claim,
            self.sides,
            is_rate=self.is_rate,
            level=self.level,
            subject=subject or named,
            unit=unit,
        )

    def sentences(self) -> list[str]:
        """Return what would turn each decision, and what is usual, in words."""
        lines = [self.in_words(claim) for claim in self.claims]
        average = self.average
        if math.isfinite(average.sway) and average.sway > 0.0:
            lines.append(
                f"Equal people who differ by {self.said(0.01)} between populations move the "
                f"average by up to {self.said(0.01 * average.sway)}."
            )
        return [*lines, *self.benchmark_words(), *self.beside_words()]

    def beside_words(self) -> list[str]:
        """Say what single populations do, and outcomes that treatment cannot have changed."""
        return [*self._without_words(), *self._placebo_words()]

    def _without_words(self) -> list[str]:
        """Say how far the average rests on single populations."""
        if len(self.without) < 2:
            return []
        order = sorted(self.without, key=lambda name: self.without[name].value)
        least, most = (
            f"{brief(self.without[k].value)} (without {k})"
            for k in order[:: len(order) - 1]
        )
        said = f"Without one population at a time the average lies between {least} and {most}."
        if (draws := self.jackknife) is not None:
            ends = span(*draws.interval(self.level), brief)
            said += f" If populations are draws of many, its {self.level:.0%} interval is {ends}."
        return [said]

    def _placebo_words(self) -> list[str]:
        """Say what outcomes tell that treatment cannot have changed."""
        lines = [self._placebo_in_words(placebo) for placebo in self.placebos]
        if self.differenced:
            gain = in_brackets(self.differenced[0].gain, self.level)
            lines.append(
                "If the populations differ now as they did before, treating everyone gains "
                f"{gain}."
            )
        return lines

    def _placebo_in_words(self, placebo: Placebo) -> str:
        """Say what an outcome that treatment cannot have changed tells of equal people."""
        said = (
            f"By {placebo.name}, which treatment cannot have changed, treating everyone seems to "
            f"gain {in_brackets(placebo.gain, self.level)}. "
        )
        most = self.said(placebo.largest)
        turns = self.said(self.average.breakdown())
        if placebo.is_rejected:
            return (
                f"{said}So equal people do differ, as if by {self.said(placebo.delta)} and by at "
                f"most {most}."
            )
        if self.is_silent(placebo):
            allows = (
                f"a difference of {most}" if math.isfinite(placebo.largest) else "any"
            )
            return (
                f"{said}That says nothing, good or bad: its interval allows for {allows}, and "
                f"{turns} turn the average."
            )
        return (
            f"{said}That may be nothing; at most it is a difference of {most}, and it takes "
            f"{turns} to turn the average."
        )

    def benchmark_words(
        self, claim: Claim | None = None, unit: str = UNITS
    ) -> list[str]:
        """Say how a breakdown value compares with the user's own columns.

        Parameters
        ----------
        claim : Claim, optional
            By default that of the average.
        unit : str, optional
            What outcomes are called, in the plural.

        Returns
        -------
        list of str
            A sentence; none where there is nothing to compare.
        """
        usual = self.ordinary
        value = (claim or self.average).breakdown()
        if usual is None or not 0.0 < value < math.inf:
            return []
        worst = self.benchmarks[0]
        if worst.delta < NOTHING * value:
            return [
                "No column would make equal people differ if it was hidden, beyond what the draw "
                "of rows does."
            ]
        what = "turns the average" if claim is None else "turns it"
        said = (
            f"A hidden trait as telling as {worst.column!r} would make equal people differ by "
            f"{self.said(worst.delta, unit)}, {times_in_words(worst.delta / value)} what {what}"
        )
        if usual is worst:
            return [f"{said}; no column tells more."]
        return [
            f"{said}; {self.ordinary_share} as telling as {usual.column!r}, "
            f"{times_in_words(usual.delta / value)} it."
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the claims: gain with its interval, breakdown values, robustness values."""
        both = ((self.claims, False), (self.differenced, True))
        return [
            self._claim_dict(claim) | {"differenced": is_so}
            for claims, is_so in both
            for claim in claims
        ]

    def _claim_dict(self, claim: Claim) -> dict[str, Any]:
        point, sure = claim.breakdown(), claim.breakdown(self.level)
        plain = {"what": claim.name, "gains": claim.gains, "treated": claim.treated}
        plain |= {"cost": claim.cost} | estimate_dict(claim.net, self.level)
        plain |= {"breakdown": point, "breakdown_sure": sure}
        plain |= {"robustness": self.robustness(point)}
        plain |= {"robustness_sure": self.robustness(sure)}
        plain |= {"picked": claim.breakdown_picked()}
        plain |= {"picked_sure": claim.breakdown_picked(self.level)}
        if self.delta is not None:
            low, high = claim.interval(self.delta, self.level)
            plain |= {"delta": self.delta, "robust_low": low, "robust_high": high}
        return plain

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        rows = self.frame_rows()
        plain["claims"] = rows[: len(self.claims)]
        plain["differenced"] = rows[len(self.claims) :]
        for each, placebo in zip(plain["placebos"], self.placebos, strict=True):
            each["says_nothing"] = self.is_silent(placebo)
        usual = self.ordinary
        plain["ordinary"] = None if usual is None else usual.column
        plain["words"] = self.sentences()
        return plain

    def result_tables(self) -> list[ResultTable]:
        """Return claims and benchmarks, as text."""
        return [*self.claims_table(), *self.benchmarks_table(), *self.beside_tables()]

    def beside_tables(self) -> list[ResultTable]:
        """Return what outcomes tell that treatment cannot have changed."""
        tables = [self._placebos_table()] if self.placebos else []
        if self.differenced:
            title = "If populations differ now as they did before"
            other = replace(self, claims=self.differenced)
            tables += [(title, *table[1:]) for table in other.claims_table()]
        return tables

    def _placebos_table(self) -> ResultTable:
        """Return what outcomes seem to gain that treatment cannot have changed."""
        value = self.average.breakdown()
        rows = [
            (
                each.name,
                *cells(each.gain, self.level),
                p_text(each.p_value),
                in_digits(each.delta, 2),
                in_digits(each.largest, 2),
                f"{each.delta / value:.0%}" if value > 0.0 else "",
                SAYS[(each.is_rejected, self.is_silent(each))],
            )
            for each in self.placebos
        ]
        what = ("outcome", "seems to gain", f"{self.level:.0%} interval", "p")
        far = ("as if people differ by", "at most", "of what turns the average", "says")
        return "What must gain nothing", (*what, *far), rows

    def claims_table(self, *, with_gains: bool = True) -> list[ResultTable]:
        """Return what turns each claim, as a table; the gains may be told elsewhere."""
        interval = f"{self.level:.0%} interval"
        columns = ["treat"]
        if with_gains:
            columns += ["net gain" if self.average.cost else "gain", interval]
        columns += ["populations differ by", f"{self.level:.0%} sure up to", "R = S"]
        columns += ["those treated gain"]
        if self.delta is not None:
            columns.append(f"{interval} if they differ by {in_digits(self.delta, 3)}")
        rows = []
        for claim in self.claims:
            point = claim.breakdown()
            row = [claim.name]
            if with_gains:
                row += cells(claim.net, self.level)
            row.append(in_digits(point, 3))
            row.append(in_digits(claim.breakdown(self.level), 3))
            row.append(in_digits(self.robustness(point), 2))
            row.append(in_digits(claim.breakdown_picked(), 3))
            if self.delta is not None:
                row.append(span(*claim.interval(self.delta, self.level), brief))
            rows.append(tuple(row))
        title = "What turns the decision: equal people differ"
        return [(title, tuple(columns), rows)]

    def benchmarks_table(self) -> list[ResultTable]:
        """Return what the columns would do if they were hidden, as a table."""
        value = self.average.breakdown()
        rows = [
            (
                each.column,
                in_digits(each.outcome, 2),
                in_digits(each.population, 2),
                in_digits(each.delta, 2),
                f"{each.delta / value:.0%}" if value > 0.0 else "",
                brief(each.moves),
            )
            for each in self.benchmarks[:SHOWN]
        ]
        if not rows:
            return []
        far = ("differ by", "of what turns the average", "average moves by")
        return [("A hidden trait as telling as", ("column", "R", "S", *far), rows)]

    def plot(self, ax: Axes | None = None, claim: Claim | None = None) -> Axes:
        """Draw which hidden traits would turn a claim, and where the columns are.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        claim : Claim, optional
            By default that of the average.

        Returns
        -------
        matplotlib Axes
        """
        ax = bare_axes(ax, 4.2)
        claim = claim or self.average
        R = np.linspace(0.005, 1.0, 200)
        lines = {
            "estimate turns": (claim.breakdown(), "-"),
            f"no longer {self.level:.0%} sure": (claim.breakdown(self.level), "--"),
        }
        most = 1.2 * max([0.2, *(each.population for each in self.benchmarks)])
        for name, (value, style) in lines.items():
            if 0.0 < value < math.inf:
                ax.plot(R, value / self.sigma / R, "C0", ls=style, label=name)
        for each in self.benchmarks[:SHOWN]:
            ax.plot([each.outcome], [each.population], "o", color="0.4", ms=5)
            ax.annotate(each.column, (each.outcome, each.population), fontsize="small")
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(0.0, most)
        ax.set_xlabel("R: correlation with the outcome")
        ax.set_ylabel("S: difference of populations")
        ax.set_title(f"Hidden traits: {claim.name}", loc="left", fontsize="medium")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False, fontsize="small")
        return ax


def sensitivity_of(
    claims: Sequence[Claim],
    rows: EvaluationRows,
    features: NamedFeatures,
    names: Sequence[Any],
    *,
    is_rate: bool,
    level: float,
) -> Sensitivity:
    """Return how claims stand, given evaluation rows or a sample that stands for them.

    ``names`` are those of the populations, ``is_rate`` whether outcomes are 0 or 1.
    """
    return Sensitivity(
        claims=tuple(claims),
        benchmarks=benchmarks_of(rows, features),
        sides=_sides(rows, names),
        sigma=spread_left(rows),
        is_rate=is_rate,
        level=level,
        without=without_each(rows, names),
    )


def without_each(rows: EvaluationRows, names: Sequence[Any]) -> dict[str, Estimate]:
    """Return the average without one population at a time, if there are three or more.

    Policies and outcome models stay those of all: the average is centred whatever they are. Of
    several treatments none is told from the others by fewer populations.
    """
    K = rows.n_populations
    if K < 3 or rows.aside is not None:
        return {}
    population = rows.cell % K
    found = {}
    for k, name in enumerate(names):
        left = np.delete(np.arange(K), k)
        base = None if rows.base is None else rows.base[left]
        if base is not None and len(np.unique(base)) == len(base):
            continue  # nothing is left to compare
        rest = rows.take(np.flatnonzero(~rows.is_labelled | (population != k)))
        place = np.searchsorted(left, rest.cell % K)
        cell = np.where(rest.is_labelled, rest.cell // K * (K - 1) + place, 2 * K - 2)
        fewer = replace(
            rest,
            cell=cell,
            aim=rest.aim / float(rest.share @ rest.aim),
            policies=rest.policies[:, left],
            size=rest.size[left],
            known=rest.known[left],
            base=None if rest.base is None else rest.base[left],
        )
        if np.any(fewer.people):
            found[str(name)] = average_claim(fewer).gain
    return found


def average_claim(rows: EvaluationRows, change: float = 0.0) -> Claim:
    """Return the claim that treating everyone gains, and by ``change`` more than was measured."""
    terms = rows.everyone().shifted(change)
    average = terms.average()
    moved = terms.share @ np.column_stack([terms.sway, terms.picked])
    D = abs(float(terms.share @ terms.denominator))
    sway, picked = (moved / D).tolist() if D > 0.0 else (math.inf, math.inf)
    return Claim(EVERYONE, average, 1.0, sway, picked)


def spread_left(rows: EvaluationRows) -> float:
    """Return the spread of the outcome around what the features say, outcome units."""
    outcome = rows.cell < rows.n_populations
    share = rows.share[outcome]
    square = float(share @ rows.residual[outcome] ** 2 / share.sum())
    return rows.dose * math.sqrt(square)


def _sides(rows: EvaluationRows, names: Sequence[Any]) -> tuple[str, str] | None:
    """Return the population of two that treats nearly everyone more, then the other."""
    if rows.n_populations != 2 or rows.known[:, 0].any():
        return None
    gap = (rows.policies[:, 0] - rows.policies[:, 1]) * rows.people
    total = float(np.abs(gap).sum())
    lean = float(gap.sum()) / total if total > 0.0 else 0.0
    if abs(lean) < 2.0 * LEANS - 1.0:
        return None
    one, two = map(str, names)
    return (one, two) if lean > 0.0 else (two, one)


def benchmarks_of(
    rows: EvaluationRows, features: NamedFeatures
) -> tuple[Benchmark, ...]:
    r"""Return what each column would do if it alone was hidden, the worst first.

    The outcome less what treatment adds to it, :math:`y - e_k f`, is regressed on all features,
    their squares if they are few, and the populations. What column j adds to it, v, is regressed on
    the others and the populations: the latter's coefficients :math:`a_k` are what would be taken
    for :math:`\delta_k` without the column. The inverse M of the one matrix of products has all
    these regressions: the spread of v among equal people is :math:`\beta_j' M_{jj}^{-1} \beta_j`,
    and a is :math:`-\beta_j' M_{jj}^{-1} M_{jk}`. Costs O(n p^2 + p^3) with p functions.
    """
    K = rows.n_populations
    at = np.flatnonzero(rows.cell < K)
    at = at[:: max(len(at) // MOST_ROWS, 1)]
    if K < 2 or not len(at):
        return ()
    share = rows.share[at] / rows.share[at].sum()
    Z = np.clip(Scaling.of_rows(rows.X[at], share)(rows.X[at]), -REACH, REACH)
    d = Z.shape[1]
    functions = [Z]
    if d <= MOST_SQUARES:
        functions.append(Z**2)
    cell = rows.cell[at]
    member = (cell[:, None] == np.arange(1, K)) * 1.0
    B = np.column_stack([*functions, member])
    y = rows.dose * (rows.untreated[at] + rows.residual[at])
    B = B - share @ B
    y = y - share @ y
    weighted = B * share[:, None]
    gram = weighted.T @ B
    M = np.linalg.inv(gram + RIDGE * np.eye(len(gram)))
    beta = M @ (weighted.T @ y)
    sigma = spread_left(rows)
    towards, D = _towards(rows)
    people = 1.0 if rows.count is None else rows.count[at]
    # Variance of a mean over the rows of each population.
    drawn = np.bincount(cell, rows.share[at] ** 2 / people, K)
    found = []
    columns: dict[str, list[int]] = {}
    for j, feature in enumerate(features.columns):
        columns.setdefault(feature.column, []).extend(range(j, len(beta) - K + 1, d))
    for column, own in columns.items():
        pull = np.linalg.solve(M[np.ix_(own, own)], beta[own])
        a = np.append(0.0, -pull @ M[own, len(beta) - K + 1 :])
        spread = math.sqrt(max(float(beta[own] @ pull), 0.0))
        differ = 0.0
        if spread > 1e-9 * sigma:
            noise = float(drawn[a.argmin()] + drawn[a.argmax()])
            differ = math.sqrt(max((np.ptp(a) / spread) ** 2 - noise, 0.0))
        explains = min(spread / sigma, 1.0) if sigma > 0.0 else 0.0
        delta = explains * differ * sigma
        moves = float(a @ towards) / D if D else math.nan
        found.append(Benchmark(column, explains, differ, delta, moves))
    return tuple(sorted(found, key=lambda each: -each.delta))


def _towards(rows: EvaluationRows) -> tuple[Array, float]:
    """Return how far a shift of each population moves the average's numerator, and D."""
    terms = rows.terms(rows.omega())
    K = rows.n_populations
    moved = np.bincount(terms.cell, terms.share * terms.reach, 2 * K + 1)[:K]
    return moved / rows.dose, float(terms.share @ terms.denominator)
