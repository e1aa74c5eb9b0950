"""The symmetric update by BLAS."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unjoined.errors import InputError
from unjoined.sums.moments import add_gram, mirrored


@pytest.mark.parametrize(("m", "p"), [(0, 3), (1, 1), (5, 3), (300, 40)])
def test_the_upper_triangle_gains_the_products_of_all_rows(m, p):
    rng = np.random.default_rng(m)
    phi, start = rng.standard_normal((m, p)), rng.standard_normal((p, p))
    phi.setflags(write=False)
    total = np.array(start, order="F")
    add_gram(phi, total)
    expected = start + sum((np.outer(x, x) for x in phi), np.zeros((p, p)))
    # m products of size about 1, and now and then 10, each rounded, added in any order.
    tolerance = 10 * max(m, 1) * np.finfo(np.float64).eps
    assert_allclose(np.triu(total), np.triu(expected), rtol=0, atol=tolerance)


def test_mirroring_takes_the_upper_triangle():
    total = np.asfortranarray(np.array([[1.0, 2.0, 3.0], [9.0, 4.0, 5.0], [9.0, 9.0, 6.0]]))
    found = mirrored(total)
    assert_array_equal(found, [[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    assert found.flags.c_contiguous
    assert total[1, 0] == 9.0


@pytest.mark.parametrize("total", [np.zeros((2, 2), order="F"), np.zeros((3, 3))])
def test_a_total_that_rows_do_not_fit_is_refused(total):
    with pytest.raises(InputError, match=r"rows in C order, shape \(5, 3\)"):
        add_gram(np.ones((5, 3)), total)
