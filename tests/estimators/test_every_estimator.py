"""What every estimator offers: fit(data), a summary, an average, any number of populations."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold

from unjoined import (
    DensityUplift,
    EMUplift,
    MinMaxUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
)
from unjoined.data import SimulatedProblem
from unjoined.errors import InputError

pytestmark = pytest.mark.usefixtures("two_folds")

QUICK = [
    DensityUplift(n_centers=20),
    MinMaxUplift(basis="linear", n_jobs=1, random_state=0),
    PlugInUplift(),
    TwoStageUplift(),
    WeightedUplift(basis="linear", policy_model=LogisticRegression(), random_state=0),
    EMUplift(outcome_model=LogisticRegression(), n_starts=1, random_state=0),
]
NAMES = [type(estimator).__name__ for estimator in QUICK]


def sigmoid(v):
    return 1.0 / (1.0 + np.exp(-v))


def law(shares):
    def mean(X, treated):
        return 0.5 * X[:, 1] + treated * (0.2 + X[:, 0])

    def outcome(X, treated, rng):
        return (
            rng.random(len(X)) < np.clip(0.5 + 0.25 * mean(X, treated), 0.0, 1.0)
        ) * 1.0

    return SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 2)),
        policies={
            name: (lambda X, p=p: np.full(len(X), p)) for name, p in shares.items()
        },
        outcome=outcome,
        outcome_mean=lambda X, treated: 0.5 + 0.25 * mean(X, treated),
    )


TWO, THREE = law({"A": 0.85, "B": 0.15}), law({"A": 0.85, "B": 0.5, "C": 0.15})


@pytest.mark.parametrize("estimator", QUICK, ids=NAMES)
def test_three_populations_average_and_summary(estimator):
    """The mean uplift is 0.05; 600 rows a table tell it to about 0.03."""
    data = THREE.draw(600, random_state=0)
    model = clone(estimator).fit(data)
    same = clone(estimator).fit(**data)
    assert_array_equal(model.predict(data.X), same.predict(data.X))
    assert model.average_effect_ == same.average_effect_
    assert model.average_effect_.covers(0.05, 0.999)
    assert model.populations_ == ["A", "B", "C"]
    average, policies, features, fitted = model.summary().splitlines()
    low, high = model.average_effect_.interval(0.95)
    said = re.search(r"95% interval (\S+) to ([^)]+)\)", average).groups()
    # With as many places as show two digits of the half width.
    assert [float(end) for end in said] == pytest.approx(
        [low, high], abs=(high - low) / 20.0
    )
    assert policies.startswith("The policies differ by about ")
    assert features == "It uses 2 features."
    assert type(model).__name__ in fitted


@pytest.mark.parametrize("estimator", [TwoStageUplift(), QUICK[1]], ids=repr)
def test_three_populations_are_no_worse_than_the_best_two(estimator):
    """Over ten draws; the two that differ most are what one would have kept."""
    error = {"three": 0.0, "two": 0.0}
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (500, 2))
    for seed in range(10):
        data = law({"A": 0.9, "B": 0.8, "C": 0.1}).draw(300, random_state=seed)
        kept = data.population != "B"
        pair = data.take(kept)
        for name, rows in (("three", data), ("two", pair)):
            model = clone(estimator).fit(rows)
            error[name] += np.mean((model.predict(X) - 0.25 * (0.2 + X[:, 0])) ** 2)
    assert error["three"] < error["two"]


def test_wrong_calls_say_what_to_write():
    data = TWO.draw(100, random_state=0)
    with pytest.raises(
        InputError, match=r"fit needs y, treatment, population .*fit\(data\)"
    ):
        TwoStageUplift().fit(data.X)
    with pytest.raises(InputError, match="enable_metadata_routing=True"):
        TwoStageUplift().fit(data.X, data.y)
    with pytest.raises(InputError, match="a data set and other columns as well"):
        TwoStageUplift().fit(data, data.y)
    model = TwoStageUplift().fit(data)
    assert model.score(data) == model.score(**data)


def test_a_grid_search_without_routing_says_to_route():
    data = TWO.draw(100, random_state=0)
    linear, folds = (
        WeightedUplift(basis="linear"),
        KFold(2, shuffle=True, random_state=0),
    )
    search = GridSearchCV(linear, {"ridge": [0.1, 1.0]}, cv=folds, error_score="raise")
    for labels in ({}, {"treatment": data.treatment, "population": data.population}):
        with pytest.raises(ValueError, match="enable_metadata_routing=True"):
            search.fit(data.X, data.y, **labels)


def test_model_uncertainty_is_around_the_prediction_and_shrinks():
    X = np.random.default_rng(1).uniform(-1.0, 1.0, (50, 2))
    for estimator in (Uplift(n_jobs=1, random_state=0), QUICK[1]):
        width = []
        for n in (200, 1800):
            model = clone(estimator).fit(TWO.draw(n, random_state=0))
            low, high = model.predict_interval(X, 0.95)
            assert_allclose((low + high) / 2.0, model.predict(X), atol=1e-12)
            inner = model.predict_interval(X, 0.5)
            assert (inner[1] - inner[0] < high - low).all()
            width.append(np.median(high - low))
        assert width[1] < 0.8 * width[0]


def test_estimators_without_uncertainty_say_so():
    data = TWO.draw(100, random_state=0)
    with pytest.raises(InputError, match="does not know its uncertainty"):
        PlugInUplift().fit(data).predict_interval(data.X)
    with pytest.raises(InputError, match="does not know its uncertainty"):
        MinMaxUplift(ridge_f=1.0, ridge_g=1.0, width=1.0).fit(data).predict_interval(
            data.X
        )
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        Uplift(random_state=0).fit(data).predict_interval(data.X, 95)


def test_the_neural_estimator_takes_three_populations_too():
    pytest.importorskip("torch")
    data = THREE.draw(200, random_state=0)
    model = NeuralMinMaxUplift(max_epochs=2, random_state=0).fit(data)
    assert_allclose(model.contrast_, [1.0, 0.0, -1.0], atol=0.3)
