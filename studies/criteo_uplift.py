"""Criteo's uplift data: fourteen million rows of advertising trials, read in blocks."""

from __future__ import annotations

import os
from array import array
from itertools import islice
from typing import Literal

import numpy as np

from studies.lines import Lines, check_header
from unjoined._typing import Array
from unjoined._validation import check_count, check_option
from unjoined.datasets import PublicData, PublicFile, locate
from unjoined.errors import TableError

CRITEO_UPLIFT: PublicFile = (
    "criteo-research-uplift-v2.1.csv.gz",
    "https://huggingface.co/datasets/criteo/criteo-uplift/resolve/main/"
    "criteo-research-uplift-v2.1.csv.gz",
    "311 MB",
    (),
)
CRITEO_FEATURES = tuple(f"f{j}" for j in range(12))
CRITEO_LABELS = ("treatment", "conversion", "visit", "exposure")
CRITEO_HEADER = (*CRITEO_FEATURES, *CRITEO_LABELS)
BLOCK = 5_000  # lines read at once


def fetch_criteo_uplift(
    *,
    outcome: Literal["visit", "conversion"] = "visit",
    max_rows: int | None = None,
    path: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> PublicData:
    """Return Criteo's uplift data, version 2.1; not used in the paper, but large.

    13,979,592 users of several advertising trials. About 85 % were drawn at random to be
    targeted by a campaign; whether they visited the advertiser's site and whether they bought
    is known.

    Parameters
    ----------
    outcome : {"visit", "conversion"}, default="visit"
        Visit (0/1) or purchase (0/1).
    max_rows : int, optional
        Read this many rows from the beginning; by default all.
    path : path, optional
        A copy of the file or a part of it, plain or gzipped, or the folder it is in, instead of
        the cache.
    download, progress : bool, default=True
        Whether to download the file (311 MB) if it is not in the cache, see `data_folder`, and to
        show a bar on a terminal. We have no checksum of it; gzip's own is verified as it is read.

    Returns
    -------
    PublicData
        12 features without units, ``f0`` to ``f11`` (random projections). ``propensity`` is the
        share treated in the rows read, as assignment was random. ``extra["exposure"]`` tells
        who really saw an advertisement (0/1): a consequence of treatment, so not a feature.

    Raises
    ------
    TableError
        The file cannot be had, or a line is malformed; the message names the line.

    Notes
    -----
    Source: E. Diemert, A. Betlei, C. Renaudin, M.-R. Amini, "A Large Scale Benchmark for Uplift
    Modeling", AdKDD 2018, https://ailab.criteo.com/criteo-uplift-prediction-dataset/. Licence:
    CC BY-NC-SA 4.0, that is not for commercial use. The file is read in blocks; the rows take
    128 bytes of memory each while reading, 1.8 GB if all are read.

    Examples
    --------
    >>> fetch_criteo_uplift(max_rows=100_000)  # doctest: +SKIP
    """
    check_option("outcome", outcome, ("visit", "conversion"))
    if max_rows is not None:
        check_count("max_rows", max_rows)
    file = locate(CRITEO_UPLIFT, path=path, download=download, progress=progress)
    numbers = array("d")  # eight bytes for each number and no more
    with Lines(file) as lines:
        check_header(
            file, next(lines, "").split(","), list(CRITEO_HEADER), "Criteo uplift"
        )
        rest = islice(lines, max_rows)
        while block := list(islice(rest, BLOCK)):
            numbers.frombytes(_criteo_rows(block, lines).tobytes())
    if not numbers:
        raise TableError(f"{str(file)!r} has no rows. Fetch it again.")
    rows = np.frombuffer(numbers).reshape(-1, len(CRITEO_HEADER))
    labels = {
        name: np.array(rows[:, CRITEO_HEADER.index(name)]) for name in CRITEO_LABELS
    }
    treated = labels["treatment"]
    return PublicData(
        name="criteo uplift",
        X=rows[
            :, : len(CRITEO_FEATURES)
        ],  # a view: a copy would double the memory of all rows
        y=labels[outcome],
        treatment=treated,
        feature_names=CRITEO_FEATURES,
        outcome_name=outcome,
        treatment_name="treatment",
        propensity=np.full(len(treated), treated.mean()),
        extra={"exposure": labels["exposure"]},
    )


def _criteo_rows(block: list[str], lines: Lines) -> Array:
    """Return the numbers of a block of lines, or say which line is wrong."""
    if all(block):  # loadtxt would skip empty lines
        try:
            numbers = np.loadtxt(block, delimiter=",", ndmin=2, comments=None)
        except ValueError:
            pass
        else:
            if numbers.shape[1] == len(CRITEO_HEADER) and _is_clean(numbers):
                return numbers
    first = lines.number - len(block) + 1
    for number, line in enumerate(block, first):
        cells = line.split(",")
        if len(cells) != len(CRITEO_HEADER):
            raise lines.fail(
                f"expected {len(CRITEO_HEADER)} cells, found {len(cells)}.",
                number=number,
            )
        try:
            row = np.array([[float(cell) for cell in cells]])
        except ValueError as error:
            raise lines.fail(f"{error}.", number=number) from error
        if not _is_clean(row):
            raise lines.fail(
                f"expected finite numbers and {', '.join(CRITEO_LABELS)} coded 0/1, found "
                f"{line!r}.",
                number=number,
            )
    raise lines.fail("its numbers cannot be read.", number=first)  # pragma: no cover


def _is_clean(rows: Array) -> bool:
    labels = rows[:, len(CRITEO_FEATURES) :]
    return bool(np.isfinite(rows).all() and ((labels == 0.0) | (labels == 1.0)).all())
