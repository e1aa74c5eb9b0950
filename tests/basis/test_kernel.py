"""Smooth functions: their ridge is the kernel's, their number follows the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from unjoined.basis.families import RANK_TOLERANCE, draw_kernel

from unjoined._typing import Basis
from unjoined.basis import LeadingBasis, LinearBasis, draw_pool, draw_quadratic, kernel_size

SEEDS = st.integers(0, 2**32 - 1)


def rows(n=40, d=2, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def rng(seed=0):
    return np.random.RandomState(seed)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, width=st.sampled_from([0.3, 1.0, 3.0]))
def test_inner_products_at_the_centres_are_the_kernel(seed, width):
    """Nystroem features: with their mean put back, phi(c) phi(c')' = k(c, c').

    What is left out are eigenvalues below the tolerance's share of the largest, at most 40.
    """
    basis = draw_kernel(rows(seed=seed), 40, width, rng())
    centers = basis.gaussians.centers
    phi = basis(centers) + basis.mean
    kernel = rbf_kernel(centers, gamma=1 / width**2)
    assert_allclose(phi @ phi.T, kernel, atol=2 * RANK_TOLERANCE * 40)


def test_functions_have_mean_zero_over_the_centres():
    basis = draw_kernel(rows(), 15, 1.0, rng())
    assert_allclose(basis(basis.gaussians.centers).mean(axis=0), 0.0, atol=1e-10)


def test_a_ridge_on_the_coefficients_is_kernel_ridge_regression():
    """All rows are centres, so the ridge's penalty is the squared norm in the kernel's space."""
    X = rows(30)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    ridge, width = 0.1, 0.8
    basis = draw_kernel(X, 30, width, rng())
    phi = basis(X) + basis.mean
    coef = np.linalg.solve(phi.T @ phi + ridge * np.eye(basis.size), phi.T @ y)
    expected = KernelRidge(alpha=ridge, kernel="rbf", gamma=1 / width**2).fit(X, y)
    new = rows(50, seed=1)
    assert_allclose((basis(new) + basis.mean) @ coef, expected.predict(new), atol=1e-4)


def test_rows_that_coincide_are_one_centre():
    X = np.repeat(rows(5), 10, axis=0)
    basis = draw_kernel(X, 20, 1.0, rng())
    assert len(basis.gaussians.centers) == 5
    assert basis.size == 5


def test_directions_that_rounding_decides_are_left_out():
    """Forty centres under one very wide function span a few directions only."""
    basis = draw_kernel(rows(40, 1), 40, 30.0, rng())
    assert basis.size < 10
    assert np.abs(basis.rotation).max() < 1.0 / np.sqrt(RANK_TOLERANCE)


def test_the_order_of_rows_changes_nothing():
    """Centres are drawn from the distinct rows, which are sorted."""
    X = rows()
    one, two = (draw_kernel(r, 10, 1.0, rng()) for r in (X, X[::-1]))
    assert_array_equal(one(X), two(X))


def test_pool_is_linear_first_then_linear_and_smooth_of_each_width():
    X = rows(200, 3)
    *pool, products = draw_pool(X, factors=(0.5, 2.0), n_centers=25, rng=rng())
    assert len(pool) == 3
    np.testing.assert_array_equal(products(X), np.hstack([pool[0](X), draw_quadratic(X)(X)]))
    assert all(isinstance(basis, Basis) for basis in pool)
    for basis in pool:
        assert basis.n_features == 3
        assert basis(X).shape == (200, basis.size)
        assert_array_equal(basis(X)[:, :4], LinearBasis(3)(X))
    widths = [basis.second.gaussians.width for basis in pool[1:]]
    assert_allclose(widths[1] / widths[0], 4.0)
    assert pool[1].size <= 4 + 25
    assert [b.second.n_features for b in pool[1:]] == [3, 3]


@pytest.mark.parametrize(
    ("n", "size"), [(1, 20), (100, 20), (1000, 40), (3375, 60), (15_625, 100), (1_000_000, 100)]
)
def test_number_of_centres_is_four_cube_roots_between_20_and_100(n, size):
    assert kernel_size(n) == size


@pytest.mark.parametrize("size", [0, 1, 3])
def test_leading_functions_are_the_first_of_the_basis(size):
    X, basis = rows(7), LinearBasis(2)
    leading = LeadingBasis(basis, size)
    assert isinstance(leading, Basis)
    assert leading.n_features == 2
    assert_array_equal(leading(X), basis(X)[:, :size])


def test_quadratic_functions_are_all_squares_and_products_once():
    X = np.random.RandomState(0).standard_normal((200, 4)) + 1.0
    basis = draw_quadratic(X)
    assert isinstance(basis, Basis)
    assert (basis.size, basis.n_features) == (10, 4)
    values = basis(X)
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(values.std(axis=0), 1.0 / np.sqrt(10.0), rtol=1e-9)
    # Any quadratic form is a combination of them and a constant.
    A = np.random.RandomState(1).standard_normal((4, 4))
    form = np.einsum("ni,ij,nj->n", X, A, X)
    design = np.column_stack([np.ones(200), values])
    coef, *_ = np.linalg.lstsq(design, form, rcond=None)
    np.testing.assert_allclose(design @ coef, form, rtol=1e-9, atol=1e-9)


def test_products_that_never_vary_are_nought():
    """Two levels of one category are never 1 together."""
    level = np.random.RandomState(0).randint(2, size=50)
    X = np.column_stack([level == 0, level == 1]).astype(float)
    values = draw_quadratic(X)(X)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values[:, 1], 0.0)


def test_products_are_in_the_pool_up_to_ten_features():
    for d, expected in ((10, 3), (11, 2)):
        X = np.random.RandomState(0).standard_normal((60, d))
        assert len(draw_pool(X, factors=(1.0,), n_centers=10, rng=rng())) == expected
    assert len(draw_pool(X[:, :2], factors=(), n_centers=10, rng=rng())) == 1
