"""Raw files as a company has them: a simulation in the form of the public e-mail campaign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import expit

from unjoined._support import import_extra
from unjoined._typing import Array, Frame
from unjoined.data.simulate import SimulatedProblem
from unjoined.data.write import write_table

REGIONS = ("east", "west")
ZIP_CODES = ("Rural", "Surburban", "Urban")  # spelt as in the public file
CHANNELS = ("Multichannel", "Phone", "Web")
SEGMENTS = (100.0, 200.0, 350.0, 500.0, 750.0, 1000.0)  # dollars at which brackets end
SEEDS = 2**32  # numpy takes seeds below this; larger ones wrap around


def email_problem() -> SimulatedProblem:
    """Return a simulated campaign with the columns of the public e-mail file, as numbers.

    The east mails recent buyers, the west those it has not seen for long. A mail brings lapsed
    customers back, those who bought women's merchandise more than others.
    """

    def features(n: int, rng: np.random.RandomState) -> Array:
        womens = (rng.random_sample(n) < 0.55).astype(float)
        mens = np.where(rng.random_sample(n) < 0.1, 1.0, 1.0 - womens)
        return np.column_stack(
            [
                np.minimum(1.0 + rng.geometric(0.18, n), 12.0)
                - (rng.random_sample(n) < 0.5),
                np.clip(rng.lognormal(5.0, 0.9, n), 30.0, 3300.0).round(2),
                mens,
                womens,
                rng.choice(3, n, p=[0.15, 0.45, 0.4]).astype(float),
                (rng.random_sample(n) < 0.5).astype(float),
                rng.choice(3, n, p=[0.12, 0.44, 0.44]).astype(float),
            ]
        )

    def lapsed(X: Array) -> Array:
        return np.tanh((X[:, 0] - 5.0) / 3.0)

    def chance(X: Array, treated: Array) -> Array:
        base = (
            -1.9
            + 0.4 * np.log(X[:, 1] / 150.0)
            - 0.5 * lapsed(X)
            + 0.4 * (X[:, 6] == 2.0)
        )
        effect = 0.3 + 1.1 * lapsed(X) + 0.9 * (X[:, 3] - 0.5) - 0.5 * (X[:, 4] == 0.0)
        return np.asarray(expit(base + treated * effect))

    return SimulatedProblem(
        features=features,
        policies={
            "east": lambda X: expit(0.2 - 1.8 * lapsed(X)),
            "west": lambda X: expit(0.2 + 1.8 * lapsed(X)),
        },
        outcome=lambda X, treated, rng: (
            rng.random_sample(len(X)) < chance(X, treated)
        ).astype(float),
        outcome_mean=chance,
        feature_names=(
            "recency",
            "history",
            "mens",
            "womens",
            "zip_code",
            "newbie",
            "channel",
        ),
    )


def raw_customers(n: int, *, seed: int, first_id: int = 1) -> tuple[Frame, Array]:
    """Draw customers as a raw table, and their true uplift in visits per customer."""
    rows = email_problem().draw_joint(n, random_state=seed % SEEDS)
    return _roughen(_texts(rows.X), first_id, seed), rows.uplift


def write_raw_files(
    folder: Path, *, n_per_table: int, n_customers: int, seed: int
) -> dict[str, Path]:
    """Write four raw tables of the simulated campaign and one of customers to score, as CSV."""
    data = email_problem().draw(n_per_table, random_state=seed)
    parts = {}
    for kind in ("outcome", "treatment"):
        for name in REGIONS:
            at = data.rows(kind, name)
            parts[kind, name] = _texts(np.asarray(data.X)[at]), data.checked.label[at]
    customers = _texts(
        email_problem().draw_joint(n_customers, random_state=(seed + 1) % SEEDS).X
    )
    return write_shop(folder, parts, customers, seed)


Columns = dict[str, list[str]]


def _texts(X: Array) -> Columns:
    """Return features of the simulation as the columns of the public file, all text."""
    recency, history, mens, womens, place, newbie, channel = X.T
    ends = np.array(SEGMENTS)
    bracket = np.searchsorted(ends, history, side="right")
    names = [
        f"{j + 1}) ${0 if j == 0 else ends[j - 1]:,.0f} - ${ends[j]:,.0f}"
        for j in range(6)
    ]
    names.append("7) $1,000 +")
    return {
        "recency": [f"{v:.0f}" for v in recency],
        "history_segment": [names[j] for j in bracket],
        "history": [f"{v:.2f}" for v in history],
        "mens": [f"{v:.0f}" for v in mens],
        "womens": [f"{v:.0f}" for v in womens],
        "zip_code": [ZIP_CODES[int(v)] for v in place],
        "newbie": [f"{v:.0f}" for v in newbie],
        "channel": [CHANNELS[int(v)] for v in channel],
    }


def _roughen(columns: Columns, first_id: int, seed: int) -> Frame:
    """Return columns as a company has them: an id, a date of entry, cells that are empty."""
    n = len(columns["recency"])
    rng = np.random.RandomState((seed + first_id) % SEEDS)
    day = np.datetime64("2021-01-01") + rng.randint(0, 1000, n)
    rough: dict[str, list[str | None]] = {
        "customer_id": [str(first_id + i) for i in range(n)],
        "signed_up": [str(d) for d in day],
    }
    for name, values in columns.items():
        share = {"history": 0.05, "channel": 0.03}.get(name, 0.0)
        gone = rng.random_sample(n) < share
        rough[name] = [None if g else v for v, g in zip(values, gone, strict=True)]
    return import_extra("pyarrow", extra="cli").table(rough)


def write_shop(
    folder: Path,
    parts: dict[tuple[str, str], tuple[Columns, Array]],
    people: Columns,
    seed: int,
) -> dict[str, Path]:
    """Write tables, by kind and region, and people to score; treatments have columns reversed."""
    folder.mkdir(parents=True, exist_ok=True)
    arrow = import_extra("pyarrow", extra="cli")
    written, first = {}, 100_001
    for (kind, region), (columns, label) in parts.items():
        table = _roughen(columns, first, seed)
        first += len(label)
        if kind == "outcome":
            table = table.append_column("visit", arrow.array(label.astype(np.int8)))
        else:
            table = table.select(table.column_names[::-1])
            mailed = ["yes" if v > 0.0 else "no" for v in label]
            table = table.add_column(0, "mailed", arrow.array(mailed))
        name = f"{'visits' if kind == 'outcome' else 'mailings'}_{region}"
        written[name] = write_table(table, folder / f"{name}.csv")
    written["customers"] = write_table(
        _roughen(people, first, seed), folder / "customers.csv"
    )
    return written
