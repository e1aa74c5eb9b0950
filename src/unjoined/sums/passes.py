"""One pass over a source that adds up its sums, in pieces of a fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TARGET, TREATMENT
from unjoined.basis import Scaling
from unjoined.data import CHUNK_ROWS, Chunk, ChunkSource, LabelledRows
from unjoined.errors import LabelError, TableError
from unjoined.sums.census import Census, RepeatedRows, row_keys
from unjoined.sums.moments import GroupedSums, PolicySums, row_hashes
from unjoined.sums.plan import PlannedSums, SumsPlan


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pass has come: rows read, and the sum of their hashes to know them by."""

    n_rows: int = 0
    digest: int = 0  # modulo 2^64

    def after(self, batch: Chunk, populations: tuple[Any, Any]) -> Position:
        """Return the position behind one more batch of rows of two populations."""
        # The cell is part of what a row is known by: the same table under another name is another.
        cell = (batch.kind == TREATMENT) + 2.0 * (batch.population == populations[1])
        keys = row_hashes(batch.X, batch.label, batch.weight, cell)
        digest = (self.digest + int(keys.sum(dtype=np.uint64))) % 2**64
        return Position(self.n_rows + len(batch), digest)


def batches(source: ChunkSource, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """Cut and join chunks into batches of exactly ``size`` rows, but for the last.

    Sums then do not depend on how a source is cut, to the bit. Order and rows are kept. Memory
    is one batch and one chunk.
    """
    waiting: list[Chunk] = []
    n = 0
    for chunk in source:
        start = 0
        while n + len(chunk) - start >= size:
            stop = start + size - n
            yield _joined([*waiting, chunk.cut(start, stop)])
            waiting, n, start = [], 0, stop
        if start < len(chunk):
            waiting.append(chunk.cut(start, len(chunk)))
            n += len(chunk) - start
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Chunk(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.population for part in parts]),
        np.concatenate([part.weight for part in parts]),
        first.origin,
        first.first_row,
        first.names,
    )


def sum_source(
    source: ChunkSource,
    plan: SumsPlan,
    census: Census,
    *,
    n_jobs: int | None = None,
    start: tuple[PlannedSums, Position] | None = None,
    after_batch: Callable[[PlannedSums, Position], None] | None = None,
    batch_rows: int = CHUNK_ROWS,
) -> PlannedSums:
    """Add up the sums of all rows of a source, in exactly one pass.

    Parameters
    ----------
    source : ChunkSource
        The rows of which ``census`` was taken.
    plan : SumsPlan
        Basis, scaling, centring, coding and groups.
    census : Census
        Tells which rows repeat and how treatments are coded.
    n_jobs : int or None, default=None
        Threads. The result does not depend on it, to the bit.
    start : pair of PlannedSums and Position, optional
        Sums of the rows up to a position; the pass passes over these rows, checks that they
        are the same, and goes on from there, to the same bits.
    after_batch : callable, optional
        Called with the sums so far and the position after every batch.
    batch_rows : int, default=65536
        Rows that are worked on together.

    Notes
    -----
    Costs O(n (p^2 + p d)) time. Memory is O(p^2) per cell, group and thread, and one batch.
    """
    zero = PlannedSums(plan, GroupedSums(plan.size), PolicySums.zero(plan.n_features))
    total, begin = (zero, Position()) if start is None else start
    at = Position()
    prepare = _preparation(plan, census)
    for batch in batches(source, batch_rows):
        rows, group, weights = prepare(batch)
        before, at = at, at.after(batch, plan.populations)
        if at.n_rows <= begin.n_rows:
            _check_same_rows(at, begin)
            continue
        if before.n_rows < begin.n_rows:
            raise _changed(f"the checkpoint stands at row {begin.n_rows:,}, amid a batch")
        total = _add(total, rows, group, weights, n_jobs)
        if after_batch is not None:
            after_batch(total, at)
    if at.n_rows < begin.n_rows:
        raise _changed(f"it has {at.n_rows:,} rows, the checkpoint stands at {begin.n_rows:,}")
    return total


def labelled_batches(
    source: ChunkSource, plan: SumsPlan, census: Census
) -> Iterator[tuple[LabelledRows, IntArray]]:
    """Go through a source once more: rows in the inner coding and the groups they are in."""
    prepare = _preparation(plan, census)
    for batch in batches(source):
        rows, group, _ = prepare(batch)
        yield rows, group


class _Weights(NamedTuple):
    """What rows weigh beside the mean of their copies."""

    own: Array  # (n,)
    square: Array  # (n,) the mean over copies that differ


