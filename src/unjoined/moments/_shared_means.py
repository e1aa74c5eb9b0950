"""Centring on the basis of the sums: in the pass that adds up, or when it is over."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.features import (
    Basis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    Scaling,
    StackedBasis,
)
from unjoined.features._draw import same_basis
from unjoined.moments._cell_means import CellMeans
from unjoined.moments._center import CELLS, Centring, SmoothMeans
from unjoined.moments._grouped import GroupedSums
from unjoined.moments._smooth_coef import SmoothPath, smoothest_best
from unjoined.moments._sums import MomentSums

__all__ = ["center_sums", "has_constant", "means_basis", "shared_means"]


def means_basis(basis: Basis) -> Basis | None:
    """Return the functions on which labels are centred along with the sums on ``basis``.

    A constant and the features come first, as `smooth_coef` wants them. None for a basis that
    need not be fit to predict labels: linear functions, which leave what bends in the labels'
    means (where features are distributed differently, that biases the uplift), and those of
    unknown kind.
    """
    if isinstance(basis, StackedBasis):
        return basis if isinstance(basis.first, LinearBasis) else None
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


def has_constant(basis: Basis) -> bool:
    """Whether the functions begin with a constant and the features."""
    return isinstance(basis.first if isinstance(basis, StackedBasis) else basis, LinearBasis)


def center_sums(sums: GroupedSums, basis: Basis) -> GroupedSums:
    r"""Subtract from labels what the functions predict of them, when they are added up already.

    With :math:`m(x) = c^\top \phi(x)` the sums of :math:`(y - m) \phi` are those of
    :math:`y \phi` less the products of functions times c, exactly. What it takes for a function
    q(x) of treatments is not in the sums, but for a constant.

    Parameters
    ----------
    sums : GroupedSums
        With labels as they are, outcomes and treatments of both populations.
    basis : Basis
        The first of the functions of the sums: a constant and the features, then any others.

    Notes
    -----
    As in `center_rows`, m is the average of both populations' regressions, each fitted without
    the group of rows it is subtracted from; the penalty is the one that predicts the labels of
    groups left out best. A constant or a linear function added to the outcome changes nothing.
    Costs O(n_groups p^3).
    """
    p, d = basis.size, basis.n_features
    first = [_mean_label(sums, OUTCOME, k) for k in (0, 1)]
    start = np.zeros(p)
    start[0] = sum(first) / 2.0  # else sums of labels far from 0 would cancel in the regressions
    near = _shifted(sums, dict.fromkeys(sums.groups, start))
    coefs = [_coef_without(near, p, d, k) for k in (0, 1)]
    found = _shifted(near, {group: (coefs[0][group] + coefs[1][group]) / 2.0 for group in coefs[0]})
    share = sum(_mean_label(sums, TREATMENT, k) for k in (0, 1)) / 2.0
    cells = dict(found.cells)
    for key, cell in cells.items():
        if key.kind == TREATMENT:
            label = cell.label_basis - share * cell.gram[0]
            cross = cell.label_cross - share * cell.gram
            cells[key] = replace(cell, label_basis=label, label_cross=cross)
    return GroupedSums(sums.p, cells)


def _mean_label(sums: GroupedSums, kind: str, population: int) -> float:
    """Return the mean label of one cell, by the constant among the functions."""
    total = sums.total(kind, population)
    return float(total.label_basis[0] / total.weight)


def _shifted(sums: GroupedSums, coef: dict[int, Array]) -> GroupedSums:
    """Return the sums with outcomes less a combination of the first functions, by group."""
    cells = dict(sums.cells)
    for key, cell in cells.items():
        if key.kind == OUTCOME:
            c = coef[key.group]
            label = cell.label_basis - cell.gram[:, : len(c)] @ c
            cells[key] = replace(cell, label_basis=label)
    return GroupedSums(sums.p, cells)


def _coef_without(sums: GroupedSums, p: int, d: int, population: int) -> dict[int, Array]:
    """Return for each group the regression of one population's outcomes in the other groups."""
    own = {
        key.group: replace(cell, label_basis=cell.label_basis[:p], gram=cell.gram[:p, :p])
        for key, cell in sums.cells.items()
        if (key.kind, key.population) == (OUTCOME, population)
    }
    paths, score = {}, 0.0
    for group in sums.groups:
        # Of one group alone nothing can be left out.
        rest = [cell for other, cell in own.items() if other != group] or list(own.values())
        paths[group] = C = SmoothPath.of_sums(reduce(MomentSums.merge, rest), d).coef()
        if group in own and len(own) > 1:
            held = own[group]
            # Squared errors of the held-out labels, less the sum of their squares.
            score = score + np.sum(C * (held.gram @ C - 2.0 * held.label_basis[:, None]), axis=0)
    best = smoothest_best(np.asarray(score)) if len(own) > 1 else -1
    return {group: C[:, best] for group, C in paths.items()}
