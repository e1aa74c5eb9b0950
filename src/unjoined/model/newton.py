"""Base and effect as sums of functions whose blocks have scales that are learnt from the rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrs, dtrtri

from unjoined._threads import CACHE_ROWS, Scratch, over_pieces
from unjoined._typing import Array, IntArray
from unjoined.model.families import Family, Sums

BASE, EFFECT = "base", "effect"
CONSTANT = "constant"
# Squared scales to start with, in log-odds or in standard deviations of the outcome.
START = {
    "line": 0.1,
    "square": 0.05,
    "curve": 0.05,
    "category": 0.1,
    "pair": 0.02,
    "base rule": 0.02,
    "effect rule": 0.02,
}
FREE = {BASE: 1e-4, EFFECT: 0.1}  # precisions of the constants: next to nothing
TAIL = 1.0  # degrees of freedom of a block's scale around that of its group: Cauchy
FEW = "few "  # begins the names of groups in which few blocks are expected to matter
FEW_TAIL = 0.1  # the same of these groups
DAMPED = 0.7  # share of the way that precisions go in one update, on the log scale
SMALLEST, LARGEST = 1e-3, 1e7  # precisions of blocks
LEAST, MOST = 1e-7, 10.0  # squared scales of groups
TINY = 1e-9  # freedom of a block, at least: so little that a scale that fell can rise again
N_STEPS = 25  # with new scales after each, at most
MOST_UPDATES = 20  # of scales between two passes
DEAR = 10  # people for each coefficient, above which a pass costs more than these
SETTLED = 0.02  # change of the logarithm of a group's scale that is none
UNSCALED = 2  # the first steps, which leave the scales alone
MOST_STEPS = 50  # with the scales fixed, at the end
TOL = 1e-6  # nats of all rows: a step that promises less is not taken then
SHORTEST = 1e-3  # of a full step
SUFFICIENT = 1e-4  # share of what a step promises that it must bring (Armijo)
_SCRATCH = Scratch()


class AdditiveRows(NamedTuple):
    """A few thousand rows: values of the functions (p, m) and what the law needs."""

    values: Array
    y: Array
    exposure: Array
    weight: Array


def sums_of_rows(rows: AdditiveRows, family: Family, coef: Array, parts: Parts) -> Sums:
    """Add up one set of rows."""
    values, y, exposure, weight = rows
    p = len(parts.base)
    of_base = _functions(values, parts.base)
    of_effect = _functions(values, parts.effect)
    t = family(y, exposure, coef[:p] @ of_base, coef[p:] @ of_effect)
    gradient = np.concatenate(
        [of_base @ (weight * t.by_base), of_effect @ (weight * t.by_effect)]
    )
    root = np.sqrt(weight * t.base_base)
    lean = np.divide(
        weight * t.base_effect, root, out=np.zeros_like(root), where=root > 0.0
    )
    design = _SCRATCH.array("design", len(coef), len(y))
    np.multiply(of_base, root, out=design[:p])
    np.multiply(of_effect, lean, out=design[p:])
    curvature = design @ design.T
    if t.rest is not None:
        np.multiply(of_effect, np.sqrt(weight * t.rest), out=design[p:])
        curvature[p:, p:] += design[p:] @ design[p:].T
    square = float(weight @ t.square)
    counted = float(weight @ t.counted)
    return Sums(float(weight @ t.loss), gradient, curvature, square, counted)


def _functions(values: Array, places: IntArray) -> Array:
    """Return the values of some functions: a view, if they follow each other."""
    first = int(places[0]) if len(places) else 0
    n = len(places)
    if n and int(places[-1]) == first + n - 1:  # places rise
        return values[first : first + n]
    return values[places]


@dataclass(frozen=True, slots=True)
class Parts:
    """Which functions base and effect are made of, and which coefficients share a scale."""

    base: IntArray  # places among the functions
    effect: IntArray
    block: IntArray  # (p,) of each coefficient, base first
    origin: IntArray  # (b,) of each block: its number in the basis, those of the effect negative
    group: IntArray  # (b,) of each block
    names: tuple[
        tuple[str, str], ...
    ]  # of each group: its part, and what its functions are

    @classmethod
    def of_groups(
        cls,
        block: IntArray,
        groups: tuple[str, ...],
        base: frozenset[str],
        effect: frozenset[str],
        few: frozenset[str] = frozenset(),
    ) -> Parts:
        """Return a base and an effect of the functions whose groups are named.

        ``block`` is the block of each function, ``groups`` the group of each block. ``few`` are
        the groups in which few blocks are expected to matter.
        """
        places: list[IntArray] = []
        blocks: list[IntArray] = []
        origin: list[IntArray] = []
        names: list[tuple[str, str]] = []
        group: list[int] = []
        for part, kept in ((BASE, base), (EFFECT, effect)):
            used = np.array([name in kept for name in groups])
            places.append(np.flatnonzero(used[block]))
            blocks.append(len(group) + (np.cumsum(used) - 1)[block[places[-1]]])
            origin.append(
                np.flatnonzero(used) if part == BASE else -1 - np.flatnonzero(used)
            )
            for name in (name for name in groups if name in kept):
                full = (part, FEW + name if name in few else name)
                if full not in names:
                    names.append(full)
                group.append(names.index(full))
        return cls(
            places[0],
            places[1],
            np.concatenate(blocks),
            np.concatenate(origin),
            np.array(group),
            tuple(names),
        )

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Part and functions of each group, few of them expected to matter or not."""
        return [(part, name.removeprefix(FEW)) for part, name in self.names]

    def alone(self) -> Parts:
        """Return the base with a constant effect."""
        k, b, g = self._of_base()
        shared = (self.block[: k + 1], self.origin[: b + 1], self.group[: b + 1])
        return Parts(self.base, self.effect[:1], *shared, self.names[: g + 1])

    def doubled(self) -> Parts:
        """Return the base with an effect of the same functions."""
        k, b, g = self._of_base()
        block = self.block[:k]
        origin = self.origin[:b]
        group = self.group[:b]
        return Parts(
            self.base,
            self.base,
            np.concatenate([block, b + block]),
            np.concatenate([origin, -1 - origin]),
            np.concatenate([group, g + group]),
            (*self.names[:g], *((EFFECT, name) for _, name in self.names[:g])),
        )

    def _of_base(self) -> tuple[int, int, int]:
        """Return how many functions, blocks and groups the base has."""
        k = len(self.base)
        b = 1 + int(self.block[:k].max())
        return k, b, 1 + int(self.group[:b].max())

    def moved(self, place: IntArray) -> Parts:
        """Return the same parts where each function has another place."""
        return replace(self, base=place[self.base], effect=place[self.effect])

    def within(self) -> Parts:
        """Return the same parts where the functions of the base are all there are."""
        effect = np.searchsorted(self.base, self.effect)
        return replace(self, base=np.arange(len(self.base)), effect=effect)


