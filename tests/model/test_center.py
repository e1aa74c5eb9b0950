"""Centring: no expectation changes, variance falls, and no row sees its own fold."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.stats import f as f_law
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from tests.helpers import fit_centring
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.data.rows import LabelledRows, label_rows, separate_labels
from unjoined.errors import InputError
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import StackedBasis
from unjoined.model.centring import (
    check_center,
    cross_fit_means,
    deal_folds,
    smooth_coef,
    subtract_means,
    winsorized,
)
from unjoined.model.draw import draw_basis
from unjoined.model.minmax import assemble


def middle(means, X):
    """Return m(x) and q(x), the averages over the two populations."""
    return means(X)[:, :2].mean(axis=1), means(X)[:, 2:].mean(axis=1)


def rng(seed=0):
    return np.random.RandomState(seed)


def main_effect():
    """A real outcome whose main effect is thirty times the variance of its uplift."""

    def mean(X, treated):
        return 4.0 * X[:, 0] + 3.0 * np.sin(2.0 * X[:, 1]) + treated * (0.5 + X[:, 1])

    return SimulatedProblem(
        features=lambda n, r: r.standard_normal((n, 3)),
        policies={
            "A": lambda X: 1.0 / (1.0 + np.exp(-1.0 - X[:, 0])),
            "B": lambda X: 1.0 / (1.0 + np.exp(1.0 - X[:, 0])),
        },
        outcome=lambda X, treated, r: mean(X, treated) + r.standard_normal(len(X)),
        outcome_mean=mean,
    )


def rows_of(problem, n=300, seed=0):
    return label_rows(**problem.draw(n, random_state=seed))


def center(rows, fold, generator, *, robust=False, model=None, n_jobs=None):
    """Return rows with centred labels and the policy gap, as `MinMaxUplift.fit` finds them."""
    seen = winsorized(rows) if robust else rows
    means = cross_fit_means(seen, fold, generator, model=model, n_jobs=n_jobs)
    label, gap = subtract_means(rows, means, fold, n_jobs=n_jobs)
    return SimpleNamespace(rows=replace(rows, label=label), gap=gap)


def centred(rows, seed=0, **options):
    generator = rng(seed)
    return center(rows, deal_folds(rows, generator), generator, **options)


def system_of(rows, basis):
    return assemble(accumulate(basis, basis.size, rows))


# --- the law --------------------------------------------------------------------------------


@pytest.mark.statistical
def test_any_fixed_functions_leave_the_expectations_of_a_and_b_alone():
    """E[s m(x) g(x)] = 0: paired by draw, A and b of centred and raw labels differ by noise.

    Each of the 3 + 6 distinct entries is within 4.5 standard errors of zero; under the law one
    of nine strays once in 15,000 seeds.
    """
    problem = paper_problem(2.0)
    basis = GaussianBasis(np.array([[-2.0, 0.0], [1.0, 2.0], [2.0, -3.0]]), width=4.0)
    changes = []
    for seed in range(200):
        rows = rows_of(problem, 100, seed)
        m = (
            3.0 + 2.0 * rows.X[:, 0] - np.abs(rows.X[:, 1])
        )  # arbitrary, and far from the means
        q = np.cos(rows.X[:, 0]) - 0.5 * rows.X[:, 1]
        other = replace(rows, label=rows.label - np.where(rows.kind == "outcome", m, q))
        raw, new = system_of(rows, basis), system_of(other, basis)
        changes.append([*(new.A - raw.A)[np.triu_indices(3)], *(new.b - raw.b)])
    changes = np.array(changes)
    error = changes.std(axis=0, ddof=1) / np.sqrt(len(changes))
    assert (error > 0.0).all()
    assert (np.abs(changes.mean(axis=0)) < 4.5 * error).all()


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("problem", "entries"),
    [(paper_problem(1.0), "A b"), (main_effect(), "b")],
    ids=["paper", "real"],
)
def test_variance_of_a_and_b_falls(problem, entries):
    """Variances over 200 draws of A and b for the constant function, against the F law.

    Were the variances equal, the ratio of two with 199 degrees of freedom each would exceed the
    limit once in a thousand seeds. (Policies of the second problem are flat: t - q varies little
    less than t there.)
    """
    d = rows_of(problem, 10).X.shape[1]
    basis = LinearBasis(d)
    raw, new = [], []
    for seed in range(200):
        rows = rows_of(problem, 80, seed)
        for store, used in ((raw, rows), (new, centred(rows, seed).rows)):
            system = system_of(used, basis)
            store.append([system.A[0, 0], system.b[0]])
    ratio = dict(zip("Ab", np.var(raw, axis=0) / np.var(new, axis=0), strict=True))
    limit = f_law.ppf(0.999, 199, 199)  # 1.55
    for name in entries.split():
        assert ratio[name] > limit


@pytest.mark.parametrize(
    "add", [lambda X: 1e3 + 0 * X[:, 0], lambda X: 7.0 + X @ [30.0, -5.0, 2]]
)
def test_a_linear_function_added_to_the_outcome_changes_no_residual(add):
    rows = rows_of(main_effect())
    other = replace(
        rows, label=rows.label + np.where(rows.kind == "outcome", add(rows.X), 0.0)
    )
    expected = centred(rows)
    found = centred(other)
    assert_allclose(found.rows.label, expected.rows.label, atol=1e-8)
    assert_array_equal(found.gap, expected.gap)


def test_centred_labels_times_a_constant_are_centred_labels_of_the_product():
    rows = rows_of(main_effect())
    hundred = replace(
        rows, label=np.where(rows.kind == "outcome", 100.0, 1.0) * rows.label
    )
    expected = np.where(rows.kind == "outcome", 100.0, 1.0) * centred(rows).rows.label
    assert_allclose(centred(hundred).rows.label, expected, rtol=1e-9, atol=1e-9)


# --- cross-fitting --------------------------------------------------------------------------


class Memory(RegressorMixin, BaseEstimator):
    """Predicts 1000 at rows it was fitted to, 0 elsewhere."""

    def fit(self, X, y):
        self.seen_ = {tuple(x) for x in X}
        return self

    def predict(self, X):
        return np.array([1000.0 if tuple(x) in self.seen_ else 0.0 for x in X])


def test_no_row_is_centred_by_a_model_that_saw_it():
    """A model that gives itself away at every row it has seen leaves all labels alone."""
    rows = rows_of(paper_problem(), 40)
    found = centred(rows, model=Memory())
    assert_array_equal(found.rows.label, rows.label)
    assert_array_equal(found.gap, 0.0)
    seen = fit_centring(rows, rng(), model=Memory())
    m, q = middle(seen, rows.X)
    outcome = rows.kind == "outcome"
    assert_array_equal(
        m[outcome], 500.0
    )  # one of the two populations' models saw the row
    assert_array_equal(q[outcome], 0.0)


def test_a_gross_error_moves_the_centre_of_other_folds_only():
    rows = rows_of(main_effect(), 100)
    fold = deal_folds(rows, rng())
    label = rows.label.copy()
    at = rows.at("outcome", 0)[3]
    label[at] += 1e4
    before = center(rows, fold, rng()).rows.label
    moved = center(replace(rows, label=label), fold, rng()).rows.label - before
    outcome = rows.kind == "outcome"
    own = outcome & (fold == fold[at])
    own[at] = False
    assert_allclose(moved[own], 0.0, atol=1e-7)
    assert np.abs(moved[outcome & (fold != fold[at])]).min() > 1e-3
    assert_array_equal(moved[~outcome], 0.0)


def test_the_mean_is_the_average_of_both_populations_however_unequal():
    """Regressions on a constant: m and q are plain averages of two averages, not pooled means."""
    sizes = {
        (kind, k): 50 if k == "1" else 500
        for kind in ("outcome", "treatment")
        for k in "12"
    }
    rows = label_rows(**paper_problem(3.0).draw(sizes, random_state=0))
    constant = replace(rows, X=np.zeros((len(rows.X), 1)))
    m, q = middle(fit_centring(constant, rng()), np.zeros((1, 1)))
    for found, kind in ((m, "outcome"), (q, "treatment")):
        means = [rows.label[rows.at(kind, k)].mean() for k in (0, 1)]
        assert found[0] == pytest.approx(np.mean(means), abs=1e-9)
        assert abs(np.diff(means)[0]) > 0.01


def test_the_gap_is_the_difference_of_treatment_probabilities():
    problem = paper_problem(2.0)
    rows = rows_of(problem, 3000)
    error = centred(rows).gap - problem.policy_gap(rows.X)
    # e_k at each x rests on 2,400 rows and some twenty effective functions: standard deviation
    # sqrt(20 * 0.25 / 2400) = 0.05, times sqrt(2) for the difference.
    assert np.sqrt(np.mean(error**2)) < 0.07


def test_two_valued_labels_keep_their_range():
    found = fit_centring(rows_of(campaign_problem(), 200), rng())
    assert np.abs(found(rows_of(campaign_problem(), 500, 1).X * 3.0)).max() <= 1.0
    real = fit_centring(rows_of(main_effect(), 200), rng())(
        rng().standard_normal((500, 3)) * 3.0
    )
    assert np.abs(real[:, :2]).max() > 1.0  # of real outcomes, treatments only
    assert np.abs(real[:, 2:]).max() <= 1.0


def test_a_given_regressor_is_cloned_and_takes_weights():
    rows = rows_of(main_effect(), 60)
    weight = rng(1).uniform(0.5, 2.0, len(rows.label))
    model = LinearRegression()
    weighted = centred(replace(rows, weight=weight), model=model).rows.label
    assert not hasattr(model, "coef_")
    assert not np.allclose(weighted, centred(rows, model=model).rows.label)
    with pytest.raises(InputError, match="takes no weights"):
        centred(replace(rows, weight=weight), model=KNeighborsRegressor())


# --- many rows ------------------------------------------------------------------------------


def test_neither_threads_nor_chunks_change_the_centre(limits):
    rows = rows_of(main_effect(), 400)
    fold = deal_folds(rows, rng())
    whole = center(rows, fold, rng(3)).rows.label
    limits("model.accumulate", PIECE_ROWS=256, CHUNK_VALUES=1000)
    one, two = (center(rows, fold, rng(3), n_jobs=n).rows.label for n in (None, 2))
    assert_array_equal(one, two)
    assert_allclose(one, whole, atol=1e-9 * np.abs(rows.label).max())


def test_a_sample_draws_centres_from_some_rows_only(limits):
    limits("model.centring", SAMPLE_ROWS=50)
    found = fit_centring(rows_of(main_effect(), 100), rng())
    assert found.basis.size == 4 + 27  # 10 * 50 ** (1 / 4) centres


# --- the regression behind it ---------------------------------------------------------------


PENALTIES = np.logspace(
    -6.0, 2.0, 17
)  # per row: the grid that cross-validation searches


def sums_and_square(basis, X, label, weight):
    cell = np.zeros(len(X), dtype=np.uint8)
    coding = rows_of(main_effect(), 20).coding
    rows = LabelledRows(X, label, cell, weight, ["A", "B"], coding)
    sums = accumulate(basis, basis.size, rows).total("outcome", 0)
    return sums, float(weight @ label**2)


def test_coefficients_minimise_the_penalised_squares():
    """Against a general optimiser, at the penalty generalised cross-validation settled on."""
    generator = rng(0)
    X = generator.standard_normal((200, 2))
    label = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * generator.standard_normal(200)
    weight = generator.uniform(0.5, 1.5, 200)
    basis = draw_basis("smooth", X, n_centers=6, width="median", rng=generator)
    coef = smooth_coef(*sums_and_square(basis, X, label, weight), 2)
    phi = basis(X)
    normalised = weight * 200 / weight.sum()
    slope = phi.T @ (normalised * (label - phi @ coef))
    assert_allclose(slope[:3], 0.0, atol=1e-8)  # no penalty on the linear part
    penalty = slope[3:] / coef[3:]  # one and the same for all Gaussians
    assert_allclose(penalty, penalty[0], rtol=1e-5)
    assert np.isclose(PENALTIES * 200, penalty[0], rtol=1e-5).any()

    def loss(c):
        return normalised @ (label - phi @ c) ** 2 + penalty[0] * np.sum(c[3:] ** 2)

    assert loss(coef) <= minimize(loss, np.zeros(9), tol=1e-10).fun + 1e-6


def test_generalised_cross_validation_is_the_textbook_formula():
    """The hat matrix written out, for every penalty of the grid; the best is the one used."""
    generator = rng(1)
    X = generator.standard_normal((120, 2))
    label = np.sin(3.0 * X[:, 0]) + 0.5 * generator.standard_normal(120)
    basis = draw_basis("smooth", X, n_centers=15, width="median", rng=generator)
    phi = basis(X)
    found = phi @ smooth_coef(*sums_and_square(basis, X, label, np.ones(120)), 2)
    scores, fits = [], []
    for penalty in 120 * PENALTIES:
        ridge = np.diag([0.0] * 3 + [penalty] * 15)
        hat = phi @ np.linalg.solve(phi.T @ phi + ridge, phi.T)
        fits.append(hat @ label)
        scores.append(
            np.sum((label - fits[-1]) ** 2) / (1.0 - 1.4 * np.trace(hat) / 120) ** 2
        )
    assert_allclose(found, fits[int(np.argmin(scores))], atol=1e-6)


def test_with_few_rows_per_feature_only_the_constant_is_free():
    generator = rng(2)
    X = generator.standard_normal((30, 8))
    label = 5.0 + generator.standard_normal(
        30
    )  # noise: nothing to learn from the features
    basis = StackedBasis(LinearBasis(8), GaussianBasis(X[:3], width=3.0))
    coef = smooth_coef(*sums_and_square(basis, X, label, np.ones(30)), 8)
    free = np.linalg.lstsq(LinearBasis(8)(X), label, rcond=None)[0]
    assert np.linalg.norm(coef[1:9]) < 0.5 * np.linalg.norm(free[1:])
    assert abs(np.mean(basis(X) @ coef) - label.mean()) < 1e-8


def test_features_that_repeat_or_never_vary_do_no_harm():
    rows = rows_of(main_effect(), 100)
    odd = replace(
        rows, X=np.column_stack([rows.X, rows.X[:, 0], np.full(len(rows.X), 7.0)])
    )
    label = centred(odd).rows.label
    assert np.isfinite(label).all()
    outcome = rows.kind == "outcome"
    assert label[outcome].var() < 0.4 * rows.label[outcome].var()


def test_a_label_that_never_varies_is_predicted_by_itself():
    """A population where all were treated: q averages 1 and the other's share."""
    rows = rows_of(paper_problem(), 50)
    label = rows.label.copy()
    label[rows.at("treatment", 0)] = 1.0
    found = fit_centring(replace(rows, label=label), rng())
    assert_allclose(found(rows.X)[:, 2], 1.0, atol=1e-9)


