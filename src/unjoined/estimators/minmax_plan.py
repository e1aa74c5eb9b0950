"""What `MinMaxUplift` settles before rows are added up: functions, width and centring."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import ScaledBasis, auto_centers, draw_basis, has_width, rescaled
from unjoined.data import LabelledRows
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.estimators.base import scale_features
from unjoined.estimators.minmax_search import MinMaxSearch, search_ridges, search_widths
from unjoined.nuisance import (
    CROSS_FIT_ROWS,
    N_FOLDS,
    cross_fit_centring,
    deal_folds,
    subtract_means,
)
from unjoined.solve import RIDGES_F, RIDGES_G
from unjoined.sums import (
    Centring,
    GroupedSums,
    SumsPlan,
    contrasts_of,
    in_two_groups,
    means_basis,
    take_sample,
)

SAMPLE_ROWS = 10_000  # of each cell
# Pairs (m, q) that are subtracted from labels, and the rows that each is for.
CentringParts = list[tuple[Centring, IntArray]]
WIDTH_FACTORS = (0.5, 1.0, 2.0)  # of the median distance between rows
FEW_ROWS = 1000  # in a cell: dealt evenly, since by chance a fold might get none of them
# Squares of the number of functions that are in memory while ridges are chosen: sums of every
# table and fold, the averages of each fold and of all others, factors. Counted by peak memory.
MATRICES, MATRICES_PER_THREAD = 62, 15
MUCH_MEMORY = 2.0  # gigabytes


def widened(plan: SumsPlan, factor: float, *, critic: bool) -> SumsPlan:
    """Return the plan with the same centres and another width, of the critic too if asked."""
    basis = rescaled(plan.basis, factor)
    if plan.critic is plan.basis:
        return replace(plan, basis=basis, critic=basis)
    return replace(
        plan, basis=basis, critic=rescaled(plan.critic, factor) if critic else plan.critic
    )


def rows_for_basis(n: int, n_centers: int | str, rng: np.random.RandomState) -> Any:
    """Return which of ``n`` rows to choose a basis from, so that not all are ever copied."""
    enough = max(10_000, 0 if isinstance(n_centers, str) else n_centers)
    if n <= enough:
        return slice(None)
    return sample_without_replacement(n, enough, random_state=rng)


def deal_groups(
    cells: list[IntArray], n: int, n_groups: int, rng: np.random.RandomState
) -> IntArray:
    """Deal ``n`` rows into groups by chance, and the rows of small cells evenly."""
    # From bytes, at a quarter of the cost: groups differ by a percent in size, at the most.
    group: Any = np.frombuffer(rng.bytes(n), dtype=np.uint8) % np.uint8(n_groups)
    for at in cells:
        if len(at) < FEW_ROWS:
            group[at] = rng.permutation(np.resize(np.arange(n_groups), len(at)))
    return group  # type: ignore[no-any-return]


def check_groups(rows: LabelledRows, group: IntArray, n_groups: int) -> None:
    """Refuse tables so small that a group hashed from content has no rows."""
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(rows.names):
            at = rows.at(kind, k)
            if len(np.unique(group[at])) < n_groups:
                raise InputError(
                    f"centring and the choice of width hold out {n_groups} groups of rows in turn, "
                    f"but the {len(at)} {kind} rows of population {name!r} do not fill them. "
                    "Tables as small as this are fitted with fit; or pass center=False and a "
                    "number for width."
                )


def warn_if_large(size: int, threads: int, *, stacklevel: int) -> None:
    """Warn, before anything is computed, if the sums of all folds will fill much memory."""
    gigabytes = (MATRICES + MATRICES_PER_THREAD * threads) * 8.0 * size**2 / 1e9
    if gigabytes > MUCH_MEMORY:
        warnings.warn(
            f"this fit multiplies {size} functions with each other and will take about "
            f"{gigabytes:.1f} GB of memory, and time that grows with the cube of their number. "
            "Lower n_centers, pass fewer features, or take basis='smooth', which needs at most one "
            "linear function for twenty rows.",
            UnjoinedWarning,
            stacklevel=stacklevel,
        )


@dataclass(frozen=True, slots=True)
class MinMaxPlanner:
    """The parameters of `MinMaxUplift` that a plan and the choice of ridges depend on."""

    basis: str | Basis
    n_centers: int | str
    width: float | str
    ridge_f: float | str
    ridge_g: float | str
    center: Any
    critic_basis: str | Basis | None
    critic_width: float | str | None
    standardize: bool
    n_jobs: int | None

    @property
    def is_centred(self) -> bool:
        """Whether what features predict of the labels is subtracted."""
        return not isinstance(self.center, bool) or self.center

    @property
    def center_model(self) -> Any:
        """The regressor that was given for it, if any."""
        return None if isinstance(self.center, bool) else self.center

    @property
    def chooses_ridges(self) -> bool:
        """Whether rows choose one of the ridges."""
        return isinstance(self.ridge_f, str) or isinstance(self.ridge_g, str)

    @property
    def ridges(self) -> tuple[Array, Array]:
        """The ridges to choose among, of the uplift and of the critic."""
        f = RIDGES_F if isinstance(self.ridge_f, str) else np.array([float(self.ridge_f)])
        g = RIDGES_G if isinstance(self.ridge_g, str) else np.array([float(self.ridge_g)])
        return f, g

    def draw(
        self,
        rows: LabelledRows,
        n_rows: int,
        rng: np.random.RandomState,
        feature_names: tuple[str, ...] | None,
        n_groups: int = N_FOLDS,
    ) -> list[SumsPlan]:
        """Draw the functions from some of ``n_rows`` rows: one plan for each width to be tried."""
        scaling = scale_features(rows, standardize=self.standardize)
        at = rows_for_basis(len(rows.X), self.n_centers, rng)
        sample, weight = scaling(rows.X[at]), rows.relative[at]

        def draw(basis: str | Basis, width: float | str) -> Basis:
            smooth = isinstance(basis, str) and basis == "smooth" and self.n_centers == "auto"
            n = min(auto_centers(n_rows), len(sample)) if smooth else self.n_centers
            return draw_basis(basis, sample, n_centers=n, width=width, rng=rng, weight=weight)

        basis = critic = draw(self.basis, self.width)
        if self.critic_basis is not None:
            width = self.width if self.critic_width is None else self.critic_width
            critic = draw(self.critic_basis, width)
        plan = SumsPlan(
            feature_names=feature_names,
            populations=tuple(rows.names),
            coding=rows.coding,
            scaling=scaling,
            basis=basis,
            critic=critic,
            centring=(),
            n_groups=n_groups,
        )
        warn_if_large(plan.size, n_threads(self.n_jobs), stacklevel=6)
        # A basis that was given stays as it is.
        if self.width != "auto" or not isinstance(self.basis, str) or not has_width(basis):
            return [plan]
        both = self.critic_width is None and isinstance(self.critic_basis, str)
        return [widened(plan, factor, critic=both) for factor in WIDTH_FACTORS]

    def settle(
        self,
        tried: list[SumsPlan],
        rows: LabelledRows,
        fold: IntArray,
        centre: Callable[[SumsPlan], CentringParts],
    ) -> tuple[SumsPlan, MinMaxSearch | None]:
        """Choose the width by a sample, and fit what is subtracted from labels."""
        plan, parts, search = tried[len(tried) // 2], [], None
        if self.is_centred or len(tried) > 1:
            parts = centre(plan)
        if len(tried) > 1:
            first = plan
            label, gap = subtract_means(rows, parts, n_jobs=self.n_jobs)
            used = replace(rows, label=label) if self.is_centred else rows
            plan, _, search, _ = search_widths(tried, used, fold, gap, self.ridges, self.n_jobs)
            if plan is not first and self.is_centred and self._means_basis(plan) is not None:
                parts = centre(plan)
        centring = tuple(part for part, _ in parts) if self.is_centred else ()
        return replace(plan, centring=centring), search

    def fit_means(
        self, plan: SumsPlan, rows: LabelledRows, fold: IntArray, rng: np.random.RandomState
    ) -> CentringParts:
        """Fit what is subtracted from labels: for each fold without it, or with one fold to all."""
        space, model = self._means_basis(plan), self.center_model
        return cross_fit_centring(rows, fold, rng, model=model, space=space, n_jobs=self.n_jobs)

    def _means_basis(self, plan: SumsPlan) -> ScaledBasis | None:
        """Return the functions to centre on, if they can be those of the sums."""
        if plan.critic is not plan.basis or not isinstance(self.center, bool):
            return None
        basis = means_basis(plan.basis)
        return None if basis is None else ScaledBasis(basis, plan.scaling)

    def choose_ridges(
        self, plan: SumsPlan, sums: GroupedSums, search: MinMaxSearch | None
    ) -> tuple[MinMaxSearch | None, Array | None]:
        """Choose ridges by the sums of all rows, if asked, in the place of a sample's choice.

        Also return the coefficients without each group of rows.
        """
        if not self.chooses_ridges:
            return search, None
        final, alphas = search_ridges(plan, sums, self.ridges, self.n_jobs)
        return (final if search is None else search.with_ridges_of(final)), alphas

    def plan_many(
        self, rows: LabelledRows, rng: np.random.RandomState, feature_names: tuple[str, ...] | None
    ) -> tuple[SumsPlan, MinMaxSearch | None, IntArray | None]:
        """Settle the plan by a sample, and deal all rows into groups if ridges are chosen."""
        cells = rows.all_cells()
        sample = take_sample(rows, cells, SAMPLE_ROWS, rng)
        fold, group, n_groups = np.zeros(len(sample.X), dtype=np.int64), None, 1
        if self.is_centred or self.chooses_ridges or self.width == "auto":
            fold = deal_folds(sample, rng)
        if self.chooses_ridges:
            n_groups = int(fold.max()) + 1
            group = deal_groups(cells, len(rows.X), n_groups, rng)

        def centre(plan: SumsPlan) -> CentringParts:
            # Rows that the means have seen are too few to matter.
            seen = take_sample(rows, cells, SAMPLE_ROWS // 2, rng)
            everything = np.zeros(len(seen.X), dtype=np.int64)
            ((centring, _),) = self.fit_means(plan, seen, everything, rng)
            return [(centring, np.arange(len(sample.X)))]

        tried = self.draw(sample, len(rows.X), rng, feature_names, n_groups)
        return *self.settle(tried, sample, fold, centre), group

    def plan_several(
        self, rows: LabelledRows, rng: np.random.RandomState, feature_names: tuple[str, ...] | None
    ) -> tuple[SumsPlan, MinMaxSearch | None, IntArray]:
        """Settle the plan for more than two populations, and deal all rows into groups."""
        many, cells = len(rows.X) > CROSS_FIT_ROWS, rows.all_cells()
        sample = take_sample(rows, cells, SAMPLE_ROWS, rng) if many else rows
        fold = deal_folds(sample, rng)
        n = int(fold.max()) + 1
        group = deal_groups(cells, len(rows.X), n, rng) if many else fold
        planned = self.plan_sample(sample, fold, n, len(rows.X), feature_names, rng)
        return *planned, group

    def plan_sample(
        self,
        rows: LabelledRows,
        group: IntArray,
        n_groups: int,
        n_rows: int,
        feature_names: tuple[str, ...] | None,
        rng: np.random.RandomState,
    ) -> tuple[SumsPlan, MinMaxSearch | None]:
        """Settle the plan by some of ``n_rows`` rows, more than two populations in two groups."""
        names = tuple(rows.names)
        if len(names) > 2:
            rows, at = in_two_groups(rows, contrasts_of(rows, n_jobs=self.n_jobs)[0])
            group = group[at]
        tried = self.draw(rows, n_rows, rng, feature_names, n_groups)
        if self.is_centred or len(tried) > 1:
            check_groups(rows, group, n_groups)
        plan, search = self.settle(
            tried, rows, group, lambda plan: self.fit_means(plan, rows, group, rng)
        )
        return replace(plan, populations=names), search
