"""Laws of an outcome given base, effect and the chance of treatment, and sums of their terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

import numpy as np
from scipy.special import expit, log_expit, logit, xlogy

from unjoined._typing import Array
from unjoined.data.fold import Additive
from unjoined.model.basis import weighted_quantile

FLOOR = 1e-9  # probabilities stay this far from 0 and 1
THRESHOLDS = (6.0, 3.0, 1.5)  # of robust standard deviations
LOPSIDED = 0.3  # tails that differ by more than this share are not symmetric noise
BY_SIZE, BY_NUMBER = 2.0, 1.5  # standard errors that they must differ by
WORTHWHILE = 0.9  # share of the variance that a threshold must bring it below
LEAST_INSIDE = (
    0.5  # share of the rows that no threshold may cut: two heaps have no tails
)
FARTHEST = 30.0  # logarithm of a mean, on either side of that of all outcomes


class RowTerms(NamedTuple):
    """Loss of each row, its slopes by base and effect, and the curvature that steps use."""

    loss: Array
    by_base: Array
    by_effect: Array
    base_base: Array
    base_effect: Array
    effect_effect: Array
    square: Array  # squared residuals, for the variance of the noise
    counted: Array  # 1, or 0 where the residual was cut
    rest: Array | None = (
        None  # what effect_effect has beyond base_effect^2 / base_base, if any
    )


class Family(Protocol):
    """The law of an outcome given base, effect and the row's exposure."""

    def __call__(
        self, y: Array, exposure: Array, base: Array, effect: Array
    ) -> RowTerms:
        """Return the terms of each row."""
        ...

    def intercept(self, mean: float) -> float:
        """Return the base of outcomes with this mean and no effect."""
        ...

    def arms(
        self, base: Array, effect: Array, propensity: Array
    ) -> tuple[Array, Array]:
        """Return the mean with and without treatment, ``chance`` being the mean policy."""
        ...

    def uplift(self, base: Array, effect: Array) -> Array:
        """Return the mean with treatment less that without."""
        ...

    def slopes(self, base: Array, effect: Array) -> tuple[Array, Array]:
        """Return the derivatives of the uplift by base and effect."""
        ...

    def renewed(self, sums: Sums, freedom: float) -> tuple[Self, Sums | None]:
        """Return the law with the noise that these sums show, and the sums under it if known.

        ``freedom`` is how many coefficients the rows have determined.
        """
        ...


@dataclass(frozen=True, slots=True)
class BernoulliFamily:
    """Outcomes 0/1, with log-odds b + (1 - a) u if treated and b - a u if not.

    The exposure is the probability of treatment e; the chance of a 1 mixes both by it.
    """

    split: float  # a, the mean policy

    def __call__(
        self, y: Array, exposure: Array, base: Array, effect: Array
    ) -> RowTerms:
        """Return minus the log-likelihood, with Fisher's information for its curvature."""
        a = self.split
        treated = expit(base + (1.0 - a) * effect)
        untreated = expit(base - a * effect)
        mean = np.clip(
            exposure * treated + (1.0 - exposure) * untreated, FLOOR, 1.0 - FLOOR
        )
        up = exposure * treated * (1.0 - treated)
        down = (1.0 - exposure) * untreated * (1.0 - untreated)
        by_base = up + down
        by_effect = (1.0 - a) * up - a * down
        weight = 1.0 / (mean * (1.0 - mean))
        pull = (mean - y) * weight
        one = np.ones_like(mean)
        return RowTerms(
            -np.where(y > 0.5, np.log(mean), np.log1p(-mean)),
            pull * by_base,
            pull * by_effect,
            weight * by_base**2,
            weight * by_base * by_effect,
            weight * by_effect**2,
            one,
            one,
        )

    def intercept(self, mean: float) -> float:
        """Return the log-odds."""
        return float(logit(np.clip(mean, 1e-6, 1.0 - 1e-6)))

    def arms(
        self, base: Array, effect: Array, propensity: Array
    ) -> tuple[Array, Array]:
        """Return the chance of a 1 with and without treatment."""
        return expit(base + (1.0 - self.split) * effect), expit(
            base - self.split * effect
        )

    def uplift(self, base: Array, effect: Array) -> Array:
        """Return the difference of the two chances."""
        treated, untreated = self.arms(base, effect, base)
        return treated - untreated

    def slopes(self, base: Array, effect: Array) -> tuple[Array, Array]:
        """Return the derivatives of the difference of the two chances."""
        up, down = (arm * (1.0 - arm) for arm in self.arms(base, effect, base))
        return up - down, (1.0 - self.split) * up + self.split * down

    def renewed(self, sums: Sums, freedom: float) -> tuple[BernoulliFamily, Sums]:
        """Return itself: the noise follows from the mean."""
        return self, sums


