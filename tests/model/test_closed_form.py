"""The closed form: optimality, the paper's formula, exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg

from unjoined import SeparateLabels
from unjoined.data import paper_problem
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import InputError
from unjoined.evaluate import minmax_objective
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.minmax import MinMaxSystem, assemble, solve_minmax

QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 8)
RIDGES = st.floats(1e-2, 10.0)


def make_system(seed, p=5):
    """Return a system with entries of order one: A symmetric, C positive semi-definite."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((3 * p, p))
    w = rng.choice([-1.0, 1.0], 3 * p)
    return MinMaxSystem(
        (phi * w[:, None]).T @ phi / (3 * p),
        rng.standard_normal(p),
        phi.T @ phi / (3 * p),
    )


def textbook(system, ridge_f, ridge_g):
    """Return alpha by the formula as the paper prints it, with lambda_f I of the right size."""
    A, b = system.A, system.b
    identity = np.eye(len(b))
    inverse = np.linalg.inv(system.C + ridge_g * identity)
    return 2.0 * np.linalg.inv(A @ inverse @ A.T + ridge_f * identity) @ A @ inverse @ b


def objective(system, alpha, beta):
    """Return J without the ridges, as the paper defines it on a basis."""
    return (
        2.0 * alpha @ system.A @ beta - 4.0 * system.b @ beta - beta @ system.C @ beta
    )


def regularised(system, alpha, beta, ridge_f, ridge_g):
    return (
        objective(system, alpha, beta) + ridge_f * alpha @ alpha - ridge_g * beta @ beta
    )


# --- optimality -----------------------------------------------------------------------------


@QUICK
@given(SEEDS, SIZES, RIDGES, RIDGES)
def test_the_solution_is_a_stationary_point(seed, p, ridge_f, ridge_g):
    """Half the gradients of J: A beta + lf alpha, and A^T alpha - 2 b - (C + lg) beta."""
    system = make_system(seed, p)
    s = solve_minmax(system, ridge_f=ridge_f, ridge_g=ridge_g)
    assert_allclose(system.A @ s.beta + ridge_f * s.alpha, 0.0, atol=1e-10)
    slope = system.A.T @ s.alpha - 2.0 * system.b - system.C @ s.beta - ridge_g * s.beta
    assert_allclose(slope, 0.0, atol=1e-10)


@QUICK
@given(SEEDS, SIZES, RIDGES, RIDGES, st.floats(1e-2, 10.0))
def test_the_solution_is_a_saddle_point(seed, p, ridge_f, ridge_g, size):
    """Moving alpha by d raises the objective by lf |d|^2, moving beta lowers it by d'(C + lg)d."""
    system = make_system(seed, p)
    s = solve_minmax(system, ridge_f=ridge_f, ridge_g=ridge_g)
    d = size * np.random.default_rng(seed).standard_normal(p)
    at = regularised(system, s.alpha, s.beta, ridge_f, ridge_g)
    raised = regularised(system, s.alpha + d, s.beta, ridge_f, ridge_g) - at
    lowered = regularised(system, s.alpha, s.beta + d, ridge_f, ridge_g) - at
    # The objective is a sum of a few dozen terms no larger than this.
    scale = (
        np.sum(np.abs([s.alpha, s.beta, d])) ** 2 * (20.0 + ridge_f + ridge_g) + 100.0
    )
    assert_allclose(raised, ridge_f * d @ d, rtol=1e-9, atol=1e-13 * scale)
    assert_allclose(
        lowered, -d @ system.C @ d - ridge_g * d @ d, rtol=1e-9, atol=1e-13 * scale
    )


@QUICK
@given(SEEDS, SIZES, RIDGES, RIDGES)
def test_the_solution_equals_the_printed_formula_where_that_is_well_conditioned(
    seed, p, ridge_f, ridge_g
):
    system = make_system(seed, p)
    s = solve_minmax(system, ridge_f=ridge_f, ridge_g=ridge_g)
    expected = textbook(system, ridge_f, ridge_g)
    assert_allclose(
        s.alpha, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(expected).max())
    )


def test_a_problem_of_one_basis_function_is_solved_by_hand():
    """alpha = 2 a b / (a^2 + lf (c + lg)), beta = (a alpha - 2 b) / (c + lg)."""
    system = MinMaxSystem(np.array([[0.5]]), np.array([3.0]), np.array([[2.0]]))
    s = solve_minmax(system, ridge_f=0.25, ridge_g=1.0)
    assert_allclose(s.alpha, [3.0], rtol=1e-15)
    assert_allclose(s.beta, [-1.5], rtol=1e-15)
    assert_allclose(s.singular_values, [0.5 / np.sqrt(3.0)], rtol=1e-15)


