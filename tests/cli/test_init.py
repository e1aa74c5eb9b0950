"""What init makes of the files of companies: names, folders, sheets, databases and languages."""

import contextlib
import json
import sqlite3
import tomllib

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pytest

from unjoined import SeparateLabels
from unjoined.cli.entry import main

pytestmark = pytest.mark.usefixtures("two_folds")

YES_NO = {
    "da": ("ja", "nej"),
    "de": ("Ja", "Nein"),
    "el": ("Ναι", "Όχι"),  # noqa: RUF001
    "en": ("YES", "no"),
    "es": ("Sí", "No"),
    "fi": ("kyllä", "ei"),
    "fr": ("Oui", "Non"),
    "hu": ("igen", "nem"),
    "it": ("sì", "no"),
    "ja": ("はい", "いいえ"),
    "nl": ("ja", "nee"),
    "pl": ("tak", "nie"),
    "pt": ("sim", "não"),
    "ru": ("Да", "Нет"),
    "tr": ("evet", "HAYIR"),
    "zh": ("是", "否"),
}


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def frames(outcome="revenue", treatment="mailed", amounts=True, words=(1, 0), rows=60):
    """Tables of two regions by kind and region, and people to score; labels at random."""
    rng = np.random.default_rng(0)
    tables = {}
    for region, share in (("north", 0.3), ("south", 0.7)):
        for kind in ("outcomes", "treatments"):
            x = {
                "age": rng.integers(18, 80, rows),
                "plan": rng.choice(["A", "B", "C"], rows),
            }
            treated = np.where(rng.random(rows) < share, *words)
            y = (
                rng.gamma(2.0, 10.0, rows).round(2)
                if amounts
                else rng.integers(0, 2, rows)
            )
            label = {outcome: y} if kind == "outcomes" else {treatment: treated}
            tables[kind, region] = pd.DataFrame(
                {"id": np.arange(rows) + 1000} | x | label
            )
    people = pd.DataFrame({"id": np.arange(rows)} | x)
    return tables, people


def write(path, frame):
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


def guessed(capsys, folder, *words):
    """Run init and return the settings; they must be such as check takes without an edit."""
    code, _, err = run(
        capsys, "init", folder, *words, "--out", folder / "unjoined.toml"
    )
    assert (code, err) == (0, "")
    settings = tomllib.loads((folder / "unjoined.toml").read_text("utf-8"))
    assert run(capsys, "check", "--config", folder / "unjoined.toml")[0] == 0
    return settings


@pytest.mark.parametrize(
    "name",
    [
        "{kind}_{region}.csv",
        "{region}/{kind}.csv",
        "{kind}/{region}.csv",
        "{region}-{kind}/t.csv",
    ],
)
def test_names_of_files_and_folders_tell_kinds_and_populations(capsys, tmp_path, name):
    tables, people = frames(outcome="v1", treatment="v2", amounts=False)
    for (kind, region), frame in tables.items():
        write(tmp_path / name.format(kind=kind, region=region), frame)
    write(tmp_path / "customers.csv", people)
    found = guessed(capsys, tmp_path)
    assert (found["outcome"], found["treatment"]) == ("v1", "v2")
    for kind in ("outcomes", "treatments"):
        assert found[kind] == {
            r: name.format(kind=kind, region=r) for r in ("north", "south")
        }
    assert (found["table"], found["keep"]) == ("customers.csv", "id")


def test_what_has_two_values_beside_amounts_is_the_treatment(capsys, tmp_path):
    tables, _ = frames(outcome="v1", treatment="a2", words=("ja", "nein"))
    for (kind, region), frame in tables.items():
        write(tmp_path / f"{kind[0]}_{region}.csv", frame)
    found = guessed(capsys, tmp_path)
    assert (found["outcome"], found["treatment"]) == ("v1", "a2")
    assert "treated" not in found


def test_yes_and_no_are_known_in_many_languages():
    for language in YES_NO:
        tables, _ = frames(words=YES_NO[language])
        data = SeparateLabels.from_tables(
            *(
                {r: tables[kind, r] for r in ("north", "south")}
                for kind in ("outcomes", "treatments")
            ),
            outcome="revenue",
            treatment="mailed",
            ignore=["id"],
        )
        expected = np.concatenate(
            [
                tables["treatments", r]["mailed"] == YES_NO[language][0]
                for r in ("north", "south")
            ]
        )
        assert ((data.treatment[data.rows("treatment")] > 0) == expected).all()


