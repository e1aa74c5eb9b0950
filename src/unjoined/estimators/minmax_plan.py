"""What `MinMaxUplift` settles before it solves: functions, centring, width and ridges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.random import sample_without_replacement

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.evaluate.scores import weighted_values
from unjoined.model.accumulate import accumulate, combine
from unjoined.model.basis import FourierBasis, GaussianBasis, ScaledBasis, Scaling, StackedBasis
from unjoined.model.centring import N_FOLDS, cross_fit_centring, deal_folds, subtract_means
from unjoined.model.draw import auto_centers, draw_basis, has_width, means_basis, rescaled
from unjoined.model.minmax import RIDGES_F, RIDGES_G, choose_ridges, score_ridges
from unjoined.model.moments import GroupedSums
from unjoined.model.plan import (
    Centring,
    MinMaxSystem,
    SumsPlan,
    assemble,
    contrasts_of,
    in_two_groups,
    shared_means,
)

# Pairs (m, q) that are subtracted from labels, and the rows that each is for.
CentringParts = list[tuple[Centring, IntArray]]
WIDTH_FACTORS = (0.5, 1.0, 2.0)  # of the median distance between rows
BASIS_ROWS = 10_000  # that a basis is chosen from, so that not all rows are ever copied
FEW_ROWS = 1000  # in a cell: dealt evenly, since by chance a group might get none of them
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


class Settled(NamedTuple):
    """A plan, how its width was chosen, and what the rows that chose it add up to."""

    plan: SumsPlan
    search: MinMaxSearch | None = None
    sums: GroupedSums | None = None  # by which the search chose its ridges too
    group_coef: Array | None = None  # (n_groups, p) with those ridges, without each group


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
    standardize: bool
    n_jobs: int | None

    @property
    def is_centred(self) -> bool:
        """Whether what features predict of the labels is subtracted."""
        return not isinstance(self.center, bool) or self.center

    @property
    def chooses_ridges(self) -> bool:
        """Whether rows choose one of the ridges."""
        return isinstance(self.ridge_f, str) or isinstance(self.ridge_g, str)

    def draw(
        self,
        rows: LabelledRows,
        n_rows: int,
        rng: np.random.RandomState,
        feature_names: tuple[str, ...] | None,
    ) -> list[SumsPlan]:
        """Draw the functions from some of ``n_rows`` rows: one plan for each width to be tried."""
        scaling = Scaling.identity(rows.X.shape[1])
        if self.standardize:
            scaling = Scaling.of_rows(rows.X, rows.share)
        enough = int(max([BASIS_ROWS, *_numbers(self.n_centers)]))
        at: Any = slice(None)
        if len(rows.X) > enough:
            at = sample_without_replacement(len(rows.X), enough, random_state=rng)
        sample, weight = scaling(rows.X[at]), rows.relative[at]

        def draw(basis: str | Basis, width: float | str) -> Basis:
            smooth = (
                isinstance(basis, str) and basis in ("smooth", "means") and self.n_centers == "auto"
            )
            n = min(auto_centers(n_rows), len(sample)) if smooth else self.n_centers
            return draw_basis(basis, sample, n_centers=n, width=width, rng=rng, weight=weight)

        basis = critic = draw(self.basis, self.width)
        if self.critic_basis is not None:
            critic = draw(self.critic_basis, self.width)
        names = tuple(rows.names)
        plan = SumsPlan(feature_names, names, rows.coding, scaling, basis, critic, (), N_FOLDS)
        warn_if_large(plan.size, n_threads(self.n_jobs), stacklevel=5)
        # A basis that was given stays as it is.
        if self.width != "auto" or not isinstance(self.basis, str) or not has_width(basis):
            return [plan]
        both = isinstance(self.critic_basis, str)
        return [_widened(plan, factor, critic=both) for factor in WIDTH_FACTORS]

    def holds_out(self, tried: Sequence[SumsPlan]) -> bool:
        """Whether groups of rows are left out to settle anything."""
        return self.is_centred or len(tried) > 1 or self.chooses_ridges

    def settle(
        self,
        tried: Sequence[SumsPlan],
        rows: LabelledRows,
        fold: IntArray | None,
        centre: Callable[[SumsPlan], CentringParts],
    ) -> Settled:
        """Choose the width, and fit what is subtracted from labels by ``centre``."""
        plan = tried[len(tried) // 2]
        if fold is None or not (self.is_centred or len(tried) > 1):
            return Settled(plan)
        found, parts = Settled(plan), centre(plan)
        if len(tried) > 1:
            label, gap = subtract_means(rows, parts, n_jobs=self.n_jobs)
            used = replace(rows, label=label) if self.is_centred else rows
            found = self._choose_width(tried, used, fold, gap)
            first = shared_means(parts[0][0], plan.basis, plan.scaling)
            if found.plan is not plan and self.is_centred and first is not None:
                parts = centre(found.plan)  # means were on functions that were given up
        centring = tuple(part for part, _ in parts) if self.is_centred else ()
        return found._replace(plan=replace(found.plan, centring=centring))

    def fit_own_means(
        self, rows: LabelledRows, fold: IntArray, rng: np.random.RandomState, _: SumsPlan
    ) -> CentringParts:
        """Fit what is subtracted from labels, for each fold without it."""
        model = None if isinstance(self.center, bool) else self.center
        return cross_fit_centring(rows, fold, rng, model=model, n_jobs=self.n_jobs)

    def fit_means(
        self, rows: LabelledRows, fold: IntArray, rng: np.random.RandomState, plan: SumsPlan
    ) -> CentringParts:
        """Do the same on the functions of the plan if they are fit for it: one pass for both."""
        basis = means_basis(plan.basis) if plan.critic is plan.basis else None
        if basis is None or not isinstance(self.center, bool):
            return self.fit_own_means(rows, fold, rng, plan)
        space = ScaledBasis(basis, plan.scaling)
        return cross_fit_centring(rows, fold, rng, space=space, n_jobs=self.n_jobs)

    def choose_ridges(
        self, plan: SumsPlan, sums: GroupedSums, search: MinMaxSearch | None
    ) -> tuple[MinMaxSearch | None, Array | None]:
        """Choose ridges by the sums of all rows, if asked, in the place of a sample's choice.

        Also return the coefficients without each group of rows.
        """
        if not self.chooses_ridges:
            return search, None
        final, coef = self._search_ridges(plan, sums)
        return (final if search is None else search.with_ridges_of(final)), coef

    def _search_ridges(self, plan: SumsPlan, sums: GroupedSums) -> tuple[MinMaxSearch, Array]:
        """Choose ridges by leaving out groups of the sums."""
        f = np.array(_numbers(self.ridge_f) or RIDGES_F)
        g = np.array(_numbers(self.ridge_g) or RIDGES_G)
        C = average(plan, sums).C
        scores = score_ridges(_folds(plan, sums), C, ridges_f=f, ridges_g=g, n_jobs=self.n_jobs)
        score, scale = scores.score, plan.coding.scale**2
        choice = choose_ridges(score)
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

    def _choose_width(
        self, tried: Sequence[SumsPlan], rows: LabelledRows, fold: IntArray, gap: Array
    ) -> Settled:
        """Choose among plans of different widths by the weighted risk of held-out predictions.

        ``rows`` have labels as they enter the sums; ``gap`` is the policy gap at every row from
        models that did not see it. One pass per width over the rows, and one for predictions.
        """
        found, risks = [], []
        for plan in tried:
            sums = accumulate(plan.values, plan.size, rows, groups=fold, n_jobs=self.n_jobs)
            search, coef = self._search_ridges(plan, sums)
            found.append(Settled(plan, search, sums, coef))
            risks.append(_risks(plan, rows, fold, gap, coef, self.n_jobs))
        risk = tried[0].coding.scale ** 2 * np.array(risks)  # (n_w, n_folds)
        best = int(np.argmin(risk.mean(axis=1)))
        searches = [one.search for one in found if one.search is not None]
        report = replace(
            searches[0],
            widths=np.concatenate([one.widths for one in searches]),
            score=np.concatenate([one.score for one in searches]),
            standard_error=np.concatenate([one.standard_error for one in searches]),
            risk=risk.mean(axis=1),
            risk_standard_error=(risk - risk[best]).std(axis=1, ddof=1) / np.sqrt(risk.shape[1]),
            chosen=(best, *searches[best].chosen[1:]),
        )
        return found[best]._replace(search=report)


def _numbers(value: float | str) -> list[float]:
    """Return a number as a list, which is empty for a word such as "auto"."""
    return [] if isinstance(value, str) else [float(value)]


def _widened(plan: SumsPlan, factor: float, *, critic: bool) -> SumsPlan:
    """Return the plan with the same centres and another width, of the critic too if asked."""
    basis = rescaled(plan.basis, factor)
    if plan.critic is plan.basis:
        return replace(plan, basis=basis, critic=basis)
    return replace(
        plan, basis=basis, critic=rescaled(plan.critic, factor) if critic else plan.critic
    )


def as_two_groups(rows: LabelledRows, n_jobs: int | None) -> tuple[LabelledRows, Any]:
    """Return rows of several populations as those of two groups, and which rows these are."""
    if len(rows.names) == 2:
        return rows, slice(None)
    return in_two_groups(rows, contrasts_of(rows, n_jobs=n_jobs)[0])


def deal_groups(rows: LabelledRows, rng: np.random.RandomState) -> IntArray:
    """Deal many rows into groups by chance, and evenly if a cell is small."""
    if min(map(len, rows.all_cells())) < FEW_ROWS:
        return deal_folds(rows, rng)
    # From bytes, at a quarter of the cost: groups differ by a percent in size, at the most.
    group: Any = np.frombuffer(rng.bytes(len(rows)), dtype=np.uint8) % np.uint8(N_FOLDS)
    return group  # type: ignore[no-any-return]


def check_groups(rows: LabelledRows, group: IntArray) -> None:
    """Refuse samples so small that a group has no rows of a table."""
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(rows.names):
            at = rows.at(kind, k)
            if len(np.unique(group[at])) < N_FOLDS:
                raise InputError(
                    f"centring and the choice of width hold out {N_FOLDS} groups of rows in turn, "
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


def average(plan: SumsPlan, sums: GroupedSums) -> MinMaxSystem:
    """Average the sums to A, b and C."""
    p_f = None if plan.critic is plan.basis else plan.basis.size
    return assemble(sums, plan.contrasts, p_f)


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

    R(f) = E[w nu f^2] - 4 E[z nu f], as `unjoined.evaluate.weighted_risk` has it, nu being the gap.
    """
    values = ScaledBasis(plan.basis, plan.scaling)
    risks = []
    for j, alpha in enumerate(alphas):
        at = np.flatnonzero(fold == j)
        held_out = rows.take(at)
        f = combine(values, alpha, rows.X, at=at, n_jobs=n_jobs)
        risks.append(held_out.share @ weighted_values(f, held_out, held_out.sign * gap[at]))
    return np.array(risks)


def _width(basis: Basis) -> float:
    if isinstance(basis, StackedBasis):
        widths = [_width(basis.first), _width(basis.second)]
        return widths[1] if np.isnan(widths[0]) else widths[0]
    if isinstance(basis, FourierBasis):  # frequencies have variance 2 / width^2
        return float(np.sqrt(2.0 / np.mean(basis.frequencies**2)))
    return basis.width if isinstance(basis, GaussianBasis) else float("nan")
