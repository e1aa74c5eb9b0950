"""Commands for sums: agree on a plan, add up a party's tables, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._validation import check_option
from unjoined.cli.inputs import QUERIES, SUMS, Tables, check_paths
from unjoined.cli.options import (
    AsJson,
    Categories,
    Checkpoint,
    Cluster,
    Count,
    Force,
    Outcome,
    Outcomes,
    Population,
    Seed,
    Treated,
    Treatment,
    Treatments,
    Weight,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import cell_sizes, console, print_json, show_cell_sizes
from unjoined.data.tables import read_table
from unjoined.data.write import replace_file
from unjoined.errors import InputError
from unjoined.federated import (
    MIN_COUNT,
    aggregate_rows,
    fourier_plan,
    merge_sums,
    plan_digest,
    read_sums,
    write_sums,
)
from unjoined.model.plan import PlannedSums, SumsPlan
from unjoined.warehouse import (
    BINS,
    DIALECTS,
    DIGEST,
    counts_query,
    sums_from_results,
    sums_query,
)

Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")]


@command(
    "unjoined plan --feature age=45:15 --feature orders=3:2 \\\n"
    "    --populations north,south --out plan.sums"
)
def plan(
    feature: Annotated[
        list[str],
        typer.Option("--feature", help="NAME=TYPICAL:SPREAD, once for each feature."),
    ],
    populations: Annotated[
        str, typer.Option("--populations", help="Two or more, comma-separated.")
    ],
    out: Out,
    outcome_values: Annotated[
        str | None,
        typer.Option(
            "--outcome-values", help="LOW,HIGH if the outcome has two values."
        ),
    ] = None,
    functions: Annotated[
        int | None,
        typer.Option(
            "--functions",
            min=1,
            help="Fourier features; default: 3 per feature, up to 30.",
        ),
    ] = None,
    width: Annotated[float | None, typer.Option("--width", help="In spreads.")] = None,
    groups: Annotated[
        int, typer.Option("--groups", min=2, help="Groups ridges are chosen by.")
    ] = 5,
    groups_by: Annotated[
        str,
        typer.Option(
            "--groups-by",
            help="rows, or features for sums that a warehouse adds up.",
        ),
    ] = "rows",
    force: Force = False,
    seed: Seed = 0,
    config: Config = None,
) -> None:
    """Write the plan that all parties then use: features, scales, functions."""
    check_paths([], [("--out", out, SUMS)], force=force)
    values = (
        None
        if outcome_values is None
        else _numbers("--outcome-values", outcome_values, ",")
    )
    agreed = fourier_plan(
        _features(feature),
        [name.strip() for name in populations.split(",")],
        outcome_values=values,
        n_functions=functions,
        width=width,
        n_groups=groups,
        groups_by=groups_by,
        random_state=seed,
    )
    written = write_sums(PlannedSums.of_no_rows(agreed), out)
    console().print(
        f"Wrote {written}: {agreed.size} functions of {', '.join(agreed.feature_names or ())}. "
        "Send it to every party; each runs unjoined aggregate with it."
    )


@command(
    "unjoined aggregate --plan plan.sums --outcomes north=sales_n.csv \\\n"
    "    --outcomes south=sales_s.csv --outcome bought --out outcomes.sums",
    "unjoined aggregate --plan plan.sums --sql bigquery --outcomes north=crm.sales \\\n"
    "    --outcome bought --out sales.sql",
    "unjoined aggregate --plan plan.sums --results sales.csv --out outcomes.sums",
)
def aggregate(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Option("--plan", help="The agreed plan.")],
    out: Out,
    outcomes: Outcomes = None,
    treatments: Treatments = None,
    outcome: Outcome = "",
    treatment: Treatment = "",
    population: Population = None,
    weight: Weight = None,
    cluster: Cluster = None,
    count: Count = None,
    treated: Treated = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="DIALECT",
            help=f"Write the queries for tables of a database: {', '.join(DIALECTS)}.",
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="With --sql: count people who are alike, not sums."
        ),
    ] = False,
    categories: Categories = None,
    bins: Annotated[
        int,
        typer.Option("--bins", min=1, help="With --counts: values of each feature."),
    ] = BINS,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="What the queries returned, once for each.",
        ),
    ] = None,
    min_count: Annotated[
        int,
        typer.Option(
            "--min-count", min=2, help="Fewest effective rows to a sum or cell."
        ),
    ] = MIN_COUNT,
    checkpoint: Checkpoint = None,
    threads: Annotated[int, typer.Option("--threads", help="-1 is all cores.")] = -1,
    force: Force = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Turn one party's tables into a file of sums, or into SQL that makes them."""
    if threads == 0:
        raise InputError(
            "--threads must not be 0: give a number of threads, or -1 for all cores."
        )
    tables = Tables.of(ctx.params)
    tables.check_party()
    if sql is not None or results:
        _check_alone(tables, sql, results, checkpoint)
    if sql is not None:
        check_option("--sql", sql, DIALECTS)
    if counts and sql is None:
        raise InputError(
            "--counts is for --sql DIALECT. Add it, or leave out --counts."
        )
    if sql is not None:
        check_paths([("--plan", plan)], [("--out", out, QUERIES)], force=force)
        agreed = read_sums(plan).plan
        options: dict[str, Any] = {"count": tables.columns["--count"]}
        if counts:
            options = {"categories": tables.categories, "bins": bins}
            options["min_count"] = min_count
        _write_queries(tables, agreed, sql, options, out, as_json=as_json)
        return
    if results:
        given = [("--results", file) for file in results]
        check_paths([("--plan", plan), *given], [("--out", out, SUMS)], force=force)
        frames = [read_table(file) for file in results]
        found = sums_from_results(
            read_sums(plan).plan, frames, treated=tables.treated, min_count=min_count
        )
        _write(found, out, as_json=as_json)
        return
    kept = [] if checkpoint is None else [("--checkpoint", checkpoint, SUMS)]
    outputs = [*kept, ("--out", out, SUMS)]
    check_paths([("--plan", plan), *tables.paths], outputs, force=force)
    agreed = read_sums(plan).plan
    if agreed.feature_names is None:
        raise InputError(
            f"the plan {str(plan)!r} has no feature names, which tables need."
        )
    source = tables.combined(agreed.feature_names, stream=True)
    sums = aggregate_rows(
        source, agreed, min_count=min_count, checkpoint=checkpoint, n_jobs=threads
    )
    _write(sums, out, as_json=as_json)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def _check_alone(
    tables: Tables, sql: str | None, results: list[Path] | None, checkpoint: Any
) -> None:
    """Refuse what does not go with queries or their results."""
    if sql is not None and results:
        raise InputError(
            "--sql writes queries, and --results reads what they returned. Give one of the two."
        )
    if checkpoint is not None:
        raise InputError("--checkpoint is for rows that are read here. Leave it out.")
    if results and tables.paths:
        raise InputError(
            "--results holds sums of tables, so no table can be given beside it. Merge the two "
            "files of sums with unjoined merge."
        )
    if sql is not None and not tables.paths:
        raise InputError("--sql needs --outcomes or --treatments with names of tables.")


