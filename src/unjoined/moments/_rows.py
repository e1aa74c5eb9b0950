"""Rows that passed every check, in the coding the mathematics uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray, CellArray, IntArray
from unjoined._validation import (
    OUTCOME,
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
)
from unjoined.features import unit_mean
from unjoined.moments._label_scan import scan_labels

__all__ = ["LabelledRows", "label_rows", "target_rows"]


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
