"""The paper's naive estimators: what they do, and how well, beside the ratio and the min-max.

Run: python docs/examples/1-quickstart/naive_estimators.py [FOLDER]; writes naive_estimators.png
there and prints the shares of the oracle that the guide quotes.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression, RidgeCV

from unjoined import DensityUplift, MinMaxUplift, PlugInUplift, TwoStageUplift
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.errors import RatioGuardWarning
from unjoined.estimators.base import UpliftEstimator
from unjoined.evaluate import qini

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.45"
SEEDS = range(3)


def spend_problem(offset: float = 0.0) -> SimulatedProblem:
    """Return a problem with a real outcome: a bent main effect and a bent uplift."""

    def mean(X: np.ndarray, treated: np.ndarray) -> np.ndarray:
        uplift = 1.0 + X[:, 0] - 0.5 * X[:, 1] ** 2
        return offset + 2.0 * np.sin(X[:, 0]) + X[:, 1] + treated * uplift

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            "A": lambda X: expit(1.2 + X[:, 1]),
            "B": lambda X: expit(-1.2 + X[:, 1]),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def estimators() -> dict[str, UpliftEstimator]:
    """Return the estimators to compare, with their default settings where there are any."""
    bent = TwoStageUplift(
        basis="gaussian",
        n_centers=50,
        first_stage=LogisticRegression(),
        second_stage=RidgeCV(np.logspace(-4, 3, 8)),
        random_state=0,
    )
    return {
        "DensityUplift": DensityUplift(random_state=0),
        "TwoStageUplift": TwoStageUplift(),
        "TwoStageUplift,\nGaussian": bent,
        "PlugInUplift": PlugInUplift(),
        "MinMaxUplift": MinMaxUplift(random_state=0),
    }


def shares(
    problem: SimulatedProblem, models: dict[str, UpliftEstimator]
) -> dict[str, list[float]]:
    """Return each estimator's share of the oracle's Qini, one number per seed."""
    new = problem.draw_joint(5000, random_state=99)
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        data = problem.draw(2000, random_state=seed)
        for name, model in models.items():
            uplift = model.fit(**data).predict(new.X)
            share = qini(uplift, new.uplift, normalize=True).value
            found.setdefault(name, []).append(share)
    return found


def draw_densities(ax: Axes) -> None:
    """Draw two mixtures at one x, the laws they are unmixed into, and the true ones."""
    problem, x = spend_problem(), np.array([[1.0, 0.0]])
    model = DensityUplift(n_folds=2, random_state=0)
    model.fit(**problem.draw(2000, random_state=0))
    laws = model.predict_density(x)
    shown = (laws.grid > -4.0) & (laws.grid < 8.0)
    y = laws.grid[shown]
    for policy, style in zip(model.treatment_means_, ("--", ":"), strict=True):
        e = 0.5 + 0.5 * policy(model.scaling_(x))[0]
        mixture = e * laws.treated[0] + (1.0 - e) * laws.untreated[0]
        ax.plot(
            y,
            mixture[shown],
            style,
            color=GREY,
            lw=1.4,
            label=f"population, {e:.0%} treated",
        )
    for law, treated, color in (
        (laws.treated, 1.0, ORANGE),
        (laws.untreated, 0.0, BLUE),
    ):
        name = "treated" if treated else "not treated"
        ax.plot(y, law[0, shown], color=color, lw=2.2, label=f"{name}, estimated")
        truth = norm.pdf(y, problem.outcome_mean(x, np.array([treated]))[0], 1.0)
        ax.fill_between(y, truth, color=color, alpha=0.18, lw=0, label=f"{name}, true")
    ax.axhline(0.0, color="0.7", lw=0.8)
    ax.set_xlabel("outcome, at one value of the features")
    ax.set_ylabel("density per unit of the outcome")
    ax.set_ylim(top=0.56)
    ax.legend(frameon=False, fontsize=7.5, ncols=2, loc="upper left")
    ax.set_title("DensityUplift: two mixtures, unmixed", fontsize=10.5, weight="bold")


def draw_shares(ax: Axes, found: dict[str, list[float]], title: str) -> None:
    """Draw one row per estimator: a dot per seed, a bar to the mean."""
    names = list(found)[::-1]
    for row, name in enumerate(names):
        color = GREY if name in ("PlugInUplift", "MinMaxUplift") else BLUE
        mean = float(np.mean(found[name]))
        ax.barh(row, mean, color=color, alpha=0.3, height=0.6)
        ax.plot(found[name], [row] * len(found[name]), "o", color=color, ms=4)
        ax.text(0.02, row, f"{mean:.2f}", va="center", fontsize=8.5, color="0.15")
    ax.set_yticks(range(len(names)), names, fontsize=8.5)
    ax.set_xlim(0.0, 1.02)
    ax.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "", "0.5", "", "1"])
    ax.set_xlabel("share of the oracle's gain")
    ax.set_title(title, fontsize=10.5, weight="bold")
    ax.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> Path:
    """Measure, draw the picture, print the numbers and return the file."""
    warnings.simplefilter(
        "ignore", RatioGuardWarning
    )  # the guard is at work, as it should be
    results = {
        "paper's data, two values": shares(paper_problem(b=5.0), estimators()),
        "real outcome": shares(spend_problem(), estimators()),
    }
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    left, *rest = figure.subplots(1, 3, width_ratios=[1.3, 1.0, 1.0])
    draw_densities(left)
    left.spines[["top", "right"]].set_visible(False)
    for ax, (title, found) in zip(rest, results.items(), strict=True):
        draw_shares(ax, found, title)
        print(title)
        for name, values in found.items():
            label, spread = (
                name.replace("\n", " "),
                f"{min(values):.2f} to {max(values):.2f}",
            )
            print(f"  {label:<26}{np.mean(values):6.2f}   seeds {spread}")
    print("real outcome + 10")
    moved = shares(spend_problem(10.0), {"MinMaxUplift": MinMaxUplift(random_state=0)})
    print(f"  MinMaxUplift {np.mean(moved['MinMaxUplift']):19.2f}")
    path = folder / "naive_estimators.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
