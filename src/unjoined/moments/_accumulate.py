"""One pass over rows in memory, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.errors import InputError
from unjoined.moments._grouped import CellKey, GroupedSums, stable_groups
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sums import MomentSums

__all__ = ["accumulate", "n_threads"]

# A few thousand rows of a hundred basis values are a few megabytes: large enough for BLAS to
# run at speed, small enough to stay in the cache between the exponentials and the update.
CHUNK_ROWS = 4096


def accumulate(
    basis: Callable[[Array], Array],
    p: int,
    rows: LabelledRows,
    *,
    n_groups: int = 1,
    groups: IntArray | None = None,
    n_jobs: int | None = None,
) -> GroupedSums:
    """Return the sums of ``rows`` per kind, population and group, in one pass.

    Parameters
    ----------
    basis : callable
        Maps features (m, d) to basis values (m, p).
    p : int
        Number of basis functions.
    rows : LabelledRows
        Rows of the four cells.
    n_groups : int, default=1
        Number of groups rows are hashed into.
    groups : array of shape (n,), optional
        The group of each row, if groups were dealt rather than hashed.
    n_jobs : int or None, default=None
        Threads, counted as scikit-learn does: None is one, -1 all cores, -2 all but one. The
        result does not depend on it, to the bit: chunks are fixed and merged in order.

    Notes
    -----
    Costs O(n (p^2 + p d)) time and O(p^2) memory per cell, group and thread, beside the rows.
    """
    if groups is None:
        groups = (
            np.zeros(len(rows.X), dtype=np.int64)
            if n_groups == 1
            else stable_groups(rows.X, rows.label, n_groups)
        )

    def sums_of(task: tuple[CellKey, IntArray]) -> GroupedSums:
        key, at = task
        sums = MomentSums.of_rows(
            basis(rows.X[at]), rows.label[at], rows.weight[at], cross=key.kind == TREATMENT
        )
        return GroupedSums(p, {key: sums})

    total = GroupedSums(p)
    # Threads over chunks beat threads inside BLAS: the exponentials run in parallel too.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(n_threads(n_jobs)) as pool,
    ):
        for part in pool.map(sums_of, _chunks(rows, groups)):
            total = total.merge(part)
    return total


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that scikit-learn's ``n_jobs`` stands for."""
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return n_jobs
    if n_jobs == 0:
        raise InputError("n_jobs must not be 0: None is one thread, -1 all cores.")
    usable = getattr(os, "sched_getaffinity", None)  # fewer than the machine's in a container
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(cores + 1 + n_jobs, 1)


def _chunks(rows: LabelledRows, groups: IntArray) -> Iterator[tuple[CellKey, IntArray]]:
    """Cut each cell and group into runs of rows with labels of one sign."""
    for kind in (OUTCOME, TREATMENT):
        for population in (0, 1):
            cell = rows.at(kind, population)
            for group in np.unique(groups[cell]):
                at = cell[groups[cell] == group]
                positive = rows.label[at] > 0.0
                key = CellKey(kind, population, int(group))
                for run in (at[positive], at[~positive]) if kind == TREATMENT else (at,):
                    for start in range(0, len(run), CHUNK_ROWS):
                        yield key, run[start : start + CHUNK_ROWS]
