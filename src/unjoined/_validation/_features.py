"""Features: finite numbers, in the columns that were expected."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._typing import Array, BoolArray, MatrixLike
from unjoined._validation._message import LARGEST, shown
from unjoined.errors import InputError, TableError

__all__ = [
    "check_columns",
    "check_feature_sizes",
    "check_finite_features",
    "check_numbers",
    "check_numeric_columns",
    "check_row_width",
]


def check_numeric_columns(X: MatrixLike, *, table: str = "X", what: str = "features") -> None:
    """Refuse a data frame with columns that hold no numbers; other objects pass."""
    if not nw.dependencies.is_into_dataframe(X):
        return
    frame = nw.from_native(X, eager_only=True)
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            values = frame.get_column(name).to_list()
            if dtype == nw.Object and all(isinstance(v, Real) for v in values):
                continue
            # One stray word turns a column of numbers into text: show the word, not the numbers.
            text = [v for v in values if not _reads_as_number(v)] or values
            raise TableError(
                f"{what} must be numbers, but column {name!r} of {table} holds "
                f"{str(dtype).lower()} values such as {shown(dict.fromkeys(text))} in {len(text)} "
                f"of {len(values)} rows. Leave the column out, or encode it first (say with "
                "scikit-learn's OneHotEncoder)."
            )


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


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
