"""Sums and counts that an engine makes where rows are equal those of the rows, to rounding."""

import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlglot
from numpy.testing import assert_allclose

from unjoined import MinMaxUplift, SeparateLabels, Uplift, load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import SqlQuery, campaign_problem
from unjoined.errors import InputError, LabelError, TableError
from unjoined.federated import aggregate_rows, fourier_plan, read_sums
from unjoined.warehouse import DIALECTS, counts_query, sums_from_results, sums_query

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
NAMES = ["north", "south"]
KINDS = {"outcome": "bought", "treatment": "mailed"}
FEATURES = {
    "age": (49.0, 18.0),
    "days_since_order": (59.0, 59.0),
    "orders": (3.5, 2.4),
    "spend": (170.0, 150.0),
    "member": (0.4, 0.5),
}
SMALL = {"n_functions": 4, "n_groups": 3, "groups_by": "features"}


def make_plan(**options):
    given = {"outcome_values": (0, 1)} | SMALL | options
    return fourier_plan(FEATURES, NAMES, **given)


@pytest.fixture(scope="module")
def tables():
    """Four tables as pandas has them, by kind and population."""
    data = campaign_problem().draw(1500, random_state=0)
    found = {}
    for kind, label in KINDS.items():
        for name in NAMES:
            at = data.rows(kind, name)
            frame = pd.DataFrame(np.asarray(data.X)[at], columns=list(FEATURES))
            labels = data.y if kind == "outcome" else data.treatment
            found[kind, name] = frame.assign(**{label: labels[at]})
    return found


def together(tables, convert=lambda frame: frame, **options):
    """Return tables as one container."""
    given = {"outcome": "bought", "treatment": "mailed", "stream": True} | options
    return SeparateLabels.from_tables(
        *(
            {name: convert(tables[kind, name]) for name in NAMES}
            for kind in ("outcome", "treatment")
        ),
        **given,
    )


def as_ibis(frame):
    return pytest.importorskip("ibis").memtable(frame)


def as_spark(frame):
    """Needs Java and pyspark, which the tests do not install."""
    if shutil.which("java") is None:
        pytest.skip("SPARK IS NOT TRIED: there is no Java")
    sql = pytest.importorskip("pyspark.sql", reason="SPARK IS NOT TRIED")
    session = sql.SparkSession.builder.master("local[1]").getOrCreate()
    return session.createDataFrame(frame)


def as_polars(frame):
    return pytest.importorskip("polars").from_pandas(frame).lazy()


ENGINES = {
    "duckdb": duckdb.from_df,
    "polars": as_polars,
    "ibis": as_ibis,
    "spark": as_spark,
}
# Of Ibis, about pandas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
    pytest.mark.usefixtures("two_folds"),
]
EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)


def assert_same_sums(found, wanted):
    """Sums agree to the rounding of adding up so many numbers in another order."""
    for part in ("sums", "policy"):
        one, two = getattr(found, part), getattr(wanted, part)
        for field in fields(one):
            values = getattr(two, field.name)
            size = max(np.abs(values).max(), 1.0)
            assert_allclose(getattr(one, field.name), values, atol=1e-11 * size)


# --- Sums --------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_an_engine_adds_up_what_the_rows_do(tables, engine):
    plan = make_plan()
    wanted = aggregate_rows(together(tables), plan)
    found = aggregate_rows(together(tables, ENGINES[engine]), plan)
    assert_same_sums(found, wanted)
    people = tables["outcome", "north"][list(FEATURES)]
    one, two = (MinMaxUplift(random_state=0).fit_moments(s) for s in (found, wanted))
    assert_allclose(one.predict(people), two.predict(people), atol=1e-8)


