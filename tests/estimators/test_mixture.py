"""The likelihood of the tables: units, symmetries and errors; the search and what it keeps."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from unjoined.estimators.mixture_fit import Member, MixtureFit
from unjoined.estimators.mixture_rules import (
    LEAST_WEIGHT,
    MOST_MEMBERS,
    choose_threshold,
    weigh_settings,
)
from unjoined.estimators.mixture_search import MixtureSearch, OutcomeRows, Setting, deal_folds

from unjoined import MinMaxUplift, MixtureUplift, load_model, save_model
from unjoined.basis import FourierBasis, GaussianBasis, LeadingBasis, LinearBasis, draw_pool
from unjoined.data import CellKFold, SimulatedProblem
from unjoined.errors import InputError, LabelError, WeakIdentificationWarning
from unjoined.estimators import mixture as _mixture
from unjoined.estimators import mixture_fit as _mixture_fit
from unjoined.estimators.em import fit_em
from unjoined.solve import BernoulliTerms, GaussianMixture, MeanTerms, Scoring

# One setting and a policy model without luck: what is left is the likelihood itself.
PLAIN = {
    "basis": "linear",
    "policy_model": LogisticRegression(),
    "ridge_base": 1e-4,
    "ridge_effect": 1e-4,
    "average": False,
    "n_folds": 2,
    "n_starts": 1,
    "n_jobs": 1,
    "random_state": 0,
}
SMALL = {"n_centers": 10, "n_folds": 3, "n_jobs": 1, "random_state": 0}
FAMILIES = ["bernoulli", "mean", "gaussian"]
TYPES = [
    "estimators._mixture.MixtureUplift",
    "estimators._mixture_fit.Member",
    "estimators._mixture_fit.MixtureFit",
    "estimators._mixture_rules.MixtureCandidates",
    "estimators._mixture_search.Setting",
    "estimators._policies.PolicyFit",
    "estimators._em.EMFit",
    "_validation._labels.OutcomeCoding",
    "features._kernel.KernelBasis",
    "features._pool.LeadingBasis",
]
TRUSTED = [f"unjoined.{name}" for name in TYPES]


def policy(intercept, slope=0.5):
    return lambda X: expit(intercept + slope * X[:, 0])


POLICIES = {"A": policy(1.2), "B": policy(-1.2, -0.5)}


def problem(family, policies=POLICIES):
    """Base 0.2 + 0.8 x_0 and effect 1 - 1.5 x_1, log-odds or outcome units."""

    def mean(X, treated):
        value = 0.2 + 0.8 * X[:, 0] + (treated - 0.5) * (1.0 - 1.5 * X[:, 1])
        return expit(value) if family == "bernoulli" else value

    def outcome(X, treated, rng):
        if family == "bernoulli":
            return (rng.random_sample(len(X)) < mean(X, treated)).astype(float)
        return mean(X, treated) + rng.standard_normal(len(X))

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies=policies,
        outcome=outcome,
        outcome_mean=mean,
    )


def draw(family="bernoulli", n=250, seed=0, **settings):
    return dict(problem(family, **settings).draw(n, random_state=seed))


def draw_several(policies, n, seed=0, family="real"):
    """Tables of any number of populations; each pair of policies makes a problem of its own."""
    parts = []
    for k, name in enumerate(policies):
        pair = problem(family, {name: policies[name], "?": policies[name]})
        data = dict(pair.draw(n, random_state=100 * seed + k))
        at = data["population"] == name
        parts.append({field: data[field][at] for field in ("X", "y", "kind", "population")})
    return {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}


def with_outcomes(data, change):
    return {**data, "y": np.where(data["kind"] == "outcome", change(data["y"]), data["y"])}


def with_treatments(data, change):
    return {**data, "y": np.where(data["kind"] == "treatment", change(data["y"]), data["y"])}


# --- Units and symmetries -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (3.0, 7.0), (0.0, 1e-3)])
def test_the_coding_of_a_binary_outcome_changes_only_the_units(low, high):
    data = draw()
    plain = MixtureUplift(**SMALL).fit(**data)
    other = MixtureUplift(**SMALL).fit(**with_outcomes(data, lambda y: low + (high - low) * y))
    reach = high - low
    assert_allclose(other.predict(data["X"]), reach * plain.predict(data["X"]), rtol=1e-12)
    for with_, without in zip(
        other.predict_outcomes(data["X"]), plain.predict_outcomes(data["X"]), strict=True
    ):
        assert_allclose(with_, low + reach * without, rtol=1e-12)
        assert ((without >= 0.0) & (without <= 1.0)).all()


@pytest.mark.parametrize("family", ["mean", "gaussian"])
def test_shifting_and_rescaling_a_real_outcome_changes_only_the_units(family):
    """The fit sees scaled outcomes, the same but for rounding, which convergence to 1e-9 in
    value turns into less than 1e-4 in coefficients of order 1."""
    data = draw("real")
    settings = {**PLAIN, "family": family}
    plain = MixtureUplift(**settings).fit(**data)
    other = MixtureUplift(**settings).fit(**with_outcomes(data, lambda y: 100.0 - 10.0 * y))
    for with_, without in zip(
        other.predict_outcomes(data["X"]), plain.predict_outcomes(data["X"]), strict=True
    ):
        assert_allclose(with_, 100.0 - 10.0 * without, atol=1e-3)
    assert_allclose(other.predict(data["X"]), -10.0 * plain.predict(data["X"]), atol=1e-3)


def test_the_coding_of_treatments_changes_nothing():
    data = draw()
    one, two = (
        MixtureUplift(**SMALL).fit(**d).predict(data["X"])
        for d in (data, with_treatments(data, lambda t: 2 * t - 1))
    )
    assert_array_equal(one, two)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("policy_model", ["auto", LogisticRegression()])
def test_exchanging_treated_and_untreated_flips_the_sign(family, policy_model):
    """Labels cannot switch: the treatment tables say which part is which."""
    data = draw(family)
    model = MixtureUplift(**{**PLAIN, "family": family, "policy_model": policy_model})
    plain = model.fit(**data).predict(data["X"])
    treated, untreated = model.predict_outcomes(data["X"])
    model.fit(**with_treatments(data, lambda t: 1 - t))
    assert_allclose(model.predict(data["X"]), -plain, atol=1e-4)
    exchanged = model.predict_outcomes(data["X"])
    assert_allclose(exchanged[0], untreated, atol=1e-4)
    assert_allclose(exchanged[1], treated, atol=1e-4)


@pytest.mark.parametrize(
    "names",
    [
        np.array([1, 2]),
        np.array([False, True]),
        np.array([0.5, 2.5]),
        np.array(["north", "south"]),
        np.array(["2024-01-01", "2025-01-01"], dtype="datetime64[D]"),
    ],
    ids=["int", "bool", "float", "str", "date"],
)
def test_names_of_populations_change_nothing(names):
    data = draw(n=150)
    named = names[np.where(data["population"] == "A", 0, 1)]
    plain = MixtureUplift(**SMALL).fit(**data)
    other = MixtureUplift(**SMALL).fit(**{**data, "population": named})
    is_date = names.dtype.kind == "M"  # dates become text
    assert other.populations_ == (names.astype(str) if is_date else names).tolist()
    assert_array_equal(other.predict(data["X"]), plain.predict(data["X"]))
    assert other.score(**{**data, "population": named}) == plain.score(**data)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_order_of_populations_changes_nothing(family):
    """With one setting and no luck in the folds: to the convergence of the fits."""
    data = draw(family)
    swapped = np.where(data["population"] == "A", "B", "A")
    model = MixtureUplift(**{**PLAIN, "family": family})
    plain = model.fit(**data).predict(data["X"])
    chances = model.predict_policies(data["X"])
    model.fit(**{**data, "population": swapped})
    assert_allclose(model.predict(data["X"]), plain, atol=1e-4)
    assert_allclose(model.predict_policies(data["X"]), chances[:, ::-1], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_bits_depend_on_the_seed_but_not_on_the_threads(family):
    data = draw(family, n=100)
    settings = {"family": family, "n_centers": 10, "n_folds": 3}
    one = MixtureUplift(n_jobs=1, random_state=3, **settings).fit(**data)
    two = MixtureUplift(n_jobs=2, random_state=np.random.RandomState(3), **settings).fit(**data)
    assert_array_equal(one.predict(data["X"]), two.predict(data["X"]))
    assert one.candidates_.settings == two.candidates_.settings
    assert_array_equal(one.candidates_.loss, two.candidates_.loss)


# --- Weights ------------------------------------------------------------------------------------


def test_rows_of_weight_zero_are_as_if_they_were_not_there():
    data = draw()
    weight = np.ones(len(data["y"]))
    weight[::7] = 0.0
    kept = {name: values[weight > 0] for name, values in data.items() if values is not None}
    model = MixtureUplift(**SMALL)
    expected = model.fit(**kept).predict(data["X"])
    score = model.score(**kept)
    model.fit(**{**data, "sample_weight": weight})
    assert_array_equal(model.predict(data["X"]), expected)
    assert model.score(**{**data, "sample_weight": weight}) == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_weights_equal_repeated_rows(family):
    """One setting, tables that weigh the same; where scikit-learn's logistic stops is left."""
    data = draw(family, n=800)
    weight = np.empty(len(data["y"]), dtype=int)
    rng = np.random.default_rng(0)
    for kind in ("outcome", "treatment"):
        for name in "AB":
            at = np.flatnonzero((data["kind"] == kind) & (data["population"] == name))
            weight[at] = rng.permutation(np.resize([1, 2], len(at)))
    again = np.repeat(np.arange(len(weight)), weight)
    repeated = {name: values[again] for name, values in data.items() if values is not None}
    free = LogisticRegression(C=np.inf, tol=1e-8)
    model = MixtureUplift(**{**PLAIN, "family": family, "policy_model": free})
    expected = model.fit(**repeated).predict(data["X"])
    setting = model.candidates_.settings[0]
    model.fit(**{**data, "sample_weight": weight})
    assert model.candidates_.settings[0] == setting
    assert_allclose(model.predict(data["X"]), expected, atol=2e-3)


