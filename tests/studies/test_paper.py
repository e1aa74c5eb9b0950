"""The paper's studies: what a trial measures, what a run keeps, what the page says."""

import copy
import json
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.preprocessing import StandardScaler

import unjoined
from studies.paper import (
    STUDIES,
    Task,
    check_claims,
    draw_rows,
    paper_page,
    reproduce_paper,
    run_task,
)
from unjoined import FourNNC, MinMaxGau
from unjoined.data import CellKFold, paper_problem
from unjoined.datasets import fetch_jobs
from unjoined.errors import InputError, TableError, UnjoinedError
from unjoined.evaluate import HeldOutRows, auuc, qini

pytestmark = pytest.mark.filterwarnings(
    "ignore::unjoined.errors.WeakIdentificationWarning"
)

WIDTHS = {"MinMaxGau, width 25": 25.0, "MinMaxGau, width 5": 5.0}
WIDE, NARROW = WIDTHS
OURS = "Uplift (ours)"
BINARY = (WIDE, NARROW, "FourLogistic", "FourNNC", OURS)
REAL = (WIDE, NARROW, "FourRidge", "FourNNR", OURS)
DOCS = json.loads(
    (Path(__file__).parents[2] / "docs" / "paper-results.json").read_text("utf-8")
)
GRID_F, GRID_G = (DOCS["ridges"]["jobs"][grid] for grid in ("ridges_f", "ridges_g"))
PAIRS = [(f, g) for f in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for g in (1e-4, 1e-2, 1.0)]


def minmax(name, ridges, seed):
    ridge_f, ridge_g = ridges
    return MinMaxGau(
        width=WIDTHS[name], ridge_f=ridge_f, ridge_g=ridge_g, random_state=seed
    )


# The draws.


def test_seeds_differ_between_all_draws_and_within_one():
    tasks = [Task(s, k, b) for s in STUDIES[:2] for k in range(20) for b in (0.0, 5.0)]
    seeds = [seed for task in tasks for seed in task.seeds]
    assert len(set(seeds)) == len(seeds)
    assert Task("jobs", 1, folder="here").seeds == Task("jobs", 1).seeds


def test_a_synthetic_draw_has_the_uplift_of_the_papers_problem():
    draw = draw_rows(Task("synthetic", 3, 5.0))
    assert draw.data.n_rows == 4 * 500
    np.testing.assert_array_equal(draw.values, paper_problem(5.0).uplift(draw.X))
    assert len(draw.values) == 10_000


def test_features_are_standardised_and_outcomes_left_alone(data):
    table = fetch_jobs(path=data)
    rows = np.column_stack([StandardScaler().fit_transform(table.X), table.y]).round(9)
    draw = draw_rows(Task("jobs", 0, small=True, folder=data))
    outcomes = draw.data.rows("outcome", "1")
    drawn = np.column_stack([draw.data.X, draw.data.y])[outcomes].round(9)
    assert {tuple(row) for row in drawn} <= {tuple(row) for row in rows}
    assert not draw.is_binary


def test_test_rows_are_set_aside_before_the_trial_is_taken_apart(data):
    draw = draw_rows(Task("email", 0, small=True, folder=data))
    train, test = {tuple(row) for row in draw.data.X}, {tuple(row) for row in draw.X}
    assert (len(train), len(test), draw.n) == (240, 100, 60)
    assert not train & test


def test_the_four_tables_follow_the_policies_of_the_paper(data):
    """With rows drawn with replacement from 1,500, errors of twenty draws are not independent."""
    off = {"1": [], "2": []}
    for trial in range(20):
        drawn = draw_rows(Task("email", trial, small=True, folder=data)).data
        for population, sign in (("1", 1.0), ("2", -1.0)):
            rows = drawn.rows("treatment", population)
            off[population] += list(
                drawn.treatment[rows] - expit(sign * drawn.X[rows].sum(axis=1))
            )
    for values in off.values():
        assert abs(np.mean(values)) < 4.0 * np.std(values) / np.sqrt(len(values) / 2)


def test_too_few_rows_are_refused_with_the_number_that_would_do(write_email, tmp_path):
    write_email(tmp_path, n=300)
    with pytest.raises(
        InputError, match=r"300 rows that can be used.*but 60 are needed.*whole"
    ):
        reproduce_paper(["email"], tmp_path / "out", small=True, data=str(tmp_path))


