"""Densities, a system and an integral: equal to what the integral must be, and never infinite."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from unjoined import DensityUplift, PlugInUplift, SeparateLabels
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.errors import InputError, RatioGuardWarning

FAST = {"n_centers": 30, "width_x": 1.0, "width_y": 0.5, "ridge": 0.01, "n_folds": 2}


def real_problem(**policies):
    """A real outcome in two features; uplift 3 + x_0, in outcome units."""

    def mean(X, treated):
        return 10.0 + X[:, 1] + treated * (3.0 + X[:, 0])

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies=policies
        or {"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.2)},
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def crossing():
    """Policies that cross at x_0 = 0, where the system is singular."""
    return real_problem(
        A=lambda X: 1 / (1 + np.exp(-2 * X[:, 0])),
        B=lambda X: 1 / (1 + np.exp(2 * X[:, 0])),
    ).draw(300, random_state=0)


@pytest.fixture(scope="module")
def real():
    return real_problem().draw(200, random_state=0)


@pytest.fixture(scope="module")
def binary():
    return paper_problem(b=5.0).draw(300, random_state=0)


def replaced(data, **changes):
    return SeparateLabels(**{**dict(data), **changes})


def with_outcomes(data, change):
    return replaced(data, y=np.where(data.kind == "outcome", change(data.y), data.y))


# --- two values ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
def test_of_two_values_it_is_the_ratio_of_the_same_models(binary):
    """The sum over y of y (q_1 - q_2) / (e_1 - e_2) is Lemma 1 of the paper."""
    cases = (
        {},
        {"outcome_model": DecisionTreeClassifier(max_depth=3, random_state=0)},
        {"outcome_model": LinearRegression(), "treatment_model": LinearRegression()},
    )
    for min_gap in (0.0, 0.05, 0.3):
        for models in cases:
            found = (
                DensityUplift(min_gap=min_gap, **models).fit(**binary).predict(binary.X)
            )
            expected = (
                PlugInUplift(min_gap=min_gap, **models).fit(**binary).predict(binary.X)
            )
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_laws_of_two_values_are_probabilities_of_these_values(binary):
    coded = with_outcomes(binary, lambda y: np.where(y == 1.0, 7.0, 3.0))
    model = DensityUplift(min_gap=0.3).fit(**coded)
    with pytest.warns(RatioGuardWarning):
        laws = model.predict_density(binary.X)
    assert laws.grid.tolist() == [3.0, 7.0]
    assert_allclose(laws.treated.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(
        laws.uplift, 4.0 * (laws.treated - laws.untreated)[:, 1], atol=1e-12
    )
    assert model.searches_ is None


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
def test_whole_weights_equal_repeated_rows_of_two_values(binary):
    """Without a penalty: more rows weigh more against one, and weights alone do not."""
    weight = np.random.default_rng(0).integers(0, 3, binary.n_rows)
    repeated = binary.take(np.repeat(np.arange(binary.n_rows), weight))
    free = LogisticRegression(C=np.inf, tol=1e-8)
    model = DensityUplift(outcome_model=free, treatment_model=free)
    expected = model.fit(**repeated).predict(binary.X)
    weighted = model.fit(**replaced(binary, sample_weight=weight))
    assert_allclose(
        weighted.predict(binary.X), expected, rtol=1e-3, atol=1e-4
    )  # logistic's stop


# --- real outcomes ---------------------------------------------------------------------------


def test_the_integral_is_the_difference_of_the_mixtures_means(real):
    """Mixtures of Gaussians have known means, so no grid is needed to know the answer.

    A Gaussian at the margin has 1e-5 of its mass beyond the grid, at most 1e-5 of a range of
    some 15 units over a gap of 0.7: below 1e-3.
    """
    model = DensityUplift(**FAST, random_state=0).fit(**real)
    Z = model.scaling_(real.X)
    first, second = (law.mean(Z) for law in model.outcome_densities_)
    t_1, t_2 = (mean(Z) for mean in model.treatment_means_)
    expected = model.outcome_scaling_.scale[0] * (first - second) / ((t_1 - t_2) / 2.0)
    assert_allclose(model.predict(real.X), expected, atol=1e-3)


def test_both_laws_integrate_to_one_and_mix_to_the_populations(real):
    model = DensityUplift(**FAST, random_state=0).fit(**real)
    X = real.X[:20]
    laws, Z = model.predict_density(X), model.scaling_(X)
    for law in (laws.treated, laws.untreated):
        assert_allclose(np.trapezoid(law, laws.grid, axis=1), 1.0, atol=1e-10)
    inner = model.outcome_scaling_(laws.grid[:, None])[:, 0]
    for density, policy in zip(
        model.outcome_densities_, model.treatment_means_, strict=True
    ):
        e = (0.5 + 0.5 * policy(Z))[:, None]
        expected = (
            density(Z, inner) / model.outcome_scaling_.scale[0]
        )  # per outcome unit
        assert_allclose(
            e * laws.treated + (1 - e) * laws.untreated, expected, atol=1e-4
        )
    assert_allclose(laws.uplift, model.predict(X), atol=1e-9)
    treated, untreated = laws.means
    assert_allclose(treated - untreated, laws.uplift, atol=1e-9)


def test_the_search_chooses_the_least_risk_for_each_population(real):
    model = DensityUplift(n_centers=20, n_folds=2, random_state=0).fit(**real)
    for search, law in zip(model.searches_, model.outcome_densities_, strict=True):
        assert search.risks.shape == (5, 3, 4)
        i, j, _ = np.argwhere(search.risks == search.risks.min())[0]
        assert (law.width_x, law.width_y) == (search.widths_x[i], search.widths_y[j])
        assert search.best[:2] == (law.width_x, law.width_y)


@pytest.mark.statistical
def test_uplift_of_a_real_outcome_is_found():
    """Uplift 3 + x_0 has spread 1. Constant policies 0.9 and 0.2 leave each mean's error times
    sqrt(2) / 0.7 = 2; densities by 1,000 rows know means to some 0.3, so correlation is
    1 / sqrt(1 + 0.6^2) = 0.86, and averages over rows are known to a tenth of that."""
    problem = real_problem()
    model = DensityUplift(random_state=0)
    model.fit(**problem.draw(1000, random_state=0))
    new = problem.draw_joint(2000, random_state=1)
    uplift = model.predict(new.X)
    assert np.corrcoef(uplift, new.uplift)[0, 1] > 0.75
    assert abs(uplift.mean() - 3.0) < 0.5


# --- invariances -----------------------------------------------------------------------------


@pytest.mark.parametrize("recode", [lambda t: t == 1.0, lambda t: 2.0 * t - 1.0])
def test_treatment_coding_does_not_matter(real, recode):
    treatment = np.where(real.kind == "treatment", recode(real.treatment), np.nan)
    expected = DensityUplift(**FAST, random_state=0).fit(**real).predict(real.X)
    recoded = replaced(real, treatment=treatment)
    found = DensityUplift(**FAST, random_state=0).fit(**recoded).predict(real.X)
    assert_array_equal(found, expected)


def test_uplift_is_in_the_units_of_the_outcome(real):
    model = DensityUplift(**FAST, random_state=0)
    euros = model.fit(**real).predict(real.X)
    cents = model.fit(**with_outcomes(real, lambda y: 100.0 * y - 7000.0)).predict(
        real.X
    )
    assert_allclose(cents, 100.0 * euros, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (5.0, 9.0), (1.0, 0.0)])
def test_coding_of_two_values_changes_units_only(binary, low, high):
    coded = with_outcomes(binary, lambda y: np.where(y == 1.0, high, low))
    expected = DensityUplift().fit(**binary).predict(binary.X) * (high - low) / 2.0
    assert_allclose(DensityUplift().fit(**coded).predict(binary.X), expected, atol=1e-9)


def test_same_seed_same_bits(real):
    first, again = (DensityUplift(**FAST, random_state=3).fit(**real) for _ in range(2))
    assert_array_equal(first.predict(real.X), again.predict(real.X))
    other = DensityUplift(**FAST, random_state=4).fit(**real)
    assert not np.array_equal(first.predict(real.X), other.predict(real.X))


def test_weights_count_in_proportion_and_zero_leaves_a_row_out(real):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, real.n_rows) * (
        np.arange(800) % 5 > 0
    )
    kept = np.flatnonzero(weight)
    model = DensityUplift(**FAST, treatment_model=LinearRegression(), random_state=0)
    expected = model.fit(**replaced(real, sample_weight=weight)).predict(real.X)
    part = {**dict(real.take(kept)), "sample_weight": 10.0 * weight[kept]}
    assert_allclose(model.fit(**part).predict(real.X), expected, rtol=1e-8)
    unweighted = model.fit(**real.take(kept)).predict(real.X)
    assert np.abs(unweighted - expected).max() > 1e-3


def test_target_rows_have_no_say(real):
    with_target = real_problem().draw(200, n_target=50, random_state=0)
    expected = DensityUplift(**FAST, random_state=0).fit(**real).predict(real.X)
    found = DensityUplift(**FAST, random_state=0).fit(**with_target).predict(real.X)
    assert_array_equal(found, expected)


def test_feature_names_are_kept_and_checked(real):
    frame = pd.DataFrame(real.X, columns=["recency", "spend"])
    model = DensityUplift(**FAST, random_state=0).fit(**replaced(real, X=frame))
    assert model.feature_names_in_.tolist() == ["recency", "spend"]
    with pytest.raises(ValueError, match="X lacks the column 'spend'"):
        model.predict(frame.rename(columns={"spend": "other"}))


# --- memory ----------------------------------------------------------------------------------


def test_chunks_change_nothing_and_memory_does_not_grow_with_rows_times_grid(real):
    """20,000 rows and 4,000 values are 640 MB; chunks of 16 MB need a dozen matrices at most."""
    model = DensityUplift(**FAST | {"width_y": 0.004}, random_state=0).fit(**real)
    assert len(model.grid_) > 4000
    X = np.tile(real.X, (25, 1))
    tracemalloc.start()
    try:
        uplift = model.predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * 16e6
    assert_allclose(uplift, np.tile(model.predict(real.X), 25), rtol=1e-12)


# --- the guard -------------------------------------------------------------------------------


def test_predict_says_how_many_rows_the_guard_touched():
    data = crossing()
    model = DensityUplift(**FAST, min_gap=0.1, random_state=0).fit(**data)
    Z = model.scaling_(data.X)
    gap = (model.treatment_means_[0](Z) - model.treatment_means_[1](Z)) / 2.0
    n_touched = int((np.abs(gap) < 0.1).sum())
    assert n_touched > 0
    message = rf"too small at {n_touched} of 1200 rows.*with a gap of 0.1 \(min_gap\)"
    with pytest.warns(RatioGuardWarning, match=message) as caught:
        uplift = model.predict(data.X)
    assert caught[0].filename == __file__
    assert np.isfinite(uplift).all()


def test_without_any_gap_uplift_is_zero_and_said_so(real):
    """The same treatment rows in both populations: every fitted gap is exactly zero."""
    X, treatment = np.array(real.X), np.array(real.treatment)
    first, second = real.rows("treatment", "A"), real.rows("treatment", "B")
    X[second], treatment[second] = X[first], treatment[first]
    model = DensityUplift(**FAST, min_gap=0.0, random_state=0)
    with (
        pytest.warns(UserWarning, match="as if one file was given twice"),
        pytest.warns(UserWarning, match="can hardly be told apart"),
    ):
        model.fit(**replaced(real, X=X, treatment=treatment))
    with pytest.warns(
        RatioGuardWarning, match=r"800 of 800 rows.*no solution.*set to 0"
    ):
        assert_array_equal(model.predict(real.X), 0.0)


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
@pytest.mark.filterwarnings("ignore::unjoined.errors.ColumnWarning")
def test_rows_far_from_the_data_get_finite_uplift(real):
    model = DensityUplift(**FAST, random_state=0).fit(**real)
    far = np.array([[1e6, -1e6], [1e100, 1e100], [-1e200, 0.0], [0.0, 0.0]])
    assert np.isfinite(model.predict(far)).all()


# --- messages --------------------------------------------------------------------------------


def test_bad_parameters_are_named(real):
    cases = (
        ({"min_gap": -0.1}, "min_gap must be a finite number, 0 or above, got -0.1"),
        ({"min_gap": 1.5}, "min_gap is a difference of probabilities, got 1.5 > 1"),
        ({"width_x": 0.0}, "width_x must be a finite number above 0, got 0.0"),
        ({"width_y": "median"}, "width_y must be one of 'cv', got 'median'"),
        ({"ridge": 0}, "ridge must be a finite number above 0, got 0"),
        ({"n_folds": 1}, "n_folds must be 2 or above, got 1"),
        ({"n_folds": "auto"}, "n_folds must be a whole number, 1 or above, got 'auto'"),
        ({"n_centers": 1}, "n_centers must be 2 or above, got 1"),
        (
            {"n_centers": 500},
            r"'A' has 200 outcome rows, but its density needs 500 .*Pass a small",
        ),
        (
            {"outcome_model": LogisticRegression()},
            "outcome_model is for outcomes of two values",
        ),
    )
    for parameters, message in cases:
        with pytest.raises(InputError, match=message):
            DensityUplift(**FAST | parameters).fit(**real)


def test_a_failed_refit_leaves_no_parts_of_two_fits(real):
    """Parameters are checked before anything is forgotten; rows that cannot do leave nothing."""
    model = DensityUplift(**FAST, random_state=0).fit(**real)
    before = model.predict(real.X)
    with pytest.raises(InputError, match="ridge must be"):
        model.set_params(ridge=-1.0).fit(**real)
    assert_array_equal(model.predict(real.X), before)
    with pytest.raises(InputError, match="its density needs 500"):
        model.set_params(ridge=0.01, n_centers=500).fit(**real)
    with pytest.raises(NotFittedError):
        model.predict(real.X)


def test_a_single_outcome_row_has_no_density(real):
    few = real.take(np.concatenate([np.arange(199, 800)]))
    with pytest.raises(
        InputError, match=r"'A' has 1 outcome rows, but its density needs 2"
    ):
        DensityUplift().fit(**few)


def test_weights_are_refused_by_models_that_take_none(binary):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, binary.n_rows)
    with pytest.raises(InputError, match=r"KNeighborsClassifier.fit takes no weights"):
        DensityUplift(outcome_model=KNeighborsClassifier()).fit(
            **replaced(binary, sample_weight=weight)
        )
