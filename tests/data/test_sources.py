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

from unjoined import SeparateLabels
from unjoined.data import SqlQuery, paper_problem
from unjoined.data.rows import separate_labels
from unjoined.data.tables import scan_table
from unjoined.errors import InputError, LabelError, TableError

pytestmark = pytest.mark.usefixtures("two_folds")

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


def everything(data):
    """All rows as one mapping, in the order they come."""
    chunks = list(data.chunks())
    return {
        field: np.concatenate([getattr(chunk, field) for chunk in chunks])
        for field in ("X", "label", "kind", "population", "weight")
    }


@pytest.fixture(scope="module")
def expected(tables):
    return everything(
        SeparateLabels(
            **SeparateLabels.from_tables(*four(tables), **LABELS), stream=True
        )
    )


def assert_same_rows(found, expected):
    for field, values in expected.items():
        assert_array_equal(found[field], values, err_msg=field)


@pytest.mark.parametrize(
    ("library", "chunk_rows"),
    [("polars", 1), ("pandas", 7), ("pyarrow", 13), ("pandas", 10_000)],
)
def test_frames_give_the_rows_of_separate_labels(tables, expected, library, chunk_rows):
    convert = {
        "pandas": lambda frame, *_: frame,
        "polars": lambda frame, *_: pl.from_pandas(frame),
        "pyarrow": lambda frame, *_: pa.Table.from_pandas(frame),
    }[library]
    source = SeparateLabels.from_tables(
        *four(tables, convert), **LABELS, stream=chunk_rows
    )
    assert source.is_streamed
    assert source.feature_names == ["age", "days"]
    assert all(len(chunk) <= chunk_rows for chunk in source.chunks())
    assert_same_rows(everything(source), expected)
    assert_same_rows(everything(source), expected)  # a second pass yields the same


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_files_give_the_rows_of_separate_labels(tables, expected, tmp_path, ending):
    def write(frame, kind, name):
        path = tmp_path / f"{kind}_{name}.{ending}"
        frame.to_parquet(path) if ending == "parquet" else frame.to_csv(
            path, index=False
        )
        return path

    source = SeparateLabels.from_tables(*four(tables, write), **LABELS, stream=2048)
    assert_same_rows(everything(source), expected)


def test_folders_and_lists_of_files_are_one_table_in_the_order_of_names(
    tables, expected, tmp_path
):
    def split(frame, kind, name):
        folder = tmp_path / kind / name / "deep"
        folder.mkdir(parents=True)
        parts = [folder / "a.parquet", folder / "b.csv"]
        frame[:20].to_parquet(parts[0])
        frame[20:].to_csv(parts[1], index=False)
        (folder / "readme.txt").write_text("not a table")
        return folder.parent if kind == "outcome" else parts

    source = SeparateLabels.from_tables(*four(tables, split), **LABELS, stream=True)
    assert_same_rows(everything(source), expected)
    assert [chunk.first_row for chunk in source.chunks()] == [
        0
    ] * 8  # counted file by file


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

    source = SeparateLabels.from_tables(*four(tables, query), **LABELS, stream=2048)
    assert_same_rows(everything(source), expected)


def test_a_population_column_tells_the_cells_apart(tables, expected):
    def stacked(kind):
        parts = [tables[kind, name].assign(region=name, w=1.0) for name in ("N", "S")]
        return pd.concat(parts, ignore_index=True)

    source = SeparateLabels.from_tables(
        stacked("outcome"),
        stacked("treatment"),
        **LABELS,
        population="region",
        sample_weight="w",
        features=["age", "days"],
        stream=64,
    )
    assert_same_rows(everything(source), expected)
    only = SeparateLabels.from_tables(
        stacked("outcome"),
        None,
        **LABELS,
        population="region",
        ignore=["w"],
        stream=True,
    )
    assert set(everything(only)["kind"]) == {"outcome"}


def test_columns_are_matched_by_name_and_booleans_are_numbers(tables, expected):
    def shuffled(frame, kind, name):
        frame = frame[[*reversed(frame.columns)]] if name == "S" else frame
        return frame.assign(**{LABELS[kind]: frame[LABELS[kind]] == 1})

    found = everything(
        SeparateLabels.from_tables(*four(tables, shuffled), **LABELS, stream=True)
    )
    assert_same_rows(found, expected)


