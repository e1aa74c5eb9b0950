r"""Losses of the difference :math:`v = \mu_w f - 2\mu_z`, each with its convex conjugate.

For :math:`\ell(y, y') = \rho(y - y')` the paper's three-player problem has only two players,
:math:`\inf_f \sup_g E[w f g] - 2 E[z g] - E[\rho^*(g)]`: the conjugate in the first argument is
:math:`\ell^*(s, y') = s y' + \rho^*(s)`, linear in the second, so that the third player has to
play :math:`h = g`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_positive
from unjoined.errors import InputError

__all__ = [
    "AbsoluteLoss",
    "HuberLoss",
    "PinballLoss",
    "SmoothLoss",
    "SquaredLoss",
    "ThreePlayerLoss",
]


class BoxLoss:
    """A loss whose conjugate is ``curvature * g**2`` on the interval ``box``, infinite outside."""

    __slots__ = ()

    curvature: ClassVar[float] = 0.0

    @property
    def box(self) -> tuple[float, float]:
        """Where the conjugate is finite."""
        return (-np.inf, np.inf)

    def __call__(self, v: Array) -> Array:
        """Return rho(v), the largest value of g v less the conjugate."""
        low, high = self.box
        if self.curvature:
            g = np.clip(v / (2.0 * self.curvature), low, high)
        else:
            g = np.where(v > 0.0, high, low)
        return np.asarray(g * v - self.curvature * g**2)

    def in_units(self, scale: float) -> BoxLoss:
        """Return the loss for differences in multiples of ``scale``; most have no scale."""
        return self


@dataclass(frozen=True, slots=True)
class SquaredLoss(BoxLoss):
    """The loss of the paper: rho(v) = v^2, conjugate g^2/4."""

    curvature: ClassVar[float] = 0.25


@dataclass(frozen=True, slots=True)
class HuberLoss(BoxLoss):
    r"""Quadratic up to ``delta``, linear beyond.

    :math:`\rho(v) = v^2/2` for :math:`|v| \le \delta`, else :math:`\delta|v| - \delta^2/2`; the
    conjugate is :math:`g^2/2` on :math:`|g| \le \delta`. The critic is bounded, so no outcome,
    however large, pulls the estimate further than one at the bound.

    Parameters
    ----------
    delta : float, default=1.0
        Where the loss turns linear, outcome units.
    """

    delta: float = 1.0
    curvature: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        """Refuse a threshold that is not above 0."""
        check_positive("delta", self.delta)

    @property
    def box(self) -> tuple[float, float]:
        """Where the conjugate is finite."""
        return (-self.delta, self.delta)

    def in_units(self, scale: float) -> HuberLoss:
        """Return the loss with ``delta`` in multiples of ``scale``."""
        return HuberLoss(self.delta / scale)


@dataclass(frozen=True, slots=True)
class PinballLoss(BoxLoss):
    r""":math:`\rho(v) = \max(\tau v, (\tau - 1) v)`; conjugate 0 on :math:`[\tau - 1, \tau]`.

    Parameters
    ----------
    tau : float, default=0.5
        Between 0 and 1; above one half, estimates that are too low cost less.
    """

    tau: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a level outside of (0, 1)."""
        if not 0.0 < self.tau < 1.0:
            raise InputError(
                f"tau must lie strictly between 0 and 1, got {self.tau!r}."
            )

    @property
    def box(self) -> tuple[float, float]:
        """Where the conjugate is finite."""
        return (self.tau - 1.0, self.tau)


@dataclass(frozen=True, slots=True)
class AbsoluteLoss(BoxLoss):
    """rho(v) = abs(v); conjugate 0 on [-1, 1]."""

    @property
    def box(self) -> tuple[float, float]:
        """Where the conjugate is finite."""
        return (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class SmoothLoss:
    r"""A loss given by itself and its conjugate, both twice differentiable.

    Parameters
    ----------
    rho : callable
        The loss :math:`\rho(v)`, convex.
    conjugate, slope, curve : callable
        :math:`\rho^*(g)`, its first and its second derivative.
    domain : pair of float
        Open interval on which :math:`\rho^*` is finite; it must contain 0.

    Notes
    -----
    The conjugate is checked against :math:`\sup_v g v - \rho(v)` on a grid when a model is
    fitted. Differences v are in multiples of the outcome's robust spread.
    """

    rho: Callable[[Array], Array]
    conjugate: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curve: Callable[[Array], Array]
    domain: tuple[float, float] = (-np.inf, np.inf)

    def __call__(self, v: Array) -> Array:
        """Return rho(v)."""
        return self.rho(v)

    def in_units(self, scale: float) -> SmoothLoss:
        """Return itself: its units are the inner ones."""
        return self


LOSSES: dict[str, Callable[[], BoxLoss]] = {
    "squared": SquaredLoss,
    "absolute": AbsoluteLoss,
    "huber": HuberLoss,
    "pinball": PinballLoss,
}


def check_conjugate(loss: SmoothLoss) -> None:
    """Refuse a conjugate that is not convex or not that of the loss, as far as a grid shows."""
    low, high = loss.domain
    if not low < 0.0 < high:
        raise InputError(
            f"the domain of the conjugate must contain 0, got {loss.domain}."
        )
    g = np.linspace(max(low, -4.0), min(high, 4.0), 43)[1:-1]
    values = np.asarray(loss.conjugate(g), dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError("the conjugate must be finite inside its domain, and is not.")
    if (np.diff(values, 2) < -1e-9 * (1.0 + np.abs(values[1:-1]))).any():
        raise InputError(
            "the conjugate must be convex; its second differences are negative."
        )
    v = np.asarray(loss.slope(g), dtype=np.float64)
    # Fenchel and Young: rho(v) + rho*(g) >= g v for all pairs, with equality at v = rho*'(g).
    product = g * v
    off = np.abs(loss.rho(v) + values - product)
    below = np.min(loss.rho(v)[:, None] + values[None, :] - np.outer(v, g))
    if (off > 1e-6 * (1.0 + np.abs(product))).any() or below < -1e-6:
        raise InputError(
            "the conjugate does not belong to the loss: rho(v) + rho*(g) must equal g v at "
            "v = rho*'(g) and be no smaller elsewhere. Check the formulas of rho, conjugate and "
            "slope."
        )


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
    s = np.linspace(-1.0, 1.0, 21)
    y = np.linspace(-20.0, 20.0, 8001)
    grid_g, grid_h = (axis.ravel() for axis in np.meshgrid(s, s))
    for u in (-1.0, 0.0, 1.0):
        values = np.asarray(loss.conjugate(s, np.full_like(s, u)))
        if not np.isfinite(values).all() or (np.diff(values, 2) < -1e-9).any():
            raise InputError(
                "the conjugate must be finite and convex in its first argument."
            )
    given = np.asarray(loss.biconjugate(grid_g, grid_h)).reshape(
        21, 21
    )  # rows: h, columns: g
    if (np.diff(given, 2, axis=0) < -1e-9).any() or (
        np.diff(given, 2, axis=1) > 1e-9
    ).any():
        raise InputError("the biconjugate must be convex in h and concave in g.")
    expected = np.array(
        [
            np.max(h * y - loss.conjugate(np.full_like(y, g), y))
            for g, h in zip(grid_g[::20], grid_h[::20], strict=True)
        ]
    )
    if not np.allclose(expected, given.ravel()[::20], rtol=1e-4, atol=1e-4):
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
        if not np.allclose(
            (up - down) / (2.0 * step), slope(g, h), rtol=1e-4, atol=1e-6
        ):
            raise InputError(f"{name} is not the derivative of the biconjugate.")
