"""Centring and the choice of ridges and width, as a user of the estimator meets them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression

from unjoined import MinMaxGau, MinMaxUplift, SeparateLabels
from unjoined.data import CellKFold, SimulatedProblem, campaign_problem, paper_problem
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.estimators.minmax import MinMaxSearch
from unjoined.evaluate import qini, weighted_risk
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.minmax import RIDGES_F, RIDGES_G

PLAIN = {"width": "median", "ridge_f": 1e-2, "ridge_g": 1e-2}


def main_effect(shift=0.0):
    """Uplift 1 + x_0 under a main effect of ten times its variance."""

    def mean(X, treated):
        return 5.0 * X[:, 1] + 2.0 * np.sin(2.0 * X[:, 0]) + treated * (1.0 + X[:, 0])

    def law(centre):
        return lambda n, rng: rng.normal([0.0, centre], 1.0, (n, 2))

    return SimulatedProblem(
        features={"A": law(shift), "B": law(-shift)},
        target_features=law(0.0),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.3),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def with_outcome(data, outcome):
    return SeparateLabels(
        **{
            **dict(data),
            "y": np.where(data.kind == "outcome", outcome, np.asarray(data.y)),
        }
    )


@pytest.fixture(scope="module")
def data():
    return main_effect().draw(200, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    return MinMaxUplift(random_state=0).fit(**data)


# --- centring -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "add",
    [lambda X: 1e4 + 0.0 * X[:, 0], lambda X: 3.0 - 40.0 * X[:, 0] + 9.0 * X[:, 1]],
)
def test_a_linear_function_of_x_added_to_the_outcome_changes_nothing(data, fitted, add):
    """Ridges, width and uplift: what both populations share is none of the uplift's business."""
    other = MinMaxUplift(random_state=0).fit(**with_outcome(data, data.y + add(data.X)))
    assert other.search_.chosen == fitted.search_.chosen
    assert_allclose(other.predict(data.X), fitted.predict(data.X), atol=1e-6)


def test_outcomes_in_cents_choose_the_same_settings(data, fitted):
    cents = MinMaxUplift(random_state=0).fit(**with_outcome(data, 100.0 * data.y))
    assert cents.search_.chosen == fitted.search_.chosen
    assert_allclose(cents.search_.score, 1e4 * fitted.search_.score, rtol=1e-6)
    assert_allclose(cents.search_.risk, 1e4 * fitted.search_.risk, rtol=1e-6)
    assert_allclose(cents.predict(data.X), 100.0 * fitted.predict(data.X), rtol=1e-6)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize(
    "problem", [paper_problem(2.0), main_effect(0.0)], ids=["paper b=2", "main effect"]
)
def test_centring_raises_the_share_of_the_oracle(problem):
    """Paired by draw, by more than four standard errors of the mean difference."""
    gains = []
    for seed in range(12):
        rows = problem.draw(500, random_state=seed)
        new = problem.draw_joint(2000, random_state=1000 + seed)
        shares = [
            qini(
                MinMaxUplift(center=center, **PLAIN, random_state=seed)
                .fit(**rows)
                .predict(new.X),
                new.uplift,
                normalize=True,
            ).value
            for center in (True, False)
        ]
        gains.append(shares[0] - shares[1])
    assert np.mean(gains) > 4.0 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_a_given_regressor_centres(data):
    linear = MinMaxUplift(center=LinearRegression(), **PLAIN, random_state=0).fit(
        **data
    )
    smooth = MinMaxUplift(**PLAIN, random_state=0).fit(**data)
    assert not np.allclose(linear.predict(data.X), smooth.predict(data.X), atol=1e-3)
    with pytest.raises(InputError, match="LogisticRegression is a classifier"):
        MinMaxUplift(center=LogisticRegression()).fit(**data)


@pytest.mark.statistical
def test_centring_takes_off_most_of_a_shift_between_populations():
    """Feature laws 1 apart in x_1, main effect 5 x_1: uncentred, the uplift is off by 5 / 0.5.

    The law that centring rests on needs equal laws of features, but what m explains of the
    outcome can no longer be taken for uplift. Weights remove the rest.
    """
    problem = main_effect(shift=0.5)
    errors = {True: [], False: []}
    for seed in range(5):
        rows = problem.draw(1000, random_state=seed)
        for center, found in errors.items():
            model = MinMaxUplift(basis="linear", center=center, **PLAIN, random_state=0)
            found.append(model.fit(**rows).predict([[0.0, 0.0]])[0] - 1.0)
    assert np.mean(errors[False]) > 5.0
    assert abs(np.mean(errors[True])) < 1.0


def test_the_papers_method_is_not_centred_and_searches_nothing(data):
    model = MinMaxGau(random_state=0)
    settings = model.get_params()
    assert settings["center"] is False
    assert settings["basis"] == "gaussian"
    fit = model.fit(**data)
    assert fit.search_ is None
    assert (fit.ridge_f_, fit.ridge_g_, fit.basis_.width) == (1e-4, 1e-2, 25.0)


