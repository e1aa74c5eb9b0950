"""The paper's studies: what a trial measures, what a run keeps, what the page says."""

import json
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from unjoined import MinMaxGau
from unjoined.data import paper_problem
from unjoined.datasets import PublicData
from unjoined.errors import InputError, TableError, UnjoinedError
from unjoined.metrics import qini
from unjoined.reproduce import (
    paper as _reproduce,
)
from unjoined.reproduce import (
    runner as _study_runner,
)
from unjoined.reproduce import (
    studies as _study_methods,
)
from unjoined.reproduce import (
    studies as _synthetic_study,
)
from unjoined.reproduce import (
    trials as _trial_studies,
)
from unjoined.reproduce.claims import check_claims, lost_comparisons, plus_minus
from unjoined.reproduce.figures import draw_figures
from unjoined.reproduce.page import paper_page
from unjoined.reproduce.paper import reproduce_paper, write_paper
from unjoined.reproduce.results import mean_and_error, summarise_ridges, summarise_study
from unjoined.reproduce.ridges import GRID_F, GRID_G, _every_pair
from unjoined.reproduce.runner import read_records, run_task, run_tasks
from unjoined.reproduce.studies import (
    OURS,
    RIDGES,
    WIDTHS,
    Fits,
    Task,
    _choose_ridges,
    fit_methods,
    synthetic_tasks,
    synthetic_trial,
    task_seeds,
)
from unjoined.reproduce.trials import (
    SHARES,
    TrialStudy,
    _encode_criteo,
    _four_tables,
    load_study,
    real_trial,
)

WIDE, NARROW = WIDTHS
BINARY = (WIDE, NARROW, "FourLogistic", "FourNNC", OURS)
REAL = (WIDE, NARROW, "FourRidge", "FourNNR", OURS)


def stand_in(data, X, *, is_binary, seed):
    """Return scores from no fit at all: quick, different for every method, seeded."""
    names = BINARY if is_binary else REAL
    rng = np.random.RandomState(seed)
    estimates = {
        name: X[:, -1] + (i + 1) * rng.standard_normal(len(X)) for i, name in enumerate(names)
    }
    return Fits(estimates, dict.fromkeys(names, 0.5), dict.fromkeys(WIDTHS, RIDGES[3]))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(_synthetic_study, "fit_methods", stand_in)
    monkeypatch.setattr(_trial_studies, "fit_methods", stand_in)
    load_study.cache_clear()
    yield
    load_study.cache_clear()


def write_email(folder, n=1500):
    """Write a file in the form of the e-mail trial, filled at random."""
    rng = np.random.RandomState(0)
    lines = [
        "recency,history_segment,history,mens,womens,zip_code,newbie,channel,segment,visit,"
        "conversion,spend"
    ]
    for _ in range(n):
        cells = [
            rng.randint(1, 13),
            f"{rng.randint(1, 8)}) $",
            round(rng.gamma(2.0, 100.0), 2),
            rng.randint(2),
            rng.randint(2),
            rng.choice(["Urban", "Surburban", "Rural"]),
            rng.randint(2),
            rng.choice(["Phone", "Web", "Multichannel"]),
            rng.choice(["No E-Mail", "Mens E-Mail", "Womens E-Mail"]),
            rng.randint(2),
            0,
            0,
        ]
        lines.append(",".join(map(str, cells)))
    name = "Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")