@dataclass(frozen=True, slots=True)
class Scales:
    """How far coefficients lie from 0: a precision for each block, shrunk towards its group's."""

    precision: Array  # (b,)
    group: Array  # (g,) squared scales; infinite for constants, which are free

    @classmethod
    def start(cls, parts: Parts) -> Scales:
        """Return the scales to begin with."""
        group = np.array(
            [np.inf if name == CONSTANT else START[name] for _, name in parts.kinds]
        )
        free = np.array([FREE[part] for part, _ in parts.names])
        return cls(np.where(np.isinf(group), free, 1.0 / group)[parts.group], group)

    def carried(self, parts: Parts, other: Parts) -> Scales:
        """Return scales for other parts: those of blocks and groups that both have are kept."""
        start = Scales.start(other)
        _, here, there = np.intersect1d(other.origin, parts.origin, return_indices=True)
        start.precision[here] = self.precision[there]
        for g, kind in enumerate(parts.kinds):
            if kind in other.kinds:
                start.group[other.kinds.index(kind)] = self.group[g]
        return start

    def updated(self, parts: Parts, coef: Array, variance: Array) -> Scales:
        """Return MacKay's update, damped; the group goes first, or it would creep."""
        b = len(self.precision)
        g = len(self.group)
        of = parts.group
        size = np.bincount(parts.block, minlength=b)
        square = np.bincount(parts.block, coef**2, minlength=b)
        spread = np.bincount(parts.block, variance, minlength=b)
        freedom = np.maximum(size - self.precision * spread, TINY)
        whole = np.bincount(of, self.precision * square, g) / np.bincount(
            of, freedom, g
        )
        whole = whole.clip(0.2, 5.0) ** DAMPED
        scale = (self.group * whole).clip(LEAST, MOST)
        few = [name.startswith(FEW) for _, name in parts.names]
        tail = np.where(few, FEW_TAIL, TAIL)[of]
        wanted = (freedom + tail) / (square + tail * scale[of])
        wanted = wanted.clip(SMALLEST, LARGEST) ** DAMPED
        wanted *= (self.precision / whole[of]) ** (1.0 - DAMPED)
        bound = np.isfinite(self.group)
        precision = np.where(bound[of], wanted, self.precision)
        mean = np.bincount(of, minlength=g) / np.bincount(of, precision, g)
        group = np.where(bound, mean.clip(LEAST, MOST), self.group)
        return Scales(precision, group)

    def moved(self, before: Scales) -> float:
        """Return the largest change of the logarithm of a group's scale."""
        bound = np.isfinite(self.group)
        change = np.log(self.group[bound]) - np.log(before.group[bound])
        return float(np.abs(change).max(initial=0.0))


