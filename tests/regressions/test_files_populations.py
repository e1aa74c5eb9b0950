"""Populations are told apart by names that people can tell apart."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unjoined import MinMaxUplift, SeparateLabels, TableSource
from unjoined.cli import main
from unjoined.data import ArraySource, DaskSource
from unjoined.errors import InputError, LabelError, TableError
from unjoined.sums import fourier_plan

FAST = MinMaxUplift(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1, random_state=0)
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
    return {name: part.drop(columns="region") for name, part in table.groupby("region", sort=False)}


def arrays(outcomes, treatments):
    both = pd.concat([outcomes.rename(columns={"y": "l"}), treatments.rename(columns={"t": "l"})])
    kind = ["outcome"] * len(outcomes) + ["treatment"] * len(treatments)
    return {
        "X": both[["x"]].to_numpy(),
        "y": both["l"].to_numpy(),
        "kind": kind,
        "population": both["region"].tolist(),
    }


def as_dask(outcomes, treatments):
    dask = pytest.importorskip("dask.dataframe")
    parts = [dask.from_pandas(table, npartitions=2) for table in (outcomes, treatments)]
    return DaskSource.from_frames(*parts, **LABELS, population="region")


def chunks(outcomes, treatments):
    """One chunk for each table, so that numpy cannot make one type of both."""
    nothing = {"y": frame("y", ["a", "b"], 0), "t": frame("t", ["a", "b"], 0)}
    parts = [arrays(outcomes, nothing["t"]), arrays(nothing["y"], treatments)]
    for part in parts:
        part["population"] = np.array(part["population"])
    return lambda: parts


WAYS = {
    "from_frames": lambda o, t: SeparateLabels.from_frames(o, t, **LABELS, population="region"),
    "from_tables": lambda o, t: SeparateLabels.from_tables(split(o), split(t), **LABELS),
    "arrays": lambda o, t: SeparateLabels(**arrays(o, t)),
    "fit": lambda o, t: FAST.fit(**arrays(o, t)),
    "source of frames": lambda o, t: FAST.fit_chunks(
        TableSource.from_frames(o, t, **LABELS, population="region", chunk_rows=50)
    ),
    "source of tables": lambda o, t: FAST.fit_chunks(
        TableSource.from_tables(split(o), split(t), **LABELS)
    ),
    "source of arrays": lambda o, t: FAST.fit_chunks(ArraySource(**arrays(o, t), chunk_rows=50)),
    "chunks": lambda o, t: FAST.fit_chunks(chunks(o, t)),
    "dask": lambda o, t: FAST.fit_chunks(as_dask(o, t)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_are_asked_about(way, one, other):
    """Neither two halves of a population, nor a merge that nobody asked for."""
    with pytest.raises(LabelError, match=r"look like the same one\. Did you mean") as error:
        WAYS[way](frame("y", [one, "south"]), frame("t", [other, "south"]))
    assert repr(one) in str(error.value)
    assert repr(other) in str(error.value)
    assert "outcome" in str(error.value)
    assert "treatment" in str(error.value)


@pytest.mark.parametrize("way", WAYS)
def test_two_whole_populations_that_look_alike_are_asked_about(way):
    with pytest.raises(LabelError, match=r"'A'.*'a'.*look like the same one"):
        WAYS[way](frame("y", ["A", "a"]), frame("t", ["A", "a"]))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("chunks", "dask")])
def test_a_number_beside_its_text_in_one_table_is_asked_about(way):
    """Dask frames and numpy arrays make one type of a column before it is seen."""
    with pytest.raises(
        LabelError, match=r"1 \(int.*'1' \(str.*look like the same one|'1' \(str.*1 \(int"
    ):
        WAYS[way](frame("y", [1, "1"]), frame("t", [1, "1"]))


def test_a_number_in_one_chunk_and_its_text_in_another_is_asked_about():
    with pytest.raises(LabelError, match="look like the same one"):
        FAST.fit_chunks(chunks(frame("y", [1, 2]), frame("t", ["1", "2"])))


@pytest.mark.parametrize(
    "names", [(["1", "2"], [1, 2]), ([1.0, 2.0], [1, 2]), ([1, 2], ["1", "2"])]
)
@pytest.mark.parametrize("way", ["from_frames", "from_tables", "source of frames", "dask"])
def test_tables_name_populations_by_text_so_that_numbers_match_their_text(way, names):
    """As a CSV file, which has no types, matches a Parquet file, which has."""
    first, second = names
    typed = (pd.Series(first).dtype, pd.Series(second).dtype)
    tables = [
        frame(label, some).assign(region=lambda f, kind=kind: f["region"].astype(kind))
        for label, some, kind in zip("yt", names, typed, strict=True)
    ]
    found = WAYS[way](*tables)
    populations = found.populations if isinstance(found, SeparateLabels) else found.populations_
    assert populations == ["1", "2"]


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_other_libraries_ask_too(convert):
    tables = convert(frame("y", ["North", "s"])), convert(frame("t", ["north", "s"]))
    for way in ("from_frames", "source of frames"):
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
def test_the_command_line_asks_about_names_that_look_alike(tmp_path, capsys, command, ending):
    outcomes = write(tmp_path, "y", ["North", "south"], ending)
    treatments = write(tmp_path, "t", ["north", "south"], "csv")
    code, printed = run(
        capsys,
        *(*command, "--outcomes", outcomes, "--treatments", treatments, "--population", "region"),
        *("--outcome", "y", "--treatment", "t"),
    )
    assert code == 2
    assert "look like the same one" in printed.err
    four = [tmp_path / f"{i}.{ending}" for i in range(4)]
    for file, path in zip(four, [outcomes, outcomes, treatments, treatments], strict=True):
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


def test_a_csv_file_and_a_parquet_file_with_numbers_for_names_are_about_the_same(tmp_path, capsys):
    outcomes, treatments = (
        write(tmp_path, "y", [1, 2], "parquet"),
        write(tmp_path, "t", [1, 2], "csv"),
    )
    code, printed = run(
        capsys,
        *("check", "--outcomes", outcomes, "--treatments", treatments, "--population", "region"),
        *("--outcome", "y", "--treatment", "t", "--json"),
    )
    assert code == 0, printed.err
    assert printed.out.count('"population": "1"') == 2


def test_a_plan_asks_too():
    with pytest.raises(LabelError, match="look like the same one"):
        fourier_plan({"x": (0, 1)}, ["North", "north"])


def test_names_that_are_no_names_are_refused():
    table = frame("y", ["a", "b"]).assign(region=[["a"]] * 160)
    with pytest.raises(
        TableError, match=r"column 'region' of the outcome table holds .* text or num"
    ):
        SeparateLabels.from_frames(table, table, outcome="y", treatment="y", population="region")
    missing = pl.DataFrame({"x": [1.0, 2.0], "y": [1, 0], "region": [1.0, float("nan")]})
    source = TableSource.from_frames(missing, None, **LABELS, population="region")
    with pytest.raises(TableError, match=r"row 1 of the outcome table.*'region' is missing"):
        list(source)


def test_numpy_words_in_objects_are_names():
    rows = arrays(frame("y", ["a", "b"]), frame("t", ["a", "b"]))
    rows["population"] = np.array([np.str_(name) for name in rows["population"]], dtype=object)
    assert SeparateLabels(**rows).populations == ["a", "b"]
    with pytest.raises(InputError, match="missing"):
        SeparateLabels(**rows | {"population": [None, *rows["population"][1:]]})
