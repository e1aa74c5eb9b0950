"""The ridge-regularised min-max problem of the paper, solved exactly, and its ridges chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, lapack, solve_triangular, svd

from unjoined._threads import over_pieces
from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.sums import MinMaxSystem

RIDGES_F = np.logspace(-6.0, 1.0, 15)
RIDGES_G = np.logspace(-4.0, -1.0, 4)
# Of the critic that judges. With a tenth and ten times as much no difference in accuracy was seen
# beyond noise, on six simulated problems.
CRITIC_RIDGE = 1e-2
N_PARTS = 3  # of a fold, each scored by one thread


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


@dataclass(frozen=True, slots=True)
class FoldScores:
    """Scores of every pair of ridges on every fold, and the coefficients that earned them."""

    ridges_f: Array  # (n_f,)
    ridges_g: Array  # (n_g,)
    score: Array  # (n_folds, n_g, n_f) squared inner outcome units; lower is better
    alpha: Array  # (n_folds, n_g, n_f, p_f) fitted without the fold


@dataclass(frozen=True, slots=True)
class RidgeChoice:
    """The pair chosen, and what is needed to doubt it."""

    mean: Array  # (n_g, n_f) score over folds
    standard_error: Array  # (n_g, n_f) of its difference to the best pair's, paired by fold
    chosen: tuple[int, int]  # position in ridges_g, in ridges_f


def score_ridges(
    folds: Sequence[tuple[MinMaxSystem, MinMaxSystem]],
    C: Array,
    *,
    ridges_f: Sequence[float] | Array,
    ridges_g: Sequence[float] | Array,
    n_jobs: int | None = None,
) -> FoldScores:
    r"""Score every pair of ridges on every fold by the fixed-critic score.

    .. math::

        Q(\alpha) = (A_h^\top \alpha - 2 b_h)^\top (C + r I)^{-1} (A_h^\top \alpha - 2 b_h),

    the largest value of :math:`2\alpha^\top A_h\beta - 4 b_h^\top\beta - \beta^\top (C + rI)\beta`
    any critic :math:`\beta` reaches on the held-out sums :math:`A_h, b_h`, with
    :math:`\alpha` from the rest of the rows and :math:`r = 0.01` whatever ``ridges_g``. ``folds``
    holds the averages over the rows outside of each fold and over its own, ``C`` is that of all
    rows. Costs O(n_folds n_g p^3).
    """
    f, g = np.asarray(ridges_f, dtype=np.float64), np.asarray(ridges_g, dtype=np.float64)
    # As a piece of work: with BLAS on all cores a small matrix takes ten times as long.
    (judge,) = over_pieces(lambda matrix: _inverse_root(matrix, CRITIC_RIDGE), [C], None)

    # Parts of a fold, so that no core waits for another's last fold.
    parts = [part for part in np.array_split(g, N_PARTS) if len(part)]

    def score(task: tuple[_Directions, MinMaxSystem, Array]) -> tuple[Array, Array]:
        rest, held, ridges = task
        M, c = rest.regressions(ridges)
        # Half of the digits of the smallest singular values are lost in M^T M, far below what
        # decides between ridges. The critics that answer are not needed here.
        transpose = M.swapaxes(1, 2)
        alpha = _ridge_paths(transpose @ M, (transpose @ c[..., None])[..., 0], f)
        objection = judge @ (held.A.T @ alpha - 2.0 * held.b[:, None])  # (n_g, p_g, n_f)
        return np.sum(objection**2, axis=1), alpha.swapaxes(1, 2)

    rests = over_pieces(_Directions.of_system, [rest for rest, _ in folds], n_jobs)
    pairs = zip(rests, (held for _, held in folds), strict=True)
    tasks = [(rest, held, part) for rest, held in pairs for part in parts]
    scores, alphas = zip(*over_pieces(score, tasks, n_jobs), strict=True)
    shape = (len(folds), len(g), len(f))
    return FoldScores(
        f, g, np.concatenate(scores).reshape(shape), np.concatenate(alphas).reshape(*shape, -1)
    )


class _Directions(NamedTuple):
    """A system in the directions of C, in which every ``ridge_g`` is a division."""

    values: Array  # (p_g,) of C
    A: Array  # (p_g, p_f)
    b: Array  # (p_g,)

    @classmethod
    def of_system(cls, system: MinMaxSystem) -> _Directions:
        values, Q = np.linalg.eigh(system.C)
        return cls(values, Q.T @ system.A.T, Q.T @ (2.0 * system.b))

    def regressions(self, ridges_g: Array) -> tuple[Array, Array]:
        """Return M (n_g, p_g, p_f) and c (n_g, p_g): alpha is the ridge regression of c on M."""
        roots = np.array([_roots(self.values, float(ridge)) for ridge in ridges_g])  # (n_g, p_g)
        return self.A / roots[..., None], self.b / roots


def _ridge_paths(G: Array, h: Array, ridges: Array) -> Array:
    """Return the solutions of (G + f I) x = h, (n_g, p), for every ridge f, (n_g, p, n_f)."""
    return np.stack([_ridge_path(*system, ridges) for system in zip(G, h, strict=True)])


def _ridge_path(G: Array, h: Array, ridges: Array) -> Array:
    """Return the solutions of one system for every ridge, shape (p, n_f).

    Reflections turn G into a tridiagonal matrix, to whose diagonal any ridge is added: O(p^3), a
    small part of what its eigenvectors cost, and O(p^2) for each ridge.
    """
    p = len(h)
    if p == 1:  # LAPACK takes two or more
        return h / (G + ridges)
    reflections, diagonal, beside, scale, _ = lapack.dsytrd(G, lower=1)
    # Eigenvalues of G below 0 are rounding, which must not turn the sign of what is divided by.
    diagonal = diagonal + p * np.finfo(np.float64).eps * np.abs(diagonal).max()
    right, found = h.copy(), np.empty((p, len(ridges)), order="F")
    right[1:] = _reflect("T", reflections, scale, h[1:, None])[:, 0]  # the first one never is
    for j, ridge in enumerate(ridges.tolist()):
        found[:, j] = lapack.dptsv(diagonal + ridge, beside, right)[2]
    found[1:] = _reflect("N", reflections, scale, found[1:])
    return found


def _reflect(way: str, reflections: Array, scale: Array, columns: Array) -> Array:
    block = 64 * columns.shape[1]  # room for LAPACK to reflect so many rows together
    reflected: Array = lapack.dormqr("L", way, reflections[1:, :-1], scale, columns, block)[0]
    return reflected


def _inverse_root(C: Array, ridge: float) -> Array:
    """Return R with R^T R = (C + ridge I)^-1."""
    values, Q = np.linalg.eigh(C)
    root: Array = Q.T / _roots(values, ridge)[:, None]
    return root


def _roots(values: Array, ridge: float) -> Array:
    shifted = values + ridge
    # Eigenvalues of C below 0 are rounding; a ridge no larger than that drowns in it.
    if shifted.min() <= 0.0:
        raise too_collinear(ridge)
    root: Array = np.sqrt(shifted)
    return root


def choose_ridges(score: Array) -> RidgeChoice:
    """Choose the middle of all pairs within one standard error of the best, by fold scores."""
    # The pairs the folds cannot tell from the best spread over decades of both ridges. Their mean
    # position on the (logarithmic) grids is steadier than the best, and unlike the most
    # regularised of them does not give up what the rows do show.
    mean = score.mean(axis=0)
    g, f = np.unravel_index(int(np.argmin(mean)), mean.shape)
    behind = score - score[:, g, f][:, None, None]
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(score))
    close_g, close_f = np.nonzero(behind.mean(axis=0) <= error)
    chosen = (round(float(close_g.mean())), round(float(close_f.mean())))
    return RidgeChoice(mean, error, chosen)
