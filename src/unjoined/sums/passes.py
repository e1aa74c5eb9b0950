"""One pass that adds up the sums of a source: batch by batch, or as a tree over Dask partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined._optional import import_extra
from unjoined._threads import CHUNK_ROWS
from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import KINDS, TREATMENT, OutcomeCoding
from unjoined.basis import Scaling
from unjoined.data import Chunk, ChunkSource, DaskSource, LabelledRows, Rows, connected
from unjoined.errors import LabelError, TableError
from unjoined.sums.census import Census, RepeatedRows, RowSketch, census_of_chunk
from unjoined.sums.moments import GroupedSums, HashArray, hash_features, hash_with
from unjoined.sums.plan import PlannedSums, SumsPlan
from unjoined.sums.policies import PolicySums

FAN_IN = 8  # results of Dask partitions that are merged at a time
Sums: TypeAlias = tuple[GroupedSums, PolicySums]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pass has come: rows read, and the sum of their hashes to know them by."""

    n_rows: int = 0
    digest: int = 0  # modulo 2^64

    def after(self, batch: Batch) -> Position:
        """Return the position behind one more batch."""
        # The cell is part of what a row is known by: the same table under another name is another.
        keys = hash_with(batch.keys, batch.own_weight, batch.rows.cell.astype(np.float64))
        digest = (self.digest + int(keys.sum(dtype=np.uint64))) % 2**64
        return Position(self.n_rows + len(keys), digest)


