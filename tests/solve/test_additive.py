"""Base and effect: right derivatives, first-order conditions, and the answers of other solvers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge

from unjoined.solve import BaseEffectRows, BernoulliTerms, GaussianMixture, MeanTerms, Scoring

QUICK = settings(max_examples=40, deadline=None)
NUMBERS = st.floats(-6.0, 6.0)
CHANCES = st.floats(0.02, 0.98)
EXACT = {"tol": 1e-14, "max_iter": 1000}
PENALTIES = (1e-4, 1e-2, 1.0)


def draw(n, seed=0, *, family="bernoulli", chance=None):
    """Two features and known exposures; base 0.3 + x_0, effect 1 - x_1; unequal weights."""
    rng = np.random.default_rng(seed)
    F = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    e = expit(2.0 * rng.standard_normal(n)) if chance is None else chance
    treated = rng.random(n) < e
    mean = 0.3 + F[:, 1] + np.where(treated, 0.5, -0.5) * (1.0 - F[:, 2])
    noise = rng.standard_normal(n)
    y = (rng.random(n) < expit(mean)).astype(float) if family == "bernoulli" else mean + noise
    weight = rng.uniform(0.5, 2.0, n)
    exposure = e - 0.5 if family == "mean" else e
    return BaseEffectRows(F, F, F[:, 1:], y, exposure, weight), treated


def engine_of(family):
    return {
        "bernoulli": Scoring(BernoulliTerms(), **EXACT),
        "mean": Scoring(MeanTerms(), **EXACT),
        "huber": Scoring(MeanTerms(0.8), **EXACT),
        "gaussian": GaussianMixture(tol=1e-14, max_iter=5000),
    }[family]


def slow_loss(family, rows, theta):
    """The loss of each row as the formula is written; a last parameter is log sigma."""
    p = rows.base.shape[1]
    b, u = rows.base @ theta[:p], rows.effect @ theta[p : p + rows.effect.shape[1]]
    y, e = rows.y, rows.exposure
    if family == "bernoulli":
        m = e * expit(b + u / 2) + (1 - e) * expit(b - u / 2)
        return -(y * np.log(m) + (1 - y) * np.log(1 - m))
    if family == "gaussian":
        sigma = np.exp(theta[-1])
        return -np.log(e * norm.pdf(y, b + u / 2, sigma) + (1 - e) * norm.pdf(y, b - u / 2, sigma))
    error = np.abs(y - b - e * u)
    return (
        0.5 * error**2
        if family == "mean"
        else np.where(error < 0.8, 0.5 * error**2, 0.8 * error - 0.32)
    )


def slow_objective(family, rows, penalty, theta):
    ridge = 0.5 * penalty @ theta[: len(penalty)] ** 2
    return np.average(slow_loss(family, rows, theta), weights=rows.weight) + ridge


# --- One row's terms ----------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [BernoulliTerms(), MeanTerms(), MeanTerms(0.8)])
@QUICK
@given(base=NUMBERS, effect=NUMBERS, exposure=CHANCES, y=st.sampled_from([0.0, 1.0]))
def test_gradients_are_those_of_the_loss(terms, base, effect, exposure, y):
    """Central differences of step h err by h^2 times a third derivative (below 10 here) and by
    rounding, loss (below 200) * 2^-52 / h: with h = 1e-5 below 1e-8 of the loss' scale."""

    def loss(b, u):
        arrays = (np.array([v]) for v in (y, exposure, b, u))
        return terms(*arrays).loss[0]

    at = terms(*(np.array([v]) for v in (y, exposure, base, effect)))
    h = 1e-5
    slope_b = (loss(base + h, effect) - loss(base - h, effect)) / (2 * h)
    slope_u = (loss(base, effect + h) - loss(base, effect - h)) / (2 * h)
    # Huber's second derivative jumps: a difference across the kink errs by h instead.
    atol = 1e-5 if terms == MeanTerms(0.8) else 1e-7
    assert_allclose(at.residual * at.base_factor, slope_b, atol=atol)
    assert_allclose(at.residual * at.effect_factor, slope_u, atol=atol)


