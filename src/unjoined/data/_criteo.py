"""Criteo's counterfactual test-bed: banners with one slot, the product shown, click or no click."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

import numpy as np

from unjoined._validation import check_count
from unjoined.data._criteo_formats import (
    DISPLAY_FEATURES,
    Impression,
    read_impressions,
)
from unjoined.data._download import Source, locate
from unjoined.data._lines import Lines, NumberTable
from unjoined.data._public_data import PublicData
from unjoined.errors import TableError

__all__ = ["criteo_impressions", "fetch_criteo"]

CRITEO_SOURCE = Source(
    name="CriteoBannerFillingChallenge.tar.gz",
    addresses=(
        "https://s3-eu-west-1.amazonaws.com/reco-dataset/CriteoBannerFillingChallenge.tar.gz",
    ),
    size="35 GB",
)
FEATURES = tuple(f"display_{j}" for j in range(1, DISPLAY_FEATURES + 1))
INDEX_COLUMNS = ("challenge_index", "testbed_feature_id")


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
        default. We know no checksum of it; gzip's own is verified.
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
      treatment product feature 12: 53.0 % treated, propensity not known
    """
    if max_rows is not None:
        check_count("max_rows", max_rows)
    file = locate(CRITEO_SOURCE, path=path, download=download, progress=progress)
    impressions = criteo_impressions(file, display_index=display_index)
    first = next(impressions, None)
    if first is None:
        raise TableError(f"{str(file)!r} has no impression with one slot. Check path=.")
    features = FEATURES[: len(first.features)]
    table = NumberTable(len(features) + 7)
    for one in islice(chain([first], impressions), max_rows):
        table.append(_numbers(one))
    rows = table.matrix()
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


def _numbers(one: Impression) -> list[float]:
    """Return an impression as a row of numbers, features first."""
    return [
        *one.features,
        one.clicked,
        one.treated,
        one.weight,
        one.propensity,
        one.example,
        one.n_candidates,
        one.n_treated,
    ]


def criteo_impressions(
    path: str | os.PathLike[str],
    *,
    display_index: str | os.PathLike[str] | Mapping[int, int] | None = None,
) -> Iterator[Impression]:
    """Yield the one-slot impressions of a test-bed file one by one, in constant memory.

    Parameters
    ----------
    path : path
        A file in any of the three forms, see `fetch_criteo`.
    display_index : path or mapping of int to int, optional
        For the challenge's form, see `fetch_criteo`.

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


def _display_index(given: str | os.PathLike[str] | Mapping[int, int] | None) -> dict[int, int]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        found = {int(token): int(feature) for token, feature in given.items()}
    else:
        found = _read_index(Path(given))
    return {token: feature for token, feature in found.items() if 3 <= feature <= DISPLAY_FEATURES}


def _read_index(path: Path) -> dict[int, int]:
    if not path.is_file():
        raise TableError(f"there is no file {str(path)!r}. Check display_index=.")
    with Lines(path) as lines:
        reader = csv.DictReader(lines)
        if missing := [name for name in INDEX_COLUMNS if name not in (reader.fieldnames or ())]:
            raise TableError(f"{str(path)!r} has no column {missing[0]!r}. Check display_index=.")
        found = {}
        for row in reader:
            try:
                if row[INDEX_COLUMNS[1]]:
                    found[int(row[INDEX_COLUMNS[0]])] = int(row[INDEX_COLUMNS[1]])
            except (TypeError, ValueError) as error:
                raise lines.fail(f"expected two whole numbers ({error}).") from error
    return found
