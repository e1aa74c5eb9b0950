"""The three text forms of Criteo's counterfactual test-bed, read one impression at a time.

Form A is the test-bed's own (``example ...``), form B the authors' Vowpal Wabbit text
(``shared ...``), form C that of the 2017 challenge (``id |l ... |p ... |f ...``). They write
the propensity p of the displayed product, which was sub-sampled at 10 % if not clicked, as

=====  =============  =================
form   clicked        not clicked
=====  =============  =================
A      p              p
B      p              p / 10
C      1 / p          10 / p
=====  =============  =================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from unjoined.data._lines import Lines

__all__ = ["DISPLAY_FEATURES", "NON_CLICK_WEIGHT", "UNKNOWN", "Impression", "read_impressions"]

DISPLAY_FEATURES = 10  # 1 and 2 are numbers, the others categories
NUMERIC = (1, 2)
UNKNOWN = -1.0  # code of a category that is not given
NON_CLICK_WEIGHT = 10.0  # one in ten of the impressions without a click was kept
CLICKS = {"1": True, "0": False}
COSTS = {"0.001": True, "0.999": False}  # what forms B and C write for click and no click
# Form C numbers the pairs of feature and category; these are feature 12 = 0 and = 1.
CHALLENGE_CONTROL, CHALLENGE_TREATED = 11, 49

EXPECTED_A = (
    "expected 'example ID: HASH CLICK PROPENSITY SLOTS CANDIDATES FEATURE:VALUE ...' with at least "
    "one candidate"
)
EXPECTED_B = "expected 'shared ID| FEATURE_CATEGORY ...'"

DisplayIndex: TypeAlias = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Impression:
    """A banner with one slot: what was known, which product was shown, and whether it was clicked.

    ``n_candidates`` counts the products the file lists for the impression, ``n_treated`` those
    of them with feature 12 = 1.
    """

    example: int  # the file's number of the impression
    features: tuple[float, ...]  # display features 1 to 10 or 1 to 2; -1 is an unknown category
    treated: bool  # feature 12 of the displayed product
    clicked: bool
    propensity: float  # probability that the logging policy displays this product
    n_candidates: int
    n_treated: int

    @property
    def weight(self) -> float:
        """How many impressions of the log this one stands for: 1 if clicked, else 10."""
        return 1.0 if self.clicked else NON_CLICK_WEIGHT


def read_impressions(lines: Lines, display_index: DisplayIndex) -> Iterator[Impression]:
    """Yield the impressions with one slot; which form the file has is seen from its first line.

    Memory does not grow with the file. ``display_index`` maps the token numbers of form C to
    the display features 3 to 10 they are categories of; the other forms name features.

    Raises
    ------
    TableError
        A line is malformed; the message names file, line and what was expected there.
    """
    first = next(lines, None)
    if first is None:
        raise lines.fail("the file is empty.")
    lines.push_back(first)
    if first.startswith("example "):
        return _read_a(lines)
    if first.startswith("shared "):
        return _read_b(lines)
    if first.partition("|")[0].strip().isdigit():
        return _read_c(lines, display_index)
    raise lines.fail(
        "expected an impression, that is a line such as 'example 1: ...', 'shared 1| ...' or "
        f"'1 |l 0.999 |p 12.5 |f ...', found {first[:60]!r}.",
        number=1,
    )


# --- form A: the test-bed -------------------------------------------------------------------


def _read_a(lines: Lines) -> Iterator[Impression]:
    for header in lines:
        if not header:
            continue
        at, cells = lines.number, header.split()
        try:
            word, example, clicked = cells[0], int(cells[1].rstrip(":")), CLICKS[cells[3]]
            propensity, slots, n = float(cells[4]), int(cells[5]), int(cells[6])
            features = _display(cell.split(":") for cell in cells[7:])
        except (ValueError, LookupError) as error:
            raise lines.fail(f"{EXPECTED_A}, found {header[:60]!r} ({error}).") from error
        if word != "example" or n < 1:
            raise lines.fail(f"{EXPECTED_A}, found {header[:60]!r}.")
        flags = []
        for _ in range(n):
            line = next(lines, None)
            if line is None or f" exid:{example} " not in f"{line} ":
                raise lines.fail(f"expected {n} candidates of example {example} after line {at}.")
            if slots == 1:
                flags.append(_has_twelve(line, ":"))
        if slots == 1:
            _check_treatment(lines, flags[0], at + 1)
            yield _impression(lines, at, example, features, flags, clicked, propensity)


# --- form B: Vowpal Wabbit ------------------------------------------------------------------


def _read_b(lines: Lines) -> Iterator[Impression]:
    for header in lines:
        if not header.strip():
            continue
        at = lines.number
        title, bar, tokens = header.partition("|")
        try:
            word, number = title.split()
            example = int(number)
            features = _display(token.replace("_", ":", 1).split(":") for token in tokens.split())
        except (ValueError, LookupError) as error:
            raise lines.fail(f"{EXPECTED_B}, found {header[:60]!r} ({error}).") from error
        if word != "shared" or not bar:
            raise lines.fail(f"{EXPECTED_B}, found {header[:60]!r}.")
        shown = next(lines, "")
        label, _, rest = shown.partition("|")
        try:
            _, cost, chance = label.split(":")
            clicked, kept = COSTS[cost], float(chance)
        except (ValueError, KeyError) as error:
            raise lines.fail(
                "expected the displayed product, '0:COST:PROPENSITY | ...' with cost 0.001 (click) "
                f"or 0.999 (no click), found {shown[:60]!r}."
            ) from error
        flags = [_has_twelve(f" {rest}", "_")]
        _check_treatment(lines, flags[0], at + 1)
        for line in lines:
            if not line.strip():
                break
            if not line.startswith("|"):
                raise lines.fail(f"expected a candidate, '| ...', found {line[:60]!r}.")
            flags.append(_has_twelve(line, "_"))
        propensity = kept if clicked else kept * NON_CLICK_WEIGHT
        yield _impression(lines, at, example, features, flags, clicked, propensity)


# --- form C: the challenge ------------------------------------------------------------------


def _read_c(lines: Lines, display_index: DisplayIndex) -> Iterator[Impression]:
    for line in lines:
        at = lines.number
        title, *parts = line.split("|")
        try:
            example = int(title)
            values = {part[0]: part[1:] for part in parts}
            clicked, inverse = COSTS[values["l"].strip()], float(values["p"])
            tokens = [token.split(":") for token in values["f"].split()]
            features = _challenge_display(tokens, display_index)
        except (ValueError, LookupError) as error:
            raise lines.fail(
                "expected the displayed product, 'ID |l COST |p WEIGHT |f INDEX:VALUE ...' with "
                f"cost 0.001 (click) or 0.999 (no click), found {line[:60]!r} ({error})."
            ) from error
        flags = [_has_tokens(line)]
        _check_treatment(lines, flags[0], at)
        for other in lines:
            same = other.partition("|")[0].strip() == title.strip()
            if not same or "|l" in other:
                lines.push_back(other)
                break
            flags.append(_has_tokens(other))
        if inverse <= 0.0:
            raise lines.fail(f"the weight |p must be above 0, found {inverse}.", number=at)
        propensity = (1.0 if clicked else NON_CLICK_WEIGHT) / inverse
        yield _impression(lines, at, example, features, flags, clicked, propensity)


# --- parts ----------------------------------------------------------------------------------

Flags: TypeAlias = tuple[bool, bool]  # whether feature 12 = 0 and feature 12 = 1 are in a line


def _impression(
    lines: Lines,
    at: int,
    example: int,
    features: tuple[float, ...],
    flags: list[Flags],
    clicked: bool,
    propensity: float,
) -> Impression:
    # Rounding of 10 / (10 / p) may leave a hair above 1.
    if not 0.0 < propensity <= 1.0 + 1e-9:
        raise lines.fail(f"the propensity must lie in (0, 1], found {propensity}.", number=at)
    return Impression(
        example=example,
        features=features,
        treated=flags[0][1],
        clicked=clicked,
        propensity=min(propensity, 1.0),
        n_candidates=len(flags),
        n_treated=sum(treated for _, treated in flags),
    )


def _display(pairs: Iterable[list[str]]) -> tuple[float, ...]:
    """Return the ten display features; a category that is missing is -1, a number an error."""
    return _ten({int(pair[0]): float(pair[1]) for pair in pairs})


def _ten(found: Mapping[int, float]) -> tuple[float, ...]:
    if missing := [j for j in NUMERIC if j not in found]:
        raise ValueError(f"display feature {missing[0]} is missing")
    if not all(map(math.isfinite, found.values())):
        raise ValueError("a display feature is not finite")
    return tuple(found.get(j, UNKNOWN) for j in range(1, DISPLAY_FEATURES + 1))


def _challenge_display(tokens: list[list[str]], index: DisplayIndex) -> tuple[float, ...]:
    found = {}
    for number, value in tokens:
        token = int(number)
        if token < len(NUMERIC):  # indices 0 and 1 are features 1 and 2
            found[token + 1] = float(value)
        elif token in index:
            found[index[token]] = float(token)
    features = _ten(found)
    return features if index else features[: len(NUMERIC)]


def _has(line: str, token: str) -> bool:
    # A candidate line is asked for one token only, so it is not taken apart.
    return f"{token} " in line or f"{token}:" in line or line.endswith(token)


def _has_twelve(line: str, mark: str) -> Flags:
    return _has(line, f" 12{mark}0"), _has(line, f" 12{mark}1")


def _has_tokens(line: str) -> Flags:
    return f" {CHALLENGE_CONTROL}:" in line, f" {CHALLENGE_TREATED}:" in line


def _check_treatment(lines: Lines, flags: Flags, at: int) -> None:
    if flags[0] == flags[1]:
        raise lines.fail(
            "feature 12 of the displayed product, the treatment, must be 0 or 1, found "
            f"{'both' if flags[0] else 'neither'}.",
            number=at,
        )
