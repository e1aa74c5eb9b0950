"""What a file is: its kind, and of text its encoding, separator, names and decimal mark."""

from __future__ import annotations

import csv
import os
import re
import shutil
import sqlite3
import tempfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from io import BufferedReader, StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import finalize

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import shown
from unjoined.data.columns import plain_text
from unjoined.errors import TableError

DELIMITERS = (",", ";", "\t", "|")
HEADER_BYTES = 1 << 20  # a longer first line is not a header
FIRST_RECORDS = 1000  # that show how a text file is written
PACKED = {
    ".gz": "gzip",
    ".zst": "zstd",
}  # endings, and what DuckDB and pyarrow call them
DECIMAL_COMMA = re.compile(r"[+-]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),[0-9]+$")
DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
UTF8, CP1252 = "utf-8-sig", "cp1252"
PARQUET = (".parquet", ".pq")
TEXT = tuple(
    f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", *PACKED)
)
JSON = tuple(
    f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", *PACKED)
)
EXCEL = (".xlsx",)
ENDINGS = (*PARQUET, *TEXT, *JSON, *EXCEL)


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a text file is written."""

    names: list[str]
    delimiter: str
    skip: int  # lines above the header
    encoding: str
    has_decimal_comma: bool
    decimals: list[
        str
    ]  # columns whose first cells are plain numbers, some with decimals


def packing(file: Path) -> str:
    """Return how a file is compressed, in DuckDB's words."""
    return PACKED.get(file.suffix.lower(), "none")


def open_bytes(file: Path) -> Any:
    """Open a file for reading, unpacked."""
    packed = packing(file)
    if packed == "none":
        return file.open("rb")
    arrow = import_extra("pyarrow", extra="cli")
    return arrow.input_stream(str(file), compression=packed)


def specification_of(file: Path) -> TextForm:
    """Look at the beginning of a text file."""
    try:
        with open_bytes(file) as stream:
            head = stream.read(HEADER_BYTES)
    except (OSError, EOFError, RuntimeError) as error:
        packed = packing(file) != "none"
        why = (
            "it is not packed as its ending says, or damaged" if packed else str(error)
        )
        raise TableError(f"{str(file)!r} cannot be read: {why}.") from error
    encoding, lines = _decoded(head)
    if "\0" in lines:
        raise TableError(
            f"{str(file)!r} is not a text file: it holds bytes that are no text."
        )
    found = {mark: named for mark in DELIMITERS if (named := _names(lines, mark))}
    if not found:
        raise TableError(
            f"{str(file)!r} must begin with a line of column names, separated by commas, "
            f"semicolons, tabs or bars, but it begins with {lines[:40]!r}."
        )
    several = [mark for mark, (_, row) in found.items() if len(row) > 1]
    if len(several) > 1:
        cut = len(head) == HEADER_BYTES
        several = [mark for mark in several if _fits(lines, mark, found[mark][0], cut)]
        # With another mark the header itself may pass for a title, and a row for the header.
        above = min((found[mark][0] for mark in several), default=0)
        several = [mark for mark in several if found[mark][0] == above]
        if len(several) != 1:
            raise TableError(
                f"{str(file)!r}: its columns may be separated by a comma, semicolon, tab or bar, "
                "and the first lines do not tell which. Put quotes around names that hold another."
            )
    delimiter = (
        several[0] if several else next(iter(found))
    )  # a comma, if it may be one
    skip, names = found[delimiter]
    if len(names) == 1 and ".txt" in file.suffixes:  # prose, rather than a table
        raise TableError(
            f"{str(file)!r} is not a table this program reads: its first line holds no comma, "
            "semicolon, tab or bar. Call it .csv if it has one column."
        )
    if names[0] == "":  # as pandas calls the index that it writes without a name
        names = ["Unnamed: 0", *names[1:]]
    check_header(names, file)
    comma = delimiter != "," and _has_decimal_comma(lines, delimiter)
    rows = _first_records(lines, delimiter)[skip + 1 :]
    if len(head) == HEADER_BYTES:  # the last line may be cut
        rows = rows[:-1]
    cells = zip(*(row for row in rows if len(row) == len(names)), strict=True)
    decimals = [n for n, c in zip(names, cells, strict=False) if _has_decimals(c)]
    return TextForm(names, delimiter, skip, encoding, comma, [] if comma else decimals)


