"""One pass that adds up the sums of a source: batch by batch, or as a tree over Dask partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined._support import import_extra
from unjoined._threads import CHUNK_ROWS
from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import KINDS, TREATMENT, OutcomeCoding
from unjoined.data import Chunk, ChunkSource, DaskSource, LabelledRows, Rows, connected
from unjoined.errors import LabelError, TableError
from unjoined.sums.census import Census, census_of_chunk
from unjoined.sums.files import read_sums, write_sums
from unjoined.sums.moments import GroupedSums, HashArray, PolicySums, hash_features, hash_with
from unjoined.sums.plan import PlannedSums, Position, SumsPlan
from unjoined.sums.plan_file import plan_digest

BATCH_ROWS = CHUNK_ROWS  # that are added up together
CHECKPOINT_BATCHES = 16  # after which a checkpoint is written: about every million rows
FAN_IN = 8  # results of Dask partitions that are merged at a time
Sums: TypeAlias = tuple[GroupedSums, PolicySums]


class Batch(NamedTuple):
    """Rows in the inner coding, the groups they are in, and what they are known by."""

    rows: LabelledRows
    group: IntArray  # (n,) of a row that repeats, that of its first copy
    keys: HashArray  # (n,) equal for equal features and labels

    def without(self, keys: dict[tuple[str, Any], HashArray]) -> Batch:
        """Return the batch without the rows of a cell that have one of some keys."""
        kept: BoolArray = np.ones(len(self.keys), dtype=np.bool_)
        for cell, at in zip(_cells(self.rows.names), self.rows.all_cells(), strict=True):
            if len(keys.get(cell, ())):
                kept[at] = ~np.isin(self.keys[at], keys[cell])
        if kept.all():
            return self
        return Batch(self.rows.take(kept), self.group[kept], self.keys[kept])


def _cells(names: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return kinds and names of all cells, in the order of their codes."""
    return [(kind, name) for kind in KINDS[:2] for name in names]


def sum_source(
    source: ChunkSource,
    plan: SumsPlan,
    census: Census,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
) -> PlannedSums:
    """Add up the sums of all rows of a source of which a census was taken, in exactly one pass.

    With a ``checkpoint`` the sums so far are written to this file about every million rows. If it
    exists, the pass checks that the rows before are the same and goes on from there, to the same
    bits. The result does not depend on ``n_jobs``, to the bit.
    """
    total, begin = PlannedSums.of_no_rows(plan), Position()
    if checkpoint is not None:
        total, begin = _resume(checkpoint, total)
    at, repeated, seen = Position(), census.repeated, 0
    for n, batch in enumerate(labelled_batches(source, plan, census), start=1):
        seen += int(hash_with(batch.keys, batch.rows.weight).sum(dtype=np.uint64))
        if checkpoint is not None:
            before, at = at, at.after(batch.keys, batch.rows)
            if at.n_rows <= begin.n_rows:
                if at.n_rows == begin.n_rows and at.digest != begin.digest:
                    raise _changed("its first rows are not those the checkpoint has added up")
                continue
            if before.n_rows < begin.n_rows:
                raise _changed(f"the checkpoint stands at row {begin.n_rows:,}, amid a batch")
        total = _plus_batch(total, batch.without(repeated), n_jobs)
        if checkpoint is not None and n % CHECKPOINT_BATCHES == 0:
            write_sums(total, checkpoint, position=at)
    if at.n_rows < begin.n_rows:
        raise _changed(f"it has {at.n_rows:,} rows, the checkpoint stands at {begin.n_rows:,}")
    found = _with_repeated(total, census)
    census.check_same(seen)
    return found


def _resume(
    checkpoint: str | os.PathLike[str], nothing: PlannedSums
) -> tuple[PlannedSums, Position]:
    """Return the sums and the position of a checkpoint, if there is one and it is of this plan."""
    expected = plan_digest(nothing.plan)  # without a file too: refuse now what no file can hold
    if not Path(checkpoint).exists():
        return nothing, Position()
    try:
        found, position = read_sums(checkpoint)
    except TableError as error:
        raise TableError(
            f"the checkpoint {str(checkpoint)!r} cannot be used: {error} Delete it to start anew."
        ) from error
    if position is None:
        raise TableError(
            f"{str(checkpoint)!r} is a finished file of sums, not a checkpoint. Name another file."
        )
    if plan_digest(found.plan) != expected:
        raise TableError(
            f"the checkpoint {str(checkpoint)!r} belongs to other rows, parameters or another "
            "random_state (which must be an integer). Delete it to start anew."
        )
    return nothing.plus(found.sums, found.policy), position


