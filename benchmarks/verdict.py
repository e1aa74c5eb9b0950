"""How far the verdict of `diagnose` can be trusted, and how often its tests reject what is true.

Run: python benchmarks/verdict.py [--draws 100] [--out benchmarks/results/verdict.json]

Finished draws are kept in the file --kept, so that a run resumes where it stopped.

Three studies, all with known truth. (1) Three populations, then two of them, that share one law
of outcomes: how often each test rejects, and each verdict. Tests of several tables are averaged.
(2) Two populations whose policies differ by delta in log-odds, an uplift of 1 for everyone: how
often intervals of the average and of regions cover it, by the strength that the verdict goes by.
(3) The three populations with a share of the outcomes of one turned to 1: how often that is found.
A share s over n draws has a standard error of sqrt(s (1 - s) / n).
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from unjoined import SeparateLabels
from unjoined._typing import Array
from unjoined.data import SimulatedProblem
from unjoined.data.chunks import feature_matrix
from unjoined.data.rows import label_rows
from unjoined.evaluate import Estimate, diagnose
from unjoined.evaluate.estimate import verdict_of
from unjoined.evaluate.regions import NamedFeatures, find_regions
from unjoined.evaluate.terms import evaluation_rows
from unjoined.evaluate.verdict import NO_GAP

DELTAS = (0.0, 0.1, 0.2, 0.4, 0.8)
ROWS = {"two": 600, "three": 800, "shifted": 1500}
SHIFTS = (0.05, 0.1, 0.2)
KEPT = Path(__file__).parent / "results" / "verdict-trials.jsonl"
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
        return np.asarray(
            expit(-0.8 + 0.5 * X[:, 0] + treated * (0.6 + 0.4 * np.tanh(X[:, 1])))
        )

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies={
            "A": lambda X: expit(0.8 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-0.8 + 0.5 * X[:, 1]),
            "C": lambda X: expit(0.5 * X[:, 2]),
        },
        outcome=lambda X, treated, rng: (
            (rng.random_sample(len(X)) < chance(X, treated)) * 1.0
        ),
        outcome_mean=chance,
    )


def covers(estimate: Estimate, truth: float) -> tuple[bool, bool, bool]:
    """Return whether the Fieller set and the normal interval cover, and whether the first ends."""
    normal = Estimate(estimate.value, estimate.standard_error)
    bounded = bool(np.isfinite(estimate.interval()).all())
    return estimate.covers(truth), normal.covers(truth), bounded


def of_two(problem: SimulatedProblem) -> SimulatedProblem:
    """Return the problem without its third population."""
    return replace(problem, policies={name: problem.policies[name] for name in "AB"})


def calibrated(delta: float, seed: int) -> dict[str, Any]:
    """Return strengths of a draw, and whether intervals cover the truth of 1."""
    data = two_populations(delta).draw(ROWS["two"], random_state=seed)
    labels = {name: data[name] for name in data if name != "X"}
    rows = label_rows(feature_matrix(data.X), **labels)
    at = evaluation_rows(rows, rng=np.random.RandomState(seed))
    terms = at.terms(at.gap**2)
    total = terms.totals(terms.denominator)
    z = float(total.value[0] / np.sqrt(total.covariance[0, 0]))
    regions = find_regions(at, NamedFeatures.of(rows.X)[1])
    by_sign = at.terms(at.gap)
    each = [
        (region.strength, *covers(by_sign.group(regions.leaf_of == leaf), 1.0))
        for leaf, region in zip(regions.leaf, regions.leaves, strict=True)
    ]
    return {
        "z": z,
        "average": (max(z, 0.0) ** 2, *covers(terms.average(), 1.0)),
        "region": each,
    }


def tested(
    problem: SimulatedProblem, n: int, shift: float, seed: int
) -> dict[str, float]:
    """Return which tests reject and the verdict, with a share of C's outcomes turned to 1.

    Of a test that is made of several tables, the share of tables.
    """
    data = problem.draw(n, random_state=seed)
    if shift:
        y = np.array(data.y)
        at = data.rows("outcome", "C")
        y[at[np.random.RandomState(seed).random_sample(len(at)) < shift]] = 1.0
        data = SeparateLabels(**(dict(data) | {"y": y}))
    result = diagnose(data, random_state=seed)
    p: dict[str, list[float]] = {}
    for check in result.checks:
        p.setdefault(check.what, []).append(check.p_value)
    seen = {what: float(np.mean(np.array(values) < 0.05)) for what, values in p.items()}
    seen["any, corrected"] = float(any(check.is_rejected for check in result.checks))
    return seen | {result.verdict: 1.0}


def jobs(draws: int) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield the draws of all studies, in an order in which a run may stop anywhere."""
    three = three_populations()
    for seed in range(3 * draws):
        yield (
            "three populations",
            seed,
            partial(tested, three, ROWS["three"], 0.0, seed),
        )
        yield (
            "two populations",
            seed,
            partial(tested, of_two(three), ROWS["three"], 0.0, seed),
        )
        if seed % 3 == 0:
            for delta in DELTAS:
                yield f"delta {delta}", seed // 3, partial(calibrated, delta, seed // 3)
        if seed % 6 == 0:
            for shift in SHIFTS:
                job = partial(tested, three, ROWS["shifted"], shift, seed // 6)
                yield f"shift {shift}", seed // 6, job


def run(draws: int, kept: Path, studies: Sequence[str]) -> dict[str, list[Any]]:
    """Return the draws of each study; those in the file are not made again."""
    found: dict[str, dict[int, Any]] = {}
    if kept.exists():
        for line in kept.read_text().splitlines():
            study, seed, result = json.loads(line)
            found.setdefault(study, {})[seed] = result
    with kept.open("a") as file:
        for study, seed, job in jobs(draws):
            if study.startswith(tuple(studies)) and seed not in found.setdefault(
                study, {}
            ):
                found[study][seed] = job()
                file.write(
                    json.dumps([study, seed, found[study][seed]], default=float) + "\n"
                )
                file.flush()
    return {study: list(results.values()) for study, results in found.items()}


def summary(found: dict[str, list[Any]]) -> dict[str, Any]:
    """Return how often tests reject and intervals cover."""
    tables: dict[str, Any] = {}
    entries: dict[str, list[Any]] = {"average": [], "region": []}
    for study, results in found.items():
        if study.startswith("delta"):
            called = float(np.mean([result["z"] >= NO_GAP for result in results]))
            tables[study] = {"draws": len(results), "called different": called}
            entries["average"] += [result["average"] for result in results]
            entries["region"] += [
                region for result in results for region in result["region"]
            ]
            continue
        names = {name: None for result in results for name in result}
        shares = {n: float(np.mean([r.get(n, 0.0) for r in results])) for n in names}
        tables[study] = {"draws": len(results)} | shares
    return tables | {
        "coverage": [row for what in entries for row in coverage(what, entries[what])]
    }


def coverage(what: str, entries: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield how often intervals cover, by the strength."""
    F, *columns = np.array(entries, dtype=float).T
    for low, high in pairwise(BINS):
        inside = (low <= F) & (high > F)
        if inside.any():
            fieller, normal, bounded = (
                float(column[inside].mean()) for column in columns
            )
            yield {
                "what": what,
                "F from": low,
                "verdict": verdict_of(low),
                "fieller": fieller,
            } | {
                "normal": normal,
                "bounded": bounded,
                "count": int(inside.sum()),
            }


def main() -> None:
    """Run what is left of the studies, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument(
        "--studies", nargs="*", default=["three", "two", "delta", "shift"]
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = {"rows of a table": ROWS} | summary(
        run(args.draws, args.kept, args.studies)
    )
    text = json.dumps(results, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
