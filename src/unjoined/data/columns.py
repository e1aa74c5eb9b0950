"""Columns of any type: what each of them holds, counted piece by piece."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# Forms of text beside plain numbers and ISO dates, each called as it writes.
POINT, COMMA = "1,234.5", "1.234,5"
DAY_FIRST, MONTH_FIRST = "31/12/2024", "12/31/2024"
FORMS = {POINT: NUMBERS, COMMA: NUMBERS, DAY_FIRST: TIMES, MONTH_FIRST: TIMES}
_UNIT = r"(?:[$€£¥%]|[A-Z]{3}|[Kk]r\.?|Fr\.|zł|Kč|Ft)?"
AMOUNT = re.compile(
    rf"([+-]?)({_UNIT})\s?([+-]?)([0-9][0-9.,' \u00a0\u202f]*?)\s?({_UNIT})$"
)
WITH_POINT = re.compile(
    r"(?:[0-9]{1,3}(?:[,'][0-9]{3})+|(?:0|[1-9][0-9]*))(?:\.[0-9]+)?$"
)
WITH_COMMA = re.compile(
    r"(?:[0-9]{1,3}(?:[.' \u00a0\u202f][0-9]{3})+|(?:0|[1-9][0-9]*))(?:,[0-9]+)?$"
)
GROUPS = re.compile(
    r"[1-9][0-9]{0,2}(?:\.[0-9]{3}|,[0-9]{3})$"
)  # of thousands, or decimals
DATE = re.compile(
    r"([0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{4})(?:[ T]+(\d{1,2}:\d{2}(:\d{2})?))?$"
)
# Cells that are counted, as they tell how the others are meant.
GROUPED, BARE, LONG, ZEROS, DOTTED, ONLY = (
    "grouped",
    "bare",
    "long",
    "zeros",
    "dotted",
    "only ",
)
# What programs write where there is no value, if it lies far from all others.
NO_NUMBERS = frozenset(
    {s * v for s in (-1.0, 1.0) for v in (99.0, 999.0, 9999.0, 99999.0, 999999.0)}
)
NO_NUMBERS |= {-(2.0**31), 2.0**31 - 1.0}
_FIRST_DATES = ("0001-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01")
_LAST_DATES = ("2099-12-31", "2999-12-31", "9999-01-01", "9999-12-31")
NO_TIMES = frozenset(
    float(np.datetime64(day, "D").astype(np.int64))
    for day in (*_FIRST_DATES, *_LAST_DATES)
)
REPEATED = 5  # rows that hold the same such value
MOST_CATEGORIES = 100  # of a column that stand by themselves
FEWEST_EACH = 10  # rows to a whole number that may be a code, on average
SURE = 20  # cells such as 1.234, beside shorter ones without a mark: then it parts thousands
MOSTLY = (
    0.9  # of the cells of a text column: then it holds numbers, and some stray words
)
FEW_LEVELS = 20  # of numbers written as text beside words: then they are categories
SOME_CELLS = 1000  # that show whether a column of numbers has many
NO_VALUE = frozenset(
    {"na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "unknown"}
)
NO_VALUE |= {"-", "--", "?", "."}  # what people write for it, beside numbers and dates
DAY = 86_400.0  # seconds


def column_names(X: MatrixLike) -> list[str] | None:
    """Return the column names of a data frame, None for anything else."""
    if hasattr(X, "collect_schema") and hasattr(X, "lazy") and not hasattr(X, "height"):
        raise TableError(
            "a lazy data frame holds no rows yet. Call its collect() first."
        )
    if type(X) is dict:
        raise TableError(
            "expected a matrix or a data frame, got a dict. Make a frame of it first."
        )
    if not nw.dependencies.is_into_dataframe(X):
        return None
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    if names and isinstance(names[0], tuple):
        raise TableError(
            f"a data frame has names of several parts: {names[0]!r}. Join the parts."
        )
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(
            f"a data frame has two columns named {twice[0]!r}. Give every column its own name."
        )
    return names


def has_numbers_only(X: MatrixLike) -> bool:
    """Tell by the types of its columns whether a data frame holds numbers and booleans alone."""
    schema = nw.from_native(X, eager_only=True).schema
    return all(dtype.is_numeric() or dtype == nw.Boolean for dtype in schema.values())


def some_columns(X: MatrixLike, names: Iterable[str]) -> MatrixLike:
    """Return those columns of a data frame that are named and there."""
    frame = nw.from_native(X, eager_only=True)
    return frame.select([name for name in names if name in frame.columns]).to_native()


def as_categories(X: MatrixLike, names: Iterable[str]) -> MatrixLike:
    """Return a data frame with some columns, whatever they hold, as categories."""
    frame = nw.maybe_reset_index(nw.from_native(X, eager_only=True))
    for name in names:
        if name in frame.columns and frame.get_column(name).dtype not in (
            nw.Categorical,
            nw.Enum,
        ):
            texts = column_values(frame.get_column(name), strict=False).as_text()
            cells = [None if i < 0 else texts.levels[i] for i in texts.values.tolist()]
            frame = frame.with_columns(_categories(name, cells, frame.implementation))
    return frame.to_native()


def _categories(name: str, cells: list[str | None], backend: Any) -> nw.Series[Any]:
    return nw.new_series(name, cells, nw.String, backend=backend).cast(nw.Categorical)


def needs_encoding(X: MatrixLike) -> bool:
    """Tell whether a data frame may hold anything but amounts: text, codes, or -999 for missing."""
    if not has_numbers_only(X):
        return True
    frame = nw.from_native(X, eager_only=True)
    for name in frame.columns:
        column = frame.get_column(name)
        if column.dtype == nw.Boolean:
            continue
        values = column_values(column, strict=False)
        if Share.of(values.values, NUMBERS).stand_ins(NUMBERS, fewest=1):
            return True
        if names_codes(str(name)) and ColumnProfile.of_values(values).may_be_codes:
            return True
    return False


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
        return bool(
            (self.values < 0).all() if self.is_text else np.isnan(self.values).all()
        )

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
        levels = [
            plain_text(bool(v) if self.is_flag else v) or "" for v in numbers.tolist()
        ]
        return Values(WORDS, codes, tuple(levels))

    def read(self, holds: str, form: str = "") -> Array:
        """Return text as numbers or as dates in days, NaN for what does not read as such."""
        known: Array = np.array(
            [*(read_text(v, holds, form) for v in self.levels), np.nan]
        )
        numbers: Array = known[self.values]
        return numbers

    def counts(self) -> Counter[str]:
        """Return how often each text occurs."""
        sizes = np.bincount(self.values[self.values >= 0], minlength=len(self.levels))
        pairs = zip(self.levels, sizes.tolist(), strict=True)
        return Counter({level: n for level, n in pairs if n})


def column_values(
    column: nw.Series[Any], table: str = "X", *, strict: bool = True
) -> Values:
    """Return what a column holds; nested values, and if strict infinite numbers, are refused."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = np.asarray(as_floats(column), dtype=np.float64)
        if strict:
            _check_finite(numbers, column.name, table)
        is_long = dtype.is_integer() and bool(
            np.nanmax(np.abs(numbers), initial=0.0) > 2**53
        )
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
        cells = (
            arrow.chunked_array([cells]) if isinstance(cells, arrow.Array) else cells
        )
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
    return np.array(
        [levels.setdefault(t, len(levels)) for t in texts], dtype=np.int64
    ), [*levels]


