"""Run the tasks of studies: fit the methods, score them, keep what is finished."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from studies.paper.draws import (
    CLOSE_B,
    GRID_F,
    GRID_G,
    LARGEST_ERROR,
    OURS,
    PRESET,
    RIDGES,
    SHARES,
    STUDY_PAIRS,
    WIDTHS,
    Draw,
    Record,
    Task,
    draw_rows,
)
from unjoined._typing import Array
from unjoined.data import CellKFold, SeparateLabels, paper_problem
from unjoined.data.write import replace_file
from unjoined.errors import TableError, UnjoinedError
from unjoined.estimators.uplift import Uplift
from unjoined.evaluate import HeldOutRows, auuc, uplift_curve
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import ScaledBasis
from unjoined.model.minmax import assemble, solve_minmax
from unjoined.paper.plugin import FourLogistic, FourNNC, FourNNR, FourRidge, MinMaxGau

N_FOLDS = 2
HUGE = 1e12  # stands for the infinities of a ratio whose divisor is 0
N_POINTS = 400  # of Figure 2
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Ridges = tuple[float, float]


def run_task(task: Task) -> Record:
    """Run one task on one core; a plain dict comes back, ready for a line of JSON."""
    # Weak identification, exploding ratios, networks that have not settled: the scores of a
    # thousand trials show it better than a thousand warnings.
    with (
        threadpool_limits(limits=1),
        warnings.catch_warnings(),
    ):  # bits depend on threads
        warnings.simplefilter("ignore")
        draw = draw_rows(task)
        result, seconds = (_ridge_trial if task.ridges else _trial)(task, draw)
    return {
        "task": task.key(),
        "version": version("unjoined"),
        "result": result,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def _trial(task: Task, draw: Draw) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit the paper's methods and the library's default, and compare them on the test rows."""
    seed, data = task.seeds[2], draw.data
    start = time.process_time()
    ridges = _choose_ridges(data, seed)
    choosing = (time.process_time() - start) / len(WIDTHS)
    models: dict[str, Any] = {
        name: _minmax(width, ridges[name], seed) for name, width in WIDTHS.items()
    }
    for baseline in (FourLogistic, FourNNC) if draw.is_binary else (FourRidge, FourNNR):
        models[baseline.__name__] = baseline(random_state=seed)
    models[OURS] = Uplift(n_jobs=1, random_state=seed)
    estimates, seconds = {}, {}
    for name, model in models.items():
        start = time.process_time()
        estimates[name] = model.fit(**data).predict(draw.X)
        seconds[name] = (
            time.process_time() - start + (choosing if name in WIDTHS else 0.0)
        )
    return score_estimates(task, draw, estimates) | {"ridges": ridges}, seconds


def score_estimates(
    task: Task, draw: Draw, estimates: dict[str, Array]
) -> dict[str, Any]:
    """Compare estimates at the test points with the uplift there.

    Areas are in outcome units, ties counted half. Curves are taken at `SHARES`, by inverse
    propensity scores; the mean and the median squared error are over the test points.
    """
    bounded = {
        name: np.clip(np.nan_to_num(f, posinf=HUGE, neginf=-HUGE), -HUGE, HUGE)
        for name, f in estimates.items()
    }
    result: dict[str, Any] = {"random": float(draw.values.mean()) / 2.0}
    scores = _scores_by_truth if task.study == "synthetic" else _scores_by_outcome
    result["methods"] = {name: scores(f, draw.values) for name, f in bounded.items()}
    if task.study != "synthetic":
        return result | {"n": draw.n}
    result["oracle"] = auuc(draw.values, draw.values).value
    if task.b == CLOSE_B:
        result |= _errors_by_gap(task, draw, bounded)
    return result


def _scores_by_truth(estimate: Array, uplift: Array) -> dict[str, Any]:
    squared = (estimate - uplift) ** 2
    return {
        "auuc": auuc(estimate, uplift).value,
        "error": float(squared.mean()),
        "median_error": float(np.median(squared)),
    }


