"""Columns of any type: what each of them holds, counted piece by piece."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from numbers import Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array, MatrixLike
from unjoined._validation import NUMBER, is_missing, shown
from unjoined.errors import InputError, TableError

NUMBERS, TIMES, WORDS, CATEGORIES = "numbers", "times", "words", "categories"
MOST_LEVELS = 50_000  # of a column of text; beyond, they are no longer counted
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?Z?$")
IS_NUMBER = re.compile(NUMBER)
MOSTLY = 0.9  # of the cells of a text column: then it holds numbers, and some stray words
FEW_LEVELS = 20  # of numbers written as text beside words: then they are categories
SOME_CELLS = 1000  # that show whether a column of numbers has many
NO_VALUE = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "unknown"})
NO_VALUE |= {"-", "--", "?", "."}  # what people write for it, beside numbers and dates
NUMBER_STARTS = frozenset("0123456789+-.nNiI")  # of numbers in text
DAY = 86_400.0  # seconds


def column_names(X: MatrixLike) -> list[str] | None:
    """Return the column names of a data frame, None for anything else."""
    if hasattr(X, "collect_schema") and hasattr(X, "lazy") and not hasattr(X, "height"):
        raise TableError("a lazy data frame holds no rows yet. Call its collect() first.")
    if type(X) is dict:
        raise TableError("expected a matrix or a data frame, got a dict. Make a frame of it first.")
    if not nw.dependencies.is_into_dataframe(X):
        return None
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    if names and isinstance(names[0], tuple):
        raise TableError(f"a data frame has names of several parts: {names[0]!r}. Join the parts.")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(
            f"a data frame has two columns named {twice[0]!r}. Give every column its own name."
        )
    return names


def has_numbers_only(X: MatrixLike) -> bool:
    """Tell by the types of its columns whether a data frame holds numbers and booleans alone."""
    schema = nw.from_native(X, eager_only=True).schema
    return all(dtype.is_numeric() or dtype == nw.Boolean for dtype in schema.values())


@dataclass(frozen=True, slots=True)
class Values:
    """One column: floats with NaN where there is none, or places of text in a list of it."""

    holds: str
    values: Any  # (n,) floats, or whole numbers: -1 where there is no text
    levels: tuple[str, ...] = ()  # different texts, in the order in which they come
    is_flag: bool = False  # whether the numbers stand for true and false
    is_long: bool = False  # whether they are whole ones that floats only round

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @property
    def is_text(self) -> bool:
        """Whether the column holds text."""
        return self.holds in (WORDS, CATEGORIES)

    @property
    def is_empty(self) -> bool:
        """Whether no row has a value."""
        return bool((self.values < 0).all() if self.is_text else np.isnan(self.values).all())

    def take(self, at: Any) -> Values:
        """Return some of the rows."""
        return replace(self, values=self.values[at])

    def as_text(self) -> Values:
        """Return the same column as text, numbers as people would write them."""
        if self.is_text:
            return self
        there = ~np.isnan(self.values)
        numbers, places = np.unique(self.values[there], return_inverse=True)
        codes = np.full(len(self), -1, dtype=np.int64)
        codes[there] = places
        levels = [plain_text(bool(v) if self.is_flag else v) or "" for v in numbers.tolist()]
        return Values(WORDS, codes, tuple(levels))

    def read(self, holds: str) -> Array:
        """Return text as numbers or as dates in days, NaN for what does not read as such."""
        known: Array = np.array([*(read_text(level, holds) for level in self.levels), np.nan])
        numbers: Array = known[self.values]
        return numbers

    def counts(self) -> Counter[str]:
        """Return how often each text occurs."""
        sizes = np.bincount(self.values[self.values >= 0], minlength=len(self.levels))
        pairs = zip(self.levels, sizes.tolist(), strict=True)
        return Counter({level: n for level, n in pairs if n})


def column_values(column: nw.Series[Any], table: str = "X", *, strict: bool = True) -> Values:
    """Return what a column holds; nested values, and if strict infinite numbers, are refused."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = np.asarray(as_floats(column), dtype=np.float64)
        if strict:
            _check_finite(numbers, column.name, table)
        is_long = dtype.is_integer() and bool(np.nanmax(np.abs(numbers), initial=0.0) > 2**53)
        return Values(NUMBERS, numbers, is_flag=dtype == nw.Boolean, is_long=is_long)
    if dtype == nw.Object or dtype == nw.Unknown:
        return _of_objects(column.to_list(), column.name, table)
    if dtype in (nw.Categorical, nw.Enum):
        return _text_values(CATEGORIES, *_dictionary(column))
    if dtype == nw.String:
        return _text_values(WORDS, *_dictionary(column))
    if dtype.is_temporal():
        return Values(TIMES, _days(column))
    if dtype.is_nested() or dtype == nw.Binary:
        _refuse_type(column.name, table, str(dtype).lower(), column.head(1).to_list())
    return _of_objects(column.to_list(), column.name, table)


