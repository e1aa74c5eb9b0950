"""Searches: the right candidate where that is clear, the order given where it is not."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline

from unjoined import (
    MixtureUplift,
    PlugInUplift,
    UpliftSearchCV,
    WeightedUplift,
    identification_strength,
)
from unjoined.data import SimulatedProblem, campaign_problem
from unjoined.errors import InputError, RatioGuardWarning, WeakIdentificationWarning
from unjoined.estimators import search as _search
from unjoined.estimators.base import RowEstimator
from unjoined.estimators.candidates import Scored, choose, list_candidates, score_folds, score_rows
from unjoined.estimators.search import default_candidates
from unjoined.metrics import SCORES, HeldOutRows

QUICK = {"policy_model": LogisticRegression(), "outcome_model": LinearRegression()}
DEFAULTS = {"cv": 2, "scoring": "weighted_risk", "rule": "best", "random_state": 0, **QUICK}


def spend_problem(gap=1.5):
    """A real outcome with uplift 2 + 2 x_0, and policies ``gap`` apart on the logit scale."""

    def mean(X, treated):
        return 10.0 + X[:, 1] + treated * (2.0 + 2.0 * X[:, 0])

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={"A": lambda X: expit(gap + X[:, 1]), "B": lambda X: expit(-gap + X[:, 1])},
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
        feature_names=("x", "z"),
    )


class Known(RowEstimator):
    """Predict ``scale`` times the true uplift, ``noise`` added; learn nothing."""

    def __init__(self, scale=1.0, noise=0.0, fail=None, warn=None, random_state=None):
        self.scale, self.noise, self.fail, self.warn = scale, noise, fail, warn
        self.random_state = random_state

    def _check_parameters(self):
        pass

    def _fit_rows(self, rows, target):
        if self.fail == "fit":
            raise RuntimeError("the matrix is on fire")
        if self.warn is not None:
            warnings.warn("mind the gap", self.warn, stacklevel=2)
        self.seed_ = self.random_state

    def _predict_rows(self, matrix):
        if self.fail == "predict":
            return np.full(len(matrix), np.nan)
        rng = np.random.default_rng(self.seed_)
        noise = self.noise * rng.standard_normal(len(matrix))
        return self.scale * (2.0 + 2.0 * matrix[:, 0]) + noise

    def score_likelihood(self, X, y, *, kind, population, sample_weight=None):
        return -((self.scale - 1.0) ** 2)


@pytest.fixture(scope="module")
def problem():
    return spend_problem()


@pytest.fixture(scope="module")
def data(problem):
    return problem.draw(500, random_state=0)


def search(candidates, **settings):
    return UpliftSearchCV(candidates, **{**DEFAULTS, **settings})


def mean_error(estimator, X, y, *, kind, population):
    """A scorer of the user's own: minus the squared distance from the true uplift."""
    return -float(np.mean((estimator.predict(X) - 2.0 - 2.0 * X[:, 0]) ** 2))


CLEAR = [("none", Known(0.0)), ("right", Known(1.0)), ("wrong sign", Known(-1.0))]


