"""Dask collections hand out the rows they hold, and say which partition is wrong."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from unjoined import TableSource
from unjoined.data import ArraySource, ChunkSource, DaskSource, in_memory, paper_problem
from unjoined.data.dask import as_dask_source, connected, is_dask
from unjoined.errors import InputError, MissingExtraError, TableError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

LABELS = {"outcome": "bought", "treatment": "mailed"}
DATA = {k: np.asarray(v) for k, v in dict(paper_problem().draw(50, random_state=0)).items()}
FIELDS = ("X", "label", "kind", "population", "weight")


@pytest.fixture(autouse=True)
def this_thread():
    """Threads add nothing to a hundred rows."""
    with dask.config.set(scheduler="synchronous"):
        yield


def tables():
    """Four pandas tables under (kind, population), with weights."""
    rng = np.random.default_rng(0)
    found = {}
    for i, (kind, name) in enumerate((k, p) for k in LABELS for p in ("N", "S")):
        n = 40 + 7 * i
        numbers = {"age": rng.normal(size=n), "days": rng.integers(0, 9, n)}
        labels = {LABELS[kind]: np.arange(n) % 2, "weight": rng.uniform(0.5, 2.0, n)}
        found[kind, name] = pd.DataFrame(numbers | labels)
    return found


def four(change=lambda frame: frame):
    found = tables()
    return [{name: change(found[kind, name]) for name in ("N", "S")} for kind in LABELS]


def cut(n):
    return lambda frame: dd.from_pandas(frame, npartitions=n)


def with_empty_partitions(frame):
    """As a filter leaves them: partitions without rows, unknown divisions."""
    lazy = dd.from_delayed([dask.delayed(frame[i:j]) for i, j in ((0, 9), (9, 9), (9, 99))])
    assert not lazy.known_divisions
    return lazy


def everything(source):
    chunks = list(source)
    return {name: np.concatenate([getattr(c, name) for c in chunks]) for name in FIELDS}


def assert_same_rows(found, expected):
    for name, values in everything(expected).items():
        assert_array_equal(everything(found)[name], values, err_msg=name)


@pytest.mark.parametrize("change", [cut(1), cut(5), with_empty_partitions])
@pytest.mark.parametrize("features", [None, ["days"]])
def test_tables_hand_out_the_rows_of_a_table_source(change, features):
    options = LABELS | {"sample_weight": "weight", "features": features}
    source = DaskSource.from_tables(*four(change), **options)
    expected = TableSource.from_tables(*four(), **options)
    assert isinstance(source, ChunkSource)
    assert source.feature_names == expected.feature_names
    assert_same_rows(source, expected)


def test_two_tables_with_a_population_column():
    found = tables()
    both = [
        pd.concat([found[kind, p].assign(region=p) for p in ("N", "S")], ignore_index=True)
        for kind in LABELS
    ]
    options = LABELS | {"population": "region", "sample_weight": "weight"}
    source = DaskSource.from_frames(*map(cut(3), both), **options)
    assert_same_rows(source, TableSource.from_frames(*both, **options))


@pytest.mark.parametrize("chunks", [(200, 2), (33, 1), ((0, 90, 0, 110), 2)])
def test_arrays_hand_out_the_rows_of_an_array_source(chunks):
    X = da.from_array(DATA["X"], chunks)
    y = da.from_array(DATA["y"], 70)  # cut in another way than X
    source = DaskSource.from_arrays(X, y, kind=DATA["kind"], population=DATA["population"])
    assert len(source.parts) == X.numblocks[0]
    assert source.feature_names is None
    assert_same_rows(source, ArraySource(**DATA))
    again = as_dask_source({**DATA, "X": X})
    assert_same_rows(again, ArraySource(**DATA))


def test_blocks_of_unknown_size_are_taken_in_order():
    """A boolean mask leaves arrays that do not know their sizes."""
    lazy = {name: da.from_array(values, chunks=60) for name, values in DATA.items() if name != "X"}
    lazy["X"] = da.from_array(DATA["X"], chunks=(60, 2))
    keep = lazy["y"] > 0.0
    masked = {name: values[keep] for name, values in lazy.items()}
    expected = {name: values[DATA["y"] > 0.0] for name, values in DATA.items()}
    assert_same_rows(DaskSource.from_arrays(**masked), ArraySource(**expected))
    frame = dd.from_dask_array(masked["y"], columns="y")  # a Series has no sizes either
    assert_same_rows(DaskSource.from_arrays(**(masked | {"y": frame})), ArraySource(**expected))
    with pytest.raises(InputError, match="the sizes of the blocks of X or kind are not known"):
        DaskSource.from_arrays(**(masked | {"kind": expected["kind"]}))
    with pytest.raises(InputError, match=r"as many blocks as X \(4\)"):
        DaskSource.from_arrays(**(masked | {"kind": da.concatenate([masked["kind"]] * 2)}))


def test_nothing_is_computed_before_a_fit_asks():
    def fails(block):
        raise AssertionError

    X = da.from_array(DATA["X"], 60).map_blocks(fails, dtype=float, meta=np.empty((0, 0)))
    source = DaskSource.from_arrays(**(DATA | {"X": X}))
    with pytest.raises(AssertionError):  # raised by the first block that is computed
        next(iter(source))


def partitions(*frames):
    return dd.from_delayed(
        [dask.delayed(frame) for frame in frames], meta=frames[0].iloc[:0], verify_meta=False
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f.drop(columns="age"),
            "partition 1 of the outcome table of population 'N'.*age",
        ),
        (lambda f: f.drop(columns="bought"), "partition 1 of .* has no column 'bought'"),
        (
            lambda f: f.assign(age="old"),
            "column 'age' of partition 1 of the outcome table of population 'N'",
        ),
        (lambda f: f.assign(bought="often"), "'bought' of partition 1 of the outcome .*'often'"),
        (lambda f: f.assign(age=np.nan), "row 0 of partition 1 of the outcome table"),
    ],
)
def test_a_partition_unlike_the_others_is_named(change, message):
    frame = tables()["outcome", "N"]
    table = partitions(frame, change(frame), frame)
    source = DaskSource.from_tables({"N": table}, {}, **LABELS)
    with pytest.raises(InputError, match=message):
        list(source)


def test_a_block_unlike_the_others_is_named():
    def narrow(block, block_info=None):
        first = block_info[0]["chunk-location"][0] == 0
        return block if first else block[:, :1]

    X = da.from_array(DATA["X"], (100, 2)).map_blocks(narrow, dtype=float)
    with pytest.raises(
        TableError, match="partition 1 of the arrays has 1 features, the array says 2"
    ):
        list(DaskSource.from_arrays(**(DATA | {"X": X})))
    kind = da.from_array(DATA["kind"], 100).map_blocks(lambda k: k[:7], dtype=DATA["kind"].dtype)
    X = da.from_array(DATA["X"], (100, 2))
    with pytest.raises(InputError, match="partition 0 of the arrays, rows 0 to 99: kind has 7"):
        list(DaskSource.from_arrays(**(DATA | {"X": X, "kind": kind})))


def test_what_is_no_collection_is_refused_before_anything_is_computed():
    frame = tables()["outcome", "N"]
    with pytest.raises(TableError, match="the outcome table of population 'N' must be a Dask Data"):
        DaskSource.from_tables({"N": frame}, {}, **LABELS)
    with pytest.raises(TableError, match="must be a Dask DataFrame, got Series"):
        DaskSource.from_tables({"N": cut(2)(frame)["age"]}, {}, **LABELS)
    with pytest.raises(TableError, match="the treatment table must be a Dask DataFrame, got Data"):
        DaskSource.from_frames(cut(2)(frame.assign(k="a")), frame, **LABELS, population="k")
    with pytest.raises(TableError, match="no table was given"):
        DaskSource.from_tables({}, {}, **LABELS)
    plain = cut(2)(frame.drop(columns="weight"))
    with pytest.raises(TableError, match="the outcome table of population 'N' has no column 'weig"):
        DaskSource.from_tables({"N": plain}, {}, **LABELS, sample_weight="weight")
    with pytest.raises(InputError, match="X must be a two-dimensional Dask array, got ndarray"):
        DaskSource.from_arrays(**DATA)
    X = da.from_array(DATA["X"], 60)
    with pytest.raises(InputError, match="X must be a two-dimensional Dask array, got Array"):
        DaskSource.from_arrays(**(DATA | {"X": X[:, 0]}))
    with pytest.raises(InputError, match=r"y has shape \(3,\) but X has 200 rows"):
        DaskSource.from_arrays(**(DATA | {"X": X, "y": [1, 0, 1]}))
    with pytest.raises(InputError, match="a single Dask DataFrame does not say which rows"):
        as_dask_source(cut(2)(frame))
    assert as_dask_source(frame) is None
    assert as_dask_source(DATA) is None


def test_without_dask_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    for make in (
        lambda: DaskSource.from_tables({}, {}, **LABELS),
        lambda: DaskSource.from_arrays(**DATA),
    ):
        with pytest.raises(MissingExtraError, match=r'pip install "unjoined\[dask\]"'):
            make()


def test_without_distributed_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingExtraError, match=r'pip install "unjoined\[dask\]"'),
        connected("tcp://127.0.0.1:1"),
    ):
        pass


def test_columns_come_into_memory_together():
    """What they have in common is computed once."""
    calls = []

    def count(block):
        calls.append(1)
        return block

    base = da.from_array(DATA["y"], 200).map_blocks(count, dtype=float, meta=np.empty(0))
    one, two, rest = in_memory(base + 1.0, base * 2.0, "as it is")
    assert_array_equal(one, DATA["y"] + 1.0)
    assert_array_equal(two, DATA["y"] * 2.0)
    assert rest == "as it is"
    assert len(calls) == 1
    assert is_dask(base)
    assert not is_dask(DATA["y"])
