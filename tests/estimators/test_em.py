"""EM over any models: equal to textbook formulas and direct maximisation, and never NaN."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2, norm
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from unjoined import EMUplift
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError, LabelError
from unjoined.estimators import em as _em
from unjoined.estimators.em import PROBABILITY_FLOOR, VARIANCE_FLOOR, fit_em

# Solved to rounding, so that only EM's own convergence counts.
EXACT = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
TRUTH = np.array(
    [0.5, 1.0, -1.0, -0.5, 0.0, 0.8]
)  # intercept and slopes: treated, untreated
SIGMA = 0.7


def draw(n, seed=0, *, family="bernoulli", policies=(1.5, -1.5)):
    """Two features, one policy per population, outcome models linear in x; and the treatment."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    propensity = expit(
        np.take(policies, rng.integers(0, len(policies), n)) * (X[:, 0] + 0.5)
    )
    treated = rng.random(n) < propensity
    F = np.column_stack([np.ones(n), X])
    mean = np.where(treated, F @ TRUTH[:3], F @ TRUTH[3:])
    if family == "gaussian":
        return X, mean + SIGMA * rng.standard_normal(n), propensity, treated
    return X, (rng.random(n) < expit(mean)).astype(float), propensity, treated


def em(X, y, propensity, model, weight=None, *, family="bernoulli", seed=0, **settings):
    weight = np.ones(len(y)) if weight is None else weight
    rng = np.random.RandomState(seed)
    return fit_em(X, y, propensity, weight, model, family=family, rng=rng, **settings)


def parameters(fit):
    """Intercept and slopes of both models, and for real outcomes log sigma."""
    linear = [
        np.r_[np.ravel(m.intercept_), np.ravel(m.coef_)]
        for m in (fit.treated, fit.untreated)
    ]
    return np.concatenate(
        [*linear, [np.log(fit.sigma)] if fit.family == "gaussian" else []]
    )


def slow_log_likelihood(theta, X, y, propensity):
    """Per row, as the formula is written; a seventh parameter is log sigma."""
    F = np.column_stack([np.ones(len(X)), X])
    eta = F @ theta[:3], F @ theta[3:6]
    if len(theta) == 7:
        p_1, p_0 = (norm.pdf(y, m, np.exp(theta[6])) for m in eta)
    else:
        p_1, p_0 = (np.where(y == 1.0, expit(m), expit(-m)) for m in eta)
    return np.log(propensity * p_1 + (1.0 - propensity) * p_0)


# --- Equal to independent answers ---------------------------------------------------------------


def test_on_a_table_it_is_textbook_em_in_every_iteration():
    """Features with four values: the M-step is a weighted share per value, which a tree finds."""
    rng = np.random.default_rng(0)
    n = 600
    x, population = rng.integers(0, 4, n), rng.integers(0, 3, n)
    propensity = np.array(
        [[0.9, 0.5, 0.1], [0.2, 0.7, 0.4], [0.3, 0.6, 0.8], [0.5, 0.95, 0.05]]
    )
    e = propensity[x, population]
    y = (rng.random(n) < np.where(rng.random(n) < e, 0.7, 0.2 + 0.1 * x)).astype(float)
    weight = rng.integers(1, 4, n).astype(float)
    r, path = e.copy(), []
    for _ in range(31):
        p_1, p_0 = np.empty(4), np.empty(4)
        for value in range(4):
            at = x == value
            p_1[value] = np.sum((weight * r * y)[at]) / np.sum((weight * r)[at])
            p_0[value] = np.sum((weight * (1 - r) * y)[at]) / np.sum(
                (weight * (1 - r))[at]
            )
        like_1 = e * np.where(y == 1, p_1[x], 1 - p_1[x])
        like_0 = (1 - e) * np.where(y == 1, p_0[x], 1 - p_0[x])
        r = like_1 / (like_1 + like_0)
        path.append(np.sum(weight * np.log(like_1 + like_0)) / np.sum(weight))
    fit = em(
        x[:, None].astype(float),
        y,
        e,
        DecisionTreeClassifier(),
        weight,
        tol=0.0,
        max_iter=30,
    )
    assert_allclose(fit.path, path, rtol=1e-12)
    values = np.arange(4.0)[:, None]
    assert_allclose(fit.means(values), (p_1, p_0), rtol=1e-10)