@pytest.mark.parametrize(
    "scoring",
    [*SCORES, "likelihood", mean_error, ["weighted_risk", "fixed_critic", "outcome_risk"]],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("rule", ["best", "one_se"])
def test_the_right_candidate_is_picked_where_that_is_clear(data, scoring, rule):
    """The truth is ahead of 0 and of its negative by far more than the standard error."""
    model = search(CLEAR, scoring=scoring, rule=rule).fit(**data)
    assert model.best_name_ == "right"
    assert_allclose(model.predict(data.X), 2.0 + 2.0 * data.X[:, 0])
    assert [row.name for row in model.candidates_ if row.chosen] == ["right"]
    assert "'right' has the best" in model.reason_
    behind = model.candidates_["wrong sign"]
    assert behind.behind > max(model.candidates_["none"].behind, 3 * behind.standard_error)


@pytest.mark.parametrize("rule", ["best", "one_se"])
def test_ties_go_to_the_candidate_given_first(data, rule):
    same = [("b", Known()), ("a", Known()), ("c", Known())]
    model = search(same, rule=rule).fit(**data)
    assert model.best_name_ == "b"
    assert all(row.behind == row.standard_error == 0.0 for row in model.candidates_)


def test_one_standard_error_prefers_the_simpler_and_says_so(data):
    """Noise of 0.01 in a simple candidate is within the error of the exact one."""
    nearly = [("simple", Known(0.999, noise=0.01)), ("exact", Known())]
    model = search(nearly, rule="one_se").fit(**data)
    if model.candidates_["simple"].behind == 0.0:  # then the other order is the informative one
        nearly = nearly[::-1]
        model = search(nearly, rule="one_se").fit(**data)
    assert model.best_name_ == nearly[0][0]
    assert model.candidates_[nearly[1][0]].behind == 0.0
    assert "first of 2 candidates within one standard error" in model.reason_


def test_rules_by_hand():
    """Scores 3, 5, 4.5, 4.9 with errors of difference 1, -, 1, 0.01."""
    influence = np.zeros((3, 4))
    influence[[0, 1, 2], [0, 2, 3]] = [1.0, 1.0, 0.01]
    scored = Scored(np.array([3.0, 5.0, 4.5, 4.9]), influence)
    expected = {"best": [1], "one_se": [1], "average": [1, 2]}
    for rule, chosen in expected.items():
        best, taken, behind, error = choose(scored, rule)
        assert best == 1
        assert_array_equal(np.flatnonzero(taken), chosen)
        assert_allclose(behind, [2.0, 0.0, 0.5, 0.1])
        assert_allclose(error, [1.0, 0.0, 1.0, 0.01])


def test_average_predicts_the_mean_of_those_within_one_error(data):
    close = [("far", Known(-1.0)), ("a", Known(1.001)), ("b", Known(0.999))]
    model = search(close, rule="average").fit(**data)
    assert len(model.estimators_) == 2
    assert_allclose(model.predict(data.X), 2.0 + 2.0 * data.X[:, 0], rtol=1e-9)
    assert model.best_name_ in ("a", "b")
    assert model.best_estimator_ in model.estimators_
    assert "mean of 2 of 3 candidates" in model.reason_


def test_scores_are_those_of_out_of_fold_predictions(data):
    """One candidate by hand: fitted to the other folds, scored on all rows together."""
    candidate = WeightedUplift(basis="linear", ridge=0.1, n_folds=2, random_state=1, **QUICK)
    model = search([("only", candidate)], scoring="outcome_risk").fit(**data)
    rng = np.random.RandomState(0)  # seeds are drawn for the candidates first, then for folds
    candidate = list_candidates([("only", candidate)], rng)[0].estimator
    seed = int(rng.randint(np.iinfo(np.int32).max))
    uplift = np.empty(data.n_rows)
    for train, test in _search.CellKFold(2, random_state=seed).split(**data):
        uplift[test] = clone(candidate).fit(**data.take(train)).predict(data.X[test])
    held = HeldOutRows.from_data(**data, **QUICK, n_folds=2)
    assert model.candidates_["only"].score == pytest.approx(-held.score(uplift, "outcome_risk"))
    assert_array_equal(model.predict(data.X), clone(candidate).fit(**data).predict(data.X))


def test_standard_errors_are_those_of_paired_differences(data):
    model = search([("a", Known(0.9)), ("b", Known(0.5))], scoring="outcome_risk").fit(**data)
    held = HeldOutRows.from_data(**data, **QUICK, n_folds=2)
    u = 2.0 + 2.0 * data.X[:, 0]
    expected = held.difference(0.5 * u, 0.9 * u, "outcome_risk")
    assert model.candidates_["b"].behind == pytest.approx(expected.value)
    assert model.candidates_["b"].standard_error == pytest.approx(expected.standard_error)


@pytest.mark.slow
@pytest.mark.statistical
def test_stated_errors_match_the_spread_over_draws(problem):
    """Fixed candidates, policies almost known: 150 draws, so within 4 / sqrt(300) = 23 percent."""
    behind, stated = [], []
    for seed in range(150):
        model = search([("a", Known(1.0)), ("b", Known(0.0))], scoring="outcome_risk")
        row = model.fit(**problem.draw(200, random_state=seed)).candidates_["b"]
        behind.append(row.behind)
        stated.append(row.standard_error)
    assert np.sqrt(np.mean(np.square(stated))) == pytest.approx(np.std(behind, ddof=1), rel=0.25)


def test_repeats_are_averaged_row_by_row(data):
    held = HeldOutRows.from_data(**data, **QUICK, n_folds=2)
    uplift = np.random.default_rng(0).standard_normal((3, 2, data.n_rows))
    together = score_rows(held, uplift, ["weighted_risk"])
    alone = [score_rows(held, uplift[[r]], ["weighted_risk"]) for r in range(3)]
    assert_allclose(together.score, np.mean([s.score for s in alone], axis=0))
    assert_allclose(together.influence, np.mean([s.influence for s in alone], axis=0), atol=1e-15)


def test_several_scores_count_alike_whatever_their_units(data):
    """Each score is brought to a typical error of one half: twice the same one adds up to 1."""
    held = HeldOutRows.from_data(**data, **QUICK, n_folds=2)
    uplift = np.random.default_rng(0).standard_normal((1, 3, data.n_rows))
    once = score_rows(held, uplift, ["outcome_risk", "outcome_risk"])
    apart = once.influence - once.influence.mean(axis=1, keepdims=True)
    assert np.sqrt(np.mean(np.sum(apart**2, axis=0))) == pytest.approx(1.0)
    same = score_rows(held, 0.0 * uplift, ["outcome_risk", "weighted_risk"])
    assert len(set(same.score)) == 1


def test_fold_scores_have_the_error_of_a_mean_of_folds():
    scores = np.random.default_rng(0).standard_normal((1, 6, 2))
    scored = score_folds(scores)
    assert_allclose(scored.score, scores[0].mean(axis=0))
    _, _, _, error = choose(scored, "best")
    difference = scores[0, :, 0] - scores[0, :, 1]
    assert error.max() == pytest.approx(difference.std(ddof=1) / np.sqrt(6))
    twice = score_folds(np.concatenate([scores, scores]))  # repeats add no information
    assert choose(twice, "best")[3].max() == pytest.approx(error.max())


def test_grids_make_one_candidate_of_each_setting(data):
    model = search([("known", Known(), {"scale": [0.0, 1.0]}), ("other", Known(-1.0))]).fit(**data)
    assert model.candidates_.to_dict()["name"] == ["known(scale=0.0)", "known(scale=1.0)", "other"]
    assert model.candidates_.to_dict()["params"] == [{"scale": 0.0}, {"scale": 1.0}, {}]
    assert model.best_name_ == "known(scale=1.0)"
    assert model.best_estimator_.scale == 1.0
    assert len(model.candidates_) == 3
    text = repr(model.candidates_).splitlines()
    assert text[0].split() == ["candidate", "weighted_risk", "behind", "best", "std.", "error"]
    assert [line[0] for line in text[1:]] == [" ", "*", " "]
    with pytest.raises(KeyError, match="nobody"):
        model.candidates_["nobody"]


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)]
)  # processes import everything again
def test_same_seed_same_choice_whatever_the_jobs(data, backend):
    """Candidates without a seed get one, drawn before any work is dealt out."""
    noisy = [
        ("a", PlugInUplift(outcome_model=LinearRegression(), min_gap=0.0)),
        ("b", WeightedUplift(basis="gaussian", n_centers=20, ridge=0.01, n_folds=2, **QUICK)),
    ]
    first = search(noisy, n_repeats=2).fit(**data)
    with joblib.parallel_config(backend):
        second = search(noisy, n_repeats=2, n_jobs=2).fit(**data)
    assert first.candidates_.to_dict() == second.candidates_.to_dict()
    assert_array_equal(first.predict(data.X), second.predict(data.X))
    assert noisy[1][1].random_state is None


