"""The container: one table with holes, checked once, frozen for good."""

import copy
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined import SeparateLabels
from unjoined.data.chunks import feature_matrix
from unjoined.data.rows import separate_labels
from unjoined.errors import ColumnWarning, InputError, LabelError, TableError

pytestmark = pytest.mark.usefixtures("two_folds")

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
FRAMES = pytest.mark.parametrize("frame", LIBRARIES.values(), ids=LIBRARIES)

KIND = ["outcome"] * 4 + ["treatment"] * 4
POPULATION = ["A", "A", "B", "B"] * 2
LABEL = [3.0, 1.0, 2.0, 2.5, 1, 0, 0, 1]
Y, TREATMENT = separate_labels(LABEL, KIND).values()
X = np.arange(16.0).reshape(8, 2)

# The same four tables, a column at a time; outcomes are visits, treatments mailings.
OUTCOMES = {
    "A": {"age": [31, 54, 40], "member": [True, False, True], "visits": [1, 0, 4]},
    "B": {"age": [45, 22], "member": [False, False], "visits": [0, 3]},
}
TREATMENTS = {
    "A": {"age": [28, 61], "member": [True, True], "mailed": [True, True]},
    "B": {
        "age": [39, 50, 33],
        "member": [False, True, False],
        "mailed": [False, True, False],
    },
}
AGES = [31, 54, 40, 45, 22, 28, 61, 39, 50, 33]
MEMBERS = [1, 0, 1, 0, 0, 1, 1, 0, 1, 0]
LABELS = [1, 0, 4, 0, 3, 1, 1, 0, 1, 0]


def arrays(**changed):
    return SeparateLabels(
        **{"X": X, "y": Y, "treatment": TREATMENT, "population": POPULATION, **changed}
    )


def tables(frame=pd.DataFrame, *, outcomes=None, treatments=None, **options):
    return SeparateLabels.from_tables(
        {name: frame(table) for name, table in (outcomes or OUTCOMES).items()},
        {name: frame(table) for name, table in (treatments or TREATMENTS).items()},
        outcome="visits",
        treatment="mailed",
        **options,
    )


def changed(tables, name, **columns):
    """Return the tables with some columns of one table replaced."""
    return {**tables, name: {**tables[name], **columns}}


def without(tables, name, column):
    """Return the tables without one column of one of them."""
    return {**tables, name: {k: v for k, v in tables[name].items() if k != column}}


def assert_same(one, other):
    assert list(one) == list(other)
    assert_array_equal(feature_matrix(one.X), feature_matrix(other.X))
    assert one.feature_names == other.feature_names
    for name in list(one)[1:]:
        assert_array_equal(one[name], other[name])


# --- a frozen mapping -----------------------------------------------------------------------


def test_the_mapping_holds_exactly_the_arguments_of_fit():
    data = arrays()
    assert dict(data).keys() == {"X", "y", "treatment", "population"}
    assert len(data) == 4
    assert "sample_weight" not in data
    with pytest.raises(KeyError, match="sample_weight"):
        data["sample_weight"]
    with pytest.raises(KeyError, match="n_rows"):
        data["n_rows"]


def test_weights_are_in_the_mapping_only_if_given():
    data = arrays(sample_weight=np.arange(1, 9))
    assert list(data) == ["X", "y", "treatment", "population", "sample_weight"]
    assert_array_equal(data["sample_weight"], np.arange(1.0, 9.0))


def test_no_field_can_be_assigned_and_no_array_written_to():
    for field in ("X", "y", "treatment", "population", "sample_weight"):
        data = arrays(sample_weight=np.ones(8))
        with pytest.raises(AttributeError, match=f"frozen, so {field} cannot be set"):
            setattr(data, field, None)
        with pytest.raises(ValueError, match="read-only"):
            data[field][0] = data[field][1]


def test_the_arrays_given_are_copied_and_stay_writable():
    given_X, given_y = X.copy(), Y.copy()
    data = arrays(X=given_X, y=given_y)
    given_X[0, 0], given_y[0] = 99.0, 99.0
    assert data.X[0, 0] == X[0, 0]
    assert data.y[0] == Y[0]


