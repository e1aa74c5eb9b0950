r"""Held-out rows on which many estimates are scored, and the scores row by row.

Every score is :math:`\sum_i s_i v_i`, with :math:`s_i` the row's share and :math:`v_i` a value
that depends on the estimate at that row. So the difference of two estimates on the same rows is
a sum too, and its standard error follows from the spread of the differences within each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, BoolArray, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    check_kind,
    check_length,
    check_option,
    check_weight,
)
from unjoined.data._frames import feature_matrix
from unjoined.errors import InputError
from unjoined.evaluate._estimate import Estimate
from unjoined.evaluate._nuisances import Nuisances, cross_fit, smooth_basis
from unjoined.features import Scaling
from unjoined.moments import LabelledRows, label_rows

__all__ = ["SCORES", "HeldOutRows", "aligned_values", "labelled_rows"]

CRITIC_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Rows with the cross-fitted policies and outcome means that scores need, computed once.

    Scoring a further estimate then costs one pass over the rows. Build it with
    `HeldOutRows.from_data`; the estimates to score must not have seen the rows.

    Attributes
    ----------
    rows : LabelledRows
        Rows that carry a label and a weight, in the inner coding.
    nuisances : Nuisances
        Policies and outcome mean at each of these rows.
    used : array of bool of shape (n,)
        Which of the rows given these are.

    Examples
    --------
    Which of two functions is closer to the uplift, and is that more than chance?

    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(2000, random_state=0)
    >>> held = HeldOutRows.from_data(**data)
    >>> u = problem.uplift(data.X)
    >>> gain = held.difference(0.5 * u, u, "outcome_risk")
    >>> gain.value > 4 * gain.standard_error
    True
    """

    rows: LabelledRows
    nuisances: Nuisances
    used: BoolArray

    @classmethod
    def from_data(
        cls,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
        policy_model: Any = None,
        outcome_model: Any = None,
        n_folds: int = 5,
    ) -> HeldOutRows:
        """Check the rows and cross-fit the policies and outcome means on them.

        Parameters
        ----------
        X, y, kind, population, sample_weight
            As in ``fit``; pass ``**data`` with a `SeparateLabels`. Target rows are left out.
        policy_model, outcome_model : scikit-learn classifier or regressor, optional
            Models of a policy and of the outcome in one population, on standardised features.
            Default: penalised regression on the features and 50 Gaussians, logistic for a label
            of two values, the penalty chosen from the rows. Models without a seed get one.
        n_folds : int, default=5
            Folds of the cross-fitting, at most the rows of the smallest table.

        Returns
        -------
        HeldOutRows
            Costs ``2 * n_folds`` fits for each population; about half a second for two
            populations and 8,000 rows.
        """
        rows, used = labelled_rows(X, y, kind, population, sample_weight)
        nuisances = cross_fit(
            rows,
            policy_model=policy_model,
            outcome_model=outcome_model,
            n_folds=n_folds,
            rng=check_random_state(0),
        )
        return cls(rows, nuisances, used)

    def score(self, uplift: ArrayLike, name: str) -> float:
        """Return one score of an estimate; smaller is better.

        Parameters
        ----------
        uplift : array-like of shape (n,)
            The estimate at each row given to ``from_data``, outcome units.
        name : {"weighted_risk", "fixed_critic", "outcome_risk"}
            Which score; see the functions of these names.

        Returns
        -------
        float
            In squared outcome units.
        """
        return float(self.rows.share @ self.values(uplift, name))

    def difference(self, uplift: ArrayLike, other: ArrayLike, name: str) -> Estimate:
        """Return how much larger the score of ``uplift`` is than that of ``other``.

        Parameters
        ----------
        uplift, other : array-like of shape (n,)
            Two estimates at each row given to ``from_data``, outcome units.
        name : {"weighted_risk", "fixed_critic", "outcome_risk"}
            Which score.

        Returns
        -------
        Estimate
            In squared outcome units. The standard error is that of a difference on the same
            rows; it takes the policies, the outcome means and both estimates as given.
        """
        values = self.values(uplift, name) - self.values(other, name)
        spread = self.influence(values)
        return Estimate(float(self.rows.share @ values), math.sqrt(spread @ spread))

    def values(self, uplift: ArrayLike, name: str) -> Array:
        """Return the score's value at each labelled row, squared outcome units.

        The score is their sum under the rows' shares. Takes ``uplift`` and ``name`` as ``score``.
        """
        check_option("name", name, SCORES)
        scale = self.rows.coding.scale
        f = aligned_values("uplift", uplift, self.used) / scale
        return scale**2 * SCORES[name](f, self.rows, self.nuisances)

    def influence(self, values: Array) -> Array:
        """Return what each row adds to a score's error; the squares add up to its variance.

        Each cell has its own rows, so that only the spread within cells counts.
        """
        rows, share = self.rows, self.rows.share
        influence = np.empty(len(share))
        for cell in rows.all_cells():
            mean = np.average(values[cell], weights=share[cell])
            n = len(cell)
            inflation = math.sqrt(n / (n - 1)) if n > 1 else math.nan
            influence[cell] = inflation * share[cell] * (values[cell] - mean)
        return influence


