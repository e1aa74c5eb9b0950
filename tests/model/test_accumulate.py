"""One pass over rows: the same sums whatever the threads, groups and order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model import accumulate as pieces
from unjoined.model.accumulate import CACHE_ROWS, accumulate, add_gram, chunk_rows
from unjoined.model.basis import ScaledBasis, Scaling
from unjoined.model.moments import MomentSums

FIELDS = ("n_rows", "weight", "weight_square", "label_basis", "gram", "label_cross")
CELLS = [(kind, k) for kind in ("outcome", "treatment") for k in (0, 1)]
P = 21
CENTERS, WIDTH = np.random.default_rng(0).normal(0.0, 3.0, (P, 2)), 3.0
SCALING = Scaling(np.array([1.0, -2.0]), np.array([2.0, 0.5]))
BASIS = ScaledBasis(GaussianBasis(CENTERS, WIDTH), SCALING)


def draw(n=200, seed=0, *, weighted=True):
    data = paper_problem().draw(n, random_state=seed)
    weight = (
        np.random.default_rng(seed).uniform(0.0, 2.0, data.n_rows) if weighted else None
    )
    return label_rows(**data, sample_weight=weight)


def dealt(rows, n_groups):
    """Groups that go with the rows, whatever their order."""
    return np.floor(1e6 * np.abs(rows.X[:, 0])).astype(np.int64) % n_groups


def assert_close(one, other):
    """Equal up to 1e-12 of the largest sum."""
    assert_array_equal(one.n_rows, other.n_rows)
    for name in FIELDS[1:]:
        expected = np.asarray(getattr(other, name))
        scale = max(1.0, float(np.abs(expected).max()))
        assert_allclose(getattr(one, name), expected, rtol=0, atol=1e-12 * scale)


def textbook(rows, at, kind):
    """Return the sums of some rows by general matrix products."""
    distance = (SCALING(rows.X[at])[:, None, :] - CENTERS) ** 2
    phi = np.exp(-distance.sum(axis=2) / WIDTH**2)
    label, weight = rows.label[at], rows.weight[at]
    cross = (phi * (weight * label)[:, None]).T @ phi
    return MomentSums(
        len(at),
        float(weight.sum()),
        float(weight @ weight),
        phi.T @ (weight * label),
        (phi * weight[:, None]).T @ phi,
        cross if kind == "treatment" else np.zeros_like(cross),
    )


def assert_groups_are_textbook(sums, rows, groups):
    """Every kind, population and group holds the sums of its rows."""
    for i, k, group in np.ndindex(sums.n_rows.shape):
        kind = ("outcome", "treatment")[i]
        at = rows.at(kind, k)
        assert_close(
            sums.at((i, k, group)), textbook(rows, at[groups[at] == group], kind)
        )


@pytest.mark.parametrize("weighted", [True, False])
def test_every_cell_holds_the_sums_of_its_rows(weighted):
    rows = draw(weighted=weighted)
    sums = accumulate(BASIS, P, rows)
    assert sums.groups == [0]
    for kind, k in CELLS:
        assert_close(sums.total(kind, k), textbook(rows, rows.at(kind, k), kind))


def test_every_group_holds_the_sums_of_its_rows():
    rows = draw()
    groups = dealt(rows, 4)
    sums = accumulate(BASIS, P, rows, groups=groups)
    assert sums.groups == [0, 1, 2, 3]
    assert_groups_are_textbook(sums, rows, groups)


@pytest.mark.parametrize("n_groups", [1, 3])
def test_the_result_does_not_depend_on_the_number_of_threads_to_the_bit(n_groups):
    rows = draw(2 * CACHE_ROWS + 17)
    one, two, again = (
        accumulate(BASIS, P, rows, groups=dealt(rows, n_groups), n_jobs=jobs)
        for jobs in (1, 2, 2)
    )
    for name in FIELDS:
        assert_array_equal(getattr(two, name), getattr(one, name))
        assert_array_equal(getattr(again, name), getattr(one, name))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 500), st.integers(0, 1000))
def test_any_number_of_groups_adds_up_to_the_same_totals(n_groups, seed):
    rows = draw(seed=seed)
    whole = accumulate(BASIS, P, rows)
    parts = accumulate(BASIS, P, rows, groups=dealt(rows, n_groups))
    for kind, k in CELLS:
        assert_close(parts.total(kind, k), whole.total(kind, k))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 10))
def test_the_order_of_rows_does_not_matter(seed, n_groups):
    data = paper_problem().draw(100, random_state=seed)
    order = np.random.default_rng(seed).permutation(data.n_rows)
    one, other = (
        accumulate(BASIS, P, rows, groups=dealt(rows, n_groups))
        for rows in (label_rows(**data), label_rows(**data.take(order)))
    )
    assert_close(other, one)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(4, 400), max_size=4))
def test_tables_read_in_parts_merge_to_the_sums_of_all_rows(seed, cuts):
    """Parts need not hold all four cells."""
    rows = draw(100, seed)
    total = accumulate(BASIS, P, rows, groups=dealt(rows, 2))
    part = np.searchsorted(np.sort(cuts), np.arange(len(rows.X)), side="right")
    merged = None
    for i in range(len(cuts) + 1):
        piece = rows.take(part == i)
        sums = accumulate(BASIS, P, piece, groups=dealt(piece, 2), n_groups=2)
        merged = sums if merged is None else merged + sums
    assert_close(merged, total)


def test_a_cell_longer_than_a_chunk_is_summed_whole():
    rows = draw(CACHE_ROWS + 1)
    sums = accumulate(LinearBasis(2), 3, rows)
    for kind, k in CELLS:
        at = rows.at(kind, k)
        total = sums.total(kind, k)
        assert total.n_rows == len(at)
        # The constant of the basis makes the first entries plain sums, n eps = 1e-12 exact.
        assert_allclose(total.gram[0, 0], rows.weight[at].sum(), rtol=1e-12)
        assert_allclose(
            total.label_basis[0],
            rows.weight[at] @ rows.label[at],
            rtol=0,
            atol=1e-12 * rows.weight[at].sum(),
        )


def test_the_rows_are_not_changed():
    rows = draw()
    before = {name: getattr(rows, name).copy() for name in ("X", "label", "weight")}
    accumulate(BASIS, P, rows, groups=dealt(rows, 3), n_jobs=2)
    for name, values in before.items():
        assert_array_equal(getattr(rows, name), values)


@pytest.mark.parametrize("labels", ["as they are", "centred"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sums_do_not_depend_on_blocks_pieces_and_chunks(limits, labels, n_jobs):
    """Cut at 7, some 50 and 300 rows, so that every kind of seam occurs."""
    rows = draw(150)
    if labels == "centred":
        rows = replace(rows, label=rows.label - 0.3 * np.tanh(rows.X[:, 0]))
    groups = np.arange(len(rows.X)) % 3
    whole = accumulate(BASIS, P, rows, groups=groups)
    limits("model.accumulate", BLOCK_ROWS=100, PIECE_ROWS=50, chunk_rows=lambda p: 7)
    cut = accumulate(BASIS, P, rows, groups=groups, n_jobs=n_jobs)
    assert_close(cut, whole)
    assert_groups_are_textbook(whole, rows, groups)


def test_rows_of_a_third_population_keep_to_themselves():
    """The first two have the sums they have without it."""
    rows = draw()
    third = np.arange(len(rows.X)) % 5 == 0
    cell = 3 * (rows.kind == "treatment") + np.where(third, 2, rows.population)
    three = replace(rows, cell=cell.astype(np.uint8), names=[*rows.names, "third"])
    sums, without = accumulate(BASIS, P, three), accumulate(BASIS, P, rows.take(~third))
    for kind, k in CELLS:
        assert_close(sums.total(kind, k), without.total(kind, k))
        assert_close(sums.total(kind, 2), textbook(three, three.at(kind, 2), kind))


def test_no_rows_have_no_sums():
    assert_close(
        accumulate(BASIS, P, draw().take(np.arange(0))), MomentSums.zero(P, 2, 2, 1)
    )


def test_a_basis_may_keep_the_array_it_returns():
    """Rows are scaled in place, in an array of the pass, never in the basis' own."""
    kept = {}

    def keeping(X):
        if len(X) not in kept:
            kept[len(X)] = np.tile([1.0, 2.0], (len(X), 1))
        return kept[len(X)]

    rows = draw()
    sums = accumulate(keeping, 2, rows)
    total = sums.total("treatment", 0)
    assert_allclose(
        total.gram, np.outer([1.0, 2.0], [1.0, 2.0]) * total.weight, rtol=1e-12
    )
    for array in kept.values():
        assert_array_equal(array, np.tile([1.0, 2.0], (len(array), 1)))


