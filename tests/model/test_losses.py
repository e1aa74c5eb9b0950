"""General losses: conjugates by brute force, saddle points by certificate and by other solvers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import InputError
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.accumulate import RowScan, accumulate
from unjoined.model.loss_solvers import solve_loss
from unjoined.model.losses import LOSSES, check_conjugate, check_conjugates
from unjoined.model.minmax import assemble, solve_minmax
from unjoined.paper import (
    AbsoluteLoss,
    HuberLoss,
    PinballLoss,
    SmoothLoss,
    SquaredLoss,
    ThreePlayerLoss,
)

BOX = [SquaredLoss(), HuberLoss(0.7), AbsoluteLoss(), PinballLoss(0.3)]
RIDGES = {"ridge_f": 0.02, "ridge_g": 0.03}


@pytest.fixture(scope="module")
def problem():
    data = paper_problem(b=2.0).draw(250, random_state=0)
    rows = label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
    )
    basis = GaussianBasis(rows.X[:12], width=5.0)
    system = assemble(accumulate(basis, basis.size, rows))
    return system, RowScan(basis, rows.X), basis(rows.X), rows.share / 2.0


def test_conjugate_is_the_supremum():
    """sup_v g v - rho(v) on a fine grid equals curvature g^2 inside the box, and grows outside."""
    for loss in BOX:
        v = np.linspace(-60.0, 60.0, 240_001)
        low, high = loss.box
        for g in np.linspace(max(low, -3.0), min(high, 3.0), 9):
            assert np.max(g * v - loss(v)) == pytest.approx(
                loss.curvature * g**2, abs=1e-6
            )
        if np.isfinite(high):
            assert (
                np.max((high + 0.1) * v - loss(v)) > 5.0
            )  # unbounded: it grows with the grid


def test_squared_loss_through_this_path_is_the_closed_form(problem):
    system, scan, _, share = problem
    closed = solve_minmax(system, **RIDGES)
    found = solve_loss(system, scan, share, SquaredLoss(), **RIDGES)
    assert_allclose(found.alpha, closed.alpha, rtol=1e-8, atol=1e-12)
    assert_allclose(
        found.beta, 2.0 * closed.beta, rtol=1e-8, atol=1e-12
    )  # g here is twice g there
    smooth = SmoothLoss(
        rho=np.square,
        conjugate=lambda g: g**2 / 4,
        slope=lambda g: g / 2,
        curve=lambda g: 0 * g + 0.5,
    )
    again = solve_loss(system, scan, share, smooth, **RIDGES)
    assert_allclose(again.alpha, closed.alpha, rtol=1e-6, atol=1e-9)


def test_duality_gap_is_below_tolerance_and_never_negative(problem):
    for loss in BOX:
        system, scan, _, share = problem
        found = solve_loss(system, scan, share, loss, **RIDGES)
        assert -1e-12 <= found.gap <= 1e-7 * max(abs(found.value), 1.0)
        assert found.relative_gap < 1e-6


def primal(loss, system, phi, share, alpha):
    """The maximum over the critic at fixed alpha, found by a general solver in its dual."""
    pull = system.A.T @ alpha - 2 * system.b

    def value(v):  # min over residuals v of E[rho(v)] + |pull - E[v psi]|^2 / ridge_g
        rest = pull - phi.T @ (share * v)
        slope = (
            np.clip(v, -loss.delta, loss.delta) - 2.0 * phi @ rest / RIDGES["ridge_g"]
        )
        return share @ loss(v) + rest @ rest / RIDGES["ridge_g"], share * slope

    limits = {"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(
        value, np.zeros(len(phi)), jac=True, method="L-BFGS-B", options=limits
    )
    return found.fun + RIDGES["ridge_f"] * alpha @ alpha


@pytest.mark.parametrize("loss", [HuberLoss(0.7), HuberLoss(0.3)], ids=repr)
def test_no_other_alpha_has_a_smaller_objective(problem, loss):
    """Evaluated independently of the solver, the solution's value is the smallest around."""
    system, scan, phi, share = problem
    found = solve_loss(system, scan, share, loss, **RIDGES)
    best = primal(loss, system, phi, share, found.alpha)
    assert best == pytest.approx(found.value, abs=1e-5)
    for step in 0.05 * np.random.default_rng(0).standard_normal((5, len(found.alpha))):
        assert primal(loss, system, phi, share, found.alpha + step) > best


