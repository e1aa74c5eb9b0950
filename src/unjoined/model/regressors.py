"""Policies and means of labels, by additive models or by models that others chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT, unit_mean
from unjoined.data.rows import LabelledRows, some_rows
from unjoined.errors import InputError
from unjoined.model.averaging import (
    CHOICE_ROWS,
    HeldOutSpecifications,
    average_specifications,
    hold_out_specifications,
)
from unjoined.model.basis import Scaling
from unjoined.model.families import BernoulliFamily, Family, MeanFamily
from unjoined.model.specifications import (
    MEAN_SPECIFICATIONS,
    AdditiveAverage,
    ModelRows,
)

MEAN_FOLDS = 3


def seeded_clone(model: Any, rng: Rng) -> Any:
    """Return a clone whose unset ``random_state`` parameters are drawn from ``rng``."""
    copy = clone(model)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds)


def last_step(model: Any) -> Any:
    """Return the step that predicts: the last of a pipeline, else the model itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def takes_weights(model: Any) -> bool:
    """Whether a model, or the last step of a pipeline, can be fitted with row weights."""
    return bool(has_fit_parameter(last_step(model), "sample_weight"))


def fit_weighted(model: Any, X: Array, label: Any, weight: Array) -> None:
    """Fit ``model`` (which is changed) with row weights, or say that it takes none.

    The model sees weights of mean 1. A penalty counts against the sum of the weights, so that
    any other scale would change what the model penalises.
    """
    if np.all(
        weight == weight[0]
    ):  # equal weights say nothing; any model can be fitted
        model.fit(X, label)
        return
    last = last_step(model)
    if not takes_weights(model):
        raise InputError(
            f"sample_weight was given, but {type(last).__name__}.fit takes no weights. Choose a "
            "model that does, or leave sample_weight out."
        )
    if isinstance(model, Pipeline) and len(model) > 1:
        # By hand, because with metadata routing on a pipeline does not take weights by name.
        head = model[:-1]
        X = head.fit_transform(X, label)
        model.steps[:-1] = head.steps
    last.fit(X, label, sample_weight=unit_mean(weight))


@dataclass(frozen=True, slots=True)
class AdditiveMean:
    """An estimate of E[label | x] by additive models; a chance if the label has two values."""

    model: AdditiveAverage
    offset: float
    scale: float
    is_binary: bool

    def __call__(self, X: Array) -> Array:
        """Return the mean at each row, in units of the label."""
        base = self.model.base(X)
        mean = (expit(base) if self.is_binary else base) @ self.model.weight
        return np.asarray(self.offset + self.scale * mean)


def _coded(
    X: Array,
    label: Array,
    weight: Array,
    unit: IntArray | None = None,
    count: Array | None = None,
) -> tuple[ModelRows, Family, float, float]:
    """Return rows of one label, which must vary, with its law, offset and scale."""
    low = float(label.min())
    high = float(label.max())
    family: Family = BernoulliFamily(0.5)
    offset = low
    scale = high - low
    if not np.all((label == low) | (label == high)):
        family = MeanFamily()
        offset = float(np.average(label, weights=weight))
        scale = float(np.sqrt(np.average((label - offset) ** 2, weights=weight)))
    rows = ModelRows.of_weights(
        X, (label - offset) / scale, np.zeros(len(label)), weight, unit, count
    )
    return rows, family, offset, scale


def hold_out_mean(
    X: Array,
    label: Array,
    weight: Array,
    fold: IntArray,
    *,
    n_jobs: int | None,
    categorical: tuple[int, ...] = (),
) -> HeldOutSpecifications:
    """Weigh the forms of the mean of one label, which must vary."""
    rows, family, _, _ = _coded(X, label, weight)
    return hold_out_specifications(
        rows, family, MEAN_SPECIFICATIONS, fold, categorical=categorical, n_jobs=n_jobs
    )


def cross_fit_additive_means(
    X: Array,
    label: Array,
    weight: Array,
    fold: IntArray,
    *,
    n_jobs: int | None,
    rng: Rng,
) -> list[AdditiveMean]:
    """Fit the mean of one label, which must vary, without each fold in turn."""
    rows, family, offset, scale = _coded(X, label, weight)
    at = some_rows(len(label), CHOICE_ROWS, rng)
    held = hold_out_specifications(
        rows.take(at), family, MEAN_SPECIFICATIONS, fold[at], n_jobs=n_jobs
    )
    is_binary = isinstance(family, BernoulliFamily)
    n_folds = int(fold.max()) + 1
    return [
        AdditiveMean(held.without(j), offset, scale, is_binary) for j in range(n_folds)
    ]


