"""Public data sets of trials: downloaded once, verified, kept in a cache."""

from __future__ import annotations

import gzip
import os
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array, ArrayLike
from unjoined._validation import check_option
from unjoined.errors import TableError

__all__ = ["PublicData", "fetch_email", "fetch_jobs"]

VARIABLE = "UNJOINED_DATA"
UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    struct.error,
    zlib.error,
)  # what readers raise

PublicFile = tuple[
    str, str, str, tuple[str, ...]
]  # name, address, size, SHA-256 of its copies
EMAIL_NAME = (
    "Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv"
)
EMAIL: PublicFile = (
    EMAIL_NAME,
    f"http://www.minethatdata.com/{EMAIL_NAME}",
    "4 MB",
    (
        # lines ending in CR LF, in LF, and the former gzipped
        "0e5893329d8b93cefecc571777672028290ab69865718020c78c7284f291aece",
        "27bab8c5d3669f26ec08ebb50a0a78317542f29501156f2e2af6781fab4cd7e2",
        "f9a270d0268d48a041e8e8134e8a27cc1dd69b4fda962def55de7b9081145bad",
    ),
)
EMAIL_HEADER = [
    *("recency", "history_segment", "history", "mens", "womens", "zip_code", "newbie"),
    *("channel", "segment", "visit", "conversion", "spend"),
]
# What may stand in a column that holds no amounts; zip codes in the file's own spelling.
EMAIL_WORDS = {
    "history_segment": tuple("1234567"),  # the bracket's number
    "zip_code": ("Urban", "Surburban", "Rural"),
    "channel": ("Phone", "Web", "Multichannel"),
    "segment": ("No E-Mail", "Mens E-Mail", "Womens E-Mail"),
} | dict.fromkeys(("mens", "womens", "newbie", "visit", "conversion"), ("0", "1"))
EMAIL_FEATURES = (
    *("recency", "history_segment", "history", "mens", "womens"),
    *("zip_urban", "zip_suburban", "zip_rural", "newbie"),
    *("channel_phone", "channel_web", "channel_multichannel"),
)
EMAIL_OUTCOMES = ("visit", "conversion", "spend")
# Which arms are treated, and the chance of being in one of them rather than not mailed.
MAILS = {"any": ((1, 2), 2 / 3), "mens": ((1,), 1 / 2), "womens": ((2,), 1 / 2)}

