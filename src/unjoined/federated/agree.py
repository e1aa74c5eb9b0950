"""Sums across organisations: a plan that discloses no row, and one party's share of the sums."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import RandomState
from unjoined._validation import (
    LARGEST,
    OUTCOME,
    TREATMENT,
    OutcomeCoding,
    check_count,
    check_finite,
    check_names,
    check_positive,
    population_name,
)
from unjoined.data.sources import as_source
from unjoined.errors import DisclosureWarning, InputError
from unjoined.federated.disclosure import MAX_FREQUENCY, check_counts, check_limits, check_plan
from unjoined.model.basis import FourierBasis, LinearBasis, Scaling, StackedBasis
from unjoined.model.census import take_census
from unjoined.model.moments import MomentSums
from unjoined.model.passes import sum_source
from unjoined.model.plan import MAX_GROUPS, PlannedSums, SumsPlan, TableId, tables_of
from unjoined.model.plan_file import plan_digest

MIN_COUNT = 10
MAX_FUNCTIONS = 5000  # whose sums of one group and table take 200 MB
LOOKED_AT = 10_000  # rows of each cell that show whether the plan's limits hold them
FEW_ROWS = 10.0  # by which two tables differ, so that their difference tells of few people


def fourier_plan(
    features: Mapping[str, tuple[float, float]],
    populations: Sequence[str],
    *,
    outcome_values: tuple[float, float] | None = None,
    n_functions: int | None = None,
    width: float | None = None,
    n_groups: int = 5,
    clip: float | None = None,
    outcome_range: tuple[float, float] | None = None,
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
    populations : sequence of str
        Names of the populations, two or more, as in the tables.
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
    clip : float, optional
        Spreads from the typical value that features are kept within, when rows are added up and
        when the model predicts.
    outcome_range : pair of float, optional
        Lowest and highest outcome, for one of many values: others are moved to the nearer of the
        two. With ``clip`` only.
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
    if size > MAX_FUNCTIONS:
        raise InputError(
            f"n_functions must be {MAX_FUNCTIONS:,} at most, as sums hold about the square of "
            f"that many numbers, got {n_functions:,}."
        )
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
        coding=_coding(outcome_values, outcome_range, clip),
        scaling=scaling,
        basis=basis,
        critic=basis,
        centring=(),
        n_groups=n_groups,
        clip=None if clip is None else check_positive("clip", clip),
    )


def _names(populations: Any) -> tuple[str, ...]:
    """Return the names of the populations, sorted."""
    given = _listed(populations)
    check_names(given)
    names = sorted(population_name(name) for name in given)
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"a plan needs two populations or more with different names, got {populations!r}."
        )
    return tuple(names)


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
        mean.append(_moderate(f"typical value of {name}", pair[0]))
        scale.append(check_positive(f"spread of {name}", pair[1]))
        if not 1.0 / LARGEST <= scale[-1] <= LARGEST:
            raise InputError(
                f"spread of {name} must be {1.0 / LARGEST:g} to {LARGEST:g}, got {scale[-1]!r}. "
                "Change the unit of the feature."
            )
    return Scaling(np.array(mean), np.array(scale))


def _moderate(name: str, value: Any) -> float:
    """Return a number that can be squared and added up."""
    number = check_finite(name, value)
    if abs(number) > LARGEST:
        raise InputError(f"{name} must not be beyond {LARGEST:g}, got {value!r}. Change the unit.")
    return number


def _coding(values: Any, limits: Any, clip: Any) -> OutcomeCoding:
    """Return how outcomes are written inside, from the two values that they have or lie between."""
    if (limits is not None) != (clip is not None and values is None):
        raise InputError(
            "limits are for features and outcomes alike: pass clip, and with it outcome_values for "
            "an outcome of two values or else outcome_range, the lowest and the highest."
        )
    if values is None and limits is None:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    name, given = ("outcome_range", limits) if values is None else ("outcome_values", values)
    pair = [_moderate(f"each of {name}", value) for value in _listed(given)]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(f"{name} must be two different numbers, got {given!r}.")
    low, high = sorted(pair)
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=values is not None)


def aggregate_rows(
    source: Any,
    plan: SumsPlan,
    *,
    min_count: int = MIN_COUNT,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
) -> PlannedSums:
    """Add up one party's rows by an agreed plan.

    Sums are data about people, not anonymous: send them under a contract, as you would rows.

    Parameters
    ----------
    source : ChunkSource, mapping or callable
        Rows of some or all of the cells, with the plan's features in the plan's order.
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
        The features are others, the plan has functions other than linear and Fourier ones or
        too high frequencies, a group has too few effective rows for its number of sums, or one
        table is given for two populations.

    Notes
    -----
    Two passes over the rows: the first looks at labels and at how many rows the plan's limits
    would move, the second adds up.
    """
    check_plan(plan)
    least = check_count("min_count", min_count)
    rows = as_source(source)
    census = take_census(rows, sample_rows=LOOKED_AT)
    if census.n_features != plan.n_features or (
        census.feature_names is not None and census.feature_names != plan.feature_names
    ):
        raise InputError(
            f"the plan is for the features {plan.feature_names or plan.n_features}, the rows have "
            f"{census.feature_names or census.n_features}. Pass the plan's features, in its order."
        )
    check_limits(census, plan)
    found = sum_source(rows, plan, census, checkpoint, n_jobs)
    check_counts(found, least)
    refuse_twins(found)
    return found


def merge_sums(parts: list[PlannedSums]) -> PlannedSums:
    """Add up the sums of several parties.

    Raises
    ------
    InputError
        There is nothing to merge, the plans differ, or two hold the same table, be it within
        sums that were merged before.

    Warns
    -----
    DisclosureWarning
        Two tables differ in few rows: their difference would tell of a few people.
    """
    if not parts:
        raise InputError("there is nothing to merge: give one file of sums or more.")
    digests = [plan_digest(part.plan) for part in parts]
    for i, digest in enumerate(digests):
        if digest != digests[0]:
            raise InputError(
                f"sums {i + 1} were made with another basis, scaling, coding, centring or other "
                f"features than sums 1 (plan {digest[:12]} against {digests[0][:12]}), so they "
                "cannot be added. All parties must use the same plan file."
            )
    refuse_overlap(parts)
    warn_of_differences(parts, stacklevel=2)
    tables = tuple(sorted(table for part in parts for table in tables_of(part)))
    merged = replace(reduce(add, parts), tables=tables)
    refuse_twins(merged)
    return merged


def refuse_twins(found: PlannedSums) -> None:
    """Refuse sums in which one table stands for two populations."""
    first: dict[tuple[str, str], int] = {}
    for table in tables_of(found):
        other = first.setdefault((table.kind, table.digest), table.population)
        if other != table.population:
            names = [found.plan.populations[k] for k in (other, table.population)]
            raise InputError(
                f"the {table.kind} rows of populations {names[0]!r} and {names[1]!r} have the same "
                "sums, as if one table had been given under two names. Give each population its "
                "own rows."
            )


def refuse_overlap(parts: Sequence[PlannedSums]) -> None:
    """Refuse sums of which two hold the same table."""
    first: dict[TableId, int] = {}
    for i, part in enumerate(parts):
        for table in tables_of(part):
            if table in first:
                name = part.plan.populations[table.population]
                raise InputError(
                    f"sums {i + 1} hold the same {table.kind} rows of population {name!r} as sums "
                    f"{first[table] + 1}, and each table is to be counted once. Leave out one of "
                    "the two. If these are different rows after all, aggregate them together."
                )
            first[table] = i


def warn_of_differences(parts: Sequence[PlannedSums], *, stacklevel: int) -> None:
    """Warn of two tables that differ in few rows, whose sums anyone could subtract."""
    for (i, one), (j, two) in combinations(enumerate(parts), 2):
        for kind in (OUTCOME, TREATMENT):
            for k, name in enumerate(one.plan.populations):
                # Of all groups together: rows that are left out move those behind to others.
                first, second = one.sums.total(kind, k), two.sums.total(kind, k)
                if not (first.n_rows and second.n_rows):
                    continue
                n = _rows_apart(first, second)
                if n < FEW_ROWS:
                    warnings.warn(
                        f"sums {i + 1} and {j + 1} differ in about {max(n, 1.0):.0f} of the {kind} "
                        f"rows of population {name!r}. Most rows would be counted twice, and who "
                        "has both files can subtract one from the other and learn about these few "
                        "people. Merge one of the two, and do not pass on both.",
                        DisclosureWarning,
                        stacklevel=stacklevel + 1,
                    )


def _rows_apart(one: MomentSums, two: MomentSums) -> float:
    """Return about how many rows must be added or left out to get from one table to the other."""
    larger = max(one.n_rows, two.n_rows)
    size = np.sqrt(np.maximum(np.diag(one.gram + two.gram), 1e-300) / (one.n_rows + two.n_rows))
    apart = np.linalg.eigvalsh((one.gram - two.gram) / np.outer(size, size))
    # A row adds about the number of functions to the trace; sums of many rows are known to 1e-12.
    rows = float(np.abs(apart).sum()) / len(size)
    return max(abs(one.n_rows - two.n_rows), rows if rows > 1e-9 * larger else 0.0)
