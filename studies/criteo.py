"""Criteo's counterfactual test-bed in its three text forms, one impression at a time."""

from __future__ import annotations

import csv
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from studies.lines import Lines
from unjoined._validation import check_count
from unjoined.datasets import PublicData, PublicFile, locate
from unjoined.errors import TableError

DISPLAY_FEATURES = 10  # 1 and 2 are numbers, the others categories
NUMERIC = (1, 2)
UNKNOWN = -1.0  # code of a category that is not given
NON_CLICK_WEIGHT = 10.0  # one in ten of the impressions without a click was kept
CLICKS = {"1": True, "0": False}
COSTS = {
    "0.001": True,
    "0.999": False,
}  # what forms B and C write for click and no click
# Form C numbers the pairs of feature and category; these are feature 12 = 0 and = 1.
CHALLENGE_CONTROL, CHALLENGE_TREATED = 11, 49
EXPECTED_A = (
    "expected 'example ID: HASH CLICK PROPENSITY SLOTS CANDIDATES FEATURE:VALUE ...' with at least "
    "one candidate"
)
EXPECTED_B = "expected 'shared ID| FEATURE_CATEGORY ...'"
CRITEO_FILE: PublicFile = (
    "CriteoBannerFillingChallenge.tar.gz",
    "https://s3-eu-west-1.amazonaws.com/reco-dataset/CriteoBannerFillingChallenge.tar.gz",
    "35 GB",
    (),
)
FEATURES = tuple(f"display_{j}" for j in range(1, DISPLAY_FEATURES + 1))
INDEX_COLUMNS = ("challenge_index", "testbed_feature_id")

