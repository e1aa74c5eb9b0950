"""The first screen of every command: the answer, what it rests on, and what next."""

import contextlib
import csv
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unjoined import load_model
from unjoined.cli.entry import main
from unjoined.data.raw import write_raw_files
from unjoined.data.tables import read_table

pytestmark = pytest.mark.usefixtures("two_folds")
MOST_LINES = 12  # of 80 columns
MONEY = ["--value", "8", "--cost", "0.5", "--currency", "EUR"]


def run(capsys, *arguments, code=0):
    """Run a command; ID stands for the first customer."""
    words = [str(argument) for argument in arguments]
    if "ID" in words:
        words[words.index("ID")] = rows_of(Path("customers.csv"))[0]["customer_id"]
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr()
    assert (stop.value.code or 0) == code, printed.err
    return printed.out if not code else printed.err


def rows_of(file):
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop's files, settings and a model."""
    folder = tmp_path_factory.mktemp("shop")
    write_raw_files(folder, n_per_table=600, n_customers=200, seed=0)
    with contextlib.chdir(folder), contextlib.suppress(SystemExit):
        main(["init", ".", "--out", "unjoined.toml"])
    with contextlib.chdir(folder), contextlib.suppress(SystemExit):
        main(["fit", "--config", "unjoined.toml"])
    return folder


@pytest.fixture
def at_shop(shop, monkeypatch):
    monkeypatch.chdir(shop)
    monkeypatch.setenv("COLUMNS", "80")
    return ["--config", "unjoined.toml"]


