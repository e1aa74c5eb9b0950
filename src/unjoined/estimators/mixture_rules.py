"""In which order settings of the mixture are tried, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, Basis
from unjoined.basis import KernelBasis, StackedBasis, weighted_quantile
from unjoined.estimators.mixture_search import (
    EFFECT_RIDGES,
    EFFECT_SMOOTH_RIDGES,
    LINEAR,
    LINEAR_RIDGES,
    SMOOTH_RIDGES,
    MixtureSearch,
    Setting,
    effective_rows,
)

NO_EFFECT, CONSTANT = 0, 1  # places among the effect's functions, before the linear ones


START = Setting(0, LINEAR, 1e-4, 0.0, 1e-2, 0.0)


POLISH_ROUNDS = 4  # at most: a ridge may still move by a factor of 81


MOST_MEMBERS = 10  # settings that are averaged, at most


LEAST_WEIGHT = 0.1  # of the best one's weight


THRESHOLDS = (6.0, 3.0, 1.5)  # of robust standard deviations


LOPSIDED = 0.3  # tails that differ by more than this share are no symmetric noise


WORTHWHILE = 0.9  # share of the variance that a threshold must bring it below


@dataclass(frozen=True, slots=True)
class Walk:
    """The order in which ridges are chosen; a ridge that is given is not searched."""

    ridge_base: float | None
    ridge_effect: float | None

    @classmethod
    def of(cls, ridge_base: float | str, ridge_effect: float | str) -> Walk:
        """Return the walk for ridges that are numbers, or a word if they are to be chosen."""
        ridges = (None if isinstance(r, str) else float(r) for r in (ridge_base, ridge_effect))
        return cls(*ridges)

    def begin(self) -> Setting:
        """Return where the walk starts: linear base, linear effect."""
        base = START.base_linear if self.ridge_base is None else self.ridge_base
        effect = START.effect_linear if self.ridge_effect is None else self.ridge_effect
        return START.but(base_linear=base, effect_linear=effect)

    def base(self, search: MixtureSearch, best: Setting) -> Setting:
        """Choose the base with a linear effect, then the linear effect's ridge."""
        best = search.sweep(best, "base_linear", self._base(LINEAR_RIDGES))
        best = search.sweep(best, "effect_linear", self._effect(EFFECT_RIDGES))
        return self._widths(search, best, "base_smooth", "base", 0, self._base(SMOOTH_RIDGES))

    def effect(self, search: MixtureSearch, best: Setting) -> Setting:
        """Choose the effect's functions, then go over the ridges once more."""
        best = self._widths(
            search, best, "effect_smooth", "effect", LINEAR, self._effect(EFFECT_SMOOTH_RIDGES)
        )
        best = search.sweep(best, "effect_linear", self._effect(EFFECT_RIDGES))
        best = search.sweep(best, "base_linear", self._base(LINEAR_RIDGES))
        best = self._polish(search, best)
        for simple in (CONSTANT, NO_EFFECT):  # what heterogeneity has to beat
            trial = best.but(effect=simple, effect_smooth=0.0)
            best = trial if search.nats(trial) < search.nats(best) else best
        return best

    def _polish(self, search: MixtureSearch, best: Setting) -> Setting:
        """Go on with steps of three, up or down, until no ridge gains; edges of paths are none."""
        ridges = []
        if self.ridge_base is None and best.base > 0:
            ridges.append("base_smooth")
        if self.ridge_effect is None:
            ridges += ["effect_smooth"] * (best.effect > LINEAR) + ["effect_linear"]
        for _ in range(POLISH_ROUNDS):
            before = best
            for name in ridges:
                here = float(getattr(best, name))
                best = search.sweep(best, name, (3.0 * here, here / 3.0))
            if best == before:
                break
        return best

    def _widths(
        self,
        search: MixtureSearch,
        best: Setting,
        ridge: str,
        part: str,
        first: int,
        ridges: tuple[float, ...],
    ) -> Setting:
        """Try smooth functions: the middle width on the whole path, others near its best ridge.

        Functions that are no kernel have ridges of their own and get the whole path.
        """
        widths = [j for j, basis in enumerate(search.bases) if _is_kernel(basis)]
        middle = (widths[0] + widths[-1]) / 2.0 if widths else 0.0
        linear, near = best, ridges
        for j in sorted(widths, key=lambda j: abs(j - middle)):
            here = {part: first + j}
            best = search.sweep(best, ridge, near, **here)
            tried = [linear.but(**here, **{ridge: r}) for r in near]
            means = [search.nats(t) if t in search.losses else np.inf for t in tried]
            k = int(np.argmin(means))
            near = near[max(k - 1, 0) : k + 2]
        for j in (j for j in range(1, len(search.bases)) if j not in widths):
            best = search.sweep(best, ridge, ridges, **{part: first + j})
        return best

    def _base(self, ridges: tuple[float, ...]) -> tuple[float, ...]:
        return ridges if self.ridge_base is None else (self.ridge_base,)

    def _effect(self, ridges: tuple[float, ...]) -> tuple[float, ...]:
        return ridges if self.ridge_effect is None else (self.ridge_effect,)


