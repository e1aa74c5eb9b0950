"""Sums by a plan, added up by the engine that holds the rows, so that no row leaves it.

They are written once, as expressions of narwhals, which DuckDB, polars, Spark and Ibis run. Each
table is gone through once and gives one line for each population, group and label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from itertools import combinations_with_replacement
from operator import add
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._typing import Array
from unjoined._validation import (
    KINDS,
    LARGEST,
    OUTCOME,
    TREATMENT,
    did_you_mean,
    is_missing,
    label_codes,
    plain_name,
    population_name,
    shown,
    treated_values,
)
from unjoined.data.chunks import Columns, Table
from unjoined.data.queries import SqlQuery, relation_of
from unjoined.errors import InputError, LabelError, TableError
from unjoined.model.basis import FourierBasis, StackedBasis
from unjoined.model.plan import PlannedSums, SumsPlan

Lines = Sequence[Mapping[str, Any]]  # what comes back, a line for each group


def sums_of_tables(
    tables: Iterable[Table], columns: Columns, plan: SumsPlan
) -> PlannedSums:
    """Return the sums of tables that are lazy frames or queries, each gone through once."""
    check_summable(plan, columns)
    total = PlannedSums.of_no_rows(plan)
    for table in tables:
        where: AbstractContextManager[Any] = nullcontext(table.table)
        if isinstance(table.table, SqlQuery):
            where = relation_of(table.table, table.title)
        with where as rows:
            frame: nw.LazyFrame[Any] = nw.from_native(rows)
            _check_schema(table, columns, plan, frame.collect_schema())
            lines = expressed(frame, table, columns, plan)
            found = lines.collect("pyarrow").rows(named=True)
        total = total + sums_of_lines(list(found), table, plan)
    return total


def check_summable(plan: SumsPlan, columns: Columns) -> None:
    """Refuse what an engine has no expression for."""
    if not plan.by_features:
        raise InputError(
            "the plan deals rows into groups by their numbers, which rows in a warehouse do not "
            "have. Make the plan with groups_by='features' (--groups-by features)."
        )
    beside = {"sample_weight": columns.weight, "cluster": columns.cluster}
    for name, column in beside.items():
        if column is not None:
            raise InputError(
                f"{name} cannot be had where sums are added up by the engine that holds the rows. "
                f"Leave out {name}, or read the rows into a data frame first."
            )
    if columns.policies:
        raise InputError(
            "known policies have no rows to be added up. Leave out policies; they are for fit."
        )


def _check_schema(
    table: Table, columns: Columns, plan: SumsPlan, schema: nw.Schema
) -> None:
    """Refuse columns that are not there, or hold no numbers."""
    features = plan.feature_names or ()
    needed = [*columns._replace(features=()).special(table), *features]
    for name in needed:
        if name not in schema:
            raise TableError(
                f"{table.title} has no column {name!r}; its columns are "
                f"{', '.join(schema)}{did_you_mean(name, schema)}"
            )
    for name in features:
        if not (schema[name].is_numeric() or schema[name] == nw.Boolean):
            raise TableError(
                f"column {name!r} of {table.title} holds {str(schema[name]).lower()} values, and "
                "sums are of numbers. Make numbers of it in the query, or leave it out of the plan."
            )


def expressed(
    frame: nw.LazyFrame[Any], table: Table, columns: Columns, plan: SumsPlan
) -> nw.LazyFrame[Any]:
    """Return the sums of one table: what they are, to be collected or shown as SQL.

    ``f1_2`` is the sum of the products of functions 1 and 2, ``f0_1`` of function 1 alone. Of real
    outcomes ``y1`` is the sum with function 1. Of treatments ``q1_2`` is that of feature 1 with the
    square of feature 2, and ``r1_2`` that of both squares, which tell policies apart.
    """
    by_value = table.kind == TREATMENT or plan.coding.is_binary
    d = plan.n_features
    label, people = str(table.label), columns.people
    scaled = [
        (_number(name) - float(mean)) / float(scale)
        for name, mean, scale in zip(
            plan.feature_names or (), *_scaling(plan), strict=True
        )
    ]
    kept = [nw.col(label).alias("value") if by_value else _number(label).alias("value")]
    kept += [z.alias(f"z{j}") for j, z in enumerate(scaled, 1)]
    if people is not None:
        kept.append(_number(people).alias("people"))
    population: nw.Expr = nw.lit(str(table.population))
    if columns.population is not None:
        population = nw.col(columns.population)
    rows = frame.select(*kept, population.alias("population"))

    # A second step, as engines then compute each function once for all sums that it is in.
    z = [nw.col(f"z{j}") for j in range(1, d + 1)]
    key = _combined(z, plan.group_key, 0.0)
    group = ((key - key.floor()) * plan.n_groups).floor()
    functions = [*z, *_waves(plan, z)]
    p = len(functions)
    beside = ["population", "value", *(["people"] if people is not None else [])]
    rows = rows.select(
        *beside,
        group.cast(nw.Int64).alias("part"),
        *(f.alias(f"f{j}") for j, f in enumerate(functions, 1)),
    )

    def total(*factors: str) -> nw.Expr:
        product = nw.col(factors[0])
        for name in factors[1:]:
            product = product * nw.col(name)
        return (product if people is None else product * nw.col("people")).sum()

    names = [f"f{j}" for j in range(1, p + 1)]
    pairs = combinations_with_replacement(range(1, p + 1), 2)
    wanted = [total(f"f{i}").alias(f"f0_{i}") for i in range(1, p + 1)]
    wanted += [total(f"f{i}", f"f{j}").alias(f"f{i}_{j}") for i, j in pairs]
    if table.kind == TREATMENT:
        every = [(i, j) for i in range(1, d + 1) for j in range(1, d + 1)]
        wanted += [
            total(f"f{i}", f"f{j}", f"f{j}").alias(f"q{i}_{j}") for i, j in every
        ]
        wanted += [
            total(f"f{i}", f"f{i}", f"f{j}", f"f{j}").alias(f"r{i}_{j}")
            for i, j in every
            if i <= j
        ]
    by = ["population", "part"]
    if by_value:
        by.append("value")
    else:
        wanted += [total("value").alias("y0")]
        wanted += [total("value", name).alias(f"y{name[1:]}") for name in names]
        wanted.append(_gap("value").sum().alias("unlabelled"))
    n = nw.len() if people is None else nw.col("people").sum()
    gaps = reduce(add, (_gap(f"f{j}") for j in range(1, d + 1)))
    return rows.group_by(by).agg(n.alias("n"), gaps.sum().alias("gaps"), *wanted)


def _gap(name: str) -> nw.Expr:
    """Return 1 where a value is missing; not every database makes a number of true."""
    return nw.when(nw.col(name).is_null()).then(nw.lit(1)).otherwise(nw.lit(0))


def _number(name: str) -> nw.Expr:
    return nw.col(name).cast(nw.Float64)


def _scaling(plan: SumsPlan) -> tuple[list[float], list[float]]:
    return plan.scaling.mean.tolist(), plan.scaling.scale.tolist()


def _combined(columns: Sequence[nw.Expr], coef: Array, start: float) -> nw.Expr:
    found = columns[0] * float(coef[0])
    for column, factor in zip(columns[1:], coef[1:].tolist(), strict=True):
        found = found + column * factor
    return found + start if start else found


def _waves(plan: SumsPlan, z: Sequence[nw.Expr]) -> list[nw.Expr]:
    """Return the Fourier functions of a plan."""
    basis = plan.basis.second if isinstance(plan.basis, StackedBasis) else None
    if not isinstance(basis, FourierBasis):
        return []
    size = float(np.sqrt(2.0 / basis.size))
    phases = basis.phases.tolist()
    return [
        _combined(z, omega, phase).cos() * size
        for omega, phase in zip(basis.frequencies.T, phases, strict=True)
    ]


def sums_of_lines(lines: Lines, table: Table, plan: SumsPlan) -> PlannedSums:
    """Return the sums that lines of one table hold."""
    total = PlannedSums.of_no_rows(plan)
    signs = _signs(lines, table, plan)
    p, d = plan.size, plan.n_features
    kind = KINDS.index(table.kind)
    for line in lines:
        _check_line(line, table)
        n = round(float(line["n"]))
        k = _place(line["population"], table, plan)
        # Where rounding makes a whole of a fraction, the group would be beyond the last.
        cell = kind, k, min(int(line["part"]), plan.n_groups - 1)
        gram = _symmetric(line, "f", p, n)
        total.sums.n_rows[cell] += n
        total.sums.weight[cell] += n
        total.sums.weight_square[cell] += n
        total.sums.gram[cell] += gram
        if "y0" in line:
            y = np.array([float(line[f"y{i}"]) for i in range(p)])
            coding = plan.coding
            total.sums.label_basis[cell] += (y - coding.offset * gram[0]) / coding.scale
            continue
        sign = signs[line["value"]]
        total.sums.label_basis[cell] += sign * gram[0]
        if table.kind == TREATMENT:
            total.sums.label_cross[cell] += sign * gram
            design = _design(line, gram, d)
            total.policy.n_rows[k] += n
            total.policy.weight[k] += n
            total.policy.label[k] += sign * design[0]
            total.policy.gram[k] += design
            total.policy.square[k] += design
    return total


def _check_line(line: Mapping[str, Any], table: Table) -> None:
    """Refuse sums over rows that lack something, or hold what is no number."""
    if gaps := int(line["gaps"] or 0):
        raise TableError(
            f"{table.title} lacks {gaps:,} values of features. Fill them in by the query, or leave "
            "out such rows; none is dropped in silence."
        )
    numbers = [
        value
        for name, value in line.items()
        if name[0] in "fqry" and name[1:2].isdigit()
    ]
    if any(is_missing(v) or not abs(float(v)) <= LARGEST**2 for v in numbers):
        raise TableError(
            f"{table.title} holds features or outcomes that are missing, infinite or beyond "
            f"{LARGEST:g}. Leave out such rows, or change the unit."
        )


def _place(name: Any, table: Table, plan: SumsPlan) -> int:
    """Return which of the plan's populations a line is of."""
    if is_missing(name):
        raise TableError(f"the population is missing in rows of {table.title}.")
    if (plain := population_name(name)) not in plan.populations:
        raise LabelError(
            f"{table.title} has rows of population {plain!r}; the plan is for "
            f"{shown(plan.populations)}{did_you_mean(plain, plan.populations)}"
        )
    return plan.populations.index(plain)


