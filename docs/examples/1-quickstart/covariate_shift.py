"""The picture of the guide to covariate shift: two regions of different age, one target.

Run: python docs/examples/1-quickstart/covariate_shift.py [FOLDER]; writes covariate_shift.png
there and prints the numbers of the guide.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from unjoined import MinMaxUplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem
from unjoined.data.rows import LabelledRows, label_rows
from unjoined.model.shift import ShiftReport, weigh_shift

BLUE, ORANGE, GREY, GREEN = "#1f5f99", "#b35a00", "0.35", "#1a7f37"
COLORS = {"north": BLUE, "south": ORANGE}
AGES = np.linspace(30.0, 64.0, 60)
N_DRAWS = 10


def region_problem() -> SimulatedProblem:
    """Return a mailing in two regions: spending rises with age, and the south is older."""

    def ages(
        mean: float, spread: float
    ) -> Callable[[int, np.random.RandomState], Array]:
        return lambda n, rng: np.clip(rng.normal(mean, spread, (n, 1)), 18.0, 90.0)

    def mean(X: Array, treated: Array) -> Array:
        age = (X[:, 0] - 47.0) / 10.0
        return 10.0 + 3.0 * age + treated * (6.0 - 3.0 * age)

    return SimulatedProblem(
        features={"north": ages(43.0, 9.0), "south": ages(51.0, 9.0)},
        target_features=ages(47.0, 7.0),
        policies={
            "north": lambda X: expit(1.2 + (X[:, 0] - 47.0) / 40.0),
            "south": lambda X: expit(-1.2 + (X[:, 0] - 47.0) / 40.0),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.normal(0.0, 5.0, len(X)),
        outcome_mean=mean,
    )


def draw_features(ax: Axes, rows: LabelledRows, target: Array, title: str) -> None:
    """Draw how old the people of both outcome tables are, beside those of the target."""
    bins = np.linspace(18.0, 78.0, 31).tolist()
    ax.hist(target[:, 0], bins, density=True, color="0.85", label="target")
    for k, name in enumerate(rows.names):
        at = rows.at("outcome", k)
        ax.hist(
            rows.X[at, 0],
            bins,
            weights=rows.weight[at],
            density=True,
            histtype="step",
            lw=1.8,
            color=COLORS[name],
            label=name,
        )
    ax.set_title(title, fontsize=11, weight="bold")
    ax.set_xlabel("age (years)")
    ax.set_ylim(0.0, 0.072)
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)


def draw_uplift(ax: Axes, truth: Array, estimates: dict[str, Array]) -> None:
    """Draw mean estimates over the draws, with the band they lie in."""
    colors = {"as the tables are": GREY, "weighted to the target": GREEN}
    for name, values in estimates.items():
        low, high = values.min(axis=0), values.max(axis=0)
        ax.fill_between(AGES, low, high, color=colors[name], alpha=0.18, lw=0)
        ax.plot(AGES, values.mean(axis=0), color=colors[name], lw=2, label=name)
    ax.plot(AGES, truth, color="black", ls=":", lw=2, label="true uplift")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_title("estimated uplift", fontsize=11, weight="bold")
    ax.set_xlabel("age (years)")
    ax.set_ylabel("uplift (euros per person)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="lower left")


def one_draw(
    problem: SimulatedProblem, seed: int
) -> tuple[LabelledRows, LabelledRows, Array, ShiftReport, dict[str, Array]]:
    """Draw four tables and the target, weigh, and fit with and without the weights."""
    data = problem.draw(2000, n_target=2000, random_state=seed)
    is_target = np.asarray(data.kind) == "target"
    target = np.asarray(data.X)[is_target]
    rows = label_rows(**data)
    weighted, report = weigh_shift(
        rows, target, "classifier", rng=np.random.RandomState(seed)
    )
    weight = np.ones(data.n_rows)
    weight[~is_target] = weighted.weight
    paper = {"center": False, "basis": "gaussian", "width": "median", "ridge_f": 0.01}
    estimates = {
        name: MinMaxUplift(**settings, ridge_g=0.01, random_state=0)
        .fit(**data, sample_weight=given)
        .predict(AGES[:, None])
        for name, given, settings in (
            ("as the tables are", None, paper),
            ("weighted to the target", weight, paper),
            ("centred, as the tables are", None, {}),
            ("centred, weighted to the target", weight, {}),
        )
    }
    return rows, weighted, target, report, estimates


def main(folder: Path) -> Path:
    """Draw the picture and return the file."""
    problem = region_problem()
    draws = [one_draw(problem, seed) for seed in range(N_DRAWS)]
    rows, weighted, target, report, first = draws[0]
    truth = problem.uplift(AGES[:, None])
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 1.25])
    draw_features(left, rows, target, "outcome tables as they are")
    draw_features(middle, weighted, target, "weighted to the target")
    left.legend(frameon=False, fontsize=9, loc="upper right")
    estimates = {name: np.array([draw[4][name] for draw in draws]) for name in first}
    shown = ("as the tables are", "weighted to the target")
    draw_uplift(right, truth, {name: estimates[name] for name in shown})
    path = folder / "covariate_shift.png"
    figure.savefig(path, dpi=150)
    print(report)
    for name, values in estimates.items():
        error = np.sqrt(np.mean((values - truth) ** 2))
        print(f"{name}: root mean square error {error:.1f} euros, ages 30 to 64")
    print(path)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
