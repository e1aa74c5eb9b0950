"""Populations are told apart by names that people can tell apart."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from unjoined import (
    MinMaxUplift,
    SeparateLabels,
    identification_strength,
    load_model,
    save_model,
)
from unjoined.cli.entry import main
from unjoined.data import CellKFold, unjoin
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError, LabelError, TableError
from unjoined.federated import fourier_plan

pytestmark = pytest.mark.usefixtures("two_folds")

FAST = MinMaxUplift(
    basis="linear", center=False, ridge_f=0.1, ridge_g=0.1, random_state=0
)
LABELS = {"outcome": "y", "treatment": "t"}
ALIKE = [
    ("North", "north"),
    (" north", "north"),
    ("north\u00a0east", "north  east"),
    ("1.0", "1"),
    ("01", "1"),
    ("e\u0301st", "\u00e9st"),
]


def frame(label, names, n=160):
    """A table of one kind, with rows of both populations in the column region."""
    at = np.arange(n)
    names = np.array(names, dtype=object)[at % 2]
    share = np.where(at % 2, 0.8, 0.2)
    wave = np.random.default_rng(len(label)).random(n) < share
    return pd.DataFrame({"x": np.sin(at), label: wave.astype(int), "region": names})


def split(table):
    return {
        name: part.drop(columns="region")
        for name, part in table.groupby("region", sort=False)
    }


def arrays(outcomes, treatments):
    both = pd.concat(
        [outcomes.rename(columns={"y": "l"}), treatments.rename(columns={"t": "l"})]
    )
    kind = ["outcome"] * len(outcomes) + ["treatment"] * len(treatments)
    return {
        "X": both[["x"]].to_numpy(),
        **separate_labels(both["l"].to_numpy(), kind),
        "population": both["region"].tolist(),
    }


def as_dask(outcomes, treatments):
    dask = pytest.importorskip("dask.dataframe")
    parts = [dask.from_pandas(table, npartitions=2) for table in (outcomes, treatments)]
    return SeparateLabels.from_tables(*parts, **LABELS, population="region")


def chunks(outcomes, treatments):
    """One chunk for each table, so that numpy cannot make one type of both."""
    nothing = {"y": frame("y", ["a", "b"], 0), "t": frame("t", ["a", "b"], 0)}
    parts = [arrays(outcomes, nothing["t"]), arrays(nothing["y"], treatments)]
    for part in parts:
        part["population"] = np.array(part["population"])
    return SeparateLabels.from_chunks(lambda: parts)


WAYS = {
    "two tables": lambda o, t: SeparateLabels.from_tables(
        o, t, **LABELS, population="region"
    ),
    "four tables": lambda o, t: SeparateLabels.from_tables(
        split(o), split(t), **LABELS
    ),
    "arrays": lambda o, t: SeparateLabels(**arrays(o, t)),
    "fit": lambda o, t: FAST.fit(**arrays(o, t)),
    "two tables in pieces": lambda o, t: FAST.fit(
        SeparateLabels.from_tables(o, t, **LABELS, population="region", stream=50)
    ),
    "four tables in pieces": lambda o, t: FAST.fit(
        SeparateLabels.from_tables(split(o), split(t), **LABELS, stream=True)
    ),
    "arrays in pieces": lambda o, t: FAST.fit(
        SeparateLabels(**arrays(o, t), stream=50)
    ),
    "chunks": lambda o, t: FAST.fit(chunks(o, t)),
    "dask": lambda o, t: FAST.fit(as_dask(o, t)),
}


@pytest.mark.parametrize("way", WAYS)
def test_names_that_look_alike_are_asked_about(way):
    """Neither two halves of a population, nor a merge that nobody asked for."""
    for one, other in ALIKE:
        with pytest.raises(
            LabelError, match=r"look like the same one\. Did you mean"
        ) as error:
            WAYS[way](frame("y", [one, "south"]), frame("t", [other, "south"]))
        for words in (repr(one), repr(other), "outcome", "treatment"):
            assert words in str(error.value)


def test_two_whole_populations_that_look_alike_are_asked_about():
    for way in WAYS:
        with pytest.raises(LabelError, match=r"'A'.*'a'.*look like the same one"):
            WAYS[way](frame("y", ["A", "a"]), frame("t", ["A", "a"]))


def test_a_number_beside_its_text_in_one_table_is_asked_about():
    """Dask frames and numpy arrays make one type of a column before it is seen."""
    for way in [way for way in WAYS if way not in ("chunks", "dask")]:
        with pytest.raises(
            LabelError,
            match=r"1 \(int.*'1' \(str.*look like the same one|'1' \(str.*1 \(int",
        ):
            WAYS[way](frame("y", [1, "1"]), frame("t", [1, "1"]))


def test_a_number_in_one_chunk_and_its_text_in_another_is_asked_about():
    with pytest.raises(LabelError, match="look like the same one"):
        FAST.fit(chunks(frame("y", [1, 2]), frame("t", ["1", "2"])))


@pytest.mark.parametrize(
    "names", [(["1", "2"], [1, 2]), ([1.0, 2.0], [1, 2]), ([1, 2], ["1", "2"])]
)
@pytest.mark.parametrize(
    "way", ["two tables", "four tables", "two tables in pieces", "dask"]
)
def test_tables_name_populations_by_text_so_that_numbers_match_their_text(way, names):
    """As a CSV file, which has no types, matches a Parquet file, which has."""
    first, second = names
    typed = (pd.Series(first).dtype, pd.Series(second).dtype)
    tables = [
        frame(label, some).assign(region=lambda f, kind=kind: f["region"].astype(kind))
        for label, some, kind in zip("yt", names, typed, strict=True)
    ]
    found = WAYS[way](*tables)
    populations = (
        found.populations if isinstance(found, SeparateLabels) else found.populations_
    )
    assert populations == ["1", "2"]


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_other_libraries_ask_too(convert):
    tables = convert(frame("y", ["North", "s"])), convert(frame("t", ["north", "s"]))
    for way in ("two tables", "two tables in pieces"):
        with pytest.raises(LabelError, match="look like the same one"):
            WAYS[way](*tables)


def write(folder, label, names, ending):
    path = folder / f"{label}.{ending}"
    table = frame(label, names)
    table.to_csv(path, index=False) if ending == "csv" else pq.write_table(
        pa.Table.from_pandas(table.assign(region=table["region"].tolist())), path
    )
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code or 0, capsys.readouterr()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("command", [["check"], ["fit", "--chunks"]])
def test_the_command_line_asks_about_names_that_look_alike(
    tmp_path, capsys, command, ending
):
    outcomes = write(tmp_path, "y", ["North", "south"], ending)
    treatments = write(tmp_path, "t", ["north", "south"], "csv")
    code, printed = run(
        capsys,
        *(
            *command,
            "--outcomes",
            outcomes,
            "--treatments",
            treatments,
            "--population",
            "region",
        ),
        *("--outcome", "y", "--treatment", "t"),
    )
    assert code == 2
    assert "look like the same one" in printed.err
    four = [tmp_path / f"{i}.{ending}" for i in range(4)]
    for file, path in zip(
        four, [outcomes, outcomes, treatments, treatments], strict=True
    ):
        part = frame(path.stem, ["a", "b"]).drop(columns="region")
        part.to_csv(file, index=False) if ending == "csv" else part.to_parquet(file)
    code, printed = run(
        capsys,
        *(*command, "--outcomes", f"north={four[0]}", "--outcomes", f"North={four[1]}"),
        *("--treatments", f"north={four[2]}", "--treatments", f"North={four[3]}"),
        *("--outcome", "y", "--treatment", "t"),
    )
    assert code == 2
    assert "look like the same one" in printed.err


def test_a_csv_file_and_a_parquet_file_with_numbers_for_names_are_about_the_same(
    tmp_path, capsys
):
    outcomes, treatments = (
        write(tmp_path, "y", [1, 2], "parquet"),
        write(tmp_path, "t", [1, 2], "csv"),
    )
    code, printed = run(
        capsys,
        *(
            "check",
            "--outcomes",
            outcomes,
            "--treatments",
            treatments,
            "--population",
            "region",
        ),
        *("--outcome", "y", "--treatment", "t", "--json"),
    )
    assert code == 3, printed.err  # red, as both populations treat alike
    assert printed.out.count('"population": "1"') == 2


def test_a_plan_asks_too():
    with pytest.raises(LabelError, match="look like the same one"):
        fourier_plan({"x": (0, 1)}, ["North", "north"])


def test_names_that_are_no_names_are_refused():
    table = frame("y", ["a", "b"]).assign(region=[["a"]] * 160)
    with pytest.raises(
        TableError, match=r"column 'region' of the outcome table holds .* text or num"
    ):
        SeparateLabels.from_tables(
            table, table, outcome="y", treatment="y", population="region"
        )
    missing = pl.DataFrame(
        {"x": [1.0, 2.0], "y": [1, 0], "region": [1.0, float("nan")]}
    )
    source = SeparateLabels.from_tables(
        missing, None, **LABELS, population="region", stream=True
    )
    with pytest.raises(
        TableError, match=r"row 1 of the outcome table.*'region' is missing"
    ):
        list(source.chunks())


def test_numpy_words_in_objects_are_names():
    rows = arrays(frame("y", ["a", "b"]), frame("t", ["a", "b"]))
    rows["population"] = np.array(
        [np.str_(name) for name in rows["population"]], dtype=object
    )
    assert SeparateLabels(**rows).populations == ["a", "b"]
    with pytest.raises(InputError, match="missing"):
        SeparateLabels(**rows | {"population": [None, *rows["population"][1:]]})


DAYS = ["2020-01-01", "2020-02-01"]


TIMES = [day + " 00:00:00" for day in DAYS]


def column(names):
    """Both names as a column of objects, of a data that has four cells."""
    objects = np.empty(len(names), dtype=object)
    objects[:] = names
    return objects[np.resize([0, 1], 160)]


def rows(names):
    rng = np.random.default_rng(0)
    kind = np.repeat(["outcome", "treatment"], 80)
    first = np.resize([True, False], 160)
    treated = rng.random(160) < np.where(first, 0.9, 0.1)
    y = np.where(kind == "outcome", rng.standard_normal(160), treated)
    return {
        "X": rng.standard_normal((160, 1)),
        **separate_labels(y, kind),
        "population": names,
    }


NAMES = {
    "integers": (column([2, 7]), [2, 7]),
    "floats": (column([0.5, 1.5]), [0.5, 1.5]),
    "booleans": (column([True, False]), [False, True]),
    "numpy numbers": (column([np.int64(2), np.int64(7)]).tolist(), [2, 7]),
    "numpy floats": (column([np.float64(2), np.float64(7)]).tolist(), [2.0, 7.0]),
    "dates": (column([dt.date(2020, 1, 1), dt.date(2020, 2, 1)]), DAYS),
    "numpy days": (column([np.datetime64(day) for day in DAYS]), DAYS),
    "an array of days": (column(DAYS).astype("datetime64[D]"), DAYS),
    "an array of nanoseconds": (column(DAYS).astype("datetime64[ns]"), TIMES),
    "an array of microseconds": (column(DAYS).astype("datetime64[us]"), TIMES),
    "a pandas column": (pd.Series(pd.to_datetime(column(DAYS))), TIMES),
    "timestamps": (column([pd.Timestamp(day) for day in DAYS]), TIMES),
    "long words": (
        column(["x" * 3000 + "a", "x" * 3000 + "b"]),
        ["x" * 3000 + c for c in "ab"],
    ),
    "words and numbers": (column([1, "b"]), ["1", "b"]),
}


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("case", NAMES)
def test_populations_may_have_any_names(case, tmp_path):
    names, expected = NAMES[case]
    data = SeparateLabels(**rows(names))
    assert data.populations == expected
    assert identification_strength(**rows(names)).populations == tuple(expected)
    assert [len(test) for _, test in CellKFold(4).split(**rows(names))] == [40] * 4
    for name in expected:
        assert len(data.rows("outcome", name)) == 40
    for name in (names[0], np.asarray(names)[1]):
        assert len(data.rows("treatment", name)) == 40
    model = clone(FAST).fit(**rows(names))
    assert model.populations_ == expected
    assert load_model(save_model(model, tmp_path / "m.skops")).populations_ == expected
    in_chunks = clone(FAST).fit(SeparateLabels(**rows(names), stream=True))
    assert in_chunks.populations_ == expected


AMBIGUOUS = r"1 \(int.*\) and '1' \(str.*\) look like the same one"


def test_names_that_read_alike_are_not_taken_for_one_population():
    for pair in (
        (1, "1"),
        (1.5, "1.5"),
        (True, "True"),
        (dt.date(2020, 1, 1), DAYS[0]),
    ):
        names = column([*pair, "b"])
        with pytest.raises(LabelError, match="look like the same one"):
            SeparateLabels(**rows(names))
        with pytest.raises(LabelError, match="look like the same one"):
            identification_strength(**rows(names))


def tables(names):
    outcomes = {name: pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}) for name in names}
    treatments = {name: pd.DataFrame({"a": [1.0, 2.0], "t": [0, 1]}) for name in names}
    return (outcomes, treatments), {"outcome": "y", "treatment": "t"}


def test_tables_of_names_that_read_alike_are_not_put_together():
    given, labels = tables([1, "1", "b"])
    with pytest.raises(LabelError, match=AMBIGUOUS):
        SeparateLabels.from_tables(*given, **labels)
    with pytest.raises(LabelError, match=AMBIGUOUS):
        SeparateLabels.from_tables(*given, **labels, stream=True)
    with pytest.raises(LabelError, match=AMBIGUOUS):
        unjoin(
            np.ones((8, 1)),
            [0, 1] * 4,
            [0, 1] * 4,
            policies={1: 0.5, "1": 0.4, "b": 0.6},
        )


def test_no_rows_are_lost_where_a_column_has_names_that_read_alike():
    names = column([1, "1", "b"])[:8]
    outcomes = pd.DataFrame({"a": 1.0, "y": [0, 1] * 4, "p": names})
    treatments = pd.DataFrame({"a": 1.0, "t": [0, 1] * 4, "p": names})
    with pytest.raises(LabelError, match=AMBIGUOUS):
        SeparateLabels.from_tables(
            outcomes, treatments, outcome="y", treatment="t", population="p"
        )


def test_a_table_needs_a_name_for_its_population():
    for missing in (None, float("nan"), pd.NA, pd.NaT):
        given, labels = tables(["a", missing])
        with pytest.raises(LabelError, match="a population is missing its name"):
            SeparateLabels.from_tables(*given, **labels)
        with pytest.raises(LabelError, match="a population is missing its name"):
            SeparateLabels.from_tables(*given, **labels, stream=True)
        with pytest.raises(LabelError, match="a population is missing its name"):
            unjoin(
                np.ones((8, 1)),
                [0, 1] * 4,
                [0, 1] * 4,
                policies={"a": 0.5, missing: 0.4},
            )


def test_names_that_are_no_single_values_are_refused():
    for names in ([(1, 2), (1, 3)], [(1,), (1, 3)], [[1], [2]], [{1}, {2}]):
        with pytest.raises(
            LabelError, match="population must hold text, numbers or dates"
        ):
            SeparateLabels(**rows(column(names)))


def test_a_column_of_lists_does_not_name_populations():
    pl, names = pytest.importorskip("polars"), [[1, 2], [1]]
    outcomes = pl.DataFrame({"a": [1.0, 2.0], "y": [0, 1], "p": names})
    treatments = pl.DataFrame({"a": [1.0, 2.0], "t": [0, 1], "p": names})
    with pytest.raises(TableError, match=r"column 'p' of the outcome table holds list"):
        SeparateLabels.from_tables(
            outcomes, treatments, outcome="y", treatment="t", population="p"
        )


def test_rows_of_an_unknown_population_are_not_just_none():
    data = SeparateLabels(**rows(column(["a", "b"])))
    with pytest.raises(LabelError, match=r"no population 'c'; there are 'a', 'b'"):
        data.rows("outcome", "c")


def test_rows_are_found_by_the_name_a_table_was_given():
    given, labels = tables([1, 2])
    data = SeparateLabels.from_tables(*given, **labels)
    assert (
        data.rows("outcome", 1).tolist() == data.rows("outcome", "1").tolist() == [0, 1]
    )


def test_long_names_are_shortened_in_messages():
    three = np.resize(["x" * 3000 + letter for letter in "abc"], 160)
    with pytest.raises(LabelError, match="there is no population") as caught:
        SeparateLabels(**rows(three)).rows("outcome", "d")
    assert len(str(caught.value)) < 600


def test_a_file_without_a_population_says_so():
    given, labels = tables([])
    with pytest.raises(TableError, match="no table was given"):
        SeparateLabels.from_tables(*given, **labels)