def _signs(lines: Lines, table: Table, plan: SumsPlan) -> dict[Any, float]:
    """Return the label that each value stands for inside, -1 or +1."""
    if any(line.get("unlabelled") for line in lines) or any(
        "y0" not in line and is_missing(line["value"]) for line in lines
    ):
        raise LabelError(
            f"column {table.label!r} of {table.title} is missing in some rows. Leave them out; "
            "none is dropped in silence."
        )
    values = list(dict.fromkeys(line["value"] for line in lines if "y0" not in line))
    codes = label_codes(values, table.kind, table.treated)
    if table.kind == OUTCOME:
        low, high = plan.coding.offset + plan.coding.scale * np.array([-1.0, 1.0])
        if odd := [
            v for v, code in codes.items() if not np.isclose(code, (low, high)).any()
        ]:
            raise LabelError(
                f"{table.title}: the outcome is {odd[0]!r} in some rows, but is to be {low:g} or "
                f"{high:g}."
            )
        return {
            v: 1.0 if code > plan.coding.offset else -1.0 for v, code in codes.items()
        }
    if table.treated is not None:
        wanted = [plain_name(value) for value in treated_values(table.treated)]
        return {v: 1.0 if plain_name(v) in wanted else -1.0 for v in values}
    if not set(codes.values()) <= {0.0, 1.0} and not set(codes.values()) <= {-1.0, 1.0}:
        raise LabelError(
            f"column {table.label!r} of {table.title}: treatments must be 0 and 1, or -1 and 1, "
            f"got {shown(codes.values())}."
        )
    return {v: 1.0 if code == 1.0 else -1.0 for v, code in codes.items()}


def _symmetric(line: Mapping[str, Any], letter: str, p: int, n: int) -> Array:
    """Return the matrix (p, p) of sums of products, with the number of people in its corner."""
    found = np.empty((p, p))
    for i in range(p):
        for j in range(i, p):
            found[i, j] = found[j, i] = n if j == 0 else float(line[f"{letter}{i}_{j}"])
    return found


def _design(line: Mapping[str, Any], gram: Array, d: int) -> Array:
    """Return the sums of products of a constant, the features and their squares."""
    found = np.empty((2 * d + 1, 2 * d + 1))
    found[: d + 1, : d + 1] = gram[: d + 1, : d + 1]
    for i in range(1, d + 1):
        found[0, d + i] = found[d + i, 0] = gram[i, i]
        for j in range(1, d + 1):
            found[i, d + j] = found[d + j, i] = float(line[f"q{i}_{j}"])
            low, high = min(i, j), max(i, j)
            found[d + i, d + j] = float(line[f"r{low}_{high}"])
    return found
