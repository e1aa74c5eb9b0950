"""Uplift by weighted least squares: no critic, no ratio, a closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray, RandomState
from unjoined._validation import check_count, check_not_negative, check_positive
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    basis_or,
    check_model,
    word_or,
)
from unjoined.model.accumulate import combine
from unjoined.model.basis import ScaledBasis, Scaling
from unjoined.model.draw import BASES, draw_basis
from unjoined.model.regressors import Nuisances, cross_fit

RIDGES = np.logspace(-7.0, 1.0, 33)


@dataclass(frozen=True, slots=True)
class RiskPath:
    """Held-out risk of every ridge tried, and the ridge with the smallest."""

    ridges: Array  # (r,) increasing
    risks: Array  # (r,) held-out weighted risk, squared outcome units; inf where indefinite
    best: float


class WeightedUplift(UpliftEstimator):
    r"""Uplift from separate labels by least squares weighted with the policy gap.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` as the function f on a basis that minimises

    .. math::

        R(f) = E[w \nu f^2] - 4 E[z \nu f] + \lambda \|\alpha\|^2,

    where :math:`\nu(x)` estimates the policy gap :math:`e_1(x) - e_2(x)`, cross-fitted on the
    treatment rows, and :math:`z = \pm y`, :math:`w = \pm t` carry the population's sign. Rows
    weigh by how far the policies are apart, so nothing is divided and nothing explodes where
    they meet.

    Parameters
    ----------
    basis, n_centers, width : as in `MinMaxUplift`, default="smooth", "auto" and "median"
        Functions that f is a combination of, their number and length scale. Centres are rows of
        the fit, which a saved model holds, unless ``basis="means"``.
    ridge : float or "auto", default="auto"
        Penalty on the coefficients, without units. "auto" takes the one of 33 values from 1e-7
        to 10 that has the smallest risk on held-out folds.
    policy_model, outcome_model : scikit-learn classifier or regressor, optional
        Models of a policy and of the outcome in one population. Default: additive
        models, as `Uplift` has for its policies.
    n_folds : int, default=5
        Folds of the cross-fitting and of the choice of the ridge.
    random_state : int, RandomState or None, default=None
        Seed for centres and folds; the same seed gives the same bits.

    Attributes
    ----------
    coef_, basis_, scaling_ : array of shape (p,), Basis and Scaling
        The uplift: coefficients, outcome units, of functions of the scaled features.
    ridge_, path_ : float, and RiskPath or None
        The penalty in use, and the held-out risk of every ridge if it was "auto".
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`.

    See Also
    --------
    unjoined.evaluate.outcome_risk, unjoined.evaluate.weighted_risk : the risks minimised.
    MinMaxUplift : needs no model of the policies.

    Notes
    -----
    Costs the models (four times ``n_folds`` fits), and :math:`O(n p^2 + K p^3)` time and
    :math:`O(n p)` memory for n rows, p functions and K folds. Target rows are not used. If the
    populations differ in their features, pass weights that make them alike.

    References
    ----------
    K. Shinoda, T. Hoshino. Estimation of Local Average Treatment Effect by Data Combination. 2021.
    The least squares of residuals on residuals: X. Nie, S. Wager. Quasi-oracle estimation of
    heterogeneous treatment effects. Biometrika 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined.data import paper_problem
    >>> from unjoined import WeightedUplift
    >>> problem = paper_problem(b=5.0)
    >>> model = WeightedUplift(random_state=0).fit(**problem.draw(2000, random_state=0))
    >>> new = problem.draw_joint(5000, random_state=1)
    >>> bool(np.corrcoef(model.predict(new.X), new.uplift)[0, 1] > 0.8)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "basis": basis_or(*BASES),
        "n_centers": word_or(check_count, "auto"),
        "width": word_or(check_positive, "median"),
        "ridge": word_or(check_not_negative, "auto"),
        "policy_model": check_model,
        "outcome_model": check_model,
        "n_folds": check_count,
    }

    def __init__(
        self,
        *,
        basis: str | Basis = "smooth",
        n_centers: int | str = "auto",
        width: float | str = "median",
        ridge: float | str = "auto",
        policy_model: Any = None,
        outcome_model: Any = None,
        n_folds: int = 5,
        random_state: RandomState = None,
    ) -> None:
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.ridge = ridge
        self.policy_model = policy_model
        self.outcome_model = outcome_model
        self.n_folds = n_folds
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        scaling = Scaling.of_rows(rows.X, rows.share)
        Z = scaling(rows.X)
        size: dict[str, Any] = {"n_centers": self.n_centers, "width": self.width}
        basis = draw_basis(self.basis, Z, **size, rng=rng, weight=rows.relative)
        models = {
            "policy_model": self.policy_model,
            "outcome_model": self.outcome_model,
        }
        nuisances = cross_fit(rows, **models, n_folds=self.n_folds, rng=rng)
        fold = rows.deal(self.n_folds, rng)
        H, b = fold_sums(basis(Z), rows, nuisances, fold)
        path = None
        ridge = self.ridge
        if isinstance(ridge, str):
            path = risk_path(H, b, rows.coding.scale)
            ridge = path.best
        self.coef_ = rows.coding.scale * solve_weighted(
            H.sum(axis=0), b.sum(axis=0), ridge
        )
        self.basis_ = basis
        self.scaling_ = scaling
        self.ridge_ = float(ridge)
        self.path_ = path

    def _predict_rows(self, matrix: Array) -> Array:
        return combine(ScaledBasis(self.basis_, self.scaling_), self.coef_, matrix)


