"""What is subtracted from the labels of a cell inside the pass that adds up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, SingleArray

__all__ = ["CellMeans"]


@dataclass(frozen=True, slots=True)
class CellMeans:
    """The average over the two populations of the mean label of one kind.

    A combination of the basis values of the pass and, if these hold no linear functions, of the
    features: it costs a small product where a basis of its own would cost as much as the sums.
    """

    coef: Array  # (p, r) of the basis values; one column for the average, or one per population
    slope: Array | None  # (d, r) of the features as they came
    offset: Array  # (r,)
    bound: float  # two-valued labels have means between -1 and 1, others any

    def averaged(self) -> CellMeans:
        """Return the same in one column, for means without bound: their average is linear."""
        slope = None if self.slope is None else self.slope.mean(axis=1, keepdims=True)
        coef, offset = self.coef.mean(axis=1, keepdims=True), self.offset.mean(keepdims=True)
        return CellMeans(coef, slope, offset, self.bound)

    def linear(self, X: Array) -> Array:
        """Return the part that takes no basis values, at all rows of a piece, shape (m, r)."""
        if self.slope is None:
            return np.broadcast_to(self.offset, (len(X), len(self.offset)))
        found: Array = X @ self.slope
        found += self.offset
        return found

    def __call__(self, phi: Array | SingleArray, linear: Array) -> Array:
        """Return the mean at rows with basis values (m, p) and a linear part, shape (m,)."""
        found: Array = (phi @ self.coef.astype(phi.dtype, copy=False)).astype(
            np.float64, copy=False
        )
        found += linear
        if self.bound < np.inf:
            np.minimum(found, self.bound, out=found)
            np.maximum(found, -self.bound, out=found)
        return found[:, 0] if found.shape[1] == 1 else (found[:, 0] + found[:, 1]) / 2.0
