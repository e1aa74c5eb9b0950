"""Commands for sums: agree on a plan, add up a party's tables, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._validation import OUTCOME, TREATMENT
from unjoined.cli.inputs import SUMS, TableOptions, _named_files, check_columns, check_paths
from unjoined.cli.show import console, print_json
from unjoined.data import TableSource
from unjoined.errors import InputError, TableError
from unjoined.sums import (
    MIN_COUNT,
    GroupedSums,
    PlannedSums,
    PolicySums,
    aggregate_rows,
    fourier_plan,
    merge_sums,
    read_finished_sums,
    read_sums,
    write_sums,
)

LARGEST_SEED = 2**32 - 1  # that numpy takes


Out = Annotated[Path, typer.Option("--out", help="File to write.")]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


Tables = Annotated[
    list[str] | None,
    typer.Option(help="Table or folder: FILE with --population, else NAME=FILE. May be left out."),
]


def add_sums_commands(app: typer.Typer) -> None:
    """Add ``plan``, ``aggregate`` and ``merge`` to the command line."""
    for command in (plan, aggregate, merge):
        app.command()(command)


def plan(
    feature: Annotated[
        list[str], typer.Option("--feature", help="NAME=TYPICAL:SPREAD, once for each feature.")
    ],
    populations: Annotated[str, typer.Option("--populations", help="The two, comma-separated.")],
    out: Out,
    outcome_values: Annotated[
        str | None, typer.Option("--outcome-values", help="LOW,HIGH if the outcome has two.")
    ] = None,
    functions: Annotated[
        int | None,
        typer.Option("--functions", min=1, help="Fourier features. 3 per feature, up to 30."),
    ] = None,
    width: Annotated[float | None, typer.Option("--width", help="In spreads.")] = None,
    groups: Annotated[
        int, typer.Option("--groups", min=2, help="Groups ridges are chosen by.")
    ] = 5,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Draws the Fourier features.")
    ] = 0,
) -> None:
    """Write the plan that all parties then use: features, scales and functions, no rows."""
    check_paths([], [("--out", out, SUMS)])
    values = None if outcome_values is None else _numbers(outcome_values, ",", "--outcome-values")
    agreed = fourier_plan(
        _features(feature),
        [name.strip() for name in populations.split(",")],
        outcome_values=values,
        n_functions=functions,
        width=width,
        n_groups=groups,
        random_state=seed,
    )
    nothing = PlannedSums(agreed, GroupedSums(agreed.size), PolicySums.zero(agreed.n_features))
    written = write_sums(nothing, out)
    console().print(
        f"Wrote {written}: {agreed.size} functions of {', '.join(agreed.feature_names or ())}. "
        "Send it to every party; each runs unjoined aggregate with it."
    )


def aggregate(
    plan: Annotated[Path, typer.Option("--plan", help="The agreed plan.")],
    out: Out,
    outcomes: Tables = None,
    treatments: Tables = None,
    outcome: Annotated[str, typer.Option("--outcome", help="Column with the outcome.")] = "",
    treatment: Annotated[str, typer.Option("--treatment", help="Column with it, 0/1.")] = "",
    population: Annotated[
        str | None, typer.Option("--population", help="Column that names each row's population.")
    ] = None,
    weight: Annotated[str | None, typer.Option("--weight", help="Column with weights.")] = None,
    min_count: Annotated[
        int, typer.Option("--min-count", min=2, help="Fewest effective rows to a sum.")
    ] = MIN_COUNT,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="Where an interrupted pass goes on; else anew."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="-1 is all cores.")] = -1,
    as_json: AsJson = False,
) -> None:
    """Turn one party's tables into a file of sums for the agreed plan."""
    if threads == 0:
        raise InputError("--threads must not be 0: give a number of threads, or -1 for all cores.")
    options = TableOptions(
        outcomes or [], treatments or [], outcome, treatment, population, None, None, weight
    )
    check_columns(options)
    files = {
        kind: _files(entries, kind, label, population)
        for kind, entries, label in (
            (OUTCOME, outcomes, outcome),
            (TREATMENT, treatments, treatment),
        )
    }
    inputs = [(f"--{kind}s", path) for kind, named in files.items() for path in named.values()]
    kept = [] if checkpoint is None else [("--checkpoint", checkpoint, SUMS)]
    check_paths([("--plan", plan), *inputs], [*kept, ("--out", out, SUMS)])
    agreed = read_sums(plan)[0].plan
    if agreed.feature_names is None:
        raise InputError(f"the plan {str(plan)!r} has no feature names, which tables need.")
    columns: dict[str, Any] = {
        "outcome": outcome,
        "treatment": treatment,
        "sample_weight": weight,
        "features": agreed.feature_names,
    }
    if population is None:
        source = TableSource.from_tables(files[OUTCOME], files[TREATMENT], **columns)
    else:
        tables = [next(iter(files[kind].values()), None) for kind in (OUTCOME, TREATMENT)]
        source = TableSource.from_frames(*tables, population=population, **columns)
    found = aggregate_rows(
        source, agreed, min_count=min_count, checkpoint=checkpoint, n_jobs=threads
    )
    written = write_sums(found, out)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    _report(found, written, as_json)


