"""Rules that people can read find what is there, and say what they gain no better than it is."""

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unjoined import SeparateLabels, Uplift, WeightedUplift
from unjoined.data import SimulatedProblem
from unjoined.errors import InputError
from unjoined.evaluate import diagnose
from unjoined.export import export_sql
from unjoined.targeting import learn_rule

pytestmark = pytest.mark.usefixtures("two_folds")
COST = 0.5


def effect(X):
    """Those above 40 who came twice or more gain 1, others nothing."""
    return ((X[:, 0] > 40.0) & (X[:, 1] >= 2.0)) * 1.0


def problem():
    return SimulatedProblem(
        features=lambda n, rng: np.column_stack(
            [
                rng.uniform(20, 80, n).round(),
                rng.poisson(2.0, n),
                rng.standard_normal(n),
            ]
        ),
        policies={
            "east": lambda X: expit(0.8 + 0.3 * X[:, 2]),
            "west": lambda X: expit(-0.8 + 0.3 * X[:, 2]),
        },
        outcome=lambda X, t, rng: (
            X[:, 2] + t * effect(X) + 0.3 * rng.standard_normal(len(X))
        ),
        outcome_mean=lambda X, t: X[:, 2] + t * effect(X),
        feature_names=("age", "visits", "mood"),
    )


@pytest.fixture(scope="module")
def data():
    drawn = problem().draw(2000, random_state=0)
    X = pd.DataFrame(np.asarray(drawn.X), columns=["age", "visits", "mood"])
    X["town"] = np.where(X["mood"] > 0.0, "Ålesund", "Bø i Telemark")
    return SeparateLabels(
        X, y=drawn.y, treatment=drawn.treatment, population=drawn.population
    )


@pytest.fixture(scope="module")
def model(data):
    return Uplift(random_state=0).fit(data)


@pytest.fixture(scope="module")
def rule(model, data):
    return learn_rule(model, data, cost=COST, random_state=0)


def test_a_rule_is_found_and_its_gain_is_that_of_the_truth(rule):
    (leaf,) = [leaf for leaf in rule.leaves if leaf.treatment]
    cut, most = leaf.bounds[0]
    assert 38.0 <= cut <= 42.0
    assert most == np.inf
    assert 1.0 <= leaf.bounds[1][0] < 2.0
    assert leaf.where == f"age is above {cut:.0f} and visits is above 1"
    people = np.asarray(problem().draw_joint(20_000, random_state=1).X)
    gains = effect(people) - COST
    best = np.maximum(gains, 0.0).mean()
    assert rule.gain.covers(best, 0.999)
    table = pd.DataFrame(people, columns=["age", "visits", "mood"])
    given = rule.assign(table.assign(town="Bø i Telemark"))
    assert (gains * (given == 1)).mean() > 0.9 * best
    assert rule.share == pytest.approx((given == 1).mean(), abs=0.05)
    assert rule.kept.covers(1.0, 0.999)
    assert rule.sentences()[0].startswith("Treat people where age is above 4")


def test_everyone_gains_the_average_less_the_cost(rule, model, data):
    """As much as fit and check say."""
    average = model.average_effect_
    told = diagnose(data, crossfit=model.crossfit_).sensitivity.average.gain
    assert told.value == pytest.approx(average.value, abs=1e-12)
    assert told.standard_error == pytest.approx(average.standard_error, rel=1e-9)
    assert rule.everyone.value == pytest.approx(average.value - COST, abs=1e-12)
    assert rule.everyone.standard_error == pytest.approx(
        average.standard_error, rel=1e-9
    )


def test_value_and_cost_are_money(rule, model, data):
    """Ten times of both is the same rule, and ten times the gain."""
    tenfold = learn_rule(model, data, value=10.0, cost=10.0 * COST, random_state=0)
    assert [leaf.where for leaf in tenfold.leaves] == [
        leaf.where for leaf in rule.leaves
    ]
    assert tenfold.gain.value == pytest.approx(10.0 * rule.gain.value)
    assert tenfold.kept.value == pytest.approx(rule.kept.value)


