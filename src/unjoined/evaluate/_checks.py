"""Checks on what users hand to the metrics and targeting rules.

Each check returns the clean float64 (or bool) array, so that everything behind it may
trust its arguments. Messages say what was expected, what was found and what to do.
"""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray
from unjoined.errors import InputError, LabelError

__all__ = [
    "check_both_arms",
    "check_choice",
    "check_cost",
    "check_non_negative",
    "check_outcome_is_binary",
    "check_probability",
    "check_propensity",
    "check_same_length",
    "check_share",
    "check_treated",
    "check_vector",
]


def check_vector(column: ArrayLike, name: str) -> Array:
    """Return ``column`` as a non-empty, finite, one-dimensional float64 array."""
    try:
        clean = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`{name}` must hold numbers, and they could not be read as such ({error}). "
            "Convert the column to a numeric type."
        ) from error
    if clean.ndim != 1:
        raise InputError(
            f"`{name}` must be one-dimensional, got shape {clean.shape}. "
            "Pass one column, for example `column.ravel()`."
        )
    if clean.size == 0:
        raise InputError(f"`{name}` is empty. Pass at least one row.")
    bad = np.flatnonzero(~np.isfinite(clean))
    if bad.size:
        raise InputError(
            f"`{name}` must be finite, got {clean[bad[:5]].tolist()} in {bad.size} row(s), "
            f"the first at position {bad[0]}. Drop or repair these rows."
        )
    return clean


def check_same_length(**columns: Array) -> None:
    """Refuse columns that do not have one entry per row each."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"`{name}` has {length}" for name, length in lengths.items())
        raise InputError(
            f"all columns must have one entry per row, but {found}. Pass columns of the same rows."
        )


def check_treated(treatment: ArrayLike, name: str = "treatment") -> BoolArray:
    """Return which rows were treated; codes may be 0/1, False/True or -1/+1."""
    clean = check_vector(treatment, name)
    codes = np.unique(clean)
    if not (np.isin(codes, (0.0, 1.0)).all() or np.isin(codes, (-1.0, 1.0)).all()):
        raise LabelError(
            f"`{name}` must be coded 0/1, False/True or -1/+1, got {codes[:5].tolist()}. "
            "Turn a treatment of several levels into one column per contrast."
        )
    treated: BoolArray = clean == 1.0
    return treated


def check_both_arms(treated: BoolArray) -> None:
    """Refuse rows of one arm only: they say nothing about a difference."""
    if treated.all() or not treated.any():
        raise LabelError(
            f"`treatment` must hold treated and untreated rows, got {int(treated.sum())} treated "
            f"of {treated.size}. Evaluate on rows of both arms."
        )


def check_outcome_is_binary(y: Array) -> None:
    """Refuse outcomes other than 0 and 1, which the convention is not defined for."""
    codes = np.unique(y)
    if not np.isin(codes, (0.0, 1.0)).all():
        raise LabelError(
            f"this convention is defined for outcomes 0 and 1 only, got {codes[:5].tolist()} in "
            "`y`. Use `auuc` or `qini` on `joint_values`, which take any outcome."
        )


def check_propensity(propensity: ArrayLike, n_rows: int) -> Array:
    """Return one treatment probability per row, each strictly between 0 and 1."""
    clean = _check_one_per_row(propensity, "propensity", n_rows)
    outside = (clean <= 0.0) | (clean >= 1.0)
    if outside.any():
        raise InputError(
            "`propensity` must lie strictly between 0 and 1, got "
            f"{clean[outside][:5].tolist()} in {int(outside.sum())} row(s). Leave out rows that "
            "could not have been treated, or could not have been left untreated."
        )
    return clean


def check_share(share: float, name: str, *, zero_allowed: bool) -> float:
    """Return ``share`` as a float in (0, 1], or in [0, 1] when zero is allowed."""
    clean = float(share)
    if not (0.0 < clean <= 1.0 or (zero_allowed and clean == 0.0)):
        bracket = "[0, 1]" if zero_allowed else "(0, 1]"
        raise InputError(
            f"`{name}` must lie in {bracket}, got {share}. "
            "It is a share of the rows: write 0.3 for 30 percent."
        )
    return clean


def check_probability(rule: ArrayLike, name: str = "rule") -> Array:
    """Return treatment probabilities, or a yes/no rule, as float64 in [0, 1]."""
    clean = check_vector(rule, name)
    outside = (clean < 0.0) | (clean > 1.0)
    if outside.any():
        raise InputError(
            f"`{name}` must hold probabilities in [0, 1] or booleans, got "
            f"{clean[outside][:5].tolist()} in {int(outside.sum())} row(s). "
            "Turn scores into a rule first, for example with `optimal_rule`."
        )
    return clean


def check_cost(cost: ArrayLike, n_rows: int) -> Array:
    """Return one positive cost per row."""
    clean = _check_one_per_row(cost, "cost", n_rows)
    if (clean <= 0.0).any():
        wrong = clean[clean <= 0.0]
        raise InputError(
            f"`cost` must be positive, got {wrong[:5].tolist()} in {wrong.size} row(s). "
            "Treat rows that cost nothing outside the budget, with `optimal_rule`."
        )
    return clean


def check_non_negative(number: float, name: str) -> float:
    """Return ``number`` as a finite float of at least 0."""
    clean = float(number)
    if not (np.isfinite(clean) and clean >= 0.0):
        raise InputError(
            f"`{name}` must be a finite number of at least 0, got {number}. "
            "Without a limit, use `optimal_rule`."
        )
    return clean


def check_choice(choice: str, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a string option that does not exist."""
    if choice not in allowed:
        options = ", ".join(repr(option) for option in allowed)
        raise InputError(f"`{name}` must be one of {options}, got {choice!r}. Pick one of these.")


def _check_one_per_row(column: ArrayLike, name: str, n_rows: int) -> Array:
    """Return a column of ``n_rows`` entries; a single number stands for all of them."""
    raw = np.asarray(column)
    if raw.ndim == 0:
        return np.full(n_rows, check_vector(raw.reshape(1), name)[0])
    clean = check_vector(raw, name)
    if len(clean) != n_rows:
        raise InputError(
            f"`{name}` must be one number or one per row ({n_rows}), got {len(clean)}. "
            "Pass a single number, or a column of the same rows."
        )
    return clean
