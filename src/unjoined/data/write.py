"""Write data frames and other files, as a whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import narwhals as nw

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import NUMBER
from unjoined.data.columns import column_names
from unjoined.errors import TableError, UnjoinedWarning


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a file beside ``path``, then put it in place at once.

    A process that is killed leaves ``path`` as it was, or complete. What it wrote beside, a hidden
    file that ends in ``.part``, may then be left and can be deleted.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise TableError(
            f"there is no folder {str(target.parent)!r} to write to. Create it first."
        )
    if target.is_dir():
        raise TableError(f"{str(target)!r} is a folder; name a file to write to.")
    try:
        handle, name = tempfile.mkstemp(".part", f".{target.name}.", target.parent)
        os.close(handle)
        beside = Path(name)
        try:
            write(beside)
            # Temporary files are private; a result should be as readable as its folder allows.
            umask = os.umask(0)
            os.umask(umask)
            beside.chmod(0o666 & ~umask)
            with beside.open("rb") as file:
                os.fsync(
                    file.fileno()
                )  # else a power cut may leave the name without the bytes
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise TableError(f"{str(target)!r} could not be written: {error}.") from error
    return target


# How text begins that a spreadsheet runs; the last four are =, +, - and @ in full width.
FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"


def write_table(table: Frame, path: str | os.PathLike[str]) -> Path:
    """Write a data frame as Parquet, CSV or Excel, by the ending of ``path``, or not at all.

    Parameters
    ----------
    table : data frame
        What to write; pandas, polars or pyarrow.
    path : path
        A name that ends in .parquet, .pq, .csv or .xlsx.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    TableError
        The name has another ending, the folder does not exist, a column is of a kind that CSV
        has no form for, or there are more rows, or letters, than a sheet, or a cell, holds.

    Warns
    -----
    UnjoinedWarning
        Text for CSV or Excel begins with =, +, -, @, a tab or a line end, and is not a number.
        Spreadsheets would run it as a formula, so a single quote is put before it. Parquet keeps
        it as it is. Control characters, which a workbook cannot hold, are replaced there.

    Notes
    -----
    A cell of Excel holds 15 digits. A column of whole numbers with more, such as long ids, is
    written to a workbook as text, and so are times with a time zone and days before March 1900.
    """
    if column_names(table) is None:
        raise TableError(f"write_table takes a data frame, got {type(table).__name__}.")
    table = nw.from_native(table, eager_only=True).to_arrow()
    ending = Path(path).suffix.lower()
    if ending in (".parquet", ".pq"):
        parquet = import_extra("pyarrow.parquet", extra="cli")
        return replace_file(path, lambda file: parquet.write_table(table, file))
    if ending == ".csv":
        writer = import_extra("pyarrow.csv", extra="cli")
        cells = _without_formulas(table, Path(path))
        return replace_file(path, lambda file: writer.write_csv(cells, file))
    if ending == ".xlsx":
        cells = _without_formulas(table, Path(path))
        return replace_file(path, lambda file: write_excel(cells, file))
    raise TableError(
        f"cannot write {str(path)!r}: the name must end in .parquet, .csv or .xlsx."
    )


def _without_formulas(table: Frame, path: Path) -> Frame:
    """Return a table for CSV in which no text is a formula, with a warning if there was any."""
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    columns, changed = [], 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        if arrow.types.is_dictionary(column.type):
            column = compute.cast(column, column.type.value_type)
        if str(column.type) == "string_view":  # which older versions of pyarrow lack
            column = compute.cast(column, arrow.string())
        if arrow.types.is_string(column.type) or arrow.types.is_large_string(
            column.type
        ):
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
    names = [
        f"'{name}" if re.match(FORMULA, name) else name for name in table.column_names
    ]
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


MOST_ROWS = 1_048_575  # of a sheet, below its header
MOST_LETTERS = 32_767  # of a cell
NOT_IN_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
EXACT = 10**15  # whole numbers from here on lose digits in Excel
FIRST_DAY = date(
    1900, 3, 1
)  # Excel has no days before 1900, and counts those before this one wrong


def write_excel(table: Frame, file: Path) -> None:
    """Write a pyarrow table as the one sheet of a workbook."""
    openpyxl = import_extra("openpyxl", extra="cli")
    if table.num_rows > MOST_ROWS:
        raise TableError(
            f"a sheet of Excel holds {MOST_ROWS:,} rows, the table has {table.num_rows:,}. Write "
            "Parquet or CSV."
        )
    for j, name in enumerate(table.column_names):
        table = table.set_column(j, name, _excel_column(table.column(j), name))
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("unjoined")
    sheet.append([re.sub(NOT_IN_XML, "\ufffd", name) for name in table.column_names])
    for batch in table.to_batches(max_chunksize=10_000):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append(row)
    book.save(file)


def _excel_column(column: Any, name: str) -> Any:
    """Return a column that a sheet holds as it is: as text, where a cell would change it."""
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    kind, types = column.type, arrow.types
    if types.is_string(kind) or types.is_large_string(kind):
        return _excel_text(column, name)
    is_changed = types.is_timestamp(kind) and kind.tz is not None
    is_changed |= types.is_decimal(kind) and kind.precision > 15
    if types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind):
        low, high = compute.min_max(column).as_py().values()
        if low is not None and types.is_integer(kind):
            is_changed |= max(-low, high) >= EXACT
        elif low is not None:
            is_changed |= (
                low.date() < FIRST_DAY if hasattr(low, "date") else low < FIRST_DAY
            )
    return column.cast(arrow.string()) if is_changed else column


def _excel_text(column: Any, name: str) -> Any:
    """Return text without control characters; refuse what is longer than a cell."""
    compute = import_extra("pyarrow.compute", extra="cli")
    longest = compute.max(compute.utf8_length(column)).as_py() or 0
    if longest > MOST_LETTERS:
        raise TableError(
            f"column {name!r} has a text of {longest:,} characters, a cell of Excel holds "
            f"{MOST_LETTERS:,}. Leave the column out, or write Parquet or CSV."
        )
    changed = (
        compute.sum(compute.match_substring_regex(column, NOT_IN_XML)).as_py() or 0
    )
    if not changed:
        return column
    warnings.warn(
        f"{changed:,} cell{'s' * (changed > 1)} of the column {name!r} hold{'s' * (changed == 1)} "
        "control characters, which a workbook cannot hold, so \ufffd stands in their place. Write "
        "Parquet or CSV to keep them.",
        UnjoinedWarning,
        stacklevel=2,
    )
    return compute.replace_substring_regex(column, NOT_IN_XML, "\ufffd")