@dataclass(frozen=True, slots=True)
class PoissonFamily:
    """Amounts of mean exp(b + (1 - a) u) if treated and exp(b - a u) if not, mixed by the exposure.

    The quasi-likelihood of a variance that is a multiple of the mean, such as that of counts.
    """

    split: float  # a, the mean policy
    variance: float = 1.0  # over the mean

    def __call__(
        self, y: Array, exposure: Array, base: Array, effect: Array
    ) -> RowTerms:
        """Return half the deviance over its scale, with Fisher's information for its curvature."""
        treated, untreated = self.arms(base, effect, base)
        up, down = exposure * treated, (1.0 - exposure) * untreated
        mean = up + down
        by_effect = (1.0 - self.split) * up - self.split * down
        weight = 1.0 / (self.variance * mean)
        pull = (mean - y) * weight
        return RowTerms(
            (mean - y + xlogy(y, y) - xlogy(y, mean)) / self.variance,
            pull * mean,
            pull * by_effect,
            weight * mean**2,
            weight * mean * by_effect,
            weight * by_effect**2,
            (y - mean) ** 2 / mean,
            np.ones_like(mean),
        )

    def intercept(self, mean: float) -> float:
        """Return the logarithm of the mean."""
        return float(np.log(max(mean, FLOOR)))

    def arms(
        self, base: Array, effect: Array, propensity: Array
    ) -> tuple[Array, Array]:
        """Return the mean with and without treatment."""
        up = base + (1.0 - self.split) * effect
        down = base - self.split * effect
        return (
            np.exp(np.clip(up, -FARTHEST, FARTHEST)),
            np.exp(np.clip(down, -FARTHEST, FARTHEST)),
        )

    def uplift(self, base: Array, effect: Array) -> Array:
        """Return the difference of the two means."""
        treated, untreated = self.arms(base, effect, base)
        return treated - untreated

    def slopes(self, base: Array, effect: Array) -> tuple[Array, Array]:
        """Return the derivatives of the difference of the two means."""
        up, down = self.arms(base, effect, base)
        return up - down, (1.0 - self.split) * up + self.split * down

    def renewed(self, sums: Sums, freedom: float) -> tuple[PoissonFamily, Sums]:
        """Return the law with the scale that the residuals have, and the sums in units of it."""
        variance = sums.variance(freedom)
        return replace(self, variance=variance), sums.times(self.variance / variance)


@dataclass(frozen=True, slots=True)
class MeanFamily:
    """Real outcomes with mean b + c u, the exposure c being the policy less the mean policy.

    Half the squared error over the variance of the noise; beyond ``threshold`` it grows linearly.
    """

    threshold: float = np.inf
    variance: float = 1.0

    def __call__(
        self, y: Array, exposure: Array, base: Array, effect: Array
    ) -> RowTerms:
        """Return the loss, and the quadratic above it that touches it."""
        error = base + exposure * effect - y
        size = np.abs(error)
        near = size <= self.threshold
        loss = 0.5 * error**2
        weight = np.full_like(error, 1.0 / self.variance)
        if not near.all():
            loss = np.where(near, loss, self.threshold * (size - 0.5 * self.threshold))
            weight = np.where(
                near,
                weight,
                self.threshold / (np.maximum(size, 1e-300) * self.variance),
            )
        return RowTerms(
            loss / self.variance,
            weight * error,
            weight * error * exposure,
            weight,
            weight * exposure,
            weight * exposure**2,
            np.minimum(size, self.threshold) ** 2,
            near.astype(np.float64),
        )

    def intercept(self, mean: float) -> float:
        """Return the mean."""
        return mean

    def arms(
        self, base: Array, effect: Array, propensity: Array
    ) -> tuple[Array, Array]:
        """Return both means: the base is that of the mean policy."""
        return base + (1.0 - propensity) * effect, base - propensity * effect

    def uplift(self, base: Array, effect: Array) -> Array:
        """Return the effect."""
        return effect

    def slopes(self, base: Array, effect: Array) -> tuple[Array, Array]:
        """Return 0 and 1: the uplift is the effect."""
        return np.zeros_like(base), np.ones_like(effect)

    def renewed(self, sums: Sums, freedom: float) -> tuple[MeanFamily, Sums]:
        """Return the law with the variance of the residuals, and the sums in units of it."""
        variance = sums.variance(freedom)
        return replace(self, variance=variance), sums.times(self.variance / variance)


