"""How long an evaluation of a fitted model takes, in seconds, and as seconds of processor time.

Run: python benchmarks/evaluate_time.py [--rows 5000 250000]
"""

import argparse
import time

from unjoined import WeightedUplift
from unjoined.data import campaign_problem
from unjoined.evaluate import evaluate_uplift


def main() -> None:
    """Evaluate at each size, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=(5_000, 250_000))
    problem = campaign_problem()
    model = WeightedUplift(random_state=0).fit(**problem.draw(2_000, random_state=0))
    for n in parser.parse_args().rows:
        data = problem.draw(n, random_state=1)
        wall, processor = time.perf_counter(), time.process_time()
        evaluate_uplift(model, data, random_state=0)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(
            f"4 x {n:,} rows: {wall:.1f} s, {processor:.1f} s of processor time",
            flush=True,
        )


if __name__ == "__main__":
    main()
