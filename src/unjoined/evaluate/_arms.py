"""Treated and untreated rows accumulated from the best score down.

What the conventions of other packages are built from. Arguments are trusted, but for the
two functions named ``check_*``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray
from unjoined._validation import (
    check_both_arms,
    check_same_length,
    check_treated,
    check_vector,
)
from unjoined.errors import InputError
from unjoined.evaluate._curve import trapezoid
from unjoined.evaluate._ties import TieGroups, group_with_ties_in_row_order

__all__ = [
    "Arms",
    "arms_from_top",
    "check_and_accumulate",
    "check_rows",
    "interpolate_from_zero",
    "mean_or_zero",
    "normalize_by_last",
    "qini_points",
    "share_of_area",
    "uplift_points",
]


@dataclass(frozen=True, slots=True)
class Arms:
    """Weighted row counts and outcome sums by arm over the best 1, 2, ... groups."""

    n_treated: Array
    n_control: Array
    y_treated: Array
    y_control: Array


def arms_from_top(
    order: TieGroups, y: Array, treated: BoolArray, weight: Array | None = None
) -> Arms:
    """Accumulate both arms from the best-scored group downwards."""
    each = np.ones(len(y)) if weight is None else weight
    treated_weight = np.where(treated, each, 0.0)
    control_weight = np.where(treated, 0.0, each)
    return Arms(
        n_treated=order.sums_from_top(treated_weight),
        n_control=order.sums_from_top(control_weight),
        y_treated=order.sums_from_top(treated_weight * y),
        y_control=order.sums_from_top(control_weight * y),
    )


def mean_or_zero(total: Array, count: Array) -> Array:
    """Return ``total / count``, and 0 where nothing has been counted."""
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0.0)


def uplift_points(arms: Arms) -> tuple[Array, Array]:
    """Return rows so far, and that number times the arms' difference of means."""
    rows = arms.n_treated + arms.n_control
    lift = mean_or_zero(arms.y_treated, arms.n_treated) - mean_or_zero(
        arms.y_control, arms.n_control
    )
    return np.concatenate(([0.0], rows)), np.concatenate(([0.0], rows * lift))


def qini_points(arms: Arms) -> tuple[Array, Array]:
    """Return rows so far, and responders less those expected from the untreated."""
    rows = arms.n_treated + arms.n_control
    gain = arms.y_treated - mean_or_zero(arms.y_control * arms.n_treated, arms.n_control)
    return np.concatenate(([0.0], rows)), np.concatenate(([0.0], gain))


def share_of_area(actual: tuple[Array, Array], perfect: tuple[Array, Array]) -> float:
    """Return the area above the diagonal as a share of the perfect curve's."""
    diagonal = float(perfect[0][-1] * perfect[1][-1]) / 2.0
    best = trapezoid(*perfect) - diagonal
    if best == 0.0:
        raise InputError(
            "the perfect curve of this convention is the diagonal, an area of 0 to divide by. "
            "Evaluate on rows where outcomes differ, or use `qini`."
        )
    return (trapezoid(*actual) - diagonal) / best


def interpolate_from_zero(curve: Array, known: BoolArray) -> Array:
    """Return the curve with a 0 put first and unknown points on straight lines."""
    position = np.arange(1.0, len(curve) + 1.0)
    filled: Array = np.interp(
        np.concatenate(([0.0], position)),
        np.concatenate(([0.0], position[known])),
        np.concatenate(([0.0], curve[known])),
    )
    return filled


def normalize_by_last(curve: Array, normalize: bool) -> Array:
    """Divide by the absolute last point if asked to."""
    if not normalize:
        return curve
    if curve[-1] == 0.0:
        raise InputError(
            "the gain of treating all rows is 0, so that the curve cannot be normalised by it. "
            "Use normalize=False."
        )
    normalized: Array = curve / abs(curve[-1])
    return normalized


def check_rows(
    score: ArrayLike, y: ArrayLike, treatment: ArrayLike, *, name: str = "y"
) -> tuple[Array, Array, BoolArray]:
    """Return score, outcome (or the column called ``name``) and treated rows, clean."""
    clean_score = check_vector("score", score)
    clean_y = check_vector(name, y)
    treated = check_treated(treatment)
    check_same_length(
        **{"score": clean_score, name: clean_y, "treatment": treated.astype(np.float64)}
    )
    check_both_arms(treated)
    return clean_score, clean_y, treated


def check_and_accumulate(
    score: ArrayLike, y: ArrayLike | None, treatment: ArrayLike | None
) -> Arms:
    """Return the arms row by row, from the best score downwards."""
    if y is None or treatment is None:
        raise InputError(
            "without tau, both y and treatment are needed, and one of them is None. "
            "Pass the true uplift as tau, or outcomes and treatment."
        )
    score, y, treated = check_rows(score, y, treatment)
    return arms_from_top(group_with_ties_in_row_order(score), y, treated)
