"""One pass over rows in memory, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from unjoined._compiled import GaussianKernel, MeanArrays, plain
from unjoined._threads import Scratch, over_pieces
from unjoined._typing import Array, CellArray, IntArray
from unjoined._validation import OUTCOME, TREATMENT, is_kind
from unjoined.basis import Filler, Scaling, filler
from unjoined.data import LabelledRows
from unjoined.sums.moments import (
    CellKey,
    GroupedSums,
    PolicySums,
    Roots,
    RunningSums,
    stable_groups,
)


@dataclass(frozen=True, slots=True)
class CellMeans:
    """The average over the two populations of the mean label of one kind.

    A combination of the basis values of the pass and, if these hold no linear functions, of the
    features: it costs a small product where a basis of its own would cost as much as the sums.
    """

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


class CompiledSums(NamedTuple):
    """What all pieces share, as compiled code takes it; called with one after the other."""

    kernel: GaussianKernel
    X: Array
    label: Array
    weight: Array | None  # None for ones
    means: Mapping[CellKey, MeanArrays] | None

    def __call__(self, piece: Piece) -> tuple[RunningSums, bool]:
        """Return the sums of a piece, and whether its labels are all of size one."""
        p = self.kernel.p
        label_basis, gram = np.zeros(p), np.zeros((p, p))
        cross = np.zeros((p, p)) if piece.sign else gram  # of outcomes nobody looks at it
        weight, unit = self.kernel.add_up(
            (self.X, piece.at, self.label, self.weight),
            (label_basis, gram, cross if piece.sign else None),
            MeanArrays() if self.means is None else self.means[piece.key],
        )
        n, square = len(piece.at), float(len(piece.at))
        if self.weight is not None:
            some = self.weight[piece.at]
            square = float(some @ some)
        # The lower triangle in C order is the upper one in Fortran order.
        return RunningSums(n, weight, cross.T, label_basis, gram.T, square), unit


def compiled_sums(
    kernel: GaussianKernel | None, rows: LabelledRows, means: Mapping[CellKey, CellMeans] | None
) -> CompiledSums | None:
    """Return compiled sums, or None if numpy has to do it."""
    if kernel is None or plain(rows.X) is not rows.X:
        return None
    weight = None if np.all(rows.weight == 1.0) else plain(rows.weight)
    arrays = None
    if means is not None:
        arrays = {key: _mean_arrays(mean) for key, mean in means.items()}
    return CompiledSums(kernel, rows.X, plain(rows.label), weight, arrays)


def _mean_arrays(mean: CellMeans) -> MeanArrays:
    slope = None if mean.slope is None else plain(mean.slope.T)
    return MeanArrays(plain(mean.coef.T), slope, plain(mean.offset), mean.bound)


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
) -> tuple[GroupedSums, list[PolicySums]]:
    n, scratch = len(rows.X), Scratch()
    n_groups = 1 if groups is None else int(groups.max(initial=0)) + 1
    compiled = compiled_sums(writer.kernel, rows, means)

    def sums_of(piece: Piece) -> tuple[Piece, RunningSums, bool, PolicySums | None]:
        at, policy = piece.at, None
        told = policies is not None and piece.sign != 0.0
        X = _rows_at(rows.X, at, scratch) if told or compiled is None else rows.X
        if compiled is not None:
            sums, unit = compiled(piece)
        else:
            mean = None if means is None else means[piece.key]
            sums, unit = _sum_piece(_Values(writer, p, X, scratch), rows, piece, X, mean)
        if policies is not None and told:
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

    def __init__(self, filler: Filler, p: int, X: Array, scratch: Scratch) -> None:
        n = len(X)
        self.p, self.size, self.write = p, min(chunk_rows(p), n), filler.write
        self.columns = scratch.array("columns", filler.width, n)
        filler.prepare(X, self.columns)
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
