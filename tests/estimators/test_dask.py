"""Fits, predictions and scores from Dask collections: those of rows in memory, wherever run."""

import os
import pickle
from contextlib import contextmanager
from functools import partial, reduce
from itertools import pairwise
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

import unjoined
from unjoined import MinMaxUplift, SeparateLabels, WeightedUplift
from unjoined.data import fold, paper_problem
from unjoined.data.dask import DaskSource
from unjoined.data.rows import number_rows, separate_labels
from unjoined.errors import InputError, LabelError, TableError
from unjoined.model import passes as dask_pass
from unjoined.model.census import take_census

pytestmark = pytest.mark.usefixtures("two_folds")

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")

PROBLEM = paper_problem(b=5.0)
NEW = PROBLEM.draw_joint(300, random_state=1)
QUICK = {"n_centers": 12, "width": "median", "n_jobs": 1, "random_state": 0}


def weighted_rows(seed, *, n=150, decimals=None):
    """Rows with weights of any size; some rows twice, five times, or with weight 0."""
    data = {
        k: np.asarray(v) for k, v in dict(PROBLEM.draw(n, random_state=seed)).items()
    }
    rng = np.random.default_rng(seed)
    if decimals is not None:
        data["X"] = np.round(data["X"], decimals)
    weight = (
        rng.uniform(0.2, 2.0, 4 * n)
        if decimals is None
        else 1.0 + rng.integers(0, 2, 4 * n) / 3.0
    )
    weight[rng.integers(0, 4 * n, 10)] = 0.0
    times = rng.choice([1, 1, 1, 2, 5], 4 * n)
    order = rng.permutation(times.sum())
    return {
        k: np.repeat(v, times, axis=0)[order]
        for k, v in (data | {"sample_weight": weight}).items()
    }


DATA = weighted_rows(0)
N = len(DATA["y"])


def arrays(data, edges=(0,)):
    """Dask arrays cut at ``edges``, which may coincide."""
    n = len(data["y"])
    sizes = tuple(int(size) for size in np.diff([0, *sorted(edges), n]))
    X = da.from_array(data["X"], (sizes, (1, 1)))
    rest = {name: values for name, values in data.items() if name != "X"}
    return SeparateLabels(X, **rest)


def frames(data, npartitions):
    """Two Dask DataFrames with a population column; as many empty partitions as full ones."""
    tables = []
    for kind, column in (("outcome", "y"), ("treatment", "treatment")):
        at = ~np.isnan(data[column])
        columns = {"a": data["X"][at, 0], "b": data["X"][at, 1], kind: data[column][at]}
        columns |= {
            "where": data["population"][at].astype(str),
            "w": data["sample_weight"][at],
        }
        table = pd.DataFrame(columns)
        cuts = np.linspace(0, len(table), npartitions + 1).astype(int).repeat(2)
        pairs = pairwise(cuts)
        tables.append(
            dd.from_delayed([dask.delayed(table.iloc[i:j]) for i, j in pairs])
        )
    names = {"outcome": "outcome", "treatment": "treatment", "population": "where"}
    return SeparateLabels.from_tables(*tables, **names, sample_weight="w")


def assert_sums_close(found, expected, rtol=1e-12):
    """To ``rtol`` of the largest entry of each sum."""

    def close(got, want):
        atol = rtol * np.abs(want).max()
        assert_allclose(got, want, rtol=0, atol=atol)

    assert_array_equal(found.sums.n_rows, expected.sums.n_rows)
    for name in ("weight", "label_cross", "label_basis", "gram", "weight_square"):
        close(getattr(found.sums, name), getattr(expected.sums, name))
    assert_array_equal(found.policy.n_rows, expected.policy.n_rows)
    for name in ("weight", "label", "gram", "square"):
        close(getattr(found.policy, name), getattr(expected.policy, name))


def assert_predictions_close(found, expected):
    values = expected.predict(NEW.X)
    if hasattr(found, "feature_names_in_"):
        new = pd.DataFrame(NEW.X, columns=found.feature_names_in_)
    else:
        new = NEW.X
    assert_allclose(
        found.predict(new), values, rtol=0, atol=1e-8 * np.abs(values).max()
    )


@pytest.fixture(autouse=True)
def this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def expected():
    return MinMaxUplift(**QUICK).fit(SeparateLabels(**DATA, stream=True))


