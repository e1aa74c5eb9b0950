"""Rows that are left out are left out of everything that is known of rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unjoined.basis import LinearBasis
from unjoined.data import label_rows, paper_problem
from unjoined.nuisance import weigh_shift
from unjoined.sums import accumulate


@pytest.mark.filterwarnings("ignore::unjoined.errors.OverlapWarning")
def test_rows_dropped_by_the_shift_take_their_cell_with_them():
    data = dict(paper_problem().draw(300, random_state=0))
    target = data["X"][data["X"][:, 0] > 0.0]
    # Plain arrays are looked at in one go, which notes the cell of each row; lists are not.
    plain, listed = label_rows(**data), label_rows(**data | {"y": data["y"].tolist()})
    sums = []
    for rows in (plain, listed):
        weighted, report = weigh_shift(rows, target, "rulsif", rng=np.random.RandomState(0))
        assert sum(cell.n_dropped for cell in report.cells) > 0
        assert len(weighted.cell) == len(weighted.X)
        basis = LinearBasis(weighted.X.shape[1])
        sums.append(accumulate(basis, basis.size, weighted))
    assert sums[0].cells.keys() == sums[1].cells.keys()
    for key, cell in sums[1].cells.items():
        assert sums[0].cells[key].n_rows == cell.n_rows
        assert_array_equal(sums[0].cells[key].gram, cell.gram)
