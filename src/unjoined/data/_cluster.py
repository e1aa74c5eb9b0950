"""What is said when a Dask cluster is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from unjoined._optional import import_extra
from unjoined.errors import ClusterError, InputError

__all__ = ["told_if_lost"]


@contextmanager
def told_if_lost(client: Any) -> Iterator[None]:
    """Turn what Dask raises about a lost scheduler or worker into one message.

    Parameters
    ----------
    client : distributed.Client
        What the work inside goes through.

    Raises
    ------
    InputError
        The client is closed from the start.
    ClusterError
        The cluster is lost. Errors of the work itself are passed on as they are.
    """
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
