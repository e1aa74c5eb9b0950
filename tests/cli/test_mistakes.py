"""Wrong inputs, on the command line and in Python: words that help, and nothing is written."""

import contextlib
import os
import shlex

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unjoined
from unjoined import (
    FourLogistic,
    MinMaxUplift,
    SeparateLabels,
    Uplift,
    read_table,
    save_model,
)
from unjoined.cli.entry import main
from unjoined.data import paper_problem, unjoin, write_table
from unjoined.data.raw import raw_customers, write_raw_files
from unjoined.federated import write_sums

pytestmark = pytest.mark.usefixtures("two_folds")


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def table(label, rows=24):
    number = np.arange(rows)
    return pa.table(
        {
            "id": number,
            "f0": np.sin(number),
            "f1": np.cos(3 * number),
            "region": np.where(number % 2, "n", "s"),
            "w": np.ones(rows),
            label: (number // 2) % 2,
        }
    )


def frames(kind, label, rows=120):
    rng = np.random.default_rng(0)
    return {
        name: pd.DataFrame(
            {
                "f0": rng.normal(size=rows),
                "f1": rng.normal(size=rows),
                label: rng.permutation(rows) < share * rows,
            }
        ).astype({label: int})
        for name, share in (("n", 0.2), ("s", 0.8))
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small tables and files of every kind, good and bad."""
    path = tmp_path_factory.mktemp("mistakes")
    write_table(table("y"), path / "o.csv")
    write_table(table("t"), path / "t.csv")
    for name in ("on", "os"):
        write_table(table("y"), path / f"{name}.csv")
    for name in ("tn", "ts"):
        write_table(table("t"), path / f"{name}.csv")
    words = table("t").drop(["t"]).append_column("t", [["maybe", "never"] * 12])
    write_table(words, path / "maybe.csv")
    write_table(pa.table({"f0": ["x"], "f1": [1.0], "id": [1]}), path / "words.csv")
    write_table(table("y", 24).append_column("uplift", [[0] * 24]), path / "people.csv")
    write_table(table("y").slice(0, 0), path / "nobody.csv")
    write_table(pa.table({"f0": [1.0]}), path / "other.parquet")
    data = paper_problem(b=5.0).draw(100, random_state=0)
    model = MinMaxUplift(n_centers=5, n_jobs=1).fit(**data)
    save_model(model, path / "arrays.skops")
    write_sums(
        MinMaxUplift(n_centers=5, n_jobs=1).collect_sums(data), path / "arrays.sums"
    )
    labels = SeparateLabels.from_tables(
        frames("outcomes", "y"), frames("treatments", "t"), outcome="y", treatment="t"
    )
    save_model(FourLogistic().fit(**labels), path / "m.skops")
    line = (
        "plan --feature f0=0:1 --feature f1=0:1 --populations n,s --functions 2 --out"
    )
    with pytest.raises(SystemExit) as stop:
        main([*line.split(), str(path / "plan.sums")])
    assert not stop.value.code
    with duckdb.connect(path / "shop.duckdb") as connection:
        connection.execute(f"CREATE TABLE people AS FROM '{path}/people.csv'")
        connection.execute("CREATE TABLE other AS SELECT 1 AS x")
    (path / "not.duckdb").write_text("no database")
    (path / "ragged.csv").write_text("f0,f1,region,y\n1,2,n,0\n1,2,3,n,0,7\n")
    (path / "twice.csv").write_text("f0,f0,region,y\n1,2,n,0\n")
    (path / "noname.csv").write_text("f0,,region,y\n1,2,n,0\n")
    (path / "deep").mkdir()
    (path / "tables" / "inner").mkdir(parents=True)
    write_table(pa.table({"age": [1.0]}), path / "tables" / "inner" / "a.csv")
    (path / "no.skops").write_text("no model")
    os.symlink("o.csv", path / "link.csv")
    os.symlink("gone.skops", path / "dangling.skops")
    os.link(path / "tables" / "inner" / "a.csv", path / "hard.skops")
    os.mkfifo(path / "pipe")
    os.symlink("pipe", path / "pipe.csv")
    write_table(table("t").set_column(5, "t", [["A", "B"] * 12]), path / "ab.csv")
    write_table(
        table("y").set_column(5, "y", [["1 pc", "0 pc"] * 12]), path / "unit.csv"
    )
    write_table(table("y").set_column(5, "y", [["1", "n/a"] * 12]), path / "na.csv")
    write_table(table("y").set_column(5, "y", [[1.0, None] * 12]), path / "gap.csv")
    write_table(table("y"), path / "book.xlsx")
    (path / "bytes.csv").write_bytes(bytes(range(256)) * 20)
    (path / "false.xlsx").write_text("no workbook")
    (path / "false.csv.gz").write_text("not packed")
    (path / "bad.jsonl").write_text('{"f0": 1}\n{"f0":\n')
    settings = {
        "command": "[fitt]\nseed = 1",
        "typo": "outcoms = 'o.csv'",
        "section": "[fit]\nestimater = 'auto'",
    }
    for name, text in settings.items():
        (path / f"{name}.toml").write_text(text)
    return path


def contents(folder):
    return {
        path: path.read_bytes() if path.is_file() else path.lstat().st_ino
        for path in folder.rglob("*")
    }


TABLES = "--outcomes o.csv --treatments t.csv --population region"
LABELS = "--outcome y --treatment t"
CHECK = f"check {TABLES} {LABELS} --ignore id"
FIT = f"fit {TABLES} {LABELS} --model new.skops"
CHUNKS = f"{FIT} --chunks"
SCORE = "score --table people.csv --out s.csv"
GOOD = f"{SCORE} --model m.skops"
ASK = "score --model m.skops --out s.csv --table"
PLAN = "plan --populations n,s --out p.sums"
SUMS = "aggregate --plan plan.sums --out a.sums"
PART = f"{SUMS} --outcomes o.csv --outcome y --population region"
FOUR = (
    "--outcomes n=on.csv --outcomes s=os.csv --treatments n=tn.csv --treatments s=ts.csv "
    f"{LABELS}"
)
SWAPPED = (
    FOUR.replace("n=on.csv", "n=?")
    .replace("n=tn.csv", "n=on.csv")
    .replace("?", "tn.csv")
)
PARTY = "aggregate --plan plan.sums --outcomes n=on.csv --outcome y"
STREAM = f"fit --chunks {FOUR}".replace("n=on.csv", "n=tables")

MISTAKES = [
    ("chek", "No such command 'chek'"),
    ("--verbose", "No such option"),
    ("check", "Missing: --outcomes, --treatments"),
    (f"{CHECK} --features f0,f0", "--features names the column 'f0' twice"),
    (f"{CHECK} --features region", "'region', which is the column of --population"),
    (f"{FIT} --features=", "--features names no column"),
    (
        f"{FIT} --features f0 --ignore f0",
        "--ignore leaves out all columns of --features",
    ),
    (f"{FIT} --ignore nobody", "ignore names 'nobody'"),
    (
        f"fit {TABLES} --outcome y --treatment y",
        "--outcome and --treatment both name the column",
    ),
    (f"{FIT} --weight=", "--weight is empty"),
    (f"{FIT} --seed -1", "Invalid value for '--seed'"),
    (f"{FIT} --estimator best", "--estimator must be one of"),
    (f"{FIT} --moments arrays.sums", "so --outcomes cannot be given beside it"),
    (
        f"{FIT} --checkpoint c.sums",
        "--checkpoint is for tables that are read with --chunks",
    ),
    (f"{CHUNKS} --estimator plugin", "which --estimator plugin cannot do"),
    (
        f"{FIT} extra.csv",
        "'extra.csv' belongs to no option. Repeat the option for each file",
    ),
    (f"{FIT} --config people.csv", "is not TOML"),
    (f"{FIT} --treated 0 --treated 1", "treated names all that column"),
    ("fit --moments o.csv", "'o.csv' is not a file of sums"),
    (
        f"fit --outcomes o.csv --treatments no.csv {LABELS} --population region",
        "no file 'no.csv'",
    ),
    (
        f"fit --outcomes o.csv --treatments deep {LABELS} --population region",
        "holds no file",
    ),
    (
        f"fit --outcomes n= --outcomes s=o.csv --treatments t.csv {LABELS}",
        "--outcomes 'n=' names no file",
    ),
    (f"{SCORE} --model gone.skops", "there is no model file 'gone.skops'"),
    (f"{SCORE} --model no.skops", "is not a model file"),
    (f"{SCORE} --model arrays.skops", "the model was fitted to plain arrays"),
    (
        f"{SCORE} --model arrays.skops --keep uplift",
        "--keep cannot copy the column 'uplift'",
    ),
    (
        f"{SCORE} --model arrays.skops --share nan",
        "--share must lie in [0, 1], got nan",
    ),
    (
        f"{PLAN} --feature f0=nan:1",
        "typical value of f0 must be a finite number, got nan",
    ),
    (f"{PLAN} --feature f0=0", "--feature needs two numbers"),
    (f"{PLAN} --feature f0=0:1 --feature f0=1:1", "--feature was given twice for 'f0'"),
    (
        "plan --feature f0=0:1 --populations n --out p.sums",
        "a plan needs two populations",
    ),
    (SUMS, "no rows"),
    (f"{SUMS} --outcomes o.csv --population region", "--outcomes needs --outcome"),
    ("aggregate --plan arrays.sums --out a.sums", "has no feature names"),
    ("merge arrays.sums plan.sums --out a.sums", "cannot be added"),
    ("demo --out o.csv", "'o.csv' is a file"),
    # what cannot be fitted
    (
        f"fit --outcomes n=on.csv --treatments n=tn.csv {LABELS}",
        "once for each population, as",
    ),
    (f"fit {FOUR} --population region", "with --population there is one --outcomes"),
    (f"fit {FOUR} --outcomes s=o.csv", "given twice for population 's'"),
    (f"fit {FOUR.replace('s=ts.csv', 's=maybe.csv')} --model n.skops", "--treated"),
    (
        f"fit --outcomes ragged.csv --treatments t.csv --population region {LABELS}",
        "ragged.csv",
    ),
    (
        f"fit --outcomes twice.csv --treatments t.csv --population region {LABELS}",
        "two columns",
    ),
    (
        f"fit --outcomes noname.csv --treatments t.csv --population region {LABELS}",
        "no name",
    ),
    (
        f"check --outcomes https://x.y/o.csv --treatments t.csv --population region {LABELS}",
        "addr",
    ),
    (
        "fit --moments arrays.sums --estimator plugin",
        "only minmax can be fitted, not 'plugin'",
    ),
    # files that are not what their names say, and labels that nobody can read
    (f"fit {FOUR.replace('on.csv', 'bytes.csv')}", "'bytes.csv' is not a text file"),
    (
        f"fit {FOUR.replace('on.csv', 'false.xlsx')}",
        "cannot be read as an Excel workbook (.xlsx)",
    ),
    (f"fit {FOUR.replace('on.csv', 'false.csv.gz')}", "not packed as its ending says"),
    (
        f"fit {FOUR.replace('on.csv', 'bad.jsonl')}",
        "'bad.jsonl' cannot be read as jsonl: line 2",
    ),
    (f"fit {FOUR.replace('on.csv', 'unit.csv')}", "Write the number alone"),
    (
        f"fit {FOUR.replace('on.csv', 'na.csv')}",
        "got 'n/a'. Leave out rows without an outcome",
    ),
    (
        f"fit {FOUR.replace('on.csv', 'gap.csv')}",
        "column 'y' is missing; 12 of the 24 rows",
    ),
    (
        f"fit {FOUR.replace('tn.csv', 'ab.csv')} --treated A",
        "Write treatments alike in all tables",
    ),
    (f"{FIT} --estimator Auto", "'FourNNR', got 'Auto'. Did you mean 'auto'?"),
    (f"{FIT.replace('new.skops', 'new.pkl')}", "--model 'new.pkl' must end in .skops"),
    (
        f"{FIT.replace('new.skops', 'book.xlsx')} --force",
        "'book.xlsx' exists and is not a model",
    ),
    (f"{GOOD} --top 30%", "got '30%'. For a share of the people write --share 30%."),
    (
        f"{FIT} --out new.skops",
        "No such option: --out. A fit writes its model to --model.",
    ),
    (
        f"{GOOD} --budget 1,000 --cost 1",
        "expected a number such as 1000 or 0.5, got '1,000'.",
    ),
    ("fit --config command.toml", "there is no setting '[fitt]'"),
    (
        "init on.csv os.csv tn.csv ts.csv --outcome y --population region",
        "--population is for one",
    ),
    (
        "init o.csv other.parquet --outcome y",
        "cannot tell which column is the treatment",
    ),
    # settings
    (
        "fit --config typo.toml",
        "there is no setting 'outcoms' above all sections. Did you mean",
    ),
    (
        "fit --config section.toml",
        "'estimater' in the section [fit]. Did you mean 'estimator'?",
    ),
    (
        "score --model m.skops --table pipe.csv --out s.csv",
        "'pipe.csv' is a pipe or a device",
    ),
    (
        "plan-study --gap 0.4 --outcome-sd 1 --half-width 1e-300",
        "Change the unit of the outcome",
    ),
    (
        f"plan-study {FOUR} --gap 0.4 --half-width 1",
        "takes a pilot or a guess, not both",
    ),
    (
        "plan-study --gap 0.4 --outcome-sd 1 --half-width 0.1 --standard-error 0.1",
        "give --half-width or --standard-error, not both",
    ),
    (
        "plan-study --gap 0.4 --outcome-sd 1 --half-width 0.1 --level 95",
        "--level must lie strictly",
    ),
    ("init o.csv", "found 1 table in 'o.csv'"),
    ("init o.csv t.csv --outcome region", "not of others, and all have it."),
    # whom to treat
    (
        "score --model m.skops --table nobody.csv --out s.csv",
        "there is nobody to score",
    ),
    ("score --model m.skops --table words.csv --out s.csv", "column 'f0' holds"),
    (
        "score --model m.skops --table no.skops --out s.csv",
        "is not a table this program reads",
    ),
    (f"{GOOD} --keep iid", "lacks the column 'iid'"),
    (f"{GOOD} --share 30", "Write 30% for percent"),
    (f"{GOOD} --share 30% --top 5", "--share and --top both say how many"),
    (f"{GOOD} --budget 10 --cost 0", "--budget needs --cost above 0"),
    # databases and queries
    (
        f"{ASK} shop.duckdb",
        "'shop.duckdb' holds 2 tables: 'other', 'people'. Say which one, as",
    ),
    (
        f"{ASK} shop.duckdb:peple",
        "has no table 'peple'. Its tables are 'other', 'people'. Did you",
    ),
    (f"{ASK} gone.duckdb:people", "there is no database 'gone.duckdb'"),
    (f"{ASK} not.duckdb:people", "'not.duckdb' is not a database that DuckDB"),
    (f"{ASK} 'SELECT f0, f1 FRM people'", "cannot be run. DuckDB says: syntax error"),
    (
        f"{ASK} 'from people.cvs'",
        "If it is the name of a file, write ./from people.cvs.",
    ),
    (f"{ASK} 'SELECT 1; CREATE TABLE a AS SELECT 1'", "got SELECT and CREATE"),
    (f"{ASK} \"FROM 'http://localhost:1/x.csv'\"", "needs the extension httpfs"),
    (f"{ASK} \"FROM 'people.csv'\" --out people.csv --force", "are the same file"),
    # export
    ("export --model m.skops", "Missing option '--sql'"),
    # nothing is overwritten
    (f"fit {FOUR} --model m.skops", "'m.skops' exists. Add --force to replace it"),
    (
        f"{PLAN.replace('p.sums', 'pipe')} --feature a=1:2",
        "'pipe' is not an ordinary file",
    ),
    (f"{PLAN.replace('p.sums', 'tables')} --feature a=1:2", "'tables' is a folder"),
    (f"fit {FOUR} --model no/m.skops", "there is no folder 'no' to write to (--model)"),
    ("demo --out tables", "the folder 'tables' is not empty. Add --force"),
    (f"fit {FOUR} --chunks --checkpoint P --model p", "are the same file"),
    (
        f"fit {FOUR} --chunks --checkpoint gone.skops --model dangling.skops",
        "are the same file",
    ),
    ("score --model m.skops --table o.csv --out link.csv --force", "are the same file"),
    ("merge arrays.sums plan.sums --out plan.sums --force", "are the same file"),
    (f"{STREAM} --model tables/m.csv", "is among the tables in the folder 'tables'"),
    (f"{STREAM} --model hard.skops", "is among the tables in the folder 'tables'"),
]


def test_a_mistake_gets_one_sentence_and_nothing_is_written(capsys, folder):
    for line, message in MISTAKES:
        before = contents(folder)
        with contextlib.chdir(folder):
            code, out, err = run(capsys, *shlex.split(line))
        assert code == 2, line
        assert out == "", line
        assert err.startswith("unjoined: "), line
        assert message in err, line
        assert len(err.splitlines()) == 1, line
        assert contents(folder) == before, line


def labels(**changes):
    """Tables that are right but for some changes."""
    right = {"outcomes": frames("o", "y"), "treatments": frames("t", "t")}
    return SeparateLabels.from_tables(
        **right | {"outcome": "y", "treatment": "t"} | changes
    )


def renamed(tables, names):
    return {key: frame.set_axis(names, axis=1) for key, frame in tables.items()}


def changed(kind, label, **columns):
    tables = frames(kind, label)
    return tables | {"s": tables["s"].assign(**columns)}


HELPFUL = (unjoined.errors.UnjoinedError, NotFittedError, ValueError)
DATA = dict(paper_problem(b=5.0).draw(40, random_state=0))
MORE = dict(paper_problem(b=5.0).draw(100, random_state=0))
WRONG = {
    "other names": (
        lambda: labels(
            outcomes=dict(zip("ab", frames("o", "y").values(), strict=True))
        ),
        "population",
    ),
    "a list": (lambda: labels(outcomes={"n": [1], "s": [2]}), "data frame"),
    "tables in a list": (
        lambda: labels(outcomes=[*frames("o", "y").values()]),
        "mapping of popul",
    ),
    "a table alone": (
        lambda: labels(outcomes=frames("o", "y")["n"]),
        "population='region'",
    ),
    "numbers for names": (
        lambda: labels(outcomes=renamed(frames("o", "y"), [0, 1, "y"])),
        "must be named by text, got 0, 1",
    ),
    "two columns of one name": (
        lambda: labels(outcomes=renamed(frames("o", "y"), ["f0", "f0", "y"])),
        "two columns named 'f0'",
    ),
    "a series for a name": (
        lambda: labels(outcome=pd.Series([1])),
        "must be the name of a column",
    ),
    "features as one word": (lambda: labels(features="f0"), "Write ['f0']"),
    "predict labels": (
        lambda: FourLogistic().fit(**MORE).predict(labels()),
        "Pass data.X",
    ),
    "labels as a matrix": (
        lambda: StandardScaler().fit(labels()),
        "is not a matrix",
    ),
    "read a number": (lambda: read_table(3), "a path or a query, got int"),
    "write a dict": (
        lambda: write_table({"a": [1]}, "x.csv"),
        "data frame, got a dict",
    ),
    "the data set in a pipeline of columns": (
        lambda: make_pipeline(
            make_column_transformer((StandardScaler(), ["f0"])), FourLogistic()
        ).fit(labels()),
        "pipeline.fit(**data) with scikit-learn's parts, after sklearn.set_config(enable_metadata",
    ),
    "a row of the data set": (lambda: labels()[0], "is not a matrix. Pass data.X"),
    "a frame of no library": (
        lambda: unjoined.evaluate.plan_study(
            unjoined.evaluate.StudyGuess(0.4, 0.3), half_width=0.1
        ).to_frame("panda"),
        "Did you mean 'pandas'?",
    ),
    "three treatments": (
        lambda: labels(treatments=changed("t", "t", t=np.arange(120) % 3)),
        "treat",
    ),
    "missing outcome": (
        lambda: labels(outcomes=changed("o", "y", y=[np.nan] + [1.0] * 119)),
        "y",
    ),
    "constant outcome": (
        lambda: Uplift().fit(
            **{**DATA, "y": np.where(~np.isnan(DATA["y"]), 1.0, DATA["y"])}
        ),
        "outcome",
    ),
    "negative weight": (
        lambda: labels(
            outcomes={k: v.assign(w=-1.0) for k, v in frames("o", "y").items()},
            treatments={k: v.assign(w=1.0) for k, v in frames("t", "t").items()},
            sample_weight="w",
        ),
        "weight",
    ),
    "short labels": (lambda: Uplift().fit(**DATA | {"y": DATA["y"][:-1]}), "160"),
    "infinite feature": (
        lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), np.inf)}),
        "inf in 160 of 160 rows",
    ),
    "missing number in an array": (
        lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), np.nan)}),
        "NaN in 160 of 160 rows",
    ),
    "flat features": (lambda: Uplift().fit(**DATA | {"X": np.ones(160)}), "2D"),
    "no features": (
        lambda: Uplift().fit(**DATA | {"X": np.ones((160, 0))}),
        "0 feature",
    ),
    "text in an array": (
        lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), "a")}),
        "number",
    ),
    "parameter of a word": (lambda: MinMaxUplift(basis="magic").fit(**DATA), "basis"),
    "predict before fit": (lambda: Uplift().predict(np.ones((2, 2))), "not fitted"),
    "other width": (
        lambda: FourLogistic().fit(**MORE).predict(np.ones((2, 3))),
        "3 features",
    ),
    "lost column": (
        lambda: FourLogistic().fit(**labels()).predict(pd.DataFrame({"f0": [1.0]})),
        "f1",
    ),
    "text for numbers": (
        lambda: (
            FourLogistic()
            .fit(**labels())
            .predict(pd.DataFrame({"f0": ["a"], "f1": [1.0]}))
        ),
        "f0",
    ),
    "read a folder": (lambda: read_table("deep"), "is a folder"),
    "write a picture": (lambda: write_table(table("y"), "x.png"), "must end in"),
    "lengths": (
        lambda: unjoined.targeting.expected_gain([0.1], [1.0, 0.0]),
        "has 1, rule has 2",
    ),
    "level": (lambda: unjoined.evaluate.Estimate(0.0, 1.0).interval(95), "Write 0.95"),
    "policy": (
        lambda: unjoin(
            np.ones((9, 1)), [0, 1, 0] * 3, [0, 1, 1] * 3, policies={"a": 2, "b": 0}
        ),
        "polic",
    ),
}


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
def test_a_wrong_call_gets_words_that_help(folder):
    for name in WRONG:
        call, words = WRONG[name]
        before = contents(folder)
        with contextlib.chdir(folder), pytest.raises(HELPFUL) as raised:
            call()
        said = str(raised.value)
        assert words in said
        assert "Traceback" not in said
        assert contents(folder) == before


def test_an_earlier_result_is_replaced_when_asked_for(capsys, tmp_path):
    words = f"plan --feature a=1:2 --populations n,s --functions 3 --out {tmp_path / 'p.sums'}"
    assert run(capsys, *words.split())[0] == 0
    before = (tmp_path / "p.sums").read_bytes()
    assert run(capsys, *words.split(), "--seed", 1, "--force")[0] == 0
    assert (tmp_path / "p.sums").read_bytes() != before


def test_the_largest_seed_has_others_behind_it(tmp_path):
    """The demo draws with its seed and the two behind it."""
    write_raw_files(tmp_path, n_per_table=10, n_customers=5, seed=2**32 - 1)
    _, behind = raw_customers(10, seed=2**32 + 1)
    np.testing.assert_array_equal(behind, raw_customers(10, seed=1)[1])