def test_warnings_are_repeated_once_with_a_count(data):
    loud = [
        ("calm", Known()),
        ("x", Known(0.0, warn=RatioGuardWarning)),
        ("y", Known(-1.0, warn=RatioGuardWarning)),
    ]
    with pytest.warns(RatioGuardWarning) as record:
        search(loud, n_repeats=2).fit(**data)
    # Three candidates, two folds, two repeats, and the fit of the best to all rows.
    assert [str(w.message) for w in record] == ["in 8 of 13 fits, of 'x', 'y': mind the gap"]
    assert record[0].filename == __file__


def test_seeds_reach_models_that_a_grid_brings_in():
    network = MLPRegressor()
    grid = {"outcome_model": [LinearRegression(), network], "min_gap": [0.1]}
    first, second = (
        list_candidates([("ratio", PlugInUplift(), grid)], np.random.RandomState(0))[1].estimator
        for _ in range(2)
    )
    assert first.outcome_model.random_state == second.outcome_model.random_state is not None
    assert network.random_state is None


def test_weak_identification_is_said_once():
    data = spend_problem(gap=0.0).draw(100, random_state=0)
    with pytest.warns(WeakIdentificationWarning) as record:
        search(CLEAR[:2]).fit(**data)
    assert len(record) == 1
    assert record[0].filename == __file__


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (
            "fit",
            r"candidate 'bad' failed in fold 1 of repeat 1: RuntimeError: the matrix is on fire",
        ),
        ("predict", r"candidate 'bad' failed in fold 1 .* uplift holds NaN or infinite values"),
    ],
)
def test_a_candidate_that_fails_is_named_with_its_fold(data, fail, message):
    model = search([("good", Known())]).fit(**data)
    model.set_params(candidates=[("good", Known()), ("bad", Known(fail=fail))])
    with pytest.raises(InputError, match=message):
        model.fit(**data)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(data.X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": []}, r"candidates must be a list of \(name, estimator\) .* got \[\]"),
        ({"candidates": [("a", 3)]}, r"each candidate must be .* got \('a', 3\)"),
        ({"candidates": [Known()]}, r"each candidate must be .* got Known\(\)"),
        ({"candidates": CLEAR + CLEAR}, r"different names, but 'none' occurs twice"),
        ({"scoring": "auc"}, r"scoring must be one of 'weighted_risk', .* got 'auc'"),
        ({"scoring": ["auc"]}, r"every entry of scoring must be one of .* got 'auc'"),
        ({"scoring": []}, r"scoring must be a name, a list of names or a callable, got \[\]"),
        ({"rule": "worst"}, r"rule must be one of 'best', 'one_se', 'average', got 'worst'"),
        ({"cv": 1}, r"cv must be at least 2 folds, got 1"),
        ({"n_repeats": 0}, r"n_repeats must be a whole number, 1 or above, got 0"),
        (
            {"scoring": "likelihood", "candidates": [("ratio", PlugInUplift())]},
            r"method score_likelihood, which 'ratio' \(PlugInUplift\) lacks",
        ),
    ],
)
def test_wrong_parameters_are_named(data, settings, message):
    with pytest.raises(InputError, match=message):
        search(**{"candidates": CLEAR, **settings}).fit(**data)


