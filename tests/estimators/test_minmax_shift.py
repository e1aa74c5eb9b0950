"""Weights for different feature distributions, as a user of the estimator meets them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.naive_bayes import GaussianNB

from unjoined import MinMaxUplift, load_model, save_model
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError, OverlapWarning
from unjoined.model import LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.minmax import assemble, solve_minmax
from unjoined.model.shift import weigh_shift


def shifted(distance=0.5):
    """Uplift 1 everywhere; a main effect 3 x_0 that a difference in x_0 would be taken for."""
    return SimulatedProblem(
        features={
            "A": lambda n, rng: rng.normal(distance, 1.0, (n, 1)),
            "B": lambda n, rng: rng.normal(-distance, 1.0, (n, 1)),
        },
        target_features=lambda n, rng: rng.normal(0.0, 1.0, (n, 1)),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: (
            3.0 * X[:, 0] + treated + rng.standard_normal(len(X))
        ),
        outcome_mean=lambda X, treated: 3.0 * X[:, 0] + treated,
    )


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("shift", ["classifier", GaussianNB()], ids=str)
def test_weights_remove_a_bias_that_is_visible_without_them(shift):
    """The bias is 3 * 2 * 0.5 / 0.6 = 5 in the mean; after weighting it is sampling noise.

    Ten draws of 4 x 1,500 rows: their mean is within four of its standard errors of the truth,
    or of a tenth of the bias, as ratios are themselves estimated.
    """
    problem = shifted()
    plain, weighted = [], []
    for seed in range(10):
        data = problem.draw(1500, n_target=1500, random_state=seed)
        model = MinMaxUplift(
            basis="linear", ridge_f=1e-2, ridge_g=1e-2, center=False, random_state=0
        )
        plain.append(model.fit(**data).predict([[0.0]])[0])
        weighted.append(model.set_params(shift=shift).fit(**data).predict([[0.0]])[0])
    error = np.std(weighted, ddof=1) / np.sqrt(10)
    assert np.mean(plain) > 4.0
    assert abs(np.mean(weighted) - 1.0) < max(4.0 * error, 0.5)


def test_given_ratios_are_weights():
    data = shifted().draw(4000, random_state=0)
    centre = np.where(data.population == "A", 0.5, -0.5)
    ratio = norm.pdf(data.X[:, 0]) / norm.pdf(data.X[:, 0], loc=centre)
    model = MinMaxUplift(basis="linear").fit(**data, sample_weight=ratio)
    assert abs(model.predict([[0.0]])[0] - 1.0) < 0.5
    assert model.shift_ is None


def test_equal_populations_are_hardly_weighted():
    """Ratios are 1 but for noise, so that hardly a row is lost."""
    data = paper_problem(b=5.0).draw(1000, random_state=0)
    settings = {"width": "median", "ridge_f": 1e-2, "ridge_g": 1e-2, "random_state": 0}
    model = MinMaxUplift(shift="classifier", **settings).fit(**data)
    for cell in model.shift_.cells:
        assert cell.effective_size > 0.97 * cell.n_rows
    plain = MinMaxUplift(**settings).fit(**data)
    close = np.corrcoef(model.predict(data.X), plain.predict(data.X))[0, 1]
    assert close > 0.95


def test_the_report_counts_and_clips():
    data = shifted(0.8).draw(800, n_target=400, random_state=0)
    free = MinMaxUplift(shift="classifier", random_state=0).fit(**data)
    capped = MinMaxUplift(shift="classifier", shift_clip=2.0, random_state=0).fit(
        **data
    )
    assert free.shift_.target == "target rows"
    assert sum(cell.n_clipped for cell in free.shift_.cells) == 0
    assert sum(cell.n_clipped for cell in capped.shift_.cells) > 0
    for loose, tight in zip(free.shift_.cells, capped.shift_.cells, strict=True):
        assert tight.effective_size > loose.effective_size


def test_same_seed_same_bits_and_saving_keeps_the_report(tmp_path):
    data = shifted().draw(300, random_state=0)
    first, second = (
        MinMaxUplift(shift="classifier", n_centers=20, random_state=1).fit(**data)
        for _ in range(2)
    )
    assert_array_equal(first.coef_, second.coef_)
    loaded = load_model(save_model(first, tmp_path / "m.skops"))
    assert loaded.shift_ == first.shift_
    assert_allclose(loaded.predict(data.X), first.predict(data.X))


def test_populations_without_overlap_are_refused_and_nothing_is_fitted():
    data = shifted(40.0).draw(200, random_state=0)
    model = MinMaxUplift(shift="classifier", random_state=0)
    with pytest.raises(InputError, match="no overlap"):
        model.fit(**data)
    assert not hasattr(model, "coef_")


def test_little_overlap_warns_at_the_call():
    data = shifted(2.5).draw(500, n_target=300, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MinMaxUplift(basis="linear", shift="classifier", random_state=0).fit(**data)
    overlap = [w for w in caught if w.category is OverlapWarning]
    assert overlap
    assert overlap[0].filename == __file__


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shift": "magic"}, "shift must be 'classifier' or a .*, got 'magic'"),
        ({"shift": "classifier", "shift_clip": 0.5}, "shift_clip must be"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    data = shifted().draw(100, random_state=0)
    with pytest.raises(InputError, match=message):
        MinMaxUplift(**parameters).fit(**data)


pytestmark = [pytest.mark.statistical, pytest.mark.slow]


POLICIES = {"A": 0.8, "B": 0.3}


GAP = 0.5


BASIS = LinearBasis(1)


SIZES = {
    ("outcome", "A"): 900,
    ("outcome", "B"): 500,
    ("treatment", "A"): 400,
    ("treatment", "B"): 1200,
}


def law(mean):
    return lambda n, rng: rng.normal(mean, 1.0, (n, 1))


def problem(mean_a, mean_b, main, uplift):
    """Normal features around ``mean_a`` and ``mean_b``, the target around 0, a constant gap."""

    def mean(X, treated):
        return main(X[:, 0]) + treated * uplift(X[:, 0])

    return SimulatedProblem(
        features={"A": law(mean_a), "B": law(mean_b)},
        target_features=law(0.0),
        policies={
            name: (lambda X, e=e: np.full(len(X), e)) for name, e in POLICIES.items()
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def standard_error(values):
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


# --- the true ratio -------------------------------------------------------------------------
def test_the_papers_weighted_average_is_unbiased_at_any_sizes():
    """E[w f g] with f = 1 + x and g = x, from 3 and 11 rows; four standard errors of the mean.

    As x is N(0, 1) in the target, E[w f g] = E_p[mu_w (x + x^2)] = gap.
    """
    means, sizes = {"A": 0.5, "B": -0.4}, {"A": 3, "B": 11}
    n, repeats = 14, 40_000
    rng = np.random.RandomState(0)
    averages = np.zeros(repeats)
    for sign, name in ((1.0, "A"), (-1.0, "B")):
        x = rng.normal(means[name], 1.0, (repeats, sizes[name]))
        t = np.where(rng.random_sample(x.shape) < POLICIES[name], 1.0, -1.0)
        r = n / (2 * sizes[name]) * norm.pdf(x) / norm.pdf(x, loc=means[name])
        averages += np.sum(sign * t * (1.0 + x) * x * r, axis=1) / n
    assert abs(averages.mean() - GAP) < 4.0 * standard_error(averages)


def test_the_system_of_weighted_rows_is_that_of_the_target():
    """Every entry of A, b and C within five standard errors of its value under N(0, 1).

    Main effect 2 x, uplift 1 + x: E[w phi phi'] = gap I, E[z phi] = gap / 2 (1, 1), C = I. The
    true ratios are given as weights. A weighted mean over a cell has the variance
    sum w^2 (v - mean)^2 / (sum w)^2.
    """
    means = {"A": 0.5, "B": -0.4}
    data = problem(*means.values(), lambda x: 2.0 * x, lambda x: 1.0 + x).draw(
        {cell: 10 * n for cell, n in SIZES.items()}, random_state=0
    )
    centre = np.array([means[name] for name in data.population])
    x = np.asarray(data.X)[:, 0]
    rows = label_rows(**data, sample_weight=norm.pdf(x) / norm.pdf(x, loc=centre))
    system = assemble(accumulate(BASIS, 2, rows))
    phi = BASIS(rows.X)
    square = phi[:, :, None] * phi[:, None, :]
    variances = {"A": np.zeros((2, 2)), "b": np.zeros(2), "C": np.zeros((2, 2))}

    def add(name, values, share):
        weight = share * rows.weight[at] / rows.weight[at].sum()
        deviation = values - np.average(values, axis=0, weights=rows.weight[at])
        variances[name] += np.tensordot(weight**2, deviation**2, axes=1)

    for k in (0, 1):
        at = rows.at("treatment", k)
        add("A", rows.label[at, None, None] * square[at], 0.5)
        add("C", square[at], 0.25)
        at = rows.at("outcome", k)
        add("b", rows.label[at, None] * phi[at], 0.5)
        add("C", square[at], 0.25)
    truth = {"A": GAP * np.eye(2), "b": GAP / 2 * np.ones(2), "C": np.eye(2)}
    for name, expected in truth.items():
        error = np.abs(getattr(system, name) - expected)
        assert np.all(error <= 5.0 * np.sqrt(variances[name])), name


# --- estimated ratios -----------------------------------------------------------------------
def fits(simulated, shift, n_seeds, *, pooled=False):
    """Coefficients (constant, slope) of the min-max uplift, one row per seed."""
    coefficients = []
    for seed in range(n_seeds):
        data = simulated.draw(SIZES, n_target=1000, random_state=seed)
        rows = label_rows(**data)
        if shift is not None:
            target = (
                None
                if pooled
                else np.asarray(data.X)[np.asarray(data.kind) == "target"]
            )
            rows, _ = weigh_shift(rows, target, shift, rng=np.random.RandomState(seed))
        system = assemble(accumulate(BASIS, 2, rows))
        coefficients.append(solve_minmax(system, ridge_f=1e-8, ridge_g=1e-8).alpha)
    return np.array(coefficients)


@pytest.mark.parametrize("pooled", [True, False])
def test_populations_that_differ_bias_the_estimate_and_weights_do_not(pooled):
    """The uplift 1 + x is in the basis; a main effect of 2 x cancels only if features agree.

    Without weights the difference of the populations' means enters as if it were uplift: a
    constant off by more than ten standard errors. With them both coefficients are within four.
    """
    simulated = problem(0.3, -0.3, lambda x: 2.0 * x, lambda x: 1.0 + x)
    n_seeds = 16
    plain = fits(simulated, None, n_seeds)
    weighted = fits(simulated, "classifier", n_seeds, pooled=pooled)
    assert abs(plain.mean(axis=0) - 1.0)[0] > 10.0 * standard_error(plain)[0]
    assert np.all(np.abs(weighted.mean(axis=0) - 1.0) < 4.0 * standard_error(weighted))
    # Not by being vague: the weighted error is a small part of the bias it removes.
    assert standard_error(weighted)[0] < abs(plain.mean(axis=0) - 1.0)[0] / 10.0


def test_a_misspecified_basis_fits_best_where_the_target_is():
    """Uplift x^2 on a line, populations at 0.6, target at 0.

    With a constant gap the estimate is the linear regression of the uplift under p: 1 + 0 x for
    the target, slope 1.2 for the rows as they are.
    """
    simulated = problem(0.6, 0.6, np.zeros_like, np.square)
    n_seeds = 16
    plain, weighted = (fits(simulated, how, n_seeds) for how in (None, "classifier"))
    assert_allclose(plain.mean(axis=0)[1], 1.2, atol=4.0 * standard_error(plain)[1])
    assert np.all(
        np.abs(weighted.mean(axis=0) - [1.0, 0.0]) < 4.0 * standard_error(weighted)
    )
    assert standard_error(weighted)[1] < 1.2 / 10.0
