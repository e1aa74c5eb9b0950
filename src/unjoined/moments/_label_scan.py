"""The quick look at labels, for the usual case that nothing is wrong with them.

Checks that can say what is wrong go over each column several times. Most columns of millions of
rows are as they should be, and then one look by all cores is enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._compiled import ScannedLabels, label_kernel
from unjoined._typing import Array, CellArray, IntArray
from unjoined._validation import LARGEST, OUTCOME, SMALLEST, TREATMENT, OutcomeCoding
from unjoined.moments._threads import over_pieces

__all__ = ["CleanLabels", "scan_labels"]

BLOCK_ROWS = 65_536
SOME_ROWS = 1000  # from first to last: these usually show both populations


class CleanLabels(NamedTuple):
    """Labels in the inner coding, and what their columns were found to hold."""

    label: Array  # (n,)
    population: IntArray  # (n,) 0 or 1
    cell: CellArray  # (n,)
    names: list[Any]
    coding: OutcomeCoding


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
    names = np.unique(population[:: max(n // SOME_ROWS, 1)])
    if len(names) != 2:
        return None
    number, cell = np.asarray(y, dtype=np.float64), np.empty(n, dtype=np.uint8)
    if not -LARGEST <= number.min() <= number.max() <= LARGEST:
        return None
    both = (names[0], names[1])
    kernel = label_kernel(number, kind, population, (OUTCOME, TREATMENT), both)

    def look(start: int) -> ScannedLabels | None:
        stop = min(start + BLOCK_ROWS, n)
        if kernel is not None:
            return kernel(start, stop, cell)
        block = slice(start, stop)
        return _look(number[block], kind[block], population[block], both, cell[block])

    starts = range(0, n, BLOCK_ROWS)
    found = list(over_pieces(look, starts, n_jobs))
    blocks = [block for block in found if block is not None]
    if len(blocks) < len(found) or len(frozenset().union(*(b.cells for b in blocks))) < 4:
        return None
    coding = _coding([value for block in blocks for value in block.outcomes])
    codes = frozenset().union(*(block.codes for block in blocks))
    if coding is None or not (codes <= {0.0, 1.0} or codes <= {-1.0, 1.0}):
        return None
    label, index = np.empty(n), np.empty(n, dtype=np.int64)

    def encode(start: int) -> None:
        block = slice(start, start + BLOCK_ROWS)
        raw, of_cell = number[block], cell[block]
        index[block] = of_cell & 1
        treatment = np.where(raw > 0.0, 1.0, -1.0)  # in either coding
        label[block] = np.where(of_cell < 2, coding.encode(raw), treatment)

    for _ in over_pieces(encode, starts, n_jobs):
        pass
    return CleanLabels(label, index, cell, names.tolist(), coding)


def _coding(outcomes: list[float]) -> OutcomeCoding | None:
    """Return the coding of outcomes of which some are known, more than two if there are more."""
    values = np.unique(outcomes)
    if len(values) < 2:
        return None
    if len(values) > 2 and values[-1] - values[0] < SMALLEST:
        return None
    if len(values) > 2:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    low, high = values.tolist()
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)


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
    y: Array, kind: NDArray[np.str_], population: NDArray[Any], names: Any, cell: CellArray
) -> ScannedLabels | None:
    """Return what a block holds and write its cells, or None if a row is unusual."""
    outcome, second = kind == OUTCOME, population == names[1]
    treatment = ~outcome
    if not (outcome | (kind == TREATMENT)).all() or not (second | (population == names[0])).all():
        return None
    outcomes, codes = y[outcome], y[treatment]
    zeros, ones = codes == 0, codes == 1
    if not (zeros | ones).all() and not (ones | (codes == -1)).all():
        return None
    np.multiply(treatment, 2, out=cell, casting="unsafe")
    cell += second
    cells = frozenset(np.flatnonzero(np.bincount(cell)).tolist())
    return ScannedLabels(cells, _some(outcomes), frozenset(_distinct(codes, zeros, ones)))


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
