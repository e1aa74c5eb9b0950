"""Load and faults: many processes and fits, little memory, full disks, sick workers of Dask.

python tools/load.py                 # all of it
python tools/load.py fits --fits 500
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import unjoined
from unjoined import MinMaxUplift, SeparateLabels, Uplift, load_model, save_model
from unjoined.data import paper_problem
from unjoined.errors import UnjoinedError

warnings.simplefilter("ignore")


def rows(n: int = 200, seed: int = 0) -> Any:
    """Draw tables."""
    return paper_problem().draw(n, random_state=seed)


def fit_in_process(_: int) -> bytes:
    """Fit one model, and return what it predicts."""
    warnings.simplefilter("ignore")
    data = rows(500)
    return Uplift(random_state=0).fit(**data).predict(data.X).tobytes()


def processes(given: argparse.Namespace) -> str:
    """Fit in eight processes at once: all get the same bits."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(8, mp_context=context) as pool:
        found = set(pool.map(fit_in_process, range(8)))
    if found != {fit_in_process(0)}:
        raise SystemExit("processes disagree")
    return "8 processes fitted at once; all models are equal to the bit"


def used() -> int:
    """Return the memory that this process holds, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fits(given: argparse.Namespace) -> str:
    """Fit thousands of small models in one process: memory stays where it is."""
    data, sizes = rows(50), []
    start = len(os.listdir("/proc/self/fd"))
    for i in range(given.fits):
        MinMaxUplift(basis="linear", ridge_f=0.1, ridge_g=0.1, center=False).fit(**data)
        if i % max(given.fits // 20, 1) == 0:
            gc.collect()
            sizes.append(used())
    early, late = np.mean(sizes[2:6]), np.mean(sizes[-4:])
    opened = len(os.listdir("/proc/self/fd")) - start
    growth = float(late - early) / 1e6
    if growth > 5.0 or opened > 0:
        raise SystemExit(f"memory grew by {growth:.1f} MB and {opened} files stay open")
    return f"{given.fits:,} fits in one process: memory grew by {growth:.1f} MB, no file left open"


def threads(given: argparse.Namespace) -> str:
    """Predict with one model in sixteen threads: all see the same."""
    data = rows(500)
    model = MinMaxUplift(ridge_f=0.1, ridge_g=0.1, random_state=0).fit(**data)
    wanted = model.predict(data.X)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: model.predict(data.X), range(200)))
    if not all(np.array_equal(each, wanted) for each in found):
        raise SystemExit("threads disagree")
    return "16 threads shared one model in 200 predictions: all equal to the bit"


def disk(given: argparse.Namespace) -> str:
    """Write to a disk that is full: earlier files stay, and nothing is left beside them."""
    data = rows()
    model = MinMaxUplift(basis="linear", random_state=0).fit(**data)
    with tempfile.TemporaryDirectory() as name:
        mounted = not subprocess.run(  # noqa: S603
            ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", name],  # noqa: S607
            capture_output=True,
        ).returncode
        if not mounted:
            return "full disk: no small disk can be mounted here, so limits on files stand for it"
        try:
            path = save_model(model, Path(name, "m.skops"))
            before = path.read_bytes()
            left = os.statvfs(name)
            Path(name, "ballast").write_bytes(
                bytes(left.f_bavail * left.f_bsize - 8192)
            )
            try:
                save_model(MinMaxUplift(ridge_f=0.1, ridge_g=0.1).fit(**data), path)
            except UnjoinedError as error:
                said = str(error)
            if path.read_bytes() != before or len(os.listdir(name)) != 2:
                raise SystemExit("a full disk cost a file")
            load_model(path)
        finally:
            subprocess.run(["umount", name], check=True)  # noqa: S603, S607
    return (
        f"full disk: the old model stays; it says {said.rpartition(':')[2].strip()!r}"
    )


def slowly(block: Any) -> Any:
    """Return a piece of rows after a while, so that there is time for faults."""
    time.sleep(0.3)
    return block


def dask(given: argparse.Namespace) -> str:
    """Kill and stop workers amid a fit, and at last the scheduler."""
    import dask.array as da
    from distributed import Client

    data = rows(1000)
    X = da.from_array(data.X, chunks=(400, -1)).map_blocks(slowly, dtype=float)
    labels = {"y": data.y, "treatment": data.treatment, "population": data.population}
    model, said = MinMaxUplift(basis="linear", random_state=0), []
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/scheduler.json"
        begin = [sys.executable, "-m", "dask"]
        quiet = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "cwd": folder,
        }
        words = ["scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", file]
        scheduler = subprocess.Popen([*begin, *words], **quiet)  # type: ignore[call-overload]  # noqa: S603
        words = ["worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny"]
        words += ["--no-dashboard", "--death-timeout", "20"]
        workers = [
            subprocess.Popen([*begin, *words], **quiet)  # type: ignore[call-overload]  # noqa: S603
            for _ in range(3)
        ]
        try:
            with Client(scheduler_file=file, timeout=60) as client:
                client.wait_for_workers(3, timeout=60)
                source = SeparateLabels(X, **labels)
                wanted = model.fit(source).coef_
                for name, sick in (("killed", kill), ("stopped for 3 s", pause)):
                    timer = threading.Timer(1.0, sick, args=[workers.pop().pid])
                    timer.start()
                    found = model.fit(source).coef_
                    timer.join()
                    if not np.allclose(found, wanted, rtol=1e-9):
                        raise SystemExit(f"{name}: another result")
                    said.append(name)
                threading.Timer(1.0, scheduler.kill).start()
                try:
                    model.fit(source)
                except UnjoinedError as error:
                    said.append(f"scheduler gone: {error}")
                else:
                    raise SystemExit("without a scheduler there was a result")
        finally:
            scheduler.kill()
            for worker in workers:
                if worker.wait(60) is None:
                    raise SystemExit("a worker lives on without its scheduler")
    return f"Dask: worker {', '.join(said)}; same results, and no process lives on"


def greedily(block: Any, marker: str, times: int) -> Any:
    """Return a piece of rows; the first so many times take more memory than a worker may."""
    with Path(marker).open("a") as file:
        file.write(".")
    if Path(marker).stat().st_size <= times:
        ballast = np.ones(250_000_000)  # 2 GB
        time.sleep(5.0)  # the nanny looks every 0.1 s
        return block + 0.0 * ballast[0]
    return block


def dask_memory(given: argparse.Namespace) -> str:
    """Let workers be slow, and run out of memory once or always."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    data = rows(1000)
    labels = {"y": data.y, "treatment": data.treatment, "population": data.population}
    plain = da.from_array(data.X, chunks=(800, -1))
    model = MinMaxUplift(basis="linear", random_state=0)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"distributed.scheduler.allowed-failures": 2}),
        LocalCluster(**options, memory_limit="1GB", silence_logs=50) as cluster,
        Client(cluster),
    ):

        def fitted(X: Any) -> Any:
            return model.fit(SeparateLabels(X, **labels)).coef_

        wanted = fitted(plain)
        slow = plain.map_blocks(
            lambda block: time.sleep(2.0 * (block[0, 0] > 0)) or block
        )
        once = plain.map_blocks(greedily, f"{folder}/once", 1, dtype=float)
        for name, X in (("slow", slow), ("out of memory once", once)):
            if not np.allclose(fitted(X), wanted, rtol=1e-9):
                raise SystemExit(f"{name}: another result")
        try:
            fitted(plain.map_blocks(greedily, f"{folder}/always", 10**6, dtype=float))
        except UnjoinedError as error:
            said = str(error)
        else:
            raise SystemExit("there was a result without memory")
    return f"Dask: workers slow, and out of memory once: same results; always: {said}"


def kill(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)


def pause(pid: int) -> None:
    """Stop a process for a while, as a cut network would."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(pid, signal.SIGCONT)


STUDIES: dict[str, Callable[[argparse.Namespace], str]] = {
    study.__name__: study
    for study in (processes, fits, threads, disk, dask, dask_memory)
}


def main() -> None:
    """Run the studies and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "studies", nargs="*", metavar="study", help=f"of {', '.join(STUDIES)}"
    )
    parser.add_argument("--fits", type=int, default=10_000)
    parser.add_argument(
        "--out", type=Path, help="where to write what was found, as JSON"
    )
    given = parser.parse_args()
    found = {}
    for name in given.studies or STUDIES:
        found[name] = STUDIES[name](given)
        print(found[name], flush=True)
        if given.out:
            said = {"unjoined": unjoined.__version__} | found
            given.out.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
