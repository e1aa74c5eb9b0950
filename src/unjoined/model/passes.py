"""One pass that adds up the sums of a source: batch by batch, or as a tree over Dask partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined._support import import_extra
from unjoined._threads import CHUNK_ROWS
from unjoined._validation import KINDS, OutcomeCoding
from unjoined.data.additive import plus
from unjoined.data.dask import DaskSource, connected
from unjoined.data.rows import LabelledRows, NumberedRows, number_rows
from unjoined.data.sources import ChunkSource
from unjoined.errors import LabelError, TableError
from unjoined.model.census import Census, census_of_rows, deal_groups, rows_digest, take_census
from unjoined.model.moments import GroupedSums, PolicySums
from unjoined.model.plan import PlannedSums, Position, SumsPlan
from unjoined.model.plan_file import plan_digest
from unjoined.model.sums_file import read_sums, write_sums

BATCH_ROWS = CHUNK_ROWS  # that are added up together
CHECKPOINT_BATCHES = 16  # after which a checkpoint is written: about every million rows
FAN_IN = 8  # results of Dask partitions that are added up at a time
Work: TypeAlias = Callable[[NumberedRows, Any, int | None], Any]


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
    at = Position()
    batched = labelled_batches(number_rows(source), plan, census)
    for n, (rows, numbered) in enumerate(batched, start=1):
        before, at = at, at.after(numbered)
        if at.n_rows <= begin.n_rows:
            if at.n_rows == begin.n_rows and at.digest != begin.digest:
                raise _changed("its first rows are not those the checkpoint has added up")
            continue
        if before.n_rows < begin.n_rows:
            raise _changed(f"the checkpoint stands at row {begin.n_rows:,}, amid a batch")
        group = deal_groups(numbered.number, plan.n_groups)
        total += plan.sums(rows, group, n_jobs=n_jobs)
        if checkpoint is not None and n % CHECKPOINT_BATCHES == 0:
            write_sums(total, checkpoint, position=at)
    if at.n_rows < begin.n_rows:
        raise _changed(f"it has {at.n_rows:,} rows, the checkpoint stands at {begin.n_rows:,}")
    census.check_same(at.digest)
    return total


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
    return nothing + found, position


def _changed(why: str) -> TableError:
    return TableError(
        f"the source has changed since the checkpoint was written: {why}. Delete the checkpoint "
        "to start anew; a query needs an ORDER BY to be resumed."
    )


def labelled_batches(
    chunks: Iterable[NumberedRows], plan: SumsPlan, census: Census
) -> Iterator[tuple[LabelledRows, NumberedRows]]:
    """Go through the labelled rows once: in the inner coding within limits, and as they came."""
    counted = (in_cells(chunk, plan.populations, census) for chunk in chunks)
    for rows in batches(counted, BATCH_ROWS):
        inner = inner_rows(rows, plan.coding, census)
        if plan.clip is not None:
            X, label = plan.scaling.clipped(rows.X, plan.clip), np.clip(inner.label, -1.0, 1.0)
            inner = replace(inner, X=X, label=label)
        yield inner, rows


def batches(chunks: Iterable[NumberedRows], size: int) -> Iterator[NumberedRows]:
    """Cut and join chunks into batches of exactly ``size`` rows, however the source is cut."""
    waiting: list[NumberedRows] = []
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


def _joined(parts: list[NumberedRows]) -> NumberedRows:
    if len(parts) == 1:
        return parts[0]
    columns = ("X", "label", "cell", "weight", "number")
    joined: Any = {name: np.concatenate([getattr(p, name) for p in parts]) for name in columns}
    return replace(parts[0], **joined)


def in_cells(chunk: NumberedRows, populations: Sequence[Any], census: Census) -> NumberedRows:
    """Return the rows that count, in the cells of some populations."""
    m, names = len(chunk.names), list(populations)
    used = chunk.number >= 0
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


def inner_rows(rows: NumberedRows, coding: OutcomeCoding, census: Census) -> LabelledRows:
    """Return rows that count in the inner coding."""
    raw = rows.label
    if coding.is_binary:
        # To rounding: (low + high) / 2 - (high - low) / 2 need not be low to the last digit.
        off = np.abs(np.abs(raw - coding.offset) - coding.scale) > 1e-9 * coding.scale
        other = raw[off & rows.is_outcome]
        if other.size:
            raise LabelError(
                f"{rows.origin}: the outcome is {other[0]:g} in some rows, but is to be "
                f"{coding.offset - coding.scale:g} or {coding.offset + coding.scale:g}."
            )
    label = np.where(rows.is_outcome, coding.encode(raw), census.treatment(raw))
    return LabelledRows(rows.X, label, rows.cell, rows.weight, rows.names, coding)


def dask_sums(source: DaskSource, plan: SumsPlan, census: Census) -> PlannedSums:
    """Add up the sums of all rows, as `sum_source` does, on the workers if there are any."""
    found = over_rows(source, census, _sum_part, (plan, census.without_samples()), None)
    return PlannedSums(plan, *found)


def _sum_part(
    chunk: NumberedRows, shared: tuple[SumsPlan, Census], n_jobs: int | None
) -> tuple[GroupedSums, PolicySums]:
    plan, census = shared
    total = PlannedSums.of_no_rows(plan)
    for rows, numbered in labelled_batches([chunk], plan, census):
        group = deal_groups(numbered.number, plan.n_groups)
        total += plan.sums(rows, group, n_jobs=n_jobs)
    return total.sums, total.policy  # without the plan, which need not travel back


def look_through(
    source: ChunkSource | DaskSource, *, sample_rows: int, n_scores: int = 0
) -> tuple[ChunkSource | DaskSource, Census]:
    """Take the census of a source; return what further passes go through, and the census."""
    if not isinstance(source, DaskSource):
        return source, take_census(source, sample_rows=sample_rows, n_scores=n_scores)
    numbered = source.numbered()
    found: Census | None = over_partitions(numbered, census_of_rows, (sample_rows, n_scores))
    if found is None or not found.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    return numbered, replace(found, feature_names=source.names)


def over_rows(
    source: ChunkSource | DaskSource, census: Census, work: Work, shared: Any, n_jobs: int | None
) -> Any:
    """Return the sum of ``work(rows, shared, n_jobs)`` over all rows that a census has counted.

    ``source`` is that of `look_through`. Partitions of Dask are worked on in parallel, each by one
    thread.
    """
    if isinstance(source, DaskSource):
        found = over_partitions(source, _known_part, (work, shared, 1, census.n_scores))
    else:
        found = None
        for rows in number_rows(source):
            part = _known_part(rows, (work, shared, n_jobs, census.n_scores))
            found = part if found is None else plus(found, part)
    if found is None:
        raise TableError("the source had rows before and has none now.")
    total, digest = found
    census.check_same(digest)
    return total


def _known_part(rows: NumberedRows, task: tuple[Work, Any, int | None, int]) -> tuple[Any, int]:
    """Return what is found in some rows, and what they are known by."""
    work, shared, n_jobs, n_scores = task
    counted = rows.take(rows.number >= 0)
    return work(rows, shared, n_jobs), rows_digest(counted, n_scores)


def over_partitions(
    source: DaskSource, work: Callable[[NumberedRows, Any], Any], shared: Any
) -> Any:
    """Return the sum of ``work(rows, shared)`` over all partitions; None if there is none."""
    if not source.parts:
        return None
    tree = _tree(source.parts, work, shared)
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


def _tree(parts: tuple[Any, ...], work: Callable[[NumberedRows, Any], Any], shared: Any) -> Any:
    """Return the unevaluated tree: a leaf for each partition, then sums of eight."""
    delayed = import_extra("dask", extra="dask").delayed
    # A task of its own goes to each worker once, as scattered data would. Unlike those it can be
    # made again when all workers that hold it are lost.
    once = delayed(partial(_same, shared), pure=False)()
    leaf, join = delayed(work, pure=False), delayed(partial(reduce, plus), pure=False)
    level = [leaf(part, once) for part in parts]
    while len(level) > 1:
        level = [join(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    return level[0]


def _same(shared: Any) -> Any:
    return shared
