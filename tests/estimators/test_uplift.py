"""The default estimator: what it chooses, what it says, and that it can be relied on."""

import numpy as np
import pytest
from problems import PROBLEMS
from trials import oracle_share

from unjoined import (
    MinMaxUplift,
    MixtureUplift,
    SeparateLabels,
    Uplift,
    WeightedUplift,
    load_model,
    save_model,
)
from unjoined.data import paper_problem
from unjoined.errors import LabelError
from unjoined.estimators import uplift as _uplift


@pytest.fixture(scope="module")
def data():
    return PROBLEMS["rotated"].draw(500, 0)


@pytest.fixture(scope="module")
def model(data):
    return Uplift(random_state=0).fit(**data)


def test_it_is_the_mixture_unless_another_is_clearly_better(data, model):
    assert model.chosen_ == "mixture"
    assert model.estimator_ is model.mixture_
    same = MixtureUplift(random_state=model.mixture_.random_state).fit(**data)
    np.testing.assert_array_equal(model.predict(data.X), same.predict(data.X))
    assert [row.name for row in model.candidates_] == ["mixture", "weighted", "min-max"]
    mixture = model.candidates_["mixture"]
    assert mixture.chosen
    assert mixture.behind <= 3.0 * mixture.standard_error


def test_another_estimator_takes_over_when_the_mixture_predicts_badly(data, monkeypatch):
    """Held-out uplift of the wrong sign must cost the mixture its place."""
    right = _uplift._refitted
    monkeypatch.setattr(_uplift, "_refitted", lambda *given: -3.0 * right(*given))
    model = Uplift(random_state=0).fit(**data)
    assert model.chosen_ in ("weighted", "min-max")
    assert isinstance(model.estimator_, (WeightedUplift, MinMaxUplift))
    assert type(model.estimator_).__name__ in model.reason_
    assert "standard errors" in model.reason_
    np.testing.assert_array_equal(model.predict(data.X), model.estimator_.predict(data.X))
    treated, untreated = model.predict_outcomes(data.X)
    np.testing.assert_allclose(treated - untreated, model.mixture_.predict(data.X), atol=1e-12)


def test_reason_is_one_sentence_that_says_what_and_how_sure(model):
    assert model.reason_.startswith("Chose the mixture likelihood with a ")
    assert model.reason_.count(". ") == 0
    assert "nats above a constant effect" in model.reason_
    gain = model.heterogeneity_
    assert f"{gain.value:.1f} ± {gain.standard_error:.1f}" in model.reason_
    assert "people clearly respond differently" in model.reason_
    assert gain.value > 3.0 * gain.standard_error


def test_equal_effects_are_not_called_different():
    """With one effect for all on the log-odds, held-out rows cannot favour heterogeneity much."""
    from problems import binary_problem
    from scipy.special import expit

    problem = binary_problem(
        lambda n, rng: rng.standard_normal((n, 2)),
        {"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.1)},
        lambda X, t: X[:, 0] + t,
    )
    model = Uplift(compare=False, random_state=0).fit(**problem.draw(600, random_state=0))
    gain = model.heterogeneity_
    assert gain.value <= 3.0 * gain.standard_error
    assert "clearly respond differently" not in model.reason_
    effect = expit(1.0) - expit(0.0)
    assert model.predict([[0.0, 0.0]])[0] == pytest.approx(effect, abs=0.15)


def test_same_seed_gives_the_same_bits_whatever_the_threads(data, model):
    again = Uplift(n_jobs=1, random_state=0).fit(**data)
    np.testing.assert_array_equal(again.predict(data.X), model.predict(data.X))
    assert again.reason_ == model.reason_
    assert again.candidates_ == model.candidates_


@pytest.mark.slow
def test_large_tables_are_compared_on_a_part_of_their_rows(data, model, monkeypatch):
    monkeypatch.setattr(_uplift, "COMPARED_ROWS", 60)
    few = Uplift(random_state=0).fit(**data)
    np.testing.assert_array_equal(few.predict(data.X), model.predict(data.X))
    assert few.candidates_ != model.candidates_


def test_more_than_two_populations_go_to_the_mixture():
    X = np.random.RandomState(0).standard_normal((900, 2))
    rng = np.random.RandomState(1)
    population = np.resize(["a", "b", "c"], 900)
    kind = np.repeat(["outcome", "treatment"], 450)
    chance = np.select([population == "a", population == "b"], [0.9, 0.5], 0.1)
    treated = rng.random_sample(900) < chance
    y = np.where(kind == "treatment", treated, X[:, 0] + treated * X[:, 1] + rng.normal(size=900))
    data = SeparateLabels(X=X, y=y, kind=kind, population=population)
    model = Uplift(random_state=0).fit(**data)
    assert model.populations_ == ["a", "b", "c"]
    assert model.candidates_ is None
    assert model.chosen_ == "mixture"
    assert "nothing else was compared" in model.reason_
    assert model.reason_.startswith("Chose the mixture mean")
    assert oracle_share(model.predict(X), X[:, 1]) > 0.8
    with pytest.raises(LabelError, match="Uplift or MixtureUplift, which take any number"):
        MinMaxUplift().fit(**data)


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_tiny_tables_are_not_compared():
    model = Uplift(random_state=0).fit(**PROBLEMS["rotated"].draw(25, 0))
    assert model.candidates_ is None


def test_saved_and_loaded_it_predicts_the_same(data, model, tmp_path):
    loaded = load_model(save_model(model, tmp_path / "m.skops"))
    np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))
    assert loaded.reason_ == model.reason_
    assert loaded.candidates_ == model.candidates_


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("b", [0.4, 5.0])
def test_it_ranks_the_papers_data_almost_as_the_truth_does(b):
    problem = paper_problem(b)
    model = Uplift(compare=False, random_state=0).fit(**problem.draw(1000, random_state=0))
    test = problem.draw_joint(20_000, random_state=1)
    estimate = model.predict(test.X)
    assert oracle_share(estimate, test.uplift) > 0.97
    assert np.mean((estimate - test.uplift) ** 2) < 0.1 * np.var(test.uplift)