def _text_values(holds: str, codes: Any, levels: list[Any]) -> Values:
    """Return a column of text as it is written, without blank cells."""
    clean: dict[str, int] = {}
    place = []
    for level in levels:
        text = plain_text(level)
        place.append(-1 if text is None else clean.setdefault(text, len(clean)))
    return Values(holds, np.array([*place, -1], dtype=np.int64)[codes], tuple(clean))


def as_floats(column: nw.Series[Any]) -> Any:
    """Return a column of numbers or booleans as an array, NaN where there is none."""
    if (
        column.dtype == nw.Boolean
    ):  # those with missing values have no float form, integers do
        column = column.cast(nw.Int8)
    if column.dtype.is_integer() and column.implementation.is_pyarrow():
        return column.to_numpy().astype(
            np.float64
        )  # pyarrow casts none that floats only round
    return (
        column.to_numpy()
        if column.dtype == nw.Object
        else column.cast(nw.Float64).to_numpy()
    )


def _check_finite(values: Array, name: str, table: str) -> None:
    if n := int(np.isinf(values).sum()):
        raise InputError(
            f"features of {table} contain inf in {n} of {len(values)} rows, in {name!r}. Replace "
            "infinite numbers by real ones, or leave them empty if they stand for missing values."
        )


def plain_text(value: Any) -> str | None:
    """Return a cell as text, None for what is missing or blank: 5 for 5.0, true for True."""
    if isinstance(value, str):
        if not value or value.isspace() or value.lower() == "nan":
            return None
        # As libraries write whole numbers beside missing ones.
        return value[:-2] if value.endswith(".0") and IS_NUMBER.match(value) else value
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
        return Values(
            TIMES, _day_numbers([None if is_missing(v) else v for v in values])
        )
    if all(isinstance(v, time | timedelta) for v in there):
        return Values(
            TIMES, np.array([np.nan if is_missing(v) else _part(v) for v in values])
        )
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
    seconds = (
        3600 * value.hour + 60 * value.minute + value.second + 1e-6 * value.microsecond
    )
    return seconds / DAY


