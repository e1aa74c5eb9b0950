"""Which solver a min-max problem needs: closed form, range constraints, or another loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, check_option
from unjoined.basis import weighted_quantile
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.losses import (
    LOSSES,
    LogCoshLoss,
    SmoothLoss,
    ThreePlayerLoss,
    check_conjugate,
    check_conjugates,
)
from unjoined.solve import (
    LossSolution,
    MinMaxSolution,
    solve_bounded,
    solve_box_loss,
    solve_log_cosh,
    solve_minmax,
    solve_smooth_loss,
    solve_three_player,
)
from unjoined.sums import MinMaxSystem, RowScan


@dataclass(frozen=True, slots=True)
class BoundsReport:
    """How the range constraints were met."""

    lower: float  # outcome units
    upper: float
    rounds: int  # quadratic programmes solved; 0 if the closed form violated no row
    n_constraints: int  # rows that entered as constraints
    n_binding: int  # rows at which a bound binds
    worst: float  # largest remaining violation at a training row, outcome units
    steps: int = 0  # of the quadratic programmes: rows that began to bind, one after the other


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
        raise InputError(f"{name} must be 'auto' or a pair of numbers, got {bounds!r}.") from None
    if not lower < upper:
        raise InputError(f"{name} must be a lower and a larger upper number, got {bounds!r}.")
    if not np.isfinite([lower, upper]).any():
        raise InputError(f"{name} must hold at least one finite number, got {bounds!r}.")


def find_bounds(bounds: Any, rows: LabelledRows) -> tuple[float, float]:
    """Return the range of the uplift in outcome units.

    "auto" is what the outcome's own range allows: no effect exceeds the distance between the
    smallest and the largest outcome seen.
    """
    if isinstance(bounds, str):
        outcome = rows.label[rows.of_kind(OUTCOME)]
        reach = float(rows.coding.scale * (outcome.max() - outcome.min()))
        return -reach, reach
    lower, upper = bounds
    return float(lower), float(upper)


def check_loss(name: str, loss: Any) -> None:
    """Refuse what is neither the name of a loss nor a loss."""
    if isinstance(loss, str):
        check_option(name, loss, LOSSES)
    elif isinstance(loss, ThreePlayerLoss):
        check_conjugates(loss)
    elif isinstance(loss, SmoothLoss):
        check_conjugate(loss)
    elif not isinstance(loss, LogCoshLoss) and not all(
        hasattr(loss, part) for part in ("curvature", "box", "in_units")
    ):
        names = ", ".join(LOSSES)
        raise InputError(f"{name} must be one of {names} or a loss object, got {loss!r}.")


def find_loss(loss: Any) -> Any:
    """Return the loss that a name stands for, or the one that was given."""
    return LOSSES[loss]() if isinstance(loss, str) else loss


@dataclass(frozen=True, slots=True)
class MinMaxProblem:
    """The sums, the rows behind them and the basis: all a solver may ask for."""

    system: MinMaxSystem
    rows: LabelledRows  # with the labels as they came
    label: Array  # (n,) as in the sums: centred, or those of the rows
    basis: Callable[[Array], Array]  # of the uplift, on features as they came
    critic_basis: Callable[[Array], Array]
    ridge_f: float
    ridge_g: float
    n_jobs: int | None

    def closed_form(self) -> MinMaxSolution:
        """Solve the paper's problem, squared loss and no constraint."""
        return solve_minmax(self.system, ridge_f=self.ridge_f, ridge_g=self.ridge_g)

    def bounded(self, lower: float, upper: float) -> tuple[MinMaxSolution, BoundsReport]:
        """Solve the paper's problem with the uplift in a range, outcome units, at every row."""
        scale = self.rows.coding.scale
        solution, qp = solve_bounded(
            self.system,
            RowScan(self.basis, self.rows.X, self.n_jobs),
            ridge_f=self.ridge_f,
            ridge_g=self.ridge_g,
            lower=lower / scale,
            upper=upper / scale,
        )
        strongest = np.abs(qp.multiplier).max(initial=0.0)
        binding = int(np.sum(np.abs(qp.multiplier) > 1e-6 * strongest)) if strongest else 0
        report = BoundsReport(
            lower, upper, qp.rounds, len(qp.index), binding, scale * qp.worst, qp.steps
        )
        return solution, report

    def with_loss(self, loss: Any, *, is_named: bool) -> tuple[MinMaxSolution, LossReport]:
        """Solve the problem of another loss.

        Inside, outcomes are multiples of the robust spread of what enters the sums, so that
        ridges have no units and a loss called by name has a threshold of that size.
        """
        spread = _robust_spread(self.rows, self.label)
        system = replace(self.system, b=self.system.b / spread)
        if not is_named and hasattr(loss, "in_units"):
            loss = loss.in_units(self.rows.coding.scale * spread)
        found = self._solve_loss(system, loss)
        report = LossReport(
            found.gap, found.relative_gap, found.rounds, self.rows.coding.scale * spread
        )
        solution = MinMaxSolution(spread * found.alpha, spread * found.beta, np.empty(0))
        return solution, report

    def _solve_loss(self, system: MinMaxSystem, loss: Any) -> LossSolution:
        share = self.rows.share / 2.0  # each kind of row is half of E[rho*(g)]
        ridges = {"ridge_f": self.ridge_f, "ridge_g": self.ridge_g}
        if isinstance(loss, ThreePlayerLoss):
            return solve_three_player(system, self._critic_values(), share, loss, **ridges)
        if isinstance(loss, LogCoshLoss):
            return solve_log_cosh(system, self._critic_values(), share, loss, **ridges)
        if isinstance(loss, SmoothLoss):
            return solve_smooth_loss(system, self._critic_values(), share, loss, **ridges)
        scan = RowScan(self.critic_basis, self.rows.X, self.n_jobs)
        return solve_box_loss(system, scan, share, loss, **ridges)

    def _critic_values(self) -> Array:
        return self.critic_basis(self.rows.X)


def _robust_spread(rows: LabelledRows, label: Array) -> float:
    """Return what outliers cannot inflate: the interquartile range, as a standard deviation.

    If half of the outcomes are equal it says nothing, not even of centred ones, and the standard
    deviation serves. Rows count by their weights, and each population the same.
    """
    if rows.coding.is_binary:
        return 1.0
    at = rows.of_kind(OUTCOME)
    share, quarters = rows.share[at], (0.25, 0.75)
    low, high = weighted_quantile(rows.label[at], share, quarters)
    if high <= low:
        mean = np.average(label[at], weights=share)
        return float(np.sqrt(np.average((label[at] - mean) ** 2, weights=share)))
    low, high = weighted_quantile(label[at], share, quarters)
    return float((high - low) / 1.349)