def _preparation(
    plan: SumsPlan, census: Census
) -> Callable[[Chunk], tuple[LabelledRows, IntArray, _Weights]]:
    """Return what prepares batch after batch, from the first on: it counts rows that repeat."""
    repeated = {cell: sketch.repeated() for cell, sketch in census.cells.items()}
    return lambda batch: _prepare(batch, plan, census, repeated)


def _check_same_rows(at: Position, begin: Position) -> None:
    if at.n_rows == begin.n_rows and at.digest != begin.digest:
        raise _changed("its first rows are not those the checkpoint has added up")


def _changed(why: str) -> TableError:
    return TableError(
        f"the source has changed since the checkpoint was written: {why}. Delete the checkpoint "
        "to start anew; a query needs an ORDER BY to be resumed."
    )


def _prepare(
    batch: Chunk, plan: SumsPlan, census: Census, repeated: dict[tuple[str, Any], RepeatedRows]
) -> tuple[LabelledRows, IntArray, _Weights]:
    """Return the labelled rows of a batch in the inner coding, their groups and weights.

    In the rows, copies that differ in weight have their mean, see `RepeatedRows`.
    """
    used = np.flatnonzero((batch.weight > 0.0) & (batch.kind != TARGET))
    X, raw, weight = batch.X[used], batch.label[used], batch.weight[used]
    kind, population = batch.kind[used], batch.population[used]
    index = np.full(len(used), -1, dtype=np.int64)
    label = raw.copy()
    group = np.zeros(len(used), dtype=np.int64)
    keys, even, square = row_keys(X, raw), weight.copy(), weight**2
    for k, name in enumerate(plan.populations):
        index[population == name] = k
        for which in (OUTCOME, TREATMENT):
            at = np.flatnonzero((index == k) & (kind == which))
            if not len(at):
                continue
            if (which, name) not in repeated:
                raise _changed(f"{which} rows of population {name!r} are new")
            label[at] = _encoded(raw[at], which, plan, census, batch.origin)
            place = census.places(which, X[at], raw[at])
            group[at] = repeated[which, name].deal(keys[at], plan.n_groups, place)
            even[at], square[at] = repeated[which, name].evened(keys[at], weight[at])
    if (unknown := population[index < 0]).size:
        raise LabelError(
            f"{batch.origin} has rows of population {unknown.tolist()[0]!r}; the sums are for "
            f"{' and '.join(map(repr, plan.populations))}."
        )
    rows = LabelledRows(X, label, kind, index, even, list(plan.populations), plan.coding)
    return rows, group, _Weights(weight, square)


def _encoded(raw: Array, kind: str, plan: SumsPlan, census: Census, origin: str) -> Array:
    if kind == TREATMENT:
        return census.treatment(raw)
    coding = plan.coding
    if coding.is_binary:
        # To rounding: (low + high) / 2 - (high - low) / 2 need not be low to the last digit.
        other = raw[np.abs(np.abs(raw - coding.offset) - coding.scale) > 1e-9 * coding.scale]
        if other.size:
            raise LabelError(
                f"{origin}: the outcome is {other[0]:g} in some rows, but is to be "
                f"{coding.offset - coding.scale:g} or {coding.offset + coding.scale:g}."
            )
    return coding.encode(raw)


def _add(
    total: PlannedSums, rows: LabelledRows, group: Any, weights: _Weights, n_jobs: int | None
) -> PlannedSums:
    sums, policy = total.plan.sums(rows, group, n_jobs=n_jobs)
    if not np.array_equal(weights.own, rows.weight):
        policy = _with_own_squares(policy, rows, weights.own, total.plan.scaling)
        sums = _with_squares(sums, rows, group, weights.square)
    return PlannedSums(total.plan, total.sums.merge(sums), total.policy.merge(policy))


def _with_own_squares(
    policy: PolicySums, rows: LabelledRows, weight: Array, scaling: Scaling
) -> PolicySums:
    """Put the squares of rows' own weights in the place of those of their mean.

    Sums of weights are the same with the mean of the copies; sums of squares are not.
    """
    square = policy.square.copy()
    for k in (0, 1):
        at = rows.at(TREATMENT, k)
        at = at[rows.weight[at] != weight[at]]
        X, label = rows.X[at], rows.label[at]
        square += PolicySums.of_rows(X, scaling, label, weight[at], k).square
        square -= PolicySums.of_rows(X, scaling, label, rows.weight[at], k).square
    return replace(policy, square=square)


def _with_squares(sums: GroupedSums, rows: LabelledRows, group: Any, square: Array) -> GroupedSums:
    """Do the same for the squared weights of every cell and group, in whichever a copy falls."""
    cells = {}
    for key, cell in sums.cells.items():
        at = rows.at(key.kind, key.population)
        inside = at[group[at] == key.group]
        cells[key] = replace(cell, weight_square=float(square[inside].sum()))
    return GroupedSums(sums.p, cells)
