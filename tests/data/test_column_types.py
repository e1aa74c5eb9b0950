"""Labels are numbers or words, features any plain cells; what is neither is refused by its name."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import SqlQuery
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError, TableError
from unjoined.evaluate import auuc

N = 8
BASE = {"x": np.arange(N, dtype=float), "region": ["a", "b", "b", "a"] * 2}
NAMES = {"outcome": "y", "treatment": "y", "population": "region"}
REFUSED = {
    "hex": pa.array(["0x1F"] * N),
    "text": pa.array(["1.5"] * N),
    "time": pa.array([dt.time(1, 2, 3)] * N),
    "duration": pa.array([dt.timedelta(seconds=5)] * N),
    "date": pa.array([dt.date(2024, 1, 5)] * N),
    "timestamp": pa.array([dt.datetime(2024, 1, 5)] * N),
    "category": pa.array(["p", "q"] * 4).dictionary_encode(),
    "bytes": pa.array([b"ab"] * N),
    "list": pa.array([[1.0, 2.0]] * N),
    "struct": pa.array([{"a": 1}] * N),
    "map": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
}
TAKEN = (
    "hex",
    "text",
    "time",
    "duration",
    "date",
    "timestamp",
    "category",
)  # as features
LIBRARIES = {
    "pyarrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
}


def table_of(column, role):
    """A table in which one column, of a feature or of the label, is given."""
    y = np.array([0, 1] * 4)
    return pa.table(
        {**BASE, "bad": y + 1.0, "y": y}
        | {("bad" if role == "feature" else "y"): column}
    )


@pytest.mark.parametrize("role", ["feature", "label"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_column_of_no_numbers_is_refused_by_name(kind, library, role):
    frame = LIBRARIES[library](table_of(REFUSED[kind], role))
    message = "must be numbers, but column 'y' of the outcome"
    if role == "feature":
        message = "column 'bad' of the outcome table"
        if (
            kind in TAKEN
        ):  # encoded by whoever is fitted to it; as they are they are no numbers
            data = SeparateLabels.from_tables(frame, frame, **NAMES)
            assert data.feature_names == ["x", "bad"]
            with pytest.raises(
                TableError, match="must be numbers, but column 'bad' of the outcome"
            ):
                list(
                    SeparateLabels.from_tables(
                        frame, frame, **NAMES, stream=True
                    ).chunks()
                )
            return
    elif kind in ("hex", "category"):  # words, of which some mean 0 and 1
        message = "column 'y' of the outcome table: outcomes must be numbers, or words"
    elif kind == "text":  # a number is a number, as text too
        frame = LIBRARIES[library](table_of(pa.array(["1.5", "a"] * 4), role))
        message = "outcomes must be numbers, or words .*, got 'a'"
    with pytest.raises(TableError, match=message):
        SeparateLabels.from_tables(frame, frame, **NAMES)
    with pytest.raises(TableError, match=message):
        list(SeparateLabels.from_tables(frame, frame, **NAMES, stream=True).chunks())


@pytest.mark.parametrize("kind", ["hex", "duration", "list", "struct"])
def test_a_column_of_no_numbers_in_a_file_or_partition_is_refused_by_name(
    tmp_path, kind
):
    dask = pytest.importorskip("dask.dataframe")
    table = table_of(REFUSED[kind], "feature")
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    for source in (path, [path]):
        with pytest.raises(TableError, match=r"column 'bad' of"):
            list(
                SeparateLabels.from_tables(
                    source, source, **NAMES, stream=True
                ).chunks()
            )
    parts = dask.from_pandas(table.to_pandas(), npartitions=2)
    with pytest.raises(TableError, match=r"must be numbers, but column 'bad' of"):
        list(SeparateLabels.from_tables(parts, parts, **NAMES).chunks())


def test_types_that_only_a_database_has_are_refused_by_name():
    for type_name in (
        "INTERVAL",
        "TIME",
        "UUID",
        "BLOB",
        "DATE",
        "INTEGER[]",
        "STRUCT(a INTEGER)",
    ):
        query = f"SELECT 1.0 AS x, NULL::{type_name} AS bad, 1 AS y FROM range(3)"  # noqa: S608
        source = SeparateLabels.from_tables(
            {"a": SqlQuery(query)}, {}, outcome="y", treatment="t", stream=True
        )
        with pytest.raises(
            TableError,
            match=r"must be numbers, but column 'bad' of|column 'bad' of .* holds",
        ):
            list(source.chunks())


def test_decimal_numbers_are_numbers():
    """Each is the nearest double, as if it had been written in a text file."""
    for library in LIBRARIES:
        values = [Decimal("0.10"), Decimal("-12345678901234.56")] * 4
        table = table_of(pa.array(values, pa.decimal128(20, 2)), "feature")
        frame = LIBRARIES[library](table)
        expected = [float(value) for value in values]
        data = SeparateLabels.from_tables(frame, frame, **NAMES)
        column = np.asarray(data.X["bad"])
        assert sorted(column[:N]) == sorted(expected)
        chunk = next(
            iter(
                SeparateLabels.from_tables(frame, frame, **NAMES, stream=True).chunks()
            )
        )
        assert chunk.X[:, 1].tolist() == expected
        labels = LIBRARIES[library](
            table_of(pa.array([Decimal(0), Decimal(1)] * 4), "label")
        )
        assert set(
            SeparateLabels.from_tables(labels, labels, **NAMES).checked.label
        ) == {
            0.0,
            1.0,
        }
        assert set(
            next(
                iter(
                    SeparateLabels.from_tables(
                        labels, labels, **NAMES, stream=True
                    ).chunks()
                )
            ).label
        ) == {0.0, 1.0}


def test_sums_of_a_database_are_numbers():
    query = "SELECT sum(range) AS x, sum(range / 2) AS z, 1 AS y FROM range(5)"
    source = SeparateLabels.from_tables(
        {"a": SqlQuery(query)}, {}, outcome="y", treatment="t", stream=True
    )
    assert next(iter(source.chunks())).X.tolist() == [[10.0, 5.0]]


ARRAYS = {
    "text": np.array(["a", "1"] * 4),
    "text in objects": np.array(["a", "1"] * 4, dtype=object),
    "underscores": np.array(["1_0", "1"] * 4, dtype=object),
    "bytes": np.array([b"0", b"1"] * 4),
    "durations": np.array([0, 1] * 4, dtype="m8[s]"),
    "dates": np.array([0, 1] * 4, dtype="M8[s]"),
    "complex": np.array([0, 1j] * 4),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_are_not_converted_behind_ones_back(kind):
    rows = {
        "X": np.arange(N, dtype=float)[:, None],
        **separate_labels(
            np.array([0.0, 1.0] * 4), ["outcome"] * 4 + ["treatment"] * 4
        ),
        "population": ["a", "b", "b", "a"] * 2,
    }
    bad = ARRAYS[kind]
    for changed in ({"X": bad[:, None]}, {"y": bad}, {"sample_weight": bad}):
        for make in (
            lambda data: SeparateLabels(**data),
            lambda data: list(SeparateLabels(**data, stream=True).chunks()),
            lambda data: MinMaxUplift(basis="linear").fit(**data),
        ):
            with pytest.raises(InputError, match=r"must be (real )?numbers"):
                make(rows | changed)
    with pytest.raises(InputError, match=r"must be (real )?numbers"):
        auuc(bad, np.arange(N, dtype=float))


def test_frames_predict_by_the_same_rule():
    frame = pd.DataFrame({"x": np.arange(N, dtype=float), "z": [0.5, 1.5] * 4})
    rows = separate_labels([0, 1] * 4, ["outcome"] * 4 + ["treatment"] * 4)
    with pytest.warns(UserWarning, match="policies"):
        model = MinMaxUplift(
            basis="linear", center=False, ridge_f=0.1, ridge_g=0.1
        ).fit(frame, **rows, population=[1, 2, 2, 1] * 2)
    decimals = frame.assign(z=[Decimal("0.5"), Decimal("1.5")] * 4)
    np.testing.assert_array_equal(model.predict(decimals), model.predict(frame))
    with pytest.raises(TableError, match="column 'z' of X"):
        model.predict(frame.assign(z=[[1.0]] * N))
