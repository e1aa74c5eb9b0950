"""Public files: fetched once, verified, read line by line; the class that rows come as."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import sys
import tarfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array, ArrayLike
from unjoined.data.write import replace_file
from unjoined.errors import TableError

VARIABLE = "UNJOINED_DATA"
TIMEOUT = 30.0  # seconds without a byte from the server
BLOCK = 1 << 18  # bytes


@dataclass(frozen=True, slots=True)
class Source:
    """A public file: how it is called, where it is, and how to know that it is the right one."""

    name: str
    addresses: tuple[str, ...]  # tried in turn
    size: str  # of the download, for messages
    sha256: frozenset[str] = field(default_factory=frozenset)  # of file or content; empty: unknown

    @property
    def names(self) -> tuple[str, str]:
        """The file's name, and how it is called with or without gzip."""
        other = self.name.removesuffix(".gz")
        return self.name, f"{self.name}.gz" if other == self.name else other


class _DownloadError(Exception):
    """One address did not give the file. Never leaves this module."""


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
    source: Source,
    *,
    path: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> Path:
    """Return where a file is: the user's own, the one in the cache, or a fresh download."""
    if path is not None:
        return _own_copy(Path(path), source)
    folder = data_folder()
    for name in source.names:
        file = folder / name
        if file.is_file():
            if wrong := _difference(file, source):
                raise TableError(
                    f"{str(file)!r} in the cache is not the file expected: {wrong}. Delete it "
                    "to have it fetched again, or pass it as path= if it is the one you mean."
                )
            return file
    if not download:
        raise TableError(
            f"there is no {source.name!r} in {str(folder)!r}. {_by_hand(source, folder)}"
        )
    return _fetch(source, folder, progress=progress)


def _own_copy(path: Path, source: Source) -> Path:
    if path.is_file():
        return path
    for name in source.names:
        if (path / name).is_file():
            return path / name
    if path.is_dir():
        raise TableError(
            f"there is no {' or '.join(map(repr, source.names))} in the folder {str(path)!r}. "
            f"{_by_hand(source, path)}"
        )
    raise TableError(f"there is no file {str(path)!r}. Check path=, or leave it out to download.")


def _by_hand(source: Source, folder: Path) -> str:
    """Tell a user how to get the file without this module."""
    places = " or ".join(source.addresses)
    return (
        f"Fetch {source.name!r} ({source.size}) by hand from {places} and put it in "
        f"{str(folder)!r} ({VARIABLE} names another folder), or say where it is with path=."
    )


def _fetch(source: Source, folder: Path, *, progress: bool) -> Path:
    """Try the addresses in turn; the file appears in ``folder`` whole and verified, or not."""
    requests = import_extra("requests", extra="datasets")
    download = import_extra("pooch", extra="datasets").HTTPDownloader(
        progressbar=progress and sys.stderr.isatty(),
        timeout=TIMEOUT,
        headers={"User-Agent": "unjoined"},
    )
    tried = []
    for address in source.addresses:

        def write(file: Path, address: str = address) -> None:
            try:
                download(address, str(file), None)
            except requests.RequestException as error:  # an OSError too, but not one of the disk
                raise _DownloadError(str(error)) from error
            if wrong := _difference(file, source):
                raise _DownloadError(f"what came is not the file expected: {wrong}")

        try:
            folder.mkdir(parents=True, exist_ok=True)
            return replace_file(folder / source.name, write)
        except _DownloadError as error:
            tried.append(f"{address}: {error}")
        except (TableError, OSError) as error:  # the disk: another address would not help
            raise TableError(
                f"{source.name!r} could not be kept in {str(folder)!r}: {error} Make room there. "
                f"{_by_hand(source, folder)}"
            ) from error
    raise TableError(
        f"{source.name!r} could not be downloaded. {'; '.join(tried)}. {_by_hand(source, folder)}"
    )


def _difference(file: Path, source: Source) -> str:
    """Say how ``file`` differs from what is expected; an empty string if it does not."""
    packed = is_gzip(file)
    if not source.sha256:
        if source.name.endswith((".gz", ".tgz")) and file.name != source.names[1] and not packed:
            return "it is not gzipped"
        return "it is damaged or cut off" if packed and _digest(file, unpack=True) is None else ""
    digest = _digest(file, unpack=False)
    if digest in source.sha256 or (packed and _digest(file, unpack=True) in source.sha256):
        return ""
    return f"its SHA-256 is {digest}, not {' or '.join(sorted(source.sha256))}"


def _digest(file: Path, *, unpack: bool) -> str | None:
    """Return the SHA-256 of the file or of what is gzipped in it; None if that is damaged."""
    digest = hashlib.sha256()
    with open_bytes(file) if unpack else file.open("rb") as stream:
        try:
            while block := stream.read(BLOCK):
                digest.update(block)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            return None
    return digest.hexdigest()


GZIP_MAGIC = b"\x1f\x8b"
ARCHIVES = (".tar", ".tar.gz", ".tgz")


def is_gzip(path: Path) -> bool:
    """Return whether the file is gzipped, by its first bytes: names are not always true."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacking gzip on the way."""
    opened: Any = gzip.open(path) if is_gzip(path) else path.open("rb")  # noqa: SIM115 - caller closes
    stream: IO[bytes] = opened  # gzip's class has all that is needed and another ancestor
    return stream


class Lines(Iterator[str]):
    """The lines of a text file or of the first file in an archive, without their ends.

    Memory does not grow. ``number`` is that of the line last returned, counting from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self._source = self._read()
        self._back: str | None = None

    def __enter__(self) -> Lines:
        """Return itself; the file is opened with the first line."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, and say where it is that it cannot be read as CSV."""
        self._source.close()
        if isinstance(error, csv.Error):
            raise self.fail(f"{error}.") from error

    def __next__(self) -> str:
        """Return the next line."""
        line, self._back = self._back, None
        if line is None:
            line = next(self._source)
        self.number += 1
        return line

    def push_back(self, line: str) -> None:
        """Let the line just returned be the next one again."""
        self._back = line
        self.number -= 1

    def fail(self, why: str, *, number: int | None = None) -> TableError:
        """Return an error that says what is wrong, in which line of which file."""
        at = self.number if number is None else number
        return TableError(f"line {at} of {str(self.path)!r} cannot be read: {why}")

    def _read(self) -> Generator[str, None, None]:
        try:
            if self.path.name.lower().endswith(ARCHIVES):
                yield from self._read_archive()
            else:
                with open_bytes(self.path) as file:
                    yield from _text(file)
        except UnicodeDecodeError as error:
            raise TableError(
                f"{str(self.path)!r} is not text after line {self.number} ({error.reason}). "
                "Is it another file than the one documented?"
            ) from error
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise TableError(
                f"{str(self.path)!r} is damaged or cut off after line {self.number}: {error}. "
                "Fetch it again."
            ) from error

    def _read_archive(self) -> Iterator[str]:
        # "r|*" never seeks, so an archive far larger than the disk's free space can be read.
        with tarfile.open(self.path, "r|*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    yield from _text(file)
                    return


def _text(file: IO[bytes]) -> Iterator[str]:
    # No TextIOWrapper: it asks whether it may seek, and Python 3.11 cannot say of an archive.
    with file:
        for line in file:
            yield line.decode("utf-8").rstrip("\r\n")


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
            sample_weight=None if self.sample_weight is None else self.sample_weight[at],
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
