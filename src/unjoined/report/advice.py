"""What a report advises: what to do, what it brings and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unjoined._validation import OUTCOME
from unjoined.evaluate.estimate import MANY, NEARLY_ALL, PLENTY, STRONG, Estimate
from unjoined.evaluate.sensitivity import NOTHING
from unjoined.evaluate.verdict import AMBER, GREEN, RED
from unjoined.report.facts import ArmFacts, Facts, Stage
from unjoined.words import (
    NOT_KNOWN,
    UNBOUNDED,
    arms_in_words,
    if_in_words,
    in_digits,
    is_bounded,
    percent,
    places_of,
    rounded,
    span,
)

NOTE = "note"  # of what does not bear on the decision
ORDER = (RED, AMBER, GREEN, NOTE)
TRUST = {
    GREEN: "Good",
    AMBER: "With care",
    RED: "Do not rely on it",
}
STRENGTH = ((PLENTY, "ample"), (STRONG, "enough for the average"), (-1.0, "too weak"))
TELL = {
    GREEN: "The tables identify uplift.",
    AMBER: "The tables identify uplift, with limits.",
    RED: "The tables do not identify uplift.",
}
WithInterval = tuple[str, str]  # a number, and its interval
FAR = 0.05  # share of people unlike those of the tables that is worth a word
MOSTLY = 0.9  # share of the variance that is due to outcomes from which other rows hardly help
MISFIT = 0.05  # p-value below which predicted and measured uplift disagree

Reason = dict[str, str]  # one thing that trust rests on: its colour, and a sentence


def with_ends(
    value: float, low: float, high: float, places: int, *, sign: bool = False
) -> WithInterval:
    """Return a number and both ends of its interval; without an interval it says nothing."""

    def say(number: float) -> str:
        return rounded(number, places, sign=sign)

    return say(value) if is_bounded(low, high) else NOT_KNOWN, span(low, high, say)


class Speech:
    """How the numbers of one report are written: units, money, intervals."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.factor = 100.0 if facts.is_binary else 1.0
        self.per = "per 100 people" if facts.is_binary else "per person"
        self.treat = "make the offer to" if facts.offers else "treat"
        self.treating = "making the offer to" if facts.offers else "treating"
        self.treated = "made the offer" if facts.offers else "treated"
        if facts.diagnosis.identification.is_dose:
            self.treat = "give one unit more to"
            self.treating = "giving one unit more to"
            self.treated = "given one unit more"
        if facts.arm:
            self.treat = f"give {facts.arm} to"
            self.treating = f"giving {facts.arm} to"
            self.treated = f"given {facts.arm}"
        self.percent = f"{facts.level:.0%}"
        low, high = facts.evaluation.average.interval(facts.level)
        coarse = places_of(self.factor * (high - low) / 2.0)
        fine = places_of(self.factor * float(facts.uplift.std()))
        self.rate_places = min(max(coarse, fine), coarse + 2)
        widest = max(facts.chosen, facts.everyone, key=lambda stage: stage.people)
        sure = facts.chosen if facts.chosen.people else widest
        self.gain_places = places_of((sure.high - sure.low) / 2.0)
        self.money_places = (
            0 if max(map(abs, (*widest.net(facts.terms),))) >= 1000.0 else 2
        )

    def said(self, value: float) -> str:
        """Return an uplift that is already in this report's scale."""
        return rounded(value, self.rate_places, sign=True)

    def scaled(self, value: float, low: float, high: float) -> WithInterval:
        """Return an uplift that is already in this report's scale, and its interval."""
        return with_ends(value, low, high, self.rate_places, sign=True)

    def rate(self, value: float) -> str:
        """Return an uplift: of 100 people if the outcome is 0 or 1, else of one."""
        return self.said(self.factor * value)

    def rates(self, estimate: Estimate) -> WithInterval:
        """Return an uplift and its interval."""
        ends = estimate.interval(self.facts.level)
        return self.scaled(*(self.factor * each for each in (estimate.value, *ends)))

    def amount(self, value: float) -> str:
        """Return an amount of money without its currency."""
        return rounded(value, self.money_places)

    def money(self, value: float | str) -> str:
        """Return an amount of money; words stay as they are."""
        said = value if isinstance(value, str) else self.amount(value)
        return (
            said if said == NOT_KNOWN else f"{said} {self.facts.terms.currency}".strip()
        )

    def gain(self, stage: Stage) -> WithInterval:
        """Return what a stage brings, and the interval of it."""
        return with_ends(stage.gain, stage.low, stage.high, self.gain_places)

    def net(self, stage: Stage) -> WithInterval:
        """Return what a stage brings in money after costs, and the interval of it."""
        return with_ends(*stage.net(self.facts.terms), self.money_places)


