"""Threads over pieces: results in order, errors passed on, memory of their own."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from unjoined._threads import LINE, Scratch, all_finite, n_threads, over_pieces
from unjoined.errors import InputError


def blas_threads():
    return {
        lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"
    }


@pytest.mark.parametrize("n_jobs", [None, 1, 3, -1])
def test_results_come_in_the_order_of_the_tasks(n_jobs):
    assert list(over_pieces(lambda i: i**2, range(20), n_jobs)) == [
        i**2 for i in range(20)
    ]
    assert list(over_pieces(lambda i: i**2, [], n_jobs)) == []


@pytest.fixture
def two_threads():
    """BLAS on two threads, whatever the tests were started with."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.usefixtures("two_threads")
def test_blas_runs_on_one_thread_inside_and_as_before_afterwards(n_jobs):
    assert all(
        found == {1}
        for found in over_pieces(lambda _: blas_threads(), range(3), n_jobs)
    )
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_two_at_once_end_in_any_order_and_leave_blas_as_it_was():
    one, two = (over_pieces(lambda _: blas_threads(), range(2), 1) for _ in range(2))
    assert next(one) == next(two) == {1}
    one.close()
    assert next(two) == {1}
    two.close()
    assert blas_threads() == {2}


def test_tasks_run_at_the_same_time():
    """Each of two waits for the other, which one thread would do in vain."""
    both = threading.Barrier(2)
    assert sorted(over_pieces(lambda _: both.wait(timeout=60.0), range(2), 2)) == [0, 1]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_a_task_reaches_the_caller(n_jobs):
    with pytest.raises(ZeroDivisionError):
        list(over_pieces(lambda i: 1 // i, range(3), n_jobs))


def test_scratch_is_reused_in_a_thread_and_not_shared_with_another():
    scratch = Scratch()
    one = scratch.array("values", 4, 3)
    assert np.shares_memory(scratch.array("values", 2, 5), one)
    assert not np.shares_memory(scratch.array("columns", 4, 3), one)
    assert not np.shares_memory(scratch.array("values", 40, 3), one)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: scratch.array("values", 4, 3)).result()
    assert not np.shares_memory(other, one)
    assert not np.shares_memory(other, scratch.array("values", 4, 3))


def test_scratch_begins_with_a_cache_line():
    for n in (1, 7, 1000):
        array = Scratch().array("values", n, 3)
        assert array.shape == (n, 3)
        assert array.flags.c_contiguous
        assert array.ctypes.data % LINE == 0


@pytest.mark.parametrize("affinity", [True, False])
def test_threads_are_counted_as_scikit_learn_counts_jobs(monkeypatch, affinity):
    """Cores are those this process may use, where the system tells."""
    if affinity:
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False
        )
    else:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: 3)
    asked = [None, 1, 5, -1, -2, -3, -4, -100]
    assert [n_threads(n) for n in asked] == [1, 1, 5, 3, 2, 1, 1, 1]


def test_a_machine_that_does_not_count_its_cores_has_one(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert n_threads(-1) == 1


def test_no_threads_are_refused():
    with pytest.raises(
        InputError, match="n_jobs must not be 0: None is one thread, -1 all cores"
    ):
        list(over_pieces(abs, range(2), 0))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_one_bad_number_anywhere_is_found(limits, n_jobs):
    limits("_threads", CHUNK_ROWS=7)
    X = np.random.default_rng(0).standard_normal((30, 3))
    assert all_finite(X, n_jobs=n_jobs)
    for row, bad in product((0, 6, 7, 29), (np.nan, np.inf, -np.inf)):
        spoiled = X.copy()
        spoiled[row, 1] = bad
        assert not all_finite(spoiled, n_jobs=n_jobs), (row, bad)


def test_numbers_whose_sum_is_beyond_all_numbers_are_numbers():
    assert all_finite(np.full((3, 2), 1.7e308))
    assert not all_finite(np.array([[np.inf, -np.inf]]))


def test_no_rows_hold_nothing_bad():
    assert all_finite(np.empty((0, 3)))
