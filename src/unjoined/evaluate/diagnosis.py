"""What `diagnose` found: a verdict, what it rests on, and how it is shown and exported."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from unjoined._support import in_digits
from unjoined._typing import Array, Frame
from unjoined.data.labels import CellSummary
from unjoined.evaluate.checks import Balance, Check, Sharing
from unjoined.evaluate.estimate import (
    PLENTY,
    STRONG,
    Estimate,
    ResultTable,
    as_frame,
    as_html,
    as_plain,
    as_text,
    new_axes,
)
from unjoined.evaluate.regions import IDENTIFIED, UNKNOWN, Region
from unjoined.evaluate.strength import IdentificationStrength
from unjoined.evaluate.verdict import COLOURS, NEXT_STEPS, PAINT, Finding, Verdict
from unjoined.model.shift import CellShift

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False)
class PolicyGap:
    """How the difference of treatment probabilities is spread over people.

    Attributes
    ----------
    mean, root_mean_square : Estimate
        Over people, of cross-fitted policies, corrected by treatment rows that these did not see.
        Errors are those of the draw of treatments and of people.
    quantiles : array of shape (101,)
        At 0, 1, ..., 100 percent of people.
    is_signed : bool
        Whether gaps are e_1 - e_2; for more than two populations they are the root mean square of
        all differences of two.
    """

    mean: Estimate
    root_mean_square: Estimate
    quantiles: Array
    is_signed: bool

    @property
    def words(self) -> str:
        """Mean and root mean square with their intervals, at a level of 95 percent."""
        root = self.root_mean_square
        ends = "{:+z.2f} to {:+z.2f}".format(*self.mean.interval())
        above = "{:.2f} to {:.2f}".format(*np.maximum(root.interval(), 0.0))
        return (
            f"{self.mean.value:+z.2f} on average (95% interval {ends}), {root.value:.2f} root mean "
            f"square ({above})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Whether tables can tell uplift, and what that rests on. Printing it shows all of it.

    Attributes
    ----------
    verdict : str
        "identified", "weakly identified" or "not identified".
    findings : tuple of Finding
        What speaks against a better verdict, the worst first.
    tables : tuple of CellSummary
        Rows and mean labels of each table.
    identification : IdentificationStrength
        The first-stage F that fits use, with that of each pair of populations.
    gap : PolicyGap or None
        None, as are the next ones, if tables have too few rows to measure it.
    strength : float
        Squared policy gap over its variance, over all people, from rows that models did not see.
        Not the first-stage F of ``identification``, which asks whether policies differ at all.
    regions : tuple of Region
        Groups of people by how their treatment differs, described by features.
    speaks_for : Estimate or None
        Share of people for whom evaluations speak: those whose policies differ by 0.2 or more, and
        others by the square of their gap. Estimated as the mean gap is.
    effective_size : float
        Rows of a randomised trial with joined labels, half of them treated, that would measure
        the average uplift of those people as precisely.
    condition : float
        How many times less precisely the worst-known linear function of the features in uplift
        is known than the best-known: 1 if the squared gap is the same for everyone.
    balance : tuple of Balance
        Outcome against treatment table of each population.
    between : tuple of Balance
        Each population against the others.
    shared : tuple of Sharing
        Tables that have rows in common.
    overlap : tuple of CellShift
        How much of the target each table covers; empty without a target.
    implied_outside : float
        Share of outcome rows whose implied mean outcome, with or without treatment, lies beyond
        the two values of the outcome; nan for other outcomes.
    checks : tuple of Check
        What could have been refuted, with p-values corrected for all of them.
    """

    tables: tuple[CellSummary, ...]
    identification: IdentificationStrength
    balance: tuple[Balance, ...]
    between: tuple[Balance, ...]
    shared: tuple[Sharing, ...]
    checks: tuple[Check, ...]
    gap: PolicyGap | None = None
    strength: float = math.nan
    regions: tuple[Region, ...] = ()
    speaks_for: Estimate | None = None
    effective_size: float = math.nan
    condition: float = math.nan
    overlap: tuple[CellShift, ...] = ()
    implied_outside: float = math.nan
    verdict: str = UNKNOWN
    findings: tuple[Finding, ...] = ()

    @property
    def colour(self) -> str:
        """The verdict as a colour: "green", "amber" or "red"."""
        return COLOURS[self.verdict]

    @property
    def headline(self) -> str:
        """The verdict in one line: the reason, the remedy, and what was not tested."""
        return self.as_verdict().words

    @property
    def untested(self) -> str:
        """What an answer assumes that these tables cannot show; empty if there is no answer."""
        return self.as_verdict().untested

    @property
    def next_step(self) -> str:
        """What to do with a verdict like this one, a sentence or two."""
        return NEXT_STEPS[self.verdict]

    def as_verdict(self) -> Verdict:
        """Return what a fitted model keeps of it as ``verdict_``."""
        strong = sum(region.share for region in self.regions if region.verdict == IDENTIFIED)
        names = tuple(map(str, self.identification.populations))
        return Verdict(self.verdict, self.findings, names, float(strong))

    @property
    def reach_words(self) -> str:
        """The share of people evaluations speak for, with its interval at 95 percent."""
        if self.speaks_for is None:
            return "nobody that is known"
        ends = "{:.0%} to {:.0%}".format(*np.clip(self.speaks_for.interval(), 0.0, 1.0))
        return f"{self.speaks_for.value:.0%} of people (95% interval {ends})"

    def remarks(self) -> list[str]:
        """Return the findings that the headline does not tell, a sentence or two each."""
        told = 0 if self.verdict == IDENTIFIED else 1
        return [str(finding) for finding in self.findings[told:]]

    def measurements(self) -> list[str]:
        """Return what was measured of all people, a sentence or two each."""
        return sentences(self)

    def result_tables(self) -> list[ResultTable]:
        """Return what is shown as tables, all of it text: each a title, columns and rows."""
        return result_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain: dict[str, Any] = as_plain(self, 0.95)
        plain |= {name: getattr(self, name) for name in ("colour", "headline", "next_step")}
        plain["findings"] = [finding.to_dict() for finding in self.findings]
        for name, word in (("regions", "verdict"), ("checks", "is_rejected")):
            for said, each in zip(plain[name], getattr(self, name), strict=True):
                said[word] = getattr(each, word)
        pairs = self.identification.to_dict()
        rows = zip(*pairs.values(), strict=True)
        numbers = ("f_statistic", "mean_gap", "rms_gap", "is_weak")
        for name in ("low", "high"):  # a share
            if self.speaks_for is not None:
                plain["speaks_for"][name] = min(max(plain["speaks_for"][name], 0.0), 1.0)
        plain["identification"] = {n: getattr(self.identification, n) for n in numbers} | {
            "pairs": [dict(zip(pairs, row, strict=True)) for row in rows]
        }
        return plain

    def to_frame(self, library: str | None = None) -> Frame:
        """Return the tests as a data frame: what, where, statistic, p-values.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame

        Raises
        ------
        MissingExtraError
            None of them is installed.
        """
        return as_frame([asdict(check) for check in self.checks], library, CHECK_COLUMNS)

    def regions_frame(self, library: str | None = None) -> Frame:
        """Return the regions as a data frame: where, share, gap, strength, verdict.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        rows = [asdict(region) | {"verdict": region.verdict} for region in self.regions]
        return as_frame(rows, library, REGION_COLUMNS)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of people at each policy gap, and how well each region is identified.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        return draw_regions(self, ax)

    def __str__(self) -> str:
        """Return the verdict and what it rests on, as text."""
        lines = [self.headline, *self.remarks(), *self.measurements()]
        return f"{as_text(lines, result_tables(self))}\n\nWhat to do next: {self.next_step}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same as HTML, for notebooks."""
        colour = PAINT[self.colour]
        head = f'<p style="color:{colour}"><b>{escape(self.headline)}</b></p>'
        lines = self.remarks() + self.measurements()
        end = as_html([f"What to do next: {self.next_step}"], ())
        return head + as_html(lines, result_tables(self)) + end


