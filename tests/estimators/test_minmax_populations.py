"""`MinMaxUplift` on three populations or more: from memory, chunks, Dask and stored sums alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import SimulatedProblem
from unjoined.data.rows import label_rows
from unjoined.errors import LabelError
from unjoined.federated import (
    aggregate_rows,
    fourier_plan,
    merge_sums,
    read_sums,
    write_sums,
)
from unjoined.model.contrasts import best_contrasts, contrasts_of, in_two_groups
from unjoined.model.minmax import assemble
from unjoined.model.moments import PolicySums


def mean(X, treated):
    return X[:, 1] + treated * (0.5 + X[:, 0])


def problem(**policies):
    """Uplift 0.5 + x; policies are shares, or functions of the features."""
    return SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 2)),
        policies={
            name: p if callable(p) else (lambda X, p=p: np.full(len(X), p))
            for name, p in policies.items()
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


THREE = problem(A=0.8, B=0.2, C=0.5)
NEW = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
FIXED = {
    "basis": "linear",
    "ridge_f": 1e-3,
    "ridge_g": 1e-2,
    "n_jobs": 1,
    "random_state": 0,
}


def drawn(source=THREE, n=300, seed=0):
    """Rows with weights, in no order."""
    data = {
        k: np.asarray(v) for k, v in dict(source.draw(n, random_state=seed)).items()
    }
    rng = np.random.default_rng(seed)
    data["sample_weight"] = rng.uniform(0.5, 2.0, len(data["y"]))
    order = rng.permutation(len(data["y"]))
    return {name: values[order] for name, values in data.items()}


def without(data, name):
    return {key: values[data["population"] != name] for key, values in data.items()}


def error(model):
    return float(np.mean((model.predict(NEW) - 0.5 - NEW[:, 0]) ** 2))


def test_rows_in_memory_and_in_chunks_have_one_fit():
    """With nothing drawn from a sample, the sums of K populations are those of all rows."""
    data = drawn()
    model = MinMaxUplift(center=False, **FIXED).fit(**data)
    cut = MinMaxUplift(center=False, **FIXED).fit(SeparateLabels(**data, stream=77))
    assert_allclose(cut.predict(NEW), model.predict(NEW), rtol=1e-9, atol=1e-10)
    assert_allclose(cut.contrast_, model.contrast_, rtol=1e-9)
    assert cut.populations_ == list(model.populations_) == ["A", "B", "C"]
    assert_allclose(
        cut.identification_.f_statistic, model.identification_.f_statistic, rtol=1e-6
    )
    assert [pair.populations for pair in cut.identification_.pairs] == [
        ("A", "B"),
        ("A", "C"),
        ("B", "C"),
    ]


def test_chunks_dask_and_stored_sums_have_one_fit(tmp_path):
    """Centred, with a width and ridges chosen: all that a plan can hold."""
    da = pytest.importorskip("dask.array")
    data = drawn()
    model = MinMaxUplift(n_centers=8, n_jobs=1, random_state=0)
    expected = model.fit(SeparateLabels(**data, stream=True)).predict(NEW)
    cut = model.fit(SeparateLabels(**data, stream=61))
    assert_allclose(cut.predict(NEW), expected, rtol=1e-6, atol=1e-8)
    columns = {k: da.from_array(v, chunks=(300, 2)[: v.ndim]) for k, v in data.items()}
    spread = model.fit(SeparateLabels(**columns))
    assert_allclose(spread.predict(NEW), expected, rtol=1e-6, atol=1e-8)
    path = write_sums(model.collect_sums(data), tmp_path / "three.sums")
    stored = model.fit_moments(read_sums(path))
    assert_array_equal(stored.predict(NEW), expected)
    assert stored.average_effect_.covers(0.5, 0.999)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_parties_with_three_populations_merge_to_the_sums_of_all_rows(tmp_path):
    """One holds the outcomes, one the treatments; neither has the other's rows."""
    data = drawn(n=900)
    plan = fourier_plan({"a": (0, 0.6), "b": (0, 0.6)}, ["C", "A", "B"], n_functions=2)
    assert plan.populations == ("A", "B", "C")
    parts = []
    for label in ("y", "treatment"):
        own = {key: values[~np.isnan(data[label])] for key, values in data.items()}
        written = write_sums(aggregate_rows(own, plan), tmp_path / f"{label}.sums")
        parts.append(read_sums(written))
    both = MinMaxUplift(random_state=0).fit_moments(merge_sums(parts))
    alone = MinMaxUplift(random_state=0).fit_moments(aggregate_rows(data, plan))
    assert_allclose(both.predict(NEW), alone.predict(NEW), rtol=1e-9, atol=1e-10)
    assert both.average_effect_.covers(0.5, 0.999)


