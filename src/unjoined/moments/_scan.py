"""Look through all rows for those at which a function on the basis leaves its range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined.moments._combine import combine

__all__ = ["RowScan", "Violations"]


@dataclass(frozen=True, slots=True)
class Violations:
    """The rows at which ``lower <= phi(x)^T coef <= upper`` fails worst."""

    index: IntArray  # (k,) positions of the worst rows
    phi: Array  # (k, p) their basis values
    worst: float  # largest excess over a bound, 0 if there is none
    count: int  # rows that fail, including those not listed


@dataclass(frozen=True, slots=True)
class RowScan:
    """All rows of a fit, looked through chunk by chunk whenever a solver asks.

    Each call costs one pass: O(n p (d + 1)) time, O(chunk p) memory per thread.
    """

    basis: Callable[[Array], Array]
    X: Array  # (n, d)
    n_jobs: int | None = None

    def __call__(self, coef: Array, lower: float, upper: float, *, most: int) -> Violations:
        """Return at most ``most`` of the rows that violate the bounds, the worst first."""
        value = combine(self.basis, coef, self.X, n_jobs=self.n_jobs)
        over = np.maximum(value - upper, lower - value)
        failing = np.flatnonzero(over > 0.0)
        order = np.argsort(-over[failing], kind="stable")[:most]
        index = failing[order]
        worst = float(over[index[0]]) if index.size else 0.0
        return Violations(index, self.basis(self.X[index]), worst, len(failing))
