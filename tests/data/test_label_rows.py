"""Two columns of labels with holes become one, with the cell of every row."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from unjoined.data.rows import label_rows, separate_labels


def draw(seed, *, codes=(0.0, 1.0), names=("A", "B")):
    """Return columns, and the rows they are made of: label, whether an outcome, population."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 60))
    kind = np.where(np.arange(n) % 2, "outcome", "treatment")
    population = np.asarray(names)[np.arange(n) // 2 % 2]
    treated = rng.random(n) < 0.5
    label = np.where(
        kind == "outcome", rng.standard_normal(n), np.asarray(codes)[treated * 1]
    )
    order = rng.permutation(n)
    columns = separate_labels(label[order], kind[order]) | {
        "population": population[order]
    }
    return columns, label[order], kind[order] == "outcome", population[order]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0)]),
    st.sampled_from([("A", "B"), (1, 2), (0.5, 1.5)]),
    st.integers(0, 5),
)
def test_labels_are_put_together_in_the_inner_coding(seed, codes, names, n_target):
    columns, label, is_outcome, population = draw(seed, codes=codes, names=names)
    for name, fill in {"y": np.nan, "treatment": np.nan, "population": None}.items():
        columns[name] = [*columns[name].tolist(), *[fill] * n_target]
    rows = label_rows(np.arange(len(columns["y"]))[:, None], **columns)
    assert_array_equal(
        rows.X[:, 0], np.arange(len(label))
    )  # people to be scored are left out
    assert_array_equal(rows.label[is_outcome], rows.coding.encode(label[is_outcome]))
    assert_array_equal(rows.label[~is_outcome] > 0.0, label[~is_outcome] == 1.0)
    assert set(rows.label[~is_outcome]) <= {-1.0, 1.0}
    assert_array_equal(rows.is_outcome, is_outcome)
    assert rows.names == list(names)
    assert_array_equal(rows.population, [names.index(name) for name in population])


def test_populations_of_any_plain_type_are_told_apart():
    for dtype in (bool, np.int8, np.int16, np.uint64, "U1", "U30", ">i8"):
        columns, *_, population = draw(5)
        which = population == "B"
        columns["population"] = which.astype(int).astype(dtype)
        rows = label_rows(np.zeros((len(which), 1)), **columns)
        assert_array_equal(rows.population, which)
        assert rows.names == np.unique(columns["population"]).tolist()


def test_columns_in_other_memory_are_read_as_well():
    cases = (
        lambda column: np.repeat(column, 3)[::3],
        lambda column: column.astype(column.dtype.newbyteorder(">")),
        lambda column: column.tolist(),
    )
    for change in cases:
        columns, label, *_ = draw(6)
        X = np.zeros((len(label), 1))
        expected = label_rows(X, **columns)
        rows = label_rows(
            X, **{name: change(column) for name, column in columns.items()}
        )
        assert_array_equal(rows.label, expected.label)
        assert_array_equal(rows.cell, expected.cell)


def test_treatments_that_never_vary_are_taken_as_they_are():
    """All ones could be either coding, and mean the same in both."""
    for code, expected in ((1.0, 1.0), (0.0, -1.0), (-1.0, -1.0)):
        columns, _, is_outcome, _ = draw(0)
        columns["treatment"][~is_outcome] = code
        rows = label_rows(np.zeros((len(is_outcome), 1)), **columns)
        assert_array_equal(rows.label[~is_outcome], expected)
