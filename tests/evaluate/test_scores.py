"""Scores without joint labels: equal to slow formulas, minimised by the truth, honest errors."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn import config_context
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import CellKFold, SimulatedProblem, paper_problem
from unjoined.errors import InputError
from unjoined.evaluate import (
    HeldOutRows,
    fixed_critic_score,
    outcome_risk,
    uplift_scorer,
    weighted_risk,
)
from unjoined.evaluate.scores import SCORES
from unjoined.evaluate.terms import labelled_rows
from unjoined.model.basis import Scaling
from unjoined.model.draw import draw_basis
from unjoined.model.regressors import Nuisances, cross_fit

pytestmark = pytest.mark.usefixtures("two_folds")

QUICK = {"policy_model": LogisticRegression(), "outcome_model": Ridge()}
FUNCTIONS = {
    "weighted_risk": weighted_risk,
    "fixed_critic": fixed_critic_score,
    "outcome_risk": outcome_risk,
}


def spend_problem(*, slope=1.0, policies=None):
    """A real outcome with a main effect of the given size; uplift 1 + x_0."""

    def mean(X, treated):
        return 10.0 + slope * (X[:, 1] + np.sin(X[:, 0])) + treated * (1.0 + X[:, 0])

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies=policies
        or {"A": lambda X: expit(1.0 + X[:, 1]), "B": lambda X: expit(-1.0 + X[:, 1])},
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def constant_problem():
    """Policies that do not depend on the features: the gap is 0.6 everywhere."""
    return spend_problem(
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        }
    )


def true_rows(problem, data):
    """Return held-out rows that know the true policies and outcome means."""
    X = np.asarray(data.X)
    rows, used = labelled_rows(**dict(data), sample_weight=None)
    e = np.column_stack(
        [problem.policies[name](X) for name in sorted(problem.policies)]
    )
    m = problem.outcome_mean(X, np.zeros(len(X))) + e.mean(axis=1) * problem.uplift(X)
    return HeldOutRows(
        rows, Nuisances(e, (m - rows.coding.offset) / rows.coding.scale), used
    )


@pytest.fixture(scope="module")
def data():
    return spend_problem().draw(
        {("outcome", "A"): 60, ("outcome", "B"): 40} | SIZES, random_state=0
    )


SIZES = {("treatment", "A"): 50, ("treatment", "B"): 70}


@pytest.fixture(scope="module")
def held(data):
    return true_rows(spend_problem(), data)


@pytest.fixture(scope="module")
def f(data):
    return np.random.default_rng(0).standard_normal(data.n_rows)


def test_risks_equal_their_formulas_row_by_row(data, held, f):
    """Unequal tables: each cell is an average of its own and counts half."""
    e, m = held.nuisances.policies, held.nuisances.outcome_mean
    n = {(k, p): len(data.rows(k, p)) for k in ("outcome", "treatment") for p in "AB"}
    weighted = residual = 0.0
    for i in range(data.n_rows):
        k, sign = (0, 1.0) if data.population[i] == "A" else (1, -1.0)
        share = 0.5 / n[data.kind[i], data.population[i]]
        nu, mean_e = e[i, 0] - e[i, 1], (e[i, 0] + e[i, 1]) / 2
        if data.kind[i] == "treatment":
            weighted += share * sign * 2 * (data.treatment[i] - mean_e) * nu * f[i] ** 2
        else:
            weighted -= 4 * share * sign * (data.y[i] - m[i]) * nu * f[i]
            residual += share * (data.y[i] - m[i] - (e[i, k] - mean_e) * f[i]) ** 2
    assert held.score(f, "weighted_risk") == pytest.approx(weighted, rel=1e-12)
    assert held.score(f, "outcome_risk") == pytest.approx(residual, rel=1e-12)


def critic_terms(held, f):
    """Return the rows' linear terms a_i, (n, q), and the quadratic form M, by definition."""
    rows, nuisances = held.rows, held.nuisances
    share, Z = rows.share, Scaling.of_rows(rows.X, rows.share)(rows.X)
    Psi = draw_basis(
        "smooth",
        Z,
        n_centers=50,
        width="median",
        rng=np.random.RandomState(0),
        weight=rows.relative,
    )(Z)
    is_treatment = rows.kind == "treatment"
    center = np.where(
        is_treatment, nuisances.policies.sum(axis=1) - 1, nuisances.outcome_mean
    )
    signed = rows.sign * (rows.label - center) * np.where(is_treatment, 2 * f, -4.0)
    M = sum(s * np.outer(psi, psi) for s, psi in zip(share, Psi, strict=True))
    return (share * signed)[:, None] * Psi, M + 2e-3 * np.eye(Psi.shape[1])


