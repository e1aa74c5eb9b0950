"""Policies, mean outcome and effect by ridge regression without each fold, in closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import solve

from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import Scaling
from unjoined.data import LabelledRows
from unjoined.nuisance.effects import CLIP, EffectNuisances
from unjoined.nuisance.models import deal_evaluation_folds

MOST_FEATURES = 50  # beyond, those that go along with the labels of the other folds most
MOST_SQUARES = 20  # features up to which squares are among the functions
REACH = 3.0  # standard deviations that a feature is kept within
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # per row of weight 1, functions being of variance 1
EFFECT_RIDGES = (1e-2, 1e-1, 1.0, 10.0)  # the same, times the mean square of the policies' gap
FREE = 1e-8
N_FOLDS = 5
LEAST_WEIGHT = 1e-6  # of the largest: populations that count less are left out


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


def in_two_groups(rows: LabelledRows) -> tuple[LabelledRows, Array]:
    """Return rows of several populations as rows of two groups of them, and the contrast.

    By the best fixed contrast: populations of positive weight are one group, those of negative
    weight the other, each counting by its weight, alike in its two tables. The two groups differ
    in their policies, and share the law of outcomes, as two populations do.
    """
    fold = deal_evaluation_folds(rows, N_FOLDS, Rng(0))
    K = len(rows.names)
    size = np.array([float(len(rows.at(OUTCOME, k))) for k in range(K)])
    contrast = best_contrast(cross_fit_linear(rows, fold).policies, rows.share, size)
    weight = np.zeros(len(rows.label))
    for k, part in enumerate(contrast.tolist()):
        for kind in (OUTCOME, TREATMENT):
            at = rows.at(kind, k)
            weight[at] = abs(part) * rows.weight[at] / rows.weight[at].sum()
    second = contrast[rows.population] < 0.0
    cell = (np.where(rows.is_outcome, 0, 2) + second).astype(rows.cell.dtype)
    groups = [[n for n, c in zip(rows.names, contrast, strict=True) if c * s > 0] for s in (1, -1)]
    names = [" + ".join(map(str, group)) for group in groups]
    merged = replace(rows, cell=cell, weight=weight, names=names)
    merged = merged.take(weight > LEAST_WEIGHT * weight.max())
    return replace(merged, weight=merged.relative), contrast


def best_contrast(policies: Array, weight: Array, size: Array) -> Array:
    r"""Return the fixed combination of populations that tells most of the uplift, shape (K,).

    Of all :math:`a` that add up to 0 it has the largest
    :math:`E[(\sum_k a_k e_k(x))^2] / \sum_k a_k^2 / n_k`, the information that the contrast of
    outcomes carries: never less than that of any pair or subset of the populations. Positive
    entries add up to 1, negative ones to -1.
    """
    p = size / size.sum()
    apart = policies - (policies @ p)[:, None]
    spread = (apart.T * (weight / weight.sum())) @ apart
    root = np.sqrt(p)
    contrast = root * np.linalg.eigh(root[:, None] * spread * root)[1][:, -1]
    contrast -= p * contrast.sum()  # 0 but for rounding, or where no policy differs
    if not np.abs(contrast).max() > 1e-9:
        contrast = np.where(np.arange(len(p)) == 0, 1.0, 0.0) - p
    contrast *= np.sign(contrast[np.argmax(np.abs(contrast) > 1e-3 * np.abs(contrast).max())])
    return np.asarray(2.0 * contrast / np.abs(contrast).sum())
