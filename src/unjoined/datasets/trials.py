"""Randomised trials: an e-mail campaign, a job training, and advertising at Criteo."""

from __future__ import annotations

import csv
import math
import os
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array
from unjoined._validation import check_option
from unjoined.datasets.fetch import Lines, PublicData, Source, locate, open_bytes
from unjoined.errors import TableError

EMAIL_NAME = "Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv"
EMAIL = Source(
    EMAIL_NAME,
    (f"http://www.minethatdata.com/{EMAIL_NAME}",),
    "4 MB",
    frozenset(
        {
            # lines ending in CR LF, in LF, and the former gzipped
            "0e5893329d8b93cefecc571777672028290ab69865718020c78c7284f291aece",
            "27bab8c5d3669f26ec08ebb50a0a78317542f29501156f2e2af6781fab4cd7e2",
            "f9a270d0268d48a041e8e8134e8a27cc1dd69b4fda962def55de7b9081145bad",
        }
    ),
)
EMAIL_HEADER = [
    *("recency", "history_segment", "history", "mens", "womens", "zip_code", "newbie"),
    *("channel", "segment", "visit", "conversion", "spend"),
]
ZIP_CODES = ("Urban", "Surburban", "Rural")  # the file's own spelling
CHANNELS = ("Phone", "Web", "Multichannel")
ARMS = ("No E-Mail", "Mens E-Mail", "Womens E-Mail")
EMAIL_FEATURES = (
    *("recency", "history_segment", "history", "mens", "womens"),
    *("zip_urban", "zip_suburban", "zip_rural", "newbie"),
    *("channel_phone", "channel_web", "channel_multichannel"),
)
EMAIL_OUTCOMES = ("visit", "conversion", "spend")
# Which arms are treated, and the chance of being in one of them rather than not mailed.
MAILS = {"any": ((1, 2), 2 / 3), "mens": ((1,), 1 / 2), "womens": ((2,), 1 / 2)}

JOBS_PAGE = "https://users.nber.org/~rdehejia/data/"
NSW_FILES = {  # name, size and SHA-256
    "nsw_treated.txt": "43 kB d83b70b89388caf2d8e6cd3bac1a2bf1bd177e7e3a92561f6f9a6e45711f0b56",
    "nsw_control.txt": "62 kB 7ab75de500006526567f49add9b3f29228e3facf8c3dfbd5b0fa9c4aefd72b4d",
    "nsw_dw.dta": "29 kB 27a61a9ac68ddf1b0383c1977d07b794a6a5dc7f2d3fc6a0040ac743087697cc",
}
TREATED, CONTROL, DEHEJIA_WAHBA = (
    Source(name, (JOBS_PAGE + name,), facts[:5], frozenset({facts[6:]}))
    for name, facts in NSW_FILES.items()
)
PERSON = ("treat", "age", "education", "black", "hispanic", "married", "nodegree")
JOBS_COLUMNS = {
    "lalonde": (*PERSON, "re75", "re78"),
    "dehejia-wahba": (*PERSON, "re74", "re75", "re78"),
}


