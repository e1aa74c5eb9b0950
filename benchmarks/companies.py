"""Three made-up companies whose files are as companies have them, from `init` to `report`.

Run: python benchmarks/companies.py [telecom hospital ads] [--rows N] [--people N] [--seed 0]
     [--folder FOLDER]

- telecom: German CSV files (semicolons, decimal commas, thousands points, dd.mm.yyyy, ja/nein,
  umlauts in cp1252), with zip codes that begin with 0, numbers that are codes of shops, and -999
  for an unknown age. The outcome is money.
- hospital: three sites, of which one has Excel, one Parquet and one CSV; missing values, integer
  codes of wards, ICD codes, dates. The outcome is yes or no.
- ads: 4 x 200,000 rows of CSV with a rare outcome.

The true uplift of everybody is known. Each journey is `init`, `check`, `fit`, `score` and `report`
as a user types them, without an edit in between. Prints for each company

- the true gain of the list (the best 30 %) as a share of the gain of the list that a fit to clean
  columns, typed correctly, gives (aim: at least 0.9), and both as a share of the best list;
- the share of people whose interval, uplift_low to uplift_high, holds their true uplift (aim: at
  least 70 %, or none is printed);
- the processor time of `fit` in seconds.
"""

import argparse
import contextlib
import io
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

from unjoined import SeparateLabels, Uplift, read_table
from unjoined._typing import Array
from unjoined.cli.entry import main

SHARE = 0.3  # of people who are treated
Frame = pd.DataFrame
Tables = dict[tuple[str, str], Frame]  # by kind and population


class Company(NamedTuple):
    """A company: what its people are like, what it does to them, and how it writes that down."""

    draw: Callable[[np.random.Generator, int], Frame]  # features, typed correctly
    policies: dict[str, Callable[[Frame], Array]]  # chance of treatment, by population
    mean: Callable[[Frame], Array]  # of the outcome without treatment
    uplift: Callable[[Frame], Array]
    spread: float | None  # of a real outcome; None for yes or no
    outcome: str
    treatment: str
    write: Callable[[Path, Tables, Frame], None]  # raw files of tables and of people
    identifier: str
    rows: int  # of each table
    people: int


def draw_tables(company: Company, n: int, rng: np.random.Generator) -> Tables:
    """Return an outcome and a treatment table of each population, with clean columns."""
    tables = {}
    for name, policy in company.policies.items():
        for kind in ("outcomes", "treatments"):
            rows = company.draw(rng, n)
            treated = rng.random(n) < policy(rows)
            label = treated.astype(int)
            if kind == "outcomes":
                mean = company.mean(rows) + treated * company.uplift(rows)
                if company.spread is None:
                    label = (rng.random(n) < mean).astype(int)
                else:
                    label = (mean + company.spread * rng.standard_normal(n)).round(2)
            column = company.outcome if kind == "outcomes" else company.treatment
            tables[kind, name] = rows.assign(**{column: label})
    return tables


# A telecom in Germany.

TARIFFS = ("Flex", "Größe M", "Überall")
ZIPS = tuple(
    f"{z:05d}" for z in (1067, 1099, 4103, 6108, 7743, 9111, 10115, 20095, 50667, 80331)
)
SHOPS = tuple(range(100, 120))
SHOP_EFFECTS = np.random.default_rng(7).normal(0.0, 4.0, len(SHOPS))
TODAY = pd.Timestamp("2024-06-30")


def _subscribers(rng: np.random.Generator, n: int) -> Frame:
    age = rng.integers(18, 85, n).astype(float)
    age[rng.random(n) < 0.08] = np.nan
    return Frame(
        {
            "Kunde seit": TODAY - pd.to_timedelta(rng.integers(30, 4000, n), unit="D"),
            "PLZ": rng.choice(ZIPS, n),
            "Filiale": np.char.add("F", rng.choice(SHOPS, n).astype(str)),
            "Tarif": rng.choice(TARIFFS, n, p=[0.5, 0.3, 0.2]),
            "Alter": age,
            "Datenvolumen": rng.gamma(2.0, 4.0, n).round(2),
            "Rechnung": rng.lognormal(6.5, 0.8, n).round(2),
        }
    )


def _years(rows: Frame) -> Array:
    return np.asarray((TODAY - rows["Kunde seit"]).dt.days / 365.25)


def _shop(rows: Frame) -> Array:
    return np.asarray(rows["Filiale"].str[1:].astype(int) - SHOPS[0])