@pytest.mark.parametrize(
    ("family", "model"), [("bernoulli", EXACT), ("gaussian", LinearRegression())]
)
def test_direct_maximisation_ends_at_the_same_optimum(family, model):
    X, y, propensity, _ = draw(1500, family=family)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    fit = em(X, y, propensity, model, weight, family=family, tol=1e-13, max_iter=3000)

    def loss(theta):
        return -np.average(slow_log_likelihood(theta, X, y, propensity), weights=weight)

    direct = minimize(loss, np.zeros(7 if family == "gaussian" else 6), tol=1e-10)
    assert fit.converged
    assert_allclose(fit.path[-1], -direct.fun, atol=1e-9)
    assert_allclose(parameters(fit), direct.x, atol=1e-4)


def test_likelihood_is_flat_at_the_answer():
    """First-order conditions: the weighted residuals of both parts are orthogonal to 1 and x."""
    X, y, propensity, _ = draw(1000, seed=2)
    fit = em(X, y, propensity, EXACT, tol=1e-14, max_iter=3000)
    F = np.column_stack([np.ones(len(X)), X])
    m_1, m_0 = fit.means(X)
    p_1, p_0 = (np.where(y == 1.0, m, 1.0 - m) for m in (m_1, m_0))
    r = propensity * p_1 / (propensity * p_1 + (1.0 - propensity) * p_0)
    assert_allclose(F.T @ (r * (y - m_1)) / len(y), 0.0, atol=1e-6)
    assert_allclose(F.T @ ((1.0 - r) * (y - m_0)) / len(y), 0.0, atol=1e-6)


def test_known_treatments_reduce_it_to_two_classifiers():
    for model in (LogisticRegression(), EXACT, RandomForestClassifier(5)):
        X, y, _, treated = draw(400, seed=3)
        model = model if model is EXACT else model.set_params(random_state=0)
        fit = em(X, y, treated.astype(float), model)
        expected = [  # with weights, as forests draw other rows without
            model.fit(X[at], y[at], sample_weight=np.ones(at.sum())).predict_proba(X)[
                :, 1
            ]
            for at in (treated, ~treated)
        ]
        assert_allclose(fit.means(X), expected, atol=1e-6)
        assert (fit.n_iter, fit.converged, fit.is_monotone) == (1, True, True)


def test_known_treatments_reduce_it_to_two_regressions():
    X, y, _, treated = draw(400, family="gaussian")
    fit = em(X, y, treated.astype(float), Ridge(), family="gaussian")
    m_1, m_0 = (Ridge().fit(X[at], y[at]).predict(X) for at in (treated, ~treated))
    assert_allclose(fit.means(X), (m_1, m_0), rtol=1e-9)
    assert_allclose(
        fit.sigma, np.sqrt(np.mean((y - np.where(treated, m_1, m_0)) ** 2)), rtol=1e-9
    )


def test_rows_that_are_sure_stay_sure_among_others():
    """Some chances are exactly 0 or 1: they act like chances a rounding away from it."""
    X, y, propensity, treated = draw(800, seed=4)
    sure = np.arange(len(y)) % 3 == 0
    exact = np.where(sure, treated, propensity)
    nearly = np.clip(exact, 1e-13, 1.0 - 1e-13)
    settings = {"tol": 1e-10, "max_iter": 500}
    one, other = (em(X, y, e, EXACT, **settings) for e in (exact, nearly))
    assert_allclose(parameters(one), parameters(other), atol=1e-6)
    assert np.isfinite(one.path).all()


# --- Laws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["drawn", "equal"])
def test_whole_weights_equal_repeated_rows(kind):
    """With a penalty as well, for which weights that are all 2 are not weights that are all 1."""
    X, y, propensity, _ = draw(300)
    drawn = np.random.default_rng(0).integers(1, 4, len(y))
    times = drawn if kind == "drawn" else np.full(len(y), 2)
    model = LogisticRegression(C=0.05, tol=1e-10)
    weighted = em(X, y, propensity, model, times.astype(float))
    again = np.repeat(np.arange(len(y)), times)
    repeated = em(X[again], y[again], propensity[again], model)
    assert_allclose(weighted.path, repeated.path, atol=1e-9)
    assert_allclose(weighted.means(X), repeated.means(X), atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("family", "model"), [("bernoulli", EXACT), ("gaussian", LinearRegression())]
)
def test_likelihood_rises_in_every_iteration(family, model, seed):
    """Up to rounding: 500 terms of order 1 are averaged, each good to a few 1e-16."""
    X, y, propensity, _ = draw(500, seed, family=family, policies=(1.0, -0.5, 0.2))
    fit = em(X, y, propensity, model, family=family, tol=0.0, max_iter=60)
    assert np.diff(fit.path).min() > -500 * np.finfo(float).eps
    assert fit.path[-1] > fit.path[0]