@QUICK
@given(base=NUMBERS, effect=NUMBERS, exposure=CHANCES)
def test_bernoulli_curvature_is_the_expected_information(base, effect, exposure):
    """Over y, the mean squared gradient, and so its outer product: both outcomes are summed."""
    arrays = [np.array([v]) for v in (exposure, base, effect)]
    m = exposure * expit(base + effect / 2) + (1 - exposure) * expit(base - effect / 2)
    information = np.zeros((2, 2))
    score = np.zeros(2)
    for y, chance in ((0.0, 1 - m), (1.0, m)):
        at = BernoulliTerms()(np.array([y]), *arrays)
        gradient = at.residual[0] * np.array([at.base_factor[0], at.effect_factor[0]])
        information += chance * np.outer(gradient, gradient)
        score += chance * gradient
    factors = np.array([at.base_factor[0], at.effect_factor[0]])
    assert_allclose(np.outer(factors, factors), information, rtol=1e-9, atol=1e-15)
    assert_allclose(score, 0.0, atol=1e-12)


def test_an_impossible_row_costs_a_fixed_amount():
    """Probabilities stop 1e-9 short of 0 and 1, so that one row costs at most 20.7 nats."""
    far, one = np.array([1000.0]), np.array([1.0])
    at = BernoulliTerms()(np.array([0.0]), one, far, np.array([0.0]))
    assert_allclose(at.loss, -np.log(1e-9), rtol=1e-6)
    assert all(np.isfinite(part).all() for part in at)


@QUICK
@given(error=st.floats(-50.0, 50.0), other=st.floats(-50.0, 50.0), threshold=st.floats(0.1, 10.0))
def test_huber_weights_are_at_most_one_and_make_a_quadratic_above_the_loss(error, other, threshold):
    """The quadratic through a row's loss with its weight is a majorant: steps on it go down."""
    zero, one = np.zeros(1), np.ones(1)
    at = MeanTerms(threshold)(np.array([error]), one, zero, zero)
    weight = at.base_factor[0] ** 2
    assert 0.0 < weight <= 1.0
    assert_allclose(weight, min(1.0, threshold / max(abs(error), 1e-300)), rtol=1e-12)
    quadratic = at.loss[0] + 0.5 * weight * (other**2 - error**2)
    there = MeanTerms(threshold)(np.array([other]), one, zero, zero).loss[0]
    assert quadratic >= there - 1e-12 * (1.0 + there)


def test_a_huge_threshold_is_the_squared_loss():
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((4, 50))
    for bounded, squared in zip(MeanTerms(1e6)(*arrays), MeanTerms()(*arrays), strict=True):
        assert_allclose(bounded, squared, rtol=1e-14)


# --- Fits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", PENALTIES)
@pytest.mark.parametrize("family", ["bernoulli", "mean", "huber", "gaussian"])
def test_a_fit_is_the_minimum_that_a_general_optimiser_finds(family, ridge):
    """The same penalised objective written slowly, minimised by quasi-Newton, sigma included.

    Both stop within 1e-9 of the minimum in value; where the curvature is at least 1e-3, as the
    effect's is here, coefficients then agree to sqrt(2e-9 / 1e-3) = 1.4e-3.
    """
    rows, _ = draw(800, family=family if family != "huber" else "mean")
    penalty = np.full(6, ridge)
    penalty[0] = 0.0
    fit = engine_of(family).fit(rows, penalty, np.zeros(6), p_base=3)
    theta = np.r_[fit.coef, np.log(fit.sigma)] if family == "gaussian" else fit.coef

    def objective(at):
        return slow_objective(family, rows, penalty, at)

    direct = minimize(objective, np.zeros(len(theta)), method="BFGS", options={"gtol": 1e-6})
    assert fit.converged
    assert_allclose(objective(theta), direct.fun, atol=1e-9)
    assert_allclose(fit.objective[-1], direct.fun, atol=1e-9)
    assert_allclose(theta, direct.x, atol=1.4e-3)


