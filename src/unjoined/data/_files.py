"""Tables on disk: CSV and Parquet in through DuckDB, whole files or none out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined.errors import TableError

__all__ = ["read_table", "replace_file", "write_table"]

# What DuckDB calls the reader of each kind of file.
READERS = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".csv": "read_csv",
    ".csv.gz": "read_csv",
    ".tsv": "read_csv",
    ".tsv.gz": "read_csv",
}


def _ending(path: Path) -> str:
    name = path.name.lower()
    return next((ending for ending in READERS if name.endswith(ending)), path.suffix.lower())


def read_table(path: str | os.PathLike[str]) -> Frame:
    """Read a CSV or Parquet file as a pyarrow table.

    Parameters
    ----------
    path : path
        A file ending in .parquet, .csv or .tsv, the latter two also gzipped. Types and
        delimiters of text files are detected by DuckDB.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    TableError
        The file does not exist, is of another kind, or cannot be read; the message says which
        row or value stopped DuckDB.
    MissingExtraError
        DuckDB or pyarrow is not installed.
    """
    duckdb = import_extra("duckdb", extra="cli")
    import_extra("pyarrow", extra="cli")
    file = Path(path)
    if not file.exists():
        raise TableError(f"there is no file {str(file)!r}. Check the path.")
    if file.is_dir():
        raise TableError(f"{str(file)!r} is a folder, not a table. Name one file.")
    reader = READERS.get(_ending(file))
    if reader is None:
        raise TableError(
            f"{str(file)!r} is no table this program reads: expected a file ending in "
            f"{', '.join(READERS)}."
        )
    if file.stat().st_size == 0:  # DuckDB would make a column up
        raise TableError(f"{str(file)!r} is empty: it has not even a header.")
    with duckdb.connect() as connection:
        try:
            # The reader's name comes from the table above; the path is a bound value.
            query = f"SELECT * FROM {reader}(?)"  # noqa: S608
            return connection.sql(query, params=[str(file)]).to_arrow_table()
        except duckdb.Error as error:
            raise TableError(
                f"{str(file)!r} cannot be read as {reader.removeprefix('read_')}: "
                f"{_first_lines(str(error))}"
            ) from error


def _first_lines(message: str, limit: int = 6) -> str:
    """Keep what DuckDB says went wrong and leave out its list of remedies in SQL."""
    lines = [line for line in message.splitlines() if line.strip()]
    return " ".join(line.strip() for line in lines[:limit])


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place at once.

    Whatever goes wrong while writing, ``path`` holds either what it held before or the whole
    new content.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise TableError(f"there is no folder {str(target.parent)!r} to write to. Create it first.")
    if target.is_dir():
        raise TableError(f"{str(target)!r} is a folder; name a file to write to.")
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise TableError(f"{str(target)!r} could not be written: {error}.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # mkstemp makes files private; a result should be as readable as its folder allows.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        raise TableError(f"{str(target)!r} could not be written: {error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_table(table: Frame, path: str | os.PathLike[str]) -> Path:
    """Write a pyarrow table as Parquet or CSV, by the ending of ``path``; whole or not at all."""
    ending = _ending(Path(path))
    if ending in (".parquet", ".pq"):
        parquet = import_extra("pyarrow.parquet", extra="cli")
        return replace_file(path, lambda file: parquet.write_table(table, file))
    if ending == ".csv":
        csv = import_extra("pyarrow.csv", extra="cli")
        return replace_file(path, lambda file: csv.write_csv(table, file))
    raise TableError(f"cannot write {str(path)!r}: the name must end in .parquet or .csv.")