def test_real_outcomes_words_and_a_column_of_populations_are_added_up_alike(tables):
    plan = make_plan(outcome_values=None)
    joined = {}
    for kind in KINDS:
        parts = [tables[kind, name].assign(region=name) for name in NAMES]
        joined[kind] = pd.concat(parts, ignore_index=True)
    joined["outcome"]["bought"] += joined["outcome"]["age"] / 10.0
    joined["treatment"]["mailed"] = np.where(
        joined["treatment"]["mailed"] > 0, "letter", "none"
    )

    def data(convert):
        return SeparateLabels.from_tables(
            convert(joined["outcome"]),
            convert(joined["treatment"]),
            outcome="bought",
            treatment="mailed",
            treated="letter",
            population="region",
            stream=True,
        )

    wanted = aggregate_rows(data(lambda frame: frame), plan)
    assert_same_sums(aggregate_rows(data(duckdb.from_df), plan), wanted)


def test_rows_that_stand_for_people_are_added_up_as_the_people(tables):
    plan = make_plan()
    rng = np.random.default_rng(0)
    counted = {
        key: frame.assign(n=rng.integers(1, 4, len(frame)))
        for key, frame in tables.items()
    }
    written_out = {
        key: frame.loc[frame.index.repeat(frame["n"])].drop(columns="n")
        for key, frame in counted.items()
    }
    found = aggregate_rows(together(counted, duckdb.from_df, count="n"), plan)
    assert_same_sums(found, aggregate_rows(together(written_out), plan))


@pytest.mark.parametrize("engine", ["duckdb", "polars", "ibis"])
def test_other_fits_take_the_rows_out_of_the_engine(tables, engine):
    """In memory or in pieces, as they take those of a data frame."""
    for stream in (False, 1000):
        wanted = MinMaxUplift(basis="linear", random_state=0).fit(
            together(tables, stream=stream)
        )
        model = MinMaxUplift(basis="linear", random_state=0)
        model.fit(together(tables, ENGINES[engine], stream=stream))
        people = tables["outcome", "south"][list(FEATURES)]
        assert_allclose(model.predict(people), wanted.predict(people), rtol=1e-12)


# --- SQL ---------------------------------------------------------------------------------------


def queries(plan, write=sums_query, **options):
    """Return the query of each table, named kind_population."""
    return [
        write(plan, f"{kind}_{name}", population=name, **{kind: label}, **options)
        for kind, label in KINDS.items()
        for name in NAMES
    ]


@pytest.fixture(scope="module")
def database(tables):
    connection = duckdb.connect()
    for (kind, name), frame in tables.items():
        connection.from_df(frame).create(f"{kind}_{name}")
    return connection


def test_what_queries_return_is_what_rows_add_up_to(tables, database, tmp_path):
    """Also by way of a text file, in which labels and populations are text."""
    plan = make_plan()
    wanted = aggregate_rows(together(tables), plan)
    results = [database.sql(query).arrow().read_all() for query in queries(plan)]
    assert_same_sums(sums_from_results(plan, results), wanted)
    for i, query in enumerate(queries(plan)):
        database.sql(query).write_csv(str(tmp_path / f"{i}.csv"))
    read = [pd.read_csv(tmp_path / f"{i}.csv") for i in range(4)]
    shouting = [frame.rename(columns=str.upper) for frame in read]
    assert_same_sums(sums_from_results(plan, shouting), wanted)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("write", [sums_query, counts_query])
def test_queries_are_sql_of_every_dialect(dialect, write):
    for query in queries(make_plan(n_functions=2), write, dialect=dialect):
        (tree,) = sqlglot.parse(query, read=dialect)
        assert isinstance(tree, sqlglot.expressions.Query)
        assert "COUNT(*)" in query
        assert "MATERIALIZED" not in query


def test_names_that_are_no_words_are_quoted_in_every_dialect():
    hostile = 'x"; DROP TABLE people; --'
    plan = fourier_plan(
        {hostile: (0.0, 1.0), "select": (0.0, 1.0), "Größe `": (0.0, 1.0)},
        ["o'hara", "south"],
        outcome_values=(0, 1),
        **SMALL,
    )
    for dialect in DIALECTS:
        query = sums_query(
            plan, "shop.order", outcome="group", population="o'hara", dialect=dialect
        )
        (tree,) = sqlglot.parse(query, read=dialect)
        named = {column.name.lower() for column in tree.find_all(sqlglot.exp.Column)}
        assert {hostile.lower(), "select", "größe `", "group"} <= named
        assert not list(tree.find_all(sqlglot.exp.Drop))
        texts = {text.this for text in tree.find_all(sqlglot.exp.Literal)}
        assert "o'hara" in texts


