"""The paper's synthetic study: policies that come closer and closer (Figures 1 and 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined.data import JointLabels, SeparateLabels, SimulatedProblem, paper_problem
from unjoined.evaluate import auuc
from unjoined.experiments._study_methods import Fits, Task, fit_methods, task_seeds

__all__ = [
    "CLOSE_B",
    "LARGEST_ERROR",
    "draw_synthetic",
    "synthetic_size",
    "synthetic_tasks",
    "synthetic_trial",
]

GRID_B = tuple(round(10.0 * i / 24.0, 4) for i in range(25))
SMALL_B = (5.0, 10.0)
CLOSE_B = 1.0  # of Figure 2; between two points of the grid
N_POINTS = 400  # of Figure 2
LARGEST_ERROR = 16.0  # squared, of any answer in the possible range of uplift, [-2, 2]


def synthetic_size(*, small: bool) -> tuple[int, int]:
    """Return the rows of a table and the test points; the paper states neither."""
    return (60, 500) if small else (500, 10_000)


def synthetic_tasks(trials: int, *, seed: int, small: bool) -> list[Task]:
    """Return the tasks of the study, trial by trial, so that a part of a run is of use."""
    grid = SMALL_B if small else GRID_B
    return [
        Task("synthetic", trial, b, seed, small)
        for trial in range(trials)
        for b in sorted({*grid, CLOSE_B})
    ]


def synthetic_trial(task: Task) -> tuple[dict[str, Any], dict[str, float]]:
    """Draw four tables and test points, fit every method, and compare with the true uplift.

    Parameters
    ----------
    task : Task
        Which draw.

    Returns
    -------
    result : dict
        Numbers ready for JSON. Areas are in outcome units (outcomes are -1/+1), ties counted
        half; ``error`` is the mean and ``median_error`` the median squared error over the test
        points.
    seconds : dict of str to float
        Processor time by method.
    """
    data, test = draw_synthetic(task)
    fits = fit_methods(data, test.X, is_binary=True, seed=task_seeds(task)[2])
    result: dict[str, Any] = {
        "oracle": auuc(test.uplift, test.uplift).value,
        "random": float(test.uplift.mean()) / 2.0,
        "methods": {
            name: _scores(estimate, test.uplift) for name, estimate in fits.estimates.items()
        },
        "ridges": fits.ridges,
    }
    if task.b == CLOSE_B:
        result |= _by_gap(paper_problem(task.b), test, fits, points=task.trial == 0)
    return result, fits.seconds


def draw_synthetic(task: Task) -> tuple[SeparateLabels, JointLabels]:
    """Return the training rows and the test points of a task."""
    problem = paper_problem(task.b)
    n, n_test = synthetic_size(small=task.small)
    train_seed, test_seed, _ = task_seeds(task)
    return (
        problem.draw(n, random_state=train_seed),
        problem.draw_joint(n_test, random_state=test_seed),
    )


def _scores(estimate: Array, uplift: Array) -> dict[str, float]:
    squared = (estimate - uplift) ** 2
    return {
        "auuc": auuc(estimate, uplift).value,
        "error": float(squared.mean()),
        "median_error": float(np.median(squared)),
    }


def _by_gap(
    problem: SimulatedProblem, test: JointLabels, fits: Fits, *, points: bool
) -> dict[str, Any]:
    """Return how errors depend on the policy gap, and a few points to draw."""
    gap = np.abs(problem.policy_gap(test.X))
    low, high = np.quantile(gap, [1 / 3, 2 / 3])
    thirds = {"small gap": gap <= low, "large gap": gap >= high}
    squared = {name: (f - test.uplift) ** 2 for name, f in fits.estimates.items()}
    found: dict[str, Any] = {
        "gross": {
            name: {
                third: float(np.mean(errors[rows] > LARGEST_ERROR))
                for third, rows in thirds.items()
            }
            for name, errors in squared.items()
        }
    }
    if points:
        found["points"] = {
            "x2": test.X[:N_POINTS, 1].tolist(),
            "gap": gap[:N_POINTS].tolist(),
            "squared_error": {name: e[:N_POINTS].tolist() for name, e in squared.items()},
        }
    return found