def test_the_system_is_the_contrast_of_the_populations_means():
    """A, b and C by the formulas, row by row."""
    data = drawn(n=40)
    rows = label_rows(**data)
    planned = MinMaxUplift(center=False, **FIXED).collect_sums(data)
    plan, contrasts = planned.plan, np.array([[1.0, -0.25, -0.75], [0.0, 1.0, -1.0]])
    system = assemble(planned.sums, contrasts)
    phi, p = plan.values(rows.X), plan.size
    A, b, C = np.zeros((p, 2 * p)), np.zeros(2 * p), np.zeros((p, p))
    for j, contrast in enumerate(contrasts):
        at = slice(j * p, (j + 1) * p)
        for k, part in enumerate(contrast):
            o, t = rows.at("outcome", k), rows.at("treatment", k)
            wo, wt = (rows.weight[i] / rows.weight[i].sum() for i in (o, t))
            A[:, at] += part / 2.0 * (phi[t].T * wt * rows.label[t]) @ phi[t]
            b[at] += part / 2.0 * (wo * rows.label[o]) @ phi[o]
            if j == 0:
                C += (
                    abs(part)
                    / 4.0
                    * ((phi[t].T * wt) @ phi[t] + (phi[o].T * wo) @ phi[o])
                )
    assert_allclose(system.A, A, rtol=1e-12, atol=1e-13)
    assert_allclose(system.b, b, rtol=1e-12, atol=1e-13)
    assert_allclose(system.C, np.kron(np.eye(2), C), rtol=1e-12, atol=1e-13)


def test_a_population_given_twice_changes_nothing():
    """The copy has the policy of the first: half of it each, and the same sums."""
    two = drawn(problem(A=0.8, B=0.2))
    first = two["population"] == "A"
    three = {key: np.concatenate([v, v[first]]) for key, v in two.items()}
    three["population"][len(first) :] = "C"
    options = FIXED | {
        "center": False,
        "basis": "gaussian",
        "n_centers": 4,
        "width": 1.0,
    }
    # Of the same centres: those of the plan for two.
    plan = MinMaxUplift(**options).collect_sums(two).plan
    options["basis"] = plan.basis
    pair = MinMaxUplift(**options).fit(SeparateLabels(**two, stream=True))
    both = MinMaxUplift(**options).fit(SeparateLabels(**three, stream=True))
    assert_allclose(both.contrast_, [0.5, -1.0, 0.5], rtol=1e-6)
    assert_allclose(both.predict(NEW), pair.predict(NEW), rtol=1e-6, atol=1e-8)


DESIGNS = {
    "one like the first": {"A": 0.8, "B": 0.2, "C": 0.8},
    "one between": {"A": 0.8, "B": 0.2, "C": 0.5},
    "two alike": {"A": 0.5, "B": 0.52, "C": 0.8},
    # Two differ where the third is between them, and are alike where it differs: no fixed
    # contrast sees both halves as well as A and C alone do.
    "each its half": {
        "A": lambda X: np.where(X[:, 0] < 0, 0.9, 0.5),
        "B": lambda X: np.where(X[:, 0] < 0, 0.1, 0.5),
        "C": lambda X: np.where(X[:, 0] < 0, 0.5, 0.9),
    },
}


@pytest.mark.filterwarnings("ignore:.*can hardly be told")
@pytest.mark.parametrize("design", DESIGNS)
def test_no_population_is_better_left_out(design):
    """Squared errors over 12 draws, paired: at most three standard errors above, by chance."""
    source, gain = problem(**DESIGNS[design]), {name: [] for name in "ABC"}
    for seed in range(12):
        data = dict(source.draw(400, random_state=seed))
        three = error(
            MinMaxUplift(center=False, **FIXED).fit(SeparateLabels(**data, stream=True))
        )
        for name in "ABC":
            rest = SeparateLabels(**without(data, name), stream=True)
            left = MinMaxUplift(center=False, **FIXED).fit(rest)
            gain[name].append(error(left) - three)
    for name, each in gain.items():
        worst = -3.0 * np.std(each, ddof=1) / np.sqrt(len(each))
        assert np.mean(each) >= worst, name  # equal if the contrast leaves it out, too
    if design == "each its half":
        assert min(map(np.mean, gain.values())) > 0.0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), K=st.integers(3, 5))