@pytest.mark.parametrize("ridge", PENALTIES)
@pytest.mark.parametrize("family", ["bernoulli", "mean", "gaussian"])
def test_the_objective_is_flat_at_the_end(family, ridge):
    """First-order conditions by hand.

    A stop at a predicted gain g' H^-1 g < 1e-14 leaves a gradient below 1e-7 sqrt(|H|), and |H|
    is below 3 with standardised features; EM's last round gains 1e-14, so the same bound times
    the slowness of EM, 10.
    """
    rows, _ = draw(700, seed=1, family=family)
    penalty = np.array([0.0, ridge, ridge, ridge, ridge, ridge])
    fit = engine_of(family).fit(rows, penalty, np.zeros(6), p_base=3)
    F, share = rows.base, rows.weight / rows.weight.sum()
    b, u, e = F @ fit.base, F @ fit.effect, rows.exposure
    if family == "mean":
        error = rows.y - b - e * u
        by_base, by_effect = -error, -e * error
    elif family == "bernoulli":
        high, low = expit(b + u / 2), expit(b - u / 2)
        m = e * high + (1 - e) * low
        pull = (m - rows.y) / (m * (1 - m))
        by_base = pull * (e * high * (1 - high) + (1 - e) * low * (1 - low))
        by_effect = 0.5 * pull * (e * high * (1 - high) - (1 - e) * low * (1 - low))
    else:
        high, low = (norm.pdf(rows.y, b + s * u / 2, fit.sigma) for s in (1, -1))
        r = e * high / (e * high + (1 - e) * low)
        up, down = rows.y - b - u / 2, rows.y - b + u / 2
        by_base = -(r * up + (1 - r) * down) / fit.sigma**2
        by_effect = -0.5 * (r * up - (1 - r) * down) / fit.sigma**2
        assert_allclose(share @ (r * up**2 + (1 - r) * down**2), fit.sigma**2, rtol=1e-6)
    gradient = np.r_[F.T @ (share * by_base), F.T @ (share * by_effect)] + penalty * fit.coef
    assert_allclose(gradient, 0.0, atol=2e-6)


@pytest.mark.parametrize("ridge", PENALTIES)
def test_without_an_effect_it_is_logistic_regression(ridge):
    """Scikit-learn sums losses: its C is 1 / (ridge * sum of weights)."""
    rows, _ = draw(500, seed=2)
    alone = BaseEffectRows(rows.base, np.empty((500, 0)), rows.X, rows.y, np.ones(500), rows.weight)
    fit = engine_of("bernoulli").fit(alone, np.array([0.0, ridge, ridge]), np.zeros(3), p_base=3)
    total = rows.weight.sum()
    model = LogisticRegression(C=1 / (ridge * total), solver="newton-cholesky", tol=1e-10)
    model.fit(rows.X, rows.y, sample_weight=rows.weight)
    assert_allclose(fit.base, np.r_[model.intercept_, model.coef_[0]], atol=1e-6)
    assert fit.effect.shape == (0,)


@pytest.mark.parametrize("ridge", PENALTIES)
def test_the_mean_family_is_ridge_regression_on_both_groups_of_columns(ridge):
    rows, _ = draw(500, seed=3, family="mean")
    penalty = np.r_[0.0, np.full(5, ridge)]
    fit = engine_of("mean").fit(rows, penalty, np.zeros(6), p_base=3)
    D = np.column_stack([rows.X, rows.exposure[:, None] * rows.effect])
    model = Ridge(alpha=ridge * rows.weight.sum(), solver="cholesky")
    model.fit(D, rows.y, sample_weight=rows.weight)
    assert_allclose(fit.coef, np.r_[model.intercept_, model.coef_], atol=1e-8)
    assert len(fit.objective) <= 3  # a quadratic is solved in one step


