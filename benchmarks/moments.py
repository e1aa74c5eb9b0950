"""How near the sums, a fit and predictions come to the arithmetic they cannot do without.

Run: python benchmarks/moments.py [ROWS [SECTION ...]]; two million rows, 100 Gaussian centres
and 10 features take about two minutes on two free cores. Sections: sums, centred, predict, ridges;
all if none is named.

The limit is the same number of rows through one matrix product for the distances, one
exponential and the symmetric rank-k updates of the formulas, one for each row and, with centred
labels, a second one for each treatment row, all by numpy and BLAS. Its rows lie in memory as the
product wants them, nothing is sorted, scaled or checked, and its chunk is the best of three sizes.
It runs on all cores, threads over chunks, BLAS on one thread inside, buffers allocated once and
aligned.

Aims: the sums and a whole fit at most 1.3 times the limit; ridges chosen among 15 x 15 by five
folds at most 1.3 times a fit with given ridges, at half of the rows. The parts of a fit are
printed, so that it can be seen which of them are beyond the aim.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np

import unjoined.estimators.base as base_module
import unjoined.estimators.minmax as minmax_module
from unjoined import MinMaxUplift
from unjoined._threads import Scratch, n_threads, over_pieces
from unjoined.data.rows import label_rows, separate_labels
from unjoined.model import GaussianBasis
from unjoined.model.accumulate import accumulate, add_gram
from unjoined.model.basis import ScaledBasis, Scaling
from unjoined.model.centring import cross_fit_means, deal_folds, subtract_means
from unjoined.model.minmax import RIDGES_G
from unjoined.model.plan import SumsPlan

ROWS, FEATURES, CENTERS, WIDTH = 2_000_000, 10, 100, 6.0
REPEATS, PIECE = 7, 16_384
CHUNKS = (512, 1024, 2048)
SETTINGS: dict[str, Any] = {
    "basis": "gaussian",
    "n_centers": CENTERS,
    "width": WIDTH,
    "ridge_f": 1e-3,
    "ridge_g": 1e-3,
    "random_state": 0,
}


def draw(n: int) -> dict[str, Any]:
    """Return ``n`` rows of four tables, mixed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, FEATURES))
    outcome, population = rng.random(n) < 0.5, rng.integers(0, 2, n)
    y = np.where(
        outcome,
        X[:, 0] + rng.standard_normal(n),
        rng.random(n) < 0.3 + 0.4 * population,
    )
    kind = np.where(outcome, "outcome", "treatment")
    return {"X": X, **separate_labels(y.astype(float), kind), "population": population}


@cache
def stored_rows(n: int) -> Any:
    """Return rows as the product of the limit takes them: features, their square, one."""
    return np.random.default_rng(0).random((n, FEATURES + 2))


def limit(n: int, *, updates: float, p: int = CENTERS, chunk: int = 1024) -> None:
    """Do the arithmetic of ``n`` rows: product, exponential and ``updates`` updates for each.

    ``updates=1.5`` updates every second chunk twice. With 0 the values are combined instead, as
    a prediction does.
    """
    rows = stored_rows(n)
    rng = np.random.default_rng(0)
    product = -0.1 * rng.random((FEATURES + 2, p))
    coef, scratch = rng.standard_normal(p), Scratch()

    def piece(start: int) -> None:
        values = scratch.array("values", chunk, p)
        total = np.zeros((p, p), order="F")
        for i, first in enumerate(range(start, min(start + PIECE, n), chunk)):
            part = rows[first : first + chunk]
            np.matmul(part, product, out=values[: len(part)])
            np.exp(values, out=values)
            if updates == 0.0:
                values @ coef
                continue
            for _ in range(2 if updates > 1.0 and i % 2 else 1):
                add_gram(values, total)

    for _ in over_pieces(piece, range(0, n, PIECE), -1):
        pass


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the shortest of some runs, the one least disturbed."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def in_turn(*works: Callable[[], object]) -> list[float]:
    """Return the shortest time of each, taking turns, so that a busy machine slows all."""
    taken = [[seconds(work, 1) for work in works] for _ in range(REPEATS)]
    return [min(times) for times in zip(*taken, strict=True)]


def best_chunk(n: int, **options: Any) -> int:
    """Return the chunk that suits the limit best, by a part of the rows."""
    some = min(n, 20 * PIECE)
    stored_rows(some)
    return min(
        CHUNKS, key=lambda chunk: seconds(partial(limit, some, chunk=chunk, **options))
    )


@contextmanager
def stopwatch(parts: dict[str, list[tuple[Any, str]]]) -> Iterator[dict[str, float]]:
    """Time calls of some functions, by the part of a fit they belong to."""
    taken = dict.fromkeys(parts, 0.0)
    before = []

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                taken[part] += time.perf_counter() - start

        return call

    for part, places in parts.items():
        for owner, name in places:
            function = getattr(owner, name)
            before.append((owner, name, owner.__dict__[name]))
            setattr(owner, name, timed(part, function))
    try:
        yield taken
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


PARTS: dict[str, list[tuple[Any, str]]] = {
    "checks": [
        (base_module.UpliftEstimator, "_check_features"),
        (base_module, "label_rows"),
    ],
    "sample, centres, means": [
        (MinMaxUplift, "_draw_plans"),
        (MinMaxUplift, "_settle"),
    ],
    "the pass": [(SumsPlan, "moments")],
    "ridges, solution": [(MinMaxUplift, "_fit_sums")],
}


