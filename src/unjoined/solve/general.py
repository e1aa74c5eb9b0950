"""The two-player problem for losses other than the square."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from unjoined._optional import import_extra
from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.losses import BoxLoss, LogCoshLoss, SmoothLoss
from unjoined.solve.qp import RowOracle, solve_box_qp
from unjoined.sums import MinMaxSystem

MAX_STEPS = 200  # of Newton's method, which needs about ten


@dataclass(frozen=True, slots=True)
class LossSolution:
    """The saddle point of a general loss, with a certificate of how good it is."""

    alpha: Array  # (p,) coefficients of f
    beta: Array  # (p,) coefficients of g
    gap: float  # value at alpha minus value at beta: 0 at the saddle point, never below
    value: float  # of the regularised objective
    rounds: int  # quadratic programmes or Newton steps

    @property
    def relative_gap(self) -> float:
        """The gap over the size of the objective."""
        return self.gap / max(abs(self.value), np.finfo(float).tiny)


def solve_box_loss(
    system: MinMaxSystem,
    oracle: RowOracle,
    share: Array,
    loss: BoxLoss,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    r"""Solve the two-player problem for a loss with conjugate :math:`\kappa g^2` on a box.

    .. math::

        \min_\alpha \max_\beta \; \alpha^\top A \beta - 2 b^\top \beta - E[\rho^*(g_\beta)]
        + \lambda_f \|\alpha\|^2 - \tfrac{\lambda_g}{4} \|\beta\|^2 .

    Minimising over alpha first leaves a quadratic programme in beta with
    :math:`g_\beta(x_i)` in the box at every row; :math:`E[g^2] = \beta^\top C \beta` comes from the
    sums. For the squared loss this is the problem of `solve_minmax` with :math:`g` twice as large.

    Parameters
    ----------
    system : MinMaxSystem
        The averages A, b, C.
    oracle : RowOracle
        Finds rows at which the critic leaves the box.
    share : array of shape (n,)
        Weight of each row in :math:`E[\rho^*(g)]`; they add up to 1.
    loss : BoxLoss
        In inner units.
    ridge_f, ridge_g : float
        Penalties, > 0.
    """
    A, b, C = system.A, system.b, system.C
    Q = 2.0 * loss.curvature * C + A.T @ A / (2.0 * ridge_f) + ridge_g / 2.0 * np.eye(len(b))
    start = cho_solve(cho_factor(Q), -2.0 * b)
    lower, upper = loss.box
    if not np.isfinite([lower, upper]).any():
        return _certified(system, start, loss, ridge_f, ridge_g, rounds=0)
    qp = solve_box_qp(Q, 2.0 * b, start, oracle, lower=lower, upper=upper)
    # A critic that leaves the box by a rounding error has an infinite conjugate; the box
    # contains 0, so shrinking it a little makes it feasible and the certificate honest.
    widest = min(-lower, upper)
    beta = qp.x / (1.0 + qp.worst / widest)
    rows = _BoundRows(qp.phi, share[qp.index], qp.multiplier, qp.index)
    return _certified(system, beta, loss, ridge_f, ridge_g, rounds=qp.rounds, rows=rows)


@dataclass(frozen=True, slots=True)
class _BoundRows:
    """Rows that entered as constraints, with the forces that hold the critic in the box."""

    phi: Array
    share: Array
    multiplier: Array
    index: IntArray


def _certified(
    system: MinMaxSystem,
    beta: Array,
    loss: BoxLoss,
    ridge_f: float,
    ridge_g: float,
    *,
    rounds: int,
    rows: _BoundRows | None = None,
) -> LossSolution:
    """Certify a solution with residuals v = 2 kappa g plus the multipliers of bound rows."""
    kappa = loss.curvature
    quadratic = kappa * float(beta @ system.C @ beta)
    rho, pull = quadratic, 2.0 * kappa * (system.C @ beta)
    if rows is not None and rows.index.size:
        g = rows.phi @ beta
        v = 2.0 * kappa * g + rows.multiplier / rows.share
        rho += float(rows.share @ (loss(v) - loss(2.0 * kappa * g)))
        pull = pull + rows.phi.T @ rows.multiplier
    return certify(
        system,
        beta,
        conjugate=quadratic,
        rho=rho,
        pull=pull,
        ridges=(ridge_f, ridge_g),
        rounds=rounds,
    )


def certify(
    system: MinMaxSystem,
    beta: Array,
    *,
    conjugate: float,
    rho: float,
    pull: Array,
    ridges: tuple[float, float],
    rounds: int,
) -> LossSolution:
    r"""Return the solution that belongs to ``beta``, with a bound on how far it is from optimal.

    For any residuals v the maximum over beta at fixed alpha is at most
    :math:`E[\rho(v)] + \|A^\top\alpha - 2b - E[v\psi]\|^2/\lambda_g`, by Fenchel and Young. With
    the v of the solution that is tight, and an upper bound whatever the solver did.

    Parameters
    ----------
    conjugate : float
        :math:`E[\rho^*(g)]` at beta, finite.
    rho, pull : float and array of shape (p_g,)
        :math:`E[\rho(v)]` and :math:`E[v\psi]` for some residuals v.
    """
    ridge_f, ridge_g = ridges
    A, b = system.A, system.b
    alpha = -A @ beta / (2.0 * ridge_f)
    penalty = ridge_f * float(alpha @ alpha)  # also |A beta|^2 / (4 ridge_f)
    lower = -2.0 * float(b @ beta) - conjugate - ridge_g / 4.0 * float(beta @ beta) - penalty
    rest = A.T @ alpha - 2.0 * b - pull
    upper = penalty + rho + float(rest @ rest) / ridge_g
    return LossSolution(alpha, beta, upper - lower, lower, rounds)


def solve_smooth_loss(
    system: MinMaxSystem,
    phi: Array,
    share: Array,
    loss: SmoothLoss,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    """Solve the two-player problem for a loss with a smooth conjugate.

    The same concave problem in beta as in `solve_box_loss`, by Newton's method with
    backtracking. ``phi`` (n, p) holds the critic's basis at every row. Costs O(n p^2) per step,
    some ten of them.
    """
    A, b = system.A, system.b
    curvature = A.T @ A / (2.0 * ridge_f) + ridge_g / 2.0 * np.eye(len(b))
    beta, value, steps = _Concave(phi, share, loss, 2.0 * b, curvature).minimise()
    g = phi @ beta
    v = np.asarray(loss.slope(g))
    found = certify(
        system,
        beta,
        conjugate=float(share @ loss.conjugate(g)),
        rho=float(share @ loss(v)),
        pull=phi.T @ (share * v),
        ridges=(ridge_f, ridge_g),
        rounds=steps,
    )
    if not found.gap <= 1e-3 * (1.0 + abs(value)):  # also if it is NaN
        raise InputError(
            f"the problem of this loss was not solved: duality gap {found.gap:g} after {steps} "
            "steps. Either its conjugate gives values that are not finite, or the critic sits at "
            "the edge of its domain, where double precision ends: loss='huber' has no such limit."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Concave:
    """Minus the objective in beta: a convex function on the conjugate's open domain."""

    phi: Array
    share: Array
    loss: SmoothLoss
    linear: Array
    curvature: Array

    def value(self, beta: Array) -> float:
        low, high = self.loss.domain
        g = self.phi @ beta
        if g.min() <= low or g.max() >= high:
            return np.inf
        conjugate = float(self.share @ self.loss.conjugate(g))
        return float(self.linear @ beta) + conjugate + 0.5 * float(beta @ self.curvature @ beta)

    def minimise(self) -> tuple[Array, float, int]:
        """Newton's method; a step out of the domain has an infinite value and is halved."""
        beta = np.zeros(len(self.linear))
        value = self.value(beta)
        for steps in range(MAX_STEPS):
            g = self.phi @ beta
            slope = self.linear + self.phi.T @ (self.share * self.loss.slope(g))
            slope = slope + self.curvature @ beta
            scaled = self.phi * (self.share * self.loss.curve(g))[:, None]
            step = -cho_solve(cho_factor(scaled.T @ self.phi + self.curvature), slope)
            decrease = float(slope @ step)  # twice what is left to gain, to second order
            if -decrease <= 1e-16 * (1.0 + abs(value)):
                return beta, value, steps
            length = 1.0
            # "not <=" also refuses NaN
            while not self.value(beta + length * step) <= value + 0.25 * length * decrease:
                length /= 2.0
                if length < 1e-12:
                    return beta, value, steps
            beta = beta + length * step
            value = self.value(beta)
        return beta, value, MAX_STEPS


