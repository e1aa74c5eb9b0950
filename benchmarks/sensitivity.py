"""How far robust intervals, breakdown values and benchmarks hold, over draws with known truth.

Run: python benchmarks/sensitivity.py [--draws 300] [--parts robust ...] [--designs NAME ...]
[--out FILE]

robust: five designs in which equal people of two populations differ by up to delta for other
reasons, in three ways: the worst for the average either way, and by a smooth function of the
features. Shares of intervals that cover the true average, robust and plain.

claims: how often "gains, 95 % sure up to delta" is claimed in these designs where the average gains
nothing and delta is the worst; and where policies hardly differ.

columns: how far the average moves when a column is left out, as it was said and as it did.

before: equal people differ by delta now and at an earlier time, when nobody was treated. Bias and
coverage of the average with that difference taken off, and how often the earlier outcomes tell of
it: with the difference, and without.

bounds: outcomes of 0 and 1 where policies do not differ, and in the last design bases do; the truth
lies inside of the bounds, or is one of them. Shares of intervals that hold it.

time: seconds of an evaluation, and of what it says of sensitivity once its sums are there.

hillstrom: a mail trial is taken apart. Its customers are dealt to two populations, and mailed, by a
column that is then hidden. What equal people then differ by is known from all 64,000 customers, and
so is the effect. Claimed is that mails gain more than they cost, at a cost just above the effect. A
report does not warn where it calls good what an ordinary hidden trait would do.

Finished draws are kept in a file, so that a run resumes where it stopped. A share s over n draws
has a standard error of sqrt(s (1 - s) / n).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from coverage import rounded
from numpy.random import RandomState as Rng
from scipy.special import expit

from unjoined import SeparateLabels
from unjoined._typing import Array
from unjoined.datasets import fetch_email
from unjoined.evaluate import Sensitivity, evaluate_uplift, sensitivity, uplift_bounds
from unjoined.evaluate.ranks import EvaluatedTables
from unjoined.evaluate.sensitivity import NOTHING

PEOPLE = 400_000
SAVE_EVERY = 5
HABIT = 0.7  # correlation of the outcomes of a customer
HIDDEN = {"history": 2.0, "recency": -1.0}  # columns that deal, with log-odds
EARLIER = ("real outcome", "rates", "three populations")  # designs with an earlier time
LARGEST_GAP = 0.2  # from which on a person counts fully


@dataclass(frozen=True)
class Design:
    """Populations that treat people differently, and a mean outcome without and with treatment."""

    policies: tuple[Callable[[Array], Array], ...]
    base: Callable[[Array], Array]
    uplift: Callable[[Array], Array]
    delta: float  # largest difference of equal people
    is_rate: bool = False  # outcomes are 0 or 1
    rows: int = 1  # of a customer, who is treated in all of them or in none
    features: int = 3

    def people(self, n: int, rng: Rng) -> Array:
        """Draw features."""
        return np.asarray(rng.standard_normal((n, self.features)))

    def chances(self, X: Array) -> Array:
        """Return the chance of treatment in each population."""
        return np.column_stack([policy(X) for policy in self.policies])

    def shifts(self, X: Array, how: str) -> Array:
        """Return by how much people of each population have more than treatment explains."""
        e = self.chances(X)
        side = np.sign(e - e.mean(axis=1, keepdims=True))
        shapes = {
            "worst, more": 0.5 * side,
            "worst, less": -0.5 * side,
            "smooth": 0.5 * np.sin(2.0 * X[:, :1] + np.arange(e.shape[1])),
            "none": 0.0 * side,
        }
        return self.delta * shapes[how]

    def omega(self, X: Array) -> Array:
        """Return how much people count, from 0 to 1."""
        e = self.chances(X)
        gap = 2.0 * np.sqrt(np.var(e, axis=1) * e.shape[1] / (e.shape[1] - 1) / 2.0)
        return np.asarray(np.minimum(1.0, (gap / LARGEST_GAP) ** 2))

    def draw(self, n: int, seed: int, how: str, effect: float = 0.0) -> SeparateLabels:
        """Return tables of ``n`` rows each; everybody gains ``effect`` more by treatment."""
        rng = Rng(seed)
        parts: dict[str, list[Any]] = {}
        own = n // self.rows
        for k in range(len(self.policies)):
            for kind in (0, 1):
                X = self.people(own, rng)
                t = (rng.random_sample(own) < self.policies[k](X)) * 1.0
                mean = self.base(X) + t * (self.uplift(X) + effect)
                mean = np.repeat(mean + self.shifts(X, how)[:, k], self.rows)
                habit = np.repeat(rng.standard_normal(own), self.rows)
                noise = rng.standard_normal(len(mean))
                y = mean + noise
                if self.is_rate:
                    y = (rng.random_sample(len(mean)) < mean) * 1.0
                elif self.rows > 1:
                    y = mean + np.sqrt(HABIT) * habit + np.sqrt(1.0 - HABIT) * noise
                gone = np.full(len(y), np.nan)
                cluster = np.repeat(np.arange(own), self.rows) + (2 * k + kind) * own
                columns = {
                    "X": np.repeat(X, self.rows, axis=0),
                    "y": gone if kind else y,
                    "treatment": np.repeat(t, self.rows) if kind else gone,
                    "population": np.repeat("ABC"[k], len(y)),
                    "cluster": cluster,
                }
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values)
        if self.rows == 1:
            del parts["cluster"]
        return SeparateLabels(**{c: np.concatenate(v) for c, v in parts.items()})

    def earlier(self, n: int, seed: int, how: str) -> dict[str, Any]:
        """Return outcomes of a time when nobody was treated, ``n`` rows of each population."""
        rng = Rng(seed + 1_000_000)
        parts = []
        for k in range(len(self.policies)):
            X = self.people(n, rng)
            mean = self.base(X) + self.shifts(X, how)[:, k]
            y = mean + rng.standard_normal(n)
            if self.is_rate:
                y = (rng.random_sample(n) < mean) * 1.0
            parts.append((X, y, np.repeat("ABC"[k], n)))
        X, y, population = map(np.concatenate, zip(*parts, strict=True))
        return {"X": X, "y": y, "population": population}

    def truth(self) -> float:
        """Return the average uplift of those who are spoken for."""
        X = self.people(PEOPLE, Rng(12345))
        return float(np.average(self.uplift(X), weights=self.omega(X)))


def logit(level: float, **slopes: float) -> Callable[[Array], Array]:
    """Return a policy: x0=0.5 is a slope in the first feature."""

    def policy(X: Array) -> Array:
        at = np.full(len(X), level)
        for name, slope in slopes.items():
            at += slope * X[:, int(name[1:])]
        return np.asarray(expit(at))

    return policy


DESIGNS = {
    "real outcome": Design(
        (logit(0.8, x0=0.5), logit(-0.8, x0=0.3)),
        lambda X: X[:, 1] + 0.5 * X[:, 2] ** 2,
        lambda X: 0.6 + 0.5 * X[:, 0],
        0.1,
    ),
    "rates": Design(
        (logit(1.0, x0=0.5), logit(-1.0, x1=0.5)),
        lambda X: 0.1 + 0.4 * expit(X[:, 1]),
        lambda X: 0.1 + 0.1 * expit(X[:, 0]),
        0.05,
        is_rate=True,
    ),
    "policies that cross": Design(
        (logit(0.0, x0=1.5), logit(0.0, x0=-1.5)),
        lambda X: 2.0 * X[:, 0] + X[:, 1],
        lambda X: 0.5 + 0.5 * np.sin(X[:, 1]),
        0.1,
    ),
    "three populations": Design(
        (logit(1.2, x0=0.5), logit(0.0, x1=0.7), logit(-1.2, x2=0.3)),
        lambda X: X[:, 1] + np.abs(X[:, 0]),
        lambda X: 0.4 + 0.4 * X[:, 1],
        0.1,
    ),
    "customers of 4 rows": Design(
        (logit(1.0, x0=0.3), logit(-1.0, x0=0.3)),
        lambda X: X[:, 1],
        lambda X: 0.5 + 0.5 * X[:, 0],
        0.1,
        rows=4,
    ),
}
WAYS = ("worst, more", "worst, less", "smooth")
# Policies that 1,000 rows hardly tell apart: claims only.
HARDLY_APART = replace(
    DESIGNS["real outcome"], policies=(logit(0.1, x0=0.1), logit(-0.1, x0=-0.1))
)
TIMED = {
    "real outcome": DESIGNS["real outcome"],
    "three populations": DESIGNS["three populations"],
    "30 features": replace(DESIGNS["real outcome"], features=30),
}


def robust_draw(design: Design, truth: float, n: int, seed: int) -> dict[str, float]:
    """Return what one draw in each way says: 1 if an interval covers."""
    entry = {}
    options: dict[str, Any] = {"n_jobs": 1, "random_state": seed}
    for how in WAYS:
        average = sensitivity(None, design.draw(n, seed, how), **options).average
        low, high = average.interval(design.delta, 0.95)
        entry[f"robust, {how}"] = float(low <= truth <= high)
        entry[f"plain, {how}"] = float(average.gain.covers(truth))
        entry[f"width, {how}"] = high - low
    return entry


def claim_draw(design: Design, truth: float, n: int, seed: int) -> dict[str, float]:
    """Return what one draw claims where the average gains nothing: 1 if a claim was made."""
    data = design.draw(n, seed, "worst, more", effect=-truth)
    average = sensitivity(None, data, n_jobs=1, random_state=seed).average
    sure = average.breakdown(0.95) if average.gains else -1.0
    return {
        "claimed up to delta": float(sure >= design.delta),
        "claimed": float(sure > 0.0),
    }


def before_draw(design: Design, truth: float, n: int, seed: int) -> dict[str, float]:
    """Return what one draw says once earlier outcomes are known."""
    entry = {}
    for how in ("worst, more", "smooth", "none"):
        before = design.earlier(n, seed, how)
        found = sensitivity(
            None, design.draw(n, seed, how), before=before, n_jobs=1, random_state=seed
        )
        less = found.differenced[0].gain
        entry[f"error, {how}"] = less.value - truth
        entry[f"standard error, {how}"] = less.standard_error
        entry[f"covers, {how}"] = float(less.covers(truth))
        entry[f"plain covers, {how}"] = float(found.average.gain.covers(truth))
        entry[f"told, {how}"] = float(found.placebos[0].is_rejected)
    return entry


@dataclass(frozen=True)
class Left:
    """Tables with a column that is left out, whose means differ between populations."""

    apart: float  # by so many standard deviations
    base: float  # slope of the outcome in it
    uplift: float  # slope of the uplift in it
    policy: float  # slope of the log-odds of treatment in it
    bend: float = 0.0  # of the outcome in its square

    def draw(self, n: int, seed: int) -> SeparateLabels:
        """Return tables whose last column is the one in question."""
        rng = Rng(seed)
        parts: dict[str, list[Any]] = {}
        for k in (0, 1):
            for kind in (0, 1):
                X = rng.standard_normal((n, 3))
                X[:, 2] += 0.5 * X[:, 0] + self.apart * (k == 0)
                v = X[:, 2]
                at = (0.8, -0.8)[k] + 0.4 * X[:, 0] + self.policy * v
                t = (rng.random_sample(n) < expit(at)) * 1.0
                y = X[:, 1] + self.base * v + self.bend * v**2
                y = y + t * (0.6 + 0.5 * X[:, 0] + self.uplift * v)
                y = y + rng.standard_normal(n)
                gone = np.full(n, np.nan)
                columns = {
                    "X": X,
                    "y": gone if kind else y,
                    "treatment": t if kind else gone,
                    "population": np.repeat("AB"[k], n),
                }
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values)
        return SeparateLabels(**{c: np.concatenate(v) for c, v in parts.items()})


LEFT = {
    "base": Left(0.3, 0.5, 0.0, 0.0),
    "base, other way": Left(-0.3, 0.5, 0.0, 0.0),
    "base and policy": Left(0.3, 0.5, 0.0, 0.5),
    "base, uplift and policy": Left(0.3, 0.5, 0.3, 0.5),
    "bent base": Left(0.3, 0.3, 0.0, 0.0, bend=0.3),
    "alike in both": Left(0.0, 0.5, 0.0, 0.5),
}


def column_draw(case: Left, n: int, seed: int) -> dict[str, float]:
    """Return by how much the average moves without the column: as said, and as it did."""
    data = case.draw(n, seed)
    options: dict[str, Any] = {"n_jobs": 1, "random_state": seed}
    full = sensitivity(None, data, **options)
    X = np.asarray(data.X)[:, :2]
    less = sensitivity(
        None, SeparateLabels(X, data.y, data.treatment, data.population), **options
    )
    said = next(each for each in full.benchmarks if each.column == "x3")
    return {
        "said": said.moves,
        "moved": less.average.gain.value - full.average.gain.value,
        "delta": said.delta,
    }


@dataclass(frozen=True)
class Alike:
    """Populations that treat people alike, and chances of the outcome."""

    base: Callable[[Array], Array]
    uplift: Callable[[Array], Array]
    apart: float = 0.0  # by so much the second population responds more
    never_harms: bool = False

    def draw(self, n: int, seed: int) -> SeparateLabels:
        """Return four tables of ``n`` rows each."""
        rng = Rng(seed)
        parts = []
        for k in (0, 1):
            for kind in (0, 1):
                X = rng.standard_normal((n, 2))
                t = (rng.random_sample(n) < expit(0.3 + X[:, 0])) * 1.0
                mean = self.base(X) + t * self.uplift(X) + self.apart * k
                y = (rng.random_sample(n) < mean) * 1.0
                gone = np.full(n, np.nan)
                labels = (gone, t) if kind else (y, gone)
                parts.append((X, *labels, np.repeat("AB"[k], n)))
        return SeparateLabels(*map(np.concatenate, zip(*parts, strict=True)))


ALIKE = {
    "inside": Alike(
        lambda X: 0.3 * expit(X[:, 1]), lambda X: 0.5 * expit(X[:, 1] + X[:, 0])
    ),
    "at the upper bound": Alike(
        lambda X: 0.0 * X[:, 0], lambda X: 0.5 * expit(X[:, 0])
    ),
    "at the lower bound": Alike(lambda X: expit(X[:, 1]), lambda X: -expit(X[:, 1])),
    "never harms": Alike(
        lambda X: 0.3 * expit(X[:, 1]), lambda X: 0.0 * X[:, 0], never_harms=True
    ),
    "bases apart": Alike(
        lambda X: 0.3 * expit(X[:, 1]), lambda X: 0.3 * expit(X[:, 0]), apart=0.2
    ),
}


def bounds_draw(case: Alike, n: int, seed: int) -> dict[str, float]:
    """Return whether the bounds of the average and of a list hold the truth."""
    data = case.draw(n, seed)

    def listed(X: Array) -> Array:
        return (X[:, 1] > 0.5) * 1.0

    people = Rng(12345).standard_normal((PEOPLE, 2))
    truths = [np.mean(h * case.uplift(people)) for h in (1.0, listed(people))]
    found = uplift_bounds(
        listed,
        data,
        rules={"list": listed},
        never_harms=case.never_harms,
        n_jobs=1,
        random_state=seed,
    )
    entry = {}
    for each, truth in zip(found.bounds, truths, strict=True):
        low, high = each.interval()
        entry[f"holds, {each.name}"] = float(low <= truth <= high)
        entry[f"width, {each.name}"] = high - low
    return entry


class Trial:
    """A trial whose customers are dealt to populations by a column, and mailed by it as well."""

    mailed = 0.4  # log-odds of being mailed, per standard deviation of the column

    def __init__(self, column: str, deal: float) -> None:
        """Hide a column; ``deal`` are log-odds of the first population, per its deviation."""
        data = fetch_email(outcome="visit")
        names = list(data.feature_names)
        value = data.X[:, names.index(column)]
        if column == "history":
            value = np.log(value)
        z = (value - value.mean()) / value.std()
        hidden = (column, "history_segment")
        kept = [j for j, name in enumerate(names) if name not in hidden]
        self.names = [names[j] for j in kept]
        self.X, self.y, self.t = data.X[:, kept], data.y, data.treatment
        self.first = np.asarray(expit(deal * z))
        self.chance = [expit(1.0 + self.mailed * z), expit(-1.0 + self.mailed * z)]
        self.lot = float(np.mean(self.t))
        self.truth, self.delta = self._truth()

    def _truth(self) -> tuple[float, float]:
        """Return the effect, and by how much equal people of the populations differ."""
        Z = (self.X - self.X.mean(axis=0)) / self.X.std(axis=0)
        B = np.column_stack([np.ones(len(Z)), Z, Z**2, self.t])
        twice = np.vstack(
            [np.column_stack([B, np.full(len(B), side)]) for side in (1.0, 0.0)]
        )
        root = np.sqrt(np.concatenate([self.first, 1.0 - self.first]))
        y = np.concatenate([self.y, self.y])
        coef = np.linalg.lstsq(twice * root[:, None], y * root, rcond=None)[0]
        return float(coef[-2]), float(coef[-1])

    def draw(self, n: int, seed: int) -> SeparateLabels:
        """Return four tables of ``n`` customers each."""
        rng = Rng(seed)
        first = rng.random_sample(len(self.y)) < self.first
        chance = np.where(first, *self.chance)
        keep = np.where(self.t, chance / self.lot, (1.0 - chance) / (1.0 - self.lot))
        at = np.flatnonzero(rng.random_sample(len(keep)) < keep / keep.max())
        at = rng.permutation(at)
        cells = [
            at[(first[at] == (k == 0))][kind * n : (kind + 1) * n]
            for k in (0, 1)
            for kind in (0, 1)
        ]
        rows = np.concatenate(cells)
        is_outcome = np.tile(np.repeat([True, False], n), 2)
        return SeparateLabels(
            pd.DataFrame(self.X[rows], columns=self.names),
            np.where(is_outcome, self.y[rows], np.nan),
            np.where(is_outcome, np.nan, self.t[rows]),
            np.repeat(["east", "west"], 2 * n),
        )


def trial_draw(trial: Trial, n: int, seed: int) -> dict[str, float]:
    """Return what one draw claims of a trial that is taken apart."""
    found = sensitivity(None, trial.draw(n, seed), n_jobs=1, random_state=seed)
    average = found.average
    false = found.at(cost=trial.truth + 0.001)
    sure = false.average.breakdown(0.95) if false.average.gains else -1.0
    low, high = average.interval(abs(trial.delta), 0.95)
    usual = found.ordinary
    return {
        "average": average.gain.value,
        "plain covers": float(average.gain.covers(trial.truth)),
        "robust covers": float(low <= trial.truth <= high),
        "false claim": float(sure > 0.0),
        "false claim, 95% sure up to delta": float(sure >= trial.delta),
        "false claim, no warning": float(
            usual is not None
            and sure > usual.delta >= NOTHING * false.average.breakdown()
        ),
        "breakdown of a gain": average.breakdown(),
        "breakdown of a gain below delta": float(average.breakdown() < trial.delta),
        "ordinary column": np.nan if usual is None else usual.delta,
        "worst column": found.benchmarks[0].delta,
    }


def time_draw(design: Design, n: int, seed: int) -> dict[str, float]:
    """Return the seconds of an evaluation, and of what its sums say of sensitivity."""
    data = design.draw(n, seed, "none")
    spent = []
    whole = EvaluatedTables.sensitivity

    def timed(*args: Any) -> Sensitivity:
        start = time.process_time()
        found = whole(*args).at(cost=0.1, delta=design.delta)
        found.to_dict()
        spent.append(time.process_time() - start)
        return found

    start = time.process_time()
    with mock.patch.object(EvaluatedTables, "sensitivity", timed):
        evaluate_uplift(design.uplift, data, n_jobs=1, random_state=seed)
    total = time.process_time() - start
    return {"evaluation": total, "sensitivity": spent[0], "share": spent[0] / total}


def work_of(
    parts: list[str], designs: list[str], n: int
) -> dict[str, Callable[[int], dict[str, float]]]:
    """Return what is to be drawn, by name."""
    truths = {name: (design, design.truth()) for name, design in DESIGNS.items()}
    alike = {"hardly apart": (HARDLY_APART, HARDLY_APART.truth())}
    cases: dict[str, tuple[Any, dict[str, tuple[Any, ...]]]] = {
        "robust": (robust_draw, truths),
        "claims": (claim_draw, truths | alike),
        "columns": (column_draw, {name: (case,) for name, case in LEFT.items()}),
        "before": (before_draw, {name: truths[name] for name in EARLIER}),
        "bounds": (bounds_draw, {name: (case,) for name, case in ALIKE.items()}),
        "time": (time_draw, {name: (design,) for name, design in TIMED.items()}),
    }
    work = {
        f"{part}: {name}": partial(draw, *given, n)
        for part, (draw, named) in cases.items()
        for name, given in named.items()
        if part in parts and name in (designs or named)
    }
    if "hillstrom" in parts:
        for column, deal in HIDDEN.items():
            trial = Trial(column, deal)
            print(f"{column}: effect {trial.truth:.4f}, delta {trial.delta:.4f}")
            work[f"hillstrom: {column}"] = partial(trial_draw, trial, 2 * n)
    return work


def study(
    draws: int, parts: list[str], designs: list[str], n: int, out: Path | None
) -> dict[str, Any]:
    """Run what is missing, draw by draw, and return means over the draws."""
    known = json.loads(out.read_text())["draws"] if out and out.exists() else {}
    work = work_of(parts, designs, n)
    start = time.perf_counter()
    for seed in range(draws):
        for name, draw in work.items():
            entries = known.setdefault(name, [])
            if len(entries) <= seed:
                entries.append(draw(seed))
        if seed % SAVE_EVERY == SAVE_EVERY - 1 or seed == draws - 1:
            print(f"draw {seed + 1}, {time.perf_counter() - start:.0f} s", flush=True)
            if out:
                found = {"draws": known, "means": means(known)}
                out.write_text(json.dumps(rounded(found)) + "\n")
    return means(known)


def means(known: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean of each column over the draws."""
    return {
        name: {"draws": len(entries)}
        | {key: float(np.mean([each[key] for each in entries])) for key in entries[0]}
        for name, entries in known.items()
        if entries
    }


def main() -> None:
    """Run the study, print the means and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--rows", type=int, default=1000)
    usual = ["robust", "claims", "columns", "before", "bounds"]
    parser.add_argument("--parts", nargs="*", default=usual)
    parser.add_argument("--designs", nargs="*", default=[], help="all by default")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    asked = args.draws, args.parts, args.designs, args.rows, args.out
    for name, row in study(*asked).items():
        print(name)
        for key, value in row.items():
            print(f"  {key:24} {value:.3f}")


if __name__ == "__main__":
    main()
