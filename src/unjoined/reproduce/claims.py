"""What the paper's section 6.3 says, held against our numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from unjoined.reproduce.studies import OURS, WIDTHS

HOLDS, PARTLY, NOT_SHOWN, CONTRADICTED = "holds", "holds partly", "not shown", "contradicted"


CLEAR = 2.0  # standard errors on each side of an interval


WELL = 0.8  # of the oracle's area above random: what we call "relatively well"


POORLY = 0.5  # of it, or less


DROP = 0.1  # of it: what we call a decline


PAPER_B = 2.0  # "the point around 2"; the next point of the grid is taken


OFTEN = 0.1  # share of points with gross errors that we call "tend to have"


Block = dict[str, Any]


Check = tuple[str, str, str]  # what is checked, the verdict on it, the interval found


class Lead(NamedTuple):
    """A method that is clearly above another."""

    b: float | None  # None outside of the synthetic study
    name: str
    over: str
    value: float
    error: float | None

    def __str__(self) -> str:
        """Return a line for a list."""
        place = "" if self.b is None else f"b = {self.b:.4g}, "
        return f"{place}{self.name}: {plus_minus(self.value, self.error)} above {self.over}"


def judge(margin: float, error: float | None) -> str:
    """Return the verdict on one number by its interval of two standard errors on each side.

    Parameters
    ----------
    margin : float
        By how much the number is on the side that is claimed, below 0 if on the other one.
    error : float or None
        Its standard error; None if there is one trial only, which shows nothing.
    """
    if error is None or abs(margin) <= CLEAR * error:
        return NOT_SHOWN
    return HOLDS if margin > 0.0 else CONTRADICTED


def verdict_of(parts: Iterable[str]) -> str:
    """Return the verdict on a claim that says that all of its parts hold."""
    found = set(parts)
    if CONTRADICTED in found:
        return CONTRADICTED
    if found == {HOLDS}:
        return HOLDS
    return PARTLY if found & {HOLDS, PARTLY} else NOT_SHOWN


def check_claims(studies: dict[str, Block]) -> list[dict[str, Any]]:
    """Return each claim of section 6.3 about the studies given, with checks and a verdict.

    Parameters
    ----------
    studies : dict of str to dict
        Blocks of `summarise_study`.

    Returns
    -------
    list of dict
        ``claim`` (the paper's words, shortened), ``verdict``, and ``checks``: what was compared,
        the verdict on it, and the interval it rests on. The rules are `judge` for a number and
        `verdict_of` for a claim.
    """
    found = []
    for study, claim, checks_of in CLAIMS:
        if study in studies:
            checks = list(checks_of(studies[study]))
            found.append(
                {
                    "study": study,
                    "claim": claim,
                    "verdict": verdict_of(verdict for _, verdict, _ in checks),
                    "checks": [
                        {"what": what, "verdict": verdict, "found": number}
                        for what, verdict, number in checks
                    ],
                }
            )
    return found


def lost_comparisons(block: Block) -> list[Lead]:
    """Return where a baseline of the paper is clearly above the better width of MinMaxGau."""
    score = "share" if "by_b" in block else "auuc"
    lost = []
    for b, methods in _points(block):
        best = max(WIDTHS, key=lambda name, m=methods: m[name][score])  # type: ignore[misc]
        lost += _ahead(b, methods, _baselines(methods), best)
    return lost


def lost_by_ours(block: Block) -> list[Lead]:
    """Return where a method of the paper is clearly above the library's default."""
    lost = []
    for b, methods in _points(block):
        lost += _ahead(b, methods, [name for name in methods if name != OURS], OURS)
    return lost


def _points(block: Block) -> list[tuple[float | None, Block]]:
    """Return the places of a study that are compared, with the numbers of all methods."""
    if "by_b" not in block:
        return [(None, block["methods"])]
    return [(point["b"], point["methods"]) for point in block["by_b"]]


def _ahead(b: float | None, methods: Block, rivals: Iterable[str], over: str) -> list[Lead]:
    found = [Lead(b, name, over, *methods[name]["minus"][over]) for name in rivals]
    return [lead for lead in found if judge(lead.value, lead.error) == HOLDS]


def plus_minus(value: float, error: float | None) -> str:
    """Return a number with its standard error, both to the error's second digit."""
    if not error:
        return f"{value:+.3g}"
    digits = _digits(error)
    return f"{value:+,.{digits}f} ± {error:,.{digits}f}"


def _interval(value: float, error: float | None, *, sign: str = "") -> str:
    """Return the interval that a verdict rests on."""
    if error is None:
        return f"{value:{sign}.3g} in one trial, no interval"
    digits = _digits(error) if error else 3
    low, high = value - CLEAR * error, value + CLEAR * error
    return f"{low:{sign},.{digits}f} to {high:{sign},.{digits}f}"


def _digits(error: float) -> int:
    return max(0, 1 - math.floor(math.log10(error)))


def _baselines(methods: Iterable[str]) -> list[str]:
    return [name for name in methods if name not in WIDTHS and name != OURS]


def _shares(block: Block, method: str) -> dict[float, tuple[float, float | None]]:
    """Return the share of the oracle with its standard error at every b."""
    rows = {p["b"]: p["methods"][method] for p in block["by_b"]}
    return {b: (row["share"], row["share_se"]) for b, row in rows.items()}


def _paper_methods(block: Block) -> list[str]:
    return [name for name in block["by_b"][0]["methods"] if name != OURS]


def _end(share: tuple[float, float | None], sign: float) -> float:
    """Return an end of the interval, the upper one for +1."""
    return share[0] + sign * CLEAR * (share[1] or 0.0)


def _apart(block: Block) -> Iterable[Check]:
    for method in _paper_methods(block):
        b, (share, error) = max(_shares(block, method).items())
        what = f"{method}: {WELL} of the oracle or more at b = {b:g}"
        yield what, judge(share - WELL, error), _interval(share, error)


def _decline(block: Block) -> Iterable[Check]:
    for method in _baselines(block["by_b"][0]["methods"]):
        shares = _shares(block, method)
        (last, last_error), (middle, error) = shares[max(shares)], shares[5.0]
        if last_error is not None and error is not None:
            error = math.hypot(last_error, error)  # draws at different b are independent
        what = f"{method}: loses {DROP} of the oracle or more from b = {max(shares):g} to 5"
        loss = last - middle
        yield what, judge(loss - DROP, error), f"loses {_interval(loss, error, sign='+')}"


def _longer(block: Block) -> Iterable[Check]:
    for method in WIDTHS:
        shares = {b: share for b, share in _shares(block, method).items() if b >= PAPER_B}
        least = min(shares)
        verdicts = [judge(share - WELL, error) for share, error in shares.values()]
        worst = min(shares, key=lambda b, s=shares: _end(s[b], +1.0))  # type: ignore[misc]
        yield (
            f"{method}: {WELL} of the oracle or more at all {len(shares)} b from {least:.4g} on",
            verdict_of(verdicts),
            f"holds at {verdicts.count(HOLDS)}, contradicted at {verdicts.count(CONTRADICTED)}; "
            f"{_interval(*shares[worst])} at b = {worst:.4g}",
        )
        methods = next(p["methods"] for p in block["by_b"] if p["b"] == least)
        for other in _baselines(methods):
            difference = methods[method]["minus"][other]
            what = f"{method}, above {other} at b = {least:.4g}"
            yield what, judge(*difference), _interval(*difference, sign="+")


def _unstable(block: Block) -> Iterable[Check]:
    shares = {b: share for b, share in _shares(block, "FourLogistic").items() if b >= PAPER_B}
    high = max(shares, key=lambda b: _end(shares[b], -1.0))
    low = min(shares, key=lambda b: _end(shares[b], +1.0))
    for b, margin, what in (
        (high, shares[high][0] - WELL, f"{WELL} of the oracle or more at some b"),
        (low, POORLY - shares[low][0], f"{POORLY} of it or less at some other b of 2 or more"),
    ):
        share, error = shares[b]
        yield what, judge(margin, error), f"{_interval(share, error)} at b = {b:.4g}"


def _gross(block: Block) -> Iterable[Check]:
    network = block["gross"]["FourNNC"]
    many, error = network["small gap"], network["small gap_se"]
    yield (
        f"FourNNC: share of gross errors where the gap is small is {OFTEN} or more",
        judge(many - OFTEN, error),
        _interval(many, error),
    )
    twice = network["minus_twice_large"]
    what = "FourNNC: that share is above twice the one where the gap is large, by"
    yield what, judge(*twice), _interval(*twice, sign="+")
    for method in WIDTHS:
        below = block["gross"][method]["below_half_of_network"]
        what = f"{method}: its share is below half of that of FourNNC, by"
        yield what, judge(*below), _interval(*below, sign="+")


def _beats(
    *losers: str, winners: Iterable[str] = tuple(WIDTHS)
) -> Callable[[Block], Iterable[Check]]:
    winners = tuple(winners)

    def checks(block: Block) -> Iterable[Check]:
        for winner in winners:
            for loser in losers:
                difference = block["methods"][winner]["minus"][loser]
                what = f"{winner}, above {loser}"
                yield what, judge(*difference), _interval(*difference, sign="+")

    return checks


CLAIMS: tuple[tuple[str, str, Callable[[Block], Iterable[Check]]], ...] = (
    ("synthetic", "All methods do relatively well when the policies are distant.", _apart),
    ("synthetic", "The baselines decline immediately as the policies get closer.", _decline),
    (
        "synthetic",
        "The proposed method keeps its performance longer, until b is around 2.",
        _longer,
    ),
    ("synthetic", "FourLogistic works well for some b but poorly for other.", _unstable),
    (
        "synthetic",
        "At b = 1, FourNNC tends to have very large errors where the policies differ little; "
        "the proposed method has relatively small ones.",
        _gross,
    ),
    (
        "email",
        "Email: the proposed method and logistic regression are both better than networks.",
        _beats("FourNNC", winners=(*WIDTHS, "FourLogistic")),
    ),
    ("jobs", "Jobs: the proposed method is better than networks.", _beats("FourNNR")),
    (
        "criteo",
        "Criteo: the proposed method outperforms the baselines.",
        _beats("FourLogistic", "FourNNC"),
    ),
)


def describe_leads(block: Block) -> str:
    """Return which methods are clearly above MinMaxGau, and above our default, in words."""
    what = "share of the oracle" if "by_b" in block else f"area, {block['unit']} per person"
    parts = []
    for lost, some, none in (
        (
            lost_comparisons(block),
            "Baselines of the paper that are clearly above the better of the two MinMaxGau",
            "No baseline of the paper is shown to be above the better of the two MinMaxGau.",
        ),
        (
            lost_by_ours(block),
            "Methods of the paper that are clearly above our default",
            "No method of the paper is shown to be above our default.",
        ),
    ):
        lines = _leads(lost, len(block["by_b"])) if "by_b" in block else map(str, lost)
        listed = "\n".join(f"- {line}" for line in lines)
        parts.append(f"{some} ({what}):\n\n{listed}" if lost else none)
    return "\n\n".join(parts)


def _leads(lost: list[Lead], n_b: int) -> Iterator[str]:
    """Yield one line for each method: at how many b it leads, and by how much."""
    for name in dict.fromkeys(lead.name for lead in lost):
        leads = sorted((lead for lead in lost if lead.name == name), key=lambda lead: lead.value)
        ends = [
            f"{plus_minus(lead.value, lead.error)} (b = {lead.b:.4g}, over {lead.over})"
            for lead in (leads[0], leads[-1])
        ]
        yield f"{name}: at {len(leads)} of {n_b} values of b, by {ends[0]} to {ends[1]}"
