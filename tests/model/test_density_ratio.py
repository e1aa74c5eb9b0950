"""Density ratios: exact where the answer is known, and closer to the truth with more rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.stats import chi2, norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unjoined.errors import InputError
from unjoined.model.ratios import (
    balance,
    classifier_ratio,
    deal_rows,
    pooled_classifier_ratios,
)

SHIFT = 0.7


def rng_of(seed=0):
    return np.random.RandomState(seed)


def gaussians(n_target, n_cell, seed=0, shift=SHIFT, d=1):
    """Rows of N(shift, 1) and of N(0, 1), independent features."""
    rng = rng_of(seed)
    return rng.normal(shift, 1.0, (n_target, d)), rng.standard_normal((n_cell, d))


def true_ratio(X, shift=SHIFT):
    return np.exp(norm.logpdf(X, loc=shift) - norm.logpdf(X)).prod(axis=1)


class Knows(ClassifierMixin, BaseEstimator):
    """A classifier that needs no learning: the classes are Gaussians with known means.

    Features reach it standardised; it undoes that with the same pooled mean and deviation.
    """

    def __init__(self, means, offset, scale):
        self.means = means
        self.offset = offset
        self.scale = scale

    def fit(self, X, y):
        self.classes_, self.counts_ = np.unique(y, return_counts=True)
        return self

    def predict_proba(self, X):
        x = X[:, :1] * self.scale + self.offset
        density = self.counts_ * norm.pdf(x, loc=np.asarray(self.means))
        return density / density.sum(axis=1, keepdims=True)


def knowing(means, *parts):
    X = np.concatenate(parts)
    return Knows(means, float(X.mean()), float(X.std()))


# --- classifiers, exactly -------------------------------------------------------------------


def test_a_classifier_that_knows_the_truth_gives_the_true_ratio():
    """Whatever the sizes: the factor n_cell / n_target undoes the classes' shares."""
    for n_target, n_cell in ((200, 200), (50, 400), (400, 50)):
        target, cell = gaussians(n_target, n_cell)
        estimate = classifier_ratio(
            target, cell, model=knowing((SHIFT, 0.0), target, cell), rng=rng_of()
        )
        assert_allclose(estimate.ratio, true_ratio(cell), rtol=1e-10)
        assert estimate.apart == ()


def test_pooled_ratios_of_a_classifier_that_knows_the_truth_are_the_true_ones():
    means, sizes = (0.0, 0.5, -0.5, 1.0), (50, 100, 150, 200)
    rng = rng_of(1)
    cells = [rng.normal(m, 1.0, (n, 1)) for m, n in zip(means, sizes, strict=True)]
    estimates = pooled_classifier_ratios(cells, model=knowing(means, *cells), rng=rng)
    for cell, mean, estimate in zip(cells, means, estimates, strict=True):
        pool = norm.pdf(cell, loc=np.array(means)) @ (np.array(sizes) / sum(sizes))
        assert_allclose(
            estimate.ratio, pool / norm.pdf(cell[:, 0], loc=mean), rtol=1e-10
        )


def test_a_classifier_that_learns_nothing_gives_ratios_of_one():
    target, cell = gaussians(60, 40)
    model = DummyClassifier(strategy="prior")
    assert_allclose(
        classifier_ratio(target, cell, model=model, rng=rng_of()).ratio, 1.0
    )
    for estimate in pooled_classifier_ratios([target, cell], model=model, rng=rng_of()):
        assert_allclose(estimate.ratio, 1.0)


def test_pooled_ratios_are_at_least_the_cells_share():
    target, cell = gaussians(300, 100)
    cells = [target, cell]
    first, second = pooled_classifier_ratios(
        cells, model=LogisticRegression(), rng=rng_of()
    )
    assert first.ratio.min() >= 0.75
    assert second.ratio.min() >= 0.25


