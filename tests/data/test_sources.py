"""Sources hand out every row once, in any form they come in, and say where a bad one is."""

import gzip

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from unjoined import SeparateLabels, TableSource
from unjoined.data import ArraySource, ChunkSource, IterableSource, SqlQuery, paper_problem
from unjoined.data.sources import as_source
from unjoined.data.tables import Reading, scan_table
from unjoined.errors import InputError, LabelError, TableError

LABELS = {"outcome": "bought", "treatment": "mailed"}


@pytest.fixture(scope="module")
def tables():
    """Four pandas tables under (kind, population), a different number of rows in each."""
    rng = np.random.default_rng(0)
    found = {}
    for i, (kind, name) in enumerate(
        (kind, name) for kind in ("outcome", "treatment") for name in ("N", "S")
    ):
        n = 50 + 7 * i
        found[kind, name] = pd.DataFrame(
            {
                "age": rng.normal(size=n),
                "days": rng.integers(0, 9, n),
                LABELS[kind]: np.arange(n) % 2,
            }
        )
    return found


def four(tables, change=lambda frame, kind, name: frame):
    """Arguments of from_tables, every table passed through ``change``."""
    return [
        {name: change(tables[kind, name], kind, name) for name in ("N", "S")}
        for kind in ("outcome", "treatment")
    ]


def everything(source):
    """All rows of a source as one mapping, in the order they come."""
    chunks = list(source)
    return {
        field: np.concatenate([getattr(chunk, field) for chunk in chunks])
        for field in ("X", "label", "kind", "population", "weight")
    }


@pytest.fixture(scope="module")
def expected(tables):
    return everything(ArraySource(**SeparateLabels.from_tables(*four(tables), **LABELS)))


def assert_same_rows(found, expected):
    for field, values in expected.items():
        assert_array_equal(found[field], values, err_msg=field)


@pytest.mark.parametrize("chunk_rows", [1, 7, 10_000])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_give_the_rows_of_separate_labels(tables, expected, library, chunk_rows):
    convert = {
        "pandas": lambda frame, *_: frame,
        "polars": lambda frame, *_: pl.from_pandas(frame),
        "pyarrow": lambda frame, *_: pa.Table.from_pandas(frame),
    }[library]
    source = TableSource.from_tables(*four(tables, convert), **LABELS, chunk_rows=chunk_rows)
    assert isinstance(source, ChunkSource)
    assert source.feature_names == ["age", "days"]
    assert all(len(chunk) <= chunk_rows for chunk in source)
    assert_same_rows(everything(source), expected)
    assert_same_rows(everything(source), expected)  # a second pass yields the same


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_files_give_the_rows_of_separate_labels(tables, expected, tmp_path, ending):
    def write(frame, kind, name):
        path = tmp_path / f"{kind}_{name}.{ending}"
        frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
        return path

    source = TableSource.from_tables(
        *four(tables, write), **LABELS, chunk_rows=2048, threads=1, memory_limit="200MB"
    )
    assert_same_rows(everything(source), expected)


def test_folders_and_lists_of_files_are_one_table_in_the_order_of_names(tables, expected, tmp_path):
    def split(frame, kind, name):
        folder = tmp_path / kind / name / "deep"
        folder.mkdir(parents=True)
        parts = [folder / "a.parquet", folder / "b.csv"]
        frame[:20].to_parquet(parts[0])
        frame[20:].to_csv(parts[1], index=False)
        (folder / "readme.txt").write_text("not a table")
        return folder.parent if kind == "outcome" else parts

    source = TableSource.from_tables(*four(tables, split), **LABELS)
    assert_same_rows(everything(source), expected)
    assert [chunk.first_row for chunk in source] == [0] * 8  # counted file by file


def test_database_tables_and_queries_are_streamed(tables, expected, tmp_path):
    database = tmp_path / "campaign.duckdb"
    with duckdb.connect(database) as connection:
        for (kind, name), frame in tables.items():
            arrow = pa.Table.from_pandas(frame)
            connection.register("frame", arrow)
            connection.execute(f"CREATE TABLE {kind}_{name} AS SELECT * FROM frame")  # noqa: S608

    def query(frame, kind, name):
        sql = f"{kind}_{name}" if name == "N" else f"SELECT * FROM {kind}_{name}"  # noqa: S608
        return SqlQuery(sql, database)

    source = TableSource.from_tables(*four(tables, query), **LABELS, chunk_rows=2048)
    assert_same_rows(everything(source), expected)


