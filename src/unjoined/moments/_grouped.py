"""Sums kept apart by kind, population and group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, IntArray
from unjoined.moments._sums import MomentSums

__all__ = ["CellKey", "GroupedSums", "HashArray", "row_hashes", "stable_groups"]

HashArray: TypeAlias = NDArray[np.uint64]


class CellKey(NamedTuple):
    """Which rows a sum is over."""

    kind: str  # "outcome" or "treatment"
    population: int  # 0 or 1, in the sorted order of names
    group: int  # a stable hash of the row's content


@dataclass(frozen=True, slots=True)
class GroupedSums:
    """One `MomentSums` per (kind, population, group); absent keys are sums of no rows.

    The groups make it possible to fit without some of the rows, as cross-validation does: the
    other groups are added up, without a further pass over the data.
    """

    p: int
    cells: Mapping[CellKey, MomentSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mapping."""
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from a plain dictionary: a frozen view cannot be sent to another process."""
        return (GroupedSums, (self.p, dict(self.cells)))

    def merge(self, other: GroupedSums) -> GroupedSums:
        """Return the sums over the rows of both; neither argument changes."""
        cells = dict(self.cells)
        for key, sums in other.cells.items():
            cells[key] = cells[key].merge(sums) if key in cells else sums
        return GroupedSums(self.p, cells)

    @property
    def groups(self) -> list[int]:
        """The groups that have rows, sorted."""
        return sorted({key.group for key in self.cells})

    def of_group(self, group: int) -> GroupedSums:
        """Return the sums of one group alone."""
        return GroupedSums(self.p, {k: v for k, v in self.cells.items() if k.group == group})

    def total(self, kind: str, population: int) -> MomentSums:
        """Return the sums of one cell over all of its groups."""
        parts = [
            self.cells[key]
            for key in sorted(self.cells)
            if key.kind == kind and key.population == population
        ]
        return reduce(MomentSums.merge, parts, MomentSums.zero(self.p))


# Odd 64-bit constants of the SplitMix64 finaliser (Steele, Lea and Flood, 2014).
_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def _mix(state: HashArray) -> None:
    """Scramble 64-bit integers in place; every input bit moves every output bit."""
    state += _GOLDEN
    state ^= state >> np.uint64(30)
    state *= _MIX_1
    state ^= state >> np.uint64(27)
    state *= _MIX_2
    state ^= state >> np.uint64(31)


def row_hashes(*columns: Array) -> HashArray:
    """Return 64 bits for each row that depend on the row's content alone, shape (n,).

    ``columns`` are one or two-dimensional arrays of n rows each, read in order. The same row has
    the same hash whatever its position, chunk, thread or machine. Costs one pass.
    """
    state = np.zeros(len(columns[0]), dtype=np.uint64)
    for part in columns:
        for column in part.T if part.ndim == 2 else (part,):
            # Adding 0.0 turns -0.0 into 0.0: they are equal and must not differ in bits.
            state ^= np.ascontiguousarray(column + 0.0, dtype=np.float64).view(np.uint64)
            _mix(state)
    return state


def stable_groups(X: Array, label: Array, n_groups: int) -> IntArray:
    """Return a group from 0 to ``n_groups - 1`` for each row, from the row's content alone.

    The same row falls into the same group whatever its position, chunk, thread or machine.
    Rows with the same features and label share a group, so that a copy of a row is never on
    both sides of a split. Costs one pass over the features.
    """
    return (row_hashes(X, label) % np.uint64(n_groups)).astype(np.int64)
