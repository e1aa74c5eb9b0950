"""What range constraints do where the data say little.

Run: python docs/examples/2-objectives/bounds.py [FOLDER]; writes bounds.png there.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from unjoined import MinMaxUplift
from unjoined.data import SimulatedProblem


def problem() -> SimulatedProblem:
    """One feature; a 0/1 outcome; policies that come close on the right, where few people are."""

    def chance(X: np.ndarray, treated: np.ndarray) -> np.ndarray:
        return expit(-0.5 + X[:, 0] + treated * (2.0 - 2.0 * X[:, 0]))

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 1)),
        policies={
            "A": lambda X: expit(1.0 - 0.5 * X[:, 0]),
            "B": lambda X: expit(-1.0 + 0.5 * X[:, 0]),
        },
        outcome=lambda X, treated, rng: (
            (rng.random_sample(len(X)) < chance(X, treated)) * 1.0
        ),
        outcome_mean=chance,
    )


def main(folder: Path) -> Path:
    """Fit with and without bounds, draw both and print what was constrained."""
    data = problem().draw(150, random_state=3)
    x = np.linspace(-3.2, 3.2, 300)[:, None]
    settings = {
        "n_centers": 60,
        "width": 0.6,
        "ridge_f": 3e-4,
        "ridge_g": 1e-3,
        "random_state": 0,
    }
    free = MinMaxUplift(**settings).fit(**data)
    bounded = MinMaxUplift(**settings, bounds="auto").fit(**data)
    report = bounded.bounds_
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    ax = figure.add_subplot()
    ax.axhspan(-1.0, 1.0, color="0.94", zorder=0, label="possible for a 0/1 outcome")
    ax.plot(x, problem().uplift(x), color="0.25", ls=":", lw=1.8, label="true uplift")
    ax.plot(x, free.predict(x), lw=1.6, label="without bounds")
    ax.plot(x, bounded.predict(x), lw=1.8, label='bounds="auto"')
    ax.plot(
        np.asarray(data.X)[:, 0], np.full(data.n_rows, -2.45), "|", color="0.4", ms=6
    )
    ax.set(xlabel="feature (ticks: people in the four tables)", ylim=(-2.6, 3.0))
    ax.set_ylabel("uplift (probability points)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    path = folder / "bounds.png"
    figure.savefig(path, dpi=150)
    largest = np.abs(free.predict(data.X)).max()
    print(f"{path}: largest |uplift| at a training row {largest:.2f} without bounds")
    print(f"{report.rounds} rounds, {report.n_binding} rows bind")
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
