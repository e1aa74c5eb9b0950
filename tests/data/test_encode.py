"""Tables of any columns become the same numbers, whatever library they come in."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder

from unjoined.data import TableEncoder
from unjoined.errors import ColumnWarning, InputError, TableError

FRAMES = pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
N = 60


def columns(n=N):
    rng = np.random.default_rng(0)
    day = dt.date(2024, 1, 1)
    return {
        "age": [float(v) for v in rng.integers(18, 90, n)],
        "member": [bool(v) for v in rng.integers(0, 2, n)],
        "region": [str(v) for v in rng.choice(["North", "South", "West"], n)],
        "joined": [day + dt.timedelta(days=int(v)) for v in rng.integers(0, 300, n)],
    }


def test_numbers_stay_dates_are_days_and_text_is_one_hot():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        given = columns()
        encoder = TableEncoder().fit(frame(given))
        matrix = encoder.transform(frame(given))
        names = encoder.get_feature_names_out().tolist()
        assert names[:2] == ["age", "member"]
        assert names[-1] == "joined"
        assert_array_equal(matrix[:, 0], given["age"])
        assert_array_equal(matrix[:, 1], np.array(given["member"], dtype=float))
        assert_array_equal(
            matrix[:, -1], [(v - dt.date(1970, 1, 1)).days for v in given["joined"]]
        )
        # The same as scikit-learn's, but for the most frequent category, which has no column.
        theirs = OneHotEncoder(sparse_output=False).fit(
            np.array(given["region"])[:, None]
        )
        wide = theirs.transform(np.array(given["region"])[:, None])
        often = int(np.argmax(wide.sum(axis=0)))
        assert_array_equal(matrix[:, 2:-1], np.delete(wide, often, axis=1))
        assert names[2:-1] == [
            f"region={v}" for v in np.delete(theirs.categories_[0], often)
        ]


def test_columns_are_found_by_name_and_others_left_out():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        given = columns()
        encoder = TableEncoder().fit(frame(given))
        turned = {name: given[name] for name in reversed(given)} | {"more": [0] * N}
        assert_array_equal(
            encoder.transform(frame(turned)), encoder.transform(frame(given))
        )
        del turned["region"]
        turned["Region "] = given["region"]
        with pytest.raises(
            TableError, match=r"lacks the column 'region' .* Did you mean 'Region '\?"
        ):
            encoder.transform(frame(turned))


def test_a_missing_number_is_the_mean_and_says_so_where_it_informs():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        rng = np.random.default_rng(1)
        numbers = rng.normal(40.0, 10.0, 100)
        often = [None if i % 4 == 0 else float(v) for i, v in enumerate(numbers)]
        once = [None if i == 0 else float(v) for i, v in enumerate(numbers)]
        encoder = TableEncoder().fit(frame({"often": often, "once": once}))
        assert encoder.get_feature_names_out().tolist() == [
            "often",
            "often missing",
            "once",
        ]
        matrix = encoder.transform(frame({"often": often, "once": once}))
        assert_allclose(
            matrix[::4, 0], np.mean(numbers[np.arange(100) % 4 > 0]), rtol=1e-8
        )
        assert_array_equal(matrix[:, 1], np.arange(100) % 4 == 0)
        assert_allclose(matrix[0, 2], np.mean(numbers[1:]), rtol=1e-8)
        assert_array_equal(matrix[1:, 2], numbers[1:])


def test_an_unseen_category_counts_as_average_and_is_reported_with_the_nearest():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        for categories in ("one-hot", "codes"):
            encoder = TableEncoder(categories).fit(frame(columns()))
            other = columns()
            other["region"][:3] = ["north ", "north ", "Mars"]
            message = r"'north ' \(did you mean 'North'\?\), 'Mars' in 3 of 60 rows of 'region'"
            with pytest.warns(ColumnWarning, match=message):
                matrix = encoder.transform(frame(other))
            at = [
                j
                for j, n in enumerate(encoder.get_feature_names_out())
                if n.startswith("region")
            ]
            if categories == "codes":
                assert_array_equal(matrix[:3, at[0]], [-1.0] * 3)
            else:  # a linear function of it is then the average over the rows of the fit
                seen = encoder.transform(frame(columns()))
                assert_allclose(matrix[:3][:, at], [seen[:, at].mean(axis=0)] * 3)


def test_rare_categories_share_a_place_and_missing_ones_have_one():
    cells = ["a"] * 500 + ["b"] * 400 + [f"rare {i}" for i in range(20)] + [None] * 80
    encoder = TableEncoder("codes").fit(pd.DataFrame({"k": cells}))
    codes = encoder.transform(pd.DataFrame({"k": cells}))[:, 0]
    assert_array_equal(np.unique(codes, return_counts=True)[1], [500, 400, 20, 80])
    wide = TableEncoder().fit(pd.DataFrame({"k": cells}))
    assert wide.get_feature_names_out().tolist() == ["k=b", "k=other", "k=missing"]


def test_numbers_written_as_text_are_numbers():
    cases = (
        pd.Series(["5", "6.5", "7"] * 20),
        pd.Series([5, 6.5, "7"] * 20, dtype=object),
        pd.Series([5, 6.5, 7.0] * 20),
    )
    for cells in cases:
        matrix = TableEncoder().fit_transform(pd.DataFrame({"a": cells}))
        assert_array_equal(matrix[:, 0], [5.0, 6.5, 7.0] * 20)


def test_a_category_of_numbers_stays_a_category_and_ids_with_zeros_too():
    frame = pd.DataFrame(
        {"a": pd.Categorical([1, 2, 3] * 20), "b": ["01", "02", "03"] * 20}
    )
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["a=2", "a=3", "b=02", "b=03"]


def test_stray_words_among_many_numbers_are_missing_values_and_named():
    cells = [str(i) for i in range(99)] + ["unknown"]
    with pytest.warns(
        ColumnWarning, match="numbers and, in 1 of 100 rows, words such as 'un"
    ):
        encoder = TableEncoder().fit(pd.DataFrame({"a": cells}))
    matrix = encoder.transform(pd.DataFrame({"a": cells}))
    assert_allclose(matrix[-1, 0], 49.0)
    assert_array_equal(matrix[:99, 0], np.arange(99))


def test_dates_written_as_text_are_those_of_the_type():
    days = columns()["joined"]
    text = TableEncoder().fit_transform(
        pd.DataFrame({"d": [v.isoformat() for v in days]})
    )
    typed = TableEncoder().fit_transform(pl.DataFrame({"d": days}))
    moments = TableEncoder().fit_transform(pd.DataFrame({"d": pd.to_datetime(days)}))
    zone = pd.to_datetime(days).tz_localize("UTC").tz_convert("Asia/Tokyo")
    assert_array_equal(text, typed)
    assert_array_equal(text, moments)
    assert_array_equal(text, TableEncoder().fit_transform(pd.DataFrame({"d": zone})))


def test_durations_and_times_of_day_are_days():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        spans = [dt.timedelta(hours=6 * i) for i in range(N)]
        assert_allclose(
            TableEncoder().fit_transform(frame({"s": spans}))[:, 0], 0.25 * np.arange(N)
        )
        times = [dt.time(hour=i % 24) for i in range(N)]
        encoded = TableEncoder().fit_transform(frame({"t": times}))
        assert_allclose(encoded[:, 0], (np.arange(N) % 24) / 24.0)


def test_spellings_that_differ_in_capitals_are_asked_about():
    with pytest.warns(
        ColumnWarning, match=r"the categories 'North', 'north', which differ in cap"
    ):
        TableEncoder().fit(pd.DataFrame({"r": ["North", "north"] * 20}))


def test_another_type_of_column_is_refused():
    encoder = TableEncoder().fit(pd.DataFrame(columns()))
    dates = columns() | {"age": columns()["joined"]}
    with pytest.raises(
        TableError, match=r"'age' holds times .* the model was fitted to numbers"
    ):
        encoder.transform(pd.DataFrame(dates))
    words = columns() | {"age": ["old"] * N}
    with pytest.raises(
        TableError, match=r"'age' holds words such as 'old', .* fitted to numbers"
    ):
        encoder.transform(pd.DataFrame(words))
    with pytest.raises(
        InputError, match="X must be a data frame with the columns 'age', 'member'"
    ):
        encoder.transform(np.zeros((3, 4)))
    with pytest.raises(InputError, match="must be a data frame, got list"):
        TableEncoder().fit([[1.0]])
    with pytest.raises(InputError, match="categories must be one of"):
        TableEncoder("ordinal").fit(pd.DataFrame(columns()))


def test_a_clone_is_not_fitted():
    copy = clone(TableEncoder("codes").fit(pd.DataFrame(columns())))
    assert copy.categories == "codes"
    assert not hasattr(copy, "columns_")
