"""Three populations on the command line, from check to a targeting list."""

import json

import numpy as np
import pytest

from unjoined import load_model
from unjoined.cli.entry import main
from unjoined.data import SimulatedProblem, write_table

pytestmark = pytest.mark.usefixtures("two_folds")

pa = pytest.importorskip("pyarrow")

SHARES = {"east": 0.9, "north": 0.1, "south": 0.12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("three")
    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={k: (lambda X, p=p: np.full(len(X), p)) for k, p in SHARES.items()},
        outcome=lambda X, treated, rng: (
            X[:, 1] + treated * X[:, 0] + rng.standard_normal(len(X))
        ),
        outcome_mean=lambda X, treated: X[:, 1] + treated * X[:, 0],
    )
    data = problem.draw(100, random_state=0)
    for kind, label in (("outcome", "spend"), ("treatment", "mailed")):
        columns = {}
        for name in SHARES:
            at = data.rows(kind, name)
            columns[name] = {
                "age": data.X[at, 0],
                "income": data.X[at, 1],
                label: data.checked.label[at],
            }
            write_table(pa.table(columns[name]), path / f"{kind}s_{name}.parquet")
        parts = [
            pa.table(table | {"region": [name] * len(table["age"])})
            for name, table in columns.items()
        ]
        write_table(pa.concat_tables(parts), path / f"{kind}s.csv")
    write_table(
        pa.table({"age": [1.0, -1.0], "income": [0.0, 0.0]}), path / "people.parquet"
    )
    return path


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout on one line and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


LABELS = ["--outcome", "spend", "--treatment", "mailed"]


def two_tables(folder):
    kinds = ("outcomes", "treatments")
    files = [word for kind in kinds for word in (f"--{kind}", folder / f"{kind}.csv")]
    return [*files, *LABELS, "--population", "region"]


def six_tables(folder):
    return [
        word
        for kind in ("outcomes", "treatments")
        for name in SHARES
        for word in (f"--{kind}", f"{name}={folder / f'{kind}_{name}.parquet'}")
    ] + LABELS


@pytest.mark.parametrize("tables", [two_tables, six_tables])
def test_check_tells_which_of_three_populations_differ(capsys, folder, tables):
    code, out, err = run(capsys, "check", *tables(folder), "--details")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith("Identified")
    assert "east, north" in words
    assert "north, south" in words
    code, out, _ = run(capsys, "check", *tables(folder), "--json")
    found = json.loads(out)
    assert [cell["n_rows"] for cell in found["tables"]] == [100] * 6
    weak = {
        (pair["first"], pair["second"]): pair["is_weak"]
        for pair in found["identification"]["pairs"]
    }
    assert weak == {
        ("east", "north"): False,
        ("east", "south"): False,
        ("north", "south"): True,
    }


def test_three_populations_from_fit_to_a_targeting_list(capsys, folder, tmp_path):
    model, out_file = tmp_path / "m.skops", tmp_path / "list.csv"
    code, out, err = run(capsys, "fit", *two_tables(folder), "--model", model)
    assert (code, err) == (0, "")
    assert "Verdict (" in out
    fitted = load_model(model)
    assert fitted.populations_ == ["east", "north", "south"]
    assert len(fitted.identification_.pairs) == 3
    table = ("--table", folder / "people.parquet", "--out", out_file)
    code, out, err = run(capsys, "score", "--model", model, *table, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rows"] == 2


@pytest.mark.parametrize("name", ["minmax", "FourRidge"])
def test_an_estimator_of_two_populations_fits_three_as_two_groups(
    capsys, folder, tmp_path, name
):
    model = tmp_path / "m.skops"
    code, _, _ = run(
        capsys, "fit", *two_tables(folder), "--estimator", name, "--model", model
    )
    assert code == 0
    assert len(load_model(model).contrast_) == 3


@pytest.mark.parametrize("name", ["auto", "minmax"])
def test_chunks_of_three_populations_are_fitted(capsys, folder, tmp_path, name):
    model = tmp_path / "m.skops"
    line = [
        "fit",
        *two_tables(folder),
        "--chunks",
        "--model",
        model,
        "--estimator",
        name,
    ]
    assert run(capsys, *line)[0] == 0
    assert load_model(model).populations_ == ["east", "north", "south"]


def test_one_population_is_refused_by_every_command(capsys, folder, tmp_path):
    one = ["--outcomes", f"north={folder / 'outcomes_north.parquet'}"]
    one += ["--treatments", f"north={folder / 'treatments_north.parquet'}", *LABELS]
    for command in (["check"], ["fit", "--model", tmp_path / "m.skops"]):
        code, _, err = run(capsys, *command, *one)
        assert code == 2
        assert "give --outcomes once for each population, as NAME=FILE" in err
