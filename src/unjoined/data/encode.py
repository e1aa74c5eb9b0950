"""Tables of any columns as numbers: one encoding, learnt from rows and kept with the model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import (
    check_finite,
    check_numbers,
    check_option,
    did_you_mean,
    nearest,
    shown,
)
from unjoined.data.columns import (
    CATEGORIES,
    COMMA,
    DAY_FIRST,
    FEW_LEVELS,
    MONTH_FIRST,
    MOST_CATEGORIES,
    MOSTLY,
    NUMBERS,
    POINT,
    REPEATED,
    TIMES,
    ColumnProfile,
    Values,
    column_names,
    column_values,
    fewest_rows,
    read_text,
    readings,
    value_word,
)
from unjoined.data.files import DECIMAL_COMMA
from unjoined.errors import ColumnWarning, InputError, TableError

# Text that people read as a number or a date: 12%, $5, 1,234.50, 31/12/2024, 3.4.24 10:15.
ALMOST = re.compile(
    r"(?!\d+$)[+-]?[$€£]? ?\d[\d.,' ]* ?[%$€£]?$|(\d+[./-]){2}\d+([ T].*)?$"
)
ONE_HOT, CODES = "one-hot", "codes"
_READ_AS = {
    POINT: "numbers with a decimal point, in which a comma separates thousands",
    COMMA: "numbers with a decimal comma, in which a point separates thousands",
    DAY_FIRST: "dates with the day first",
    MONTH_FIRST: "dates with the month first",
}
UNSEEN = -1.0  # the code of a category that no row of the fit has
MOST_RARE = 1000  # names of rare categories that are remembered
INFORMS = 20  # rows without a value, and rows with one: then it is a feature that there is none
RARE, MISSING = "other", "missing"


@dataclass(frozen=True, slots=True)
class ColumnCode:
    """How one column becomes numbers."""

    name: str
    holds: str  # numbers, times or categories
    fill: float  # stands for a missing number: the mean of the others
    indicator: bool  # whether a column of its own says where a number is missing
    levels: tuple[str, ...]  # categories that stand by themselves, sorted
    rare: tuple[str, ...]  # categories that share a place
    shares: Array  # (k,) of the rows: the levels, then the rare ones, then missing ones
    has_missing: bool  # whether rows of the fit lacked a value
    is_open: bool = False  # whether categories without a name here count as rare ones
    form: str = ""  # of text, if it writes neither plain numbers nor ISO dates
    stand_ins: tuple[float, ...] = ()  # numbers or times that stand for a missing one

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together, as a file may hold."""
        words = (self.name, *self.levels, *self.rare)
        if self.holds not in (NUMBERS, TIMES, CATEGORIES) or not all(
            isinstance(word, str) for word in words
        ):
            raise InputError(
                f"the encoding of column {self.name!r} is of no known kind."
            )
        n = len(self.places) if self.holds == CATEGORIES else 0
        check_numbers(f"shares of {self.name!r}", self.shares, n)
        check_finite(f"fill of {self.name!r}", self.fill)

    @classmethod
    def of_profile(cls, name: str, profile: ColumnProfile) -> ColumnCode:
        """Settle how a column is encoded, from counts over all rows."""
        holds, form, _ = profile.settled()
        if holds == CATEGORIES:
            return cls._of_levels(name, profile)
        read, stand_ins = profile.read, profile.stand_ins
        gone = {value: n for value, n in read.odd if value in stand_ins}
        there = read.n - sum(gone.values())
        total = read.total - sum(value * n for value, n in gone.items())
        # Rounded, as the last digits depend on the order in which rows were added.
        fill = float(f"{total / max(there, 1):.9g}")
        without = profile.n - there
        informs = min(without, there) >= INFORMS
        return cls(
            name,
            holds,
            fill,
            informs,
            (),
            (),
            np.empty(0),
            without > 0,
            False,
            form,
            stand_ins,
        )

    @classmethod
    def _of_levels(cls, name: str, profile: ColumnProfile) -> ColumnCode:
        """Let frequent categories stand by themselves, and rare ones share a place."""
        counts = {} if profile.levels is None else profile.levels
        fewest = fewest_rows(profile.n)
        ranked = sorted(counts, key=lambda level: (-counts[level], level))
        kept = sorted(
            level for level in ranked[:MOST_CATEGORIES] if counts[level] >= fewest
        )
        rare = sorted(set(counts) - set(kept))
        sizes = [counts[level] for level in kept]
        if rare or profile.levels is None:
            sizes.append(profile.n - profile.missing - sum(sizes))
        if profile.missing:
            sizes.append(profile.missing)
        shares = np.array(sizes, dtype=np.float64) / max(sum(sizes), 1)
        some = tuple(rare[:MOST_RARE])
        is_open = len(rare) > MOST_RARE or profile.levels is None
        has_missing = profile.missing > 0
        return cls(
            name,
            CATEGORIES,
            0.0,
            False,
            tuple(kept),
            some,
            shares,
            has_missing,
            is_open,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the codes of a category."""
        rare = (RARE,) if self.rare or self.is_open else ()
        return (*self.levels, *rare, *((MISSING,) if self.has_missing else ()))

    @property
    def base(self) -> int:
        """The most frequent place, which has no column of its own among indicators."""
        return int(np.argmax(self.shares)) if len(self.shares) else 0

    def names(self, categories: str) -> list[str]:
        """Return the names of the columns that this one becomes."""
        if self.holds != CATEGORIES:
            return (
                [self.name, f"{self.name} {MISSING}"] if self.indicator else [self.name]
            )
        if categories == CODES:
            return [self.name]
        return [f"{self.name}={p}" for j, p in enumerate(self.places) if j != self.base]

    def encode(
        self, column: Values, categories: str
    ) -> tuple[list[Array], BoolArray, str | None]:
        """Return the columns that this one becomes, strange rows, and what is strange there."""
        if self.holds == CATEGORIES:
            return self._encode_levels(column, categories)
        values = self._as_numbers(column)
        if self.stand_ins:
            values = np.where(np.isin(values, self.stand_ins), np.nan, values)
        gone = np.isnan(values)
        said = None
        if not self.has_missing and gone.any():
            what = "no number" if self.holds == NUMBERS else "no date or time"
            said = (
                f"{what} in {int(gone.sum()):,} of {len(gone):,} rows of {self.name!r}"
            )
        columns = [np.where(gone, self.fill, values)]
        if self.indicator:
            columns.append(gone.astype(np.float64))
        return columns, gone & (not self.has_missing), said

    def _as_numbers(self, column: Values) -> Array:
        if column.holds == self.holds:
            return np.asarray(column.values, dtype=np.float64)
        values = column.read(self.holds, self.form) if column.is_text else np.empty(0)
        if column.is_empty:
            return np.full(len(column), np.nan)
        if not column.is_text or np.isnan(values).all():
            some = column.levels[:3] if column.is_text else column.values[:3].tolist()
            remedy = "Give the column as it was then."
            if column.is_text and all(DECIMAL_COMMA.match(word) for word in some):
                remedy = "Write decimal points; decimal commas are read if no commas separate."
            raise TableError(
                f"column {self.name!r} holds {column.holds} such as {shown(some)}, where the model "
                f"was fitted to {self.holds}. {remedy}"
            )
        return values

    def codes(self, column: Values) -> tuple[IntArray, list[str]]:
        """Return the place of each cell, and categories without one, whose place is -1."""
        texts = column.as_text()
        index = {level: j for j, level in enumerate(self.levels)}
        index |= dict.fromkeys(self.rare, len(self.levels))
        missing = len(self.places) - 1 if self.has_missing else -1
        other = len(self.levels) if self.is_open else -1
        known = np.array(
            [*(index.get(t, other) for t in texts.levels), missing], dtype=np.int64
        )
        code = known[texts.values]
        odd = np.flatnonzero((code < 0) & (texts.values >= 0))
        return code, [
            texts.levels[j] for j in dict.fromkeys(texts.values[odd].tolist())
        ]

    def _encode_levels(
        self, column: Values, categories: str
    ) -> tuple[list[Array], BoolArray, str | None]:
        code, unseen = self.codes(column)
        strange = code < 0
        said = None
        if strange.any():
            known = [*self.levels, *self.rare]
            near = {v: nearest(v, known) for v in unseen[:5]}
            words = [
                f"{v!r}" + (f" (did you mean {w!r}?)" if w else "")
                for v, w in near.items()
            ]
            what = (
                ", ".join(words) + ("" if len(unseen) <= 5 else ", ...")
                or "empty cells"
            )
            said = (
                f"{what} in {int(strange.sum()):,} of {len(code):,} rows of {self.name!r}, which "
                "count as average"
            )
        if categories == CODES:
            return [code.astype(np.float64)], strange, said
        others = [j for j in range(len(self.places)) if j != self.base]
        return (
            [np.where(strange, self.shares[j], code == j) for j in others],
            strange,
            said,
        )


class Encoded(NamedTuple):
    """Rows as numbers, and what was strange about them."""

    matrix: Array  # (n, d)
    strange: BoolArray  # (n,) rows with a value such as no row of the fit had
    notes: list[str]


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn the columns of a data frame into numbers, whatever they hold.

    Numbers and booleans stay as they are. Dates and times become days since 1970, durations and
    times of day days. Text and categories become indicators, or codes. Estimators do this by
    themselves when they are fitted to a data frame that holds anything but finite numbers, and
    keep the encoder as ``encoder_``; use it by itself to see or to change what they get.

    Parameters
    ----------
    categories : {"one-hot", "codes"}, default="one-hot"
        "one-hot" makes a 0/1 column of each category but the most frequent one; "codes" one
        column of whole numbers, for estimators with ``categorical_features``.

    Attributes
    ----------
    columns_ : tuple of ColumnCode
        How each column is encoded, in the order of ``feature_names_in_``.
    feature_names_in_ : array of str
        The columns of the frame.
    n_features_in_ : int
        Their number.

    Notes
    -----
    A missing number becomes the mean of the others; if at least 20 rows lack it, and 20 do not, a
    column of its own says where. A missing category is a category. Categories of fewer than ten
    rows (or of one in a hundred, whichever is less, but of two at least) share a place, and so do
    all but the hundred most frequent ones. A category that no row of the fit has counts as average
    and is reported by a `ColumnWarning`; beside more than a thousand rare ones it counts as rare.
    Text is taken for numbers or for dates (as 2024-03-31) if all of its cells read as such, or
    nine in ten of many different ones. So are 31.12.2024, 12/31/2024, $1,234.00 and 1.234,56 EUR,
    if the column tells the order of its dates and what its marks separate. Whole numbers are
    categories if the column is called as codes are (``store_id``), or has zeros in front. Numbers
    and dates such as -999 and 1900-01-01, in five rows or more and far from all others, count as
    missing. Each of these is told by a `ColumnWarning` and kept for ``transform``. Capitals and
    spaces count: "North" and "north " are two categories.

    ``transform`` finds columns by name, whatever their order, and leaves out others. Costs one
    pass over the rows, and a few microseconds for each different text.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [31, 54, 47, 22], "region": ["N", "S", "N", "S"]})
    >>> encoder = TableEncoder().fit(people)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'region=S']
    >>> encoder.transform(people[["region", "age"]]).tolist()
    [[31.0, 0.0], [54.0, 1.0], [47.0, 0.0], [22.0, 1.0]]
    """

    columns_: tuple[ColumnCode, ...]

    def __init__(self, categories: str = ONE_HOT) -> None:
        self.categories = categories

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn the encoding from a data frame.

        Parameters
        ----------
        X : data frame of shape (n, d)
            pandas, polars or pyarrow.
        y : None
            Not looked at.

        Returns
        -------
        TableEncoder
            Itself.

        Warns
        -----
        ColumnWarning
            Words stand among numbers, categories differ in capitals and spaces only, or text,
            codes and values such as -999 are taken for something else than they may be.
        """
        self.fit_profiles(profile_frame(X))
        return self

    def fit_profiles(self, profiles: Mapping[str, ColumnProfile]) -> Self:
        """Learn the encoding from profiles of the columns, which may come from many pieces."""
        check_option("categories", self.categories, (ONE_HOT, CODES))
        self.columns_ = tuple(ColumnCode.of_profile(n, p) for n, p in profiles.items())
        self.feature_names_in_ = np.array(
            [str(name) for name in profiles], dtype=object
        )
        self.n_features_in_ = len(profiles)
        for sentence in _doubts(profiles):
            warnings.warn(sentence, ColumnWarning, stacklevel=3)
        return self

    @classmethod
    def of_numbers(cls, names: Sequence[str], fill: Array) -> TableEncoder:
        """Return the encoder of a table of numbers, with what stands for missing ones."""
        encoder = cls()
        encoder.columns_ = tuple(
            ColumnCode(
                name, NUMBERS, value, False, (), (), np.empty(0), has_missing=False
            )
            for name, value in zip(names, fill.tolist(), strict=True)
        )
        encoder.feature_names_in_ = np.array(names, dtype=object)
        encoder.n_features_in_ = len(names)
        return encoder

    def transform(self, X: MatrixLike) -> Array:
        """Return the columns as numbers.

        Parameters
        ----------
        X : data frame
            With the columns seen in ``fit``, in any order, and others if need be.

        Returns
        -------
        array of shape (n, number of names of ``get_feature_names_out``)

        Warns
        -----
        ColumnWarning
            Cells hold what no row of the fit had: other categories, or nothing.
        """
        check_is_fitted(self)
        encoded = self.encode(X)
        warn_of_notes(encoded.notes, stacklevel=3)
        return encoded.matrix

    def encode(self, X: MatrixLike, *, table: str = "X") -> Encoded:
        """Return the columns as numbers, which rows are strange, and why."""
        if column_names(X) is None:
            raise InputError(
                f"{table} must be a data frame with the columns {shown(self.feature_names_in_)}, "
                f"got {type(X).__name__}. Text, dates and missing values are found by name."
            )
        frame = nw.from_native(
            own_columns(X, self.feature_names_in_, table), eager_only=True
        )
        parts: list[Array] = []
        strange = np.zeros(len(frame), dtype=np.bool_)
        notes = []
        for code, name in zip(self.columns_, frame.columns, strict=True):
            columns, odd, said = code.encode(
                column_values(frame.get_column(name), table), self.categories
            )
            parts += columns
            strange |= odd
            notes += [] if said is None else [said]
        matrix = np.empty((len(frame), len(parts)))
        for j, part in enumerate(parts):
            matrix[:, j] = part
        return Encoded(matrix, strange, notes)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns of numbers.

        Parameters
        ----------
        input_features : None
            Not looked at.

        Returns
        -------
        array of str
        """
        names = [name for code in self.columns_ for name in code.names(self.categories)]
        return np.array(names, dtype=object)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that text files must be read in as they are written: 1.10 and 1.234, not 1.1."""
        return tuple(c.name for c in self.columns_ if c.form or c.holds == CATEGORIES)

    def as_codes(self) -> TableEncoder:
        """Return the same encoder with one column of whole numbers for each category."""
        other = TableEncoder(CODES)
        other.columns_, other.n_features_in_ = self.columns_, self.n_features_in_
        other.feature_names_in_ = self.feature_names_in_
        return other

    @property
    def codes_at(self) -> tuple[int, ...]:
        """Places of the columns of numbers that are codes of categories."""
        if self.categories != CODES:
            return ()
        names = self.get_feature_names_out().tolist()
        return tuple(
            names.index(c.name) for c in self.columns_ if c.holds == CATEGORIES
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is an encoding."""
        return hasattr(self, "columns_")


def profile_frame(X: MatrixLike, *, table: str = "X") -> dict[str, ColumnProfile]:
    """Return what each column of a data frame holds."""
    if column_names(X) is None:
        raise InputError(f"{table} must be a data frame, got {type(X).__name__}.")
    frame = nw.from_native(X, eager_only=True)
    return {
        str(name): ColumnProfile.of_values(
            column_values(frame.get_column(name), table), str(name)
        )
        for name in frame.columns
    }


def own_columns(X: MatrixLike, names: Iterable[str], table: str = "X") -> MatrixLike:
    """Return the columns of a data frame that are named, in that order, or say what is missing."""
    frame = nw.from_native(X, eager_only=True)
    wanted = list(names)
    found = {str(name): name for name in frame.columns}
    if list(found) == wanted:
        return X
    if missing := [name for name in wanted if name not in found]:
        rest = [name for name in found if name not in wanted]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise TableError(
            f"{table} lacks the column {missing[0]!r}{more} that the model was fitted to; its "
            f"columns are {shown(found)}{did_you_mean(missing[0], rest)}"
        )
    return frame.select([found[name] for name in wanted]).to_native()


def warn_of_notes(notes: Sequence[str], *, stacklevel: int) -> None:
    """Warn of values such as no row of the fit had, all columns in one warning."""
    if notes:
        warnings.warn(
            f"the model was fitted to no such values: {'; '.join(notes)}.",
            ColumnWarning,
            stacklevel=stacklevel + 1,
        )


def _doubts(profiles: Mapping[str, ColumnProfile]) -> list[str]:
    """Return sentences on columns that may be other than meant."""
    sentences = []
    for name, profile in profiles.items():
        (holds, form, doubt), n = profile.settled(), profile.n_strays
        levels: Mapping[str, int] = profile.levels or {}
        if n:
            words = [v for v in sorted(levels) if np.isnan(read_text(v, holds, form))]
            such = f"words such as {shown(words)}" if words else "words"
            sentences.append(
                f"column {name!r} holds {holds} and, in {n:,} of {profile.n:,} rows, {such}, which "
                "are taken for missing values."
            )
        sentences += _forms(name, profile)
        sentences += _odd_values(name, profile)
        if doubt:
            sentences.append(f"column {name!r} {doubt}: each is taken for a category.")
        elif holds == CATEGORIES:
            alike = [level for level in levels if ALMOST.match(level.strip())]
            several = len(levels) > FEW_LEVELS and CATEGORIES not in profile.holds
            if several and len(alike) >= MOSTLY * len(levels):
                sentences.append(
                    f"column {name!r} holds text such as {shown(alike)}, whose numbers or dates "
                    "are not read: each is taken for a category. Write plain numbers, with a "
                    "decimal point and no unit, and dates as 2024-03-31."
                )
            by_specification: dict[str, list[str]] = {}
            for level in levels:
                by_specification.setdefault(
                    " ".join(level.casefold().split()), []
                ).append(level)
            twice = next(
                (sorted(v) for v in by_specification.values() if len(v) > 1), None
            )
            if twice is not None:
                sentences.append(
                    f"column {name!r} has the categories {shown(twice)}, which differ in capitals "
                    "and spaces only and are taken for different ones. Write them alike if they "
                    "are the same."
                )
    return sentences


def _forms(name: str, profile: ColumnProfile) -> list[str]:
    """Say how text is read, and which whole numbers are taken for categories."""
    (holds, form, _), sentences = profile.settled(), []
    levels: Mapping[str, int] = profile.levels or {}
    if form:
        kinds = {level: readings(level) for level in sorted(levels)}
        some = [v for v, found in kinds.items() if form in found and holds not in found]
        sentences.append(
            f"column {name!r} holds text such as {shown(some or levels)}, which is read as "
            f"{_READ_AS[form]}. If that is wrong, write plain numbers, and dates as 2024-03-31."
        )
    elif profile.has_three_decimals:
        sentences.append(
            f"column {name!r} holds text such as {shown(sorted(levels))}, with three digits "
            "behind every point, which is read as a decimal point. If it separates thousands, "
            "write 1234."
        )
    if holds == CATEGORIES and CATEGORIES not in profile.holds and profile.has_codes:
        sentences.append(
            f"column {name!r} holds {len(levels)} different whole numbers, such as "
            f"{shown(sorted(levels, key=int))}, and is taken for categories because of its "
            "name. If they are amounts, call it otherwise."
        )
    return sentences


def _odd_values(name: str, profile: ColumnProfile) -> list[str]:
    """Say which values are taken for missing ones, and which may stand for such."""
    holds = profile.settle()
    if holds == CATEGORIES:
        return []
    read, sentences = profile.read, []
    for value, n in read.odd:
        is_low = value < read.within[0]
        least = value_word(value, holds)
        other = value_word(read.within[0 if is_low else 1], holds)
        rest = f"the {'smallest' if is_low else 'largest'} of all others is {other}"
        if value in profile.stand_ins:
            sentences.append(
                f"column {name!r} is {least} in {n:,} of {profile.n:,} rows, where {rest}: taken "
                "for missing values."
            )
        elif n >= max(REPEATED, 0.01 * read.n):
            sentences.append(
                f"column {name!r} is {least} in {n:,} of {profile.n:,} rows, as where there is no "
                "value. It is used as it is; leave such cells empty if they stand for missing ones."
            )
    return sentences
