"""From what was measured to a verdict: what speaks against it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from unjoined.evaluate.checks import (
    ALIKE,
    ALL_TABLES,
    CLAIMED,
    COPIED,
    PANEL,
    Doubt,
    Pooled,
)
from unjoined.evaluate.estimate import IDENTIFIED, MANY, STRONG, UNKNOWN, WEAK
from unjoined.evaluate.regions import Regions
from unjoined.evaluate.strength import IdentificationStrength
from unjoined.words import FINDINGS, untested_in_words

if TYPE_CHECKING:
    from unjoined.evaluate.diagnosis import Diagnosis

FEWEST_ROWS = 50  # in a table; below, nothing is measured
FEWEST_EVENTS = 20  # outcome rows with the rarer of two outcomes
NO_GAP = 2.5  # standard errors; with equal policies the statistic is above it in 3 % of draws
SURE = 0.001  # corrected p-value of what is taken as refuted
SMALL_SHARE = 0.05  # of people or rows that is passed over
NEARLY_ALL_ROWS = 0.995
SMALL_DIFFERENCE, TINY_DIFFERENCE = 0.1, 0.05  # standard deviations
HARDLY_APART = 0.55  # as the next one; below, a difference is small
# Chance that trees put a pair of rows from two tables in the right order: from the first on few
# people of one have a like in the other, from the second on hardly anyone.
MOSTLY_APART, APART = 0.9, 0.99
THIN, UNCOVERED = (
    0.05,
    0.5,
)  # share of rows that count, share of the target that is covered
GREEN, AMBER, RED = "green", "amber", "red"
COLOURS = {IDENTIFIED: GREEN, WEAK: AMBER, UNKNOWN: RED}
PAINT = {GREEN: "#2e7d32", AMBER: "#b26a00", RED: "#c62828"}
ORDER = (UNKNOWN, WEAK, IDENTIFIED)
NEXT_STEPS = {
    IDENTIFIED: "fit a model (unjoined fit) and judge it on rows it has not seen (unjoined "
    "evaluate). What no table can show stays an assumption: outcomes depend on features and "
    "treatment alone, in the same way in each population.",
    WEAK: "mend what is named above if you can. A model can be fitted as it is, but trust the "
    "intervals of unjoined evaluate more than any single number; unjoined plan-study says how many "
    "rows would do.",
    UNKNOWN: "do not act on a model of these tables before what is named above is mended. unjoined "
    "plan-study says how many rows, and how large a gap, a wanted precision needs.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that speaks against a verdict of "identified", and what to do about it.

    Attributes
    ----------
    verdict : str
        The best verdict that is left: "weakly identified" or "not identified"; "identified" for
        a remark that changes nothing.
    code : str
        What was found: a topic, a dot and the case, such as "rows.short".
    numbers : dict
        How much of it, and where.
    """

    verdict: str
    code: str
    numbers: dict[str, Any]

    @property
    def topic(self) -> str:
        """What it is about, such as rows, balance, law, strength, regions, target, sensitivity."""
        return self.code.partition(".")[0]

    @property
    def what(self) -> str:
        """What was found, a sentence."""
        return FINDINGS[self.code][0].format(**self.numbers)

    @property
    def remedy(self) -> str:
        """What to do about it, a sentence."""
        return FINDINGS[self.code][1].format(**self.numbers)

    def to_dict(self) -> dict[str, str]:
        """Return it in words, ready for JSON."""
        return {
            name: getattr(self, name) for name in ("verdict", "what", "remedy", "topic")
        }

    def __str__(self) -> str:
        """Return both sentences."""
        return f"{self.what[:1].upper()}{self.what[1:]} {self.remedy}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether tables identify uplift: a grade and what it rests on.

    Attributes
    ----------
    grade : str
        "identified", "weakly identified" or "not identified".
    findings : tuple of Finding
        What speaks against a better one, the worst first.
    populations : tuple of str
        Whose policies were compared.
    strong : float or None
        Share of people whose policies differ enough; None if a fit judged by itself, which looks
        at all people together and at nothing else.
    is_randomised : bool
        Whether chance decided who is in which population, so that the answer is for those who are
        treated because of it.
    has_panel : bool
        Whether rows with both labels test that people respond alike in all populations.
    """

    grade: str
    findings: tuple[Finding, ...]
    populations: tuple[str, ...]
    strong: float | None = None
    is_randomised: bool = False
    has_panel: bool = False

    @property
    def colour(self) -> str:
        """The grade as a colour: "green", "amber" or "red"."""
        return COLOURS[self.grade]

    @property
    def is_partial(self) -> bool:
        """Whether nothing is wrong but that some people are treated too much alike."""
        regions = self.grade == WEAK and self.findings[0].topic == "regions"
        return regions and bool(self.strong)

    @property
    def is_settled(self) -> bool:
        """Whether a check of all kinds of people has found that policies differ enough for some.

        A warning of weak policies rests on one number for all people and is answered by it.
        """
        return self.strong is not None and (self.grade == IDENTIFIED or self.is_partial)

    @property
    def title(self) -> str:
        """The grade in a few words."""
        if self.is_partial:
            return f"Identified for {self.strong:.0%} of people, weakly for the others"
        return self.grade.capitalize()

    @property
    def ground(self) -> str:
        """The worst finding, or for whom the policies differ enough."""
        if self.grade == IDENTIFIED and self.strong is not None:
            whom = "all" if self.strong > NEARLY_ALL_ROWS else f"{self.strong:.0%} of"
            what = "The policies differ enough"
            if self.has_panel or len(self.populations) == 1:
                what = "What is known of treatment is enough"
            return f"{what} for {whom} people."
        return str(self.findings[0])

    @property
    def reason(self) -> str:
        """What the grade rests on, and what was not tested."""
        return f"{self.ground} {self.untested}".rstrip()

    @property
    def untested(self) -> str:
        """What an answer assumes that these tables cannot show; empty if there is no answer."""
        refuted = any(finding.code == "panel.refuted" for finding in self.findings)
        if self.grade == UNKNOWN or refuted:
            return ""
        return untested_in_words(
            self.populations,
            is_randomised=self.is_randomised,
            has_panel=self.has_panel,
            is_tested=self.strong is not None,
        )

    @property
    def words(self) -> str:
        """All of it in one line."""
        return self.reason if self.strong is None else f"{self.title}. {self.reason}"

    def to_dict(self) -> dict[str, str]:
        """Return what other programs need of it: a word, its colour, words."""
        return {"verdict": self.grade, "colour": self.colour, "words": self.words}


class Asides(NamedTuple):
    """What the verdict rests on besides the results that are shown."""

    rarest: int | None = None  # outcome rows with the rarer of two outcomes
    doubts: tuple[Doubt, ...] = ()  # of tables by themselves
    strange: tuple[str, ...] = ()  # values of the target such as no table has
    z: float = math.nan  # of the policy gap over all people
    regions: Regions | None = None
    apart: str = ""  # why the target cannot be reached, if so
    pooled: tuple[Pooled, ...] = ()  # columns that split populations


def judge(measured: Diagnosis, asides: Asides) -> Diagnosis:
    """Return the diagnosis with its verdict, as good as the worst finding allows."""
    sources = (
        _rows,
        _sharing,
        _balance,
        _refuted,
        _strength,
        _regions,
        _overlap,
        _between,
        _hidden,
    )
    findings = [finding for source in sources for finding in source(measured, asides)]
    findings.sort(key=lambda finding: ORDER.index(finding.verdict))
    verdict = findings[0].verdict if findings else IDENTIFIED
    return replace(measured, verdict=verdict, findings=tuple(findings))


def verdict_of_fit(
    strength: IdentificationStrength, doubts: Sequence[Doubt]
) -> Verdict:
    """Return the verdict that a fit can give by itself.

    It knows how far the policies are apart and what is wrong with tables by themselves.
    """
    if doubts:
        finding = _doubt(doubts[0])
    elif strength.is_weak:
        finding = _finding(UNKNOWN, "fit.no gap", f=strength.f_statistic)
        if len(strength.populations) == 1:
            finding = _finding(UNKNOWN, "strength.one")
    elif strength.is_known or strength.n_joint:
        finding = _finding(IDENTIFIED, "fit.known")
    elif strength.f_statistic < STRONG:
        finding = _finding(WEAK, "fit.small gap", f=strength.f_statistic)
    else:
        finding = _finding(IDENTIFIED, "fit.gap", f=strength.f_statistic)
    return Verdict(
        finding.verdict,
        (finding,),
        tuple(map(str, strength.populations)),
        has_panel=strength.n_joint > 0,
    )


def _finding(verdict: str, code: str, **numbers: Any) -> Finding:
    return Finding(verdict, code, numbers)


def _doubt(doubt: Doubt) -> Finding:
    return _finding(UNKNOWN, "rows.doubt", doubt=doubt.text, remedy=doubt.remedy)


def _rows(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for enough rows in each table, and enough of the rarer outcome."""
    kinds = ("outcome", "treatment")
    few = min((t for t in d.tables if t.kind in kinds), key=lambda table: table.n_rows)
    if few.n_rows < FEWEST_ROWS:
        yield _finding(
            UNKNOWN,
            "rows.short",
            kind=few.kind,
            population=few.population,
            rows=few.n_rows,
            fewest=FEWEST_ROWS,
        )
    treatments = [table for table in d.tables if table.kind == "treatment"]
    if treatments and all(table.is_all_treated for table in treatments):
        yield _finding(UNKNOWN, "rows.all treated", whom="each population")
    for doubt in a.doubts:
        if doubt.what != COPIED:  # which the shared rows tell
            yield _doubt(doubt)
    if a.rarest is not None and a.rarest < FEWEST_EVENTS:
        yield _finding(WEAK, "rows.rare outcome", rows=a.rarest, fewest=FEWEST_EVENTS)


