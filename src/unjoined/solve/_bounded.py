"""The min-max problem with the uplift kept in a range at every training row."""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array
from unjoined.moments import MinMaxSystem
from unjoined.solve._box_qp import BoxQPSolution, RowOracle, solve_box_qp
from unjoined.solve._closed_form import MinMaxSolution, whiten

__all__ = ["solve_bounded"]


def solve_bounded(
    system: MinMaxSystem,
    oracle: RowOracle,
    *,
    ridge_f: float,
    ridge_g: float,
    lower: float,
    upper: float,
) -> tuple[MinMaxSolution, BoxQPSolution]:
    r"""Solve the problem of `solve_minmax` under range constraints.

    The appendix of the paper ("Binary outcomes"): :math:`\text{lower} \le \alpha^\top\phi(x_i)
    \le \text{upper}` at every row. With the critic maximised out, what is left is

    .. math::

        \min_\alpha \; \|M \alpha - c\|^2 + \lambda_f \|\alpha\|^2,

    a quadratic programme in p coefficients (see `solve_minmax` for M and c). If the closed
    form violates no row it is returned as it is, to the bit.
    """
    whitened = whiten(system, ridge_g)
    start = whitened.alpha(ridge_f)
    M = whitened.U * whitened.s @ whitened.Vt
    Q = 2.0 * (M.T @ M + ridge_f * np.eye(len(start)))
    q: Array = -2.0 * M.T @ whitened.c
    qp = solve_box_qp(Q, q, start, oracle, lower=lower, upper=upper)
    return MinMaxSolution(qp.x, whitened.beta(qp.x), whitened.s), qp
