"""Metrics of rows with known propensities take weights: a weight of two is two rows."""

import math

import numpy as np
import pytest

import unjoined as uj

N = 60


def rows():
    rng = np.random.default_rng(5)
    score = rng.integers(0, 12, N).astype(float)  # with ties
    treated = rng.random(N) < 0.4
    y = (rng.random(N) < 0.3 + 0.2 * treated).astype(float)
    weight = rng.integers(0, 4, N)
    return score, treated, y, weight


def measures(score, treated, y, weight, *, propensity=None):
    """Return every value that a metric gives, as one vector."""
    given = {"sample_weight": weight}
    values = uj.evaluate.joint_values(y, treated, propensity=propensity, **given)
    curve = uj.evaluate.uplift_curve(score, values, **given)
    shares = np.linspace(0.0, 1.0, 7)
    estimates = [
        uj.evaluate.auuc(score, values, **given),
        uj.evaluate.auuc(score, values, ties="paper", **given),
        uj.evaluate.qini(score, values, **given),
        uj.evaluate.qini(score, values, normalize=True, **given),
        uj.evaluate.rank_score(score, values, **given),
        uj.evaluate.uplift_at_k(score, values, 0.3, **given),
        uj.evaluate.uplift_at_k(score, values, 1.0, **given),
        uj.evaluate.average_uplift(values, score > 5.0, **given),
        uj.evaluate.average_uplift(values, np.ones(len(values)), **given),
    ]
    return (
        np.concatenate(
            [
                [estimate.value for estimate in estimates],
                curve.at(shares),
                uj.evaluate.uplift_curve(values, values, **given).at(shares),
                [curve.area()],
            ]
        ),
        np.concatenate(
            [
                [estimate.standard_error for estimate in estimates],
                np.interp(shares, curve.share, curve.standard_error),
            ]
        ),
    )


@pytest.mark.parametrize("propensity", [None, 0.4])
def test_metrics_take_a_whole_weight_for_as_many_rows(propensity):
    score, treated, y, weight = rows()
    found, _ = measures(score, treated, y, weight, propensity=propensity)
    again = [np.repeat(column, weight) for column in (score, treated, y)]
    expected, _ = measures(*again, None, propensity=propensity)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_metrics_of_weights_in_other_units_are_the_same():
    score, treated, y, weight = rows()
    expected = measures(score, treated, y, weight)
    for scale in (1e-6, 1.0 / N, 2.0, 1e6):
        for found, wanted in zip(
            measures(score, treated, y, scale * weight), expected, strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_equal_weights_are_as_good_as_none_and_weight_zero_is_as_good_as_no_row():
    score, treated, y, weight = rows()
    for found, wanted in zip(
        measures(score, treated, y, np.full(N, 0.3)),
        measures(score, treated, y, None),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    kept = weight > 0
    left_out = measures(score[kept], treated[kept], y[kept], weight[kept])
    for found, wanted in zip(
        measures(score, treated, y, weight), left_out, strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_standard_errors_are_those_of_a_weighted_mean():
    """The linearised formula, written out: the mean, and the curve as means of v 1[top]."""
    score, treated, y, weight = rows()
    values = uj.evaluate.joint_values(y, treated, propensity=0.4)
    kept = weight > 0
    share, n = weight[kept] / weight.sum(), int(kept.sum())

    def error(column):
        mean = share @ column[kept]
        return math.sqrt(n / (n - 1) * np.sum(share**2 * (column[kept] - mean) ** 2))

    found = uj.evaluate.average_uplift(
        values, np.ones(N), sample_weight=weight
    ).standard_error
    assert found == pytest.approx(error(values), rel=1e-12)
    curve = uj.evaluate.uplift_curve(score, values, sample_weight=weight)
    cuts = np.unique(score[kept])[::-1]
    expected = [0.0, *(error(values * (score >= cut)) for cut in cuts)]
    np.testing.assert_allclose(curve.standard_error, expected, rtol=1e-10)


def test_the_error_of_a_weighted_area_is_the_spread_over_draws():
    """Over 400 draws the spread is known to 1/sqrt(800), or 3.5 percent; five of these do."""
    rng = np.random.default_rng(0)
    found, error = [], []
    for _ in range(400):
        score = rng.standard_normal(200)
        values = score + rng.standard_normal(200)
        weight = rng.exponential(size=200)
        estimate = uj.evaluate.qini(score, values, sample_weight=weight)
        found.append(estimate.value)
        error.append(estimate.standard_error)
    assert np.mean(error) == pytest.approx(np.std(found), rel=5.0 / math.sqrt(800.0))


def test_the_mean_of_weighted_values_is_the_difference_of_weighted_arms():
    _, treated, y, weight = rows()
    values = uj.evaluate.joint_values(y, treated, sample_weight=weight)
    arms = [np.average(y[arm], weights=weight[arm]) for arm in (treated, ~treated)]
    found = uj.evaluate.average_uplift(values, np.ones(N), sample_weight=weight).value
    assert found == pytest.approx(arms[0] - arms[1], rel=1e-12)


def test_weights_that_are_all_zero_or_wrong_are_refused():
    with pytest.raises(uj.errors.InputError, match="sample_weight is 0 in all 3 rows"):
        uj.evaluate.auuc([1, 2, 3], [0.0, 1.0, 2.0], sample_weight=np.zeros(3))
    with pytest.raises(uj.errors.InputError, match="finite and not negative"):
        uj.evaluate.uplift_curve(
            [1, 2, 3], [0.0, 1.0, 2.0], sample_weight=[1.0, -1.0, 1.0]
        )
    with pytest.raises(uj.errors.InputError, match="sample_weight has 2 entries"):
        uj.evaluate.average_uplift(
            [0.0, 1.0, 2.0], np.ones(3), sample_weight=[1.0, 1.0]
        )
