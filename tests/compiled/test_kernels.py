"""The extension: textbook formulas at every level, and refusals where it would read astray."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import unjoined._compiled as compiled
from unjoined._compiled import MeanArrays, gaussian_kernel

EPS = float(np.finfo(np.float64).eps)
QUICK = settings(max_examples=40, deadline=None)
LEVELS = list(range(1, 1 + compiled.level())) if compiled.extension() else []
needs_extension = pytest.mark.skipif(not LEVELS, reason="no compiled arithmetic here")
SEEDS, ANY_LEVEL = st.integers(0, 2**32 - 1), st.sampled_from(LEVELS or [0])
SIZES = st.tuples(
    st.sampled_from([1, 2, 7, 8, 9, 64]),
    st.sampled_from([16, 17, 23, 24, 31, 32, 100]),
    st.sampled_from([0, 1, 3, 4, 5, 30, 97, 200]),
    st.booleans(),
)
KERNELS = Path(compiled.__file__).parent / "kernels.c"


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
    kernel = replace(gaussian_kernel(shift, factor / width, product, affine), level=level)

    def textbook(X):
        scaled = (X - shift) * factor
        distance = ((scaled[:, None, :] - centers) ** 2).sum(axis=2)
        values = np.exp(-distance / width**2)
        ones = np.ones((len(X), 1))
        return np.hstack([ones, scaled + affine[1], values]) if linear else values

    return kernel, textbook


def values(kernel, X):
    out = np.full((len(X), kernel.p), np.nan)
    kernel.combine(X, None, np.eye(kernel.p), out)
    return out


@needs_extension
@pytest.mark.parametrize("level", LEVELS)
def test_exponentials_are_right_to_two_units_in_the_last_place(level):
    """The product hands the feature itself to the exponential."""
    product = np.vstack([np.ones(16), np.zeros((2, 16))])
    kernel = replace(gaussian_kernel(np.zeros(1), np.ones(1), product, None), level=level)
    x = np.concatenate(
        [
            -np.logspace(-300, np.log10(707.9), 3000),
            -np.linspace(0.0, 707.9, 10_001),
            -np.log(2.0) * (np.arange(1000) + 0.5),  # where rounding to whole numbers turns
        ]
    )
    exact = np.exp(x.astype(np.longdouble))
    assert np.abs(values(kernel, x[:, None]).T / exact - 1.0).max() <= 2.0 * EPS
    beyond = -np.array([708.1, 745.0, 1e4, 1e18, 1e150])
    assert_array_equal(values(kernel, beyond[:, None]), 0.0)


@needs_extension
@QUICK
@given(SEEDS, SIZES, st.integers(1, 8), ANY_LEVEL)
def test_combinations_are_products_with_the_values_of_the_formula(seed, size, r, level):
    d, g, n, linear = size
    kernel, textbook = make(d, g, level, seed, linear=linear)
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, d)), rng.standard_normal((r, kernel.p))
    # Exponents cancel |z|^2 and |c|^2, of some ten each at the most, to rounding.
    assert_allclose(values(kernel, X), textbook(X), rtol=0, atol=1e-12)
    expected = textbook(X) @ coef.T
    at = rng.integers(0, n, 5)[::-2] if n else np.arange(0)
    out = np.full((len(at), r), np.nan)
    kernel.combine(X, at, coef, out)
    assert_allclose(out, expected[at], rtol=0, atol=1e-11)
    one = np.full(n, np.nan)
    kernel.combine(X, None, coef[:1], one)
    assert_allclose(one, expected[:, 0], rtol=0, atol=1e-11)


@needs_extension
@pytest.mark.parametrize("level", LEVELS)
def test_rows_beyond_the_range_of_numbers_have_no_values_and_what_is_none_stays_that(level):
    kernel, _ = make(2, 16, level, 0, linear=False)
    far = np.array([[1e200, 0.0], [-1e160, 1e180]])
    assert_array_equal(values(kernel, far), 0.0)
    found = values(kernel, np.array([[0.0, np.nan], [0.0, 0.0]]))
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def draw_rows(rng, n, d, *, weighted):
    X, at = rng.standard_normal((n + 5, d)), np.sort(rng.permutation(n + 5)[:n])
    label = np.where(rng.random(n + 5) < 0.5, -1.0, 1.0)
    return X, at, label, rng.uniform(0.5, 2.0, n + 5) if weighted else None


def assert_lower(found, expected):
    scale = max(1.0, float(np.abs(expected).max()))
    assert_allclose(found, np.tril(expected), rtol=0, atol=1e-12 * scale)


@needs_extension
@QUICK
@given(
    SEEDS,
    SIZES,
    st.booleans(),
    st.sampled_from(["unit", "real", "one mean", "two means", "no slope"]),
    ANY_LEVEL,
)
def test_sums_are_those_of_the_formula(seed, size, weighted, labels, level):
    d, g, n, linear = size
    kernel, textbook = make(d, g, level, seed, linear=linear)
    p, rng, means = kernel.p, np.random.default_rng(seed), MeanArrays()
    X, at, label, weight = draw_rows(rng, n, d, weighted=weighted)
    if labels == "real":
        label = label * rng.random(len(label))
    elif labels != "unit":
        r = 1 if labels == "one mean" else 2
        slope = None if labels == "no slope" else 0.1 * rng.standard_normal((r, d))
        coef = 0.1 * rng.standard_normal((r, p))
        means = MeanArrays(coef, slope, 0.1 * rng.standard_normal(r), 0.2)
    basis_sum, gram, cross = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    rows = (X, at, label, weight)
    total, unit = kernel.add_up(rows, (basis_sum, gram, cross), means)
    phi, r, label = textbook(X[at]), np.ones(n) if weight is None else weight[at], label[at]
    if means.coef is not None:
        mean = phi @ means.coef.T + means.offset
        mean += 0.0 if means.slope is None else X[at] @ means.slope.T
        label = label - np.clip(mean, -0.2, 0.2).mean(axis=1)
    assert_allclose(total, r.sum(), rtol=1e-12)
    assert unit == (labels == "unit" or (labels == "real" and n == 0))
    assert_allclose(basis_sum, phi.T @ (r * label), rtol=0, atol=1e-11)
    assert_lower(gram, (phi * r[:, None]).T @ phi)
    expected = (phi * (r * np.abs(label))[:, None]).T @ phi
    assert_lower(cross, np.zeros((p, p)) if unit else expected)
    alone = np.zeros((p, p))
    kernel.add_up(rows, (basis_sum, alone, None), means)
    assert_array_equal(alone, gram)


def test_too_few_functions_or_too_many_features_are_left_to_numpy():
    def kernel(d, g):
        return gaussian_kernel(np.zeros(d), np.ones(d), np.zeros((d + 2, g)), None)

    assert (kernel(64, 16) is None) == (not LEVELS)
    assert kernel(65, 16) is None
    assert kernel(64, 15) is None


D, G, N, P = 3, 20, 30, 24


def arguments():
    """Return what either function takes, by name."""
    rng = np.random.default_rng(0)
    return {
        "shift": np.zeros(D),
        "factor": np.ones(D),
        "product": np.zeros((D + 2, G)),
        "origin": np.zeros(D),
        "X": rng.random((N, D)),
        "at": np.arange(N),
        "label": np.ones(N),
        "weight": np.ones(N),
        "coef": np.zeros((2, P)),
        "slope": np.zeros((2, D)),
        "offset": np.zeros(2),
        "label_basis": np.zeros(P),
        "gram": np.zeros((P, P)),
        "label_cross": np.zeros((P, P)),
        "out": np.zeros((N, 2)),
    }


def call(a):
    """Call both functions, by way of nothing that would check before they do."""
    basis = (a["shift"], a["factor"], a["product"], 1.0, a["origin"])
    extension, level = compiled.extension(), LEVELS[-1]
    rows, means = (a["X"], a["at"], a["label"], a["weight"]), (a["coef"], a["slope"], a["offset"])
    sums = (a["label_basis"], a["gram"], a["label_cross"])
    extension.add_up(level, basis, rows, (*means, 1.0), sums)
    extension.combine(level, basis, a["X"], a["at"], a["coef"], a["out"])


@needs_extension
@pytest.mark.parametrize("name", arguments())
def test_an_array_of_another_shape_type_or_order_is_refused(name):
    given = arguments()
    call(given)
    value = given[name]
    unaligned = np.zeros(value.nbytes + 1, dtype=np.uint8)[1:].view(value.dtype)
    lies = [
        value[:-1],
        np.concatenate([value, value[:1]]),
        value.astype(value.dtype.newbyteorder()),
        np.zeros_like(value, np.float32 if value.dtype == np.float64 else np.int32),
        np.zeros_like(value, np.int64 if value.dtype == np.float64 else np.float64),
        np.repeat(value, 2, axis=-1)[..., ::2],
        value.reshape(1, *value.shape),
        unaligned.reshape(value.shape),
        np.zeros((0, *value.shape[1:])),
        "text",
        3.0,
    ]
    if name in ("label_basis", "gram", "label_cross", "out"):
        fixed = value.copy()
        fixed.flags.writeable = False
        lies.append(fixed)
    for lie in lies:
        with pytest.raises((TypeError, ValueError)):
            call(given | {name: lie})


@needs_extension
@pytest.mark.parametrize("at", [N, -1, 2**62])
def test_positions_of_no_row_are_refused(at):
    with pytest.raises(ValueError, match="positions must be those of rows"):
        call(arguments() | {"at": np.array([0, at])})


@needs_extension
def test_a_basis_beyond_the_limits_and_a_level_that_is_none_are_refused():
    d = 65
    wide = {"shift": np.zeros(d), "factor": np.ones(d), "origin": None, "X": np.zeros((N, d))}
    for lie in (wide | {"product": np.zeros((d + 2, G))}, {"product": np.zeros((D + 2, 15))}):
        with pytest.raises(ValueError, match="1 to 64 features and 16 to 100,000 Gaussians"):
            call(arguments() | lie)
    for level in (0, LEVELS[-1] + 1):
        kernel = replace(make(2, 16, 1, 0, linear=False)[0], level=level)
        with pytest.raises(ValueError, match="no such level"):
            values(kernel, np.zeros((3, 2)))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_it_compiles_without_a_warning_and_was_built():
    """An install goes on without it if it does not."""
    include = sysconfig.get_path("include")
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}", KERNELS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert list(KERNELS.parent.glob("_rows.*"))


FIT = """
import numpy as np
from unjoined import MinMaxUplift
from unjoined.data import paper_problem
from unjoined._compiled import arithmetic

