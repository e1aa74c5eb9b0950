"""Losses and bounds of `MinMaxUplift`: what they may be, and the solvers they need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, check_option
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.accumulate import RowScan
from unjoined.model.basis import ScaledBasis, weighted_quantile
from unjoined.model.loss_solvers import solve_loss
from unjoined.model.losses import (
    LOSSES,
    SmoothLoss,
    ThreePlayerLoss,
    check_conjugate,
    check_conjugates,
)
from unjoined.model.minmax import MinMaxSolution, MinMaxSystem, solve_bounded
from unjoined.model.plan import SumsPlan


@dataclass(frozen=True, slots=True)
class BoundsReport:
    """How the range constraints were met."""

    lower: float  # outcome units
    upper: float
    rounds: int  # quadratic programmes solved; 0 if the closed form violated no row
    n_binding: int  # rows at which a bound binds
    worst: float  # largest remaining violation at a training row, outcome units


@dataclass(frozen=True, slots=True)
class LossReport:
    """How well the problem of a general loss was solved."""

    gap: float  # duality gap of the regularised problem, inner units
    relative_gap: float
    rounds: int  # quadratic programmes or Newton steps
    spread: float  # outcome units per inner unit, which the loss works in


def check_bounds(name: str, bounds: Any) -> None:
    """Refuse what is neither "auto" nor a lower and a larger upper number."""
    if isinstance(bounds, str):
        check_option(name, bounds, ["auto"])
        return
    try:
        lower, upper = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} must be 'auto' or a pair of numbers, got {bounds!r}."
        ) from None
    if not lower < upper:
        raise InputError(
            f"{name} must be a lower and a larger upper number, got {bounds!r}."
        )
    if not np.isfinite([lower, upper]).any():
        raise InputError(
            f"{name} must hold at least one finite number, got {bounds!r}."
        )


def check_loss(name: str, loss: Any) -> None:
    """Refuse what is not a loss."""
    if isinstance(loss, ThreePlayerLoss):
        check_conjugates(loss)
    elif isinstance(loss, SmoothLoss):
        check_conjugate(loss)
    elif not all(hasattr(loss, part) for part in ("curvature", "box", "in_units")):
        names = ", ".join(LOSSES)
        raise InputError(
            f"{name} must be one of {names} or a loss object, got {loss!r}."
        )


def robust_spread(rows: LabelledRows, label: Array) -> float:
    """Return what outliers cannot inflate: the interquartile range, as a standard deviation.

    If half of the outcomes are equal it says nothing, not even of centred ones, ``label``, and the
    standard deviation serves. Rows count by their weights, and each population the same.
    """
    if rows.coding.is_binary:
        return 1.0
    at = rows.of_kind(OUTCOME)
    centred = label[at]
    share = rows.share[at]
    quarters = (0.25, 0.75)
    low, high = weighted_quantile(rows.label[at], share, quarters)
    if high <= low:
        mean = np.average(centred, weights=share)
        return float(np.sqrt(np.average((centred - mean) ** 2, weights=share)))
    low, high = weighted_quantile(centred, share, quarters)
    return float((high - low) / 1.349)


def solve_in_bounds(
    plan: SumsPlan,
    system: MinMaxSystem,
    rows: LabelledRows,
    bounds: Any,
    ridges: dict[str, float],
    n_jobs: int | None,
) -> tuple[MinMaxSolution, BoundsReport]:
    """Solve the paper's problem with the uplift in a range, outcome units, at every row."""
    scale = plan.coding.scale
    reach = scale * float(
        np.ptp(rows.label[rows.of_kind(OUTCOME)])
    )  # no effect exceeds that
    lower, upper = (-reach, reach) if isinstance(bounds, str) else map(float, bounds)
    scan = RowScan(ScaledBasis(plan.basis, plan.scaling), rows.X, n_jobs)
    solution, qp = solve_bounded(
        system, scan, lower=lower / scale, upper=upper / scale, **ridges
    )
    strongest = np.abs(qp.multiplier).max(initial=0.0)
    binding = int(np.sum(np.abs(qp.multiplier) > 1e-6 * strongest)) if strongest else 0
    worst = scale * qp.worst
    return solution, BoundsReport(lower, upper, qp.rounds, binding, worst)


def solve_with_loss(
    plan: SumsPlan,
    system: MinMaxSystem,
    rows: LabelledRows,
    label: Array,
    given: Any,
    ridges: dict[str, float],
    n_jobs: int | None,
) -> tuple[MinMaxSolution, LossReport]:
    """Solve the problem of a loss other than the square, from labels as they enter the sums.

    Inside, outcomes are multiples of the robust spread of what enters the sums, so that ridges
    have no units and a loss called by name has a threshold of that size.
    """
    spread = robust_spread(rows, label)
    unit = plan.coding.scale * spread
    loss = LOSSES[given]() if isinstance(given, str) else given
    if loss is given and not isinstance(loss, ThreePlayerLoss):
        loss = loss.in_units(unit)
    system = replace(system, b=system.b / spread)
    share = rows.share / 2.0  # each kind of row is half of E[rho*(g)]
    scan = RowScan(ScaledBasis(plan.critic, plan.scaling), rows.X, n_jobs)
    solution = solve_loss(system, scan, share, loss, **ridges)
    report = LossReport(solution.gap, solution.relative_gap, solution.rounds, unit)
    return MinMaxSolution(
        spread * solution.alpha, spread * solution.beta, np.empty(0)
    ), report
