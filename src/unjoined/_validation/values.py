"""Features, columns and parameters: finite numbers where they are expected, and messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from unjoined._typing import Array, ArrayLike, BoolArray, MatrixLike
from unjoined.errors import InputError, LabelError, TableError

# Fits take features and outcomes up to this size: squares of squares still add up, and single
# precision can hold it. What is beyond, as a rule, stands for a missing value.
LARGEST = 1e30
SMALLEST = 1e-30  # differences of outcomes, for the same reasons
_NO_NUMBERS = (str, bytes, np.datetime64, np.timedelta64)
# A number as people write it. A zero in front, or nineteen digits and more, make it an id.
_WHOLE = "(?:0|[1-9][0-9]*)"
NUMBER = (
    r"^[+-]?(?:(?:0|[1-9][0-9]{0,17})"
    rf"|{_WHOLE}?\.[0-9]+|{_WHOLE}\."
    rf"|(?:{_WHOLE}?\.[0-9]+|{_WHOLE}\.?)[eE][+-]?[0-9]+"
    r"|(?i:nan|inf|infinity))$"
)


def printable(text: str) -> str:
    r"""Return text that a terminal shows as it is: what it would obey is escaped, as repr does.

    >>> printable("age\x1b[2J")
    'age\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(values: Iterable[Any]) -> str:
    """Return at most five values, for a message."""
    some = list(values)
    return ", ".join(_short(repr(v)) for v in some[:5]) + (", ..." if len(some) > 5 else "")


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Return the end of a message that names the nearest of what is known, if any is near.

    >>> did_you_mean("bougth", ["age", "bought"])
    ". Did you mean 'bought'?"
    """
    near = nearest(name, known)
    return "." if near is None else f". Did you mean {near!r}?"


def nearest(name: Any, known: Iterable[Any]) -> Any:
    """Return the known word that is like a name, capitals and spaces aside, or None."""
    by_text = {str(value).strip().casefold(): value for value in known}
    near = get_close_matches(str(name).strip().casefold(), by_text, n=1)
    return by_text[near[0]] if near else None


def _short(text: str) -> str:
    """Return a value's form, cut if it would fill the message."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_finite(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number."""
    if not _is_number(value) or not np.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number above 0."""
    if not _is_number(value) or not 0.0 < value < np.inf:
        raise InputError(f"{name} must be a finite number above 0, got {value!r}.")
    return float(value)


def check_not_negative(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number, 0 or above."""
    if not _is_number(value) or not 0.0 <= value < np.inf:
        raise InputError(f"{name} must be a finite number, 0 or above, got {value!r}.")
    return float(value)


