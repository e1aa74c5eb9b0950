r"""Conditional densities by least squares, and the 2x2 system that unmixes them.

Shapes: n rows, d features, c centres, g grid values, r ridges. Kernels are written as in the
paper, :math:`\exp(-\|x - u\|^2 / \text{width}^2)`, in :math:`x` and in :math:`y`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from unjoined._typing import Array, BoolArray, IntArray

MIN_GRID, MAX_GRID = 101, 10_001
FARTHEST = -1e300  # of a Gaussian's exponent
NO_GAP = 1e-100  # policies this close are the same; dividing by less could overflow


@dataclass(frozen=True, slots=True)
class ConditionalDensity:
    r"""A density of y given x: Gaussians in y, whose shares depend on x.

    .. math::

        p(y \mid x) = \sum_l s_l(x) \frac{\exp(-(y - v_l)^2 / \omega^2)}{\omega \sqrt\pi}, \qquad
        s_l(x) \propto \alpha_l \exp(-\|x - u_l\|^2 / \sigma^2), \quad \sum_l s_l(x) = 1.

    It is positive and integrates to one at every x.
    """

    centers: Array  # (c, d) u
    values: Array  # (c,) v
    alpha: Array  # (c,) > 0
    width_x: float  # sigma
    width_y: float  # omega

    def shares(self, X: Array) -> Array:
        """Return the shares s_l(x), shape (n, c); every row adds up to one."""
        exponent = cdist(X, self.centers, "sqeuclidean")
        exponent /= -(self.width_x**2)
        np.maximum(exponent, FARTHEST, out=exponent)  # a squared distance may be infinite
        exponent += np.log(self.alpha)
        # Far from all centres every kernel underflows. Divided by the largest one first, what
        # is left is the density at the nearest centres instead of 0 / 0.
        exponent -= exponent.max(axis=1, keepdims=True)
        shares = np.exp(exponent, out=exponent)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def bumps(self, y: Array) -> Array:
        """Return the Gaussian of each centre at each value of y, shape (c, g)."""
        z = (y[None, :] - self.values[:, None]) / self.width_y
        return np.asarray(np.exp(-(z**2)) / (self.width_y * np.sqrt(np.pi)))

    def __call__(self, X: Array, grid: Array) -> Array:
        """Return p(y | x) for every row and grid value, shape (n, g)."""
        return self.shares(X) @ self.bumps(grid)

    def mean(self, X: Array) -> Array:
        """Return the mean of y given x, shape (n,), without a grid."""
        return self.shares(X) @ self.values

    def risk(self, X: Array, y: Array, weight: Array) -> float:
        r"""Return the least-squares risk on held-out rows; lower is better.

        .. math::

            \tfrac12 \overline{\int p(y \mid x)^2 dy} - \overline{p(y \mid x)},

        which is half the mean squared distance from the true density, less a constant.
        Costs O(n c^2).
        """
        shares = self.shares(X)
        square = np.einsum("il,il->i", shares @ self._products(), shares)
        at_y = np.einsum("il,li->i", shares, self.bumps(y))
        return float(np.average(0.5 * square - at_y, weights=weight))

    def _products(self) -> Array:
        """Return the integrals over y of the products of two bumps, shape (c, c)."""
        apart = (self.values[:, None] - self.values[None, :]) / self.width_y
        return np.asarray(np.exp(-0.5 * apart**2) / (self.width_y * np.sqrt(2.0 * np.pi)))


DensityFitter: TypeAlias = Callable[
    [Array, Array, Array, float, float, Array], list[ConditionalDensity]
]
"""``fitter(X, y, weight, width_x, width_y, ridges)`` returns one density per ridge."""


@dataclass(frozen=True, slots=True)
class LeastSquaresFitter:
    r"""Least-squares conditional density estimation (Sugiyama et al. 2010).

    Minimises :math:`\tfrac12 \alpha^\top H \alpha - h^\top \alpha + \tfrac\lambda2 \|\alpha\|^2`
    over the coefficients of :math:`\phi_l(x, y) = e^{-\|x - u_l\|^2/\sigma^2 - (y -
    v_l)^2/\omega^2}` with :math:`H = \overline{\int \phi \phi^\top dy}` and
    :math:`h = \overline{\phi}`, bars being means over rows, and sets negative coefficients to 0.
    The centres :math:`(u_l, v_l)` are the first ``n_centers`` rows it is given: shuffle them first.
    So no held-out row is a centre, which would make small widths look good.
    """

    n_centers: int

    def __call__(
        self, X: Array, y: Array, weight: Array, width_x: float, width_y: float, ridges: Array
    ) -> list[ConditionalDensity]:
        """Return one density per ridge; costs O(n c^2 + r c^3)."""
        u, v = X[: self.n_centers], y[: self.n_centers]
        share = weight / weight.sum()
        K = np.exp(-cdist(X, u, "sqeuclidean") / width_x**2)  # (n, c)
        apart = (v[:, None] - v[None, :]) / width_y
        overlap = np.sqrt(np.pi / 2.0) * width_y * np.exp(-0.5 * apart**2)  # integral over y
        H = (K * share[:, None]).T @ K * overlap  # (c, c)
        near = np.exp(-(((y[:, None] - v[None, :]) / width_y) ** 2))
        h = share @ (K * near)  # (c,)
        densities = []
        for ridge in ridges:
            # An eigendecomposition for all ridges would cost more than a handful of these.
            alpha = np.linalg.solve(H + ridge * np.eye(len(h)), h)
            # Not all are negative: h >= 0 and, as centres are rows, h > 0, while
            # alpha^T (H + ridge I) alpha = h^T alpha > 0.
            kept = alpha > 0.0
            densities.append(ConditionalDensity(u[kept], v[kept], alpha[kept], width_x, width_y))
        return densities


def kernel_fitter(
    X: Array, y: Array, weight: Array, width_x: float, width_y: float, ridges: Array
) -> list[ConditionalDensity]:
    """Return the ratio of two kernel density estimates, of (x, y) and of x, whatever ``ridges``."""
    return [ConditionalDensity(X, y, weight, width_x, width_y)]


@dataclass(frozen=True, slots=True)
class DensitySearch:
    """Held-out least-squares risks of every candidate; lower is better."""

    widths_x: Array  # (a,)
    widths_y: Array  # (b,)
    ridges: Array  # (r,)
    risks: Array  # (a, b, r)

    @property
    def best(self) -> tuple[float, float, float]:
        """Width in x, width in y and ridge of the smallest risk, the first among equals."""
        i, j, k = np.unravel_index(int(np.argmin(self.risks)), self.risks.shape)
        return float(self.widths_x[i]), float(self.widths_y[j]), float(self.ridges[k])


def search_density(
    fitter: DensityFitter,
    X: Array,
    y: Array,
    weight: Array,
    fold: IntArray,
    *,
    widths_x: Array,
    widths_y: Array,
    ridges: Array,
) -> DensitySearch:
    """Cross-validate every pair of widths and every ridge by the least-squares risk."""
    n_folds = int(fold.max()) + 1
    size = np.array([weight[fold == v].sum() for v in range(n_folds)])
    risks = np.zeros((len(widths_x), len(widths_y), len(ridges)))
    # Hundreds of small factorisations: threads inside BLAS cost more than they bring.
    with threadpool_limits(limits=1, user_api="blas"):
        for v, i, j in np.ndindex(n_folds, len(widths_x), len(widths_y)):
            held, kept = fold == v, fold != v
            densities = fitter(
                X[kept], y[kept], weight[kept], float(widths_x[i]), float(widths_y[j]), ridges
            )
            risk = [density.risk(X[held], y[held], weight[held]) for density in densities]
            risks[i, j] += size[v] / size.sum() * np.asarray(risk)
    return DensitySearch(widths_x, widths_y, ridges, risks)


@dataclass(frozen=True, slots=True)
class UnmixedDensities:
    """The law of the outcome with and without treatment; it may be negative here and there."""

    grid: Array  # (g,) values of y, outcome units
    measure: Array  # (g,) what one grid value counts for in a sum that stands for an integral
    treated: Array  # (n, g) p(y | x, t = 1), per outcome unit
    untreated: Array  # (n, g) p(y | x, t = -1), per outcome unit
    guarded: BoolArray  # (n,) rows where the policies were too alike, and were moved apart

    @property
    def means(self) -> tuple[Array, Array]:
        """Mean outcome with and without treatment at each row, outcome units."""
        moment = self.grid * self.measure
        return self.treated @ moment, self.untreated @ moment

    @property
    def uplift(self) -> Array:
        """Integral of y against the difference of the two, at each row, outcome units."""
        return (self.treated - self.untreated) @ (self.grid * self.measure)


def separate_policies(e_1: Array, e_2: Array, min_gap: float) -> tuple[Array, Array, BoolArray]:
    """Move probabilities closer than ``min_gap`` apart, and say which rows that touched."""
    gap = e_1 - e_2
    touched = np.abs(gap) < min_gap
    half = np.copysign(min_gap / 2.0, gap)
    middle = np.clip((e_1 + e_2) / 2.0, min_gap / 2.0, 1.0 - min_gap / 2.0)
    return (
        np.where(touched, middle + half, e_1),
        np.where(touched, middle - half, e_2),
        touched,
    )


def unmix(
    q_1: Array, q_2: Array, e_1: Array, e_2: Array, *, min_gap: float
) -> tuple[Array, Array, BoolArray]:
    r"""Solve the paper's Eq. (p_y_given_x) at every row and grid value.

    .. math::

        q_k(y) = e_k \, p(y \mid t = 1) + (1 - e_k) \, p(y \mid t = -1), \qquad k = 1, 2.

    Policies closer than ``min_gap`` are moved apart first; where they are the same, both laws are
    the mean of the two, that is an uplift of 0. Returns the laws (n, g) and the rows touched.
    """
    e_1, e_2, touched = separate_policies(e_1, e_2, min_gap)
    gap = e_1 - e_2
    broken = np.abs(gap) < NO_GAP
    gap[broken] = 1.0
    # Written as corrections of q_k, so that nothing is lost where e is 1 and 0.
    slope = (q_1 - q_2) / gap[:, None]
    treated = q_1 + (1.0 - e_1)[:, None] * slope
    untreated = q_2 - e_2[:, None] * slope
    middle = (q_1[broken] + q_2[broken]) / 2.0
    treated[broken], untreated[broken] = middle, middle
    return treated, untreated, touched | broken


def trapezoid_weights(grid: Array) -> Array:
    """Return the weights under which a sum over the increasing ``grid`` is the trapezoid rule."""
    # For smooth functions that vanish at both ends its error falls faster than any power of the
    # spacing; Simpson's rule does worse there.
    step = np.diff(grid)
    weights = np.zeros(len(grid))
    weights[:-1] += step / 2.0
    weights[1:] += step / 2.0
    return weights


def outcome_grid(y: Array, widths: Sequence[float], n_grid: int | None) -> Array:
    """Return equally spaced values over ``y`` and three kernel widths at both ends."""
    # Of the mass of a Gaussian at the extreme outcome, 1e-5 lies beyond. With steps of a third of
    # the smallest width the trapezoid rule is exact to rounding on each Gaussian.
    low, high = float(y.min()) - 3.0 * max(widths), float(y.max()) + 3.0 * max(widths)
    if n_grid is None:
        needed = int(np.ceil(3.0 * (high - low) / min(widths))) + 1
        n_grid = min(max(needed, MIN_GRID), MAX_GRID)
    return np.linspace(low, high, n_grid)
