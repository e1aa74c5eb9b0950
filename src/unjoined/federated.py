"""Fits from sums that organisations exchange instead of rows.

Parties agree on a plan that discloses no row, each adds up its own rows by it, and somebody merges
the files of sums and fits. Sums are data about people, and no rule here makes them anonymous:
whoever knows the features of the people may solve for their labels. They go to those with whom
there is a contract.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from io import BytesIO
from itertools import combinations
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, RandomState
from unjoined._validation import (
    LARGEST,
    OUTCOME,
    TREATMENT,
    OutcomeCoding,
    check_count,
    check_finite,
    check_names,
    check_option,
    check_positive,
    population_name,
)
from unjoined.data.fold import OWNER
from unjoined.data.labels import as_data
from unjoined.data.sources import TableSource
from unjoined.data.write import replace_file
from unjoined.errors import DisclosureWarning, InputError, TableError
from unjoined.model.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
)
from unjoined.model.census import take_census
from unjoined.model.centring import SmoothMeans
from unjoined.model.draw import PrincipalBasis
from unjoined.model.moments import MomentSums, PolicySums
from unjoined.model.passes import sum_source
from unjoined.model.plan import MAX_GROUPS, PlannedSums, SumsPlan, TableId, tables_of
from unjoined.model.pushdown import sums_of_tables

__all__ = [
    "PlannedSums",
    "SumsPlan",
    "aggregate_rows",
    "fourier_plan",
    "merge_sums",
    "read_sums",
    "write_sums",
]

MIN_COUNT = 10
MAX_FUNCTIONS = 5000  # whose sums of one group and table take 200 MB
FEW_ROWS = (
    10.0  # by which two tables differ, so that their difference tells of few people
)
# Radians per spread: no function goes through a whole period within one spread of a feature.
MAX_FREQUENCY = 2.0 * np.pi
MAX_SPREADS = 10.0  # standard deviation of a scaled feature, else frequencies are higher than said
ROWS_PER_SUM = (
    2  # with fewer rows than sums, who knows the features can solve for the labels
)
MANIFEST, CHECKSUM = "unjoined-sums-1", "sha256"  # JSON as bytes, and a digest of all
FIRST = re.compile(rb"unjoined-sums-[0-9]+\b")  # near the beginning, in any version
LARGEST_STORED = 1e150  # of any number in a file: its square is still one
# What a file may hold, beside numbers, words and lists of them.
STORED = {
    kind.__name__: kind
    for kind in (
        *(SumsPlan, OutcomeCoding, Scaling, SmoothMeans, ScaledBasis, StackedBasis),
        *(LinearBasis, GaussianBasis, FourierBasis, PrincipalBasis),
        *(PlannedSums, MomentSums, PolicySums),
    )
}


def fourier_plan(
    features: Mapping[str, tuple[float, float]],
    populations: Sequence[str],
    *,
    outcome_values: tuple[float, float] | None = None,
    n_functions: int | None = None,
    width: float | None = None,
    n_groups: int = 5,
    groups_by: str = "rows",
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
    groups_by : {"rows", "features"}, default="rows"
        Whether rows are dealt into groups by their numbers, or by their features, as a warehouse
        has to do it. The latter wants features that take many values together.
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
    check_option("groups_by", groups_by, ("rows", "features"))
    d = len(features)
    rng = check_random_state(random_state)
    length = np.sqrt(2.0 * d) if width is None else check_positive("width", width)
    size = (
        min(3 * d, 30)
        if n_functions is None
        else check_count("n_functions", n_functions)
    )
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
        coding=_coding(outcome_values),
        scaling=scaling,
        basis=basis,
        critic=basis,
        centring=(),
        n_groups=n_groups,
        by_features=groups_by == "features",
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
    return (
        list(values)
        if isinstance(values, Iterable) and not isinstance(values, str)
        else []
    )


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
        raise InputError(
            f"{name} must not be beyond {LARGEST:g}, got {value!r}. Change the unit."
        )
    return number


def _coding(values: Any) -> OutcomeCoding:
    """Return how outcomes are written inside, from the two values that they have, if so."""
    if values is None:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    pair = [_moderate("each of outcome_values", value) for value in _listed(values)]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(
            f"outcome_values must be two different numbers, got {values!r}."
        )
    low, high = sorted(pair)
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)


def aggregate_rows(
    data: Any,
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
    data : SeparateLabels or mapping
        Rows of some or all of the cells, with the plan's features in the plan's order. A party that
        has some of the tables streams them, or gives a mapping of ``X``, ``y`` or ``treatment``,
        and ``population``.
    plan : SumsPlan
        As agreed.
    min_count : int, default=10
        Fewest effective rows that a group may have, whatever the number of functions.
    checkpoint : path, optional
        A file that is written about every million rows of the second pass and left where it is.
        If it exists, the pass goes on from there, to the same bits. Keep it to yourself: it is
        written whatever ``min_count`` says. Tables that an engine adds up have none.
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
    Two passes over the rows: the first looks at labels, the second adds up. Lazy frames (DuckDB
    relations, polars, Spark, Ibis), and queries by a plan with ``groups_by="features"``, are
    added up by the engine that holds them, in one query for each table.
    """
    check_plan(plan)
    least = check_count("min_count", min_count)
    rows = as_data(data, stream=True).chunks()
    if isinstance(rows, TableSource) and (
        rows.is_lazy or (plan.by_features and checkpoint is None and rows.is_asked)
    ):
        found = _summed_where_they_are(rows, plan, checkpoint)
        check_sums(found, least)
        return found
    census = take_census(rows, sample_rows=1)
    if census.n_features != plan.n_features or (
        census.feature_names is not None and census.feature_names != plan.feature_names
    ):
        raise InputError(
            f"the plan is for the features {plan.feature_names or plan.n_features}, the rows have "
            f"{census.feature_names or census.n_features}. Pass the plan's features, in its order."
        )
    question = plan_digest(plan).encode()
    found = sum_source(rows, plan, census, checkpoint, n_jobs, question=question)
    check_sums(found, least)
    return found


