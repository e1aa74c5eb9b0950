"""The job training of the National Supported Work Demonstration: earnings after a random offer."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from unjoined._optional import import_extra
from unjoined._typing import Array
from unjoined._validation import check_option
from unjoined.datasets.fetch import Lines, NumberTable, PublicData, Source, locate, open_bytes
from unjoined.errors import TableError


def _source(name: str, sha256: str, size: str) -> Source:
    address = f"https://users.nber.org/~rdehejia/data/{name}"
    return Source(name, (address,), size, frozenset({sha256}))


TREATED = _source(
    "nsw_treated.txt", "d83b70b89388caf2d8e6cd3bac1a2bf1bd177e7e3a92561f6f9a6e45711f0b56", "43 kB"
)


CONTROL = _source(
    "nsw_control.txt", "7ab75de500006526567f49add9b3f29228e3facf8c3dfbd5b0fa9c4aefd72b4d", "62 kB"
)


DEHEJIA_WAHBA = _source(
    "nsw_dw.dta", "27a61a9ac68ddf1b0383c1977d07b794a6a5dc7f2d3fc6a0040ac743087697cc", "29 kB"
)


COMMON: tuple[str, ...] = ("age", "education", "black", "hispanic", "married", "nodegree")


TEXT_COLUMNS = ("treat", *COMMON, "re75", "re78")


STATA_COLUMNS = ("treat", *COMMON, "re74", "re75", "re78")


def fetch_jobs(
    *,
    sample: Literal["lalonde", "dehejia-wahba"] = "lalonde",
    path: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> PublicData:
    """Return the job training experiment of LaLonde (1986), the "Jobs" data of the paper.

    People who were hard to employ were offered a job training or not, at random. The outcome is
    what they earned in 1978, in dollars of that time.

    Parameters
    ----------
    sample : {"lalonde", "dehejia-wahba"}, default="lalonde"
        LaLonde's 297 treated and 425 others, or the 185 and 260 among them whose earnings of
        1974 are known (Dehejia and Wahba, 1999).
    path : path, optional
        The folder with your copies of the files, instead of the cache; for "dehejia-wahba" it
        may be the file itself.
    download : bool, default=True
        Whether to download the files if they are not in the cache, see `data_folder`.
    progress : bool, default=True
        Whether a download shows a bar, if stderr is a terminal.

    Returns
    -------
    PublicData
        7 features: ``age`` and ``education`` in years, ``black``, ``hispanic``, ``married``,
        ``nodegree`` (no high-school degree) as 0/1, ``re75`` (earnings of 1975, dollars); with
        "dehejia-wahba" also ``re74``. ``propensity`` is the share treated, as assignment was
        random. Rows are in the order of the files, treated ones first: shuffle before a split.

    Raises
    ------
    TableError
        A file cannot be had or read; the message says what to do.

    Notes
    -----
    Sources: R. LaLonde, "Evaluating the Econometric Evaluations of Training Programs", American
    Economic Review 76 (1986) 604-620; R. Dehejia and S. Wahba, JASA 94 (1999), who publish the
    files with LaLonde's permission at https://users.nber.org/~rdehejia/data/.nswdata3.html. No
    licence is stated. The paper counts nine features; the public files have these.

    Examples
    --------
    >>> fetch_jobs()  # doctest: +SKIP
    PublicData 'jobs': 722 rows, 7 features
      outcome   re78: mean 5455
      treatment treat: 41.1 % treated
    """
    check_option("sample", sample, ("lalonde", "dehejia-wahba"))
    if sample == "lalonde":
        if path is not None and not Path(path).is_dir():
            raise TableError(
                f"path must be the folder that holds {TREATED.name!r} and {CONTROL.name!r}, got "
                f"{str(path)!r}, which is no folder."
            )
        files = [
            locate(source, path=path, download=download, progress=progress)
            for source in (TREATED, CONTROL)
        ]
        table = np.concatenate([_read_text(file) for file in files])
        features = TEXT_COLUMNS[1:-1]
    else:
        file = locate(DEHEJIA_WAHBA, path=path, download=download, progress=progress)
        table, features = _read_dehejia_wahba(file), STATA_COLUMNS[1:-1]
    treated = np.array(table[:, 0])
    return PublicData(
        name="jobs",
        X=np.ascontiguousarray(table[:, 1:-1]),
        y=np.array(table[:, -1]),
        treatment=treated,
        feature_names=features,
        outcome_name="re78",
        treatment_name="treat",
        propensity=np.full(len(treated), treated.mean()),
    )


def _read_text(path: Path) -> Array:
    """Return the nine columns of one of LaLonde's text files."""
    table = NumberTable(len(TEXT_COLUMNS))
    with Lines(path) as lines:
        for line in lines:
            try:
                row = [float(cell) for cell in line.split()]
            except ValueError as error:
                raise lines.fail(f"{error}.") from error
            if len(row) != len(TEXT_COLUMNS):
                raise lines.fail(f"expected {len(TEXT_COLUMNS)} numbers, found {len(row)}.")
            if row[0] not in (0.0, 1.0) or not np.isfinite(row).all():
                raise lines.fail(f"expected treat (0 or 1) and finite numbers, found {row}.")
            table.append(row)
    if not len(table):
        raise TableError(f"{str(path)!r} is empty. Fetch it again.")
    return table.matrix()


def _read_dehejia_wahba(path: Path) -> Array:
    pandas = import_extra("pandas", extra="datasets")
    try:
        with open_bytes(path) as file:
            frame = pandas.read_stata(file, columns=list(STATA_COLUMNS))
        table: Array = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, EOFError, struct.error) as error:
        raise TableError(
            f"{str(path)!r} is not the Dehejia-Wahba file: {error}. Check path=, or fetch it again."
        ) from error
    if not len(table) or not np.isfinite(table).all() or not np.isin(table[:, 0], (0, 1)).all():
        raise TableError(
            f"{str(path)!r} is not the Dehejia-Wahba file: expected rows without missing numbers "
            "and treat coded 0/1. Check path=."
        )
    return table