def test_criteo_categories_become_counts_and_certain_rows_are_left_out(tmp_path):
    rng = np.random.RandomState(0)
    n = 4000
    code = rng.choice([107, 103, 109], size=n, p=[0.6, 0.3, 0.1])
    chance = np.select([code == 107, code == 103], [0.5, 0.3], 0.02)
    treated = np.where(
        rng.random_sample(n) < chance, 49, 11
    )  # the tokens of feature 12
    size = rng.randint(100, 900, size=(n, 2))
    lines = [
        f"{i} |l 0.{('999', '001')[i % 2]} |p 20|f 0:{width} 1:{height} {code[i]}:1 {treated[i]}:1"
        for i, (width, height) in enumerate(size)
    ]
    (tmp_path / "criteo_train_small.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "display_feature_indices_derived.csv").write_text(
        "challenge_index,testbed_feature_id\n"
        + "".join(f"{c},3\n" for c in (103, 107, 109))
    )
    X = draw_rows(Task("criteo", 0, small=True, folder=str(tmp_path))).data.X
    levels = np.unique(X[:, 2].round(9))
    assert len(levels) == 2  # the category that is nearly never treated is gone
    kept = np.log([np.sum(code == c) for c in code[code != 109]])
    np.testing.assert_allclose(
        levels, np.unique((kept - kept.mean()) / kept.std()), atol=0.05
    )


# One trial.


@pytest.fixture(scope="module")
def close():
    """One draw where the policies are close, and what the methods made of it."""
    task = Task("synthetic", 0, 1.0, small=True)
    return task, draw_rows(task), run_task(task)["result"]


@pytest.mark.slow
def test_scores_of_a_synthetic_trial_are_the_textbook_ones(close):
    task, draw, result = close
    assert set(result["methods"]) == set(BINARY)
    assert result["random"] == pytest.approx(draw.values.mean() / 2.0)
    for name in WIDTHS:
        row = result["methods"][name]
        model = minmax(name, result["ridges"][name], task.seeds[2]).fit(**draw.data)
        score = model.predict(draw.X)
        pairs = (score[:, None] < score) + 0.5 * (score[:, None] == score)
        assert row["auuc"] == pytest.approx(np.mean(pairs * draw.values))
        squared = (score - draw.values) ** 2
        assert row["error"] == pytest.approx(squared.mean())
        assert row["median_error"] == pytest.approx(np.median(squared))
        assert result["points"]["squared_error"][name] == pytest.approx(squared[:400])


def test_gross_errors_are_counted_where_they_are(close):
    task, draw, result = close
    gap = np.abs(paper_problem(1.0).policy_gap(draw.X))
    assert result["points"]["gap"] == pytest.approx(gap[:400])
    assert result["points"]["x2"] == pytest.approx(draw.X[:400, 1])
    model = FourNNC(random_state=task.seeds[2]).fit(**draw.data)
    gross = (model.predict(draw.X) - draw.values) ** 2 > 16.0
    low, high = np.quantile(gap, [1 / 3, 2 / 3])
    expected = {
        "small gap": gross[gap <= low].mean(),
        "large gap": gross[gap >= high].mean(),
    }
    assert result["gross"]["FourNNC"] == pytest.approx(expected)
    assert expected["small gap"] > 0.0


def test_ridges_are_those_of_the_lowest_total_risk_on_rows_left_out(close):
    task, draw, result = close
    data, seed = draw.data, task.seeds[2]
    risk = {name: np.zeros(len(PAIRS)) for name in WIDTHS}
    for kept, left_out in CellKFold(2, random_state=seed).split(**data):
        held = data.take(left_out)
        judge = HeldOutRows.from_data(**held)
        for name, total in risk.items():
            for i, pair in enumerate(PAIRS):
                model = minmax(name, pair, seed).fit(**data.take(kept))
                total[i] += judge.score(model.predict(held.X), "outcome_risk")
    chosen = {name: PAIRS[int(np.argmin(total))] for name, total in risk.items()}
    assert {name: tuple(pair) for name, pair in result["ridges"].items()} == chosen


def test_every_pair_of_ridges_scores_what_a_fit_with_it_does_on_the_rows_of_the_study():
    task = Task("synthetic", 0, 10.0, small=True, ridges=True)
    result = run_task(task)["result"]
    assert task.seeds == Task("synthetic", 0, 10.0).seeds
    draw = draw_rows(task)
    for name in WIDTHS:
        for f, g in (result[name]["study"], (0, 3), (4, 6), (9, 11)):
            model = minmax(name, (GRID_F[f], GRID_G[g]), task.seeds[2]).fit(**draw.data)
            share = qini(model.predict(draw.X), draw.values, normalize=True).value
            assert result[name]["score"][f][g] == pytest.approx(share, abs=1e-6)


