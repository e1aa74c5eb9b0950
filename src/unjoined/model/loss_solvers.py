r"""The min-max problem for losses other than the square, with a certificate of the solution.

A loss :math:`\rho` of the difference has two players,

.. math::

    \min_\alpha \max_\beta \; \alpha^\top A \beta - 2 b^\top \beta - E[\rho^*(g_\beta)]
    + \lambda_f \|\alpha\|^2 - \tfrac{\lambda_g}{4} \|\beta\|^2 .

Minimised over alpha it is a concave problem in beta. Other losses have three players,

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
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.model.accumulate import RowScan
from unjoined.model.losses import BoxLoss, SmoothLoss, ThreePlayerLoss
from unjoined.model.minmax import MinMaxSystem, solve_box_qp

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
    system: MinMaxSystem,
    rows: RowScan,
    share: Array,
    loss: Any,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    """Solve the problem of a loss by the method that suits it.

    ``rows`` has the critic's basis, ``share`` the weight of each row, adding up to 1. Only a loss
    whose conjugate is a square on a box does without the basis values of all rows in memory.
    """
    problem = _Problem(system, share, ridge_f, ridge_g)
    if isinstance(loss, ThreePlayerLoss):
        return problem.three_player(rows.basis(rows.X), loss)
    if isinstance(loss, SmoothLoss):
        return problem.smooth(rows.basis(rows.X), loss)
    return problem.box(rows, loss)


@dataclass(frozen=True, slots=True)
class _Problem:
    """What all methods need: the averages, the rows' shares and the ridges."""

    system: MinMaxSystem
    share: Array  # (n,)
    ridge_f: float
    ridge_g: float

    @property
    def curvature(self) -> Array:
        """The quadratic form in beta that is left by minimising over alpha, and its ridge."""
        A = self.system.A
        return A.T @ A / (2.0 * self.ridge_f) + self.ridge_g / 2.0 * np.eye(A.shape[1])

    def box(self, rows: RowScan, loss: BoxLoss) -> LossSolution:
        r"""Solve for a conjugate :math:`\kappa g^2` on a box: a quadratic programme in beta."""
        b, C, kappa = self.system.b, self.system.C, loss.curvature
        Q, (lower, upper) = 2.0 * kappa * C + self.curvature, loss.box
        beta = cho_solve(cho_factor(Q), -2.0 * b)
        rounds = 0
        qp = None
        if np.isfinite([lower, upper]).any():
            qp = solve_box_qp(Q, 2.0 * b, beta, rows, lower=lower, upper=upper)
            # A critic that leaves the box by a rounding error has an infinite conjugate; the box
            # contains 0, so shrinking it a little makes it feasible and the certificate honest.
            beta = qp.x / (1.0 + qp.worst / min(-lower, upper))
            rounds = qp.rounds
        # Residuals are v = 2 kappa g, plus the multipliers of rows at the edge of the box.
        quadratic = kappa * float(beta @ C @ beta)
        rho = quadratic
        pull = 2.0 * kappa * (C @ beta)
        if qp is not None and qp.index.size:
            inside = 2.0 * kappa * (qp.phi @ beta)
            share = self.share[qp.index]
            rho += float(share @ (loss(inside + qp.multiplier / share) - loss(inside)))
            pull = pull + qp.phi.T @ qp.multiplier
        return self.certified(beta, quadratic, rho, pull, rounds)

    def certified(
        self, beta: Array, conjugate: float, rho: float, pull: Array, rounds: int
    ) -> LossSolution:
        r"""Return the solution of ``beta``, with a bound on how far it is from optimal.

        For any residuals v the maximum over beta at fixed alpha is at most
        :math:`E[\rho(v)] + \|A^\top\alpha - 2b - E[v\psi]\|^2/\lambda_g`, by Fenchel and Young.
        With the v of the solution that is tight, and an upper bound whatever the solver did.
        ``conjugate`` is :math:`E[\rho^*(g)]`, ``rho`` and ``pull`` are :math:`E[\rho(v)]` and
        :math:`E[v\psi]`.
        """
        A, b = self.system.A, self.system.b
        alpha = -A @ beta / (2.0 * self.ridge_f)
        penalty = self.ridge_f * float(alpha @ alpha)  # also |A beta|^2 / (4 ridge_f)
        ridge = self.ridge_g / 4.0 * float(beta @ beta)
        lower = -2.0 * float(b @ beta) - conjugate - ridge - penalty
        rest = A.T @ alpha - 2.0 * b - pull
        upper = penalty + rho + float(rest @ rest) / self.ridge_g
        return LossSolution(alpha, beta, upper - lower, lower, rounds)

    def smooth(self, phi: Array, loss: SmoothLoss) -> LossSolution:
        """Solve for a smooth conjugate, by some ten Newton steps of O(n p^2)."""
        share = self.share
        beta, value, steps = _minimise(
            phi, share, loss, 2.0 * self.system.b, self.curvature
        )
        g = phi @ beta
        v = np.asarray(loss.slope(g))
        conjugate = float(share @ loss.conjugate(g))
        rho = float(share @ loss(v))
        solution = self.certified(beta, conjugate, rho, phi.T @ (share * v), steps)
        if not solution.gap <= 1e-3 * (1.0 + abs(value)):  # also if it is NaN
            raise InputError(
                f"the problem of this loss was not solved: duality gap {solution.gap:g} after "
                f"{steps} steps. Either its conjugate gives values that are not finite, or the "
                "critic sits at the edge of its domain, where double precision ends: loss='huber' "
                "has no such limit."
            )
        return solution

    def three_player(self, phi: Array, loss: ThreePlayerLoss) -> LossSolution:
        r"""Solve for three players, with the ridge of g for h as well.

        The minimum over alpha is known in closed form, that over gamma, the coefficients of h, is
        found by a quasi-Newton method at each step of another one over beta; all of it is convex.
        The gap compares the value at alpha, maximised anew over beta, with the value at beta.
        Costs O(n p) per evaluation, some thousands of them.
        """
        A, b = self.system.A, self.system.b
        game = phi, self.share, loss, b, self.ridge_g / 2.0
        ridge = self.ridge_g * np.eye(len(b))
        quadratic = A.T @ A / (2.0 * self.ridge_f) + ridge
        beta, lower, steps = _maximise(*game, np.zeros(len(b)), quadratic)
        alpha = -A @ beta / (2.0 * self.ridge_f)
        _, at_alpha, _ = _maximise(*game, A.T @ alpha, ridge)
        upper = at_alpha + self.ridge_f * float(alpha @ alpha)
        return LossSolution(alpha, beta, upper - lower, lower, steps)


