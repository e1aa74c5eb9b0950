"""The error bound: each constant by brute force, the strongest critic, units, messages."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from unjoined import MinMaxUplift, PlugInUplift, SeparateLabels, load_model, save_model
from unjoined.data import SimulatedProblem, campaign_problem
from unjoined.errors import InputError, LabelError
from unjoined.evaluate import minmax_objective
from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.paper import error_bound
from unjoined.paper.bounds import maximize_on_ball, sampling_terms

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=60, deadline=None)


def make_problem(noise=None):
    """Constant policies 0.9 and 0.1, uplift 0.2 + 0.3 x, x uniform on [-1, 1]."""

    def mean(X, treated):
        return 0.4 + treated * (0.2 + 0.3 * X[:, 0])

    def outcome(X, treated, rng):
        if noise is not None:
            return mean(X, treated) + rng.uniform(-noise, noise, len(X))
        return (rng.random_sample(len(X)) < mean(X, treated)).astype(float)

    return SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 1)),
        policies={
            "A": lambda X: np.full(len(X), 0.9),
            "B": lambda X: np.full(len(X), 0.1),
        },
        outcome=outcome,
        outcome_mean=mean,
    )


# The bound is about the rows' own labels, and the laws below about ridges that are given.
FIXED = {"width": "median", "ridge_f": 1e-2, "ridge_g": 1e-2, "center": False}


@pytest.fixture(scope="module")
def data():
    return make_problem().draw(200, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return MinMaxUplift(basis=LinearBasis(1), standardize=False, **FIXED).fit(**data)


# The strongest critic -------------------------------------------------------------------


def draw_quadratic(seed, p, rank):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((p, rank))
    return rng.standard_normal(p), root @ root.T, float(rng.uniform(0.05, 3.0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("p", "rank"), [(2, 2), (2, 1), (3, 3), (3, 2)])
def test_maximum_on_the_ball_is_that_of_a_fine_grid(seed, p, rank):
    """The grid misses the maximum by its spacing times the largest slope at most."""
    a, C, radius = draw_quadratic(seed, p, rank)
    ticks = np.linspace(-radius, radius, 401 if p == 2 else 101)
    grid = np.stack(np.meshgrid(*[ticks] * p), axis=-1).reshape(-1, p)
    norms = np.linalg.norm(grid, axis=1)
    # Points beyond the ball are pulled back onto it: every point of the ball stays near one.
    grid *= (radius / np.maximum(norms, radius))[:, None]
    values = 2.0 * grid @ a - np.einsum("ij,jk,ik->i", grid, C, grid)
    found = maximize_on_ball(a, C, radius)
    slope = 2.0 * (np.linalg.norm(a) + np.linalg.norm(C, 2) * radius)
    reach = math.sqrt(p) * (ticks[1] - ticks[0])
    assert values.max() <= found.value + 1e-12
    assert found.value - values.max() <= slope * reach


@QUICK
@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_maximum_on_the_ball_meets_the_optimality_conditions(seed, p, rank):
    """Stationary, feasible, the multiplier not negative and 0 inside: enough, as it is concave."""
    a, C, radius = draw_quadratic(seed, p, rank)
    found = maximize_on_ball(a, C, radius)
    size = np.linalg.norm(found.beta)
    assert_allclose(C @ found.beta + found.multiplier * found.beta, a, atol=1e-8)
    assert found.multiplier >= 0.0
    assert size <= radius * (1 + 1e-9)
    assert found.multiplier * (radius - size) <= 1e-8
    value = 2.0 * a @ found.beta - found.beta @ C @ found.beta
    assert_allclose(found.value, value, rtol=1e-8, atol=1e-10)


def test_a_wide_ball_leaves_the_free_maximum():
    a, C, _ = draw_quadratic(0, 4, 6)
    found = maximize_on_ball(a, C, 1e6)
    assert found.multiplier == 0.0
    assert_allclose(found.beta, np.linalg.solve(C, a), rtol=1e-8)
    assert_allclose(found.value, a @ np.linalg.solve(C, a), rtol=1e-8)


def test_without_curvature_the_maximum_lies_along_the_slope():
    a = np.array([3.0, 0.0, -4.0])
    found = maximize_on_ball(a, np.zeros((3, 3)), 2.0)
    assert_allclose(found.beta, [1.2, 0.0, -1.6])
    assert found.value == pytest.approx(20.0)


def test_without_slope_nothing_is_gained():
    found = maximize_on_ball(np.zeros(3), np.diag([1.0, 0.0, 2.0]), 2.0)
    assert found.value == 0.0
    assert_allclose(found.beta, 0.0)


def test_nearly_collinear_functions_are_handled():
    """Forty wide Gaussians: eigenvalues of C fall below rounding, the conditions still hold."""
    x = np.linspace(-1.0, 1.0, 500)[:, None]
    phi = GaussianBasis(np.linspace(-1.0, 1.0, 40)[:, None], width=3.0)(x)
    C, a = phi.T @ phi / 500, phi.T @ np.sign(x[:, 0]) / 500
    for radius in (0.1, 10.0, 1e4):
        found = maximize_on_ball(a, C, radius)
        assert_allclose(np.linalg.norm(found.beta), radius, rtol=1e-6)
        assert_allclose(C @ found.beta + found.multiplier * found.beta, a, atol=1e-9)


@pytest.mark.parametrize("basis", [LinearBasis(1), "gaussian", "fourier"])
def test_the_fit_is_the_saddle_point_over_balls_of_its_own_norms(data, basis):
    """Ridges are multipliers of the balls, so f is the exact constrained minimiser."""
    model = MinMaxUplift(basis=basis, **FIXED, random_state=0).fit(**data)
    found = error_bound(
        model,
        data,
        min_gap=0.8,
        critic_radius=float(np.linalg.norm(model.critic_coef_)),
    )
    value = minmax_objective(model.predict(data.X), model.critic(data.X), **data)
    assert found.empirical == pytest.approx(value, rel=1e-8)
    assert found.optimization_gap == pytest.approx(0.0, abs=1e-8 * value)


def test_no_critic_in_the_ball_beats_the_empirical_maximum(data, model):
    radius = (
        float(np.linalg.norm(model.critic_coef_)) / 2.0
    )  # binds: the fit uses all of its own
    found = error_bound(model, data, min_gap=0.8, critic_radius=radius)
    rng = np.random.default_rng(0)
    f = model.predict(data.X)
    phi = model.basis_(np.asarray(data.X))
    directions = rng.standard_normal((300, 2))
    directions *= radius / np.linalg.norm(directions, axis=1)[:, None]
    values = [minmax_objective(f, phi @ beta, **data) for beta in directions]
    assert max(values) <= found.empirical
    assert max(values) > 0.99 * found.empirical  # 300 directions of a circle come close


# The constants --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("z", "f", "g"), [(1.0, 2.0, 0.5), (0.5, 0.3, 4.0), (3.0, 1.0, 1.0)]
)
def test_suprema_of_the_summands_are_reached_and_not_exceeded(z, f, g):
    """|4 z g + g^2/2| and |2 w f g - g^2/2| over the corners and a grid inside."""
    zs, fs, gs = (np.linspace(-m, m, 41) for m in (z, f, g))
    m_z = np.abs(-4.0 * zs[:, None] * gs - gs**2 / 2.0).max()
    m_w = np.abs(2.0 * fs[:, None] * gs - gs**2 / 2.0).max()
    terms = sampling_terms(z, f, g, n=1.0, n_tilde=1e300, delta=math.exp(-0.5))
    assert terms.complexity == pytest.approx(m_z)
    assert terms.deviation == pytest.approx(m_z)  # sqrt(2 log(1/delta)) = 1
    terms = sampling_terms(z, f, g, n=1e300, n_tilde=1.0, delta=math.exp(-0.5))
    assert terms.complexity == pytest.approx(m_w)
    assert terms.deviation == pytest.approx(m_w)


@pytest.mark.parametrize(("z", "g"), [(1.0, 0.5), (0.5, 4.0)])
def test_lipschitz_constant_of_the_outcome_summand(z, g):
    """4 M_Z + M_G, approached by the steepest chord."""
    gs, zs = np.linspace(-g, g, 2001), np.linspace(-z, z, 11)
    values = -4.0 * zs[:, None] * gs - gs**2 / 2.0
    steepest = np.abs(np.diff(values, axis=1) / np.diff(gs)).max()
    assert steepest <= 4.0 * z + g + 1e-9
    assert steepest == pytest.approx(4.0 * z + g, rel=1e-3)


def signs(n):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


def rademacher(values):
    """Exact complexity of a finite class, rows being functions, over all sign vectors."""
    n = values.shape[1]
    return (signs(n) @ values.T).max(axis=1).mean() / n


@QUICK
@given(SEEDS)
def test_complexity_of_the_summands_is_within_the_stated_multiples(seed):
    """Finite classes on eight rows, every sign vector enumerated."""
    rng = np.random.default_rng(seed)
    F, G = rng.standard_normal((2, 7, 8)) * rng.uniform(0.1, 3.0, (2, 1, 1))
    z, w = rng.uniform(-2.0, 2.0, 8), rng.choice([-1.0, 1.0], 8)
    m_z, m_f, m_g = np.abs(z).max(), np.abs(F).max(), np.abs(G).max()
    of_outcomes = rademacher(-4.0 * z * G - G**2 / 2.0)
    assert of_outcomes <= (4.0 * m_z + m_g) * rademacher(G) + 1e-12
    products = (F[:, None] * G).reshape(-1, 8)
    product_bound = 2.0 * (m_g * rademacher(F) + m_f * rademacher(G))
    assert rademacher(products) <= product_bound + 1e-12
    pairs = (2.0 * w * F[:, None] * G - G**2 / 2.0).reshape(-1, 8)
    assert rademacher(pairs) <= 2.0 * product_bound + m_g * rademacher(G) + 1e-12


@QUICK
@given(SEEDS)
def test_complexity_of_linear_functions_is_at_most_radius_times_norm_over_root_n(seed):
    """The supremum over the ball is a norm; rows of unequal norms make the bound strict."""
    rng = np.random.default_rng(seed)
    phi, radius = rng.standard_normal((8, 3)), 1.7
    exact = radius * np.linalg.norm(signs(8) @ phi, axis=1).mean() / 8
    assert exact <= radius * np.linalg.norm(phi, axis=1).max() / math.sqrt(8)


@QUICK
@given(SEEDS)
def test_averages_of_bounded_matrices_deviate_by_less_than_norm_over_root_n(seed):
    """E |mean - E mean| over all equally likely samples of four from a law on three points."""
    rng = np.random.default_rng(seed)
    points, label = rng.standard_normal((3, 2)), rng.choice([-1.0, 1.0], 3)
    outer = label[:, None, None] * points[:, :, None] * points[:, None, :]
    samples = np.array(list(itertools.product(range(3), repeat=4)))
    deviation = outer[samples].mean(axis=1) - outer.mean(axis=0)
    mean = np.linalg.norm(deviation, axis=(1, 2)).mean()
    assert mean <= (np.linalg.norm(points, axis=1) ** 2).max() / math.sqrt(4)


@QUICK
@given(SEEDS)
def test_one_row_moves_the_supremum_by_twice_the_bound_over_n_at_most(seed):
    """sup_h (E h - mean h) when one of five rows is replaced; constants of one function each."""
    rng = np.random.default_rng(seed)
    z, g = 1.0, rng.uniform(-1.5, 1.5, (6, 6))  # six critics at six places
    m_z = 4.0 * z * np.abs(g).max() + np.abs(g).max() ** 2 / 2.0
    labels = rng.uniform(-z, z, 6)
    h = -4.0 * labels * g - g**2 / 2.0
    truth = rng.standard_normal(6)
    one, other = [0, 1, 2, 3, 4], [0, 1, 2, 3, 5]
    change = (truth - h[:, one].mean(axis=1)).max() - (
        truth - h[:, other].mean(axis=1)
    ).max()
    assert abs(change) <= 2.0 * m_z / 5 + 1e-12


@QUICK
@given(st.floats(0.01, 10.0), st.floats(0.01, 10.0), st.floats(0.01, 10.0))
def test_the_direct_complexity_is_at_most_half_of_the_rademacher_route(z, f, g):
    terms = sampling_terms(z, f, g, n=100.0, n_tilde=300.0, delta=0.1)
    assert terms.complexity <= terms.rademacher / 2.0 * (1 + 1e-12)


@pytest.mark.parametrize("field", ["complexity", "rademacher", "deviation"])
def test_terms_halve_when_rows_are_four_times_as_many(field):
    one = sampling_terms(1.0, 2.0, 3.0, n=50.0, n_tilde=70.0, delta=0.05)
    four = sampling_terms(1.0, 2.0, 3.0, n=200.0, n_tilde=280.0, delta=0.05)
    assert getattr(one, field) == pytest.approx(2.0 * getattr(four, field), rel=1e-14)


def test_repeating_every_row_four_times_halves_the_sampling_terms(data, model):
    """With fixed radii; the empirical term, an average, stays."""
    fixed = {"min_gap": 0.8, "uplift_radius": 1.0, "critic_radius": 1.6}
    one = error_bound(model, data, **fixed)
    four = error_bound(model, data.take(np.tile(np.arange(data.n_rows), 4)), **fixed)
    assert four.empirical == pytest.approx(one.empirical, rel=1e-10)
    assert four.complexity == pytest.approx(one.complexity / 2.0, rel=1e-12)
    assert four.deviation == pytest.approx(one.deviation / 2.0, rel=1e-12)


# What the result holds ------------------------------------------------------------------


def test_the_bound_is_the_sum_of_its_parts(data, model):
    found = error_bound(
        model,
        data,
        min_gap=0.8,
        delta=0.1,
        uplift_radius=1.0,
        critic_radius=1.6,
        basis_norm=math.sqrt(2.0),
        critic_error=0.01,
    )
    f, g, z, n = math.sqrt(2.0), 1.6 * math.sqrt(2.0), 0.5, 400
    m_z, m_w = 4 * z * g + g**2 / 2, 2 * f * g + g**2 / 2
    complexity = (m_z + m_w) / math.sqrt(n)
    deviation = math.sqrt(2 * math.log(10) * (m_z**2 + m_w**2) / n)
    assert found.complexity == pytest.approx(complexity)
    assert found.deviation == pytest.approx(deviation)
    assert found.bound == pytest.approx(
        (found.empirical + complexity + deviation + 0.01) / 0.64
    )
    assert found.min_gap_is_given
    assert found.basis_norm_is_exact
    assert found.outcome_bound == 0.5  # a 0/1 outcome is -1/+1 inside, half a unit each
    assert (found.uplift_bound, found.critic_bound) == pytest.approx((f, g))
    assert found.trivial_bound == 1.0  # no uplift of a 0/1 outcome exceeds 1
    assert found.is_informative == (found.bound < found.trivial_bound)
    rademacher = 2 * ((4 * z + g) * g + 4 * g * f + (4 * f + g) * g) / math.sqrt(n)
    assert found.rademacher == pytest.approx(rademacher)
    extra = (rademacher - complexity) / 0.64
    assert found.rademacher_bound == pytest.approx(found.bound + extra)


def test_rate_bound_is_theorem_3_with_both_directions(data, model):
    found = error_bound(model, data, min_gap=0.8, delta=0.1, critic_error=0.02)
    again = error_bound(
        model, data, min_gap=0.8, delta=0.05
    )  # half of it for each direction
    e = again.complexity + again.deviation
    gap = found.optimization_gap
    assert found.rate_bound() == pytest.approx((2 * e + gap + 0.02) / 0.64)
    assert found.rate_bound(uplift_error=0.3, critic_error=0.1) == pytest.approx(
        (2 * e + gap + 0.1 + 0.3) / 0.64
    )


def test_smaller_delta_and_smaller_gap_give_larger_bounds(data, model):
    bounds = [
        error_bound(model, data, min_gap=0.8, delta=d).bound for d in (0.5, 0.05, 0.001)
    ]
    assert bounds == sorted(bounds)
    wide, narrow = (error_bound(model, data, min_gap=w).bound for w in (0.8, 0.4))
    assert narrow == pytest.approx(4.0 * wide)


@pytest.mark.parametrize("noise", [None, 0.3])
def test_bound_has_squared_outcome_units(noise):
    data = make_problem(noise).draw(100, random_state=1)
    shift = (
        30.0 if noise is None else 0.0
    )  # two values may be any two; a real outcome scales
    y = np.where(data.kind == "outcome", 5.0 * data.y + shift, data.y)
    other = SeparateLabels(**{**dict(data), "y": y})
    bounds = [
        error_bound(
            MinMaxUplift(basis=LinearBasis(1), standardize=False, **FIXED).fit(**rows),
            rows,
            min_gap=0.8,
        )
        for rows in (data, other)
    ]
    assert bounds[1].bound == pytest.approx(25.0 * bounds[0].bound, rel=1e-8)
    assert bounds[1].uplift_radius == pytest.approx(
        5.0 * bounds[0].uplift_radius, rel=1e-8
    )
    assert bounds[1].outcome_bound == pytest.approx(5.0 * bounds[0].outcome_bound)


def test_unequal_tables_count_by_their_effective_size(model):
    """1 / sum of squared shares = 4 n_1 n_2 / (n_1 + n_2): the smaller table decides."""
    sizes = {
        ("outcome", "A"): 50,
        ("outcome", "B"): 450,
        ("treatment", "A"): 300,
        ("treatment", "B"): 100,
    }
    data = make_problem().draw(sizes, random_state=2)
    found = error_bound(model, data, min_gap=0.8)
    assert found.n_outcome == pytest.approx(4 * 50 * 450 / 500)
    assert found.n_treatment == pytest.approx(4 * 300 * 100 / 400)


def test_weights_count_by_their_ratios_alone(data, model):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, data.n_rows)
    one, three = (
        error_bound(model, {**data, "sample_weight": c * weight}, min_gap=0.8)
        for c in (1, 3)
    )
    assert one.bound == pytest.approx(three.bound)
    assert one.n_outcome < 400
    zero = np.where(np.arange(data.n_rows) % 2, 1.0, 0.0)
    half = error_bound(model, data.take(zero > 0), min_gap=0.8)
    assert error_bound(model, {**data, "sample_weight": zero}, min_gap=0.8) == half


def test_default_radii_are_the_norm_of_the_fit_and_twice_that(data, model):
    found = error_bound(model, data, min_gap=0.8)
    norm = np.linalg.norm(model.coef_)
    assert found.uplift_radius == pytest.approx(norm)
    assert found.critic_radius == pytest.approx(2.0 * norm)


def test_a_large_fitted_critic_widens_its_ball(data, model):
    strong = SimpleNamespace(
        coef_=model.coef_,
        critic_coef_=np.array([3.0, 4.0]),
        basis_=model.basis_,
        scaling_=model.scaling_,
    )
    assert error_bound(strong, data, min_gap=0.8).critic_radius == pytest.approx(5.0)


def test_basis_norms_are_never_exceeded():
    X = np.random.default_rng(0).standard_normal((2000, 1)) * 3.0
    gaussian = GaussianBasis(np.zeros((4, 1)), width=1.0)
    assert np.linalg.norm(gaussian(np.zeros((1, 1)))) == pytest.approx(
        math.sqrt(4)
    )  # reached
    rng = np.random.default_rng(1)
    fourier = FourierBasis(rng.standard_normal((1, 20)), rng.uniform(0, 2 * np.pi, 20))
    assert np.linalg.norm(fourier(X), axis=1).max() <= math.sqrt(2.0)


@pytest.mark.parametrize(
    ("basis", "norm", "exact"),
    [
        ("gaussian", math.sqrt(30), True),
        ("fourier", math.sqrt(2), True),
        ("linear", None, False),
    ],
)
def test_basis_norm_is_known_for_bounded_functions_and_looked_up_for_others(
    data, basis, norm, exact
):
    model = MinMaxUplift(basis=basis, n_centers=30, random_state=0).fit(**data)
    found = error_bound(model, data, min_gap=0.8)
    if norm is None:
        norm = np.linalg.norm(
            model.basis_(model.scaling_(np.asarray(data.X))), axis=1
        ).max()
    assert found.basis_norm == pytest.approx(norm)
    assert found.basis_norm_is_exact is exact


def test_gap_is_estimated_from_below_when_not_given(data, model):
    """A minimum over rows of noisy estimates of 0.8: below it, by a few standard errors.

    Each logistic fit sees 160 rows at rate 0.9; at the ends of the feature's range the gap's
    standard error is about 2 sqrt(2 * 0.09 / 160) = 0.07.
    """
    found = error_bound(model, data)
    assert not found.min_gap_is_given
    assert 0.8 - 4 * 0.07 < found.min_gap < 0.8 + 0.07


def test_a_given_outcome_bound_is_used(model):
    data = make_problem(noise=0.3).draw(100, random_state=1)
    found = error_bound(model, data, min_gap=0.8, outcome_bound=2.0)
    assert found.outcome_bound == 2.0
    seen = error_bound(model, data, min_gap=0.8)
    assert seen.outcome_bound == np.abs(data.y[data.kind == "outcome"]).max()


def test_target_rows_change_nothing(model):
    with_target = make_problem().draw(100, n_target=50, random_state=4)
    without = with_target.take(with_target.kind != "target")
    assert error_bound(model, with_target, min_gap=0.8) == error_bound(
        model, without, min_gap=0.8
    )


# Messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, np.nan, "5%"])
def test_delta_must_lie_inside_zero_and_one(data, model, delta):
    with pytest.raises(
        InputError, match=r"delta must lie strictly between 0 and 1, got .* 0.05"
    ):
        error_bound(model, data, delta=delta)


@pytest.mark.parametrize("min_gap", [0.0, -0.2, np.nan, np.inf])
def test_the_gap_must_be_positive(data, model, min_gap):
    with pytest.raises(InputError, match="min_gap must be a finite number above 0"):
        error_bound(model, data, min_gap=min_gap)


def test_the_gap_is_at_most_one(data, model):
    with pytest.raises(InputError, match=r"min_gap must be at most 1, got 1.2"):
        error_bound(model, data, min_gap=1.2)


def test_policies_that_cross_have_no_bound():
    data = campaign_problem().draw(300, random_state=0)
    model = MinMaxUplift(random_state=0).fit(**data)
    with pytest.raises(
        InputError, match="the policies cross: the estimated policy gap runs from"
    ):
        error_bound(model, data)


def test_other_models_are_refused_by_name(data):
    plug_in = PlugInUplift().fit(**data)
    with pytest.raises(
        InputError, match=r"linear in its .* PlugInUplift has no coef_, critic"
    ):
        error_bound(plug_in, data)
    with pytest.raises(InputError, match=r"MinMaxUplift has no coef_, .* Fit it first"):
        error_bound(MinMaxUplift(), data)


def test_coefficients_must_be_finite_and_not_all_zero(data, model):
    broken = SimpleNamespace(
        coef_=np.array([np.nan, 1.0]),
        critic_coef_=model.critic_coef_,
        basis_=model.basis_,
        scaling_=model.scaling_,
    )
    with pytest.raises(InputError, match="coefficients hold NaN or infinite values"):
        error_bound(broken, data)
    broken.coef_ = np.zeros(2)
    with pytest.raises(InputError, match="all coefficients of the model are 0"):
        error_bound(broken, data, min_gap=0.8)
    assert (
        error_bound(broken, data, min_gap=0.8, uplift_radius=1.0).uplift_radius == 1.0
    )


def test_rows_must_be_finite_and_have_the_columns_of_the_fit(data, model):
    X = np.asarray(data.X).copy()
    with pytest.raises(
        InputError, match="X has 2 features, but the model was fitted on 1"
    ):
        error_bound(model, {**dict(data), "X": np.hstack([X, X])})
    X[3] = np.inf
    with pytest.raises(InputError, match="features of X contain inf in 1 of 800 rows"):
        error_bound(model, {**dict(data), "X": X})
    y = np.asarray(data.y).copy()
    y[0] = np.nan
    with pytest.raises(LabelError, match="1 of 800 rows have a population but neither"):
        error_bound(model, {**dict(data), "y": y})


def test_data_frames_must_have_the_columns_of_the_fit_in_order(data):
    X = np.asarray(data.X)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 0] ** 2})
    model = MinMaxUplift(basis="linear").fit(**{**dict(data), "X": frame})
    assert error_bound(model, {**dict(data), "X": frame}, min_gap=0.8).bound > 0.0
    with pytest.raises(
        InputError, match="X has the columns b, a, but the model was fitted on a, b"
    ):
        error_bound(model, {**dict(data), "X": frame[["b", "a"]]}, min_gap=0.8)


def test_the_class_must_hold_the_model(data, model):
    with pytest.raises(
        InputError, match=r"uplift_radius=0.01 is below the norm of the fitted"
    ):
        error_bound(model, data, min_gap=0.8, uplift_radius=0.01)


@pytest.mark.parametrize(
    "name", ["uplift_radius", "critic_radius", "basis_norm", "outcome_bound"]
)
def test_given_suprema_must_be_positive(data, model, name):
    with pytest.raises(
        InputError, match=f"{name} must be a finite number above 0, got 0.0"
    ):
        error_bound(model, data, min_gap=0.8, **{name: 0.0})


def test_outcomes_must_lie_within_their_bound(data, model):
    with pytest.raises(
        InputError, match=r"outcome_bound=0.4 is below the largest .* 0.5 \(of an"
    ):
        error_bound(model, data, min_gap=0.8, outcome_bound=0.4)


def test_approximation_errors_must_not_be_negative(data, model):
    with pytest.raises(
        InputError, match="critic_error must be a finite number, 0 or above"
    ):
        error_bound(model, data, min_gap=0.8, critic_error=-1.0)
    found = error_bound(model, data, min_gap=0.8)
    with pytest.raises(
        InputError, match="uplift_error must be a finite number, 0 or above"
    ):
        found.rate_bound(uplift_error=np.nan)
    with pytest.raises(
        InputError, match="critic_error must be a finite number, 0 or above"
    ):
        found.rate_bound(critic_error=-1.0)


@pytest.mark.parametrize("rows", [[1.0, 2.0], {"X": [[0.0]]}])
def test_data_must_be_the_arguments_of_fit(model, rows):
    with pytest.raises(
        InputError, match="data must be a SeparateLabels, or another mapping"
    ):
        error_bound(model, rows)


def test_a_critic_with_a_basis_of_its_own_is_not_covered(data):
    model = MinMaxUplift(basis="linear", critic_basis="fourier", random_state=0).fit(
        **data
    )
    with pytest.raises(InputError, match="has a critic_basis of its own"):
        error_bound(model, data)


def test_a_model_from_disk_has_the_same_bound(data, model, tmp_path):
    """Uplift and critic share one basis object, and must still do so after loading."""
    loaded = load_model(save_model(model, tmp_path / "model.skops"))
    assert error_bound(loaded, data, min_gap=0.8) == error_bound(
        model, data, min_gap=0.8
    )


pytestmark = [pytest.mark.statistical, pytest.mark.slow]


TRUTH = np.array([0.2, 0.3])


GAP = 0.8


K = np.diag([1.0, 1.0 / 3.0])


FIXED_RIDGES = {
    "min_gap": GAP,
    "uplift_radius": 1.0,
    "critic_radius": 1.6,
    "basis_norm": math.sqrt(2.0),
    "outcome_bound": 0.5,
}


def propensity(X, treated):
    return 0.4 + treated * (TRUTH[0] + TRUTH[1] * X[:, 0])


PROBLEM = SimulatedProblem(
    features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 1)),
    policies={"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.1)},
    outcome=lambda X, treated, rng: (
        rng.random_sample(len(X)) < propensity(X, treated)
    ).astype(float),
    outcome_mean=propensity,
)


def fit(data, ridge=0.01):
    model = MinMaxUplift(
        basis=LinearBasis(1), standardize=False, ridge_f=ridge, ridge_g=ridge
    )
    return model.set_params(n_jobs=1).fit(**data)


def squared_error(model):
    """E[(f - u)^2], exactly."""
    return float((model.coef_ - TRUTH) @ K @ (model.coef_ - TRUTH))


SIZES = {
    "equal": 200,
    "unequal": {
        ("outcome", "A"): 100,
        ("outcome", "B"): 500,
        ("treatment", "A"): 300,
        ("treatment", "B"): 60,
    },
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("same_rows", [True, False])
def test_bound_holds_in_every_draw(sizes, same_rows):
    """Promised in all but a share delta of draws; loose as it is, no draw may break it.

    On the rows of the fit, as basis and radii are fixed in advance, and on fresh ones.
    """
    for seed in range(40):
        data = PROBLEM.draw(SIZES[sizes], random_state=seed)
        model = fit(data)
        rows = (
            data if same_rows else PROBLEM.draw(SIZES[sizes], random_state=1000 + seed)
        )
        found = error_bound(model, rows, delta=0.5, **FIXED_RIDGES)
        assert squared_error(model) <= found.bound
        assert squared_error(model) <= found.rate_bound()


def test_looseness_grows_like_the_root_of_the_number_of_rows():
    """The error falls like 1 / n and the bound like 1 / sqrt(n): a factor of 4 from n to 16 n.

    The error is nearly a weighted chi-square of at most two degrees, so its mean over 40 draws has
    a relative standard error of at most sqrt(2 / 40) = 0.22, and the ratio of two of 0.32.
    """
    looseness = []
    for n in (100, 1600):
        errors, bounds = [], []
        for seed in range(40):
            data = PROBLEM.draw(n, random_state=seed)
            model = fit(data, ridge=1e-4)
            errors.append(squared_error(model))
            bounds.append(error_bound(model, data, **FIXED_RIDGES).bound)
        looseness.append(np.mean(bounds) / np.mean(errors))
    assert looseness[0] > 100.0  # it is loose, and the guide says so
    assert math.exp(-4 * 0.32) < looseness[1] / looseness[0] / 4.0 < math.exp(4 * 0.32)


def largest_excess(data):
    """sup of J - J-hat over both balls: linear in alpha, so a norm; a grid over beta's disc."""
    X, y = np.asarray(data.X), data.y
    phi = np.column_stack([np.ones(len(X)), X])
    sign = np.where(data.population == "A", 1.0, -1.0)
    outcome, treatment = data.kind == "outcome", data.kind == "treatment"
    n, n_tilde = outcome.sum(), treatment.sum()
    t = 2.0 * data.treatment - 1.0
    A = (phi * (sign * t)[:, None])[treatment].T @ phi[treatment] / n_tilde
    b = phi[outcome].T @ (sign * (y - 0.5))[outcome] / n
    C = (
        0.5 * phi[outcome].T @ phi[outcome] / n
        + 0.5 * phi[treatment].T @ phi[treatment] / n_tilde
    )
    dA, db, dC = GAP * K - A, GAP / 2.0 * K @ TRUTH - b, K - C
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 181), np.linspace(0, 1.6, 17))
    beta = (radius * np.array([np.cos(angle), np.sin(angle)])).reshape(2, -1).T
    values = 2.0 * np.linalg.norm(beta @ dA.T, axis=1) - 4.0 * beta @ db
    values -= np.einsum("ij,jk,ik->i", beta, dC, beta)
    return values.max()


