"""The picture of how the time of the sums grows, from the results of the growth benchmark.

Run: python docs/examples/3-comparison/growth.py [FOLDER]; reads benchmarks/results/growth.json,
which `python benchmarks/growth.py` writes, and writes growth.png.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "growth.json"
BLUE, GREY = "#1f5f99", "0.6"


def short(value: float, _: object = None) -> str:
    """Write a number of rows, centres or seconds as people say it."""
    if value >= 1e6:
        return f"{value / 1e6:g} million"
    return f"{value:,.0f}" if value >= 1.0 else f"{value:g}"


def draw(ax: Axes, part: dict[str, Any], power: float, label: str) -> None:
    """Draw times against sizes, with a line of the slope that is expected of many."""
    size, seconds = np.array(part["size"]), np.array(part["seconds"])
    ax.loglog(size, seconds, "o-", color=BLUE, ms=6, lw=1.6, label=label)
    guide = seconds[-1] * (size / size[-1]) ** power
    ax.loglog(size, guide, "--", color=GREY, lw=1.2, label=f"slope {power:g}")
    ax.set_xticks(size, [short(s) for s in size])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(short))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")


def main(folder: Path) -> Path:
    """Draw the picture and return the file."""
    found = json.loads(RESULTS.read_text())
    rows, centers = found["rows"], found["centers"]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw(left, rows, 1.0, f"sums, fitted slope {rows['slope']:.2f}")
    left.set_xlabel(f"rows ({found['fixed_centers']} centres, 10 features)")
    left.set_ylabel("seconds")
    last = np.diff(np.log(centers["seconds"][-2:])) / np.diff(
        np.log(centers["size"][-2:])
    )
    draw(
        right,
        centers,
        2.0,
        f"sums, fitted slope {centers['slope']:.2f}, at the end {last[0]:.2f}",
    )
    right.set_xlabel(f"centres ({found['fixed_rows']:,} rows, 10 features)")
    path = folder / "growth.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
