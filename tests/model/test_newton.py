"""Base and effect: right derivatives, minima that others find, and scales as the textbook has."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit, kl_div
from scipy.stats import norm
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge

from unjoined.model.families import (
    BernoulliFamily,
    GaussianFamily,
    MeanFamily,
    PoissonFamily,
    choose_threshold,
)
from unjoined.model.newton import (
    AdditiveRows,
    Parts,
    Scales,
    fit_additive,
    fits_without,
    pass_by_pieces,
    pass_in_memory,
)
from unjoined.model.specifications import ModelRows, grow

QUICK = settings(max_examples=40, deadline=None)
NUMBERS = st.floats(-6.0, 6.0)
CHANCES = st.floats(0.02, 0.98)
SPLIT = 0.3
LAWS = {
    "bernoulli": BernoulliFamily(SPLIT),
    "mean": MeanFamily(variance=0.8),
    "huber": MeanFamily(threshold=0.8, variance=0.8),
    "gaussian": GaussianFamily(SPLIT, variance=0.8),
    "poisson": PoissonFamily(SPLIT, variance=0.8),
}
EVERY_LAW = pytest.mark.parametrize("name", LAWS)
BLOCK, GROUPS = np.arange(3), ("constant", "line", "line")
BOTH = frozenset({"constant", "line"})
PARTS = Parts.of_groups(BLOCK, GROUPS, BOTH, BOTH)
ALONE = Parts.of_groups(BLOCK, GROUPS, BOTH, frozenset())


def draw(n, seed=0, name="bernoulli", propensity=None):
    """Two features and known exposures; base 0.3 + x_0, effect 1 - x_1; unequal weights."""
    rng = np.random.default_rng(seed)
    values = np.vstack([np.ones(n), rng.standard_normal((2, n))])
    e = expit(2.0 * rng.standard_normal(n)) if propensity is None else propensity
    treated = rng.random(n) < e
    mean = 0.3 + values[1] + (treated - SPLIT) * (1.0 - values[2])
    y = mean + rng.standard_normal(n)
    if name == "bernoulli":
        y = (rng.random(n) < expit(mean)).astype(float)
    if name == "poisson":
        y = rng.poisson(np.exp(0.3 * mean)).astype(float)
    exposure = e - SPLIT if name in ("mean", "huber") else e
    return AdditiveRows(values, y, exposure, rng.uniform(0.5, 2.0, n))


def fixed(precision, parts=PARTS):
    """Return scales that a fit without steps of its own leaves alone."""
    return Scales(
        np.broadcast_to(precision, len(parts.group)).astype(float), np.ones(9)
    )


def fit_fixed(rows, law, precision, parts=PARTS, start=None):
    start = np.zeros(len(parts.block)) if start is None else start
    scales = fixed(precision, parts)
    return fit_additive(
        pass_in_memory(rows, parts), parts, law, start, scales, n_steps=0, tol=1e-9
    )


def fit_free(rows, law, parts=PARTS, **others):
    start = np.zeros(len(parts.block))
    start[0] = law.intercept(float(np.average(rows.y, weights=rows.weight)))
    return fit_additive(
        pass_in_memory(rows, parts), parts, law, start, tol=1e-9, **others
    )


def test_a_step_from_the_fit_to_all_rows_is_the_fit_without_some():
    """Exact where the loss is a square; elsewhere steps use a curvature that is about right."""
    for name in LAWS:
        rows, part = draw(4000, name=name), np.arange(4000) % 10
        pieces = [
            AdditiveRows(*(array[..., part == j] for array in rows)) for j in range(10)
        ]
        fit = fit_fixed(rows, LAWS[name], 2.0)
        sums = [pass_in_memory(piece, PARTS)(fit.family, fit.coef) for piece in pieces]
        for j, without in enumerate(fits_without(fit, sums)[:3]):
            rest = AdditiveRows(*(array[..., part != j] for array in rows))
            alone = fit_fixed(rest, LAWS[name], 2.0)
            change = np.abs(alone.coef - fit.coef).max()
            assert change > 1e-3
            most = {"mean": 1e-8, "bernoulli": 0.1 * change}.get(name, 0.6 * change)
            assert_allclose(without.coef, alone.coef, atol=most)


def slow_losses(name, rows, coef):
    """The loss of each row as the formula is written."""
    b, u = coef[:3] @ rows.values, coef[3:] @ rows.values
    y, e = rows.y, rows.exposure
    up, down = b + (1 - SPLIT) * u, b - SPLIT * u
    if name == "bernoulli":
        m = e * expit(up) + (1 - e) * expit(down)
        return -(y * np.log(m) + (1 - y) * np.log(1 - m))
    if name == "poisson":
        m = e * np.exp(up) + (1 - e) * np.exp(down)
        return kl_div(y, m) / 0.8  # half the deviance
    if name == "gaussian":
        s = np.sqrt(0.8)
        return -np.log(e * norm.pdf(y, up, s) + (1 - e) * norm.pdf(y, down, s))
    error = np.abs(y - b - e * u)
    bounded = np.where(error < 0.8, 0.5 * error**2, 0.8 * error - 0.32)
    return (0.5 * error**2 if name == "mean" else bounded) / 0.8


def one(*numbers):
    return [np.array([number]) for number in numbers]


# --- One row's terms ----------------------------------------------------------------------------


@EVERY_LAW
@QUICK
@given(base=NUMBERS, effect=NUMBERS, exposure=CHANCES, y=st.sampled_from([0.0, 1.0]))
def test_gradients_are_those_of_the_loss(name, base, effect, exposure, y):
    """Central differences of step h err by h^2 times a third derivative and by rounding, loss
    (below 200) * 2^-52 / h: with h = 1e-5 below 1e-7."""
    law, h = LAWS[name], 1e-5

    def loss(b, u):
        return law(*one(y, exposure, b, u)).loss[0]

    at = law(*one(y, exposure, base, effect))
    # Huber's second derivative jumps: a difference across the kink errs by h instead.
    atol = 1e-5 if name == "huber" else 1e-7
    slope_base = (loss(base + h, effect) - loss(base - h, effect)) / (2 * h)
    slope_effect = (loss(base, effect + h) - loss(base, effect - h)) / (2 * h)
    assert_allclose(at.by_base[0], slope_base, rtol=1e-6, atol=atol)
    assert_allclose(at.by_effect[0], slope_effect, rtol=1e-6, atol=atol)


def test_losses_are_those_of_the_formulas():
    for name in LAWS:
        rows = draw(200, name=name)
        coef = np.array([0.2, -1.0, 0.5, 0.7, 0.3, -2.0])
        loss = LAWS[name](
            rows.y, rows.exposure, coef[:3] @ rows.values, coef[3:] @ rows.values
        ).loss
        assert_allclose(loss, slow_losses(name, rows, coef), rtol=1e-9)


@QUICK
@given(base=NUMBERS, effect=NUMBERS, exposure=CHANCES)
def test_bernoulli_curvature_is_fishers_expected_information(base, effect, exposure):
    """The mean over y of the squared gradient, whose own mean is 0."""
    treated, untreated = expit(base + 0.7 * effect), expit(base - 0.3 * effect)
    propensity = exposure * treated + (1 - exposure) * untreated
    information, score = np.zeros((2, 2)), np.zeros(2)
    for y, weight in ((0.0, 1 - propensity), (1.0, propensity)):
        at = BernoulliFamily(0.3)(*one(y, exposure, base, effect))
        gradient = np.array([at.by_base[0], at.by_effect[0]])
        information += weight * np.outer(gradient, gradient)
        score += weight * gradient
    curvature = [
        [at.base_base[0], at.base_effect[0]],
        [at.base_effect[0], at.effect_effect[0]],
    ]
    assert_allclose(curvature, information, rtol=1e-9, atol=1e-15)
    assert_allclose(score, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["mean", "huber", "gaussian"])
@QUICK
@given(
    here=st.tuples(NUMBERS, NUMBERS),
    there=st.tuples(NUMBERS, NUMBERS),
    exposure=CHANCES,
    y=NUMBERS,
)
def test_the_quadratic_of_a_row_touches_its_loss_and_lies_above(
    name, here, there, exposure, y
):
    """So that a full step on it never raises the loss: Huber's weights, and EM's."""
    law = LAWS[name]
    at = law(*one(y, exposure, *here))
    db, du = np.subtract(there, here)
    quadratic = at.loss[0] + at.by_base[0] * db + at.by_effect[0] * du
    quadratic += 0.5 * at.base_base[0] * db**2 + at.base_effect[0] * db * du
    quadratic += 0.5 * at.effect_effect[0] * du**2
    loss = law(*one(y, exposure, *there)).loss[0]
    assert quadratic >= loss - 1e-9 * (1.0 + abs(loss) + at.loss[0])
    if name == "mean":  # its own quadratic
        assert_allclose(quadratic, loss, atol=1e-9 * (1.0 + at.loss[0]))


def test_an_impossible_row_costs_a_fixed_amount():
    """Probabilities stop 1e-9 short of 0 and 1, so that one row costs at most 20.7 nats."""
    at = BernoulliFamily(0.5)(*one(0.0, 1.0, 1000.0, 0.0))
    assert_allclose(at.loss, -np.log(1e-9), rtol=1e-6)
    assert all(np.isfinite(part).all() for part in at if part is not None)


def test_a_normal_row_surely_treated_belongs_to_its_arm_alone():
    for exposure, mean in ((1.0, 0.5 + 0.7), (0.0, 0.5 - 0.3)):
        at = GaussianFamily(0.3, 0.8)(*one(2.0, exposure, 0.5, 1.0))
        assert_allclose(at.loss, -norm.logpdf(2.0, mean, np.sqrt(0.8)), rtol=1e-12)
        assert_allclose(at.square, (2.0 - mean) ** 2, rtol=1e-12)


def test_a_huge_threshold_is_the_squared_loss():
    arrays = np.random.default_rng(0).standard_normal((4, 50))
    bounded, squared = MeanFamily(1e6)(*arrays), MeanFamily()(*arrays)
    assert bounded.rest is squared.rest is None
    for one_part, other in zip(bounded[:-1], squared[:-1], strict=True):
        assert_allclose(one_part, other, rtol=1e-14)


@EVERY_LAW
@QUICK
@given(base=NUMBERS, effect=NUMBERS, propensity=CHANCES)
def test_the_uplift_lies_between_the_arms_and_slopes_are_its_own(
    name, base, effect, propensity
):
    law, h = LAWS[name], 1e-5

    def uplift(b, u):
        treated, untreated = law.arms(*one(b, u, propensity))
        return (treated - untreated)[0]

    assert_allclose(law.uplift(*one(base, effect)), uplift(base, effect), atol=1e-12)
    by_base, by_effect = law.slopes(*one(base, effect))
    slope_base = (uplift(base + h, effect) - uplift(base - h, effect)) / (2 * h)
    slope_effect = (uplift(base, effect + h) - uplift(base, effect - h)) / (2 * h)
    assert_allclose([by_base[0], by_effect[0]], [slope_base, slope_effect], atol=1e-9)


def test_arms_mix_to_the_mean_of_the_outcome():
    """Half the rows treated, the rest not: the mean that the law gives an outcome."""
    for name in LAWS:
        law, (base, effect) = LAWS[name], one(0.4, -1.3)
        treated, untreated = law.arms(base, effect, np.array([SPLIT]))
        mean = 0.5 * (treated + untreated)
        exposure = np.array([0.5 - SPLIT if name in ("mean", "huber") else 0.5])
        if name == "bernoulli":
            assert_allclose(
                law(np.ones(1), exposure, base, effect).loss, -np.log(mean), rtol=1e-12
            )
        else:  # where the residuals of both arms cancel
            assert_allclose(law(mean, exposure, base, effect).by_base, 0.0, atol=1e-12)


def test_the_intercept_is_the_base_of_outcomes_without_an_effect():
    for name in LAWS:
        law = LAWS[name]
        base = np.array([law.intercept(0.3)])
        treated, untreated = law.arms(base, np.zeros(1), np.array([SPLIT]))
        assert_allclose([treated[0], untreated[0]], 0.3, rtol=1e-12)


def test_renewed_noise_is_the_mean_squared_residual_and_the_sums_follow():
    for name in LAWS:
        rows = draw(300, name=name)
        coef = np.array([0.2, 1.0, 0.0, 0.5, 0.0, -1.0])
        pass_over = pass_in_memory(rows, PARTS)
        law, known = LAWS[name].renewed(pass_over(LAWS[name], coef), 2.5)
        b, u = coef[:3] @ rows.values, coef[3:] @ rows.values
        error = rows.y - b - rows.exposure * u
        if name == "mean":
            free = rows.weight.sum() - 2.5  # as in an unbiased variance
            assert law.variance == pytest.approx(
                rows.weight @ error**2 / free, rel=1e-12
            )
        elif (
            name == "huber"
        ):  # E psi^2 / E psi', whose square of the latter is Huber's variance
            near = np.abs(error) <= 0.8
            bounded = np.clip(error, -0.8, 0.8)
            variance = rows.weight @ bounded**2 / (rows.weight @ near - 2.5)
            assert law.variance == pytest.approx(variance, rel=1e-12)
        elif name == "poisson":
            up, down = law.arms(b, u, b)
            mean = rows.exposure * up + (1.0 - rows.exposure) * down
            pearson = rows.weight @ ((rows.y - mean) ** 2 / mean)
            assert law.variance == pytest.approx(pearson / (rows.weight.sum() - 2.5))
        elif name == "gaussian":
            assert known is None
            spread = law(rows.y, rows.exposure, b, u)
            assert (
                0.0 < law.variance < np.average((rows.y - b) ** 2, weights=rows.weight)
            )
            assert np.isfinite(spread.loss).all()
        else:
            assert law == LAWS[name]
        if known is not None:
            again = pass_over(law, coef)
            assert_allclose(known.loss, again.loss, rtol=1e-12)
            assert_allclose(known.gradient, again.gradient, rtol=1e-9, atol=1e-9)
            assert_allclose(known.curvature, again.curvature, rtol=1e-12)
            assert (known.square, known.counted) == (again.square, again.counted)


# --- Passes -------------------------------------------------------------------------------------


def two_features(X):
    return np.column_stack([np.ones(len(X)), X])


def test_passes_add_up_the_same_however_they_go():
    """Three pieces; threads and where the functions come from change nothing."""
    for name in LAWS:
        rows, law = draw(9000, name=name), LAWS[name]
        features = rows._replace(values=rows.values[1:])
        coef = np.array([0.2, 1.0, 0.1, 0.5, 0.0, -1.0])
        expected = pass_in_memory(rows, PARTS, 1)(law, coef)
        for pass_over in (
            pass_in_memory(rows, PARTS, 2),
            pass_by_pieces(two_features, features, PARTS, 1),
            pass_by_pieces(two_features, features, PARTS, 2),
        ):
            found = pass_over(law, coef)
            assert_allclose(found.gradient, expected.gradient, rtol=1e-10, atol=1e-10)
            assert_allclose(found.curvature, expected.curvature, rtol=1e-12, atol=1e-10)
            for field in ("loss", "square", "counted"):
                assert getattr(found, field) == pytest.approx(
                    getattr(expected, field), rel=1e-12
                )
        twice = [
            pass_by_pieces(two_features, features, PARTS, jobs)(law, coef)
            for jobs in (1, 2)
        ]
        assert_array_equal(twice[0].gradient, twice[1].gradient)
        assert_array_equal(twice[0].curvature, twice[1].curvature)
        terms = law(
            rows.y, rows.exposure, coef[:3] @ rows.values, coef[3:] @ rows.values
        )
        assert expected.loss == pytest.approx(rows.weight @ terms.loss, rel=1e-12)
        by_hand = np.r_[
            rows.values @ (rows.weight * terms.by_base),
            rows.values @ (rows.weight * terms.by_effect),
        ]
        assert_allclose(expected.gradient, by_hand, rtol=1e-9, atol=1e-9)


def test_parts_of_some_functions_only_see_these():
    """A constant base and a full effect, then the reverse: rows and columns of the full sums."""
    for name in LAWS:
        rows, law = draw(400, name=name), LAWS[name]
        few = frozenset({"constant"})
        for kinds, at in (((few, BOTH), [0, 3, 4, 5]), ((BOTH, few), [0, 1, 2, 3])):
            parts = Parts.of_groups(BLOCK, GROUPS, *kinds)
            coef = np.array([0.3, 0.1, -0.2, 0.4])
            full = np.zeros(6)
            full[at] = coef
            some, whole = (
                pass_in_memory(rows, p)(law, c)
                for p, c in ((parts, coef), (PARTS, full))
            )
            assert_allclose(some.gradient, whole.gradient[at], rtol=1e-10, atol=1e-10)
            assert_allclose(
                some.curvature, whole.curvature[np.ix_(at, at)], rtol=1e-10, atol=1e-10
            )


# --- Fits at fixed scales -----------------------------------------------------------------------


@pytest.mark.parametrize("precision", [1e-2, 1.0, 100.0])
@EVERY_LAW
def test_a_fit_is_the_minimum_that_a_general_optimiser_finds(name, precision):
    """The same penalised objective written slowly, minimised by quasi-Newton.

    Both stop within 1e-9 of the minimum of the mean loss, whose curvature is at least 1e-3.
    """
    rows = draw(600, name=name)
    fit = fit_fixed(rows, LAWS[name], precision)
    total = rows.weight.sum()

    def objective(coef):
        return (
            rows.weight @ slow_losses(name, rows, coef) + 0.5 * precision * coef @ coef
        ) / total

    direct = minimize(objective, np.zeros(6), method="BFGS", options={"gtol": 1e-7})
    assert fit.converged
    assert fit.family == LAWS[name]
    assert_allclose(fit.objective[-1] / total, direct.fun, atol=1e-9)
    assert_allclose(objective(fit.coef), direct.fun, atol=1e-9)
    assert_allclose(fit.coef, direct.x, atol=1.4e-3)


@EVERY_LAW
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), precision=st.sampled_from([1e-4, 1e-2, 1.0, 100.0])
)
def test_the_objective_never_rises(name, seed, precision):
    """From a random start, whatever the scales; the first entry is the start's own value."""
    rows = draw(80, seed, name)
    start = np.random.default_rng(seed).standard_normal(6)
    fit = fit_fixed(rows, LAWS[name], precision, start=start)
    assert (np.diff(fit.objective) <= 0.0).all()
    expected = (
        rows.weight @ slow_losses(name, rows, start) + 0.5 * precision * start @ start
    )
    assert fit.objective[0] == pytest.approx(expected, rel=1e-9)


