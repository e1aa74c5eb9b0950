"""Sums of pieces by compiled code: all of a piece at once, without Python's lock."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unjoined._compiled import (
    GaussianKernel,
    MeanArrays,
    PolicyArrays,
    RowArrays,
    SumArrays,
    plain,
)
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
        means: Mapping[CellKey, CellMeans] | None,
        treatment: Array,
        scaling: Scaling | None,
    ) -> None:
        self.kernel, self.X, self.scaling = kernel, rows.X, scaling
        self.label, self.treatment = plain(rows.label), plain(treatment)
        self.weight = None if np.all(rows.weight == 1.0) else plain(rows.weight)
        self.means = None
        if means is not None:
            self.means = {key: _mean_arrays(mean) for key, mean in means.items()}

    def __call__(
        self, piece: Piece, scratch: Scratch
    ) -> tuple[RunningSums, bool, PolicySums | None]:
        """Return the sums of a piece, whether its labels are all of size one, those of policies."""
        p, s = self.kernel.p, self.kernel.stride
        policies = self._policy_arrays() if piece.sign else None
        label_basis, gram = np.zeros(p), np.zeros((s, s))
        cross = np.zeros((s, s)) if piece.sign else gram  # of outcomes nobody looks at it
        weight, unit = self.kernel.add_up(
            RowArrays(self.X, piece.at, self.label, self.weight),
            None if self.means is None else self.means[piece.key],
            SumArrays(label_basis, gram, cross if piece.sign else None),
            policies,
            scratch.array("room", self.kernel.room),
        )
        # The lower triangle in C order is the upper one in Fortran order.
        n, square = len(piece.at), float(len(piece.at))
        if self.weight is not None:
            some = self.weight[piece.at]
            square = float(some @ some)
        sums = RunningSums(n, weight, cross.T[:p, :p], label_basis, gram.T[:p, :p], square)
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
    if kernel is None or plain(rows.X) is not rows.X:
        return None
    return CompiledSums(kernel, rows, means=means, treatment=treatment, scaling=scaling)


def _mean_arrays(mean: CellMeans) -> MeanArrays:
    slope = None if mean.slope is None else plain(mean.slope.T)
    return MeanArrays(plain(mean.coef.T), slope, plain(mean.offset), mean.bound)