def _summed_where_they_are(
    source: TableSource, plan: SumsPlan, checkpoint: Any
) -> PlannedSums:
    """Return the sums of lazy frames, added up by the engines that hold them."""
    names = plan.feature_names
    if names is None or source.features not in (None, names):
        raise InputError(
            f"the plan is for the features {names or plan.n_features}, and those asked for are "
            f"{source.features}. Pass the plan's features, in its order."
        )
    if checkpoint is not None:
        raise InputError(
            "sums that an engine adds up have no checkpoint: each table is one query. Leave out "
            "checkpoint."
        )
    return sums_of_tables(source.tables, source.beside, plan)


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
    _refuse_overlap(parts)
    _warn_of_differences(parts)
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


def _refuse_overlap(parts: Sequence[PlannedSums]) -> None:
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


def _warn_of_differences(parts: Sequence[PlannedSums]) -> None:
    """Warn of two tables that differ in few rows, whose sums anyone could subtract."""
    for (i, one), (j, two) in combinations(enumerate(parts), 2):
        for kind in (OUTCOME, TREATMENT):
            for k, name in enumerate(one.plan.populations):
                # Of all groups together: rows that are left out move those behind to others.
                first = one.sums.total(kind, k)
                second = two.sums.total(kind, k)
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
                        stacklevel=3,
                    )


def _rows_apart(one: MomentSums, two: MomentSums) -> float:
    """Return about how many rows must be added or left out to get from one table to the other."""
    larger = int(max(one.n_rows, two.n_rows))
    size = np.sqrt(
        np.maximum(np.diag(one.gram + two.gram), 1e-300) / (one.n_rows + two.n_rows)
    )
    apart = np.linalg.eigvalsh((one.gram - two.gram) / np.outer(size, size))
    # A row adds about the number of functions to the trace; sums of many rows are known to 1e-12.
    rows = float(np.abs(apart).sum()) / len(size)
    apart_in_number = float(abs(one.n_rows - two.n_rows))
    return max(apart_in_number, rows if rows > 1e-9 * larger else 0.0)