def _decoded(head: bytes) -> tuple[str, str]:
    """Return the encoding of a file and its beginning, which may end within a character."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif head[1:200:2].count(0) > len(head[1:200:2]) // 2:
        encodings = ["utf-16-le"]
    elif head[0:200:2].count(0) > len(head[0:200:2]) // 2:
        encodings = ["utf-16-be"]
    else:
        encodings = [UTF8, CP1252]
    for encoding in encodings:
        try:
            return encoding, getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
    return CP1252, head.decode(CP1252, errors="replace")


def _names(lines: str, delimiter: str) -> tuple[int, list[str]] | None:
    """Return the number of title lines and the header below them, None if there is none."""
    skip = 0
    rows = _first_records(lines, delimiter)
    if not rows:
        return None
    wide = any(sum(map(bool, row)) > 1 for row in rows)
    while wide and skip < len(rows) and sum(map(bool, rows[skip])) <= 1:
        skip += 1
    # A title is followed by a header of words; one cell above numbers is a line that is too short.
    if skip and not _is_header(rows[skip]):
        skip = 0
    return (skip, rows[skip]) if rows[skip] else None


def _is_header(row: list[str]) -> bool:
    """Tell whether all cells are names."""
    return len(set(row)) == len(row) and not any(
        re.match(r"[\s\d.,+-]*$", cell) for cell in row
    )


def _first_records(lines: str, delimiter: str) -> list[list[str]]:
    """Return the records before one that cannot be read."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(_records(lines, delimiter), FIRST_RECORDS))
    return rows


def _records(lines: str, delimiter: str) -> Iterator[list[str]]:
    return iter(
        csv.reader(StringIO(lines, newline=""), delimiter=delimiter, strict=True)
    )


def _fits(lines: str, delimiter: str, skip: int, cut: bool) -> bool:
    """Tell whether all of the first lines have as many cells as the header."""
    try:
        rows = islice(_records(lines, delimiter), skip, skip + 1000)
        widths = [len(row) for row in rows if row]
    except csv.Error:
        return False
    return len(set(widths[:-1] if cut else widths)) == 1


def _has_decimal_comma(lines: str, delimiter: str) -> bool:
    """Tell whether a cell of the first lines is a number with a decimal comma."""
    cells = re.split(rf"[{re.escape(delimiter)}\r\n]", lines)
    return any(DECIMAL_COMMA.match(cell.strip().strip('"')) for cell in cells)


def _has_decimals(cells: Sequence[str]) -> bool:
    """Tell whether cells are plain numbers, and the points in them no marks of thousands."""
    written = [cell for cell in cells if cell]
    some = any(re.search(r"\.(?![0-9]{3}$)", cell) for cell in written)
    return some and all(map(DECIMAL.fullmatch, written))


def check_header(names: list[str], file: Path) -> None:
    """Refuse columns without a name, and two of one name."""
    if "" in names:
        raise TableError(
            f"column {names.index('') + 1} of {str(file)!r} has no name. Name it, or leave row "
            "numbers out when you write the file (in pandas with index=False)."
        )
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(
            f"{str(file)!r} has two columns named {twice[0]!r}. Give every column its own name."
        )


def mixes_line_ends(file: Path) -> bool:
    """Tell whether lines end in several ways, as where files of two systems were put together."""
    found: set[bytes] = set()
    with open_bytes(file) as stream:
        last = b""
        while part := stream.read(HEADER_BYTES):
            part = last + part
            last = (
                part[-1:] if part.endswith(b"\r") else b""
            )  # its other half may follow
            found.update(re.findall(rb"\r\n|\r(?!$)|\n", part))
    return len(found) > 1 or (last != b"" and bool(found - {last}))


# Bytes that cp1252 does not have, and more letters in a row than Western words have beyond ASCII.
NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d]|[\x80-\xff]{3,}")


