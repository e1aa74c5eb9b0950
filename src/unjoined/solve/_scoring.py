"""Penalised fits of a base and an effect by Fisher scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from unjoined._typing import Array
from unjoined.solve._mixture_terms import OutcomeTerms

__all__ = ["BaseEffectFit", "BaseEffectRows", "Scoring"]

CHUNK_ROWS = 4096  # the scaled design of a chunk stays in the cache between its uses
TINY = 1e-10  # keeps the normal equations solvable when a penalty is 0
SUFFICIENT = 1e-4  # share of the predicted gain that a step must bring (Armijo)
SHORTEST = 1e-6  # a step shorter than this share of the full one is no step
# A curvature serves as long as each step leaves at most this share of what was left to gain; a
# new one costs as much as p gradients.
LEFT = 0.5


class _Chunk(NamedTuple):
    base: Array  # (m, p_b)
    effect: Array  # (m, p_u)
    y: Array
    exposure: Array
    weight: Array


@dataclass(frozen=True, slots=True)
class BaseEffectRows:
    """Outcome rows with the functions of the base and of the effect at them.

    ``base`` and ``effect`` hold basis values (n, p), or map features to them, chunk by chunk, so
    that they need not be in memory for all rows.
    """

    base: Array | Callable[[Array], Array]
    effect: Array | Callable[[Array], Array]
    X: Array  # (n, d), used where base or effect is a function
    y: Array  # (n,)
    exposure: Array  # (n,)
    weight: Array  # (n,) >= 0

    def __iter__(self) -> Iterator[_Chunk]:
        """Yield a few thousand rows at a time."""
        for start in range(0, len(self.y), CHUNK_ROWS):
            at = slice(start, start + CHUNK_ROWS)
            base = self.base(self.X[at]) if callable(self.base) else self.base[at]
            effect = self.effect(self.X[at]) if callable(self.effect) else self.effect[at]
            yield _Chunk(base, effect, self.y[at], self.exposure[at], self.weight[at])


@dataclass(frozen=True, slots=True)
class BaseEffectFit:
    """A fit and how it was reached."""

    base: Array  # (p_b,) coefficients
    effect: Array  # (p_u,) coefficients
    objective: Array  # (n_iter + 1,) penalised mean loss, never rising
    converged: bool
    sigma: float = np.nan  # residual standard deviation, for laws that have one
    curvature: Array | None = None  # (p, p) of the loss near the solution, for a fit nearby

    @property
    def coef(self) -> Array:
        """Both coefficients in one array, to start another fit from."""
        return np.concatenate([self.base, self.effect])


@dataclass(frozen=True, slots=True)
class Scoring:
    """Fits by Fisher scoring; the loss of a row comes from ``terms``."""

    terms: OutcomeTerms
    max_iter: int = 100
    tol: float = 1e-8  # stop when a step is predicted to gain less, nats or squared outcome units

    def fit(
        self, rows: BaseEffectRows, penalty: Array, start: Array | BaseEffectFit, *, p_base: int
    ) -> BaseEffectFit:
        r"""Minimise the mean loss plus a ridge over the coefficients of base and effect.

        .. math::

            \frac{\sum_i r_i \, \ell_i(\beta, \delta)}{\sum_i r_i}
            + \tfrac12 \sum_j \lambda_j (\beta, \delta)_j^2

        Parameters
        ----------
        rows : BaseEffectRows
            Outcome rows and basis values.
        penalty : array of shape (p_b + p_u,)
            :math:`\lambda_j`, 0 or more.
        start : array of shape (p_b + p_u,) or BaseEffectFit
            Where to start: zeros, or a fit of the same rows to a penalty nearby. Its curvature is
            used again, which saves most of the cost.
        p_base : int
            How many of the coefficients belong to the base.

        Returns
        -------
        BaseEffectFit
            Its objective never rises from step to step: steps are halved until it falls.

        Notes
        -----
        A curvature costs O(n p^2 + p^3), a step O(n p + p^2), and one more pass of O(n p) for
        each trial of its length. Steps share a curvature as long as they make good progress.
        """
        coef = start.coef if isinstance(start, BaseEffectFit) else start.astype(np.float64)
        curvature = start.curvature if isinstance(start, BaseEffectFit) else None
        value = _objective(rows, self.terms, penalty, coef, p_base)
        path, converged, last = [value], False, np.inf
        factor = None
        for _ in range(self.max_iter):
            fresh = curvature is None
            if curvature is None:
                curvature, factor = _curvature(rows, self.terms, coef, p_base), None
            if factor is None:
                factor = _factor(curvature, penalty)
            gradient = _gradient(rows, self.terms, penalty, coef, p_base)
            step = np.asarray(-cho_solve(factor, gradient))
            predicted = float(-gradient @ step)
            if predicted < self.tol:
                converged = True
                break
            if not fresh and predicted > LEFT * last:
                curvature, last = None, np.inf
                continue
            length, trial = self._shorten(rows, penalty, coef, step, value, predicted, p_base)
            if length == 0.0 and not fresh:
                curvature = None
                continue
            if length == 0.0:  # rounding hides any further gain
                converged = predicted < np.sqrt(self.tol)
                break
            coef, value = coef + length * step, trial
            last = predicted if length == 1.0 else 0.0
            path.append(value)
        return BaseEffectFit(
            coef[:p_base], coef[p_base:], np.array(path), converged, curvature=curvature
        )

    def _shorten(
        self,
        rows: BaseEffectRows,
        penalty: Array,
        coef: Array,
        step: Array,
        value: float,
        predicted: float,
        p_base: int,
    ) -> tuple[float, float]:
        """Halve the step until it brings a fair share of what was predicted; 0 if none does."""
        length = 1.0
        while length > SHORTEST:
            trial = _objective(rows, self.terms, penalty, coef + length * step, p_base)
            if trial <= value - SUFFICIENT * length * predicted:
                return length, trial
            length *= 0.5
        return 0.0, value

    def losses(self, rows: BaseEffectRows, fit: BaseEffectFit) -> Array:
        """Return the loss of each row under a fit, without the penalty."""
        parts = [
            self.terms(c.y, c.exposure, c.base @ fit.base, c.effect @ fit.effect).loss for c in rows
        ]
        return np.concatenate(parts)


def _objective(
    rows: BaseEffectRows, terms: OutcomeTerms, penalty: Array, coef: Array, p_base: int
) -> float:
    total = 0.0
    for c in rows:
        base, effect = c.base @ coef[:p_base], c.effect @ coef[p_base:]
        total += float(c.weight @ terms(c.y, c.exposure, base, effect).loss)
    return total / float(rows.weight.sum()) + 0.5 * float(penalty @ coef**2)


def _gradient(
    rows: BaseEffectRows, terms: OutcomeTerms, penalty: Array, coef: Array, p_base: int
) -> Array:
    """Return the gradient of the penalised objective."""
    gradient = np.zeros(len(coef))
    total = float(rows.weight.sum())
    for c in rows:
        at = terms(c.y, c.exposure, c.base @ coef[:p_base], c.effect @ coef[p_base:])
        pull = c.weight / total * at.residual
        gradient[:p_base] += (pull * at.base_factor) @ c.base
        gradient[p_base:] += (pull * at.effect_factor) @ c.effect
    return gradient + penalty * coef


def _curvature(rows: BaseEffectRows, terms: OutcomeTerms, coef: Array, p_base: int) -> Array:
    """Return the curvature of the loss, without the penalty."""
    p = len(coef)
    curvature = np.zeros((p, p))
    total = float(rows.weight.sum())
    for c in rows:
        at = terms(c.y, c.exposure, c.base @ coef[:p_base], c.effect @ coef[p_base:])
        root = np.sqrt(c.weight / total)
        scaled = np.empty((len(c.y), p))
        np.multiply(c.base, (root * at.base_factor)[:, None], out=scaled[:, :p_base])
        np.multiply(c.effect, (root * at.effect_factor)[:, None], out=scaled[:, p_base:])
        curvature += scaled.T @ scaled
    return curvature


def _factor(curvature: Array, penalty: Array) -> tuple[Array, bool]:
    """Return what `cho_solve` takes a Newton step with."""
    penalised = curvature.copy()
    penalised[np.diag_indices(len(penalty))] += penalty + TINY
    factor, lower = cho_factor(penalised, lower=True, overwrite_a=True)
    return factor, bool(lower)
