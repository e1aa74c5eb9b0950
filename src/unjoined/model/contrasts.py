"""How more than two populations are held against each other: contrasts of their policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME
from unjoined.data.rows import LabelledRows
from unjoined.model.moments import PolicySums, n_functions, sum_policies

LEAST_PART = 0.2  # of the largest: populations that count less are left out if they tell nothing,
LEAST_TOLD = 0.99  # that is if the others tell this share of what all do
LEAST_F = 10.0  # of the gap in a second contrast: weaker ones would add noise alone


def best_contrasts(policy: PolicySums, size: Array, n_features: int) -> Array:
    r"""Return fixed combinations of populations that tell of the uplift, shape (J, K).

    Of all :math:`a` that add up to 0 the first has the largest
    :math:`E[(\sum_k a_k e_k(x))^2] / \sum_k a_k^2 / n_k`, the information that the contrast of
    outcomes carries: never less than that of any pair or subset of the populations, but for one
    percent at most, where populations that tell nothing are left out. Its positive
    entries add up to 1, the negative ones to -1. The others have the most of what is left, their
    noise is of the same size and uncorrelated, and they are there only if the populations'
    policies clearly differ in them. Policies :math:`e_k` are regressions of the treatments, and
    what their noise adds to the expectation is taken off. ``size`` are the effective numbers of
    outcome rows.
    """
    K = len(size)
    p = size / size.sum()
    spread, noise = _spread(policy, n_functions(int(policy.n_rows.min()), n_features))
    apart = np.eye(K) - p  # takes the mean over all populations off
    left = apart @ (spread - np.diag(noise)) @ apart.T
    root = np.sqrt(p)
    found = (
        root * np.linalg.eigh(root[:, None] * left * root)[1].T[::-1]
    )  # the best one first
    found -= np.outer(found.sum(axis=1), p)  # adds up to 0 but for rounding
    if not np.abs(found[0]).max() > 1e-9:  # no policy differs
        return np.array([_with_sides_of_one(np.eye(K)[0] - p)])
    first = _with_sides_of_one(found[0])
    fewer = _with_sides_of_one(found[0], LEAST_PART)
    if _told(fewer, left, p) >= LEAST_TOLD * _told(first, left, p):
        first = fewer
    others = found[1:] * np.sqrt(np.sum(first**2 / p) / np.sum(found[0] ** 2 / p))
    F = np.einsum("jk,kl,jl->j", others, spread, others) / (others**2 @ noise + 1e-300)
    return np.vstack([first, others[F > LEAST_F]])


def _spread(policy: PolicySums, q: int) -> tuple[Array, Array]:
    """Return the mean products of the policies, (K, K), and what noise adds to the squares."""
    each = policy.weight[:, None, None]
    G = policy.gram[:, :q, :q] / each
    V = policy.square[:, :q, :q] / each**2
    inverse = np.array(
        [np.linalg.pinv(part, rcond=1e-10, hermitian=True) for part in G]
    )
    coef = np.einsum(
        "kij,kj->ki", inverse, policy.label[:, :q] / policy.weight[:, None]
    )
    left = np.maximum(1.0 - np.einsum("ki,kij,kj->k", coef, G, coef), 0.0)  # t^2 is 1
    mean = G.mean(axis=0)
    noise = left * np.einsum(
        "ij,kjl,klm,kmi->k", mean, inverse, V, inverse, optimize=True
    )
    return coef @ mean @ coef.T, noise


def _told(contrast: Array, spread: Array, p: Array) -> float:
    """Return the information of a contrast, in units that all contrasts share."""
    return float(contrast @ spread @ contrast / np.sum(contrast**2 / p))


def _with_sides_of_one(contrast: Array, least: float = 1e-6) -> Array:
    """Return a contrast whose entries of either sign add up to one, the first being positive."""
    contrast = np.where(
        np.abs(contrast) < least * np.abs(contrast).max(), 0.0, contrast
    )
    contrast *= np.sign(contrast[np.flatnonzero(contrast)[0]])
    side = contrast > 0.0
    totals = np.where(side, contrast[side].sum(), -contrast[~side].sum())
    return np.asarray(contrast / totals)


def contrasts_of(rows: LabelledRows, *, n_jobs: int | None = None) -> Array:
    """Return the contrasts of rows of several populations."""
    cells = [rows.weight[rows.at(OUTCOME, k)] for k in range(len(rows.names))]
    size = np.array([weight.sum() ** 2 / (weight @ weight) for weight in cells])
    return best_contrasts(sum_policies(rows, n_jobs=n_jobs), size, rows.X.shape[1])


def in_two_groups(rows: LabelledRows, contrast: Array) -> tuple[LabelledRows, IntArray]:
    """Return rows of several populations as rows of two groups of them, and their positions.

    Populations with a positive part of the contrast are one group, those with a negative part the
    other, each counting by its part, alike in its two tables. The two groups differ in their
    policies, and share the law of outcomes, as two populations do.
    """
    weight = np.zeros(len(rows.label))
    for at, part in zip(rows.all_cells(), np.tile(np.abs(contrast), 2), strict=True):
        weight[at] = part * rows.weight[at] / rows.weight[at].sum()
    second = contrast[rows.population] < 0.0
    cell = (np.where(rows.is_outcome, 0, 2) + second).astype(rows.cell.dtype)
    merged = replace(
        rows, cell=cell, weight=weight, names=group_names(rows.names, contrast)
    )
    used = np.flatnonzero(contrast[rows.population])
    merged = merged.take(used)
    return replace(merged, weight=merged.relative), used


def group_names(names: Sequence[Any], contrast: Array) -> list[str]:
    """Return what the two groups are called: the populations of each, with a plus between."""
    groups = [
        [n for n, c in zip(names, contrast, strict=True) if c * s > 0] for s in (1, -1)
    ]
    return [" + ".join(map(str, group)) for group in groups]
