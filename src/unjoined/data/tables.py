"""Tables on disk: CSV and Parquet in through DuckDB, whole files or none out."""

from __future__ import annotations

import csv
import gzip
import os
import re
import tempfile
import warnings
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined._validation import NUMBER
from unjoined.errors import TableError, UnjoinedWarning

PARQUET = (".parquet", ".pq")
ENDINGS = (*PARQUET, ".csv", ".csv.gz", ".tsv", ".tsv.gz")
DELIMITERS = (",", ";", "\t", "|")
# How text begins that a spreadsheet runs; the last four are =, +, - and @ in full width.
FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
HEADER_BYTES = 1 << 20  # a longer first line is no header


def table_ending(path: Path) -> str:
    """Return the ending that tells what kind of table a file is, in small letters."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), path.suffix.lower())


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of one table, or say why it is none."""
    file = Path(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(path)) and not file.exists():
        raise TableError(
            f"{os.fspath(path)!r} is an address, and tables are read from files. Download it first."
        )
    if not file.exists():
        raise TableError(f"there is no file {str(file)!r}. Check the path.")
    if file.is_dir():
        raise TableError(
            f"{str(file)!r} is a folder, not a table. Name one file; of the commands, fit --chunks "
            "and aggregate take folders."
        )
    if table_ending(file) not in ENDINGS:
        raise TableError(
            f"{str(file)!r} is no table this program reads: expected a file ending in "
            f"{', '.join(ENDINGS)}."
        )
    if file.stat().st_size == 0:  # DuckDB would make a column up
        raise TableError(f"{str(file)!r} is empty: it has not even a header.")
    return file


@dataclass(frozen=True, slots=True)
class FileReader:
    """How DuckDB is to read one file, with nothing left for it to guess.

    By itself it takes the path for a pattern, adds columns from folder names, and settles types,
    comments and lines to skip by a sample of the rows.
    """

    query: str
    path: str  # as a pattern that matches this file alone
    names: list[str] | None  # of a text file's columns
    durations: dict[str, Any] = field(default_factory=dict)  # types of a Parquet file's columns

    @classmethod
    def of(cls, file: Path) -> FileReader:
        """Look at the ending, and at the header of a text file."""
        path = re.sub(r"[*?\[]", r"[\g<0>]", str(file.absolute()))
        if table_ending(file) in PARQUET:
            query = "SELECT * FROM read_parquet(?, hive_partitioning=false)"
            return cls(query, path, None, _durations(file))
        names, delimiter = _header(file)
        packed = "gzip" if table_ending(file).endswith(".gz") else "none"
        # Under names of our own, as DuckDB takes "a" and "A" for one.
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
        query = (
            f"SELECT * FROM read_csv(?, auto_detect=false, columns={{{columns}}}, header=true, "  # noqa: S608
            f"delim='{delimiter}', quote='\"', escape='\"', comment='', skip=0, nullstr='', "
            "null_padding=false, ignore_errors=false, hive_partitioning=false, "
            f"compression='{packed}')"
        )
        return cls(query, path, names)

    def typed(self, table: Frame, text: Collection[str] = ()) -> Frame:
        """Return rows under the file's names, a text file's as numbers where they are such."""
        if self.names is None:
            for name, kind in self.durations.items():
                at = table.column_names.index(name)
                table = table.set_column(at, name, table.column(at).cast(kind))
            return table
        columns = [
            column if name in text else _typed(column)
            for name, column in zip(self.names, table.columns, strict=True)
        ]
        return import_extra("pyarrow", extra="cli").table(columns, names=self.names)


def _durations(file: Path) -> dict[str, Any]:
    """Return the columns of a Parquet file that DuckDB, which knows no durations, calls numbers."""
    arrow = import_extra("pyarrow", extra="cli")
    try:
        schema = import_extra("pyarrow.parquet", extra="cli").read_schema(file)
    except (arrow.ArrowException, OSError):  # which DuckDB will have its own words for
        return {}
    return {part.name: part.type for part in schema if arrow.types.is_duration(part.type)}


