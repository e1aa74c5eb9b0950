"""Threads over fixed pieces of work, and the one look whether all features are numbers."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from numbers import Integral
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from unjoined._typing import Array
from unjoined.errors import InputError

LINE = 64  # bytes that the processor moves together
CHUNK_ROWS = 65_536  # rows read or looked at together: of ten features, 5 megabytes
CACHE_ROWS = (
    8192  # rows worked on together, at the most, for their values to stay in the cache
)
Task = TypeVar("Task")
Result = TypeVar("Result")


@cache
def _blas() -> ThreadpoolController:
    # Finding the libraries takes longer than summing up a hundred thousand rows, and those of
    # numpy and scipy, the only ones used inside, are there from the start.
    return ThreadpoolController()


class _OneBlasThread:
    """The limit is the whole process's: the first one in sets it, the last one out lifts it.

    So a context inside another costs nothing, and threads that enter and leave as they please
    leave the limit as the first one found it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: AbstractContextManager[object] = nullcontext()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.__exit__(None, None, None)


_ONE_BLAS_THREAD = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which matrix products and factors run on one thread each."""
    return _ONE_BLAS_THREAD


def over_pieces(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_jobs: int | None
) -> Iterator[Result]:
    """Yield ``function`` of every task, in the order of the tasks.

    BLAS runs on one thread in any case, so that results do not depend on ``n_jobs``. Threads over
    pieces beat threads inside BLAS, since exponentials run in parallel too.
    """
    threads = min(n_threads(n_jobs), len(tasks))
    with one_blas_thread():
        if threads <= 1:
            yield from map(function, tasks)
        else:
            with ThreadPoolExecutor(threads) as pool:
                yield from pool.map(function, tasks)


class Scratch(threading.local):
    """Arrays that each thread writes over again and again.

    Fresh memory costs more time than much of what is computed in it, and arrays that begin with
    a cache line take a twentieth off the whole pass (``benchmarks/moments.py``).
    """

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def array(self, name: str, *shape: int) -> Array:
        """Return an array of this shape, holding whatever it holds, in C order."""
        n = math.prod(shape)
        held = self._held.get(name)
        if held is None or len(held) < n:
            raw = np.empty(n + LINE // 8)
            held = self._held[name] = raw[-raw.ctypes.data % LINE // 8 :]
        return held[:n].reshape(shape)


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that scikit-learn's ``n_jobs`` stands for."""
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral):
        raise InputError(f"n_jobs must be a whole number or None, got {n_jobs!r}.")
    if n_jobs > 0:
        return int(n_jobs)
    if n_jobs == 0:
        raise InputError("n_jobs must not be 0: None is one thread, -1 all cores.")
    usable = getattr(
        os, "sched_getaffinity", None
    )  # fewer than the machine's in a container
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(cores + 1 + int(n_jobs), 1)


def all_finite(X: Array, *, n_jobs: int | None = None) -> bool:
    """Whether no feature is missing or infinite, by sums, which are finite if their terms are."""

    def block_is_finite(start: int) -> bool:
        block = X[start : start + CHUNK_ROWS]
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()
        return bool(np.isfinite(total) or np.isfinite(block).all())

    return all(over_pieces(block_is_finite, range(0, len(X), CHUNK_ROWS), n_jobs))


def all_within(X: Array, limit: float, *, n_jobs: int | None = None) -> bool:
    """Whether all features are numbers from ``-limit`` to ``limit``; the same pass, of extremes."""

    def block_is_within(start: int) -> bool:
        block = X[start : start + CHUNK_ROWS]
        return bool(
            -limit <= block.min(initial=0.0) and block.max(initial=0.0) <= limit
        )

    return all(over_pieces(block_is_within, range(0, len(X), CHUNK_ROWS), n_jobs))
