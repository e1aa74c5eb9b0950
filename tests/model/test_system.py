"""The averages A, b, C against the formulas of the paper, row by row."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from unjoined.data.rows import label_rows, separate_labels
from unjoined.model import LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.minmax import assemble

P = 3
BASIS = LinearBasis(P - 1)
QUICK = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.lists(st.integers(3, 15), min_size=4, max_size=4)


def kinds(fields):
    """Return which label each row has, in words."""
    return np.where(np.isnan(fields["y"]), "treatment", "outcome")


CELLS = [(kind, k) for kind in ("outcome", "treatment") for k in (1, 2)]


def draw(seed, sizes):
    """Return rows with real outcomes, treatments -1/+1, populations 1 and 2."""
    rng = np.random.default_rng(seed)
    kind = np.repeat([cell[0] for cell in CELLS], sizes)
    y = np.where(
        kind == "outcome",
        rng.standard_normal(len(kind)),
        rng.choice([-1.0, 1.0], len(kind)),
    )
    return {
        "X": rng.standard_normal((len(kind), P - 1)),
        **separate_labels(y, kind),
        "population": np.repeat([cell[1] for cell in CELLS], sizes),
    }


def system_of(fields, **options):
    return assemble(accumulate(BASIS, P, label_rows(**fields), **options))


def by_the_paper(fields, *, unequal):
    """Return A, b, C by a loop over rows; ``unequal`` multiplies rows by n / (2 n_k)."""
    kind, population = kinds(fields), fields["population"]
    A, b, C = np.zeros((P, P)), np.zeros(P), np.zeros((P, P))
    labels = np.where(kind == "outcome", fields["y"], fields["treatment"])
    for x, label, which, k in zip(fields["X"], labels, kind, population, strict=True):
        phi = np.array([1.0, *x])
        n = np.sum(kind == which)
        r = n / (2 * np.sum((kind == which) & (population == k))) if unequal else 1.0
        signed = (-1) ** (k - 1) * label
        if which == "treatment":
            A += r * signed * np.outer(phi, phi) / n
        else:
            b += r * signed * phi / n
        C += r * np.outer(phi, phi) / (2 * n)
    return A, b, C


def assert_system(system, expected):
    for got, value in zip((system.A, system.b, system.C), expected, strict=True):
        assert_allclose(got, value, rtol=0, atol=1e-12)


@QUICK
@given(SEEDS, st.integers(3, 15), st.integers(3, 15))
def test_cells_of_equal_sizes_give_the_formulas_of_section_4_2(
    seed, n_outcome, n_treatment
):
    """Outcome and treatment tables may differ in size; the populations do not."""
    fields = draw(seed, [n_outcome, n_outcome, n_treatment, n_treatment])
    assert_system(system_of(fields), by_the_paper(fields, unequal=False))


@QUICK
@given(SEEDS, SIZES)
def test_cells_of_unequal_sizes_get_the_weights_of_the_appendix(seed, sizes):
    fields = draw(seed, sizes)
    assert_system(system_of(fields), by_the_paper(fields, unequal=True))


@QUICK
@given(SEEDS, SIZES, st.integers(0, 3), st.integers(2, 4))
def test_repeating_all_rows_of_one_cell_changes_nothing(seed, sizes, cell, times):
    fields = draw(seed, sizes)
    kind, k = CELLS[cell]
    repeats = np.where((kinds(fields) == kind) & (fields["population"] == k), times, 1)
    repeated = {
        name: np.repeat(values, repeats, axis=0) for name, values in fields.items()
    }
    system = system_of(fields)
    assert_system(system_of(repeated), (system.A, system.b, system.C))


@QUICK
@given(SEEDS, SIZES)
def test_whole_weights_equal_repeated_rows(seed, sizes):
    fields = draw(seed, sizes)
    weight = np.random.default_rng(seed).integers(1, 4, len(fields["y"]))
    repeated = {
        name: np.repeat(values, weight, axis=0) for name, values in fields.items()
    }
    system = system_of({**fields, "sample_weight": weight})
    assert_system(system, by_the_paper(repeated, unequal=True))


@QUICK
@given(SEEDS, SIZES, st.floats(1e-3, 1e3), st.integers(0, 3))
def test_the_weight_of_a_whole_cell_does_not_matter(seed, sizes, factor, cell):
    """Whole numbers are left out: large ones are asked about, as they may be counts."""
    assume(factor % 1.0)
    fields = draw(seed, sizes)
    kind, k = CELLS[cell]
    weight = np.where(
        (kinds(fields) == kind) & (fields["population"] == k), factor, 1.0
    )
    system = system_of(fields)
    assert_system(
        system_of({**fields, "sample_weight": weight}), (system.A, system.b, system.C)
    )


@QUICK
@given(SEEDS, SIZES)
def test_exchanging_the_populations_turns_the_signs_of_w_and_z(seed, sizes):
    """w and z change sign together, so the uplift stays what it is."""
    fields = draw(seed, sizes)
    system = system_of(fields)
    exchanged = system_of({**fields, "population": 3 - fields["population"]})
    assert_system(exchanged, (-system.A, -system.b, system.C))


@QUICK
@given(SEEDS, SIZES, st.integers(2, 5))
def test_a_system_without_one_group_is_that_of_the_other_rows(seed, sizes, n_groups):
    """Leaving rows out is adding up the groups of the others."""
    fields = draw(seed, [10 * n for n in sizes])
    rows = label_rows(**fields)
    group = np.random.default_rng(seed).integers(0, n_groups, len(rows.X))
    sums = accumulate(BASIS, P, rows, groups=group)
    kept = np.flatnonzero(group != 0)
    expected = assemble(accumulate(BASIS, P, rows.take(kept)))
    without = assemble(sums.without(0))
    assert_system(without, (expected.A, expected.b, expected.C))
