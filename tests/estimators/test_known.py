"""What is known of treatment: policies, chances that were drawn by lot, rows with both labels."""

import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from unjoined import MinMaxUplift, SeparateLabels, Uplift, identification_strength
from unjoined.data import CellKFold
from unjoined.errors import (
    InputError,
    LabelError,
    TableError,
    UnjoinedWarning,
    WeakIdentificationWarning,
)
from unjoined.evaluate import cross_evaluate, diagnose, evaluate_uplift, plan_study
from unjoined.targeting import top_share_rule

pytestmark = pytest.mark.usefixtures("two_folds")

NAMES = ("east", "west")
UPLIFT = 0.5  # on average, all people counting alike


def people(n, rng, policy, shift=0.0):
    """Features, outcome, treatment and its chance of people who are treated by a policy."""
    X = rng.normal(size=(n, 2))
    chance = policy(X)
    treated = (rng.random(n) < chance) * 1.0
    uplift = UPLIFT + 0.4 * X[:, 0]
    y = X[:, 1] + np.sin(X[:, 0]) + shift + treated * uplift + rng.normal(size=n)
    return {"X": X, "y": y, "treatment": treated, "policy": chance}


def apart(gap):
    """Two policies that are so far apart for everybody, and depend on the features."""
    return (
        lambda X: gap + (1.0 - gap) * expit(0.5 * X[:, 0]),
        lambda X: (1.0 - gap) * expit(0.5 * X[:, 0]),
    )


def stack(parts):
    """One table of parts: a population, people, and the columns that are seen of them."""
    columns = {name: [] for name in ("X", "y", "treatment", "policy", "population")}
    for population, drawn, seen in parts:
        n = len(drawn["X"])
        columns["X"].append(drawn["X"])
        columns["population"].append(np.repeat(population, n))
        for name in ("y", "treatment", "policy"):
            column = drawn[name] if name in seen else np.full(n, np.nan)
            columns[name].append(column)
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    return {
        name: column
        for name, column in whole.items()
        if column.dtype.kind != "f" or not np.isnan(column).all()
    }


def tables(n, rng, policies, panel=0, shift=0.0, hidden=0.0):
    """Separate tables, and a panel; outcomes of the first population may be shifted."""
    parts = []
    for name, policy, moved in zip(NAMES, policies, (shift, 0.0), strict=True):
        parts += [
            (name, people(n, rng, policy, moved), [seen]) for seen in ("y", "treatment")
        ]
        if panel:
            drawn = people(panel, rng, policy, moved)
            drawn["y"] += hidden * drawn["treatment"]
            parts.append((name, drawn, ["y", "treatment"]))
    return stack(parts)


def outcomes(n, rng, policies):
    """Outcome tables whose policies are known."""
    return stack(
        (name, people(n, rng, policy), ["y", "policy"])
        for name, policy in zip(NAMES, policies, strict=False)
    )


def stepwise(X):
    """A policy by segments, which no sum of functions of single features is."""
    return 0.2 + 0.4 * ((X[:, 0] > 0.0) & (X[:, 1] > 0.0))


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(0)
    return outcomes(1500, rng, (stepwise, lambda X: 0.3 + stepwise(X)))


@pytest.fixture(scope="module")
def model(known):
    return Uplift(random_state=0).fit(SeparateLabels(**known))


@pytest.fixture(scope="module")
def panel():
    return SeparateLabels(**tables(1000, np.random.default_rng(1), apart(0.2), 150))


def test_known_policies_cover_the_truth(model):
    average = model.average_effect_
    assert average.covers(UPLIFT, 0.999)
    # The policies are 0.3 apart: noise of 2 rows of variance 1, and what a base may leave.
    assert average.standard_error < 1.5 * np.sqrt(2.0 / 1500) / 0.3
    assert model.identification_.is_known
    assert model.identification_.n_policy == 3000