# --- the search -----------------------------------------------------------------------------


def test_the_search_reports_what_was_tried(data, fitted):
    report = fitted.search_
    assert isinstance(report, MinMaxSearch)
    assert_allclose(report.widths / report.widths[1], [0.5, 1.0, 2.0])
    assert (
        report.score.shape
        == report.standard_error.shape
        == (3, len(RIDGES_G), len(RIDGES_F))
    )
    assert report.risk.shape == report.risk_standard_error.shape == (3,)
    assert report.chosen[0] == np.argmin(report.risk)
    assert report.risk_standard_error[report.chosen[0]] == 0.0
    assert fitted.basis_.second.width == report.width
    assert (fitted.ridge_f_, fitted.ridge_g_) == (report.ridge_f, report.ridge_g)
    assert report.ridge_f == RIDGES_F[report.chosen[2]]


def test_a_search_is_a_fit_with_what_it_chose(data, fitted):
    """The ridges and the width put in by hand, and the same seed, give the same uplift."""
    report = fitted.search_
    again = MinMaxUplift(
        width="median", ridge_f=report.ridge_f, ridge_g=report.ridge_g, random_state=0
    )
    if report.chosen[0] != 1:
        again.set_params(width=report.width)
    assert again.fit(**data).search_ is None
    expected = fitted.predict(data.X)
    assert np.corrcoef(again.predict(data.X), expected)[0, 1] > 0.99


def test_only_what_is_auto_is_searched(data):
    cases = (
        ({"ridge_f": 0.1}, (3, 4, 1)),
        ({"ridge_g": 0.1}, (3, 1, 15)),
        ({"width": "median"}, (1, 4, 15)),
        ({"width": 2.0}, (1, 4, 15)),
        ({"ridge_f": 0.1, "ridge_g": 0.1}, (3, 1, 1)),
        ({"basis": "linear"}, (1, 4, 15)),
        ({"basis": LinearBasis(2)}, (1, 4, 15)),
        ({"basis": "fourier", "n_centers": 20}, (3, 4, 15)),
        ({"basis": "linear", "critic_basis": "gaussian"}, (1, 4, 15)),
        ({"critic_basis": "fourier"}, (3, 4, 15)),
        ({"center": False}, (3, 4, 15)),
        ({"center": False, "width": "median"}, (1, 4, 15)),
    )
    for parameters, shape in cases:
        model = MinMaxUplift(**parameters, random_state=0).fit(**data)
        assert model.search_.score.shape == shape
        assert np.isnan(model.search_.risk).all() == (shape[0] == 1)
        assert np.isfinite(model.predict(data.X)).all()
        for name in ("ridge_f", "ridge_g"):
            if name in parameters:
                assert getattr(model, name + "_") == parameters[name]
        if shape[0] == 3:
            assert_allclose(
                model.search_.widths / model.search_.widths[0], [1.0, 2.0, 4.0]
            )


def test_a_given_basis_is_used_as_it_is(data):
    """Whatever width="auto" would do to one drawn here; the critic's likewise."""
    basis = GaussianBasis(np.array([[0.0, 0.0], [1.0, -1.0]]), width=0.7)
    model = MinMaxUplift(basis=basis, random_state=0).fit(**data)
    assert model.basis_ is model.critic_basis_ is basis
    assert model.search_.widths.tolist() == [0.7]
    model = MinMaxUplift(critic_basis=basis, random_state=0).fit(**data)
    assert model.critic_basis_ is basis
    assert model.search_.score.shape[0] == 3


def test_a_critic_follows_the_width(data):
    model = MinMaxUplift(critic_basis="gaussian", ridge_g=1e-2, random_state=0).fit(
        **data
    )
    # Medians of two samples of the same rows differ by a few percent.
    assert model.critic_basis_.width == pytest.approx(
        model.basis_.second.width, rel=0.1
    )


def test_the_risk_of_a_width_is_the_weighted_risk_of_held_out_predictions():
    """Folds, fits and averages written out with the public function for one fold."""
    rows = paper_problem(5.0).draw(400, random_state=0)
    model = MinMaxUplift(random_state=0).fit(**rows)
    report = model.search_
    risks = []
    for train, test in CellKFold(5).split(**rows):
        fit = MinMaxUplift(
            width=report.width,
            ridge_f=report.ridge_f,
            ridge_g=report.ridge_g,
            random_state=0,
        ).fit(**rows.take(train))
        held = rows.take(test)
        models = {
            "policy_model": LogisticRegression(),
            "outcome_model": LogisticRegression(),
        }
        risks.append(weighted_risk(fit.predict(held.X), **held, **models))
    # Other folds, another model of the gap, other centres: the same number but for sampling.
    error = np.std(risks, ddof=1) / np.sqrt(5)
    assert (
        abs(report.risk[report.chosen[0]] - np.mean(risks)) < 5.0 * np.sqrt(2.0) * error
    )


