"""What is studied: the draws of the paper's synthetic and real data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from studies.criteo import fetch_criteo
from unjoined._typing import Array, IntArray
from unjoined.data import SeparateLabels, paper_problem, unjoin
from unjoined.datasets import PublicData, data_folder, fetch_email, fetch_jobs
from unjoined.errors import InputError, TableError
from unjoined.evaluate import joint_values

STUDIES = ("synthetic", "email", "jobs", "criteo")
OURS = "Uplift (ours)"
# The paper writes sigma = 25 and exp(-|x - c|^2 / sigma^2); the second reads it as sigma^2.
WIDTHS = {"MinMaxGau, width 25": 25.0, "MinMaxGau, width 5": 5.0}
RIDGES = tuple(
    (f, g) for f in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for g in (1e-4, 1e-2, 1.0)
)
PRESET = (1e-4, 1e-2)  # ridges of the library's MinMaxGau
# With a large ridge_g the answer depends on the product of the two ridges alone, with a large
# ridge_f it is 0 but for a factor, and below 1e-8 neither matters any more.
GRID_F = tuple(float(f"1e{k}") for k in range(-8, 3))
GRID_G = tuple(float(f"1e{k}") for k in range(-8, 4))
STUDY_PAIRS = [
    (GRID_F.index(f), GRID_G.index(g)) for f, g in RIDGES
]  # positions in the grid

GRID_B = tuple(round(10.0 * i / 24.0, 4) for i in range(25))
SMALL_B = (5.0, 10.0)
CLOSE_B = 1.0  # of Figure 2; between two points of the grid
RIDGE_B = (
    CLOSE_B,
    2.0833,
    5.0,
    10.0,
)  # 2.0833 is where the paper's claim about 2 is decided
LARGEST_ERROR = 16.0  # squared, of any answer in the possible range of uplift, [-2, 2]

# Rows of a table, at most, and of the test; the paper states neither for synthetic data.
SIZES = {"synthetic": (500, 10_000), "email": (5_000, 2_000), "jobs": (50, 100)}
SIZES["criteo"] = SIZES["email"]
SMALL_SIZES = {
    "synthetic": (60, 500),
    "email": (60, 100),
    "jobs": (50, 60),
    "criteo": (60, 100),
}
UNITS = {"email": "visits", "jobs": "dollars", "criteo": "clicks"}
SHARES = np.linspace(0.0, 1.0, 21)  # where curves are averaged over trials
ATTEMPTS = 50  # at a draw that fills all four tables
# Criteo: the file of the 2017 challenge, what its token numbers mean, and where to stop.
CRITEO_FILES = ("criteo_train_small_logged_only.txt", "criteo_train_small.txt")
CRITEO_INDEX = "display_feature_indices_derived.csv"
CRITEO_ROWS = 200_000
OVERLAP = 0.2  # rows whose treatment is more certain than this are left out
FEWEST = 50  # rows of a category with an indicator of its own in the propensity model
ROOM = 0.9  # of the rows that sub-sampling leaves on average
# The paper's policies for Criteo, p(t | x) = 1 / (1 + exp(-+ t 1'x)); 1 is treated.
POLICIES: dict[str, Callable[[Array], Array]] = {
    "1": lambda X: expit(X.sum(axis=1)),
    "2": lambda X: expit(-X.sum(axis=1)),
}

Record = dict[str, Any]  # a finished task, ready for a line of JSON


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of one study: everything its numbers depend on, and where its data are."""

    study: str
    trial: int
    b: float = 0.0  # distance of the policies; synthetic study only
    seed: int = 0
    small: bool = False  # sizes that only show that the program runs
    folder: str | None = None  # with the data files; None is the cache
    ridges: bool = (
        False  # MinMaxGau alone with every pair of a wide grid, on the same rows
    )

    def key(self) -> dict[str, Any]:
        """Return what identifies the task in a file; numbers do not depend on the folder."""
        key = asdict(self)
        del key["folder"]
        if not self.ridges:  # the key that files of finished trials have
            del key["ridges"]
        return key

    @property
    def size(self) -> tuple[int, int]:
        """Rows of a table, at most, and of the test."""
        return (SMALL_SIZES if self.small else SIZES)[self.study]

    @property
    def seeds(self) -> tuple[int, int, int]:
        """Seeds of the training rows, the test rows and the methods."""
        place = (self.seed, STUDIES.index(self.study), round(self.b * 1e6), self.trial)
        first, second, third = np.random.SeedSequence(place).generate_state(3).tolist()
        return first, second, third


@dataclass(frozen=True, slots=True)
class Draw:
    """The rows of a task: four tables to train on, and test points with values of uplift."""

    data: SeparateLabels
    X: Array  # (n, d) test points
    values: Array  # (n,) uplift there, true or estimated without bias, outcome units
    is_binary: bool  # the outcome
    n: int  # rows of a table


