"""Sums across organisations: a plan that discloses no row, and one party's share of the sums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    OutcomeCoding,
    check_count,
    check_finite,
    check_names,
    check_positive,
    population_name,
)
from unjoined.basis import FourierBasis, LinearBasis, Scaling, StackedBasis
from unjoined.data import ChunkSource, LabelledRows, as_source
from unjoined.errors import InputError
from unjoined.sums.census import Census, take_census
from unjoined.sums.checks import refuse_overlap, tables_of, warn_of_differences
from unjoined.sums.files import sum_with_checkpoint
from unjoined.sums.moments import CellKey, GroupedSums, MomentSums
from unjoined.sums.noise import GaussianNoise, function_sizes, with_noise, with_policies_of_sums
from unjoined.sums.passes import labelled_batches
from unjoined.sums.plan import MAX_GROUPS, PlannedSums, SumsPlan
from unjoined.sums.plan_file import plan_digest
from unjoined.sums.policies import PolicySums, policy_design

# Radians per spread: no function goes through a whole period within one spread of a feature.
MAX_FREQUENCY = 2.0 * np.pi
MAX_SPREADS = 10.0  # standard deviation of a scaled feature, else frequencies are higher than said
# Labels of two values can be solved for if there are more equations than half of the rows
# (Mangasarian and Recht, 2011).
ROWS_PER_SUM = 2
MAX_SHARE = 0.5  # of one row, as in the dominance rule of statistical offices
COLLINEAR = 1e-12  # of the largest eigenvalue: below, a direction that no row has


def check_plan(plan: SumsPlan) -> None:
    """Refuse a plan whose functions could be aimed at a row."""
    found = _functions_of(plan)
    if found is not None:
        raise InputError(
            f"the plan holds {found}, by which a single row could be singled out, and nothing was "
            "added up. A plan may hold a constant, the features and Fourier functions that are not "
            "too fine. Make one with fourier_plan or `unjoined plan`."
        )


def _functions_of(plan: SumsPlan) -> str | None:
    """Return what a plan holds that is not accepted, None if there is no such thing."""
    first: Basis = plan.basis
    second: Basis | None = None
    if isinstance(plan.basis, StackedBasis):
        first, second = plan.basis.first, plan.basis.second
    if plan.critic is not plan.basis:
        return "functions of the critic's own"
    if plan.centring:
        return "functions to be subtracted from the labels"
    if not isinstance(first, LinearBasis) or not isinstance(second, FourierBasis | None):
        names = [type(part).__name__ for part in (first, second) if part is not None]
        return f"functions of other kinds ({' and '.join(names)})"
    if second is not None and np.abs(second.frequencies).max() > MAX_FREQUENCY:
        highest = float(np.abs(second.frequencies).max())
        return (
            f"frequencies of up to {highest:.3g} per spread, where {MAX_FREQUENCY:.3g} is allowed"
        )
    return None


def check_counts(found: PlannedSums, min_count: int) -> None:
    """Refuse sums over few effective rows, and scales far from the rows' own."""
    tables = {key[:2] for key in found.sums.cells}
    none = MomentSums.zero(found.plan.size)
    for key in sorted(CellKey(*table, g) for table in tables for g in range(found.plan.n_groups)):
        cell = found.sums.cells.get(key, none)
        p = found.plan.size
        sums = p if key.kind == OUTCOME else p * (p + 1) // 2
        least = max(min_count, ROWS_PER_SUM * sums)
        if cell.effective_rows < least * (1.0 - 1e-9):
            raise InputError(
                f"{_place(key, found.plan)} has {cell.n_rows} rows, worth "
                f"{cell.effective_rows:.1f} of equal weight, fewer than the minimum of {least}: "
                f"{min_count} in any case, and {ROWS_PER_SUM} for each of its {sums} sums of "
                "labels, which could else be solved for the labels. Nothing was written. Agree on "
                "fewer functions or groups, or give more rows."
            )
    _check_spreads(found)


def _check_spreads(found: PlannedSums) -> None:
    """Refuse spreads that are far too small: functions would vary from row to row."""
    plan = found.plan
    linear = slice(1, plan.n_features + 1)  # behind the constant
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(plan.populations):
            total = found.sums.total(kind, k)
            if not total.n_rows:
                continue
            away = np.sqrt(np.diag(total.gram)[linear] / total.weight)
            j = int(np.argmax(away))
            if away[j] > MAX_SPREADS:
                raise InputError(
                    f"the plan says that feature {_name(plan, j)} is about "
                    f"{plan.scaling.mean[j]:.3g}, give or take {plan.scaling.scale[j]:.3g}, but "
                    f"the {kind} rows of population {name!r} are {away[j]:.3g} times as far away. "
                    "Functions that are so fine for the rows could single one out. Nothing was "
                    "written. Agree on a plan with about the right value and spread."
                )


