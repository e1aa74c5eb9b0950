"""The policies: each population's probability of treatment, learnt from its treatment table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import TREATMENT
from unjoined.data import LabelledRows
from unjoined.nuisance.models import (
    ConditionalMean,
    fit_conditional_mean,
    fit_weighted,
    seeded_clone,
)
from unjoined.solve import BaseEffectRows, BernoulliTerms, Scoring

LINEAR_RIDGES = (1e-2, 1e-3, 1e-4, 1e-5)


SMOOTH_RIDGES = (1e-1, 1e-2, 1e-3, 1e-4)


# Shallow trees and small steps: policies are smooth scores or a few thresholds.
BOOSTING = {"max_iter": 100, "learning_rate": 0.05, "max_leaf_nodes": 6, "early_stopping": False}


FLOOR = 1e-3  # boosted probabilities are kept this far from 0 and 1


TUNING_ROWS = 5_000  # a ridge is one number: this many rows settle it, more only cost time


ENGINE = Scoring(BernoulliTerms(), tol=1e-7)


@dataclass(frozen=True, slots=True)
class PolicyFit:
    """One population's policy: the model kept, and how well each did on held-out rows."""

    chosen: str  # "constant", "linear", "smooth", "boosted" or "given"
    basis: Basis | None
    coef: Array | None
    model: Any
    losses: dict[str, float]  # held-out minus log-likelihood of each model tried, nats per row

    def __call__(self, Z: Array) -> Array:
        """Return the probability of treatment at scaled rows."""
        if self.basis is not None and self.coef is not None:
            return np.asarray(expit(self.basis(Z) @ self.coef))
        if isinstance(self.model, ConditionalMean):
            return 0.5 + 0.5 * self.model(Z)
        return np.asarray(np.clip(self.model.predict_proba(Z)[:, 1], FLOOR, 1.0 - FLOOR))


def fit_policies(
    Z: Array,
    rows: LabelledRows,
    pool: tuple[Basis, ...],
    model: Any,
    *,
    n_folds: int,
    rng: Rng,
) -> tuple[PolicyFit, ...]:
    """Fit one policy for each population.

    Parameters
    ----------
    Z : array of shape (n, d)
        Scaled features of ``rows``.
    rows : LabelledRows
        Rows of all tables; treatment rows are used.
    pool : tuple of Basis
        A linear basis, and smooth ones that start with it.
    model : "auto" or scikit-learn classifier
        "auto" compares logistic regressions on the pool's bases, ridges included, with
        gradient boosting, and keeps the one with the highest held-out likelihood.
    n_folds : int
        Folds of that comparison.
    rng : RandomState
        Source of randomness.
    """
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(rows.names))

    def fit(k: int) -> PolicyFit:
        own = check_random_state(seeds[k])
        at = rows.at(TREATMENT, k)
        treated = 0.5 + 0.5 * rows.label[at]
        if isinstance(model, str) and treated.min() < treated.max():
            return _choose(Z[at], treated, rows.weight[at], pool, n_folds, own)
        copy = None if isinstance(model, str) else seeded_clone(model, own)
        mean = fit_conditional_mean(copy, Z[at], rows.label[at], rows.weight[at])
        return PolicyFit("constant" if mean.model is None else "given", None, None, mean, {})

    # Small fits: threads inside them would wait for each other most of the time. OpenMP heeds
    # the limit in the thread that sets it alone, so the populations take turns.
    with threadpool_limits(limits=1):
        return tuple(fit(k) for k in range(len(rows.names)))


