"""Row values from joint labels, targeting rules and what they are worth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from unjoined.errors import InputError, LabelError
from unjoined.evaluate import average_uplift, joint_values
from unjoined.targeting import budget_rule, optimal_rule, top_share_rule

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=60, deadline=None)


def test_joint_values_are_the_inverse_weighted_outcomes():
    values = joint_values([2.0, 3.0, 5.0], [1, 0, 1], propensity=[0.5, 0.25, 0.2])
    assert_allclose(values, [4.0, -4.0, 25.0])


def test_every_treatment_coding_gives_the_same_values():
    for codes in ((0, 1), (False, True), (-1, 1)):
        t = np.array([0, 1, 1, 0, 1])
        y = np.arange(5.0)
        assert_array_equal(joint_values(y, np.array(codes)[t]), joint_values(y, t))


def test_without_propensity_the_mean_is_the_difference_of_arm_means():
    rng = np.random.default_rng(0)
    y, t = rng.normal(size=50), rng.random(50) < 0.3
    assert_allclose(joint_values(y, t).mean(), y[t].mean() - y[~t].mean())


def test_values_average_to_the_uplift_over_all_treatments():
    """Summed over both treatments with their probabilities, the value is y(1) - y(0)."""
    y1, y0, e = np.array([3.0, 1.0]), np.array([1.0, 4.0]), np.array([0.2, 0.7])
    treated = joint_values(y1, [1, 1], propensity=e)
    untreated = joint_values(y0, [0, 0], propensity=e)
    assert_allclose(e * treated + (1 - e) * untreated, y1 - y0)


def test_average_uplift_is_the_mean_of_value_times_rule():
    values, rule = np.array([1.0, -2.0, 4.0]), np.array([1.0, 0.5, 0.25])
    got = average_uplift(values, rule)
    assert_allclose(got.value, (1 - 1 + 1) / 3)
    assert_allclose(got.standard_error, np.std(values * rule, ddof=1) / np.sqrt(3))


@QUICK
@given(SEEDS)
def test_no_rule_beats_the_optimal_one(seed):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=20).round(1)
    best = average_uplift(u, optimal_rule(u)).value
    for _ in range(10):
        assert average_uplift(u, rng.random(20)).value <= best + 1e-12
        assert average_uplift(u, rng.random(20) < 0.5).value <= best + 1e-12


def test_optimal_rule_treats_rows_of_zero_uplift():
    assert_array_equal(optimal_rule([0.0, -1e-300, 1e-300]), [1.0, 0.0, 1.0])


@QUICK
@given(SEEDS, st.floats(0.0, 1.0))
def test_top_share_rule_treats_exactly_the_share_and_the_best(seed, share):
    u = np.random.default_rng(seed).integers(-3, 4, size=25) / 2.0
    rule = top_share_rule(u, share)
    assert_allclose(rule.mean(), share, atol=1e-12)
    assert ((rule >= 0) & (rule <= 1)).all()
    best_first = np.argsort(-u)
    assert (np.diff(rule[best_first]) <= 0).all()
    # Equal uplift, equal probability; hence no dependence on the row order.
    for level in np.unique(u):
        assert np.unique(rule[u == level]).size == 1


@QUICK
@given(SEEDS, st.floats(0.0, 25.0))
def test_budget_rule_is_the_optimum_of_the_linear_programme(seed, budget):
    rng = np.random.default_rng(seed)
    u = rng.integers(-3, 6, size=12) / 4.0
    cost = rng.integers(1, 5, size=12) / 2.0
    rule = budget_rule(u, budget, cost=cost)
    best = linprog(-u, A_ub=cost[None, :], b_ub=[budget], bounds=(0, 1), method="highs")
    assert_allclose(u @ rule, -best.fun, atol=1e-8)
    assert cost @ rule <= budget + 1e-9
    assert ((rule >= 0) & (rule <= 1)).all()


@QUICK
@given(SEEDS, st.floats(0.0, 12.0))
def test_budget_rule_does_not_depend_on_the_row_order(seed, budget):
    rng = np.random.default_rng(seed)
    u, cost = rng.integers(-2, 4, size=15) / 4.0, rng.integers(1, 3, size=15) / 2.0
    order = rng.permutation(15)
    shuffled = budget_rule(u[order], budget, cost=cost[order])
    assert_allclose(shuffled, budget_rule(u, budget, cost=cost)[order], atol=1e-12)


def test_budget_in_rows_with_equal_costs_is_a_top_share():
    u = np.array([0.5, 0.1, 0.3, 0.3, 0.9])
    assert_allclose(budget_rule(u, 2.5), top_share_rule(u, 0.5))


def test_budget_is_left_over_rather_than_spent_on_harm():
    assert_array_equal(budget_rule([0.2, -0.1, 0.0], 3.0), [1.0, 0.0, 0.0])
    assert_array_equal(budget_rule([-0.2, -0.1], 3.0), [0.0, 0.0])


# Messages -------------------------------------------------------------------------------


def test_propensity_must_lie_strictly_inside():
    for propensity in (0.0, 1.0, [0.5, 1.2], [-0.1, 0.5]):
        with pytest.raises(
            InputError, match="propensity must lie strictly between 0 and 1, got"
        ):
            joint_values([1.0, 2.0], [0, 1], propensity=propensity)


def test_propensity_needs_one_entry_per_row():
    with pytest.raises(InputError, match=r"one number or one per row \(2\), got 3"):
        joint_values([1.0, 2.0], [0, 1], propensity=[0.5, 0.5, 0.5])


def test_other_treatment_codes_are_refused():
    for codes in ([0, 1, 2], [-1, 0, 1], [2, 3, 2]):
        with pytest.raises(
            LabelError, match=r"must be coded 0/1, False/True or -1/\+1, got"
        ):
            joint_values([1.0, 2.0, 3.0], codes)


def test_one_arm_has_no_share_to_use_as_propensity():
    for treatment in ([1, 1], [0, 0], [-1, -1]):
        with pytest.raises(
            LabelError, match="must hold treated and untreated rows, got"
        ):
            joint_values([1.0, 2.0], treatment)


def test_mismatched_lengths_are_named():
    with pytest.raises(InputError, match="y has 3, treatment has 2"):
        joint_values([1.0, 2.0, 3.0], [0, 1])
    with pytest.raises(InputError, match="values has 3, rule has 2"):
        average_uplift([1.0, 2.0, 3.0], [0, 1])


@pytest.mark.parametrize("rule", [[0.5, 1.5], [-0.1, 0.5]])
def test_rules_are_probabilities(rule):
    with pytest.raises(InputError, match=r"rule must hold probabilities in \[0, 1\]"):
        average_uplift([1.0, 2.0], rule)


def test_share_outside_zero_and_one_is_refused():
    for share in (-0.1, 1.01, np.nan):
        with pytest.raises(InputError, match=r"share must lie in \[0, 1\], got"):
            top_share_rule([1.0, 2.0], share)


def test_costs_must_be_positive():
    for cost in (0.0, -1.0, [1.0, -2.0]):
        with pytest.raises(InputError, match="cost must be positive, got"):
            budget_rule([1.0, 2.0], 1.0, cost=cost)


def test_costs_need_one_entry_per_row():
    with pytest.raises(
        InputError, match=r"cost must be one number or one per row \(2\), got 3"
    ):
        budget_rule([1.0, 2.0], 1.0, cost=[1.0, 1.0, 1.0])


def test_budget_must_be_finite_and_not_negative():
    for budget in (-1.0, np.nan, np.inf):
        with pytest.raises(
            InputError, match="budget must be a finite number, 0 or above"
        ):
            budget_rule([1.0, 2.0], budget)


def test_empty_input_is_refused():
    with pytest.raises(InputError, match="is empty"):
        average_uplift([], [])
    with pytest.raises(InputError, match="is empty"):
        optimal_rule([])