Pass = Callable[[Family, Array], Sums]  # over all rows, at coefficients


def pass_in_memory(rows: AdditiveRows, parts: Parts, n_jobs: int | None = None) -> Pass:
    """Return a pass over rows whose functions are in memory; threads share its pieces."""
    slices = [slice(at, at + CACHE_ROWS) for at in range(0, len(rows.y), CACHE_ROWS)]
    pieces = [
        AdditiveRows(*(np.ascontiguousarray(array[..., piece]) for array in rows))
        for piece in slices
    ]

    def pass_over(family: Family, coef: Array) -> Sums:
        sums = over_pieces(
            lambda piece: sums_of_rows(piece, family, coef, parts), pieces, n_jobs
        )
        return reduce(operator.add, sums)

    return pass_over


def pass_by_pieces(
    basis: Callable[[Array], Array],
    rows: AdditiveRows,
    parts: Parts,
    n_jobs: int | None = None,
) -> Pass:
    """Return a pass over rows of which only the features, (d, n), are in memory."""
    starts = range(0, len(rows.y), CACHE_ROWS)

    def pass_over(family: Family, coef: Array) -> Sums:
        def add_up(start: int) -> Sums:
            X, *others = (array[..., start : start + CACHE_ROWS] for array in rows)
            return sums_of_rows(
                AdditiveRows(basis(X.T).T, *others), family, coef, parts
            )

        return reduce(operator.add, over_pieces(add_up, starts, n_jobs))

    return pass_over


@dataclass(frozen=True, slots=True)
class AdditiveFit:
    """Coefficients, scales and noise, and how they were reached."""

    parts: Parts = field(repr=False)
    family: Family
    coef: Array = field(repr=False)  # (p,) base first
    scales: Scales = field(repr=False)
    covariance: Array = field(
        repr=False
    )  # (p, p) of the coefficients, given the scales
    # Penalised loss, nats, of the last steps, whose scales are fixed.
    objective: Array = field(repr=False)
    converged: bool

    def __call__(self, values: Array) -> tuple[Array, Array]:
        """Return base and effect, given the values of the functions (n, p)."""
        k = len(self.parts.base)
        return (
            values[:, self.parts.base] @ self.coef[:k],
            values[:, self.parts.effect] @ self.coef[k:],
        )


Request = tuple[
    Family, Array
]  # what a pass over the rows is asked for: a law and coefficients
Steps = Generator[
    Request, Sums, AdditiveFit
]  # asks for passes, is sent sums, returns a fit


def fit_steps(
    parts: Parts,
    family: Family,
    coef: Array,
    scales: Scales | None = None,
    *,
    n_steps: int = N_STEPS,
    near: bool = False,
    dear: bool = False,
    tol: float = TOL,
) -> Steps:
    """Alternate Gauss-Newton steps with updates of scales and noise, then converge with both fixed.

    A step costs one pass over the rows, of O(n p^2), and O(p^3); one more pass for each time that
    it is halved. Who drives the steps makes the passes, wherever the rows are. If passes are
    ``dear``, scales are updated as often as it takes between two of them. ``near`` says that the
    start is a fit to a sample of the rows: scales are then updated from the first step on.
    """
    scales = Scales.start(parts) if scales is None else scales
    sums = yield family, coef
    for k in range(n_steps):
        penalty = scales.precision[parts.block]
        factor = _factor(sums.curvature, penalty)
        coef, sums, _ = yield from _step(family, coef, sums, penalty, factor)
        variance = _inverse_diagonal(factor)
        family, known = family.renewed(sums, len(coef) - float(penalty @ variance))
        if known is None:
            sums = yield family, coef
        else:
            sums = known
        if near or k >= UNSCALED:
            before = scales
            scales = scales.updated(parts, coef, variance)
            if scales.moved(before) < SETTLED:
                break
            if dear:
                scales = _settled(parts, scales, coef, sums)
    penalty = scales.precision[parts.block]
    path = [_objective(sums, penalty, coef)]
    moved = True
    while True:
        factor = _factor(sums.curvature, penalty)
        gradient = sums.gradient + penalty * coef
        promised = float(gradient @ _solve(factor, gradient))
        if promised < tol or not moved or len(path) > MOST_STEPS:
            break
        coef, sums, moved = yield from _step(family, coef, sums, penalty, factor)
        path.append(_objective(sums, penalty, coef))
    covariance = _solve(factor, np.eye(len(coef)))
    converged = bool(promised < max(tol, np.sqrt(TOL)))
    return AdditiveFit(
        parts, family, coef, scales, covariance, np.array(path), converged
    )