def check_western(file: Path) -> None:
    """Refuse a file that is not UTF-8, and that cp1252 would turn into other letters."""
    first, has_utf8, odd = None, False, None
    with open_bytes(file) as stream, BufferedReader(stream) as lines:
        for number, line in enumerate(lines, 1):
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                has_utf8 = True
            except UnicodeDecodeError as error:
                first = first or (number, line[error.start])
                odd = odd or NOT_WESTERN.search(line)
            if first and (has_utf8 or odd):
                break
    if first is None or not (has_utf8 or odd):
        return
    others = (
        "though others are" if has_utf8 else "and as cp1252 it has no meaning either"
    )
    raise TableError(
        f"line {first[0]:,} of {str(file)!r} is not UTF-8 text (byte 0x{first[1]:02X}), {others}. "
        "Save the file as UTF-8, in Excel as 'CSV UTF-8', or correct the line."
    )


class Utf8Copy:
    """A copy of a text file in UTF-8 with one kind of line ends, there as long as this object."""

    def __init__(self, file: Path, encoding: str) -> None:
        handle, name = tempfile.mkstemp(".csv", "unjoined-")
        self.path = Path(name)
        finalize(self, self.path.unlink, missing_ok=True)
        with (
            open(handle, "w", encoding="utf-8", newline="") as copy,
            open_bytes(file) as stream,
        ):
            text = TextIOWrapper(
                stream, encoding=encoding, errors="replace", newline=None
            )
            shutil.copyfileobj(text, copy)
            text.detach()


def read_excel(file: Path, text: Collection[str] = ()) -> Frame:
    """Return the only sheet with rows as a pyarrow table; columns ``text`` become text."""
    sheets = _sheets(file, text)
    if not sheets:
        raise TableError(f"{str(file)!r} is empty: no sheet has a header.")
    # A legend or a note beside the data is no second table.
    tables = {
        n: t for n, t in sheets.items() if t.num_columns > 1 and t.num_rows
    } or sheets
    if len(tables) > 1:
        raise TableError(
            f"{str(file)!r} holds {len(tables)} sheets with rows: {shown(list(tables))}. Say which "
            f"one, as {file.name}:SHEET."
        )
    return next(iter(tables.values()))


def _sheets(file: Path, text: Collection[str] = ()) -> dict[str, Frame]:
    """Return the sheets that have a header, by name."""
    openpyxl = import_extra("openpyxl", extra="cli")
    arrow = import_extra("pyarrow", extra="cli")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except Exception as error:  # whatever a file may hold that is not a workbook
        raise TableError(
            f"{str(file)!r} cannot be read as an Excel workbook (.xlsx). If it is an older one, "
            "save it anew; if it is text, give it the ending .csv."
        ) from error
    found = {}
    try:
        for sheet in book.worksheets:
            rows = [list(row) for row in sheet.iter_rows(values_only=True)]
            if not all(cell is not None for row in rows for cell in row):
                _refuse_formulas(file, sheet)
            if rows := [row for row in rows if any(cell is not None for cell in row)]:
                names, cells = _header(rows, file)
                pairs = zip(names, cells, strict=True)
                columns = [_column(column, name in text) for name, column in pairs]
                found[sheet.title] = arrow.table(columns, names=names)
    finally:
        book.close()
    return found


@lru_cache(maxsize=1)
def _known_sheets(file: Path, changed: int) -> dict[str, Frame]:
    """Return the sheets of a workbook, which takes long to read, as of a time."""
    return _sheets(file)


def stored_tables(file: Path, query: str) -> dict[str, Frame] | None:
    """Return the tables of a workbook or a SQLite database, None for a database of DuckDB's.

    Of a SQLite database only those that a query names have rows.
    """
    if table_ending(file) in EXCEL:
        return _known_sheets(file, file.stat().st_mtime_ns)
    with file.open("rb") as stream:
        if stream.read(16) != b"SQLite format 3\0":
            return None
    found = {}
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as opened:
            named = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            for (name,) in opened.execute(
                f"{named} AND name NOT LIKE 'sqlite_%'"
            ).fetchall():
                found[str(name)] = _sqlite_table(
                    opened, name, name.casefold() in query.casefold()
                )
    except sqlite3.Error as error:
        raise TableError(
            f"{str(file)!r} is a SQLite database that cannot be read: {error}. Close it where it "
            "is in use, or export its tables."
        ) from error
    return found


