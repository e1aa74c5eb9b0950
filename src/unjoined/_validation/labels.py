"""Labels: kinds, treatments, outcomes, words for them, weights, and the four cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray
from unjoined._validation.names import (
    KINDS,
    OUTCOME,
    TARGET,
    TREATMENT,
    check_length,
    check_names,
    is_kind,
    is_missing,
    kinds_of,
    plain_name,
)
from unjoined._validation.values import (
    LARGEST,
    SMALLEST,
    check_number_type,
    check_vector,
    shown,
)
from unjoined.errors import InputError, LabelError

FIRST_ROWS = 1000  # these usually hold every value a column has
# Labels in words, in any case, and what they count as.
WORDS = dict.fromkeys(("yes", "y", "true", "t", "treated"), 1.0) | dict.fromkeys(
    ("no", "n", "false", "f", "control", "untreated"), 0.0
)
SAY_TREATED = (
    "Say which value means treated, with treated=VALUE in from_tables or from_frames, or --treated "
    "VALUE on the command line"
)


def check_kind(kind: ArrayLike, n: int) -> NDArray[np.str_]:
    """Return ``kind`` as strings, each one of ``"outcome"``, ``"treatment"``, ``"target"``."""
    clean = np.asarray(kind)
    if clean.ndim != 1:
        raise InputError(f"kind must be one-dimensional, got shape {clean.shape}.")
    check_length("kind", clean, n)
    clean = clean.astype(str, copy=False)
    # Comparing is several times as fast as sorting; what is unknown is looked at if there is any.
    known = (clean == OUTCOME) | (clean == TREATMENT)
    if not known.all():
        known |= clean == TARGET
    if not known.all():
        unknown = np.unique(clean[~known])
        raise LabelError(
            f"kind must be one of {shown(KINDS)}, got {shown(unknown.tolist())}. "
            "It says which label the row carries."
        )
    return clean


def check_labels(y: ArrayLike, kind: NDArray[np.str_]) -> Array:
    """Return ``y`` as float64: finite where the row is labelled, NaN where ``kind`` is target."""
    if np.shape(y) == np.shape(kind):
        y = numbers_for_words(y, kind)
    check_number_type("y", y, LabelError)
    column: NDArray[Any] = np.asarray(column_or_1d(y, warn=True))
    check_length("y", column, len(kind))
    try:
        clean: Array = check_array(
            column, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y"
        )
    except ValueError as error:
        raise LabelError(f"y must hold numbers, one label per row: {error}") from error
    target = is_kind(kind, TARGET)
    if (labelled := target & ~np.isnan(clean)).any():
        raise LabelError(
            f"rows of kind 'target' carry no label, but y holds values in {int(labelled.sum())} "
            f"of them (first at row {int(np.argmax(labelled))}). Set y to NaN there."
        )
    infinite = ~np.isfinite(clean)
    for name in (OUTCOME, TREATMENT):
        if not infinite.any():
            break
        is_named = is_kind(kind, name)
        bad = is_named & infinite
        if bad.any():
            raise LabelError(
                f"y holds NaN or infinite {name} labels in {int(bad.sum())} of "
                f"{int(is_named.sum())} {name} rows (first at row {int(np.argmax(bad))}). "
                "Remove these rows, or give them kind 'target' if their label is unknown."
            )
    large = is_kind(kind, OUTCOME) & (np.abs(clean) > LARGEST)
    if large.any():
        raise LabelError(
            f"y holds outcomes beyond {LARGEST:g} in {int(large.sum())} rows (first at row "
            f"{int(np.argmax(large))}: {clean[large][0]:g}). If they stand for missing values, "
            "remove these rows; else divide the outcome by a power of ten."
        )
    return clean


def label_codes(values: Iterable[Any], kind: str, treated: Any = None) -> dict[Any, float]:
    """Return the number that each distinct label stands for, or ask which value means treated."""
    found = list(dict.fromkeys(values))
    if treated is not None:
        wanted = set(map(plain_name, treated_values(treated)))
        return {value: float(plain_name(value) in wanted) for value in found}
    codes = {value: _label_number(value) for value in found}
    if unknown := [value for value in found if codes[value] is None]:
        ways = "true/false, yes/no, y/n, t/f or treated/control, in any case"
        if kind == TREATMENT:
            raise LabelError(
                f"treatments must be 0/1, {ways}, got {shown(unknown)}. {SAY_TREATED}, and all "
                "others count as untreated."
            )
        raise LabelError(
            f"outcomes must be numbers, or words ({ways}), got {shown(unknown)}. "
            f"{_outcome_remedy(str(unknown[0]))}"
        )
    return {value: code for value, code in codes.items() if code is not None}


def treated_values(treated: Any) -> list[Any]:
    """Return the values that mean treated: one, or a list of several."""
    return [*treated] if isinstance(treated, list | tuple | set | frozenset) else [treated]


def _outcome_remedy(word: str) -> str:
    """Say what to do with an outcome that is not a number."""
    if plain_name(word) in ("", "-", "?", "n/a", "na", "nan", "null", "none", "missing", "unknown"):
        return "Leave out rows without an outcome."
    if re.fullmatch(r"\W*[0-9][0-9.,' ]*\W*[A-Za-z]{0,4}", word):
        return "Write the number alone, with a decimal point and without a unit."
    return (
        "Turn other words into numbers first, such as 1 for what you hope for and 0 for the rest."
    )


def _label_number(value: Any) -> float | None:
    """Return what one label counts as, None if nobody but its owner can say."""
    if isinstance(value, str):
        name = plain_name(value)
        return float(name) if isinstance(name, Decimal) else WORDS.get(name)
    return float(value) if isinstance(value, Real | Decimal | np.bool_) else None


def check_treatment(t: Array) -> Array:
    """Return ``t`` as float64 in the paper's coding, -1 (not treated) and +1 (treated)."""
    treated = t == 1.0
    if (treated | (t == 0.0)).all():
        return 2.0 * t - 1.0
    if (treated | (t == -1.0)).all():
        return np.asarray(t, dtype=np.float64)
    codes = np.unique(t)
    raise LabelError(
        f"treatment labels must be coded 0/1, False/True or -1/+1, got {shown(codes.tolist())}. "
        f"{SAY_TREATED}, and all others count as untreated."
    )


