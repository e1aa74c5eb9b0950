"""A pass that can be interrupted: it writes how far it has come, and goes on from there."""

from __future__ import annotations

import os
from pathlib import Path

from unjoined.data._chunks import ChunkSource
from unjoined.errors import TableError
from unjoined.moments._census import Census
from unjoined.moments._pass import Position, sum_source
from unjoined.moments._plan import PlannedSums, SumsPlan
from unjoined.moments._sums_file import plan_digest, read_sums, write_sums

__all__ = ["sum_with_checkpoint"]

BATCH_ROWS, CHECKPOINT_BATCHES = 65_536, 16  # a checkpoint about every million rows


def sum_with_checkpoint(
    source: ChunkSource,
    plan: SumsPlan,
    census: Census,
    checkpoint: str | os.PathLike[str] | None,
    *,
    n_jobs: int | None = None,
) -> PlannedSums:
    """Add up a source, going on from a checkpoint if there is one, to the same bits.

    Parameters
    ----------
    source, plan, census, n_jobs
        As in `sum_source`.
    checkpoint : path or None
        A file that is written about every million rows and left where it is. None writes none.

    Raises
    ------
    TableError
        The file is no checkpoint, belongs to another plan, or the source has changed since.
    """
    if checkpoint is None:
        return sum_source(source, plan, census, n_jobs=n_jobs)
    started = _resume(checkpoint, plan)

    def save(found: PlannedSums, position: Position) -> None:
        if position.n_rows // BATCH_ROWS % CHECKPOINT_BATCHES == 0:
            write_sums(found, checkpoint, position=position)

    return sum_source(
        source,
        plan,
        census,
        n_jobs=n_jobs,
        start=started,
        after_batch=save,
        batch_rows=BATCH_ROWS,
    )


def _resume(
    checkpoint: str | os.PathLike[str], plan: SumsPlan
) -> tuple[PlannedSums, Position] | None:
    """Return what a checkpoint has, if there is one and it belongs to this plan."""
    expected = plan_digest(plan)  # without a file too: refuse now what no file can hold
    if not Path(checkpoint).exists():
        return None
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
    return PlannedSums(plan, found.sums, found.policy), position
