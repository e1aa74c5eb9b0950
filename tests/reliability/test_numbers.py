"""Scales, shifts, copies and ridges far out: the same uplift, or an error that says so."""

import warnings

import exact_sums
import numpy as np
import pytest

from unjoined import MinMaxUplift, SeparateLabels, Uplift
from unjoined.data import SimulatedProblem
from unjoined.errors import InputError, UnjoinedWarning

pytestmark = pytest.mark.usefixtures("two_folds")


def mean(X, treated):
    return X[:, 1] + treated * (0.5 + X[:, 0])


PROBLEM = SimulatedProblem(
    features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 2)),
    policies={"a": lambda X: np.full(len(X), 0.8), "b": lambda X: np.full(len(X), 0.2)},
    outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
    outcome_mean=mean,
)
DATA = dict(PROBLEM.draw(300, random_state=0))
NEW = np.random.default_rng(1).uniform(-1.0, 1.0, (100, 2))
MODELS = {
    "MinMaxUplift": lambda: MinMaxUplift(n_centers=12, n_jobs=1, random_state=0),
    # Nothing is chosen by groups, which go by the bits of the rows and so by their units.
    "chunks": lambda: MinMaxUplift(
        basis="linear", center=False, ridge_f=1e-2, ridge_g=1e-2, random_state=0
    ),
    "Uplift": lambda: Uplift(n_jobs=1, random_state=0),
}
# What is done to the features, and how far the uplift may move: by rounding, magnified.
CHANGES = {
    "scaled by 1e-8": (lambda X: 1e-8 * X, 1e-6),
    "scaled by 1e8": (lambda X: 1e8 * X, 1e-6),
    "one scaled by 1e8, one by 1e-8": (lambda X: X * [1e8, 1e-8], 1e-6),
    "shifted by 1e6": (lambda X: X + 1e6, 1e-4),
}


def fitted(name, X, y=None):
    model = MODELS[name]()
    data = {**DATA, "X": X, "y": DATA["y"] if y is None else y}
    return model.fit(SeparateLabels(**data, stream=name == "chunks"))


@pytest.fixture(scope="module")
def plain():
    return {name: fitted(name, DATA["X"]).predict(NEW) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("change", CHANGES)
def test_units_and_origins_of_features_change_nothing(plain, name, change):
    move, tolerance = CHANGES[change]
    found = fitted(name, move(DATA["X"])).predict(move(NEW))
    assert np.abs(found - plain[name]).max() <= tolerance * np.abs(plain[name]).max()


@pytest.mark.parametrize("name", ["MinMaxUplift", "Uplift"])
def test_an_outcome_of_offset_1e9_is_the_same_to_its_digits(plain, name):
    """Sixteen digits less nine leave seven for the outcome, of which the fit loses some."""
    y = np.where(~np.isnan(DATA["y"]), DATA["y"] + 1e9, DATA["y"])
    found = fitted(name, DATA["X"], y).predict(NEW)
    assert np.abs(found - plain[name]).max() <= 1e-3 * np.abs(plain[name]).max()


def test_a_feature_given_twice_or_as_a_sum_is_no_trouble(plain):
    """Another metric between people, so that the fit moves; it stays a fit of the same uplift."""
    for name in ("MinMaxUplift", "Uplift"):
        for copy in (lambda X: X[:, :1], lambda X: X.sum(axis=1, keepdims=True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnjoinedWarning)
                model = fitted(name, np.hstack([DATA["X"], copy(DATA["X"])]))
            found, truth = model.predict(np.hstack([NEW, copy(NEW)])), 0.5 + NEW[:, 0]
            before = np.sqrt(np.mean((plain[name] - truth) ** 2))
            assert np.sqrt(np.mean((found - truth) ** 2)) <= 2.0 * before + 0.1


def test_sums_of_a_million_rows_are_those_of_exact_arithmetic():
    """Of a hundred million rows the error is 4 units of 2^-53 (`benchmarks/exact_sums.py`)."""
    assert 0.0 < exact_sums.study(1) < 8.0 * 2.0**-53


@pytest.mark.parametrize("ridge", [1e-12, 1e-9, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("basis", ["linear", "gaussian"])
def test_any_ridge_solves_or_is_refused(ridge, basis):
    """A finite uplift, shrunk to nothing by a huge ridge, or an error that names the ridge."""
    model = MinMaxUplift(
        basis=basis, n_centers=12, ridge_f=ridge, ridge_g=ridge, random_state=0
    )
    try:
        model.fit(**DATA)
    except InputError as error:
        assert "ridge_g" in str(error)  # noqa: PT017
        assert ridge <= 1e-9
        return
    found = model.predict(NEW)
    assert np.isfinite(found).all()
    if ridge == 1e6:
        assert np.abs(found).max() < 1e-3  # shrunk to nothing
