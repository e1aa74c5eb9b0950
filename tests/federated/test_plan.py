"""Plans: numbers that make no sense are refused before anybody adds up a row."""

import math

import numpy as np
import pytest

from unjoined.errors import InputError
from unjoined.federated import fourier_plan

AGE = {"age": (45.0, 15.0)}
NAMES = ["north", "south"]


def test_a_typical_value_that_is_no_finite_number_is_refused():
    for typical in (math.nan, math.inf, -math.inf, "much", None):
        with pytest.raises(
            InputError, match="typical value of age must be a finite number"
        ):
            fourier_plan({"age": (typical, 15.0)}, NAMES)


def test_a_spread_that_is_no_finite_number_above_0_is_refused():
    for spread in (math.nan, math.inf, 0.0, -1.0, "wide", None):
        with pytest.raises(
            InputError, match="spread of age must be a finite number above 0"
        ):
            fourier_plan({"age": (45.0, spread)}, NAMES)


def test_a_feature_needs_a_pair_of_numbers():
    for entry in (3.0, (1.0,), (1.0, 2.0, 3.0), "45", None):
        with pytest.raises(
            InputError, match="feature 'age' needs a typical value and a spread"
        ):
            fourier_plan({"age": entry}, NAMES)


def test_a_width_that_is_no_finite_number_above_0_is_refused():
    for width in (math.nan, math.inf, 0.0, -1.0):
        with pytest.raises(InputError, match="width must be a finite number above 0"):
            fourier_plan(AGE, NAMES, width=width)


def test_outcome_values_that_are_no_two_finite_numbers_are_refused():
    for values in ((0.0, math.nan), (-math.inf, 1.0), (1.0, 1.0), (1.0,), 3.0):
        with pytest.raises(
            InputError, match=r"outcome_values must be (a finite number|two different)"
        ):
            fourier_plan(AGE, NAMES, outcome_values=values)


def test_populations_without_two_different_names_are_refused():
    for names in ("ab", ["a"], ["a", "a"], ["a", "b", "a"], ["", "b"], 3):
        with pytest.raises(InputError, match="a plan needs two populations"):
            fourier_plan(AGE, names)


def test_features_without_a_name_are_refused():
    for features in ({}, {"": (0.0, 1.0)}, {3: (0.0, 1.0)}):
        with pytest.raises(InputError, match="a plan needs one feature or more"):
            fourier_plan(features, NAMES)


def test_groups_that_cannot_be_held_out_in_turn_are_refused():
    for n_groups in (0, 1, 1001, 2.0, True):
        with pytest.raises(InputError, match="n_groups must be"):
            fourier_plan(AGE, NAMES, n_groups=n_groups)


def test_whole_numbers_of_any_kind_will_do():
    plan = fourier_plan(
        {"age": (np.int64(45), np.float32(15))}, NAMES, outcome_values=(0, 1)
    )
    assert plan.scaling.mean.tolist() == [45.0]
    assert plan.coding.offset == 0.5
