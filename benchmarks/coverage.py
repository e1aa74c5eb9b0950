"""How often the intervals of an evaluation cover the truth, over many draws with known uplift.

Run: python benchmarks/coverage.py [--draws 500] [--out benchmarks/results/coverage.json] [--gain]
     [--arms]

Designs and two sizes. In three of them rows are no independent people: customers have 4 or 20 rows
each, with one treatment and an intra-class correlation of 0.7, or rows are counted. In one the
policies are known, in another 100 people have both labels, in one treatments are doses. In one the
outcome is a count of more variance than Poisson's, for the relative effect. In one an offer is made
at random and taken up for a reason that the features do not show: the truth is the gain of the
offer, and the mean effect on those who take it up because of it. Two treatments in four places are
a study of their own (--arms, to benchmarks/results/arms.json): of fits, and evaluations
on other rows. In each draw a fixed score, wrong in places as models are, is evaluated on fresh
tables. The truth is that of the same score over 400,000 people, who count by the true policies.
Finished draws are kept in a file, so that a run resumes where it stopped. A share s over n draws
has a standard error of sqrt(s (1 - s) / n).
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit

from unjoined import ArmUplift, SeparateLabels
from unjoined._typing import Array
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.evaluate import Estimate, Evaluation, evaluate_arms, evaluate_uplift
from unjoined.evaluate.strength import GainByScore
from unjoined.evaluate.terms import evaluation_of
from unjoined.model.linear import cross_fit_linear
from unjoined.targeting import assign_arms

SIZES = (600, 2000)
PEOPLE = 400_000
PANEL = 100  # people who have both labels
DOSE = 1.48  # standard deviation of the number of mails within a population
SAVE_EVERY = 5


def normal(d: int, mean: float = 0.0) -> Callable[[int, Rng], Array]:
    """Return a law of independent normal features."""
    return lambda n, rng: mean + rng.standard_normal((n, d))


def binary(
    features: Any,
    policies: Any,
    log_odds: Callable[[Array, Array], Array],
    target: Any = None,
) -> SimulatedProblem:
    """Return a problem with a 0/1 outcome."""

    def chance(X: Array, treated: Array) -> Array:
        return np.asarray(expit(log_odds(X, treated)))

    return SimulatedProblem(
        features,
        policies,
        lambda X, treated, rng: (rng.random_sample(len(X)) < chance(X, treated)) * 1.0,
        chance,
        target,
    )


def weak() -> SimulatedProblem:
    """Return policies that differ by less than 0.1 on average."""
    return binary(
        normal(3),
        {
            "A": lambda X: expit(0.18 + 0.5 * X[:, 0] + 0.1 * X[:, 1]),
            "B": lambda X: expit(-0.18 + 0.5 * X[:, 0] - 0.1 * X[:, 1]),
        },
        lambda X, t: -0.5 + 0.6 * X[:, 0] + t * (0.8 + 0.5 * X[:, 1]),
    )


def many() -> SimulatedProblem:
    """Return ten features and weak effects."""
    return binary(
        normal(10),
        {
            "A": lambda X: expit(0.8 + 0.6 * X[:, 0] - 0.4 * X[:, 3]),
            "B": lambda X: expit(-0.8 + 0.4 * X[:, 0] + 0.4 * X[:, 2]),
        },
        lambda X, t: (
            -0.6
            + 0.5 * X[:, 0]
            + 0.3 * X[:, 4]
            + t * (0.4 + 0.3 * X[:, 1] - 0.2 * X[:, 2])
        ),
    )


def real() -> SimulatedProblem:
    """Return a real outcome with a strong main effect, and noise with heavy tails."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(
            2.0 * X[:, 0] + X[:, 1] ** 2 + treated * (0.5 + X[:, 1] - 0.5 * X[:, 2])
        )

    return SimulatedProblem(
        normal(4),
        {
            "A": lambda X: expit(0.9 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-0.9 + 0.5 * X[:, 1]),
        },
        lambda X, treated, rng: mean(X, treated) + rng.standard_t(5, len(X)),
        mean,
    )


