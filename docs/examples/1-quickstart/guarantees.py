"""How loose the error bound is: bound and error on a problem where both are known.

Run: python docs/examples/1-quickstart/guarantees.py [FOLDER]; writes guarantees.png there and
prints the numbers of docs/guide/methods.md.
"""

import math
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import MinMaxUplift
from unjoined.data import SimulatedProblem
from unjoined.model import LinearBasis
from unjoined.paper import ErrorBound, error_bound

BLUE, ORANGE, GREY = "#1f5f99", "#b35a00", "0.45"
ROWS = (100, 300, 1000, 3000, 10_000)
DRAWS = 20


def chance(X: np.ndarray, treated: np.ndarray) -> np.ndarray:
    """Return the probability of the outcome 1; the uplift is 0.2 + 0.3 x."""
    return 0.4 + treated * (0.2 + 0.3 * X[:, 0])


PROBLEM = SimulatedProblem(
    features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 1)),
    policies={"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.1)},
    outcome=lambda X, treated, rng: (
        rng.random_sample(len(X)) < chance(X, treated)
    ).astype(float),
    outcome_mean=chance,
)


def one_draw(n: int, seed: int) -> tuple[float, ErrorBound]:
    """Fit on one draw; return the exact mean squared error and the bound."""
    data = PROBLEM.draw(n, random_state=seed)
    model = MinMaxUplift(
        basis=LinearBasis(1),
        center=False,
        standardize=False,
        ridge_f=1e-3,
        ridge_g=1e-3,
        n_jobs=1,
    ).fit(**data)
    wrong = model.coef_ - np.array([0.2, 0.3])
    found = error_bound(
        model,
        data,
        min_gap=0.8,
        uplift_radius=1.0,
        critic_radius=1.6,
        basis_norm=math.sqrt(2.0),
    )
    return float(wrong[0] ** 2 + wrong[1] ** 2 / 3.0), found


def draw_curves(ax: Axes, errors: list[float], bounds: list[ErrorBound]) -> None:
    """Draw error and bounds against the number of rows."""
    trivial = bounds[0].trivial_bound
    ax.axhline(trivial, color=GREY, lw=1.2, ls=":")
    text = "guaranteed without data, by saying 0"
    ax.text(ROWS[0], trivial / 1.15, text, va="top", fontsize=9, color=GREY)
    for values, color, style, text in (
        (
            [b.rademacher_bound for b in bounds],
            ORANGE,
            "--",
            "by Rademacher complexities",
        ),
        ([b.bound for b in bounds], ORANGE, "-", "error_bound"),
        (errors, BLUE, "-", "the error itself"),
    ):
        ax.plot(ROWS, values, style, color=color, marker="o", ms=4, label=text)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("rows per table")
    ax.set_ylabel("mean squared error (squared probability)")
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    ax.set_title("the bound holds, and is loose", fontsize=11, weight="bold")


def draw_parts(ax: Axes, bound: ErrorBound, n: int) -> None:
    """Draw what one bound is made of."""
    parts = {
        "left over for the\nstrongest critic": bound.empirical,
        "complexity of\nF and G": bound.complexity,
        "an unlucky draw": bound.deviation,
    }
    sizes = [value / bound.min_gap**2 for value in parts.values()]
    bars = ax.barh(list(parts), sizes, color=[BLUE, ORANGE, ORANGE], height=0.55)
    ax.bar_label(bars, [f"{size:.3f}" for size in sizes], padding=4, fontsize=9)
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.2 * max(sizes))
    ax.set_xlabel("part of the bound (squared probability)")
    ax.set_title(
        f"what it is made of, {n:,} rows per table", fontsize=11, weight="bold"
    )


def main(folder: Path) -> Path:
    """Draw the picture, print the numbers and return the file."""
    errors, bounds = [], []
    for n in ROWS:
        draws = [one_draw(n, seed) for seed in range(DRAWS)]
        errors.append(float(np.mean([error for error, _ in draws])))
        bounds.append(draws[0][1])
        held = sum(error <= bound.bound for error, bound in draws)
        print(
            f"{n:6d} rows per table: error {errors[-1]:.5f}, bound {bounds[-1].bound:.3f} "
            f"({bounds[-1].bound / errors[-1]:.0f} times), by Rademacher complexities "
            f"{bounds[-1].rademacher_bound:.2f}, without data {bounds[-1].trivial_bound:.2f}; "
            f"held in {held} of {DRAWS} draws"
        )
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1.0])
    draw_curves(left, errors, bounds)
    draw_parts(right, bounds[2], ROWS[2])
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    path = folder / "guarantees.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
