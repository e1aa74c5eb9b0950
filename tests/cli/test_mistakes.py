"""Wrong inputs, on the command line and in Python: words that help, and nothing is written."""

import contextlib
import os
import shlex

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unjoined
from unjoined import (
    FourLogistic,
    MinMaxUplift,
    MixtureUplift,
    SeparateLabels,
    Uplift,
    WeightedUplift,
    load_model,
    read_table,
    save_model,
)
from unjoined.cli import main
from unjoined.data import (
    TableEncoder,
    paper_problem,
    raw_customers,
    unjoin,
    write_raw_files,
    write_table,
)
from unjoined.sums import write_sums


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
    write_sums(MinMaxUplift(n_centers=5, n_jobs=1).collect_sums(data), path / "arrays.sums")
    labels = SeparateLabels.from_tables(
        frames("outcomes", "y"), frames("treatments", "t"), outcome="y", treatment="t"
    )
    save_model(FourLogistic().fit(**labels), path / "m.skops")
    line = "plan --feature f0=0:1 --feature f1=0:1 --populations n,s --functions 2 --out"
    with pytest.raises(SystemExit) as stop:
        main([*line.split(), str(path / "plan.sums")])
    assert not stop.value.code
    with duckdb.connect(path / "shop.duckdb") as connection:
        connection.execute(f"CREATE TABLE people AS FROM '{path}/people.csv'")
        connection.execute("CREATE TABLE other AS SELECT 1 AS x")
    (path / "not.duckdb").write_text("no database")
    (path / "empty.csv").write_text("")
    (path / "ragged.csv").write_text("f0,f1,region,y\n1,2,n,0\n1,2,3,n,0,7\n")
    (path / "twice.csv").write_text("f0,f0,region,y\n1,2,n,0\n")
    (path / "noname.csv").write_text("f0,,region,y\n1,2,n,0\n")
    (path / "deep").mkdir()
    (path / "tables" / "inner").mkdir(parents=True)
    write_table(pa.table({"age": [1.0]}), path / "tables" / "inner" / "a.csv")
    (path / "no.skops").write_text("no model")
    (path / "notes.txt").write_text("do not lose me")
    os.symlink("o.csv", path / "link.csv")
    os.symlink("gone.skops", path / "dangling.skops")
    os.link(path / "tables" / "inner" / "a.csv", path / "hard.skops")
    os.mkfifo(path / "pipe")
    os.symlink("pipe", path / "pipe.csv")
    write_table(table("t").set_column(5, "t", [["A", "B"] * 12]), path / "ab.csv")
    write_table(table("y").set_column(5, "y", [["1 pc", "0 pc"] * 12]), path / "unit.csv")
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
        "broken": "outcomes = ",
        "number": "outcomes = 7",
        "blank": "outcomes = ''",
        "nested": f"outcomes = {'[' * 100_000}",
        "good": "outcomes = 'o.csv'\ntreatments = 't.csv'\npopulation = 'region'\n"
        "outcome = 'yy'\ntreatment = 't'",
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
    f"--outcomes n=on.csv --outcomes s=os.csv --treatments n=tn.csv --treatments s=ts.csv {LABELS}"
)
SWAPPED = FOUR.replace("n=on.csv", "n=?").replace("n=tn.csv", "n=on.csv").replace("?", "tn.csv")
PARTY = "aggregate --plan plan.sums --outcomes n=on.csv --outcome y"
STREAM = f"fit --chunks {FOUR}".replace("n=on.csv", "n=tables")

