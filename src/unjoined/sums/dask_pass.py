"""Both passes of a fit as tree reductions over the partitions of a Dask collection.

A partition becomes a census or sums where it is; these are merged eight at a time, and one result
comes back. What all tasks share goes to each worker once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined._optional import import_extra
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data import Chunk, DaskSource, LabelledRows, connected
from unjoined.errors import TableError
from unjoined.sums.add_up import accumulate
from unjoined.sums.census import Census, RowSketch, census_of_chunk
from unjoined.sums.moments import CellKey, GroupedSums, HashArray, PolicySums, hash_features
from unjoined.sums.passes import add_batch, labelled_batches
from unjoined.sums.plan import PlannedSums, SumsPlan

FAN_IN = 8  # results that are merged at a time


Sums: TypeAlias = tuple[GroupedSums, PolicySums]


def dask_census(source: DaskSource, *, sample_rows: int) -> Census:
    """Go through a source once, as `take_census` does, on the workers if there are any.

    Parameters
    ----------
    source : DaskSource
        Rows of some or all cells.
    sample_rows : int
        Distinct rows to keep of every cell, at most. A worker holds that for each partition it
        works on and each result it merges.

    Raises
    ------
    TableError, LabelError, InputError
        A partition is malformed (the message names it), there are no rows, or no worker.
    """
    found: Census | None = _reduce(source, _census_part, sample_rows, _merge_censuses)
    if found is None or not found.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    return replace(found, feature_names=source.names)


def dask_sums(source: DaskSource, plan: SumsPlan, census: Census) -> PlannedSums:
    """Add up the sums of all rows, as `sum_source` does, on the workers if there are any.

    Parameters
    ----------
    source : DaskSource
        The rows of which ``census`` was taken.
    plan : SumsPlan
        Basis, scaling, centring, coding and groups.
    census : Census
        Tells which rows repeat and how treatments are coded.

    Raises
    ------
    TableError
        The rows are others than in the census.

    Notes
    -----
    Costs O(n (p^2 + p d)) time over all workers and O(p^2) memory per cell and group for each
    partition at work. Copies of a row are dealt evenly over the groups, which no partition can do
    alone. As they are equal, how many there are is enough: partitions leave them out, and their
    sums are made from the counts of the census.
    """
    found = _reduce(source, _sum_part, _Shared.of(plan, census), _merge_sums)
    repeated = _sums_of_repeated(plan, census)
    sums, policy = repeated if found is None else _merge_sums([found, repeated])
    n_rows = sum(cell.n_rows for cell in sums.cells.values())
    if n_rows != census.n_rows:
        raise TableError(
            f"the source has changed between the two passes: {census.n_rows:,} labelled rows, then "
            f"{n_rows:,}. Make sure that its partitions are the same each time they are computed, "
            "or persist it."
        )
    return PlannedSums(plan, sums, policy)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What a partition needs to become sums: the plan, and the census without its samples."""

    plan: SumsPlan
    census: Census
    repeated: dict[tuple[str, Any], HashArray]  # keys of the rows to leave out, ascending

    @classmethod
    def of(cls, plan: SumsPlan, census: Census) -> _Shared:
        repeated = {cell: sketch.repeated().keys for cell, sketch in census.cells.items()}
        none = {cell: RowSketch.zero(0, census.n_features) for cell in census.cells}
        return cls(plan, replace(census, cells=none), repeated)


def _census_part(chunk: Chunk, sample_rows: int) -> Census:
    return census_of_chunk(chunk, sample_rows=sample_rows)


def _merge_censuses(parts: list[Census]) -> Census:
    return reduce(Census.merge, parts)


def _sum_part(chunk: Chunk, shared: _Shared) -> Sums:
    plan = shared.plan
    total = PlannedSums(plan, GroupedSums(plan.size), PolicySums.zero(plan.n_features))
    for batch in labelled_batches([chunk], plan, shared.census):
        rest = batch.without(shared.repeated)
        if len(rest.rows):
            total = add_batch(total, rest, 1)
    return total.sums, total.policy  # without the plan, which need not travel back


def _merge_sums(parts: list[Sums]) -> Sums:
    sums = reduce(GroupedSums.merge, [part[0] for part in parts])
    return sums, reduce(PolicySums.merge, [part[1] for part in parts])


