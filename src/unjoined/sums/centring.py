"""What is subtracted from labels before they are added up, or from the sums afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import pinvh

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
    same_basis,
)
from unjoined.sums.add_up import CellMeans, combine
from unjoined.sums.moments import GroupedSums, MomentSums

PENALTIES = np.logspace(-6.0, 2.0, 17)  # per row
# Counting each degree of freedom 1.4 times keeps generalised cross-validation from the rough
# fits it now and then chooses (Kim and Gu, 2004).
INFLATION = 1.4
ROWS_PER_FREE = 10  # rows per feature from which on the linear part is not penalised


def smooth_coef(sums: MomentSums, square: float, n_features: int) -> Array:
    r"""Regress the label on a constant, the features (both free) and Gaussians (with a ridge).

    .. math::

        \min_{a, c} \; \sum_i r_i (l_i - a^\top (1, x_i) - c^\top \phi(x_i))^2 + \lambda \|c\|^2,

    with :math:`\lambda` from generalised cross-validation,
    :math:`RSS / (1 - 1.4\,\mathrm{df} / n)^2`, ``square`` being the weighted sum of squared labels.
    As the linear part is free, a linear function added to the labels adds to the fit and changes no
    residual. With fewer than ten rows per feature only the constant is free.
    """
    n = sums.n_rows
    path = SmoothPath.of_sums(sums, n_features)
    left = n / sums.weight * square - path.v @ path.inverse @ path.v
    residual = left - 2.0 * path.shrunk @ path.u + (path.shrunk**2) @ path.values
    shares = path.values / (path.values + n * PENALTIES[:, None])
    degrees = len(path.v) + np.sum(shares, axis=1)
    score = residual / np.maximum(1.0 - INFLATION * degrees / n, 1e-2) ** 2
    coef: Array = path.coef()[:, smoothest_best(score)]
    return coef


def smoothest_best(score: Array) -> int:
    """Return the best penalty; a tie, as with a label that never varies, goes to the smoothest."""
    return len(score) - 1 - int(np.argmin(score[::-1]))


class SmoothPath(NamedTuple):
    """The regressions of `smooth_coef` for all penalties, the free part projected out."""

    inverse: Array  # (free, free) of the free part's products
    B: Array  # (free, p - free) what the free part says of the rest
    v: Array  # (free,) products of the free part and the label
    vectors: Array  # (p - free, p - free) directions of the rest
    values: Array  # (p - free,)
    u: Array  # (p - free,) products of the directions and the label
    shrunk: Array  # (n_penalties, p - free) coefficients of the directions

    @classmethod
    def of_sums(cls, sums: MomentSums, n_features: int) -> SmoothPath:
        """Solve for all penalties by one decomposition."""
        n = sums.n_rows
        G, v = (n / sums.weight * part for part in (sums.gram, sums.label_basis))
        free = 1 + (n_features if n >= ROWS_PER_FREE * (1 + n_features) else 0)
        # Frisch, Waugh and Lovell; features may be collinear.
        inverse = np.asarray(pinvh(G[:free, :free]), dtype=np.float64)
        B = inverse @ G[:free, free:]
        values, vectors = np.linalg.eigh(G[free:, free:] - G[free:, :free] @ B)
        values = np.maximum(values, 0.0)  # rounding only
        u: Array = vectors.T @ (v[free:] - B.T @ v[:free])
        shrunk = u / (values + n * PENALTIES[:, None])
        return cls(inverse, B, v[:free], vectors, values, u, shrunk)

    def coef(self) -> Array:
        """Return the coefficients of all functions, one column per penalty."""
        c = self.vectors @ self.shrunk.T
        return np.vstack([(self.inverse @ self.v)[:, None] - self.B @ c, c])


CELLS = ((OUTCOME, 0), (OUTCOME, 1), (TREATMENT, 0), (TREATMENT, 1))


@dataclass(frozen=True, slots=True)
class SmoothMeans:
    """Four conditional means by ridge regression on one basis.

    Those of two-valued labels are kept between the two. Those of real labels are not: a bound
    would move with a function added to the label, and centring is to be blind to it.
    """

    basis: Basis
    coef: Array  # (p, 4)
    offset: Array  # (4,) added to the products
    low: Array  # (4,) -1 for labels of two values, -inf for real ones
    high: Array  # (4,)

    def __call__(self, Z: Array) -> Array:
        """Return the means at scaled features (n, d), one column per cell, shape (n, 4)."""
        return self.bounded(self.basis(Z) @ self.coef)

    def bounded(self, products: Array) -> Array:
        """Return the means from products of basis values and coefficients, in place."""
        products += self.offset
        return np.clip(products, self.low, self.high, out=products)


@dataclass(frozen=True, slots=True)
class Centring:
    r"""A fitted pair (m, q), fixed from now on, for any chunk of features.

    :math:`m(x)` is the average of the two populations' conditional means of the outcome,
    :math:`q(x)` that of the treatment, both in the inner coding.
    """

    scaling: Scaling
    means: Callable[[Array], Array]  # (n, d) -> (n, 4), the order of `CELLS`

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return m(x) and q(x) at features as they came, shapes (n,) and (n,)."""
        m, q, _ = self.parts(X)
        return m, q

    def parts(self, X: Array) -> tuple[Array, Array, Array]:
        """Return m(x), q(x) and the policy gap e_1(x) - e_2(x), shape (n,) each."""
        return _parts(self.means(self.scaling(X)))