def shifted() -> SimulatedProblem:
    """Return two populations of different people."""

    def both(n: int, rng: Rng) -> Array:
        side = np.where(rng.random_sample(n) < 0.5, 0.25, -0.25)
        return np.asarray(side[:, None] + rng.standard_normal((n, 3)))

    return binary(
        {"A": normal(3, 0.25), "B": normal(3, -0.25)},
        {
            "A": lambda X: expit(0.8 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-0.8 + 0.5 * X[:, 1]),
        },
        lambda X, t: -0.5 + 0.6 * X[:, 0] + t * (0.6 + 0.5 * X[:, 1] - 0.3 * X[:, 2]),
        both,
    )


def customers() -> SimulatedProblem:
    """Return a real outcome whose noise has variance 1."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(X[:, 1] + treated * (0.5 + 0.5 * X[:, 0]))

    return SimulatedProblem(
        normal(3),
        {
            "A": lambda X: expit(1.0 + 0.3 * X[:, 0]),
            "B": lambda X: expit(-1.0 + 0.3 * X[:, 0]),
        },
        lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        mean,
    )


def in_clusters(
    rows: int, correlation: float = 0.7
) -> Callable[[SimulatedProblem, int, int], SeparateLabels]:
    """Return how to draw tables in which every customer has as many rows, all treated alike."""

    def draw(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
        rng = Rng(seed)
        n_own = n // rows
        parts: dict[str, list[Any]] = {}
        for k in range(4):
            name = "AB"[k % 2]
            X = problem.features(n_own, rng)
            treated = (rng.random_sample(n_own) < problem.policies[name](X)) * 1.0
            mean = np.repeat(problem.outcome_mean(X, treated), rows)
            habit = np.repeat(rng.standard_normal(n_own), rows)
            noise = rng.standard_normal(len(habit))
            y = mean + np.sqrt(correlation) * habit + np.sqrt(1.0 - correlation) * noise
            gone = np.full(len(y), np.nan)
            columns = {
                "X": np.repeat(X, rows, axis=0),
                "y": y if k < 2 else gone,
                "treatment": gone if k < 2 else np.repeat(treated, rows),
                "population": np.repeat(name, len(y)),
                "cluster": np.repeat(np.arange(n_own) + k * n_own, rows),
            }
            for column, values in columns.items():
                parts.setdefault(column, []).append(values)
        return SeparateLabels(**{c: np.concatenate(v) for c, v in parts.items()})

    return draw


def coarse() -> SimulatedProblem:
    """Return features of few values, so that people can be counted."""

    def features(n: int, rng: Rng) -> Array:
        return np.asarray(np.clip(np.round(rng.standard_normal((n, 2))), -2.0, 2.0))

    return binary(
        features,
        {
            "A": lambda X: expit(0.8 + 0.4 * X[:, 0]),
            "B": lambda X: expit(-0.8 + 0.4 * X[:, 1]),
        },
        lambda X, t: -0.5 + 0.4 * X[:, 0] + t * (0.6 + 0.4 * X[:, 1]),
    )


def counted(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
    """Draw tables and count the people whose rows are the same."""
    data = problem.draw(n, random_state=seed)
    codes = np.where(np.asarray(data.population) == "A", 0.0, 1.0)
    columns = np.column_stack([data.X, data.y, data.treatment, codes])
    cells, count = np.unique(
        np.nan_to_num(columns, nan=-9.0), axis=0, return_counts=True
    )
    X, (y, treatment, population) = cells[:, :-3], cells[:, -3:].T
    return SeparateLabels(
        X,
        np.where(y == -9.0, np.nan, y),
        np.where(treatment == -9.0, np.nan, treatment),
        np.where(population == 0.0, "A", "B"),
        count=count,
    )


def purchases() -> SimulatedProblem:
    """Return counts of twice their mean as variance; the more are bought, the larger the effect."""

    def mean(X: Array, treated: Array) -> Array:
        rise = np.exp(0.4 + 0.2 * X[:, 0])
        return np.asarray(
            0.8 * np.exp(0.4 * X[:, 1]) * np.where(treated > 0, rise, 1.0)
        )

    return SimulatedProblem(
        normal(3),
        {
            "A": lambda X: expit(0.9 + 0.4 * X[:, 0]),
            "B": lambda X: expit(-0.9 + 0.4 * X[:, 1]),
        },
        lambda X, treated, rng: rng.negative_binomial(mean(X, treated), 0.5) * 1.0,
        mean,
    )


def close() -> SimulatedProblem:
    """Return policies that are 0.2 apart for everybody."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(X[:, 1] + np.sin(X[:, 0]) + treated * (0.4 + 0.4 * X[:, 0]))

    return SimulatedProblem(
        normal(3),
        {
            "A": lambda X: 0.8 * expit(0.5 * X[:, 0]) + 0.2,
            "B": lambda X: 0.8 * expit(0.5 * X[:, 0]),
        },
        lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        mean,
    )


