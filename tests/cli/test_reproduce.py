"""The command `unjoined reproduce` as a user types it."""

import json

import pytest

from unjoined.cli import main
from unjoined.cli import run as _reproduce


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *map(str, arguments)])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.mark.slow
def test_a_small_run_writes_everything_and_is_not_run_twice(capsys, tmp_path, monkeypatch):
    out = tmp_path / "paper"
    options = ("--small", "--trials", 1, "--jobs", 1, "--out", out)
    code, shown, err = run(capsys, "synthetic", *options)
    assert (code, err) == (0, "")
    assert "verdict" in shown
    assert "3/3" in shown
    before = (out / "paper-results.json").read_text()
    assert sorted(path.name for path in (out / "images").iterdir()) == [
        "paper-figure-1.png",
        "paper-figure-2.png",
    ]
    monkeypatch.setattr("unjoined.reproduce.runner.run_task", lambda task: pytest.fail("ran again"))
    code, shown, err = run(capsys, "synthetic", *options, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(shown)
    assert len(printed["verdicts"]) == 5
    assert printed["files"]["page"] == str(out / "paper.md")
    assert (out / "paper-results.json").read_text() == before


def test_all_is_every_study_in_the_papers_order_and_none_is_run_twice(
    capsys, monkeypatch, tmp_path
):
    asked = []

    def stop(studies, folder, **options):
        asked.append((studies, options["trials"], options["jobs"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(_reproduce, "reproduce_paper", stop)
    code, out, _ = run(capsys, "all", "--jobs", 3, "--out", tmp_path)
    assert code == 130
    assert "Finished trials are kept" in out
    run(capsys, "jobs", "synthetic", "jobs", "--jobs", 3, "--trials", 7, "--out", tmp_path)
    every = ["synthetic", "email", "jobs", "criteo"]
    assert asked == [(every, 50, 3), (["synthetic", "jobs"], 7, 3)]


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


def test_data_that_are_not_here_are_told_with_where_to_get_them(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("UNJOINED_DATA", str(tmp_path / "cache"))
    code, _, err = run(capsys, "criteo", "--out", tmp_path / "out")
    assert code == 2
    assert "CriteoBannerFillingChallenge.tar.gz" in err
    assert "by hand" in err
    (tmp_path / "empty").mkdir()
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
