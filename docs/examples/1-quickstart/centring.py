"""The picture of the guide to centring: the same fit with labels as they are and centred.

Run: python docs/examples/1-quickstart/centring.py [FOLDER]; writes centring.png there and prints
the numbers of the guide.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from unjoined import MinMaxUplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.evaluate import qini

BLUE, GREY = "#1f5f99", "0.45"
N_DRAWS = 6
# Fixed, so that nothing differs but the labels.
SETTINGS = {"width": "median", "ridge_f": 1e-2, "ridge_g": 1e-2, "n_jobs": 1}


def spend_problem() -> SimulatedProblem:
    """Return a real outcome with a strong main effect: five features, uplift in two of them."""

    def mean(X: Array, treated: Array) -> Array:
        base = 4.0 * X[:, 0] + 3.0 * np.sin(2.0 * X[:, 1]) + 2.0 * X[:, 2] * X[:, 3]
        return base + treated * (0.5 + X[:, 1] - 0.7 * X[:, 2])

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 5)),
        policies={
            "A": lambda X: expit(1.0 + X[:, 0]),
            "B": lambda X: expit(-1.0 + X[:, 0] - 0.5 * X[:, 1]),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


PROBLEMS = {
    "real outcome, strong\nmain effect": (spend_problem(), 2000),
    "mail campaign": (campaign_problem(), 5000),
    "paper's data, b = 1": (paper_problem(1.0), 2000),
    "paper's data, b = 2": (paper_problem(2.0), 2000),
    "paper's data, b = 5": (paper_problem(5.0), 2000),
}


def shares(problem: SimulatedProblem, n: int, *, center: bool) -> Array:
    """Return the share of the oracle's uplift curve, one per draw of the four tables."""
    found = []
    for seed in range(N_DRAWS):
        new = problem.draw_joint(5000, random_state=1000 + seed)
        model = MinMaxUplift(center=center, random_state=seed, **SETTINGS)
        predicted = model.fit(**problem.draw(n, random_state=seed)).predict(new.X)
        found.append(qini(predicted, new.uplift, normalize=True).value)
    return np.array(found)


def draw_scatter(
    ax: Axes, predicted: Array, truth: Array, title: str, color: str
) -> None:
    """Draw estimated against true uplift; a perfect estimate lies on the line."""
    low, high = -7.0, 7.0
    ax.plot([low, high], [low, high], color="0.2", lw=1.0)
    ax.scatter(truth, predicted, s=7, alpha=0.35, color=color, linewidths=0)
    ax.set(
        xlim=(low, high),
        ylim=(low, high),
        xlabel="true uplift",
        ylabel="estimated uplift",
    )
    ax.set_aspect("equal")
    ax.set_title(title, fontsize=11, weight="bold", color=color)


def draw_shares(ax: Axes, means: dict[str, tuple[float, float]]) -> None:
    """Draw the mean shares without and with centring, one line per problem."""
    for y, (without, with_centring) in enumerate(reversed(means.values())):
        ax.plot([without, with_centring], [y, y], color="0.8", lw=3, zorder=1)
        ax.scatter(without, y, s=60, color=GREY, zorder=2)
        ax.scatter(with_centring, y, s=60, color=BLUE, zorder=2)
    top = len(means) - 1
    without, with_centring = next(iter(means.values()))
    for x, text, color in (
        (without, "as they are", GREY),
        (with_centring, "centred", BLUE),
    ):
        ax.text(x, top + 0.25, text, ha="center", fontsize=9, color=color)
    ax.set_yticks(range(len(means)), list(reversed(means)))
    ax.set_xlim(0.68, 1.02)
    ax.set_ylim(-0.6, top + 0.7)
    ax.set_box_aspect(0.77)
    ax.set_xlabel(f"share of the oracle's curve (mean of {N_DRAWS} draws)")
    ax.set_title("ranking", fontsize=11, weight="bold")
    ax.grid(axis="x", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> Path:
    """Draw the picture, print the numbers and return the file."""
    means = {}
    for name, (problem, n) in PROBLEMS.items():
        without, with_centring = (
            shares(problem, n, center=center) for center in (False, True)
        )
        means[name] = (float(without.mean()), float(with_centring.mean()))
        label = name.replace("\n", " ")
        print(
            f"{label}: {means[name][0]:.2f} without centring, {means[name][1]:.2f} with"
        )
    problem = spend_problem()
    data, new = (
        problem.draw(2000, random_state=0),
        problem.draw_joint(700, random_state=1000),
    )
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 1.35])
    for ax, center, title, color in (
        (left, False, "labels as they are", GREY),
        (middle, True, "centred labels", BLUE),
    ):
        model = MinMaxUplift(center=center, random_state=0, **SETTINGS).fit(**data)
        draw_scatter(ax, model.predict(new.X), new.uplift, title, color)
    draw_shares(right, means)
    path = folder / "centring.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