def test_a_copy_is_the_same_rows_and_as_frozen():
    for round_trip in (
        lambda data: pickle.loads(pickle.dumps(data)),  # noqa: S301 - our own bytes
        copy.deepcopy,
        copy.copy,
    ):
        for weight in (None, np.arange(1.0, 9.0)):
            for frame in (None, *LIBRARIES.values()):
                X_ = X if frame is None else frame({"a": X[:, 0], "b": X[:, 1]})
                data = arrays(X=X_, sample_weight=weight)
                again = round_trip(data)
                assert_same(again, data)
                with pytest.raises(ValueError, match="read-only"):
                    again.y[0] = 0.0
                with pytest.raises(AttributeError, match="frozen"):
                    again.y = None


def test_a_set_of_rows_equals_itself_only():
    data = arrays()
    assert data == data
    assert data != arrays()
    assert len({data, arrays()}) == 2


# --- tables ---------------------------------------------------------------------------------


def test_four_tables_become_rows_in_their_order():
    for frame in LIBRARIES.values():
        data = tables(frame)
        assert isinstance(data.X, type(frame({"a": [1]})))
        assert data.feature_names == ["age", "member"]
        assert_array_equal(feature_matrix(data.X), np.column_stack([AGES, MEMBERS]))
        assert data.y.dtype == data.treatment.dtype == np.float64
        assert_array_equal(data.y, [*LABELS[:5], *[np.nan] * 5])
        assert_array_equal(data.treatment, [*[np.nan] * 5, *LABELS[5:]])
        assert data.kind.tolist() == ["outcome"] * 5 + ["treatment"] * 5
        assert data.population.tolist() == ["A"] * 3 + ["B"] * 2 + ["A"] * 2 + ["B"] * 3


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(list(LIBRARIES)), min_size=4, max_size=4),
    st.lists(st.permutations([0, 1, 2]), min_size=4, max_size=4),
)
def test_libraries_may_be_mixed_and_columns_come_in_any_order(libraries, orders):
    frames = []
    for table, library, order in zip(
        [*OUTCOMES.values(), *TREATMENTS.values()], libraries, orders, strict=True
    ):
        columns = list(table)
        frames.append(
            LIBRARIES[library]({columns[j]: table[columns[j]] for j in order})
        )
    data = SeparateLabels.from_tables(
        {"A": frames[0], "B": frames[1]},
        {"A": frames[2], "B": frames[3]},
        outcome="visits",
        treatment="mailed",
    )
    by_name = feature_matrix(data.X)[
        :, [data.feature_names.index(c) for c in ("age", "member")]
    ]
    assert_array_equal(by_name, np.column_stack([AGES, MEMBERS]))
    assert_array_equal(data.checked.label, LABELS)


@FRAMES
@pytest.mark.parametrize(
    "names", [("A", "B"), (1, 2), (True, False)], ids=["str", "int", "bool"]
)
def test_two_frames_with_a_population_column_equal_four_tables(frame, names):
    """Rows of the populations may be shuffled into each other."""

    def stacked(tables, shuffle):
        columns = {}
        for code, table in zip(names, tables.values(), strict=True):
            n = len(table["age"])
            for name, values in {**table, "region": [code] * n}.items():
                columns.setdefault(name, []).extend(values)
        return frame(
            {name: [values[i] for i in shuffle] for name, values in columns.items()}
        )

    data = SeparateLabels.from_tables(
        stacked(OUTCOMES, [3, 0, 1, 4, 2]),
        stacked(TREATMENTS, [2, 3, 0, 4, 1]),
        outcome="visits",
        treatment="mailed",
        population="region",
    )
    in_order = sorted(zip(map(str, names), "AB", strict=True))
    renamed = [
        {new: table[old] for new, old in in_order} for table in (OUTCOMES, TREATMENTS)
    ]
    assert_same(data, tables(frame, outcomes=renamed[0], treatments=renamed[1]))


@pytest.mark.parametrize(
    "dtype", ["int8", "float32", "Int64", "Float64", "boolean", "object"]
)
def test_pandas_columns_of_any_numeric_type_give_the_same_numbers(dtype):
    columns = {"x": [1, 0, 1], "y": [0, 1, 0]}
    plain = pd.DataFrame(columns)

    def read(frame):
        return SeparateLabels.from_tables(
            {"A": frame, "B": plain},
            {"A": frame, "B": plain},
            outcome="y",
            treatment="y",
        )

    assert_same(read(plain.astype(dtype)), read(plain))