def weighted_values(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    r"""Return :math:`t \nu_k f^2` at treatment rows and :math:`-4 y \nu_k f` at outcome rows.

    Of two populations :math:`\nu_k = \pm\nu`, which makes them :math:`w \nu f^2` and
    :math:`-4 z \nu f`. Labels are centred: a function of x alone cancels between the
    populations and would only add noise.
    """
    is_treatment = rows.kind == TREATMENT
    center = np.where(is_treatment, nuisances.treatment_mean, nuisances.outcome_mean)
    signed = (rows.label - center) * nuisances.contrast(rows.population)
    return signed * np.where(is_treatment, f**2, -4.0 * f)


def outcome_values(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    r"""Return :math:`(y - m - (e_k - \bar e) f)^2` at outcome rows, 0 at treatment rows."""
    apart = 0.5 * nuisances.contrast(rows.population)
    residual = rows.label - nuisances.outcome_mean - apart * f
    return np.where(rows.kind == OUTCOME, residual**2, 0.0)


def critic_values(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    r"""Return the rows' part in :math:`\max_g J(f, g) - \lambda \|g\|^2`, noise taken out.

    With :math:`a = \sum_i a_i` the coefficients of :math:`\beta` and M its quadratic form, the
    maximum is :math:`\tfrac12 a^\top M^{-1} a`. Noise alone makes that positive, the more so
    the larger f; its expectation is :math:`\tfrac12 \sum_i a_i^\top M^{-1} a_i`, which goes off.
    More than two populations have a critic for each of their contrasts.
    """
    is_treatment = rows.kind == TREATMENT
    share = rows.share
    Psi = _critic_basis(rows)  # (n, q)
    M = (Psi * share[:, None]).T @ Psi + 2.0 * CRITIC_RIDGE * np.eye(Psi.shape[1])
    # In whitened coordinates M is the identity, and so is every inner product needed.
    Psi = solve_triangular(cholesky(M, lower=True), Psi.T, lower=True).T
    center = np.where(is_treatment, nuisances.treatment_mean, nuisances.outcome_mean)
    term = (rows.label - center) * np.where(is_treatment, 2.0 * f, -4.0)
    total = np.zeros(len(f))
    for contrast in _contrasts(len(rows.names)):
        signed = contrast[rows.population] * term
        beta = (share * signed) @ Psi  # (q,) maximiser
        g = Psi @ beta
        noise = 0.5 * share * signed**2 * np.einsum("ij,ij->i", Psi, Psi)
        # By the envelope theorem a row moves the maximum by its own term in J at the maximiser.
        # The ridge's part belongs to no row: it is spread evenly (the shares add up to 2).
        penalty = 0.5 * (0.5 * (beta @ beta) - 0.5 * (share @ g**2))
        total += signed * g - 0.5 * g**2 - noise - penalty
    return total


def _contrasts(n: int) -> Array:
    """Return orthogonal weights of n populations, shape (n - 1, n), with mean 0 and mean square 1.

    Of two populations they are +1 and -1, the paper's sign. Which orthogonal ones are taken does
    not change the sum of what their critics find.
    """
    j = np.arange(1.0, n)
    rows = np.tri(n - 1, n) - np.diag(j, 1)[:-1]  # 1 -1 0 0, 1 1 -2 0, 1 1 1 -3 and so on
    return rows * np.sqrt(n / (j * (j + 1.0)))[:, None]


def _critic_basis(rows: LabelledRows) -> Array:
    """Return the critic's functions at each row: the same for every estimate, by a fixed seed."""
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    return smooth_basis(Z, rows.relative, check_random_state(0))(Z)


SCORES: dict[str, Callable[[Array, LabelledRows, Nuisances], Array]] = {
    "weighted_risk": weighted_values,
    "fixed_critic": critic_values,
    "outcome_risk": outcome_values,
}


def labelled_rows(
    X: MatrixLike,
    y: ArrayLike,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None,
) -> tuple[LabelledRows, BoolArray]:
    """Check rows; return those that carry a label and a weight, and which they are."""
    matrix = feature_matrix(X)
    rows = label_rows(
        matrix, y, kind=kind, population=population, sample_weight=sample_weight, several=True
    )
    n = len(matrix)
    used: BoolArray = (check_kind(kind, n) != TARGET) & (check_weight(sample_weight, n) > 0.0)
    return rows, used


def aligned_values(name: str, values: ArrayLike, used: BoolArray) -> Array:
    """Check a function's values at the rows, and leave out those of rows without a label."""
    array: Array = np.asarray(values, dtype=np.float64)
    check_length(name, array, len(used))
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinite values.")
    return array[used]
