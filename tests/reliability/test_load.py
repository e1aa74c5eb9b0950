"""Small versions of `make reliability`: many fits, shared models, a full disk."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="/proc, mounts and limits of Linux"
)
TOOLS = Path(__file__).parents[2] / "tools"


def run(*words):
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_fits_leave_no_memory_behind_threads_agree_and_a_full_disk_costs_nothing():
    said = run(TOOLS / "load.py", "fits", "threads", "disk", "--fits", "100")
    assert "no file left open" in said
    assert "all equal to the bit" in said
    assert "full disk:" in said


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
    assert "refused by a clear error" in run(
        TOOLS / "fuzz.py", "models", "sums", "--runs", "300"
    )
