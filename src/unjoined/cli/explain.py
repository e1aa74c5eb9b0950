"""The command explain: what raises and lowers the uplift of a person."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import shown
from unjoined.cli.inputs import as_table, check_paths, written_columns
from unjoined.cli.options import (
    AsJson,
    Details,
    Keep,
    Model,
    People,
    UnitName,
    Worth,
    select_columns,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.score import PIECE_ROWS
from unjoined.cli.show import (
    Screen,
    noted,
    print_json,
    show_titled,
    stop_if,
    verdict_line,
)
from unjoined.data.tables import scan_table
from unjoined.errors import InputError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.explain import Explanation
from unjoined.estimators.persist import load_model
from unjoined.evaluate.verdict import RED

MOST_TOLD = 3  # features on one screen, up and down


@command(
    "unjoined explain --config shop/unjoined.toml --id 120968",
    "unjoined explain --model model.skops --table customers.csv --keep customer_id --id 120968",
)
def explain(
    model: Model,
    table: People,
    identifier: Annotated[
        str,
        typer.Option(
            "--id", metavar="VALUE", help="Who: what stands in a column of --keep."
        ),
    ],
    keep: Keep = None,
    unit: UnitName = None,
    details: Details = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say what raises and lowers the uplift of one person, against the average."""
    people = as_table(table)
    check_paths([("--model", model), ("--table", people)], [])
    fitted = load_model(model)
    if isinstance(fitted, ArmUplift) or not hasattr(fitted, "usual_functions_"):
        raise InputError(
            f"explain takes a model of one treatment that was fitted by the default estimator, and "
            f"{str(model)!r} is {type(fitted).__name__}. Fit one with `unjoined fit`."
        )
    with noted() as notes:
        person = _find(people, fitted, identifier, split_names("--keep", keep))
        found: Explanation = fitted.explain(person)
    found = found.in_unit(Worth(unit=unit).unit_of(fitted))
    verdict = fitted.verdict_
    screen = Screen(details=details, quiet=as_json)
    show_titled(screen.more, found.result_tables())
    said = [f"{identifier}: {found.sentences()[0]}"]
    for verb, sign in (("Raised", 1.0), ("Lowered", -1.0)):
        if told := found.told(0, sign, MOST_TOLD):
            said.append(f"{verb} by {told}.")
    said += [verdict.untested] * bool(verdict.untested)
    said.append(
        "This is what the model sees; to change a feature need not change the person."
        + " All features with --details." * (not details)
    )
    screen.answer(verdict.colour, verdict_line(verdict), said)
    if as_json:
        print_json(_facts(found) | {"id": identifier, "warnings": notes})
    stop_if(verdict.colour == RED)


def _find(table: Any, model: Any, identifier: str, keep: list[str]) -> Frame:
    """Return the features of the row that has a value in one of the columns of ids."""
    compute = import_extra("pyarrow.compute", extra="cli")
    names = [str(name) for name in model.feature_names_in_]
    text = {*written_columns(model)} | ({*keep} - {*names})
    title = repr(str(table))
    looked: list[str] = []
    for frame, _ in scan_table(table, "--table", PIECE_ROWS, text):
        looked = keep or [name for name in frame.column_names if name not in names]
        if not looked:
            raise InputError(
                f"--id looks for a person in the columns of --keep, and {title} has features only. "
                "Give a table with a column of ids."
            )
        for name in looked:
            column = select_columns(frame, [name], title=title)[name]
            is_it = compute.equal(compute.cast(column, "string"), identifier)
            rows = np.flatnonzero(is_it.to_numpy(zero_copy_only=False) == True)  # noqa: E712
            if len(rows) > 1:
                raise InputError(
                    f"{len(rows)} rows of {title} have {identifier!r} in {name!r}. Name the column "
                    "that tells people apart with --keep."
                )
            if len(rows):
                return select_columns(frame.slice(int(rows[0]), 1), names, title=title)
    raise InputError(
        f"nobody in {title} has {identifier!r} in {shown(looked)}. Name the column of ids with "
        "--keep."
    )


def _facts(found: Explanation) -> dict[str, Any]:
    """Return all numbers of one person, outcome units."""
    return {
        "uplift": {
            "value": float(found.uplift[0]),
            "low": float(found.low[0]),
            "high": float(found.high[0]),
            "level": found.level,
        },
        "average": found.average,
        "parts": {
            row["feature"]: {"value": row["value"], "adds": row["adds"]}
            for row in found.frame_rows()
        },
        "rest": float(found.rest[0]),
    }
