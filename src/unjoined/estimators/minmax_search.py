"""What `MinMaxUplift` settles before it solves: functions, centring, width and ridges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import (
    FourierBasis,
    GaussianBasis,
    ScaledBasis,
    StackedBasis,
)
from unjoined.data import LabelledRows
from unjoined.solve import CRITIC_RIDGE, choose_ridges, score_ridges
from unjoined.sums import (
    GroupedSums,
    MinMaxSystem,
    SumsPlan,
    accumulate,
    assemble,
    combine,
    noise_in_scores,
    sample_cells,
)

WIDTH_ROWS = 10_000  # of each cell that settle the width, where there are many more


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


def add_up(
    plan: SumsPlan, rows: LabelledRows, group: IntArray | None, n_jobs: int | None
) -> GroupedSums:
    """Add up rows whose labels are centred already."""
    return accumulate(plan.values, plan.size, rows, groups=group, n_jobs=n_jobs)


def average(plan: SumsPlan, sums: GroupedSums) -> MinMaxSystem:
    """Average the sums to A, b and C."""
    p_f = None if plan.critic is plan.basis else plan.basis.size
    system = assemble(sums, plan.contrasts, p_f)
    if plan.noise is None:
        return system
    values, vectors = np.linalg.eigh(system.C)  # of sums with noise some may be below 0
    return replace(system, C=(vectors * np.maximum(values, 0.0)) @ vectors.T)


def search_ridges(
    plan: SumsPlan, sums: GroupedSums, ridges: tuple[Array, Array], n_jobs: int | None
) -> tuple[MinMaxSearch, Array]:
    """Choose ridges by leaving out groups of the sums, and return the groups' coefficients too.

    The coefficients, (n_groups, p), are those of the chosen pair, each fitted without the group.
    """
    f, g = ridges
    C = average(plan, sums).C
    scores = score_ridges(_folds(plan, sums), C, ridges_f=f, ridges_g=g, n_jobs=n_jobs)
    score, scale = scores.score, plan.coding.scale**2
    if plan.noise is not None:
        # What noise on the sums does to large coefficients counts against them: with this, the
        # squared error at epsilon = 1 was a fifth lower than without, and steadier.
        penalty = noise_in_scores(plan, sums, C, CRITIC_RIDGE)
        score = score + np.einsum("hgfi,hij,hgfj->hgf", scores.alpha, penalty, scores.alpha)
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
        at = np.sort(np.concatenate(sample_cells(rows.all_cells(), WIDTH_ROWS, rng)))
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