# --- Reductions and recovery --------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_treating_all_and_none_reduces_it_to_two_regressions(family):
    """With next to no ridge: the constant policies are known exactly."""
    known = {"A": lambda X: np.ones(len(X)), "B": lambda X: np.zeros(len(X))}
    data = draw(family, policies=known)
    settings = {**PLAIN, "family": family, "ridge_base": 1e-9, "ridge_effect": 1e-9}
    model = MixtureUplift(**settings).fit(**data)
    for found, name in zip(model.predict_outcomes(data["X"]), "AB", strict=True):
        at = (data["kind"] == "outcome") & (data["population"] == name)
        if family == "bernoulli":
            arm = LogisticRegression(C=np.inf, tol=1e-8).fit(data["X"][at], data["y"][at])
            expected = arm.predict_proba(data["X"])[:, 1]
        else:
            expected = LinearRegression().fit(data["X"][at], data["y"][at]).predict(data["X"])
        assert_allclose(found, expected, atol=1e-3)


@pytest.mark.statistical
@pytest.mark.parametrize("family", FAMILIES)
def test_linear_truth_is_found_within_its_standard_errors(family):
    """Mean of the uplift at random x. The mean family's average effect has the variance
    sigma^2 / (n sum_k E[c_k^2]), with sigma^2 <= 1 + E[u^2] / 4 < 2 and E[c^2] >= 0.05 for
    these policies; estimated policies add as much again. Real: 5 sqrt(2 * 2 / (4000 * 0.1)),
    binary half of it, as outcomes have variances below 1/4."""
    n = 4000
    data = draw(family, n=n)
    model = MixtureUplift(**{**PLAIN, "family": family}).fit(**data)
    X = problem(family).draw_joint(5000, random_state=1).X
    bound = 5 * np.sqrt(2 * 2 / (n * 0.1)) * (0.5 if family == "bernoulli" else 1.0)
    gap = model.predict(X) - problem(family).uplift(X)
    assert abs(gap.mean()) < bound
    assert np.sqrt(np.mean(gap**2)) < np.sqrt(3) * bound  # three coefficients
    assert np.corrcoef(model.predict(X), problem(family).uplift(X))[0, 1] > 0.9