def test_without_an_effect_it_is_penalised_logistic_regression():
    """Scikit-learn's C is one over the precision; its intercept is free, ours next to."""
    for precision in (1e-2, 1.0, 100.0):
        rows = draw(500, 2)
        fit = fit_fixed(rows, LAWS["bernoulli"], [1e-9, precision, precision], ALONE)
        model = LogisticRegression(C=1 / precision, solver="newton-cholesky", tol=1e-10)
        model.fit(rows.values[1:].T, rows.y, sample_weight=rows.weight)
        assert_allclose(fit.coef, np.r_[model.intercept_, model.coef_[0]], atol=1e-6)
        base, effect = fit(rows.values.T)
        assert_allclose(
            expit(base), model.predict_proba(rows.values[1:].T)[:, 1], atol=1e-6
        )
        assert_array_equal(effect, np.zeros(500))


def test_a_mean_is_ridge_regression_on_both_groups_of_columns():
    """With noise of variance v a precision p is a ridge of v p."""
    for precision in (1e-2, 1.0, 100.0):
        rows = draw(500, 3, "mean")
        fit = fit_fixed(
            rows, MeanFamily(variance=0.8), np.r_[1e-9, np.full(5, precision)]
        )
        D = np.column_stack([rows.values[1:].T, (rows.exposure * rows.values).T])
        model = Ridge(alpha=0.8 * precision, solver="cholesky")
        model.fit(D, rows.y, sample_weight=rows.weight)
        assert_allclose(fit.coef, np.r_[model.intercept_, model.coef_], atol=1e-8)
        assert len(fit.objective) <= 3  # a quadratic is solved in one step