def test_harm_is_treated_where_less_is_better(model, data):
    less = learn_rule(model, data, value=-1.0, random_state=0)
    gains = effect(data.X[["age", "visits"]].to_numpy(float)) > 0.0
    assert less.assign(data.X)[gains].mean() < 0.15


def test_no_more_are_treated_than_there_is_money_for(model, data):
    shares = []
    for share in (0.1, 0.2, 0.4):
        found = learn_rule(model, data, share=share, random_state=0)
        shares.append(found.share)
        assert found.share <= share + 1e-9
    assert shares == sorted(shares)
    paid = learn_rule(model, data, value=1.0, cost=COST, budget=0.1, random_state=0)
    assert paid.share * COST <= 0.1 + 1e-9


def test_a_rule_names_the_columns_it_may(model, data):
    found = learn_rule(
        model, data, cost=COST, features=["visits", "town"], random_state=0
    )
    words = " ".join(leaf.where for leaf in found.leaves)
    assert "visits" in words
    assert "age" not in words
    assert "mood" not in words
    nobody = learn_rule(model, data, cost=99.0, random_state=0)
    assert nobody.sentences()[0].startswith("Treat nobody")
    assert nobody.share == nobody.gain.value == 0.0
    assert nobody.kept is None


def test_another_model_is_ranked_by_what_it_predicts(data):
    """Of rows that it was fitted to, the ranking is by fits that have not seen them."""
    backwards = learn_rule(
        lambda X: -effect(X.to_numpy()[:, :2].astype(float)),
        data,
        cost=COST,
        random_state=0,
    )
    assert backwards.ranking.value < backwards.gain.value
    other = WeightedUplift(basis="linear").fit(data)
    found = learn_rule(other, data, cost=COST, random_state=0)
    assert found.kept is not None


def test_sql_and_files_say_what_the_rule_says(rule, model, data, tmp_path):
    people = data.X.head(300).copy()
    people["age"] = people["age"].where(np.arange(300) % 7 > 0)
    found = learn_rule(model, data, cost=COST, max_depth=3, random_state=0)
    for one in (rule, found):
        query = export_sql(one, tmp_path / "rule.sql", table="people", keep=["visits"])
        connection = duckdb.connect()
        connection.register("people", people)
        given = connection.sql(query).df()
        assert list(given) == ["visits", "treat"]
        assert (given["treat"].to_numpy() == one.assign(people)).all()
        assert (tmp_path / "rule.sql").read_text() == query + "\n"
    with pytest.raises(InputError, match="'treat'"):
        export_sql(rule, keep=["treat"])
    plain = data.X[["age", "visits", "mood"]].to_numpy()
    arrays = SeparateLabels(
        plain, y=data.y, treatment=data.treatment, population=data.population
    )
    nameless = learn_rule(lambda X: X[:, 0], arrays, cost=COST, random_state=0)
    with pytest.raises(InputError, match="plain arrays"):
        export_sql(nameless)


def test_a_rule_is_drawn_and_written_as_plain_numbers(rule):
    ax = rule.plot()
    assert len(ax.patches) == len(rule.leaves)
    plain = rule.to_dict()
    assert plain["gain"]["value"] == rule.gain.value
    assert [leaf["where"] for leaf in plain["leaves"]] == [
        leaf.where for leaf in rule.leaves
    ]
    assert len(rule.to_frame("pandas")) == len(rule.leaves)
    assert "Who gets what" in str(rule)


def test_what_a_rule_cannot_be(model, data):
    for options, message in (
        ({"max_depth": 5}, "4 at most"),
        ({"max_depth": 0}, "1 or above"),
        ({"value": 0.0}, "value must not be 0"),
        ({"cost": -1.0}, "0 or above"),
        ({"cost": {"mail": 1.0}}, "cost names 'mail'"),
        ({"budget": 1.0}, "give cost"),
        ({"budget": 1.0, "share": 0.1, "cost": 1.0}, "not both"),
        ({"share": 2.0}, r"share must lie in"),
        ({"features": ["agee"]}, "Did you mean 'age'"),
        ({"features": []}, "one column or more"),
        ({"level": 95}, "level"),
    ):
        with pytest.raises(InputError, match=message):
            learn_rule(model, data, **options)