def fetch_email(
    *,
    outcome: Literal["visit", "conversion", "spend"] = "visit",
    treatment: Literal["any", "mens", "womens"] = "any",
    path: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> PublicData:
    """Return Hillstrom's e-mail campaign, the "Email" data of the paper.

    64,000 customers who bought in the past year were mailed about men's merchandise, about
    women's, or not at all, one third each, at random. What they did in the two weeks after is
    known. The file (4 MB) is downloaded once and works offline from then on.

    Parameters
    ----------
    outcome : {"visit", "conversion", "spend"}, default="visit"
        Whether the customer visited the site (0/1), bought (0/1), or what was spent (dollars).
    treatment : {"any", "mens", "womens"}, default="any"
        Which mail counts as treatment: either (64,000 rows), or the one named against no mail
        (42,613 and 42,693 rows; those who got the other mail are left out).
    path : path, optional
        A copy of the file, plain or gzipped, or the folder it is in, instead of the cache.
    download, progress : bool, default=True
        Whether to download the file if it is not in the cache, see `data_folder`, and to show a
        bar on a terminal.

    Returns
    -------
    PublicData
        12 features: months since the last purchase (``recency``, 1 to 12), last year's spending
        in dollars (``history``) and its bracket (``history_segment``, 1 to 7), what was bought
        (``mens``, ``womens``), ``newbie``, and zip code and channel as columns of 0 and 1.
        ``propensity`` is 2/3, or 1/2 for a single mailing.

    Raises
    ------
    TableError
        The file cannot be had or read; the message says what to do.

    Notes
    -----
    Source: K. Hillstrom, "The MineThatData E-Mail Analytics And Data Mining Challenge",
    20 March 2008, https://blog.minethatdata.com/2008/03/minethatdata-e-mail-analytics-and-data.html.
    The author states no licence; third parties label the file CC0. This package does
    not contain it. Reading takes under a second.

    Examples
    --------
    >>> fetch_email(outcome="visit", treatment="womens")  # doctest: +SKIP
    PublicData 'email': 42,693 rows, 12 features
      outcome   visit: mean 0.1288
      treatment womens: 50.1% treated
    """
    check_option("outcome", outcome, EMAIL_OUTCOMES)
    arms, chance = MAILS[check_option("treatment", treatment, MAILS)]
    rows = _read_email(locate(EMAIL, path=path, download=download, progress=progress))
    rows = rows[np.isin(rows[:, -1], (0, *arms))]
    d = len(EMAIL_FEATURES)
    return PublicData(
        name="email",
        X=np.ascontiguousarray(rows[:, :d]),
        y=np.array(rows[:, d + EMAIL_OUTCOMES.index(outcome)]),
        treatment=(rows[:, -1] > 0).astype(np.float64),
        feature_names=EMAIL_FEATURES,
        outcome_name=outcome,
        treatment_name=treatment,
        propensity=np.full(len(rows), chance),
    )


def _read_email(path: Path) -> Array:
    """Return features, the three outcomes and the arm (0, 1, 2) of every row."""
    rows = []
    with Lines(path) as lines:
        reader = csv.reader(lines)
        check_header(path, next(reader, []), EMAIL_HEADER, "e-mail")
        for cells in reader:
            if len(cells) != len(EMAIL_HEADER):
                raise lines.fail(f"expected {len(EMAIL_HEADER)} cells, found {len(cells)}.")
            try:
                row = _email_row(dict(zip(EMAIL_HEADER, cells, strict=True)))
            except ValueError as error:
                raise lines.fail(f"{error}.") from error
            if not all(map(math.isfinite, row)):
                raise lines.fail(f"expected finite numbers, found {','.join(cells)!r}.")
            rows.append(row)
    return np.array(_not_empty(path, rows))


def check_header(path: Path, header: list[str], expected: list[str], file: str) -> None:
    """Refuse a file whose first line is another one."""
    if header != expected:
        raise TableError(
            f"{str(path)!r} is not the {file} file: its first line should be "
            f"{','.join(expected)!r}, not {','.join(header)[:120]!r}. Check path=."
        )


def _not_empty(path: Path, rows: list[list[float]]) -> list[list[float]]:
    if not rows:
        raise TableError(f"{str(path)!r} has no rows. Fetch it again.")
    return rows


def _email_row(cell: dict[str, str]) -> list[float]:
    return [
        float(cell["recency"]),
        _one_of("history_segment", cell["history_segment"].partition(")")[0], "1234567") + 1.0,
        float(cell["history"]),
        *(_one_of(name, cell[name], "01") for name in ("mens", "womens")),
        *_indicators("zip_code", cell["zip_code"], ZIP_CODES),
        _one_of("newbie", cell["newbie"], "01"),
        *_indicators("channel", cell["channel"], CHANNELS),
        *(_one_of(name, cell[name], "01") for name in ("visit", "conversion")),
        float(cell["spend"]),
        _one_of("segment", cell["segment"], ARMS),
    ]


def _indicators(name: str, value: str, options: tuple[str, ...]) -> list[float]:
    at = _one_of(name, value, options)
    return [float(at == j) for j in range(len(options))]


def _one_of(name: str, value: str, options: tuple[str, ...] | str) -> int:
    if value not in tuple(options):
        raise ValueError(f"{name} should be one of {', '.join(options)}, not {value!r}")
    return options.index(value)


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
    download, progress : bool, default=True
        Whether to download the files if they are not in the cache, see `data_folder`, and to show
        a bar on a terminal.

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
      treatment treat: 41.1% treated
    """
    columns = JOBS_COLUMNS[check_option("sample", sample, JOBS_COLUMNS)]
    if sample == "dehejia-wahba":
        file = locate(DEHEJIA_WAHBA, path=path, download=download, progress=progress)
        table = _read_dehejia_wahba(file, columns)
    elif path is not None and not Path(path).is_dir():
        raise TableError(
            f"path must be the folder that holds {TREATED.name!r} and {CONTROL.name!r}; "
            f"{str(path)!r} is not a folder."
        )
    else:
        files = (
            locate(source, path=path, download=download, progress=progress)
            for source in (TREATED, CONTROL)
        )
        table = np.concatenate([_read_lalonde(file, len(columns)) for file in files])
    treated = np.array(table[:, 0])
    return PublicData(
        name="jobs",
        X=np.ascontiguousarray(table[:, 1:-1]),
        y=np.array(table[:, -1]),
        treatment=treated,
        feature_names=columns[1:-1],
        outcome_name="re78",
        treatment_name="treat",
        propensity=np.full(len(treated), treated.mean()),
    )


def _read_lalonde(path: Path, n_columns: int) -> Array:
    rows = []
    with Lines(path) as lines:
        for line in lines:
            try:
                row = [float(cell) for cell in line.split()]
            except ValueError as error:
                raise lines.fail(f"{error}.") from error
            if len(row) != n_columns:
                raise lines.fail(f"expected {n_columns} numbers, found {len(row)}.")
            if row[0] not in (0.0, 1.0) or not np.isfinite(row).all():
                raise lines.fail(f"expected treat (0 or 1) and finite numbers, found {row}.")
            rows.append(row)
    return np.array(_not_empty(path, rows))


def _read_dehejia_wahba(path: Path, columns: tuple[str, ...]) -> Array:
    pandas = import_extra("pandas", extra="datasets")
    try:
        with open_bytes(path) as file:
            frame = pandas.read_stata(file, columns=list(columns))
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
