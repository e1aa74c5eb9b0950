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
        mean = np.average(X, axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        # Rounding leaves a tiny spread in a constant column; dividing by it would blow up
        # nothing but noise.
        constant = scale <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0.0), 1.0, scale))

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array."""
        return (X - self.mean) / self.scale