model = MinMaxUplift(n_centers=20, random_state=0).fit(**paper_problem().draw(300, random_state=0))
uplift = model.predict(np.ones((3, 2)) * np.arange(3)[:, None])
"""


def test_a_fit_without_it_is_the_same_but_for_rounding():
    here = {}
    exec(FIT, here)  # noqa: S102 - written above
    done = subprocess.run(
        [sys.executable, "-c", f"{FIT}print(arithmetic(), *uplift, sep=',')"],
        env=os.environ | {"UNJOINED_COMPILED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    name, *without = done.stdout.split(",")
    assert name == "numpy only"
    assert here["uplift"] == pytest.approx(np.array(without, dtype=float), abs=1e-8)


def test_an_extension_that_is_missing_or_of_no_use_leaves_the_work_to_numpy(monkeypatch):
    monkeypatch.delenv("UNJOINED_COMPILED", raising=False)
    load = compiled.extension.__wrapped__

    def missing(name):
        raise ImportError(name)

    class Useless:
        level = staticmethod(lambda: 0)

    for module in (missing, lambda name: Useless):
        monkeypatch.setattr(compiled, "import_module", module)
        assert load() is None
    monkeypatch.setattr(compiled, "extension", lambda: None)
    assert compiled.arithmetic() == "numpy only"
    assert gaussian_kernel(np.zeros(3), np.ones(3), np.zeros((5, 20)), None) is None


@pytest.mark.parametrize(("wanted", "name"), [("0", "numpy only"), ("1", compiled.arithmetic())])
def test_module_runs_and_knows_its_version_and_what_does_its_arithmetic(wanted, name):
    done = subprocess.run(
        [sys.executable, "-m", "unjoined", "--version"],
        env=os.environ | {"UNJOINED_COMPILED": wanted},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"0.1.0 ({name})"
