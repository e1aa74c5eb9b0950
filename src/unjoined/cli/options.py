"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unjoined.cli.program import app as app  # commands register with it

Paths = Annotated[
    list[str] | None,
    typer.Option(help="CSV or Parquet: FILE with --population, else NAME=FILE for each."),
]
Outcome = Annotated[str, typer.Option(help="Column with the outcome.")]
Treatment = Annotated[
    str, typer.Option(help="Column with the treatment: 0/1, yes/no, treated/control and the like.")
]
Treated = Annotated[
    str | None, typer.Option(help="The value that means treated, if it is none of these.")
]
Population = Annotated[str | None, typer.Option(help="Column that names each row's population.")]
Features = Annotated[str | None, typer.Option(help="Feature columns, comma-separated; or all.")]
Ignore = Annotated[str | None, typer.Option(help="Columns to leave out, comma-separated.")]
Weight = Annotated[str | None, typer.Option(help="Column with row weights.")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="File that an interrupted pass resumes from.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
