"""The commands report and export: a model for people, and for programs without this package."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined.cli.inputs import (
    QUERY,
    TABLE,
    Input,
    Tables,
    as_table,
    check_paths,
    written_columns,
)
from unjoined.cli.options import (
    AsJson,
    Both,
    Budget,
    Categories,
    Cluster,
    Control,
    Costs,
    Count,
    DespiteRed,
    Dose,
    Features,
    Force,
    Ignore,
    Keep,
    Model,
    NeverHarms,
    Outcome,
    Outcomes,
    Policies,
    Population,
    Seed,
    Share,
    Treated,
    Treatment,
    Treatments,
    Value,
    Weight,
    as_costs,
    as_share,
    select_columns,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.score import WRITTEN
from unjoined.cli.show import console, noted, print_json, stop_if
from unjoined.data.files import table_ending
from unjoined.data.tables import read_table
from unjoined.data.write import write_table
from unjoined.errors import InputError, mask_secrets
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import load_model
from unjoined.evaluate.verdict import RED
from unjoined.export import export_sql
from unjoined.report.facts import Origin, Terms
from unjoined.report.page import report_with_numbers
from unjoined.targeting import treatment_rank


@command(
    "unjoined report --model model.skops --outcomes sales.csv --treatments mailings.csv \\\n"
    "    --population region --outcome bought --treatment mailed \\\n"
    "    --table customers.csv --value 30 --cost 0.8 --currency EUR --out report.html"
)
def report(
    ctx: typer.Context,
    model: Model,
    outcomes: Outcomes = None,
    treatments: Treatments = None,
    both: Both = None,
    policies: Policies = None,
    outcome: Outcome = "",
    treatment: Treatment = "",
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    categories: Categories = None,
    weight: Weight = None,
    cluster: Cluster = None,
    count: Count = None,
    treated: Treated = None,
    dose: Dose = False,
    control: Control = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="What outcomes are called, such as purchases."),
    ] = None,
    value: Value = None,
    cost: Costs = "0",
    currency: Annotated[
        str, typer.Option("--currency", help="Written after amounts of money.")
    ] = "",
    share: Share = None,
    budget: Budget = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="People to choose from; default: those of the tables.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write, .html.")] = Path(
        "report.html"
    ),
    list_out: Annotated[
        Path | None,
        typer.Option(
            "--list",
            help="Where to write the list of the people in --table, .csv or .parquet.",
            show_default="beside the report",
        ),
    ] = None,
    keep: Keep = None,
    despite_red: DespiteRed = False,
    force: Force = False,
    title: Annotated[
        str, typer.Option("--title", help="Heading of the report.")
    ] = "Whom to treat",
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out", help="The model was fitted to other rows than these."
        ),
    ] = False,
    never_harms: NeverHarms = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write a report: whom to treat, what it brings, how far to trust it."""
    tables = Tables.of(ctx)
    tables.require("report needs {}.")
    if table is not None and list_out is None:
        list_out = out.with_name(f"{out.stem}-list.csv")
    _check_files(
        [*tables.paths, ("--model", model)], table, keep, out, list_out, force=force
    )
    kept = split_names("--keep", keep)
    fraction = None if share is None else as_share(share)
    terms = Terms(unit or f"units of {outcome}", value, currency=currency)
    if tables.control is None:
        costs = as_costs(cost)
        terms = replace(terms, cost=costs[""], share=fraction, budget=budget)
    elif fraction is not None:
        raise InputError(
            "--share says how many get one treatment, and --control says that there are several. "
            "Say --budget with --cost NAME=MONEY,... and --value, or neither."
        )
    fitted = load_model(model)
    if isinstance(fitted, ArmUplift):
        costs = as_costs(cost, fitted.arms_)
        terms = replace(terms, costs=costs, budget=budget)
    names = [str(name) for name in getattr(fitted, "feature_names_in_", ())]
    with noted(known=getattr(fitted, "notes_", ())) as notes:
        data = tables.of_model(fitted).read()
        if unit is None and set(np.unique(data["y"][data.rows("outcome")])) <= {
            0.0,
            1.0,
        }:
            terms = replace(terms, unit="responses")
        known = getattr(fitted, "left_out_", None) or dict.fromkeys(tables.ignored, "")
        people = again = None
        if table is not None:
            # Columns to keep that are not features stay as they are written.
            text = [
                *written_columns(fitted),
                *(name for name in kept if name not in names),
            ]
            people = read_table(as_table(table), text=text)
            select_columns(people, names, title=repr(table))
            kept = kept or [name for name in people.column_names if name not in names]
            words = [
                "unjoined",
                "score",
                "--model",
                str(model),
                "--table",
                mask_secrets(table),
            ]
            words += ["--keep", ",".join(kept)] if kept else []
            again = shlex.join([*words, "--out", "LIST.csv"])
        is_beside = (
            list_out is not None and list_out.parent.resolve() == out.parent.resolve()
        )
        origin = Origin(
            title,
            command_line(ctx),
            list_out.name if list_out is not None and is_beside else None,
            tuple(f"{name!r} {why}".rstrip() for name, why in known.items()),
            again,
        )
        written, numbers = report_with_numbers(
            fitted,
            data,
            out,
            people=people,
            terms=terms,
            origin=origin,
            held_out=held_out,
            never_harms=never_harms,
            overwrite=force,
            random_state=seed,
        )
    stops = numbers["colour"] == RED and not despite_red
    screen = console(quiet=as_json)
    if people is not None and list_out is not None:
        features_of = select_columns(people, names, title=repr(table))
        _write_list(
            list_out, fitted, features_of, people.select(kept), None if stops else terms
        )
    if list_out is not None:
        column = "treat" if tables.control is None else "treatment"
        warned = f" It has no column {column}: the report is red and says why." * stops
        screen.print(f"Wrote {list_out}, the list of people.{warned}")
    screen.print(f"Wrote {written}. Open it in a browser; it needs no network.")
    if as_json:
        files_written = {
            "report": str(written),
            "list": None if list_out is None else str(list_out),
        }
        print_json(files_written | numbers | {"warnings": notes})
    stop_if(stops)


