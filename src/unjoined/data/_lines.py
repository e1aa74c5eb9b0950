"""Text files line by line: plain, gzipped or in an archive; whatever is wrong has a line number."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from array import array
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from unjoined._typing import Array
from unjoined.errors import TableError

__all__ = ["Lines", "NumberTable", "is_gzip", "open_bytes"]

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
    """The lines of a text file, without their ends, one at a time; memory does not grow.

    Parameters
    ----------
    path : Path
        Plain or gzipped text; of a tar archive the first file is read.

    Attributes
    ----------
    number : int
        Number of the line last returned, counting from 1.

    Raises
    ------
    TableError
        While reading: the file is damaged or no text.
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
        """Close the file."""
        self._source.close()

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
        """Return the error that places ``why`` in this file, at the line last returned."""
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
                f"{str(self.path)!r} is no text after line {self.number} ({error.reason}). "
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


class NumberTable:
    """A table of numbers that grows row by row, eight bytes for each number and no more."""

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns
        self._numbers = array("d")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._numbers) // self.n_columns

    def append(self, row: list[float]) -> None:
        """Add one row."""
        self._numbers.extend(row)

    def extend(self, block: Array) -> None:
        """Add several rows, shape (n, n_columns)."""
        self._numbers.frombytes(np.ascontiguousarray(block, dtype=np.float64).tobytes())

    def matrix(self) -> Array:
        """Return the rows, shape (n, n_columns), without copying them."""
        return np.frombuffer(self._numbers, dtype=np.float64).reshape(-1, self.n_columns)
