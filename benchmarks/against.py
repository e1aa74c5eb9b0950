"""How much processor time commands and fits take, beside an earlier revision of the package.

Run: python benchmarks/against.py REVISION [--repeat 3] [--rows 500000]

Checks the revision out into a temporary folder and runs both, one after the other, on the same
tables: those of `unjoined demo`, written by the present revision, and for a streamed fit four
Parquet tables of so many rows. Each run is a process of its own; the least time of several counts,
which is that of the process and of all its threads. Prints both times in seconds and their ratio,
and the peak memory of the streamed fit in MB. Linux and macOS only.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
MEMORY = """
from unjoined import Uplift
from unjoined.data import campaign_problem
Uplift(random_state=0).fit(campaign_problem().draw(2000, random_state=0))
"""
STREAMED = """
from unjoined import SeparateLabels, Uplift
names = ("A", "B")
data = SeparateLabels.from_tables(
    {{name: "{folder}/y_" + name + ".parquet" for name in names}},
    {{name: "{folder}/t_" + name + ".parquet" for name in names}},
    outcome="y",
    treatment="t",
    stream=True,
)
Uplift(random_state=0).fit(data)
"""


def run(source: Path, words: list[str], folder: Path) -> tuple[float, float]:
    """Run Python with the package of a folder; return processor seconds and peak MB."""
    surroundings = os.environ | {
        "PYTHONPATH": str(source / "src"),
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=surroundings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024.0


def write_tables(folder: Path, n: int) -> None:
    """Write two outcome and two treatment tables of ten features."""
    rng = np.random.default_rng(0)
    for name, often in (("A", 0.7), ("B", 0.3)):
        for label in "yt":
            columns = {f"x{j}": rng.normal(size=n) for j in range(10)}
            treated = rng.random(n) < often
            outcome = columns["x0"] + treated * columns["x1"] + rng.normal(size=n)
            columns[label] = outcome if label == "y" else treated.astype(np.int64)
            pq.write_table(pa.table(columns), folder / f"{label}_{name}.parquet")


def compare() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--rows", type=int, default=500_000, help="of each streamed table"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        earlier, tables = folder / "earlier", folder / "tables"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run(
            [*git, "add", "-q", "--detach", str(earlier), asked.revision], check=True
        )
        try:
            demo = ["-m", "unjoined", "demo", "--out", str(tables), "--force"]
            run(ROOT, demo, folder)
            run(
                ROOT,
                ["-m", "unjoined", "init", ".", "--out", "u.toml", "--force"],
                tables,
            )
            write_tables(folder, asked.rows)
            command = ["-m", "unjoined"]
            model = ["--config", "u.toml", "--force"]
            jobs = {
                "unjoined fit": [*command, "fit", *model],
                "unjoined report": [*command, "report", *model, "--out", "r.html"],
                "Uplift().fit, 4 x 2,000": ["-c", MEMORY],
                f"streamed, 4 x {asked.rows:,}": ["-c", STREAMED.format(folder=folder)],
            }
            print(
                f"{'job':28}{'earlier':>10}{'now':>10}{'ratio':>8}{'MB then':>10}{'MB now':>10}"
            )
            for job, words in jobs.items():
                found = {}
                for source in (earlier, ROOT):
                    if job == "unjoined report":  # by a model of its own revision
                        run(source, jobs["unjoined fit"], tables)
                    found[source] = min(
                        run(source, words, tables) for _ in range(asked.repeat)
                    )
                (then, before), (now, after) = found[earlier], found[ROOT]
                print(
                    f"{job:28}{then:>10.1f}{now:>10.1f}{now / then:>8.2f}"
                    f"{before:>10.0f}{after:>10.0f}",
                    flush=True,
                )
        finally:
            subprocess.run([*git, "remove", "--force", str(earlier)], check=True)


if __name__ == "__main__":
    compare()
