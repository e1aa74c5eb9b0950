"""The paper's experiments as they are run from a shell."""

import json

import pytest

from studies.paper.__main__ import main


def refusal(*words):
    """Run the studies and return why they were not run."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return str(stop.value.code)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 7, 12345])
def test_a_small_run_works_on_every_seed_and_is_not_run_twice(seed, capsys, tmp_path):
    words = [
        "synthetic",
        "--small",
        "--trials",
        "1",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
    ]
    main([*words, "--seed", str(seed)])
    assert "not shown" in capsys.readouterr().out
    files = [tmp_path / "paper-results.json", tmp_path / "paper-trials.jsonl"]
    before = [file.read_text() for file in files]
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [
        "paper-figure-1.png",
        "paper-figure-2.png",
    ]
    main([*words, "--seed", str(seed)])
    assert f"Wrote {tmp_path / 'paper.md'}" in capsys.readouterr().out
    assert [file.read_text() for file in files] == before


@pytest.mark.slow
def test_studies_are_run_in_the_papers_order_and_none_is_run_twice(
    capsys, data, tmp_path
):
    options = ["--ridges", "--small", "--trials", "1", "--jobs", "1", "--data", data]
    main(["jobs", "email", "jobs", *options, "--out", str(tmp_path)])
    assert "email: 1 of 1 trials" in capsys.readouterr().err
    results = json.loads((tmp_path / "paper-results.json").read_text())
    assert results["studies"] == {}
    assert {name: len(block["rows"]) for name, block in results["ridges"].items()} == {
        "email": 2,
        "jobs": 2,
    }
    assert "## What the ridges change" in (tmp_path / "paper.md").read_text()
    assert len((tmp_path / "paper-trials.jsonl").read_text().splitlines()) == 2


def test_all_looks_for_the_data_of_studies_before_it_begins(data, tmp_path):
    out = tmp_path / "out"
    assert "the email data have 1500 rows" in refusal(
        "all", "--data", data, "--out", out
    )
    assert not out.exists()


def test_what_cannot_be_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    empty = tmp_path / "empty"
    assert "--trials must be 1 or above" in refusal("synthetic", "--trials", 0)
    assert "is a file; name a folder" in refusal(
        "synthetic", "--out", tmp_path / "file"
    )
    assert "cannot be made" in refusal(
        "synthetic", "--out", tmp_path / "file" / "below"
    )
    assert "Check --data" in refusal("jobs", "--data", tmp_path / "no")
    assert "too few for the tables of --small" in refusal("criteo", "--small")
    assert "A part of it will do" in refusal(
        "criteo", "--data", empty, "--out", tmp_path / "o"
    )
    assert "Kevin_Hillstrom" in refusal(
        "email", "--data", empty, "--out", tmp_path / "o"
    )
