"""Conditional densities and the 2x2 system: textbook formulas, quadrature, laws of mixtures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

from unjoined.paper.density import (
    ConditionalDensity,
    DensitySearch,
    UnmixedDensities,
    fit_densities,
    outcome_grid,
    search_density,
    trapezoid_weights,
    unmix,
)

QUICK = settings(max_examples=40, deadline=None)
CHANCE = st.floats(0.0, 1.0)


def draw(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + 0.5 * rng.standard_normal(n), rng.uniform(0.5, 2.0, n)


def some_density(seed=0):
    rng = np.random.default_rng(seed)
    return ConditionalDensity(
        rng.standard_normal((6, 2)),
        rng.standard_normal(6),
        rng.uniform(0.1, 1.0, 6),
        0.9,
        0.4,
    )


# --- a density is a density ------------------------------------------------------------------


@pytest.mark.parametrize("far", [0.0, 3.0, 1e3, 1e150, 1e200])
def test_a_density_integrates_to_one_however_far_from_the_centres(far):
    p, x = some_density(), np.array([[far, -far]])
    values = [
        quad(lambda y: p(x, np.array([y]))[0, 0], -4, 0),
        quad(lambda y: p(x, np.array([y]))[0, 0], 0, 4),
    ]
    assert_allclose(sum(v for v, _ in values), 1.0, atol=1e-8)
    assert (p(x, np.linspace(-5, 5, 50)) >= 0.0).all()


def test_the_mean_needs_no_grid():
    p, x = some_density(), np.array([[0.3, -0.2]])
    assert_allclose(
        p.mean(x)[0], quad(lambda y: y * p(x, np.array([y]))[0, 0], -5, 5)[0], rtol=1e-7
    )


def test_the_risk_is_half_the_integrated_square_less_the_density_at_the_rows():
    """With the square integrated numerically, row by row."""
    p, (X, y, weight) = some_density(), draw(7)
    total = 0.0
    for x, value, w in zip(X, y, weight, strict=True):
        square = quad(
            lambda v, x=x: p(x[None], np.array([v]))[0, 0] ** 2, -5, 5, limit=200
        )[0]
        total += w * (0.5 * square - p(x[None], np.array([value]))[0, 0])
    assert_allclose(p.risk(X, y, weight), total / weight.sum(), rtol=1e-6)


# --- least squares ---------------------------------------------------------------------------


def textbook_lscde(X, y, weight, centers, values, width_x, width_y, ridge):
    """H by quadrature and h by a loop, as the definition has them; negative parts set to 0."""
    c = len(values)
    grid = np.linspace(y.min() - 5 * width_y, y.max() + 5 * width_y, 2001)

    def phi(x, v):
        return np.exp(
            -((x - centers) ** 2).sum(1) / width_x**2 - (v - values) ** 2 / width_y**2
        )

    H, h = np.zeros((c, c)), np.zeros(c)
    for x, value, w in zip(X, y, weight / weight.sum(), strict=True):
        on_grid = np.array([phi(x, v) for v in grid])  # (g, c)
        H += w * np.trapezoid(on_grid[:, :, None] * on_grid[:, None, :], grid, axis=0)
        h += w * phi(x, value)
    return np.maximum(np.linalg.solve(H + ridge * np.eye(c), h), 0.0)


def test_coefficients_solve_the_least_squares_problem_of_the_definition():
    X, y, weight = draw(15)
    ridges = np.array([1e-3, 1e-1])
    found = fit_densities(X, y, weight, 5, 1.1, 0.7, ridges)
    for density, ridge in zip(found, ridges, strict=True):
        alpha = textbook_lscde(X, y, weight, X[:5], y[:5], 1.1, 0.7, ridge)
        assert_array_equal(density.centers, X[:5][alpha > 0])
        assert_array_equal(density.values, y[:5][alpha > 0])
        assert_allclose(density.alpha, alpha[alpha > 0], rtol=1e-8)


def test_whole_weights_equal_repeated_rows():
    X, y, _ = draw(30)
    weight = np.random.default_rng(1).integers(1, 4, 30)
    again = np.concatenate([np.arange(30), np.repeat(np.arange(30), weight - 1)])
    grid, ones = np.linspace(-2, 2, 9), np.ones(len(again))
    (one,) = fit_densities(X, y, weight.astype(float), 30, 0.8, 0.5, np.array([0.01]))
    (other,) = fit_densities(X[again], y[again], ones, 30, 0.8, 0.5, np.array([0.01]))
    assert_allclose(one(X, grid), other(X, grid), rtol=1e-8)


@pytest.mark.statistical
def test_least_squares_comes_near_the_risk_of_the_truth():
    """y | x is N(x, 0.5^2), so the truth has risk -1 / (4 sqrt(pi) 0.5) = -0.2821, the least
    possible; ignoring x has that of N(0, 1.25), -1 / (4 sqrt(pi) sqrt(1.25)) = -0.1262. On 4,000
    fresh rows a mean of values within [-0.8, 0.4] is known to 0.01."""
    (X, y, weight), (fresh, value, one) = draw(2000, 1), draw(4000, 1, seed=9)
    (p,) = fit_densities(X, y, weight, 100, 0.7, 0.5, np.array([1e-3]))
    risk = p.risk(fresh, value, np.ones_like(one))
    assert -0.2821 - 0.03 < risk < (-0.2821 - 0.1262) / 2


# --- search ----------------------------------------------------------------------------------


def test_search_averages_the_held_out_risks():
    X, y, weight = draw(30)
    fold = np.arange(30) % 3
    ridges = np.array([1e-3, 1.0])
    grid = {"widths_x": np.array([0.3, 1.0]), "widths_y": np.array([0.2, 0.6, 2.0])}
    search = search_density(X, y, weight, fold, n_centers=8, ridges=ridges, **grid)
    assert search.risks.shape == (2, 3, 2)
    expected = 0.0
    for v in range(3):
        kept, held = fold != v, fold == v
        p = fit_densities(X[kept], y[kept], weight[kept], 8, 1.0, 0.6, ridges)[1]
        expected += (
            p.risk(X[held], y[held], weight[held]) * weight[held].sum() / weight.sum()
        )
    assert_allclose(search.risks[1, 1, 1], expected, rtol=1e-12)


def test_the_best_candidate_is_the_one_of_least_risk():
    risks = np.zeros((2, 2, 3))
    risks[1, 0, 2] = -1.0
    search = DensitySearch(
        np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.arange(3.0), risks
    )
    assert search.best == (2.0, 3.0, 2.0)


def test_a_held_out_row_is_no_centre():
    """Were it one, tiny widths would win on rows that are pure noise."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    widths = {"widths_x": np.array([1e-3, 3.0]), "widths_y": np.array([1e-3, 0.7])}
    widths |= {"n_centers": 100, "ridges": np.array([1e-3])}
    search = search_density(X, y, np.ones(100), np.arange(100) % 5, **widths)
    assert search.best[:2] == (3.0, 0.7)


