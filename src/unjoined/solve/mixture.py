"""Penalised fits of a base and an effect, by Fisher scoring or for normal outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit

from unjoined._typing import Array

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


LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)


# A component that closes in on a single row would have infinite likelihood: the spread stays
# above this share of the outcome's.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class GaussianMixture:
    r"""Fits of :math:`e\,N(b + u/2, \sigma^2) + (1 - e)\,N(b - u/2, \sigma^2)` by EM.

    The exposure is the probability e of having been treated. Given the chance that a row was
    treated, base and effect are one ridge regression and sigma a mean square, each of which
    raises the penalised likelihood: it never falls.
    """

    max_iter: int = 500
    tol: float = 1e-8  # stop when a round gains less, nats per row

    def fit(
        self, rows: BaseEffectRows, penalty: Array, start: Array | BaseEffectFit, *, p_base: int
    ) -> BaseEffectFit:
        """Minimise minus the mean log-likelihood plus a ridge; see `Scoring.fit`.

        A round costs O(n p^2 + p^3).
        """
        coef = start.coef if isinstance(start, BaseEffectFit) else start.astype(np.float64)
        total = float(rows.weight.sum())
        centre = float(rows.weight @ rows.y) / total
        least = LEAST_SPREAD * np.sqrt(float(rows.weight @ (rows.y - centre) ** 2) / total)
        sigma = max(self._spread(rows, coef, p_base), least)
        value = self._objective(rows, penalty, coef, sigma, p_base)
        path, converged = [value], False
        for _ in range(self.max_iter):
            new_coef, new_sigma = self._round(rows, penalty, coef, sigma, p_base, least)
            trial = self._objective(rows, penalty, new_coef, new_sigma, p_base)
            if value - trial < self.tol:
                converged = True
                break
            coef, sigma, value = new_coef, new_sigma, trial
            path.append(value)
        return BaseEffectFit(coef[:p_base], coef[p_base:], np.array(path), converged, sigma)

    def losses(self, rows: BaseEffectRows, fit: BaseEffectFit) -> Array:
        """Return minus the log-likelihood of each row under a fit."""
        parts = []
        for c in rows:
            base, effect = c.base @ fit.base, c.effect @ fit.effect
            parts.append(-_log_density(c.y, c.exposure, base, effect, fit.sigma))
        return np.concatenate(parts)

    def _round(
        self,
        rows: BaseEffectRows,
        penalty: Array,
        coef: Array,
        sigma: float,
        p_base: int,
        least: float,
    ) -> tuple[Array, float]:
        """One E-step, then base and effect given sigma, then sigma given them."""
        p, total = len(coef), float(rows.weight.sum())
        gram, right = np.zeros((p, p)), np.zeros(p)
        for c in rows:
            chance = _treated_chance(c.y, c.exposure, c.base, c.effect, coef, sigma, p_base)
            # Two rows for each, treated and untreated, would have these sums of products.
            lean = chance - 0.5
            weighted = c.weight[:, None] * c.base
            gram[:p_base, :p_base] += weighted.T @ c.base
            gram[:p_base, p_base:] += (weighted * lean[:, None]).T @ c.effect
            gram[p_base:, p_base:] += 0.25 * (c.effect * c.weight[:, None]).T @ c.effect
            right[:p_base] += weighted.T @ c.y
            right[p_base:] += c.effect.T @ (c.weight * lean * c.y)
        gram[p_base:, :p_base] = gram[:p_base, p_base:].T
        gram /= total
        # In squared outcome units: divided by sigma^2, products of a spread near 0 would drown
        # the ridges in rounding.
        gram[np.diag_indices(p)] += sigma**2 * penalty + TINY
        new = cho_solve(cho_factor(gram, lower=True), right / total)
        squares = 0.0
        for c in rows:
            chance = _treated_chance(c.y, c.exposure, c.base, c.effect, coef, sigma, p_base)
            base, half = c.base @ new[:p_base], 0.5 * (c.effect @ new[p_base:])
            error = chance * (c.y - base - half) ** 2 + (1.0 - chance) * (c.y - base + half) ** 2
            squares += float(c.weight @ error)
        return new, max(np.sqrt(squares / total), least)

    @staticmethod
    def _spread(rows: BaseEffectRows, coef: Array, p_base: int) -> float:
        squares = sum(float(c.weight @ (c.y - c.base @ coef[:p_base]) ** 2) for c in rows)
        return float(np.sqrt(squares / float(rows.weight.sum())))

    def _objective(
        self, rows: BaseEffectRows, penalty: Array, coef: Array, sigma: float, p_base: int
    ) -> float:
        total = 0.0
        for c in rows:
            base, effect = c.base @ coef[:p_base], c.effect @ coef[p_base:]
            total -= float(c.weight @ _log_density(c.y, c.exposure, base, effect, sigma))
        return total / float(rows.weight.sum()) + 0.5 * float(penalty @ coef**2)


def _log_density(y: Array, exposure: Array, base: Array, effect: Array, sigma: float) -> Array:
    with np.errstate(divide="ignore"):  # a row surely treated or untreated: log 0 is -inf, rightly
        treated = np.log(exposure) - 0.5 * ((y - base - 0.5 * effect) / sigma) ** 2
        untreated = np.log1p(-exposure) - 0.5 * ((y - base + 0.5 * effect) / sigma) ** 2
    return np.asarray(np.logaddexp(treated, untreated) - np.log(sigma) - LOG_ROOT_2PI)


def _treated_chance(
    y: Array,
    exposure: Array,
    base_values: Array,
    effect_values: Array,
    coef: Array,
    sigma: float,
    p_base: int,
) -> Array:
    """Return the probability that each row was treated, given its outcome."""
    base, effect = base_values @ coef[:p_base], effect_values @ coef[p_base:]
    with np.errstate(divide="ignore"):
        odds = np.log(exposure) - np.log1p(-exposure)
    # (y - b - u/2)^2 - (y - b + u/2)^2 = -2 u (y - b)
    return np.asarray(np.exp(log_expit(odds + effect * (y - base) / sigma**2)))


# Probabilities are kept this far from 0 and 1: a row that was thought impossible costs a fixed,
# large amount instead of infinity.
FLOOR = 1e-9


class RowTerms(NamedTuple):
    """Losses and what their quadratic approximation needs, one entry per row.

    With base b and effect u at a row, the gradient of its loss is ``residual * base_factor`` in b
    and ``residual * effect_factor`` in u, and the curvature used is the outer product of the
    two factors.
    """

    loss: Array
    residual: Array
    base_factor: Array
    effect_factor: Array


class OutcomeTerms(Protocol):
    """The law of an outcome given base, effect and the row's exposure."""

    def __call__(self, y: Array, exposure: Array, base: Array, effect: Array) -> RowTerms:
        """Return the terms of rows with base b(x) and effect u(x)."""
        ...