def test_even_parts_of_a_run_are_about_as_large_as_a_piece():
    """Rows of one cell and sign: none is lost, and none of the parts is a mere rest."""
    n = 8 * pieces.PIECE_ROWS
    rows = draw(10).take(np.zeros(n, dtype=int))
    for size in (pieces.PIECE_ROWS + 1, 3 * pieces.PIECE_ROWS - 1, n):
        found = pieces.block_pieces(rows, None, 0, size)
        assert_array_equal(
            np.concatenate([piece.at for piece in found]), np.arange(size)
        )
        lengths = [len(piece.at) for piece in found]
        assert max(lengths) - min(lengths) <= 1
        assert (
            pieces.PIECE_ROWS / 1.5
            <= min(lengths)
            <= max(lengths)
            <= 1.5 * pieces.PIECE_ROWS
        )


def test_rows_may_lie_in_memory_as_they_like():
    for memory in ("F", "strided", "integer labels"):
        rows = draw(100)
        X, label = rows.X, rows.label
        if memory == "F":
            X = np.asfortranarray(X)
        elif memory == "strided":
            X, label = (np.repeat(array, 2, axis=0)[::2] for array in (X, label))
        else:
            rows = replace(rows, label=np.round(label))
            label = rows.label.astype(np.int64)
        found, expected = (
            accumulate(BASIS, P, r) for r in (replace(rows, X=X, label=label), rows)
        )
        assert_close(found, expected)


def test_chunks_keep_to_a_size_in_memory_within_limits():
    assert [chunk_rows(p) for p in (1, 100, 300, 10_000)] == [
        CACHE_ROWS,
        1024,
        341,
        256,
    ]


def test_no_threads_are_refused():
    with pytest.raises(
        InputError, match="n_jobs must not be 0: None is one thread, -1 all cores"
    ):
        accumulate(BASIS, P, draw(), n_jobs=0)


def test_the_upper_triangle_gains_the_products_of_all_rows():
    for m, p in ((0, 3), (1, 1), (5, 3), (300, 40)):
        rng = np.random.default_rng(m)
        phi, start = rng.standard_normal((m, p)), rng.standard_normal((p, p))
        phi.setflags(write=False)
        total = np.array(start, order="F")
        add_gram(phi, total)
        expected = start + sum((np.outer(x, x) for x in phi), np.zeros((p, p)))
        # m products of size about 1, and now and then 10, each rounded, added in any order.
        tolerance = 10 * max(m, 1) * np.finfo(np.float64).eps
        assert_allclose(np.triu(total), np.triu(expected), rtol=0, atol=tolerance)
