"""One pass over rows in memory, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT, is_kind
from unjoined.features._basis import Filler, filler
from unjoined.moments._grouped import CellKey, GroupedSums, stable_groups
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sums import Roots, RunningSums
from unjoined.moments._threads import Scratch, n_threads, over_pieces

__all__ = ["CHUNK_ROWS", "accumulate", "chunk_rows", "n_threads"]

# A few thousand rows of a hundred basis values are a few megabytes: large enough for BLAS to
# run at speed, small enough to stay in the cache between the exponentials and the update.
CHUNK_ROWS = 4096
CHUNK_VALUES = 102_400  # 0.8 megabytes: with room to spare in the cache a core has to itself
# Rows of one cell, group and sign that are summed up by one thread. One set of sums is merged
# for each, which costs as much as a few dozen rows.
PIECE_ROWS = 16_384
BLOCK_ROWS = 2**18  # rows that are sorted into cells together


class Piece(NamedTuple):
    """Some rows of one cell and group; of treatment rows, with labels of one sign."""

    key: CellKey
    sign: float  # of the labels; 0 for outcome rows, which need no cross product
    at: IntArray  # (m,) ascending


def chunk_rows(p: int) -> int:
    """Return how many rows of ``p`` basis values are evaluated together."""
    return min(max(CHUNK_VALUES // p, 256), CHUNK_ROWS)


def accumulate(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    *,
    n_groups: int = 1,
    groups: IntArray | None = None,
    n_jobs: int | None = None,
) -> GroupedSums:
    """Return the sums of ``rows`` per kind, population and group, in one pass.

    Parameters
    ----------
    basis : callable
        Maps features (m, d) to basis values (m, p). A `ScaledBasis` is the fastest: it writes
        its values in place.
    p : int
        Number of basis functions.
    rows : LabelledRows
        Rows of the four cells.
    n_groups : int, default=1
        Number of groups rows are hashed into.
    groups : array of shape (n,), optional
        The group of each row, from 0 on, if groups were dealt rather than hashed.
    n_jobs : int or None, default=None
        Threads, counted as scikit-learn does: None is one, -1 all cores, -2 all but one. The
        result does not depend on it, to the bit: pieces are fixed and merged in order.

    Notes
    -----
    Costs O(n (p^2 + p d)) time and O(p^2) memory per cell, group and thread, beside the rows.
    Labels of -1 and +1 take one symmetric update for each row, others a second one for each
    treatment row. ``benchmarks/moments.py`` measures how near this is to the updates alone.
    """
    if groups is None and n_groups > 1:
        groups = stable_groups(rows.X, rows.label, n_groups)
    writer, scratch = filler(basis, rows.X.shape[1]), Scratch()

    def block_pieces(start: int) -> list[Piece]:
        return _pieces(rows, groups, start, min(start + BLOCK_ROWS, len(rows.X)))

    def sums_of(piece: Piece) -> tuple[Piece, RunningSums, bool]:
        sums, unit = _sum_piece(writer, p, rows, piece, scratch)
        return piece, sums, unit

    blocks = range(0, len(rows.X), BLOCK_ROWS)
    pieces = list(chain.from_iterable(over_pieces(block_pieces, blocks, n_jobs)))
    totals: dict[CellKey, RunningSums] = {}
    for piece, sums, unit in over_pieces(sums_of, pieces, n_jobs):
        total = totals.setdefault(piece.key, RunningSums.zero(p))
        total.absorb(sums, sign=piece.sign, unit=unit)
    return GroupedSums(p, {key: totals[key].frozen() for key in sorted(totals)})


def _pieces(rows: LabelledRows, groups: IntArray | None, start: int, stop: int) -> list[Piece]:
    """Sort the rows of one block by cell, group and, for treatments, the sign of the label."""
    block = slice(start, stop)
    treatment, population = is_kind(rows.kind[block], TREATMENT), rows.population[block]
    group = None if groups is None else groups[block]
    n_groups = 1 if group is None else int(group.max()) + 1
    n_populations = int(population.max()) + 1
    cells = n_populations * n_groups  # of either kind
    # Few different small numbers: numpy sorts them by counting, in one go.
    small = np.min_scalar_type(4 * cells)
    code = treatment.astype(small)
    code *= n_populations
    code += population.astype(small)
    if group is not None:
        code *= n_groups
        code += group.astype(small)
    code *= 2
    code += (treatment & (rows.label[block] > 0.0)).astype(small)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code, minlength=4 * cells))
    pieces: list[Piece] = []
    for c, (first, last) in enumerate(pairwise((0, *ends.tolist()))):
        kind, sign = (TREATMENT, 2.0 * (c % 2) - 1.0) if c >= 2 * cells else (OUTCOME, 0.0)
        cell = c // 2 % cells
        key = CellKey(kind, cell // n_groups, cell % n_groups)
        pieces.extend(
            Piece(key, sign, start + order[i : min(i + PIECE_ROWS, last)])
            for i in range(first, last, PIECE_ROWS)
        )
    return pieces


def _rows_at(X: Array, at: IntArray, scratch: Scratch) -> Array:
    """Return the rows at ascending positions: as they lie if they lie together, else a copy."""
    if at[-1] - at[0] == len(at) - 1:
        return X[at[0] : at[-1] + 1]
    found = scratch.array("X", len(at), X.shape[1])
    return np.take(X, at, axis=0, out=found, mode="clip")  # other modes copy twice


def _sum_piece(
    filler: Filler, p: int, rows: LabelledRows, piece: Piece, scratch: Scratch
) -> tuple[RunningSums, bool]:
    """Return the sums of one piece, and whether its labels are all of size one."""
    at, n, size = piece.at, len(piece.at), chunk_rows(p)
    roots = Roots.of_rows(rows.label[at], rows.weight[at], cross=piece.sign != 0.0)
    columns = scratch.array("columns", filler.width, n)
    filler.prepare(_rows_at(rows.X, at, scratch), columns)
    sums = RunningSums.zero(p)
    sums.weight = roots.weight
    values = scratch.array("values", min(size, n), p)
    for start in range(0, n, size):
        chunk = slice(start, min(start + size, n))
        phi = values[: chunk.stop - start]
        filler.write(columns[:, chunk], phi)
        scale = None if roots.scale is None else roots.scale[chunk]
        cross = None if roots.cross is None else roots.cross[chunk]
        sums.add(phi, roots.label[chunk], scale, cross)
    return sums, roots.cross is None
