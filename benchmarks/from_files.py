"""A whole fit from Parquet files, against reading their columns and adding up alone.

Run: python benchmarks/from_files.py [--rows 4000000] [--features 10] [--threads 1]

Writes four folders of Parquet files (about 45 bytes a row) into a temporary one and measures, one
after the other in one process: `MinMaxUplift().fit_chunks`, which reads everything twice; the two
readings alone, as Arrow batches that nobody looks at; and the sums of as many rows that are in
memory already. Prints rows per second and the ratio of the fit to reading and adding up, which
includes what the fit settles by a sample beforehand. Target: at most 1.5.
"""

import argparse
import tempfile
import time
from pathlib import Path

import duckdb
from memory import NAMES, write_files

from unjoined import MinMaxUplift, TableSource
from unjoined.sums import take_census
from unjoined.sums.passes import labelled_batches

TARGET = 1.5


def source_of(folder: Path, d: int, threads: int) -> TableSource:
    """Return the files of a folder as a source."""
    kinds = ("outcomes", "treatments")
    return TableSource.from_tables(
        *({name: folder / f"{kind}_{name}" for name in NAMES} for kind in kinds),
        outcome="outcome",
        treatment="treatment",
        features=[f"x{k}" for k in range(d)],
        threads=threads,
    )


def read_twice(folder: Path, threads: int) -> int:
    """Go through all columns of all files as the source does, and look at nothing."""
    found = 0
    for _ in range(2):
        for file in sorted(folder.rglob("*.parquet")):
            with duckdb.connect(config={"threads": threads}) as connection:
                relation = connection.sql("SELECT * FROM read_parquet(?)", params=[str(file)])
                new = hasattr(relation, "to_arrow_reader")
                reader = getattr(relation, "to_arrow_reader" if new else "fetch_arrow_reader")
                found += sum(batch.num_rows for batch in reader(65_536))
    return found


def add_up(model: MinMaxUplift, source: TableSource, rows: int) -> float:
    """Return the seconds that the sums of so many rows take, batch by batch from memory."""
    plan = model.collect_sums(source).plan
    census = take_census(source, sample_rows=1000)
    known = list(labelled_batches(source, plan, census))
    times = -(-rows // sum(len(batch.rows) for batch in known))
    start = time.perf_counter()
    for _ in range(times):
        for batch in known:
            plan.sums(batch.rows, batch.group, n_jobs=model.n_jobs)
    seconds = time.perf_counter() - start
    return seconds * rows / (times * sum(len(batch.rows) for batch in known))


def main() -> None:
    """Measure all parts in one run and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    rows, d, threads = options.rows, options.features, options.threads
    model = MinMaxUplift(random_state=0, n_jobs=threads)
    with tempfile.TemporaryDirectory() as name:
        folder, small = Path(name) / "all", Path(name) / "small"
        write_files(folder, rows, d)
        write_files(small, 400_000, d)
        start = time.perf_counter()
        read_twice(folder, threads)
        between = time.perf_counter()
        model.fit_chunks(source_of(folder, d, threads))
        reading, fit = between - start, time.perf_counter() - between
        adding = add_up(model, source_of(small, d, threads), rows)
    print(f"{rows:,} rows of {d} features, {model.basis_.size} functions, {threads} thread(s)")
    for what, seconds in (("fit", fit), ("reading twice", reading), ("adding up", adding)):
        print(f"{what:14} {seconds:7.2f} s  {rows / seconds:12,.0f} rows/s")
    ratio = fit / (reading + adding)
    print(f"fit / (reading + adding up): {ratio:.2f} (target: at most {TARGET})")


if __name__ == "__main__":
    main()
