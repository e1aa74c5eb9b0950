"""The picture of the README: four tables without a key, and what comes out of them.

Run: python docs/examples/1-quickstart/four_tables.py [FOLDER]; writes four_tables.png there.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from unjoined import SeparateLabels, Uplift
from unjoined.data import campaign_problem
from unjoined.evaluate import uplift_curve
from unjoined.plot import plot_uplift_curve

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.35"


def draw_table(
    ax: Axes, x: float, y: float, title: str, lines: list[str], color: str
) -> None:
    """Draw one small table with its upper left corner at (x, y)."""
    box = FancyBboxPatch(
        (x, y - 2.55),
        4.2,
        2.55,
        boxstyle="round,pad=0.08",
        facecolor="white",
        edgecolor=color,
        lw=1.4,
    )
    ax.add_patch(box)
    ax.text(x + 0.1, y - 0.1, title, va="top", fontsize=10, weight="bold", color=color)
    text = "\n".join(lines)
    ax.text(
        x + 0.1,
        y - 0.72,
        text,
        va="top",
        fontsize=8.6,
        family="monospace",
        color="0.15",
    )


def draw_tables(ax: Axes, data: SeparateLabels) -> None:
    """Draw the first rows of the four tables, and an arrow to what comes out of them."""
    ax.set_xlim(-0.1, 11.2)
    ax.set_ylim(-0.2, 7.4)
    ax.axis("off")
    X, y = np.asarray(data.X), np.where(np.isnan(data.y), data.treatment, data.y)
    for k, (region, color) in enumerate((("north", BLUE), ("south", ORANGE))):
        x = 0.2 + 5.0 * k
        ax.text(
            x + 2.1, 6.95, region, ha="center", fontsize=12, weight="bold", color=color
        )
        for kind, top, title, label in (
            ("outcome", 6.6, "who bought", "bought"),
            ("treatment", 2.6, "who was mailed", "mailed"),
        ):
            rows = data.rows(kind, region)
            lines = [f"age  days  orders  {label}"] + [
                f"{X[i, 0]:3.0f}  {X[i, 1]:4.0f}  {X[i, 2]:6.0f}  {y[i]:6.0f}"
                for i in rows[:3]
            ]
            draw_table(ax, x, top, title, [*lines, f"… {len(rows):,} rows"], color)
    ax.text(
        4.9,
        3.32,
        "no common key: different people, never joined",
        ha="center",
        va="center",
        fontsize=10,
        style="italic",
        color=GREY,
    )
    arrow = FancyArrowPatch(
        (9.8, 3.32), (11.1, 3.32), arrowstyle="-|>", mutation_scale=22, lw=2, color=GREY
    )
    ax.add_patch(arrow)


def main(folder: Path) -> Path:
    """Draw the picture and return the file."""
    problem = campaign_problem()
    data = problem.draw(5000, random_state=0)
    model = Uplift(random_state=0).fit(**data)
    new = problem.draw_joint(20_000, random_state=2)
    figure = Figure(figsize=(11, 4.1), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
    draw_tables(left, data)
    plot_uplift_curve(
        {
            "estimated from the four tables": uplift_curve(
                model.predict(new.X), new.uplift
            )
        },
        perfect=uplift_curve(new.uplift, new.uplift),
        unit="purchases",
        ax=right,
    )
    right.set_title("whom to mail first", fontsize=11, weight="bold")
    path = folder / "four_tables.png"
    figure.savefig(path, dpi=150)
    share = np.corrcoef(model.predict(new.X), new.uplift)[0, 1]
    print(f"{path}: correlation of estimated and true uplift {share:.2f}")
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
