"""What a report says in words: the verdict, what it rests on, and what would break it."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


def signed(value: float) -> str:
    """Return a number with its sign."""
    return f"+{number(value)}" if value > 0.0 and math.isfinite(value) else number(value)


def about(value: float) -> str:
    """Return a number without places, unless it is small."""
    return f"{value:,.0f}" if abs(value) >= 10.0 and math.isfinite(value) else number(value)


def interval(low: float, high: float, *, sign: bool = False) -> str:
    """Return both ends of an interval with the same places, or that there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNBOUNDED
    places = digits(max(abs(low), abs(high)))
    ends = [rounded(end, places) for end in (low, high)]
    first, last = (
        f"+{e}" if sign and v > 0.0 else e for e, v in zip(ends, (low, high), strict=True)
    )
    return f"{first} to {last}"


def rounded(value: float, places: int) -> str:
    """Return a number with some places; of large ones four digits count."""
    return f"{float(f'{value:.4g}') if abs(value) >= 1e4 else value:,.{places}f}"


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

    def rate(self, value: float) -> str:
        """Return an uplift: of 100 people if the outcome is 0 or 1, else of one."""
        return signed(self.factor * value)

    def rates(self, estimate: Estimate) -> str:
        """Return the interval of an uplift."""
        low, high = estimate.interval(self.facts.level)
        return interval(self.factor * low, self.factor * high, sign=True)

    def estimate(self, estimate: Estimate) -> str:
        """Return an uplift with its interval."""
        return f"{self.rate(estimate.value)} ({self.percent} interval {self.rates(estimate)})"

    def money(self, value: float) -> str:
        """Return an amount of money."""
        return f"{number(value)} {self.facts.terms.currency}".strip()

    def gain(self, stage: Stage) -> str:
        """Say what a stage brings, with its interval."""
        ends = interval(stage.low, stage.high)
        return f"{number(stage.gain)} {self.facts.terms.unit} ({self.percent} interval: {ends})"

    def net(self, stage: Stage) -> str:
        """Say what a stage brings in money after costs, with its interval."""
        net, low, high = stage.net(self.facts.terms)
        ends = interval(low, high)
        return f"{self.money(net)} after costs ({self.percent} interval: {ends})"


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
    chosen, n = facts.chosen, len(facts.people)
    if colour == RED:
        headline = "Do not choose people by these scores yet."
    elif chosen.share <= 0.0:
        headline = "Treat nobody."
    elif chosen.share >= 1.0:
        headline = "Treat everyone."
    else:
        headline = f"Treat the {chosen.share:.0%} of people with the highest scores."
    sentences = [] if colour == RED else list(_expected(facts, speech, n))
    if colour == RED:
        sentences.append(
            "The reasons below say what is missing. The numbers further down are kept for those "
            "who look into it; they are no basis for a decision."
        )
    return Verdict(colour, headline, tuple(sentences), reasons)


def _expected(facts: Facts, speech: Speech, n: int) -> list[str]:
    """Say what the choice brings, and what its alternatives would."""
    chosen, everyone, terms = facts.chosen, facts.everyone, facts.terms
    if chosen.share <= 0.0:
        return [f"Treating everyone is expected to bring {speech.gain(everyone)}."]
    said = [
        f"Of {n:,} people, treat {chosen.people:,.0f}. Compared with treating nobody, this is "
        f"expected to bring {speech.gain(chosen)}."
    ]
    if terms.has_money:
        said.append(f"In money: {speech.net(chosen)}.")
    if chosen.share < 1.0:
        some = chosen.share * everyone.gain
        said.append(
            f"As many people picked at random would bring about {about(some)}, and all {n:,} "
            f"people about {about(everyone.gain)}"
            + (f" ({speech.money(everyone.net(terms)[0])} after costs)" if terms.has_money else "")
            + "."
        )
    return said


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


def firmer(facts: Facts, speech: Speech) -> list[str]:
    """Say what would make the answer firmer, by the planner."""
    study = facts.study
    if study is None or study.plan.needed is None:
        return ["More rows alone do not help here: the policies must differ more."]
    now = min(table.n_rows for table in facts.data.summary() if table.kind == OUTCOME)
    rows, width = study.plan.needed.rows, number(speech.factor * study.half_width)
    aim = f"know the {study.name} to within {width} {speech.per}"
    first = f"To {aim}, half of what it is now, collect"
    if study.shows:
        first = f"To show {study.shows}, if it is as it seems, one must {aim}. Collect"
    return [
        f"{first} about {rows:,} rows in each outcome table, with policies as far apart as now. "
        f"The smallest has {now:,}.",
        *study.plan.sentences()[1:],
    ]


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