@pytest.mark.slow
def test_averages_by_known_policies_are_centred_and_covered():
    """Also where no fit can follow the policies."""
    policies = (stepwise, lambda X: 0.3 + stepwise(X))
    hits, off = [], []
    for seed in range(200):
        data = outcomes(600, np.random.default_rng(seed), policies)
        found = evaluate_uplift(lambda X: X[:, 0], data, random_state=0).average
        hits.append(found.covers(UPLIFT, 0.95))
        off.append((found.value - UPLIFT) / found.standard_error)
    assert abs(np.mean(off)) < 4.0 / np.sqrt(200)
    assert np.mean(hits) > 0.95 - 4.0 * np.sqrt(0.95 * 0.05 / 200)


def test_a_number_a_column_and_a_function_are_the_same():
    rng = np.random.default_rng(2)
    frames = {}
    for name, chance in zip(NAMES, (0.7, 0.2), strict=True):
        drawn = people(200, rng, lambda X, chance=chance: np.full(len(X), chance))
        frames[name] = pd.DataFrame(drawn["X"], columns=["a", "b"]).assign(
            spend=drawn["y"], chance=chance
        )
    given = {
        "number": {"east": 0.7, "west": 0.2},
        "column": {"east": "chance", "west": "chance"},
        "function": {
            "east": lambda frame: np.full(len(frame), 0.7),
            "west": lambda frame: 0.2 + 0.0 * frame["a"],
        },
    }
    found = []
    for policies in given.values():
        data = SeparateLabels.from_tables(
            frames,
            {},
            outcome="spend",
            treatment="mailed",
            policies=policies,
            ignore=[] if "chance" in policies.values() else ["chance"],
        )
        assert data.feature_names == ["a", "b"]
        found.append(data)
    for data in found[1:]:
        np.testing.assert_array_equal(data.policy, found[0].policy)
        np.testing.assert_array_equal(data.X, found[0].X)
    assert "policy    east: 200 rows, 70.0% treated by policy" in str(found[0])


def test_one_population_may_be_known_and_the_other_fitted():
    rng = np.random.default_rng(3)
    policies = apart(0.4)
    given = tables(1200, rng, policies)
    first = np.flatnonzero(given["population"] == "east")
    knows = first[~np.isnan(given["y"][first])]
    mixed = {name: column.copy() for name, column in given.items()}
    mixed["policy"] = np.full(len(given["y"]), np.nan)
    mixed["policy"][knows] = policies[0](given["X"][knows])
    kept = np.ones(len(given["y"]), dtype=bool)
    kept[first] = ~np.isnan(given["y"][first])
    mixed = {name: column[kept] for name, column in mixed.items()}
    both, one = (
        Uplift(random_state=0).fit(SeparateLabels(**d)) for d in (given, mixed)
    )
    averages = [each.average_effect_ for each in (both, one)]
    assert averages[1].covers(UPLIFT, 0.999)
    # What is known for sure can only be as good as what is estimated, but for noise of the errors.
    assert averages[1].standard_error < 1.05 * averages[0].standard_error
    assert not one.identification_.is_known
    assert "The policy of 1,200 outcome rows is known." in one.summary()


def lottery(n, rng):
    """One population; a lot decided between two chances of treatment."""
    X = rng.normal(size=(n, 2))
    chance = 0.3 + 0.4 * rng.integers(0, 2, n)
    treated = rng.random(n) < chance
    y = X[:, 1] + UPLIFT * treated + rng.normal(size=n)
    return {"X": X, "y": y, "policy": chance, "population": np.repeat("east", n)}


