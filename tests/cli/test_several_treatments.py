"""Amounts and several treatments on the command line, from files to a list."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from unjoined import load_model
from unjoined.cli import main

SHARES = {"east": (0.2, 0.7, 0.1), "south": (0.2, 0.1, 0.7), "west": (0.8, 0.1, 0.1)}
pytestmark = pytest.mark.usefixtures("two_folds")


def write(folder, effects, shares, n=400, seed=0):
    """Write tables of places that treat differently; a treatment is a word or an amount."""
    rng = np.random.default_rng(seed)
    words = list(effects)
    tables = {"spent": [], "sent": []}
    for name, rows in tables.items():
        for place, share in shares.items():
            X = rng.normal(size=(n, 2)).round(3)
            given = rng.choice(len(words), n, p=share)
            effect = np.array([effects[words[i]] for i in given])
            frame = pd.DataFrame(X, columns=["age", "income"]).assign(place=place)
            spent = X[:, 1] + effect * (1.0 + X[:, 0]) + 0.5 * rng.normal(size=n)
            label = spent if name == "spent" else [words[i] for i in given]
            rows.append(frame.assign(**{name: label}))
        pd.concat(rows).to_csv(folder / f"{name}.csv", index=False)
    people = pd.DataFrame(rng.normal(size=(60, 2)), columns=["age", "income"])
    people.assign(id=[f"c{i}" for i in range(60)]).to_csv(
        folder / "people.csv", index=False
    )


def run(*words, code=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert (stop.value.code or 0) == code


def options(folder):
    named = {"outcomes": "spent.csv", "treatments": "sent.csv"}
    tables = [part for o, f in named.items() for part in (f"--{o}", folder / f)]
    return [
        *tables,
        "--population",
        "place",
        "--outcome",
        "spent",
        "--treatment",
        "sent",
    ]


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Places that like mail, phone or nothing, with a model of the two."""
    folder = tmp_path_factory.mktemp("letters")
    write(folder, {"none": 0.0, "mail": 0.5, "phone": 1.0}, SHARES)
    return folder


@pytest.fixture(scope="module")
def fitted(letters):
    model = letters / "arms.skops"
    run("fit", *options(letters), "--control", "none", "--model", model)
    return model


def test_fit_says_what_each_treatment_does(letters, fitted, capsys):
    run(
        "fit",
        *options(letters),
        "--control",
        "none",
        "--model",
        fitted,
        "--force",
        "--json",
    )
    facts = json.loads(capsys.readouterr().out)
    assert facts["control"] == "none"
    assert set(facts["treatments"]) == {"mail", "phone"}
    phone = facts["treatments"]["phone"]["average_effect"]
    assert phone["low"] < phone["value"] < phone["high"]
    assert facts["treatments"]["mail"]["verdict"]["colour"] == "green"
    model = load_model(fitted)
    assert phone["value"] == model.models_["phone"].average_effect_.value
    assert set(facts["values"]) == {*model.values_}


def test_check_speaks_of_each_treatment(letters, capsys):
    run("check", *options(letters), "--control", "none")
    said = " ".join(capsys.readouterr().out.split())
    assert "mail: The policies differ by about" in said
    assert "phone: The policies differ by about" in said
    run("check", *options(letters), code=2)
    assert "name the one that means none with control=VALUE" in capsys.readouterr().err


def test_a_list_says_whom_to_give_which(letters, fitted, capsys):
    out = letters / "list.csv"
    people = ["--table", letters / "people.csv", "--keep", "id", "--out", out]
    money = ["--cost", "mail=0.2,phone=0.4", "--value", 1, "--budget", 8]
    run("score", "--model", fitted, *people, *money, "--json")
    facts = json.loads(capsys.readouterr().out)
    table = pd.read_csv(out, keep_default_na=False)
    model = load_model(fitted)
    uplift = model.predict(pd.read_csv(letters / "people.csv")[["age", "income"]])
    np.testing.assert_allclose(table[["uplift_mail", "uplift_phone"]], uplift)
    assert list(table.columns) == [
        "id",
        "uplift_mail",
        "uplift_phone",
        "treatment",
        "flags",
    ]
    counts = table["treatment"].value_counts()
    costs = {"mail": 0.2, "phone": 0.4}
    for arm, cost in costs.items():
        own = facts["treatments"][arm]
        assert own["people"] == counts.get(arm, 0)
        assert own["cost"] == pytest.approx(cost * own["people"])
        assert own["gain"]["low"] <= own["gain"]["value"] <= own["gain"]["high"]
    assert sum(own["cost"] for own in facts["treatments"].values()) <= 8.0
    # Who gets something gains more than it costs, by the predictions.
    for j, (arm, cost) in enumerate(costs.items()):
        assert (uplift[table["treatment"] == arm, j] > cost).all()