def test_fixed_critic_is_the_sum_over_pairs_of_different_rows(held, f):
    """The maximum of J is a sum over all pairs; without a row's pair with itself, no noise."""
    a, M = critic_terms(held, f)
    pairs = 0.5 * a @ np.linalg.solve(M, a.T)
    expected = pairs.sum() - np.trace(pairs)
    assert held.score(f, "fixed_critic") == pytest.approx(expected, rel=1e-6)


def test_fixed_critic_is_a_maximum(held, f):
    """No critic of the family has a larger penalised objective than the score implies."""
    a, M = critic_terms(held, f)
    total = a.sum(axis=0)
    noise = 0.5 * np.trace(a @ np.linalg.solve(M, a.T))
    highest = held.score(f, "fixed_critic") + noise
    best = np.linalg.solve(M, total)
    for step in np.random.default_rng(1).standard_normal((20, len(total))):
        beta = best + 0.1 * step
        assert total @ beta - 0.5 * beta @ M @ beta < highest


def test_outcome_risk_is_the_weighted_risk_without_treatment_labels(held, f):
    rows, nu = held.rows, held.nuisances.gap
    at = rows.kind == "outcome"
    z = rows.sign * (rows.label - held.nuisances.outcome_mean)
    other = rows.share[at] @ (nu**2 * f**2 - 4 * z * nu * f)[at]
    difference = held.difference(f, 0 * f, "outcome_risk").value
    assert 4 * difference == pytest.approx(other, rel=1e-10)


def test_functions_and_held_out_rows_agree(data, f):
    for name in SCORES:
        held = HeldOutRows.from_data(**data, **QUICK)
        assert FUNCTIONS[name](f, **data, **QUICK) == held.score(f, name)
        g = f + 1.0
        gain = held.difference(f, g, name)
        assert gain.value == pytest.approx(
            held.score(f, name) - held.score(g, name), rel=1e-9
        )
        assert gain.standard_error == pytest.approx(
            held.difference(g, f, name).standard_error
        )
        assert held.difference(f, f, name).standard_error == 0.0


def test_units_are_squared_outcome_units_and_a_shift_changes_nothing(data, f):
    for name in SCORES:
        y = 5.0 * data.y + 1000.0
        other = SeparateLabels(**{**dict(data), "y": y})
        found = FUNCTIONS[name](5.0 * f, **other, **QUICK)
        assert found == pytest.approx(
            25.0 * FUNCTIONS[name](f, **data, **QUICK), rel=1e-6
        )


@pytest.mark.parametrize("name", ["weighted_risk", "outcome_risk"])
def test_whole_weights_equal_repeated_rows(name, data, f):
    """Not so for the critics: a row's pair with its copy would be a pair of different rows."""
    weight = np.random.default_rng(0).integers(0, 3, data.n_rows)
    take = np.repeat(np.arange(data.n_rows), weight)
    problem = spend_problem()
    rows, given = labelled_rows(**dict(data), sample_weight=weight)
    used = given.is_used
    true = true_rows(problem, data).nuisances
    once = HeldOutRows(
        rows, Nuisances(true.policies[used], true.outcome_mean[used]), given
    )
    twice = true_rows(problem, data.take(take))
    assert once.score(f, name) == pytest.approx(twice.score(f[take], name), rel=1e-10)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", SCORES)
