"""Rows grouped by equal score: the one place where ties are dealt with.

Everything computed from group sizes and group sums is the same, to rounding, in
whatever order the rows come. Arguments are trusted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, IntArray

__all__ = ["TieGroups", "fill_from_top", "group_ties", "group_with_ties_in_row_order"]


@dataclass(frozen=True, slots=True)
class TieGroups:
    """Rows of equal score, numbered from the lowest score (0) to the highest."""

    group: IntArray  # (n,) number of the row's group
    size: Array  # (g,) rows in each group, or their weight

    def sums(self, column: Array) -> Array:
        """Return the sum of ``column`` in each group, lowest score first."""
        per_group = np.bincount(self.group, weights=column, minlength=len(self.size))
        return per_group.astype(np.float64, copy=False)

    def sums_from_top(self, column: Array) -> Array:
        """Return the sums of ``column`` over the best group, the two best, and so on."""
        running: Array = np.cumsum(self.sums(column)[::-1])
        return running


def group_ties(score: Array, weight: Array | None = None) -> TieGroups:
    """Group rows of exactly equal score, in O(n log n); groups are as large as their weight."""
    _, group, size = np.unique(score, return_inverse=True, return_counts=True)
    if weight is not None:
        size = np.bincount(group, weights=weight)
    return TieGroups(group.astype(np.int64), size.astype(np.float64))


def group_with_ties_in_row_order(score: Array) -> TieGroups:
    """Give each row a group of its own; of tied rows the earlier one counts as better.

    For conventions that break ties by position. They depend on the row order; ours do not.
    """
    n = len(score)
    best_first = np.argsort(-score, kind="stable")
    group = np.empty(n, dtype=np.int64)
    group[best_first] = np.arange(n - 1, -1, -1)
    return TieGroups(group, np.ones(n))


def fill_from_top(demand: Array, capacity: float) -> Array:
    """Serve groups from the last to the first until ``capacity`` is used up.

    ``demand`` (g,) is positive. Returned is the share of each group's demand that is met:
    ones, then at most one fraction, then zeros.
    """
    best_first = demand[::-1]
    used = np.concatenate(([0.0], np.cumsum(best_first)[:-1]))
    met: Array = np.clip((capacity - used) / best_first, 0.0, 1.0)[::-1]
    return met