NBER = "https://users.nber.org/~rdehejia/data/"
NSW_FILES = {  # size and SHA-256
    "nsw_treated.txt": "43 kB d83b70b89388caf2d8e6cd3bac1a2bf1bd177e7e3a92561f6f9a6e45711f0b56",
    "nsw_control.txt": "62 kB 7ab75de500006526567f49add9b3f29228e3facf8c3dfbd5b0fa9c4aefd72b4d",
    "nsw_dw.dta": "29 kB 27a61a9ac68ddf1b0383c1977d07b794a6a5dc7f2d3fc6a0040ac743087697cc",
}
PERSON = ("treat", "age", "education", "black", "hispanic", "married", "nodegree")
# Files and columns of each sample.
JOBS = {
    "lalonde": (("nsw_treated.txt", "nsw_control.txt"), (*PERSON, "re75", "re78")),
    "dehejia-wahba": (("nsw_dw.dta",), (*PERSON, "re74", "re75", "re78")),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicData:
    """Rows of a public data set, each with its features, outcome and treatment.

    Arrays are read-only. `unjoin` takes ``X``, ``y``, ``treatment`` and ``propensity``.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : array of shape (n, d)
        Features, numbers in the source's units; categories are columns of 0 and 1, or codes if
        ``categorical`` names them.
    y : array of shape (n,)
        Outcomes, in the units of ``outcome_name``.
    treatment : array of shape (n,)
        1 for treated rows, 0 for the others.
    feature_names : tuple of str
        One name per column of ``X``.
    outcome_name, treatment_name : str
        What ``y`` and ``treatment`` are.
    propensity : array of shape (n,) or None
        Probability of treatment; None if treatment was not drawn by lot and its
        probability was not logged.
    sample_weight : array of shape (n,) or None
        How many rows of the original log each row stands for; None if one each.
    categorical : tuple of str
        Names of the features that hold codes whose order means nothing.
    extra : mapping of str to array of shape (n,)
        Further columns, which are not features.

    Examples
    --------
    >>> data = PublicData(
    ...     name="made up",
    ...     X=np.array([[31.0], [54.0]]),
    ...     y=np.array([1.0, 0.0]),
    ...     treatment=np.array([1.0, 0.0]),
    ...     feature_names=("age",),
    ...     outcome_name="visit",
    ...     treatment_name="mailed",
    ... )
    >>> data
    PublicData 'made up': 2 rows, 1 feature
      outcome   visit: mean 0.5
      treatment mailed: 50.0% treated, propensity not known
    >>> data.take([1]).X
    array([[54.]])
    """

    name: str
    X: Array
    y: Array
    treatment: Array
    feature_names: tuple[str, ...]
    outcome_name: str
    treatment_name: str
    propensity: Array | None = None
    sample_weight: Array | None = None
    categorical: tuple[str, ...] = ()
    extra: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for column in (self.X, self.y, self.treatment, *self.extra.values()):
            column.setflags(write=False)
        for optional in (self.propensity, self.sample_weight):
            if optional is not None:
                optional.setflags(write=False)
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    def take(self, rows: ArrayLike) -> PublicData:
        """Return some of the rows, by position or by a mask; copies them."""
        at = np.asarray(rows)
        return replace(
            self,
            X=self.X[at],
            y=self.y[at],
            treatment=self.treatment[at],
            propensity=None if self.propensity is None else self.propensity[at],
            sample_weight=None
            if self.sample_weight is None
            else self.sample_weight[at],
            extra={name: column[at] for name, column in self.extra.items()},
        )

    def __repr__(self) -> str:
        """Return sizes and means, not the numbers."""
        d = len(self.feature_names)
        known = "" if self.propensity is not None else ", propensity not known"
        mean, share = (
            (f"{self.y.mean():.4g}", f"{self.treatment.mean():.1%}")
            if self.n_rows
            else ("none", "none")
        )
        return (
            f"PublicData {self.name!r}: {self.n_rows:,} rows, {d} feature{'s' * (d != 1)}\n"
            f"  outcome   {self.outcome_name}: mean {mean}\n"
            f"  treatment {self.treatment_name}: {share} treated{known}"
        )


def data_folder() -> Path:
    """Return the folder where downloaded data sets are kept; it need not exist yet.

    The environment variable ``UNJOINED_DATA`` names it. Without that it is ``unjoined`` in the
    user's cache folder, which the extra "datasets" knows for every platform.

    Examples
    --------
    >>> data_folder().is_absolute()
    True
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    return Path(import_extra("pooch", extra="datasets").os_cache("unjoined"))


def locate(
    public: PublicFile,
    *,
    path: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> Path:
    """Return where a file is: the user's own, the one in the cache, or a fresh download.

    A copy in the cache is verified, one that the user names is not.
    """
    name, address, size, sha256 = public
    folder = data_folder() if path is None else Path(path)
    if path is not None and not folder.is_dir():
        if folder.is_file():
            return folder
        raise TableError(
            f"there is no file {str(path)!r}. Check path=, or leave it out to download."
        )
    pooch = import_extra("pooch", extra="datasets")
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            if (
                path is None
                and sha256
                and (digest := pooch.file_hash(str(file))) not in sha256
            ):
                raise TableError(
                    f"{str(file)!r} in the cache is not the file expected: its SHA-256 is "
                    f"{digest}, not {' or '.join(sha256)}. Delete it to have it fetched again, or "
                    "pass it as path= if it is the one you mean."
                )
            return file
    by_hand = (
        f"Fetch {name!r} ({size}) by hand from {address} and put it in {str(folder)!r} "
        f"({VARIABLE} names another folder), or say where it is with path=."
    )
    if path is not None or not download:
        raise TableError(f"there is no {name!r} in {str(folder)!r}. {by_hand}")
    known = f"sha256:{sha256[0]}" if sha256 else None
    bar = progress and sys.stderr.isatty()
    try:
        return Path(pooch.retrieve(address, known, name, folder, progressbar=bar))
    except (
        OSError,
        ValueError,
    ) as error:  # of the network, of the disk, of the checksum
        why = str(error)
    # Out of the handler: an error that is kept would keep its connection open.
    raise TableError(f"{name!r} could not be downloaded: {why}. {by_hand}")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacking gzip on the way: names are not always true."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    stream: Any = gzip.open(path) if is_packed else path.open("rb")  # noqa: SIM115 - caller closes
    opened: IO[bytes] = (
        stream  # gzip's class has all that is needed and another ancestor
    )
    return opened


def _read(path: Path, reader: Callable[[IO[bytes]], Any], what: str) -> Any:
    """Return what a reader makes of a file, or say that it is not the one expected."""
    try:
        with open_bytes(path) as file:
            return reader(file)
    except UNREADABLE as error:
        raise TableError(
            f"{str(path)!r} is not the {what} file: {error}. Check path=, or fetch it again."
        ) from error


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
    file = locate(EMAIL, path=path, download=download, progress=progress)
    table = _read(file, _email_table, "e-mail")
    arm = table["segment"].map(EMAIL_WORDS["segment"].index)
    table = table[arm.isin((0, *arms))]
    columns: list[Any] = []
    for name in EMAIL_HEADER[:-4]:
        words = EMAIL_WORDS[name] if name in ("zip_code", "channel") else ()
        columns += [table[name] == word for word in words] or [table[name]]
    treated = arm[table.index].to_numpy() > 0
    return PublicData(
        name="email",
        X=np.column_stack(columns).astype(np.float64),
        y=table[outcome].to_numpy(dtype=np.float64),
        treatment=treated.astype(np.float64),
        feature_names=EMAIL_FEATURES,
        outcome_name=outcome,
        treatment_name=treatment,
        propensity=np.full(len(table), chance),
    )


def _email_table(file: IO[bytes]) -> Any:
    """Return the e-mail file as a data frame; ValueError if it is another one."""
    pandas = import_extra("pandas", extra="datasets")
    table = pandas.read_csv(file, dtype=str, keep_default_na=False)
    if (header := [str(name) for name in table.columns]) != EMAIL_HEADER:
        raise ValueError(
            f"its first line should be {','.join(EMAIL_HEADER)!r}, not {','.join(header)[:120]!r}"
        )
    if table.empty:
        raise ValueError("it has no rows")
    table["history_segment"] = table["history_segment"].str.partition(")")[0]
    for name, words in EMAIL_WORDS.items():
        if strange := [value for value in table[name].unique() if value not in words]:
            raise ValueError(
                f"{name} should be one of {', '.join(words)}, not {strange[0]!r}"
            )
    for name in ("recency", "history", "spend"):
        if not np.isfinite(table[name].astype(float)).all():
            raise ValueError(f"{name} should be finite numbers")
    return table


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
    files, columns = JOBS[check_option("sample", sample, JOBS)]
    if len(files) > 1 and path is not None and not Path(path).is_dir():
        raise TableError(
            f"path must be the folder that holds {' and '.join(map(repr, files))}; "
            f"{str(path)!r} is not a folder."
        )
    tables = []
    for name in files:
        public = (name, NBER + name, NSW_FILES[name][:5], (NSW_FILES[name][6:],))
        file = locate(public, path=path, download=download, progress=progress)
        what = "NSW" if len(files) > 1 else "Dehejia-Wahba"
        tables.append(_read(file, lambda opened: _jobs_table(opened, columns), what))
    table = np.concatenate(tables)
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


def _jobs_table(file: IO[bytes], columns: tuple[str, ...]) -> Array:
    """Return the numbers of a file, text or Stata; ValueError if it is another one."""
    if "re74" in columns:
        frame = import_extra("pandas", extra="datasets").read_stata(
            file, columns=list(columns)
        )
        table: Array = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        table = np.array(
            [line.split() for line in file.read().splitlines()], dtype=np.float64
        )
    if not len(table):
        raise ValueError("it has no rows")
    if table.ndim != 2 or table.shape[1] != len(columns):
        raise ValueError(f"expected {len(columns)} numbers in each line")
    if not np.isfinite(table).all() or not np.isin(table[:, 0], (0, 1)).all():
        raise ValueError("expected rows without missing numbers and treat coded 0/1")
    return table