def test_functions_make_chunks_anew_and_empty_chunks_do_not_matter():
    data = paper_problem().draw(30, random_state=0)
    empty = {"X": np.empty((0, 2)), **separate_labels([], []), "population": []}

    def chunks():
        yield from (empty, data, empty)

    source = SeparateLabels.from_chunks(chunks)
    assert source.is_streamed
    assert source.feature_names is None
    for _ in range(2):
        assert [len(chunk) for chunk in source.chunks()] == [0, 120, 0]
    assert SeparateLabels.from_chunks(lambda: iter(())).feature_names is None


def test_rows_in_memory_are_handed_out_in_pieces_and_frames_keep_their_names(
    tables, expected
):
    data = SeparateLabels.from_tables(*four(tables), **LABELS)
    assert not data.is_streamed
    assert data.chunks().feature_names == ["age", "days"]
    assert_same_rows(everything(data), expected)
    weighted = SeparateLabels(
        **data, sample_weight=np.full(data.n_rows, 2.0), stream=True
    )
    assert set(everything(weighted)["weight"]) == {2.0}


def test_folders_and_lists_are_streamed_and_single_files_that_fit_are_not(
    tables, tmp_path, limits
):
    def write(frame, kind, name):
        frame.to_csv(tmp_path / f"{kind}_{name}.csv", index=False)
        return tmp_path / f"{kind}_{name}.csv"

    files = four(tables, write)
    assert not SeparateLabels.from_tables(*files, **LABELS).is_streamed
    lists = [{name: [file] for name, file in of.items()} for of in files]
    assert SeparateLabels.from_tables(*lists, **LABELS).is_streamed
    folders = [dict.fromkeys(of, tmp_path) for of in files]
    assert SeparateLabels.from_tables(*folders, **LABELS).is_streamed
    limits("data.labels", fits_in_memory=lambda files: False)
    assert SeparateLabels.from_tables(*files, **LABELS).is_streamed
    assert not SeparateLabels.from_tables(*files, **LABELS, stream=False).is_streamed
    assert not SeparateLabels.from_tables(*four(tables), **LABELS).is_streamed


# Every message.


def test_a_generator_is_refused_as_it_runs_once():
    with pytest.raises(
        InputError, match=r"from_chunks needs a function .* got generator\."
    ):
        list(SeparateLabels.from_chunks(x for x in []))


def test_a_chunk_without_a_part_is_refused():
    chunk = {"X": [[1.0]], "y": [1], "population": [0]}
    for missing in ("X", "population"):
        part = {name: column for name, column in chunk.items() if name != missing}
        with pytest.raises(
            InputError, match=f"chunk 0 lacks {missing!r}: a chunk is a mapping"
        ):
            list(SeparateLabels.from_chunks(lambda part=part: [part]).chunks())
    assert len(next(iter(SeparateLabels.from_chunks(lambda: [chunk]).chunks()))) == 1


def test_a_chunk_with_other_features_is_refused():
    data = dict(paper_problem().draw(5, random_state=0))
    with pytest.raises(
        TableError, match="chunk 1 has 1 features, those before it have 2"
    ):
        list(
            SeparateLabels.from_chunks(
                lambda: [data, data | {"X": data["X"][:, :1]}]
            ).chunks()
        )
    frame = pd.DataFrame(data["X"], columns=["a", "b"])
    other = frame.rename(columns={"b": "c"})
    with pytest.raises(
        TableError, match=r"chunk 1 must have the feature columns.*Missing: 'b'"
    ):
        list(
            SeparateLabels.from_chunks(
                lambda: [data | {"X": frame}, data | {"X": other}]
            ).chunks()
        )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"treatment": [np.nan]}, "treatment has 1 entries but X has 2 rows"),
        (
            {"treatment": [1, 0]},
            "the arrays, rows 0 to 1: some of them have both labels, or a known policy",
        ),
        (
            {"y": [1, np.nan]},
            r"rows 0 to 1: 1 of 2 rows have a population but neither .*row 1: b",
        ),
        (
            {"population": ["a", None]},
            "rows 0 to 1: population is missing in 1 of 2 rows",
        ),
        (
            {"y": ["often", "no"]},
            "rows 0 to 1: outcomes must be numbers, or words .* got 'often'",
        ),
        ({"X": [1.0, 2.0]}, "X must be two-dimensional"),
    ],
)
def test_lengths_shapes_and_labels_of_pieces_are_checked(changed, message):
    rows = {"X": [[1.0], [2.0]], "y": [1, 2], "population": ["a", "b"]}
    with pytest.raises(InputError, match=message):
        list(SeparateLabels(**rows | changed, stream=True).chunks())
    with pytest.raises(InputError, match=message.replace("the arrays", "chunk 0")):
        list(SeparateLabels.from_chunks(lambda: [rows | changed]).chunks())