CHECK_COLUMNS = ("what", "where", "statistic", "p_value", "corrected")
REGION_COLUMNS = ("where", "share", "gap", "standard_error", "strength", "verdict")
HEADS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Which policies differ",
        ("populations", "gap on average", "root mean square", "first-stage F"),
    ),
    ("Where policies differ", ("where", "people", "gap, 95% interval", "strength", "verdict")),
    ("Balance of features", ("largest difference of means", "feature", "standard deviations")),
    (
        "What could be refuted (corrected by Holm's method)",
        ("what must hold", "where", "statistic", "p", "corrected p"),
    ),
    (
        "Overlap with the target",
        ("weighted to the target", "rows", "worth", "of the target covered"),
    ),
)


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Return what was measured of all people, a sentence or two each."""
    gap = diagnosis.gap
    if gap is None:
        return []
    low, high = gap.quantiles[[5, 95]]
    names = [str(name) for name in diagnosis.identification.populations]
    whose = f" ({names[0]} less {names[1]})" if gap.is_signed else ""
    n, error = _number(diagnosis.effective_size), _number(diagnosis.condition)
    lines = [
        f"Gap{whose}: the chance of treatment differs by {gap.words}. Nine in ten people lie "
        f"between {low:+.2f} and {high:+.2f}.",
        f"Strength: {_number(diagnosis.strength)} over all people. {STRONG:g} or more identifies "
        f"the average, {PLENTY:g} or more is plenty.",
        f"Reach: evaluations speak for {diagnosis.reach_words}, those whose chance of treatment "
        f"differs. For their average uplift the tables are worth a trial of {n} people "
        "with joined labels.",
        f"Trends: the worst-known linear trend in uplift has {error} times the standard error of "
        "the best-known one.",
    ]
    if np.isfinite(diagnosis.implied_outside):
        lines.append(
            f"Implied means: for {diagnosis.implied_outside:.0%} of outcome rows the mean outcome "
            "with or without treatment that a plain fit implies is beyond the outcome's two "
            "values. Noise can do that; a test below says whether it is more."
        )
    return lines


def result_tables(diagnosis: Diagnosis) -> list[ResultTable]:
    """Return the tables that are shown, as text, those without rows left out."""
    d = diagnosis
    of_two: list[tuple[str, ...]] = [
        (
            ", ".join(map(str, pair.populations)),
            f"{pair.mean_gap:+.2f}",
            f"{pair.rms_gap:.2f}",
            _number(pair.f_statistic) + (" (weak)" if pair.is_weak else ""),
        )
        for pair in d.identification.pairs
    ]
    regions: list[tuple[str, ...]] = [
        (r.where, f"{r.share:.0%}", r.gap_words, _number(r.strength), r.verdict) for r in d.regions
    ]
    apart: list[tuple[str, ...]] = [
        (b.where, b.feature, f"{b.difference:+.3f}") for b in d.balance + d.between
    ]
    tests: list[tuple[str, ...]] = [
        (c.what, c.where, f"{c.statistic:.2f}", _p(c.p_value), _p(c.corrected)) for c in d.checks
    ]
    covered: list[tuple[str, ...]] = [
        (
            f"{cell.kind} table of {cell.population}",
            f"{cell.n_rows:,}",
            f"{cell.effective_size:,.0f}",
            f"{min(cell.coverage, 1.0):.0%}",
        )
        for cell in d.overlap
    ]
    found = zip(HEADS, (of_two, regions, apart, tests, covered), strict=True)
    return [(*head, rows) for head, rows in found if rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else in_digits(value, 3)


def _p(value: float) -> str:
    if np.isnan(value):
        return "not tested"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def draw_regions(diagnosis: Diagnosis, ax: Axes | None) -> Axes:
    """Draw the policy gap over people, regions as bars in the colours of their verdicts."""
    ax = ax or new_axes(3.8)
    title = diagnosis.as_verdict().title
    ax.set_title(title, color=PAINT[diagnosis.colour], loc="left")
    regions = sorted(diagnosis.regions, key=lambda region: region.gap)
    for y, region in enumerate(regions):
        colour = PAINT[COLOURS[region.verdict]]
        ax.barh(y, region.gap, color=colour, height=0.7)
        ax.annotate(
            f" {region.share:.0%} of people, strength {_number(region.strength)} ",
            (max(region.gap, 0.0), y),
            va="center",
            fontsize="small",
        )
    ax.set_yticks(range(len(regions)), [region.where for region in regions], fontsize="small")
    ax.axvline(0.0, color="0.3", lw=0.8)
    ax.set_xlabel("difference in the chance of treatment")
    ax.margins(x=0.35)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
