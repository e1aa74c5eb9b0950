"""Tables that people really have give the right answer, or an error that names the column."""

import decimal
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from unjoined import MinMaxUplift, SeparateLabels, Uplift, read_table
from unjoined.data.rows import separate_labels
from unjoined.errors import ColumnWarning, InputError, UnjoinedError, UnjoinedWarning
from unjoined.evaluate import diagnose

PEOPLE = pd.DataFrame({"x": [1.0, 5.0, 30.0], "z": [1, 2, 3]})
pytestmark = [
    pytest.mark.usefixtures("two_folds"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning"),
]


def frames(label, shares, n=120):
    rng = np.random.default_rng(len(label))
    return {
        name: pd.DataFrame(
            {
                "x": rng.integers(0, 50, n).astype(float),
                "z": rng.integers(0, 9, n),
                label: (rng.random(n) < share).astype(int),
            }
        )
        for name, share in shares.items()
    }


def fit(change):
    outcomes = frames("yy", {"n": 0.3, "s": 0.6})
    treatments = frames("t", {"n": 0.2, "s": 0.8})
    tables = [{k: change(f) for k, f in t.items()} for t in (outcomes, treatments)]
    data = SeparateLabels.from_tables(*tables, outcome="yy", treatment="t")
    return MinMaxUplift(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1).fit(
        **data
    )


def as_decimals(frame):
    cells = {c: [decimal.Decimal(str(v)) for v in frame[c]] for c in frame}
    return pa.table({c: pa.array(v, pa.decimal128(20, 4)) for c, v in cells.items()})


def from_row_groups(folder):
    def read(frame):
        table, path = (
            pa.Table.from_pandas(frame, preserve_index=False),
            folder / "t.parquet",
        )
        with pq.ParquetWriter(path, table.schema) as writer:
            for start, length in ((0, 0), (0, 50), (50, 0), (50, 70), (120, 0)):
                writer.write_table(table.slice(start, length))
        return read_table(path)

    return read


def with_times(zone):
    def add(frame):
        days = pd.date_range(
            "2024-01-01", periods=len(frame), freq="D", tz="Europe/Berlin"
        )
        return frame.assign(when=days.tz_convert(zone))

    return add


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda f: f.convert_dtypes(), id="nullable types"),
        pytest.param(
            lambda f: f.convert_dtypes(dtype_backend="pyarrow"), id="arrow types"
        ),
        pytest.param(as_decimals, id="decimals"),
        pytest.param("row groups", id="empty row groups"),
        pytest.param(
            lambda f: f.assign(id=[f"c{i}" for i in range(len(f))]), id="many levels"
        ),
        pytest.param(lambda f: f.assign(k=7.0), id="constant"),
        pytest.param(
            lambda f: f.sample(frac=1.0, random_state=0), id="another order and index"
        ),
        pytest.param(
            lambda f: f[f.columns[::-1]].astype({"x": "float32"}), id="float32"
        ),
    ],
)
def test_the_same_numbers_in_other_types_give_the_same_answer(change, tmp_path):
    change = from_row_groups(tmp_path) if change == "row groups" else change
    found, wanted = fit(change), fit(lambda f: f)
    names = list(found.feature_names_in_)
    assert sorted(names) == ["x", "z"]
    assert_allclose(found.predict(PEOPLE[names]), wanted.predict(PEOPLE), rtol=1e-9)


def test_one_moment_in_two_time_zones_is_one_moment():
    one, two = (fit(with_times(zone)) for zone in ("Europe/Berlin", "Asia/Tokyo"))
    assert list(one.feature_names_in_) == list(two.feature_names_in_)
    people = PEOPLE.assign(when=pd.to_datetime(["2024-01-03"] * 3).tz_localize("UTC"))
    columns = list(one.feature_names_in_)
    assert_allclose(
        one.predict(people[columns]), two.predict(people[columns]), rtol=1e-9
    )


@pytest.mark.parametrize(
    "library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas]
)
def test_whole_numbers_and_dates_that_floats_only_round_are_read(library):
    """Ids beyond 2^53, and the last day of the year 9999 for never."""

    def add(frame):
        never = np.array(["9999-12-31", "2024-05-01"], dtype="datetime64[us]")
        ids = 2**53 + 1 + np.arange(len(frame))
        return library(frame.assign(id=ids, until=never[np.arange(len(frame)) % 2]))

    assert list(fit(add).feature_names_in_) == ["x", "z", "until"]


