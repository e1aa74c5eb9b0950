"""Bring features to a common scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array
from unjoined._validation import check_numbers
from unjoined.errors import InputError

__all__ = ["Scaling"]

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
        scale = np.sqrt(_sum_of_powers(X, mean, weight, square=True) / total)
        return cls(mean, np.where(scale == 0.0, 1.0, scale))

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array."""
        return (X - self.mean) / self.scale


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
