"""How close estimators come to the truth, and what not joining costs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from problems import BenchmarkProblem
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unjoined import (
    DensityUplift,
    EMUplift,
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    MinMaxUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    SeparateLabels,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
)
from unjoined._typing import Array
from unjoined.data import JointLabels, SimulatedProblem

__all__ = [
    "DEFAULT",
    "JOINT",
    "METHODS",
    "PAPER",
    "Trial",
    "oracle_share",
    "run_default",
    "run_trial",
]

DEFAULT, JOINT = "Uplift", "T-learner, joint labels"
N_TEST = 20_000  # fresh points at which estimates meet the true uplift
TEST_SEED = 10_000
BOOSTING = {"max_iter": 100, "learning_rate": 0.05, "max_leaf_nodes": 6}

Make = Callable[[int], Any]


def _em(*, is_binary: bool) -> Make:
    model = LogisticRegression() if is_binary else RidgeCV()
    return lambda seed: EMUplift(outcome_model=model, random_state=seed)


def paper_methods(*, is_binary: bool) -> dict[str, Make]:
    """Return the methods of the paper that suit the outcome, with its presets."""
    if is_binary:
        naive: dict[str, Make] = {
            "FourLogistic": lambda seed: FourLogistic(random_state=seed),
            "FourNNC": lambda seed: FourNNC(random_state=seed),
        }
    else:
        naive = {
            "FourRidge": lambda seed: FourRidge(random_state=seed),
            "FourNNR": lambda seed: FourNNR(random_state=seed),
        }
    return {"MinMaxGau": lambda seed: MinMaxGau(random_state=seed), **naive}


def other_methods(*, is_binary: bool) -> dict[str, Make]:
    """Return the library's other estimators, with their defaults."""
    return {
        "WeightedUplift": lambda seed: WeightedUplift(random_state=seed),
        "MinMaxUplift": lambda seed: MinMaxUplift(n_jobs=1, random_state=seed),
        "TwoStageUplift": lambda seed: TwoStageUplift(random_state=seed),
        "PlugInUplift": lambda seed: PlugInUplift(random_state=seed),
        "DensityUplift": lambda seed: DensityUplift(random_state=seed),
        "EMUplift": _em(is_binary=is_binary),
        "NeuralMinMaxUplift": lambda seed: NeuralMinMaxUplift(random_state=seed),
    }


# Methods of the paper, under one name for the two kinds of outcome.
PAPER = ("MinMaxGau", "four regressions", "four networks")
SAME = {
    "FourLogistic": PAPER[1],
    "FourRidge": PAPER[1],
    "FourNNC": PAPER[2],
    "FourNNR": PAPER[2],
}
SLOW = ("EMUplift", "NeuralMinMaxUplift")
METHODS = (DEFAULT, *other_methods(is_binary=True), *PAPER, JOINT)


@dataclass(frozen=True, slots=True)
class Trial:
    """One method on one draw."""

    problem: str
    n: int  # rows of a table, on average
    seed: int
    method: str
    share: float  # AUUC as a share of the oracle: 0 is a random order, 1 the true one
    error: float  # mean squared error over the variance of the uplift
    seconds: float  # processor time
    note: str = ""  # the likeliest form of the default


def oracle_share(estimate: Array, uplift: Array) -> float:
    r"""Return the area under the uplift curve as a share of the oracle's.

    .. math::

        (\mathrm{AUUC}(f) - E[u] / 2) / (\mathrm{AUUC}(u) - E[u] / 2)

    with the true uplift u known at each point; 0 is a random order and 1 the order of u itself.
    """
    chance = float(uplift.mean()) / 2.0
    return (_area(estimate, uplift) - chance) / (_area(uplift, uplift) - chance)


def _area(score: Array, uplift: Array) -> float:
    ordered = uplift[np.argsort(-score, kind="stable")]
    return float(np.mean(np.cumsum(ordered))) / len(uplift)


