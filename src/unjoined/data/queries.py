"""Tables of databases and workbooks, queries that only read, and what DuckDB says went wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import did_you_mean, shown
from unjoined.data.files import EXCEL, stored_tables
from unjoined.errors import TableError

# Up to the first colon behind such an ending: what follows may have colons of its own.
DATABASE = re.compile(
    r"(.+?\.(?:duckdb|ddb|db|db3|sqlite|sqlite3|xlsx))(?::(.*))?",
    re.IGNORECASE | re.DOTALL,
)
# A server, up to the colon behind the database of its address, and DuckDB's extension for it.
SERVER = re.compile(
    r"((postgres|mysql)\w*://[^/]*/[^:/?]+(?:\?[^:]*)?)(?::(.*))?",
    re.IGNORECASE | re.DOTALL,
)
STATEMENT = re.compile(r"\s*(select|with|from)\s", re.IGNORECASE)
# A query may neither undo what is said here nor read variables of the running program.
LOCKED = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",  # nothing is downloaded
}
TEXT_AHEAD = "32MB"  # of a text file that may be read before it is asked for
RAGGED = re.compile(
    r"Line: (\d+).*?Expected Number of Columns: (\d+) Found: (\d+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A table or query of a DuckDB database or a server, streamed, never held as a whole.

    Tables of SQLite databases and sheets of workbooks are held, as DuckDB does not read them.

    Parameters
    ----------
    query : str
        A SELECT statement, or the name of a table or view.
    database : path or address, optional
        The database or workbook, opened read-only, or a server such as
        ``postgresql://me@db.example/shop``, which DuckDB's extension postgres or mysql reads. By
        default there is none, and the query reads files, such as ``SELECT * FROM
        'sales/*.parquet'``. Nothing is downloaded: addresses such as ``'s3://bucket/*.parquet'``
        need DuckDB's extension httpfs, and servers theirs, installed beforehand.

    Notes
    -----
    A query reads: anything but one SELECT, such as COPY, ATTACH, SET or a second statement, is
    refused before it runs. Files in a query are read as DuckDB reads them: names are patterns, and
    types of CSV columns are settled by their first rows.

    The query runs once per pass, and rows must come in the same order each time. DuckDB keeps the
    order of a table or file; a query that groups or joins needs an ORDER BY.
    """

    query: str
    database: str | os.PathLike[str] | None = None

    def __str__(self) -> str:
        """Return the query as messages and the command line have it."""
        if self.database is None:
            return self.query
        return f"{os.fspath(self.database)}:{self.query.strip(chr(34))}"


def is_query(text: str) -> bool:
    """Tell whether a text begins as a query does, or a table of a database."""
    stored = DATABASE.fullmatch(text)
    return bool(STATEMENT.match(text)) or (stored is not None and stored[2] is not None)


def as_query(path: Any) -> SqlQuery | None:
    """Return the query that a text stands for, None if it is the path of a file.

    ``SELECT ...`` is a query, ``FILE.duckdb:TABLE`` a table of a database, ``FILE.duckdb`` the only
    one, and ``FILE.duckdb:SELECT ...`` a query of a database. ``FILE.sqlite`` is a database too,
    and ``FILE.xlsx:SHEET`` a sheet of a workbook. A file that is called so is a file. In place of
    a file may stand the address of a server, ``postgresql://me@db.example/shop:TABLE``.
    """
    text = os.fspath(path)
    if server := SERVER.fullmatch(text):
        asked = server[3] or ""
        if not asked.strip():
            raise TableError(f"{text!r} names no table. Write {server[1]}:TABLE.")
        return SqlQuery(asked if STATEMENT.match(asked) else _quoted(asked), server[1])
    if stored := DATABASE.fullmatch(text):
        file = Path(stored[1])
        asked = stored[2]
        is_book = file.suffix.lower() in EXCEL
        if asked is None:
            is_stored = file.is_file() and not is_book
            return SqlQuery(_quoted(_only_table(file)), file) if is_stored else None
        if not asked.strip():
            raise TableError(f"{text!r} names no table. Write {file.name}:TABLE.")
        if is_book and not STATEMENT.match(asked):  # a sheet may have dots in its name
            return SqlQuery('"' + asked.replace('"', '""') + '"', file)
        return SqlQuery(asked if STATEMENT.match(asked) else _quoted(asked), file)
    return (
        SqlQuery(text) if STATEMENT.match(text) and not os.path.exists(text) else None
    )


