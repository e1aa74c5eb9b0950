"""The strongest critic of bounded norm: a concave quadratic over a ball, maximised exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from unjoined._typing import Array

__all__ = ["BallMaximum", "maximize_on_ball"]


@dataclass(frozen=True, slots=True)
class BallMaximum:
    """Where the maximum lies, how large it is, and how hard the ball presses."""

    beta: Array  # (p,)
    value: float
    multiplier: float  # nu >= 0; 0 if the ball does not bind


def maximize_on_ball(a: Array, C: Array, radius: float) -> BallMaximum:
    r"""Maximise :math:`2 a^\top\beta - \beta^\top C \beta` over :math:`\|\beta\| \le \Lambda`.

    The maximiser solves :math:`(C + \nu I)\beta = a` with :math:`\nu \ge 0` and
    :math:`\nu(\Lambda - \|\beta\|) = 0`. As the quadratic is concave, these conditions are
    sufficient. With eigenvalues :math:`d_i` of C and :math:`\tilde a` in its eigenvectors, the
    multiplier is 0 or the root of :math:`\sum_i \tilde a_i^2 / (d_i + \nu)^2 = \Lambda^2`.

    Arguments are trusted: ``a`` (p,), ``C`` (p, p) symmetric positive semi-definite, radius > 0.
    Costs O(p^3).
    """
    values, vectors = eigh(C)
    d = np.maximum(values, 0.0)  # rounding must not make the quadratic convex
    rotated = vectors.T @ a
    nu = _multiplier(rotated, d, radius)
    at = _divide(rotated, d + nu)
    value = float(np.sum(2.0 * rotated * at - d * at**2))
    return BallMaximum(vectors @ at, value, nu)


def _divide(rotated: Array, shifted: Array) -> Array:
    """Return the quotient, 0 where there is nothing to gain and nothing to lose."""
    idle = (rotated == 0.0) & (shifted == 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # infinite: the ball will bind
        return np.where(idle, 0.0, rotated / np.where(idle, 1.0, shifted))


def _multiplier(rotated: Array, d: Array, radius: float) -> float:
    """Return the root of the secular equation, or 0 if the free maximum lies in the ball."""

    def excess(nu: float) -> float:
        # The inverse of the norm is nearly a straight line in nu, the norm itself has a pole.
        return 1.0 / _norm(_divide(rotated, d + nu)) - 1.0 / radius

    if _norm(_divide(rotated, d)) <= radius:
        return 0.0
    upper = _norm(rotated) / radius  # |beta| <= |a| / nu
    # Rounding can put the root a hair outside when the curvature is 0.
    if excess(upper) <= 0.0:
        return upper
    # Roots can lie many powers of ten below the bracket's end when C is nearly singular.
    return float(brentq(excess, 0.0, upper, xtol=1e-300, rtol=1e-15, maxiter=2000))


def _norm(vector: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(vector))
