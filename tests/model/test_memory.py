"""Bases take rows however they lie in memory, and refuse parts that do not fit together."""

import numpy as np
import pytest

from unjoined.errors import InputError
from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.additive_basis import AdditiveBasis
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis

RNG = np.random.default_rng(0)
GAUSSIANS = GaussianBasis(RNG.random((40, 3)), 1.0)
BASES = [
    GAUSSIANS,
    FourierBasis(RNG.random((3, 40)), RNG.random(40)),
    LinearBasis(3),
    StackedBasis(LinearBasis(3), GAUSSIANS),
    AdditiveBasis.of_rows(RNG.random((60, 3)), np.ones(60), with_products=True),
    ScaledBasis(GAUSSIANS, Scaling.identity(3)),
    ScaledBasis(LinearBasis(3), Scaling.identity(3)),
    ScaledBasis(StackedBasis(GAUSSIANS, LinearBasis(3)), Scaling.identity(3)),
]
with_bases = pytest.mark.parametrize(
    "basis", BASES, ids=lambda basis: type(basis).__name__
)


def test_a_basis_takes_rows_however_they_lie_in_memory():
    for basis in BASES:
        X = RNG.random((7, 3))
        wanted = basis(X)
        assert wanted.shape == (7, basis.size)
        wide = np.zeros((14, 6))
        wide[::2, ::2] = X
        read_only = X.copy()
        read_only.flags.writeable = False
        for same in (np.asfortranarray(X), wide[::2, ::2], read_only, X.astype(">f8")):
            np.testing.assert_array_equal(basis(same), wanted)
        single = X.astype(np.float32)
        np.testing.assert_array_equal(basis(single), basis(single.astype(np.float64)))
        assert basis(np.empty((0, 3))).shape == (0, basis.size)


def test_parts_of_a_basis_that_do_not_belong_together_are_refused():
    for make, parts in (
        (GaussianBasis, (np.full((40, 3), np.nan), 1.0)),
        (GaussianBasis, (np.zeros((2, 3)), 0.0)),
        (FourierBasis, (np.zeros((3, 40)), np.zeros(39))),
        (StackedBasis, (LinearBasis(2), GAUSSIANS)),
        (Scaling, (np.zeros(3), np.zeros(3))),
        (ScaledBasis, (GAUSSIANS, Scaling.identity(2))),
    ):
        with pytest.raises(InputError, match=r"must .*got|must .*not"):
            make(*parts)
    with pytest.raises(
        InputError, match=r"rows must have 3 features, shape \(n, 3\), got shape"
    ):
        GAUSSIANS(np.zeros((5, 4)))
