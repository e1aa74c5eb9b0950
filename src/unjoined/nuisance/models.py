"""Conditional means of labels, by additive models or by models that others chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from unjoined._typing import Array
from unjoined._validation import TREATMENT, unit_mean
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.nuisance.additive import AdditiveMean, fit_additive_mean


def seeded_clone(model: Any, rng: Rng) -> Any:
    """Return a clone whose unset ``random_state`` parameters are drawn from ``rng``."""
    copy = clone(model)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds)


def _last(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def takes_weights(model: Any) -> bool:
    """Whether a model, or the last step of a pipeline, can be fitted with row weights."""
    return bool(has_fit_parameter(_last(model), "sample_weight"))


def fit_weighted(model: Any, X: Array, label: Any, weight: Array) -> None:
    """Fit ``model`` (which is changed) with row weights, or say that it takes none.

    The model sees weights of mean 1. A penalty counts against the sum of the weights, so that
    any other scale would change what the model penalises.
    """
    if np.all(weight == weight[0]):  # equal weights say nothing; any model can be fitted
        model.fit(X, label)
        return
    last = _last(model)
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
class ConditionalMean:
    """An estimate of E[label | x]: ``low + (high - low) * P(high | x)`` for a classifier."""

    model: Any  # a fitted estimator or `AdditiveMean`, or None if the label never varied
    low: float
    high: float

    def __call__(self, X: Array) -> Array:
        """Return the conditional mean at each row, in the label's units."""
        if self.model is None:
            return np.full(len(X), self.low)
        if isinstance(self.model, AdditiveMean):
            return self.model(X)
        if is_classifier(self.model):
            chance = self.model.predict_proba(X)[:, 1]
            return np.asarray(self.low + (self.high - self.low) * chance)
        return np.asarray(self.model.predict(X), dtype=np.float64)


def fit_conditional_mean(model: Any, X: Array, label: Array, weight: Array) -> ConditionalMean:
    """Fit ``model`` (which is changed: pass a clone) to one cell.

    A label that never varies has a known mean: no model is fitted, so that a population
    where all or none were treated poses no problem to classifiers.
    """
    low, high = float(label.min()), float(label.max())
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


def fit_policies(
    X: Array, rows: LabelledRows, model: Any, *, rng: Rng, n_jobs: int | None = None
) -> tuple[ConditionalMean, ...]:
    """Fit each population's probability of treatment to its treatment rows, ``X`` at ``rows``.

    By additive models, or by clones of ``model``.
    """
    policies = []
    for k in range(len(rows.names)):
        at = rows.at(TREATMENT, k)
        chance, weight = 0.5 + 0.5 * rows.label[at], rows.weight[at]
        if model is None and chance.min() < chance.max():
            mean = fit_additive_mean(X[at], chance, weight, n_jobs=n_jobs, rng=rng)
            policies.append(ConditionalMean(mean, 0.0, 1.0))
        else:
            copy = None if model is None else seeded_clone(model, rng)
            policies.append(fit_conditional_mean(copy, X[at], chance, weight))
    return tuple(policies)