# A run, and what it keeps.


@pytest.fixture(scope="module")
def jobs(data, tmp_path_factory):
    """A run of two small trials on real rows."""
    out = tmp_path_factory.mktemp("out")
    return reproduce_paper(["jobs"], out, trials=2, small=True, data=data)


def records_of(files):
    return [json.loads(line) for line in files.trials.read_text().splitlines()]


def rerun(files, folder, data, lines, **options):
    """Run again in a new folder that holds some finished trials; return what progress told."""
    (folder / "paper-trials.jsonl").write_text(lines)
    told = []

    def tell(study, done, total):
        told.append((done, total))
        if options.get("stop"):
            raise KeyboardInterrupt

    try:
        again = reproduce_paper(
            ["jobs"], folder, trials=2, small=True, data=data, progress=tell
        )
    except KeyboardInterrupt:
        return told, None
    return told, again


def without_seconds(files):
    results = json.loads(files.results.read_text())
    del results["studies"]["jobs"]["seconds"]
    return results


@pytest.mark.slow
def test_curves_and_areas_are_inverse_propensity_averages(jobs, data):
    for record in records_of(jobs):
        result = record["result"]
        task = Task("jobs", record["task"]["trial"], small=True, folder=data)
        draw = draw_rows(task)
        everyone = draw.values.mean()
        assert result["random"] == pytest.approx(everyone / 2.0)
        assert set(result["methods"]) == set(REAL)
        for row in result["methods"].values():
            assert row["gain"][0] == 0.0
            assert row["gain"][-1] == pytest.approx(everyone)
            assert len(row["gain"]) == 21
        model = minmax(WIDE, result["ridges"][WIDE], task.seeds[2]).fit(**draw.data)
        area = auuc(model.predict(draw.X), draw.values).value
        assert result["methods"][WIDE]["auuc"] == pytest.approx(area)


def test_summaries_are_means_over_trials_and_differences_are_paired(jobs):
    records = records_of(jobs)
    block = json.loads(jobs.results.read_text())["studies"]["jobs"]
    assert (block["trials"], block["n"], block["n_test"]) == (2, 50, 60)
    areas = {
        m: np.array([r["result"]["methods"][m]["auuc"] for r in records]) for m in REAL
    }
    row = block["methods"][OURS]
    assert row["auuc"] == pytest.approx(areas[OURS].mean(), rel=1e-4)
    off = areas[OURS] - areas[WIDE]
    expected = (off.mean(), off.std(ddof=1) / np.sqrt(2.0))
    assert row["minus"][WIDE] == pytest.approx(expected, rel=1e-4)
    for method, seconds in block["seconds"].items():
        assert seconds == pytest.approx(
            sum(r["seconds"][method] for r in records), abs=0.051
        )


def test_a_run_writes_results_figures_and_a_page_made_from_them(jobs):
    results = json.loads(jobs.results.read_text())
    page = jobs.page.read_text()
    assert paper_page(results) == page
    (figure,) = jobs.figures
    assert f"images/{figure.name}" in page
    assert figure.name == "paper-figure-3-jobs.png"
    assert figure.read_bytes()[:4] == b"\x89PNG"
    for claim in results["claims"]:
        assert f"| {claim['claim']} | **{claim['verdict']}** |" in page


def test_a_preview_says_so_and_a_full_run_does_not(jobs):
    results = json.loads(jobs.results.read_text())
    assert "**This is a preview**: 2 trials and small tables" in paper_page(results)
    results["studies"]["jobs"] |= {"trials": 50, "small": False}
    assert "This is a preview" not in paper_page(results)


def test_finished_trials_are_not_run_again(jobs, data, tmp_path):
    lines = jobs.trials.read_text()
    told, again = rerun(jobs, tmp_path, data, lines)
    assert told == [(2, 2)]
    assert again.trials.read_text() == lines
    assert again.results.read_text() == jobs.results.read_text()
    assert again.page.read_text() == jobs.page.read_text()


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_a_line_cut_off_by_a_crash_is_run_again(
    jobs, data, tmp_path
):
    lines = jobs.trials.read_text()
    told, _ = rerun(jobs, tmp_path, data, lines[:-40], stop=True)
    assert told == [(1, 2)]
    assert (tmp_path / "paper-trials.jsonl").read_text() == lines.splitlines(
        keepends=True
    )[0]
    told, again = rerun(
        jobs, tmp_path, data, (tmp_path / "paper-trials.jsonl").read_text()
    )
    assert told == [(1, 2), (2, 2)]
    assert without_seconds(again) == without_seconds(jobs)