def test_huge_threshold_makes_huber_half_the_squared_loss(problem):
    """rho = v^2/2: the same problem as the square's with both ridges doubled."""
    system, scan, _, share = problem
    found = solve_loss(system, scan, share, HuberLoss(1e6), **RIDGES)
    closed = solve_minmax(
        system, ridge_f=2 * RIDGES["ridge_f"], ridge_g=RIDGES["ridge_g"] / 2
    )
    assert_allclose(found.alpha, closed.alpha, rtol=1e-7, atol=1e-10)


def test_half_the_absolute_loss_is_the_median_pinball(problem):
    """rho_abs = 2 rho_pinball(1/2): the problems agree when one ridge is halved, one doubled."""
    system, scan, _, share = problem
    absolute = solve_loss(
        system, scan, share, AbsoluteLoss(), ridge_f=0.02, ridge_g=0.03
    )
    pinball = solve_loss(
        system, scan, share, PinballLoss(0.5), ridge_f=0.01, ridge_g=0.06
    )
    assert_allclose(pinball.alpha, absolute.alpha, atol=1e-5)


def test_every_name_is_a_loss():
    for make in LOSSES.values():
        assert make()(np.array([0.0]))[0] == 0.0


HALF_SQUARE = ThreePlayerLoss(
    conjugate=lambda s, y: (s + y) ** 2 / 2,
    biconjugate=lambda g, h: h**2 / 2 - g * h,
    slope_g=lambda g, h: -h,
    slope_h=lambda g, h: h - g,
)
COSH = ThreePlayerLoss(  # l(y, y') = cosh(y) - y y'
    conjugate=lambda s, y: (s + y) * np.arcsinh(s + y) - np.sqrt(1 + (s + y) ** 2),
    biconjugate=lambda g, h: np.cosh(h) - g * h,
    slope_g=lambda g, h: -h,
    slope_h=lambda g, h: np.sinh(h) - g,
)


def test_three_players_with_a_half_square_solve_a_linear_system(problem):
    """All three first-order conditions are linear then."""
    system, scan, phi, share = problem
    A, b, C, p = system.A, system.b, system.C, phi.shape[1]
    lf, lg = RIDGES["ridge_f"], RIDGES["ridge_g"]
    zero, eye = np.zeros((p, p)), np.eye(p)
    conditions = np.block(
        [[2 * lf * eye, A, zero], [A.T, -lg * eye, -C], [zero, -C, C + lg * eye]]
    )
    expected = np.linalg.solve(conditions, np.r_[np.zeros(2 * p), 2 * b])[:p]
    found = solve_loss(system, scan, share, HALF_SQUARE, **RIDGES)
    assert_allclose(found.alpha, expected, atol=1e-6)
    assert abs(found.gap) < 1e-8


def test_three_players_find_the_stationary_point_of_a_hyperbolic_loss():
    """With a constant basis and constant policies sinh(mu_w f) = 2 mu_z has a known solution."""
    x = np.zeros((40, 1))
    kind = np.array(["outcome"] * 20 + ["treatment"] * 20)
    population = np.array((["A"] * 10 + ["B"] * 10) * 2)
    t_a, t_b = [1] * 9 + [0], [1] * 2 + [0] * 8
    y = np.array([1.5] * 10 + [0.4] * 9 + [0.3] + t_a + t_b, dtype=float)
    rows = label_rows(x, **separate_labels(y, kind), population=population)
    basis = GaussianBasis(np.zeros((1, 1)), 1.0)
    system = assemble(accumulate(basis, 1, rows))
    ridges = {"ridge_f": 1e-9, "ridge_g": 1e-9}
    found = solve_loss(system, RowScan(basis, rows.X), rows.share / 2, COSH, **ridges)
    mu_w, mu_z = 0.7, (1.5 - 0.39) / 2
    assert found.alpha[0] == pytest.approx(np.arcsinh(2 * mu_z) / mu_w, rel=1e-4)


def test_wrong_conjugates_of_three_players_are_found_out():
    cases = (
        (
            {"conjugate": lambda s, y: -((s + y) ** 2)},
            "finite and convex in its first argument",
        ),
        ({"biconjugate": lambda g, h: -(h**2)}, "convex in h and concave in g"),
        (
            {"biconjugate": lambda g, h: h**2 - g * h},
            "is not the conjugate of the conjugate",
        ),
        ({"slope_g": lambda g, h: h}, "slope_g is not the derivative"),
        ({"slope_h": lambda g, h: h}, "slope_h is not the derivative"),
    )
    for change, message in cases:
        parts = {name: getattr(HALF_SQUARE, name) for name in ThreePlayerLoss.__slots__}
        check_conjugates(HALF_SQUARE)
        check_conjugates(COSH)
        with pytest.raises(InputError, match=message):
            check_conjugates(ThreePlayerLoss(**{**parts, **change}))


