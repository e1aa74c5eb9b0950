"""The first look at a source: which cells, which labels, and a sample of every cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TARGET, TREATMENT, OutcomeCoding, check_outcome
from unjoined._validation import check_treatment as check_codes
from unjoined.data._chunks import Chunk, ChunkSource
from unjoined.errors import LabelError, TableError
from unjoined.moments._rows import LabelledRows
from unjoined.moments._sketch import RowSketch

__all__ = ["Census", "take_census"]

MOST_VALUES = 3  # more distinct values than two make an outcome real


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
        if len(self.names) != 2:
            raise LabelError(
                "two populations with different treatment policies are needed, the source has "
                f"{len(self.names)}{': ' if self.names else ''}"
                f"{', '.join(map(repr, self.names[:5]))}."
            )
        for name in self.names:
            for kind in (OUTCOME, TREATMENT):
                if (kind, name) not in self.cells:
                    raise LabelError(
                        f"population {name!r} has no {kind} rows with positive weight; each "
                        f"population needs an {OUTCOME} table and a {TREATMENT} table."
                    )

    def treatment(self, label: Array) -> Array:
        """Return treatment labels as -1/+1."""
        return 2.0 * label - 1.0 if np.isin(self.codes, (0.0, 1.0)).all() else label

    def sample(self, n_groups: int) -> tuple[LabelledRows, IntArray]:
        """Return a sample of every cell in the inner coding, and the rows' groups."""
        coding = self.coding
        parts: list[tuple[Array, Array, Array, IntArray]] = []
        kinds, populations = [], []
        for kind in (OUTCOME, TREATMENT):
            for k, name in enumerate(self.names):
                X, label, weight, group = self.cells[kind, name].sample(n_groups)
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
    cells: dict[tuple[str, Any], RowSketch] = {}
    outcomes, codes = np.empty(0), np.empty(0)
    d: int | None = None
    for chunk in source:
        d = _width(chunk, d)
        used = (chunk.weight > 0.0) & (chunk.kind != TARGET)
        outcomes = _some_values(outcomes, chunk.label[used & (chunk.kind == OUTCOME)])
        codes = _codes(codes, chunk, chunk.label[used & (chunk.kind == TREATMENT)])
        for kind in (OUTCOME, TREATMENT):
            for name in np.unique(chunk.population[used & (chunk.kind == kind)]).tolist():
                at = np.flatnonzero(used & (chunk.kind == kind) & (chunk.population == name))
                part = RowSketch.of_rows(
                    chunk.X[at], chunk.label[at], chunk.weight[at], sample_rows
                )
                known = cells.get((kind, name), RowSketch.zero(sample_rows, d))
                cells[kind, name] = known.merge(part)
    if d is None or not cells:
        raise TableError("the source has no rows with a label and a positive weight.")
    names = source.feature_names
    found = sorted({name for _, name in cells}, key=lambda name: (type(name).__name__, name))
    return Census(d, None if names is None else tuple(names), tuple(found), outcomes, codes, cells)


def _width(chunk: Chunk, d: int | None) -> int:
    found = int(chunk.X.shape[1])
    if d is not None and found != d:
        raise TableError(
            f"{chunk.origin} has {found} features, the rows before it have {d}. All chunks need "
            "the same features, in the same order."
        )
    return found


def _some_values(known: Array, values: Array) -> Array:
    """Return the smallest, the largest and one more distinct value, if there are as many."""
    distinct = np.unique(np.concatenate([known, values]))
    if len(distinct) <= MOST_VALUES:
        return distinct
    return distinct[[0, 1, -1]]


def _codes(known: Array, chunk: Chunk, values: Array) -> Array:
    codes = np.unique(np.concatenate([known, values]))
    try:
        check_codes(codes)
    except LabelError as error:
        raise LabelError(f"{chunk.origin}, from row {chunk.first_row:,} on: {error}") from error
    return codes