def test_predictions_are_differences_of_outcomes_chunk_by_chunk(monkeypatch):
    data = draw(n=100)
    model = MixtureUplift(random_state=0, n_centers=10).fit(**data)
    whole = model.predict(data["X"])
    treated, untreated = model.predict_outcomes(data["X"])
    assert_array_equal(whole, treated - untreated)
    monkeypatch.setattr(_mixture, "PREDICT_ROWS", 64)
    assert_allclose(model.predict(data["X"]), whole, rtol=1e-12)


# --- Populations --------------------------------------------------------------------------------


def test_any_number_of_populations_is_taken():
    several = {"b": policy(1.5), "a": policy(-1.5), "d": policy(0.0), "c": policy(0.5, -1.0)}
    data = draw_several(several, 150)
    model = MixtureUplift(random_state=0, n_jobs=1).fit(**data)
    assert model.populations_ == ["a", "b", "c", "d"]
    assert len(model.policies_) == 4
    chances = model.predict_policies(data["X"])
    assert chances.shape == (len(data["y"]), 4)
    truth = np.column_stack([several[name](data["X"]) for name in "abcd"])
    # Two coefficients from 150 rows: sqrt(2 * 0.25 / 150) = 0.06; three times that.
    assert np.sqrt(np.mean((chances - truth) ** 2)) < 0.18
    assert np.isfinite(model.score(**data))
    assert not model.identification_.is_weak


@pytest.mark.statistical
def test_a_third_population_lowers_the_error():
    """Constant policies 0.6 and 0.4 have sum (e_k - mean)^2 = 0.02; 0.95 beside them makes it
    0.155. The variance falls to an eighth; over ten draws a ratio of squared errors, about
    F(10, 10), hides that once in 500 seeds."""
    two = {"A": lambda X: np.full(len(X), 0.6), "B": lambda X: np.full(len(X), 0.4)}
    three = {**two, "C": lambda X: np.full(len(X), 0.95)}
    law = problem("real", policies=two)
    X = law.draw_joint(500, random_state=1).X
    errors = []
    for seed in range(10):
        data = draw_several(three, 1200, seed)
        pair = data["population"] != "C"
        fewer = {name: values[pair] for name, values in data.items()}
        model = MixtureUplift(**{**PLAIN, "family": "mean"})
        gaps = [model.fit(**d).predict(X) - law.uplift(X) for d in (fewer, data)]
        errors.append([np.mean(gap**2) for gap in gaps])
    with_two, with_three = np.mean(errors, axis=0)
    assert with_three < with_two


def test_estimators_of_two_populations_refuse_a_third():
    data = draw_several({**POLICIES, "C": policy(0.0)}, 50)
    with pytest.raises(LabelError, match=r"found 3: 'A', 'B', 'C' .* use Uplift or MixtureUplift"):
        MinMaxUplift().fit(**data)


