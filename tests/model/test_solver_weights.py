"""A weight of three is three rows, with every loss, and wherever a spread or a width is taken."""

import numpy as np
import pytest

import unjoined as uj
from unjoined.data.rows import separate_labels

LOSSES = {
    "squared": "squared",
    "absolute": "absolute",
    "huber": "huber",
    "huber-object": uj.paper.HuberLoss(2.0),
    "pinball": uj.paper.PinballLoss(0.3),
    "smooth": uj.paper.SmoothLoss(
        rho=lambda v: v**2 / 2.0,
        conjugate=lambda g: g**2 / 2.0,
        slope=lambda g: g,
        curve=lambda g: np.ones_like(g),
    ),
    "three-player": uj.paper.ThreePlayerLoss(
        conjugate=lambda s, y: (s + y) ** 2 / 2.0,
        biconjugate=lambda g, h: h**2 / 2.0 - g * h,
        slope_g=lambda g, h: -h,
        slope_h=lambda g, h: h - g,
    ),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning"),
    pytest.mark.filterwarnings("ignore:.*as if it had been copied"),  # it was
]
# Shrunk so much that critics reach the bounds of every loss that has some.
FIXED = {
    "center": False,
    "ridge_f": 1.0,
    "ridge_g": 1e-3,
    "n_jobs": 1,
    "random_state": 0,
}


def skewed(n=240):
    """Return tables, and whole weights that are larger where outcomes are."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, 2))
    row = np.arange(n)
    kind = np.where(row // 2 % 2, "outcome", "treatment")
    population = row % 2
    treated = rng.random(n) < np.where(population == 0, 0.85, 0.2)
    y = X[:, 0] + 5.0 * treated + rng.standard_normal(n)
    label = np.where(kind == "outcome", y, treated)
    weight = np.where(np.abs(label) > 2.0, 4, rng.integers(0, 3, n))
    return {"X": X, **separate_labels(label, kind), "population": population}, weight


def repeated(data, weight):
    return {key: np.repeat(column, weight, axis=0) for key, column in data.items()}


def test_the_spread_of_a_loss_ignored_weights():
    for name in LOSSES:
        data, weight = skewed()
        model = uj.MinMaxUplift(basis="linear", loss=LOSSES[name], **FIXED)
        expected = model.fit(**repeated(data, weight)).predict(data["X"])
        spread = None if model.loss_ is None else model.loss_.spread
        found = model.fit(**data, sample_weight=weight).predict(data["X"])
        # Relative duality gaps are 1e-11 at most; errors of predictions go like their root.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        if spread is not None:
            assert model.loss_.spread == pytest.approx(spread, rel=1e-9)


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_mostly_equal_outcomes_have_a_weighted_spread_too(loss):
    data, weight = skewed()
    at = ~np.isnan(data["y"])
    data["y"] = np.where(at & (np.arange(len(at)) % 8 > 2), 0.0, data["y"])
    model = uj.MinMaxUplift(basis="linear", loss=loss, **FIXED)
    expected = model.fit(**repeated(data, weight)).loss_.spread
    assert model.fit(**data, sample_weight=weight).loss_.spread == pytest.approx(
        expected, rel=1e-9
    )


def test_bounds_take_a_weight_for_as_many_rows():
    data, weight = skewed()
    model = uj.MinMaxUplift(basis="linear", bounds=(1.0, 6.0), **FIXED)
    expected = model.fit(**repeated(data, weight)).predict(data["X"])
    found = model.fit(**data, sample_weight=weight).predict(data["X"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_median_distance_between_rows_ignored_weights():
    data, _ = skewed(160)
    # The median is over all pairs of up to 300 rows; each table has the same total weight.
    cell = np.where(~np.isnan(data["y"]), 2, 0) + data["population"]
    weight = np.empty(160, dtype=int)
    for c in range(4):
        by_x = np.flatnonzero(cell == c)[np.argsort(data["X"][cell == c, 0])]
        weight[by_x] = np.repeat([0, 1, 3], [10, 20, 10])
    model = uj.MinMaxUplift(basis="gaussian", n_centers=5, width="median", **FIXED)
    expected = model.fit(**repeated(data, weight)).basis_.width
    found = model.fit(**data, sample_weight=weight).basis_.width
    assert found == pytest.approx(expected, rel=1e-9)


def test_centres_are_drawn_where_the_weight_is():
    data, _ = skewed()
    weight = np.where(data["X"][:, 0] > 0.0, 1.0, 1e-6)
    model = uj.MinMaxUplift(basis="gaussian", n_centers=40, standardize=False, **FIXED)
    centers = model.fit(**data, sample_weight=weight).basis_.centers
    # A row of little weight is drawn with a chance of about 40e-6.
    assert (centers[:, 0] > 0.0).all()
