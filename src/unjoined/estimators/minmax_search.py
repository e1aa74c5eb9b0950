"""What `MinMaxUplift` settles before it solves: functions, centring, width and ridges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import (
    FourierBasis,
    GaussianBasis,
    ScaledBasis,
    StackedBasis,
    auto_centers,
    draw_basis,
    has_width,
    rescaled,
)
from unjoined.data import LabelledRows
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.estimators.base import scale_features
from unjoined.nuisance import N_FOLDS, cross_fit_centring, subtract_means
from unjoined.solve import RIDGES_F, RIDGES_G, choose_ridges, score_ridges
from unjoined.sums import (
    Centring,
    GroupedSums,
    MinMaxSystem,
    SumsPlan,
    accumulate,
    assemble,
    cell_positions,
    combine,
    means_basis,
    sample_cells,
)

# Pairs (m, q) that are subtracted from labels, and the rows that each is for.
CentringParts = list[tuple[Centring, IntArray]]
WIDTH_FACTORS = (0.5, 1.0, 2.0)  # of the median distance between rows
WIDTH_ROWS = 10_000  # of each cell that settle the width, where there are many more
FEW_ROWS = 1000  # in a cell: dealt evenly, since by chance a fold might get none of them
# Squares of the number of functions that are in memory while ridges are chosen: sums of every
# table and fold, the averages of each fold and of all others, factors. Counted by peak memory.
MATRICES, MATRICES_PER_THREAD = 62, 15
MUCH_MEMORY = 2.0  # gigabytes


@dataclass(frozen=True, slots=True)
class MinMaxSearch:
    """What was tried for ridges and width, and what was chosen.

    Within a width, ridges are compared by the fixed-critic score: what the best critic on the
    held-out rows can still object to. Widths are compared by the weighted risk of held-out
    predictions, as critics of different widths are no common judge. Both in squared outcome
    units; lower is better, only differences mean something.
    """

    widths: Array  # (n_w,) units of the scaled features; NaN for a basis without width
    ridges_f: Array  # (n_f,)
    ridges_g: Array  # (n_g,)
    score: Array  # (n_w, n_g, n_f) mean over folds
    standard_error: Array  # (n_w, n_g, n_f) of the difference to the width's best pair
    risk: Array  # (n_w,) of each width's chosen pair; NaN if there is one width only
    risk_standard_error: Array  # (n_w,) of the difference to the chosen width's
    chosen: tuple[int, int, int]  # positions in widths, ridges_g and ridges_f

    @property
    def width(self) -> float:
        """The width chosen."""
        return float(self.widths[self.chosen[0]])

    @property
    def ridge_g(self) -> float:
        """The critic's ridge chosen."""
        return float(self.ridges_g[self.chosen[1]])

    @property
    def ridge_f(self) -> float:
        """The uplift's ridge chosen."""
        return float(self.ridges_f[self.chosen[2]])

    def with_ridges_of(self, final: MinMaxSearch) -> MinMaxSearch:
        """Return this choice of width with the ridges that more rows chose for it."""
        best = self.chosen[0]
        score, error = self.score.copy(), self.standard_error.copy()
        score[best], error[best] = final.score[0], final.standard_error[0]
        return replace(self, score=score, standard_error=error, chosen=(best, *final.chosen[1:]))


def widened(plan: SumsPlan, factor: float, *, critic: bool) -> SumsPlan:
    """Return the plan with the same centres and another width, of the critic too if asked."""
    basis = rescaled(plan.basis, factor)
    if plan.critic is plan.basis:
        return replace(plan, basis=basis, critic=basis)
    return replace(
        plan, basis=basis, critic=rescaled(plan.critic, factor) if critic else plan.critic
    )


def add_up(
    plan: SumsPlan, rows: LabelledRows, group: IntArray | None, n_jobs: int | None
) -> GroupedSums:
    """Add up rows whose labels are centred already."""
    return accumulate(plan.values, plan.size, rows, groups=group, n_jobs=n_jobs)


def average(plan: SumsPlan, sums: GroupedSums) -> MinMaxSystem:
    """Average the sums to A, b and C."""
    p_f = None if plan.critic is plan.basis else plan.basis.size
    return assemble(sums, plan.contrasts, p_f)


