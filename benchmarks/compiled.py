"""What each compiled function makes of a whole fit or prediction, against numpy.

Run: python benchmarks/compiled.py [ROWS]; 200,000 rows take about a minute. A fit to labels as they
are, with ridges given, goes through the compiled sums alone, and a prediction through the compiled
combinations alone; the default fit goes through both and chooses its ridges besides. One thread,
processor time, the shortest of some runs in turn. A compiled function is kept if it makes a whole
fit or prediction at least 1.25 times as fast.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import numpy as np
from moments import SETTINGS, draw

import unjoined._compiled as compiled
from unjoined import MinMaxUplift

REPEATS = 5


def seconds(work: Callable[[], object], level: int | None) -> float:
    """Return the processor time of one run, in numpy if there is no level."""
    extension = compiled.extension()
    with (
        patch.object(compiled, "extension", lambda: None if level is None else extension),
        patch.object(compiled, "level", lambda: level),
    ):
        start = time.process_time()
        work()
        return time.process_time() - start


def main(n: int) -> None:
    """Print the ratios."""
    if compiled.extension() is None:
        sys.exit("there is no compiled arithmetic here")
    data, plain = draw(n), {**SETTINGS, "n_jobs": 1, "center": False}
    fitted = MinMaxUplift(**plain).fit(**{name: column[:20_000] for name, column in data.items()})
    works = {
        "sums: fit, ridges given, not centred": partial(MinMaxUplift(**plain).fit, **data),
        "combinations: predict": partial(fitted.predict, data["X"]),
        "both: fit with the defaults": partial(MinMaxUplift(n_jobs=1, random_state=0).fit, **data),
    }
    levels = [None, *range(1, compiled.level() + 1)]
    print(f"{n:,} rows; times as fast as numpy")
    for title, work in works.items():
        taken = np.min([[seconds(work, level) for level in levels] for _ in range(REPEATS)], axis=0)
        ratios = [f"level {i + 1} {taken[0] / t:.2f}" for i, t in enumerate(taken[1:])]
        print(f"  {title:38} numpy {taken[0]:.3f} s; {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
