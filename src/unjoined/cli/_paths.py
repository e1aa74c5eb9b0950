"""The paths of a command line: each a file of its own, and outputs that may be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from unjoined.data._files import ENDINGS, _ending
from unjoined.errors import TableError

__all__ = ["MODEL", "SUMS", "TABLE", "check_distinct", "check_paths"]

# How a file begins that may be replaced, and what it is called; a table replaces any file.
MODEL, SUMS, TABLE = b"PK", b"unjoined-sums", b""
NAMES = {MODEL: "model", SUMS: "file of sums"}

Input = tuple[str, Path]  # the option, and the file or folder it names
Output = tuple[str, Path, bytes]  # the option, the file, and how one of its kind begins


def check_paths(inputs: Sequence[Input], outputs: Sequence[Output]) -> None:
    """Refuse paths that would overwrite each other, before anything is read or written.

    Parameters
    ----------
    inputs : sequence of (option, path)
        Files and folders that the command reads.
    outputs : sequence of (option, path, beginning)
        Files that it writes. One that exists must begin with the bytes given: then it is an
        earlier result, not something else of the user's.

    Raises
    ------
    TableError
        Two paths are the same file, by whatever name or link, an output is one of the tables in
        an input folder, or an output cannot be replaced.
    """
    paths: list[Input] = [*inputs, *((option, path) for option, path, _ in outputs)]
    # Of an input that does not exist there is more to say, where it is read.
    check_distinct([*(entry for entry in inputs if entry[1].exists()), *paths[len(inputs) :]])
    for one, folder in inputs:
        for two, path in paths:
            if path != folder and folder.is_dir() and _stands_for(folder, path):
                raise TableError(
                    f"{two} {str(path)!r} is among the tables in the folder {str(folder)!r}, which "
                    f"{one} reads. Name one outside of it."
                )
    for option, path, beginning in outputs:
        _check_replaceable(option, path, beginning)


def check_distinct(paths: Sequence[Input]) -> None:
    """Refuse two paths that are one file or folder, by whatever name or link."""
    for (one, first), (two, second) in combinations(paths, 2):
        if _same(first, second):
            what = "folder" if first.is_dir() else "file"
            raise TableError(
                f"{one} {str(first)!r} and {two} {str(second)!r} are the same {what}. Name a "
                "different one for each."
            )


def _same(first: Path, second: Path) -> bool:
    """Tell whether two paths are one file, or would be once it is written."""
    if first.exists() and second.exists():
        return first.samefile(second)
    if first.exists() or second.exists():
        return False
    # Nobody can ask the disk whether it tells upper from lower case before there is a file.
    return os.path.realpath(first).casefold() == os.path.realpath(second).casefold()


def _stands_for(folder: Path, path: Path) -> bool:
    """Tell whether a path is, or would be, among the tables that are read from a folder."""
    if path.is_dir() or not path.exists():
        inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
        return inside and (path.is_dir() or _ending(path) in ENDINGS)
    tables = (file for file in folder.rglob("*") if _ending(file) in ENDINGS and file.is_file())
    return any(file.samefile(path) for file in tables)


def _check_replaceable(option: str, path: Path, beginning: bytes) -> None:
    if not path.parent.is_dir():
        raise TableError(
            f"there is no folder {str(path.parent)!r} to write to ({option}). Create it first."
        )
    if path.is_dir():
        raise TableError(f"{option} {str(path)!r} is a folder; name a file to write to.")
    if not path.exists():
        return
    if not path.is_file():  # such as /dev/null, which must not be replaced by a file
        raise TableError(f"{option} {str(path)!r} is no ordinary file. Name a file to write to.")
    with path.open("rb") as file:
        found = file.read(len(beginning))
    if found and found != beginning:
        raise TableError(
            f"{option} {str(path)!r} exists and is no {NAMES[beginning]}, so it is not replaced. "
            "Name another file, or delete this one first."
        )
