"""Rows sorted into runs that are added up by one thread each."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from unjoined._typing import CellArray, IntArray
from unjoined._validation import OUTCOME, TREATMENT, is_kind
from unjoined.moments._grouped import CellKey
from unjoined.moments._rows import LabelledRows

__all__ = ["PIECE_ROWS", "Piece", "block_pieces", "block_rows"]

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


def block_rows(n_groups: int) -> int:
    """Return how many rows are sorted together, with so many groups."""
    return BLOCK_ROWS * n_groups


def block_pieces(rows: LabelledRows, groups: IntArray | None, start: int, stop: int) -> list[Piece]:
    """Sort the rows of one block by cell, group and, for treatments, the sign of the label."""
    block = slice(start, stop)
    group = None if groups is None else groups[block]
    n_groups = 1 if group is None else int(group.max()) + 1
    cell, n_populations = _cells(rows, block)
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


def _cells(rows: LabelledRows, block: slice) -> tuple[IntArray | CellArray, int]:
    """Return the cells of some rows, outcomes first, and how many of either kind there are."""
    if rows.cell is not None:
        return rows.cell[block], 2
    treatment, population = is_kind(rows.kind[block], TREATMENT), rows.population[block]
    n_populations = int(population.max()) + 1
    return treatment * n_populations + population, n_populations
