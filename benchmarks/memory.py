"""Peak memory of a fit from Parquet files, for ten million rows and for a hundred million.

Run: python benchmarks/memory.py [--rows 10000000,100000000] [--features 10] [--folder FOLDER]

Writes the files (about 45 bytes a row) into FOLDER, by default a temporary one that is removed,
and fits each size, streamed, in a process of its own, with the defaults of `MinMaxUplift`.
Prints peak resident memory, time and accuracy. Targets: within 10 % of each other, and below
1.5 GB. Writes benchmarks/results/memory.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from unjoined import MinMaxUplift, SeparateLabels

FILE_ROWS = 1_000_000
NAMES = ("north", "south")
TARGET_SPREAD, TARGET_BYTES = 1.1, 1.5e9


def write_files(folder: Path, rows: int, d: int) -> None:
    """Write four folders of Parquet files with a quarter of the rows each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i, cell in enumerate(
        (kind, name) for kind in ("outcomes", "treatments") for name in NAMES
    ):
        place = folder / "_".join(cell)
        place.mkdir(parents=True, exist_ok=True)
        for j, start in enumerate(range(0, rows // 4, FILE_ROWS)):
            n = min(FILE_ROWS, rows // 4 - start)
            rng = np.random.default_rng([rows, i, j])
            X = rng.standard_normal((n, d), dtype=np.float32)
            policy = 1.0 / (
                1.0 + np.exp(X[:, 1] - (1.0 if cell[1] == "north" else -1.0))
            )
            treated = rng.random(n) < policy
            chance = 1.0 / (
                1.0 + np.exp(1.0 - 0.5 * X[:, 0] - treated * uplift_odds(X))
            )
            label = treated if cell[0] == "treatments" else rng.random(n) < chance
            columns = {f"x{k}": X[:, k] for k in range(d)}
            columns[cell[0][:-1]] = label.astype(np.int8)
            pq.write_table(
                pa.table(columns), place / f"{j:04d}.parquet", compression="none"
            )


def uplift_odds(X):
    """Return what treatment adds to the log-odds."""
    return 0.3 + 0.8 * X[:, 2] - 0.6 * X[:, 0]


def fit(folder: Path, rows: int, d: int) -> None:
    """Fit one size and print what it took; runs in a process of its own."""
    data = SeparateLabels.from_tables(
        *(
            {name: folder / f"{kind}_{name}" for name in NAMES}
            for kind in ("outcomes", "treatments")
        ),
        outcome="outcome",
        treatment="treatment",
        stream=True,
    )
    start = time.perf_counter()
    model = MinMaxUplift(random_state=0).fit(data)
    seconds = time.perf_counter() - start
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )  # kilobytes on Linux
    X = np.random.default_rng(0).standard_normal((20_000, d))
    base = -1.0 + 0.5 * X[:, 0]
    truth = 1.0 / (1.0 + np.exp(-base - uplift_odds(X))) - 1.0 / (1.0 + np.exp(-base))
    correlation = float(np.corrcoef(model.predict(X), truth)[0, 1])
    print(
        json.dumps(
            {"rows": rows, "peak": peak, "seconds": seconds, "correlation": correlation}
        )
    )


def measure(folder: Path, rows: int, d: int) -> dict[str, float]:
    """Write the files of one size if they are not there, and fit them in a fresh process."""
    place = folder / f"{rows}-{d}"
    if not (place / "done").exists():
        write_files(place, rows, d)
        (place / "done").touch()
    command = [sys.executable, __file__, "--fit", str(place), "--rows", str(rows)]
    printed = subprocess.run(
        [*command, "--features", str(d)], check=True, capture_output=True, text=True
    )
    return json.loads(printed.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="10000000,100000000")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(rows) for rows in args.rows.split(",")]
    if args.fit is not None:
        fit(args.fit, sizes[0], args.features)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        found = [measure(folder, rows, args.features) for rows in sizes]
    print(
        f"{'rows':>13} {'peak memory':>12} {'seconds':>8} {'rows/second':>12} {'correlation':>12}"
    )
    for each in found:
        print(
            f"{each['rows']:>13,} {each['peak'] / 1e6:>9,.0f} MB {each['seconds']:>8.0f} "
            f"{each['rows'] / each['seconds']:>12,.0f} {each['correlation']:>12.4f}"
        )
    peaks = [each["peak"] for each in found]
    spread = max(peaks) / min(peaks)
    print(
        f"{'met   ' if spread <= TARGET_SPREAD else 'MISSED'}  within 10 %: {spread:.3f}"
    )
    print(
        f"{'met   ' if max(peaks) < TARGET_BYTES else 'MISSED'}  below 1.5 GB: {max(peaks):,.0f}"
    )
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "memory.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
