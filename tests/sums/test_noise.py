"""Noise on sums: as much as a row can change, no less; and fits that know of it."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2, norm

from unjoined import MinMaxUplift
from unjoined.cli import main
from unjoined.data import SimulatedProblem
from unjoined.errors import ColumnWarning, InputError, TableError
from unjoined.sums import (
    GaussianNoise,
    aggregate_rows,
    fourier_plan,
    merge_sums,
    noise_multiplier,
    product_variance,
    read_finished_sums,
    sensitivity,
    write_sums,
)

FEATURES = {"x": (0.0, 1.0), "z": (1.0, 2.0)}
NAMES = ["a", "b"]
LIMITED = {"n_functions": 3, "n_groups": 2, "clip": 2.0}
PLAN = fourier_plan(FEATURES, NAMES, outcome_range=(-3.0, 3.0), **LIMITED)


def seeded(epsilon=1.0, seed=0):
    """The documented way for tests: bytes of a generator that anyone can repeat."""
    return GaussianNoise(epsilon, 1e-6, np.random.default_rng(seed).bytes)


def silent(n):
    """Return bytes of which the noise is 0, to see the sums behind it."""
    return b"\0\0\0\0\0\0\0\x80" * (n // 8)


NONE = GaussianNoise(50.0, 1e-6, silent)


def table(kind="outcome", n=4000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n) if kind == "outcome" else rng.integers(0, 2, n).astype(float)
    X = np.column_stack([rng.uniform(-2.0, 2.0, n), rng.uniform(-3.0, 5.0, n)])
    return {"X": X, "y": y, "kind": np.full(n, kind), "population": np.resize(NAMES, n)}


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_multiplier_is_the_least_that_is_private(epsilon, delta):
    """Two normal laws a sensitivity apart: the mass by which e^epsilon of one exceeds the other."""

    def exceeds(s):
        threshold = epsilon * s - 0.5 / s  # where the ratio of the densities is e^epsilon
        return norm.sf(threshold) - np.exp(epsilon) * norm.sf(threshold + 1.0 / s)

    s = noise_multiplier(epsilon, delta)
    assert exceeds(s) <= delta
    assert exceeds(0.999 * s) > delta
    if epsilon < 1.0:  # the textbook's, which is valid there and never smaller
        assert s <= np.sqrt(2.0 * np.log(1.25 / delta)) / epsilon


def released(found, plan):
    """All numbers that a file holds, each counted as in the derivation: one vector by group."""
    d = plan.n_features
    w = np.ones(plan.size)
    w[1 : d + 1] = plan.clip
    B = np.sqrt(d + 3.0)
    upper = np.triu_indices(plan.size)
    twice = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    parts = {}
    for key, cell in found.sums.cells.items():
        second = B * cell.label_basis / w
        if key.kind == "treatment":
            second = twice * (cell.label_cross / np.outer(w, w))[upper]
        parts[key] = np.concatenate([twice * (cell.gram / np.outer(w, w))[upper], second])
    return parts


@pytest.mark.parametrize("kind", ["outcome", "treatment"])
def test_no_row_changes_a_file_by_more_than_the_sensitivity(kind):
    """Neighbouring tables, one row more: far out, at the limits, with labels beyond them."""
    rows, rng = table(kind), np.random.default_rng(1)
    # Noise deals rows by their features alone, so that one more moves no other.
    plain = aggregate_rows(rows, PLAN, noise=NONE)
    before, most = released(plain, PLAN), 0.0
    tries = [
        rng.choice([-9.0, -2.0, 0.0, 2.0, 9.0], 2) * [1.0, 2.0] + [0.0, 1.0] for _ in range(25)
    ]
    for X in tries:
        y = rng.choice([-1e6, -3.0, 3.0, 1e6]) if kind == "outcome" else rng.integers(0, 2)
        more = {
            "X": np.vstack([rows["X"], X]),
            "y": np.append(rows["y"], y),
            "kind": np.append(rows["kind"], kind),
            "population": np.append(rows["population"], "a"),
        }
        after = released(aggregate_rows(more, PLAN, noise=NONE), PLAN)
        assert after.keys() == before.keys()
        change = np.sqrt(sum(np.sum((after[key] - before[key]) ** 2) for key in after))
        most = max(most, change)
        assert 0.5 < change <= sensitivity(PLAN) * (1.0 + 1e-3)
    assert most > 0.7 * sensitivity(PLAN)  # at a corner it is nearly reached


@pytest.mark.parametrize("kind", ["outcome", "treatment"])
def test_noise_has_the_variance_it_says(kind):
    rows = table(kind)
    plain = aggregate_rows(rows, PLAN, noise=NONE)
    s, square = noise_multiplier(1.0, 1e-6), []
    variance = s**2 * product_variance(PLAN)
    for seed in range(30):
        found = aggregate_rows(rows, PLAN, noise=seeded(1.0, seed))
        for key, cell in found.sums.cells.items():
            assert_array_equal(cell.gram, cell.gram.T)
            assert cell.weight == cell.gram[0, 0]
            apart = (cell.gram - plain.sums.cells[key].gram) ** 2 / variance
            square.append(apart[np.triu_indices(PLAN.size)])
            if kind == "outcome":
                w = np.array([1.0, 2.0, 2.0, 1.0, 1.0, 1.0])
                scale = s * np.sqrt(2.0 * 5.0) * w
                label = cell.label_basis - plain.sums.cells[key].label_basis
                square.append((label / scale) ** 2)
            else:
                cross = (cell.label_cross - plain.sums.cells[key].label_cross) ** 2 / variance
                square.append(cross[np.triu_indices(PLAN.size)])
    total, n = np.concatenate(square).sum(), sum(map(len, square))
    assert chi2.ppf(1e-6, n) < total < chi2.isf(1e-6, n)


def test_the_same_rows_get_other_noise_from_the_operating_system():
    rows = table()
    one, two = (aggregate_rows(rows, PLAN, noise=GaussianNoise(1.0, 1e-6)) for _ in range(2))
    key = next(iter(one.sums.cells))
    assert np.abs(one.sums.cells[key].gram - two.sums.cells[key].gram).min() > 0.0
    digits = one.sums.cells[key].gram[0, 0] * 2.0**12  # on a grid: nothing below it
    assert digits == np.rint(digits)


def test_a_file_says_what_protects_it_and_merging_keeps_that(tmp_path):
    files = [
        write_sums(aggregate_rows(table(kind), PLAN, noise=seeded(epsilon)), tmp_path / kind)
        for kind, epsilon in (("outcome", 1.0), ("treatment", 4.0))
    ]
    with np.load(files[0]) as archive:
        manifest = json.loads(archive["unjoined-sums-4"].tobytes())
    assert manifest["noise"] == [["outcome", 0, 1.0, 1e-6], ["outcome", 1, 1.0, 1e-6]]
    assert manifest["plan"]["clip"] == 2.0
    merged = merge_sums([read_finished_sums(file) for file in files])
    again = read_finished_sums(write_sums(merged, tmp_path / "both"))
    assert again.noise == merged.noise
    assert sorted({(t.kind, t.epsilon) for t in again.noise}) == [
        ("outcome", 1.0),
        ("treatment", 4.0),
    ]
    assert_array_equal(again.policy.square, merged.policy.square)
    both = merge_sums([again, aggregate_rows(table("treatment", seed=1), PLAN, noise=seeded(1.0))])
    added = both.policy.square - both.policy.gram  # what two tables' noise adds up to
    s = [noise_multiplier(epsilon, 1e-6) ** 2 for epsilon in (4.0, 1.0)]
    expected = PLAN.n_groups * sum(s) * product_variance(PLAN)[0, :3]
    assert_allclose(np.diag(added[0]), expected)


def mean(X, treated):
    return 0.5 + 0.2 * np.tanh(X[:, 1]) + treated * (0.1 + 0.15 * np.tanh(X[:, 0]))


PROBLEM = SimulatedProblem(
    features=lambda n, rng: rng.standard_normal((n, 2)),
    policies={"a": lambda X: np.where(X[:, 0] > 0, 0.8, 0.7), "b": lambda X: np.full(len(X), 0.2)},
    outcome=lambda X, treated, rng: (rng.random(len(X)) < mean(X, treated)) * 1.0,
    outcome_mean=mean,
)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("draws", "n"), [(10, 6000), pytest.param(200, 20_000, marks=pytest.mark.slow)]
)
def test_fits_and_intervals_know_of_the_noise(draws, n):
    """The average uplift is 0.1. Of 200 intervals 95 % cover, give or take 3.1 % twice."""
    plan = fourier_plan(
        {"x": (0, 1), "z": (0, 1)}, NAMES, outcome_values=(0, 1), n_functions=4, clip=2.5
    )
    X = np.random.default_rng(5).standard_normal((1000, 2))
    truth, covered, error = 0.1 + 0.15 * np.tanh(X[:, 0]), 0, []
    for seed in range(draws):
        data = PROBLEM.draw(n, random_state=seed)
        found = aggregate_rows(data, plan, noise=seeded(2.0, seed))
        model = MinMaxUplift(n_jobs=1).fit_moments(found)
        covered += model.average_effect_.covers(0.1, 0.95)
        error.append(np.mean((model.predict(X) - truth) ** 2))
        far = model.predict(np.array([[2.5, 0.0], [50.0, 0.0]]))
        assert far[0] == far[1]  # beyond the limits people count as at them
    assert covered >= (8 if draws == 10 else 0.92 * draws)  # fewer than 8 of 10: one in 90
    assert np.median(error) < 0.5 * np.mean(truth**2)


@pytest.mark.filterwarnings("ignore:.*can hardly be told")
@pytest.mark.filterwarnings("ignore:the noise on the sums is so large")
def test_noise_that_drowns_the_products_still_ends_in_a_fit():
    """Sums of squares below 0 are possible; an interval may then be wide, but there is one."""
    plan = fourier_plan(
        {"x": (0, 1), "z": (0, 1)}, NAMES, outcome_values=(0, 1), n_functions=6, clip=3.0
    )
    for seed in range(4):
        data = PROBLEM.draw(6000, random_state=seed)
        found = aggregate_rows(data, plan, noise=seeded(0.6, seed))
        grams = [np.linalg.eigvalsh(found.sums.total("outcome", k).gram)[0] for k in (0, 1)]
        assert min(grams) < 0.0
        low, high = MinMaxUplift(n_jobs=1).fit_moments(found).average_effect_.interval(0.95)
        assert low < high


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_uplift_that_outcomes_cannot_have_is_never_predicted():
    """Noise that drowns a direction made coefficients explode: then nobody is ranked, in words."""
    plan = fourier_plan(
        {"x": (0, 1), "z": (0, 1)}, NAMES, outcome_values=(0, 1), n_functions=4, clip=2.5
    )
    X = np.random.default_rng(5).standard_normal((500, 2))
    alike = 0
    for seed in range(6):
        found = aggregate_rows(PROBLEM.draw(6000, random_state=seed), plan, noise=seeded(0.6, seed))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            uplift = MinMaxUplift(n_jobs=1).fit_moments(found).predict(X)
        assert np.mean(uplift**2) <= 1.0
        drowned = any("Nobody can be ranked" in str(w.message) for w in told)
        assert drowned == (np.ptp(uplift) == 0.0)
        alike += drowned
    assert 0 < alike < 6


def test_what_noise_needs_is_said():
    rows = table()
    free = fourier_plan(FEATURES, NAMES, n_functions=3, n_groups=2)
    with pytest.raises(InputError, match=r"noise needs features within agreed limits.*clip"):
        aggregate_rows(rows, free, noise=seeded())
    with pytest.raises(InputError, match=r"rows of weight 1.*Leave the weights out"):
        aggregate_rows(rows | {"sample_weight": np.full(4000, 2.0)}, PLAN, noise=seeded())
    with pytest.raises(InputError, match=r"hides group 0 .* Give more rows, a larger epsilon"):
        aggregate_rows(table(n=400), PLAN, noise=seeded(0.1))
    for wrong in ({"epsilon": 0.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0.0}):
        with pytest.raises(InputError, match="must be a finite number above 0"):
            GaussianNoise(**wrong)
    with pytest.raises(InputError, match="epsilon must be at most 100"):
        GaussianNoise(1e9, 1e-6)
    with pytest.raises(InputError, match=r"delta must be at most 0\.01"):
        GaussianNoise(1.0, 0.5)
    with pytest.raises(InputError, match="delta must be between 0 and 1"):
        GaussianNoise(1.0, 1.0)
    for limits in ({"clip": 2.0}, {"outcome_range": (0, 1)}):
        with pytest.raises(InputError, match="limits are for features and outcomes alike"):
            fourier_plan(FEATURES, NAMES, **limits)


def test_rows_in_other_units_than_the_plan_are_not_moved_to_its_limits_in_silence():
    rows = table()
    with pytest.raises(InputError, match=r"their feature 'x' beyond .* Use the units of the plan"):
        aggregate_rows(rows | {"X": rows["X"] * [100.0, 1.0]}, PLAN)
    with pytest.raises(InputError, match="have their outcome beyond the limits"):
        aggregate_rows(rows | {"y": 100.0 * rows["y"]}, PLAN)
    with pytest.warns(ColumnWarning, match=r"\d\d% of the outcome rows .* and are moved there"):
        aggregate_rows(rows | {"y": 2.0 * rows["y"]}, PLAN)


def test_a_group_without_rows_is_refused():
    """The minimum count holds for every group of a table, those that got no row included."""
    rows = table(n=4000)
    rows["X"][:] = [0.5, 2.0]  # rows of equal features and outcomes share a group
    rows["y"] = np.resize([0.0, 1.0], 4000)
    plan = fourier_plan(FEATURES, NAMES, n_functions=1, outcome_values=(0, 1), n_groups=2, clip=2.0)
    with pytest.raises(InputError, match=r"group . of the outcome rows .* has 0 rows"):
        aggregate_rows(rows, plan, noise=NONE)


def test_files_that_lie_about_noise_are_refused(tmp_path):
    found = aggregate_rows(table(), PLAN, noise=seeded())
    cell = next(iter(found.sums.cells))
    for noise, message in (
        ((("outcome", 0, 0.0, 1e-6),), "for epsilon a finite number above 0"),
        ((("outcome", 0, 1.0, 1.5),), "its noise is not within its limits"),
        ((("outcome", 7, 1.0, 1e-6),), "for a population a whole number from 0 to 1"),
    ):
        path = write_sums(replace(found, noise=noise), tmp_path / "lie")
        with pytest.raises(TableError, match=message):
            read_finished_sums(path)
    gram = found.sums.cells[cell].gram.copy()
    gram[0, 1] += 1.0
    cells = dict(found.sums.cells) | {cell: replace(found.sums.cells[cell], gram=gram)}
    bad = replace(found, sums=type(found.sums)(PLAN.size, cells))
    with pytest.raises(TableError, match="are not symmetric"):
        read_finished_sums(write_sums(bad, tmp_path / "lie"))


def test_the_command_line_adds_noise(tmp_path, capsys):
    rows = table()
    files = []
    for name in NAMES:
        at = rows["population"] == name
        lines = [f"{x},{z},{y}" for (x, z), y in zip(rows["X"][at], rows["y"][at], strict=True)]
        files.append(f"{name}={tmp_path / name}.csv")
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,z,sold", *lines]))

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return stop.value.code or 0, " ".join(printed.out.split()), " ".join(printed.err.split())

    plan, out = tmp_path / "plan.sums", tmp_path / "out.sums"
    words = ["plan", "--feature", "x=0:1", "--feature", "z=1:2", "--populations", "a,b"]
    words += ["--functions", 3, "--groups", 2, "--clip", 2, "--outcome-range", "-3,3"]
    assert run(*words, "--out", plan)[0] == 0
    given = ["aggregate", "--plan", plan, "--outcome", "sold", "--out", out]
    given += [word for file in files for word in ("--outcomes", file)]
    code, _, err = run(*given, "--epsilon", 1)
    assert (code, "--delta" in err) == (2, True)
    code, shown, _ = run(*given, "--epsilon", 1, "--delta", 1e-6)
    assert code == 0
    assert "Noise on the outcome rows of a: epsilon 1, delta 1e-06 for each row." in shown
    assert [t.epsilon for t in read_finished_sums(out).noise] == [1.0, 1.0]