@dataclass(frozen=True, slots=True)
class GaussianFamily:
    """Normal outcomes around b + (1 - a) u if treated and b - a u if not, mixed by the exposure."""

    split: float
    variance: float = 1.0

    def __call__(
        self, y: Array, exposure: Array, base: Array, effect: Array
    ) -> RowTerms:
        """Return minus the log-likelihood, and EM's quadratic above it."""
        a, s2 = self.split, self.variance
        up = y - base - (1.0 - a) * effect
        down = y - base + a * effect
        with np.errstate(
            divide="ignore"
        ):  # a row surely treated or not: log 0 is -inf, rightly
            log_up = np.log(exposure) - 0.5 * up**2 / s2
            log_down = np.log1p(-exposure) - 0.5 * down**2 / s2
        propensity = np.exp(log_expit(log_up - log_down))
        square = propensity * up**2 + (1.0 - propensity) * down**2
        one = np.full_like(y, 1.0 / s2)
        return RowTerms(
            0.5 * np.log(2.0 * np.pi * s2) - np.logaddexp(log_up, log_down),
            -(propensity * up + (1.0 - propensity) * down) / s2,
            -((1.0 - a) * propensity * up - a * (1.0 - propensity) * down) / s2,
            one,
            (propensity - a) / s2,
            (propensity * (1.0 - a) ** 2 + (1.0 - propensity) * a**2) / s2,
            square,
            np.ones_like(y),
            propensity * (1.0 - propensity) / s2,
        )

    def intercept(self, mean: float) -> float:
        """Return the mean."""
        return mean

    def arms(
        self, base: Array, effect: Array, propensity: Array
    ) -> tuple[Array, Array]:
        """Return both means."""
        return base + (1.0 - self.split) * effect, base - self.split * effect

    def uplift(self, base: Array, effect: Array) -> Array:
        """Return the effect."""
        return effect

    def slopes(self, base: Array, effect: Array) -> tuple[Array, Array]:
        """Return 0 and 1: the uplift is the effect."""
        return np.zeros_like(base), np.ones_like(effect)

    def renewed(self, sums: Sums, freedom: float) -> tuple[GaussianFamily, None]:
        """Return the law with the variance of the residuals; the sums need another pass."""
        return replace(self, variance=sums.variance(freedom)), None


def with_noise(family: Family, variance: float) -> Family:
    """Return a law at a variance that all forms share, if its loss is no density."""
    if isinstance(family, MeanFamily | PoissonFamily):
        return replace(family, variance=variance)
    return family


@dataclass(frozen=True, slots=True)
class Sums(Additive):
    """What one pass over the rows adds up."""

    loss: float
    gradient: Array  # (p,)
    curvature: Array  # (p, p), its lower triangle
    square: float
    counted: float

    @classmethod
    def zero(cls, p: int) -> Sums:
        """Return the sums of no rows."""
        return cls(0.0, np.zeros(p), np.zeros((p, p)), 0.0, 0.0)

    def times(self, factor: float) -> Sums:
        """Return the sums of a loss that is ``factor`` times this one."""
        return replace(
            self,
            loss=factor * self.loss,
            gradient=factor * self.gradient,
            curvature=factor * self.curvature,
        )

    def variance(self, freedom: float) -> float:
        """Return that of the noise: squared residuals over the rows that the fit leaves free.

        Cut residuals count by their slope. With as many functions as rows, the mean square of the
        residuals would go to 0, and the fit with it to one that follows every row.
        """
        return max(self.square / max(self.counted - freedom, 1.0), 1e-12)


def robust_deviation(values: Array, weight: Array) -> float:
    """Return the standard deviation that normal values with this median distance would have."""
    median = weighted_quantile(values, weight, (0.5,))[0]
    return float(weighted_quantile(np.abs(values - median), weight, (0.5,))[0]) / 0.6745


def choose_threshold(
    residual: Array, weight: Array, direction: Array | None = None
) -> float:
    """Return where the squared loss of a real outcome should turn linear; usually nowhere.

    Gross values on both sides make a mean very noisy; bounding their pull then lowers the variance
    of the fit, to E[psi^2] / E[psi']^2 for the bounded residual psi. That is done if both tails
    are alike: with a long tail on one side (sums of money), bounding would change what is
    estimated. Tails must also be alike along ``direction``, the fitted part of the effect: where
    treatment makes the outcome and little else, residuals lean against it in every population.
    In the units of the residual; infinity for the squared loss itself.
    """
    spread = robust_deviation(residual, weight)
    best = float(np.average(residual**2, weights=weight))
    chosen = np.inf
    ways = [np.ones_like(residual)] + (
        [] if direction is None else [np.sign(direction)]
    )
    for factor in THRESHOLDS:
        threshold = factor * spread
        beyond = residual - np.clip(residual, -threshold, threshold)
        tails = ((weight * beyond, BY_SIZE), (weight * np.sign(beyond), BY_NUMBER))
        inside = float(np.average(np.abs(residual) < threshold, weights=weight))
        if inside <= LEAST_INSIDE or any(
            _lopsided(way * tail, z) for way in ways for tail, z in tails
        ):
            break
        bounded = np.clip(residual, -threshold, threshold)
        variance = float(np.average(bounded**2, weights=weight)) / inside**2
        if variance < WORTHWHILE * best:
            best, chosen = variance, threshold
    return chosen


def _lopsided(tail: Array, propensity: float) -> bool:
    """Whether the two sides of a tail differ by more than a share of it, and more than by chance.

    The sum of a heavy tail is often that of its largest value, whose side is chance.
    """
    apart = abs(float(tail.sum()))
    error = float(np.sqrt(np.sum(tail**2)))
    return apart > LOPSIDED * float(np.abs(tail).sum()) and apart > propensity * error
