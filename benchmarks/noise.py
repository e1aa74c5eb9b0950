"""What noise on sums costs: coverage and width of the average effect, and the error of the uplift.

Run with ``python benchmarks/noise.py [--draws 200] [--rows 20000]``. Two populations, two features,
four Fourier functions, features within 2.5 spreads, delta = 1e-6. Noise comes from seeded bytes.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from unjoined import MinMaxUplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem
from unjoined.errors import InputError
from unjoined.sums import GaussianNoise, aggregate_rows, fourier_plan

DELTA = 1e-6


def effect(X: Array) -> Array:
    """Return the true uplift."""
    return 0.1 + 0.15 * np.tanh(X[:, 0])


def mean(X: Array, treated: Array) -> Array:
    """Return the chance of the outcome."""
    return 0.5 + 0.2 * np.tanh(X[:, 1]) + treated * effect(X)


PROBLEM = SimulatedProblem(
    features=lambda n, rng: rng.standard_normal((n, 2)),
    policies={"a": lambda X: np.where(X[:, 0] > 0, 0.8, 0.7), "b": lambda X: np.full(len(X), 0.2)},
    outcome=lambda X, treated, rng: (rng.random(len(X)) < mean(X, treated)) * 1.0,
    outcome_mean=mean,
)
PLAN = fourier_plan(
    {"x": (0, 1), "z": (0, 1)}, ["a", "b"], outcome_values=(0, 1), n_functions=4, clip=2.5
)


def study(epsilon: float | None, draws: int, rows: int) -> str:
    """Return a line of the table."""
    X = np.random.default_rng(5).standard_normal((2000, 2))
    covered, widths, errors, refused = 0, [], [], 0
    for seed in range(draws):
        data = PROBLEM.draw(rows, random_state=seed)
        entropy = np.random.default_rng(seed).bytes
        noise = None if epsilon is None else GaussianNoise(epsilon, DELTA, entropy)
        try:
            sums = aggregate_rows(data, PLAN, noise=noise)
        except InputError:
            refused += 1
            continue
        model = MinMaxUplift(n_jobs=1).fit_moments(sums)
        low, high = model.average_effect_.interval(0.95)
        covered += low <= 0.1 <= high
        widths.append(high - low)
        errors.append(np.mean((model.predict(X) - effect(X)) ** 2))
    done = draws - refused
    name = "none" if epsilon is None else f"{epsilon:g}"
    return (
        f"| {name} | {covered / done:.1%} | {np.median(widths):.3f} | {np.median(errors):.4f} | "
        f"{np.mean(errors):.4f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{given.rows:,} rows in each of four tables, {given.draws} draws; delta = {DELTA:g}")
    print("| epsilon | 95 % interval covers | its width | median squared error | mean |")
    print("|---|---|---|---|---|")
    for epsilon in (None, 4.0, 2.0, 1.0, 0.5):
        print(study(epsilon, given.draws, given.rows), flush=True)


if __name__ == "__main__":
    main()