def test_one_population_is_enough_if_chances_vary_at_equal_features():
    given = lottery(2000, np.random.default_rng(4))
    data = SeparateLabels(**given)
    model = Uplift(random_state=0).fit(data)
    np.testing.assert_allclose(model.predict_policies(data.X), 0.5, atol=0.1)
    # The slope of outcomes on chances, features held fixed, is the effect.
    design = np.column_stack([given["policy"], given["X"], given["X"] ** 2])
    slope = LinearRegression().fit(design, given["y"]).coef_[0]
    average = evaluate_uplift(lambda X: X[:, 0], data, random_state=0).average
    assert abs(average.value - slope) < 0.2 * average.standard_error
    residual = given["y"] - LinearRegression().fit(design, given["y"]).predict(design)
    error = residual.std() / (np.sqrt(2000) * 0.2)
    assert average.standard_error == pytest.approx(error, rel=0.05)
    found = diagnose(data, crossfit=model.crossfit_)
    assert found.verdict == "identified"
    assert "varies among people with the same features" in model.summary()
    assert "nothing beside the features and chance decided" in found.headline
    assert "Strength: it has no limit" in str(found)
    assert found.to_dict()["identification"]["pairs"] == []


@pytest.mark.parametrize("policy", [stepwise, lambda X: expit(X[:, 0])])
def test_chances_that_features_decide_tell_nothing_in_one_population(policy):
    """However badly a fit follows them: what it misses is no lot."""
    drawn = people(1500, np.random.default_rng(5), policy)
    data = SeparateLabels(**stack([("east", drawn, ["y", "policy"])]))
    with pytest.warns(WeakIdentificationWarning, match="drawn by lot"):
        model = Uplift(random_state=0).fit(data)
    assert model.verdict_.colour == "red"
    found = diagnose(data, crossfit=model.crossfit_)
    assert found.verdict == "not identified"
    assert "one population" in found.headline
    with pytest.raises(InputError, match=r"one population, .* drawn by lot"):
        evaluate_uplift(lambda X: X[:, 0], data, random_state=0)


def test_equal_policies_tell_nothing_however_well_they_are_known():
    data = SeparateLabels(**outcomes(800, np.random.default_rng(6), (stepwise,) * 2))
    with pytest.warns(WeakIdentificationWarning):
        model = Uplift(random_state=0).fit(data)
    assert diagnose(data, crossfit=model.crossfit_).verdict == "not identified"


def adjusted(given):
    """The doubly robust estimate of a trial, by least squares in five folds, and its error."""
    X, y, t = given["X"], given["y"], given["treatment"]
    B = np.column_stack([X, X**2, X**3])
    fold = np.random.default_rng(0).permutation(np.arange(len(y)) % 5)
    score = np.empty(len(y))
    for j in range(5):
        own = fold == j
        means = [
            LinearRegression()
            .fit(B[~own & (t == a)], y[~own & (t == a)])
            .predict(B[own])
            for a in (0.0, 1.0)
        ]
        e = t[~own].mean()
        weight = t[own] / e - (1.0 - t[own]) / (1.0 - e)
        met = np.where(t[own] == 1.0, means[1], means[0])
        score[own] = means[1] - means[0] + weight * (y[own] - met)
    return score.mean(), score.std() / np.sqrt(len(y))


def test_all_rows_joined_are_a_trial():
    """Half of the people treated at random: what others estimate of a trial, and how surely."""
    rng = np.random.default_rng(7)
    drawn = people(4000, rng, lambda X: np.full(len(X), 0.5))
    given = stack([("east", drawn, ["y", "treatment"])])
    several = given | {"population": np.where(rng.random(4000) < 0.5, *NAMES)}
    value, error = adjusted(given)
    for columns in (given, several):
        data = SeparateLabels(**columns)
        found = evaluate_uplift(lambda X: X[:, 0], data, random_state=0)
        # Both are efficient, so that they differ by less than either is unsure.
        assert abs(found.average.value - value) < 0.1 * error
        assert found.average.standard_error == pytest.approx(error, rel=0.02)
        assert found.speaks_for == pytest.approx(1.0)
        assert found.to_dict()["rows"] == 4000  # nobody stands there twice


