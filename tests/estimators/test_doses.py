"""Doses: what one unit more does, and which doses the answer averages."""

import numpy as np
import pytest

from unjoined import MinMaxUplift, SeparateLabels, Uplift
from unjoined.errors import InputError, LabelError
from unjoined.evaluate import diagnose, evaluate_uplift, plan_study
from unjoined.targeting import learn_rule

pytestmark = pytest.mark.usefixtures("two_folds")

N = 1200


def draw(response, n=N, seed=0, law="poisson"):
    """Tables of two populations, one of which gets more."""
    rng = np.random.default_rng(seed)
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    for kind in ("outcome", "treatment"):
        for k in (0, 1):
            X = rng.normal(size=(n, 2))
            if law == "poisson":
                rate = np.exp((0.9 + 0.2 * X[:, 0], 0.1 - 0.1 * X[:, 0])[k])
                dose = rng.poisson(rate) * 1.0
            else:  # one population gets more of the small and of the large ones
                dose = rng.choice([(0.0, 6.0), (2.0, 3.0)][k], n)
            y = X[:, 1] + np.sin(X[:, 0]) + response(dose, X) + rng.normal(size=n)
            gone = np.full(n, np.nan)
            parts["X"].append(X)
            parts["y"].append(y if kind == "outcome" else gone)
            parts["treatment"].append(gone if kind == "outcome" else dose)
            parts["population"].append(np.repeat("AB"[k], n))
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def linear(dose, X):
    return dose * (0.3 + 0.2 * X[:, 0])


@pytest.fixture(scope="module")
def columns():
    return draw(linear)


@pytest.fixture(scope="module")
def data(columns):
    return SeparateLabels(**columns, dose=True)


@pytest.fixture(scope="module")
def model(data):
    return Uplift(random_state=0).fit(data)


def test_uplift_is_what_one_unit_does(data, model):
    X = np.random.default_rng(9).normal(size=(2000, 2))
    slope = np.polyfit(0.3 + 0.2 * X[:, 0], model.predict(X), 1)[0]
    # The slope's error is about that of the trend in the dose's effect, .04 / .2.
    assert abs(slope - 1.0) < 0.6
    people = X[:, 0]
    gap = np.exp(0.9 + 0.2 * people) - np.exp(0.1 - 0.1 * people)
    omega = np.minimum(1.0, (gap / (0.2 * data.checked.dose)) ** 2)
    truth = np.average(0.3 + 0.2 * people, weights=omega)
    assert model.average_effect_.covers(truth, 0.999)
    assert model.average_effect_.standard_error < 0.1
    treated, untreated = model.predict_outcomes(X)
    np.testing.assert_allclose(treated - untreated, model.predict(X), atol=1e-12)
    base = X[:, 1] + np.sin(X[:, 0])
    assert np.corrcoef(untreated, base)[0, 1] > 0.8


def test_other_units_of_the_dose_change_nothing_but_the_units(columns, data, model):
    cents = SeparateLabels(
        **columns | {"treatment": 100 * columns["treatment"]}, dose=True
    )
    other = Uplift(random_state=0).fit(cents)
    X = np.random.default_rng(9).normal(size=(50, 2))
    np.testing.assert_allclose(100.0 * other.predict(X), model.predict(X), rtol=1e-6)
    assert 100.0 * other.average_effect_.value == pytest.approx(
        model.average_effect_.value, rel=1e-6
    )
    assert other.identification_.strength == pytest.approx(
        model.identification_.strength, rel=1e-6
    )
    assert np.allclose(other.dose_weights_, model.dose_weights_ * [100.0, 100.0, 1.0])
    own, of_cents = (
        evaluate_uplift(
            lambda X, u=unit: (0.3 + 0.2 * X[:, 0]) / u, each, random_state=0
        )
        for unit, each in ((1.0, data), (100.0, cents))
    )
    assert 100.0 * of_cents.average.value == pytest.approx(own.average.value, rel=1e-6)
    assert 100.0 * of_cents.auuc.value == pytest.approx(own.auuc.value, rel=1e-6)


def test_the_average_weighs_slopes_by_how_far_doses_differ():
    """The weights are the difference of the two laws of the dose, and the average follows."""
    columns = draw(lambda dose, X: np.log1p(dose), n=4000)
    data = SeparateLabels(**columns, dose=True)
    model = Uplift(random_state=0).fit(data)
    start, end, weight = model.dose_weights_.T
    dose, name = (columns[c][2 * 4000 :] for c in ("treatment", "population"))
    above = [(dose[name == k][:, None] > start).mean(axis=0) for k in "AB"]
    plain = (above[0] - above[1]) * (end - start)
    np.testing.assert_allclose(weight, plain / plain.sum(), atol=0.03)
    slopes = (np.log1p(end) - np.log1p(start)) / (end - start)
    assert model.average_effect_.covers(float(weight @ slopes), 0.999)
    assert model.average_effect_.standard_error < 0.06
    assert "averaged over doses from 0 to" in model.summary()


