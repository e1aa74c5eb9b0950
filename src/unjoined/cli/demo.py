"""The command demo: the whole job on a simulated campaign."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import list2cmdline
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

import unjoined
from unjoined._support import import_extra
from unjoined._typing import Array
from unjoined.cli.inputs import Tables
from unjoined.cli.options import AsJson, Force, Seed
from unjoined.cli.program import Config, command
from unjoined.cli.score import Scored, Target, show_list
from unjoined.cli.show import (
    STYLES,
    console,
    noted,
    print_json,
    show_labels,
    show_pairs,
    show_table,
    tell_progress,
)
from unjoined.data.labels import SeparateLabels
from unjoined.data.raw import REGIONS, raw_customers, write_raw_files
from unjoined.data.tables import read_table
from unjoined.data.write import replace_file, write_table
from unjoined.errors import TableError
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import save_model
from unjoined.evaluate.curves import UpliftCurve, qini, uplift_curve
from unjoined.evaluate.diagnosis import diagnose
from unjoined.plot import plot_uplift_curve
from unjoined.report.facts import Origin, Terms
from unjoined.report.page import report
from unjoined.words import brief

SHARE = 0.3  # of customers on the list
N_TRUTH = 20_000  # fresh customers the methods are compared on
N_CUSTOMERS = 2_000  # to be scored
BUDGET, COST, VALUE = 300.0, 0.5, 8.0  # to spend, for a mail, and what a visit is worth


@command("unjoined demo", "unjoined demo --rows 1000 --out my-demo")
def demo(
    folder: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Folder for the files it writes."),
    ] = Path("unjoined-demo"),
    rows: Annotated[
        int,
        typer.Option("--rows", min=100, metavar="NUMBER", help="Rows in each table."),
    ] = 5000,
    force: Force = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Run the whole job on a simulated campaign whose answer is known."""
    _check_folder(folder, force=force)
    out = console(quiet=as_json)
    _title(out, "1. Four tables that cannot be joined")
    files = write_raw_files(
        folder, n_per_table=rows, n_customers=N_CUSTOMERS, seed=seed
    )
    outcomes, treatments = (
        [f"{name}={files[f'{kind}_{name}']}" for name in REGIONS]
        for kind in ("visits", "mailings")
    )
    out.print(
        "A made-up shop mails customers in two regions. Who was mailed and who visited are in "
        f"different files, about different people. They are in {folder}, as a company has them: "
        "text, dates, ids, empty cells, columns in any order."
    )
    with noted():
        data = Tables(outcomes, treatments, outcome="visit", treatment="mailed").read()
    show_labels(out, data.summary())
    _title(out, "2. Can these tables identify uplift?")
    diagnosis = diagnose(data, random_state=seed)
    out.print(diagnosis.headline, style=STYLES[diagnosis.colour])
    _title(out, "3. Estimate, and compare with the truth")
    model, measures, curves, truth = _compare(out, data, seed)
    model.verdict_ = diagnosis.as_verdict()
    _explain(out, truth)
    _title(out, f"4. Whom to mail, with {BUDGET:,.0f} to spend")
    gain = _choose(out, model, folder, seed)
    written = {"list": folder / "list.csv", "curve": _draw(folder, curves, truth)}
    written["model"] = save_model(model, folder / "model.skops")
    written["report"] = _write_report(out, folder, model, data, seed)
    _next_steps(out, folder)
    if as_json:
        print_json(
            {
                "verdict": diagnosis.verdict,
                "methods": measures,
                "list": gain,
                "files": {name: str(path) for name, path in (files | written).items()},
            }
        )