def _telecom_mean(rows: Frame) -> Array:
    bill = np.log(rows["Rechnung"]) - 6.5
    east = rows["PLZ"].str.startswith("0")
    return np.asarray(40.0 + 6.0 * bill + 0.5 * rows["Datenvolumen"] - 4.0 * east)


def _telecom_uplift(rows: Frame) -> Array:
    old = np.tanh((_years(rows) - 5.0) / 2.0)
    young = np.where(
        rows["Alter"].isna(), 0.0, (50.0 - rows["Alter"].fillna(50.0)) / 20.0
    )
    return np.asarray(
        4.0 * old
        + SHOP_EFFECTS[_shop(rows)]
        + 2.0 * young
        - 3.0 * (rows["Tarif"] == "Flex")
        + 1.0
    )


def _called(sign: float) -> Callable[[Frame], Array]:
    def chance(rows: Frame) -> Array:
        return np.asarray(
            expit(sign * (1.0 + 0.3 * (_years(rows) - 5.0)) + 0.1 * _shop(rows) - 1.0)
        )

    return chance


def _german(value: float) -> str:
    return (
        "" if np.isnan(value) else f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
    )


def _write_telecom(folder: Path, tables: Tables, people: Frame) -> None:
    for i, ((kind, region), rows) in enumerate(tables.items(), 1):
        name = {"outcomes": "umsatz", "treatments": "telefonaktion"}[kind]
        ids = [f"K{i}{j:06d}" for j in range(len(rows))]
        _write_german(folder / f"{name}_{region}.csv", rows.assign(Kundennummer=ids))
    _write_german(folder / "kunden.csv", people)


def _write_german(path: Path, rows: Frame) -> None:
    raw = rows.copy()
    raw["Kunde seit"] = raw["Kunde seit"].dt.strftime("%d.%m.%Y")
    raw["Filiale"] = raw["Filiale"].str[1:]
    raw["Alter"] = raw["Alter"].fillna(-999).astype(int)
    for column in {"Datenvolumen", "Rechnung", "Umsatz"} & {*raw.columns}:
        raw[column] = raw[column].map(_german)
    if "Angerufen" in raw:
        raw["Angerufen"] = np.where(raw["Angerufen"] == 1, "ja", "nein")
    raw.to_csv(path, sep=";", index=False, encoding="cp1252")


# A hospital with three sites.

CODES = ("I10", "E11", "J44", "N18", "I50", "C34")
WARDS = tuple(range(1, 13))
WARD_EFFECTS = np.random.default_rng(8).normal(0.0, 0.12, len(WARDS))


def _patients(rng: np.random.Generator, n: int) -> Frame:
    creatinine = rng.lognormal(0.1, 0.4, n).round(2)
    creatinine[rng.random(n) < 0.2] = np.nan
    bmi = rng.normal(27.0, 5.0, n).round(1)
    bmi[rng.random(n) < 0.1] = np.nan
    return Frame(
        {
            "age": np.clip(rng.normal(64.0, 14.0, n), 18, 99).astype(int),
            "sex": np.char.add(
                "s", rng.choice([1, 2, 9], n, p=[0.48, 0.48, 0.04]).astype(str)
            ),
            "ward": np.char.add("w", rng.choice(WARDS, n).astype(str)),
            "diagnosis": rng.choice(CODES, n),
            "admitted": pd.Timestamp("2023-01-01")
            + pd.to_timedelta(rng.integers(0, 365, n), "D"),
            "creatinine": creatinine,
            "bmi": bmi,
            "stays": rng.poisson(1.0, n),
        }
    )


def _ward(rows: Frame) -> Array:
    return np.asarray(rows["ward"].str[1:].astype(int) - WARDS[0])


def _hospital_mean(rows: Frame) -> Array:
    kidney = rows["creatinine"].fillna(1.1) - 1.1
    return np.asarray(
        expit(-0.2 - 0.02 * (rows["age"] - 64.0) - 0.3 * rows["stays"] - 0.5 * kidney)
        * 0.5
        + 0.25
    )


def _hospital_uplift(rows: Frame) -> Array:
    heart = rows["diagnosis"].isin(["I10", "I50"])
    return np.clip(
        WARD_EFFECTS[_ward(rows)] - 0.004 * (rows["age"] - 64.0) + 0.12 * heart - 0.04,
        -0.24,
        0.24,
    )


