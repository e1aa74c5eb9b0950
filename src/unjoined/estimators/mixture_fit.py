"""One fit of the mixture likelihood: from outcome rows and policies to a base and an effect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit
from threadpoolctl import threadpool_limits

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis
from unjoined._validation import OUTCOME
from unjoined.basis import LeadingBasis, Scaling, StackedBasis
from unjoined.data import LabelledRows
from unjoined.estimators.mixture_rules import (
    MixtureCandidates,
    Walk,
    choose_threshold,
    weigh_settings,
)
from unjoined.estimators.mixture_search import (
    Engine,
    MixtureSearch,
    OutcomeRows,
    Setting,
    penalty_of,
)
from unjoined.solve import (
    BaseEffectFit,
    BaseEffectRows,
    BernoulliTerms,
    GaussianMixture,
    MeanTerms,
    Scoring,
)

BERNOULLI, GAUSSIAN, MEAN = "bernoulli", "gaussian", "mean"


FAMILIES = (BERNOULLI, GAUSSIAN, MEAN)


# Choosing among settings takes this many rows, or a tenth if that is more, up to a limit; the
# settings chosen are fitted to all.
SEARCH_ROWS, MOST_SEARCH_ROWS = 8_000, 40_000


IN_MEMORY_ROWS = 50_000  # up to here basis values are kept, beyond they are computed in each pass


SEARCH_TOL = 1e-5  # nats per row: a tenth of a nat in all, settings differ by several


EM_SEARCH_TOL = 1e-5


FINAL_TOL = 1e-9


@dataclass(frozen=True, slots=True)
class Member:
    """One setting that has a say in the prediction."""

    weight: float
    setting: Setting
    base_basis: Basis
    effect_basis: Basis
    base: Array  # coefficients
    effect: Array
    sigma: float  # residual standard deviation of the scaled outcome; NaN for two values

    def values(self, Z: Array) -> tuple[Array, Array]:
        """Return base and effect at scaled rows."""
        return self.base_basis(Z) @ self.base, self.effect_basis(Z) @ self.effect


@dataclass(frozen=True, slots=True)
class MixtureFit:
    """The settings kept, all that were tried, and how the kept ones converged."""

    family: str
    members: tuple[Member, ...]
    candidates: MixtureCandidates
    threshold: float  # where the loss of a real outcome turns linear, scaled units; else infinity
    objective: Array  # penalised loss of the best setting, step by step; never rising
    converged: bool  # whether the best setting did
    n_unsettled: int  # of the settings kept, how many did not
    start: int  # which start won, for the best setting

    def means(self, Z: Array, mean_chance: Array) -> tuple[Array, Array]:
        """Return the mean outcome with and without treatment at scaled rows, fit's coding."""
        treated, untreated = np.zeros(len(Z)), np.zeros(len(Z))
        for member in self.members:
            base, effect = member.values(Z)
            if self.family == BERNOULLI:
                above, below = expit(base + 0.5 * effect), expit(base - 0.5 * effect)
            elif self.family == GAUSSIAN:
                above, below = base + 0.5 * effect, base - 0.5 * effect
            else:
                above, below = base + (1.0 - mean_chance) * effect, base - mean_chance * effect
            treated += member.weight * above
            untreated += member.weight * below
        return treated, untreated

    def log_likelihood(self, Z: Array, y: Array, exposure: Array) -> Array:
        """Return the log-likelihood of each outcome row under the averaged law, nats."""
        parts = []
        for member in self.members:
            base, effect = member.values(Z)
            fit = BaseEffectFit(np.ones(1), np.ones(1), np.empty(0), True, member.sigma)
            rows = BaseEffectRows(base[:, None], effect[:, None], Z, y, exposure, np.ones(len(y)))
            loss = _engine(self.family, 0.0).losses(rows, fit)
            if self.family == MEAN:
                loss = loss / member.sigma**2 + np.log(member.sigma) + 0.5 * np.log(2.0 * np.pi)
            parts.append(np.log(member.weight) - loss)
        return np.asarray(np.logaddexp.reduce(parts, axis=0))


