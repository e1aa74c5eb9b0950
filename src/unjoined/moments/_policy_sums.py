"""Additive sums that tell how far apart the two policies are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, IntArray

__all__ = ["PolicySums", "policy_design"]


def policy_design(Z: Array) -> Array:
    """Return a constant, the scaled features and their squares, shape (n, 2 d + 1)."""
    return np.hstack([np.ones((len(Z), 1)), Z, Z**2])


@dataclass(frozen=True, slots=True)
class PolicySums:
    """Sums over the treatment rows of each of the two populations, with D the design."""

    n_rows: IntArray  # (2,)
    weight: Array  # (2,)    sum of row weights r
    label: Array  # (2, q)   sum of r t D, t being -1/+1
    gram: Array  # (2, q, q) sum of r D D^T
    square: Array  # (2, q, q) sum of r^2 D D^T

    @classmethod
    def zero(cls, d: int) -> PolicySums:
        """Return the sums of no rows, the neutral element of `merge`."""
        q = 2 * d + 1
        return cls(
            np.zeros(2, dtype=np.int64),
            np.zeros(2),
            np.zeros((2, q)),
            np.zeros((2, q, q)),
            np.zeros((2, q, q)),
        )

    @classmethod
    def of_rows(cls, Z: Array, label: Array, weight: Array, population: int) -> PolicySums:
        """Return the sums of treatment rows of one population, at scaled features ``Z``."""
        total = cls.zero(Z.shape[1])
        D = policy_design(Z)
        weighted = D * weight[:, None]
        total.n_rows[population] = len(Z)
        total.weight[population] = weight.sum()
        total.label[population] = weighted.T @ label
        total.gram[population] = weighted.T @ D
        total.square[population] = weighted.T @ weighted
        return total

    def merge(self, other: PolicySums) -> PolicySums:
        """Return the sums over the rows of both; neither argument changes."""
        return PolicySums(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.label + other.label,
            self.gram + other.gram,
            self.square + other.square,
        )
