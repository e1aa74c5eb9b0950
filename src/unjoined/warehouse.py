"""SQL for places where rows stay: sums by a plan, or counts of people who are alike.

A warehouse or a clean room runs the query, and what it returns is all that leaves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import (
    KINDS,
    OUTCOME,
    TREATMENT,
    check_count,
    check_option,
    is_missing,
    shown,
)
from unjoined.data.chunks import Columns, Table
from unjoined.errors import InputError, TableError
from unjoined.federated import (
    MIN_COUNT,
    check_plan,
    check_sums,
    merge_sums,
    plan_digest,
)
from unjoined.model.plan import PlannedSums, SumsPlan
from unjoined.model.pushdown import check_summable, expressed, sums_of_lines

__all__ = ["counts_query", "sums_from_results", "sums_query"]

DIALECTS = ("bigquery", "databricks", "duckdb", "postgres", "snowflake")
BINS = 5  # values that a feature takes in a table of counts: its typical one, and two to each side
ROWS = "unjoined_rows"  # stands for the user's table until the query is written
DIGEST = 16  # hexadecimal digits by which a result knows its plan
COLUMN = "unjoined_column_"  # and a number: stands for a column of it
UNFOLDED = re.compile("[a-z_][a-z0-9_]*")


def sums_query(
    plan: SumsPlan,
    table: str,
    *,
    outcome: str | None = None,
    treatment: str | None = None,
    population: str,
    is_column: bool = False,
    count: str | None = None,
    dialect: str = "duckdb",
) -> str:
    """Return the SQL that adds up one table by a plan, where the table is.

    Parameters
    ----------
    plan : SumsPlan
        Of `fourier_plan` with ``groups_by="features"``.
    table : str
        Its name, with dots between database, schema and table; or a SELECT.
    outcome, treatment : str
        The column of the label: one of the two.
    population : str
        Whose rows these are, or the column that says so.
    is_column : bool, default=False
        Whether ``population`` names a column.
    count : str, optional
        Column with the number of people that a row stands for.
    dialect : {"bigquery", "databricks", "duckdb", "postgres", "snowflake"}
        Whose SQL.

    Returns
    -------
    str
        One SELECT, whose result goes to `sums_from_results`: a line for each group, population
        and label, with about half the square of the number of functions in columns.

    Raises
    ------
    InputError
        The plan deals rows by their numbers, or neither or both labels are named.
    MissingExtraError
        DuckDB or sqlglot is not installed.

    Notes
    -----
    Sums are data about people: who knows the features may solve for labels. ``sums_from_results``
    refuses groups that are too small. Rows that lack a feature are counted and refused there.

    Examples
    --------
    >>> from unjoined.federated import fourier_plan
    >>> plan = fourier_plan(
    ...     {"age": (45, 15)}, ["north", "south"], outcome_values=(0, 1), groups_by="features"
    ... )
    >>> print(sums_query(plan, "crm.sales", outcome="bought", population="north"))
    WITH ...
    """
    check_plan(plan)
    own, columns = _described(outcome, treatment, population, is_column, count)
    check_summable(plan, columns)
    frame, names = _stand_in(plan, own, columns)
    own = replace(own, label=names[str(own.label)])
    columns = columns._replace(
        population=names.get(columns.population), people=names.get(columns.people)
    )
    features = tuple(names[name] for name in plan.feature_names or ())
    lines = expressed(frame, own, columns, replace(plan, feature_names=features))
    lines = lines.with_columns(
        plan=nw.lit(plan_digest(plan)[:DIGEST]), kind=nw.lit(own.kind)
    )
    return _written(lines, table, dialect, names)


def counts_query(
    plan: SumsPlan,
    table: str,
    *,
    outcome: str | None = None,
    treatment: str | None = None,
    population: str,
    is_column: bool = False,
    categories: Sequence[str] = (),
    bins: int = BINS,
    min_count: int = MIN_COUNT,
    dialect: str = "duckdb",
) -> str:
    """Return the SQL that counts people who are alike, with features in bins that a plan fixes.

    Parameters
    ----------
    plan : SumsPlan
        Whose typical values and spreads the bins are made by, each a spread wide about the typical
        value where there are five, and narrower where there are more.
    table, outcome, treatment, population, is_column, dialect
        As in `sums_query`.
    categories : sequence of str, optional
        Further columns, such as regions, whose values are kept as they are.
    bins : int, default=5
        Values that each feature takes, odd. What is beyond counts as in the outermost.
    min_count : int, default=10
        Fewest people that a cell may hold; smaller ones are left out.

    Returns
    -------
    str
        One SELECT. Its columns are the features, as the middles of their bins, ``categories``, the
        population, the label, ``n``, the number of people, and ``suppressed``, that of those in the
        population's cells which are left out. Fit to it with ``count="n"``.

    Notes
    -----
    Cells that are left out are rather those where few people are, so estimates are of the people
    who are left. If ``suppressed`` is more than a few in a hundred, ask for fewer bins.
    """
    check_plan(plan)
    if check_count("bins", bins) % 2 == 0:
        raise InputError(f"bins must be odd, so that one is in the middle, got {bins}.")
    least = check_count("min_count", min_count)
    own, columns = _described(outcome, treatment, population, is_column, None)
    frame, names = _stand_in(plan, own, columns, categories)
    step = (BINS - 1) / (bins - 1) if bins > 1 else 1.0
    half = (bins - 1) // 2
    binned = [
        (
            ((nw.col(names[name]).cast(nw.Float64) - mean) / (scale * step) + 0.5)
            .floor()
            .clip(-half, half)
            * (scale * step)
            + mean
        ).alias(names[name])
        for name, mean, scale in zip(
            plan.feature_names or (),
            plan.scaling.mean.tolist(),
            plan.scaling.scale.tolist(),
            strict=True,
        )
    ]
    features = [names[name] for name in plan.feature_names or ()]
    kept = [name for name in names.values() if name not in features]
    whose = names[population] if is_column else "population"
    by = [*features, *kept] if is_column else [*features, *kept, whose]
    made = ["n", "suppressed"] if is_column else ["n", "suppressed", whose]
    if twice := [name for name in names if str(name).casefold() in made]:
        raise InputError(
            f"the table of counts would have two columns {twice[0]!r}. Rename yours in a SELECT."
        )
    people = frame.select(
        *binned, *kept, *([] if is_column else [nw.lit(population).alias(whose)])
    )
    cells = people.group_by(by).agg(n=nw.len())
    left_out = nw.when(nw.col("n") < least).then(nw.col("n")).otherwise(nw.lit(0))
    cells = cells.with_columns(left_out=left_out)
    cells = cells.with_columns(suppressed=nw.col("left_out").sum().over(whose))
    cells = cells.filter(nw.col("n") >= least).select(*by, "n", "suppressed")
    return _written(cells, table, dialect, names)


def sums_from_results(
    plan: SumsPlan,
    results: Iterable[Frame],
    *,
    treated: Any = None,
    min_count: int = MIN_COUNT,
) -> PlannedSums:
    """Return the sums that the queries of a plan brought back.

    Parameters
    ----------
    plan : SumsPlan
        The plan of the queries.
    results : iterable of data frames
        What queries of `sums_query` returned, one for each table, in any order.
    treated : value, optional
        The treatment that means treated, if it is not written plainly.
    min_count : int, default=10
        Fewest people that a group may have, whatever the number of functions.

    Returns
    -------
    PlannedSums
        To the same rounding what `aggregate_rows` makes of the rows.

    Raises
    ------
    TableError
        A table is no such result, is of another plan, or rows lacked a feature.
    InputError
        A group has too few people for its number of sums.
    """
    check_plan(plan)
    parts = []
    for i, frame in enumerate(results, 1):
        lines = _lines_of(frame, i, plan)
        for kind in KINDS:
            if own := [line for line in lines if line["kind"] == kind]:
                table = Table(None, kind, "value", f"result {i}", treated=treated)
                parts.append(sums_of_lines(own, table, plan))
    found = merge_sums(parts)
    check_sums(found, min_count)
    return found


def _lines_of(frame: Frame, number: int, plan: SumsPlan) -> list[dict[str, Any]]:
    """Return the lines of a result, by names in small letters."""
    native = nw.from_native(frame, eager_only=True)
    lines = [
        {name.lower(): value for name, value in row.items()}
        for row in native.rows(named=True)
    ]
    if not lines or not {"plan", "kind", "part", "n", "gaps"} <= set(lines[0]):
        raise TableError(
            f"result {number} is not what a query of sums returns: its columns are "
            f"{shown(native.columns)}. Run what sums_query (unjoined aggregate --sql) writes, and "
            "give its whole result."
        )
    wanted = plan_digest(plan)[:DIGEST]
    for line in lines:
        if str(line["plan"]) != wanted:
            raise TableError(
                f"result {number} was made by another plan ({line['plan']} against {wanted}). "
                "Write the queries anew with this plan."
            )
        if is_missing(line["n"]):
            raise TableError(f"result {number} lacks the number of people in a line.")
    return lines


def _described(
    outcome: str | None,
    treatment: str | None,
    population: str,
    is_column: bool,
    count: str | None,
) -> tuple[Table, Columns]:
    """Return what a table's rows are."""
    if (outcome is None) == (treatment is None):
        raise InputError(
            "a query is of one table: name the column of its outcome or of its treatment."
        )
    kind, label = (OUTCOME, outcome) if treatment is None else (TREATMENT, treatment)
    table = Table(None, kind, label, None if is_column else population)
    column = population if is_column else None
    return table, Columns(column, None, None, count, {})


