r"""Centring: labels less what their features predict of them, in either population.

With :math:`s = \pm 1` marking the population and equal feature laws, :math:`E[s\,m(x)\,g(x)] = 0`
for any functions m and g. So :math:`y - m(x)` and :math:`t - q(x)` may stand for y and t in the
min-max problem: A and b keep their expectations and lose variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import pinvh
from sklearn.base import is_classifier

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import KINDS, OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis, weighted_quantile
from unjoined.model.draw import draw_basis
from unjoined.model.moments import GroupedSums, MomentSums
from unjoined.model.plan import CELLS, Centring, SmoothMeans, by_chunks
from unjoined.model.regressors import deal_rows, fit_weighted, seeded_clone

N_FOLDS = 5
CROSS_FIT_ROWS = 100_000  # above, means and all else that comes before sums is fitted to a sample
SAMPLE_ROWS = 20_000
PENALTIES = np.logspace(-6.0, 2.0, 17)  # per row
# Counting each degree of freedom 1.4 times keeps generalised cross-validation from the rough
# fits it now and then chooses (Kim and Gu, 2004).
INFLATION = 1.4
ROWS_PER_FREE = 10  # rows per feature from which on the linear part is not penalised
GROSS = 6.0  # standard deviations beyond which an outcome is gross


@dataclass(frozen=True, slots=True)
class ModelMeans:
    """Four conditional means by fitted scikit-learn regressors."""

    models: tuple[Any, ...]  # four

    def __call__(self, Z: Array) -> Array:
        """Return the means at scaled features (n, d), one column per cell, shape (n, 4)."""
        return np.column_stack(
            [np.asarray(model.predict(Z), dtype=np.float64).ravel() for model in self.models]
        )


def check_center(center: Any) -> None:
    """Refuse what is neither a switch nor a regressor."""
    if isinstance(center, bool):
        return
    if isinstance(center, type) or not (hasattr(center, "fit") and hasattr(center, "predict")):
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
    cells, m = rows.all_cells(), len(rows.names)
    fewest, code = min((len(at), code) for code, at in enumerate(cells))
    if fewest < 2:
        raise InputError(
            "centring and the choice of ridges and width hold rows out in turn and need two rows "
            f"or more in every table, but the {KINDS[code // m]} table of population "
            f"{rows.names[code % m]!r} has "
            f"{fewest} (n_samples={len(rows.X)} in all). Give more rows, or pass center=False and "
            "numbers for ridge_f, ridge_g and width."
        )
    fold = np.empty(len(rows.label), dtype=np.int64)
    for at in cells:
        fold[at] = deal_rows(len(at), min(n_folds, fewest), rng)
    return fold


def subtract_means(
    rows: LabelledRows, parts: list[tuple[Centring, IntArray]], *, n_jobs: int | None = None
) -> tuple[Array, Array]:
    """Return centred labels and the policy gap, each pair (m, q) at its rows."""
    label, gap = rows.label.copy(), np.empty(len(rows.label))
    outcome = rows.is_outcome
    for centring, at in parts:
        m, q, gap[at] = by_chunks(centring, rows.X, at, n_jobs)
        label[at] -= np.where(outcome[at], m, q)
    return label, gap


def cut_down(rows: LabelledRows) -> LabelledRows:
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
    if reach > 0.0:  # else half of the outcomes are alike, and nothing says what is gross
        label[outcome] = np.clip(label[outcome], median - reach, median + reach)
    return replace(rows, label=label)


def cross_fit_centring(
    rows: LabelledRows,
    fold: IntArray,
    rng: Rng,
    *,
    model: Any = None,
    space: ScaledBasis | None = None,
    n_jobs: int | None = None,
) -> list[tuple[Centring, IntArray]]:
    """Return for each fold the pair fitted without it, and its rows; with one fold, on all.

    Without a ``model`` the means are on ``space``, linear functions first, or on a smooth basis
    drawn from the rows.
    """
    scaling = Scaling.of_rows(rows.X, rows.share) if space is None else space.scaling
    held = [np.flatnonzero(fold == j) for j in range(int(fold.max()) + 1)]
    basis = None if space is None else space.basis
    means = (
        _smooth_means(rows, basis, scaling, fold, rng, n_jobs)
        if model is None
        else _model_means(rows, scaling(rows.X), fold, rng, model)
    )
    return [(Centring(scaling, mean), at) for mean, at in zip(means, held, strict=True)]


def _model_means(
    rows: LabelledRows, Z: Array, fold: IntArray, rng: Rng, model: Any
) -> list[Callable[[Array], Array]]:
    n_folds = int(fold.max()) + 1
    found: list[Callable[[Array], Array]] = []
    for j in range(n_folds):
        models = []
        for kind, k in CELLS:
            at = rows.at(kind, k)
            at = at[fold[at] != j] if n_folds > 1 else at
            models.append(seeded_clone(model, rng))
            fit_weighted(models[-1], Z[at], rows.label[at], rows.weight[at])
        found.append(ModelMeans(tuple(models)))
    return found


def _smooth_means(
    rows: LabelledRows,
    basis: Basis | None,
    scaling: Scaling,
    fold: IntArray,
    rng: Rng,
    n_jobs: int | None,
) -> list[Callable[[Array], Array]]:
    if basis is None:
        at: Any = slice(None)
        if len(rows.X) > SAMPLE_ROWS:
            at = rng.choice(len(rows.X), SAMPLE_ROWS, replace=False)
        Z, weight = scaling(rows.X[at]), rows.relative[at]
        basis = draw_basis("smooth", Z, n_centers="auto", width="median", rng=rng, weight=weight)
    # The mean is taken off first: sums of squares of labels far from 0 would cancel.
    offset = np.array([_mean(rows, kind) for kind, _ in CELLS])
    label = rows.label - np.where(rows.is_outcome, offset[0], offset[2])
    shifted = replace(rows, label=label)
    sums = accumulate(ScaledBasis(basis, scaling), basis.size, shifted, groups=fold, n_jobs=n_jobs)
    reach = np.array([1.0 if rows.coding.is_binary else np.inf] * 2 + [1.0] * 2)
    found: list[Callable[[Array], Array]] = []
    n_folds = int(fold.max()) + 1
    n_linear = basis.first.size - 1 if isinstance(basis, StackedBasis) else basis.n_features
    for j in range(n_folds):
        used = fold != j if n_folds > 1 else np.full(len(fold), True)
        # Adding up the other folds loses no digits; subtracting this one from all would.
        others = {key: part for key, part in sums.cells.items() if n_folds == 1 or key.group != j}
        without = GroupedSums(basis.size, others)
        coef = np.empty((basis.size, 4))
        for c, (kind, k) in enumerate(CELLS):
            at = rows.at(kind, k)
            at = at[used[at]]
            square = float(rows.weight[at] @ label[at] ** 2)
            coef[:, c] = smooth_coef(without.total(kind, k), square, n_linear)
        found.append(SmoothMeans(basis, coef, offset, -reach, reach))
    return found


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
        paths[group] = C = SmoothPath.of_sums(reduce(add, rest), d).coef()
        if group in own and len(own) > 1:
            held = own[group]
            # Squared errors of the held-out labels, less the sum of their squares.
            score = score + np.sum(C * (held.gram @ C - 2.0 * held.label_basis[:, None]), axis=0)
    best = smoothest_best(np.asarray(score)) if len(own) > 1 else -1
    return {group: C[:, best] for group, C in paths.items()}
