"""Commands that cannot go on: no memory, nobody reading. No traceback in any case."""

import os
import subprocess
import sys

import pytest

import unjoined
from unjoined.cli.entry import main


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


PLAN = ("plan", "--feature", "age=45:15", "--populations", "n,s", "--functions")


def test_too_little_memory_is_told_with_what_to_do(capsys, tmp_path):
    many = 10**15  # eight petabytes of features, more than any address space
    code, _, err = run(capsys, "demo", "--rows", many, "--out", tmp_path / "demo")
    assert code == 2
    assert err.startswith("unjoined: there is not enough memory (Unable to allocate")
    assert "--chunks" in err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    words = [*PLAN, "3", "--out", str(tmp_path / "p.sums")]
    done = subprocess.run(
        [sys.executable, "-m", "unjoined", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert (tmp_path / "p.sums").exists()


def test_a_name_that_the_terminal_cannot_encode_is_escaped(tmp_path):
    words = ["plan", "--feature", "gr\u00f6\u00dfe\udcff=45:15", "--populations", "n,s"]
    done = subprocess.run(
        [sys.executable, "-m", "unjoined", *words, "--out", str(tmp_path / "p.sums")],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "1000"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"5 functions of gr\xf6\xdfe\udcff." in done.stdout


def test_the_first_words_a_user_types_are_answered(capsys):
    """With some pairs of typer and click every command printed the version, or help raised."""
    cases = (
        ("--version", unjoined.__version__),
        ("--help", "Usage: unjoined [OPTIONS] COMMAND"),
        ("fit --help", "Usage: unjoined fit [OPTIONS]"),
    )
    for words, answer in cases:
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        out, err = capsys.readouterr()
        assert (stop.value.code or 0, err) == (0, "")
        assert out.strip().startswith(answer)


def test_a_missing_option_is_told(capsys):
    """With some pairs of typer and click the command ran on without it."""
    with pytest.raises(SystemExit) as stop:
        main(["score", "--table", "t.csv", "--out", "o.csv"])
    assert stop.value.code == 2
    assert "Missing option '--model'" in capsys.readouterr().err


STOPPED = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == stopped == "scipy":
            raise ImportError("initialization failed") from KeyboardInterrupt()
        if name == stopped:
            raise KeyboardInterrupt

stopped, sys.argv = sys.argv[1], ["unjoined", "evaluate", "--model", "m.skops"]
sys.meta_path.insert(0, Interrupted())
runpy.run_module("unjoined", run_name="__main__")
"""


def test_ctrl_c_while_modules_are_imported_is_one_line():
    """What was imported halfway cannot be used to say so."""
    for module in ("unjoined.cli.entry", "numpy", "scipy"):
        done = subprocess.run(
            [sys.executable, "-c", STOPPED, module], capture_output=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (
            130,
            b"",
            b"unjoined: interrupted\n",
        )
