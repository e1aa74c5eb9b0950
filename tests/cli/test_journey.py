"""From raw files to a list and a report: the README's commands, and the same in Python."""

import contextlib
import json
import re
import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from unjoined import SeparateLabels, Uplift, load_model, read_table
from unjoined.cli.entry import main
from unjoined.data.raw import write_raw_files

pytestmark = pytest.mark.usefixtures("two_folds")

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^unjoined (.*)$", (ROOT / "README.md").read_text(), flags=re.M)


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder that the README's commands are typed in, up to the list."""
    path = tmp_path_factory.mktemp("journey")
    write_raw_files(path / "shop", n_per_table=400, n_customers=100, seed=0)
    for command in COMMANDS:
        if command.startswith(("init", "fit")):
            with contextlib.chdir(path), pytest.raises(SystemExit) as stop:
                main(command.split())
            assert not stop.value.code
    return path


def test_the_readme_has_five_commands():
    assert [command.split()[0] for command in COMMANDS] == [
        *("init", "check", "fit", "score", "report"),
    ]


def test_predictions_for_very_many_people_are_described_by_some(
    place, limits, capsys, tmp_path
):
    """Tables with categories, which stay a frame."""
    config = ("--config", "shop/unjoined.toml", "--json")
    summaries = []
    for most in (10**6, 400):
        limits("cli.fit", MOST_DESCRIBED=most)
        out = ("--model", tmp_path / f"{most}.skops")
        with contextlib.chdir(place):
            code, printed, told = run(capsys, "fit", *config, *out)
        assert code == 0, told
        summaries.append(json.loads(printed)["uplift"])
    every, some = summaries
    assert every != some
    spread = every["quantile_95"] - every["quantile_05"]
    # Of 400 rows a standard deviation of the mean is a twentieth of theirs.
    assert some["mean"] == pytest.approx(every["mean"], abs=0.25 * spread)


def test_the_settings_are_guessed_from_raw_files(place):
    text = (place / "shop" / "unjoined.toml").read_text()
    for line in (
        'outcomes = { "east" = "visits_east.csv", "west" = "visits_west.csv" }',
        'treatments = { "east" = "mailings_east.csv", "west" = "mailings_west.csv" }',
        'outcome = "visit"',
        'treatment = "mailed"',
        'table = "customers.csv"',
        'keep = "customer_id"',
    ):
        assert line in text.splitlines()


def frames(place, read):
    return [
        {
            region: read(place / "shop" / f"{name}_{region}.csv")
            for region in ("east", "west")
        }
        for name in ("visits", "mailings")
    ]


@pytest.mark.filterwarnings("ignore::unjoined.errors.ColumnWarning")
@pytest.mark.parametrize("read", [pd.read_csv, pl.read_csv], ids=["pandas", "polars"])
def test_files_pandas_and_polars_give_the_same_uplift(place, read):
    data = SeparateLabels.from_tables(
        *frames(place, read), outcome="visit", treatment="mailed"
    )
    model = Uplift(random_state=0).fit(data)
    assert "customer_id" not in model.feature_names_in_
    customers = read(place / "shop" / "customers.csv")
    expected = load_model(place / "shop" / "model.skops").predict(
        read_table(place / "shop" / "customers.csv")
    )
    np.testing.assert_allclose(model.predict(customers), expected, rtol=1e-6, atol=1e-9)


