"""How time and memory of a fit grow with the number of features.

Run: python benchmarks/features.py [ESTIMATOR] [ROWS] [FEATURES ...]; every fit in a process of
its own, 1,000 rows in all unless told. Prints processor seconds, which other programs disturb
less than the clock does, their ratio to the first, seconds by the clock, and the memory that was
added at the peak.
"""

import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy.special import expit

import unjoined

FEATURES = (50, 100, 200, 300, 400)


def problem(d: int) -> unjoined.data.SimulatedProblem:
    """Return independent features of which two matter, and a 0/1 outcome."""

    def chance(X: np.ndarray, treated: np.ndarray) -> np.ndarray:
        return expit(-0.5 + X[:, 0] + treated * (0.5 - X[:, 1]))

    return unjoined.data.SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies={
            "A": lambda X: expit(1.0 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-1.0 + 0.5 * X[:, 0]),
        },
        outcome=lambda X, treated, rng: (
            (rng.random_sample(len(X)) < chance(X, treated)) * 1.0
        ),
        outcome_mean=chance,
    )


def measure(name: str, n_rows: int, d: int) -> tuple[float, float, float]:
    """Return processor seconds, seconds and added gigabytes of one fit in this process."""
    data = problem(d).draw(n_rows // 4, random_state=0)
    model = getattr(unjoined, name)(random_state=0)  # imported before the clock starts
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, clock = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(**data)
    seconds, clock = time.process_time() - start, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seconds, clock, (peak - before) / 2**20


def main(name: str, n_rows: int, numbers: list[int]) -> None:
    """Measure each number of features in a process of its own and print a line for each."""
    first = 0.0
    for d in numbers:
        command = [sys.executable, __file__, "--one", name, str(n_rows), str(d)]
        printed = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout
        seconds, clock, gigabytes = map(float, printed.split())
        first = first or seconds
        print(
            f"{name}, {n_rows:,} rows, {d:5} features: {seconds:6.1f} s, "
            f"{seconds / first:5.1f} times the first, {clock:.1f} s by the clock, "
            f"{gigabytes:.2f} GB added",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(*measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        given = sys.argv[1:]
        main(
            given[0] if given else "Uplift",
            int(given[1]) if len(given) > 1 else 1000,
            [int(d) for d in given[2:]] or list(FEATURES),
        )