def test_without_noise_and_with_vanishing_ridges_the_true_uplift_is_found():
    """If 2 b = A^T u the critic has nothing to say and alpha is u."""
    u = np.array([1.0, -2.0, 0.5])
    A = np.array([[0.8, 0.1, 0.0], [0.1, -0.6, 0.2], [0.0, 0.2, 0.7]])
    s = solve_minmax(
        MinMaxSystem(A, A.T @ u / 2.0, np.eye(3)), ridge_f=1e-14, ridge_g=1e-14
    )
    assert_allclose(s.alpha, u, atol=1e-12)
    assert_allclose(s.beta, 0.0, atol=1e-12)


@QUICK
@given(SEEDS, SIZES, st.floats(0.1, 100.0))
def test_the_solution_is_in_the_units_of_the_outcome(seed, p, factor):
    system = make_system(seed, p)
    scaled = MinMaxSystem(system.A, factor * system.b, system.C)
    one, other = (solve_minmax(s, ridge_f=0.1, ridge_g=0.1) for s in (system, scaled))
    assert_allclose(other.alpha, factor * one.alpha, rtol=1e-9, atol=1e-12)
    assert_allclose(other.beta, factor * one.beta, rtol=1e-9, atol=1e-12)


@QUICK
@given(SEEDS, SIZES, RIDGES)
def test_singular_values_are_those_of_the_whitened_system(seed, p, ridge_g):
    """Their squares are the eigenvalues of A (C + lg)^-1 A^T, largest first."""
    system = make_system(seed, p)
    s = solve_minmax(system, ridge_f=1.0, ridge_g=ridge_g).singular_values
    inverse = np.linalg.inv(system.C + ridge_g * np.eye(p))
    eigenvalues = np.linalg.eigvalsh(system.A @ inverse @ system.A.T)[::-1]
    assert_allclose(s**2, eigenvalues, rtol=0, atol=1e-11 * max(1.0, eigenvalues[0]))


def test_the_system_is_not_changed():
    system = make_system(0)
    for array in (system.A, system.b, system.C):
        array.setflags(write=False)
    before = [array.copy() for array in (system.A, system.b, system.C)]
    solve_minmax(system, ridge_f=0.1, ridge_g=0.1)
    for array, was in zip((system.A, system.b, system.C), before, strict=True):
        assert_array_equal(array, was)


# --- exact arithmetic -----------------------------------------------------------------------


def solve_exactly(system, ridge_f, ridge_g):
    """Solve both first-order conditions in fractions: floats are fractions, nothing is rounded.

    [lf I, A; A^T, -(C + lg I)] [alpha; beta] = [0; 2 b], by elimination.
    """
    p = len(system.b)
    lf, lg = Fraction(ridge_f), Fraction(ridge_g)
    A = [[Fraction(float(v)) for v in row] for row in system.A]
    C = [[Fraction(float(v)) for v in row] for row in system.C]
    rows = []
    for i in range(p):
        diagonal = [lf if j == i else Fraction(0) for j in range(p)]
        rows.append([*diagonal, *A[i], Fraction(0)])
    for i in range(p):
        corner = [-C[i][j] - (lg if j == i else 0) for j in range(p)]
        column = [A[j][i] for j in range(p)]
        rows.append([*column, *corner, 2 * Fraction(float(system.b[i]))])
    for i, pivot in enumerate(rows):
        # No pivot vanishes: the leading blocks are lf I > 0 and then -(C + lg I + ...) < 0.
        for lower in rows[i + 1 :]:
            factor = lower[i] / pivot[i]
            if factor:
                for j in range(i, 2 * p + 1):
                    lower[j] -= factor * pivot[j]
    solution = [Fraction(0)] * (2 * p)
    for i in reversed(range(2 * p)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, 2 * p))
        solution[i] = (rows[i][-1] - known) / rows[i][i]
    return np.array(solution[:p], dtype=float), np.array(solution[p:], dtype=float)


