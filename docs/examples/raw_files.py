"""Write raw files as a company has them: four tables that cannot be joined, and customers to score.

``python docs/examples/raw_files.py shop`` writes files of a made-up shop. With ``--email FILE``
they are made of the public e-mail campaign (see `unjoined.datasets.fetch_email` for where it is).
"""

import argparse
import csv
import gzip
import sys
from pathlib import Path

import numpy as np
from scipy.special import expit

from unjoined.data import unjoin
from unjoined.data.raw import REGIONS, write_raw_files, write_shop

ASIDE = 0.1  # of the public file: customers to score
COLUMNS = (
    *(
        "recency",
        "history_segment",
        "history",
        "mens",
        "womens",
        "zip_code",
        "newbie",
        "channel",
    ),
)


def write_email_files(folder: Path, source: Path, *, seed: int = 0) -> dict[str, Path]:
    """Write four raw tables and customers to score, made of the public e-mail file, as CSV.

    The trial's rows are dealt into four tables and thinned out, so that the east mailed recent
    buyers and the west those it had not seen for long.
    """
    opener = gzip.open if str(source).endswith(".gz") else open
    with opener(source, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {*COLUMNS, "segment", "visit"} <= set(rows[0]):
        sys.exit(
            f"{str(source)!r} is not the public e-mail file: it lacks its columns."
        )
    order = np.random.RandomState(seed).permutation(len(rows))
    aside, kept = np.split(order, [int(ASIDE * len(rows))])
    recency = np.array([[float(rows[i]["recency"])] for i in kept])
    trial = unjoin(
        recency,
        [float(rows[i]["visit"]) for i in kept],
        [float(rows[i]["segment"] != "No E-Mail") for i in kept],
        policies={
            "east": lambda X: expit(-1.5 * np.tanh((X[:, 0] - 5.5) / 3.0)),
            "west": lambda X: expit(1.5 * np.tanh((X[:, 0] - 5.5) / 3.0)),
        },
        random_state=seed,
    )
    parts = {}
    for kind in ("outcome", "treatment"):
        for name in REGIONS:
            at = trial.data.rows(kind, name)
            own = [rows[kept[i]] for i in trial.rows[at]]
            columns = {c: [row[c] for row in own] for c in COLUMNS}
            label = trial.data.y if kind == "outcome" else trial.data.treatment
            parts[kind, name] = columns, label[at]
    customers = {c: [rows[i][c] for i in aside] for c in COLUMNS}
    return write_shop(folder, parts, customers, seed)


def main() -> None:
    """Write the files and name them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--email", type=Path, help="the public e-mail file, plain or gzipped"
    )
    parser.add_argument(
        "--rows", type=int, default=5000, help="rows of each simulated table"
    )
    given = parser.parse_args()
    if given.folder.is_dir() and any(given.folder.iterdir()):
        parser.error(f"the folder {str(given.folder)!r} is not empty")
    if given.email is None:
        written = write_raw_files(
            given.folder, n_per_table=given.rows, n_customers=2000, seed=0
        )
    else:
        written = write_email_files(given.folder, given.email)
    for path in written.values():
        print(path)


if __name__ == "__main__":
    main()
