"""Policies, mean outcome and effect without each fold: what an evaluation knows of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import solve

from unjoined._threads import CHUNK_ROWS, over_pieces
from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import Scaling
from unjoined.data import LabelledRows
from unjoined.nuisance.additive import CHOICE_ROWS, hold_out_forms
from unjoined.nuisance.forms import EFFECT_FORMS, AdditiveAverage, ModelRows
from unjoined.nuisance.models import FoldedPolicy, Nuisances, deal_rows, means_without_folds
from unjoined.solve import BernoulliLaw, Law, MeanLaw

CLIP = 0.005  # policies are kept this far from 0 and 1
# Enough for a mean outcome that leaves little noise: more forms cost more and gain nothing.
FORMS = tuple(form for form in EFFECT_FORMS if form.name in ("lines", "linear effect", "pairs"))
PIECE_ROWS = CHUNK_ROWS // 4


@dataclass(frozen=True, slots=True)
class EffectNuisances(Nuisances):
    """Nuisances with an effect: population k's mean outcome is m + (e_k - mean of e) f."""

    effect: Array  # (n,) f, inner coding

    @property
    def mean_policy(self) -> Array:
        """Mean of the populations' policies at each row."""
        return np.asarray(self.policies.mean(axis=1))


@dataclass(frozen=True, slots=True)
class EffectModels:
    """Policies, base and effect, each fitted without each fold; they give values at any rows."""

    # Treatments being -1/+1, of each fold of the treatment rows: of each population.
    policies: tuple[tuple[Callable[[Array], Array], ...], ...]
    outcomes: tuple[AdditiveAverage, ...]  # of each fold of the outcome rows
    offset: float  # of the inner outcome that base and effect are fitted to
    scale: float

    @property
    def n_folds(self) -> int:
        """Number of folds of the outcome rows."""
        return len(self.outcomes)

    def scores(self, X: Array) -> Array:
        """Return the effect at rows by the fits without each fold, shape (n, folds)."""
        return np.column_stack([fit.uplift(X) for fit in self.outcomes])

    def chances(self, X: Array, j: int) -> Array:
        """Return every population's policy by the fits without fold ``j``, shape (n, K)."""
        chances = [0.5 + 0.5 * policy(X) for policy in self.policies[j]]
        return np.clip(np.column_stack(chances), CLIP, 1.0 - CLIP)

    def __call__(
        self,
        X: Array,
        fold: IntArray,
        policy_fold: IntArray | None = None,
        *,
        n_jobs: int | None = None,
    ) -> EffectNuisances:
        """Return the nuisances of rows, each by the fits without the row's fold.

        Policies may have folds of their own: the fits of either kind have not seen the row then.
        """
        n, K = len(X), len(self.policies[0])
        policies, mean, effect = np.empty((n, K)), np.empty(n), np.empty(n)
        policy_fold = fold if policy_fold is None else policy_fold

        def fill(start: int) -> None:
            piece = slice(start, start + PIECE_ROWS)
            for j in range(len(self.policies)):
                at: BoolArray = policy_fold[piece] == j
                policies[piece][at] = self.chances(X[piece][at], j)
            for j, outcome in enumerate(self.outcomes):
                at = fold[piece] == j
                center = policies[piece][at].mean(axis=1)
                treated, untreated = outcome.means(X[piece][at], center)
                mixed = center * treated + (1.0 - center) * untreated
                mean[piece][at] = self.offset + self.scale * mixed
                effect[piece][at] = self.scale * (treated - untreated)

        for _ in over_pieces(fill, range(0, n, PIECE_ROWS), n_jobs):
            pass
        return EffectNuisances(policies, mean, effect)