def _quoted(name: str) -> str:
    """Return the name of a table, perhaps with its schema in front, for SQL."""
    return ".".join(
        '"{}"'.format(part.strip('"').replace('"', '""')) for part in name.split(".")
    )


def _only_table(file: Path) -> str:
    """Return the name of the only table of a database, or ask which one is meant."""
    found = database_tables(file)
    if len(found) != 1:
        raise TableError(
            f"{str(file)!r} holds {len(found)} tables: {shown(found)}. Say which one, as "
            f"{file.name}:TABLE."
        )
    return found[0]


def database_tables(file: Path) -> list[str]:
    """Return the names of the tables and views of a database."""
    with connect(SqlQuery("", file)) as connection:
        return _tables(connection)


def _tables(connection: Any) -> list[str]:
    return [str(name) for (name,) in connection.sql("SHOW TABLES").fetchall()]


@contextmanager
def connect(query: SqlQuery, *, of_text: bool = False) -> Iterator[Any]:
    """Yield a connection that reads a query's database, or files without one, and no more.

    ``of_text`` lets DuckDB 1 read ahead in text files, where it waits for room otherwise.
    """
    duckdb = import_extra("duckdb", extra="cli")
    if is_server(query.database):
        with _connect_server(str(query.database)) as connection:
            yield connection
        return
    file = query.database
    if file is not None and not Path(file).is_file():
        raise TableError(f"there is no database {str(file)!r}. Check the path.")
    held = None if file is None else stored_tables(Path(file), query.query)
    is_database = file is not None and held is None
    try:
        opened = duckdb.connect(
            str(file) if is_database else ":memory:",
            read_only=is_database,
            config=LOCKED | _spill(),
        )
    except duckdb.Error as error:
        said = str(error)
        if "lock on file" in said:
            raise TableError(
                f"{str(file)!r} is in use by another program. Close it there, or give a copy."
            ) from error
        if file is None:
            raise TableError(
                f"DuckDB refuses its settings: {first_lines(said)}"
            ) from error
        raise TableError(
            f"{str(file)!r} is not a database that DuckDB {duckdb.__version__} can open. If a "
            "newer version wrote it, update DuckDB. Tables of databases other than SQLite: export "
            "them first."
        ) from error
    with opened as connection:
        for name, table in (held or {}).items():
            connection.register(name, table)
        if file is not None:
            connection.execute("SET enable_external_access = false")
        if of_text and duckdb.__version__.startswith("1."):
            connection.execute(f"SET streaming_buffer_size = '{TEXT_AHEAD}'")
        connection.execute("SET lock_configuration = true")
        yield connection


def is_server(database: Any) -> bool:
    """Tell whether a database is on a server, and not a file."""
    return isinstance(database, str) and SERVER.fullmatch(database) is not None


@contextmanager
def _connect_server(address: str) -> Iterator[Any]:
    """Yield a connection that reads the database of a server, and no more."""
    duckdb = import_extra("duckdb", extra="cli")
    kind = str(SERVER.fullmatch(address)[2]).lower()  # type: ignore[index]  # is_server
    with duckdb.connect(":memory:", config=LOCKED | _spill()) as connection:
        try:
            connection.execute(f"LOAD {kind}")
        except duckdb.Error as error:
            raise TableError(
                f"DuckDB {duckdb.__version__} reads {address!r} by its extension {kind}, which is "
                f"not installed, and nothing is downloaded here. Run INSTALL {kind} in DuckDB "
                "once, or write the tables to Parquet files."
            ) from error
        quoted = address.replace("'", "''")
        try:
            connection.execute(f"ATTACH '{quoted}' AS server (TYPE {kind}, READ_ONLY)")
            connection.execute("USE server")
        except duckdb.Error as error:
            raise TableError(
                f"{address!r} cannot be opened. DuckDB says: {first_lines(str(error))}"
            ) from error
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def _spill() -> dict[str, str]:
    """Return where DuckDB may put what memory does not hold: not beside the user's files."""
    return {"temp_directory": str(Path(gettempdir(), f"unjoined-{uuid4().hex}"))}


