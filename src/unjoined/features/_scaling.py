"""Bring features to a common scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_numbers
from unjoined.errors import InputError

__all__ = ["FARTHEST", "Scaling", "weighted_quantile", "within_reach"]

# Standard deviations from the mean beyond which features are taken for this far away. Products of
# several still are numbers, and single precision can hold it, which forests and networks use.
FARTHEST = 1e30
TINY = 1e-140  # squares of smaller numbers lose digits
SMALLEST = 1e-303  # what is divided by must be larger, lest a number of size one overflow
TIE = 1e-9  # of the total weight: sums of weights that far apart are equal but for rounding
CHUNK_ROWS = 16_384  # a copy of all rows would cost more time than the sums


@dataclass(frozen=True, slots=True)
class Scaling:
    """Subtract ``mean`` and divide by ``scale``, feature by feature.

    A feature that never varies keeps its scale of 1, so that it becomes 0 rather than NaN.
    """

    mean: Array  # (d,) units of the features
    scale: Array  # (d,) units of the features, > 0

    def __post_init__(self) -> None:
        """Refuse lengths that differ, and scales that nothing can be divided by."""
        check_numbers("mean", self.mean, None)
        check_numbers("scale", self.scale, len(self.mean))
        if not (self.scale > 0.0).all():
            raise InputError(f"scale must be above 0, got {self.scale.min():g}.")

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
        with np.errstate(over="ignore", under="ignore"):
            scale = np.sqrt(_sum_of_powers(X, mean, weight, square=True) / total)
        for j in np.flatnonzero(~((scale > TINY) & (scale < 1.0 / TINY))).tolist():
            scale[j] = _careful_scale(X[:, j] - mean[j], weight, j)
        return cls(mean, scale)

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array, none farther away than ``FARTHEST``."""
        with np.errstate(over="ignore"):
            return within_reach((X - self.mean) / self.scale)


def within_reach(Z: Array) -> Array:
    """Return scaled features with those cut off, in place, that are too far for arithmetic."""
    return np.clip(Z, -FARTHEST, FARTHEST, out=Z)


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


def _careful_scale(distance: Array, weight: Array, j: int) -> float:
    """Return the standard deviation of a column whose squares leave the range of numbers.

    1 if it never varies.
    """
    largest = float(np.abs(distance).max())
    if largest == 0.0:
        return 1.0
    share = distance / largest
    scale = largest * float(np.sqrt(np.average(share * share, weights=weight)))
    if not SMALLEST <= scale < np.inf:
        raise InputError(
            f"feature {j} (counting from 0) varies by {scale:g}, which nothing can be divided by. "
            "Multiply the column by a power of ten, or leave it out."
        )
    return scale