class Recorded(LogisticRegression):
    """Logistic regression that keeps the coefficients of every fit."""

    seen = []  # noqa: RUF012  (clones share it on purpose)

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.seen.append(np.r_[self.intercept_, self.coef_[0]])
        return self


def test_with_a_penalty_the_penalised_likelihood_rises():
    """The intercepts are not penalised; the objective is that of scikit-learn's C."""
    X, y, propensity, _ = draw(500)
    C = 0.02
    Recorded.seen.clear()
    model = Recorded(C=C, solver="newton-cholesky", tol=1e-10)
    fit = em(X, y, propensity, model, tol=0.0, max_iter=40)
    thetas = np.reshape(Recorded.seen, (-1, 6))  # treated and untreated in turn
    assert len(thetas) == len(fit.path) > 10
    assert not fit.is_monotone  # of the plain likelihood
    slopes = thetas[:, [1, 2, 4, 5]]
    plain = [slow_log_likelihood(theta, X, y, propensity).sum() for theta in thetas]
    penalised = np.array(plain) - np.sum(slopes**2, axis=1) / (2.0 * C)
    # 500 terms of order 1 are added here, to a total of some hundred.
    assert (
        np.diff(penalised).min() > -500 * np.abs(penalised).max() * np.finfo(float).eps
    )
    assert penalised[-1] > penalised[0] + 0.1


def test_a_falling_likelihood_is_told_and_its_best_iteration_kept():
    """From the best plain likelihood, a strong penalty can only lead down."""
    X, y, propensity, _ = draw(800)
    free = em(X, y, propensity, EXACT, tol=1e-10, max_iter=500)
    share = posterior(free, X, y, propensity)
    weight, rng = np.ones(len(y)), np.random.RandomState(0)
    problem = _em._prepare(
        X, y, propensity, weight, LogisticRegression(C=0.01), "bernoulli", rng
    )
    fit = _em._climb(problem, share, 0, 200, 1e-6)
    assert not fit.is_monotone
    assert np.argmax(fit.path) == 0
    assert_allclose(
        fit.log_likelihood(X, y, propensity).mean(), fit.path[0], rtol=1e-12
    )
    assert fit.n_iter <= 200


def posterior(fit, X, y, propensity):
    p_1, p_0 = (np.where(y == 1.0, m, 1.0 - m) for m in fit.means(X))
    return propensity * p_1 / (propensity * p_1 + (1.0 - propensity) * p_0)


@pytest.mark.slow
def test_forests_return_their_likeliest_iteration_and_the_same_one_each_time():
    X, y, propensity, _ = draw(500)
    forest = RandomForestClassifier(10, min_weight_fraction_leaf=0.05)
    fit = em(X, y, propensity, forest, max_iter=25)
    falls = -np.diff(fit.path) > 1e-6 * np.abs(fit.path[:-1])
    assert fit.is_monotone == (not falls.any())
    assert_allclose(
        fit.log_likelihood(X, y, propensity).mean(), fit.path.max(), rtol=1e-12
    )
    assert_array_equal(em(X, y, propensity, forest, max_iter=25).path, fit.path)


