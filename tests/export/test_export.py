"""Exported models give what predict gives, without the package."""

import datetime
import json
import sqlite3
from contextlib import closing

import duckdb
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from unjoined import EMUplift, MinMaxUplift, PlugInUplift, Uplift, WeightedUplift
from unjoined.cli.entry import main
from unjoined.data import campaign_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError
from unjoined.estimators.persist import save_model
from unjoined.export import export_sql
from unjoined.model.draw import PrincipalBasis

# Few rows, and new people unlike them.
pytestmark = [
    pytest.mark.usefixtures("two_folds"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
REGION = "re'gion\"; DROP TABLE people; --"
NAMES = [
    "age",
    "days",
    "uplift",
    "_0",
    "_1",
]  # the last three are names that queries use


def tables(kind=""):
    """Return rows with text, dates, hostile names and missing values, and new people."""
    rng = np.random.default_rng(0)
    data = dict(campaign_problem().draw(400, random_state=0))
    X = pd.DataFrame(np.asarray(data["X"]), columns=NAMES)
    n = len(X)
    words = np.array(["No'rth", 'So"uth', "W\\est -- ", "rare", "", None], dtype=object)
    X[REGION] = words[rng.choice(6, n, p=[0.4, 0.3, 0.2, 0.002, 0.05, 0.048])]
    X["joined"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(
        rng.integers(0, 300, n), unit="D"
    )
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    if kind:
        noise = rng.poisson(1.0, n) if kind == "counts" else rng.normal(size=n)
        data["y"] = 3.0 * data["y"] + noise  # NaN stays NaN
    new = X.sample(200, random_state=1).reset_index(drop=True)
    new.loc[:4, REGION] = "unseen"
    new.loc[5:8, "days"] = 1e4
    new.loc[9:12, "days"] = np.nan  # which no row of the fit lacks
    return data | {"X": X}, new


def campaign(n=300):
    """Return rows with names, as tables would give them."""
    data = dict(campaign_problem().draw(n, random_state=0))
    return data | {
        "X": pd.DataFrame(
            data["X"], columns=["age", "days", "orders", "spend", "member"]
        )
    }


def by_sql(model, people, collation="binary"):
    connection = duckdb.connect()
    connection.execute(f"SET default_collation = '{collation}'").fetchall()
    connection.register('a "table"', people.assign(id=np.arange(len(people))))
    scores = connection.execute(
        export_sql(model, table='a "table"', keep=["id"])
    ).fetchall()
    return np.array([uplift for _, uplift in sorted(scores)])


MODELS = {
    "additive": (Uplift(random_state=0), ""),
    "mean": (Uplift(random_state=0), "real"),
    "poisson": (Uplift(random_state=0), "counts"),
    "smooth": (MinMaxUplift(random_state=0), ""),
    "fourier": (MinMaxUplift(basis="fourier", random_state=0), ""),
    "gaussian": (MinMaxUplift(basis="gaussian", n_centers=20, random_state=0), ""),
    "weighted": (WeightedUplift(basis="linear", random_state=0), ""),
}


@pytest.mark.parametrize("name", MODELS)
def test_queries_equal_predict_with_text_dates_gaps_and_hostile_names(name):
    model, kind = MODELS[name]
    data, new = tables(kind)
    expected = model.fit(**data).predict(new)
    assert np.ptp(expected) > 0.01
    assert_allclose(by_sql(model, new), expected, atol=1e-9, rtol=0)


RNG = np.random.default_rng(3)
HOURS = [datetime.time(int(h), 30) for h in RNG.integers(0, 24, 1200)]
BORN = pd.Timestamp("1968-01-01") + pd.to_timedelta(
    RNG.integers(0, 3000, 1200), unit="D"
)
CODES = RNG.choice(["1", "2", "17", "A"], 1200)
ODD = {  # a column of the fit, and the same in the table to score, if it is written otherwise
    "missing": (RNG.choice(np.array(["a", "b", None], dtype=object), 1200), None),
    "missing and rare": (
        [None if v < 0.2 else f"k{int(v * 900)}" for v in RNG.random(1200)],
        None,
    ),
    "words for missing": (
        RNG.choice(np.array(["a", "b", " ", "nan", None], object), 1200),
        None,
    ),
    "capitals": (RNG.choice(["x", "X", "y "], 1200), None),
    "doubles": (CODES, np.where(CODES == "A", "2", CODES).astype(float)),
    "integers": (CODES, np.where(CODES == "A", "2", CODES).astype(int)),
    "numbers and gaps": (
        pd.Categorical(RNG.choice([1.0, 2.5, 17.0, np.nan], 1200)),
        None,
    ),
    "text of numbers": (
        RNG.integers(1, 4, 1200),
        RNG.choice(["1", "2", "", "N/A"], 1200),
    ),
    "times of day": (HOURS, None),
    "durations": (pd.to_timedelta(RNG.integers(0, 50, 1200), unit="D"), None),
    "births": (BORN, None),
    "births as text": (BORN, BORN.strftime("%Y-%m-%d")),
}
NUMBERS = ("text of numbers", "times of day", "durations", "births", "births as text")


def fitted_to(column, estimator, n=1200):
    """Fit rows whose uplift depends on a number and on how often a value occurs."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.standard_normal(n), "c": column})
    kind, population = (
        np.repeat(["outcome", "treatment"], n // 2),
        np.tile(["e", "w"], n // 2),
    )
    treated = rng.random(n) < np.where(population == "e", 0.8, 0.2)
    codes, _ = pd.factorize(X["c"])
    uplift = 1.0 + X["x"] + np.where(codes % 2 == 0, 2.0, 0.0)
    y = np.where(
        kind == "outcome", X["x"] + treated * uplift + rng.normal(0.0, 0.3, n), treated
    )
    return estimator.fit(X, **separate_labels(y, kind), population=population), X


@pytest.mark.parametrize(
    ("name", "estimator"),
    [(name, MinMaxUplift(basis="linear", random_state=0)) for name in ODD]
    # Only categories are other numbers here: codes, not indicators.
    + [(name, Uplift(random_state=0)) for name in ODD if name not in NUMBERS],
)
def test_sql_equals_predict_however_a_column_is_stored(name, estimator):
    column, stored = ODD[name]
    model, X = fitted_to(column, estimator)
    people = X if stored is None else X.assign(c=stored)
    expected = model.predict(people)
    assert_allclose(by_sql(model, people), expected, atol=1e-9, rtol=0)
    assert_allclose(by_sql(model, people, "nocase"), expected, atol=1e-9)


def test_sql_equals_predict_for_categories_beyond_those_remembered():
    rng = np.random.default_rng(0)
    column = [f"k{int(v**3 * 6000)}" for v in rng.random(6000)]
    model, X = fitted_to(column, MinMaxUplift(basis="linear", random_state=0), 6000)
    (code,) = (code for code in model.encoder_.columns_ if code.name == "c")
    assert code.is_open
    people = X.assign(c=[*column[:-50], *[f"new {j}" for j in range(50)]])
    assert_allclose(by_sql(model, people), model.predict(people), atol=1e-9, rtol=0)


def test_columns_that_differ_in_capitals_only_are_no_columns_of_sql():
    data = campaign()
    data["X"] = data["X"].rename(columns={"days": "AGE"})
    model = MinMaxUplift(basis="linear", random_state=0).fit(**data)
    with pytest.raises(
        InputError, match="'age' and 'AGE' have one name in most databases"
    ):
        export_sql(model)


def test_products_of_a_category_and_a_number_are_exported():
    rng = np.random.default_rng(0)
    n, kinds = 1600, np.repeat(["outcome", "treatment"], 800)
    X = pd.DataFrame(
        {"x": rng.standard_normal(n), "place": rng.choice(["a", "b", "c"], n)}
    )
    population = np.tile(["east", "west"], n // 2)
    treated = rng.random(n) < np.where(population == "east", 0.8, 0.2)
    slope = X["place"].map({"a": 3.0, "b": -3.0, "c": 0.0}).to_numpy()
    y = X["x"] + treated * slope * X["x"] + 0.3 * rng.standard_normal(n)
    labels = np.where(kinds == "outcome", y, treated)
    model = Uplift(random_state=0).fit(
        X, **separate_labels(labels, kinds), population=population
    )
    basis = model.fit_.basis
    assert any(max(pair) >= len(basis.features) for pair in basis.pairs)
    expected = model.predict(X)
    assert np.corrcoef(expected, slope * X["x"])[0, 1] > 0.9
    assert_allclose(by_sql(model, X), expected, atol=1e-9, rtol=0)


def test_jumps_are_exported():
    rng = np.random.default_rng(0)
    n, kinds = 1600, np.repeat(["outcome", "treatment"], 800)
    X = pd.DataFrame(rng.standard_normal((n, 3)), columns=["x", "y", "z"])
    population = np.tile(["east", "west"], n // 2)
    treated = rng.random(n) < np.where(population == "east", 0.8, 0.2)
    uplift = 4.0 * (X["x"] > 0.5) * (X["y"] <= 0.3)
    y = 2.0 * (X["z"] > -0.4) + treated * uplift + 0.3 * rng.standard_normal(n)
    labels = np.where(kinds == "outcome", y, treated)
    model = Uplift(random_state=0).fit(
        X, **separate_labels(labels, kinds), population=population
    )
    assert model.candidates_.name[0] == "rules"
    expected = model.predict(X)
    assert np.corrcoef(expected, uplift)[0, 1] > 0.9
    assert_allclose(by_sql(model, X), expected, atol=1e-9, rtol=0)


def test_values_that_many_rows_share_are_exported():
    data = campaign(200)
    data["X"].loc[::3, "spend"] = 0.0
    model = Uplift(random_state=0).fit(**data)
    ((column, values, _),) = model.fit_.basis.categories
    assert (column, *values) == (3, 0.0)
    people = data["X"][:50]
    expected = model.predict(people)
    assert_allclose(by_sql(model, people), expected, atol=1e-9, rtol=0)


def test_the_best_by_sql_are_found_without_expressions_that_grow_into_each_other():
    """DuckDB took minutes and gigabytes to sort and cut the scores, PostgreSQL to compute any."""
    data = campaign()
    model = Uplift(random_state=0).fit(**data)
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '1GB'").fetchall()
    connection.register("frame", data["X"])
    connection.execute("CREATE TABLE people AS SELECT * FROM frame").fetchall()
    query = f"SELECT uplift FROM ({export_sql(model)}) ORDER BY uplift DESC LIMIT 3"  # noqa: S608
    best = [uplift for (uplift,) in connection.execute(query).fetchall()]
    assert_allclose(best, np.sort(model.predict(data["X"]))[:-4:-1], atol=1e-9)
    assert query.count("FROM (SELECT") == query.count("OFFSET 0 ROWS) AS") > 1


def test_sqlite_refuses_the_query_and_does_not_take_zeros_for_missing():
    """It would: there, the text NaN as a number is 0."""
    data = campaign()
    model = MinMaxUplift(basis="linear", ridge_f=0.1, ridge_g=0.1).fit(**data)
    with closing(sqlite3.connect(":memory:")) as connection:
        data["X"].to_sql("people", connection, index=False)
        with pytest.raises(
            sqlite3.OperationalError, match='near "OFFSET": syntax error'
        ):
            connection.execute(export_sql(model))


def test_components_of_features_are_exported():
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0]
    data = campaign()
    model = MinMaxUplift(basis=PrincipalBasis(directions), random_state=0).fit(**data)
    expected = model.predict(data["X"])
    assert_allclose(by_sql(model, data["X"]), expected, atol=1e-9, rtol=0)


def test_models_that_cannot_be_exported_say_which_can():
    data = campaign()
    em = EMUplift(outcome_model=LogisticRegression(), random_state=0)
    for model in (PlugInUplift(random_state=0), em):
        model.fit(**data)
        with pytest.raises(
            InputError, match=r"cannot be exported.*Uplift, MinMaxUplift"
        ):
            export_sql(model)

    class Own:
        size, n_features = 1, 5

        def __call__(self, X):
            return np.ones((len(X), 1))

    own = MinMaxUplift(basis=Own(), random_state=0).fit(**data)
    with pytest.raises(InputError, match="a model on Own cannot be exported"):
        export_sql(own)


def test_sql_says_what_is_wrong_with_names():
    data = campaign()
    plain = data | {"X": np.asarray(data["X"])}
    linear = MinMaxUplift(basis="linear", random_state=0)
    with pytest.raises(InputError, match="plain arrays"):
        export_sql(linear.fit(**plain))
    model = linear.fit(**data)
    with pytest.raises(InputError, match="cannot copy the column 'uplift'"):
        export_sql(model, keep=["uplift"])
    with pytest.raises(InputError, match=r"no form for the name 'a\\x00'"):
        export_sql(model, table="a\x00")
    assert 'FROM "crm"."people" AS' in export_sql(model, table=("crm", "people"))


def test_a_query_too_long_for_databases_is_refused():
    data = campaign()
    wide = data["X"].join([data["X"].add_suffix(f" {j}") for j in range(12)])
    ridges = {"ridge_f": 1.0, "ridge_g": 1.0, "center": False}
    model = MinMaxUplift(basis="gaussian", n_centers=500, width=5.0, **ridges)
    with pytest.raises(InputError, match="characters, more than most databases take"):
        export_sql(model.fit(**data | {"X": wide}))


def test_the_command_writes_a_query_and_replaces_only_its_own(here, capsys):
    save_model(
        MinMaxUplift(basis="linear", random_state=0).fit(**campaign()), "m.skops"
    )
    command = ["export", "--model", "m.skops", "--sql"]
    for more in ([], ["--force"]):  # the second time over its own files
        with pytest.raises(SystemExit) as stop:
            main([*command, "m.sql", "--json", *more])
        assert stop.value.code == 0
        assert json.loads(capsys.readouterr().out) == {"sql": "m.sql"}
    assert 'FROM "people" AS' in (here / "m.sql").read_text()
    (here / "mine.sql").write_text("SELECT 1")
    with pytest.raises(SystemExit) as stop:
        main([*command, "mine.sql"])
    assert stop.value.code == 2
    assert "is not a query of ours, so it is not replaced" in capsys.readouterr().err


def test_values_that_stand_for_missing_are_missing_in_exports():
    data = campaign()
    X = data["X"].copy()
    gone = np.random.default_rng(0).random(len(X)) < 0.1
    X.loc[gone, "age"] = -999.0
    X["joined"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        np.arange(len(X)) % 400, unit="D"
    )
    X.loc[gone, "joined"] = pd.Timestamp("1900-01-01")
    model = MinMaxUplift(basis="linear", random_state=0).fit(**(data | {"X": X}))
    assert [code.stand_ins for code in model.encoder_.columns_] == [
        *((-999.0,), (), (), (), (), (-25567.0,)),
    ]
    expected = model.predict(X[:200])
    empty = X[:200].assign(age=X["age"].where(~gone), joined=X["joined"].where(~gone))
    assert_allclose(model.predict(empty), expected, atol=0, rtol=0)
    assert_allclose(by_sql(model, X[:200]), expected, atol=1e-9, rtol=0)
