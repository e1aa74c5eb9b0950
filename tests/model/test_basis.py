"""Feature maps against slow formulas, and how they are chosen for given rows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.errors import InputError
from unjoined.model import Basis, FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.basis import Scaling, length_scale, rescaled
from unjoined.model.draw import BASES, auto_centers, draw_basis, median_width

EPS = np.finfo(float).eps
QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 2)


def rows(seed, n=30, d=3):
    return np.random.RandomState(seed).standard_normal((n, d))


def drawn(name, X, *, n_centers=10, width="median", seed=0):
    return draw_basis(
        name, X, n_centers=n_centers, width=width, rng=np.random.RandomState(seed)
    )


def naive_gaussian(X, centers, width):
    values = np.empty((len(X), len(centers)))
    for i, x in enumerate(X):
        for j, c in enumerate(centers):
            values[i, j] = np.exp(-np.sum((x - c) ** 2) / width**2)
    return values


# --- Gaussian -------------------------------------------------------------------------------


@QUICK
@given(SEEDS, st.floats(1.0, 20.0))
def test_gaussian_equals_the_double_loop(seed, width):
    X, centers = rows(seed), rows(seed + 1, n=7)
    assert_allclose(
        GaussianBasis(centers, width)(X),
        naive_gaussian(X, centers, width),
        rtol=0,
        atol=1e-12,
    )


@QUICK
@given(SEEDS, st.sampled_from([1e3, -1e6, 1e6]))
def test_gaussian_loses_no_digits_far_from_the_origin(seed, offset):
    """Numbers near 1e6 differ by multiples of 2^-33, which subtraction gives exactly.

    So the tolerance is that of rows at the origin; expanding the square there, without moving
    the origin, would lose 1e12 eps = 2e-4.
    """
    X, centers = offset + rows(seed), offset + rows(seed + 1, n=7)
    assert_allclose(
        GaussianBasis(centers, 2.0)(X),
        naive_gaussian(X, centers, 2.0),
        rtol=0,
        atol=1e-12,
    )


@QUICK
@given(SEEDS, st.floats(1e-3, 1.0))
def test_gaussian_error_grows_no_faster_than_the_squares_that_cancel(seed, width):
    """Each of 2 r.c, |r|^2 and |c|^2 is rounded to (d + 8) eps of |r|^2 + |c|^2 at most."""
    X, centers = rows(seed), rows(seed + 1, n=7)
    origin = centers.mean(axis=0)
    squares = (
        np.sum((X - origin) ** 2, axis=1).max()
        + np.sum((centers - origin) ** 2, axis=1).max()
    )
    assert_allclose(
        GaussianBasis(centers, width)(X),
        naive_gaussian(X, centers, width),
        rtol=0,
        atol=(3 + 8) * EPS * squares / width**2,
    )


@QUICK
@given(SEEDS, st.floats(1e-6, 1e6))
def test_gaussian_values_lie_between_zero_and_one(seed, width):
    X = rows(seed)
    values = GaussianBasis(X[:5], width)(X)
    assert values.min() >= 0.0
    assert values.max() <= 1.0


# --- Fourier and linear ---------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("width", [1.0, 3.0])
def test_fourier_inner_products_approximate_the_gaussian_kernel(width):
    """p terms in [-2, 2] with the kernel as mean: Hoeffding bounds the error of all pairs.

    P(|mean - k| > t) <= 2 exp(-p t^2 / 8) for each of n^2 pairs, 1e-4 for all of them.
    """
    n, p = 12, 40_000
    X = rows(0, n=n)
    values = drawn("fourier", X, n_centers=p, width=width)(X)
    tolerance = np.sqrt(8.0 * np.log(2.0 * n**2 / 1e-4) / p)
    assert tolerance < 0.06
    assert_allclose(
        values @ values.T, naive_gaussian(X, X, width), rtol=0, atol=tolerance
    )


@QUICK
@given(SEEDS)
def test_fourier_equals_the_double_loop(seed):
    X, frequencies = rows(seed), rows(seed + 1, n=3, d=5)
    phases = np.linspace(0.0, 6.0, 5)
    expected = [
        [np.sqrt(2.0 / 5) * np.cos(x @ frequencies[:, j] + phases[j]) for j in range(5)]
        for x in X
    ]
    assert_allclose(FourierBasis(frequencies, phases)(X), expected, rtol=0, atol=1e-12)


def test_linear_is_a_constant_and_the_features_unchanged():
    X = rows(0)
    values = LinearBasis(3)(X)
    assert_array_equal(values[:, 0], np.ones(30))
    assert_array_equal(values[:, 1:], X)


# --- the protocol ---------------------------------------------------------------------------


def test_every_basis_keeps_its_promises():
    for name in BASES:
        X = rows(0)
        basis = drawn(name, X)
        assert isinstance(basis, Basis)
        assert basis.n_features == 3
        X.setflags(write=False)
        before = X.copy()
        values = basis(X)
        assert values.shape == (30, basis.size)
        assert values.dtype == np.float64
        assert_array_equal(X, before)
        assert not np.shares_memory(values, X)
        assert basis(X[:0]).shape == (0, basis.size)


@pytest.mark.parametrize("name", BASES)
@QUICK
@given(SEEDS, st.integers(0, 30))
def test_a_basis_maps_each_row_by_itself(name, seed, cut):
    """However rows are chunked, up to the rounding of a product of other shape."""
    X = rows(seed)
    basis = drawn(name, X)
    chunks = np.concatenate([basis(X[:cut]), basis(X[cut:])])
    assert_allclose(chunks, basis(X), rtol=0, atol=1e-13)


def test_the_same_seed_draws_the_same_basis():
    for name in BASES:
        X = rows(0)
        assert_array_equal(drawn(name, X, seed=4)(X), drawn(name, X, seed=4)(X))


# --- centres and widths ---------------------------------------------------------------------


@QUICK
@given(SEEDS, st.integers(1, 30))
def test_centres_are_rows_and_none_is_drawn_twice(seed, size):
    X = rows(seed)
    basis = drawn("gaussian", X, n_centers=size, seed=seed)
    assert basis.size == size
    positions = [
        int(np.flatnonzero((c == X).all(axis=1)).item()) for c in basis.centers
    ]
    assert len(set(positions)) == size


def test_more_centres_than_rows_are_refused_with_both_numbers():
    with pytest.raises(
        InputError,
        match=r"n_centers=31 centres .* are only 30 \(n_samples=30\).*'auto' or at most",
    ):
        drawn("gaussian", rows(0), n_centers=31)


def test_by_default_there_are_a_hundred_centres_or_all_rows():
    for n, size in ((30, 30), (100, 100), (150, 100)):
        assert drawn("gaussian", rows(0, n=n), n_centers="auto").size == size


def test_fourier_features_need_no_rows_to_be_drawn_from():
    assert drawn("fourier", rows(0, n=5), n_centers=31).size == 31
    assert drawn("fourier", rows(0, n=5), n_centers="auto").size == 100


def test_the_width_is_taken_as_given_or_from_the_rows():
    X = rows(0)
    assert drawn("gaussian", X, width=25.0).width == 25.0
    assert drawn("gaussian", X).width == median_width(X, np.random.RandomState(0))


@QUICK
@given(SEEDS, st.integers(2, 40), st.integers(1, 4))
def test_the_width_is_the_median_distance_between_rows(seed, n, copies):
    """Rows that coincide are no pair to resolve, however often they are repeated."""
    X = np.repeat(rows(seed, n=n), copies, axis=0)
    distances = [np.linalg.norm(x - z) for i, x in enumerate(X) for z in X[:i]]
    expected = np.median([d for d in distances if d > 0.0])
    assert_allclose(median_width(X, np.random.RandomState(0)), expected, rtol=1e-12)


def test_the_width_of_many_rows_is_in_the_units_of_the_features():
    X = rows(0, n=1000)
    one, tenfold = (median_width(c * X, np.random.RandomState(1)) for c in (1.0, 10.0))
    assert_allclose(tenfold, 10.0 * one, rtol=1e-12)


def test_the_width_of_many_rows_on_two_points_is_their_distance():
    X = np.repeat([[0.0], [3.0]], [900, 100], axis=0)
    assert median_width(X, np.random.RandomState(0)) == 3.0


def test_rows_that_are_all_the_same_leave_any_width():
    assert median_width(np.ones((5, 2)), np.random.RandomState(0)) == 1.0


def test_a_given_basis_is_used_as_it_is():
    basis = LinearBasis(3)
    assert draw_basis(basis, rows(0), n_centers=5, width=1.0, rng=None) is basis


def test_a_given_basis_of_other_features_is_refused():
    with pytest.raises(
        InputError, match="the given basis takes 2 features, but X has 3"
    ):
        draw_basis(LinearBasis(2), rows(0), n_centers=5, width=1.0, rng=None)


# --- scaling --------------------------------------------------------------------------------


@QUICK
@given(SEEDS, st.floats(-1e3, 1e3), st.floats(1e-2, 1e2))
def test_scaled_rows_have_weighted_mean_zero_and_variance_one(seed, offset, spread):
    """The mean is rounded to n eps of its size, which counts in units of the scale."""
    rng = np.random.RandomState(seed)
    X = offset + spread * rng.standard_normal((50, 2))
    weight = rng.uniform(0.0, 3.0, 50)
    X.setflags(write=False)
    scaling = Scaling.of_rows(X, weight)
    Z = scaling(X)
    tolerance = 50 * EPS * np.max((np.abs(offset) + scaling.scale) / scaling.scale)
    assert_allclose(weight @ Z / weight.sum(), 0.0, atol=tolerance)
    assert_allclose(weight @ Z**2 / weight.sum(), 1.0, atol=2 * tolerance)
    assert_allclose(
        Z * scaling.scale + scaling.mean, X, rtol=0, atol=4 * EPS * np.abs(X).max()
    )


@QUICK
@given(SEEDS)
def test_whole_weights_scale_like_repeated_rows(seed):
    rng = np.random.RandomState(seed)
    X, weight = rng.standard_normal((20, 2)), rng.randint(0, 4, 20)
    assume(np.count_nonzero(weight) > 1)
    weighted = Scaling.of_rows(X, weight.astype(float))
    repeated = Scaling.of_rows(np.repeat(X, weight, axis=0), np.ones(weight.sum()))
    assert_allclose(weighted.mean, repeated.mean, atol=1e-13)
    assert_allclose(weighted.scale, repeated.scale, rtol=1e-12)


@QUICK
@given(SEEDS, st.floats(-1e6, 1e6), st.integers(1, 200))
def test_a_constant_feature_becomes_zero_and_keeps_its_unit(seed, value, n):
    rng = np.random.RandomState(seed)
    X = np.column_stack([np.full(n, value), rng.standard_normal(n)])
    scaling = Scaling.of_rows(X, rng.uniform(0.1, 3.0, n))
    assert scaling.scale[0] == 1.0
    assert_allclose(scaling(X)[:, 0], 0.0, atol=n * EPS * abs(value))


@pytest.mark.parametrize("n", [300_000, 1_000_000])
def test_a_constant_feature_becomes_zero_in_any_number_of_rows(n):
    """Adding 0.1 a million times drifts; the drift is no spread to divide by."""
    X = np.column_stack([np.full(n, 0.1), np.arange(n) % 7])
    scaling = Scaling.of_rows(X, np.ones(n))
    assert scaling.scale[0] == 1.0
    assert_allclose(scaling(X[:2])[:, 0], 0.0, atol=n * EPS)


def test_the_identity_changes_nothing():
    X = rows(0)
    assert_array_equal(Scaling.identity(3)(X), X)


# --- smooth, and its widths -----------------------------------------------------------------


def test_smooth_is_a_constant_the_features_and_gaussians():
    X = rows(0)
    basis = drawn("smooth", X, n_centers=5)
    values = basis(X)
    assert (basis.size, basis.n_features) == (1 + 3 + 5, 3)
    assert_array_equal(values[:, :4], np.column_stack([np.ones(30), X]))
    gaussian = basis.second
    assert {tuple(center) for center in gaussian.centers} <= {tuple(x) for x in X}
    assert_allclose(
        values[:, 4:], naive_gaussian(X, gaussian.centers, gaussian.width), atol=1e-12
    )


def test_smooth_has_ten_times_the_fourth_root_of_the_rows():
    for n, size in ((1, 1), (12, 12), (625, 50), (10_000, 100)):
        assert auto_centers(n) == size
        assert drawn("smooth", rows(0, n=n, d=1), n_centers="auto").size == 2 + size


def test_the_number_of_smooth_centres_grows_to_two_hundred():
    sizes = [auto_centers(n) for n in range(1, 400_000, 777)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 200


def test_auto_width_begins_at_the_median():
    X = rows(1)
    for name in ("gaussian", "fourier", "smooth"):
        assert_array_equal(
            drawn(name, X, width="auto")(X), drawn(name, X, width="median")(X)
        )


@pytest.mark.parametrize("name", ["smooth", "gaussian", "fourier", "linear"])
@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_a_rescaled_basis_is_the_basis_of_rescaled_features(name, factor):
    """A width times c sees features as a width sees features divided by c."""
    X = rows(2)
    one = drawn(name, X, width=1.5)
    found = rescaled(one, factor)(X)
    if name == "linear":
        assert_array_equal(found, one(X))
        return
    gaussian = one.second if name == "smooth" else one
    if name != "fourier":
        gaussian = GaussianBasis(gaussian.centers / factor, gaussian.width)
    linear = LinearBasis(3)(X) if name == "smooth" else np.empty((30, 0))
    assert_allclose(found, np.hstack([linear, gaussian(X / factor)]), atol=1e-12)


def test_which_bases_have_a_width():
    X = rows(3)
    scales = [
        length_scale(drawn(name, X, width=2.0))
        for name in ("smooth", "gaussian", "linear")
    ]
    assert_array_equal(scales, [2.0, 2.0, np.nan])
    assert length_scale(drawn("fourier", X, width=2.0)) == pytest.approx(2.0, rel=0.3)
    assert np.isnan(length_scale(len))  # of somebody else's