def merge(
    files: Annotated[list[Path], typer.Argument(help="Files of sums.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Add up files of sums that were made with one plan."""
    for file in files:  # one by one: that two hold the same rows is told by what is in them
        check_paths([("sums", file)], [("--out", out, SUMS)])
    found = merge_sums([read_finished_sums(file) for file in files])
    _report(found, write_sums(found, out), as_json)


def _report(found: PlannedSums, written: Path, as_json: bool) -> None:
    cells = [
        {"kind": kind, "population": name, "rows": found.n_rows(kind, k)}
        for kind in (OUTCOME, TREATMENT)
        for k, name in enumerate(found.plan.populations)
    ]
    groups = [sums.n_rows for sums in found.sums.cells.values()]
    if as_json:
        print_json({"out": str(written), "cells": cells, "smallest_group": min(groups, default=0)})
        return
    out = console()
    for cell in cells:
        out.print(f"{cell['kind']} rows of {cell['population']}: {cell['rows']:,}")
    out.print(
        f"Wrote {written}: {len(groups)} sets of sums of {found.plan.size} functions, each over "
        f"{min(groups, default=0):,} rows or more. It holds no rows, but sums are not anonymous in "
        "general; see the guide before you pass it on."
    )


def _files(
    entries: list[str] | None, kind: str, label: str, population: str | None
) -> dict[str, Path]:
    """Return files by population, or under "" if a column tells the population."""
    files = _named_files(entries or [], f"--{kind}s")
    if files and not label:
        raise TableError(f"--{kind}s needs --{kind}, the column with the {kind}.")
    if files and population is None and "" in files:
        raise TableError(
            f"write --{kind}s NAME=FILE to say whose rows these are, or name the column that "
            "tells populations apart with --population."
        )
    if population is not None and len(files) > 1:
        raise TableError(f"with --population there is one --{kind}s file or folder.")
    return files


def _features(entries: list[str]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, numbers in map(_feature, entries):
        if name in found:
            raise InputError(f"--feature was given twice for {name!r}. Give each feature once.")
        found[name] = numbers
    return found


def _feature(entry: str) -> tuple[str, tuple[float, float]]:
    name, equals, numbers = entry.rpartition("=")
    if not (equals and name):
        raise InputError(
            f"--feature must be NAME=TYPICAL:SPREAD, such as age=45:15, got {entry!r}."
        )
    return name, _numbers(numbers, ":", "--feature")


def _numbers(text: str, separator: str, option: str) -> tuple[float, float]:
    try:
        first, second = (float(word) for word in text.split(separator))
    except ValueError:
        raise InputError(
            f"{option} needs two numbers with {separator!r} between them, got {text!r}."
        ) from None
    return first, second
