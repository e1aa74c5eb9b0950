"""What one outcome row adds to the objective of a base and an effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit

from unjoined._typing import Array

__all__ = ["BernoulliTerms", "MeanTerms", "OutcomeTerms", "RowTerms"]

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
