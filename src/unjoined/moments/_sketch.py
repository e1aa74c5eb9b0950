"""A sample of rows that does not depend on their order, and which of them repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, BoolArray, IntArray
from unjoined.moments._grouped import HashArray, row_hashes

__all__ = ["RepeatedRows", "RowSketch", "row_keys"]


def row_keys(X: Array, label: Array) -> HashArray:
    """Return what tells rows apart: equal features and labels have equal keys.

    Not weights: which rows are drawn, and which groups they fall into, must not change with the
    units that weights are in.
    """
    return row_hashes(X, label)


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
    def of_rows(cls, X: Array, label: Array, weight: Array, size: int) -> RowSketch:
        """Return the sketch of some rows. Costs O(n d + n log n)."""
        keys = row_keys(X, label)
        key, first, inverse, count = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        at = first[:size]
        return cls(
            size,
            len(label),
            float(weight.sum()),
            key[:size],
            X[at],
            label[at],
            _sums_by(inverse, weight)[:size],
            _sums_by(inverse, weight**2)[:size],
            count[:size],
        )

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
        )

    @property
    def uneven(self) -> BoolArray:
        """Whether a row's copies have different weights, shape (m,)."""
        return np.asarray(self.square * self.count > self.weight**2 * (1.0 + 1e-9))

    @property
    def mean_weight(self) -> Array:
        """The mean weight of a row's copies, shape (m,).

        Rounded where there are several, as the last digits of their sum depend on the order.
        """
        mean = self.weight / self.count
        unit = 10.0 ** (np.floor(np.log10(mean)) - 8.0)
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
        weight = self.mean_weight[at] * (self.count / copies)[at]
        if share < 1.0 or int(self.count.sum()) < self.n_rows:
            weight *= self.total_weight / weight.sum()
        return self.X[at], self.label[at], weight, (group + nth) % n_groups

    def repeated(self) -> RepeatedRows:
        """Return the rows of the sketch that occur more than once."""
        several = self.count > 1
        # Copies of one weight keep it to the bit.
        weight = np.where(self.uneven, self.mean_weight, np.nan)
        square = self.square / self.count
        return RepeatedRows(self.key[several], weight[several], square[several])


class RepeatedRows:
    """Deals rows into groups by their hashes, and copies of a row evenly.

    A group hashed from content takes all copies of a row. Where a few rows make up the table, as
    with a handful of 0/1 features, groups would then follow different laws. Copies are the same
    in all respects, their mean weight included, so counting them as they come keeps the result
    free of their order.

    Parameters
    ----------
    keys : array of shape (m,)
        Rows to count, ascending.
    weight, square : array of shape (m,), optional
        Mean weight of the copies, NaN where they all have the same, and mean squared weight.
    """

    def __init__(
        self, keys: HashArray, weight: Array | None = None, square: Array | None = None
    ) -> None:
        self.keys = keys
        self.weight = np.full(len(keys), np.nan) if weight is None else weight
        self.square = self.weight**2 if square is None else square
        self.seen = np.zeros(len(keys), dtype=np.int64)

    def evened(self, keys: HashArray, weight: Array) -> tuple[Array, Array]:
        """Return weights and their squares, the mean over all copies where these differ."""
        if np.isnan(self.weight).all():
            return weight, weight**2
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = (self.keys[at] == keys) & ~np.isnan(self.weight[at])
        return np.where(known, self.weight[at], weight), np.where(known, self.square[at], weight**2)

    def deal(self, keys: HashArray, n_groups: int, place: HashArray | None = None) -> IntArray:
        """Return the groups of rows that come next, by ``place`` or else keys; remember them."""
        hashes = keys if place is None else place
        group = (hashes % np.uint64(n_groups)).astype(np.int64)
        if not len(self.keys):
            return group
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        hit = np.flatnonzero(self.keys[at] == keys)
        which = at[hit]
        order = np.argsort(which, kind="stable")
        ranked = which[order]
        nth = np.empty(len(which), dtype=np.int64)
        nth[order] = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
        group[hit] = (group[hit] + self.seen[which] + nth) % n_groups
        self.seen += np.bincount(which, minlength=len(self.keys))
        return group
