"""Quadratic programmes with a range constraint at every row, by constraint generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unjoined._optional import import_extra
from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.moments import Violations

__all__ = ["BoxQPSolution", "RowOracle", "solve_box_qp"]

RowOracle = Callable[..., Violations]
"""``oracle(x, lower, upper, most=k)``: the rows at which ``lower <= phi^T x <= upper`` fails."""

TOLERANCE = 1e-7  # of the range constraints, relative to the wider bound
MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class BoxQPSolution:
    """The solution, and what is needed to doubt it."""

    x: Array  # (p,)
    rounds: int  # quadratic programmes solved; 0 if no row was violated
    index: IntArray  # (k,) rows that entered as constraints
    phi: Array  # (k, p) their basis values
    multiplier: Array  # (k,) of the upper minus of the lower bound; 0 where neither binds
    worst: float  # largest remaining violation at any row


def solve_box_qp(
    Q: Array, q: Array, start: Array, oracle: RowOracle, *, lower: float, upper: float
) -> BoxQPSolution:
    r"""Minimise :math:`\tfrac12 x^\top Q x + q^\top x` with a range constraint at every row.

    :math:`\text{lower} \le \phi_i^\top x \le \text{upper}` for all rows :math:`i`. The rows may
    be many and are never all in memory as constraints: beginning with ``start``, the minimiser
    without constraints, the rows it violates worst enter, the small programme is solved, and so
    on until no row is violated by more than a relative 1e-7. At most p constraints bind at a
    solution in general position, so few rows ever enter. Arguments are trusted: Q positive
    definite, lower < upper.
    """
    scale = max(abs(bound) for bound in (lower, upper) if np.isfinite(bound))
    p = len(q)
    x, phi = start, np.empty((0, p))
    index: IntArray = np.empty(0, dtype=np.int64)
    multiplier = np.empty(0)
    for rounds in range(MAX_ROUNDS):
        found = oracle(x, lower, upper, most=2 * p)
        new = np.setdiff1d(found.index, index)
        if found.worst <= TOLERANCE * scale or not new.size:
            return BoxQPSolution(x, rounds, index, phi, multiplier, found.worst)
        chosen = np.isin(found.index, new)
        index = np.concatenate([index, found.index[chosen]])
        phi = np.concatenate([phi, found.phi[chosen]])
        x, multiplier = _solve_with_rows(Q, q, phi, lower, upper)
    raise InputError(
        f"the range constraints did not settle within {MAX_ROUNDS} rounds; {len(index)} rows "
        "entered. Raise the ridges or widen the bounds."
    )


def _solve_with_rows(
    Q: Array, q: Array, phi: Array, lower: float, upper: float
) -> tuple[Array, Array]:
    """Solve the programme with the given rows as constraints, by Clarabel's interior point."""
    clarabel = import_extra("clarabel", extra="convex")
    sides = [(sign, bound) for sign, bound in ((1.0, upper), (-1.0, -lower)) if np.isfinite(bound)]
    constraints = sparse.csc_matrix(np.vstack([sign * phi for sign, _ in sides]))
    limits = np.repeat([bound for _, bound in sides], len(phi))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(Q)),
        q,
        constraints,
        limits,
        [clarabel.NonnegativeConeT(len(limits))],
        settings,
    ).solve()
    status = str(solution.status)
    if "Infeasible" in status:
        raise InputError(
            f"no function on this basis stays between {lower:g} and {upper:g} (inner units) at "
            "every row. Widen the bounds, or let them contain 0."
        )
    if status not in ("Solved", "AlmostSolved"):
        raise InputError(
            f"the quadratic programme of the range constraints could not be solved ({status}). "
            "Raise the ridges."
        )
    duals = np.asarray(solution.z).reshape(len(sides), len(phi))
    multiplier = sum(sign * dual for (sign, _), dual in zip(sides, duals, strict=True))
    return np.asarray(solution.x), np.asarray(multiplier)
