"""Conditional means of one cell's label, by any scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from unjoined._typing import Array
from unjoined.errors import InputError

__all__ = ["ConditionalMean", "fit_conditional_mean"]


@dataclass(frozen=True, slots=True)
class ConditionalMean:
    """An estimate of E[label | x]: ``low + (high - low) * P(high | x)`` for a classifier."""

    model: Any  # a fitted estimator, or None if the label never varied
    low: float
    high: float

    def __call__(self, X: Array) -> Array:
        """Return the conditional mean at each row, in the label's units."""
        if self.model is None:
            return np.full(len(X), self.low)
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
        _fit_weighted(model, X, (label == high).astype(np.int64), weight)
    else:
        _fit_weighted(model, X, label, weight)
    return ConditionalMean(model, low, high)


def _fit_weighted(model: Any, X: Array, label: Any, weight: Array) -> None:
    if np.all(weight == weight[0]):  # equal weights say nothing; any model can be fitted
        model.fit(X, label)
    elif isinstance(model, Pipeline):
        model.fit(X, label, **{f"{model.steps[-1][0]}__sample_weight": weight})
    elif has_fit_parameter(model, "sample_weight"):
        model.fit(X, label, sample_weight=weight)
    else:
        raise InputError(
            f"sample_weight was given, but {type(model).__name__}.fit takes no weights. Choose a "
            "model that does, or leave sample_weight out."
        )
