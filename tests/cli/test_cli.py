"""The command line as a user types it: results, and messages without a traceback."""

import json
import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unjoined import load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import write_table

pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_campaign):
    path = tmp_path_factory.mktemp("campaign")
    write_campaign(path, n_per_table=400, n_customers=50, seed=0)
    return path


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def four_tables(folder):
    return [
        word
        for kind in ("outcome", "treatment")
        for name in ("north", "south")
        for word in (f"--{kind}s", f"{name}={folder / f'{kind}s_{name}.parquet'}")
    ] + ["--outcome", "bought", "--treatment", "mailed"]


@pytest.fixture(scope="module")
def two_tables(folder):
    """The same rows as two CSV files with a population column."""
    for kind in ("outcomes", "treatments"):
        parts = []
        for name in ("north", "south"):
            table = read_table(folder / f"{kind}_{name}.parquet")
            parts.append(
                table.append_column("region", pa.array([name] * table.num_rows))
            )
        write_table(pa.concat_tables(parts), folder / f"{kind}.csv")
    return [
        *(
            "--outcomes",
            folder / "outcomes.csv",
            "--treatments",
            folder / "treatments.csv",
        ),
        *("--outcome", "bought", "--treatment", "mailed", "--population", "region"),
    ]


def test_fit_then_score_gives_a_targeting_list(capsys, folder, tmp_path):
    model, scores = tmp_path / "m.skops", tmp_path / "s.parquet"
    code, out, err = run(
        capsys, "fit", *four_tables(folder), "--model", model, "--details"
    )
    assert (code, err) == (0, "")
    assert "Verdict (" in out
    assert "Average effect: " in out  # the default says what it found
    assert "\nIn the likeliest form" in out  # and what was fitted, on a line of its own
    code, out, err = run(
        capsys,
        *(
            "score",
            "--model",
            model,
            "--table",
            folder / "customers.parquet",
            "--out",
            scores,
        ),
        *("--keep", "customer_id", "--share", "0.3", "--details"),
    )
    assert (code, err) == (0, "")
    table = pq.read_table(scores)
    assert table.column_names[:2] == ["customer_id", "treat"]
    assert table.column_names[-3:] == ["flags", "reason", "verdict"]
    uplift = table.column("uplift").to_numpy()
    assert (np.diff(uplift) <= 0).all()
    assert table.column("rank").to_pylist() == list(range(1, 51))
    assert table.column("treat").to_pylist() == [True] * 15 + [False] * 35
    customers = read_table(folder / "customers.parquet")
    by_id = dict(zip(customers["customer_id"].to_pylist(), range(50), strict=True))
    expected = load_model(model).predict(customers.drop(["customer_id"]))
    order = [by_id[i] for i in table["customer_id"].to_pylist()]
    assert (
        np.diff(expected[order]) <= 0
    ).all()  # by all digits, and written with a few
    np.testing.assert_allclose(uplift, expected[order], atol=0.01 * np.std(expected))
    said = re.search(
        r"uplift adds up to ([+-][\d.,]+): predictions", " ".join(out.split())
    )
    assert float(said[1].replace(",", "")) == pytest.approx(
        expected[order][:15].sum(), rel=5e-3
    )


@pytest.mark.slow
def test_two_csv_tables_and_four_parquet_tables_give_the_same_model(
    capsys, folder, two_tables, tmp_path
):
    results = []
    for tables in (four_tables(folder), two_tables):
        model = tmp_path / "m.skops"
        quick = ("--estimator", "minmax", "--json", "--force")
        code, out, _ = run(capsys, "fit", *tables, "--model", model, *quick)
        assert code == 0
        people = read_table(folder / "customers.parquet").drop(["customer_id"])
        results.append((json.loads(out), load_model(model).predict(people)))
    assert results[0][0] == results[1][0]
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)


def test_default_list_treats_whoever_is_not_harmed(capsys, folder, tmp_path):
    model, scores = tmp_path / "m.skops", tmp_path / "s.csv"
    run(
        capsys,
        "fit",
        *four_tables(folder),
        "--model",
        model,
        "--estimator",
        "FourLogistic",
    )
    code, out, _ = run(
        capsys,
        *(
            "score",
            "--model",
            model,
            "--table",
            folder / "customers.parquet",
            "--out",
            scores,
        ),
        "--json",
    )
    table = read_table(scores)
    assert code == 0
    assert table.column_names[:2] == ["row", "treat"]
    assert table["treat"].to_pylist() == [u >= 0 for u in table["uplift"].to_pylist()]
    assert json.loads(out)["treated"] == sum(table["treat"].to_pylist())


def test_check_gives_the_verdict_first_and_all_numbers_as_json(
    capsys, folder, two_tables
):
    code, out, _ = run(
        capsys, "check", *two_tables, "--features", "age,orders", "--json"
    )
    result = json.loads(out)
    assert code == 0
    assert [cell["n_rows"] for cell in result["tables"]] == [400] * 4
    assert result["features"] == ["age", "orders"]
    target = ("--target", folder / "customers.parquet")
    code, out, _ = run(
        capsys, "check", *four_tables(folder), "--ignore", "spend", *target
    )
    assert code == 0
    assert out.startswith("Identified")
    assert len(out.splitlines()) <= 12
    assert "What to do next:" in out
    asked = [*four_tables(folder), "--ignore", "spend", *target, "--details"]
    code, out, _ = run(capsys, "check", *asked)
    assert code == 0
    assert out.startswith("Identified")
    assert "spend" not in out
    parts = (
        "Gap (",
        "Strength:",
        "Where policies",
        "What could be",
        "Overlap",
        "What to do next",
    )
    assert all(out.index(one) < out.index(two) for one, two in pairwise(parts))


