"""Scores without joint labels on rows of three populations or more."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

from unjoined import MinMaxUplift, Uplift
from unjoined.data import CellKFold, SimulatedProblem
from unjoined.data.rows import separate_labels
from unjoined.errors import LabelError
from unjoined.evaluate import (
    HeldOutRows,
    fixed_critic_score,
    minmax_objective,
    outcome_risk,
    uplift_scorer,
    weighted_risk,
)
from unjoined.paper import error_bound

pytestmark = pytest.mark.usefixtures("two_folds")

# Probabilities of treatment at three values of x, of up to four populations.
POLICIES = np.array(
    [[0.1, 0.5, 0.8], [0.7, 0.4, 0.1], [0.3, 0.9, 0.4], [0.5, 0.2, 0.9]]
)
BASE, UPLIFT, LAW = (
    np.array([0.2, 0.5, 0.6]),
    np.array([0.5, -0.3, 0.1]),
    np.array([0.3, 0.5, 0.2]),
)
SCORES = ("weighted_risk", "outcome_risk", "fixed_critic")


def population_rows(k, copies=5):
    """All there is to see of k populations, each row with its probability as a weight."""
    rows = []
    for j, policy in enumerate(POLICIES[:k]):
        for x in range(3):
            propensity = BASE[x] + policy[x] * UPLIFT[x]
            rows += [
                (x, y, "outcome", j, p)
                for y, p in ((0, 1 - propensity), (1, propensity))
            ]
            rows += [
                (x, t, "treatment", j, p)
                for t, p in ((0, 1 - policy[x]), (1, policy[x]))
            ]
    x, y, kind, population, weight = map(np.array, zip(*(rows * copies), strict=True))
    return {
        "X": x[:, None].astype(float),
        **separate_labels(y.astype(float), kind),
        "population": population,
        "sample_weight": weight * LAW[x],
    }, x


def population_risk(k, policies=POLICIES, mean_shift=0.0, copies=5):
    """Held-out rows that are the whole population, with the policies and means given."""
    data, x = population_rows(k, copies)
    held = HeldOutRows.from_data(**data, n_folds=2)
    mean = BASE + POLICIES[:k].mean(axis=0) * UPLIFT
    nuisances = type(held.nuisances)(
        policies[:k, x].T, 2.0 * (mean + mean_shift)[x] - 1.0
    )
    return replace(held, nuisances=nuisances), x


def spread(k, policies=POLICIES):
    """The mean over populations of a policy's distance to their mean, times its estimate's."""
    true, found = (P[:k] - P[:k].mean(axis=0) for P in (POLICIES, policies))
    return np.mean(true * found, axis=0)


def test_the_true_uplift_of_several_populations_has_the_least_risk():
    """The whole population: an error h costs E[s h^2], s the spread of the policies, exactly."""
    for k in (2, 3, 4):
        held, x = population_risk(k)
        for h in (np.array([0.2, 0.0, 0.0]), np.array([-0.1, 0.3, 0.1]), -UPLIFT):
            cost = LAW @ (spread(k) * h**2)
            for name, factor in (("outcome_risk", 1.0), ("weighted_risk", 4.0)):
                found = held.score((UPLIFT + h)[x], name) - held.score(UPLIFT[x], name)
                assert found == pytest.approx(factor * cost, abs=1e-12)
                assert found > 0.0


def test_the_weighted_risk_forgives_wrong_policies_and_means():
    """Policies shrunk and moved, means moved by a function of x: u stays the minimum."""
    for k in (2, 3, 4):
        wrong = 0.6 * POLICIES + np.array([0.05, 0.02, -0.03, 0.01])[:, None]
        assert (spread(k, wrong) > 0.0).all()
        held, x = population_risk(k, wrong, mean_shift=np.array([0.3, -0.2, 0.1]))
        for h in (np.array([0.2, 0.0, 0.0]), np.array([-0.1, 0.3, 0.1]), -UPLIFT):
            found = held.score((UPLIFT + h)[x], "weighted_risk")
            found -= held.score(UPLIFT[x], "weighted_risk")
            assert found == pytest.approx(
                4.0 * LAW @ (spread(k, wrong) * h**2), abs=1e-12
            )


@pytest.mark.parametrize("k", [2, 3, 4])
def test_critics_of_every_contrast_leave_the_true_uplift_alone(k):
    """What they find is 4 E[s h^2], but for noise that halves with twice the rows, and the ridge.

    The ridge of 0.001 is below a hundredth of what the functions vary at each of the three x.
    """
    (half, x), (whole, xx) = (population_risk(k, copies=copies) for copies in (50, 100))
    for h in (np.array([0.2, 0.0, 0.0]), np.array([-0.1, 0.3, 0.1]), -UPLIFT):
        few = half.difference((UPLIFT + h)[x], UPLIFT[x], "fixed_critic").value
        many = whole.difference((UPLIFT + h)[xx], UPLIFT[xx], "fixed_critic").value
        assert 2.0 * many - few == pytest.approx(
            4.0 * LAW @ (spread(k) * h**2), rel=0.01
        )


def test_the_score_does_not_depend_on_the_order_of_the_populations():
    data, x = population_rows(3, copies=5)
    held, _ = population_risk(3)
    order = [2, 0, 1]
    named = np.array([1, 2, 0])[
        data["population"]
    ]  # population 0 is now the second one
    other = HeldOutRows.from_data(**{**data, "population": named}, n_folds=2)
    policies = held.nuisances.policies[:, order]
    nuisances = type(held.nuisances)(policies, held.nuisances.outcome_mean)
    other = replace(other, nuisances=nuisances)
    f, none = np.array([0.3, -0.2, 0.4])[x], np.zeros(len(x))
    for name in SCORES:
        assert other.score(f, name) == pytest.approx(held.score(f, name), rel=1e-9)
        one, two = (
            rows.difference(f, none, name).standard_error for rows in (held, other)
        )
        assert one == pytest.approx(two, rel=1e-9)


def three_regions():
    """An outcome with a linear effect, and three policies that each follow another feature."""
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            "A": lambda X: 1 / (1 + np.exp(-2 * X[:, 0])),
            "B": lambda X: 1 / (1 + np.exp(2 * X[:, 0])),
            "C": lambda X: np.full(len(X), 0.5),
        },
        outcome=lambda X, treated, rng: (
            X[:, 1] + treated * X[:, 0] + rng.standard_normal(len(X))
        ),
        outcome_mean=lambda X, treated: X[:, 1] + treated * X[:, 0],
    )


def test_held_out_scores_of_three_populations_find_the_better_estimate():
    """With fitted policies and means, and a difference of more than four standard errors."""
    problem = three_regions()
    data = problem.draw(800, random_state=0)
    held = HeldOutRows.from_data(**data, n_folds=2)
    u = problem.uplift(data.X)
    for name in SCORES:
        gain = held.difference(0.0 * u, u, name)
        assert gain.value > 4 * gain.standard_error
    for score, name in ((weighted_risk, 0), (outcome_risk, 1), (fixed_critic_score, 2)):
        assert score(u, **data, n_folds=2) == held.score(u, SCORES[name])


def test_estimators_are_scored_on_rows_of_three_populations():
    data = three_regions().draw(60, random_state=0)
    two = data.take(data.population != "C")
    model = MinMaxUplift(basis="linear").fit(**two)
    assert model.score(**data) == -weighted_risk(model.predict(data.X), **data)
    scorer = uplift_scorer("outcome_risk")
    labels = {name: data[name] for name in ("treatment", "population")}
    expected = -outcome_risk(model.predict(data.X), **data)
    assert scorer(model, data.X, data.y, **labels) == expected


@pytest.mark.slow
def test_a_grid_of_families_is_searched_on_three_populations():
    data = three_regions().draw(400, random_state=0)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            Uplift(random_state=0),
            {"family": ["mean", "gaussian"]},
            scoring=uplift_scorer("outcome_risk"),
            cv=CellKFold(2),
        ).fit(**data)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(search.predict(data.X)).all()


def test_folds_hold_rows_of_every_table_of_three_populations():
    data = three_regions().draw(10, random_state=0)
    for train, test in CellKFold(5).split(**data):
        assert [cell.n_rows for cell in data.take(test).summary()] == [2] * 6
        assert [cell.n_rows for cell in data.take(train).summary()] == [8] * 6


def test_the_objective_of_the_paper_says_that_it_is_for_two_populations():
    data = three_regions().draw(20, random_state=0)
    f = np.ones(data.n_rows)
    with pytest.raises(LabelError, match=r"found 3: 'A', 'B', 'C' .*outcome_risk"):
        minmax_objective(f, f, **data)


def test_an_error_bound_is_for_two_populations():
    data = three_regions().draw(100, random_state=0)
    model = MinMaxUplift(random_state=0).fit(**data.take(data.population != "C"))
    with pytest.raises(
        LabelError, match=r"error_bound found 3: 'A', 'B', 'C'\. Choose two of"
    ):
        error_bound(model, data)


@pytest.mark.slow
def test_three_populations_are_not_worse_than_the_best_pair():
    """Of one design that leaves the third little to add; at most 3.1 standard errors worse.

    If three are as good as the best pair, that fails by chance in 1 of 1,000 studies of a quantity.
    """
    script = runpy.run_path(
        str(Path(__file__).parents[2] / "benchmarks" / "populations.py")
    )
    for part in script["PARTS"]:
        for name, row in script["study"](part, "a policy in the middle", 8).items():
            assert row["worse"] <= 3.1 * row["standard error"], name