def write_jobs(folder, n=600):
    rng = np.random.RandomState(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, treat in (("nsw_treated.txt", 1), ("nsw_control.txt", 0)):
        rows = [
            [
                treat,
                20 + rng.randint(30),
                8 + rng.randint(6),
                *rng.randint(2, size=4),
                *rng.gamma(1.0, 5000.0, 2).round(2),
            ]
            for _ in range(n // 2)
        ]
        (folder / name).write_text("\n".join(" ".join(map(str, row)) for row in rows))


# The tasks.


def test_the_synthetic_study_has_the_sizes_of_the_paper():
    tasks = synthetic_tasks(50, seed=0, small=False)
    grid = sorted({task.b for task in tasks} - {1.0})
    np.testing.assert_allclose(grid, np.linspace(0.0, 10.0, 25), atol=1e-4)
    assert len(tasks) == 50 * 26
    assert all(sum(task.b == b for task in tasks) == 50 for b in grid)


def test_seeds_differ_between_all_draws_and_within_one():
    tasks = [Task(s, k, b) for s in ("synthetic", "email") for k in range(20) for b in (0.0, 5.0)]
    seeds = [seed for task in tasks for seed in task_seeds(task)]
    assert len(set(seeds)) == len(seeds)
    assert task_seeds(Task("jobs", 1, folder="here")) == task_seeds(Task("jobs", 1))


# One synthetic trial.


def test_areas_and_errors_of_a_synthetic_trial_are_the_textbook_ones(monkeypatch):
    problem = paper_problem(5.0)

    def known(data, X, **kwargs):
        truth = problem.uplift(X)
        estimates = dict.fromkeys(BINARY, truth) | {WIDE: np.zeros(len(X)), NARROW: X[:, 0]}
        return Fits(estimates, {}, {})

    monkeypatch.setattr(_synthetic_study, "fit_methods", known)
    task = Task("synthetic", 0, 5.0, small=True)
    result, _ = synthetic_trial(task)
    methods = result["methods"]
    test = problem.draw_joint(500, random_state=task_seeds(task)[1])
    assert methods[OURS] == {"auuc": result["oracle"], "error": 0.0, "median_error": 0.0}
    assert methods[WIDE]["auuc"] == pytest.approx(result["random"])
    assert methods[WIDE]["error"] == pytest.approx(np.mean(test.uplift**2))
    score = test.X[:, 0]
    pairs = (score[:, None] < score) + 0.5 * (score[:, None] == score)
    assert methods[NARROW]["auuc"] == pytest.approx(np.mean(pairs * test.uplift))


def test_gross_errors_are_counted_where_they_are(monkeypatch):
    problem = paper_problem(1.0)

    def wrong_where_alike(data, X, **kwargs):
        gap = np.abs(problem.policy_gap(X))
        off = np.where(gap <= np.quantile(gap, 0.4), 4.1, 3.9)  # squared: above and below 16
        return Fits({"one": problem.uplift(X) + off}, {}, {})

    monkeypatch.setattr(_synthetic_study, "fit_methods", wrong_where_alike)
    result, _ = synthetic_trial(Task("synthetic", 0, 1.0, small=True))
    assert result["gross"] == {"one": {"small gap": 1.0, "large gap": 0.0}}
    points = result["points"]
    assert len(points["gap"]) == len(points["x2"]) == len(points["squared_error"]["one"]) == 400
    later, _ = synthetic_trial(Task("synthetic", 1, 1.0, small=True))
    assert "points" not in later


@pytest.mark.slow
def test_every_method_is_fitted_and_minmax_with_the_ridges_it_chose():
    data = paper_problem(10.0).draw(100, random_state=0)
    X = np.linspace(-3.0, 3.0, 10).reshape(5, 2)
    fits = fit_methods(data, X, is_binary=True, seed=1)
    assert set(fits.estimates) == set(fits.seconds) == set(BINARY)
    assert all(np.isfinite(estimate).all() for estimate in fits.estimates.values())
    assert set(fits.ridges) == set(WIDTHS)
    for name, (ridge_f, ridge_g) in fits.ridges.items():
        assert (ridge_f, ridge_g) in RIDGES
        model = MinMaxGau(width=WIDTHS[name], ridge_f=ridge_f, ridge_g=ridge_g, random_state=1)
        np.testing.assert_allclose(model.fit(**data).predict(X), fits.estimates[name])


def test_ridges_are_those_of_the_lowest_total_risk_on_rows_left_out(monkeypatch):
    data = paper_problem(10.0).draw(50, random_state=0)
    risk = np.random.RandomState(0).random_sample((2, len(WIDTHS), len(RIDGES)))
    given = iter(risk.ravel())
    seen = []

    class Judge:
        @classmethod
        def from_data(cls, **held):
            seen.append({tuple(row) for row in held["X"]})
            return cls()

        def score(self, uplift, name):
            assert (len(uplift), name) == (100, "outcome_risk")
            return next(given)

    monkeypatch.setattr(_study_methods, "HeldOutRows", Judge)
    monkeypatch.setattr("warnings.warn", lambda *args, **kwargs: None)  # halves are weak
    chosen = _choose_ridges(data, seed=0)
    best = risk.sum(axis=0).argmin(axis=1)
    assert chosen == {name: RIDGES[i] for name, i in zip(WIDTHS, best, strict=True)}
    assert len(seen[0] | seen[1]) == 200


# One trial on real rows.


def study_of(n, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 2))
    e = np.clip(expit(X[:, 0]), 0.2, 0.8)
    treated = (rng.random_sample(n) < e).astype(float)
    y = rng.standard_normal(n)
    return TrialStudy("made up", X, y, treated, e, 300, 100, False, "units")


def test_the_four_tables_follow_the_policies_of_the_paper():
    study = study_of(40_000)
    study = TrialStudy(**{f: getattr(study, f) for f in study.__slots__} | {"n_train": 1500})
    data = _four_tables(study, np.arange(40_000), seed=0)
    for population, sign in (("1", 1.0), ("2", -1.0)):
        rows = (data.kind == "treatment") & (data.population == population)
        expected = expit(sign * data.X[rows].sum(axis=1))
        off = data.y[rows] - expected
        error = np.sqrt(np.mean(expected * (1.0 - expected)) / rows.sum())
        assert abs(off.mean()) < 4.0 * error
        assert abs(np.mean(off * data.X[rows, 0])) < 4.0 * error  # X has variance 1


def test_a_draw_that_leaves_a_table_short_is_repeated_and_in_vain_explained():
    study = study_of(2_000)  # about 90 rows for each table
    full = TrialStudy(**{f: getattr(study, f) for f in study.__slots__} | {"n_train": 92})
    assert _four_tables(full, np.arange(2_000), seed=0).n_rows == 4 * 92
    with pytest.raises(InputError, match="sub-sampling left"):
        _four_tables(study, np.arange(2_000), seed=0)


def test_test_rows_are_set_aside_before_the_trial_is_taken_apart(tmp_path, quick, monkeypatch):
    write_email(tmp_path)
    seen = {}

    def watch(data, X, **kwargs):
        seen["train"], seen["test"] = {tuple(r) for r in data.X}, {tuple(r) for r in X}
        return stand_in(data, X, **kwargs)

    monkeypatch.setattr(_trial_studies, "fit_methods", watch)
    result, _ = real_trial(Task("email", 0, small=True, folder=str(tmp_path)))
    assert len(seen["test"]) == 100
    assert len(seen["train"]) == 240
    assert not seen["train"] & seen["test"]
    assert result["n"] == 60


def test_curves_are_inverse_propensity_averages(tmp_path, quick):
    write_email(tmp_path / "below")  # found one folder down
    task = Task("email", 0, small=True, folder=str(tmp_path))
    result, _ = real_trial(task)
    study = load_study("email", small=True, folder=str(tmp_path))
    test = np.random.RandomState(task_seeds(task)[1]).permutation(len(study.y))[:100]
    y, t = study.y[test], study.treatment[test]
    everyone = np.mean(y * t / (2 / 3) - y * (1 - t) / (1 / 3))
    assert result["random"] == pytest.approx(everyone / 2.0)
    for row in result["methods"].values():
        assert row["gain"][0] == 0.0
        assert row["gain"][-1] == pytest.approx(everyone)
        assert len(row["gain"]) == len(SHARES)


def test_features_are_standardised_and_outcomes_left_alone(tmp_path):
    write_jobs(tmp_path)
    load_study.cache_clear()
    study = load_study("jobs", small=True, folder=str(tmp_path))
    np.testing.assert_allclose(study.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(study.X.std(axis=0), 1.0)
    assert study.y.max() > 1000.0
    assert not study.is_binary
    load_study.cache_clear()


def test_too_few_rows_are_refused_with_the_number_that_would_do(tmp_path):
    write_email(tmp_path, n=300)
    with pytest.raises(InputError, match=r"300 rows that can be used.*but 60 are needed.*whole"):
        load_study("email", small=True, folder=str(tmp_path))


def test_criteo_categories_become_counts_and_certain_rows_are_left_out():
    rng = np.random.RandomState(0)
    n = 4000
    code = rng.choice([7.0, 3.0, 9.0], size=n, p=[0.6, 0.3, 0.1])
    chance = np.select([code == 7.0, code == 3.0], [0.5, 0.3], 0.02)
    data = PublicData(
        name="criteo",
        X=np.column_stack([rng.standard_normal(n), code]),
        y=np.zeros(n),
        treatment=(rng.random_sample(n) < chance).astype(float),
        feature_names=("display_1", "display_2"),
        outcome_name="click",
        treatment_name="t",
        categorical=("display_2",),
    )
    X, e, rows = _encode_criteo(data)
    np.testing.assert_allclose(X[:, 1], np.log([np.sum(code == c) for c in code]))
    np.testing.assert_array_equal(X[:, 0], data.X[:, 0])
    assert set(code[rows]) == {7.0, 3.0}
    # A share of 1,200 rows has a standard error of 0.014; the ridge moves it by less.
    assert np.mean(e[code == 3.0]) == pytest.approx(0.3, abs=4 * 0.014)


def test_a_criteo_file_in_the_form_of_the_challenge_is_found(tmp_path, monkeypatch):
    line = "896563753 |l 0.999 |p 336.29|f 0:300 1:600 2:1 11:1\n"
    (tmp_path / "criteo_train_small.txt").write_text(line)
    assert _trial_studies._read_criteo(str(tmp_path)).n_rows == 1
    monkeypatch.setenv("UNJOINED_DATA", str(tmp_path / "empty"))
    with pytest.raises(TableError, match=r"by hand.*A part of it will do.*logged_only"):
        _trial_studies._read_criteo(None)


# The runner.


@pytest.fixture
def two_tasks():
    return synthetic_tasks(1, seed=3, small=True)[:2]


def test_finished_trials_are_kept_and_an_interrupted_run_goes_on(
    tmp_path, quick, two_tasks, monkeypatch
):
    file = tmp_path / "t.jsonl"

    def interrupt(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(two_tasks, file, jobs=1, progress=interrupt)
    assert len(read_records(file)) == 1
    run = []
    monkeypatch.setattr(_study_runner, "run_task", lambda task: run.append(task) or run_task(task))
    told = []
    resumed = run_tasks(two_tasks, file, jobs=1, progress=lambda *at: told.append(at))
    assert run == two_tasks[1:]
    assert told == [(1, 2), (2, 2)]
    assert resumed == run_tasks(two_tasks, tmp_path / "new.jsonl", jobs=1)


def test_a_line_cut_off_by_a_crash_is_run_again(tmp_path, quick, two_tasks):
    file = tmp_path / "t.jsonl"
    whole = run_tasks(two_tasks, file, jobs=1)
    file.write_text(file.read_text()[:-20])
    assert len(read_records(file)) == 1
    assert run_tasks(two_tasks, file, jobs=1) == whole
    assert len(file.read_text().splitlines()) == 2


def test_results_of_another_version_seed_or_size_do_not_count(tmp_path, quick, two_tasks):
    file = tmp_path / "t.jsonl"
    run_tasks(two_tasks, file, jobs=1)
    assert {
        r["task"]["seed"] for r in run_tasks(synthetic_tasks(1, seed=4, small=True), file, jobs=1)
    } == {4}
    file.write_text(file.read_text().replace('"version": "', '"version": "old-'))
    assert read_records(file) == []


def test_a_foreign_line_is_refused_with_its_number(tmp_path, two_tasks):
    file = tmp_path / "t.jsonl"
    file.write_text('{"a": 1}\n')
    with pytest.raises(TableError, match=r"line 1 of .* is no result of a trial. Delete"):
        run_tasks(two_tasks, file, jobs=1)


def test_a_file_that_cannot_be_written_is_told(tmp_path, two_tasks):
    (tmp_path / "t.jsonl").mkdir()
    with pytest.raises(TableError, match=r"cannot be written: Is a directory.*--out"):
        run_tasks(two_tasks, tmp_path / "t.jsonl", jobs=1)


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_number_of_processes(tmp_path):
    tasks = synthetic_tasks(1, seed=0, small=True)[1:]
    two = run_tasks(tasks, tmp_path / "2.jsonl", jobs=2)
    one = run_tasks(tasks[:1], tmp_path / "1.jsonl", jobs=1)
    assert one[0]["result"] == two[0]["result"]


def test_a_process_that_dies_is_explained_and_the_environment_restored(
    tmp_path, two_tasks, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)

    class Pool:
        def __init__(self, *args, **kwargs):
            assert _study_runner.os.environ["OMP_NUM_THREADS"] == "1"

        def submit(self, *args):
            raise BrokenProcessPool

        def shutdown(self, **kwargs):
            pass

    monkeypatch.setattr(_study_runner, "ProcessPoolExecutor", Pool)
    with pytest.raises(UnjoinedError, match=r"a process ended before.*fewer --jobs"):
        run_tasks(two_tasks, tmp_path / "t.jsonl", jobs=2)
    assert _study_runner.os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in _study_runner.os.environ


# From records to numbers.


def test_summaries_are_means_over_trials_and_differences_are_paired(quick):
    records = [run_task(task) for task in synthetic_tasks(3, seed=0, small=True)]
    block = summarise_study("synthetic", records)
    assert (block["trials"], block["n"], block["n_test"]) == (3, 60, 500)
    at = [r["result"] for r in records if r["task"]["b"] == 5.0]
    share = {
        name: np.array(
            [(r["methods"][name]["auuc"] - r["random"]) / (r["oracle"] - r["random"]) for r in at]
        )
        for name in BINARY
    }
    row = next(p for p in block["by_b"] if p["b"] == 5.0)["methods"][OURS]
    assert row["share"] == pytest.approx(share[OURS].mean(), rel=1e-4)
    off = share[OURS] - share[WIDE]
    expected = (off.mean(), off.std(ddof=1) / np.sqrt(3.0))
    assert row["minus"][WIDE] == pytest.approx(expected, rel=1e-4)
    assert block["seconds"] == dict.fromkeys(BINARY, 4.5)
    small = np.array(
        [r["result"]["gross"]["FourNNC"]["small gap"] for r in records if r["task"]["b"] == 1.0]
    )
    gross = block["gross"]["FourNNC"]
    assert gross["small gap"] == pytest.approx(small.mean(), rel=1e-4)
    assert gross["small gap_se"] == pytest.approx(small.std(ddof=1) / np.sqrt(3.0), rel=1e-4)
    assert gross["below_half_of_network"][0] == pytest.approx(-small.mean() / 2.0, rel=1e-4)


def test_one_trial_has_no_standard_error():
    assert mean_and_error([2.0]) == (2.0, None)
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))


# Claims.


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (-533.7, 372.1, "-534 ± 372"),
        (1234.5, 61.0, "+1,234 ± 61"),
        (0.0002123, 0.00157, "+0.0002 ± 0.0016"),
        (0.5, None, "+0.5"),
        (0.5, 0.0, "+0.5"),
    ],
)
def test_numbers_are_shown_to_the_second_digit_of_their_error(value, error, shown):
    assert plus_minus(value, error) == shown