def test_wrong_conjugates_are_found_out():
    cases = (
        ({"domain": (0.5, 1.0)}, "must contain 0"),
        ({"conjugate": lambda g: -(g**2)}, "must be convex"),
        (
            {"conjugate": lambda g: np.full_like(g, np.nan)},
            "must be finite inside its domain",
        ),
        ({"conjugate": lambda g: g**2}, "does not belong to the loss"),
        ({"rho": np.abs}, "does not belong to the loss"),
    )
    for change, message in cases:
        parts = {name: getattr(hyperbolic(), name) for name in SmoothLoss.__slots__}
        with pytest.raises(InputError, match=message):
            check_conjugate(SmoothLoss(**{**parts, **change}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HuberLoss(0.0), "delta must be a finite number above 0, got 0.0"),
        (lambda: PinballLoss(1.0), "tau must lie strictly between 0 and 1, got 1.0"),
    ],
)
def test_thresholds_of_losses_are_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_loss_that_gives_nan_is_named(problem):
    system, scan, _, share = problem
    broken = SmoothLoss(
        rho=np.square,
        conjugate=lambda g: np.where(np.abs(g) > 1e-3, np.nan, g**2 / 4),
        slope=lambda g: g / 2,
        curve=lambda g: 0 * g + 0.5,
    )
    with pytest.raises(InputError, match=r"conjugate gives values that are not finite"):
        solve_loss(system, scan, share, broken, **RIDGES)
    worse = ThreePlayerLoss(
        **{n: getattr(HALF_SQUARE, n) for n in ThreePlayerLoss.__slots__}
        | {"biconjugate": lambda g, h: np.full_like(h, np.nan)}
    )
    with pytest.raises(InputError, match="values that are not finite"):
        solve_loss(system, scan, share, worse, **RIDGES)


def test_a_linear_basis_serves_as_well():
    data = paper_problem(b=2.0).draw(250, random_state=0)
    rows = label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
    )
    basis = LinearBasis(2)
    system = assemble(accumulate(basis, 3, rows))
    found = solve_loss(
        system, RowScan(basis, rows.X), rows.share / 2, AbsoluteLoss(), **RIDGES
    )
    assert found.relative_gap < 1e-6


def hyperbolic():
    """log cosh as a user would write it: loss, conjugate and derivatives."""
    return SmoothLoss(
        rho=lambda v: np.log(np.cosh(v)),
        conjugate=lambda g: 0.5 * ((1 + g) * np.log1p(g) + (1 - g) * np.log1p(-g)),
        slope=np.arctanh,
        curve=lambda g: 1.0 / (1.0 - g**2),
        domain=(-1.0, 1.0),
    )


def test_newton_solves_a_smooth_loss(problem):
    system, scan, phi, share = problem
    check_conjugate(hyperbolic())
    found = solve_loss(system, scan, share, hyperbolic(), **RIDGES)
    assert found.relative_gap < 1e-8
    assert np.abs(phi @ found.beta).max() < 1.0


def test_a_critic_at_the_edge_of_double_precision_is_not_called_solved(problem):
    system, scan, _, share = problem
    strong = replace(system, b=100.0 * system.b)
    with pytest.raises(InputError, match=r"edge of its domain.*loss='huber'"):
        solve_loss(strong, scan, share, hyperbolic(), **RIDGES)


def test_only_thresholds_know_units():
    """A threshold of 3 euros is 1.5 units of two euros; the other losses have no scale."""
    assert HuberLoss(3.0).in_units(2.0) == HuberLoss(1.5)
    for loss in (SquaredLoss(), AbsoluteLoss(), PinballLoss(0.3), hyperbolic()):
        assert loss.in_units(2.0) is loss


def test_newton_stops_at_its_limit_and_the_gap_says_so(problem, limits):
    limits("model.loss_solvers", MAX_STEPS=1)
    system, scan, _, share = problem
    strong = replace(system, b=3.0 * system.b)
    with pytest.raises(InputError, match=r"duality gap .* after 1 steps"):
        solve_loss(strong, scan, share, hyperbolic(), **RIDGES)
