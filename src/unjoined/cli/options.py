"""The program itself, and the options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unjoined
from unjoined._compiled import arithmetic

app = typer.Typer(
    help="Whom to treat, when treatment and outcome labels can never be joined.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

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


def _version(value: bool) -> None:
    if value:
        print(f"{unjoined.__version__} ({arithmetic()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Whom to treat, when treatment and outcome labels can never be joined."""
