"""The commands fit and score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import unjoined
from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined._validation import check_option, check_share
from unjoined.cli.inputs import (
    MODEL,
    SUMS,
    TABLE,
    Tables,
    check_paths,
    select_columns,
    split_names,
)
from unjoined.cli.options import (
    AsJson,
    Checkpoint,
    Features,
    Ignore,
    Outcome,
    Paths,
    Population,
    Seed,
    Treated,
    Treatment,
    Weight,
)
from unjoined.cli.program import app
from unjoined.cli.show import (
    cell_sizes,
    console,
    print_json,
    show_cell_sizes,
    show_choice,
    show_labels,
    show_strength,
    show_uplift,
    uplift_summary,
)
from unjoined.data import read_table, write_table
from unjoined.errors import InputError
from unjoined.estimators import MinMaxUplift, Uplift, UpliftEstimator, load_model, save_model
from unjoined.sums import PlannedSums, read_finished_sums
from unjoined.targeting import optimal_rule, top_share_rule, treatment_rank

ESTIMATORS: dict[str, Callable[..., UpliftEstimator]] = {
    "auto": Uplift,
    "mixture": unjoined.MixtureUplift,
    "weighted": unjoined.WeightedUplift,
    "minmax": MinMaxUplift,
    "plugin": unjoined.PlugInUplift,
    "two-stage": unjoined.TwoStageUplift,
    "density": unjoined.DensityUplift,
    "neural": unjoined.NeuralMinMaxUplift,
    "MinMaxGau": unjoined.MinMaxGau,
    "FourLogistic": unjoined.FourLogistic,
    "FourNNC": unjoined.FourNNC,
    "FourRidge": unjoined.FourRidge,
    "FourNNR": unjoined.FourNNR,
}
LIST_COLUMNS = ("uplift", "rank", "treat", "row")  # that the targeting list itself writes


@app.command()
def fit(
    outcomes: Paths = None,
    treatments: Paths = None,
    outcome: Outcome = "",
    treatment: Treatment = "",
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    weight: Weight = None,
    treated: Treated = None,
    estimator: Annotated[
        str, typer.Option(help=f"One of {', '.join(ESTIMATORS)}; auto says in words what it found.")
    ] = "auto",
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Read tables in pieces, however large.")
    ] = False,
    checkpoint: Checkpoint = None,
    moments: Annotated[
        Path | None, typer.Option(help="Instead of tables: a file of sums of all four.")
    ] = None,
    model: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.skops"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate uplift from tables, or from sums, and write the model to a file."""
    tables = Tables.of(
        outcomes, treatments, outcome, treatment, population, weight, features, ignore, treated
    )
    if checkpoint is not None and not chunks:
        raise InputError("--checkpoint is for tables that are read with --chunks.")
    inputs = tables.paths + ([] if moments is None else [("--moments", moments)])
    kept = [] if checkpoint is None else [("--checkpoint", checkpoint, SUMS)]
    check_paths(inputs, [*kept, ("--model", model, MODEL)])
    out = console(quiet=as_json)
    if moments is not None:
        if extra := [option for option, value in tables.given.items() if value]:
            raise InputError(
                f"--moments holds sums of all tables, so {extra[0]} cannot be given beside it. "
                "Leave out one of the two."
            )
        fitted, result = _fit_sums(out, read_finished_sums(moments), seed)
    else:
        tables.require("fit needs {}, or --moments with a file of sums.")
        if chunks and estimator == "minmax":
            start = MinMaxUplift(random_state=seed).collect_sums
            fitted, result = _fit_sums(out, start(tables.stream(), checkpoint=checkpoint), seed)
        elif chunks:
            fitted, result = _fit_chunks(out, tables, estimator, checkpoint, seed)
        else:
            fitted, result = _fit_rows(out, tables, estimator, seed)
    written = save_model(fitted, model)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    out.print(
        f"Wrote {written} ({result['estimator']}). Next: unjoined score --model {written} --table "
        "NEW.parquet --out SCORES.parquet"
    )
    if as_json:
        print_json({"model": str(written)} | result)


def _fit_rows(
    out: Console, tables: Tables, estimator: str, seed: int
) -> tuple[UpliftEstimator, dict[str, Any]]:
    """Read the tables into memory and fit any estimator."""
    make = ESTIMATORS[check_option("--estimator", estimator, ESTIMATORS)]
    data = tables.read()
    fitted = make(random_state=seed).fit(**data)
    uplift = fitted.predict(data.X)
    show_labels(out, data)
    show_choice(out, fitted)
    show_uplift(out, uplift)
    return fitted, _facts(fitted, estimator) | {
        "rows": data.n_rows,
        "reason": getattr(fitted, "reason_", None),
        "uplift": uplift_summary(uplift),
    }


