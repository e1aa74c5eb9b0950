"""Sums of pieces by compiled code: all of a piece at once, without Python's lock."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unjoined._compiled import GaussianKernel, MeanArrays, PolicyArrays, RowArrays, SumArrays
from unjoined._typing import Array
from unjoined.features import Scaling
from unjoined.moments._cell_means import CellMeans
from unjoined.moments._grouped import CellKey
from unjoined.moments._pieces import Piece
from unjoined.moments._policy_sums import PolicySums
from unjoined.moments._rank_k import dsyrk_address
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sums import RunningSums
from unjoined.moments._threads import Scratch

__all__ = ["CompiledSums", "compiled_sums"]


class CompiledSums:
    """What all pieces share, as compiled code takes it; called with one after the other."""

    def __init__(
        self,
        kernel: GaussianKernel,
        syrk: int,
        rows: LabelledRows,
        *,
        means: Mapping[CellKey, CellMeans],
        treatment: Array,
        scaling: Scaling | None,
        chunk: int,
    ) -> None:
        weight = None if np.all(rows.weight == 1.0) else np.ascontiguousarray(rows.weight)
        label = np.ascontiguousarray(rows.label)
        self.kernel, self.syrk, self.chunk = kernel, syrk, chunk
        self.X, self.label, self.weight = rows.X, label, weight
        self.means = {key: _mean_arrays(mean) for key, mean in means.items()}
        self.treatment, self.scaling = np.ascontiguousarray(treatment), scaling

    def __call__(
        self, piece: Piece, scratch: Scratch
    ) -> tuple[RunningSums, bool, PolicySums | None]:
        """Return the sums of a piece, whether its labels are all of size one, those of policies."""
        kernel, sums = self.kernel, RunningSums.zero(self.kernel.p)
        policies = self._policy_arrays() if piece.sign else None
        cross = sums.label_cross if piece.sign else None
        sums.n_rows = len(piece.at)
        sums.weight, unit = kernel.add_up(
            RowArrays(self.X, piece.at, self.label, self.weight),
            self.means.get(piece.key),
            SumArrays(sums.label_basis, sums.gram, cross),
            policies,
            syrk=self.syrk,
            chunk=self.chunk,
            room=scratch.array("room", kernel.room(self.chunk)),
        )
        return sums, unit, None if policies is None else self._policy_sums(policies, piece, sums)

    def _policy_arrays(self) -> PolicyArrays | None:
        if self.scaling is None:
            return None
        s = self.kernel.stride
        mean, factor = self.scaling.mean, 1.0 / self.scaling.scale
        return PolicyArrays(mean, factor, self.treatment, np.zeros((s, s)), np.zeros((s, s)))

    def _policy_sums(self, found: PolicyArrays, piece: Piece, sums: RunningSums) -> PolicySums:
        d, k = self.X.shape[1], piece.key.population
        q = 2 * d + 1
        total = PolicySums.zero(d)
        total.n_rows[k], total.weight[k] = len(piece.at), sums.weight
        total.label[k] = found.gram[:q, q]
        total.gram[k] = _both_triangles(found.gram[:q, :q])
        square = found.gram if self.weight is None else found.square
        total.square[k] = _both_triangles(square[:q, :q])
        return total


def compiled_sums(
    kernel: GaussianKernel | None,
    rows: LabelledRows,
    *,
    means: Mapping[CellKey, CellMeans] | None,
    treatment: Array,
    scaling: Scaling | None,
    chunk: int,
) -> CompiledSums | None:
    """Return compiled sums, or None if numpy has to do it.

    Parameters
    ----------
    kernel : GaussianKernel or None
        The basis.
    rows : LabelledRows
        All of them.
    means : mapping or None
        What is subtracted from the labels.
    treatment : array of shape (n,)
        Labels as they enter the sums that tell policies apart.
    scaling : Scaling or None
        Of the features in those sums; None if they are not wanted.
    chunk : int
        Rows whose basis values are in memory together, for each thread.
    """
    syrk = dsyrk_address()
    if kernel is None or syrk is None or not rows.X.flags.c_contiguous:
        return None
    return CompiledSums(
        kernel,
        syrk,
        rows,
        means=means or {},
        treatment=treatment,
        scaling=scaling,
        chunk=chunk,
    )


def _mean_arrays(mean: CellMeans) -> MeanArrays:
    slope = None if mean.slope is None else np.ascontiguousarray(mean.slope.T)
    coef, offset = np.ascontiguousarray(mean.coef.T), np.ascontiguousarray(mean.offset)
    return MeanArrays(coef, slope, offset, mean.bound)


def _both_triangles(upper: Array) -> Array:
    return np.triu(upper) + np.triu(upper, 1).T