def test_no_treatments_are_given_to_people_of_whom_none_has_a_like(
    letters, fitted, capsys
):
    """Red, as a list of one treatment is: ages in months for years."""
    table = pd.read_csv(letters / "people.csv")
    table.assign(age=1000.0 + table["age"]).to_csv(letters / "far.csv", index=False)
    people = ["--table", letters / "far.csv", "--out", letters / "far-list.csv"]
    run("score", "--model", fitted, *people, "--json", code=3)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["colour"], facts["treatments"]) == ("red", {})
    assert "treatment" not in pd.read_csv(letters / "far-list.csv").columns


def test_evaluate_says_what_each_treatment_is_worth(letters, fitted, tmp_path, capsys):
    given = [*options(letters), "--control", "none"]
    run("evaluate", *given, "--cross", "--json")
    facts = json.loads(capsys.readouterr().out)
    values = load_model(fitted).values_  # of the same seed
    assert facts["gains"]["phone"]["value"] == values["phone"].value
    run("evaluate", *given, "--model", fitted, code=2)
    run("evaluate", *given, "--cross", "--folds", 3, code=2)
    run("evaluate", *given, "--cross", "--same", "east,west", code=2)
    said = capsys.readouterr().err
    assert "was fitted to these very rows" in said
    assert "without each of 5 folds, got --folds 3" in said
    assert "--same is for one treatment" in said
    write(tmp_path, {"none": 0.0, "mail": 0.5, "phone": 1.0}, SHARES, n=200, seed=1)
    given = [*options(tmp_path), "--control", "none", "--share", "30%"]
    given += ["--model", fitted, "--cost", "mail=0.2,phone=50"]
    run("evaluate", *given, code=2)
    assert "--cost needs --value" in capsys.readouterr().err
    run("evaluate", *given, "--value", 1, "--details")
    said = capsys.readouterr().out
    assert "whatever is worth its cost" in said
    assert "mail: Average uplift" in said
    assert "the best for each" in said
    assert "best 30%" in said


def test_a_report_says_who_gets_what_and_shows_each_treatment(
    letters, fitted, tmp_path, capsys
):
    out, people = tmp_path / "report.html", letters / "people.csv"
    given = [*options(letters), "--control", "none", "--model", fitted, "--out", out]
    money = ["--cost", "mail=0.2,phone=0.4", "--value", 1, "--budget", 8]
    run("report", *given, "--table", people, *money, "--json")
    facts = json.loads(capsys.readouterr().out)
    listed = pd.read_csv(facts["list"], keep_default_na=False)
    counts = listed["treatment"].value_counts()
    model = load_model(fitted)
    for arm, cost in {"mail": 0.2, "phone": 0.4}.items():
        own = facts["treatments"][arm]
        assert own["treated"]["people"] == counts[arm]
        # The same people, with what the model's own record says of them.
        gain = model.models_[arm].gain_.gain(
            listed[f"uplift_{arm}"].to_numpy(), listed["treatment"] == arm
        )
        assert own["treated"]["gain"]["value"] == pytest.approx(gain.value)
        net = own["treated"]["net"]["value"]
        assert net == pytest.approx(gain.value - cost * counts[arm])
    parts = [facts["treatments"][arm]["treated"] for arm in ("mail", "phone")]
    for name in ("people", "cost"):
        assert facts["treated"][name] == sum(part[name] for part in parts)
    assert facts["treated"]["cost"] <= 8.0
    for end in ("value", "low", "high"):
        total = sum(part["net"][end] for part in parts)
        assert facts["treated"]["net"][end] == pytest.approx(total)
    page = out.read_text("utf-8")
    assert facts["verdict"] in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {"arm-1-curve-t", "arm-2-curve-t", "arm-1-gap-t"} <= {*ids}
    assert "phone, compared with none" in page
    assert "As if phone was the only treatment." in page
    run("report", *given, "--share", "30%", "--force", code=2)
    run("report", *given, "--cost", "mail=1,phone=2", "--force", code=2)
    said = capsys.readouterr().err
    assert "--share says how many get one treatment" in said
    assert "costs need value" in said


