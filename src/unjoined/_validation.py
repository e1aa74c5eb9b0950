"""Every check on user input. Each returns the clean value, or says what is wrong.

A message names the argument as the user typed it, what was expected, what was found (at
most five values) and what to do. Code behind these checks trusts its arguments.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any
from unicodedata import normalize

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, column_or_1d

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike
from unjoined.errors import (
    InputError,
    LabelError,
    TableError,
    UnjoinedWarning,
    mask_secrets,
)

# Fits take features and outcomes up to this size: squares of squares still add up, and single
# precision can hold it. What is beyond, as a rule, stands for a missing value.
MANY = 3.0  # mean of whole numbers that are rather counts than weights
ENOUGH = 20  # rows to tell that
LARGEST = 1e30
SMALLEST = 1e-30  # differences of outcomes, for the same reasons
TURN_ROUND = "If less is better, turn it round in the tables (1 - it, or minus it) and fit again."
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
    text = mask_secrets(text)
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def shown(values: Iterable[Any]) -> str:
    """Return at most five values, for a message."""
    some = list(values)
    return ", ".join(_short(repr(v)) for v in some[:5]) + (
        ", ..." if len(some) > 5 else ""
    )


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


def check_worth(name: str, value: Any) -> float:
    """Return what an outcome is worth: more of it is better, or nothing."""
    if _is_number(value) and value < 0.0:
        raise InputError(
            f"{name} must be 0 or above, got {value:g}: more of the outcome is taken to be better. "
            f"{TURN_ROUND}"
        )
    return check_not_negative(name, value)


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


def check_bool(name: str, value: Any) -> bool:
    """Return what must be True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


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
            if dtype == nw.Object and all(
                isinstance(v, Real | Decimal) for v in values
            ):
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


def check_number_type(
    name: str, values: Any, error: type[InputError] = InputError
) -> None:
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


def check_finite_features(
    X: Array, names: Sequence[str] | None, *, table: str = "X"
) -> None:
    """Refuse missing and infinite features, naming the columns that hold them."""
    # One pass with a scalar result is cheap; the columns are looked at only when it fails.
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a sum may overflow, or be inf - inf
        total = X.sum(dtype=np.float64)
    if np.isfinite(total) or np.isfinite(X).all():
        return
    bad: BoolArray = ~np.isfinite(X)
    what = " and ".join(
        word
        for word, found in (("NaN", np.isnan(X)), ("inf", np.isinf(X)))
        if found.any()
    )
    raise InputError(
        f"features of {table} contain {what} in {_places(bad, names)}. Impute or remove these rows "
        "(for instance with scikit-learn's SimpleImputer); none is dropped silently."
    )


def check_feature_sizes(
    X: Array, names: Sequence[str] | None, *, table: str = "X"
) -> None:
    """Refuse features that are too large to be squared and added up, naming their columns."""
    if X.min(initial=0.0) >= -LARGEST and X.max(initial=0.0) <= LARGEST:
        return
    large: BoolArray = np.abs(X) > LARGEST
    raise InputError(
        f"features of {table} hold numbers beyond {LARGEST:g} in {_places(large, names)}, such as "
        f"{shown(X[large][:1].tolist())}. If they stand for missing values, impute or remove these "
        "rows; else divide the column by a power of ten."
    )


def _places(bad: BoolArray, names: Sequence[str] | None) -> str:
    """Say in how many rows and in which columns something is wrong."""
    columns = np.flatnonzero(bad.any(axis=0)).tolist()
    labels = [names[j] if names is not None else f"column {j}" for j in columns]
    return f"{int(bad.any(axis=1).sum())} of {len(bad)} rows, in {shown(labels)}"


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
            want in (None, length)
            for want, length in zip(shape, array.shape, strict=True)
        ):
            if np.isfinite(array).all():
                return
            found = "NaN or infinite ones"
    raise InputError(
        f"{name} must be an array of finite numbers, shape ({wanted}), got {found}."
    )


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


OUTCOME, TREATMENT, TARGET = "outcome", "treatment", "target"
KINDS = (OUTCOME, TREATMENT, TARGET)
NO_LABEL = KINDS.index(TARGET)  # the code of rows of people to be scored
CodeArray = NDArray[np.uint8]  # place of each row's kind among these


def check_length(name: str, values: Sequence[Any] | NDArray[Any], n: int) -> None:
    """Refuse ``values`` unless it has one entry per row of ``X``."""
    if len(values) != n:
        raise InputError(
            f"{name} has {len(values)} entries but X has {n} rows (n_samples={n}). "
            "Pass one entry per row, in the same order."
        )