def _stand_in(
    plan: SumsPlan, table: Table, columns: Columns, categories: Sequence[str] = ()
) -> tuple[nw.LazyFrame[Any], dict[str | None, str]]:
    """Return an empty table with the columns of the user's, and what they are called in it.

    Some versions of DuckDB take dots and quotes in names for more than letters.
    """
    duckdb = import_extra("duckdb", extra="cli")
    if plan.feature_names is None:
        raise InputError("the plan has no feature names, which queries need.")
    numbers = [*plan.feature_names, *([columns.people] if columns.people else [])]
    words = [str(table.label), *categories]
    words += [columns.population] if columns.population else []
    folded = [name.casefold() for name in [*numbers, *words]]
    if twice := [name for name in folded if folded.count(name) > 1]:
        raise InputError(
            f"the column {twice[0]!r} is named twice. Labels, populations and features need "
            "columns of their own, and most databases take capitals and small letters for one."
        )
    if nameless := [name for name in folded if not name or "\x00" in name]:
        raise InputError(
            f"SQL has no form for the name {nameless[0]!r}. Rename the column."
        )
    called: dict[str | None, str] = {
        name: f"{COLUMN}{i}" for i, name in enumerate([*numbers, *words])
    }
    declared = [f"{called[name]} DOUBLE" for name in numbers]
    declared += [f"{called[name]} VARCHAR" for name in words]
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE {ROWS} ({', '.join(declared)})")
    return nw.from_native(connection.table(ROWS)), called