@dataclass(frozen=True, slots=True)
class ConditionalMean:
    """An estimate of E[label | x]: ``low + (high - low) * P(high | x)`` for a classifier."""

    model: (
        Any  # a fitted estimator or `AdditiveMean`, or None if the label never varied
    )
    low: float
    high: float

    def __call__(self, X: Array) -> Array:
        """Return the conditional mean at each row, in the label's units."""
        if self.model is None:
            return np.full(len(X), self.low)
        if isinstance(self.model, AdditiveMean):
            return self.model(X)
        if is_classifier(self.model):
            propensity = self.model.predict_proba(X)[:, 1]
            return np.asarray(self.low + (self.high - self.low) * propensity)
        return np.asarray(self.model.predict(X), dtype=np.float64)


def fit_conditional_mean(
    model: Any, X: Array, label: Array, weight: Array
) -> ConditionalMean:
    """Fit ``model`` (which is changed: pass a clone) to one cell.

    A label that never varies has a known mean: no model is fitted, so that a population
    where all or none were treated poses no problem to classifiers.
    """
    low = float(label.min())
    high = float(label.max())
    if low == high:
        return ConditionalMean(None, low, high)
    if is_classifier(model):
        if not np.all((label == low) | (label == high)):
            raise InputError(
                f"{type(model).__name__} is a classifier, but the label takes more than two "
                "values. Pass a regressor."
            )
        fit_weighted(model, X, (label == high).astype(np.int64), weight)
    else:
        fit_weighted(model, X, label, weight)
    return ConditionalMean(model, low, high)


@dataclass(frozen=True, slots=True)
class FoldedPolicy:
    """One population's policy, and the fits to all but each fold of its treatment rows."""

    policy: Callable[[Array], Array]
    without: tuple[
        Callable[[Array], Array], ...
    ]  # treatment being -1/+1; () if not known
    fold: IntArray  # of each treatment row of the population

    @classmethod
    def constant(cls, propensity: float, fold: IntArray) -> FoldedPolicy:
        """Return the policy of a population in which all rows, or none, were treated."""
        known = ConditionalMean(None, propensity, propensity)
        label = 2.0 * propensity - 1.0
        n_folds = int(fold.max()) + 1
        return cls(known, (ConditionalMean(None, label, label),) * n_folds, fold)

    @classmethod
    def of_specifications(
        cls,
        model: AdditiveAverage,
        without: tuple[AdditiveAverage, ...],
        fold: IntArray,
        offset: float = 0.0,
        scale: float = 1.0,
        *,
        is_binary: bool = True,
    ) -> FoldedPolicy:
        """Return the policy that additive models of treatments 0 and 1 give.

        Or of known probabilities, of two values or more, with their offset and scale.
        """
        mean = AdditiveMean(model, offset, scale, is_binary)
        others = tuple(
            AdditiveMean(each, 2.0 * offset - 1.0, 2.0 * scale, is_binary)
            for each in without
        )
        return cls(ConditionalMean(mean, 0.0, 1.0), others, fold)


def fit_policies(
    X: Array,
    rows: LabelledRows,
    model: Any,
    *,
    fold: IntArray,
    rng: Rng,
    n_jobs: int | None = None,
    categorical: tuple[int, ...] = (),
) -> tuple[FoldedPolicy, ...]:
    """Fit each population's probability of treatment to its treatment rows, ``X`` at ``rows``.

    By additive models, in which some columns are codes of categories, or by clones of ``model``,
    which come without fits to folds. ``fold`` is that of each row.
    """
    policies = []
    for k in range(len(rows.names)):
        at = rows.at(TREATMENT, k)
        propensity = 0.5 + 0.5 * rows.label[at]
        weight = rows.weight[at]
        if propensity.min() == propensity.max():
            policies.append(FoldedPolicy.constant(float(propensity[0]), fold[at]))
        elif model is None:
            unit = None if rows.unit is None else rows.unit[at]
            count = None if rows.count is None else rows.count[at]
            one, family, *coding = _coded(X[at], propensity, weight, unit, count)
            found = average_specifications(
                one,
                family,
                MEAN_SPECIFICATIONS,
                fold[at],
                categorical=categorical,
                n_jobs=n_jobs,
                rng=rng,
            )
            is_binary = isinstance(family, BernoulliFamily)
            policy = FoldedPolicy.of_specifications(
                *found, *coding, is_binary=is_binary
            )
            policies.append(policy)
        else:
            mean = fit_conditional_mean(
                seeded_clone(model, rng), X[at], propensity, weight
            )
            policies.append(FoldedPolicy(mean, (), np.zeros(len(at), dtype=np.int64)))
    return tuple(policies)


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
        return np.asarray(
            (2.0 / self.policies.shape[1]) * self.policies.sum(axis=1) - 1.0
        )


