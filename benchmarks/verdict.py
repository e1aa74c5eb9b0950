"""How far the verdict of `diagnose` can be trusted, and how often its tests reject what is true.

Run: python benchmarks/verdict.py [--draws 100] [--out benchmarks/results/verdict.json]

Three studies, all with known truth. (1) Three populations, then two of them, that share one law
of outcomes: how often each test rejects, and each verdict. Tests of several tables are averaged.
(2) Two populations whose policies differ by delta in log-odds, an uplift of 1 for everyone: how
often intervals of the average and of regions cover it, by the F statistic that the verdict goes by.
(3) The three populations with a share of the outcomes of one turned to 1: how often that is found.
A share s over n draws has a standard error of sqrt(s (1 - s) / n).
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from unjoined import SeparateLabels
from unjoined._typing import Array
from unjoined.data import SimulatedProblem, feature_matrix, label_rows
from unjoined.metrics import Estimate, diagnose, evaluation_rows
from unjoined.metrics.named import NamedFeatures
from unjoined.metrics.regions import find_regions, verdict_of
from unjoined.metrics.verdict import NO_GAP

DELTAS = (0.0, 0.1, 0.2, 0.4, 0.8)
ROWS = {"two": 600, "three": 800, "shifted": 1500}
SHIFTS = (0.05, 0.1, 0.2)
BINS = (0.0, 3.84, 17.0, 100.0, np.inf)


def two_populations(delta: float) -> SimulatedProblem:
    """Return a problem with an uplift of 1 for everyone."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(X[:, 0] + 0.5 * X[:, 1] ** 2 + treated)

    def policy(side: float) -> Callable[[Array], Array]:
        return lambda X: expit(0.5 * X[:, 0] + side * delta * (1.0 + X[:, 1]))

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies={"A": policy(1.0), "B": policy(-1.0)},
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def three_populations() -> SimulatedProblem:
    """Return a problem with a 0/1 outcome whose law three populations share."""

    def chance(X: Array, treated: Array) -> Array:
        return np.asarray(expit(-0.8 + 0.5 * X[:, 0] + treated * (0.6 + 0.4 * np.tanh(X[:, 1]))))

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies={
            "A": lambda X: expit(0.8 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-0.8 + 0.5 * X[:, 1]),
            "C": lambda X: expit(0.5 * X[:, 2]),
        },
        outcome=lambda X, treated, rng: (rng.random_sample(len(X)) < chance(X, treated)) * 1.0,
        outcome_mean=chance,
    )


def covers(estimate: Estimate, truth: float) -> tuple[bool, bool, bool]:
    """Return whether the Fieller set and the normal interval cover, and whether the first ends."""
    normal = Estimate(estimate.value, estimate.standard_error)
    bounded = bool(np.isfinite(estimate.interval()).all())
    return estimate.covers(truth), normal.covers(truth), bounded


def calibrate(draws: int) -> list[dict[str, Any]]:
    """Return, by the F statistic, how often intervals cover the truth of 1."""
    found: dict[str, list[tuple[float, bool, bool, bool]]] = {"average": [], "region": []}
    shares = dict.fromkeys(DELTAS, 0.0)
    for delta in DELTAS:
        for seed in range(draws):
            data = two_populations(delta).draw(ROWS["two"], random_state=seed)
            labels = {name: data[name] for name in data if name != "X"}
            rows = label_rows(feature_matrix(data.X), **labels)
            at = evaluation_rows(rows, rng=np.random.RandomState(seed))
            terms = at.terms(at.omega("gap"))
            total = terms.totals(terms.denominator)
            z = float(total.value[0] / np.sqrt(total.covariance[0, 0]))
            shares[delta] += (z >= NO_GAP) / draws
            found["average"].append((max(z, 0.0) ** 2, *covers(terms.average(), 1.0)))
            regions = find_regions(at, terms, NamedFeatures.of(rows.X)[1])
            by_sign = at.terms(at.gap)
            for leaf, region in zip(regions.leaf, regions.each, strict=True):
                group = by_sign.group(regions.leaf_of == leaf)
                found["region"].append((region.strength, *covers(group, 1.0)))
    table: list[dict[str, Any]] = [
        {"delta": delta, "called different": share} for delta, share in shares.items()
    ]
    for what, entries in found.items():
        F, *columns = np.array(entries, dtype=float).T
        for low, high in pairwise(BINS):
            inside = (low <= F) & (high > F)
            if inside.any():
                fieller, normal, bounded = (float(column[inside].mean()) for column in columns)
                table.append(
                    {"what": what, "F from": low, "verdict": verdict_of(low), "fieller": fieller}
                    | {"normal": normal, "bounded": bounded, "count": int(inside.sum())}
                )
    return table


def of_two(problem: SimulatedProblem) -> SimulatedProblem:
    """Return the problem without its third population."""
    return replace(problem, policies={name: problem.policies[name] for name in "AB"})


def rejections(problem: SimulatedProblem, draws: int, n: int, shift: float) -> dict[str, Any]:
    """Return how often each test rejects, with a share of C's outcomes turned to 1."""
    counts: dict[str, float] = {}
    for seed in range(draws):
        data = problem.draw(n, random_state=seed)
        if shift:
            y = np.array(data.y)
            at = data.rows("outcome", "C")
            turned = np.random.RandomState(seed).random_sample(len(at)) < shift
            y[at[turned]] = 1.0
            data = SeparateLabels(**(dict(data) | {"y": y}))
        result = diagnose(data, random_state=seed)
        seen: dict[str, float] = {}
        kinds: dict[str, list[float]] = {}
        for check in result.checks:
            kinds.setdefault(check.what, []).append(check.p_value)
        for what, p in kinds.items():
            seen[f"{what}"] = float(np.mean(np.array(p) < 0.05))
        seen["any, corrected"] = any(check.is_rejected for check in result.checks)
        seen[result.verdict] = True
        for name, value in seen.items():
            counts[name] = counts.get(name, 0.0) + value / draws
    return {"rows": n, "shift": shift, "draws": draws, "rejected": counts}


def main() -> None:
    """Run the studies; print and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    n, three = args.draws, three_populations()
    studies: dict[str, Callable[[], Any]] = {
        "size, three populations": lambda: rejections(three, 3 * n, ROWS["three"], 0.0),
        "size, two populations": lambda: rejections(of_two(three), 3 * n, ROWS["three"], 0.0),
        "calibration": lambda: calibrate(n),
        "power": lambda: [rejections(three, n // 2, ROWS["shifted"], s) for s in SHIFTS],
    }
    results: dict[str, Any] = {"draws": n, "rows of a table": ROWS}
    for name, study in studies.items():
        results[name] = study()
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