def check_treated(treatment: ArrayLike) -> BoolArray:
    """Return which rows were treated; codes may be 0/1, False/True, -1/+1 or words for them."""
    codes = numbers_for_words(treatment, TREATMENT)
    treated: BoolArray = check_treatment(check_vector("treatment", codes)) > 0.0
    return treated


def numbers_for_words(labels: ArrayLike, kind: NDArray[np.str_] | str) -> ArrayLike:
    """Return labels in words as numbers, and all others as they are; of one kind, or of several."""
    array = np.asarray(labels)
    values = array.tolist() if array.ndim == 1 and array.dtype.kind in "UO" else []
    if not any(isinstance(value, str) for value in values):
        return labels
    if isinstance(kind, str):
        codes = label_codes((value for value in values if not is_missing(value)), kind)
        return np.array([codes.get(value, np.nan) for value in values])
    numbers = np.full(len(array), np.nan)
    for which in KINDS:
        at = is_kind(kind, which)
        numbers[at] = numbers_for_words(array[at], which)
    return numbers


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
        if self.is_binary:  # exactly -1 and +1, which the arithmetic would reach but for rounding
            return np.where(y > self.offset, 1.0, -1.0)
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
    if high - low < SMALLEST:
        raise LabelError(
            f"the outcome varies by {high - low:g} over {len(y)} outcome rows, and squares of such "
            f"differences are lost. Multiply it by a power of ten, so that it varies by "
            f"{SMALLEST:g} or more."
        )
    return OutcomeCoding(0.0, 1.0, is_binary=False)


