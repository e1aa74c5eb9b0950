"""What gross outliers in outcomes do to the squared and to a robust loss.

Run: python docs/examples/2-objectives/losses.py [FOLDER]; writes losses.png there.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from unjoined import MinMaxUplift
from unjoined.data import SimulatedProblem

SETTINGS = {
    "basis": "linear",
    "critic_basis": "gaussian",  # finer than the uplift, so that single rows can be told apart
    "width": 0.3,
    "ridge_f": 1e-4,
    "ridge_g": 1e-3,
    "random_state": 0,
}


def problem(outliers: float) -> SimulatedProblem:
    """Uplift 1 + x_0 in two features; a share of outcomes is replaced by gross errors."""

    def mean(X: np.ndarray, treated: np.ndarray) -> np.ndarray:
        return X[:, 1] + treated * (1.0 + X[:, 0])

    def outcome(
        X: np.ndarray, treated: np.ndarray, rng: np.random.RandomState
    ) -> np.ndarray:
        y = mean(X, treated) + 0.5 * rng.standard_normal(len(X))
        wrong = rng.random_sample(len(X)) < outliers
        return np.where(wrong, 500.0 * rng.standard_normal(len(X)), y)

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            "A": lambda X: np.full(len(X), 0.9),
            "B": lambda X: np.full(len(X), 0.1),
        },
        outcome=outcome,
        outcome_mean=mean,
    )


def main(folder: Path) -> Path:
    """Fit both losses with and without outliers, draw and print the errors."""
    figure = Figure(figsize=(8.6, 3.8), layout="constrained")
    x = np.column_stack([np.linspace(-2.0, 2.0, 50), np.zeros(50)])
    axes = figure.subplots(1, 2, sharex=True)
    for ax, share in zip(axes, (0.0, 0.05), strict=True):
        new = problem(share).draw_joint(2000, random_state=99)
        for loss, color in (("squared", "C1"), ("huber", "C0")):
            errors = []
            for seed in range(4):
                data = problem(share).draw(200, random_state=seed)
                model = MinMaxUplift(**SETTINGS, loss=loss).fit(**data)
                errors.append(np.mean((model.predict(new.X) - new.uplift) ** 2))
                label = f"{loss} loss" if seed == 0 else None
                ax.plot(x[:, 0], model.predict(x), color=color, lw=1.3, label=label)
            print(
                f"{share:.0%} outliers, {loss} loss: mean squared error {np.mean(errors):.2f}"
            )
        ax.plot(x[:, 0], 1.0 + x[:, 0], color="0.2", ls=":", lw=2, label="true uplift")
        ax.set_title(f"{share:.0%} of outcomes wrong by hundreds", fontsize=11)
        ax.set_xlabel("first feature")
        ax.set_ylim(-5.0, 7.0)  # the squared loss leaves it far behind
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("uplift (outcome units)")
    axes[0].legend(frameon=False, fontsize="small")
    path = folder / "losses.png"
    figure.savefig(path, dpi=150)
    print(path)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
