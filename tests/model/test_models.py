"""Models that others chose, fitted with weights."""

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from unjoined.errors import InputError
from unjoined.model.regressors import fit_weighted


@pytest.fixture
def rows():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((40, 2))
    return (
        X,
        X[:, 0] ** 2 + rng.standard_normal(40),
        rng.randint(1, 4, size=40).astype(float),
    )


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("degree", [None, 2])
def test_weights_are_repeated_rows_also_for_a_pipeline(rows, degree, routing):
    X, y, weight = rows

    def model():
        if degree is None:
            return LinearRegression()
        return make_pipeline(PolynomialFeatures(degree), LinearRegression())

    weighted, repeated = model(), model()
    again = np.repeat(np.arange(40), weight.astype(int))
    with sklearn.config_context(enable_metadata_routing=routing):
        fit_weighted(weighted, X, y, weight)
        fit_weighted(repeated, X[again], y[again], np.ones(len(again)))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsRegressor(),
        make_pipeline(PolynomialFeatures(2), KNeighborsRegressor()),
    ],
    ids=["plain", "pipeline"],
)
def test_a_model_without_weights_is_refused_unless_they_are_equal(rows, model):
    X, y, weight = rows
    fit_weighted(model, X, y, np.full(40, 2.0))
    with pytest.raises(InputError, match=r"KNeighborsRegressor\.fit takes no weights"):
        fit_weighted(model, X, y, weight)
