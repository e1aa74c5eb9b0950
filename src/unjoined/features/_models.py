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

__all__ = ["fit_weighted", "seeded_clone"]


def seeded_clone(model: Any, rng: Rng) -> Any:
    """Return a clone whose unset ``random_state`` parameters are drawn from ``rng``."""
    copy = clone(model)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds)


def fit_weighted(model: Any, X: Array, label: Any, weight: Array) -> None:
    """Fit ``model`` (which is changed) with row weights, or say that it takes none."""
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
