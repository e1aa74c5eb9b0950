"""Public files: fetched once, verified, kept in a cache; nothing is left half-written."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from unjoined._optional import import_extra
from unjoined.data._files import replace_file
from unjoined.data._lines import is_gzip, open_bytes
from unjoined.errors import TableError

__all__ = ["Source", "data_folder", "locate"]

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
    """Return where a file is: the user's own, the one in the cache, or a fresh download.

    Parameters
    ----------
    source : Source
        The file.
    path : path, optional
        The user's own copy, plain or gzipped, or the folder it is in. It is taken as it is: its
        checksum is not compared.
    download : bool, default=True
        Whether to fetch the file if it is not in the cache.
    progress : bool, default=True
        Whether a download shows a bar, if stderr is a terminal.

    Returns
    -------
    Path

    Raises
    ------
    TableError
        There is no such file; or it could not be fetched or written, or is not the one
        expected. The message says what to fetch by hand, from where, and where to put it.
    """
    if path is not None:
        return _own_copy(Path(path), source)
    folder = data_folder()
    for name in source.names:
        file = folder / name
        if file.is_file():
            if wrong := _difference(file, source):
                raise TableError(
                    f"{str(file)!r} in the cache is not the file expected: {wrong}. Delete it and "
                    "it is fetched anew, or pass it as path= if it is meant."
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