def check_count(name: str, value: Any) -> int:
    """Return a parameter that must be a whole number, 1 or above."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number, 1 or above, got {value!r}.")
    return int(value)


def check_option(name: str, value: str, options: Iterable[str]) -> str:
    """Return a parameter that must be one of a few words."""
    words = list(options)
    if value not in words:
        listed = ", ".join(map(repr, words))  # all of them: they are the answer
        raise InputError(
            f"{name} must be one of {listed}, got {value!r}{did_you_mean(value, words)}"
        )
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_share(name: str, share: float, *, zero_allowed: bool) -> float:
    """Return ``share`` as a float in (0, 1], or in [0, 1] when zero is allowed."""
    clean = float(share)
    if not (0.0 < clean <= 1.0 or (zero_allowed and clean == 0.0)):
        bracket = "[0, 1]" if zero_allowed else "(0, 1]"
        raise InputError(
            f"{name} must lie in {bracket}, got {share}. "
            "It is a share of the rows: write 0.3 for 30 percent."
        )
    return clean


def check_word_or(name: str, value: Any, word: str, check: Callable[[str, Any], Any]) -> None:
    """Check a parameter that is one word, or else something that ``check`` accepts."""
    if isinstance(value, str):
        check_option(name, value, [word])
    else:
        check(name, value)


def check_numeric_columns(
    X: MatrixLike, *, table: str = "X", what: str = "features", first_row: int = 0
) -> None:
    """Refuse a data frame or array that holds anything but numbers and booleans."""
    if not nw.dependencies.is_into_dataframe(X):
        check_number_type(what, X)
        return
    frame = nw.from_native(X, eager_only=True)
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            values = frame.get_column(name).to_list()
            if dtype == nw.Object and all(isinstance(v, Real | Decimal) for v in values):
                continue
            # One stray word turns a column of numbers into text: show the word, not the numbers.
            text = {i: v for i, v in enumerate(values) if not _reads_as_number(v)}
            text = text or dict(enumerate(values))
            some = {repr(v): v for v in text.values()}.values()
            remedy = "Name a column of numbers."
            if what == "features":
                remedy = "Leave the column out, or turn it into numbers first."
            raise TableError(
                f"{what} must be numbers, but column {name!r} of {table} holds "
                f"{str(dtype).lower()} values such as {shown(some)} in {len(text)} of "
                f"{len(values)} rows (first at row {first_row + min(text, default=0):,}, counting "
                f"from 0). {remedy}"
            )


def _reads_as_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.match(NUMBER, value.strip()) is not None
    return isinstance(value, Real)


def check_number_type(name: str, values: Any, error: type[InputError] = InputError) -> None:
    """Refuse an array of text, dates, durations or complex numbers, which numpy would convert."""
    if issparse(values):  # told elsewhere, and numpy cannot look into it
        return
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths, which is told elsewhere
        return
    if array.dtype.kind == "c":  # in the words that scikit-learn has for it
        raise error(f"{name} must be real numbers. Complex data not supported.")
    if array.dtype.kind in "USmMV":
        some = array.ravel()[:5].tolist()
    elif array.dtype.kind == "O":
        some = [v for v in array.ravel().tolist() if isinstance(v, _NO_NUMBERS)][:5]
    else:
        return
    if some:
        raise error(
            f"{name} must be numbers, got an array that holds {type(some[0]).__name__} values such "
            f"as {shown(dict.fromkeys(some))}. Convert them to numbers first."
        )


def check_finite_features(X: Array, names: Sequence[str] | None, *, table: str = "X") -> None:
    """Refuse missing and infinite features, naming the columns that hold them."""
    # One pass with a scalar result is cheap; the columns are looked at only when it fails.
    with np.errstate(over="ignore", invalid="ignore"):  # a sum may overflow, or be inf - inf
        total = X.sum(dtype=np.float64)
    if np.isfinite(total) or np.isfinite(X).all():
        return
    bad: BoolArray = ~np.isfinite(X)
    columns = np.flatnonzero(bad.any(axis=0)).tolist()
    labels = [names[j] if names is not None else f"column {j}" for j in columns]
    what = " and ".join(
        word for word, found in (("NaN", np.isnan(X)), ("inf", np.isinf(X))) if found.any()
    )
    raise InputError(
        f"features of {table} contain {what} in {int(bad.any(axis=1).sum())} of {len(X)} rows, in "
        f"{shown(labels)}. Impute or remove these rows (for instance with scikit-learn's "
        "SimpleImputer); none is dropped silently."
    )


def check_feature_sizes(X: Array, names: Sequence[str] | None, *, table: str = "X") -> None:
    """Refuse features that are too large to be squared and added up, naming their columns."""
    if X.min(initial=0.0) >= -LARGEST and X.max(initial=0.0) <= LARGEST:
        return
    large: BoolArray = np.abs(X) > LARGEST
    columns = np.flatnonzero(large.any(axis=0)).tolist()
    labels = [names[j] if names is not None else f"column {j}" for j in columns]
    raise InputError(
        f"features of {table} hold numbers beyond {LARGEST:g} in {int(large.any(axis=1).sum())} of "
        f"{len(X)} rows, in {shown(labels)}, such as {shown(X[large][:1].tolist())}. If they stand "
        "for missing values, impute or remove these rows; else divide the column by a power of ten."
    )


def check_columns(expected: Sequence[str], found: Sequence[str], *, table: str) -> None:
    """Refuse a table whose columns are not a permutation of the expected ones."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if missing or extra:
        parts = [
            f"{word}: {shown(names)}"
            for word, names in (("Missing", missing), ("Not expected", extra))
            if names
        ]
        raise TableError(
            f"{table} must have the feature columns of the first table ({shown(expected)}; any "
            f"order). {'; '.join(parts)}. Select the same features in every table."
        )


def check_numbers(name: str, array: Any, *shape: int | None) -> None:
    """Refuse anything but an array of finite numbers of a shape, None being any length."""
    wanted = ", ".join("n" if length is None else str(length) for length in shape)
    found = f"a {type(array).__name__}"
    if isinstance(array, np.ndarray):
        found = f"shape {array.shape} of {array.dtype}"
        fits = array.ndim == len(shape) and array.dtype.kind in "iuf"
        if fits and all(
            want in (None, length) for want, length in zip(shape, array.shape, strict=True)
        ):
            if np.isfinite(array).all():
                return
            found = "NaN or infinite ones"
    raise InputError(f"{name} must be an array of finite numbers, shape ({wanted}), got {found}.")


