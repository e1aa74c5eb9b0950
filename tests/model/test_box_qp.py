"""Range constraints at every row: against a general solver, and by the conditions of optimality."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.model import GaussianBasis
from unjoined.model.accumulate import RowScan, accumulate
from unjoined.model.minmax import assemble, solve_bounded, solve_box_qp, solve_minmax


def all_rows(phi):
    """An oracle over rows given by their basis values."""
    return RowScan(lambda X: X, phi)


def random_problem(seed, n=80, p=5):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((p, p))
    Q = root @ root.T + 0.1 * np.eye(p)
    return Q, 3.0 * rng.standard_normal(p), rng.standard_normal((n, p))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.3, 0.5), (-np.inf, 0.2), (-0.1, np.inf)]
)
def test_constraint_generation_finds_the_optimum_of_a_general_solver(
    seed, lower, upper
):
    Q, q, phi = random_problem(seed)
    constraints = [
        {"type": "ineq", "fun": lambda x: upper - phi @ x, "jac": lambda x: -phi}
        if np.isfinite(upper)
        else None,
        {"type": "ineq", "fun": lambda x: phi @ x - lower, "jac": lambda x: phi}
        if np.isfinite(lower)
        else None,
    ]
    reference = minimize(
        lambda x: 0.5 * x @ Q @ x + q @ x,
        np.zeros(5),
        jac=lambda x: Q @ x + q,
        constraints=[c for c in constraints if c],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    start = np.linalg.solve(Q, -q)
    found = solve_box_qp(Q, q, start, all_rows(phi), lower=lower, upper=upper)
    assert_allclose(found.x, reference.x, atol=2e-6)


def test_solution_satisfies_the_kkt_conditions():
    """Stationarity, feasibility, signs of the multipliers, complementary slackness."""
    for seed in range(6):
        Q, q, phi = random_problem(seed, n=500, p=8)
        lower, upper = -0.2, 0.3
        found = solve_box_qp(
            Q, q, np.linalg.solve(Q, -q), all_rows(phi), lower=lower, upper=upper
        )
        value = found.phi @ found.x
        assert_allclose(
            Q @ found.x + q + found.phi.T @ found.multiplier, 0.0, atol=1e-6
        )
        assert (phi @ found.x <= upper + 1e-7).all()
        assert (phi @ found.x >= lower - 1e-7).all()
        assert (found.multiplier[value < upper - 1e-5] < 1e-5).all()
        assert (found.multiplier[value > lower + 1e-5] > -1e-5).all()
        assert_allclose(phi[found.index], found.phi)


def test_ranges_that_hold_nowhere_by_themselves_are_solved_to_the_optimum():
    """Rows bind and are let go of again; the conditions of optimality hold to rounding."""
    cases = (
        (0.0, 0.01),
        (-1e-4, 1e-4),
        (0.5, 0.51),
        (0.5, np.inf),
        (-np.inf, -0.5),
        (0.0, np.inf),
    )
    for lower, upper in cases:
        Q, q, phi = random_problem(1, n=2000, p=20)
        phi[:, 0] = 1.0  # a constant, so that every range can be kept
        start = np.linalg.solve(Q, -q)
        found = solve_box_qp(Q, q, start, all_rows(phi), lower=lower, upper=upper)
        value = phi @ found.x
        worst = max((value - upper).max(), (lower - value).max())
        largest = max(abs(bound) for bound in (lower, upper) if np.isfinite(bound))
        assert worst <= 1e-7 * (largest or np.maximum(-(phi @ start), 0.0).max())
        assert found.worst == pytest.approx(max(worst, 0.0), abs=1e-15)
        gradient = Q @ found.x + q
        rounding = 1e-10 * np.abs(q).max()
        assert_allclose(gradient + found.phi.T @ found.multiplier, 0.0, atol=rounding)
        binding = found.phi @ found.x
        assert_allclose(binding[found.multiplier > 0.0], upper, atol=1e-9)
        assert_allclose(binding[found.multiplier < 0.0], lower, atol=1e-9)
        assert 0 < np.count_nonzero(found.multiplier) <= 20


def test_a_range_narrower_than_rounding_is_called_so():
    Q, q, phi = random_problem(0, n=500, p=8)
    start = np.linalg.solve(Q, -q)
    with pytest.raises(
        InputError, match=r"between 0 and 1e-18 .* too narrow to be kept in double"
    ):
        solve_box_qp(Q, q, start, all_rows(phi), lower=0.0, upper=1e-18)


def test_few_of_many_rows_enter():
    """p coefficients, 50,000 rows: no more than p constraints bind."""
    Q, q, phi = random_problem(0, n=50_000, p=8)
    found = solve_box_qp(
        Q, q, np.linalg.solve(Q, -q), all_rows(phi), lower=-0.2, upper=0.3
    )
    assert 0 < found.rounds < 10
    assert len(found.index) <= 8


@pytest.fixture(scope="module")
def minmax():
    data = paper_problem(b=1.0).draw(400, random_state=0)
    rows = label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
    )
    basis = GaussianBasis(rows.X[:25], width=4.0)
    return (
        assemble(accumulate(basis, basis.size, rows)),
        RowScan(basis, rows.X),
        basis(rows.X),
    )


def test_bounds_that_bind_nowhere_leave_the_closed_form_to_the_bit(minmax):
    system, scan, _ = minmax
    ridges = {"ridge_f": 0.01, "ridge_g": 0.01}
    free = solve_minmax(system, **ridges)
    solution, qp = solve_bounded(system, scan, **ridges, lower=-1e3, upper=1e3)
    assert qp.rounds == 0
    assert (solution.alpha == free.alpha).all()
    assert (solution.beta == free.beta).all()


def test_bounded_fit_is_feasible_and_no_better_than_the_free_one(minmax):
    system, scan, phi = minmax
    ridges = {"ridge_f": 1e-4, "ridge_g": 1e-4}
    A, b, C = system.A, system.b, system.C
    tilde = C + 1e-4 * np.eye(len(b))

    def regularised(
        alpha,
    ):  # the maximum over the critic, written with the textbook inverse
        residual = A.T @ alpha - 2 * b
        return residual @ np.linalg.solve(tilde, residual) + 1e-4 * alpha @ alpha

    free = solve_minmax(system, **ridges)
    solution, qp = solve_bounded(system, scan, **ridges, lower=-1.0, upper=1.0)
    assert np.abs(phi @ free.alpha).max() > 1.5
    assert np.abs(phi @ solution.alpha).max() <= 1.0 + 1e-7
    assert qp.rounds >= 1
    scaled = (
        free.alpha / np.abs(phi @ free.alpha).max()
    )  # feasible, so it cannot do better
    assert regularised(free.alpha) < regularised(solution.alpha) < regularised(scaled)


def test_ranges_that_no_function_meets_are_called_so():
    phi = np.array([[1.0], [-1.0]])  # f and -f cannot both exceed one half
    with pytest.raises(
        InputError, match=r"no function on this basis stays between 0.5 and 1"
    ):
        solve_box_qp(
            np.eye(1), np.zeros(1), np.zeros(1), all_rows(phi), lower=0.5, upper=1.0
        )


def test_scan_lists_the_worst_rows_first():
    X = np.array([[0.0], [3.0], [-5.0], [1.0], [2.0]])
    index, phi, worst = all_rows(X)(np.array([1.0]), -1.0, 1.0, most=2)
    assert (index.tolist(), worst) == ([2, 1], 4.0)
    assert_allclose(phi[:, 0], [-5.0, 3.0])
    assert all_rows(X)(np.array([1.0]), -9.0, 9.0, most=2)[2] == 0.0


def test_a_row_that_is_0_everywhere_meets_no_range_without_0():
    phi = np.array([[1.0], [0.0]])
    with pytest.raises(
        InputError, match=r"no function on this basis stays between 0.5 and 1"
    ):
        solve_box_qp(
            np.eye(1), np.zeros(1), np.zeros(1), all_rows(phi), lower=0.5, upper=1.0
        )


def test_solutions_far_from_the_closed_form_keep_their_digits():
    """Two rows that nearly point the same way and bind at opposite ends."""
    phi = np.array([[1.0, 0.0], [1.0, 1e-3]])
    found = solve_box_qp(
        np.eye(2),
        np.array([0.0, -1e4]),
        np.array([0.0, 1e4]),
        all_rows(phi),
        lower=1.0,
        upper=2.0,
    )
    assert_allclose(found.x, [1.0, 1e3], rtol=1e-12)


def test_steps_of_a_programme_are_limited(limits):
    def give_up(E, wanted, maxiter):
        raise RuntimeError(f"no solution within {maxiter} steps")

    limits("model.minmax", nnls=give_up)
    Q, q, phi = random_problem(0)
    with pytest.raises(InputError, match="could not be solved in reasonable time"):
        solve_box_qp(Q, q, np.linalg.solve(Q, -q), all_rows(phi), lower=-0.1, upper=0.1)


def test_rounds_are_limited(limits):
    limits("model.minmax", MAX_ROUNDS=1)
    Q, q, phi = random_problem(0)
    with pytest.raises(InputError, match="did not settle within 1 rounds"):
        solve_box_qp(Q, q, np.linalg.solve(Q, -q), all_rows(phi), lower=-0.1, upper=0.1)


def test_a_solver_that_gives_up_is_reported():
    """A matrix that is not positive definite has no minimum."""
    with pytest.raises(InputError, match="could not be solved"):
        solve_box_qp(
            -np.eye(2),
            np.ones(2),
            np.ones(2),
            all_rows(np.eye(2)),
            lower=-np.inf,
            upper=0.5,
        )
