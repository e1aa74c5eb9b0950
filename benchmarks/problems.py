"""Simulated problems on which estimators are compared, with the truth known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit

from unjoined import SeparateLabels
from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data import SimulatedProblem, campaign_problem, paper_problem

__all__ = ["PROBLEMS", "SHAPES", "BenchmarkProblem", "binary_problem", "real_problem"]

Function = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class BenchmarkProblem:
    """A problem, how its tables are drawn, and what it was used for."""

    name: str
    what: str  # in a few words
    make: Callable[[], SimulatedProblem]
    is_settled_on: bool = (
        False  # whether rules and defaults were settled by looking at it
    )
    is_binary: bool = True
    sizes: tuple[float, float, float, float] = (
        1.0,
        1.0,
        1.0,
        1.0,
    )  # of the tables, relative
    target: bool = False  # whether target rows are drawn as well
    categorical: tuple[int, ...] = ()  # columns that hold codes

    def draw(self, n: int, seed: int) -> SeparateLabels:
        """Draw tables of ``n`` rows on average."""
        problem = self.make()
        cells = [
            (kind, name) for kind in (OUTCOME, TREATMENT) for name in problem.policies
        ]
        n_rows = {
            cell: round(n * size) for cell, size in zip(cells, self.sizes, strict=True)
        }
        return problem.draw(n_rows, n_target=n if self.target else 0, random_state=seed)


def binary_problem(
    features: Callable[[int, Rng], Array] | dict[str, Callable[[int, Rng], Array]],
    policies: dict[str, Callable[[Array], Array]],
    log_odds: Callable[[Array, Array], Array],
    target_features: Callable[[int, Rng], Array] | None = None,
) -> SimulatedProblem:
    """Return a problem with outcomes 0/1 whose log-odds are a function of x and treatment."""

    def chance(X: Array, treated: Array) -> Array:
        return np.asarray(expit(log_odds(X, treated)))

    def outcome(X: Array, treated: Array, rng: Rng) -> Array:
        return np.asarray(
            rng.random_sample(len(X)) < chance(X, treated), dtype=np.float64
        )

    return SimulatedProblem(features, policies, outcome, chance, target_features)


def real_problem(
    features: Callable[[int, Rng], Array],
    policies: dict[str, Callable[[Array], Array]],
    mean: Callable[[Array, Array], Array],
    noise: Callable[[int, Rng], Array],
) -> SimulatedProblem:
    """Return a problem with a real outcome: a mean and noise that does not depend on x."""

    def outcome(X: Array, treated: Array, rng: Rng) -> Array:
        return mean(X, treated) + noise(len(X), rng)

    return SimulatedProblem(features, policies, outcome, mean)


def _normal(d: int, mean: float = 0.0) -> Callable[[int, Rng], Array]:
    return lambda n, rng: mean + rng.standard_normal((n, d))


def _uniform(d: int, reach: float) -> Callable[[int, Rng], Array]:
    return lambda n, rng: rng.uniform(-reach, reach, (n, d))


def _mixed(
    numeric: int, binary: int, levels: tuple[int, ...]
) -> Callable[[int, Rng], Array]:
    """Return numeric columns, 0/1 columns, and one-hot columns of categories."""

    def draw(n: int, rng: Rng) -> Array:
        parts = [
            rng.standard_normal((n, numeric)),
            1.0 * (rng.random_sample((n, binary)) < 0.4),
        ]
        parts += [np.eye(count)[rng.randint(count, size=n)] for count in levels]
        return np.hstack(parts)

    return draw


def _inside(chance: Array) -> Array:
    return np.clip(chance, 0.05, 0.95)


def sparse() -> SimulatedProblem:
    """Return ten features of which few matter, a low base rate, small effects."""
    return binary_problem(
        _normal(10),
        {
            "A": lambda X: _inside(0.7 + 0.08 * X[:, 0]),
            "B": lambda X: _inside(0.25 - 0.06 * X[:, 3]),
        },
        lambda X, t: (
            -2.8
            + 0.5 * X[:, 0]
            + 0.4 * X[:, 1]
            + t * (0.4 + 0.5 * X[:, 2] - 0.3 * X[:, 0])
        ),
    )


def interactions() -> SimulatedProblem:
    """Return nonlinear effects with interactions in five features."""

    def log_odds(X: Array, t: Array) -> Array:
        base = np.sin(1.5 * X[:, 0]) + 0.4 * X[:, 1] ** 2 - 0.8
        effect = (
            1.8 * np.tanh(1.5 * X[:, 0] * X[:, 2]) + X[:, 3] * (X[:, 4] > 0.0) - 0.2
        )
        return base + t * effect

    return binary_problem(
        _uniform(5, 2.0),
        {
            "A": lambda X: expit(0.8 + X[:, 0] - 0.5 * X[:, 3]),
            "B": lambda X: expit(-0.8 + 0.7 * np.cos(2.0 * X[:, 0])),
        },
        log_odds,
    )


def heavy_tails() -> SimulatedProblem:
    """Return a real outcome with a strong main effect and noise of three degrees of freedom."""
    return real_problem(
        _normal(5),
        {
            "A": lambda X: expit(1.0 + 0.5 * X[:, 0]),
            "B": lambda X: expit(-1.0 + 0.5 * X[:, 0]),
        },
        lambda X, t: (
            50.0
            + 6.0 * X[:, 0]
            + 4.0 * np.sin(2.0 * X[:, 1])
            + 3.0 * X[:, 2] ** 2
            + t * (1.0 + 1.5 * X[:, 3] - X[:, 0])
        ),
        lambda n, rng: 2.0 * rng.standard_t(3, n),
    )


def shifted() -> SimulatedProblem:
    """Return tables of people who differ from each other and from those to be treated."""
    return binary_problem(
        {"A": _normal(4, 0.5), "B": _normal(4, -0.5)},
        {
            "A": lambda X: expit(0.8 - X[:, 0]),
            "B": lambda X: expit(-0.8 + 0.5 * X[:, 1]),
        },
        lambda X, t: (
            -0.5
            + 0.8 * X[:, 0]
            + 0.4 * X[:, 1] ** 2
            - 0.4 * X[:, 2]
            + t * (0.3 - 0.9 * X[:, 0] + 0.7 * X[:, 2])
        ),
        target_features=_normal(4),
    )


def unequal() -> SimulatedProblem:
    """Return a problem whose tables are drawn with very different sizes."""
    return binary_problem(
        _normal(6),
        {"A": lambda X: expit(1.0 + X[:, 0]), "B": lambda X: expit(-0.5 - X[:, 1])},
        lambda X, t: (
            -1.0
            + 0.6 * X[:, 0]
            - 0.5 * X[:, 2]
            + t * (0.5 + 0.8 * X[:, 1] - 0.6 * X[:, 3])
        ),
    )


def mixed() -> SimulatedProblem:
    """Return twenty columns: ten numeric, four 0/1, two categories of three levels."""
    return binary_problem(
        _mixed(10, 4, (3, 3)),
        {
            "A": lambda X: expit(1.2 - 1.2 * X[:, 10] + 0.5 * X[:, 0]),
            "B": lambda X: expit(-1.2 + 0.8 * X[:, 14] + 0.5 * X[:, 1]),
        },
        lambda X, t: (
            -1.2
            + 0.6 * X[:, 0]
            - 0.5 * X[:, 11]
            + 0.7 * X[:, 15]
            + t * (0.2 + 0.9 * X[:, 2] + 0.9 * X[:, 17] - 0.8 * X[:, 12])
        ),
    )


def rotated() -> SimulatedProblem:
    """Return two features, clear effects, policies one constant apart."""
    return binary_problem(
        lambda n, rng: 2.0 * rng.standard_normal((n, 2)),
        {
            "a": lambda X: expit(X[:, 0] - X[:, 1]),
            "b": lambda X: expit(X[:, 0] - X[:, 1] - 2.0),
        },
        lambda X, t: (X[:, 0] + 2.0 * X[:, 1]) * (1.0 - 2.0 * t) + 1.5 * X[:, 0],
    )


def faint() -> SimulatedProblem:
    """Return eight features, a base rate of one in nine, faint linear effects."""
    return binary_problem(
        _normal(8),
        {
            "a": lambda X: _inside(0.65 + 0.1 * X[:, 1]),
            "b": lambda X: _inside(0.35 + 0.1 * X[:, 1]),
        },
        lambda X, t: (
            -2.2
            + 0.6 * X[:, 0]
            - 0.4 * X[:, 4]
            + t * (0.3 + 0.35 * X[:, 2] + 0.25 * X[:, 0])
        ),
    )


def product() -> SimulatedProblem:
    """Return an effect that is a product of two features, four in all."""
    return binary_problem(
        _uniform(4, 2.0),
        {
            "a": lambda X: expit(X[:, 0]),
            "b": lambda X: expit(-1.0 + 0.5 * X[:, 2] ** 2 - X[:, 0]),
        },
        lambda X, t: (
            -0.3
            + 0.8 * np.cos(2.0 * X[:, 0])
            + 0.5 * X[:, 3]
            + t * (1.5 * X[:, 0] * X[:, 1] - 0.7 * X[:, 2])
        ),
    )


def outliers() -> SimulatedProblem:
    """Return a real outcome with a kinked main effect and one gross value in twenty."""
    return real_problem(
        _normal(4),
        {"a": lambda X: expit(1.0 + X[:, 0]), "b": lambda X: expit(-1.0 + X[:, 0])},
        lambda X, t: (
            4.0 * np.abs(X[:, 0]) + 3.0 * X[:, 1] + t * (X[:, 2] + X[:, 1] ** 2 - 1.0)
        ),
        lambda n, rng: (
            rng.standard_normal(n) * np.where(rng.random_sample(n) < 0.05, 12.0, 1.5)
        ),
    )


def plain_real() -> SimulatedProblem:
    """Return a real outcome, linear throughout, normal noise."""
    return real_problem(
        _normal(6),
        {
            "a": lambda X: _inside(0.6 + 0.1 * X[:, 0]),
            "b": lambda X: _inside(0.3 - 0.1 * X[:, 0]),
        },
        lambda X, t: 20.0 + 2.0 * X[:, 0] - 3.0 * X[:, 1] + t * (1.0 + X[:, 2]),
        lambda n, rng: 2.0 * rng.standard_normal(n),
    )


def steps() -> SimulatedProblem:
    """Return policies, base and effect that are step functions of six features."""

    def log_odds(X: Array, t: Array) -> Array:
        base = -0.5 + 1.0 * (X[:, 1] > 0.0) - 0.8 * (X[:, 2] > 0.5)
        return base + t * (1.2 * ((X[:, 3] > 0.0) & (X[:, 1] > -0.5)) - 0.4)

    return binary_problem(
        _normal(6),
        {
            "a": lambda X: np.where(X[:, 0] > 0.0, 0.8, 0.3),
            "b": lambda X: np.where(X[:, 0] > 0.0, 0.3, 0.6),
        },
        log_odds,
    )


def spending() -> SimulatedProblem:
    """Return six features, two of which often are 0; those of 0 in the first differ from all."""

    def features(n: int, rng: Rng) -> Array:
        X = rng.standard_normal((n, 6))
        for c, share in ((0, 0.4), (2, 0.25)):
            X[:, c] = np.where(rng.random_sample(n) < share, 0.0, np.exp(X[:, c]))
        return X

    def log_odds(X: Array, t: Array) -> Array:
        nothing = X[:, 0] == 0.0
        return (
            -1.0
            + 0.5 * X[:, 1]
            - 1.2 * nothing
            + t * (0.1 + 0.8 * nothing + 0.5 * X[:, 3])
        )

    policies = {
        "a": lambda X: expit(1.0 + 0.5 * X[:, 1]),
        "b": lambda X: expit(-1.0 + 0.5 * X[:, 3]),
    }
    return binary_problem(features, policies, log_odds)


def few_mixed() -> SimulatedProblem:
    """Return twelve columns: six numeric, three 0/1, one category of three levels."""
    return binary_problem(
        _mixed(6, 3, (3,)),
        {
            "a": lambda X: expit(0.8 * X[:, 6] + 0.8 * X[:, 9] - 0.2),
            "b": lambda X: expit(-0.8 * X[:, 6] + 0.5 * X[:, 1]),
        },
        lambda X, t: (
            -1.0
            + 0.7 * X[:, 0]
            + 0.5 * X[:, 7]
            - 0.6 * X[:, 10]
            + t * (0.3 + 0.8 * X[:, 9] - 0.6 * X[:, 6] + 0.4 * X[:, 2])
        ),
    )


def gated() -> SimulatedProblem:
    """Return six features, an effect that one of them switches on, and a bent product."""

    def log_odds(X: Array, t: Array) -> Array:
        base = -0.4 + 0.7 * np.sin(1.5 * X[:, 1]) + 0.4 * X[:, 4]
        gate = 1.5 * X[:, 1] * (X[:, 2] > 0.0)
        return base + t * (gate + 1.5 * np.tanh(1.5 * X[:, 0] * X[:, 3]) - 0.2)

    return binary_problem(
        _uniform(6, 2.0),
        {
            "a": lambda X: expit(0.8 + 0.8 * X[:, 4]),
            "b": lambda X: expit(-0.8 + 0.6 * X[:, 0]),
        },
        log_odds,
    )


def pairs() -> SimulatedProblem:
    """Return eight features, one product in the base and another in the effect."""
    return binary_problem(
        _normal(8),
        {
            "a": lambda X: expit(1.0 + 0.5 * X[:, 0]),
            "b": lambda X: expit(-1.0 + 0.5 * X[:, 5]),
        },
        lambda X, t: (
            -0.4
            + 0.5 * X[:, 0]
            - 0.4 * X[:, 1] * X[:, 2]
            + t * (0.3 + 0.9 * X[:, 3] * X[:, 4] - 0.7 * X[:, 0])
        ),
    )


def wide() -> SimulatedProblem:
    """Return sixteen features, of which four interact in the effect."""

    def log_odds(X: Array, t: Array) -> Array:
        effect = (
            1.5 * np.tanh(X[:, 1] * X[:, 2]) + 0.9 * X[:, 4] * (X[:, 6] > 0.0) - 0.1
        )
        return -0.3 + 0.8 * np.sin(1.3 * X[:, 2]) + t * effect

    return binary_problem(
        _uniform(16, 2.0),
        {
            "a": lambda X: expit(0.9 + 0.6 * X[:, 3]),
            "b": lambda X: expit(-0.9 + 0.5 * X[:, 0]),
        },
        log_odds,
    )


def _paper(b: float, slope: float) -> BenchmarkProblem:
    noisy = "" if slope == 10.0 else ", noisy"
    return BenchmarkProblem(
        f"paper b={b:g}{noisy}",
        "the paper's data"
        if slope == 10.0
        else "the paper's data, outcomes ten times noisier",
        lambda: paper_problem(b, slope=slope),
    )


GAPS = (0.4, 1.0, 2.0, 5.0, 10.0)

PROBLEMS: dict[str, BenchmarkProblem] = {
    problem.name: problem
    for problem in (
        *(_paper(b, 10.0) for b in GAPS),
        *(_paper(b, 1.0) for b in GAPS),
        BenchmarkProblem(
            "sparse", "10 features, few matter, low base rate, small effects", sparse
        ),
        BenchmarkProblem(
            "interactions",
            "5 features, nonlinear effects with interactions",
            interactions,
        ),
        BenchmarkProblem(
            "heavy tails",
            "real outcome, strong main effect, t(3) noise",
            heavy_tails,
            is_binary=False,
        ),
        BenchmarkProblem(
            "shift", "tables that describe different people", shifted, target=True
        ),
        BenchmarkProblem(
            "unequal",
            "tables of 2.4, 0.4, 0.3 and 0.9 times the size",
            unequal,
            sizes=(2.4, 0.4, 0.3, 0.9),
        ),
        BenchmarkProblem("mixed", "20 columns, numeric and categorical", mixed),
        BenchmarkProblem(
            "rotated", "2 features, clear effects", rotated, is_settled_on=True
        ),
        BenchmarkProblem(
            "faint", "8 features, faint linear effects", faint, is_settled_on=True
        ),
        BenchmarkProblem(
            "product", "effect is a product of features", product, is_settled_on=True
        ),
        BenchmarkProblem(
            "outliers",
            "real outcome, gross values",
            outliers,
            is_settled_on=True,
            is_binary=False,
        ),
        BenchmarkProblem(
            "plain real",
            "real outcome, linear",
            plain_real,
            is_settled_on=True,
            is_binary=False,
        ),
        BenchmarkProblem(
            "gated", "6 features, effects switched on", gated, is_settled_on=True
        ),
        BenchmarkProblem("pairs", "8 features, products", pairs, is_settled_on=True),
        BenchmarkProblem("wide", "16 features, interactions", wide, is_settled_on=True),
        BenchmarkProblem(
            "steps", "step functions throughout", steps, is_settled_on=True
        ),
        BenchmarkProblem(
            "spending", "features that often are 0", spending, is_settled_on=True
        ),
        BenchmarkProblem(
            "few mixed", "12 columns, some categorical", few_mixed, is_settled_on=True
        ),
        BenchmarkProblem(
            "campaign",
            "the demo's e-mail campaign",
            campaign_problem,
            is_settled_on=True,
        ),
    )
}


def _term(X: Array, shape: str, rng: Rng) -> Function:
    """Return a function of a shape, of one to three columns, whose values lie on their scale."""
    d = X.shape[1]
    a, b, c = rng.choice(d, 3, replace=False)
    cut = [np.quantile(X[:, j], rng.uniform(0.3, 0.7)) for j in (a, b, c)]
    mean, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
    sign = rng.choice([-1.0, 1.0])
    shapes: dict[str, Function] = {
        "line": lambda X: (X[:, a] - mean[a]) / scale[a],
        "hinge": lambda X: np.maximum(X[:, a] - cut[0], 0.0) / scale[a],
        "product": lambda X: (
            (X[:, a] - mean[a]) * (X[:, b] - mean[b]) / (scale[a] * scale[b])
        ),
        "step": lambda X: 2.0 * (X[:, a] > cut[0]),
        "corner": lambda X: 3.0 * ((X[:, a] > cut[0]) & (X[:, b] > cut[1])),
        "cell": lambda X: (
            4.0 * ((X[:, a] > cut[0]) & (X[:, b] > cut[1]) & (X[:, c] > cut[2]))
        ),
    }
    function = shapes[shape]
    return lambda X: sign * np.clip(function(X), -4.0, 4.0)


def _sum_of_terms(
    X: Array, shapes: tuple[str, ...], spread: float, rng: Rng
) -> Function:
    """Return a sum of functions, with mean 0 and such a standard deviation at the rows."""
    terms = [_term(X, shape, rng) for shape in shapes]
    sizes = rng.uniform(0.5, 1.0, len(terms))

    def total(X: Array) -> Array:
        return np.asarray(
            sum(size * term(X) for size, term in zip(sizes, terms, strict=True))
        )

    values = total(X)
    mean, scale = values.mean(), spread / values.std()
    return lambda X: scale * (total(X) - mean)


def _columns(kind: str) -> Callable[[int, Rng], Array]:
    """Return who the people of a kind of problem are."""
    if kind == "58 mixed":

        def people(n: int, rng: Rng) -> Array:
            shared = rng.standard_normal((n, 3))
            normal = 0.8 * rng.standard_normal((n, 21)) + 0.6 * np.repeat(
                shared, 7, axis=1
            )
            counts = rng.poisson(
                np.exp(0.4 * shared[:, :1] + np.linspace(-1.0, 2.0, 16))
            )
            two = 1.0 * (rng.random_sample((n, 12)) < np.linspace(0.1, 0.6, 12))
            skewed = np.exp(rng.standard_normal((n, 6)))
            codes = [rng.randint(m, size=(n, 1)) for m in (3, 5, 16)]
            return np.hstack([normal, counts, two, skewed, *codes])

        return people
    if kind == "many categories":

        def buyers(n: int, rng: Rng) -> Array:
            codes = [rng.randint(m, size=(n, 1)) for m in (8, 12, 20)]
            return np.hstack([rng.standard_normal((n, 5)), *codes])

        return buyers
    if kind == "zeros":
        return lambda n, rng: np.hstack(
            [rng.standard_normal((n, 6)), np.exp(rng.standard_normal((n, 4)))]
        )
    return _normal({"jumps": 12, "three-way": 8, "few of ten": 10}[kind])


SHAPE_TERMS: dict[
    str, tuple[tuple[str, ...], tuple[str, ...]]
] = {  # of base and effect
    "58 mixed": (
        ("line", "line", "hinge", "step", "step", "product", "corner"),
        ("step", "hinge", "corner", "line"),
    ),
    "jumps": (("step", "step", "step", "corner"), ("step", "step", "corner")),
    "three-way": (("line", "hinge", "product"), ("cell", "cell")),
    "few of ten": (("line", "hinge", "step"), ("step", "line")),
    "many categories": (("line", "hinge"), ("step",)),
    "zeros": (("line", "hinge", "step"), ("step", "hinge")),
}


def shape_problem(kind: str, seed: int) -> SimulatedProblem:
    """Return a problem of a kind, whose functions are drawn: steps, hinges, products and cells."""
    rng = Rng(seed)
    people = _columns(kind)
    X = people(20_000, rng)
    known = X[:, :-3] if kind in ("58 mixed", "many categories") else X
    of_base, of_effect = SHAPE_TERMS[kind]
    base = _sum_of_terms(known, of_base, 1.5, rng)
    effect = _sum_of_terms(known, of_effect, 1.0, rng)
    level = rng.uniform(-0.5, 1.0)
    habits = rng.uniform(-0.6, 0.6, 2)
    policies: dict[str, Function] = {
        "a": lambda X: expit(1.1 + habits[0] * X[:, 0]),
        "b": lambda X: expit(-1.1 + habits[1] * X[:, 1]),
    }
    if kind == "many categories":
        own, shown = (rng.standard_normal((3, 20)) for _ in range(2))

        def by_codes(X: Array, t: Array) -> Array:
            i, j, k = X[:, -3:].astype(int).T
            apart = (
                0.8 * own[1, j] + 0.5 * own[0, i] * (X[:, 0] > 0.0) + 0.5 * effect(X)
            )
            return base(X) + shown[2, k] + 0.5 * shown[0, i] + t * (level + apart)

        return real_problem(
            people, policies, by_codes, lambda n, rng: rng.standard_normal(n)
        )
    if kind == "zeros":

        def buys(X: Array, t: Array) -> Array:
            return np.asarray(expit(-0.8 + 0.6 * base(X) + t * (0.4 + effect(X))))

        def amount(X: Array) -> Array:
            return np.asarray(np.exp(0.5 + 0.4 * np.tanh(X[:, 0])))

        def spent(X: Array, t: Array, rng: Rng) -> Array:
            noise = np.exp(0.6 * rng.standard_normal(len(X)) - 0.18)
            return amount(X) * noise * (rng.random_sample(len(X)) < buys(X, t))

        return SimulatedProblem(
            people, policies, spent, lambda X, t: amount(X) * buys(X, t)
        )
    return real_problem(
        people,
        policies,
        lambda X, t: base(X) + t * (level + effect(X)),
        lambda n, rng: rng.standard_normal(n),
    )


def _shape(kind: str, seed: int) -> BenchmarkProblem:
    return BenchmarkProblem(
        f"{kind} {seed}",
        f"functions drawn: {', '.join(SHAPE_TERMS[kind][1])} in the effect",
        lambda: shape_problem(kind, seed),
        is_settled_on=seed % 2 == 1,
        is_binary=False,
        categorical={"58 mixed": (55, 56, 57), "many categories": (5, 6, 7)}.get(
            kind, ()
        ),
    )


# Problems with jumps and many columns. Rules are chosen by those of odd seeds.
SHAPES: dict[str, BenchmarkProblem] = {
    problem.name: problem
    for problem in (_shape(kind, seed) for kind in SHAPE_TERMS for seed in range(1, 7))
}
