"""Columns that are not features are found by what they hold, and real features never are."""

import warnings

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import CellKFold, TableEncoder
from unjoined.errors import ColumnWarning, TableError, WeakIdentificationWarning

pytestmark = pytest.mark.usefixtures("two_folds")

N = 300
LABELS = {"outcome": "bought", "treatment": "mailed"}
CELLS = [(kind, name) for kind in ("outcome", "treatment") for name in ("N", "S")]
RNG = np.random.default_rng(0)
DAY = pd.Timestamp("2024-01-01")


def four(column=None, n=N):
    """Return four tables with three features and one more column, made of the cell's number."""
    rng = np.random.default_rng(1)
    tables = {}
    for k, (kind, name) in enumerate(CELLS):
        frame = pd.DataFrame(
            {
                "age": rng.integers(18, 90, n),
                "spend": np.round(rng.lognormal(3.0, 1.0, n), 2),
                "region": rng.choice(["city", "town"], n),
                "label": rng.integers(0, 2, n),
            }
        )
        if (
            column is not None
            and (values := column(k, n, frame["label"].to_numpy())) is not None
        ):
            frame["extra"] = values
        tables[kind, name] = frame.rename(columns={"label": LABELS[kind]})
    return tables


def load(tables, **options):
    outcomes, treatments = (
        {name: tables[kind, name] for name in ("N", "S")}
        for kind in ("outcome", "treatment")
    )
    return SeparateLabels.from_tables(outcomes, treatments, **LABELS, **options)


NO_FEATURES = {
    "ids in any order": (
        lambda k, n, y: RNG.permutation(n) + 1000,
        "as ids and row numbers do",
    ),
    "ids of which some are missing": (
        lambda k, n, y: np.where(
            RNG.random(n) < 0.05, np.nan, RNG.permutation(n) + 7.0
        ),
        "as ids and row numbers do",
    ),
    "a sample of ids": (
        lambda k, n, y: RNG.choice(5 * n, n, replace=False),
        "as ids and row",
    ),
    "ids of nine digits": (
        lambda k, n, y: RNG.integers(10**8, 10**9, n),
        "as ids and row",
    ),
    "ids with years in front": (
        lambda k, n, y: (2020 + RNG.integers(0, 3, n)) * 10_000 + RNG.permutation(n),
        "as ids and row numbers do",
    ),
    "row numbers": (lambda k, n, y: np.arange(n), "as ids and row numbers do"),
    "row numbers that go on": (
        lambda k, n, y: np.arange(n) + k * n,
        "as ids and row numbers do",
    ),
    "words that never repeat": (
        lambda k, n, y: [f"c{k}-{i:05}" for i in range(n)],
        "free text",
    ),
    "digits with zeros in front": (
        lambda k, n, y: [f"{i:07}" for i in range(n)],
        "as ids, names",
    ),
    "one value": (lambda k, n, y: ["DE"] * n, "is 'DE' in all rows"),
    "one number": (lambda k, n, y: [3] * n, "is 3 in all rows"),
    "nothing": (lambda k, n, y: [None] * n, "has no value in any row"),
    "nothing in a table": (
        lambda k, n, y: [None] * n if k == 3 else RNG.normal(size=n),
        "has no value in the treatment table of population 'S'",
    ),
    "a year for each population": (
        lambda k, n, y: [2023 + k % 2] * n,
        r"is 2023 in the outcome table of population 'N' and 2024 in the outcome .*'S', so nobody",
    ),
    "a word for each kind": (
        lambda k, n, y: ["crm" if k < 2 else "web"] * n,
        r"is 'crm' in the outcome table of population 'N' and 'web' in the treatment table",
    ),
    "one table in other units": (
        lambda k, n, y: RNG.uniform(1.0, 2.0, n) * (1000.0 if k == 2 else 1.0),
        r"is 1\S* to \S+ in the outcome .* and 1\d\d\d\S* to \S+ in the treatment .*in one unit",
    ),
    "moments of entry": (
        lambda k, n, y: DAY + pd.to_timedelta(RNG.integers(0, 10**7, n), unit="s"),
        "is a moment that differs in nearly every row",
    ),
    "days in the order of rows": (
        lambda k, n, y: (
            DAY + pd.to_timedelta(np.sort(RNG.integers(0, 90, n)), unit="D")
        ),
        "dates in the order of the rows",
    ),
    "the months of a table": (
        lambda k, n, y: (
            DAY + pd.to_timedelta(RNG.integers(0, 28, n) + 31 * k, unit="D")
        ),
        r"is 2024-01-01 to 2024-01-28 in .*, so nobody in the one",
    ),
    "the label": (lambda k, n, y: y, r"tells the outcome 'bought' by itself"),
    "the label in words": (
        lambda k, n, y: np.where(y, "paid", "none"),
        "tells the outcome",
    ),
    "a score that is made of the label": (
        lambda k, n, y: y + RNG.uniform(0.0, 0.9, n),
        "tells the outcome 'bought' by itself",
    ),
    "treatment alone": (
        lambda k, n, y: (
            np.where(y, "letter", "none") if k > 1 else RNG.choice(["letter"], n)
        ),
        "tells the treatment 'mailed' by itself",
    ),
    "a column of some tables": (
        lambda k, n, y: None if k == 3 else RNG.normal(size=n),
        "is in the outcome table of population 'N', but not in the treatment table of popu",
    ),
}

