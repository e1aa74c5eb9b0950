"""What is fixed before the pass that adds up, and the sums that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.errors import InputError
from unjoined.features import Basis, Scaling, StackedBasis
from unjoined.features._basis import ScaledBasis
from unjoined.moments._accumulate import accumulate_policies
from unjoined.moments._cell_means import CellMeans
from unjoined.moments._center import Centring, _by_chunks
from unjoined.moments._grouped import CellKey, GroupedSums
from unjoined.moments._policy_sums import PolicySums
from unjoined.moments._rows import LabelledRows
from unjoined.moments._shared_means import shared_means

__all__ = ["PlannedSums", "SumsPlan", "TableId"]

MAX_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class SumsPlan:
    """Everything that turns a row into its share of the sums, fixed before the first row.

    Parties that agree on a plan can add up their rows apart and merge the sums.

    Parameters
    ----------
    feature_names : tuple of str or None
        The features, in order.
    populations : pair
        Names of the two populations, sorted; the first has the positive sign.
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
    single : bool, default=False
        Whether basis values are in single precision.
    """

    feature_names: tuple[str, ...] | None
    populations: tuple[Any, Any]
    coding: OutcomeCoding
    scaling: Scaling
    basis: Basis
    critic: Basis
    centring: tuple[Centring, ...]
    n_groups: int
    single: bool = False

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

    def sums(
        self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None
    ) -> tuple[GroupedSums, PolicySums]:
        """Add up checked rows with labels not yet centred; ``group`` is None if all are one.

        Centring on the basis of the sums is part of their pass; any other comes before it.
        """
        means, centred = self._means(), None
        if self.centring and means is None:
            centred = self.centred(rows.X, rows.label, rows.kind, group, n_jobs=n_jobs)
        return accumulate_policies(
            self.values,
            self.size,
            rows,
            self.scaling,
            groups=group,
            means=means,
            centred=centred,
            single=self.single,
            n_jobs=n_jobs,
        )

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
            cells = {CellKey(kind, k, group): means[kind] for kind in means for k in (0, 1)}
            found.update(cells)
        return found

    def centred(
        self, X: Array, label: Array, kind: Any, group: IntArray | None, *, n_jobs: int | None
    ) -> Array:
        """Return labels less what the features predict of them, a new array."""
        found = label.copy()
        for j, centring in enumerate(self.centring):
            several = len(self.centring) > 1
            at = np.flatnonzero(group == j) if several else np.arange(len(label))
            if len(at):
                m, q, _ = _by_chunks(centring, X, at, n_jobs)
                found[at] -= np.where(kind[at] == OUTCOME, m, q)
        return found


class TableId(NamedTuple):
    """What the sums of one table are known by."""

    kind: str
    population: int
    digest: str  # 32 hexadecimal digits


@dataclass(frozen=True, slots=True)
class PlannedSums:
    """Sums and the plan they were made by: all that `MinMaxUplift.fit_moments` needs."""

    plan: SumsPlan
    sums: GroupedSums
    policy: PolicySums
    tables: tuple[TableId, ...] = ()  # those merged; empty for sums of one pass

    def n_rows(self, kind: str, population: int) -> int:
        """Return the number of rows of one cell."""
        cells = self.sums.cells.items()
        return sum(s.n_rows for k, s in cells if (k.kind, k.population) == (kind, population))

    def check_complete(self, *, groups: bool) -> None:
        """Refuse sums without one of the four cells, or of a group if those are needed."""
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