def test_differences_estimate_the_squared_error_and_know_their_own(name):
    """With the gap 0.6, R(u + c) - R(u) = 0.36 c^2, a quarter of it for the outcome risk.

    For the critics 0.6 c lies in their span, so the maximum is 0.36 c^2 too, less at most the
    share 0.001 the ridge takes. Over 300 draws the mean must lie within four of its standard
    errors, and the stated error within 20 percent of the spread: that is 4 / sqrt(2 * 300) plus
    the 3 percent that stated errors of 200 rows per table themselves vary on average.
    """
    problem, c = constant_problem(), 1.0
    gains = []
    for seed in range(300):
        data = problem.draw(200, random_state=seed)
        u = problem.uplift(np.asarray(data.X))
        gains.append(true_rows(problem, data).difference(u + c, u, name))
    values = np.array([gain.value for gain in gains])
    expected = 0.36 * c**2 * (0.25 if name == "outcome_risk" else 1.0)
    spread = values.std(ddof=1)
    assert abs(values.mean() - expected) < 4 * spread / np.sqrt(300) + 0.001 * expected
    stated = np.sqrt(np.mean([gain.standard_error**2 for gain in gains]))
    assert stated == pytest.approx(spread, rel=0.2)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    "problem", [spend_problem(), paper_problem(b=5.0)], ids=["real", "binary"]
)
def test_the_true_uplift_has_the_smallest_score_of_all_tried(problem):
    """Policies and means are cross-fitted: departures from the truth cost more than 3 errors."""
    data = problem.draw(8000, random_state=0)
    X = np.asarray(data.X)
    u, held = problem.uplift(X), HeldOutRows.from_data(**data)
    size = np.sqrt(np.mean(u**2))
    for name in SCORES:
        for other in (
            0 * u,
            0.5 * u,
            1.5 * u,
            -u,
            u + 0.5 * size,
            u + size * np.sin(X[:, 0]),
        ):
            gain = held.difference(other, u, name)
            assert gain.value > 3 * gain.standard_error, (name, gain)


def test_centring_takes_a_main_effect_out_of_the_noise():
    """A main effect ten times the noise: the error of a difference falls by more than half.

    Without centring the linear term carries y itself, of variance 100 * 1.4 + ..., with it only
    what the means leave, of variance 1 + e (1 - e) u^2 < 1.6 on average.
    """
    problem = spend_problem(slope=10.0)
    data = problem.draw(1000, random_state=0)
    u = problem.uplift(np.asarray(data.X))
    centred, plain = (
        HeldOutRows.from_data(
            **data, outcome_model=model, policy_model=LogisticRegression()
        )
        for model in (None, DummyRegressor())
    )
    for name in ("weighted_risk", "outcome_risk"):
        errors = [
            held.difference(u, 0 * u, name).standard_error for held in (centred, plain)
        ]
        assert errors[0] < 0.5 * errors[1]


def test_cross_fits_do_not_see_their_own_row(data):
    """A label far off moves the means of other folds' rows, never those of its own fold."""
    rows, _ = labelled_rows(**dict(data), sample_weight=None)
    at = rows.at("outcome", 0)[0]

    def means(label):
        moved = rows.label.copy()
        moved[at] = label
        return cross_fit(
            replace(rows, label=moved),
            policy_model=DummyClassifier(),
            outcome_model=DummyRegressor(),
            n_folds=4,
            rng=np.random.RandomState(0),
        ).outcome_mean

    moved = means(1e6) != means(0.0)
    assert not moved[at]
    assert 0.7 < moved.mean() < 0.8  # the other three folds


def test_default_models_follow_curved_policies_and_outcomes():
    """At 2,000 rows a table less than a tenth of the variance is left unexplained."""
    problem = spend_problem(slope=2.0)
    data = problem.draw(2000, random_state=0)
    true, found = (
        true_rows(problem, data).nuisances,
        HeldOutRows.from_data(**data).nuisances,
    )
    assert np.mean((found.gap - true.gap) ** 2) < 0.1 * np.mean(true.gap**2)
    assert (
        np.mean((found.outcome_mean - true.outcome_mean) ** 2)
        < 0.1 * true.outcome_mean.var()
    )


def test_a_rare_outcome_and_a_large_table_are_fitted_too():
    """Fewer than ten events: no penalty is chosen; more rows than tuning needs: some are drawn."""
    data = spend_problem().draw(6000, random_state=0)
    y = np.array(data.y)
    outcome = data.kind == "outcome"
    y[outcome] = 0.0
    for population in "AB":
        y[data.rows("outcome", population)[:4]] = 1.0
    held = HeldOutRows.from_data(**{**dict(data), "y": y}, n_folds=2)
    share = (held.nuisances.outcome_mean + 1) / 2
    assert share.mean() == pytest.approx(4 / 6000, rel=0.5)


