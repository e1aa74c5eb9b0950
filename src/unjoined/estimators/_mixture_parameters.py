"""What the parameters of the mixture likelihood may be."""

from __future__ import annotations

from typing import Any

from sklearn.base import is_classifier

from unjoined._validation import check_count, check_option, check_positive, check_word_or
from unjoined.errors import InputError
from unjoined.estimators._mixture_fit import FAMILIES, MEAN
from unjoined.features import Basis

__all__ = ["check_mixture"]

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
