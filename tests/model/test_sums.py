"""Sums of one cell: a commutative group under merging, and the textbook sums."""

from dataclasses import FrozenInstanceError, replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.data.rows import LabelledRows
from unjoined.model.accumulate import accumulate
from unjoined.model.moments import MomentSums

N, P = 60, 4
QUICK = settings(max_examples=50, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
FIELDS = ("n_rows", "weight", "weight_square", "label_basis", "gram", "label_cross")
LABELS = {
    "unit": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "all treated": lambda rng, n: np.ones(n),
    "none treated": lambda rng, n: -np.ones(n),
    "real": lambda rng, n: rng.standard_normal(n),
    "with zeros": lambda rng, n: rng.choice([-2.0, 0.0, 1.0], n),
}
WEIGHTS = {
    "ones": lambda rng, n: np.ones(n),
    "real": lambda rng, n: rng.uniform(0.0, 3.0, n),
    "with zeros": lambda rng, n: rng.choice([0.0, 2.0], n),
}


def plain_sums(phi, label, weight, *, cross=True):
    """Sums of rows that are their own basis values; those of treatments have cross products."""
    cell = np.full(len(phi), 2 if cross else 0, dtype=np.uint8)
    rows = LabelledRows(
        phi, label, cell, weight, ["A", "B"], coding=None
    )  # labels are added as is
    sums = accumulate(lambda X: X, phi.shape[1], rows)
    return sums.total("treatment" if cross else "outcome", 0)


def draw_rows(seed, n=N, *, labels="real", weights="real"):
    """Return basis values, labels and weights that cannot be written to."""
    rng = np.random.default_rng(seed)
    drawn = (
        rng.standard_normal((n, P)),
        LABELS[labels](rng, n),
        WEIGHTS[weights](rng, n),
    )
    for array in drawn:
        array.setflags(write=False)
    return drawn


def sums_of(rows, at=slice(None), *, cross=True):
    phi, label, weight = (array[at] for array in rows)
    return plain_sums(phi, label, weight, cross=cross)


def assert_close(one, other):
    """Equal up to 1e-12 of the largest entry: N eps is 1e-14."""
    assert one.n_rows == other.n_rows
    for name in FIELDS[1:]:
        expected = np.asarray(getattr(other, name))
        scale = max(1.0, float(np.abs(expected).max()))
        assert_allclose(getattr(one, name), expected, rtol=0, atol=1e-12 * scale)


def assert_equal(one, other):
    for name in FIELDS:
        assert_array_equal(getattr(one, name), getattr(other, name))


def test_sums_are_the_textbook_sums():
    """Unit labels take the symmetric form S+ - S-, others a second update: the same sums."""
    for weights in WEIGHTS:
        for labels in LABELS:
            phi, label, weight = rows = draw_rows(0, labels=labels, weights=weights)
            cross, linear, gram = np.zeros((P, P)), np.zeros(P), np.zeros((P, P))
            for x, y, r in zip(phi, label, weight, strict=True):
                cross += r * y * np.outer(x, x)
                linear += r * y * x
                gram += r * np.outer(x, x)
            square = float(sum(r**2 for r in weight))
            assert_close(
                sums_of(rows),
                MomentSums(N, float(sum(weight)), square, linear, gram, cross),
            )


def test_without_the_cross_product_only_that_is_missing():
    rows = draw_rows(1)
    full, short = sums_of(rows), sums_of(rows, cross=False)
    assert_array_equal(short.label_cross, np.zeros((P, P)))
    assert_close(short, replace(full, label_cross=0 * full.label_cross))


def test_matrices_are_symmetric_to_the_bit():
    for cross in (True, False):
        for labels in LABELS:
            sums = sums_of(draw_rows(2, labels=labels), cross=cross)
            assert_array_equal(sums.gram, sums.gram.T)
            assert_array_equal(sums.label_cross, sums.label_cross.T)


@QUICK
@given(SEEDS, st.lists(st.integers(0, N), max_size=6), st.sampled_from(list(LABELS)))
def test_sums_do_not_depend_on_how_rows_are_chunked(seed, cuts, labels):
    """Any split of the rows, empty chunks included, merges to the one-pass sums."""
    rows = draw_rows(seed, labels=labels)
    edges = [0, *sorted(cuts), N]
    chunks = [sums_of(rows, slice(i, j)) for i, j in pairwise(edges)]
    assert_close(reduce(add, chunks, MomentSums.zero(P)), sums_of(rows))


@QUICK
@given(SEEDS)
def test_merging_is_commutative_and_zero_is_neutral_to_the_bit(seed):
    one, other = sums_of(draw_rows(seed)), sums_of(draw_rows(seed + 1))
    assert_equal(one + other, other + one)
    assert_equal(one + MomentSums.zero(P), one)
    assert_equal(MomentSums.zero(P) + one, one)


@QUICK
@given(SEEDS)
def test_merging_is_associative(seed):
    a, b, c = (sums_of(draw_rows(seed + i)) for i in range(3))
    assert_close((a + b) + c, a + (b + c))


@QUICK
@given(SEEDS, st.sampled_from(list(LABELS)))
def test_whole_weights_equal_repeated_rows(seed, labels):
    phi, label, _ = draw_rows(seed, labels=labels)
    times = np.random.default_rng(seed).integers(0, 4, N)
    weighted = sums_of((phi, label, times.astype(float)))
    repeated = sums_of(
        (np.repeat(phi, times, axis=0), np.repeat(label, times), np.ones(times.sum()))
    )
    # What rows of equal weight would do, other weights do not: these are fewer effective rows.
    assert weighted.effective_rows <= N
    assert_close(
        weighted, replace(repeated, n_rows=N, weight_square=float(times @ times))
    )


@pytest.mark.parametrize("cross", [True, False])
def test_no_rows_have_the_neutral_sums(cross):
    assert_equal(sums_of(draw_rows(0), slice(0, 0), cross=cross), MomentSums.zero(P))


def test_merging_changes_neither_argument():
    one, other = sums_of(draw_rows(0)), sums_of(draw_rows(1))
    before = [np.copy(getattr(s, name)) for s in (one, other) for name in FIELDS]
    one + other
    after = [getattr(s, name) for s in (one, other) for name in FIELDS]
    for was, is_ in zip(before, after, strict=True):
        assert_array_equal(is_, was)
    with pytest.raises(FrozenInstanceError):
        one.weight = 0.0