def test_a_bounded_mean_agrees_with_scikit_learns_huber_regression():
    """HuberRegressor minimises over a scale s as well; given s, the threshold is epsilon s.

    Its loss is 2 / s times ours and its ridge has no half; it stops at a gradient of 1e-8.
    """
    rows = draw(500, 4, "huber")
    rows = rows._replace(weight=np.ones(500))
    D = np.column_stack([rows.values[1:].T, (rows.exposure * rows.values).T])
    other = HuberRegressor(epsilon=1.2, alpha=0.5, tol=1e-8, max_iter=5000).fit(
        D, rows.y
    )
    precision = np.r_[1e-9, np.full(5, 0.5 * other.scale_)]
    fit = fit_fixed(rows, MeanFamily(threshold=1.2 * other.scale_), precision)
    assert_allclose(fit.coef, np.r_[other.intercept_, other.coef_], atol=1e-4)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_known_treatments_reduce_it_to_two_regressions(name):
    """Exposures 0 and 1: the two arms are fitted apart."""
    known = (np.random.default_rng(5).random(600) < 0.4).astype(float)
    rows = draw(600, 5, name, propensity=known)
    fit = fit_fixed(rows, LAWS[name], 1e-9)
    for arm, share in ((1.0, 1 - SPLIT), (0.0, -SPLIT)):
        at = known == arm
        model = Ridge(alpha=0.0, solver="cholesky")
        if name == "bernoulli":
            model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
        model.fit(rows.values[1:, at].T, rows.y[at], sample_weight=rows.weight[at])
        expected = np.r_[model.intercept_, np.ravel(model.coef_)]
        assert_allclose(fit.coef[:3] + share * fit.coef[3:], expected, atol=1e-6)


