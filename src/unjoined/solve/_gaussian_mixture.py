"""Penalised fits of a base and an effect when outcomes are normal around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_expit

from unjoined._typing import Array
from unjoined.solve._scoring import TINY, BaseEffectFit, BaseEffectRows

__all__ = ["GaussianMixture"]

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