def _days(column: nw.Series[Any]) -> Array:
    """Return dates and times as days since 1970, durations and times of day in days."""
    dtype = column.dtype
    if dtype == nw.Duration or dtype == nw.Time:
        parts = column.to_list()
        return np.array(
            [np.nan if is_missing(v) else _part(v) for v in parts], dtype=np.float64
        )
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


def read_text(text: str, holds: str, form: str = "") -> float:
    """Return text as a number or as a date in days, NaN if it does not read as such."""
    found = readings(text)
    return found.get(form or holds, found.get(holds, np.nan))


def readings(text: str) -> dict[str, float]:
    """Return what text reads as: a plain number, an ISO date, or in which other forms as what."""
    text = text.strip()
    if not any(map(str.isdigit, text)):
        return {}
    if ISO_DATE.match(text):
        day = _day(text)
        return (
            {} if np.isnan(day) else dict.fromkeys((TIMES, DAY_FIRST, MONTH_FIRST), day)
        )
    if found := DATE.match(text):
        return _date_readings(*found.group(1, 3, 4, 5))
    number = float(text) if IS_NUMBER.match(text) else np.nan
    plain = {NUMBERS: number} if np.isfinite(number) else {}
    found = AMOUNT.match(text)
    if found is None:  # with an exponent, or without a digit before the point
        return plain | dict.fromkeys((POINT,) if plain else (), number)
    sign, unit, second, digits, behind = found.groups()
    if (sign and second) or (unit and behind):
        return plain
    return plain | _amount_readings(digits, -1.0 if "-" in (sign, second) else 1.0)


def _date_readings(
    first: str, second: str, year: str, clock: str | None
) -> dict[str, float]:
    """Return a date of three numbers with the day first, and with the month first."""
    hour = (
        ""
        if clock is None
        else "T" + clock.rjust(5 if clock.count(":") == 1 else 8, "0")
    )
    days = {
        DAY_FIRST: _day(f"{year}-{second:0>2}-{first:0>2}{hour}"),
        MONTH_FIRST: _day(f"{year}-{first:0>2}-{second:0>2}{hour}"),
    }
    return {form: day for form, day in days.items() if not np.isnan(day)}


