"""Squares and products of features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_count, check_numbers, check_row_width

__all__ = ["QuadraticBasis", "draw_quadratic"]


@dataclass(frozen=True, slots=True)
class QuadraticBasis:
    r"""Squares and pairwise products :math:`x_i x_j`, :math:`i \le j`, less their means.

    They are divided by their standard deviations and by the root of their number, so that a ridge
    means about as much as it does for a `KernelBasis`: functions with coefficients of one
    standard deviation each have a variance of about one, however many features there are.

    Parameters
    ----------
    n_features : int
        Number of columns d.
    mean, scale : array of shape (d (d + 1) / 2,)
        What is subtracted and divided by.

    Notes
    -----
    Evaluation costs :math:`O(n d^2)` time.

    Examples
    --------
    >>> basis = QuadraticBasis(2, np.zeros(3), np.ones(3))
    >>> basis(np.array([[2.0, 3.0]]))
    array([[4., 6., 9.]])
    """

    n_features: int
    mean: Array
    scale: Array

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        d = check_count("n_features", self.n_features)
        check_numbers("mean", self.mean, d * (d + 1) // 2)
        check_numbers("scale", self.scale, d * (d + 1) // 2)

    @property
    def size(self) -> int:
        """Number of functions p."""
        return len(self.mean)

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        check_row_width(X, self.n_features)
        values = _products(np.asarray(X, dtype=np.float64))
        values -= self.mean
        values /= self.scale
        return values


def draw_quadratic(X: Array, weight: Array | None = None) -> QuadraticBasis:
    """Return the basis whose functions have mean 0 and equal variances over weighted rows."""
    values = _products(X)
    mean = np.average(values, axis=0, weights=weight)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))
    # A product that never varies, as of two levels of one category, becomes 0 rather than NaN.
    spread = np.where(spread <= 1e-12 * np.abs(values).max(axis=0), 1.0, spread)
    return QuadraticBasis(X.shape[1], mean, spread * np.sqrt(values.shape[1]))


def _products(X: Array) -> Array:
    first, second = np.triu_indices(X.shape[1])
    products: Array = X[:, first] * X[:, second]
    return products