@pytest.fixture(scope="module")
def client():
    """A cluster of two workers inside this process."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as opened,
    ):
        yield opened


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    edges=st.lists(st.integers(0, 320), max_size=9),
    sample_rows=st.sampled_from([40, 10_000]),
)
def test_sums_do_not_depend_on_partitions(seed, edges, sample_rows):
    """Weights, copies, rows that are not in the sample, and empty partitions included."""
    data = weighted_rows(seed, n=80, decimals=1 if seed % 2 else None)
    model = MinMaxUplift(**QUICK, center=bool(seed % 3))
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(scheduler="synchronous"),
    ):
        patch.setattr("unjoined.estimators.minmax.SAMPLE_ROWS", sample_rows)
        expected = model.collect_sums(data)
        found = model.collect_sums(arrays(data, edges))
    assert_sums_close(found, expected)


@pytest.mark.parametrize("npartitions", [1, 4])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_frames_give_the_same_fit(expected, npartitions, scheduler):
    with dask.config.set(scheduler=scheduler):
        found = MinMaxUplift(**QUICK).fit(frames(DATA, npartitions))
    assert found.feature_names_in_.tolist() == ["a", "b"]
    assert_predictions_close(found, expected)
    assert (found.ridge_f_, found.ridge_g_) == (expected.ridge_f_, expected.ridge_g_)


def test_a_few_rows_that_make_up_the_table_are_dealt_evenly():
    """0/1 features: every row repeats, so all sums come from counts."""
    rng = np.random.default_rng(0)
    n = 4000
    X = rng.integers(0, 2, (n, 2)) * 1.0
    kind = np.where(np.arange(n) % 2, "outcome", "treatment")
    data = {
        "X": X,
        **separate_labels(rng.integers(0, 2, n) * 1.0, kind),
        "population": rng.integers(0, 2, n),
    }
    model = MinMaxUplift(basis="linear", ridge_f=0.1, ridge_g=0.1)
    source = arrays(data, range(0, n, 500))
    assert_sums_close(model.collect_sums(source), model.collect_sums(data))


def test_a_single_copy_among_rows_that_do_not_repeat():
    """Cells without copies, and groups into which none falls."""
    plain = {
        k: np.asarray(v) for k, v in dict(PROBLEM.draw(80, random_state=0)).items()
    }
    data = {
        name: np.concatenate([values, values[:1]]) for name, values in plain.items()
    }
    model = MinMaxUplift(**QUICK, center=False)
    assert_sums_close(
        model.collect_sums(arrays(data, [1, 200])), model.collect_sums(data)
    )


def test_partitions_can_be_gone_through_here_as_well(expected):
    def partitions():
        for chunk in arrays(DATA, [100, 100, 700]).chunks():
            labels = separate_labels(chunk.label, chunk.kind)
            rest = {"population": chunk.population, "sample_weight": chunk.weight}
            yield {"X": chunk.X, **labels, **rest}

    found = MinMaxUplift(**QUICK).fit(SeparateLabels.from_chunks(partitions))
    assert_predictions_close(found, expected)


def test_a_mapping_of_dask_arrays_is_a_source(expected):
    lazy = DATA | {"X": da.from_array(DATA["X"], (400, 2))}
    assert_predictions_close(MinMaxUplift(**QUICK).fit(lazy), expected)


def test_what_is_shared_is_in_one_task_and_results_are_merged_by_eight():
    shared = np.random.default_rng(0).normal(
        size=100_000
    )  # 800 kB that do not compress
    parts = tuple(dask.delayed(partial(int, i), pure=False)() for i in range(100))
    tree = fold._tree(parts, lambda chunk, shared: chunk + shared.size, shared)
    assert tree.compute() == sum(range(100)) + 100 * 100_000
    tasks = dict(tree.__dask_graph__())
    assert (
        sum(len(cloudpickle.dumps(task)) for task in tasks.values()) < 2 * shared.nbytes
    )
    merges = [key for key in tasks if str(key).startswith("reduce-")]
    assert len(merges) == 13 + 2 + 1


def test_results_come_back_without_the_plan_and_plans_travel_without_the_sample():
    """So that traffic is O(p^2) per partition, whatever the size of the sample."""
    model = MinMaxUplift(**QUICK)
    census = take_census(
        SeparateLabels(**DATA, stream=True).chunks(), sample_rows=10_000
    )
    plan = model.collect_sums(DATA).plan
    shared = plan, census.without_samples()
    assert len(pickle.dumps(shared)) < len(pickle.dumps(plan)) + 5_000
    part = dask_pass._sum_chunk(next(number_rows(arrays(DATA).chunks())), shared, 1)
    p, q = plan.size, 2 * plan.n_features + 1
    numbers = part[0].n_rows.size * (2 * p * p + p) + 2 * (2 * q * q + q)
    assert len(pickle.dumps(part)) < 1.3 * 8 * numbers + 10_000


@contextmanager
def current(client):
    """Compute on a cluster what is computed meanwhile."""
    with dask.config.set(scheduler=None), client.as_current():
        yield


def test_the_workers_of_a_current_client_give_the_same_fit(client, expected):
    def transitions():
        return client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.transition_counter
        )

    for make in (lambda: arrays(DATA, [50, 50, 600]), lambda: frames(DATA, 2)):
        before = transitions()
        with current(client):
            found = MinMaxUplift(**QUICK).fit(make())
        assert_predictions_close(found, expected)
        assert transitions() > before
    with current(client):
        assert len(list(arrays(DATA, [50, 600]).chunks())) == 3


@pytest.mark.slow
def test_killed_workers_change_nothing(expected, tmp_path, monkeypatch):
    """A worker's process ends in the middle of each pass; what it had is computed again."""
    armed = tmp_path / "armed"

    def dies(block, path):
        try:
            os.unlink(path)  # of all processes exactly one succeeds
        except FileNotFoundError:
            return block
        os._exit(1)

    settle = MinMaxUplift._settle

    def arm_again(*arguments, **options):
        assert not armed.exists()
        armed.touch()
        return settle(*arguments, **options)

    monkeypatch.setattr(MinMaxUplift, "_settle", arm_again)
    X = da.from_array(DATA["X"], (100, 2)).map_blocks(
        dies, str(armed), dtype=float, meta=np.empty((0, 0))
    )
    armed.touch()
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=True, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        current(client),
    ):
        found = MinMaxUplift(**QUICK).fit(SeparateLabels(**DATA | {"X": X}))
    assert not armed.exists()
    assert_predictions_close(found, expected)


