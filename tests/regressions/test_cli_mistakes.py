"""Mistyped command lines: one sentence that helps, exit code 2, and nothing written."""

import contextlib

import numpy as np
import pyarrow as pa
import pytest

from unjoined import MinMaxUplift, save_model
from unjoined.cli import main
from unjoined.data import paper_problem, write_table
from unjoined.reproduce import draw_customers, write_campaign
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small tables, models fitted to a table and to arrays, and sums of arrays."""
    path = tmp_path_factory.mktemp("mistakes")
    write_table(table("y"), path / "o.csv")
    write_table(table("t"), path / "t.csv")
    write_table(pa.table({"f0": ["x"], "f1": [1.0], "id": [1]}), path / "words.csv")
    write_table(table("y", 24).append_column("uplift", [[0] * 24]), path / "people.csv")
    data = paper_problem(b=5.0).draw(100, random_state=0)
    model = MinMaxUplift(n_centers=5, n_jobs=1).fit(**data)
    save_model(model, path / "arrays.skops")
    write_sums(MinMaxUplift(n_centers=5, n_jobs=1).collect_sums(data), path / "arrays.sums")
    line = "plan --feature f0=0:1 --feature f1=0:1 --populations n,s --functions 2 --out"
    with pytest.raises(SystemExit) as stop:
        main([*line.split(), str(path / "plan.sums")])
    assert not stop.value.code
    (path / "empty.csv").write_text("")
    (path / "deep").mkdir()
    (path / "no.skops").write_text("no model")
    return path


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.iterdir()}


TABLES = "--outcomes o.csv --treatments t.csv --population region"
LABELS = "--outcome y --treatment t"
CHECK = f"check {TABLES} {LABELS} --ignore id"
FIT = f"fit {TABLES} {LABELS} --model m.skops"
CHUNKS = f"{FIT} --chunks"
SCORE = "score --table people.csv --out s.csv"
PLAN = "plan --populations n,s --out p.sums"
SUMS = "aggregate --plan plan.sums --out a.sums"
PART = f"{SUMS} --outcomes o.csv --outcome y --population region"

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
    (f"{FIT} --features f0,f9", "lacks the column 'f9'"),
    (f"{FIT} --ignore id,f0,f1,w", "--ignore leaves no feature"),
    (f"{CHUNKS} --ignore id,f0,f1,w", "--ignore leaves no feature"),
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
    (f"fit {TABLES} --outcome y --treatment=", "Missing: --treatment"),
    (f"{FIT} --seed -1", "Invalid value for '--seed'"),
    (f"{FIT} --seed 4294967296", "Invalid value for '--seed'"),
    (f"{FIT} --seed one", "Invalid value for '--seed'"),
    (f"{FIT} --estimator best", "--estimator must be one of"),
    (f"{FIT} --moments arrays.sums", "so --outcomes cannot be given beside it"),
    (f"{FIT} --checkpoint c.sums", "--checkpoint is for tables that are read with --chunks"),
    (f"{CHUNKS} --estimator plugin", "which --estimator plugin cannot do"),
    (f"{FIT} extra.csv", "unexpected extra argument"),
    ("fit --moments no.sums", "there is no file of sums 'no.sums'"),
    ("fit --moments o.csv", "'o.csv' is no file of sums"),
    (f"fit --outcomes o.csv --treatments no.csv {LABELS} --population region", "no file 'no.csv'"),
    (f"fit --outcomes o.csv --treatments no.txt {LABELS} --population region", "no file 'no.txt'"),
    (f"fit --outcomes o.csv --treatments empty.csv {LABELS} --population region", "is empty"),
    (f"fit --outcomes o.csv --treatments deep {LABELS} --population region", "is a folder"),
    (
        f"fit --outcomes n= --outcomes s=o.csv --treatments t.csv {LABELS}",
        "--outcomes 'n=' names no file",
    ),
    (f"fit --outcomes =o.csv --outcomes s=t.csv --treatments people.csv {LABELS}", "NAME=FILE"),
    (f"{SCORE} --model m.skops", "there is no model file 'm.skops'"),
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
    (f"{SCORE} --model arrays.skops --share 30%", "Invalid value for '--share'"),
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
    ("aggregate --plan o.csv --out a.sums", "'o.csv' is no file of sums"),
    ("aggregate --plan arrays.sums --out a.sums", "has no feature names"),
    ("merge --out a.sums", "Missing argument"),
    ("merge arrays.sums plan.sums --out a.sums", "cannot be added"),
    ("merge arrays.sums gone.sums --out a.sums", "there is no file of sums 'gone.sums'"),
    ("demo --out o.csv", "'o.csv' is a file"),
    ("demo --rows 99", "Invalid value for '--rows'"),
    ("demo --seed -1", "Invalid value for '--seed'"),
    ("reproduce", "Missing argument"),
    ("reproduce everything", "study must be one of"),
    ("reproduce synthetic --trials 0", "Invalid value for '--trials'"),
    ("reproduce synthetic --jobs 0", "Invalid value for '--jobs'"),
    ("reproduce synthetic --seed -1", "Invalid value for '--seed'"),
    ("reproduce synthetic --out o.csv", "is a file; name a folder with --out"),
    ("reproduce jobs --data nowhere", "there is no folder 'nowhere'"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gets_one_sentence_and_nothing_is_written(capsys, folder, line, message):
    before = contents(folder)
    with contextlib.chdir(folder):
        code, out, err = run(capsys, *line.split())
    assert code == 2
    assert out == ""
    assert err.startswith("unjoined: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert contents(folder) == before


def test_the_largest_seed_has_others_behind_it(tmp_path):
    """The demo draws with its seed and the two behind it."""
    write_campaign(tmp_path, n_per_table=10, n_customers=5, seed=2**32 - 1)
    _, behind = draw_customers(10, seed=2**32 + 1)
    np.testing.assert_array_equal(behind, draw_customers(10, seed=1)[1])
