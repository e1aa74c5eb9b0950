"""Whatever populations are called: numbers, dates, long words, and names that read alike."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from unjoined import (
    MinMaxUplift,
    SeparateLabels,
    TableSource,
    identification_strength,
    load_model,
    save_model,
)
from unjoined.data import ArraySource, CellKFold, unjoin
from unjoined.errors import LabelError, TableError

DAYS = ["2020-01-01", "2020-02-01"]
TIMES = [day + " 00:00:00" for day in DAYS]


def column(names):
    """Both names as a column of objects, of a data that has four cells."""
    objects = np.empty(len(names), dtype=object)
    objects[:] = names
    return objects[np.resize([0, 1], 160)]


def rows(names):
    rng = np.random.default_rng(0)
    kind = np.repeat(["outcome", "treatment"], 80)
    first = np.resize([True, False], 160)
    treated = rng.random(160) < np.where(first, 0.9, 0.1)
    y = np.where(kind == "outcome", rng.standard_normal(160), treated)
    return {"X": rng.standard_normal((160, 1)), "y": y, "kind": kind, "population": names}


NAMES = {
    "integers": (column([2, 7]), [2, 7]),
    "floats": (column([0.5, 1.5]), [0.5, 1.5]),
    "booleans": (column([True, False]), [False, True]),
    "numpy numbers": (column([np.int64(2), np.int64(7)]).tolist(), [2, 7]),
    "numpy floats": (column([np.float64(2), np.float64(7)]).tolist(), [2.0, 7.0]),
    "dates": (column([dt.date(2020, 1, 1), dt.date(2020, 2, 1)]), DAYS),
    "numpy days": (column([np.datetime64(day) for day in DAYS]), DAYS),
    "an array of days": (column(DAYS).astype("datetime64[D]"), DAYS),
    "an array of nanoseconds": (column(DAYS).astype("datetime64[ns]"), TIMES),
    "an array of microseconds": (column(DAYS).astype("datetime64[us]"), TIMES),
    "a pandas column": (pd.Series(pd.to_datetime(column(DAYS))), TIMES),
    "timestamps": (column([pd.Timestamp(day) for day in DAYS]), TIMES),
    "long words": (column(["x" * 3000 + "a", "x" * 3000 + "b"]), ["x" * 3000 + c for c in "ab"]),
    "words and numbers": (column([1, "b"]), ["1", "b"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_populations_may_have_any_names(case, tmp_path):
    names, expected = NAMES[case]
    data = SeparateLabels(**rows(names))
    assert data.populations == expected
    assert identification_strength(**rows(names)).populations == tuple(expected)
    assert [len(test) for _, test in CellKFold(4).split(**rows(names))] == [40] * 4
    for name in expected:
        assert len(data.rows("outcome", name)) == 40
    for name in (names[0], np.asarray(names)[1]):
        assert len(data.rows("treatment", name)) == 40
    model = MinMaxUplift(random_state=0).fit(**rows(names))
    assert model.populations_ == expected
    assert load_model(save_model(model, tmp_path / "m.skops")).populations_ == expected
    in_chunks = MinMaxUplift(random_state=0).fit_chunks(ArraySource(**rows(names)))
    assert in_chunks.populations_ == expected


AMBIGUOUS = r"1 \(int.*\) and '1' \(str.*\) look like the same one"


@pytest.mark.parametrize(
    "pair", [(1, "1"), (1.5, "1.5"), (True, "True"), (dt.date(2020, 1, 1), DAYS[0])]
)
def test_names_that_read_alike_are_not_taken_for_one_population(pair):
    names = column([*pair, "b"])
    with pytest.raises(LabelError, match="look like the same one"):
        SeparateLabels(**rows(names))
    with pytest.raises(LabelError, match="look like the same one"):
        identification_strength(**rows(names))


def tables(names):
    outcomes = {name: pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}) for name in names}
    treatments = {name: pd.DataFrame({"a": [1.0, 2.0], "t": [0, 1]}) for name in names}
    return (outcomes, treatments), {"outcome": "y", "treatment": "t"}


def test_tables_of_names_that_read_alike_are_not_put_together():
    given, labels = tables([1, "1", "b"])
    with pytest.raises(LabelError, match=AMBIGUOUS):
        SeparateLabels.from_tables(*given, **labels)
    with pytest.raises(LabelError, match=AMBIGUOUS):
        TableSource.from_tables(*given, **labels)
    with pytest.raises(LabelError, match=AMBIGUOUS):
        unjoin(np.ones((8, 1)), [0, 1] * 4, [0, 1] * 4, policies={1: 0.5, "1": 0.4, "b": 0.6})


def test_no_rows_are_lost_where_a_column_has_names_that_read_alike():
    names = column([1, "1", "b"])[:8]
    outcomes = pd.DataFrame({"a": 1.0, "y": [0, 1] * 4, "p": names})
    treatments = pd.DataFrame({"a": 1.0, "t": [0, 1] * 4, "p": names})
    with pytest.raises(LabelError, match=AMBIGUOUS):
        SeparateLabels.from_frames(outcomes, treatments, outcome="y", treatment="t", population="p")


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_table_needs_a_name_for_its_population(missing):
    given, labels = tables(["a", missing])
    with pytest.raises(LabelError, match="a population is missing its name"):
        SeparateLabels.from_tables(*given, **labels)
    with pytest.raises(LabelError, match="a population is missing its name"):
        TableSource.from_tables(*given, **labels)
    with pytest.raises(LabelError, match="a population is missing its name"):
        unjoin(np.ones((8, 1)), [0, 1] * 4, [0, 1] * 4, policies={"a": 0.5, missing: 0.4})


@pytest.mark.parametrize("names", [[(1, 2), (1, 3)], [(1,), (1, 3)], [[1], [2]], [{1}, {2}]])
def test_names_that_are_no_single_values_are_refused(names):
    with pytest.raises(LabelError, match="population must hold text, numbers or dates"):
        SeparateLabels(**rows(column(names)))


def test_a_column_of_lists_does_not_name_populations():
    pl, names = pytest.importorskip("polars"), [[1, 2], [1]]
    outcomes = pl.DataFrame({"a": [1.0, 2.0], "y": [0, 1], "p": names})
    treatments = pl.DataFrame({"a": [1.0, 2.0], "t": [0, 1], "p": names})
    with pytest.raises(TableError, match=r"column 'p' of the outcome table holds list"):
        SeparateLabels.from_frames(outcomes, treatments, outcome="y", treatment="t", population="p")


def test_rows_of_an_unknown_population_are_not_just_none():
    data = SeparateLabels(**rows(column(["a", "b"])))
    with pytest.raises(LabelError, match=r"no population 'c'; there are 'a', 'b'"):
        data.rows("outcome", "c")


def test_rows_are_found_by_the_name_a_table_was_given():
    given, labels = tables([1, 2])
    data = SeparateLabels.from_tables(*given, **labels)
    assert data.rows("outcome", 1).tolist() == data.rows("outcome", "1").tolist() == [0, 1]


def test_long_names_are_shortened_in_messages():
    three = np.resize(["x" * 3000 + letter for letter in "abc"], 160)
    with pytest.raises(LabelError, match="there is no population") as caught:
        SeparateLabels(**rows(three)).rows("outcome", "d")
    assert len(str(caught.value)) < 600


def test_a_file_without_a_population_says_so():
    given, labels = tables([])
    with pytest.raises(TableError, match="no table was given"):
        SeparateLabels.from_tables(*given, **labels)
