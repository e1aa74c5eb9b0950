"""The e-mail campaign of Hillstrom (2008): 64,000 customers, two mailings or none, at random."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Literal

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_option
from unjoined.datasets.fetch import Lines, NumberTable, PublicData, Source, locate
from unjoined.errors import TableError

EMAIL_SOURCE = Source(
    name="Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv",
    addresses=(
        "http://www.minethatdata.com/"
        "Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv",
    ),
    size="4 MB",
    sha256=frozenset(
        {
            # lines ending in CR LF, in LF, and the former gzipped
            "0e5893329d8b93cefecc571777672028290ab69865718020c78c7284f291aece",
            "27bab8c5d3669f26ec08ebb50a0a78317542f29501156f2e2af6781fab4cd7e2",
            "f9a270d0268d48a041e8e8134e8a27cc1dd69b4fda962def55de7b9081145bad",
        }
    ),
)


HEADER = [
    "recency",
    "history_segment",
    "history",
    "mens",
    "womens",
    "zip_code",
    "newbie",
    "channel",
    "segment",
    "visit",
    "conversion",
    "spend",
]


ZIP_CODES = ("Urban", "Surburban", "Rural")  # the file's own spelling


CHANNELS = ("Phone", "Web", "Multichannel")


ARMS = ("No E-Mail", "Mens E-Mail", "Womens E-Mail")


FEATURES = (
    "recency",
    "history_segment",
    "history",
    "mens",
    "womens",
    "zip_urban",
    "zip_suburban",
    "zip_rural",
    "newbie",
    "channel_phone",
    "channel_web",
    "channel_multichannel",
)


OUTCOMES = ("visit", "conversion", "spend")


# Which arms are treated, and the chance of being in one of them rather than not mailed.
TREATMENTS = {"any": ((1, 2), 2 / 3), "mens": ((1,), 1 / 2), "womens": ((2,), 1 / 2)}


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
    download : bool, default=True
        Whether to download the file if it is not in the cache, see `data_folder`.
    progress : bool, default=True
        Whether a download shows a bar, if stderr is a terminal.

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
    The author states no licence; third parties label the file CC0. It is no part of this
    package. Reading takes under a second.

    Examples
    --------
    >>> fetch_email(outcome="visit", treatment="womens")  # doctest: +SKIP
    PublicData 'email': 42,693 rows, 12 features
      outcome   visit: mean 0.1288
      treatment womens: 50.1 % treated
    """
    column = len(FEATURES) + OUTCOMES.index(check_option("outcome", outcome, OUTCOMES))
    treated_arms, chance = TREATMENTS[check_option("treatment", treatment, TREATMENTS)]
    file = locate(EMAIL_SOURCE, path=path, download=download, progress=progress)
    rows = _read(file)
    arm = rows[:, -1]
    rows = rows[np.isin(arm, (0, *treated_arms))]
    return PublicData(
        name="email",
        X=np.ascontiguousarray(rows[:, : len(FEATURES)]),
        y=np.array(rows[:, column]),
        treatment=(rows[:, -1] > 0).astype(np.float64),
        feature_names=FEATURES,
        outcome_name=outcome,
        treatment_name=treatment,
        propensity=np.full(len(rows), chance),
    )


def _read(path: Path) -> Array:
    """Return features, the three outcomes and the arm (0, 1, 2) of every row."""
    table = NumberTable(len(FEATURES) + len(OUTCOMES) + 1)
    with Lines(path) as lines:
        reader = csv.reader(lines)
        if (header := next(reader, [])) != HEADER:
            raise TableError(
                f"{str(path)!r} is not the e-mail file: its first line should be "
                f"{','.join(HEADER)!r}, not {','.join(header)[:120]!r}. Check path=."
            )
        for cells in reader:
            if len(cells) != len(HEADER):
                raise lines.fail(f"expected {len(HEADER)} cells, found {len(cells)}.")
            try:
                row = _row(dict(zip(HEADER, cells, strict=True)))
            except ValueError as error:
                raise lines.fail(f"{error}.") from error
            if not all(map(math.isfinite, row)):
                raise lines.fail(f"expected finite numbers, found {','.join(cells)!r}.")
            table.append(row)
    if not len(table):
        raise TableError(f"{str(path)!r} has a header but no rows. Fetch it again.")
    return table.matrix()


def _row(cell: dict[str, str]) -> list[float]:
    bracket = cell["history_segment"].partition(")")[0]
    return [
        float(cell["recency"]),
        float(_one_of("history_segment", bracket, "1234567")) + 1.0,
        float(cell["history"]),
        _flag(cell, "mens"),
        _flag(cell, "womens"),
        *_indicators("zip_code", cell["zip_code"], ZIP_CODES),
        _flag(cell, "newbie"),
        *_indicators("channel", cell["channel"], CHANNELS),
        _flag(cell, "visit"),
        _flag(cell, "conversion"),
        float(cell["spend"]),
        float(_one_of("segment", cell["segment"], ARMS)),
    ]


def _flag(cell: dict[str, str], name: str) -> float:
    return float(_one_of(name, cell[name], "01"))


def _indicators(name: str, value: str, options: tuple[str, ...]) -> list[float]:
    found = _one_of(name, value, options)
    return [float(found == j) for j in range(len(options))]


def _one_of(name: str, value: str, options: tuple[str, ...] | str) -> int:
    if value not in tuple(options):
        raise ValueError(f"{name} should be one of {', '.join(options)}, not {value!r}")
    return options.index(value)
