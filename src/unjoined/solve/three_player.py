r"""The three-player problem, for losses that are no function of the difference.

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
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.losses import ThreePlayerLoss
from unjoined.solve.general import LossSolution
from unjoined.sums import MinMaxSystem


@dataclass(frozen=True, slots=True)
class _Players:
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
    players = _Players(phi, share, loss, system.b, ridge_g / 2.0)
    ridge = ridge_g * np.eye(p)
    beta, _, lower_value, steps = players.maximise(np.zeros(p), A.T @ A / (2.0 * ridge_f) + ridge)
    alpha = -A @ beta / (2.0 * ridge_f)
    _, _, at_alpha, _ = players.maximise(A.T @ alpha, ridge)
    upper_value = at_alpha + ridge_f * float(alpha @ alpha)
    return LossSolution(alpha, beta, upper_value - lower_value, lower_value, steps)
