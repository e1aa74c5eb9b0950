"""The quick look at labels: what the checks find, or nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from unjoined.data import rows as _label_scan
from unjoined.data.rows import label_rows, scan_labels

QUICK = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, *, binary=False, codes=(0.0, 1.0), names=("A", "B")):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 60))
    kind = np.where(np.arange(n) % 2, "outcome", "treatment")
    population = np.asarray(names)[np.arange(n) // 2 % 2]
    outcome = rng.choice([3.0, 7.0], n) if binary else rng.standard_normal(n)
    outcome[:4] = [3.0, 7.0, 7.0, 3.0]  # at least two values
    y = np.where(kind == "outcome", outcome, rng.choice(codes, n))
    order = rng.permutation(n)
    return {"y": y[order], "kind": kind[order], "population": population[order]}


def scan(fields, n_jobs=None):
    return scan_labels(fields["y"], fields["kind"], fields["population"], len(fields["y"]), n_jobs)


@QUICK
@given(
    SEEDS,
    st.booleans(),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0)]),
    st.sampled_from([("A", "B"), (2, 1)]),
    st.sampled_from([1, 7, 1000]),
)
def test_it_finds_what_the_checks_find(seed, binary, codes, names, block):
    fields = draw(seed, binary=binary, codes=codes, names=names)
    X = np.zeros((len(fields["y"]), 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_label_scan, "CHUNK_ROWS", block)
        patch.setattr(_label_scan, "SOME_ROWS", len(X))
        found = scan(fields, n_jobs=2)
    # Lists are no plain columns, so that these rows go through the checks.
    checked = label_rows(
        X, fields["y"].tolist(), kind=fields["kind"], population=fields["population"]
    )
    assert found is not None
    assert_array_equal(found.label, checked.label)
    assert_array_equal(found.cell, checked.cell)
    assert found.names == checked.names
    assert found.coding == checked.coding


def put(name, value, where=slice(5, 6)):
    def change(fields):
        column = fields[name].astype(object) if isinstance(value, str) else fields[name].copy()
        column[where] = value
        fields[name] = column.astype(str) if isinstance(value, str) else column

    return change


def other(name, make):
    def change(fields):
        fields[name] = make(fields[name])

    return change


UNUSUAL = {
    "a target row": put("kind", "target"),
    "a kind nobody knows": put("kind", "outcomes"),
    "a third population": put("population", "C"),
    "one population": put("population", "A", slice(None)),
    "an empty cell": lambda f: put("kind", "outcome", f["population"] == "B")(f),
    "a missing label": put("y", np.nan),
    "an infinite label": put("y", np.inf),
    "infinite labels of both signs": put("y", [np.inf, -np.inf], slice(5, 7)),
    "a third treatment": lambda f: put("y", 2.0, np.flatnonzero(f["kind"] == "treatment")[:1])(f),
    "mixed codes": lambda f: put("y", -1.0, np.flatnonzero(f["kind"] == "treatment")[:1])(f),
    "a constant outcome": lambda f: put("y", 3.0, f["kind"] == "outcome")(f),
    "a list": other("y", list),
    "labels as text": other("y", lambda y: y.astype(str)),
    "objects": other("population", lambda p: p.astype(object)),
    "fewer rows": other("kind", lambda k: k[:-1]),
    "a matrix": other("y", lambda y: y[:, None]),
}


@pytest.mark.parametrize("what", UNUSUAL)
@pytest.mark.parametrize("block", [4, 1000])
def test_it_leaves_the_unusual_to_the_checks(what, block, monkeypatch):
    monkeypatch.setattr(_label_scan, "CHUNK_ROWS", block)
    fields = draw(3)
    # Both codes occur, so that a treatment of -1 among them is one too many.
    fields["y"][np.flatnonzero(fields["kind"] == "treatment")] = np.resize([0.0, 1.0], 1)[0]
    fields["y"][np.flatnonzero(fields["kind"] == "treatment")[::2]] = 1.0
    assert scan(fields) is not None
    UNUSUAL[what](fields)
    n = len(fields["y"])
    assert scan_labels(fields["y"], fields["kind"], fields["population"], n) is None


def test_labels_too_large_for_arithmetic_are_left_to_the_checks():
    fields = draw(3)
    fields["y"][np.flatnonzero(fields["kind"] == "outcome")[:3]] = 1.7e308
    assert scan(fields) is None


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int16, np.uint64, "U1", "U30", ">i8"])
def test_populations_of_any_plain_type_are_told_apart(dtype):
    fields = draw(5)
    which = fields["population"] == "B"
    fields["population"] = which.astype(int).astype(dtype)
    found = scan(fields)
    assert_array_equal(found.cell % 2, which)
    assert found.names == np.unique(fields["population"]).tolist()


@pytest.mark.parametrize("cut", ["strided", "big-endian", "short"])
def test_columns_in_other_memory_are_read_as_well(cut):
    fields = draw(6)
    expected = scan(fields)
    if cut == "strided":
        fields = {name: np.repeat(column, 3)[::3] for name, column in fields.items()}
    elif cut == "big-endian":
        fields["y"] = fields["y"].astype(">f8")
        fields["kind"] = fields["kind"].astype(">U9")
    else:
        fields["kind"] = fields["kind"].astype("U7")  # no longer the words they were
        assert scan(fields) is None
        return
    found = scan(fields)
    assert_array_equal(found.label, expected.label)
    assert_array_equal(found.cell, expected.cell)


def test_labels_of_whole_numbers_are_numbers():
    fields = draw(7, binary=True)
    expected = scan(fields)
    fields["y"] = fields["y"].astype(np.int32)
    assert_array_equal(scan(fields).label, expected.label)


def test_treatments_that_never_vary_take_the_coding_the_checks_give_them():
    """All ones could be either coding, and mean the same in both."""
    for code, expected in ((1.0, 1.0), (0.0, -1.0), (-1.0, -1.0)):
        fields = draw(0)
        treatment = fields["kind"] == "treatment"
        fields["y"][treatment] = code
        assert_array_equal(scan(fields).label[treatment], expected)
