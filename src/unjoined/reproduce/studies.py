"""What the paper's studies have in common, and its synthetic study."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined.data import CellKFold, JointLabels, SeparateLabels, SimulatedProblem, paper_problem
from unjoined.estimators import FourLogistic, FourNNC, FourNNR, FourRidge, MinMaxGau, Uplift
from unjoined.metrics import HeldOutRows, auuc

STUDIES = ("synthetic", "email", "jobs", "criteo")


OURS = "Uplift (ours)"


# The paper writes sigma = 25 and exp(-|x - c|^2 / sigma^2); the second reads it as sigma^2.
WIDTHS = {"MinMaxGau, width 25": 25.0, "MinMaxGau, width 5": 5.0}


RIDGES = tuple((f, g) for f in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for g in (1e-4, 1e-2, 1.0))


PRESET = (1e-4, 1e-2)  # of the library's MinMaxGau


N_FOLDS = 2


HUGE = 1e12  # stands for the infinities of a ratio whose divisor is 0


Ridges = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of one study: everything its numbers depend on, and where its data are."""

    study: str
    trial: int
    b: float = 0.0  # distance of the policies; synthetic study only
    seed: int = 0
    small: bool = False  # sizes that only show that the program runs
    folder: str | None = None  # with the data files; None is the cache
    ridges: bool = False  # MinMaxGau alone with every pair of a wide grid, on the same rows

    def key(self) -> dict[str, Any]:
        """Return what identifies the task in a file; numbers do not depend on the folder."""
        key = asdict(self)
        del key["folder"]
        if not self.ridges:  # the key that files of finished trials have
            del key["ridges"]
        return key


@dataclass(frozen=True, slots=True)
class Fits:
    """What the methods of a trial say at the test points."""

    estimates: dict[str, Array]
    seconds: dict[str, float]  # processor time
    ridges: dict[str, Ridges]  # chosen for each width of MinMaxGau


def task_seeds(task: Task) -> tuple[int, int, int]:
    """Return the seeds of a task's training rows, test rows and methods."""
    place = (task.seed, STUDIES.index(task.study), round(task.b * 1e6), task.trial)
    first, second, third = np.random.SeedSequence(place).generate_state(3).tolist()
    return first, second, third


def baselines(*, is_binary: bool) -> tuple[str, str]:
    """Return the names of the paper's linear and neural baselines for an outcome."""
    return ("FourLogistic", "FourNNC") if is_binary else ("FourRidge", "FourNNR")


def fit_methods(data: SeparateLabels, X: Array, *, is_binary: bool, seed: int) -> Fits:
    """Fit the paper's methods and the library's default, and predict at ``X``.

    Parameters
    ----------
    data : SeparateLabels
        Training rows, and all that the choice of ridges sees.
    X : array of shape (n, d)
        Test points.
    is_binary : bool
        Whether the outcome has two values: classifiers or regressions as baselines.
    seed : int
        Of every method.

    Returns
    -------
    Fits
        Estimates in outcome units.
    """
    with warnings.catch_warnings():
        # Weak identification, exploding ratios, networks that have not settled: the scores
        # of a thousand trials show it better than a thousand warnings.
        warnings.simplefilter("ignore")
        start = time.process_time()
        ridges = _choose_ridges(data, seed)
        choosing = (time.process_time() - start) / len(WIDTHS)
        models: dict[str, Any] = {
            name: _minmax(width, ridges[name], seed) for name, width in WIDTHS.items()
        }
        models |= {
            name: BASELINES[name](random_state=seed) for name in baselines(is_binary=is_binary)
        }
        models[OURS] = Uplift(n_jobs=1, random_state=seed)
        estimates, seconds = {}, {}
        for name, model in models.items():
            start = time.process_time()
            estimates[name] = _finite(model.fit(**data).predict(X))
            seconds[name] = time.process_time() - start + (choosing if name in WIDTHS else 0.0)
    return Fits(estimates, seconds, ridges)


BASELINES: dict[str, Callable[..., Any]] = {
    "FourLogistic": FourLogistic,
    "FourNNC": FourNNC,
    "FourRidge": FourRidge,
    "FourNNR": FourNNR,
}


def _minmax(width: float, ridges: Ridges, seed: int) -> Any:
    model = MinMaxGau(width=width, ridge_f=ridges[0], ridge_g=ridges[1], random_state=seed)
    return model.set_params(n_jobs=1)


def fit_minmax(data: SeparateLabels, width: float, ridges: Ridges, seed: int) -> Any:
    """Return MinMaxGau of one width, fitted on one core."""
    return _minmax(width, ridges, seed).fit(**data)


def _choose_ridges(data: SeparateLabels, seed: int) -> dict[str, Ridges]:
    """Return for each width the pair with the lowest outcome risk on rows held out in turn.

    The risk needs no joint labels, and no row but the training rows is looked at.
    """
    risk = {name: np.zeros(len(RIDGES)) for name in WIDTHS}
    for kept, left_out in CellKFold(N_FOLDS, random_state=seed).split(**data):
        train, held = data.take(kept), data.take(left_out)
        judge = HeldOutRows.from_data(**held)
        for name, width in WIDTHS.items():
            for i, pair in enumerate(RIDGES):
                estimate = _minmax(width, pair, seed).fit(**train).predict(held.X)
                risk[name][i] += judge.score(estimate, "outcome_risk")
    return {name: RIDGES[int(np.argmin(total))] for name, total in risk.items()}


def _finite(estimate: Array) -> Array:
    return np.clip(np.nan_to_num(estimate, nan=0.0, posinf=HUGE, neginf=-HUGE), -HUGE, HUGE)


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
