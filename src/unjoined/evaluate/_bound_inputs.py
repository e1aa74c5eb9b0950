"""What an error bound takes from the model and the rows: radii, suprema, the smallest gap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from unjoined._typing import Array, MatrixLike
from unjoined._validation import (
    OUTCOME,
    check_finite_features,
    check_positive,
)
from unjoined.data._frames import column_names, feature_matrix
from unjoined.errors import InputError
from unjoined.evaluate._separate import cross_fitted_gap
from unjoined.features import FourierBasis, GaussianBasis
from unjoined.moments import LabelledRows

__all__ = [
    "check_delta",
    "check_gap",
    "check_mapping",
    "check_model_rows",
    "effective_size",
    "largest_norm",
    "largest_outcome",
    "radii",
    "smallest_gap",
]


def check_mapping(data: Any) -> None:
    """Refuse anything but a mapping with the arguments of ``fit``."""
    if not isinstance(data, Mapping) or not {"X", "y", "kind", "population"} <= set(data):
        raise InputError(
            "data must be a SeparateLabels, or another mapping with X, y, kind and population; got "
            f"{type(data).__name__}."
        )


def check_model_rows(model: Any, X: MatrixLike) -> Array:
    """Refuse models that are not linear in parameters, and rows they cannot take."""
    needed = ("coef_", "critic_coef_", "basis_", "scaling_")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise InputError(
            "error_bound needs a fitted model that is linear in its parameters, such as "
            f"MinMaxUplift; {type(model).__name__} has no {', '.join(missing)}. Fit it first, or "
            "choose such a model."
        )
    if getattr(model, "critic_basis_", model.basis_) is not model.basis_:
        raise InputError(
            "error_bound is proved for an uplift and a critic on one basis; this model has a "
            "critic_basis of its own. Fit it without one."
        )
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.critic_coef_).all()):
        raise InputError("the model's coefficients hold NaN or infinite values. Fit it again.")
    names, fitted = column_names(X), getattr(model, "feature_names_in_", None)
    if names is not None and fitted is not None and names != list(fitted):
        raise InputError(
            f"X has the columns {', '.join(names[:5])}, but the model was fitted on "
            f"{', '.join(fitted[:5])}. Pass the same columns in the same order."
        )
    matrix = feature_matrix(X)
    if matrix.shape[1] != model.basis_.n_features:
        raise InputError(
            f"X has {matrix.shape[1]} features, but the model was fitted on "
            f"{model.basis_.n_features}. Pass the columns it was fitted on."
        )
    check_finite_features(matrix, None)
    return matrix


def radii(model: Any, uplift: float | None, critic: float | None) -> tuple[float, float]:
    """Return the largest norms of coefficients in F, which must hold the model, and in G."""
    norm = float(np.linalg.norm(model.coef_))
    if uplift is None and norm == 0.0:
        raise InputError(
            "all coefficients of the model are 0, so their norm is no radius. Pass uplift_radius."
        )
    radius_f = norm if uplift is None else check_positive("uplift_radius", uplift)
    if radius_f < norm * (1.0 - 1e-12):
        raise InputError(
            f"uplift_radius={radius_f:g} is below the norm of the fitted coefficients, {norm:g}, "
            "so that the bound does not cover this model. Pass a larger one, or shrink the model "
            "with a larger ridge_f."
        )
    if critic is not None:
        return radius_f, check_positive("critic_radius", critic)
    # With a constant policy gap and a true uplift in F the best critic of any f in F is
    # gap * (f - u), whose norm is at most this: nothing is then missing from G.
    return radius_f, max(2.0 * radius_f, float(np.linalg.norm(model.critic_coef_)))


def largest_norm(model: Any, X: Array, given: float | None) -> tuple[float, bool]:
    """Return the supremum of the basis norm, and whether it holds beyond the rows."""
    if given is not None:
        return check_positive("basis_norm", given), True
    basis = model.basis_
    if isinstance(basis, GaussianBasis):
        return math.sqrt(basis.size), True
    if isinstance(basis, FourierBasis):
        return math.sqrt(2.0), True
    largest = 0.0
    for start in range(0, len(X), 4096):
        values = basis(model.scaling_(X[start : start + 4096]))
        largest = max(largest, float(np.linalg.norm(values, axis=1).max()))
    return largest, False


def largest_outcome(rows: LabelledRows, given: float | None) -> float:
    """Return the supremum of the outcome's size in the inner coding, in outcome units."""
    seen = rows.coding.scale * float(np.abs(rows.label[rows.of_kind(OUTCOME)]).max())
    if given is None:
        return seen
    bound = check_positive("outcome_bound", given)
    if bound < seen * (1.0 - 1e-12):
        raise InputError(
            f"outcome_bound={bound:g} is below the largest outcome in the rows, {seen:g} (of an "
            "outcome of two values, half their distance). Pass the largest the outcome can take."
        )
    return bound


def smallest_gap(rows: LabelledRows) -> float:
    """Return the smallest estimated policy gap at any row; an optimistic stand-in for W."""
    gap = cross_fitted_gap(rows, LogisticRegression(), 5)
    if gap.min() <= 0.0 <= gap.max():
        raise InputError(
            "the policies cross: the estimated policy gap runs from "
            f"{gap.min():.3g} to {gap.max():.3g}, so that its smallest size is 0 and no bound "
            "exists. Leave out the rows between, or pass min_gap if you know that it is above 0."
        )
    return float(np.abs(gap).min())


def check_gap(min_gap: Any) -> float:
    """Return W: a difference of probabilities above 0."""
    gap = check_positive("min_gap", min_gap)
    if gap > 1.0:
        raise InputError(
            f"min_gap must be at most 1, got {min_gap!r}. It is a difference of probabilities."
        )
    return gap


def check_delta(delta: Any) -> float:
    """Return the chance that the bound fails."""
    if not isinstance(delta, Real) or not 0.0 < float(delta) < 1.0:
        raise InputError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. It is the chance that the "
            "bound fails: write 0.05 for 5 percent."
        )
    return float(delta)


def effective_size(rows: LabelledRows, kind: str) -> float:
    """Return 1 / sum of squared shares: the n of equal shares with the same precision."""
    share = rows.share[rows.of_kind(kind)]
    return float(1.0 / np.sum(share**2))