def check_population(population: ArrayLike, code: CodeArray) -> NDArray[Any]:
    """Return populations as a one-dimensional array, present where a row has a label only."""
    raw = (
        population
        if hasattr(population, "dtype")
        else np.asarray(population, dtype=object)
    )
    array = np.asarray(raw)
    if array.ndim != 1:
        raise InputError(
            f"population must be one-dimensional, got shape {array.shape}."
        )
    n = len(code)
    check_length("population", array, n)
    # Missing values are looked for before anything becomes text: "nan" may be a real name.
    missing = _is_missing(array)
    target = code == NO_LABEL
    if (nameless := missing & ~target).any():
        raise LabelError(
            f"population is missing in {int(nameless.sum())} of {n} rows (first at row "
            f"{int(np.argmax(nameless))}). Name the population of every row that has a label."
        )
    if (unlabelled := target & ~missing).any():
        first = int(np.argmax(unlabelled))
        raise LabelError(
            f"{int(unlabelled.sum())} of {n} rows have a population but neither an outcome nor a "
            f"treatment (first at row {first}: {array[first]!s}). Fill in the label, or leave "
            "such rows out. People to be scored have no label and no population (None or NaN)."
        )
    if array.dtype.kind == "f" and missing.any():  # whole numbers beside NaN
        names = array[~missing]
        array = np.where(missing, 0.0, array)
        array = array.astype(np.int64) if (names == names.round()).all() else array
    if array.dtype.kind == "O":
        array = _plain_names(array, code)
    return _date_words(array) if array.dtype.kind in "mM" else array


def check_policies(policies: Any) -> list[str]:
    """Return the names of two populations or more that have a policy each, as text."""
    if not isinstance(policies, Mapping) or len(policies) < 2:
        found = (
            len(policies) if isinstance(policies, Mapping) else type(policies).__name__
        )
        raise InputError(
            f"policies must name two populations or more, got {found}. Uplift cannot be "
            "identified from one: pass a mapping of names to probabilities of treatment."
        )
    check_names(policies, "policies")
    return [population_name(name) for name in policies]


def _plain_names(array: NDArray[Any], code: CodeArray) -> NDArray[Any]:
    """Return names that came as objects as numbers, dates or text."""
    used = array[code != NO_LABEL].tolist()
    try:
        names = dict.fromkeys(used)
        plain = np.asarray(used)  # numbers stay numbers, strings get a width
    except (
        TypeError,
        ValueError,
    ):  # what has no hash, and sequences of several lengths
        names = {}
        plain = np.empty((0, 0))
    if plain.ndim != 1:
        raise LabelError(
            f"population must hold text, numbers or dates, got {shown(used[:1])}. Name the "
            "population of every row by one of these."
        )
    check_names(
        names, lambda name: kinds_of(name, array, code)
    )  # before 1 and "1" are the same
    plain = plain.astype(str) if plain.dtype.kind == "O" else plain
    whole = np.zeros(len(array), dtype=plain.dtype)
    whole[code != NO_LABEL] = plain
    return whole


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
            for about in (
                ", ".join(filter(None, ("" if alike else type(n).__name__, at(n)))),
            )
        )
        raise LabelError(
            f"populations {first} and {second} look like the same one. Did you mean one "
            "population? Then write its name in the same way in every table. Else give one of them "
            "another name."
        )


def kinds_of(name: Any, population: NDArray[Any], code: CodeArray) -> str:
    """Say which kinds of rows a population has."""
    rows = zip(code.tolist(), population.tolist(), strict=True)
    return (
        f"{' and '.join(dict.fromkeys(KINDS[k] for k, of in rows if of == name))} rows"
    )


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
    if array.dtype.kind == "U":
        return np.asarray(array == "")
    if array.dtype.kind != "O":
        return np.zeros(len(array), dtype=bool)
    return np.array([is_missing(v) or v == "" for v in array.tolist()], dtype=bool)


def is_missing(value: Any) -> bool:
    """Tell None, NaN, NaT and pandas' NA from values."""
    if isinstance(
        value, np.ndarray
    ):  # a cell of several values, which compare one by one
        return False
    same = value == value  # NaN is not equal to itself, and NA answers with itself
    return value is None or not (isinstance(same, bool | np.bool_) and same)