FEATURES = {
    "a measurement": lambda k, n, y: RNG.normal(size=n),
    "a rounded measurement": lambda k, n, y: np.round(RNG.normal(0.0, 300.0, n)),
    "steps of a day": lambda k, n, y: RNG.integers(0, 20_000, n),
    "income": lambda k, n, y: np.round(RNG.lognormal(10.5, 0.5, n)),
    "a sorted measurement": lambda k, n, y: np.sort(RNG.normal(size=n)),
    "years of birth": lambda k, n, y: RNG.integers(1930, 2006, n),
    "birthdays": lambda k, n, y: (
        DAY - pd.to_timedelta(RNG.integers(6000, 30_000, n), unit="D")
    ),
    "a rare flag": lambda k, n, y: (RNG.random(n) < 0.03).astype(int),
    "a word, or nothing": lambda k, n, y: np.where(RNG.random(n) < 0.5, "member", None),
    "towns": lambda k, n, y: [f"town {i}" for i in RNG.integers(0, 40, n)],
    "numbers in text": lambda k, n, y: [f"{v:.4f}" for v in RNG.normal(size=n)],
    "what decides the policy": lambda k, n, y: {2: y, 3: 1 - y}.get(
        k, RNG.integers(0, 2, n)
    ),
    "a good predictor": lambda k, n, y: np.where(RNG.random(n) < 0.95, y, 1 - y),
}


# Ids that a table of this size cannot be sure of: kept, with a word.
MAYBE_IDS = {
    "numbers given out ever faster": lambda k, n, y: (1e7 * RNG.beta(3, 1, n)).round(),
    "blocks of numbers": lambda k, n, y: (
        RNG.choice([1, 3, 4, 7, 9], n) * 1_000_000 + RNG.choice(10**6, n, replace=False)
    ),
    "two systems": lambda k, n, y: np.where(
        RNG.random(n) < 0.5, RNG.integers(0, 10**5, n), RNG.integers(4e8, 5e8, n)
    ),
    "six digits": lambda k, n, y: RNG.choice(10**6, n, replace=False) // 2,
}

AMOUNTS = {
    "income in cents": lambda k, n, y: (100 * RNG.lognormal(10.5, 0.5, n)).round(),
    "revenue in cents": lambda k, n, y: (100 * RNG.lognormal(4.0, 1.2, n)).round(),
    "milliseconds to failure": lambda k, n, y: (1e9 * RNG.weibull(1.8, n)).round(),
    "a balance": lambda k, n, y: RNG.normal(0.0, 3e6, n).round(),
    "weights in grams": lambda k, n, y: RNG.normal(75_000, 15_000, n).round(),
    "metres driven": lambda k, n, y: RNG.gamma(4.0, 3e7, n).round(),
    "prices in full hundreds": lambda k, n, y: 100 * RNG.gamma(3.0, 900, n).round(),
}


def test_what_may_be_an_id_is_kept_with_a_word():
    for n in (60, 300):
        for column in MAYBE_IDS.values():
            with pytest.warns(ColumnWarning, match="'extra' .* and may be an id"):
                data = load(four(column, n))
            assert "extra" in data.feature_names
            with warnings.catch_warnings():
                warnings.simplefilter("error", ColumnWarning)
                load(four(column, n), ignore=["extra"])


@pytest.mark.parametrize("n", [60, 300, 3000])
def test_whole_amounts_are_features_without_a_word(n):
    """Also of small tables, and of many rows, of which few are then equal."""
    for column in AMOUNTS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("error", ColumnWarning)
            assert "extra" in load(four(column, n)).feature_names


