"""Every check on user input. Each returns the clean array, or says what is wrong.

A message names the argument as the user typed it, what was expected, what was found (at
most five values) and what to do. Code behind these checks trusts its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike
from unjoined.errors import InputError, LabelError, TableError

__all__ = [
    "KINDS",
    "OUTCOME",
    "TARGET",
    "TREATMENT",
    "OutcomeCoding",
    "check_cells",
    "check_columns",
    "check_count",
    "check_finite_features",
    "check_kind",
    "check_labels",
    "check_length",
    "check_not_negative",
    "check_numeric_columns",
    "check_option",
    "check_outcome",
    "check_population",
    "check_positive",
    "check_treatment",
    "check_weight",
]

OUTCOME, TREATMENT, TARGET = "outcome", "treatment", "target"
KINDS = (OUTCOME, TREATMENT, TARGET)


def _shown(values: Iterable[Any]) -> str:
    """At most five values, for a message."""
    shown = list(values)
    return ", ".join(repr(v) for v in shown[:5]) + (", ..." if len(shown) > 5 else "")


def check_length(name: str, values: Sequence[Any] | NDArray[Any], n: int) -> None:
    """Refuse ``values`` unless it has one entry per row of ``X``."""
    if len(values) != n:
        raise InputError(
            f"{name} has {len(values)} entries but X has {n} rows (n_samples={n}). "
            "Pass one entry per row, in the same order."
        )


def _one_dimensional(name: str, values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got shape {array.shape}.")
    if array.dtype.kind == "O":  # frames and lists of strings arrive as objects
        return array.astype(str)
    return array


def check_kind(kind: ArrayLike, n: int) -> NDArray[np.str_]:
    """Return ``kind`` as strings, each one of ``"outcome"``, ``"treatment"``, ``"target"``."""
    clean = _one_dimensional("kind", kind)
    check_length("kind", clean, n)
    clean = clean.astype(str)
    unknown = np.setdiff1d(clean, KINDS)
    if unknown.size:
        raise LabelError(
            f"kind must be one of {_shown(KINDS)}, got {_shown(unknown.tolist())}. "
            "It says which label the row carries."
        )
    return clean


def check_population(population: ArrayLike, n: int) -> NDArray[Any]:
    """Return ``population`` as a one-dimensional array without missing values."""
    clean = _one_dimensional("population", population)
    check_length("population", clean, n)
    missing = np.isnan(clean) if clean.dtype.kind == "f" else np.isin(clean, ("nan", "None"))
    if missing.any():
        raise LabelError(
            f"population is missing in {int(missing.sum())} of {n} rows (first at row "
            f"{int(np.argmax(missing))}). Name the population of every row."
        )
    return clean


def check_labels(y: ArrayLike, kind: NDArray[np.str_]) -> Array:
    """Return ``y`` as float64: finite where the row is labelled, NaN where ``kind`` is target."""
    column: NDArray[Any] = np.asarray(column_or_1d(y, warn=True))
    check_length("y", column, len(kind))
    clean: Array = check_array(
        column, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y"
    )
    target = kind == TARGET
    if (labelled := target & ~np.isnan(clean)).any():
        raise LabelError(
            f"rows of kind 'target' carry no label, but y holds values in {int(labelled.sum())} "
            f"of them (first at row {int(np.argmax(labelled))}). Set y to NaN there."
        )
    for name in (OUTCOME, TREATMENT):
        bad = (kind == name) & ~np.isfinite(clean)
        if bad.any():
            raise LabelError(
                f"y holds NaN or infinite {name} labels in {int(bad.sum())} of "
                f"{int((kind == name).sum())} {name} rows (first at row {int(np.argmax(bad))}). "
                "Remove these rows, or give them kind 'target' if their label is unknown."
            )
    return clean


def check_treatment(t: Array) -> Array:
    """Return ``t`` as float64 in the paper's coding, -1 (not treated) and +1 (treated)."""
    codes = np.unique(t)
    if np.isin(codes, (0.0, 1.0)).all():
        return 2.0 * t - 1.0
    if np.isin(codes, (-1.0, 1.0)).all():
        return np.asarray(t, dtype=np.float64)
    raise LabelError(
        f"treatment labels must be coded 0/1, False/True or -1/+1, got {_shown(codes.tolist())}. "
        "Turn a treatment of several levels into one column per contrast."
    )


@dataclass(frozen=True, slots=True)
class OutcomeCoding:
    """How outcomes in the user's units are written inside: ``(y - offset) / scale``.

    An outcome of two values becomes -1/+1, the paper's coding, whichever two values it has,
    so that its coding changes nothing but the units. Other outcomes stay as they are. An
    uplift found inside is worth ``scale`` times as much outside; the offset cancels.
    """

    offset: float
    scale: float
    is_binary: bool

    def encode(self, y: Array) -> Array:
        """Return ``y`` in the inner coding."""
        return (y - self.offset) / self.scale


