"""Density ratios p_target(x) / p_cell(x) at the rows of a cell, by a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from unjoined._typing import Array, IntArray
from unjoined.features._models import fit_weighted, seeded_clone
from unjoined.features._scaling import Scaling

__all__ = [
    "RatioEstimate",
    "classifier_ratio",
    "deal_folds",
    "filled",
    "pooled_classifier_ratios",
    "ratio_classifier",
]

N_FOLDS = 5
CUT = 2.5  # standard deviations, of the default classifier's features


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """An estimate of p_target(x) / p_cell(x) at the rows of one cell.

    The mean of the ratio over the cell estimates the share of the target's mass that lies where
    the cell has rows: 1 if it covers the target, less if the target goes where the cell has not
    been.
    """

    ratio: Array  # (n,) not negative, not normalised; inf where a classifier was sure and wrong
    apart: tuple[int, ...]  # which parts of the target (0 if there is one) lie apart from the cell


def ratio_classifier() -> Pipeline:
    """Return the default classifier: logistic regression on the features and their squares.

    Exact for Gaussians with uncorrelated features or equal covariances, whose log ratio is such a
    function. Standardised features are cut at +-2.5 first: a square goes on rising where there
    are hardly any rows, and with skewed features a few of them would get all of the weight.

    Its odds are used as they are. Platt's sigmoid on top shrinks them, and so leaves part of the
    shift where it was; an isotonic fit can make them infinite.
    """
    return make_pipeline(
        FunctionTransformer(_with_squares), StandardScaler(), LogisticRegression(max_iter=1000)
    )


def _with_squares(Z: Array) -> Array:
    bounded = np.clip(Z, -CUT, CUT)
    return np.hstack([bounded, bounded**2])


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

    Parameters
    ----------
    target, cell : arrays of shape (n, d) and (n_k, d)
        Rows of the two samples; trusted. At least ``n_folds`` each.
    model : scikit-learn classifier with ``predict_proba``, optional
        Cloned; gets standardised features. `ratio_classifier` by default.
    n_folds : int, default=5
        Folds of the cross-fitting: no row is weighted by a model that saw it.
    rng : RandomState
        Deals the folds, and seeds models whose ``random_state`` is None.
    target_weight, weight : arrays of shape (n,) and (n_k,), optional
        Positive row weights; the densities are then those of the weighted rows.

    Returns
    -------
    RatioEstimate
        At the rows of the cell. ``apart`` is ``(0,)`` if the classifier, on rows it has not
        seen, gives every target row a higher chance of being one than every row of the cell.

    Notes
    -----
    Costs ``n_folds`` fits. Rows are sorted before folds are dealt, so that the order they come
    in has no bearing on the result; only rows with equal features may swap their weights.

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> target, cell = rng.normal(0.5, 1.0, (4000, 1)), rng.normal(0.0, 1.0, (4000, 1))
    >>> ratio = classifier_ratio(target, cell, rng=rng).ratio
    >>> truth = np.exp(0.5 * cell[:, 0] - 0.125)
    >>> bool(np.mean((ratio / truth - 1.0) ** 2) < 0.01)
    True
    """
    chance, weights = _held_out_chances(
        [target, cell], [target_weight, weight], model, n_folds, rng
    )
    at_target, at_cell = chance
    totals = [float(w.sum()) for w in weights]
    with np.errstate(divide="ignore"):
        ratio = at_cell[:, 0] / at_cell[:, 1] * (totals[1] / totals[0])
    is_apart = at_cell[:, 0].max() < at_target[:, 0].min()
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

    The pool is :math:`p = \sum_c \pi_c p_c` with the cells' shares :math:`\pi_c` of the rows (of
    their weight), so that one classifier of the cells gives every ratio at once,

    .. math::

        \frac{p(x)}{p_k(x)} = \frac{\pi_k}{P(\text{cell} = k \mid x)} \ge \pi_k .

    Parameters
    ----------
    cells : sequence of arrays of shape (n_k, d)
        Rows of each cell; trusted. At least ``n_folds`` each.
    model, n_folds, rng
        As in `classifier_ratio`; the classifier tells as many classes as there are cells.
    weights : sequence of arrays of shape (n_k,) or None, optional
        Positive row weights of each cell.

    Returns
    -------
    list of RatioEstimate
        One per cell; ``apart`` lists the positions in ``cells`` of those it does not overlap.
    """
    given = [None] * len(cells) if weights is None else weights
    chance, clean = _held_out_chances(cells, given, model, n_folds, rng)
    total = sum(float(w.sum()) for w in clean)
    estimates = []
    for k, at_cell in enumerate(chance):
        with np.errstate(divide="ignore"):
            ratio = float(clean[k].sum()) / total / at_cell[:, k]
        apart = tuple(
            c
            for c, at_other in enumerate(chance)
            if c != k and _odds_share(at_cell, c, k).max() < _odds_share(at_other, c, k).min()
        )
        estimates.append(RatioEstimate(ratio, apart))
    return estimates


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
        fold[part == k] = deal_folds(n, n_folds, rng)
    chance = np.empty((len(X), len(parts)))
    for j in range(n_folds):
        held = fold == j
        fitted = seeded_clone(ratio_classifier() if model is None else model, rng)
        fit_weighted(fitted, Z[~held], part[~held], weight[~held])
        chance[held] = fitted.predict_proba(Z[held])
    unsorted = np.empty_like(chance)
    unsorted[order] = chance
    return np.split(unsorted, np.cumsum(sizes)[:-1]), clean


def deal_folds(n: int, n_folds: int, rng: Rng) -> IntArray:
    """Return a fold for each of ``n`` rows, all folds of the same size to one row."""
    return np.asarray(rng.permutation(np.resize(np.arange(n_folds), n)), dtype=np.int64)


def filled(weight: Array | None, n: int) -> Array:
    """Return the weights, or ones if there are none."""
    return np.ones(n) if weight is None else weight