def _typed(column: Any) -> Any:
    """Return text cells as whole numbers, numbers or booleans if all of them are such."""
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    cells = compute.ascii_trim_whitespace(column)
    if compute.all(compute.match_substring_regex(cells, NUMBER), min_count=0).as_py():
        try:
            return compute.cast(cells, arrow.int64())
        except arrow.ArrowInvalid:
            return compute.cast(cells, arrow.float64())
    words = compute.ascii_lower(cells)
    if compute.all(compute.is_in(words, value_set=arrow.array(["true", "false", None]))).as_py():
        return compute.equal(words, "true")
    return column


def _header(file: Path) -> tuple[list[str], str]:
    """Return the column names and the delimiter of a text file."""
    try:
        with gzip.open(file) if table_ending(file).endswith(".gz") else file.open("rb") as stream:
            head = stream.read(HEADER_BYTES)
    except (OSError, EOFError) as error:
        raise TableError(f"{str(file)!r} cannot be read beyond row 0: {error}.") from error
    lines = _decoded(head, file)
    first = {mark: row for mark in DELIMITERS if (row := _first_record(lines, mark))}
    if not first:
        raise TableError(
            f"{str(file)!r} must begin with a line of column names, separated by commas, "
            f"semicolons, tabs or bars, but it begins with {lines[:40]!r}."
        )
    several = [mark for mark, row in first.items() if len(row) > 1]
    if len(several) > 1:
        several = [mark for mark in several if _fits(lines, mark, len(head) == HEADER_BYTES)]
        if len(several) != 1:
            raise TableError(
                f"{str(file)!r}: its columns may be separated by a comma, semicolon, tab or bar, "
                "and the first lines do not tell which. Put quotes around names that hold another."
            )
    delimiter = several[0] if several else ","
    names = first[delimiter]
    _check_header(names, file)
    return names, delimiter


def _decoded(head: bytes, file: Path) -> str:
    """Return the beginning of a text file, which may end within a character."""
    try:
        return getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{str(file)!r} is not UTF-8 text ({error}). Save it as CSV in UTF-8 and try again."
        ) from error


def _records(lines: str, delimiter: str) -> Iterator[list[str]]:
    return iter(csv.reader(StringIO(lines, newline=""), delimiter=delimiter, strict=True))


def _first_record(lines: str, delimiter: str) -> list[str]:
    try:
        return next(_records(lines, delimiter), [])
    except csv.Error:
        return []


def _fits(lines: str, delimiter: str, cut: bool) -> bool:
    """Tell whether all of the first lines have as many cells as the header."""
    try:
        widths = [len(row) for row in islice(_records(lines, delimiter), 1000) if row]
    except csv.Error:
        return False
    return len(set(widths[:-1] if cut else widths)) == 1


def _check_header(names: list[str], file: Path) -> None:
    if "" in names:
        raise TableError(
            f"column {names.index('') + 1} of {str(file)!r} has no name in the first line. Name "
            "it, or leave row numbers out when you write the file (in pandas with index=False)."
        )
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(
            f"{str(file)!r} has two columns named {twice[0]!r}. Give every column its own name."
        )


def read_table(path: str | os.PathLike[str], *, text: Collection[str] = ()) -> Frame:
    """Read a CSV or Parquet file as a pyarrow table.

    Parameters
    ----------
    path : path
        A file ending in .parquet, .csv or .tsv, the latter two also gzipped.
    text : collection of str, optional
        Columns of a text file to leave as they are written, such as identifiers.

    Returns
    -------
    pyarrow.Table
        A column of a text file holds numbers if all of its cells are numbers, booleans if all are
        true or false, and otherwise text. Dates are text, and so are numbers with a zero in
        front, such as 00123, and whole numbers of 19 digits or more. Empty cells are missing.

    Raises
    ------
    TableError
        The file does not exist, is of another kind, or cannot be read; the message says which
        line stopped the reader.
    MissingExtraError
        DuckDB or pyarrow is not installed.

    Notes
    -----
    The path is taken literally. The first line of a text file names its columns, which are
    separated by commas, semicolons, tabs or bars; every other line is a row. Text must be UTF-8.
    """
    duckdb = import_extra("duckdb", extra="cli")
    import_extra("pyarrow", extra="cli")
    file = check_file(path)
    reader = FileReader.of(file)
    with duckdb.connect() as connection:
        try:
            table = connection.sql(reader.query, params=[reader.path]).to_arrow_table()
        except (duckdb.Error, RuntimeError) as error:
            refuse_interrupt(error)
            kind = "csv" if reader.names else "parquet"
            raise TableError(
                f"{str(file)!r} cannot be read as {kind}: {_first_lines(str(error))}"
            ) from error
    return reader.typed(table, text)


