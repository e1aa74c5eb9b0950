"""Density ratios p_target(x) / p_cell(x), by a classifier that tells the two apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import solve
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from unjoined._typing import Array, IntArray
from unjoined.data.rows import deal_rows
from unjoined.model.basis import Scaling
from unjoined.model.regressors import (
    cross_fit_additive_means,
    fit_weighted,
    seeded_clone,
)

N_FOLDS = 5
# Standard deviations at which the default classifier cuts features: a curve goes on rising where
# there are hardly any rows, and with skewed features a few of them would get all of the weight.
CUT = 2.5


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """An estimate of p_target(x) / p_cell(x) at the rows of one cell.

    The mean of the ratio over the cell estimates the share of the target's mass that lies where
    the cell has rows: 1 if it covers the target, less if the target goes where the cell has not
    been.
    """

    ratio: Array  # (n,) not negative, not normalised; inf where a classifier was sure and wrong
    apart: tuple[
        int, ...
    ]  # which parts of the target (0 if there is one) lie apart from the cell


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
    propensity, weights = _held_out_propensities(
        [target, cell], [target_weight, weight], model, n_folds, rng
    )
    at_target, at_cell = propensity
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
    propensity, clean = _held_out_propensities(cells, given, model, n_folds, rng)
    total = sum(float(w.sum()) for w in clean)
    every = np.concatenate(clean)
    functions = _to_balance(np.concatenate(cells), every) if model is None else None
    of_cell = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    estimates = []
    for k, at_cell in enumerate(propensity):
        with np.errstate(divide="ignore"):
            ratio = float(clean[k].sum()) / total / at_cell[:, k]
        apart = tuple(
            c
            for c, at_other in enumerate(propensity)
            if c != k
            and _odds_share(at_cell, c, k).max() < _odds_share(at_other, c, k).min()
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
    penalty = float(
        np.exp(2.0 * log_share).sum()
    )  # one over the effective number of rows
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
    found = minimize(
        value, start, jac=True, hess=curvature, method="trust-exact", tol=1e-9
    )
    # One more step of Newton's, so that the order of rows changes no digit that matters.
    tilt = found.x - solve(curvature(found.x), value(found.x)[1], assume_a="pos")
    exponent = away @ tilt
    return np.asarray(ratio * np.exp(exponent - float(logsumexp(log_share + exponent))))


def _to_balance(X: Array, weight: Array) -> Array:
    """Return the functions whose means are balanced: features and their squares, cut."""
    Z = np.clip(Scaling.of_rows(X, weight)(X), -CUT, CUT)
    return np.hstack([Z, Z**2])


def _odds_share(propensity: Array, c: int, k: int) -> Array:
    """Return P(c | x, c or k); one half where a classifier excludes both."""
    both = propensity[:, c] + propensity[:, k]
    half = np.full(len(propensity), 0.5)
    return np.asarray(np.divide(propensity[:, c], both, out=half, where=both > 0.0))


def _held_out_propensities(
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
    X = np.concatenate(parts)
    weight = np.concatenate(clean)
    part = np.repeat(np.arange(len(parts)), sizes)
    # Sorted, so that the order rows come in does not matter; then shuffled, as a model may cut
    # its rows into folds of its own without shuffling them.
    order = np.lexsort((weight, *X.T[::-1], part))[rng.permutation(len(X))]
    X = X[order]
    weight = weight[order] / weight.mean()
    part = part[order]
    Z = Scaling.of_rows(X, weight)(X)
    fold = np.empty(len(X), dtype=np.int64)
    for k, n in enumerate(sizes):
        fold[part == k] = deal_rows(n, n_folds, rng)
    if model is None:
        propensity = _additive_propensities(
            np.clip(Z, -CUT, CUT), part, weight, fold, rng
        )
    else:
        propensity = np.empty((len(X), len(parts)))
        for j in range(n_folds):
            held = fold == j
            fitted = seeded_clone(model, rng)
            fit_weighted(fitted, Z[~held], part[~held], weight[~held])
            propensity[held] = fitted.predict_proba(Z[held])
    unsorted = np.empty_like(propensity)
    unsorted[order] = propensity
    return np.split(unsorted, np.cumsum(sizes)[:-1]), clean


def _additive_propensities(
    Z: Array, part: IntArray, weight: Array, fold: IntArray, rng: Rng
) -> Array:
    """Return P(part | x) by additive models of each part against the others, not seen by them.

    Odds are used as they are. Platt's sigmoid on top shrinks them, and so leaves part of the shift
    where it was; an isotonic fit can make them infinite.
    """
    n_parts = int(part.max()) + 1
    propensity = np.empty((len(Z), n_parts))
    for k in range(n_parts if n_parts > 2 else 1):
        label = (part == k).astype(np.float64)
        models = cross_fit_additive_means(Z, label, weight, fold, n_jobs=None, rng=rng)
        for j, model in enumerate(models):
            propensity[fold == j, k] = model(Z[fold == j])
    if n_parts == 2:
        propensity[:, 1] = 1.0 - propensity[:, 0]
    return np.asarray(propensity / propensity.sum(axis=1, keepdims=True))


def filled(weight: Array | None, n: int) -> Array:
    """Return the weights, or ones if there are none."""
    return np.ones(n) if weight is None else weight