def _written(
    lines: nw.LazyFrame[Any], table: str, dialect: str, names: dict[str | None, str]
) -> str:
    """Return a query of the user's table in the SQL of a database, with the names of columns."""
    sqlglot = import_extra("sqlglot", extra="warehouse")
    expressions = sqlglot.expressions
    check_option("dialect", dialect, DIALECTS)
    tree = sqlglot.parse_one(lines.to_native().sql_query(), read="duckdb")
    for step in tree.find_all(expressions.CTE):
        step.set("materialized", None)
    for step in tree.find_all(expressions.Select):
        if (
            dialect == "postgres" and step is not tree
        ):  # else functions are computed in every sum
            step.set(
                "offset", expressions.Offset(expression=expressions.Literal.number(0))
            )
    for counted in tree.find_all(expressions.Count):
        if counted.this is None:  # which DuckDB alone takes for rows
            counted.set("this", expressions.Star())
    innermost = next(
        node for node in tree.find_all(expressions.Table) if node.name == ROWS
    )
    real = {called: name for name, called in names.items()}
    for name in tree.find_all(expressions.Identifier):
        name.set("quoted", True)
        name.set("this", real.get(name.this, name.this.replace("__duckdb_s", "step_")))
    if dialect == "snowflake":  # which stores names written without quotes in capitals
        step = innermost.find_ancestor(expressions.Select)
        for column in step.find_all(expressions.Column):
            if UNFOLDED.fullmatch(column.name):
                column.this.set("this", column.name.upper())
    innermost.replace(_table(table, dialect, sqlglot))
    return str(tree.sql(dialect=dialect, pretty=True))


def _table(text: str, dialect: str, sqlglot: Any) -> Any:
    """Return a table or SELECT of the user's as a part of a query."""
    try:
        if re.match(r"\s*(select|with)\s", text, re.IGNORECASE):
            found = sqlglot.parse(text, read=dialect)
            if len(found) != 1 or not isinstance(found[0], sqlglot.expressions.Query):
                raise InputError(
                    f"a table must be a name or one SELECT, got {text[:80]!r}."
                )
            return found[0].subquery("people")
        is_plain = not re.search(r"[\s;()]", re.sub(r'"[^"]*"|`[^`]*`', "", text))
        named = sqlglot.to_table(text, dialect=dialect) if is_plain else None
    except sqlglot.errors.SqlglotError:
        named = None
    if named is None:
        raise InputError(
            f"{text[:80]!r} is not the name of a table in {dialect}. Put quotes around parts with "
            "other characters than letters, digits and underscores."
        )
    for part in named.parts:
        if dialect == "snowflake" and not part.args.get("quoted"):
            part.set("this", part.this.upper())
        part.set("quoted", True)
    return named
