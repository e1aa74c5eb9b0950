"""One pass over rows in memory, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined.features import Scaling
from unjoined.features._basis import Filler, filler
from unjoined.moments._cell_means import CellMeans
from unjoined.moments._compiled_sums import compiled_sums
from unjoined.moments._grouped import CellKey, GroupedSums, stable_groups
from unjoined.moments._pieces import Piece, block_pieces, block_rows
from unjoined.moments._policy_sums import PolicySums
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sums import Roots, RunningSums
from unjoined.moments._threads import Scratch, n_threads, over_pieces

__all__ = ["CHUNK_ROWS", "accumulate", "accumulate_policies", "chunk_rows", "n_threads"]

# A few thousand rows of a hundred basis values are a few megabytes: large enough for BLAS to
# run at speed, small enough to stay in the cache between the exponentials and the update.
CHUNK_ROWS = 4096
CHUNK_VALUES = 102_400  # 0.8 megabytes: with room to spare in the cache a core has to itself


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
    return _sum_up(filler(basis, rows.X, p), p, rows, groups, n_jobs)[0]


def accumulate_policies(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    scaling: Scaling,
    *,
    groups: IntArray | None = None,
    means: Mapping[CellKey, CellMeans] | None = None,
    centred: Array | None = None,
    single: bool = False,
    n_jobs: int | None = None,
) -> tuple[GroupedSums, PolicySums]:
    """Return the sums of ``rows`` and, from the same pass, those that tell the policies apart.

    Parameters
    ----------
    basis, p, rows, groups, n_jobs
        As in `accumulate`, ``rows`` of two populations.
    scaling : Scaling
        Of the features in the sums of policies.
    means : mapping, optional
        What is subtracted from the labels of every cell and group, from the basis values that
        the pass computes anyway. Means of treatments must lie between -1 and +1.
    centred : array of shape (n,), optional
        Labels as they enter ``GroupedSums``, if something was subtracted before. The policies
        are told apart by the labels themselves.
    single : bool, default=False
        Whether basis values, and their products over the rows of a chunk, are in single
        precision; sums over chunks are in double.
    """
    d = rows.X.shape[1]
    used = rows if centred is None else replace(rows, label=centred)
    policies = _Policies(rows.label, scaling)
    sums, parts = _sum_up(
        filler(basis, rows.X, p),
        p,
        used,
        groups,
        n_jobs,
        means=means,
        policies=policies,
        single=single,
    )
    return sums, reduce(PolicySums.merge, parts, PolicySums.zero(d))


class _Policies(NamedTuple):
    """What the sums of policies take beside the rows."""

    label: Array  # (n,) treatments as -1/+1
    scaling: Scaling


def _sum_up(
    writer: Filler,
    p: int,
    rows: LabelledRows,
    groups: IntArray | None,
    n_jobs: int | None,
    *,
    means: Mapping[CellKey, CellMeans] | None = None,
    policies: _Policies | None = None,
    single: bool = False,
) -> tuple[GroupedSums, list[PolicySums]]:
    n, scratch = len(rows.X), Scratch()
    n_groups = 1 if groups is None else int(groups.max(initial=0)) + 1
    compiled = compiled_sums(
        None if single else writer.kernel,
        rows,
        means=means,
        treatment=rows.label if policies is None else policies.label,
        scaling=None if policies is None else policies.scaling,
    )

    def sums_of(piece: Piece) -> tuple[Piece, RunningSums, bool, PolicySums | None]:
        if compiled is not None:
            return piece, *compiled(piece, scratch)
        X, at = _rows_at(rows.X, piece.at, scratch), piece.at
        mean = None if means is None else means[piece.key]
        values = _Values(writer, p, X, scratch, single=single)
        sums, unit = _sum_piece(values, rows, piece, X, mean)
        policy = None
        if policies is not None and piece.sign:
            k, label = piece.key.population, policies.label[at]
            policy = PolicySums.of_rows(X, policies.scaling, label, rows.weight[at], k)
        return piece, sums, unit, policy

    size = block_rows(n_groups)

    def sort_block(start: int) -> list[Piece]:
        return block_pieces(rows, groups, start, min(start + size, n))

    pieces = list(chain.from_iterable(over_pieces(sort_block, range(0, n, size), n_jobs)))
    totals: dict[CellKey, RunningSums] = {}
    found = []
    for piece, sums, unit, policy in over_pieces(sums_of, pieces, n_jobs):
        total = totals.setdefault(piece.key, RunningSums.zero(p))
        total.absorb(sums, sign=piece.sign, unit=unit)
        if policy is not None:
            found.append(policy)
    return GroupedSums(p, {key: totals[key].frozen() for key in sorted(totals)}), found


def _rows_at(X: Array, at: IntArray, scratch: Scratch) -> Array:
    """Return the rows at ascending positions: as they lie if they lie together, else a copy."""
    if at[-1] - at[0] == len(at) - 1:
        return X[at[0] : at[-1] + 1]
    found = scratch.array("X", len(at), X.shape[1])
    return np.take(X, at, axis=0, out=found, mode="clip")  # other modes copy twice


class _Values:
    """Basis values of the rows of a piece, a chunk at a time, written over again and again."""

    def __init__(self, filler: Filler, p: int, X: Array, scratch: Scratch, *, single: bool) -> None:
        n, w = len(X), filler.width
        self.p, self.size, self.write = p, min(chunk_rows(p), n), filler.write
        self.columns: Any = scratch.array("columns", w, n)
        filler.prepare(X, self.columns)
        self.single = scratch.single("single", self.size, p) if single else None
        self.double = None
        if single and filler.narrow is not None:
            filler.narrow(self.columns)
            narrow = scratch.single("narrow", w, n)
            np.copyto(narrow, self.columns, casting="same_kind")
            self.columns = narrow
        else:
            self.double = scratch.array("values", self.size, p)

    def at(self, chunk: slice) -> Any:
        """Return the values at some rows, of single or double precision as was asked for."""
        m = chunk.stop - chunk.start
        if self.double is None:
            phi: Any = self.single
            self.write(self.columns[:, chunk], phi[:m])
            return phi[:m]
        self.write(self.columns[:, chunk], self.double[:m])
        if self.single is None:
            return self.double[:m]
        np.copyto(self.single[:m], self.double[:m], casting="same_kind")
        return self.single[:m]


def _sum_piece(
    values: _Values, rows: LabelledRows, piece: Piece, X: Array, mean: CellMeans | None
) -> tuple[RunningSums, bool]:
    """Return the sums of one piece, and whether its labels are all of size one."""
    n, cross = len(X), piece.sign != 0.0
    label, weight = rows.label[piece.at], rows.weight[piece.at]
    roots = Roots.of_rows(label, weight, cross=cross and mean is None)
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