def test_a_run_that_finds_nothing_better_ends():
    class Random(DecisionTreeClassifier):
        """Predictions that have nothing to do with the weights."""

        calls = 0

        def predict_proba(self, X):
            Random.calls += 1
            p = np.full(
                len(X),
                0.5 if Random.calls <= 2 else 0.6 + 0.1 * (Random.calls // 2 % 2),
            )
            return np.column_stack([1.0 - p, p])

    X, _, propensity, _ = draw(100)
    fit = em(
        X,
        1.0 - (np.arange(100) % 3 == 0.0),
        propensity,
        Random(),
        max_iter=100,
        tol=1e-4,
    )
    assert fit.n_iter < 100
    assert not fit.converged
    assert len(fit.path) == fit.n_iter + 1
    assert np.argmax(fit.path) >= fit.n_iter - _em.PATIENCE


def test_units_of_a_real_outcome_change_units_only():
    X, y, propensity, _ = draw(500, family="gaussian")
    one = em(X, y, propensity, LinearRegression(), family="gaussian")
    other = em(X, 5.0 + 1e4 * y, propensity, LinearRegression(), family="gaussian")
    assert other.n_iter == one.n_iter
    assert_allclose(other.sigma, 1e4 * one.sigma, rtol=1e-9)
    assert_allclose(other.means(X), 5.0 + 1e4 * np.array(one.means(X)), rtol=1e-9)


def test_stops_at_max_iter_or_at_the_tolerance():
    X, y, propensity, _ = draw(500)
    short = em(X, y, propensity, EXACT, max_iter=3)
    assert (short.n_iter, len(short.path), short.converged) == (3, 4, False)
    done = em(X, y, propensity, EXACT, tol=1e-5)
    gain = np.diff(done.path) / np.abs(done.path[:-1])
    assert done.converged
    assert gain[-1] <= 1e-5 < gain[:-1].min()


# --- The parts do not change places -------------------------------------------------------------


def test_exchanging_the_parts_is_less_likely():
    X, y, propensity, _ = draw(1000)
    fit = em(X, y, propensity, EXACT)
    swapped = replace(fit, treated=fit.untreated, untreated=fit.treated)
    loss = fit.log_likelihood(X, y, propensity) - swapped.log_likelihood(
        X, y, propensity
    )
    assert loss.mean() > 0.01


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_exchanged_starts_end_at_the_same_optimum_or_at_a_worse_one(family):
    X, y, propensity, treated = draw(1000, family=family)
    model = EXACT if family == "bernoulli" else LinearRegression()
    problem = _em._prepare(
        X, y, propensity, np.ones(len(y)), model, family, np.random.RandomState(0)
    )
    right = _em._climb(problem, propensity, 0, 2000, 1e-10)
    swapped = _em._climb(problem, np.where(treated, 0.01, 0.99), 1, 2000, 1e-10)
    assert swapped.path.max() <= right.path.max() + 1e-7
    if swapped.path.max() > right.path.max() - 1e-6:
        assert_allclose(swapped.means(X), right.means(X), atol=0.02)


@pytest.mark.parametrize(
    ("family", "model"), [("bernoulli", EXACT), ("gaussian", LinearRegression())]
)
def test_of_several_starts_the_likeliest_is_returned(family, model, monkeypatch):
    X, y, propensity, _ = draw(300, family=family, policies=(0.3, -0.3))
    runs, climb = [], _em._climb

    def spy(*arguments):
        runs.append(climb(*arguments))
        return runs[-1]

    monkeypatch.setattr(_em, "_climb", spy)
    fit = em(X, y, propensity, model, family=family, n_starts=3, max_iter=50)
    assert [run.start for run in runs] == list(range(3))
    best = max(run.path.max() for run in runs)
    assert fit is runs[fit.start]
    assert fit.path.max() >= best - 1e-5
    assert (
        np.ptp([run.path[0] for run in runs]) > 1e-3
    )  # they do start at different places


def test_a_tie_goes_to_the_first_start():
    """One optimum, which other starts approach as well: closer or less close by the tolerance."""
    X, y, propensity, _ = draw(500, family="gaussian")
    settings = {"family": "gaussian", "tol": 1e-4}
    starts = [
        em(X, y, propensity, LinearRegression(), n_starts=n, **settings) for n in (1, 6)
    ]
    assert starts[1].start == 0
    assert_array_equal(starts[0].path, starts[1].path)


def test_random_starts_keep_what_is_sure():
    X, y, propensity, treated = draw(200)
    e = np.where(np.arange(200) % 2, treated, propensity)
    rng = np.random.RandomState(0)
    problem = _em._prepare(X, y, e, np.ones(200), EXACT, "bernoulli", rng)
    share = _em._draw_share(X, problem, e, rng)
    sure = (e == 0.0) | (e == 1.0)
    assert_array_equal(share[sure], e[sure])
    assert np.all((share[~sure] > 0.0) & (share[~sure] < 1.0))


# --- Statistics ---------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("policies", [(2.0, -2.0), (3.0, 1.0, 0.0, -2.0)])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_truth_is_found_within_its_standard_errors(family, policies):
    """Likelihood theory: (estimate - truth)' I (estimate - truth) is chi-square.

    I is the sum of the outer products of the rows' scores at the truth, by central differences.
    The chance of exceeding the bound is one in a million; sigma is among the parameters.
    """
    X, y, propensity, _ = draw(20_000, seed=5, family=family, policies=policies)
    truth = np.r_[TRUTH, np.log(SIGMA)] if family == "gaussian" else TRUTH
    model = EXACT if family == "bernoulli" else LinearRegression()
    fit = em(X, y, propensity, model, family=family, tol=1e-9, max_iter=2000)
    steps = 1e-5 * np.eye(len(truth))
    scores = [
        slow_log_likelihood(truth + h, X, y, propensity)
        - slow_log_likelihood(truth - h, X, y, propensity)
        for h in steps
    ]
    information = np.array(scores) @ np.array(scores).T / 2e-5**2
    error = parameters(fit) - truth
    assert error @ information @ error < chi2.ppf(1.0 - 1e-6, len(truth))
    # and the bound is not idle: it refuses the labels' mixture taken for the truth
    naive = (
        np.abs(truth[0] - truth[3]) / 2.0 * np.r_[-1.0, 0, 0, 1.0, 0, 0, *truth[6:] * 0]
    )
    assert naive @ information @ naive > chi2.ppf(1.0 - 1e-6, len(truth))


# --- Numbers at the edge ------------------------------------------------------------------------


@given(
    propensity=arrays(
        float, 6, elements=st.sampled_from([0.0, 1e-300, 0.3, 1.0 - 1e-16, 1.0])
    ),
    log_p1=arrays(float, 6, elements=st.floats(-1e6, 10.0)),
    log_p0=arrays(float, 6, elements=st.floats(-1e6, 10.0)),
)
def test_shares_are_probabilities_whatever_the_densities(propensity, log_p1, log_p0):
    value, share = _em._mix(*_em._logs(propensity), log_p1, log_p0)
    assert np.isfinite(value).all()
    assert np.all((share >= 0.0) & (share <= 1.0))
    assert_array_equal(share[propensity == 0.0], 0.0)
    assert_array_equal(share[propensity == 1.0], 1.0)
    tame = (np.abs(log_p1) < 300.0) & (np.abs(log_p0) < 300.0)
    p_1, p_0 = (
        propensity[tame] * np.exp(log_p1[tame]),
        (1.0 - propensity[tame]) * np.exp(log_p0[tame]),
    )
    assert_allclose(value[tame], np.log(p_1 + p_0), rtol=1e-9, atol=1e-9)
    assert_allclose(share[tame], p_1 / (p_1 + p_0), rtol=1e-9, atol=1e-12)


def test_outlying_outcomes_do_not_break_the_likelihood():
    X, y, propensity, _ = draw(300, family="gaussian")
    y[0], propensity[0], propensity[1] = 1e5, 0.0, 1.0
    fit = em(X, y, propensity, LinearRegression(), family="gaussian")
    assert np.isfinite(fit.path).all()
    far = fit.log_likelihood(
        X[:3], np.array([1e9, -1e9, 1e9]), np.array([0.0, 1.0, 0.5])
    )
    assert np.isfinite(far).all()


def test_probabilities_of_0_and_1_cost_no_more_than_the_floor():
    X, y, propensity, _ = draw(300)
    fit = em(
        X, y, propensity, DecisionTreeClassifier()
    )  # grown until each leaf is pure
    assert np.isfinite(fit.path).all()
    # None of the training outcomes is a surprise; their opposites are all the surprise there is.
    # One minus a floor of 1e-9 is good to 1e-16, its log to 1e-7.
    assert_allclose(
        fit.log_likelihood(X, 1.0 - y, propensity), np.log(PROBABILITY_FLOOR), atol=2e-7
    )
    assert set(np.unique(fit.means(X))) == {0.0, 1.0}


def test_an_interpolating_regressor_leaves_the_least_variance():
    X, y, propensity, _ = draw(300, family="gaussian")
    fit = em(X, y, propensity, DecisionTreeRegressor(), family="gaussian", max_iter=3)
    assert_allclose(fit.sigma, np.sqrt(VARIANCE_FLOOR) * y.std(), rtol=1e-9)


# --- Models -------------------------------------------------------------------------------------


def test_held_out_likelihood_is_the_formula():
    X, y, propensity, _ = draw(400)
    fit = em(X, y, propensity, LogisticRegression())
    X, y, propensity, _ = draw(100, seed=9)
    expected = slow_log_likelihood(parameters(fit), X, y, propensity)
    assert_allclose(fit.log_likelihood(X, y, propensity), expected, rtol=1e-9)


def test_starting_where_the_last_fit_ended_changes_speed_only(monkeypatch):
    X, y, propensity, _ = draw(500)
    model = LogisticRegression(tol=1e-9)
    warm = em(X, y, propensity, model)
    monkeypatch.setattr(_em, "_is_convex", lambda last: False)
    cold = em(X, y, propensity, model)
    assert_allclose(warm.path, cold.path, atol=1e-9)
    assert_allclose(parameters(warm), parameters(cold), atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression(C=0.3))],
    ids=["plain", "pipeline"],
)
def test_models_come_back_as_given_and_the_callers_is_not_touched(model):
    X, y, propensity, _ = draw(300)
    before = repr(model)
    fit = em(X, y, propensity, model)
    assert repr(model) == before
    assert not hasattr(model, "classes_")
    assert fit.n_iter > 1
    assert fit.treated is not fit.untreated
    name = (
        "logisticregression__random_state"
        if hasattr(model, "steps")
        else "random_state"
    )
    for fitted in (fit.treated, fit.untreated):  # a seed is all that was set
        assert repr(fitted.set_params(**{name: None})) == before


