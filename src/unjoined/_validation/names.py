"""Names of populations: text, numbers or dates, one way to write each; and what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import ArrayLike, BoolArray
from unjoined._validation.values import shown
from unjoined.errors import InputError, LabelError

OUTCOME, TREATMENT, TARGET = "outcome", "treatment", "target"
KINDS = (OUTCOME, TREATMENT, TARGET)


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
    check_names(names, lambda name: kinds_of(name, array, kind))  # before 1 and "1" are the same
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
        other = seen.setdefault(plain_name(name), name)
        if name == other:
            continue
        alike = type(name) is type(other)  # else the types are what differs
        first, second = (
            f"{n!r}" + (f" ({about})" if about else "")
            for n in (other, name)
            for about in (", ".join(filter(None, ("" if alike else type(n).__name__, at(n)))),)
        )
        raise LabelError(
            f"populations {first} and {second} look like the same one. Did you mean one "
            "population? Then write its name in the same way in every table. Else give one of them "
            "another name."
        )


def kinds_of(name: Any, population: NDArray[Any], kind: NDArray[np.str_]) -> str:
    """Say which kinds of rows a population has."""
    rows = zip(kind.tolist(), population.tolist(), strict=True)
    return f"{' and '.join(dict.fromkeys(k for k, of in rows if of == name))} rows"


def plain_name(name: Any) -> Any:
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
    if isinstance(value, np.ndarray):  # a cell of several values, which compare one by one
        return False
    same = value == value  # NaN is not equal to itself, and NA answers with itself
    return value is None or not (isinstance(same, bool | np.bool_) and same)