def _check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder with files that the demo would replace."""
    if folder.exists() and not folder.is_dir():
        raise TableError(
            f"{str(folder)!r} is a file; name a folder to write the demo to."
        )
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise TableError(
            f"the folder {str(folder)!r} is not empty. Add --force to write the demo's files into "
            "it, or name another one with --out."
        )


def _choose(
    out: Console, model: UpliftEstimator, folder: Path, seed: int
) -> dict[str, Any]:
    """Write the list for a budget, and hold its expected gain against the truth."""
    customers = folder / "customers.csv"
    target = Target(budget=BUDGET, cost=COST, value=VALUE)
    people = Scored.of_table(model, customers, ["customer_id"])
    model.unit_ = "visits"
    facts, lines = show_list(
        console(quiet=True), model, people, target, replace(model._unit, currency="EUR")
    )
    for line in lines:
        out.print(line)
    write_table(people.listed(model.verdict_.colour, target), folder / "list.csv")
    _, truth = raw_customers(N_CUSTOMERS, seed=seed + 1)
    numbers = np.array(people.kept.column("customer_id").to_pylist(), dtype=np.int64)
    gained = float(truth[numbers[: facts["treated"]] - numbers.min()].sum())
    out.print(
        f"In truth, which only a simulation knows, it adds {brief(gained)} visits."
    )
    return facts | {"true_gain": gained}


def _title(out: Console, text: str) -> None:
    out.print()
    out.rule(Text(text, style="bold"), align="left")


def _compare(
    out: Console, data: SeparateLabels, seed: int
) -> tuple[UpliftEstimator, dict[str, dict[str, float]], dict[str, UpliftCurve], Array]:
    """Fit each method, compare its ranking of fresh customers with the truth, and show it.

    Returns the model of the first, measures and curves of all, and the truth. Of the measures, the
    share of the oracle is 0 for a random order and 1 for the order of the true uplift; the squared
    error is over the variance of the true uplift.
    """
    methods: tuple[Any, ...] = (
        unjoined.Uplift,  # the default
        unjoined.MinMaxUplift,  # the paper's method, as the library sets it up
        unjoined.MinMaxGau,  # and as the paper did
        unjoined.FourLogistic,  # its baselines
        unjoined.FourNNC,
    )
    table, truth = raw_customers(N_TRUTH, seed=seed + 2)
    models, measures, curves, rows = [], {}, {}, []
    for i, method in enumerate(methods):
        tell_progress("fitting", i, len(methods))
        name = method.__name__
        start = time.perf_counter()
        models.append(method(random_state=seed).fit(**data))
        uplift = models[-1].predict(table)
        seconds = time.perf_counter() - start
        share = qini(uplift, truth, normalize=True).value
        error = float(np.mean((uplift - truth) ** 2) / np.var(truth))
        measures[name] = {
            "oracle_share": share,
            "squared_error": error,
            "seconds": seconds,
        }
        curves[name] = uplift_curve(uplift, truth)
        gain = f"{1000 * float(curves[name].at(SHARE)):+.1f}"
        rows.append((name, f"{share:.2f}", gain, f"{error:,.2f}", f"{seconds:.1f}"))
    tell_progress("fitting", len(methods), len(methods))
    show_table(
        out,
        ("method", "share of oracle", f"gain at {SHARE:.0%}", "error", "seconds"),
        rows,
    )
    return models[0], measures, curves, truth


def _explain(out: Console, truth: Array) -> None:
    best = 1000 * float(uplift_curve(truth, truth).at(SHARE))
    at_random = 1000 * SHARE * float(truth.mean())
    meanings = {
        "share of oracle": "how good the ranking is: 0 a random order, 1 that of the true uplift",
        f"gain at {SHARE:.0%}": "visits added per 1,000 customers when the best "
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


def _draw(folder: Path, curves: dict[str, UpliftCurve], truth: Array) -> Path:
    """Draw the curves of all methods into a file."""
    figure = import_extra("matplotlib.figure", extra="plot").Figure(
        figsize=(7.2, 4.8), layout="constrained"
    )
    ax = plot_uplift_curve(
        curves,
        perfect=uplift_curve(truth, truth),
        unit="visits",
        ax=figure.add_subplot(),
    )
    ax.set_title(
        "Gain from mailing the best customers first (simulated campaign)", fontsize=11
    )
    return replace_file(
        folder / "uplift_curve.png",
        lambda file: figure.savefig(file, format="png", dpi=150),
    )


def _write_report(
    out: Console, folder: Path, model: UpliftEstimator, data: SeparateLabels, seed: int
) -> Path:
    """Write the report on the model, for the customers who are to be mailed."""
    _title(out, "5. A report to act on")
    written = report(
        model,
        data,
        folder / "report.html",
        people=read_table(folder / "customers.csv").drop(["customer_id"]),
        terms=Terms(
            unit="visits", value=VALUE, cost=COST, currency="EUR", budget=BUDGET
        ),
        origin=Origin(
            title="Simulated campaign: whom to mail",
            command="unjoined demo --force",
            list_file="list.csv",
            list_command="unjoined score --model model.skops --table customers.csv --out LIST.csv",
        ),
        overwrite=True,
        random_state=seed,
    )
    out.print(f"{written}: open it in a browser. It needs no network.")
    return written


def _next_steps(out: Console, folder: Path) -> None:
    """Print the commands that do the same, as this shell takes them."""
    settings = str(folder / "unjoined.toml")
    place = program()
    join = list2cmdline if os.name == "nt" else shlex.join
    money = ["--budget", f"{BUDGET:g}", "--cost", f"{COST:g}", "--value", f"{VALUE:g}"]
    out.print()
    out.print("The same with commands, which work on your own files as well:")
    for words in (
        ["init", str(folder), "--out", settings],
        ["check", "--config", settings],
        ["fit", "--config", settings, "--force"],
        ["score", "--config", settings, *money, "--force"],
        [
            "report",
            "--config",
            settings,
            *money,
            "--out",
            str(folder / "report.html"),
            "--force",
        ],
    ):
        out.print(f"  {join([*place, *words])}", soft_wrap=True)


def program() -> list[str]:
    """Return the words that run this program in the shell it was started from."""
    if Path(sys.argv[0]).name == "__main__.py" or not Path(sys.argv[0]).exists():
        return [sys.executable, "-m", "unjoined"]
    found = shutil.which("unjoined")
    at_hand = found is not None and Path(found).samefile(sys.argv[0])
    return ["unjoined"] if at_hand else [sys.argv[0]]
