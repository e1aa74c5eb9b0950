"""The command evaluate, as a user types it."""

import json

import numpy as np
import pytest

from unjoined import SeparateLabels, load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import write_table
from unjoined.evaluate import evaluate_uplift

pytestmark = pytest.mark.usefixtures("two_folds")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def tables(folder):
    return [
        word
        for kind in ("outcome", "treatment")
        for name in ("north", "south")
        for word in (f"--{kind}s", f"{name}={folder / f'{kind}s_{name}.parquet'}")
    ] + ["--outcome", "bought", "--treatment", "mailed"]


@pytest.mark.slow
def test_numbers_are_those_of_the_library_on_the_same_tables(
    capsys, tmp_path, write_campaign
):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, seed in ((old, 0), (new, 1)):
        folder.mkdir()
        write_campaign(folder, n_per_table=300, n_customers=5, seed=seed)
    model = tmp_path / "m.skops"
    code, _, _ = run(
        capsys,
        "fit",
        *tables(old),
        "--model",
        model,
        "--estimator",
        "weighted",
        "--json",
    )
    assert code == 0
    arguments = (
        "evaluate",
        *tables(new),
        "--model",
        model,
        "--share",
        0.2,
        "--threshold",
        0.1,
    )
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    parts = {
        f"{kind}s": {
            name: read_table(new / f"{kind}s_{name}.parquet")
            for name in ("north", "south")
        }
        for kind in ("outcome", "treatment")
    }
    data = SeparateLabels.from_tables(**parts, outcome="bought", treatment="mailed")
    rules = {"best 20%": ("share", 0.2), "from 0.1 on": ("threshold", 0.1)}
    same = evaluate_uplift(load_model(model), data, rules=rules, random_state=0)
    assert found["average"]["value"] == pytest.approx(same.average.value)
    assert found["rules"]["best 20%"]["low"] == pytest.approx(
        same.rules["best 20%"].interval()[0]
    )
    assert set(found["rules"]) == set(rules)
    code, out, err = run(capsys, *arguments, "--chunks", "--json")
    assert (code, err) == (0, "")
    pieces = json.loads(out)
    assert pieces["rows"] == found["rows"] == 1200
    assert pieces["average"]["value"] == pytest.approx(
        found["average"]["value"], abs=found["average"]["standard_error"]
    )


def test_mistakes_are_said_in_one_line(capsys, tmp_path, write_campaign):
    write_campaign(tmp_path, n_per_table=50, n_customers=5, seed=0)
    code, out, err = run(capsys, "evaluate", *tables(tmp_path))
    assert (code, out) == (2, "")
    assert "either --model" in err
    code, _, err = run(capsys, "evaluate", "--cross", *tables(tmp_path)[:-2])
    assert code == 2
    assert "Missing: --treatment" in err
    code, _, err = run(capsys, "evaluate", "--cross", *tables(tmp_path), "--chunks")
    assert code == 2
    assert "--cross fits to all rows in memory" in err
    code, _, err = run(
        capsys, "evaluate", "--cross", *tables(tmp_path), "--estimator", "magic"
    )
    assert code == 2
    assert "--estimator" in err


def test_a_model_is_not_judged_by_the_rows_it_was_fitted_to(
    capsys, tmp_path, write_campaign
):
    write_campaign(tmp_path, n_per_table=120, n_customers=5, seed=0)
    model = tmp_path / "m.skops"
    words = (*tables(tmp_path), "--model", model)
    assert run(capsys, "fit", *words, "--estimator", "FourLogistic", "--json")[0] == 0
    code, out, err = run(capsys, "evaluate", *words)
    assert (code, out) == (2, "")
    assert "was fitted to these very rows" in err


def test_the_model_of_the_settings_is_not_for_evaluate(capsys, tmp_path):
    settings = tmp_path / "u.toml"
    settings.write_text("model = 'm.skops'\noutcomes = 'o.csv'\ntreatments = 't.csv'\n")
    words = ("--cross", "--outcome", "y", "--treatment", "t", "--population", "r")
    _, _, err = run(capsys, "evaluate", "--config", settings, *words)
    assert "there is no file" in err  # rather than: either --model or --cross


def test_costs_differences_earlier_tables_and_controls_are_held_against_gains(
    capsys, tmp_path, write_campaign
):
    write_campaign(tmp_path, n_per_table=150, n_customers=5, seed=0)
    earlier = []
    for name in ("north", "south"):
        file = tmp_path / f"outcomes_{name}.parquet"
        table = read_table(file)
        moved = (np.arange(len(table)) % 3 == 0).astype(np.int64)
        write_table(table.append_column("moved", [moved]), file)
        write_table(table, tmp_path / f"before_{name}.parquet")
        earlier += ["--before", f"{name}={tmp_path / f'before_{name}.parquet'}"]
    every = ("evaluate", "--cross", *tables(tmp_path), "--share", "50%")
    money = ("--cost", 0.8, "--value", 40, "--delta", 0.03)
    code, out, _ = run(
        capsys, *every, *earlier, "--unaffected", "moved", *money, "--json"
    )
    assert code == 0
    found = json.loads(out)["sensitivity"]
    assert [each["name"] for each in found["placebos"]] == [
        "the earlier outcome",
        "moved",
    ]
    for each, less in zip(found["claims"], found["differenced"], strict=True):
        assert each["cost"] == less["cost"] == pytest.approx(0.02)
        assert each["robust_low"] < each["low"] < each["high"] < each["robust_high"]
        assert each["what"] == less["what"]
    # The earlier outcomes are those of now, so that nothing is left.
    assert found["differenced"][0]["value"] == pytest.approx(-0.02, abs=0.08)
    assert "If the populations differ now as they did before" in found["words"][-1]
    for extra, message in (
        (earlier[:2], "give --before once for each population"),
        (["--unaffected", "mved"], "no column 'mved'"),
        (["--same", "north"], "same must name two populations or more"),
        (["--cost", 1], "--cost needs --value"),
        (["--delta", -1], "--delta must be a finite number, 0 or above"),
    ):
        code, _, err = run(capsys, *every, *extra)
        assert code == 2
        assert message in err
