"""An e-mail campaign judged from four tables, then by the labels that were hidden.

Run: python docs/examples/1-quickstart/evaluation.py [FOLDER] [FILE]; writes evaluation.png to the
folder and prints the numbers of docs/guide/evaluation.md. FILE is a copy of the e-mail file; by
default it is read from the cache. If it is not there, the stored picture is copied instead.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from unjoined import SeparateLabels, Uplift
from unjoined.data import unjoin
from unjoined.datasets import PublicData, fetch_email
from unjoined.errors import TableError
from unjoined.evaluate import (
    Evaluation,
    auuc,
    average_uplift,
    cross_evaluate,
    joint_values,
    qini,
    uplift_curve,
)
from unjoined.targeting import top_share_rule

STORED = Path(__file__).parents[2] / "images" / "evaluation.png"
NAMES = {
    "average": "average uplift",
    "best 30%": "best 30%",
    "auuc": "AUUC",
    "qini": "Qini",
}


def main(folder: Path, file: str | None) -> None:
    """Let the analyst conclude, then reveal."""
    try:
        email = fetch_email(
            outcome="visit", treatment="womens", path=file, download=False
        )
    except TableError as error:
        print(f"{error} The stored picture is copied instead.")
        shutil.copy(STORED, folder)
        return
    n = len(email.y)
    aside = np.random.RandomState(0).permutation(n) < n // 2
    hidden = unjoin(
        email.X[~aside],
        email.y[~aside],
        email.treatment[~aside],
        policies={"north": lambda X: 0.85 - 0.3 * (X[:, 0] > 6), "south": 0.2},
        random_state=0,
    ).data
    print(hidden)
    print("\nWhat the analyst concludes from the four tables\n")
    found = cross_evaluate(Uplift(random_state=0), hidden, random_state=0)
    print(found)
    reveal(found, hidden, email, aside, folder)


def reveal(
    found: Evaluation,
    hidden: SeparateLabels,
    email: PublicData,
    aside: np.ndarray,
    folder: Path,
) -> None:
    """Hold the conclusions against rows with both labels that no step above has seen."""
    model = Uplift(random_state=0).fit(**hidden)
    X = email.X[aside]
    score = model.predict(X)
    values = joint_values(
        email.y[aside], email.treatment[aside], propensity=email.propensity[aside]
    )
    truth = {
        "average": average_uplift(values, np.ones(len(X))),
        "best 30%": average_uplift(values, top_share_rule(score, 0.3)),
        "auuc": auuc(score, values),
        "qini": qini(score, values),
    }
    said = {"average": found.average, "best 30%": found.rules["best 30%"]}
    said |= {"auuc": found.auuc, "qini": found.qini}
    print(f"\nThe trial's own labels, {len(X):,} customers kept aside\n")
    print(f"{'':16}{'four tables':>30}{'both labels':>30}")
    for name, one in said.items():
        cells = []
        for each in (one, truth[name]):
            low, high = each.interval()
            cells.append(f"{each.value:+.4f} ({low:+.4f} to {high:+.4f})")
        print(f"{NAMES[name]:16}{cells[0]:>30}{cells[1]:>30}")
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    found.plot(ax=left)
    curve = uplift_curve(score, values)
    left.plot(
        curve.share,
        curve.gain,
        color="C3",
        lw=1.4,
        label="both labels, rows kept aside",
    )
    left.legend(frameon=False, fontsize="small", loc="upper left")
    left.set_title("uplift curve", loc="left", fontsize="medium")
    found.plot(ax=right, what="calibration")
    right.set_title("uplift by score, four tables", loc="left", fontsize="medium")
    figure.savefig(folder / "evaluation.png", dpi=120)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(),
        sys.argv[2] if len(sys.argv) > 2 else None,
    )
