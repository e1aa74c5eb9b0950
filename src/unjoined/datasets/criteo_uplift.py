"""Criteo's uplift data, version 2.1: 14 million users, shown advertisements or not at random."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_count, check_option
from unjoined.datasets.fetch import Lines, NumberTable, PublicData, Source, locate
from unjoined.errors import TableError

CRITEO_UPLIFT_SOURCE = Source(
    name="criteo-research-uplift-v2.1.csv.gz",
    addresses=(
        "https://huggingface.co/datasets/criteo/criteo-uplift/resolve/main/"
        "criteo-research-uplift-v2.1.csv.gz",
        "http://go.criteo.net/criteo-research-uplift-v2.1.csv.gz",
    ),
    size="311 MB",
)


FEATURES = tuple(f"f{j}" for j in range(12))


LABELS = ("treatment", "conversion", "visit", "exposure")


HEADER = (*FEATURES, *LABELS)


BLOCK = 20_000  # lines read at once


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
    download : bool, default=True
        Whether to download the file (311 MB) if it is not in the cache, see `data_folder`. We
        know no checksum of it; gzip's own is verified.
    progress : bool, default=True
        Whether a download shows a bar, if stderr is a terminal.

    Returns
    -------
    PublicData
        12 features without units, ``f0`` to ``f11`` (random projections). ``propensity`` is the
        share treated in the rows read, as assignment was random. ``extra["exposure"]`` tells
        who really saw an advertisement (0/1): a consequence of treatment, no feature.

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
    file = locate(CRITEO_UPLIFT_SOURCE, path=path, download=download, progress=progress)
    table = NumberTable(len(HEADER))
    for block in _blocks(file, max_rows):
        table.extend(block)
    if not len(table):
        raise TableError(f"{str(file)!r} has a header but no rows. Fetch it again.")
    rows = table.matrix()
    labels = {name: np.array(rows[:, HEADER.index(name)]) for name in LABELS}
    treated = labels["treatment"]
    return PublicData(
        name="criteo uplift",
        X=rows[:, : len(FEATURES)],  # a view: a copy would double the memory of all rows
        y=labels[outcome],
        treatment=treated,
        feature_names=FEATURES,
        outcome_name=outcome,
        treatment_name="treatment",
        propensity=np.full(len(treated), treated.mean()),
        extra={"exposure": labels["exposure"]},
    )


def _blocks(path: Path, max_rows: int | None) -> Iterator[Array]:
    """Yield checked rows, at most `BLOCK` at a time."""
    with Lines(path) as lines:
        header = next(lines, "")
        if header.split(",") != list(HEADER):
            raise TableError(
                f"{str(path)!r} is not the Criteo uplift file: its first line should be "
                f"{','.join(HEADER)!r}, not {header[:120]!r}. Check path=."
            )
        rows = islice(lines, max_rows)
        while block := list(islice(rows, BLOCK)):
            yield _numbers(block, lines)


def _numbers(block: list[str], lines: Lines) -> Array:
    """Return the numbers of some lines; if they are not what they should be, say in which line."""
    if all(block):  # loadtxt would skip empty lines
        try:
            numbers = np.loadtxt(block, delimiter=",", ndmin=2, comments=None)
        except ValueError:
            pass
        else:
            if numbers.shape[1] == len(HEADER) and _is_clean(numbers):
                return numbers
    first = lines.number - len(block) + 1
    for number, line in enumerate(block, first):
        cells = line.split(",")
        if len(cells) != len(HEADER):
            raise lines.fail(f"expected {len(HEADER)} cells, found {len(cells)}.", number=number)
        try:
            row = np.array([[float(cell) for cell in cells]])
        except ValueError as error:
            raise lines.fail(f"{error}.", number=number) from error
        if not _is_clean(row):
            raise lines.fail(
                f"expected finite numbers and {', '.join(LABELS)} coded 0/1, found {line!r}.",
                number=number,
            )
    raise lines.fail("its numbers cannot be read.", number=first)  # pragma: no cover


def _is_clean(rows: Array) -> bool:
    labels = rows[:, len(FEATURES) :]
    return bool(np.isfinite(rows).all() and ((labels == 0.0) | (labels == 1.0)).all())