def test_data_frames_reach_the_candidates_with_their_names(data):
    """A candidate that selects columns by name works, in the folds and at predict."""
    frame = pd.DataFrame(np.asarray(data.X), columns=["x", "z"])
    with config_context(enable_metadata_routing=True):
        chosen = make_pipeline(
            make_column_transformer(("passthrough", ["x"])), Known(random_state=0)
        )
        model = search([("by name", chosen)]).fit(**{**dict(data), "X": frame})
        assert_allclose(model.predict(frame), 2.0 + 2.0 * data.X[:, 0])
    assert list(model.feature_names_in_) == ["x", "z"]


def test_weights_and_target_rows_are_passed_on(problem):
    """Rows of weight 0 and target rows change no score."""
    data = problem.draw(200, n_target=20, random_state=0)
    weight = np.where(np.arange(data.n_rows) % 5 == 0, 0.0, 1.0)
    model = search(CLEAR, scoring="outcome_risk").fit(**{**dict(data), "sample_weight": weight})
    kept = (weight > 0) & (data.kind != "target")
    other = search(CLEAR, scoring="outcome_risk").fit(**data.take(kept))
    assert model.candidates_["none"].score == pytest.approx(other.candidates_["none"].score)


def test_a_fold_without_events_is_scored_all_the_same(problem):
    """Four events in a table: some held-out fold has an outcome that never varies."""
    data = problem.draw(200, random_state=0)
    y = np.where(data.kind == "outcome", 0.0, data.y)
    for population in "AB":
        y[data.rows("outcome", population)[:2]] = 1.0
    rare = {**dict(data), "y": y}
    model = search([("a", Known(0.0)), ("b", Known(1.0))], cv=4, outcome_model=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(**rare).best_name_ == "a"


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
def test_a_search_without_candidates_brings_its_own(problem):
    data = problem.draw(300, random_state=0)
    model = UpliftSearchCV(cv=2, random_state=0).fit(**data)
    assert [row.name for row in model.candidates_] == [name for name, _ in default_candidates()]
    assert np.corrcoef(model.predict(data.X), problem.uplift(np.asarray(data.X)))[0, 1] > 0.8


TWO_FOLDS = {"cv": 2, "policy_model": LogisticRegression(), "outcome_model": LinearRegression()}


SCORES = ["weighted_risk", "outcome_risk", "fixed_critic"]


def mean(X, treated):
    return X[:, 1] + treated * (1.0 + 2.0 * X[:, 0])


def three(n, slope=2.0):
    slopes = {"A": slope, "B": -slope, "C": 0.0}
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            name: (lambda X, slope=slope: 1 / (1 + np.exp(-slope * (X[:, 0] + 0.5))))
            for name, slope in slopes.items()
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    ).draw(n, random_state=0)