def fit_mixture(
    rows: OutcomeRows,
    pool: tuple[Basis, ...],
    family: str,
    walk: Walk,
    *,
    average: bool,
    n_starts: int,
    n_jobs: int | None,
    rng: Rng,
) -> MixtureFit:
    """Choose settings by held-out likelihood, then fit those kept to all rows.

    Parameters
    ----------
    rows : OutcomeRows
        Outcomes 0/1 for the Bernoulli family, of mean 0 and variance 1 for the others; exposures
        are probabilities of treatment, or their contrasts for the mean family.
    pool : tuple of Basis
        A linear basis, and smooth ones that start with it.
    family : {"bernoulli", "gaussian", "mean"}
        The law of the outcome.
    walk : Walk
        Ridges that are given.
    average : bool
        Whether settings that do about as well are averaged.
    n_starts : int
        Starts of each final fit; the one with the lowest objective is kept.
    n_jobs : int or None
        Threads.
    rng : RandomState
        Source of randomness.
    """
    most = max(SEARCH_ROWS, min(len(rows.y) // 10, MOST_SEARCH_ROWS))
    sample = _sample(rows, most, rng)
    search, best, threshold = _search(sample, pool, family, walk, _intercept(rows, family), n_jobs)
    weights = weigh_settings(search, best, average=average)
    if len(rows.y) > IN_MEMORY_ROWS:
        weights = _one_of_each(weights)
    # Random starts for the best setting alone: the others only lend it their weight.
    starts = [_starts(s, search, n_starts if s == best else 1, rng) for s in weights]
    # Of many rows some find the minimum nearly, and its curvature, so that a few gradients of all
    # rows are enough to get there.
    stages = [_sample(rows, IN_MEMORY_ROWS, rng)]
    stages += [] if stages[0] is rows else [rows]
    fits = _finish(weights, starts, search, _engine(family, FINAL_TOL, threshold), stages)
    spread = np.nan
    if family == MEAN:
        error = search.residuals(best)
        spread = np.sqrt(np.average(error**2, weights=search.rows.weight))
    members = tuple(
        Member(
            weight,
            s,
            search.bases[s.base],
            search.effects[s.effect],
            fit.base,
            fit.effect,
            float(fit.sigma if family == GAUSSIAN else spread),
        )
        for (s, weight), (fit, _) in zip(weights.items(), fits, strict=True)
    )
    return MixtureFit(
        family,
        members,
        MixtureCandidates.of_search(search, weights),
        float(threshold),
        fits[0][0].objective,
        fits[0][0].converged,
        sum(not fit.converged for fit, _ in fits),
        fits[0][1],
    )


def _one_of_each(weights: dict[Setting, float]) -> dict[Setting, float]:
    """Return the heaviest setting of each pair of functions with the weight of all of them.

    They differ in their ridges, which hardly matter with very many rows.
    """
    kept: dict[tuple[int, int], tuple[Setting, float]] = {}
    for setting, weight in sorted(weights.items(), key=lambda item: -item[1]):
        first, total = kept.get((setting.base, setting.effect), (setting, 0.0))
        kept[setting.base, setting.effect] = first, total + weight
    return dict(kept.values())


def _intercept(rows: OutcomeRows, family: str) -> float:
    """Return where the base's constant starts: the log-odds of a 1, or the mean, which is 0."""
    if family != BERNOULLI:
        return 0.0
    share = np.clip(np.average(rows.y, weights=rows.weight), 1e-6, 1.0 - 1e-6)
    return float(np.log(share / (1.0 - share)))


def _search(
    sample: OutcomeRows,
    pool: tuple[Basis, ...],
    family: str,
    walk: Walk,
    intercept: float,
    n_jobs: int | None,
) -> tuple[MixtureSearch, Setting, float]:
    """Return the finished search, its best setting, and where the loss turns linear."""
    linear = pool[0]
    effects = (LeadingBasis(linear, 0), LeadingBasis(linear, 1), *pool)
    tol = EM_SEARCH_TOL if family == GAUSSIAN else SEARCH_TOL
    search = MixtureSearch(sample, pool, effects, _engine(family, tol), intercept, n_jobs)
    best = walk.base(search, walk.begin())
    threshold = np.inf
    if family == MEAN:
        threshold = choose_threshold(search.residuals(best), sample.weight)
        if np.isfinite(threshold):
            search = search.with_engine(_engine(family, tol, threshold))
    return search, walk.effect(search, best), threshold


def _finish(
    weights: dict[Setting, float],
    starts: list[list[Array]],
    search: MixtureSearch,
    engine: Engine,
    stages: list[OutcomeRows],
) -> list[tuple[BaseEffectFit, int]]:
    """Fit the settings kept to all rows; each with the number of the start that won."""
    shrink = len(search.rows.y) / len(stages[-1].y)

    def finish(task: tuple[Setting, list[Array]]) -> tuple[BaseEffectFit, int]:
        return _fit_all(task[0].shrink(shrink), search, engine, stages, task[1])

    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(n_threads(search.n_jobs)) as threads,
    ):
        return list(threads.map(finish, zip(weights, starts, strict=True)))


def _engine(family: str, tol: float, threshold: float = np.inf) -> Any:
    if family == BERNOULLI:
        return Scoring(BernoulliTerms(), tol=tol)
    if family == MEAN:
        return Scoring(MeanTerms(threshold), tol=tol)
    return GaussianMixture(tol=tol)


def _sample(rows: OutcomeRows, most: int, rng: Rng) -> OutcomeRows:
    """Return all rows, or some if there are more."""
    n = len(rows.y)
    if n <= most:
        return rows
    at = np.sort(rng.permutation(n)[:most])
    return OutcomeRows(rows.Z[at], rows.y[at], rows.exposure[at], rows.weight[at], rows.fold[at])


def _starts(setting: Setting, search: MixtureSearch, n_starts: int, rng: Rng) -> list[Array]:
    """Return where the final fits of a setting begin: at a fold's fit, then at random effects."""
    p_base, p_effect = search.bases[setting.base].size, search.effects[setting.effect].size
    starts = [search.fits[setting.base, setting.effect, 0].coef]
    for _ in range(n_starts - 1):
        start = np.zeros(p_base + p_effect)
        start[0] = search.intercept
        start[p_base:] = rng.standard_normal(p_effect) / np.sqrt(max(p_effect, 1))
        starts.append(start)
    return starts


def _fit_all(
    setting: Setting,
    search: MixtureSearch,
    engine: Engine,
    stages: list[OutcomeRows],
    starts: list[Array],
) -> tuple[BaseEffectFit, int]:
    """Fit a setting from each start, go on with the best, and return it and which it was."""
    base, effect = search.bases[setting.base], search.effects[setting.effect]
    penalty = penalty_of(setting, search.bases[0].size, base.size, effect.size)

    def fit_to(some: OutcomeRows, start: Array | BaseEffectFit) -> BaseEffectFit:
        held = len(some.y) <= IN_MEMORY_ROWS
        part = BaseEffectRows(
            base(some.Z) if held else base,
            effect(some.Z) if held else effect,
            some.Z,
            some.y,
            some.exposure,
            some.weight,
        )
        return engine.fit(part, penalty, start, p_base=base.size)

    fits = [fit_to(stages[0], start) for start in starts]
    best = min(range(len(fits)), key=lambda k: float(fits[k].objective[-1]))
    found = fits[best]
    for rows in stages[1:]:
        found = fit_to(rows, found)
    return found, best


def outcome_scaling(rows: LabelledRows, family: str) -> Scaling:
    """Return what lies between the outcome and the fit's coding of it."""
    if family == BERNOULLI:  # from 0/1
        low, reach = rows.coding.offset - rows.coding.scale, 2.0 * rows.coding.scale
        return Scaling(np.array([low]), np.array([reach]))
    outcome = rows.of_kind(OUTCOME)
    in_units = rows.coding.offset + rows.coding.scale * rows.label[outcome, None]
    return Scaling.of_rows(in_units, rows.share[outcome])


def refit(fit: MixtureFit, rows: OutcomeRows) -> MixtureFit:
    """Fit the settings kept by ``fit`` to other rows, without choosing again.

    For scores on held-out rows at the price of a few fits; the ridges stay what they are per row.
    """
    engine = _engine(fit.family, SEARCH_TOL, fit.threshold)
    members = []
    for member in fit.members:
        base, effect = member.base_basis, member.effect_basis
        linear = (base.first if isinstance(base, StackedBasis) else base).size
        penalty = penalty_of(member.setting, linear, base.size, effect.size)
        part = BaseEffectRows(
            base(rows.Z), effect(rows.Z), rows.Z, rows.y, rows.exposure, rows.weight
        )
        start = np.concatenate([member.base, member.effect])
        found = engine.fit(part, penalty, start, p_base=base.size)
        sigma = found.sigma if fit.family == GAUSSIAN else member.sigma
        members.append(replace(member, base=found.base, effect=found.effect, sigma=float(sigma)))
    return replace(fit, members=tuple(members))
