"""The uplift curve, its baselines and estimates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.errors import InputError
from unjoined.evaluate import Estimate, average_uplift, uplift_curve

ROWS = st.lists(
    st.tuples(st.integers(-3, 3), st.floats(-100, 100, allow_nan=False)),
    min_size=2,
    max_size=30,
)

QUICK = settings(max_examples=60, deadline=None)


def columns(rows):
    score, values = np.array(rows, dtype=float).T
    return score, values


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
