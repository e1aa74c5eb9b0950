"""One Gauss-Newton step of the likelihood beside the arithmetic that no step can do without.

Run: python benchmarks/additive.py [--rows 5000] [--features 20] [--repeats 15]

The step is one pass over the outcome rows of four tables: base and effect at each row, the loss,
its gradient and its curvature, with a curved effect and functions that are in memory. The limit is
one product of the functions' values with a vector and one symmetric product of the stacked and
weighted design of base and effect, by numpy. Both on one thread, in turn, the best of several.
Wanted: at most 1.5 times the limit.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from unjoined.model.additive_basis import (
    CATEGORY,
    CONSTANT,
    CURVE,
    LINE,
    SQUARE,
    AdditiveBasis,
)
from unjoined.model.families import BernoulliFamily
from unjoined.model.newton import AdditiveRows, Parts, pass_in_memory

WANTED = 1.5
CURVES = frozenset({CONSTANT, LINE, CATEGORY, SQUARE, CURVE})


def step_and_limit(n: int, d: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a pass of the engine over ``n`` rows of ``d`` features, and its arithmetic."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((n, d))
    basis = AdditiveBasis.of_rows(X, np.ones(n))
    values = np.ascontiguousarray(basis(X).T)
    block, groups, _ = basis.blocks()
    parts = Parts.of_groups(block, groups, CURVES, CURVES)
    y = 1.0 * (rng.random_sample(n) < 0.3)
    rows = AdditiveRows(values, y, rng.uniform(0.2, 0.8, n), np.ones(n))
    pass_over, law = pass_in_memory(rows, parts, 1), BernoulliFamily(0.5)
    coef = 0.01 * rng.standard_normal(2 * len(values))
    design = np.vstack([values, values]) * rng.uniform(0.1, 0.5, n)
    return lambda: pass_over(law, coef), lambda: (
        coef[: len(values)] @ values,
        design @ design.T,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000, help="rows of each table")
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    step, limit = step_and_limit(2 * args.rows, args.features)
    taken: dict[str, list[float]] = {"step": [], "limit": []}
    with threadpool_limits(limits=1):
        for _ in range(args.repeats):
            for name, run in (("step", step), ("limit", limit)):
                start = time.process_time()
                run()
                taken[name].append(time.process_time() - start)
    best = {name: min(seconds) for name, seconds in taken.items()}
    ratio = best["step"] / best["limit"]
    print(f"4 x {args.rows:,} rows, {args.features} features, curved effect")
    print(
        f"one step {1e3 * best['step']:.1f} ms, its arithmetic {1e3 * best['limit']:.1f} ms"
    )
    verdict = "met" if ratio <= WANTED else "MISSED"
    print(f"ratio {ratio:.2f}, wanted at most {WANTED}: {verdict}")


if __name__ == "__main__":
    main()
