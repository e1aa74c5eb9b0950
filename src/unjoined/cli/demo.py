"""The demo: the whole job on files it writes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from unjoined._optional import import_extra
from unjoined._typing import Array
from unjoined.cli.run import targeting_list
from unjoined.cli.show import show_labels, show_methods, show_strength
from unjoined.data import read_table, replace_file, write_table
from unjoined.errors import TableError
from unjoined.estimators import save_model
from unjoined.metrics import identification_strength, perfect_curve
from unjoined.plot import plot_uplift_curve
from unjoined.reproduce import (
    CAMPAIGN_METHODS,
    CampaignFiles,
    MethodResult,
    compare_methods,
    draw_truth,
    read_campaign,
    write_campaign,
)

SHARE = 0.3  # of customers on the list


N_TRUTH = 20_000  # fresh customers the methods are compared on


N_CUSTOMERS = 2_000


def run_demo(out: Console, folder: Path, *, n_per_table: int, seed: int) -> dict[str, Any]:
    """Write four tables, run the library on them, and return the numbers shown."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder to write the demo to.")
    _title(out, "1. Four tables that cannot be joined")
    files = write_campaign(folder, n_per_table=n_per_table, n_customers=N_CUSTOMERS, seed=seed)
    out.print(
        "A made-up shop mails customers in two regions. Who was mailed and who bought are in "
        f"different tables, about different people. They are in {folder}:"
    )
    data = read_campaign(files)
    show_labels(out, data)
    _title(out, "2. Can these tables identify uplift?")
    strength = identification_strength(**data)
    show_strength(out, strength)
    _title(out, "3. Estimate, and compare with the truth")
    table, truth = draw_truth(N_TRUTH, seed=seed + 2)
    results = _fit_all(out, data, table, truth, seed)
    show_methods(out, results, at=SHARE)
    _explain(out, truth)
    _title(out, "4. Whom to mail")
    written = _write_results(folder, files, results, truth)
    _show_files(out, written, results[0].name)
    _next_steps(out, folder)
    return {
        "f_statistic": strength.f_statistic,
        "methods": {result.name: _numbers(result) for result in results},
        "files": {name: str(path) for name, path in written.items()},
    }


def _title(out: Console, text: str) -> None:
    out.print()
    out.rule(Text(text, style="bold"), align="left")


def _numbers(result: MethodResult) -> dict[str, float]:
    return {
        "oracle_share": result.oracle_share.value,
        "squared_error": result.squared_error,
        "seconds": result.seconds,
    }


def _write_results(
    folder: Path, files: CampaignFiles, results: list[MethodResult], truth: Array
) -> dict[str, Path]:
    """Write the targeting list, the curves and the model of the first method."""
    chosen = results[0].model
    scores = targeting_list(
        chosen,
        read_table(files.customers),
        title=str(files.customers),
        keep=["customer_id"],
        share=SHARE,
    )
    return {
        "scores": write_table(scores, folder / "scores.parquet"),
        "curve": _save_curve(results, truth, folder / "uplift_curve.png"),
        "model": save_model(chosen, folder / "model.skops"),
    }


def _show_files(out: Console, written: dict[str, Path], method: str) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, meaning in (
        ("scores", f"{N_CUSTOMERS:,} customers by uplift; the best {SHARE:.0%} are marked treat"),
        ("curve", "gain against the share mailed, for every method"),
        ("model", f"the fitted {method}, for `unjoined score`"),
    ):
        table.add_row(str(written[name]), meaning)
    out.print(table)


def _fit_all(out: Console, data: Any, table: Any, truth: Array, seed: int) -> list[MethodResult]:
    results = []
    with Progress(
        TextColumn("fitting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
        transient=True,
    ) as progress:
        task = progress.add_task("fitting", total=len(CAMPAIGN_METHODS))
        for result in compare_methods(data, table, truth, seed=seed):
            results.append(result)
            progress.advance(task)
    return results


def _explain(out: Console, truth: Array) -> None:
    best = 1000 * float(perfect_curve(truth).at(SHARE))
    at_random = 1000 * SHARE * float(truth.mean())
    meanings = Table(box=None, show_header=False, pad_edge=False)
    for number, meaning in (
        ("share of oracle", "how good the ranking is: 0 a random order, 1 that of the true uplift"),
        (
            f"gain at {SHARE:.0%}",
            f"purchases added per 1,000 customers when the best {SHARE:.0%} are mailed: "
            f"{best:+.1f} in perfect order, {at_random:+.1f} in random order",
        ),
        (
            "error",
            "mean squared error over the variance of uplift: 0 is perfect, 1 is what a constant "
            "gets",
        ),
    ):
        meanings.add_row(Text(number, style="bold"), meaning)
    out.print()
    out.print(meanings)
    out.print()
    out.print(
        "Uplift is the library's default, MinMaxUplift the paper's method improved, MinMaxGau "
        "the same with the paper's settings; FourLogistic and FourNNC divide one difference of "
        "regressions by another. Only a simulation knows these numbers: for real tables nobody "
        "has the truth."
    )


def _save_curve(results: list[MethodResult], truth: Array, path: Path) -> Path:
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
    return replace_file(path, lambda file: figure.savefig(file, format="png", dpi=150))


def _next_steps(out: Console, folder: Path) -> None:
    out.print()
    for line in (
        "The same steps, on your own files:",
        "  unjoined fit \\",
        *(
            f"      --{kind}s {name}={folder / f'{kind}s_{name}.parquet'} \\"
            for kind in ("outcome", "treatment")
            for name in ("north", "south")
        ),
        f"      --outcome bought --treatment mailed --model {folder / 'model.skops'}",
        f"  unjoined score --model {folder / 'model.skops'} \\",
        f"      --table {folder / 'customers.parquet'} --keep customer_id --share {SHARE} \\",
        f"      --out {folder / 'scores.parquet'}",
    ):
        out.print(line)