def fold_sums(
    Phi: Array, rows: LabelledRows, nuisances: Nuisances, fold: IntArray
) -> tuple[Array, Array]:
    r"""Return, fold by fold, the sums H and b of the risk :math:`\alpha^\top (H \alpha - 4 b)`.

    :math:`H = \sum s_i w_i \nu_i \phi_i \phi_i^\top`, shape (K, p, p), over the treatment rows, and
    :math:`b = \sum s_i z_i \nu_i \phi_i`, shape (K, p), over the outcome rows, with shares s.
    Labels are centred: what both populations have in common is noise.
    """
    signed = rows.share * rows.sign
    w_nu = signed * (rows.label - nuisances.treatment_mean) * nuisances.gap
    z_nu = signed * (rows.label - nuisances.outcome_mean) * nuisances.gap
    H = []
    b = []
    for j in range(int(fold.max()) + 1):
        at = np.flatnonzero(~rows.is_outcome & (fold == j))
        H.append((Phi[at] * w_nu[at, None]).T @ Phi[at])
        at = np.flatnonzero(rows.is_outcome & (fold == j))
        b.append(z_nu[at] @ Phi[at])
    return np.array(H), np.array(b)


def solve_weighted(H: Array, b: Array, ridge: float) -> Array:
    r"""Minimise :math:`\alpha^\top H \alpha - 4 b^\top \alpha + \lambda \|\alpha\|^2`.

    Directions that neither the rows nor the ridge determine get the coefficient 0.
    """
    values, V = eigh(H)
    # Rounding alone makes eigenvalues of this size; below it nothing is known of a direction.
    rounding = len(b) * np.finfo(float).eps * np.abs(values).max()
    curvature = values + ridge
    if curvature[0] < -rounding:
        raise InputError(
            f"the weighted risk has no minimum: its smallest eigenvalue is {values[0]:.2g}, and "
            f"ridge={ridge:g} does not make up for it. Use ridge='auto', or a ridge above "
            f"{-values[0]:.2g}."
        )
    known = curvature > rounding
    return np.asarray(V[:, known] @ (2.0 * (V[:, known].T @ b) / curvature[known]))


def risk_path(H: Array, b: Array, scale: float) -> RiskPath:
    """Return the held-out risk of every ridge, times ``scale`` squared, from sums by fold."""
    n_folds = len(H)
    H_all = H.sum(axis=0)
    b_all = b.sum(axis=0)
    risks = np.zeros(len(RIDGES))
    for H_j, b_j in zip(H, b, strict=True):
        # Each fold holds 1/K of every cell: so much more do the others weigh by themselves.
        kept = 1.0 - 1.0 / n_folds
        values, V = eigh((H_all - H_j) / kept)
        curvature = values[:, None] + RIDGES  # (p, r)
        # Below this much curvature a direction is noise, and may bend downwards.
        convex = curvature[0] > 1e-9 * values[-1]
        safe = np.where(convex, curvature, 1.0)
        alpha = V @ (2.0 * (V.T @ (b_all - b_j) / kept)[:, None] / safe)  # (p, r)
        risk = np.einsum("pr,pr->r", alpha, H_j @ alpha) - 4.0 * (b_j @ alpha)
        risks += np.where(convex, risk, np.inf)
    lowest = float(eigh(H_all, eigvals_only=True)[0])
    risks = scale**2 * np.where(lowest + RIDGES > 0.0, risks, np.inf)
    if not np.isfinite(
        risks
    ).any():  # caution: bend up twice as much as the form bends down
        return RiskPath(RIDGES, risks, max(float(RIDGES[-1]), -2.0 * lowest))
    return RiskPath(RIDGES, risks, float(RIDGES[int(np.argmin(risks))]))
