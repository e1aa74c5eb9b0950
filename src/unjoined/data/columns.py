"""Columns of any type: what each of them holds, counted piece by piece."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from unjoined._typing import Array, MatrixLike
from unjoined._validation import NUMBER, is_missing, shown
from unjoined.errors import InputError, TableError

NUMBERS, TIMES, WORDS, CATEGORIES = "numbers", "times", "words", "categories"
MOST_LEVELS = 50_000  # of a column of text; beyond, they are no longer counted
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?Z?$")
IS_NUMBER = re.compile(NUMBER)
MOSTLY = 0.9  # of the cells of a text column: then it holds numbers, and some stray words
FEW_LEVELS = 20  # of numbers written as text beside words: then they are categories
DAY = 86_400.0  # seconds


def column_names(X: MatrixLike) -> list[str] | None:
    """Return the column names of a data frame, None for anything else."""
    if not nw.dependencies.is_into_dataframe(X):
        return None
    return list(nw.from_native(X, eager_only=True).columns)


def has_numbers_only(X: MatrixLike) -> bool:
    """Tell by the types of its columns whether a data frame holds numbers and booleans alone."""
    schema = nw.from_native(X, eager_only=True).schema
    return all(dtype.is_numeric() or dtype == nw.Boolean for dtype in schema.values())


class Values(NamedTuple):
    """One column: floats with NaN where there is none, or a list of text and None."""

    holds: str
    values: Any

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)


def column_values(column: nw.Series[Any], table: str = "X") -> Values:
    """Return what a column holds; nested values and infinite numbers are refused."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Values(NUMBERS, _finite(as_floats(column), column.name, table))
    if dtype == nw.Object or dtype == nw.Unknown:
        return _of_objects(column.to_list(), column.name, table)
    if dtype in (nw.Categorical, nw.Enum):
        return Values(CATEGORIES, _texts(column.to_list()))
    if dtype == nw.String:
        return Values(WORDS, _texts(column.to_list()))
    if dtype.is_temporal():
        return Values(TIMES, _days(column))
    if dtype.is_nested() or dtype == nw.Binary:
        _refuse_type(column.name, table, str(dtype).lower(), column.head(1).to_list())
    return _of_objects(column.to_list(), column.name, table)


def as_floats(column: nw.Series[Any]) -> Any:
    """Return a column of numbers or booleans as an array, NaN where there is none."""
    if column.dtype == nw.Boolean:  # those with missing values have no float form, integers do
        column = column.cast(nw.Int8)
    return column.to_numpy() if column.dtype == nw.Object else column.cast(nw.Float64).to_numpy()


def _finite(numbers: Any, name: str, table: str) -> Array:
    values: Array = np.asarray(numbers, dtype=np.float64)
    if n := int(np.isinf(values).sum()):
        raise InputError(
            f"features of {table} contain inf in {n} of {len(values)} rows, in {name!r}. Replace "
            "infinite numbers by real ones, or leave them empty if they stand for missing values."
        )
    return values


def _texts(values: Iterable[Any]) -> list[str | None]:
    """Return cells as text, None for those that are missing or blank."""
    return [v if isinstance(v, str) and v and not v.isspace() else _plain_text(v) for v in values]


def _plain_text(value: Any) -> str | None:
    """Return a cell that is no text as text: 5 for the number 5.0, None for what is missing."""
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)


def _of_objects(values: list[Any], name: str, table: str) -> Values:
    """Return what a column of Python objects holds."""
    there = [v for v in values if not is_missing(v)]
    if all(isinstance(v, Real | Decimal) for v in there):
        numbers = [np.nan if is_missing(v) else float(v) for v in values]
        return Values(NUMBERS, _finite(numbers, name, table))
    if all(isinstance(v, date | datetime | np.datetime64) for v in there):
        return Values(TIMES, _day_numbers([None if is_missing(v) else v for v in values]))
    if all(isinstance(v, time | timedelta) for v in there):
        return Values(TIMES, np.array([np.nan if is_missing(v) else _part(v) for v in values]))
    odd = [v for v in there if not isinstance(v, str | Real | Decimal)]
    if odd:
        _refuse_type(name, table, type(odd[0]).__name__, odd[:1])
    return Values(WORDS, _texts(values))


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
    seconds = column.cast(nw.Datetime("us")).dt.timestamp("us").cast(nw.Float64).to_numpy()
    return np.asarray(seconds, dtype=np.float64) / (1e6 * DAY)


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


def read_texts(values: Sequence[str | None], holds: str) -> Array:
    """Return text as numbers or as dates in days, NaN for what does not read as such."""
    known: dict[str | None, float] = {None: np.nan}
    for text in dict.fromkeys(values):
        if text is not None:
            known[text] = _read(text.strip(), holds)
    return np.array([known[v] for v in values], dtype=np.float64)


def _read(text: str, holds: str) -> float:
    if holds == NUMBERS:
        number = float(text) if IS_NUMBER.match(text) else np.nan
        return number if np.isfinite(number) else np.nan
    try:
        return float(_day_numbers([text])[0]) if ISO_DATE.match(text) else np.nan
    except ValueError:  # such as the 31st of February
        return np.nan


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the rows of one column hold, as counts and sums that merge."""

    n: int
    missing: int
    holds: frozenset[str]
    total: float  # of numbers and times
    levels: Counter[str] | None  # of text; None if there are too many

    @classmethod
    def of_values(cls, column: Values, *, may_be_words: bool = False) -> ColumnProfile:
        """Look at one piece of a column; numbers are counted as levels if other pieces are text."""
        n, levels = len(column), Counter[str]()
        if column.holds in (NUMBERS, TIMES):
            there = column.values[~np.isnan(column.values)]
            total, missing = float(there.sum()), n - len(there)
            if may_be_words:
                levels.update(text for text in _texts(there.tolist()) if text is not None)
        else:
            levels.update(column.values)
            total, missing = 0.0, levels.pop(None, 0)  # type: ignore[call-overload]
        holds = frozenset() if missing == n else frozenset([column.holds])
        return cls(n, missing, holds, total, levels if len(levels) <= MOST_LEVELS else None)

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
            self.total + other.total,
            levels,
        )

    def settle(self) -> tuple[str, list[str]]:
        """Return what the column is taken for, and words that are taken for missing values."""
        if CATEGORIES in self.holds:
            return CATEGORIES, []
        if WORDS not in self.holds:
            return (TIMES if TIMES in self.holds else NUMBERS), []
        levels = Counter[str]() if self.levels is None else self.levels
        for holds in (NUMBERS, TIMES):
            words = [v for v in levels if np.isnan(_read(v.strip(), holds))]
            rows = sum(levels.values())
            strays = sum(levels[v] for v in words)
            several = len(levels) - len(words) > FEW_LEVELS
            if levels and (not words or (several and strays <= (1.0 - MOSTLY) * rows)):
                return holds, sorted(words)
        return CATEGORIES, []


QUANTILES = (0.0, 0.01, 0.5, 0.99, 1.0)
RANGE_ROWS = 10_000  # that quantiles between the extremes are taken from


def column_ranges(matrix: Array) -> Array:
    """Return extremes of each column and, of evenly spaced rows, quantiles; shape (5, d)."""
    some = matrix[:: max(len(matrix) // RANGE_ROWS, 1)]
    ranges: Array = np.quantile(some, QUANTILES, axis=0)
    ranges[0], ranges[-1] = matrix.min(axis=0), matrix.max(axis=0)
    return ranges


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
    return _texts(cells)
