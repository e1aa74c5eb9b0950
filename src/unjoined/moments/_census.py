"""The first look at a source: which cells, which labels, and a sample of every cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    OutcomeCoding,
    check_names,
    check_outcome,
    check_two,
)
from unjoined._validation import check_treatment as check_codes
from unjoined.data._chunks import Chunk, ChunkSource
from unjoined.errors import LabelError, TableError
from unjoined.moments._grouped import HashArray
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sketch import RowSketch, row_keys

__all__ = ["Census", "census_of_chunk", "take_census"]

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

    def check_complete(self) -> None:
        """Refuse a source that does not have the four cells."""
        check_names(
            self.names,
            lambda name: " and ".join(kind for kind, of in self.cells if of == name) + " rows",
        )
        instead = "fit Uplift or MixtureUplift, which take any number, to rows in memory"
        check_two(self.names, "the source has {}", instead)
        for name in self.names:
            for kind in (OUTCOME, TREATMENT):
                if (kind, name) not in self.cells:
                    raise LabelError(
                        f"population {name!r} has no {kind} rows with positive weight; each "
                        f"population needs an {OUTCOME} table and a {TREATMENT} table."
                    )

    def merge(self, other: Census, *, place: str = "one of the parts") -> Census:
        """Return the census of the rows of both; neither argument changes.

        Parameters
        ----------
        other : Census
            Of further rows, with samples of the same size.
        place : str
            What messages call them.

        Raises
        ------
        TableError, LabelError
            The number of features differs, or treatments are coded by more than two values.
        """
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

    def places(self, kind: str, X: Array, label: Array) -> HashArray:
        """Return hashes that groups are taken from, blind to where 0 and 1 lie in the outcome.

        Else a constant added to all outcomes would deal the rows anew and change the fit. Of a
        real outcome its place between the smallest and the largest counts, from either end, so
        that rows with equal features do not all fall into one group.
        """
        place = np.zeros(len(label))
        if kind == OUTCOME and len(self.outcomes) == MOST_VALUES:
            low, high = self.outcomes[0], self.outcomes[-1]
            place = np.rint(np.abs((label - low) / (high - low) - 0.5) * PLACES)
        return row_keys(X, place)

    def sample(self, n_groups: int) -> tuple[LabelledRows, IntArray]:
        """Return a sample of every cell in the inner coding, and the rows' groups."""
        coding = self.coding
        parts: list[tuple[Array, Array, Array, IntArray]] = []
        kinds, populations = [], []
        for kind in (OUTCOME, TREATMENT):
            for k, name in enumerate(self.names):
                cell = self.cells[kind, name]
                # Rounded, as the last digits depend on the order in which weights were added, and
                # fits to the sample would magnify that.
                cell = replace(cell, total_weight=float(f"{cell.total_weight:.9g}"))
                place = self.places(kind, cell.X, cell.label)
                X, label, weight, group = cell.sample(n_groups, place)
                inner = coding.encode(label) if kind == OUTCOME else self.treatment(label)
                parts.append((X, inner, weight, group))
                kinds.append(np.full(len(label), kind))
                populations.append(np.full(len(label), k))
        X, label, weight = (np.concatenate([part[i] for part in parts]) for i in range(3))
        group = np.concatenate([part[3] for part in parts])
        rows = LabelledRows(
            X,
            label,
            np.concatenate(kinds),
            np.concatenate(populations),
            weight,
            list(self.names),
            coding,
        )
        return rows, group


def take_census(source: ChunkSource, *, sample_rows: int) -> Census:
    """Go through a source once.

    Parameters
    ----------
    source : ChunkSource
        Rows of some or all cells. Target rows and rows of weight 0 are passed over.
    sample_rows : int
        Distinct rows to keep of every cell, at most: all that is held in memory.

    Raises
    ------
    TableError, LabelError
        A chunk is malformed, the number of features changes, there are no rows, or treatments
        are not coded by two values.
    """
    total: Census | None = None
    names: tuple[str, ...] | None = ()
    for chunk in source:
        names = chunk.names if total is None else names
        part = census_of_chunk(chunk, sample_rows=sample_rows)
        total = part if total is None else total.merge(part, place=_place(chunk))
    if total is None or not total.cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    if names == ():
        asked = source.feature_names
        names = None if asked is None else tuple(asked)
    return replace(total, feature_names=names)


def census_of_chunk(chunk: Chunk, *, sample_rows: int) -> Census:
    """Return the census of one chunk, which may have no rows: then it has no cells."""
    used = (chunk.weight > 0.0) & (chunk.kind != TARGET)
    cells = {}
    for kind in (OUTCOME, TREATMENT):
        for name in np.unique(chunk.population[used & (chunk.kind == kind)]).tolist():
            at = np.flatnonzero(used & (chunk.kind == kind) & (chunk.population == name))
            rows = chunk.X[at], chunk.label[at], chunk.weight[at]
            cells[kind, name] = RowSketch.of_rows(*rows, sample_rows)
    return Census(
        int(chunk.X.shape[1]),
        None,
        _sorted_names(cells),
        _some_values(np.empty(0), chunk.label[used & (chunk.kind == OUTCOME)]),
        _codes(np.empty(0), chunk.label[used & (chunk.kind == TREATMENT)], _place(chunk)),
        cells,
    )


def _place(chunk: Chunk) -> str:
    return f"{chunk.origin}, from row {chunk.first_row:,} on"


def _sorted_names(cells: Mapping[tuple[str, Any], RowSketch]) -> tuple[Any, ...]:
    return tuple(sorted({name for _, name in cells}, key=lambda name: (type(name).__name__, name)))


def _some_values(known: Array, values: Array) -> Array:
    """Return the smallest, the largest and one more distinct value, if there are as many."""
    distinct = np.unique(np.concatenate([known, values]))
    if len(distinct) <= MOST_VALUES:
        return distinct
    return distinct[[0, 1, -1]]


def _codes(known: Array, values: Array, place: str) -> Array:
    codes = np.unique(np.concatenate([known, values]))
    try:
        check_codes(codes)
    except LabelError as error:
        raise LabelError(f"{place}: {error}") from error
    return codes
