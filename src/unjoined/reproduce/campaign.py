"""The whole job on a simulated campaign, where the truth is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unjoined._optional import import_extra
from unjoined._typing import Array, Frame
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data import SeparateLabels, campaign_problem, read_table, write_table
from unjoined.estimators import (
    FourLogistic,
    FourNNC,
    MinMaxGau,
    MinMaxUplift,
    Uplift,
    UpliftEstimator,
)
from unjoined.metrics import Estimate, UpliftCurve, qini, uplift_curve

SEEDS = 2**32  # that numpy takes; those behind the largest begin anew


OUTCOME_COLUMN, TREATMENT_COLUMN = "bought", "mailed"


# The default; the paper's method, as the library sets it up and as the paper did; its baselines.
CAMPAIGN_METHODS: dict[str, Callable[..., UpliftEstimator]] = {
    "Uplift": Uplift,
    "MinMaxUplift": MinMaxUplift,
    "MinMaxGau": MinMaxGau,
    "FourLogistic": FourLogistic,
    "FourNNC": FourNNC,
}


@dataclass(frozen=True, slots=True)
class CampaignFiles:
    """Where the campaign's tables are."""

    outcomes: dict[str, Path]  # by population
    treatments: dict[str, Path]  # by population
    customers: Path  # people to be scored


@dataclass(frozen=True, slots=True)
class MethodResult:
    """How one method did against the simulated truth."""

    name: str
    model: UpliftEstimator
    oracle_share: Estimate  # 0 is a random order, 1 the order of the true uplift
    squared_error: float  # mean squared error over the variance of the true uplift
    curve: UpliftCurve
    seconds: float  # to fit and predict


def write_campaign(folder: Path, *, n_per_table: int, n_customers: int, seed: int) -> CampaignFiles:
    """Write the four tables of a simulated campaign and a table of customers, as Parquet.

    Parameters
    ----------
    folder : Path
        Made if it does not exist; files of the same names are replaced.
    n_per_table, n_customers : int
        Rows in each of the four tables, and people to be scored.
    seed : int
        The same seed writes the same rows.

    Returns
    -------
    CampaignFiles
    """
    pyarrow = import_extra("pyarrow", extra="cli")
    problem = campaign_problem()
    data = problem.draw(n_per_table, random_state=seed)
    X, y = np.asarray(data.X), np.asarray(data.y)
    folder.mkdir(parents=True, exist_ok=True)

    def write(kind: str, column: str) -> dict[str, Path]:
        files = {}
        for population in problem.policies:
            at = data.rows(kind, population)
            table = pyarrow.table(_columns(X[at]) | {column: y[at].astype(np.int8)})
            files[population] = write_table(table, folder / f"{kind}s_{population}.parquet")
        return files

    people = problem.draw_joint(n_customers, random_state=(seed + 1) % SEEDS).X
    ids = {"customer_id": np.arange(100_001, 100_001 + n_customers)}
    return CampaignFiles(
        outcomes=write(OUTCOME, OUTCOME_COLUMN),
        treatments=write(TREATMENT, TREATMENT_COLUMN),
        customers=write_table(pyarrow.table(ids | _columns(people)), folder / "customers.parquet"),
    )


def read_campaign(files: CampaignFiles) -> SeparateLabels:
    """Read the four tables back, as a user's own files would be."""
    return SeparateLabels.from_tables(
        outcomes={name: read_table(path) for name, path in files.outcomes.items()},
        treatments={name: read_table(path) for name, path in files.treatments.items()},
        outcome=OUTCOME_COLUMN,
        treatment=TREATMENT_COLUMN,
    )


def draw_truth(n: int, *, seed: int) -> tuple[Frame, Array]:
    """Draw fresh customers as a table, and their true uplift in purchases per customer."""
    rows = campaign_problem().draw_joint(n, random_state=seed % SEEDS)
    return import_extra("pyarrow", extra="cli").table(_columns(rows.X)), rows.uplift


def compare_methods(
    data: SeparateLabels, table: Frame, truth: Array, *, seed: int
) -> Iterator[MethodResult]:
    """Fit each method, one per step, and compare its ranking of ``table`` with the truth."""
    for name, method in CAMPAIGN_METHODS.items():
        start = time.perf_counter()
        model = method(random_state=seed).fit(**data)
        predicted = model.predict(table)
        seconds = time.perf_counter() - start
        yield MethodResult(
            name=name,
            model=model,
            oracle_share=qini(predicted, truth, normalize=True),
            squared_error=float(np.mean((predicted - truth) ** 2) / np.var(truth)),
            curve=uplift_curve(predicted, truth),
            seconds=seconds,
        )


def _columns(X: Array) -> dict[str, Array]:
    names = campaign_problem().feature_names or ()
    return {name: X[:, j] for j, name in enumerate(names)}
