"""The min-max problem of the paper: solved exactly, its ridges chosen, within bounds if asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import (
    LinAlgError,
    block_diag,
    cholesky,
    lapack,
    qr,
    solve_triangular,
    svd,
)
from scipy.optimize import nnls

from unjoined._threads import over_pieces
from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.model.moments import MomentSums

RIDGES_F = np.logspace(-6.0, 1.0, 15)
RIDGES_G = np.logspace(-4.0, -1.0, 4)
# Of the critic that judges. With a tenth and ten times as much no difference in accuracy was seen
# beyond noise, on six simulated problems.
CRITIC_RIDGE = 1e-2
N_PARTS = 3  # of a fold, each scored by one thread


@dataclass(frozen=True, slots=True)
class MinMaxSystem:
    """The averages A, b, C of the paper, section 4.2, phi of the uplift and psi of the critic."""

    A: Array  # (p_f, p_g)  estimate of E[w phi psi^T]
    b: Array  # (p_g,)      estimate of E[z psi]
    C: Array  # (p_g, p_g)  estimate of E[psi psi^T]


def assemble(
    sums: MomentSums, contrasts: Array | None = None, p_f: int | None = None
) -> MinMaxSystem:
    r"""Average the sums of all cells.

    With :math:`s_1 = 1`, :math:`s_2 = -1`, so that :math:`w = s_k t` and :math:`z = s_k y`,

    .. math::

        A = \tfrac12 \sum_k s_k \overline{t \phi\phi^\top}_k, \quad
        b = \tfrac12 \sum_k s_k \overline{y \phi}_k, \quad
        C = \tfrac14 \sum_k (\overline{\phi\phi^\top}_k + \overline{\widetilde{\phi\phi}^\top}_k),

    a bar with subscript :math:`k` being the weighted mean over one cell. This is the only place
    where cells of unequal sizes are put on an equal footing: dividing each by its own weight is
    the factor :math:`n / (2 n_k)` of the paper's appendix, and gives the formulas of its section
    4.2 when sizes are equal.

    More than two populations come with ``contrasts``, shape (J, K), whose entries take the place of
    :math:`s_k`; in C a population counts by the size of its entry in the first. Each contrast has
    a critic of its own: the J parts of A and b stand side by side. With ``p_f`` the uplift has so
    many functions, and the critic the rest.
    """
    parts = np.array([[1.0, -1.0]]) if contrasts is None else contrasts
    cells = sums.over_groups()
    weight = cells.weight
    label_basis = cells.label_basis[0] / weight[0][:, None]
    label_cross = cells.label_cross[1] / weight[1][:, None, None]
    gram = cells.gram / weight[..., None, None]
    A = np.tensordot(parts / 2.0, label_cross, axes=1)
    b = parts / 2.0 @ label_basis
    C = np.tensordot(np.abs(parts[0]) / 4.0, gram.sum(axis=0), axes=1)
    f, g = (slice(None), slice(None)) if p_f is None else (slice(p_f), slice(p_f, None))
    if len(parts) == 1:
        return MinMaxSystem(A[0, f, g], b[0, g], C[g, g])
    return MinMaxSystem(
        np.hstack(list(A[:, f, g])), b[:, g].ravel(), block_diag(*[C[g, g]] * len(b))
    )


@dataclass(frozen=True, slots=True)
class MinMaxSolution:
    """The saddle point: coefficients of the uplift and of its critic."""

    alpha: Array  # (p_f,) coefficients of f, outcome units
    beta: Array  # (p_g,) coefficients of g, outcome units
    singular_values: (
        Array  # of the whitened A; small ones are directions the gap cannot see
    )


@dataclass(frozen=True, slots=True)
class Whitened:
    """What is left of the problem once ``ridge_g`` is fixed: one ridge regression of c on M."""

    L: Array  # (p, p) lower, L L^T = C + ridge_g I
    c: Array  # (p,)   L^-1 2b
    U: Array  # M = U diag(s) Vt = L^-1 A^T
    s: Array
    Vt: Array

    def alpha(self, ridge_f: float) -> Array:
        """Return the minimiser of |M alpha - c|^2 + ridge_f |alpha|^2."""
        shrunk = self.s / (self.s**2 + ridge_f) * (self.U.T @ self.c)
        return np.asarray(self.Vt.T @ shrunk)

    def beta(self, alpha: Array) -> Array:
        """Return the critic that answers ``alpha``."""
        residual = self.U @ (self.s * (self.Vt @ alpha)) - self.c
        return np.asarray(solve_triangular(self.L, residual, lower=True, trans="T"))


def whiten(system: MinMaxSystem, ridge_g: float) -> Whitened:
    """Factorise the problem for one ``ridge_g``; every ``ridge_f`` is cheap afterwards."""
    # With L L^T = C + ridge_g I the inner maximum is a squared norm, so the rest is one ridge
    # regression of c on M. Neither C^-1 nor M^T M is formed: nearly collinear basis functions
    # would lose half of the digits there.
    try:
        L = cholesky(system.C + ridge_g * np.eye(len(system.b)), lower=True)
    except LinAlgError as error:
        raise too_collinear(ridge_g) from error
    M = solve_triangular(L, system.A.T, lower=True)  # (p_g, p_f)
    c = solve_triangular(L, 2.0 * system.b, lower=True)  # (p_g,)
    try:
        U, s, Vt = svd(M, full_matrices=False)
    except LinAlgError:
        # LAPACK's divide and conquer now and then gives up on a nearly singular matrix that the
        # slower QR iteration has no trouble with.
        U, s, Vt = svd(M, full_matrices=False, lapack_driver="gesvd")
    return Whitened(L, c, U, s, Vt)


def too_collinear(ridge_g: float) -> InputError:
    """Return the error for a matrix C + ridge_g I that has no factors."""
    return InputError(
        f"ridge_g={ridge_g:g} is too small for a basis this nearly collinear: the matrix "
        "C + ridge_g I is not positive definite in double precision. Raise ridge_g."
    )


def solve_minmax(
    system: MinMaxSystem, *, ridge_f: float, ridge_g: float
) -> MinMaxSolution:
    r"""Solve the regularised problem of the paper, section 4.2, exactly.

    .. math::

        \min_\alpha \max_\beta \;
        2 \alpha^\top A \beta - 4 b^\top \beta - \beta^\top C \beta
        + \lambda_f \|\alpha\|^2 - \lambda_g \|\beta\|^2

    whose solution is :math:`\beta = \tilde C^{-1} (A^\top \alpha - 2 b)` and
    :math:`\alpha = 2 (A \tilde C^{-1} A^\top + \lambda_f I)^{-1} A \tilde C^{-1} b` with
    :math:`\tilde C = C + \lambda_g I`. Arguments are trusted: finite float64, ridges > 0.
    Costs :math:`O(p^3)`.
    """
    whitened = whiten(system, ridge_g)
    alpha = whitened.alpha(ridge_f)
    return MinMaxSolution(alpha, whitened.beta(alpha), whitened.s)


def score_ridges(
    folds: Sequence[tuple[MinMaxSystem, MinMaxSystem]],
    C: Array,
    *,
    ridges_f: Sequence[float] | Array,
    ridges_g: Sequence[float] | Array,
    n_jobs: int | None = None,
) -> tuple[Array, Array]:
    r"""Score every pair of ridges on every fold by the fixed-critic score.

    Return the scores (n_folds, n_g, n_f), squared inner outcome units, lower is better, and the
    coefficients fitted without each fold that earned them (n_folds, n_g, n_f, p_f).

    .. math::

        Q(\alpha) = (A_h^\top \alpha - 2 b_h)^\top (C + r I)^{-1} (A_h^\top \alpha - 2 b_h),

    the largest value of :math:`2\alpha^\top A_h\beta - 4 b_h^\top\beta - \beta^\top (C + rI)\beta`
    any critic :math:`\beta` reaches on the held-out sums :math:`A_h, b_h`, with
    :math:`\alpha` from the rest of the rows and :math:`r = 0.01` whatever ``ridges_g``. ``folds``
    holds the averages over the rows outside of each fold and over its own, ``C`` is that of all
    rows. Costs O(n_folds n_g p^3).
    """
    f = np.asarray(ridges_f, dtype=np.float64)
    g = np.asarray(ridges_g, dtype=np.float64)
    # As a piece of work: with BLAS on all cores a small matrix takes ten times as long.
    (judge,) = over_pieces(
        lambda matrix: _inverse_root(matrix, CRITIC_RIDGE), [C], None
    )

    # Parts of a fold, so that no core waits for another's last fold.
    parts = [part for part in np.array_split(g, N_PARTS) if len(part)]

    def score(
        task: tuple[tuple[Array, Array, Array], MinMaxSystem, Array],
    ) -> tuple[Array, Array]:
        (values, A, b), held, ridges = task
        # For each ridge_g alpha is the ridge regression of c (p_g,) on M (p_g, p_f).
        roots = np.array(
            [_roots(values, float(ridge)) for ridge in ridges]
        )  # (n_g, p_g)
        M = A / roots[..., None]
        c = b / roots
        # Half of the digits of the smallest singular values are lost in M^T M, far below what
        # decides between ridges. The critics that answer are not needed here.
        transpose = M.swapaxes(1, 2)
        systems = zip(transpose @ M, (transpose @ c[..., None])[..., 0], strict=True)
        alpha = np.stack(
            [_ridge_path(*system, f) for system in systems]
        )  # (n_g, p, n_f)
        objection = judge @ (
            held.A.T @ alpha - 2.0 * held.b[:, None]
        )  # (n_g, p_g, n_f)
        return np.sum(objection**2, axis=1), alpha.swapaxes(1, 2)

    rests = over_pieces(_in_directions, [rest for rest, _ in folds], n_jobs)
    pairs = zip(rests, (held for _, held in folds), strict=True)
    tasks = [(rest, held, part) for rest, held in pairs for part in parts]
    scores, alphas = zip(*over_pieces(score, tasks, n_jobs), strict=True)
    shape = (len(folds), len(g), len(f))
    return np.concatenate(scores).reshape(shape), np.concatenate(alphas).reshape(
        *shape, -1
    )


def _in_directions(system: MinMaxSystem) -> tuple[Array, Array, Array]:
    """Return the eigenvalues of C, and A^T and 2 b in its directions: ridge_g divides there."""
    values, Q = np.linalg.eigh(system.C)
    return values, Q.T @ system.A.T, Q.T @ (2.0 * system.b)


def _ridge_path(G: Array, h: Array, ridges: Array) -> Array:
    """Return the solutions of one system for every ridge, shape (p, n_f).

    Reflections turn G into a tridiagonal matrix, to whose diagonal any ridge is added: O(p^3), a
    small part of what its eigenvectors cost, and O(p^2) for each ridge.
    """
    p = len(h)
    if p == 1:  # LAPACK takes two or more
        return h / (G + ridges)
    reflections, diagonal, beside, scale, _ = lapack.dsytrd(G, lower=1)
    # Eigenvalues of G below 0 are rounding, which must not turn the sign of what is divided by.
    diagonal = diagonal + p * np.finfo(np.float64).eps * np.abs(diagonal).max()
    right = h.copy()
    found = np.empty((p, len(ridges)), order="F")
    right[1:] = _reflect("T", reflections, scale, h[1:, None])[
        :, 0
    ]  # the first one never is
    for j, ridge in enumerate(ridges.tolist()):
        found[:, j] = lapack.dptsv(diagonal + ridge, beside, right)[2]
    found[1:] = _reflect("N", reflections, scale, found[1:])
    return found


def _reflect(way: str, reflections: Array, scale: Array, columns: Array) -> Array:
    block = 64 * columns.shape[1]  # room for LAPACK to reflect so many rows together
    reflected: Array = lapack.dormqr(
        "L", way, reflections[1:, :-1], scale, columns, block
    )[0]
    return reflected


def _inverse_root(C: Array, ridge: float) -> Array:
    """Return R with R^T R = (C + ridge I)^-1."""
    values, Q = np.linalg.eigh(C)
    root: Array = Q.T / _roots(values, ridge)[:, None]
    return root


def _roots(values: Array, ridge: float) -> Array:
    shifted = values + ridge
    # Eigenvalues of C below 0 are rounding; a ridge no larger than that drowns in it.
    if shifted.min() <= 0.0:
        raise too_collinear(ridge)
    root: Array = np.sqrt(shifted)
    return root


def choose_ridges(score: Array) -> tuple[Array, Array, tuple[int, int]]:
    """Choose the middle of all pairs within one standard error of the best, by fold scores.

    Return each pair's mean over folds (n_g, n_f), the standard error of its difference to the best
    pair's, paired by fold, and the position of the pair chosen.
    """
    # The pairs the folds cannot tell from the best spread over decades of both ridges. Their mean
    # position on the (logarithmic) grids is steadier than the best, and unlike the most
    # regularised of them does not give up what the rows do show.
    mean = score.mean(axis=0)
    g, f = np.unravel_index(int(np.argmin(mean)), mean.shape)
    behind = score - score[:, g, f][:, None, None]
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(score))
    close_g, close_f = np.nonzero(behind.mean(axis=0) <= error)
    return mean, error, (round(float(close_g.mean())), round(float(close_f.mean())))


# ``oracle(x, lower, upper, most=k)``: the rows at which ``lower <= phi^T x <= upper`` fails.
RowOracle = Callable[..., tuple[IntArray, Array, float]]
TOLERANCE = 1e-7  # of the range constraints, relative to the wider bound, or if that is 0 to start
ROUNDING = (
    1e-13  # of a violation, relative to that of the minimiser without constraints
)
MAX_ROUNDS = 1000
MAX_STEPS = 30  # of one programme, for each row
SHORTEST = (
    1e-100  # of a row's basis values; shorter ones are 0 whatever the coefficients
)
NOTHING = (
    1e-7  # of an equation that is left over: it can be met, and then the range cannot
)
FAR = 10.0  # times the unit of length; farther solutions lose digits and are computed once more


@dataclass(frozen=True, slots=True)
class BoxQPSolution:
    """The solution, and what is needed to doubt it."""

    x: Array  # (p,)
    rounds: int  # quadratic programmes solved; 0 if no row was violated
    index: IntArray  # (k,) rows at which a bound binds
    phi: Array  # (k, p) their basis values
    multiplier: Array  # (k,) of the upper minus of the lower bound
    worst: float  # largest remaining violation at any row


def solve_box_qp(
    Q: Array, q: Array, start: Array, oracle: RowOracle, *, lower: float, upper: float
) -> BoxQPSolution:
    r"""Minimise :math:`\tfrac12 x^\top Q x + q^\top x` with a range constraint at every row.

    :math:`\text{lower} \le \phi_i^\top x \le \text{upper}` for all rows :math:`i`. The rows may
    be many and are never all in memory as constraints: beginning with ``start``, the minimiser
    without constraints, the rows it violates worst enter, the small programme is solved, rows that
    do not bind leave, and so on until no row is violated by more than a relative 1e-7. The value
    grows from round to round, so it ends. At most p constraints bind at a solution in general
    position, so few rows are ever considered. A round costs one pass over the rows and
    nonnegative least squares in p equations.
    """
    # With Q = L L^T and y = L^T x the programme is to find the y nearest to -L^-1 q.
    L = _root(Q)
    p = len(q)
    x = start
    phi = np.empty((0, p))
    multiplier = np.empty(0)
    index: IntArray = np.empty(0, dtype=np.int64)
    violated, values, worst = oracle(x, lower, upper, most=2 * p)
    first = worst
    scale = max(abs(bound) for bound in (lower, upper) if np.isfinite(bound)) or first
    target = -solve_triangular(L, q, lower=True)
    for rounds in range(MAX_ROUNDS):
        if worst <= TOLERANCE * scale:
            return BoxQPSolution(x, rounds, index, phi, multiplier, worst)
        new = ~np.isin(violated, index)
        if not new.any() or (rounds and worst <= ROUNDING * first):
            raise _impossible(
                lower, upper
            )  # nothing but rounding is left, and it is too much
        index = np.concatenate([index, violated[new]])
        phi = np.concatenate([phi, values[new]])
        rows = solve_triangular(L, phi.T, lower=True).T
        y, multiplier = _nearest(target, rows, lower, upper)
        x = solve_triangular(L, y, lower=True, trans="T")
        binds = multiplier != 0.0
        index = index[binds]
        phi = phi[binds]
        multiplier = multiplier[binds]
        violated, values, worst = oracle(x, lower, upper, most=2 * p)
    raise InputError(
        f"the range constraints did not settle within {MAX_ROUNDS} rounds; {len(index)} rows "
        "bind. Raise the ridges or widen the bounds."
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


def _nearest(
    target: Array, rows: Array, lower: float, upper: float
) -> tuple[Array, Array]:
    """Return the point nearest to a target at which rows keep to a range, and their multipliers.

    Multipliers are positive at the upper bound and negative at the lower. The rows that bind are
    found by nonnegative least squares; the point is then computed from them alone.
    """
    length = np.linalg.norm(rows, axis=1)
    if length.min() < SHORTEST:  # 0 whatever the point, and yet beyond the range
        raise _impossible(lower, upper)
    unit = rows / length[:, None]
    value = unit @ target
    sides = [
        (sign, bound)
        for sign, bound in ((1.0, upper), (-1.0, lower))
        if np.isfinite(bound)
    ]
    normals = np.vstack([sign * unit for sign, _ in sides])
    room = np.concatenate([sign * (bound / length - value) for sign, bound in sides])
    force = _forces(normals, room)
    if force is None:
        raise _impossible(lower, upper)
    signs = np.array([sign for sign, _ in sides])
    net = signs @ force.reshape(len(sides), len(rows))
    binding = np.flatnonzero(net)
    sign = np.sign(net[binding])
    normal = sign[:, None] * unit[binding]
    limit = sign * np.where(sign > 0.0, upper, lower) / length[binding]
    R = qr(normal.T, mode="r")[0][: len(binding)]
    half = solve_triangular(R, normal @ target - limit, trans="T")
    pull = np.maximum(solve_triangular(R, half), 0.0)
    multiplier = np.zeros(len(rows))
    multiplier[binding] = sign * pull / length[binding]
    return target - normal.T @ pull, multiplier


def _forces(normals: Array, room: Array) -> Array | None:
    """Return forces, none below 0, that push to the shortest z with ``normals @ z <= room``.

    The shortest z is ``-normals.T @ force``. None if there is no such z at all.
    """
    unit = -float(room.min())  # z is at least as long
    force = _forces_in_units(normals, room, unit)
    if force is None:
        return None
    distance = float(np.linalg.norm(force @ normals))
    return (
        force if distance <= FAR * unit else _forces_in_units(normals, room, distance)
    )


def _forces_in_units(normals: Array, room: Array, unit: float) -> Array | None:
    """Return the forces, computed in units of the length that z is expected to have.

    By Lawson and Hanson (1974, chapter 23), they are the solution of a nonnegative least-squares
    problem in one equation more than z has entries, times a factor.
    """
    E = np.vstack([-normals.T, -room / unit])
    wanted = np.zeros(len(E))
    wanted[-1] = 1.0
    try:
        found, left = nnls(E, wanted, maxiter=MAX_STEPS * len(room))
    except RuntimeError as error:
        raise InputError(
            "the range constraints could not be solved in reasonable time. Raise the ridges or "
            "widen the bounds."
        ) from error
    if left < NOTHING:
        return None
    return np.asarray(unit * found / (1.0 - float(E[-1] @ found)))


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