def test_no_pair_tells_more_than_the_best_contrast(seed, K):
    """Policies that are constant, known almost exactly: information is what it says."""
    rng = np.random.default_rng(seed)
    share, size = rng.uniform(-0.9, 0.9, K), rng.integers(1, 20, K).astype(float)
    n = 10**9
    policy = PolicySums(
        np.full(K, n),
        np.full(K, float(n)),
        n * share[:, None],
        *[np.full((K, 1, 1), float(n))] * 2,
    )
    contrasts = best_contrasts(policy, size, 0)

    def information(a):
        return (share @ a) ** 2 / np.sum(a**2 / size)

    first = contrasts[0]
    assert_allclose(contrasts.sum(axis=1), 0.0, atol=1e-9)
    assert_allclose(np.abs(first).sum(), 2.0)
    best = (
        information(first) / 0.99 * (1.0 + 1e-6)
    )  # one that tells nothing is left out
    others = [np.eye(K)[i] - np.eye(K)[j] for i in range(K) for j in range(i)]
    for a in [*others, *(r - r.mean() for r in rng.standard_normal((5, K)))]:
        assert information(a) <= best


def test_two_groups_keep_the_contrast_of_all_populations():
    """The difference of the groups' means is the contrast of the populations' means."""
    rows = label_rows(**drawn(n=50, seed=1))
    contrast = contrasts_of(rows)[0]
    two, used = in_two_groups(rows, contrast)
    assert_array_equal(used, np.arange(len(rows.label)))
    for kind in ("outcome", "treatment"):
        at = [rows.at(kind, k) for k in range(3)]
        means = [np.average(rows.label[i], weights=rows.weight[i]) for i in at]
        groups = [
            np.average(two.label[i], weights=two.weight[i])
            for i in (two.at(kind, 0), two.at(kind, 1))
        ]
        assert_allclose(groups[0] - groups[1], contrast @ means)


def test_policies_that_do_not_differ_still_have_a_contrast():
    """Nothing is to be told; the fit says so, and does not divide by 0."""
    policy = PolicySums(
        np.full(3, 100),
        np.full(3, 100.0),
        np.zeros((3, 1)),
        *[np.full((3, 1, 1), 100.0)] * 2,
    )
    assert_allclose(best_contrasts(policy, np.ones(3), 0), [[1.0, -0.5, -0.5]])


def test_losses_bounds_and_shift_take_three_populations():
    for options in (
        {"loss": "huber"},
        {"bounds": (-2.0, 2.0)},
        {"shift": "classifier"},
    ):
        model = MinMaxUplift(
            n_centers=5, basis="gaussian", n_jobs=1, random_state=0, **options
        )
        model.fit(**drawn(n=250))
        assert model.contrast_.shape == (3,)
        assert np.isfinite(model.predict(NEW)).all()
        assert error(model) < 1.0  # of 0 it is 0.58; rows are few


@pytest.mark.filterwarnings("ignore:.*can hardly be told")
def test_many_rows_in_memory_are_settled_by_a_sample():
    data = dict(THREE.draw(17_000, random_state=0))
    model = MinMaxUplift(**FIXED).fit(**data)
    assert error(model) < 0.02
    assert model.search_ is None
    assert_allclose(model.contrast_, [1.0, -1.0, 0.0], atol=0.1)


def test_one_population_is_refused_and_a_missing_table_named():
    data = drawn(n=20)
    one = {key: values[data["population"] == "A"] for key, values in data.items()}
    with pytest.raises(LabelError, match=r"two populations .* the source has 1: 'A'"):
        MinMaxUplift().fit(SeparateLabels(**one, stream=True))
    lacking = (data["population"] == "C") & (~np.isnan(data["treatment"]))
    some = {key: values[~lacking] for key, values in data.items()}
    with pytest.raises(LabelError, match="population 'C' has no treatment rows"):
        MinMaxUplift().fit(SeparateLabels(**some, stream=True))


def test_rows_of_a_third_population_are_named_where_a_plan_is_for_two():
    plan = fourier_plan({"a": (0, 1), "b": (0, 1)}, ["A", "B"])
    with pytest.raises(
        LabelError, match=r"rows of population 'C'; the sums are for 'A' and 'B'"
    ):
        aggregate_rows(SeparateLabels(**drawn(n=20), stream=True), plan)