@dataclass(frozen=True, slots=True)
class BernoulliTerms:
    r"""Outcomes 0/1: :math:`e\,\sigma(b + u/2) + (1 - e)\,\sigma(b - u/2)` is the chance of a 1.

    The exposure is the probability e of having been treated. The loss is minus the
    log-likelihood, the curvature Fisher's expected information, which is never negative although
    the loss is not convex.
    """

    def __call__(self, y: Array, exposure: Array, base: Array, effect: Array) -> RowTerms:
        """Return the terms of rows with base b(x) and effect u(x), both log-odds."""
        treated = expit(base + 0.5 * effect)
        untreated = expit(base - 0.5 * effect)
        mean = np.clip(exposure * treated + (1.0 - exposure) * untreated, FLOOR, 1.0 - FLOOR)
        slope_1 = exposure * treated * (1.0 - treated)
        slope_0 = (1.0 - exposure) * untreated * (1.0 - untreated)
        spread = np.sqrt(mean * (1.0 - mean))
        return RowTerms(
            loss=-np.where(y == 1.0, np.log(mean), np.log1p(-mean)),
            residual=(mean - y) / spread,
            base_factor=(slope_1 + slope_0) / spread,
            effect_factor=0.5 * (slope_1 - slope_0) / spread,
        )


@dataclass(frozen=True, slots=True)
class MeanTerms:
    r"""Real outcomes: half the squared distance of y from :math:`b + c\,u`.

    The exposure is the contrast :math:`c = e_k(x) - \bar e(x)` of the row's policy with the mean
    policy. Nothing is assumed of the outcome's distribution. Beyond a finite ``threshold`` the
    loss grows linearly (Huber), so that a few gross values do not decide the fit.
    """

    threshold: float = np.inf

    def __call__(self, y: Array, exposure: Array, base: Array, effect: Array) -> RowTerms:
        """Return the terms of rows with base b(x) and effect u(x), both outcome units."""
        error = y - base - exposure * effect
        if not np.isfinite(self.threshold):
            return RowTerms(0.5 * error**2, -error, np.ones_like(error), exposure)
        size = np.abs(error)
        far = size > self.threshold
        loss = np.where(far, self.threshold * (size - 0.5 * self.threshold), 0.5 * error**2)
        # Weights below 1 for far rows: the quadratic with them lies above the loss everywhere,
        # so that each step lowers it.
        root = np.sqrt(self.threshold / np.where(far, size, self.threshold))
        return RowTerms(loss, -error * root, root, exposure * root)
