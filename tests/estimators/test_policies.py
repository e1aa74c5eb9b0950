"""Policies: the right kind of model is chosen, and known ones are found."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from unjoined.nuisance.policies import FLOOR, fit_policies

from unjoined.basis import draw_pool
from unjoined.data import label_rows
from unjoined.nuisance import policies as _policies


def linear(X):
    return expit(0.4 + X[:, 0] - 0.5 * X[:, 1])


def step(X):
    return np.where((X[:, 0] > 0.3) & (X[:, 1] > 0.0), 0.95, 0.05)


def wave(X):
    return expit(3.0 * np.sin(1.5 * (X[:, 0] + X[:, 1])))  # along neither feature


def constant(p):
    return lambda X: np.full(len(X), p)


def draw(first, second, n, seed=0, weight=None):
    """Treatment tables of two policies, and a few outcome rows that no policy looks at."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n + 8, 2))
    kind = np.repeat(["treatment", "outcome"], [2 * n, 8])
    population = np.r_[np.repeat([0, 1], n), np.tile([0, 1], 4)]
    chance = np.where(population == 0, first(X), second(X))
    y = np.where(kind == "treatment", rng.random(len(X)) < chance, X[:, 0])
    return label_rows(X, y, kind=kind, population=population, sample_weight=weight)


def fit(rows, model="auto", *, n_folds=5, seed=0, factors=(0.5, 1.0, 2.0)):
    rng = np.random.RandomState(seed)
    pool = draw_pool(rows.X, factors=factors, n_centers=40, rng=rng)
    return fit_policies(rows.X, rows, pool, model, n_folds=n_folds, rng=rng)


def grid(n=2000):
    return np.random.default_rng(99).standard_normal((n, 2))


def rms(policy, truth, X):
    return np.sqrt(np.mean((policy(X) - truth(X)) ** 2))


def test_linear_policies_are_found_by_logistic_regression():
    """Three coefficients from 3,000 rows: e(1-e) |x'(beta - b)| is about sqrt(3 * 0.25 / 3000),
    0.016; twice that leaves room for a smooth basis that was chosen by luck."""
    policies = fit(draw(linear, constant(0.5), 3000))
    assert policies[0].chosen in ("linear", "smooth")
    assert rms(policies[0], linear, grid()) < 0.032
    assert rms(policies[1], constant(0.5), grid()) < 0.032


def test_step_policies_are_found_by_boosting():
    """A logistic curve cannot follow a corner: its error stays, that of trees does not."""
    rows = draw(step, constant(0.5), 2000)
    chosen = fit(rows)[0]
    assert chosen.chosen == "boosted"
    assert set(chosen.losses) == {"linear", "smooth", "boosted"}
    straight = fit(rows, LogisticRegression())[0]
    assert rms(chosen, step, grid()) < 0.5 * rms(straight, step, grid())


def test_smooth_policies_are_found_by_smooth_functions():
    rows = draw(wave, constant(0.5), 2000)
    chosen = fit(rows)[0]
    assert chosen.chosen == "smooth"
    straight = fit(rows, factors=())[0]
    assert "smooth" not in straight.losses
    assert rms(chosen, wave, grid()) < 0.5 * rms(straight, wave, grid())


@pytest.mark.slow
def test_what_is_chosen_has_the_lowest_held_out_loss():
    for seed, policy in enumerate((linear, step, wave, constant(0.3))):
        for found in fit(draw(policy, constant(0.5), 300, seed=seed)):
            assert found.losses[found.chosen] == min(found.losses.values())


def test_probabilities_stay_inside_zero_and_one():
    for found in fit(draw(step, wave, 400)):
        chance = found(grid())
        assert (chance > 0.0).all()
        assert (chance < 1.0).all()
        if found.chosen == "boosted":
            assert chance.min() >= FLOOR
            assert chance.max() <= 1.0 - FLOOR