@dataclass(frozen=True, slots=True, eq=False)
class CrossFit:
    """Policies, mean outcome and effect of labelled rows, each by fits that have not seen the row.

    Made once for a data set and shared by all that is said of it: fit, diagnose, evaluate, plan and
    report. The models give values at other people too, whom no fit has seen.
    """

    models: EffectModels
    fold: IntArray  # (n,) of each labelled row: the outcome's fits without it
    nuisances: EffectNuisances  # at the labelled rows
    rows: LabelledRows
    encode: Callable[[MatrixLike], Array] | None = None  # features as the models know them

    @classmethod
    def of_rows(
        cls, rows: LabelledRows, fold: IntArray, *, n_jobs: int | None, rng: Rng
    ) -> CrossFit:
        """Fit additive models, all of them without each fold in turn.

        The fits without a fold see none of its rows, of either kind. At most 20,000 outcome rows
        and as many treatment rows of each population are used. Costs three forms times the number
        of folds.
        """
        models = _effect_models(rows, fold, n_jobs=n_jobs, rng=rng)
        return cls(models, fold, models(rows.X, fold, n_jobs=n_jobs), rows)

    @classmethod
    def of_fits(
        cls,
        rows: LabelledRows,
        policies: tuple[FoldedPolicy, ...],
        outcomes: tuple[AdditiveAverage, ...],
        fold: IntArray,
        offset: float,
        scale: float,
        *,
        n_jobs: int | None,
        rng: Rng,
    ) -> CrossFit:
        """Return what the fits of an additive model without its folds say of its rows.

        ``fold`` is that of each outcome row. A treatment row has a fold of the policies, an outcome
        row one of the outcome. The other fold is dealt, as often as rows of the other kind have it:
        no fit of that kind has seen the row. So both terms of the ratio average over the same
        estimates, and no model is fitted for it.
        """
        n_policies = min(len(policy.without) for policy in policies)
        of_outcome, of_policy = (np.empty(len(rows), dtype=np.int64) for _ in range(2))
        for k, policy in enumerate(policies):
            treated, outcome = rows.at(TREATMENT, k), rows.at(OUTCOME, k)
            of_policy[treated] = policy.fold % n_policies
            of_policy[outcome] = rng.permutation(np.resize(of_policy[treated], len(outcome)))
            of_outcome[treated] = rng.permutation(np.resize(fold, len(treated)))
        of_outcome[rows.of_kind(OUTCOME)] = fold
        models = EffectModels(
            tuple(zip(*(policy.without[:n_policies] for policy in policies), strict=True)),
            outcomes,
            offset,
            scale,
        )
        nuisances = models(rows.X, of_outcome, of_policy, n_jobs=n_jobs)
        return cls(models, of_outcome, nuisances, rows)

    def fits(self, rows: LabelledRows) -> bool:
        """Tell whether these are the rows that were fitted, whatever numbers stand for words."""
        mine = self.rows
        return np.array_equal(mine.label, rows.label) and np.array_equal(mine.cell, rows.cell)

    def elsewhere(
        self, X: Array, given: MatrixLike | None, *, n_jobs: int | None, rng: Rng
    ) -> tuple[EffectNuisances, IntArray]:
        """Return the nuisances of other people, each by the fits without a fold that is dealt.

        ``X`` are their features as numbers, ``given`` as they came.
        """
        fold = deal_rows(len(X), self.models.n_folds, rng)
        numbers = X if self.encode is None or given is None else self.encode(given)
        of_policy = fold % len(self.models.policies)
        return self.models(numbers, fold, of_policy, n_jobs=n_jobs), fold


def _effect_models(
    rows: LabelledRows, fold: IntArray, *, n_jobs: int | None, rng: Rng
) -> EffectModels:
    """Fit policies, base and effect by additive models, all of them without each fold in turn."""
    n_folds, K = int(fold.max()) + 1, len(rows.names)
    of_population = [
        means_without_folds(rows, rows.at(TREATMENT, k), None, rows.X, fold, n_jobs=n_jobs, rng=rng)
        for k in range(K)
    ]
    policies = tuple(zip(*of_population, strict=True))
    label = rows.label[rows.of_kind(OUTCOME)]
    offset, scale = (
        (-1.0, 2.0) if rows.coding.is_binary else (float(label.mean()), float(label.std()))
    )
    models = EffectModels(policies, (), offset, scale)
    at = rows.of_kind(OUTCOME)
    at = np.sort(at[rng.permutation(len(at))[:CHOICE_ROWS]])
    X, own = rows.X[at], rows.population[at]
    each = [models.chances(X, j) for j in range(n_folds)]
    exposures = [chance[np.arange(len(at)), own] for chance in each]
    law: Law = BernoulliLaw(float(np.mean(each)))
    if not rows.coding.is_binary:
        law = MeanLaw()
        exposures = [e - chance.mean(axis=1) for e, chance in zip(exposures, each, strict=True)]
    y = (rows.label[at] - offset) / scale
    outcomes = ModelRows.of_weights(X, y, np.mean(exposures, axis=0), rows.weight[at])
    held = hold_out_forms(outcomes, law, FORMS, fold[at], exposures=exposures, n_jobs=n_jobs)
    return EffectModels(policies, tuple(held.without(j) for j in range(n_folds)), offset, scale)


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