def test_target_rows_come_last_and_carry_no_label():
    for frame in LIBRARIES.values():
        data = tables(frame, target=frame({"member": [True, False], "age": [20, 30]}))
        assert data.n_rows == 12
        assert_array_equal(data.rows("target"), [10, 11])
        assert np.isnan([data.y[10:], data.treatment[10:]]).all()
        assert_array_equal(feature_matrix(data.X)[10:], [[20, 1], [30, 0]])
        assert data.populations == ["A", "B"]


def test_people_to_be_scored_have_no_label_and_no_population():
    for names, missing, shown in (
        ("AB", None, ""),
        ("AB", "", ""),
        ([1, 2], None, None),
        ([1, 2], np.nan, None),
    ):
        data = SeparateLabels(
            X=np.vstack([X, [[0.0, 0.0]]]),
            y=[*Y, np.nan],
            treatment=[*TREATMENT, np.nan],
            population=[*(names["AB".index(name)] for name in POPULATION), missing],
        )
        assert data.populations == list(names)
        assert data.kind.tolist() == [*KIND, "target"]
        assert data.population[-1] == shown
        assert_same(data.take(np.arange(9)), data)


@FRAMES
def test_a_weight_column_is_taken_from_every_table_and_is_no_feature(frame):
    def weighed(tables):
        return {
            name: {**table, "w": np.arange(1.0, len(table["age"]) + 1)}
            for name, table in tables.items()
        }

    target = frame({"age": [20], "member": [True], "w": [0.5]})
    data = tables(
        frame,
        outcomes=weighed(OUTCOMES),
        treatments=weighed(TREATMENTS),
        target=target,
        sample_weight="w",
    )
    assert data.feature_names == ["age", "member"]
    assert_array_equal(data.sample_weight, [1, 2, 3, 1, 2, 1, 2, 1, 2, 3, 0.5])


@FRAMES
def test_joining_tables_takes_little_more_memory_than_their_features(frame):
    """One matrix, one table's part of it beside, and a frame of it, which pandas copies."""
    n, d = 500, 50
    rng = np.random.default_rng(0)
    four = [
        frame(
            {
                **{f"x{j}": rng.standard_normal(n) for j in range(d)},
                "y": np.arange(n) % 2,
            }
        )
        for _ in range(4)
    ]
    tracemalloc.start()
    SeparateLabels.from_tables(
        {"A": four[0], "B": four[1]},
        {"A": four[2], "B": four[3]},
        outcome="y",
        treatment="y",
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3.0 * 4 * n * d * 8


# --- parts and summaries --------------------------------------------------------------------


def test_taking_all_rows_changes_nothing_and_a_mask_equals_its_positions():
    for frame in LIBRARIES.values():
        data = tables(frame)
        assert_same(data.take(np.arange(10)), data)
        mask = np.ones(10, dtype=bool)
        mask[[2, 9]] = False
        part = data.take(mask)
        assert_same(part, data.take(np.flatnonzero(mask)))
        assert_array_equal(part.checked.label, np.delete(LABELS, [2, 9]))
        assert isinstance(part.X, type(data.X))


def test_rows_are_taken_in_the_order_asked_with_their_weights():
    order = np.array([7, 6, 5, 4, 3, 2, 1, 0])
    part = arrays(sample_weight=np.arange(1.0, 9.0)).take(order)
    assert_array_equal(part.X, X[order])
    assert_array_equal(part.y, Y[order])
    assert_array_equal(part.treatment, TREATMENT[order])
    assert_array_equal(part.sample_weight, 8.0 - np.arange(8.0))
    assert part.kind.tolist() == [KIND[i] for i in order]


def test_taking_rows_checks_them_anew():
    with pytest.raises(LabelError, match="population 'B' has no treatment rows"):
        arrays().take([0, 1, 2, 3, 4, 5])


def test_rows_are_found_by_kind_and_population():
    data = arrays()
    assert_array_equal(data.rows("outcome"), [0, 1, 2, 3])
    assert_array_equal(data.rows("treatment", "B"), [6, 7])
    assert data.rows("target").size == 0


def test_the_summary_is_the_size_and_weighted_mean_of_each_table():
    weight = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 3.0, 0.0, 1.0])
    cells = arrays(sample_weight=weight).summary()
    assert [(c.kind, c.population, c.n_rows) for c in cells] == [
        ("outcome", "A", 2),
        ("outcome", "B", 2),
        ("treatment", "A", 2),
        ("treatment", "B", 2),
    ]
    assert_allclose([c.label_mean for c in cells], [1.5, 2.25, 0.25, 1.0], rtol=1e-15)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_summary_does_not_depend_on_how_treatment_is_coded(treated):
    on = np.array(treated)
    none = [np.nan] * 4
    zero_one = arrays(treatment=np.r_[none, on])
    paper = arrays(treatment=np.r_[none, 2.0 * on - 1.0])
    words = arrays(treatment=[None] * 4 + ["yes" if t else "no" for t in treated])
    assert words.summary() == paper.summary() == zero_one.summary()
    assert [c.label_mean for c in paper.summary()[2:]] == [on[:2].mean(), on[2:].mean()]


