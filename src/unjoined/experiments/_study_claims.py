"""What the paper's section 6.3 says, held against our numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from unjoined.experiments._study_methods import OURS, WIDTHS

__all__ = ["WELL", "check_claims", "lost_by_ours", "lost_comparisons", "plus_minus"]

WELL = 0.8  # of the oracle's area above random: what we call "relatively well"
DROP = 0.1  # of it: what we call a decline
CLEAR = 2.0  # standard errors
PAPER_B = 2.1  # "the point around 2", to the next point of the grid
OFTEN = 0.1  # share of points with gross errors that we call "tend to have"

Block = dict[str, Any]
Check = tuple[str, bool, str]  # what is checked, whether it is met, the number found


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
        whether it was met, and the number. A claim holds if all checks are met, holds partly if
        some are, and does not hold if none is.
    """
    found = []
    for study, claim, checks_of in CLAIMS:
        if study in studies:
            checks = list(checks_of(studies[study]))
            met = sum(check[1] for check in checks)
            verdict = "holds" if met == len(checks) else "holds partly" if met else "does not hold"
            found.append(
                {
                    "study": study,
                    "claim": claim,
                    "verdict": verdict,
                    "checks": [
                        {"what": what, "met": is_met, "found": number}
                        for what, is_met, number in checks
                    ],
                }
            )
    return found


def lost_comparisons(block: Block) -> list[str]:
    """Return where a baseline of the paper beats both widths of MinMaxGau, clearly.

    Clearly is by more than two standard errors, trial by trial, against the better width.
    """
    score = "share" if "by_b" in block else "auuc"
    lost = []
    for place, methods in _points(block):
        best = max(WIDTHS, key=lambda name, m=methods: m[name][score])  # type: ignore[misc]
        lost += _ahead(place, methods, _baselines(methods), best)
    return lost


def lost_by_ours(block: Block) -> list[str]:
    """Return where a method of the paper beats the library's default, clearly."""
    lost = []
    for place, methods in _points(block):
        lost += _ahead(place, methods, [name for name in methods if name != OURS], OURS)
    return lost


def _points(block: Block) -> list[tuple[str, Block]]:
    """Return the places of a study that are compared, with the numbers of all methods."""
    if "by_b" not in block:
        return [("", block["methods"])]
    return [(f"b = {point['b']:.4g}, ", point["methods"]) for point in block["by_b"]]


def _ahead(place: str, methods: Block, rivals: Iterable[str], ours: str) -> list[str]:
    return [
        f"{place}{name}: {plus_minus(*methods[name]['minus'][ours])} above {ours}"
        for name in rivals
        if _is_clear(methods[name]["minus"][ours])
    ]


def plus_minus(value: float, error: float | None) -> str:
    """Return a number with its standard error, both to the error's second digit."""
    if not error:
        return f"{value:+.3g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:+,.{digits}f} ± {error:,.{digits}f}"


def _is_clear(difference: tuple[float, float | None]) -> bool:
    value, error = difference
    return error is not None and value > CLEAR * error


def _baselines(methods: Iterable[str]) -> list[str]:
    return [name for name in methods if name not in WIDTHS and name != OURS]


def _shares(block: Block, method: str) -> dict[float, float]:
    return {p["b"]: p["methods"][method]["share"] for p in block["by_b"]}


def _paper_methods(block: Block) -> list[str]:
    return [name for name in block["by_b"][0]["methods"] if name != OURS]


def _holds_out(shares: dict[float, float]) -> float:
    """Return the smallest b from which on the share stays at 0.8 or above; inf if none."""
    least = float("inf")
    for b in sorted(shares, reverse=True):
        if shares[b] < WELL:
            break
        least = b
    return least


def _apart(block: Block) -> Iterable[Check]:
    for method in _paper_methods(block):
        b, share = max(_shares(block, method).items())
        yield f"{method}: at least {WELL} of the oracle at b = {b:g}", share >= WELL, f"{share:.2f}"


def _decline(block: Block) -> Iterable[Check]:
    for method in _baselines(block["by_b"][0]["methods"]):
        shares = _shares(block, method)
        last, middle = shares[max(shares)], shares[5.0]
        what = f"{method}: loses {DROP} of the oracle or more from b = {max(shares):g} to 5"
        yield what, last - middle >= DROP, f"{last:.2f} to {middle:.2f}"


def _longer(block: Block) -> Iterable[Check]:
    others = {
        name: _holds_out(_shares(block, name)) for name in _baselines(block["by_b"][0]["methods"])
    }
    for method in WIDTHS:
        b = _holds_out(_shares(block, method))
        yield (
            f"{method}: stays at {WELL} of the oracle or above down to b = 2",
            b <= PAPER_B,
            _at(b),
        )
        shown = ", ".join(f"{name} {_at(value)}" for name, value in others.items())
        what = f"{method}: down to a smaller b than both baselines"
        yield what, b < min(others.values()), f"{_at(b)}; {shown}"


def _at(b: float) -> str:
    return f"b = {b:.4g}" if b < float("inf") else "nowhere"


def _unstable(block: Block) -> Iterable[Check]:
    shares = {b: s for b, s in _shares(block, "FourLogistic").items() if b >= 2.0}
    high, low = max(shares, key=lambda b: shares[b]), min(shares, key=lambda b: shares[b])
    yield (
        f"{WELL} of the oracle or more at some b",
        shares[high] >= WELL,
        f"{shares[high]:.2f} at {_at(high)}",
    )
    yield (
        "below half of it at another b of 2 or more",
        shares[low] < 0.5,
        f"{shares[low]:.2f} at {_at(low)}",
    )


def _gross(block: Block) -> Iterable[Check]:
    network = block["gross"]["FourNNC"]
    few, many = network["large gap"], network["small gap"]
    yield (
        "FourNNC: gross errors at a tenth or more of the points of small gap, and twice as often "
        "as where it is large",
        many >= max(OFTEN, 2.0 * few),
        f"{many:.0%} against {few:.0%}".replace("%", " %"),
    )
    for method in WIDTHS:
        share = block["gross"][method]["small gap"]
        what = f"{method}: half as often there, or less"
        yield what, share <= many / 2.0, f"{share:.0%}".replace("%", " %")


def _beats(
    *losers: str, winners: Iterable[str] = tuple(WIDTHS)
) -> Callable[[Block], Iterable[Check]]:
    winners = tuple(winners)

    def checks(block: Block) -> Iterable[Check]:
        for winner in winners:
            for loser in losers:
                difference = block["methods"][winner]["minus"][loser]
                number = plus_minus(*difference)
                yield f"{winner} above {loser}, clearly", _is_clear(difference), number

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
