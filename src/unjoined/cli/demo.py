"""Commands that bring their own data: the demo on a simulated campaign, the paper's studies."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

import unjoined
from unjoined._optional import import_extra
from unjoined._typing import Array
from unjoined._validation import check_option
from unjoined.cli.app import targeting_list
from unjoined.cli.inputs import Tables, check_distinct
from unjoined.cli.options import AsJson, Seed
from unjoined.cli.program import app
from unjoined.cli.show import (
    console,
    print_json,
    progress,
    show_labels,
    show_pairs,
    show_strength,
    show_table,
)
from unjoined.data import SeparateLabels, read_table, replace_file, write_table
from unjoined.errors import TableError
from unjoined.estimators import UpliftEstimator, save_model
from unjoined.metrics import UpliftCurve, identification_strength, perfect_curve, qini, uplift_curve
from unjoined.plot import plot_uplift_curve
from unjoined.report import Origin, Terms, report
from unjoined.reproduce import STUDIES, draw_customers, reproduce_paper, write_campaign

SHARE = 0.3  # of customers on the list
VALUE, COST = 30.0, 1.0  # what a purchase is worth and what a mail costs, made up
N_TRUTH = 20_000  # fresh customers the methods are compared on
N_CUSTOMERS = 2_000  # to be scored

Folder = Annotated[Path, typer.Option("--out", help="Folder for the files it writes.")]


@dataclass(frozen=True, slots=True)
class Result:
    """How one method did against the simulated truth."""

    name: str
    model: UpliftEstimator
    oracle_share: float  # 0 is a random order, 1 the order of the true uplift
    squared_error: float  # mean squared error over the variance of the true uplift
    curve: UpliftCurve
    seconds: float  # to fit and predict


@app.command()
def demo(
    folder: Folder = Path("unjoined-demo"),
    rows: Annotated[int, typer.Option(min=100, help="Rows in each table.")] = 5000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run the whole job on a simulated campaign whose answer is known."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder to write the demo to.")
    out = console(quiet=as_json)
    _title(out, "1. Four tables that cannot be joined")
    write_campaign(folder, n_per_table=rows, n_customers=N_CUSTOMERS, seed=seed)
    out.print(
        "A made-up shop mails customers in two regions. Who was mailed and who bought are in "
        f"different tables, about different people. They are in {folder}:"
    )
    outcomes, treatments = (
        [f"{name}={folder / f'{kind}_{name}.parquet'}" for name in ("north", "south")]
        for kind in ("outcomes", "treatments")
    )
    data = Tables.of(outcomes, treatments, "bought", "mailed", None, None).read()
    show_labels(out, data)
    _title(out, "2. Can these tables identify uplift?")
    strength = identification_strength(**data)
    show_strength(out, strength)
    _title(out, "3. Estimate, and compare with the truth")
    results, truth = _compare(out, data, seed)
    _explain(out, truth)
    _title(out, "4. Whom to mail")
    written = _write_results(folder, results, truth)
    meanings = (
        f"{N_CUSTOMERS:,} customers by uplift; the best {SHARE:.0%} are marked treat",
        "gain against the share mailed, for every method",
        f"the fitted {results[0].name}, for `unjoined score`",
    )
    show_pairs(out, zip(map(str, written.values()), meanings, strict=True))
    written["report"] = _write_report(out, folder, results[0].model, data, seed)
    _next_steps(out, folder, outcomes, treatments)
    if as_json:
        measures = ("oracle_share", "squared_error", "seconds")
        print_json(
            {
                "f_statistic": strength.f_statistic,
                "methods": {r.name: {m: getattr(r, m) for m in measures} for r in results},
                "files": {name: str(path) for name, path in written.items()},
            }
        )


def _title(out: Console, text: str) -> None:
    out.print()
    out.rule(Text(text, style="bold"), align="left")


def _compare(out: Console, data: SeparateLabels, seed: int) -> tuple[list[Result], Array]:
    """Fit each method, compare its ranking of fresh customers with the truth, and show it."""
    methods: tuple[Any, ...] = (
        unjoined.Uplift,  # the default
        unjoined.MinMaxUplift,  # the paper's method, as the library sets it up
        unjoined.MinMaxGau,  # and as the paper did
        unjoined.FourLogistic,  # its baselines
        unjoined.FourNNC,
    )
    table, truth = draw_customers(N_TRUTH, seed=seed + 2)
    results = []
    with progress(out) as draw:
        for i, method in enumerate(methods):
            draw("fitting", i, len(methods))
            start = time.perf_counter()
            model = method(random_state=seed).fit(**data)
            uplift = model.predict(table)
            results.append(
                Result(
                    method.__name__,
                    model,
                    qini(uplift, truth, normalize=True).value,
                    float(np.mean((uplift - truth) ** 2) / np.var(truth)),
                    uplift_curve(uplift, truth),
                    time.perf_counter() - start,
                )
            )
        draw("fitting", len(methods), len(methods))
    rows = [
        (
            r.name,
            f"{r.oracle_share:.2f}",
            f"{1000 * float(r.curve.at(SHARE)):+.1f}",
            f"{r.squared_error:,.2f}",
            f"{r.seconds:.1f}",
        )
        for r in results
    ]
    show_table(out, ("method", "share of oracle", f"gain at {SHARE:.0%}", "error", "seconds"), rows)
    return results, truth


def _explain(out: Console, truth: Array) -> None:
    best = 1000 * float(perfect_curve(truth).at(SHARE))
    at_random = 1000 * SHARE * float(truth.mean())
    meanings = {
        "share of oracle": "how good the ranking is: 0 a random order, 1 that of the true uplift",
        f"gain at {SHARE:.0%}": "purchases added per 1,000 customers when the best "
        f"{SHARE:.0%} are mailed: {best:+.1f} in perfect order, {at_random:+.1f} in random order",
        "error": "mean squared error over the variance of uplift: 0 is perfect, 1 is what a "
        "constant gets",
    }
    out.print()
    show_pairs(out, meanings.items())
    out.print()
    out.print(
        "Uplift is the library's default, MinMaxUplift the paper's method improved, MinMaxGau "
        "the same with the paper's settings; FourLogistic and FourNNC divide one difference of "
        "regressions by another. Only a simulation knows these numbers: for real tables nobody "
        "has the truth."
    )


def _write_results(folder: Path, results: list[Result], truth: Array) -> dict[str, Path]:
    """Write the targeting list, the curves and the model of the first method."""
    chosen, customers = results[0].model, folder / "customers.parquet"
    scores = targeting_list(
        chosen, read_table(customers), title=str(customers), keep=["customer_id"], share=SHARE
    )
    figure = import_extra("matplotlib.figure", extra="plot").Figure(
        figsize=(7.2, 4.8), layout="constrained"
    )
    ax = plot_uplift_curve(
        {result.name: result.curve for result in results},
        perfect=perfect_curve(truth),
        unit="purchases",
        ax=figure.add_subplot(),
    )
    ax.set_title("Gain from mailing the best customers first (simulated campaign)", fontsize=11)
    return {
        "scores": write_table(scores, folder / "scores.parquet"),
        "curve": replace_file(
            folder / "uplift_curve.png",
            lambda file: figure.savefig(file, format="png", dpi=150),
        ),
        "model": save_model(chosen, folder / "model.skops"),
    }


def _write_report(
    out: Console, folder: Path, model: UpliftEstimator, data: SeparateLabels, seed: int
) -> Path:
    """Write the report on the model, for the customers who are to be mailed."""
    _title(out, "5. A report to act on")
    written = report(
        model,
        data,
        folder / "report.html",
        people=read_table(folder / "customers.parquet"),
        terms=Terms(unit="purchases", value=VALUE, cost=COST, currency="EUR", share=SHARE),
        origin=Origin(title="Simulated campaign: whom to mail", command="unjoined demo"),
        overwrite=True,
        random_state=seed,
    )
    out.print(f"{written}: open it in a browser. It needs no network.")
    return written


def _next_steps(out: Console, folder: Path, outcomes: list[str], treatments: list[str]) -> None:
    out.print()
    for line in (
        "The same steps, on your own files:",
        "  unjoined fit \\",
        *(f"      --outcomes {entry} \\" for entry in outcomes),
        *(f"      --treatments {entry} \\" for entry in treatments),
        f"      --outcome bought --treatment mailed --model {folder / 'model.skops'}",
        f"  unjoined score --model {folder / 'model.skops'} \\",
        f"      --table {folder / 'customers.parquet'} --keep customer_id --share {SHARE} \\",
        f"      --out {folder / 'scores.parquet'}",
    ):
        out.print(line)


@app.command()
def reproduce(
    study: Annotated[
        list[str],
        typer.Argument(help=f"{', '.join(STUDIES)}, or all; several may be named."),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Draws of each study.")] = 50,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: one for each core.")
    ] = None,
    folder: Folder = Path("unjoined-paper"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data files; default: cache, download.")
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
    """Run the experiments of the paper and write figures and a page."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder with --out.")
    if data is not None and not data.is_dir():
        raise TableError(f"there is no folder {str(data)!r}. Check --data.")
    if data is not None:
        check_distinct([("--data", data), ("--out", folder)])
    for name in study:
        check_option("study", name, (*STUDIES, "all"))
    out = console(quiet=as_json)
    with progress(out) as draw:
        try:
            files = reproduce_paper(
                [name for name in STUDIES if name in study or "all" in study],
                folder,
                trials=trials,
                jobs=jobs or os.cpu_count() or 1,
                seed=seed,
                small=small,
                data=None if data is None else str(data),
                ridges=ridges,
                progress=draw,
            )
        except KeyboardInterrupt:
            out.print(f"Finished trials are kept in {folder}; the same command goes on.")
            raise
    claims = json.loads(files.results.read_text("utf-8"))["claims"]
    out.print("What the paper says in section 6.3, judged by these numbers:")
    show_pairs(out, ((claim["verdict"], claim["claim"]) for claim in claims))
    out.print(f"Wrote {files.page}, {files.results} and figures: {len(files.figures)}.")
    if as_json:
        paths = {"page": files.page, "results": files.results, "trials": files.trials}
        print_json(
            {
                "verdicts": {claim["claim"]: claim["verdict"] for claim in claims},
                "files": {name: str(path) for name, path in paths.items()}
                | {"figures": [str(file) for file in files.figures]},
            }
        )
