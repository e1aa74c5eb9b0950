"""The command check: whether tables can tell uplift."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unjoined.cli.inputs import Tables, check_paths
from unjoined.cli.options import (
    AsJson,
    Features,
    Ignore,
    Outcome,
    Paths,
    Population,
    Seed,
    Treated,
    Treatment,
    Weight,
)
from unjoined.cli.program import command
from unjoined.cli.show import console, print_json, show_labels, show_table
from unjoined.data import SeparateLabels, read_table
from unjoined.metrics import Diagnosis, diagnose

STYLES = {"green": "bold green", "amber": "bold yellow", "red": "bold red"}


@command(
    "unjoined check --outcomes north=a.csv --outcomes south=b.csv --treatments north=c.csv "
    "--treatments south=d.csv --outcome bought --treatment mailed"
)
def check(
    outcomes: Paths = None,
    treatments: Paths = None,
    outcome: Outcome = "",
    treatment: Treatment = "",
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    weight: Weight = None,
    treated: Treated = None,
    target: Annotated[
        Path | None, typer.Option(help="A table of the people to be scored: is the answer theirs?")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say whether the tables can tell uplift, for whom, and what to do if not."""
    tables = Tables.of(
        outcomes, treatments, outcome, treatment, population, weight, features, ignore, treated
    )
    tables.require("check needs {}.")
    check_paths(tables.paths + ([] if target is None else [("--target", target)]), [])
    data = tables.read()
    people = None if target is None else read_table(target)
    result = diagnose(data, people, random_state=seed)
    if as_json:
        print_json({"features": data.feature_names} | result.to_dict())
    else:
        show_diagnosis(console(), data, result)


def show_diagnosis(out: Console, data: SeparateLabels, result: Diagnosis) -> None:
    """Print the verdict in its colour, then what it rests on, then what to do."""
    out.print(result.headline, style=STYLES[result.colour])
    out.print()
    show_labels(out, data)
    out.print(f"Features: {', '.join(data.feature_names or [])}.")
    for line in result.remarks() + result.measurements():
        out.print(line)
    for title, columns, rows in result.result_tables():
        out.print()
        out.print(title, style="bold")
        show_table(out, columns, rows)
    out.print()
    out.print(f"What to do next: {result.next_step}")