def synthetic_block(curves, gross):
    """Return a block whose methods have the given share of the oracle as a function of b."""
    points = []
    for b in (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0):
        share = {name: curve(b) for name, curve in curves.items()}
        rows = {
            name: {
                "share": value,
                "share_se": 0.01,
                "minus": {other: [value - share[other], 0.01] for other in share if other != name},
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
    assert lost_comparisons(block) == []


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
    assert [check["verdict"] for check in claims[3]["checks"]] == ["holds", "contradicted"]
    lost = lost_comparisons(block)
    assert len(lost) == 2 * 7
    assert str(lost[0]) == f"b = 0, FourLogistic: +0.450 ± 0.010 above {WIDE}"


def test_noise_that_covers_everything_shows_nothing():
    block = synthetic_block(AS_IN_THE_PAPER, GROSS)
    for point in block["by_b"]:
        for row in point["methods"].values():
            row["share_se"] = 1.0
            row["minus"] = {other: [value, 1.0] for other, (value, _) in row["minus"].items()}
    for row in block["gross"].values():
        row["small gap_se"] = row["minus_twice_large"][1] = row["below_half_of_network"][1] = 1.0
    claims = check_claims({"synthetic": block})
    assert {claim["verdict"] for claim in claims} == {"not shown"}


def real_block(study, areas, error=0.1):
    methods = {
        name: {
            "auuc": area,
            "minus": {o: [area - other, error] for o, other in areas.items() if o != name},
        }
        for name, area in areas.items()
    }
    return {"study": study, "methods": methods}


@pytest.mark.parametrize(
    ("study", "areas", "verdict"),
    [
        ("email", (2.0, 2.0, 2.0, 1.0, 3.0), "holds"),
        ("email", (2.0, 1.1, 2.0, 1.0, 3.0), "holds partly"),
        ("email", (1.1, 1.1, 1.1, 1.0, 3.0), "not shown"),
        ("email", (0.5, 2.0, 2.0, 1.0, 3.0), "contradicted"),
        ("jobs", (2.0, 2.0, 5.0, 1.0, 3.0), "holds"),
        ("criteo", (2.0, 2.0, 1.0, 1.0, 3.0), "holds"),
        ("criteo", (2.0, 2.0, 1.9, 1.0, 3.0), "holds partly"),
        ("criteo", (2.0, 2.0, 5.0, 1.0, 3.0), "contradicted"),
    ],
)
def test_verdicts_on_real_data_ask_for_two_standard_errors(study, areas, verdict):
    names = REAL if study == "jobs" else BINARY
    block = real_block(study, dict(zip(names, areas, strict=True)))
    (claim,) = check_claims({study: block})
    assert claim["verdict"] == verdict
    alone = real_block(study, dict(zip(names, areas, strict=True)), error=None)
    assert check_claims({study: alone})[0]["verdict"] == "not shown"
    assert lost_comparisons(alone) == []


# Ridges.


def test_every_pair_of_ridges_gives_what_a_fit_with_it_gives():
    data = paper_problem(5.0).draw(100, random_state=0)
    X = np.linspace(-3.0, 3.0, 10).reshape(5, 2)
    estimates = _every_pair(data, 5.0, 1, X)
    assert estimates.shape == (len(GRID_F), len(GRID_G), 5)
    for at in ((0, 3), (4, 6), (9, 11)):
        ridges = {"ridge_f": GRID_F[at[0]], "ridge_g": GRID_G[at[1]]}
        model = MinMaxGau(width=5.0, random_state=1, **ridges).fit(**data)
        np.testing.assert_allclose(estimates[at], model.predict(X), rtol=1e-8)


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_the_ridge_study_sees_the_rows_of_the_study_and_chooses_as_it_does():
    task = Task("synthetic", 0, 10.0, small=True, ridges=True)
    result = run_task(task)["result"]
    train_seed, test_seed, seed = task_seeds(replace(task, ridges=False))
    problem = paper_problem(10.0)
    data, test = (
        problem.draw(60, random_state=train_seed),
        problem.draw_joint(500, random_state=test_seed),
    )
    chosen = _choose_ridges(data, seed)
    for name, width in WIDTHS.items():
        f, g = result[name]["study"]
        assert (GRID_F[f], GRID_G[g]) == chosen[name]
        model = MinMaxGau(width=width, ridge_f=GRID_F[f], ridge_g=GRID_G[g], random_state=seed)
        estimate = model.fit(**data).predict(test.X)
        share = qini(estimate, test.uplift, normalize=True).value
        assert result[name]["score"][f][g] == pytest.approx(share, abs=1e-6)


def ridge_record(trial, score, study, wide):
    task = Task("jobs", trial, ridges=True)
    found = {"score": score.tolist(), "study": study, "wide": wide}
    return {
        "task": task.key(),
        "version": "1",
        "result": dict.fromkeys(WIDTHS, found),
        "seconds": {"MinMaxGau": 1.0},
    }


def test_ridges_are_summarised_over_trials_and_compared_in_pairs():
    shape = (len(GRID_F), len(GRID_G))
    first, second = np.zeros(shape), np.zeros(shape)
    first[5, 6], second[5, 6] = 4.0, 6.0
    first[0, 0] = second[0, 0] = 1.0
    block = summarise_ridges(
        [ridge_record(0, first, (5, 6), (0, 0)), ridge_record(1, second, (5, 6), (5, 6))]
    )
    row = block["rows"][0]
    assert (block["trials"], block["seconds"], row["method"]) == (2, 2.0, WIDE)
    assert row["study"] == row["best"] == [5.0, 1.0]
    assert row["wide"] == [3.5, 2.5]
    assert row["wide_minus_study"] == [-1.5, 1.5]
    assert row["best_pair"] == row["study_pair"] == [GRID_F[5], GRID_G[6]]
    assert row["at_edge"] == 0.5


def test_of_pairs_that_do_the_same_the_one_inside_the_grid_is_named():
    score = np.zeros((len(GRID_F), len(GRID_G)))
    for i in range(6):
        score[i, len(GRID_G) - 1 - i] = 1.0  # one product of the ridges
    block = summarise_ridges([ridge_record(k, score, (5, 6), (5, 6)) for k in range(3)])
    assert block["rows"][0]["best_pair"] == [GRID_F[5], GRID_G[6]]


# The whole run, with stand-ins for the fits.


@pytest.fixture
def files(tmp_path, quick):
    write_email(tmp_path / "data")
    write_jobs(tmp_path / "data")
    return reproduce_paper(
        ["synthetic", "email", "jobs"],
        tmp_path / "out",
        trials=2,
        small=True,
        data=str(tmp_path / "data"),
    )


def test_a_run_writes_results_figures_and_a_page_made_from_them(files):
    results = json.loads(files.results.read_text())
    assert list(results["studies"]) == ["synthetic", "email", "jobs"]
    assert len(results["claims"]) == 7
    page = files.page.read_text()
    assert paper_page(results) == page
    assert all(f"images/{figure.name}" in page for figure in files.figures)
    assert all(figure.read_bytes()[:4] == b"\x89PNG" for figure in files.figures)
    assert [figure.name for figure in files.figures] == [
        "paper-figure-1.png",
        "paper-figure-2.png",
        "paper-figure-3-email.png",
        "paper-figure-3-jobs.png",
    ]


def test_numbers_of_the_page_are_those_of_the_file(files):
    results = json.loads(files.results.read_text())
    page = files.page.read_text()
    synthetic, email = (results["studies"][name] for name in ("synthetic", "email"))
    for point in synthetic["by_b"]:
        row = point["methods"][OURS]
        assert f"{row['share']:.2f} ± {row['share_se']:.2f}" in page
    for row in email["methods"].values():
        assert f"| {plus_minus(row['above_random'], row['above_random_se'])} |" in page
    for claim in results["claims"]:
        assert f"| {claim['claim']} | **{claim['verdict']}** |" in page
    changed = json.loads(files.results.read_text())
    changed["studies"]["email"]["methods"][WIDE]["above_random"] = 0.777
    assert paper_page(changed) != page


def test_a_preview_says_so_and_a_full_run_does_not(files):
    results = json.loads(files.results.read_text())
    assert "**This is a preview**: 2 trials and small tables" in paper_page(results)
    for block in results["studies"].values():
        block |= {"trials": 50, "small": False}
    assert "This is a preview" not in paper_page(results)


@pytest.mark.slow
def test_the_same_run_gives_the_same_files_and_a_later_study_joins_the_page(files, tmp_path):
    def again(studies, out):
        return reproduce_paper(
            studies, tmp_path / out, trials=2, small=True, data=str(tmp_path / "data")
        )

    apart = [again([study], "other") for study in ("jobs", "synthetic", "email")]
    assert apart[-1].results.read_text() == files.results.read_text()
    assert apart[-1].page.read_text() == files.page.read_text()


def test_ridges_join_the_page_of_the_studies_and_stand_alone(files, tmp_path, monkeypatch):
    def quick_ridges(task):
        score = np.random.RandomState(task.trial).random_sample((len(GRID_F), len(GRID_G)))
        return ridge_record(0, score, (5, 6), (0, 0))["result"], {"MinMaxGau": 1.0}

    monkeypatch.setattr(_study_runner, "ridge_trial", quick_ridges)
    options = {"trials": 2, "small": True, "data": str(tmp_path / "data"), "ridges": True}
    before = json.loads(files.results.read_text())
    joined = reproduce_paper(["synthetic", "jobs"], tmp_path / "out", **options)
    after = json.loads(joined.results.read_text())
    assert (after["studies"], after["claims"]) == (before["studies"], before["claims"])
    assert list(after["ridges"]) == ["synthetic", "jobs"]
    assert [row["b"] for row in after["ridges"]["synthetic"]["rows"][::2]] == [1, 2.0833, 5, 10]
    page = joined.page.read_text()
    assert "unjoined reproduce synthetic jobs --ridges --trials 2 --seed 0 --small" in page
    assert "| synthetic, b = 2.08 | MinMaxGau, width 5 |" in page
    alone = reproduce_paper(["jobs"], tmp_path / "alone", **options)
    assert "## What the ridges change" in alone.page.read_text()
    assert "What the paper says" not in alone.page.read_text()


def test_missing_data_are_told_before_the_first_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(_reproduce, "run_tasks", lambda *args, **kwargs: pytest.fail("ran"))
    (tmp_path / "empty").mkdir()
    for study, name in (("email", "Kevin_Hillstrom"), ("jobs", "nsw_treated")):
        with pytest.raises(TableError, match=f"{name}.*by hand"):
            reproduce_paper(["synthetic", study], tmp_path / "out", data=str(tmp_path / "empty"))


def test_a_foreign_results_file_is_not_overwritten(tmp_path, quick):
    (tmp_path / "paper-results.json").write_text("[1]")
    with pytest.raises(TableError, match=r"is no results file of this command. Move it away"):
        reproduce_paper(["synthetic"], tmp_path, trials=1, small=True)


@pytest.mark.slow
def test_figures_of_one_trial_have_lines_without_bands(tmp_path, quick):
    records = [run_task(task) for task in synthetic_tasks(1, seed=0, small=True)]
    block = summarise_study("synthetic", records)
    assert len(draw_figures(block, tmp_path)) == 2
    assert write_paper({"synthetic": block}, tmp_path).page.is_file()