def advise(facts: Facts, speech: Speech) -> dict[str, Any]:
    """Say what to do, and be as sure of it as the worst reason allows."""
    gain = _gain(facts, speech)
    reasons = (
        _tables(facts),
        _ranking(facts, speech),
        gain,
        *hidden_reasons(facts),
        *_calibration(facts),
        *_people(facts),
        *(_reason(NOTE, note) for note in getattr(facts.model, "notes_", ())),
    )
    colour = min((reason["colour"] for reason in reasons), key=ORDER.index)
    if colour == RED:
        sentence = "The reasons below say what is missing."
        if facts.is_told:
            sentence += (
                " The numbers further down are kept for those who look into it. Do not base a "
                "decision on them."
            )
        bounds = [] if facts.bounds is None else facts.bounds.sentences()
        return {
            "colour": RED,
            "headline": "Do not choose people by these scores yet.",
            "sentences": [sentence, *bounds],
            "reasons": [reason for reason in reasons if reason["colour"] != GREEN],
            "trust": TRUST[RED],
            "options": [],
            "key": [],
            "more": [],
        }
    whom = _whom(facts.chosen.share)
    headline = f"{speech.treat.capitalize()} {whom}."
    if gain["colour"] != GREEN:
        does = "pays" if facts.terms.has_money else "helps"
        limit = f"The tables do not show that it {does}."
        if _ends(facts)[0] > 0.0:
            limit = (
                f"The tables identify uplift for about {facts.told:.0%} of them only."
            )
        headline = f"The best guess is to {speech.treat} {whom}. {limit}"
    trust = TRUST[colour]
    if rests_on := if_in_words(facts.diagnosis.as_verdict()):
        trust += rests_on
    elif colour == GREEN:
        trust += ": you can act on it"
    return {
        "colour": colour,
        "headline": headline,
        "sentences": _expected(facts, speech),
        "reasons": reasons,
        "trust": trust,
        "options": _options(facts),
        "key": _key_numbers(facts, speech),
        "more": _more(facts, speech),
    }


def advise_arms(facts: ArmFacts, speeches: Mapping[str, Speech]) -> dict[str, Any]:
    """Say who gets which of several treatments, and be as sure of it as the worst reason allows."""
    reasons, is_open = [], False
    for arm, own in facts.arms.items():
        each = [_tables(own)]
        if own.chosen.people:
            gain = _gain(own, speeches[arm])
            is_open |= gain["colour"] != GREEN
            each += [_ranking(own, speeches[arm]), gain, *hidden_reasons(own)]
            each += _calibration(own)
        else:
            each.append(
                _reason(
                    NOTE,
                    "Nobody gets it: by predictions, costs and budget others, or none, are better.",
                )
            )
        reasons += [_reason(r["colour"], f"{arm}: {r['sentence']}") for r in each]
    reasons += _people(next(iter(facts.arms.values())))
    if facts.is_told:
        words = arms_in_words(facts.control, list(facts.arms), facts.values)
        words += " That is without costs, in the tables of the fit."
        reasons.append(_reason(NOTE, words))
    notes = getattr(facts.model, "notes_", ())
    reasons += [_reason(NOTE, note) for note in notes]
    colour = min((reason["colour"] for reason in reasons), key=ORDER.index)
    if colour == RED:
        return {
            "colour": RED,
            "headline": "Do not choose people by these scores yet.",
            "sentences": ["The reasons below say what is missing."],
            "reasons": [reason for reason in reasons if reason["colour"] != GREEN],
            "trust": TRUST[RED],
            "key": [],
            "more": [],
        }
    n = len(facts.people)
    shares = [(arm, own.chosen.share) for arm, own in facts.arms.items()]
    rest = 1.0 - facts.total.people / n
    shares += [(facts.control, rest)] * (rest >= 0.005)
    parts = [
        f"{arm} to {f'{share:.0%}' if share >= 0.1 else percent(share)}"
        for arm, share in shares
        if share > 0.0
    ]
    whom = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    start = "The best guess is to give" if is_open else "Give"
    return {
        "colour": colour,
        "headline": f"{start} {whom} of people.",
        "sentences": _expected_of_arms(facts, speeches),
        "reasons": reasons,
        "trust": TRUST[colour] + (": you can act on it" if colour == GREEN else ""),
        "key": [],
        "more": [],
    } | _given(facts, speeches)