def test_a_cell_of_one_row_has_no_standard_error(data):
    keep = np.concatenate(
        [
            data.rows("outcome", "A")[:1],
            data.rows("outcome", "B"),
            np.flatnonzero(data.kind == "treatment"),
        ]
    )
    held = true_rows(spend_problem(), data.take(keep))
    f = np.ones(len(keep))
    assert np.isnan(held.difference(f, 0 * f, "outcome_risk").standard_error)


def test_unknown_scores_and_too_many_folds_are_refused(data, held, f):
    with pytest.raises(
        InputError, match=r"name must be one of 'weighted_risk', .* got 'r2'"
    ):
        held.score(f, "r2")
    with pytest.raises(
        InputError, match=r"name must be one of 'weighted_risk', .* got 'r2'"
    ):
        uplift_scorer("r2")
    with pytest.raises(
        InputError, match=r"n_folds=45 must lie .* smallest outcome table, 40"
    ):
        outcome_risk(f, **data, n_folds=45)
    with pytest.raises(InputError, match="uplift has 3 entries but X has 220 rows"):
        held.score([1.0, 2.0, 3.0], "outcome_risk")


def test_target_rows_and_rows_of_no_weight_are_left_out(data):
    problem = spend_problem()
    more = problem.draw(50, n_target=30, random_state=3)
    u = problem.uplift(np.asarray(more.X))
    weight = np.random.default_rng(0).integers(0, 2, more.n_rows)
    kept = (weight > 0) & (more.kind != "target")
    for name, score in FUNCTIONS.items():
        found = score(u, **{**dict(more), "sample_weight": weight}, n_folds=2, **QUICK)
        assert found == score(u[kept], **more.take(kept), n_folds=2, **QUICK), name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_grid_search_takes_the_scorer(name):
    """Scores are those of the function on each fold, and models are fitted once per fold."""
    data = paper_problem(b=5.0).draw(300, random_state=0)
    scorer = uplift_scorer(name)
    model, cv = MinMaxUplift(random_state=0), CellKFold(2, random_state=1)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            model, {"ridge_f": [0.01, 1e4]}, scoring=scorer, cv=cv, error_score="raise"
        ).fit(**data)
    assert len(scorer._held) == 2  # policies and means of two folds, for four fits
    assert search.best_params_ == {"ridge_f": 0.01}
    for j, (train, test) in enumerate(cv.split(**data)):
        model.set_params(ridge_f=0.01).fit(**data.take(train))
        expected = -FUNCTIONS[name](model.predict(data.X[test]), **data.take(test))
        assert search.cv_results_[f"split{j}_test_score"][0] == pytest.approx(expected)


def test_a_weighted_scorer_asks_for_weights():
    data = paper_problem(b=5.0).draw(400, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, data.n_rows)
    model = MinMaxUplift(ridge_f=0.01, random_state=0)
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
        search = GridSearchCV(
            model,
            {"ridge_f": [0.01]},
            scoring=uplift_scorer("outcome_risk", weighted=True),
            cv=CellKFold(2).set_split_request(sample_weight=False),
            error_score="raise",
        ).fit(**data, sample_weight=weight)
    train, test = next(CellKFold(2).split(**data))
    model.fit(**data.take(train), sample_weight=weight[train])
    expected = -outcome_risk(
        model.predict(data.X[test]), **data.take(test), sample_weight=weight[test]
    )
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected)


def test_the_scorer_forgets_old_rows_and_travels_light(limits):
    limits("evaluate.scores", REMEMBERED=2)
    scorer = uplift_scorer("outcome_risk", weighted=True)
    model = DummyRegressor().fit([[0.0, 0.0]], [0.0])
    for seed in range(3):
        data = paper_problem(b=5.0).draw(20, random_state=seed)
        # Names of populations may come as objects.
        labels = {
            **dict(data),
            "population": np.asarray(data.population).astype(object),
        }
        scorer(model, **labels)
    assert len(scorer._held) == 2
    copy = pickle.loads(pickle.dumps(scorer))  # noqa: S301 - our own bytes
    assert copy._held == {}
    assert repr(copy) == "uplift_scorer('outcome_risk', weighted=True)"
    assert repr(uplift_scorer("fixed_critic")) == "uplift_scorer('fixed_critic')"
    assert_array_equal([copy(model, **labels)], [scorer(model, **labels)])
    assert_allclose(copy(model, **labels), -outcome_risk(np.zeros(80), **labels))