def dosed() -> SimulatedProblem:
    """Return doses: policies and effects are those of a standard deviation of dose."""

    def mean(X: Array, treated: Array) -> Array:
        return np.asarray(X[:, 1] + np.sin(X[:, 0]) + treated * (0.3 + 0.2 * X[:, 0]))

    return SimulatedProblem(
        normal(2),
        {
            "A": lambda X: np.exp(0.9 + 0.3 * X[:, 0]) / DOSE,
            "B": lambda X: np.exp(0.1 - 0.2 * X[:, 0]) / DOSE,
        },
        lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        mean,
    )


def with_doses(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
    """Draw tables in which people get a number of mails."""
    rng = Rng(seed)
    parts: dict[str, list[Any]] = {}
    for k in range(4):
        name = "AB"[k % 2]
        X = problem.features(n, rng)
        dose = rng.poisson(DOSE * problem.policies[name](X)) * 1.0
        gone = np.full(n, np.nan)
        columns = {
            "X": X,
            "y": problem.outcome(X, dose, rng) if k < 2 else gone,
            "treatment": gone if k < 2 else dose,
            "population": np.repeat(name, n),
        }
        for column, values in columns.items():
            parts.setdefault(column, []).append(values)
    own = {column: np.concatenate(values) for column, values in parts.items()}
    return SeparateLabels(**own, dose=True)


def with_policies(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
    """Draw outcome tables whose policies are known; there are no treatment tables."""
    data = problem.draw(n, random_state=seed)
    at = np.flatnonzero(~np.isnan(data.y))
    columns = {name: np.asarray(column)[at] for name, column in data.items()}
    each = [function(columns["X"]) for function in problem.policies.values()]
    is_first = columns["population"] == next(iter(problem.policies))
    return SeparateLabels(**columns, policy=np.where(is_first, *each))


def with_panel(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
    """Draw tables, and a panel of 100 people who have both labels."""
    data, rng = problem.draw(n, random_state=seed), Rng(seed + 1_000_000)
    parts = {name: [np.asarray(column)] for name, column in data.items()}
    for name, policy in problem.policies.items():
        X = problem.features(PANEL // 2, rng)
        treated = (rng.random_sample(len(X)) < policy(X)) * 1.0
        parts["X"].append(X)
        parts["y"].append(problem.outcome(X, treated, rng))
        parts["treatment"].append(treated)
        parts["population"].append(np.repeat(name, len(X)))
    return SeparateLabels(**{c: np.concatenate(v) for c, v in parts.items()})


def taken(X: Array, offered: Array | float) -> Array:
    """Return the share who take it up: those whose reluctance lies below it."""
    return np.asarray(expit(3.0 * np.asarray(offered) - 1.5 + 0.5 * X[:, 0]))


def gained(taken_up: Array) -> Array:
    """Return what people gain on average if this share takes it up, the least reluctant."""
    return 0.15 * taken_up + 0.15 * taken_up**2


def offers() -> SimulatedProblem:
    """Return what an offer does: the reluctant respond more often anyway, and gain more."""

    def chance(X: Array, offered: Array) -> Array:
        return 0.25 + gained(taken(X, offered))

    return SimulatedProblem(
        normal(2),
        {"A": lambda X: np.ones(len(X)), "B": lambda X: np.zeros(len(X))},
        lambda X, offered, rng: (rng.random_sample(len(X)) < chance(X, offered)) * 1.0,
        chance,
    )


def with_take_up(problem: SimulatedProblem, n: int, seed: int) -> SeparateLabels:
    """Draw outcomes and who took it up, of people who were made the offer and of others."""
    rng = Rng(seed)
    parts: dict[str, list[Any]] = {}
    for k in range(4):
        name = "AB"[k % 2]
        X = problem.features(n, rng)
        reluctance = rng.random_sample(n)
        took = reluctance < taken(X, problem.policies[name](X))
        chance = 0.1 + 0.3 * reluctance + (0.15 + 0.3 * reluctance) * took
        gone = np.full(n, np.nan)
        columns = {
            "X": X,
            "y": (rng.random_sample(n) < chance) * 1.0 if k < 2 else gone,
            "treatment": gone if k < 2 else took * 1.0,
            "population": np.repeat(name, n),
        }
        for column, values in columns.items():
            parts.setdefault(column, []).append(values)
    return SeparateLabels(**{c: np.concatenate(v) for c, v in parts.items()})


@dataclass(frozen=True)
class Design:
    """A problem, the score that is evaluated, and how tables are drawn if not row by row."""

    make: Callable[[], SimulatedProblem]
    score: Callable[[Array], Array]
    tables: Callable[[SimulatedProblem, int, int], SeparateLabels] | None = None
    randomised: bool = False

    def draw(self, n: int, seed: int) -> SeparateLabels:
        """Return tables of about ``n`` rows or people each."""
        if self.tables is not None:
            return self.tables(self.make(), n, seed)
        return self.make().draw(n, random_state=seed)


DESIGNS = {
    "strong": Design(
        lambda: paper_problem(b=2.0), lambda X: -0.3 * X[:, 1] + 0.1 * X[:, 0]
    ),
    "weak gap": Design(weak, lambda X: 0.15 + 0.08 * X[:, 1] + 0.05 * X[:, 2]),
    "many features": Design(many, lambda X: 0.08 + 0.05 * X[:, 1] - 0.03 * X[:, 2]),
    "real outcome": Design(real, lambda X: 0.4 + 0.8 * X[:, 1] + 0.2 * X[:, 3]),
    "covariate shift": Design(shifted, lambda X: 0.1 + 0.1 * X[:, 1] + 0.02 * X[:, 0]),
    "customers of 4 rows": Design(
        customers, lambda X: 0.4 + 0.4 * X[:, 0] + 0.1 * X[:, 2], in_clusters(4)
    ),
    "customers of 20 rows": Design(
        customers, lambda X: 0.4 + 0.4 * X[:, 0] + 0.1 * X[:, 2], in_clusters(20)
    ),
    "known policies": Design(
        customers,
        lambda X: 0.4 + 0.4 * X[:, 0] + 0.1 * X[:, 2],
        with_policies,
    ),
    "panel of 100": Design(
        close, lambda X: 0.4 + 0.4 * X[:, 0] + 0.1 * X[:, 2], with_panel
    ),
    "doses": Design(dosed, lambda X: 0.3 + 0.2 * X[:, 0] + 0.1 * X[:, 1], with_doses),
    "offers": Design(
        offers, lambda X: 0.3 - 0.1 * X[:, 0] + 0.1 * X[:, 1], with_take_up, True
    ),
    "purchases": Design(purchases, lambda X: 0.5 + 0.2 * X[:, 0] + 0.1 * X[:, 2]),
    "counts": Design(coarse, lambda X: 0.1 + 0.08 * X[:, 1], counted),
}


class Truth:
    """What evaluations should find: sums over many people who count by the true policies."""

    def __init__(self, design: Design) -> None:
        problem = design.make()
        X = problem.draw_joint(PEOPLE, random_state=12345).X
        omega = np.minimum(1.0, (problem.policy_gap(X) / 0.2) ** 2)
        score = design.score(X)
        order = np.argsort(-score)
        people = omega[order] / omega.sum()
        self.score, self.people, self.uplift = (
            score[order],
            people,
            problem.uplift(X)[order],
        )
        self.share = np.cumsum(people)
        self.gain = np.cumsum(people * self.uplift)
        self.average = float(self.gain[-1])
        base = problem.outcome_mean(X[order], np.zeros(len(X)))
        self.relative = self.average / float(people @ base)
        took = [float(np.mean(taken(X, offered))) for offered in (0.0, 1.0)]
        self.compliers = self.average / (took[1] - took[0])  # of offers
        rank = 1.0 - self.share + people / 2.0
        self.auuc = float((people * self.uplift) @ rank)
        self.qini = self.auuc - self.average / 2.0

    def at(self, share: Array | float) -> Array:
        """Return the gain of treating the best share."""
        return np.interp(share, self.share, self.gain)

    def between(self, low: float, high: float) -> float:
        """Return the average uplift of people with scores in (low, high]."""
        inside = (self.score > low) & (self.score <= high)
        return float(np.average(self.uplift[inside], weights=self.people[inside]))


def record(found: Evaluation, truth: Truth) -> dict[str, Any]:
    """Return what one draw says of coverage: 1 or 0, or a share of the bins."""
    last = len(found.bins) - 1
    ends = [
        (-np.inf if b == 0 else each.low, np.inf if b == last else each.high)
        for b, each in enumerate(found.bins)
    ]
    bins = [
        b.uplift.covers(truth.between(*end))
        for b, end in zip(found.bins, ends, strict=True)
    ]
    curve = found.curve
    gain = truth.at(curve.share)
    inside = (curve.low - 1e-12 <= gain) & (gain <= curve.high + 1e-12)
    top = float(truth.at(0.3))

    def one(estimate: Estimate, value: float) -> float:
        return float(estimate.covers(value))

    plain = {
        name: one(found.plain[name], getattr(truth, name))
        for name in ("average", "auuc")
    }
    relative = {}
    if found.relative is not None:  # outcomes are amounts, and the base is clear of 0
        relative["relative"] = one(found.relative, truth.relative)
    if found.compliers is not None:
        relative["compliers"] = one(found.compliers, truth.compliers)
    return relative | {
        "average": one(found.average, truth.average),
        "top share": one(found.rules["best 30%"], top),
        "auuc": one(found.auuc, truth.auuc),
        "qini": one(found.qini, truth.qini),
        "deciles": float(np.mean(bins)),
        "uniform band": float(inside[1:].all()),
        "bounded": float(np.isfinite(found.average.interval()).all()),
        "error of the average": float(found.average.value - truth.average),
        "standard error": found.average.standard_error,
        "plain average": plain["average"],
        "plain auuc": plain["auuc"],
    }


def summary(entries: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each column, and bias and width in useful form."""
    names = {name for entry in entries for name in entry}
    columns = {
        name: np.array([entry[name] for entry in entries if name in entry])
        for name in sorted(names)
    }
    found = {name: float(column.mean()) for name, column in columns.items()}
    found["error of the average"] = float(np.median(columns["error of the average"]))
    found["standard error"] = float(np.median(columns["standard error"]))
    return {"draws": len(entries)} | found


def study(
    draws: int, out: Path | None, sizes: tuple[int, ...], only: list[str]
) -> dict[str, Any]:
    """Run what is missing, draw by draw through all designs, and return the coverage."""
    known = json.loads(out.read_text())["draws"] if out and out.exists() else {}
    keys = [(name, n) for n in sizes for name in DESIGNS if not only or name in only]
    truths = {name: Truth(DESIGNS[name]) for name in DESIGNS}
    start = time.perf_counter()
    for seed in range(draws):
        for name, n in keys:
            entries = known.setdefault(f"{name}, 4 x {n}", [])
            if len(entries) > seed:
                continue
            design = DESIGNS[name]
            data = design.draw(n, seed)
            options = {"n_jobs": 1, "random_state": seed}
            found = evaluate_uplift(
                design.score, data, randomised=design.randomised, **options
            )
            entries.append(record(found, truths[name]))
        if seed % SAVE_EVERY == SAVE_EVERY - 1 or seed == draws - 1:
            done = {
                "draws": known,
                "coverage": {k: summary(v) for k, v in known.items() if v},
            }
            print(f"draw {seed + 1}, {time.perf_counter() - start:.0f} s", flush=True)
            if out:
                out.write_text(json.dumps(rounded(done)) + "\n")
    return {key: summary(entries) for key, entries in known.items() if entries}


def gain_study(draws: int) -> dict[str, float]:
    """Return how often intervals of what a model keeps, `GainByScore`, cover the truth.

    Tables of 1,000 rows, the gain of treating the best 10, 30 and 50 % of other people and all of
    them, ranked by a score that is somewhat wrong. Nuisances are linear: any will do.
    """
    problem = campaign_problem()

    def score(X: Array) -> Array:
        return np.asarray(problem.uplift(X) + 0.1 * np.sin(X[:, 0]))

    people = problem.draw_joint(40_000, random_state=999).X
    said, uplift = score(people), problem.uplift(people)
    omega = np.minimum(1.0, (problem.policy_gap(people) / 0.2) ** 2)
    shares = (0.1, 0.3, 0.5, 1.0)
    rules = [(said >= np.quantile(said, 1.0 - share)) * 1.0 for share in shares]
    truth = [float(np.average(uplift, weights=omega * rule)) for rule in rules]
    held = np.zeros(len(shares))
    for seed in range(draws):
        data = problem.draw(1000, random_state=seed)
        labels = {name: data[name] for name in ("y", "treatment", "population")}
        rows = label_rows(np.asarray(data.X), **labels)
        fold = rows.deal(5, Rng(seed))
        found = evaluation_of(rows, fold, cross_fit_linear(rows, fold))
        own = score(rows.X)
        record = GainByScore.of_rows(found, own, own, rows.weight, 0.0)
        gains = [record.average(said, rule) for rule in rules]
        held += [gain.covers(value) for gain, value in zip(gains, truth, strict=True)]
    return {
        f"best {share:.0%}": float(h)
        for share, h in zip(shares, held / draws, strict=True)
    }


ARMS = np.array(["none", "mail", "phone"])
LIKED = ((1.2, -1.0), (-1.0, 1.2), (-1.0, -1.0), (0.0, 0.0))  # log-odds of each place


def arm_shares(X: Array, k: int) -> Array:
    """Return the probability of each of three treatments in one of four places."""
    turn = 0.3 * X[:, 0]
    odds = np.column_stack([0.0 * turn, LIKED[k][0] + turn, LIKED[k][1] - turn])
    return np.asarray(np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True))


def arm_effects(X: Array) -> Array:
    """Return what mail and phone do."""
    return np.column_stack([0.3 + 0.5 * X[:, 0], 0.3 - 0.5 * X[:, 0]])


def arm_tables(n: int, seed: int) -> SeparateLabels:
    """Draw tables of four places in which people get mail, a call or nothing."""
    rng = Rng(seed)
    parts: dict[str, list[Any]] = {}
    for is_outcome in (True, False):
        for k in range(len(LIKED)):
            X = rng.standard_normal((n, 2))
            below = np.cumsum(arm_shares(X, k), axis=1)
            arm = (rng.random_sample((n, 1)) > below).sum(axis=1)
            effect = np.column_stack([np.zeros(n), arm_effects(X)])[np.arange(n), arm]
            columns = {
                "X": X,
                "y": X[:, 1] + effect + rng.standard_normal(n),
                "treatment": ARMS[arm],
                "population": np.repeat(f"place {k}", n),
            }
            columns["treatment" if is_outcome else "y"] = np.full(
                n, None if is_outcome else np.nan
            )
            for column, values in columns.items():
                parts.setdefault(column, []).append(values)
    own = {column: np.concatenate(values) for column, values in parts.items()}
    return SeparateLabels(**own, control="none")


def arm_weights(X: Array) -> Array:
    """Return how much people count for each treatment: by the gap that it alone has."""
    P = np.stack([arm_shares(X, k)[:, 1:] for k in range(len(LIKED))], axis=1)
    apart = P - P.mean(axis=1, keepdims=True)
    left = np.empty(apart.shape)
    for i, own in enumerate(apart):
        for j in (0, 1):
            slope = np.linalg.lstsq(own[:, [1 - j]], own[:, j], rcond=None)[0]
            left[i, :, j] = own[:, j] - own[:, [1 - j]] @ slope
    pairs = 0.5 * (1.0 - 1.0 / len(LIKED))
    return np.minimum(1.0, (left**2).mean(axis=1) / pairs / 0.2**2)


def arms_draw(n: int, seed: int, people: Array, counts: Array) -> dict[str, float]:
    """Return which intervals cover, of a fit and of an evaluation on other rows, and gains.

    ``counts`` (n, 2) is how much each of the ``people`` counts for each treatment.
    """
    effects = arm_effects(people)
    perfect = float(np.maximum(effects.max(axis=1), 0.0).mean())
    model = ArmUplift(n_jobs=1, random_state=seed).fit(arm_tables(n, seed))
    said = model.predict(people)
    assigned = assign_arms(said)
    gained = np.column_stack([np.zeros(len(people)), effects])[
        np.arange(len(people)), assigned
    ]
    held = arm_tables(n, 100_000 + seed)
    found = evaluate_arms(model, held, n_jobs=1, random_state=seed)
    row: dict[str, float] = {}
    for j, (arm, own) in enumerate(model.models_.items()):
        u, w = effects[:, j], counts[:, j]
        top = said[:, j] >= np.quantile(said[:, j], 0.7)
        one = found.arms[arm]
        truth = float(np.average(u, weights=w))
        row[f"average of {arm}"] = own.average_effect_.covers(truth)
        row[f"held-out average of {arm}"] = one.average.covers(truth)
        row[f"best 30% of {arm}"] = own.gain_.average(said[:, j], top).covers(
            float(np.average(u, weights=w * top))
        )
        order = np.argsort(said[:, j])
        rank = np.empty(len(people))
        rank[order] = (np.cumsum(w[order]) - 0.5 * w[order]) / w.sum()
        row[f"held-out AUUC of {arm}"] = one.auuc.covers(
            float(np.average(rank * u, weights=w))
        )
    everybody = float(np.average(gained, weights=counts.min(axis=1)))
    best = found.gains.get("the best for each")
    row["held-out gain of the best for each"] = best is None or best.covers(everybody)
    row["gain over that of perfect arms"] = float(gained.mean()) / perfect
    return {name: float(value) for name, value in row.items()}


def arms_study(
    draws: int, sizes: tuple[int, ...], out: Path | None
) -> dict[str, dict[str, float]]:
    """Return how often intervals of several treatments cover; a file keeps draws as they come."""
    people = Rng(999).standard_normal((20_000, 2))
    counts = arm_weights(people)
    known = json.loads(out.read_text())["draws"] if out and out.exists() else {}
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        rows = known.setdefault(f"4 x {n}", [])
        while len(rows) < draws:
            rows.append(arms_draw(n, len(rows), people, counts))
            if out:
                out.write_text(json.dumps(rounded({"draws": known})) + "\n")
        found[f"4 x {n}"] = {"draws": float(len(rows))} | {
            name: float(np.mean([row[name] for row in rows])) for name in rows[0]
        }
    return found


def rounded(value: Any) -> Any:
    """Return nested numbers with five digits."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    """Run the study, print the table and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--designs", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--gain", action="store_true", help="only the gains that models keep"
    )
    parser.add_argument("--arms", action="store_true", help="only several treatments")
    args = parser.parse_args()
    if args.arms:
        print(
            json.dumps(
                rounded(arms_study(args.draws, tuple(args.sizes), args.out)), indent=1
            )
        )
        return
    if args.gain:
        print(
            json.dumps(
                {"draws": args.draws, "coverage of gains": gain_study(args.draws)}
            )
        )
        return
    found = study(args.draws, args.out, tuple(args.sizes), args.designs)
    columns = (
        "draws",
        "average",
        "top share",
        "auuc",
        "qini",
        "deciles",
        "uniform band",
    )
    columns += ("relative", "compliers", "bounded", "plain average")
    print(f"{'':26}", *(f"{name:>13}" for name in columns))
    for key, row in found.items():
        print(f"{key:26}", *(f"{row.get(name, math.nan):13.3f}" for name in columns))


if __name__ == "__main__":
    main()