def test_a_population_that_weighs_nothing_is_none_of_the_two():
    """Rows of weight 0 do not count: not as a third population, and not in the summary."""
    data = SeparateLabels(
        **separate_labels([*LABEL, 1.0, 1.0], [*KIND, "outcome", "treatment"]),
        X=np.vstack([X, X[:2]]),
        population=[*POPULATION, "C", "C"],
        sample_weight=[1.0] * 8 + [0.0, 0.0],
    )
    assert data.populations == ["A", "B"]
    assert [c.label_mean for c in data.summary()] == [
        c.label_mean for c in arrays().summary()
    ]


def test_the_representation_shows_every_table():
    data = tables(target=pd.DataFrame({"age": [20], "member": [True]}))
    assert repr(data).splitlines() == [
        "SeparateLabels of 11 rows, 2 features",
        "  outcome   A: 3 rows, mean 1.67",
        "  outcome   B: 2 rows, mean 1.5",
        "  treatment A: 2 rows, 100.0% treated",
        "  treatment B: 3 rows, 33.3% treated",
        "  target    : 1 row, no label",
    ]


# --- messages -------------------------------------------------------------------------------


def test_a_bad_field_is_named():
    cases = (
        ({"X": X[:, 0]}, InputError, r"two-dimensional .* got shape \(8,\)\. Reshape"),
        (
            {"X": [["a"]] * 8},
            InputError,
            "features must be numbers, got an array that holds str",
        ),
        (
            {"X": np.full((8, 1), np.nan)},
            InputError,
            "contain NaN in 8 of 8 rows, in 'column 0'",
        ),
        ({"y": Y[:7]}, InputError, "y has 7 entries but X has 8 rows"),
        (
            {"treatment": TREATMENT[:7]},
            InputError,
            "treatment has 7 entries but X has 8 rows",
        ),
        (
            {"population": POPULATION[:7]},
            InputError,
            "population has 7 entries but X has 8",
        ),
        (
            {"sample_weight": [1.0]},
            InputError,
            "sample_weight has 1 entries but X has 8 rows",
        ),
        (
            {"sample_weight": [-1.0] * 8},
            LabelError,
            "finite and not negative, got -1.0",
        ),
        ({"population": ["A"] * 8}, LabelError, "found 1: 'A'"),
        (
            {"population": None},
            InputError,
            "population is missing: name the population of every",
        ),
        (
            {"population": [*POPULATION[:7], None]},
            LabelError,
            "missing in 1 of 8 rows .*at row 7",
        ),
        (
            {"treatment": [*[np.nan] * 4, 0, 1, 2, 0]},
            LabelError,
            "coded 0/1, False/True or -1/[+]1, got 0.0, 1",
        ),
        (
            {"treatment": [*[None] * 4, "yes", "no", "often", "no"]},
            LabelError,
            "treatments must be 0/1, true/false, .* got 'often'",
        ),
        (
            {"y": [1, 1, 1, 1, *Y[4:]]},
            LabelError,
            "the outcome is 1 in all 4 outcome rows",
        ),
        (
            {"y": [np.inf, *Y[1:]]},
            LabelError,
            r"y is infinite in 1 of 8 rows \(first at row 0",
        ),
        (
            {"y": [1e300, *Y[1:]]},
            LabelError,
            r"y holds outcomes beyond .*\(first at row 0: 1e",
        ),
        (
            {"y": [np.nan, *Y[1:]]},
            LabelError,
            r"1 of 8 rows have a population but neither an outcome nor a treatment \(first at row "
            r"0: A\)\. Fill in the label, .* no label and no population",
        ),
        ({"y": None}, LabelError, "4 of 8 rows have a population but neither"),
    )
    for fields, error, message in cases:
        with pytest.raises(error, match=message):
            arrays(**fields)


