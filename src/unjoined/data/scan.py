"""One table, a batch of rows at a time: a data frame, files, a folder or a query."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined.data.chunks import Place
from unjoined.data.tables import (
    ENDINGS,
    FileReader,
    _first_lines,
    check_file,
    refuse_interrupt,
    table_ending,
)
from unjoined.errors import TableError


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
    """Yield a table piece by piece, with where each comes from.

    A folder stands for all tables in it and its folders, in the order of their names. Of text
    files, the columns ``text`` are left as they are written.
    """
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
