"""Uplift curves and areas under them: double sums, closed forms, row order, standard errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, chi2

from unjoined.errors import InputError
from unjoined.evaluate import (
    Estimate,
    auuc,
    average_uplift,
    joint_values,
    qini,
    rank_score,
    uplift_at_k,
    uplift_curve,
)

# Few distinct scores, so that most draws hold ties.
ROWS = st.lists(
    st.tuples(st.integers(-3, 3), st.floats(-100, 100, allow_nan=False)),
    min_size=2,
    max_size=30,
)

QUICK = settings(max_examples=60, deadline=None)


def columns(rows):
    score, values = np.array(rows, dtype=float).T
    return score, values


def kernel(score, tie_weight):
    """K(f_i, f_j) for all pairs, i down and j across."""
    below = score[:, None] < score[None, :]
    tied = score[:, None] == score[None, :]
    return below + tie_weight * tied


def slow_standard_error(pairs):
    """Standard error of the mean of an (n, n) matrix over pairs of rows."""
    influence = pairs.mean(axis=0) + pairs.mean(axis=1) - 2 * pairs.mean()
    return np.sqrt(influence @ influence / (len(pairs) - 1) / len(pairs))


@QUICK
@given(ROWS)
@pytest.mark.parametrize(("ties", "tie_weight"), [("half", 0.5), ("paper", 1.0)])
def test_auuc_is_the_double_sum_over_pairs(ties, tie_weight, rows):
    score, values = columns(rows)
    pairs = kernel(score, tie_weight) * values[None, :]
    got = auuc(score, values, ties=ties)
    assert_allclose(got.value, pairs.mean(), atol=1e-11)
    assert_allclose(got.standard_error, slow_standard_error(pairs), atol=1e-8)


@QUICK
@given(ROWS)
def test_qini_is_the_double_sum_less_the_random_line(rows):
    score, values = columns(rows)
    pairs = (kernel(score, 0.5) - 0.5) * values[None, :]
    got = qini(score, values)
    assert_allclose(got.value, pairs.mean(), atol=1e-11)
    assert_allclose(got.standard_error, slow_standard_error(pairs), atol=1e-8)


@QUICK
@given(ROWS)
def test_rank_score_is_the_mean_gap_of_pairs_and_twice_auuc_less_mean(rows):
    score, values = columns(rows)
    at_least = score[:, None] >= score[None, :]
    gaps = at_least * (values[:, None] - values[None, :])
    got = rank_score(score, values).value
    assert_allclose(got, gaps.mean(), atol=1e-10)
    assert_allclose(got, 2 * auuc(score, values).value - values.mean(), atol=1e-10)


@QUICK
@given(ROWS)
def test_half_tie_auuc_is_the_area_under_the_curve(rows):
    score, values = columns(rows)
    assert_allclose(
        uplift_curve(score, values).area(), auuc(score, values).value, atol=1e-11
    )


@QUICK
@given(ROWS, st.randoms(use_true_random=False))
def test_no_metric_depends_on_the_row_order(rows, random):
    shuffled = random.sample(rows, len(rows))
    metrics = (
        auuc,
        lambda f, v: auuc(f, v, ties="paper"),
        qini,
        rank_score,
        lambda f, v: uplift_at_k(f, v, 0.37),
    )
    for metric in metrics:
        one, other = metric(*columns(rows)), metric(*columns(shuffled))
        assert_allclose(other.value, one.value, atol=1e-11)
        assert_allclose(other.standard_error, one.standard_error, atol=1e-7)


def test_true_order_of_an_even_grid_has_a_closed_form():
    """u_i = i for i = 1..n: sum of i^2 pairs, and i (i - 1/2) with self-pairs halved."""
    for n in (2, 7, 100):
        u = np.arange(1.0, n + 1)
        squares = n * (n + 1) * (2 * n + 1) / 6
        assert_allclose(auuc(u, u, ties="paper").value, squares / n**2, rtol=1e-14)
        assert_allclose(
            auuc(u, u).value, (squares - n * (n + 1) / 4) / n**2, rtol=1e-14
        )
        # Qini of the truth is a quarter of Gini's mean difference, (n^2 - 1) / (3 n) here.
        assert_allclose(qini(u, u).value, (n**2 - 1) / (12 * n), rtol=1e-13)


def test_normalized_qini_is_one_for_the_truth_zero_for_a_constant_minus_one_reversed():
    u = np.random.default_rng(0).normal(size=50)
    truth = qini(np.exp(u), u, normalize=True)
    assert_allclose([truth.value, truth.standard_error], [1.0, 0.0], atol=1e-12)
    assert_allclose(qini(np.ones(50), u, normalize=True).value, 0.0, atol=1e-14)
    assert_allclose(qini(-u, u, normalize=True).value, -1.0, atol=1e-12)


def test_qini_keeps_its_digits_when_the_mean_is_large():
    """Shifting all values changes neither the area above random nor its error."""
    rng = np.random.default_rng(1)
    score, values = rng.normal(size=(2, 200))
    near, far = qini(score, values), qini(score, values + 1e8)
    assert_allclose(far.value, near.value, rtol=0, atol=1e-7)
    assert_allclose(far.standard_error, near.standard_error, rtol=1e-6)


def test_constant_score_earns_the_mean_in_the_papers_form_and_half_of_it_in_ours():
    values = np.array([3.0, -1.0, 4.0])
    assert_allclose(auuc(np.zeros(3), values, ties="paper").value, 2.0)
    assert_allclose(auuc(np.zeros(3), values).value, 1.0)


def test_forms_differ_by_self_pairs_only_without_ties():
    score, values = np.random.default_rng(2).normal(size=(2, 31))
    gap = auuc(score, values, ties="paper").value - auuc(score, values).value
    assert_allclose(gap, values.mean() / (2 * 31), rtol=1e-10)


@QUICK
@given(ROWS, st.floats(0.01, 1.0))
def test_uplift_at_k_is_the_gain_per_treated_row(rows, k):
    score, values = columns(rows)
    gain = uplift_curve(score, values).at(k)
    assert_allclose(uplift_at_k(score, values, k).value * k, gain, atol=1e-10)


def test_uplift_at_k_is_the_mean_of_the_top_rows_with_its_usual_standard_error():
    score, values = np.random.default_rng(3).normal(size=(2, 40))
    top = values[np.argsort(score)[-10:]]
    got = uplift_at_k(score, values, 0.25)
    assert_allclose(got.value, top.mean(), rtol=1e-13)
    assert_allclose(got.standard_error, top.std(ddof=1) / np.sqrt(10), rtol=1e-12)


def test_a_single_row_has_no_standard_error():
    assert auuc([1.0], [2.0]).value == 1.0
    assert np.isnan(auuc([1.0], [2.0]).standard_error)
    assert np.isnan(uplift_at_k([1.0, 0.0], [2.0, 3.0], 0.5).standard_error)


# Statistical laws -----------------------------------------------------------------------


def draw(rng, n):
    """Noisy score of a uniform uplift, and a trial with 40 percent treated at random."""
    u = rng.uniform(-1, 2, n)
    score = np.round(u + rng.normal(size=n), 1)  # rounding makes ties
    treated = rng.random(n) < 0.4
    y = 1.0 + u * treated + rng.normal(size=n)
    return u, score, y, treated


METRICS = {
    "auuc": auuc,
    "auuc_paper": lambda f, v: auuc(f, v, ties="paper"),
    "qini": qini,
    "share_of_oracle": lambda f, v: qini(f, v, normalize=True),
    "treat_all": lambda f, v: average_uplift(v, np.ones(len(v))),
    "top_rule": lambda f, v: average_uplift(v, f >= 0.5),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("kind", ["true", "joint"])
def test_standard_errors_match_the_spread_over_repeated_draws(name, kind):
    """Mean squared standard error over sample variance, and coverage of 95 percent.

    (R - 1) times the ratio of sample to true variance is chi-square with R - 1 degrees of
    freedom for a normal statistic; coverage is binomial. Both bounds at 1e-4 a side, with
    4/n of room for the terms of relative order 1/n that the projection neglects.
    """
    n, repeats = 400, 600
    rng = np.random.default_rng([len(name), len(kind)])
    found = []
    for _ in range(repeats):
        u, score, y, treated = draw(rng, n)
        values = u if kind == "true" else joint_values(y, treated, propensity=0.4)
        estimate = METRICS[name](score, values)
        found.append((estimate.value, estimate.standard_error))
    value, error = np.array(found).T
    ratio = value.var(ddof=1) / np.mean(error**2)
    low, high = chi2.ppf([1e-4, 1 - 1e-4], repeats - 1) / (repeats - 1)
    assert low - 4 / n < ratio < high + 4 / n

    truth = (
        value.mean()
    )  # its own error adds 1/R to the variance, nothing at this scale
    covered = np.sum(np.abs(value - truth) <= 1.959964 * error)
    room = repeats * 4 / n
    low, high = binom.ppf([1e-4, 1 - 1e-4], repeats, 0.95)
    assert low - room <= covered <= high + room


@pytest.mark.statistical
def test_auuc_on_joint_labels_is_that_of_the_true_uplift_on_average():
    """Inverse weighting is unbiased: the mean gap is within 4 of its standard errors."""
    rng = np.random.default_rng(5)
    gaps = []
    for _ in range(400):
        u, score, y, treated = draw(rng, 200)
        values = joint_values(y, treated, propensity=0.4)
        gaps.append(auuc(score, values).value - auuc(score, u).value)
    assert abs(np.mean(gaps)) < 4 * np.std(gaps, ddof=1) / np.sqrt(len(gaps))


@pytest.mark.statistical
def test_estimating_a_constant_propensity_makes_standard_errors_too_large_not_too_small():
    rng = np.random.default_rng(6)
    found = []
    for _ in range(600):
        _, score, y, treated = draw(rng, 400)
        estimate = auuc(score, joint_values(y, treated))
        found.append((estimate.value, estimate.standard_error))
    value, error = np.array(found).T
    assert value.var(ddof=1) < np.mean(error**2) * chi2.ppf(1 - 1e-4, 599) / 599


# Messages -------------------------------------------------------------------------------


def test_mismatched_lengths_are_named():
    for metric in (auuc, qini, rank_score, uplift_curve):
        with pytest.raises(InputError, match=r"score has 3, values has 2"):
            metric([1, 2, 3], [1, 2])


def test_bad_columns_are_named():
    cases = (
        ([], [], "score is empty"),
        ([1, np.nan], [1, 2], r"score must be finite, got nan in 1 row"),
        ([1, 2], [1, np.inf], r"values must be finite, got inf.*position 1"),
        ([[1, 2]], [1, 2], r"score must be one-dimensional, got shape \(1, 2\)"),
        (["a", "b"], [1, 2], "score must be numbers"),
    )
    for score, values, message in cases:
        with pytest.raises(InputError, match=message):
            auuc(score, values)


def test_share_outside_its_range_is_refused():
    for k in (0.0, -0.1, 1.1, np.nan):
        with pytest.raises(InputError, match=r"k must lie in \(0, 1\], got"):
            uplift_at_k([1, 2], [1, 2], k)


def test_unknown_tie_form_is_refused():
    with pytest.raises(
        InputError, match="ties must be one of 'half', 'paper', got 'full'"
    ):
        auuc([1, 2], [1, 2], ties="full")


def test_nothing_to_normalize_by_is_said():
    with pytest.raises(InputError, match=r"all 3 entries of values equal 0.1"):
        qini([1, 2, 3], [0.1, 0.1, 0.1], normalize=True)


# --- Curves --------------------------------------------------------------------------------


def test_curve_of_untied_rows_is_the_running_mean_share():
    curve = uplift_curve([1, 4, 2, 3], [10.0, 1.0, 5.0, -2.0])
    assert_array_equal(curve.share, [0, 0.25, 0.5, 0.75, 1])
    assert_allclose(curve.gain, np.array([0, 1, -1, 4, 14]) / 4)


@QUICK
@given(ROWS, st.randoms(use_true_random=False))
def test_curve_does_not_depend_on_the_row_order(rows, random):
    one = uplift_curve(*columns(rows))
    other = uplift_curve(*columns(random.sample(rows, len(rows))))
    assert_array_equal(other.share, one.share)
    assert_allclose(other.gain, one.gain, atol=1e-12)
    assert_allclose(other.standard_error**2, one.standard_error**2, atol=1e-10)


@QUICK
@given(ROWS)
def test_pointwise_standard_error_is_that_of_a_mean_over_all_rows(rows):
    """At each cut-off: values kept at or above it, zero below, as one column."""
    score, values = columns(rows)
    curve = uplift_curve(score, values)
    cuts = np.unique(score)[::-1]
    kept = values * (score >= cuts[:, None])
    variance = kept.var(axis=1, ddof=1) / len(values)
    assert_allclose(curve.standard_error[1:] ** 2, variance, atol=1e-9)
    assert curve.standard_error[0] == 0


def test_standard_error_keeps_its_digits_when_the_mean_is_large():
    values = 1e8 + np.array([0.0, 1.0, 2.0, 3.0])
    last = uplift_curve([1, 2, 3, 4], values).standard_error[-1]
    assert_allclose(last, values.std(ddof=1) / 2, rtol=1e-9)


@QUICK
@given(ROWS)
def test_no_curve_is_above_the_perfect_one_and_all_end_at_treating_everyone(rows):
    score, values = columns(rows)
    curve, perfect = uplift_curve(score, values), uplift_curve(values, values)
    assert (curve.gain <= perfect.at(curve.share) + 1e-10).all()
    everyone = average_uplift(values, np.ones(len(values)))
    for line in (curve, perfect):
        assert_allclose(line.gain[-1], everyone.value, atol=1e-11)
        assert_allclose(line.standard_error[-1], everyone.standard_error, atol=1e-6)


def test_constant_score_is_the_random_line():
    values = [3.0, -1.0, 4.0, 0.0]
    flat, everyone = (
        uplift_curve(np.zeros(4), values),
        average_uplift(values, np.ones(4)),
    )
    assert_array_equal(flat.share, [0.0, 1.0])
    assert_allclose(flat.gain, [0.0, everyone.value])
    assert_allclose(flat.standard_error, [0.0, everyone.standard_error])


def test_at_interpolates_and_keeps_the_shape():
    curve = uplift_curve([2, 1], [4.0, -2.0])
    assert_allclose(curve.at(0.25), 1.0)
    assert_allclose(curve.at([[0.0, 0.5], [0.75, 1.0]]), [[0.0, 2.0], [1.5, 1.0]])


def test_one_row_has_a_curve_without_a_standard_error():
    curve = uplift_curve([1.0], [2.0])
    assert_array_equal(curve.gain, [0.0, 2.0])
    assert np.isnan(curve.standard_error[1])


def test_share_outside_the_curve_is_refused():
    for share in (-0.1, 1.5, [0.2, np.nan]):
        with pytest.raises(InputError, match=r"share must lie in \[0, 1\], got"):
            uplift_curve([2, 1], [4.0, -2.0]).at(share)


def test_interval_is_the_normal_one():
    assert_allclose(
        Estimate(1.0, 2.0).interval(0.95), [1 - 3.919928, 1 + 3.919928], rtol=1e-6
    )
    assert_allclose(Estimate(1.0, 2.0).interval(0.6826894921), [-1.0, 3.0], rtol=1e-8)


def test_level_outside_zero_and_one_is_refused():
    for level in (0, 1, 95):
        with pytest.raises(InputError, match="level must lie strictly between 0 and 1"):
            Estimate(1.0, 2.0).interval(level)