def _scores_by_outcome(estimate: Array, values: Array) -> dict[str, Any]:
    curve = uplift_curve(estimate, values).at(SHARES)
    return {"auuc": auuc(estimate, values).value, "gain": curve.tolist()}


def _errors_by_gap(
    task: Task, draw: Draw, estimates: dict[str, Array]
) -> dict[str, Any]:
    """Return how errors depend on the policy gap, and of the first trial a few points to draw."""
    gap = np.abs(paper_problem(task.b).policy_gap(draw.X))
    low, high = np.quantile(gap, [1 / 3, 2 / 3])
    thirds = {"small gap": gap <= low, "large gap": gap >= high}
    squared = {name: (f - draw.values) ** 2 for name, f in estimates.items()}
    gross = {
        name: {
            third: float(np.mean(e[rows] > LARGEST_ERROR))
            for third, rows in thirds.items()
        }
        for name, e in squared.items()
    }
    points = {
        "x2": draw.X[:N_POINTS, 1].tolist(),
        "gap": gap[:N_POINTS].tolist(),
        "squared_error": {name: e[:N_POINTS].tolist() for name, e in squared.items()},
    }
    return {"gross": gross} | ({} if task.trial else {"points": points})


def _minmax(width: float, ridges: Ridges, seed: int) -> Any:
    model = MinMaxGau(
        width=width, ridge_f=ridges[0], ridge_g=ridges[1], random_state=seed
    )
    return model.set_params(n_jobs=1)


def _choose_ridges(data: SeparateLabels, seed: int) -> dict[str, Ridges]:
    """Return for each width the pair with the lowest outcome risk on rows held out in turn.

    The risk needs no joint labels, and no row but the training rows is looked at.
    """

    def fit_each(train: SeparateLabels, width: float, X: Array) -> Array:
        return np.array(
            [_minmax(width, pair, seed).fit(**train).predict(X) for pair in RIDGES]
        )

    risks = _held_out_risks(data, seed, fit_each)
    return {name: RIDGES[int(np.argmin(risk))] for name, risk in risks.items()}


def _held_out_risks(
    data: SeparateLabels,
    seed: int,
    fit_each: Callable[[SeparateLabels, float, Array], Array],
) -> dict[str, Any]:
    """Return for each width the outcome risk of every pair of ridges, summed over folds."""
    risks: dict[str, Any] = dict.fromkeys(WIDTHS, 0.0)
    for kept, left_out in CellKFold(N_FOLDS, random_state=seed).split(**data):
        train, held = data.take(kept), data.take(left_out)
        judge = HeldOutRows.from_data(**held)
        for name, width in WIDTHS.items():
            estimates = fit_each(train, width, held.X)
            risk = np.apply_along_axis(judge.score, -1, estimates, "outcome_risk")
            risks[name] = risks[name] + risk
    return risks