FIRST_ROWS = 1000  # these usually hold every value a column has
# Labels in words, in any case, and what they count as: yes and no in two dozen languages.
YES = (
    "yes y true t treated treatment ja j oui si sí sì sim tak ano áno da да так igen kyllä evet "
    "jah jā taip ναι はい 是 예 네 نعم כן हाँ có ya"  # noqa: RUF001
)
NO = (
    "no n false f control untreated nein nej nei nee non não nao nie ne нет ні не nu nem ei hayır "  # noqa: RUF001
    "hayir nē όχι いいえ 否 아니오 아니요 لا לא नहीं không tidak"
)
WORDS = dict.fromkeys(YES.split(), 1.0) | dict.fromkeys(NO.split(), 0.0)
SAY_TREATED = (
    "Say which value means treated, with treated=VALUE in SeparateLabels.from_tables, or --treated "
    "VALUE on the command line"
)
SAY_CONTROL = (
    "If these are several treatments, name the one that means none with control=VALUE (--control "
    "VALUE)."
)
SAY_WHICH = f"If they are amounts, such as a number of mails, say dose=True (--dose). {SAY_CONTROL}"


def check_labels(
    y: ArrayLike | None, treatment: ArrayLike | None, n: int
) -> tuple[Array, CodeArray, Array | None]:
    """Return each row's label, NaN if it has none, and of which of `KINDS` the row is, by code.

    A row with both labels is one of outcomes; its treatment is in a column of its own, NaN
    elsewhere, which is None if no row has both.
    """
    outcomes = _label_column("y", y, n, OUTCOME)
    treatments = _label_column("treatment", treatment, n, TREATMENT)
    has_outcome = ~np.isnan(outcomes)
    has_treatment = ~np.isnan(treatments)
    both = has_outcome & has_treatment
    large = has_outcome & (np.abs(outcomes) > LARGEST)
    if large.any():
        raise LabelError(
            f"y holds outcomes beyond {LARGEST:g} in {int(large.sum())} rows (first at row "
            f"{int(np.argmax(large))}: {outcomes[large][0]:g}). If they stand for missing values, "
            "remove these rows; else divide the outcome by a power of ten."
        )
    code = np.where(has_outcome, 0, np.where(has_treatment, 1, NO_LABEL)).astype(
        np.uint8
    )
    joint = np.where(both, treatments, np.nan) if both.any() else None
    return np.where(has_outcome, outcomes, treatments), code, joint


def arm_names(values: Iterable[Any], control: Any) -> tuple[str, ...]:
    """Return the names of treatments among some values, that of no treatment first."""
    names = {population_name(value) for value in values if not is_missing(value)}
    none = population_name(control)
    if none not in names:
        raise LabelError(
            f"control={control!r} is no treatment of any row; there are "
            f"{shown(sorted(names))}{did_you_mean(none, names)} Name the value that means no "
            "treatment."
        )
    arms = (none, *sorted(names - {none}))
    if len(arms) < 3:
        raise LabelError(
            f"with control={control!r} there is one other treatment or none, {shown(arms[1:])}. "
            "Leave control out, and code treatments 0/1."
        )
    check_names(arms, "a treatment")
    return arms


def arm_codes(
    treatment: ArrayLike | None, control: Any, n: int
) -> tuple[Array, tuple[str, ...]]:
    """Return each row's treatment as its place among the names, NaN where it has none."""
    if treatment is None:
        raise InputError("control names a treatment, but there is no column of them.")
    column = np.asarray(treatment)
    column = np.asarray(treatment, dtype=object) if column.dtype.kind == "U" else column
    check_length("treatment", column, n)
    there = ~_is_missing(column)
    values, at = np.unique(column[there].astype(str), return_inverse=True)
    first = {str(value): value for value in dict.fromkeys(column[there].tolist())}
    names = [population_name(first.get(value, value)) for value in values.tolist()]
    arms = arm_names(names, control)
    codes = np.full(n, np.nan)
    codes[there] = np.array([arms.index(name) for name in names], dtype=np.float64)[at]
    return codes, arms


def check_known_policy(
    policy: ArrayLike | None, n: int, *, is_dose: bool = False
) -> Array | None:
    """Return known probabilities of treatment, NaN where a row has none; None if no row has one.

    Where treatments are doses, these are mean doses, any numbers.
    """
    if policy is None:
        return None
    known = np.array(_label_column("policy", policy, n, "known policy"))
    outside = (known < 0.0) | (known > 1.0)
    if outside.any() and not is_dose:
        raise LabelError(
            "policy must be a probability of treatment, from 0 to 1, NaN where it is not known; "
            f"got {shown(known[outside].tolist())} in {int(outside.sum())} of {n} rows. Divide "
            "percentages by 100."
        )
    return None if np.isnan(known).all() else known


