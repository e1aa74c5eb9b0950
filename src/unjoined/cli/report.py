"""The command report: one HTML file on a model, its tables and the people to choose from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._validation import shown
from unjoined.cli.app import targeting_list
from unjoined.cli.inputs import TABLE, Tables, check_paths, split_names
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
    app,
)
from unjoined.cli.show import console, print_json
from unjoined.data import read_table, write_table
from unjoined.errors import InputError, TableError
from unjoined.estimators import load_model
from unjoined.report import Origin, Terms
from unjoined.report import report as write_report


@app.command()
def report(
    ctx: typer.Context,
    model: Annotated[Path, typer.Option(help="A model written by `unjoined fit`.")],
    outcomes: Paths = None,
    treatments: Paths = None,
    outcome: Outcome = "",
    treatment: Treatment = "",
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    weight: Weight = None,
    treated: Treated = None,
    people: Annotated[
        Path | None, typer.Option(help="People to choose from; default: those of the tables.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write, .html.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the report.")] = "Whom to treat",
    unit: Annotated[
        str | None, typer.Option(help="What outcomes are called, such as purchases.")
    ] = None,
    value: Annotated[
        float | None, typer.Option(help="What one unit of the outcome is worth, money.")
    ] = None,
    cost: Annotated[float, typer.Option(help="What treating one person costs, money.")] = 0.0,
    currency: Annotated[str, typer.Option(help="Written after amounts of money.")] = "",
    share: Annotated[
        float | None, typer.Option(help="Treat this share, 0 to 1; default: all it pays for.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Most that may be spent, money.")] = None,
    list_out: Annotated[
        Path | None, typer.Option("--list", help="Also write the list of people, .csv or .parquet.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Columns of people to copy to the list, such as an id.")
    ] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="The model was fitted to other rows than these.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write a report: whom to treat, what it brings, how far to trust it."""
    tables = Tables.of(
        outcomes, treatments, outcome, treatment, population, weight, features, ignore, treated
    )
    _check_given(tables, people=people, list_out=list_out, keep=keep)
    inputs = [*tables.paths, ("--model", model)]
    inputs += [] if people is None else [("--people", people)]
    outputs = [("--out", out, TABLE)] + ([("--list", list_out, TABLE)] if list_out else [])
    check_paths(inputs, outputs)
    _check_free([path for _, path, _ in outputs], force=force)
    terms = Terms(unit or f"units of {outcome}", value, cost, currency, share, budget)
    fitted, data = load_model(model), tables.read()
    known = [str(name) for name in getattr(fitted, "feature_names_in_", ())]
    kept = split_names("--keep", keep)
    rows = None if people is None else read_table(people, text=[c for c in kept if c not in known])
    origin = Origin(
        title=title,
        command=command_line(ctx),
        list_file=list_out.name if list_out and list_out.parent == out.parent else None,
        left_out=tuple(tables.ignored),
    )
    if rows is not None and list_out is not None:
        treated_share = float(terms.rule(fitted.predict(rows.select(known))).mean())
        scores = targeting_list(fitted, rows, title=str(people), keep=kept, share=treated_share)
        write_table(scores, list_out)
    written = write_report(
        fitted,
        data,
        out,
        people=rows,
        terms=terms,
        origin=origin,
        held_out=held_out,
        overwrite=force,
        random_state=seed,
    )
    console(quiet=as_json).print(f"Wrote {written}. Open it in a browser; it needs no network.")
    if as_json:
        print_json({"report": str(written), "list": None if list_out is None else str(list_out)})


def _check_given(tables: Tables, **options: Any) -> None:
    """Say which of the tables and labels is missing, and what is of no use without people."""
    needed = list(tables.given)[:4]
    if missing := [option for option in needed if not tables.given[option]]:
        raise TableError(f"report needs {', '.join(needed)}. Missing: {', '.join(missing)}.")
    if options["people"] is None and options["list_out"] is not None:
        raise InputError("--list writes a list of the people in --people: give that table too.")
    if options["list_out"] is None and options["keep"] is not None:
        raise InputError("--keep copies columns to the list: give --list too.")


def _check_free(paths: list[Path], *, force: bool) -> None:
    """Refuse to replace files, unless that is asked for."""
    if (taken := [str(path) for path in paths if path.exists()]) and not force:
        raise TableError(f"{shown(taken)} exists. Name another file, or add --force.")


def command_line(ctx: typer.Context) -> str:
    """Return the command as it would be typed, without what is left at its default."""
    words = ["unjoined", str(ctx.info_name)]
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if value in (None, False, (), []) or value == parameter.default:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] + ([] if each is True else [str(each)])
    return shlex.join(words)