@pytest.mark.filterwarnings("ignore:Persisting input arguments")  # on a busy machine
@pytest.mark.parametrize(("routing", "memory"), [(False, True), (True, False)])
def test_pipelines_equal_their_steps_by_hand(routing, memory, tmp_path):
    X, y, propensity, _ = draw(400)
    head, last = (StandardScaler(), PolynomialFeatures(2)), LogisticRegression(tol=1e-8)
    pipe = make_pipeline(*head, last, memory=str(tmp_path) if memory else None)
    with config_context(enable_metadata_routing=routing):
        piped = em(X, y, propensity, pipe, max_iter=10)
        alone = em(X, y, propensity, make_pipeline(last), max_iter=10)
    squares = make_pipeline(*head).fit_transform(X)
    by_hand = em(squares, y, propensity, last, max_iter=10)
    assert_allclose(piped.path, by_hand.path, atol=1e-12)
    assert_allclose(piped.means(X), by_hand.means(squares), atol=1e-9)
    assert_allclose(
        alone.path, em(X, y, propensity, last, max_iter=10).path, atol=1e-12
    )


# --- Errors -------------------------------------------------------------------------------------


class Broken(LogisticRegression):
    def predict_proba(self, X):
        p = super().predict_proba(X)
        p[3] = np.nan
        return p


