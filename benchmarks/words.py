"""How often `Uplift.summary()` says that people respond differently, when they do and do not.

Run: python benchmarks/words.py [--problems 10] [--sizes 500,2000] [--jobs 2]

Each problem is drawn at random: three to ten features, of which some bend the base, two policies,
and an effect c + s f(x) with f a line, a wave or a product of two features of variance about one.
One problem in four has a real outcome, the others have two values. With s = 0 the effect is the
same for all in log-odds, or in units of the outcome. Prints the share of fits whose summary says
"clearly" and "probably".
"""

import argparse
import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np
from problems import binary_problem, real_problem
from scipy.special import expit

from unjoined import Uplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem

SPREADS = (0.0, 0.3, 0.8)
WORDS = ("clearly", "probably", "do not show")
Task = tuple[int, float, int]  # seed of the problem, spread of the effect, rows of a table


def random_problem(seed: int, spread: float) -> SimulatedProblem:
    """Return a problem whose effect is a constant and ``spread`` times a function of x."""
    rng = np.random.RandomState(seed)
    d = rng.randint(3, 11)
    lines = 0.6 * rng.standard_normal(d) * (rng.random_sample(d) < 0.5)
    squares = 0.25 * rng.standard_normal(d) * (rng.random_sample(d) < 0.3)
    i, j = rng.choice(d, 2, replace=False)
    shape = rng.randint(3)
    constant, level, gap = rng.uniform(-0.5, 0.8), rng.uniform(-2.5, 0.5), rng.uniform(0.5, 1.5)
    habits = 0.3 * rng.standard_normal((2, d))
    shapes: tuple[Callable[[Array], Array], ...] = (
        lambda X: (X[:, i] + 0.7 * X[:, j]) / 1.22,
        lambda X: 1.4 * np.sin(1.5 * X[:, i]),
        lambda X: X[:, i] * X[:, j],
    )

    def response(X: Array, treated: Array) -> Array:
        base = level + X @ lines + (X**2 - 1.0) @ squares
        return base + treated * (constant + spread * shapes[shape](X))

    def features(n: int, rng: np.random.RandomState) -> Array:
        return rng.standard_normal((n, d))

    policies: dict[str, Callable[[Array], Array]] = {
        "A": lambda X: expit(gap + X @ habits[0]),
        "B": lambda X: expit(-gap + X @ habits[1]),
    }
    if seed % 4 == 0:
        noise = lambda n, rng: 1.5 * rng.standard_normal(n)  # noqa: E731
        return real_problem(features, policies, response, noise)
    return binary_problem(features, policies, response)


def word_of(task: Task) -> tuple[float, int, str]:
    """Return the spread, the rows and the word of one fit."""
    seed, spread, n = task
    data = random_problem(seed, spread).draw(n, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak identification is part of it
        said = Uplift(n_jobs=1, random_state=seed).fit(**data).summary()
    return spread, n, next(word for word in WORDS if word in said)


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--sizes", default="500,2000")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    tasks = [(seed, s, n) for seed in range(args.problems) for n in sizes for s in SPREADS]
    os.environ["OMP_NUM_THREADS"] = "1"  # one core for each process, read when it starts
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        found = Counter(pool.imap_unordered(word_of, tasks))
    print(f"{args.problems} problems; people differ by s in log-odds or units of the outcome")
    print(f"{'rows':>10} {'s':>5}" + "".join(word.rjust(14) for word in WORDS))
    for n in sizes:
        for spread in SPREADS:
            shares = (found[spread, n, word] / args.problems for word in WORDS)
            cells = "".join(f"{share:14.1%}" for share in shares)
            print(f"{f'4 x {n:,}':>10} {spread:5.1f}{cells}")


if __name__ == "__main__":
    main()