def _ridge_trial(task: Task, draw: Draw) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit MinMaxGau with every pair of ridges, and choose one by the rule of the studies.

    For each width: the score of every pair (share of the oracle on synthetic data, area above
    random on real data), and the positions of the pairs with the lowest held-out risk, of those
    of the studies (``study``) and of all (``wide``).
    """
    start = time.process_time()
    data, values, seed = draw.data, draw.values, task.seeds[2]
    random = values.mean() / 2.0
    best = auuc(values, values).value - random if task.study == "synthetic" else 1.0

    def score(estimate: Array) -> float:
        return float((auuc(estimate, values).value - random) / best)

    def fit_each(train: SeparateLabels, width: float, X: Array) -> Array:
        return _every_pair(train, width, seed, X)

    result: dict[str, Any] = {}
    for name, risk in _held_out_risks(data, seed, fit_each).items():
        scores = np.apply_along_axis(score, 2, fit_each(data, WIDTHS[name], draw.X))
        wide = np.unravel_index(int(np.argmin(risk)), risk.shape)
        result[name] = {
            "study": list(min(STUDY_PAIRS, key=risk.__getitem__)),
            "wide": [int(at) for at in wide],
            "score": scores.tolist(),
        }
    return result, {"MinMaxGau": time.process_time() - start}


def _every_pair(data: SeparateLabels, width: float, seed: int, X: Array) -> Array:
    """Return the estimates at ``X`` with every pair of ridges, (n_f, n_g, n).

    Equal to a fit for each pair, to rounding, from the sums of one.
    """
    model = _minmax(width, PRESET, seed).fit(**data)
    values = ScaledBasis(model.basis_, model.scaling_)
    rows = data.labelled(np.asarray(data.X))
    system = assemble(accumulate(values, model.basis_.size, rows, n_jobs=1))
    alpha = [
        [solve_minmax(system, ridge_f=f, ridge_g=g).alpha for g in GRID_G]
        for f in GRID_F
    ]
    estimates: Array = rows.coding.scale * (np.array(alpha) @ values(X).T)
    return estimates


def run_tasks(
    tasks: Sequence[Task],
    file: Path,
    *,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Record]:
    """Run what is missing on ``jobs`` cores, append each result to ``file``, and return all."""
    kept = {_name(record["task"]): record for record in read_records(file)}
    missing = [task for task in tasks if _name(task.key()) not in kept]
    done = len(tasks) - len(missing)
    progress(done, len(tasks))
    try:
        out = file.open("a")
    except OSError as error:
        raise TableError(
            f"{str(file)!r} cannot be written: {error.strerror}. Name another folder with --out."
        ) from error
    with out:
        for record in _finished(missing, jobs):
            out.write(json.dumps(record) + "\n")
            out.flush()
            # As it will be read from the file, so a resumed run gives the same.
            kept[_name(record["task"])] = json.loads(json.dumps(record))
            done += 1
            progress(done, len(tasks))
    return [kept[_name(task.key())] for task in tasks]


def read_records(file: Path) -> list[Record]:
    """Return the results in a file that are of this version; drop a line cut off by a crash."""
    if not file.is_file():
        return []
    lines = file.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        # Written back, as the next result would be appended to the torn line.
        text = "".join(lines)
        replace_file(file, lambda path: path.write_text(text))
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if record["version"] == version("unjoined"):
                record["task"], record["result"], record["seconds"]
                records.append(record)
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(
                f"line {number} of {str(file)!r} is not the result of a trial. Delete the file to "
                "start over, or name another folder with --out."
            ) from error
    return records


def _name(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _finished(tasks: Sequence[Task], jobs: int) -> Iterator[Record]:
    """Yield results as they come."""
    if jobs == 1 or len(tasks) < 2:
        yield from map(run_task, tasks)
        return
    # Spawned, not forked: a fork copies the locks of threads that it does not copy.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            min(jobs, len(tasks)), mp_context=context, initializer=_ignore_interrupts
        )
        try:
            for future in as_completed(_submit(pool, tasks)):
                yield future.result()
        except BrokenProcessPool as error:
            # A process that was starting as another died waits for work, and the pool for it.
            for process in set(multiprocessing.active_children()) - set(others):
                process.terminate()
            raise UnjoinedError(
                "a process ended before its trial was done, most likely because memory ran out. "
                "Finished trials are kept: run the command again, with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, tasks: Sequence[Task]) -> list[Future[Record]]:
    """Hand all tasks to the pool, which starts its processes meanwhile."""
    try:
        return [pool.submit(run_task, task) for task in tasks]
    except (OSError, ValueError) as error:
        # A process that dies while the next one starts closes the pipes that one is to inherit.
        raise BrokenProcessPool(str(error)) from error


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which ends the pool; workers would each print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes started in the block use one thread; libraries read this as they load."""
    before = {name: os.environ[name] for name in THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name in THREADS:
            del os.environ[name]
        os.environ.update(before)
