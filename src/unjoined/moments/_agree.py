"""Sums across organisations: a plan that discloses no row, and one party's share of the sums."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import RandomState
from unjoined._validation import OutcomeCoding, check_count, check_finite, check_positive
from unjoined.data._sources import as_source
from unjoined.errors import InputError
from unjoined.features import FourierBasis, LinearBasis, Scaling, StackedBasis
from unjoined.moments._census import take_census
from unjoined.moments._checkpoint import sum_with_checkpoint
from unjoined.moments._plan import PlannedSums, SumsPlan
from unjoined.moments._sums_file import MIN_COUNT, check_min_count

__all__ = ["aggregate_rows", "fourier_plan"]

REPEATED_ROWS = 10_000  # of each cell, of which copies are counted


def fourier_plan(
    features: Mapping[str, tuple[float, float]],
    populations: Sequence[str],
    *,
    outcome_values: tuple[float, float] | None = None,
    n_functions: int = 100,
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
    n_functions : int, default=100
        Number of Fourier features.
    width : float, optional
        Length scale of the kernel they stand for, in spreads; by default sqrt(2 d), about the
        distance between two people.
    n_groups : int, default=5
        Groups that ridges are chosen by, at least 2.
    random_state : int or RandomState, default=0
        Draws the Fourier features.

    Examples
    --------
    >>> plan = fourier_plan({"age": (45, 15)}, ["north", "south"], outcome_values=(0, 1))
    >>> plan.basis.size, plan.coding.scale
    (102, 0.5)
    """
    names = sorted(str(name) for name in populations)
    if len(names) != 2 or len(set(names)) != 2 or "" in names or not features:
        raise InputError(
            f"a plan needs two populations and one feature or more, got {names} and "
            f"{list(features)}."
        )
    if check_count("n_groups", n_groups) < 2:
        raise InputError("n_groups must be 2 or more: rows are held out group by group.")
    d = len(features)
    mean = np.array([check_finite(f"typical value of {k}", v) for k, (v, _) in features.items()])
    scale = np.array([check_positive(f"spread of {k}", v) for k, (_, v) in features.items()])
    rng = check_random_state(random_state)
    length = np.sqrt(2.0 * d) if width is None else check_positive("width", width)
    size = check_count("n_functions", n_functions)
    frequencies = rng.standard_normal((d, size)) * (np.sqrt(2.0) / length)
    fourier = FourierBasis(frequencies, rng.uniform(0.0, 2.0 * np.pi, size))
    basis = StackedBasis(LinearBasis(d), fourier)
    return SumsPlan(
        feature_names=tuple(features),
        populations=(names[0], names[1]),
        coding=_coding(outcome_values),
        scaling=Scaling(mean, scale),
        basis=basis,
        critic=basis,
        centring=(),
        n_groups=n_groups,
    )


def _coding(values: tuple[float, float] | None) -> OutcomeCoding:
    if values is None:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    low, high = sorted(check_finite("outcome_values", value) for value in values)
    if low == high:
        raise InputError(f"outcome_values must be two different numbers, got {values!r}.")
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
        Fewest rows that a sum may be over.
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
        The features are others, or a group has fewer rows than ``min_count``.

    Notes
    -----
    Two passes over the rows: the first counts rows that repeat and looks at treatment codes.
    """
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
    check_min_count(found, check_count("min_count", min_count))
    return found
