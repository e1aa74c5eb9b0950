"""Tables of DuckDB databases and queries that only read, and what DuckDB says went wrong."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unjoined._optional import import_extra
from unjoined._validation import shown
from unjoined.errors import TableError

DATABASES = (".duckdb", ".ddb", ".db")
RAGGED = re.compile(r"Line: (\d+).*?Expected Number of Columns: (\d+) Found: (\d+)", re.DOTALL)


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


def as_query(path: Any) -> SqlQuery | None:
    """Return the query that a text stands for: SELECT ..., or FILE.duckdb:TABLE; else None."""
    text = os.fspath(path)
    if re.match(r"(?is)\s*(select|from|with)\s", text):
        return SqlQuery(text)
    name, colon, table = text.rpartition(":")
    file = Path(name if colon and Path(name).suffix.lower() in DATABASES else text)
    if file.suffix.lower() not in DATABASES or not file.is_file():
        return None
    if file == Path(text):
        table = _only_table(file)
    return SqlQuery('"' + table.strip('"').replace('"', '""').replace(".", '"."') + '"', file)


def _only_table(file: Path) -> str:
    """Return the name of the only table of a database, or ask which one is meant."""
    duckdb = import_extra("duckdb", extra="cli")
    try:
        with duckdb.connect(str(file), read_only=True) as connection:
            found = [row[0] for row in connection.sql("SHOW TABLES").fetchall()]
    except duckdb.Error as error:
        raise TableError(
            f"{str(file)!r} is no DuckDB database: {first_lines(str(error))}"
        ) from None
    if len(found) != 1:
        raise TableError(
            f"{str(file)!r} holds {len(found)} tables: {shown(found)}. Say which one, as "
            f"{file.name}:TABLE."
        )
    return str(found[0])


def refuse_interrupt(error: Exception) -> None:
    """Tell Ctrl-C, which versions of DuckDB report by various errors, from bad tables."""
    if "interrupted" in str(error).lower():
        raise KeyboardInterrupt from error


def first_lines(message: str, limit: int = 6) -> str:
    """Keep what DuckDB says went wrong and leave out its list of remedies in SQL."""
    if ragged := RAGGED.search(message):
        line, wanted, found = map(int, ragged.groups())
        return (
            f"line {line:,} has {found} cell{'s' * (found != 1)}, the header has {wanted}. Correct "
            "the line, or put quotes around cells that hold a separator."
        )
    lines = [line for line in message.partition("Possible ")[0].splitlines() if line.strip()]
    return " ".join(line.strip() for line in lines[:limit])


def check_reads(connection: Any, query: str, origin: str) -> None:
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