def check_row_width(X: Any, d: int) -> None:
    """Refuse rows that are not a matrix of ``d`` columns."""
    if np.ndim(X) != 2 or X.shape[1] != d:
        raise InputError(
            f"rows must have {d} features, shape (n, {d}), got shape {np.shape(X)}. Pass the "
            "features that the basis was made for, in the same order."
        )


def check_vector(name: str, column: ArrayLike) -> Array:
    """Return ``column`` as a non-empty, finite, one-dimensional float64 array."""
    check_number_type(name, column)
    try:
        clean = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} must hold numbers, and they could not be read as such ({error}). "
            "Convert the column to a numeric type."
        ) from error
    if clean.ndim != 1:
        raise InputError(
            f"{name} must be one-dimensional, got shape {clean.shape}. "
            "Pass one column, for example `column.ravel()`."
        )
    if clean.size == 0:
        raise InputError(f"{name} is empty. Pass at least one row.")
    bad = np.flatnonzero(~np.isfinite(clean))
    if bad.size:
        raise InputError(
            f"{name} must be finite, got {shown(clean[bad].tolist())} in {bad.size} row(s), "
            f"the first at position {bad[0]}. Drop or repair these rows."
        )
    return clean


def check_same_length(**columns: Array) -> None:
    """Refuse columns that do not have one entry per row each."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(
            f"all columns must have one entry per row, but {found}. Pass columns of the same rows."
        )


def check_both_arms(treated: BoolArray) -> None:
    """Refuse rows of one arm only: they say nothing about a difference."""
    if treated.all() or not treated.any():
        raise LabelError(
            f"treatment must hold treated and untreated rows, got {int(treated.sum())} treated "
            f"of {treated.size}. Evaluate on rows of both arms."
        )


def check_outcome_is_binary(y: Array) -> None:
    """Refuse outcomes other than 0 and 1, which the convention is not defined for."""
    codes = np.unique(y)
    if not np.isin(codes, (0.0, 1.0)).all():
        raise LabelError(
            f"this convention is defined for outcomes 0 and 1 only, got {shown(codes.tolist())} in "
            "y. Use `auuc` or `qini` on `joint_values`, which take any outcome."
        )


def check_propensity(propensity: ArrayLike, n_rows: int) -> Array:
    """Return one treatment probability per row, each strictly between 0 and 1."""
    clean = check_one_per_row("propensity", propensity, n_rows)
    outside = (clean <= 0.0) | (clean >= 1.0)
    if outside.any():
        raise InputError(
            "propensity must lie strictly between 0 and 1, got "
            f"{shown(clean[outside].tolist())} in {int(outside.sum())} row(s). Leave out rows that "
            "could not have been treated, or could not have been left untreated."
        )
    return clean


def check_probability(name: str, rule: ArrayLike) -> Array:
    """Return treatment probabilities, or a yes/no rule, as float64 in [0, 1]."""
    clean = check_vector(name, rule)
    outside = (clean < 0.0) | (clean > 1.0)
    if outside.any():
        raise InputError(
            f"{name} must hold probabilities in [0, 1] or booleans, got "
            f"{shown(clean[outside].tolist())} in {int(outside.sum())} row(s). "
            "A score is not a probability: make a rule of it first, such as `optimal_rule`."
        )
    return clean


def check_cost(cost: ArrayLike, n_rows: int) -> Array:
    """Return one positive cost per row."""
    clean = check_one_per_row("cost", cost, n_rows)
    if (clean <= 0.0).any():
        wrong = clean[clean <= 0.0]
        raise InputError(
            f"cost must be positive, got {shown(wrong.tolist())} in {wrong.size} row(s). "
            "Treat rows that cost nothing outside the budget, with `optimal_rule`."
        )
    return clean


def check_one_per_row(name: str, column: ArrayLike, n_rows: int) -> Array:
    """Return a column of ``n_rows`` entries; a single number stands for all of them."""
    raw = np.asarray(column)
    if raw.ndim == 0:
        return np.full(n_rows, check_vector(name, raw.reshape(1))[0])
    clean = check_vector(name, raw)
    if len(clean) != n_rows:
        raise InputError(
            f"{name} must be one number or one per row ({n_rows}), got {len(clean)}. "
            "Pass a single number, or a column of the same rows."
        )
    return clean