def test_a_panel_is_worth_what_it_is_said_to_be(panel):
    alone = ~(~np.isnan(panel.y) & ~np.isnan(panel.treatment))
    without = SeparateLabels(
        **{name: np.asarray(c)[alone] for name, c in panel.items()}
    )
    found = diagnose(panel)
    # e (1 - e) is 0.4 * 0.6 and a bit, between policies 0.2 apart the variance is 0.01.
    e = np.concatenate([policy(panel.X) for policy in apart(0.2)])
    assert found.known_worth == pytest.approx(
        1.0 + np.mean(e * (1.0 - e)) / 0.01, rel=0.25
    )
    assert f"as {found.known_worth:.1f} outcome rows" in str(found)
    errors = [
        evaluate_uplift(lambda X: X[:, 0], data, random_state=0).average.standard_error
        for data in (panel, without)
    ]
    rows = 2000.0
    expected = np.sqrt(rows / (rows + 300 * found.known_worth))
    assert errors[0] / errors[1] == pytest.approx(expected, rel=0.15)


def test_a_panel_tests_that_people_respond_alike(panel):
    found = diagnose(panel)
    assert "Tested by the rows with both labels" in found.headline
    assert "Not tested yet" in Uplift(random_state=0).fit(panel).verdict_.words
    shifted = SeparateLabels(
        **tables(1000, np.random.default_rng(1), apart(0.2), 150, 0.5)
    )
    refuted = diagnose(shifted)
    assert refuted.verdict != "identified"
    assert refuted.findings[0].code == "panel.refuted"
    # A treatment that the panel's people were given for what they gain.
    picked = tables(1000, np.random.default_rng(1), apart(0.2), 150, hidden=1.5)
    assert diagnose(SeparateLabels(**picked)).findings[0].code == "panel.refuted"


def test_a_panel_that_was_chosen_by_treatment_is_named():
    rng = np.random.default_rng(8)
    given = tables(600, rng, apart(0.4), 400)
    both = ~np.isnan(given["y"]) & ~np.isnan(given["treatment"])
    gone = both & (given["treatment"] == 0.0) & (rng.random(len(both)) < 0.5)
    data = SeparateLabels(**{name: column[~gone] for name, column in given.items()})
    found = diagnose(data)
    assert "panel.treated" in {finding.code for finding in found.findings}
    assert "more or fewer were treated than in its treatment table" in str(found)


def test_a_small_panel_does_no_harm():
    """A dozen rows with both labels are no table that is too short."""
    data = SeparateLabels(**tables(500, np.random.default_rng(9), apart(0.5), 6))
    found = diagnose(data)
    assert found.verdict == "identified"
    assert "Not tested: that people" in found.headline  # twelve rows are no test


def test_people_who_take_up_an_offer_are_not_compared_with_others():
    """Who takes it up has more of the outcome anyway; both labels are known of all."""
    rng = np.random.default_rng(10)
    n = 4000
    X = rng.normal(size=(n, 2))
    offered = rng.random(n) < 0.5
    ease = rng.random(n)
    taken = offered & (ease > 0.5)
    y = X[:, 1] + 2.0 * ease + 0.5 * taken + rng.normal(size=n)
    data = SeparateLabels(X, y, taken * 1.0, np.where(offered, "offered", "held out"))
    model = Uplift(randomised=True, random_state=0).fit(data)
    assert model.compliers_.covers(0.5, 0.999)
    plain = Uplift(random_state=0).fit(data)
    assert not plain.average_effect_.covers(0.5, 0.999)
    assert diagnose(data, randomised=True).verdict == "identified"


