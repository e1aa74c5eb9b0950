"""How long `import unjoined` takes, against `import sklearn.linear_model`.

Each import runs in a fresh interpreter, the two taking turns so that a busy machine slows both;
the ratio is of the medians. Claim: at most 1.3.
"""

import statistics
import subprocess
import sys
import time

REPEATS = 15
STATEMENTS = {"unjoined": "import unjoined", "sklearn": "import sklearn.linear_model"}


def seconds(statement: str) -> float:
    """Time one import in a fresh interpreter, the interpreter's own start left out."""
    clock = "time.perf_counter()"
    code = f"import time; start = {clock}; {statement}; print({clock} - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print both medians and their ratio."""
    for statement in STATEMENTS.values():
        seconds(statement)  # warms the file cache
    started = time.perf_counter()
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(REPEATS):
        for name, statement in STATEMENTS.items():
            taken[name].append(seconds(statement))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, statement in STATEMENTS.items():
        print(f"{statement:32} {1000 * medians[name]:7.0f} ms (median of {REPEATS})")
    print(f"ratio {medians['unjoined'] / medians['sklearn']:.2f} (claim: at most 1.3)")
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
