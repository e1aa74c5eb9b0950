"""Weights under which every cell describes the target, when feature distributions differ."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT, check_positive
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, OverlapWarning
from unjoined.model.ratios import (
    N_FOLDS,
    RatioEstimate,
    classifier_ratio,
    pooled_classifier_ratios,
)

CLASSIFIER = "classifier"
# Below these, an average rests on a few rows, or on people unlike half of the target.
SMALL_SIZE = 0.05
SMALL_COVERAGE = 0.5


@dataclass(frozen=True, slots=True)
class CellShift:
    """What weighting did to one cell."""

    kind: str
    population: Any  # its name
    n_rows: int
    effective_size: float  # rows of equal weight that would average as precisely
    coverage: float  # mean ratio: share of the target's mass that lies where the cell has rows
    largest_weight: float  # of a row, the cell's mean being 1
    n_clipped: int  # rows whose ratio was cut down to the cap
    n_dropped: int  # rows of ratio 0: the target has nobody like them


@dataclass(frozen=True, slots=True)
class ShiftReport:
    """How far the four cells are from the target, and what their weights cost.

    Printing it shows one line per cell.
    """

    method: str  # "classifier", or the name of the classifier's class
    target: str  # "target rows" or "pooled rows"
    n_target: int
    clip: float | None
    cells: tuple[CellShift, ...]

    def __str__(self) -> str:
        """Return a small table."""
        lines = [f"weighted to {self.n_target:,} {self.target} by {self.method}"]
        lines += [
            f"{cell.kind:>9} {cell.population!s}: {cell.n_rows:,} rows worth "
            f"{cell.effective_size:,.0f}, largest weight {cell.largest_weight:.1f}, "
            f"coverage {cell.coverage:.0%}, {cell.n_clipped} clipped, {cell.n_dropped} dropped"
            for cell in self.cells
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Cell:
    kind: str
    population: Any
    at: IntArray
    X: Array
    weight: Array

    @property
    def title(self) -> str:
        return f"the {self.kind} rows of population {self.population!r}"


def effective_size(weight: Array, people: Array | float = 1.0) -> float:
    r"""Return :math:`(\sum w)^2 / \sum w^2`, Kish's effective number of rows or people."""
    return float(np.sum(people * weight) ** 2 / np.sum(people * weight**2))


def weigh_shift(
    rows: LabelledRows,
    target: Array | None,
    shift: Any,
    *,
    clip: float | None = None,
    rng: Rng,
    target_weight: Array | None = None,
    stacklevel: int = 2,
) -> tuple[LabelledRows, ShiftReport]:
    r"""Weight the rows of every cell by :math:`p(x) / p_{cell}(x)`, and report what that costs.

    The paper's appendix weights the rows of population k by :math:`n/(2n_k) \cdot p(x)/p_k(x)`.
    `assemble` has the first factor; this is the second, with one ratio per cell rather than one
    per population: what a row tells is the mean of its label given x, which weights of x leave
    alone, so that each table may be brought to p(x) by itself, even if the two tables of one
    population describe different people.

    ``target`` has the features of the people the estimate is for, None stands for all labelled
    rows, pooled. ``shift`` is "classifier" (additive models) or a scikit-learn classifier with
    ``predict_proba``. ``clip`` caps the ratios: less variance, some bias. Ratios multiply the
    weights of the rows; the sum of each cell stays as it was, and rows of ratio 0 are left out.
    Refuses cells that do not overlap the target, and warns if a cell's effective size is below 5 %
    of its rows or it covers less than half of the target. Costs five fits of the classifier per
    cell, or five in all for pooled rows.
    """
    _check_parameters(shift, clip)
    cells = [
        _Cell(kind, rows.names[k], at := rows.at(kind, k), rows.X[at], rows.weight[at])
        for kind in (OUTCOME, TREATMENT)
        for k in range(len(rows.names))
    ]
    n_folds = _n_folds(cells, target)
    if target is None:
        estimates = _pooled(cells, shift, n_folds, rng)
    else:
        estimates = _against(target, target_weight, cells, shift, n_folds, rng)
    weight = np.zeros(len(rows.weight))
    shifts = []
    for k, (cell, estimate) in enumerate(zip(cells, estimates, strict=True)):
        _check_overlap(k, cells, estimate, target)
        weight[cell.at], changed = _weigh_cell(cell, estimate.ratio, clip)
        shifts.append(changed)
    report = ShiftReport(
        method=shift if isinstance(shift, str) else type(shift).__name__,
        target="pooled rows" if target is None else "target rows",
        n_target=len(rows.X) if target is None else len(target),
        clip=None if clip is None else float(clip),
        cells=tuple(shifts),
    )
    _warn_if_thin(report, stacklevel=stacklevel + 1)
    return _with_weight(rows, weight), report


