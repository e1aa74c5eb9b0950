"""Scores without joint labels: equal to their definitions, minimised by the truth."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import paper_problem
from unjoined.errors import InputError
from unjoined.evaluate import HeldOutRows, minmax_objective, weighted_risk

pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture(scope="module")
def problem():
    return paper_problem(b=5.0)


@pytest.fixture(scope="module")
def data(problem):
    return problem.draw(300, random_state=0)


def test_objective_equals_the_papers_formula_row_by_row(data):
    """Eq. (approxLfg) with equal sizes, every sum written out."""
    rng = np.random.default_rng(0)
    f, g = rng.standard_normal((2, data.n_rows))
    total = 0.0
    for i in range(data.n_rows):
        sign = 1.0 if data.population[i] == "1" else -1.0
        if data.kind[i] == "treatment":
            w = sign * (2.0 * data.treatment[i] - 1.0)
            total += 2.0 / 600 * w * f[i] * g[i] - g[i] ** 2 / 1200
        else:
            total += -4.0 / 600 * sign * data.y[i] * g[i] - g[i] ** 2 / 1200
    assert minmax_objective(f, g, **data) == pytest.approx(total, rel=1e-10)


def test_objective_of_the_fit_is_a_saddle_up_to_the_ridges(data):
    """No critic on the basis does better than the fitted one, with the ridge counted."""
    settings = {"basis": "gaussian", "ridge_f": 0.01, "ridge_g": 0.01, "center": False}
    model = MinMaxUplift(**settings, random_state=0).fit(**data)
    f, g = model.predict(data.X), model.critic(data.X)
    beta = model.critic_coef_

    def value(direction, step):
        moved = beta + step * direction
        values = model.basis_(model.scaling_(data.X)) @ moved
        return minmax_objective(f, values, **data) - model.ridge_g * moved @ moved

    best = minmax_objective(f, g, **data) - model.ridge_g * beta @ beta
    for direction in np.random.default_rng(0).standard_normal((10, len(beta))):
        assert value(direction, 1e-3) < best
        assert value(direction, -1e-3) < best


def test_objective_has_squared_outcome_units(data):
    f, g = np.random.default_rng(0).standard_normal((2, data.n_rows))
    y = 5.0 * data.y + 30.0
    other = SeparateLabels(**{**dict(data), "y": y})
    expected = 25.0 * minmax_objective(f, g, **data)
    assert minmax_objective(5.0 * f, 5.0 * g, **other) == pytest.approx(
        expected, rel=1e-10
    )


def test_risk_has_squared_outcome_units_and_no_memory_of_a_shift(data):
    f = np.random.default_rng(0).standard_normal(data.n_rows)
    y = 5.0 * data.y + 30.0
    other = SeparateLabels(**{**dict(data), "y": y})
    assert weighted_risk(5.0 * f, **other) == pytest.approx(
        25.0 * weighted_risk(f, **data)
    )


@pytest.mark.statistical
def test_risk_differences_estimate_the_weighted_squared_error(problem):
    """R(f) - R(u) = E[mu_w nu (f - u)^2]; with logistic policies nu converges to mu_w.

    The difference is an average over tables; its standard error is taken from 40 independent
    draws, and the mean must lie within four of them.
    """
    fresh = problem.draw_joint(200_000, random_state=99).X
    mu_w = problem.policy_gap(fresh)
    expected = np.mean((mu_w * (0.0 - problem.uplift(fresh))) ** 2)
    found = []
    for seed in range(40):
        data = problem.draw(2000, random_state=seed)
        u = problem.uplift(np.asarray(data.X))
        held = HeldOutRows.from_data(
            **data,
            policy_model=LogisticRegression(),
            outcome_model=LogisticRegression(),
            n_folds=2,
        )
        found.append(held.difference(0.0 * u, u, "weighted_risk").value)
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - expected) < 4 * error


def test_risk_orders_estimates_by_their_error(problem):
    data = problem.draw(4000, random_state=1)
    u = problem.uplift(np.asarray(data.X))
    held = HeldOutRows.from_data(**data)
    risks = [
        held.score(scale * u, "weighted_risk") for scale in (1.0, 0.5, 0.0, -0.5, -1.0)
    ]
    assert risks == sorted(risks)


def test_any_policy_model_serves(data, problem):
    u = problem.uplift(np.asarray(data.X))
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    assert weighted_risk(u, **data, policy_model=model) < weighted_risk(
        -u, **data, policy_model=model
    )


def test_score_is_minus_the_risk_and_ignores_target_rows(problem, data):
    model = MinMaxUplift(random_state=0).fit(**data)
    held = problem.draw(200, n_target=30, random_state=5)
    expected = -weighted_risk(model.predict(held.X), **held)
    assert_allclose(model.score(**held), expected)
    without = held.take(held.kind != "target")
    assert_allclose(model.score(**without), expected)


@pytest.mark.parametrize("n_folds", [1, 301])
def test_number_of_folds_is_checked(data, n_folds):
    with pytest.raises(
        InputError, match=f"n_folds={n_folds} must lie between 2 and .* 300"
    ):
        weighted_risk(np.zeros(data.n_rows), **data, n_folds=n_folds)


def test_values_must_be_finite_and_one_per_row(data):
    with pytest.raises(InputError, match="uplift has 3 entries but X has 1200 rows"):
        weighted_risk([1.0, 2.0, 3.0], **data)
    with pytest.raises(InputError, match="critic holds NaN or infinite values"):
        minmax_objective(np.zeros(data.n_rows), np.full(data.n_rows, np.nan), **data)