class BrokenRegression(LinearRegression):
    def predict(self, X):
        return np.where(np.arange(len(X)) < 2, np.inf, super().predict(X))


def test_models_that_cannot_do_it_are_refused():
    cases = (
        (
            EXACT,
            "poisson",
            r"family must be one of 'bernoulli', 'gaussian', got 'poisson'",
        ),
        (
            Ridge(),
            "bernoulli",
            r"'bernoulli' needs a classifier with predict_proba, got Ridge",
        ),
        (
            LinearSVC(),
            "bernoulli",
            r"'bernoulli' needs a classifier with predict_proba, got Lin",
        ),
        (
            EXACT,
            "gaussian",
            r"'gaussian' needs a regressor, got LogisticRegression. Pass one",
        ),
        (
            StandardScaler(),
            "gaussian",
            r"'gaussian' needs a regressor, got StandardScaler",
        ),
        (
            KNeighborsClassifier(),
            "bernoulli",
            r"KNeighborsClassifier.fit takes no sample_weight",
        ),
        (
            make_pipeline(StandardScaler(), KNeighborsRegressor()),
            "gaussian",
            r"KNeighborsRegressor.fit takes no sample_weight. Choose a model that does",
        ),
        (
            Broken(),
            "bernoulli",
            r"Broken.predict_proba returned NaN .* in 1 of 60 rows .*row 3\)",
        ),
        (
            BrokenRegression(),
            "gaussian",
            r"BrokenRegression.predict .* in 2 of 60 rows",
        ),
    )
    for model, family, message in cases:
        X, y, propensity, _ = draw(60)
        with pytest.raises(InputError, match=message):
            em(X, y, propensity, model, family=family)


