"""A query reads rows; it writes, attaches and changes nothing."""

import duckdb
import pandas as pd
import pytest

from unjoined import SeparateLabels
from unjoined.data import SqlQuery
from unjoined.errors import TableError

ROWS = "SELECT 1.0 AS x, 1 AS y"


def features(query, database=None):
    table = {"A": SqlQuery(query, database)}
    source = SeparateLabels.from_tables(
        table, {}, outcome="y", treatment="t", features=["x"], stream=True
    )
    return [row for chunk in source.chunks() for row in chunk.X[:, 0].tolist()]


@pytest.fixture
def database(here, tmp_path):
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.execute(f"CREATE TABLE t AS {ROWS}")
    return tmp_path / "shop.duckdb"


@pytest.mark.parametrize(
    "query",
    [
        f"COPY ({ROWS}) TO 'out.csv'",
        f"WITH c AS (COPY ({ROWS}) TO 'out.csv') FROM c",
        "ATTACH 'other.duckdb'",
        f"ATTACH 'other.duckdb'; {ROWS}",
        f"{ROWS}; COPY ({ROWS}) TO 'out.csv'",
        "t;COPY(FROM(t))TO'out.csv'",
        f"CREATE TABLE more AS {ROWS}",
        "INSERT INTO t VALUES (2.0, 2)",
        "WITH c AS (INSERT INTO t VALUES (2.0, 2) RETURNING *) SELECT * FROM c",
        "DELETE FROM t",
        "SET memory_limit = '1GB'",
        "PRAGMA memory_limit = '1GB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE 'out'",
        "EXPLAIN ANALYZE SELECT 1",
        "CALL enable_logging(storage = 'file', storage_path = 'logs')",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = 'logs')",
        "",
    ],
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_query_that_does_more_than_read_is_refused(
    tmp_path, database, query, is_stored
):
    before = database.read_bytes()
    with pytest.raises(TableError) as error:
        features(query, database if is_stored else None)
    assert "the outcome table of population 'A'" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.duckdb"]
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    "query", ["COPY (SELECT 1) TO 'out.csv'", "SET threads = 1", "SELECT 1; SELECT 2"]
)
def test_the_message_says_what_a_query_may_be(database, query):
    with pytest.raises(
        TableError, match="must be one SELECT that only reads, or the name of a table"
    ):
        features(query)


def test_what_reads_still_reads(tmp_path, database):
    pd.DataFrame({"x": [3.0], "y": [0]}).to_parquet(tmp_path / "t.parquet")
    with_comment = "SELECT * FROM t ORDER BY x -- by x"
    for query in (
        "t",
        "FROM t;",
        with_comment,
        "WITH c AS (SELECT * FROM t) SELECT * FROM c",
    ):
        assert features(query, database) == [1.0]
    for query in (
        "SELECT * FROM 't.parquet'",
        "'t.parquet'",
        "FROM (VALUES (3.0, 0)) AS t(x, y)",
    ):
        assert features(query) == [3.0]


def test_the_order_of_a_query_is_kept():
    rows = "SELECT range::DOUBLE AS x, 1 AS y FROM range(3000) ORDER BY x DESC"
    assert features(rows) == [float(i) for i in reversed(range(3000))]


def test_a_query_does_not_read_variables_of_the_program():
    piece = pd.DataFrame({"x": [1.0], "y": [1]})  # noqa: F841 - a name that must not be found
    with pytest.raises(TableError, match="piece"):
        features("piece")


def test_a_query_of_a_database_reads_that_database_alone(tmp_path, database):
    pd.DataFrame({"x": [3.0], "y": [0]}).to_parquet(tmp_path / "t.parquet")
    for query in (
        "SELECT * FROM 't.parquet'",
        "SELECT 1.0 AS x, size AS y FROM read_text('*')",
    ):
        with pytest.raises(TableError, match="disabled by configuration"):
            features(query, database)


def test_what_memory_does_not_hold_is_not_left_beside_the_users_files(
    tmp_path, database
):
    rows = "SELECT range::DOUBLE AS x, range % 2 AS y FROM range(3000000) ORDER BY hash(range)"
    source = SeparateLabels.from_tables(
        {"A": SqlQuery(rows, database)},
        {},
        outcome="y",
        treatment="t",
        features=["x"],
        stream=True,
    )
    assert sum(len(chunk.X) for chunk in source.chunks()) == 3_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["shop.duckdb"]