def check_plan(plan: SumsPlan) -> None:
    """Refuse a plan whose functions could be aimed at a row."""
    refused = _functions_of(plan)
    if refused is not None:
        raise InputError(
            f"the plan holds {refused}, by which a single row could be singled out, and nothing "
            "was added up. A plan may hold a constant, the features and Fourier functions that are "
            "not too fine. Make one with fourier_plan or `unjoined plan`."
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
    if not isinstance(first, LinearBasis) or not isinstance(
        second, FourierBasis | None
    ):
        names = [type(part).__name__ for part in (first, second) if part is not None]
        return f"functions of other kinds ({' and '.join(names)})"
    if second is not None and np.abs(second.frequencies).max() > MAX_FREQUENCY:
        highest = float(np.abs(second.frequencies).max())
        return (
            f"frequencies of up to {highest:.3g} per spread, where {MAX_FREQUENCY:.3g} "
            "is allowed"
        )
    return None


def check_sums(found: PlannedSums, min_count: int) -> None:
    """Refuse sums over few effective rows, of twins, and scales far from the rows' own."""
    p, sums = found.plan.size, found.sums
    for i, kind in enumerate((OUTCOME, TREATMENT)):
        n_sums = p * (p + 1) // 2 if kind == TREATMENT else p
        least = max(min_count, ROWS_PER_SUM * n_sums)
        for k, name in enumerate(found.plan.populations):
            few = np.flatnonzero(sums.effective_rows[i, k] < least * (1.0 - 1e-9))
            if sums.n_rows[i, k].any() and len(few):
                group = int(few[0])
                raise InputError(
                    f"group {group} of the {kind} rows of population {name!r} has "
                    f"{sums.n_rows[i, k, group]} rows, worth "
                    f"{sums.effective_rows[i, k, group]:.1f} of equal weight, fewer than the "
                    f"minimum of {least}: {min_count} in any case, and {ROWS_PER_SUM} for each of "
                    f"its {n_sums} sums of labels. Nothing was written. Agree on fewer functions "
                    "or groups, or give more rows."
                )
    _check_spreads(found)
    refuse_twins(found)


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
                    f"the plan says that feature {_feature_name(plan, j)} is about "
                    f"{plan.scaling.mean[j]:.3g}, give or take {plan.scaling.scale[j]:.3g}, but "
                    f"the {kind} rows of population {name!r} are {away[j]:.3g} times as far away. "
                    "Functions that are so fine for the rows could single one out. Nothing was "
                    "written. Agree on a plan with about the right value and spread."
                )


def _feature_name(plan: SumsPlan, j: int) -> str:
    """Return what messages call a feature."""
    return repr(plan.feature_names[j]) if plan.feature_names else str(j)


def write_sums(found: PlannedSums, path: str | os.PathLike[str]) -> Path:
    """Write sums and their plan to a file that `read_sums` reads.

    Parameters
    ----------
    found : PlannedSums
        Sums of some or all cells, or of none: then the file is the plan alone, to be agreed on.
    path : path
        The file; replaced as a whole if it exists, left as it was if anything goes wrong.

    Returns
    -------
    Path
        The file written. The same sums give the same bytes.

    Raises
    ------
    InputError
        The basis, the centring or the name of a population is of a kind that files do not hold.
    """
    arrays: list[NDArray[Any]] = []
    content = _put(replace(found, tables=tables_of(found)), arrays)
    text = np.frombuffer(json.dumps(content, sort_keys=True).encode(), dtype=np.uint8)
    members: dict[str, Any] = {MANIFEST: text} | {
        f"array{i}": array for i, array in enumerate(arrays)
    }
    buffer = BytesIO()
    members[CHECKSUM] = _checksum(members)
    np.savez(buffer, **members)
    return replace_file(path, lambda file: file.write_bytes(buffer.getvalue()))


