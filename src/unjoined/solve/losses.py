r"""The min-max problem for losses other than the square, with a certificate of the solution.

Losses of the difference have two players. Others have three,

.. math::

    \inf_f \sup_g \inf_h \; K(f, g, h) = E[w f g] - 2 E[z h] + E[\ell^*_*(g, h)],

where :math:`\ell^*(s, y')` is the conjugate of :math:`\ell(y, y')` in its first argument and
:math:`\ell^*_*(s, h) = \sup_{y'} y' h - \ell^*(s, y')` that of :math:`\ell^*` in its second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from unjoined._optional import import_extra
from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.losses import BoxLoss, LogCoshLoss, SmoothLoss, ThreePlayerLoss
from unjoined.solve.qp import RowOracle, solve_box_qp
from unjoined.sums import MinMaxSystem, RowScan

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


def solve_loss(
    system: MinMaxSystem, rows: RowScan, share: Array, loss: Any, *, ridge_f: float, ridge_g: float
) -> LossSolution:
    """Solve the problem of a loss by the method that suits it.

    ``rows`` has the critic's basis. Only a loss with a conjugate on a box does without the basis
    values of all rows in memory.
    """
    ridges = {"ridge_f": ridge_f, "ridge_g": ridge_g}
    if isinstance(loss, ThreePlayerLoss):
        return solve_three_player(system, rows.basis(rows.X), share, loss, **ridges)
    if isinstance(loss, LogCoshLoss):
        return solve_log_cosh(system, rows.basis(rows.X), share, loss, **ridges)
    if isinstance(loss, SmoothLoss):
        return solve_smooth_loss(system, rows.basis(rows.X), share, loss, **ridges)
    return solve_box_loss(system, rows, share, loss, **ridges)


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
    ``oracle`` finds rows at which the critic leaves the box; ``share`` is the weight of each row in
    :math:`E[\rho^*(g)]`, adding up to 1.
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
    ``conjugate`` is :math:`E[\rho^*(g)]` at beta; ``rho`` and ``pull`` are :math:`E[\rho(v)]` and
    :math:`E[v\psi]` for some residuals v.
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


@dataclass(frozen=True, slots=True)
class _MaxMin:
    """The problem once alpha is given or minimised out: a maximum over beta of a minimum."""

    phi: Array  # (n, p)
    share: Array  # (n,) adding up to 1
    loss: ThreePlayerLoss
    b: Array  # (p,)
    ridge: float

    def answer(self, beta: Array, start: Array, root: Array) -> tuple[Array, float]:
        """Return gamma that minimises the third player's part, and its value."""
        g = self.phi @ beta

        def value(c: Array) -> tuple[float, Array]:
            gamma = solve_triangular(root, c, lower=False)
            h = self.phi @ gamma
            total = (
                float(self.share @ self.loss.biconjugate(g, h))
                - 2.0 * float(self.b @ gamma)
                + self.ridge * float(gamma @ gamma)
            )
            slope = self.phi.T @ (self.share * self.loss.slope_h(g, h))
            slope = slope - 2.0 * self.b + 2.0 * self.ridge * gamma
            return total, np.asarray(solve_triangular(root, slope, lower=False, trans="T"))

        found = _descend(value, root @ start)
        return np.asarray(solve_triangular(root, found.x, lower=False)), float(found.fun)

    def maximise(self, linear: Array, quadratic: Array) -> tuple[Array, Array, float, int]:
        """Maximise linear^T beta - beta^T quadratic beta / 2 + (third player's minimum)."""
        p = len(self.b)
        C = (self.phi * self.share[:, None]).T @ self.phi
        # In these coordinates both curvatures are near the identity, whatever the ridges, and a
        # quasi-Newton method needs few steps.
        outer = cholesky(quadratic + C + 1e-12 * np.trace(C) * np.eye(p))
        inner = cholesky(C + 2.0 * self.ridge * np.eye(p))
        last = [np.zeros(p)]  # the third player's last answer, where the next search begins

        def negative(c: Array) -> tuple[float, Array]:
            beta = solve_triangular(outer, c, lower=False)
            last[0], minimum = self.answer(beta, last[0], inner)
            g, h = self.phi @ beta, self.phi @ last[0]
            slope = linear - quadratic @ beta
            slope = slope + self.phi.T @ (self.share * self.loss.slope_g(g, h))
            total = float(linear @ beta) - 0.5 * float(beta @ quadratic @ beta) + minimum
            return -total, np.asarray(solve_triangular(outer, -slope, lower=False, trans="T"))

        found = _descend(negative, np.zeros(p))
        beta = np.asarray(solve_triangular(outer, found.x, lower=False))
        return beta, last[0], -float(found.fun), int(found.nit)


def _descend(value: Callable[[Array], tuple[float, Array]], start: Array) -> Any:
    found = minimize(
        value,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 1e-15, "maxiter": 2000},
    )
    if not np.isfinite(found.fun):
        raise InputError("the loss gave values that are not finite. Check its biconjugate.")
    return found


def solve_three_player(
    system: MinMaxSystem,
    phi: Array,
    share: Array,
    loss: ThreePlayerLoss,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    r"""Solve the three-player problem on one basis for f, g and h.

    :math:`K + \lambda_f\|\alpha\|^2 - \tfrac{\lambda_g}{2}\|\beta\|^2 +
    \tfrac{\lambda_g}{2}\|\gamma\|^2`, h having the critic's ridge. The minimum over alpha is known
    in closed form, that over gamma is found by a quasi-Newton method at each step of another one
    over beta; all of it is convex. The gap compares the value at alpha, maximised anew over
    beta, with the value at beta. Costs O(n p) per evaluation, some thousands of them.
    """
    A, p = system.A, len(system.b)
    game = _MaxMin(phi, share, loss, system.b, ridge_g / 2.0)
    ridge = ridge_g * np.eye(p)
    beta, _, lower_value, steps = game.maximise(np.zeros(p), A.T @ A / (2.0 * ridge_f) + ridge)
    alpha = -A @ beta / (2.0 * ridge_f)
    _, _, at_alpha, _ = game.maximise(A.T @ alpha, ridge)
    upper_value = at_alpha + ridge_f * float(alpha @ alpha)
    return LossSolution(alpha, beta, upper_value - lower_value, lower_value, steps)
