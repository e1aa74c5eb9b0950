"""The two-player problem of the log-cosh loss, as an exponential-cone programme."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from unjoined._optional import import_extra
from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.moments import MinMaxSystem
from unjoined.solve._general_loss import LossSolution, certify
from unjoined.solve._losses import LogCoshLoss

__all__ = ["solve_log_cosh"]


def solve_log_cosh(
    system: MinMaxSystem,
    phi: Array,
    share: Array,
    loss: LogCoshLoss,
    *,
    ridge_f: float,
    ridge_g: float,
) -> LossSolution:
    r"""Solve the two-player problem for :math:`\rho(v) = \log\cosh v`.

    The concave problem in beta of `solve_box_loss`, with
    :math:`\rho^*(g) = \tfrac12[(1+g)\log(1+g) + (1-g)\log(1-g)]` at every row: two entropies, each
    an exponential cone. Where few rows carry a large force the critic sits at the edge of its
    domain to within rounding and :math:`\rho^{*\prime}(g)` says nothing any more; the
    interior-point method has those forces as its dual variables, which is why Newton's method on
    beta alone does not do. ``phi`` (n, p) holds the critic's basis at every row. Costs O(n p^2)
    per step of some thirty, and O(n p) memory.
    """
    clarabel = import_extra("clarabel", extra="convex")
    A, b = system.A, system.b
    n, p = phi.shape
    Q = A.T @ A / (2.0 * ridge_f) + ridge_g / 2.0 * np.eye(p)
    # Unknowns: beta, then one bound per entropy. A cone holds (-bound, 1 + g, 1) or
    # (-bound, 1 - g, 1), that is bound >= y log y.
    cost = np.concatenate([2.0 * b, np.tile(share / 2.0, 2)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(
        sparse.block_diag([np.triu(Q), sparse.csc_matrix((2 * n, 2 * n))], format="csc"),
        cost,
        _cone_rows(phi),
        np.tile([0.0, 1.0, 1.0], 2 * n),
        [clarabel.ExponentialConeT()] * (2 * n),
        settings,
    ).solve()
    status = str(solution.status)
    if status not in ("Solved", "AlmostSolved"):
        raise InputError(
            f"the problem of the log-cosh loss could not be solved ({status}). Raise the ridges, "
            "or use loss='huber'."
        )
    dual = np.asarray(solution.z).reshape(2, n, 3)[:, :, 1]
    beta = np.asarray(solution.x)[:p]
    beta = beta / max(1.0, np.abs(phi @ beta).max())  # back into the domain, if rounding left it
    conjugate = float(share @ loss.conjugate(np.clip(phi @ beta, -1.0, 1.0)))
    return certify(
        system,
        beta,
        conjugate=conjugate,
        rho=float(share @ loss((dual[1] - dual[0]) / share)),
        pull=phi.T @ (dual[1] - dual[0]),
        ridges=(ridge_f, ridge_g),
        rounds=int(solution.iterations),
    )


def _cone_rows(phi: Array) -> sparse.csc_matrix:
    """Return the matrix that takes (beta, bounds) to minus the cones' entries."""
    n, p = phi.shape
    blocks = []
    for side, sign in enumerate((-1.0, 1.0)):
        bound = sparse.csr_matrix(
            (np.ones(n), (3 * np.arange(n), side * n + np.arange(n))), shape=(3 * n, 2 * n)
        )
        rows = np.zeros((3 * n, p))
        rows[1::3] = sign * phi
        blocks.append(sparse.hstack([sparse.csr_matrix(rows), bound]))
    return sparse.csc_matrix(sparse.vstack(blocks))