def refuse_interrupt(error: Exception) -> None:
    """Tell Ctrl-C, which versions of DuckDB report by various errors, from bad tables."""
    if "interrupted" in str(error).lower():
        raise KeyboardInterrupt from error


def _first_lines(message: str, limit: int = 6) -> str:
    """Keep what DuckDB says went wrong and leave out its list of remedies in SQL."""
    lines = [line for line in message.partition("Possible ")[0].splitlines() if line.strip()]
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
    """Write a pyarrow table as Parquet or CSV, by the ending of ``path``; whole or not at all.

    Parameters
    ----------
    table : pyarrow.Table
        What to write.
    path : path
        A name that ends in .parquet, .pq or .csv.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    TableError
        The name has another ending, the folder does not exist, or a column is of a kind that CSV
        has no form for.

    Warns
    -----
    UnjoinedWarning
        Text for CSV begins with =, +, -, @, a tab or a line end, and is no number. Spreadsheets
        would run it as a formula, so a single quote is put before it. Parquet keeps it as it is.
    """
    ending = table_ending(Path(path))
    if ending in (".parquet", ".pq"):
        parquet = import_extra("pyarrow.parquet", extra="cli")
        return replace_file(path, lambda file: parquet.write_table(table, file))
    if ending == ".csv":
        writer = import_extra("pyarrow.csv", extra="cli")
        cells = _without_formulas(table, Path(path))
        return replace_file(path, lambda file: writer.write_csv(cells, file))
    raise TableError(f"cannot write {str(path)!r}: the name must end in .parquet or .csv.")


def _without_formulas(table: Frame, path: Path) -> Frame:
    """Return a table for CSV in which no text is a formula, with a warning if there was any."""
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    columns, changed = [], 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        if arrow.types.is_dictionary(column.type):
            column = compute.cast(column, column.type.value_type)
        if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
            runs = compute.and_(
                compute.match_substring_regex(column, FORMULA),
                compute.invert(compute.match_substring_regex(column, NUMBER)),
            )
            changed += compute.sum(runs).as_py() or 0
            mark, nothing = (arrow.scalar(text, column.type) for text in ("'", ""))
            quoted = compute.binary_join_element_wise(mark, column, nothing)
            column = compute.if_else(runs, quoted, column)
        elif not any(is_kind(column.type) for is_kind in _csv_kinds(arrow.types)):
            raise TableError(
                f"column {name!r} holds {column.type} values, which CSV has no form for. Leave it "
                "out, or write Parquet."
            )
        columns.append(column)
    names = [f"'{name}" if re.match(FORMULA, name) else name for name in table.column_names]
    changed += sum(a != b for a, b in zip(names, table.column_names, strict=True))
    if changed:
        warnings.warn(
            f"{changed:,} cell{'s' * (changed > 1)} of {str(path)!r} would be run as a formula by "
            "a spreadsheet, so a single quote was put in front. Write Parquet to keep them as "
            "they are.",
            UnjoinedWarning,
            stacklevel=3,
        )
    return arrow.table(columns, names=names)


def _csv_kinds(types: Any) -> list[Callable[[Any], bool]]:
    """Return the tests for types, besides text, that CSV has one form for."""
    return [
        types.is_null,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_date,
        types.is_time,
        types.is_timestamp,
    ]