def test_a_list_for_a_budget_says_what_it_brings(capsys, place):
    score = next(command for command in COMMANDS if command.startswith("score"))
    words = score.replace("--budget 300", "--budget 20").split()
    with contextlib.chdir(place):
        code, out, err = run(capsys, *words, "--json", "--force")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["treated"] == 40  # 20 at 0.5 each
    gain, net = found["gain"], found["net"]
    assert 0.0 < found["speaks_for"] <= 1.0
    assert gain["low"] < gain["value"] < gain["high"]
    for end in ("low", "value", "high"):
        assert net[end] == pytest.approx(8.0 * gain[end] - 20.0)
    listed = read_table(place / "shop" / "list.csv", text=["customer_id"])
    assert listed["rank"].to_pylist() == list(range(1, 101))
    assert sum(listed["treat"].to_pylist()) == 40
    assert (np.diff(listed["uplift"].to_numpy()) <= 0.0).all()
    people = read_table(place / "shop" / "customers.csv", text=["customer_id"])
    empty = (
        people["history"].is_null().to_numpy() | people["channel"].is_null().to_numpy()
    )
    flagged = dict(
        zip(listed["customer_id"].to_pylist(), listed["flags"].to_pylist(), strict=True)
    )
    ids = people["customer_id"].to_pylist()
    assert [("missing_values" in (flagged[i] or "")) for i in ids] == empty.tolist()
    assert found["missing_values"] == int(empty.sum())


def test_score_tells_which_part_of_a_gain_was_measured(capsys, tmp_path):
    """People without an account are treated alike in both populations: half of all."""
    rng = np.random.default_rng(0)
    for kind, label in (("outcomes", "bought"), ("treatments", "mailed")):
        for place, often in (("north", 0.9), ("south", 0.1)):
            account = rng.random(400) < 0.5
            treated = rng.random(400) < np.where(account, often, 0.5)
            y = treated if label == "mailed" else rng.random(400) < 0.2 + 0.5 * treated
            columns = {
                "account": account * 1,
                "age": rng.integers(18, 80, 400),
                label: y * 1,
            }
            pd.DataFrame(columns).to_csv(tmp_path / f"{place}_{kind}.csv", index=False)
    pd.DataFrame(columns).drop(columns=label).to_csv(
        tmp_path / "people.csv", index=False
    )
    with contextlib.chdir(tmp_path):
        tables = [
            word
            for kind in ("outcomes", "treatments")
            for place in ("north", "south")
            for word in (f"--{kind}", f"{place}={place}_{kind}.csv")
        ]
        labels = ["--outcome", "bought", "--treatment", "mailed"]
        assert run(capsys, "fit", *tables, *labels, "--model", "m.skops")[0] == 0
        score = ["score", "--model", "m.skops", "--table", "people.csv", "--share", "1"]
        found = json.loads(run(capsys, *score, "--out", "list.csv", "--json")[1])
        text = " ".join(run(capsys, *score, "--out", "list.csv", "--force")[1].split())
    assert found["measured_share"] == pytest.approx(0.5, abs=0.1)
    part = found["measured_share"] * found["gain"]["value"]
    said = re.search(
        r"Of this, \+([\d.]+) \S+ \(.*? to \+\S+\) was measured: .* (\d+)% of them",
        text,
    )
    assert float(said[1]) == pytest.approx(part, rel=0.05)
    assert int(said[2]) == round(100 * found["measured_share"])


@pytest.mark.parametrize(
    ("words", "treated"),
    [("--share 30%", 30), ("--share 0.3", 30), ("--top 7", 7), ("--top 1000", 100)],
)
def test_ways_to_say_how_many(capsys, place, words, treated):
    line = f"score --config shop/unjoined.toml {words} --json --force"
    with contextlib.chdir(place):
        code, out, _ = run(capsys, *line.split())
    assert code == 0
    assert json.loads(out)["treated"] == treated


def test_a_budget_beyond_all_bounds_is_for_whoever_is_not_harmed(capsys, place):
    found = []
    for words in ("", "--budget 1e308 --cost 1e-308"):
        line = f"score --config shop/unjoined.toml {words} --json --force"
        with contextlib.chdir(place):
            found.append(json.loads(run(capsys, *line.split())[1])["treated"])
    assert found[0] == found[1] > 0