def _parts(mean: Array) -> tuple[Array, Array, Array]:
    """Return m, q and the policy gap from the means of the four cells (n, 4)."""
    m = (mean[:, 0] + mean[:, 1]) / 2.0
    q = (mean[:, 2] + mean[:, 3]) / 2.0
    return m, q, (mean[:, 2] - mean[:, 3]) / 2.0


def by_chunks(
    centring: Centring, X: Array, at: IntArray, n_jobs: int | None
) -> tuple[Array, Array, Array]:
    """Return m, q and the gap at some rows, never holding basis values of all of them."""
    # Models have their own ways with threads and chunks; a single chunk needs neither.
    if len(at) <= CACHE_ROWS or not isinstance(centring.means, SmoothMeans):
        return centring.parts(X[at])
    means = centring.means
    values = ScaledBasis(means.basis, centring.scaling)
    raw = combine(values, means.coef, X, at=None if len(at) == len(X) else at, n_jobs=n_jobs)
    return _parts(means.bounded(raw))


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
    """Return what is subtracted from labels in terms of a pass over ``basis``, if it can be."""
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


def center_sums(sums: GroupedSums, basis: Basis, contrasts: Array | None = None) -> GroupedSums:
    r"""Subtract from labels what the functions predict of them, when they are added up already.

    With :math:`m(x) = c^\top \phi(x)` the sums of :math:`(y - m) \phi` are those of
    :math:`y \phi` less the products of functions times c, exactly. What it takes for a function
    q(x) of treatments is not in the sums, but for a constant. As for rows, m is the average
    of the populations' regressions, each fitted without the group of rows it is subtracted from;
    the penalty is the one that predicts the labels of groups left out best. ``basis`` are the first
    of the functions of the sums: a constant and the features, then any others.
    """
    p, d = basis.size, basis.n_features
    parts = (0.5, 0.5) if contrasts is None else np.abs(contrasts[0]) / 2.0
    start = np.zeros(p)
    # Else sums of labels far from 0 would cancel in the regressions.
    start[0] = sum(part * _mean_label(sums, OUTCOME, k) for k, part in enumerate(parts))
    near = _shifted(sums, dict.fromkeys(sums.groups, start))
    coefs = [_coef_without(near, p, d, k) for k in range(len(parts))]
    means = {g: sum(part * c[g] for part, c in zip(parts, coefs, strict=True)) for g in sums.groups}
    found = _shifted(near, means)
    share = sum(part * _mean_label(sums, TREATMENT, k) for k, part in enumerate(parts))
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
