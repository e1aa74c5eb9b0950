"""How close the default comes where effects jump and columns are many, beside joint labels.

Run: python benchmarks/shapes.py [--sizes 900,2000] [--draws 1] [--kinds "58 mixed,jumps"]
     [--chosen-by] [--default-only]

The problems are `SHAPES` of problems.py: 58 mixed columns, jumps, products of three steps, ten
features of which few matter, many categories, outcomes that often are 0; six of each kind, whose
functions are drawn. Rules were chosen by those of odd number (--chosen-by) and by nothing else; the
others are reported. Prints the share of the oracle, a random order being 0, of `Uplift` and of two
regressions that were given both labels of all rows, linear or boosted, and processor seconds. The
regressions take codes of categories for numbers.
"""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy is imported

import numpy as np
from problems import SHAPE_TERMS, SHAPES
from trials import N_TEST, TEST_SEED, oracle_share, run_default, t_learner


def shares(
    name: str, n: int, seed: int, *, default_only: bool
) -> tuple[float, float, float]:
    """Return the shares of the default and of joint labels on one draw, and seconds."""
    problem = SHAPES[name]
    ours = run_default(problem, n, seed)
    joint = np.nan
    if not default_only:
        law = problem.make()
        test = law.draw_joint(N_TEST, random_state=TEST_SEED + seed)
        joint = oracle_share(
            t_learner(law, 4 * n, seed, test, is_binary=False), test.uplift
        )
    return ours.share, joint, ours.seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="900,2000")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(SHAPE_TERMS))
    parser.add_argument("--chosen-by", action="store_true")
    parser.add_argument("--default-only", action="store_true")
    args = parser.parse_args()
    for n in (int(size) for size in args.sizes.split(",")):
        print(f"4 x {n:,}".ljust(18) + "  Uplift   joint  seconds")
        means = []
        for kind in args.kinds.split(","):
            names = [
                name
                for name, problem in SHAPES.items()
                if name.rsplit(" ", 1)[0] == kind
                and problem.is_settled_on == args.chosen_by
            ]
            found = [
                shares(name, n, seed, default_only=args.default_only)
                for name in names
                for seed in range(args.draws)
            ]
            means.append(np.mean(found, axis=0))
            print(
                kind.ljust(18) + "{:8.3f}{:8.3f}{:9.1f}".format(*means[-1]), flush=True
            )
        print(
            "mean".ljust(18) + "{:8.3f}{:8.3f}{:9.1f}".format(*np.mean(means, axis=0))
        )


if __name__ == "__main__":
    main()