def _dictionary(column: nw.Series[Any]) -> tuple[Any, list[Any]]:
    """Return the place of each cell in a list of the different ones, -1 where there is none."""
    native = column.to_native()
    if column.implementation.is_pandas_like():
        codes, levels = native.factorize()
        return codes, levels.tolist()
    if find_spec("pyarrow") is not None:
        cells = column.to_arrow()
        arrow = import_extra("pyarrow", extra="cli")
        cells = arrow.chunked_array([cells]) if isinstance(cells, arrow.Array) else cells
        if arrow.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        found = cells.dictionary_encode().combine_chunks()
        if isinstance(found, arrow.ChunkedArray):  # of no rows
            return np.empty(0, dtype=np.int64), []
        codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes, found.dictionary.to_pylist()
    return _listed(column.to_list())


def _listed(cells: list[Any]) -> tuple[Any, list[Any]]:
    """Return the place of each cell in a list of the different ones, as text and None."""
    levels: dict[Any, int] = {}
    texts = [cell if isinstance(cell, str) else plain_text(cell) for cell in cells]
    return np.array([levels.setdefault(t, len(levels)) for t in texts], dtype=np.int64), [*levels]


def _text_values(holds: str, codes: Any, levels: list[Any]) -> Values:
    """Return a column of text without blanks, numbers in it written in one way."""
    clean: dict[str, int] = {}
    place = []
    for level in levels:
        text = plain_text(level)
        place.append(-1 if text is None else clean.setdefault(text, len(clean)))
    return Values(holds, np.array([*place, -1], dtype=np.int64)[codes], tuple(clean))


def as_floats(column: nw.Series[Any]) -> Any:
    """Return a column of numbers or booleans as an array, NaN where there is none."""
    if column.dtype == nw.Boolean:  # those with missing values have no float form, integers do
        column = column.cast(nw.Int8)
    if column.dtype.is_integer() and column.implementation.is_pyarrow():
        return column.to_numpy().astype(np.float64)  # pyarrow casts none that floats only round
    return column.to_numpy() if column.dtype == nw.Object else column.cast(nw.Float64).to_numpy()


def _check_finite(values: Array, name: str, table: str) -> None:
    if n := int(np.isinf(values).sum()):
        raise InputError(
            f"features of {table} contain inf in {n} of {len(values)} rows, in {name!r}. Replace "
            "infinite numbers by real ones, or leave them empty if they stand for missing values."
        )


def plain_text(value: Any) -> str | None:
    """Return a cell as text, None for what is missing or blank: 5 for 5.0, true for True."""
    if isinstance(value, str):
        if not value or value.isspace():
            return None
        if value[0] not in NUMBER_STARTS or not IS_NUMBER.match(value):
            return value
        value = int(value) if value.lstrip("+-").isdigit() else float(value)
    if is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, Real | Decimal):
        number = float(value)
        return str(int(value)) if number.is_integer() else repr(number)  # type: ignore[arg-type]
    return str(value)


