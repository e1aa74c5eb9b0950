"""Additive sums over the rows of one cell: all that the closed-form estimators need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unjoined._typing import Array, SingleArray
from unjoined.moments._rank_k import add_gram, mirrored

__all__ = ["MomentSums", "Roots", "RunningSums"]


class Roots(NamedTuple):
    """What the rows of a run are scaled by, for all of its chunks at once."""

    weight: float  # sum of weights
    weight_square: float  # sum of squared weights
    label: Array  # (m,) labels times weights
    scale: Array | None  # (m, 1) square roots of weights; None if these are ones
    cross: Array | None  # (m, 1) square roots of the labels' sizes; None if these are ones

    @classmethod
    def of_rows(cls, label: Array, weight: Array, *, cross: bool) -> Roots:
        """Return the roots of labels of one sign; without ``cross`` labels are not looked at."""
        size = np.abs(label) if cross else np.ones(0)
        return cls(
            float(weight.sum()),
            float(weight @ weight),
            weight * label,
            None if np.all(weight == 1.0) else np.sqrt(weight)[:, None],
            None if np.all(size == 1.0) else np.sqrt(size)[:, None],
        )

    def cut(self, rows: slice) -> Roots:
        """Return those of some of the rows; the sums of weights stay those of all."""
        scale = None if self.scale is None else self.scale[rows]
        cross = None if self.cross is None else self.cross[rows]
        return Roots(self.weight, self.weight_square, self.label[rows], scale, cross)

    def centred(self, label: Array, weight: Array, *, cross: bool) -> Roots:
        """Return these with other labels, of one sign or 0."""
        return Roots(
            self.weight,
            self.weight_square,
            label if self.scale is None else weight * label,
            self.scale,
            np.sqrt(np.abs(label))[:, None] if cross else None,
        )


@dataclass(slots=True)
class RunningSums:
    """Sums that rows are added to in place; of the matrices, the upper triangles hold.

    The only object here that changes. It belongs to one thread, and ends as `MomentSums`.
    """

    n_rows: int
    weight: float
    label_cross: Array  # (p, p) in Fortran order
    label_basis: Array  # (p,)
    gram: Array  # (p, p) in Fortran order
    weight_square: float = 0.0

    @classmethod
    def zero(cls, p: int) -> RunningSums:
        """Return the sums of no rows."""
        cross, gram = (np.zeros((p, p), order="F") for _ in range(2))
        return cls(0, 0.0, cross, np.zeros(p), gram)

    def add(
        self, phi: Array | SingleArray, label: Array, scale: Array | None, cross: Array | None
    ) -> None:
        """Add rows with basis values ``phi`` (m, p), which are overwritten.

        Parameters
        ----------
        phi : array of shape (m, p)
            Basis values, in C order. In single precision products over the rows are too, and are
            added up in double.
        label : array of shape (m,)
            Labels times weights.
        scale : array of shape (m, 1) or None
            Square roots of weights, None if these are ones.
        cross : array of shape (m, 1) or None
            Square roots of the labels' sizes, the labels being of one sign; None if they are
            not needed for ``label_cross``, or are all of size one: see `absorb`.
        """
        self.n_rows += len(phi)
        # Unlike the operator, dot leaves Python's lock to other threads for small results too.
        self.label_basis += np.dot(label.astype(phi.dtype, copy=False), phi)
        # Scaling rows by square roots keeps each update a product of a matrix with its own
        # transpose, which takes half of the multiplications; scaling in place saves a copy.
        if scale is not None:
            phi *= scale.astype(phi.dtype, copy=False)
        add_gram(phi, self.gram)
        if cross is not None:
            phi *= cross.astype(phi.dtype, copy=False)
            add_gram(phi, self.label_cross)

    def absorb(self, other: RunningSums, *, sign: float, unit: bool) -> None:
        """Add the sums of a run of labels of one sign, 0 for labels without a cross product.

        Of labels that are all -1 or all +1, ``unit``, the cross product is that of the basis
        values but for the sign: every row was multiplied once.
        """
        self.n_rows += other.n_rows
        self.weight += other.weight
        self.weight_square += other.weight_square
        self.label_basis += other.label_basis
        self.gram += other.gram
        if sign:
            part = other.gram if unit else other.label_cross
            (np.add if sign > 0.0 else np.subtract)(self.label_cross, part, out=self.label_cross)

    def frozen(self) -> MomentSums:
        """Return the sums with both triangles."""
        return MomentSums(
            self.n_rows,
            self.weight,
            mirrored(self.label_cross),
            self.label_basis,
            mirrored(self.gram),
            self.weight_square,
        )


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
    weight_square: float  # sum of r^2

    @property
    def effective_rows(self) -> float:
        """How many rows of equal weight would say as much as these (Kish, 1965)."""
        return self.weight**2 / self.weight_square if self.n_rows else 0.0

    @classmethod
    def zero(cls, p: int) -> MomentSums:
        """Return the sums of no rows, the neutral element of `merge`."""
        return cls(0, 0.0, np.zeros((p, p)), np.zeros(p), np.zeros((p, p)), 0.0)

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
        total = RunningSums.zero(phi.shape[1])
        positive = label > 0.0
        runs = ((positive, 1.0), (~positive, -1.0)) if cross else ((np.full(len(phi), True), 0.0),)
        for at, sign in runs:
            roots = Roots.of_rows(label[at], weight[at], cross=cross)
            run = RunningSums.zero(phi.shape[1])
            run.add(np.ascontiguousarray(phi[at]), roots.label, roots.scale, roots.cross)
            run.weight, run.weight_square = roots.weight, roots.weight_square
            total.absorb(run, sign=sign, unit=roots.cross is None)
        return total.frozen()

    def merge(self, other: MomentSums) -> MomentSums:
        """Return the sums over the rows of both; neither argument changes."""
        return MomentSums(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.label_cross + other.label_cross,
            self.label_basis + other.label_basis,
            self.gram + other.gram,
            self.weight_square + other.weight_square,
        )
