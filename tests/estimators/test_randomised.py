"""An offer made at random and taken up by choice: the effect on those who do because of it."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unjoined import SeparateLabels, Uplift
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.evaluate import (
    compare_uplift,
    cross_evaluate,
    diagnose,
    evaluate_uplift,
    plan_study,
)
from unjoined.evaluate.terms import linear_evaluation
from unjoined.export import export_sql

pytestmark = pytest.mark.usefixtures("two_folds")


def offered(n=3000, seed=0, arms=2):
    """Hidden ease decides who takes it up, and goes along with both outcome and effect."""
    rng = np.random.default_rng(seed)
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    effects = []
    for kind in ("outcome", "treatment"):
        for k in range(arms):
            X = rng.normal(size=(n, 2))
            ease = rng.random(n)
            levels = np.linspace(-1.5, 1.5, arms)
            taken = ease < expit(levels[k] + 0.5 * X[:, 0])
            own = 0.15 + 0.3 * ease
            chance = 0.1 + 0.3 * ease + own * taken
            y = (rng.random(n) < chance) * 1.0
            gone = np.full(n, np.nan)
            parts["X"].append(X)
            parts["y"].append(y if kind == "outcome" else gone)
            parts["treatment"].append(gone if kind == "outcome" else taken * 1.0)
            parts["population"].append(np.repeat(f"arm {k}", n))
            ends = [ease < expit(level + 0.5 * X[:, 0]) for level in levels[[0, -1]]]
            effects.append((own[ends[1] & ~ends[0]], np.mean(ends[1] & ~ends[0])))
    truth = float(np.concatenate([each for each, _ in effects]).mean())
    share = float(np.mean([each for _, each in effects]))
    return (
        SeparateLabels(**{name: np.concatenate(v) for name, v in parts.items()}),
        truth,
        share,
    )


def columns(data):
    return {name: data[name] for name in ("y", "treatment", "population")}


@pytest.fixture(scope="module")
def drawn():
    return offered()


@pytest.fixture(scope="module")
def model(drawn):
    return Uplift(randomised=True, random_state=0).fit(drawn[0])


def test_the_average_is_that_of_compliers(drawn, model):
    _, truth, share = drawn
    assert model.compliers_.covers(truth, 0.999)
    assert model.compliers_.standard_error < 0.1  # which tells it from 0
    found = model.complier_share_
    assert abs(found.value - share) < 4.0 * found.standard_error
    assert model.family_ == "mean"


def test_what_is_said_is_what_was_estimated(drawn, model):
    words = model.summary()
    assert words.startswith(
        "Effect on those who take it up because of the offer (about "
    )
    assert "Why people take it up does not matter" in model.verdict_.words
    verdict = diagnose(drawn[0], crossfit=model.crossfit_, randomised=True).as_verdict()
    assert "nobody takes it up only where it is not offered" in verdict.untested
    assert "respond alike" not in verdict.words


def test_tests_that_need_the_same_people_are_left_out():
    """Each pair of three arms has compliers of its own, so that their effects differ."""
    data = offered(n=4000, arms=3)[0]
    plain, chance = (diagnose(data, randomised=flag) for flag in (False, True))
    tested = {check.what for check in plain.checks} - {
        check.what for check in chance.checks
    }
    assert any("one law of outcomes" in what for what in tested)
    assert any("within the outcome's range" in what for what in tested)
    assert chance.verdict == "identified"


def test_families_that_take_the_treated_for_others_are_refused(drawn):
    with pytest.raises(
        InputError, match="takes the treated and the untreated for alike"
    ):
        Uplift(family="bernoulli", randomised=True).fit(drawn[0])
    with pytest.raises(InputError, match="randomised must be True or False"):
        Uplift(randomised="yes").fit(drawn[0])


def offer_gain(chosen, n=400_000):
    """What an offer to the people chosen brings a person, as it was simulated: the truth."""
    rng = np.random.default_rng(1)
    X, ease = rng.normal(size=(n, 2)), rng.random(n)
    taken = [ease < expit(level + 0.5 * X[:, 0]) for level in (-1.5, 1.5)]
    gains = (0.15 + 0.3 * ease) * (taken[1] & ~taken[0])
    return float(np.mean(gains * chosen(X)))


def someone(X):
    return X[:, 0] > 0.5


def test_the_gain_of_a_list_is_that_of_making_it_the_offer(drawn, model):
    """Those who never take it up gain nothing, and those who do in any case nothing more."""
    X = drawn[0].X
    gain = model.gain_.gain(model.predict_gain(X), np.ones(len(X)))
    truth = len(X) * offer_gain(lambda X: 1.0)
    assert gain.covers(truth, 0.999)
    effect = len(X) * model.compliers_.value  # as if all of them took it up
    assert not gain.covers(effect, 0.999)
    told = model.gain_.told(model.predict_gain(X), np.ones(len(X)))
    assert told == pytest.approx(1.0)
    words = model.summary()
    assert "Gain of making the offer to everybody: +" in words
    assert "Average effect" not in words


def test_evaluations_are_of_the_offer(drawn, model):
    data, truth, share = drawn
    rules = {"some": someone}
    found = evaluate_uplift(
        lambda X: X[:, 0], data, rules=rules, randomised=True, random_state=0
    )
    assert found.rules["some"].covers(offer_gain(someone), 0.999)
    assert found.average.covers(offer_gain(lambda X: 1.0), 0.999)
    # Who was made an offer is known, so that it is a mean difference of the two outcome tables.
    means = [np.nanmean(data.y[data.population == f"arm {k}"]) for k in (0, 1)]
    error = found.average.standard_error
    assert abs(found.average.value - (means[1] - means[0])) < 3.0 * error
    assert found.relative is None  # as it would be without the offer is not untreated
    rows = label_rows(np.asarray(data.X), **columns(data))
    base = linear_evaluation(rows).offered((0, 1)).relative()
    assert abs(base.value - (means[1] / means[0] - 1.0)) < 3.0 * base.standard_error
    assert base.standard_error < 0.1 * base.value
    assert found.compliers.covers(truth, 0.999)
    assert (
        abs(found.complier_share.value - share)
        < 4.0 * found.complier_share.standard_error
    )
    words = str(found)
    assert words.startswith("Gain of making the offer to everybody")
    assert "Gain per person over offering to nobody" in words
    assert "Line of uplift" not in words
    # As the model was fitted, if nothing is said.
    again = cross_evaluate(model, data, random_state=0)
    assert again.average.covers(offer_gain(lambda X: 1.0), 0.999)
    assert again.to_dict()["compliers"]["value"] == pytest.approx(
        model.compliers_.value, abs=1e-9
    )
    plain = evaluate_uplift(lambda X: X[:, 0], data, random_state=0)
    assert plain.compliers is None
    assert plain.average.value > 1.3 * found.average.value


def test_evaluations_in_pieces_are_of_the_offer_too(drawn):
    data = drawn[0]
    stream = SeparateLabels(**dict(data), stream=1000)
    options = {"randomised": True, "random_state": 0}
    found, expected = (
        evaluate_uplift(lambda X: X[:, 0], each, **options) for each in (data, stream)
    )
    for name in ("average", "auuc"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.value == pytest.approx(other.value, abs=0.2 * one.standard_error)
        assert one.standard_error == pytest.approx(other.standard_error, rel=0.05)


def test_models_of_offers_are_compared_by_offers(drawn, model):
    data = offered(n=1000, seed=3)[0]
    models = {"fit": model, "other": lambda X: -X[:, 1]}
    found = compare_uplift(models, data, random_state=0)
    alone = evaluate_uplift(lambda X: -X[:, 1], data, randomised=True, random_state=0)
    own = evaluate_uplift(model, data, random_state=0)
    apart = own.auuc.value - alone.auuc.value
    (pair,) = found.differences
    assert pair.auuc.value == pytest.approx(abs(apart), abs=1e-9)  # the larger first


def test_plans_for_offers_need_no_treatments(drawn):
    data = drawn[0]
    plan = plan_study(data, randomised=True, standard_error=0.01)
    assert plan.needed.treatment_rows == 0
    found = evaluate_uplift(lambda X: X[:, 0], data, randomised=True, random_state=0)
    rows = plan.needed.rows * (0.01 / found.average.standard_error) ** 2
    assert rows == pytest.approx(3000, rel=0.1)


def test_three_arms_are_compared_from_the_least_to_the_most():
    data = offered(n=4000, arms=3)[0]
    found = evaluate_uplift(
        lambda X: X[:, 0], data, randomised=True, random_state=0
    ).average
    assert found.covers(offer_gain(lambda X: 1.0), 0.999)


def test_if_nobody_else_could_it_is_the_effect_on_the_treated():
    rng = np.random.default_rng(4)
    n = 2000
    parts = []
    for kind in ("outcome", "treatment"):
        X, made = rng.normal(size=(n, 2)), rng.random(n) < 0.5
        ease = rng.random(n)
        taken = made & (ease > 0.4)
        y = X[:, 0] + 2.0 * ease + 0.5 * taken + rng.normal(size=n)
        gone = np.full(n, np.nan)
        y, t = (y, gone) if kind == "outcome" else (gone, taken * 1.0)
        parts.append((X, y, t, np.where(made, "made", "held")))
    X, y, t, population = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    model = Uplift(randomised=True, random_state=0).fit(
        SeparateLabels(X, y, t, population)
    )
    assert model.summary().startswith("Effect on the treated, who are those that take")
    assert model.compliers_.covers(0.5, 0.999)
    assert abs(model.complier_share_.value - 0.6) < 4.0 * np.sqrt(0.24 / 1000)
    # It may be known that nobody could.
    policy = np.where((population == "held") & ~np.isnan(y), 0.0, np.nan)
    kept = (population == "made") | ~np.isnan(y)
    data = SeparateLabels(
        *(c[kept] for c in (X, y, t, population)), policy=policy[kept]
    )
    known = Uplift(randomised=True, random_state=0).fit(data)
    assert known.summary().startswith("Effect on the treated, who are those that take")
    assert known.compliers_.covers(0.5, 0.999)
    assert diagnose(data, randomised=True).verdict == "identified"


def test_what_is_said_of_chance_must_be_yes_or_no(drawn):
    for ask in (diagnose, plan_study):
        with pytest.raises(InputError, match="randomised must be True or False"):
            ask(drawn[0], randomised="yes")
    with pytest.raises(InputError, match="randomised must be True or False"):
        evaluate_uplift(lambda X: X[:, 0], drawn[0], randomised=1)


def hardly_taken(n, seed):
    """Those who gain most hardly take it up: an offer brings .4 times .05, or .1 times .9."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 1.0], size=4 * n)
    population = np.tile(np.repeat(["held out", "offered"], n), 2)
    share = np.where(x > 0, 0.05, 0.9) * (population == "offered")
    taken = rng.random(4 * n) < share
    y = (rng.random(4 * n) < 0.3 + np.where(x > 0, 0.4, 0.1) * taken) * 1.0
    is_outcome = np.arange(4 * n) < 2 * n
    y, taken = np.where(is_outcome, y, np.nan), np.where(is_outcome, np.nan, taken)
    return SeparateLabels(pd.DataFrame({"x": x}), y, taken, population)


def test_people_are_ranked_by_what_the_offer_brings():
    data, others = hardly_taken(8000, 0), hardly_taken(8000, 1)
    model = Uplift(randomised=True, random_state=0).fit(data)
    assert [model.populations_[k] for k in model.offer_] == ["held out", "offered"]
    people = pd.DataFrame({"x": [-1.0, 1.0]})
    takes, gains = model.predict_take_up(people), model.predict_gain(people)
    np.testing.assert_allclose(takes, [0.9, 0.05], atol=0.02)
    np.testing.assert_allclose(gains, model.predict(people) * takes)
    assert gains[0] > gains[1]
    assert "not what the offer brings" in export_sql(model)
    best = np.asarray(data.X)[:, 0] < 0
    rules = {"best": ("share", 0.4)}
    held_out = evaluate_uplift(model, others, rules=rules, random_state=1)
    crossed = cross_evaluate(model, data, rules=rules, random_state=1)
    for gain in (
        model.gain_.average(model.predict_gain(data.X), best),
        held_out.rules["best"].times(1.0 / 0.4),
        crossed.rules["best"].times(1.0 / 0.4),
    ):
        assert gain.covers(0.09, 0.999)
        assert gain.interval(0.999)[0] > 0.02  # what offers to the others bring