def _label_column(name: str, column: ArrayLike | None, n: int, kind: str) -> Array:
    """Return outcomes or treatments as float64, NaN where a row has none."""
    if column is None:
        return np.full(n, np.nan)
    raw = np.asarray(column)
    if raw.dtype.kind == "U" and not hasattr(column, "dtype"):
        raw = np.asarray(
            column, dtype=object
        )  # for else NaN beside words would be the word nan
    if raw.dtype.kind in "UO" and raw.shape == (n,):
        column = numbers_for_words(raw, kind)
    check_number_type(name, column, LabelError)
    vector: NDArray[Any] = np.asarray(column_or_1d(column, warn=True))
    check_length(name, vector, n)
    try:
        clean: Array = check_array(
            vector,
            ensure_2d=False,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=0,  # pieces may be empty
            input_name=name,
        )
    except ValueError as error:
        raise LabelError(
            f"{name} must hold numbers, NaN where a row has no {kind}: {error}"
        ) from error
    infinite = np.isinf(clean)
    if infinite.any():
        raise LabelError(
            f"{name} is infinite in {int(infinite.sum())} of {n} rows (first at row "
            f"{int(np.argmax(infinite))}). Remove these rows."
        )
    return clean


def label_codes(
    values: Iterable[Any], kind: str, treated: Any = None
) -> dict[Any, float]:
    """Return the number that each distinct label stands for, or ask which value means treated."""
    found = list(dict.fromkeys(values))
    if treated is not None:
        wanted = set(map(plain_name, treated_values(treated)))
        return {value: float(plain_name(value) in wanted) for value in found}
    codes = {value: _label_number(value) for value in found}
    if unknown := [value for value in found if codes[value] is None]:
        ways = "true/false, yes/no (or ja/nein, oui/non), y/n, t/f or treated/control, in any case"
        if kind == TREATMENT:
            raise LabelError(
                f"treatments must be 0/1, {ways}, got {shown(unknown)}. {SAY_TREATED}, and all "
                f"others count as untreated. {SAY_CONTROL}"
            )
        raise LabelError(
            f"outcomes must be numbers, or words ({ways}), got {shown(unknown)}. "
            f"{_outcome_remedy(str(unknown[0]))}"
        )
    return {value: code for value, code in codes.items() if code is not None}


def treated_values(treated: Any) -> list[Any]:
    """Return the values that mean treated: one, or a list of several."""
    return (
        [*treated] if isinstance(treated, list | tuple | set | frozenset) else [treated]
    )


def _outcome_remedy(word: str) -> str:
    """Say what to do with an outcome that is not a number."""
    if plain_name(word) in (
        "",
        "-",
        "?",
        "n/a",
        "na",
        "nan",
        "null",
        "none",
        "missing",
        "unknown",
    ):
        return "Leave out rows without an outcome."
    if re.fullmatch(r"\W*[0-9][0-9.,' ]*\W*[A-Za-z]{0,4}", word):
        return "Write the number alone, with a decimal point and without a unit."
    return (
        "Turn other words into numbers first, such as 1 for what you hope for and 0 "
        "for the rest."
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
        f"{SAY_TREATED}, and all others count as untreated. {SAY_WHICH}"
    )


def dose_spread(dose: Array, population: IntArray) -> float:
    """Return the standard deviation of doses within populations, or of all if it is 0."""
    if dose.min() == dose.max():
        raise LabelError(
            f"the dose is {dose[0]:g} in all {len(dose)} rows that have one; where nothing varies "
            "there is no effect of a dose to estimate. Check the treatment column."
        )
    size = np.maximum(np.bincount(population), 1)
    mean = np.bincount(population, dose) / size
    within = float(np.sqrt(np.mean((dose - mean[population]) ** 2)))
    return within if within > 1e-9 * np.ptp(dose) else float(dose.std())


def check_treated(treatment: ArrayLike) -> BoolArray:
    """Return which rows were treated; codes may be 0/1, False/True, -1/+1 or words for them."""
    codes = numbers_for_words(treatment, TREATMENT)
    treated: BoolArray = check_treatment(check_vector("treatment", codes)) > 0.0
    return treated


