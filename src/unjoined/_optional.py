"""Import optional dependencies, or say which extra brings them."""

from __future__ import annotations

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
