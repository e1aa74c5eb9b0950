"""The picture of the guide on large data: what a pass keeps, and how close it is to one fit.

Run: python docs/examples/1-quickstart/large_data.py [FOLDER]; writes large_data.png there.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import campaign_problem
from unjoined.evaluate import uplift_curve
from unjoined.plot import plot_uplift_curve

BLUE, ORANGE = "#1f5f99", "#b35a00"
CHUNKS, ROWS = 10, 500  # rows of each of the four tables in a chunk


def draw_memory(ax: Axes, n_features: int, kept: float, n_functions: int) -> None:
    """Draw the size of the rows against that of all that a pass keeps."""
    n = np.logspace(4, 9, 50)
    ax.loglog(
        n, 8.0 * n * (n_features + 1) / 1e6, color=ORANGE, label="the rows themselves"
    )
    ax.axhline(kept, color=BLUE, label=f"what a pass keeps ({n_functions} functions)")
    ax.set_xlabel("rows")
    ax.set_ylabel("memory (megabytes)")
    ax.set_title("memory does not grow with the rows", fontsize=11, weight="bold")
    ax.legend(frameon=False, fontsize=9)


def main(folder: Path) -> Path:
    """Fit the same rows both ways, draw the picture and return the file."""
    problem = campaign_problem()
    months = [problem.draw(ROWS, random_state=seed) for seed in range(CHUNKS)]
    whole = {
        name: np.concatenate([np.asarray(m[name]) for m in months])
        for name in months[0]
    }
    new = problem.draw_joint(5_000, random_state=10_000)
    X = np.asarray(new.X)
    settings = {"n_centers": 60, "width": "median", "random_state": 0, "n_jobs": 1}
    chunks = [{**month, "X": np.asarray(month["X"])} for month in months]
    streamed = SeparateLabels.from_chunks(lambda: chunks)
    uplift = {
        "fit, all rows in memory": MinMaxUplift(**settings).fit(**whole).predict(X),
        "fit, streamed": MinMaxUplift(**settings).fit(streamed).predict(X),
    }
    curves = {name: uplift_curve(values, new.uplift) for name, values in uplift.items()}
    for name, curve in curves.items():
        print(f"{name}: {1000 * float(curve.at(0.3)):+.1f} purchases per 1,000 at 30 %")
    d, p = X.shape[1], 200 + X.shape[1] + 1
    # Sums of 4 tables and 5 groups, a sample of 10,000 rows of each table, and one batch.
    kept = 8.0 * (4 * 5 * (2 * p**2 + p) + 40_000 * (d + 4) + 65_536 * (d + p)) / 1e6
    print(f"kept with {p} functions of {d} features: {kept:.0f} MB")
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_uplift_curve(
        curves, perfect=uplift_curve(new.uplift, new.uplift), unit="purchases", ax=left
    )
    left.set_title("the same rows, whole and in chunks", fontsize=11, weight="bold")
    draw_memory(right, d, kept, p)
    path = folder / "large_data.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
