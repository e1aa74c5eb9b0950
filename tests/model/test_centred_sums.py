"""Sums alone: where 0 lies in the outcome, and its unit, change nothing but the unit."""

from copy import deepcopy
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from unjoined import MinMaxUplift
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError
from unjoined.federated import aggregate_rows, fourier_plan

NAMES = ["a", "b"]
PLAN = fourier_plan({"x0": (0.0, 1.0), "x1": (0.0, 1.0)}, NAMES, n_functions=12)
NEW = np.random.default_rng(5).uniform(-2.0, 2.0, size=(500, 2))
FRAME = pd.DataFrame(NEW, columns=["x0", "x1"])


def truth(X):
    return 0.5 + np.sin(X[:, 0])


def draw(n=3000, *, discrete=False):
    """Return rows with a real outcome that has a main effect, and opposed policies."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(4 * n, 2))
    if discrete:
        X = np.rint(X)
    kind, population = (
        np.repeat(["outcome", "treatment"], 2 * n),
        np.resize(NAMES, 4 * n),
    )
    treated = rng.random(4 * n) < np.where(population == "a", 0.2, 0.7)
    outcome = X[:, 1] ** 2 + treated * truth(X) + 0.5 * rng.normal(size=4 * n)
    y = np.where(kind == "outcome", outcome, treated)
    return {"X": X, **separate_labels(y, kind), "population": population}


def with_outcome(rows, change):
    y = np.where(~np.isnan(rows["y"]), change(rows["y"]), rows["y"])
    return rows | {"y": y}


def predictions(rows, **options):
    return (
        MinMaxUplift(**options).fit_moments(aggregate_rows(rows, PLAN)).predict(FRAME)
    )


@pytest.mark.parametrize("discrete", [False, True])
def test_a_constant_added_to_the_outcome_changes_nothing(discrete):
    """Sums of labels near 1000 are right to 1000 eps of their size, and the fit to 1e6 times that.

    The critic's ridge is 1e-4 or more, so that solving magnifies by 1e4 at most, and centring by
    the condition of a dozen functions.
    """
    rows = draw(discrete=discrete)
    plain = predictions(rows)
    for offset in (100.0, -1000.0):
        moved = predictions(with_outcome(rows, lambda y, offset=offset: y + offset))
        np.testing.assert_allclose(moved, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [10.0, 1e-3, -1.0])
def test_another_unit_of_the_outcome_is_another_unit_of_the_uplift(factor):
    rows = draw()
    scaled = predictions(with_outcome(rows, lambda y: factor * y))
    np.testing.assert_allclose(scaled / factor, predictions(rows), rtol=0, atol=1e-6)


def test_a_linear_function_of_the_features_added_to_the_outcome_changes_little():
    """Nothing with groups that stay; as they go by content, the rows are dealt anew."""
    rows = draw()
    errors = [
        np.mean((predictions(data) - truth(NEW)) ** 2)
        for data in (rows, with_outcome(rows, lambda y: y + 30.0 * rows["X"][:, 0]))
    ]
    assert errors[1] < 2.0 * errors[0]


def test_the_error_far_from_0_is_that_near_0_and_smaller_than_without_centring():
    rows = draw()
    far = with_outcome(rows, lambda y: y + 100.0)
    near, away, without = (
        float(np.sqrt(np.mean((predictions(data, center=center) - truth(NEW)) ** 2)))
        for data, center in ((rows, True), (far, True), (far, False))
    )
    assert away == pytest.approx(near, abs=1e-6)
    assert near < 0.3 < without  # the uplift itself varies by 0.66


def test_groups_that_only_one_table_has_are_centred_too():
    """Given ridges, a table may lie in one group alone."""
    sums = aggregate_rows(draw(), PLAN)
    thin = deepcopy(sums)
    for field in fields(thin.sums):
        getattr(thin.sums, field.name)[0, 1, 1:] = 0
    found = MinMaxUplift(ridge_f=0.1, ridge_g=0.1).fit_moments(thin).predict(FRAME)
    assert np.mean((found - truth(NEW)) ** 2) < 0.66**2


def test_a_regressor_cannot_centre_sums():
    sums = aggregate_rows(draw(), PLAN)
    with pytest.raises(InputError, match="a regressor as center needs rows"):
        MinMaxUplift(center=LinearRegression()).fit_moments(sums)