def test_treated_says_which_words_mean_so(capsys, tmp_path):
    tables, _ = frames(words=("Plan X", "Plan Y"))
    for (kind, region), frame in tables.items():
        write(tmp_path / f"{kind}_{region}.csv", frame)
    out = tmp_path / "unjoined.toml"
    code, _, err = run(capsys, "init", tmp_path, "--treated", "Plan Z", "--out", out)
    assert code == 2
    assert "--treated 'Plan Z' is not among the first values of 'mailed'" in err
    assert guessed(capsys, tmp_path, "--treated", "Plan X")["treated"] == ["Plan X"]


@pytest.mark.parametrize("has_column", [True, False])
def test_a_list_of_those_treated_is_refused_with_what_to_give(
    capsys, tmp_path, has_column
):
    tables, _ = frames(rows=3000)
    for (kind, region), frame in tables.items():
        rows = frame if kind == "outcomes" else frame[frame["mailed"] == 1]
        rows = rows if has_column else rows.drop(columns="mailed", errors="ignore")
        write(
            tmp_path / f"{'sales' if kind == 'outcomes' else 'mailings'}_{region}.csv",
            rows,
        )
    code, _, err = run(capsys, "init", tmp_path, "--out", tmp_path / "u.toml")
    assert code == 2
    assert "give everyone" in err
    assert "0 for the others" in err


def test_treated_rows_that_come_first_are_no_list(capsys, tmp_path):
    tables, _ = frames(rows=6000)
    for (kind, region), frame in tables.items():
        frame = (
            frame.sort_values("mailed", ascending=False)
            if kind != "outcomes"
            else frame
        )
        write(tmp_path / f"{kind}_{region}.csv", frame)
    assert run(capsys, "init", tmp_path, "--out", tmp_path / "u.toml")[0] == 0


def test_sheets_of_a_workbook_are_tables(capsys, tmp_path):
    tables, people = frames()
    book = openpyxl.Workbook()
    book.active.append(["Made by Anna"])  # a note, and no table
    named = {f"{kind} {region}": frame for (kind, region), frame in tables.items()}
    for name, frame in (named | {"customers": people}).items():
        sheet = book.create_sheet(name)
        for row in (list(frame.columns), *frame.to_numpy().tolist()):
            sheet.append(row)
    book.save(tmp_path / "campaign.xlsx")
    found = guessed(capsys, tmp_path)
    assert found["treatments"] == {
        region: f"campaign.xlsx:treatments {region}" for region in ("north", "south")
    }
    assert found["table"] == "campaign.xlsx:customers"


def test_tables_of_a_sqlite_database_are_tables(capsys, tmp_path):
    tables, people = frames()
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.sqlite")) as opened:
        for (kind, region), frame in tables.items():
            frame.to_sql(f"{kind}_{region}", opened, index=False)
        people.to_sql("customers", opened, index=False)
    out = tmp_path / "u.toml"
    code, _, err = run(capsys, "init", tmp_path / "shop.sqlite", "--out", out)
    assert (code, err) == (0, "")
    found = tomllib.loads(out.read_text())
    assert found["outcomes"]["south"] == "shop.sqlite:outcomes_south"
    assert run(capsys, "check", "--config", out)[0] == 0


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx", "duckdb"])
def test_one_long_file_with_half_empty_labels_is_two_tables(capsys, tmp_path, ending):
    tables, _ = frames()
    parts = [frame.assign(region=region) for (_, region), frame in tables.items()]
    long = pd.concat(parts).sample(frac=1.0, random_state=0)
    if ending == "csv":
        write(tmp_path / "long.csv", long)
    elif ending == "parquet":
        long.to_parquet(tmp_path / "long.parquet", index=False)
    elif ending == "duckdb":
        with duckdb.connect(tmp_path / "long.duckdb") as connection:
            connection.execute("CREATE TABLE both_labels AS FROM long")
    else:
        long.to_excel(tmp_path / "long.xlsx", index=False)
    place = tmp_path / "long.duckdb" if ending == "duckdb" else tmp_path
    out = tmp_path / "u.toml"
    code, _, err = run(capsys, "init", place, "--out", out)
    if ending == "xlsx":
        assert (
            "'revenue' in some rows and 'mailed' in the others. Write them to two tables"
            in err
        )
        return
    assert (code, err) == (0, "")
    assert tomllib.loads(out.read_text())["population"] == "region"
    code, checked, _ = run(capsys, "check", "--config", out, "--json")
    assert code == 0
    assert [cell["n_rows"] for cell in json.loads(checked)["tables"]] == [60] * 4