def test_doses_that_cross_are_named():
    data = SeparateLabels(**draw(linear, law="crossing"), dose=True)
    words = Uplift(random_state=0).fit(data).summary()
    assert "Doses cross" in words
    assert "weights are negative" in words


def test_gaps_are_said_in_standard_deviations_of_the_dose(data, model):
    assert "mean dose 2" in str(data)
    assert "standard deviations of the dose" in model.summary()
    assert "for each unit of dose" in model.summary()
    words = str(diagnose(data, crossfit=model.crossfit_))
    assert "the mean dose (in its standard deviations) differs by" in words
    assert "chance" not in words


def test_a_known_mean_dose_stands_for_a_treatment_table(columns):
    X = columns["X"]
    known = np.exp(
        np.where(columns["population"] == "A", 0.9 + 0.2 * X[:, 0], 0.1 - 0.1 * X[:, 0])
    )
    at = ~np.isnan(columns["y"])
    own = {name: column[at] for name, column in columns.items()}
    data = SeparateLabels(**own, policy=known[at], dose=True)
    model = Uplift(random_state=0).fit(data)
    assert model.average_effect_.covers(0.33, 0.999)
    assert model.average_effect_.standard_error < 0.1


def test_what_cannot_be_done_with_doses_is_said(columns, data, tmp_path):
    with pytest.raises(LabelError, match=r"got 0.0, 1.0.*say dose=True \(--dose\)"):
        SeparateLabels(**columns)
    flat = np.where(np.isnan(columns["treatment"]), np.nan, 3.0)
    with pytest.raises(LabelError, match="the dose is 3 in all 2400 rows"):
        SeparateLabels(**columns | {"treatment": flat}, dose=True)
    with pytest.raises(InputError, match="dose was given with rows that are streamed"):
        SeparateLabels(**columns, dose=True, stream=True)
    with pytest.raises(InputError, match="Uplift takes doses"):
        MinMaxUplift().fit(data)
    with pytest.raises(InputError, match="Doses need 'mean'"):
        Uplift(family="gaussian").fit(data)
    with pytest.raises(InputError, match="these rows have doses"):
        plan_study(data, half_width=0.1)


def test_tables_may_hold_doses_as_text(columns):
    import pandas as pd

    table = pd.DataFrame(columns["X"], columns=["age", "income"]).assign(
        spent=columns["y"], mails=columns["treatment"], place=columns["population"]
    )
    outcomes = table[table["spent"].notna()].drop(columns="mails")
    treatments = table[table["mails"].notna()].drop(columns="spent")
    options = {
        "outcome": "spent",
        "treatment": "mails",
        "population": "place",
        "dose": True,
    }
    plain = SeparateLabels.from_tables(outcomes, treatments, **options)
    words = treatments.assign(mails=treatments["mails"].map("{:g}".format))
    text = SeparateLabels.from_tables(outcomes, words, **options)
    assert str(plain) == str(text)
    kept = plain.take(np.arange(plain.n_rows))
    assert kept.checked.dose == plain.checked.dose == text.checked.dose


def test_hidden_differences_are_in_units_of_the_outcome(columns, data, model):
    """They are the same whether doses are counted in mails or in hundreds."""
    cents = SeparateLabels(
        **columns | {"treatment": 100 * columns["treatment"]}, dose=True
    )
    other = Uplift(random_state=0).fit(cents)
    own, of_cents = (each.gain_.claim() for each in (model, other))
    assert own.breakdown() == pytest.approx(of_cents.breakdown(), rel=1e-6)
    # With a gap of g mails everywhere, a difference of delta moves the effect by about delta / g.
    gap = np.exp(0.9 + 0.02) - np.exp(0.1 + 0.005)
    assert own.breakdown() == pytest.approx(model.average_effect_.value * gap, rel=0.3)
    found = [
        diagnose(d, crossfit=m.crossfit_).sensitivity
        for d, m in ((data, model), (cents, other))
    ]
    assert found[0].sigma == pytest.approx(found[1].sigma, rel=1e-6)
    for one, two in zip(found[0].benchmarks, found[1].benchmarks, strict=True):
        assert one.delta == pytest.approx(two.delta, rel=1e-6)
        assert one.moves == pytest.approx(100.0 * two.moves, rel=1e-6)


def test_a_rule_for_amounts_is_about_one_unit_more(data):
    rule = learn_rule(Uplift(random_state=0).fit(data), data, random_state=0)
    words = " ".join(rule.sentences())
    assert "one unit more to" in words.lower()
    assert "Treat " not in words