def test_trials_of_another_version_are_run_again(jobs, data, tmp_path):
    lines = jobs.trials.read_text().replace(f'"{unjoined.__version__}"', '"0.0.1"', 1)
    assert rerun(jobs, tmp_path, data, lines, stop=True)[0] == [(1, 2)]


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"version": "0.1.0"}'])
def test_a_file_of_something_else_is_refused_with_its_line(jobs, data, tmp_path, line):
    lines = jobs.trials.read_text() + line + "\n"
    with pytest.raises(
        TableError, match=r"line 3 of .* is not the result of a trial. Delete"
    ):
        rerun(jobs, tmp_path, data, lines)


def test_a_file_that_cannot_be_written_is_told(data, tmp_path):
    (tmp_path / "paper-trials.jsonl").mkdir()
    with pytest.raises(TableError, match=r"cannot be written: Is a directory.*--out"):
        reproduce_paper(["jobs"], tmp_path, small=True, data=data)


def test_a_process_that_dies_is_explained_and_the_environment_restored(data, tmp_path):
    before, others = dict(os.environ), set(multiprocessing.active_children())

    def kill_workers():
        while not (workers := set(multiprocessing.active_children()) - others):
            time.sleep(0.01)
        for worker in workers:
            worker.kill()

    killer = threading.Thread(target=kill_workers)
    killer.start()
    with pytest.raises(UnjoinedError, match=r"a process ended before.*fewer --jobs"):
        reproduce_paper(["jobs"], tmp_path, trials=2, jobs=2, small=True, data=data)
    killer.join()
    assert dict(os.environ) == before


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_number_of_processes(jobs, data, tmp_path):
    again = reproduce_paper(["jobs"], tmp_path, trials=2, jobs=2, small=True, data=data)
    assert without_seconds(again) == without_seconds(jobs)


@pytest.mark.slow
def test_a_later_study_joins_the_page_of_the_earlier_ones(jobs, data, tmp_path):
    folder = shutil.copytree(jobs.page.parent, tmp_path / "out")
    files = reproduce_paper(
        ["email", "synthetic"], folder, trials=1, small=True, data=data
    )
    results = json.loads(files.results.read_text())
    assert list(results["studies"]) == ["synthetic", "email", "jobs"]
    assert (
        results["studies"]["jobs"]
        == json.loads(jobs.results.read_text())["studies"]["jobs"]
    )
    assert len(files.figures) == 4
    assert len(results["claims"]) == 7


def test_missing_data_are_told_before_the_first_trial(tmp_path):
    (tmp_path / "empty").mkdir()
    for study, name in (("email", "Kevin_Hillstrom"), ("jobs", "nsw_treated")):
        with pytest.raises(TableError, match=f"{name}.*by hand"):
            reproduce_paper(
                ["synthetic", study], tmp_path / "out", data=str(tmp_path / "empty")
            )
    assert not (tmp_path / "out").exists()


def test_a_foreign_results_file_is_not_overwritten(tmp_path):
    (tmp_path / "paper-results.json").write_text("[1]")
    with pytest.raises(
        TableError, match=r"is not a results file of this command. Move it away"
    ):
        reproduce_paper(["synthetic"], tmp_path, trials=1, small=True)


# Ridges, from finished trials that are made up.


def ridge_run(folder, data, *trials):
    """Summarise trials of (scores, pair by the rule of the study, pair by the wide rule)."""
    lines = []
    for trial, (score, study, wide) in enumerate(trials):
        found = {"score": score.tolist(), "study": study, "wide": wide}
        record = {
            "task": Task("jobs", trial, small=True, ridges=True).key(),
            "version": unjoined.__version__,
            "result": dict.fromkeys(WIDTHS, found),
            "seconds": {"MinMaxGau": 1.0},
        }
        lines.append(json.dumps(record) + "\n")
    folder.mkdir(exist_ok=True)
    with (folder / "paper-trials.jsonl").open("a") as file:
        file.write("".join(lines))
    options = {"trials": len(trials), "small": True, "data": data, "ridges": True}
    return reproduce_paper(["jobs"], folder, **options)