# --- the system ------------------------------------------------------------------------------


@QUICK
@given(arrays(float, (4, 6), elements=st.floats(0.01, 1.0)), CHANCE, CHANCE)
def test_unmixing_undoes_mixing(laws, e_1, e_2):
    laws = laws / laws.sum(axis=1, keepdims=True)
    treated, untreated = laws[:2], laws[2:]
    e_1, e_2 = np.full(2, e_1), np.full(2, e_2)
    q_1, q_2 = (e[:, None] * treated + (1 - e)[:, None] * untreated for e in (e_1, e_2))
    found = unmix(q_1, q_2, e_1, e_2, min_gap=0.05)
    for law in found[:2]:
        assert_allclose(
            law.sum(axis=1), 1.0, atol=1e-12
        )  # also where the guard stepped in
    if abs(e_1[0] - e_2[0]) >= 0.05:
        assert not found[2].any()
        assert_allclose(found[0], treated, atol=1e-12)
        assert_allclose(found[1], untreated, atol=1e-12)


def test_unmixing_solves_the_two_by_two_system():
    rng = np.random.default_rng(0)
    q_1, q_2 = rng.random((2, 5, 3))
    e_1, e_2 = rng.uniform(0.6, 1.0, 5), rng.uniform(0.0, 0.4, 5)
    treated, untreated, _ = unmix(q_1, q_2, e_1, e_2, min_gap=0.05)
    for i in range(5):
        system = np.array([[e_1[i], 1 - e_1[i]], [e_2[i], 1 - e_2[i]]])
        expected = np.linalg.solve(system, np.array([q_1[i], q_2[i]]))
        assert_allclose([treated[i], untreated[i]], expected, rtol=1e-12)


