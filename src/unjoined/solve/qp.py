"""Quadratic programmes with a range constraint at every row, and the bounded min-max problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import LinAlgError, cholesky, qr, qr_delete, qr_insert, solve_triangular

from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.solve.minmax import MinMaxSolution, whiten
from unjoined.sums import MinMaxSystem, Violations

RowOracle = Callable[..., Violations]
"""``oracle(x, lower, upper, most=k)``: the rows at which ``lower <= phi^T x <= upper`` fails."""
TOLERANCE = 1e-7  # of the range constraints, relative to the wider bound, or if that is 0 to start
INNER_TOLERANCE = 1e-9  # the same at rows that entered, so that none of them is found again
ROUNDING = 1e-14  # relative to the distance of the target from 0; nothing below can be told
DEPENDENT = 1e-10  # a row with less than this share outside the span of others says nothing new
MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class BoxQPSolution:
    """The solution, and what is needed to doubt it."""

    x: Array  # (p,)
    rounds: int  # quadratic programmes solved; 0 if no row was violated
    steps: int  # rows that began to bind, one after the other; each costs O(p^2)
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
    solution in general position, so few rows ever enter. A round costs one pass over the rows and
    an O(p^2) step for each row that begins to bind.
    """
    L, p = _root(Q), len(q)
    x, phi = start, np.empty((0, p))
    index: IntArray = np.empty(0, dtype=np.int64)
    violated = oracle(x, lower, upper, most=2 * p)
    scale = max(abs(bound) for bound in (lower, upper) if np.isfinite(bound)) or violated.worst
    target = -solve_triangular(L, q, lower=True)
    nearest = _Nearest(target, lower, upper, INNER_TOLERANCE * scale)
    for rounds in range(MAX_ROUNDS):
        if violated.worst <= TOLERANCE * scale:
            return BoxQPSolution(
                x, rounds, nearest.steps, index, phi, nearest.multiplier, violated.worst
            )
        new = ~np.isin(violated.index, index)
        if not new.any():  # rows that entered are beyond their range: rounding is wider than it
            raise _impossible(lower, upper)
        index = np.concatenate([index, violated.index[new]])
        phi = np.concatenate([phi, violated.phi[new]])
        y = nearest.enter(solve_triangular(L, violated.phi[new].T, lower=True).T)
        x = solve_triangular(L, y, lower=True, trans="T")
        violated = oracle(x, lower, upper, most=2 * p)
    raise InputError(
        f"the range constraints did not settle within {MAX_ROUNDS} rounds; {len(index)} rows "
        "entered. Raise the ridges or widen the bounds."
    )


def _root(Q: Array) -> Array:
    """Return the lower triangular L with L L^T = Q."""
    try:
        return np.asarray(cholesky(Q, lower=True))
    except LinAlgError as error:
        raise InputError(
            "the quadratic programme of the range constraints could not be solved: its matrix is "
            "not positive definite in double precision. Raise the ridges."
        ) from error


def _impossible(lower: float, upper: float) -> InputError:
    between = f"between {lower:g} and {upper:g} (inner units)"
    if lower <= 0.0 <= upper:  # 0 itself stays there, so it is rounding that fails
        return InputError(
            f"the range {between} is too narrow to be kept in double precision. Widen the bounds, "
            "or raise the ridges."
        )
    return InputError(
        f"no function on this basis stays {between} at every row. Widen the bounds, or let them "
        "contain 0."
    )


