"""Models that others chose: seeded clones, fitted with weights where they take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from unjoined._typing import Array
from unjoined.errors import InputError

__all__ = ["fit_weighted", "seeded_clone", "takes_weights", "unit_mean"]


def seeded_clone(model: Any, rng: Rng) -> Any:
    """Return a clone whose unset ``random_state`` parameters are drawn from ``rng``."""
    copy = clone(model)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds)


def unit_mean(weight: Array) -> Array:
    """Return positive weights in the same ratios with mean 1, and equal ones as exactly 1."""
    if not len(weight) or weight.min() == weight.max():
        return np.ones(len(weight))
    near_one = weight / weight.max()  # sums of weights as large as 1e308 would overflow
    return np.asarray(near_one / near_one.mean())


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
