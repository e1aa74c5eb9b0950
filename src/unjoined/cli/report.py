"""The commands report and export: a model for people, and for programs without this package."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unjoined._typing import Frame
from unjoined.cli.inputs import QUERY, TABLE, Input, Tables, as_table, check_paths, written_columns
from unjoined.cli.options import (
    AsJson,
    Budget,
    Cost,
    DespiteRed,
    Force,
    Keep,
    Model,
    Seed,
    Share,
    TableOptions,
    Value,
    as_share,
    select_columns,
    split_names,
)
from unjoined.cli.program import command
from unjoined.cli.score import WRITTEN, targeting_list
from unjoined.cli.show import console, noted, print_json, stop_if_red
from unjoined.data.files import table_ending
from unjoined.data.labels import SeparateLabels
from unjoined.data.tables import read_table
from unjoined.data.write import write_table
from unjoined.errors import InputError, mask_secrets
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import load_model
from unjoined.export import export_sql
from unjoined.report.facts import Origin, Terms
from unjoined.report.page import report_with_numbers


@dataclass(frozen=True, slots=True)
class Decision:
    """What an outcome is worth, what treating costs, and how many may be treated."""

    unit: Annotated[
        str | None, typer.Option(help="What outcomes are called, such as purchases.")
    ] = None
    value: Value = None
    cost: Cost = 0.0
    currency: Annotated[str, typer.Option(help="Written after amounts of money.")] = ""
    share: Share = None
    budget: Budget = None

    def terms(self, outcome: str) -> Terms:
        """Return them checked, with a name for the outcome."""
        unit = self.unit or f"units of {outcome}"
        share = None if self.share is None else as_share(self.share)
        return Terms(unit, self.value, self.cost, self.currency, share, self.budget)


@dataclass(frozen=True, slots=True)
class Files:
    """What is written, and whom about."""

    people: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="TABLE", help="People to choose from; default: those of the tables."
        ),
    ] = None
    out: Annotated[Path, typer.Option(help="Where to write, .html.")] = Path("report.html")
    list_out: Annotated[
        Path | None,
        typer.Option(
            "--list",
            help="Where to write the list of the people in --table, .csv or .parquet.",
            show_default="beside the report",
        ),
    ] = None
    keep: Keep = None
    despite_red: DespiteRed = False
    force: Force = False

    def check(self, inputs: list[Input]) -> None:
        """Refuse files that would be overwritten, and options that are of no use."""
        if self.people is None and self.list_out is not None:
            raise InputError("--list writes a list of the people in --table: give that table too.")
        if self.people is None and self.keep is not None:
            raise InputError("--keep copies columns to the list of people: give --table too.")
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"--out {str(self.out)!r} must end in .html.")
        if self.list_path is not None and table_ending(self.list_path) not in WRITTEN:
            raise InputError(f"--list {str(self.list_path)!r} must end in {', '.join(WRITTEN)}.")
        inputs = [*inputs, *([("--table", as_table(self.people))] if self.people else [])]
        outputs = [("--out", self.out, TABLE)]
        outputs += [("--list", self.list_path, TABLE)] if self.list_path else []
        check_paths(inputs, outputs, force=self.force)

    def read(self, model: UpliftEstimator) -> Frame | None:
        """Return the people; columns to keep that are not features stay as they are written."""
        if self.people is None:
            return None
        known = getattr(model, "feature_names_in_", ())
        text = [*written_columns(model), *(c for c in self._kept if c not in known)]
        people = read_table(as_table(self.people), text=text)
        select_columns(people, list(map(str, known)), title=repr(self.people))
        return people

    def write_list(
        self, model: UpliftEstimator, people: Frame, terms: Terms, *, decide: bool
    ) -> None:
        """Write the list of people, the best first, with the columns that say who they are."""
        if self.list_path is None:
            return
        names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        title = repr(self.people)
        uplift = model.predict(select_columns(people, names, title=title))
        share = float(terms.rule(uplift).mean()) if decide else None
        kept = self.kept_of(model, people)
        write_table(
            targeting_list(model, people, title=title, keep=kept, share=share), self.list_path
        )

    def kept_of(self, model: UpliftEstimator, people: Frame) -> list[str]:
        """Return the columns that the list copies: by default all that are not features."""
        names = {str(name) for name in getattr(model, "feature_names_in_", ())}
        return self._kept or [name for name in people.column_names if name not in names]

    @property
    def list_path(self) -> Path | None:
        """Where the list is written, beside the report unless said otherwise."""
        if self.list_out is not None or self.people is None:
            return self.list_out
        return self.out.with_name(f"{self.out.stem}-list.csv")

    @property
    def link(self) -> str | None:
        """The list as the report links to it, if it lies beside it."""
        path = self.list_path
        is_beside = path is not None and path.parent.resolve() == self.out.parent.resolve()
        return path.name if path is not None and is_beside else None

    def list_command(self, path: Path, model: UpliftEstimator, people: Frame | None) -> str | None:
        """Return the command that writes the list for another share."""
        if people is None:
            return None
        table = mask_secrets(str(self.people))
        words = ["unjoined", "score", "--model", str(path), "--table", table]
        kept = self.kept_of(model, people)
        words += ["--keep", ",".join(kept)] if kept else []
        return shlex.join([*words, "--out", "LIST.csv"])

    @property
    def _kept(self) -> list[str]:
        return split_names("--keep", self.keep)


@command(
    "unjoined report --model model.skops --outcomes sales.csv --treatments mailings.csv \\\n"
    "    --population region --outcome bought --treatment mailed \\\n"
    "    --table customers.csv --value 30 --cost 0.8 --currency EUR --out report.html"
)
def report(
    ctx: typer.Context,
    model: Model,
    options: TableOptions,
    decision: Decision,
    files: Files,
    title: Annotated[str, typer.Option(help="Heading of the report.")] = "Whom to treat",
    held_out: Annotated[
        bool, typer.Option("--held-out", help="The model was fitted to other rows than these.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write a report: whom to treat, what it brings, how far to trust it."""
    tables = Tables.of(options)
    tables.require("report needs {}.")
    files.check([*tables.paths, ("--model", model)])
    terms, fitted = decision.terms(options.outcome), load_model(model)
    with noted(known=getattr(fitted, "notes_", ())) as notes:
        data = tables.of_model(fitted).read()
        if decision.unit is None and _is_yes_or_no(data):
            terms = replace(terms, unit="responses")
        known = getattr(fitted, "left_out_", None) or dict.fromkeys(tables.ignored, "")
        left_out = [f"{name!r} {why}".rstrip() for name, why in known.items()]
        people = files.read(fitted)
        written, numbers = report_with_numbers(
            fitted,
            data,
            files.out,
            people=people,
            terms=terms,
            origin=Origin(
                title,
                command_line(ctx),
                files.link,
                tuple(left_out),
                files.list_command(model, fitted, people),
            ),
            held_out=held_out,
            overwrite=files.force,
            random_state=seed,
        )
    stops = numbers["colour"] == "red" and not files.despite_red
    if people is not None:
        files.write_list(fitted, people, terms, decide=not stops)
    out, listed = console(quiet=as_json), files.list_path
    if listed is not None:
        warned = ""
        if stops:
            warned = " It has no column treat: the report is red and says why."
        out.print(f"Wrote {listed}, the list of people.{warned}")
    out.print(f"Wrote {written}. Open it in a browser; it needs no network.")
    if as_json:
        files_written = {"report": str(written), "list": None if listed is None else str(listed)}
        print_json(files_written | numbers | {"warnings": notes})
    stop_if_red("red" if stops else "")


def _is_yes_or_no(data: SeparateLabels) -> bool:
    """Tell whether outcomes are 0 and 1, so that what is gained is so many more responses."""
    return set(np.unique(data["y"][data.rows("outcome")])) <= {0.0, 1.0}


def command_line(ctx: typer.Context) -> str:
    """Return the command that makes the report again, without what is left at its default."""
    words = ["unjoined", str(ctx.info_name), "--force"]
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if parameter.name == "force" or value in (None, False, (), [], parameter.default):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0], *([] if each is True else [mask_secrets(str(each))])]
    return shlex.join(words)


@command("unjoined export --model model.skops --sql score.sql --table people --keep id")
def export(
    model: Model,
    sql: Annotated[Path, typer.Option(help="Write a SQL query to this file.")],
    table: Annotated[str, typer.Option(help="The table to score.")] = "people",
    keep: Keep = None,
    force: Force = False,
    as_json: AsJson = False,
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
