"""Run tasks on all cores, keep what is finished, go on where it stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from unjoined.data import replace_file
from unjoined.errors import TableError, UnjoinedError
from unjoined.reproduce.ridges import ridge_trial
from unjoined.reproduce.studies import Task, synthetic_trial
from unjoined.reproduce.trials import real_trial

Record = dict[str, Any]


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_task(task: Task) -> Record:
    """Run one task on one core; a plain dict comes back, ready for a line of JSON."""
    with threadpool_limits(limits=1):  # bits must not depend on the number of threads
        trial = synthetic_trial if task.study == "synthetic" else real_trial
        result, seconds = (ridge_trial if task.ridges else trial)(task)
    return {
        "task": task.key(),
        "version": version("unjoined"),
        "result": result,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def run_tasks(
    tasks: Sequence[Task],
    file: Path,
    *,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Record]:
    """Run what is missing, append each result to ``file`` as it comes, and return all.

    Parameters
    ----------
    tasks : sequence of Task
        What is wanted.
    file : path
        JSON lines. Results in it that were asked for are not computed again, provided that
        they are of this version of the package.
    jobs : int
        Processes, one core each. Results do not depend on it.
    progress : callable
        Told the number of finished tasks and of all, at the start and after each.

    Returns
    -------
    list of dict
        One record per task, in the order of the tasks.

    Raises
    ------
    TableError
        The file cannot be written.
    UnjoinedError
        A process died; what was finished is kept.
    """
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
            # As it will be read from the file, so that a resumed run gives the same.
            kept[_name(record["task"])] = json.loads(json.dumps(record))
            done += 1
            progress(done, len(tasks))
    return [kept[_name(task.key())] for task in tasks]


def read_records(file: Path) -> list[Record]:
    """Return the results in a file that are of this version; drop a line cut off by a crash.

    Parameters
    ----------
    file : path
        JSON lines, or nothing yet.

    Raises
    ------
    TableError
        A line other than the last is no result.
    """
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
                f"line {number} of {str(file)!r} is no result of a trial. Delete the file to "
                "start anew, or name another folder with --out."
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
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            min(jobs, len(tasks)), mp_context=context, initializer=_ignore_interrupts
        )
        try:
            for future in as_completed([pool.submit(run_task, task) for task in tasks]):
                yield future.result()
        except BrokenProcessPool as error:
            raise UnjoinedError(
                "a process ended before its trial was done, most likely for want of memory. "
                "Finished trials are kept: run the command again, with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which ends the pool; workers would each print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Tell processes started meanwhile to use one thread; libraries read this as they load."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