def _enrolled(level: float, by_age: float, by_ward: float) -> Callable[[Frame], Array]:
    def chance(rows: Frame) -> Array:
        ward = (_ward(rows) - 5.5) / 3.0
        return np.asarray(
            expit(level + by_age * (rows["age"] - 64.0) / 14.0 + by_ward * ward)
        )

    return chance


def _write_hospital(folder: Path, tables: Tables, people: Frame) -> None:
    for (kind, site), rows in tables.items():
        raw = _as_kept(rows, f"{site[0].upper()}{kind[0].upper()}")
        (folder / site).mkdir(exist_ok=True)
        if site == "city":
            raw.to_excel(folder / site / f"{kind}.xlsx", index=False)
        elif site == "lake":
            raw.to_parquet(folder / site / f"{kind}.parquet", index=False)
        else:
            raw.to_csv(folder / site / f"{kind}.csv", index=False)
    _as_kept(people, "").to_csv(folder / "patients.csv", index=False)


def _as_kept(rows: Frame, prefix: str) -> Frame:
    """Return rows with codes as whole numbers, days without a time, and a number for each."""
    raw = rows.assign(
        sex=rows["sex"].str[1:].astype(int),
        ward=rows["ward"].str[1:].astype(int),
        admitted=rows["admitted"].dt.date,
    )
    if prefix:
        raw.insert(0, "mrn", [f"{prefix}{i:06d}" for i in range(len(raw))])
    return raw


# Advertisements.


def _users(rng: np.random.Generator, n: int) -> Frame:
    idle = {f"signal_{j}": rng.standard_normal(n).round(3) for j in range(6)}
    return Frame(
        {
            "age": rng.integers(16, 80, n),
            "device": rng.choice(["phone", "tablet", "desktop"], n, p=[0.6, 0.1, 0.3]),
            "country": rng.choice(["AT", "CH", "DE", "FR", "IT", "PL"], n),
            "recency": rng.exponential(20.0, n).round(1),
            "sessions": rng.poisson(4.0, n),
            "basket": rng.lognormal(3.0, 1.0, n).round(2),
            "hour": rng.integers(0, 24, n),
            "premium": rng.integers(0, 2, n),
        }
        | idle
    )


def _ads_logit(rows: Frame) -> Array:
    logit = -3.0 + 0.1 * (rows["sessions"] - 4.0) + 0.3 * rows["premium"]
    return np.asarray(logit - 0.3 * (rows["device"] == "phone"))


def _ads_mean(rows: Frame) -> Array:
    return np.asarray(expit(_ads_logit(rows)))


def _ads_uplift(rows: Frame) -> Array:
    recent = np.tanh((20.0 - rows["recency"]) / 15.0)
    young = (45.0 - rows["age"]) / 30.0
    effect = 0.4 * recent + 0.3 * young - 0.3 * (rows["device"] == "desktop")
    return np.asarray(expit(_ads_logit(rows) + effect) - _ads_mean(rows))


def _exposed(sign: float) -> Callable[[Frame], Array]:
    def chance(rows: Frame) -> Array:
        return np.asarray(
            expit(sign * (0.8 + 0.05 * (rows["age"] - 45.0)) + 0.05 * rows["sessions"])
        )

    return chance


def _write_ads(folder: Path, tables: Tables, people: Frame) -> None:
    for i, ((kind, channel), rows) in enumerate(tables.items()):
        name = {"outcomes": "conversions", "treatments": "exposures"}[kind]
        ids = np.arange(len(rows)) + 10_000_000 * (i + 1)
        rows.assign(user_id=ids).to_csv(folder / f"{name}_{channel}.csv", index=False)
    people.to_csv(folder / "users.csv", index=False)


COMPANIES = {
    "telecom": Company(
        _subscribers,
        {"nord": _called(1.0), "süd": _called(-1.0)},
        _telecom_mean,
        _telecom_uplift,
        12.0,
        "Umsatz",
        "Angerufen",
        _write_telecom,
        "Kundennummer",
        5_000,
        5_000,
    ),
    "hospital": Company(
        _patients,
        {
            "city": _enrolled(1.2, 0.5, 0.5),
            "lake": _enrolled(-1.2, -0.5, 0.0),
            "hill": _enrolled(0.0, 0.0, -1.0),
        },
        _hospital_mean,
        _hospital_uplift,
        None,
        "recovered",
        "programme",
        _write_hospital,
        "mrn",
        4_000,
        3_000,
    ),
    "ads": Company(
        _users,
        {"app": _exposed(1.0), "web": _exposed(-1.0)},
        _ads_mean,
        _ads_uplift,
        None,
        "converted",
        "exposed",
        _write_ads,
        "user_id",
        200_000,
        20_000,
    ),
}


