"""What a few rows with both labels are worth, where policies are only 0.2 apart.

Run: python benchmarks/panel.py [--draws 12] [--rows 2000] [--out benchmarks/results/panel.json]

In each draw the same people are given in three ways: each has one label, an outcome or a treatment,
in four tables; so, but for a panel of 5 % of them, who have both; all have both. The problems are
those of accuracy.py with policies 0.2 apart for everybody. Joint labels are used by the same Uplift
and, as others would, by two regressions of scikit-learn (T-learner) and the doubly robust average.
The error is the mean squared error of predicted uplift at fresh people over the variance of the
true one; the standard error is that of the average effect. "closed" is the share of the distance
from separate to joint labels that the panel goes, of the mean over draws. Wanted: the panel never
hurts (mean difference of a problem above 0 by two of its standard errors), and closes a third.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from problems import PROBLEMS
from sklearn.linear_model import LogisticRegression
from trials import N_TEST, TEST_SEED, _better_model

from unjoined import SeparateLabels, Uplift
from unjoined._typing import Array
from unjoined.data import JointLabels, SimulatedProblem
from unjoined.data.write import replace_file

GAP, PANEL, WANTED = 0.2, 0.05, 1.0 / 3.0
CHOSEN = ("sparse", "interactions", "heavy tails", "plain real", "steps", "pairs")
WAYS = ("separate", "panel", "joint", "scikit-learn")


def close(problem: SimulatedProblem) -> SimulatedProblem:
    """Return a problem whose two policies are 0.2 apart for everybody."""
    policy = next(iter(problem.policies.values()))

    def raised(by: float) -> Callable[[Array], Array]:
        return lambda X: (1.0 - GAP) * policy(X) + by

    return replace(problem, policies={"A": raised(GAP), "B": raised(0.0)})


def seen(
    people: list[JointLabels], share: float, rng: np.random.RandomState
) -> SeparateLabels:
    """Return people of each population of whom a share has both labels, the others one each."""
    X = np.vstack([part.X for part in people])
    y = np.concatenate([part.y for part in people])
    treated = np.concatenate([part.treatment for part in people])
    population = np.repeat(["A", "B"], [len(part.y) for part in people])
    place = np.concatenate([rng.permutation(len(part.y)) for part in people])
    n = len(people[0].y)
    both = place < share * n
    is_outcome = place % 2 == 0
    return SeparateLabels(
        X,
        np.where(both | is_outcome, y, np.nan),
        np.where(both | ~is_outcome, treated, np.nan),
        population,
    )


def by_scikit_learn(
    people: list[JointLabels], fresh: Array, *, is_binary: bool
) -> tuple[Array, float]:
    """Return the uplift by two regressions, and the error of the doubly robust average."""
    X = np.vstack([part.X for part in people])
    y = np.concatenate([part.y for part in people])
    treated = np.concatenate([part.treatment for part in people]) == 1.0
    low, scale = (float(y.min()), float(np.ptp(y))) if is_binary else (0.0, 1.0)
    label = ((y - low) / scale > 0.5).astype(int) if is_binary else y

    def means(rows: Array, at: Array) -> list[Array]:
        found = []
        for arm in (treated, ~treated):
            model = _better_model(X[rows & arm], label[rows & arm], is_binary=is_binary)
            mean = model.predict_proba(at)[:, 1] if is_binary else model.predict(at)
            found.append(low + scale * mean)
        return found

    everyone = means(np.ones(len(y), dtype=bool), fresh)
    fold = np.random.RandomState(0).permutation(np.arange(len(y)) % 2)
    score = np.empty(len(y))
    for j in (0, 1):
        own = fold == j
        one, zero = means(~own, X[own])
        chance = LogisticRegression().fit(X[~own], treated[~own]).predict_proba(X[own])
        t, e = treated[own], np.clip(chance[:, 1], 0.01, 0.99)
        weight = np.where(t, 1.0 / e, -1.0 / (1.0 - e))
        score[own] = one - zero + weight * (y[own] - np.where(t, one, zero))
    return everyone[0] - everyone[1], float(score.std() / np.sqrt(len(y)))


def draw(name: str, n: int, seed: int) -> dict[str, dict[str, float]]:
    """Return the error of predictions and of the average by each way, of one draw."""
    problem = close(PROBLEMS[name].make())
    fresh = problem.draw_joint(N_TEST, random_state=TEST_SEED + seed)
    people = [
        problem.draw_joint(2 * n, policy=k, random_state=2 * seed + i)
        for i, k in enumerate("AB")
    ]
    found = {}

    def told(way: str, uplift: Array, error: float) -> None:
        off = float(np.mean((uplift - fresh.uplift) ** 2) / np.var(fresh.uplift))
        found[way] = {"error": off, "standard_error": error}

    for way, share in zip(WAYS, (0.0, PANEL, 1.0), strict=False):
        data = seen(people, share, np.random.RandomState(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weak identification: the errors show it
            model = Uplift(n_jobs=1, random_state=seed).fit(data)
        told(way, model.predict(fresh.X), model.average_effect_.standard_error)
    binary = PROBLEMS[name].is_binary
    told(WAYS[3], *by_scikit_learn(people, fresh.X, is_binary=binary))
    return found


def summary(draws: list[dict[str, dict[str, float]]], what: str) -> dict[str, float]:
    """Return the means of a number over draws, and how far the panel goes towards joint labels."""
    value = np.array([[each[way][what] for way in WAYS] for each in draws])
    mean = value.mean(axis=0)
    worse = value[:, 1] - value[:, 0]
    return {
        **dict(zip(WAYS, mean.tolist(), strict=True)),
        "closed": float((mean[0] - mean[1]) / (mean[0] - mean[2])),
        "closed to scikit-learn": float((mean[0] - mean[1]) / (mean[0] - mean[3])),
        "difference": float(worse.mean()),
        "its error": float(worse.std(ddof=1) / np.sqrt(len(worse))),
    }


def main() -> None:
    """Draw, fit, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", type=int, default=2000, help="of each table")
    parser.add_argument("--out", type=Path, help="file of results")
    args = parser.parse_args()
    results = {}
    for what in ("error", "standard_error"):
        results[what] = {}
    print(f"4 x {args.rows:,} rows, policies {GAP:g} apart, {args.draws} draws")
    for name in CHOSEN:
        draws = [draw(name, args.rows, seed) for seed in range(args.draws)]
        for what, of in results.items():
            of[name] = found = summary(draws, what)
            hurts = found["difference"] > 2.0 * found["its error"]
            met = not hurts and found["closed"] >= WANTED
            print(
                f"{name:14s} {what:14s} "
                + "  ".join(f"{way} {found[way]:.4f}" for way in WAYS)
                + f"  closed {found['closed']:.0%}"
                + ("" if met else "  HURTS" if hurts else "  MISSED"),
                flush=True,
            )
    for what, of in results.items():
        closed = [found["closed"] for found in of.values()]
        print(f"{what}: closed {np.median(closed):.0%} in the median problem")
    if args.out is not None:
        text = json.dumps({"draws": args.draws, "rows": args.rows, **results}, indent=1)
        replace_file(args.out, lambda file: file.write_text(text + "\n", "utf-8"))


if __name__ == "__main__":
    main()
