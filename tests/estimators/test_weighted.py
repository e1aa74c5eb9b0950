"""Weighted least squares: the minimum of its risk, in closed form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from unjoined import SeparateLabels, WeightedUplift
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.estimators.weighted import RIDGES, fold_sums, risk_path, solve_weighted
from unjoined.evaluate import qini
from unjoined.model import LinearBasis
from unjoined.model.regressors import Nuisances

pytestmark = pytest.mark.usefixtures("two_folds")


def mean(X, treated):
    return 10.0 + np.sin(X[:, 1]) + treated * (1.0 + X[:, 0])


def spend_problem(policies=None):
    """A real outcome; uplift 1 + x_0."""
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies=policies
        or {"A": lambda X: expit(1.0 + X[:, 1]), "B": lambda X: expit(-1.0 + X[:, 1])},
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


EVERYONE = {"A": lambda X: np.ones(len(X)), "B": lambda X: np.zeros(len(X))}
# Linear models are quick; no test below is about the default ones unless it says so.
QUICK = {
    "policy_model": LogisticRegression(),
    "outcome_model": LinearRegression(),
    "n_folds": 2,
}


@pytest.fixture(scope="module")
def data():
    return spend_problem().draw(300, random_state=0)


def parts(data, seed=0):
    """Return rows, some nuisances, basis values and folds to try the pure functions on."""
    rng = np.random.default_rng(seed)
    rows = label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
    )
    n = len(rows.label)
    nuisances = Nuisances(
        rng.uniform(0.05, 0.95, (n, 2)), 10.0 + rng.standard_normal(n)
    )
    Phi = np.column_stack([np.ones(n), rows.X, rows.X**2])
    return rows, nuisances, Phi, rng.integers(0, 3, n)


def test_sums_equal_the_risk_written_out(data):
    """alpha' H alpha - 4 b' alpha is the weighted risk of f = Phi alpha, row by row."""
    rows, nuisances, Phi, fold = parts(data)
    H, b = fold_sums(Phi, rows, nuisances, fold)
    alpha = np.random.default_rng(1).standard_normal(Phi.shape[1])
    total = 0.0
    for i, f in enumerate(Phi @ alpha):
        e_1, e_2 = nuisances.policies[i]
        nu, sign = e_1 - e_2, rows.sign[i]
        if rows.kind[i] == "outcome":
            z = sign * (rows.label[i] - nuisances.outcome_mean[i])
            total -= rows.share[i] * 4.0 * z * nu * f
        else:
            total += (
                rows.share[i] * sign * (rows.label[i] - (e_1 + e_2 - 1)) * nu * f**2
            )
    assert alpha @ H.sum(axis=0) @ alpha - 4 * b.sum(axis=0) @ alpha == pytest.approx(
        total
    )


def test_solution_has_no_gradient_and_leaves_unknown_directions_alone():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((6, 6)), rng.standard_normal(6)
    H = A @ A.T
    alpha = solve_weighted(H, b, 0.3)
    assert_allclose(2 * H @ alpha - 4 * b + 2 * 0.3 * alpha, 0.0, atol=1e-10)
    flat = np.diag([1.0, 2.0, 0.0])
    assert_allclose(
        solve_weighted(flat, np.array([1.0, 1.0, 5.0]), 0.0), [2.0, 1.0, 0.0]
    )


def test_path_equals_slow_refits(data):
    """Each fold left out in turn, its risk written out, for every ridge."""
    rows, nuisances, Phi, fold = parts(data)
    H, b = fold_sums(Phi, rows, nuisances, fold)
    H = H + 0.5 * np.eye(Phi.shape[1])  # definite, so that every ridge is allowed
    path = risk_path(H, b, 2.0)
    for ridge, risk in zip(path.ridges, path.risks, strict=True):
        total = 0.0
        for j in range(3):
            others = [i for i in range(3) if i != j]
            alpha = solve_weighted(
                H[others].sum(axis=0) * 1.5, b[others].sum(axis=0) * 1.5, ridge
            )
            total += alpha @ H[j] @ alpha - 4 * b[j] @ alpha
        assert risk == pytest.approx(4.0 * total, rel=1e-8)
    assert path.best == path.ridges[np.argmin(path.risks)]


def test_path_leaves_out_ridges_that_make_no_convex_problem():
    H, b = np.array([np.diag([1.0, -0.01])] * 3), np.ones((3, 2))
    path = risk_path(H, b, 1.0)  # all rows: the eigenvalue is -0.03
    assert_array_equal(np.isinf(path.risks), RIDGES < 0.03)
    hopeless = risk_path(-100.0 * np.abs(H), b, 1.0)
    assert hopeless.best == 2 * 300.0  # whatever happens, the problem is convex


@pytest.mark.statistical
def test_the_truth_solves_the_equations_on_average():
    """E[H] alpha = 2 E[b] at the true coefficients, for any m(x) and any nu.

    Here the true gap is given times a wrong positive factor. Means over 200 draws must lie within
    4.5 of their standard errors.
    """
    problem, alpha = spend_problem(), np.array([1.0, 1.0, 0.0])
    residuals = []
    for seed in range(200):
        data = problem.draw(150, random_state=seed)
        X = np.asarray(data.X)
        rows = label_rows(
            X, y=data.y, treatment=data.treatment, population=data.population
        )
        e = np.column_stack([problem.policies[name](X) for name in "AB"])
        wrong = (1.0 + 0.5 * np.sin(X[:, 0]))[:, None]
        given = Nuisances(0.5 + (e - 0.5) * wrong, np.full(len(X), 10.0))
        Phi, fold = LinearBasis(2)(X), np.zeros(len(X), dtype=np.int64)
        H, b = fold_sums(Phi, rows, given, fold)
        residuals.append(H[0] @ alpha - 2 * b[0])
    error = np.std(residuals, axis=0, ddof=1) / np.sqrt(200)
    assert (np.abs(np.mean(residuals, axis=0)) < 4.5 * error).all()


@pytest.mark.statistical
def test_linear_uplift_is_found_within_its_error():
    """The mean estimate at x = 0 over eight draws is as far from 1 as their spread allows."""
    found = [
        WeightedUplift(basis="linear", ridge=0.0, random_state=0, **QUICK)
        .fit(**spend_problem().draw(2000, random_state=seed))
        .predict([[0.0, 0.0]])[0]
        for seed in range(8)
    ]
    # The 0.1 percent quantile of Student's t with 7 degrees of freedom is 4.8.
    assert abs(np.mean(found) - 1.0) < 4.8 * np.std(found, ddof=1) / np.sqrt(8)


def test_whole_weights_equal_repeated_rows():
    """Known policies and a constant m: then no fold matters, and the law is exact."""
    data = spend_problem(EVERYONE).draw(60, random_state=0)
    weight = np.random.default_rng(0).integers(0, 3, data.n_rows)
    model = WeightedUplift(
        basis="linear",
        ridge=0.1,
        n_folds=2,
        outcome_model=DummyRegressor(strategy="constant", constant=9.0),
    )
    repeated = data.take(np.repeat(np.arange(data.n_rows), weight))
    expected = model.fit(**repeated).predict(data.X)
    weighted = model.fit(**{**dict(data), "sample_weight": weight}).predict(data.X)
    assert_allclose(weighted, expected, rtol=1e-8)


@pytest.mark.parametrize("ridge", [0.05, "auto"])
def test_a_shift_of_the_outcome_changes_nothing_and_its_scale_scales(data, ridge):
    model = WeightedUplift(ridge=ridge, n_centers=20, n_folds=2, random_state=0)
    expected = model.fit(**data).predict(data.X)
    y = np.where(data.kind == "outcome", 5.0 * data.y + 1000.0, data.y)
    moved = model.fit(**SeparateLabels(**{**dict(data), "y": y})).predict(data.X)
    assert_allclose(moved, 5.0 * expected, rtol=1e-6)


def test_defaults_find_the_papers_uplift():
    problem = paper_problem(b=5.0)
    model = WeightedUplift(random_state=0)
    data, new = (
        problem.draw(1500, random_state=0),
        problem.draw_joint(4000, random_state=1),
    )
    uplift = model.fit(**data).predict(new.X)
    assert qini(uplift, new.uplift, normalize=True).value > 0.7
    assert model.path_ is not None
    assert model.ridge_ == model.path_.best
    assert_array_equal(
        WeightedUplift(random_state=0).fit(**data).predict(new.X), uplift
    )


def test_prediction_in_chunks_is_the_same(data):
    """Chunks have 65,536 rows."""
    model = WeightedUplift(basis="linear", ridge=0.1, random_state=0, **QUICK).fit(
        **data
    )
    expected = model.predict(data.X)
    many = model.predict(np.tile(data.X, (60, 1)))
    assert_allclose(many, np.tile(expected, 60), rtol=1e-12)
    assert model.path_ is None


def test_a_risk_without_a_minimum_says_what_to_do():
    with pytest.raises(
        InputError, match=r"no minimum.*eigenvalue is -0.5.*ridge above 0.5"
    ):
        solve_weighted(np.diag([1.0, -0.5]), np.ones(2), 0.1)


def test_wrong_parameters_are_named(data):
    cases = (
        ({"basis": "cubic"}, "basis must be one of .* got 'cubic'"),
        (
            {"basis": 3},
            "basis must be a name, or a callable with size and n_features, got 3",
        ),
        ({"ridge": -1.0}, "ridge must be a finite number, 0 or above, got -1.0"),
        ({"ridge": "best"}, "ridge must be one of 'auto', got 'best'"),
        ({"width": 0.0}, "width must be a finite number above 0, got 0.0"),
        ({"n_centers": 0}, "n_centers must be a whole number, 1 or above, got 0"),
        ({"n_folds": 2.5}, "n_folds must be a whole number, 1 or above, got 2.5"),
        ({"n_folds": 1}, "n_folds=1 must lie between 2 and the rows"),
        ({"n_folds": 301}, "n_folds=301 must lie between 2 and .* outcome table, 300"),
    )
    for settings, message in cases:
        with pytest.raises(InputError, match=message):
            WeightedUplift(**settings).fit(**data)