def test_gains_evaluations_and_plans_take_all_of_it(known, model, panel):
    data = SeparateLabels(**known)
    uplift = model.predict(data.X)
    rule = top_share_rule(uplift, 0.3)
    gain = model.gain_.gain(uplift, rule)
    truth = float(rule @ (UPLIFT + 0.4 * data.X[:, 0]))
    assert gain.covers(truth, 0.999)
    plan = plan_study(data, crossfit=model.crossfit_, standard_error=0.05)
    assert "in each outcome table, with policies" in str(plan)
    assert "no treatment table is needed" in str(plan)
    assert {point.treatment_rows for point in plan.needs} == {0}
    # As many rows as it has give the error that it has.
    own = model.average_effect_.standard_error
    rows = plan.needed.rows * (0.05 / own) ** 2
    assert rows == pytest.approx(1500, rel=0.05)
    found = cross_evaluate(Uplift(random_state=0), panel, random_state=0)
    assert found.average.covers(UPLIFT, 0.999)
    plan = plan_study(panel, half_width=0.1)
    assert "known of 13% of them" in str(plan)
    assert plan.needed.treatment_rows > 0


def test_data_with_all_of_it_go_wherever_others_go(panel):
    again = pickle.loads(pickle.dumps(panel))  # noqa: S301
    for name in panel:
        np.testing.assert_array_equal(again[name], panel[name])
    folds = [test for _, test in CellKFold(4).split(**panel)]
    assert sorted(np.concatenate(folds)) == list(range(panel.n_rows))
    part = panel.take(folds[0])
    both = ~np.isnan(panel.treatment) & ~np.isnan(panel.y)
    assert sum(cell.n_rows for cell in part.summary() if cell.kind == "both") == sum(
        both[folds[0]]
    )
    model = pickle.loads(pickle.dumps(Uplift(random_state=0).fit(panel)))  # noqa: S301
    assert model.identification_.n_joint == 300


def test_counts_may_have_both_labels():
    """Grouped rows with both labels are as good as people written out."""
    rng = np.random.default_rng(12)
    cells = pd.DataFrame(
        list(product(range(6), (0.0, 1.0), (0.0, 1.0), NAMES)),
        columns=["band", "t", "y", "name"],
    )
    cells["n"] = rng.integers(2, 9, len(cells))
    written = cells.loc[cells.index.repeat(cells["n"])]
    found = []
    for frame, count in ((cells, {"count": cells["n"]}), (written, {})):
        data = SeparateLabels(
            frame[["band"]].to_numpy(float),
            frame["y"],
            frame["t"],
            frame["name"],
            **count,
        )
        found.append(Uplift(random_state=0).fit(data))
    for name in ("value", "standard_error"):
        one, other = (getattr(each.average_effect_, name) for each in found)
        assert one == pytest.approx(other, abs=1e-8)
    assert found[0].summary() == found[1].summary()


def test_shares_of_outcomes_keep_their_treatment():
    """Of 10 people treated 3 have the outcome, of 10 others 2: four kinds of people."""
    given = {"population": ["east"] * 4, "count": [10] * 4}
    X, t = np.zeros((4, 1)), [1.0, 0.0, 1.0, 0.0]
    data = SeparateLabels(X, [0.3, 0.2, 0.6, 0.4], t, **given)
    people = pd.DataFrame({"y": data.y, "t": data.treatment, "n": data.count})
    found = people.groupby(["t", "y"])["n"].sum().to_dict()
    assert found == {(0.0, 0.0): 14, (0.0, 1.0): 6, (1.0, 0.0): 11, (1.0, 1.0): 9}
    with pytest.raises(LabelError, match="does not say whose outcome it is"):
        SeparateLabels(X, [0.3, 0.2, 0.6, 0.4], [0.5, 0.0, 1.0, 0.0], **given)


def frames():
    rng = np.random.default_rng(13)
    made = {}
    for name, policy in zip(NAMES, apart(0.4), strict=True):
        drawn = people(60, rng, policy)
        made[name] = pd.DataFrame(drawn["X"], columns=["a", "b"]).assign(
            spend=drawn["y"], mailed=drawn["treatment"], chance=drawn["policy"]
        )
    return made