def test_policies_that_do_not_differ_are_warned_of():
    data = draw(n=100, policies={"A": policy(0.0), "B": policy(0.0)})
    with pytest.warns(WeakIdentificationWarning, match="can hardly be told apart"):
        MixtureUplift(**PLAIN).fit(**data)


# --- The search and what is kept ----------------------------------------------------------------


@pytest.fixture(scope="module")
def search():
    data = problem("bernoulli").draw(300, random_state=2)
    at = data.kind == "outcome"
    X, n = data.X[at], int(at.sum())
    rng = np.random.RandomState(0)
    pool = draw_pool(X, factors=(1.0,), n_centers=10, rng=rng)
    effects = (LeadingBasis(pool[0], 0), LeadingBasis(pool[0], 1), *pool)
    index = (data.population[at] == "B").astype(int)
    exposure = np.where(index == 0, POLICIES["A"](X), POLICIES["B"](X))
    weight = np.linspace(0.5, 1.5, n)
    rows = OutcomeRows(X, data.y[at], exposure, weight, deal_folds(index, 4, rng))
    return MixtureSearch(rows, pool, effects, Scoring(BernoulliTerms(), tol=1e-9), 0.0, 1)


SETTING = Setting(0, 2, 1e-3, 0.0, 1e-2, 0.0)


def test_a_held_out_loss_is_that_of_a_fit_to_the_other_folds(search):
    loss = search.score(SETTING)
    rows, F = search.rows, LinearBasis(2)(search.rows.Z)
    held = rows.fold == 2
    fit = search.engine.fit(
        search.part(SETTING, ~held),
        np.array([0, 1e-3, 1e-3, 1e-2, 1e-2, 1e-2]),
        np.zeros(6),
        p_base=3,
    )
    b, u, e = F[held] @ fit.base, F[held] @ fit.effect, rows.exposure[held]
    m = e * expit(b + u / 2) + (1 - e) * expit(b - u / 2)
    assert_allclose(loss[held], -np.log(np.where(rows.y[held] == 1, m, 1 - m)), atol=1e-5)
    assert search.mean(SETTING) == np.average(loss, weights=rows.weight)
    # residuals are those of the same fits
    assert search.residuals(SETTING).shape == loss.shape
    assert_allclose(search.residuals(SETTING)[held], rows.y[held] - b - e * u, atol=1e-2)


def test_all_rows_are_used_once_a_setting_is_chosen(search):
    fit = search.refit(SETTING)
    whole = search.part(SETTING, np.ones(len(search.rows.y), dtype=bool))
    penalty = np.array([0, 1e-3, 1e-3, 1e-2, 1e-2, 1e-2])
    assert_allclose(
        fit.coef, search.engine.fit(whole, penalty, np.zeros(6), p_base=3).coef, atol=1e-4
    )


def test_a_sweep_returns_the_lowest_held_out_loss_and_stops_when_it_rises(search):
    fresh = search.with_engine(search.engine)
    ridges = (1.0, 1e-2, 1e1, 1e2, 1e3, 1e4)
    best = fresh.sweep(SETTING, "effect_linear", ridges)
    tried = {s.effect_linear for s in fresh.losses}
    assert fresh.mean(best) == min(fresh.mean(s) for s in fresh.losses)
    assert 1e4 not in tried  # 10 and 100 did worse than 1 and 0.01, so that nothing follows


