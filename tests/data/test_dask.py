"""Dask collections hand out the rows they hold, and say which partition is wrong."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from unjoined import SeparateLabels
from unjoined.data import paper_problem
from unjoined.data.dask import in_memory, is_dask
from unjoined.errors import InputError, MissingExtraError, TableError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

LABELS = {"outcome": "bought", "treatment": "mailed"}
DATA = {
    k: np.asarray(v) for k, v in dict(paper_problem().draw(50, random_state=0)).items()
}
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
    lazy = dd.from_delayed(
        [dask.delayed(frame[i:j]) for i, j in ((0, 9), (9, 9), (9, 99))]
    )
    assert not lazy.known_divisions
    return lazy


def everything(data):
    chunks = list(data.chunks())
    return {name: np.concatenate([getattr(c, name) for c in chunks]) for name in FIELDS}


def assert_same_rows(found, expected):
    for name, values in everything(expected).items():
        assert_array_equal(everything(found)[name], values, err_msg=name)


@pytest.mark.parametrize("change", [cut(1), cut(5), with_empty_partitions])
@pytest.mark.parametrize("features", [None, ["days"]])
def test_tables_hand_out_the_rows_of_a_table_source(change, features):
    options = LABELS | {"sample_weight": "weight", "features": features}
    source = SeparateLabels.from_tables(*four(change), **options)
    expected = SeparateLabels.from_tables(*four(), **options, stream=True)
    assert repr(source) == "SeparateLabels, streamed from Dask"
    assert source.feature_names == expected.feature_names
    assert_same_rows(source, expected)


def test_two_tables_with_a_population_column():
    found = tables()
    both = [
        pd.concat(
            [found[kind, p].assign(region=p) for p in ("N", "S")], ignore_index=True
        )
        for kind in LABELS
    ]
    options = LABELS | {"population": "region", "sample_weight": "weight"}
    source = SeparateLabels.from_tables(*map(cut(3), both), **options)
    assert_same_rows(source, SeparateLabels.from_tables(*both, **options, stream=True))


def test_arrays_hand_out_the_rows_of_an_array_source():
    for chunks in ((200, 2), (33, 1), ((0, 90, 0, 110), 2)):
        X = da.from_array(DATA["X"], chunks)
        y = da.from_array(DATA["y"], 70)  # cut in another way than X
        source = SeparateLabels(**DATA | {"X": X, "y": y})
        assert source.is_streamed
        assert len(list(source.chunks())) == X.numblocks[0]
        assert source.feature_names is None
        assert_same_rows(source, SeparateLabels(**DATA, stream=True))


def test_blocks_of_unknown_size_are_taken_in_order():
    """A boolean mask leaves arrays that do not know their sizes."""
    lazy = {
        name: da.from_array(values, chunks=60)
        for name, values in DATA.items()
        if name != "X"
    }
    lazy["X"] = da.from_array(DATA["X"], chunks=(60, 2))
    keep = lazy["X"][:, 0] > 0.0
    masked = {name: values[keep] for name, values in lazy.items()}
    expected = {name: values[DATA["X"][:, 0] > 0.0] for name, values in DATA.items()}
    assert_same_rows(SeparateLabels(**masked), SeparateLabels(**expected, stream=True))
    frame = dd.from_dask_array(masked["y"], columns="y")  # a Series has no sizes either
    assert_same_rows(
        SeparateLabels(**masked | {"y": frame}), SeparateLabels(**expected, stream=True)
    )
    with pytest.raises(
        InputError, match="the sizes of the blocks of X or treatment are not known"
    ):
        SeparateLabels(**masked | {"treatment": expected["treatment"]})
    with pytest.raises(InputError, match=r"as many blocks as X \(4\)"):
        SeparateLabels(
            **masked | {"treatment": da.concatenate([masked["treatment"]] * 2)}
        )


def test_nothing_is_computed_before_a_fit_asks():
    def fails(block):
        raise AssertionError

    X = da.from_array(DATA["X"], 60).map_blocks(
        fails, dtype=float, meta=np.empty((0, 0))
    )
    source = SeparateLabels(**DATA | {"X": X})
    with pytest.raises(AssertionError):  # raised by the first block that is computed
        next(iter(source.chunks()))


def partitions(*frames):
    return dd.from_delayed(
        [dask.delayed(frame) for frame in frames],
        meta=frames[0].iloc[:0],
        verify_meta=False,
    )


def test_a_partition_unlike_the_others_is_named():
    cases = (
        (
            lambda f: f.drop(columns="age"),
            "partition 1 of the outcome table of population 'N'.*age",
        ),
        (
            lambda f: f.drop(columns="bought"),
            "partition 1 of .* has no column 'bought'",
        ),
        (
            lambda f: f.assign(age="old"),
            "column 'age' of partition 1 of the outcome table of population 'N'",
        ),
        (
            lambda f: f.assign(bought="often"),
            "'bought' of partition 1 of the outcome .*'often'",
        ),
        (lambda f: f.assign(age=np.nan), "row 0 of partition 1 of the outcome table"),
    )
    for change, message in cases:
        frame = tables()["outcome", "N"]
        table = partitions(frame, change(frame), frame)
        source = SeparateLabels.from_tables({"N": table}, {}, **LABELS)
        with pytest.raises(InputError, match=message):
            list(source.chunks())


def test_a_block_unlike_the_others_is_named():
    def narrow(block, block_info=None):
        first = block_info[0]["chunk-location"][0] == 0
        return block if first else block[:, :1]

    X = da.from_array(DATA["X"], (100, 2)).map_blocks(narrow, dtype=float)
    with pytest.raises(
        TableError, match="partition 1 of the arrays has 1 features, the array says 2"
    ):
        list(SeparateLabels(**DATA | {"X": X}).chunks())
    y = da.from_array(DATA["y"], 100).map_blocks(lambda column: column[:7], dtype=float)
    X = da.from_array(DATA["X"], (100, 2))
    with pytest.raises(
        InputError, match="partition 0 of the arrays, rows 0 to 99: y has 7"
    ):
        list(SeparateLabels(**DATA | {"X": X, "y": y}).chunks())


def test_what_is_no_collection_is_refused_before_anything_is_computed():
    frame = tables()["outcome", "N"]
    lazy = cut(2)(frame)
    with pytest.raises(
        TableError, match=r"population 'S' must be a Dask DataFrame as .* got DataF"
    ):
        SeparateLabels.from_tables({"N": lazy, "S": frame}, {}, **LABELS)
    with pytest.raises(
        TableError, match="must be a Dask DataFrame as other tables are, got Series"
    ):
        SeparateLabels.from_tables({"N": lazy["age"]}, {}, **LABELS)
    with pytest.raises(
        TableError, match=r"the treatment table must be a Dask DataFrame as .*got Da"
    ):
        SeparateLabels.from_tables(
            cut(2)(frame.assign(k="a")), frame, **LABELS, population="k"
        )
    plain = cut(2)(frame.drop(columns="weight"))
    with pytest.raises(
        TableError, match="the outcome table of population 'N' has no column 'weig"
    ):
        SeparateLabels.from_tables({"N": plain}, {}, **LABELS, sample_weight="weight")
    X = da.from_array(DATA["X"], 60)
    with pytest.raises(
        InputError, match="X must be a two-dimensional Dask array, got Array"
    ):
        SeparateLabels(**DATA | {"X": X[:, 0]})
    with pytest.raises(
        InputError, match=r"got DataFrame.* go to SeparateLabels.from_tables"
    ):
        SeparateLabels(**DATA | {"X": lazy})
    with pytest.raises(InputError, match=r"y has shape \(3,\) but X has 200 rows"):
        SeparateLabels(**DATA | {"X": X, "y": [1, 0, 1]})
    with pytest.raises(
        InputError, match="target was given with tables that are streamed"
    ):
        SeparateLabels.from_tables({"N": lazy}, {}, **LABELS, target=frame)


def test_frames_of_dask_are_read_into_memory_if_that_is_asked_for():
    data = SeparateLabels.from_tables(*four(cut(2)), **LABELS, stream=False)
    assert not data.is_streamed
    expected = SeparateLabels.from_tables(*four(), **LABELS)
    for name in expected:
        assert_array_equal(data[name], expected[name])


def test_without_dask_the_message_says_how_to_get_it(monkeypatch):
    X = da.from_array(DATA["X"], 60)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingExtraError, match=r'pip install "unjoined\[dask\]"'):
        list(SeparateLabels(**DATA | {"X": X}).chunks())


def test_columns_come_into_memory_together():
    """What they have in common is computed once."""
    calls = []

    def count(block):
        calls.append(1)
        return block

    base = da.from_array(DATA["y"], 200).map_blocks(
        count, dtype=float, meta=np.empty(0)
    )
    one, two, rest = in_memory(base + 1.0, base * 2.0, "as it is")
    assert_array_equal(one, DATA["y"] + 1.0)
    assert_array_equal(two, DATA["y"] * 2.0)
    assert rest == "as it is"
    assert len(calls) == 1
    assert is_dask(base)
    assert not is_dask(DATA["y"])
