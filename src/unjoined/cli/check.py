"""The commands check and plan-study: whether tables identify uplift, and how many rows it takes."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from rich.console import Console

from unjoined.cli.inputs import Tables, as_table, check_paths
from unjoined.cli.options import (
    AsJson,
    Details,
    NeverHarms,
    Randomised,
    Seed,
    UnitName,
    as_share,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import (
    Screen,
    console,
    noted,
    print_json,
    show_labels,
    show_titled,
    stop_if,
    verdict_line,
)
from unjoined.data.labels import SeparateLabels
from unjoined.data.tables import read_table
from unjoined.errors import InputError
from unjoined.estimators.arms import ArmUplift
from unjoined.evaluate import planner
from unjoined.evaluate.diagnosis import Diagnosis, diagnose
from unjoined.evaluate.verdict import RED
from unjoined.words import Unit

MOST_REMARKS = 2  # on one screen
FOUR = (
    "--outcomes north=a.csv --outcomes south=b.csv \\\n  --treatments north=c.csv "
    "--treatments south=d.csv --outcome bought --treatment mailed"
)


@command(
    f"unjoined check {FOUR}", f"unjoined check {FOUR} --target customers.csv --json"
)
def check(
    tables: Tables,
    randomised: Randomised = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TABLE",
            help="The people to be scored: is the answer theirs?",
        ),
    ] = None,
    never_harms: NeverHarms = False,
    unit: UnitName = None,
    details: Details = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say whether the tables identify uplift, for whom, and what to do if not."""
    tables.require("check needs {}.")
    asked = None if target is None else as_table(target)
    check_paths(tables.paths, [])
    if tables.control is not None:
        _check_arms(tables, seed, details=details, as_json=as_json)
        return
    with noted() as notes:
        data = tables.stream() if tables.in_pieces else tables.read()
        people = None if asked is None else read_table(asked)
        result = diagnose(
            data,
            people,
            randomised=randomised,
            never_harms=never_harms,
            random_state=seed,
        )
    if as_json:
        left_out = {column.name: column.reason for column in data.left_out}
        facts = {
            "features": data.feature_names,
            "left_out": left_out,
            "warnings": notes,
        }
        print_json(facts | result.to_dict())
    else:
        outcome = tables.columns["--outcome"] or ""
        turns = result.sensitivity
        is_rate = turns is not None and turns.is_rate
        named = Unit.of_outcome(outcome, unit, is_rate=is_rate)
        show_answer(data, result, named, details=details)
    stop_if(result.colour == RED)


def _check_arms(tables: Tables, seed: int, *, details: bool, as_json: bool) -> None:
    """Say of each of several treatments whether the tables tell it from the others."""
    screen = Screen(details=details, quiet=as_json)
    with noted() as notes:
        data = tables.read()
        fitted = ArmUplift(random_state=seed).fit(data)
    show_labels(screen.more, data.summary())
    facts: dict[str, Any] = {"control": fitted.control_, "warnings": notes}
    lines = []
    for arm, model in fitted.models_.items():
        facts[arm] = model.verdict_.to_dict()
        lines.append(f"{arm}: {model.summary_lines()['policies']}")
    verdict = fitted.verdict_
    lines += [verdict.untested] * bool(verdict.untested)
    screen.answer(verdict.colour, verdict_line(verdict), lines)
    if as_json:
        print_json(facts)
    stop_if(verdict.colour == RED)


def show_answer(
    data: SeparateLabels, result: Diagnosis, unit: Unit, *, details: bool
) -> None:
    """Print the verdict, what weighs most for or against it, and what to do: one screen."""
    screen = Screen(details=details, quiet=False)
    remarks = result.remarks()
    lines = remarks if details else remarks[:MOST_REMARKS]
    turns = result.sensitivity
    if turns is not None and result.turning and not details:
        lines.append(turns.in_words(turns.average, unit=unit.name))
    lines += [
        f"Left out: {column}."
        for column in data.left_out
        if "cluster" in column.reason and not details  # which is for the user to say
    ]
    if details:
        _show_measured(screen.more, data, result)
    else:
        named = ", ".join(column.name for column in data.left_out)
        more = max(len(remarks) - MOST_REMARKS, 0)
        lines.append(
            f"{len(data.feature_names or [])} features"
            + f"; left out: {named}" * bool(named)
            + f". {f'{more} more findings' if more else 'More'} with --details."
        )
    first, stop, _ = result.next_step.partition(". ")
    step = result.next_step if details else f"{first}{stop.rstrip()}"
    screen.answer(
        result.colour, result.headline, lines, then=f"What to do next: {step}"
    )


