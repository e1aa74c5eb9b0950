"""A fit on one Dask worker and on two: the same rows, and what moved between processes.

Run: python benchmarks/dask_workers.py [--rows 6000000] [--partition 250000] [--features 10]

Workers are processes of this machine with one thread each, so two free cores are needed. A
partition is drawn from its number on the worker that adds it up, in both passes, as a file would
be read. The time is that of `fit`, from the first task to the solution, with ridges
chosen. Also prints the bytes of the plan, which goes to each worker once, and of one set of sums,
which each merge moves and one of which comes back. Target: two workers at least 1.7 times as fast.
"""

import argparse
import pickle
import time
from typing import Any

import numpy as np

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data.rows import separate_labels

TARGET_RATIO = 1.7
SETTINGS = {"n_centers": 100, "width": "median", "random_state": 0, "n_jobs": 1}


def draw(i: int, n: int, d: int) -> dict[str, Any]:
    """Return partition ``i`` of the rows, the same wherever it is drawn."""
    rng = np.random.default_rng([0, i])
    X = rng.standard_normal((n, d))
    first, is_outcome = rng.random((2, n)) < 0.5
    policy = 1.0 / (1.0 + np.exp(X[:, 1] - np.where(first, 1.0, -1.0)))
    treated = rng.random(n) < policy
    odds = 0.5 * X[:, 0] - 1.0 + treated * (0.3 + 0.8 * X[:, 2] - 0.6 * X[:, 0])
    bought = rng.random(n) < 1.0 / (1.0 + np.exp(-odds))
    return {
        "X": X,
        **separate_labels(
            np.where(is_outcome, bought, treated).astype(np.float64),
            np.where(is_outcome, "outcome", "treatment"),
        ),
        "population": np.where(first, "north", "south"),
    }


def lazy_rows(rows: int, partition: int, d: int) -> SeparateLabels:
    """Return the rows as Dask arrays, nothing drawn yet."""
    import dask
    import dask.array as da

    like = draw(0, 1, d)
    parts: dict[str, list[Any]] = {name: [] for name in like}
    for i, start in enumerate(range(0, rows, partition)):
        n = min(partition, rows - start)
        drawn = dask.delayed(draw, pure=False)(i, n, d)
        for name, blocks in parts.items():
            shape = (n, d) if name == "X" else (n,)
            blocks.append(da.from_delayed(drawn[name], shape, dtype=like[name].dtype))
    whole = {name: da.concatenate(blocks) for name, blocks in parts.items()}
    return SeparateLabels(**whole)


def time_fit(
    workers: int, rows: int, partition: int, d: int
) -> tuple[float, MinMaxUplift, Any]:
    """Return the seconds of a fit on ``workers`` workers, the model and its sums."""
    import distributed

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=workers, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        MinMaxUplift(**SETTINGS).fit(lazy_rows(20_000, 2_500, d))  # imports
        data = lazy_rows(rows, partition, d)
        start = time.perf_counter()
        model = MinMaxUplift(**SETTINGS)
        sums = model.collect_sums(data)
        model.fit_moments(sums)  # with the line above, what fit does
        return time.perf_counter() - start, model, sums


def main(rows: int, partition: int, d: int) -> None:
    """Fit both ways and print times, their ratio and what moved."""
    found = {workers: time_fit(workers, rows, partition, d) for workers in (1, 2)}
    for workers, (seconds, _, _) in found.items():
        rate = rows / seconds / workers
        print(
            f"{workers} worker(s): {seconds:6.1f} s, {rate:10,.0f} rows per second and worker"
        )
    ratio = found[1][0] / found[2][0]
    print(
        f"ratio {ratio:.2f} (target {TARGET_RATIO}) for {rows:,} rows of {d} features"
    )
    sums = found[2][2]
    plan = len(pickle.dumps(sums.plan))
    moved = len(pickle.dumps((sums.sums, sums.policy)))
    print(
        f"plan {plan:,} bytes to each worker; sums {moved:,} bytes, p = {sums.plan.size}"
    )
    new = draw(10_000, 1000, d)["X"]
    one, two = (found[workers][1].predict(new) for workers in (1, 2))
    print(
        f"largest relative difference of predictions {np.abs(one / two - 1.0).max():.1e}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--partition", type=int, default=250_000)
    parser.add_argument("--features", type=int, default=10)
    arguments = parser.parse_args()
    main(arguments.rows, arguments.partition, arguments.features)