def test_a_cluster_without_workers_is_refused(limits):
    limits("data.dask", SECONDS=0.2)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as idle,
        current(idle),
        pytest.raises(InputError, match="has no workers, and none came within"),
    ):
        MinMaxUplift(**QUICK).fit(arrays(DATA))


def test_messages_of_partitions_come_back_from_the_workers(client):
    bad = DATA | {"X": np.where(np.arange(N)[:, None] == 150, np.nan, DATA["X"])}
    with (
        current(client),
        pytest.raises(TableError, match=r"row 50 of partition 1 of the arrays"),
    ):
        MinMaxUplift(**QUICK).fit(arrays(bad, [100, 200]))


def test_every_message_about_passes(tmp_path):
    model = MinMaxUplift(**QUICK)
    with pytest.raises(InputError, match="Leave checkpoint out"):
        model.fit(arrays(DATA), checkpoint=tmp_path / "pass.sums")
    empty = {name: values[:0] for name, values in DATA.items()}
    with pytest.raises(TableError, match="the source has no rows"):
        model.fit(arrays(empty))
    first = DATA["population"] == DATA["population"][0]
    with pytest.raises(LabelError, match="two populations"):
        model.fit(arrays({name: values[first] for name, values in DATA.items()}))
    codes = np.where(
        np.arange(N) > 600, 2.0 * DATA["treatment"] - 1.0, DATA["treatment"]
    )
    with pytest.raises(
        LabelError, match=r"partition 1 of .* on: treatment labels must be coded"
    ):
        model.fit(arrays(DATA | {"treatment": codes}, [601]))
    wide, narrow = (
        dask_pass.census_of_rows(
            next(number_rows(SeparateLabels(**DATA | {"X": X}, stream=True).chunks())),
            (9, 0),
        )
        for X in (DATA["X"], DATA["X"][:, :1])
    )
    with pytest.raises(
        TableError, match=r"from row 0 on has 1 features, the rows before it have"
    ):
        wide + narrow


