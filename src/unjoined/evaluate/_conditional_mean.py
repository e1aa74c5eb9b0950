"""Conditional means of one cell's label, by any scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.features import fit_weighted

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
        fit_weighted(model, X, (label == high).astype(np.int64), weight)
    else:
        fit_weighted(model, X, label, weight)
    return ConditionalMean(model, low, high)
