"""The default and the paper's methods on people of real trials, with real and with known effects.

Run: python benchmarks/real.py [--draws 10] [--email FILE] [--jobs FOLDER] [--jobs-only]

Half of a trial is taken apart into four tables, the other half keeps its joint labels. With the
trial's own outcomes the area under the uplift curve is estimated from these. With outcomes that
are simulated for the same people, under faint and under strong effects, the truth is known: the
share is 0 for a random order and 1 for the true one. "mean / average" is the mean prediction over
the average effect, which would be 1; the trial's own average is itself an estimate.

Nothing was chosen by looking at these numbers.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.special import expit
from trials import DEFAULT, oracle_share, paper_methods

from unjoined import Uplift
from unjoined._typing import Array
from unjoined.data import unjoin
from unjoined.datasets import fetch_email, fetch_jobs
from unjoined.metrics import auuc

STRENGTHS = {"faint": 0.2, "strong": 1.0}
POLICIES = {"north": 0.8, "south": 0.25}


def known_effects(X: Array, strength: float) -> tuple[Array, Array]:
    """Return base and effect in log-odds: two features bend the base, two others the effect."""
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    base = -0.8 + 0.6 * np.clip(Z[:, 0], -3, 3) - 0.3 * np.clip(Z[:, 1], -3, 3) ** 2
    return base, 0.3 + strength * (np.sin(1.5 * Z[:, 1]) + 0.7 * Z[:, 2])


def draws(
    X: Array, y: Array | None, treated: Array, strength: float, n_draws: int
) -> Iterator[tuple[int, tuple[Array, Array, Array], tuple[Array, Array, Array], Array | None]]:
    """Yield seeds, the rows to take apart, the rows held back, and the true uplift there."""
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        outcome, uplift = y, None
        if outcome is None:
            base, effect = known_effects(X, strength)
            chance = expit(base + treated * effect)
            outcome = 1.0 * (rng.random(len(X)) < chance)
            uplift = expit(base + effect) - expit(base)
        order = rng.permutation(len(X))
        train, test = order[: len(X) // 2], order[len(X) // 2 :]
        parts = [(X[at], outcome[at], treated[at]) for at in (train, test)]
        yield seed, parts[0], parts[1], None if uplift is None else uplift[test]


def methods(*, is_binary: bool) -> dict[str, Callable[[int], object]]:
    """Return the default and the paper's methods."""
    return {DEFAULT: lambda seed: Uplift(random_state=seed), **paper_methods(is_binary=is_binary)}


def study(title: str, X: Array, y: Array | None, treated: Array, strength: float, n: int) -> None:
    """Fit every method to every draw, and print one line each."""
    is_binary = y is None or len(np.unique(y)) == 2
    scores: dict[str, list[tuple[float, float]]] = {}
    for seed, train, (X_test, y_test, t_test), uplift in draws(X, y, treated, strength, n):
        data = unjoin(*train, policies=POLICIES, random_state=seed).data
        average = np.mean(uplift) if uplift is not None else None
        if average is None:
            average = y_test[t_test == 1].mean() - y_test[t_test == 0].mean()
        for name, make in methods(is_binary=is_binary).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimate = make(seed).fit(**data).predict(X_test)
            if uplift is not None:
                score = oracle_share(estimate, uplift)
            else:
                share = t_test.mean()
                values = y_test * (t_test / share - (1.0 - t_test) / (1.0 - share))
                score = 1000.0 * (auuc(estimate, values).value - average / 2.0)
            scores.setdefault(name, []).append((score, float(estimate.mean() / average)))
    what = "share" if y is None else "AUUC above random x 1000"
    print(f"{title}: {what}, mean / average")
    for name, values in scores.items():
        (score, ratio), error = np.mean(values, axis=0), np.std(values, axis=0) / np.sqrt(n)
        print(f"  {name:14} {score:9.3f} ± {error[0]:.3f}   {ratio:6.2f} ± {error[1]:.2f}")


def main() -> None:
    """Run the studies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--email", type=Path)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--jobs-only", action="store_true")
    args = parser.parse_args()
    trials = {"jobs": fetch_jobs(path=args.jobs)}
    if not args.jobs_only:
        trials["e-mail"] = fetch_email(path=args.email)
    for name, trial in trials.items():
        X, y = np.asarray(trial.X, dtype=float), np.asarray(trial.y, dtype=float)
        treated = np.asarray(trial.treatment, dtype=float)
        study(f"{name}, its own outcomes", X, y, treated, 0.0, args.draws)
        for word, strength in STRENGTHS.items():
            study(f"{name}, {word} effects", X, None, treated, strength, args.draws)


if __name__ == "__main__":
    main()
