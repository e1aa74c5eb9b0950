r"""What a party refuses to add up or to give away: sums that would tell a single row's label.

Whoever has the sums of :math:`r l \phi` and of :math:`r \phi \phi^\top` can form any combination
c of the functions, and sees the weighted labels of the rows times :math:`c^\top \phi`. The best c
to single out row i makes its share :math:`h_i = r_i \phi_i^\top (\sum r \phi \phi^\top)^{-1}
\phi_i`, the row's leverage. At 1 the label can be read off; at one half all other rows
together are as loud.
"""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data._chunks import ChunkSource
from unjoined.errors import InputError
from unjoined.features import Basis, FourierBasis, LinearBasis, StackedBasis
from unjoined.moments._census import Census
from unjoined.moments._grouped import CellKey
from unjoined.moments._pass import labelled_batches
from unjoined.moments._plan import PlannedSums, SumsPlan
from unjoined.moments._policy_sums import policy_design
from unjoined.moments._rows import LabelledRows

__all__ = ["MAX_FREQUENCY", "check_counts", "check_leverage", "check_plan"]

# Radians per spread: no function goes through a whole period within one spread of a feature.
MAX_FREQUENCY = 2.0 * np.pi
MAX_SPREADS = 10.0  # standard deviation of a scaled feature, else frequencies are higher than said
# Labels of two values can be solved for if there are more equations than half of the rows
# (Mangasarian and Recht, 2011).
ROWS_PER_SUM = 2
MAX_SHARE = 0.5  # of one row, as in the dominance rule of statistical offices
COLLINEAR = 1e-12  # of the largest eigenvalue: below, a direction that no row has


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
    for key in sorted(found.sums.cells):
        cell = found.sums.cells[key]
        p = found.plan.size
        sums = p if key.kind == OUTCOME else p * (p + 1) // 2
        least = max(min_count, ROWS_PER_SUM * sums)
        if cell.effective_rows < least * (1.0 - 1e-9):
            raise InputError(
                f"{_place(key, found.plan)} has {cell.n_rows} rows, worth "
                f"{cell.effective_rows:.1f} of equal weight, fewer than the minimum of {least}: "
                f"{min_count} in any case, and {ROWS_PER_SUM} for each of its {sums} sums of "
                "labels, which could else be solved for the labels. Nothing was written. Agree on "
                "fewer functions or groups, or give more rows."
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
                    f"the plan says that feature {_name(plan, j)} is about "
                    f"{plan.scaling.mean[j]:.3g}, give or take {plan.scaling.scale[j]:.3g}, but "
                    f"the {kind} rows of population {name!r} are {away[j]:.3g} times as far away. "
                    "Functions that are so fine for the rows could single one out. Nothing was "
                    "written. Agree on a plan with about the right value and spread."
                )


def check_leverage(source: ChunkSource, census: Census, found: PlannedSums) -> None:
    """Refuse sums in which one row outweighs the others, in one more pass over the rows.

    Costs O(n p^2) time, as the sums do.
    """
    plan = found.plan
    roots = {key: _inverse_root(cell.gram) for key, cell in found.sums.cells.items()}
    policies = {k: _inverse_root(found.policy.gram[k]) for k in (0, 1) if found.policy.n_rows[k]}
    for rows, group in labelled_batches(source, plan, census):
        phi = plan.values(rows.X)
        for key, root in roots.items():
            at = np.flatnonzero(
                (rows.kind == key.kind) & (rows.population == key.population) & (group == key.group)
            )
            _check_shares(phi[at], root, rows, at, plan, _place(key, plan))
        for k, root in policies.items():
            at = rows.at(TREATMENT, k)
            place = f"the treatment table of population {plan.populations[k]!r}"
            _check_shares(policy_design(rows.X[at], plan.scaling), root, rows, at, plan, place)


def _check_shares(
    values: Array, root: Array, rows: LabelledRows, at: IntArray, plan: SumsPlan, place: str
) -> None:
    """Refuse a row that is louder than all others in some combination of functions."""
    share = rows.weight[at] * np.sum((values @ root) ** 2, axis=1)
    if share.max(initial=0.0) > MAX_SHARE:
        raise _one_row(place, plan, rows, int(at[np.argmax(share)]), float(share.max()))


def _inverse_root(gram: Array) -> Array:
    """Return R with R R^T the inverse of the sum of products, without directions no row has."""
    size = np.sqrt(np.diag(gram))
    size[size == 0.0] = 1.0
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    used = values > COLLINEAR * values[-1]
    root: Array = vectors[:, used] / np.sqrt(values[used]) / size[:, None]
    return root


def _one_row(place: str, plan: SumsPlan, rows: LabelledRows, at: int, share: float) -> InputError:
    """Return the error for a row whose label could be told from the sums."""
    scaled = plan.scaling(rows.X[at : at + 1])[0]
    j = int(np.argmax(np.abs(scaled)))
    return InputError(
        f"{place} has a row that makes up {share:.0%} of some combination of the sums, "
        "more than half, so that its label could be told. Its feature "
        f"{_name(plan, j)} lies {abs(scaled[j]):.3g} spreads from the typical value, its weight is "
        f"{rows.weight[at]:.3g}. Nothing was written. Cap extreme values and weights, leave out "
        "features that few rows have, give more rows, or agree on fewer functions or groups."
    )


def _place(key: CellKey, plan: SumsPlan) -> str:
    population = plan.populations[key.population]
    return f"group {key.group} of the {key.kind} rows of population {population!r}"


def _name(plan: SumsPlan, j: int) -> str:
    return repr(plan.feature_names[j]) if plan.feature_names else str(j)