def _of_objects(values: list[Any], name: str, table: str) -> Values:
    """Return what a column of Python objects holds."""
    there = [v for v in values if not is_missing(v)]
    if all(isinstance(v, Real | Decimal) for v in there):
        numbers = np.array([np.nan if is_missing(v) else _as_float(v) for v in values])
        _check_finite(numbers, name, table)
        return Values(NUMBERS, numbers)
    if all(isinstance(v, date | datetime | np.datetime64) for v in there):
        return Values(TIMES, _day_numbers([None if is_missing(v) else v for v in values]))
    if all(isinstance(v, time | timedelta) for v in there):
        return Values(TIMES, np.array([np.nan if is_missing(v) else _part(v) for v in values]))
    odd = [v for v in there if not isinstance(v, str | Real | Decimal)]
    if odd:
        _refuse_type(name, table, type(odd[0]).__name__, odd[:1])
    return _text_values(WORDS, *_listed(values))


def _as_float(value: Any) -> float:
    """Return a number as a float, infinite if it is a whole one of hundreds of digits."""
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _refuse_type(name: str, table: str, kind: str, values: Sequence[Any]) -> None:
    raise TableError(
        f"column {name!r} of {table} holds {kind} values such as {shown(values)}. Features are "
        "numbers, text, categories, booleans, dates or times: leave the column out (ignore=), or "
        "make such a column of it."
    )


def _part(value: time | timedelta) -> float:
    """Return a time of day or a duration in days."""
    if isinstance(value, timedelta):
        return value.total_seconds() / DAY
    seconds = 3600 * value.hour + 60 * value.minute + value.second + 1e-6 * value.microsecond
    return seconds / DAY


def _days(column: nw.Series[Any]) -> Array:
    """Return dates and times as days since 1970, durations and times of day in days."""
    dtype = column.dtype
    if dtype == nw.Duration or dtype == nw.Time:
        parts = column.to_list()
        return np.array([np.nan if is_missing(v) else _part(v) for v in parts], dtype=np.float64)
    if dtype == nw.Datetime and getattr(dtype, "time_zone", None) is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    microseconds = as_floats(column.cast(nw.Datetime("us")).dt.timestamp("us"))
    return np.asarray(microseconds, dtype=np.float64) / (1e6 * DAY)


def _day_numbers(values: Iterable[Any]) -> Array:
    """Return dates, datetimes or their ISO text as days since 1970, NaN for None."""
    clean = [None if v is None else _without_zone(v) for v in values]
    stamps = np.array(clean, dtype="datetime64[us]")
    days = stamps.astype(np.int64) / (1e6 * DAY)
    return np.where(np.isnat(stamps), np.nan, days)


def _without_zone(value: Any) -> Any:
    """Return a moment in UTC without its zone, and text without the Z of UTC."""
    if isinstance(value, str):
        return value.rstrip("Z")
    offset = value.utcoffset() if isinstance(value, datetime) else None
    return value if offset is None else (value - offset).replace(tzinfo=None)


def read_text(text: str, holds: str) -> float:
    """Return text as a number or as a date in days, NaN if it does not read as such."""
    text = text.strip()
    if holds == NUMBERS:
        number = float(text) if IS_NUMBER.match(text) else np.nan
        return number if np.isfinite(number) else np.nan
    try:
        return float(_day_numbers([text])[0]) if ISO_DATE.match(text) else np.nan
    except ValueError:  # such as the 31st of February
        return np.nan


