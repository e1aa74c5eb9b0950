"""The quick look at labels, for the usual case that nothing is wrong with them.

Checks that can say what is wrong go over each column several times. Most columns of millions of
rows are as they should be, and then one look by all cores is enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.moments._threads import over_pieces

__all__ = ["CleanLabels", "scan_labels"]

BLOCK_ROWS = 65_536
FIRST_ROWS = 1000  # these usually show both populations


class CleanLabels(NamedTuple):
    """Labels in the inner coding, and what their columns were found to hold."""

    label: Array  # (n,)
    population: IntArray  # (n,) 0 or 1
    names: list[Any]
    coding: OutcomeCoding


class _Block(NamedTuple):
    """What one block of rows holds."""

    cells: frozenset[int]  # 2 kinds by 2 populations that have rows
    outcomes: tuple[float, ...]  # least and greatest, and one between if there is one
    codes: frozenset[float]  # of treatments


def scan_labels(
    y: Any, kind: Any, population: Any, n: int, n_jobs: int | None = None
) -> CleanLabels | None:
    """Return the labels if they are clean: four cells of two populations, all rows labelled.

    None if anything is unusual, right or wrong: other types of columns, target rows, more
    populations, a label out of place. Then it takes the checks that can tell.

    Notes
    -----
    One pass over the three columns, on ``n_jobs`` threads.
    """
    if not _plain(y, kind, population, n):
        return None
    names = np.unique(population[:FIRST_ROWS])
    if len(names) != 2:
        return None
    starts = range(0, len(y), BLOCK_ROWS)
    is_outcome, index = np.empty(len(y), dtype=bool), np.empty(len(y), dtype=np.int64)

    def look(start: int) -> _Block | None:
        block = slice(start, start + BLOCK_ROWS)
        outcome, second = kind[block] == OUTCOME, population[block] == names[1]
        is_outcome[block], index[block] = outcome, second
        return _look(y[block], kind[block], population[block], outcome, second, names[0])

    found = list(over_pieces(look, starts, n_jobs))
    blocks = [block for block in found if block is not None]
    if len(blocks) < len(found) or len(frozenset().union(*(b.cells for b in blocks))) < 4:
        return None
    outcomes = np.unique([value for block in blocks for value in block.outcomes])
    codes = frozenset().union(*(block.codes for block in blocks))
    zero_one = codes <= {0.0, 1.0}
    if len(outcomes) < 2 or not (zero_one or codes <= {-1.0, 1.0}):
        return None
    low, high = float(outcomes[0]), float(outcomes[-1])
    coding = OutcomeCoding(0.0, 1.0, is_binary=False)
    if len(outcomes) == 2:
        coding = OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)
    label = np.empty(len(y))

    def encode(start: int) -> None:
        block = slice(start, start + BLOCK_ROWS)
        raw = np.asarray(y[block], dtype=np.float64)
        treatment = 2.0 * raw - 1.0 if zero_one else raw
        label[block] = np.where(is_outcome[block], coding.encode(raw), treatment)

    for _ in over_pieces(encode, starts, n_jobs):
        pass
    return CleanLabels(label, index, names.tolist(), coding)


def _plain(y: Any, kind: Any, population: Any, n: int) -> bool:
    """Whether the columns are arrays of n numbers, words, and whole numbers or words."""
    columns = (y, kind, population)
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in columns):
        return False
    return (
        len(y) == len(kind) == len(population) == n
        and y.dtype.kind in "biuf"
        and kind.dtype.kind == "U"
        and population.dtype.kind in "biuU"
    )


def _look(
    y: NDArray[Any],
    kind: NDArray[np.str_],
    population: NDArray[Any],
    outcome: NDArray[np.bool_],
    second: NDArray[np.bool_],
    first_name: Any,
) -> _Block | None:
    """Return what a block holds, or None if it holds anything else than it should."""
    treatment = ~outcome
    if not (outcome | (kind == TREATMENT)).all() or not (second | (population == first_name)).all():
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # a sum may overflow, or be inf - inf
        total = y.sum(dtype=np.float64)
    if not np.isfinite(total):
        return None
    outcomes, codes = y[outcome], y[treatment]
    zeros, ones = codes == 0, codes == 1
    if not (zeros | ones).all() and not (ones | (codes == -1)).all():
        return None
    cells = {
        2 * i + k
        for i, rows in enumerate((outcome, treatment))
        for k, there in enumerate((rows & ~second, rows & second))
        if there.any()
    }
    return _Block(frozenset(cells), _some(outcomes), frozenset(_distinct(codes, zeros, ones)))


def _distinct(codes: NDArray[Any], zeros: Any, ones: Any) -> set[float]:
    found = {1.0} if ones.any() else set()
    if len(codes) and not ones.all():
        found.add(0.0 if zeros.any() else -1.0)
    return found


def _some(outcomes: NDArray[Any]) -> tuple[float, ...]:
    """Return the least and the greatest value and, if there are more than two, another one."""
    if not len(outcomes):
        return ()
    low, high = outcomes.min(), outcomes.max()
    between = (outcomes != low) & (outcomes != high)
    ends = (float(low), float(high))
    return (*ends, float(outcomes[np.argmax(between)])) if between.any() else ends
