"""The command rule: a few conditions that say whom to treat, and what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._support import import_extra
from unjoined._validation import did_you_mean, shown
from unjoined.cli.inputs import QUERY, TABLE, Tables, check_paths
from unjoined.cli.options import (
    AsJson,
    DespiteRed,
    Details,
    Force,
    Keep,
    Model,
    Seed,
    Share,
    Worth,
    as_share,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import (
    Screen,
    noted,
    print_json,
    show_titled,
    stop_if,
    verdict_line,
)
from unjoined.data.write import replace_file
from unjoined.errors import InputError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.persist import load_model
from unjoined.evaluate.rules import DEEPEST
from unjoined.evaluate.verdict import RED
from unjoined.export import export_sql
from unjoined.targeting import TreeRule, learn_rule


@command(
    "unjoined rule --config shop/unjoined.toml --value 30 --cost 0.8",
    "unjoined rule --config shop/unjoined.toml --share 30% --by age,orders --sql rule.sql",
)
def rule(
    tables: Tables,
    worth: Worth,
    model: Model,
    depth: Annotated[
        int,
        typer.Option(
            "--depth", min=1, max=DEEPEST, help="Most conditions to a group of people."
        ),
    ] = 2,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMNS",
            help="Columns that the rule may name, comma-separated; default: all features.",
        ),
    ] = None,
    share: Share = None,
    sql: Annotated[
        Path | None,
        typer.Option("--sql", metavar="FILE", help="Write the rule as a SQL query."),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", help="With --sql: the table to decide on.")
    ] = "people",
    keep: Keep = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw the rule: .png or .svg."),
    ] = None,
    despite_red: DespiteRed = False,
    force: Force = False,
    details: Details = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Find a rule that people can read: a few conditions say whom to treat."""
    tables.require("rule needs {}.")
    written = [] if sql is None else [("--sql", sql, QUERY)]
    written += [] if picture is None else [("--picture", picture, TABLE)]
    check_paths([*tables.paths, ("--model", model)], written, force=force)
    if picture is not None and picture.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--picture {str(picture)!r} must end in .png, .svg or .pdf.")
    if sql is None and keep is not None:
        raise InputError("--keep copies columns to the query of --sql: give --sql too.")
    fitted = load_model(model)
    asked = _money(fitted, worth) | {"max_depth": depth, "random_state": seed}
    asked["share"] = None if share is None else as_share(share)
    asked["features"] = split_names("--by", by) or None
    with noted(known=getattr(fitted, "notes_", ())) as notes:
        data = tables.of_model(fitted).read()
        _check_columns(asked["features"], data.feature_names or [])
        found = learn_rule(fitted, data, **asked)
    screen = Screen(details=details, quiet=as_json)
    verdict = fitted.verdict_
    stops = verdict.colour == RED and not despite_red
    lines = ["No rule is written, because the verdict is red."]
    if not stops:
        unit = worth.unit_of(fitted)
        lines = found.sentences(
            worth.currency if worth.value is not None else unit.name
        )
        show_titled(screen.more, found.result_tables())
        _write(found, sql, table, split_names("--keep", keep), picture)
        lines += [verdict.untested] * bool(verdict.untested)
        lines += [f"Wrote {file}." for file in (sql, picture) if file is not None]
        lines += ["Its groups, and what they gain, with --details."] * (not details)
    screen.answer(verdict.colour, verdict_line(verdict), lines)
    if as_json:
        facts = {} if stops else found.to_dict()
        print_json(facts | {"colour": fitted.verdict_.colour, "warnings": notes})
    stop_if(stops)


def _money(fitted: Any, worth: Worth) -> dict[str, Any]:
    """Return what outcomes are worth and what treating costs."""
    several = isinstance(fitted, ArmUplift)
    costs = worth.costs(fitted.arms_ if several else ())
    if worth.value is None and any(costs.values()):
        raise InputError("--cost needs --value, what one unit of the outcome is worth.")
    value = 1.0 if worth.value is None else worth.value
    return {"value": value, "cost": costs if several else costs[""]}


def _check_columns(asked: list[str] | None, known: list[str]) -> None:
    for name in asked or ():
        if name not in known:
            raise InputError(
                f"--by names {name!r}, which is no feature of the model; they are "
                f"{shown(known)}{did_you_mean(name, known)}"
            )


def _write(
    found: TreeRule,
    sql: Path | None,
    table: str,
    kept: list[str],
    picture: Path | None,
) -> None:
    """Write a rule as a query and as a picture, if they are asked for."""
    if sql is not None:
        text = f"{QUERY.decode()}a rule.\n{export_sql(found, table=table, keep=kept)}\n"
        replace_file(sql, lambda file: file.write_text(text, encoding="utf-8"))
    if picture is not None:
        import_extra("matplotlib", extra="plot").use("Agg")
        figure = found.plot().figure
        kind = picture.suffix.lower().removeprefix(".")
        replace_file(picture, lambda file: figure.savefig(file, dpi=150, format=kind))