def _expected_of_arms(
    facts: ArmFacts, speeches: Mapping[str, Speech]
) -> tuple[str, ...]:
    """Say what all treatments are expected to bring together."""
    speech = next(iter(speeches.values()))
    total, terms = facts.total, facts.terms
    if not total.people:
        return ()
    gain, ends = speech.gain(total)
    more = "more " if total.gain > 0.0 else ""
    said = (
        f"Compared with {facts.control} for everybody, this is expected to bring {gain} {more}"
        f"{terms.unit} ({speech.percent} interval: {ends}, at the widest)."
    )
    if not terms.has_money:
        return (said,)
    net, ends = with_ends(*facts.net, speech.money_places)
    return (
        said,
        f"In money: {speech.money(net)} after costs ({speech.percent} interval: {ends}).",
    )


def _given(facts: ArmFacts, speeches: Mapping[str, Speech]) -> dict[str, Any]:
    """Return the table of who gets which: a line for each treatment, and for all together."""
    terms, speech = facts.terms, next(iter(speeches.values()))
    money = f", {terms.currency}" if terms.currency else ""
    columns = ["treatment", "people", f"gain in {terms.unit}"]
    columns += [f"cost{money}"] * any(terms.costs.values())
    columns += [f"net gain{money}"] * terms.has_money

    def in_money(value: float, low: float, high: float) -> WithInterval:
        return with_ends(value, low, high, speech.money_places)

    def line(name: str, stage: Stage, spent: float, net: Any) -> list[Any]:
        cells: list[Any] = [name, f"{stage.people:,.0f}", speech.gain(stage)]
        cells += [speech.amount(spent)] * any(terms.costs.values())
        return cells + [in_money(*net)] * terms.has_money

    spent = facts.spent
    rows = [
        line(arm, own.chosen, spent[arm], own.chosen.net(own.terms))
        for arm, own in facts.arms.items()
    ]
    rows.append(line("all together", facts.total, sum(spent.values()), facts.net))
    return {"columns": columns, "given": rows}


def arm_numbers(facts: ArmFacts) -> dict[str, Any]:
    """Return all that the verdict on several treatments says, for other programs."""
    advice = advise_arms(facts, {a: Speech(own) for a, own in facts.arms.items()})
    level, has_money = facts.level, facts.terms.has_money
    each = {}
    for arm, own in facts.arms.items():
        net = own.chosen.net(own.terms) if has_money else None
        brought = _brought(own.chosen, facts.spent[arm], net, level)
        each[arm] = {"treated": brought} | _measures(own)
    net = facts.net if has_money else None
    return {
        "verdict": advice["headline"],
        "colour": advice["colour"],
        "trust": advice["trust"],
        "sentences": list(advice["sentences"]),
        "reasons": _reasons_in_plain(advice),
        "rows": len(facts.people),
        "treated": _brought(facts.total, sum(facts.spent.values()), net, level),
        "treatments": each,
    }


def _reason(colour: str, sentence: str) -> Reason:
    return {"colour": colour, "sentence": sentence}


def _whom(share: float) -> str:
    """Say which people a share is, the highest scores first."""
    if share <= 0.0:
        return "nobody"
    if share >= 1.0:
        return "everyone"
    rough = 0.1 <= share < 0.995
    return f"the {f'{share:.0%}' if rough else percent(share)} of people with the highest scores"


def verdict_numbers(facts: Facts) -> dict[str, Any]:
    """Return all that the verdict says, for other programs: gains in outcome units, and money."""
    advice = advise(facts, Speech(facts))
    claim = facts.claim

    def brought(stage: Stage) -> dict[str, Any]:
        terms = facts.terms
        net = stage.net(terms) if terms.has_money else None
        return _brought(stage, terms.cost * stage.people, net, facts.level)

    return (
        {
            "verdict": advice["headline"],
            "colour": advice["colour"],
            "trust": advice["trust"],
            "sentences": list(advice["sentences"]),
            "reasons": _reasons_in_plain(advice),
            "rows": len(facts.people),
            "treated": brought(facts.chosen),
            "options": [
                {"name": name} | brought(stage) for name, stage in advice["options"]
            ],
            "bounds": None if facts.bounds is None else facts.bounds.to_dict(),
            "breakdown": None
            if claim is None
            else {"value": claim.breakdown(), "sure": claim.breakdown(facts.level)},
        }
        | _measures(facts)
        | facts.diagnosis.identification.known_facts(facts.diagnosis.known_worth)
    )