def of_tables(**options):
    made = frames()
    kept = ["a", "b", "spend", *(["chance"] if "chance" in str(options) else [])]
    sales = {name: made[name][kept] for name in made}
    given = {"outcome": "spend", "treatment": "mailed"} | options
    return SeparateLabels.from_tables(sales, given.pop("treatments", {}), **given)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"policies": {"east": 1.2, "west": 0.3}},
            InputError,
            r"the policy of 'east' must .* \[0, 1\]",
        ),
        (
            {"policies": {"east": 0.3, "north": 0.3}},
            TableError,
            r"policies names 'north', a population without an outcome table; there are",
        ),
        (
            {"policies": {"east": "chance", "west": "chances"}},
            TableError,
            r"population 'west' has no column 'chances'.*Did you mean 'chance'",
        ),
        (
            {"policies": {"east": 0.3, "west": lambda frame: np.zeros(7)}},
            InputError,
            r"what the policy of 'west' returns has 7 entries",
        ),
        (
            {"policies": {"east": 0.3, "west": lambda frame: 1.5 + frame["a"] * 0.0}},
            LabelError,
            r"population 'west'.* from 0 to 1, .* got 1\.5, .* in 60 of 60 rows",
        ),
        (
            {"policies": {"east": 0.3}},
            LabelError,
            r"population 'west' has no treatment rows; .* or a known policy",
        ),
        ({"policies": 0.3}, TableError, "policies must be a mapping of populations"),
        (
            {"policies": {"east": 0.3, "west": "chance"}, "features": ["a", "chance"]},
            TableError,
            "features names 'chance', which is the policy of west",
        ),
        (
            {"policies": {"east": 0.3, "west": 0.2}, "stream": True},
            InputError,
            r"policies was given with rows that are streamed\. .* stream=False",
        ),
        (
            {"both": frames(), "stream": 50},
            InputError,
            "both was given with rows that are streamed",
        ),
        (
            {
                "both": {"east": frames()["east"][["a", "b", "spend"]]},
                "policies": {"west": 0.1},
            },
            TableError,
            r"the both-labels table of population 'east' has no column 'mailed'",
        ),
    ],
)
def test_what_is_wrong_is_said(options, error, message):
    with pytest.raises(error, match=message):
        of_tables(**options)


def test_a_column_of_populations_goes_with_policies_too():
    made = frames()
    whole = pd.concat([made[name].assign(region=name) for name in NAMES])
    options = {"outcome": "spend", "treatment": "mailed", "population": "region"}
    sales = whole.drop(columns="mailed")
    data = SeparateLabels.from_tables(
        sales, None, policies={"east": "chance", "west": 0.2}, **options
    )
    expected = np.where(whole["region"] == "east", whole["chance"], 0.2)
    np.testing.assert_array_equal(data.policy, expected)
    assert data.feature_names == ["a", "b"]
    with pytest.raises(
        TableError, match=r"policies names 'esat'.* there are 'east', 'west'"
    ):
        SeparateLabels.from_tables(
            sales, None, policies={"esat": "chance", "west": 0.2}, **options
        )
    both = SeparateLabels.from_tables(
        None, None, both=whole, ignore=["chance"], **options
    )
    assert [cell.kind for cell in both.summary()] == ["outcome"] * 2 + ["both"] * 2


def test_arrays_with_bad_policies_get_a_sentence(known):
    with pytest.raises(
        LabelError, match=r"NaN where it is not known; got 30\.0, .* by 100"
    ):
        SeparateLabels(**known | {"policy": np.full(3000, 30.0)})
    with pytest.raises(InputError, match="policy has 3 entries"):
        SeparateLabels(**known | {"policy": [0.1, 0.2, 0.3]})
    policy = known["policy"].copy()
    SeparateLabels(**known | {"policy": policy})
    policy[0] = 0.5  # it is still the caller's own


def test_estimators_that_need_one_label_a_row_say_so(panel, known):
    for data in (panel, SeparateLabels(**known)):
        with pytest.raises(InputError, match="MinMaxUplift takes one label a row"):
            MinMaxUplift(random_state=0).fit(data)