def test_ridges_are_summarised_over_trials_and_compared_in_pairs(data, tmp_path):
    shape = (len(GRID_F), len(GRID_G))
    first, second = np.zeros(shape), np.zeros(shape)
    first[5, 6], second[5, 6] = 4.0, 6.0
    first[0, 0] = second[0, 0] = 1.0
    files = ridge_run(tmp_path, data, (first, (5, 6), (0, 0)), (second, (5, 6), (5, 6)))
    block = json.loads(files.results.read_text())["ridges"]["jobs"]
    row = block["rows"][0]
    assert (block["trials"], block["seconds"], row["method"]) == (2, 2.0, WIDE)
    assert row["study"] == row["best"] == [5.0, 1.0]
    assert row["wide"] == [3.5, 2.5]
    assert row["wide_minus_study"] == [-1.5, 1.5]
    assert row["best_pair"] == row["study_pair"] == [GRID_F[5], GRID_G[6]]
    assert row["at_edge"] == 0.5


def test_of_pairs_that_do_the_same_the_one_inside_the_grid_is_named(data, tmp_path):
    score = np.zeros((len(GRID_F), len(GRID_G)))
    for i in range(6):
        score[i, len(GRID_G) - 1 - i] = 1.0  # one product of the ridges
    files = ridge_run(tmp_path, data, *[(score, (5, 6), (5, 6))] * 3)
    (row, _) = json.loads(files.results.read_text())["ridges"]["jobs"]["rows"]
    assert row["best_pair"] == [GRID_F[5], GRID_G[6]]


def test_ridges_join_the_page_of_the_studies_and_stand_alone(jobs, data, tmp_path):
    score = np.random.RandomState(0).random_sample((len(GRID_F), len(GRID_G)))
    before = json.loads(jobs.results.read_text())
    folder = shutil.copytree(jobs.page.parent, tmp_path / "out")
    joined = ridge_run(folder, data, (score, (5, 6), (0, 0)), (score, (5, 6), (0, 0)))
    after = json.loads(joined.results.read_text())
    assert (after["studies"], after["claims"]) == (before["studies"], before["claims"])
    page = joined.page.read_text()
    assert "python -m studies.paper jobs --ridges --trials 2 --seed 0 --small" in page
    assert "| jobs | MinMaxGau, width 5 |" in page
    alone = ridge_run(tmp_path / "alone", data, (score, (5, 6), (0, 0)))
    assert "## What the ridges change" in alone.page.read_text()
    assert "What the paper says" not in alone.page.read_text()


# The page and its verdicts.


def test_numbers_are_shown_to_the_second_digit_of_their_error():
    cases = (
        (-533.7, 372.1, "-534 ± 372"),
        (1234.5, 61.0, "+1,234 ± 61"),
        (0.0002123, 0.00157, "+0.0002 ± 0.0016"),
        (0.5, None, "+0.5"),
        (0.5, 0.0, "+0.5"),
    )
    for value, error, shown in cases:
        results = copy.deepcopy(DOCS)
        row = results["studies"]["email"]["methods"][WIDE]
        row["above_random"], row["above_random_se"] = value, error
        assert f"| {WIDE} | {shown} |" in paper_page(results)


def leads(block, heading):
    """Return the lines below a heading of the page that begins with the words given."""
    results = {"studies": {block["study"]: block}, "claims": []}
    after = paper_page(results).partition(heading)[2]
    return [
        line
        for line in after.partition("\n## ")[0].splitlines()
        if line.startswith("- ")
    ]


def test_the_page_lists_who_is_clearly_above_the_papers_method():
    block = copy.deepcopy(DOCS["studies"]["email"])
    for name, row in block["methods"].items():
        row["auuc"] = 2.0 if name == "FourNNC" else 1.0
        row["minus"] = {other: [0.0, 0.1] for other in row["minus"]}
    block["methods"]["FourNNC"]["minus"] |= {WIDE: [0.45, 0.1]}
    assert leads(block, "Baselines of the paper that are clearly above the better") == [
        f"- FourNNC: +0.45 ± 0.10 above {WIDE}"
    ]
    assert leads(block, "Methods of the paper that are clearly above our default") == []


def synthetic_block(curves, gross):
    """Return a block whose methods have the given share of the oracle as a function of b."""
    points = []
    for b in (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0):
        share = {name: curve(b) for name, curve in curves.items()}
        rows = {
            name: {
                "share": value,
                "share_se": 0.01,
                "minus": {
                    other: [value - share[other], 0.01]
                    for other in share
                    if other != name
                },
            }
            for name, value in share.items()
        }
        points.append({"b": b, "methods": rows})
    return {"study": "synthetic", "by_b": points, "gross": gross}