def check_leverage(source: ChunkSource, census: Census, found: PlannedSums) -> None:
    """Refuse sums in which one row outweighs the others, in one more pass over the rows."""
    plan = found.plan
    roots = {key: _inverse_root(cell.gram) for key, cell in found.sums.cells.items()}
    policy = found.policy
    policies = {k: _inverse_root(policy.gram[k]) for k, n in enumerate(policy.n_rows) if n}
    for batch in labelled_batches(source, plan, census):
        rows = batch.rows
        phi = plan.values(rows.X)
        for key, root in roots.items():
            at = rows.at(key.kind, key.population)
            at = at[batch.group[at] == key.group]
            _check_shares(phi[at], root, rows, at, plan, _place(key, plan))
        for k, root in policies.items():
            at = rows.at(TREATMENT, k)
            place = f"the treatment table of population {plan.populations[k]!r}"
            _check_shares(policy_design(rows.X[at], plan.scaling), root, rows, at, plan, place)


def _check_shares(
    values: Array, root: Array, rows: LabelledRows, at: IntArray, plan: SumsPlan, place: str
) -> None:
    """Refuse a row that is louder than all others in some combination of functions."""
    share = rows.weight[at] * np.sum((values @ root) ** 2, axis=1)
    if share.max(initial=0.0) > MAX_SHARE:
        raise _one_row(place, plan, rows, int(at[np.argmax(share)]), float(share.max()))


def _inverse_root(gram: Array) -> Array:
    """Return R with R R^T the inverse of the sum of products, without directions no row has."""
    size = np.sqrt(np.diag(gram))
    size[size == 0.0] = 1.0
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    used = values > COLLINEAR * values[-1]
    root: Array = vectors[:, used] / np.sqrt(values[used]) / size[:, None]
    return root


def _one_row(place: str, plan: SumsPlan, rows: LabelledRows, at: int, share: float) -> InputError:
    """Return the error for a row whose label could be told from the sums."""
    scaled = plan.scaling(rows.X[at : at + 1])[0]
    j = int(np.argmax(np.abs(scaled)))
    return InputError(
        f"{place} has a row that makes up {share:.0%} of some combination of the sums, "
        "more than half, so that its label could be told. Its feature "
        f"{_name(plan, j)} lies {abs(scaled[j]):.3g} spreads from the typical value, its weight is "
        f"{rows.weight[at]:.3g}. Nothing was written. Cap extreme values and weights, leave out "
        "features that few rows have, give more rows, or agree on fewer functions or groups."
    )


def _place(key: CellKey, plan: SumsPlan) -> str:
    population = plan.populations[key.population]
    return f"group {key.group} of the {key.kind} rows of population {population!r}"


def _name(plan: SumsPlan, j: int) -> str:
    return repr(plan.feature_names[j]) if plan.feature_names else str(j)


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
        when the model predicts. Needed for noise, as is a limit for outcomes.
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
        mean.append(check_finite(f"typical value of {name}", pair[0]))
        scale.append(check_positive(f"spread of {name}", pair[1]))
    return Scaling(np.array(mean), np.array(scale))


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
    pair = [check_finite(f"each of {name}", value) for value in _listed(given)]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(f"{name} must be two different numbers, got {given!r}.")
    low, high = sorted(pair)
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=values is not None)


def aggregate_rows(
    source: Any,
    plan: SumsPlan,
    *,
    min_count: int = MIN_COUNT,
    noise: GaussianNoise | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
) -> PlannedSums:
    """Add up one party's rows by an agreed plan.

    Parameters
    ----------
    source : ChunkSource, mapping or callable
        Rows of some or all of the cells, with the plan's features in the plan's order.
    plan : SumsPlan
        As agreed.
    min_count : int, default=10
        Fewest effective rows that a group may have, whatever the number of functions.
    noise : GaussianNoise, optional
        Noise on every sum, under which the file is differentially private for each row. The plan
        must have limits (``clip``), and rows no weights.
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
    if noise is not None:
        function_sizes(plan)  # refuse a plan without limits before the rows are gone through
        _check_unit_weights(census)
        # Where a row goes must not depend on other rows: copies are not dealt evenly.
        census = replace(census.without_samples(), outcomes=np.empty(0))
    found = sum_with_checkpoint(rows, plan, census, checkpoint, n_jobs=n_jobs)
    check_counts(found, least)
    check_leverage(rows, census, found)
    return found if noise is None else with_noise(found, noise)


def _check_unit_weights(census: Census) -> None:
    """Refuse weights where noise is scaled to rows that count once each."""
    for (kind, name), sketch in census.cells.items():
        if not np.all(sketch.weight == sketch.count) or sketch.total_weight != sketch.n_rows:
            raise InputError(
                f"noise is scaled to rows of weight 1, and the {kind} rows of population {name!r} "
                "have others. Leave the weights out."
            )


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
    noise = tuple(sorted(table for part in parts for table in part.noise))
    merged = replace(
        parts[0],
        sums=reduce(GroupedSums.merge, [part.sums for part in parts]),
        tables=tuple(sorted(table for part in parts for table in tables_of(part))),
        noise=noise,
    )
    if noise:
        return with_policies_of_sums(merged)
    return replace(merged, policy=reduce(PolicySums.merge, [part.policy for part in parts]))
