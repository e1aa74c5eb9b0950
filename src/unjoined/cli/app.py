"""The commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unjoined
from unjoined._compiled import arithmetic
from unjoined._validation import check_share
from unjoined.cli.demo import run_demo
from unjoined.cli.inputs import (
    ESTIMATORS,
    MODEL,
    SUMS,
    TABLE,
    TableOptions,
    check_columns,
    check_paths,
    read_labels,
    split_names,
    table_paths,
)
from unjoined.cli.run import (
    check_kept,
    fit_chunks,
    fit_moments,
    fit_rows,
    run_reproduce,
    targeting_list,
)
from unjoined.cli.show import (
    console,
    print_json,
    show_labels,
    show_strength,
    show_uplift,
    strength_pairs,
    uplift_summary,
)
from unjoined.cli.sums import LARGEST_SEED, add_sums_commands
from unjoined.data import read_table, write_table
from unjoined.errors import InputError
from unjoined.estimators import load_model
from unjoined.metrics import identification_strength

app = typer.Typer(
    help="Whom to treat, when treatment and outcome labels can never be joined.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


Outcomes = Annotated[
    list[str],
    typer.Option(
        "--outcomes",
        help="Table of outcome rows: FILE with --population, else NAME=FILE for each population. "
        "CSV or Parquet.",
    ),
]


Treatments = Annotated[
    list[str], typer.Option("--treatments", help="Table of treatment rows, likewise.")
]


Outcome = Annotated[str, typer.Option("--outcome", help="Column with the outcome.")]


Treatment = Annotated[str, typer.Option("--treatment", help="Column with the treatment, 0/1.")]


Population = Annotated[
    str | None, typer.Option("--population", help="Column that names each row's population.")
]


Features = Annotated[
    str | None, typer.Option("--features", help="Feature columns, comma-separated; default: all.")
]


Ignore = Annotated[
    str | None, typer.Option("--ignore", help="Columns that are no features, comma-separated.")
]


Weight = Annotated[str | None, typer.Option("--weight", help="Column with row weights.")]


Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same result."),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def _version(value: bool) -> None:
    if value:
        print(f"{unjoined.__version__} ({arithmetic()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Whom to treat, when treatment and outcome labels can never be joined."""


@app.command()
def check(
    outcomes: Outcomes,
    treatments: Treatments,
    outcome: Outcome,
    treatment: Treatment,
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    weight: Weight = None,
    as_json: AsJson = False,
) -> None:
    """Check the tables, and say whether they can identify uplift."""
    options = TableOptions(
        outcomes, treatments, outcome, treatment, population, features, ignore, weight
    )
    check_paths(table_paths(outcomes, treatments), [])
    check_columns(options)
    data = read_labels(options)
    strength = identification_strength(**data)
    if as_json:
        print_json(
            {
                "tables": [
                    {"kind": c.kind, "population": c.population, "rows": c.n_rows}
                    | {"label_mean": c.label_mean}
                    for c in data.summary()
                ],
                "features": data.feature_names,
                "f_statistic": strength.f_statistic,
                "mean_gap": strength.mean_gap,
                "rms_gap": strength.rms_gap,
                "weak": strength.is_weak,
                "pairs": strength_pairs(strength),
            }
        )
        return
    out = console()
    show_labels(out, data)
    out.print(f"Features: {', '.join(data.feature_names or [])}.")
    show_strength(out, strength)


