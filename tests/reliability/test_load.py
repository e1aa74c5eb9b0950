"""Small versions of `make reliability`: many fits, shared models, a full disk."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unjoined.data import write_table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc, mounts and limits of Linux")
TOOLS = Path(__file__).parents[2] / "tools"


def run(*words):
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_fits_leave_no_memory_behind_threads_agree_and_a_full_disk_costs_nothing():
    said = run(TOOLS / "load.py", "fits", "threads", "disk", "--fits", "100")
    assert "no file left open" in said
    assert "all equal to the bit" in said
    assert "full disk:" in said


IN_LITTLE_MEMORY = """
import resource, sys
import duckdb, pyarrow.compute, pyarrow.parquet
from unjoined import read_table
from unjoined.data import available_bytes
for more in (40, 120, 300):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (more << 20), resource.RLIM_INFINITY))
    assert available_bytes() <= more << 20
    for path in sys.argv[1:]:
        try:
            print(more, read_table(path).num_rows)
        except MemoryError as error:
            print(more, error)
"""


@pytest.mark.slow
def test_with_little_memory_tables_are_read_or_it_is_said_that_memory_is_short(tmp_path):
    """The whole study, of the command line, is `tools/load.py memory`."""
    write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "small.csv")
    wide = {f"x{i}": np.arange(200_000.0) for i in range(20)}  # 32 MB, and copies on the way
    write_table(pa.table(wide), tmp_path / "large.parquet")
    said = run("-c", IN_LITTLE_MEMORY, tmp_path / "small.csv", tmp_path / "large.parquet")
    lines = said.splitlines()
    assert lines[0].startswith("40 DuckDB, which reads tables, needs 64 MB to open, and the limit")
    assert lines[2] == "120 1000"
    assert lines[3] == "120 DuckDB ran out of it while it read a table"
    assert lines[4:] == ["300 1000", "300 200000"]


@pytest.mark.slow
def test_processes_agree_and_sick_workers_change_nothing():
    said = run(TOOLS / "load.py", "processes", "dask", "dask_memory")
    assert "equal to the bit" in said
    assert "no process lives on" in said


@pytest.mark.slow
def test_parsers_read_or_refuse_what_nobody_meant():
    said = run(TOOLS / "fuzz.py", "texts", "--runs", "100")
    assert "each was read or refused by a clear error" in said


@pytest.mark.slow
def test_files_of_models_and_sums_are_read_or_refused():
    assert "refused by a clear error" in run(TOOLS / "fuzz.py", "models", "sums", "--runs", "300")
