"""What is fixed before the pass that adds up, and what is made of the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import block_diag

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.basis import (
    ScaledBasis,
    Scaling,
    StackedBasis,
)
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.sums.add_up import CellMeans, accumulate_policies
from unjoined.sums.centring import Centring, by_chunks, shared_means
from unjoined.sums.moments import CellKey, GroupedSums
from unjoined.sums.policies import PolicySums, best_contrasts, group_names


@dataclass(frozen=True, slots=True)
class MinMaxSystem:
    """The averages A, b, C of the paper, section 4.2, phi of the uplift and psi of the critic."""

    A: Array  # (p_f, p_g)  estimate of E[w phi psi^T]
    b: Array  # (p_g,)      estimate of E[z psi]
    C: Array  # (p_g, p_g)  estimate of E[psi psi^T]


def assemble(
    sums: GroupedSums, contrasts: Array | None = None, p_f: int | None = None
) -> MinMaxSystem:
    r"""Average the sums of all cells.

    With :math:`s_1 = 1`, :math:`s_2 = -1`, so that :math:`w = s_k t` and :math:`z = s_k y`,

    .. math::

        A = \tfrac12 \sum_k s_k \overline{t \phi\phi^\top}_k, \quad
        b = \tfrac12 \sum_k s_k \overline{y \phi}_k, \quad
        C = \tfrac14 \sum_k (\overline{\phi\phi^\top}_k + \overline{\widetilde{\phi\phi}^\top}_k),

    a bar with subscript :math:`k` being the weighted mean over one cell. This is the only place
    where cells of unequal sizes are put on an equal footing: dividing each by its own weight is
    the factor :math:`n / (2 n_k)` of the paper's appendix, and gives the formulas of its section
    4.2 when sizes are equal.

    More than two populations come with ``contrasts``, shape (J, K), whose entries take the place of
    :math:`s_k`; in C a population counts by the size of its entry in the first. Each contrast has
    a critic of its own: the J parts of A and b stand side by side. With ``p_f`` the uplift has so
    many functions, and the critic the rest.
    """
    parts = np.array([[1.0, -1.0]]) if contrasts is None else contrasts
    A = np.zeros((len(parts), sums.p, sums.p))
    b = np.zeros((len(parts), sums.p))
    C = np.zeros((sums.p, sums.p))
    for k, part in enumerate(parts.T):
        treatment, outcome = sums.total(TREATMENT, k), sums.total(OUTCOME, k)
        A += part[:, None, None] / 2.0 * treatment.label_cross / treatment.weight
        b += part[:, None] / 2.0 * outcome.label_basis / outcome.weight
        size = 0.25 * abs(part[0])
        C += size * (treatment.gram / treatment.weight + outcome.gram / outcome.weight)
    f, g = (slice(None), slice(None)) if p_f is None else (slice(p_f), slice(p_f, None))
    if len(parts) == 1:
        return MinMaxSystem(A[0, f, g], b[0, g], C[g, g])
    return MinMaxSystem(
        np.hstack(list(A[:, f, g])), b[:, g].ravel(), block_diag(*[C[g, g]] * len(b))
    )


MAX_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class SumsPlan:
    """Everything that turns a row into its share of the sums, fixed before the first row.

    Parties that agree on a plan can add up their rows apart and merge the sums.

    Parameters
    ----------
    feature_names : tuple of str or None
        The features, in order.
    populations : tuple
        Names of the populations, two or more, sorted; of two the first has the positive sign.
    coding : OutcomeCoding
        How outcomes are written inside.
    scaling : Scaling
        Subtracted from and divided out of the features.
    basis, critic : Basis
        Functions of the uplift and of the critic on scaled features, usually the same object.
    centring : tuple of Centring
        Empty for labels as they are; else one for each group, fitted without its rows, or one
        for all.
    n_groups : int
        Groups rows are dealt into, by which ridges are chosen.
    clip : float, optional
        Spreads that features are kept within; outcomes are then kept within -1 and 1 inside.
    contrasts, noise : arrays, optional
        How more than two populations are held against each other, shape (J, K), and the variance
        of noise on treatment sums, shape (K,); settled by the sums, and not agreed on.
    """

    feature_names: tuple[str, ...] | None
    populations: tuple[Any, ...]
    coding: OutcomeCoding
    scaling: Scaling
    basis: Basis
    critic: Basis
    centring: tuple[Centring, ...]
    n_groups: int
    clip: float | None = None
    contrasts: Array | None = None
    noise: Array | None = None

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.scaling.mean)

    @property
    def size(self) -> int:
        """Number of functions of the uplift and, if they differ, of the critic."""
        return self.basis.size + (0 if self.critic is self.basis else self.critic.size)

    @property
    def values(self) -> Callable[[Array], Array]:
        """Maps features as they came (n, d) to basis values (n, size)."""
        both = self.basis if self.critic is self.basis else StackedBasis(self.basis, self.critic)
        return ScaledBasis(both, self.scaling)

    def clipped(self, X: Array) -> Array:
        """Return features within the agreed limits, those given if there are none."""
        if self.clip is None:
            return X
        reach = self.clip * self.scaling.scale
        return np.clip(X, self.scaling.mean - reach, self.scaling.mean + reach)

    def sums(
        self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None
    ) -> PlannedSums:
        """Add up checked rows with labels not yet centred; ``group`` is None if all are one.

        Centring on the basis of the sums is part of their pass; any other comes before it.
        """
        means, centred = self._means(), None
        if self.centring and means is None:
            centred = self.centred(rows, group, n_jobs=n_jobs)
        sums, policy = accumulate_policies(
            self.values,
            self.size,
            rows,
            self.scaling,
            groups=group,
            means=means,
            centred=centred,
            n_jobs=n_jobs,
        )
        return PlannedSums(self, sums, policy)

    def _means(self) -> dict[CellKey, CellMeans] | None:
        """Return what the pass subtracts from labels by itself, if it can."""
        if not self.centring or self.critic is not self.basis:
            return None
        found = {}
        for group in range(self.n_groups):
            centring = self.centring[group if len(self.centring) > 1 else 0]
            means = shared_means(centring, self.basis, self.scaling)
            if means is None:
                return None
            for kind, k in product(means, range(len(self.populations))):
                found[CellKey(kind, k, group)] = means[kind]
        return found

    def centred(self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None) -> Array:
        """Return labels less what the features predict of them, a new array."""
        found = rows.label.copy()
        for j, centring in enumerate(self.centring):
            several = len(self.centring) > 1
            at = np.flatnonzero(group == j) if several else np.arange(len(rows))
            if len(at):
                m, q, _ = by_chunks(centring, rows.X, at, n_jobs)
                found[at] -= np.where(rows.is_outcome[at], m, q)
        return found


class TableId(NamedTuple):
    """What the sums of one table are known by."""

    kind: str
    population: int
    digest: str  # 32 hexadecimal digits


class TableNoise(NamedTuple):
    """What the rows of one table are protected by."""

    kind: str
    population: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class PlannedSums:
    """Sums and the plan they were made by: all that `MinMaxUplift.fit_moments` needs."""

    plan: SumsPlan
    sums: GroupedSums
    policy: PolicySums
    tables: tuple[TableId, ...] = ()  # those merged; empty for sums of one pass
    noise: tuple[TableNoise, ...] = ()  # of the tables that have some

    @classmethod
    def of_no_rows(cls, plan: SumsPlan) -> PlannedSums:
        """Return a plan without sums, to be agreed on or added to."""
        policy = PolicySums.zero(plan.n_features, len(plan.populations))
        return cls(plan, GroupedSums(plan.size), policy)

    @property
    def contrasts(self) -> Array | None:
        """How more than two populations are held against each other; None for two."""
        names = self.plan.populations
        if len(names) == 2:
            return None
        size = [self.sums.total(OUTCOME, k).effective_rows for k in range(len(names))]
        return best_contrasts(self.policy, np.array(size), self.plan.n_features)

    def in_two_groups(self) -> PlannedSums:
        """Return the sums of the two groups of populations whose contrast tells the most."""
        if (contrasts := self.contrasts) is None:
            return self
        names = tuple(group_names(self.plan.populations, contrasts[0]))
        plan = replace(self.plan, populations=names)
        return replace(self, plan=plan, sums=self.sums.in_two_groups(contrasts[0]))

    def plus(self, sums: GroupedSums, policy: PolicySums) -> PlannedSums:
        """Return these sums with further ones by the same plan."""
        return replace(self, sums=self.sums.merge(sums), policy=self.policy.merge(policy))

    def n_rows(self, kind: str, population: int) -> int:
        """Return the number of rows of one cell."""
        cells = self.sums.cells.items()
        return sum(s.n_rows for k, s in cells if (k.kind, k.population) == (kind, population))

    def check_complete(self, *, groups: bool) -> None:
        """Refuse sums without one of the cells, or of a group if those are needed."""
        for k, name in enumerate(self.plan.populations):
            for kind in (OUTCOME, TREATMENT):
                if self.n_rows(kind, k) == 0:
                    raise InputError(
                        f"the sums hold no {kind} rows of population {name!r}. Merge the file "
                        "of the party that has them."
                    )
                present = {
                    key.group for key in self.sums.cells if (key.kind, key.population) == (kind, k)
                }
                if groups and len(present) < self.plan.n_groups:
                    raise InputError(
                        f"ridges are chosen by {self.plan.n_groups} groups of rows, but the "
                        f"{kind} rows of population {name!r} fill {len(present)} of them "
                        f"({self.n_rows(kind, k)} rows). Give more rows, or numbers for ridge_f "
                        "and ridge_g; tables that fit in memory are better fitted with fit."
                    )


def sample_cells(cells: list[IntArray], most: int, rng: Rng) -> list[IntArray]:
    """Return the positions of at most ``most`` rows of each cell, in order."""
    chosen = []
    for at in cells:
        n = min(len(at), most)
        # One row out of each of as many strips: distinct, and soon done. Strips differ by a row
        # in length, so that they start at random, or rows would not be equally likely.
        edges = np.arange(n + 1) * len(at) // n
        some = edges[:-1] + (rng.random_sample(n) * np.diff(edges)).astype(np.int64)
        chosen.append(at[np.sort((some + rng.randint(len(at))) % len(at))])
    return chosen


def take_sample(rows: LabelledRows, most: int, rng: Rng) -> tuple[LabelledRows, IntArray]:
    """Return at most ``most`` rows of each cell, with the weight of all, and where they were."""
    cells = rows.all_cells()
    chosen = sample_cells(cells, most, rng)
    more = [np.full(len(at), len(c) / len(at)) for at, c in zip(chosen, cells, strict=True)]
    positions = np.concatenate(chosen)
    sample = rows.take(positions)
    return replace(sample, weight=sample.weight * np.concatenate(more)), positions