def _choose(
    Z: Array, treated: Array, weight: Array, pool: tuple[Basis, ...], n_folds: int, rng: Rng
) -> PolicyFit:
    """Return the model with the highest held-out likelihood, refitted to all rows."""
    n = len(treated)
    few = rng.permutation(n)[:TUNING_ROWS]
    fold = np.resize(np.arange(min(n_folds, len(few))), len(few))
    sample = (Z[few], treated[few], weight[few], fold)
    linear = pool[0].size
    best: dict[str, tuple[float, Basis, Array]] = {}
    ridge = LINEAR_RIDGES[0]
    for basis in pool:
        name = "linear" if basis.size == linear else "smooth"
        for loss, penalty in _path(sample, basis, linear, ridge):
            if name not in best or loss < best[name][0]:
                best[name] = (loss, basis, penalty)
        ridge = float(best["linear"][2][-1])
    losses = {name: found[0] for name, found in best.items()}
    losses["boosted"] = _boosted_loss(sample, rng)
    chosen = min(losses, key=lambda name: losses[name])
    if chosen == "boosted":
        boosted = _boosting(rng)
        fit_weighted(boosted, Z, treated.astype(np.int64), weight)
        return PolicyFit(chosen, None, None, boosted, losses)
    _, basis, penalty = best[chosen]
    coef = _fit_logistic(basis(Z), treated, weight, penalty * (len(few) / n), None)
    return PolicyFit(chosen, basis, coef, None, losses)


def _path(
    sample: tuple[Array, Array, Array, IntArray], basis: Basis, linear: int, ridge: float
) -> list[tuple[float, Array]]:
    """Return held-out loss and penalty for each ridge, stopping when two in a row do worse."""
    Z, treated, weight, fold = sample
    values = basis(Z)
    smooth = basis.size > linear
    starts: dict[int, Array] = {}
    path: list[tuple[float, Array]] = []
    for trial in SMOOTH_RIDGES if smooth else LINEAR_RIDGES:
        penalty = np.full(basis.size, trial)
        penalty[1:linear] = ridge if smooth else trial
        penalty[0] = 0.0
        loss = np.empty(len(treated))
        for j in range(fold.max() + 1):
            held, kept = fold == j, fold != j
            starts[j] = _fit_logistic(
                values[kept], treated[kept], weight[kept], penalty, starts.get(j)
            )
            loss[held] = _logistic_loss(treated[held], values[held] @ starts[j])
        path.append((float(np.average(loss, weights=weight)), penalty))
        if len(path) > 2 and min(path[-1][0], path[-2][0]) > min(each[0] for each in path[:-2]):
            break
    return path


def _fit_logistic(
    values: Array, treated: Array, weight: Array, penalty: Array, start: Array | None
) -> Array:
    """Return the coefficients of a ridge logistic regression: a base without an effect."""
    n, p = values.shape
    nothing = np.empty((n, 0))
    rows = BaseEffectRows(values, nothing, nothing, treated, np.ones(n), weight)
    begin = np.zeros(p) if start is None else start
    return ENGINE.fit(rows, penalty, begin, p_base=p).base


def _logistic_loss(treated: Array, log_odds: Array) -> Array:
    return np.logaddexp(0.0, np.where(treated == 1.0, -log_odds, log_odds))


def _boosting(rng: Rng) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier  # a fifth of a second at import

    seed = int(rng.randint(np.iinfo(np.int32).max))
    return HistGradientBoostingClassifier(**BOOSTING, random_state=seed)


def _boosted_loss(sample: tuple[Array, Array, Array, IntArray], rng: Rng) -> float:
    """Return the held-out loss of gradient boosting."""
    Z, treated, weight, fold = sample
    loss = np.empty(len(treated))
    for j in range(fold.max() + 1):
        held, kept = fold == j, fold != j
        model = _boosting(rng)
        label = treated[kept].astype(np.int64)
        if label.min() == label.max():  # a fold without one of the two says nothing of boosting
            return float(np.inf)
        fit_weighted(model, Z[kept], label, weight[kept])
        chance = np.clip(model.predict_proba(Z[held])[:, 1], FLOOR, 1.0 - FLOOR)
        loss[held] = -np.log(np.where(treated[held] == 1.0, chance, 1.0 - chance))
    return float(np.average(loss, weights=weight))
