"""Rows that stand for several people: all is as if their rows were written out."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unjoined import EMUplift, MinMaxUplift, SeparateLabels, Uplift, WeightedUplift
from unjoined.errors import InputError, LabelError, UnjoinedWarning
from unjoined.evaluate import diagnose, evaluate_uplift

FEATURES = ["band", "score", "member"]


def grouped(n_cells=120, people=8.0, seed=0):
    """A table such as a clean room returns: features, one label, and the number of people."""
    rng = np.random.default_rng(seed)
    tables = []
    for kind in ("outcome", "treatment"):
        for population, level in (("east", 1.0), ("west", -1.0)):
            X = pd.DataFrame(
                {
                    "band": rng.integers(0, 6, n_cells).astype(float),
                    "score": rng.normal(size=n_cells).round(1),
                    "member": rng.integers(0, 2, n_cells).astype(float),
                }
            )
            count = 1 + rng.poisson(people, n_cells)
            treated = expit(level + 0.3 * X["score"])
            means = [
                expit(0.2 * X["band"] - 1.0 + t * (0.3 + 0.5 * X["score"]))
                for t in (0, 1)
            ]
            mean = treated * means[1] + (1.0 - treated) * means[0]
            ones = rng.binomial(count, treated if kind == "treatment" else mean)
            for label, n in ((1.0, ones), (0.0, count - ones)):
                columns = {"y": np.nan, "treatment": np.nan}
                columns["y" if kind == "outcome" else "treatment"] = label
                tables.append(X.assign(**columns, population=population, n=n))
    table = pd.concat(tables, ignore_index=True)
    return table[table["n"] > 0].reset_index(drop=True)


def columns(table, features=FEATURES):
    beside = {name: table[name].to_numpy() for name in ("y", "treatment", "population")}
    return {"X": table[features].to_numpy(), **beside}


@pytest.fixture(scope="module")
def table():
    return grouped()


@pytest.fixture(scope="module")
def counted(table):
    return SeparateLabels(**columns(table), count=table["n"])


@pytest.fixture(scope="module")
def written(table):
    return SeparateLabels(**columns(table.loc[table.index.repeat(table["n"])]))


def assert_same(found, expected, path=""):
    """Compare all numbers of two results to 1e-8."""
    if isinstance(expected, dict):
        for name in expected:
            assert_same(found[name], expected[name], f"{path}/{name}")
    elif isinstance(expected, list):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{path}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8, nan_ok=True), path
    else:
        assert found == expected, path


def test_a_fit_to_counts_is_the_fit_to_people(counted, written):
    few, many = (Uplift(random_state=0).fit(data) for data in (counted, written))
    X = np.random.default_rng(1).normal(size=(300, 3))
    np.testing.assert_allclose(few.predict(X), many.predict(X), atol=1e-8)
    np.testing.assert_allclose(
        few.predict_interval(X), many.predict_interval(X), atol=1e-8
    )
    for name in ("value", "standard_error"):
        found, expected = (getattr(m.average_effect_, name) for m in (few, many))
        assert found == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(few.gain_.covariance, many.gain_.covariance, atol=1e-10)
    np.testing.assert_allclose(
        few.candidates_.weight, many.candidates_.weight, atol=1e-8
    )
    assert few.summary() == many.summary()


@pytest.mark.parametrize("estimator", [MinMaxUplift, WeightedUplift, EMUplift])
def test_others_write_people_out(counted, written, estimator):
    few, many = (estimator(random_state=0).fit(data) for data in (counted, written))
    np.testing.assert_array_equal(few.predict(written.X), many.predict(written.X))


def test_an_evaluation_of_counts_is_that_of_people(counted, written):
    found, expected = (
        evaluate_uplift(
            lambda X: X[:, 1], data, rules={"top": ("share", 0.3)}, random_state=0
        ).to_dict()
        for data in (counted, written)
    )
    assert_same(found, expected)


def test_a_diagnosis_of_counts_is_that_of_people(counted, written):
    found, expected = (
        diagnose(data, random_state=0).to_dict() for data in (counted, written)
    )
    for result in (found, expected):  # between two rows, which are other ones
        result["gap"].pop("quantiles")
    assert_same(found, expected)


def test_a_share_is_two_rows(table, counted):
    wide = table.assign(
        share=table["y"].fillna(table["treatment"]), kind=table["y"].notna()
    )
    keys = [*FEATURES, "population", "kind"]
    wide["ones"] = wide["share"] * wide["n"]
    cells = wide.groupby(keys, as_index=False)[["ones", "n"]].sum()
    share = cells["ones"] / cells["n"]
    cells["y"] = share.where(cells["kind"])
    cells["treatment"] = share.where(~cells["kind"])
    data = SeparateLabels(**columns(cells), count=cells["n"])
    assert [cell.n_rows for cell in data.summary()] == [
        cell.n_rows for cell in counted.summary()
    ]
    found, expected = (Uplift(random_state=0).fit(d) for d in (data, counted))
    assert found.average_effect_.value == pytest.approx(
        expected.average_effect_.value,
        abs=0.3 * expected.average_effect_.standard_error,
    )  # people are dealt into other folds
    assert set(data.y[~np.isnan(data.y)]) == {0.0, 1.0}
    again = SeparateLabels(**data)  # as it is
    np.testing.assert_array_equal(again.count, data.count)


def test_clusters_of_counts_stay_together(table):
    data = SeparateLabels(
        **columns(table), count=table["n"], cluster=np.arange(len(table))
    )
    model = Uplift(random_state=0).fit(data)
    assert model.identification_.n_clusters == len(table)
    assert len(model.crossfit_.rows) == len(table)


def test_tables_have_a_column_of_counts(table, counted):
    kinds = {"outcomes": "y", "treatments": "treatment"}
    tables = {
        kind: {
            name: part.drop(columns=[*{*kinds.values()} - {label}, "population"])
            for name, part in table[table[label].notna()].groupby("population")
        }
        for kind, label in kinds.items()
    }
    options = {"outcome": "y", "treatment": "treatment", "count": "n"}
    data = SeparateLabels.from_tables(**tables, **options)
    assert data.feature_names == FEATURES
    assert str(data).splitlines()[1:] == str(counted).splitlines()[1:]
    # Streamed, they are written out, however small the pieces.
    del options["count"]
    of_people = {
        kind: {
            name: part.loc[part.index.repeat(part["n"])].drop(columns="n")
            for name, part in own.items()
        }
        for kind, own in tables.items()
    }
    streamed = SeparateLabels.from_tables(**tables, **options, count="n", stream=7)
    expected = SeparateLabels.from_tables(**of_people, **options, stream=100)
    found, other = (
        MinMaxUplift(random_state=0).fit(each).coef_ for each in (streamed, expected)
    )
    np.testing.assert_allclose(found, other, rtol=1e-9)
    with pytest.raises(InputError, match="count was given with rows that are streamed"):
        SeparateLabels(**columns(table), count=table["n"], stream=True)


def test_bad_counts_get_a_sentence(table):
    given = columns(table)
    n = len(table)
    for bad in (-1.0, 2.5, np.nan):
        with pytest.raises(LabelError, match=r"count must be a whole number of people"):
            SeparateLabels(**given, count=[bad, *[3] * (n - 1)])
    shares = np.where(np.isnan(given["treatment"]), np.nan, 0.5)
    with pytest.raises(LabelError, match=r"a share of 0\.5 of 3 people"):
        SeparateLabels(**given | {"treatment": shares}, count=[3] * n)
    rounded = np.where(np.isnan(given["y"]), np.nan, 0.333)
    rounded[:2] = 0.0, 1.0
    with pytest.warns(UnjoinedWarning, match=r"no share of its 200 people"):
        SeparateLabels(**given | {"y": rounded}, count=[200] * n)
    with pytest.raises(LabelError, match="found 1: 'west'"):
        SeparateLabels(**given, count=np.where(given["population"] == "east", 0, 3))
    many = SeparateLabels(**given, count=np.full(n, 10_000))
    with pytest.raises(InputError, match="takes a row for each person"):
        MinMaxUplift(random_state=0).fit(many)
    with pytest.warns(UnjoinedWarning, match="give them as count"):
        SeparateLabels(**given, sample_weight=table["n"])
