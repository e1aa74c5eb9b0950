"""Rows that depend on each other: folds, errors and choices go by cluster."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from unjoined import MinMaxUplift, SeparateLabels, Uplift
from unjoined.data import CellKFold
from unjoined.data.rows import label_rows
from unjoined.errors import InputError, LabelError, UnjoinedWarning
from unjoined.evaluate import diagnose, evaluate_uplift
from unjoined.evaluate.terms import Sums
from unjoined.model.specifications import ModelRows, SpecificationTable


def columns(customers=30, rows=4, seed=0, shared=False):
    """Customers of several rows in each of four tables, in two tables each if shared."""
    rng = np.random.default_rng(seed)
    n = customers * rows
    X = np.repeat(rng.normal(size=(4 * customers, 2)), rows, axis=0)
    habit = np.repeat(rng.normal(size=4 * customers), rows)
    kind = np.repeat(["outcome", "treatment"], 2 * n)
    population = np.tile(np.repeat(["east", "west"], n), 2)
    coin = np.repeat(rng.random(4 * customers), rows)
    treated = coin < np.where(population == "east", 0.8, 0.2)
    y = X[:, 0] + habit + 0.5 * treated + rng.normal(size=4 * n)
    names = np.repeat(np.arange(4 * customers), rows)
    return {
        "X": X,
        "y": np.where(kind == "outcome", y, np.nan),
        "treatment": np.where(kind == "treatment", treated, np.nan),
        "population": population,
        "cluster": names % (2 * customers) if shared else names,
    }


@pytest.fixture(scope="module")
def data():
    return SeparateLabels(**columns())


@pytest.fixture(scope="module")
def model(data):
    return Uplift(random_state=0).fit(data)


def test_folds_deal_each_cell_evenly():
    sizes = [50, 23, 7, 50, 23, 7]
    which = np.repeat(np.arange(6), sizes)
    label = np.arange(len(which)) % 2
    given = {
        "y": np.where(which < 3, label, np.nan),
        "treatment": np.where(which >= 3, label, np.nan),
        "population": which % 3,
    }
    rows = label_rows(np.zeros((len(which), 1)), **given)
    fold = rows.deal(5, np.random.RandomState(0))
    for at in rows.all_cells():
        counts = np.bincount(fold[at], minlength=5)
        assert counts.max() - counts.min() <= 1
    # Fewer rows than folds: as many folds as rows.
    few = rows.take(np.concatenate([at[:3] for at in rows.all_cells()]))
    for at in few.all_cells():
        assert sorted(few.deal(5, np.random.RandomState(0))[at]) == [0, 1, 2]
    # One row of each cell: a fold of all would leave nothing to fit.
    one = rows.take(np.concatenate([at[:1] for at in rows.all_cells()]))
    assert sorted(one.deal(5, np.random.RandomState(0))) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("shared", [False, True])
def test_clusters_are_held_out_whole_and_folds_are_even(shared):
    given = columns(shared=shared)
    rows = label_rows(**given)
    fold = rows.deal(5, np.random.RandomState(0))
    by_cluster = pd.Series(fold).groupby(given["cluster"])
    assert by_cluster.nunique().max() == 1
    for at in rows.all_cells():
        assert set(np.bincount(fold[at], minlength=5)) == {24}  # 6 customers of 4 rows
    for train, test in CellKFold(3).split(**given):
        assert not set(given["cluster"][train]) & set(given["cluster"][test])


def test_large_clusters_do_not_end_up_in_one_fold():
    given = columns(customers=40, rows=3)
    size = np.where(given["cluster"] % 8 == 0, 1, 12)  # every eighth is large
    at = np.repeat(np.arange(len(size)), 13 - size)
    rows = label_rows(**{name: values[at] for name, values in given.items()})
    share = np.bincount(rows.deal(5, np.random.RandomState(0))) / len(at)
    assert np.abs(share - 0.2).max() < 0.05


def slow_covariance(cell, share, values, unit):
    """Add up, within draws, what is centred within cells: as the formula is written."""
    total = np.zeros((values.shape[1],) * 2)
    sums = {g: np.zeros(values.shape[1]) for g in np.unique(unit)}
    sizes = []
    for c in np.unique(cell):
        at = np.flatnonzero(cell == c)
        mean = share[at] @ values[at]
        G = len(np.unique(unit[at]))
        sizes.append(G)
        for i in at:
            sums[unit[i]] += np.sqrt(G / (G - 1)) * share[i] * (values[i] - mean)
    for each in sums.values():
        total += np.outer(each, each)
    return total * (student.ppf(0.975, min(sizes) - 1) / 1.959963984540054) ** 2


@pytest.mark.parametrize("spans", [False, True])
def test_the_covariance_adds_up_within_clusters(spans):
    rng = np.random.default_rng(0)
    n = 300
    cell = rng.integers(0, 4, n)
    unit = rng.integers(0, 20, n) + (0 if spans else 20 * cell)
    values = rng.normal(size=(n, 3)) + rng.normal(size=(80, 3))[unit]
    share = rng.uniform(0.5, 1.5, n)
    share /= np.bincount(cell, share)[cell]
    found = Sums.of_rows(cell, share, values.T, 4, unit).totals()
    np.testing.assert_allclose(
        found.covariance, slow_covariance(cell, share, values, unit), rtol=1e-10
    )
    # Draws of one row each are rows, but for Student's t.
    alone = Sums.of_rows(cell, share, values.T, 4, np.arange(n)).totals()
    rows = Sums.of_rows(cell, share, values.T, 4).totals()
    t = student.ppf(0.975, np.bincount(cell).min() - 1) / 1.959963984540054
    np.testing.assert_allclose(alone.covariance, t**2 * rows.covariance, rtol=1e-10)
    np.testing.assert_allclose(alone.value, rows.value, rtol=1e-12)
    # They may come in pieces.
    pieces = [
        Sums.of_rows(cell[at], share[at], values[at].T, 4, unit[at])
        for at in (slice(None, 100), slice(100, None))
    ]
    added = (pieces[0] + pieces[1]).totals()
    np.testing.assert_allclose(added.covariance, found.covariance, rtol=1e-10)


def test_errors_know_of_clusters_and_the_estimate_hardly_changes(data, model):
    """Copies of 120 draws: twice the standard error, if rows of a customer are all alike."""
    alone = Uplift(random_state=0).fit(
        **{k: v for k, v in data.items() if k != "cluster"}
    )
    errors = [each.average_effect_.standard_error for each in (model, alone)]
    assert errors[0] > 1.4 * errors[1]
    assert model.identification_.strength < alone.identification_.strength / 2.0
    apart = model.average_effect_.value - alone.average_effect_.value
    assert abs(apart) < errors[0]


def test_what_a_cluster_is_called_does_not_matter(data, model):
    names = np.array([f"household {c}" for c in data.cluster])
    named = SeparateLabels(**dict(data) | {"cluster": names})
    assert len(np.unique(named.cluster)) == 120
    again = Uplift(random_state=0).fit(named)
    np.testing.assert_allclose(
        again.average_effect_.standard_error,
        model.average_effect_.standard_error,
        rtol=0.3,  # other folds
    )
    texts = SeparateLabels(**dict(data) | {"cluster": data.cluster.astype(str)})
    np.testing.assert_array_equal(texts.cluster, data.cluster)


def test_forms_are_weighed_by_draws():
    """Rows that are there four times tell as much as once."""
    rng = np.random.default_rng(0)
    losses = {
        name: rng.normal(loc, 1.0, 200) for name, loc in (("a", 1.0), ("b", 1.03))
    }
    once = SpecificationTable.of_losses(losses)
    copied = {name: np.repeat(loss, 4) for name, loss in losses.items()}
    nothing = np.zeros(800)
    unit = np.repeat(np.arange(200), 4)
    rows = ModelRows(nothing[:, None], nothing, nothing, nothing + 1.0, unit)
    table = SpecificationTable.of_losses(copied, rows)
    np.testing.assert_allclose(table.weight, once.weight, rtol=1e-9)
    np.testing.assert_allclose(table.standard_error, 4.0 * once.standard_error)


def test_evaluations_and_diagnoses_know_of_clusters(data):
    plain = {name: column for name, column in data.items() if name != "cluster"}
    errors = [
        evaluate_uplift(data.X[:, 0], each, random_state=0).average.standard_error
        for each in (data, plain)
    ]
    assert errors[0] > 1.4 * errors[1]
    assert diagnose(data).strength < diagnose(plain).strength / 2.0


@pytest.mark.parametrize("estimator", [Uplift, MinMaxUplift])
def test_streamed_rows_have_clusters_too(estimator):
    data = SeparateLabels(**columns(customers=150))
    stream = SeparateLabels(**dict(data), stream=100)
    model = estimator(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that rows are copies
        streamed = model.fit(stream).average_effect_.standard_error
    plain = SeparateLabels(
        **{k: v for k, v in data.items() if k != "cluster"}, stream=100
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert streamed > 1.3 * model.fit(plain).average_effect_.standard_error
    if estimator is Uplift:
        with pytest.warns(UnjoinedWarning, match="cluster names its column"):
            model.fit(plain)
        found, expected = (
            evaluate_uplift(lambda X: X[:, 0], each, random_state=0).average
            for each in (stream, data)
        )
        assert found.standard_error == pytest.approx(expected.standard_error, rel=0.3)


@pytest.mark.parametrize("estimator", [Uplift, MinMaxUplift])
def test_clusters_on_dask_are_those_of_the_stream(estimator):
    """Partitions are chunks: errors are those of the same pieces, and larger than without."""
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    data = SeparateLabels(**columns(customers=100))
    tables = []
    for kind in ("outcome", "treatment"):
        of = {}
        for name in data.populations:
            at = data.rows(kind, name)
            frame = pd.DataFrame(data.X[at], columns=["a", "b"])
            label = data.checked.label[at]
            of[name] = frame.assign(label=label, house=data.cluster[at])
        tables.append(of)
    options = {"outcome": "label", "treatment": "label", "cluster": "house"}
    lazy = [
        {name: frames.from_pandas(frame, npartitions=3) for name, frame in of.items()}
        for of in tables
    ]
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rows
        spread = SeparateLabels.from_tables(*lazy, **options)
        plain = SeparateLabels.from_tables(
            *lazy, outcome="label", treatment="label", features=["a", "b"]
        )
        errors = [
            estimator(random_state=0).fit(rows).average_effect_.standard_error
            for rows in (spread, plain)
        ]
        streamed = SeparateLabels.from_tables(*tables, **options, stream=100)
        expected = estimator(random_state=0).fit(streamed).average_effect_
    assert errors[0] > 1.3 * errors[1]
    assert errors[0] == pytest.approx(expected.standard_error, rel=0.05)


def test_a_column_of_tables_names_the_clusters(data, tmp_path):
    frames = {}
    for kind in ("outcome", "treatment"):
        for name in ("east", "west"):
            at = data.rows(kind, name)
            frame = pd.DataFrame(data.X[at], columns=["a", "b"])
            frame["label"] = data.checked.label[at]
            frame["house"] = data.cluster[at]
            frame.to_csv(tmp_path / f"{kind}_{name}.csv", index=False)
            frames[kind, name] = frame
    tables = [
        {name: frames[kind, name] for name in ("east", "west")}
        for kind in ("outcome", "treatment")
    ]
    options = {"outcome": "label", "treatment": "label", "cluster": "house"}
    both = SeparateLabels.from_tables(*tables, **options)
    assert both.feature_names == ["a", "b"]
    np.testing.assert_array_equal(both.cluster, data.cluster)
    files = [
        {name: tmp_path / f"{kind}_{name}.csv" for name in ("east", "west")}
        for kind in ("outcome", "treatment")
    ]
    for stream in (False, 100):
        read = SeparateLabels.from_tables(*files, **options, stream=stream)
        found = np.concatenate([chunk.cluster for chunk in read.chunks()])
        np.testing.assert_array_equal(found, data.cluster)


def test_bad_clusters_get_a_sentence(data):
    given = dict(data)
    n = len(given["y"])
    with pytest.raises(
        LabelError, match=r"all 120 rows of the outcome table .* one cluster"
    ):
        SeparateLabels(**given | {"cluster": given["population"]})
    with pytest.raises(LabelError, match=r"cluster is nan in 1 of 480 rows\. Name the"):
        SeparateLabels(**given | {"cluster": [np.nan, *range(n - 1)]})
    with pytest.raises(InputError, match="cluster has 3 entries"):
        SeparateLabels(**given | {"cluster": [1, 2, 3]})
    with pytest.raises(InputError, match="clusters of the smallest table"):
        list(CellKFold(31).split(**given))


def test_the_design_effect_is_said(data, model):
    """Rows of a customer have one treatment and half of their noise in common."""
    found = model.identification_
    assert found.n_clusters == 120
    assert 1.5 < found.design_effect < 4.5  # at most four copies, but for chance
    words = "Rows are in 120 clusters, and errors allow for it: the variance is "
    words += f"{found.design_effect:.1f} times that of as many people."
    assert words in model.summary()
    assert words in str(diagnose(data, crossfit=model.crossfit_))
    other = MinMaxUplift(random_state=0).fit(data)
    assert "Rows are in 120 clusters" in other.summary()