class _Nearest:
    """The point nearest to a target at which a growing number of rows keep to their range."""

    # With Q = L L^T and y = L^T x the programme is to find the y nearest to -L^-1 q. The dual
    # method of Goldfarb and Idnani (1983) begins at the target and lets violated rows bind one
    # after the other; the distance grows with each, so it ends.

    def __init__(self, target: Array, lower: float, upper: float, tolerance: float) -> None:
        self.target, self.y, self.steps = target, target, 0
        self.lower, self.upper, self.tolerance = lower, upper, tolerance
        self.rows = np.empty((0, len(target)))  # L^-1 phi
        self.size = np.empty(0)  # their norms
        self.binding: list[int] = []
        self.sign: list[float] = []  # 1 where the upper bound binds, -1 where the lower one
        self.force = np.empty(0)  # (k,) multipliers of the binding rows, not negative
        self.factors = _factors(np.empty((len(target), 0)))  # of their signed normals

    @property
    def multiplier(self) -> Array:
        """Multipliers of all rows, positive at the upper bound and negative at the lower."""
        signed = np.zeros(len(self.rows))
        signed[self.binding] = np.array(self.sign) * self.force
        return signed

    def enter(self, rows: Array) -> Array:
        """Let rows enter and return the nearest point."""
        self.rows = np.concatenate([self.rows, rows])
        self.size = np.linalg.norm(self.rows, axis=1)
        while (worst := self._worst()) is not None:
            self._bind(*worst)
            self.steps += 1
        self._refresh()
        return self.y

    def _worst(self) -> tuple[int, float, float] | None:
        """Return the row farthest beyond its range, on which side, and its excess."""
        value = self.rows @ self.y
        over = np.maximum(value - self.upper, self.lower - value)
        over[self.binding] = 0.0
        distance = np.where(over > self.tolerance, over, 0.0) / np.maximum(self.size, 1e-300)
        i = int(np.argmax(distance))
        if distance[i] <= ROUNDING * np.linalg.norm(self.target):
            return None
        return i, 1.0 if value[i] > self.upper else -1.0, float(over[i])

    def _bind(self, i: int, sign: float, excess: float) -> None:
        """Move to where row ``i`` binds, letting go of rows whose force would turn negative."""
        normal, pull = sign * self.rows[i], 0.0
        while True:
            Q, R = self.factors
            k = len(self.binding)
            parts = Q.T @ normal
            along = _solved(R[:k], parts[:k])
            rest = float(parts[k:] @ parts[k:])  # squared share outside the span of binding rows
            full = excess / rest if rest > (DEPENDENT * self.size[i]) ** 2 else np.inf
            held = np.flatnonzero(along > 0.0)
            lengths = self.force[held] / along[held]
            step = min(full, float(lengths.min(initial=np.inf)))
            if not np.isfinite(step):
                raise _impossible(self.lower, self.upper)
            self.y = self.y - step * (Q[:, k:] @ parts[k:])
            self.force = self.force - step * along
            pull += step
            excess -= step * rest
            if step == full:
                break
            self._release(int(held[np.argmin(lengths)]))
        self.factors = _inserted(Q, R, normal)
        self.binding.append(i)
        self.sign.append(sign)
        self.force = np.append(self.force, pull)

    def _release(self, j: int) -> None:
        del self.binding[j], self.sign[j]
        self.force = np.delete(self.force, j)
        Q, R = qr_delete(*self.factors, j, which="col")
        self.factors = np.asarray(Q, dtype=np.float64), np.asarray(R, dtype=np.float64)

    def _refresh(self) -> None:
        """Compute forces and point anew from the binding rows, so that no rounding adds up."""
        normals = self.rows[self.binding] * np.array(self.sign)[:, None]
        self.factors = _factors(normals.T)
        R = self.factors[1][: len(normals)]
        limit = np.where(np.array(self.sign) > 0.0, self.upper, -self.lower)
        half = _solved(R, normals @ self.target - limit, trans="T")
        self.force = np.maximum(_solved(R, half), 0.0)
        self.y = self.target - normals.T @ self.force


def _solved(R: Array, b: Array, trans: Literal["N", "T"] = "N") -> Array:
    """Solve a triangular system. Older versions of scipy refuse one without unknowns."""
    return np.asarray(solve_triangular(R, b, trans=trans)) if len(b) else b


def _factors(normals: Array) -> tuple[Array, Array]:
    if normals.shape[1] == 0:
        return np.eye(len(normals)), normals
    Q, R = qr(normals)
    return np.asarray(Q, dtype=np.float64), np.asarray(R, dtype=np.float64)


def _inserted(Q: Array, R: Array, normal: Array) -> tuple[Array, Array]:
    """Return the factors with one more column."""
    if R.shape[1] == 0:
        return _factors(normal[:, None])
    more, corner = qr_insert(Q, R, normal, R.shape[1], which="col")
    return np.asarray(more, dtype=np.float64), np.asarray(corner, dtype=np.float64)


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