def test_strange_rows_are_scored_and_flagged(capsys, place, tmp_path):
    people = pd.read_csv(
        place / "shop" / "customers.csv", dtype={"customer_id": str}
    ).head(4)
    people = pd.concat([people, people.tail(1)])
    people["history"] = [100.0, 1e7, np.nan, 200.0, np.inf]
    people["channel"] = ["Web", "Web", "Web", "Pigeon", "Web"]
    people["street"] = "Main"
    people.to_csv(tmp_path / "people.csv", index=False)
    words = (
        f"score --model {place}/shop/model.skops --table {tmp_path}/people.csv --json"
    )
    code, out, _ = run(capsys, *words.split(), "--out", tmp_path / "list.csv")
    assert code == 0
    found = json.loads(out)
    assert (found["rows"], found["ignored"]) == (5, ["customer_id", "street"])
    told = words.replace("--json", "--keep customer_id --details").split()
    code, out, _ = run(capsys, *told, "--out", tmp_path / "told.csv")
    assert code == 0
    assert out.count("Ignored, because the model does not use them: 'street'.") == 1
    listed = read_table(tmp_path / "list.csv").to_pylist()
    flags = {row["row"]: row["flags"] or "" for row in listed}
    odd = "outside_training"
    assert flags == {0: "", 1: odd, 2: "missing_values", 3: odd, 4: "missing_values"}


def test_tied_people_are_counted(capsys, place, tmp_path):
    one = pd.read_csv(place / "shop" / "customers.csv").head(1)
    pd.concat([one] * 10).to_csv(tmp_path / "people.csv", index=False)
    words = (
        f"score --model {place}/shop/model.skops --table {tmp_path}/people.csv --top 3"
    )
    code, out, _ = run(capsys, *words.split(), "--out", tmp_path / "list.csv")
    assert code == 0
    assert "10 people are tied where the list ends" in " ".join(out.split())


@pytest.mark.slow
def test_databases_and_queries_give_what_their_files_give(capsys, place, tmp_path):
    shop, database = place / "shop", tmp_path / "shop.duckdb"
    names = [
        f"{name}_{region}"
        for name in ("visits", "mailings")
        for region in ("east", "west")
    ]
    with duckdb.connect(database) as connection:
        for name in (*names, "customers"):
            connection.execute(
                f"CREATE TABLE {name} AS FROM read_csv('{shop}/{name}.csv')"
            )
    files, tables = f"{shop}/{{}}.csv", f"{database}:{{}}"
    of_files = f"SELECT * FROM read_csv('{files}') WHERE 1=1"  # noqa: S608
    of_tables = f"{database}:SELECT * FROM {{}} WHERE 1=1"  # noqa: S608
    ways = {
        "files": [files] * 5,
        "others": [tables, of_files, of_tables, tables, of_files],
    }
    before, lists = database.read_bytes(), []
    for way, forms in ways.items():
        *given, people = (
            f.format(n) for f, n in zip(forms, (*names, "customers"), strict=True)
        )
        words = []
        for name, table in zip(names, given, strict=True):
            option = "--outcomes" if name.startswith("visits") else "--treatments"
            words += [option, f"{name.partition('_')[2]}={table}"]
        model, listed = tmp_path / f"{way}.skops", tmp_path / f"{way}.parquet"
        labels = [
            "--outcome",
            "visit",
            "--treatment",
            "mailed",
            "--estimator",
            "FourLogistic",
        ]
        assert run(capsys, "fit", *words, *labels, "--model", model)[0] == 0, way
        words = ("--table", people, "--keep", "customer_id", "--out", listed)
        assert run(capsys, "score", "--model", model, *words)[0] == 0, way
        rows = read_table(listed)
        lists.append(
            dict(
                zip(
                    map(int, rows["customer_id"].to_pylist()),
                    rows["uplift"].to_pylist(),
                    strict=True,
                )
            )
        )
    assert database.read_bytes() == before
    assert lists[1] == pytest.approx(lists[0], rel=1e-9)


