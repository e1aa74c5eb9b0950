"""How often `Uplift.summary()` says that people respond differently, when they do and do not.

Run: python benchmarks/words.py [--problems 200] [--first 0] [--sizes 500,2000] [--jobs 2]
     [--keep FILE]

Each problem is drawn at random: three to ten features, of which some bend the base, two policies,
and an effect c + s f(x) with f a line, a wave or a product of two features of variance about one.
One problem in four has a real outcome, the others have two values. With s = 0 the effect is the
same for all in log-odds, or in units of the outcome.

Prints the share of fits whose summary says "clearly" and "probably", then how often a word is
right if people differ in half of the problems, for the words and for other thresholds of the
weight of forms in which people differ. The thresholds were chosen with --first 1000, on other
problems than those of --first 0. FILE keeps finished fits, one a line: started again, it goes on
where it stopped.
"""

import argparse
import json
import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from problems import binary_problem, real_problem
from scipy.special import expit

from unjoined import Uplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem

SPREADS = (0.0, 0.3, 0.8)
WORDS = ("clearly", "probably", "do not show")
BANDS = tuple(pairwise((0.8, 0.85, 0.87, 0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.95, 0.98, 1.0)))
Task = tuple[int, float, int]  # seed of the problem, spread of the effect, rows of a table


class Fit(NamedTuple):
    """What one fit says: the task, the weight of the forms in which people differ, the word."""

    seed: int
    spread: float
    n: int
    differ: float
    word: str


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


def fit_one(task: Task) -> Fit:
    """Return the weight of the forms in which people differ, and the word."""
    seed, spread, n = task
    data = random_problem(seed, spread).draw(n, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak identification is part of it
        model = Uplift(n_jobs=1, random_state=seed).fit(**data)
    word = next(word for word in WORDS if word in model.summary())
    return Fit(*task, model.candidates_.differ, word)


def run(tasks: list[Task], jobs: int, file: Path | None) -> list[Fit]:
    """Run what is not in the file yet."""
    lines = file.read_text().splitlines() if file is not None and file.is_file() else []
    fits = {fit[:3]: fit for fit in (Fit(*json.loads(line)) for line in lines)}
    os.environ["OMP_NUM_THREADS"] = "1"  # one core for each process, read when it starts
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for fit in pool.imap_unordered(fit_one, [task for task in tasks if task not in fits]):
            fits[fit[:3]] = fit
            if file is not None:
                with file.open("a") as out:
                    out.write(json.dumps(fit) + "\n")
    return [fits[task] for task in tasks]


def share(fits: list[Fit], says: Callable[[Fit], bool], *, differ: bool) -> float:
    """Return how often fits to problems in which people differ, or do not, say something."""
    return float(np.mean([says(fit) for fit in fits if (fit.spread > 0.0) == differ]))


def right(fits: list[Fit], says: Callable[[Fit], bool]) -> str:
    """Return how often something that is said is right if people differ in half of the problems."""
    true, false = (share(fits, says, differ=differ) for differ in (True, False))
    found = f"{true / (true + false):.0%}" if true + false else "-"
    return f"{found:>8} right, said in {true:.1%} if people differ and {false:.1%} if not"


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--sizes", default="500,2000")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    seeds = range(args.first, args.first + args.problems)
    tasks = [(seed, s, n) for seed in seeds for n in sizes for s in SPREADS]
    fits = run(tasks, args.jobs, args.keep)
    print(f"{args.problems} problems; people differ by s in log-odds or units of the outcome")
    print(f"{'rows':>10} {'s':>5}" + "".join(word.rjust(14) for word in WORDS))
    found = Counter((fit.spread, fit.n, fit.word) for fit in fits)
    for n in sizes:
        for spread in SPREADS:
            shares = (found[spread, n, word] / args.problems for word in WORDS)
            cells = "".join(f"{share:14.1%}" for share in shares)
            print(f"{f'4 x {n:,}':>10} {spread:5.1f}{cells}")
    for n in sizes:
        some = [fit for fit in fits if fit.n == n]
        for word in WORDS[:2]:
            print(f"4 x {n:,}, {word:9}{right(some, lambda fit, word=word: fit.word == word)}")
        for low, high in BANDS:
            band = right(some, lambda fit, low=low, high=high: low < fit.differ <= high)
            print(f"4 x {n:,}, weight {low:.2f} to {high:.2f}{band}")


if __name__ == "__main__":
    main()