def test_the_strength_is_that_of_what_is_known(known, panel):
    found = identification_strength(**known)
    assert (found.n_policy, found.n_joint, found.is_known) == (3000, 0, True)
    assert not found.is_weak
    found = identification_strength(**panel)
    assert (found.n_policy, found.n_joint, found.is_known) == (0, 300, False)


def test_words_do_not_estimate_what_is_known(model, known):
    words = model.summary()
    assert "The policies are known and differ by about 3" in words
    assert "which the rows can tell" not in words
    found = str(diagnose(SeparateLabels(**known), crossfit=model.crossfit_))
    assert (
        "the policies are known, and the chance of treatment differs by -0.30" in found
    )
    assert "Known: the policy of 3,000 outcome rows is known." in found
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnjoinedWarning)
        Uplift(random_state=0).fit(SeparateLabels(**known))


def claimed(seed, wrong):
    """Four tables whose policies are claimed, in the first population perhaps wrongly."""
    policies = apart(0.4)
    given = tables(400, np.random.default_rng(seed), policies)
    claims = [policy(given["X"]) for policy in policies]
    given["policy"] = np.where(given["population"] == "east", *claims)
    given["policy"] -= wrong * (given["population"] == "east")
    return SeparateLabels(**given)


def test_treatment_rows_test_a_policy_that_is_claimed():
    found = diagnose(claimed(0, 0.2))
    assert found.verdict == "not identified"
    assert (
        "the policy that was given is not what is seen in the treatment table of east"
        in found.findings[0].what
    )
    what = "treatments follow the known policy"
    p = np.array(
        [
            [c.p_value for c in diagnose(claimed(seed, 0.0)).checks if c.what == what]
            for seed in range(6)
        ]
    )
    assert p.shape == (6, 2)
    assert p.min() > 0.01 / p.size  # but for one such test in a hundred
    assert np.mean(p < 0.5) < 0.5 + 4.0 * np.sqrt(0.25 / p.size)


@pytest.fixture(scope="module")
def panel_checks():
    """P-values of tests that panels which agree do not fail but by chance, by what is tested."""
    found = {}
    for seed in range(10):
        given = tables(300, np.random.default_rng(seed), apart(0.3), 60)
        for check in diagnose(SeparateLabels(**given)).checks:
            found.setdefault(check.what, []).append(check.p_value)
    return found


@pytest.mark.parametrize(
    "what",
    [
        "rows with both labels agree with the tables (average)",
        "as many were treated as in the treatment table",
    ],
)
def test_panels_that_agree_are_rejected_no_more_often_than_said(panel_checks, what):
    p = np.array(panel_checks[what])
    assert len(p) >= 10
    assert p.min() > 0.01 / len(p)  # but for one such test in a hundred
    assert np.mean(p < 0.5) < 0.5 + 3.0 * np.sqrt(0.25 / len(p))


def test_searches_take_known_policies(known):
    small = {name: column[::3] for name, column in known.items()}
    small["treatment"] = np.full(len(small["y"]), np.nan)
    with sklearn.config_context(enable_metadata_routing=True):
        model = Uplift(random_state=0)
        for method in ("fit", "score"):
            request = getattr(model, f"set_{method}_request")
            request(treatment=True, population=True, policy=True)
        search = GridSearchCV(model, {"family": ["mean", "gaussian"]}, cv=CellKFold(2))
        search.fit(**small)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_scores_look_at_treatments_where_they_are_known():
    """A likelihood of outcomes given treatments, not given policies alone."""
    rng = np.random.default_rng(11)
    drawn = people(800, rng, lambda X: np.full(len(X), 0.5))
    drawn["y"] += 3.0 * drawn["treatment"]
    data = stack([("east", drawn, ["y", "treatment"])])
    model = Uplift(random_state=0).fit(SeparateLabels(**data))
    right = model.score(SeparateLabels(**data))
    wrong = model.score(SeparateLabels(**data | {"treatment": 1.0 - data["treatment"]}))
    assert right > wrong + 0.5
