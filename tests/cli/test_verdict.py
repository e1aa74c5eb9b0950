"""What a verdict does: red writes no decision, and every verdict says what was not tested."""

import contextlib
import io
import json

import numpy as np
import pandas as pd
import pytest

from unjoined import SeparateLabels, Uplift, load_model, save_model
from unjoined.cli.entry import main
from unjoined.data import campaign_problem, paper_problem
from unjoined.data.rows import separate_labels

pytestmark = pytest.mark.usefixtures("two_folds")

RED = 3
TABLES = [
    *("--outcomes", "a=outcomes_a.csv", "--outcomes", "b=outcomes_b.csv"),
    *("--treatments", "a=treatments_a.csv", "--treatments", "b=treatments_b.csv"),
    *("--outcome", "y", "--treatment", "t"),
]
SCORE = ["score", "--model", "m.skops", "--table", "people.csv", "--force"]


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def write_tables(folder, data):
    names = [f"f{j}" for j in range(np.shape(data.X)[1])]
    for kind in ("outcome", "treatment"):
        for new, old in zip("ab", np.unique(data.population), strict=True):
            at = data.rows(kind, old)
            frame = pd.DataFrame(np.asarray(data.X)[at], columns=names)
            label = data.checked.label[at]
            frame["y" if kind == "outcome" else "t"] = (label > 0).astype(int)
            frame.to_csv(folder / f"{kind}s_{new}.csv", index=False)
    frame.to_csv(folder / "people.csv", index=False)


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Tables of two populations that were treated alike, a model of them, and what fit said."""
    path = tmp_path_factory.mktemp("alike")
    write_tables(path, paper_problem(b=0.0).draw(300, random_state=0))
    said = io.StringIO()
    with (
        contextlib.chdir(path),
        contextlib.redirect_stdout(said),
        pytest.raises(SystemExit) as stop,
    ):
        main(["fit", *TABLES, "--model", "m.skops"])
    assert stop.value.code == RED
    (path / "said.txt").write_text(said.getvalue())
    return path


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Tables of two populations that were treated differently."""
    path = tmp_path_factory.mktemp("apart")
    write_tables(path, campaign_problem().draw(2000, random_state=1))
    return path


def test_a_red_fit_does_not_send_anyone_to_score(alike):
    said = (alike / "said.txt").read_text()
    assert "Verdict (red)" in said
    assert "Next: unjoined score" not in said


def test_a_red_model_writes_no_decisions(capsys, alike):
    with contextlib.chdir(alike):
        code, out, _ = run(capsys, *SCORE, "--share", "30%", "--out", "list.csv")
        listed = pd.read_csv("list.csv")
    assert code == RED
    assert "treat" not in listed
    assert "uplift" in listed
    assert "--despite-red" in out
    assert "expected to add" not in out
    with contextlib.chdir(alike):
        code, out, _ = run(
            capsys, *SCORE, "--share", "30%", "--out", "list.csv", "--json"
        )
    found = json.loads(out)
    assert (code, found["treated"], found["gain"]) == (RED, None, None)


def test_whoever_knows_that_it_is_red_gets_the_decisions(capsys, alike):
    with contextlib.chdir(alike):
        code, _, _ = run(
            capsys, *SCORE, "--share", "30%", "--out", "l.csv", "--despite-red"
        )
        listed = pd.read_csv("l.csv")
    assert code == 0
    assert listed["treat"].sum() == 90


def test_red_has_one_exit_code(capsys, alike):
    report = ["report", *TABLES, "--model", "m.skops", "--out", "r.html", "--force"]
    with contextlib.chdir(alike):
        assert run(capsys, "check", *TABLES, "--json")[0] == RED
        assert run(capsys, *report, "--table", "people.csv")[0] == RED
        assert "treat" not in pd.read_csv("r-list.csv")
        code, *_ = run(capsys, *report, "--table", "people.csv", "--despite-red")
        assert (code, "treat" in pd.read_csv("r-list.csv")) == (0, True)


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
def test_a_model_fitted_in_python_keeps_its_verdict(capsys, alike, apart):
    for path, colour in ((alike, "red"), (apart, "green")):
        tables = [
            {name: pd.read_csv(path / f"{kind}_{name}.csv") for name in "ab"}
            for kind in ("outcomes", "treatments")
        ]
        data = SeparateLabels.from_tables(*tables, outcome="y", treatment="t")
        model = Uplift(random_state=0).fit(data)
        assert model.verdict_.colour == colour
        save_model(model, path / "python.skops")
        assert load_model(path / "python.skops").verdict_ == model.verdict_
        with contextlib.chdir(path):
            words = ["score", "--model", "python.skops", "--table", "people.csv"]
            code, *_ = run(capsys, *words, "--out", "python.csv")
            assert code == (RED if colour == "red" else 0)
            assert ("treat" in pd.read_csv("python.csv")) == (colour != "red")


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
def test_a_model_of_one_table_given_twice_is_red():
    data = campaign_problem().draw(500, random_state=0)
    first, second = np.unique(data.population)
    one, two = data.rows("outcome", first), data.rows("outcome", second)
    X, y = np.array(data.X), np.array(data.checked.label)
    X[two], y[two] = X[one], y[one]
    model = Uplift(random_state=0).fit(
        X, **separate_labels(y, data.kind), population=data.population
    )
    assert model.verdict_.colour == "red"
    assert "given twice" in model.verdict_.words


@pytest.mark.slow
def test_fit_says_how_many_peoples_rows_a_model_holds(capsys, apart):
    with contextlib.chdir(apart):
        words = ["fit", *TABLES, "--model", "held.skops", "--force"]
        code, out, _ = run(capsys, *words, "--estimator", "weighted", "--details")
        assert code == 0
        assert "It holds data about people." in out
        assert "The model holds the features of" in out
        assert json.loads(run(capsys, *words, "--json")[1])["rows_held"] == 0
