"""What the paper's section 6.3 says, held against our numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from studies.paper.draws import OURS, WIDTHS

HOLDS, PARTLY, NOT_SHOWN, CONTRADICTED = (
    "holds",
    "holds partly",
    "not shown",
    "contradicted",
)
CLEAR = 2.0  # standard errors on each side of an interval
WELL = 0.8  # of the oracle's area above random: what we call "relatively well"
POORLY = 0.5  # of it, or less
DROP = 0.1  # of it: what we call a decline
PAPER_B = 2.0  # "the point around 2"; the next point of the grid is taken
OFTEN = 0.1  # share of points with gross errors that we call "tend to have"
Block = dict[str, Any]
Check = tuple[str, str, str]  # what is checked, the verdict on it, the interval found
OURS_ALONE = (
    "The default was run again by itself, on the same draws. The other lines are from an earlier "
    "run, which chose the ridges of MinMaxGau by other models of the policies. So a "
    "difference from the default carries the error of two separate means, not the smaller one of "
    "paired trials, and a lead shows less easily."
)


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

    ``margin`` is by how much the number is on the side that is claimed. One trial alone has no
    standard error, and shows nothing.
    """
    if error is None or abs(margin) <= CLEAR * error:
        return NOT_SHOWN
    return HOLDS if margin > 0.0 else CONTRADICTED


def verdict_of(parts: Iterable[str]) -> str:
    """Return the verdict on a claim that says that all of its parts hold."""
    verdicts = set(parts)
    if CONTRADICTED in verdicts:
        return CONTRADICTED
    if verdicts == {HOLDS}:
        return HOLDS
    return PARTLY if verdicts & {HOLDS, PARTLY} else NOT_SHOWN


def check_claims(studies: dict[str, Block]) -> list[dict[str, Any]]:
    """Return each claim about the studies given, with its verdict and the checks it rests on."""
    claims = []
    for study, claim, checks_of in CLAIMS:
        if study in studies:
            checks = list(checks_of(studies[study]))
            keys = ("what", "verdict", "found")
            claims.append(
                {
                    "study": study,
                    "claim": claim,
                    "verdict": verdict_of(verdict for _, verdict, _ in checks),
                    "checks": [dict(zip(keys, check, strict=True)) for check in checks],
                }
            )
    return claims


def _leads(block: Block, *, over_ours: bool) -> list[Lead]:
    """Return which methods of the paper are clearly above our default, or above its own one.

    Its own is the better width of MinMaxGau, and only baselines are compared with it.
    """
    points = (
        block["by_b"] if "by_b" in block else [{"b": None, "methods": block["methods"]}]
    )
    score = "share" if "by_b" in block else "auuc"
    leads = []
    for point in points:
        methods = point["methods"]
        best = OURS if over_ours else max(WIDTHS, key=lambda m: methods[m][score])
        rivals = [m for m in methods if m != OURS] if over_ours else _baselines(methods)
        leads += [Lead(point["b"], m, best, *methods[m]["minus"][best]) for m in rivals]
    return [lead for lead in leads if judge(lead.value, lead.error) == HOLDS]


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
            error = math.hypot(
                last_error, error
            )  # draws at different b are independent
        what = f"{method}: loses {DROP} of the oracle or more from b = {max(shares):g} to 5"
        loss = last - middle
        yield (
            what,
            judge(loss - DROP, error),
            f"loses {_interval(loss, error, sign='+')}",
        )


def _longer(block: Block) -> Iterable[Check]:
    for method in WIDTHS:
        shares = {
            b: share for b, share in _shares(block, method).items() if b >= PAPER_B
        }
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
    shares = {
        b: share for b, share in _shares(block, "FourLogistic").items() if b >= PAPER_B
    }
    high = max(shares, key=lambda b: _end(shares[b], -1.0))
    low = min(shares, key=lambda b: _end(shares[b], +1.0))
    for b, margin, what in (
        (high, shares[high][0] - WELL, f"{WELL} of the oracle or more at some b"),
        (
            low,
            POORLY - shares[low][0],
            f"{POORLY} of it or less at some other b of 2 or more",
        ),
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
    block: Block, losers: Iterable[str], winners: Iterable[str] = tuple(WIDTHS)
) -> Iterable[Check]:
    for winner in winners:
        for loser in losers:
            difference = block["methods"][winner]["minus"][loser]
            what = f"{winner}, above {loser}"
            yield what, judge(*difference), _interval(*difference, sign="+")


CLAIMS: tuple[tuple[str, str, Callable[[Block], Iterable[Check]]], ...] = (
    (
        "synthetic",
        "All methods do relatively well when the policies are distant.",
        _apart,
    ),
    (
        "synthetic",
        "The baselines decline immediately as the policies get closer.",
        _decline,
    ),
    (
        "synthetic",
        "The proposed method keeps its performance longer, until b is around 2.",
        _longer,
    ),
    (
        "synthetic",
        "FourLogistic works well for some b but poorly for other.",
        _unstable,
    ),
    (
        "synthetic",
        "At b = 1, FourNNC tends to have very large errors where the policies differ little; "
        "the proposed method has relatively small ones.",
        _gross,
    ),
    (
        "email",
        "Email: the proposed method and logistic regression are both better than networks.",
        partial(_beats, losers=["FourNNC"], winners=(*WIDTHS, "FourLogistic")),
    ),
    (
        "jobs",
        "Jobs: the proposed method is better than networks.",
        partial(_beats, losers=["FourNNR"]),
    ),
    (
        "criteo",
        "Criteo: the proposed method outperforms the baselines.",
        partial(_beats, losers=["FourLogistic", "FourNNC"]),
    ),
)


def describe_leads(block: Block) -> str:
    """Return which methods are clearly above MinMaxGau, and above our default, in words."""
    what = (
        "share of the oracle"
        if "by_b" in block
        else f"area, {block['unit']} per person"
    )
    parts = []
    for over_ours, who, whom in (
        (False, "baseline", "the better of the two MinMaxGau"),
        (True, "method", "our default"),
    ):
        leads = _leads(block, over_ours=over_ours)
        lines = (
            _lead_lines(leads, len(block["by_b"]))
            if "by_b" in block
            else map(str, leads)
        )
        listed = "\n".join(f"- {line}" for line in lines)
        parts.append(
            f"{who.title()}s of the paper that are clearly above {whom} ({what}):\n\n{listed}"
            if leads
            else f"No {who} of the paper is shown to be above {whom}."
        )
    if block.get("ours_alone"):
        parts.append(OURS_ALONE)
    return "\n\n".join(parts)


def _lead_lines(leads: list[Lead], n_b: int) -> Iterator[str]:
    """Yield one line for each method: at how many b it leads, and by how much."""
    for name in dict.fromkeys(lead.name for lead in leads):
        own = sorted(
            (lead for lead in leads if lead.name == name), key=lambda lead: lead.value
        )
        ends = [
            f"{plus_minus(lead.value, lead.error)} (b = {lead.b:.4g}, over {lead.over})"
            for lead in (own[0], own[-1])
        ]
        yield f"{name}: at {len(own)} of {n_b} values of b, by {ends[0]} to {ends[1]}"
