"""What a report says in words: the verdict, what it rests on, and what would break it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unjoined._validation import OUTCOME
from unjoined.metrics import Estimate
from unjoined.report.facts import Facts, Stage

GREEN, AMBER, RED = "green", "amber", "red"
ORDER = (RED, AMBER, GREEN)
TRUST = {
    GREEN: "Good: you can act on it",
    AMBER: "With care",
    RED: "Do not rely on it",
}
TELL = {
    GREEN: "The tables can tell.",
    AMBER: "The tables can tell, with limits.",
    RED: "The tables cannot tell.",
}
UNBOUNDED = "the tables cannot bound it"
FAR = 0.05  # share of people unlike those of the tables that is worth a word
MOSTLY = 0.9  # share of the variance that is due to outcomes from which other rows hardly help
MISFIT = 0.05  # p-value below which predicted and measured uplift disagree


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that trust rests on: how good it is, and a sentence."""

    colour: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, what it brings and how far to trust it."""

    colour: str
    headline: str
    sentences: tuple[str, ...]
    reasons: tuple[Reason, ...]
    options: tuple[tuple[str, Stage], ...] = ()  # what could be done, and what it brings

    @property
    def trust(self) -> str:
        """How far to trust it, in words."""
        return TRUST[self.colour]


def number(value: float) -> str:
    """Return a number with three or four digits, commas between thousands, no exponent."""
    if not math.isfinite(value):
        return "not known" if math.isnan(value) else "unbounded"
    size = abs(value)
    said = rounded(value, digits(size))
    if size and not any(digit in "123456789" for digit in said):
        return f"{value:.1e}"
    return "0" if not size else said


def rounded(value: float, places: int, *, sign: bool = False) -> str:
    """Return a number with some places; large ones keep four digits, and 0 has no sign."""
    if not math.isfinite(value):
        return number(value)
    said = f"{float(f'{value:.4g}') if abs(value) >= 1e4 else value:,.{places}f}"
    if not any(digit in "123456789" for digit in said):
        return said.removeprefix("-")
    return f"+{said}" if sign and value > 0.0 else said


def interval(low: float, high: float, places: int, *, sign: bool = False) -> str:
    """Return both ends of an interval, or that there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNBOUNDED
    return f"{rounded(low, places, sign=sign)} to {rounded(high, places, sign=sign)}"


def places_of(size: float) -> int:
    """Return how many places show two digits of an uncertainty."""
    known = math.isfinite(size) and size > 0.0
    return min(max(1 - math.floor(math.log10(size)), 0), 6) if known else 0


def digits(size: float) -> int:
    """Return how many places a number of some size is written with."""
    return 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3


class Speech:
    """How the numbers of one report are written: units, money, intervals."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.factor = 100.0 if facts.is_binary else 1.0
        self.per = "per 100 people" if facts.is_binary else "per person"
        self.percent = f"{facts.level:.0%}"
        low, high = facts.evaluation.average.interval(facts.level)
        coarse = places_of(self.factor * (high - low) / 2.0)
        fine = places_of(self.factor * float(facts.uplift.std()))
        self.rate_places = min(max(coarse, fine), coarse + 2)
        widest = max(facts.chosen, facts.everyone, key=lambda stage: stage.people)
        sure = facts.chosen if facts.chosen.people else widest
        self.gain_places = places_of((sure.high - sure.low) / 2.0)
        self.money_places = 0 if max(map(abs, (*widest.net(facts.terms),))) >= 1000.0 else 2

    def said(self, value: float) -> str:
        """Return an uplift that is already in this report's scale."""
        return rounded(value, self.rate_places, sign=True)

    def span(self, low: float, high: float) -> str:
        """Return the interval of an uplift that is already in this report's scale."""
        return interval(low, high, self.rate_places, sign=True)

    def rate(self, value: float) -> str:
        """Return an uplift: of 100 people if the outcome is 0 or 1, else of one."""
        return self.said(self.factor * value)

    def rates(self, estimate: Estimate) -> str:
        """Return the interval of an uplift."""
        low, high = estimate.interval(self.facts.level)
        return self.span(self.factor * low, self.factor * high)

    def estimate(self, estimate: Estimate) -> str:
        """Return an uplift with its interval."""
        return f"{self.rate(estimate.value)} ({self.percent} interval {self.rates(estimate)})"

    def amount(self, value: float) -> str:
        """Return an amount of money without its currency."""
        return rounded(value, self.money_places)

    def money(self, value: float) -> str:
        """Return an amount of money."""
        return f"{self.amount(value)} {self.facts.terms.currency}".strip()

    def gain(self, stage: Stage) -> tuple[str, str]:
        """Return what a stage brings, and the interval of it."""
        places = self.gain_places
        return rounded(stage.gain, places), interval(stage.low, stage.high, places)

    def net(self, stage: Stage) -> tuple[str, str]:
        """Return what a stage brings in money after costs, and the interval of it."""
        net, low, high = stage.net(self.facts.terms)
        return self.amount(net), interval(low, high, self.money_places)


