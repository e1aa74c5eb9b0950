"""The picture and tables of "which estimator when", from the results of the accuracy benchmark.

Run: python docs/examples/3-comparison/which_estimator.py [FOLDER]; reads
benchmarks/results/accuracy.json, which `python benchmarks/accuracy.py` writes, writes
which_estimator.png and prints the tables of docs/guide/which-estimator.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RESULTS = BENCHMARKS / "results" / "accuracy.json"
sys.path.insert(0, str(BENCHMARKS))

from trials import DEFAULT, JOINT, METHODS, PAPER  # noqa: E402 - found by the line above

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.45"
SHOWN = 2000  # rows of a table in the detailed table and the picture
BEST = "best of the paper"

Row = dict[str, Any]


def best_of_paper(rows: list[Row], problem: str, n: int) -> Row:
    """Return the method of the paper that did best on one problem."""
    return max(
        (
            r
            for r in rows
            if r["problem"] == problem and r["n"] == n and r["method"] in PAPER
        ),
        key=lambda r: r["share"],
    )


def find(rows: list[Row], problem: str, n: int, method: str) -> Row:
    """Return the result of one method."""
    if method == BEST:
        return best_of_paper(rows, problem, n)
    return next(
        r for r in rows if (r["problem"], r["n"], r["method"]) == (problem, n, method)
    )


def detailed_table(rows: list[Row], n: int) -> list[str]:
    """Return one line for each problem."""
    columns = (DEFAULT, BEST, "WeightedUplift", "MinMaxUplift", JOINT)
    lines = [
        f"| 4 x {n:,} rows | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for problem in dict.fromkeys(r["problem"] for r in rows):
        cells = []
        for column in columns:
            r = find(rows, problem, n, column)
            note = f" ({r['method']})" if column == BEST else ""
            cells.append(f"{r['share']:.2f} ± {r['share_se']:.2f}{note}")
        lines.append(f"| {problem} | {' | '.join(cells)} |")
    return lines


def mean_table(rows: list[Row]) -> list[str]:
    """Return one line for each method: its mean over problems, by size, and its time."""
    sizes = sorted({r["n"] for r in rows})
    lines = ["| method | " + " | ".join(f"4 x {n:,}" for n in sizes) + " | seconds |"]
    lines.append("|---" * (len(sizes) + 2) + "|")
    for method in METHODS:
        cells = []
        for n in sizes:
            found = [r["share"] for r in rows if r["method"] == method and r["n"] == n]
            cells.append(f"{np.mean(found):.2f}" if found else "")
        seconds = [
            r["seconds"] for r in rows if r["method"] == method and r["n"] == sizes[0]
        ]
        lines.append(f"| {method} | {' | '.join(cells)} | {np.mean(seconds):.1f} |")
    return lines


def draw(ax: Axes, rows: list[Row]) -> None:
    """Draw, for each problem, the default between the paper's best and joint labels."""
    problems = list(dict.fromkeys(r["problem"] for r in rows))[::-1]
    for i, problem in enumerate(problems):
        at = [find(rows, problem, SHOWN, m)["share"] for m in (BEST, JOINT)]
        ax.plot(
            [min(at), max(at)],
            [i, i],
            color="0.85",
            lw=4,
            solid_capstyle="round",
            zorder=0,
        )
        for method, color, marker in (
            (BEST, ORANGE, "s"),
            (JOINT, GREY, "d"),
            (DEFAULT, BLUE, "o"),
        ):
            r = find(rows, problem, SHOWN, method)
            label = None
            if i == 0:
                label = {
                    JOINT: "given joint labels (T-learner)",
                    DEFAULT: "Uplift, the default",
                }.get(method, "the paper's best method, problem by problem")
            ax.errorbar(
                r["share"],
                i,
                xerr=r["share_se"],
                fmt=marker,
                color=color,
                ms=6,
                lw=1.2,
                label=label,
            )
    ax.set_yticks(range(len(problems)), problems)
    ax.axvline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.axvline(1.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlabel(
        f"share of the oracle's area (0 random, 1 perfect), 4 x {SHOWN:,} rows"
    )
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.legend(
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.09),
        ncols=3,
    )


def main(folder: Path) -> Path:
    """Draw the picture, print the tables and return the file."""
    rows = json.loads(RESULTS.read_text())
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    draw(figure.add_subplot(), rows)
    path = folder / "which_estimator.png"
    figure.savefig(path, dpi=150)
    print("\n".join([*detailed_table(rows, SHOWN), "", *mean_table(rows)]))
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