@pytest.mark.parametrize("name", ["customer", "Kunde", "account_no", "patient"])
def test_whole_numbers_that_name_people_are_ids(name):
    tables = four(lambda k, n, y: RNG.lognormal(10.0, 1.0, n).round(), 60)
    named = {c: frame.rename(columns={"extra": name}) for c, frame in tables.items()}
    with pytest.warns(ColumnWarning, match=f"'{name}' is a whole number that differs"):
        assert name not in load(named).feature_names


def test_a_column_that_is_no_feature_is_left_out_with_the_reason():
    for case in NO_FEATURES:
        column, reason = NO_FEATURES[case]
        with pytest.warns(
            ColumnWarning, match=rf"a column is left out: 'extra' .*{reason}"
        ):
            data = load(four(column))
        assert data.feature_names == ["age", "spend", "region"]
        assert [part.name for part in data.left_out] == ["extra"]
        if case != "a column of some tables":
            kept = load(four(column), features=["age", "extra"])
            assert kept.feature_names == ["age", "extra"]
            assert kept.left_out == ()


def test_a_real_feature_is_kept():
    for case in FEATURES:
        data = load(four(FEATURES[case]))
        assert data.feature_names == ["age", "spend", "region", "extra"]
        assert data.left_out == ()


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
def test_an_index_written_as_a_column_is_known_by_its_name(name):
    tables = four(lambda k, n, y: np.arange(n) % 9)
    tables = {
        cell: frame.rename(columns={"extra": name}) for cell, frame in tables.items()
    }
    with pytest.warns(
        ColumnWarning, match=f"'{name}' is an index that was written as a column"
    ):
        assert load(tables).feature_names == ["age", "spend", "region"]


def test_few_rows_decide_only_by_name():
    tables = four(lambda k, n, y: np.arange(n) + 500, n=30)
    assert load(tables).feature_names == ["age", "spend", "region", "extra"]
    tables = {
        c: frame.rename(columns={"extra": "customer_id"}) for c, frame in tables.items()
    }
    with pytest.warns(
        ColumnWarning, match="'customer_id' is a whole number that differs"
    ):
        assert load(tables).feature_names == ["age", "spend", "region"]


def test_labels_of_the_other_kind_are_left_out():
    tables = four()
    tables["outcome", "N"]["mailed"] = np.nan
    with pytest.warns(
        ColumnWarning, match="'mailed' is the treatment, so it is not a feature of the"
    ):
        assert load(tables).feature_names == ["age", "spend", "region"]


def test_tables_with_both_labels_are_told_which_one_is_thrown_away():
    tables = four()
    tables["outcome", "N"]["mailed"] = 1
    with pytest.warns(ColumnWarning) as told:
        load(tables)
    said = "the outcome table of population 'N' has the treatment 'mailed' as well"
    (note,) = (str(one.message) for one in told if str(one.message).startswith(said))
    assert "only the outcome is used" in note


def test_ignored_columns_are_left_out_without_a_word_and_must_exist():
    tables = four(lambda k, n, y: np.arange(n))
    assert load(tables, ignore=["extra", "age"]).feature_names == ["spend", "region"]
    with pytest.raises(
        TableError, match=r"ignore names 'agee', .* Did you mean 'age'\?"
    ):
        load(tables, ignore=["agee"])
    with pytest.raises(TableError, match="no column is left that could be a feature"):
        load(tables, ignore=["age", "spend", "region", "extra"])


def test_one_column_in_two_spellings_is_asked_about():
    tables = four()
    tables["treatment", "S"] = tables["treatment", "S"].rename(columns={"age": "Age "})
    with pytest.raises(
        TableError, match=r"has a column 'age' and .* has 'Age '. Did you mean one"
    ):
        load(tables)


def test_a_column_renamed_in_one_table_is_left_out_with_a_word():
    tables = four()
    tables["treatment", "S"] = tables["treatment", "S"].rename(
        columns={"spend": "spending"}
    )
    with pytest.warns(ColumnWarning) as told:
        assert load(tables).feature_names == ["age", "region"]
    _, doubt = map(str, (warning.message for warning in told))
    assert "'S' lacks the column 'spend', and has 'spending'" in doubt