def run_default(problem: BenchmarkProblem, n: int, seed: int) -> Trial:
    """Draw tables of ``n`` rows on average, fit the default, and compare it with the truth."""
    test = _fresh(problem, seed)
    model = Uplift(
        n_jobs=1, random_state=seed, categorical_features=problem.categorical
    )
    estimate, seconds = _fitted(model, problem.draw(n, seed), test.X)
    return _score(
        problem, n, seed, DEFAULT, estimate, test, seconds, model.candidates_.name[0]
    )


def run_trial(
    problem: BenchmarkProblem, n: int, seed: int, *, slow: bool = True
) -> Iterator[Trial]:
    """Draw tables, fit every method, and compare with the truth at fresh points.

    Parameters
    ----------
    problem : BenchmarkProblem
        What is drawn.
    n : int
        Rows of a table, on average.
    seed : int
        The same seed gives the same numbers.
    slow : bool, default=True
        Whether the slow methods are run.
    """
    yield run_default(problem, n, seed)
    data, test, binary = problem.draw(n, seed), _fresh(problem, seed), problem.is_binary
    for name, make in (
        paper_methods(is_binary=binary) | other_methods(is_binary=binary)
    ).items():
        if slow or name not in SLOW:
            estimate, seconds = _fitted(make(seed), data, test.X)
            yield _score(
                problem, n, seed, SAME.get(name, name), estimate, test, seconds
            )
    start = time.process_time()
    estimate = t_learner(problem.make(), 4 * n, seed, test, is_binary=binary)
    yield _score(problem, n, seed, JOINT, estimate, test, time.process_time() - start)


def _fresh(problem: BenchmarkProblem, seed: int) -> JointLabels:
    return problem.make().draw_joint(N_TEST, random_state=TEST_SEED + seed)


def _score(
    problem: BenchmarkProblem,
    n: int,
    seed: int,
    method: str,
    estimate: Array,
    test: JointLabels,
    seconds: float,
    note: str = "",
) -> Trial:
    error = float(np.mean((estimate - test.uplift) ** 2) / np.var(test.uplift))
    share = oracle_share(estimate, test.uplift)
    return Trial(problem.name, n, seed, method, share, error, seconds, note)


def _fitted(model: Any, data: SeparateLabels, X: Array) -> tuple[Array, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # weak identification, ratios: the scores show it
        estimate = model.fit(**data).predict(X)
    return estimate, time.process_time() - start


def t_learner(
    problem: SimulatedProblem, n: int, seed: int, test: JointLabels, *, is_binary: bool
) -> Array:
    """Return what two regressions say that were given both labels of ``n`` rows.

    Half of the rows come from each policy. In each arm a linear model and gradient boosting are
    compared by cross-validation and the better one is used.
    """
    parts = [
        problem.draw_joint(
            n // 2, policy=name, random_state=TEST_SEED + 2 * seed + k + 1
        )
        for k, name in enumerate(problem.policies)
    ]
    X = np.vstack([part.X for part in parts])
    y = np.concatenate([part.y for part in parts])
    treated = np.concatenate([part.treatment for part in parts])
    arms = []
    for arm in (1.0, 0.0):
        at = treated == arm
        label = (y[at] == y.max()).astype(int) if is_binary else y[at]
        model = _better_model(X[at], label, is_binary=is_binary)
        scale = float(y.max() - y.min()) if is_binary else 1.0
        arms.append(
            scale
            * (
                model.predict_proba(test.X)[:, 1]
                if is_binary
                else model.predict(test.X)
            )
        )
    return np.asarray(arms[0] - arms[1])


def _better_model(X: Array, label: Array, *, is_binary: bool) -> Any:
    """Return the linear model or the boosted one, whichever predicts held-out rows better."""
    if is_binary:
        linear = make_pipeline(StandardScaler(), LogisticRegression())
        boosted = HistGradientBoostingClassifier(**BOOSTING, random_state=0)
        scoring = "neg_log_loss"
    else:
        linear = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2.0, 4.0, 13)))
        boosted = HistGradientBoostingRegressor(**BOOSTING, random_state=0)
        scoring = "neg_mean_squared_error"
    models = (linear, boosted)
    scores = [
        cross_val_score(m, X, label, cv=3, scoring=scoring).mean() for m in models
    ]
    return models[int(np.argmax(scores))].fit(X, label)
