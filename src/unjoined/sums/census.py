"""The first look at a source: cells, labels, and a sample that does not depend on the order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, CellArray, IntArray
from unjoined._validation import (
    KINDS,
    OUTCOME,
    TREATMENT,
    OutcomeCoding,
    check_names,
    check_outcome,
    check_treatment,
    check_two,
)
from unjoined.data import Chunk, ChunkSource, LabelledRows, Rows
from unjoined.errors import LabelError, TableError
from unjoined.sums.moments import HashArray, hash_features, hash_with

MOST_VALUES = 3  # more distinct values than two make an outcome real
PLACES = 2**16  # few enough that rounding moves next to no row to another


@dataclass(frozen=True, slots=True)
class Census:
    """What one pass over all rows found; the same whatever their order and chunks."""

    n_features: int
    feature_names: tuple[str, ...] | None
    names: tuple[Any, ...]  # of the populations, sorted
    outcomes: Array  # the smallest, the largest and one value between, as far as there are such
    codes: Array  # distinct treatment labels; -1/+1 or 0/1
    cells: dict[tuple[str, Any], RowSketch]

    @property
    def n_rows(self) -> int:
        """Rows with a label and a weight above 0."""
        return sum(cell.n_rows for cell in self.cells.values())

    @property
    def coding(self) -> OutcomeCoding:
        """How outcomes are written inside, if this source has all of them."""
        if len(self.outcomes) < 2:
            raise LabelError(
                f"the outcome is {self.outcomes[0]:g} in all outcome rows; where nothing varies "
                "there is no uplift to estimate. Check the outcome column and how its rows were "
                "chosen."
            )
        return check_outcome(self.outcomes)

    @property
    def repeated(self) -> dict[tuple[str, Any], HashArray]:
        """What the rows of each cell that repeat are known by, ascending, as far as it has them."""
        return {cell: sketch.key[sketch.count > 1] for cell, sketch in self.cells.items()}

    def check_complete(self) -> None:
        """Refuse a source that lacks a cell, or has a single population."""
        check_names(
            self.names,
            lambda name: " and ".join(kind for kind, of in self.cells if of == name) + " rows",
        )
        if len(self.names) < 2:
            check_two(self.names, "the source has {}")
        for name in self.names:
            for kind in (OUTCOME, TREATMENT):
                if (kind, name) not in self.cells:
                    raise LabelError(
                        f"population {name!r} has no {kind} rows with positive weight; each "
                        f"population needs an {OUTCOME} table and a {TREATMENT} table."
                    )

    @property
    def digest(self) -> int:
        """A fingerprint of all rows and their weights, whatever their order and chunks."""
        cells = sorted((kind, str(name), cell.digest) for (kind, name), cell in self.cells.items())
        return int.from_bytes(hashlib.sha256(repr(cells).encode()).digest()[:6])

    def check_same(self, digest: int) -> None:
        """Refuse a further pass whose rows, by the sum of their digests, are not those counted."""
        if (sum(cell.digest for cell in self.cells.values()) - digest) % 2**64:
            raise TableError(
                "the source gave other rows when it was read again. Rows must stay the same while "
                "they are added up: give files, or a query or function whose rows nobody changes."
            )

    def without_samples(self) -> Census:
        """Return the census with cells that hold no rows, which is quick to send around."""
        none = RowSketch.zero(0, self.n_features)
        cells = {
            cell: replace(
                none, n_rows=found.n_rows, total_weight=found.total_weight, digest=found.digest
            )
            for cell, found in self.cells.items()
        }
        return replace(self, cells=cells)

    def merge(self, other: Census, *, place: str = "one of the parts") -> Census:
        """Return the census of the rows of both; ``place`` is what messages call the other's."""
        if other.n_features != self.n_features:
            raise TableError(
                f"{place} has {other.n_features} features, the rows before it have "
                f"{self.n_features}. All chunks need the same features, in the same order."
            )
        cells = dict(self.cells)
        for key, sketch in other.cells.items():
            cells[key] = cells[key].merge(sketch) if key in cells else sketch
        return Census(
            self.n_features,
            self.feature_names,
            _sorted_names(cells),
            _some_values(self.outcomes, other.outcomes),
            _codes(self.codes, other.codes, place),
            cells,
        )

    def treatment(self, label: Array) -> Array:
        """Return treatment labels as -1/+1."""
        return 2.0 * label - 1.0 if np.isin(self.codes, (0.0, 1.0)).all() else label

    def places(self, rows: Rows, state: HashArray) -> HashArray:
        """Return hashes that groups are taken from, blind to where 0 and 1 lie in the outcome.

        Else a constant added to all outcomes would deal the rows anew and change the fit. Of a
        real outcome its place between the smallest and the largest counts, from either end, so
        that rows with equal features do not all fall into one group. ``state`` are the hashes of
        the rows' features.
        """
        place = np.zeros(len(rows))
        if len(self.outcomes) == MOST_VALUES:
            low, high = self.outcomes[0], self.outcomes[-1]
            at = rows.is_outcome
            place[at] = np.rint(np.abs((rows.label[at] - low) / (high - low) - 0.5) * PLACES)
        return hash_with(state, place)

    def sample(self, n_groups: int) -> tuple[LabelledRows, IntArray]:
        """Return a sample of every cell in the inner coding, and the rows' groups."""
        coding, names = self.coding, list(self.names)
        parts: list[tuple[Array, Array, CellArray, Array]] = []
        groups = []
        for code, (kind, name) in enumerate((kind, name) for kind in KINDS[:2] for name in names):
            sketch = self.cells[kind, name]
            # Rounded, as the last digits depend on the order in which weights were added, and
            # fits to the sample would magnify that.
            sketch = replace(sketch, total_weight=float(f"{sketch.total_weight:.9g}"))
            rows = sketch.rows(code, names)
            X, label, weight, group = sketch.sample(
                n_groups, self.places(rows, hash_features(rows.X))
            )
            inner = coding.encode(label) if kind == OUTCOME else self.treatment(label)
            parts.append((X, inner, rows.cell[:1].repeat(len(label)), weight))
            groups.append(group)
        X, label, cell, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        return LabelledRows(X, label, cell, weight, names, coding), np.concatenate(groups)


