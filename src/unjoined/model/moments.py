"""Additive sums of the rows of every cell and group, and of the policies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from unjoined._threads import CACHE_ROWS, over_pieces
from unjoined._typing import Array, IntArray
from unjoined._validation import KINDS, TREATMENT
from unjoined.data.fold import Additive
from unjoined.data.rows import MOST_UNITS, LabelledRows
from unjoined.model.basis import Scaling

PIECE_ROWS = 16_384  # rows that one thread takes at a time
SCALING_ROWS = 20_000
MOST_SQUARES = (
    500  # features; beyond, products of all of them and their squares fill the memory
)
DIGEST_BITS = 16  # coarse enough to ignore rounding, fine enough to tell tables apart
SHIFT = (
    0.3183  # moves the edges of the grid away from round numbers, which many sums are
)
GROUP_AXIS = 2


@dataclass(frozen=True, slots=True)
class MomentSums(Additive):
    """Sums over rows, with one basis phi for the uplift and its critic.

    The arrays begin with the same axes: kind (outcomes, then treatments), population and group, so
    that groups can be left out later. Those of a single cell have none of them.
    """

    n_rows: IntArray  # (...)
    weight: Array  # (...)  sum of row weights r
    weight_square: Array  # (...)  sum of r^2
    label_basis: Array  # (..., p)  sum of r l phi(x)
    gram: Array  # (..., p, p)  sum of r phi(x) phi(x)^T
    label_cross: Array  # (..., p, p)  sum of r l phi(x) phi(x)^T; 0 for outcomes, which need none

    @classmethod
    def zero(cls, p: int, *axes: int) -> Self:
        """Return the sums of no rows, which add nothing."""
        return cls(
            np.zeros(axes, dtype=np.int64),
            np.zeros(axes),
            np.zeros(axes),
            np.zeros((*axes, p)),
            np.zeros((*axes, p, p)),
            np.zeros((*axes, p, p)),
        )

    @property
    def effective_rows(self) -> Array:
        """How many rows of equal weight would say as much as these (Kish, 1965)."""
        square = np.where(self.n_rows > 0, self.weight_square, 1.0)
        return np.asarray(self.weight**2 / square)

    @property
    def groups(self) -> list[int]:
        """The groups that have rows."""
        return [int(group) for group in np.flatnonzero(self.n_rows.sum(axis=(0, 1)))]

    def at(self, index: Any) -> Self:
        """Return the sums at some places of the first axes."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def of_group(self, group: int) -> Self:
        """Return the sums of one group alone."""
        return self.at((slice(None), slice(None), [group]))

    def without(self, group: int) -> Self:
        """Return the sums of the other groups; adding them up loses no digits."""
        others = [
            other for other in range(self.n_rows.shape[GROUP_AXIS]) if other != group
        ]
        return self.at((slice(None), slice(None), others))

    def over_groups(self) -> Self:
        """Return the sums of all groups together, by kind and population."""
        return type(self)(
            *(getattr(self, field.name).sum(GROUP_AXIS) for field in fields(self))
        )

    def total(self, kind: str, population: int) -> Self:
        """Return the sums of one cell over all of its groups."""
        own = self.at((KINDS.index(kind), population))
        return type(self)(
            *(getattr(own, field.name).sum(axis=0) for field in fields(own))
        )

    def first(self, p: int) -> Self:
        """Return the sums of the first functions alone."""
        label, gram, cross = self.label_basis, self.gram, self.label_cross
        counts = self.n_rows, self.weight, self.weight_square
        return type(self)(
            *counts, label[..., :p], gram[..., :p, :p], cross[..., :p, :p]
        )

    def in_two_groups(self, contrast: Array) -> Self:
        """Return the sums of two groups of populations, as `in_two_groups` has them of rows."""
        factor = np.abs(contrast) / np.where(
            contrast, self.weight.sum(axis=GROUP_AXIS), 1.0
        )
        factor = factor[..., None]  # by kind, population and group
        scaled = type(self)(
            self.n_rows,
            factor * self.weight,
            factor**2 * self.weight_square,
            factor[..., None] * self.label_basis,
            factor[..., None, None] * self.gram,
            factor[..., None, None] * self.label_cross,
        )
        sides = [np.flatnonzero(contrast > 0.0), np.flatnonzero(contrast < 0.0)]
        return type(self)(
            *(
                np.stack(
                    [
                        getattr(scaled, field.name)[:, side].sum(axis=1)
                        for side in sides
                    ],
                    1,
                )
                for field in fields(self)
            )
        )

    def digest(self) -> str:
        """Return 128 bits of a cell that do not depend on the order of rows.

        They are made of the sums, rounded, which are in the file anyway, and not of rows: nothing
        can be found out from them that the sums do not tell.
        """
        squares = np.diag(self.gram)
        size = np.linalg.norm(self.label_basis)
        digest = hashlib.sha256(str(int(self.n_rows)).encode())
        digest.update(_rounded(squares, squares))
        digest.update(_rounded(self.label_basis, np.array(size)))
        return digest.hexdigest()[:32]


def _rounded(values: Array, size: Array) -> bytes:
    """Return numbers as multiples of a small part of their size, which is a power of two."""
    _, exponent = np.frexp(size * (1.0 + SHIFT))
    steps = np.floor(np.ldexp(values, DIGEST_BITS - exponent) + SHIFT)
    return bytes(steps.astype("<i8"))


