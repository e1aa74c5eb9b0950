"""Features: finite numbers, in the columns that were expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from unjoined._typing import Array, BoolArray, MatrixLike
from unjoined._validation.parameters import LARGEST, shown
from unjoined.errors import InputError, TableError

_NO_NUMBERS = (str, bytes, np.datetime64, np.timedelta64)


# A number as people write it. A zero in front, or nineteen digits and more, make it an id.
_WHOLE = "(?:0|[1-9][0-9]*)"


NUMBER = (
    r"^[+-]?(?:(?:0|[1-9][0-9]{0,17})"
    rf"|{_WHOLE}?\.[0-9]+|{_WHOLE}\."
    rf"|(?:{_WHOLE}?\.[0-9]+|{_WHOLE}\.?)[eE][+-]?[0-9]+"
    r"|(?i:nan|inf|infinity))$"
)


def check_numeric_columns(
    X: MatrixLike, *, table: str = "X", what: str = "features", first_row: int = 0
) -> None:
    """Refuse a data frame or array that holds anything but numbers and booleans.

    Decimal numbers are numbers. Text is not, even if it reads as one, nor are dates, times,
    durations, categories, bytes or nested values.
    """
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
            raise TableError(
                f"{what} must be numbers, but column {name!r} of {table} holds "
                f"{str(dtype).lower()} values such as {shown(some)} in {len(text)} of "
                f"{len(values)} rows (first at row {first_row + min(text, default=0):,}, counting "
                "from 0). Leave the column out, or turn it into numbers first (say with "
                "scikit-learn's OneHotEncoder)."
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