def take_census(source: ChunkSource, *, sample_rows: int) -> Census:
    """Go through a source once, keeping at most ``sample_rows`` distinct rows of every cell."""
    total: Census | None = None
    names: tuple[str, ...] | None = ()
    for chunk in source:
        names = chunk.feature_names if total is None else names
        part = census_of_chunk(chunk, sample_rows, total)
        total = part if total is None else total.merge(part, place=_place(chunk))
    if total is None or not total.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    if names == ():
        asked = source.feature_names
        names = None if asked is None else tuple(asked)
    return replace(total, feature_names=names)


def census_of_chunk(chunk: Chunk, sample_rows: int, known: Census | None = None) -> Census:
    """Return the census of one chunk; rows with larger hashes than ``known`` keeps only count."""
    used = chunk.weight > 0.0
    at = [where if used.all() else where[used[where]] for where in chunk.all_cells()]
    keys = hash_with(hash_features(chunk.X), chunk.label)
    m, cells = len(chunk.names), {}
    for code, where in enumerate(at):
        if len(where):
            cell = KINDS[code // m], chunk.names[code % m]
            before = None if known is None else known.cells.get(cell)
            cells[cell] = RowSketch.of_rows(chunk, where, keys[where], sample_rows, before)
    outcomes, codes = (chunk.label[np.concatenate(part)] for part in (at[:m], at[m:]))
    return Census(
        int(chunk.X.shape[1]),
        None,
        _sorted_names(cells),
        _some_values(np.empty(0), outcomes),
        _codes(np.empty(0), codes, _place(chunk)),
        cells,
    )


def rows_digest(chunk: Chunk) -> int:
    """Return the fingerprint of a chunk's labelled rows and their weights; those of chunks add."""
    used = np.flatnonzero((chunk.weight > 0.0) & (chunk.cell < 2 * len(chunk.names)))
    keys = hash_with(hash_features(chunk.X), chunk.label, chunk.weight)
    return int(keys[used].sum(dtype=np.uint64))


def _place(chunk: Chunk) -> str:
    return f"{chunk.origin}, from row {chunk.first_row:,} on"


def _sorted_names(cells: Mapping[tuple[str, Any], RowSketch]) -> tuple[Any, ...]:
    return tuple(sorted({name for _, name in cells}, key=lambda name: (type(name).__name__, name)))


def _some_values(known: Array, values: Array) -> Array:
    """Return the smallest, the largest and one more distinct value, if there are as many."""
    both = np.concatenate([known, values])
    if not len(both):
        return both
    low, high = both.min(), both.max()
    between = (both != low) & (both != high)
    some = [low, both[np.argmax(between)], high] if between.any() else [low, high]
    return np.unique(some)


def _codes(known: Array, values: Array, place: str) -> Array:
    """Return the different treatment codes, of which there may be two."""
    codes = _some_values(known, values)
    try:
        check_treatment(codes)
    except LabelError as error:
        raise LabelError(f"{place}: {error}") from error
    return codes


def _sums_by(group: IntArray, values: Array) -> Array:
    """Return the sums of values by group; every group has a value."""
    return np.bincount(group, weights=values).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class RowSketch:
    """The ``size`` distinct rows of a cell with the smallest hashes, and how often each occurs.

    As hashes know nothing of positions, this is a simple random sample of the distinct rows,
    the same whatever the order and the chunks. A row that is in the sample at the end has been
    in it since it first occurred, so its count is exact.
    """

    size: int
    n_rows: int  # of the cell
    total_weight: float
    key: HashArray  # (m,) ascending, m <= size
    X: Array  # (m, d)
    label: Array  # (m,)
    weight: Array  # (m,) of all copies together
    square: Array  # (m,) sum of the copies' squared weights
    count: IntArray  # (m,)
    digest: int = 0  # of all rows of the cell with their weights, in whatever order

    @classmethod
    def zero(cls, size: int, d: int) -> RowSketch:
        """Return the sketch of no rows, the neutral element of `merge`."""
        none = np.empty(0)
        return cls(
            size,
            0,
            0.0,
            np.empty(0, dtype=np.uint64),
            np.empty((0, d)),
            none,
            none,
            none,
            np.empty(0, dtype=np.int64),
        )

    @classmethod
    def of_rows(
        cls, rows: Rows, at: IntArray, keys: HashArray, size: int, known: RowSketch | None = None
    ) -> RowSketch:
        """Return the sketch of some rows; what a full ``known`` would not keep only counts."""
        n, total = len(at), float(rows.weight[at].sum())
        digest = int(hash_with(keys, rows.weight[at]).sum(dtype=np.uint64))
        if known is not None and len(known.key) == size:
            near = np.flatnonzero(keys <= known.key[-1])
            at, keys = at[near], keys[near]
        key, first, inverse, count = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        weight, some = rows.weight[at], at[first[:size]]
        return cls(
            size,
            n,
            total,
            key[:size],
            rows.X[some],
            rows.label[some],
            _sums_by(inverse, weight)[:size],
            _sums_by(inverse, weight**2)[:size],
            count[:size],
            digest,
        )

    def rows(self, cell: int, names: list[Any]) -> Rows:
        """Return the distinct rows, as those of one cell."""
        cells = np.full(len(self.key), cell, dtype=np.min_scalar_type(2 * len(names)))
        return Rows(self.X, self.label, cells, self.weight, names)

    def merge(self, other: RowSketch) -> RowSketch:
        """Return the sketch of the rows of both; neither argument changes."""
        keys = np.concatenate([self.key, other.key])
        key, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        count = np.zeros(len(key), dtype=np.int64)
        np.add.at(count, inverse, np.concatenate([self.count, other.count]))
        weight = _sums_by(inverse, np.concatenate([self.weight, other.weight]))
        square = _sums_by(inverse, np.concatenate([self.square, other.square]))
        at = first[: self.size]
        return RowSketch(
            self.size,
            self.n_rows + other.n_rows,
            self.total_weight + other.total_weight,
            key[: self.size],
            np.concatenate([self.X, other.X])[at],
            np.concatenate([self.label, other.label])[at],
            weight[: self.size],
            square[: self.size],
            count[: self.size],
            (self.digest + other.digest) % 2**64,
        )

    def per_copy(self, total: Array, digits: int) -> Array:
        """Return the mean over a row's copies, (m,), rounded: the order of adding shows in it."""
        mean = total / self.count
        unit = 10.0 ** (np.floor(np.log10(mean)) + 1.0 - digits)
        return np.where(self.count > 1, np.rint(mean / unit) * unit, mean)

    def sample(
        self, n_groups: int, place: HashArray | None = None
    ) -> tuple[Array, Array, Array, IntArray]:
        """Return features, labels, weights and groups of a sample that stands for the cell.

        Groups go by ``place``, one hash for each row of the sketch, or else by the rows' keys.
        Rows that repeat are in it several times, in proportion and once at least, about ``size``
        rows in all; weights make up for rounding and add up to the cell's. A cell of at most
        ``size`` rows is its own sample.
        """
        share = min(1.0, self.size / int(self.count.sum()))
        copies = np.maximum(np.rint(share * self.count), 1.0).astype(np.int64)
        at = np.repeat(np.arange(len(self.key)), copies)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(copies) - copies, copies)
        hashes = self.key if place is None else place
        group = (hashes[at] % np.uint64(n_groups)).astype(np.int64)
        weight = self.per_copy(self.weight, 9)[at] * (self.count / copies)[at]
        if share < 1.0 or int(self.count.sum()) < self.n_rows:
            weight *= self.total_weight / weight.sum()
        return self.X[at], self.label[at], weight, (group + nth) % n_groups


def sample_cells(cells: list[IntArray], most: int, rng: Rng) -> list[IntArray]:
    """Return the positions of at most ``most`` rows of each cell, in order."""
    chosen = []
    for at in cells:
        n = min(len(at), most)
        # One row out of each of as many strips: distinct, and soon done. Strips differ by a row
        # in length, so that they start at random, or rows would not be equally likely.
        edges = np.arange(n + 1) * len(at) // n
        some = edges[:-1] + (rng.random_sample(n) * np.diff(edges)).astype(np.int64)
        chosen.append(at[np.sort((some + rng.randint(len(at))) % len(at))])
    return chosen


def take_sample(rows: LabelledRows, most: int, rng: Rng) -> tuple[LabelledRows, IntArray]:
    """Return at most ``most`` rows of each cell, with the weight of all, and where they were."""
    cells = rows.all_cells()
    chosen = sample_cells(cells, most, rng)
    more = [np.full(len(at), len(c) / len(at)) for at, c in zip(chosen, cells, strict=True)]
    positions = np.concatenate(chosen)
    sample = rows.take(positions)
    return replace(sample, weight=sample.weight * np.concatenate(more)), positions
