"""Policies and outcome means at every row, from models that did not see the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import Scaling, draw_basis
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.nuisance.models import fit_conditional_mean, seeded_clone
from unjoined.solve import BaseEffectFit, BaseEffectRows, BernoulliTerms, Scoring

N_CENTERS = 50


RIDGES = np.logspace(-3.0, 4.0, 15)


INVERSE_RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)


# A penalty is one number: this many rows settle it, more only cost time.
TUNING_ROWS = 5_000


TUNING = Scoring(BernoulliTerms(), tol=1e-7)


@dataclass(frozen=True, slots=True)
class Nuisances:
    """What every score needs to know about a row besides its label; cross-fitted."""

    policies: Array  # (n, m) probability of treatment under each policy
    outcome_mean: Array  # (n,) mean of the populations' outcome means, inner coding

    def contrast(self, population: IntArray) -> Array:
        r"""Return :math:`2 (e_k(x) - \bar e(x))`; of two populations, plus or minus the gap."""
        own = self.policies[np.arange(len(population)), population]
        return np.asarray(2.0 * np.mean(own[:, None] - self.policies, axis=1))

    @property
    def gap(self) -> Array:
        """The policy gap e_1(x) - e_2(x) of two populations."""
        return self.policies[:, 0] - self.policies[:, 1]

    @property
    def treatment_mean(self) -> Array:
        """Mean of the populations' treatment means, treatment being -1/+1."""
        return np.asarray((2.0 / self.policies.shape[1]) * self.policies.sum(axis=1) - 1.0)


def smooth_basis(Z: Array, weight: Array, rng: Rng) -> Basis:
    """Return a constant, the features and at most 50 Gaussians, for scaled rows ``Z``."""
    n_centers = min(N_CENTERS, len(Z))
    return draw_basis("smooth", Z, n_centers=n_centers, width="median", rng=rng, weight=weight)


def cross_fit(
    rows: LabelledRows, *, policy_model: Any, outcome_model: Any, n_folds: int, rng: Rng
) -> Nuisances:
    """Fit the policies and the outcome means on all folds but one, and read them off that one.

    A model that is None is a penalised regression on a smooth basis, logistic if the label has
    two values, with the penalty chosen from the rows. Costs ``n_folds`` fits of each model, of
    which there are two for each population.
    """
    _check_folds(rows, n_folds, (OUTCOME, TREATMENT))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    fold = deal_evaluation_folds(rows, n_folds, rng)
    # The constant is left out: both kinds of regression have an intercept of their own.
    smooth = Z
    if None in (policy_model, outcome_model):
        smooth = smooth_basis(Z, rows.relative, rng)(Z)[:, 1:]

    def mean(kind: str, k: int, model: Any) -> Array:
        D = smooth if model is None else Z
        at = rows.at(kind, k)
        if model is None:
            model = _tuned_model(D[at], rows.label[at], rows.weight[at], rng)
        return _cross_fitted_mean(rows, at, seeded_clone(model, rng), D, fold)

    each = range(len(rows.names))
    chances = [(mean(TREATMENT, k, policy_model) + 1.0) / 2.0 for k in each]
    means = [mean(OUTCOME, k, outcome_model) for k in each]
    return Nuisances(np.column_stack(chances), np.mean(means, axis=0))


def cross_fitted_gap(rows: LabelledRows, model: Any, n_folds: int) -> Array:
    """Return e_1(x) - e_2(x) at every row, from models that did not see the row."""
    _check_folds(rows, n_folds, (TREATMENT,))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    rng = check_random_state(0)
    fold = deal_evaluation_folds(rows, n_folds, rng)
    first, second = (
        _cross_fitted_mean(rows, rows.at(TREATMENT, k), model, Z, fold) for k in (0, 1)
    )
    return (first - second) / 2.0


def deal_evaluation_folds(rows: LabelledRows, n_folds: int, rng: Rng) -> IntArray:
    """Deal the rows of every cell evenly into folds.

    Outcome rows are dealt into the same folds as treatment rows, so that both terms of a risk
    average over the same estimates.
    """
    fold = np.empty(len(rows.label), dtype=np.int64)
    for cell in rows.all_cells():
        fold[cell] = rng.permutation(np.resize(np.arange(n_folds), len(cell)))
    return fold


def _cross_fitted_mean(
    rows: LabelledRows, cell: IntArray, model: Any, D: Array, fold: IntArray
) -> Array:
    """Return the mean label of one cell at every row, each fold's from the other folds."""
    mean = np.empty(len(D))
    rng = check_random_state(0)  # unused but for models that were given without a seed
    for j in np.unique(fold):
        held = fold == j
        at = cell[~held[cell]]
        fitted = fit_conditional_mean(
            seeded_clone(model, rng), D[at], rows.label[at], rows.weight[at]
        )
        mean[held] = fitted(D[held])
    return mean


def _tuned_model(D: Array, label: Array, weight: Array, rng: Rng) -> Any:
    """Return an unfitted regression whose penalty suits one cell."""
    low, high = label.min(), label.max()
    if not np.all((label == low) | (label == high)):
        return RidgeCV(alphas=RIDGES)
    at = rng.choice(len(D), TUNING_ROWS, replace=False) if len(D) > TUNING_ROWS else slice(None)
    D, is_high, weight = D[at], (label[at] == high).astype(np.float64), weight[at]
    if min(is_high.sum(), len(is_high) - is_high.sum()) < 10:
        return _logistic(1.0)  # too few of one value to choose anything by
    splits = StratifiedKFold(3, shuffle=True, random_state=rng).split(D, is_high)
    loss = sum(_path_losses(D, is_high, weight, *split) for split in splits)
    return _logistic(INVERSE_RIDGES[int(np.argmin(loss))])


def _path_losses(D: Array, is_high: Array, weight: Array, train: IntArray, test: IntArray) -> Array:
    """Return the held-out loss for each penalty; a fit starts where the last one ended."""
    values = np.column_stack([np.ones(len(D)), D])
    nothing = np.empty((len(D), 0))
    fitted, held = (
        BaseEffectRows(
            values[at], nothing[at], nothing[at], is_high[at], np.ones(len(at)), weight[at]
        )
        for at in (train, test)
    )
    loss = np.empty(len(INVERSE_RIDGES))
    fit: Array | BaseEffectFit = np.zeros(values.shape[1])
    for c, inverse_ridge in enumerate(INVERSE_RIDGES):
        # In scikit-learn's terms, where the loss is a sum (of weights with mean 1, see
        # `fit_weighted`) and the intercept is free.
        penalty = np.full(values.shape[1], 1.0 / (inverse_ridge * len(train)))
        penalty[0] = 0.0
        fit = TUNING.fit(fitted, penalty, fit, p_base=len(penalty))
        loss[c] = weight[test] @ TUNING.losses(held, fit)
    return loss


def _logistic(inverse_ridge: float) -> LogisticRegression:
    # Few columns, many rows: Newton steps on the Hessian beat a quasi-Newton method.
    return LogisticRegression(C=inverse_ridge, solver="newton-cholesky")


def _check_folds(rows: LabelledRows, n_folds: int, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        fewest = min(len(rows.at(kind, k)) for k in range(len(rows.names)))
        if not 2 <= n_folds <= fewest:
            raise InputError(
                f"n_folds={n_folds} must lie between 2 and the rows of the smallest {kind} table, "
                f"{fewest}."
            )
