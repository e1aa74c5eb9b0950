"""The accuracy study: its measure, its problems, and that one draw of it runs."""

import numpy as np
import pytest
from problems import PROBLEMS
from trials import (
    DEFAULT,
    JOINT,
    METHODS,
    PAPER,
    SLOW,
    oracle_share,
    run_trial,
    t_learner,
)


def test_share_is_one_for_the_truth_and_nought_on_average_for_a_random_order():
    rng = np.random.RandomState(0)
    uplift = rng.standard_normal(500) + 0.3
    assert oracle_share(np.exp(uplift), uplift) == pytest.approx(1.0)
    draws = [oracle_share(rng.permutation(500), uplift) for _ in range(400)]
    assert abs(np.mean(draws)) < 4.0 * np.std(draws) / 20.0


def test_share_against_the_textbook_area():
    """Area by trapezoids is replaced by a mean of cumulative gains; the difference is 1 / n."""
    rng = np.random.RandomState(1)
    uplift, score = rng.standard_normal(2000), rng.standard_normal(2000)

    def area(order):
        curve = np.concatenate([[0.0], np.cumsum(uplift[order])]) / 2000
        return np.sum((curve[1:] + curve[:-1]) / 2.0) / 2000

    chance = uplift.mean() / 2.0
    slow = (area(np.argsort(-score)) - chance) / (area(np.argsort(-uplift)) - chance)
    assert oracle_share(score, uplift) == pytest.approx(slow, abs=4.0 / 2000)


def test_every_problem_has_varying_uplift_and_different_policies():
    for problem in PROBLEMS.values():
        data = problem.draw(200, 0)
        joint = problem.make().draw_joint(5000, random_state=0)
        assert np.var(joint.uplift) > 0.0
        gap = problem.make().policy_gap(joint.X)
        assert np.sqrt(np.mean(gap**2)) > 0.05
        assert (len(np.unique(joint.y)) == 2) == problem.is_binary
        assert 790 <= data.n_rows - 200 * problem.target <= 810


@pytest.mark.slow
def test_one_draw_scores_every_method_and_repeats_itself():
    problem = PROBLEMS["plain real"]
    trials = list(run_trial(problem, 60, seed=0, slow=False))
    assert {t.method for t in trials} == set(METHODS) - set(SLOW)
    assert {DEFAULT, JOINT, *PAPER} <= {t.method for t in trials}
    again = list(run_trial(problem, 60, seed=0, slow=False))
    for one, two in zip(trials, again, strict=True):
        assert (one.method, one.share, one.error) == (two.method, two.share, two.error)


def test_joint_labels_recover_a_linear_truth():
    problem = PROBLEMS["rotated"].make()
    test = problem.draw_joint(2000, random_state=5)
    estimate = t_learner(problem, 4000, 0, test, is_binary=True)
    assert oracle_share(estimate, test.uplift) > 0.97
