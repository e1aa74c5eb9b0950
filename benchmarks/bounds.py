"""What range constraints cost against the same fit without them.

All fits run in the same process, one after the other. The ratio of their times is printed with
the rounds of constraint generation and the rows that bind. First ranges that hold hardly anywhere
by themselves, at 4 x 20,000 rows; then the range of a 0/1 outcome at a million rows.

Run: python benchmarks/bounds.py [ROWS PER TABLE, of the first part] [of the second part]
"""

import sys
import time
from typing import Any

import numpy as np

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import campaign_problem, paper_problem

TIGHT: tuple[Any, ...] = (
    (0.0, 0.05),
    (0.0, np.inf),
    (-np.inf, -0.1),
    (0.2, 0.21),
    (0.3, 0.3001),
)
MANY = {
    "basis": "gaussian",
    "width": "median",
    "n_centers": 100,
    "ridge_f": 1e-6,
    "ridge_g": 1e-4,
    "center": False,
}


def compare(data: SeparateLabels, ranges: tuple[Any, ...], **settings: Any) -> None:
    """Fit without bounds and with each range, and print what it took."""
    seconds = {}
    for bounds in (None, *ranges):
        start = time.perf_counter()
        model = MinMaxUplift(**settings, bounds=bounds, random_state=0).fit(**data)
        seconds[bounds] = time.perf_counter() - start
        uplift = model.predict(data.X)
        line = f"bounds={bounds!s:14} {seconds[bounds]:6.1f} s, uplift {uplift.min():.3f} to "
        line += f"{uplift.max():.3f}"
        if (report := model.bounds_) is not None:
            line += f", {seconds[bounds] / seconds[None]:.1f} times as long: "
            line += f"{report.rounds} rounds, {report.n_binding} rows bind, "
            line += f"largest violation {report.worst:.1e}"
        print(line, flush=True)


def main(n_tight: int, n_many: int) -> None:
    """Compare on a campaign with tight ranges, then on many rows with the outcome's range."""
    for n_centers in ("auto", 300):
        data = campaign_problem().draw(n_tight, random_state=0)
        print(f"{data.n_rows:,} rows of the campaign, n_centers={n_centers}")
        compare(data, TIGHT, n_centers=n_centers)
    data = paper_problem(b=1.0).draw(n_many, random_state=0)
    y = np.where(data.kind == "outcome", (data.y + 1.0) / 2.0, data.y)
    print(f"{data.n_rows:,} rows of the paper's problem")
    compare(SeparateLabels(**{**dict(data), "y": y}), ("auto",), **MANY)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*given, *(20_000, 250_000)[len(given) :])
