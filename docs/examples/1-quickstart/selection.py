"""Choosing an estimator without joint labels: what the held-out scores say, and what is true.

Run: python docs/examples/1-quickstart/selection.py [FOLDER]; writes selection.png there and
prints the numbers that the guide quotes.
"""

import sys
import warnings
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unjoined import MinMaxUplift, PlugInUplift, UpliftSearchCV, WeightedUplift
from unjoined.data import campaign_problem
from unjoined.errors import RatioGuardWarning
from unjoined.metrics import qini

BLUE, GREY = "#1f5f99", "0.45"

CANDIDATES = [
    ("linear", WeightedUplift(basis="linear", random_state=0)),
    ("smooth", WeightedUplift(random_state=0)),
    ("rough", WeightedUplift(n_centers=200, ridge=1e-3, random_state=0)),
    ("min-max", MinMaxUplift(ridge_f=1e-2, ridge_g=1e-2, random_state=0)),
    ("stiff min-max", MinMaxUplift(ridge_f=10.0, ridge_g=0.1, random_state=0)),
    ("four regressions, ratio", PlugInUplift(random_state=0)),
]


def draw_scores(ax: Axes, search: UpliftSearchCV) -> None:
    """Draw how far each candidate is behind the best, with one standard error."""
    names = [row.name for row in search.candidates_][::-1]
    for y, name in enumerate(names):
        row = search.candidates_[name]
        color = BLUE if row.chosen else GREY
        ax.errorbar(
            row.behind, y, xerr=row.standard_error, fmt="o", color=color, ms=6, lw=1.8, capsize=3
        )
    ax.axvline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_yticks(range(len(names)), names)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        if search.candidates_[name].chosen:
            label.set(color=BLUE, weight="bold")
    ax.set_xlabel("weighted risk above the best, squared purchases\n(bars: one standard error)")
    ax.set_title("what the four tables say", fontsize=11, weight="bold")


def draw_truth(ax: Axes, shares: dict[str, float], chosen: str) -> None:
    """Draw each candidate's true share of the oracle's gain."""
    names = list(shares)[::-1]
    for y, name in enumerate(names):
        color = BLUE if name == chosen else GREY
        ax.barh(y, max(shares[name], 0.0), color=color, alpha=0.85 if name == chosen else 0.45)
        ax.text(max(shares[name], 0.0) + 0.015, y, f"{shares[name]:.2f}", va="center", fontsize=9)
    ax.set_yticks([])
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel("share of the gain of knowing\nevery customer's true uplift")
    ax.set_title("what is true", fontsize=11, weight="bold")


def main(folder: Path) -> Path:
    """Search, draw the picture, print the numbers and return the file."""
    warnings.simplefilter("ignore", RatioGuardWarning)  # the guard is at work, as it should be
    problem = campaign_problem()
    data = problem.draw(2000, random_state=0)
    new = problem.draw_joint(20_000, random_state=1)
    search = UpliftSearchCV(CANDIDATES, cv=3, random_state=0).fit(**data)
    print(search.candidates_)
    print(search.reason_)
    shares = {
        name: qini(model.fit(**data).predict(new.X), new.uplift, normalize=True).value
        for name, model in CANDIDATES
    }
    for name, share in shares.items():
        print(f"  {name:<26}{share:6.2f} of the oracle's gain")
    found = qini(search.predict(new.X), new.uplift, normalize=True).value
    print(f"  {'the search':<26}{found:6.2f} of the oracle's gain")
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1.0])
    draw_scores(left, search)
    draw_truth(right, shares, search.best_name_)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_ylim(-0.6, len(CANDIDATES) - 0.4)
    path = folder / "selection.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