def _amount_readings(digits: str, sign: float) -> dict[str, float]:
    """Return digits with marks between them as numbers, by the form that the marks may have."""
    plain = re.sub(r"['\s]", "", digits)
    found = {}
    if WITH_POINT.match(digits):
        found[POINT] = sign * float(plain.replace(",", ""))
    if WITH_COMMA.match(digits):
        found[COMMA] = sign * float(plain.replace(".", "").replace(",", "."))
    return found


def _day(text: str) -> float:
    try:
        return float(_day_numbers([text])[0])
    except ValueError:  # such as the 31st of February
        return np.nan


def shapes(text: str) -> list[str]:
    """Return what a cell of text tells about the others of its column."""
    text = text.strip()
    if date_parts := DATE.match(text):
        forms = [form for form in readings(text) if form in FORMS]
        only = [f"{ONLY}{forms[0]}"] if len(forms) == 1 else []
        return [*only, *([DOTTED] if date_parts[2] == "." else [])]
    if re.match("0[0-9]+$", text):
        return [ZEROS]
    parts = AMOUNT.match(text)
    if parts is None:
        return []
    digits = parts[4]
    unit = parts[2] or parts[5]
    found = [f"unit {unit}"] if unit else []
    if GROUPS.match(digits):
        found.append(GROUPED + ("." if "." in digits else ","))
    elif digits.isdigit():
        found.append(BARE if len(digits) <= 3 else LONG)
    return found


def value_word(value: float, holds: str) -> str:
    """Return a number, or a time in days, as people write it."""
    if holds == TIMES and abs(value) > 1.0:
        return str(np.datetime64(round(value * DAY), "s")).removesuffix("T00:00:00")
    return f"{value:.10g}"


@dataclass(frozen=True, slots=True)
class Share:
    """How many cells read as something, their sum and ends."""

    n: int = 0
    total: float = 0.0
    low: float = np.nan
    high: float = np.nan
    within: tuple[float, float] = (
        np.nan,
        np.nan,
    )  # ends of all but what may mean that there is none
    odd: tuple[tuple[float, int], ...] = ()  # such values, and how many cells hold them

    @classmethod
    def of(cls, values: Array, holds: str, sizes: Any = 1) -> Share:
        """Count values, each of which occurs so often."""
        there = ~np.isnan(values)
        if not there.any():
            return cls()
        sizes = np.broadcast_to(sizes, values.shape)[there]
        values = values[there]
        low = float(values.min())
        high = float(values.max())
        total = float((values * sizes).sum())
        odd: dict[float, int] = {}
        known = NO_TIMES if holds == TIMES else NO_NUMBERS
        others = values
        while len(others) and (
            ends := known & {float(others.min()), float(others.max())}
        ):
            odd |= {end: int(sizes[values == end].sum()) for end in ends}
            others = others[~np.isin(others, [*ends])]
        within = (
            (float(others.min()), float(others.max()))
            if len(others)
            else (np.nan, np.nan)
        )
        return cls(int(sizes.sum()), total, low, high, within, tuple(odd.items()))

    def __add__(self, other: Share) -> Share:
        """Return the share of the cells of both."""
        (one_low, one_high), (two_low, two_high) = self.within, other.within
        odd = Counter(dict(self.odd))
        odd.update(dict(other.odd))
        return Share(
            self.n + other.n,
            self.total + other.total,
            float(np.fmin(self.low, other.low)),
            float(np.fmax(self.high, other.high)),
            (float(np.fmin(one_low, two_low)), float(np.fmax(one_high, two_high))),
            tuple(odd.items()),
        )

    def stand_ins(self, holds: str, fewest: int = REPEATED) -> tuple[float, ...]:
        """Return the values that stand for a missing one: repeated, and far from all others."""
        low, high = self.within
        if not self.odd or np.isnan(low):
            return ()
        reach = (high - low) * (0.25 if holds == TIMES else 1.0)
        found = []
        for value, n in self.odd:
            far = value > high + reach or value < low - reach
            alone = holds == NUMBERS and value < 0.0 <= low  # the only number below 0
            if n >= fewest and (far or alone):
                found.append(value)
        return tuple(sorted(found))


