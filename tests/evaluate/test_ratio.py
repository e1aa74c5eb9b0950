"""Ratios of two totals: their intervals, their rows, and whom they speak for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chi2

from unjoined.data import SeparateLabels, paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.evaluate import Estimate, cross_fit
from unjoined.evaluate.estimate import Ratio
from unjoined.evaluate.terms import evaluation_rows, linear_evaluation
from unjoined.model.crossfit import CrossFit

N = 400


def rows_of(data):
    return label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
        sample_weight=data.sample_weight,
    )


def prepared(data, fold=None, **options):
    rows, rng = rows_of(data), np.random.RandomState(0)
    crossfit = CrossFit.of_rows(rows, fold=fold, n_jobs=1, rng=rng)
    return evaluation_rows(rows, crossfit, rng=rng, n_jobs=1, **options)


@pytest.fixture(scope="module")
def data():
    return paper_problem(b=2.0).draw(N, random_state=0)


@pytest.fixture(scope="module")
def rows(data):
    return prepared(data)


def three_populations(n, seed=0):
    """Three policies that differ by a constant; the uplift is x."""
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(6 * n, 2))
    population, kind = (
        np.arange(6 * n) % 3,
        np.where(np.arange(6 * n) % 2, "outcome", "treatment"),
    )
    t = rng.rand(6 * n) < np.array([0.2, 0.5, 0.9])[population]
    y = X[:, 1] + t * (0.5 + X[:, 0]) + 0.1 * rng.normal(size=6 * n)
    return SeparateLabels(
        X,
        np.where(kind == "outcome", y, np.nan),
        np.where(kind == "treatment", t, np.nan),
        population,
    )


def test_fiellers_set_holds_exactly_the_ratios_that_no_test_rejects():
    """Slow: test every value of a grid by the linear combination that would be 0."""
    cases = (
        Ratio(0.3, 1.0, 0.01, 0.01, 0.002),
        Ratio(0.3, 0.2, 0.01, 0.04, -0.01),
        Ratio(0.01, 0.02, 0.01, 0.04, 0.0),
        Ratio(0.0, 1.0, 0.0, 0.01, 0.0),
        Ratio(0.0, 0.0, 0.0, 0.0, 0.0),
    )
    for ratio in cases:
        grid = np.linspace(-10.0, 10.0, 4001)
        spread = (
            ratio.numerator_variance
            - 2.0 * grid * ratio.covariance
            + grid**2 * ratio.denominator_variance
        )
        kept = (
            np.abs(ratio.numerator - grid * ratio.denominator)
            <= 1.96 * np.sqrt(spread) + 1e-12
        )
        estimate = Estimate.of_ratio(ratio)
        level = 0.9500042097035593  # 1.96 standard errors
        found = np.array([estimate.covers(theta, level) for theta in grid])
        pieces = estimate.confidence_set(level)
        ends = np.array([end for piece in pieces for end in piece])
        far = np.min(np.abs(grid[:, None] - ends[None]), axis=1) > 1e-9
        assert (found == kept)[far].all()


def test_a_ratio_with_a_certain_denominator_has_the_normal_interval():
    ratio = Estimate.of_ratio(Ratio(0.6, 2.0, 0.04, 0.0, 0.0))
    assert_allclose(ratio.interval(0.9), Estimate(0.3, 0.1).interval(0.9))
    assert ratio.standard_error == pytest.approx(0.1)


def test_an_unbounded_interval_is_said_to_be_unbounded():
    weak = Estimate.of_ratio(Ratio(0.5, 0.1, 0.01, 0.01, 0.0))
    assert weak.interval() == (-np.inf, np.inf)
    (_, high), (low, _) = weak.confidence_set()
    assert high < 0.0 < low
    assert not weak.covers(0.0)


def test_levels_lie_between_0_and_1():
    for level in (0.0, 1.0, 95.0):
        with pytest.raises(InputError, match="strictly between 0 and 1"):
            Estimate(0.0, 1.0).interval(level)


def test_totals_vary_as_means_of_independent_tables_do(rows):
    """Slow textbook formula: variance of a sum of means, table by table."""
    terms = rows.terms(rows.omega())
    totals = terms.totals(terms.numerator, terms.denominator)
    variance = 0.0
    for cell in range(4):
        values = terms.numerator[terms.cell == cell]
        variance += np.var(values, ddof=1) / len(values)
    assert totals.covariance[0, 0] == pytest.approx(variance, rel=1e-12)
    assert totals.value[0] == pytest.approx(
        sum(terms.numerator[terms.cell == c].mean() for c in range(4)), rel=1e-12
    )


def test_the_average_varies_by_the_wider_of_two_influences(rows):
    """Fits of the policies follow the rows fully, or not at all: by loops over tables."""
    terms = rows.terms(rows.omega())
    for shift in (0.0, 3.0):
        moved = terms.shifted(shift)
        found = moved.average()
        followed = moved.plain - found.value * moved.aim
        fixed = moved.numerator - found.value * moved.denominator
        variances = [
            sum(
                np.var(left[terms.cell == c], ddof=1) / np.sum(terms.cell == c)
                for c in range(4)
            )
            for left in (followed, fixed)
        ]
        D = sum(moved.denominator[terms.cell == c].mean() for c in range(4))
        expected = np.sqrt(max(variances)) / D
        assert found.standard_error == pytest.approx(expected, rel=1e-12)
        assert variances[0] != pytest.approx(variances[1], rel=1e-3)


def test_the_average_is_the_published_formula(data, rows):
    """N and D by loops over tables, from the policies, base and effect of the rows."""
    y, kind = data.checked.label, data.kind
    gap = rows.policies[:, 0] - rows.policies[:, 1]
    omega = np.minimum(1.0, (gap / 0.2) ** 2)
    g = np.divide(omega, gap, out=np.zeros_like(gap), where=gap != 0.0)
    top, bottom = np.mean(g * gap * rows.effect), np.mean(g * gap)
    for k, name in enumerate(data.populations):
        sign, own = 1.0 - 2.0 * k, np.asarray(data.population) == name
        at = own & (kind == "outcome")
        top += sign * np.mean(g[at] * rows.residual[at])
        at = own & (kind == "treatment")
        treated = y[at] > 0
        bottom += sign * np.mean(g[at] * (treated - rows.policies[at, k]))
    average = rows.terms(rows.omega()).average()
    assert average.value == pytest.approx(top / bottom, rel=1e-12)


def test_contrasts_add_up_to_0_and_with_the_policies_to_1():
    rows = prepared(three_populations(60))
    p = rows.size / rows.size.sum()
    off = rows.policies - (rows.policies @ p)[:, None]
    c = p * off / ((off**2) @ p)[:, None]
    assert_allclose(c.sum(axis=1), 0.0, atol=1e-9)
    assert_allclose((c * rows.policies).sum(axis=1), 1.0)
    own = c[np.arange(len(c)), rows.cell % 3]
    assert_allclose(rows.contrast(), own)


@settings(max_examples=100, deadline=None)
@given(
    policies=st.lists(
        st.integers(5, 995).map(lambda e: e / 1000), min_size=3, max_size=5
    ),
    sizes=st.lists(st.integers(5, 10_000), min_size=5, max_size=5),
)
def test_no_population_makes_the_contrast_less_precise(rows, policies, sizes):
    """The noise of outcomes of one size, sum of c_k^2 / n_k: all against all but one of them."""

    def noise(e, n):
        K = len(e)
        known = np.column_stack([np.zeros(K), np.full(K, np.nan)])
        own = {"cell": np.arange(K), "policies": np.tile(e, (K, 1)), "size": n}
        c = replace(rows, known=known, **own).contrast()
        apart = np.ptp(e) > 0.0  # equal policies tell nothing, but for rounding
        return np.sum(c**2 / n) if apart else np.inf

    e, n = np.array(policies), np.array(sizes[: len(policies)], dtype=float)
    for left_out in range(len(e)):
        kept = np.arange(len(e)) != left_out
        assert noise(e, n) <= noise(e[kept], n[kept]) * (1.0 + 1e-9)


def test_three_populations_do_better_than_the_best_two():
    data = three_populations(250)
    best = data.take(np.asarray(data.population) != 1)
    all_three, two = prepared(data), prepared(best)
    three, pair = (each.terms(each.omega()).average() for each in (all_three, two))
    assert three.covers(0.5, 0.999)
    assert three.standard_error < pair.standard_error


def test_which_population_comes_first_changes_nothing(data):
    turned = {str(name): f"{9 - i}" for i, name in enumerate(data.populations)}
    names = np.array([turned[str(name)] for name in data.population])
    other = SeparateLabels(data.X, data.y, data.treatment, names)
    fold = np.arange(data.n_rows) % 5
    each = (prepared(other, fold=fold), prepared(data, fold=fold))
    average, before = (rows.terms(rows.omega()).average() for rows in each)
    assert average.value == pytest.approx(before.value, rel=1e-6)
    assert average.standard_error == pytest.approx(before.standard_error, rel=1e-6)


def test_who_counts_by_chance_adds_to_the_error_where_uplift_varies():
    """Two kinds of people who gain 1 and lose 1: treatments decide how much each kind counts.

    Deviations over standard errors have variance 1, within chi-square's limits at 1 in 10,000. As
    if policies were known it would be 1.5, beyond them.
    """
    n, draws = 600, 200
    z = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        sign = np.tile(np.repeat([1.0, -1.0], n), 2)
        x = np.where(rng.random(4 * n) < 0.5, 1.0, -1.0)
        t = rng.random(4 * n) < 0.5 + sign * (0.25 + 0.135 * x)
        is_outcome = np.arange(4 * n) < 2 * n
        y = np.where(is_outcome, x * t, np.nan)
        t = np.where(is_outcome, np.nan, t)
        rows = label_rows(x[:, None], y=y, treatment=t, population=sign)
        found = linear_evaluation(rows).average()
        z.append(found.value / found.standard_error)
    low, high = chi2.ppf([1e-4, 1.0 - 1e-4], draws - 1) / (draws - 1)
    assert low < np.var(z, ddof=1) < high


def test_plain_and_ratio_forms_agree_on_the_target_part(rows):
    """They differ in where the treatment rows enter: the denominator, or f times as much off N."""
    terms = rows.terms(rows.omega())
    assert terms.totals(terms.aim).value[0] == pytest.approx(terms.speaks_for)
    off = terms.numerator - terms.plain
    assert_allclose(off, rows.effect * (terms.denominator - terms.aim), atol=1e-12)
    assert (off[terms.cell < 2] == 0.0).all()
    assert (off[terms.cell >= 2] != 0.0).any()


def test_a_rule_that_treats_all_is_worth_the_average(rows):
    terms = rows.terms(rows.omega())
    everyone = np.ones(len(terms.share))
    assert terms.value(everyone) == terms.average() == terms.group(everyone)


def test_target_rows_say_whom_the_answer_is_for(data):
    X = np.asarray(data.X)
    few = X[X[:, 0] > 0.0]
    rows = prepared(data, target=(few, np.ones(len(few))))
    terms = rows.terms(rows.omega())
    assert (terms.cell == 4).sum() == len(few)
    truth = paper_problem(b=2.0).uplift(few)
    omega = rows.omega()[terms.cell == 4]
    assert terms.average().covers(float(omega @ truth / omega.sum()), 0.999)


def test_rows_of_weight_two_count_like_two_rows(data):
    twice = SeparateLabels(
        data.X, data.y, data.treatment, data.population, np.full(data.n_rows, 2.0)
    )
    plain, heavy = prepared(data), prepared(twice)
    assert plain.terms(plain.omega()).average() == heavy.terms(heavy.omega()).average()


def test_fewer_rows_than_folds_are_an_error(data):
    few = np.concatenate([at[:4] for at in rows_of(data).all_cells()])
    with pytest.raises(InputError, match="n_folds=5"):
        cross_fit(data.take(few))
