"""Options that commands share: the same names and words everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._typing import Frame
from unjoined._validation import check_share, did_you_mean, shown
from unjoined.cli.program import SharedOptions
from unjoined.errors import InputError, TableError
from unjoined.words import Unit

TABLES = (
    "Once for each population, or one TABLE with --population. A table is a file (CSV, "
    "Parquet, Excel, JSON lines), shop.duckdb:TABLE, shop.sqlite:TABLE, book.xlsx:SHEET, or a "
    'query: "SELECT ...".'
)
Outcomes = Annotated[
    list[str] | None, typer.Option("--outcomes", metavar="NAME=TABLE", help=TABLES)
]
Treatments = Annotated[
    list[str] | None, typer.Option("--treatments", metavar="NAME=TABLE", help=TABLES)
]
Both = Annotated[
    list[str] | None,
    typer.Option(
        "--both",
        metavar="NAME=TABLE",
        help="Rows with both labels, such as a panel; as --outcomes.",
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policies",
        metavar="NAME=CHANCE",
        help="A known chance of treatment, in place of --treatments: 0.3, 30% or a column of the "
        "outcome table; repeatable.",
    ),
]
Outcome = Annotated[
    str, typer.Option("--outcome", metavar="COLUMN", help="Column with the outcome.")
]
Treatment = Annotated[
    str,
    typer.Option(
        "--treatment",
        metavar="COLUMN",
        help="Column with the treatment: 0/1, yes/no, treated/control and the like.",
    ),
]
Treated = Annotated[
    list[str] | None,
    typer.Option(
        "--treated",
        metavar="VALUE",
        help="The value that means treated, if it is none of these; repeatable.",
    ),
]
Population = Annotated[
    str | None,
    typer.Option(
        "--population",
        metavar="COLUMN",
        help="Column that names each row's population.",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="Feature columns, comma-separated; default: all that look like features.",
    ),
]
Ignore = Annotated[
    str | None,
    typer.Option(
        "--ignore", metavar="COLUMNS", help="Columns to leave out, comma-separated."
    ),
]
Categories = Annotated[
    str | None,
    typer.Option(
        "--categories",
        metavar="COLUMNS",
        help="Columns of codes, such as store numbers, not amounts; comma-separated.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="COLUMN",
        help="Column with the household, store or customer that several rows share.",
    ),
]
Count = Annotated[
    str | None,
    typer.Option(
        "--count",
        metavar="COLUMN",
        help="Column with the number of people that a row stands for.",
    ),
]
Dose = Annotated[
    bool,
    typer.Option(
        "--dose",
        help="Treatments are amounts, such as a number of mails: uplift is that of one unit.",
    ),
]
Control = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="VALUE",
        help="The treatment that is none, where there are several others.",
    ),
]
Randomised = Annotated[
    bool,
    typer.Option(
        "--randomised",
        help="Chance decided who is in which population; the treatment is taken up by choice.",
    ),
]
NeverHarms = Annotated[
    bool,
    typer.Option(
        "--never-harms",
        help="Treatment can do nobody harm: for the bounds that are told on red.",
    ),
]
Weight = Annotated[
    str | None,
    typer.Option("--weight", metavar="COLUMN", help="Column with row weights."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        help="File that an interrupted pass resumes from.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=2**32 - 1,
        metavar="NUMBER",
        help="The same seed gives the same result.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
DespiteRed = Annotated[
    bool,
    typer.Option(
        "--despite-red",
        help="Write whom to treat although the verdict on the tables is red.",
    ),
]
Model = Annotated[
    Path,
    typer.Option("--model", metavar="FILE", help="A model written by `unjoined fit`."),
]
People = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="People to score: a file, shop.duckdb:TABLE, book.xlsx:SHEET or a query.",
    ),
]
ChooseFrom = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="People to choose from; default: those of the tables.",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="COLUMNS",
        help="Columns to copy, such as an id, comma-separated.",
    ),
]
Share = Annotated[
    str | None,
    typer.Option("--share", metavar="SHARE", help="Treat this share: 30% or 0.3."),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="MONEY", help="Most that may be spent; needs --cost."
    ),
]
Costs = Annotated[
    str,
    typer.Option(
        "--cost",
        metavar="MONEY",
        help="What treating one person costs; with several treatments mail=0.5,phone=3.",
    ),
]
Cost = Annotated[
    float,
    typer.Option("--cost", metavar="MONEY", help="What treating one person costs."),
]
Value = Annotated[
    float | None,
    typer.Option(
        "--value", metavar="MONEY", help="What one unit of the outcome is worth."
    ),
]

Details = Annotated[
    bool,
    typer.Option("--details", help="Say all that was found, with numbers."),
]
UnitName = Annotated[
    str | None,
    typer.Option(
        "--unit",
        metavar="WORD",
        help="What outcomes are called, such as purchases; default: by the outcome's name.",
    ),
]
Currency = Annotated[
    str,
    typer.Option(
        "--currency",
        metavar="WORD",
        help="Written after amounts of money, such as EUR.",
    ),
]

Chunks = Annotated[
    bool | None,
    typer.Option(
        "--chunks/--no-chunks",
        help="Read tables in pieces, or not; default: if they are larger than memory allows.",
    ),
]


class Worth(SharedOptions):
    """What an outcome is called and worth, and what treating costs."""

    def __init__(
        self,
        value: Value = None,
        cost: Costs = "0",
        unit: UnitName = None,
        currency: Currency = "",
    ) -> None:
        """Take them as they are: which treatments there are is known later."""
        self.value, self.cost = value, cost
        self.unit, self.currency = unit, currency

    def costs(self, arms: Sequence[str] = ()) -> dict[str, float]:
        """Return what each of several treatments costs, or the only one, under ""."""
        return as_costs(self.cost, arms)

    def unit_of(self, model: Any) -> Unit:
        """Return what outcomes are called: as was said now, when the model was fitted, or not."""
        known: Unit = model._unit
        if self.unit is not None:
            known = Unit(self.unit, getattr(model, "_is_rate", False))
        return replace(known, currency=self.currency)


def split_names(option: str, names: str | None) -> list[str]:
    """Take a comma-separated list of columns apart; none may be named twice."""
    columns = [name.strip() for name in (names or "").split(",") if name.strip()]
    for i, name in enumerate(columns):
        if name in columns[:i]:
            raise TableError(
                f"{option} names the column {name!r} twice. Name each column once."
            )
    return columns


def select_columns(table: Frame, names: list[str], *, title: str) -> Frame:
    """Return the named columns, in that order, or say which are missing."""
    if missing := [name for name in names if name not in table.column_names]:
        rest = [name for name in table.column_names if name not in names]
        raise TableError(
            f"{title} lacks the column{'s' * (len(missing) > 1)} {shown(missing)}; its columns are "
            f"{', '.join(table.column_names)}{did_you_mean(missing[0], rest)}"
        )
    return table.select(names)


def as_share(text: str, option: str = "--share") -> float:
    """Read a share as people write it: 30%, 30 %, 0.3."""
    word = text.strip()
    percent = word.endswith("%")
    try:
        number = float(word.removesuffix("%"))
    except ValueError:
        raise InputError(
            f"{option} must be a share such as 30% or 0.3, got {text!r}."
        ) from None
    if not percent and 1.0 < number <= 100.0:
        raise InputError(
            f"{option} must lie in [0, 1], got {text}. Write {number:g}% for percent."
        )
    if percent and number > 100.0:
        raise InputError(f"{option} must be 100% of people at most, got {text}.")
    return check_share(option, number / 100.0 if percent else number, zero_allowed=True)


def as_costs(text: str, arms: Sequence[str] = ()) -> dict[str, float]:
    """Take costs of treatments apart: one number for all, or NAME=MONEY, comma-separated."""
    parts = [part.partition("=") for part in text.split(",")]
    try:
        if len(parts) == 1 and not parts[0][1]:
            return dict.fromkeys(arms or ("",), float(text))
        costs = {name.strip(): float(money) for name, _, money in parts}
    except ValueError:
        raise InputError(
            f"--cost must be a number, or NAME=MONEY for each treatment such as mail=0.5,phone=3, "
            f"got {text!r}."
        ) from None
    if {*costs} != {*arms}:
        what = (
            f"treatments {shown(arms)}"
            if arms
            else "one treatment, and takes one number"
        )
        raise InputError(
            f"--cost names {shown([*costs])}, and the model is of {what}. Give one number for all, "
            "or one for each."
        )
    return costs


def as_policies(entries: Sequence[str] | None) -> dict[str, str | float]:
    """Take NAME=CHANCE apart: a number from 0 to 1 or in percent, else a column."""
    policies: dict[str, str | float] = {}
    for entry in entries or ():
        name, _, chance = (part.strip() for part in entry.partition("="))
        if not (name and chance):
            raise TableError(
                f"--policies {entry!r} must be NAME=CHANCE, such as north=0.3, north=30% or "
                "north=a_column of its outcome table."
            )
        if name in policies:
            raise TableError(f"--policies was given twice for population {name!r}.")
        is_number = re.fullmatch(r"[-+]?[\d.]+(e-?\d+)?\s*%?", chance, re.IGNORECASE)
        policies[name] = as_share(chance, "--policies") if is_number else chance
    return policies
