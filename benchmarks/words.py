"""How often a fit says that people respond differently, and that a list gains, when it is not so.

Run: python benchmarks/words.py [--null 10] [--different 60] [--sizes 500,2000]
     [--features 5,20,100,300] [--first 0] [--jobs 2] [--keep FILE]

Null problems: the effect is 0 for all, or the same for all in units of the outcome. The base is a
line beside a product of two features, a step, a wave, an exclusive or, or nothing but a coin; the
outcome is real or has two values; features that say nothing make up the number. For each base,
number of features and size there are so many draws, half of them with an effect of 0.

Different problems: three to ten features, a base with lines, squares and products, and an effect
of c + s f(x), f being a line, a wave or a product.

Prints how often the summary says "clearly" or "probably", how often the interval of what the best
tenth, three tenths, half and all gain holds the truth, and how often that of the best three tenths
lies above 0 where nobody gains. FILE keeps finished fits, one a line: started again, it goes on
where it stopped.
"""

import argparse
import json
import multiprocessing
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from problems import binary_problem, real_problem
from scipy.special import expit

from unjoined import Uplift
from unjoined._typing import Array
from unjoined.data import SimulatedProblem

BASES: dict[str, Callable[[Array], Array]] = {
    "product": lambda X: X[:, 1] * X[:, 2],
    "step": lambda X: np.sign(np.sin(3.0 * X[:, 1])),
    "wave": lambda X: 1.4 * np.sin(3.0 * X[:, 1]),
    "xor": lambda X: np.sign(X[:, 1] * X[:, 2]),
    "coin": lambda X: np.zeros(len(X)),
}
SPREADS = (0.3, 0.8)
SHARES = (0.1, 0.3, 0.5, 1.0)
WORDS = ("clearly", "probably", "do not show")
Task = tuple[
    int, str, float, int, int
]  # seed, base or "different", effect, features, rows


def policies(rng: Rng, d: int) -> dict[str, Callable[[Array], Array]]:
    """Return two policies that differ, and that go by the first five features at most."""
    gap, habits = rng.uniform(0.5, 1.5), np.zeros((2, d))
    habits[:, :5] = 0.3 * rng.standard_normal((2, min(d, 5)))
    return {
        "A": lambda X: np.asarray(expit(gap + X @ habits[0])),
        "B": lambda X: np.asarray(expit(-gap + X @ habits[1])),
    }


def null_problem(seed: int, base: str, effect: float, d: int) -> SimulatedProblem:
    """Return a problem in which everybody gains ``effect``, a real outcome if the seed is odd."""
    rng = Rng(seed)
    lines, shape = np.zeros(d), BASES[base]
    lines[:5] = 0.0 if base == "coin" else 0.3 * rng.standard_normal(5)
    own = policies(rng, d)

    def features(n: int, rng: Rng) -> Array:
        return rng.standard_normal((n, d))

    def real(X: Array, treated: Array) -> Array:
        return 0.7 * shape(X) + X @ lines + effect * treated

    def chance(X: Array, treated: Array) -> Array:
        low = np.clip(0.42 + 0.2 * shape(X) + 0.3 * (X @ lines), 0.03, 0.82)
        return np.asarray(low + 0.375 * effect * treated)

    if seed % 2:
        return real_problem(features, own, real, lambda n, rng: rng.standard_normal(n))
    return SimulatedProblem(
        features,
        own,
        lambda X, t, rng: 1.0 * (rng.random_sample(len(X)) < chance(X, t)),
        chance,
    )


def different_problem(seed: int, spread: float) -> SimulatedProblem:
    """Return a problem whose effect is a constant and ``spread`` times a function of x."""
    rng = Rng(seed)
    d = rng.randint(3, 11)
    lines = 0.6 * rng.standard_normal(d) * (rng.random_sample(d) < 0.5)
    squares = 0.25 * rng.standard_normal(d) * (rng.random_sample(d) < 0.3)
    i, j = rng.choice(d, 2, replace=False)
    both, kind = 0.5 * rng.standard_normal(), rng.randint(3)
    constant, level = rng.uniform(-0.5, 0.8), rng.uniform(-2.5, 0.5)
    own = policies(rng, d)
    shapes: tuple[Callable[[Array], Array], ...] = (
        lambda X: (X[:, i] + 0.7 * X[:, j]) / 1.22,
        lambda X: 1.4 * np.sin(1.5 * X[:, i]),
        lambda X: X[:, i] * X[:, j],
    )

    def response(X: Array, treated: Array) -> Array:
        base = level + X @ lines + (X**2 - 1.0) @ squares + both * X[:, 0] * X[:, 1]
        return np.asarray(base + treated * (constant + spread * shapes[kind](X)))

    def features(n: int, rng: Rng) -> Array:
        return rng.standard_normal((n, d))

    if seed % 4 == 0:
        return real_problem(
            features, own, response, lambda n, rng: 1.5 * rng.standard_normal(n)
        )
    return binary_problem(features, own, response)