def test_snowflake_finds_columns_that_were_made_without_quotes():
    (query, *_) = queries(make_plan(), dialect="snowflake")
    assert '"DAYS_SINCE_ORDER"' in query
    assert '"OUTCOME_NORTH"' in query
    assert '"days_since_order"' not in query


def test_a_table_may_be_one_query_that_reads(tables, database):
    plan = make_plan()
    whole = queries(plan)
    read = "SELECT * FROM outcome_north WHERE age > 0"
    query = sums_query(plan, read, outcome="bought", population="north")
    results = [database.sql(q).arrow().read_all() for q in (query, *whole[1:])]
    wanted = aggregate_rows(together(tables), plan)
    assert_same_sums(sums_from_results(plan, results), wanted)
    for written in (
        "SELECT 1; DROP TABLE t",
        "DROP TABLE t",
        "t; DROP TABLE t",
        "WITH x",
        "",
    ):
        with pytest.raises(InputError, match=r"one SELECT|name of a table"):
            sums_query(plan, written, outcome="bought", population="north")
    query = sums_query(plan, '"t; DROP TABLE t"', outcome="bought", population="north")
    assert 'FROM "t; DROP TABLE t"' in query


POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="module")
def postgres(tables):
    """A database of PostgreSQL that is thrown away: what runs SQL and returns CSV, its address."""
    if not POSTGRES:
        pytest.skip("POSTGRESQL IS NOT TRIED: it is not installed")
    folder = Path(tempfile.mkdtemp(prefix="unjoined-"))  # where another user may go
    folder.chmod(0o777)
    own = (
        ["runuser", "-u", "postgres", "--"] if Path("/root").stat().st_uid == 0 else []
    )
    tool = {path.name: str(path) for path in POSTGRES[-1].iterdir()}

    def call(name, *arguments, **options):
        command = [*own, tool[name], *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    call("initdb", "-D", folder / "data", "--no-sync", "-A", "trust")
    # On a socket in the folder, and on no port at all.
    settings = (
        f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    )
    call(
        "pg_ctl",
        "-D",
        folder / "data",
        "-o",
        settings,
        "-l",
        folder / "log",
        "-w",
        "start",
    )

    def run(text):
        return call("psql", "-h", folder, "-d", "postgres", "--csv", "-q", "-c", text)

    for (kind, name), frame in tables.items():
        columns = ", ".join(f'"{c}" double precision' for c in frame.columns)
        run(f'CREATE TABLE "{kind}_{name}" ({columns})')
        file = folder / "rows.csv"
        frame.to_csv(file, index=False)
        file.chmod(0o644)
        run(f"COPY \"{kind}_{name}\" FROM '{file}' CSV HEADER")
    yield run, f"postgresql:///postgres?host={folder}&user=postgres"
    call("pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")
    shutil.rmtree(folder)


def test_postgresql_adds_up_what_the_rows_do(tables, postgres, tmp_path):
    plan = make_plan()
    results = []
    run, _ = postgres
    for query in queries(plan, dialect="postgres"):
        (tmp_path / "result.csv").write_text(run(query))
        results.append(pd.read_csv(tmp_path / "result.csv"))
    wanted = aggregate_rows(together(tables), plan)
    assert_same_sums(sums_from_results(plan, results), wanted)


def test_queries_of_a_file_are_added_up_by_its_database(tables, tmp_path):
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(file) as connection:
        for (kind, name), frame in tables.items():
            connection.from_df(frame).create(f"{kind}_{name}")
    for groups_by in ("features", "rows"):
        plan = make_plan(groups_by=groups_by)
        found = aggregate_rows(asked(file), plan)
        assert_same_sums(found, aggregate_rows(together(tables), plan))


def asked(place, kinds=KINDS):
    """Return the four tables of a database, none of which has been read."""
    return SeparateLabels.from_tables(
        *({n: SqlQuery(f"{kind}_{n}", place) for n in NAMES} for kind in kinds),
        outcome="bought",
        treatment="mailed",
        features=list(FEATURES),
        stream=True,
    )


@pytest.fixture
def extension(tmp_path, monkeypatch):
    """DuckDB with what reads PostgreSQL, which some versions have a package of."""
    found = find_spec("duckdb_extension_postgres_scanner")
    version = f"v{duckdb.__version__}"
    files = Path(found.origin).parent.glob(f"*/{version}/*") if found else ()
    monkeypatch.setenv("HOME", str(tmp_path))
    ((platform,),) = duckdb.sql("PRAGMA platform").fetchall()
    folder = tmp_path / ".duckdb" / "extensions" / version / platform
    folder.mkdir(parents=True)
    if not [shutil.copy(file, folder) for file in files]:
        pytest.skip("TABLES ON A SERVER ARE NOT TRIED: DuckDB has no extension for it")


def test_tables_on_a_server_are_read_and_added_up_there(tables, postgres, extension):
    _, address = postgres
    plan = make_plan()
    wanted = aggregate_rows(together(tables), plan)
    assert_same_sums(aggregate_rows(asked(address), plan), wanted)
    old = "SELECT * FROM outcome_north WHERE age > 50 ORDER BY age"
    rows = read_table(f"{address}:{old}")
    frame = tables["outcome", "north"]
    assert rows.num_rows == (frame["age"] > 50).sum()
    with pytest.raises(TableError, match=r"no table 'outcome_nord'.*Did you mean"):
        read_table(f"{address}:outcome_nord")
    with pytest.raises(TableError, match="names no table"):
        read_table(f"{address}:")
    for text in (
        "DELETE FROM outcome_north",
        "SELECT * FROM postgres_execute('server', 'DROP TABLE outcome_north')",
    ):
        with pytest.raises(TableError, match=r"only reads|cannot be run"):
            read_table(SqlQuery(text, address))
    assert read_table(f"{address}:outcome_north").num_rows == len(frame)


def test_a_server_that_cannot_be_read_is_said_without_its_password():
    for address in (
        "postgresql://me:hunter2@127.0.0.1:1/shop",
        "mysql://me:hunter2@h/shop",
    ):
        with pytest.raises(TableError, match=r"INSTALL|cannot be opened") as said:
            read_table(f"{address}:people")
        assert "hunter2" not in str(said.value)


# --- Counts ------------------------------------------------------------------------------------


def test_counts_are_of_people_who_are_alike_and_small_cells_are_left_out(
    tables, database
):
    plan = make_plan()
    (query, *_) = queries(plan, counts_query, bins=3, min_count=5)
    found = database.sql(query).df()
    frame = tables["outcome", "north"]
    binned = {
        name: middle
        + 2
        * spread
        * np.clip(np.floor((frame[name] - middle) / (2 * spread) + 0.5), -1, 1)
        for name, (middle, spread) in FEATURES.items()
    }
    cells = pd.DataFrame(binned).round(6).assign(bought=frame["bought"])
    wanted = cells.groupby(list(cells.columns)).size()
    kept = wanted[wanted >= 5]
    assert found["n"].sum() == kept.sum()
    assert sorted(found["n"]) == sorted(kept)
    assert (found["suppressed"] == wanted[wanted < 5].sum()).all()
    again = found.round(dict.fromkeys(FEATURES, 6)).set_index(list(cells.columns))
    assert (again["n"].sort_index() == kept.sort_index()).all()


def test_a_fit_to_counts_is_one_to_binned_people(tables, database):
    plan = make_plan()
    fine = queries(plan, counts_query, bins=5, min_count=1)
    results = [database.sql(query).df() for query in fine]
    keys = [(kind, name) for kind in KINDS for name in NAMES]
    counted = dict(zip(keys, results, strict=True))
    people = {
        key: frame.loc[frame.index.repeat(frame["n"])].reset_index(drop=True)
        for key, frame in counted.items()
    }
    options = {"features": list(FEATURES), "stream": False}
    model = Uplift(random_state=0).fit(together(counted, count="n", **options))
    wanted = Uplift(random_state=0).fit(together(people, **options))
    grid = people["outcome", "north"][list(FEATURES)].drop_duplicates()
    # Folds are of other people, as rows are dealt to them by their places.
    spread = float(np.std(wanted.predict(grid)))
    gap = np.abs(model.predict(grid) - wanted.predict(grid)).mean()
    assert gap < 0.5 * spread


# --- What is refused ---------------------------------------------------------------------------


def test_a_plan_that_deals_rows_by_their_numbers_is_refused(tables):
    plan = make_plan(groups_by="rows")
    with pytest.raises(InputError, match="groups_by='features'"):
        aggregate_rows(together(tables, duckdb.from_df), plan)
    with pytest.raises(InputError, match="groups_by='features'"):
        sums_query(plan, "t", outcome="bought", population="north")


def test_rows_that_lack_something_are_refused(tables):
    plan = make_plan()
    for column, error in (("age", TableError), ("bought", LabelError)):
        gap = tables["outcome", "north"].copy()
        gap.loc[3, column] = np.nan
        broken = tables | {("outcome", "north"): gap}
        for engine in ("duckdb", "polars"):
            with pytest.raises(error, match=r"lacks 1 values|missing"):
                aggregate_rows(together(broken, ENGINES[engine]), plan)


def test_labels_and_populations_that_are_others_are_refused(tables):
    plan = make_plan()
    odd = tables["outcome", "north"].assign(bought=2.0)
    with pytest.raises(LabelError, match=r"the outcome is 2\.0 in some rows"):
        aggregate_rows(
            together(tables | {("outcome", "north"): odd}, duckdb.from_df), plan
        )
    other = fourier_plan(FEATURES, ["north", "east"], outcome_values=(0, 1), **SMALL)
    with pytest.raises(LabelError, match="rows of population 'south'"):
        aggregate_rows(together(tables, duckdb.from_df), other)
    words = tables["outcome", "north"].assign(age="old")
    with pytest.raises(TableError, match=r"column 'age' .* holds string values"):
        aggregate_rows(
            together(tables | {("outcome", "north"): words}, duckdb.from_df), plan
        )


def test_weights_clusters_and_checkpoints_are_refused(tables, tmp_path):
    plan = make_plan()
    wide = {key: frame.assign(w=1.0, house=1) for key, frame in tables.items()}
    for option in ({"sample_weight": "w"}, {"cluster": "house"}):
        with pytest.raises(InputError, match=f"{next(iter(option))} cannot be had"):
            aggregate_rows(
                together(wide, duckdb.from_df, features=list(FEATURES), **option), plan
            )
    with pytest.raises(InputError, match="no checkpoint"):
        aggregate_rows(
            together(tables, duckdb.from_df), plan, checkpoint=tmp_path / "half"
        )


def test_groups_of_few_people_are_refused(tables, database):
    plan = make_plan()
    with pytest.raises(InputError, match="fewer than the minimum"):
        aggregate_rows(together(tables, duckdb.from_df), plan, min_count=900)
    results = [database.sql(query).df() for query in queries(plan)]
    with pytest.raises(InputError, match="fewer than the minimum"):
        sums_from_results(plan, results, min_count=900)


def test_tables_that_are_no_result_of_the_plan_are_refused(tables, database):
    plan = make_plan()
    with pytest.raises(TableError, match="is not what a query of sums returns"):
        sums_from_results(plan, [tables["outcome", "north"]])
    results = [database.sql(query).df() for query in queries(make_plan(n_groups=2))]
    with pytest.raises(TableError, match="made by another plan"):
        sums_from_results(plan, results)
    same = [database.sql(queries(plan)[0]).df()] * 2
    with pytest.raises(InputError, match="hold the same outcome rows"):
        sums_from_results(plan, same)


# --- The command line --------------------------------------------------------------------------


def commands(page, *beginnings):
    """Return the commands of a page of the guide that begin so, word by word."""
    text = (GUIDE / page).read_text().replace("\\\n", " ")
    lines = re.findall("^unjoined (.*)$", text, flags=re.M)
    return [shlex.split(line) for line in lines if line.startswith(beginnings)]


def test_the_commands_of_the_pages_run_and_agree_with_the_rows(tables, here):
    """The warehouse is DuckDB, whose SQL takes the place of that of the page."""

    def run(words):
        dialects = [word if word not in DIALECTS else "duckdb" for word in words]
        with pytest.raises(SystemExit) as stop:
            main(dialects)
        assert not stop.value.code, words

    def answer(file, name):
        connection = duckdb.connect()
        connection.execute("CREATE SCHEMA crm")
        for (kind, at), frame in tables.items():
            called = {"outcome": "sales", "treatment": "mail"}[kind]
            connection.from_df(frame).create(f"crm.{called}_{at}")
        for i, query in enumerate(Path(file).read_text().split(";\n")[:-1]):
            connection.sql(query).write_csv(f"{name}_{i}.csv")

    wanted = commands("sums.md", "plan", "aggregate", "fit")[4:]  # after those of files
    plan, write, read, fit, count, fit_counts = wanted
    run(plan)
    run(write)
    answer("queries.sql", "result")
    run(read)
    run(fit)
    wanted = aggregate_rows(together(tables), read_sums("plan.sums").plan)
    model = MinMaxUplift().fit_moments(wanted)
    grid = tables["outcome", "north"][list(FEATURES)]
    assert_allclose(
        load_model("model.skops").predict(grid), model.predict(grid), atol=1e-8
    )
    run([*count, "--min-count", "2"])
    answer("cells.sql", "cells")
    run([*fit_counts, "--force"])


def test_from_a_plan_to_a_model_by_way_of_a_warehouse(tables, tmp_path, capsys):
    """plan, aggregate --sql, the warehouse's own work, aggregate --results, fit."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return stop.value.code or 0, " ".join((printed.out + printed.err).split())

    features = [
        word
        for name, (middle, spread) in FEATURES.items()
        for word in ("--feature", f"{name}={middle}:{spread}")
    ]
    plan, sql, sums = (
        tmp_path / "plan.sums",
        tmp_path / "all.sql",
        tmp_path / "all.sums",
    )
    code, said = run(
        *("plan", *features, "--populations", "north,south", "--outcome-values", "0,1"),
        *("--functions", 4, "--groups", 3, "--groups-by", "features", "--out", plan),
    )
    assert code == 0, said
    named = [
        word
        for kind, label in KINDS.items()
        for word in (
            *(f"--{kind}", label),
            *(
                w
                for name in NAMES
                for w in (f"--{kind}s", f"{name}=shop.{kind}_{name}")
            ),
        )
    ]
    written = ["aggregate", "--plan", plan, "--sql", "duckdb", *named, "--out", sql]
    code, said = run(*written)
    assert code == 0, said
    assert "4 queries" in said
    code, said = run(*written)
    assert code != 0
    assert "--force" in said
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA shop")
    for (kind, name), frame in tables.items():
        connection.from_df(frame).create(f"shop.{kind}_{name}")
    results = []
    for i, query in enumerate(sql.read_text().split(";\n")[:-1]):
        file = tmp_path / f"{i}.parquet"
        connection.sql(query).write_parquet(str(file))
        results += ["--results", file]
    code, said = run("aggregate", "--plan", plan, *results, "--out", sums)
    assert code == 0, said
    wanted = aggregate_rows(together(tables), read_sums(plan).plan)
    assert_same_sums(read_sums(sums), wanted)
    code, said = run("aggregate", "--plan", plan, *results, *named, "--out", sums)
    assert code != 0
    assert "no table can be given beside it" in said
    code, said = run(
        "aggregate", "--plan", plan, "--sql", "oracle", *named, "--out", sql
    )
    assert code != 0
    assert "bigquery" in said
    code, said = run("aggregate", "--plan", plan, "--counts", *named, "--out", sql)
    assert code != 0
    assert "--counts is for --sql" in said
