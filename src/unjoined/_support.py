"""What every package leans on: optional packages, and telling of progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from unjoined.errors import MissingExtraError


def import_extra(module: str, *, extra: str) -> Any:
    """Return ``module``, imported; if its package is not installed, name the extra that brings it.

    An import error inside an installed package is passed on: an install hint would mislead.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:
            raise
        raise MissingExtraError(
            f"this needs the package {package!r}, which is not installed. "
            f'Install it with: pip install "unjoined[{extra}]"',
            name=package,
        ) from error


LOGGER = logging.getLogger("unjoined")
PROGRESS = logging.getLogger(
    "unjoined.progress"
)  # "job: done of all", for whoever listens
LOGGER.addHandler(logging.NullHandler())  # nothing is shown unless somebody asks


@contextmanager
def narrated(estimator: Any, what: str) -> Iterator[None]:
    """Log that a fit begins and how long it took, on stderr too if the estimator is verbose."""
    name = type(estimator).__name__
    begun = time.perf_counter()
    with _shown(int(getattr(estimator, "verbose", 0))):
        LOGGER.info("%s is fitted to %s", name, what)
        yield
        LOGGER.info("%s took %.1f seconds", name, time.perf_counter() - begun)


@contextmanager
def _shown(verbose: int) -> Iterator[None]:
    """Show what is logged on stderr: 1 shows steps, 2 how far each of them is."""
    if not verbose or any(type(handler) is _Shown for handler in LOGGER.handlers):
        yield
        return
    handler = _Shown()
    before = LOGGER.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


class _Shown(logging.StreamHandler[Any]):
    """A handler of ours, so that a fit within a fit does not say all of it twice."""