def test_a_population_column_tells_the_cells_apart(tables, expected):
    def stacked(kind):
        parts = [tables[kind, name].assign(region=name, w=1.0) for name in ("N", "S")]
        return pd.concat(parts, ignore_index=True)

    source = TableSource.from_frames(
        stacked("outcome"),
        stacked("treatment"),
        **LABELS,
        population="region",
        sample_weight="w",
        features=["age", "days"],
        chunk_rows=64,
    )
    assert_same_rows(everything(source), expected)
    only = TableSource.from_frames(
        stacked("outcome"), None, **LABELS, population="region", ignore=["w"]
    )
    assert set(everything(only)["kind"]) == {"outcome"}


def test_columns_are_matched_by_name_and_booleans_are_numbers(tables, expected):
    def shuffled(frame, kind, name):
        frame = frame[[*reversed(frame.columns)]] if name == "S" else frame
        return frame.assign(**{LABELS[kind]: frame[LABELS[kind]] == 1})

    found = everything(TableSource.from_tables(*four(tables, shuffled), **LABELS))
    assert_same_rows(found, expected)


def test_functions_make_chunks_anew_and_empty_chunks_do_not_matter():
    data = paper_problem().draw(30, random_state=0)
    empty = {"X": np.empty((0, 2)), "y": [], "kind": [], "population": []}

    def chunks():
        yield from (empty, data, empty)

    source = as_source(chunks)
    assert isinstance(source, IterableSource)
    assert source.feature_names is None
    assert [len(chunk) for chunk in source] == [0, 120, 0] == [len(chunk) for chunk in source]
    assert IterableSource(lambda: iter(())).feature_names is None


def test_a_mapping_is_a_source_and_frames_keep_their_names(tables):
    data = SeparateLabels.from_tables(*four(tables), **LABELS)
    assert as_source(data).feature_names == ["age", "days"]
    assert as_source(as_source(data)) is not None
    weighted = ArraySource(data.X, data.y, data.kind, data.population, np.full(data.n_rows, 2.0))
    assert set(everything(weighted)["weight"]) == {2.0}


# Every message.


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source must be a TableSource"),
        (SqlQuery("t"), "does not say which rows carry which label"),
        (pd.DataFrame({"a": [1]}), "does not say which rows carry which label"),
    ],
)
def test_what_is_no_source_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        as_source(source)


def test_a_generator_is_refused_as_it_runs_once():
    with pytest.raises(InputError, match="gone through twice"):
        list(IterableSource(x for x in []))


def test_a_chunk_without_a_part_is_refused():
    with pytest.raises(InputError, match="chunk 0 lacks 'kind'"):
        list(IterableSource(lambda: [{"X": [[1.0]], "y": [1], "population": [0]}]))


def test_a_chunk_with_other_features_is_refused():
    data = dict(paper_problem().draw(5, random_state=0))
    with pytest.raises(TableError, match="chunk 1 has 1 features, those before it have 2"):
        list(IterableSource(lambda: [data, data | {"X": data["X"][:, :1]}]))
    frame = pd.DataFrame(data["X"], columns=["a", "b"])
    other = frame.rename(columns={"b": "c"})
    with pytest.raises(TableError, match=r"chunk 1 must have the feature columns.*Missing: 'b'"):
        list(IterableSource(lambda: [data | {"X": frame}, data | {"X": other}]))


def test_lengths_and_shapes_are_checked():
    with pytest.raises(InputError, match="kind has 1 entries but X has 2 rows"):
        list(ArraySource([[1.0], [2.0]], [1, 2], ["outcome"], ["a", "b"]))
    with pytest.raises(InputError, match=r"the arrays, rows 0 to 0.*kind must be one of"):
        list(ArraySource([[1.0]], [1], ["result"], ["a"]))
    with pytest.raises(InputError, match="chunk 0: X must be two-dimensional"):
        list(IterableSource(lambda: [{"X": [1.0], "y": [1], "kind": ["o"], "population": [1]}]))
    with pytest.raises(LabelError, match="outcomes must be numbers"):
        list(ArraySource([[1.0]], ["often"], ["outcome"], ["a"]))
    with pytest.raises(InputError, match="chunk_rows must be a whole number"):
        list(ArraySource([[1.0]], [1], ["outcome"], ["a"], chunk_rows=0))
    with pytest.raises(LabelError, match=r"target.*carry no label"):
        list(ArraySource([[1.0]], [1.0], ["target"], ["a"]))


