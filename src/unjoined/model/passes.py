"""Passes over a source of which a census was taken, in chunks or over Dask partitions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unjoined._validation import KINDS, OutcomeCoding
from unjoined.data.dask import DaskSource
from unjoined.data.fold import Checkpoint, Work, fold, fold_partitions, rows_digest
from unjoined.data.rows import LabelledRows, NumberedRows, unit_of_clusters
from unjoined.data.sources import ChunkSource
from unjoined.errors import LabelError, TableError
from unjoined.model.census import Census, census_of_rows, deal_groups, take_census
from unjoined.model.moments import MomentSums, PolicySums
from unjoined.model.plan import PlannedSums, SumsPlan


def look_through(
    source: ChunkSource | DaskSource, *, sample_rows: int, n_scores: int = 0
) -> tuple[ChunkSource | DaskSource, Census]:
    """Take the census of a source; return what further passes go through, and the census."""
    if not isinstance(source, DaskSource):
        return source, take_census(source, sample_rows=sample_rows, n_scores=n_scores)
    numbered = source.numbered()
    task = census_of_rows, (sample_rows, n_scores), n_scores
    census, digest = fold_partitions(numbered, _work_on_partition, task) or (None, 0)
    if census is None or not census.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    return numbered, replace(census, feature_names=source.names, digest=digest)


def over_rows(
    source: ChunkSource | DaskSource,
    census: Census,
    work: Work,
    shared: Any,
    n_jobs: int | None,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Return the sum of ``work(rows, shared, n_jobs)`` over all rows that a census has counted.

    ``source`` is that of `look_through`; partitions of Dask are worked on by one thread each. A
    pass that a checkpoint holds whole is not made again.
    """
    if isinstance(source, DaskSource):
        task = work, shared, census.n_scores
        total, digest = fold_partitions(source, _work_on_partition, task) or (None, 0)
    else:
        if checkpoint is not None:
            total, n_rows, _ = checkpoint.read()
            if n_rows == census.n_rows:
                return total
        total, n_rows, digest = fold(
            source,
            work,
            shared,
            n_jobs=n_jobs,
            n_scores=census.n_scores,
            checkpoint=checkpoint,
        )
    if total is None:
        raise TableError("the source had rows before and has none now.")
    census.check_same(digest)
    if checkpoint is not None:
        checkpoint.write(total, n_rows, digest)
    return total


def _work_on_partition(
    rows: NumberedRows, task: tuple[Work, Any, int]
) -> tuple[Any, int]:
    """Return what is found in the rows that count, and what they are known by."""
    work, shared, n_scores = task
    counted = rows.take(rows.number >= 0)
    return work(counted, shared, 1), rows_digest(counted, n_scores)


def sum_source(
    source: ChunkSource | DaskSource,
    plan: SumsPlan,
    census: Census,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    *,
    question: bytes = b"",
) -> PlannedSums:
    """Add up the sums of all rows of a source of which a census was taken, in exactly one pass.

    What a ``checkpoint`` holds of the pass is not added up again, if it was written for the same
    ``question``. The result does not depend on ``n_jobs``, to the bit.
    """
    file = None
    if checkpoint is not None:
        nothing = PlannedSums.of_no_rows(plan)
        file = Checkpoint(checkpoint, census.digest)
        file.begin(question, (nothing.sums, nothing.policy))
    shared = plan, census.without_samples()
    return PlannedSums(
        plan, *over_rows(source, census, _sum_chunk, shared, n_jobs, file)
    )


def _sum_chunk(
    chunk: NumberedRows, shared: tuple[SumsPlan, Census], n_jobs: int | None
) -> tuple[MomentSums, PolicySums]:
    """Return the sums of one chunk."""
    plan, census = shared
    rows = inner_rows(in_cells(chunk, plan.populations, census), plan.coding, census)
    if plan.by_features:
        group = plan.groups(rows.X)
    else:
        group = deal_groups(chunk.number, plan.n_groups, chunk.cluster)
    found = plan.sums(rows, group, n_jobs=n_jobs)
    return found.sums, found.policy  # without the plan, which need not travel back


def in_cells(
    chunk: NumberedRows, populations: Sequence[Any], census: Census
) -> NumberedRows:
    """Return rows that count in the cells of some populations."""
    m = len(chunk.names)
    names = list(populations)
    codes = np.zeros(2 * m, dtype=np.min_scalar_type(2 * len(names)))
    for code in np.flatnonzero(np.bincount(chunk.cell, minlength=2 * m)).tolist():
        kind = KINDS[code // m]
        name = chunk.names[code % m]
        if name not in names:
            raise LabelError(
                f"{chunk.origin} has rows of population {name!r}; the sums are for "
                f"{' and '.join(map(repr, names))}."
            )
        if (kind, name) not in census.cells:
            raise TableError(
                f"the source has changed since it was first read: {kind} rows of population "
                f"{name!r} are new. Rows must stay as they are while they are added up."
            )
        codes[code] = KINDS.index(kind) * len(names) + names.index(name)
    return replace(chunk, cell=codes[chunk.cell], names=names)


def inner_rows(
    rows: NumberedRows, coding: OutcomeCoding, census: Census
) -> LabelledRows:
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
    return LabelledRows(
        rows.X,
        label,
        rows.cell,
        rows.weight,
        rows.names,
        coding,
        cluster=None if rows.cluster is None else unit_of_clusters(rows.cluster),
    )
