"""A Dask cluster that goes away: an error of ours that says so and what to do."""

import threading
import time

import numpy as np
import pytest

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import paper_problem
from unjoined.errors import ClusterError, InputError

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

DATA = {
    k: np.asarray(v)
    for k, v in dict(paper_problem(b=5.0).draw(50, random_state=0)).items()
}


@pytest.fixture
def cluster():
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(processes=False, **options) as opened:
        yield opened


def slow(block):
    time.sleep(0.3)
    return block


def source():
    blocks = da.from_array(DATA["X"], chunks=(50, -1))
    X = blocks.map_blocks(slow, dtype=np.float64, meta=np.empty((0, 0)))
    return SeparateLabels(**DATA | {"X": X})


@pytest.mark.parametrize("way", ["fit", "iterate"])
def test_a_scheduler_that_is_lost_during_the_work_is_told(cluster, way):
    def close():
        while not cluster.scheduler.tasks:
            time.sleep(0.01)
        cluster.close()

    with distributed.Client(cluster, set_as_default=False) as client:
        rows = source()
        closing = threading.Thread(target=close)
        closing.start()
        with (
            client.as_current(),
            pytest.raises(
                ClusterError, match=r"the Dask cluster was lost .* with a new client"
            ),
        ):
            MinMaxUplift(n_centers=5, n_jobs=1).fit(rows) if way == "fit" else list(
                rows.chunks()
            )
        closing.join()


def test_a_client_that_is_closed_is_told_at_once(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        pass
    with (
        client.as_current(),
        pytest.raises(InputError, match="the Dask client is closed"),
    ):
        MinMaxUplift(n_centers=5, n_jobs=1).fit(source())
