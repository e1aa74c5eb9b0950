"""Whether tables fit into memory, judged by their files before they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import narwhals as nw

from unjoined._optional import import_extra
from unjoined.data.queries import (
    SqlQuery,
    address_space_left,
    as_query,
    checked_statement,
    connect,
    reserve_little,
)
from unjoined.data.tables import EXCEL, PARQUET, table_ending, table_files
from unjoined.data.text_files import open_bytes, packing
from unjoined.errors import TableError

UNPACKED = 6  # bytes of text to a byte that is packed, about
COPIES = 10  # of the rows that a fit may hold at once: cells, numbers, and what is made of them
HEAD = 1 << 18  # bytes whose lines are counted
CELL = 16  # bytes of a cell of a query, about


def estimate_bytes(table: Any) -> int:
    """Return about how many bytes the rows of a table take in memory.

    Parameters
    ----------
    table : path, list of paths, SqlQuery or data frame
        As `TableSource` takes it. Of Parquet files the footers are read, of others the sizes are
        looked up; of a query DuckDB says how many rows it expects.

    Returns
    -------
    int
        Good to a factor of two or so.
    """
    if nw.dependencies.is_into_dataframe(table):
        frame = nw.from_native(table, eager_only=True)
        return len(frame) * len(frame.columns) * 8
    query = as_query(table) if isinstance(table, str | os.PathLike) else table
    if isinstance(query, SqlQuery):
        return _query_bytes(query)
    return sum(_file_bytes(file) for file in table_files(table, "the table"))


def _file_bytes(file: Path) -> int:
    size = file.stat().st_size
    if table_ending(file) in PARQUET:
        about = _footer(file)
        groups = (about.row_group(i) for i in range(about.num_row_groups))
        raw = sum(group.total_byte_size for group in groups)
        return int(max(raw, about.num_rows * about.num_columns * 8))
    packed = packing(file) != "none" or table_ending(file) in EXCEL
    return 2 * size * (UNPACKED if packed else 1)  # a short text takes more than its letters


def _footer(file: Path) -> Any:
    arrow = import_extra("pyarrow", extra="cli")
    reserve_little()
    try:
        return import_extra("pyarrow.parquet", extra="cli").read_metadata(file)
    except (arrow.ArrowException, OSError) as error:
        raise TableError(f"{str(file)!r} is not a Parquet file, or a damaged one.") from error


def _query_bytes(query: SqlQuery) -> int:
    columns, rows = _query_size(query)
    return rows * columns * CELL


def _query_size(query: SqlQuery) -> tuple[int, int]:
    """Return how many columns a query has, and how many rows DuckDB expects."""
    with connect(query, {}) as connection:
        statement = checked_statement(connection, query, "the table")
        columns = len(connection.sql(statement).columns)
        plan = connection.sql(f"EXPLAIN (FORMAT json) {statement}").fetchall()[0][1]
    # The topmost node that says how many rows it expects.
    rows = re.search(r'"Estimated Cardinality": "(\d+)"', plan)
    return columns, 0 if rows is None else int(rows[1])


def estimate_rows(table: Any) -> int:
    """Return about how many rows a table has, by footers, sizes and first lines; 0 if unknown."""
    if nw.dependencies.is_into_dataframe(table):
        return len(nw.from_native(table, eager_only=True))
    query = as_query(table) if isinstance(table, str | os.PathLike) else table
    if isinstance(query, SqlQuery):
        return _query_size(query)[1]
    return sum(_file_rows(file) for file in table_files(table, "the table"))


def _file_rows(file: Path) -> int:
    if table_ending(file) in PARQUET:
        return int(_footer(file).num_rows)
    with open_bytes(file) as stream:
        head = stream.read(HEAD)
    size = file.stat().st_size * (1 if packing(file) == "none" else UNPACKED)
    return int(head.count(b"\n") * max(size / len(head), 1.0))


def available_bytes() -> int:
    """Return how much memory this process may still take, about; 4 GB where nobody tells."""
    left = address_space_left()
    free = [] if left is None else [left]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(v.split()[1]) * 1024 for v in lines if v.startswith("MemAvailable")]
    except OSError:
        pass
    try:
        folder = Path("/sys/fs/cgroup")
        limit = (folder / "memory.max").read_text().strip()
        if limit != "max":
            free.append(int(limit) - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(min(free, default=4 << 30), 0)


def fits_in_memory(tables: Iterable[Any]) -> bool:
    """Tell whether a fit can hold all rows of some tables at once.

    Parameters
    ----------
    tables : iterable of tables
        Files, folders, queries or data frames.

    Returns
    -------
    bool
        True if about ten copies of the rows fit into the memory that is free.

    Examples
    --------
    >>> import pandas as pd
    >>> fits_in_memory([pd.DataFrame({"age": [31, 54]})])
    True
    """
    return needed_bytes(tables) <= available_bytes()


def needed_bytes(tables: Iterable[Any]) -> int:
    """Return about how many bytes of memory a fit to all rows of some tables takes."""
    return COPIES * sum(map(estimate_bytes, tables))
