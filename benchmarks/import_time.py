"""How long imports take: of the estimators, and of the command line's help.

Against `import sklearn.linear_model` (claim: at most 1.3 times) and `import numpy` (at most 2).
Each runs in a fresh interpreter, all taking turns so that a busy machine slows them alike; ratios
are of the medians.
"""

import statistics
import subprocess
import sys
import time

REPEATS = 15
HELP = (
    "import contextlib, io, unjoined.cli as cli\nwith contextlib.suppress(SystemExit), "
)
HELP += "contextlib.redirect_stdout(io.StringIO()): cli.main(['--help'])"
STATEMENTS = {
    "estimators": "import unjoined.estimators",
    "sklearn": "import sklearn.linear_model",
    "help": HELP,
    "numpy": "import numpy",
}
CLAIMS = (("estimators", "sklearn", 1.3), ("help", "numpy", 2.0))


def seconds(statement: str) -> float:
    """Time one import in a fresh interpreter, the interpreter's own start left out."""
    clock = "time.perf_counter()"
    code = f"import time\nstart = {clock}\n{statement}\nprint({clock} - start)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    """Print all medians and the ratios that are claimed."""
    for statement in STATEMENTS.values():
        seconds(statement)  # warms the file cache
    started = time.perf_counter()
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(REPEATS):
        for name, statement in STATEMENTS.items():
            taken[name].append(seconds(statement))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name:12} {1000 * median:7.0f} ms (median of {REPEATS})")
    for ours, theirs, most in CLAIMS:
        ratio = medians[ours] / medians[theirs]
        print(f"{ours} / {theirs}: {ratio:.2f} (claim: at most {most})")
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