def _reasons_in_plain(advice: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"colour": r["colour"], "words": r["sentence"]} for r in advice["reasons"]]


def _numbers(ends: tuple[float, float, float], level: float) -> dict[str, float]:
    return dict(zip(("value", "low", "high", "level"), (*ends, level), strict=True))


def _brought(
    stage: Stage, spent: float, net: tuple[float, float, float] | None, level: float
) -> dict[str, Any]:
    """Return what a stage brings and costs, and what is left in money if it is told in it."""
    found: dict[str, Any] = {"people": stage.people, "share": stage.share}
    found |= {"cost": spent}
    found |= {"gain": _numbers((stage.gain, stage.low, stage.high), level)}
    return found if net is None else found | {"net": _numbers(net, level)}


def _measures(facts: Facts) -> dict[str, Any]:
    """Return the average and how good the ranking is, as far as they are known."""
    evaluation = facts.evaluation
    measures = {
        "offer" if facts.offers else "average_effect": evaluation.average,
        "auuc": evaluation.auuc,
        "qini": evaluation.qini,
        "compliers": evaluation.compliers,
        "complier_share": evaluation.complier_share,
        "relative_effect": evaluation.relative,
    }
    return {
        name: _numbers((estimate.value, *estimate.interval(facts.level)), facts.level)
        for name, estimate in measures.items()
        if estimate is not None
    }


def _expected(facts: Facts, speech: Speech) -> tuple[str, ...]:
    """Say what the choice brings."""
    chosen = facts.chosen
    terms = facts.terms
    n = len(facts.people)
    if chosen.share <= 0.0:
        return ()
    gain, ends = speech.gain(chosen)
    more = "more " if chosen.gain > 0.0 else ""
    some = f"all {n:,}" if chosen.share >= 1.0 else f"{chosen.people:,.0f} of {n:,}"
    whom = f"{speech.treat.capitalize()} {some} people"
    spent = (
        f", which costs {speech.money(terms.cost * chosen.people)}"
        if terms.cost
        else ""
    )
    said = [
        f"{whom}{spent}. Compared with {speech.treating} nobody, this is expected to bring {gain} "
        f"{more}{terms.unit} ({speech.percent} interval: {ends})."
    ]
    if facts.offers:
        said += ["That is what those gain who take it up because of the offer."]
    if terms.has_money:
        net, ends = speech.net(chosen)
        said += [
            f"In money: {speech.money(net)} after costs ({speech.percent} interval: {ends})."
        ]
    if turns := turning_point(facts):
        said.append(turns)
    if facts.told < NEARLY_ALL:
        gain, ends = speech.gain(chosen.part(facts.told))
        said += [
            f"Of this, {gain} ({speech.percent} interval: {ends}) was measured: it comes from the "
            f"{facts.told:.0%} of them whom the populations treat differently. The rest takes the "
            "others to gain as much, which these tables cannot tell."
        ]
    return tuple(said)


def _key_numbers(facts: Facts, speech: Speech) -> list[tuple[str, str, str]]:
    """Return what stands on the first screen: each a name, a number, and what it means."""
    chosen, terms, claim = facts.chosen, facts.terms, facts.claim
    if not chosen.people:
        return []
    gain, ends = speech.gain(chosen)
    cost = (
        f", at a cost of {speech.money(terms.cost * chosen.people)}"
        if terms.cost
        else ""
    )
    said = [
        (
            "Expected gain",
            gain if gain == NOT_KNOWN else f"{gain} {terms.unit}",
            f"{speech.percent} interval: {ends}; by {speech.treating} {chosen.people:,.0f} of "
            f"{len(facts.people):,} people{cost}",
        )
    ]
    if terms.has_money:
        net, ends = speech.net(chosen)
        said.append(
            (
                "Left after costs",
                speech.money(net),
                f"{speech.percent} interval: {ends}",
            )
        )
    surely = facts.surely
    pays = "pays" if terms.cost else "helps"
    least = "what they cost" if terms.cost else "0"
    if surely is not None:
        note = f"together: the {speech.percent} interval of what they gain stays above {least}"
        said.append((f"Surely {pays} up to", f"{surely.share:.0%} of people", note))
    elif not terms.cost or terms.value:
        note = f"no share gains more than {least} by the {speech.percent} interval"
        said.append((f"Surely {pays} up to", "nobody", note))
    if claim is not None and facts.sensitivity is not None and claim.gains:
        value = facts.sensitivity.said(claim.breakdown(), terms.unit)
        note = (
            "between equal people of the populations, for reasons other than treatment"
        )
        said.append(("Holds unless outcomes differ by", value, note))
    return said


