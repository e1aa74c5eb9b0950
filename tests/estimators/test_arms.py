"""Several treatments: each against none, and the best one for everybody."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from unjoined import ArmUplift, SeparateLabels, Uplift, load_model, save_model
from unjoined.errors import InputError, LabelError
from unjoined.evaluate import diagnose, evaluate_arms, evaluate_uplift
from unjoined.model.arms import taken_apart
from unjoined.report import Terms, report, report_with_numbers
from unjoined.targeting import assign_arms, learn_rule

pytestmark = pytest.mark.usefixtures("two_folds")

ARMS = np.array(["none", "mail", "phone"])
TRUTH = {
    "mail": lambda X: 0.3 + 0.5 * np.asarray(X)[:, 0],
    "phone": lambda X: 0.3 - 0.5 * np.asarray(X)[:, 0],
}


def draw(n=1000, seed=0, alike=False, gain=0.5, places=4):
    """Populations that prefer different treatments or, if alike, treat more or less only."""
    rng = np.random.default_rng(seed)
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    for kind in ("outcome", "treatment"):
        for k in range(places):
            X = rng.normal(size=(n, 2))
            liked = [(1.2, -1.0), (-1.0, 1.2), (-1.0, -1.0), (0.0, 0.0)][k]
            more = [1.0, 0.3, -0.5, -1.2][k]
            odds = np.zeros((n, 3))
            for j, sign in ((1, 1.0), (2, -1.0)):
                own = more if alike else liked[j - 1] + sign * 0.3 * X[:, 0]
                odds[:, j] = own
            share = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
            arm = (rng.random((n, 1)) > np.cumsum(share, axis=1)).sum(axis=1)
            effects = (0.3 + gain * X[:, 0], 0.3 - gain * X[:, 0])
            u = np.column_stack([np.zeros(n), *effects])[np.arange(n), arm]
            y = X[:, 1] + u + rng.normal(size=n)
            is_outcome = kind == "outcome"
            parts["X"].append(X)
            parts["y"].append(y if is_outcome else np.full(n, np.nan))
            parts["treatment"].append(np.full(n, None) if is_outcome else ARMS[arm])
            parts["population"].append(np.repeat(f"place {k}", n))
    return {name: np.concatenate(columns) for name, columns in parts.items()}


@pytest.fixture(scope="module")
def columns():
    return draw()


@pytest.fixture(scope="module")
def data(columns):
    return SeparateLabels(**columns, control="none")


@pytest.fixture(scope="module")
def model(data):
    return ArmUplift(random_state=0).fit(data)


def test_each_treatment_is_told_apart_from_the_others(model):
    assert model.arms_ == ["mail", "phone"]
    assert model.control_ == "none"
    X = np.random.default_rng(1).normal(size=(2000, 2))
    found = model.predict(X)
    truth = np.column_stack([0.3 + 0.5 * X[:, 0], 0.3 - 0.5 * X[:, 0]])
    for j, arm in enumerate(model.arms_):
        assert np.corrcoef(found[:, j], truth[:, j])[0, 1] > 0.9
        average = model.models_[arm].average_effect_
        assert average.covers(0.3, 0.999)  # as X is symmetric about 0
        assert average.standard_error < 0.16
        np.testing.assert_array_equal(found[:, j], model.models_[arm].predict(X))
        assert model.values_[arm].covers(0.3, 0.999)
    low, high = model.predict_interval(X)
    assert (low < found).all()
    assert (found < high).all()
    # E max(.3 + .5 z, .3 - .5 z, 0) = .3 + .5 E|z|, as |z| / 2 exceeds -.3.
    best = 0.3 + 0.5 * np.sqrt(2.0 / np.pi)
    assert model.values_["the best for each"].covers(best, 0.999)
    gained = np.choose(assign_arms(found), [np.zeros(len(X)), *truth.T]).mean()
    assert gained > 0.9 * best


def test_the_effect_of_another_treatment_does_not_leak(columns):
    """A second treatment of great effect leaves the average of the first where it was."""
    rng = np.random.default_rng(5)
    n = 1500
    shares = np.array([[0.5, 0.4, 0.1], [0.5, 0.1, 0.4], [0.8, 0.1, 0.1]])
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    for is_outcome, k in product((True, False), range(3)):
        X = rng.normal(size=(n, 1)) + 0.3 * k  # features differ as well
        arm = rng.choice(3, n, p=shares[k])
        y = X[:, 0] + np.array([0.0, 0.2, 3.0])[arm] + rng.normal(size=n)
        parts["X"].append(X)
        parts["y"].append(y if is_outcome else np.full(n, np.nan))
        parts["treatment"].append(np.full(n, None) if is_outcome else ARMS[arm])
        parts["population"].append(np.repeat(k, n))
    given = {name: np.concatenate(column) for name, column in parts.items()}
    model = ArmUplift(random_state=0).fit(**given, control="none")
    mail, phone = (model.models_[arm].average_effect_ for arm in model.arms_)
    assert mail.covers(0.2, 0.999)
    assert mail.standard_error < 0.35
    assert phone.covers(3.0, 0.999)


def test_a_base_to_which_other_treatments_add_is_none():
    """Of amounts an effect alone is told: what is seen of people is not of those untreated."""
    columns = draw(300)
    model = ArmUplift(random_state=0).fit(
        **columns | {"y": np.exp(0.3 * columns["y"])}, control="none"
    )
    assert all(one.relative_effect_ is None for one in model.models_.values())
    assert "untreated" not in model.summary()


def test_populations_that_only_treat_more_or_less_do_not_show_the_treatments_apart(
    tmp_path,
):
    data = SeparateLabels(**draw(300, alike=True), control="none")
    with pytest.warns(UserWarning, match="can hardly be told apart"):
        model = ArmUplift(random_state=0).fit(data)
    assert model.verdict_.colour == "red"
    assert model.identification_.is_weak
    assert "best" not in model.summary()
    found = evaluate_arms(model, data, random_state=0)
    assert found.gains == {}
    assert "cannot tell all treatments apart" in str(found)
    with pytest.raises(
        InputError, match=r"each of the treatments 'mail', 'phone', got"
    ):
        report(model, data, tmp_path / "r.html", terms=Terms(costs={"mail": 1.0}))
    with pytest.raises(InputError, match="share and cost are for one treatment"):
        report(model, data, tmp_path / "r.html", terms=Terms(share=0.3))
    _, numbers = report_with_numbers(model, data, tmp_path / "r.html")
    assert numbers["colour"] == "red"
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "Who gets what" not in page
    assert "if everybody gets it" not in page


def test_too_few_populations_are_named_with_what_they_show(columns):
    at = np.isin(columns["population"], ["place 0", "place 1"])
    few = {name: column[at] for name, column in columns.items()}
    with pytest.raises(
        LabelError, match=r"2 treatments .* take 3 populations .* are 2"
    ) as said:
        ArmUplift().fit(**few, control="none")
    assert "any of them against 'none'" in str(said.value)
    assert "treated='mail', 'phone'" in str(said.value)


def test_words_say_what_is_best(model):
    words = model.summary()
    assert "Average gain over 'none'" in words
    assert "more than the best single one for all" in words
    assert "mail: Average effect: +" in words
    assert "phone: The policies differ by about" in words
    assert "dose" not in words


def test_the_same_treatments_for_all_are_said_to_be_so():
    data = SeparateLabels(**draw(700, seed=3, gain=0.0), control="none")
    model = ArmUplift(random_state=0).fit(data)
    more = model.values_["over the best for all"]
    assert more.covers(0.0, 0.999)
    assert "do not show that choosing for each person pays" in model.summary()


def test_tables_arrays_and_codes_are_the_same(columns, data):
    at = (columns["population"] == "place 0") & np.isnan(columns["y"])
    treated = np.mean(columns["treatment"][at] != "none")
    assert f"treatment place 0: 1,000 rows, {treated:.1%} treated" in str(data)
    np.testing.assert_array_equal(
        data.take(np.arange(data.n_rows)).treatment, data.treatment
    )
    codes = {"none": 0, "mail": 1, "phone": 2, None: None}
    numbers = [codes[arm] for arm in columns["treatment"]]
    other = SeparateLabels(**columns | {"treatment": numbers}, control=0)
    assert other.checked.arms == ("0", "1", "2")
    np.testing.assert_array_equal(other.checked.label, data.checked.label)
    table = pd.DataFrame(columns["X"], columns=["age", "income"]).assign(
        spent=columns["y"], sent=columns["treatment"], place=columns["population"]
    )
    tables = SeparateLabels.from_tables(
        table[table["spent"].notna()].drop(columns="sent"),
        table[table["sent"].notna()].drop(columns="spent"),
        outcome="spent",
        treatment="sent",
        population="place",
        control="none",
    )
    assert tables.checked.arms == data.checked.arms
    assert str(tables).splitlines()[1:] == str(data).splitlines()[1:]


def test_a_model_is_stored_and_read_again(model, data, tmp_path):
    X = np.random.default_rng(2).normal(size=(20, 2))
    again = load_model(save_model(model, tmp_path / "arms.skops"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.values_.keys() == model.values_.keys()
    with pytest.warns(UserWarning, match="a model from a file is judged by the very"):
        found = evaluate_arms(again, data, random_state=0)
    assert found.arms["mail"].how == "held-out rows"
    mail = again.models_["mail"]
    np.testing.assert_allclose(
        mail.predict_policies(X), model.models_["mail"].predict_policies(X)
    )


def test_what_takes_one_treatment_says_what_to_do_with_several(columns, data):
    for act in (Uplift().fit, diagnose):
        with pytest.raises(InputError, match=r"2 treatments beside 'none'.* ArmUplift"):
            act(data)
    with pytest.raises(InputError, match="name the latter with control="):
        ArmUplift().fit(**columns | {"treatment": np.isnan(columns["y"]) * 1.0})
    with pytest.raises(LabelError, match="control='nobody' is no treatment of any row"):
        SeparateLabels(**columns, control="nobody")
    with pytest.raises(LabelError, match=r"got 'none', 'mail', 'phone'.*control=VALUE"):
        SeparateLabels(**columns)
    with pytest.raises(InputError, match="cannot have known policies yet"):
        SeparateLabels(**columns, control="none", policy=np.full(8000, 0.5))
    with pytest.raises(
        InputError, match="control was given with rows that are streamed"
    ):
        SeparateLabels(**columns, control="none", stream=True)
    one = np.where(columns["treatment"] == "phone", "mail", columns["treatment"])
    with pytest.raises(LabelError, match="one other treatment or none"):
        SeparateLabels(**columns | {"treatment": one}, control="none")


def test_assignments_are_the_best_that_a_budget_allows():
    """Against all of them: 3 ** 6 assignments."""
    rng = np.random.default_rng(4)
    costs = np.array([1.0, 3.0])
    for _ in range(20):
        uplift = rng.normal(0.3, 0.5, (6, 2))
        every = np.array(list(product(range(3), repeat=6)))
        net = np.column_stack([np.zeros(6), 4.0 * uplift - costs])
        worth = net[np.arange(6), every].sum(axis=1)
        spent = np.append(0.0, costs)[every].sum(axis=1)
        free = assign_arms(uplift, value=4.0, cost=costs)
        assert net[np.arange(6), free].sum() == pytest.approx(worth.max())
        for budget in (0.0, 2.5, 7.0):
            found = assign_arms(uplift, value=4.0, cost=costs, budget=budget)
            used = np.append(0.0, costs)[found].sum()
            assert used <= budget + 1e-12
            # Nothing that costs as much brings more.
            assert net[np.arange(6), found].sum() >= worth[spent <= used].max() - 1e-9
    with pytest.raises(InputError, match=r"shape \(n, J\), got shape \(2,\)"):
        assign_arms([0.1, 0.2])


def test_gains_of_each_treatment_are_those_of_the_truth(data):
    """Where the scores are the truth, uplift curves have areas that are known."""
    asked = {"all mail": lambda u: np.ones(len(u)), "none": lambda u: np.zeros(len(u))}
    found = evaluate_arms(TRUTH, data, assignments=asked, random_state=0)
    # E[F(u) u] with u = .3 + .5 z is .3 / 2 + .5 E[z Phi(z)], and E[z Phi(z)] = E[phi(z)].
    auuc = 0.15 + 0.5 / (2.0 * np.sqrt(np.pi))
    for arm in ("mail", "phone"):
        one = found.arms[arm]
        assert one.average.covers(0.3, 0.999)
        assert one.auuc.covers(auuc, 0.999)
        assert one.auuc.standard_error < 0.1
        assert one.calibration.slope.covers(1.0, 0.999)
        assert one.relative is None
        assert one.sensitivity.without == {}  # fewer populations show neither alone
    assert found.gains["the best for each"].covers(
        0.3 + 0.5 * np.sqrt(2.0 / np.pi), 0.999
    )
    assert found.gains["all mail"].value == pytest.approx(found.gains["mail"].value)
    assert found.gains["none"].value == found.gains["none"].standard_error == 0.0
    facts = found.to_dict()
    assert facts["treatments"]["mail"]["auuc"]["value"] == found.arms["mail"].auuc.value
    assert facts["gains"].keys() == found.gains.keys()
    frame = found.to_frame("pandas")
    assert set(frame["arm"]) == {"", "mail", "phone"}
    assert "phone: Gain per person over treating nobody" in str(found)


def test_a_model_is_judged_by_fits_that_have_not_seen_the_row(model, data):
    found = evaluate_arms(model, data, random_state=0)
    assert found.gains == model.values_
    for arm, one in found.arms.items():
        assert one.how == "rows left out of each fit, 5 folds"
        # The model's average is drawn towards its predictions; its error is that of the rows.
        error = model.models_[arm].average_effect_.standard_error
        assert one.average.standard_error == pytest.approx(error)


def test_other_people_and_words_as_features(columns):
    """A target of the same people as the tables has the same average, words or not."""
    frame = pd.DataFrame(columns["X"], columns=["age", "income"])
    frame["side"] = np.where(frame["age"] > 0.0, "high", "low")
    few = np.arange(0, len(frame), 2)
    words = SeparateLabels(**columns | {"X": frame}, control="none").take(few)
    truth = {
        "mail": lambda X: 0.3 + 0.5 * X["age"].to_numpy(),
        "phone": lambda X: 0.3 - 0.5 * X["age"].to_numpy(),
    }
    found = evaluate_arms(truth, words, target=frame.iloc[:700], random_state=0)
    assert found.arms["mail"].average.covers(0.3, 0.999)
    best = 0.3 + 0.5 * np.sqrt(2.0 / np.pi)
    assert found.gains["the best for each"].covers(best, 0.999)


def test_a_treatment_that_two_populations_never_give_changes_nothing_between_them():
    """If the other treatment is given in a third one alone, the first two show what they show."""
    rng = np.random.default_rng(6)
    n = 800
    shares = np.array([[0.2, 0.8, 0.0], [0.8, 0.2, 0.0], [0.5, 0.0, 0.5]])
    P = np.tile(shares, (3, 1, 1))
    _, alone, _ = taken_apart(P, np.full(3, 1.0 / 3.0))
    np.testing.assert_allclose(alone[:, :, 0], [[0.3, -0.3, 0.0]] * 3, atol=1e-12)
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    for is_outcome, k in product((True, False), range(3)):
        X = rng.normal(size=(n, 1))
        arm = rng.choice(3, n, p=shares[k])
        y = X[:, 0] + np.array([0.0, 0.4, 1.0])[arm] + rng.normal(size=n)
        parts["X"].append(X)
        parts["y"].append(y if is_outcome else np.full(n, np.nan))
        parts["treatment"].append(np.full(n, None) if is_outcome else ARMS[arm])
        parts["population"].append(np.repeat(k, n))
    three = {name: np.concatenate(column) for name, column in parts.items()}
    at = three["population"] < 2
    two = {name: column[at] for name, column in three.items()}
    two["treatment"] = np.where(np.isnan(two["y"]), two["treatment"] == "mail", np.nan)
    score = {"mail": lambda X: X[:, 0], "phone": lambda X: X[:, 0]}
    both = SeparateLabels(**three, control="none")
    found = evaluate_arms(score, both, random_state=0).arms["mail"]
    ordinary = evaluate_uplift(score["mail"], SeparateLabels(**two), random_state=0)
    # The same outcomes decide both. Fits and who counts differ, which is of second order.
    for name in ("average", "auuc", "qini"):
        one, other = getattr(found, name), getattr(ordinary, name)
        assert abs(one.value - other.value) < other.standard_error / 3.0
        assert one.standard_error == pytest.approx(other.standard_error, rel=0.1)


def test_rows_that_stand_for_people_are_as_good_as_their_people():
    """Outcomes may be shares of them; treatments are words, or codes that are no shares."""
    given = draw(120, places=3)
    X, y = given["X"].round(), (given["y"] > 0.0) * 1.0
    count = np.random.default_rng(3).integers(1, 6, len(X))
    share = np.where(np.isnan(given["y"]), np.nan, np.minimum(y + 1.0, count) / count)
    codes = [
        None if arm is None else ARMS.tolist().index(arm) for arm in given["treatment"]
    ]
    rows = {"X": X, "population": given["population"]}
    counted = SeparateLabels(**rows, y=share, treatment=codes, count=count, control=0)
    ones = np.concatenate(
        [np.arange(c) < round(s * c) if s == s else np.full(c, False)
         for s, c in zip(share, count, strict=True)]
    )  # fmt: skip
    at = np.repeat(np.arange(len(X)), count)
    written = SeparateLabels(
        X[at],
        np.where(np.isnan(given["y"][at]), np.nan, ones),
        given["treatment"][at],
        given["population"][at],
        control="none",
    )
    few, many = (ArmUplift(random_state=0).fit(data) for data in (counted, written))
    np.testing.assert_allclose(few.predict(X), many.predict(X), atol=1e-7)
    found, other = (
        evaluate_arms({name: TRUTH[arm] for name, arm in zip(names, TRUTH, strict=True)},
                      data, random_state=0)
        for names, data in ((("1", "2"), counted), (("mail", "phone"), written))
    )  # fmt: skip
    for one, two in zip(found.gains.values(), other.gains.values(), strict=True):
        assert one.value == pytest.approx(two.value, abs=1e-7)
        assert one.standard_error == pytest.approx(two.standard_error, rel=1e-6)
    for one, two in zip(found.arms.values(), other.arms.values(), strict=True):
        assert one.auuc.value == pytest.approx(two.auuc.value, abs=1e-7)
        assert one.average.standard_error == pytest.approx(two.average.standard_error)


def test_scores_that_do_not_fit_the_treatments_are_named(model, data):
    with pytest.raises(
        InputError, match=r"scores are of 'mail', .* are 'mail', 'phone'"
    ):
        evaluate_arms({"mail": TRUTH["mail"]}, data)
    with pytest.raises(
        InputError, match=r"a mapping of the treatments 'mail', 'phone'"
    ):
        evaluate_arms(np.zeros((data.n_rows, 2)), data)
    with pytest.raises(
        InputError, match=r"must return one of 0 to 2 for each of 8,000"
    ):
        evaluate_arms(model, data, assignments={"rank": lambda u: u[:, 0]})
    with pytest.raises(InputError, match=r"mapping of names to functions"):
        evaluate_arms(model, data, assignments={"given": np.zeros(data.n_rows)})
    with pytest.raises(InputError, match=r"ArmUplift and evaluate_arms take them all"):
        evaluate_uplift(TRUTH["mail"], data)


def test_a_rule_names_the_treatment(model, data):
    """The first gains where the first feature is high, the second where it is low."""
    rule = learn_rule(model, data, cost={"mail": 0.1, "phone": 0.1}, random_state=0)
    given = {leaf.treatment for leaf in rule.leaves}
    assert {"mail", "phone"} <= given
    X = np.random.default_rng(1).normal(size=(4000, 2))
    chosen = rule.assign(X)
    effects = np.column_stack([0.0 * X[:, 0], 0.3 + 0.5 * X[:, 0], 0.3 - 0.5 * X[:, 0]])
    effects[:, 1:] -= 0.1
    gained = effects[np.arange(4000), chosen].mean()
    assert gained > 0.8 * effects.max(axis=1).mean()
    assert rule.gain.covers(gained, 0.999)
    for sentence, arm in zip(rule.sentences(), rule.treatments, strict=False):
        assert sentence.startswith(f"Give {arm} to people where")
    with pytest.raises(InputError, match="cost names"):
        learn_rule(model, data, cost={"mail": 1.0})