def _write_design(X: Array, scaling: Scaling, D: Array) -> None:
    """Write a constant, the scaled features and their squares, as far as D (q, n) has room."""
    d = X.shape[1]
    q = len(D)
    # By columns: operations on rows of ten numbers are several times as slow.
    D[0] = 1.0
    Z = D[1 : 1 + d]
    if q > 1:
        np.subtract(X.T, scaling.mean[:, None], out=Z)
        Z /= scaling.scale[:, None]
    if q > 1 + d:
        np.multiply(Z, Z, out=D[1 + d :])


@dataclass(frozen=True, slots=True)
class PolicySums(Additive):
    """Sums over the treatment rows of each of m populations, with D the design."""

    n_rows: IntArray  # (m,)
    weight: Array  # (m,)    sum of row weights r
    label: Array  # (m, q)   sum of r t D, t being -1/+1
    gram: Array  # (m, q, q) sum of r D D^T
    square: Array  # (m, q, q) sum of r^2 t^2 D D^T

    @classmethod
    def zero(
        cls, d: int, n_populations: int = 2, n_functions: int | None = None
    ) -> PolicySums:
        """Return the sums of no rows, which add nothing."""
        m = n_populations
        q = 2 * d + 1 if n_functions is None else n_functions
        return cls(
            np.zeros(m, dtype=np.int64),
            np.zeros(m),
            np.zeros((m, q)),
            np.zeros((m, q, q)),
            np.zeros((m, q, q)),
        )

    def add(
        self,
        population: int,
        X: Array,
        scaling: Scaling,
        label: Array,
        weight: Array,
        count: Array | None = None,
    ) -> None:
        """Add treatment rows of one population, in place; a row may stand for several people."""
        q = self.label.shape[1]
        self.n_rows[population] += len(X) if count is None else int(count.sum())
        self.weight[population] += weight.sum()
        unit = bool(np.all(weight == 1.0))
        certain = bool(np.all(np.abs(label) == 1.0))  # or known probabilities
        values = np.empty(q * min(len(X), CACHE_ROWS))
        for start in range(0, len(X), CACHE_ROWS):
            chunk = slice(start, min(start + CACHE_ROWS, len(X)))
            D = values[: q * (chunk.stop - start)].reshape(q, -1)
            _write_design(X[chunk], scaling, D)
            # Rows of weight one, as most are, take one product for both matrices. Unlike the
            # operator, dot leaves Python's lock to other threads for small results too.
            weighted = D if unit else D * weight[chunk]
            self.label[population] += np.dot(weighted, label[chunk])
            gram = np.dot(weighted, D.T)
            self.gram[population] += gram
            if unit and certain and count is None:
                self.square[population] += gram
                continue
            own = weighted if certain else weighted * label[chunk]
            each = own if count is None else own / count[chunk]
            self.square[population] += np.dot(each, own.T)

    def of(self, *populations: int) -> PolicySums:
        """Return the sums of some of the populations."""
        at = list(populations)
        return PolicySums(*(getattr(self, part.name)[at] for part in fields(self)))


def sum_policies(
    rows: LabelledRows, scaling: Scaling | None = None, *, n_jobs: int | None = None
) -> PolicySums:
    """Return the sums over the treatment rows.

    With a ``scaling`` they are on all functions and may be added to those of other rows. Without,
    they are on as many functions as the rows can carry.
    """
    cells = [rows.at(TREATMENT, k) for k in range(len(rows.names))]
    d = rows.X.shape[1]
    q = 2 * d + 1
    if scaling is None:
        # The functions span the same whatever features are scaled by; some rows do to keep digits.
        some = np.concatenate([at[:: max(len(at) // SCALING_ROWS, 1)] for at in cells])
        scaling = Scaling.of_rows(rows.X[some], np.ones(len(some)))
        # Products of functions that the rows cannot carry anyway would fill the memory.
        q = n_functions(sum(rows.people[len(cells) :]), d)
    pieces = [
        (k, at[start : start + PIECE_ROWS])
        for k, at in enumerate(cells)
        for start in range(0, len(at), PIECE_ROWS)
    ]

    def sums(piece: tuple[int, IntArray]) -> PolicySums:
        k, at = piece
        total = PolicySums.zero(d, len(cells), q)
        count = None if rows.count is None else rows.count[at]
        total.add(k, rows.X[at], scaling, rows.label[at], rows.weight[at], count)
        return total

    total = reduce(
        add, over_pieces(sums, pieces, n_jobs), PolicySums.zero(d, len(cells), q)
    )
    if rows.unit is not None:  # products of sums of draws, as rows of one go together
        for k, at in enumerate(cells):
            D = np.empty((q, len(at)))
            _write_design(rows.X[at], scaling, D)
            D *= rows.weight[at] * rows.label[at]
            unit = rows.unit[at]
            draws = np.array([np.bincount(unit, row, MOST_UNITS) for row in D])
            total.square[k] = draws @ draws.T
    return total


def n_functions(n: int, d: int) -> int:
    """Return how many functions the rows can carry: ten rows to each, squares of 500 at most."""
    if 10 * (1 + d) > n:
        return 1
    return 1 + d if d > MOST_SQUARES or 10 * (1 + 2 * d) > n else 1 + 2 * d
