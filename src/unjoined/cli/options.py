"""Options that commands share: the same names and words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from unjoined.cli.program import command as command

Paths = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TABLE",
        help="Once for each population, or one TABLE with --population. A table is a file (CSV, "
        'Parquet, Excel, JSON lines), shop.duckdb:TABLE, or a query: "SELECT ...".',
    ),
]
Outcome = Annotated[str, typer.Option(metavar="COLUMN", help="Column with the outcome.")]
Treatment = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="Column with the treatment: 0/1, yes/no, treated/control and the like.",
    ),
]
Treated = Annotated[
    str | None,
    typer.Option(metavar="VALUE", help="The value that means treated, if it is none of these."),
]
Population = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that names each row's population.")
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Feature columns, comma-separated; default: all that look like features.",
    ),
]
Ignore = Annotated[
    str | None, typer.Option(metavar="COLUMNS", help="Columns to leave out, comma-separated.")
]
Weight = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with row weights.")]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that an interrupted pass resumes from.")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**32 - 1, metavar="NUMBER", help="The same seed gives the same result."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Model = Annotated[Path, typer.Option(metavar="FILE", help="A model written by `unjoined fit`.")]
People = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help='People to score: a file, shop.duckdb:TABLE or a query, "SELECT ...".',
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="Columns to copy, such as an id, comma-separated."),
]
Share = Annotated[str | None, typer.Option(metavar="SHARE", help="Treat this share: 30% or 0.3.")]
Budget = Annotated[
    float | None, typer.Option(metavar="MONEY", help="Most that may be spent; needs --cost.")
]
Cost = Annotated[float, typer.Option(metavar="MONEY", help="What treating one person costs.")]
Value = Annotated[
    float | None, typer.Option(metavar="MONEY", help="What one unit of the outcome is worth.")
]

Folder = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder for the files it writes.")
]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options that name tables and what their columns mean."""

    outcomes: Paths = None
    treatments: Paths = None
    outcome: Outcome = ""
    treatment: Treatment = ""
    population: Population = None
    features: Features = None
    ignore: Ignore = None
    weight: Weight = None
    treated: Treated = None