def search_ridges(
    plan: SumsPlan, sums: GroupedSums, ridges: tuple[Array, Array], n_jobs: int | None
) -> tuple[MinMaxSearch, Array]:
    """Choose ridges by leaving out groups of the sums, and return the groups' coefficients too.

    The coefficients, (n_groups, p), are those of the chosen pair, each fitted without the group.
    """
    f, g = ridges
    C = average(plan, sums).C
    scores = score_ridges(_folds(plan, sums), C, ridges_f=f, ridges_g=g, n_jobs=n_jobs)
    choice, scale = choose_ridges(scores.score), plan.coding.scale**2
    search = MinMaxSearch(
        widths=np.array([_width(plan.basis)]),
        ridges_f=f,
        ridges_g=g,
        score=scale * choice.mean[None],
        standard_error=scale * choice.standard_error[None],
        risk=np.array([np.nan]),
        risk_standard_error=np.array([np.nan]),
        chosen=(0, *choice.chosen),
    )
    return search, scores.alpha[:, *choice.chosen]


def search_widths(
    tried: Sequence[SumsPlan],
    rows: LabelledRows,
    fold: IntArray,
    gap: Array,
    ridges: tuple[Array, Array],
    n_jobs: int | None,
) -> tuple[SumsPlan, MinMaxSystem | None, MinMaxSearch, Array]:
    """Choose among plans of different widths by the weighted risk of held-out predictions.

    ``rows`` have labels as they enter the sums; ``gap`` is the policy gap at every row from
    models that did not see it. One pass per width over the rows, and one for predictions. Above
    80,000 rows 10,000 of each cell settle the width, which is one number. Otherwise the chosen
    plan's averages over all rows are returned as well. The last part are the coefficients
    without each fold.
    """
    many = len(rows.label) > 8 * WIDTH_ROWS
    if many:
        rng = np.random.RandomState(0)  # which rows settle it is no matter of the user's seed
        at = np.sort(np.concatenate(sample_cells(cell_positions(rows), WIDTH_ROWS, rng)))
        rows, fold, gap = rows.take(at), fold[at], gap[at]
    systems, searches, risks, coefs = [], [], [], []
    for plan in tried:
        sums = add_up(plan, rows, fold, n_jobs)
        systems.append(average(plan, sums))
        one, alphas = search_ridges(plan, sums, ridges, n_jobs)
        searches.append(one)
        coefs.append(alphas)
        risks.append(_risks(plan, rows, fold, gap, alphas, n_jobs))
    risk = tried[0].coding.scale ** 2 * np.array(risks)  # (n_w, n_folds)
    best = int(np.argmin(risk.mean(axis=1)))
    report = replace(
        searches[0],
        widths=np.concatenate([one.widths for one in searches]),
        score=np.concatenate([one.score for one in searches]),
        standard_error=np.concatenate([one.standard_error for one in searches]),
        risk=risk.mean(axis=1),
        risk_standard_error=(risk - risk[best]).std(axis=1, ddof=1) / np.sqrt(risk.shape[1]),
        chosen=(best, *searches[best].chosen[1:]),
    )
    return tried[best], None if many else systems[best], report, coefs[best]


def _folds(plan: SumsPlan, sums: GroupedSums) -> list[tuple[MinMaxSystem, MinMaxSystem]]:
    """Return for each fold the averages over the other rows and over its own."""
    folds = []
    for group in sums.groups:
        # Adding up the other groups loses no digits; subtracting one from the total would.
        rest = {key: part for key, part in sums.cells.items() if key.group != group}
        held = sums.of_group(group)
        folds.append((average(plan, GroupedSums(sums.p, rest)), average(plan, held)))
    return folds


def _risks(
    plan: SumsPlan,
    rows: LabelledRows,
    fold: IntArray,
    gap: Array,
    alphas: Array,
    n_jobs: int | None,
) -> Array:
    """Return the weighted risk of each fold's predictions, from coefficients without it.

    R(f) = E[w nu f^2] - 4 E[z nu f], as `unjoined.metrics.weighted_risk` has it, nu being the gap.
    """
    values = ScaledBasis(plan.basis, plan.scaling)
    risks = np.zeros(len(alphas))
    for j, alpha in enumerate(alphas):
        for k, sign in enumerate((1.0, -1.0)):
            for kind in (OUTCOME, TREATMENT):
                at = rows.at(kind, k)
                at = at[fold[at] == j]
                f = combine(values, alpha, rows.X, at=at, n_jobs=n_jobs)
                term = f**2 if kind == TREATMENT else -4.0 * f
                mean = np.average(rows.label[at] * gap[at] * term, weights=rows.weight[at])
                risks[j] += sign / 2.0 * mean
    return risks


def _width(basis: Basis) -> float:
    if isinstance(basis, StackedBasis):
        widths = [_width(basis.first), _width(basis.second)]
        return widths[1] if np.isnan(widths[0]) else widths[0]
    if isinstance(basis, FourierBasis):  # frequencies have variance 2 / width^2
        return float(np.sqrt(2.0 / np.mean(basis.frequencies**2)))
    return basis.width if isinstance(basis, GaussianBasis) else float("nan")


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
