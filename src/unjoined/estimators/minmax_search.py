"""Ridges and width of `MinMaxUplift` from rows held out in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.basis import (
    FourierBasis,
    GaussianBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
    has_width,
    rescaled,
)
from unjoined.data import LabelledRows
from unjoined.solve import FoldScores, choose_ridges, score_folds
from unjoined.sums import (
    GroupedSums,
    MinMaxSystem,
    accumulate,
    assemble,
    cell_positions,
    combine,
    sample_cells,
)

WIDTH_FACTORS = (0.5, 1.0, 2.0)  # of the median distance between rows


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


@dataclass(frozen=True, slots=True)
class Spaces:
    """The functions of the uplift and of the critic, usually the same object."""

    scaling: Scaling
    uplift: Basis
    critic: Basis

    def sums(
        self, rows: LabelledRows, *, groups: IntArray | None, n_jobs: int | None
    ) -> GroupedSums:
        """Pass over the rows once."""
        same = self.critic is self.uplift
        both = self.uplift if same else StackedBasis(self.uplift, self.critic)
        values = ScaledBasis(both, self.scaling)
        return accumulate(values, both.size, rows, groups=groups, n_jobs=n_jobs)

    def system(self, sums: GroupedSums) -> MinMaxSystem:
        """Average the sums for A, b and C."""
        found = assemble(sums)
        return found if self.critic is self.uplift else found.split(self.uplift.size)

    def widened(self, factor: float, *, critic: bool) -> Spaces:
        """Return the same centres with another width; the critic's too, if asked."""
        if self.critic is self.uplift:
            basis = rescaled(self.uplift, factor)
            return Spaces(self.scaling, basis, basis)
        return Spaces(
            self.scaling,
            rescaled(self.uplift, factor),
            rescaled(self.critic, factor) if critic else self.critic,
        )


def candidates(spaces: Spaces, width: float | str, *, critic: bool) -> list[Spaces]:
    """Return the spaces to choose among: one, or one per width."""
    if width != "auto" or not has_width(spaces.uplift):
        return [spaces]
    return [spaces.widened(factor, critic=critic) for factor in WIDTH_FACTORS]


def search(
    tried: Sequence[Spaces],
    rows: LabelledRows,
    fold: IntArray,
    gap: Array | None,
    *,
    ridges_f: Array,
    ridges_g: Array,
    n_jobs: int | None,
) -> tuple[Spaces, MinMaxSystem, MinMaxSearch]:
    """Choose spaces and ridges, and return the chosen problem over all rows.

    Parameters
    ----------
    tried : sequence of Spaces
        One per width.
    rows : LabelledRows
        Labels as they enter the problem, centred or not.
    fold : array of shape (n,)
        Which rows are held out together.
    gap : array of shape (n,) or None
        Policy gap at every row from models that did not see it; needed for several widths.
    ridges_f, ridges_g : arrays
        Candidates; one value each if a ridge is given.

    Notes
    -----
    One pass over the rows per width, and one more for predictions if there are several. With more
    than 80,000 rows the width is chosen by 10,000 of each cell, which settle one number, and
    there is one pass over all.
    """
    if len(tried) > 1 and len(rows.label) > 8 * WIDTH_ROWS:
        return _search_in_two(
            tried, rows, fold, gap, ridges_f=ridges_f, ridges_g=ridges_g, n_jobs=n_jobs
        )
    scale = rows.coding.scale**2
    systems, choices, risks = [], [], []
    for spaces in tried:
        sums = spaces.sums(rows, groups=fold, n_jobs=n_jobs)
        systems.append(spaces.system(sums))
        scores = score_folds(
            _folds(spaces, sums),
            systems[-1].C,
            ridges_f=ridges_f,
            ridges_g=ridges_g,
            n_jobs=n_jobs,
        )
        choices.append(choose_ridges(scores.score))
        risks.append(
            np.full(len(scores.score), np.nan)
            if gap is None
            else _risks(spaces, rows, fold, gap, scores, choices[-1].chosen, n_jobs)
        )
    risk = scale * np.array(risks)  # (n_w, n_folds)
    best = 0 if gap is None else int(np.argmin(risk.mean(axis=1)))
    behind = (risk - risk[best]).std(axis=1, ddof=1) / np.sqrt(risk.shape[1])
    report = MinMaxSearch(
        widths=np.array([_width(spaces.uplift) for spaces in tried]),
        ridges_f=ridges_f,
        ridges_g=ridges_g,
        score=scale * np.array([choice.mean for choice in choices]),
        standard_error=scale * np.array([choice.standard_error for choice in choices]),
        risk=risk.mean(axis=1),
        risk_standard_error=behind,
        chosen=(best, *choices[best].chosen),
    )
    return tried[best], systems[best], report


def _search_in_two(
    tried: Sequence[Spaces],
    rows: LabelledRows,
    fold: IntArray,
    gap: Array | None,
    **options: Any,
) -> tuple[Spaces, MinMaxSystem, MinMaxSearch]:
    """Choose the width by some of the rows, then ridges by all."""
    rng = np.random.RandomState(0)  # which rows settle the width is no matter of the user's seed
    some = np.sort(np.concatenate(sample_cells(cell_positions(rows), WIDTH_ROWS, rng)))
    few = None if gap is None else gap[some]
    spaces, _, report = search(tried, rows.take(some), fold[some], few, **options)
    _, system, final = search([spaces], rows, fold, None, **options)
    return spaces, system, report.with_ridges_of(final)


def _folds(spaces: Spaces, sums: GroupedSums) -> list[tuple[MinMaxSystem, MinMaxSystem]]:
    """Return for each fold the averages over the other rows and over its own."""
    folds = []
    for group in sums.groups:
        # Adding up the other groups loses no digits; subtracting one from the total would.
        rest = {key: part for key, part in sums.cells.items() if key.group != group}
        held = sums.of_group(group)
        folds.append((spaces.system(GroupedSums(sums.p, rest)), spaces.system(held)))
    return folds


def _risks(
    spaces: Spaces,
    rows: LabelledRows,
    fold: IntArray,
    gap: Array,
    scores: FoldScores,
    chosen: tuple[int, int],
    n_jobs: int | None,
) -> Array:
    """Return the weighted risk of each fold's predictions, from coefficients without it.

    R(f) = E[w nu f^2] - 4 E[z nu f], as `unjoined.metrics.weighted_risk` has it, nu being the gap.
    """
    values = ScaledBasis(spaces.uplift, spaces.scaling)
    risks = np.zeros(len(scores.score))
    for j, alpha in enumerate(scores.alpha[:, *chosen]):
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


def some_rows(n: int, n_centers: int | str, rng: np.random.RandomState) -> Any:
    """Return which of ``n`` rows to choose a basis from, so that not all are ever copied."""
    enough = max(10_000, 0 if isinstance(n_centers, str) else n_centers)
    if n <= enough:
        return slice(None)
    return sample_without_replacement(n, enough, random_state=rng)
