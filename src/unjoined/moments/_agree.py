"""Sums across organisations: a plan that discloses no row, and one party's share of the sums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import RandomState
from unjoined._validation import (
    OutcomeCoding,
    check_count,
    check_finite,
    check_names,
    check_positive,
    population_name,
)
from unjoined.data._sources import as_source
from unjoined.errors import InputError
from unjoined.features import FourierBasis, LinearBasis, Scaling, StackedBasis
from unjoined.moments._census import take_census
from unjoined.moments._checkpoint import sum_with_checkpoint
from unjoined.moments._disclosure import (
    MAX_FREQUENCY,
    check_counts,
    check_leverage,
    check_plan,
)
from unjoined.moments._plan import MAX_GROUPS, PlannedSums, SumsPlan

__all__ = ["aggregate_rows", "fourier_plan"]

MIN_COUNT = 10
REPEATED_ROWS = 10_000  # of each cell, of which copies are counted


def fourier_plan(
    features: Mapping[str, tuple[float, float]],
    populations: Sequence[str],
    *,
    outcome_values: tuple[float, float] | None = None,
    n_functions: int | None = None,
    width: float | None = None,
    n_groups: int = 5,
    random_state: RandomState = 0,
) -> SumsPlan:
    r"""Make a plan from what parties may tell each other: names and rough numbers, no rows.

    The functions are a constant, the scaled features and random Fourier features
    :math:`\sqrt{2/p} \cos(\omega^\top x + \theta)`.

    Parameters
    ----------
    features : mapping of name to pair of float
        For each feature a typical value and a typical spread, in its units. Rough numbers do:
        they are a matter of convenience, not of correctness.
    populations : sequence of two str
        Names of the populations, as in the tables.
    outcome_values : pair of float, optional
        The two values of a two-valued outcome, such as (0, 1). None is for real outcomes.
    n_functions : int, optional
        Number of Fourier features, by default three for each feature and at most 30. With p
        functions in all, `aggregate_rows` asks for 2 p outcome rows and p (p + 1) treatment rows
        to a group.
    width : float, optional
        Length scale of the kernel they stand for, in spreads; by default sqrt(2 d), about the
        distance between two people. Widths well below 1 are refused, as functions that fine could
        single out people.
    n_groups : int, default=5
        Groups that ridges are chosen by, 2 to 1000.
    random_state : int or RandomState, default=0
        Draws the Fourier features.

    Examples
    --------
    >>> plan = fourier_plan({"age": (45, 15)}, ["north", "south"], outcome_values=(0, 1))
    >>> plan.basis.size, plan.coding.scale
    (5, 0.5)
    """
    names = _names(populations)
    scaling = _scaling(features)
    if not 2 <= check_count("n_groups", n_groups) <= MAX_GROUPS:
        raise InputError(
            f"n_groups must be 2 to {MAX_GROUPS}, as rows are held out group by group, got "
            f"{n_groups}."
        )
    d = len(features)
    rng = check_random_state(random_state)
    length = np.sqrt(2.0 * d) if width is None else check_positive("width", width)
    size = min(3 * d, 30) if n_functions is None else check_count("n_functions", n_functions)
    frequencies = rng.standard_normal((d, size)) * (np.sqrt(2.0) / length)
    if np.abs(frequencies).max() > MAX_FREQUENCY:
        raise InputError(
            f"width={length:g} makes functions so fine that they could single out people. Pass a "
            f"width of {length * np.abs(frequencies).max() / MAX_FREQUENCY:.2g} or more."
        )
    fourier = FourierBasis(frequencies, rng.uniform(0.0, 2.0 * np.pi, size))
    basis = StackedBasis(LinearBasis(d), fourier)
    return SumsPlan(
        feature_names=tuple(features),
        populations=names,
        coding=_coding(outcome_values),
        scaling=scaling,
        basis=basis,
        critic=basis,
        centring=(),
        n_groups=n_groups,
    )


def _names(populations: Any) -> tuple[str, str]:
    """Return the names of the two populations, sorted."""
    given = _listed(populations)
    check_names(given)
    names = sorted(population_name(name) for name in given)
    if len(names) != 2 or len(set(names)) != 2 or not all(names):
        raise InputError(f"a plan needs two populations with different names, got {populations!r}.")
    return names[0], names[1]


def _listed(values: Any) -> list[Any]:
    """Return what a list or an array holds, and nothing of a text or a number."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []


def _scaling(features: Mapping[str, tuple[float, float]]) -> Scaling:
    """Return what the typical values and spreads of features make."""
    if not features or not all(isinstance(name, str) and name for name in features):
        raise InputError(
            f"a plan needs one feature or more, each with a name, got {list(features)}."
        )
    mean, scale = [], []
    for name, entry in features.items():
        pair = _listed(entry)
        if len(pair) != 2:
            raise InputError(
                f"feature {name!r} needs a typical value and a spread, such as (45, 15), got "
                f"{entry!r}."
            )
        mean.append(check_finite(f"typical value of {name}", pair[0]))
        scale.append(check_positive(f"spread of {name}", pair[1]))
    return Scaling(np.array(mean), np.array(scale))


def _coding(values: Any) -> OutcomeCoding:
    """Return how outcomes are written inside, from the two values that they have, if two."""
    if values is None:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    pair = [check_finite("each of outcome_values", value) for value in _listed(values)]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(f"outcome_values must be two different numbers, got {values!r}.")
    low, high = sorted(pair)
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)


def aggregate_rows(
    source: Any,
    plan: SumsPlan,
    *,
    min_count: int = MIN_COUNT,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
) -> PlannedSums:
    """Add up one party's rows by an agreed plan.

    Parameters
    ----------
    source : ChunkSource, mapping or callable
        Rows of some or all of the four cells, with the plan's features in the plan's order.
    plan : SumsPlan
        As agreed.
    min_count : int, default=10
        Fewest effective rows that a group may have, whatever the number of functions.
    checkpoint : path, optional
        A file that is written about every million rows of the second pass and left where it is.
        If it exists, the pass goes on from there, to the same bits. Keep it to yourself: it is
        written whatever ``min_count`` says.
    n_jobs : int or None, default=None
        Threads; the result does not depend on it.

    Returns
    -------
    PlannedSums

    Raises
    ------
    InputError
        The features are others, or sums would tell the label of a single row: the plan has
        functions other than linear and Fourier ones or too high frequencies, a group has too
        few effective rows for its number of sums, or a row outweighs the others.

    Notes
    -----
    Three passes over the rows: the first counts rows that repeat and looks at treatment codes,
    the second adds up, the third looks for rows that outweigh the others.
    """
    check_plan(plan)
    least = check_count("min_count", min_count)
    rows = as_source(source)
    census = take_census(rows, sample_rows=REPEATED_ROWS)
    if census.n_features != plan.n_features or (
        census.feature_names is not None and census.feature_names != plan.feature_names
    ):
        raise InputError(
            f"the plan is for the features {plan.feature_names or plan.n_features}, the rows have "
            f"{census.feature_names or census.n_features}. Pass the plan's features, in its order."
        )
    found = sum_with_checkpoint(rows, plan, census, checkpoint, n_jobs=n_jobs)
    check_counts(found, least)
    check_leverage(rows, census, found)
    return found