AS_IN_THE_PAPER = {
    WIDE: lambda b: 0.95 if b >= 2.0 else 0.3,
    NARROW: lambda b: 0.9 if b >= 2.0 else 0.3,
    "FourLogistic": lambda b: {10.0: 0.9, 7.0: 0.4}.get(b, 0.3),
    "FourNNC": lambda b: 0.09 * b,
    OURS: lambda b: 1.0,
}


def gross_of(small, large, network):
    """Return shares of gross errors as in a results file, for a network that has ``network``."""
    return {
        "small gap": small,
        "small gap_se": 0.01,
        "large gap": large,
        "large gap_se": 0.01,
        "minus_twice_large": [small - 2.0 * large, 0.01],
        "below_half_of_network": [network / 2.0 - small, 0.01],
    }


GROSS = {
    WIDE: gross_of(0.01, 0.0, 0.3),
    NARROW: gross_of(0.05, 0.0, 0.3),
    "FourNNC": gross_of(0.3, 0.1, 0.3),
}


def test_numbers_like_the_papers_make_every_claim_hold():
    block = synthetic_block(AS_IN_THE_PAPER, GROSS)
    claims = check_claims({"synthetic": block})
    assert len(claims) == 5
    assert {claim["verdict"] for claim in claims} == {"holds"}


def test_numbers_that_contradict_the_paper_contradict_every_claim():
    poor = dict.fromkeys((WIDE, NARROW), lambda b: 0.5)
    good = dict.fromkeys(("FourLogistic", "FourNNC", OURS), lambda b: 0.95)
    block = synthetic_block(poor | good, GROSS | {"FourNNC": gross_of(0.0, 0.0, 0.0)})
    claims = check_claims({"synthetic": block})
    assert {claim["verdict"] for claim in claims} == {"contradicted"}
    # Baselines do well far apart, and FourLogistic does at some b, as in the paper.
    assert [check["verdict"] for check in claims[0]["checks"]] == [
        "contradicted",
        "contradicted",
        "holds",
        "holds",
    ]
    assert [check["verdict"] for check in claims[3]["checks"]] == [
        "holds",
        "contradicted",
    ]


def test_noise_that_covers_everything_shows_nothing():
    block = synthetic_block(AS_IN_THE_PAPER, GROSS)
    for point in block["by_b"]:
        for row in point["methods"].values():
            row["share_se"] = 1.0
            row["minus"] = {
                other: [value, 1.0] for other, (value, _) in row["minus"].items()
            }
    for row in block["gross"].values():
        row["small gap_se"] = row["minus_twice_large"][1] = row[
            "below_half_of_network"
        ][1] = 1.0
    claims = check_claims({"synthetic": block})
    assert {claim["verdict"] for claim in claims} == {"not shown"}


def real_block(study, areas, error=0.1):
    methods = {
        name: {
            "auuc": area,
            "minus": {
                o: [area - other, error] for o, other in areas.items() if o != name
            },
        }
        for name, area in areas.items()
    }
    return {"study": study, "methods": methods}


def test_verdicts_on_real_data_ask_for_two_standard_errors():
    cases = (
        ("email", (2.0, 2.0, 2.0, 1.0, 3.0), "holds"),
        ("email", (2.0, 1.1, 2.0, 1.0, 3.0), "holds partly"),
        ("email", (1.1, 1.1, 1.1, 1.0, 3.0), "not shown"),
        ("email", (0.5, 2.0, 2.0, 1.0, 3.0), "contradicted"),
        ("jobs", (2.0, 2.0, 5.0, 1.0, 3.0), "holds"),
        ("criteo", (2.0, 2.0, 1.0, 1.0, 3.0), "holds"),
        ("criteo", (2.0, 2.0, 1.9, 1.0, 3.0), "holds partly"),
        ("criteo", (2.0, 2.0, 5.0, 1.0, 3.0), "contradicted"),
    )
    for study, areas, verdict in cases:
        names = REAL if study == "jobs" else BINARY
        block = real_block(study, dict(zip(names, areas, strict=True)))
        (claim,) = check_claims({study: block})
        assert claim["verdict"] == verdict
        alone = real_block(study, dict(zip(names, areas, strict=True)), error=None)
        assert check_claims({study: alone})[0]["verdict"] == "not shown"
