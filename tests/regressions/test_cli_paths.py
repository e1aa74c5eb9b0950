"""Paths on the command line: a result never replaces what the command reads, or another result."""

import os

import pyarrow as pa
import pytest

from unjoined.cli import main
from unjoined.data import write_table


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.fixture
def folder(here, tmp_path):
    """A working folder with files of every kind; their content does not matter here."""
    for name in ("on", "os", "tn", "ts", "people"):
        write_table(pa.table({"age": [1.0]}), tmp_path / f"{name}.csv")
    for name in ("plan", "one", "two"):
        (tmp_path / f"{name}.sums").write_bytes(b"PK\x03\x04" + bytes(26) + b"unjoined-sums-3.npy")
    (tmp_path / "m.skops").write_bytes(b"PK\x03\x04")
    (tmp_path / "notes.txt").write_text("do not lose me")
    (tmp_path / "tables" / "deep").mkdir(parents=True)
    write_table(pa.table({"age": [1.0]}), tmp_path / "tables" / "deep" / "a.csv")
    os.symlink("on.csv", tmp_path / "link.csv")
    os.symlink("gone.skops", tmp_path / "dangling.skops")
    os.link(tmp_path / "tables" / "deep" / "a.csv", tmp_path / "hard.skops")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def contents(folder):
    return {
        path: path.read_bytes() if path.is_file() else path.lstat().st_ino
        for path in folder.rglob("*")
    }


FOUR = (
    "--outcomes n=on.csv --outcomes s=os.csv --treatments n=tn.csv --treatments s=ts.csv "
    "--outcome y --treatment t"
)
AGGREGATE = "aggregate --plan plan.sums --outcomes n=on.csv --outcome y"
STREAM = (
    "fit --chunks --outcomes n=tables --outcomes s=os.csv --treatments n=tn.csv "
    "--treatments s=ts.csv --outcome y --treatment t"
)


@pytest.mark.parametrize(
    "line",
    [
        f"fit {FOUR} --chunks --checkpoint P --model P",
        f"fit {FOUR} --chunks --checkpoint ./x/../P --model P",
        f"fit {FOUR} --chunks --checkpoint P --model p",  # one file where case does not count
        f"fit {FOUR} --chunks --checkpoint gone.skops --model dangling.skops",
        f"fit {FOUR} --model on.csv",
        f"fit {FOUR} --model link.csv",
        "fit --moments one.sums --model one.sums",
        f"{AGGREGATE} --checkpoint P --out P",
        f"{AGGREGATE} --out plan.sums",
        f"{AGGREGATE} --out on.csv",
        f"{AGGREGATE} --out link.csv",
        "score --model m.skops --table people.csv --out people.csv",
        "score --model m.skops --table people.csv --out ./people.csv",
        "score --model m.skops --table people.csv --out m.skops",
        "score --model m.skops --table on.csv --out link.csv",
        "merge one.sums two.sums --out one.sums",
        "check --outcomes n=on.csv --outcomes s=link.csv --treatments n=tn.csv "
        "--treatments s=ts.csv --outcome y --treatment t",
        "reproduce synthetic --small --data tables --out tables",
    ],
)
def test_two_paths_that_are_one_file_are_refused_and_nothing_is_lost(capsys, folder, line):
    before = contents(folder)
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert "are the same f" in err
    assert contents(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        f"{STREAM} --model tables/m.csv",
        f"{STREAM} --model hard.skops",
        f"{STREAM} --checkpoint tables/deep/c.parquet --model m.skops",
        f"{STREAM.replace('os.csv', 'tables/deep')} --model m.skops",
        f"{STREAM.replace('os.csv', 'tables/deep/a.csv')} --model m.skops",
    ],
)
def test_a_path_among_the_tables_of_an_input_folder_is_refused(capsys, folder, line):
    before = contents(folder)
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert "is among the tables in the folder 'tables'" in err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"fit {FOUR} --model notes.txt", "'notes.txt' exists and is not a model"),
        (f"fit {FOUR} --model one.sums", "'one.sums' exists and is not a model"),
        (f"fit {FOUR} --model people.csv", "'people.csv' exists and is not a model"),
        (f"{AGGREGATE} --out notes.txt", "'notes.txt' exists and is not a file of sums"),
        (
            f"{AGGREGATE} --checkpoint people.csv --out o",
            "people.csv' exists and is not a file",
        ),
        ("merge one.sums two.sums --out m.skops", "'m.skops' exists and is not a file of sums"),
        (
            "plan --feature a=1:2 --populations n,s --out notes.txt",
            "exists and is not a file of sums",
        ),
        ("plan --feature a=1:2 --populations n,s --out pipe", "'pipe' is not an ordinary file"),
        ("plan --feature a=1:2 --populations n,s --out tables", "'tables' is a folder"),
        ("score --model m.skops --table people.csv --out pipe", "'pipe' is not an ordinary file"),
        (f"fit {FOUR} --model no/m.skops", "there is no folder 'no' to write to (--model)"),
    ],
)
def test_what_is_no_earlier_result_is_not_replaced(capsys, folder, line, message):
    before = contents(folder)
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert message in err
    assert contents(folder) == before


def test_an_earlier_result_is_replaced(capsys, folder):
    line = "plan --feature a=1:2 --populations n,s --functions 3 --out plan.sums"
    words = line.split()
    assert run(capsys, *words)[0] == 0
    before = (folder / "plan.sums").read_bytes()
    assert run(capsys, *words, "--seed", 1)[0] == 0
    assert (folder / "plan.sums").read_bytes() != before
