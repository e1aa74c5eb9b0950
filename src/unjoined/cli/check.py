"""The commands check and plan-study: whether tables can tell uplift, and how many rows it takes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console

from unjoined.cli.inputs import Tables, as_table, check_paths
from unjoined.cli.options import AsJson, Seed, TableOptions, as_share
from unjoined.cli.program import command
from unjoined.cli.show import (
    STYLES,
    console,
    noted,
    print_json,
    show_labels,
    show_table,
    stop_if_red,
)
from unjoined.data.labels import SeparateLabels
from unjoined.data.sources import TableSource
from unjoined.data.tables import read_table
from unjoined.errors import InputError
from unjoined.evaluate import planner
from unjoined.evaluate.diagnosis import Diagnosis
from unjoined.evaluate.evidence import diagnose

FOUR = (
    "--outcomes north=a.csv --outcomes south=b.csv \\\n  --treatments north=c.csv "
    "--treatments south=d.csv --outcome bought --treatment mailed"
)


@command(f"unjoined check {FOUR}", f"unjoined check {FOUR} --target customers.csv --json")
def check(
    given: TableOptions,
    target: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="The people to be scored: is the answer theirs?"),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say whether the tables can tell uplift, for whom, and what to do if not."""
    tables = Tables.of(given)
    tables.require("check needs {}.")
    asked = None if target is None else as_table(target)
    check_paths(tables.paths, [])
    with noted() as notes:
        data: SeparateLabels | TableSource
        data = tables.stream() if tables.in_pieces else tables.read()
        people = None if asked is None else read_table(asked)
        result = diagnose(data, people, random_state=seed)
    if as_json:
        left_out = {column.name: column.reason for column in data.left_out}
        facts = {"features": data.feature_names, "left_out": left_out, "warnings": notes}
        print_json(facts | result.to_dict())
    else:
        show_diagnosis(console(), data, result)
    stop_if_red(result.colour)


def show_diagnosis(out: Console, data: SeparateLabels | TableSource, result: Diagnosis) -> None:
    """Print the verdict in its colour, then what it rests on, then what to do."""
    out.print(result.headline, style=STYLES[result.colour])
    out.print()
    show_labels(out, result.tables)
    out.print(f"Features: {', '.join(data.feature_names or [])}.")
    for column in data.left_out:
        out.print(f"Left out: {column}.")
    if data.left_out:
        out.print("To use such a column after all, name all features with --features.")
    for line in result.remarks() + result.measurements():
        out.print(line)
    for title, columns, rows in result.result_tables():
        out.print()
        out.print(title, style="bold")
        show_table(out, columns, rows)
    out.print()
    out.print(f"What to do next: {result.next_step}")


@dataclass(frozen=True)
class GuessOptions:
    """What is known without a pilot."""

    gap: Annotated[
        float | None, typer.Option(help="Without a pilot: difference of the chances of treatment.")
    ] = None
    outcome_sd: Annotated[
        float | None, typer.Option(help="Without a pilot: standard deviation of the outcome.")
    ] = None
    uplift: Annotated[float, typer.Option(help="Without a pilot: the average uplift.")] = 0.0
    uplift_sd: Annotated[
        float, typer.Option(help="Without a pilot: standard deviation of uplift over people.")
    ] = 0.0
    treated_share: Annotated[float, typer.Option(help="Without a pilot: share treated.")] = 0.5

    def guess(self, tables: Tables) -> planner.StudyGuess | None:
        """Return the guess, None if no number was given but tables may be."""
        if self == GuessOptions():
            return None
        if named := [option for option, value in tables.given.items() if value]:
            raise InputError(
                f"plan-study takes a pilot or a guess, not both: leave out {named[0]} and the "
                "other tables, or --gap, --outcome-sd and the like."
            )
        if self.gap is None or self.outcome_sd is None:
            raise InputError(
                "a plan without a pilot needs --gap and --outcome-sd. For a 0/1 outcome of rate p, "
                "--outcome-sd is the root of p (1 - p)."
            )
        return planner.StudyGuess(
            self.gap, self.outcome_sd, self.uplift, self.uplift_sd, self.treated_share
        )


@dataclass(frozen=True)
class PrecisionOptions:
    """What is to be known, and how precisely."""

    quantity: Annotated[str, typer.Option(help="One of average, auuc, qini, top.")] = "average"
    share: Annotated[str, typer.Option(help="With --quantity top: share treated.")] = "0.3"
    half_width: Annotated[
        float | None, typer.Option(help="Wanted half width of the interval, outcome units.")
    ] = None
    standard_error: Annotated[
        float | None, typer.Option(help="Or the wanted standard error, outcome units.")
    ] = None
    level: Annotated[float, typer.Option(help="Level of the interval.")] = 0.95
    treatment_rows: Annotated[float, typer.Option(help="Treatment rows for each outcome row.")] = (
        1.0
    )


@command(
    "unjoined plan-study --gap 0.4 --outcome-sd 0.3 --uplift 0.05 --half-width 0.02",
    f"unjoined plan-study {FOUR} \\\n  --quantity auuc --half-width 0.01",
)
def plan_study(
    pilot: TableOptions,
    guessed: GuessOptions,
    wanted: PrecisionOptions,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say how many rows, and how large a policy gap, a wanted precision needs."""
    tables = Tables.of(pilot)
    guess = guessed.guess(tables)
    if guess is None:
        tables.require("plan-study needs a pilot, as {}, or --gap and --outcome-sd.")
        check_paths(tables.paths, [])
    data = tables.read() if guess is None else guess
    try:
        asked = asdict(wanted) | {"share": as_share(wanted.share)}
        plan = planner.plan_study(data, **asked, random_state=seed)
    except InputError as error:  # which speaks of arguments
        said = re.sub(
            r"^(gap|level|quantity|share|half_width|standard_error) ", r"--\1 ", str(error)
        )
        words = re.sub(r"-*\b(half|standard|treatment)_(width|error|rows)\b", r"--\1-\2", said)
        raise InputError(words) from error
    if as_json:
        print_json(plan.to_dict())
        return
    out = console()
    for j, line in enumerate(plan.sentences()):
        out.print(line, style="bold" if j == 0 else None)
    for title, columns, rows in plan.result_tables():
        out.print()
        out.print(title, style="bold")
        show_table(out, columns, rows)