@pytest.mark.parametrize(
    "such",
    [lambda i: f"{i}%", lambda i: f"$ {i}.50", lambda i: f"{i % 28 + 1}.03.2{i:03}"],
)
def test_text_that_people_read_as_numbers_or_dates_is_told_of(such):
    def add(frame):
        return frame.assign(k=[such(i % 30) for i in range(len(frame))])

    with pytest.warns(
        ColumnWarning,
        match="'k' holds text such as .*, which is read as (numbers|dates)",
    ):
        fit(add)


@pytest.mark.parametrize("such", ["{:05}", "{}A", "555-{}", "{} to 9"])
def test_codes_of_digits_are_categories_without_a_word(such):
    def add(frame):
        return frame.assign(k=[such.format(i % 30) for i in range(len(frame))])

    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        assert "k" in fit(add).feature_names_in_


@pytest.mark.parametrize("word", ["N/A", "null", "-", "?"])
def test_words_for_no_value_are_missing_however_many(word):
    """One cell in four; left empty, the cells mean the same."""

    def with_gaps(gap):
        return lambda f: f.assign(
            x=[gap if i % 4 == 0 else str(v) for i, v in enumerate(f.x)]
        )

    with pytest.warns(
        ColumnWarning, match="column 'x' holds numbers and, in 120 of 480 rows"
    ):
        found = fit(with_gaps(word))
    assert_allclose(
        found.predict(PEOPLE), fit(with_gaps(None)).predict(PEOPLE), rtol=1e-9
    )


def lacking(frame):
    frame = frame.convert_dtypes()
    frame.iloc[3, 2] = pd.NA
    return frame


def test_what_cannot_be_used_is_named():
    cases = (
        (
            lacking,
            "row 3 of the outcome table of population 'n' .* column 'yy' is missing",
        ),
        (
            lambda f: f.assign(x=np.where(f.x == f.x[0], np.inf, f.x)),
            "features in 'x' are infinite",
        ),
        (lambda f: f.assign(x=f.x * 1e107), "in 'x' are beyond 1e"),
        (lambda f: f.assign(k=1j), "column 'k' .* holds complex values"),
        (lambda f: f.assign(k=[[1]] * len(f)), "column 'k' .* holds list values"),
        (
            lambda f: f.assign(k=pd.Series([10**400] * len(f), dtype=object)),
            "inf.* in 'k'",
        ),
        (lambda f: pd.concat([f], axis=1, keys=["part"]), "names of several parts"),
        (lambda f: f.assign(k=[b"x"] * len(f)), "column 'k' .* holds bytes values"),
        (lambda f: f.iloc[:0], "outcome"),
        (lambda f: f.drop(columns="x").drop(columns="z"), "feature"),
    )
    for change, words in cases:
        with pytest.raises(UnjoinedError, match=words):
            fit(change)


def test_populations_that_are_numbers_here_and_text_there_are_the_same_ones():
    tables = []
    for label, names in (("yy", [1, 2]), ("t", ["1", "2"])):
        own = frames(label, {"n": 0.3, "s": 0.7}).values()
        parts = [f.assign(place=name) for name, f in zip(names, own, strict=True)]
        tables.append(pd.concat(parts))
    data = SeparateLabels.from_tables(
        *tables, outcome="yy", treatment="t", population="place"
    )
    assert data.populations == ["1", "2"]


def doubled(tables):
    return {name: pd.concat([frame] * 3) for name, frame in tables.items()}


def copied(tables):
    return dict.fromkeys(tables, tables["n"])


def wild(tables):
    return {k: f.assign(w=np.where(f.index == 0, 1e9, 1.0)) for k, f in tables.items()}


