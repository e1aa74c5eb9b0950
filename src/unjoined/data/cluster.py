"""Dask clusters: how one is reached, and what is said when it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from unjoined._optional import import_extra
from unjoined.errors import ClusterError, InputError


@contextmanager
def told_if_lost(client: Any) -> Iterator[None]:
    """Turn what Dask raises about a lost scheduler or worker into one message."""
    distributed = import_extra("distributed", extra="dask")
    if client.status != "running":
        raise InputError(
            f"the Dask client is {client.status}, so it has no cluster to work on. Pass one that "
            "is connected."
        )
    try:
        yield
    except (
        CancelledError,
        distributed.comm.core.CommClosedError,
        distributed.core.RPCClosed,
        distributed.scheduler.KilledWorker,
    ) as error:
        raise ClusterError(
            f"the Dask cluster was lost before it had finished ({type(error).__name__}: {error}). "
            "Check that the scheduler and its workers run, start them again if not, and repeat the "
            "fit with a new client. Workers that run out of memory need smaller partitions."
        ) from error


SECONDS = 10  # to wait for a scheduler, and then for its first worker


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Yield a client that has workers, or None where Dask computes on this machine.

    A client given is left open, a scheduler named by its address is connected to and left again.
    """
    if client is None:
        found = import_extra("dask.base", extra="dask").get_scheduler()
        client = getattr(found, "__self__", None)  # the method ``get`` of a client
        if not type(client).__module__.startswith("distributed"):
            yield None
            return
    distributed = import_extra("distributed", extra="dask")
    if isinstance(client, str):
        with _open(distributed, client) as opened, told_if_lost(opened):
            _wait_for_worker(opened)
            yield opened
        return
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise InputError(
            "client must be a distributed.Client that is not asynchronous, or the address of a "
            f"scheduler such as 'tcp://10.0.0.1:8786', got {type(client).__name__}."
        )
    with told_if_lost(client):
        _wait_for_worker(client)
        yield client


def _open(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise InputError(
            f"no Dask scheduler answers at {address!r} within {SECONDS} seconds ({error}). Check "
            "that it runs, and that the address and port are right."
        ) from error


def _wait_for_worker(client: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=SECONDS)
    except TimeoutError as error:
        raise InputError(
            f"the Dask scheduler at {client.scheduler.address!r} has no workers, and none came "
            f"within {SECONDS} seconds. Start at least one (adaptive clusters: minimum=1)."
        ) from error
