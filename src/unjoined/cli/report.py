"""The commands report and export: a model for people, and for programs without this package."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unjoined._validation import check_option
from unjoined.cli.fit import name_outcome
from unjoined.cli.inputs import (
    QUERY,
    TABLE,
    Input,
    Named,
    Tables,
    as_table,
    check_paths,
    written_columns,
)
from unjoined.cli.options import (
    AsJson,
    Budget,
    ChooseFrom,
    DespiteRed,
    Force,
    Keep,
    Model,
    NeverHarms,
    Seed,
    Share,
    Worth,
    as_share,
    select_columns,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.score import (
    WRITTEN,
    ArmCosts,
    Scored,
    Target,
    score_pieces,
    write_arms,
)
from unjoined.cli.show import Screen, console, noted, print_json, stop_if
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
from unjoined.report.page import CSV, MARKDOWN, report_with_numbers
from unjoined.words import UNNAMED

PAGES = (".html", ".htm")
FORMATS = {"html": PAGES, "md": (MARKDOWN,), "csv": (CSV,)}
MOST_SENTENCES = 2  # of the expected gain, on one screen


@command(
    "unjoined report --model model.skops --outcomes sales.csv --treatments mailings.csv \\\n"
    "    --population region --outcome bought --treatment mailed \\\n"
    "    --table customers.csv --value 30 --cost 0.8 --currency EUR --out report.html"
)
def report(
    ctx: typer.Context,
    tables: Tables,
    worth: Worth,
    model: Model,
    share: Share = None,
    budget: Budget = None,
    table: ChooseFrom = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="WORD",
            help="html, md for a model card, or csv for the segments; default: by --out.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write: .html, .md or .csv.",
            show_default="report.html",
        ),
    ] = None,
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
    author: Annotated[
        str, typer.Option("--author", metavar="NAME", help="Who makes it.")
    ] = "",
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
    tables.require("report needs {}.")
    out = _path_of(out, kind)
    if table is not None and list_out is None:
        list_out = out.with_name(f"{out.stem}-list.csv")
    _check_files(
        [*tables.paths, ("--model", model)], table, keep, out, list_out, force=force
    )
    kept = split_names("--keep", keep)
    fraction = None if share is None else as_share(share)
    terms = Terms("", worth.value, currency=worth.currency)
    if tables.control is None:
        terms = replace(terms, cost=worth.costs()[""], share=fraction, budget=budget)
    elif fraction is not None:
        raise InputError(
            "--share says how many get one treatment, and --control says that there are several. "
            "Say --budget with --cost NAME=MONEY,... and --value, or neither."
        )
    fitted = load_model(model)
    if isinstance(fitted, ArmUplift):
        terms = replace(terms, costs=worth.costs(fitted.arms_), budget=budget)
    names = [str(name) for name in getattr(fitted, "feature_names_in_", ())]
    with noted(known=getattr(fitted, "notes_", ())) as notes:
        data = tables.of_model(fitted).read()
        if worth.unit is None and not hasattr(fitted, "unit_"):
            name_outcome(fitted, tables.columns["--outcome"] or "", None)
        terms = replace(terms, unit=worth.unit_of(fitted).name)
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
            author,
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
    lines = [*numbers["sentences"][:MOST_SENTENCES], f"Trust: {numbers['trust']}."]
    if table is not None and list_out is not None:
        decided = None if stops else terms
        files = (as_table(table), kept, list_out)
        _write_list(fitted, numbers["colour"], decided, terms, *files)
        column = "treat" if tables.control is None else "treatment"
        warned = f" It has no column {column}: the report is red and says why." * stops
        lines.append(f"Wrote {list_out}, the list of people.{warned}")
    is_page = written.suffix.lower() in PAGES
    opens = " Open it in a browser; it needs no network." * is_page
    lines.append(f"Wrote {written}.{opens}")
    screen = Screen(details=False, quiet=as_json)
    screen.answer(
        numbers["colour"], f"Verdict ({numbers['colour']}): {numbers['verdict']}", lines
    )
    if as_json:
        files_written = {
            "report": str(written),
            "list": None if list_out is None else str(list_out),
        }
        print_json(files_written | numbers | {"warnings": notes})
    stop_if(stops)


def _path_of(out: Path | None, kind: str | None) -> Path:
    """Return the file to write, whose ending says what kind of report it is."""
    if kind is not None:
        check_option("--format", kind, FORMATS)
    if out is None:
        return Path(f"report.{kind or 'html'}")
    endings = (*PAGES, MARKDOWN, CSV) if kind is None else FORMATS[kind]
    if out.suffix.lower() not in endings:
        asked = "" if kind is None else f"--format {kind}: "
        raise InputError(
            f"{asked}--out {str(out)!r} must end in {' or '.join(endings)}."
        )
    return out


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
    model: UpliftEstimator,
    colour: str,
    decided: Terms | None,
    terms: Terms,
    table: Named,
    keep: list[str],
    path: Path,
) -> None:
    """Write people as the command score does; nobody is chosen without terms."""
    if isinstance(model, ArmUplift):
        paid = ArmCosts.of(model, dict(terms.costs), terms.value, terms.budget, UNNAMED)
        pieces = score_pieces(model, table, keep)
        stops = decided is None
        write_arms(console(quiet=True), paid, pieces, keep=keep, file=path, stops=stops)
        return
    target = None
    if decided is not None:
        share = None if terms.share is None else str(terms.share)
        target = Target(share, None, None, terms.budget, terms.cost, terms.value)
    write_table(Scored.of_table(model, table, keep).listed(colour, target), path)


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
