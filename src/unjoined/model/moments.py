"""Additive sums of one cell, of groups of cells and of policies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache, reduce
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from unjoined._threads import CACHE_ROWS, over_pieces
from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import TREATMENT
from unjoined.data.additive import Additive, plus
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.basis import Scaling

PIECE_ROWS = 16_384  # rows that one thread takes at a time
SCALING_ROWS = 20_000
MOST_SQUARES = 500  # features; beyond, products of all of them and their squares fill the memory
BITS = 16  # kept of every sum: rounding changes far smaller ones, another table far larger ones
SHIFT = 0.3183  # moves the edges of the grid away from round numbers, which many sums are


def add_gram(phi: Array, total: Array) -> None:
    """Add phi^T phi to the upper triangle of ``total``, which is in Fortran order."""
    m, p = phi.shape
    if total.shape != (p, p) or not (phi.flags.c_contiguous and total.flags.f_contiguous):
        raise InputError(
            f"rows in C order, shape ({m}, {p}), are added up in Fortran order, shape ({p}, {p}), "
            f"got shape {total.shape}."
        )
    if m:
        # C order read as Fortran order is the transpose, of p rows and m columns. BLAS leaves
        # Python's lock to other threads, and updates one triangle in place, which numpy's product
        # of a matrix with its own transpose does not.
        dsyrk(1.0, phi.T, beta=1.0, c=total, overwrite_c=1)


def mirrored(total: Array) -> Array:
    """Return the symmetric matrix with the upper triangle of ``total``, in C order."""
    return np.where(_upper(len(total)), total, total.T)


@lru_cache(maxsize=8)
def _upper(p: int) -> BoolArray:
    return np.tri(p, dtype=bool).T


class RowScales(NamedTuple):
    """What the rows of a run are scaled by, for all of its chunks at once."""

    weight: float  # sum of weights
    weight_square: float  # sum of squared weights
    label: Array  # (m,) labels times weights
    scale: Array | None  # (m, 1) square roots of weights; None if these are ones
    cross: Array | None  # (m, 1) square roots of the labels' sizes; None if these are ones

    @classmethod
    def of_rows(cls, label: Array, weight: Array, *, cross: bool) -> RowScales:
        """Return the roots of labels of one sign; without ``cross`` labels are not looked at."""
        size = np.abs(label) if cross else np.ones(0)
        return cls(
            float(weight.sum()),
            float(weight @ weight),
            weight * label,
            None if np.all(weight == 1.0) else np.sqrt(weight)[:, None],
            None if np.all(size == 1.0) else np.sqrt(size)[:, None],
        )

    def cut(self, rows: slice) -> RowScales:
        """Return those of some of the rows; the sums of weights stay those of all."""
        scale = None if self.scale is None else self.scale[rows]
        cross = None if self.cross is None else self.cross[rows]
        return RowScales(self.weight, self.weight_square, self.label[rows], scale, cross)

    def centred(self, label: Array, weight: Array, *, cross: bool) -> RowScales:
        """Return these with other labels, of one sign or 0."""
        return RowScales(
            self.weight,
            self.weight_square,
            label if self.scale is None else weight * label,
            self.scale,
            np.sqrt(np.abs(label))[:, None] if cross else None,
        )


@dataclass(slots=True)
class RunningSums:
    """Sums that one thread adds rows to in place; of the matrices, the upper triangles hold."""

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

    def add(self, phi: Array, label: Array, scale: Array | None, cross: Array | None) -> None:
        """Add rows with basis values ``phi`` (m, p), in C order, which are overwritten.

        ``label`` are labels times weights, ``scale`` square roots of weights, ``cross`` those of
        the labels' sizes, the labels being of one sign; None stands for ones.
        """
        self.n_rows += len(phi)
        # Unlike the operator, dot leaves Python's lock to other threads for small results too.
        self.label_basis += np.dot(label, phi)
        # Scaling rows by square roots keeps each update a product of a matrix with its own
        # transpose, which takes half of the multiplications; scaling in place saves a copy.
        if scale is not None:
            phi *= scale
        add_gram(phi, self.gram)
        if cross is not None:
            phi *= cross
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
class MomentSums(Additive):
    """Sums over the rows of one cell, with one basis phi for the uplift and its critic."""

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
        """Return the sums of no rows, which add nothing."""
        return cls(0, 0.0, np.zeros((p, p)), np.zeros(p), np.zeros((p, p)), 0.0)

    def digest(self) -> str:
        """Return 128 bits that do not depend on the order in which rows were added up.

        They are made of the sums, rounded, which are in the file anyway, and not of rows: nothing
        can be found out from them that the sums do not tell.
        """
        squares = np.diag(self.gram)
        size = np.linalg.norm(self.label_basis)
        digest = hashlib.sha256(str(self.n_rows).encode())
        for part in (_rounded(squares, squares), _rounded(self.label_basis, np.array(size))):
            digest.update(part)
        return digest.hexdigest()[:32]

    def scaled(self, factor: float) -> MomentSums:
        """Return the sums with every weight multiplied by a factor."""
        return MomentSums(
            self.n_rows,
            factor * self.weight,
            factor * self.label_cross,
            factor * self.label_basis,
            factor * self.gram,
            factor**2 * self.weight_square,
        )


def _rounded(values: Array, size: Array) -> bytes:
    """Return numbers as multiples of a small part of their size, which is a power of two."""
    _, exponent = np.frexp(size * (1.0 + SHIFT))
    steps = np.floor(np.ldexp(values, BITS - exponent) + SHIFT)
    return bytes(steps.astype("<i8"))


class CellKey(NamedTuple):
    """Which rows a sum is over."""

    kind: str  # "outcome" or "treatment"
    population: int  # position in the sorted order of names
    group: int  # that the row was dealt into


@dataclass(frozen=True, slots=True)
class GroupedSums:
    """One `MomentSums` per (kind, population, group), so that groups can be left out later."""

    p: int
    cells: Mapping[CellKey, MomentSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mapping."""
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from a plain dictionary: a frozen view cannot be sent to another process."""
        return (GroupedSums, (self.p, dict(self.cells)))

    def __add__(self, other: GroupedSums) -> GroupedSums:
        """Return the sums over the rows of both; neither argument changes."""
        return GroupedSums(self.p, plus(self.cells, other.cells))

    def in_two_groups(self, contrast: Array) -> GroupedSums:
        """Return the sums of two groups of populations, as `in_two_groups` has them of rows."""
        cells: dict[CellKey, MomentSums] = {}
        for kind, k in sorted({key[:2] for key in self.cells}):
            weight = self.total(kind, k).weight
            for key in sorted(key for key in self.cells if key[:2] == (kind, k) and contrast[k]):
                to = CellKey(kind, int(contrast[k] < 0.0), key.group)
                part = self.cells[key].scaled(abs(float(contrast[k])) / weight)
                cells[to] = cells[to] + part if to in cells else part
        return GroupedSums(self.p, cells)

    @property
    def groups(self) -> list[int]:
        """The groups that have rows, sorted."""
        return sorted({key.group for key in self.cells})

    def of_group(self, group: int) -> GroupedSums:
        """Return the sums of one group alone."""
        return GroupedSums(self.p, {k: v for k, v in self.cells.items() if k.group == group})

    def total(self, kind: str, population: int) -> MomentSums:
        """Return the sums of one cell over all of its groups."""
        parts = [
            self.cells[key]
            for key in sorted(self.cells)
            if key.kind == kind and key.population == population
        ]
        return reduce(add, parts, MomentSums.zero(self.p))


def _write_design(X: Array, scaling: Scaling, D: Array) -> None:
    """Write a constant, the scaled features and their squares, as far as D (q, n) has room."""
    d, q = X.shape[1], len(D)
    # By columns: operations on rows of ten numbers are several times as slow.
    D[0], Z = 1.0, D[1 : 1 + d]
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
    square: Array  # (m, q, q) sum of r^2 D D^T

    @classmethod
    def zero(cls, d: int, n_populations: int = 2, n_functions: int | None = None) -> PolicySums:
        """Return the sums of no rows, which add nothing."""
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
        """Return the sums of treatment rows of one population, on all or the first functions."""
        total = cls.zero(X.shape[1], n_populations, n_functions)
        q = total.label.shape[1]
        total.n_rows[population] = len(X)
        total.weight[population] = weight.sum()
        unit = bool(np.all(weight == 1.0))
        held = np.empty(q * min(len(X), CACHE_ROWS))
        for start in range(0, len(X), CACHE_ROWS):
            chunk = slice(start, min(start + CACHE_ROWS, len(X)))
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

    def of(self, *populations: int) -> PolicySums:
        """Return the sums of some of the populations."""
        at = list(populations)
        return PolicySums(*(getattr(self, part.name)[at] for part in fields(self)))


def sum_policies(rows: LabelledRows, *, n_jobs: int | None = None) -> PolicySums:
    """Return the sums over the treatment rows, on as many functions as the rows can carry."""
    cells = [rows.at(TREATMENT, k) for k in range(len(rows.names))]
    # The functions span the same whatever features are scaled by; some rows do to keep digits.
    some = np.concatenate([at[:: max(len(at) // SCALING_ROWS, 1)] for at in cells])
    scaling = Scaling.of_rows(rows.X[some], np.ones(len(some)))
    pieces = [
        (k, at[start : start + PIECE_ROWS])
        for k, at in enumerate(cells)
        for start in range(0, len(at), PIECE_ROWS)
    ]
    # Products of functions that the rows cannot carry anyway would fill the memory.
    q = n_functions(sum(map(len, cells)), rows.X.shape[1])

    def sums(piece: tuple[int, IntArray]) -> PolicySums:
        k, at = piece
        X, label, weight = rows.X[at], rows.label[at], rows.weight[at]
        return PolicySums.of_rows(
            X, scaling, label, weight, k, n_populations=len(cells), n_functions=q
        )

    return reduce(add, over_pieces(sums, pieces, n_jobs))


def n_functions(n: int, d: int) -> int:
    """Return how many functions the rows can carry: ten rows to each, squares of 500 at most."""
    if 10 * (1 + d) > n:
        return 1
    return 1 + d if d > MOST_SQUARES or 10 * (1 + 2 * d) > n else 1 + 2 * d


HashArray: TypeAlias = NDArray[np.uint64]
# Odd 64-bit constants of the SplitMix64 finaliser (Steele, Lea and Flood, 2014).
GOLDEN, MIX_1, MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def hash_features(X: Array) -> HashArray:
    """Return 64 bits for each row that depend on its features alone, shape (n,)."""
    state: HashArray = np.zeros(len(X), dtype=np.uint64)
    for start in range(0, len(X), CACHE_ROWS):
        some = state[start : start + CACHE_ROWS]
        for column in X[start : start + CACHE_ROWS].T:
            _absorb(some, column)
    return state


def hash_with(state: HashArray, *columns: Array) -> HashArray:
    """Return the hashes of rows that have further columns (n,), from those without."""
    found = state.copy()
    for start in range(0, len(found), CACHE_ROWS):
        for column in columns:
            _absorb(found[start : start + CACHE_ROWS], column[start : start + CACHE_ROWS])
    return found


def _absorb(state: HashArray, column: Array) -> None:
    """Scramble a column into 64-bit integers in place; every input bit moves every output bit."""
    # Adding 0.0 turns -0.0 into 0.0: they are equal and must not differ in bits.
    state ^= (column + 0.0).view(np.uint64)
    state += GOLDEN
    state ^= state >> np.uint64(30)
    state *= MIX_1
    state ^= state >> np.uint64(27)
    state *= MIX_2
    state ^= state >> np.uint64(31)
