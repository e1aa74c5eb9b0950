"""Two networks play the paper's game: how training goes, and what ranking comes out.

Run: python docs/examples/1-quickstart/neural.py [FOLDER [DRAWS]]; writes neural.png to the folder
and prints each method's share of the oracle's area, averaged over so many draws of the tables.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import MinMaxUplift, NeuralMinMaxUplift
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.evaluate import qini, uplift_curve
from unjoined.plot import plot_uplift_curve

BLUE, ORANGE = "#1f5f99", "#b35a00"


def draw_training(ax: Axes, model: NeuralMinMaxUplift) -> None:
    """Draw the held-out risk of every epoch and mark the one that was kept."""
    risk = model.history_["held_out_risk"]
    epoch = np.arange(1, len(risk) + 1)
    ax.plot(epoch, risk, color=BLUE)
    ax.plot(model.best_epoch_, risk[model.best_epoch_ - 1], "o", color=ORANGE, ms=8)
    ax.annotate(
        f"kept: epoch {model.best_epoch_}",
        (model.best_epoch_, risk[model.best_epoch_ - 1]),
        xytext=(0, 28),
        textcoords="offset points",
        ha="center",
        color=ORANGE,
    )
    ax.set_xlabel("epoch")
    ax.set_ylabel("held-out risk, without joint labels\n(squared standardised outcome)")
    ax.set_title("when to stop", fontsize=11, weight="bold")
    ax.spines[["top", "right"]].set_visible(False)


def shares(problem: SimulatedProblem, n_draws: int) -> dict[str, list[float]]:
    """Return each method's share of the oracle's area on draws of 4 x 2,000 rows."""
    found: dict[str, list[float]] = {"NeuralMinMaxUplift": [], "MinMaxUplift": []}
    for seed in range(
        100, 100 + n_draws
    ):  # not the draws the default settings were chosen on
        data = problem.draw(2000, random_state=seed)
        new = problem.draw_joint(5000, random_state=1000 + seed)
        for model in (
            NeuralMinMaxUplift(random_state=seed),
            MinMaxUplift(random_state=seed),
        ):
            score = model.fit(**data).predict(new.X)
            found[type(model).__name__].append(
                qini(score, new.uplift, normalize=True).value
            )
    return found


def main(folder: Path, n_draws: int) -> Path:
    """Draw the picture, print the comparison and return the file."""
    torch.set_num_threads(1)  # networks this small gain nothing from more
    problem = paper_problem(b=5.0)
    data = problem.draw(2000, random_state=0)
    new = problem.draw_joint(20_000, random_state=1000)
    neural = NeuralMinMaxUplift(random_state=0).fit(**data)
    closed = MinMaxUplift(random_state=0).fit(**data)
    figure = Figure(figsize=(11, 4.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_training(left, neural)
    plot_uplift_curve(
        {
            "two networks": uplift_curve(neural.predict(new.X), new.uplift),
            "closed form": uplift_curve(closed.predict(new.X), new.uplift),
        },
        perfect=uplift_curve(new.uplift, new.uplift),
        ax=right,
    )
    right.set_title("ranking new rows", fontsize=11, weight="bold")
    path = folder / "neural.png"
    figure.savefig(path, dpi=150)
    for name, which in (
        ("paper_problem(b=5)", problem),
        ("campaign_problem()", campaign_problem()),
    ):
        for method, values in shares(which, n_draws).items():
            print(
                f"{name} {method}: {np.mean(values):.2f} ({min(values):.2f}-{max(values):.2f})"
            )
    return path


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(),
        int(sys.argv[2]) if len(sys.argv) > 2 else 1,
    )
