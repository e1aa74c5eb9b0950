"""From what was measured to a verdict: what speaks against it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from unjoined.evaluate.checks import COPIED, Doubt
from unjoined.evaluate.diagnosis import COLOURS, Diagnosis, Finding, untested
from unjoined.evaluate.estimate import STRONG
from unjoined.evaluate.regions import IDENTIFIED, MANY, UNKNOWN, WEAK, Regions
from unjoined.evaluate.strength import IdentificationStrength

FEWEST_ROWS = 50  # in a table; below, nothing is measured
FEWEST_EVENTS = 20  # outcome rows with the rarer of two outcomes
NO_GAP = 2.5  # standard errors; with equal policies the statistic is above it in 3 % of draws
SURE = 0.001  # corrected p-value of what is taken as refuted
SMALL_SHARE = 0.05  # of people or rows that is passed over
SMALL_DIFFERENCE, TINY_DIFFERENCE = 0.1, 0.05  # standard deviations
HARDLY_APART = 0.55  # as the next one; below, a difference is small
# Chance that trees put a pair of rows from two tables in the right order: from the first on few
# people of one have a like in the other, from the second on hardly anyone.
MOSTLY_APART, APART = 0.9, 0.99
THIN, UNCOVERED = 0.05, 0.5  # share of rows that count, share of the target that is covered
ORDER = (UNKNOWN, WEAK, IDENTIFIED)
GIVE_EVERYONE = (
    "Give everyone of {}, or a random sample, with 1 for those who were treated and 0 for the "
    "others."
)
TWO_TABLES = "outcome and treatment table of {}"  # as a Balance says where it was measured


class Asides(NamedTuple):
    """What the verdict rests on besides the results that are shown."""

    rarest: int | None = None  # outcome rows with the rarer of two outcomes
    doubts: tuple[Doubt, ...] = ()  # of tables by themselves
    strange: tuple[str, ...] = ()  # values of the target such as no table has
    z: float = math.nan  # of the policy gap over all people
    regions: Regions | None = None
    apart: str = ""  # why the target cannot be reached, if so


def judge(measured: Diagnosis, asides: Asides) -> Diagnosis:
    """Return the diagnosis with its verdict, as good as the worst finding allows."""
    sources = {
        "rows": _rows,
        "sharing": _sharing,
        "balance": _balance,
        "law": _refuted,
        "strength": _strength,
        "regions": _regions,
        "target": _overlap,
        "populations": _between,
    }
    findings = [
        replace(finding, topic=topic)
        for topic, source in sources.items()
        for finding in source(measured, asides)
    ]
    findings.sort(key=lambda finding: ORDER.index(finding.verdict))
    verdict = findings[0].verdict if findings else IDENTIFIED
    return replace(measured, verdict=verdict, findings=tuple(findings))


def verdict_of_fit(strength: IdentificationStrength, doubts: Sequence[Doubt]) -> dict[str, str]:
    """Return the verdict that a fit can give by itself, as `Diagnosis.as_verdict` does.

    It knows how far the policies are apart and what is wrong with tables by themselves.
    """
    f = strength.f_statistic
    if doubts:
        verdict, words = UNKNOWN, f"{str(doubts[0])[:1].upper()}{str(doubts[0])[1:]}"
    else:
        if strength.is_weak:
            verdict = UNKNOWN
            words = "The policies are too alike to tell uplift, so do not act on this ranking"
        elif f < STRONG:
            verdict = WEAK
            words = "The policies differ just enough; look at the intervals before you act"
        else:
            verdict, words = IDENTIFIED, "The policies differ enough to tell uplift"
        words += f" (first-stage F = {f:,.0f}). Nothing else was checked."
        if verdict != UNKNOWN:
            words = f"{words} {untested(strength.populations)}".rstrip()
    return {"verdict": verdict, "colour": COLOURS[verdict], "words": words}


def _rows(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for enough rows in each table, and enough of the rarer outcome."""
    few = min((t for t in d.tables if t.kind != "target"), key=lambda table: table.n_rows)
    if few.n_rows < FEWEST_ROWS:
        yield Finding(
            UNKNOWN,
            f"the {few.kind} table of {few.population} is too short ({few.n_rows}): nothing can be "
            f"measured with fewer than {FEWEST_ROWS} rows in each table.",
            "Collect more rows; plan_study says how many a wanted precision needs.",
        )
    treatments = [table for table in d.tables if table.kind == "treatment"]
    if all(table.label_mean == 1.0 for table in treatments):
        yield Finding(
            UNKNOWN,
            "every row of every treatment table is treated, as in lists of those who were treated; "
            "they do not say who was not.",
            GIVE_EVERYONE.format("each population"),
        )
    for doubt in a.doubts:
        if doubt.what != COPIED:  # which the shared rows tell
            yield Finding(UNKNOWN, doubt.text, doubt.remedy)
    if a.rarest is not None and a.rarest < FEWEST_EVENTS:
        yield Finding(
            WEAK,
            f"only {a.rarest} outcome rows have the rarer of the two outcomes.",
            f"Collect outcome rows until there are {FEWEST_EVENTS} or more, or take an outcome "
            "that is less rare.",
        )