DisplayIndex: TypeAlias = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Impression:
    """A banner with one slot: what was known, which product was shown, and whether it was clicked.

    ``n_candidates`` counts the products the file lists for the impression, ``n_treated`` those
    of them with feature 12 = 1.
    """

    example: int  # the file's number of the impression
    features: tuple[
        float, ...
    ]  # display features 1 to 10 or 1 to 2; -1 is an unknown category
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
    """Yield the impressions with one slot; the file's form is seen from its first line.

    ``display_index`` maps the token numbers of form C to the display features 3 to 10 they are
    categories of; the other forms name features.
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
            word, example, clicked = (
                cells[0],
                int(cells[1].rstrip(":")),
                CLICKS[cells[3]],
            )
            propensity, slots, n = float(cells[4]), int(cells[5]), int(cells[6])
            features = _display(cell.split(":") for cell in cells[7:])
        except (ValueError, LookupError) as error:
            raise lines.fail(
                f"{EXPECTED_A}, found {header[:60]!r} ({error})."
            ) from error
        if word != "example" or n < 1:
            raise lines.fail(f"{EXPECTED_A}, found {header[:60]!r}.")
        flags = []
        for _ in range(n):
            line = next(lines, None)
            if line is None or f" exid:{example} " not in f"{line} ":
                raise lines.fail(
                    f"expected {n} candidates of example {example} after line {at}."
                )
            if slots == 1:
                flags.append(_has_twelve(line, ":"))
        if slots == 1:
            _check_treatment(lines, flags[0], at + 1)
            yield _impression(lines, at, example, features, flags, clicked, propensity)


def _read_b(lines: Lines) -> Iterator[Impression]:
    for header in lines:
        if not header.strip():
            continue
        at = lines.number
        title, bar, tokens = header.partition("|")
        try:
            word, number = title.split()
            example = int(number)
            features = _display(
                token.replace("_", ":", 1).split(":") for token in tokens.split()
            )
        except (ValueError, LookupError) as error:
            raise lines.fail(
                f"{EXPECTED_B}, found {header[:60]!r} ({error})."
            ) from error
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
            raise lines.fail(
                f"the weight |p must be above 0, found {inverse}.", number=at
            )
        propensity = (1.0 if clicked else NON_CLICK_WEIGHT) / inverse
        yield _impression(lines, at, example, features, flags, clicked, propensity)


Flags: TypeAlias = tuple[
    bool, bool
]  # whether feature 12 = 0 and feature 12 = 1 are in a line


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
        raise lines.fail(
            f"the propensity must lie in (0, 1], found {propensity}.", number=at
        )
    return Impression(
        example=example,
        features=features,
        treated=flags[0][1],
        clicked=clicked,
        propensity=min(propensity, 1.0),
        n_candidates=len(flags),
        n_treated=sum(treated for _, treated in flags),
    )


def _display(pairs: Iterable[Sequence[Any]]) -> tuple[float, ...]:
    """Return the ten display features; a category that is missing is -1, a number an error."""
    values = {int(pair[0]): float(pair[1]) for pair in pairs}
    if missing := [j for j in NUMERIC if j not in values]:
        raise ValueError(f"display feature {missing[0]} is missing")
    if not all(map(math.isfinite, values.values())):
        raise ValueError("a display feature is not finite")
    return tuple(values.get(j, UNKNOWN) for j in range(1, DISPLAY_FEATURES + 1))


def _challenge_display(
    tokens: list[list[str]], index: DisplayIndex
) -> tuple[float, ...]:
    """Return the display features of form C, or the two that need no index."""
    pairs: list[tuple[int, float]] = []
    for number, value in tokens:
        token = int(number)
        if token < len(NUMERIC):  # indices 0 and 1 are features 1 and 2
            pairs.append((token + 1, float(value)))
        elif token in index:
            pairs.append((index[token], token))
    features = _display(pairs)
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


def fetch_criteo(
    *,
    path: str | os.PathLike[str] | None = None,
    max_rows: int | None = None,
    display_index: str | os.PathLike[str] | Mapping[int, int] | None = None,
    download: bool = False,
    progress: bool = True,
) -> PublicData:
    r"""Return the one-slot impressions of Criteo's test-bed, the "Criteo" data of the paper.

    For each banner a logging policy drew one of several candidate products. Treatment is
    feature 12 of the product shown, the outcome is whether it was clicked. Features are those
    of the display: other features of the product are functions of feature 12 and would give
    the treatment away.

    Parameters
    ----------
    path : path, optional
        Your copy of the data: plain text, gzipped or a tar archive, in any of the three forms
        in public use: the test-bed's own, the authors' Vowpal Wabbit text, or that of the 2017
        challenge. The form is recognised from the first line.
    max_rows : int, optional
        Stop after this many impressions with one slot; by default read all.
    display_index : path or mapping of int to int, optional
        For the challenge's form, which numbers tokens instead of naming features: the display
        feature (3 to 10) of each token number, or a CSV file with the columns
        ``challenge_index`` and ``testbed_feature_id`` (rows where the latter is empty or above
        10 are ignored). Without it only the two numeric features are given.
    download : bool, default=False
        Whether to download the whole test-bed if it is not in the cache: 35 GB, hence not by
        default. We know no checksum of it; gzip's own is verified as it is read.
    progress : bool, default=True
        Whether a download shows a bar, if stderr is a terminal.

    Returns
    -------
    PublicData
        ``X`` holds ``display_1`` and ``display_2`` (they look like the banner's width and
        height) and the codes of eight categories (``categorical``; -1 is unknown).
        ``sample_weight`` is 10 for impressions without a click, of which one in ten was kept,
        and 1 for those with. ``propensity`` is None: what was logged is the probability of the
        *product*, ``extra["display_propensity"]``, not that of feature 12. Further columns of
        ``extra``: ``example`` (the file's number), ``n_candidates`` and ``n_treated`` (products
        the file lists for the impression, and those with feature 12 = 1).

    Raises
    ------
    TableError
        The file cannot be had, or a line is malformed; the message names the line.

    See Also
    --------
    criteo_impressions : the same rows one by one, in constant memory.

    Notes
    -----
    With :math:`p` the probability of the product shown and :math:`w` the ``sample_weight``,
    averages weighted by :math:`w / p` are those of a policy that draws candidates evenly, over
    all impressions; that weight is what the challenge's files write after ``|p``. The paper
    took the sub-sampled rows as the population, that is without weights.

    Source: D. Lefortier, A. Swaminathan, X. Gu, T. Joachims, M. de Rijke, "Large-scale
    Validation of Counterfactual Learning Methods: A Test-Bed", 2016, arXiv:1612.00367,
    http://www.cs.cornell.edu/~adith/Criteo/. No licence is stated and the authors ask to be
    cited: for research only. Reading costs 15 numbers of memory per impression kept.

    Examples
    --------
    >>> fetch_criteo(path="criteo_train_small.txt.gz")  # doctest: +SKIP
    PublicData 'criteo': 20,000 rows, 2 features
      outcome   click: mean 0.0527
      treatment product feature 12: 53.0% treated, propensity not known
    """
    if max_rows is not None:
        check_count("max_rows", max_rows)
    file = locate(CRITEO_FILE, path=path, download=download, progress=progress)
    impressions = criteo_impressions(file, display_index=display_index)
    first = next(impressions, None)
    if first is None:
        raise TableError(f"{str(file)!r} has no impression with one slot. Check path=.")
    features = FEATURES[: len(first.features)]
    numbers = array("d")  # eight bytes for each number and no more
    for one in islice(chain([first], impressions), max_rows):
        numbers.extend(one.features)
        numbers.extend((one.clicked, one.treated, one.weight, one.propensity))
        numbers.extend((one.example, one.n_candidates, one.n_treated))
    rows = np.frombuffer(numbers).reshape(-1, len(features) + 7)
    click, treated, weight, propensity, example, candidates, n_treated = np.array(
        rows[:, len(features) :].T
    )
    return PublicData(
        name="criteo",
        X=np.ascontiguousarray(rows[:, : len(features)]),
        y=click,
        treatment=treated,
        feature_names=features,
        outcome_name="click",
        treatment_name="product feature 12",
        sample_weight=weight,
        categorical=features[2:],
        extra={
            "display_propensity": propensity,
            "example": example,
            "n_candidates": candidates,
            "n_treated": n_treated,
        },
    )


def criteo_impressions(
    path: str | os.PathLike[str],
    *,
    display_index: str | os.PathLike[str] | Mapping[int, int] | None = None,
) -> Iterator[Impression]:
    """Yield the one-slot impressions of a test-bed file one by one, in constant memory.

    Parameters
    ----------
    path : path
        A file in any of the three forms.
    display_index : path or mapping of int to int, optional
        Both are described at `fetch_criteo`.

    Yields
    ------
    Impression
        Features of the display, treatment, click, propensity of the product shown, weight.

    Raises
    ------
    TableError
        The file does not exist, or a line is malformed.
    """
    file = Path(path)
    if not file.is_file():
        raise TableError(f"there is no file {str(file)!r}. Check the path.")
    index = _display_index(display_index)

    def impressions() -> Iterator[Impression]:
        with Lines(file) as lines:
            yield from read_impressions(lines, index)

    return impressions()


def _display_index(
    index: str | os.PathLike[str] | Mapping[int, int] | None,
) -> dict[int, int]:
    """Return the display feature of each token, from a mapping or a CSV file."""
    pairs = index.items() if isinstance(index, Mapping) else _read_index(index)
    features = {int(token): int(feature) for token, feature in pairs}
    return {token: j for token, j in features.items() if 3 <= j <= DISPLAY_FEATURES}


def _read_index(given: str | os.PathLike[str] | None) -> Iterator[tuple[int, int]]:
    if given is None:
        return
    path = Path(given)
    if not path.is_file():
        raise TableError(f"there is no file {str(path)!r}. Check display_index=.")
    token, feature = INDEX_COLUMNS
    with Lines(path) as lines:
        reader = csv.DictReader(lines)
        if missing := [
            name for name in INDEX_COLUMNS if name not in (reader.fieldnames or ())
        ]:
            raise TableError(
                f"{str(path)!r} has no column {missing[0]!r}. Check display_index=."
            )
        for row in reader:
            try:
                if row[feature]:
                    yield int(row[token]), int(row[feature])
            except (TypeError, ValueError) as error:
                raise lines.fail(f"expected two whole numbers ({error}).") from error