def check_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Return row weights as float64, ones if none were given."""
    if sample_weight is None:
        return np.ones(n)
    check_number_type("sample_weight", sample_weight, LabelError)
    weight: Array = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.ndim != 1:
        raise InputError(f"sample_weight must be one-dimensional, got shape {weight.shape}.")
    check_length("sample_weight", weight, n)
    bad = ~np.isfinite(weight) | (weight < 0.0)
    if bad.any():
        raise LabelError(
            f"sample_weight must be finite and not negative, got {shown(weight[bad].tolist())} "
            f"in {int(bad.sum())} of {n} rows. Give rows that should not count the weight 0."
        )
    return weight


def distinct(values: NDArray[Any]) -> list[Any]:
    """Return the different values, sorted."""
    first: NDArray[Any] = np.unique(values[:FIRST_ROWS])
    # Comparing with the two of the first rows is several times as fast as sorting them all.
    if len(first) == 2 and ((values == first[0]) | (values == first[1])).all():
        return list(first.tolist())
    return list(np.unique(values).tolist())


def check_two(names: Sequence[Any], found: str, instead: str = "") -> None:
    """Refuse other than two populations; ``instead`` says what to do with more of them."""
    if len(names) == 2:
        return
    some = f"{len(names)}{': ' + shown(names) if len(names) else ''}"
    way_out = f"Choose two of them{', or ' if instead else ''}{instead}."
    raise LabelError(
        f"two populations with different treatment policies are needed, {found.format(some)}. "
        + (way_out if len(names) > 2 else "Uplift cannot be identified from one.")
    )


def check_cells(
    kind: NDArray[np.str_], population: NDArray[Any], weight: Array, *, several: bool = False
) -> tuple[list[Any], IntArray]:
    """Return the names of the populations and each row's population as 0, 1 and so on.

    There must be two of them, or at least two if ``several``. Rows of kind "target" belong to
    none; their entry is -1. Names are sorted, so that the order of rows changes nothing. A cell
    whose rows all have weight 0 counts as empty.
    """
    is_target = is_kind(kind, TARGET)
    kinds = {which: is_kind(kind, which) for which in (OUTCOME, TREATMENT)}
    labelled = ~is_target & (weight > 0.0)
    names = distinct(population[labelled])
    check_names(names, lambda name: kinds_of(name, population, kind))
    n = len(kind)
    if n and not weight.any():
        raise LabelError(
            f"sample_weight is zero in all {n} rows (n_samples={n}), so that no row counts. Give "
            "the rows that should count a positive weight."
        )
    if len(names) < 2 or not several:
        instead = "use Uplift or MixtureUplift, which take any number"
        check_two(names, f"found {{}} in n_samples={n} rows", instead)
    index = np.full(n, -1, dtype=np.int64)
    for k, name in enumerate(names):
        index[(population == name) & ~is_target] = k
    for k, name in enumerate(names):
        for which in (OUTCOME, TREATMENT):
            if not (labelled & kinds[which] & (index == k)).any():
                there = kinds[which] & (index == k)
                lacks = "no weight above 0 in its" if there.any() else "no"
                raise LabelError(
                    f"population {name!r} has {lacks} {which} rows; each population needs an "
                    f"{OUTCOME} table and a {TREATMENT} table, under one name "
                    f"(n_samples={n} rows in all). Folds of cross-validation: see CellKFold."
                )
    return names, index


def unit_mean(weight: Array) -> Array:
    """Return positive weights in the same ratios with mean 1, and equal ones as exactly 1."""
    if not len(weight) or weight.min() == weight.max():
        return np.ones(len(weight))
    near_one = weight / weight.max()  # sums of weights as large as 1e308 would overflow
    return np.asarray(near_one / near_one.mean())