# --- folds and messages ---------------------------------------------------------------------


def test_folds_split_every_cell_evenly():
    sizes = {("outcome", "1"): 7, ("outcome", "2"): 20, ("treatment", "1"): 53}
    data = paper_problem().draw(sizes | {("treatment", "2"): 11}, random_state=0)
    rows = label_rows(**data)
    fold = deal_folds(rows, rng())
    for kind in ("outcome", "treatment"):
        for k in (0, 1):
            counts = np.bincount(fold[rows.at(kind, k)], minlength=5)
            assert counts.max() - counts.min() <= 1


def test_a_small_table_means_fewer_folds_and_one_row_none():
    sizes = dict.fromkeys([(k, p) for k in ("outcome", "treatment") for p in "12"], 10)
    three = label_rows(
        **paper_problem().draw(sizes | {("outcome", "2"): 3}, random_state=0)
    )
    assert set(deal_folds(three, rng())) == {0, 1, 2}
    assert np.isfinite(centred(three).rows.label).all()
    one = label_rows(
        **paper_problem().draw(sizes | {("treatment", "2"): 1}, random_state=0)
    )
    with pytest.raises(
        InputError, match=r"the treatment table of population '2' has 1 .*center="
    ):
        deal_folds(one, rng())


def test_what_cannot_centre_is_named():
    cases = (
        ("mean", "center must be True, False or a scikit-learn regressor, got 'mean'"),
        (None, "center must be True, False or a scikit-learn regressor, got None"),
        (LinearRegression, "center must be True, False or a scikit-learn regressor"),
        (
            LogisticRegression(),
            "center needs a regressor.*LogisticRegression is a classifier",
        ),
    )
    for value, message in cases:
        with pytest.raises(InputError, match=message):
            check_center(value)


