"""The cross-fit: policies, mean outcome and effect of every row, by fits that have not seen it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._threads import CHUNK_ROWS, over_pieces
from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.data.rows import LabelledRows, deal_rows, some_rows
from unjoined.model.averaging import CHOICE_ROWS, average_specifications
from unjoined.model.basis import Scaling
from unjoined.model.families import (
    BernoulliFamily,
    Family,
    GaussianFamily,
    MeanFamily,
    PoissonFamily,
)
from unjoined.model.regressors import FoldedPolicy, Nuisances, fit_policies
from unjoined.model.specifications import (
    EFFECT_SPECIFICATIONS,
    GROWING_SPECIFICATIONS,
    AdditiveAverage,
    ModelRows,
    uplift_of_fits,
)

AUTO, BERNOULLI, GAUSSIAN, MEAN = "auto", "bernoulli", "gaussian", "mean"
POISSON = "poisson"
CURVED = (BERNOULLI, POISSON)  # whose uplift is no linear function of base and effect
CLIP = 0.005  # policies are kept this far from 0 and 1
PIECE_ROWS = CHUNK_ROWS // 4
N_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Likelihood:
    """What the likelihood of outcome rows is made of, beside base and effect."""

    family: str
    coding: OutcomeCoding
    outcome_scaling: Scaling
    policies: tuple[Callable[[Array], Array], ...]
    scaling: Scaling | None = (
        None  # of the features that policies take, None if as they are
    )

    @classmethod
    def of_rows(
        cls,
        rows: LabelledRows,
        family: str,
        policies: tuple[Callable[[Array], Array], ...],
        scaling: Scaling | None = None,
    ) -> Likelihood:
        """Return the likelihood of rows, by default of the family that suits them."""
        if family == AUTO:
            family = _family_of(rows)
        return cls(
            family, rows.coding, outcome_scaling(rows, family), policies, scaling
        )

    def family_at(self, propensity: Array, weight: Array) -> Family:
        """Return the law of the outcome, given the mean policy at rows that count by weights."""
        split = float(np.average(propensity, weights=weight))
        families: dict[str, Family] = {
            BERNOULLI: BernoulliFamily(split),
            GAUSSIAN: GaussianFamily(split),
            MEAN: MeanFamily(),
            POISSON: PoissonFamily(split),
        }
        return families[self.family]

    def encode(self, label: Array) -> Array:
        """Return inner labels in the law's coding: 0/1, or scaled."""
        if self.family == BERNOULLI:
            return 0.5 + 0.5 * label
        outcome = self.coding.offset + self.coding.scale * label
        return self.outcome_scaling(outcome[:, None])[:, 0]

    @property
    def offset(self) -> float:
        """The inner label that the law's 0 stands for."""
        return (
            float(self.outcome_scaling.mean[0]) - self.coding.offset
        ) / self.coding.scale

    @property
    def scale(self) -> float:
        """Inner labels by which the law's 1 differs from its 0."""
        return float(self.outcome_scaling.scale[0]) / self.coding.scale

    def propensities(self, X: Array) -> Array:
        """Return every population's probability of treatment, shape (n, number of them)."""
        features = X if self.scaling is None else self.scaling(X)
        return self.coding.as_policy(policies_at(self.policies, features))

    def exposure(
        self, propensities: Array, population: IntArray, known: Array | None = None
    ) -> Array:
        """Return what the law needs of the policies at each row, whose exposure may be known."""
        own: Array = propensities[np.arange(len(propensities)), population]
        if known is not None:
            own = np.where(np.isnan(known), own, known)
        return own - propensities.mean(axis=1) if self.family == MEAN else own

    def rows(
        self,
        X: Array,
        label: Array,
        population: IntArray,
        known: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """Return outcomes and exposures as the law takes them, and the mean policy at each row."""
        propensities = self.propensities(X)
        return (
            self.encode(label),
            self.exposure(propensities, population, known),
            propensities.mean(axis=1),
        )

    def outcomes(self, rows: LabelledRows, at: IntArray) -> tuple[ModelRows, Array]:
        """Return some outcome rows as the law takes them, and the mean policy at each."""
        X = rows.X[at]
        population = rows.population[at]
        exposure = None if rows.exposure is None else rows.exposure[at]
        y, exposure, propensity = self.rows(X, rows.label[at], population, exposure)
        unit = None if rows.unit is None else rows.unit[at]
        count = None if rows.count is None else rows.count[at]
        known = ModelRows.of_weights(X, y, exposure, rows.weight[at], unit, count)
        return known, propensity


def policies_at(policies: tuple[Callable[[Array], Array], ...], X: Array) -> Array:
    """Return every population's policy at rows, shape (n, K), at once if they are made together."""
    of_all: Callable[[Array], Array] | None = getattr(policies[0], "of_all", None)
    if of_all is not None:
        return of_all(X)
    return np.column_stack([policy(X) for policy in policies])


def _family_of(rows: LabelledRows) -> str:
    """Return the family for rows: of two outcomes, of counts, or of any other number."""
    if rows.coding.is_binary:
        return BERNOULLI
    is_count = rows.coding.is_amount and not (rows.label[rows.is_outcome] % 1.0).any()
    return POISSON if is_count else MEAN


def outcome_scaling(rows: LabelledRows, family: str) -> Scaling:
    """Return what lies between the outcome and the law's coding of it."""
    if family == BERNOULLI:  # from 0/1
        low = rows.coding.offset - rows.coding.scale
        reach = 2.0 * rows.coding.scale
        return Scaling(np.array([low]), np.array([reach]))
    outcome = rows.of_kind(OUTCOME)
    in_units = rows.coding.offset + rows.coding.scale * rows.label[outcome, None]
    if family == POISSON:  # whose 0 is 0, and whose 1 is the mean
        mean = float(np.average(in_units[:, 0], weights=rows.share[outcome]))
        return Scaling(np.zeros(1), np.array([mean]))
    return Scaling.of_rows(in_units, rows.share[outcome])


@dataclass(frozen=True, slots=True)
class EffectNuisances(Nuisances):
    """Nuisances with an effect: population k's mean outcome is m + (e_k - mean of e) f."""

    effect: Array  # (n,) f, inner coding

    @property
    def mean_policy(self) -> Array:
        """Mean of the populations' policies at each row."""
        return np.asarray(self.policies.mean(axis=1))

    @property
    def untreated(self) -> Array:
        """Mean outcome without treatment at each row, inner coding."""
        return np.asarray(self.outcome_mean - self.mean_policy * self.effect)


@dataclass(frozen=True, slots=True)
class EffectModels:
    """Policies, base and effect, each fitted without each fold; they give values at any rows."""

    # Treatments being -1/+1, of each fold of the treatment rows: of each population.
    policies: tuple[tuple[Callable[[Array], Array], ...], ...]
    outcomes: tuple[AdditiveAverage, ...]  # of each fold of the outcome rows
    offset: float  # of the inner outcome that base and effect are fitted to
    scale: float
    coding: OutcomeCoding

    @property
    def n_folds(self) -> int:
        """Number of folds of the outcome rows."""
        return len(self.outcomes)

    def scores(self, X: Array) -> Array:
        """Return the effect at rows by the fits without each fold, shape (n, folds)."""
        return np.column_stack(uplift_of_fits(self.outcomes, X))

    def propensities(self, X: Array, j: int) -> Array:
        """Return every population's policy by the fits without fold ``j``, shape (n, K)."""
        propensities = 0.5 + 0.5 * policies_at(self.policies[j], X)
        return self.coding.as_policy(propensities, CLIP)

    def __call__(
        self,
        X: Array,
        fold: IntArray,
        policy_fold: IntArray | None = None,
        *,
        n_jobs: int | None = None,
    ) -> EffectNuisances:
        """Return the nuisances of rows, each by the fits without the row's fold.

        Policies may have folds of their own: the fits of either kind have not seen the row then.
        """
        n = len(X)
        K = len(self.policies[0])
        policies = np.empty((n, K))
        mean = np.empty(n)
        effect = np.empty(n)
        policy_fold = fold if policy_fold is None else policy_fold

        def fill(start: int) -> None:
            piece = slice(start, start + PIECE_ROWS)
            for j in range(len(self.policies)):
                at: BoolArray = policy_fold[piece] == j
                policies[piece][at] = self.propensities(X[piece][at], j)
            for j, outcome in enumerate(self.outcomes):
                at = fold[piece] == j
                center = policies[piece][at].mean(axis=1)
                treated, untreated = outcome.means(X[piece][at], center)
                mixed = center * treated + (1.0 - center) * untreated
                mean[piece][at] = self.offset + self.scale * mixed
                effect[piece][at] = self.scale * (treated - untreated)

        for _ in over_pieces(fill, range(0, n, PIECE_ROWS), n_jobs):
            pass
        return EffectNuisances(policies, mean, effect)


@dataclass(frozen=True, slots=True, eq=False)
class CrossFit:
    """Policies, mean outcome and effect of labelled rows, each by fits that have not seen the row.

    Made once for a data set and shared by all that is said of it: fit, diagnose, evaluate, plan and
    report. The models give values at other people too, whom no fit has seen.
    """

    rows: LabelledRows
    likelihood: Likelihood
    fit: AdditiveAverage  # to all rows
    models: EffectModels  # without each fold
    fold: IntArray  # (n,) of each labelled row: the outcome's fits without it
    nuisances: EffectNuisances  # at the labelled rows
    encode: Callable[[MatrixLike], Array] | None = (
        None  # people's features as the models take them
    )

    @classmethod
    def of_rows(
        cls,
        rows: LabelledRows,
        *,
        family: str = AUTO,
        categorical: tuple[int, ...] = (),
        fold: IntArray | None = None,
        n_jobs: int | None,
        rng: Rng,
    ) -> CrossFit:
        """Fit additive models of the policies, then of base and effect.

        ``fold`` is that of each row, if it is given; no more outcome rows than choose among forms
        are fitted then. Else folds are dealt. Costs eleven forms times five folds, and three forms
        times five folds for each policy.
        """
        is_given = fold is not None
        fold = rows.deal(N_FOLDS, rng) if fold is None else fold
        policies = fit_policies(
            rows.X,
            rows,
            None,
            fold=fold,
            rng=rng,
            n_jobs=n_jobs,
            categorical=categorical,
        )
        likelihood = Likelihood.of_rows(
            rows, family, tuple(each.policy for each in policies)
        )
        most = CHOICE_ROWS if is_given else None
        return cls.of_policies(
            rows,
            likelihood,
            policies,
            fold,
            categorical=categorical,
            most=most,
            n_jobs=n_jobs,
            rng=rng,
        )

    @classmethod
    def of_policies(
        cls,
        rows: LabelledRows,
        likelihood: Likelihood,
        policies: tuple[FoldedPolicy, ...],
        fold: IntArray,
        *,
        categorical: tuple[int, ...] = (),
        most: int | None = None,
        n_jobs: int | None,
        rng: Rng,
    ) -> CrossFit:
        """Fit base and effect where policies are known, to so many outcome rows at most."""
        at = rows.of_kind(OUTCOME)
        if most is not None:
            at = at[some_rows(len(at), most, rng)]
        outcomes, propensity = likelihood.outcomes(rows, at)
        fit, without, place = average_specifications(
            outcomes,
            likelihood.family_at(propensity, outcomes.weight),
            EFFECT_SPECIFICATIONS + GROWING_SPECIFICATIONS,
            fold[at],
            categorical=categorical,
            n_jobs=n_jobs,
            rng=rng,
        )
        n_folds = int(fold.max()) + 1
        of_outcome = (fold + len(without) - n_folds) % len(without)
        of_outcome[at] = place
        return cls.of_fits(
            rows, likelihood, fit, policies, without, fold, of_outcome, n_jobs=n_jobs
        )

    @classmethod
    def of_fits(
        cls,
        rows: LabelledRows,
        likelihood: Likelihood,
        fit: AdditiveAverage,
        policies: tuple[FoldedPolicy, ...],
        without: tuple[AdditiveAverage, ...],
        fold: IntArray,
        of_outcome: IntArray,
        *,
        n_jobs: int | None,
    ) -> CrossFit:
        """Return what fits without folds say of rows.

        ``fold`` is that of each row, ``of_outcome`` which of the outcome's fits has not seen it.
        Where fits to a sample come before those to all rows, rows of the sample are met by the
        former, and rows of the other kind by the latter.
        """
        n_policies = min(len(policy.without) for policy in policies)
        of_policy = (fold + n_policies - int(fold.max()) - 1) % n_policies
        for k, policy in enumerate(policies):
            of_policy[rows.at(TREATMENT, k)] = policy.fold % n_policies
        models = EffectModels(
            tuple(
                zip(*(policy.without[:n_policies] for policy in policies), strict=True)
            ),
            without,
            likelihood.offset,
            likelihood.scale,
            likelihood.coding,
        )
        nuisances = models(rows.X, of_outcome, of_policy, n_jobs=n_jobs)
        return cls(rows, likelihood, fit, models, of_outcome, nuisances)

    def fits(self, rows: LabelledRows) -> bool:
        """Tell whether these are the rows that were fitted, whatever numbers stand for words."""
        mine = self.rows
        return np.array_equal(mine.label, rows.label) and np.array_equal(
            mine.cell, rows.cell
        )

    def elsewhere(
        self, X: Array, given: MatrixLike | None, *, n_jobs: int | None, rng: Rng
    ) -> tuple[EffectNuisances, IntArray]:
        """Return the nuisances of other people, each by the fits without a fold that is dealt.

        ``X`` are their features as numbers, ``given`` as they came.
        """
        fold = deal_rows(len(X), self.models.n_folds, rng)
        numbers = X if self.encode is None or given is None else self.encode(given)
        of_policy = fold % len(self.models.policies)
        return self.models(numbers, fold, of_policy, n_jobs=n_jobs), fold