def _sums_of_repeated(plan: SumsPlan, census: Census) -> Sums:
    """Return the sums of all copies of the rows that repeat, from their counts."""
    total = GroupedSums(plan.size), PolicySums.zero(plan.n_features)
    names = list(plan.populations)
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(names):
            sketch = census.cells.get((kind, name))
            if sketch is None or not (sketch.count > 1).any():
                continue
            rows = sketch.rows(_cell(kind, k), names)
            place = census.places(rows, hash_features(rows.X))
            for group in range(plan.n_groups):
                copies = _copies_in(sketch, place, group, plan.n_groups)
                if copies.any():
                    part = _sums_of_copies(plan, census, sketch, copies, CellKey(kind, k, group))
                    total = _merge_sums([total, part])
    return total


def _copies_in(sketch: RowSketch, place: HashArray, group: int, n_groups: int) -> IntArray:
    """Return how many copies of each row fall into a group, 0 for rows that do not repeat.

    The n-th copy falls into group (place + n) mod ``n_groups``, as `RepeatedRows` deals them.
    """
    first = (place % np.uint64(n_groups)).astype(np.int64)
    rest = (group - first) % n_groups < sketch.count % n_groups
    return np.where(sketch.count > 1, sketch.count // n_groups + rest, 0)


def _sums_of_copies(
    plan: SumsPlan, census: Census, sketch: RowSketch, copies: IntArray, key: CellKey
) -> Sums:
    """Return the sums of one cell and group in which each row occurs ``copies`` times."""
    at = np.flatnonzero(copies)
    X, times, n = sketch.X[at], copies[at], len(at)
    mean: Array = np.where(sketch.uneven, sketch.mean_weight, sketch.weight / sketch.count)
    weight = mean[at]
    is_outcome = key.kind == OUTCOME
    label = (
        plan.coding.encode(sketch.label[at]) if is_outcome else census.treatment(sketch.label[at])
    )
    group = np.full(n, key.group)
    policy = PolicySums.zero(plan.n_features)
    if not is_outcome:
        where, scaling = key.population, plan.scaling
        policy = PolicySums.of_rows(X, scaling, label, times * weight, where)
        # Sums of squared weights are linear in the number of copies, not quadratic.
        root = np.sqrt(times * (sketch.square / sketch.count)[at])
        squares = PolicySums.of_rows(X, scaling, label, root, where).square
        counts = np.where(np.arange(2) == where, times.sum(), 0)
        policy = replace(policy, n_rows=counts, square=squares)
    cell = np.full(n, _cell(key.kind, key.population), dtype=np.uint8)
    names = list(plan.populations)
    rows = LabelledRows(X, label, cell, times * weight, names, plan.coding)
    rows = replace(rows, label=plan.centred(rows, group, n_jobs=1))
    found = accumulate(plan.values, plan.size, rows, groups=group)
    n_rows = int(times.sum())
    square = float(times @ (sketch.square / sketch.count)[at])
    sums = replace(found.cells[key], n_rows=n_rows, weight_square=square)
    return GroupedSums(plan.size, {key: sums}), policy


def _cell(kind: str, population: int) -> int:
    return population if kind == OUTCOME else 2 + population


def _reduce(
    source: DaskSource,
    work: Callable[[Chunk, Any], Any],
    shared: Any,
    merge: Callable[[list[Any]], Any],
) -> Any:
    """Return ``merge`` of ``work(chunk, shared)`` over all partitions; None if there is none."""
    if not source.parts:
        return None
    tree = _tree(source.parts, work, shared, merge)
    with connected(source.client) as client:
        if client is not None:
            found = client.compute(tree)
            if source.progress:
                with client.as_current():
                    import_extra("distributed", extra="dask").progress(found, notebook=False)
            return found.result()
        bar = import_extra("dask.diagnostics", extra="dask").ProgressBar
        # Partitions run in parallel, each with BLAS at one thread. Set here as well, so that the
        # last one to finish puts back what was there before the first began.
        with (
            threadpool_limits(limits=1, user_api="blas"),
            bar() if source.progress else nullcontext(),
        ):
            return tree.compute()


def _tree(
    parts: tuple[Any, ...],
    work: Callable[[Chunk, Any], Any],
    shared: Any,
    merge: Callable[[list[Any]], Any],
) -> Any:
    """Return the unevaluated tree: a leaf for each partition, then merges of eight."""
    delayed = import_extra("dask", extra="dask").delayed
    # A task of its own goes to each worker once, as scattered data would. Unlike those it can be
    # made again when all workers that hold it are lost.
    once = delayed(partial(_same, shared), pure=False)()
    leaf, join = delayed(work, pure=False), delayed(merge, pure=False)
    level = [leaf(part, once) for part in parts]
    while len(level) > 1:
        level = [join(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    return level[0]


def _same(shared: Any) -> Any:
    return shared
