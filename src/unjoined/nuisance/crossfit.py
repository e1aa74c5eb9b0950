"""Policies and outcome means at every row, from models that did not see the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import Scaling
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.nuisance.additive import cross_fit_additive_means
from unjoined.nuisance.models import fit_conditional_mean, seeded_clone


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


def cross_fit(
    rows: LabelledRows, *, policy_model: Any, outcome_model: Any, n_folds: int, rng: Rng
) -> Nuisances:
    """Fit the policies and the outcome means on all folds but one, and read them off that one.

    A model that is None is an additive one. Costs ``n_folds`` fits of each model, of which there
    are two for each population.
    """
    _check_folds(rows, n_folds, (OUTCOME, TREATMENT))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    fold = deal_evaluation_folds(rows, n_folds, rng)

    def mean(kind: str, k: int, model: Any) -> Array:
        # Models that are given keep their seed over the folds.
        own = None if model is None else seeded_clone(model, rng)
        return _cross_fitted_mean(rows, rows.at(kind, k), own, Z, fold, rng)

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
        _cross_fitted_mean(rows, rows.at(TREATMENT, k), model, Z, fold, rng) for k in (0, 1)
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
    rows: LabelledRows, cell: IntArray, model: Any, D: Array, fold: IntArray, rng: Rng
) -> Array:
    """Return the mean label of one cell at every row, each fold's from the other folds."""
    label, weight = rows.label[cell], rows.weight[cell]
    if label.min() == label.max():
        return np.full(len(D), label[0])
    means: list[Callable[[Array], Array]] = []
    if model is None:
        means += cross_fit_additive_means(D[cell], label, weight, fold[cell], n_jobs=None, rng=rng)
    else:
        for j in range(int(fold.max()) + 1):
            at = fold[cell] != j
            copy = seeded_clone(model, rng)
            means.append(fit_conditional_mean(copy, D[cell[at]], label[at], weight[at]))
    mean = np.empty(len(D))
    for j, estimate in enumerate(means):
        mean[fold == j] = estimate(D[fold == j])
    return mean


def _check_folds(rows: LabelledRows, n_folds: int, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        fewest = min(len(rows.at(kind, k)) for k in range(len(rows.names)))
        if not 2 <= n_folds <= fewest:
            raise InputError(
                f"n_folds={n_folds} must lie between 2 and the rows of the smallest {kind} table, "
                f"{fewest}."
            )