def test_rows_that_tell_nothing_are_refused():
    cases = (
        (
            {"propensity": 1.2},
            "bernoulli",
            r"propensity must hold probabilities in \[0, 1\], .* 1.2 to 1.2",
        ),
        (
            {"propensity": np.nan},
            "bernoulli",
            r"propensity must hold probabilities .* nan to nan. Clip",
        ),
        (
            {"propensity": 0.0},
            "bernoulli",
            r"no outcome row may have been treated: propensity is 0 every",
        ),
        (
            {"propensity": 1.0},
            "gaussian",
            r"no outcome row may have been untreated: propensity is 1 every",
        ),
        (
            {"y": 2.5},
            "bernoulli",
            r"needs outcomes 0 and 1, got values from 2.5 to 2.5. Use fam",
        ),
        ({"y": 2.5}, "gaussian", r"the outcome is 2.5 in all 60 rows"),
    )
    for change, family, message in cases:
        X, y, propensity, _ = draw(60)
        columns = {"y": y, "propensity": propensity} | {
            k: np.full(60, v) for k, v in change.items()
        }
        model = EXACT if family == "bernoulli" else LinearRegression()
        with pytest.raises(InputError, match=message):
            em(X, model=model, family=family, **columns)


def test_a_part_with_one_outcome_only_is_refused():
    X, y, _, treated = draw(60)
    y[~treated] = 0.0
    n = int((~treated).sum())
    with pytest.raises(
        LabelError, match=rf"is 0 in all {n} rows that may have been untreated"
    ):
        em(X, y, treated.astype(float), EXACT)


def tables(family, n=250):
    """Outcomes and treatments of two populations, each with a policy of its own."""
    parts = []
    for seed, (kind, name) in enumerate(product(("outcome", "treatment"), "AB")):
        policy = (1.5,) if name == "A" else (-1.5,)
        X, y, _, treated = draw(n, seed, family=family, policies=policy)
        parts.append(
            (X, y if kind == "outcome" else treated, np.full(n, kind), np.full(n, name))
        )
    X, label, kind, population = map(np.concatenate, zip(*parts, strict=True))
    return {"X": X, **separate_labels(label, kind), "population": population}


@pytest.mark.parametrize(
    ("family", "outcome_model"),
    [
        ("bernoulli", LogisticRegression()),
        (
            "bernoulli",
            make_pipeline(
                PolynomialFeatures(2), StandardScaler(), LogisticRegression()
            ),
        ),
        ("gaussian", LinearRegression()),
        ("gaussian", Ridge()),
    ],
)
def test_em_is_the_same_likelihood_over_other_models(family, outcome_model):
    """The class adds policies and units; the rest is `fit_em` on the same rows."""
    data = tables(family)
    model = EMUplift(
        outcome_model=outcome_model,
        policy_model=LogisticRegression(),
        n_starts=1,
        random_state=0,
    ).fit(**data)
    assert model.family_ == family
    assert not hasattr(model, "candidates_")
    at = ~np.isnan(data["y"])
    propensities = model.predict_policies(data["X"][at])
    e = np.where(data["population"][at] == "A", propensities[:, 0], propensities[:, 1])
    y, scale = data["y"][at], model.outcome_scaling_
    own = fit_em(
        model.scaling_(data["X"][at]),
        (y - scale.mean[0]) / scale.scale[0],
        e,
        np.ones(at.sum()),
        outcome_model,
        family=family,
        rng=np.random.RandomState(0),
    )
    treated, untreated = own.means(model.scaling_(data["X"]))
    expected = scale.scale[0] * (treated - untreated)
    assert_allclose(model.predict(data["X"]), expected, atol=1e-8)
    assert model.score(**data) == pytest.approx(own.path.max(), abs=1e-9)