COMMANDS = {
    "check": ["check"],
    "fit": ["fit", "--model", "again.skops"],
    "score": ["score", "--share", "30%", *MONEY, "--out", "answers.csv"],
    "evaluate": ["evaluate", "--cross"],
    "rule": ["rule", "--depth", "1", *MONEY],
    "report": ["report", "--share", "30%", *MONEY, "--out", "answers.html"],
    "explain": ["explain", "--id", "ID"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_on_one_screen(capsys, at_shop, name):
    words = [*COMMANDS[name], *at_shop]
    if name in ("fit", "score", "report"):
        words.append("--force")
    said = run(capsys, *words)
    shown = sum(1 + (len(line) - 1) // 80 for line in said.splitlines() if line)
    assert shown + said.count("\n\n") <= MOST_LINES, said
    assert re.search(r"\((green|amber|red)\)|dentified", said)
    assert "units of the outcome" not in said
    assert not re.search(r"\de[+-]\d", said)  # no number has an exponent


@pytest.mark.parametrize(
    "name", ["check", "fit", "score", "evaluate", "rule", "explain"]
)
def test_details_hold_the_answer_and_more(capsys, at_shop, name):
    words = [*COMMANDS[name], *at_shop] + ["--force"] * (name in ("fit", "score"))
    short = run(capsys, *words).splitlines()
    long = run(capsys, *words, "--details").splitlines()
    assert long[0] == short[0]
    assert len(long) > len(short)


def test_units_come_from_the_outcome_or_from_the_settings_for_every_command(
    capsys, at_shop, shop, tmp_path
):
    """A unit is said once, and a model remembers that of its fit."""
    assert "visits per 100 people" in run(capsys, "fit", *at_shop, "--force")
    settings = (shop / "unjoined.toml").read_text()
    named = shop / "named.toml"
    named.write_text(
        'unit = "calls"\ncurrency = "EUR"\nvalue = 8\ncost = 0.5\nbudget = 20\n'
        + settings
    )
    for words in (
        ["fit", "--model", "calls.skops"],
        ["score", "--out", "calls.csv"],
        ["evaluate", "--cross"],
        ["report", "--out", "calls.html"],
        ["explain", "--id", "ID"],
    ):
        more = ["--force"] if words[0] not in ("evaluate", "explain") else []
        said = run(capsys, *words, *more, "--config", named)
        assert "calls" in said, said
        assert "visits" not in said
    said = run(capsys, "score", "--config", named, "--out", "calls.csv", "--force")
    assert "less 20 EUR for" in " ".join(said.split())
    page = (shop / "calls.html").read_text("utf-8")
    assert "calls" in page
    assert "20.00 EUR" in page


def test_score_and_report_write_one_list(capsys, at_shop, shop):
    words = ["--share", "30%", *MONEY, *at_shop, "--force"]
    run(capsys, "score", *words, "--out", "one.csv")
    run(capsys, "report", *words, "--out", "two.html", "--list", "two.csv")
    rows = rows_of(shop / "one.csv")
    told = rows_of(shop / "two.csv")
    verdicts = [{row.pop("verdict") for row in each} for each in (rows, told)]
    assert rows == told
    assert all(
        len(colours) == 1 and colours <= {"green", "amber", "red"}
        for colours in verdicts
    )
    assert [row["treat"] for row in rows] == ["true"] * 60 + ["false"] * 140
    assert all(
        len(row["uplift"].lstrip("-")) <= 8 for row in rows
    )  # as people write numbers
    people = read_table("customers.csv")
    by_id = dict(
        zip(
            map(str, people["customer_id"].to_pylist()),
            load_model("model.skops").predict(people.drop(["customer_id"])),
            strict=True,
        )
    )
    listed = [by_id[row["customer_id"]] for row in rows]
    assert listed == sorted(listed, reverse=True)  # the order is that of all digits
    np.testing.assert_allclose(
        [float(row["uplift"]) for row in rows], listed, atol=0.01 * np.std(listed)
    )


def test_the_reason_names_a_feature_with_the_persons_own_value(capsys, at_shop, shop):
    run(
        capsys,
        "score",
        "--share",
        "30%",
        *MONEY,
        *at_shop,
        "--out",
        "why.csv",
        "--force",
    )
    people = {row["customer_id"]: row for row in rows_of(shop / "customers.csv")}
    for row in rows_of(shop / "why.csv"):
        decided, _, why = row["reason"].partition(": ")
        assert decided in (
            "worth its cost",
            "on the list, but loses by it",
            "loses by it",
            "gains less than it costs",
            "others gain more",
        )
        assert (decided == "loses by it") == (
            row["treat"] == "false" and float(row["uplift"]) < 0
        )
        if re.search(r"\brecency (\d+)", why):
            said = re.search(r"\brecency (\d+)", why)[1]
            assert float(people[row["customer_id"]]["recency"]) == float(said)


def test_the_next_command_has_the_money_that_was_typed(capsys, at_shop):
    said = run(capsys, *COMMANDS["score"], *at_shop, "--force")
    (step,) = re.findall(r"Next: unjoined (report .*)", said)
    assert {"--share", "30%", "--value", "8", "--cost", "0.5", "EUR"} <= set(
        step.split()
    )
    run(capsys, *step.split(), "--out", "next.html", "--force")


def test_explain_adds_up_and_says_who_is_not_there(capsys, at_shop):
    found = json.loads(run(capsys, *COMMANDS["explain"], *at_shop, "--json"))
    parts = sum(part["adds"] for part in found["parts"].values())
    assert found["average"] + parts + found["rest"] == pytest.approx(
        found["uplift"]["value"]
    )
    assert found["uplift"]["low"] < found["uplift"]["value"] < found["uplift"]["high"]
    said = run(capsys, "explain", "--id", "nobody", *at_shop, code=2)
    assert "nobody in 'customers.csv' has 'nobody' in 'customer_id'" in said
    said = run(capsys, "explain", "--id", "1", "--keep", "womens", *at_shop, code=2)
    assert "rows of 'customers.csv' have '1' in 'womens'" in said
    run(
        capsys,
        "fit",
        *at_shop,
        "--estimator",
        "FourRidge",
        "--model",
        "ridge.skops",
        "--force",
    )
    said = run(
        capsys, "explain", "--id", "1", *at_shop, "--model", "ridge.skops", code=2
    )
    assert (
        "takes a model of one treatment that was fitted by the default estimator"
        in said
    )


def test_compare_says_whose_decision_changes(capsys, at_shop, shop):
    """The old model does not see a feature; both lists hold as many people."""
    run(
        capsys,
        "fit",
        *at_shop,
        "--ignore",
        "womens",
        "--model",
        "old.skops",
        "--force",
    )
    words = ["compare", "old.skops", "model.skops", *at_shop, "--share", "30%"]
    found = json.loads(run(capsys, *words, "--out", "changes.csv", "--json"))
    rows = rows_of(shop / "changes.csv")
    assert found["people"] == 200
    assert found["joined"] == found["left"] == len(rows) / 2 > 0
    assert all(row["treat"] != row["treat_before"] for row in rows)
    assert all((int(row["rank"]) <= 60) == (row["treat"] == "true") for row in rows)
    low, value, high = (found["difference"][end] for end in ("low", "value", "high"))
    assert low <= value <= high
    assert found["colour"] != "green"  # rows of its own fit flatter the new model
    said = run(capsys, *words)
    assert f"{len(rows) // 2} come onto the list" in said
    assert len(said.splitlines()) <= MOST_LINES
    # The other way round all signs change.
    words[1:3] = words[2:0:-1]
    other = json.loads(run(capsys, *words, "--json"))["difference"]
    assert [other[end] for end in ("value", "low", "high")] == pytest.approx(
        [-value, -high, -low]
    )


def test_compare_refuses_what_it_cannot_compare(capsys, at_shop):
    words = ["compare", "model.skops"]
    assert "the same file" in run(capsys, *words, "model.skops", *at_shop, code=2)
    said = run(capsys, *words, "none.skops", *at_shop, code=2)
    assert "there is no model file 'none.skops'" in said
    run(capsys, "fit", *at_shop, "--seed", 3, "--model", "other.skops", "--force")
    said = run(capsys, *words, "other.skops", *at_shop, "--out", "changes.txt", code=2)
    assert "--out 'changes.txt' must end in .csv" in said


def test_a_log_has_a_line_now_and_then_with_the_time_left(capsys, at_shop, monkeypatch):
    """Where there is no terminal: a file of a scheduler's, say."""
    monkeypatch.setattr("unjoined.cli.show.LOG_EVERY", 0.0)
    with pytest.raises(SystemExit):
        main(["fit", *at_shop, "--model", "log.skops", "--force"])
    said = capsys.readouterr().err.splitlines()
    assert any(
        re.fullmatch(r"unjoined: .*: \d+ of \d+, about .* left", line) for line in said
    )
    monkeypatch.setattr("unjoined.cli.show.LOG_EVERY", 3600.0)
    with pytest.raises(SystemExit):
        main(["fit", *at_shop, "--model", "log.skops", "--force"])
    assert capsys.readouterr().err == ""


def test_a_list_of_people_beyond_those_of_the_fit_is_no_list(at_shop, capsys, tmp_path):
    """Red if next to none has a like in the fit, as in the report; else amber."""
    people = pd.read_csv("customers.csv", dtype=str)
    words = (
        "score",
        *at_shop,
        "--share",
        "30%",
        "--out",
        tmp_path / "list.csv",
        "--force",
    )
    assert ": Identified for" in run(capsys, *words)
    later = people.assign(signed_up="2031-05-06")
    for n, colour, which in ((30, "amber", "Most"), (0, "red", "Nearly all")):
        mixed = pd.concat([people[:n], later[n:]])
        mixed.to_csv(tmp_path / "later.csv", index=False)
        code = 3 if colour == "red" else 0
        said = run(capsys, *words, "--table", tmp_path / "later.csv", code=code)
        if colour == "amber":
            assert said.startswith(f"Verdict (amber): {which} of these people lie")
        rows = rows_of(tmp_path / "list.csv")
        assert {row["verdict"] for row in rows} == {colour}
        assert ("treat" in rows[0]) == (colour == "amber")
    page = ("--share", "30%", "--out", tmp_path / "page.html")
    people = ("--table", tmp_path / "later.csv")
    with pytest.raises(SystemExit):
        main([str(word) for word in ("report", *at_shop, *page, *people)])
    assert "Verdict (red)" in capsys.readouterr().out


def test_outcomes_of_which_less_may_be_better_and_later_dates_are_doubted(
    capsys, tmp_path
):
    rng = np.random.default_rng(0)
    for k, site in enumerate(("east", "west")):
        for label, chance in (("readmitted", 0.4), ("called", (0.7, 0.3)[k])):
            days = np.datetime64("2026-01-01") + rng.integers(0, 180, 200)
            columns = {"age": rng.integers(20, 90, 200), "left_on": days.astype(str)}
            columns[label] = (rng.random(200) < chance) * 1
            pd.DataFrame(columns).to_csv(tmp_path / f"{label}_{site}.csv", index=False)
    later = {"age": range(20, 60), "left_on": ["2026-07-04"] * 40}
    pd.DataFrame(later).to_csv(tmp_path / "people.csv", index=False)
    settings = tmp_path / "u.toml"

    def said(*words):
        with pytest.raises(SystemExit):
            main([str(word) for word in (*words, "--force")])
        printed = capsys.readouterr()
        return " ".join((printed.out + printed.err).split())

    out = said("init", tmp_path, "--out", settings)
    assert "'readmitted' is the outcome, of which more is better" in out
    assert "If less is better, turn it round" in out
    out = said("fit", "--config", settings, "--estimator", "minmax")
    assert "more of 'readmitted' is taken to be better" in out
    out = said("score", "--config", settings, "--despite-red")
    assert "When the model was fitted: more of 'readmitted' is taken" in out
    assert "'left_on' from 2026-07-04 to 2026-07-04, in the fit from 2026-01-0" in out
    assert "Leave dates out (ignore)" in out
    out = said("score", "--config", settings, "--value", "-4", "--cost", "1")
    assert "--value must be 0 or above, got -4: more of the outcome" in out
