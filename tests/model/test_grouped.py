"""Sums by kind, population and group, and the groups rows are hashed into."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.model.census import deal_groups
from unjoined.model.moments import CellKey, GroupedSums, MomentSums, hash_features, hash_with

P = 3
QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
KEYS = [CellKey(kind, k, g) for kind in ("outcome", "treatment") for k in (0, 1) for g in range(3)]
KEY_SETS = st.sets(st.sampled_from(KEYS))


def sums_of(seed, n=10):
    rng = np.random.default_rng(seed)
    cross, gram = rng.standard_normal((2, P, P))
    weight = rng.uniform(0, 2, n)
    square = float(weight @ weight)
    return MomentSums(n, float(weight.sum()), cross, rng.standard_normal(P), gram, square)


def grouped(keys, seed):
    return GroupedSums(P, {key: sums_of(seed + KEYS.index(key)) for key in keys})


def assert_close(one, other):
    """The same sums in every cell, absent keys being sums of no rows."""
    for key in {*one.cells, *other.cells}:
        a, b = (s.cells.get(key, MomentSums.zero(P)) for s in (one, other))
        assert a.n_rows == b.n_rows
        for name in ("weight", "label_cross", "label_basis", "gram", "weight_square"):
            assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=1e-12)


# --- sums -----------------------------------------------------------------------------------


@QUICK
@given(KEY_SETS, KEY_SETS, KEY_SETS, SEEDS)
def test_merging_is_associative_and_commutative_whichever_cells_are_there(a, b, c, seed):
    one, two, three = (grouped(keys, seed + 100 * i) for i, keys in enumerate((a, b, c)))
    assert_close((one + two) + three, one + (two + three))
    assert_close(one + two, two + one)
    assert set((one + two).cells) == a | b


@QUICK
@given(KEY_SETS, SEEDS)
def test_sums_without_cells_are_neutral(keys, seed):
    one = grouped(keys, seed)
    for merged in (one + GroupedSums(P), GroupedSums(P) + one):
        assert dict(merged.cells) == dict(one.cells)


@QUICK
@given(KEY_SETS, SEEDS)
def test_groups_partition_the_sums(keys, seed):
    one = grouped(keys, seed)
    assert one.groups == sorted({key.group for key in keys})
    again = GroupedSums(P)
    for group in one.groups:
        assert set(one.of_group(group).cells) == {key for key in keys if key.group == group}
        again = again + one.of_group(group)
    assert dict(again.cells) == dict(one.cells)


@QUICK
@given(KEY_SETS, SEEDS, st.sampled_from(["outcome", "treatment"]), st.integers(0, 1))
def test_a_total_adds_the_groups_of_its_cell_only(keys, seed, kind, population):
    one = grouped(keys, seed)
    mine = [key for key in keys if key[:2] == (kind, population)]
    total = one.total(kind, population)
    assert total.n_rows == 10 * len(mine)
    expected = sum((one.cells[key].gram for key in mine), np.zeros((P, P)))
    assert_allclose(total.gram, expected, rtol=0, atol=1e-12)


def test_the_cells_cannot_be_changed_from_outside():
    given_ = {KEYS[0]: sums_of(0)}
    one = GroupedSums(P, given_)
    given_[KEYS[1]] = sums_of(1)
    assert list(one.cells) == KEYS[:1]
    with pytest.raises(TypeError, match="does not support item assignment"):
        one.cells[KEYS[1]] = sums_of(1)


def test_merging_changes_neither_argument():
    one, other = grouped(KEYS[:2], 0), grouped(KEYS[1:3], 50)
    before = [(dict(s.cells), {k: v.gram.copy() for k, v in s.cells.items()}) for s in (one, other)]
    one + other
    for sums, (cells, grams) in zip((one, other), before, strict=True):
        assert dict(sums.cells) == cells
        for key, gram in grams.items():
            assert_array_equal(sums.cells[key].gram, gram)


@pytest.mark.parametrize(
    "round_trip",
    [lambda sums: pickle.loads(pickle.dumps(sums)), copy.deepcopy],  # noqa: S301
    ids=["pickle", "deepcopy"],
)
def test_sums_can_be_sent_to_another_process(round_trip):
    one = grouped(KEYS[:3], 0)
    again = round_trip(one)
    assert again.p == P
    assert set(again.cells) == set(one.cells)
    assert_close(again, one)


# --- hashes and groups ------------------------------------------------------------------------


def draw_rows(seed, n=200, d=3):
    rng = np.random.default_rng(seed)
    # Few values, so that zeros, equal entries and equal rows occur.
    return rng.integers(-2, 3, (n, d)).astype(float), rng.choice([-1.0, 1.0], n)


def hashes(X, label):
    return hash_with(hash_features(X), label)


@QUICK
@given(SEEDS)
def test_a_hash_depends_on_the_content_of_the_row_only(seed):
    X, label = draw_rows(seed)
    expected = hashes(X, label)
    order = np.random.default_rng(seed).permutation(len(X))
    assert_array_equal(hashes(X[order], label[order]), expected[order])
    for layout in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        assert_array_equal(hashes(layout, label), expected)
    assert (X == 0.0).any()
    assert_array_equal(hashes(np.where(X == 0.0, -0.0, X), label), expected)
    distinct = np.unique(np.column_stack([X, label]), axis=0)
    assert len(np.unique(expected)) == len(distinct)


@pytest.mark.parametrize("change", ["feature", "order", "label"])
def test_rows_that_differ_have_other_hashes(change):
    rng = np.random.default_rng(0)
    X, label = rng.standard_normal((5000, 2)), np.ones(5000)
    other = {
        "feature": lambda: hashes(X + 1e-9, label),
        "order": lambda: hashes(X[:, ::-1], label),
        "label": lambda: hashes(X, -label),
    }[change]()
    assert not np.any(hashes(X, label) == other)


def test_no_rows_have_no_hashes():
    assert hashes(np.empty((0, 2)), np.empty(0)).shape == (0,)


def test_groups_are_the_same_on_every_machine():
    """Fixed once and for all: stored sums of different machines are merged by group."""
    numbers = [0, 1, 6, 7, 8, 10**6, 2**52]
    expected = [(number + reference_hash(number // 7)) % 7 for number in numbers]
    assert deal_groups(np.array(numbers), 7).tolist() == expected


def reference_hash(*values):
    """Return the hash by SplitMix64 in whole numbers, without numpy's wrap-around."""
    mask, state = 2**64 - 1, 0
    for value in values:
        state ^= int.from_bytes(np.float64(value).tobytes(), "little")
        state = (state + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state


def test_hashes_are_the_same_on_every_machine():
    X = np.array([[0.0, 0.0], [1.0, 2.0], [-1.5, 1e300], [0.1, -7.0]])
    label = np.array([1.0, -1.0, 0.5, 1.0])
    expected = [reference_hash(*row, y) for row, y in zip(X.tolist(), label, strict=True)]
    assert hashes(X, label).tolist() == expected
