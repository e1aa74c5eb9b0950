"""Every check on user input: what passes comes back clean, what does not is named."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined._validation import (
    check_cells,
    check_columns,
    check_count,
    check_finite_features,
    check_labels,
    check_length,
    check_not_negative,
    check_numeric_columns,
    check_option,
    check_outcome,
    check_population,
    check_positive,
    check_treatment,
    check_weight,
)
from unjoined.errors import InputError, LabelError, TableError

FRAMES = pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"]
)
QUICK = settings(max_examples=60, deadline=None)
OUTCOME, TREATMENT, TARGET = np.arange(3, dtype=np.uint8)  # codes of kinds
KIND = np.array([OUTCOME, OUTCOME, TREATMENT, TREATMENT])
NAN = np.nan
CODES = st.lists(st.booleans(), min_size=1, max_size=20)
# Two outcomes far enough apart to be different numbers after rounding, in any units.
UNITS = st.floats(-1e6, 1e6, allow_nan=False)


# --- lengths and populations ----------------------------------------------------------------


def test_a_wrong_length_names_the_argument_and_both_numbers():
    with pytest.raises(InputError, match=r"y has 3 entries but X has 4 rows"):
        check_length("y", [1, 2, 3], 4)


def test_populations_must_be_one_dimensional_and_one_per_row():
    with pytest.raises(
        InputError, match=r"population must be one-dimensional, got shape \(1, 2\)"
    ):
        check_population([["a", "b"]], KIND[:2])
    with pytest.raises(InputError, match="population has 1 entries but X has 2 rows"):
        check_population(["a"], KIND[:2])


def test_a_missing_population_is_counted_and_its_row_named():
    cases = (
        ["a", "b", None],
        ["a", "b", np.nan],
        [1.0, 2.0, np.nan],
        pd.Series(["a", "b", None]),
        pd.Series(["a", "b", pd.NA], dtype="string"),
        pd.Series(["a", "b", pd.NA], dtype="category"),
        pd.array([1, 2, None], dtype="Int64"),
        pl.Series(["a", "b", None]),
        pl.Series([1, 2, None]),
        pa.array(["a", "b", None]),
        np.array(["2020-01-01", "2021-01-01", "NaT"], dtype="datetime64[D]"),
    )
    for population in cases:
        with pytest.raises(
            LabelError, match=r"missing in 1 of 3 rows \(first at row 2\)"
        ):
            check_population(population, KIND[:3])
        clean = check_population(population, np.array([OUTCOME, TREATMENT, TARGET]))
        assert len(set(clean[:2].tolist())) == 2


def test_a_population_without_a_label_is_refused_with_its_name():
    with pytest.raises(
        LabelError,
        match=r"1 of 3 rows have a population but neither .* \(first at row 2: c\)",
    ):
        check_population(["a", "b", "c"], np.array([OUTCOME, TREATMENT, TARGET]))


def test_whole_numbers_beside_nan_stay_whole():
    clean = check_population(
        np.array([1.0, 2.0, NAN]), np.array([OUTCOME, TREATMENT, TARGET])
    )
    assert clean[:2].tolist() == [1, 2]
    assert clean.dtype.kind == "i"


def test_populations_may_have_names_of_any_plain_type():
    for population in (
        ["a", "b"],
        [1, 2],
        [True, False],
        [0.5, 1.5],
        np.array(["a", "b"], object),
    ):
        assert check_population(population, KIND[:2]).tolist() == list(population)


# --- cells ----------------------------------------------------------------------------------


def test_cells_are_numbered_in_the_order_of_sorted_names_and_target_rows_belong_to_none():
    kind = np.array([*KIND, TARGET])
    names, index = check_cells(kind, np.array(["b", "a", "b", "a", ""]), np.ones(5))
    assert names == ["a", "b"]
    assert index.tolist() == [1, 0, 1, 0, -1]


def test_one_population_is_not_enough():
    with pytest.raises(
        LabelError,
        match=r"found 1: 'a' in n_samples=4 rows\. Uplift cannot be identified",
    ):
        check_cells(KIND, np.array(["a"] * 4), np.ones(4))


def test_rows_without_any_label_have_no_population():
    with pytest.raises(LabelError, match="found 0 in n_samples=2 rows"):
        check_cells(np.array([TARGET] * 2), np.array(["", ""]), np.ones(2))


@pytest.mark.parametrize(
    ("population", "message"),
    [
        (["a", "a", "a", "b"], "population 'b' has no outcome rows"),
        (["a", "b", "b", "b"], "population 'a' has no treatment rows"),
    ],
)
def test_an_empty_cell_is_named(population, message):
    with pytest.raises(LabelError, match=message):
        check_cells(KIND, np.array(population), np.ones(4))


def test_a_cell_whose_rows_all_weigh_nothing_counts_as_empty():
    population = np.array(["a", "b", "a", "b"])
    with pytest.raises(
        LabelError, match="population 'b' has no weight above 0 in its outcome"
    ):
        check_cells(KIND, population, np.array([1.0, 0.0, 1.0, 1.0]))


def test_a_third_population_that_weighs_nothing_does_not_count():
    kind, population = np.array([*KIND, OUTCOME]), np.array(["a", "b", "a", "b", "c"])
    names, index = check_cells(kind, population, np.array([1.0, 1.0, 1.0, 1.0, 0.0]))
    assert names == ["a", "b"]
    assert index.tolist() == [0, 1, 0, 1, -1]


# --- labels ---------------------------------------------------------------------------------


def test_labels_come_back_in_one_column_with_the_kind_of_each_row():
    label, code, joint = check_labels([3.0, NAN, NAN], [NAN, 1.0, NAN], 3)
    assert_array_equal(label, [3.0, 1.0, NAN])
    assert_array_equal(code, [OUTCOME, TREATMENT, TARGET])
    assert joint is None


def test_a_column_of_labels_may_be_left_out():
    assert_array_equal(check_labels([3.0, NAN], None, 2)[1], [OUTCOME, TARGET])
    assert_array_equal(check_labels(None, [NAN, 1.0], 2)[1], [TARGET, TREATMENT])


def test_an_infinite_label_names_its_column_and_row():
    for bad in (np.inf, -np.inf):
        for name, row in (("y", 1), ("treatment", 3)):
            columns = {"y": [3.0, 4.0, NAN, NAN], "treatment": [NAN, NAN, 0.0, 1.0]}
            columns[name][row] = bad
            with pytest.raises(
                LabelError,
                match=rf"{name} is infinite in 1 of 4 .*\(first at row {row}\)",
            ):
                check_labels(**columns, n=4)


def test_a_row_with_both_labels_is_one_of_outcomes_that_knows_its_treatment():
    label, code, joint = check_labels([3.0, 4.0, NAN], [NAN, 0.0, 1.0], 3)
    assert_array_equal(label, [3.0, 4.0, 1.0])
    assert_array_equal(code, [OUTCOME, OUTCOME, TREATMENT])
    assert_array_equal(joint, [NAN, 0.0, NAN])


def test_missing_labels_may_be_written_in_any_way():
    cases = (
        [1, 0, None],
        [1, 0, NAN],
        ["yes", "no", None],
        ["yes", "no", NAN],
        np.array([1, 0, None], dtype=object),
        pd.array([1, 0, None], dtype="Int64"),
        pd.array([True, False, None], dtype="boolean"),
        pd.Series(["yes", "no", pd.NA], dtype="string"),
        pl.Series([1, 0, None]),
    )
    for column in cases:
        for name in ("y", "treatment"):
            labels = {"y": None, "treatment": None, name: column}
            label = check_labels(**labels, n=3)[0]
            assert label.dtype == np.float64
            assert_array_equal(label, [1.0, 0.0, NAN])


def test_labels_of_another_length_are_refused():
    with pytest.raises(InputError, match="y has 3 entries but X has 4 rows"):
        check_labels([1.0, 2.0, 3.0], None, 4)
    with pytest.raises(InputError, match="treatment has 3 entries but X has 4 rows"):
        check_labels(None, [1.0, 0.0, 1.0], 4)


def test_text_labels_are_refused_by_what_they_should_be():
    with pytest.raises(
        InputError, match=r"outcomes must be numbers, or words .* got 'buys'"
    ):
        check_labels(["buys", "none"], None, 2)


def test_a_table_of_labels_is_refused():
    with pytest.raises(ValueError, match="1d array"):
        check_labels(np.zeros((4, 2)), None, 4)


# --- codings --------------------------------------------------------------------------------


@QUICK
@given(CODES)
def test_every_coding_of_treatment_gives_the_same_minus_and_plus_one(treated):
    paper = np.where(treated, 1.0, -1.0)
    for coded in (np.array(treated), np.array(treated, dtype=float), paper):
        clean = check_treatment(coded)
        assert clean.dtype == np.float64
        assert_array_equal(clean, paper)


def test_other_codes_of_treatment_are_shown():
    cases = (
        ([0.0, 1.0, 2.0], r"0\.0, 1\.0, 2\.0"),
        ([1.0, 2.0], r"1\.0, 2\.0"),
        ([-1.0, 0.0], "-1.0, 0"),
    )
    for codes, shown in cases:
        with pytest.raises(
            LabelError, match=f"0/1, False/True or -1/[+]1, got {shown}"
        ):
            check_treatment(np.array(codes))


def test_outcomes_of_two_whole_numbers_become_exactly_minus_and_plus_one():
    for pair in ((0.0, 1.0), (-1.0, 1.0), (1.0, 2.0), (0.0, 100.0), (-3.0, 5.0)):
        coding = check_outcome(np.array(pair))
        assert coding.is_binary
        assert_array_equal(coding.encode(np.array(pair)), [-1.0, 1.0])


@QUICK
@given(UNITS, UNITS, CODES)
def test_outcomes_of_any_two_values_become_minus_and_plus_one(a, b, which):
    """Tolerance: the offset is rounded to u max|y|, and counts in units of the scale."""
    low, high = min(a, b), max(a, b)
    assume(high - low > 1e-6 * max(abs(low), abs(high)))
    y = np.where([*which, True, False], high, low)
    assume(np.ptp(y) >= 1e-30)  # less is refused
    coding = check_outcome(y)
    scale = (high - low) / 2
    tolerance = 4 * np.finfo(float).eps * max(1.0, max(abs(low), abs(high)) / scale)
    assert coding.is_binary
    assert_allclose(
        coding.encode(y),
        np.where([*which, True, False], 1.0, -1.0),
        rtol=0,
        atol=tolerance,
    )
    assert_allclose(coding.scale * 2.0, high - low, rtol=1e-15)


@QUICK
@given(UNITS, UNITS, st.lists(UNITS, min_size=1, max_size=10))
def test_scale_and_offset_restore_the_outcomes(a, b, others):
    y = np.array([a, b, *others])
    assume(y.max() - y.min() >= 1e-30)  # less is refused
    coding = check_outcome(y)
    back = coding.encode(y) * coding.scale + coding.offset
    assert_allclose(back, y, rtol=0, atol=4 * np.finfo(float).eps * np.abs(y).max())


@QUICK
@given(st.lists(UNITS, min_size=3, max_size=10, unique=True))
def test_outcomes_of_three_values_and_more_stay_as_they_are(values):
    y = np.array(values)
    assume(y.max() - y.min() >= 1e-30)  # less is refused
    coding = check_outcome(y)
    assert not coding.is_binary
    assert_array_equal(coding.encode(y), y)


def test_a_constant_outcome_is_refused_with_its_value():
    with pytest.raises(LabelError, match=r"the outcome is 2\.5 in all 3 outcome rows"):
        check_outcome(np.full(3, 2.5))


# --- weights --------------------------------------------------------------------------------


def test_no_weights_are_weights_of_one():
    assert_array_equal(check_weight(None, 3), np.ones(3))


def test_a_single_weight_serves_every_row():
    assert_array_equal(check_weight(2.0, 3), [2.0, 2.0, 2.0])


def test_a_weight_of_zero_is_allowed():
    assert_array_equal(check_weight([0, 1], 2), [0.0, 1.0])


def test_weights_that_cannot_be_are_shown():
    for bad, shown in ((-1.0, r"-1\.0"), (np.nan, "nan"), (np.inf, "inf")):
        with pytest.raises(
            LabelError,
            match=rf"finite and not negative, got {shown} in 1 of 3 rows.*the weight 0",
        ):
            check_weight([1.0, bad, 0.0], 3)


def test_weights_are_one_per_row():
    with pytest.raises(
        InputError, match="sample_weight has 2 entries but X has 3 rows"
    ):
        check_weight([1.0, 2.0], 3)
    with pytest.raises(
        InputError, match=r"sample_weight must be one-dimensional, got shape \(1,"
    ):
        check_weight([[1.0, 2.0]], 2)


# --- features -------------------------------------------------------------------------------


def test_a_text_column_is_named_with_its_values_and_its_table():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        for values in (["x", "y"], [None, "y"]):
            with pytest.raises(
                TableError,
                match=r"features must be numbers, but column 'city' of the mail table holds",
            ) as caught:
                check_numeric_columns(
                    frame({"age": [1, 2], "city": values}), table="the mail table"
                )
            assert "such as" in str(caught.value)
            assert "'y'" in str(caught.value)


def test_numbers_and_booleans_pass_as_features():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        check_numeric_columns(frame({"a": [1, 2], "b": [0.5, 1.5], "c": [True, False]}))


def test_pandas_objects_that_are_numbers_pass_as_features():
    check_numeric_columns(pd.DataFrame({"a": pd.Series([1, 2.5], dtype=object)}))


def test_pandas_dates_and_categories_are_no_numbers():
    for column in (pd.to_datetime(["2020-01-01"]), pd.Categorical(["u"])):
        with pytest.raises(TableError, match="column 'when' of X holds"):
            check_numeric_columns(pd.DataFrame({"when": column}))


def test_arrays_have_no_columns_to_look_at_but_a_type():
    check_numeric_columns(np.array([[True]]))
    with pytest.raises(
        InputError, match="features must be numbers, got an array that holds str"
    ):
        check_numeric_columns(np.array([["text"]]))


def test_features_that_are_no_numbers_name_column_rows_and_table():
    cases = (
        ([np.nan, 0.0], "NaN"),
        ([np.inf, 0.0], "inf"),
        ([np.nan, np.inf], "NaN and inf"),
    )
    for bad, word in cases:
        X = np.zeros((4, 2))
        X[:2, 1] = bad
        n = int((~np.isfinite(bad)).sum())
        with pytest.raises(
            InputError, match=rf"of T contain {word} in {n} of 4 rows, in 'b'\. Impute"
        ):
            check_finite_features(X, ["a", "b"], table="T")
        with pytest.raises(
            InputError, match=rf"of X contain {word} in {n} of 4 rows, in 'column 1'"
        ):
            check_finite_features(X, None)


def test_infinities_of_both_signs_are_refused_like_any_other():
    with pytest.raises(InputError, match="contain inf in 2 of 2 rows"):
        check_finite_features(np.array([[np.inf], [-np.inf]]), None)


def test_finite_features_pass_even_if_their_sum_overflows():
    check_finite_features(np.full((4, 1), 1e308), None)


# --- columns and parameters -----------------------------------------------------------------


def test_columns_may_come_in_any_order():
    check_columns(["a", "b", "c"], ["c", "a", "b"], table="T")


def test_missing_and_extra_columns_are_both_named():
    cases = (
        (
            ["a"],
            r"T must have the feature columns.*\('a', 'b'; any order\)\. Missing: 'b'\. Sel",
        ),
        (["a", "b", "c"], r"order\)\. Not expected: 'c'\. Select the same"),
        (["a", "c"], r"Missing: 'b'; Not expected: 'c'\. Select"),
    )
    for found, message in cases:
        with pytest.raises(TableError, match=message):
            check_columns(["a", "b"], found, table="T")


def test_a_parameter_that_must_be_positive_is_named_with_its_value():
    for value in (0, -1.0, np.inf, np.nan, True, "1", None):
        with pytest.raises(
            InputError, match="ridge_f must be a finite number above 0, got"
        ) as caught:
            check_positive("ridge_f", value)
        assert repr(value) in str(caught.value)


def test_a_parameter_that_must_not_be_negative_is_named_with_its_value():
    for value in (-1e-300, np.inf, np.nan, False, "0", None):
        with pytest.raises(
            InputError, match="cost must be a finite number, 0 or above, got"
        ):
            check_not_negative("cost", value)


def test_a_count_is_a_whole_number_above_zero():
    for value in (0, -3, 2.0, np.nan, True, "3", None):
        with pytest.raises(
            InputError, match="n_folds must be a whole number, 1 or above, got"
        ):
            check_count("n_folds", value)


def test_an_option_is_one_of_its_words():
    assert check_option("basis", "linear", ("linear", "fourier")) == "linear"
    with pytest.raises(
        InputError, match="basis must be one of 'linear', 'fourier', got 'cubic'"
    ):
        check_option("basis", "cubic", ("linear", "fourier"))


def test_numbers_of_numpy_are_numbers():
    assert check_positive("a", np.float32(0.5)) == 0.5
    assert check_not_negative("a", 0) == 0.0
    assert check_count("a", np.int64(3)) == 3
    assert all(
        type(v) in (int, float) for v in (check_positive("a", 1), check_count("a", 2))
    )
