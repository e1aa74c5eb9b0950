"""What is fixed before the pass that adds up, and the sums that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import KINDS, OUTCOME, TREATMENT, OutcomeCoding
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis
from unjoined.model.centring import Means, subtract_means
from unjoined.model.contrasts import best_contrasts, group_names
from unjoined.model.moments import MomentSums, PolicySums, sum_policies

MAX_GROUPS = 1000
KEY_SCALE = 100.0  # groups change within a hundredth of a spread of a feature


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
    centring : tuple of Means
        Empty for labels as they are; else one for each group, fitted without its rows, or one
        for all.
    n_groups : int
        Groups rows are dealt into, by which ridges are chosen.
    by_features : bool, default=False
        Whether rows are dealt by what their features are, as engines can that know no numbers of
        rows. Rows with equal features are then in one group.
    """

    feature_names: tuple[str, ...] | None
    populations: tuple[Any, ...]
    coding: OutcomeCoding
    scaling: Scaling
    basis: Basis
    critic: Basis
    centring: tuple[Means, ...]
    n_groups: int
    by_features: bool = False

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
        both = (
            self.basis
            if self.critic is self.basis
            else StackedBasis(self.basis, self.critic)
        )
        return ScaledBasis(both, self.scaling)

    @property
    def group_key(self) -> Array:
        """What scaled features are multiplied by, (d,), to deal rows by them.

        The fraction of the sum says the group. The factors are large and have no common measure, so
        that groups are scattered over all features.
        """
        return np.asarray(KEY_SCALE * np.sqrt(np.arange(self.n_features) + np.e))

    def groups(self, X: Array) -> IntArray:
        """Return the groups of rows by their features, shape (n,)."""
        key = self.scaling(X) @ self.group_key
        group = np.floor((key - np.floor(key)) * self.n_groups)
        return np.minimum(group, self.n_groups - 1).astype(np.int64)

    def sums(
        self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None
    ) -> PlannedSums:
        """Add up checked rows with labels not yet centred; ``group`` is None if all are one."""
        policy = sum_policies(rows, self.scaling, n_jobs=n_jobs)
        return PlannedSums(self, self.moments(rows, group, n_jobs=n_jobs), policy)

    def moments(
        self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None
    ) -> MomentSums:
        """Return the same without the sums that tell policies apart."""
        if self.centring:
            label, _ = subtract_means(rows, self.centring, group, n_jobs=n_jobs)
            rows = replace(rows, label=label)
        return accumulate(
            self.values,
            self.size,
            rows,
            groups=group,
            n_groups=self.n_groups,
            n_jobs=n_jobs,
        )


class TableId(NamedTuple):
    """What the sums of one table are known by."""

    kind: str
    population: int
    digest: str  # 32 hexadecimal digits


@dataclass(frozen=True, slots=True)
class PlannedSums:
    """Sums and the plan they were made by: all that `MinMaxUplift.fit_moments` needs."""

    plan: SumsPlan
    sums: MomentSums
    policy: PolicySums
    tables: tuple[TableId, ...] = ()  # those merged; empty for sums of one pass

    @classmethod
    def of_no_rows(cls, plan: SumsPlan) -> PlannedSums:
        """Return a plan without sums, to be agreed on or added to."""
        K = len(plan.populations)
        sums = MomentSums.zero(plan.size, 2, K, plan.n_groups)
        return cls(plan, sums, PolicySums.zero(plan.n_features, K))

    @property
    def contrasts(self) -> Array | None:
        """How more than two populations are held against each other; None for two."""
        if len(self.plan.populations) == 2:
            return None
        size = self.sums.over_groups().effective_rows[0]  # of outcomes
        return best_contrasts(self.policy, size, self.plan.n_features)

    def in_two_groups(self) -> PlannedSums:
        """Return the sums of the two groups of populations whose contrast tells the most."""
        if (contrasts := self.contrasts) is None:
            return self
        names = tuple(group_names(self.plan.populations, contrasts[0]))
        plan = replace(self.plan, populations=names)
        return replace(self, plan=plan, sums=self.sums.in_two_groups(contrasts[0]))

    def __add__(self, other: PlannedSums) -> PlannedSums:
        """Return these sums with further ones by the same plan."""
        return replace(
            self, sums=self.sums + other.sums, policy=self.policy + other.policy
        )

    def n_rows(self, kind: str, population: int) -> int:
        """Return the number of rows of one cell."""
        return int(self.sums.n_rows[KINDS.index(kind), population].sum())

    def check_complete(self, *, groups: bool) -> None:
        """Refuse sums without one of the cells, or of a group if those are needed."""
        for i, kind in enumerate((OUTCOME, TREATMENT)):
            for name, n_rows in zip(
                self.plan.populations, self.sums.n_rows[i], strict=True
            ):
                if not n_rows.any():
                    raise InputError(
                        f"the sums hold no {kind} rows of population {name!r}. Merge the file "
                        "of the party that has them."
                    )
                if groups and not n_rows.all():
                    raise InputError(
                        f"ridges are chosen by {self.plan.n_groups} groups of rows, but the "
                        f"{kind} rows of population {name!r} fill {np.count_nonzero(n_rows)} of "
                        f"them ({n_rows.sum()} rows). Give more rows, or numbers for ridge_f "
                        "and ridge_g; tables that fit in memory are better fitted with fit."
                    )


def tables_of(found: PlannedSums) -> tuple[TableId, ...]:
    """Return the identities of all tables that were added up, sorted."""
    if found.tables:
        return found.tables
    return tuple(
        TableId(kind, k, found.sums.total(kind, k).digest())
        for kind in (OUTCOME, TREATMENT)
        for k in range(len(found.plan.populations))
        if found.n_rows(kind, k)
    )