def _check_files(
    inputs: list[Input],
    table: str | None,
    keep: str | None,
    out: Path,
    list_out: Path | None,
    *,
    force: bool,
) -> None:
    """Refuse files that would be overwritten, and options that are of no use."""
    if table is None and list_out is not None:
        raise InputError(
            "--list writes a list of the people in --table: give that table too."
        )
    if table is None and keep is not None:
        raise InputError(
            "--keep copies columns to the list of people: give --table too."
        )
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {str(out)!r} must end in .html.")
    outputs = [("--out", out, TABLE)]
    if list_out is not None:
        if table_ending(list_out) not in WRITTEN:
            raise InputError(
                f"--list {str(list_out)!r} must end in {', '.join(WRITTEN)}."
            )
        outputs.append(("--list", list_out, TABLE))
    people = [] if table is None else [("--table", as_table(table))]
    check_paths([*inputs, *people], outputs, force=force)


def _write_list(
    path: Path, model: UpliftEstimator, people: Frame, kept: Frame, terms: Terms | None
) -> None:
    """Write people with the columns that say who they are, and decide by terms.

    The best come first or, of several treatments, people as they are in the table.
    """
    uplift = model.predict_gain(people)
    columns = {name: kept.column(name) for name in kept.column_names}
    columns = columns or {"row": np.arange(len(uplift))}
    if isinstance(model, ArmUplift):
        for arm, column in zip(model.arms_, uplift.T, strict=True):
            columns[f"uplift_{arm}"] = column
        if terms is not None:
            names = np.array([model.control_, *model.arms_])
            columns["treatment"] = names[terms.assign(model.arms_, uplift)]
        write_table(import_extra("pyarrow", extra="cli").table(columns), path)
        return
    rank = treatment_rank(uplift)
    columns |= {"uplift": uplift, "rank": rank}
    if terms is not None:
        columns["treat"] = rank <= int(terms.rule(uplift).sum() + 1e-9)
    listed = import_extra("pyarrow", extra="cli").table(columns)
    write_table(listed.take(np.argsort(rank)), path)


def command_line(ctx: typer.Context) -> str:
    """Return the command that makes the report again, without what is left at its default."""
    words = ["unjoined", str(ctx.info_name), "--force"]
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if parameter.name == "force" or value in (
            None,
            False,
            (),
            [],
            parameter.default,
        ):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [
                parameter.opts[0],
                *([] if each is True else [mask_secrets(str(each))]),
            ]
    return shlex.join(words)


@command("unjoined export --model model.skops --sql score.sql --table people --keep id")
def export(
    model: Model,
    sql: Annotated[Path, typer.Option("--sql", help="Write a SQL query to this file.")],
    table: Annotated[
        str, typer.Option("--table", help="The table to score.")
    ] = "people",
    keep: Keep = None,
    force: Force = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write a model as SQL, which scores without this program."""
    check_paths([("--model", model)], [("--sql", sql, QUERY)], force=force)
    kept = split_names("--keep", keep)
    query = export_sql(load_model(model), sql, table=table, keep=kept)
    console(quiet=as_json).print(
        f"Wrote {sql}: a query of {len(query):,} characters that scores {table}."
    )
    if as_json:
        print_json({"sql": str(sql)})
