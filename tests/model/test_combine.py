"""Combinations of basis functions at many rows: the product, whatever threads and chunks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unjoined import MinMaxUplift
from unjoined.data import paper_problem
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.accumulate import combine
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis

GAUSSIANS = GaussianBasis(np.random.default_rng(0).standard_normal((19, 2)), 2.0)
BASIS = StackedBasis(LinearBasis(2), GAUSSIANS)
SCALING = Scaling(np.array([1.0, 2.0]), np.array([3.0, 0.5]))
COEF = np.linspace(-1.0, 1.0, 22)


def draw(n):
    return np.random.default_rng(n).standard_normal((n, 2))


@pytest.mark.parametrize("n", [0, 1, 100])
@pytest.mark.parametrize("scaled", [True, False])
def test_the_result_is_the_product_of_values_and_coefficients(limits, n, scaled):
    limits("model.accumulate", PIECE_ROWS=30, chunk_rows=lambda p: 7)
    X = draw(n)
    basis = (
        ScaledBasis(BASIS, SCALING) if scaled else (lambda rows: BASIS(SCALING(rows)))
    )
    expected = BASIS(SCALING(X)) @ COEF
    assert_allclose(combine(basis, COEF, X, n_jobs=2), expected, rtol=0, atol=1e-12)


def test_several_combinations_are_found_together():
    X, basis = draw(50), ScaledBasis(BASIS, SCALING)
    several = np.column_stack([COEF, COEF**2, np.ones(22)])
    found = combine(basis, several, X)
    assert found.shape == (50, 3)
    for column, coef in zip(found.T, several.T, strict=True):
        assert_allclose(column, combine(basis, coef, X), rtol=0, atol=1e-12)


def test_the_result_does_not_depend_on_threads_to_the_bit():
    X, basis = draw(50_000), ScaledBasis(BASIS, SCALING)
    one, two, all_ = (combine(basis, COEF, X, n_jobs=n) for n in (None, 2, -1))
    assert_array_equal(two, one)
    assert_array_equal(all_, one)


def test_predictions_of_a_model_do_not_depend_on_its_threads_to_the_bit():
    data = paper_problem().draw(200, random_state=0)
    model = MinMaxUplift(width=2.0, ridge_f=1e-2, ridge_g=1e-2, random_state=0).fit(
        **data
    )
    X = 3.0 * draw(20_000)
    found = [model.set_params(n_jobs=n).predict(X) for n in (1, 2)]
    assert_array_equal(*found)
    expected = model.basis_(model.scaling_(X)) @ model.coef_
    assert_allclose(found[0], expected, rtol=0, atol=1e-11 * np.abs(model.coef_).sum())
    critic = model.critic_basis_(model.scaling_(X)) @ model.critic_coef_
    assert_allclose(
        model.critic(X), critic, rtol=0, atol=1e-11 * np.abs(model.critic_coef_).sum()
    )
