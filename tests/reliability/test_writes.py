"""Files are old or new, never in between."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from unjoined.data import write_table
from unjoined.data.write import replace_file
from unjoined.errors import TableError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="kills and limits of Linux"
)
TOOL = Path(__file__).parents[2] / "tools" / "kills.py"

DIES = """
import os, signal, sys
from unjoined.data.write import replace_file
def write(file):
    file.write_text("half")
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print("writing", flush=True)
    sys.stdin.read()
    file.write_text("whole")
replace_file(sys.argv[1], write)
"""


def start(path, how):
    return subprocess.Popen(
        [sys.executable, "-c", DIES, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_a_killed_write_leaves_the_old_file_and_the_next_one_goes_through(tmp_path):
    path = tmp_path / "model [1].skops"
    path.write_text("old")
    with start(path, "die") as dead:
        assert dead.wait() == -signal.SIGKILL
    assert path.read_text() == "old"
    (left,) = set(tmp_path.iterdir()) - {path}
    assert left.name.startswith(".model [1].skops.")
    assert left.suffix == ".part"
    replace_file(path, lambda file: file.write_text("new"))
    assert path.read_text() == "new"
    assert set(tmp_path.iterdir()) == {path, left}


def test_a_file_that_a_living_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "list.csv"
    with start(path, "wait") as writer:
        assert writer.stdout.readline() == b"writing\n"
        replace_file(path, lambda file: file.write_text("mine"))
        assert path.read_text() == "mine"
        writer.communicate(b"")
        assert writer.returncode == 0
    assert path.read_text() == "whole"
    assert [file.name for file in tmp_path.iterdir()] == ["list.csv"]


def test_many_threads_writing_one_file_leave_one_whole_file(tmp_path):
    path, errors = tmp_path / "list.csv", []

    def write(text):
        try:
            for _ in range(30):
                replace_file(path, lambda file: file.write_text(text))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(c * 1000,)) for c in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    text = path.read_text()
    assert len(text) == 1000
    assert len(set(text)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["list.csv"]


FULL = """
import resource, sys
import pyarrow as pa
from unjoined.data import write_table
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for path in sys.argv[1:]:
    try:
        write_table(pa.table({"x": list(range(10_000))}), path)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_disk_that_is_full_leaves_the_old_tables(tmp_path):
    one = pa.table({"x": [1]})
    paths = [
        write_table(one, tmp_path / f"t.{end}") for end in ("csv", "parquet", "xlsx")
    ]
    before = [path.read_bytes() for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *paths], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"TableError {str(path)!r} could not be written")
    assert [path.read_bytes() for path in paths] == before
    assert set(tmp_path.iterdir()) == set(paths)


def test_a_folder_that_refuses_is_named(tmp_path):
    with pytest.raises(TableError, match="could not be written"):
        replace_file(tmp_path / ("x" * 250), lambda file: file.write_text("x"))


@pytest.mark.slow
def test_killed_commands_resume_to_the_same_result():
    """The whole study is `make kills`."""
    done = subprocess.run(
        [sys.executable, TOOL, "--kills", "3", "plan"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "each resumed to the same result" in done.stdout
