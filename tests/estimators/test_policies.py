"""Policies: known ones are found by additive models, given classifiers are used as they are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from unjoined.data.rows import label_rows, separate_labels
from unjoined.model.regressors import cross_fit, fit_policies

pytestmark = pytest.mark.usefixtures("two_folds")


def linear(X):
    return expit(0.4 + X[:, 0] - 0.5 * X[:, 1])


def wave(X):
    return expit(3.0 * np.sin(1.5 * X[:, 0]) + X[:, 1])


def product(X):
    return expit(2.0 * np.sign(X[:, 0] * X[:, 1]))


def constant(p):
    return lambda X: np.full(len(X), p)


def draw(first, second, n, seed=0, weight=None):
    """Treatment tables of two policies, and a few outcome rows that no policy looks at."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n + 8, 2))
    kind = np.repeat(["treatment", "outcome"], [2 * n, 8])
    population = np.r_[np.repeat([0, 1], n), np.tile([0, 1], 4)]
    propensity = np.where(population == 0, first(X), second(X))
    y = np.where(kind == "treatment", rng.random(len(X)) < propensity, X[:, 0])
    return label_rows(
        X, **separate_labels(y, kind), population=population, sample_weight=weight
    )


def fit(rows, model=None, seed=0, n_jobs=1):
    rng = np.random.RandomState(seed)
    fold = rows.deal(3, rng)
    fits = fit_policies(rows.X, rows, model, fold=fold, rng=rng, n_jobs=n_jobs)
    return [fit.policy for fit in fits]


def grid(n=2000):
    return np.random.default_rng(99).standard_normal((n, 2))


def rms(policy, truth, X):
    return np.sqrt(np.mean((policy(X) - truth(X)) ** 2))


def test_linear_policies_are_found():
    """Three coefficients from 3,000 rows: e(1-e) |x'(beta - b)| is about sqrt(3 * 0.25 / 3000),
    0.016; twice that leaves room for curves that were chosen by luck."""
    policies = fit(draw(linear, constant(0.5), 3000))
    assert rms(policies[0], linear, grid()) < 0.032
    assert rms(policies[1], constant(0.5), grid()) < 0.032


@pytest.mark.parametrize("policy", [wave, product])
def test_policies_that_bend_are_found(policy):
    """A logistic line cannot follow: its error stays, that of curves and pairs does not."""
    rows = draw(policy, constant(0.5), 2000)
    straight = fit(rows, LogisticRegression())[0]
    assert rms(fit(rows)[0], policy, grid()) < 0.6 * rms(straight, policy, grid())


def test_probabilities_stay_inside_zero_and_one():
    for found in fit(draw(product, wave, 400)):
        propensity = found(100.0 * grid())
        assert (propensity > 0.0).all()
        assert (propensity < 1.0).all()


@pytest.mark.parametrize("model", [None, LogisticRegression()])
def test_all_or_none_treated_is_known_without_a_model(model):
    policies = fit(draw(constant(1.0), constant(0.0), 50), model)
    assert_array_equal(policies[0](grid()), 1.0)
    assert_array_equal(policies[1](grid()), 0.0)


def test_a_given_classifier_is_used_as_it_is_and_not_changed():
    rows = draw(linear, constant(0.5), 200)
    model = DecisionTreeClassifier(max_depth=2, random_state=0)
    policies = fit(rows, model)
    at = rows.at("treatment", 0)
    own = DecisionTreeClassifier(max_depth=2, random_state=0).fit(
        rows.X[at], rows.label[at]
    )
    assert_allclose(policies[0](grid()), own.predict_proba(grid())[:, 1], rtol=1e-14)
    assert not hasattr(model, "tree_")


def test_the_same_seed_gives_the_same_bits_whatever_the_threads():
    rows = draw(product, wave, 300)
    for one, two in zip(fit(rows, seed=5), fit(rows, seed=5, n_jobs=2), strict=True):
        assert_array_equal(one(grid()), two(grid()))


def test_weights_are_heard():
    """Rows with x_0 < 0 weigh next to nothing: their other policy must not show elsewhere."""

    def torn(X):
        return np.where(X[:, 0] > 0, 0.8, 0.1)

    weight = np.ones(2 * 1500 + 8)
    light = draw(torn, constant(0.5), 1500).X[:, 0] < 0
    weight[light] = 1e-6
    policies = fit(draw(torn, constant(0.5), 1500, weight=weight))
    heavy = grid()[grid()[:, 0] > 0.2]
    # 750 rows count: a share of 0.8 is known to sqrt(0.16 / 750) = 0.015, slopes to as much again.
    assert abs(policies[0](heavy).mean() - 0.8) < 0.06


def test_policies_reproduce_the_share_treated():
    """First-order condition of the free intercept, but for what folds leave out."""
    rows = draw(linear, wave, 500)
    for k, policy in enumerate(fit(rows)):
        at = rows.at("treatment", k)
        share = (0.5 + 0.5 * rows.label[at]).mean()
        assert_allclose(policy(rows.X[at]).mean(), share, atol=5e-3)


def test_one_treated_row_is_enough():
    """The fold that holds it leaves nothing to tell apart."""
    rows = draw(constant(0.0), constant(0.5), 60)
    rows.label[rows.at("treatment", 0)[7]] = 1.0
    propensity = fit(rows)[0](rows.X[rows.at("treatment", 0)])
    assert 0.0 < propensity.mean() < 0.05


def test_of_very_many_features_those_are_used_that_go_along_with_the_labels():
    """1,000 features of which one matters and one is constant: each fold's fit looks at 100."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((408, 1000))
    X[:, 3] = 1.0
    kind = np.repeat(["treatment", "outcome"], [400, 8])
    y = np.where(kind == "treatment", rng.random(408) < expit(2.0 * X[:, 7]), X[:, 0])
    rows = label_rows(X, **separate_labels(y, kind), population=np.arange(408) % 2)
    policy, x = fit(rows)[0], rng.standard_normal(1000)
    moved = np.abs(policy(x + np.eye(1000)) - policy(x[None]))
    assert np.count_nonzero(moved > 1e-9) <= 300
    assert moved[3] < 1e-12
    assert np.argmax(moved) == 7


@pytest.mark.parametrize("model", [None, LogisticRegression()])
def test_cross_fitted_policies_have_not_seen_the_row(model):
    """Turn its label over: at the row itself next to nothing changes, which form weighs how much.

    A given model has no forms to weigh, so that nothing changes at all.
    """
    rows = draw(linear, constant(0.5), 60)
    settings = {
        "policy_model": model,
        "outcome_model": LinearRegression(),
        "n_folds": 2,
    }
    at = rows.at("treatment", 0)[0]
    before = cross_fit(rows, **settings, rng=np.random.RandomState(0)).policies[:, 0]
    rows.label[at] *= -1.0
    after = cross_fit(rows, **settings, rng=np.random.RandomState(0)).policies[:, 0]
    change = np.abs(after - before)
    assert change.max() > 0.01
    assert change[at] < 0.01 * change.max()
    if model is not None:
        assert change[at] == 0.0