def numbers_for_words(labels: ArrayLike, kind: str) -> ArrayLike:
    """Return labels in words as numbers, NaN where one is missing; numbers as they are."""
    array = np.asarray(labels)
    values = array.tolist() if array.ndim == 1 and array.dtype.kind in "UO" else []
    if any(isinstance(value, str) for value in values):
        codes = label_codes((value for value in values if not is_missing(value)), kind)
        return np.array([codes.get(value, np.nan) for value in values])
    if array.ndim == 1 and array.dtype.kind == "O":
        return np.array(
            [np.nan if is_missing(value) else value for value in values], dtype=object
        )
    return labels


@dataclass(frozen=True, slots=True)
class OutcomeCoding:
    """How outcomes in the user's units are written inside: ``(y - offset) / scale``.

    An outcome of two values becomes -1/+1, the paper's coding, whichever two values it has,
    so that its coding changes nothing but the units. Other outcomes stay as they are. An
    uplift found inside is worth ``scale`` times as much outside; the offset cancels.

    Treatments that are real numbers count in ``dose`` of their units, which is None where people
    are treated or not. Outcomes are divided by it too, so that an uplift is per unit of dose.
    """

    offset: float
    scale: float
    is_binary: bool
    dose: float | None = None
    is_amount: bool = False  # 0 or more, so that one may be a multiple of another

    @property
    def is_rate(self) -> bool:
        """Whether outcomes are 0 or 1, so that their mean is a share of people."""
        return self.is_binary and self.offset == self.scale == 0.5

    def encode(self, y: Array) -> Array:
        """Return ``y`` in the inner coding."""
        if (
            self.is_binary
        ):  # exactly -1 and +1, which the arithmetic would reach but for rounding
            return np.where(y > self.offset, 1.0, -1.0)
        y = y if self.dose is None else y / self.dose
        return (y - self.offset) / self.scale

    def as_policy(self, mean: Array, margin: float = 0.0) -> Array:
        """Return mean treatments, which probabilities keep this far from 0 and 1."""
        return mean if self.dose is not None else np.clip(mean, margin, 1.0 - margin)


def check_outcome(y: Array, dose: float | None = None) -> OutcomeCoding:
    """Return the coding of the outcomes ``y``; refuse outcomes that never vary."""
    low = float(y.min())
    high = float(y.max())
    if low == high:
        raise LabelError(
            f"the outcome is {low:g} in all {len(y)} outcome rows (n_samples={len(y)}); where "
            "nothing varies there is no uplift to estimate. Check the outcome column and how its "
            "rows were chosen."
        )
    if high - low < SMALLEST:
        raise LabelError(
            f"the outcome varies by {high - low:g} over {len(y)} outcome rows, and squares of such "
            f"differences are lost. Multiply it by a power of ten, so that it varies by "
            f"{SMALLEST:g} or more."
        )
    if dose is None and np.all((y == low) | (y == high)):
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        return OutcomeCoding(middle, half, is_binary=True, is_amount=low == 0.0)
    # Of doses a base is that of no dose, which few may have.
    amount = dose is None and low >= 0.0
    return OutcomeCoding(0.0, 1.0, is_binary=False, is_amount=amount, dose=dose)


