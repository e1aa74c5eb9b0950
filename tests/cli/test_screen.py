"""Names of the user's on the screen: shown as they are, and never obeyed."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from unjoined import WeightedUplift, load_model, save_model
from unjoined.cli.entry import main
from unjoined.data import paper_problem, write_table
from unjoined.evaluate.verdict import Finding, Verdict

pytestmark = pytest.mark.usefixtures("two_folds")

NASTY = "age[/years] :smile: \x1b[2Jx\ny\x9b\u202e[bold]"
SHOWN = r"age[/years] :smile: \x1b[2Jx\ny\x9b\u202e[bold]"


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Tables whose feature and population have names that a terminal would obey."""
    folder = tmp_path_factory.mktemp("screen[1]")
    rng = np.random.default_rng(0)
    for kind, label in (("outcomes", "y"), ("treatments", "t")):
        number = np.arange(400)
        share = np.where(number % 2, 0.9, 0.1)
        table = {
            NASTY: rng.normal(size=400),
            "region": pa.array([NASTY if n % 2 else "s" for n in number]),
            label: (rng.uniform(size=400) < share).astype(int),
        }
        write_table(pa.table(table), folder / f"{kind}.parquet")
    return [
        *(
            "--outcomes",
            folder / "outcomes.parquet",
            "--treatments",
            folder / "treatments.parquet",
        ),
        *("--outcome", "y", "--treatment", "t", "--population", "region"),
    ]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A screen on which no line is broken."""
    monkeypatch.setenv("COLUMNS", "1000")


def is_harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


def test_names_in_tables_and_sentences_are_shown_as_they_are(capsys, words):
    code, out, err = run(capsys, "check", *words, "--details")
    assert (code, err) == (0, "")
    assert is_harmless(out)
    assert f"Features: {SHOWN}." in out.splitlines()
    assert (
        sum(f" {SHOWN} " in line for line in out.splitlines()) >= 2
    )  # a row for each kind


def test_a_path_with_brackets_is_reported_in_full(capsys, words, tmp_path):
    for name, way in (
        ("m[v2].skops", ["--estimator", "FourLogistic"]),
        ("n[red]\x1b[0m.skops", ["--chunks"]),
    ):
        model = tmp_path / name
        code, out, _ = run(capsys, "fit", *words, *way, "--model", model)
        assert code == 0
        assert is_harmless(out)
        assert f"Wrote {tmp_path / name}.".replace("\x1b", r"\x1b") in out
        assert load_model(model).n_features_in_ == 1


def test_names_in_errors_and_warnings_are_shown_as_they_are(capsys, words, tmp_path):
    code, out, err = run(capsys, "check", *words, "--ignore", f"{NASTY},none\x1b[2J")
    assert (code, out) == (2, "")
    assert is_harmless(err)
    code, out, err = run(capsys, f"\x1b[2J{NASTY}")
    assert (code, out) == (2, "")
    assert is_harmless(err)
    assert SHOWN in err
    code, out, err = run(capsys, "check", f"--{NASTY}")
    assert code == 2
    assert is_harmless(err)
    missing = tmp_path / f"{NASTY.replace('/', '')}.csv"
    code, out, err = run(
        capsys, "score", "--model", missing, "--table", "t", "--out", "o.csv"
    )
    assert code == 2
    assert is_harmless(err)


def test_json_holds_the_names_themselves(capsys, words):
    code, out, _ = run(capsys, "check", *words, "--json")
    assert code == 0
    result = json.loads(
        out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    assert result["features"] == [NASTY]
    assert {cell["population"] for cell in result["tables"]} == {NASTY, "s"}


def test_sums_report_populations_and_files_as_they_are(capsys, words, tmp_path):
    name = "n[/x]\x1b[2J"
    plan = tmp_path / "plan[1].sums"
    given = (
        "--feature",
        f"{NASTY}=0:1",
        "--populations",
        f"{name},s",
        "--functions",
        2,
    )
    code, out, err = run(capsys, "plan", *given, "--out", plan)
    assert (code, err) == (0, "")
    assert is_harmless(out)
    assert out.startswith(f"Wrote {plan}: 4 functions of {SHOWN}. ")


def test_json_holds_numbers_however_far_away_people_are(capsys, tmp_path):
    """JSON has no word for infinity."""
    data = paper_problem(b=5.0).draw(100, random_state=0)
    frame = pa.table({"x": np.asarray(data.X)[:, 0]})
    model = WeightedUplift(basis="linear").fit(**{**data, "X": frame})
    save_model(model, tmp_path / "m.skops")
    write_table(pa.table({"x": [1.7e308] * 100}), tmp_path / "people.parquet")
    words = (
        "--model",
        tmp_path / "m.skops",
        "--table",
        tmp_path / "people.parquet",
        "--json",
    )
    code, out, err = run(capsys, "score", *words, "--out", tmp_path / "s.csv")
    assert code == 3, err  # nobody is like those of the fit
    result = json.loads(
        out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    assert np.isfinite(result["uplift"]["mean"])
    assert result["colour"] == "red"


@pytest.mark.parametrize(
    ("strong", "headline"), [(0.0, "Weakly"), (0.6, "Identified for 60%")]
)
def test_a_warning_of_weak_policies_does_not_contradict_the_verdict(
    capsys, monkeypatch, tmp_path, strong, headline
):
    rng = np.random.RandomState(0)
    words = ["--outcome", "y", "--treatment", "t", "--estimator", "two-stage"]
    for kind, label in (("outcomes", "y"), ("treatments", "t")):
        for name in ("n", "s"):
            rows = rng.randint(0, 2, 200)
            lines = [f"{x:.3f},{v}" for x, v in zip(rng.randn(200), rows, strict=True)]
            file = tmp_path / f"{kind}_{name}.csv"
            file.write_text("\n".join([f"age,{label}", *lines]))
            words += [f"--{kind}", f"{name}={file}"]
    numbers = {"whom": "all others", "share": 1.0 - strong, "whose": "people"}
    finding = Finding("weakly identified", "regions.small gap", numbers)
    verdict = Verdict("weakly identified", (finding,), ("n", "s"), strong)
    found = SimpleNamespace(as_verdict=lambda: verdict)
    monkeypatch.setattr("unjoined.cli.fit.diagnose", lambda *_, **__: found)
    code, out, err = run(capsys, "fit", *words, "--model", tmp_path / "m.skops")
    assert code == 0
    assert f"Verdict (amber): {headline}" in out
    assert ("can hardly be told apart" in out + err) is (strong == 0.0)