def _more(facts: Facts, speech: Speech) -> list[str]:
    """Say whether more people than asked for would bring more, whom to treat, what was measured."""
    said = []
    if (best := facts.best) is not None:
        terms = facts.terms
        brings = f"{speech.gain(best)[0]} {terms.unit} ({speech.gain(best)[1]})"
        if terms.has_money:
            brings = f"{speech.money(speech.net(best)[0])} after costs ({speech.net(best)[1]})"
        free = (
            "" if terms.cost else f"{speech.treating.capitalize()} costs nothing here: "
        )
        start = f"{free}{speech.treating} {best.share:.0%} of people"
        said.append(
            f"{start[:1].upper()}{start[1:]} is expected to bring {brings}, more than the "
            f"{percent(facts.chosen.share)} asked for."
        )
    rule = facts.readable
    if rule is not None and len(rule.leaves) > 1 and any(rule.treatments):
        whom = rule.sentences()[0]
        said.append(f"As a rule of thumb, {whom[:1].lower()}{whom[1:]}")
    if facts.told < NEARLY_ALL:
        said.append(
            f"Measured was the gain of the {facts.told:.0%} of them whom the populations treat "
            "differently; the others are taken to gain as much."
        )
    return said


def _options(facts: Facts) -> tuple[tuple[str, Stage], ...]:
    """Return what else could be done, each with what it is expected to bring."""
    chosen, everyone = facts.chosen, facts.everyone
    if chosen.share >= 1.0:
        return ()
    if chosen.share <= 0.0:
        return (("everyone", everyone),)
    return (
        ("the people advised", chosen),
        ("as many, picked at random", everyone.part(chosen.share)),
        ("everyone", everyone),
    )


def _tables(facts: Facts) -> Reason:
    verdict = facts.diagnosis.as_verdict()
    return _reason(verdict.colour, f"{TELL[verdict.colour]} {verdict.reason}")


def _ranking(facts: Facts, speech: Speech) -> Reason:
    qini = facts.evaluation.qini
    low, high = qini.interval(facts.level)
    if not (facts.is_told and is_bounded(low, high)):
        return _reason(RED, "How good the ranking is cannot be told from these tables.")
    value, ends = speech.rates(qini)
    found = (
        f"over all shares it gains {value} {facts.terms.unit} {speech.per} on average (Qini; "
        f"{speech.percent} interval {ends})"
    )
    if low > 0.0:
        return _reason(
            GREEN, f"The ranking beats a random order on rows it had not seen: {found}."
        )
    if high < 0.0:
        return _reason(RED, f"The ranking does worse than a random order: {found}.")
    does = speech.treating
    so, colour = f"{does.capitalize()} everyone or nobody may do as well.", AMBER
    if facts.chosen.share >= 1.0:
        so = f"That is no reason against {does} everyone. It is one against choosing a few."
        colour = NOTE
    return _reason(
        colour,
        f"The tables do not show that the ranking beats a random order: {found}. {so}",
    )


def _gain(facts: Facts, speech: Speech) -> Reason:
    chosen, terms = facts.chosen, facts.terms
    low, high = _ends(facts)
    what = "expected gain after costs" if terms.has_money else "expected gain"
    if chosen.share <= 0.0:
        return _reason(
            GREEN,
            f"The model predicts that {speech.treating} anyone costs more than it brings.",
        )
    if not is_bounded(low, high):
        return _reason(RED, f"The {what} is not known: {UNBOUNDED}.")
    if low > 0.0 and facts.told < MANY:
        return _reason(
            AMBER,
            f"The {what} counts on people whom the populations treat alike to gain as the others "
            f"do. They are {1.0 - facts.told:.0%} of those advised, and the tables cannot tell.",
        )
    if low > 0.0:
        return _reason(GREEN, f"The {what} is clearly above zero.")
    if high < 0.0:
        return _reason(
            RED, f"The {what} is clearly below zero, against what the model predicts."
        )
    return _reason(
        AMBER, f"The {what} may be zero or below: its interval reaches both sides."
    )


def _ends(facts: Facts) -> tuple[float, float]:
    """Return the interval of the gain, after costs if there is money."""
    return facts.chosen.ends(facts.terms)


