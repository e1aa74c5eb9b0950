"""The ridge-regularised min-max problem of the paper, solved exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular, svd

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.sums import MinMaxSystem


@dataclass(frozen=True, slots=True)
class MinMaxSolution:
    """The saddle point: coefficients of the uplift and of its critic."""

    alpha: Array  # (p_f,) coefficients of f, outcome units
    beta: Array  # (p_g,) coefficients of g, outcome units
    singular_values: Array  # of the whitened A; small ones are directions the gap cannot see


@dataclass(frozen=True, slots=True)
class Whitened:
    """What is left of the problem once ``ridge_g`` is fixed: one ridge regression of c on M."""

    L: Array  # (p, p) lower, L L^T = C + ridge_g I
    c: Array  # (p,)   L^-1 2b
    U: Array  # M = U diag(s) Vt = L^-1 A^T
    s: Array
    Vt: Array

    def alpha(self, ridge_f: float) -> Array:
        """Return the minimiser of |M alpha - c|^2 + ridge_f |alpha|^2."""
        shrunk = self.s / (self.s**2 + ridge_f) * (self.U.T @ self.c)
        return np.asarray(self.Vt.T @ shrunk)

    def beta(self, alpha: Array) -> Array:
        """Return the critic that answers ``alpha``."""
        residual = self.U @ (self.s * (self.Vt @ alpha)) - self.c
        return np.asarray(solve_triangular(self.L, residual, lower=True, trans="T"))


def whiten(system: MinMaxSystem, ridge_g: float) -> Whitened:
    """Factorise the problem for one ``ridge_g``; every ``ridge_f`` is cheap afterwards."""
    # With L L^T = C + ridge_g I the inner maximum is a squared norm, so the rest is one ridge
    # regression of c on M. Neither C^-1 nor M^T M is formed: nearly collinear basis functions
    # would lose half of the digits there.
    try:
        L = cholesky(system.C + ridge_g * np.eye(len(system.b)), lower=True)
    except LinAlgError as error:
        raise too_collinear(ridge_g) from error
    M = solve_triangular(L, system.A.T, lower=True)  # (p_g, p_f)
    c = solve_triangular(L, 2.0 * system.b, lower=True)  # (p_g,)
    try:
        U, s, Vt = svd(M, full_matrices=False)
    except LinAlgError:
        # LAPACK's divide and conquer now and then gives up on a nearly singular matrix that the
        # slower QR iteration has no trouble with.
        U, s, Vt = svd(M, full_matrices=False, lapack_driver="gesvd")
    return Whitened(L, c, U, s, Vt)


def too_collinear(ridge_g: float) -> InputError:
    """Return the error for a matrix C + ridge_g I that has no factors."""
    return InputError(
        f"ridge_g={ridge_g:g} is too small for a basis this nearly collinear: the matrix "
        "C + ridge_g I is not positive definite in double precision. Raise ridge_g."
    )


def solve_minmax(system: MinMaxSystem, *, ridge_f: float, ridge_g: float) -> MinMaxSolution:
    r"""Solve the regularised problem of the paper, section 4.2, exactly.

    .. math::

        \min_\alpha \max_\beta \;
        2 \alpha^\top A \beta - 4 b^\top \beta - \beta^\top C \beta
        + \lambda_f \|\alpha\|^2 - \lambda_g \|\beta\|^2

    whose solution is :math:`\beta = \tilde C^{-1} (A^\top \alpha - 2 b)` and
    :math:`\alpha = 2 (A \tilde C^{-1} A^\top + \lambda_f I)^{-1} A \tilde C^{-1} b` with
    :math:`\tilde C = C + \lambda_g I`. Arguments are trusted: finite float64, ridges > 0.
    Costs :math:`O(p^3)`.
    """
    whitened = whiten(system, ridge_g)
    alpha = whitened.alpha(ridge_f)
    return MinMaxSolution(alpha, whitened.beta(alpha), whitened.s)