def _minimise(
    phi: Array, share: Array, loss: SmoothLoss, linear: Array, curvature: Array
) -> tuple[Array, float, int]:
    """Minimise minus the objective in beta, convex on the conjugate's domain, by Newton's method.

    A step out of the open domain has an infinite value and is halved.
    """
    low, high = loss.domain

    def value_at(beta: Array) -> float:
        g = phi @ beta
        if g.min() <= low or g.max() >= high:
            return np.inf
        conjugate = float(share @ loss.conjugate(g))
        return float(linear @ beta) + conjugate + 0.5 * float(beta @ curvature @ beta)

    beta = np.zeros(len(linear))
    value = value_at(beta)
    for steps in range(MAX_STEPS):
        g = phi @ beta
        slope = linear + phi.T @ (share * loss.slope(g)) + curvature @ beta
        scaled = phi * (share * loss.curve(g))[:, None]
        step = -cho_solve(cho_factor(scaled.T @ phi + curvature), slope)
        decrease = float(slope @ step)  # twice what is left to gain, to second order
        if -decrease <= 1e-16 * (1.0 + abs(value)):
            return beta, value, steps
        length = 1.0
        # "not <=" also refuses NaN
        while not value_at(beta + length * step) <= value + 0.25 * length * decrease:
            length /= 2.0
            if length < 1e-12:
                return beta, value, steps
        beta = beta + length * step
        value = value_at(beta)
    return beta, value, MAX_STEPS


def _maximise(
    phi: Array,
    share: Array,
    loss: ThreePlayerLoss,
    b: Array,
    ridge: float,
    linear: Array,
    quadratic: Array,
) -> tuple[Array, float, int]:
    """Maximise linear^T beta - beta^T quadratic beta / 2 + (third player's minimum)."""
    p = len(b)
    C = (phi * share[:, None]).T @ phi
    # In these coordinates both curvatures are near the identity, whatever the ridges, and a
    # quasi-Newton method needs few steps.
    outer = cholesky(quadratic + C + 1e-12 * np.trace(C) * np.eye(p))
    inner = cholesky(C + 2.0 * ridge * np.eye(p))
    last = [np.zeros(p)]  # the third player's last answer, where the next search begins

    def answer(g: Array) -> float:
        """Find gamma that minimises the third player's part, and return its value."""

        def value(c: Array) -> tuple[float, Array]:
            gamma = solve_triangular(inner, c, lower=False)
            h = phi @ gamma
            total = float(share @ loss.biconjugate(g, h)) - 2.0 * float(b @ gamma)
            slope = phi.T @ (share * loss.slope_h(g, h)) - 2.0 * b + 2.0 * ridge * gamma
            slope = solve_triangular(inner, slope, lower=False, trans="T")
            return total + ridge * float(gamma @ gamma), np.asarray(slope)

        best = _descend(value, inner @ last[0])
        last[0] = np.asarray(solve_triangular(inner, best.x, lower=False))
        return float(best.fun)

    def negative(c: Array) -> tuple[float, Array]:
        beta = solve_triangular(outer, c, lower=False)
        g = phi @ beta
        minimum = answer(g)
        slope = (
            linear - quadratic @ beta + phi.T @ (share * loss.slope_g(g, phi @ last[0]))
        )
        total = float(linear @ beta) - 0.5 * float(beta @ quadratic @ beta) + minimum
        return -total, np.asarray(
            solve_triangular(outer, -slope, lower=False, trans="T")
        )

    best = _descend(negative, np.zeros(p))
    beta = np.asarray(solve_triangular(outer, best.x, lower=False))
    return beta, -float(best.fun), int(best.nit)


def _descend(value: Callable[[Array], tuple[float, Array]], start: Array) -> Any:
    result = minimize(
        value,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 1e-15, "maxiter": 2000},
    )
    if not np.isfinite(result.fun):
        raise InputError(
            "the loss gave values that are not finite. Check its biconjugate."
        )
    return result
