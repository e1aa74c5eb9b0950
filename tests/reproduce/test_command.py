"""The command `unjoined reproduce` as a user types it."""

import json

import pytest

from unjoined.cli import main


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *map(str, arguments)])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.mark.slow
def test_a_small_run_writes_everything_and_is_not_run_twice(capsys, tmp_path):
    out = tmp_path / "paper"
    options = ("--small", "--trials", 1, "--jobs", 1, "--out", out)
    code, shown, err = run(capsys, "synthetic", *options)
    assert (code, err) == (0, "")
    assert "not shown" in shown
    files = [out / "paper-results.json", out / "paper-trials.jsonl"]
    before = [file.read_text() for file in files]
    assert sorted(path.name for path in (out / "images").iterdir()) == [
        "paper-figure-1.png",
        "paper-figure-2.png",
    ]
    code, shown, err = run(capsys, "synthetic", *options, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(shown)
    assert len(printed["verdicts"]) == 5
    assert printed["files"]["page"] == str(out / "paper.md")
    assert [file.read_text() for file in files] == before


def test_studies_are_run_in_the_papers_order_and_none_is_run_twice(capsys, data, tmp_path):
    options = ("--ridges", "--small", "--trials", 1, "--jobs", 1, "--data", data)
    code, _, err = run(capsys, "jobs", "email", "jobs", *options, "--out", tmp_path)
    assert (code, err) == (0, "")
    results = json.loads((tmp_path / "paper-results.json").read_text())
    assert results["studies"] == {}
    assert {name: len(block["rows"]) for name, block in results["ridges"].items()} == {
        "email": 2,
        "jobs": 2,
    }
    assert list(results["ridges"]) == ["email", "jobs"]
    assert "## What the ridges change" in (tmp_path / "paper.md").read_text()
    assert len((tmp_path / "paper-trials.jsonl").read_text().splitlines()) == 2


def test_all_looks_for_the_data_of_studies_before_it_begins(capsys, data, tmp_path):
    code, _, err = run(capsys, "all", "--data", data, "--out", tmp_path / "out")
    assert code == 2
    assert "the email data have 1500 rows" in err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_says_that_finished_trials_are_kept(capsys, tmp_path, interrupt_when):
    trials = tmp_path / "paper-trials.jsonl"
    interrupt_when(lambda: trials.exists() and trials.stat().st_size > 0)
    options = ("--ridges", "--small", "--jobs", 1, "--out", tmp_path)
    code, out, err = run(capsys, "synthetic", *options)
    assert (code, err) == (130, "unjoined: interrupted\n")
    assert "Finished trials are kept" in out


def test_an_unknown_study_is_told_with_the_known_ones(capsys, tmp_path):
    code, _, err = run(capsys, "figure1", "--out", tmp_path)
    assert code == 2
    assert "'figure1'" in err
    assert "synthetic" in err
    assert "criteo" in err


def test_no_trials_at_all_are_refused(capsys, tmp_path):
    code, _, err = run(capsys, "synthetic", "--trials", 0, "--out", tmp_path)
    assert code == 2
    assert "--trials" in err


def test_data_that_are_not_here_are_told_with_where_to_get_them(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, "criteo", "--data", tmp_path / "empty", "--out", tmp_path / "out")
    assert code == 2
    assert "CriteoBannerFillingChallenge.tar.gz" in err
    assert "by hand" in err
    assert "A part of it will do" in err
    code, _, err = run(capsys, "email", "--data", tmp_path / "empty", "--out", tmp_path / "out")
    assert code == 2
    assert "Kevin_Hillstrom" in err


def test_a_data_folder_that_does_not_exist_is_told(capsys, tmp_path):
    code, _, err = run(capsys, "jobs", "--data", tmp_path / "no", "--out", tmp_path)
    assert code == 2
    assert "Check --data" in err


def test_an_output_that_is_a_file_or_lies_below_one_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "synthetic", "--out", tmp_path / "file")
    assert code == 2
    assert "is a file; name a folder with --out" in err
    code, _, err = run(capsys, "synthetic", "--out", tmp_path / "file" / "below")
    assert code == 2
    assert "cannot be made: Not a directory" in err


def test_small_tables_are_not_for_rare_clicks(capsys, tmp_path):
    code, _, err = run(capsys, "criteo", "--small", "--out", tmp_path / "out")
    assert code == 2
    assert "too few for the tables of --small" in err
