"""The paper's studies on real trials, taken apart into four tables (Figure 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from unjoined._typing import Array, IntArray
from unjoined.data import SeparateLabels, unjoin
from unjoined.datasets import PublicData, data_folder, fetch_criteo, fetch_email, fetch_jobs
from unjoined.errors import InputError, TableError
from unjoined.metrics import auuc, joint_values, uplift_curve
from unjoined.reproduce.studies import Task, fit_methods, task_seeds

SHARES = np.linspace(0.0, 1.0, 21)  # where curves are averaged over trials


SIZES = {"email": (5_000, 2_000), "jobs": (50, 100), "criteo": (5_000, 2_000)}


SMALL_SIZES = {"email": (60, 100), "jobs": (50, 60), "criteo": (60, 100)}


UNITS = {"email": "visits", "jobs": "dollars", "criteo": "clicks"}


ATTEMPTS = 50  # at a draw that fills all four tables


# Criteo: the file of the 2017 challenge, what its token numbers mean, and where to stop.
CRITEO_FILES = ("criteo_train_small_logged_only.txt", "criteo_train_small.txt")


CRITEO_INDEX = "display_feature_indices_derived.csv"


CRITEO_ROWS = 200_000


OVERLAP = 0.2  # rows whose treatment is more certain than this are left out


FEWEST = 50  # rows of a category with an indicator of its own in the propensity model


ROOM = 0.9  # of the rows that sub-sampling leaves on average


@dataclass(frozen=True, slots=True)
class TrialStudy:
    """A trial made ready for the study."""

    name: str
    X: Array  # (n, d) standardised
    y: Array  # (n,) outcome units
    treatment: Array  # (n,) 0 or 1
    propensity: Array  # (n,) known, or estimated for Criteo
    n_train: int  # rows of a table
    n_test: int
    is_binary: bool
    unit: str


def trial_size(name: str, *, small: bool) -> tuple[int, int]:
    """Return the rows of a table, at most, and of the test."""
    return (SMALL_SIZES if small else SIZES)[name]


def real_tasks(
    name: str,
    trials: int,
    *,
    seed: int,
    small: bool,
    folder: str | None,
    ridges: bool = False,
) -> list[Task]:
    """Return the tasks of one study, or of the ridge study on the same rows."""
    return [Task(name, trial, 0.0, seed, small, folder, ridges) for trial in range(trials)]


@lru_cache(maxsize=4)
def load_study(name: str, *, small: bool = False, folder: str | None = None) -> TrialStudy:
    r"""Read a trial, standardise its features, and say how many rows its tables can have.

    Parameters
    ----------
    name : {"email", "jobs", "criteo"}
        Which data.
    small : bool, default=False
        Sizes that only show that the program runs.
    folder : str, optional
        Folder with the files, in it or one below; by default the cache, and the download.

    Returns
    -------
    TrialStudy
        Kept in memory for the next call.

    Raises
    ------
    TableError
        The files cannot be had; the message says what to do.
    InputError
        They have too few rows for the study.
    """
    n_train, n_test = trial_size(name, small=small)
    data = READERS[name](folder)
    X, propensity, rows = (_encode_criteo if name == "criteo" else _as_is)(data)
    X = StandardScaler().fit_transform(X[rows])
    treated, e = data.treatment[rows], propensity[rows]
    room = int(ROOM * (len(X) - n_test) / 4.0 / _largest_ratio(X, e))
    if name == "criteo":
        n_train = min(n_train, room)
    if n_train < 10 or room < n_train / 2:
        raise InputError(
            f"the {name} data have {len(X)} rows that can be used, enough for tables of {room} "
            f"rows beside {n_test} test rows, but {max(n_train, 10)} are needed. Give the whole "
            "file."
        )
    return TrialStudy(
        name=name,
        X=X,
        y=data.y[rows],
        treatment=treated,
        propensity=e,
        n_train=n_train,
        n_test=n_test,
        is_binary=name != "jobs",
        unit=UNITS[name],
    )


def real_trial(task: Task) -> tuple[dict[str, Any], dict[str, float]]:
    """Set test rows aside, take the others apart, fit every method, and compare with the test.

    Parameters
    ----------
    task : Task
        Which draw.

    Returns
    -------
    result : dict
        Numbers ready for JSON, in outcome units per person: the area under each uplift curve
        (ties counted half) and the curve itself at `SHARES`, by inverse propensity scores.
    seconds : dict of str to float
        Processor time by method.
    """
    study, data, test, values = draw_real(task)
    seed = task_seeds(task)[2]
    fits = fit_methods(data, study.X[test], is_binary=study.is_binary, seed=seed)
    result = {
        "n": study.n_train,
        "random": float(values.mean()) / 2.0,
        "methods": {
            name: {
                "auuc": auuc(estimate, values).value,
                "gain": uplift_curve(estimate, values).at(SHARES).tolist(),
            }
            for name, estimate in fits.estimates.items()
        },
        "ridges": fits.ridges,
    }
    return result, fits.seconds


def draw_real(task: Task) -> tuple[TrialStudy, SeparateLabels, IntArray, Array]:
    """Return the study, the training rows, the test rows, and an estimate of uplift at these."""
    study = load_study(task.study, small=task.small, folder=task.folder)
    train_seed, test_seed, _ = task_seeds(task)
    order = np.random.RandomState(test_seed).permutation(len(study.y))
    test, rest = order[: study.n_test], order[study.n_test :]
    values = joint_values(study.y[test], study.treatment[test], propensity=study.propensity[test])
    return study, _four_tables(study, rest, train_seed), test, values


def _policies() -> dict[str, Callable[[Array], Array]]:
    """Return the paper's policies for Criteo, p(t | x) = 1 / (1 + exp(-+ t 1'x)), 1 is treated."""
    return {"1": lambda X: expit(X.sum(axis=1)), "2": lambda X: expit(-X.sum(axis=1))}


def _four_tables(study: TrialStudy, rows: IntArray, seed: int) -> SeparateLabels:
    """Sub-sample until every table is full: a few draws leave one of them a few rows short."""
    rng = np.random.RandomState(seed)
    for attempt in range(ATTEMPTS):
        try:
            return unjoin(
                study.X[rows],
                study.y[rows],
                study.treatment[rows],
                propensity=study.propensity[rows],
                policies=_policies(),
                n_per_table=study.n_train,
                random_state=rng,
            ).data
        except InputError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError  # pragma: no cover - the loop returns or raises


def _largest_ratio(X: Array, e: Array) -> float:
    """Return the largest p_k(t | x) / p(t | x): one row in this many is kept."""
    ratios = [
        ratio.max()
        for policy in _policies().values()
        for ratio in (policy(X) / e, (1.0 - policy(X)) / (1.0 - e))
    ]
    return float(max(ratios))


def _as_is(data: PublicData) -> tuple[Array, Array, IntArray]:
    if data.propensity is None:  # pragma: no cover - both trials were randomised
        raise AssertionError
    return data.X, data.propensity, np.arange(data.n_rows)


def _encode_criteo(data: PublicData) -> tuple[Array, Array, IntArray]:
    """Return features, the propensity of feature 12 given them, and the rows with overlap.

    Codes of categories have no order, so that each is replaced by the logarithm of how often it
    occurs, which needs no label. What was logged is the propensity of the product; that of its
    feature 12 is estimated by logistic regression on indicators of the categories.
    """
    codes = [data.feature_names.index(name) for name in data.categorical]
    numbers = [j for j in range(data.X.shape[1]) if j not in codes]
    X = data.X.copy()
    for j in codes:
        _, code, count = np.unique(X[:, j], return_inverse=True, return_counts=True)
        X[:, j] = np.log(count[code])
    indicators = OneHotEncoder(min_frequency=FEWEST, handle_unknown="infrequent_if_exist")
    model = make_pipeline(
        make_column_transformer((StandardScaler(), numbers), (indicators, codes)),
        LogisticRegression(max_iter=2_000),
    ).fit(data.X, data.treatment)
    e = model.predict_proba(data.X)[:, 1]
    return X, e, np.flatnonzero((e >= OVERLAP) & (e <= 1.0 - OVERLAP))


def _find(folder: str, name: str) -> Path | None:
    """Return a file in the folder or one below, plain or gzipped."""
    found = sorted(
        path
        for pattern in (name, f"*/{name}", f"{name}.gz", f"*/{name}.gz")
        for path in Path(folder).glob(pattern)
    )
    return found[0] if found else None


def _read_email(folder: str | None) -> PublicData:
    return fetch_email(path=_folder_of("Kevin_Hillstrom_*.csv", folder), progress=folder is None)


def _read_jobs(folder: str | None) -> PublicData:
    return fetch_jobs(path=_folder_of("nsw_treated.txt", folder))


def _folder_of(name: str, folder: str | None) -> Path | None:
    if folder is None:
        return None
    file = _find(folder, name)
    return Path(folder) if file is None else file.parent  # the fetcher says what it misses


def _read_criteo(folder: str | None) -> PublicData:
    place = str(data_folder()) if folder is None else folder
    file = next(filter(None, (_find(place, name) for name in CRITEO_FILES)), None)
    if file is None:
        try:
            return fetch_criteo(path=folder, max_rows=CRITEO_ROWS)
        except TableError as error:
            raise TableError(
                f"{error} A part of it will do, in the form of the 2017 challenge: "
                f"{CRITEO_FILES[0]!r}, plain or gzipped, with {CRITEO_INDEX!r} beside it."
            ) from error
    index = file.parent / CRITEO_INDEX
    return fetch_criteo(
        path=file, max_rows=CRITEO_ROWS, display_index=index if index.is_file() else None
    )


READERS: dict[str, Callable[[str | None], PublicData]] = {
    "email": _read_email,
    "jobs": _read_jobs,
    "criteo": _read_criteo,
}
