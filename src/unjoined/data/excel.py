"""Tables in Excel workbooks: the first sheet in, one sheet out."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined.data.columns import plain_text
from unjoined.errors import TableError

MOST_ROWS = 1_048_575  # of a sheet, below its header


def read_excel(file: Path, text: Collection[str] = ()) -> Frame:
    """Return the first sheet with rows as a pyarrow table; columns ``text`` become text."""
    openpyxl = import_extra("openpyxl", extra="cli")
    arrow = import_extra("pyarrow", extra="cli")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except Exception as error:  # whatever a file may hold that is not a workbook
        raise TableError(
            f"{str(file)!r} cannot be read as an Excel workbook (.xlsx). If it is an older one, "
            "save it anew; if it is text, give it the ending .csv."
        ) from error
    try:
        for sheet in book.worksheets:
            rows = [list(row) for row in sheet.iter_rows(values_only=True)]
            rows = [row for row in rows if any(cell is not None for cell in row)]
            if rows:
                names, cells = _header(rows, file)
                pairs = zip(names, cells, strict=True)
                columns = [_column(column, name in text) for name, column in pairs]
                return arrow.table(columns, names=names)
    finally:
        book.close()
    raise TableError(f"{str(file)!r} is empty: no sheet has a header.")


def _header(rows: list[list[Any]], file: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns and their cells, without title lines above."""
    width = max(sum(cell is not None for cell in row) for row in rows)
    start = 0
    while width > 1 and sum(cell is not None for cell in rows[start]) <= 1:
        start += 1
    named = [j for j, cell in enumerate(rows[start]) if cell is not None]
    names = [str(rows[start][j]) for j in named]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(
            f"{str(file)!r} has two columns named {twice[0]!r}. Give every column its own name."
        )
    body = rows[start + 1 :]
    for i, row in enumerate(body):
        if any(cell is not None and j not in named for j, cell in enumerate(row)):
            raise TableError(
                f"row {start + i + 2} of {str(file)!r} has a cell in a column that has no name. "
                "Name the column, or delete the cell."
            )
    return names, [tuple(row[j] if j < len(row) else None for row in body) for j in named]


def _column(cells: tuple[Any, ...], as_text: bool) -> Any:
    """Return the cells of a column in the type that all of them have, or as text."""
    arrow = import_extra("pyarrow", extra="cli")
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds and kinds <= {int, float} and not as_text:
        as_float = float in kinds
        return arrow.array([float(c) if as_float and c is not None else c for c in cells])
    if kinds <= {datetime, date} and not as_text:
        whole = all(c is None or not isinstance(c, datetime) or c.time() == time() for c in cells)
        day = [c.date() if isinstance(c, datetime) else c for c in cells]
        return arrow.array(day if whole else cells)
    if len(kinds) == 1 and kinds <= {bool, time, timedelta} and not as_text:
        return arrow.array(cells)
    return arrow.array([plain_text(cell) for cell in cells], type=arrow.string())


def write_excel(table: Frame, file: Path) -> None:
    """Write a pyarrow table as the one sheet of a workbook."""
    openpyxl = import_extra("openpyxl", extra="cli")
    if table.num_rows > MOST_ROWS:
        raise TableError(
            f"a sheet of Excel holds {MOST_ROWS:,} rows, the table has {table.num_rows:,}. Write "
            "Parquet or CSV."
        )
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("unjoined")
    sheet.append(table.column_names)
    for batch in table.to_batches(max_chunksize=10_000):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append(row)
    book.save(file)