def _show_measured(out: Console, data: SeparateLabels, result: Diagnosis) -> None:
    """Print what a verdict rests on: tables, features, measurements."""
    show_labels(out, result.tables)
    out.print(f"Features: {', '.join(data.feature_names or [])}.")
    for column in data.left_out:
        out.print(f"Left out: {column}.")
    if data.left_out:
        out.print("To use such a column after all, name all features with --features.")
    for line in result.measurements():
        out.print(line)
    show_titled(out, result.result_tables())
    out.print()


@command(
    "unjoined plan-study --gap 0.4 --outcome-sd 0.3 --uplift 0.05 --half-width 0.02",
    f"unjoined plan-study {FOUR} \\\n  --quantity auuc --half-width 0.01",
)
def plan_study(
    tables: Tables,
    gap: Annotated[
        float | None,
        typer.Option(
            "--gap", help="Without a pilot: difference of the chances of treatment."
        ),
    ] = None,
    outcome_sd: Annotated[
        float | None,
        typer.Option(
            "--outcome-sd", help="Without a pilot: standard deviation of the outcome."
        ),
    ] = None,
    uplift: Annotated[
        float, typer.Option("--uplift", help="Without a pilot: the average uplift.")
    ] = 0.0,
    uplift_sd: Annotated[
        float,
        typer.Option(
            "--uplift-sd",
            help="Without a pilot: standard deviation of uplift over people.",
        ),
    ] = 0.0,
    treated_share: Annotated[
        float, typer.Option("--treated-share", help="Without a pilot: share treated.")
    ] = 0.5,
    quantity: Annotated[
        str, typer.Option("--quantity", help="One of average, auuc, qini, top.")
    ] = "average",
    share: Annotated[
        str, typer.Option("--share", help="With --quantity top: share treated.")
    ] = "0.3",
    half_width: Annotated[
        float | None,
        typer.Option(
            "--half-width", help="Wanted half width of the interval, outcome units."
        ),
    ] = None,
    standard_error: Annotated[
        float | None,
        typer.Option(
            "--standard-error", help="Or the wanted standard error, outcome units."
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Level of the interval.")
    ] = 0.95,
    treatment_rows: Annotated[
        float,
        typer.Option("--treatment-rows", help="Treatment rows for each outcome row."),
    ] = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say how many rows, and how large a policy gap, a wanted precision needs."""
    tables.refuse_arms("plan-study")
    data: Any
    if (gap, outcome_sd, uplift, uplift_sd, treated_share) == (
        None,
        None,
        0.0,
        0.0,
        0.5,
    ):
        tables.require("plan-study needs a pilot, as {}, or --gap and --outcome-sd.")
        check_paths(tables.paths, [])
        data = tables.read()
    else:
        spread = _check_guess(tables, gap, outcome_sd)
        data = planner.StudyGuess(*spread, uplift, uplift_sd, treated_share)
    try:
        plan = planner.plan_study(
            data,
            quantity=quantity,
            share=as_share(share),
            half_width=half_width,
            standard_error=standard_error,
            level=level,
            treatment_rows=treatment_rows,
            random_state=seed,
        )
    except InputError as error:  # which speaks of arguments
        said = re.sub(
            r"^(gap|level|quantity|share|half_width|standard_error) ",
            r"--\1 ",
            str(error),
        )
        words = re.sub(
            r"-*\b(half|standard|treatment)_(width|error|rows)\b", r"--\1-\2", said
        )
        raise InputError(words) from error
    if as_json:
        print_json(plan.to_dict())
        return
    out = console()
    for j, line in enumerate(plan.sentences()):
        out.print(line, style="bold" if j == 0 else None)
    show_titled(out, plan.result_tables())


def _check_guess(
    tables: Tables, gap: float | None, outcome_sd: float | None
) -> tuple[float, float]:
    """Refuse a guess beside a pilot, and one that lacks what it needs."""
    if named := [option for option, value in tables.options.items() if value]:
        raise InputError(
            f"plan-study takes a pilot or a guess, not both: leave out {named[0]} and the "
            "other tables, or --gap, --outcome-sd and the like."
        )
    if gap is None or outcome_sd is None:
        raise InputError(
            "a plan without a pilot needs --gap and --outcome-sd. For a 0/1 outcome of rate p, "
            "--outcome-sd is the root of p (1 - p)."
        )
    return gap, outcome_sd
