"""Whether all features are numbers."""

import numpy as np
import pytest

from unjoined import _threads as _finite
from unjoined._threads import all_finite


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 6, 7, 29])
def test_one_bad_number_anywhere_is_found(monkeypatch, n_jobs, bad, row):
    monkeypatch.setattr(_finite, "CHUNK_ROWS", 7)
    X = np.random.default_rng(0).standard_normal((30, 3))
    assert all_finite(X, n_jobs=n_jobs)
    X[row, 1] = bad
    assert not all_finite(X, n_jobs=n_jobs)


def test_numbers_whose_sum_is_beyond_all_numbers_are_numbers():
    assert all_finite(np.full((3, 2), 1.7e308))
    assert not all_finite(np.array([[np.inf, -np.inf]]))


def test_no_rows_hold_nothing_bad():
    assert all_finite(np.empty((0, 3)))