def test_settings_hold_costs_by_treatment(letters, fitted, capsys):
    settings = letters / "unjoined.toml"
    settings.write_text(
        'outcomes = "spent.csv"\ntreatments = "sent.csv"\npopulation = "place"\n'
        'outcome = "spent"\ntreatment = "sent"\ncontrol = "none"\nmodel = "arms.skops"\n'
        'table = "people.csv"\nvalue = 1.0\ncost = { mail = 0.2, phone = 0.4 }\n'
    )
    run("score", "--config", settings, "--out", letters / "other.csv", "--json")
    costs = json.loads(capsys.readouterr().out)["treatments"]
    for arm, cost in {"mail": 0.2, "phone": 0.4}.items():
        assert costs[arm]["cost"] == pytest.approx(cost * costs[arm]["people"])
    assert costs["phone"]["cost"] > 0.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--share", "30%"], "--share, --top and --threshold say how many get one"),
        (
            ["--cost", "mail=1", "--value", "1"],
            "--cost names 'mail', and the model is of",
        ),
        (
            ["--cost", "mail=1,phone=dear", "--value", "1"],
            "--cost must be a number, or NAME",
        ),
        (["--cost", "1"], "--cost needs --value"),
        (["--budget", "5"], "--budget needs --cost"),
    ],
)
def test_what_a_list_of_several_cannot_take(letters, fitted, words, message, capsys):
    out = letters / "never.csv"
    people = ["--table", letters / "people.csv", "--out", out]
    run("score", "--model", fitted, *people, *words, code=2)
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_commands_for_one_treatment_say_so(letters, fitted, capsys):
    given = [*options(letters), "--control", "none"]
    run("plan-study", *given, "--half-width", 0.1, code=2)
    said = capsys.readouterr().err
    assert "plan-study looks at one treatment, and --control says" in said
    run("fit", *given, "--estimator", "minmax", "--model", letters / "no.skops", code=2)
    assert "--control is for the default estimator" in capsys.readouterr().err


def test_amounts_go_from_fit_to_report(tmp_path, capsys):
    shares = {"east": (0.2, 0.3, 0.3, 0.2), "west": (0.7, 0.2, 0.1, 0.0)}
    write(tmp_path, {0: 0.0, 1: 0.4, 2: 0.8, 3: 1.2}, shares)
    given = [*options(tmp_path), "--dose"]
    model = tmp_path / "model.skops"
    run("check", *given, "--details")
    said = " ".join(capsys.readouterr().out.split())
    assert "the mean dose (in its standard deviations) differs by" in said
    mean = pd.read_csv(tmp_path / "sent.csv").groupby("place")["sent"].mean()["east"]
    assert f"treatments east 400 mean dose {mean:.3g}" in said
    assert "% treated" not in said
    run("fit", *given, "--model", model, "--json")
    facts = json.loads(capsys.readouterr().out)
    ends = facts["average_effect"]
    assert ends["low"] < 0.4 < ends["high"]
    people = ["--table", tmp_path / "people.csv", "--share", "30%"]
    run("score", "--model", model, *people, "--out", tmp_path / "list.csv")
    assert "Give one unit more to 18 of 60 people" in capsys.readouterr().out
    report = tmp_path / "report.html"
    run("report", *given, "--model", model, *people, "--out", report)
    page = report.read_text("utf-8")
    assert "one unit more to" in page.lower()
    assert "chance of treatment" not in page
    # Where people are far outside no column changes anything: a page all the same.
    strange = 1000.0 * (5.0 + pd.read_csv(tmp_path / "people.csv")[["age", "income"]])
    strange.to_csv(tmp_path / "strange.csv", index=False)
    other = ["--table", tmp_path / "strange.csv", "--out", tmp_path / "other.html"]
    run("report", *given, "--model", model, *other, code=3)  # red
    assert "Do not choose people by these scores" in other[-1].read_text("utf-8")


@pytest.mark.parametrize(
    ("values", "setting", "sentence"),
    [
        (("none", "mail", "phone"), 'control = "none"', "'none' means none"),
        (
            ("kein Brief", "Brief", "Anruf"),
            'control = "kein Brief"',
            "several treatments",
        ),
        (("mail", "phone", "visit"), 'treated = ""', "or which is none (control)"),
        ((0, 1, 2), "# dose = true", "amounts (dose) or codes of treatments (control)"),
        ((0.0, 0.5, 1.5), "dose = true", "uplift is what one unit more does"),
        (("yes", "no"), 'treatment = "sent"', "'sent' is the treatment"),
    ],
)
def test_init_tells_amounts_from_treatments(
    tmp_path, capsys, values, setting, sentence
):
    rng = np.random.default_rng(0)
    for name in ("spent", "sent"):
        label = rng.normal(size=80) if name == "spent" else rng.choice(values, 80)
        frame = pd.DataFrame({"age": rng.integers(20, 70, 80), name: label})
        frame.assign(region=rng.choice(["n", "s"], 80)).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    out = tmp_path / "unjoined.toml"
    run("init", tmp_path, "--treatment", "sent", "--outcome", "spent", "--out", out)
    assert sentence in " ".join(capsys.readouterr().out.split())
    lines = out.read_text("utf-8").splitlines()
    assert any(line.startswith(setting) for line in lines)