@pytest.mark.parametrize("model", ["auto", LogisticRegression()])
def test_all_or_none_treated_is_known_without_a_model(model):
    policies = fit(draw(constant(1.0), constant(0.0), 50), model)
    assert [p.chosen for p in policies] == ["constant", "constant"]
    assert_array_equal(policies[0](grid()), 1.0)
    assert_array_equal(policies[1](grid()), 0.0)


def test_a_given_classifier_is_used_as_it_is_and_not_changed():
    rows = draw(linear, constant(0.5), 200)
    model = DecisionTreeClassifier(max_depth=2, random_state=0)
    policies = fit(rows, model)
    at = rows.at("treatment", 0)
    own = DecisionTreeClassifier(max_depth=2, random_state=0).fit(rows.X[at], rows.label[at])
    assert policies[0].chosen == "given"
    assert policies[0].losses == {}
    assert_allclose(policies[0](grid()), own.predict_proba(grid())[:, 1], rtol=1e-14)
    assert not hasattr(model, "tree_")


def test_the_same_seed_gives_the_same_bits():
    rows = draw(step, wave, 300)
    one, two = fit(rows, seed=5), fit(rows, seed=5)
    for a, b in zip(one, two, strict=True):
        assert a.chosen == b.chosen
        assert a.losses == b.losses
        assert_array_equal(a(grid()), b(grid()))


def test_weights_are_heard():
    """Rows with x_0 < 0 weigh next to nothing: their other policy must not show elsewhere."""

    def torn(X):
        return np.where(X[:, 0] > 0, 0.8, 0.1)

    weight = np.ones(2 * 1500 + 8)
    light = draw(torn, constant(0.5), 1500).X[:, 0] < 0
    weight[light] = 1e-6
    policies = fit(draw(torn, constant(0.5), 1500, weight=weight), factors=())
    heavy = grid()[grid()[:, 0] > 0.2]
    # 750 rows count: a share of 0.8 is known to sqrt(0.16 / 750) = 0.015, slopes to as much again.
    assert abs(policies[0](heavy).mean() - 0.8) < 0.06


def test_one_treated_row_leaves_boosting_aside():
    """The fold that holds it leaves nothing to tell apart."""
    rows = draw(constant(0.0), constant(0.5), 60)
    rows.label[rows.at("treatment", 0)[7]] = 1.0
    policy = fit(rows)[0]
    assert policy.losses["boosted"] == np.inf
    assert policy.chosen in ("linear", "smooth")
    # Ridges shrink slopes, not the intercept: the mean of the policy is the share treated.
    at = rows.at("treatment", 0)
    assert_allclose(policy(rows.X[at]).mean(), 1 / 60, atol=1e-3)


def test_logistic_policies_reproduce_the_share_treated():
    """First-order condition of the free intercept, whatever the ridges."""
    rows = draw(linear, wave, 500)
    for k, policy in enumerate(fit(rows)):
        at = rows.at("treatment", k)
        if policy.chosen != "boosted":
            share = (0.5 + 0.5 * rows.label[at]).mean()
            assert_allclose(policy(rows.X[at]).mean(), share, atol=1e-3)


def test_many_rows_are_tuned_on_some_and_fitted_on_all(monkeypatch):
    """The ridge is per row: with few rows to choose it, it is shrunk to what all rows need."""
    rows = draw(linear, constant(0.5), 1000)
    monkeypatch.setattr(_policies, "TUNING_ROWS", 200)
    policy = fit(rows, factors=())[0]
    assert policy.chosen == "linear"
    at = rows.at("treatment", 0)
    treated = rows.label[at] > 0
    plain = LogisticRegression(C=np.inf).fit(rows.X[at], treated)
    # A ridge of at most 1e-2 * 200 / 1000 moves coefficients by less than ridge / curvature.
    gap = np.abs(np.r_[plain.intercept_, plain.coef_[0]] - policy.coef)
    assert gap.max() < 2e-3 / 0.12 * 1.2
