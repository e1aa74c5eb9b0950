"""The gain by score of any estimator, by fitting it again without each fold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import RandomState
from unjoined._validation import check_count
from unjoined.data import column_names
from unjoined.errors import InputError
from unjoined.estimators.candidates import take_rows
from unjoined.metrics import GainByScore, evaluation_rows, labelled_rows


def record_gain(
    model: Any, data: Mapping[str, Any], *, n_folds: int = 5, random_state: RandomState = None
) -> GainByScore:
    """Measure what lists by a fitted model gain, and keep it with the model as ``gain_``.

    `Uplift` and `MixtureUplift` have it from their fit. Any other estimator is fitted again
    without each fold, so that people are ranked by fits that have not seen their labels.

    Parameters
    ----------
    model : estimator
        Fitted to ``data``. It gets the attribute ``gain_``; a clone of it is fitted.
    data : SeparateLabels or mapping
        The rows it was fitted to.
    n_folds : int, default=5
        Folds, dealt table by table.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Returns
    -------
    GainByScore
        Costs ``n_folds`` fits of the estimator, and those of policies and outcome models.

    Raises
    ------
    InputError
        There are fewer rows in a table than folds, or fewer than two folds.

    Examples
    --------
    >>> from unjoined import WeightedUplift, record_gain
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = WeightedUplift(basis="linear").fit(data)
    >>> record_gain(model, data, random_state=0)
    GainByScore(10 bins, speaks for ... of people)
    """
    check_is_fitted(model)
    if check_count("n_folds", n_folds) < 2:
        raise InputError(f"n_folds must be 2 or above, got {n_folds}.")
    given, rng = dict(data), check_random_state(random_state)
    labels = (given["y"], given["kind"], given["population"])
    rows, used = labelled_rows(given["X"], *labels, given.get("sample_weight"))
    evaluation = evaluation_rows(rows, n_folds=n_folds, rng=rng)
    columns = {name: np.asarray(c) for name, c in given.items() if name != "X" and c is not None}
    X = given["X"] if column_names(given["X"]) is not None else np.asarray(given["X"])
    whole = {"X": X, **columns}
    score, fold = np.empty(len(rows.label)), np.full(len(used), -1)
    fold[used] = evaluation.fold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has said what there is to say
        for j in range(n_folds):
            again = clone(model).fit(**take_rows(whole, np.flatnonzero(fold != j)))
            held = take_rows(whole, np.flatnonzero(fold == j))
            score[evaluation.fold == j] = again.predict(held["X"])
        predicted = model.predict(take_rows(whole, np.flatnonzero(used))["X"])
    model.gain_ = record = GainByScore.of_rows(evaluation, score, predicted, rows.weight)
    return record
