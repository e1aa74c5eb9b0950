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
from unjoined.moments._rank_k import mirrored
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sums import RunningSums
from unjoined.moments._threads import Scratch

__all__ = ["CompiledSums", "compiled_sums"]


class CompiledSums:
    """What all pieces share, as compiled code takes it; called with one after the other."""

    def __init__(
        self,
        kernel: GaussianKernel,
        rows: LabelledRows,
        *,
        means: Mapping[CellKey, CellMeans],
        treatment: Array,
        scaling: Scaling | None,
    ) -> None:
        weight = None if np.all(rows.weight == 1.0) else np.ascontiguousarray(rows.weight)
        label = np.ascontiguousarray(rows.label)
        self.kernel, self.X, self.label, self.weight = kernel, rows.X, label, weight
        self.means = {key: _mean_arrays(mean) for key, mean in means.items()}
        self.treatment, self.scaling = np.ascontiguousarray(treatment), scaling

    def __call__(
        self, piece: Piece, scratch: Scratch
    ) -> tuple[RunningSums, bool, PolicySums | None]:
        """Return the sums of a piece, whether its labels are all of size one, those of policies."""
        p, s = self.kernel.p, self.kernel.stride
        policies = self._policy_arrays() if piece.sign else None
        gram, cross = np.zeros((s, s)), np.zeros((s, s)) if piece.sign else None
        label_basis = np.zeros(p)
        weight, unit = self.kernel.add_up(
            RowArrays(self.X, piece.at, self.label, self.weight),
            self.means.get(piece.key),
            SumArrays(label_basis, gram, cross),
            policies,
            scratch.array("room", self.kernel.room),
        )
        # The lower triangle in C order is the upper one in Fortran order.
        upper = [(matrix if matrix is not None else gram).T[:p, :p] for matrix in (cross, gram)]
        sums = RunningSums(len(piece.at), weight, upper[0], label_basis, upper[1])
        return sums, unit, None if policies is None else self._policy_sums(policies, piece, weight)

    def _policy_arrays(self) -> PolicyArrays | None:
        if self.scaling is None:
            return None
        s = self.kernel.design_stride
        mean, factor = self.scaling.mean, 1.0 / self.scaling.scale
        return PolicyArrays(mean, factor, self.treatment, np.zeros((s, s)), np.zeros((s, s)))

    def _policy_sums(self, found: PolicyArrays, piece: Piece, weight: float) -> PolicySums:
        d, k = self.X.shape[1], piece.key.population
        q = 2 * d + 1
        total = PolicySums.zero(d)
        total.n_rows[k], total.weight[k] = len(piece.at), weight
        total.label[k] = found.gram[q, :q]
        total.gram[k] = mirrored(found.gram.T[:q, :q])
        square = found.gram if self.weight is None else found.square
        total.square[k] = mirrored(square.T[:q, :q])
        return total


def compiled_sums(
    kernel: GaussianKernel | None,
    rows: LabelledRows,
    *,
    means: Mapping[CellKey, CellMeans] | None,
    treatment: Array,
    scaling: Scaling | None,
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
    """
    if kernel is None or not rows.X.flags.c_contiguous:
        return None
    return CompiledSums(kernel, rows, means=means or {}, treatment=treatment, scaling=scaling)


def _mean_arrays(mean: CellMeans) -> MeanArrays:
    slope = None if mean.slope is None else np.ascontiguousarray(mean.slope.T)
    coef, offset = np.ascontiguousarray(mean.coef.T), np.ascontiguousarray(mean.offset)
    return MeanArrays(coef, slope, offset, mean.bound)