def test_features_of_which_a_row_has_one_are_no_labels(capsys, tmp_path):
    tables, _ = frames()
    for (kind, region), frame in tables.items():
        firm = np.arange(len(frame)) % 2 == 0
        halves = {
            "vat": np.where(firm, 7.0, np.nan),
            "height": np.where(firm, np.nan, 180.0),
        }
        write(tmp_path / f"{kind}_{region}.csv", frame.assign(**halves))
    assert guessed(capsys, tmp_path)["outcomes"]["north"] == "outcomes_north.csv"


def test_a_folder_of_parts_is_one_table(capsys, tmp_path):
    tables, _ = frames()
    for (kind, region), frame in tables.items():
        for part in (0, 1):
            name = f"{kind}_{region}/part-0000{part}.csv"
            write(tmp_path / name, frame[30 * part : 30 * (part + 1)])
    found = guessed(capsys, tmp_path)
    assert found["outcomes"] == {r: f"outcomes_{r}" for r in ("north", "south")}


def test_hidden_and_foreign_files_are_not_tables(capsys, tmp_path):
    tables, _ = frames()
    for (kind, region), frame in tables.items():
        write(tmp_path / f"{kind}_{region}.csv", frame)
    write(tmp_path / "_old" / "outcomes_north.csv", tables["outcomes", "north"])
    write(tmp_path / ".cache" / "outcomes_east.csv", tables["outcomes", "north"])
    (tmp_path / "readme.txt").write_text("a,b\n1,2\n")
    assert guessed(capsys, tmp_path)["outcomes"]["north"] == "outcomes_north.csv"


def test_ids_that_repeat_in_a_table_are_clusters(capsys, tmp_path):
    """Four rows of each customer, whose number would pass for an amount or a category."""
    for (kind, region), frame in frames(rows=240)[0].items():
        frame["id"] = 1000 + np.arange(240) // 4
        write(tmp_path / f"{kind}_{region}.csv", frame)
    settings = guessed(capsys, tmp_path)
    assert settings["cluster"] == "id"
    settings = tmp_path / "unjoined.toml"
    _, said, _ = run(capsys, "check", "--config", settings, "--details")
    assert "Rows are in 60 clusters" in said
    text = settings.read_text("utf-8").replace('cluster = "id"\n', "")
    settings.write_text(text, "utf-8")
    _, said, _ = run(capsys, "check", "--config", settings)
    assert "Rows are in" not in said
    assert "'id' is the same in about 4.0 rows" in " ".join(said.split())


@pytest.mark.parametrize("words", [(), ("--outcome", "months")], ids=["end", "time"])
def test_times_that_had_not_ended_are_told_with_what_to_give(capsys, tmp_path, words):
    """The check that follows refuses them, and takes what init says."""
    least = 99.0
    for (kind, region), frame in frames(outcome="months", rows=240)[0].items():
        if kind == "outcomes":
            frame["churned"] = np.resize([1, 1, 0], len(frame))
            least = min(least, frame.loc[frame["churned"] == 0, "months"].min())
        write(tmp_path / f"{kind}_{region}.csv", frame)
    settings = tmp_path / "unjoined.toml"
    _, said, _ = run(capsys, "init", tmp_path, *words, "--out", settings)
    said = " ".join(said.split())
    assert f"had {'not ended in all rows' if words else 'ended'}: " in said
    assert f"which were followed for {least:g} or longer" in said
    code, _, err = run(capsys, "check", "--config", settings)
    assert f"min(months, {'window' if least < 5.0 else ''}" in err
    assert (code == 2) == bool(words)
