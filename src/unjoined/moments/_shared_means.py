"""Centring on the basis of the sums, so that one pass over the rows does both."""

from __future__ import annotations

import numpy as np

from unjoined._validation import OUTCOME, TREATMENT
from unjoined.features import (
    Basis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    Scaling,
    StackedBasis,
)
from unjoined.features._basis import same_basis
from unjoined.moments._cell_means import CellMeans
from unjoined.moments._center import CELLS, Centring, SmoothMeans

__all__ = ["means_basis", "shared_means"]


def means_basis(basis: Basis) -> Basis | None:
    """Return the functions on which labels are centred along with the sums on ``basis``.

    A constant and the features come first, as `smooth_coef` wants them. None for a basis that
    need not be fit to predict labels: linear functions, which leave what bends in the labels'
    means (where features are distributed differently, that biases the uplift), and those of
    unknown kind.
    """
    if isinstance(basis, StackedBasis):
        return basis if isinstance(basis.first, LinearBasis | PrincipalBasis) else None
    if isinstance(basis, GaussianBasis | FourierBasis):
        return StackedBasis(LinearBasis(basis.n_features), basis)
    return None


def shared_means(centring: Centring, basis: Basis, scaling: Scaling) -> dict[str, CellMeans] | None:
    """Return what is subtracted from either kind of labels, in terms of a pass over ``basis``.

    None if the centring is of another basis or scaling, or by models.
    """
    means, d = centring.means, len(scaling.mean)
    if not isinstance(means, SmoothMeans) or not _same_scaling(centring.scaling, scaling):
        return None
    if same_basis(means.basis, basis):
        linear, coef = None, means.coef
    elif isinstance(means.basis, StackedBasis) and same_basis(means.basis.second, basis):
        linear, coef = means.coef[: d + 1], means.coef[d + 1 :]
    else:
        return None
    found = {}
    for kind in (OUTCOME, TREATMENT):
        at = [c for c, cell in enumerate(CELLS) if cell[0] == kind]
        offset, bound = means.offset[at], float(means.high[at[0]])
        slope = None
        if linear is not None:
            slope = linear[1:, at] / scaling.scale[:, None]
            offset = offset + linear[0, at] - scaling.mean @ slope
        mean = CellMeans(coef[:, at], slope, offset, bound)
        found[kind] = mean if bound < np.inf else mean.averaged()
    return found


def _same_scaling(a: Scaling, b: Scaling) -> bool:
    return np.array_equal(a.mean, b.mean) and np.array_equal(a.scale, b.scale)
