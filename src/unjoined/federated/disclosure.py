"""Plain rules for sums that leave an organisation: how fine functions are, how many rows to a sum.

Sums are data about people. No rule here makes them anonymous: whoever knows the features of the
people may solve for their labels. They go to those with whom there is a contract.
"""

from __future__ import annotations

import warnings

import numpy as np

from unjoined._typing import Basis
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.errors import ColumnWarning, InputError
from unjoined.model.basis import FourierBasis, LinearBasis, StackedBasis
from unjoined.model.census import Census
from unjoined.model.moments import CellKey, MomentSums
from unjoined.model.plan import PlannedSums, SumsPlan

SOME_MOVED, MOST_MOVED = 0.1, 0.5  # shares of rows beyond the limits of a plan
# Radians per spread: no function goes through a whole period within one spread of a feature.
MAX_FREQUENCY = 2.0 * np.pi
MAX_SPREADS = 10.0  # standard deviation of a scaled feature, else frequencies are higher than said
ROWS_PER_SUM = 2  # with fewer rows than sums, who knows the features can solve for the labels


def check_plan(plan: SumsPlan) -> None:
    """Refuse a plan whose functions could be aimed at a row."""
    found = _functions_of(plan)
    if found is not None:
        raise InputError(
            f"the plan holds {found}, by which a single row could be singled out, and nothing was "
            "added up. A plan may hold a constant, the features and Fourier functions that are not "
            "too fine. Make one with fourier_plan or `unjoined plan`."
        )


def _functions_of(plan: SumsPlan) -> str | None:
    """Return what a plan holds that is not accepted, None if there is no such thing."""
    first: Basis = plan.basis
    second: Basis | None = None
    if isinstance(plan.basis, StackedBasis):
        first, second = plan.basis.first, plan.basis.second
    if plan.critic is not plan.basis:
        return "functions of the critic's own"
    if plan.centring:
        return "functions to be subtracted from the labels"
    if not isinstance(first, LinearBasis) or not isinstance(second, FourierBasis | None):
        names = [type(part).__name__ for part in (first, second) if part is not None]
        return f"functions of other kinds ({' and '.join(names)})"
    if second is not None and np.abs(second.frequencies).max() > MAX_FREQUENCY:
        highest = float(np.abs(second.frequencies).max())
        return (
            f"frequencies of up to {highest:.3g} per spread, where {MAX_FREQUENCY:.3g} is allowed"
        )
    return None


def check_counts(found: PlannedSums, min_count: int) -> None:
    """Refuse sums over few effective rows, and scales far from the rows' own."""
    tables = {key[:2] for key in found.sums.cells}
    none = MomentSums.zero(found.plan.size)
    for key in sorted(CellKey(*table, g) for table in tables for g in range(found.plan.n_groups)):
        cell = found.sums.cells.get(key, none)
        p = found.plan.size
        sums = p if key.kind == OUTCOME else p * (p + 1) // 2
        least = max(min_count, ROWS_PER_SUM * sums)
        if cell.effective_rows < least * (1.0 - 1e-9):
            raise InputError(
                f"{place_of(key, found.plan)} has {cell.n_rows} rows, worth "
                f"{cell.effective_rows:.1f} of equal weight, fewer than the minimum of {least}: "
                f"{min_count} in any case, and {ROWS_PER_SUM} for each of its {sums} sums of "
                "labels. Nothing was written. Agree on fewer functions or groups, or give more "
                "rows."
            )
    _check_spreads(found)


def _check_spreads(found: PlannedSums) -> None:
    """Refuse spreads that are far too small: functions would vary from row to row."""
    plan = found.plan
    linear = slice(1, plan.n_features + 1)  # behind the constant
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(plan.populations):
            total = found.sums.total(kind, k)
            if not total.n_rows:
                continue
            away = np.sqrt(np.diag(total.gram)[linear] / total.weight)
            j = int(np.argmax(away))
            if away[j] > MAX_SPREADS:
                raise InputError(
                    f"the plan says that feature {feature_name(plan, j)} is about "
                    f"{plan.scaling.mean[j]:.3g}, give or take {plan.scaling.scale[j]:.3g}, but "
                    f"the {kind} rows of population {name!r} are {away[j]:.3g} times as far away. "
                    "Functions that are so fine for the rows could single one out. Nothing was "
                    "written. Agree on a plan with about the right value and spread."
                )


def place_of(key: CellKey, plan: SumsPlan) -> str:
    """Return what messages call a cell."""
    population = plan.populations[key.population]
    return f"group {key.group} of the {key.kind} rows of population {population!r}"


def check_limits(census: Census, plan: SumsPlan) -> None:
    """Tell of rows that a plan's limits move; most of them are refused, as rows in other units."""
    for (kind, name), sketch in census.cells.items() if plan.clip is not None else ():
        moved = {
            f"feature {feature_name(plan, j)}": column
            for j, column in enumerate((plan.scaling.clipped(sketch.X, plan.clip) != sketch.X).T)
        }
        if kind == OUTCOME:
            inner = (sketch.label - plan.coding.offset) / plan.coding.scale
            moved["outcome"] = np.abs(inner) > 1.0 + 1e-9
        for what, column in moved.items():
            share = float(column.mean())
            said = (
                f"{share:.0%} of the {kind} rows of population {name!r} have their {what} beyond "
                "the limits of the plan"
            )
            if share > MOST_MOVED:
                raise InputError(
                    f"{said}. Nothing was written. Use the units of the plan, or agree on limits "
                    "that hold most rows."
                )
            if share > SOME_MOVED:
                warnings.warn(f"{said} and are moved there.", ColumnWarning, stacklevel=3)


def feature_name(plan: SumsPlan, j: int) -> str:
    """Return what messages call a feature."""
    return repr(plan.feature_names[j]) if plan.feature_names else str(j)
