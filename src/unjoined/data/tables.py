"""Tables read whole or a batch of rows at a time: data frames, files, folders and queries."""

from __future__ import annotations

import csv
import gzip
import os
import re
from codecs import getincrementaldecoder
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined._validation import NUMBER
from unjoined.data.chunks import Place
from unjoined.errors import TableError

PARQUET = (".parquet", ".pq")
ENDINGS = (*PARQUET, ".csv", ".csv.gz", ".tsv", ".tsv.gz")
DELIMITERS = (",", ";", "\t", "|")
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
    """How DuckDB is to read one file, with nothing left for it to guess."""

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


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A table or query of a DuckDB database, streamed, never held as a whole.

    Parameters
    ----------
    query : str
        A SELECT statement, or the name of a table or view.
    database : path, optional
        The database file, opened read-only. By default there is none, and the query reads files,
        such as ``SELECT * FROM 's3://bucket/*.parquet'``.

    Notes
    -----
    A query reads: anything but one SELECT, such as COPY, ATTACH, SET or a second statement, is
    refused before it runs. Files in a query are read as DuckDB reads them: names are patterns, and
    types of CSV columns are settled by their first rows.

    The query runs once per pass. Without ORDER BY its rows may come in another order each time,
    which changes results to rounding only, but keeps a pass from being resumed.
    """

    query: str
    database: str | os.PathLike[str] | None = None


class Reading(NamedTuple):
    """How tables are read: rows to a piece, about, and what DuckDB may use."""

    chunk_rows: int
    threads: int | None = None
    memory_limit: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Settings for DuckDB."""
        # A query may neither undo what is said here nor read variables of the running program.
        fixed = {"lock_configuration": "true", "python_enable_replacements": "false"}
        asked = {"threads": self.threads, "memory_limit": self.memory_limit}
        return fixed | {name: value for name, value in asked.items() if value is not None}


def scan_table(
    table: Any, title: str, reading: Reading, text: Collection[str] = ()
) -> Iterator[tuple[Frame, Place]]:
    """Yield a table piece by piece with its place; columns ``text`` are left as written."""
    if nw.dependencies.is_into_dataframe(table):
        frame, size = nw.from_native(table, eager_only=True), reading.chunk_rows
        for start in range(0, len(frame), size):
            yield frame[start : start + size].to_native(), Place(title, start)
        return
    if isinstance(table, SqlQuery):
        database = ":memory:" if table.database is None else str(table.database)
        if table.database is not None and not Path(table.database).is_file():
            raise TableError(f"there is no database {database!r}. Check the path.")
        words = table.query.split()
        query = f"SELECT * FROM {table.query}" if len(words) == 1 else table.query  # noqa: S608
        yield from _stream(query, None, database, title, reading)
        return
    for file in _files(table, title):
        reader = FileReader.of(file)
        pieces = _stream(reader.query, reader.path, ":memory:", repr(str(file)), reading)
        for frame, place in pieces:
            yield reader.typed(frame, text), place


def _files(table: Any, title: str) -> list[Path]:
    """Return the files that a path, a folder or a list of both stands for."""
    if isinstance(table, str | os.PathLike):
        paths: Sequence[Any] = [table]
    elif isinstance(table, list | tuple) and table:
        paths = table
    else:
        raise TableError(
            f"{title} must be a data frame, a file, a folder, a list of files or a SqlQuery, got "
            f"{table!r}."
        )
    files: list[Path] = []
    for path in paths:
        files += _tables_in(Path(path)) if Path(path).is_dir() else [path]
    return [check_file(file) for file in files]


def _tables_in(folder: Path) -> list[Path]:
    """Return the tables in a folder and its folders; names with a dot or _ in front are no data."""
    found: list[Path] = []
    seen: set[str] = set()  # a link may lead back
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        found += [Path(root, name) for name in names if not name.startswith((".", "_"))]
    if not (tables := sorted(path for path in found if table_ending(path) in ENDINGS)):
        raise TableError(
            f"the folder {str(folder)!r} holds no file ending in {', '.join(ENDINGS)}."
        )
    return tables


def _refuse(error: OSError) -> None:
    raise TableError(f"a folder cannot be read: {error}.") from error


def _stream(
    query: str,
    parameter: str | None,
    database: str,
    origin: str,
    reading: Reading,
) -> Iterator[tuple[Frame, Place]]:
    """Run a query and yield its batches; what DuckDB says about a bad row is passed on."""
    duckdb = import_extra("duckdb", extra="cli")
    arrow = import_extra("pyarrow", extra="cli")
    row = 0
    try:
        read_only = database != ":memory:"
        with duckdb.connect(database, read_only=read_only, config=reading.config) as connection:
            if parameter is None:
                _check_reads(connection, query, origin)
            relation = connection.sql(query, params=None if parameter is None else [parameter])
            # Called so since DuckDB 1.5, where the older name warns.
            name = (
                "to_arrow_reader" if hasattr(relation, "to_arrow_reader") else "fetch_arrow_reader"
            )
            for batch in getattr(relation, name)(reading.chunk_rows):
                yield arrow.Table.from_batches([batch]), Place(origin, row)
                row += batch.num_rows
    except (duckdb.Error, arrow.ArrowException, OSError, RuntimeError) as error:
        refuse_interrupt(error)
        raise TableError(
            f"{origin} cannot be read beyond row {row:,} (counting from 0): "
            f"{_first_lines(str(error))}"
        ) from error


def _check_reads(connection: Any, query: str, origin: str) -> None:
    """Refuse a query that is not one SELECT, or that writes on the way."""
    duckdb = import_extra("duckdb", extra="cli")
    statements = connection.extract_statements(query)
    kinds = [statement.type.name for statement in statements]
    # These two are functions that write files.
    if kinds == ["SELECT"] and not re.search("enable_(logging|profiling)", query, re.IGNORECASE):
        text = statements[0].query.strip().rstrip(";")
        try:
            # Since DuckDB 2 the WITH of a SELECT may write, though not below the top: there it
            # is refused when names are looked up, and nothing is run here.
            connection.sql(f"SELECT * FROM ({text}\n)")  # noqa: S608
        except duckdb.BinderException as error:
            if "must be at the top level" not in str(error):
                raise
        else:
            return
    raise TableError(
        f"{origin}: a SqlQuery must be one SELECT that only reads, or the name of a table, got "
        f"{' and '.join(kinds) or 'nothing'}: {query[:80]!r}. Run what writes or changes settings "
        "beforehand, with DuckDB itself."
    )
