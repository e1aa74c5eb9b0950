"""What tests of several folders share."""

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from _pytest.doctest import DoctestModule

from unjoined.data import campaign_problem, write_table

# Some tests run a benchmark. Last, so that no script there hides an installed package.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


@pytest.fixture
def limits():
    """Lower limits that a module sets itself, so that few rows go the way of many.

    ``limits("model.passes", BATCH_ROWS=256)``: no other test and no other module sees it.
    """
    with pytest.MonkeyPatch.context() as patch:

        def lower(module, **values):
            for name, value in values.items():
                patch.setattr(f"unjoined.{module}.{name}", value)

        yield lower


@pytest.fixture(scope="module")
def two_folds():
    """Let fits leave out two folds of rows in turn and not five, in half of the time.

    For laws of any fit, such as files, words and formulas. What a fit is worth is tested with
    five folds, and so are the numbers of stored results.
    """
    with pytest.MonkeyPatch.context() as patch:
        for constant in (
            "data.rows.N_GROUPS",
            "model.crossfit.N_FOLDS",
            "model.arms.N_FOLDS",
            "estimators.uplift.SAMPLE_FOLDS",
        ):
            patch.setattr(f"unjoined.{constant}", 2)
        yield


@pytest.fixture(scope="session")
def write_campaign():
    """A function that writes four tables of a simulated campaign and one of customers."""
    return _write_campaign


def _write_campaign(folder, *, n_per_table, n_customers, seed):
    import pyarrow as pa

    problem = campaign_problem()
    data = problem.draw(n_per_table, random_state=seed)
    folder.mkdir(parents=True, exist_ok=True)

    def features(X):
        return dict(zip(problem.feature_names, np.asarray(X).T, strict=True))

    for kind, column in (("outcome", "bought"), ("treatment", "mailed")):
        for name in problem.policies:
            at = data.rows(kind, name)
            label = data.checked.label[at].astype(np.int8)
            table = features(data.X[at]) | {column: label}
            write_table(pa.table(table), folder / f"{kind}s_{name}.parquet")
    ids = {"customer_id": np.arange(100_001, 100_001 + n_customers)}
    people = problem.draw_joint(n_customers, random_state=seed + 1)
    write_table(pa.table(ids | features(people.X)), folder / "customers.parquet")


@pytest.fixture
def here(tmp_path):
    """The folder of the test, made the working folder."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def interrupt_when():
    """Press Ctrl-C once something has happened. By the clock it may cut an import in two."""
    over = threading.Event()
    watchers = []

    def start(happened):
        def watch():
            while not over.is_set():
                if happened():
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    return
                time.sleep(0.01)

        watchers.append(threading.Thread(target=watch))
        watchers[-1].start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield start
    over.set()
    for watcher in watchers:
        watcher.join()
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples in the package alone: tests have none, and looking takes seconds."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]