def test_rows_that_change_between_the_passes_are_refused(limits):
    limits("estimators.minmax", SAMPLE_ROWS=100)
    census = take_census(SeparateLabels(**DATA, stream=True).chunks(), sample_rows=100)
    plan = MinMaxUplift(**QUICK).collect_sums(DATA).plan
    for change in (slice(N // 2), slice(None, None, -1)):
        other = arrays(
            {name: values[change] for name, values in DATA.items()}
        ).source.numbered()
        with pytest.raises(
            TableError, match="gave other rows, or the same in another order"
        ):
            dask_pass.sum_source(other, plan, census)
    with pytest.raises(TableError, match="had rows before and has none now"):
        dask_pass.sum_source(DaskSource((), None), plan, census)


def test_partitions_number_their_rows_as_a_source_does():
    (whole,) = number_rows(SeparateLabels(**DATA, stream=True).chunks())
    source = arrays(DATA, [7, 300, 300, 900]).source.numbered()
    found = np.concatenate([rows.number for rows in source])
    assert (found < 0).any()  # rows of weight 0
    assert_array_equal(found, whole.number)


def test_censuses_add_up_to_the_census_of_all_rows_in_any_order():
    """Whatever the order: the same sample, counts and values."""
    numbered = arrays(DATA, [7, 300, 300, 900]).source.numbered()
    counted = (rows.take(rows.number >= 0) for rows in numbered)
    parts = [dask_pass.census_of_rows(rows, (60, 0)) for rows in counted]
    whole = take_census(SeparateLabels(**DATA, stream=True).chunks(), sample_rows=60)
    for order in (range(5), (4, 2, 0, 3, 1)):
        merged = reduce(add, [parts[i] for i in order])
        assert (merged.names, merged.n_rows) == (whole.names, whole.n_rows)
        assert_array_equal(merged.outcomes, whole.outcomes)
        assert_array_equal(merged.codes, whole.codes)
        for cell, sketch in whole.cells.items():
            for name in ("key", "number", "X", "label", "weight"):
                assert_array_equal(
                    getattr(merged.cells[cell], name), getattr(sketch, name)
                )
            assert_allclose(
                merged.cells[cell].total_weight, sketch.total_weight, rtol=1e-14
            )


@pytest.mark.parametrize(
    "model", [MinMaxUplift(**QUICK), WeightedUplift(random_state=0)]
)
def test_predictions_are_lazy_and_those_of_rows_in_memory(model):
    frame = pd.DataFrame(DATA["X"], columns=["a", "b"])
    with pytest.raises(NotFittedError):
        model.predict(dd.from_pandas(frame, npartitions=2))
    model.fit(**(DATA | {"X": frame}))
    new = pd.DataFrame(NEW.X, columns=["a", "b"], index=np.arange(300) * 2)
    lazy = model.predict(dd.from_pandas(new, npartitions=3))
    assert isinstance(lazy, dd.Series)
    wanted = pd.Series(model.predict(new), index=new.index, name="uplift")
    pd.testing.assert_series_equal(
        lazy.compute(), wanted, check_exact=False, rtol=1e-12
    )
    some = model.predict(
        dd.from_pandas(new, npartitions=3).loc[:10]
    )  # the rest is empty
    pd.testing.assert_series_equal(
        some.compute(), wanted[:6], check_exact=False, rtol=1e-12
    )
    model.fit(**DATA)
    lazy = model.predict(da.from_array(NEW.X, ((0, 100, 200), (1, 1))))
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == ((300,), np.float64)
    assert_allclose(lazy.compute(), model.predict(NEW.X), rtol=1e-12, atol=1e-14)
    assert_array_equal(
        model.predict(da.from_array(NEW.X[:0], (1, 2))).compute(), np.empty(0)
    )


JOINT = {
    "auuc": lambda m, score, values: m.auuc(score, values),
    "qini": lambda m, score, values: m.qini(score, values, normalize=True),
    "rank_score": lambda m, score, values: m.rank_score(score, values),
    "uplift_at_k": lambda m, score, values: m.uplift_at_k(score, values, 0.3),
    "expected_gain": lambda m, score, values: m.expected_gain(
        values, score > 0.0, cost=0.1
    ),
    "average_uplift": lambda m, score, values: m.average_uplift(values, score > 0.0),
}


def test_metrics_take_dask_columns():
    for name in JOINT:
        rng = np.random.default_rng(0)
        score, values = rng.normal(size=90), rng.normal(size=90)
        found = JOINT[name](
            unjoined.targeting if name == "expected_gain" else unjoined.evaluate,
            da.from_array(score, 40),
            da.from_array(values, 40),
        )
        assert found == JOINT[name](
            unjoined.targeting if name == "expected_gain" else unjoined.evaluate,
            score,
            values,
        )
        frame = dd.from_pandas(pd.DataFrame({"s": score, "v": values}), npartitions=3)
        assert (
            JOINT[name](
                unjoined.targeting if name == "expected_gain" else unjoined.evaluate,
                frame["s"],
                frame["v"],
            )
            == found
        )


def test_scores_without_joint_labels_take_dask_columns(expected):
    lazy = {name: da.from_array(values, 300) for name, values in DATA.items()}
    held = expected.predict(DATA["X"])
    models = {"policy_model": LogisticRegression(), "outcome_model": Ridge()}
    for score in (unjoined.evaluate.weighted_risk, unjoined.evaluate.outcome_risk):
        found = score(expected.predict(lazy["X"]), **lazy, **models)
        assert found == pytest.approx(score(held, **DATA, **models))
    assert expected.score(**lazy) == pytest.approx(
        -unjoined.evaluate.weighted_risk(held, **DATA)
    )