# --- Uncertainty --------------------------------------------------------------------------------


def test_the_covariance_of_a_mean_is_that_of_bayesian_ridge():
    """(D' W D / v + diag(p))^-1, whose product with D' y / v are the coefficients."""
    rows = draw(60, 6, "mean")
    rows = rows._replace(weight=np.ones(60))
    precision = np.array([0.1, 1.0, 2.0, 0.5, 3.0, 4.0])
    fit = fit_fixed(rows, MeanFamily(variance=0.8), precision)
    D = np.vstack([rows.values, rows.exposure * rows.values]).T
    expected = np.linalg.inv(D.T @ D / 0.8 + np.diag(precision))
    assert_allclose(fit.covariance, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(fit.coef, expected @ D.T @ rows.y / 0.8, rtol=1e-9)


def test_the_covariance_is_the_inverse_of_the_penalised_curvature():
    for name in LAWS:
        rows = draw(200, 7, name)
        precision = np.array([0.1, 1.0, 2.0, 0.5, 3.0, 4.0])
        fit = fit_fixed(rows, LAWS[name], precision)
        t = LAWS[name](
            rows.y, rows.exposure, *(F @ rows.values for F in np.split(fit.coef, 2))
        )
        F = rows.values
        cross = (F * (rows.weight * t.base_effect)) @ F.T
        curvature = np.block(
            [
                [(F * (rows.weight * t.base_base)) @ F.T, cross],
                [cross.T, (F * (rows.weight * t.effect_effect)) @ F.T],
            ]
        )
        assert_allclose(
            fit.covariance @ (curvature + np.diag(precision)), np.eye(6), atol=1e-9
        )


# --- Scales -------------------------------------------------------------------------------------


def test_scales_settle_where_the_textbook_has_them():
    """One block of k orthogonal functions, sum of squares n each, unit noise, and least-squares
    coefficients c. MacKay: precision = freedom / square, with freedom = k n / (n + precision) and
    square = n^2 |c|^2 / (n + precision)^2, which solves to k / (|c|^2 - k / n)."""
    n, c = 200.0, np.array([0.4, -0.1, 0.2, 0.05])
    parts = Parts.of_groups(
        np.zeros(4, dtype=int), ("curve",), frozenset({"curve"}), frozenset()
    )
    scales = Scales.start(parts)
    for _ in range(200):
        p = scales.precision[0]
        scales = scales.updated(parts, n / (n + p) * c, np.full(4, 1.0 / (n + p)))
    assert_allclose(scales.precision, 4.0 / (c @ c - 4.0 / n), rtol=1e-6)
    assert_allclose(scales.group, 1.0 / scales.precision, rtol=1e-6)
    assert scales.moved(scales) == 0.0


@pytest.mark.parametrize("name", ["bernoulli", "mean"])
def test_a_near_start_needs_few_passes_to_the_same_scales(name):
    """Scales settle between passes: two steps do what dozens do from nothing."""
    rows, law = draw(4000, seed=1, name=name), LAWS[name]
    whole = fit_free(rows, law, n_steps=200)
    sample = AdditiveRows(*(array[..., :1000] for array in rows))
    start = fit_free(sample, law)
    passes, count = pass_in_memory(rows, PARTS), []

    def counted(*request):
        count.append(request)
        return passes(*request)

    near = fit_additive(
        counted,
        PARTS,
        start.family,
        start.coef,
        start.scales,
        n_steps=2,
        near=True,
        dear=True,
        tol=0.5,
    )
    assert len(count) <= 6
    assert_allclose(
        np.log(near.scales.group[1:3]), np.log(whole.scales.group[1:3]), atol=0.1
    )
    error = np.sqrt(np.diag(whole.covariance))
    assert (np.abs(near.coef - whole.coef) < 0.2 * error).all()


def test_an_idle_function_is_shrunk_harder_than_its_group():
    """Nine lines without a coefficient, one with a large one: each has its own precision."""
    groups = ("line",) * 10
    parts = Parts.of_groups(np.arange(10), groups, frozenset({"line"}), frozenset())
    scales, n = Scales.start(parts), 500.0
    truth = np.r_[1.0, np.zeros(9)]
    for _ in range(100):
        shrunk = n / (n + scales.precision)
        scales = scales.updated(parts, shrunk * truth, 1.0 / (n + scales.precision))
    assert (scales.precision[1:] > 100.0 * scales.precision[0]).all()
    assert 1.0 / (n + scales.precision[0]) > 0.9 / n  # the busy one is hardly shrunk


@pytest.mark.parametrize(
    ("few", "tail"), [(frozenset(), 1.0), (frozenset({"line"}), 0.1)]
)
def test_scales_settle_where_their_prior_has_them(few, tail):
    """Lines of sum of squares n, unit noise. MacKay with a prior of t degrees of freedom: each
    precision = (freedom + t) / (square + t s), and the mean of the group's precisions is 1 / s."""
    n, c = 400.0, np.array([1.0, 0.3, 0.1, 0.05, 0.02, 0.0])
    parts = Parts.of_groups(
        np.arange(6), ("line",) * 6, frozenset({"line"}), frozenset(), few
    )
    scales = Scales.start(parts)
    for _ in range(2000):
        variance = 1.0 / (n + scales.precision)
        scales = scales.updated(parts, n * variance * c, variance)
    w, freedom = n * c / (n + scales.precision), n / (n + scales.precision)
    found = (freedom - scales.precision * w**2) / (
        scales.precision * scales.group[0] - 1.0
    )
    assert_allclose(found, tail, rtol=1e-6)
    assert_allclose(1.0 / scales.group[0], scales.precision.mean(), rtol=1e-6)


def test_where_few_functions_are_expected_to_matter_idle_ones_are_shrunk_harder():
    groups, few = ("line",) * 10, frozenset({"line"})
    all_of = {
        name: Parts.of_groups(np.arange(10), groups, few, frozenset(), which)
        for name, which in (("many", frozenset()), ("few", few))
    }
    precision, n = {}, 500.0
    for name, parts in all_of.items():
        scales = Scales.start(parts)
        for _ in range(100):
            variance = 1.0 / (n + scales.precision)
            scales = scales.updated(
                parts, n * variance * np.r_[1.0, np.zeros(9)], variance
            )
        precision[name] = scales.precision
    assert (precision["few"][1:] > 2.0 * precision["many"][1:]).all()
    assert precision["few"][0] < 2.0 * precision["many"][0]  # and the busy one is not


def test_constants_are_next_to_free_and_stay_so():
    scales = Scales.start(PARTS)
    free = np.array([PARTS.names[g][1] == "constant" for g in PARTS.group])
    assert (scales.precision[free] <= 0.1).all()
    after = scales.updated(PARTS, np.full(6, 3.0), np.full(6, 0.01))
    assert_array_equal(after.precision[free], scales.precision[free])
    assert (after.precision[~free] != scales.precision[~free]).all()
    assert after.moved(scales) > 0.0


def test_a_large_effect_is_not_shrunk_away_and_the_noise_is_found():
    """Truth 0.3 + x_0 and 1 - x_1; 4,000 rows leave standard errors below 0.15."""
    for name in LAWS:
        rows = draw(4000, 8, name)
        fit = fit_free(rows, LAWS[name])
        assert fit.converged
        times = 0.3 if name == "poisson" else 1.0  # logarithms
        truth = times * np.array([0.3, 1.0, 0.0, 1.0, 0.0, -1.0])
        assert_allclose(fit.coef, truth, atol=0.45 * times)
        assert fit.scales.precision[4] > fit.scales.precision[5]  # idle, busy
        if name == "gaussian":
            assert fit.family.variance == pytest.approx(1.0, abs=0.15)
        if name == "poisson":  # that of treatments is small beside it
            assert fit.family.variance == pytest.approx(1.0, abs=0.15)
        if name == "mean":  # unknown treatments add e (1 - e) u^2
            assert 1.0 < fit.family.variance < 1.6


@pytest.mark.parametrize("name", ["mean", "gaussian"])
def test_noise_does_not_vanish_with_more_functions_than_rows(name):
    """100 rows of unit noise and 2 x 120 idle lines: MacKay divides by the rows that are left.

    The mean square of the residuals would go to its floor of 1e-12, and the fit to every row.
    """
    rng = np.random.default_rng(0)
    values = np.vstack([np.ones(100), rng.standard_normal((120, 100))])
    parts = Parts.of_groups(np.arange(121), ("constant", *["line"] * 120), BOTH, BOTH)
    exposure = rng.uniform(-0.4, 0.4, 100) + (0.0 if name == "mean" else 0.5)
    rows = AdditiveRows(values, rng.standard_normal(100), exposure, np.ones(100))
    fit = fit_free(
        rows, {"mean": MeanFamily(), "gaussian": GaussianFamily(0.5)}[name], parts
    )
    assert 0.1 < fit.family.variance < 1.5
    base, effect = fit(values.T)
    assert (
        np.mean((rows.y - base - (exposure - (name == "gaussian") * 0.5) * effect) ** 2)
        > 0.05
    )


def test_an_intercept_lives_on_when_everything_else_is_noise():
    """Without scales to learn from, only the free constants are left."""
    rng = np.random.default_rng(0)
    rows = draw(2000, 9, "mean")._replace(y=5.0 + rng.standard_normal(2000))
    fit = fit_free(rows, MeanFamily())
    assert fit.coef[0] == pytest.approx(5.0, abs=0.15)
    assert (np.abs(fit.coef[[1, 2, 4, 5]]) < 0.1).all()


def test_scales_of_a_simpler_form_are_kept_in_one_that_contains_it():
    groups = ("constant", "line", "line", "curve")
    block = np.array([0, 1, 2, 3, 3])
    lines, curves = BOTH, BOTH | {"curve"}
    narrow = Parts.of_groups(block, groups, lines, frozenset({"constant"}))
    wide = Parts.of_groups(block, groups, curves, lines)
    known = Scales(np.array([1.0, 2.0, 3.0, 4.0]), np.array([np.inf, 0.3, np.inf]))
    found, start = known.carried(narrow, wide), Scales.start(wide)
    assert_array_equal(found.precision[[0, 1, 2, 4]], known.precision)
    assert_array_equal(found.precision[[3, 5, 6]], start.precision[[3, 5, 6]])
    assert found.group[wide.names.index(("base", "line"))] == 0.3
    assert found.group[wide.names.index(("effect", "line"))] == start.group[-1]
    few = Parts.of_groups(block, groups, curves, lines, frozenset({"line"}))
    again = known.carried(
        narrow, few
    )  # the same groups, though few lines are expected to matter
    assert_array_equal(again.precision, found.precision)
    assert_array_equal(again.group, found.group)


def test_parts_within_their_base_choose_the_same_values():
    block, groups = np.array([0, 1, 2, 3, 3]), ("constant", "line", "square", "curve")
    base, effect = frozenset({"constant", "curve"}), frozenset({"curve"})
    parts = Parts.of_groups(block, groups, base, effect)
    assert_array_equal(parts.base, [0, 3, 4])
    assert_array_equal(parts.effect, [3, 4])
    assert_array_equal(parts.block, [0, 1, 1, 2, 2])
    inner, values = parts.within(), np.arange(50.0).reshape(10, 5)
    assert_array_equal(values[:, parts.base][:, inner.base], values[:, parts.base])
    assert_array_equal(values[:, parts.base][:, inner.effect], values[:, parts.effect])


# --- Symmetries, with scales and noise learnt ---------------------------------------------------


def test_whole_weights_equal_repeated_rows():
    for name in LAWS:
        rows = draw(300, 10, name)
        times = np.random.default_rng(7).integers(0, 3, 300)
        again = np.repeat(np.arange(300), times)
        weighted = rows._replace(weight=times.astype(float))
        repeated = AdditiveRows(
            *(array[..., again] for array in rows[:3]), np.ones(len(again))
        )
        one_fit, other = (fit_free(r, LAWS[name]) for r in (weighted, repeated))
        assert_allclose(one_fit.coef, other.coef, rtol=1e-8, atol=1e-9)
        assert_allclose(one_fit.scales.precision, other.scales.precision, rtol=1e-8)


def test_exchanging_treated_and_untreated_flips_the_effect():
    """e -> 1 - e and a -> 1 - a, or c -> -c: the parts cannot change places without it."""
    for name in LAWS:
        rows, law = draw(400, 11, name), LAWS[name]
        if name in ("mean", "huber"):
            other, mirrored = rows._replace(exposure=-rows.exposure), law
        else:
            other = rows._replace(exposure=1.0 - rows.exposure)
            mirrored = replace(law, split=1.0 - law.split)
        plain, flipped = fit_free(rows, law), fit_free(other, mirrored)
        assert_allclose(flipped.coef[:3], plain.coef[:3], rtol=1e-7, atol=1e-8)
        assert_allclose(flipped.coef[3:], -plain.coef[3:], rtol=1e-7, atol=1e-8)


def test_no_argument_is_changed():
    rows = draw(50)
    scales, start = Scales.start(PARTS), np.ones(6)
    kept = [array.copy() for array in (*rows, start, scales.precision, scales.group)]
    for name, law in LAWS.items():
        fit_additive(pass_in_memory(rows, PARTS), PARTS, law, start, scales)
        assert law == LAWS[name]
    for array, before in zip(
        (*rows, start, scales.precision, scales.group), kept, strict=True
    ):
        assert_array_equal(array, before)


# --- Ends that are not a minimum ----------------------------------------------------------------


class Crooked:
    """Squared loss with its gradient and its curvature multiplied."""

    def __init__(self, gradient=1.0, curvature=1.0):
        self.gradient, self.curvature = gradient, curvature

    def __call__(self, y, exposure, base, effect):
        right = MeanFamily()(y, exposure, base, effect)
        slopes = {
            name: self.gradient * getattr(right, name)
            for name in ("by_base", "by_effect")
        }
        bends = ("base_base", "base_effect", "effect_effect")
        return right._replace(
            **slopes, **{name: self.curvature * getattr(right, name) for name in bends}
        )


@pytest.mark.parametrize(("size", "converged"), [(-1.0, False), (-1e-6, True)])
def test_without_any_gain_the_fit_ends_where_it_is(size, converged):
    """Counted as converged only if what was promised is next to nothing."""
    rows = draw(200, name="mean")
    fit = fit_fixed(rows, Crooked(gradient=size), 1e-6)
    assert_array_equal(fit.coef, 0.0)
    assert len(fit.objective) == (1 if converged else 2)  # one is tried
    assert fit.objective[0] == fit.objective[-1]
    assert fit.converged == converged


def test_steps_that_are_far_too_short_are_said_not_to_have_settled():
    rows = draw(200, name="mean")
    fit = fit_fixed(rows, Crooked(curvature=1e4), 1e-6)
    assert not fit.converged
    assert (np.diff(fit.objective) < 0.0).all()


@pytest.mark.parametrize("size", [0.05, 5.0])
def test_curvatures_that_are_off_change_the_way_but_not_the_end(size):
    """Steps that are too long are halved, steps that are too short follow each other."""
    rows = draw(200, name="mean")
    right = fit_fixed(rows, MeanFamily(), 1.0)
    start = right.coef + 0.01
    fit = fit_fixed(rows, Crooked(curvature=size), 1.0, start=start)
    assert (np.diff(fit.objective) <= 0.0).all()
    assert fit.objective[0] - right.objective[-1] > 0.01
    assert fit.objective[-1] - right.objective[-1] < 1e-4


def test_full_steps_that_overshoot_are_shortened():
    """Far from the data, where the likelihood is flat and a Fisher step enormous."""
    rows = draw(200)
    start = np.array([12.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    fit = fit_fixed(rows, LAWS["bernoulli"], 0.2, start=start)
    exact = fit_fixed(rows, LAWS["bernoulli"], 0.2)
    assert_allclose(fit.objective[-1], exact.objective[-1], atol=1e-6)


def test_a_base_that_explains_every_row_leaves_finite_numbers():
    values = np.vstack([np.ones(40), np.linspace(-1.0, 1.0, 40), np.zeros(40)])
    y = np.array([1.0, 2.0, 0.0]) @ values
    for law, exposure in (
        (MeanFamily(), np.full(40, 0.1)),
        (GaussianFamily(0.5), np.full(40, 0.5)),
    ):
        fit = fit_free(AdditiveRows(values, y, exposure, np.ones(40)), law)
        assert np.isfinite(fit.coef).all()
        assert fit.family.variance >= 1e-12


def test_a_few_updates_are_enough_to_stop_at_once():
    """With no updates of the scales left, the last steps still find their minimum."""
    for name in LAWS:
        rows = draw(300, 12, name)
        fit = fit_free(rows, LAWS[name], n_steps=2)
        assert fit.converged
        assert_array_equal(fit.scales.precision, Scales.start(PARTS).precision)


def test_gross_residuals_of_both_signs_are_bounded_and_others_are_not():
    """Bounding at c standard deviations is worth it if a mean of bounded values varies less."""
    normal = norm.ppf((np.arange(999) + 0.5) / 999)
    few_gross = np.concatenate([normal, np.full(20, 50.0), np.full(20, -50.0)])
    weight = np.ones(len(few_gross))
    threshold = choose_threshold(few_gross, weight)
    assert 0.5 < threshold < 10.0
    assert choose_threshold(7.0 * few_gross, weight) == pytest.approx(7.0 * threshold)
    assert choose_threshold(normal, np.ones(999)) == np.inf
    heaps = np.concatenate([np.full(450, -1.05), 0.86 + 0.03 * normal[:550]])
    assert choose_threshold(heaps, np.ones(1000)) == np.inf  # no row is in between
    for sign in (1.0, -1.0):  # a long tail on one side
        assert choose_threshold(sign * np.abs(few_gross), weight) == np.inf


def test_heavy_tails_are_bounded_though_one_gross_value_decides_their_sum():
    """The largest of many heavy values is worth all others, and its side is chance."""
    found = [
        choose_threshold(
            np.random.default_rng(seed).standard_cauchy(2000), np.ones(2000)
        )
        for seed in range(20)
    ]
    # Tails of equal chance are taken for unequal ones in a test at two standard errors or so.
    assert np.isfinite(found).sum() >= 16


def test_residuals_that_lean_against_the_effect_are_not_bounded():
    """Outcomes (1 + x) t with no noise: residuals lean to one side wherever treatment acts."""
    rng = np.random.default_rng(0)
    x, propensity = rng.standard_normal(4000), np.where(np.arange(4000) % 2, 0.75, 0.25)
    effect = 1.0 + x
    residual = effect * ((rng.random(4000) < propensity) - propensity)
    weight, pull = np.ones(4000), (propensity - 0.5) * effect
    assert np.isfinite(choose_threshold(residual, weight))  # as if it were noise
    assert choose_threshold(residual, weight, pull) == np.inf


# --- An effect that grows with the base ---------------------------------------------------------


def growing(n, seed=0, name="mean", multiple=0.6, noise=1.0):
    """Base x_0 - x_1 / 2 and an effect of 0.4 plus a multiple of it."""
    rng = np.random.default_rng(seed)
    values = np.vstack([np.ones(n), rng.standard_normal((2, n))])
    base = values[1] - 0.5 * values[2]
    e = rng.choice([0.2, 0.8], n)
    treated = rng.random(n) < e
    effect = 0.4 + multiple * base
    y = base + (e - 0.5) * effect + noise * rng.standard_normal(n)
    if name == "bernoulli":
        y = (rng.random(n) < expit(base + (treated - 0.5) * effect)).astype(float)
    exposure = e if name == "bernoulli" else e - 0.5
    return ModelRows(values[1:].T, y, exposure, np.ones(n)), values


def grown(rows, values, law, tol=1e-9):
    parts = PARTS.alone()
    data = AdditiveRows(values, rows.y, rows.exposure, rows.weight)
    return grow(fit_free(data, law, parts), rows, values, tol)


def test_parts_alone_and_doubled_are_those_of_the_groups():
    block, groups = np.array([0, 1, 2, 2, 3]), ("constant", "line", "curve", "line")
    base = frozenset({"constant", "line", "curve"})
    few = frozenset({"line"})
    made = Parts.of_groups(block, groups, base, frozenset({"constant", "line"}), few)
    for found, effect in (
        (made.alone(), frozenset({"constant"})),
        (made.alone().doubled(), base),
        (made.doubled().alone(), frozenset({"constant"})),
    ):
        expected = Parts.of_groups(block, groups, base, effect, few)
        for field in ("base", "effect", "block", "origin", "group"):
            assert_array_equal(getattr(found, field), getattr(expected, field))
        assert found.names == expected.names


@pytest.mark.parametrize("name", ["mean", "bernoulli"])
def test_a_grown_effect_is_a_constant_plus_a_multiple_of_the_base(name):
    rows, values = growing(4000, name=name)
    law = BernoulliFamily(0.5) if name == "bernoulli" else MeanFamily()
    fit = grown(rows, values, law)
    base, effect = fit(values.T)
    slope, level = np.polyfit(base, effect, 1)
    assert_allclose(effect, level + slope * base, atol=1e-9)
    # Two standard errors of the slope: about 1 / (0.3 sd(base) sqrt(n)), thrice that in log-odds.
    error = 1.0 / (0.3 * base.std() * np.sqrt(4000))
    assert abs(slope - 0.6) < 3.5 * error * (3.0 if name == "bernoulli" else 1.0)


def test_a_grown_fit_is_ridge_regression_on_four_columns():
    """Given the shape of the base and the scales that were learnt."""
    rows, values = growing(500)
    alone = fit_free(
        AdditiveRows(values, rows.y, rows.exposure, rows.weight),
        MeanFamily(),
        PARTS.alone(),
    )
    fit = grow(alone, rows, values, 1e-12)
    shape = alone.coef[1:3] @ values[1:]
    along = (shape - shape.mean()) / shape.std()
    columns = np.column_stack(
        [np.ones(500), along, rows.exposure, rows.exposure * along]
    )
    base, effect = fit(values.T)
    used = np.linalg.lstsq(
        np.column_stack([np.ones(500), along]), np.column_stack([base, effect])
    )[0]
    coef = np.concatenate(used.T)
    variance = np.sum((rows.y - columns @ coef) ** 2) / 500
    slope = columns.T @ (rows.y - columns @ coef)
    assert_allclose(slope / variance, fit.scales.precision * coef, rtol=0.02, atol=1e-4)


def test_a_base_without_a_shape_gives_a_constant_effect():
    rows, values = growing(200)
    flat = fit_fixed(
        AdditiveRows(values, rows.y, rows.exposure, rows.weight),
        MeanFamily(),
        1e12,
        PARTS.alone(),
    )
    fit = grow(replace(flat, coef=np.array([0.1, 0.0, 0.0, 0.0])), rows, values, 1e-9)
    assert np.ptp(fit(values.T)[1]) == 0.0
    assert np.isfinite(fit.covariance).all()


@pytest.mark.statistical
def test_errors_of_a_grown_effect_are_those_of_repeated_draws():
    """At three people, over 200 draws: a standard deviation is known to 5 %, so to 15 % surely."""
    people = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.5], [1.0, -1.0, 1.0]])
    effects, errors = [], []
    for seed in range(200):
        fit = grown(*growing(400, seed), MeanFamily(), tol=1e-6)
        effects.append(fit(people)[1])
        turn = np.hstack([np.zeros((3, 3)), people])
        errors.append(np.sqrt(np.einsum("ij,jk,ik->i", turn, fit.covariance, turn)))
    assert_allclose(np.mean(errors, axis=0), np.std(effects, axis=0), rtol=0.15)
