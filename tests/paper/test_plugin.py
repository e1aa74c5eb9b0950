"""Four regressions and a ratio: equal to the formula by hand, and never infinite."""

import contextlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from unjoined import (
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    PlugInUplift,
    SeparateLabels,
)
from unjoined.data import CellKFold, SimulatedProblem, unjoin
from unjoined.errors import InputError, RatioGuardWarning
from unjoined.evaluate import uplift_scorer

GAP = {"A": 0.9, "B": 0.2}  # constant policies: the ratio is tame


def real_problem(policies=None):
    """A real outcome in two features; uplift 3 + x_0, in outcome units."""

    def mean(X, treated):
        return 10.0 + X[:, 1] + treated * (3.0 + X[:, 0])

    constant = {name: (lambda X, p=p: np.full(len(X), p)) for name, p in GAP.items()}
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies=policies or constant,
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


@pytest.fixture(scope="module")
def real():
    return real_problem().draw(400, random_state=0)


@pytest.fixture(scope="module")
def binary(real):
    y = np.array(real.y)
    outcome = real.kind == "outcome"
    y[outcome] = y[outcome] > np.median(y[outcome])
    return SeparateLabels(**{**dict(real), "y": y})


def cell(data, kind, population):
    at = data.rows(kind, population)
    return data.X[at], data.checked.label[at]


def test_default_equals_the_ratio_written_by_hand(binary):
    """Lemma 1 of the paper with four logistic regressions, on standardised features."""
    model = PlugInUplift().fit(**binary)

    def propensity(kind, population):
        X, y = cell(binary, kind, population)
        fitted = LogisticRegression().fit(model.scaling_(X), y)
        return fitted.predict_proba(model.scaling_(np.asarray(binary.X)))[:, 1]

    expected = (propensity("outcome", "A") - propensity("outcome", "B")) / (
        propensity("treatment", "A") - propensity("treatment", "B")
    )
    assert_allclose(model.predict(binary.X), expected, rtol=1e-12)


def test_treating_all_and_none_reduces_to_the_t_learner(real):
    """The paper's special case: then population and treatment are the same thing."""
    everyone = real_problem(
        {"A": lambda X: np.ones(len(X)), "B": lambda X: np.zeros(len(X))}
    ).draw(300, random_state=1)
    fitted = {k: LinearRegression().fit(*cell(everyone, "outcome", k)) for k in "AB"}
    expected = fitted["A"].predict(real.X) - fitted["B"].predict(real.X)
    model = PlugInUplift(outcome_model=LinearRegression()).fit(**everyone)
    assert_allclose(model.predict(real.X), expected, rtol=1e-9)


def test_linear_truth_is_found_within_its_standard_error():
    """E[y|x,k] = 10 + x_1 + e_k (3 + x_0): least squares is right but for sampling noise.

    The ratio's error at x = 0 is that of two means of 10,000 rows with variance at most
    1 + Var(t)(3 + x_0)^2 <= 1 + 0.25 * 10 per row, over a gap of 0.7 that is itself known to
    0.006: five standard errors are 5 * sqrt(2 * 3.5 / 1e4) / 0.7 + 3 * 5 * 0.006 / 0.7 < 0.33.
    """
    data = real_problem().draw(10_000, random_state=0)
    model = PlugInUplift(
        outcome_model=LinearRegression(), treatment_model=LinearRegression()
    )
    assert abs(model.fit(**data).predict([[0.0, 0.0]])[0] - 3.0) < 0.33


def crossing():
    """Policies that cross at x_0 = 0, where the ratio has a pole."""
    return real_problem(
        {
            "A": lambda X: 1 / (1 + np.exp(-2 * X[:, 0])),
            "B": lambda X: 1 / (1 + np.exp(2 * X[:, 0])),
        }
    ).draw(500, random_state=0)


def test_the_ratio_is_that_of_the_four_means_but_for_a_small_gap():
    for min_gap in (0.0, 0.01, 0.05, 0.3):
        data = crossing()
        model = PlugInUplift(min_gap=min_gap).fit(**data)
        Z = model.scaling_(data.X)
        gap = (model.treatment_means_[0](Z) - model.treatment_means_[1](Z)) / 2.0
        difference = model.outcome_means_[0](Z) - model.outcome_means_[1](Z)
        small = np.abs(gap) < min_gap
        expected = (
            model.outcome_scale_
            * difference
            / np.where(small, np.sign(gap) * min_gap, gap)
        )
        assert small.any() == (min_gap > 0.0)
        with (
            pytest.warns(RatioGuardWarning) if small.any() else contextlib.nullcontext()
        ):
            assert_allclose(model.predict(data.X), expected, rtol=1e-12)


def test_predict_says_how_many_rows_the_guard_touched():
    data = crossing()
    model = PlugInUplift(min_gap=0.1).fit(**data)
    Z = model.scaling_(data.X)
    gap = (model.treatment_means_[0](Z) - model.treatment_means_[1](Z)) / 2.0
    n_touched = int((np.abs(gap) < 0.1).sum())
    assert n_touched > 0
    message = rf"too small at {n_touched} of {data.n_rows} rows.*gap of 0.1 \(min_gap\)"
    with pytest.warns(RatioGuardWarning, match=message):
        model.predict(data.X)