class Scaled(BaseEstimator):
    """Predict a multiple of the true uplift; learn nothing."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y, *, kind, population):
        return self

    def predict(self, X):
        return self.scale * (1.0 + 2.0 * X[:, 0])


@pytest.mark.parametrize("scoring", [*SCORES, SCORES], ids=str)
def test_the_right_candidate_is_found_on_three_populations(scoring):
    """The truth is ahead of 0 and of its negative, and of that by many standard errors."""
    data = three(600)
    given = [(str(scale), Scaled(scale)) for scale in (0.0, 1.0, -1.0)]
    found = UpliftSearchCV(given, scoring=scoring, random_state=0, **TWO_FOLDS).fit(**data)
    assert found.best_name_ == "1.0"
    assert found.populations_ == ["A", "B", "C"]
    assert found.identification_ == identification_strength(**data)
    wrong = found.candidates_["-1.0"]
    assert wrong.behind > max(3 * wrong.standard_error, found.candidates_["0.0"].behind)


def test_a_search_without_candidates_takes_those_for_three_populations():
    data = three(80, slope=9.0)
    found = UpliftSearchCV(scoring="likelihood", cv=2, random_state=0).fit(**data)
    assert all(isinstance(model, MixtureUplift) for model in found.estimators_)
    truth = 1.0 + 2.0 * data.X[:, 0]
    assert np.corrcoef(found.predict(data.X), truth)[0, 1] > 0.9


def test_a_search_inside_a_search_takes_three_populations():
    inner = UpliftSearchCV([("true", Scaled()), ("none", Scaled(0.0))], **TWO_FOLDS)
    found = UpliftSearchCV([("inner", inner), ("wrong", Scaled(-1.0))], **TWO_FOLDS).fit(
        **three(400)
    )
    assert found.best_name_ == "inner"


def test_candidates_are_compared_by_rows_that_their_fits_have_not_seen():
    problem = campaign_problem()
    data = problem.draw(150, random_state=0)

    class Known(WeightedUplift):
        """Predicts the truth, or its opposite, whatever it was fitted to."""

        def __init__(self, sign=1.0):
            super().__init__(basis="linear")
            self.sign = sign

        def predict(self, X):
            return self.sign * problem.uplift(np.asarray(X))

    candidates = [("truth", Known()), ("opposite", Known(-1.0)), ("same", Known())]
    search = UpliftSearchCV(candidates, cv=2, compare=True, rule="best", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = search.fit(**data).comparison_
    first, second, third = found.differences
    assert {first.first, first.second} == {"truth", "same"}
    assert first.auuc.value == pytest.approx(0.0)
    assert second.auuc.value == pytest.approx(third.auuc.value)
    assert "truth and same order people alike" in search.reason_
    assert UpliftSearchCV(candidates[:2]).compare is False
    with pytest.raises(InputError, match="compare"):
        UpliftSearchCV(candidates, compare="yes").fit(**data)
