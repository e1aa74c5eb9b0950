"""Scores of an uplift estimate that need no row with both labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, MatrixLike
from unjoined._validation import OUTCOME, TARGET, TREATMENT, check_kind, check_length, check_weight
from unjoined.data._frames import feature_matrix
from unjoined.errors import InputError
from unjoined.evaluate._conditional_mean import fit_conditional_mean
from unjoined.features import Scaling
from unjoined.moments import LabelledRows, label_rows

__all__ = ["cross_fitted_gap", "minmax_objective", "weighted_risk"]


def minmax_objective(
    uplift: ArrayLike,
    critic: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Return the paper's empirical objective :math:`\hat J(f, g)` of any two functions.

    .. math::

        \hat J(f, g) = 2 \hat E[w f g] - 4 \hat E[z g]
        - \tfrac12 \hat E_z[g^2] - \tfrac12 \hat E_w[g^2]

    averages being over the treatment and the outcome rows, each population counting half.

    Parameters
    ----------
    uplift, critic : array-like of shape (n,)
        Values of f and g at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        As in ``fit``; pass ``**data`` with a `SeparateLabels`. Outcomes are taken in the coding
        estimators use (an outcome of two values as -1/+1) and converted back.

    Returns
    -------
    float
        In squared outcome units.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(500, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> minmax_objective(u, 0.0 * u, **data)
    0.0
    """
    rows, (f, g) = _aligned((uplift, critic), X, y, kind, population, sample_weight)
    scale = rows.coding.scale
    f, g = f / scale, g / scale
    treatment, outcome = rows.of_kind(TREATMENT), rows.of_kind(OUTCOME)
    signed = rows.sign * rows.share * rows.label
    cross = signed[treatment] @ (f * g)[treatment]
    linear = signed[outcome] @ g[outcome]
    square = 0.5 * (rows.share @ g**2)
    return float(scale**2 * (2.0 * cross - 4.0 * linear - square))


def weighted_risk(
    uplift: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    policy_model: Any = None,
    n_folds: int = 5,
) -> float:
    r"""Return a risk that the true uplift minimises, from rows the estimate has not seen.

    .. math::

        R(f) = E[w \nu f^2] - 4 E[z \nu f] = E[\mu_w \nu (f - u)^2] + \text{const}

    where :math:`\nu` estimates the policy gap :math:`\mu_w(x)`, cross-fitted on the treatment
    rows. Nothing is divided and nothing maximised: the true uplift is the minimum as long as
    :math:`\nu` has the sign of :math:`\mu_w`. Differences between two estimates on the same
    rows are meaningful, the level is not.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        The estimate at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        Held-out rows, as in ``fit``; pass ``**data`` with a `SeparateLabels`.
    policy_model : scikit-learn classifier or regressor, optional
        Model of each policy, fitted to standardised features; logistic regression by default.
    n_folds : int, default=5
        Folds of the cross-fitting.

    Returns
    -------
    float
        In squared outcome units; smaller is better.

    Notes
    -----
    The pooled mean outcome is subtracted from y first: a constant times w or z has no bearing
    on the estimand and only adds noise.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(2000, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> weighted_risk(u, **data) < weighted_risk(0.0 * u, **data) < weighted_risk(-u, **data)
    True
    """
    rows, (f,) = _aligned((uplift,), X, y, kind, population, sample_weight)
    f = f / rows.coding.scale
    model = LogisticRegression() if policy_model is None else policy_model
    treatment, outcome = rows.of_kind(TREATMENT), rows.of_kind(OUTCOME)
    share, sign = rows.share, rows.sign
    nu = cross_fitted_gap(rows, model, n_folds)
    centred = rows.label - np.sum((share * rows.label)[outcome])
    quadratic = np.sum((share * sign * rows.label * nu * f**2)[treatment])
    linear = np.sum((share * sign * centred * nu * f)[outcome])
    return float(rows.coding.scale**2 * (quadratic - 4.0 * linear))


def cross_fitted_gap(rows: LabelledRows, model: Any, n_folds: int) -> Array:
    """Return e_1(x) - e_2(x) at every row, from models that did not see the row."""
    n = len(rows.label)
    fewest = min(len(rows.at(TREATMENT, k)) for k in (0, 1))
    if not 2 <= n_folds <= fewest:
        raise InputError(
            f"n_folds={n_folds} must lie between 2 and the rows of the smaller treatment table, "
            f"{fewest}."
        )
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    fold = np.empty(n, dtype=np.int64)
    rng = check_random_state(0)
    for cell in (rows.at(kind, k) for kind in (OUTCOME, TREATMENT) for k in (0, 1)):
        # Outcome rows are dealt into the same folds, so that both terms of the risk average
        # over the same estimates of the gap.
        fold[cell] = rng.permutation(np.resize(np.arange(n_folds), len(cell)))
    nu = np.empty(n)
    for j in range(n_folds):
        held = fold == j
        chance = []
        for k in (0, 1):
            at = rows.at(TREATMENT, k)
            at = at[~held[at]]
            mean = fit_conditional_mean(clone(model), Z[at], rows.label[at], rows.weight[at])
            chance.append((mean(Z[held]) + 1.0) / 2.0)
        nu[held] = chance[0] - chance[1]
    return nu


def _aligned(
    values: tuple[ArrayLike, ...],
    X: MatrixLike,
    y: ArrayLike,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None,
) -> tuple[LabelledRows, list[Array]]:
    """Check rows and the functions' values on them, and leave out rows without a label."""
    matrix = feature_matrix(X)
    rows = label_rows(matrix, y, kind=kind, population=population, sample_weight=sample_weight)
    n = len(matrix)
    used = (check_kind(kind, n) != TARGET) & (check_weight(sample_weight, n) > 0.0)
    arrays = []
    for name, value in zip(("uplift", "critic"), values, strict=False):
        array: Array = np.asarray(value, dtype=np.float64)
        check_length(name, array, n)
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds NaN or infinite values.")
        arrays.append(array[used])
    return rows, arrays