def test_a_bad_feature_names_its_column():
    for frame in LIBRARIES.values():
        with pytest.raises(InputError, match="of X contain inf in 1 of 8 rows, in 'b'"):
            arrays(X=frame({"a": [1.0] * 8, "b": [np.inf, *map(float, range(7))]}))
        with pytest.raises(InputError, match="of X contain inf in 1 of 8 rows, in 'b'"):
            arrays(X=frame({"a": ["u"] * 8, "b": [np.inf, *map(float, range(7))]}))
        with pytest.raises(
            TableError, match=r"column 'b' of X holds .*list.* values such as \[1"
        ):
            arrays(X=frame({"a": [1.0] * 8, "b": [[1, 2]] * 8}))


def test_columns_called_by_numbers_keep_their_names():
    data = arrays(X=pd.DataFrame(X))
    assert list(data.X.columns) == list(data.take(np.arange(8)).X.columns) == [0, 1]


def test_an_empty_table_is_named():
    for frame in LIBRARIES.values():
        empty = {name: values[:0] for name, values in OUTCOMES["B"].items()}
        with pytest.raises(
            TableError,
            match=r"the outcome table of population 'B' is empty. It needs at least one",
        ):
            tables(frame, outcomes={**OUTCOMES, "B": empty})


def test_a_missing_label_column_is_named_beside_those_there_are():
    for frame in LIBRARIES.values():
        with pytest.raises(
            TableError,
            match=r"the treatment table of population 'A' has no column 'mailed'; "
            r"its columns are age, .*If it only lists those who were treated, give everyone",
        ):
            tables(frame, treatments=without(TREATMENTS, "A", "mailed"))


def test_a_missing_weight_column_is_named():
    with pytest.raises(
        TableError, match="the outcome table of population 'A' has no column 'w'"
    ):
        tables(sample_weight="w")


def test_columns_of_tables_are_named_by_text():
    with pytest.raises(
        TableError, match=r"'A' must be named by text, got 0, 1. Rename them"
    ):
        SeparateLabels.from_tables(
            {"A": pd.DataFrame(X)},
            {"A": pd.DataFrame(X)},
            outcome="visits",
            treatment="mailed",
        )


def test_a_table_of_labels_alone_has_no_features():
    with pytest.raises(
        TableError, match=r"no column is left .*'age' is in .*'A', but not in"
    ):
        tables(outcomes={**OUTCOMES, "B": {"visits": [1, 0]}})


def test_columns_that_some_tables_lack_are_left_out_and_named():
    odd = without(changed(TREATMENTS, "B", income=[1.0, 2.0, 3.0]), "B", "age")
    with pytest.warns(
        ColumnWarning, match=r"2 columns are left out: 'age' is in .*; 'income' is"
    ):
        data = tables(treatments=odd)
    assert data.feature_names == ["member"]
    assert [part.name for part in data.left_out] == ["age", "income"]


def test_text_in_a_label_column_names_column_and_table():
    for frame in LIBRARIES.values():
        with pytest.raises(
            TableError,
            match=r"column 'visits' of the outcome table of population 'B' .*: outcomes must be "
            r"numbers, or words .*, got 'often'",
        ):
            tables(frame, outcomes=changed(OUTCOMES, "B", visits=["no", "often"]))


@FRAMES
@pytest.mark.parametrize(
    ("bad", "how"), [(None, "missing"), (float("inf"), "infinite")]
)
def test_a_label_that_is_no_number_names_column_table_and_row(frame, bad, how):
    with pytest.raises(
        LabelError,
        match=r"row 1 of the outcome table of population 'B' \(counting from 0\): column 'visits' "
        rf"is {how}; 1 of the 2 rows",
    ):
        tables(frame, outcomes=changed(OUTCOMES, "B", visits=[1.0, bad]))


def test_a_bad_feature_names_the_table_it_is_in():
    for frame in LIBRARIES.values():
        with pytest.raises(
            TableError,
            match=r"row 1 of the treatment table of population 'A' .* "
            "features in 'age' are infinite",
        ):
            tables(frame, treatments=changed(TREATMENTS, "A", age=[28.0, np.inf]))
        with pytest.raises(
            TableError, match="column 'age' of the target table holds list"
        ):
            tables(frame, target=frame({"age": [[31]], "member": [True]}))