class Remembers(ClassifierMixin, BaseEstimator):
    """Sure of what it was shown, undecided about the rest."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = {x.tobytes() for x in X}
        return self

    def predict_proba(self, X):
        if any(x.tobytes() in self.seen_ for x in X):
            raise AssertionError("a row was weighted by a model that saw it")
        return np.full((len(X), len(self.classes_)), 1.0 / len(self.classes_))


def test_no_row_is_weighted_by_a_model_that_saw_it():
    for n_folds in (2, 3, 5):
        target, cell = gaussians(31, 17, d=2)
        estimate = classifier_ratio(
            target, cell, model=Remembers(), n_folds=n_folds, rng=rng_of()
        )
        assert_allclose(estimate.ratio, 17 / 31)
        pooled_classifier_ratios(
            [target, cell], model=Remembers(), n_folds=n_folds, rng=rng_of()
        )


def test_folds_are_even_and_each_row_has_one():
    counts = np.bincount(deal_rows(23, 5, rng_of()))
    assert counts.sum() == 23
    assert counts.max() - counts.min() <= 1


def test_the_given_classifier_is_left_as_it_was():
    model = LogisticRegression()
    classifier_ratio(*gaussians(50, 50), model=model, rng=rng_of())
    assert not hasattr(model, "coef_")


# --- classifiers, the law of their error ----------------------------------------------------


@pytest.mark.statistical
def test_log_ratios_err_as_maximum_likelihood_does():
    """With Fisher information I of four fifths of the rows, E (log r - truth)^2 = phi' I^-1 phi.

    Its average over rows is a sum of chi-squares, at most chi2(1) times its mean but once in
    ten thousand seeds. At shift 0 the populations are equal and the truth is a ratio of 1.
    """
    for shift in (0.0, SHIFT):
        for n_target, n_cell in ((500, 500), (4000, 1000)):
            target, cell = gaussians(n_target, n_cell, seed=3, shift=shift, d=2)
            ratio = classifier_ratio(target, cell, rng=rng_of()).ratio
            X = np.concatenate([target, cell])
            phi = np.column_stack([np.ones(len(X)), X, X**2])
            odds = true_ratio(X, shift) * n_target / n_cell
            information = 0.8 * (phi * (odds / (1.0 + odds) ** 2)[:, None]).T @ phi
            at_cell = phi[n_target:]
            expected = np.mean(
                np.sum(at_cell @ np.linalg.inv(information) * at_cell, axis=1)
            )
            observed = np.mean((np.log(ratio) - np.log(true_ratio(cell, shift))) ** 2)
            assert observed < expected * chi2.ppf(1.0 - 1e-4, df=1)


@pytest.mark.slow
@pytest.mark.statistical
def test_the_error_against_the_true_ratio_falls_with_the_number_of_rows():
    """In logarithms, paired by seed, 16 times the rows gain more than four standard errors."""

    def error(n, seed):
        target, cell = gaussians(n, n, seed)
        ratio = classifier_ratio(target, cell, rng=rng_of(seed)).ratio
        return np.mean((ratio - true_ratio(cell)) ** 2)

    gains = np.log([error(250, seed) / error(4000, seed) for seed in range(40)])
    assert gains.mean() > 4.0 * gains.std(ddof=1) / np.sqrt(len(gains))


@pytest.mark.statistical
def test_weighted_means_of_the_cell_are_means_of_the_target():
    """Mean and mean square of x; five standard errors of the two samples' averages."""
    target, cell = gaussians(4000, 4000, seed=5)
    ratio = classifier_ratio(target, cell, rng=rng_of()).ratio
    weight = ratio / ratio.sum()
    for power in (1, 2):
        in_target, in_cell = target[:, 0] ** power, cell[:, 0] ** power
        mean = weight @ in_cell
        error = np.hypot(
            in_target.std() / np.sqrt(4000), np.sqrt(weight**2 @ (in_cell - mean) ** 2)
        )
        assert abs(mean - in_target.mean()) < 5.0 * error


# --- order, seeds, units, weights -----------------------------------------------------------