def _sharing(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Refuse one table given twice, and tell of people who are in several tables."""
    for s in d.shared:
        if s.share < SMALL_SHARE:
            continue
        rows = "all rows" if s.share > NEARLY_ALL_ROWS else f"{s.share:.0%} of the rows"
        if s.same_labels:
            grade = UNKNOWN if s.share > 0.5 else WEAK
            yield _finding(grade, "sharing.copied", where=s.where, rows=rows)
        elif s.same_labels is None:
            grade = UNKNOWN if s.share > 0.9 else WEAK
            yield _finding(grade, "sharing.both labels", where=s.where, rows=rows)
        else:
            yield _finding(IDENTIFIED, "sharing.same people", where=s.where, rows=rows)


def _strength(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for policies that differ over all people."""
    if d.gap is None:
        return
    if a.z < NO_GAP and len(d.identification.populations) == 1:
        yield _finding(UNKNOWN, "strength.one")
    elif a.z < NO_GAP:
        yield _finding(UNKNOWN, "strength.no gap", z=float(a.z), least=NO_GAP)
    elif a.z**2 < STRONG:
        yield _finding(WEAK, "strength.small gap", strength=float(a.z**2), least=STRONG)


def _regions(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for policies that differ in each region, if they do over all people."""
    if a.regions is None or a.z < NO_GAP:
        return
    where, share = a.regions.name((WEAK, UNKNOWN))
    if share >= SMALL_SHARE:
        everyone = all(region.verdict != IDENTIFIED for region in a.regions.leaves)
        yield _finding(
            WEAK if share > 1.0 - MANY else IDENTIFIED,
            "regions.small gap",
            whom="everyone" if everyone else f"those where {where}",
            share=float(share),
            whose="the target" if d.overlap else "people",
        )


def _balance(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask that the two tables of a population describe the same people."""
    tables = {t.population: t for t in d.tables if t.kind == "treatment"}
    treated = {name for name, table in tables.items() if table.is_all_treated}
    for name, balance in zip(tables, d.balance, strict=True):
        tests = [check for check in d.checks if check.where == balance.where]
        rejected = [check.corrected for check in tests if check.is_rejected]
        if not rejected:
            continue
        size = abs(balance.difference)
        if size < TINY_DIFFERENCE and not balance.told_apart > HARDLY_APART:
            grade = (
                IDENTIFIED  # what many rows show of a difference that hardly matters
            )
        else:
            grade = (
                UNKNOWN if min(rejected) < SURE and size >= SMALL_DIFFERENCE else WEAK
            )
        differs = {
            "feature": balance.feature,
            "difference": float(balance.difference),
            "p": float(min(rejected)),
        }
        if name in treated:
            yield _finding(grade, "balance.only treated", whom=name, **differs)
        else:
            yield _finding(
                grade, "balance.different people", where=balance.where, **differs
            )


def _refuted(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Tell of a law of outcomes that the tables contradict."""
    for check in d.checks:
        if not check.is_rejected:
            continue
        grade = UNKNOWN if check.corrected < SURE else WEAK
        p = float(check.corrected)
        if check.what == CLAIMED:
            yield _finding(grade, "policy.refuted", where=check.where, p=p)
        elif check.what == ALIKE:
            yield _finding(grade, "panel.treated", where=check.where, p=p)
        elif check.what.startswith(PANEL):
            what = check.what.removeprefix(PANEL).strip(" ()")
            yield _finding(grade, "panel.refuted", what=what, p=p)
        elif check.where == ALL_TABLES:
            yield _finding(grade, "law.refuted", what=check.what, p=p)


def _overlap(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask that the tables hold people like those of the target."""
    if a.apart:
        yield _finding(UNKNOWN, "target.out of reach", why=a.apart)
    if a.strange:
        yield _finding(IDENTIFIED, "target.new values", values="; ".join(a.strange))
    for cell in d.overlap:
        if cell.effective_size < THIN * cell.n_rows or cell.coverage < UNCOVERED:
            yield _finding(
                WEAK,
                "target.few alike",
                kind=cell.kind,
                population=cell.population,
                rows=cell.n_rows,
                worth=float(cell.effective_size),
                coverage=min(float(cell.coverage), 1.0),
            )


def _pooled(d: Diagnosis, a: Asides) -> Finding | None:
    """Tell of a population that is made of periods or regions whose people respond unalike."""
    turns = d.sensitivity
    if turns is None:
        return None
    large = TINY_DIFFERENCE * turns.sigma
    found = [p for p in a.pooled if p.p_value < 0.05 and p.difference > large]
    if not found:
        return None
    worst = max(found, key=lambda each: each.difference)
    return _finding(
        UNKNOWN,
        "populations.pooled",
        column=worst.column,
        population=worst.population,
        difference=turns.said(worst.difference),
        p=worst.p_value,
    )


def _between(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Tell of populations whose people differ."""
    pooled = _pooled(d, a)
    if pooled is not None:
        yield pooled
    for balance in d.between:
        large = abs(balance.difference) >= SMALL_DIFFERENCE
        grade, code = IDENTIFIED, "populations.differ"
        if balance.told_apart > APART:
            if pooled is not None:
                continue  # to leave the column out, as is usual, would hide what it shows
            grade, code = UNKNOWN, "populations.apart"
        elif not (large and any(check.is_rejected for check in balance.checks)):
            continue
        elif balance.told_apart > MOSTLY_APART:
            grade = WEAK
        yield _finding(
            grade,
            code,
            where=balance.where,
            feature=balance.feature,
            difference=float(balance.difference),
        )


def _hidden(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Tell where a hidden trait as telling as an ordinary column would turn the average."""
    turns = d.sensitivity
    if turns is None or not turns.average.breakdown(turns.level) > 0.0:
        return
    if (usual := turns.overturns(turns.average)) is not None:
        yield _finding(
            WEAK,
            "sensitivity.ordinary",
            column=usual.column,
            share=turns.ordinary_share,
            delta=turns.said(usual.delta),
            breakdown=turns.said(turns.average.breakdown()),
        )