def check_outcome(y: Array) -> OutcomeCoding:
    """Return the coding of the outcomes ``y``; refuse outcomes that never vary."""
    low, high = float(y.min()), float(y.max())
    if low == high:
        raise LabelError(
            f"the outcome is {low:g} in all {len(y)} outcome rows (n_samples={len(y)}); where "
            "nothing varies there is no uplift to estimate. Check the outcome column and how its "
            "rows were chosen."
        )
    if np.all((y == low) | (y == high)):
        return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)
    return OutcomeCoding(0.0, 1.0, is_binary=False)


def check_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Return row weights as float64, ones if none were given."""
    if sample_weight is None:
        return np.ones(n)
    weight: Array = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.ndim != 1:
        raise InputError(f"sample_weight must be one-dimensional, got shape {weight.shape}.")
    check_length("sample_weight", weight, n)
    bad = ~np.isfinite(weight) | (weight < 0.0)
    if bad.any():
        raise LabelError(
            f"sample_weight must be finite and not negative, got {_shown(weight[bad].tolist())} "
            f"in {int(bad.sum())} of {n} rows. Give rows that should not count the weight 0."
        )
    return weight


def check_cells(
    kind: NDArray[np.str_], population: NDArray[Any], weight: Array
) -> tuple[list[Any], IntArray]:
    """Return the names of the two populations and each row's population as 0 or 1.

    Rows of kind "target" belong to neither; their entry is -1. Names are sorted, so that the
    order of rows changes nothing. A cell whose rows all have weight 0 counts as empty.
    """
    labelled = (kind != TARGET) & (weight > 0.0)
    names: list[Any] = np.unique(population[labelled]).tolist()
    n = len(kind)
    if len(names) != 2:
        raise LabelError(
            f"two populations with different treatment policies are needed, found {len(names)}"
            f"{': ' + _shown(names) if names else ''} in n_samples={n} rows. "
            + ("Choose two of them." if names[2:] else "Uplift cannot be identified from one.")
        )
    index = np.full(n, -1, dtype=np.int64)
    for k, name in enumerate(names):
        index[(population == name) & (kind != TARGET)] = k
    for k, name in enumerate(names):
        for which in (OUTCOME, TREATMENT):
            if not (labelled & (kind == which) & (index == k)).any():
                raise LabelError(
                    f"population {name!r} has no {which} rows with positive weight; each of the "
                    f"two populations needs an {OUTCOME} table and a {TREATMENT} table "
                    f"(n_samples={n} rows in all). To cross-validate, split with CellKFold."
                )
    return names, index


def check_numeric_columns(X: MatrixLike, *, table: str = "X", what: str = "features") -> None:
    """Refuse a data frame with columns that hold no numbers; other objects pass."""
    if not nw.dependencies.is_into_dataframe(X):
        return
    frame = nw.from_native(X, eager_only=True)
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            values = frame.get_column(name)
            if dtype == nw.Object and _all_numbers(values.to_list()):
                continue
            raise TableError(
                f"{what} must be numbers, but column {name!r} of {table} holds "
                f"{str(dtype).lower()} values such as {_shown(values.head(2).to_list())}. Leave "
                "the column out, or encode it first (say with scikit-learn's OneHotEncoder)."
            )


def _all_numbers(values: list[Any]) -> bool:
    return all(isinstance(v, (int, float, np.number)) for v in values)


def check_finite_features(X: Array, names: Sequence[str] | None, *, table: str = "X") -> None:
    """Refuse missing and infinite features, naming the columns that hold them."""
    # One pass with a scalar result is cheap; the columns are looked at only when it fails.
    if np.isfinite(X.sum(dtype=np.float64)) or np.isfinite(X).all():
        return
    bad: BoolArray = ~np.isfinite(X)
    columns = np.flatnonzero(bad.any(axis=0)).tolist()
    labels = [names[j] if names is not None else f"column {j}" for j in columns]
    what = " and ".join(
        word for word, found in (("NaN", np.isnan(X)), ("inf", np.isinf(X))) if found.any()
    )
    raise InputError(
        f"features of {table} contain {what} in {int(bad.any(axis=1).sum())} of {len(X)} rows, in "
        f"{_shown(labels)}. Impute or remove these rows (for instance with scikit-learn's "
        "SimpleImputer); none is dropped silently."
    )


def check_columns(expected: Sequence[str], found: Sequence[str], *, table: str) -> None:
    """Refuse a table whose columns are not a permutation of the expected ones."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if missing or extra:
        parts = [
            f"{word}: {_shown(names)}"
            for word, names in (("Missing", missing), ("Not expected", extra))
            if names
        ]
        raise TableError(
            f"{table} must have the feature columns of the first table ({_shown(expected)}; any "
            f"order). {'; '.join(parts)}. Select the same features in every table."
        )


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
        raise InputError(f"{name} must be one of {_shown(words)}, got {value!r}.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