def spoiled(tables, column, row, value):
    """The four tables, one value of one of them replaced."""

    def change(frame, kind, name):
        if (kind, name) != ("treatment", "S") or column not in frame:
            return frame
        return frame.assign(
            **{column: np.where(np.arange(len(frame)) == row, value, frame[column])}
        )

    return four(tables, change)


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("age", np.nan, TableError, r"row 61 of the treatment table of population 'S'.*features"),
        ("age", np.inf, TableError, r"row 61 of the treatment table"),
        (
            "mailed",
            np.nan,
            LabelError,
            r"row 61 of the treatment table.*column 'mailed' is missing",
        ),
    ],
)
def test_a_bad_row_is_named(tables, column, value, error, message):
    source = TableSource.from_tables(*spoiled(tables, column, 61, value), **LABELS, chunk_rows=10)
    with pytest.raises(error, match=message):
        list(source)


def test_a_bad_row_of_a_file_is_named_with_the_file(tables, tmp_path):
    frame = tables["outcome", "N"].assign(age=lambda f: f["age"].where(f.index != 41))
    frame.to_parquet(tmp_path / "late.parquet")
    source = TableSource.from_tables({"N": tmp_path}, {}, **LABELS)
    with pytest.raises(TableError, match=r"row 41 of '.*late\.parquet' \(counting from 0\)"):
        list(source)


def test_missing_columns_words_and_missing_populations_are_refused(tables):
    frame = tables["outcome", "N"]
    with pytest.raises(TableError, match="has no column 'bought'; its columns are age, days"):
        list(TableSource.from_tables({"N": frame[["age", "days"]]}, {}, **LABELS))
    with pytest.raises(TableError, match="no column is left that could be a feature"):
        list(TableSource.from_tables({"N": frame[["bought"]]}, {}, **LABELS))
    with pytest.raises(TableError, match=r"column 'bought' of the outcome table.*got 'often'"):
        list(TableSource.from_tables({"N": frame.assign(bought="often")}, {}, **LABELS))
    with pytest.raises(TableError, match="column 'age' of the outcome table"):
        list(
            TableSource.from_tables(
                {"N": frame.assign(age=["old", "new", "old", "new", "old"] * 10)}, {}, **LABELS
            )
        )
    nameless = frame.assign(region=["N"] * 3 + [None] + ["S"] * (len(frame) - 4))
    with pytest.raises(TableError, match=r"row 3 of the outcome table.*'region' is missing"):
        list(TableSource.from_frames(nameless, None, **LABELS, population="region"))
    with pytest.raises(TableError, match="no table was given"):
        _ = TableSource.from_tables({}, {}, **LABELS).feature_names


def read(table):
    return list(scan_table(table, "the table", Reading(1000)))


def test_files_that_are_not_there_or_no_tables_are_refused(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "folder").mkdir()
    for table, message in (
        (tmp_path / "none.csv", "there is no file"),
        (tmp_path / "notes.txt", "is not a table this program reads"),
        (tmp_path / "empty.csv", "is empty, without even a header"),
        (tmp_path / "folder", "holds no file ending in"),
        (SqlQuery("t", tmp_path / "none.duckdb"), "there is no database"),
        (SqlQuery("nothing_here"), "the query 'nothing_here' cannot be run"),
        ([], "must be a data frame, a file"),
        (3, "must be a data frame, a file"),
    ):
        with pytest.raises(TableError, match=message):
            read(table)


def test_a_file_that_ends_in_the_middle_is_refused(tmp_path):
    table = pa.table({"a": np.arange(5000.0), "b": np.arange(5000) % 2})
    pq.write_table(table, tmp_path / "whole.parquet")
    text = "a,b\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(60_000))
    contents = {
        "cut.parquet": (tmp_path / "whole.parquet").read_bytes()[:9000],
        "cut.csv": text[: text.rindex(",")].encode(),
        "cut.csv.gz": gzip.compress(text.encode())[:9000],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=f"{name}' cannot be read"):
            read(tmp_path / name)


def test_a_word_far_into_a_text_file_is_named_with_its_row(tmp_path):
    lines = [f"{i}.5,{i % 2}" for i in range(60_000)]
    lines[50_000] = "unknown,1"
    (tmp_path / "words.csv").write_text("a,b\n" + "\n".join(lines))
    source = TableSource.from_tables({"N": tmp_path / "words.csv"}, {}, outcome="b", treatment="t")
    with pytest.raises(TableError, match=r"words\.csv' holds.*'unknown' in 1 of.*row 50,000,"):
        list(source)
