"""Weights for different feature distributions, as a user of the estimator meets them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.naive_bayes import GaussianNB

from unjoined import MinMaxUplift, load_model, save_model
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.errors import InputError, OverlapWarning


def shifted(distance=0.5):
    """Uplift 1 everywhere; a main effect 3 x_0 that a difference in x_0 would be taken for."""
    return SimulatedProblem(
        features={
            "A": lambda n, rng: rng.normal(distance, 1.0, (n, 1)),
            "B": lambda n, rng: rng.normal(-distance, 1.0, (n, 1)),
        },
        target_features=lambda n, rng: rng.normal(0.0, 1.0, (n, 1)),
        policies={"A": lambda X: np.full(len(X), 0.8), "B": lambda X: np.full(len(X), 0.2)},
        outcome=lambda X, treated, rng: 3.0 * X[:, 0] + treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: 3.0 * X[:, 0] + treated,
    )


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("shift", ["classifier", "rulsif", GaussianNB()], ids=str)
def test_weights_remove_a_bias_that_is_visible_without_them(shift):
    """The bias is 3 * 2 * 0.5 / 0.6 = 5 in the mean; after weighting it is sampling noise.

    Ten draws of 4 x 1,500 rows: their mean is within four of its standard errors of the truth,
    or of a tenth of the bias, as ratios are themselves estimated.
    """
    problem = shifted()
    plain, weighted = [], []
    for seed in range(10):
        data = problem.draw(1500, n_target=1500, random_state=seed)
        model = MinMaxUplift(
            basis="linear", ridge_f=1e-2, ridge_g=1e-2, center=False, random_state=0
        )
        plain.append(model.fit(**data).predict([[0.0]])[0])
        weighted.append(model.set_params(shift=shift).fit(**data).predict([[0.0]])[0])
    error = np.std(weighted, ddof=1) / np.sqrt(10)
    assert np.mean(plain) > 4.0
    assert abs(np.mean(weighted) - 1.0) < max(4.0 * error, 0.5)


def test_given_ratios_are_weights():
    data = shifted().draw(4000, random_state=0)
    centre = np.where(data.population == "A", 0.5, -0.5)
    ratio = norm.pdf(data.X[:, 0]) / norm.pdf(data.X[:, 0], loc=centre)
    model = MinMaxUplift(basis="linear").fit(**data, sample_weight=ratio)
    assert abs(model.predict([[0.0]])[0] - 1.0) < 0.5
    assert model.shift_ is None


def test_equal_populations_are_hardly_weighted():
    """Ratios are 1 but for noise, so that hardly a row is lost."""
    data = paper_problem(b=5.0).draw(1000, random_state=0)
    settings = {"width": "median", "ridge_f": 1e-2, "ridge_g": 1e-2, "random_state": 0}
    model = MinMaxUplift(shift="classifier", **settings).fit(**data)
    for cell in model.shift_.cells:
        assert cell.effective_size > 0.97 * cell.n_rows
    plain = MinMaxUplift(**settings).fit(**data)
    close = np.corrcoef(model.predict(data.X), plain.predict(data.X))[0, 1]
    assert close > 0.95


def test_the_report_counts_and_clips():
    data = shifted(0.8).draw(800, n_target=400, random_state=0)
    free = MinMaxUplift(shift="classifier", random_state=0).fit(**data)
    capped = MinMaxUplift(shift="classifier", shift_clip=2.0, random_state=0).fit(**data)
    assert free.shift_.target == "target rows"
    assert sum(cell.n_clipped for cell in free.shift_.cells) == 0
    assert sum(cell.n_clipped for cell in capped.shift_.cells) > 0
    for loose, tight in zip(free.shift_.cells, capped.shift_.cells, strict=True):
        assert tight.effective_size > loose.effective_size


def test_same_seed_same_bits_and_saving_keeps_the_report(tmp_path):
    data = shifted().draw(300, random_state=0)
    first, second = (
        MinMaxUplift(shift="rulsif", n_centers=20, random_state=1).fit(**data) for _ in range(2)
    )
    assert_array_equal(first.coef_, second.coef_)
    loaded = load_model(save_model(first, tmp_path / "m.skops"))
    assert loaded.shift_ == first.shift_
    assert_allclose(loaded.predict(data.X), first.predict(data.X))


def test_populations_without_overlap_are_refused_and_nothing_is_fitted():
    data = shifted(40.0).draw(200, random_state=0)
    model = MinMaxUplift(shift="classifier", random_state=0)
    with pytest.raises(InputError, match="no overlap"):
        model.fit(**data)
    assert not hasattr(model, "coef_")


def test_little_overlap_warns_at_the_call():
    data = shifted(2.5).draw(500, n_target=300, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MinMaxUplift(basis="linear", shift="classifier", random_state=0).fit(**data)
    overlap = [w for w in caught if w.category is OverlapWarning]
    assert overlap
    assert overlap[0].filename == __file__


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shift": "magic"}, "shift must be one of 'classifier', 'rulsif', got 'magic'"),
        ({"shift": "classifier", "shift_clip": 0.5}, "shift_clip must be"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    data = shifted().draw(100, random_state=0)
    with pytest.raises(InputError, match=message):
        MinMaxUplift(**parameters).fit(**data)