@pytest.mark.filterwarnings("default::unjoined.errors.UnjoinedWarning")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            doubled,
            "outcome table of n holds each of its rows 3 times.* Give each row once",
        ),
        (
            copied,
            "outcome table of n and the outcome table of s have all rows in common",
        ),
        (
            wild,
            r"outcome table of n make its 120 rows worth 1\.0.* weights that are far too large",
        ),
    ],
)
def test_a_fit_to_tables_that_make_every_answer_wrong_says_so(change, words):
    """A fit warns, and a diagnosis finds nothing identified."""
    outcomes = frames("yy", {"n": 0.3, "s": 0.6})
    treatments = frames("t", {"n": 0.2, "s": 0.8})
    for tables in (outcomes, treatments):
        for frame in tables.values():
            frame["x"] += np.random.default_rng(0).random(
                len(frame)
            )  # so that no two are alike
    weight = {"sample_weight": "w"} if change is wild else {}
    treated = wild(treatments) if change is wild else treatments
    data = SeparateLabels.from_tables(
        change(outcomes), treated, outcome="yy", treatment="t", **weight
    )
    with pytest.warns(UnjoinedWarning, match=words):
        MinMaxUplift(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1).fit(**data)
    found = diagnose(data)
    assert found.verdict == "not identified"
    assert any(re.search(words.partition(".*")[0], f.what) for f in found.findings)


@pytest.mark.filterwarnings("default::unjoined.errors.UnjoinedWarning")
def test_two_codings_of_one_outcome_are_told_of():
    outcomes = frames("yy", {"n": 0.3, "s": 0.6})
    outcomes["s"]["yy"] += 1
    with pytest.warns(
        ColumnWarning, match="'yy' is 0 or 1 in .* 'n' and 1 or 2 in .* 's'"
    ):
        SeparateLabels.from_tables(
            outcomes, frames("t", {"n": 0.2, "s": 0.8}), outcome="yy", treatment="t"
        )


def test_an_average_effect_that_cannot_be_is_not_cut_down_to_one_that_can():
    """All respond where few are treated, and nobody where most are: an effect below -1."""
    outcomes = frames("yy", {"n": 1.0, "s": 0.02}, 400)
    treatments = frames("t", {"n": 0.4, "s": 0.6}, 400)
    data = SeparateLabels.from_tables(outcomes, treatments, outcome="yy", treatment="t")
    model = Uplift(random_state=0).fit(**data)
    low, high = model.average_effect_.interval(0.95)
    assert high < -1.0
    assert (
        f"{low:+.1f} to {high:+.1f}), which is more than the outcome allows"
        in model.summary()
    )


def test_a_new_category_is_told_by_its_name_and_not_by_its_code():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.normal(40.0, 9.0, 400), "shop": rng.choice(["a", "b"], 400)}
    )
    kind, population = (
        np.repeat(["outcome", "treatment"], 200),
        np.tile(["N", "S"], 200),
    )
    y = (rng.random(400) < np.where(population == "N", 0.8, 0.2)) * 1.0
    model = Uplift(random_state=0).fit(
        X, **separate_labels(y, kind), population=population
    )
    with pytest.warns(ColumnWarning) as told:
        model.predict(X.assign(shop="c"))
    assert any("'c' in 400 of 400 rows of 'shop'" in str(one.message) for one in told)
    assert not any("-1" in str(one.message) for one in told)


def test_a_third_argument_of_fit_is_told_what_is_expected():
    rng = np.random.default_rng(0)
    X, y, t = rng.normal(size=(50, 2)), rng.normal(size=50), rng.integers(0, 2, 50)
    for estimator in (Uplift(), MinMaxUplift()):
        with pytest.raises(
            InputError, match=r"fit\(X, y, treatment=..., population=...\)"
        ):
            estimator.fit(X, y, t)


def test_a_model_that_is_fitted_anew_in_pieces_forgets_earlier_ranges():
    """They stood in the way of other columns, and told of units that were not those of the fit."""
    model = fit(lambda f: f)
    first, second = (
        {
            name: pa.Table.from_pandas(frame.assign(w=frame.x + 1e6))
            for name, frame in each.items()
        }
        for each in (
            frames("yy", {"n": 0.3, "s": 0.6}),
            frames("t", {"n": 0.2, "s": 0.8}),
        )
    )
    source = SeparateLabels.from_tables(
        first, second, outcome="yy", treatment="t", stream=True
    )
    people = pd.concat(
        [PEOPLE.assign(w=PEOPLE.x + 1e6)] * 10
    )  # fewer say nothing of units
    anew = MinMaxUplift(**model.get_params()).fit(source).predict(people)
    assert_allclose(model.fit(source).predict(people), anew, rtol=1e-12)