def spoiled(tables, column, row, value):
    """The four tables, one value of one of them replaced."""

    def change(frame, kind, name):
        if (kind, name) != ("treatment", "S") or column not in frame:
            return frame
        return frame.assign(
            **{column: np.where(np.arange(len(frame)) == row, value, frame[column])}
        )

    return four(tables, change)


def test_a_bad_row_is_named(tables):
    cases = (
        (
            "age",
            np.nan,
            TableError,
            r"row 61 of the treatment table of population 'S'.*features",
        ),
        ("age", np.inf, TableError, r"row 61 of the treatment table"),
        (
            "mailed",
            np.nan,
            LabelError,
            r"row 61 of the treatment table.*column 'mailed' is missing",
        ),
    )
    for column, value, error, message in cases:
        source = SeparateLabels.from_tables(
            *spoiled(tables, column, 61, value), **LABELS, stream=10
        )
        with pytest.raises(error, match=message):
            list(source.chunks())


def test_a_bad_row_of_a_file_is_named_with_the_file(tables, tmp_path):
    frame = tables["outcome", "N"].assign(age=lambda f: f["age"].where(f.index != 41))
    frame.to_parquet(tmp_path / "late.parquet")
    source = SeparateLabels.from_tables({"N": tmp_path}, {}, **LABELS, stream=True)
    with pytest.raises(
        TableError, match=r"row 41 of '.*late\.parquet' \(counting from 0\)"
    ):
        list(source.chunks())


def test_missing_columns_words_and_missing_populations_are_refused(tables):
    frame = tables["outcome", "N"]
    with pytest.raises(
        TableError, match="has no column 'bought'; its columns are age, days"
    ):
        list(
            SeparateLabels.from_tables(
                {"N": frame[["age", "days"]]}, {}, **LABELS, stream=True
            ).chunks()
        )
    with pytest.raises(TableError, match="no column is left that could be a feature"):
        list(
            SeparateLabels.from_tables(
                {"N": frame[["bought"]]}, {}, **LABELS, stream=True
            ).chunks()
        )
    with pytest.raises(
        TableError, match=r"column 'bought' of the outcome table.*got 'often'"
    ):
        list(
            SeparateLabels.from_tables(
                {"N": frame.assign(bought="often")}, {}, **LABELS, stream=True
            ).chunks()
        )
    with pytest.raises(TableError, match="column 'age' of the outcome table"):
        list(
            SeparateLabels.from_tables(
                {"N": frame.assign(age=["old", "new", "old", "new", "old"] * 10)},
                {},
                **LABELS,
                stream=True,
            ).chunks()
        )
    nameless = frame.assign(region=["N"] * 3 + [None] + ["S"] * (len(frame) - 4))
    with pytest.raises(
        TableError, match=r"row 3 of the outcome table.*'region' is missing"
    ):
        list(
            SeparateLabels.from_tables(
                nameless, None, **LABELS, population="region", stream=True
            ).chunks()
        )
    with pytest.raises(TableError, match="no table was given"):
        _ = SeparateLabels.from_tables({}, {}, **LABELS, stream=True).feature_names


def read(table):
    return list(scan_table(table, "the table", 1000))


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
    lines = [f"{i}.5,{i % 2}" for i in range(26_000)]
    lines[25_000] = "unknown,1"  # behind the 20,480 rows by which types are told
    (tmp_path / "words.csv").write_text("a,b\n" + "\n".join(lines))
    source = SeparateLabels.from_tables(
        {"N": tmp_path / "words.csv"}, {}, outcome="b", treatment="t", stream=True
    )
    with pytest.raises(
        TableError, match=r"words\.csv' holds.*'unknown' in 1 of.*row 25,000,"
    ):
        list(source.chunks())
