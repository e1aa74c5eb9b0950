"""Sums on the command line: parties that never see each other's rows fit what one would."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from unjoined import SeparateLabels, load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import write_table
from unjoined.federated import aggregate_rows, read_sums, write_sums

pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_campaign):
    path = tmp_path_factory.mktemp("campaign")
    write_campaign(path, n_per_table=6000, n_customers=50, seed=0)
    return path


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return (
        stop.value.code or 0,
        " ".join(printed.out.split()),
        " ".join(printed.err.split()),
    )


def options(folder, kind):
    label = {"outcome": "bought", "treatment": "mailed"}[kind]
    files = [
        word
        for name in ("north", "south")
        for word in (f"--{kind}s", f"{name}={folder / f'{kind}s_{name}.parquet'}")
    ]
    return [*files, f"--{kind}", label]


@pytest.fixture(scope="module")
def features(folder):
    table = read_table(folder / "outcomes_north.parquet")
    names = [name for name in table.column_names if name != "bought"]
    return [
        f"{name}={np.mean(table.column(name).to_numpy()):.0f}"
        f":{np.std(table.column(name).to_numpy()) + 0.5:.1f}"
        for name in names
    ]


@pytest.fixture
def plan(capsys, features, tmp_path):
    words = [word for entry in features for word in ("--feature", entry)]
    code, out, _ = run(
        capsys,
        *("plan", *words, "--populations", "north,south", "--outcome-values", "0,1"),
        *("--functions", 5, "--out", tmp_path / "plan.sums"),
    )
    assert code == 0
    assert "Send it to every party" in out
    return tmp_path / "plan.sums"


def test_two_parties_fit_what_one_would(capsys, folder, plan, tmp_path):
    for kind in ("outcome", "treatment"):
        code, out, _ = run(
            capsys,
            *("aggregate", "--plan", plan, *options(folder, kind), "--threads", 1),
            *("--out", tmp_path / f"{kind}.sums"),
        )
        assert code == 0
        assert f"{kind} rows of north: 6,000" in out
        assert "data about people" in out
    parts = [tmp_path / f"{kind}.sums" for kind in ("outcome", "treatment")]
    code, out, _ = run(
        capsys, "merge", *parts, "--out", tmp_path / "all.sums", "--json"
    )
    assert code == 0
    merged = json.loads(out)
    assert [cell["rows"] for cell in merged["cells"]] == [6000] * 4
    assert merged["smallest_group"] >= 10
    words = [*options(folder, "outcome"), *options(folder, "treatment")]
    run(capsys, "aggregate", "--plan", plan, *words, "--out", tmp_path / "one.sums")
    models = []
    for name in ("all", "one"):
        model = tmp_path / f"{name}.skops"
        code, out, _ = run(
            capsys, "fit", "--moments", tmp_path / f"{name}.sums", "--model", model
        )
        assert code == 0
        assert "Verdict (green): The policies differ enough" in out
        models.append(load_model(model))
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-8)
    code, out, _ = run(
        capsys,
        *("fit", "--moments", tmp_path / "all.sums", "--json"),
        *("--model", tmp_path / "m.skops"),
    )
    assert json.loads(out)["weak"] is False


def test_tables_of_counts_add_up_as_their_people_do(capsys, tmp_path):
    """Cells of a clean room, some with the share of those who bought in place of 0 and 1."""
    rng = np.random.default_rng(0)
    cells, people = tmp_path / "cells.csv", tmp_path / "people.csv"
    table = pd.DataFrame({"age": rng.integers(2, 8, 60), "n": rng.integers(5, 40, 60)})
    table["bought"] = np.resize([0.0, 1.0, 0.4], 60)
    table["n"] -= np.where(table["bought"] == 0.4, table["n"] % 5, 0)
    table = table[table["n"] > 0]
    table.to_csv(cells, index=False)
    rows = [
        {"age": age, "bought": float(i < round(bought * n))}
        for age, n, bought in table.itertuples(index=False)
        for i in range(n)
    ]
    pd.DataFrame(rows).to_csv(people, index=False)
    made = tmp_path / "plan.sums"
    words = ("--feature", "age=5:2", "--populations", "north,south")
    values = ("--outcome-values", "0,1", "--functions", 3)
    assert run(capsys, "plan", *words, *values, "--out", made)[0] == 0
    sums = []
    for file, more in ((cells, ("--count", "n")), (people, ())):
        out = tmp_path / f"{file.stem}.sums"
        given = ("--outcomes", f"north={file}", "--outcome", "bought", *more)
        code, said, err = run(capsys, "aggregate", "--plan", made, *given, "--out", out)
        assert (code, err) == (0, "")
        assert f"outcome rows of north: {len(rows):,}" in said
        sums.append(read_sums(out).sums)
    for name in ("n_rows", "weight", "weight_square", "label_basis", "gram"):
        np.testing.assert_allclose(getattr(sums[0], name), getattr(sums[1], name))
    bad = table.assign(n=table["n"] + 0.5)
    bad.to_csv(cells, index=False)
    given = ("--outcomes", f"north={cells}", "--outcome", "bought", "--count", "n")
    code, _, err = run(
        capsys, "aggregate", "--plan", made, *given, "--out", tmp_path / "bad.sums"
    )
    assert code == 2
    assert "count must be a whole number of people" in err


def test_a_population_column_and_a_folder_will_do(capsys, folder, plan, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    both = tmp_path / "both"
    both.mkdir()
    for name in ("north", "south"):
        table = read_table(folder / f"treatments_{name}.parquet")
        table = table.append_column("region", pa.array([name] * table.num_rows))
        pq.write_table(table, both / f"{name}.parquet")
    code, out, err = run(
        capsys,
        *("aggregate", "--plan", plan, "--treatments", both, "--treatment", "mailed"),
        *("--population", "region", "--out", tmp_path / "t.sums", "--json"),
    )
    assert code == 0, err
    assert [cell["rows"] for cell in json.loads(out)["cells"]] == [0, 0, 6000, 6000]


def test_every_mistake_gets_a_message_and_nothing_is_written(
    capsys, folder, plan, tmp_path
):
    out = tmp_path / "out.sums"
    north = f"north={folder / 'outcomes_north.parquet'}"
    plain = folder / "outcomes_north.parquet"
    given = ["aggregate", "--plan", plan, "--out", out]
    for words, message in (
        ([*given, "--outcomes", north], "--outcomes needs --outcome"),
        (
            [*given, "--outcomes", plain, "--outcome", "bought"],
            "write --outcomes NAME=FILE",
        ),
        (
            [*given, *options(folder, "outcome"), "--population", "region"],
            "with --population there is one",
        ),
        ([*given, "--outcomes", north, "--outcome", "sold"], "has no column 'sold'"),
        ([*given], "the source has no rows"),
        (
            [*given, "--outcomes", north, "--outcome", "bought", "--min-count", 2000],
            "fewer than the minimum of 2000",
        ),
        (["merge", plain, "--out", out], "is not a file of sums"),
        (
            ["fit", "--moments", plan, "--model", tmp_path / "m.skops"],
            "the sums hold no outcome rows",
        ),
        (
            ["plan", "--feature", "age", "--populations", "a,b", "--out", out],
            "NAME=TYPICAL:SPREAD",
        ),
        (
            ["plan", "--feature", "age=4", "--populations", "a,b", "--out", out],
            "two numbers with",
        ),
    ):
        code, _, err = run(capsys, *words)
        assert code == 2, words
        assert message in err
        assert not out.exists()


def test_a_plan_without_names_is_refused(capsys, plan, tmp_path):
    from dataclasses import replace

    found = read_sums(plan)
    nameless = replace(found, plan=replace(found.plan, feature_names=None))
    write_sums(nameless, tmp_path / "p.sums")
    code, _, err = run(
        capsys, "aggregate", "--plan", tmp_path / "p.sums", "--out", tmp_path / "o.sums"
    )
    assert code == 2
    assert "has no feature names" in err


class Stops:
    """Chunks of a file that end, as by Ctrl-C, once a checkpoint is there."""

    def __init__(self, file, checkpoint):
        self.file, self.checkpoint = file, checkpoint

    def __call__(self):
        table = read_table(self.file)
        for start in range(0, len(table), 65_536):
            if self.checkpoint.exists():
                raise KeyboardInterrupt
            rows = table.slice(start, 65_536)
            yield {
                "X": rows.select(["age"]),
                "treatment": rows["mailed"].to_numpy(),
                "population": np.full(len(rows), "north"),
            }


def test_an_interrupted_aggregation_resumes_to_the_same_file(capsys, tmp_path):
    """A checkpoint is written about every million rows."""
    number = np.arange(1_200_000)
    table, plan, whole, resumed, checkpoint = (
        tmp_path / n for n in ("t.parquet", *"pwrc")
    )
    write_table(pa.table({"age": number % 97 / 50.0, "mailed": number % 3 == 0}), table)
    line = "plan --feature age=1:1 --populations north,south --functions 1 --groups 2"
    assert run(capsys, *line.split(), "--out", plan)[0] == 0
    words = [
        "aggregate",
        "--plan",
        plan,
        "--treatment",
        "mailed",
        "--checkpoint",
        checkpoint,
    ]
    words += ["--treatments", f"north={table}", "--out"]
    assert run(capsys, *words, whole)[0] == 0
    assert not checkpoint.exists()
    source = SeparateLabels.from_chunks(Stops(table, checkpoint))
    with pytest.raises(KeyboardInterrupt):
        aggregate_rows(source, read_sums(plan).plan, checkpoint=checkpoint)
    for command in (
        ["merge", checkpoint, "--out", resumed],
        ["fit", "--moments", checkpoint],
    ):
        code, _, err = run(capsys, *command)
        assert code == 2
        assert "is the checkpoint of a pass that stopped" in err
    assert run(capsys, *words, resumed)[0] == 0
    assert resumed.read_bytes() == whole.read_bytes()
    assert not checkpoint.exists()
