"""Some rows of each table: distinct, in order, each as likely as any other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.model.census import sample_cells, take_sample

ROWS = label_rows(**paper_problem().draw(37, random_state=0))
CELLS = [(kind, k) for kind in ("outcome", "treatment") for k in (0, 1)]


def test_positions_are_those_of_the_cells():
    for at, cell in zip(ROWS.all_cells(), CELLS, strict=True):
        assert_array_equal(at, ROWS.at(*cell))


@pytest.mark.parametrize("most", [1, 5, 36, 37, 1000])
def test_rows_are_distinct_in_order_and_all_if_there_are_few(most):
    cells = ROWS.all_cells()
    for at, cell in zip(sample_cells(cells, most, np.random.RandomState(0)), cells, strict=True):
        assert len(at) == min(most, len(cell))
        assert (np.diff(at) > 0).all()
        assert np.isin(at, cell).all()


def test_every_row_is_as_likely_as_any_other():
    """Counts of 4,000 draws of 5 out of 37 rows, within five standard errors of their mean."""
    rng, cell = np.random.RandomState(0), np.arange(37)
    counts = np.zeros(37)
    for _ in range(4000):
        counts[sample_cells([cell], 5, rng)[0]] += 1
    share = 5 / 37
    assert np.abs(counts - 4000 * share).max() < 5.0 * np.sqrt(4000 * share * (1 - share))


def test_a_sample_has_the_weight_of_all_rows():
    sample, at = take_sample(ROWS, 10, np.random.RandomState(0))
    assert_allclose(sample.X, ROWS.X[at])
    for cell in CELLS:
        assert_allclose(sample.weight[sample.at(*cell)].sum(), 37.0)
