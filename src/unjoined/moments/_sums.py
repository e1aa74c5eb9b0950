"""Additive sums over the rows of one cell: all that the closed-form estimators need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array

__all__ = ["MomentSums"]


def _weighted_gram(phi: Array, weight: Array) -> Array:
    """Return sum_i weight_i phi_i phi_i^T for non-negative weights, by one symmetric update."""
    # numpy hands a product of a matrix with its own transpose to BLAS syrk, which does half of
    # the multiplications; scaling the rows by the square root keeps it such a product.
    scaled = phi if np.all(weight == 1.0) else phi * np.sqrt(weight)[:, None]
    return scaled.T @ scaled


@dataclass(frozen=True, slots=True)
class MomentSums:
    """Sums over the rows of one cell. Sums of disjoint chunks add up, means do not.

    The same basis phi serves the uplift and its critic, so the matrices are symmetric.
    """

    n_rows: int
    weight: float  # sum of row weights r
    label_cross: Array  # (p, p)  sum of r l phi(x) phi(x)^T
    label_basis: Array  # (p,)    sum of r l phi(x)
    gram: Array  # (p, p)  sum of r phi(x) phi(x)^T

    @classmethod
    def zero(cls, p: int) -> MomentSums:
        """Return the sums of no rows, the neutral element of `merge`."""
        return cls(0, 0.0, np.zeros((p, p)), np.zeros(p), np.zeros((p, p)))

    @classmethod
    def of_rows(cls, phi: Array, label: Array, weight: Array, *, cross: bool) -> MomentSums:
        """Return the sums of rows with basis values ``phi`` (n, p) and labels (n,).

        Parameters
        ----------
        phi, label, weight : arrays of shape (n, p), (n,), (n,)
            Basis values, labels, non-negative weights.
        cross : bool
            Whether ``label_cross`` is wanted: treatment rows need it, outcome rows do not, and
            leaving it at zero saves an update.

        Notes
        -----
        Labels -1/+1 take one symmetric update per sign, S+ and S-, and then
        ``label_cross = S+ - S-`` and ``gram = S+ + S-``: every row is multiplied once, at a
        quarter of the cost of two general products. Other labels take a second update.
        """
        weighted = weight * label
        label_basis = phi.T @ weighted
        if not cross:
            gram = _weighted_gram(phi, weight)
            return cls(len(phi), float(weight.sum()), np.zeros_like(gram), label_basis, gram)
        positive = label > 0.0
        # A chunk of one sign, the usual case, is used as it is: indexing would copy it.
        whole = positive.all()
        plus = phi if whole else phi[positive]
        minus = phi[:0] if whole else phi[~positive]
        s_plus = _weighted_gram(plus, weighted[positive])
        s_minus = _weighted_gram(minus, -weighted[~positive])
        unit = np.all(np.abs(label) == 1.0)
        gram = s_plus + s_minus if unit else _weighted_gram(phi, weight)
        return cls(len(phi), float(weight.sum()), s_plus - s_minus, label_basis, gram)

    def merge(self, other: MomentSums) -> MomentSums:
        """Return the sums over the rows of both; neither argument changes."""
        return MomentSums(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.label_cross + other.label_cross,
            self.label_basis + other.label_basis,
            self.gram + other.gram,
        )

    def subtract(self, other: MomentSums) -> MomentSums:
        """Return the sums over the rows of ``self`` that are not among those of ``other``."""
        return MomentSums(
            self.n_rows - other.n_rows,
            self.weight - other.weight,
            self.label_cross - other.label_cross,
            self.label_basis - other.label_basis,
            self.gram - other.gram,
        )