def study_tasks(
    study: str, trials: int, *, seed: int, small: bool, folder: str | None, ridges: bool
) -> list[Task]:
    """Return the tasks of a study, trial by trial, so that a part of a run is useful."""
    points: tuple[float, ...] = (0.0,)
    if study == "synthetic":
        folder = None
        points = (
            RIDGE_B
            if ridges
            else tuple(sorted({*(SMALL_B if small else GRID_B), CLOSE_B}))
        )
    return [
        Task(study, trial, b, seed, small, folder, ridges)
        for trial in range(trials)
        for b in points
    ]


def draw_rows(task: Task) -> Draw:
    """Draw training and test rows; test rows of a real trial are set aside first."""
    train_seed, test_seed, _ = task.seeds
    if task.study == "synthetic":
        problem, (n, n_test) = paper_problem(task.b), task.size
        test = problem.draw_joint(n_test, random_state=test_seed)
        return Draw(
            problem.draw(n, random_state=train_seed), test.X, test.uplift, True, n
        )
    study = load_study(task.study, small=task.small, folder=task.folder)
    order = np.random.RandomState(test_seed).permutation(len(study.y))
    rows, rest = order[: study.n_test], order[study.n_test :]
    values = joint_values(
        study.y[rows], study.treatment[rows], propensity=study.propensity[rows]
    )
    data = _four_tables(study, rest, train_seed)
    return Draw(data, study.X[rows], values, task.study != "jobs", study.n_train)


@dataclass(frozen=True, slots=True)
class TrialStudy:
    """A trial made ready for the study."""

    X: Array  # (n, d) standardised
    y: Array  # (n,) outcome units
    treatment: Array  # (n,) 0 or 1
    propensity: Array  # (n,) known, or estimated for Criteo
    n_train: int  # rows of a table
    n_test: int


@lru_cache(maxsize=4)
def load_study(name: str, *, small: bool, folder: str | None) -> TrialStudy:
    """Read a trial, standardise its features, and say how many rows its tables can have."""
    n_train, n_test = Task(name, 0, small=small).size
    data = READERS[name](folder)
    if data.propensity is None:
        X, e, rows = _encode_criteo(data)
    else:
        X, e, rows = data.X, data.propensity, np.arange(data.n_rows)
    X, e = StandardScaler().fit_transform(X[rows]), e[rows]
    room = int(ROOM * (len(X) - n_test) / 4.0 / _largest_ratio(X, e))
    if name == "criteo":
        n_train = min(n_train, room)
    if n_train < 10 or room < n_train / 2:
        raise InputError(
            f"the {name} data have {len(X)} rows that can be used, enough for tables of {room} "
            f"rows beside {n_test} test rows, but {max(n_train, 10)} are needed. Give the whole "
            "file."
        )
    return TrialStudy(X, data.y[rows], data.treatment[rows], e, n_train, n_test)


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
                policies=POLICIES,
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
        for policy in POLICIES.values()
        for ratio in (policy(X) / e, (1.0 - policy(X)) / (1.0 - e))
    ]
    return float(max(ratios))


def _encode_criteo(data: PublicData) -> tuple[Array, Array, IntArray]:
    """Return features, the propensity of feature 12 given them, and the rows with overlap.

    Codes of categories have no order, so each is replaced by the logarithm of how often it
    occurs, which needs no label. What was logged is the propensity of the product; that of its
    feature 12 is estimated by logistic regression on indicators of the categories.
    """
    codes = [data.feature_names.index(name) for name in data.categorical]
    numbers = [j for j in range(data.X.shape[1]) if j not in codes]
    X = data.X.copy()
    for j in codes:
        _, code, count = np.unique(X[:, j], return_inverse=True, return_counts=True)
        X[:, j] = np.log(count[code])
    indicators = OneHotEncoder(
        min_frequency=FEWEST, handle_unknown="infrequent_if_exist"
    )
    model = make_pipeline(
        make_column_transformer((StandardScaler(), numbers), (indicators, codes)),
        LogisticRegression(max_iter=2_000),
    ).fit(data.X, data.treatment)
    e = model.predict_proba(data.X)[:, 1]
    return X, e, np.flatnonzero((e >= OVERLAP) & (e <= 1.0 - OVERLAP))


def _find(folder: str, name: str) -> Path | None:
    """Return a file in the folder or one below, plain or gzipped."""
    patterns = (name, f"*/{name}", f"{name}.gz", f"*/{name}.gz")
    return min(
        (file for one in patterns for file in Path(folder).glob(one)), default=None
    )


def _folder_of(name: str, folder: str | None) -> Path | None:
    """Return the folder a file is in; a missing one is reported where it is read."""
    file = None if folder is None else _find(folder, name)
    return file.parent if file is not None else None if folder is None else Path(folder)


def _read_email(folder: str | None) -> PublicData:
    return fetch_email(
        path=_folder_of("Kevin_Hillstrom_*.csv", folder), progress=folder is None
    )


def _read_jobs(folder: str | None) -> PublicData:
    return fetch_jobs(path=_folder_of("nsw_treated.txt", folder))


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
        path=file,
        max_rows=CRITEO_ROWS,
        display_index=index if index.is_file() else None,
    )


READERS: dict[str, Callable[[str | None], PublicData]] = {
    "email": _read_email,
    "jobs": _read_jobs,
    "criteo": _read_criteo,
}
