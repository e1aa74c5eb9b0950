"""Whether three populations are never worse than two of them, whichever of the three is dropped.

Run: python benchmarks/populations.py [--only MinMaxUplift]

Designs differ in the policy and the size of the third population. For each draw, an estimator is
fitted to all three and to each pair, and the root mean squared error of its uplift is taken; of the
evaluation it is the standard error of the average and of the AUUC of the true uplift. The best pair
is the one with the least mean over the draws, which nobody knows beforehand. "worse" is how much
worse three are than it on average, as a share of it, with the standard error of that, draw by draw.
With --out FILE, parts that are left out stay there as they are. All take an hour on one core.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from unjoined import MinMaxUplift, Uplift
from unjoined._typing import Array
from unjoined.data import SeparateLabels, SimulatedProblem
from unjoined.evaluate import evaluate_uplift

ROWS, PEOPLE = 400, 2_000
THIRD = {
    "another policy": (lambda X: expit(2.0 * X[:, 1]), 1.0),
    "a policy in the middle": (lambda X: np.full(len(X), 0.5), 1.0),
    "the policy of the second": (lambda X: expit(-1.0 + 0.5 * X[:, 1]), 1.0),
    "another policy, few rows": (lambda X: expit(2.0 * X[:, 1]), 0.2),
}
PAIRS = (("A", "B"), ("A", "C"), ("B", "C"))


def problem(design: str) -> SimulatedProblem:
    """Return a problem with a real outcome and three populations that share its law."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(X[:, 1] + treated * (0.5 + np.tanh(X[:, 0])))

    policies = {
        "A": lambda X: expit(1.0 + 0.5 * X[:, 0]),
        "B": lambda X: expit(-1.0 + 0.5 * X[:, 1]),
        "C": THIRD[design][0],
    }
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies=policies,
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def errors(design: str, seed: int, part: str) -> dict[str, list[float]]:
    """Return the error of all three populations, then of each pair."""
    law = problem(design)
    data = law.draw(ROWS, random_state=seed)
    population = np.asarray(data.population)
    kept = np.random.default_rng(seed).random(len(population)) < THIRD[design][1]
    data = data.take((population != "C") | kept)
    found: dict[str, list[float]] = {}
    for names in (("A", "B", "C"), *PAIRS):
        some = data.take(np.isin(np.asarray(data.population), names))
        for name, error in PARTS[part][1](law, some, seed).items():
            found.setdefault(name, []).append(error)
    return found


def fitted(
    estimator: type[Uplift] | type[MinMaxUplift],
) -> Callable[[SimulatedProblem, SeparateLabels, int], dict[str, float]]:
    """Return what measures the error of an estimator's uplift."""

    def measured(
        law: SimulatedProblem, data: SeparateLabels, seed: int
    ) -> dict[str, float]:
        people = np.asarray(law.draw_joint(PEOPLE, random_state=100_000 + seed).X)
        off = estimator(random_state=seed).fit(**data).predict(people) - law.uplift(
            people
        )
        return {estimator.__name__: float(np.sqrt(np.mean(off**2)))}

    return measured


def evaluated(
    law: SimulatedProblem, data: SeparateLabels, seed: int
) -> dict[str, float]:
    """Return the standard errors of an evaluation."""
    said = evaluate_uplift(law.uplift, data, random_state=seed)
    values = {"average": said.average, "AUUC": said.auuc}
    return {
        f"evaluation, {name}": value.standard_error for name, value in values.items()
    }


# How many draws, and what is measured on each.
PARTS = {
    "MinMaxUplift": (400, fitted(MinMaxUplift)),
    "Uplift": (100, fitted(Uplift)),
    "evaluation": (25, evaluated),
}


def compared(draws: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Return how much worse three are than the best pair."""
    rows: dict[str, Any] = {}
    for name in draws[0]:
        each = np.array([draw[name] for draw in draws])  # (draws, 4)
        mean = each.mean(axis=0)
        best = 1 + int(np.argmin(mean[1:]))
        apart = (each[:, 0] - each[:, best]) / mean[best]
        rows[name] = {
            "three": float(mean[0]),
            "best pair": float(mean[best]),
            "which": " and ".join(PAIRS[best - 1]),
            "worse": float(apart.mean()),
            "standard error": float(apart.std(ddof=1) / np.sqrt(len(apart))),
            "draws": len(apart),
        }
    return rows


def study(part: str, design: str, draws: int | None = None) -> dict[str, Any]:
    """Return the comparison of a part in a design."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # policies that are alike are part of the study
        return compared(
            [errors(design, seed, part) for seed in range(draws or PARTS[part][0])]
        )


def main() -> None:
    """Run the designs, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    parser.add_argument("--draws", type=int, help="instead of those of the study")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    results: dict[str, Any] = {"rows of a table": ROWS}
    results |= {design: known.get(design, {}) for design in THIRD}
    for part in [args.only] if args.only else PARTS:
        for design in THIRD:
            found = study(part, design, args.draws)
            results[design] |= found
            print(json.dumps({design: found}, indent=1), flush=True)
            if args.out:
                args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
