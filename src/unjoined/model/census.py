"""The first look at a source: cells, labels, and a sample, however rows are cut into chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils.random import sample_without_replacement

from unjoined._typing import Array, IntArray
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    OutcomeCoding,
    check_names,
    check_outcome,
    check_treatment,
    check_two,
)
from unjoined.data.fold import HashArray, fold, hash_with, plus
from unjoined.data.rows import LabelledRows, NumberedRows, unit_of_clusters
from unjoined.data.sources import ChunkSource
from unjoined.errors import LabelError, TableError


def number_keys(number: IntArray) -> HashArray:
    """Return 64 bits for each number, shape (n,)."""
    return hash_with(np.zeros(len(number), dtype=np.uint64), number.astype(np.float64))


def deal_groups(
    number: IntArray, n_groups: int, cluster: IntArray | None = None
) -> IntArray:
    """Return the groups of rows that have these numbers within their tables, shape (n,).

    Rows of a cluster are in one group, whatever their numbers.

    Every run of ``n_groups`` rows of a table fills each group once, beginning with a group that
    is hashed from the number of the run. So groups are equal in size, to a row, and neither what
    rows hold nor what populations are called has a say: copies of a row are dealt as others are.
    """
    if cluster is not None:
        number = unit_of_clusters(cluster)
    first = number_keys(number // n_groups) % np.uint64(n_groups)
    return (number + first.astype(np.int64)) % n_groups


@dataclass(frozen=True, slots=True)
class Census:
    """What one pass over all rows found; the same however they are cut into chunks."""

    place: str  # what messages call the rows, or the last of them
    n_features: int
    feature_names: tuple[str, ...] | None
    names: tuple[Any, ...]  # of the populations, sorted
    outcomes: Array  # the smallest, the largest and one value between, as far as there are such
    codes: Array  # distinct treatment labels; -1/+1 or 0/1
    cells: dict[tuple[str, Any], RowSketch]
    n_scores: int = 0  # last of the features, which are scores
    digest: int = (
        0  # a fingerprint of all rows and weights, however they are cut into chunks
    )

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

    def check_complete(self) -> None:
        """Refuse a source that lacks a cell, or has a single population."""
        check_names(
            self.names,
            lambda name: (
                " and ".join(kind for kind, of in self.cells if of == name) + " rows"
            ),
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

    def check_same(self, digest: int) -> None:
        """Refuse a further pass whose rows, by the sum of their digests, are not those counted."""
        if self.digest != digest:
            raise TableError(
                "the source gave other rows, or the same in another order, when it was read again. "
                "Rows must stay as they are while they are added up: give files, a query with "
                "ORDER BY, or a function whose rows nobody changes; partitions of Dask may have to "
                "be persisted."
            )

    def without_samples(self) -> Census:
        """Return the census with cells that hold no rows, which is quick to send around."""
        nothing = np.empty(0, dtype=np.int64)
        return replace(
            self, cells={key: cell.take(nothing) for key, cell in self.cells.items()}
        )

    def __add__(self, other: Census) -> Census:
        """Return the census of the rows of both; neither argument changes."""
        if other.n_features != self.n_features:
            raise TableError(
                f"{other.place} has {other.n_features} features, the rows before it have "
                f"{self.n_features}. All chunks need the same features, in the same order."
            )
        cells = plus(self.cells, other.cells)
        return Census(
            other.place,
            self.n_features,
            self.feature_names,
            _sorted_names(cells),
            _some_values(self.outcomes, other.outcomes),
            _codes(self.codes, other.codes, other.place),
            cells,
            self.n_scores,
        )

    def treatment(self, label: Array) -> Array:
        """Return treatment labels as -1/+1."""
        return 2.0 * label - 1.0 if np.isin(self.codes, (0.0, 1.0)).all() else label

    def sample(self, n_groups: int) -> tuple[LabelledRows, IntArray]:
        """Return a sample of every cell in the inner coding, and the rows' groups.

        Rows are in the order of their numbers, and their weights add up to the cell's.
        """
        coding = self.coding
        names = list(self.names)
        tables = [(kind, name) for kind in (OUTCOME, TREATMENT) for name in names]
        sketches = [self.cells[table] for table in tables]
        sketches = [sketch.take(np.argsort(sketch.number)) for sketch in sketches]
        labels = [
            coding.encode(sketch.label)
            if kind == OUTCOME
            else self.treatment(sketch.label)
            for (kind, _), sketch in zip(tables, sketches, strict=True)
        ]
        sizes = [len(sketch.number) for sketch in sketches]
        sample = LabelledRows(
            np.concatenate([sketch.X for sketch in sketches]),
            np.concatenate(labels),
            np.repeat(
                np.arange(len(tables), dtype=np.min_scalar_type(len(tables))), sizes
            ),
            np.concatenate([sketch.sample_weight() for sketch in sketches]),
            names,
            coding,
            cluster=None
            if sketches[0].cluster is None
            else np.concatenate([sketch.cluster for sketch in sketches]),
        )
        number = np.concatenate([sketch.number for sketch in sketches])
        return sample, deal_groups(number, n_groups, sample.cluster)


def take_census(source: ChunkSource, *, sample_rows: int, n_scores: int = 0) -> Census:
    """Go through a source once, keeping at most ``sample_rows`` rows of every cell."""
    shared = sample_rows, n_scores
    result = fold(source, census_of_rows, shared, n_jobs=None, n_scores=n_scores)
    census: Census | None = result[0]
    if census is None:
        raise TableError("the source has no rows with a label and a positive weight.")
    names = census.feature_names
    if names == ():  # only the source can tell
        asked = source.feature_names
        names = None if asked is None else tuple(asked)
    return replace(census, feature_names=names, digest=result[2])


def census_of_rows(
    rows: NumberedRows, shared: tuple[int, int], n_jobs: int | None = None
) -> Census:
    """Return the census of rows that count.

    ``shared`` are the rows of each cell to keep, and the number of scores among the features.
    """
    sample_rows, n_scores = shared
    at = rows.all_cells()
    cells = {
        table: RowSketch.of_rows(rows.take(own), sample_rows)
        for table, own in zip(rows.tables, at, strict=True)
        if len(own)
    }
    m = len(rows.names)
    outcomes, codes = (rows.label[np.concatenate(part)] for part in (at[:m], at[m:]))
    place = f"{rows.origin}, from row {rows.first_row:,} on"
    return Census(
        place,
        int(rows.X.shape[1]),
        rows.feature_names,
        _sorted_names(cells),
        _some_values(np.empty(0), outcomes),
        _codes(np.empty(0), codes, place),
        cells,
        n_scores,
    )


def _sorted_names(cells: Mapping[tuple[str, Any], RowSketch]) -> tuple[Any, ...]:
    return tuple(
        sorted(
            {name for _, name in cells}, key=lambda name: (type(name).__name__, name)
        )
    )


def _some_values(known: Array, values: Array) -> Array:
    """Return the smallest, the largest and one more distinct value, if there are as many."""
    both = np.concatenate([known, values])
    if not len(both):
        return both
    low = both.min()
    high = both.max()
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


@dataclass(frozen=True, slots=True)
class RowSketch:
    """The ``size`` rows of a cell whose keys are the smallest.

    As keys are hashed from the rows' numbers, this is a simple random sample of the cell, the same
    however rows are cut into chunks.
    """

    size: int
    n_rows: int  # of the cell
    total_weight: float
    key: HashArray  # (m,) ascending, m <= size
    number: IntArray  # (m,) within the table
    X: Array  # (m, d)
    label: Array  # (m,)
    weight: Array  # (m,)
    cluster: Any  # (m,) or None

    @classmethod
    def of_rows(cls, rows: NumberedRows, size: int) -> RowSketch:
        """Return the sketch of rows of one cell."""
        keys = number_keys(rows.number)
        at = np.argsort(keys)[:size]
        return cls(
            size,
            len(rows),
            float(rows.weight.sum()),
            keys[at],
            rows.number[at],
            rows.X[at],
            rows.label[at],
            rows.weight[at],
            None if rows.cluster is None else rows.cluster[at],
        )

    def __add__(self, other: RowSketch) -> RowSketch:
        """Return the sketch of the rows of both; neither argument changes."""
        both = RowSketch(
            self.size,
            self.n_rows + other.n_rows,
            self.total_weight + other.total_weight,
            np.concatenate([self.key, other.key]),
            np.concatenate([self.number, other.number]),
            np.concatenate([self.X, other.X]),
            np.concatenate([self.label, other.label]),
            np.concatenate([self.weight, other.weight]),
            None
            if self.cluster is None
            else np.concatenate([self.cluster, other.cluster]),
        )
        return both.take(np.argsort(both.key)[: self.size])

    def take(self, at: IntArray) -> RowSketch:
        """Return the sketch with the rows at some positions, in that order."""
        return replace(
            self,
            key=self.key[at],
            number=self.number[at],
            X=self.X[at],
            label=self.label[at],
            weight=self.weight[at],
            cluster=None if self.cluster is None else self.cluster[at],
        )

    def sample_weight(self) -> Array:
        """Return the weights of the rows, (m,), such that they add up to those of the cell."""
        if len(self.number) == self.n_rows:
            return self.weight
        # Rounded, as the last digits depend on the order in which weights were added, and fits to
        # the sample would magnify that.
        total = float(f"{self.total_weight:.9g}")
        factor = total / float(self.weight.sum())
        return self.weight * factor


def take_sample(
    rows: LabelledRows, most: int, rng: Rng
) -> tuple[LabelledRows, IntArray]:
    """Return at most ``most`` rows of each cell, with the weight of all, and where they were."""
    cells = rows.all_cells()
    chosen = [
        np.sort(
            at[
                sample_without_replacement(
                    len(at), min(len(at), most), random_state=rng
                )
            ]
        )
        for at in cells
    ]
    more = [
        np.full(len(at), len(c) / len(at)) for at, c in zip(chosen, cells, strict=True)
    ]
    positions = np.concatenate(chosen)
    sample = rows.take(positions)
    return replace(sample, weight=sample.weight * np.concatenate(more)), positions
