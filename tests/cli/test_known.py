"""Known policies and rows with both labels, from files to a list."""

import contextlib
import json
import shlex
import tomllib

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unjoined import SeparateLabels, Uplift
from unjoined.cli.entry import main

pytestmark = pytest.mark.usefixtures("two_folds")
NAMES = ("north", "south")
FEATURES = ["age", "orders"]
KINDS = {
    "sales": [*FEATURES, "bought"],
    "mail": [*FEATURES, "mailed"],
    "logged": [*FEATURES, "chance", "bought"],
    "panel": [*FEATURES, "mailed", "bought"],
}


def people(n, name, rng):
    age = rng.integers(18, 80, n)
    orders = rng.poisson(3.0, n)
    z = (age - 48.0) / 18.0
    chance = 0.5 * expit(z) + 0.5 * (name == "north")
    mailed = (rng.random(n) < chance) * 1
    bought = (rng.random(n) < 0.1 + 0.02 * orders + mailed * (0.2 + 0.05 * z)) * 1
    return pd.DataFrame(
        {"age": age, "orders": orders, "chance": chance, "mailed": mailed}
    ).assign(bought=bought)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All kinds of tables of two regions, each of people of its own."""
    where = tmp_path_factory.mktemp("known")
    rng = np.random.default_rng(0)
    for kind, columns in KINDS.items():
        for name in NAMES:
            n = 150 if kind == "panel" else 600
            frame = people(n, name, rng)[columns]
            frame.to_csv(where / f"{kind}_{name}.csv", index=False)
    customers = people(200, "north", rng)[FEATURES].assign(id=np.arange(200))
    customers.to_csv(where / "customers.csv", index=False)
    return where


def run(capsys, *words):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def settings(folder, name, **given):
    """Write a file of settings."""
    lines = []
    for key, value in given.items():
        said = json.dumps(value)
        if isinstance(value, dict):
            parts = (f"{k} = {json.dumps(v)}" for k, v in value.items())
            said = f"{{ {', '.join(parts)} }}"
        lines.append(f"{key} = {said}")
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def tables(kind):
    return {name: f"{kind}_{name}.csv" for name in NAMES}


def test_options_and_settings_are_what_python_takes(capsys, folder):
    policies = {"north": "chance", "south": 0.25}
    path = settings(
        folder, "known", outcomes=tables("logged"), policies=policies, outcome="bought"
    )
    data = SeparateLabels.from_tables(
        {name: folder / file for name, file in tables("logged").items()},
        outcome="bought",
        policies=policies,
    )
    average = Uplift(random_state=0).fit(data).average_effect_
    code, out, _ = run(
        capsys, "fit", "--config", path, "--model", folder / "a.skops", "--json"
    )
    assert code == 0
    facts = json.loads(out)
    assert facts["average_effect"]["value"] == pytest.approx(average.value, rel=1e-9)
    assert facts["known"].items() >= {"n_joint": 0, "n_policy": 1200}.items()
    assert facts["known"]["is_known"]
    assert {table["kind"] for table in facts["tables"]} == {"outcome", "policy"}
    words = ["--outcome", "bought", "--model", folder / "b.skops", "--json"]
    for name in NAMES:
        words += ["--outcomes", f"{name}={folder}/logged_{name}.csv"]
    words += ["--policies", "north=chance", "--policies", "south=25%"]
    code, again, _ = run(capsys, "fit", *words)
    assert json.loads(again)["average_effect"] == facts["average_effect"]


def test_every_command_takes_both_and_policies(capsys, folder, tmp_path):
    path = settings(
        folder,
        "all",
        outcomes={"north": "sales_north.csv", "south": "logged_south.csv"},
        treatments={"north": "mail_north.csv"},
        both=tables("panel"),
        policies={"south": "chance"},
        outcome="bought",
        treatment="mailed",
    )
    model = tmp_path / "m.skops"
    code, out, err = run(capsys, "check", "--config", path, "--details")
    assert (code, err) == (0, "")
    assert "Tested by the rows with both labels" in " ".join(out.split())
    assert "with both labels" in out
    assert "with a known policy" in out
    code, out, _ = run(capsys, "check", "--config", path, "--json")
    found = json.loads(out)
    assert found["identification"]["n_joint"] == 300
    assert found["identification"]["n_policy"] == 600
    assert found["known_worth"] > 1.0
    code, out, _ = run(capsys, "plan-study", "--config", path, "--half-width", "0.05")
    assert "known of 20% of them" in " ".join(out.split())
    assert run(capsys, "fit", "--config", path, "--model", model)[0] == 0
    code, out, _ = run(capsys, "evaluate", "--config", path, "--cross", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 600 + 600 + 600 + 300  # nobody counts twice
    people = folder / "customers.csv"
    page = tmp_path / "r.html"
    words = ["--config", path, "--model", model, "--table", people, "--out", page]
    code, out, _ = run(capsys, "report", *words, "--json")
    assert code == 0
    assert json.loads(out)["known"]["n_joint"] == 300
    text = page.read_text("utf-8")
    assert "--both" in text  # the command that makes it again
    assert "300 outcome rows have both labels" in text


def test_a_panel_that_the_settings_name_is_never_written_to(capsys, folder, tmp_path):
    both = {"north": "panel_north.csv"}
    path = settings(folder, "panel", both=both, outcome="bought", treatment="mailed")
    model = tmp_path / "m.skops"
    assert run(capsys, "fit", "--config", path, "--model", model)[0] == 0
    before = (folder / "panel_north.csv").read_bytes()
    words = ["--model", model, "--table", folder / "customers.csv", "--force"]
    target = folder / "panel_north.csv"
    code, _, err = run(capsys, "score", "--config", path, *words, "--out", target)
    assert code == 2
    assert "is a table that the settings name" in err
    words = [
        "--both",
        f"north={target}",
        "--outcome",
        "bought",
        "--treatment",
        "mailed",
    ]
    code, _, err = run(
        capsys, "report", *words, "--model", model, "--out", f"{target}.html"
    )
    assert code == 0
    code, _, err = run(
        capsys,
        "fit",
        *words,
        "--both",
        f"south={target}",
        "--model",
        tmp_path / "n.skops",
    )
    assert code == 2
    assert "are the same file" in err
    assert target.read_bytes() == before


LOGGED = "--outcomes north=logged_north.csv --outcomes south=logged_south.csv --outcome bought"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--policies north=chance",
            "of population 'south' nothing is said about treatments",
        ),
        ("--policies north=70 --policies south=0.3", "Write 70% for percent."),
        ("--policies north=-0.1 --policies south=0.3", "--policies must lie in [0, 1]"),
        ("--policies north=chanc --policies south=0.3", "Did you mean 'chance'?"),
        ("--policies north=age --policies south=0.3", "from 0 to 1"),
        (
            "--policies north --policies south=0.3",
            "must be NAME=CHANCE, such as north=0.3",
        ),
        (
            "--policies north= --policies south=0.3",
            "must be NAME=CHANCE, such as north=0.3",
        ),
        ("--policies north=.3 --policies north=0.3", "twice for population 'north'"),
        (
            "--policies north=0.3 --policies south=0.3 --policies west=0.3",
            "of population 'west' there are no outcomes. Give --outcomes west=TABLE",
        ),
        ("", "give --policies NAME=CHANCE in place of --treatments"),
        ("--policies north=0.3 --both south=panel_south.csv", "Missing: --treatment."),
        (
            "--both north=nowhere.csv --policies south=0.3 --treatment mailed",
            "nowhere.csv",
        ),
    ],
)
def test_what_is_wrong_is_said(capsys, folder, line, message):
    with contextlib.chdir(folder):
        code, out, err = run(capsys, "check", *shlex.split(f"{LOGGED} {line}"))
    assert (code, out) == (2, "")
    assert err.startswith("unjoined: ")
    assert message in err


def test_what_needs_all_rows_is_not_read_in_pieces(capsys, folder, tmp_path):
    line = f"{LOGGED} --policies north=chance --policies south=chance"
    with contextlib.chdir(folder):
        code, _, err = run(capsys, "fit", *shlex.split(line), "--chunks")
        assert code == 2
        assert "--policies needs all rows in memory" in err
        words = ["--estimator", "minmax", "--model", tmp_path / "m.skops"]
        code, _, err = run(capsys, "fit", *shlex.split(line), *words)
        assert code == 2
        assert "takes one label a row" in err


@pytest.mark.parametrize("policies", ["chance", {"north": True}, {"north": [0.3]}])
def test_settings_that_name_no_policies_get_a_sentence(capsys, folder, policies):
    path = settings(
        folder, "wrong", outcomes=tables("logged"), policies=policies, outcome="bought"
    )
    code, _, err = run(capsys, "check", "--config", path)
    assert code == 2
    assert "'policies' must name a chance or a column for each population" in err


def guessed(capsys, folder, where, *files):
    """Copy some files, run init, and return the settings; check must take them as they are."""
    for file in files:
        (where / file).write_bytes((folder / file).read_bytes())
    path = where / "unjoined.toml"
    code, out, err = run(capsys, "init", where, "--out", path, "--force")
    if code:
        return err
    assert run(capsys, "check", "--config", path)[0] in (0, 3)
    return tomllib.loads(path.read_text("utf-8")) | {"said": " ".join(out.split())}


FOUR = [f"{kind}_{name}.csv" for kind in ("sales", "mail") for name in NAMES]


def test_init_takes_tables_with_both_labels_for_panels(capsys, folder, tmp_path):
    panels = list(tables("panel").values())
    found = guessed(capsys, folder, tmp_path, *FOUR, *panels, "customers.csv")
    assert found["both"] == tables("panel")
    assert found["outcomes"] == tables("sales")
    assert (found["outcome"], found["treatment"]) == ("bought", "mailed")
    assert found["table"] == "customers.csv"
    assert "Both labels are in" in found["said"]
    (tmp_path / "panel_south.csv").unlink()
    found = guessed(capsys, folder, tmp_path)
    assert found["both"] == {"north": "panel_north.csv"}


def test_init_proposes_a_column_of_chances(capsys, folder, tmp_path):
    found = guessed(
        capsys, folder, tmp_path, *tables("logged").values(), "customers.csv"
    )
    assert found["policies"] == {"north": "chance", "south": "chance"}
    assert "treatments" not in found
    assert "known chance of treatment of north, south" in found["said"]


def test_init_proposes_it_for_the_population_that_lacks_treatments(
    capsys, folder, tmp_path
):
    files = ["logged_north.csv", "sales_south.csv", "mail_south.csv"]
    found = guessed(capsys, folder, tmp_path, *files)
    assert found["treatments"] == {"south": "mail_south.csv"}
    (north,) = {*found["outcomes"]} - {"south"}
    assert found["policies"] == {north: "chance"}
    (tmp_path / "logged_north.csv").rename(tmp_path / "sales_north.csv")
    frame = pd.read_csv(tmp_path / "sales_north.csv").drop(columns="chance")
    frame.to_csv(tmp_path / "sales_north.csv", index=False)
    said = guessed(capsys, folder, tmp_path)
    assert "no treatment table whose name goes with" in said
    assert "policies = { north = 0.3 }" in said


def test_init_reads_populations_of_a_column(capsys, folder, tmp_path):
    parts = [
        pd.read_csv(folder / file).assign(region=name)
        for name, file in tables("logged").items()
    ]
    pd.concat([*[parts[0]] * 4, parts[1]]).to_csv(tmp_path / "logged.csv", index=False)
    found = guessed(capsys, folder, tmp_path)
    assert found["population"] == "region"
    assert found["policies"] == {"north": "chance", "south": "chance"}


def test_init_says_what_else_there_is(capsys, folder, tmp_path):
    said = guessed(capsys, folder, tmp_path, *tables("sales").values())
    assert "no treatment table is needed: write policies = { NAME = 0.3 }" in said
    for file in tables("sales").values():
        (tmp_path / file).unlink()
    said = guessed(capsys, folder, tmp_path, *tables("panel").values())
    assert "with joined labels ordinary uplift modelling is better" in said
    assert "--both" in said


@pytest.fixture(scope="module")
def offer(tmp_path_factory):
    """An offer made by chance; hidden ease decides who takes it up, and goes along with visits."""
    where = tmp_path_factory.mktemp("offer")
    rng = np.random.default_rng(1)
    for arm in ("made", "held"):
        for kind in ("came", "called"):
            age, ease = rng.integers(18, 80, 700), rng.random(700)
            called = (ease > 0.4) & (arm == "made")
            came = rng.random(700) < 0.1 + 0.3 * ease + 0.3 * called
            label = came if kind == "came" else called
            frame = pd.DataFrame({"age": age, "visits": rng.poisson(2.0, 700)})
            frame.assign(**{kind: label * 1}).to_csv(
                where / f"{kind}_{arm}.csv", index=False
            )
    return settings(
        where,
        "offer",
        outcomes={arm: f"came_{arm}.csv" for arm in ("made", "held")},
        treatments={arm: f"called_{arm}.csv" for arm in ("made", "held")},
        outcome="came",
        treatment="called",
        randomised=True,
    )


def test_gains_of_an_offer_are_called_so_everywhere(capsys, offer, tmp_path):
    model, page = tmp_path / "m.skops", tmp_path / "r.html"
    people = tmp_path / "p.csv"
    frame = pd.read_csv(offer.parent / "came_made.csv")[:100]
    frame[["age", "visits"]].to_csv(people, index=False)
    code, out, _ = run(capsys, "check", "--config", offer, "--details")
    words = " ".join(out.split())
    assert code == 0
    assert "people take it up because of it" in words
    assert "implied means" not in words
    words = ["--config", offer, "--model", model]
    code, out, _ = run(capsys, "fit", *words, "--json")
    facts = json.loads(out)
    assert {"compliers", "complier_share", "offer"} <= set(facts)
    assert facts["compliers"]["value"] == pytest.approx(
        facts["offer"]["value"] / facts["complier_share"]["value"], rel=0.3
    )
    words = ["--model", model, "--table", people]
    code, out, _ = run(
        capsys, "score", *words, "--share", "30%", "--out", tmp_path / "l.csv"
    )
    said = " ".join(out.split())
    assert "Make the offer to 30 of 100 people: expected to add" in said
    assert "those of them gain who take it up because of the offer" in said
    code, out, _ = run(capsys, "evaluate", "--config", offer, "--cross", "--json")
    found = json.loads(out)
    assert found["complier_share"]["value"] == pytest.approx(0.6, abs=0.1)
    assert found["average"]["value"] == pytest.approx(facts["offer"]["value"], rel=1e-6)
    words += ["--config", offer, "--out", page]
    code, out, _ = run(capsys, "report", *words, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["offer"]["value"] == pytest.approx(facts["offer"]["value"], rel=1e-6)
    assert "ake the offer to" in found["verdict"]
    assert "if the offer changes outcomes only through the treatment" in found["trust"]
    text = page.read_text("utf-8")
    assert "Nobody was picked for what they gain" not in text
    assert "Effect on takers" in text
    body = text.split("</style>")[1].split("<script")[0]
    assert "treating" not in body
    assert "share of people treated" not in body


def test_a_model_of_all_people_is_no_model_of_an_offer(capsys, offer, tmp_path):
    model = tmp_path / "plain.skops"
    plain = offer.read_text("utf-8").replace("randomised = true\n", "")
    path = offer.with_name("plain.toml")
    path.write_text(plain, "utf-8")
    assert run(capsys, "fit", "--config", path, "--model", model)[0] in (0, 3)
    code, _, err = run(capsys, "evaluate", "--config", offer, "--model", model)
    assert code == 2
    assert "was fitted without --randomised" in err
    words = ["--cross", "--estimator", "minmax"]
    code, _, err = run(capsys, "evaluate", "--config", offer, *words)
    assert code == 2
    assert "--randomised is for the default estimator" in err
