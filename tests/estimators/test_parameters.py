"""Parameters are declared once per class, and refused in one way."""

import numpy as np
import pytest

import unjoined
from unjoined import DensityUplift, MinMaxUplift, PlugInUplift
from unjoined.data import paper_problem
from unjoined.errors import InputError
from unjoined.estimators.base import UpliftEstimator

DATA = paper_problem(b=5.0).draw(100, random_state=0)
# What these may be is said by the function that uses them.
ELSEWHERE = {"categorical_features", "n_jobs", "random_state", "shift", "shift_clip"}
CLASSES = [
    value
    for value in vars(unjoined).values()
    if isinstance(value, type)
    and issubclass(value, UpliftEstimator)
    and value._parameters
]


def test_every_parameter_is_declared_and_every_default_is_allowed():
    for estimator in CLASSES:
        model = estimator()
        assert set(model.get_params(deep=False)) - ELSEWHERE <= set(
            estimator._parameters
        )
        assert all(hasattr(model, name) for name in estimator._parameters)
        model._check_parameters()


def test_the_message_says_what_was_expected_and_what_was_found():
    cases = (
        (MinMaxUplift(standardize="no"), "standardize must be True or False, got 'no'"),
        (
            PlugInUplift(outcome_model="ridge"),
            "outcome_model must be None or a scikit-learn",
        ),
        (
            PlugInUplift(treatment_model=dict),
            "treatment_model must be None or a scikit-learn",
        ),
        (DensityUplift(n_folds=1), "n_folds must be 2 or above, got 1"),
    )
    for model, message in cases:
        with pytest.raises(InputError, match=message):
            model.fit(**DATA)


def test_flags_of_numpy_are_flags():
    of_numpy, plain = (
        MinMaxUplift(standardize=flag, random_state=0).fit(**DATA).predict(DATA["X"])
        for flag in (np.bool_(False), False)
    )
    np.testing.assert_array_equal(of_numpy, plain)
