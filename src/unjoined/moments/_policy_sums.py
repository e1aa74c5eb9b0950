"""Additive sums that tell how far apart the policies are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined.features import Scaling

__all__ = ["PolicySums", "policy_design"]


CHUNK_ROWS = 4096  # of some twenty functions, which stay in the cache


def _write_design(X: Array, scaling: Scaling, D: Array) -> None:
    """Write a constant, the scaled features and their squares, as far as D has room for each.

    D has the shape (q, n), with q = 1, d + 1 or 2 d + 1.
    """
    d, q = X.shape[1], len(D)
    # By columns: operations on rows of ten numbers are several times as slow.
    D[0], Z = 1.0, D[1 : 1 + d]
    if q > 1:
        np.subtract(X.T, scaling.mean[:, None], out=Z)
        Z /= scaling.scale[:, None]
    if q > 1 + d:
        np.multiply(Z, Z, out=D[1 + d :])


def policy_design(X: Array, scaling: Scaling) -> Array:
    """Return the functions that policies are told apart by, shape (n, 2 d + 1)."""
    D = np.empty((1 + 2 * X.shape[1], len(X)))
    _write_design(X, scaling, D)
    return D.T


@dataclass(frozen=True, slots=True)
class PolicySums:
    """Sums over the treatment rows of each of m populations, with D the design."""

    n_rows: IntArray  # (m,)
    weight: Array  # (m,)    sum of row weights r
    label: Array  # (m, q)   sum of r t D, t being -1/+1
    gram: Array  # (m, q, q) sum of r D D^T
    square: Array  # (m, q, q) sum of r^2 D D^T

    @classmethod
    def zero(cls, d: int, n_populations: int = 2, n_functions: int | None = None) -> PolicySums:
        """Return the sums of no rows, the neutral element of `merge`."""
        m, q = n_populations, 2 * d + 1 if n_functions is None else n_functions
        return cls(
            np.zeros(m, dtype=np.int64),
            np.zeros(m),
            np.zeros((m, q)),
            np.zeros((m, q, q)),
            np.zeros((m, q, q)),
        )

    @classmethod
    def of_rows(
        cls,
        X: Array,
        scaling: Scaling,
        label: Array,
        weight: Array,
        population: int,
        *,
        n_populations: int = 2,
        n_functions: int | None = None,
    ) -> PolicySums:
        """Return the sums of treatment rows of one population, with features (n, d).

        ``n_functions`` is 1, d + 1 or 2 d + 1, where it is known that no more are needed.
        """
        total = cls.zero(X.shape[1], n_populations, n_functions)
        q = total.label.shape[1]
        total.n_rows[population] = len(X)
        total.weight[population] = weight.sum()
        unit = bool(np.all(weight == 1.0))
        held = np.empty(q * min(len(X), CHUNK_ROWS))
        for start in range(0, len(X), CHUNK_ROWS):
            chunk = slice(start, min(start + CHUNK_ROWS, len(X)))
            size = chunk.stop - start
            D = held[: q * size].reshape(-1, size)
            _write_design(X[chunk], scaling, D)
            # Rows of weight one, as most are, take one product for both matrices. Unlike the
            # operator, dot leaves Python's lock to other threads for small results too.
            weighted = D if unit else D * weight[chunk]
            total.label[population] += np.dot(weighted, label[chunk])
            gram = np.dot(weighted, D.T)
            total.gram[population] += gram
            total.square[population] += gram if unit else np.dot(weighted, weighted.T)
        return total

    def pair(self, first: int, second: int) -> PolicySums:
        """Return the sums of two of the populations."""
        at = [first, second]
        return PolicySums(
            self.n_rows[at], self.weight[at], self.label[at], self.gram[at], self.square[at]
        )

    def merge(self, other: PolicySums) -> PolicySums:
        """Return the sums over the rows of both; neither argument changes."""
        return PolicySums(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.label + other.label,
            self.gram + other.gram,
            self.square + other.square,
        )
