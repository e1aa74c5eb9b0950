"""Bring features to a common scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array

__all__ = ["Scaling"]


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
        mean = X[0] + np.average(X - X[0], axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        return cls(mean, np.where(scale == 0.0, 1.0, scale))

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array."""
        return (X - self.mean) / self.scale
