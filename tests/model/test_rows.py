"""Rows behind the checks: in the paper's coding, weighted so that each cell counts half."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined import SeparateLabels
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import LabelError

QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, *, n_target=0, weighted=False, names=("A", "B")):
    """Return the arguments of ``label_rows`` with cells of unequal sizes, in random order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 12, 2 * len(names))
    kinds = [kind for kind in ("outcome", "treatment") for _ in names]
    kind = np.repeat([*kinds, "target"], [*sizes, n_target])
    nobody = [""] * (n_target > 0)
    population = np.repeat(
        [*names, *names, *nobody], [*sizes, *[n_target] * (n_target > 0)]
    )
    n = len(kind)
    y = np.where(kind == "outcome", rng.standard_normal(n), rng.integers(0, 2, n))
    y[kind == "target"] = np.nan
    order = rng.permutation(n)
    fields = {
        "X": rng.standard_normal((n, 2)),
        **separate_labels(y, kind),
        "population": population,
    }
    if weighted:
        fields["sample_weight"] = rng.uniform(0.5, 2.0, n)
    return {name: values[order] for name, values in fields.items()}


def test_labels_are_in_the_coding_of_the_paper():
    fields = draw(0)
    rows = label_rows(**fields)
    treatment = rows.of_kind("treatment")
    assert_array_equal(
        rows.label[treatment], 2.0 * fields["treatment"][treatment] - 1.0
    )
    outcome = rows.of_kind("outcome")
    assert_array_equal(rows.label[outcome], fields["y"][outcome])
    assert rows.names == ["A", "B"]
    assert_array_equal(rows.sign, np.where(fields["population"] == "A", 1.0, -1.0))


@QUICK
@given(SEEDS, st.booleans())
def test_cells_are_kinds_and_populations_in_one_also_of_some_rows(seed, weighted):
    """Plain columns are looked at all at once, those with weights one by one."""
    fields = draw(seed, weighted=weighted, names=("A", "B"))
    rows = label_rows(**fields)
    some = np.random.default_rng(seed).permutation(len(rows.X))[:9]
    for found, at in ((rows, slice(None)), (rows.take(some), some)):
        kinds = np.where(np.isnan(fields["y"]), "treatment", "outcome")
        assert_array_equal(found.kind, kinds[at])
        assert_array_equal(
            np.array(found.names)[found.population], fields["population"][at]
        )
        assert_array_equal(
            found.cell, 2 * (found.kind == "treatment") + found.population
        )
        for c, where in enumerate(found.all_cells()):
            assert_array_equal(where, np.flatnonzero(found.cell == c))


def test_populations_beyond_the_reach_of_a_byte_are_told_apart():
    names = [f"p{k:03}" for k in range(200)]
    kind, population = (
        np.repeat(["outcome", "treatment"], 400),
        np.tile(np.repeat(names, 2), 2),
    )
    rows = label_rows(
        np.zeros((800, 1)),
        **separate_labels(np.arange(800) % 2, kind),
        population=population,
    )
    assert_array_equal(np.array(rows.names)[rows.population], population)
    assert_array_equal(rows.kind, kind)
    assert_array_equal(rows.at("treatment", 150), [700, 701])


def test_outcomes_of_two_values_become_minus_and_plus_one():
    fields = draw(0)
    outcome = ~np.isnan(fields["y"])
    fields["y"][outcome] = np.where(fields["y"][outcome] > 0, 30.0, 10.0)
    rows = label_rows(**fields)
    assert_array_equal(
        rows.label[outcome], np.where(fields["y"][outcome] > 20, 1.0, -1.0)
    )
    assert (rows.coding.scale, rows.coding.offset) == (10.0, 20.0)


@QUICK
@given(SEEDS, st.booleans())
def test_shares_make_every_cell_count_half(seed, weighted):
    fields = draw(seed, weighted=weighted)
    rows = label_rows(**fields)
    for kind in ("outcome", "treatment"):
        for population in (0, 1):
            at = rows.at(kind, population)
            assert_allclose(rows.share[at].sum(), 0.5, rtol=1e-14)
            ratio = rows.share[at] / rows.weight[at]
            assert_allclose(ratio, ratio[0], rtol=1e-14)


@QUICK
@given(SEEDS)
def test_target_rows_and_rows_of_weight_zero_are_left_out(seed):
    fields = draw(seed, n_target=3, weighted=True)
    labelled = fields["population"] != ""
    fields["sample_weight"][np.flatnonzero(labelled)[0]] = 0.0
    used = labelled & (fields["sample_weight"] > 0.0)
    rows = label_rows(**fields)
    alone = label_rows(**{name: values[used] for name, values in fields.items()})
    for name in ("X", "label", "cell", "weight"):
        assert_array_equal(getattr(rows, name), getattr(alone, name))
    assert len(rows.X) == used.sum()


def test_codes_of_rows_that_weigh_nothing_do_not_matter():
    fields = draw(0, weighted=True)
    at = np.flatnonzero(~np.isnan(fields["treatment"]))[0]
    fields["treatment"][at] = 7.0
    with pytest.raises(LabelError, match="coded 0/1"):
        label_rows(**fields)
    fields["sample_weight"][at] = 0.0
    assert len(label_rows(**fields).X) == len(fields["y"]) - 1


@QUICK
@given(SEEDS)
def test_no_argument_is_changed(seed):
    data = SeparateLabels(**draw(seed, n_target=2, weighted=True))
    before = {name: np.copy(data[name]) for name in data}
    label_rows(**data)
    for name, values in before.items():
        assert_array_equal(data[name], values)


@QUICK
@given(SEEDS, st.booleans())
def test_of_three_populations_every_cell_counts_a_third(seed, weighted):
    rows = label_rows(**draw(seed, weighted=weighted, names=(3, 1, 2)))
    assert rows.names == [1, 2, 3]
    for kind in ("outcome", "treatment"):
        for population in range(3):
            at = rows.at(kind, population)
            assert_allclose(rows.share[at].sum(), 1 / 3, rtol=1e-14)
            ratio = rows.share[at] / rows.weight[at]
            assert_allclose(ratio, ratio[0], rtol=1e-14)


def test_one_population_is_refused():
    one = draw(0, names=("A",))
    with pytest.raises(
        LabelError, match=r"found 1: 'A' in .* cannot be identified from one"
    ):
        label_rows(**one)


def test_target_rows_of_positive_weight_are_returned_with_it():
    fields = draw(0, n_target=3, weighted=True)
    target = np.flatnonzero(fields["population"] == "")
    fields["sample_weight"][target[0]] = 0.0
    X, weight = SeparateLabels(**fields).checked.target(fields["X"])
    assert_array_equal(X, fields["X"][target[1:]])
    kept = fields["sample_weight"][target[1:]]
    assert_allclose(weight, kept / kept.mean(), rtol=1e-12)
    labelled = SeparateLabels(**fields).take(fields["population"] != "")
    assert labelled.checked.target(labelled.X) is None