def _fit_chunks(
    out: Console, tables: Tables, estimator: str, checkpoint: Path | None, seed: int
) -> tuple[UpliftEstimator, dict[str, Any]]:
    """Fit the default to tables that are read in pieces."""
    if estimator not in ("auto", "mixture"):
        raise InputError(
            f"--chunks reads in pieces, which --estimator {estimator} cannot do. Leave out one of "
            "the two, or use --estimator minmax."
        )
    fitted = Uplift(random_state=seed).fit_chunks(tables.stream(), checkpoint=checkpoint)
    show_choice(out, fitted)
    return fitted, _facts(fitted, estimator) | {"reason": fitted.reason_}


def _fit_sums(out: Console, sums: PlannedSums, seed: int) -> tuple[UpliftEstimator, dict[str, Any]]:
    """Fit `MinMaxUplift` to sums of all tables."""
    fitted = MinMaxUplift(random_state=seed).fit_moments(sums)
    show_cell_sizes(out, sums)
    show_strength(out, fitted.identification_)
    return fitted, _facts(fitted, "minmax") | {
        "rows": sum(cell["rows"] for cell in cell_sizes(sums)),
        "ridge_f": fitted.ridge_f_,
        "ridge_g": fitted.ridge_g_,
    }


def _facts(fitted: UpliftEstimator, estimator: str) -> dict[str, Any]:
    names = getattr(fitted, "feature_names_in_", None)  # sums of plain arrays have none
    return {
        "estimator": estimator,
        "features": None if names is None else [str(name) for name in names],
        "f_statistic": fitted.identification_.f_statistic,
        "weak": fitted.identification_.is_weak,
    }


@app.command()
def score(
    model: Annotated[Path, typer.Option(help="A model written by `unjoined fit`.")],
    table: Annotated[Path, typer.Option(help="People to score. CSV or Parquet.")],
    out: Annotated[Path, typer.Option(help="Where to write, .parquet or .csv.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy, such as an id, comma-separated.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="Treat this share, 0 to 1; default: all not harmed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write uplift, rank and whom to treat for each row of a table, best first."""
    check_paths([("--model", model), ("--table", table)], [("--out", out, TABLE)])
    kept = split_names("--keep", keep)
    if taken := [name for name in kept if name in LIST_COLUMNS]:
        raise InputError(
            f"--keep cannot copy the column {taken[0]!r}, because the list has its own column of "
            "that name. Rename yours in the table."
        )
    if share is not None:
        check_share("--share", share, zero_allowed=True)
    fitted = load_model(model)
    features = getattr(fitted, "feature_names_in_", ())
    rows = read_table(table, text=[name for name in kept if name not in features])
    scores = targeting_list(fitted, rows, title=str(table), keep=kept, share=share)
    written = write_table(scores, out)
    uplift = scores.column("uplift").to_numpy()
    n_treated = int(scores.column("treat").to_numpy().sum())
    screen = console(quiet=as_json)
    show_uplift(screen, uplift)
    screen.print(
        f"Treating the {n_treated:,} of {len(uplift):,} people on the list is predicted to add "
        f"{uplift[:n_treated].sum():,.4g} in units of the outcome, if the model is right. Wrote "
        f"{written}."
    )
    if as_json:
        result = {"out": str(written), "rows": len(uplift), "treated": n_treated}
        print_json(result | {"uplift": uplift_summary(uplift)})


def targeting_list(
    model: UpliftEstimator, table: Frame, *, title: str, keep: list[str], share: float | None
) -> Frame:
    """Return a pyarrow table, best first: kept columns or the row number, uplift, rank, treat."""
    if not hasattr(model, "feature_names_in_"):
        raise InputError(
            "the model was fitted to plain arrays, so it does not know the names of its features. "
            "Fit it to tables, or call its predict with an array."
        )
    if len(table) == 0:
        raise InputError(f"{title} is empty: there is nobody to score.")
    names = [str(name) for name in model.feature_names_in_]
    uplift = model.predict(select_columns(table, names, title=title))
    rank = treatment_rank(uplift)
    # Ranks have no ties, so at most one person is treated in part; that one is left out.
    rule = optimal_rule(uplift) if share is None else top_share_rule(-rank, share)
    kept = select_columns(table, keep, title=title)
    columns = {name: kept.column(name) for name in keep} or {"row": np.arange(len(rank))}
    columns |= {"uplift": uplift, "rank": rank, "treat": rule > 1.0 - 1e-9}
    return import_extra("pyarrow", extra="cli").table(columns).take(np.argsort(rank))
