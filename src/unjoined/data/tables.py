"""Tables read whole or a batch of rows at a time: data frames, files, folders and queries."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import NUMBER
from unjoined.data.chunks import Place
from unjoined.data.files import (
    CP1252,
    DECIMAL_COMMA,
    EXCEL,
    JSON,
    PARQUET,
    UTF8,
    TextForm,
    Utf8Copy,
    check_file,
    check_header,
    check_western,
    mixes_line_ends,
    open_bytes,
    packing,
    read_excel,
    specification_of,
    table_ending,
    table_files,
)
from unjoined.data.queries import (
    SqlQuery,
    as_query,
    available_bytes,
    checked_statement,
    connect,
    first_lines,
    read_query,
    refuse_interrupt,
    refused,
)
from unjoined.errors import TableError

FIRST_CELLS = 100  # that show what a column of text may hold
THOUSANDS = r"^[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+$"
LONGEST = 1e18  # whole numbers from there on, of nineteen digits or more, are ids
PLUS, MINUS, ZERO = b"+-0"
AFTER_ZERO = tuple(b".eE")
BATCH_ROWS = (
    1 << 17
)  # of a text file, whose cells become numbers at once, before more are read
AHEAD = 4  # batches of text that may wait to become numbers


@dataclass(frozen=True, slots=True)
class FileReader:
    """How DuckDB is to read one file, with nothing left for it to guess."""

    source: str  # the file, as SQL has it
    form: TextForm | None = None  # of a text file
    packed: str = "none"
    decimals: Collection[
        str
    ] = ()  # columns of a text file that DuckDB is to read as numbers
    schema: Any = None  # of a Parquet file
    kept: Utf8Copy | None = None  # read in place of a file that DuckDB would not take

    @classmethod
    def of(
        cls, file: Path, text: Collection[str] = (), encoding: str | None = None
    ) -> FileReader:
        """Look at the ending, and at the beginning of a text file; copy it if told its encoding.

        Columns ``text`` are left as they are written.
        """
        path = _literal(file)
        if table_ending(file) in PARQUET:
            source = f"read_parquet({path}, hive_partitioning=false)"
            return cls(source, schema=_schema(file))
        if table_ending(file) in JSON:
            return cls(
                f"read_json({path}, format='newline_delimited', sample_size=-1, "
                "hive_partitioning=false)"
            )
        form = specification_of(file)
        kept = None
        packed = packing(file)
        if encoding or form.encoding != UTF8:
            if (encoding or form.encoding) == CP1252:
                check_western(file)
            kept = Utf8Copy(file, encoding or form.encoding)
            path = _literal(kept.path)
            packed = "none"
        decimals = [name for name in form.decimals if name not in text]
        return cls(path, form, packed, decimals, kept=kept)

    @property
    def query(self) -> str:
        """Return the query that gives all rows of the file."""
        if self.form is None:
            return f"SELECT * FROM {self.source}"  # noqa: S608
        # Under names of our own, as DuckDB takes "a" and "A" for one.
        columns = ", ".join(
            f"'c{i}': '{'DOUBLE' if name in self.decimals else 'VARCHAR'}'"
            for i, name in enumerate(self.form.names)
        )
        return (
            f"SELECT * FROM read_csv({self.source}, auto_detect=false, columns={{{columns}}}, "  # noqa: S608
            f"header=true, delim='{self.form.delimiter}', quote='\"', escape='\"', comment='', "
            f"skip={self.form.skip}, nullstr='', null_padding=false, ignore_errors=false, "
            f"hive_partitioning=false, compression='{self.packed}')"
        )

    def typed(self, table: Frame, text: Collection[str] = ()) -> Frame:
        """Return rows under the file's names, a text file's as numbers where they are such."""
        arrow = import_extra("pyarrow", extra="cli")
        if self.form is None:
            for at, part in enumerate(self.schema or ()):
                # DuckDB calls durations numbers, and takes "a" and "A" for one name.
                is_span = arrow.types.is_duration(part.type)
                column = table.column(at)
                column = column.cast(part.type) if is_span else column
                table = table.set_column(at, part.name, column)
            return table
        names = self.form.names
        columns = []
        for name, column in zip(names, table.columns, strict=True):
            if name not in text and name not in self.decimals:
                column = _typed(column, self.form)
            elif name in self.decimals and not _are_measured(column):
                raise arrow.ArrowInvalid(f"{name!r} holds more than plain numbers")
            columns.append(column)
        return arrow.table(columns, names=names)


def _literal(file: Path) -> str:
    """Return a file for SQL, as a pattern that matches it alone.

    As a parameter it would cost much: with DuckDB 1.5, rows of a query that has any go through
    Python, one value at a time.
    """
    pattern = re.sub(r"[*?\[]", r"[\g<0>]", str(file.absolute()))
    return "'" + pattern.replace("'", "''") + "'"


def _schema(file: Path) -> Any:
    """Return the columns of a Parquet file, None if it is damaged, which DuckDB will tell."""
    arrow = import_extra("pyarrow", extra="cli")
    try:
        schema = import_extra("pyarrow.parquet", extra="cli").read_schema(file)
    except (arrow.ArrowException, OSError):
        return None
    check_header(schema.names, file)
    return schema


def _typed(column: Any, form: TextForm) -> Any:
    """Return text cells as whole numbers, numbers or booleans if all of them are such."""
    comma = form.has_decimal_comma
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    some = column.drop_null() if column[:FIRST_CELLS].null_count else column
    some = _trimmed(some[:FIRST_CELLS], comma)
    if compute.all(compute.match_substring_regex(some, NUMBER), min_count=0).as_py():
        is_whole = compute.all(
            compute.match_substring_regex(some, "^-?[0-9]+$"), min_count=0
        )
        kind = arrow.int64() if is_whole.as_py() else arrow.float64()
        if not comma and (is_whole.as_py() or not _may_group(some, form)):
            numbers = _plain_numbers(column, kind)
            if numbers is not None:
                return numbers
        if _may_group(column, form):
            return column  # all tables together tell
        cells = _trimmed(column, comma)
        if compute.all(
            compute.match_substring_regex(cells, NUMBER), min_count=0
        ).as_py():
            try:
                return compute.cast(cells, kind)
            except arrow.ArrowInvalid:
                return compute.cast(cells, arrow.float64())
    truths = arrow.array(["true", "false", None])
    if compute.all(compute.is_in(compute.ascii_lower(some), value_set=truths)).as_py():
        words = compute.ascii_lower(_trimmed(column, comma))
        if compute.all(compute.is_in(words, value_set=truths)).as_py():
            return compute.equal(words, "true")
    return column


def _may_group(column: Any, form: TextForm) -> bool:
    """Tell whether every mark in a column may separate thousands: 1.234 beside 950."""
    compute = import_extra("pyarrow.compute", extra="cli")
    marks = (
        "," if form.has_decimal_comma else "[.,]"
    )  # points beside decimal commas are plain
    marked = column.filter(compute.match_substring_regex(column, marks))
    everywhere = len(marked) == len(column) - column.null_count
    # Where commas separate columns, three decimals in every cell are decimals.
    if not len(marked) or (
        everywhere and (form.delimiter == "," or form.has_decimal_comma)
    ):
        return False
    return _all_match(marked, r"^\s*[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+\s*$")


def _all_match(column: Any, pattern: str) -> bool:
    compute = import_extra("pyarrow.compute", extra="cli")
    return bool(
        compute.all(compute.match_substring_regex(column, pattern), min_count=0).as_py()
    )


def _trimmed(column: Any, comma: bool) -> Any:
    """Return cells without blanks around them, with decimal points for decimal commas."""
    compute = import_extra("pyarrow.compute", extra="cli")
    cells = compute.ascii_trim_whitespace(column)
    if comma:
        is_one = compute.match_substring_regex(cells, f"^{DECIMAL_COMMA.pattern}")
        dotted = cells.filter(compute.match_substring_regex(cells, r"^[^,]*\.[^,]*$"))
        if _all_match(dotted, THOUSANDS):  # no cell has a decimal point
            is_one = compute.or_(
                is_one, compute.match_substring_regex(cells, THOUSANDS)
            )
        plain = compute.replace_substring(
            compute.replace_substring(cells, ".", ""), ",", "."
        )
        cells = compute.if_else(is_one, plain, cells)
    return cells


def _plain_numbers(column: Any, kind: Any) -> Any:
    """Return cells as numbers, None if one is none or written in an unusual way.

    Arrow takes 007, 0x1F and nan(x) for numbers. That there are none of these is found much faster
    than by a pattern that every cell has to match.
    """
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    try:
        numbers = compute.cast(column, kind)
    except arrow.ArrowInvalid:
        return None
    if not _are_measured(numbers):
        return None
    return None if any(map(_has_zero_in_front, column.chunks)) else numbers


def _are_measured(numbers: Any) -> bool:
    """Tell whether no number is the word nan or inf, or as long as an id."""
    compute = import_extra("pyarrow.compute", extra="cli")
    ends = compute.min_max(numbers).as_py()
    low = ends["min"]
    high = ends["max"]
    if low is not None and not (-LONGEST < low <= high < LONGEST):
        return False
    return not compute.any(compute.is_nan(numbers)).as_py()


def _has_zero_in_front(cells: Any) -> bool:
    """Tell whether a cell that Arrow reads as a number begins with 0 and a digit, or with 0x."""
    if cells.null_count == len(cells):
        return False
    if cells.type != import_extra("pyarrow", extra="cli").string():
        return True
    _, offsets, letters = cells.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[cells.offset :][: len(cells) + 1]
    data = np.frombuffer(letters, dtype=np.uint8)
    start = ends[:-1]
    stop = ends[1:]
    first = data.take(start, mode="clip")
    is_signed = (first == PLUS) | (first == MINUS)
    if is_signed.any():
        start = start + is_signed
        first = data.take(start, mode="clip")
    at = np.flatnonzero(first == ZERO)
    at = at[stop[at] > start[at] + 1]  # a letter beyond an empty cell is another's
    second = data[start[at] + 1]
    return not np.logical_or.reduce([second == mark for mark in AFTER_ZERO]).all()


def read_table(
    path: str | os.PathLike[str] | SqlQuery, *, text: Collection[str] = ()
) -> Frame:
    """Read a file or the result of a query as a pyarrow table.

    Parameters
    ----------
    path : path or SqlQuery
        A file ending in .parquet, .csv, .tsv, .txt, .jsonl or .xlsx, text also packed as .gz or
        .zst; a table of a DuckDB database, as ``shop.duckdb:people``; or a SELECT statement.
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
    separated by commas, semicolons, tabs or bars; every other line is a row. Above it there may be
    title lines, of one cell each. Text is UTF-8, UTF-16 or else cp1252; other encodings are
    refused. Where columns are not separated by commas, numbers may have a decimal comma. A column
    in which a mark may separate thousands, as in 1.234 beside 950, is text. A workbook has one
    sheet with rows, or ``book.xlsx:SHEET`` says which is meant; ``shop.sqlite:people`` is a table
    of SQLite.
    """
    if isinstance(path, SqlQuery):
        return read_query(path, "the table")
    if not isinstance(path, str | os.PathLike):
        raise TableError(
            f"a table is read from a path or a query, got {type(path).__name__}."
        )
    if (query := as_query(path)) is not None:
        return read_query(query, "the table")
    file = check_file(path)
    if table_ending(file) in EXCEL:
        return read_excel(file, text)
    return _read_file(FileReader.of(file, text), file, text)


def _read_file(reader: FileReader, file: Path, text: Collection[str]) -> Frame:
    duckdb = import_extra("duckdb", extra="cli")
    arrow = import_extra("pyarrow", extra="cli")

    def work(batch: Frame) -> Frame:
        # Copied, as a column that DuckDB made would keep the whole batch that it came with.
        return _copied(reader.typed(batch, text))

    with connect(SqlQuery(""), of_text=reader.form is not None) as connection:
        try:
            relation = connection.sql(reader.query)
            if reader.form is None:
                return reader.typed(_without_quotes(relation).to_arrow_table())
            parts: list[Future[Frame]] = []
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for batch in _batches(relation, BATCH_ROWS):
                    if len(parts) >= AHEAD:
                        parts[-AHEAD].result()  # before more text is held
                    parts.append(pool.submit(work, batch))
            pieces = [part.result() for part in parts]
        except (duckdb.Error, arrow.ArrowException, OSError, RuntimeError) as error:
            refuse_interrupt(error)
            if (again := _other_reader(reader, file, text, error)) is not None:
                return _read_file(again, file, text)
            kind = "csv" if reader.form else table_ending(file).strip(".")
            raise TableError(
                f"{str(file)!r} cannot be read as {kind}: {_reason(file, error)}"
            ) from error
    return _joined(reader, file, pieces, text)


def _joined(
    reader: FileReader, file: Path, pieces: list[Frame], text: Collection[str]
) -> Frame:
    """Return pieces of a text file as one table; read anew columns that are text in some only."""
    arrow = import_extra("pyarrow", extra="cli")
    assert reader.form is not None  # noqa: S101 - of a text file
    names = reader.form.names
    if not pieces:
        nothing = [
            arrow.array([], arrow.null() if n not in text else arrow.string())
            for n in names
        ]
        return arrow.table(nothing, names=names)
    fields, mixed = [], []
    for at, name in enumerate(names):
        found = {p.column(at).type for p in pieces if p.column(at).null_count < len(p)}
        if len(found) > 1 and found != {arrow.int64(), arrow.float64()}:
            mixed.append(name)
        kind = pieces[0].column(at).type if not found else next(iter(found))
        fields.append((name, arrow.float64() if len(found) > 1 else kind))
    if mixed:
        kept = [*text, *mixed]
        table = _read_file(FileReader.of(file, kept), file, kept)
        for name in mixed:
            at = names.index(name)
            table = table.set_column(at, name, _typed(table.column(at), reader.form))
        return table
    schema = arrow.schema(fields)
    return arrow.concat_tables(
        [p if p.schema.equals(schema) else p.cast(schema, safe=False) for p in pieces]
    )


def _copied(table: Frame) -> Frame:
    """Return a table whose columns are its own, text and the numbers that DuckDB read."""
    arrow = import_extra("pyarrow", extra="cli")
    for at, column in enumerate(table.columns):
        if column.type in (arrow.string(), arrow.float64()):
            own = arrow.concat_arrays([*column.chunks, arrow.array([], column.type)])
            table = table.set_column(at, table.field(at).name, own)
    return table


def _without_quotes(relation: Any) -> Any:
    """Return rows whose columns of several kinds of JSON values are text, without its quotes."""
    pairs = zip(relation.columns, relation.types, strict=True)
    names = [
        '"' + name.replace('"', '""') + '"'
        for name, kind in pairs
        if str(kind) == "JSON"
    ]
    parts = ", ".join(f"{name} ->> '$' AS {name}" for name in names)
    return relation.project(f"* REPLACE ({parts})") if names else relation


def _other_reader(
    reader: FileReader, file: Path, text: Collection[str], error: Exception
) -> FileReader | None:
    """Return how else to read a text file whose cells, letters or line ends change on the way."""
    if reader.decimals:
        return replace(reader, decimals=())
    if reader.form is None or reader.kept is not None:
        return None
    if "Invalid unicode" in str(error):
        return FileReader.of(file, text, CP1252)
    return FileReader.of(file, text, UTF8) if mixes_line_ends(file) else None


def _reason(file: Path, error: Exception) -> str:
    """Say why a file cannot be read; of JSON lines, which line is none."""
    if table_ending(file) in JSON:
        with open_bytes(file) as stream, suppress(OSError):
            for number, line in enumerate(stream.read().splitlines(), 1):
                with suppress(ValueError, RecursionError):
                    if not line.strip() or isinstance(json.loads(line), dict):
                        continue
                return f"line {number:,} is not a JSON object."
    return first_lines(str(error))


def is_dask(collection: Any) -> bool:
    """Tell whether an object is a Dask collection, without importing Dask."""
    # Before 2025 Dask DataFrames were in a package of their own.
    return type(collection).__module__.partition(".")[0] in ("dask", "dask_expr")


def is_lazy(table: Any) -> bool:
    """Tell whether a table is a lazy frame, whose rows are in an engine: DuckDB, polars, Ibis."""
    if is_dask(table) or nw.dependencies.is_into_dataframe(table):
        return False
    return isinstance(nw.from_native(table, pass_through=True), nw.LazyFrame)


def collected(table: Any) -> Frame:
    """Return all rows of a lazy frame as a pyarrow table."""
    return nw.from_native(table).collect("pyarrow").to_native()


def _scan_lazy(
    table: Any, title: str, chunk_rows: int
) -> Iterator[tuple[Frame, Place]]:
    """Yield the rows of a lazy frame piece by piece, where its engine can, or all at once."""
    native = nw.to_native(table, pass_through=True)
    if hasattr(native, "fetchmany"):  # a relation of DuckDB
        pieces = _batches(native, chunk_rows)
    elif hasattr(native, "collect_batches"):  # polars
        pieces = native.collect_batches(chunk_size=chunk_rows, maintain_order=True)
    else:
        pieces = iter([collected(native)])
    row = 0
    for piece in pieces:
        for frame, place in scan_table(piece, title, chunk_rows):
            yield frame, Place(title, row + place.first_row)
        row += len(piece)


def scan_table(
    table: Any, title: str, chunk_rows: int, text: Collection[str] = ()
) -> Iterator[tuple[Frame, Place]]:
    """Yield a table piece by piece with its place; columns ``text`` are left as written."""
    if nw.dependencies.is_into_dataframe(table):
        frame = nw.from_native(table, eager_only=True)
        for start in range(0, len(frame), chunk_rows):
            yield frame[start : start + chunk_rows].to_native(), Place(title, start)
        return
    if is_lazy(table):
        yield from _scan_lazy(table, title, chunk_rows)
        return
    if isinstance(table, str | os.PathLike) and (found := as_query(table)) is not None:
        table = found
    if isinstance(table, SqlQuery):
        yield from _stream(table, title, chunk_rows)
        return
    for file in table_files(table, title):
        if table_ending(file) in EXCEL:
            yield from scan_table(read_excel(file, text), repr(str(file)), chunk_rows)
            continue
        reader = FileReader.of(file, text)
        yield from _scan_file(reader, file, chunk_rows, text)


def _scan_file(
    reader: FileReader, file: Path, chunk_rows: int, text: Collection[str]
) -> Iterator[tuple[Frame, Place]]:
    """Yield a file piece by piece; begin anew if it turns out to be of another kind."""
    arrow = import_extra("pyarrow", extra="cli")
    row = 0  # rows that went out already
    while True:
        try:
            for frame, place in _stream(reader, repr(str(file)), chunk_rows):
                known = max(row - place.first_row, 0)
                if known < len(frame):
                    part = reader.typed(frame.slice(known), text)
                    row = place.first_row + len(frame)
                    yield part, Place(place.origin, row - len(part))
        except (TableError, arrow.ArrowException) as error:
            if (again := _other_reader(reader, file, text, error)) is None:
                raise
            reader = again
        else:
            return


def _batches(relation: Any, rows: int) -> Iterator[Frame]:
    """Yield the rows of a relation as tables of about so many rows."""
    arrow = import_extra("pyarrow", extra="cli")
    # Called so since DuckDB 1.5, where the older name warns.
    name = (
        "to_arrow_reader"
        if hasattr(relation, "to_arrow_reader")
        else "fetch_arrow_reader"
    )
    for batch in getattr(relation, name)(rows):
        yield arrow.Table.from_batches([batch])


def _stream(
    source: FileReader | SqlQuery, origin: str, chunk_rows: int
) -> Iterator[tuple[Frame, Place]]:
    """Read a file or run a query, and yield batches; what DuckDB says of a bad row is passed on."""
    duckdb = import_extra("duckdb", extra="cli")
    arrow = import_extra("pyarrow", extra="cli")
    row = 0
    try:
        query = source if isinstance(source, SqlQuery) else SqlQuery("")
        of_text = isinstance(source, FileReader) and source.form is not None
        with connect(query, of_text=of_text) as connection:
            if isinstance(source, SqlQuery):
                relation = connection.sql(checked_statement(connection, source, origin))
            else:
                relation = _without_quotes(connection.sql(source.query))
            for frame in _batches(relation, chunk_rows):
                yield frame, Place(origin, row)
                row += len(frame)
    except (duckdb.Error, arrow.ArrowException, OSError, RuntimeError) as error:
        if isinstance(source, SqlQuery):
            raise refused(source, error, origin) from error
        refuse_interrupt(error)
        reason = _reason(Path(origin.strip("'")), error)
        where = (
            ""
            if reason.startswith("line ")
            else f" beyond row {row:,} (counting from 0)"
        )
        raise TableError(f"{origin} cannot be read{where}: {reason}") from error


UNPACKED = 6  # bytes of text to a byte that is packed, about
COPIES = 10  # of the rows that a fit may hold at once: cells, numbers, and what is made of them
HEAD = 1 << 18  # bytes whose lines are counted
CELL = 16  # bytes of a cell of a query, about


def estimate_bytes(table: Any) -> int:
    """Return about how many bytes the rows of a table take in memory.

    Parameters
    ----------
    table : path, list of paths, SqlQuery or data frame
        As `SeparateLabels.from_tables` takes it. Of Parquet files the footers are read, of others
        the sizes are looked up; of a query DuckDB says how many rows it expects.

    Returns
    -------
    int
        Good to a factor of two or so.
    """
    if nw.dependencies.is_into_dataframe(table):
        frame = nw.from_native(table, eager_only=True)
        return len(frame) * len(frame.columns) * 8
    if is_lazy(table):
        return _lazy_rows(table) * len(nw.from_native(table).collect_schema()) * CELL
    query = as_query(table) if isinstance(table, str | os.PathLike) else table
    if isinstance(query, SqlQuery):
        return _query_bytes(query)
    return sum(_file_bytes(file) for file in table_files(table, "the table"))


def _lazy_rows(table: Any) -> int:
    return int(nw.from_native(table).select(nw.len()).collect("pyarrow").item())


def _file_bytes(file: Path) -> int:
    size = file.stat().st_size
    if table_ending(file) in PARQUET:
        about = _footer(file)
        groups = (about.row_group(i) for i in range(about.num_row_groups))
        raw = sum(group.total_byte_size for group in groups)
        return int(max(raw, about.num_rows * about.num_columns * 8))
    packed = packing(file) != "none" or table_ending(file) in EXCEL
    return (
        2 * size * (UNPACKED if packed else 1)
    )  # a short text takes more than its letters


def _footer(file: Path) -> Any:
    arrow = import_extra("pyarrow", extra="cli")
    try:
        return import_extra("pyarrow.parquet", extra="cli").read_metadata(file)
    except (arrow.ArrowException, OSError) as error:
        raise TableError(
            f"{str(file)!r} is not a Parquet file, or a damaged one."
        ) from error


def _query_bytes(query: SqlQuery) -> int:
    columns, rows = _query_size(query)
    return rows * columns * CELL


def _query_size(query: SqlQuery) -> tuple[int, int]:
    """Return how many columns a query has, and how many rows DuckDB expects."""
    with connect(query) as connection:
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
    if is_lazy(table):
        return _lazy_rows(table)
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