def test_without_any_gap_uplift_is_zero_and_said_so(real):
    """The same treatment rows in both populations: every fitted gap is exactly zero."""
    X, treatment = np.array(real.X), np.array(real.treatment)
    first, second = real.rows("treatment", "A"), real.rows("treatment", "B")
    X[second], treatment[second] = X[first], treatment[first]
    same = SeparateLabels(**{**dict(real), "X": X, "treatment": treatment})
    with (
        pytest.warns(UserWarning, match="as if one file was given twice"),
        pytest.warns(UserWarning, match="can hardly be told apart"),
    ):
        model = FourRidge().fit(**same)
    with pytest.warns(
        RatioGuardWarning, match=r"1600 of 1600 rows.*not finite.*set to 0"
    ):
        assert_array_equal(model.predict(real.X), 0.0)


def test_whole_weights_equal_repeated_rows(real):
    """Without a penalty: more rows weigh more against one, and weights alone do not."""
    weight = np.random.default_rng(0).integers(0, 3, real.n_rows)
    repeated = real.take(np.repeat(np.arange(real.n_rows), weight))
    policy = LogisticRegression(C=np.inf, tol=1e-8)
    free = PlugInUplift(outcome_model=LinearRegression(), treatment_model=policy)
    expected = free.fit(**repeated).predict(real.X)
    weighted = free.fit(**{**dict(real), "sample_weight": weight})
    assert_allclose(
        weighted.predict(real.X), expected, rtol=1e-4
    )  # logistic stops at 1e-4
    pipe = make_pipeline(PolynomialFeatures(1), LinearRegression())
    both = PlugInUplift(outcome_model=pipe, treatment_model=LinearRegression())
    plain = PlugInUplift(
        outcome_model=LinearRegression(), treatment_model=LinearRegression()
    )
    assert_allclose(
        both.fit(**{**dict(real), "sample_weight": weight}).predict(real.X),
        plain.fit(**repeated).predict(real.X),
        rtol=1e-8,
    )


def test_weights_are_refused_by_models_that_take_none(binary):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, binary.n_rows)
    model = PlugInUplift(outcome_model=KNeighborsClassifier())
    with pytest.raises(InputError, match=r"KNeighborsClassifier.fit takes no weights"):
        model.fit(**{**dict(binary), "sample_weight": weight})
    assert np.isfinite(model.fit(**binary).predict(binary.X)).all()


def test_a_classifier_is_refused_for_a_real_outcome(real):
    with pytest.raises(
        InputError, match="LogisticRegression is a classifier, but the label takes"
    ):
        FourLogistic().fit(**real)


def test_min_gap_must_not_be_negative(real):
    with pytest.raises(
        InputError, match=r"min_gap must be a finite number, 0 or above, got -0.1"
    ):
        PlugInUplift(min_gap=-0.1).fit(**real)


@pytest.mark.parametrize("preset", [FourLogistic, FourNNC, FourRidge, FourNNR])
def test_presets_are_as_the_paper_has_them(preset, real, binary):
    model = preset(random_state=0)
    assert model.min_gap == 0.0
    for part in (model.outcome_model, model.treatment_model):
        if hasattr(part, "hidden_layer_sizes"):
            assert part.hidden_layer_sizes == (10, 10)
    data = binary if preset in (FourLogistic, FourNNC) else real
    first = model.fit(**data).predict(data.X)
    assert np.isfinite(first).all()
    assert_array_equal(preset(random_state=0).fit(**data).predict(data.X), first)


def test_the_callers_models_are_not_changed(binary):
    outcome_model = LogisticRegression()
    PlugInUplift(outcome_model=outcome_model).fit(**binary)
    assert not hasattr(outcome_model, "coef_")


@pytest.mark.slow
def test_networks_learn_outcomes_in_the_thousands():
    """Without standardised outcomes the networks would still be at their start."""
    data = real_problem().draw(1500, random_state=0)
    y = np.where(data.kind == "outcome", 1000.0 * data.y, data.y)
    model = FourNNR(random_state=0).fit(**{**dict(data), "y": y})
    new = real_problem().draw_joint(2000, random_state=1)
    assert np.corrcoef(model.predict(new.X), new.uplift)[0, 1] > 0.5
    assert 1500.0 < np.median(model.predict(new.X)) < 4500.0


def test_grid_search_reaches_into_the_models(binary):
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            PlugInUplift(outcome_model=LogisticRegression(), min_gap=0.01),
            {"outcome_model__C": [1e-6, 1.0]},
            scoring=uplift_scorer("weighted_risk"),
            cv=CellKFold(2),
        ).fit(**binary)
    assert search.best_params_["outcome_model__C"] == 1.0


def test_fits_tables_from_an_unjoined_trial():
    trial = real_problem().draw_joint(6000, random_state=2)
    tables = unjoin(trial.X, trial.y, trial.treatment, policies=GAP, random_state=0)
    uplift = FourRidge().fit(**tables.data).predict(trial.X)
    assert np.corrcoef(uplift, trial.uplift)[0, 1] > 0.5