# Last words of names of columns whose whole numbers stand for things, not for amounts.
CODES = frozenset(
    re.findall(
        r"\w+",
        """id code nr key kind type store shop branch outlet warehouse depot site region district
        county province state country city territory route zip zipcode postcode postal plz category
        segment cluster department dept channel brand sku product industry sector occupation
        campaign vendor supplier ward clinic hospital practice diagnosis sex gender race ethnicity
        religion nationality language currency device browser platform station klinik geschlecht
        nationalität sprache filiale filial laden markt standort bezirk kreis land stadt gebiet
        kategorie abteilung kanal marke artikel branche beruf lieferant tienda magasin negozio""",
    )
)
COUNTS = frozenset(
    {"n", "no", "num", "number", "count", "nb", "anzahl", "days", "since", "per"}
)


def names_codes(name: str) -> bool:
    """Tell whether a column is called as codes are: store, store_id, regionCode, PLZ."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", name)
    parts = [word.lower() for word in words]
    return bool(parts) and parts[-1] in CODES and not COUNTS & set(parts[:-1])


class Settled(NamedTuple):
    """What a column is taken for."""

    holds: str  # numbers, times or categories
    form: str = (
        ""  # in which its text is written, if neither as plain numbers nor as ISO dates
    )
    doubt: str = ""  # why it is none of these for sure, so that somebody has to say


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the rows of one column hold, as counts and sums that merge."""

    n: int
    missing: int
    holds: frozenset[str]
    reads: dict[
        str, Share
    ]  # of all cells: as plain numbers and dates, and in every other form
    levels: Counter[str] | None  # all cells as text; None if there are too many
    blanks: int = 0  # cells of text that say that there is no value
    shapes: Counter[str] = field(
        default_factory=Counter
    )  # cells of text that tell of the others
    named_code: bool = False  # whether the column is called as codes are

    @classmethod
    def of_values(cls, column: Values, name: str = "") -> ColumnProfile:
        """Look at one piece of a column."""
        n = len(column)
        blanks = 0
        found = Counter[str]()
        if column.is_text:
            missing = int((column.values < 0).sum())
            sizes = np.bincount(
                column.values[column.values >= 0], minlength=len(column.levels)
            )
            known: dict[str, Array] = {}
            for j, level in enumerate(column.levels):
                if level.strip().lower() in NO_VALUE:
                    blanks += int(sizes[j])
                for form, value in readings(level).items():
                    known.setdefault(form, np.full(len(sizes), np.nan))[j] = value
                for shape in shapes(level):
                    found[shape] += int(sizes[j])
            reads = {f: Share.of(v, FORMS.get(f, f), sizes) for f, v in known.items()}
            levels = column.counts() if len(column.levels) <= MOST_LEVELS else None
        else:
            missing = int(np.isnan(column.values).sum())
            share = Share.of(column.values, column.holds)
            forms = [form for form, kind in FORMS.items() if kind == column.holds]
            reads = dict.fromkeys((column.holds, *forms), share) if share.n else {}
            # Numbers are counted as text only as long as they may be categories.
            there = column.values[:SOME_CELLS]
            few = len(np.unique(there[~np.isnan(there)])) <= MOST_CATEGORIES
            levels = column.as_text().counts() if few else None
        holds = frozenset() if missing == n else frozenset([column.holds])
        return cls(n, missing, holds, reads, levels, blanks, found, names_codes(name))

    def __add__(self, other: ColumnProfile) -> ColumnProfile:
        """Return the profile of the rows of both."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = self.levels + other.levels
            levels = levels if len(levels) <= MOST_LEVELS else None
        forms = dict.fromkeys((*self.reads, *other.reads))
        return ColumnProfile(
            self.n + other.n,
            self.missing + other.missing,
            self.holds | other.holds,
            {form: self.share(form) + other.share(form) for form in forms},
            levels,
            self.blanks + other.blanks,
            self.shapes + other.shapes,
            self.named_code,
        )

    def share(self, form: str) -> Share:
        """Return how many cells read as numbers, as times, or in another form."""
        return self.reads.get(form, Share())

    @property
    def read(self) -> Share:
        """The cells that read as what the column is taken for."""
        found = self.settled()
        return self.share(found.form or found.holds)

    def settle(self) -> str:
        """Return whether the column is taken for numbers, times or categories."""
        return self.settled().holds

    def settled(self) -> Settled:
        """Return what the column is taken for, and how its text is read."""
        if CATEGORIES in self.holds:
            return Settled(CATEGORIES)
        if WORDS not in self.holds:
            if TIMES in self.holds:
                return Settled(TIMES)
            return Settled(CATEGORIES if self.has_codes else NUMBERS)
        if self._is_code() or self.has_codes:
            return Settled(CATEGORIES)
        return self._as_numbers() or self._as_times() or Settled(CATEGORIES)

    @property
    def has_codes(self) -> bool:
        """Whether whole numbers stand for things: by the name of the column, if they are few."""
        n = len(self.levels or ())
        enough = n * FEWEST_EACH <= self.n - self.missing
        return self.named_code and self.may_be_codes and n > 2 and enough

    @property
    def has_three_decimals(self) -> bool:
        """Whether text has three digits behind the point in every cell, read as decimals."""
        n = self.shapes[GROUPED + "."]
        return 0 < n == self.n - self.missing and self.settled() == Settled(NUMBERS)

    @property
    def may_be_codes(self) -> bool:
        """Whether there are few values, all of them whole numbers."""
        levels: Mapping[str, int] = self.levels or {}
        few = 0 < len(levels) <= MOST_CATEGORIES
        return few and all(level.lstrip("-").isdigit() for level in levels)

    @property
    def stand_ins(self) -> tuple[float, ...]:
        """Numbers or times that stand for a missing value."""
        return self.read.stand_ins(self.settle())

    def _is_code(self) -> bool:
        """Tell whether digits stand for themselves: 01234 beside 54321."""
        zeros = self.shapes[ZEROS]
        rows = self.n - self.missing
        alike = len({len(level) for level in self.levels or ("", "?")}) == 1
        return zeros > 0 and (alike or zeros >= 0.01 * rows)

    def _is_most(self, n: int) -> bool:
        """Tell whether so many cells are all, but for a few strays among many different ones."""
        rows = self.n - self.missing
        several = self.levels is None or len(self.levels) > FEW_LEVELS
        return n == rows or (several and 0 < n >= MOSTLY * (rows - self.blanks))

    def _as_numbers(self) -> Settled | None:
        """Return how the cells read as numbers, None if they do not."""
        n = {form: self.share(form).n for form in (NUMBERS, POINT, COMMA)}
        best = max(n.values())
        units = [shape for shape in self.shapes if shape.startswith("unit ")]
        mixed = len(units) > 1 or (units == ["unit %"] and self.shapes["unit %"] < best)
        if not self._is_most(best) or mixed:
            return None
        grouped = [mark for mark in ".," if self.shapes[GROUPED + mark]]
        both = n[POINT] == n[COMMA] == best and grouped
        if not both:
            return Settled(
                NUMBERS, "" if n[NUMBERS] == best else max(n, key=n.__getitem__)
            )
        if len(grouped) == 1:
            is_sure = (
                self.shapes[BARE]
                and not self.shapes[LONG]
                and (self.shapes[GROUPED + grouped[0]] >= SURE)
            )
            if is_sure or (units and units != ["unit %"]):
                return Settled(NUMBERS, COMMA if grouped == ["."] else POINT)
            if grouped == ["."] and n[NUMBERS] == best == self.shapes[GROUPED + "."]:
                return Settled(NUMBERS)  # three decimals in every row
        return Settled(
            CATEGORIES,
            doubt=f"holds numbers such as {self._such(GROUPED)}, of which nobody can tell whether "
            "the mark separates thousands or decimals. Write 1234 or 1.234",
        )

    def _as_times(self) -> Settled | None:
        """Return how the cells read as dates, None if they do not."""
        if self._is_most(self.share(TIMES).n):
            return Settled(TIMES)
        n = {form: self.share(form).n for form in (DAY_FIRST, MONTH_FIRST)}
        only = [form for form in n if self.shapes[ONLY + form]]
        read = max(n.values()) + (min(self.shapes[ONLY + form] for form in n))
        if not self._is_most(read):
            return None
        if not only and self.shapes[DOTTED] == max(n.values()) - self.share(TIMES).n:
            only = [DAY_FIRST]
        if len(only) == 1:
            return Settled(TIMES, only[0])
        which = (
            "some name the day first and some the month"
            if only
            else ("nobody can tell whether the day or the month comes first")
        )
        return Settled(
            CATEGORIES,
            doubt=f"holds dates such as {self._such('')}, of which {which}. Write them as "
            "2024-03-31 in all tables",
        )

    def _such(self, shape: str) -> str:
        """Return examples of cells of a shape."""
        levels = sorted(self.levels or (), key=lambda level: (len(level), level))
        some = [
            v
            for v in levels
            if any(s.startswith(shape) for s in shapes(v)) or DATE.match(v)
        ]
        return shown(some[:3]) if some else "these"

    @property
    def n_strays(self) -> int:
        """Number of words among numbers or times, which are taken for missing values."""
        return 0 if self.settle() == CATEGORIES else self.n - self.missing - self.read.n


def fewest_rows(n: int) -> float:
    """Return how many of so many rows a category needs to stand by itself."""
    return float(np.clip(n / 100.0, 2.0, 10.0))


def take_rows(X: MatrixLike, at: Any) -> MatrixLike:
    """Return the rows of an array or a data frame at some positions.

    A frame's rows are numbered anew if its library numbers them.
    """
    if isinstance(X, np.ndarray):
        return X[at]
    frame = nw.from_native(X, eager_only=True)
    return nw.maybe_reset_index(frame[at]).to_native()


def stack_frames(
    frames: Sequence[nw.DataFrame[Any]], names: Sequence[str]
) -> nw.DataFrame[Any]:
    """Return the rows of data frames under one another, with the types their columns have.

    Tables of one library keep its types as far as they agree. Whole numbers beside others become
    floats, categories beside anything else stay such, and whatever else differs becomes text. The
    library is that of the first.
    """
    backend = frames[0].implementation
    frames = [nw.maybe_reset_index(frame.select(names)) for frame in frames]
    alike = all(frame.implementation is backend for frame in frames)
    columns: dict[str, Any] = {}
    for name in names:
        parts = [frame.get_column(name) for frame in frames]
        if any(part.dtype in (nw.Categorical, nw.Enum) for part in parts):
            # Tables have categories of their own, which some libraries make text of.
            texts = [plain_text(cell) for part in parts for cell in part.to_list()]
            columns[name] = _categories(name, texts, backend)
        elif alike and all(part.dtype == parts[0].dtype for part in parts):
            whole = nw.concat([part.to_frame() for part in parts])
            columns[name] = nw.maybe_reset_index(whole).get_column(name)
        else:
            columns[name] = nw.new_series(name, _joined(parts), backend=backend)
    return nw.from_dict(columns)


def _joined(parts: Sequence[nw.Series[Any]]) -> Any:
    """Return the cells of columns of different types or libraries as one array or list."""
    numbers = [part.dtype.is_numeric() or part.dtype == nw.Boolean for part in parts]
    if all(numbers):
        return np.concatenate(
            [np.asarray(as_floats(part), dtype=np.float64) for part in parts]
        )
    cells = [cell for part in parts for cell in part.to_list()]
    if all(part.dtype in (nw.Date, nw.Datetime) for part in parts):
        return [None if is_missing(cell) else cell for cell in cells]
    return [plain_text(cell) for cell in cells]