def _put(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return a value as JSON has it, with arrays put aside and referred to by their number."""
    if isinstance(value, np.ndarray):
        whole = np.issubdtype(value.dtype, np.integer)
        arrays.append(np.ascontiguousarray(value, dtype="<i8" if whole else "<f8"))
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return [_put(item, arrays) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if type(value) not in STORED.values():
        raise _cannot_hold(value)
    if isinstance(value, SumsPlan) and None in value.populations:
        raise _cannot_hold(None)
    names = {field.name for field in fields(value) if field.init}
    if isinstance(value, SumsPlan) and value.critic is value.basis:
        names.remove("critic")
    parts = {name: _put(getattr(value, name), arrays) for name in sorted(names)}
    return {"kind": type(value).__name__, **parts}


def _cannot_hold(value: Any) -> InputError:
    if isinstance(value, Basis):
        return InputError(
            f"a file of sums holds Gaussian, Fourier, linear and stacked bases, not "
            f"{type(value).__name__}."
        )
    if callable(value):
        return InputError(
            "a file of sums cannot hold the regressor given as center, which another program "
            "could not run. Use center=True or center=False."
        )
    return InputError(
        f"populations need names of text or numbers in a file, got {value!r}."
    )


def plan_digest(plan: SumsPlan) -> str:
    """Return a SHA-256 of everything in a plan: equal for equal plans only."""
    arrays: list[NDArray[Any]] = []
    digest = hashlib.sha256(json.dumps(_put(plan, arrays), sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _checksum(members: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return a SHA-256 of the names, shapes and bytes of arrays, in whatever order they come."""
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{name} {members[name].shape}\n".encode())
        digest.update(members[name].tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def read_sums(path: str | os.PathLike[str]) -> PlannedSums:
    """Read a file of sums; nothing in it is run.

    Raises
    ------
    TableError
        The file does not exist, is not a file of sums, is of another version, was altered or cut
        off since it was written, or its parts do not belong together.
    """
    file = Path(path)
    if not file.is_file():
        raise TableError(f"there is no file of sums {str(file)!r}. Check the path.")
    raw = file.read_bytes()
    if OWNER.encode() in raw[:80]:
        raise TableError(
            f"{str(file)!r} is the checkpoint of a pass that stopped. Run the same command again "
            "to finish it, and use the file it writes."
        )
    version = FIRST.search(raw[:80])
    if version is None:
        raise TableError(
            f"{str(file)!r} is not a file of sums. Write one with `unjoined aggregate`."
        )
    if version[0].decode() != MANIFEST:
        raise TableError(
            f"{str(file)!r} was written by another version, whose files this one cannot read. "
            "Write it anew with the same version of unjoined at all parties."
        )
    try:
        members = _members(raw)
    except (
        Exception
    ) as error:  # zipfile and numpy know a dozen errors for bytes that are amiss
        raise TableError(
            f"{str(file)!r} was altered or cut off since it was written. Get it again from who "
            "wrote it."
        ) from error
    try:
        return _sound(members)
    except (
        Exception
    ) as error:  # whatever a manifest leads to that nobody of us has written
        raise TableError(
            f"{str(file)!r} is not a sound file of sums: {str(error).rstrip('.')}. Get it again "
            "from who wrote it, and do not use it as it is."
        ) from error


def _members(raw: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive that takes no more room than its file."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        size = sum(info.file_size for info in archive.infolist())
    _need(size <= len(raw), "it would expand")
    with np.load(BytesIO(raw), allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    checksum = members.pop(CHECKSUM)
    _need(np.array_equal(checksum, _checksum(members)), "its checksum is wrong")
    return members


def _need(ok: bool, what: str) -> None:
    """Refuse a file unless ``ok``."""
    if not ok:
        raise TableError(what)


def _sound(members: dict[str, NDArray[Any]]) -> PlannedSums:
    """Return what a file holds, if it is of the right shapes and all numbers are finite."""
    content = json.loads(members.pop(MANIFEST).tobytes())
    for name, array in members.items():
        good = array.dtype in (np.dtype("<f8"), np.dtype("<i8"))
        good = good and bool(np.all(np.abs(array) <= LARGEST_STORED))
        _need(good, f"array {name!r} does not hold finite numbers")
    found = _get(content, members)
    if not isinstance(found, PlannedSums):
        raise TableError("it holds something else")
    plan, d = found.plan, found.plan.n_features
    K = len(set(plan.populations))
    G = plan.n_groups
    _need(
        1 < K == len(plan.populations), "two populations or more need different names"
    )
    _need(
        len(set(plan.feature_names or range(d))) == d,
        f"its {d} features need different names",
    )
    _need(
        1 <= G <= MAX_GROUPS
        and len(plan.centring) in (0, 1, G)
        and isinstance(plan.by_features, bool),
        "its groups are not clear",
    )
    bases = [
        plan.basis,
        plan.critic,
        *(getattr(means, "basis", None) for means in plan.centring),
    ]
    good = all(isinstance(basis, Basis) and basis.n_features == d for basis in bases)
    _need(good, "its functions are of other features")
    p = plan.size
    q = 2 * d + 1
    cells = (2, K, G)
    sizes = [cells, cells, cells, (*cells, p), (*cells, p, p), (*cells, p, p)]
    _check_shapes(found.sums, sizes)
    _check_shapes(found.policy, [(K,), (K,), (K, q), (K, q, q), (K, q, q)])
    return replace(found, tables=tuple(TableId(*table) for table in found.tables))


def _get(content: Any, members: Mapping[str, NDArray[Any]]) -> Any:
    """Put together again what `_put` took apart."""
    if isinstance(content, list):
        return tuple(_get(item, members) for item in content)
    if not isinstance(content, dict):
        return content
    if set(content) == {"array"}:
        return members[f"array{content['array']}"]
    kind = STORED[content.pop("kind")]
    parts = {name: _get(part, members) for name, part in content.items()}
    if kind is SumsPlan:
        parts.setdefault("critic", parts["basis"])
    return kind(**parts)


def _check_shapes(sums: MomentSums | PolicySums, shapes: list[tuple[int, ...]]) -> None:
    for field, shape in zip(fields(sums), shapes, strict=True):
        array: Array = getattr(sums, field.name)
        whole = array.dtype == np.int64
        good = array.shape == shape and whole == (field.name == "n_rows")
        _need(good, f"its {field.name} has another shape than its plan calls for")
