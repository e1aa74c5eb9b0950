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
from unjoined.moments import MinMaxSystem
from unjoined.solve._general_loss import LossSolution

__all__ = ["ThreePlayerLoss", "check_conjugates", "solve_three_player"]


@dataclass(frozen=True, slots=True)
class ThreePlayerLoss:
    r"""A loss given by its two conjugates.

    Parameters
    ----------
    conjugate : callable
        :math:`\ell^*(s, y')`, convex in s and in y'.
    biconjugate : callable
        :math:`\ell^*_*(g, h)`, concave in g and convex in h.
    slope_g, slope_h : callable
        Its partial derivatives.

    Notes
    -----
    The conjugates are checked against each other on a grid, and the derivatives by differences,
    when a model is fitted.

    Examples
    --------
    For :math:`\ell(y, y') = \psi(y) - y y'` the conjugates are :math:`\psi^*(s + y')` and
    :math:`\psi(h) - g h`; with :math:`\psi(y) = y^2/2` the loss is the squared one.

    >>> half_square = ThreePlayerLoss(
    ...     conjugate=lambda s, y: (s + y) ** 2 / 2,
    ...     biconjugate=lambda g, h: h**2 / 2 - g * h,
    ...     slope_g=lambda g, h: -h,
    ...     slope_h=lambda g, h: h - g,
    ... )
    >>> check_conjugates(half_square)
    """

    conjugate: Callable[[Array, Array], Array]
    biconjugate: Callable[[Array, Array], Array]
    slope_g: Callable[[Array, Array], Array]
    slope_h: Callable[[Array, Array], Array]


def check_conjugates(loss: ThreePlayerLoss) -> None:
    """Refuse conjugates that do not belong together, or that the solver cannot work with."""
    s, y = np.linspace(-1.0, 1.0, 21), np.linspace(-20.0, 20.0, 8001)
    grid_g, grid_h = (axis.ravel() for axis in np.meshgrid(s, s))
    for u in (-1.0, 0.0, 1.0):
        values = np.asarray(loss.conjugate(s, np.full_like(s, u)))
        if not np.isfinite(values).all() or (np.diff(values, 2) < -1e-9).any():
            raise InputError("the conjugate must be finite and convex in its first argument.")
    given = np.asarray(loss.biconjugate(grid_g, grid_h)).reshape(21, 21)  # rows: h, columns: g
    if (np.diff(given, 2, axis=0) < -1e-9).any() or (np.diff(given, 2, axis=1) > 1e-9).any():
        raise InputError("the biconjugate must be convex in h and concave in g.")
    found = np.array(
        [
            np.max(h * y - loss.conjugate(np.full_like(y, g), y))
            for g, h in zip(grid_g[::20], grid_h[::20], strict=True)
        ]
    )
    if not np.allclose(found, given.ravel()[::20], rtol=1e-4, atol=1e-4):
        raise InputError(
            "the biconjugate is not the conjugate of the conjugate in its second argument: "
            "sup over y' of y' h - conjugate(g, y') gives other values. Check both formulas."
        )
    _check_slopes(loss, grid_g, grid_h)


def _check_slopes(loss: ThreePlayerLoss, g: Array, h: Array) -> None:
    step = 1e-6
    for name, slope, shift in (
        ("slope_g", loss.slope_g, (step, 0.0)),
        ("slope_h", loss.slope_h, (0.0, step)),
    ):
        up = loss.biconjugate(g + shift[0], h + shift[1])
        down = loss.biconjugate(g - shift[0], h - shift[1])
        if not np.allclose((up - down) / (2.0 * step), slope(g, h), rtol=1e-4, atol=1e-6):
            raise InputError(f"{name} is not the derivative of the biconjugate.")


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
