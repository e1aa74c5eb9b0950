"""Choose the functions and ridges of a base and an effect by held-out likelihood."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import RandomState as Rng
from threadpoolctl import threadpool_limits

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray
from unjoined.solve import BaseEffectFit, BaseEffectRows, MeanTerms

LINEAR_RIDGES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


EFFECT_RIDGES = (1.0, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)


SMOOTH_RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


EFFECT_SMOOTH_RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


LINEAR = 2  # place of the linear functions among the effect's


# Nats of held-out likelihood that smooth functions must bring over linear ones. A nat or two is
# what chance brings when a dozen settings are tried; a real bend brings tens.
BASE_CHARGE, EFFECT_CHARGE = 1.0, 2.0


class Engine(Protocol):
    """A law of the outcome and the algorithm that fits it."""

    def fit(
        self, rows: BaseEffectRows, penalty: Array, start: Array | BaseEffectFit, *, p_base: int
    ) -> BaseEffectFit:
        """Minimise the penalised loss."""
        ...

    def losses(self, rows: BaseEffectRows, fit: BaseEffectFit) -> Array:
        """Return the loss of each row."""
        ...


class Setting(NamedTuple):
    """Which functions base and effect are made of, and their ridges."""

    base: int  # 0 linear, j linear and the j-th smooth basis
    effect: int  # 0 no effect, 1 constant, 2 linear, j + 2 linear and the j-th smooth basis
    base_linear: float  # ridge of the base's linear part
    base_smooth: float  # and of its smooth part; 0 if it has none
    effect_linear: float
    effect_smooth: float

    def but(self, **changes: Any) -> Setting:
        """Return the setting with some of its entries changed."""
        return Setting(**{**self._asdict(), **changes})

    def shrink(self, factor: float) -> Setting:
        """Return the setting with every ridge times ``factor``: more rows need less of it."""
        ridges = (self.base_linear, self.base_smooth, self.effect_linear, self.effect_smooth)
        return Setting(self.base, self.effect, *(factor * ridge for ridge in ridges))


@dataclass(frozen=True, slots=True)
class OutcomeRows:
    """Outcome rows as the search sees them."""

    Z: Array  # (n, d) scaled features
    y: Array  # (n,) in the engine's coding
    exposure: Array  # (n,)
    weight: Array  # (n,) mean 1
    fold: IntArray  # (n,)


class MixtureSearch:
    """Walk over the settings, one ridge at a time, each scored on folds it was not fitted to.

    Each ridge is tried from large to small, a fit starting where the last one ended. Settings
    already seen are not fitted again. Results do not depend on the number of threads.
    """

    def __init__(
        self,
        rows: OutcomeRows,
        bases: tuple[Basis, ...],
        effects: tuple[Basis, ...],
        engine: Engine,
        intercept: float,
        n_jobs: int | None,
    ) -> None:
        self.rows = rows
        self.bases = bases
        self.effects = effects
        self.engine = engine
        self.intercept = intercept
        self.n_jobs = n_jobs
        self.losses: dict[Setting, Array] = {}
        self.fits: dict[tuple[int, int, int], BaseEffectFit] = {}
        self._values: dict[tuple[str, int], Array] = {}

    def mean(self, setting: Setting) -> float:
        """Return the mean held-out loss of a setting, fitting it if it is new."""
        return float(np.average(self.score(setting), weights=self.rows.weight))

    def nats(self, setting: Setting) -> float:
        """Return minus the held-out log-likelihood of all rows, and what smooth parts must earn.

        A squared or Huber loss becomes a log-likelihood once it is measured in noise variances.
        With weights, rows count as many as rows of equal weight would.
        """
        loss = self.mean(setting)
        if self.is_squared:
            loss = 0.5 * float(np.log(max(loss, np.finfo(float).tiny)))
        charge = BASE_CHARGE * (setting.base > 0) + EFFECT_CHARGE * (setting.effect > LINEAR)
        return effective_rows(self.rows.weight) * loss + charge

    @property
    def is_squared(self) -> bool:
        """Whether the loss is a squared distance rather than minus a log-likelihood."""
        return isinstance(getattr(self.engine, "terms", None), MeanTerms)

    def score(self, setting: Setting) -> Array:
        """Return the held-out loss of each row."""
        if setting not in self.losses:
            folds = range(int(self.rows.fold.max()) + 1)
            loss = np.empty(len(self.rows.y))
            with (
                threadpool_limits(limits=1, user_api="blas"),
                ThreadPoolExecutor(n_threads(self.n_jobs)) as pool,
            ):
                for fold, held in zip(
                    folds, pool.map(lambda j: self._score_fold(setting, j), folds), strict=True
                ):
                    loss[self.rows.fold == fold] = held
            self.losses[setting] = loss
        return self.losses[setting]

    def sweep(self, best: Setting, name: str, ridges: Iterable[float], **functions: int) -> Setting:
        """Try each ridge for one part and return the best setting, the one passed in included."""
        path: list[float] = []
        for ridge in ridges:
            trial = best.but(**functions, **{name: ridge})
            path.append(self.nats(trial))
            if path[-1] < self.nats(best):
                best = trial
            # Two in a row that do worse than the path so far: smaller ridges only overfit more.
            if len(path) > 2 and min(path[-2:]) > min(path[:-2]):
                break
        return best

    def residuals(self, setting: Setting) -> Array:
        """Return y - b(x) - c u(x) of each row, from fits to the other folds."""
        self.score(setting)
        error = np.empty(len(self.rows.y))
        for fold in range(int(self.rows.fold.max()) + 1):
            fit = self.fits[setting.base, setting.effect, fold]
            held = self.part(setting, self.rows.fold == fold)
            error[self.rows.fold == fold] = (
                held.y - held.base @ fit.base - held.exposure * (held.effect @ fit.effect)  # type: ignore[operator]
            )
        return error

    def refit(self, setting: Setting) -> BaseEffectFit:
        """Fit a setting to all rows."""
        everything = np.ones(len(self.rows.y), dtype=bool)
        return self._fit(setting, self.part(setting, everything), None)

    def with_engine(self, engine: Engine) -> MixtureSearch:
        """Return a search over the same rows with another loss, and nothing tried yet."""
        other = MixtureSearch(
            self.rows, self.bases, self.effects, engine, self.intercept, self.n_jobs
        )
        other._values = self._values
        return other

    def part(self, setting: Setting, at: Array | IntArray) -> BaseEffectRows:
        """Return some of the rows with their basis values."""
        rows = self.rows
        return BaseEffectRows(
            self._of("base", setting.base)[at],
            self._of("effect", setting.effect)[at],
            rows.Z[at],
            rows.y[at],
            rows.exposure[at],
            rows.weight[at],
        )

    def _of(self, part: str, index: int) -> Array:
        if (part, index) not in self._values:
            basis = (self.bases if part == "base" else self.effects)[index]
            self._values[part, index] = basis(self.rows.Z)
        return self._values[part, index]

    def _fit(
        self, setting: Setting, rows: BaseEffectRows, last: BaseEffectFit | None
    ) -> BaseEffectFit:
        p_base, p_effect = self.bases[setting.base].size, self.effects[setting.effect].size
        penalty = penalty_of(setting, self.bases[0].size, p_base, p_effect)
        if last is not None:
            return self.engine.fit(rows, penalty, last, p_base=p_base)
        start = np.zeros(p_base + p_effect)
        start[0] = self.intercept
        return self.engine.fit(rows, penalty, start, p_base=p_base)

    def _score_fold(self, setting: Setting, fold: int) -> Array:
        key = (setting.base, setting.effect, fold)
        fit = self._fit(setting, self.part(setting, self.rows.fold != fold), self.fits.get(key))
        self.fits[key] = fit
        return self.engine.losses(self.part(setting, self.rows.fold == fold), fit)


def effective_rows(weight: Array) -> float:
    """Return how many rows of equal weight are worth as much (Kish)."""
    return float(weight.sum()) ** 2 / float(weight @ weight)


def penalty_of(setting: Setting, linear: int, p_base: int, p_effect: int) -> Array:
    """Return the ridge of each coefficient; the base's intercept has none."""
    base = np.full(p_base, setting.base_smooth)
    base[:linear] = setting.base_linear
    base[0] = 0.0
    effect = np.full(p_effect, setting.effect_smooth)
    effect[:linear] = setting.effect_linear
    return np.concatenate([base, effect])


def deal_folds(population: IntArray, n_folds: int, rng: Rng) -> IntArray:
    """Deal the rows of each population evenly into folds."""
    fold = np.empty(len(population), dtype=np.int64)
    for k in np.unique(population):
        at = np.flatnonzero(population == k)
        fold[at] = rng.permutation(np.resize(np.arange(n_folds), len(at)))
    if fold.max() == 0:  # one row of each: held out by population, else nothing is left to fit
        return np.resize(np.arange(n_folds), len(population))
    return fold