def _is_kernel(basis: Basis) -> bool:
    return isinstance(basis, StackedBasis) and isinstance(basis.second, KernelBasis)


def choose_threshold(residual: Array, weight: Array) -> float:
    """Return where the squared loss of a real outcome should turn linear; usually nowhere.

    Gross values on both sides make a mean very noisy; bounding their pull then lowers the variance
    of the fit, to E[psi^2] / E[psi']^2 for the bounded residual psi. That is done if both tails
    are alike: with a long tail on one side (sums of money), bounding would change what is
    estimated. In the units of the residual; infinity for the squared loss itself.
    """
    median = weighted_quantile(residual, weight, (0.5,))[0]
    spread = float(weighted_quantile(np.abs(residual - median), weight, (0.5,))[0]) / 0.6745
    best, chosen = float(np.average(residual**2, weights=weight)), np.inf
    for factor in THRESHOLDS:
        threshold = factor * spread
        upper = float(weight @ np.maximum(residual - threshold, 0.0))
        lower = float(weight @ np.maximum(-residual - threshold, 0.0))
        if spread == 0.0 or abs(upper - lower) > LOPSIDED * (upper + lower):
            break
        inside = float(np.average(np.abs(residual) < threshold, weights=weight))
        bounded = np.clip(residual, -threshold, threshold)
        variance = float(np.average(bounded**2, weights=weight)) / inside**2
        if variance < WORTHWHILE * best:
            best, chosen = variance, threshold
    return chosen


def weigh_settings(search: MixtureSearch, best: Setting, *, average: bool) -> dict[Setting, float]:
    """Return the settings to keep and their weights, which sum to one.

    Weights are held-out likelihoods relative to the best (pseudo-Bayesian averaging): settings
    that the rows cannot tell apart share, a clear winner stands alone.
    """
    if not average:
        return {best: 1.0}
    total = {setting: search.nats(setting) for setting in search.losses}
    lowest = min(total.values())
    likely = {s: float(np.exp(lowest - loss)) for s, loss in total.items()}
    kept = sorted((s for s in likely if likely[s] >= LEAST_WEIGHT), key=lambda s: -likely[s])
    kept = kept[:MOST_MEMBERS]
    norm = sum(likely[s] for s in kept)
    return {s: likely[s] / norm for s in kept}


@dataclass(frozen=True, slots=True)
class MixtureCandidates:
    """Every setting that was tried, best first, smooth functions having to earn their place."""

    settings: tuple[Setting, ...]
    loss: Array  # mean held-out loss: nats per row, or half squared units of the scaled outcome
    difference: Array  # to the first
    standard_error: Array  # of that difference, rows being independent
    weight: Array  # in the average; 0 for settings left out
    n_rows: float  # outcome rows that chose; with weights, rows of equal weight worth as much

    @classmethod
    def of_search(cls, search: MixtureSearch, weights: dict[Setting, float]) -> MixtureCandidates:
        """Tabulate a finished search."""
        order = sorted(search.losses, key=search.nats)
        loss = np.array([search.mean(s) for s in order])
        row_weight = search.rows.weight
        error = []
        for s in order:
            gap = search.losses[s] - search.losses[order[0]]
            gap = row_weight * (gap - np.average(gap, weights=row_weight))
            error.append(np.sqrt(float(gap @ gap)) / float(row_weight.sum()))
        return cls(
            tuple(order),
            loss,
            loss - loss[0],
            np.array(error),
            np.array([weights.get(s, 0.0) for s in order]),
            effective_rows(row_weight),
        )

    def gain_over(self, effect: int) -> tuple[float, float]:
        """Return by how much the best beats the best setting with that effect, and the error.

        ``effect`` is 0 for none and 1 for a constant; nats per row, or half squared units of the
        scaled outcome.
        """
        j = next(i for i, s in enumerate(self.settings) if s.effect == effect)
        return float(self.difference[j]), float(self.standard_error[j])
