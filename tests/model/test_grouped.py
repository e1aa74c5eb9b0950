"""Sums by kind, population and group, and the groups rows are hashed into."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.data.fold import hash_features, hash_with
from unjoined.model.census import deal_groups
from unjoined.model.moments import MomentSums

P, CELLS = 3, (2, 3, 4)  # two kinds, three populations, four groups
FIELDS = ("n_rows", "weight", "weight_square", "label_basis", "gram", "label_cross")
QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def grouped(seed):
    rng = np.random.default_rng(seed)
    return MomentSums(
        rng.integers(1, 20, CELLS),
        rng.uniform(1.0, 9.0, CELLS),
        rng.uniform(1.0, 9.0, CELLS),
        rng.standard_normal((*CELLS, P)),
        rng.standard_normal((*CELLS, P, P)),
        rng.standard_normal((*CELLS, P, P)),
    )


def assert_close(one, other):
    for name in FIELDS:
        assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=1e-12)


@QUICK
@given(SEEDS, st.integers(0, 3))
def test_a_group_and_the_others_are_all_of_them(seed, group):
    one = grouped(seed)
    both = one.of_group(group).over_groups() + one.without(group).over_groups()
    assert_close(both, one.over_groups())
    assert one.groups == [0, 1, 2, 3]


@QUICK
@given(SEEDS, st.sampled_from(["outcome", "treatment"]), st.integers(0, 2))
def test_a_total_adds_the_groups_of_its_cell_only(seed, kind, population):
    one = grouped(seed)
    total, at = (
        one.total(kind, population),
        (["outcome", "treatment"].index(kind), population),
    )
    for name in FIELDS:
        parts = [getattr(one, name)[(*at, group)] for group in range(4)]
        assert_allclose(getattr(total, name), sum(parts), rtol=0, atol=1e-12)


@QUICK
@given(SEEDS)
def test_two_groups_of_populations_count_by_their_parts(seed):
    """Each side weighs one in either table; its sums are the parts' means."""
    one = grouped(seed)
    contrast = np.array([0.25, -1.0, 0.75])
    two = one.in_two_groups(contrast)
    assert_allclose(two.weight.sum(axis=2), 1.0)
    for i, kind in enumerate(("outcome", "treatment")):
        means = [one.total(kind, k).gram / one.total(kind, k).weight for k in range(3)]
        assert_allclose(two.gram[i, 0].sum(axis=0), 0.25 * means[0] + 0.75 * means[2])
        assert_allclose(two.gram[i, 1].sum(axis=0), means[1])
        effective = one.total(kind, 1).effective_rows
        assert_allclose(two.total(kind, 1).effective_rows, effective)
        assert_array_equal(two.n_rows[i, 0], one.n_rows[i, 0] + one.n_rows[i, 2])


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
    expected = [
        reference_hash(*row, y) for row, y in zip(X.tolist(), label, strict=True)
    ]
    assert hashes(X, label).tolist() == expected
