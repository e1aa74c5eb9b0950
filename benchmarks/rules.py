"""What rules that people can read are worth, and how far the intervals of their gains hold.

Run: python benchmarks/rules.py [--draws 100] [--sizes 500,2000,8000] [--problems NAME,...]
     [--out FILE]

Of each draw a rule of depth two is learnt, at a cost that makes treating everyone worth nothing
(none where it does harm), so that all that is gained is whom it picks. Printed are, over the
draws: what it gains of the best rule of that depth, found on 20,000 people whose effects are
known; the same of treating people one by one; and the share of 95 % intervals that hold what the
rule gains. In "alike" everybody gains the same, so that no rule gains anything: the share of
intervals above 0 is one of false promises.
Finished draws are kept in a file, so that a run resumes where it stopped.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from problems import PROBLEMS, real_problem
from scipy.special import expit

from unjoined import Uplift
from unjoined.data import SimulatedProblem
from unjoined.model.trees import Grower, assigned
from unjoined.targeting import learn_rule

NAMES = (
    "alike",
    "campaign",
    "interactions",
    "mixed",
    "product",
    "gated",
    "steps",
    "plain real",
)


def problem_of(name: str) -> SimulatedProblem:
    """Return a problem: one of those that estimators are compared on, or that of equal gains."""
    if name != "alike":
        return PROBLEMS[name].make()
    return real_problem(
        lambda n, rng: rng.standard_normal((n, 5)),
        {"a": lambda X: expit(X[:, 0] + 0.5), "b": lambda X: expit(-X[:, 0] - 0.5)},
        lambda X, t: X[:, 1] * X[:, 2] + np.sin(2.0 * X[:, 3]) + 0.3 * t,
        lambda n, rng: rng.standard_normal(n),
    )


def one(name: str, n: int, seed: int) -> dict[str, float | bool | str]:
    """Learn a rule from one draw, and say what it gains."""
    problem = problem_of(name)
    X = problem.draw_joint(20_000, random_state=10_000).X
    uplift = problem.uplift(X)
    gap = np.abs(problem.policy_gap(X))
    people = np.minimum(1.0, (gap / 0.2) ** 2)
    people /= people.sum()
    cost = max(float(people @ uplift), 0.0)
    net = people * (uplift - cost)
    data = problem.draw(n, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Uplift(random_state=0).fit(data)
        rule = learn_rule(model, data, cost=cost, random_state=0)
    best = Grower.of_rows(X, net[:, None], 0.0 * net[:, None], people, 0.05).tree(2)
    gained = float(net @ (rule.assign(X) > 0))
    low, high = rule.gain.interval(0.95)
    return {
        "problem": name,
        "n": n,
        "seed": seed,
        "gained": gained,
        "one by one": float(net @ (model.predict(X) > cost)),
        "top": float(net @ (assigned(best, X) > 0)),
        "estimate": rule.gain.value,
        "error": rule.gain.standard_error,
        "covers": low <= gained <= high,
        "above": low > 0.0,
    }


def main() -> None:
    """Run what is missing and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--sizes", default="500,2000,8000")
    parser.add_argument("--problems", default=",".join(NAMES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = []
    if options.out is not None and options.out.exists():
        found = [json.loads(line) for line in options.out.read_text().splitlines()]
    done = {(row["problem"], row["n"], row["seed"]) for row in found}
    print(
        f"{'':22}{'draws':>6}{'of best':>9}{'1 by 1':>9}{'covers':>9}{'above 0':>9}{'bias':>9}"
    )
    for name in options.problems.split(","):
        for n in map(int, options.sizes.split(",")):
            for seed in range(options.draws):
                if (name, n, seed) not in done:
                    found.append(one(name, n, seed))
                    if options.out is not None:
                        with options.out.open("a") as file:
                            file.write(json.dumps(found[-1]) + "\n")
            rows = [r for r in found if (r["problem"], r["n"]) == (name, n)]
            mean = {k: np.mean([r[k] for r in rows]) for k in rows[0] if k != "problem"}
            error = np.sqrt(np.mean([r["error"] ** 2 for r in rows]))
            bias = (mean["estimate"] - mean["gained"]) / error
            top = max(mean["top"], 1e-12)
            shares = [
                f"{mean[k] / top:9.2f}" if name != "alike" else f"{'':9}"
                for k in ("gained", "one by one")
            ]
            print(
                f"{name:14}{n:8,}{len(rows):6}{''.join(shares)}{mean['covers']:9.3f}"
                f"{mean['above']:9.3f}{bias:+9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
