"""Numbers, intervals and findings as people read them: the one place that phrases them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import TURN_ROUND

NOT_KNOWN, UNBOUNDED = "not known", "the tables cannot bound it"
NOTHING = 1e-9  # what is nearer to 0 is rounding
UNITS = "units of the outcome"
GIVE_EVERYONE = (
    "Give everyone of {whom}, or a random sample, with 1 for those who were treated and 0 for the "
    "others."
)
MORE_GAP = (
    "Compare populations or periods treated differently, or vary treatment at random"
)
# What was found and what to do about it, by the code of a finding; its numbers fill the gaps.
FINDINGS = {
    "rows.short": (
        "the {kind} table of {population} is too short ({rows}): nothing can be measured with "
        "fewer than {fewest} rows in each table.",
        "Collect more rows; plan_study says how many a wanted precision needs.",
    ),
    "rows.all treated": (
        "every row of every treatment table is treated, as in lists of those who were treated; "
        "they do not say who was not.",
        GIVE_EVERYONE,
    ),
    "rows.doubt": ("{doubt}", "{remedy}"),
    "rows.rare outcome": (
        "only {rows} outcome rows have the rarer of the two outcomes.",
        "Collect outcome rows until there are {fewest} or more, or take an outcome that is less "
        "rare.",
    ),
    "sharing.copied": (
        "{where} have {rows} in common, labels included, as if one file had been given twice.",
        "Give each population its own rows.",
    ),
    "sharing.both labels": (
        "{where} have {rows} in common, so that these are not separate draws.",
        "If both labels of a person are known, join the rows on their features and use an "
        "ordinary uplift model; else give each table its own rows.",
    ),
    "sharing.same people": (
        "{rows} of {where} are equal in all features, with labels of their own, as if the same "
        "people were in both.",
        "Intervals take the tables as drawn apart, and may be too wide or too narrow.",
    ),
    "balance.only treated": (
        "every row of the treatment table of {whom} is treated, and the outcome table describes "
        "other people ({feature} differs by {difference:+.2f} standard deviations; corrected p "
        "{p:.2g}): it seems to list only those who were treated.",
        GIVE_EVERYONE,
    ),
    "balance.different people": (
        "the {where} describe different people ({feature} differs by {difference:+.2f} standard "
        "deviations; corrected p {p:.2g}).",
        "Find out how their rows were selected, and give tables of the same people; or weight "
        "them to one target with shift='classifier'.",
    ),
    "law.refuted": (
        "the tables contradict that outcomes depend on features and treatment alone ({what}: "
        "corrected p {p:.2g}).",
        "Look for what else differs between the populations, such as season, price or how "
        "outcomes are counted, and add it as a feature or choose other populations.",
    ),
    "panel.refuted": (
        "what the populations say of uplift differs from what the rows with both labels say "
        "({what}; corrected p {p:.2g}).",
        "Either people respond differently in the populations, or something beside the features "
        "decided who was treated among the rows with both labels. Find out which, and leave the "
        "others out.",
    ),
    "panel.treated": (
        "in {where} more or fewer were treated than in its treatment table, at the same features "
        "(corrected p {p:.2g}).",
        "Find out how these people were chosen. If by whether they were treated, leave them out.",
    ),
    "policy.refuted": (
        "the policy that was given is not what is seen in {where} (corrected p {p:.2g}).",
        "Leave the policy out, so that it is fitted to the treatments, or find out who was "
        "treated otherwise than planned.",
    ),
    "strength.no gap": (
        "the policies cannot be told apart (z = {z:.1f}, below {least:g}).",
        f"{MORE_GAP}; more rows help only where there is a difference.",
    ),
    "strength.one": (
        "there is one population, and what is known of treatment does not vary among people with "
        "the same features.",
        "Give a second population that was treated differently, or chances that were drawn by "
        "lot.",
    ),
    "strength.small gap": (
        "the policies differ too little for these rows (strength {strength:.1f}, below "
        "{least:g}); only intervals that allow for it hold, and they are wide.",
        f"{MORE_GAP}, or collect more rows; plan_study says how many.",
    ),
    "regions.small gap": (
        "policies differ too little for {whom} ({share:.0%} of {whose}).",
        "Draw no conclusion about them alone: averages already leave them out. To learn about "
        "them, vary their treatment or collect more rows.",
    ),
    "target.out of reach": (
        "{why}",
        "As they are, the tables say nothing about the target.",
    ),
    "target.new values": (
        "the target has values that no table has: {values}.",
        "Uplift of such people is a guess; check how these columns were written.",
    ),
    "target.few alike": (
        "few rows of the {kind} table of {population} resemble the target ({rows:,} are worth "
        "{worth:,.0f}, and cover {coverage:.0%} of it).",
        "Restrict the target to people like those in the tables.",
    ),
    "populations.pooled": (
        "population {population} is made of several values of {column!r} that no other population "
        "has, and equal people respond unalike among them, by up to {difference} (corrected p "
        "{p:.2g}), as they may between populations.",
        "Give each of them its own name as a population, so that what they share is tested. To "
        "leave the column out would only hide it.",
    ),
    "populations.apart": (
        "populations {where} differ in their features ({feature} by {difference:+.2f} standard "
        "deviations), so much that hardly anyone of one has a like in the other.",
        "Leave out features that give the population away, such as a region or a date.",
    ),
    "populations.differ": (
        "populations {where} differ in their features ({feature} by {difference:+.2f} standard "
        "deviations).",
        "Uplift allows for it where both have rows; other estimators need shift='classifier'.",
    ),
    "sensitivity.ordinary": (
        "a hidden trait as telling as {column!r}, as {share}, would make equal "
        "people of the populations differ by {delta}; {breakdown} turn the average effect.",
        "Ask what else differs between the populations, and add it as a feature or find a third "
        "population.",
    ),
    "fit.no gap": (
        "The policies are too alike to identify uplift, so do not act on this ranking "
        "(first-stage F = {f:,.0f}).",
        "Nothing else was checked.",
    ),
    "fit.small gap": (
        "The policies differ just enough; look at the intervals before you act (first-stage F = "
        "{f:,.0f}).",
        "Nothing else was checked.",
    ),
    "fit.known": (
        "What is known of treatment is enough to identify uplift.",
        "Nothing else was checked.",
    ),
    "fit.gap": (
        "The policies differ enough to identify uplift (first-stage F = {f:,.0f}).",
        "Nothing else was checked.",
    ),
}


def in_digits(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """Return a number as people write it: commas between thousands, no exponent, no minus nought.

    Three digits that mean something, and up to four before the point: 0.0123, 1.23, 1,234, 12,340.
    What rounding leaves of 0 is 0.
    """
    if math.isnan(value):
        return NOT_KNOWN
    if math.isinf(value):
        return "unbounded"
    if abs(value) < NOTHING:
        return "0"
    if digits >= 3 and abs(value) >= 999.5:
        digits = max(digits, 4)
    said = f"{Decimal(f'{value:.{digits}g}'):,f}"
    if "." in said:
        said = said.rstrip("0").rstrip(".")
    return f"+{said}" if sign and value > 0.0 else said


def brief(value: float) -> str:
    """Return a number with its sign."""
    return in_digits(value, sign=True)


def p_text(value: float) -> str:
    """Return a p-value as text."""
    if math.isnan(value):
        return "not tested"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def is_bounded(low: float, high: float) -> bool:
    """Tell whether an interval has both ends."""
    return math.isfinite(low) and math.isfinite(high)


def span(low: float, high: float, say: Callable[[float], str] = brief) -> str:
    """Return both ends of an interval, or that there is none."""
    return f"{say(low)} to {say(high)}" if is_bounded(low, high) else UNBOUNDED


def interval(
    low: float, high: float, level: float = 0.95, say: Callable[[float], str] = brief
) -> str:
    """Return an interval with its level, or that there is none."""
    ends = span(low, high, say)
    return f"{level:.0%} interval {ends}" if is_bounded(low, high) else ends


def with_interval(
    estimate: Any, level: float = 0.95, unit: str = "", factor: float = 1.0
) -> str:
    """Return an estimate with its sign and unit, and its interval in brackets.

    It has as many places as show two digits of its uncertainty.
    """
    ends = estimate.interval(level)
    low, high = (factor * end for end in ends)
    places = places_of((high - low) / 2.0)

    def say(value: float) -> str:
        if high == low:
            return brief(value)
        return rounded(value, places, sign=True)

    value = factor * estimate.value
    said = say(value) if is_bounded(low, high) else brief(value)
    return f"{f'{said} {unit}'.rstrip()} ({interval(low, high, level, say)})"


@dataclass(frozen=True, slots=True)
class Unit:
    """What outcomes are called, and how gains of people are said in it."""

    name: str = UNITS
    is_rate: bool = False  # of outcomes 0 or 1, of which 100 people are told
    currency: str = ""

    @classmethod
    def of_outcome(
        cls, outcome: str, given: str | None, *, is_rate: bool, currency: str = ""
    ) -> Unit:
        """Return the unit that was given, or one made of the name of the outcome."""
        return cls(given or _unit_name(outcome, is_rate=is_rate), is_rate, currency)

    @property
    def per(self) -> str:
        """The unit of an average."""
        return f"{self.name} per {'100 people' if self.is_rate else 'person'}"

    @property
    def factor(self) -> float:
        """How many people an average is told of."""
        return 100.0 if self.is_rate else 1.0

    def total(self, estimate: Any, level: float = 0.95) -> str:
        """Return what a number of people gain together, with its interval."""
        return with_interval(estimate, level, self.name)

    def each(self, estimate: Any, level: float = 0.95) -> str:
        """Return what people gain on average, with its interval."""
        return with_interval(estimate, level, self.per, self.factor)

    def rate(self, value: float) -> str:
        """Return what people gain on average, without its unit."""
        return brief(self.factor * value)

    def money(self, value: float, *, sign: bool = False, beside: float = 0.0) -> str:
        """Return an amount of money, with as many places as one that stands beside it."""
        is_whole = not beside and float(value).is_integer()
        places = 0 if max(abs(value), abs(beside)) >= 100.0 or is_whole else 2
        return f"{rounded(value, places, sign=sign)} {self.currency}".rstrip()


UNNAMED = Unit()
GENERIC = ("outcome", "response", "label", "target", "result", "y")
IRREGULAR = ("bought", "sold", "paid", "came", "left", "spent", "won", "lost", "kept")


# How words begin in names of outcomes of which less is better, as a rule; and what turns them.
LESS = re.compile(
    "absen|accident|attrition|cancel|churn|complain|dead|death|default|died|dropout|fraud|infect|"
    "injur|mortal|readmi|refund|relaps|resign|sick|unsubscri"
)
TURNED = ("not", "no", "non", "without", "never", "un")


def less_may_be_better(outcome: str) -> str:
    """Return a doubt, if the name of an outcome sounds as if less of it was better.

    >>> less_may_be_better("visit") or less_may_be_better("not_readmitted")
    ''
    """
    words = re.findall("[a-z]+", outcome.lower())
    if {*words} & {*TURNED} or not any(map(LESS.match, words)):
        return ""
    return f"more of {outcome!r} is taken to be better. {TURN_ROUND}"


def _unit_name(outcome: str, *, is_rate: bool) -> str:
    """Return what many outcomes are called: "visits" of visit, "responses" of bought."""
    name = " ".join(outcome.replace("_", " ").split())
    last = name.lower().rpartition(" ")[2]
    is_told = any(word.endswith("ed") for word in name.lower().split())
    if is_rate and (last in GENERIC + IRREGULAR or is_told or not last[-1:].isalpha()):
        return "responses"
    if not name or last in GENERIC:
        return UNITS
    if last.endswith("s") and not last.endswith("ss"):
        return name
    if not is_rate:
        return f"units of {name}"
    if last.endswith(("ss", "x", "ch", "sh")):
        return f"{name}es"
    if last.endswith("y") and last[-2:-1] not in ("a", "e", "o", "u"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def cells(estimate: Any, level: float) -> tuple[str, str]:
    """Return an estimate and its interval with three digits; an unbounded one is said in words."""
    pieces = estimate.confidence_set(level)
    ends = span(pieces[0][0], pieces[-1][1])
    if len(pieces) == 2:
        (_, below), (above, _) = pieces
        ends = f"below {brief(below)} or above {brief(above)}: {UNBOUNDED}"
    return brief(estimate.value), ends


def in_brackets(estimate: Any, level: float) -> str:
    """Return the same as one text, the interval in brackets."""
    value, ends = cells(estimate, level)
    return f"{value} ({ends})"


def percent(share: float) -> str:
    """Return a share in percent, with at most three digits."""
    return f"{100.0 * share:.3g}%"


def rounded(value: float, places: int, *, sign: bool = False) -> str:
    """Return a number with some places; large ones keep four digits, and 0 has no sign.

    Halves are rounded away from 0, as the script of the report does: 962.5 is 963 everywhere.
    """
    if not math.isfinite(value):
        return in_digits(value)
    exact = Decimal(f"{value:.4g}") if abs(value) >= 1e4 else Decimal(value)
    said = f"{exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,f}"
    if not _is_nonzero(said):
        return said.removeprefix("-")
    return f"+{said}" if sign and value > 0.0 else said


def _is_nonzero(said: str) -> bool:
    return any(digit in "123456789" for digit in said)


def places_of(size: float) -> int:
    """Return how many places show two digits of an uncertainty."""
    if not (math.isfinite(size) and size > 0.0):
        return 0
    return min(max(1 - math.floor(math.log10(size)), 0), 6)


def treatment_in_words(strength: Any) -> str:
    """Say what policies differ in."""
    if strength.is_dose:
        return "mean dose (in its standard deviations)"
    return "chance of treatment"


CROSSING = 0.1  # of the weights of doses, below which negative ones are noise


def doses_in_words(weights: Array) -> str:
    """Say what an effect of one unit of dose averages, by the columns from, to and weight."""
    start, end, weight = weights.T
    at = np.cumsum(np.maximum(weight, 0.0)) / np.maximum(weight, 0.0).sum()
    low = start[int(np.searchsorted(at, 0.05))]
    high = end[min(int(np.searchsorted(at, 0.95)), len(end) - 1)]
    words = (
        f"One unit more of dose, averaged over doses from {low:g} to {high:g}, where the "
        "populations differ; it need not be so beyond."
    )
    against = -weight[weight < 0.0].sum()
    if against < CROSSING:
        return words
    return (
        f"{words} Doses cross: where one population has more of the small and of the large ones, "
        f"weights are negative ({against:.0%}), and this is an average only if every unit does "
        "the same."
    )


def relative_in_words(relative: Any, level: float = 0.95) -> str:
    """Return a relative effect in percent, with its interval and what it is a share of."""
    low, high = relative.interval(level)
    places = places_of(50.0 * (high - low))

    def say(share: float) -> str:
        return f"{rounded(100.0 * share, places, sign=True)}%"

    ends = interval(low, high, level, say)
    return f"{say(relative.value)} ({ends}) of what it would be untreated"


def effect_in_words(
    estimate: Any,
    most: float = np.inf,
    relative: Any = None,
    *,
    is_dose: bool = False,
    unit: Unit = UNNAMED,
) -> str:
    """Say what the average effect is, as far as it is known; it cannot exceed ``most``.

    ``relative`` is the same effect over what the outcome would be untreated, if that is known.
    """
    if estimate is None:
        return "Average effect: not known; fit to rows to know it."
    if not np.isfinite(estimate.value):
        return (
            "Average effect: the rows are too few, or the policies too alike, to tell."
        )
    low, high = estimate.interval(0.95)
    if low > most or high < -most:
        return (
            f"Average effect: {unit.each(estimate)}, which is more than"
            " the outcome allows: the tables contradict each other. Run diagnose."
        )
    per = f" {unit.per}" + " for each unit of dose" * is_dose
    more = "" if relative is None else f", {relative_in_words(relative)}"
    if not is_bounded(low, high):
        value = float(np.clip(estimate.value, -most, most))
        return f"Average effect: {unit.rate(value)}{per} ({interval(low, high)}){more}."
    places = places_of(unit.factor * (high - low) / 2.0)

    def say(value: float) -> str:
        return rounded(unit.factor * value, places, sign=True)

    value, low, high = np.clip([estimate.value, low, high], -most, most).tolist()
    return f"Average effect: {say(value)}{per} ({interval(low, high, say=say)}){more}."


def arms_in_words(
    control: str, arms: Sequence[str], values: Mapping[str, Any], unit: Unit = UNNAMED
) -> str:
    """Say what each of several treatments gains over none, and the best for each person."""
    each = "; ".join(f"{arm} {unit.each(values[arm])}" for arm in arms)
    best, more = (values[n] for n in ("the best for each", "over the best for all"))
    words = f"Average gain over {control!r} if everybody gets it: {each}."
    if more.standard_error == 0.0:
        single = max(arms, key=lambda arm: values[arm].value)
        return f"{words} {single} is predicted to be the best for everybody."
    words += (
        f" If each gets the one that is predicted to be best, or none: {unit.each(best)}. That "
        f"is {unit.each(more)} more than the best single one for all."
    )
    low, _ = more.interval(0.95)
    if low > 0.0:
        return words
    return f"{words} The rows do not show that choosing for each person pays."


def policies_in_words(strength: Any, contrast: Array | None = None) -> str:
    """Say how different the policies are, and which populations were held against which."""
    known = (
        "" if strength.is_known and not strength.n_joint else known_in_words(strength)
    )
    said = (_policies(strength), known, clusters_in_words(strength))
    words = " ".join(filter(None, said))
    if contrast is None:
        return words
    one, other = (
        ", ".join(
            f"{name} ({abs(c):.0%})"
            for name, c in zip(strength.populations, contrast, strict=True)
            if side * c > 5e-3
        )
        for side in (1, -1)
    )
    return f"{words} Held against each other: {one} and {other}."


def _policies(strength: Any) -> str:
    """Say how different the policies are."""
    gap = f"{100 * strength.rms_gap:.0f} percentage points"
    if strength.is_dose:
        gap = f"{strength.rms_gap:.2f} standard deviations of the dose"
    if len(strength.populations) == 1:
        if strength.is_weak:
            return (
                f"{FINDINGS['strength.one'][0].capitalize()} Nothing here is reliable."
            )
        known = "The chance of treatment is known, and varies among people with the same features."
        return "" if strength.n_joint else known
    if strength.is_weak:
        return "The policies can hardly be told apart: nothing here is reliable."
    if strength.is_known:
        known = "" if strength.n_joint else "are known and "
        return f"The policies {known}differ by about {gap}."
    by = "" if strength.strength is None else f" (strength {strength.strength:,.0f})"
    return f"The policies differ by about {gap}, which the rows can tell{by}."


def clusters_in_words(strength: Any) -> str:
    """Say what depends on what, and how much that costs; nothing if rows are independent."""
    if strength.n_clusters is None:
        return ""
    words = f"Rows are in {strength.n_clusters:,} clusters, and errors allow for it"
    if strength.design_effect is None:
        return f"{words}."
    return f"{words}: the variance is {strength.design_effect:.1f} times that of as many people."


def compliers_in_words(
    compliers: Any, share: Any, *, only: bool = False, unit: Unit = UNNAMED
) -> str:
    """Say what an offer made at random does to those who take it up because of it.

    If those who were made it are the ``only`` ones who could, they are all who were treated.
    """
    whom = "those who take it up because of the offer"
    others = "those who never would, and those who do in any case"
    if only:
        whom = "the treated, who are those that take up the offer, as nobody else could"
        others = "those who do not"
    return (
        f"Effect on {whom} (about {share.value:.0%} of people): {unit.each(compliers)}. "
        f"Nothing is said of others: {others}."
    )


def offer_in_words(gain: Any, unit: Unit = UNNAMED) -> str:
    """Say what the offer itself brings, over all who are made it."""
    return (
        f"Gain of making the offer to everybody: {unit.each(gain)}. "
        "Whoever does not take it up because of it gains nothing."
    )


def untested_in_words(
    populations: Sequence[Any],
    *,
    is_randomised: bool = False,
    has_panel: bool = False,
    is_tested: bool = True,
) -> str:
    """Say what the tables of two populations cannot show; three or more can be tested for it.

    Where chance decided on the population, people are alike, and hidden reasons do no harm. Rows
    with both labels test it once `diagnose` was asked. One population is made of such rows or of
    known policies.
    """
    if is_randomised:
        return (
            "Not tested: that the offer changes outcomes only through the treatment, and that "
            "nobody takes it up only where it is not offered. Why people take it up does not "
            "matter: the answer is for those who do because of the offer."
        )
    if len(populations) == 1:
        return "Not tested: that nothing beside the features and chance decided who was treated."
    if len(populations) != 2:
        return ""
    alike = "that people with the same features respond alike in {} and {}.".format(
        *populations
    )
    if has_panel and not is_tested:
        return f"Not tested yet: {alike} The rows with both labels can show it (unjoined check)."
    if has_panel:
        return (
            f"Tested by the rows with both labels: {alike} A shift below the error of that test "
            "would not show."
        )
    return f"Not tested: {alike} Any other difference between them passes for uplift."


def open_in_words(verdict: Any, claim: Any, unit: Unit, what: str) -> str:
    """Say what is not tested, and how much of it would turn an answer; by a `Claim`, if any."""
    said = str(verdict.untested)
    value = math.nan if claim is None else claim.breakdown()
    if not said or verdict.is_randomised or not math.isfinite(value):
        return said
    amount = difference_in_words(value, is_rate=unit.is_rate, unit=unit.name)
    return f"{said} A difference of {amount} would turn {what}."


def if_in_words(verdict: Any) -> str:
    """Say on what an answer still rests, to go behind how far it is trusted."""
    names = verdict.populations
    if not verdict.untested or (verdict.has_panel and not verdict.is_randomised):
        return ""
    what = f"people respond alike in {' and '.join(names)}"
    if verdict.is_randomised:
        what = "the offer changes outcomes only through the treatment"
    elif len(names) == 1:
        what = "nothing beside the features and chance decided who was treated"
    return f", if {what}, which these tables cannot show"


def known_in_words(strength: Any, worth: float = math.nan) -> str:
    """Say of how many outcome rows more is known, and what one is worth; nothing if it is none."""
    said = []
    if strength.n_joint:
        said.append(f"{strength.n_joint:,} outcome rows have both labels")
    if strength.n_policy:
        said.append(f"the policy of {strength.n_policy:,} outcome rows is known")
    words = " and ".join(said)
    if not words:
        return ""
    words = f"{words[0].upper()}{words[1:]}."
    if math.isinf(worth) and len(strength.populations) > 1:
        words += " The populations alone would tell nothing of uplift."
    elif math.isfinite(worth):
        words += (
            f" One of them tells as much of uplift as {worth:.1f} outcome rows of which only the "
            "population is known."
        )
    return words


def reach_in_words(record: Any) -> str:
    """Say whom an average or a gain was measured on, to go behind "it"; by a `GainByScore`."""
    if record is None:
        return "counts people by how differently the populations treated them."
    if record.speaks_for > 0.995:
        return "was measured on all kinds of people: the populations treated all differently."
    return (
        f"was measured on the {record.speaks_for:.0%} of people whom the populations treated "
        "differently. Of the others the tables say nothing."
    )


def difference_in_words(value: float, *, is_rate: bool, unit: str = UNITS) -> str:
    """Return a difference of outcomes between people: in 100 of them if outcomes are 0 or 1."""
    if not math.isfinite(value):
        return NOT_KNOWN if math.isnan(value) else "any amount"
    if not is_rate:
        return f"{in_digits(value, 2)} {unit}".rstrip()
    unit = "" if unit == UNITS else f" {unit}"
    return f"{in_digits(100.0 * value, 2)}{unit} in 100"


def times_in_words(ratio: float) -> str:
    """Return how large something is beside another, to go before it: "a third of"."""
    named = {
        1.0: "as much as",
        0.5: "half of",
        1 / 3: "a third of",
        0.25: "a quarter of",
    }
    for value, words in (named | {2 / 3: "two thirds of"}).items():
        if abs(ratio / value - 1.0) < 0.08:
            return words
    if ratio > 1.0:
        return f"{in_digits(ratio, 2)} times"
    return f"{ratio:.0%} of" if ratio >= 0.005 else "hardly any of"


def robustness_in_words(
    claim: Any,
    sides: tuple[str, str] | None,
    *,
    is_rate: bool,
    level: float,
    subject: str = "Treating everyone",
    unit: str = UNITS,
) -> str:
    """Say that something helps, or pays, unless equal people differ by so much; by a `Claim`.

    ``sides`` are the population that treats more and the one that treats less, if they are clear.
    """
    value, sure = claim.breakdown(), claim.breakdown(level)
    amount = difference_in_words(value, is_rate=is_rate, unit=unit)
    surely = difference_in_words(sure, is_rate=is_rate, unit=UNITS if is_rate else "")
    if math.isnan(value):
        return f"Whether {subject[:1].lower()}{subject[1:]} helps is not known."
    if claim.cost:
        does = "pays" if claim.gains else "does not pay"
    else:
        does = "helps" if claim.gains else "harms"
    if math.isinf(value):
        return f"{subject} {does}, however people differ between populations."
    if sides is None:
        where = "more" if claim.gains else "less"
        unless = f"people respond by {amount} more where they are treated {where},"
    else:
        more, less = sides if claim.gains else sides[::-1]
        unless = (
            f"people in {more} respond by {amount} more than equal people in {less}"
        )
    certain = f"{level:.0%} sure up to {surely}"
    if not sure:
        certain = f"not {level:.0%} sure even if they respond alike"
    if not claim.is_bounded:
        certain = "not sure at all, since the policies may not differ"
    return f"{subject} {does} unless {unless} for other reasons ({certain})."
