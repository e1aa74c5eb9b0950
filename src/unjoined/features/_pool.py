"""The functions that a fit may choose among: a linear part, alone or with smooth functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.features._basis import Basis, StackedBasis, check_basis
from unjoined.features._draw import draw_linear, median_width
from unjoined.features._kernel import draw_kernel
from unjoined.features._quadratic import draw_quadratic

__all__ = ["LeadingBasis", "draw_pool", "kernel_size"]

FEWEST, MOST = 20, 100
MOST_PRODUCTS = 60


@dataclass(frozen=True, slots=True)
class LeadingBasis:
    """The first functions of another basis: none, the constant alone, or more.

    Examples
    --------
    >>> from unjoined import LinearBasis
    >>> LeadingBasis(LinearBasis(2), size=1)(np.array([[3.0, 4.0]]))
    array([[1.]])
    """

    basis: Basis
    size: int

    def __post_init__(self) -> None:
        """Refuse more functions than there are."""
        check_basis("basis", self.basis)
        if not isinstance(self.size, int) or not 0 <= self.size <= self.basis.size:
            raise InputError(f"size must be from 0 to {self.basis.size}, got {self.size!r}.")

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.basis.n_features

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, size)."""
        return self.basis(X)[:, : self.size]


def kernel_size(n_rows: int) -> int:
    """Return how many centres ``n_rows`` rows deserve: their cube root times four, 20 to 100.

    Smooth functions need few centres; the ridge, not their number, decides how rough a fit is.
    """
    return int(np.clip(round(4.0 * n_rows ** (1.0 / 3.0)), FEWEST, MOST))


def draw_pool(
    Z: Array,
    *,
    factors: tuple[float, ...],
    n_centers: int,
    rng: Rng,
    weight: Array | None = None,
) -> tuple[Basis, ...]:
    """Return a linear basis, the same with smooth functions of each width, and with products.

    Very many features enter the linear one by their leading components, see `draw_linear`.

    Squares and products of features are left out if there would be more than 60 of them, that is
    from eleven features on, or if no widths are given.

    Parameters
    ----------
    Z : array of shape (n, d)
        Scaled rows from which centres and the median distance are taken.
    factors : tuple of float
        Widths as multiples of the median distance between rows.
    n_centers : int
        Centres of each smooth basis, at most.
    rng : RandomState
        Source of randomness.
    weight : array of shape (n,), optional
        How much each row counts in the median distance and in the scale of the products. Centres
        are drawn from the distinct rows, whatever these weigh.
    """
    linear = draw_linear(Z, len(Z), rng, weight)
    width = median_width(Z, rng, weight)
    smooth: list[Basis] = [draw_kernel(Z, n_centers, factor * width, rng) for factor in factors]
    d = Z.shape[1]
    if factors and d * (d + 1) // 2 <= MOST_PRODUCTS:
        smooth.append(draw_quadratic(Z, weight))
    return (linear, *(StackedBasis(linear, functions) for functions in smooth))
