"""Files written whole or not at all, and what dead processes left of theirs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from stat import S_ISREG
from typing import Any

from unjoined.errors import TableError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART = ".part"  # how files end that are not finished


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a file beside ``path``, then put it in place at once.

    A process that is killed leaves ``path`` as it was, or complete. What it wrote beside is deleted
    by the next one that writes the same file.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise TableError(f"there is no folder {str(target.parent)!r} to write to. Create it first.")
    if target.is_dir():
        raise TableError(f"{str(target)!r} is a folder; name a file to write to.")
    try:
        with claim_file(target.parent, f".{target.name}.", PART) as beside:
            write(beside)
            # Claimed files are private; a result should be as readable as its folder allows.
            umask = os.umask(0)
            os.umask(umask)
            beside.chmod(0o666 & ~umask)
            with beside.open("rb") as file:
                os.fsync(file.fileno())  # else a power cut may leave the name without the bytes
            beside.replace(target)
    except OSError as error:
        raise TableError(f"{str(target)!r} could not be written: {error}.") from error
    return target


@contextmanager
def claim_file(folder: Path, prefix: str, suffix: str) -> Iterator[Path]:
    """Make an empty file that is deleted in the end, and delete those of processes that died.

    A file is locked as long as its process lives, however that ends, so that others can tell.
    """
    if fcntl is not None:
        for left in folder.glob(f"{escape(prefix)}*{suffix}"):
            _delete_unless_locked(left)
    while True:
        handle, name = tempfile.mkstemp(suffix, prefix, folder)
        if fcntl is None or _lock(handle):
            break
        os.close(handle)  # somebody took it for one of a dead process before it was locked
    if fcntl is None:
        os.close(handle)  # Windows renames no open file
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
        if fcntl is not None:
            os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open file if nobody else has and it is still there; tell whether it went well."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: then nobody takes the file for a dead one
        return True
    return os.fstat(handle).st_nlink > 0


def _delete_unless_locked(file: Path) -> None:
    """Delete a file of ours that no process has locked."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone meanwhile, somebody else's, or a link
        return
    try:
        about = os.fstat(handle)
        if S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink(missing_ok=True)
    except OSError:  # in use
        pass
    finally:
        os.close(handle)
