"""Sums that DuckDB makes by a plan, beside the same arithmetic in SQL written by hand.

Run: python benchmarks/warehouse.py [--rows 100000000] [--functions 20] [--folder FOLDER]

Makes tables of an outcome and of a treatment with five features, half of the rows in each, in
a database in FOLDER (about 45 bytes a row; by default a temporary one that is removed). Then adds
up each by the library's query and by one of our own, which reads the same columns, computes the
same functions and adds up the same products for the same groups, each in a process of its own,
turn by turn. Prints time, peak memory and their ratio; a ratio of 2 is half the speed.

Counts: what the average effect of the made-up campaign is after people were counted in 3, 5 and 9
values of each feature, beside the truth for the same people (--counts; no database).
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import combinations_with_replacement
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from unjoined import SeparateLabels, Uplift
from unjoined.data import SqlQuery, campaign_problem
from unjoined.federated import aggregate_rows, fourier_plan
from unjoined.warehouse import counts_query

FEATURES = [f"x{i}" for i in range(5)]
NAMES = ("north", "south")
TYPICAL = {
    "age": (49.0, 18.0),
    "days_since_order": (59.0, 59.0),
    "orders": (3.5, 2.4),
    "spend": (170.0, 150.0),
    "member": (0.4, 0.5),
}


def make(file: Path, rows: int) -> None:
    """Write both tables, with a column of populations."""
    columns = ", ".join(f"sqrt(-2 * ln(random() + 1e-12)) AS {x}" for x in FEATURES)
    with duckdb.connect(file) as connection:
        for table, label in (("sales", "bought"), ("mail", "mailed")):
            connection.execute(
                f"CREATE TABLE {table} AS SELECT {columns}, (random() < 0.3)::INT AS {label}, "  # noqa: S608
                "CASE WHEN random() < 0.5 THEN 'north' ELSE 'south' END AS region "
                f"FROM range({rows // 2})"
            )


def plan_of(functions: int):
    """Return the plan; its functions are a constant, the features and cosines."""
    return fourier_plan(
        dict.fromkeys(FEATURES, (1.2, 0.7)),
        NAMES,
        outcome_values=(0, 1),
        n_functions=functions - 1 - len(FEATURES),
        groups_by="features",
    )


def by_library(file: Path, functions: int) -> None:
    """Add up by the plan, in the database."""
    data = SeparateLabels.from_tables(
        SqlQuery("sales", file),
        SqlQuery("mail", file),
        outcome="bought",
        treatment="mailed",
        population="region",
        features=FEATURES,
        stream=True,
    )
    aggregate_rows(data, plan_of(functions))


def by_hand(file: Path, functions: int) -> None:
    """Add up the same products of as many functions in a query of our own."""
    rng = np.random.default_rng(0)
    waves = functions - 1 - len(FEATURES)
    scaled = ", ".join(f"({x} - 1.2) / 0.7 AS {x}" for x in FEATURES)
    made = list(FEATURES)
    for i in range(waves):
        inner = " + ".join(
            f"{w:.6f} * {x}" for w, x in zip(rng.normal(size=5), FEATURES, strict=True)
        )
        made.append(f"1.41421356 * cos({inner} + {rng.uniform(0, 6):.6f}) AS c{i}")
    names = [*FEATURES, *(f"c{i}" for i in range(waves))]
    sums = [f"sum({name})" for name in names]
    sums += [f"sum({a} * {b})" for a, b in combinations_with_replacement(names, 2)]
    with duckdb.connect(file, read_only=True) as connection:
        for table, label in (("sales", "bought"), ("mail", "mailed")):
            connection.execute(
                f"WITH z AS (SELECT {scaled}, {label}, region FROM {table}), "  # noqa: S608
                f"f AS MATERIALIZED (SELECT {', '.join(made)}, {label}, region, "
                "floor(5 * (abs(x0 + x1) % 1))::INT AS part FROM z) "
                f"SELECT region, {label}, part, count(*), {', '.join(sums)} FROM f "
                f"GROUP BY region, {label}, part"
            ).fetchall()


WAYS = {"library": by_library, "by hand": by_hand}


def measured(way: str, file: Path, functions: int) -> dict[str, float]:
    """Run one way in a process of its own; return seconds and peak memory."""
    done = subprocess.run(
        [
            sys.executable,
            __file__,
            "--one",
            way,
            "--folder",
            str(file.parent),
            "--functions",
            str(functions),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def show_counts() -> None:
    """Print the average effect of a campaign from counts in coarser and finer bins."""
    problem = campaign_problem()
    X = problem.draw_joint(400_000, random_state=1).X
    uplift = problem.uplift(X)
    gap = problem.policy_gap(X)
    of_all, of_gap = uplift.mean(), np.average(uplift, weights=np.abs(gap))
    print(f"truth: {of_all:.4f}, weighted by the gap {of_gap:.4f}")
    plan = fourier_plan(TYPICAL, NAMES, outcome_values=(0, 1), groups_by="features")
    data = problem.draw(20_000, random_state=0)
    print(f"rows: {Uplift(random_state=0).fit(data).average_effect_}")
    connection = duckdb.connect()
    for bins in (3, 5, 9):
        tables = {}
        left_out = people = 0
        for kind, label in (("outcome", "bought"), ("treatment", "mailed")):
            for name in NAMES:
                at = data.rows(kind, name)
                labels = data.y if kind == "outcome" else data.treatment
                values = {x: data.X[at, i] for i, x in enumerate(TYPICAL)}
                connection.register(
                    "people", pd.DataFrame(values | {label: labels[at]})
                )
                query = counts_query(
                    plan, "people", population=name, bins=bins, **{kind: label}
                )
                cells = connection.sql(query).df()
                left_out += int(cells["suppressed"].iloc[0])
                people += len(at)
                tables[kind, name] = cells.drop(columns=["population", "suppressed"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counted = SeparateLabels.from_tables(
                *(
                    {n: tables[kind, n] for n in NAMES}
                    for kind in ("outcome", "treatment")
                ),
                outcome="bought",
                treatment="mailed",
                count="n",
            )
            model = Uplift(random_state=0).fit(counted)
        print(
            f"{bins} values of each: {model.average_effect_}, {left_out / people:.1%} left out"
        )


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1000000,10000000,100000000")
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.counts:
        show_counts()
        return
    if options.one:
        start = time.perf_counter()
        WAYS[options.one](options.folder / "rows.duckdb", options.functions)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "megabytes": peak}))
        return
    for rows in map(int, options.rows.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            file = Path(folder) / "rows.duckdb"
            make(file, rows)
            for _ in range(options.rounds):
                found = {way: measured(way, file, options.functions) for way in WAYS}
                for way, of in found.items():
                    print(
                        f"{rows:,} rows, {way}: {of['seconds']:.1f} s, {of['megabytes']:.0f} MB"
                    )
                ratio = found["library"]["seconds"] / found["by hand"]["seconds"]
                print(f"{rows:,} rows: {ratio:.2f} times as long", flush=True)


if __name__ == "__main__":
    main()