def _sqlite_table(opened: sqlite3.Connection, name: str, with_rows: bool) -> Frame:
    """Return a table of a SQLite database, with the types that its values have."""
    arrow = import_extra("pyarrow", extra="cli")
    quoted = '"' + name.replace('"', '""') + '"'
    found = opened.execute(f"SELECT * FROM {quoted} LIMIT {-1 if with_rows else 0}")  # noqa: S608
    names = [str(column[0]) for column in found.description]
    rows = found.fetchall()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return arrow.table([_column(column, False) for column in columns], names=names)


def _refuse_formulas(file: Path, read: Any) -> None:
    """Refuse cells that hold a formula and no value: a program wrote them, and none computed."""
    openpyxl = import_extra("openpyxl", extra="cli")
    book = openpyxl.load_workbook(file, read_only=True)
    try:
        pairs = zip(
            book[read.title].iter_rows(), read.iter_rows(values_only=True), strict=False
        )
        for i, (cells, values) in enumerate(pairs, 1):
            for cell, value in zip(cells, values, strict=False):
                if value is None and cell.data_type == "f":
                    raise TableError(
                        f"row {i:,} of {str(file)!r} has the formula {str(cell.value)[:40]!r}, and "
                        "its value was never computed. Open the file in Excel and save it."
                    )
    finally:
        book.close()


def _column(cells: tuple[Any, ...], as_text: bool) -> Any:
    """Return the cells of a column in the type that all of them have, or as text."""
    arrow = import_extra("pyarrow", extra="cli")
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds and kinds <= {int, float} and not as_text:
        as_float = float in kinds
        return arrow.array(
            [float(c) if as_float and c is not None else c for c in cells]
        )
    if kinds <= {datetime, date} and not as_text:
        whole = all(
            c is None or not isinstance(c, datetime) or c.time() == time()
            for c in cells
        )
        day = [c.date() if isinstance(c, datetime) else c for c in cells]
        return arrow.array(day if whole else cells)
    if len(kinds) == 1 and kinds <= {bool, time, timedelta} and not as_text:
        return arrow.array(cells)
    return arrow.array([plain_text(cell) for cell in cells], type=arrow.string())


def _header(
    rows: list[list[Any]], file: Path
) -> tuple[list[str], list[tuple[Any, ...]]]:
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
    return names, [
        tuple(row[j] if j < len(row) else None for row in body) for j in named
    ]


def table_ending(path: Path) -> str:
    """Return the ending that tells what kind of table a file is, in small letters."""
    name = path.name.lower()
    return next(
        (ending for ending in ENDINGS if name.endswith(ending)), path.suffix.lower()
    )


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
            f"{str(file)!r} is a folder, not a table. Name one file. The commands check, fit and "
            "aggregate take folders."
        )
    if table_ending(file) not in ENDINGS:
        raise TableError(
            f"{str(file)!r} is not a table this program reads: expected .csv, .tsv, .txt, .jsonl "
            "or .ndjson (also packed, .gz or .zst), .parquet, .pq, .xlsx, .duckdb or .sqlite."
        )
    if not file.is_file():
        raise TableError(
            f"{str(file)!r} is a pipe or a device, and tables are read more than once. Write it to "
            "an ordinary file first."
        )
    if file.stat().st_size == 0:  # DuckDB would make a column up
        raise TableError(f"{str(file)!r} is empty, without even a header.")
    return file


def table_files(table: Any, title: str) -> list[Path]:
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
    """Return the tables in a folder and its folders; names that begin with . or _ are not data."""
    found: list[Path] = []
    seen: set[str] = set()  # a link may lead back
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        found += [Path(root, name) for name in names if not name.startswith((".", "_"))]
    endings = [
        ending for ending in ENDINGS if not ending.startswith(".txt")
    ]  # as of notes
    if not (tables := sorted(path for path in found if table_ending(path) in endings)):
        raise TableError(
            f"the folder {str(folder)!r} holds no file ending in {', '.join(endings)}."
        )
    return tables


def _refuse(error: OSError) -> None:
    raise TableError(f"a folder cannot be read: {error}.") from error