class Journey(NamedTuple):
    """What came of a company's files."""

    share_of_clean: float  # true gain of the list, of that from clean columns
    share_of_best: float  # of the gain of the best list
    clean_of_best: float
    covered: (
        float | None
    )  # share of people whose interval holds the truth; None without one
    fit_seconds: float  # of processor time
    settings: str  # that init wrote
    told: dict[str, Any]  # what score said


def journey(
    company: Company, folder: Path, *, rows: int, people: int, seed: int
) -> Journey:
    """Write a company's files, go the way of a user, and compare with the truth."""
    rng = np.random.default_rng(seed)
    tables, persons = draw_tables(company, rows, rng), company.draw(rng, people)
    truth = np.asarray(company.uplift(persons))
    ids = [f"K{i:07d}" for i in range(people)]
    raw = persons.copy()
    raw.insert(0, company.identifier, ids)
    company.write(folder, tables, raw)

    settings = folder / "unjoined.toml"
    config = ["--config", str(settings)]
    unjoined("init", str(folder), "--out", str(settings))
    unjoined("check", *config)
    before = time.process_time()
    unjoined("fit", *config)
    seconds = time.process_time() - before
    told = json.loads(unjoined("score", *config, "--share", f"{SHARE:.0%}", "--json"))
    report = ["--share", f"{SHARE:.0%}", "--out", str(folder / "report.html")]
    unjoined("report", *config, *report)

    listed = read_table(told["out"], text=[company.identifier]).to_pandas()
    listed = listed.set_index(company.identifier).loc[ids]
    chosen = listed["treat"].to_numpy(dtype=bool)
    clean = clean_list(company, tables, persons)
    best = np.sort(truth)[::-1][: int(SHARE * people)].sum()
    covered = None
    if "uplift_low" in listed:
        inside = (listed["uplift_low"] <= truth) & (truth <= listed["uplift_high"])
        covered = float(inside.mean())
    gain, wanted = truth[chosen].sum(), truth[clean].sum()
    return Journey(
        float(gain / wanted),
        float(gain / best),
        float(wanted / best),
        covered,
        seconds,
        settings.read_text("utf-8"),
        told,
    )


def unjoined(*words: str) -> str:
    """Run a command as a user does, and return what it printed; it must end well."""
    printed, said = io.StringIO(), io.StringIO()
    code: Any = None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            main(list(words))
        except SystemExit as stop:
            code = stop.code
    if code:
        raise RuntimeError(
            f"unjoined {' '.join(words)} ended with {code}: {said.getvalue()}"
        )
    return printed.getvalue()


def clean_list(company: Company, tables: Tables, people: Frame) -> Array:
    """Return whom a fit to clean columns would treat."""
    kinds = [
        {name: tables[kind, name] for name in company.policies}
        for kind in ("outcomes", "treatments")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = SeparateLabels.from_tables(
            *kinds,
            outcome=company.outcome,
            treatment=company.treatment,
            features=list(people.columns),
        )
        uplift = Uplift(random_state=0).fit(data).predict(people)
    chosen = np.zeros(len(people), dtype=bool)
    chosen[np.argsort(-uplift, kind="stable")[: int(SHARE * len(people))]] = True
    return chosen


def run() -> None:
    """Print a line for each company."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("companies", nargs="*", default=list(COMPANIES))
    parser.add_argument("--rows", type=int, help="of each table")
    parser.add_argument("--people", type=int, help="to score")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the files there")
    asked = parser.parse_args()
    print(
        f"{'company':10}{'of clean':>10}{'of best':>10}{'clean':>10}{'covered':>10}{'fit, s':>10}"
    )
    for name in asked.companies:
        company = COMPANIES[name]
        with TemporaryDirectory() as temporary:
            folder = (asked.folder or Path(temporary)) / name
            folder.mkdir(parents=True)
            found = journey(
                company,
                folder,
                rows=asked.rows or company.rows,
                people=asked.people or company.people,
                seed=asked.seed,
            )
        covered = "none" if found.covered is None else f"{found.covered:.0%}"
        print(
            f"{name:10}{found.share_of_clean:10.3f}{found.share_of_best:10.3f}"
            f"{found.clean_of_best:10.3f}{covered:>10}{found.fit_seconds:10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    run()