def _sharing(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Refuse one table given twice, and tell of people who are in several tables."""
    for s in d.shared:
        if s.share < SMALL_SHARE:
            continue
        rows = "all rows" if s.share > 0.995 else f"{s.share:.0%} of the rows"
        if s.same_labels:
            yield Finding(
                UNKNOWN if s.share > 0.5 else WEAK,
                f"{s.where} have {rows} in common, labels included, as if one file had been given "
                "twice.",
                "Give each population its own rows.",
            )
        elif "outcome table" in s.where and "treatment table" in s.where:
            yield Finding(
                UNKNOWN if s.share > 0.9 else WEAK,
                f"{s.where} have {rows} in common, so that these are not separate draws.",
                "If both labels of a person are known, join the rows on their features and use an "
                "ordinary uplift model; else give each table its own rows.",
            )
        else:
            yield Finding(
                IDENTIFIED,
                f"{rows.capitalize()} of {s.where} are equal in all features, with labels of their "
                "own, as if the same people were in both.",
                "Intervals take the tables as drawn apart, and may be too wide or too narrow.",
            )


def _strength(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for policies that differ over all people."""
    if d.gap is None:
        return
    vary = "Compare populations or periods treated differently, or vary treatment at random"
    if a.z < NO_GAP:
        yield Finding(
            UNKNOWN,
            f"the policies cannot be told apart (z = {a.z:.1f}, below {NO_GAP:g}).",
            f"{vary}; more rows help only where there is a difference.",
        )
    elif a.z**2 < STRONG:
        yield Finding(
            WEAK,
            f"the policies differ too little for these rows (strength {a.z**2:.1f}, below "
            f"{STRONG:g}); only intervals that allow for it hold, and they are wide.",
            f"{vary}, or collect more rows; plan_study says how many.",
        )


def _regions(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask for policies that differ in each region, if they do over all people."""
    if a.regions is None or a.z < NO_GAP:
        return
    where, share = a.regions.name((WEAK, UNKNOWN))
    if share >= SMALL_SHARE:
        whom = "everyone" if where == "everyone" else f"those where {where}"
        whose = "the target" if d.overlap else "people"
        yield Finding(
            WEAK if share > 1.0 - MANY else IDENTIFIED,
            f"policies differ too little for {whom} ({share:.0%} of {whose}).",
            "Draw no conclusion about them alone: averages already leave them out. To learn "
            "about them, vary their treatment or collect more rows.",
        )


def _balance(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask that the two tables of a population describe the same people."""
    treated = {t.population for t in d.tables if t.kind == "treatment" and t.label_mean == 1.0}
    for balance in d.balance:
        tests = [check for check in d.checks if check.where == balance.where]
        rejected = [check for check in tests if check.is_rejected]
        if not rejected:
            continue
        sure = min(check.corrected for check in rejected) < SURE
        size = abs(balance.difference)
        if size < TINY_DIFFERENCE and not balance.told_apart > HARDLY_APART:
            verdict = IDENTIFIED  # what many rows show of a difference that hardly matters
        else:
            verdict = UNKNOWN if sure and size >= SMALL_DIFFERENCE else WEAK
        differs = (
            f"({balance.feature} differs by {balance.difference:+.2f} standard deviations; "
            f"corrected p {min(check.corrected for check in rejected):.2g})"
        )
        lists = [name for name in treated if balance.where == TWO_TABLES.format(name)]
        if lists:
            yield Finding(
                verdict,
                f"every row of the treatment table of {lists[0]} is treated, and the outcome table "
                f"describes other people {differs}: it seems to list only those who were treated.",
                GIVE_EVERYONE.format(lists[0]),
            )
            continue
        yield Finding(
            verdict,
            f"the {balance.where} describe different people {differs}.",
            "Find out how their rows were selected, and give tables of the same people; or weight "
            "them to one target with shift='classifier'.",
        )


def _refuted(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Tell of a law of outcomes that the tables contradict."""
    for check in d.checks:
        if check.where == "all tables" and check.is_rejected:
            yield Finding(
                UNKNOWN if check.corrected < SURE else WEAK,
                f"the tables contradict that outcomes depend on features and treatment alone "
                f"({check.what}: corrected p {check.corrected:.2g}).",
                "Look for what else differs between the populations, such as season, price or how "
                "outcomes are counted, and add it as a feature or choose other populations.",
            )


def _overlap(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Ask that the tables hold people like those of the target."""
    if a.apart:
        yield Finding(UNKNOWN, a.apart, "As they are, the tables say nothing about the target.")
    if a.strange:
        yield Finding(
            IDENTIFIED,
            f"the target has values that no table has: {'; '.join(a.strange)}.",
            "Uplift of such people is a guess; check how these columns were written.",
        )
    for cell in d.overlap:
        if cell.effective_size < THIN * cell.n_rows or cell.coverage < UNCOVERED:
            yield Finding(
                WEAK,
                f"few rows of the {cell.kind} table of {cell.population} resemble the target "
                f"({cell.n_rows:,} are worth {cell.effective_size:,.0f}, and cover "
                f"{min(cell.coverage, 1.0):.0%} of it).",
                "Restrict the target to people like those in the tables.",
            )


def _between(d: Diagnosis, a: Asides) -> Iterator[Finding]:
    """Tell of populations whose people differ."""
    for balance in d.between:
        size = abs(balance.difference)
        apart = balance.told_apart > APART
        differ = size >= SMALL_DIFFERENCE and any(c.is_rejected for c in balance.checks)
        if not apart and not differ:
            continue
        what = (
            f"populations {balance.where} differ in their features ({balance.feature} by "
            f"{balance.difference:+.2f} standard deviations)"
        )
        if apart:
            yield Finding(
                UNKNOWN,
                f"{what}, so much that hardly anyone of one has a like in the other.",
                "Leave out features that give the population away, such as a region or a date.",
            )
        else:
            yield Finding(
                WEAK if balance.told_apart > MOSTLY_APART else IDENTIFIED,
                f"{what}.",
                "Uplift allows for it where both have rows; other estimators need "
                "shift='classifier'.",
            )