def test_folds_deal_each_population_evenly():
    population = np.repeat([0, 1, 2], [50, 23, 7])
    fold = deal_folds(population, 5, np.random.RandomState(0))
    for k in range(3):
        counts = np.bincount(fold[population == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    # One row of each population: folds of both rows together would leave nothing to fit.
    assert deal_folds(np.array([0, 1]), 5, np.random.RandomState(0)).tolist() == [0, 1]


def test_weights_sum_to_one_best_first(search):
    fresh = search.with_engine(search.engine)
    best = min((SETTING.but(effect_linear=r) for r in np.logspace(-6, 1, 15)), key=fresh.mean)
    weights = weigh_settings(fresh, best, average=True)
    values = list(weights.values())
    assert sum(values) == pytest.approx(1.0, abs=1e-12)
    assert next(iter(weights)) == best
    assert values == sorted(values, reverse=True)
    assert 1 < len(values) <= MOST_MEMBERS
    assert values[-1] >= LEAST_WEIGHT * values[0]
    # Ratios are likelihood ratios of as many rows as the weights are worth.
    other, w = list(weights)[1], fresh.rows.weight
    n = w.sum() ** 2 / (w @ w)
    ratio = np.exp(-n * (fresh.mean(other) - fresh.mean(best)))
    assert values[1] / values[0] == pytest.approx(ratio, rel=1e-9)
    assert weigh_settings(fresh, best, average=False) == {best: 1.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_of_candidates_adds_up(family):
    data = draw(family, n=100)
    model = MixtureUplift(**SMALL, family=family).fit(**data)
    table = model.candidates_
    nats = table.loss if family != "mean" else 0.5 * np.log(table.loss)
    charge = [1.0 * (s.base > 0) + 2.0 * (s.effect > 2) for s in table.settings]
    assert (np.diff(table.n_rows * nats + charge) >= -1e-9).all()  # best first, charges counted
    assert_allclose(table.difference, table.loss - table.loss[0])
    assert table.standard_error[0] == 0.0
    assert (table.standard_error >= 0.0).all()
    assert table.weight.sum() == pytest.approx(1.0)
    assert np.count_nonzero(table.weight) == len(model.fit_.members)
    assert_allclose([m.weight for m in model.fit_.members], table.weight[table.weight > 0])
    for effect in (0, 1):
        gain, error = table.gain_over(effect)
        first = next(i for i, s in enumerate(table.settings) if s.effect == effect)
        assert gain == table.difference[first]
        assert error >= 0.0
    assert (np.diff(model.fit_.objective) <= 0).all()
    assert model.fit_.converged


def test_given_ridges_are_the_only_ones_tried():
    data = draw(n=100)
    model = MixtureUplift(ridge_base=0.03, ridge_effect=0.2, random_state=0, n_folds=3).fit(**data)
    for setting in model.candidates_.settings:
        assert setting.base_linear == 0.03
        assert setting.base_smooth in (0.0, 0.03)
        assert setting.effect_linear == 0.2
        assert setting.effect_smooth in (0.0, 0.2)


def test_without_averaging_the_best_setting_stands_alone():
    data = draw(n=100)
    model = MixtureUplift(average=False, basis="linear", random_state=0).fit(**data)
    assert [m.weight for m in model.fit_.members] == [1.0]
    assert model.candidates_.weight[0] == 1.0


@pytest.mark.parametrize(
    "basis",
    [
        GaussianBasis(np.array([[0.0, 0.0], [1.0, -1.0]]), 1.5),
        FourierBasis(np.array([[1.0, 0.5], [0.3, 1.0]]), np.zeros(2)),
    ],
)
def test_a_given_basis_is_tried_beside_the_linear_one(basis):
    data = draw(n=100)
    model = MixtureUplift(basis=basis, random_state=0, n_folds=3).fit(**data)
    sizes = {s.base for s in model.candidates_.settings}
    assert sizes == {0, 1}
    assert np.isfinite(model.predict(data["X"])).all()
    with pytest.raises(InputError, match="given basis takes 2 features, but X has 1"):
        model.fit(**{**data, "X": data["X"][:, :1]})


def test_many_rows_are_fitted_with_settings_that_some_chose(monkeypatch):
    """Ridges are per row: a sample of a fifth of them needs five times the ridge.

    Fits stop when a step would gain less than 1e-9 of half the mean squared error: fitted values
    are then off by sqrt(2e-9), and effects by that over the spread of the exposures, above 0.1.
    """
    data = draw("real", n=500)
    monkeypatch.setattr(_mixture_fit, "SEARCH_ROWS", 200)
    monkeypatch.setattr(_mixture_fit, "IN_MEMORY_ROWS", 200)
    few = MixtureUplift(**PLAIN).fit(**data)
    monkeypatch.undo()
    settings = {**PLAIN, "ridge_base": 2e-5, "ridge_effect": 2e-5}
    whole = MixtureUplift(**settings).fit(**data)
    assert few.candidates_.settings[0].effect == whole.candidates_.settings[0].effect == 2
    off = few.predict(data["X"]) - whole.predict(data["X"])
    assert np.sqrt(np.mean(off**2)) < np.sqrt(2e-9) / 0.1


def test_of_many_rows_one_setting_of_each_pair_of_functions_is_kept(monkeypatch):
    """Settings of the same functions differ in ridges alone, which hardly matter then."""
    data = draw("binary", n=500)
    model = MixtureUplift(random_state=0, n_centers=10, n_folds=3)
    several = model.fit(**data).fit_.members
    assert len({(m.setting.base, m.setting.effect) for m in several}) < len(several)
    monkeypatch.setattr(_mixture_fit, "SEARCH_ROWS", 200)
    monkeypatch.setattr(_mixture_fit, "IN_MEMORY_ROWS", 200)
    members = model.fit(**data).fit_.members
    assert len({(m.setting.base, m.setting.effect) for m in members}) == len(members)
    assert abs(sum(m.weight for m in members) - 1.0) < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refit_to_the_same_rows_changes_nothing_and_to_others_little(family, monkeypatch):
    """Half of the rows of 4,000: coefficients move by about their standard error."""
    seen = []

    def fit_and_keep(rows, *args, **settings):
        seen.append(rows)
        return _mixture_fit.fit_mixture(rows, *args, **settings)

    monkeypatch.setattr(_mixture, "fit_mixture", fit_and_keep)
    model = MixtureUplift(**{**PLAIN, "family": family}).fit(**draw(family, n=2000))
    rows, fit = seen[0], model.fit_
    chance = np.full(len(rows.y), 0.5)
    same = _mixture_fit.refit(fit, rows)
    assert_allclose(same.means(rows.Z, chance), fit.means(rows.Z, chance), atol=1e-2)
    half = OutcomeRows(
        *(getattr(rows, name)[::2] for name in ("Z", "y", "exposure", "weight", "fold"))
    )
    other = _mixture_fit.refit(fit, half)
    assert other.members[0].setting == fit.members[0].setting
    gap = np.subtract(other.means(rows.Z, chance), fit.means(rows.Z, chance))
    assert 0.0 < np.sqrt(np.mean(gap**2)) < 0.2
    # Fewer rows fit themselves better than the fit to all does.
    inside = [f.log_likelihood(half.Z, half.y, half.exposure).mean() for f in (fit, other)]
    assert inside[1] > inside[0] - 1e-6


def test_a_constant_effect_that_does_better_is_kept():
    """No heterogeneity in the truth, and a heavy price on it: the effect has one function."""
    law = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 5)),
        policies=POLICIES,
        outcome=lambda X, treated, rng: 2.0 * treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: 2.0 * treated,
    )
    model = MixtureUplift(basis="linear", ridge_effect=1e-6, random_state=0, average=False)
    model.fit(**law.draw(200, random_state=0))
    assert model.candidates_.settings[0].effect == 1
    uplift = model.predict(law.draw_joint(10, random_state=1).X)
    assert_allclose(uplift, uplift[0], rtol=1e-12)


