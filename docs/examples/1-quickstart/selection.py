"""Choosing an estimator without joint labels: what the held-out scores say, and what is true.

Run: python docs/examples/1-quickstart/selection.py [FOLDER]; writes selection.png there and
prints the numbers that the guide quotes.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from unjoined import MinMaxUplift, PlugInUplift, WeightedUplift
from unjoined.data import CellKFold, campaign_problem
from unjoined.errors import RatioGuardWarning
from unjoined.evaluate import qini, uplift_scorer

BLUE = "#1f5f99"
GREY = "0.45"
FOLDS = 5

CANDIDATES = {
    "linear": WeightedUplift(basis="linear", random_state=0),
    "smooth": WeightedUplift(random_state=0),
    "rough": WeightedUplift(n_centers=200, ridge=1e-3, random_state=0),
    "min-max": MinMaxUplift(ridge_f=1e-2, ridge_g=1e-2, random_state=0),
    "stiff min-max": MinMaxUplift(ridge_f=10.0, ridge_g=0.1, random_state=0),
    "four regressions, ratio": PlugInUplift(random_state=0),
}


def search(data: Any) -> GridSearchCV:
    """Score the candidates on rows held out in turn, and fit the best to all rows."""
    with config_context(enable_metadata_routing=True):
        return GridSearchCV(
            Pipeline([("model", WeightedUplift())]),
            {"model": list(CANDIDATES.values())},
            scoring=uplift_scorer("weighted_risk"),
            cv=CellKFold(FOLDS, random_state=0),
        ).fit(**data)


def behind_best(found: GridSearchCV) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each candidate is behind the best, and the standard error over the folds."""
    splits = [found.cv_results_[f"split{j}_test_score"] for j in range(FOLDS)]
    behind = np.array([scores[found.best_index_] - scores for scores in splits])
    return behind.mean(axis=0), behind.std(axis=0, ddof=1) / np.sqrt(FOLDS)


def draw_scores(ax: Axes, behind: np.ndarray, error: np.ndarray, chosen: int) -> None:
    """Draw how far each candidate is behind the best, with one standard error."""
    names = list(CANDIDATES)
    places = range(len(names))[::-1]
    for i, y in enumerate(places):
        color = BLUE if i == chosen else GREY
        ax.errorbar(
            behind[i], y, xerr=error[i], fmt="o", color=color, ms=6, lw=1.8, capsize=3
        )
    ax.axvline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_yticks(places, names)
    ax.get_yticklabels()[chosen].set(color=BLUE, weight="bold")
    ax.set_xlabel(
        "weighted risk above the best, squared purchases\n(bars: one standard error)"
    )
    ax.set_title("what the four tables say", fontsize=11, weight="bold")


def draw_truth(ax: Axes, shares: list[float], chosen: int) -> None:
    """Draw each candidate's true share of the oracle's gain."""
    for i, y in enumerate(range(len(shares))[::-1]):
        color = BLUE if i == chosen else GREY
        ax.barh(
            y, max(shares[i], 0.0), color=color, alpha=0.85 if i == chosen else 0.45
        )
        ax.text(
            max(shares[i], 0.0) + 0.015, y, f"{shares[i]:.2f}", va="center", fontsize=9
        )
    ax.set_yticks([])
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel("share of the gain of knowing\nevery customer's true uplift")
    ax.set_title("what is true", fontsize=11, weight="bold")


def main(folder: Path) -> Path:
    """Search, draw the picture, print the numbers and return the file."""
    warnings.simplefilter(
        "ignore", RatioGuardWarning
    )  # the guard is at work, as it should be
    problem = campaign_problem()
    data = problem.draw(2000, random_state=0)
    new = problem.draw_joint(20_000, random_state=1)
    found = search(data)
    behind, error = behind_best(found)
    shares = [
        qini(model.fit(**data).predict(new.X), new.uplift, normalize=True).value
        for model in CANDIDATES.values()
    ]
    print(f"{'candidate':<26}behind best  std. error  of the oracle's gain")
    for name, *numbers in zip(CANDIDATES, behind, error, shares, strict=True):
        print(f"{name:<26}{numbers[0]:11.5f}{numbers[1]:12.5f}{numbers[2]:12.2f}")
    print(f"the search takes {list(CANDIDATES)[found.best_index_]!r}")
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1.0])
    draw_scores(left, behind, error, found.best_index_)
    draw_truth(right, shares, found.best_index_)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_ylim(-0.6, len(CANDIDATES) - 0.4)
    path = folder / "selection.png"
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
