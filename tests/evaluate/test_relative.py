"""Relative effects: the average over what the outcome would be untreated."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import chi2

from unjoined import SeparateLabels, Uplift, WeightedUplift
from unjoined.data.rows import label_rows
from unjoined.evaluate import cross_evaluate, evaluate_uplift
from unjoined.evaluate.terms import evaluation_of, linear_evaluation
from unjoined.model.linear import cross_fit_linear

pytestmark = pytest.mark.usefixtures("two_folds")

BASE, RISE = np.exp(0.5 * 0.3**2), 0.5  # of outcomes without treatment


def draw(n, seed, policies=(1.0, -1.0), known="", scale=1.0):
    """Poisson outcomes that treatment raises by half, n rows in each table.

    Of the outcome rows a fifth may know the treatment, or all of them its probability.
    """
    rng = np.random.default_rng(seed)
    K = len(policies)
    population = np.tile(np.repeat(np.arange(K), n), 2)
    is_outcome = np.arange(2 * K * n) < K * n
    X = rng.standard_normal((2 * K * n, 2))
    chance = expit(np.array(policies)[population] + 0.3 * X[:, 0])
    t = rng.random(len(X)) < chance
    y = scale * rng.poisson(np.exp(0.3 * X[:, 1]) * (1.0 + RISE * t))
    tells = ~is_outcome
    if known == "both":
        tells |= rng.random(len(X)) < 0.2
    return {
        "X": X,
        "y": np.where(is_outcome, y, np.nan),
        "treatment": np.where(tells, t, np.nan),
        "population": population,
        "policy": np.where(is_outcome, chance, np.nan) if known == "policy" else None,
    }


def evaluation(rows, fold):
    return evaluation_of(rows, fold, cross_fit_linear(rows, fold))


def linear(columns):
    columns = {name: column for name, column in columns.items() if column is not None}
    return linear_evaluation(label_rows(columns.pop("X"), **columns))


DESIGNS = {
    "two": {},
    "three": {"policies": (1.0, -1.0, 0.3)},
    "panel": {"known": "both"},
    "policies": {"known": "policy"},
}


@pytest.mark.parametrize("design", DESIGNS)
def test_errors_are_those_of_repeated_draws(design):
    """Deviations over standard errors have mean 0 and variance 1, within four of their errors.

    A ratio of which both parts are noisy is skew: the deviation that Fieller's interval is made of
    is that of numerator less truth times denominator.
    """
    n = 60
    z = []
    for seed in range(n):
        found = linear(draw(300, seed, **DESIGNS[design])).relative()
        ratio = found.ratio
        off = ratio.numerator - RISE * ratio.denominator
        variance = ratio.numerator_variance - 2.0 * RISE * ratio.covariance
        z.append(off / np.sqrt(variance + RISE**2 * ratio.denominator_variance))
    assert abs(np.mean(z)) < 4.0 / np.sqrt(n)
    low, high = chi2.ppf([1e-4, 1.0 - 1e-4], n - 1) / (n - 1)
    assert low < np.var(z, ddof=1) < high


@pytest.mark.parametrize("design", DESIGNS)
def test_the_base_weighs_rows_as_least_variance_does(design):
    """Slow: for each row, weights a of least sum a^2 / p with sum a = 1 and sum a e = 0.

    Of rows whose exposure is known, a further unit of the same size stands for what they know more.
    """
    rows = linear(draw(60, 0, **DESIGNS[design]))
    terms = rows.terms(rows.omega())
    K = rows.n_populations
    p = rows.population_share
    slow = np.zeros(len(rows.cell))
    outcome = np.flatnonzero(rows.cell < K)
    for i in outcome:
        # Unknowns: a of each population and, where exposures vary within it, its slope on them.
        e, within = rows.policies[i], rows.each_within[i]
        cost = np.diag(np.concatenate([1.0 / p, np.where(within > 0, within, 1.0) / p]))
        one = np.concatenate([np.ones(K), np.zeros(K)])
        treated = np.concatenate([e, within])
        solved = np.block(
            [
                [cost, one[:, None], treated[:, None]],
                [one, np.zeros(2)],
                [treated, np.zeros(2)],
            ]
        )
        a = np.linalg.solve(solved, np.r_[np.zeros(2 * K), 1.0, 0.0])[: 2 * K]
        k = rows.cell[i]
        weight = a[k]
        if rows.exposure is not None and not np.isnan(rows.exposure[i]):
            weight += a[K + k] * (rows.exposure[i] - e[k])
        slow[i] = rows.omega()[i] * weight * rows.residual[i]
    base = rows.aim * rows.omega() * rows.untreated
    found = (terms.seen - terms.due[1])[outcome]
    assert_allclose(found, (slow + base)[outcome], rtol=1e-9, atol=1e-12)


def test_it_is_the_average_over_the_base_that_both_labels_show():
    """All that is noise is left out here: outcomes are their means, policies are known."""
    columns = draw(4000, 0, known="policy")
    base = 2.0 + columns["X"][:, 1] ** 2
    columns["y"] = np.where(
        np.isnan(columns["y"]), np.nan, base * (1.0 + 0.25 * columns["policy"])
    )
    found = linear(columns).relative()
    assert found.value == pytest.approx(0.25, abs=4.0 * found.standard_error)
    assert found.standard_error < 0.02


def test_units_do_not_matter_but_the_origin_does():
    columns = draw(300, 1)
    one = linear(columns).relative()
    cents = linear(columns | {"y": 100.0 * columns["y"]}).relative()
    assert_allclose(cents.interval(), one.interval(), rtol=1e-9)
    rows = linear(columns)
    average = rows.average().value
    more = linear(columns | {"y": 3.0 + columns["y"]}).relative()
    # 3 more on the base and nothing on the effect
    assert average / more.value == pytest.approx(average / one.value + 3.0, rel=1e-9)


def test_counted_rows_are_as_if_written_out():
    rng = np.random.default_rng(0)
    columns = draw(150, 2)
    columns["X"] = np.clip(np.round(columns["X"]), -1, 1)
    del columns["policy"]
    times = rng.integers(1, 4, len(columns["X"]))
    rows = label_rows(**columns, count=times)
    apart = rows.written_out()
    fold = rows.deal(5, np.random.RandomState(0))
    counted = evaluation(rows, fold).relative()
    people = np.repeat(fold, rows.count.astype(int))
    written = evaluation(apart, people).relative()
    assert_allclose(counted.interval(), written.interval(), rtol=1e-8)


def test_copies_of_rows_in_clusters_add_nothing():
    """Each row three times, in a cluster: the interval is that of single rows, nearly.

    It is wider by the factor n / (n - 1) and by Student's t of 300 clusters: 0.3 % and 0.4 %.
    """
    columns = draw(300, 3)
    del columns["policy"]
    names = np.arange(len(columns["X"]))
    fold = names % 5
    alone = evaluation(label_rows(**columns, cluster=names), fold).relative()
    thrice = {name: np.repeat(column, 3, axis=0) for name, column in columns.items()}
    rows = label_rows(**thrice, cluster=np.repeat(names, 3))
    copied = evaluation(rows, np.repeat(fold, 3)).relative()
    assert copied.value == pytest.approx(alone.value, rel=1e-6)
    assert copied.standard_error == pytest.approx(alone.standard_error, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y - 1.0,  # some outcomes are negative
        lambda y: 1.0 + (y > 1.0),  # two values, neither of them 0
        lambda y: -y,
    ],
)
def test_outcomes_that_are_no_amounts_have_none(change):
    columns = draw(300, 4)
    assert linear(columns).relative() is not None
    assert linear(columns | {"y": change(columns["y"])}).relative() is None


def test_a_base_that_may_be_0_has_none():
    """Only the treated buy, so that the base is 0; or the policies are nearly the same."""
    columns = draw(300, 5)
    rng = np.random.default_rng(5)
    t = rng.random(len(columns["X"])) < np.where(columns["population"] == 0, 0.8, 0.2)
    y = np.where(np.isnan(columns["y"]), np.nan, t * rng.poisson(2.0, len(t)))
    assert linear(columns | {"y": y}).relative() is None
    assert linear(draw(300, 5, policies=(0.05, -0.05))).relative() is None


@pytest.fixture(scope="module")
def data():
    return SeparateLabels(**{k: v for k, v in draw(700, 6).items() if v is not None})


@pytest.fixture(scope="module")
def model(data):
    return Uplift(n_jobs=1, random_state=0).fit(data)


def test_the_summary_shows_it_beside_the_absolute_effect(model):
    relative, average = model.relative_effect_, model.average_effect_
    assert relative.ratio.numerator == pytest.approx(average.ratio.numerator)
    low, high = relative.interval()
    words = f", {100 * relative.value:+.0f}% (95% interval {100 * low:+.0f}% to "
    assert (
        f"{words}{100 * high:+.0f}%) of what it would be untreated." in model.summary()
    )
    assert (low > 0.0) == (average.interval()[0] > 0.0)
    assert low < RISE < high


def test_an_offer_has_no_base_of_its_compliers(data):
    offered = Uplift(randomised=True, n_jobs=1, random_state=0).fit(data)
    assert offered.relative_effect_ is None
    assert "untreated" not in offered.summary()
    assert cross_evaluate(offered, data, random_state=0).relative is None


def test_other_estimators_have_it_too(data):
    fitted = WeightedUplift(basis="linear", random_state=0).fit(data)
    assert ") of what it would be untreated." in fitted.summary()
    assert fitted.relative_effect_.covers(RISE)


def test_evaluations_have_it():
    held = SeparateLabels(**{k: v for k, v in draw(700, 7).items() if v is not None})
    found = evaluate_uplift(lambda X: X[:, 0], held, n_jobs=1, random_state=0)
    sentence = found.sentences()[1]
    assert sentence.startswith("It is +")
    assert sentence.endswith("of what it would be untreated.")
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["relative"]["value"] == found.relative.value
    assert "relative" in found.to_frame()["what"].to_list()
    assert found.relative.covers(RISE)
