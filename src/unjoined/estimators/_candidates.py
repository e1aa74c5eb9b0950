"""Candidates of a search: how they are listed, scored row by row, and chosen from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray
from unjoined._validation import shown
from unjoined.errors import InputError
from unjoined.estimators._base import UpliftEstimator
from unjoined.evaluate._held_out import HeldOutRows
from unjoined.features import seeded_clone

__all__ = [
    "Candidate",
    "CandidateScore",
    "CandidateTable",
    "Scored",
    "check_populations",
    "choose",
    "list_candidates",
    "score_folds",
    "score_rows",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One estimator with one setting of its parameters, not fitted."""

    name: str
    params: dict[str, Any]
    estimator: Any


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """How one candidate fared on rows it had not seen."""

    name: str
    params: dict[str, Any]  # those taken from the candidate's grid
    score: float  # higher is better
    behind: float  # by how much the best score is higher, same units
    standard_error: float  # of that difference
    chosen: bool


@dataclass(frozen=True, slots=True, repr=False)
class CandidateTable:
    """The scores of all candidates, in the order they were given."""

    scoring: str
    rows: tuple[CandidateScore, ...]

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.rows)

    def __iter__(self) -> Iterator[CandidateScore]:
        """Go through the candidates in the order they were given."""
        return iter(self.rows)

    def __getitem__(self, name: str) -> CandidateScore:
        """Return the candidate of one name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns, ready for a data frame."""
        names = ("name", "params", "score", "behind", "standard_error", "chosen")
        return {name: [getattr(row, name) for row in self.rows] for name in names}

    def __repr__(self) -> str:
        """Return the table as text, chosen candidates marked."""
        width = max(9, *(len(row.name) for row in self.rows))
        lines = [f"  {'candidate':<{width}}  {self.scoring:>13}  {'behind best':>11}  std. error"]
        lines += [
            f"{'*' if row.chosen else ' '} {row.name:<{width}}  {row.score:>13.5g}  "
            f"{row.behind:>11.3g}  {row.standard_error:>10.2g}"
            for row in self.rows
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of c candidates, and what each of u units adds to their errors."""

    score: Array  # (c,) higher is better
    influence: Array  # (u, c) squares of a difference of columns add up to its variance


def list_candidates(candidates: Sequence[Any], rng: Rng) -> list[Candidate]:
    """Return seeded copies of the candidates, one for each setting of their grids."""
    listed: list[Candidate] = []
    for name, estimator, *grid in candidates:
        settings = list(ParameterGrid(grid[0])) if grid else [{}]
        # One seed for all settings, so that they differ by nothing but the setting.
        seed = int(rng.randint(np.iinfo(np.int32).max))
        for params in settings:
            inside = ", ".join(f"{key}={value!r}" for key, value in params.items())
            copy = seeded_clone(clone(estimator).set_params(**params), check_random_state(seed))
            listed.append(Candidate(f"{name}({inside})" if inside else name, params, copy))
    names = [candidate.name for candidate in listed]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"candidates need different names, but {twice[0]!r} occurs twice.")
    return listed


def check_populations(candidates: Sequence[Any], names: Sequence[Any]) -> None:
    """Refuse candidates that take two populations only if there are more."""
    if len(names) <= 2:
        return
    two_only = []
    for name, estimator, *_ in candidates:
        last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
        # Of estimators that are not ours nothing is known until they are fitted.
        if isinstance(last, UpliftEstimator) and not last._takes_several:
            two_only.append(name)
    if two_only:
        raise InputError(
            f"the candidates {', '.join(map(repr, two_only))} take two populations only, but there "
            f"are {len(names)}: {shown(names)}. Leave them out, or search on two of the "
            "populations. Uplift and MixtureUplift take any number."
        )


def score_rows(held: HeldOutRows, uplift: Array, names: Sequence[str]) -> Scored:
    """Score out-of-fold predictions (repeats, c, n) by one score, or by several together.

    Rows' values are averaged over the repeats: the repeats share the rows, so that they make
    the predictions less dependent on the split but add no rows to the standard error. Several
    scores are brought to the same typical standard error and averaged.
    """
    score = np.zeros(uplift.shape[1])
    influence = np.zeros((len(held.rows.label), uplift.shape[1]))
    for name in names:
        values = np.column_stack(
            [
                np.mean([held.values(f, name) for f in uplift[:, c]], axis=0)
                for c in range(uplift.shape[1])
            ]
        )
        spread = np.column_stack([held.influence(column) for column in values.T])
        unit = _typical_error(spread) * len(names) if len(names) > 1 else 1.0
        score -= held.rows.share @ values / unit
        influence -= spread / unit
    return Scored(score, influence)


def _typical_error(influence: Array) -> float:
    """Return the root mean square standard error of candidates' differences from their mean."""
    apart = influence - influence.mean(axis=1, keepdims=True)
    error = float(np.sqrt(np.mean(np.sum(apart**2, axis=0))))
    return error if error > 0.0 else 1.0  # candidates that never differ


def score_folds(scores: Array) -> Scored:
    """Score by one number per fold, shape (repeats, folds, c), higher being better.

    Without values for single rows the spread over the folds of a repeat has to do.
    """
    n_repeats, n_folds, n_candidates = scores.shape
    apart = scores - scores.mean(axis=1, keepdims=True)
    apart = apart / np.sqrt(n_repeats * n_folds * (n_folds - 1))
    return Scored(scores.mean(axis=(0, 1)), apart.reshape(-1, n_candidates))


def choose(scored: Scored, rule: str) -> tuple[int, BoolArray, Array, Array]:
    """Return the best candidate, those the rule takes, and how far each is behind the best.

    Ties go to the candidate that was given first. The last two arrays are the differences to
    the best score and their standard errors.
    """
    best = int(np.argmax(scored.score))
    behind = scored.score[best] - scored.score
    apart = scored.influence - scored.influence[:, [best]]
    error = np.sqrt(np.sum(apart**2, axis=0))
    within: BoolArray = behind <= error
    first = int(np.argmax(within))
    index = np.arange(len(behind))
    chosen: BoolArray = {"best": index == best, "one_se": index == first, "average": within}[rule]
    return best, chosen, behind, error
