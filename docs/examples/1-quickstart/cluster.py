"""The picture of the guide on clusters: partitions stay, sums travel up a tree.

Run: python docs/examples/1-quickstart/cluster.py [FOLDER]; writes cluster.png there and prints
the numbers of the page.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.35"
FEATURES, FUNCTIONS, CELLS, GROUPS = 20, 221, 4, 5
PARTITION_ROWS, WORKERS = 1_000_000, 100


def sums_bytes(p: int, d: int) -> int:
    """Return the size of one set of sums: of all tables and groups, and of the policies."""
    q = 2 * d + 1
    return 8 * (CELLS * GROUPS * (2 * p**2 + p) + 2 * (2 * q**2 + q))


def draw_box(
    ax: Axes, x: float, y: float, text: str, color: str, width: float = 1.15
) -> None:
    """Draw a box centred at (x, y)."""
    style = {
        "boxstyle": "round,pad=0.06",
        "facecolor": "white",
        "edgecolor": color,
        "lw": 1.4,
    }
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.28), width, 0.56, **style))
    ax.text(
        x, y, text, ha="center", va="center", fontsize=8.5, color=color, linespacing=1.2
    )


def draw_arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw what travels."""
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=11, lw=1.1, color=GREY
        )
    )


def draw_tree(ax: Axes) -> None:
    """Draw two workers with four partitions each, and how their sums are merged."""
    ax.set_xlim(-0.2, 11.2)
    ax.set_ylim(-0.9, 5.1)
    ax.axis("off")
    for worker, left in enumerate((0.0, 5.6)):
        frame = {
            "boxstyle": "round,pad=0.05",
            "facecolor": "#f4f6f8",
            "edgecolor": "0.8",
        }
        ax.add_patch(FancyBboxPatch((left, -0.55), 5.35, 3.5, **frame))
        ax.text(
            left + 0.1,
            -0.4,
            f"worker {worker + 1}",
            fontsize=9,
            color=GREY,
            va="bottom",
        )
        top = left + 2.68
        for i in range(4):
            x = left + 0.72 + 1.3 * i
            draw_box(ax, x, 0.35, f"partition\n{4 * worker + i + 1}", BLUE)
            draw_box(ax, x, 1.35, "sums", ORANGE, width=0.8)
            draw_arrow(ax, (x, 0.68), (x, 1.02))
            draw_arrow(ax, (x, 1.68), (top + 0.35 * (i - 1.5), 2.12))
        draw_box(ax, top, 2.45, "sums", ORANGE, width=1.7)
        draw_arrow(ax, (top, 2.78), (5.48 + (0.5 if worker else -0.5), 3.62))
    draw_box(ax, 5.48, 3.95, "one set of sums", ORANGE, width=2.6)
    ax.text(5.48, 4.45, "solved where you are", ha="center", fontsize=9, color=GREY)
    ax.set_title("rows stay where they are, sums travel", fontsize=11, weight="bold")


def draw_sizes(ax: Axes) -> None:
    """Draw what travels against the rows themselves."""
    rows = np.logspace(6, 10, 60)
    one = sums_bytes(FUNCTIONS, FEATURES)
    # Merges of eight: seven of eight sums travel at most, plus the next levels.
    moved = one * np.maximum(rows / PARTITION_ROWS, 1.0) * (1.0 + 1.0 / 7.0)
    ax.loglog(
        rows, 8.0 * rows * (FEATURES + 1), color=BLUE, label="the rows themselves"
    )
    ax.loglog(rows, moved, color=ORANGE, ls="--", label="sums between workers, at most")
    ax.axhline(one, color=ORANGE, label="sums that come back to you")
    ticks = [1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12]
    ax.set_yticks(ticks, ["1 MB", "10 MB", "100 MB", "1 GB", "10 GB", "100 GB", "1 TB"])
    ax.set_ylim(3e6, 4e12)
    ax.set_xlabel("rows")
    ax.set_ylabel("size")
    ax.set_title(
        f"{FUNCTIONS} functions of {FEATURES} features, a million rows a partition",
        fontsize=10,
    )
    ax.legend(frameon=False, fontsize=9, loc="upper left")


def main(folder: Path) -> Path:
    """Print the sizes, draw the picture and return the file."""
    for p in (100, FUNCTIONS, 500):
        print(f"p = {p}: one set of sums is {sums_bytes(p, FEATURES) / 1e6:.1f} MB")
    figure = Figure(figsize=(11.5, 4.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
    draw_tree(left)
    draw_sizes(right)
    path = folder / "cluster.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
