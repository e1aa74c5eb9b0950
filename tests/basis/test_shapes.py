"""Shapes that disagree are refused by bases and sums."""

import numpy as np
import pytest

from unjoined.basis import (
    AdditiveBasis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
)
from unjoined.data import LabelledRows, label_rows
from unjoined.errors import InputError
from unjoined.sums import accumulate, combine

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
with_bases = pytest.mark.parametrize("basis", BASES, ids=lambda basis: type(basis).__name__)


@with_bases
@pytest.mark.parametrize("shape", [(5, 4), (5, 2), (5, 1), (3,), (5, 3, 1), (0, 4)])
def test_a_basis_refuses_rows_of_another_number_of_features(basis, shape):
    with pytest.raises(InputError, match=r"rows must have 3 features, shape \(n, 3\), got shape"):
        basis(RNG.random(shape))


@with_bases
def test_a_basis_takes_rows_however_they_lie_in_memory(basis):
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


NAN = np.full((40, 3), np.nan)
LIES = {
    "centres in a row": (GaussianBasis, (np.zeros(3), 1.0)),
    "NaN centres": (GaussianBasis, (NAN, 1.0)),
    "words": (GaussianBasis, (np.array([["a"]]), 1.0)),
    "objects": (GaussianBasis, (np.array([[None]]), 1.0)),
    "no array": (GaussianBasis, (None, 1.0)),
    "width 0": (GaussianBasis, (np.zeros((2, 3)), 0.0)),
    "NaN width": (GaussianBasis, (np.zeros((2, 3)), np.nan)),
    "no width": (GaussianBasis, (np.zeros((2, 3)), None)),
    "phases": (FourierBasis, (np.zeros((3, 40)), np.zeros(39))),
    "frequencies": (FourierBasis, (np.zeros(40), np.zeros(40))),
    "half a feature": (LinearBasis, (2.5,)),
    "other features": (StackedBasis, (LinearBasis(2), GAUSSIANS)),
    "no basis": (StackedBasis, (LinearBasis(3), None)),
    "scale 0": (Scaling, (np.zeros(3), np.zeros(3))),
    "scale": (Scaling, (np.zeros(3), np.ones(2))),
    "scale NaN": (Scaling, (np.zeros(3), np.full(3, np.nan))),
    "mean in a table": (Scaling, (np.zeros((3, 3)), np.ones(3))),
    "scaling of others": (ScaledBasis, (GAUSSIANS, Scaling.identity(2))),
    "linear scaling": (ScaledBasis, (LinearBasis(3), Scaling.identity(2))),
    "smooth scaling": (ScaledBasis, (StackedBasis(LinearBasis(3), GAUSSIANS), Scaling.identity(4))),
}


@pytest.mark.parametrize("lie", LIES)
def test_parts_of_a_basis_that_do_not_belong_together_are_refused(lie):
    make, parts = LIES[lie]
    with pytest.raises(InputError, match=r"must .*got|must .*not"):
        make(*parts)


@with_bases
@pytest.mark.parametrize("p", [-1, 1])
def test_coefficients_that_are_not_one_for_each_function_are_refused(basis, p):
    with pytest.raises(InputError, match=f"{basis.size} functions"):
        combine(basis, np.ones(basis.size + p), RNG.random((50, 3)))
    with pytest.raises(InputError, match=f"{basis.size} functions"):
        accumulate(basis, basis.size + p, labelled(3))


@with_bases
def test_sums_and_combinations_of_rows_with_other_features_are_refused(basis):
    with pytest.raises(InputError, match="rows must have 3 features"):
        combine(basis, np.ones(basis.size), RNG.random((50, 4)))
    with pytest.raises(InputError, match="rows must have 3 features"):
        accumulate(basis, basis.size, labelled(4))


def labelled(d: int) -> LabelledRows:
    n = 40
    return label_rows(
        RNG.random((n, d)),
        np.where(np.arange(n) < n // 2, np.arange(n) % 3, np.arange(n) // 2 % 2).astype(float),
        kind=np.repeat(["outcome", "treatment"], n // 2),
        population=np.arange(n) % 2,
    )


@with_bases
@pytest.mark.parametrize("at", [[50], [-1], [2**40]])
def test_positions_beyond_the_rows_are_refused(basis, at):
    with pytest.raises(InputError, match="positions must be from 0 to 49"):
        combine(basis, np.ones(basis.size), RNG.random((50, 3)), at=np.array(at))