def turning_point(facts: Facts) -> str:
    """Say by how much equal people would have to differ for the advice to be wrong, if known."""
    claim, turns = facts.claim, facts.sensitivity
    if claim is None or turns is None or not facts.is_told:
        return ""
    subject = "Treating everyone" if facts.chosen.share >= 1.0 else "The list"
    return turns.in_words(claim, subject, facts.terms.unit)


def hidden_reasons(facts: Facts) -> list[Reason]:
    """Say whether a hidden trait such as ordinary columns are would turn the advice."""
    claim, turns = facts.claim, facts.sensitivity
    usual = None if turns is None else turns.ordinary
    if claim is None or turns is None or usual is None:
        return []
    if not (facts.is_told and claim.gains):
        return []
    unit = facts.terms.unit
    would = (
        f"A hidden trait as telling as {usual.column!r}, as {turns.ordinary_share}, would make "
        f"equal people of the populations differ by {turns.said(usual.delta, unit)}"
    )
    value = turns.said(claim.breakdown(), unit)
    sure = claim.breakdown(facts.level)
    if turns.overturns(claim) is not None:
        return [_reason(AMBER, f"{would}. {value} turn this advice.")]
    if 0.0 < sure <= usual.delta:
        surely = turns.said(sure, unit)
        so = (
            f"It takes {value} to turn this advice, but beyond {surely} it is not sure."
        )
        return [_reason(AMBER, f"{would}. {so}")]
    if usual.delta < NOTHING * claim.breakdown():
        none = (
            "Few columns or none would make equal people differ if they were hidden. That is no "
            f"proof that nothing does: it takes {value} to turn this advice."
        )
        return [_reason(NOTE, none)]
    return [_reason(GREEN, f"{would}, and it takes {value} to turn this advice.")]


def _calibration(facts: Facts) -> list[Reason]:
    p = facts.evaluation.calibration.p_value
    if (
        facts.offers
    ):  # which are measured, and the effect on whoever takes them up predicted
        return []
    if p is None or math.isnan(p):
        return []
    if p < MISFIT:
        by_size = facts.terms.share is None  # whom to treat, not by the order alone
        return [
            _reason(
                AMBER if by_size else NOTE,
                "Predicted uplift is off in size. Use it for the order of people. The expected "
                "gains here are measured, not predicted.",
            )
        ]
    return [_reason(GREEN, "Predicted and measured uplift agree within chance.")]


def _people(facts: Facts) -> list[Reason]:
    if not facts.own_people or math.isnan(facts.outside):
        return []
    if facts.outside > FAR:
        return [
            _reason(
                AMBER,
                f"{facts.outside:.0%} of the people to score are unlike anyone in the tables, so "
                "their scores are guesses.",
            )
        ]
    return [_reason(GREEN, "The people to score are like those in the tables.")]


def firmer(facts: Facts, speech: Speech) -> str:
    """Say what would make the answer firmer, by the planner."""
    question, half_width, plan = facts.study or ("", 0.0, None)
    if facts.arm or facts.diagnosis.identification.is_dose:
        return (
            "Four times as many rows in each table halve an interval, with policies as far apart "
            "as now. Policies that differ twice as much do so as well."
        )
    if plan is None or plan.needed is None:
        return "More rows alone do not help here: the policies must differ more."
    rows = plan.needed.rows
    now = min(table.n_rows for table in facts.data.summary() if table.kind == OUTCOME)
    width = f"{in_digits(speech.factor * half_width)} {facts.terms.unit} {speech.per}"
    first = f"To halve the interval of the average uplift, to {width} on either side,"
    if question:
        asked = question.replace("treating", speech.treating)
        first = f"Whether {asked} is still open. If the effect is as large as it seems,"
    said = (
        f"{first} it takes about {two_digits(rows):,} rows in each outcome "
        f"table{'' if facts.offers else ', with policies as far apart as now'}. The smallest has "
        f"{now:,}."
    )
    if plan.shares["outcomes"] > MOSTLY and plan.treatment_rows:
        said += " More treatment rows would hardly help."
    if plan.gap <= 0.5 and not plan.known_share:
        said += " Policies that differ twice as much would need about a quarter of the rows."
    return said


def two_digits(rows: int) -> int:
    """Return a number of rows that has two digits and then noughts, rounded up."""
    step = int(10 ** max(len(str(rows)) - 2, 0))
    return -(-rows // step) * step
