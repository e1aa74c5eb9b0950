"""Print which files and functions of unjoined a run enters, in order.

::

    python tools/walk.py                          the walks that docs/architecture.md quotes
    python tools/walk.py fit --outcomes a.csv ...     a command of the tool
    python tools/walk.py --snippet "import unjoined"  some Python

A function is listed once, where it is first entered, with the number of its calls. A change of
package is counted where a newly entered function lies in another package than the one before.
Importing a module does not count as entering it, nor does drawing the rows that a walk begins
with. All threads of this process are watched.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

import unjoined

ROOT = Path(unjoined.__file__).parent
CELLS = [
    (kind, name) for kind in ("outcome", "treatment") for name in ("north", "south")
]


class CallRecorder:
    """What a run entered: functions in the order of their first call, with counts."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, int] = {}

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{ROOT}{os.sep}"):
            return
        # Not bodies of modules and classes, lambdas or comprehensions.
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
            self.calls[code] = self.calls.get(code, 0) + 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record every call until the block ends, on this thread and on those it starts."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def steps(self) -> list[tuple[str, str, int]]:
        """File, function and number of calls, in the order of the first call."""
        return [
            (
                Path(code.co_filename).relative_to(ROOT).as_posix(),
                code.co_qualname,
                count,
            )
            for code, count in self.calls.items()
        ]

    @property
    def figures(self) -> str:
        """Files entered, functions entered and changes of package, in words."""
        files = [file for file, _, _ in self.steps]
        packages = [file.rpartition("/")[0] for file in files]
        changes = sum(a != b for a, b in itertools.pairwise(packages))
        return f"{len(set(files))} files, {len(files)} functions, {changes} changes of package"


def run_command(arguments: list[str]) -> None:
    """Run a command of the tool, without leaving this process."""
    from unjoined.cli.entry import main

    with contextlib.suppress(SystemExit):
        main(arguments)


def run_snippet(text: str, **names: Any) -> None:
    """Run some Python, which may use names."""
    exec(compile(text, "<snippet>", "exec"), {"__name__": "__walk__", **names})  # noqa: S102 - the user's


def standard_walks(folder: Path) -> dict[str, Callable[[], None]]:
    """Return the walks that docs/architecture.md quotes, on small files in a folder."""
    files = write_tables(folder)
    options = [
        word
        for (kind, name), file in files.items()
        for word in (f"--{kind}s", f"{name}={file}")
    ]
    options += [
        "--outcome",
        "bought",
        "--treatment",
        "mailed",
        "--model",
        f"{folder}/m.skops",
    ]
    tables = [
        {n: str(f) for (k, n), f in files.items() if k == kind}
        for kind in ("outcome", "treatment")
    ]
    rows = unjoined.data.campaign_problem().draw(500, random_state=0)
    first = "from unjoined import *\nfrom unjoined.data import *\n"
    named = "*tables, outcome='bought', treatment='mailed'"
    snippets = {
        "Uplift().fit": "Uplift(random_state=0).fit(**rows)",
        "MinMaxUplift().fit": "MinMaxUplift(random_state=0).fit(**rows)",
        "MinMaxUplift().fit, streamed": (
            f"data = SeparateLabels.from_tables({named}, stream=True)\n"
            "MinMaxUplift(random_state=0).fit(data)"
        ),
        "MinMaxUplift().fit, on Dask": (
            "import dask.dataframe as dd\n"
            "tables = [{n: dd.read_csv(f) for n, f in part.items()} for part in tables]\n"
            f"MinMaxUplift(random_state=0).fit(SeparateLabels.from_tables({named}))"
        ),
    }
    walks: dict[str, Callable[[], None]] = {
        title: partial(run_snippet, first + text, rows=rows, tables=tables)
        for title, text in snippets.items()
    }
    return {
        "unjoined fit on four CSV files": lambda: run_command(["fit", *options])
    } | walks


def write_tables(folder: Path) -> dict[tuple[str, str], Path]:
    """Write four small CSV files of a simulated campaign."""
    problem = unjoined.data.campaign_problem()
    data = problem.draw(500, random_state=0)
    files = {}
    for kind, name in CELLS:
        at = data.rows(kind, name)
        columns = dict(zip(problem.feature_names, data["X"][at].T, strict=True))
        columns["bought" if kind == "outcome" else "mailed"] = data.checked.label[at]
        file = folder / f"{kind}_{name}.csv"
        files[kind, name] = unjoined.data.write_table(pa.table(columns), file)
    return files


def show(recorder: CallRecorder) -> None:
    """Print every step, then the figures."""
    for file, function, count in recorder.steps:
        print(f"{count:>7} x  {file}: {function}")
    print(recorder.figures)


def main(arguments: list[str]) -> None:
    """Walk what was asked for."""
    if arguments:
        recorder = CallRecorder()
        with recorder.watching():
            if arguments[0] == "--snippet":
                run_snippet("\n".join(arguments[1:]))
            else:
                run_command(arguments)
        show(recorder)
        return
    with tempfile.TemporaryDirectory() as folder:
        for title, run in standard_walks(Path(folder)).items():
            recorder = CallRecorder()
            with recorder.watching(), contextlib.redirect_stdout(None):
                run()
            print(f"{title}: {recorder.figures}")


if __name__ == "__main__":
    main(sys.argv[1:])