def test_the_order_of_rows_does_not_matter():
    target, cell = gaussians(120, 90, d=2)
    rng = rng_of(7)
    i, j = rng.permutation(120), rng.permutation(90)
    one, other = (
        classifier_ratio(t, c, rng=rng_of()).ratio
        for t, c in ((target, cell), (target[i], cell[j]))
    )
    assert_allclose(other, one[j], rtol=1e-12)


def test_the_order_of_rows_does_not_matter_to_pooled_ratios():
    target, cell = gaussians(120, 90, d=2)
    j = rng_of(7).permutation(90)
    model = LogisticRegression()
    one, other = (
        pooled_classifier_ratios([target, c], model=model, rng=rng_of())[1].ratio
        for c in (cell, cell[j])
    )
    assert_array_equal(other, one[j])
    one, other = (
        pooled_classifier_ratios([target, c], rng=rng_of())[1].ratio
        for c in (cell, cell[j])
    )
    assert_allclose(other, one[j], rtol=1e-12)  # sums of balanced means go by the order


class Notes(ClassifierMixin, BaseEstimator):
    """Notes the rows it is fitted to, in the order they come."""

    seen = None

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        Notes.seen = X[:, 0]
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def test_a_classifier_gets_its_rows_in_random_order():
    """It may cut them into folds unshuffled: five standard errors of a correlation of none."""
    classifier_ratio(*gaussians(2000, 2000), model=Notes(), rng=rng_of())
    trend = np.corrcoef(np.arange(len(Notes.seen)), Notes.seen)[0, 1]
    assert abs(trend) < 5.0 / np.sqrt(len(Notes.seen))


def test_the_same_seed_gives_the_same_bits():
    target, cell = gaussians(400, 350)
    one, other = (classifier_ratio(target, cell, rng=rng_of(4)).ratio for _ in range(2))
    assert_array_equal(one, other)


def test_an_unseeded_forest_is_seeded_by_the_generator():
    target, cell = gaussians(100, 100)
    forest = RandomForestClassifier(5, min_samples_leaf=20)
    one, other = (
        classifier_ratio(target, cell, model=forest, rng=rng_of(4)) for _ in range(2)
    )
    assert_array_equal(one.ratio, other.ratio)


def test_the_units_of_features_do_not_matter():
    target, cell = gaussians(100, 100, d=2)
    units, offset = np.array([1000.0, 0.01]), np.array([50.0, -3.0])
    one = classifier_ratio(target, cell, rng=rng_of()).ratio
    other = classifier_ratio(
        target * units + offset, cell * units + offset, rng=rng_of()
    ).ratio
    # The optimiser of the classifier stops within 1e-4 of a zero gradient.
    assert_allclose(other, one, rtol=1e-3)


def test_the_scale_of_weights_does_not_matter():
    target, cell = gaussians(100, 80)
    rng = rng_of(2)
    of_target, of_cell = rng.uniform(0.5, 2.0, 100), rng.uniform(0.5, 2.0, 80)
    one, other = (
        classifier_ratio(
            target, cell, rng=rng_of(), target_weight=a * of_target, weight=b * of_cell
        ).ratio
        for a, b in ((1.0, 1.0), (8.0, 8.0))
    )
    assert_allclose(other, one, rtol=1e-6)


@pytest.mark.statistical
def test_weights_change_the_density_of_the_cell():
    """Cell rows weighted by the true ratio are target rows: nothing is left to correct."""
    target, cell = gaussians(4000, 4000, seed=8)
    plain = classifier_ratio(target, cell, rng=rng_of()).ratio
    weighted = classifier_ratio(
        target, cell, rng=rng_of(), weight=true_ratio(cell)
    ).ratio
    assert np.var(weighted) < np.var(plain) / 10.0


