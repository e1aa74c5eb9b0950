"""Shapes that disagree are refused by bases, sums and compiled code, never read past their end."""

import numpy as np
import pytest

from unjoined._compiled.kernels import (
    MeanArrays,
    PolicyArrays,
    RowArrays,
    SumArrays,
    gaussian_kernel,
    label_kernel,
    ridge_paths,
)
from unjoined.basis import (
    AdditiveBasis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    Scaling,
    StackedBasis,
)
from unjoined.basis.functions import ScaledBasis
from unjoined.data import LabelledRows, label_rows
from unjoined.errors import InputError
from unjoined.sums import accumulate
from unjoined.sums.add_up import combine

RNG = np.random.default_rng(0)
GAUSSIANS = GaussianBasis(RNG.random((40, 3)), 1.0)
BASES = [
    GAUSSIANS,
    FourierBasis(RNG.random((3, 40)), RNG.random(40)),
    LinearBasis(3),
    StackedBasis(LinearBasis(3), GAUSSIANS),
    AdditiveBasis.of_rows(RNG.random((60, 3)), np.ones(60), with_pairs=True),
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


# --- every entry of compiled code, called with arrays that are not what it reads --------------

D, G, N = 3, 20, 30
needs_library = pytest.mark.skipif(
    gaussian_kernel(np.zeros(D), np.ones(D), np.zeros((D + 2, G)), None) is None,
    reason="no compiled arithmetic for this machine",
)


def kernel():
    return gaussian_kernel(np.zeros(D), np.ones(D), np.zeros((D + 2, G)), (1.0, np.zeros(D)))


@needs_library
@pytest.mark.parametrize(
    "lie",
    [
        (np.zeros(D), np.ones(D + 1), np.zeros((D + 2, G)), None),
        (np.zeros(D), np.ones(D), np.zeros((D + 1, G)), None),
        (np.zeros(D), np.ones(D), np.zeros((D + 2, G)), (1.0, np.zeros(D - 1))),
        (np.zeros((D, 1)), np.ones(D), np.zeros((D + 2, G)), None),
    ],
)
def test_a_kernel_of_parts_that_disagree_is_not_made(lie):
    with pytest.raises(InputError, match="compiled arithmetic takes"):
        gaussian_kernel(*lie)


def changed(value: np.ndarray) -> list[np.ndarray]:
    """Return arrays that a kernel must not take in place of another."""
    return [
        value[:-1],
        np.concatenate([value, value[:1]]),
        value.astype(value.dtype.newbyteorder()),
        np.zeros_like(value, np.float32 if value.dtype == np.float64 else np.int32),
        np.repeat(value, 2, axis=-1)[..., ::2],
        value.reshape(1, *value.shape),
    ]


def sum_arguments():
    k = kernel()
    s, q = k.stride, k.design_stride
    return k, {
        "X": RNG.random((N, D)),
        "at": np.arange(N),
        "label": np.ones(N),
        "weight": np.ones(N),
        "coef": np.zeros((2, k.p)),
        "slope": np.zeros((2, D)),
        "offset": np.zeros(2),
        "label_basis": np.zeros(k.p),
        "gram": np.zeros((s, s)),
        "label_cross": np.zeros((s, s)),
        "shift": np.zeros(D),
        "factor": np.ones(D),
        "treatment": np.ones(N),
        "policy_gram": np.zeros((q, q)),
        "square": np.zeros((q, q)),
        "room": np.zeros(k.room),
    }


def add_up(k, a):
    return k.add_up(
        RowArrays(a["X"], a["at"], a["label"], a["weight"]),
        MeanArrays(a["coef"], a["slope"], a["offset"], 1.0),
        SumArrays(a["label_basis"], a["gram"], a["label_cross"]),
        PolicyArrays(a["shift"], a["factor"], a["treatment"], a["policy_gram"], a["square"]),
        a["room"],
    )


@needs_library
@pytest.mark.parametrize("name", sum_arguments()[1] if kernel() else [])
def test_compiled_sums_refuse_an_array_of_another_shape_or_type(name):
    k, arguments = sum_arguments()
    assert add_up(k, arguments)[0] == N
    lies = changed(arguments[name])
    if name == "at":
        lies = lies[2:]  # fewer positions are as good, and a row may count twice
    for lie in lies:
        with pytest.raises(InputError, match=r"compiled arithmetic takes|positions must be"):
            add_up(k, arguments | {name: lie})
    for at in (np.array([N]), np.array([-1])):
        with pytest.raises(InputError, match="positions must be from 0 to 29"):
            add_up(k, arguments | {"at": at})


@needs_library
def test_compiled_values_and_combinations_refuse_other_arrays():
    k = kernel()
    X, out, coef, column = RNG.random((N, D)), np.empty((N, k.p)), np.ones((1, k.p)), np.empty(N)
    for lie in changed(X):
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            k.values(lie, out)
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            k.combine(lie, None, coef, column)
    for lie in changed(out):
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            k.values(X, lie)
    for lie in changed(coef)[2:]:
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            k.combine(X, None, lie, column)
    for lie in changed(column):
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            k.combine(X, None, coef, lie)
    column.flags.writeable = False
    with pytest.raises(InputError, match="writeable"):
        k.combine(X, None, coef, column)


@needs_library
def test_a_compiled_look_at_labels_refuses_other_columns_and_rows():
    y, kind = np.zeros(N), np.full(N, "treatment")
    population = np.arange(N) % 2
    words, names = ("outcome", "treatment"), (0, 1)
    look = label_kernel(y, kind, population, words, names)
    assert look(0, N, np.empty(N, dtype=np.uint8)) is not None
    for start, stop in ((-1, 3), (0, N + 1), (5, 4)):
        with pytest.raises(InputError, match="rows must be from 0 to 30"):
            look(start, stop, np.empty(N, dtype=np.uint8))
    for cell in (np.empty(N - 1, dtype=np.uint8), np.empty(N)):
        with pytest.raises(InputError, match="compiled arithmetic takes cell"):
            look(0, N, cell)
    for columns in ((y[1:], kind, population), (y, kind[1:], population), (y, kind, names)):
        lie = [np.asarray(column) for column in columns]
        with pytest.raises(InputError, match="compiled arithmetic takes"):
            label_kernel(*lie, words, names)


@needs_library
def test_compiled_ridges_refuse_shapes_that_disagree():
    with pytest.raises(InputError, match="must be of shapes"):
        ridge_paths(np.zeros((1, 3, 3)), np.zeros((2, 3)), np.ones(4))
    with pytest.raises(InputError, match="must be of shapes"):
        ridge_paths(np.zeros((2, 3, 2)), np.zeros((2, 3)), np.ones(4))