def collinear_system(p=14):
    """Return the system of Gaussians so wide that they are nearly the same function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, (4000, 1))
    basis = GaussianBasis(np.linspace(-3.0, 3.0, p)[:, None], 2.0)
    w = np.where(rng.random(4000) < 0.5 + 0.3 * np.sin(x[:, 0]), 1.0, -1.0)
    z = 0.3 * np.sin(x[:, 0]) * x[:, 0] + rng.standard_normal(4000)
    phi = basis(x)
    return MinMaxSystem(
        (phi * w[:, None]).T @ phi / 4000, phi.T @ z / 4000, phi.T @ phi / 4000
    )


def relative_error(got, exact):
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def test_exact_arithmetic_agrees_where_nothing_is_lost():
    system = make_system(0)
    alpha, beta = solve_exactly(system, 0.5, 0.25)
    s = solve_minmax(system, ridge_f=0.5, ridge_g=0.25)
    assert_allclose(s.alpha, alpha, rtol=1e-12)
    assert_allclose(s.beta, beta, rtol=1e-12)
    assert_allclose(textbook(system, 0.5, 0.25), alpha, rtol=1e-12)


def test_collinear_functions_cost_fewer_digits_than_in_the_printed_formula():
    """Our error is of first order in the condition |C| / ridge, the printed formula's is not.

    There C^-1 is multiplied from both sides and the product inverted again, which rounds to
    the condition squared; here neither C^-1 nor M^T M is formed.
    """
    for ridge in (1e-6, 1e-9, 1e-12):
        system = collinear_system()
        exact, _ = solve_exactly(system, ridge, ridge)
        ours = relative_error(
            solve_minmax(system, ridge_f=ridge, ridge_g=ridge).alpha, exact
        )
        printed = relative_error(textbook(system, ridge, ridge), exact)
        first_order = np.finfo(float).eps * np.linalg.norm(system.C, 2) / ridge
        assert ours < first_order < printed


# --- ridges and objectives ------------------------------------------------------------------


@QUICK
@given(SEEDS, SIZES)
def test_a_larger_ridge_never_makes_the_uplift_larger(seed, p):
    system = make_system(seed, p)
    path = [
        solve_minmax(system, ridge_f=f, ridge_g=0.1).alpha for f in (1e-3, 1e-1, 10.0)
    ]
    norms = np.linalg.norm(path, axis=1)
    assert np.all(np.diff(norms) <= 1e-12 * norms[:-1])


@QUICK
@given(SEEDS, st.booleans())
def test_the_objective_equals_its_definition_over_rows(seed, weighted):
    """Cells of unequal sizes, real outcomes, any two functions on the basis."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 30, 4)
    kind = np.repeat(["outcome", "outcome", "treatment", "treatment"], sizes)
    n = len(kind)
    data = SeparateLabels(
        **separate_labels(
            np.where(kind == "outcome", rng.standard_normal(n), rng.integers(0, 2, n)),
            kind,
        ),
        X=rng.standard_normal((n, 2)),
        population=np.repeat(["A", "B", "A", "B"], sizes),
        sample_weight=rng.uniform(0.5, 2.0, n) if weighted else None,
    )
    phi = LinearBasis(2)(data.X)
    alpha, beta = rng.standard_normal((2, 3))
    system = assemble(accumulate(LinearBasis(2), 3, label_rows(**data)))
    expected = minmax_objective(phi @ alpha, phi @ beta, **data)
    assert_allclose(objective(system, alpha, beta), expected, rtol=1e-9, atol=1e-11)


def test_the_objective_of_two_valued_outcomes_is_in_their_units():
    """Inside they are -1/+1; outside an uplift of 1 is half as much on a scale from 0 to 1."""
    data = paper_problem().draw(200, random_state=0)
    zero_one = (data.y + 1.0) / 2.0
    phi = LinearBasis(2)(data.X)
    alpha, beta = np.array([[0.3, -0.2, 0.1], [0.5, 0.1, -0.4]])
    system = assemble(accumulate(LinearBasis(2), 3, label_rows(**data)))
    outside = minmax_objective(
        phi @ alpha / 2,
        phi @ beta / 2,
        data.X,
        zero_one,
        treatment=data.treatment,
        population=data.population,
    )
    assert_allclose(4.0 * outside, objective(system, alpha, beta), rtol=1e-10)


def test_a_ridge_too_small_for_collinear_functions_is_named():
    system = MinMaxSystem(np.eye(3), np.ones(3), np.ones((3, 3)))
    with pytest.raises(
        InputError, match=r"ridge_g=1e-300 is too small .* Raise ridge_g"
    ):
        solve_minmax(system, ridge_f=1.0, ridge_g=1e-300)


def test_a_singular_value_routine_that_gives_up_is_replaced(monkeypatch):
    """LAPACK's fast routine fails on rare finite matrices; the slow one gives the same answer."""
    rng = np.random.RandomState(0)
    root = rng.standard_normal((6, 6))
    system = MinMaxSystem(
        rng.standard_normal((6, 6)), rng.standard_normal(6), root @ root.T
    )
    expected = solve_minmax(system, ridge_f=0.1, ridge_g=0.1)

    def svd(matrix, **options):
        if options.get("lapack_driver") != "gesvd":
            raise linalg.LinAlgError("SVD did not converge")
        return linalg.svd(matrix, **options)

    monkeypatch.setattr("unjoined.model.minmax.svd", svd)
    found = solve_minmax(system, ridge_f=0.1, ridge_g=0.1)
    np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-9)
    np.testing.assert_allclose(found.beta, expected.beta, rtol=1e-9)
