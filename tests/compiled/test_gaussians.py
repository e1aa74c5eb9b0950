"""Compiled basis values, combinations and sums: textbook formulas, whatever the processor."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined._compiled.kernels import (
    GaussianKernel,
    MeanArrays,
    PolicyArrays,
    RowArrays,
    SumArrays,
    gaussian_kernel,
)
from unjoined._compiled.library import library

EPS = float(np.finfo(np.float64).eps)
QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
LEVELS = range(1, 1 + (library().level if library() else 0))  # AVX2, and AVX-512 if it is there
needs_library = pytest.mark.skipif(not LEVELS, reason="no compiled arithmetic for this machine")


def make(d, g, level, seed, *, linear):
    """Return a kernel, and the same by the formula."""
    rng = np.random.default_rng(seed)
    centers, width = rng.standard_normal((g, d)), rng.uniform(1.0, 3.0) * np.sqrt(d)
    shift, factor = rng.standard_normal(d), rng.uniform(0.5, 2.0, d)
    square = (centers**2).sum(axis=1)
    product = np.vstack([2.0 * centers.T, np.full(g, -1.0), -square]) / width**2
    # z is scaled by the width, as bases do it.
    product[:d] *= width
    product[d] *= width**2
    affine = (width, rng.standard_normal(d)) if linear else None
    kernel = GaussianKernel(replace(library(), level=level), shift, factor / width, product, affine)

    def textbook(X):
        scaled = (X - shift) * factor
        distance = ((scaled[:, None, :] - centers) ** 2).sum(axis=2)
        values = np.exp(-distance / width**2)
        ones = np.ones((len(X), 1))
        return np.hstack([ones, scaled + affine[1], values]) if linear else values

    return kernel, textbook


sizes = st.tuples(
    st.sampled_from([1, 2, 7, 8, 9, 64]),
    st.sampled_from([16, 17, 23, 24, 31, 32, 100]),
    st.sampled_from([0, 1, 3, 4, 5, 30, 97, 200]),
    st.booleans(),
)


@needs_library
@pytest.mark.parametrize("level", LEVELS)
def test_exponentials_are_right_to_two_units_in_the_last_place(level):
    """The product hands the feature itself to the exponential."""
    g = 16
    product = np.vstack([np.ones(g), np.zeros((2, g))])
    kernel = GaussianKernel(replace(library(), level=level), np.zeros(1), np.ones(1), product, None)
    x = np.concatenate(
        [
            -np.logspace(-300, np.log10(707.9), 3000),
            -np.linspace(0.0, 707.9, 10_001),
            -np.log(2.0) * (np.arange(1000) + 0.5),  # where rounding to whole numbers turns
        ]
    )
    values = np.empty((len(x), g))
    kernel.values(x[:, None], values)
    exact = np.exp(x.astype(np.longdouble))
    assert np.abs(values.T / exact - 1.0).max() <= 2.0 * EPS
    beyond = -np.array([708.1, 745.0, 1e4, 1e18, 1e150])
    values = np.empty((len(beyond), g))
    kernel.values(beyond[:, None], values)
    assert_array_equal(values, 0.0)


@needs_library
@QUICK
@given(SEEDS, sizes, st.sampled_from(list(LEVELS) or [0]))
def test_values_are_those_of_the_formula(seed, size, level):
    d, g, n, linear = size
    kernel, textbook = make(d, g, level, seed, linear=linear)
    X = np.random.default_rng(seed).standard_normal((n, d))
    values = np.full((n, kernel.p), np.nan)
    kernel.values(X, values)
    # Exponents cancel |z|^2 and |c|^2, of some ten each at the most, to rounding.
    assert_allclose(values, textbook(X), rtol=0, atol=1e-12)


@needs_library
@QUICK
@given(SEEDS, sizes, st.integers(1, 8), st.sampled_from(list(LEVELS) or [0]))
def test_combinations_are_products_with_the_values(seed, size, r, level):
    d, g, n, linear = size
    kernel, textbook = make(d, g, level, seed, linear=linear)
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, d)), rng.standard_normal((r, kernel.p))
    out = np.full((n, r), np.nan)
    kernel.combine(X, None, coef, out)
    expected = textbook(X) @ coef.T
    assert_allclose(out, expected, rtol=0, atol=1e-11)
    at = rng.integers(0, n, 5)[::-2] if n else np.arange(0)
    out = np.full((len(at), r), np.nan)
    kernel.combine(X, at, coef, out)
    assert_allclose(out, expected[at], rtol=0, atol=1e-11)


def draw_rows(rng, n, d, *, weighted):
    X, at = rng.standard_normal((n + 5, d)), np.sort(rng.permutation(n + 5)[:n])
    label = np.where(rng.random(n + 5) < 0.5, -1.0, 1.0)
    weight = rng.uniform(0.5, 2.0, n + 5) if weighted else None
    return RowArrays(X, at, label, weight)


def add_up(kernel, rows, means=None, policies=None, *, cross=True):
    shape = (kernel.stride, kernel.stride)
    sums = SumArrays(np.zeros(kernel.p), np.zeros(shape), np.zeros(shape) if cross else None)
    room = np.full(kernel.room, np.nan)
    weight, unit = kernel.add_up(rows, means, sums, policies, room)
    return sums, weight, unit


def assert_lower(found, expected):
    """The lower triangle, and zeros where the matrix is wider than the functions."""
    p, scale = len(expected), max(1.0, float(np.abs(expected).max()))
    assert_allclose(np.tril(found[:p, :p]), np.tril(expected), rtol=0, atol=1e-12 * scale)
    assert_array_equal(found[p:], 0.0)


@needs_library
@QUICK
@given(
    SEEDS,
    sizes,
    st.booleans(),
    st.sampled_from(["unit", "real", "one mean", "two means", "no slope"]),
    st.sampled_from(list(LEVELS) or [0]),
)
def test_sums_are_those_of_the_formula(seed, size, weighted, labels, level):
    d, g, n, linear = size
    kernel, textbook = make(d, g, level, seed, linear=linear)
    rng = np.random.default_rng(seed)
    rows, means = draw_rows(rng, n, d, weighted=weighted), None
    if labels == "real":
        rows = rows._replace(label=rows.label * rng.random(len(rows.label)))
    elif labels != "unit":
        r = 1 if labels == "one mean" else 2
        slope = None if labels == "no slope" else 0.1 * rng.standard_normal((r, d))
        coef = 0.1 * rng.standard_normal((r, kernel.p))
        means = MeanArrays(coef, slope, 0.1 * rng.standard_normal(r), 0.2)
    sums, weight, unit = add_up(kernel, rows, means)
    X, label = rows.X[rows.at], rows.label[rows.at]
    phi, r = textbook(X), np.ones(n) if rows.weight is None else rows.weight[rows.at]
    if means is not None:
        mean = phi @ means.coef.T + means.offset
        mean += 0.0 if means.slope is None else X @ means.slope.T
        label = label - np.clip(mean, -0.2, 0.2).mean(axis=1)
    assert_allclose(weight, r.sum(), rtol=1e-12)
    assert unit == (labels == "unit" or (labels == "real" and n == 0))
    assert_allclose(sums.label_basis, phi.T @ (r * label), rtol=0, atol=1e-11)
    assert_lower(sums.gram, (phi * r[:, None]).T @ phi)
    cross = (phi * (r * np.abs(label))[:, None]).T @ phi
    assert_lower(sums.label_cross, np.zeros_like(cross) if unit else cross)
    without, *_ = add_up(kernel, rows, means, cross=False)
    assert_array_equal(without.gram, sums.gram)


@needs_library
@QUICK
@given(SEEDS, sizes, st.booleans(), st.sampled_from(list(LEVELS) or [0]))
def test_sums_of_policies_are_those_of_the_formula(seed, size, weighted, level):
    """Added to what is there."""
    d, g, n, linear = size
    kernel, _ = make(d, g, level, seed, linear=linear)
    rng = np.random.default_rng(seed)
    rows = draw_rows(rng, n, d, weighted=weighted)
    s, q = kernel.design_stride, 2 * d + 1
    shift, factor = rng.standard_normal(d), rng.uniform(0.5, 2.0, d)
    treatment = np.where(rng.random(len(rows.X)) < 0.5, -1.0, 1.0)
    found = PolicyArrays(shift, factor, treatment, np.zeros((s, s)), np.zeros((s, s)))
    for _ in range(2):
        add_up(kernel, rows, policies=found)
    Z = (rows.X[rows.at] - shift) * factor
    D = np.column_stack([np.ones(len(Z)), Z, Z**2, treatment[rows.at]])
    r = np.ones(len(Z)) if rows.weight is None else rows.weight[rows.at]
    assert_lower(found.gram, 2.0 * (D * r[:, None]).T @ D)
    square = 2.0 * (D * (r**2)[:, None]).T @ D if weighted else np.zeros((q + 1, q + 1))
    assert_lower(found.square, square)


@needs_library
@pytest.mark.parametrize("level", LEVELS)
def test_a_row_beyond_the_range_of_numbers_has_no_values(level):
    kernel, _ = make(2, 16, level, 0, linear=False)
    values = np.empty((2, 16))
    kernel.values(np.array([[1e200, 0.0], [-1e160, 1e180]]), values)
    assert_array_equal(values, 0.0)


@needs_library
@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_stays_that(level):
    kernel, _ = make(2, 17, level, 0, linear=True)
    values = np.empty((2, kernel.p))
    kernel.values(np.array([[0.0, np.nan], [0.0, 0.0]]), values)
    assert np.isnan(values[0, 2:]).all()
    assert np.isfinite(values[1]).all()


@needs_library
def test_too_few_functions_or_too_many_features_are_left_to_numpy():
    def kernel(d, g):
        return gaussian_kernel(np.zeros(d), np.ones(d), np.zeros((d + 2, g)), None)

    assert kernel(64, 16) is not None
    assert kernel(65, 16) is None
    assert kernel(64, 15) is None


@needs_library
def test_rows_of_many_functions_do_not_lie_a_whole_page_apart():
    kernel = gaussian_kernel(np.zeros(1), np.ones(1), np.zeros((3, 1024)), None)
    assert kernel.p == 1024
    assert kernel.stride == 1032


@needs_library
def test_a_copy_has_numbers_of_its_own():
    kernel, textbook = make(3, 20, library().level, 0, linear=True)
    X = np.random.default_rng(0).standard_normal((10, 3))
    expected, other, values = textbook(X), deepcopy(kernel), np.empty((10, kernel.p))
    kernel._arrays[0][:] = np.nan
    other.values(X, values)
    assert_allclose(values, expected, atol=1e-12)


@needs_library
def test_gaps_in_memory_are_refused():
    kernel, _ = make(2, 16, 1, 0, linear=False)
    with pytest.raises(ValueError, match="numbers lie side by side"):
        kernel.values(np.zeros((6, 2))[::2], np.empty((3, 16)))
