"""Rows that passed every check, in the coding the mathematics uses; a quick look at labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._threads import over_pieces
from unjoined._typing import Array, ArrayLike, BoolArray, CellArray, IntArray
from unjoined._validation import (
    LARGEST,
    OUTCOME,
    SMALLEST,
    TARGET,
    TREATMENT,
    OutcomeCoding,
    check_cells,
    check_kind,
    check_labels,
    check_names,
    check_outcome,
    check_population,
    check_treatment,
    check_weight,
    is_kind,
    unit_mean,
)


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Checked rows of all cells: what everything behind the checks trusts."""

    X: Array  # (n, d)
    label: Array  # (n,) treatment -1/+1, outcome in the inner coding
    kind: np.ndarray[Any, np.dtype[np.str_]]  # (n,) "outcome" or "treatment"
    population: IntArray  # (n,) 0 or 1, or more where an estimator takes several
    weight: Array  # (n,) > 0, of mean 1 in each cell where all rows were at hand
    names: list[Any]  # of the populations
    coding: OutcomeCoding
    cell: CellArray | None = None  # (n,) kind and population in one, where both are at hand

    def at(self, kind: str, population: int) -> IntArray:
        """Return the positions of the rows of one cell."""
        return np.flatnonzero(is_kind(self.kind, kind) & (self.population == population))

    def all_cells(self) -> list[IntArray]:
        """Return the positions of the rows of each cell, outcomes first."""
        each = range(len(self.names))
        return [self.at(kind, k) for kind in (OUTCOME, TREATMENT) for k in each]

    def of_kind(self, kind: str) -> IntArray:
        """Return the positions of the rows of one kind."""
        return np.flatnonzero(is_kind(self.kind, kind))

    @property
    def sign(self) -> Array:
        """The paper's (-1)^(k-1): +1 in the first of two populations, -1 in the second."""
        return np.where(self.population == 0, 1.0, -1.0)

    @property
    def share(self) -> Array:
        """Row weights under which each cell counts the same and each kind adds up to one.

        With them a mean over two populations is the paper's average over z or w, whatever
        the sizes of the cells.
        """
        share = np.empty(len(self.label))
        for kind in (OUTCOME, TREATMENT):
            for population in range(len(self.names)):
                at = self.at(kind, population)
                share[at] = self.weight[at] / (len(self.names) * self.weight[at].sum())
        return share

    @property
    def relative(self) -> Array:
        """Row weights of mean 1 in each cell, also for a sample that stands for more rows."""
        relative = np.empty(len(self.label))
        for kind in (OUTCOME, TREATMENT):
            for population in range(len(self.names)):
                at = self.at(kind, population)
                relative[at] = unit_mean(self.weight[at])
        return relative

    def take(self, at: IntArray | BoolArray) -> LabelledRows:
        """Return the rows at some positions, in that order, or those that are marked."""
        return replace(
            self,
            X=self.X[at],
            label=self.label[at],
            kind=self.kind[at],
            population=self.population[at],
            weight=self.weight[at],
            cell=None if self.cell is None else self.cell[at],
        )

    def cells(self) -> CellArray:
        """Return the cell of each row, of two populations."""
        if self.cell is not None:
            return self.cell
        return is_kind(self.kind, TREATMENT) * np.uint8(2) + self.population.astype(np.uint8)


def label_rows(
    X: Array,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    several: bool = False,
    n_jobs: int | None = None,
) -> LabelledRows:
    """Check labels and return the rows that carry one, in the inner coding.

    ``X`` is trusted. There must be two populations, or at least two if ``several``. Target rows
    and rows of weight 0 are left out: neither has a say in what the labels tell. The weights of
    each cell are brought to mean 1, so that their units mean nothing to whatever comes behind:
    each table may have its own.
    """
    n = len(X)
    clean = None if sample_weight is not None else scan_labels(y, kind, population, n, n_jobs)
    if clean is not None:
        label, index, cell, names, coding = clean
        check_names(names)
        return LabelledRows(X, label, np.asarray(kind), index, np.ones(n), names, coding, cell)
    kinds = check_kind(kind, n)
    labels = check_labels(y, kinds)
    populations = check_population(population, kinds)
    weight = check_weight(sample_weight, n)
    names, index = check_cells(kinds, populations, weight, several=several)
    used = ~is_kind(kinds, TARGET) & (weight > 0.0)
    outcome = used & is_kind(kinds, OUTCOME)
    treatment = used & ~outcome
    coding = check_outcome(labels[outcome])
    label = labels.copy()
    label[outcome] = coding.encode(labels[outcome])
    label[treatment] = check_treatment(labels[treatment])
    rows = LabelledRows(X, label, kinds, index, weight, names, coding)
    if not used.all():
        rows = rows.take(used)
    return rows if sample_weight is None else replace(rows, weight=rows.relative)


def target_rows(
    X: Array, kind: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Array, Array] | None:
    """Return features and weights (of mean 1) of the target rows that count, None without any."""
    weight = check_weight(sample_weight, len(X))
    used = is_kind(check_kind(kind, len(X)), TARGET) & (weight > 0.0)
    return (X[used], unit_mean(weight[used])) if used.any() else None


BLOCK_ROWS = 65_536


SOME_ROWS = 1000  # from first to last: these usually show both populations


class ScannedLabels(NamedTuple):
    """What some rows hold."""

    cells: frozenset[int]  # 2 for treatments and 1 for the second population, added up
    outcomes: tuple[float, ...]  # different ones, at most three
    codes: frozenset[float]  # of treatments


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

    def look(start: int) -> ScannedLabels | None:
        block = slice(start, start + BLOCK_ROWS)
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
