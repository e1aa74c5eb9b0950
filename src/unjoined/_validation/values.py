"""Columns handed to metrics and targeting rules: one finite number per row."""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray
from unjoined._validation.features import check_number_type
from unjoined._validation.labels import check_treatment
from unjoined._validation.parameters import shown
from unjoined.errors import InputError, LabelError


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


def check_treated(treatment: ArrayLike) -> BoolArray:
    """Return which rows were treated; codes may be 0/1, False/True or -1/+1."""
    treated: BoolArray = check_treatment(check_vector("treatment", treatment)) > 0.0
    return treated


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
            "A score is no probability: make a rule of it first, such as `optimal_rule`."
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