def batches(chunks: Iterable[Chunk], size: int = CHUNK_ROWS) -> Iterator[Chunk]:
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
    return replace(
        parts[0],
        X=np.concatenate([part.X for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        cell=np.concatenate([part.cell for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
    )


class Batch(NamedTuple):
    """Rows in the inner coding, and what is known of each beside."""

    rows: LabelledRows  # copies of a row that differ in weight have their mean
    group: IntArray  # (n,)
    keys: HashArray  # (n,) equal for equal features and labels
    own_weight: Array  # (n,)
    square: Array  # (n,) squared weights, the mean over copies that differ

    def without(self, keys: dict[tuple[str, Any], HashArray]) -> Batch:
        """Return the batch without the rows of a cell that have one of some keys."""
        kept: BoolArray = np.ones(len(self.keys), dtype=np.bool_)
        cells = [(kind, name) for kind in KINDS[:2] for name in self.rows.names]
        for cell, at in zip(cells, self.rows.all_cells(), strict=True):
            if len(keys.get(cell, ())):
                kept[at] = ~np.isin(self.keys[at], keys[cell])
        if kept.all():
            return self
        return Batch(
            self.rows.take(kept),
            self.group[kept],
            self.keys[kept],
            self.own_weight[kept],
            self.square[kept],
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
    """Add up the sums of all rows of a source of which a census was taken, in exactly one pass.

    ``start`` are sums of the rows up to a position: the pass checks that these rows are the same
    and goes on from there, to the same bits. ``after_batch`` is called with the sums so far and
    the position. The result does not depend on ``n_jobs``, to the bit.
    """
    total, begin = (PlannedSums.of_no_rows(plan), Position()) if start is None else start
    at = Position()
    for batch in labelled_batches(source, plan, census, batch_rows):
        if start is not None or after_batch is not None:
            before, at = at, at.after(batch)
            if at.n_rows <= begin.n_rows:
                _check_same_rows(at, begin)
                continue
            if before.n_rows < begin.n_rows:
                raise _changed(f"the checkpoint stands at row {begin.n_rows:,}, amid a batch")
        total = add_batch(total, batch, n_jobs)
        if after_batch is not None:
            after_batch(total, at)
    if at.n_rows < begin.n_rows:
        raise _changed(f"it has {at.n_rows:,} rows, the checkpoint stands at {begin.n_rows:,}")
    return total


def labelled_batches(
    chunks: Iterable[Chunk], plan: SumsPlan, census: Census, size: int = CHUNK_ROWS
) -> Iterator[Batch]:
    """Go through the labelled rows once: in the inner coding, with the groups they are in."""
    repeated = {cell: sketch.repeated() for cell, sketch in census.cells.items()}
    for batch in batches((in_cells(chunk, plan.populations, census) for chunk in chunks), size):
        yield _prepare(batch, plan, census, repeated)


def _check_same_rows(at: Position, begin: Position) -> None:
    if at.n_rows == begin.n_rows and at.digest != begin.digest:
        raise _changed("its first rows are not those the checkpoint has added up")


def _changed(why: str) -> TableError:
    return TableError(
        f"the source has changed since the checkpoint was written: {why}. Delete the checkpoint "
        "to start anew; a query needs an ORDER BY to be resumed."
    )


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


def _prepare(
    batch: Chunk, plan: SumsPlan, census: Census, repeated: dict[tuple[str, Any], RepeatedRows]
) -> Batch:
    """Return a batch in the inner coding, each row hashed once; copies are counted on the way."""
    state = hash_features(batch.X)  # as they came, so that limits do not deal rows unevenly
    place, keys = census.places(batch, state), hash_with(state, batch.label)
    group = (place % np.uint64(plan.n_groups)).astype(np.int64)
    even, square = batch.weight, batch.weight**2
    cells = [(kind, name) for kind in KINDS[:2] for name in batch.names]
    for cell, at in zip(cells, batch.all_cells(), strict=True):
        if len(at) and len(repeated[cell].keys):
            group[at] = repeated[cell].deal(keys[at], plan.n_groups, place[at])
            even = even.copy()
            even[at], square[at] = repeated[cell].evened(keys[at], batch.weight[at])
    outcome, treatment = inner_outcomes(batch, plan.coding), census.treatment(batch.label)
    if plan.clip is not None:
        outcome = np.clip(outcome, -1.0, 1.0)
    label = np.where(batch.is_outcome, outcome, treatment)
    rows = LabelledRows(plan.clipped(batch.X), label, batch.cell, even, batch.names, plan.coding)
    return Batch(rows, group, keys, batch.weight, square)


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


def add_batch(total: PlannedSums, batch: Batch, n_jobs: int | None) -> PlannedSums:
    """Return the sums with one more batch."""
    rows, group = batch.rows, batch.group
    found = total.plan.sums(rows, group, n_jobs=n_jobs)
    sums, policy = found.sums, found.policy
    if rows.weight is not batch.own_weight and not np.array_equal(batch.own_weight, rows.weight):
        policy = _with_own_squares(policy, rows, batch.own_weight, total.plan.scaling)
        sums = _with_squares(sums, rows, group, batch.square)
    return total.plus(sums, policy)


def _with_own_squares(
    policy: PolicySums, rows: LabelledRows, weight: Array, scaling: Scaling
) -> PolicySums:
    """Put the squares of rows' own weights in the place of those of their mean."""
    square = policy.square.copy()
    for k in range(len(rows.names)):
        at = rows.at(TREATMENT, k)
        at = at[rows.weight[at] != weight[at]]
        X, label = rows.X[at], rows.label[at]
        for sign, used in ((1.0, weight), (-1.0, rows.weight)):
            square[k] += sign * PolicySums.of_rows(X, scaling, label, used[at], 0).square[0]
    return replace(policy, square=square)


def _with_squares(sums: GroupedSums, rows: LabelledRows, group: Any, square: Array) -> GroupedSums:
    """Do the same for the squared weights of every cell and group, in whichever a copy falls."""
    cells = {}
    for key, cell in sums.cells.items():
        at = rows.at(key.kind, key.population)
        inside = at[group[at] == key.group]
        cells[key] = replace(cell, weight_square=float(square[inside].sum()))
    return GroupedSums(sums.p, cells)


def dask_census(source: DaskSource, *, sample_rows: int) -> Census:
    """Go through a source once, as `take_census` does, on the workers if there are any."""
    found: Census | None = over_partitions(source, census_of_chunk, sample_rows, _merge_censuses)
    if found is None or not found.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    return replace(found, feature_names=source.names)


def dask_sums(source: DaskSource, plan: SumsPlan, census: Census) -> PlannedSums:
    """Add up the sums of all rows, as `sum_source` does, on the workers if there are any.

    Copies of a row are dealt evenly over the groups, which no partition can do alone. As they are
    equal, how many there are is enough: partitions leave them out, and their sums are made from the
    counts of the census.
    """
    found = over_partitions(source, _sum_part, _Shared.of(plan, census), _merge_sums)
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
        return cls(plan, census.without_samples(), repeated)


def _merge_censuses(parts: list[Census]) -> Census:
    return reduce(Census.merge, parts)


def _sum_part(chunk: Chunk, shared: _Shared) -> Sums:
    plan = shared.plan
    total = PlannedSums.of_no_rows(plan)
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
    total = PlannedSums.of_no_rows(plan)
    names = list(plan.populations)
    for code, (kind, name) in enumerate((kind, name) for kind in KINDS[:2] for name in names):
        sketch = census.cells.get((kind, name))
        if sketch is None or not (sketch.count > 1).any():
            continue
        rows = sketch.rows(code, names)
        first = census.places(rows, hash_features(rows.X)) % np.uint64(plan.n_groups)
        for group in range(plan.n_groups):
            # The n-th copy falls into group (place + n) mod n_groups, as `RepeatedRows` deals them.
            rest = (group - first.astype(np.int64)) % plan.n_groups < sketch.count % plan.n_groups
            copies = np.where(sketch.count > 1, sketch.count // plan.n_groups + rest, 0)
            if copies.any():
                total = _add_copies(total, census, sketch, rows, copies, group)
    return total.sums, total.policy


def _add_copies(
    total: PlannedSums, census: Census, sketch: RowSketch, rows: Rows, copies: IntArray, group: int
) -> PlannedSums:
    """Return the sums with rows of one cell and group, each occurring so many times."""
    at, plan = np.flatnonzero(copies), total.plan
    times, some = copies[at], rows.take(at)
    mean: Array = np.where(sketch.uneven, sketch.mean_weight, sketch.weight / sketch.count)[at]
    # Sums of squared weights are linear in the number of copies, not quadratic.
    square = times * (sketch.square / sketch.count)[at]
    is_outcome, groups = bool(some.is_outcome[0]), np.full(len(at), group)
    label = plan.coding.encode(some.label) if is_outcome else census.treatment(some.label)
    inner = LabelledRows(some.X, label, some.cell, times * mean, rows.names, plan.coding)
    found = plan.sums(inner, groups, n_jobs=1)
    sums, policy = found.sums, found.policy
    ((key, cell),) = _with_squares(sums, inner, groups, square).cells.items()
    counted = GroupedSums(sums.p, {key: replace(cell, n_rows=int(times.sum()))})
    if not is_outcome:
        k, own = key.population, policy.square.copy()
        roots = np.sqrt(square)
        own[k] = PolicySums.of_rows(some.X, plan.scaling, label, roots, 0).square[0]
        n_rows = np.where(policy.n_rows > 0, times.sum(), 0)
        policy = replace(policy, n_rows=n_rows, square=own)
    return total.plus(counted, policy)


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