@pytest.mark.parametrize("n", [50, 800])
def test_the_sampling_terms_hold_and_are_not_far_off(n):
    """E sup(J - J-hat) is at most the complexity term, and its quantiles at most with deviation.

    These are the two inequalities the proof rests on. The first is met within a factor of four:
    all that is lost there is that x has a smaller norm on average than at most, and that one
    pair of functions is not the worst in every term.
    """
    data = PROBLEM.draw(n, random_state=0)
    bound = error_bound(fit(data), data, **FIXED_RIDGES)
    excess = np.array(
        [largest_excess(PROBLEM.draw(n, random_state=s)) for s in range(200)]
    )
    assert bound.complexity / 4.0 < excess.mean() < bound.complexity
    for delta in (0.5, 0.05):
        terms = sampling_terms(
            bound.outcome_bound,
            bound.uplift_bound,
            bound.critic_bound,
            n=2 * n,
            n_tilde=2 * n,
            delta=delta,
        )
        assert np.mean(excess > terms.complexity + terms.deviation) <= delta


def test_critic_error_is_the_squared_distance_from_the_class():
    """sup J over all g less sup J over a small ball = min over that ball of E[(m - g)^2]."""
    m = GAP * (np.array([0.7, -0.4]) - TRUTH)  # the best critic of f, as coefficients
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, 0.2, 41))
    beta = (radius * np.array([np.cos(angle), np.sin(angle)])).reshape(2, -1).T
    J = 2.0 * beta @ K @ m - np.einsum("ij,jk,ik->i", beta, K, beta)
    distance = np.einsum("ij,jk,ik->i", m - beta, K, m - beta)
    assert m @ K @ m - J.max() == pytest.approx(distance.min(), rel=1e-12)
