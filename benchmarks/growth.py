"""How the time of the sums grows with the number of rows and of centres.

Run: python benchmarks/growth.py [FILE]; about a minute on two free cores. Prints the times and
the slopes of their logarithms, and writes them to benchmarks/results/growth.json, from which
docs/examples/3-comparison/growth.py draws. Expected: slope 1 in the rows; in the centres 1 for
few of them, where exponentials take the time, towards 2 for many, where updates do.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from unjoined.data.rows import LabelledRows, label_rows, separate_labels
from unjoined.model import GaussianBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import ScaledBasis, Scaling

RESULTS = Path(__file__).parent / "results" / "growth.json"
ROWS = (100_000, 300_000, 1_000_000, 3_000_000)
CENTERS = (50, 100, 200, 400, 800)
FEATURES, WIDTH, REPEATS = 10, 6.0, 7
FIXED_CENTERS, FIXED_ROWS = 100, 300_000


def draw(n: int) -> LabelledRows:
    """Return ``n`` rows of four tables, mixed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, FEATURES))
    outcome, population = rng.random(n) < 0.5, rng.integers(0, 2, n)
    y = np.where(
        outcome, rng.standard_normal(n), rng.random(n) < 0.3 + 0.4 * population
    )
    return label_rows(
        X,
        **separate_labels(y, np.where(outcome, "outcome", "treatment")),
        population=population,
    )


def seconds(rows: LabelledRows, n: int, p: int) -> float:
    """Return the shortest time of the sums of the first ``n`` rows with ``p`` centres."""
    some = rows.take(np.arange(n))
    centers = np.random.default_rng(1).standard_normal((p, FEATURES))
    basis = ScaledBasis(GaussianBasis(centers, WIDTH), Scaling.identity(FEATURES))
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        accumulate(basis, p, some, n_jobs=-1)
        taken.append(time.perf_counter() - start)
    return min(taken)


def slope(x: list[int], y: list[float]) -> float:
    """Return the slope of log y on log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def main(path: Path) -> None:
    """Measure, print and write."""
    rows = draw(max(ROWS))
    cases = [("rows", n, n, FIXED_CENTERS) for n in ROWS]
    cases += [("centers", p, FIXED_ROWS, p) for p in CENTERS]
    found: dict[str, Any] = {"fixed_centers": FIXED_CENTERS, "fixed_rows": FIXED_ROWS}
    for part in ("rows", "centers"):
        sizes = [size for name, size, _, _ in cases if name == part]
        times = []
        for name, _, n, p in cases:
            if name == part:
                times.append(seconds(rows, n, p))
                print(f"{n:>9,} rows {p:4} centres {times[-1]:7.3f} s", flush=True)
        found[part] = {"size": sizes, "seconds": times, "slope": slope(sizes, times)}
        last = slope(sizes[-2:], times[-2:])
        print(
            f"slope in {part}: {found[part]['slope']:.2f}, between the last two {last:.2f}"
        )
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
