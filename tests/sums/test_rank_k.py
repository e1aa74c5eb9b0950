"""The symmetric update: by BLAS where it is found, by numpy else, the same sums."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import cython_blas

from unjoined.errors import InputError
from unjoined.sums import moments as _rank_k
from unjoined.sums.moments import add_gram, find_syrk, mirrored


@pytest.mark.parametrize("found", [True, False], ids=["BLAS", "numpy"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "p"), [(0, 3), (1, 1), (5, 3), (300, 40)])
def test_the_upper_triangle_gains_the_products_of_all_rows(monkeypatch, found, dtype, m, p):
    if not found:
        monkeypatch.setattr(_rank_k, "_dsyrk", None)
        monkeypatch.setattr(_rank_k, "_ssyrk", None)
    rng = np.random.default_rng(m)
    phi, start = rng.standard_normal((m, p)).astype(dtype), rng.standard_normal((p, p))
    phi.setflags(write=False)
    total = np.array(start, order="F")
    add_gram(phi, total)
    exact = phi.astype(np.float64)
    expected = start + sum((np.outer(x, x) for x in exact), np.zeros((p, p)))
    # m products of size about 1, and now and then 10, each rounded, added in any order.
    tolerance = 10 * max(m, 1) * np.finfo(dtype).eps
    assert_allclose(np.triu(total), np.triu(expected), rtol=0, atol=tolerance)


def test_blas_is_found_where_its_arguments_are_the_known_ones():
    """Else a build with other integers would read beyond its arguments."""
    api = cython_blas.__pyx_capi__
    for letter in "ds":
        assert find_syrk(api, letter) is not None
        assert find_syrk(api, letter, "void (char *)") is None
        assert find_syrk({f"{letter}syrk": api["dgemm"]}, letter) is None
        assert find_syrk({}, letter) is None
    assert find_syrk({"ssyrk": api["dsyrk"]}, "s") is None


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