class Share(NamedTuple):
    """How many cells read as something, and their sum."""

    n: int = 0
    total: float = 0.0

    def plus(self, other: Share) -> Share:
        """Return the share of the cells of both."""
        return Share(self.n + other.n, self.total + other.total)


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the rows of one column hold, as counts and sums that merge."""

    n: int
    missing: int
    holds: frozenset[str]
    numbers: Share  # of all cells, text that reads as a number among them
    times: Share
    levels: Counter[str] | None  # all cells as text; None if there are too many
    blanks: int = 0  # cells of text that say that there is no value

    @classmethod
    def of_values(cls, column: Values) -> ColumnProfile:
        """Look at one piece of a column."""
        n, shares, blanks = len(column), {NUMBERS: Share(), TIMES: Share()}, 0
        if column.is_text:
            is_blank = [level.strip().lower() in NO_VALUE for level in column.levels]
            blanks = int(np.array([*is_blank, False])[column.values].sum())
            missing = int((column.values < 0).sum())
            for kind in shares:
                reads = column.read(kind)
                there = reads[~np.isnan(reads)]
                shares[kind] = Share(len(there), float(there.sum()))
            levels = column.counts() if len(column.levels) <= MOST_LEVELS else None
        else:
            there = column.values[~np.isnan(column.values)]
            missing, shares[column.holds] = n - len(there), Share(len(there), float(there.sum()))
            # Numbers are counted as text only as long as they may be categories in other pieces.
            few = len(np.unique(there[:SOME_CELLS])) <= FEW_LEVELS
            levels = column.as_text().counts() if few else None
        holds = frozenset() if missing == n else frozenset([column.holds])
        return cls(n, missing, holds, shares[NUMBERS], shares[TIMES], levels, blanks)

    def merge(self, other: ColumnProfile) -> ColumnProfile:
        """Return the profile of the rows of both."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = self.levels + other.levels
            levels = levels if len(levels) <= MOST_LEVELS else None
        return ColumnProfile(
            self.n + other.n,
            self.missing + other.missing,
            self.holds | other.holds,
            self.numbers.plus(other.numbers),
            self.times.plus(other.times),
            levels,
            self.blanks + other.blanks,
        )

    def share(self, holds: str) -> Share:
        """Return how many cells read as numbers or as times."""
        return self.numbers if holds == NUMBERS else self.times

    def settle(self) -> str:
        """Return what the column is taken for."""
        if CATEGORIES in self.holds:
            return CATEGORIES
        if WORDS not in self.holds:
            return TIMES if TIMES in self.holds else NUMBERS
        rows = self.n - self.missing
        several = self.levels is None or len(self.levels) > FEW_LEVELS
        for holds in (NUMBERS, TIMES):
            n = self.share(holds).n
            if n == rows or (several and 0 < n >= MOSTLY * (rows - self.blanks)):
                return holds
        return CATEGORIES

    @property
    def n_strays(self) -> int:
        """Number of words among numbers or times, which are taken for missing values."""
        holds = self.settle()
        return 0 if holds == CATEGORIES else self.n - self.missing - self.share(holds).n


def take_rows(X: MatrixLike, at: Any) -> MatrixLike:
    """Return the rows of a data frame at some positions, numbered anew if its library does so."""
    frame = nw.from_native(X, eager_only=True)
    return nw.maybe_reset_index(frame[at]).to_native()


def stack_frames(frames: Sequence[nw.DataFrame[Any]], names: Sequence[str]) -> nw.DataFrame[Any]:
    """Return the rows of data frames under one another, with the types their columns have.

    Tables of one library keep its types as far as they agree. Whole numbers beside others become
    floats, and anything else that differs becomes text. The library is that of the first.
    """
    backend = frames[0].implementation
    frames = [nw.maybe_reset_index(frame.select(names)) for frame in frames]
    alike = all(frame.implementation is backend for frame in frames)
    columns: dict[str, Any] = {}
    for name in names:
        parts = [frame.get_column(name) for frame in frames]
        if alike and all(part.dtype == parts[0].dtype for part in parts):
            whole = nw.concat([part.to_frame() for part in parts])
            columns[name] = nw.maybe_reset_index(whole).get_column(name)
        else:
            columns[name] = nw.new_series(name, _joined(parts), backend=backend)
    return nw.from_dict(columns)


def _joined(parts: Sequence[nw.Series[Any]]) -> Any:
    """Return the cells of columns of different types or libraries as one array or list."""
    numbers = [part.dtype.is_numeric() or part.dtype == nw.Boolean for part in parts]
    if all(numbers):
        return np.concatenate([np.asarray(as_floats(part), dtype=np.float64) for part in parts])
    cells = [cell for part in parts for cell in part.to_list()]
    if all(part.dtype in (nw.Date, nw.Datetime) for part in parts):
        return [None if is_missing(cell) else cell for cell in cells]
    return [plain_text(cell) for cell in cells]
