"""Some rows of each of the four tables, where there are more than a question needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import IntArray
from unjoined.moments._rows import LabelledRows
from unjoined.moments._threads import over_pieces

__all__ = ["cell_positions", "sample_cells", "take_sample"]


def cell_positions(rows: LabelledRows, *, n_jobs: int | None = None) -> list[IntArray]:
    """Return the positions of the rows of each of the four cells, outcomes first."""
    cell = rows.cells()
    return list(over_pieces(lambda c: np.flatnonzero(cell == c), range(4), n_jobs))


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


def take_sample(rows: LabelledRows, cells: list[IntArray], most: int, rng: Rng) -> LabelledRows:
    """Return at most ``most`` rows of each cell, with the weight of all of them."""
    chosen = sample_cells(cells, most, rng)
    more = [np.full(len(at), len(c) / len(at)) for at, c in zip(chosen, cells, strict=True)]
    sample = rows.take(np.concatenate(chosen))
    return replace(sample, weight=sample.weight * np.concatenate(more))
