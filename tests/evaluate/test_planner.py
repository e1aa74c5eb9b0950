"""Laws of `plan_study`: closed forms, and what it asks for is what is needed."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unjoined.data import SimulatedProblem, campaign_problem
from unjoined.errors import UnjoinedError
from unjoined.evaluate import StudyGuess, evaluate_uplift, plan_study

pytestmark = pytest.mark.usefixtures("two_folds")

N = 1000
NOISE = {"average": (1.0, 1.0), "auuc": (1 / 3, 0.5), "top": (0.3, 0.3)}


@pytest.fixture(scope="module")
def pilot():
    """Policies 0.8 and 0.2, an uplift of 1 for everyone, noise of variance 1."""
    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: X[:, 0] + treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: X[:, 0] + treated,
    )
    return problem.draw(N, random_state=0)


@pytest.mark.parametrize("quantity", NOISE)
def test_a_pilots_standard_error_is_the_closed_form(pilot, quantity):
    # By a score that has nothing to do with uplift. Of an outcome's variance, 1 is noise and 0.16
    # that some of a population are treated. The estimated gap of 0.6 has a standard error of 0.018,
    # 3 percent, and a variance from 2 N rows one of 3 percent, half of that in its root; residuals
    # of models fitted to 800 rows have 1 to 2 percent more. Three standard errors: 12 percent.
    size, theta = NOISE[quantity]
    variance = 2 * 1.16 * size / 0.36 / N + theta**2 * 2 * 0.16 / 0.36 / N
    score = np.random.default_rng(0).random(pilot.n_rows)
    plan = plan_study(pilot, quantity=quantity, score=score)
    found = next(p for p in plan.table if p.gap == plan.gap and p.rows == N)
    assert found.standard_error == pytest.approx(np.sqrt(variance), rel=0.12)
    assert found.strength == pytest.approx(N * 0.36 / 0.32, rel=0.12)
    assert not plan.is_rough


def test_a_plan_for_the_pilot_again_is_its_own_standard_error(limits):
    limits("model.crossfit", N_FOLDS=2)
    data = campaign_problem().draw(500, random_state=3)
    score = campaign_problem().uplift(np.asarray(data.X))
    options = {"rules": {"top": ("share", 0.3)}, "random_state": 0}
    found = evaluate_uplift(score, data, **options)
    for quantity in ("average", "auuc", "qini", "top"):
        of = found.rules["top"] if quantity == "top" else getattr(found, quantity)
        plan = plan_study(data, quantity=quantity, score=score, random_state=0)
        same = next(p for p in plan.table if p.gap == plan.gap and p.rows == 500)
        assert same.standard_error == pytest.approx(of.standard_error), quantity


def test_what_is_asked_for_reaches_the_wanted_precision(pilot):
    plan = plan_study(pilot, half_width=0.05, level=0.9, treatment_rows=0.5)
    need = plan.needed
    assert need.half_width == pytest.approx(0.05, rel=1e-3)
    assert need.half_width <= 0.05
    assert need.treatment_rows == np.ceil(need.rows / 2)
    assert need.half_width / need.standard_error == pytest.approx(1.645, abs=1e-3)
    needed = [p.rows for p in plan.needs]
    assert needed == sorted(needed, reverse=True)  # the larger the gap, the fewer rows


def test_a_guess_is_the_formula_and_says_that_it_is_rough():
    guess = StudyGuess(gap=0.3, outcome_sd=0.4, uplift=0.1, uplift_sd=0.2, treated=0.4)
    plan = plan_study(guess, standard_error=0.01)
    n = plan.needed.rows
    propensities = np.array([0.55, 0.25])
    luck = (0.1**2 + 0.2**2) * np.sum(propensities * (1 - propensities))
    variance = (2 * 0.4**2 + luck) / 0.3**2 / n + 0.2**2 / (4 * n)
    assert np.sqrt(variance) == pytest.approx(0.01, rel=1e-3)
    assert plan.is_rough
    assert "rough" in str(plan)


def test_a_small_pilot_says_how_rough_its_plan_is(pilot):
    """At 125 rows by a quarter, and by less with more rows; rows needed go with its square."""
    at = np.concatenate([cell[:125] for cell in np.split(np.arange(4 * N), 4)])
    small, large = (
        plan_study(data, half_width=0.05) for data in (pilot.take(at), pilot)
    )
    assert small.scatter == pytest.approx(0.25)
    assert large.scatter < 0.06
    assert "small (125 rows in its smallest table)" in str(small)
    assert "scatter by about 25%, and the rows they ask for by 50%." in str(small)
    assert "On average they ask for too much" in str(small)
    assert small.to_dict()["scatter"] == small.scatter
    assert "rough" not in str(large)
    assert plan_study(StudyGuess(gap=0.3, outcome_sd=1.0)).scatter is None


@pytest.mark.slow
def test_standard_errors_of_pilots_scatter_as_is_said():
    """Over 40 pilots a spread is known to 11 percent; designs differ by as much as a third."""
    problem, promised = campaign_problem(), []
    for seed in range(40):
        plan = plan_study(problem.draw(125, random_state=50 + seed), random_state=seed)
        promised.append(next(p for p in plan.table if p.gap == plan.gap).standard_error)
    assert np.std(promised) / np.mean(promised) == pytest.approx(plan.scatter, rel=0.4)


def test_treatment_rows_are_called_cheap_only_where_they_are():
    small = plan_study(StudyGuess(gap=0.4, outcome_sd=1.0, uplift=0.1), half_width=0.05)
    large = plan_study(StudyGuess(gap=0.4, outcome_sd=1.0, uplift=2.0), half_width=0.05)
    assert "Treatment rows are cheap" in str(small)
    assert "cheap" not in str(large)
    assert sum(large.shares.values()) == pytest.approx(1.0)


def test_treatment_rows_are_enough_to_show_the_gap():
    guess = StudyGuess(gap=0.05, outcome_sd=0.1)
    plan = plan_study(guess, standard_error=1.0, treatment_rows=0.01)
    assert plan.needed.strength >= 17.0


def test_plans_are_shown_as_text_table_and_picture():
    plan = plan_study(
        StudyGuess(gap=0.4, outcome_sd=1.0), quantity="qini", half_width=0.1
    )
    frame = plan.to_frame()
    assert list(frame["half_width"]) == [p.half_width for p in plan.table]
    assert isinstance(frame, pd.DataFrame)
    assert plan.to_frame("polars").equals(pl.from_pandas(frame, nan_to_null=False))
    assert plan._repr_html_().count("<table>") == 2
    assert (
        len(plan.plot().lines) == len({p.gap for p in plan.table}) + 1
    )  # and what is wanted
    assert plan.to_dict()["needs"][0]["rows"] == plan.needs[0].rows


def test_wrong_plans_say_what_is_wrong(pilot):
    cases = (
        (lambda p: plan_study(p, half_width=0.1, standard_error=0.1), "not both"),
        (
            lambda p: plan_study(p, half_width=0.0),
            "half_width must be a finite number above 0",
        ),
        (lambda p: plan_study(p, quantity="gini"), "quantity"),
        (lambda p: plan_study(p, quantity="top", share=0.0), "share must lie"),
        (lambda p: plan_study(p, treatment_rows=-1), "treatment_rows"),
        (lambda p: plan_study(p, score=[1.0]), "score"),
        (lambda p: plan_study(p.take(np.arange(0, 4 * N, 100))), "50 rows or more"),
        (lambda p: plan_study(3.0), "SeparateLabels"),
        (lambda p: StudyGuess(gap=0.9, outcome_sd=1.0, treated=0.2), "at most 0.4"),
        (lambda p: StudyGuess(gap=0.1, outcome_sd=0.0), "outcome_sd"),
        (
            lambda p: StudyGuess(gap=0.1, outcome_sd=1.0, treated=1.5),
            "treated must lie",
        ),
    )
    for call, words in cases:
        with pytest.raises(UnjoinedError, match=words):
            call(pilot)