def check_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Return row weights as float64, ones if none were given."""
    if sample_weight is None:
        return np.ones(n)
    check_number_type("sample_weight", sample_weight, LabelError)
    weight: Array = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.ndim != 1:
        raise InputError(
            f"sample_weight must be one-dimensional, got shape {weight.shape}."
        )
    check_length("sample_weight", weight, n)
    bad = ~np.isfinite(weight) | (weight < 0.0)
    if bad.any():
        raise LabelError(
            f"sample_weight must be finite and not negative, got {shown(weight[bad].tolist())} "
            f"in {int(bad.sum())} of {n} rows. Give rows that should not count the weight 0."
        )
    return weight


def warn_of_counts(weight: Array, *, stacklevel: int) -> None:
    """Warn of weights that are rather numbers of people."""
    if len(weight) < ENOUGH or weight.max() > LARGEST or (weight % 1.0).any():
        return
    if (mean := float(weight.mean())) >= MANY and np.ptp(weight) > 0.0:
        warnings.warn(
            f"sample_weight is a whole number in all {len(weight):,} rows, {mean:,.1f} on average. "
            "If a row stands for so many people, give them as count: errors take a weight for how "
            "much one person matters.",
            UnjoinedWarning,
            stacklevel=stacklevel + 1,
        )


def check_people(count: ArrayLike | None, n: int) -> Array | None:
    """Return how many people each row stands for, None if every row is a person."""
    if count is None:
        return None
    check_number_type("count", count, LabelError)
    people: Array = np.asarray(count, dtype=np.float64)
    if people.ndim != 1:
        raise InputError(f"count must be one-dimensional, got shape {people.shape}.")
    check_length("count", people, n)
    bad = ~np.isfinite(people) | (people < 0.0) | (people % 1.0 != 0.0)
    if bad.any():
        raise LabelError(
            f"count must be a whole number of people, got {shown(people[bad].tolist())} in "
            f"{int(bad.sum())} of {n} rows. A cell that was suppressed has no count: leave it out. "
            "What only says how much a row matters is a sample_weight."
        )
    return people


def check_cluster(cluster: ArrayLike | None, n: int) -> IntArray | None:
    """Return 64 bits for the cluster of each row, the same for a name wherever it comes up.

    A whole number stands for itself, also as text.
    """
    if cluster is None:
        return None
    values = np.asarray(cluster, dtype=None if hasattr(cluster, "dtype") else object)
    if values.ndim != 1:
        raise InputError(f"cluster must be one-dimensional, got shape {values.shape}.")
    check_length("cluster", values, n)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    names = dict.fromkeys(values.tolist())
    if missing := [name for name in names if is_missing(name) or name == ""]:
        n_missing = sum(is_missing(value) or value == "" for value in values.tolist())
        raise LabelError(
            f"cluster is {missing[0]!r} in {n_missing:,} of {n:,} rows. Name the cluster of every "
            "row; a row that depends on no other has a name of its own."
        )
    keys = {name: _cluster_key(population_name(name)) for name in names}
    return np.array([keys[value] for value in values.tolist()], dtype=np.int64)


def _cluster_key(name: str) -> int:
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", name):
        return int(name)
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


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
    code: CodeArray,
    population: NDArray[Any],
    weight: Array,
    exposure: Array | None = None,
) -> tuple[list[Any], IntArray]:
    """Return the names of the populations and each row's population as 0, 1 and so on.

    There must be at least two of them, or rows whose ``exposure``, treatment or its probability,
    is known beside the outcome, and varies. Rows without a label belong to none; their entry is
    -1. Names are sorted, so that the order of rows changes nothing. A cell whose rows all have
    weight 0 counts as empty.
    """
    is_target = code == NO_LABEL
    labelled = ~is_target & (weight > 0.0)
    names = distinct(population[labelled])
    check_names(names, lambda name: kinds_of(name, population, code))
    n = len(code)
    if n and not weight.any():
        raise LabelError(
            f"sample_weight is zero in all {n} rows (n_samples={n}), so that no row counts. Give "
            "the rows that should count a positive weight."
        )
    is_known = np.zeros(n, dtype=bool)
    if exposure is not None:
        is_known = ~np.isnan(exposure) & (code == KINDS.index(OUTCOME))
    varies = exposure is not None and np.ptp(exposure[is_known & labelled]) > 0.0
    if len(names) < 2 and not (varies and names):
        check_two(names, f"found {{}} in n_samples={n} rows")
    index = np.full(n, -1, dtype=np.int64)
    for k, name in enumerate(names):
        index[(population == name) & ~is_target] = k
    for k, name in enumerate(names):
        for which in (OUTCOME, TREATMENT):
            there = (code == KINDS.index(which)) & (index == k)
            if (
                which == TREATMENT
            ):  # treatments of outcome rows, or their policy, do as well
                there |= is_known & (index == k)
            if not (labelled & there).any():
                lacks = "no weight above 0 in its" if there.any() else "no"
                raise LabelError(
                    f"population {name!r} has {lacks} {which} rows; each population needs an "
                    f"{OUTCOME} table and a {TREATMENT} table, under one name, or a known policy "
                    f"in place of its treatments (n_samples={n} rows in all). Folds of "
                    "cross-validation: see CellKFold."
                )
    return names, index


def unit_mean(weight: Array) -> Array:
    """Return positive weights in the same ratios with mean 1, and equal ones as exactly 1."""
    if not len(weight) or weight.min() == weight.max():
        return np.ones(len(weight))
    near_one = weight / weight.max()  # sums of weights as large as 1e308 would overflow
    return np.asarray(near_one / near_one.mean())
