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

MOST_FEATURES = 50  # beyond, those that go along with the labels of the other folds most
MOST_SQUARES = 20  # features up to which squares are among the functions
REACH = 3.0  # standard deviations that a feature is kept within
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # per row of weight 1, functions being of variance 1
EFFECT_RIDGES = (1e-2, 1e-1, 1.0, 10.0)  # the same, times the mean square of the policies' gap
FREE = 1e-8
N_FOLDS = 5


def cross_fit_linear(rows: LabelledRows, fold: IntArray) -> EffectNuisances:
    """Fit policies, base and effect by ridge regression, all of them without each fold in turn.

    Functions are a constant, the features and, of at most twenty, their squares. Ridges are
    those of the least held-out squared error. Costs O(n p^2) with p functions for each fold: some
    milliseconds where additive models take a second, for averages that are wider by a little.
    """
    n, K, n_folds = len(rows.label), len(rows.names), int(fold.max()) + 1
    Z = np.clip(Scaling.of_rows(rows.X, rows.share)(rows.X), -REACH, REACH)
    policies, mean, effect = np.empty((n, K)), np.empty(n), np.empty(n)
    designs = [_design(Z, rows, fold != j) for j in range(n_folds)]
    each = [_policies_without(designs, rows, fold, k) for k in range(K)]
    chances = [np.column_stack([each[k][j] for k in range(K)]) for j in range(n_folds)]
    fits = _outcomes_without(designs, rows, fold, chances)
    for j in range(n_folds):
        at, p = fold == j, designs[j].shape[1]
        policies[at] = chances[j][at]
        mean[at], effect[at] = designs[j][at] @ fits[j][:p], designs[j][at] @ fits[j][p:]
    if rows.coding.is_binary:  # coded -1/+1, whose means lie between
        mean, effect = np.clip(mean, -1.0, 1.0), np.clip(effect, -2.0, 2.0)
    return EffectNuisances(policies, mean, effect)


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


def _policies_without(
    designs: list[Array], rows: LabelledRows, fold: IntArray, k: int
) -> list[Array]:
    """Return the policy of one population at all rows, from each fold's other rows."""
    at = rows.at(TREATMENT, k)
    t, weight = 0.5 + 0.5 * rows.label[at], rows.weight[at]
    fits: list[Array] = []
    loss = np.zeros(len(RIDGES))
    for j, B in enumerate(designs):
        penalties = np.repeat(np.array(RIDGES)[:, None], B.shape[1], axis=1)
        penalties[:, 0] = FREE
        coefs, lost = _ridges(B[at], t, weight, fold[at] == j, penalties)
        fits.append(coefs)
        loss += lost
    best = int(np.argmin(loss))
    return [
        np.clip(B @ coefs[best], CLIP, 1.0 - CLIP) for B, coefs in zip(designs, fits, strict=True)
    ]


def _outcomes_without(
    designs: list[Array], rows: LabelledRows, fold: IntArray, chances: list[Array]
) -> list[Array]:
    """Return coefficients of base, then effect, from the other outcome rows of each fold."""
    at = rows.of_kind(OUTCOME)
    weight, own = rows.weight[at], rows.population[at]
    center = float(np.average(rows.label[at], weights=weight))
    spread = float(np.sqrt(np.average((rows.label[at] - center) ** 2, weights=weight)))
    y, pairs = (rows.label[at] - center) / spread, list(product(RIDGES[:3], EFFECT_RIDGES))
    fits: list[Array] = []
    loss = np.zeros(len(pairs))
    for j, (B, chance) in enumerate(zip(designs, chances, strict=True)):
        exposure, p = chance[at, own] - chance[at].mean(axis=1), B.shape[1]
        gap = float(np.average(exposure**2, weights=weight))
        penalties = np.array([np.repeat([base, effect * gap + FREE], p) for base, effect in pairs])
        penalties[:, 0], penalties[:, p] = FREE, 1e-3 * gap + FREE
        D = np.hstack([B[at], B[at] * exposure[:, None]])
        coefs, lost = _ridges(D, y, weight, fold[at] == j, penalties)
        fits.append(coefs)
        loss += lost
    best, shift = int(np.argmin(loss)), np.zeros(2 * designs[0].shape[1])
    shift[0] = center
    return [spread * coefs[best] + shift for coefs in fits]


def _ridges(
    D: Array, label: Array, weight: Array, held: BoolArray, penalties: Array
) -> tuple[Array, Array]:
    """Return the fits without some rows, one for each penalty, and their losses at these rows."""
    rest = ~held if not held.all() else held
    w = weight[rest] / weight[rest].sum()
    seen = D[rest]
    gram, right = (seen.T * w) @ seen, (w * label[rest]) @ seen
    coefs = np.array(
        [solve(gram + np.diag(penalty), right, assume_a="pos") for penalty in penalties]
    )
    return coefs, weight[held] @ (label[held, None] - D[held] @ coefs.T) ** 2
