"""Bring features to a common scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array

__all__ = ["Scaling", "weighted_quantile"]

TIE = 1e-9  # of the total weight: sums of weights that far apart are equal but for rounding
CHUNK_ROWS = 16_384  # a copy of all rows would cost more time than the sums


@dataclass(frozen=True, slots=True)
class Scaling:
    """Subtract ``mean`` and divide by ``scale``, feature by feature.

    A feature that never varies keeps its scale of 1, so that it becomes 0 rather than NaN.
    """

    mean: Array  # (d,) units of the features
    scale: Array  # (d,) units of the features, > 0

    @classmethod
    def identity(cls, d: int) -> Scaling:
        """Return the scaling that changes nothing."""
        return cls(np.zeros(d), np.ones(d))

    @classmethod
    def of_rows(cls, X: Array, weight: Array) -> Scaling:
        """Return the scaling under which the rows have weighted mean 0 and variance 1."""
        # Averaging distances from the first row makes a constant column exactly constant,
        # however many rows there are; plain sums of it drift.
        total = weight.sum()
        mean = X[0] + _sum_of_powers(X, X[0], weight, square=False) / total
        scale = np.sqrt(_sum_of_powers(X, mean, weight, square=True) / total)
        return cls(mean, np.where(scale == 0.0, 1.0, scale))

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array."""
        return (X - self.mean) / self.scale


def weighted_quantile(values: Array, weight: Array, levels: tuple[float, ...]) -> Array:
    """Return quantiles of values (n,) that count by their weights, shape (number of levels,).

    The smallest value that a share ``level`` of the weight does not exceed, or the middle of two
    where the share is met exactly. So a weight of two is the same as two equal values, and only
    ratios of weights count.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    reached /= reached[-1]
    last = len(values) - 1
    at = np.asarray(levels)
    low = np.minimum(np.searchsorted(reached, at - TIE, side="left"), last)
    high = np.minimum(np.searchsorted(reached, at + TIE, side="right"), last)
    return np.asarray((values[order][low] + values[order][high]) / 2.0)


def _sum_of_powers(X: Array, origin: Array, weight: Array, *, square: bool) -> Array:
    """Return the weighted sums over rows of X - origin, or of its squares, shape (d,)."""
    total = np.zeros(X.shape[1])
    for start in range(0, len(X), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        # By columns: operations on rows of ten numbers are several times as slow.
        distance = np.ascontiguousarray(X[chunk].T) - origin[:, None]
        if square:
            distance *= distance
        total += distance @ weight[chunk]
    return total