def test_units_that_differ_between_tables_are_named_with_both_ranges():
    tables = four(
        lambda k, n, y: RNG.lognormal(0.0, 1.0, n) * (1000.0 if k == 1 else 1.0)
    )
    tables["outcome", "S"].loc[0, "extra"] = 1.0
    message = r"column 'extra' is \S+ to \S+ in the outcome table of population 'N', mostly unlike"
    with pytest.warns(
        ColumnWarning, match=message + r" 1 to \d+\S* in .* 'S'. Check that both"
    ):
        assert "extra" in load(tables).feature_names


def test_a_column_of_numbers_here_and_words_there_is_named():
    tables = four(
        lambda k, n, y: ["low", "4"] * (n // 2) if k == 3 else RNG.integers(0, 9, n)
    )
    message = r"'extra' holds numbers in the outcome .* words such as 'low' in the treatment table"
    with pytest.warns(ColumnWarning, match=message):
        load(tables)


def test_two_frames_with_a_population_column_are_judged_alike():
    for case in ("ids in any order", "a word for each kind", "the label"):
        tables = four(NO_FEATURES[case][0])
        both = [
            pl.concat(
                [
                    pl.from_pandas(tables[kind, k]).with_columns(where=pl.lit(k))
                    for k in "NS"
                ]
            )
            for kind in ("outcome", "treatment")
        ]
        with pytest.warns(ColumnWarning, match="a column is left out: 'extra'"):
            data = SeparateLabels.from_tables(*both, **LABELS, population="where")
        assert data.feature_names == ["age", "spend", "region"]


def test_a_stream_decides_as_memory_does_and_by_all_rows(tmp_path):
    def column(
        k, n, y
    ):  # constant at first, but not in the end; only numbers are read in pieces
        return np.where(np.arange(n) < 59_900, 1.0, 1.0 + np.arange(n) % 5)

    tables = {c: f.drop(columns="region") for c, f in four(column, n=60_000).items()}
    for frame in tables.values():
        frame["id"] = RNG.permutation(len(frame))
    with pytest.warns(ColumnWarning, match="'id' is a whole number"):
        data = load(tables)
    assert data.feature_names == ["age", "spend", "extra"]
    paths = {cell: tmp_path / f"{'-'.join(cell)}.parquet" for cell in tables}
    for cell, path in paths.items():
        tables[cell].to_parquet(path)
    source = load(paths, stream=True)
    with pytest.warns(ColumnWarning, match="'id' is a whole number"):
        assert source.feature_names == data.feature_names
    assert source.left_out == data.left_out


def test_a_notebook_shows_tables_features_and_what_was_left_out():
    tables = four(lambda k, n, y: ["<b>"] * n)
    with pytest.warns(ColumnWarning, match="a column is left out"):
        page = load(tables)._repr_html_()
    assert "<td>outcome</td><td>N</td><td>300 rows</td>" in page
    assert "Features: age, spend, region" in page
    assert "&#x27;extra&#x27; is &#x27;&lt;b&gt;&#x27; in all rows" in page


def test_columns_as_they_are_go_through_transformers_and_a_search():
    data = load({cell: pl.from_pandas(frame) for cell, frame in four().items()})
    assert nw.from_native(data.X).schema["region"] == nw.String
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", WeakIdentificationWarning
        )  # of labels made by chance
        split = make_column_transformer(
            (OneHotEncoder(), ["region"]), (StandardScaler(), ["age"])
        )
        quick = MinMaxUplift(basis="linear", ridge_f=0.1, ridge_g=0.1, center=False)
        model = make_pipeline(split, quick).fit(**data)
        other = make_pipeline(TableEncoder(), quick)
        grid = {"minmaxuplift__ridge_f": [0.01, 0.1]}
        search = GridSearchCV(other, grid, cv=CellKFold(2)).fit(**data)
    assert np.isfinite(model.predict(data.X)).all()
    assert search.best_params_["minmaxuplift__ridge_f"] in grid["minmaxuplift__ridge_f"]


def test_outcomes_in_other_units_are_told():
    rng = np.random.default_rng(0)

    def table(label, values):
        return pd.DataFrame({"age": rng.normal(size=100), label: values})

    flags = rng.integers(0, 2, 100)
    outcomes = {"n": table("spend", flags * 10.0), "s": table("spend", flags * 1000.0)}
    treatments = {name: table("mailed", flags) for name in ("n", "s")}
    with pytest.warns(
        ColumnWarning, match="outcome 'spend' is 0 to 10 in .* and 0 to 1000 in"
    ):
        SeparateLabels.from_tables(
            outcomes, treatments, outcome="spend", treatment="mailed"
        )