def _settled(parts: Parts, scales: Scales, coef: Array, sums: Sums) -> Scales:
    """Update scales while the loss is taken for the square that touches it at the coefficients.

    That needs no pass over the rows.
    """
    for _ in range(MOST_UPDATES):
        penalty = scales.precision[parts.block]
        factor = _factor(sums.curvature, penalty)
        there = coef - _solve(factor, sums.gradient + penalty * coef)
        before = scales
        scales = scales.updated(parts, there, _inverse_diagonal(factor))
        if scales.moved(before) < SETTLED:
            break
    return scales


def fit_additive(
    pass_over: Pass,
    parts: Parts,
    family: Family,
    coef: Array,
    scales: Scales | None = None,
    *,
    n_steps: int = N_STEPS,
    near: bool = False,
    dear: bool = False,
    tol: float = TOL,
) -> AdditiveFit:
    """Go through the steps of a fit with passes over rows that are at hand; see `fit_steps`."""
    options: Any = {"n_steps": n_steps, "near": near, "dear": dear, "tol": tol}
    steps = fit_steps(parts, family, coef, scales, **options)
    request = next(steps)
    while True:
        try:
            request = steps.send(pass_over(*request))
        except StopIteration as stop:
            fit: AdditiveFit = stop.value
            return fit


def fits_without(fit: AdditiveFit, sums: list[Sums]) -> list[AdditiveFit]:
    """Return the fits without each part of the rows, one step from the fit to all of them.

    ``sums`` are those of the parts, at the coefficients of the fit. What is left of a part is the
    square of what it changed, and a share of that change where steps use a rough curvature.
    """
    penalty = fit.scales.precision[fit.parts.block]
    whole = reduce(operator.add, sums)
    found = []
    for part in sums:
        factor = _factor(whole.curvature - part.curvature, penalty)
        step = -_solve(factor, whole.gradient - part.gradient + penalty * fit.coef)
        found.append(replace(fit, coef=fit.coef + step))
    return found


def _objective(sums: Sums, penalty: Array, coef: Array) -> float:
    return sums.loss + 0.5 * float(penalty @ coef**2)


def _step(
    family: Family, coef: Array, sums: Sums, penalty: Array, factor: Array
) -> Generator[Request, Sums, tuple[Array, Sums, bool]]:
    """Take one step that lowers the objective; also return if it moved."""
    gradient = sums.gradient + penalty * coef
    step = -_solve(factor, gradient)
    promised = float(-gradient @ step)
    before = _objective(sums, penalty, coef)
    length = 1.0
    while length > SHORTEST:
        there = coef + length * step
        trial = yield family, there
        if _objective(trial, penalty, there) <= before - SUFFICIENT * length * promised:
            return there, trial, True
        length *= 0.5
    return coef, sums, False  # rounding hides any further gain


def _factor(curvature: Array, penalty: Array) -> Array:
    """Return the lower Cholesky factor of the penalised curvature."""
    penalised = curvature.copy()
    penalised[np.diag_indices(len(penalty))] += penalty
    return np.asarray(np.linalg.cholesky(penalised), dtype=float)


def _solve(factor: Array, right: Array) -> Array:
    """Solve with the matrix of a lower Cholesky factor."""
    return np.asarray(
        dpotrs(factor.T, right, lower=0)[0]
    )  # in LAPACK's order without a copy


def _inverse_diagonal(factor: Array) -> Array:
    """Return the diagonal of the inverse of a matrix, given its lower Cholesky factor."""
    root = dtrtri(factor.T, lower=0)[0]
    return np.asarray(np.einsum("ij,ij->i", root, root))