def solve_log_cosh(
    system: MinMaxSystem,
    phi: Array,
    share: Array,
    loss: LogCoshLoss,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    r"""Solve the two-player problem for :math:`\rho(v) = \log\cosh v`.

    The concave problem in beta of `solve_box_loss`, with
    :math:`\rho^*(g) = \tfrac12[(1+g)\log(1+g) + (1-g)\log(1-g)]` at every row: two entropies, each
    an exponential cone. Where few rows carry a large force the critic sits at the edge of its
    domain to within rounding and :math:`\rho^{*\prime}(g)` says nothing any more; the
    interior-point method has those forces as its dual variables, which is why Newton's method on
    beta alone does not do. ``phi`` (n, p) holds the critic's basis at every row. Costs O(n p^2)
    per step of some thirty, and O(n p) memory.
    """
    clarabel = import_extra("clarabel", extra="convex")
    A, b = system.A, system.b
    n, p = phi.shape
    Q = A.T @ A / (2.0 * ridge_f) + ridge_g / 2.0 * np.eye(p)
    # Unknowns: beta, then one bound per entropy. A cone holds (-bound, 1 + g, 1) or
    # (-bound, 1 - g, 1), that is bound >= y log y.
    cost = np.concatenate([2.0 * b, np.tile(share / 2.0, 2)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(
        sparse.block_diag([np.triu(Q), sparse.csc_matrix((2 * n, 2 * n))], format="csc"),
        cost,
        _cone_rows(phi),
        np.tile([0.0, 1.0, 1.0], 2 * n),
        [clarabel.ExponentialConeT()] * (2 * n),
        settings,
    ).solve()
    status = str(solution.status)
    if status not in ("Solved", "AlmostSolved"):
        raise InputError(
            f"the problem of the log-cosh loss could not be solved ({status}). Raise the ridges, "
            "or use loss='huber'."
        )
    dual = np.asarray(solution.z).reshape(2, n, 3)[:, :, 1]
    beta = np.asarray(solution.x)[:p]
    beta = beta / max(1.0, np.abs(phi @ beta).max())  # back into the domain, if rounding left it
    conjugate = float(share @ loss.conjugate(np.clip(phi @ beta, -1.0, 1.0)))
    return certify(
        system,
        beta,
        conjugate=conjugate,
        rho=float(share @ loss((dual[1] - dual[0]) / share)),
        pull=phi.T @ (dual[1] - dual[0]),
        ridges=(ridge_f, ridge_g),
        rounds=int(solution.iterations),
    )


def _cone_rows(phi: Array) -> sparse.csc_matrix:
    """Return the matrix that takes (beta, bounds) to minus the cones' entries."""
    n, p = phi.shape
    blocks = []
    for side, sign in enumerate((-1.0, 1.0)):
        bound = sparse.csr_matrix(
            (np.ones(n), (3 * np.arange(n), side * n + np.arange(n))), shape=(3 * n, 2 * n)
        )
        rows = np.zeros((3 * n, p))
        rows[1::3] = sign * phi
        blocks.append(sparse.hstack([sparse.csr_matrix(rows), bound]))
    return sparse.csc_matrix(sparse.vstack(blocks))
