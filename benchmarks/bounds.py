"""What range constraints cost at a million rows, against the same fit without them.

Both fits run in the same process, one after the other, and the ratio of their times is printed
with the rounds of constraint generation and the rows that entered.
"""

import sys
import time

import numpy as np

from unjoined import MinMaxUplift, SeparateLabels, paper_problem

ROWS_PER_TABLE = 250_000


def main(n_per_table: int) -> None:
    """Fit with and without bounds and print what it took."""
    data = paper_problem(b=1.0).draw(n_per_table, random_state=0)
    y = np.where(data.kind == "outcome", (data.y + 1.0) / 2.0, data.y)
    data = SeparateLabels(**{**dict(data), "y": y})
    settings = {
        "basis": "gaussian",
        "width": "median",
        "n_centers": 100,
        "ridge_f": 1e-6,
        "ridge_g": 1e-4,
        "center": False,
        "random_state": 0,
    }
    seconds = {}
    for bounds in (None, "auto"):
        start = time.perf_counter()
        model = MinMaxUplift(**settings, bounds=bounds).fit(**data)
        seconds[bounds] = time.perf_counter() - start
        reach = np.abs(model.predict(data.X)).max()
        print(f"bounds={bounds!r:7} {seconds[bounds]:6.1f} s, largest |uplift| {reach:.3f}")
    report = model.bounds_
    print(
        f"{data.n_rows:,} rows: {report.rounds} rounds, {report.n_constraints} rows entered, "
        f"{report.n_binding} bind, largest violation {report.worst:.1e}"
    )
    print(f"ratio of times {seconds['auto'] / seconds[None]:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS_PER_TABLE)