MISTAKES = [
    ("chek", "No such command 'chek'"),
    ("--verbose", "No such option"),
    ("check", "Missing: --outcomes, --treatments"),
    (f"check {TABLES} --treatment t", "Missing: --outcome."),
    (f"{CHECK} --features f0,f0", "--features names the column 'f0' twice"),
    (f"{CHUNKS} --features f0,f0", "--features names the column 'f0' twice"),
    (f"{CHECK} --features region", "'region', which is the column of --population"),
    (f"{CHUNKS} --features region,f0", "'region', which is the column of --population"),
    (f"{FIT} --features f0,y", "'y', which is the column of --outcome"),
    (f"{FIT} --features t", "'t', which is the column of --treatment"),
    (f"{FIT} --features f0,w --weight w", "'w', which is the column of --weight"),
    (f"{FIT} --features=", "--features names no column"),
    (f"{CHUNKS} --features=,", "--features names no column"),
    (f"{FIT} --features f0,f9", "has no column 'f9'"),
    (f"{FIT} --ignore id,f0,f1,w", "no column is left that could be a feature"),
    (f"{CHUNKS} --ignore id,f0,f1,w", "no column is left that could be a feature"),
    (f"{FIT} --features f0 --ignore f0", "--ignore leaves out all columns of --features"),
    (f"{CHUNKS} --features f0 --ignore f0", "--ignore leaves out all columns of --features"),
    (f"{FIT} --ignore id,id", "--ignore names the column 'id' twice"),
    (f"{FIT} --ignore nobody", "--ignore names 'nobody'"),
    (f"fit {TABLES} --outcome y --treatment y", "--outcome and --treatment both name the column"),
    (f"fit {TABLES} --outcome region --treatment t", "--outcome and --population both name"),
    (f"{FIT} --weight y", "--outcome and --weight both name the column 'y'"),
    (f"{FIT} --weight region", "--population and --weight both name the column 'region'"),
    (f"{FIT} --weight=", "--weight is empty"),
    (f"fit {LABELS} --outcomes o.csv --treatments t.csv --population=", "--population is empty"),
    (f"{FIT} --weight heavy", "has no column 'heavy'"),
    (f"fit {TABLES} --outcome y --treatment=", "--treatment is empty"),
    (f"{FIT} --seed -1", "Invalid value for '--seed'"),
    (f"{FIT} --seed 4294967296", "Invalid value for '--seed'"),
    (f"{FIT} --seed one", "Invalid value for '--seed'"),
    (f"{FIT} --estimator best", "--estimator must be one of"),
    (f"{FIT} --moments arrays.sums", "so --outcomes cannot be given beside it"),
    (f"{FIT} --checkpoint c.sums", "--checkpoint is for tables that are read with --chunks"),
    (f"{CHUNKS} --estimator plugin", "which --estimator plugin cannot do"),
    (f"{FIT} extra.csv", "'extra.csv' belongs to no option. Repeat the option for each file"),
    (f"{FIT} --config people.csv", "is not TOML"),
    (f"{FIT} --config none.toml", "unjoined init FOLDER --out FILE.toml writes such a file"),
    (f"{FIT} --treated 0 --treated 1", "treated names all that column"),
    ("fit --moments no.sums", "there is no file of sums 'no.sums'"),
    ("fit --moments o.csv", "'o.csv' is not a file of sums"),
    (f"fit --outcomes o.csv --treatments no.csv {LABELS} --population region", "no file 'no.csv'"),
    (f"fit --outcomes o.csv --treatments no.txt {LABELS} --population region", "no file 'no.txt'"),
    (f"fit --outcomes o.csv --treatments empty.csv {LABELS} --population region", "is empty"),
    (f"fit --outcomes o.csv --treatments deep {LABELS} --population region", "holds no file"),
    (
        f"fit --outcomes n= --outcomes s=o.csv --treatments t.csv {LABELS}",
        "--outcomes 'n=' names no file",
    ),
    (f"fit --outcomes =o.csv --outcomes s=t.csv --treatments people.csv {LABELS}", "NAME=FILE"),
    (f"{SCORE} --model gone.skops", "there is no model file 'gone.skops'"),
    (f"{SCORE} --model no.skops", "is not a model file"),
    (f"{SCORE} --model arrays.skops", "the model was fitted to plain arrays"),
    (f"{SCORE} --model arrays.skops --keep id,id", "--keep names the column 'id' twice"),
    (f"{SCORE} --model arrays.skops --keep uplift", "--keep cannot copy the column 'uplift'"),
    (f"{SCORE} --model arrays.skops --keep id,rank", "--keep cannot copy the column 'rank'"),
    (f"{SCORE} --model arrays.skops --keep treat", "--keep cannot copy the column 'treat'"),
    (f"{SCORE} --model arrays.skops --keep row", "--keep cannot copy the column 'row'"),
    (f"{SCORE} --model arrays.skops --share nan", "--share must lie in [0, 1], got nan"),
    (f"{SCORE} --model arrays.skops --share -0.1", "--share must lie in [0, 1], got -0.1"),
    (f"{SCORE} --model arrays.skops --share inf", "--share must lie in [0, 1], got inf"),
    (PLAN, "Missing option '--feature'"),
    (f"{PLAN} --feature f0=nan:1", "typical value of f0 must be a finite number, got nan"),
    (f"{PLAN} --feature f0=inf:1", "typical value of f0 must be a finite number, got inf"),
    (f"{PLAN} --feature f0=0:0", "spread of f0 must be a finite number above 0, got 0.0"),
    (f"{PLAN} --feature f0=0:-1", "spread of f0 must be a finite number above 0, got -1.0"),
    (f"{PLAN} --feature f0=0:nan", "spread of f0 must be a finite number above 0, got nan"),
    (f"{PLAN} --feature f0=0:inf", "spread of f0 must be a finite number above 0, got inf"),
    (f"{PLAN} --feature f0=0", "--feature needs two numbers"),
    (f"{PLAN} --feature f0", "--feature must be NAME=TYPICAL:SPREAD"),
    (f"{PLAN} --feature =0:1", "--feature must be NAME=TYPICAL:SPREAD"),
    (f"{PLAN} --feature f0=0:1 --feature f0=1:1", "--feature was given twice for 'f0'"),
    (f"{PLAN} --feature f0=0:1 --functions 0", "Invalid value for '--functions'"),
    (f"{PLAN} --feature f0=0:1 --groups 1", "Invalid value for '--groups'"),
    (f"{PLAN} --feature f0=0:1 --width nan", "width must be a finite number above 0, got nan"),
    (f"{PLAN} --feature f0=0:1 --width 0", "width must be a finite number above 0, got 0.0"),
    (f"{PLAN} --feature f0=0:1 --seed -1", "Invalid value for '--seed'"),
    (f"{PLAN} --feature f0=0:1 --outcome-values 0", "--outcome-values needs two numbers"),
    (f"{PLAN} --feature f0=0:1 --outcome-values 1,1", "must be two different numbers"),
    (f"{PLAN} --feature f0=0:1 --outcome-values 0,nan", "outcome_values must be a finite number"),
    ("plan --feature f0=0:1 --populations n --out p.sums", "a plan needs two populations"),
    (f"{PLAN} --feature f0=0:1 --functions 100000000", "n_functions must be 5,000 at most"),
    (f"{PLAN} --feature f0=1e300:1", "typical value of f0 must not be beyond 1e+30"),
    (f"{PLAN} --feature f0=0:1e-300", "spread of f0 must be 1e-30 to 1e+30"),
    ("plan --feature f0=0:1 --populations n,n --out p.sums", "a plan needs two populations"),
    ("plan --feature f0=0:1 --populations n, --out p.sums", "a plan needs two populations"),
    ("plan --feature f0=0:1 --populations n,s,n --out p.sums", "a plan needs two populations"),
    (SUMS, "no rows"),
    (f"{SUMS} --outcomes o.csv --outcome y", "write --outcomes NAME=FILE"),
    (f"{SUMS} --outcomes o.csv --population region", "--outcomes needs --outcome"),
    (f"{PART} --treatment y", "--outcome and --treatment both name the column 'y'"),
    (f"{PART} --weight region", "--population and --weight both name the column 'region'"),
    (f"{PART} --min-count 1", "Invalid value for '--min-count'"),
    (f"{PART} --threads 0", "--threads must not be 0"),
    ("aggregate --plan o.csv --out a.sums", "'o.csv' is not a file of sums"),
    ("aggregate --plan arrays.sums --out a.sums", "has no feature names"),
    ("merge --out a.sums", "Missing argument"),
    ("merge arrays.sums plan.sums --out a.sums", "cannot be added"),
    ("merge arrays.sums gone.sums --out a.sums", "there is no file of sums 'gone.sums'"),
    ("demo --out o.csv", "'o.csv' is a file"),
    ("demo --rows 99", "Invalid value for '--rows'"),
    ("demo --seed -1", "Invalid value for '--seed'"),
    # what cannot be fitted
    (f"fit {FOUR} --outcome bougth --model n.skops", "has no column 'bougth'"),
    (f"fit --outcomes n=on.csv --treatments n=tn.csv {LABELS}", "once for each population, as"),
    (f"fit {FOUR} --population region", "with --population there is one --outcomes"),
    (f"fit {FOUR} --outcomes s=o.csv", "given twice for population 's'"),
    (f"fit {FOUR.replace('n=on.csv', 'n=none.csv')}", "there is no file 'none.csv'"),
    (f"fit {FOUR.replace('n=on.csv', 'n=tn.csv')} --outcome y --model n.skops", "same file"),
    (f"fit {FOUR.replace('s=os.csv', 's=other.parquet')} --model n.skops", "no column 'y'"),
    (f"fit {FOUR.replace('s=ts.csv', 's=maybe.csv')} --model n.skops", "--treated"),
    (f"{FIT} --treated often", "often"),
    (f"{CHUNKS} --features f9", "has no column 'f9'"),
    (f"{CHUNKS} --ignore nobody", "ignore names 'nobody'"),
    (f"fit --outcomes ragged.csv --treatments t.csv --population region {LABELS}", "ragged.csv"),
    (f"fit --outcomes twice.csv --treatments t.csv --population region {LABELS}", "two columns"),
    (f"fit --outcomes noname.csv --treatments t.csv --population region {LABELS}", "no name"),
    (f"check --outcomes notes.txt --treatments t.csv --population region {LABELS}", "not a table"),
    (f"check --outcomes https://x.y/o.csv --treatments t.csv --population region {LABELS}", "addr"),
    (f"{FIT} --no-chunks --checkpoint c.sums", "--checkpoint is for tables"),
    ("fit --moments arrays.sums --estimator plugin", "only minmax can be fitted, not 'plugin'"),
    ("fit --moments arrays.sums --chunks", "so --chunks cannot be given beside it"),
    ("fit --moments arrays.sums --checkpoint c.sums", "so --checkpoint cannot be given beside"),
    ("fit --moments no.skops", "'no.skops' is not a file of sums"),
    # files that are not what their names say, and labels that nobody can read
    (f"fit {FOUR.replace('on.csv', 'bytes.csv')}", "'bytes.csv' is not a text file"),
    (f"fit {FOUR.replace('on.csv', 'false.xlsx')}", "cannot be read as an Excel workbook (.xlsx)"),
    (f"fit {FOUR.replace('on.csv', 'false.csv.gz')}", "not packed as its ending says"),
    (
        f"fit {FOUR.replace('on.csv', 'bad.jsonl')}",
        "'bad.jsonl' cannot be read as jsonl: line 2",
    ),
    (f"{STREAM.replace('n=tables', 'n=bad.jsonl')}", "line 2 is not a JSON object"),
    (f"fit {FOUR.replace('on.csv', 'unit.csv')}", "Write the number alone"),
    (f"fit {FOUR.replace('on.csv', 'na.csv')}", "got 'n/a'. Leave out rows without an outcome"),
    (f"fit {FOUR.replace('on.csv', 'gap.csv')}", "column 'y' is missing; 12 of the 24 rows"),
    (f"fit {FOUR.replace('tn.csv', 'ab.csv')} --treated A", "Write treatments alike in all tables"),
    (f"{STREAM.replace('tables', 'on.csv').replace('tn.csv', 'ab.csv')} --treated A", "alike"),
    (f"{FIT} --estimator Auto", "'FourNNR', got 'Auto'. Did you mean 'auto'?"),
    (f"{FIT.replace('new.skops', 'new.pkl')}", "--model 'new.pkl' must end in .skops"),
    (f"{FIT.replace('new.skops', 'book.xlsx')} --force", "'book.xlsx' exists and is not a model"),
    (f"{FIT} --seed one", "Invalid value for '--seed': expected a whole number, got 'one'."),
    (f"{GOOD} --top 30%", "got '30%'. For a share of the people write --share 30%."),
    (f"{FIT} --out new.skops", "No such option: --out. A fit writes its model to --model."),
    (f"{GOOD} --budget 1,000 --cost 1", "expected a number such as 1000 or 0.5, got '1,000'."),
    ("report --model m.skops --out r.html --table people.csv --list l.txt " + FOUR, "must end in"),
    ("fit --config command.toml", "there is no setting '[fitt]'"),
    ("init o.csv t.csv --outcome y --treatment y", "--outcome and --treatment both name 'y'"),
    ("init on.csv os.csv tn.csv ts.csv --outcome y --population region", "--population is for one"),
    ("init o.csv other.parquet --outcome y", "cannot tell which column is the treatment"),
    # settings
    ("fit --config gone.toml", "--config 'gone.toml' cannot be read"),
    ("fit --config deep", "--config 'deep' cannot be read"),
    ("fit --config broken.toml", "is not TOML"),
    ("fit --config nested.toml", "is not TOML"),
    ("fit --config typo.toml", "there is no setting 'outcoms' above all sections. Did you mean"),
    ("fit --config section.toml", "'estimater' in the section [fit]. Did you mean 'estimator'?"),
    ("fit --config blank.toml", "'outcomes' is empty. Name a file, or leave it out"),
    ("score --model m.skops --table '' --out s.csv", "--table is empty. Say what it is"),
    ("score --model m.skops --table= --out s.csv", "--table is empty. Say what it is"),
    ("score --model ' ' --table people.csv --out s.csv", "--model is empty. Say what it is"),
    ("init ''", "a word of the command is empty. Say what it is"),
    ("score --model m.skops --table pipe.csv --out s.csv", "'pipe.csv' is a pipe or a device"),
    ("fit --config number.toml", "'outcomes' must be a path in quotes, got 7"),
    ("check --config good.toml", "has no column 'yy'"),
    ("check --config good.toml --outcome t", "--outcome and --treatment both name"),
    ("plan-study --gap 0.4 --outcome-sd 1 --half-width 1e-300", "Change the unit of the outcome"),
    ("plan-study --gap 0.4 --outcome-sd 1e300 --half-width 1", "Change the unit of the outcome"),
    ("plan-study --gap 1e-200 --outcome-sd 1 --half-width 1", "gap must lie above 0"),
    (f"plan-study {FOUR} --gap 0.4 --half-width 1", "takes a pilot or a guess, not both"),
    (f"check {SWAPPED}", "the outcome table of population 'n' has no column 'y'"),
    ("plan-study --gap 0.4 --outcome-sd 1 --half-width 0", "--half-width must be a finite number"),
    (
        "plan-study --gap 0.4 --outcome-sd 1 --half-width 0.1 --standard-error 0.1",
        "give --half-width or --standard-error, not both",
    ),
    (
        "plan-study --gap 0.4 --outcome-sd 1 --half-width 0.1 --level 95",
        "--level must lie strictly",
    ),
    ("init gone", "there is no file or folder 'gone'"),
    ("init deep", "found 0 tables in 'deep'"),
    ("init o.csv", "found 1 table in 'o.csv'"),
    ("init o.csv t.csv --outcome q", "--outcome 'q' must be a column of some tables"),
    ("init o.csv t.csv --outcome region", "not of others, and all have it."),
    ("init o.csv t.csv", "cannot tell which column is the outcome"),
    ("init o.csv t.csv --outcome y --out notes.txt", "exists and is not a file of settings"),
    ("init o.csv t.csv --outcome y --out new.yaml", "must end in .toml"),
    ("init o.csv os.csv t.csv --outcome y", "cannot tell populations by the names of tables"),
    # whom to treat
    (f"{SCORE} --model other.parquet", "is not a model file"),
    ("score --model m.skops --table nobody.csv --out s.csv", "there is nobody to score"),
    ("score --model m.skops --table other.parquet --out s.csv", "'f1'"),
    ("score --model m.skops --table words.csv --out s.csv", "column 'f0' holds"),
    ("score --model m.skops --table gone.csv --out s.csv", "there is no file 'gone.csv'"),
    ("score --model m.skops --table no.skops --out s.csv", "is not a table this program reads"),
    ("score --model m.skops --table notes.txt --out s.csv", "is not a table this program reads"),
    ("score --model m.skops --table people.csv --out s.xls", "must end in"),
    ("score --model m.skops --table people.csv --out s", "must end in"),
    (f"{GOOD} --keep iid", "lacks the column 'iid'"),
    (f"{GOOD} --share lots", "--share must be a share such as 30% or 0.3, got 'lots'"),
    (f"{GOOD} --share 30", "Write 30% for percent"),
    (f"{GOOD} --share 30% --top 5", "--share and --top both say how many"),
    (f"{GOOD} --top 5 --budget 10 --cost 1", "--top and --budget both say how many"),
    (f"{GOOD} --top -1", "Invalid value for '--top'"),
    (f"{GOOD} --budget 10", "--budget needs --cost"),
    (f"{GOOD} --budget 10 --cost 0", "--budget needs --cost above 0"),
    (f"{GOOD} --share 130%", "--share must be 100% of people at most, got 130%"),
    (f"{GOOD} --budget -10 --cost 1", "--budget must be"),
    (f"{GOOD} --budget nan --cost 1", "--budget must be"),
    (f"{GOOD} --cost 1", "--cost needs --value"),
    (f"{GOOD} --cost -1 --value 1", "--cost must be"),
    (f"{GOOD} --value inf", "--value must be"),
    (f"{GOOD} --threshold nan", "--threshold must be"),
    (f"{GOOD} --threshold 10%", "Invalid value for '--threshold'"),
    # databases and queries
    (f"{ASK} shop.duckdb", "'shop.duckdb' holds 2 tables: 'other', 'people'. Say which one, as"),
    (f"{ASK} shop.duckdb:peple", "has no table 'peple'. Its tables are 'other', 'people'. Did you"),
    (f"{ASK} shop.duckdb:", "'shop.duckdb:' names no table. Write shop.duckdb:TABLE"),
    (f"{ASK} gone.duckdb:people", "there is no database 'gone.duckdb'"),
    (f"{ASK} not.duckdb:people", "'not.duckdb' is not a database that DuckDB"),
    (f"{ASK} 'SELECT f0, f1 FRM people'", "cannot be run. DuckDB says: syntax error"),
    (f"{ASK} 'FROM peopel'", "cannot be run. DuckDB says: Table with name peopel"),
    (f"{ASK} 'from people.cvs'", "If it is the name of a file, write ./from people.cvs."),
    (f"{ASK} shop.duckdb:other", "'shop.duckdb:other' lacks the columns 'f0', 'f1'; its columns"),
    (f"{ASK} 'shop.duckdb:SELECT 1; DROP TABLE people'", "must be one SELECT that only reads"),
    (f"{ASK} 'SELECT 1; CREATE TABLE a AS SELECT 1'", "got SELECT and CREATE"),
    (f"{ASK} 'shop.duckdb:DROP TABLE people'", "has no table 'DROP TABLE people'"),
    (f"{ASK} \"FROM 'http://localhost:1/x.csv'\"", "needs the extension httpfs"),
    (f"{ASK} \"FROM 'people.csv' LIMIT 0\"", "there is nobody to score"),
    (f"{ASK} \"FROM 'people.csv'\" --out people.csv --force", "are the same file"),
    (f"{ASK} \"FROM 'p*.csv'\" --out people.csv --force", "are the same file"),
    (f"{ASK} shop.duckdb:people --out shop.duckdb --force", "are the same file"),
    (
        "fit --outcomes n=shop.duckdb:people --outcomes s=shop.duckdb:people --treatments n=t.csv "
        f"--treatments s=ts.csv {LABELS}",
        "--outcomes and --outcomes both name 'shop.duckdb:people'",
    ),
    # export
    ("export --model m.skops", "export needs --onnx FILE, --sql FILE, or both"),
    ("export --model gone.skops --sql s.sql", "there is no model file"),
    # nothing is overwritten
    (f"fit {FOUR} --model notes.txt --force", "'notes.txt' exists and is not a model"),
    (f"fit {FOUR} --model arrays.sums --force", "'arrays.sums' exists and is not a model"),
    (f"fit {FOUR} --model people.csv --force", "'people.csv' exists and is not a model"),
    (f"fit {FOUR} --model m.skops", "'m.skops' exists. Add --force to replace it"),
    (f"{PARTY} --out notes.txt", "'notes.txt' exists and is not a file of sums"),
    (f"{PARTY} --checkpoint people.csv --out o", "'people.csv' exists and is not a file of sums"),
    ("merge arrays.sums plan.sums --out m.skops", "'m.skops' exists and is not a file of sums"),
    (f"{PLAN.replace('p.sums', 'plan.sums')} --feature a=1:2", "exists. Add --force"),
    (f"{PLAN.replace('p.sums', 'notes.txt')} --feature a=1:2", "exists and is not a file of sums"),
    (f"{PLAN.replace('p.sums', 'pipe')} --feature a=1:2", "'pipe' is not an ordinary file"),
    (f"{PLAN.replace('p.sums', 'tables')} --feature a=1:2", "'tables' is a folder"),
    ("score --model m.skops --table people.csv --out pipe", "'pipe' is not an ordinary file"),
    ("score --model m.skops --table people.csv --out o.csv", "'o.csv' exists. Add --force"),
    (f"fit {FOUR} --model no/m.skops", "there is no folder 'no' to write to (--model)"),
    ("demo --out tables", "the folder 'tables' is not empty. Add --force"),
    (f"fit {FOUR} --chunks --checkpoint P --model P", "are the same file"),
    (f"fit {FOUR} --chunks --checkpoint ./x/../P --model P", "are the same file"),
    (f"fit {FOUR} --chunks --checkpoint P --model p", "are the same file"),
    (f"fit {FOUR} --chunks --checkpoint gone.skops --model dangling.skops", "are the same file"),
    (f"fit {FOUR} --model on.csv --force", "are the same file"),
    (f"fit --outcomes o.csv --treatments t.csv {LABELS} --model link.csv", "are the same file"),
    ("fit --moments arrays.sums --model arrays.sums", "are the same file"),
    (f"{PARTY} --checkpoint P --out P", "are the same file"),
    (f"{PARTY} --out plan.sums --force", "are the same file"),
    (f"{PARTY} --out on.csv --force", "are the same file"),
    ("score --model m.skops --table people.csv --out people.csv --force", "are the same file"),
    ("score --model m.skops --table people.csv --out ./people.csv", "are the same file"),
    ("score --model m.skops --table people.csv --out m.skops", "are the same file"),
    ("score --model m.skops --table o.csv --out link.csv --force", "are the same file"),
    ("merge arrays.sums plan.sums --out plan.sums --force", "are the same file"),
    (f"check {FOUR.replace('n=on.csv', 'n=o.csv').replace('os.csv', 'link.csv')}", "the same file"),
    (f"{STREAM} --model tables/m.csv", "is among the tables in the folder 'tables'"),
    (f"{STREAM} --model hard.skops", "is among the tables in the folder 'tables'"),
    (f"{STREAM} --checkpoint tables/inner/c.parquet --model n.skops", "is among the tables"),
    (f"{STREAM.replace('os.csv', 'tables/inner')} --model n.skops", "is among the tables"),
    (f"{STREAM.replace('os.csv', 'tables/inner/a.csv')} --model n.skops", "is among the tables"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gets_one_sentence_and_nothing_is_written(capsys, folder, line, message):
    before = contents(folder)
    with contextlib.chdir(folder):
        code, out, err = run(capsys, *shlex.split(line))
    assert code == 2
    assert out == ""
    assert err.startswith("unjoined: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert contents(folder) == before


def labels(**changes):
    """Tables that are right but for some changes."""
    right = {"outcomes": frames("o", "y"), "treatments": frames("t", "t")}
    return SeparateLabels.from_tables(**right | {"outcome": "y", "treatment": "t"} | changes)


def renamed(tables, names):
    return {key: frame.set_axis(names, axis=1) for key, frame in tables.items()}


def changed(kind, label, **columns):
    tables = frames(kind, label)
    return tables | {"s": tables["s"].assign(**columns)}


HELPFUL = (unjoined.errors.UnjoinedError, NotFittedError, ValueError)
DATA = dict(paper_problem(b=5.0).draw(40, random_state=0))
MORE = dict(paper_problem(b=5.0).draw(100, random_state=0))
WRONG = {
    "outcome column": (lambda: labels(outcome="z"), "has no column 'z'"),
    "treatment column": (lambda: labels(treatment="z"), "has no column 'z'"),
    "weight column": (lambda: labels(sample_weight="z"), "has no column 'z'"),
    "one population": (lambda: labels(outcomes={"n": frames("o", "y")["n"]}), "n"),
    "other names": (
        lambda: labels(outcomes=dict(zip("ab", frames("o", "y").values(), strict=True))),
        "population",
    ),
    "no table": (lambda: labels(outcomes={}, treatments={}), "table"),
    "a list": (lambda: labels(outcomes={"n": [1], "s": [2]}), "data frame"),
    "words for treatments": (
        lambda: labels(treatments=changed("t", "t", t=["maybe", "never"] * 60)),
        "treat",
    ),
    "tables in a list": (lambda: labels(outcomes=[*frames("o", "y").values()]), "mapping of popul"),
    "a table alone": (lambda: labels(outcomes=frames("o", "y")["n"]), "go to from_frames"),
    "paths": (lambda: labels(outcomes={"n": "on.csv", "s": "os.csv"}), "unjoined.read_table"),
    "lazy tables": (
        lambda: labels(outcomes={k: pl.LazyFrame(v) for k, v in frames("o", "y").items()}),
        "collect()",
    ),
    "numbers for names": (
        lambda: labels(outcomes=renamed(frames("o", "y"), [0, 1, "y"])),
        "must be named by text, got 0, 1",
    ),
    "two columns of one name": (
        lambda: labels(outcomes=renamed(frames("o", "y"), ["f0", "f0", "y"])),
        "two columns named 'f0'",
    ),
    "a series for a name": (lambda: labels(outcome=pd.Series([1])), "must be the name of a column"),
    "features as one word": (lambda: labels(features="f0"), "Write ['f0']"),
    "columns to leave out as one word": (lambda: labels(ignore="f0"), "Write ['f0']"),
    "a label for a feature": (lambda: labels(features=["f0", "y"]), "'y', which is the outcome"),
    "no features by name": (lambda: labels(features=[]), "features leaves no column"),
    "treatments in two ways": (
        lambda: labels(treatments=changed("t", "t", t=["A", "B"] * 60), treated="A"),
        "Write treatments alike in all tables",
    ),
    "predict labels": (lambda: FourLogistic().fit(**MORE).predict(labels()), "Pass data.X"),
    "labels as a matrix": (
        lambda: StandardScaler().fit(labels()),
        "is not a matrix",
    ),
    "predict a dict": (lambda: FourLogistic().fit(**labels()).predict({"f0": [1]}), "data frame"),
    "predict lazily": (
        lambda: FourLogistic().fit(**labels()).predict(pl.LazyFrame({"f0": [1.0]})),
        "collect()",
    ),
    "read a number": (lambda: read_table(3), "a path or a query, got int"),
    "write a dict": (lambda: write_table({"a": [1]}, "x.csv"), "data frame, got a dict"),
    "encode before fit": (lambda: TableEncoder().transform(pd.DataFrame({"a": [1]})), "not fitted"),
    "save over a table": (
        lambda: save_model(FourLogistic().fit(**MORE), "people.csv"),
        "'people.csv' exists and is not a model",
    ),
    "save over a workbook": (
        lambda: save_model(FourLogistic().fit(**MORE), "book.xlsx"),
        "'book.xlsx' exists and is not a model",
    ),
    "grid without routing": (
        lambda: GridSearchCV(FourLogistic(), {"min_gap": [0.1]}).fit(**MORE),
        "choose by nothing. In GridSearchCV",
    ),
    "grid of a pipeline without routing": (
        lambda: GridSearchCV(make_pipeline(StandardScaler(), FourLogistic()), {}).fit(MORE["X"]),
        "choose by nothing. In GridSearchCV",
    ),
    "a pipeline without routing": (
        lambda: make_pipeline(StandardScaler(), FourLogistic()).fit(**labels()),
        "without metadata routing, a Pipeline cannot hand kind and population on to its last step",
    ),
    "the data set in a pipeline of columns": (
        lambda: make_pipeline(
            make_column_transformer((StandardScaler(), ["f0"])), FourLogistic()
        ).fit(labels()),
        "pipeline.fit(**data) with scikit-learn's parts, after sklearn.set_config(enable_metadata",
    ),
    "a row of the data set": (lambda: labels()[0], "is not a matrix. Pass data.X"),
    "scores without routing": (
        lambda: cross_val_score(FourLogistic(), MORE["X"], MORE["y"]),
        "choose by nothing. In GridSearchCV",
    ),
    "a frame of no library": (
        lambda: unjoined.metrics.plan_study(
            unjoined.metrics.StudyGuess(0.4, 0.3), half_width=0.1
        ).to_frame("panda"),
        "Did you mean 'pandas'?",
    ),
    "three treatments": (
        lambda: labels(treatments=changed("t", "t", t=np.arange(120) % 3)),
        "treat",
    ),
    "no such treated": (lambda: labels(treated="often"), "often"),
    "missing outcome": (
        lambda: labels(outcomes=changed("o", "y", y=[np.nan] + [1.0] * 119)),
        "y",
    ),
    "infinite outcome": (
        lambda: labels(outcomes=changed("o", "y", y=[np.inf] + [1.0] * 119)),
        "y",
    ),
    "words for outcomes": (lambda: labels(outcomes=changed("o", "y", y=["a"] * 120)), "y"),
    "constant outcome": (
        lambda: Uplift().fit(**{**DATA, "y": np.where(DATA["kind"] == "outcome", 1.0, DATA["y"])}),
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
    "unknown kind": (lambda: Uplift().fit(**DATA | {"kind": ["x"] * 160}), "kind"),
    "short labels": (lambda: Uplift().fit(**DATA | {"y": DATA["y"][:-1]}), "160"),
    "short kinds": (lambda: Uplift().fit(**DATA | {"kind": DATA["kind"][:-1]}), "160"),
    "infinite feature": (
        lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), np.inf)}),
        "inf in 160 of 160 rows",
    ),
    "huge feature": (lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), 1e200)}), "1e"),
    "missing number in an array": (
        lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), np.nan)}),
        "NaN in 160 of 160 rows",
    ),
    "flat features": (lambda: Uplift().fit(**DATA | {"X": np.ones(160)}), "2D"),
    "no features": (lambda: Uplift().fit(**DATA | {"X": np.ones((160, 0))}), "0 feature"),
    "text in an array": (lambda: Uplift().fit(**DATA | {"X": np.full((160, 2), "a")}), "number"),
    "parameter of a word": (lambda: MinMaxUplift(basis="magic").fit(**DATA), "basis"),
    "parameter of a number": (lambda: MinMaxUplift(n_centers=0).fit(**DATA), "n_centers"),
    "negative ridge": (lambda: MinMaxUplift(ridge_f=-1.0).fit(**DATA), "ridge_f"),
    "family": (lambda: MixtureUplift(family="poisson").fit(**DATA), "family"),
    "bounds": (lambda: MinMaxUplift(bounds=-1.0).fit(**DATA), "bounds"),
    "weighted basis": (lambda: WeightedUplift(basis=3).fit(**DATA), "basis"),
    "predict before fit": (lambda: Uplift().predict(np.ones((2, 2))), "not fitted"),
    "other width": (
        lambda: FourLogistic().fit(**MORE).predict(np.ones((2, 3))),
        "3 features",
    ),
    "lost column": (
        lambda: FourLogistic().fit(**labels()).predict(pd.DataFrame({"f0": [1.0]})),
        "f1",
    ),
    "other spelling": (
        lambda: FourLogistic().fit(**labels()).predict(pl.DataFrame({"f0": [1.0], "F1": [1.0]})),
        "f1",
    ),
    "text for numbers": (
        lambda: FourLogistic().fit(**labels()).predict(pd.DataFrame({"f0": ["a"], "f1": [1.0]})),
        "f0",
    ),
    "save unfitted": (lambda: save_model(Uplift(), "x.skops"), "not fitted"),
    "save nowhere": (
        lambda: save_model(FourLogistic().fit(**MORE), "no/where.skops"),
        "there is no folder",
    ),
    "load nothing": (lambda: load_model("gone.skops"), "there is no model file"),
    "load a table": (lambda: load_model("o.csv"), "is not a model file"),
    "read nothing": (lambda: read_table("gone.csv"), "there is no file"),
    "read a folder": (lambda: read_table("deep"), "is a folder"),
    "read text": (lambda: read_table("no.skops"), "is not a table this program reads"),
    "read empty": (lambda: read_table("empty.csv"), "is empty"),
    "read ragged": (lambda: read_table("ragged.csv"), "ragged.csv"),
    "write a picture": (lambda: write_table(table("y"), "x.png"), "must end in"),
    "share": (lambda: unjoined.targeting.top_share_rule([0.1], 1.5), "share must lie in [0, 1]"),
    "cost": (lambda: unjoined.targeting.budget_rule([0.1], 1.0, cost=0.0), "cost"),
    "budget": (lambda: unjoined.targeting.budget_rule([0.1], -1.0), "budget"),
    "lengths": (lambda: unjoined.targeting.expected_gain([0.1], [1.0, 0.0]), "has 1, rule has 2"),
    "level": (lambda: unjoined.metrics.Estimate(0.0, 1.0).interval(95), "Write 0.95"),
    "policy": (
        lambda: unjoin(np.ones((9, 1)), [0, 1, 0] * 3, [0, 1, 1] * 3, policies={"a": 2, "b": 0}),
        "polic",
    ),
}


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_gets_words_that_help(folder, name):
    call, words = WRONG[name]
    before = contents(folder)
    with contextlib.chdir(folder), pytest.raises(HELPFUL) as raised:
        call()
    said = str(raised.value)
    assert words in said
    assert "Traceback" not in said
    assert contents(folder) == before


def test_there_are_many_mistakes():
    assert len(MISTAKES) + len(WRONG) >= 300


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