class Fits:
    """Fits of the same rows, each with the time its parts took."""

    def __init__(
        self, data: dict[str, Any], parts: dict[str, float], **settings: Any
    ) -> None:
        self.data, self.parts, self.settings = data, parts, {**SETTINGS, **settings}
        self.found: list[tuple[float, dict[str, float]]] = []

    def __call__(self) -> None:
        """Fit once more."""
        before, start = dict(self.parts), time.perf_counter()
        MinMaxUplift(**self.settings).fit(**self.data)
        total = time.perf_counter() - start
        took = {name: taken - before[name] for name, taken in self.parts.items()}
        self.found.append((total, {**took, "the rest": total - sum(took.values())}))

    def quickest(self) -> tuple[float, dict[str, float]]:
        """Return the time of the quickest fit, and of its parts."""
        return min(self.found, key=lambda pair: pair[0])


def line(name: str, taken: float, n: int, against: float | None = None) -> None:
    """Print one measurement."""
    ratio = "" if against is None else f"  {taken / against:5.2f} times the limit"
    print(
        f"  {name:40} {taken:7.3f} s {n / taken / 1e6:7.2f} million rows/s{ratio}",
        flush=True,
    )


def compare_sums(data: dict[str, Any], *, centred: bool) -> None:
    """Print the limit, the sums and the fit."""
    n = len(data["y"])
    print(
        f"{n:,} rows, {CENTERS} centres, {FEATURES} features, {'' if centred else 'not '}centred"
    )
    rows = label_rows(**data)
    scaling = Scaling.of_rows(rows.X, rows.weight)
    basis = ScaledBasis(GaussianBasis(scaling(rows.X[:CENTERS]), WIDTH), scaling)
    if centred:
        rng = np.random.RandomState(0)
        fold = deal_folds(rows, rng)
        means = cross_fit_means(rows, fold, rng, n_jobs=-1)
        rows = replace(rows, label=subtract_means(rows, means, fold, n_jobs=-1)[0])
    updates = 1.5 if centred else 1.0
    chunk = best_chunk(n, updates=updates)
    stored_rows(n)  # drawn before the clock starts
    with stopwatch(PARTS) as parts:
        fit = Fits(data, parts, center=centred)
        lowest, sums, _ = in_turn(
            partial(limit, n, updates=updates, chunk=chunk),
            partial(accumulate, basis, CENTERS, rows, n_jobs=-1),
            fit,
        )
    total, quickest = fit.quickest()
    line("limit", lowest, n, lowest)
    line("sums", sums, n, lowest)
    line("fit", total, n, lowest)
    for name, taken in quickest.items():
        print(f"    {name:38} {taken:7.3f} s {100 * taken / total:6.0f} % of the fit")


def compare_ridges(n: int) -> None:
    """Print what choosing ridges costs."""
    data = draw(n)
    print(f"{n:,} rows, ridges given and chosen by five folds, not centred")
    auto: dict[str, Any] = {"ridge_f": "auto", "ridge_g": "auto", "center": False}

    def chosen(grid: Any) -> None:
        with patch.object(minmax_module, "RIDGES_G", grid):
            Fits(data, {}, **auto)()

    grids = (RIDGES_G, np.logspace(-4.0, -1.0, 15))
    fixed, *taken = in_turn(
        Fits(data, {}, center=False), *(partial(chosen, g) for g in grids)
    )
    line("given", fixed, n)
    for grid, took in zip(grids, taken, strict=True):
        line(f"chosen, 15 x {len(grid)}", took, n)
        print(f"  {'':40} {took / fixed:35.2f} times a fit with given ridges")


def compare_predictions(data: dict[str, Any]) -> None:
    """Print the throughput of predictions."""
    n, model = len(data["y"]), MinMaxUplift(**SETTINGS, center=False)
    few = {name: column[:40_000] for name, column in data.items()}
    model.fit(**few)
    print(f"predictions at {n:,} rows")
    chunk = best_chunk(n, updates=0.0)
    stored_rows(n)
    lowest, taken = in_turn(
        partial(limit, n, updates=0.0, chunk=chunk), partial(model.predict, data["X"])
    )
    line("limit, without updates", lowest, n, lowest)
    line("predict", taken, n, lowest)
    one = model.set_params(n_jobs=1)
    line("predict, one thread", seconds(lambda: one.predict(data["X"]), 1), n)


SECTIONS: dict[str, Callable[[int], None]] = {
    "sums": lambda n: compare_sums(draw(n), centred=False),
    "centred": lambda n: compare_sums(draw(n), centred=True),
    "predict": lambda n: compare_predictions(draw(n)),
    "ridges": lambda n: compare_ridges(n // 2),
}


def main(n: int, sections: list[str]) -> None:
    """Print the sections asked for."""
    start = time.perf_counter()
    print(f"{n_threads(-1)} threads; shortest of {REPEATS} runs")
    for section in sections:
        SECTIONS[section](n)
    print(f"took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else ROWS, sys.argv[2:] or list(SECTIONS)
    )