def test_huber_agrees_with_scikit_learn_at_its_scale():
    """HuberRegressor minimises over a scale s as well; given s, the threshold is epsilon s.

    It stops at a gradient of 1e-8 of a sum over 500 rows.
    """
    rows, _ = draw(500, seed=4, family="mean")
    D = np.column_stack([rows.X, rows.exposure[:, None] * rows.effect])
    ridge = 1e-3
    other = HuberRegressor(epsilon=1.2, alpha=ridge, tol=1e-8, max_iter=5000).fit(D, rows.y)
    equal = BaseEffectRows(rows.base, rows.effect, rows.X, rows.y, rows.exposure, np.ones(500))
    # Its loss is 2 / s times ours, summed over 500 rows, and its ridge has no half.
    penalty = np.r_[0.0, np.full(5, ridge * other.scale_ / 500)]
    fit = Scoring(MeanTerms(1.2 * other.scale_), **EXACT).fit(equal, penalty, np.zeros(6), p_base=3)
    assert_allclose(fit.coef, np.r_[other.intercept_, other.coef_], atol=1e-4)


@pytest.mark.parametrize("family", ["bernoulli", "mean", "huber", "gaussian"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ridge=st.sampled_from([0.0, 1e-6, 1e-2, 1.0]))
def test_the_objective_never_rises(family, seed, ridge):
    """From a random start, whatever the ridge; the first entry is the start's own value."""
    rows, _ = draw(80, seed=seed, family="mean" if family == "huber" else family)
    start = np.random.default_rng(seed).standard_normal(6)
    fit = engine_of(family).fit(rows, np.full(6, ridge), start, p_base=3)
    assert (np.diff(fit.objective) <= 0.0).all()
    if family != "gaussian":
        assert_allclose(
            fit.objective[0], slow_objective(family, rows, np.full(6, ridge), start), rtol=1e-9
        )


def test_known_treatments_reduce_it_to_two_regressions():
    """Exposures 0 and 1: base + effect / 2 and base - effect / 2 are fitted apart."""
    rng = np.random.default_rng(5)
    known = (rng.random(600) < 0.4).astype(float)
    for family in ("bernoulli", "gaussian"):
        rows, _ = draw(600, seed=5, family=family, chance=known)
        fit = engine_of(family).fit(rows, np.zeros(6), np.zeros(6), p_base=3)
        for arm, sign in ((1.0, 0.5), (0.0, -0.5)):
            at = known == arm
            model = Ridge(alpha=0.0, solver="cholesky")
            if family == "bernoulli":
                model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
            model.fit(rows.X[at], rows.y[at], sample_weight=rows.weight[at])
            expected = np.r_[model.intercept_, np.ravel(model.coef_)]
            assert_allclose(fit.base + sign * fit.effect, expected, atol=1e-6)


@pytest.mark.parametrize("family", ["bernoulli", "mean", "gaussian"])
def test_functions_and_their_values_give_the_same_fit(family):
    """Also across chunks: 5,000 rows are read in two."""
    rows, _ = draw(5000, seed=6, family=family)

    def basis(X):
        return np.column_stack([np.ones(len(X)), X])

    lazy = BaseEffectRows(basis, basis, rows.X, rows.y, rows.exposure, rows.weight)
    engine, penalty = engine_of(family), np.full(6, 1e-3)
    held, called = (engine.fit(r, penalty, np.zeros(6), p_base=3) for r in (rows, lazy))
    assert_array_equal(held.coef, called.coef)
    assert_array_equal(engine.losses(rows, held), engine.losses(lazy, called))
    assert_allclose(
        engine.losses(rows, held),
        slow_loss(family, rows, np.r_[held.coef, np.log(held.sigma)]),
        rtol=1e-9,
    )


@pytest.mark.parametrize("family", ["bernoulli", "mean", "huber", "gaussian"])
def test_whole_weights_equal_repeated_rows(family):
    rows, _ = draw(300, seed=7, family="mean" if family == "huber" else family)
    times = np.random.default_rng(7).integers(0, 3, 300)
    again = np.repeat(np.arange(300), times)
    weighted = BaseEffectRows(
        rows.base, rows.effect, rows.X, rows.y, rows.exposure, times.astype(float)
    )
    repeated = BaseEffectRows(
        rows.base[again],
        rows.effect[again],
        rows.X[again],
        rows.y[again],
        rows.exposure[again],
        np.ones(len(again)),
    )
    engine = engine_of(family)
    one, other = (
        engine.fit(r, np.full(6, 1e-2), np.zeros(6), p_base=3) for r in (weighted, repeated)
    )
    assert_allclose(one.coef, other.coef, atol=1e-6)
    assert_allclose(one.sigma, other.sigma, atol=1e-6)


@pytest.mark.parametrize("family", ["bernoulli", "mean", "gaussian"])
def test_exchanging_treated_and_untreated_flips_the_effect(family):
    """e -> 1 - e, or -c, at every row: the parts cannot change places without it."""
    rows, _ = draw(400, seed=8, family=family)
    mirrored = -rows.exposure if family == "mean" else 1.0 - rows.exposure
    other = BaseEffectRows(rows.base, rows.effect, rows.X, rows.y, mirrored, rows.weight)
    engine, penalty = engine_of(family), np.full(6, 1e-3)
    one, two = (engine.fit(r, penalty, np.zeros(6), p_base=3) for r in (rows, other))
    assert_allclose(one.base, two.base, atol=1e-7)
    assert_allclose(one.effect, -two.effect, atol=1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize("family", ["bernoulli", "mean", "gaussian"])
def test_linear_truth_is_found_within_its_standard_errors(family):
    """The squared distance in units of the inverse information is chi-square with 6 degrees.

    Outcome rows of the mean family scatter by 1 and by the unknown treatment, at most
    e (1 - e) u^2: the sandwich takes the residuals as they are. 30 is passed once in 25,000 draws.
    """
    n = 4000
    rows, _ = draw(n, seed=9, family=family)
    rows = BaseEffectRows(rows.base, rows.effect, rows.X, rows.y, rows.exposure, np.ones(n))
    fit = engine_of(family).fit(rows, np.zeros(6), np.zeros(6), p_base=3)
    # With a contrast e - 1/2 and base at e = 1/2 the truth is the same for all families.
    truth = np.array([0.3, 1.0, 0.0, 1.0, 0.0, -1.0])
    F, e, b, u = rows.base, rows.exposure, rows.base @ fit.base, rows.base @ fit.effect
    if family == "bernoulli":
        at = BernoulliTerms()(rows.y, e, b, u)
        D = np.hstack([F * at.base_factor[:, None], F * at.effect_factor[:, None]])
        precision = D.T @ D
    else:
        if family == "mean":
            error = rows.y - b - e * u
            score = np.hstack([F * error[:, None], F * (e * error)[:, None]])
            D = np.hstack([F, F * e[:, None]])
            bread = np.linalg.inv(D.T @ D)
            precision = np.linalg.inv(bread @ (score.T @ score) @ bread)
        else:
            odds = logit(e) + u * (rows.y - b) / fit.sigma**2
            r, s2 = expit(odds), fit.sigma**2
            base = (rows.y - b - (r - 0.5) * u) / s2
            effect = ((r - 0.5) * (rows.y - b) - u / 4) / s2
            second = (rows.y - b) ** 2 - (2 * r - 1) * u * (rows.y - b) + u**2 / 4
            log_sigma = second / s2 - 1.0
            score = np.hstack([F * base[:, None], F * effect[:, None], log_sigma[:, None]])
            precision = np.linalg.inv(np.linalg.inv(score.T @ score)[:6, :6])
            assert abs(fit.sigma - 1.0) < 5 * np.sqrt(np.linalg.inv(score.T @ score)[6, 6])
    gap = fit.coef - truth
    assert gap @ precision @ gap < 30.0


# --- Ends that are not a minimum ----------------------------------------------------------------


def test_too_few_iterations_are_said():
    rows, _ = draw(200)
    for engine in (Scoring(BernoulliTerms(), max_iter=1), GaussianMixture(max_iter=1)):
        fit = engine.fit(rows, np.full(6, 1e-3), np.zeros(6), p_base=3)
        assert not fit.converged
        assert len(fit.objective) == 2


class Uphill:
    """Squared loss whose gradient has the wrong sign: no step brings what it promises."""

    def __call__(self, y, exposure, base, effect):
        right = MeanTerms()(y, exposure, base, effect)
        return right._replace(residual=self.size * -right.residual)

    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize(("size", "converged"), [(1.0, False), (1e-6, True)])
def test_without_any_gain_the_fit_ends_where_it_is(size, converged):
    """Counted as converged only if what was promised is below the square root of the tolerance."""
    rows, _ = draw(200, family="mean")
    fit = Scoring(Uphill(size), tol=1e-14).fit(rows, np.zeros(6), np.zeros(6), p_base=3)
    assert_array_equal(fit.coef, 0.0)
    assert len(fit.objective) == 1
    assert fit.converged == converged


def test_full_steps_that_overshoot_are_shortened():
    """Far from the data, where the likelihood is flat and a Fisher step enormous."""
    rows, _ = draw(200)
    start = np.array([12.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    fit = engine_of("bernoulli").fit(rows, np.full(6, 1e-3), start, p_base=3)
    exact = engine_of("bernoulli").fit(rows, np.full(6, 1e-3), np.zeros(6), p_base=3)
    assert_allclose(fit.objective[-1], exact.objective[-1], atol=1e-9)


@pytest.mark.parametrize("family", ["bernoulli", "mean", "huber"])
@pytest.mark.parametrize("size", [1e-14, 0.05, 20.0])
def test_a_fit_nearby_changes_the_way_but_not_the_end(family, size):
    """Curvatures that are far too small, too small and too large all end at the minimum."""
    rows, _ = draw(300, family="bernoulli" if family == "bernoulli" else "mean")
    penalty = np.full(6, 1e-9)  # none that would tame a curvature near 0
    engine = engine_of(family)
    expected = engine.fit(rows, penalty, np.zeros(6), p_base=3)
    near = engine.fit(rows, 1e6 * penalty, np.zeros(6), p_base=3)
    again = engine.fit(rows, penalty, near, p_base=3)
    bad = engine.fit(rows, penalty, replace(near, curvature=size * np.eye(6)), p_base=3)
    for found in (again, bad):
        assert found.converged
        assert np.all(np.diff(found.objective) <= 0.0)
        # Steps end when the next gains less than 1e-14; at worst a few dozen like it would follow.
        assert_allclose(found.objective[-1], expected.objective[-1], rtol=0.0, atol=1e-12)


def test_the_spread_of_a_normal_outcome_stays_above_its_floor():
    """A base that explains every row would have infinite likelihood."""
    F = np.column_stack([np.ones(40), np.linspace(-1.0, 1.0, 40)])
    y = F @ np.array([1.0, 2.0])
    rows = BaseEffectRows(F, F[:, :1], F[:, 1:], y, np.full(40, 0.5), np.ones(40))
    fit = GaussianMixture().fit(rows, np.zeros(3), np.zeros(3), p_base=2)
    assert_allclose(fit.sigma, 1e-3 * y.std(), rtol=1e-9)
    assert np.isfinite(fit.coef).all()


def test_no_argument_is_changed():
    rows, _ = draw(50)
    start, penalty = np.ones(6), np.full(6, 0.1)
    engine_of("bernoulli").fit(rows, penalty, start, p_base=3)
    engine_of("gaussian").fit(rows, penalty, start, p_base=3)
    assert_array_equal(start, 1.0)
    assert_array_equal(penalty, 0.1)