def test_weights_reach_the_last_step_of_a_pipeline():
    target, cell = gaussians(100, 100)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    weight = np.where(cell[:, 0] > 0.0, 5.0, 0.2)
    plain = classifier_ratio(target, cell, model=model, rng=rng_of()).ratio
    weighted = classifier_ratio(
        target, cell, model=model, rng=rng_of(), weight=weight
    ).ratio
    assert (
        np.corrcoef(cell[:, 0], weighted)[0, 1] < np.corrcoef(cell[:, 0], plain)[0, 1]
    )
    direct = classifier_ratio(
        target, cell, model=LogisticRegression(), rng=rng_of(), weight=weight
    ).ratio
    assert np.all(np.isfinite(direct))


def test_a_classifier_without_weights_is_refused_only_if_weights_differ():
    target, cell = gaussians(50, 50)
    model = KNeighborsClassifier(20)
    classifier_ratio(target, cell, model=model, rng=rng_of(), weight=np.ones(50))
    with pytest.raises(InputError, match=r"KNeighborsClassifier\.fit takes no weights"):
        classifier_ratio(
            target, cell, model=model, rng=rng_of(), weight=np.arange(1.0, 51.0)
        )


# --- overlap --------------------------------------------------------------------------------


def test_samples_far_apart_are_reported_as_apart():
    for shift in (10.0, 30.0, 1e4):
        for d in (1, 5):
            target, cell = gaussians(100, 100, shift=shift, d=d)
            assert classifier_ratio(target, cell, rng=rng_of()).apart == (0,)


@pytest.mark.parametrize("d", [1, 30])
def test_overlapping_samples_are_not_reported_as_apart(d):
    """Not even where there are as many functions of the features as rows."""
    target, cell = gaussians(60, 60, shift=1.5 / np.sqrt(d), d=d)
    assert classifier_ratio(target, cell, rng=rng_of()).apart == ()


def test_pooled_ratios_name_the_cells_that_lie_apart():
    """Two and two: each overlaps its twin and neither of the others."""
    rng = rng_of(0)
    cells = [rng.normal(mean, 1.0, (80, 1)) for mean in (0.0, 30.0, 0.0, 30.0)]
    apart = [estimate.apart for estimate in pooled_classifier_ratios(cells, rng=rng)]
    assert apart == [(1, 3), (0, 2), (1, 3), (0, 2)]


def test_a_classifier_that_is_sure_and_wrong_gives_an_infinite_ratio():
    target, cell = gaussians(40, 40, shift=1.0)
    ratio = classifier_ratio(
        target, cell, model=KNeighborsClassifier(1), rng=rng_of()
    ).ratio
    assert np.isinf(ratio).any()
    assert not np.isnan(ratio).any()


# --- why the default is not calibrated twice ------------------------------------------------


@pytest.mark.slow
@pytest.mark.statistical
def test_a_second_calibration_leaves_part_of_the_shift():
    """Along the shift, the weighted mean of the cell minus the mean of the target.

    Over the seeds it is 0 within four standard errors, and below by more with a sigmoid.
    """
    d, seeds = 8, range(16)

    def left(seed, model):
        target, cell = gaussians(500, 500, seed, shift=SHIFT / np.sqrt(d), d=d)
        ratio = classifier_ratio(target, cell, model=model, rng=rng_of(seed)).ratio
        return np.average(cell.mean(axis=1), weights=ratio) - target.mean()

    twice = CalibratedClassifierCV(LogisticRegression(), method="sigmoid", cv=3)
    once, calibrated = (
        np.array([left(s, model) for s in seeds]) for model in (None, twice)
    )
    assert abs(once.mean()) < 4.0 * once.std(ddof=1) / np.sqrt(len(seeds))
    assert calibrated.mean() < -4.0 * calibrated.std(ddof=1) / np.sqrt(len(seeds))


# --- balanced ratios ----------------------------------------------------------------------------


