"""The command export: a fitted model for programs that do not have this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unjoined.cli.inputs import GRAPH, QUERY, check_paths
from unjoined.cli.options import AsJson, Force, Keep, Model, split_names
from unjoined.cli.program import command
from unjoined.cli.show import console, print_json
from unjoined.errors import InputError
from unjoined.estimators import load_model
from unjoined.export import export_onnx, export_sql


@command("unjoined export --model model.skops --sql score.sql --table people --keep id")
def export(
    model: Model,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX graph to this file.")] = None,
    sql: Annotated[Path | None, typer.Option(help="Write a SQL query to this file.")] = None,
    table: Annotated[str, typer.Option(help="For SQL: the table to score.")] = "people",
    keep: Keep = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX or SQL, which score without this program."""
    if onnx is None and sql is None:
        raise InputError("export needs --onnx FILE, --sql FILE, or both.")
    named = [("--onnx", onnx, GRAPH), ("--sql", sql, QUERY)]
    outputs = [(option, path, kind) for option, path, kind in named if path]
    check_paths([("--model", model)], outputs, force=force)
    kept = split_names("--keep", keep)
    fitted = load_model(model)
    out, written = console(quiet=as_json), {}
    if onnx is not None:
        written["onnx"] = str(export_onnx(fitted, onnx))
        out.print(
            f"Wrote {onnx}. Score with onnxruntime: one input for each column, output uplift."
        )
    if sql is not None:
        query = export_sql(fitted, sql, table=table, keep=kept)
        written["sql"] = str(sql)
        out.print(f"Wrote {sql}: a query of {len(query):,} characters that scores {table}.")
    if as_json:
        print_json(written)
