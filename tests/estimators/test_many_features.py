"""Many features: what grows is bounded, said, or warned of before it starts."""

import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from unjoined import (
    MinMaxUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
    identification_strength,
    load_model,
    save_model,
)
from unjoined.data import SimulatedProblem
from unjoined.errors import UnjoinedWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning"),
    pytest.mark.usefixtures("two_folds"),
]


def problem(d, *, spread=None):
    """The effect runs along the first feature."""
    scale = np.ones(d) if spread is None else spread

    def propensity(X, treated):
        return expit(-0.5 + treated * X[:, 0])

    return SimulatedProblem(
        features=lambda n, rng: scale * rng.standard_normal((n, d)),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: (
            (rng.random_sample(len(X)) < propensity(X, treated)) * 1.0
        ),
        outcome_mean=propensity,
    )


@pytest.mark.slow
def test_functions_of_the_mixture_grow_no_further_than_a_hundred_features():
    """With 300 features it fitted 602 coefficients to 500 outcomes, at two minutes a fit."""
    data = problem(130).draw(50, random_state=0)
    model = Uplift(random_state=0, n_jobs=1).fit(**data)
    assert len(model.fit_.basis.features) == 100
    assert model.fit_.basis.size <= 1 + 400
    assert all(
        len(policy.model.model.basis.features) == 100 for policy in model.policies_
    )


@pytest.mark.parametrize(
    "estimator",
    [
        partial(MinMaxUplift, width="median", center=False, ridge_f=0.1, ridge_g=0.1),
        partial(
            WeightedUplift,
            policy_model=LogisticRegression(),
            outcome_model=LinearRegression(),
            n_folds=2,
        ),
    ],
)
def test_smooth_bases_take_one_linear_function_for_twenty_rows(estimator):
    """2,000 features took four gigabytes; 4 x 550 rows now have 110 components of 150 features."""
    wide = estimator(random_state=0).fit(**problem(150).draw(550, random_state=0))
    assert wide.basis_.first.size == 1 + 110
    assert wide.basis_.n_features == 150
    narrow = estimator(random_state=0).fit(**problem(100).draw(30, random_state=0))
    assert narrow.basis_.first.size == 1 + 100


def test_components_left_out_are_those_in_which_features_hardly_spread():
    """Only differences along the leading directions matter, so nothing else is lost here."""
    spread = np.full(120, 1e-6)
    spread[:5] = 1.0
    data = problem(120, spread=spread).draw(200, random_state=0)
    settings = {"standardize": False, "n_centers": 20, "width": 2.0, "ridge_f": 0.01}
    model = MinMaxUplift(**settings, ridge_g=0.01, center=False, random_state=0)
    found = model.fit(**data).predict(data.X)
    assert model.basis_.first.size == 101
    few = {**dict(data), "X": np.asarray(data.X)[:, :5]}
    expected = MinMaxUplift(**settings, ridge_g=0.01, center=False, random_state=0)
    # The same centres, the same span of linear functions: the same function but for 1e-6.
    assert_allclose(found, expected.fit(**few).predict(few["X"]), atol=1e-3)


def test_a_fit_that_will_fill_the_memory_says_so_before_it_starts():
    """The words name the gigabytes and what to lower; here they are turned into an error."""
    data = problem(2000).draw(8, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnjoinedWarning)
        with pytest.raises(
            UnjoinedWarning, match=r"2001 functions .* about 2\.5 GB.*n_centers"
        ):
            MinMaxUplift(basis="linear", n_jobs=1, random_state=0).fit(**data)


def test_strength_of_many_features_takes_no_products_that_rows_cannot_carry():
    """It held four matrices of (2 d + 1)^2: a gigabyte for 2,000 features, to use one number."""
    data = problem(3000).draw(20, random_state=0)  # the matrices would take 2.3 GB
    found = identification_strength(**data)
    assert found.degrees == 1
    first, second = (
        data.treatment[data.rows("treatment", name)].mean() for name in ("A", "B")
    )
    assert found.mean_gap == pytest.approx(first - second)


def test_squares_and_slopes_are_used_as_before_where_rows_carry_them():
    data = problem(3).draw(200, random_state=0)
    assert identification_strength(**data).degrees == 7
    assert identification_strength(**problem(3).draw(30, random_state=0)).degrees == 4


@pytest.mark.filterwarnings("error::RuntimeWarning", "error::DeprecationWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        MinMaxUplift(random_state=0),
        WeightedUplift(n_folds=2, random_state=0),
        Uplift(random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_wide_tables_are_fitted_without_a_crash_or_a_stray_warning(estimator):
    """Fewer rows than features: four tables of 8 rows, 120 features, some of them repeated."""
    data = problem(120).draw(8, random_state=0)
    X = np.asarray(data.X).copy()
    X[:, 60:70] = X[:, :10]
    X[:, 70] = 1.0
    found = estimator.fit(**{**dict(data), "X": X}).predict(X)
    assert np.isfinite(found).all()


def test_a_wide_model_survives_a_file(tmp_path):
    data = problem(130).draw(40, random_state=0)
    model = MinMaxUplift(random_state=0).fit(**data)
    again = load_model(save_model(model, tmp_path / "model.skops"))
    assert_array_equal(again.predict(data.X), model.predict(data.X))


def test_two_stages_with_more_coefficients_than_rows_claim_no_standard_errors():
    """They came from a pseudo-inverse of residuals that are all 0, at the cube of the features."""
    wide = TwoStageUplift(random_state=0).fit(**problem(120).draw(40, random_state=0))
    assert wide.coefficients_.covariance is None
    narrow = TwoStageUplift(random_state=0).fit(**problem(2).draw(40, random_state=0))
    assert narrow.coefficients_.covariance is not None
