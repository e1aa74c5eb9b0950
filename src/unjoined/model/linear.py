"""Policies, mean outcome and effect by ridge regression: quick, for averages beside other fits."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.linalg import solve

from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.model.basis import Scaling
from unjoined.model.crossfit import CLIP, EffectNuisances

MOST_FEATURES = (
    50  # beyond, those that go along with the labels of the other folds most
)
MOST_SQUARES = 20  # features up to which squares are among the functions
REACH = 3.0  # standard deviations that a feature is kept within
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # per row of weight 1, functions being of variance 1
EFFECT_RIDGES = (
    1e-2,
    1e-1,
    1.0,
    10.0,
)  # the same, times the mean square of the policies' gap
FREE = 1e-8


def cross_fit_linear(rows: LabelledRows, fold: IntArray) -> EffectNuisances:
    """Fit policies, base and effect by ridge regression, all of them without each fold in turn.

    Functions are a constant, the features and, of at most twenty, their squares. Ridges are
    those of the least held-out squared error. Costs O(n p^2) with p functions for each fold: some
    milliseconds where additive models take a second, for averages that are wider by a little.
    """
    n = len(rows.label)
    K = len(rows.names)
    n_folds = int(fold.max()) + 1
    Z = np.clip(Scaling.of_rows(rows.X, rows.share)(rows.X), -REACH, REACH)
    designs = [_design(Z, rows, fold != j) for j in range(n_folds)]
    propensities = [np.empty((n, K)) for _ in designs]
    for k in range(K):
        coefs = _policy_without(designs, rows, fold, k)
        for propensity, B, coef in zip(propensities, designs, coefs, strict=True):
            propensity[:, k] = rows.coding.as_policy(B @ coef, CLIP)
    policies = np.empty((n, K))
    mean = np.empty(n)
    effect = np.empty(n)
    at = rows.of_kind(OUTCOME)
    exposures = []
    for propensity in propensities:
        exposure = propensity[at, rows.population[at]]
        if rows.exposure is not None:
            known = rows.exposure[at]
            exposure = np.where(np.isnan(known), exposure, known)
        exposures.append((exposure - propensity[at].mean(axis=1))[:, None])
    for j, coef in enumerate(_outcome_without(designs, rows, fold, exposures)):
        at = fold == j
        p = designs[j].shape[1]
        policies[at] = propensities[j][at]
        mean[at], effect[at] = designs[j][at] @ coef[:p], designs[j][at] @ coef[p:]
    if rows.coding.is_binary:  # coded -1/+1, whose means lie between
        mean = np.clip(mean, -1.0, 1.0)
        effect = np.clip(effect, -2.0, 2.0)
    return EffectNuisances(policies, mean, effect)


def cross_fit_effects(rows: LabelledRows, fold: IntArray, exposures: Array) -> Array:
    """Return the effects of several exposures at all rows by ridge regression, (n, J).

    ``exposures`` (n, J) are those of the rows; each row's effects are fitted without its fold, all
    of them together with the base.
    """
    Z = np.clip(Scaling.of_rows(rows.X, rows.share)(rows.X), -REACH, REACH)
    designs = [_design(Z, rows, fold != j) for j in range(int(fold.max()) + 1)]
    own = [exposures[rows.of_kind(OUTCOME)]] * len(designs)
    effects = np.empty(exposures.shape)
    for j, coef in enumerate(_outcome_without(designs, rows, fold, own)):
        at = fold == j
        p = designs[j].shape[1]
        effects[at] = designs[j][at] @ coef[p:].reshape(-1, p).T
    return effects


def _design(Z: Array, rows: LabelledRows, seen: BoolArray) -> Array:
    """Return the functions at all rows, chosen by the labels of some."""
    d = Z.shape[1]
    if d > MOST_FEATURES:
        score = np.zeros(d)
        for cell in rows.all_cells():
            at = cell[seen[cell]]
            if len(at) > 1:
                apart = rows.label[at] - rows.label[at].mean()
                pull = np.abs(apart @ Z[at]) / np.sqrt(max(apart @ apart, 1e-300))
                score = np.maximum(score, pull)
        Z = Z[:, np.sort(np.argsort(-score, kind="stable")[:MOST_FEATURES])]
    parts = [np.ones((len(Z), 1)), Z]
    if d <= MOST_SQUARES:
        parts.append((Z**2 - 1.0) / np.sqrt(2.0))
    return np.hstack(parts)


def _policy_without(
    designs: list[Array], rows: LabelledRows, fold: IntArray, k: int
) -> list[Array]:
    """Return coefficients of one population's policy, from each fold's other rows."""
    at = rows.at(TREATMENT, k)
    penalties = [
        np.repeat(np.array(RIDGES)[:, None], B.shape[1], axis=1) for B in designs
    ]
    for penalty in penalties:
        penalty[:, 0] = FREE
    t = 0.5 + 0.5 * rows.label[at]
    return _ridge_without(
        [B[at] for B in designs], t, rows.weight[at], fold[at], penalties
    )


def _outcome_without(
    designs: list[Array], rows: LabelledRows, fold: IntArray, exposures: list[Array]
) -> list[Array]:
    """Return coefficients of base, then effects, from the other outcome rows of each fold.

    For each fold there are a design and the exposures (n, J) of the outcome rows.
    """
    at = rows.of_kind(OUTCOME)
    weight = rows.weight[at]
    center = float(np.average(rows.label[at], weights=weight))
    spread = float(np.sqrt(np.average((rows.label[at] - center) ** 2, weights=weight)))
    pairs = list(product(RIDGES[:3], EFFECT_RIDGES))
    products, penalties = [], []
    for B, exposure in zip(designs, exposures, strict=True):
        p = B.shape[1]
        gaps = np.average(exposure**2, weights=weight, axis=0)
        penalty = np.array(
            [np.repeat([base, *(effect * gaps + FREE)], p) for base, effect in pairs]
        )
        penalty[:, 0] = FREE
        penalty[:, p::p] = 1e-3 * gaps + FREE
        parts = [B[at] * each[:, None] for each in exposure.T]
        products.append(np.hstack([B[at], *parts]))
        penalties.append(penalty)
    y = (rows.label[at] - center) / spread
    coefs = [
        spread * c for c in _ridge_without(products, y, weight, fold[at], penalties)
    ]
    for coef in coefs:
        coef[0] += center
    return coefs


def _ridge_without(
    designs: list[Array],
    label: Array,
    weight: Array,
    fold: IntArray,
    penalties: list[Array],
) -> list[Array]:
    """Return the fits without each fold, with the penalty of the least loss at held-out rows.

    Each fold has its own design and its own penalties, in the same order.
    """
    fits, loss = [], 0.0
    for j, (D, penalty) in enumerate(zip(designs, penalties, strict=True)):
        held_out = fold == j
        rest = ~held_out if not held_out.all() else held_out
        w = weight[rest] / weight[rest].sum()
        gram = (D[rest].T * w) @ D[rest]
        right = (w * label[rest]) @ D[rest]
        coefs = np.array(
            [solve(gram + np.diag(own), right, assume_a="pos") for own in penalty]
        )
        error = label[held_out, None] - D[held_out] @ coefs.T
        loss = loss + weight[held_out] @ error**2
        fits.append(coefs)
    best = int(np.argmin(loss))
    return [coefs[best] for coefs in fits]