# --- Where the squared loss turns linear ---------------------------------------------------------


def test_normal_noise_keeps_the_squared_loss():
    """Bounding at 1.5 sd or more loses efficiency under normal noise: never worthwhile."""
    residual = np.random.default_rng(0).standard_normal(20_000)
    assert choose_threshold(residual, np.ones(20_000)) == np.inf


def test_heavy_tails_on_both_sides_are_bounded():
    """Student's t with 1.5 degrees has no variance at all; thresholds scale with the residual."""
    residual = np.random.default_rng(0).standard_t(1.5, 20_000)
    weight = np.ones(20_000)
    threshold = choose_threshold(residual, weight)
    assert np.isfinite(threshold)
    assert choose_threshold(10.0 * residual, weight) == pytest.approx(10.0 * threshold)
    inside = np.mean(np.abs(residual) < threshold)
    bounded = np.mean(np.clip(residual, -threshold, threshold) ** 2) / inside**2
    assert bounded < 0.9 * np.mean(residual**2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_long_tail_on_one_side_is_not_bounded(sign):
    """Sums of money: bounding would change the mean that is estimated."""
    money = np.exp(2.0 * np.random.default_rng(0).standard_normal(20_000))
    assert choose_threshold(sign * (money - money.mean()), np.ones(20_000)) == np.inf


def test_residuals_that_are_mostly_equal_have_no_threshold():
    residual = np.r_[np.zeros(90), np.full(5, 10.0), np.full(5, -10.0)]
    assert choose_threshold(residual, np.ones(100)) == np.inf


def test_weights_count_in_the_threshold():
    """Gross values of no weight do not call for a threshold."""
    rng = np.random.default_rng(0)
    residual = np.r_[rng.standard_normal(20_000), 1e3 * rng.standard_normal(200)]
    weight = np.r_[np.ones(20_000), np.full(200, 1e-12)]
    assert choose_threshold(residual, weight) == np.inf
    assert np.isfinite(choose_threshold(residual, np.ones(20_200)))


def test_gross_values_do_not_decide_the_fit():
    """Two in a hundred outcomes a hundred standard deviations away, on either side."""
    data = draw("real", n=600)
    rng = np.random.default_rng(1)
    gross = rng.random(len(data["y"])) < 0.02
    spoiled = with_outcomes(
        data, lambda y: np.where(gross, y + 100 * rng.choice([-1, 1], len(y)), y)
    )
    model = MixtureUplift(random_state=0, basis="linear")
    clean = model.fit(**data).predict(data["X"])
    assert model.fit_.threshold == np.inf
    robust = model.fit(**spoiled).predict(data["X"])
    assert np.isfinite(model.fit_.threshold)
    # Squared loss would see a variance of 0.02 * 1e4 = 200 and an error sqrt(200) = 14 times as
    # large; bounded, it is that of the clean rows and a few percent more.
    assert np.sqrt(np.mean((robust - clean) ** 2)) < 1.0


# --- Scores -------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_scores_better_than_its_neighbours(family):
    """Moving a coefficient by 0.5 costs at least 0.004 nats (information times 0.25 / 2); its
    standard error over 40,000 rows is sqrt(2 * 0.004 / 40,000) = 0.0005."""
    law = problem(family)
    data = law.draw(20_000, random_state=3)
    at = data.kind == "outcome"
    X, first = data.X[at], data.population[at] == "A"
    chances = np.column_stack([POLICIES[name](X) for name in "AB"])
    exposure = np.where(first, chances[:, 0], chances[:, 1])
    base, effect = np.array([0.2, 0.8, 0.0]), np.array([1.0, 0.0, -1.5])
    y = data.y[at]
    if family == "mean":  # the base is the mean at the mean policy; so is what it is fitted to
        mean = chances.mean(axis=1)
        exposure = exposure - mean
        y = y - (mean - 0.5) * (1.0 - 1.5 * X[:, 1])

    def score(b, u):
        member = Member(1.0, SETTING, LinearBasis(2), LinearBasis(2), b, u, 1.0)
        fit = MixtureFit(family, (member,), None, np.inf, np.empty(0), True, 0, 0)
        return fit.log_likelihood(X, y, exposure).mean()

    best = score(base, effect)
    for j in range(3):
        for step in (-0.5, 0.5):
            move = step * np.eye(3)[j]
            assert score(base + move, effect) < best
            assert score(base, effect + 2 * move) < best


@pytest.mark.parametrize("family", FAMILIES)
def test_the_score_is_the_mean_log_likelihood_written_out(family):
    data = draw(family, n=100)
    model = MixtureUplift(**SMALL, family=family).fit(**data)
    at = data["kind"] == "outcome"
    Z, y = model.scaling_(data["X"][at]), data["y"][at]
    chances = model.predict_policies(data["X"][at])
    e = np.where(data["population"][at] == "A", chances[:, 0], chances[:, 1])
    if family != "bernoulli":
        y = (y - model.outcome_scaling_.mean[0]) / model.outcome_scaling_.scale[0]
    density = 0.0
    for m in model.fit_.members:
        b, u = m.values(Z)
        if family == "bernoulli":
            p = e * expit(b + u / 2) + (1 - e) * expit(b - u / 2)
            part = np.where(y == 1, p, 1 - p)
        else:
            bell = lambda mean, s=m.sigma: np.exp(-0.5 * ((y - mean) / s) ** 2) / s  # noqa: E731
            part = (
                bell(b + (e - chances.mean(axis=1)) * u)
                if family == "mean"
                else e * bell(b + u / 2) + (1 - e) * bell(b - u / 2)
            ) / np.sqrt(2 * np.pi)
        density = density + m.weight * part
    assert model.score(**data) == pytest.approx(np.log(density).mean(), rel=1e-9)
    weight = np.where(at, np.arange(len(at)), 1.0)
    expected = np.average(np.log(density), weights=weight[at])
    weighted = model.score_likelihood(**{**data, "sample_weight": weight})
    assert weighted == pytest.approx(expected, rel=1e-9)


def test_grid_search_chooses_by_likelihood():
    data = draw(n=200)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            MixtureUplift(**PLAIN), {"ridge_effect": [1e3, 1e-2]}, cv=CellKFold(2)
        ).fit(**{k: v for k, v in data.items() if v is not None})
    assert search.best_params_["ridge_effect"] == 1e-2