def test_balanced_ratios_minimise_entropy_and_distance():
    """Against a general solver of the primal problem, in the weights themselves.

    Relative entropy to the first weights plus m / 2 times the squared distance of the means.
    """
    rng = rng_of(3)
    functions, weight, ratio = (
        rng.standard_normal((9, 2)),
        rng.uniform(1, 2, 9),
        rng.uniform(1, 2, 9),
    )
    wanted = np.array([0.3, -0.2])
    first = weight * ratio / (weight @ ratio)
    m = 1.0 / np.sum(first**2)

    def primal(share):
        away = share @ functions - wanted
        return share @ np.log(share / first) + 0.5 * m * away @ away

    sums_to_one = {"type": "eq", "fun": lambda share: share.sum() - 1.0}
    bounds = [(1e-9, 1.0)] * 9
    best = minimize(primal, first, bounds=bounds, constraints=sums_to_one, tol=1e-13)
    found = weight * balance(functions, weight, ratio, wanted)
    assert_allclose(found / found.sum(), best.x, atol=1e-5)
    assert found.sum() == pytest.approx(
        weight @ ratio, rel=1e-12
    )  # the mean ratio stays


def test_balanced_ratios_are_left_alone_where_means_agree():
    functions, weight = rng_of().standard_normal((20, 3)), np.ones(20)
    ratio = rng_of(1).uniform(1, 2, 20)
    wanted = ratio @ functions / ratio.sum()
    assert_allclose(balance(functions, weight, ratio, wanted), ratio, rtol=1e-12)


@pytest.mark.parametrize("ratio", [np.array([1.0, np.inf]), np.zeros(2)])
def test_ratios_that_no_tilt_can_mend_are_left_as_they_are(ratio):
    assert_array_equal(balance(np.ones((2, 1)), np.ones(2), ratio, np.zeros(1)), ratio)


def test_means_beyond_all_rows_give_finite_ratios():
    functions = rng_of().uniform(-1, 1, (50, 2))
    tilted = balance(functions, np.ones(50), np.ones(50), np.array([3.0, 0.0]))
    assert np.isfinite(tilted).all()
    assert tilted @ functions[:, 0] / tilted.sum() > 0.8  # as far as the rows go


@pytest.mark.parametrize("pooled", [True, False])
def test_means_of_features_and_squares_agree_with_the_target(pooled):
    """Bounded features are not cut; with 300 rows the prior leaves a few thousandths."""
    rng = rng_of(5)
    target, cell = rng.beta(2, 2, (400, 3)), rng.beta(2, 2.5, (300, 3))
    weight = rng.uniform(0.5, 1.5, 300)
    if pooled:
        estimates = pooled_classifier_ratios(
            [target, cell], rng=rng, weights=[None, weight]
        )
        ratio = estimates[1].ratio
        target = np.concatenate([target, cell])
        target_weight = np.concatenate([np.ones(400), weight])
    else:
        ratio = classifier_ratio(target, cell, rng=rng, weight=weight).ratio
        target_weight = np.ones(400)
    for power in (1, 2):
        wanted = np.average(target**power, axis=0, weights=target_weight)
        found = np.average(cell**power, axis=0, weights=weight * ratio)
        assert_allclose(found, wanted, atol=0.002)


@pytest.mark.statistical
def test_skewed_features_do_not_give_all_weight_to_a_few_rows():
    """Gamma(2.5) against Gamma(2): E[r] = 1 and E[r^2] = 32 / (9 pi) = 1.13.

    That leaves n / 1.13 rows; estimated ratios leave at least half of them in each of ten draws.
    """
    for seed in range(10):
        rng = rng_of(seed)
        target, cell = (
            rng.gamma(2.5, 1.0, (300, 2)),
            rng.gamma([2.0, 2.5], 1.0, (300, 2)),
        )
        ratio = classifier_ratio(target, cell, rng=rng).ratio
        assert ratio.sum() ** 2 / np.sum(ratio**2) > 300 / 1.13 / 2.0


def test_an_isotonic_calibration_can_give_infinite_ratios():
    """Where the last rows of a fold are all of the target, it says there is nobody else."""
    target, cell = gaussians(300, 300, shift=1.5)
    model = CalibratedClassifierCV(
        LogisticRegression(), method="isotonic", cv=3, ensemble=False
    )
    assert np.isinf(
        classifier_ratio(target, cell, model=model, rng=rng_of()).ratio
    ).any()
