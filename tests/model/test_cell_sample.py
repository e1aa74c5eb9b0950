"""Some rows of each table: distinct, in order, each as likely as any other."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.model.census import take_sample

ROWS = label_rows(**paper_problem().draw(37, random_state=0))
CELLS = [(kind, k) for kind in ("outcome", "treatment") for k in (0, 1)]


def test_positions_are_those_of_the_cells():
    for at, cell in zip(ROWS.all_cells(), CELLS, strict=True):
        assert_array_equal(at, ROWS.at(*cell))


def test_rows_are_distinct_in_order_and_all_if_there_are_few():
    for most in (1, 5, 36, 37, 1000):
        sample, at = take_sample(ROWS, most, np.random.RandomState(0))
        for own, cell in zip(sample.all_cells(), ROWS.all_cells(), strict=True):
            assert len(own) == min(most, len(cell))
            assert (np.diff(at[own]) > 0).all()
            assert np.isin(at[own], cell).all()


def test_a_sample_has_the_weight_of_all_rows():
    sample, at = take_sample(ROWS, 10, np.random.RandomState(0))
    assert_allclose(sample.X, ROWS.X[at])
    for cell in CELLS:
        assert_allclose(sample.weight[sample.at(*cell)].sum(), 37.0)
