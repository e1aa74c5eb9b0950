"""Scaling and basis in one: the same values as one after the other, wherever they are written."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis, basis_writer

D = 3
RNG = np.random.default_rng(0)
GAUSSIANS = GaussianBasis(RNG.standard_normal((5, D)), 1.7)
BASES = {
    "gaussian": GAUSSIANS,
    "linear": LinearBasis(D),
    "fourier": FourierBasis(RNG.standard_normal((D, 4)), RNG.uniform(0.0, 6.0, 4)),
    "smooth": StackedBasis(LinearBasis(D), GAUSSIANS),
    "nested": StackedBasis(GAUSSIANS, StackedBasis(LinearBasis(D), GAUSSIANS)),
}
SCALING = Scaling(np.array([1.0, -50.0, 0.0]), np.array([2.0, 10.0, 0.3]))


def draw(n=40):
    rng = np.random.default_rng(1)
    return SCALING.mean + SCALING.scale * rng.standard_normal((n, D))


def test_a_scaled_basis_is_scaling_and_then_the_basis():
    """Values are of size one and exponents below fifty, so that they agree to 50 eps and some."""
    for name in BASES:
        basis, X = BASES[name], draw()
        scaled = ScaledBasis(basis, SCALING)
        assert (scaled.size, scaled.n_features) == (basis.size, D)
        assert_allclose(scaled(X), basis(SCALING(X)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", BASES)
def test_values_are_written_chunk_by_chunk_into_arrays_that_are_given(name):
    basis, X = BASES[name], draw()
    expected = basis(SCALING(X))
    for given in (ScaledBasis(basis, SCALING), lambda rows: basis(SCALING(rows))):
        found = basis_writer(given, X, basis.size)
        columns, values = (
            np.full((found.width, 40), np.nan),
            np.full((40, basis.size), np.nan),
        )
        found.prepare(X, columns)
        for chunk in (slice(0, 13), slice(13, 40)):
            found.write(columns[:, chunk], values[chunk])
        assert_allclose(values, expected, rtol=0, atol=1e-13)


def test_rows_are_not_changed():
    X = draw()
    X.setflags(write=False)
    before = X.copy()
    ScaledBasis(BASES["smooth"], SCALING)(X)
    assert_array_equal(X, before)


def test_no_gaussian_exceeds_one_however_far_from_the_origin():
    """At the centres themselves distances are all rounding; half of them would be negative."""
    for far in (0.0, 1e3, 1e6):
        for d in (1, 3, 200):
            rng = np.random.default_rng(d)
            centers = rng.standard_normal((60, d)) + far
            values = GaussianBasis(centers, 0.5)(centers)
            assert values.max() <= 1.0
            # Twice the bound on the rounding of the product: (d + 2) eps of both squares, and
            # the margin.
            square = np.sum(((centers - centers.mean(axis=0)) / 0.5) ** 2, axis=1)
            rounding = 8.0 * (d + 2) * np.finfo(float).eps * square
            # Centres far out are themselves rounded when the origin moves among them.
            moved = 4.0 * far * np.finfo(float).eps * np.sqrt(d) * np.sqrt(square) / 0.5
            assert np.all(1.0 - np.diag(values) <= rounding + moved)


def test_gaussians_are_those_of_the_distances():
    X = draw()
    values = ScaledBasis(GAUSSIANS, SCALING)(X)
    distance = cdist(SCALING(X), GAUSSIANS.centers)
    assert_allclose(values, np.exp(-((distance / 1.7) ** 2)), rtol=0, atol=1e-13)


def test_a_row_at_the_end_of_all_numbers_is_far_from_every_centre():
    assert_array_equal(GAUSSIANS(np.full((2, D), 1e200)), np.zeros((2, 5)))