@app.command()
def fit(
    outcomes: Annotated[
        list[str] | None,
        typer.Option("--outcomes", help="Table of outcome rows, as for check; or a folder."),
    ] = None,
    treatments: Annotated[
        list[str] | None, typer.Option("--treatments", help="Table of treatment rows, likewise.")
    ] = None,
    outcome: Annotated[str, typer.Option("--outcome", help="Column with the outcome.")] = "",
    treatment: Annotated[
        str, typer.Option("--treatment", help="Column with the treatment, 0/1.")
    ] = "",
    population: Population = None,
    features: Features = None,
    ignore: Ignore = None,
    weight: Weight = None,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator", help=f"One of {', '.join(ESTIMATORS)}; auto chooses and says why."
        ),
    ] = "auto",
    chunks: Annotated[
        bool,
        typer.Option("--chunks", help="Read tables in pieces, however large; fits minmax."),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="With --chunks: where an interrupted pass goes on."),
    ] = None,
    moments: Annotated[
        Path | None,
        typer.Option("--moments", help="Instead of tables: a file of sums of all four."),
    ] = None,
    model: Annotated[Path, typer.Option("--model", help="Where to write the model.")] = Path(
        "model.skops"
    ),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate uplift from tables, or from sums, and write the model to a file."""
    options = TableOptions(
        outcomes or [], treatments or [], outcome, treatment, population, features, ignore, weight
    )
    if checkpoint is not None and not chunks:
        raise InputError("--checkpoint is for tables that are read with --chunks.")
    inputs = table_paths(options.outcomes, options.treatments)
    inputs += [] if moments is None else [("--moments", moments)]
    kept = [] if checkpoint is None else [("--checkpoint", checkpoint, SUMS)]
    check_paths(inputs, [*kept, ("--model", model, MODEL)])
    if moments is not None:
        fit_moments(moments, options, model, as_json=as_json)
    elif chunks:
        fit_chunks(options, estimator, model, checkpoint=checkpoint, seed=seed, as_json=as_json)
    else:
        fit_rows(options, estimator, model, seed=seed, as_json=as_json)


@app.command()
def score(
    model: Annotated[Path, typer.Option("--model", help="A model written by `unjoined fit`.")],
    table: Annotated[Path, typer.Option("--table", help="People to score. CSV or Parquet.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write, .parquet or .csv.")],
    keep: Annotated[
        str | None, typer.Option("--keep", help="Columns to copy, such as an id, comma-separated.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option("--share", help="Treat this share, 0 to 1; default: all not harmed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write uplift, rank and whom to treat for each row of a table, best first."""
    check_paths([("--model", model), ("--table", table)], [("--out", out, TABLE)])
    kept = split_names(keep, "--keep")
    check_kept(kept)
    if share is not None:
        check_share("--share", share, zero_allowed=True)
    fitted = load_model(model)
    features = getattr(fitted, "feature_names_in_", ())
    rows = read_table(table, text=[name for name in kept if name not in features])
    scores = targeting_list(fitted, rows, title=str(table), keep=kept, share=share)
    written = write_table(scores, out)
    uplift = scores.column("uplift").to_numpy()
    n_treated = int(scores.column("treat").to_numpy().sum())
    if as_json:
        print_json(
            {
                "out": str(written),
                "rows": len(uplift),
                "treated": n_treated,
                "uplift": uplift_summary(uplift),
            }
        )
        return
    shown = console()
    show_uplift(shown, uplift)
    gain = float(uplift[:n_treated].sum())
    shown.print(
        f"Treating the {n_treated:,} of {len(uplift):,} people on the list is predicted to add "
        f"{gain:,.4g} in units of the outcome, if the model is right. Wrote {written}."
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the files it writes.")] = Path(
        "unjoined-demo"
    ),
    rows: Annotated[int, typer.Option("--rows", min=100, help="Rows in each table.")] = 5000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run the whole job on a simulated campaign whose answer is known."""
    screen = console()
    screen.quiet = as_json
    result = run_demo(screen, out, n_per_table=rows, seed=seed)
    if as_json:
        print_json(result)


@app.command()
def reproduce(
    study: Annotated[
        list[str],
        typer.Argument(help="synthetic, email, jobs, criteo, or all; several may be named."),
    ],
    trials: Annotated[int, typer.Option("--trials", min=1, help="Draws of each study.")] = 50,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; default: one for each core.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the files it writes.")] = Path(
        "unjoined-paper"
    ),
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with the data files; default: cache, download."),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Tiny sizes, to see in seconds that it works.")
    ] = False,
    ridges: Annotated[
        bool,
        typer.Option("--ridges", help="Try a wide grid of MinMaxGau's ridges, and nothing else."),
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run the experiments of the paper and write figures, results and a page."""
    screen = console()
    screen.quiet = as_json
    result = run_reproduce(
        screen,
        study,
        out,
        trials=trials,
        jobs=jobs,
        seed=seed,
        small=small,
        data=data,
        ridges=ridges,
    )
    if as_json:
        print_json(result)


add_sums_commands(app)
