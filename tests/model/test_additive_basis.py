"""Functions of single features: orthogonal, without units, and fit for any kind of column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.errors import InputError
from unjoined.model import Basis
from unjoined.model.additive_basis import (
    CATEGORY,
    CONSTANT,
    CURVE,
    LINE,
    PAIR,
    SQUARE,
    AdditiveBasis,
)

SEEDS = st.integers(0, 2**32 - 1)


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def basis_of(X, weight=None, **others):
    return AdditiveBasis.of_rows(
        X, np.ones(len(X)) if weight is None else weight, **others
    )


def places(basis, group, column=None):
    """Return which functions a group has, or those of them that see one column."""
    block, groups, columns = basis.blocks()
    wanted = [
        g == group and (column is None or column in c)
        for g, c in zip(groups, columns, strict=True)
    ]
    return np.flatnonzero(np.array(wanted)[block])


def test_it_keeps_the_promises_of_a_basis():
    X = rows()
    basis = basis_of(X, with_products=True)
    assert isinstance(basis, Basis)
    values = basis(X)
    assert values.shape == (300, basis.size)
    block, groups, columns = basis.blocks()
    assert len(block) == basis.size
    assert len(groups) == len(columns) == block.max() + 1
    assert_array_equal(values[:, 0], 1.0)
    with pytest.raises(InputError, match="3 features"):
        basis(X[:, :2])


def test_its_blocks_are_a_constant_lines_squares_curves_and_pairs():
    _, groups, columns = basis_of(rows(), with_products=True).blocks()
    assert groups == (CONSTANT, *[LINE] * 3, *[SQUARE] * 3, *[CURVE] * 3, *[PAIR] * 3)
    assert columns[1:] == (*[(0,), (1,), (2,)] * 3, (0, 1), (0, 2), (1, 2))


def test_levels_of_a_category_are_multiplied_with_features_and_other_categories():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.standard_normal(300), rng.integers(0, 3, 300), rng.integers(0, 2, 300)]
    )
    basis = basis_of(X, with_products=True, categorical=(1, 2))
    _, groups, columns = basis.blocks()
    pairs = [c for g, c in zip(groups, columns, strict=True) if g == PAIR]
    assert sorted(pairs) == [(0, 1)] * 3 + [(0, 2)] * 2 + [(2, 1)] * 6
    first = places(basis, PAIR)[
        0
    ]  # the first cosine, and a level of the category of two levels
    level = 2.0 * ((X[:, 2] == 0.0) - np.mean(X[:, 2] == 0.0))
    cosine = np.sqrt(2.0) * np.cos(basis.curves[0].angle(X[:, 0]))
    assert_allclose(basis(X)[:, first], cosine * level, atol=1e-12)


def test_a_value_that_many_rows_share_is_a_level_of_its_own():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.standard_normal(400)), rng.standard_normal(400)])
    X[rng.random(400) < 0.3, 0] = 0.0
    weight = rng.integers(1, 3, 400).astype(float)
    basis = basis_of(X, weight, with_products=True)
    share = np.average(X[:, 0] == 0.0, weights=weight)
    level = places(basis, LINE, 0)[1]
    assert_allclose(basis(X)[:, level], (X[:, 0] == 0.0) - share, atol=1e-12)
    _, groups, columns = basis.blocks()
    pairs = [c for g, c in zip(groups, columns, strict=True) if g == PAIR]
    assert pairs == [
        (0, 1),
        (1, 0),
    ]  # the rank and the level of 0, each with the other feature


@pytest.mark.parametrize(
    "column",
    [
        np.where(
            np.arange(400) % 10 == 0, 0.0, np.arange(400.0)
        ),  # a tenth of the rows
        np.arange(400.0)
        % 5,  # a fifth, but of five values, which a curve can tell apart
    ],
)
def test_a_value_of_few_rows_or_among_few_is_none(column):
    basis = basis_of(np.column_stack([column, rows(400, 1)]))
    assert basis.categories == ()


def test_categories_of_very_many_levels_are_in_no_pairs():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((500, 2)), rng.integers(0, 30, 500)])
    _, groups, columns = basis_of(X, with_products=True, categorical=(2,)).blocks()
    assert [c for g, c in zip(groups, columns, strict=True) if g == PAIR] == [(0, 1)]


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_a_trimmed_basis_has_the_same_values_of_what_is_left(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rows(100, seed=seed), rng.integers(0, 3, 100)])
    basis = basis_of(X, with_products=True, categorical=(3,))
    less, left = basis.trimmed(rng.random(basis.size) < 0.3)
    assert_array_equal(less(X), basis(X)[:, left])
    assert less.size == left.sum()


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, cut=st.integers(1, 99))
def test_each_row_is_mapped_by_itself(seed, cut):
    X = rows(100, seed=seed)
    basis = basis_of(X, with_products=True)
    values = np.vstack([basis(X[:cut]), basis(X[cut:])])
    assert_allclose(values, basis(X), rtol=1e-12, atol=1e-12)


def test_cosines_of_uniform_ranks_are_orthogonal_and_fall_like_their_number():
    """sqrt(2) cos(pi j r) / j over r uniform: mean 0, products 0, mean squares 1 / j^2.

    At the midpoints of 2,000 equal steps sums of cosines are exact; knots are 1/200 apart.
    """
    X = ((np.arange(2000) + 0.5) / 2000)[:, None]
    basis = basis_of(X)
    curve = basis(X)[:, places(basis, CURVE)]
    assert curve.shape[1] == 8
    assert_allclose(curve.mean(axis=0), 0.0, atol=1e-3)
    gram = curve.T @ curve / 2000
    assert_allclose(gram, np.diag(1.0 / np.arange(1, 9) ** 2), atol=1e-3)
    expected = np.sqrt(2.0) * np.cos(np.pi * X * np.arange(1, 9)) / np.arange(1, 9)
    assert_allclose(curve, expected, atol=0.02)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, shift=st.floats(-1e3, 1e3), factor=st.floats(1e-3, 1e3))
def test_units_of_features_change_nothing(seed, shift, factor):
    X, new = rows(200, seed=seed), rows(50, seed=seed + 1)
    X[:, 2] = X[:, 2] > 0.0
    plain = basis_of(X, with_products=True)(new)
    other = basis_of(shift + factor * X, with_products=True)(shift + factor * new)
    # A shift a million times the spread leaves 1e-16 * 1e6 of the digits.
    assert_allclose(other, plain, atol=1e-9)


def test_a_curve_sees_only_the_order_of_the_values_it_was_drawn_for():
    X = rows(400, 1)
    basis, bent = basis_of(X), basis_of(np.exp(3.0 * X))
    curve, other = basis(X), bent(np.exp(3.0 * X))
    at = places(basis, CURVE)
    assert_allclose(other[:, at], curve[:, at], atol=0.1)  # to the spacing of the knots
    assert_array_equal(np.argsort(other[:, at[0]]), np.argsort(curve[:, at[0]]))


def test_lines_and_squares_are_standardised_and_stay_where_they_are_far_out():
    X = 5.0 + 2.0 * rows(500, 1)
    basis = basis_of(X)
    values = basis(X)
    (line,), (square,) = places(basis, LINE), places(basis, SQUARE)
    assert_allclose(
        [values[:, line].mean(), values[:, line].std()], [0.0, 1.0], atol=1e-12
    )
    assert_allclose(values[:, square].mean(), 0.0, atol=1e-12)
    assert_allclose(
        values[:, square], (values[:, line] ** 2 - 1.0) / np.sqrt(2.0), rtol=1e-12
    )
    far, farther = basis(np.array([[1e3], [1e9]]))
    assert_array_equal(far, farther)
    assert far[line] == 5.0


def test_a_column_of_two_values_has_a_line_and_nothing_else():
    X = np.column_stack([rows(100, 1), np.arange(100) % 2])
    basis = basis_of(X)
    assert len(places(basis, LINE, 1)) == 1
    assert len(places(basis, SQUARE, 1)) == len(places(basis, CURVE, 1)) == 0
    line = basis(X)[:, places(basis, LINE, 1)[0]]
    assert_allclose(np.unique(line), [-1.0, 1.0], rtol=1e-12)
    assert basis.size == 1 + 2 + 1 + 8


def test_a_column_of_two_values_has_pairs():
    X = np.column_stack([rows(100, 1), np.arange(100) % 2])
    basis = basis_of(X, with_products=True)
    (pair,) = places(basis, PAIR)
    value, first = basis(X)[:, pair], basis(X)[:, places(basis, CURVE, 0)[0]]
    sign = np.where(X[:, 1] == 0, 1.0, -1.0)
    assert_allclose(
        value, value[0] * sign[0] / first[0] * first * sign, rtol=1e-9, atol=1e-9
    )


def test_a_constant_column_has_no_functions():
    X = np.column_stack([rows(100, 1), np.full(100, 7.0)])
    basis = basis_of(X, with_products=True)
    _, _, columns = basis.blocks()
    assert all(1 not in c for c in columns)
    assert_array_equal(basis(X), basis(np.column_stack([X[:, 0], np.full(100, -3.0)])))
    alone = basis_of(np.zeros((5, 2)))
    assert_array_equal(alone(np.ones((3, 2))), np.ones((3, 1)))


def test_a_column_of_few_values_has_as_many_functions_as_it_can_tell_apart():
    """A line, a square and cosines span everything that a function of the values can be."""
    for n_values in (3, 5, 9, 20):
        X = (np.arange(600) % n_values)[:, None].astype(float)
        basis = basis_of(X)
        n_cosines = min(8, n_values - 1)
        assert len(places(basis, CURVE)) == n_cosines
        values = basis(np.arange(n_values)[:, None].astype(float))
        assert np.linalg.matrix_rank(values, tol=1e-6) >= min(n_values, n_cosines + 1)


def test_ranks_of_few_values_are_the_middles_of_their_steps():
    """Values 0, 1, 2 of shares 1/4, 1/2, 1/4 have ranks 1/8, 1/2, 7/8; between, the edges."""
    X = np.repeat([0.0, 1.0, 2.0], [100, 200, 100])[:, None]
    basis = basis_of(X)
    first = places(basis, CURVE)[0]
    new = np.array([[-1.0], [0.0], [0.5], [1.0], [1.5], [2.0], [3.0]])
    angle = np.arccos(basis(new)[:, first] / np.sqrt(2.0)) / np.pi
    assert_allclose(angle, [0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 1.0], atol=0.006)


def test_categories_are_one_block_of_indicators_less_their_shares():
    codes = np.repeat([3.0, 7.0, 9.0], [50, 30, 20])
    X = np.column_stack([codes, rows(100, 1)])
    basis = basis_of(X, categorical=(0,))
    at = places(basis, CATEGORY)
    assert len(at) == 3
    assert len(places(basis, LINE, 0)) == 0
    values = basis(X)[:, at]
    assert_allclose(values.mean(axis=0), 0.0, atol=1e-12)
    expected = (codes[:, None] == [3.0, 7.0, 9.0]) - np.array([0.5, 0.3, 0.2])
    assert_allclose(values, expected, atol=1e-12)


def test_a_category_that_was_not_there_is_average():
    """Whatever the coefficients, it differs from the mean of all rows as if it had no code."""
    codes = np.repeat([3.0, 7.0, 9.0], [50, 30, 20])[:, None]
    basis = basis_of(codes, categorical=(0,))
    at = places(basis, CATEGORY)
    unseen = basis(np.array([[4.0]]))[0, at]
    assert_allclose(unseen, [-0.5, -0.3, -0.2], atol=1e-12)
    share = np.array([0.5, 0.3, 0.2])
    for coef in np.eye(3):
        seen = basis(codes)[:, at] @ (coef - share @ coef)
        assert_allclose(seen.mean(), 0.0, atol=1e-12)
        assert_allclose(unseen @ (coef - share @ coef), 0.0, atol=1e-12)


def test_pairs_are_products_of_the_first_cosines():
    X = rows(200, 3)
    basis = basis_of(X, with_products=True)
    values = basis(X)
    _, _, columns = basis.blocks()
    block = basis.blocks()[0]
    for j in places(basis, PAIR):
        a, b = columns[block[j]]
        first, second = (values[:, places(basis, CURVE, c)[0]] for c in (a, b))
        assert_allclose(values[:, j], first * second, rtol=1e-12, atol=1e-12)
    assert len(places(basis_of(X), PAIR)) == 0


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_whole_weights_equal_repeated_rows(seed):
    """But for ranks of columns with many values, whose knots may lie between two rows."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.standard_normal(150), rng.integers(0, 5, 150), rng.integers(0, 3, 150)]
    )
    times = rng.integers(1, 4, 150)
    again = np.repeat(np.arange(150), times)
    weighted = basis_of(X, times.astype(float), categorical=(2,))
    repeated = basis_of(X[again], categorical=(2,))
    assert weighted.size == repeated.size
    assert_allclose(weighted(X), repeated(X), atol=1e-9)


def test_many_features_get_fewer_cosines_each():
    few, many = basis_of(rows(50, 10)), basis_of(rows(50, 100))
    assert len(places(few, CURVE, 0)) == 8
    assert len(places(many, CURVE, 0)) == 2
    assert many.size <= 1 + 400
    assert len(places(basis_of(rows(20, 250)), CURVE, 0)) == 2  # no curve has fewer


def test_some_features_may_be_chosen():
    X = rows(100, 4)
    basis = basis_of(X, features=np.array([1, 3]), n_cosines=2)
    assert basis.features == (1, 3)
    changed = X.copy()
    changed[:, [0, 2]] = 99.0
    assert_array_equal(basis(X), basis(changed))
    assert basis.size == 1 + 2 + 2 + 4
