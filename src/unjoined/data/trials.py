"""Turn a fully labelled trial into separate labels, to test on data whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_count,
    check_finite_features,
    check_length,
    check_numeric_columns,
    check_one_per_row,
    check_policies,
    check_probability,
    check_propensity,
    check_treated,
    check_vector,
)
from unjoined.data.columns import column_names
from unjoined.data.labels import SeparateLabels
from unjoined.data.rows import number_matrix, rebuild_frame
from unjoined.errors import InputError


@dataclass(frozen=True, slots=True)
class UnjoinedTrial:
    """The tables made from a trial, two for each population, and where each row came from."""

    data: SeparateLabels
    rows: IntArray  # (data.n_rows,) position of each row in the trial; none occurs twice


def unjoin(
    X: MatrixLike,
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    policies: Mapping[Any, float | Callable[[Array], Array]],
    propensity: ArrayLike | None = None,
    n_per_table: int | None = None,
    random_state: RandomState = None,
) -> UnjoinedTrial:
    r"""Sub-sample a trial into separate tables, as if two policies or more had been at work.

    The rows are dealt at random into two hands for each population. From a hand of population
    :math:`k` a row is kept with probability proportional to
    :math:`p_k(t_i \mid x_i) / p(t_i \mid x_i)`, which leaves :math:`p(x)` and
    :math:`p(y \mid x, t)` as they were and makes :math:`p_k(t \mid x)` the policy (appendix of
    the paper, "Justification of the sub-sampling procedure"). Outcome tables then lose the
    treatment and treatment tables the outcome.

    Parameters
    ----------
    X : array or data frame of shape (n, d)
        Features.
    y : array-like of shape (n,)
        Outcomes.
    treatment : array-like of shape (n,)
        Treatment, coded 0/1, False/True or -1/+1.
    policies : mapping of population name to float or callable
        For each of two populations or more, the probability of treatment: a constant, or a
        function of the feature matrix. Strictly between 0 and 1 is not required.
    propensity : float or array-like of shape (n,), optional
        Known probability of treatment in the trial, strictly between 0 and 1; by default the
        share treated, which is right if treatment was assigned by a coin.
    n_per_table : int, optional
        Keep this many rows in each table; by default all that the sub-sampling gives.
    random_state : int, RandomState or None
        Seed.

    Returns
    -------
    UnjoinedTrial
        An outcome and a treatment table for each population, and the trial's rows they use, each
        at most once.

    Raises
    ------
    InputError
        A policy or the propensity is not a probability, or a table would have too few rows.

    Notes
    -----
    Rows that were not kept are a selection by treatment and no fair test set. Set test rows
    aside *before* calling this.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> trial = paper_problem().draw_joint(4000, random_state=0)
    >>> unjoined = unjoin(
    ...     trial.X, trial.y, trial.treatment, policies={"A": 0.9, "B": 0.2}, random_state=0
    ... )
    >>> [round(cell.label_mean, 1) for cell in unjoined.data.summary()[2:]]
    [0.9, 0.2]
    """
    names = column_names(X)
    check_numeric_columns(X)
    matrix = number_matrix(X)
    check_finite_features(matrix, names)
    n = len(matrix)
    outcome, code = check_vector("y", y), check_vector("treatment", treatment)
    check_length("y", outcome, n)
    check_length("treatment", code, n)
    treated = check_treated(code)
    words = check_policies(policies)
    if n_per_table is not None:
        check_count("n_per_table", n_per_table)
    logged = check_propensity(treated.mean() if propensity is None else propensity, n)
    rng = check_random_state(random_state)
    hands = np.array_split(rng.permutation(n), 2 * len(policies))
    tables = []
    named = list(zip(policies, words, strict=True))
    cells = [(kind, *cell) for kind in (OUTCOME, TREATMENT) for cell in named]
    for hand, (kind, name, word) in zip(hands, cells, strict=True):
        policy = policies[name]
        wanted = policy(matrix) if callable(policy) else policy
        title = f"policies[{name!r}]"
        chance = check_probability(title, check_one_per_row(title, wanted, n))
        kept = _sub_sample(hand, treated, chance, logged, rng)
        tables.append((_first(kept, n_per_table, kind, name), kind, word))
    rows = np.concatenate([table[0] for table in tables])
    sizes = [len(table[0]) for table in tables]
    kinds = np.repeat([table[1] for table in tables], sizes)
    picked = matrix[rows]
    data = SeparateLabels(
        X=picked if names is None else rebuild_frame(picked, names, like=X),
        y=np.where(kinds == OUTCOME, outcome[rows], code[rows]),
        kind=kinds,
        population=np.repeat([table[2] for table in tables], sizes),
    )
    return UnjoinedTrial(data, rows)


def _sub_sample(
    hand: IntArray, treated: BoolArray, wanted: Array, logged: Array, rng: np.random.RandomState
) -> IntArray:
    """Keep each row of ``hand`` with probability proportional to p_k(t|x) / p(t|x)."""
    ratio_treated, ratio_control = wanted / logged, (1.0 - wanted) / (1.0 - logged)
    # The constant must not depend on which treatment a row happened to get, or the kept rows
    # would not have the asked policy: it is the largest ratio either treatment could have.
    bound = max(ratio_treated.max(), ratio_control.max())
    ratio = np.where(treated[hand], ratio_treated[hand], ratio_control[hand])
    kept: IntArray = hand[rng.random_sample(len(hand)) < ratio / bound]
    return kept


def _first(rows: IntArray, n: int | None, kind: str, population: Any) -> IntArray:
    if n is None:
        n = max(len(rows), 1)
    if len(rows) < n:
        raise InputError(
            f"sub-sampling left {len(rows)} rows for the {kind} table of population "
            f"{population!r}, but {n} are needed. Ask for fewer, or for policies closer to the "
            "trial's own."
        )
    return rows[:n]
