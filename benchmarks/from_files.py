"""Reading files, and a whole fit from them, against readers that this package has no part in.

Run: python benchmarks/from_files.py [--rows 3000000] [--fit-rows 2000000]

Writes one Parquet and one CSV file of ten columns (numbers, whole numbers, text, booleans), and a
CSV file of codes and dates, into a temporary folder and reads each in processes of their own: with
`read_table` whole and with `SeparateLabels` in pieces, and as a baseline by a DuckDB query written
here, whole and in batches; `pyarrow` reads them too. Prints the fastest of three times, the peak
memory beyond that of the imports, and the ratios to the baseline. Targets: at most 1.5 each, with
the oldest versions and the newest. Linux only.

Then fits `Uplift` to four tables in Parquet files in pieces and prints its time and peak memory.
Run it in both environments: what a version of DuckDB does slowly shows in one of them only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TARGET = 1.5
CHILD = """
import json, time
import duckdb, pyarrow, pyarrow.csv, pyarrow.parquet
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
{imports}
before, start = peak(), time.perf_counter()
rows = {work}
seconds = time.perf_counter() - start
print()
print(json.dumps({{"rows": rows, "seconds": seconds, "memory": peak() - before, "peak": peak()}}))
"""
BATCHES = """
def batches(relation):
    new = hasattr(relation, "to_arrow_reader")
    return getattr(relation, "to_arrow_reader" if new else "fetch_arrow_reader")(65_536)
"""
PIECES = """
from unjoined import SeparateLabels
options = {{"outcome": "spend", "treatment": "none", "stream": True}}
source = SeparateLabels.from_tables({{"A": {file!r}}}, {{}}, **options).source
"""
READERS = {
    "read_table": ("from unjoined import read_table", "read_table({file!r}).num_rows"),
    "DuckDB, whole": (
        "",
        "duckdb.sql(\"SELECT * FROM '{file}'\").to_arrow_table().num_rows",
    ),
    "SeparateLabels": (PIECES, "sum(len(frame) for _, frame, _ in source._pieces())"),
    "DuckDB, batches": (
        BATCHES,
        "sum(b.num_rows for b in batches(duckdb.sql(\"SELECT * FROM '{file}'\")))",
    ),
    "pyarrow": ("", "pyarrow.{kind}.read_{call}({file!r}).num_rows"),
}
PAIRS = (("read_table", "DuckDB, whole"), ("SeparateLabels", "DuckDB, batches"))
FIT = """
from unjoined import SeparateLabels, Uplift
kinds, names = ("outcomes", "treatments"), ("north", "south")
tables = [{{name: f"{folder}/{{kind}}_{{name}}" for name in names}} for kind in kinds]
options = {{"outcome": "outcome", "treatment": "treatment", "stream": True}}
data = SeparateLabels.from_tables(*tables, **options)
"""


def measure(imports: str, work: str, times: int = 3) -> dict[str, float]:
    """Run a piece of work in fresh processes, and return the least time and memory."""
    code = CHILD.format(imports=imports, work=work)
    found = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: min(each[name] for each in found) for name in found[0]}


def write(folder: Path, rows: int) -> None:
    """Write a table of ten columns as Parquet and as CSV, and one of codes and dates as CSV."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.normal(size=rows).round(4) for k in range(6)}
    columns["age"] = rng.integers(18, 90, rows)
    columns["spend"] = rng.gamma(2.0, 50.0, rows).round(2)
    columns["region"] = np.array(["north", "south", "east", "west"])[
        rng.integers(0, 4, rows)
    ]
    columns["member"] = rng.random(rows) < 0.3
    table = pa.table(columns)
    pq.write_table(table, folder / "people.parquet")
    pa_csv.write_csv(table, folder / "people.csv")
    tops = (2, 12, 100, 5_000, 100_000)
    codes = {f"code{k}": rng.integers(0, top, rows) for k, top in enumerate(tops)}
    codes |= {name: columns[name] for name in ("spend", "region")}
    codes["date"] = np.datetime64("2020-01-01") + rng.integers(0, 1_000, rows)
    pa_csv.write_csv(pa.table(codes), folder / "codes.csv")


def compare(file: Path, rows: int) -> None:
    """Print what each reader takes for one file, and the ratios."""
    kind = file.suffix[1:]
    options = {
        "file": str(file),
        "kind": kind,
        "call": "table" if kind == "parquet" else "csv",
    }
    found = {}
    for name, (imports, work) in READERS.items():
        found[name] = measure(imports.format(**options), work.format(**options))
        took = found[name]
        if took["rows"] != rows:
            raise ValueError(f"{name} read {took['rows']:,} rows of {rows:,}")
        print(f"  {name:16} {took['seconds']:7.2f} s  {took['memory'] / 1e6:7,.0f} MB")
    for ours, theirs in PAIRS:
        time, memory = (
            found[ours][w] / found[theirs][w] for w in ("seconds", "memory")
        )
        print(
            f"  {ours} / {theirs}: time {time:.2f}, memory {memory:.2f} (target: {TARGET})"
        )


def main() -> None:
    """Read both files and fit, and print the ratios."""
    import duckdb
    import pyarrow as pa
    from memory import write_files

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--fit-rows", type=int, default=2_000_000)
    options = parser.parse_args()
    print(f"DuckDB {duckdb.__version__}, pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.rows)
        for file in sorted(folder.glob("*.*")):
            print(f"{options.rows:,} rows of {file.name}")
            compare(file, options.rows)
        if options.fit_rows:
            write_files(folder / "fit", options.fit_rows, 10)
            work = "Uplift(random_state=0).fit(data) and 0"
            took = measure(FIT.format(folder=folder / "fit"), work, times=1)
            print(
                f"Uplift, {options.fit_rows:,} rows in pieces: {took['seconds']:.0f} s, "
                f"{took['peak'] / 1e6:,.0f} MB"
            )


if __name__ == "__main__":
    main()