def cross_fit(
    rows: LabelledRows, *, policy_model: Any, outcome_model: Any, n_folds: int, rng: Rng
) -> Nuisances:
    """Fit the policies and the outcome means on all folds but one, and read them off that one.

    A model that is None is an additive one. Costs ``n_folds`` fits of each model, of which there
    are two for each population.
    """
    check_folds(rows, n_folds, (OUTCOME, TREATMENT))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    fold = rows.deal(n_folds, rng)

    def mean(kind: str, k: int, model: Any) -> Array:
        # Models that are given keep their seed over the folds.
        own = None if model is None else seeded_clone(model, rng)
        return cross_fitted_mean(rows, rows.at(kind, k), own, Z, fold, rng)

    each = range(len(rows.names))
    propensities = [(mean(TREATMENT, k, policy_model) + 1.0) / 2.0 for k in each]
    means = [mean(OUTCOME, k, outcome_model) for k in each]
    return Nuisances(np.column_stack(propensities), np.mean(means, axis=0))


def cross_fitted_gap(rows: LabelledRows, model: Any, n_folds: int) -> Array:
    """Return e_1(x) - e_2(x) at every row, from models that did not see the row."""
    check_folds(rows, n_folds, (TREATMENT,))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    rng = check_random_state(0)
    fold = rows.deal(n_folds, rng)
    first, second = (
        cross_fitted_mean(rows, rows.at(TREATMENT, k), model, Z, fold, rng)
        for k in (0, 1)
    )
    return (first - second) / 2.0


def cross_fitted_mean(
    rows: LabelledRows, cell: IntArray, model: Any, D: Array, fold: IntArray, rng: Rng
) -> Array:
    """Return the mean label of one cell at every row, each fold's from the other folds."""
    means = means_without_folds(rows, cell, model, D, fold, n_jobs=None, rng=rng)
    mean = np.empty(len(D))
    for j, estimate in enumerate(means):
        mean[fold == j] = estimate(D[fold == j])
    return mean


def means_without_folds(
    rows: LabelledRows,
    cell: IntArray,
    model: Any,
    D: Array,
    fold: IntArray,
    *,
    n_jobs: int | None,
    rng: Rng,
) -> list[Callable[[Array], Array]]:
    """Return the mean label of one cell as fitted without each fold in turn."""
    label = rows.label[cell]
    weight = rows.weight[cell]
    n_folds = int(fold.max()) + 1
    low = float(label[0])
    if label.min() == label.max():
        return [ConditionalMean(None, low, low)] * n_folds
    if model is None:
        cross_fitted = cross_fit_additive_means(
            D[cell], label, weight, fold[cell], n_jobs=n_jobs, rng=rng
        )
        return list(cross_fitted)
    means: list[Callable[[Array], Array]] = []
    for j in range(n_folds):
        at = fold[cell] != j
        copy = seeded_clone(model, rng)
        means.append(fit_conditional_mean(copy, D[cell[at]], label[at], weight[at]))
    return means


def check_folds(rows: LabelledRows, n_folds: int, kinds: tuple[str, ...]) -> None:
    """Refuse fewer than two folds, and more than the smallest table of some kinds has rows."""
    for kind in kinds:
        fewest = min(len(rows.at(kind, k)) for k in range(len(rows.names)))
        if not 2 <= n_folds <= fewest:
            raise InputError(
                f"n_folds={n_folds} must lie between 2 and the rows of the smallest {kind} table, "
                f"{fewest}."
            )