def fit_one(task: Task) -> dict[str, Any]:
    """Return the word of one fit, whether gains hold the truth, and if one lies above 0."""
    seed, base, effect, d, n = task
    is_null = base in BASES
    law = (
        null_problem(seed, base, effect, d)
        if is_null
        else different_problem(seed, effect)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak identification is part of it
        model = Uplift(n_jobs=1, random_state=seed).fit(law.draw(n, random_state=seed))
    test = law.draw_joint(4000, random_state=seed + 10**6)
    uplift = model.predict(test.X)
    held, above = [], False
    for share in SHARES:
        rule = uplift >= np.quantile(uplift, 1.0 - share)
        gain = model.gain_.average(uplift, rule)
        held.append(bool(gain.covers(float(test.uplift[rule].mean()))))
        above |= share == 0.3 and gain.interval(0.95)[0] > 0.0
    word = next(word for word in WORDS if word in model.summary())
    return {"task": list(task), "word": word, "held": held, "above": bool(above)}


def run(tasks: list[Task], jobs: int, file: Path | None) -> list[dict[str, Any]]:
    """Run what is not in the file yet."""
    lines = file.read_text().splitlines() if file is not None and file.is_file() else []
    fits = {tuple(fit["task"]): fit for fit in map(json.loads, lines)}
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # one core for each process, read when it starts
    )
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for fit in pool.imap_unordered(
            fit_one, [task for task in tasks if task not in fits]
        ):
            fits[tuple(fit["task"])] = fit
            if file is not None:
                with file.open("a") as out:
                    out.write(json.dumps(fit) + "\n")
    return [fits[task] for task in tasks]


def line(name: str, fits: list[dict[str, Any]]) -> str:
    """Return how often things are said, as a line of text."""
    words = [np.mean([fit["word"] == word for fit in fits]) for word in WORDS[:2]]
    held = [np.mean([fit["held"][k] for fit in fits]) for k in range(len(SHARES))]
    nothing = [fit["above"] for fit in fits if fit["task"][2] == 0.0]
    above = f"{np.mean(nothing):10.1%}" if nothing else f"{'-':>10}"
    cells = "".join(f"{value:10.1%}" for value in words) + "".join(
        f"{v:10.1%}" for v in held
    )
    return f"{name:24}{len(fits):6}{cells}{above}"


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--null", type=int, default=10, help="draws of each kind and size"
    )
    parser.add_argument("--different", type=int, default=60, help="problems")
    parser.add_argument("--sizes", default="500,2000")
    parser.add_argument("--features", default="5,20,100,300")
    parser.add_argument(
        "--first", type=int, default=0, help="seed of the first problem"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    sizes, features = (
        [int(n) for n in each.split(",")] for each in (args.sizes, args.features)
    )
    seeds = range(args.first, args.first + args.null)
    tasks: list[Task] = [
        (1000 * i + 10 * d + s, base, 0.4 * (s // 2 % 2), d, n)
        for n in sizes
        for d in features
        for i, base in enumerate(BASES)
        for s in seeds
    ]
    problems = range(args.first, args.first + args.different)
    tasks += [
        (s, "different", spread, 0, n)
        for n in sizes
        for spread in SPREADS
        for s in problems
    ]
    fits = run(tasks, args.jobs, args.keep)
    shares = (
        "".join(f"{f'best {share:.0%}':>10}" for share in SHARES[:3]) + f"{'all':>10}"
    )
    print(f"{'':24}{'fits':>6}{'clearly':>10}{'probably':>10}{shares}{'above 0':>10}")
    for n in sizes:
        null = [fit for fit in fits if fit["task"][4] == n and fit["task"][1] in BASES]
        if null:
            print(line(f"4 x {n:,}, all alike", null))
        for base in BASES:
            print(line(f"  {base}", [fit for fit in null if fit["task"][1] == base]))
        for d in features:
            print(line(f"  {d} features", [fit for fit in null if fit["task"][3] == d]))
        for spread in SPREADS:
            some = [
                f
                for f in fits
                if f["task"][1:3] == ["different", spread] and f["task"][4] == n
            ]
            if some:
                print(line(f"4 x {n:,}, differ by {spread}", some))


if __name__ == "__main__":
    main()
