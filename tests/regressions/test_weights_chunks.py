"""Rows that come in chunks: weights in other units draw the same sample and the same groups."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import unjoined as uj

N = 800


def table(*, discrete=False):
    rng = np.random.default_rng(7)
    row = np.arange(N)
    kind = np.where(row // 2 % 2, "outcome", "treatment")
    population = row % 2
    X = rng.standard_normal((N, 2))
    if discrete:
        X = np.rint(X[:, :1]).clip(-1.0, 1.0)
    treated = rng.random(N) < np.where(population == 0, 0.9, 0.2)
    y = X[:, 0] + treated + 0.5 * rng.standard_normal(N)
    label = np.where(kind == "outcome", np.rint(y) if discrete else y, treated)
    data = {"X": X, "y": label, "kind": kind, "population": population}
    return data, rng.uniform(0.5, 1.5, N)


def fit(data, weight, *, sample_rows=10_000, dask=False, **settings):
    columns = {**data, "sample_weight": weight}
    model = uj.MinMaxUplift(random_state=0, n_jobs=1, **settings)
    if not dask:
        source = uj.data.ArraySource(**columns, chunk_rows=170)
        return model.fit_chunks(source, sample_rows=sample_rows)
    da = pytest.importorskip("dask.array")
    lazy = {
        name: da.from_array(column, chunks=(250, *np.shape(column)[1:]))
        for name, column in columns.items()
        if column is not None
    }
    return model.fit_chunks(uj.data.DaskSource.from_arrays(**lazy), sample_rows=sample_rows)


@pytest.mark.parametrize("sample_rows", [100, 10_000])
@pytest.mark.parametrize("settings", [{}, {"center": Ridge()}], ids=["smooth", "model"])
def test_weights_in_other_units_drew_another_sample(sample_rows, settings):
    data, weight = table()
    cell = np.where(data["kind"] == "outcome", 0, 2) + data["population"]
    expected = fit(data, weight, sample_rows=sample_rows, **settings).predict(data["X"])
    for scale in (1.0 / N, 1e6, np.array([1e-6, 1.0 / N, 2.0, 1e6])[cell]):
        found = fit(data, scale * weight, sample_rows=sample_rows, **settings)
        np.testing.assert_allclose(found.predict(data["X"]), expected, rtol=1e-7, atol=1e-9)
    none = fit(data, None, sample_rows=sample_rows, **settings).predict(data["X"])
    equal = fit(data, np.full(N, 0.3), sample_rows=sample_rows, **settings).predict(data["X"])
    np.testing.assert_allclose(equal, none, rtol=1e-7, atol=1e-9)


def test_a_row_of_weight_zero_is_as_good_as_absent_in_chunks():
    data, weight = table()
    absent = np.arange(N) % 7 == 3
    found = fit(data, np.where(absent, 0.0, weight)).predict(data["X"])
    rest = {name: column[~absent] for name, column in data.items()}
    expected = fit(rest, weight[~absent]).predict(data["X"])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_copies_of_a_row_with_other_weights_do_not_depend_on_order_and_units():
    """A handful of distinct rows, every one with a weight of its own."""
    data, weight = table(discrete=True)
    model = fit(data, weight)
    expected = model.predict(data["X"])
    order = np.random.default_rng(0).permutation(N)
    shuffled = {name: column[order] for name, column in data.items()}
    for found in (fit(shuffled, weight[order]), fit(data, 1e-6 * weight)):
        np.testing.assert_allclose(found.predict(data["X"]), expected, rtol=1e-6, atol=1e-8)
    strength = uj.identification_strength(**data, sample_weight=weight)
    assert model.identification_.f_statistic == pytest.approx(strength.f_statistic, rel=1e-9)
    assert model.identification_.rms_gap == pytest.approx(strength.rms_gap, rel=1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_partitions_and_chunks_agree_whatever_the_weights(discrete):
    data, weight = table(discrete=discrete)
    chunks, parts = (fit(data, weight, dask=dask) for dask in (False, True))
    expected = chunks.predict(data["X"])
    np.testing.assert_allclose(parts.predict(data["X"]), expected, rtol=1e-6, atol=1e-8)
    f = chunks.identification_.f_statistic
    assert parts.identification_.f_statistic == pytest.approx(f, rel=1e-9)
    other = fit(data, 1e-6 * weight, dask=True).predict(data["X"])
    np.testing.assert_allclose(other, expected, rtol=1e-6, atol=1e-8)