def _changed(why: str) -> TableError:
    return TableError(
        f"the source has changed since the checkpoint was written: {why}. Delete the checkpoint "
        "to start anew; a query needs an ORDER BY to be resumed."
    )


def labelled_batches(chunks: Iterable[Chunk], plan: SumsPlan, census: Census) -> Iterator[Batch]:
    """Go through the labelled rows once: in the inner coding, with the groups they are in."""
    counted = (in_cells(chunk, plan.populations, census) for chunk in chunks)
    for batch in batches(counted, BATCH_ROWS):
        state = hash_features(batch.X)  # as they came, so that limits do not deal rows unevenly
        group = (census.places(batch, state) % np.uint64(plan.n_groups)).astype(np.int64)
        rows = _coded(batch, inner_outcomes(batch, plan.coding), batch.weight, plan, census)
        yield Batch(rows, group, hash_with(state, batch.label))


def _coded(
    rows: Rows, outcome: Array, weight: Array, plan: SumsPlan, census: Census
) -> LabelledRows:
    """Return rows in the inner coding, within the limits of the plan."""
    if plan.clip is not None:
        outcome = np.clip(outcome, -1.0, 1.0)
    label = np.where(rows.is_outcome, outcome, census.treatment(rows.label))
    X = plan.scaling.clipped(rows.X, plan.clip)
    return LabelledRows(X, label, rows.cell, weight, rows.names, plan.coding)