def _against(
    target: Array,
    target_weight: Array | None,
    cells: Sequence[_Cell],
    shift: Any,
    n_folds: int,
    rng: Rng,
) -> list[RatioEstimate]:
    """Return the ratios of the target rows' density to each cell's."""
    model = None if isinstance(shift, str) else shift
    options: dict[str, Any] = {
        "n_folds": n_folds,
        "rng": rng,
        "target_weight": target_weight,
    }
    return [
        classifier_ratio(target, cell.X, model=model, weight=cell.weight, **options)
        for cell in cells
    ]


def _pooled(
    cells: Sequence[_Cell], shift: Any, n_folds: int, rng: Rng
) -> list[RatioEstimate]:
    """Return the ratios of the pooled rows' density to each cell's."""
    return pooled_classifier_ratios(
        [cell.X for cell in cells],
        model=None if isinstance(shift, str) else shift,
        n_folds=n_folds,
        rng=rng,
        weights=[cell.weight for cell in cells],
    )


def _weigh_cell(
    cell: _Cell, ratio: Array, clip: float | None
) -> tuple[Array, CellShift]:
    """Multiply the cell's weights by its ratios, brought to mean 1."""
    cap = np.inf if clip is None else float(clip)
    clipped = np.minimum(ratio, cap)
    infinite = int(np.isinf(clipped).sum())
    if infinite:
        raise InputError(
            f"the classifier gives {infinite} of {len(ratio)} rows among {cell.title} no chance of "
            "being there, which makes their weights infinite. Set shift_clip to cap them, or pass "
            "a smoother classifier (more rows to a leaf, or a CalibratedClassifierCV around it)."
        )
    coverage = float(np.average(clipped, weights=cell.weight))
    scaled = clipped / coverage
    weight: Array = cell.weight * scaled
    return weight, CellShift(
        kind=cell.kind,
        population=cell.population,
        n_rows=len(ratio),
        effective_size=effective_size(weight),
        coverage=coverage,
        largest_weight=float(scaled.max()),
        n_clipped=int((ratio > cap).sum()),
        n_dropped=int((weight == 0.0).sum()),
    )


def _with_weight(rows: LabelledRows, weight: Array) -> LabelledRows:
    if weight.all():
        return replace(rows, weight=weight)
    used = weight > 0.0
    return replace(rows.take(used), weight=weight[used])


def _check_parameters(shift: Any, clip: float | None) -> None:
    is_word = isinstance(shift, str) and shift == CLASSIFIER
    if not is_word and (not hasattr(shift, "fit") or isinstance(shift, type)):
        raise InputError(
            f"shift must be 'classifier' or a scikit-learn classifier, got {shift!r}. Known ratios "
            "are passed as sample_weight."
        )
    if not is_word and not hasattr(shift, "predict_proba"):
        raise InputError(
            f"shift needs a classifier with predict_proba, and {type(shift).__name__} has none. "
            "Wrap it in scikit-learn's CalibratedClassifierCV."
        )
    if clip is not None and check_positive("shift_clip", clip) < 1.0:
        raise InputError(
            f"shift_clip must be at least 1, the ratio where nothing differs, got {clip!r}. Common "
            "values are 5 to 50; None leaves ratios alone."
        )


def _n_folds(cells: Sequence[_Cell], target: Array | None) -> int:
    sizes = [(len(cell.X), cell.title) for cell in cells]
    if target is not None:
        sizes.append((len(target), "the target rows"))
    fewest, title = min(sizes)
    if fewest < 2:
        raise InputError(
            f"shift compares feature distributions and needs two rows or more on each side, but "
            f"{title} number {fewest}. Give more rows, or leave shift out."
        )
    return min(N_FOLDS, fewest)


def _check_overlap(
    k: int, cells: Sequence[_Cell], estimate: RatioEstimate, target: Array | None
) -> None:
    if not estimate.apart:
        return
    other = cells[estimate.apart[0]].title if target is None else "the target rows"
    raise InputError(
        f"no overlap: {cells[k].title} can be told from {other} without error, so that no weights "
        "make them alike. Leave out features that give a table away (a date, a region, an "
        "identifier), restrict the rows to people both have, or leave shift out and read the "
        "estimate as one for the people in the tables."
    )


def _warn_if_thin(report: ShiftReport, *, stacklevel: int) -> None:
    thin = [
        f"{cell.kind} rows of population {cell.population!r} (effective size "
        f"{cell.effective_size:.0f} of {cell.n_rows}, coverage {cell.coverage:.0%})"
        for cell in report.cells
        if cell.effective_size < SMALL_SIZE * cell.n_rows
        or cell.coverage < SMALL_COVERAGE
    ]
    if thin:
        warnings.warn(
            f"few rows resemble the {report.target}: {'; '.join(thin)}. The estimate rests on "
            "them. Restrict the target to people like those in the tables, or set shift_clip.",
            OverlapWarning,
            stacklevel=stacklevel,
        )
