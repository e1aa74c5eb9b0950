"""Labels: kinds, populations, treatments, outcomes, weights, and the four cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray
from unjoined._validation.values import (
    LARGEST,
    SMALLEST,
    check_number_type,
    check_vector,
    shown,
)
from unjoined.errors import InputError, LabelError

OUTCOME, TREATMENT, TARGET = "outcome", "treatment", "target"
KINDS = (OUTCOME, TREATMENT, TARGET)
FIRST_ROWS = 1000  # these usually hold every value a column has


def check_length(name: str, values: Sequence[Any] | NDArray[Any], n: int) -> None:
    """Refuse ``values`` unless it has one entry per row of ``X``."""
    if len(values) != n:
        raise InputError(
            f"{name} has {len(values)} entries but X has {n} rows (n_samples={n}). "
            "Pass one entry per row, in the same order."
        )


def is_kind(kind: NDArray[np.str_], which: str) -> BoolArray:
    """Return which rows are of a kind; ``kind`` was checked, so that the second letter tells."""
    if not len(kind):
        return np.zeros(0, dtype=bool)
    letter = np.dtype(np.uint32).newbyteorder(kind.dtype.byteorder)
    letters = np.ascontiguousarray(kind).view(letter).reshape(len(kind), -1)
    return np.asarray(letters[:, 1] == ord(which[1]))


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


def check_population(population: ArrayLike, kind: NDArray[np.str_]) -> NDArray[Any]:
    """Return populations as a one-dimensional array, present wherever a row has a label."""
    raw = population if hasattr(population, "dtype") else np.asarray(population, dtype=object)
    array = np.asarray(raw)
    if array.ndim != 1:
        raise InputError(f"population must be one-dimensional, got shape {array.shape}.")
    n = len(kind)
    check_length("population", array, n)
    # Missing values are looked for before anything becomes text: "nan" may be a real name.
    missing = _is_missing(array)
    if missing.any():
        missing &= ~is_kind(kind, TARGET)
    if missing.any():
        raise LabelError(
            f"population is missing in {int(missing.sum())} of {n} rows (first at row "
            f"{int(np.argmax(missing))}). Name the population of every row."
        )
    if array.dtype.kind == "O":
        array = _plain_names(array, kind)
    return _date_words(array) if array.dtype.kind in "mM" else array


def check_policies(policies: Any) -> list[str]:
    """Return the names of two populations or more that have a policy each, as text."""
    if not isinstance(policies, Mapping) or len(policies) < 2:
        found = len(policies) if isinstance(policies, Mapping) else type(policies).__name__
        raise InputError(
            f"policies must name two populations or more, got {found}. Uplift cannot be "
            "identified from one: pass a mapping of names to probabilities of treatment."
        )
    check_names(policies, "policies")
    return [population_name(name) for name in policies]


def _plain_names(array: NDArray[Any], kind: NDArray[np.str_]) -> NDArray[Any]:
    """Return names that came as objects as numbers, dates or text."""
    used = array[~is_kind(kind, TARGET)].tolist()
    try:
        names = dict.fromkeys(used)
        plain = np.asarray(array.tolist())  # numbers stay numbers, strings get a width
    except (TypeError, ValueError):  # what has no hash, and sequences of several lengths
        names, plain = {}, np.empty((0, 0))
    if plain.ndim != 1:
        raise LabelError(
            f"population must hold text, numbers or dates, got {shown(used[:1])}. Name the "
            "population of every row by one of these."
        )
    check_names(names, lambda name: _kinds_of(name, array, kind))  # before 1 and "1" are the same
    return plain.astype(str) if plain.dtype.kind == "O" else plain


def _date_words(array: NDArray[Any]) -> NDArray[Any]:
    """Return dates, or spans of time, as text, which unlike their types all files can keep."""
    values, at = np.unique(array, return_inverse=True)
    fine = np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as")
    # Finer ones than Python's come back as plain numbers.
    known = values.astype(f"{array.dtype.kind}8[us]") if fine else values
    pairs = zip(known, values, strict=True)
    return np.array([str(k.item() if k == value else value) for k, value in pairs])[at]


def check_names(names: Iterable[Any], place: Callable[[Any], str] | str = "") -> None:
    """Refuse populations whose names differ in type, capitals, spaces or a number's form only."""

    def at(name: Any) -> str:
        return place(name) if callable(place) else place

    seen: dict[Any, Any] = {}
    for name in names:
        if is_missing(name):
            where = f" ({at(name)})" if at(name) else ""
            raise LabelError(f"a population is missing its name, got {name!r}{where}.")
        other = seen.setdefault(_plain_name(name), name)
        if name == other:
            continue
        first, second = (
            f"{n!r} ({', '.join(filter(None, (type(n).__name__, at(n))))})" for n in (other, name)
        )
        raise LabelError(
            f"populations {first} and {second} look like the same one. Did you mean one "
            "population? Then write its name in the same way in every table. Else give one of them "
            "another name."
        )


def _kinds_of(name: Any, population: NDArray[Any], kind: NDArray[np.str_]) -> str:
    """Say which kinds of rows a population has."""
    rows = zip(kind.tolist(), population.tolist(), strict=True)
    return f"{' and '.join(dict.fromkeys(k for k, of in rows if of == name))} rows"


def _plain_name(name: Any) -> Any:
    """Return what names have in common that people would take for the same."""
    text = " ".join(normalize("NFKC", str(name)).casefold().split())
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{1,3})?", text):
        return Decimal(text)
    return text


def population_name(name: Any) -> str:
    """Return a name as text. Numbers are written in the shortest way, so that 1.0 is 1."""
    if isinstance(name, float | np.floating | Decimal) and name == name // 1:
        return str(int(name))
    return str(name)


def _is_missing(array: NDArray[Any]) -> BoolArray:
    if array.dtype.kind in "fmM":
        return np.asarray(array != array)  # NaN and NaT are not equal to themselves
    if array.dtype.kind != "O":
        return np.zeros(len(array), dtype=bool)
    return np.array([is_missing(v) for v in array.tolist()], dtype=bool)


def is_missing(value: Any) -> bool:
    """Tell None, NaN, NaT and pandas' NA from values."""
    same = value == value  # NaN is not equal to itself, and NA answers with itself
    return value is None or not (isinstance(same, bool | np.bool_) and same)


def check_labels(y: ArrayLike, kind: NDArray[np.str_]) -> Array:
    """Return ``y`` as float64: finite where the row is labelled, NaN where ``kind`` is target."""
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
        "Turn a treatment of several levels into one column per contrast."
    )


def check_treated(treatment: ArrayLike) -> BoolArray:
    """Return which rows were treated; codes may be 0/1, False/True or -1/+1."""
    treated: BoolArray = check_treatment(check_vector("treatment", treatment)) > 0.0
    return treated


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
    check_names(names, lambda name: _kinds_of(name, population, kind))
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
                raise LabelError(
                    f"population {name!r} has no {which} rows with positive weight; each "
                    f"population needs an {OUTCOME} table and a {TREATMENT} table "
                    f"(n_samples={n} rows in all). To cross-validate, split with CellKFold."
                )
    return names, index


def unit_mean(weight: Array) -> Array:
    """Return positive weights in the same ratios with mean 1, and equal ones as exactly 1."""
    if not len(weight) or weight.min() == weight.max():
        return np.ones(len(weight))
    near_one = weight / weight.max()  # sums of weights as large as 1e308 would overflow
    return np.asarray(near_one / near_one.mean())