def batches(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Cut and join chunks into batches of exactly ``size`` rows, however the source is cut."""
    waiting: list[Chunk] = []
    n = 0
    for chunk in chunks:
        start = 0
        while n + len(chunk) - start >= size:
            stop = start + size - n
            yield _joined([*waiting, chunk.take(slice(start, stop))])
            waiting, n, start = [], 0, stop
        if start < len(chunk):
            waiting.append(chunk.take(slice(start, None)))
            n += len(chunk) - start
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    columns = ("X", "label", "cell", "weight")
    joined: Any = {name: np.concatenate([getattr(p, name) for p in parts]) for name in columns}
    return replace(parts[0], **joined)


def in_cells(chunk: Chunk, populations: Sequence[Any], census: Census) -> Chunk:
    """Return the rows that count, in the cells of some populations."""
    m, names = len(chunk.names), list(populations)
    used = (chunk.weight > 0.0) & (chunk.cell < 2 * m)
    if not used.all():
        chunk = chunk.take(used)
    codes = np.zeros(2 * m, dtype=np.min_scalar_type(2 * len(names)))
    for code in np.flatnonzero(np.bincount(chunk.cell, minlength=2 * m)).tolist():
        kind, name = KINDS[code // m], chunk.names[code % m]
        if name not in names:
            raise LabelError(
                f"{chunk.origin} has rows of population {name!r}; the sums are for "
                f"{' and '.join(map(repr, names))}."
            )
        if (kind, name) not in census.cells:
            raise _changed(f"{kind} rows of population {name!r} are new")
        codes[code] = KINDS.index(kind) * len(names) + names.index(name)
    return replace(chunk, cell=codes[chunk.cell], names=names)


def inner_outcomes(batch: Chunk, coding: OutcomeCoding) -> Array:
    """Return labels as outcomes in the inner coding, where they are such."""
    raw = batch.label
    if coding.is_binary:
        # To rounding: (low + high) / 2 - (high - low) / 2 need not be low to the last digit.
        off = np.abs(np.abs(raw - coding.offset) - coding.scale) > 1e-9 * coding.scale
        other = raw[off & batch.is_outcome]
        if other.size:
            raise LabelError(
                f"{batch.origin}: the outcome is {other[0]:g} in some rows, but is to be "
                f"{coding.offset - coding.scale:g} or {coding.offset + coding.scale:g}."
            )
    return coding.encode(raw)


def _plus_batch(total: PlannedSums, batch: Batch, n_jobs: int | None) -> PlannedSums:
    """Return the sums with one more batch."""
    if not len(batch.rows):
        return total
    found = total.plan.sums(batch.rows, batch.group, n_jobs=n_jobs)
    return total.plus(found.sums, found.policy)


class Copies(NamedTuple):
    """Rows of one cell and group that repeat, each with the mean weight of its copies."""

    rows: LabelledRows
    group: int
    times: IntArray  # (n,) copies in this group
    square: Array  # (n,) mean of the copies' squared weights


def repeated_rows(plan: SumsPlan, census: Census) -> Iterator[Copies]:
    """Yield the rows that the census knows to repeat, cell by cell and group by group.

    Groups hashed from content take all copies of a row. Where a few rows make up the table, as
    with a handful of 0/1 features, groups would then follow different laws. So copies are dealt
    evenly. As they are equal, how many there are is enough, wherever and in whatever order they
    come: a pass leaves them out, and their sums are made from the counts of the census.
    """
    names, n_groups = list(plan.populations), plan.n_groups
    for code, cell in enumerate(_cells(names)):
        if not len(census.repeated.get(cell, ())):
            continue
        sketch = census.cells[cell]
        at = np.flatnonzero(sketch.count > 1)
        count, rows = sketch.count[at], sketch.rows(code, names).take(at)
        weight, square = (sketch.per_copy(s, 14)[at] for s in (sketch.weight, sketch.square))
        first = (census.places(rows, hash_features(rows.X)) % np.uint64(n_groups)).astype(np.int64)
        inner = _coded(rows, plan.coding.encode(rows.label), weight, plan, census)
        for group in range(n_groups):
            # The n-th copy falls into group (first + n) mod n_groups.
            times = count // n_groups + ((group - first) % n_groups < count % n_groups)
            some = np.flatnonzero(times)
            if len(some):
                yield Copies(inner.take(some), group, times[some], square[some])


def _with_repeated(total: PlannedSums, census: Census) -> PlannedSums:
    """Return the sums with those of the rows that repeat, once all rows are accounted for."""
    plan = total.plan
    for rows, group, times, square in repeated_rows(plan, census):
        weighted = replace(rows, weight=times * rows.weight)
        found = plan.sums(weighted, np.full(len(times), group), n_jobs=1)
        ((key, cell),) = found.sums.cells.items()
        # Sums of squared weights are linear in the number of copies, not quadratic.
        n, squares = int(times.sum()), times * square
        cell = replace(cell, n_rows=n, weight_square=float(squares.sum()))
        policy = found.policy
        if key.kind == TREATMENT:
            k, own, n_rows = key.population, policy.square.copy(), policy.n_rows.copy()
            one = PolicySums.of_rows(rows.X, plan.scaling, rows.label, np.sqrt(squares), 0)
            own[k], n_rows[k] = one.square[0], n
            policy = replace(policy, n_rows=n_rows, square=own)
        total = total.plus(GroupedSums(plan.size, {key: cell}), policy)
    n_rows_found = sum(cell.n_rows for cell in total.sums.cells.values())
    if n_rows_found != census.n_rows:
        raise TableError(
            f"the source has changed between the two passes: {census.n_rows:,} labelled rows, then "
            f"{n_rows_found:,}. Make sure that it is the same each time it is gone through; "
            "partitions of Dask may have to be persisted."
        )
    return total


def dask_census(source: DaskSource, *, sample_rows: int) -> Census:
    """Go through a source once, as `take_census` does, on the workers if there are any."""
    found: Census | None = over_partitions(source, census_of_chunk, sample_rows, _merge_censuses)
    if found is None or not found.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    return replace(found, feature_names=source.names)


def dask_sums(source: DaskSource, plan: SumsPlan, census: Census) -> PlannedSums:
    """Add up the sums of all rows, as `sum_source` does, on the workers if there are any."""
    shared = plan, census.without_samples(), census.repeated
    found, total = (
        over_partitions(source, _sum_part, shared, _merge_sums),
        PlannedSums.of_no_rows(plan),
    )
    return _with_repeated(total if found is None else total.plus(*found), census)


def _merge_censuses(parts: list[Census]) -> Census:
    return reduce(Census.merge, parts)


def _sum_part(
    chunk: Chunk, shared: tuple[SumsPlan, Census, dict[tuple[str, Any], HashArray]]
) -> Sums:
    plan, census, repeated = shared
    total = PlannedSums.of_no_rows(plan)
    for batch in labelled_batches([chunk], plan, census):
        total = _plus_batch(total, batch.without(repeated), 1)
    return total.sums, total.policy  # without the plan, which need not travel back


def _merge_sums(parts: list[Sums]) -> Sums:
    sums = reduce(GroupedSums.merge, [part[0] for part in parts])
    return sums, reduce(PolicySums.merge, [part[1] for part in parts])


def over_partitions(
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
