"""What the parameters of the mixture likelihood may be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import is_classifier

from unjoined._typing import Array, IntArray
from unjoined._validation import (
    OutcomeCoding,
    check_count,
    check_option,
    check_positive,
    check_word_or,
)
from unjoined.errors import InputError, LabelError
from unjoined.estimators._mixture_fit import BERNOULLI, FAMILIES, GAUSSIAN, MEAN
from unjoined.features import Basis, StackedBasis, draw_pool, kernel_size

__all__ = ["check_mixture", "check_scored", "choose_family", "choose_pool"]

ENGINES = ("likelihood", "em")


def check_mixture(model: Any) -> None:
    """Refuse parameters of a `MixtureUplift` that are wrong whatever the rows."""
    check_option("engine", model.engine, ENGINES)
    check_option("family", model.family, ("auto", *FAMILIES))
    if model.engine == "em" and model.outcome_model is None:
        raise InputError(
            "engine='em' needs outcome_model, a scikit-learn estimator that takes "
            "sample_weight, such as LogisticRegression()."
        )
    if model.engine == "em" and model.family == MEAN:
        raise InputError("family='mean' has no likelihood for EM; use engine='likelihood'.")
    if model.engine == "likelihood" and model.outcome_model is not None:
        raise InputError("outcome_model is for engine='em'; leave it out, or set the engine.")
    if isinstance(model.policy_model, str):
        check_option("policy_model", model.policy_model, ["auto"])
    elif not is_classifier(model.policy_model):
        raise InputError(
            f"policy_model must be 'auto' or a classifier, got {model.policy_model!r}."
        )
    if isinstance(model.basis, str):
        check_option("basis", model.basis, ["auto", "linear"])
    elif not isinstance(model.basis, Basis):
        raise InputError(
            f"basis must be a name, or a callable with size and n_features, got {model.basis!r}."
        )
    for width in model.widths:
        check_positive("widths", width)
    check_word_or("n_centers", model.n_centers, "auto", check_count)
    check_word_or("ridge_base", model.ridge_base, "auto", check_positive)
    check_word_or("ridge_effect", model.ridge_effect, "auto", check_positive)
    check_count("n_starts", model.n_starts)
    if check_count("n_folds", model.n_folds) < 2:
        raise InputError(f"n_folds must be at least 2, got {model.n_folds}.")


def choose_family(model: Any, *, is_binary: bool) -> str:
    """Return the law of the outcome: the one asked for, or the one that suits the rows."""
    if model.family == "auto":
        if is_binary:
            return BERNOULLI
        return GAUSSIAN if model.engine == "em" else MEAN
    if model.family == BERNOULLI and not is_binary:
        raise InputError(
            "family='bernoulli' needs an outcome of two values; use 'mean' or 'gaussian'."
        )
    return str(model.family)


def choose_pool(
    model: Any, Z: Array, weight: Array, n_outcomes: int, rng: Rng
) -> tuple[Basis, ...]:
    """Return the functions to choose among at scaled rows, linear ones first."""
    size = kernel_size(n_outcomes) if isinstance(model.n_centers, str) else model.n_centers
    is_auto = isinstance(model.basis, str) and model.basis == "auto"
    factors = tuple(map(float, model.widths)) if is_auto else ()
    pool = draw_pool(Z, factors=factors, n_centers=size, rng=rng, weight=weight)
    if isinstance(model.basis, str):
        return pool
    if model.basis.n_features != Z.shape[1]:
        raise InputError(
            f"the given basis takes {model.basis.n_features} features, but X has {Z.shape[1]}."
        )
    return (*pool, StackedBasis(pool[0], model.basis))


def check_scored(known: list[Any], coding: OutcomeCoding, names: Any, label: Array) -> IntArray:
    """Return the population of each outcome row to score as its place among the known ones."""
    if len(label) == 0:
        raise LabelError("there are no outcome rows to score; pass some with their labels.")
    index = np.full(len(names), -1, dtype=np.int64)
    for k, name in enumerate(known):
        index[names == name] = k
    if (index < 0).any():
        raise LabelError(
            "outcome rows of populations that fit has not seen: "
            f"{sorted({*names[index < 0].tolist()})}; known are {known}."
        )
    if coding.is_binary:
        other = np.abs(np.abs(label - coding.offset) - coding.scale) > 1e-9 * coding.scale
        if other.any():
            low, high = coding.offset - coding.scale, coding.offset + coding.scale
            raise LabelError(
                f"fit has seen the outcomes {low:g} and {high:g} only, but y holds "
                f"{float(label[other][0]):g} in an outcome row. Score the outcome that was fitted."
            )
    return index