def test_check_calls_neither_few_rows_nor_one_file_twice_identified(
    capsys, folder, tmp_path
):
    words = four_tables(folder)
    few, twice = [*words], [*words]
    for i in range(1, 8, 2):
        name, path = words[i].split("=")
        table = read_table(path)
        few[i] = f"{name}={write_table(table[:8], tmp_path / f'few{i}.csv')}"
        if name == "south":
            copy = write_table(
                read_table(twice[i - 2].split("=")[1]), tmp_path / f"copy{i}.csv"
            )
            twice[i] = f"south={copy}"
    for tables, reason in ((few, "is too short (8)"), (twice, "given twice")):
        code, out, _ = run(capsys, "check", *tables)
        assert code == 3
        assert out.startswith("Not identified")
        assert reason in " ".join(out.split())


def test_plan_study_takes_a_pilot_or_a_few_numbers(capsys, folder):
    numbers = ("--gap", 0.4, "--outcome-sd", 0.3, "--uplift", 0.05)
    code, out, _ = run(capsys, "plan-study", *numbers, "--half-width", 0.02, "--json")
    guessed = json.loads(out)
    assert (code, guessed["is_rough"], guessed["needs"][2]["rows"]) == (0, True, 10868)
    code, out, _ = run(capsys, "plan-study", *four_tables(folder), "--half-width", 0.02)
    assert code == 0
    assert out.startswith("To know the average uplift within +-0.02")
    for words, reason in (
        ((), "needs a pilot"),
        (("--gap", 0.4), "needs --gap and --outcome-sd"),
        ((*numbers, *four_tables(folder)), "not both"),
    ):
        code, out, err = run(capsys, "plan-study", *words)
        assert (code, out) == (2, "")
        assert reason in err


def test_equal_policies_are_called_weak_in_words(capsys, folder):
    same = four_tables(folder)
    copy = write_table(
        read_table(folder / "treatments_north.parquet"), folder / "copy.parquet"
    )
    same[7] = f"south={copy}"
    words = ("--estimator", "FourLogistic", "--model", folder / "weak.skops")
    code, _, err = run(capsys, "fit", *same, *words)
    assert code == 3
    assert err.startswith(
        "unjoined: warning: the two populations' policies can hardly be told"
    )


@pytest.mark.slow
def test_demo_writes_everything_it_names(capsys, tmp_path):
    code, out, err = run(capsys, "demo", "--out", tmp_path / "d", "--rows", "1000")
    assert (code, err) == (0, "")
    for word in (
        "share of oracle",
        "MinMaxUplift",
        "FourNNC",
        "unjoined fit",
        "unjoined score",
    ):
        assert word in out
    names = {path.name for path in (tmp_path / "d").iterdir()}
    assert names == {
        *(
            f"{kind}_{n}.csv"
            for kind in ("visits", "mailings")
            for n in ("east", "west")
        ),
        *(
            "customers.csv",
            "list.csv",
            "model.skops",
            "uplift_curve.png",
            "report.html",
        ),
    }
    assert (tmp_path / "d" / "uplift_curve.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(
        capsys, "demo", "--out", tmp_path / "d", "--rows", "1000", "--json", "--force"
    )
    found = json.loads(out)
    assert set(found["methods"]) == {
        "Uplift",
        "MinMaxUplift",
        "MinMaxGau",
        "FourLogistic",
        "FourNNC",
    }
    assert found["verdict"] == found["list"]["verdict"]["verdict"]


def test_demo_refuses_a_file_as_its_folder(capsys, tmp_path):
    (tmp_path / "taken").write_text("")
    code, _, err = run(capsys, "demo", "--out", tmp_path / "taken")
    assert code == 2
    assert "is a file; name a folder" in err


def test_a_folder_that_cannot_be_made_is_no_traceback(capsys, tmp_path):
    (tmp_path / "taken").write_text("")
    code, _, err = run(capsys, "demo", "--out", tmp_path / "taken" / "below")
    assert code == 2
    assert "taken" in err
    assert "Traceback" not in err


def test_chunks_fit_the_same_from_two_tables_and_from_four(
    capsys, folder, two_tables, tmp_path
):
    expected = None
    for words, name in ((four_tables(folder), "four"), (two_tables, "two")):
        model = tmp_path / f"{name}.skops"
        code, out, err = run(
            capsys,
            *(
                "fit",
                *words,
                "--chunks",
                "--checkpoint",
                tmp_path / "c",
                "--model",
                model,
            ),
            *("--ignore", "age", "--json"),
        )
        assert code == 0, err
        result = json.loads(out)
        assert result["estimator"] == "auto"
        assert "age" not in result["features"]
        people = read_table(folder / "customers.parquet").select(result["features"])
        uplift = load_model(model).predict(people)
        expected = uplift if expected is None else expected
        np.testing.assert_allclose(uplift, expected, rtol=1e-6)
    assert not (tmp_path / "c").exists()


def test_the_list_of_commands_says_what_each_one_says_of_itself(capsys):
    """The list is written down, so that help imports nothing."""
    _, listed, _ = run(capsys, "--help")
    found = dict(
        re.findall(r"^  ([a-z][a-z-]+)  +(.*)$", listed.partition("Commands:")[2], re.M)
    )
    assert {"check", "fit", "score", "demo"} <= set(found)
    for name, does in found.items():
        code, out, _ = run(capsys, name, "-h")
        assert code == 0
        assert " ".join(out.split("\n\n")[1].split()).startswith(
            does.removesuffix("...")
        )