def test_scoring_needs_outcome_rows_of_known_populations_and_values():
    data = draw(n=200)
    model = MixtureUplift(**PLAIN).fit(**data)
    treatments = {k: v[data["kind"] == "treatment"] for k, v in data.items() if v is not None}
    with pytest.raises(LabelError, match="no outcome rows to score; pass some"):
        model.score(**treatments)
    unknown = np.where(data["population"] == "A", "A", "Z")
    with pytest.raises(LabelError, match=r"has not seen: \['Z'\]; known are \['A', 'B'\]"):
        model.score(**{**data, "population": unknown})
    with pytest.raises(LabelError, match=r"outcomes 0 and 1 only, but y holds 2 in an outcome row"):
        model.score_likelihood(**with_outcomes(data, lambda y: 2 * y))


# --- EM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "outcome_model"),
    [
        ("bernoulli", LogisticRegression()),
        ("bernoulli", make_pipeline(PolynomialFeatures(2), StandardScaler(), LogisticRegression())),
        ("gaussian", LinearRegression()),
        ("gaussian", Ridge()),
    ],
)
def test_em_is_the_same_likelihood_over_other_models(family, outcome_model):
    """The class adds policies and units; the rest is `fit_em` on the same rows."""
    data = draw(family)
    model = MixtureUplift(
        engine="em",
        outcome_model=outcome_model,
        policy_model=LogisticRegression(),
        n_starts=1,
        random_state=0,
    ).fit(**data)
    assert model.family_ == family
    assert model.candidates_ is None
    at = data["kind"] == "outcome"
    chances = model.predict_policies(data["X"][at])
    e = np.where(data["population"][at] == "A", chances[:, 0], chances[:, 1])
    y, scale = data["y"][at], model.outcome_scaling_
    own = fit_em(
        model.scaling_(data["X"][at]),
        (y - scale.mean[0]) / scale.scale[0],
        e,
        np.ones(at.sum()),
        outcome_model,
        family=family,
        rng=np.random.RandomState(0),
    )
    treated, untreated = own.means(model.scaling_(data["X"]))
    expected = scale.scale[0] * (treated - untreated)
    assert_allclose(model.predict(data["X"]), expected, atol=1e-8)
    assert model.score(**data) == pytest.approx(own.path.max(), abs=1e-9)


def test_both_engines_agree_without_penalties():
    """Two ways to one maximum: each stops within 1e-6 of it per row."""
    data = draw(n=1000)
    settings = {"policy_model": LogisticRegression(), "n_starts": 1, "random_state": 0}
    exact = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8)
    em = MixtureUplift(engine="em", outcome_model=exact, **settings).fit(**data)
    free = MixtureUplift(**{**PLAIN, "ridge_base": 1e-9, "ridge_effect": 1e-9}).fit(**data)
    assert em.score(**data) == pytest.approx(free.score(**data), abs=2e-4)
    assert np.corrcoef(em.predict(data["X"]), free.predict(data["X"]))[0, 1] > 0.99