def test_what_can_centre_passes():
    for value in (True, False, LinearRegression()):
        check_center(value)


def test_a_centring_is_a_function_of_chunks():
    """The same values row by row and all at once: nothing is left of the rows it came from."""
    found = fit_centring(rows_of(main_effect(), 50), rng())
    X = rng(5).standard_normal((9, 3))
    assert_allclose(np.vstack([found(x[None]) for x in X]), found(X), rtol=1e-11)


def test_sums_of_dealt_groups_are_those_of_their_rows():
    rows = rows_of(main_effect(), 30)
    fold = deal_folds(rows, rng())
    basis = LinearBasis(3)
    sums = accumulate(basis, 4, rows, groups=fold)
    assert sums.groups == [0, 1, 2, 3, 4]
    at = rows.at("treatment", 1)
    at = at[fold[at] == 3]
    found = sums.of_group(3).total("treatment", 1)
    assert found.n_rows == len(at)
    assert_allclose(found.label_basis, basis(rows.X[at]).T @ rows.label[at], rtol=1e-12)


def test_gross_outcomes_do_not_reach_the_other_rows_if_asked():
    """One outcome of a million moves m everywhere, unless it is cut down before m is fitted."""
    rng = np.random.RandomState(0)
    n = 400
    kind = np.repeat(["outcome", "treatment"], n)
    X = rng.standard_normal((2 * n, 1))
    outcome = X[:, 0] + rng.standard_normal(2 * n)
    y = np.where(kind == "outcome", outcome, rng.randint(2, size=2 * n))
    wrong = y.copy()
    wrong[0] = 1e6
    population = np.resize([0, 1], 2 * n)
    errors = {}
    for robust in (False, True):
        for label in (y, wrong):
            rows = label_rows(X, **separate_labels(label, kind), population=population)
            fold = deal_folds(rows, np.random.RandomState(1))
            found = center(rows, fold, np.random.RandomState(2), robust=robust)
            errors[robust, label is wrong] = found.rows.label[1:n]
    # Cut to six spreads, one row of 160 in the other folds of its cell moves m by less than that.
    assert np.abs(errors[True, True] - errors[True, False]).max() < 6.0 * np.std(y[:n])
    assert np.abs(errors[False, True] - errors[False, False]).max() > 1000.0
    np.testing.assert_array_equal(
        errors[True, False], errors[False, False]
    )  # nothing gross


def test_outcomes_that_are_mostly_alike_are_not_cut_down():
    rng = np.random.RandomState(0)
    kind = np.repeat(["outcome", "treatment"], 40)
    y = np.where(
        kind == "outcome", 100.0 * (np.arange(80) % 8 == 0), np.arange(80) // 2 % 2
    )
    y[:3] = 7.0  # a third value, so that the outcome is real
    rows = label_rows(
        rng.standard_normal((80, 1)),
        **separate_labels(y, kind),
        population=np.resize([0, 1], 80),
    )
    fold = deal_folds(rows, rng)
    one, two = (
        center(rows, fold, np.random.RandomState(2), robust=robust).rows.label
        for robust in (False, True)
    )
    np.testing.assert_array_equal(one, two)
