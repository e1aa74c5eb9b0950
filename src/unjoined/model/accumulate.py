"""One pass over rows in memory, on all cores: their sums, or values of functions at each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from unjoined._threads import CACHE_ROWS, Scratch, over_pieces
from unjoined._typing import Array, IntArray
from unjoined.data.rows import LabelledRows
from unjoined.model.basis import BasisWriter, basis_writer
from unjoined.model.moments import MomentSums

# Rows of one cell, group and sign that are summed up by one thread. One set of sums is merged
# for each, which costs as much as a few dozen rows.
PIECE_ROWS = 16_384
# Rows of each group that are sorted together: a piece or two for each of its six cells and signs,
# and few enough to be near at hand when they are gathered.
BLOCK_ROWS = 8 * PIECE_ROWS
CHUNK_VALUES = (
    102_400  # 0.8 megabytes: with room to spare in the cache a core has to itself
)


class Piece(NamedTuple):
    """Rows of one cell and group; of treatment rows, with labels of one sign."""

    cell: tuple[int, int, int]  # kind, population and group
    sign: float  # of the labels; 0 for outcome rows, which need no cross product
    at: IntArray  # (m,) ascending


def block_pieces(
    rows: LabelledRows, groups: IntArray | None, start: int, stop: int
) -> list[Piece]:
    """Sort the rows of one block by cell, group and, for treatments, the sign of the label."""
    block = slice(start, stop)
    group = None if groups is None else groups[block]
    n_groups = 1 if group is None else int(group.max()) + 1
    cell = rows.cell[block]
    n_populations = len(rows.names)
    cells = n_populations * n_groups  # of either kind
    # Few different small numbers: numpy sorts them by counting, in one go.
    code = cell.astype(np.min_scalar_type(4 * cells))
    if group is not None:
        code *= n_groups
        code += group.astype(code.dtype)
    code *= 2
    code += (cell >= n_populations) & (rows.label[block] > 0.0)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code, minlength=4 * cells))
    pieces: list[Piece] = []
    for c, (first, last) in enumerate(pairwise((0, *ends.tolist()))):
        kind, rest = divmod(c // 2, cells)
        sign = 2.0 * (c % 2) - 1.0 if kind else 0.0
        # Even parts: a few rows left over would cost as much as a piece.
        edges = np.linspace(first, last, max(round((last - first) / PIECE_ROWS), 1) + 1)
        pieces.extend(
            Piece((kind, *divmod(rest, n_groups)), sign, start + order[i:j])
            for i, j in pairwise(edges.astype(np.int64).tolist())
            if i < j
        )
    return pieces


def chunk_rows(p: int) -> int:
    """Return how many rows of ``p`` basis values are evaluated together."""
    return min(max(CHUNK_VALUES // p, 256), CACHE_ROWS)


def accumulate(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    *,
    groups: IntArray | None = None,
    n_groups: int | None = None,
    n_jobs: int | None = None,
) -> MomentSums:
    """Return the sums of ``rows`` per kind, population and group, in one pass.

    The result does not depend on ``n_jobs``, to the bit: pieces are fixed and merged in order.
    Labels of -1 and +1 take one symmetric update for each row, others a second one for each
    treatment row. ``benchmarks/moments.py`` measures how near this is to the updates alone.
    """
    if n_groups is None:
        n_groups = 1 if groups is None else int(groups.max(initial=0)) + 1
    writer = basis_writer(basis, rows.X, p)
    scratch = Scratch()
    size = BLOCK_ROWS * n_groups

    def sort(start: int) -> list[Piece]:
        return block_pieces(rows, groups, start, min(start + size, len(rows)))

    def sum_up(piece: Piece) -> tuple[Piece, MomentSums]:
        return piece, _sum_piece(writer, p, rows, piece, scratch)

    starts = range(0, len(rows), size)
    pieces = list(chain.from_iterable(over_pieces(sort, starts, n_jobs)))
    total = MomentSums.zero(p, 2, len(rows.names), n_groups)
    for piece, sums in over_pieces(sum_up, pieces, n_jobs):
        total.n_rows[piece.cell] += sums.n_rows
        total.weight[piece.cell] += sums.weight
        total.weight_square[piece.cell] += sums.weight_square
        total.label_basis[piece.cell] += sums.label_basis
        total.gram[piece.cell] += sums.gram
        if piece.sign > 0.0:
            total.label_cross[piece.cell] += sums.label_cross
        elif piece.sign < 0.0:
            total.label_cross[piece.cell] -= sums.label_cross
    for matrix in (total.gram, total.label_cross[1]):
        _mirror(matrix)
    return total


def _mirror(matrices: Array) -> None:
    """Copy the lower triangles of matrices (..., p, p) to the upper ones, in place."""
    above = np.triu_indices(matrices.shape[-1], 1)
    matrices[..., above[0], above[1]] = matrices[..., above[1], above[0]]


def add_gram(phi: Array, total: Array) -> None:
    """Add phi^T phi to the upper triangle of ``total``, which is in Fortran order."""
    # C order read as Fortran order is the transpose, of p rows and m columns. BLAS leaves Python's
    # lock to other threads, and updates one triangle in place, which numpy's product of a matrix
    # with its own transpose does not.
    dsyrk(1.0, phi.T, beta=1.0, c=total, overwrite_c=1)


def _sum_piece(
    writer: BasisWriter, p: int, rows: LabelledRows, piece: Piece, scratch: Scratch
) -> MomentSums:
    """Return the sums of one piece; of the matrices, the lower triangles hold.

    Labels count by their size in the cross product, their sign being that of the piece.
    """
    X = _rows_at(rows.X, piece.at, scratch)
    label = rows.label[piece.at]
    weight = rows.weight[piece.at]
    n = len(X)
    size = chunk_rows(p)
    columns = scratch.array("columns", writer.width, n)
    writer.prepare(X, columns)
    values = scratch.array("values", min(size, n), p)
    # Scaling rows by square roots keeps each update a product of a matrix with its own transpose,
    # which takes half of the multiplications; scaling in place saves a copy.
    scale = None if np.all(weight == 1.0) else np.sqrt(weight)[:, None]
    unit = not piece.sign or bool(np.all(np.abs(label) == 1.0))
    root = None if unit else np.sqrt(np.abs(label))[:, None]
    weighted = weight * label
    label_basis = np.zeros(p)
    gram, cross = (np.zeros((p, p), order="F") for _ in range(2))
    for start in range(0, n, size):
        chunk = slice(start, min(start + size, n))
        phi = values[: chunk.stop - start]
        writer.write(columns[:, chunk], phi)
        # Unlike the operator, dot leaves Python's lock to other threads for small results too.
        label_basis += np.dot(weighted[chunk], phi)
        if scale is not None:
            phi *= scale[chunk]
        add_gram(phi, gram)
        if root is not None:
            phi *= root[chunk]
            add_gram(phi, cross)
    # Of labels that are all of size one the cross product is that of the basis values.
    cross = gram if unit else cross
    counts = np.array(n), weight.sum(), weight @ weight
    return MomentSums(*counts, label_basis, gram.T, cross.T)


def _rows_at(X: Array, at: IntArray, scratch: Scratch) -> Array:
    """Return the rows at ascending positions: as they lie if they lie together, else a copy."""
    if at[-1] - at[0] == len(at) - 1:
        return X[at[0] : at[-1] + 1]
    copy = scratch.array("X", len(at), X.shape[1])
    return np.take(X, at, axis=0, out=copy, mode="clip")  # other modes copy twice


def combine(
    basis: Callable[[Array], Array],
    coef: Array,
    X: Array,
    *,
    n_jobs: int | None = None,
) -> Array:
    """Return combinations of basis functions at every row, shape (n,) or (n, r).

    ``basis`` maps features (m, d) to values (m, p); a `ScaledBasis` is the fastest. Basis values of
    one megabyte for each thread are in memory, never those of all rows. The result does not depend
    on ``n_jobs``, to the bit.
    """
    p = len(coef)
    writer = basis_writer(basis, X, len(coef))
    scratch = Scratch()
    n = len(X)
    size = chunk_rows(p)
    combined = np.empty((n, *coef.shape[1:]))

    def piece(start: int) -> None:
        stop = min(start + PIECE_ROWS, n)
        values = scratch.array("values", min(size, stop - start), p)
        columns = scratch.array("columns", writer.width, stop - start)
        writer.prepare(X[start:stop], columns)
        for first in range(start, stop, size):
            last = min(first + size, stop)
            phi = values[: last - first]
            writer.write(columns[:, first - start : last - start], phi)
            np.matmul(phi, coef, out=combined[first:last])

    for _ in over_pieces(piece, range(0, n, PIECE_ROWS), n_jobs):
        pass
    return combined


@dataclass(frozen=True, slots=True)
class RowScan:
    """All rows of a fit, looked through chunk by chunk whenever a solver asks."""

    basis: Callable[[Array], Array]
    X: Array  # (n, d)
    n_jobs: int | None = None

    def __call__(
        self, coef: Array, lower: float, upper: float, *, most: int
    ) -> tuple[IntArray, Array, float]:
        """Look for rows at which ``lower <= phi(x)^T coef <= upper`` fails.

        Return the positions of at most ``most`` of them, the worst first, their basis values, and
        the largest excess over a bound, 0 if there is none.
        """
        value = combine(self.basis, coef, self.X, n_jobs=self.n_jobs)
        over = np.maximum(value - upper, lower - value)
        failing = np.flatnonzero(over > 0.0)
        index = failing[np.argsort(-over[failing], kind="stable")[:most]]
        return index, self.basis(self.X[index]), float(over[index].max(initial=0.0))
