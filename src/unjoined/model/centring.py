r"""Centring: labels less what their features predict of them, in either population.

With :math:`s = \pm 1` marking the population and equal feature laws, :math:`E[s\,m(x)\,g(x)] = 0`
for any functions m and g. So :math:`y - m(x)` and :math:`t - q(x)` may stand for y and t in the
min-max problem: A and b keep their expectations and lose variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import pinvh
from sklearn.base import is_classifier

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import KINDS, OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.accumulate import accumulate, combine
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis, weighted_quantile
from unjoined.model.draw import draw_basis
from unjoined.model.moments import MomentSums
from unjoined.model.regressors import fit_weighted, seeded_clone

N_FOLDS = 5
CROSS_FIT_ROWS = (
    100_000  # above, means and all else that comes before sums is fitted to a sample
)
SAMPLE_ROWS = 20_000
PENALTIES = np.logspace(-6.0, 2.0, 17)  # per row
# Counting each degree of freedom 1.4 times keeps generalised cross-validation from the rough
# fits it now and then chooses (Kim and Gu, 2004).
INFLATION = 1.4
ROWS_PER_FREE = 10  # rows per feature from which on the linear part is not penalised
GROSS = 6.0  # standard deviations beyond which an outcome is gross
CELLS = ((OUTCOME, 0), (OUTCOME, 1), (TREATMENT, 0), (TREATMENT, 1))
# Maps features (n, d), on so many threads, to the mean labels of the four cells (n, 4).
Means: TypeAlias = Callable[[Array, int | None], Array]


@dataclass(frozen=True, slots=True)
class SmoothMeans:
    """Four conditional means by ridge regression on one basis.

    Those of two-valued labels are kept between the two. Those of real labels are not: a bound
    would move with a function added to the label, and centring is to be blind to it.
    """

    basis: ScaledBasis
    coef: Array  # (p, 4)
    offset: Array  # (4,) added to the products
    is_binary: bool  # whether outcomes are -1 and +1, as treatments are

    def __call__(self, X: Array, n_jobs: int | None = None) -> Array:
        """Return the means at features as they came (n, d), shape (n, 4)."""
        means = combine(self.basis, self.coef, X, n_jobs=n_jobs)
        means += self.offset
        two_valued = means if self.is_binary else means[:, 2:]
        np.clip(two_valued, -1.0, 1.0, out=two_valued)
        return means


@dataclass(frozen=True, slots=True)
class ModelMeans:
    """Four conditional means by fitted scikit-learn regressors."""

    scaling: Scaling
    models: tuple[Any, ...]  # four

    def __call__(self, X: Array, n_jobs: int | None = None) -> Array:
        """Return the means at features as they came (n, d), shape (n, 4)."""
        Z = self.scaling(X)
        return np.column_stack(
            [
                np.asarray(model.predict(Z), dtype=np.float64).ravel()
                for model in self.models
            ]
        )


def check_center(center: Any) -> None:
    """Refuse what is neither a switch nor a regressor."""
    if isinstance(center, bool):
        return
    if isinstance(center, type) or not (
        hasattr(center, "fit") and hasattr(center, "predict")
    ):
        raise InputError(
            f"center must be True, False or a scikit-learn regressor, got {center!r}. True uses "
            "ridge regression on a smooth basis."
        )
    if is_classifier(center):
        raise InputError(
            f"center needs a regressor, for the treatment as for the outcome, and "
            f"{type(center).__name__} is a classifier. Pass the regressor of the same kind."
        )


def deal_folds(rows: LabelledRows, rng: Rng, n_folds: int = N_FOLDS) -> IntArray:
    """Deal the rows of each cell evenly into folds; fewer folds if a cell has fewer rows."""
    cells = rows.all_cells()
    m = len(rows.names)
    fewest, code = min((len(at), code) for code, at in enumerate(cells))
    if fewest < 2:
        raise InputError(
            "centring and the choice of ridges and width hold rows out in turn and need two rows "
            f"or more in every table, but the {KINDS[code // m]} table of population "
            f"{rows.names[code % m]!r} has "
            f"{fewest} (n_samples={len(rows.X)} in all). Give more rows, or pass center=False and "
            "numbers for ridge_f, ridge_g and width."
        )
    return rows.deal(min(n_folds, fewest), rng)


def subtract_means(
    rows: LabelledRows,
    means: Sequence[Means],
    fold: IntArray | None,
    *,
    n_jobs: int | None = None,
) -> tuple[Array, Array]:
    r"""Return centred labels and the policy gap :math:`e_1(x) - e_2(x)`, shape (n,) each.

    Subtracted are the averages of the two populations' means, of outcomes and of treatments. Each
    fold has the means fitted without it; or all rows have the same.
    """
    label = rows.label.copy()
    gap = np.empty(len(rows))
    for j, mean in enumerate(means):
        at = (
            np.arange(len(rows))
            if fold is None or len(means) == 1
            else np.flatnonzero(fold == j)
        )
        cells = mean(rows.X[at], n_jobs)
        m = (cells[:, 0] + cells[:, 1]) / 2.0
        q = (cells[:, 2] + cells[:, 3]) / 2.0
        label[at] -= np.where(rows.is_outcome[at], m, q)
        gap[at] = (cells[:, 2] - cells[:, 3]) / 2.0
    return label, gap


def winsorized(rows: LabelledRows) -> LabelledRows:
    """Return the rows with outcomes no further than six robust spreads from their median.

    For means to be fitted to, not to be subtracted from: any m leaves the estimand as it is, but
    one that follows gross values would spread them over all rows.
    """
    outcome = rows.of_kind(OUTCOME)
    low, median, high = weighted_quantile(
        rows.label[outcome], rows.share[outcome], (0.25, 0.5, 0.75)
    )
    reach = GROSS * (high - low) / 1.349  # of a normal law, its standard deviation
    label = rows.label.copy()
    if (
        reach > 0.0
    ):  # else half of the outcomes are alike, and nothing says what is gross
        label[outcome] = np.clip(label[outcome], median - reach, median + reach)
    return replace(rows, label=label)


def cross_fit_means(
    rows: LabelledRows,
    fold: IntArray,
    rng: Rng,
    *,
    model: Any = None,
    n_jobs: int | None = None,
) -> list[Means]:
    """Return for each fold the means fitted without it; with one fold, on all rows.

    Without a ``model`` they are ridge regressions on a smooth basis drawn from the rows.
    """
    scaling = Scaling.of_rows(rows.X, rows.share)
    if model is None:
        return _smooth_means(rows, scaling, fold, rng, n_jobs)
    Z = scaling(rows.X)
    n_folds = int(fold.max()) + 1
    means: list[Means] = []
    for j in range(n_folds):
        models = []
        for kind, k in CELLS:
            at = rows.at(kind, k)
            at = at[fold[at] != j] if n_folds > 1 else at
            models.append(seeded_clone(model, rng))
            fit_weighted(models[-1], Z[at], rows.label[at], rows.weight[at])
        means.append(ModelMeans(scaling, tuple(models)))
    return means


def _smooth_means(
    rows: LabelledRows, scaling: Scaling, fold: IntArray, rng: Rng, n_jobs: int | None
) -> list[Means]:
    at: Any = slice(None)
    if len(rows.X) > SAMPLE_ROWS:
        at = rng.choice(len(rows.X), SAMPLE_ROWS, replace=False)
    Z = scaling(rows.X[at])
    weight = rows.relative[at]
    smooth = draw_basis(
        "smooth", Z, n_centers="auto", width="median", rng=rng, weight=weight
    )
    basis = ScaledBasis(smooth, scaling)
    # The mean is taken off first: sums of squares of labels far from 0 would cancel.
    offset = np.array([_mean(rows, kind) for kind, _ in CELLS])
    label = rows.label - np.where(rows.is_outcome, offset[0], offset[2])
    n_folds = int(fold.max()) + 1
    sums = accumulate(
        basis, basis.size, replace(rows, label=label), groups=fold, n_jobs=n_jobs
    )
    n_linear = (
        smooth.first.size - 1 if isinstance(smooth, StackedBasis) else smooth.n_features
    )
    means: list[Means] = []
    for j in range(n_folds):
        others = sums.without(j) if n_folds > 1 else sums
        coef = np.empty((basis.size, len(CELLS)))
        for c, (kind, k) in enumerate(CELLS):
            at = rows.at(kind, k)
            at = at[fold[at] != j] if n_folds > 1 else at
            square = float(rows.weight[at] @ label[at] ** 2)
            coef[:, c] = smooth_coef(others.total(kind, k), square, n_linear)
        means.append(SmoothMeans(basis, coef, offset, rows.coding.is_binary))
    return means


def _mean(rows: LabelledRows, kind: str) -> float:
    at = rows.of_kind(kind)
    first = rows.label[at[0]]
    # Distances from the first label, so that a constant added to all labels adds to the mean.
    return float(first + np.average(rows.label[at] - first, weights=rows.share[at]))


def smooth_coef(sums: MomentSums, square: float, n_features: int) -> Array:
    r"""Regress the label on a constant, the features (both free) and Gaussians (with a ridge).

    .. math::

        \min_{a, c} \; \sum_i r_i (l_i - a^\top (1, x_i) - c^\top \phi(x_i))^2 + \lambda \|c\|^2,

    with :math:`\lambda` from generalised cross-validation,
    :math:`RSS / (1 - 1.4\,\mathrm{df} / n)^2`, ``square`` being the weighted sum of squared labels.
    As the linear part is free, a linear function added to the labels adds to the fit and changes no
    residual. With fewer than ten rows per feature only the constant is free.
    """
    n = int(sums.n_rows)
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
        n = int(sums.n_rows)
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


def center_sums(
    sums: MomentSums, basis: Basis, contrasts: Array | None = None
) -> MomentSums:
    r"""Subtract from labels what the functions predict of them, when they are added up already.

    With :math:`m(x) = c^\top \phi(x)` the sums of :math:`(y - m) \phi` are those of
    :math:`y \phi` less the products of functions times c, exactly. What it takes for a function
    q(x) of treatments is not in the sums, but for a constant. As for rows, m is the average
    of the populations' regressions, each fitted without the group of rows it is subtracted from;
    the penalty is the one that predicts the labels of groups left out best. ``basis`` are the first
    of the functions of the sums: a constant and the features, then any others.
    """
    p, d = basis.size, basis.n_features
    parts = np.array([0.5, 0.5]) if contrasts is None else np.abs(contrasts[0]) / 2.0
    cells = sums.over_groups()
    outcome, treatment = (
        parts @ (cells.label_basis[..., 0] / cells.weight).T
    )  # mean labels
    start = np.zeros((sums.n_rows.shape[-1], p))
    start[:, 0] = (
        outcome  # else sums of labels far from 0 would cancel in the regressions
    )
    near = _shifted(sums, start)
    coefs = [_coef_without(near.first(p).at((0, k)), d) for k in range(len(parts))]
    centred = _shifted(near, np.tensordot(parts, np.array(coefs), axes=1))
    label = centred.label_basis.copy()
    cross = centred.label_cross.copy()
    label[1] -= treatment * sums.gram[1, ..., 0]
    cross[1] -= treatment * sums.gram[1]
    return replace(centred, label_basis=label, label_cross=cross)


def _shifted(sums: MomentSums, coef: Array) -> MomentSums:
    """Return the sums with outcomes less a combination of the first functions, (groups, p)."""
    label = sums.label_basis.copy()
    label[0] -= np.einsum("kgij,gj->kgi", sums.gram[0, ..., : coef.shape[1]], coef)
    return replace(sums, label_basis=label)


def _coef_without(own: MomentSums, n_features: int) -> Array:
    """Return for each group the regression of outcomes in the other groups, (groups, p)."""
    there = np.flatnonzero(own.n_rows)
    paths = []
    score = np.zeros(len(PENALTIES))
    for group in range(len(own.n_rows)):
        rest = there[there != group]
        rest = (
            rest if len(rest) else there
        )  # of one group alone nothing can be left out
        C = SmoothPath.of_sums(
            reduce(add, [own.at(other) for other in rest]), n_features
        ).coef()
        paths.append(C)
        if group in there and len(there) > 1:
            # Squared errors of the held-out labels, less the sum of their squares.
            gram = own.gram[group]
            label = own.label_basis[group]
            score += np.sum(C * (gram @ C - 2.0 * label[:, None]), axis=0)
    best = smoothest_best(score) if len(there) > 1 else -1
    return np.array([C[:, best] for C in paths])
