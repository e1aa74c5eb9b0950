"""The picture of the guide on sums across organisations: rows stay, sums travel.

Run: python docs/examples/1-quickstart/across_organisations.py [FOLDER]; writes
across_organisations.png there.
"""

import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.35"


def draw_box(ax: Axes, x: float, y: float, title: str, text: str, color: str) -> None:
    """Draw a box of width 3.4 and height 1.5 with its lower left corner at (x, y)."""
    box = FancyBboxPatch(
        (x, y),
        3.4,
        1.5,
        boxstyle="round,pad=0.08",
        facecolor="white",
        edgecolor=color,
        lw=1.5,
    )
    ax.add_patch(box)
    ax.text(
        x + 0.1, y + 1.4, title, va="top", fontsize=10.5, weight="bold", color=color
    )
    ax.text(
        x + 0.1, y + 0.95, text, va="top", fontsize=9, color="0.15", linespacing=1.4
    )


def draw_arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    label: str,
    above: float,
) -> None:
    """Draw an arrow and what travels along it."""
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=18, lw=1.6, color=GREY
        )
    )
    x, y = (start[0] + end[0]) / 2.0, (start[1] + end[1]) / 2.0
    ax.text(
        x,
        y + above,
        label,
        ha="center",
        va="center",
        fontsize=9,
        style="italic",
        color=GREY,
    )


def main(folder: Path) -> Path:
    """Draw the picture and return the file."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    ax = figure.add_subplot()
    ax.set_xlim(0.0, 14.2)
    ax.set_ylim(-0.3, 5.2)
    ax.axis("off")
    draw_box(
        ax, 0.2, 3.3, "knows who bought", "rows with outcomes\nunjoined aggregate", BLUE
    )
    draw_box(
        ax,
        0.2,
        0.2,
        "knows who was mailed",
        "rows with treatments\nunjoined aggregate",
        ORANGE,
    )
    draw_box(
        ax,
        6.0,
        1.75,
        "adds up and fits",
        "unjoined merge\nunjoined fit --moments",
        GREY,
    )
    ax.text(
        1.9,
        2.55,
        "agreed plan: functions, no rows",
        ha="center",
        fontsize=9,
        style="italic",
    )
    draw_arrow(ax, (3.75, 4.05), (5.9, 3.0), "outcomes.sums", 0.65)
    draw_arrow(ax, (3.75, 0.95), (5.9, 2.0), "treatments.sums", -0.75)
    draw_arrow(ax, (9.55, 2.5), (10.6, 2.5), "", 0.0)
    draw_box(
        ax,
        10.7,
        1.75,
        "uplift model",
        "scores anybody whose\nfeatures are known",
        "0.15",
    )
    path = folder / "across_organisations.png"
    figure.savefig(path, dpi=150)
    print(path)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