def test_what_is_no_table_is_named_by_its_type():
    for thing in (X, [[1]]):
        name = type(thing).__name__
        with pytest.raises(
            TableError, match=f"table of population 'A' must be a .*, got {name}"
        ):
            SeparateLabels.from_tables(
                {"A": thing}, {}, outcome="visits", treatment="mailed"
            )
        with pytest.raises(
            TableError, match=f"the target table must be a .*, got {name}"
        ):
            tables(target=thing)


def test_tables_come_in_a_mapping_or_name_their_populations_in_a_column():
    table = pd.DataFrame({"age": [1, 2], "y": [0, 1], "region": ["A", "B"]})
    labels = {"outcome": "y", "treatment": "y"}
    with pytest.raises(
        TableError, match=r"outcomes is a mapping of .* but population names a"
    ):
        SeparateLabels.from_tables({"A": table}, table, **labels, population="region")
    with pytest.raises(
        TableError, match=r"treatments must be a mapping .* got DataFrame\. With one"
    ):
        SeparateLabels.from_tables({"A": table}, table, **labels)


def test_no_tables_at_all_are_refused():
    with pytest.raises(InputError, match="table"):
        SeparateLabels.from_tables({}, {}, outcome="visits", treatment="mailed")


def test_tables_of_other_populations_leave_a_cell_empty():
    with pytest.raises(LabelError, match="population 'A' has no treatment rows"):
        tables(treatments={"B": TREATMENTS["B"]})


def test_a_population_column_that_is_not_there_is_named():
    for frame in LIBRARIES.values():
        table = frame({"age": [1, 2], "y": [0, 1]})
        with pytest.raises(
            TableError,
            match="the outcome table has no column 'region'; its columns are age",
        ):
            SeparateLabels.from_tables(
                table, table, outcome="y", treatment="y", population="region"
            )


def test_missing_values_in_the_population_column_are_counted():
    for frame in LIBRARIES.values():
        for names in (["A", "B", None], [1.0, 2.0, float("nan")]):
            table = frame({"age": [1, 2, 3], "y": [0, 1, 0], "region": names})
            with pytest.raises(
                TableError,
                match=r"row 2 of the outcome table .*column 'region' is missing in 1 of 3 rows",
            ):
                SeparateLabels.from_tables(
                    table, table, outcome="y", treatment="y", population="region"
                )


def test_an_empty_frame_needs_rows_of_all_populations():
    for frame in LIBRARIES.values():
        full = frame({"age": [1, 2], "y": [0, 1], "region": ["A", "B"]})
        empty = frame({"age": [1][:0], "y": [1][:0], "region": ["A"][:0]})
        with pytest.raises(
            TableError, match=r"the treatment table is empty\. It needs rows of all"
        ):
            SeparateLabels.from_tables(
                full, empty, outcome="y", treatment="y", population="region"
            )


# --- streamed -------------------------------------------------------------------------------


def test_streamed_rows_are_not_in_memory_and_say_so():
    data = tables(stream=True)
    assert data.is_streamed
    assert repr(data) == "SeparateLabels, streamed from tables"
    assert data.feature_names == ["age", "member"]
    for read in (
        lambda: data.X,
        lambda: data.n_rows,
        lambda: dict(data),
        lambda: data.take([0]),
    ):
        with pytest.raises(
            InputError, match=r"streamed, so that \w+ (is|are) not in memory"
        ):
            read()
    with pytest.raises(AttributeError, match="no attribute 'Z'"):
        _ = data.Z


@pytest.mark.parametrize(
    "round_trip",
    [lambda data: pickle.loads(pickle.dumps(data)), copy.deepcopy],  # noqa: S301
    ids=["pickle", "deepcopy"],
)
def test_a_copy_of_streamed_rows_streams_the_same_rows(round_trip):
    data = tables(stream=3)
    again = round_trip(data)
    for chunk, copied in zip(data.chunks(), again.chunks(), strict=True):
        assert_array_equal(copied.X, chunk.X)
        assert_array_equal(copied.label, chunk.label)


def test_people_to_be_scored_do_not_come_with_streamed_tables():
    with pytest.raises(
        InputError, match=r"target was given with tables that are streamed\. Give"
    ):
        tables(target=pd.DataFrame({"age": [20], "member": [True]}), stream=True)


def test_a_piece_has_at_least_one_row():
    for stream in (-1, 2.5, "all"):
        with pytest.raises(
            InputError, match="stream must be a whole number, 1 or above, got"
        ):
            arrays(stream=stream)
        with pytest.raises(
            InputError, match="stream must be a whole number, 1 or above, got"
        ):
            tables(stream=stream)