def judge(facts: Facts, speech: Speech) -> Verdict:
    """Say what to do, and be as sure of it as the worst reason allows."""
    reasons = (
        _tables(facts),
        _ranking(facts, speech),
        _gain(facts),
        *_calibration(facts),
        *_people(facts),
    )
    colour = min((reason.colour for reason in reasons), key=ORDER.index)
    chosen = facts.chosen
    if colour == RED:
        headline = "Do not choose people by these scores yet."
    elif chosen.share <= 0.0:
        headline = "Treat nobody."
    elif chosen.share >= 1.0:
        headline = "Treat everyone."
    else:
        headline = f"Treat the {chosen.share:.0%} of people with the highest scores."
    sentences = (
        "The reasons below say what is missing. The numbers further down are kept for those who "
        "look into it. Do not base a decision on them.",
    )
    if colour == RED:
        against = tuple(reason for reason in reasons if reason.colour != GREEN)
        return Verdict(colour, headline, sentences, against)
    return Verdict(colour, headline, _expected(facts, speech), reasons, _options(facts))


def verdict_numbers(facts: Facts) -> dict[str, Any]:
    """Return all that the verdict says, for other programs: gains in outcome units, and money."""
    verdict, level = judge(facts, Speech(facts)), facts.level

    def known(value: float, low: float, high: float) -> dict[str, float]:
        return {"value": value, "low": low, "high": high, "level": level}

    def brought(stage: Stage) -> dict[str, Any]:
        found: dict[str, Any] = {"people": stage.people, "share": stage.share}
        found |= {"cost": facts.terms.cost * stage.people}
        found |= {"gain": known(stage.gain, stage.low, stage.high)}
        return found | ({"net": known(*stage.net(facts.terms))} if facts.terms.has_money else {})

    evaluation = facts.evaluation
    measures = {
        "average_effect": evaluation.average,
        "auuc": evaluation.auuc,
        "qini": evaluation.qini,
    }
    return {
        "verdict": verdict.headline,
        "colour": verdict.colour,
        "trust": verdict.trust,
        "reasons": [{"colour": r.colour, "words": r.sentence} for r in verdict.reasons],
        "rows": len(facts.people),
        "treated": brought(facts.chosen),
        "options": [{"name": name} | brought(stage) for name, stage in verdict.options],
    } | {
        name: known(estimate.value, *estimate.interval(level))
        for name, estimate in measures.items()
    }


def _expected(facts: Facts, speech: Speech) -> tuple[str, ...]:
    """Say what the choice brings."""
    chosen, terms = facts.chosen, facts.terms
    if chosen.share <= 0.0:
        return ()
    gain, ends = speech.gain(chosen)
    said = (
        f"Of {len(facts.people):,} people, treat {chosen.people:,.0f}. Compared with treating "
        f"nobody, this is expected to bring {gain} {terms.unit} ({speech.percent} interval: "
        f"{ends}).",
    )
    if not terms.has_money:
        return said
    net, ends = speech.money(chosen.net(terms)[0]), speech.net(chosen)[1]
    return (*said, f"In money: {net} after costs ({speech.percent} interval: {ends}).")


def _options(facts: Facts) -> tuple[tuple[str, Stage], ...]:
    """Return what else could be done, each with what it is expected to bring."""
    chosen, everyone = facts.chosen, facts.everyone
    if chosen.share >= 1.0:
        return ()
    if chosen.share <= 0.0:
        return (("everyone", everyone),)
    share = chosen.share
    parts = (share * part for part in (everyone.gain, everyone.low, everyone.high))
    return (
        ("the people advised", chosen),
        ("as many, picked at random", Stage(share, chosen.people, *parts)),
        ("everyone", everyone),
    )


def _tables(facts: Facts) -> Reason:
    diagnosis = facts.diagnosis
    start = TELL[diagnosis.colour]
    if diagnosis.colour == GREEN:
        return Reason(GREEN, f"{start} {diagnosis.headline.removeprefix('Identified. ')}")
    return Reason(diagnosis.colour, f"{start} {diagnosis.findings[0]}")