def _write_queries(
    tables: Tables,
    plan: SumsPlan,
    dialect: str,
    options: dict[str, Any],
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Write a query for each table."""
    write = counts_query if "bins" in options else sums_query
    found = []
    for kind in ("outcome", "treatment"):
        named = tables.outcomes if kind == "outcome" else tables.treatments
        for name, table in named.items():
            given = options | {
                kind: tables.columns[f"--{kind}"],
                "population": tables.population or name,
                "is_column": tables.population is not None,
                "dialect": dialect,
            }
            query = write(plan, str(table), **given)
            found.append(f"-- {kind}s of {table}\n{query};\n")
    head = f"{QUERIES.decode()}{plan_digest(plan)[:DIGEST]}, in the SQL of {dialect}.\n"
    text = head + "\n".join(found)
    written = replace_file(out, lambda file: file.write_text(text, encoding="utf-8"))
    if as_json:
        print_json({"out": str(written), "queries": len(found)})
        return
    next_step = (
        "fit to them with unjoined fit --count n"
        if write is counts_query
        else "give them to unjoined aggregate --results"
    )
    console().print(
        f"Wrote {written}: {len(found)} queries, one for each table. Run each where its table is, "
        f"save what it returns as CSV or Parquet, and {next_step}. Sums and counts are data about "
        "people: pass them on under a contract."
    )


@command("unjoined merge outcomes.sums treatments.sums --out all.sums")
def merge(
    files: Annotated[list[Path], typer.Argument(help="Files of sums.")],
    out: Out,
    force: Force = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Add up files of sums that were made with one plan."""
    for (
        file
    ) in files:  # one by one: merging finds out by itself if two hold the same rows
        check_paths([("sums", file)], [("--out", out, SUMS)], force=force)
    _write(merge_sums([read_sums(file) for file in files]), out, as_json=as_json)


def _write(sums: PlannedSums, file: Path, *, as_json: bool) -> None:
    """Write sums and say what they are of."""
    written = write_sums(sums, file)
    groups = sums.sums.n_rows[sums.sums.n_rows > 0]
    smallest = int(groups.min(initial=sums.sums.n_rows.max()))
    if as_json:
        cells = cell_sizes(sums)
        print_json({"out": str(written), "cells": cells, "smallest_group": smallest})
        return
    out = console()
    show_cell_sizes(out, sums)
    out.print(
        f"Wrote {written}: {len(groups)} sets of sums of {sums.plan.size} functions, each over "
        f"{smallest:,} rows or more. Sums are data about people: whoever knows the features can "
        "work out labels. Pass the file on under a contract, as you would the rows."
    )


def _features(entries: list[str]) -> dict[str, tuple[float, float]]:
    """Take NAME=TYPICAL:SPREAD apart, once for each feature."""
    features: dict[str, tuple[float, float]] = {}
    for entry in entries:
        name, equals, numbers = entry.rpartition("=")
        if not (equals and name):
            raise InputError(
                f"--feature must be NAME=TYPICAL:SPREAD, such as age=45:15, got {entry!r}."
            )
        if name in features:
            raise InputError(
                f"--feature was given twice for {name!r}. Give each feature once."
            )
        features[name] = _numbers("--feature", numbers, ":")
    return features


def _numbers(option: str, text: str, separator: str) -> tuple[float, float]:
    try:
        first, second = (float(word) for word in text.split(separator))
    except ValueError:
        raise InputError(
            f"{option} needs two numbers with {separator!r} between them, got {text!r}."
        ) from None
    return first, second