def test_settings_are_guessed_from_a_database(capsys, place, tmp_path):
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        for file in (place / "shop").glob("[vmc]*_*.csv"):
            connection.execute(f"CREATE TABLE {file.stem} AS FROM read_csv('{file}')")
    out = tmp_path / "unjoined.toml"
    assert run(capsys, "init", tmp_path / "shop.duckdb", "--out", out)[0] == 0
    assert (
        'outcomes = { "east" = "shop.duckdb:visits_east", "west" = "shop.duckdb:visits_west" }'
        in out.read_text().splitlines()
    )
    assert run(capsys, "check", "--config", out)[0] == 0


def test_fit_and_check_give_one_verdict(capsys, place):
    tables = ("--config", place / "shop" / "unjoined.toml")
    code, out, _ = run(capsys, "check", *tables, "--json")
    assert code == 0
    checked = json.loads(out)
    listed = place / "verdict.csv"
    code, out, _ = run(capsys, "score", *tables, "--json", "--out", listed)
    assert code == 0
    assert json.loads(out)["verdict"] == {
        "verdict": checked["verdict"],
        "colour": checked["colour"],
        "words": checked["headline"],
    }


@pytest.mark.slow
def test_a_folder_whose_files_differ_is_judged_alike_by_check_and_fit(
    capsys, place, tmp_path
):
    shop, folder = place / "shop", tmp_path / "east"
    folder.mkdir()
    visits = pd.read_csv(shop / "visits_east.csv")
    visits.iloc[:200].to_csv(folder / "a.csv", index=False)
    visits.iloc[200:].drop(columns="channel").to_csv(folder / "b.csv", index=False)
    tables = [
        "--outcomes",
        f"east={folder}",
        "--outcomes",
        f"west={shop}/visits_west.csv",
    ]
    for region in ("east", "west"):
        tables += ["--treatments", f"{region}={shop}/mailings_{region}.csv"]
    tables += ["--outcome", "visit", "--treatment", "mailed", "--json"]
    code, out, _ = run(capsys, "check", *tables)
    assert code == 0
    checked = json.loads(out)
    assert "is not in all files of the outcome table" in checked["left_out"]["channel"]
    code, out, _ = run(capsys, "fit", *tables, "--model", tmp_path / "m.skops")
    assert code == 0
    fitted = json.loads(out)
    assert fitted["verdict"]["words"] == checked["headline"]
    assert fitted["features"] == checked["features"]


@pytest.mark.slow
def test_all_five_commands_of_the_readme(capsys, tmp_path):
    write_raw_files(tmp_path / "shop", n_per_table=400, n_customers=100, seed=0)
    for command in COMMANDS:
        with contextlib.chdir(tmp_path):
            code, out, _ = run(capsys, *command.split())
        assert code == 0, command
        assert out
    assert (tmp_path / "shop" / "list.csv").exists()
    assert "<html" in (tmp_path / "shop" / "report.html").read_text()


def test_raw_files_of_other_names_and_kinds_are_guessed(capsys, tmp_path):
    """Packed files, an index as a column, words for treatments, and text as an id."""
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        base = pd.DataFrame(
            {"age": rng.normal(50, 9, 60), "city": rng.choice(["A", "B"], 60)}
        )
        base.assign(visit=rng.integers(0, 2, 60)).to_csv(
            tmp_path / f"v_{name}.csv", index=False
        )
        base.assign(segment=rng.choice(["Plan X", "Plan Y"], 60)).to_csv(
            tmp_path / f"s_{name}.csv.gz"
        )
    people = [f"C{i}" for i in range(60)]
    base.assign(client=people).to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(SystemExit):
        main(["init", str(tmp_path), "--out", str(tmp_path / "u.toml")])
    assert "'segment' holds" in capsys.readouterr().out
    found = tomllib.loads((tmp_path / "u.toml").read_text("utf-8"))
    assert found["treatments"] == {"one": "s_one.csv.gz", "two": "s_two.csv.gz"}
    assert (found["outcome"], found["treatment"], found["treated"]) == (
        "visit",
        "segment",
        "",
    )
    assert found["keep"] == "client"