@pytest.mark.slow
@pytest.mark.statistical
def test_chosen_settings_rank_nearly_as_well_as_the_best_of_the_grid():
    """More than nine tenths of what the best fixed pair of a coarse grid reaches, on average."""
    problem = campaign_problem()
    chosen, best = [], []
    for seed in range(4):
        rows = problem.draw(1500, random_state=seed)
        new = problem.draw_joint(4000, random_state=100 + seed)

        def share(rows=rows, new=new, seed=seed, **settings):
            model = MinMaxUplift(random_state=seed, **settings).fit(**rows)
            return qini(model.predict(new.X), new.uplift, normalize=True).value

        chosen.append(share())
        grid = [(f, g) for f in (1e-5, 1e-3, 1e-1, 10.0) for g in (1e-3, 1e-2)]
        best.append(max(share(width="median", ridge_f=f, ridge_g=g) for f, g in grid))
    assert np.mean(chosen) > 0.9 * np.mean(best)


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_other_losses_use_the_ridges_of_the_squared_one(data, loss):
    settings = {"basis": "linear", "random_state": 0}
    square = MinMaxUplift(**settings).fit(**data)
    other = MinMaxUplift(loss=loss, **settings).fit(**data)
    assert (other.ridge_f_, other.ridge_g_) == (square.ridge_f_, square.ridge_g_)


def test_threads_do_not_change_the_bits_of_a_search(data, fitted):
    two = MinMaxUplift(random_state=0, n_jobs=2).fit(**data)
    assert_array_equal(two.coef_, fitted.coef_)
    assert_array_equal(two.search_.score, fitted.search_.score)


def test_features_of_few_values_are_searched_soundly():
    """Two 0/1 features: rows repeat hundreds of times, and folds still have the law of all rows."""
    problem = SimulatedProblem(
        features=lambda n, rng: rng.randint(0, 2, (n, 2)).astype(float),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: (
            rng.random_sample(len(X)) < 0.2 + treated * (0.1 + 0.4 * X[:, 0])
        ).astype(float),
        outcome_mean=lambda X, treated: 0.2 + treated * (0.1 + 0.4 * X[:, 0]),
    )
    rows = problem.draw(2000, random_state=0)
    points = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    error = MinMaxUplift(random_state=0).fit(**rows).predict(points) - problem.uplift(
        points
    )
    # Each point has 500 rows per table: the Wald ratio's standard error is
    # sqrt(2 * 0.25 / 500) / 0.6 = 0.05 for the outcome alone.
    assert np.abs(error).max() < 4 * 0.053


def test_tables_of_one_row_are_refused_with_a_way_out():
    sizes = dict.fromkeys([(k, p) for k in ("outcome", "treatment") for p in "12"], 200)
    rows = paper_problem().draw(sizes | {("outcome", "1"): 1}, random_state=0)
    model = MinMaxUplift(n_centers=5, random_state=0)
    with pytest.raises(
        InputError, match=r"outcome table of population '1' has 1 .*center=False"
    ):
        model.fit(**rows)
    model.set_params(center=False, **PLAIN).fit(**rows)
    assert np.isfinite(model.coef_).all()


def test_the_number_of_centres_goes_by_all_rows_though_some_are_looked_at():
    rows = paper_problem().draw(4000, random_state=0)  # 16,000 in all, 10,000 looked at
    model = MinMaxUplift(**PLAIN, center=False, random_state=0).fit(**rows)
    assert model.basis_.size == 3 + 112  # 10 * 16,000 ** (1 / 4)


def test_held_out_values_do_not_depend_on_chunks(data, fitted, limits):
    limits("model.accumulate", PIECE_ROWS=7)
    small = MinMaxUplift(random_state=0).fit(**data)
    assert_allclose(small.search_.risk, fitted.search_.risk, rtol=1e-9)


def test_with_many_rows_a_sample_settles_the_width_and_all_the_ridges(data, limits):
    limits("estimators.minmax", CROSS_FIT_ROWS=700, SAMPLE_ROWS=90)  # 200 in each table
    model = MinMaxUplift(random_state=0).fit(**data)
    best = model.search_.chosen[0]
    limits("estimators.minmax", WIDTH_FACTORS=((0.5, 1.0, 2.0)[best],))
    given = MinMaxUplift(random_state=0).fit(**data)
    assert_allclose(model.search_.score[best], given.search_.score[0], rtol=1e-6)
    assert (model.ridge_f_, model.ridge_g_) == (given.ridge_f_, given.ridge_g_)
    assert_allclose(model.coef_, given.coef_, rtol=1e-6)


@pytest.mark.parametrize("stream", [False, True])
def test_much_memory_is_warned_of_where_the_fit_was_called(stream, data, limits):
    limits("estimators.minmax", MUCH_MEMORY=0.0)
    model = MinMaxUplift(n_centers=10, width="median", random_state=0)
    with pytest.warns(UnjoinedWarning, match="functions with each other") as caught:
        model.fit(SeparateLabels(**data, stream=stream))
    assert caught[0].filename == __file__
