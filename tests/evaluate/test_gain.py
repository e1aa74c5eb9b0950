"""What targeting rules earn, and the rule that earns the most."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from unjoined import MinMaxUplift
from unjoined.data import campaign_problem
from unjoined.errors import InputError
from unjoined.evaluate import average_uplift, joint_values
from unjoined.targeting import budget_rule, expected_gain, optimal_rule, profit_rule

pytestmark = pytest.mark.usefixtures("two_folds")

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=60, deadline=None)


def draw(seed, n=12):
    """Eighths, so that ties happen and all sums are exact."""
    rng = np.random.default_rng(seed)
    uplift = rng.integers(-4, 7, n) / 8.0
    value = rng.integers(1, 5, n) / 2.0
    cost = rng.integers(0, 4, n) / 4.0
    return uplift, value, cost


def test_gain_is_the_sum_written_out():
    gain = expected_gain(
        [0.5, -0.25, 2.0], [1.0, 0.5, 0.0], value=[4.0, 2.0, 9.0], cost=[1, 3, 7]
    )
    assert gain.n_rows == 3
    assert gain.n_treated == 1.5
    assert gain.uplift_total == 0.5 - 0.125
    assert gain.revenue == 2.0 - 0.25
    assert gain.cost == 1.0 + 1.5
    assert gain.net == 1.75 - 2.5


def test_figures_per_person_are_totals_divided():
    gain = expected_gain([0.5, 0.25, 1.0, 0.0], [1, 1, 0, 0], value=8.0, cost=1.0)
    assert gain.share_treated == 0.5
    assert gain.uplift_per_row == 0.75 / 4
    assert gain.uplift_per_treated == 0.75 / 2
    assert gain.net_per_row == (6.0 - 2.0) / 4
    assert gain.net_per_treated == (6.0 - 2.0) / 2


def test_nobody_treated_earns_nothing_and_has_no_figure_per_treated():
    gain = expected_gain([0.5, 0.25], [0, 0], value=8.0, cost=1.0)
    assert (gain.net, gain.revenue, gain.cost, gain.net_per_row) == (0.0, 0.0, 0.0, 0.0)
    assert math.isnan(gain.net_per_treated)
    assert math.isnan(gain.uplift_per_treated)


@QUICK
@given(SEEDS)
def test_uplift_per_row_is_the_average_uplift_of_the_rule(seed):
    rng = np.random.default_rng(seed)
    uplift, rule = rng.normal(size=30), rng.random(30)
    expected = average_uplift(uplift, rule).value
    assert_allclose(
        expected_gain(uplift, rule).uplift_per_row, expected, rtol=1e-12, atol=1e-15
    )


@QUICK
@given(SEEDS)
def test_without_value_cost_and_budget_it_is_the_optimal_rule(seed):
    uplift, _, _ = draw(seed)
    assert_array_equal(profit_rule(uplift), optimal_rule(uplift))


@QUICK
@given(SEEDS)
def test_without_budget_it_is_the_optimal_rule_of_the_net_uplift(seed):
    uplift, value, cost = draw(seed)
    expected = optimal_rule(value * uplift - cost)
    assert_array_equal(profit_rule(uplift, value=value, cost=cost), expected)


@QUICK
@given(SEEDS, st.floats(0.0, 6.0))
def test_profit_rule_is_the_optimum_of_the_linear_programme(seed, budget):
    uplift, value, cost = draw(seed)
    rule = profit_rule(uplift, value=value, cost=cost, budget=budget)
    net = value * uplift - cost
    best = linprog(
        -net, A_ub=cost[None, :], b_ub=[budget], bounds=(0, 1), method="highs"
    )
    assert_allclose(net @ rule, -best.fun, atol=1e-8)
    assert cost @ rule <= budget + 1e-9
    assert ((rule >= 0) & (rule <= 1)).all()


@QUICK
@given(SEEDS)
def test_a_budget_that_never_binds_changes_nothing(seed):
    uplift, value, cost = draw(seed)
    free = profit_rule(uplift, value=value, cost=cost)
    enough = float(cost @ free)
    assert_array_equal(profit_rule(uplift, value=value, cost=cost, budget=enough), free)
    assert_array_equal(
        profit_rule(uplift, value=value, cost=cost, budget=2 * enough + 1), free
    )


@QUICK
@given(SEEDS, st.floats(0.0, 6.0), st.floats(0.0, 6.0))
def test_more_budget_never_earns_less(seed, one, other):
    uplift, value, cost = draw(seed)
    nets = [
        expected_gain(
            uplift,
            profit_rule(uplift, value=value, cost=cost, budget=budget),
            value=value,
            cost=cost,
        ).net
        for budget in sorted([one, other])
    ]
    assert nets[0] <= nets[1] + 1e-12


@QUICK
@given(SEEDS, st.floats(0.0, 6.0))
def test_profit_rule_does_not_depend_on_the_row_order(seed, budget):
    uplift, value, cost = draw(seed)
    order = np.random.default_rng(seed).permutation(len(uplift))
    shuffled = profit_rule(
        uplift[order], value=value[order], cost=cost[order], budget=budget
    )
    rule = profit_rule(uplift, value=value, cost=cost, budget=budget)
    assert_allclose(shuffled, rule[order], atol=1e-12)


@QUICK
@given(SEEDS, st.floats(0.0, 6.0))
def test_where_all_that_helps_also_pays_it_is_the_budget_rule(seed, budget):
    """(v u - c) / c and u / c order rows alike if v is one number."""
    rng = np.random.default_rng(seed)
    uplift, cost = rng.normal(size=15), rng.uniform(0.1, 1.0, 15)
    value = 1.001 * float(
        np.max(cost / np.where(uplift > 0, uplift, np.inf), initial=1.0)
    )
    rule = profit_rule(uplift, value=value, cost=cost, budget=budget)
    assert_allclose(rule, budget_rule(uplift, budget, cost=cost), atol=1e-9)


def test_rows_that_cost_nothing_need_no_budget():
    rule = profit_rule([0.2, -0.1, 0.3], cost=[0.0, 0.0, 0.1], budget=0.0)
    assert_array_equal(rule, [1.0, 0.0, 0.0])


def test_a_harmful_outcome_has_a_negative_value():
    """A treatment that lowers cancellations is worth its price."""
    assert_array_equal(profit_rule([-0.2, 0.1], value=-50.0, cost=5.0), [1.0, 0.0])
    assert expected_gain([-0.2, 0.1], [1, 0], value=-50.0, cost=5.0).net == 5.0


def test_money_in_another_currency_changes_no_decision():
    uplift, value, cost = draw(3)
    rule = profit_rule(uplift, value=value, cost=cost, budget=1.0)
    other = profit_rule(uplift, value=4.0 * value, cost=4.0 * cost, budget=4.0)
    assert_array_equal(other, rule)


@pytest.mark.statistical
def test_predictions_that_chose_overstate_the_gain_and_a_trial_kept_aside_does_not():
    """Twenty fits on small tables: the promise is too good by more than three standard errors.

    The trial's estimate of the same rules differs from the truth by less than four of its own.
    """
    problem = campaign_problem()
    customers = problem.draw_joint(4000, random_state=500)
    price = {"value": 20.0, "cost": 1.0}
    too_much, too_little = [], []
    for seed in range(20):
        data, trial = (
            problem.draw(500, random_state=seed),
            problem.draw_joint(4000, random_state=seed),
        )
        # Hardly any shrinkage and the noise of uncentred labels: an estimate that overfits.
        rough = {
            "basis": "gaussian",
            "width": "median",
            "ridge_f": 1e-2,
            "ridge_g": 1e-2,
        }
        model = MinMaxUplift(**rough, center=False, n_jobs=1, random_state=seed).fit(
            **data
        )
        uplift = model.predict(customers.X)
        rule = profit_rule(uplift, **price)
        true = expected_gain(customers.uplift, rule, **price).net_per_row
        too_much.append(expected_gain(uplift, rule, **price).net_per_row - true)
        rule = profit_rule(model.predict(trial.X), **price)
        values = joint_values(trial.y, trial.treatment, propensity=trial.propensity)
        true = expected_gain(trial.uplift, rule, **price).net_per_row
        too_little.append(expected_gain(values, rule, **price).net_per_row - true)
    error = np.std([too_much, too_little], axis=1, ddof=1) / np.sqrt(20)
    assert np.mean(too_much) > 3.0 * error[0]
    assert abs(np.mean(too_little)) < 4.0 * error[1]


# Messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [-1.0, [0.5, -2.0]])
def test_costs_must_not_be_negative(cost):
    with pytest.raises(
        InputError, match=r"cost must be 0 or above, got \[-.*not as a negative"
    ):
        expected_gain([1.0, 2.0], [0, 1], cost=cost)
    with pytest.raises(InputError, match=r"cost must be 0 or above, got"):
        profit_rule([1.0, 2.0], cost=cost)


@pytest.mark.parametrize("name", ["value", "cost"])
def test_value_and_cost_are_one_number_or_one_per_row(name):
    with pytest.raises(
        InputError, match=rf"{name} must be one number or one per row \(2\), got 3"
    ):
        profit_rule([1.0, 2.0], **{name: [1.0, 1.0, 1.0]})
    with pytest.raises(InputError, match=rf"{name} must be finite, got nan"):
        expected_gain([1.0, 2.0], [0, 1], **{name: np.nan})


def test_budget_must_be_finite_and_not_negative():
    for budget in (-1.0, np.nan, np.inf):
        with pytest.raises(
            InputError, match="budget must be a finite number, 0 or above"
        ):
            profit_rule([1.0, 2.0], cost=1.0, budget=budget)


def test_rules_are_probabilities_of_the_same_rows():
    with pytest.raises(InputError, match="uplift has 2, rule has 3"):
        expected_gain([1.0, 2.0], [0, 1, 1])
    with pytest.raises(InputError, match=r"rule must hold probabilities in \[0, 1\]"):
        expected_gain([1.0, 2.0], [0.5, 1.5])


def test_uplift_must_be_finite():
    with pytest.raises(InputError, match="uplift must be finite, got nan"):
        profit_rule([np.nan, 1.0])