def available_bytes() -> int:
    """Return how much memory is free, about; 4 GB where nobody tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    free = [
        int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
    ]
    return free[0] if free else 4 << 30


def checked_statement(connection: Any, query: SqlQuery, origin: str) -> str:
    """Return the SELECT that a query stands for, which was checked to read only."""
    duckdb = import_extra("duckdb", extra="cli")
    text = query.query
    is_name = len(text.split()) == 1 or re.fullmatch('"[^"]*"([.]"[^"]*")?', text)
    statement = f"SELECT * FROM {text}" if is_name else text  # noqa: S608
    try:
        check_reads(connection, statement, origin)
    except (duckdb.Error, RuntimeError) as error:
        if query.database is not None and is_name and "does not exist" in str(error):
            known = _tables(connection)
            name = text.strip('"')
            raise TableError(
                f"{str(query.database)!r} has no table {name!r}. Its tables are {shown(known)}"
                f"{did_you_mean(name, known)}"
            ) from error
        raise refused(query, error, origin) from error
    return statement


@contextmanager
def relation_of(query: SqlQuery, origin: str) -> Iterator[Any]:
    """Yield the rows of a query as a relation of DuckDB, none of which has been read."""
    duckdb = import_extra("duckdb", extra="cli")
    with connect(query) as connection:
        try:
            yield connection.sql(checked_statement(connection, query, origin))
        except (duckdb.Error, RuntimeError) as error:
            raise refused(query, error, origin) from error


def read_query(query: SqlQuery, origin: str) -> Frame:
    """Return all rows of a query as a pyarrow table."""
    with relation_of(query, origin) as relation:
        return relation.to_arrow_table()


def refused(query: SqlQuery, error: Exception, origin: str) -> TableError:
    """Return what to say of a query that DuckDB will not run, or stops running."""
    refuse_interrupt(error)
    said = re.sub(
        r"^[A-Z][A-Za-z ]* Error: ", "", str(error).partition("\n")[0]
    ).rstrip(" !.")
    name = query.query.strip('"')
    if needed := re.search(r"required extension '(\w+)", said):
        said = (
            f"it needs the extension {needed[1]}, which this program does not download"
        )
    short = name if len(name) <= 80 else f"{name[:77]}..."
    hint = ""
    if re.match(r"\s*(with|from)\s+\S+\s*$", name, re.IGNORECASE):
        hint = f" If it is the name of a file, write ./{name}."
    return TableError(
        f"{origin}: the query {short!r} cannot be run. DuckDB says: {said}.{hint}"
    )


def refuse_interrupt(error: Exception) -> None:
    """Tell Ctrl-C and a lack of memory, which DuckDB reports by various errors, from bad tables."""
    said = str(error).lower()
    if "interrupted" in said:
        raise KeyboardInterrupt from error
    if isinstance(error, MemoryError) or re.search(
        "out of memory|bad_?[ ]?alloc", said
    ):
        raise MemoryError("DuckDB ran out of it while it read a table") from error


def first_lines(message: str, limit: int = 6) -> str:
    """Keep what DuckDB says went wrong and leave out its list of remedies in SQL."""
    if ragged := RAGGED.search(message):
        line, wanted, found = map(int, ragged.groups())
        return (
            f"line {line:,} has {found} cell{'s' * (found != 1)}, the header has {wanted}. Correct "
            "the line, or put quotes around cells that hold a separator."
        )
    if open_quote := re.search(
        r"on Line: (\d+).*unterminated quote", message, re.DOTALL
    ):
        return f"line {int(open_quote[1]):,} begins a quote that does not end."
    if "magic bytes" in message:
        return "it is not a Parquet file, or a damaged one."
    message = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", message)
    lines = [
        line for line in message.partition("Possible ")[0].splitlines() if line.strip()
    ]
    return " ".join(line.strip() for line in lines[:limit])


def check_reads(connection: Any, query: str, origin: str) -> None:
    """Refuse a query that is not one SELECT, or that writes on the way."""
    duckdb = import_extra("duckdb", extra="cli")
    statements = connection.extract_statements(query)
    kinds = [statement.type.name for statement in statements]
    # These two are functions that write files.
    if kinds == ["SELECT"] and not re.search(
        "enable_(logging|profiling)", query, re.IGNORECASE
    ):
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
        f"{origin}: a query must be one SELECT that only reads, or the name of a table, got "
        f"{' and '.join(kinds) or 'nothing'}: {query[:80]!r}. Run what writes or changes settings "
        "beforehand, with DuckDB itself."
    )
