"""How near the standard errors that `plan_study` promises are to those of simulated studies.

Run: python benchmarks/planner.py [--draws 400] [--out benchmarks/results/planner.json]

Each design is drawn many times at 4 x 500 rows. The spread of the estimates over draws is held
against what pilots of the same size, a half and a quarter of it promise: their mean, which is how
far the method is off, and their own spread, which is how far a single pilot may be off. A spread
over n draws has a relative standard error of 1 / sqrt(2 n). Spreads that the file of results has
for as many draws are not simulated again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from unjoined._typing import Array
from unjoined.data import SimulatedProblem, campaign_problem
from unjoined.evaluate import evaluate_uplift, plan_study

ROWS = 500
PILOTS = {500: 40, 250: 60, 125: 100}  # by rows of a table
QUANTITIES = ("average", "auuc", "qini", "top")


def real_outcome() -> SimulatedProblem:
    """Return a problem with a strong main effect, and a gap that is different for everyone."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(2.0 * X[:, 0] + treated * (0.5 + 0.5 * X[:, 1]))

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies={
            "A": lambda X: expit(1.0 + X[:, 1]),
            "B": lambda X: expit(-1.0 + 0.5 * X[:, 2]),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )


def simulated(problem: SimulatedProblem, draws: int) -> dict[str, float]:
    """Return the spread of the estimates of simulated studies."""
    found: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
    for seed in range(draws):
        data = problem.draw(ROWS, random_state=seed)
        score = problem.uplift(np.asarray(data.X))
        rules = {"top": ("share", 0.3)}
        result = evaluate_uplift(score, data, rules=rules, random_state=seed)
        for quantity in QUANTITIES[:3]:
            found[quantity].append(getattr(result, quantity).value)
        found["top"].append(result.rules["top"].value)
    return {quantity: float(np.std(found[quantity], ddof=1)) for quantity in QUANTITIES}


def study(problem: SimulatedProblem, spreads: dict[str, float]) -> dict[str, Any]:
    """Return what pilots promise, over the spread of simulated studies."""
    rows: dict[str, Any] = {}
    for quantity, spread in spreads.items():
        rows[quantity] = {"simulated": spread}
        for size, pilots in PILOTS.items():
            promised = []
            for seed in range(pilots):
                pilot = problem.draw(size, random_state=10_000 + seed)
                score = problem.uplift(np.asarray(pilot.X))
                plan = plan_study(
                    pilot, quantity=quantity, score=score, random_state=seed
                )
                at = next(p for p in plan.table if p.gap == plan.gap)
                promised.append(at.standard_error * np.sqrt(at.rows / ROWS) / spread)
            rows[quantity][f"pilot of {size}, over simulated"] = float(
                np.mean(promised)
            )
            rows[quantity][f"pilot of {size}, spread"] = float(np.std(promised, ddof=1))
    return rows


def main() -> None:
    """Run the designs, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {"draws": args.draws, "rows of a table": ROWS}
    known = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for name, problem in {
        "campaign": campaign_problem(),
        "real": real_outcome(),
    }.items():
        if known.get("draws") == args.draws and name in known:
            spreads = {
                quantity: known[name][quantity]["simulated"] for quantity in QUANTITIES
            }
        else:
            spreads = simulated(problem, args.draws)
        results[name] = study(problem, spreads)
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
