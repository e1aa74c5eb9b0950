"""Simulated problems: draws follow the laws that are written down."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from scipy.stats import chi2, norm

from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.errors import InputError

# Every statistical test below fails by chance with at most this probability, its own
# comparisons taken together (Bonferroni); seeds are fixed besides.
LEVEL = 1e-4
N = 40_000


def assert_unbiased(values, mean, variance, bins, *, n_tests):
    """Refuse values whose sums over bins are not those of independent draws.

    Given the features, the residuals of one bin add up to a variable of mean 0 and known
    variance, so the squared standardised sums are chi-square with one degree per bin.
    """
    residual = np.bincount(bins, weights=values - mean)
    spread = np.bincount(bins, weights=variance)
    assert spread.min() > 25.0, "a bin is too small for a normal approximation"
    statistic = np.sum(residual**2 / spread)
    assert statistic < chi2.isf(LEVEL / n_tests, len(spread))


def shifted_problem(**options):
    """Return a problem whose populations have feature means -1 and 2."""
    return SimulatedProblem(
        features={
            "A": lambda n, rng: rng.standard_normal((n, 1)) - 1.0,
            "B": lambda n, rng: rng.standard_normal((n, 1)) + 2.0,
        },
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: treated + 0.0 * X[:, 0],
        **options,
    )


@pytest.mark.parametrize(
    "problem", [paper_problem(), campaign_problem()], ids=["paper", "mail"]
)
def test_the_same_seed_draws_the_same_bits(problem):
    one, same, other = (
        problem.draw(50, n_target=10, random_state=s) for s in (3, 3, 4)
    )
    for name in ("X", "y", "treatment", "population"):
        assert_array_equal(one[name], same[name])
    assert not np.array_equal(one.X, other.X)
    joint = [problem.draw_joint(50, random_state=3) for _ in range(2)]
    for name in ("X", "y", "treatment", "propensity", "uplift"):
        assert_array_equal(getattr(joint[0], name), getattr(joint[1], name))


def test_no_row_is_drawn_twice():
    data = paper_problem().draw(500, n_target=100, random_state=0)
    assert len(np.unique(data.X, axis=0)) == data.n_rows


def test_tables_have_the_size_asked_and_target_rows_come_on_top():
    data = paper_problem().draw(20, n_target=7, random_state=0)
    assert [cell.n_rows for cell in data.summary()] == [20, 20, 20, 20, 7]


def test_a_mapping_makes_tables_of_unequal_sizes():
    sizes = {
        ("outcome", "1"): 30,
        ("outcome", "2"): 40,
        ("treatment", "1"): 50,
        ("treatment", "2"): 60,
    }
    data = paper_problem().draw(sizes, random_state=0)
    assert {(c.kind, c.population): c.n_rows for c in data.summary()} == sizes


def test_a_size_may_be_a_number_of_numpy():
    assert paper_problem().draw(np.int64(25), random_state=0).n_rows == 100


@pytest.mark.statistical
def test_features_of_the_paper_have_covariance_ten_times_the_identity():
    """Sums of squares over 10 n are chi-square; means and cross products are normal."""
    X = paper_problem().draw_joint(N, random_state=0).X
    alpha = LEVEL / 5
    for column in X.T:
        low, high = chi2.isf([1 - alpha / 2, alpha / 2], N)
        assert low < np.sum(column**2) / 10.0 < high
        assert abs(column.sum()) < norm.isf(alpha / 2) * np.sqrt(10.0 * N)
    # x1 x2 has mean 0 and variance 100.
    assert abs(X[:, 0] @ X[:, 1]) < norm.isf(alpha / 2) * np.sqrt(100.0 * N)


@pytest.mark.statistical
@pytest.mark.parametrize("b", [0.0, 5.0])
def test_treatments_of_the_paper_follow_both_policies(b):
    data = paper_problem(b).draw(N, random_state=1)
    for name, shift in (("1", 0.0), ("2", b)):
        at = data.rows("treatment", name)
        x2 = data.X[at, 1] + shift
        e = expit(x2)
        bins = np.digitize(x2, [-2.0, -1.0, 0.0, 1.0, 2.0])
        assert set(data.treatment[at]) == {0.0, 1.0}
        assert_unbiased(data.treatment[at], e, e * (1 - e), bins, n_tests=2)


@pytest.mark.statistical
def test_outcomes_of_the_paper_mix_both_arms_by_the_policy():
    """E_k[y | x] is the sum over t of E[y | x, t] p_k(t | x), with y in {-1, +1}."""
    data = paper_problem(5.0).draw(N, random_state=2)
    for name, shift in (("1", 0.0), ("2", 5.0)):
        at = data.rows("outcome", name)
        x1, x2 = data.X[at].T
        e = expit(x2 + shift)
        treated, control = (2 * expit(10 * x1 + s * 10 * x2) - 1 for s in (-1, 1))
        mean = e * treated + (1 - e) * control
        bins = 2 * (x1 > 0) + (x2 > 0)
        assert set(data.y[at]) == {-1.0, 1.0}
        assert_unbiased(data.y[at], mean, 1 - mean**2, bins, n_tests=2)


@pytest.mark.statistical
@pytest.mark.parametrize("arm", [0.0, 1.0])
def test_outcomes_of_one_arm_follow_the_logistic_model(arm):
    joint = paper_problem().draw_joint(N, policy=arm, random_state=3)
    s = 10 * joint.X[:, 0] + (10 - 20 * arm) * joint.X[:, 1]
    p = expit(s)
    assert_array_equal(joint.treatment, np.full(N, arm))
    bins = np.digitize(s, [-1.0, 0.0, 1.0])
    assert_unbiased(joint.y, 2 * p - 1, 4 * p * (1 - p), bins, n_tests=1)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("problem", "square"),
    [
        (paper_problem(), lambda mean: np.ones_like(mean)),
        (campaign_problem(), lambda mean: mean),
    ],
    ids=["paper", "mail"],
)
def test_the_true_uplift_is_the_difference_of_the_arms_of_a_trial(problem, square):
    """In a trial of even odds 2 y (2 t - 1) has mean u(x) and second moment 2 E[y_1^2 + y_0^2]."""
    joint = problem.draw_joint(N, random_state=4)
    u = problem.uplift(joint.X)
    assert_array_equal(joint.uplift, u)
    assert_array_equal(joint.propensity, np.full(N, 0.5))
    means = [problem.outcome_mean(joint.X, np.full(N, arm)) for arm in (0.0, 1.0)]
    second = 2 * (square(means[0]) + square(means[1]))
    bins = np.searchsorted(np.quantile(u, [0.25, 0.5, 0.75]), u)
    values = 2 * joint.y * (2 * joint.treatment - 1)
    assert_unbiased(
        values, u, second - u**2, np.unique(bins, return_inverse=True)[1], n_tests=1
    )


@pytest.mark.statistical
def test_a_joint_draw_follows_the_policy_that_is_named():
    problem = paper_problem(5.0)
    for policy in ("2", problem.policies["2"]):
        joint = problem.draw_joint(N, policy=policy, random_state=5)
        e = expit(joint.X[:, 1] + 5.0)
        assert_array_equal(joint.propensity, e)
        bins = np.digitize(joint.X[:, 1], [-6.0, -5.0, -4.0])
        assert_unbiased(joint.treatment, e, e * (1 - e), bins, n_tests=2)


def test_without_a_shift_the_policies_have_no_gap():
    X = paper_problem().draw_joint(100, random_state=0).X
    assert_array_equal(paper_problem(0.0).policy_gap(X), np.zeros(100))


def test_the_policy_gap_is_first_minus_second_in_the_order_of_names():
    X = np.array([[0.0, -1.0], [3.0, 2.0]])
    expected = expit(X[:, 1]) - expit(X[:, 1] + 5.0)
    assert_allclose(paper_problem(5.0).policy_gap(X), expected, rtol=1e-15)


def test_the_paper_uplift_is_the_difference_of_two_logistic_means():
    x1, x2 = X = np.array([0.01, 0.02])
    expected = 2 * expit(10 * x1 - 10 * x2) - 2 * expit(10 * x1 + 10 * x2)
    assert_allclose(paper_problem().uplift(X[None]), [expected], rtol=1e-14)


@pytest.mark.statistical
def test_a_law_per_population_shifts_the_features_as_asked():
    """Means of unit-variance rows are normal with variance 1/n; five of them are looked at."""
    problem = shifted_problem(
        target_features=lambda n, rng: rng.standard_normal((n, 1)) + 9.0
    )
    data = problem.draw(N, n_target=N, random_state=6)
    limit = norm.isf(LEVEL / 10) / np.sqrt(N)
    for kind in ("outcome", "treatment"):
        for name, mean in (("A", -1.0), ("B", 2.0)):
            assert abs(data.X[data.rows(kind, name)].mean() - mean) < limit
    assert abs(data.X[data.rows("target")].mean() - 9.0) < limit


def test_target_rows_may_follow_a_law_of_their_own_without_a_shift():
    problem = SimulatedProblem(
        features=lambda n, rng: np.zeros((n, 1)),
        policies=shifted_problem().policies,
        outcome=shifted_problem().outcome,
        outcome_mean=shifted_problem().outcome_mean,
        target_features=lambda n, rng: np.ones((n, 1)),
    )
    data = problem.draw(10, n_target=3, random_state=0)
    assert_array_equal(data.X[:, 0], [0.0] * 40 + [1.0] * 3)
    assert_array_equal(problem.draw_joint(3, random_state=0).X[:, 0], np.ones(3))


def test_a_shift_without_a_target_law_leaves_target_and_joint_rows_undefined():
    problem = shifted_problem()
    assert problem.draw(10, random_state=0).n_rows == 40
    for draw in (
        lambda: problem.draw(10, n_target=1, random_state=0),
        lambda: problem.draw_joint(10, random_state=0),
    ):
        with pytest.raises(
            InputError, match="the problem needs target_features to say whom"
        ):
            draw()


def test_the_campaign_has_finite_named_features_and_two_outcomes():
    problem = campaign_problem()
    data = problem.draw(2000, random_state=0)
    assert np.isfinite(data.X).all()
    assert data.X.shape[1] == len(problem.feature_names)
    assert set(data.y[data.rows("outcome")]) == {0.0, 1.0}
    assert data.populations == sorted(problem.policies)
    for policy in problem.policies.values():
        assert np.all((policy(data.X) > 0.0) & (policy(data.X) < 1.0))


def law(policies):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 1)),
        policies=policies,
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def share(p):
    return lambda X: np.full(len(X), p)


def test_the_gap_of_three_simulated_policies_is_twice_their_spread():
    X = np.zeros((2, 1))
    two, three = {"A": share(0.7), "B": share(0.4)}, {"C": share(0.55)}
    assert law(two).policy_gap(X) == pytest.approx([0.3, 0.3], abs=1e-15)
    expected = 2.0 * np.std([0.7, 0.4, 0.55])
    assert law(two | three).policy_gap(X) == pytest.approx([expected] * 2, abs=1e-15)


def test_a_simulated_problem_of_three_populations_is_drawn():
    problem = law({"A": share(0.7), "B": share(0.4), "C": share(0.0)})
    data = problem.draw(
        {(k, p): 5 for k in ("outcome", "treatment") for p in "ABC"}, n_target=2
    )
    assert [cell.n_rows for cell in data.summary()] == [5] * 6 + [2]
    assert data.treatment[data.rows("treatment", "C")].sum() == 0.0


def test_a_simulated_problem_says_what_is_wrong_with_its_populations():
    with pytest.raises(InputError, match="two populations or more, got 1"):
        law({"A": share(0.5)})
    with pytest.raises(InputError, match=r"named by text, got 1"):
        law({1: share(0.5), 2: share(0.6)})
    problem = law({"A": share(0.5), "B": share(0.6)})
    with pytest.raises(InputError, match=r"no population 'C'; there are 'A', 'B'"):
        problem.draw_joint(5, policy="C")
    with pytest.raises(InputError, match=r"n_per_table lacks \('treatment', 'B'\)"):
        problem.draw({("outcome", "A"): 5, ("outcome", "B"): 5, ("treatment", "A"): 5})
