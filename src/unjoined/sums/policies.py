"""Sums that tell the policies of two or more populations apart, and how best to contrast them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from unjoined._threads import CACHE_ROWS, over_pieces
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import Scaling
from unjoined.data import LabelledRows

PIECE_ROWS = 16_384  # rows that one thread takes at a time
SCALING_ROWS = 20_000
MOST_SQUARES = 500  # features; beyond, products of all of them and their squares fill the memory
LEAST_PART = 1e-6  # of the largest: populations that count less are left out
LEAST_F = 10.0  # of the gap in a second contrast: weaker ones would add noise alone


def _write_design(X: Array, scaling: Scaling, D: Array) -> None:
    """Write a constant, the scaled features and their squares, as far as D (q, n) has room."""
    d, q = X.shape[1], len(D)
    # By columns: operations on rows of ten numbers are several times as slow.
    D[0], Z = 1.0, D[1 : 1 + d]
    if q > 1:
        np.subtract(X.T, scaling.mean[:, None], out=Z)
        Z /= scaling.scale[:, None]
    if q > 1 + d:
        np.multiply(Z, Z, out=D[1 + d :])


def policy_design(X: Array, scaling: Scaling) -> Array:
    """Return the functions that policies are told apart by, shape (n, 2 d + 1)."""
    D = np.empty((1 + 2 * X.shape[1], len(X)))
    _write_design(X, scaling, D)
    return D.T


@dataclass(frozen=True, slots=True)
class PolicySums:
    """Sums over the treatment rows of each of m populations, with D the design."""

    n_rows: IntArray  # (m,)
    weight: Array  # (m,)    sum of row weights r
    label: Array  # (m, q)   sum of r t D, t being -1/+1
    gram: Array  # (m, q, q) sum of r D D^T
    square: Array  # (m, q, q) sum of r^2 D D^T

    @classmethod
    def zero(cls, d: int, n_populations: int = 2, n_functions: int | None = None) -> PolicySums:
        """Return the sums of no rows, the neutral element of `merge`."""
        m, q = n_populations, 2 * d + 1 if n_functions is None else n_functions
        return cls(
            np.zeros(m, dtype=np.int64),
            np.zeros(m),
            np.zeros((m, q)),
            np.zeros((m, q, q)),
            np.zeros((m, q, q)),
        )

    @classmethod
    def of_rows(
        cls,
        X: Array,
        scaling: Scaling,
        label: Array,
        weight: Array,
        population: int,
        *,
        n_populations: int = 2,
        n_functions: int | None = None,
    ) -> PolicySums:
        """Return the sums of treatment rows of one population, on all or the first functions."""
        total = cls.zero(X.shape[1], n_populations, n_functions)
        q = total.label.shape[1]
        total.n_rows[population] = len(X)
        total.weight[population] = weight.sum()
        unit = bool(np.all(weight == 1.0))
        held = np.empty(q * min(len(X), CACHE_ROWS))
        for start in range(0, len(X), CACHE_ROWS):
            chunk = slice(start, min(start + CACHE_ROWS, len(X)))
            size = chunk.stop - start
            D = held[: q * size].reshape(-1, size)
            _write_design(X[chunk], scaling, D)
            # Rows of weight one, as most are, take one product for both matrices. Unlike the
            # operator, dot leaves Python's lock to other threads for small results too.
            weighted = D if unit else D * weight[chunk]
            total.label[population] += np.dot(weighted, label[chunk])
            gram = np.dot(weighted, D.T)
            total.gram[population] += gram
            total.square[population] += gram if unit else np.dot(weighted, weighted.T)
        return total

    def of(self, *populations: int) -> PolicySums:
        """Return the sums of some of the populations."""
        at = list(populations)
        return PolicySums(
            self.n_rows[at], self.weight[at], self.label[at], self.gram[at], self.square[at]
        )

    def merge(self, other: PolicySums) -> PolicySums:
        """Return the sums over the rows of both; neither argument changes."""
        return PolicySums(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.label + other.label,
            self.gram + other.gram,
            self.square + other.square,
        )


def sum_policies(rows: LabelledRows, *, n_jobs: int | None = None) -> PolicySums:
    """Return the sums over the treatment rows, on as many functions as the rows can carry."""
    cells = [rows.at(TREATMENT, k) for k in range(len(rows.names))]
    # The functions span the same whatever features are scaled by; some rows do to keep digits.
    some = np.concatenate([at[:: max(len(at) // SCALING_ROWS, 1)] for at in cells])
    scaling = Scaling.of_rows(rows.X[some], np.ones(len(some)))
    pieces = [
        (k, at[start : start + PIECE_ROWS])
        for k, at in enumerate(cells)
        for start in range(0, len(at), PIECE_ROWS)
    ]
    # Products of functions that the rows cannot carry anyway would fill the memory.
    q = n_functions(sum(map(len, cells)), rows.X.shape[1])

    def sums(piece: tuple[int, IntArray]) -> PolicySums:
        k, at = piece
        X, label, weight = rows.X[at], rows.label[at], rows.weight[at]
        return PolicySums.of_rows(
            X, scaling, label, weight, k, n_populations=len(cells), n_functions=q
        )

    return reduce(PolicySums.merge, over_pieces(sums, pieces, n_jobs))


def n_functions(n: int, d: int) -> int:
    """Return how many functions the rows can carry: ten rows to each, squares of 500 at most."""
    if 10 * (1 + d) > n:
        return 1
    return 1 + d if d > MOST_SQUARES or 10 * (1 + 2 * d) > n else 1 + 2 * d


def best_contrasts(policy: PolicySums, size: Array, n_features: int) -> Array:
    r"""Return fixed combinations of populations that tell of the uplift, shape (J, K).

    Of all :math:`a` that add up to 0 the first has the largest
    :math:`E[(\sum_k a_k e_k(x))^2] / \sum_k a_k^2 / n_k`, the information that the contrast of
    outcomes carries: never less than that of any pair or subset of the populations. Its positive
    entries add up to 1, the negative ones to -1. The others have the most of what is left, their
    noise is of the same size and uncorrelated, and they are there only if the populations'
    policies clearly differ in them. Policies :math:`e_k` are regressions of the treatments, and
    what their noise adds to the expectation is taken off. ``size`` are the effective numbers of
    outcome rows.
    """
    K, p = len(size), size / size.sum()
    spread, noise = _spread(policy, n_functions(int(policy.n_rows.min()), n_features))
    apart = np.eye(K) - p  # takes the mean over all populations off
    left = apart @ (spread - np.diag(noise)) @ apart.T
    root = np.sqrt(p)
    found = root * np.linalg.eigh(root[:, None] * left * root)[1].T[::-1]  # the best one first
    found -= np.outer(found.sum(axis=1), p)  # adds up to 0 but for rounding
    if not np.abs(found[0]).max() > 1e-9:  # no policy differs
        return np.array([_with_sides_of_one(np.eye(K)[0] - p)])
    first = _with_sides_of_one(found[0])
    others = found[1:] * np.sqrt(np.sum(first**2 / p) / np.sum(found[0] ** 2 / p))
    F = np.einsum("jk,kl,jl->j", others, spread, others) / (others**2 @ noise + 1e-300)
    return np.vstack([first, others[F > LEAST_F]])


def _spread(policy: PolicySums, q: int) -> tuple[Array, Array]:
    """Return the mean products of the policies, (K, K), and what noise adds to the squares."""
    each = policy.weight[:, None, None]
    G, V = policy.gram[:, :q, :q] / each, policy.square[:, :q, :q] / each**2
    inverse = np.array([np.linalg.pinv(part, rcond=1e-10, hermitian=True) for part in G])
    coef = np.einsum("kij,kj->ki", inverse, policy.label[:, :q] / policy.weight[:, None])
    left = np.maximum(1.0 - np.einsum("ki,kij,kj->k", coef, G, coef), 0.0)  # t^2 is 1
    mean = G.mean(axis=0)
    noise = left * np.einsum("ij,kjl,klm,kmi->k", mean, inverse, V, inverse, optimize=True)
    return coef @ mean @ coef.T, noise


def _with_sides_of_one(contrast: Array) -> Array:
    """Return a contrast whose entries of either sign add up to one, the first being positive."""
    contrast = np.where(np.abs(contrast) < LEAST_PART * np.abs(contrast).max(), 0.0, contrast)
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
    merged = replace(rows, cell=cell, weight=weight, names=group_names(rows.names, contrast))
    used = np.flatnonzero(contrast[rows.population])
    merged = merged.take(used)
    return replace(merged, weight=merged.relative), used


def group_names(names: Sequence[Any], contrast: Array) -> list[str]:
    """Return what the two groups are called: the populations of each, with a plus between."""
    groups = [[n for n, c in zip(names, contrast, strict=True) if c * s > 0] for s in (1, -1)]
    return [" + ".join(map(str, group)) for group in groups]
