"""Bounds and losses as a user meets them: units, reports, robustness, messages."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unjoined import MinMaxUplift, SeparateLabels, load_model, save_model
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.errors import InputError
from unjoined.paper import (
    AbsoluteLoss,
    HuberLoss,
    PinballLoss,
    SmoothLoss,
    SquaredLoss,
    ThreePlayerLoss,
)


@pytest.fixture(scope="module")
def binary():
    """Outcomes 0/1 and a rough fit, so that the range -1 to 1 is left without bounds."""
    data = paper_problem(b=5.0).draw(200, random_state=0)
    y = np.where(data.kind == "outcome", (data.y + 1) / 2, data.y)
    return SeparateLabels(**{**dict(data), "y": y})


ROUGH = {
    "basis": "gaussian",
    "width": "median",
    "ridge_f": 1e-4,
    "ridge_g": 1e-3,
    "n_centers": 40,
    "center": False,
    "random_state": 0,
}


def real_problem(outliers=0.0):
    """Constant policies, uplift 1 + x_0; a share of outcomes is replaced by gross errors."""

    def mean(X, treated):
        return X[:, 1] + treated * (1.0 + X[:, 0])

    def outcome(X, treated, rng):
        y = mean(X, treated) + 0.5 * rng.standard_normal(len(X))
        wrong = rng.random_sample(len(X)) < outliers
        return np.where(wrong, 500.0 * rng.standard_normal(len(X)), y)

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            "A": lambda X: np.full(len(X), 0.9),
            "B": lambda X: np.full(len(X), 0.1),
        },
        outcome=outcome,
        outcome_mean=mean,
    )


def test_auto_bounds_keep_every_training_row_in_the_outcomes_range(binary):
    free = MinMaxUplift(**ROUGH).fit(**binary)
    bounded = MinMaxUplift(**ROUGH, bounds="auto").fit(**binary)
    assert np.abs(free.predict(binary.X)).max() > 1.2
    assert np.abs(bounded.predict(binary.X)).max() <= 1.0 + 1e-6
    report = bounded.bounds_
    assert (report.lower, report.upper) == (-1.0, 1.0)
    assert report.rounds >= 1
    assert report.n_binding > 0
    assert report.worst <= 2e-7
    assert free.bounds_ is None


def test_bounds_scale_with_the_units_of_the_outcome(binary):
    cents = SeparateLabels(
        **{
            **dict(binary),
            "y": np.where(binary.kind == "outcome", 100 * binary.y, binary.y),
        }
    )
    one = MinMaxUplift(**ROUGH, bounds="auto").fit(**binary)
    hundred = MinMaxUplift(**ROUGH, bounds="auto").fit(**cents)
    assert hundred.bounds_.upper == 100.0
    assert_allclose(
        hundred.predict(binary.X), 100 * one.predict(binary.X), rtol=1e-6, atol=1e-6
    )


def test_one_sided_bounds_hold_at_training_rows_only(binary):
    model = MinMaxUplift(**ROUGH, bounds=(0.0, np.inf)).fit(**binary)
    assert model.predict(binary.X).min() >= -1e-6
    far = np.random.default_rng(0).normal(scale=6.0, size=(20_000, 2))
    loose = MinMaxUplift(**ROUGH, bounds=(-0.2, 0.2)).fit(**binary)
    assert np.abs(loose.predict(far)).max() > 0.2


def test_bounds_that_do_not_bind_change_nothing(binary):
    free = MinMaxUplift(**ROUGH).fit(**binary)
    wide = MinMaxUplift(**ROUGH, bounds=(-50.0, 50.0)).fit(**binary)
    assert wide.bounds_.rounds == 0
    assert_array_equal(wide.predict(binary.X), free.predict(binary.X))


LOSSES = [
    "absolute",
    "huber",
    "pinball",
    HuberLoss(0.3),
    PinballLoss(0.4),
    AbsoluteLoss(),
]


def test_every_loss_fits_and_states_its_gap():
    for loss in LOSSES:
        data = real_problem().draw(150, random_state=0)
        model = MinMaxUplift(basis="linear", loss=loss, random_state=0).fit(**data)
        assert model.loss_.relative_gap < 1e-6
        assert np.isfinite(model.predict(data.X)).all()
        assert np.isfinite(model.critic(data.X)).all()


def test_uplift_is_in_the_units_of_the_outcome_for_every_loss():
    for loss in ("huber", HuberLoss(0.3), "absolute"):
        data = real_problem().draw(150, random_state=0)
        y = np.where(data.kind == "outcome", 100 * data.y, data.y)
        cents = SeparateLabels(**{**dict(data), "y": y})
        scaled = HuberLoss(30.0) if isinstance(loss, HuberLoss) else loss
        model = MinMaxUplift(basis="linear", random_state=0)
        one = model.set_params(loss=loss).fit(**data).predict(data.X)
        hundred = model.set_params(loss=scaled).fit(**cents).predict(data.X)
        assert_allclose(hundred, 100 * one, rtol=1e-4, atol=1e-3)


def test_squared_loss_object_is_the_closed_form(binary):
    by_name = MinMaxUplift(**ROUGH).fit(**binary)
    by_object = MinMaxUplift(**ROUGH, loss=SquaredLoss()).fit(**binary)
    assert_array_equal(by_object.coef_, by_name.coef_)
    assert by_name.loss_ is None


@pytest.mark.statistical
@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_robust_losses_resist_gross_outliers_where_the_square_does_not(loss):
    """5 % of outcomes replaced by noise of standard deviation 500, the uplift's being 1.

    The mean outcome of 400 such rows has standard deviation 500 sqrt(0.05 / 400) > 5, so over a
    gap of 0.8 the squared loss is off by more than the uplift itself. A critic fine enough to
    tell rows apart lets the others cap what each of the 20 wrong rows can do: their error is
    smaller in every draw, and by a factor of ten on average.
    """
    problem = real_problem(outliers=0.05)
    new = problem.draw_joint(500, random_state=99)
    settings = {
        "basis": "linear",
        "critic_basis": "gaussian",
        "width": 0.3,
        "ridge_f": 1e-4,
        "ridge_g": 1e-3,
        "center": False,  # least squares would let the wrong rows into m
        "random_state": 0,
    }
    errors = {}
    for name in ("squared", loss):
        errors[name] = np.array(
            [
                np.mean(
                    (
                        MinMaxUplift(**settings, loss=name)
                        .fit(**problem.draw(200, random_state=seed))
                        .predict(new.X)
                        - new.uplift
                    )
                    ** 2
                )
                for seed in range(5)
            ]
        )
    assert errors["squared"].mean() > np.mean(new.uplift**2)
    assert (errors[loss] < errors["squared"]).all()
    assert errors[loss].mean() < errors["squared"].mean() / 10


def test_a_three_player_loss_runs_through_the_estimator():
    """The half square is the squared loss up to the ridges: small ridges, same uplift."""
    half_square = ThreePlayerLoss(
        conjugate=lambda s, y: (s + y) ** 2 / 2,
        biconjugate=lambda g, h: h**2 / 2 - g * h,
        slope_g=lambda g, h: -h,
        slope_h=lambda g, h: h - g,
    )
    data = real_problem().draw(400, random_state=0)
    small = {"basis": "linear", "ridge_f": 1e-8, "ridge_g": 1e-8, "random_state": 0}
    three = MinMaxUplift(**small, loss=half_square).fit(**data)
    closed = MinMaxUplift(**small).fit(**data)
    assert_allclose(three.predict(data.X), closed.predict(data.X), rtol=1e-3, atol=1e-3)
    assert abs(three.loss_.relative_gap) < 1e-6


def test_a_bounded_model_survives_saving(binary, tmp_path):
    model = MinMaxUplift(**ROUGH, bounds="auto").fit(**binary)
    loaded = load_model(save_model(model, tmp_path / "m.skops"))
    assert_array_equal(loaded.predict(binary.X), model.predict(binary.X))
    robust = MinMaxUplift(basis="linear", loss=HuberLoss(0.2)).fit(**binary)
    loaded = load_model(save_model(robust, tmp_path / "m.skops"))
    assert loaded.loss_ == robust.loss_


def test_bad_objectives_are_named_and_nothing_is_fitted(binary):
    cases = (
        ({"bounds": "tight"}, "bounds must be one of 'auto', got 'tight'"),
        ({"bounds": 3.0}, r"bounds must be 'auto' or a pair of numbers, got 3.0"),
        ({"bounds": (1.0, 2.0, 3.0)}, "bounds must be 'auto' or a pair"),
        ({"bounds": (1.0, -1.0)}, "a lower and a larger upper number"),
        ({"bounds": (-np.inf, np.inf)}, "at least one finite number"),
        ({"bounds": (5.0, 5.0001)}, "no function on this basis stays between"),
        ({"loss": "hinge"}, "loss must be one of 'squared', 'absolute', 'huber'"),
        ({"loss": 3}, "or a loss object, got 3"),
        ({"loss": "huber", "bounds": "auto"}, "enforced with the squared loss only"),
        (
            {"loss": SmoothLoss(np.abs, np.square, np.abs, np.abs)},
            "does not belong to the loss",
        ),
    )
    for parameters, message in cases:
        model = MinMaxUplift(**ROUGH, **parameters)
        with pytest.raises(InputError, match=message):
            model.fit(**binary)
        assert not hasattr(model, "coef_")


def test_an_outcome_with_half_its_values_equal_has_a_spread():
    """Spend data: most rows are 0, so the interquartile range is 0 and the deviation serves."""
    data = campaign_problem().draw(300, random_state=0)
    y = np.array(data.y)
    y[np.flatnonzero((data.kind == "outcome") & (y == 1))[::2]] = 7.0
    spend = SeparateLabels(**{**dict(data), "y": y})
    model = MinMaxUplift(
        basis="linear", loss="huber", center=False, random_state=0
    ).fit(**spend)
    outcome = y[data.kind == "outcome"]
    assert model.loss_.spread == pytest.approx(outcome.std())
    # What the features explain of it is little, and centring takes no more away.
    centred = model.set_params(center=True).fit(**spend)
    assert 0.9 * outcome.std() < centred.loss_.spread < outcome.std()


def test_the_spread_is_that_of_the_outcomes_the_loss_sees():
    """y = x_1 + t (1 + x_0) + noise: centring takes x_1 off, and a shift of y by 50 x_1 too."""
    data = real_problem().draw(500, random_state=0)
    steep = np.where(data.kind == "outcome", data.y + 50.0 * data.X[:, 1], data.y)
    steeper = SeparateLabels(**{**dict(data), "y": steep})
    model = MinMaxUplift(basis="linear", loss="huber", random_state=0)
    spread = model.fit(**data).loss_.spread
    assert model.fit(**steeper).loss_.spread == pytest.approx(spread, rel=1e-6)
    assert model.set_params(center=False).fit(**steeper).loss_.spread > 10.0 * spread


def test_bounds_from_the_outcomes_range_do_not_shrink_with_centring():
    """The range of what is left after centring is no bound on the uplift."""
    data = real_problem().draw(200, random_state=0)
    y = data.y[data.kind == "outcome"]
    model = MinMaxUplift(basis="linear", bounds="auto", random_state=0).fit(**data)
    assert model.bounds_.upper == pytest.approx(y.max() - y.min())


def test_a_separate_critic_has_its_own_basis(binary):
    """A linear uplift judged by Gaussian critics: more conditions than coefficients."""
    model = MinMaxUplift(
        basis="linear", critic_basis="gaussian", width=0.5, n_centers=30, random_state=0
    ).fit(**binary)
    assert model.coef_.shape == (3,)
    assert model.critic_coef_.shape == (30,)
    assert model.critic_basis_.width == 0.5
    assert model.critic(binary.X).shape == (binary.n_rows,)


def test_a_critic_with_the_same_functions_changes_nothing(binary):
    """Stacking two copies of one basis must give the problem of one basis."""
    one = MinMaxUplift(basis="linear", random_state=0).fit(**binary)
    two = MinMaxUplift(basis="linear", critic_basis="linear", random_state=0).fit(
        **binary
    )
    assert_allclose(two.coef_, one.coef_, rtol=1e-8, atol=1e-12)
    assert_allclose(two.critic_coef_, one.critic_coef_, rtol=1e-6, atol=1e-10)


SETTINGS = {"n_centers": 40, "width": "median", "ridge_f": 1e-3, "ridge_g": 1e-3}


@pytest.fixture(scope="module")
def data():
    return campaign_problem().draw(500, random_state=0)


def test_tight_bounds_take_few_steps_and_hold_at_every_row(data):
    """A step costs p^2, so that the programme is cheap if steps are far fewer than rows.

    It used to cost the cube of the rows that entered: minutes where the fit takes a second.
    """
    for bounds in ((0.0, 0.05), (0.2, 0.21), (0.0, np.inf), (-np.inf, -0.1)):
        model = MinMaxUplift(**SETTINGS, bounds=bounds, random_state=0).fit(**data)
        report, p = model.bounds_, len(model.coef_)
        assert report.n_binding <= p
        largest = max(abs(bound) for bound in bounds if np.isfinite(bound)) or 1.0
        uplift = model.predict(data.X)
        assert uplift.min() >= bounds[0] - 1e-7 * largest
        assert uplift.max() <= bounds[1] + 1e-7 * largest


def test_a_single_bound_of_zero_has_a_tolerance(data):
    """It was relative to the wider bound, that is 0: rows entered for rounding errors alone."""
    model = MinMaxUplift(**SETTINGS, bounds=(0.0, np.inf), random_state=0).fit(**data)
    free = MinMaxUplift(**SETTINGS, random_state=0).fit(**data)
    beyond = -free.predict(data.X).min()
    assert beyond > 0.01
    assert model.bounds_.worst <= 1e-7 * beyond


def test_bounds_that_no_double_can_keep_are_refused_in_plain_words(data):
    model = MinMaxUplift(**SETTINGS, bounds=(0.0, 1e-18), random_state=0)
    with pytest.raises(InputError, match="too narrow to be kept in double precision"):
        model.fit(**data)
    with pytest.raises(InputError, match="a lower and a larger upper number"):
        MinMaxUplift(bounds=(0, 0)).fit(**data)
