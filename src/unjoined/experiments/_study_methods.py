"""What the studies of the paper's section 6 have in common: tasks, methods, ridges."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined.data import CellKFold, SeparateLabels
from unjoined.estimators import FourLogistic, FourNNC, FourNNR, FourRidge, MinMaxGau, Uplift
from unjoined.evaluate import HeldOutRows

__all__ = [
    "N_FOLDS",
    "OURS",
    "PRESET",
    "RIDGES",
    "STUDIES",
    "WIDTHS",
    "Fits",
    "Task",
    "baselines",
    "fit_methods",
    "fit_minmax",
    "task_seeds",
]

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
