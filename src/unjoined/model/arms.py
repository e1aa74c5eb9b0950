"""Several treatments: what tells each of them from the others, and its cross-fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import TREATMENT, shown
from unjoined.data.rows import LabelledRows, Rows
from unjoined.errors import InputError, LabelError
from unjoined.model.crossfit import CLIP, MEAN, N_FOLDS, CrossFit, Likelihood
from unjoined.model.linear import cross_fit_effects
from unjoined.model.regressors import FoldedPolicy, fit_policies

Function = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class ArmPolicy:
    """A population's policy for one treatment, less what goes along with the other treatments.

    Attributes
    ----------
    propensities : tuple
        Of each population and each treatment, that of none first, a function of the features.
    population_share : array of shape (K,)
        Of the outcome rows.
    arm, population : int
        Which treatment, from 1, and which population.
    is_coded : bool
        Whether all functions, this one included, are of treatments -1/+1.
    """

    propensities: tuple[tuple[Function, ...], ...]
    population_share: Array
    arm: int
    population: int
    is_coded: bool

    def __call__(self, X: Array) -> Array:
        """Return the policy at each row."""
        own: Array = self.of_all(X)[:, self.population]
        return own

    def of_all(self, X: Array) -> Array:
        """Return the policies of all populations, shape (n, K), which one takes as long as."""
        P = _propensities(self.propensities, X, is_coded=self.is_coded)
        _, alone, _ = taken_apart(P, self.population_share)
        each: Array = alone[:, :, self.arm - 1]
        return 2.0 * each - 1.0 if self.is_coded else each


def _propensities(
    functions: tuple[tuple[Function, ...], ...], X: Array, *, is_coded: bool
) -> Array:
    """Return the probability of each treatment in each population, shape (n, K, J + 1)."""
    P = np.array([[function(X) for function in of] for of in functions])
    P = np.clip(0.5 + 0.5 * P if is_coded else P, CLIP, 1.0)
    return np.asarray((P / P.sum(axis=1, keepdims=True)).transpose(2, 0, 1))


def taken_apart(P: Array, share: Array) -> tuple[Array, Array, Array]:
    r"""Return policies less their mean over populations, and what is left of each, (n, K, J).

    What is left of treatment j is :math:`P_{kj} - \bar P_j - \sum_l \gamma_{jl} (P_{kl} - \bar
    P_l)`, uncorrelated over the populations with every other one: the contrast that shows j alone.
    The third array (n, J, J) holds :math:`\gamma`.
    """
    apart = P[:, :, 1:] - np.einsum("k,nkj->nj", share, P[:, :, 1:])[:, None]
    J = apart.shape[2]
    products = np.einsum("k,nkj,nkl->njl", share, apart, apart)
    along = np.zeros_like(products)
    for j in range(J):
        others = np.delete(np.arange(J), j)
        inverse = np.linalg.pinv(
            products[:, others[:, None], others], rcond=1e-6, hermitian=True
        )
        along[:, j, others] = np.einsum("nlm,nm->nl", inverse, products[:, j, others])
    alone = apart - np.einsum("njl,nkl->nkj", along, apart)
    return apart, alone, along


def check_arms(rows: Rows) -> None:
    """Refuse rows of one treatment, and fewer populations than show the treatments apart."""
    if not rows.arms:
        raise InputError(
            "ArmUplift compares several treatments with none: name the latter with control=..., "
            "in SeparateLabels or in fit. For one treatment use Uplift."
        )
    if rows.joint is not None:
        raise InputError(
            "rows with both labels cannot have several treatments yet. Leave their treatments out."
        )
    control, *arms = rows.arms
    K = len(rows.names)
    if len(arms) + 1 > K:
        many = f"{len(arms)} treatments ({shown(arms)})"
        raise LabelError(
            f"{many} take {len(arms) + 1} populations that were treated differently, and there "
            f"{'are' if K > 1 else 'is'} {K} ({shown(rows.names)}). What {K} populations show is "
            f"{K - 1} effect{'s' * (K > 2)}: any of them against {control!r}, with "
            f"treated={shown(arms)}, is the effect of the mix that was given. Or bring more "
            "populations."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Contrasts:
    """Rows of several treatments, and what tells each from the others."""

    rows: list[LabelledRows]  # with each treatment, that of none first, as 1
    fold: IntArray
    propensities: list[tuple[FoldedPolicy, ...]]  # of each treatment, each population
    population_share: Array
    P: Array  # (n, K, J + 1) without the row's fold
    effects: Array  # (n, J) linear, without the row's fold
    categorical: tuple[int, ...]  # columns that are codes
    n_jobs: int | None

    @classmethod
    def of_rows(
        cls,
        rows: list[LabelledRows],
        categorical: tuple[int, ...],
        n_jobs: int | None,
        rng: np.random.RandomState,
    ) -> Contrasts:
        """Fit the probability of each treatment in each population, and linear effects."""
        one = rows[0]
        fold = one.deal(N_FOLDS, rng)
        options: dict[str, Any] = {"categorical": categorical, "n_jobs": n_jobs}
        found = [
            fit_policies(each.X, each, None, fold=fold, rng=rng, **options)
            for each in rows
        ]
        K = len(one.names)
        size = np.array(one.people[:K], dtype=np.float64)
        share = size / size.sum()
        P = np.empty((len(one), K, len(rows)))
        for j in range(int(fold.max()) + 1):
            at = fold == j
            P[at] = _propensities(_without(found, j), one.X[at], is_coded=True)
        apart, _, _ = taken_apart(P, share)
        own = apart[np.arange(len(one)), one.population]
        effects = cross_fit_effects(one, fold, own)
        return cls(rows, fold, found, share, P, effects, categorical, n_jobs)

    def cross_fit(self, j: int, rng: np.random.RandomState) -> CrossFit:
        """Fit base and effect of treatment j, from 0, to rows in which it stands alone."""
        rows, policies = self.of_arm(j)
        functions = tuple(policy.policy for policy in policies)
        return CrossFit.of_policies(
            rows,
            Likelihood.of_rows(rows, MEAN, functions),
            policies,
            self.fold,
            categorical=self.categorical,
            n_jobs=self.n_jobs,
            rng=rng,
        )

    def of_arm(self, j: int) -> tuple[LabelledRows, tuple[FoldedPolicy, ...]]:
        """Return rows and policies in which treatment j, from 0, stands alone.

        The outcome is freed of what the others are thought to add, and treatment rows say how far
        their policies were off.
        """
        rows = self.rows[j + 1]
        at = np.arange(len(rows))
        apart, alone, along = taken_apart(self.P, self.population_share)
        own = apart[at, rows.population]
        others = np.delete(np.arange(own.shape[1]), j)
        added = self.effects + along[:, j] * self.effects[:, [j]]
        label = rows.label - np.sum((own * added)[:, others], axis=1)
        is_it = 0.5 + 0.5 * rows.label - self.P[at, rows.population, j + 1]
        mine = alone[at, rows.population, j]
        label = np.where(rows.is_outcome, label, 2.0 * (is_it + mine) - 1.0)
        aside = np.zeros(len(rows))
        for other in others:
            got = 0.5 + 0.5 * self.rows[other + 1].label
            beyond = got - self.P[at, rows.population, other + 1]
            aside += np.where(rows.is_outcome, 0.0, self.effects[:, other] * beyond)
        policies = []
        for k in range(len(rows.names)):
            whole = tuple(
                tuple(of[i].policy for of in self.propensities)
                for i in range(len(rows.names))
            )
            without = tuple(
                ArmPolicy(
                    _without(self.propensities, i),
                    self.population_share,
                    j + 1,
                    k,
                    is_coded=True,
                )
                for i in range(int(self.fold.max()) + 1)
            )
            policy = ArmPolicy(whole, self.population_share, j + 1, k, is_coded=False)
            policies.append(
                FoldedPolicy(policy, without, self.fold[rows.at(TREATMENT, k)])
            )
        given = self.P[at, rows.population, j + 1]
        return replace(rows, label=label, aside=aside, given=given), tuple(policies)


def _without(
    found: list[tuple[FoldedPolicy, ...]], j: int
) -> tuple[tuple[Function, ...], ...]:
    """Return the fits without fold j: of each population, each treatment."""
    K = len(found[0])
    return tuple(tuple(of[k].without[j] for of in found) for k in range(K))
