"""Kill commands at random points, run them again, and compare with runs that nobody disturbed.

Each command is begun in a process of its own and killed: by the clock, at one of its operations on
files, or amid a write (at a random size of the file). After a kill every file it writes must hold
what it held before or the whole new result. Then the same command runs to its end, and there must
be the same files as after an undisturbed run, with the same contents. Hidden files that a killed
write left beside them are counted.

    python tools/kills.py                       # 20 kills of each command
    python tools/kills.py --kills 5 score       # few, of one command
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

import unjoined
from unjoined.cli.entry import main as unjoined_command
from unjoined.cli.program import COMMANDS
from unjoined.data import fold

# Imported before the fork, so that the commands need not do so again and again. `plan` needs none.
LIBRARIES = (
    *(
        "duckdb",
        "pyarrow.csv",
        "pyarrow.parquet",
        "pyarrow.compute",
        "skops.io",
        "openpyxl",
    ),
    *("pandas", "jinja2", "rich.progress", "matplotlib.figure"),
    *(f"unjoined.cli.{module}" for module, _ in COMMANDS.values()),
)
OPERATIONS = {
    "open",
    "os.rename",
    "os.remove",
    "os.chmod",
    "os.mkdir",
    "tempfile.mkstemp",
}
TABLES, NEW = (
    [
        *("--outcomes", f"east={folder}/visits_east.csv"),
        *("--outcomes", f"west={folder}/visits_west.csv"),
        *("--treatments", f"east={folder}/mailings_east.csv"),
        *("--treatments", f"west={folder}/mailings_west.csv"),
    ]
    for folder in ("in", "new")  # a model is judged by rows that it has not seen
)
LABELS = ["--outcome", "visit", "--treatment", "mailed"]
OUT = Path("out")
MODEL = ["--model", "in/model.skops"]
PLAN = ["--plan", "in/plan.sums"]


class Job(NamedTuple):
    """A command, what it writes, and whether it goes on where it was killed."""

    words: list[str]
    writes: list[str]
    resumes: bool = False


FIT = [
    "fit",
    *TABLES,
    *LABELS,
    "--estimator",
    "minmax",
    "--force",
    "--model",
    "out/m.skops",
]
JOBS = {
    "fit": Job(FIT, ["m.skops"]),
    "fit --chunks": Job(
        [*FIT, "--chunks", "--checkpoint", "out/kept"], ["m.skops"], True
    ),
    "aggregate": Job(
        [
            *("aggregate", *PLAN, *TABLES, *LABELS, "--out", "out/a.sums"),
            *("--checkpoint", "out/kept", "--force", "--threads", "1"),
        ],
        ["a.sums"],
        True,
    ),
    "score": Job(
        [
            *("score", *MODEL, "--table", "in/customers.csv", "--share", "30%"),
            *("--out", "out/list.csv", "--force"),
        ],
        ["list.csv"],
    ),
    "score to a workbook": Job(
        [
            *("score", *MODEL, "--table", "in/customers.csv", "--share", "30%"),
            *("--out", "out/list.xlsx", "--force"),
        ],
        ["list.xlsx"],
    ),
    "evaluate": Job(["evaluate", *MODEL, *NEW, *LABELS, "--json"], []),
    "report": Job(
        [
            *(
                "report",
                *MODEL,
                *NEW,
                *LABELS,
                "--held-out",
                "--force",
                "--out",
                "out/r.html",
            ),
            *("--table", "in/customers.csv", "--list", "out/list.csv"),
        ],
        ["r.html", "list.csv"],
    ),
    "export": Job(
        ["export", *MODEL, "--sql", "out/s.sql", "--force"],
        ["s.sql"],
    ),
    "init": Job(["init", "in", "--out", "out/u.toml", "--force"], ["u.toml"]),
    "plan": Job(
        [
            *("plan", "--feature", "age=45:15", "--populations", "east,west"),
            *("--out", "out/p.sums", "--force"),
        ],
        ["p.sums"],
    ),
}


def in_child(work: Callable[[], None], printed: Path | None = None) -> int:
    """Do something in a process of its own, and return that process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        quiet = os.open(printed or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        try:
            work()
        except SystemExit as stop:
            code = int(stop.code or 0)
        else:
            code = 0
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(child: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(words: list[str]) -> None:
    """Run a command, with checkpoints as often as a small table allows."""
    fold.CHECKPOINT_ROWS = 256
    unjoined_command(words)


def killed_at_operation(words: list[str], at: int) -> None:
    """Run a command and die before its operation on files of this number."""
    seen = [0]
    here = os.getcwd()

    def count(event: str, given: tuple[object, ...]) -> None:
        if event in OPERATIONS and given and isinstance(given[0], str | Path):
            path = os.path.abspath(str(given[0]))
            if path.startswith(f"{here}/out"):
                seen[0] += 1
                if seen[0] == at:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    run(words)


def killed_amid_write(words: list[str], size: int) -> None:
    """Run a command and die when a file grows beyond a size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    run(words)


def kill_once(job: Job, dice: np.random.Generator, seconds: float) -> tuple[str, int]:
    """Begin a command and kill it somehow; return how, and how it ended."""
    ways = ["clock", "operation", "amid"] if job.writes else ["clock"]
    way = str(dice.choice(ways))
    if way == "clock":
        child = in_child(lambda: run(job.words))
        time.sleep(dice.uniform(0.0, seconds))
        os.kill(child, signal.SIGKILL)
    elif way == "operation":
        at = int(dice.integers(1, 13))
        child = in_child(lambda: killed_at_operation(job.words, at))
    else:
        size = int(10 ** dice.uniform(0.0, 5.0))
        child = in_child(lambda: killed_amid_write(job.words, size))
    return way, finish(child)


def contents(names: set[str]) -> dict[str, str]:
    """Return what files say, without what differs between equal runs.

    They are read in a process of their own: this one must not start threads, as it forks.
    """

    def read() -> None:
        Path("said").write_text(json.dumps({name: said(OUT / name) for name in names}))

    if code := finish(in_child(read)):
        raise SystemExit(
            f"{names} cannot be read ({code}): {Path('errors').read_text()}"
        )
    found: dict[str, str] = json.loads(Path("said").read_text())
    return found


def files_in(folder: Path) -> set[str]:
    """Return the names of all files in a folder."""
    return {
        str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()
    }


def said(file: Path) -> str:
    """Return what a file says; a half-written one is an error."""
    if file.suffix == ".skops":
        model = unjoined.load_model(file)
        people = unjoined.read_table("in/customers.csv")
        return (
            model.predict(people.select(list(model.feature_names_in_))).tobytes().hex()
        )
    if file.suffix == ".xlsx":
        return str(unjoined.read_table(file).to_pydict())
    text = file.read_bytes()
    return text.hex()


def write_rows(
    file: Path, n: int, share: float, dice: np.random.Generator, label: str = ""
) -> None:
    """Write a table of people, with whether they were mailed or whether they visited."""
    lines = [",".join(["recency", "history", "newbie", *([label] * bool(label))])]
    for _ in range(n):
        recency, history, newbie = (
            dice.normal(5, 5),
            dice.normal(5, 5),
            dice.integers(2),
        )
        mailed = dice.random() < share
        visits = dice.random() < 0.2 + 0.4 * mailed * (recency > 5)
        found = {"mailed": [mailed], "visit": [visits]}.get(label, [])
        lines.append(",".join(map(str, [recency, history, newbie, *map(int, found)])))
    file.write_text("\n".join(lines) + "\n")


def prepare(folder: Path, *, fits: bool) -> None:
    """Write what the commands read, with a model if it is needed."""
    os.chdir(folder)
    dice = np.random.default_rng(0)
    for place in (Path("in"), Path("new")):
        place.mkdir()
        for name, share in (("east", 0.8), ("west", 0.2)):
            for table, label in (("visits", "visit"), ("mailings", "mailed")):
                write_rows(place / f"{table}_{name}.csv", 400, share, dice, label)
    write_rows(Path("in/customers.csv"), 300, 0.0, dice)
    plan = [
        "plan",
        "--populations",
        "east,west",
        "--functions",
        "2",
        "--groups",
        "2",
        "--out",
        "in/plan.sums",
    ]
    for name in ("recency", "history", "newbie"):
        plan += ["--feature", f"{name}=5:5"]
    fit = [*FIT[:-1], "in/model.skops"]
    for words in (fit, plan) if fits else (plan,):
        code = finish(in_child(lambda words=words: run(words)))
        if code:
            raise SystemExit(f"{words} ended with {code}: {Path('errors').read_text()}")


class Study:
    """One command: undisturbed runs, kills, and runs to the end after them."""

    def __init__(self, name: str, job: Job) -> None:
        self.name, self.job = name, job
        self.ways: Counter[str] = Counter()
        shutil.rmtree("old", ignore_errors=True)
        self.empty()
        start = time.monotonic()
        self.new = self.to_the_end(job.words)
        self.seconds = time.monotonic() - start
        if set(self.new) - {"(printed)"} != set(job.writes):
            raise SystemExit(f"{name} writes {sorted(self.new)}, expected {job.writes}")
        # Files to be replaced; a model of another seed can be told from the new one.
        self.empty()
        seeded = [*job.words, "--seed", "1"] if job.words[0] == "fit" else job.words
        self.old = {} if job.resumes else self.to_the_end(seeded)
        OUT.rename("old")

    def empty(self) -> None:
        """Begin with an empty folder."""
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()

    def to_the_end(self, words: list[str]) -> dict[str, str]:
        """Run a command undisturbed; return what all files in the folder say then."""
        if code := finish(in_child(lambda: run(words), Path("printed"))):
            raise SystemExit(
                f"{self.name} ended with {code}: {Path('errors').read_text()}"
            )
        printed = {} if self.job.writes else {"(printed)": Path("printed").read_text()}
        finished = {name for name in files_in(OUT) if not name.endswith(".part")}
        return contents(finished) | printed

    def kill(self, dice: np.random.Generator) -> bool:
        """Begin the command, kill it and look at the files; False if it ended before."""
        way, code = kill_once(self.job, dice, self.seconds)
        if code == 0:
            self.ways["ended before the kill"] += 1
            return False
        if code > 0:
            raise SystemExit(f"{self.name}: it ended with {code} by itself ({way})")
        self.ways[way] += 1
        left = files_in(OUT)
        self.ways["hidden files left"] += sum(name.endswith(".part") for name in left)
        for file, text in contents(left & set(self.job.writes)).items():
            if text not in (self.old.get(file), self.new[file]):
                raise SystemExit(f"{self.name}: {file} is neither old nor new ({way})")
        return True

    def run(self, kills: int, dice: np.random.Generator) -> dict[str, int]:
        """Kill the command so many times, several times in a row, and run it to its end."""
        done = 0
        while done < kills:
            shutil.rmtree(OUT, ignore_errors=True)
            shutil.copytree("old", OUT)
            for _ in range(dice.integers(1, 5)):
                if not self.kill(dice):
                    break
                done += 1
            if self.to_the_end(self.job.words) != self.new:
                raise SystemExit(f"{self.name}: after a kill the result is another one")
        return {"kills": done, **self.ways}


def main() -> None:
    """Kill, resume, compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="job", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the table, as JSON")
    given = parser.parse_args()
    target = given.out and given.out.absolute()
    results = {}
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        jobs = given.jobs or list(JOBS)
        for library in LIBRARIES if jobs != ["plan"] else ():
            import_module(library)
        prepare(Path(folder), fits=jobs != ["plan"])
        for name in jobs:
            results[name] = Study(name, JOBS[name]).run(
                given.kills, np.random.default_rng(given.seed)
            )
            print(f"{name}: {results[name]}", flush=True)
        os.chdir("/")
    total = sum(result["kills"] for result in results.values())
    print(f"{total} kills, each resumed to the same result")
    if target:
        target.write_text(
            json.dumps({"total": total, "commands": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