def test_when_one_treats_all_and_the_other_none_nothing_is_computed():
    q_1, q_2 = np.random.default_rng(0).random((2, 5, 3))
    treated, untreated, touched = unmix(q_1, q_2, np.ones(5), np.zeros(5), min_gap=0.05)
    assert_array_equal(treated, q_1)
    assert_array_equal(untreated, q_2)
    assert not touched.any()


@given(
    gap=st.sampled_from([0.0, -0.0, 5e-324, -1e-300, 1e-9, 0.03, -0.9]),
    min_gap=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_solutions_are_finite_whatever_the_gap(gap, min_gap):
    q_1, q_2 = np.random.default_rng(0).random((2, 1, 4))
    e_1 = np.array([max(gap, 0.0)])
    treated, untreated, touched = unmix(q_1, q_2, e_1, e_1 - gap, min_gap=min_gap)
    assert np.isfinite(treated).all()
    assert np.isfinite(untreated).all()
    if min_gap == 0.0 and abs(gap) < 1e-100:
        assert touched.all()
        assert_array_equal(treated, untreated)  # an uplift of 0
    if min_gap > 0.0:
        assert_array_equal(touched, abs(gap) < min_gap)


@QUICK
@given(CHANCE, CHANCE, st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_policies_moved_apart_are_policies(first, second, min_gap):
    """Of mixtures 1 and 0 the parts are 1 + (1 - e_1) / (e_1 - e_2) and -e_2 / (e_1 - e_2)."""
    one, none = np.ones((1, 1)), np.zeros((1, 1))
    policies = np.array([first]), np.array([second])
    treated, untreated, touched = unmix(one, none, *policies, min_gap=min_gap)
    if touched[0] and min_gap == 0.0:
        return  # policies that are the same, which another test is about
    gap = 1.0 / (treated - untreated)[0, 0]
    e_1, e_2 = 1.0 - (treated[0, 0] - 1.0) * gap, -untreated[0, 0] * gap
    assert min(e_1, e_2) >= -1e-12
    assert max(e_1, e_2) <= 1.0 + 1e-12
    if not touched[0]:
        assert_allclose([e_1, e_2], [first, second], atol=1e-12)
        return
    assert_allclose(abs(gap), min_gap, rtol=1e-12)
    if min_gap / 2 <= (first + second) / 2 <= 1 - min_gap / 2:
        assert_allclose(e_1 + e_2, first + second, atol=1e-12)


def test_uplift_is_the_difference_of_the_means():
    grid = np.array([0.0, 1.0, 3.0])
    laws = UnmixedDensities(
        grid,
        np.ones(3),
        np.array([[0.2, 0.3, 0.5]]),
        np.array([[0.6, 0.4, 0.0]]),
        np.array([False]),
    )
    treated, untreated = laws.means
    assert_allclose([treated[0], untreated[0], laws.uplift[0]], [1.8, 0.4, 1.4])


# --- the grid --------------------------------------------------------------------------------


def test_weights_are_those_of_numpys_trapezoid_rule():
    rng = np.random.default_rng(0)
    grid, values = np.sort(rng.random(20)), rng.random(20)
    assert_allclose(
        trapezoid_weights(grid) @ values, np.trapezoid(values, grid), rtol=1e-12
    )


def test_the_grid_covers_the_outcomes_in_steps_of_a_third_of_a_width():
    """Range 10 and margins of 3 widths: 10.3 / (0.05 / 3) = 618 steps."""
    for width, size in ((1.0, 101), (0.05, 619), (1e-6, 10_001)):
        grid = outcome_grid(np.array([5.0, -5.0, 0.0]), [width, 2 * width / 2])
        assert_allclose([grid[0], grid[-1]], [-5.0 - 3.0 * width, 5.0 + 3.0 * width])
        assert len(grid) == size
        if size < 10_001:
            assert grid[1] - grid[0] <= width / 3.0 + 1e-12


def test_the_default_step_integrates_a_gaussian_to_rounding():
    """The error of the trapezoid rule is 2 exp(-(pi width / step)^2) = 5e-39 at a third."""
    far = outcome_grid(np.array([-20.0, 20.0]), [1.0])
    assert_allclose(far[1] - far[0], 1.0 / 3.0)
    bump = np.exp(-(far**2)) / np.sqrt(np.pi)
    assert_allclose(trapezoid_weights(far) @ bump, 1.0, rtol=1e-14)