def _ranking(facts: Facts, speech: Speech) -> Reason:
    qini = facts.evaluation.qini
    low, high = qini.interval(facts.level)
    if not math.isfinite(low) or not math.isfinite(high):
        return Reason(RED, "How good the ranking is cannot be told from these tables.")
    found = f"Qini {speech.estimate(qini)}, {speech.per}"
    if low > 0.0:
        return Reason(GREEN, f"The ranking beats a random order on rows it had not seen: {found}.")
    if high < 0.0:
        return Reason(RED, f"The ranking does worse than a random order: {found}.")
    return Reason(
        AMBER,
        f"The tables do not show that the ranking beats a random order: {found}. Treating everyone "
        "or nobody may do as well.",
    )


def _gain(facts: Facts) -> Reason:
    chosen, terms = facts.chosen, facts.terms
    low, high = (chosen.low, chosen.high) if not terms.has_money else chosen.net(terms)[1:]
    what = "expected gain after costs" if terms.has_money else "expected gain"
    if chosen.share <= 0.0:
        return Reason(GREEN, "The model predicts that treating anyone costs more than it brings.")
    if not (math.isfinite(low) and math.isfinite(high)):
        return Reason(RED, f"The {what} is not known: {UNBOUNDED}.")
    if low > 0.0:
        return Reason(GREEN, f"The {what} is clearly above zero.")
    if high < 0.0:
        return Reason(RED, f"The {what} is clearly below zero, against what the model predicts.")
    return Reason(AMBER, f"The {what} may be zero or below: its interval reaches both sides.")


def _calibration(facts: Facts) -> list[Reason]:
    p = facts.evaluation.calibration.p_value
    if p is None or math.isnan(p):
        return []
    if p < MISFIT:
        return [
            Reason(
                AMBER,
                "Predicted uplift is off in size, so use it for the order of people; expected "
                "gains here are measured, not predicted.",
            )
        ]
    return [Reason(GREEN, "Predicted and measured uplift agree within chance.")]


def _people(facts: Facts) -> list[Reason]:
    if not facts.own_people or math.isnan(facts.outside):
        return []
    if facts.outside > FAR:
        return [
            Reason(
                AMBER,
                f"{facts.outside:.0%} of the people to score are unlike anyone in the tables, so "
                "their scores are guesses.",
            )
        ]
    return [Reason(GREEN, "The people to score are like those in the tables.")]


def firmer(facts: Facts, speech: Speech) -> str:
    """Say what would make the answer firmer, by the planner."""
    study = facts.study
    if study is None or study.plan.needed is None:
        return "More rows alone do not help here: the policies must differ more."
    now = min(table.n_rows for table in facts.data.summary() if table.kind == OUTCOME)
    rows, width = study.plan.needed.rows, number(speech.factor * study.half_width)
    aim = f"know the {study.name} to within {width} {speech.per}"
    first = f"To {aim}, half of what it is now, collect"
    if study.shows:
        first = f"To show {study.shows}, if it is as it seems, one must {aim}. Collect"
    said = (
        f"{first} about {rows:,} rows in each outcome table, with policies as far apart as now. "
        f"The smallest has {now:,}."
    )
    if study.plan.shares["outcomes"] > MOSTLY:
        said += " More treatment rows would hardly help."
    if study.plan.gap <= 0.5:
        said += " Policies that differ twice as much would need about a quarter of the rows."
    return said


ASSUMPTIONS = (
    (
        "Treatment is the only thing that differs.",
        "At the same features and the same treatment, people of all populations have the same "
        "outcomes on average.",
        "A season, a price or a way of counting outcomes that differs between the populations.",
    ),
    (
        "The policies differ.",
        "Somebody with the same features is treated more often in one population than in another.",
        "The same rule of treatment everywhere. Then there is nothing to compare.",
    ),
    (
        "The two tables of a population describe the same people.",
        "Outcome rows and treatment rows are draws from the same people, at the same time.",
        "An outcome log of buyers only, or a treatment log of members only.",
    ),
    (
        "One person's treatment does not change another's outcome.",
        "Each outcome depends on that person's own treatment.",
        "Word of mouth, or stock that runs out.",
    ),
    (
        "The people to score respond like those in the tables.",
        "What worked for people with these features then works for such people now.",
        "A new product, a new channel, or much time in between.",
    ),
)
