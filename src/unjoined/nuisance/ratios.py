"""Density ratios p_target(x) / p_cell(x): by a classifier, or by least squares (RuLSIF)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import eigh, solve
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from unjoined._typing import Array, BoolArray, IntArray
from unjoined.basis import GaussianBasis, Scaling, median_width
from unjoined.nuisance.models import cross_fit_additive_means, deal_rows, fit_weighted, seeded_clone

N_FOLDS = 5
# Standard deviations at which the default classifier cuts features: a curve goes on rising where
# there are hardly any rows, and with skewed features a few of them would get all of the weight.
CUT = 2.5
N_CENTERS = 100  # of RuLSIF, as in its authors' experiments
# Multiples of the median distance between rows, and penalties: RuLSIF's cross-validation
# chooses among them. Kernel values lie between 0 and 1, so the penalties need no units.
WIDTH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# Below this share of the target's mass, the rows of the cell say nothing about the target.
NO_MASS = 0.01
CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """An estimate of p_target(x) / p_cell(x) at the rows of one cell.

    The mean of the ratio over the cell estimates the share of the target's mass that lies where
    the cell has rows: 1 if it covers the target, less if the target goes where the cell has not
    been.
    """

    ratio: Array  # (n,) not negative, not normalised; inf where a classifier was sure and wrong
    apart: tuple[int, ...]  # which parts of the target (0 if there is one) lie apart from the cell


def classifier_ratio(
    target: Array,
    cell: Array,
    *,
    model: Any = None,
    n_folds: int = N_FOLDS,
    rng: Rng,
    target_weight: Array | None = None,
    weight: Array | None = None,
) -> RatioEstimate:
    r"""Estimate the ratio by a classifier that tells target rows from rows of the cell.

    .. math::

        \frac{p(x)}{p_k(x)} = \frac{n_k}{n} \cdot
        \frac{P(\text{target} \mid x)}{P(\text{cell} \mid x)}

    No classifier weighs a row that it saw; both samples have ``n_folds`` rows or more. A given
    one gets standardised features and is taken at its word. By default additive models are used,
    as for policies, and their ratios are balanced, see `balance`. ``apart`` is ``(0,)`` if every
    target row is likelier to be one than every row of the cell. Rows are sorted before folds are
    dealt, so that their order does not matter.
    """
    chance, weights = _held_out_chances(
        [target, cell], [target_weight, weight], model, n_folds, rng
    )
    at_target, at_cell = chance
    totals = [float(w.sum()) for w in weights]
    with np.errstate(divide="ignore"):
        ratio = at_cell[:, 0] / at_cell[:, 1] * (totals[1] / totals[0])
    is_apart = bool(at_cell[:, 0].max() < at_target[:, 0].min())
    if model is None and not is_apart:
        functions = _to_balance(np.concatenate([target, cell]), np.concatenate(weights))
        wanted = np.average(functions[: len(target)], axis=0, weights=weights[0])
        ratio = balance(functions[len(target) :], weights[1], ratio, wanted)
    return RatioEstimate(ratio, (0,) if is_apart else ())


def pooled_classifier_ratios(
    cells: Sequence[Array],
    *,
    model: Any = None,
    n_folds: int = N_FOLDS,
    rng: Rng,
    weights: Sequence[Array | None] | None = None,
) -> list[RatioEstimate]:
    r"""Estimate, for every cell, the ratio of the pooled rows' density to its own.

    The pool is :math:`p = \sum_c \pi_c p_c` with the cells' shares :math:`\pi_c` of the weight, so
    that one classifier of the cells gives every ratio at once,

    .. math::

        \frac{p(x)}{p_k(x)} = \frac{\pi_k}{P(\text{cell} = k \mid x)} \ge \pi_k .

    The default tells each cell from all others, their chances are brought to the sum 1, and the
    ratios are balanced. ``apart`` lists the positions of the cells that a cell does not overlap.
    """
    given = [None] * len(cells) if weights is None else weights
    chance, clean = _held_out_chances(cells, given, model, n_folds, rng)
    total = sum(float(w.sum()) for w in clean)
    every = np.concatenate(clean)
    functions = _to_balance(np.concatenate(cells), every) if model is None else None
    of_cell = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    estimates = []
    for k, at_cell in enumerate(chance):
        with np.errstate(divide="ignore"):
            ratio = float(clean[k].sum()) / total / at_cell[:, k]
        apart = tuple(
            c
            for c, at_other in enumerate(chance)
            if c != k and _odds_share(at_cell, c, k).max() < _odds_share(at_other, c, k).min()
        )
        if functions is not None and not apart:
            wanted = np.average(functions, axis=0, weights=every)
            ratio = balance(functions[of_cell == k], clean[k], ratio, wanted)
        estimates.append(RatioEstimate(ratio, apart))
    return estimates


def balance(functions: Array, weight: Array, ratio: Array, wanted: Array) -> Array:
    r"""Tilt ratios until weighted means of functions are those of the target.

    .. math::

        r_i \propto \hat r_i \exp(\lambda^\top \varphi(x_i)) \quad \text{with} \quad
        \sum_i w_i r_i\, \varphi(x_i) / \sum_i w_i r_i = \bar\varphi - \lambda / m .

    Of all weights with such means they are the nearest to the first ones in relative entropy.
    (Hainmueller, Political Analysis 2012.) A careful classifier leaves part of a shift where it
    was, and chance leaves another; this takes away both. ``m`` is the effective number of rows:
    the prior with variance 1 on :math:`\lambda` keeps weights finite if the target's means lie
    beyond all rows of the cell. The mean of the ratios stays. Costs O(n p^2) for p functions, some
    ten times; ``functions`` are (n, p).
    """
    if not (np.isfinite(ratio).all() and ratio.any()):
        return ratio
    with np.errstate(divide="ignore"):
        log_share = np.log(weight * ratio) - np.log(weight @ ratio)
    penalty = float(np.exp(2.0 * log_share).sum())  # one over the effective number of rows
    away = functions - wanted

    def value(tilt: Array) -> tuple[float, Array]:
        exponent = log_share + away @ tilt
        gradient = softmax(exponent) @ away + penalty * tilt
        return float(logsumexp(exponent)) + 0.5 * penalty * float(tilt @ tilt), gradient

    def curvature(tilt: Array) -> Array:
        share = softmax(log_share + away @ tilt)
        mean = share @ away
        second = (away * share[:, None]).T @ away - np.outer(mean, mean)
        return np.asarray(second + penalty * np.eye(len(tilt)))

    start = np.zeros(away.shape[1])
    found = minimize(value, start, jac=True, hess=curvature, method="trust-exact", tol=1e-9)
    # One more step of Newton's, so that the order of rows changes no digit that matters.
    tilt = found.x - solve(curvature(found.x), value(found.x)[1], assume_a="pos")
    exponent = away @ tilt
    return np.asarray(ratio * np.exp(exponent - float(logsumexp(log_share + exponent))))


def _to_balance(X: Array, weight: Array) -> Array:
    """Return the functions whose means are balanced: features and their squares, cut."""
    Z = np.clip(Scaling.of_rows(X, weight)(X), -CUT, CUT)
    return np.hstack([Z, Z**2])


def _odds_share(chance: Array, c: int, k: int) -> Array:
    """Return P(c | x, c or k); one half where a classifier excludes both."""
    both = chance[:, c] + chance[:, k]
    half = np.full(len(chance), 0.5)
    return np.asarray(np.divide(chance[:, c], both, out=half, where=both > 0.0))


def _held_out_chances(
    parts: Sequence[Array],
    weights: Sequence[Array | None],
    model: Any,
    n_folds: int,
    rng: Rng,
) -> tuple[list[Array], list[Array]]:
    """Return P(part | x) at the rows of each part from models that did not see the row.

    Also returns the weights, ones where none were given.
    """
    sizes = [len(part) for part in parts]
    clean = [filled(weight, n) for weight, n in zip(weights, sizes, strict=True)]
    X, weight = np.concatenate(parts), np.concatenate(clean)
    part = np.repeat(np.arange(len(parts)), sizes)
    # Sorted, so that the order rows come in does not matter; then shuffled, as a model may cut
    # its rows into folds of its own without shuffling them.
    order = np.lexsort((weight, *X.T[::-1], part))[rng.permutation(len(X))]
    X, weight, part = X[order], weight[order] / weight.mean(), part[order]
    Z = Scaling.of_rows(X, weight)(X)
    fold = np.empty(len(X), dtype=np.int64)
    for k, n in enumerate(sizes):
        fold[part == k] = deal_rows(n, n_folds, rng)
    if model is None:
        chance = _additive_chances(np.clip(Z, -CUT, CUT), part, weight, fold, rng)
    else:
        chance = np.empty((len(X), len(parts)))
        for j in range(n_folds):
            held = fold == j
            fitted = seeded_clone(model, rng)
            fit_weighted(fitted, Z[~held], part[~held], weight[~held])
            chance[held] = fitted.predict_proba(Z[held])
    unsorted = np.empty_like(chance)
    unsorted[order] = chance
    return np.split(unsorted, np.cumsum(sizes)[:-1]), clean


def _additive_chances(Z: Array, part: IntArray, weight: Array, fold: IntArray, rng: Rng) -> Array:
    """Return P(part | x) by additive models of each part against the others, not seen by them.

    Odds are used as they are. Platt's sigmoid on top shrinks them, and so leaves part of the shift
    where it was; an isotonic fit can make them infinite.
    """
    n_parts = int(part.max()) + 1
    chance = np.empty((len(Z), n_parts))
    for k in range(n_parts if n_parts > 2 else 1):
        label = (part == k).astype(np.float64)
        models = cross_fit_additive_means(Z, label, weight, fold, n_jobs=None, rng=rng)
        for j, model in enumerate(models):
            chance[fold == j, k] = model(Z[fold == j])
    if n_parts == 2:
        chance[:, 1] = 1.0 - chance[:, 0]
    return np.asarray(chance / chance.sum(axis=1, keepdims=True))


def filled(weight: Array | None, n: int) -> Array:
    """Return the weights, or ones if there are none."""
    return np.ones(n) if weight is None else weight


@dataclass(frozen=True, slots=True)
class KernelRatio:
    r"""A combination of kernels that estimates :math:`p / p_k`."""

    basis: GaussianBasis  # on standardised features
    scaling: Scaling
    theta: Array  # (b,) coefficients
    ridge: float
    is_apart: bool  # every held-out target row got a higher ratio than every held-out cell row

    def __call__(self, X: Array) -> Array:
        """Return the ratio at each row, negative values of the fit set to 0."""
        values = [self.basis(self.scaling(X[s])) @ self.theta for s in _chunks(len(X))]
        return np.maximum(np.concatenate(values), 0.0) if values else np.empty(0)


def rulsif_ratio(
    target: Array,
    cell: Array,
    *,
    n_folds: int = N_FOLDS,
    rng: Rng,
    target_weight: Array | None = None,
    weight: Array | None = None,
) -> RatioEstimate:
    """Estimate the ratio at the rows of the cell by RuLSIF, see `fit_kernel_ratio`.

    ``apart`` is ``(0,)`` if held-out target rows all get higher ratios than those of the cell, or
    if the cell covers less than 1 % of the target's mass.
    """
    weights = filled(target_weight, len(target)), filled(weight, len(cell))
    fitted = fit_kernel_ratio(target, cell, *weights, n_folds=n_folds, rng=rng)
    ratio = fitted(cell)
    is_apart = fitted.is_apart or np.average(ratio, weights=weight) < NO_MASS
    return RatioEstimate(ratio, (0,) if is_apart else ())


def fit_kernel_ratio(
    target: Array, cell: Array, target_weight: Array, weight: Array, *, n_folds: int, rng: Rng
) -> KernelRatio:
    r"""Fit the ratio by least squares in closed form: RuLSIF, whose relative part is 0 here.

    With Gaussian kernels :math:`K` around target rows, :math:`r = K^\top \theta` minimises the
    squared distance to :math:`p / p_k`, up to a constant

    .. math::

        J(\theta) = \tfrac12 \theta^\top H \theta - h^\top \theta, \qquad
        H = E_k[K K^\top], \quad h = E_p[K],

    so that :math:`\theta = (H + \lambda I)^{-1} h`. Width and :math:`\lambda` are those with the
    smallest :math:`J` on held-out folds. Costs O((n + n_k) b^2) for each of five widths and at most
    b = 100 centres; the order of rows does not matter. (Yamada, Suzuki, Kanamori, Hachiya and
    Sugiyama, Neural Computation 2013.)
    """
    X = np.concatenate([target, cell])
    part = np.repeat([0, 1], [len(target), len(cell)])
    row_weight = np.concatenate([target_weight, weight])
    order = np.lexsort((row_weight, *X.T[::-1], part))
    X, row_weight = X[order], row_weight[order]
    for k in (0, 1):
        row_weight[part == k] /= row_weight[part == k].sum()
    scaling = Scaling.of_rows(X, row_weight)
    Z = scaling(X)
    width = median_width(Z, rng, row_weight)
    centers = Z[np.sort(rng.choice(len(target), min(N_CENTERS, len(target)), replace=False))]
    # Two samples by n_folds folds: rows of sample k and fold j make group k * n_folds + j.
    group = np.concatenate(
        [deal_rows(len(target), n_folds, rng), deal_rows(len(cell), n_folds, rng)]
    )
    group += n_folds * part
    bases = [GaussianBasis(centers, factor * width) for factor in WIDTH_FACTORS]
    sums = [_kernel_sums(basis, Z, row_weight, group, n_folds) for basis in bases]
    scores = np.array([_held_out_scores(each) for each in sums])  # (widths, ridges)
    i, j = np.unravel_index(int(np.argmin(scores)), scores.shape)
    H, h = sums[i].system(np.ones(n_folds, dtype=bool))
    unseen = _held_out_values(bases[i], Z, sums[i], int(j), group % n_folds)
    is_apart = bool(unseen[part == 1].max() < unseen[part == 0].min())
    return KernelRatio(bases[i], scaling, _solve(H, h)[j], RIDGES[j], is_apart)


@dataclass(frozen=True, slots=True)
class _KernelSums:
    """Sums over the rows of each fold, of the target and of the cell."""

    weight: Array  # (2, n_folds) of the target, and of the cell
    mean: Array  # (n_folds, b) of the target: sum of w K
    gram: Array  # (n_folds, b, b) of the cell: sum of w K K^T

    def system(self, folds: BoolArray) -> tuple[Array, Array]:
        """Return H and h over some of the folds."""
        H = self.gram[folds].sum(axis=0) / self.weight[1, folds].sum()
        return H, self.mean[folds].sum(axis=0) / self.weight[0, folds].sum()


def _kernel_sums(
    basis: GaussianBasis, Z: Array, weight: Array, group: IntArray, n_folds: int
) -> _KernelSums:
    b = basis.size
    total, mean, gram = np.zeros(2 * n_folds), np.zeros((n_folds, b)), np.zeros((n_folds, b, b))
    for g in range(2 * n_folds):
        rows = np.flatnonzero(group == g)
        total[g] = weight[rows].sum()
        for chunk in _chunks(len(rows)):
            at = rows[chunk]
            K = basis(Z[at])
            if g < n_folds:
                mean[g] += weight[at] @ K
                continue
            K *= np.sqrt(weight[at])[:, None]
            gram[g - n_folds] += K.T @ K
    return _KernelSums(total.reshape(2, n_folds), mean, gram)


def _held_out_scores(sums: _KernelSums) -> Array:
    """Return J for every ridge, averaged over folds that theta was not fitted to."""
    n_folds = len(sums.mean)
    scores = np.zeros(len(RIDGES))
    for j in range(n_folds):
        held = np.arange(n_folds) == j
        theta = _solve(*sums.system(~held))  # (ridges, b)
        H, h = sums.system(held)
        scores += 0.5 * np.einsum("ri,ij,rj->r", theta, H, theta) - theta @ h
    return scores / n_folds


def _held_out_values(
    basis: GaussianBasis, Z: Array, sums: _KernelSums, ridge: int, fold: IntArray
) -> Array:
    """Return the fit at every row from coefficients of the other folds."""
    values = np.empty(len(Z))
    for j in range(len(sums.mean)):
        theta = _solve(*sums.system(np.arange(len(sums.mean)) != j))[ridge]
        rows = np.flatnonzero(fold == j)
        for chunk in _chunks(len(rows)):
            values[rows[chunk]] = basis(Z[rows[chunk]]) @ theta
    return values


def _solve(H: Array, h: Array) -> Array:
    """Return (H + ridge I)^-1 h for every ridge, one row each, from one factorisation."""
    values, vectors = eigh(H)
    shrunk = (vectors.T @ h) / (np.maximum(values, 0.0) + np.array(RIDGES)[:, None])
    return np.asarray(shrunk @ vectors.T)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK_ROWS):
        yield slice(start, start + CHUNK_ROWS)
