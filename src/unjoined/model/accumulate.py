"""One pass over rows in memory, on all cores: their sums, or values of functions at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from unjoined._threads import CACHE_ROWS, Scratch, over_pieces
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.basis import BasisWriter, Scaling, basis_writer
from unjoined.model.moments import CellKey, GroupedSums, PolicySums, RowScales, RunningSums


@dataclass(frozen=True, slots=True)
class CellMeans:
    """The average over both populations of the mean label of one kind, on values of the pass."""

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

    def __call__(self, phi: Array, linear: Array) -> Array:
        """Return the mean at rows with basis values (m, p) and a linear part, shape (m,)."""
        found: Array = phi @ self.coef
        found += linear
        if self.bound < np.inf:
            np.minimum(found, self.bound, out=found)
            np.maximum(found, -self.bound, out=found)
        return found[:, 0] if found.shape[1] == 1 else (found[:, 0] + found[:, 1]) / 2.0


# Rows of one cell, group and sign that are summed up by one thread. One set of sums is merged
# for each, which costs as much as a few dozen rows.
PIECE_ROWS = 16_384
# Rows of each group that are sorted together: a piece or two for each of its six cells and signs,
# and few enough to be near at hand when they are gathered.
BLOCK_ROWS = 8 * PIECE_ROWS


class Piece(NamedTuple):
    """Some rows of one cell and group; of treatment rows, with labels of one sign."""

    key: CellKey
    sign: float  # of the labels; 0 for outcome rows, which need no cross product
    at: IntArray  # (m,) ascending


def block_pieces(rows: LabelledRows, groups: IntArray | None, start: int, stop: int) -> list[Piece]:
    """Sort the rows of one block by cell, group and, for treatments, the sign of the label."""
    block = slice(start, stop)
    group = None if groups is None else groups[block]
    n_groups = 1 if group is None else int(group.max()) + 1
    cell, n_populations = rows.cell[block], len(rows.names)
    cells = n_populations * n_groups  # of either kind
    # Few different small numbers: numpy sorts them by counting, in one go.
    code = cell.astype(np.min_scalar_type(4 * cells))
    treatment = cell >= n_populations
    if group is not None:
        code *= n_groups
        code += group.astype(code.dtype)
    code *= 2
    code += treatment & (rows.label[block] > 0.0)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code, minlength=4 * cells))
    pieces: list[Piece] = []
    for c, (first, last) in enumerate(pairwise((0, *ends.tolist()))):
        kind, sign = (TREATMENT, 2.0 * (c % 2) - 1.0) if c >= 2 * cells else (OUTCOME, 0.0)
        key = CellKey(kind, *divmod(c // 2 % cells, n_groups))
        # Even parts: a few rows left over would cost as much as a piece.
        edges = np.linspace(first, last, max(round((last - first) / PIECE_ROWS), 1) + 1)
        pieces.extend(
            Piece(key, sign, start + order[i:j])
            for i, j in pairwise(edges.astype(np.int64).tolist())
            if i < j
        )
    return pieces


CHUNK_VALUES = 102_400  # 0.8 megabytes: with room to spare in the cache a core has to itself


def chunk_rows(p: int) -> int:
    """Return how many rows of ``p`` basis values are evaluated together."""
    return min(max(CHUNK_VALUES // p, 256), CACHE_ROWS)


def accumulate(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    *,
    groups: IntArray | None = None,
    n_jobs: int | None = None,
) -> GroupedSums:
    """Return the sums of ``rows`` per kind, population and group, in one pass.

    The result does not depend on ``n_jobs``, to the bit: pieces are fixed and merged in order.
    Labels of -1 and +1 take one symmetric update for each row, others a second one for each
    treatment row. ``benchmarks/moments.py`` measures how near this is to the updates alone.
    """
    return accumulate_policies(basis, p, rows, None, groups=groups, n_jobs=n_jobs)[0]


def accumulate_policies(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    scaling: Scaling | None,
    *,
    groups: IntArray | None = None,
    means: Mapping[CellKey, CellMeans] | None = None,
    centred: Array | None = None,
    n_jobs: int | None = None,
) -> tuple[GroupedSums, PolicySums]:
    """Return the sums of ``rows`` and, with a scaling, those that tell the policies apart.

    ``means`` are subtracted from the labels on the way; ``centred`` are labels from which something
    was subtracted before. The policies are told apart by the labels themselves.
    """
    writer, scratch, treatment = basis_writer(basis, rows.X, p), Scratch(), rows.label
    rows = rows if centred is None else replace(rows, label=centred)
    n_groups = 1 if groups is None else int(groups.max(initial=0)) + 1

    def sums_of(piece: Piece) -> tuple[Piece, RunningSums, bool, PolicySums | None]:
        at = piece.at
        X = _rows_at(rows.X, at, scratch)
        mean = None if means is None else means[piece.key]
        sums, unit = _sum_piece(_Values(writer, p, X, scratch), rows, piece, X, mean)
        policy = None
        if scaling is not None and piece.sign:
            k, label = piece.key.population, treatment[at]
            policy = PolicySums.of_rows(
                X, scaling, label, rows.weight[at], k, n_populations=len(rows.names)
            )
        return piece, sums, unit, policy

    pieces = _sorted_pieces(rows, groups, BLOCK_ROWS * n_groups, n_jobs)
    totals: dict[CellKey, RunningSums] = {}
    policies = PolicySums.zero(rows.X.shape[1], len(rows.names))
    for piece, sums, unit, policy in over_pieces(sums_of, pieces, n_jobs):
        total = totals.setdefault(piece.key, RunningSums.zero(p))
        total.absorb(sums, sign=piece.sign, unit=unit)
        policies = policies if policy is None else policies + policy
    return GroupedSums(p, {key: totals[key].frozen() for key in sorted(totals)}), policies


def _sorted_pieces(
    rows: LabelledRows, groups: IntArray | None, size: int, n_jobs: int | None
) -> list[Piece]:
    """Sort all rows, so many at a time."""
    n = len(rows)

    def sort(start: int) -> list[Piece]:
        return block_pieces(rows, groups, start, min(start + size, n))

    return list(chain.from_iterable(over_pieces(sort, range(0, n, size), n_jobs)))


def _rows_at(X: Array, at: IntArray, scratch: Scratch) -> Array:
    """Return the rows at ascending positions: as they lie if they lie together, else a copy."""
    if at[-1] - at[0] == len(at) - 1:
        return X[at[0] : at[-1] + 1]
    found = scratch.array("X", len(at), X.shape[1])
    return np.take(X, at, axis=0, out=found, mode="clip")  # other modes copy twice


class _Values:
    """Basis values of the rows of a piece, a chunk at a time, written over again and again."""

    def __init__(self, writer: BasisWriter, p: int, X: Array, scratch: Scratch) -> None:
        n = len(X)
        self.p, self.size, self.write = p, min(chunk_rows(p), n), writer.write
        self.columns = scratch.array("columns", writer.width, n)
        writer.prepare(X, self.columns)
        self.values = scratch.array("values", self.size, p)

    def at(self, chunk: slice) -> Array:
        """Return the values at some rows."""
        phi = self.values[: chunk.stop - chunk.start]
        self.write(self.columns[:, chunk], phi)
        return phi


def _sum_piece(
    values: _Values, rows: LabelledRows, piece: Piece, X: Array, mean: CellMeans | None
) -> tuple[RunningSums, bool]:
    """Return the sums of one piece, and whether its labels are all of size one."""
    n, cross = len(X), piece.sign != 0.0
    label, weight = rows.label[piece.at], rows.weight[piece.at]
    roots = RowScales.of_rows(label, weight, cross=cross and mean is None)
    sums = RunningSums.zero(values.p)
    sums.weight, sums.weight_square = roots.weight, roots.weight_square
    linear = None if mean is None else mean.linear(X)
    for start in range(0, n, values.size):
        chunk = slice(start, min(start + values.size, n))
        phi, now = values.at(chunk), roots.cut(chunk)
        if mean is not None and linear is not None:
            now = now.centred(label[chunk] - mean(phi, linear[chunk]), weight[chunk], cross=cross)
        sums.add(phi, now.label, now.scale, now.cross)
    return sums, mean is None and roots.cross is None


def combine(
    basis: Callable[[Array], Array],
    coef: Array,
    X: Array,
    *,
    at: IntArray | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Return combinations of basis functions at every row, or at some, shape (n,) or (n, r).

    ``basis`` maps features (m, d) to values (m, p); a `ScaledBasis` is the fastest. Basis values of
    one megabyte for each thread are in memory, never those of all rows. The result does not depend
    on ``n_jobs``, to the bit.
    """
    p, writer, scratch = len(coef), basis_writer(basis, X, len(coef)), Scratch()
    n = len(X) if at is None else len(at)
    if at is not None and n and not 0 <= at.min() <= at.max() < len(X):
        raise InputError(f"positions must be from 0 to {len(X) - 1}, got {at.min()} to {at.max()}.")
    found, size = np.empty((n, *coef.shape[1:])), chunk_rows(p)

    def piece(start: int) -> None:
        stop = min(start + PIECE_ROWS, n)
        values = scratch.array("values", min(size, stop - start), p)
        columns = scratch.array("columns", writer.width, stop - start)
        writer.prepare(X[start:stop] if at is None else X[at[start:stop]], columns)
        for first in range(start, stop, size):
            last = min(first + size, stop)
            phi = values[: last - first]
            writer.write(columns[:, first - start : last - start], phi)
            np.matmul(phi, coef, out=found[first:last])

    for _ in over_pieces(piece, range(0, n, PIECE_ROWS), n_jobs):
        pass
    return found


@dataclass(frozen=True, slots=True)
class Violations:
    """The rows at which ``lower <= phi(x)^T coef <= upper`` fails worst."""

    index: IntArray  # (k,) positions of the worst rows
    phi: Array  # (k, p) their basis values
    worst: float  # largest excess over a bound, 0 if there is none
    count: int  # rows that fail, including those not listed


@dataclass(frozen=True, slots=True)
class RowScan:
    """All rows of a fit, looked through chunk by chunk whenever a solver asks."""

    basis: Callable[[Array], Array]
    X: Array  # (n, d)
    n_jobs: int | None = None

    def __call__(self, coef: Array, lower: float, upper: float, *, most: int) -> Violations:
        """Return at most ``most`` of the rows that violate the bounds, the worst first."""
        value = combine(self.basis, coef, self.X, n_jobs=self.n_jobs)
        over = np.maximum(value - upper, lower - value)
        failing = np.flatnonzero(over > 0.0)
        order = np.argsort(-over[failing], kind="stable")[:most]
        index = failing[order]
        worst = float(over[index[0]]) if index.size else 0.0
        return Violations(index, self.basis(self.X[index]), worst, len(failing))