# --- Parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "magic"}, r"engine must be one of 'likelihood', 'em', got 'magic'"),
        ({"family": "poisson"}, r"family must be one of 'auto', 'bernoulli'.* got 'poisson'"),
        ({"engine": "em"}, r"engine='em' needs outcome_model, .* such as LogisticRegression"),
        (
            {"engine": "em", "family": "mean", "outcome_model": Ridge()},
            r"family='mean' has no likelihood for EM; use engine='likelihood'",
        ),
        ({"outcome_model": Ridge()}, r"outcome_model is for engine='em'; leave it out"),
        ({"policy_model": "logistic"}, r"policy_model must be .*'auto', got 'logistic'"),
        ({"policy_model": Ridge()}, r"policy_model must be 'auto' or a classifier, got Ridge"),
        ({"basis": "gaussian"}, r"basis must be one of 'auto', 'linear', got 'gaussian'"),
        ({"basis": 3}, r"basis must be a name, or a callable with size and n_features, got 3"),
        ({"widths": (1.0, -1.0)}, r"widths must be .*got -1"),
        ({"n_centers": 0}, r"n_centers must be .*got 0"),
        ({"ridge_base": 0.0}, r"ridge_base must be .*got 0"),
        ({"ridge_effect": "none"}, r"ridge_effect must be .*got 'none'"),
        ({"n_starts": 0}, r"n_starts must be .*got 0"),
        ({"n_folds": 1}, r"n_folds must be at least 2, got 1"),
    ],
)
def test_wrong_parameters_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        MixtureUplift(**settings).fit(**draw(n=20))


def test_a_real_outcome_is_not_bernoulli():
    with pytest.raises(InputError, match=r"'bernoulli' needs an outcome of two values; use 'mean'"):
        MixtureUplift(family="bernoulli").fit(**draw("real", n=200))


@pytest.mark.parametrize("family", ["mean", "gaussian"])
def test_a_binary_outcome_may_be_taken_as_real(family):
    data = draw(n=300)
    model = MixtureUplift(family=family, basis="linear", random_state=0).fit(**data)
    assert model.family_ == family
    assert np.corrcoef(model.predict(data["X"]), problem("bernoulli").uplift(data["X"]))[0, 1] > 0.7


def test_what_does_not_settle_is_warned_of(monkeypatch):
    def unsettled(*args, **settings):
        return replace(_mixture_fit.fit_mixture(*args, **settings), converged=False)

    monkeypatch.setattr(_mixture, "fit_mixture", unsettled)
    with pytest.warns(ConvergenceWarning, match=r"did not settle; see fit_.objective"):
        MixtureUplift(**PLAIN).fit(**draw(n=200))


def test_tables_may_be_weighted_to_the_target():
    data = problem("bernoulli").draw(200, n_target=100, random_state=0)
    plain = MixtureUplift(**PLAIN).fit(**data)
    assert plain.shift_ is None
    model = MixtureUplift(**PLAIN, shift="classifier", shift_clip=20.0).fit(**data)
    assert len(model.shift_.cells) == 4
    assert np.isfinite(model.predict(data.X)).all()
    weighted = MixtureUplift(**PLAIN, shift="classifier").fit(
        **problem("mean").draw(200, random_state=0)
    )
    assert weighted.shift_ is not None


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bernoulli", {}),
        ("mean", {}),
        ("gaussian", {"policy_model": LogisticRegression(), "basis": "linear"}),
        ("bernoulli", {"engine": "em", "outcome_model": LogisticRegression()}),
    ],
)
def test_models_are_saved_and_loaded(family, settings, tmp_path):
    data = draw(family)
    model = MixtureUplift(**SMALL, n_starts=1, family=family, **settings).fit(**data)
    path = save_model(model, tmp_path / "model.skops")
    loaded = load_model(path, trusted=TRUSTED)
    assert_array_equal(loaded.predict(data["X"]), model.predict(data["X"]))
    assert loaded.score(**data) == model.score(**data)


def test_small_tables_can_be_fitted():
    """One outcome row of each population is the least that has folds at all."""
    for n in (2, 3, 5):
        data = draw("real", n=20, seed=n)
        few = np.concatenate(
            [
                np.flatnonzero((data["kind"] == kind) & (data["population"] == name))[:size]
                for kind, size in (("outcome", n - 1), ("treatment", 20))
                for name in "AB"
            ]
        )
        small = {name: values[few] for name, values in data.items() if values is not None}
        for family in ("mean", "gaussian"):
            model = MixtureUplift(family=family, basis="linear", random_state=0)
            with pytest.warns(WeakIdentificationWarning):
                model.fit(**small)
            assert np.isfinite(model.predict(data["X"])).all()


def test_engines_of_each_family():
    assert isinstance(_mixture_fit._engine("gaussian", 1e-3), GaussianMixture)
    assert _mixture_fit._engine("mean", 1e-3, 2.0).terms == MeanTerms(2.0)
