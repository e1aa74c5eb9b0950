"""Text files too large for memory, one line at a time."""

from __future__ import annotations

import csv
import tarfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from unjoined.datasets import open_bytes
from unjoined.errors import TableError

ARCHIVES = (".tar", ".tar.gz", ".tgz")


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


def check_header(path: Path, header: list[str], expected: list[str], file: str) -> None:
    """Refuse a file whose first line is another one."""
    if header != expected:
        raise TableError(
            f"{str(path)!r} is not the {file} file: its first line should be "
            f"{','.join(expected)!r}, not {','.join(header)[:120]!r}. Check path=."
        )
