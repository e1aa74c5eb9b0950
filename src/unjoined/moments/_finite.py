"""Whether all features are numbers, and not too large: one look, by all cores."""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array
from unjoined.moments._threads import over_pieces

__all__ = ["all_finite", "all_within"]

BLOCK_ROWS = 65_536


def all_finite(X: Array, *, n_jobs: int | None = None) -> bool:
    """Whether no feature is missing or infinite.

    Notes
    -----
    One pass over ``X`` (n, d) on ``n_jobs`` threads, of sums: these are finite if all of their
    terms are, but for those that overflow, which are looked at one by one.
    """

    def block_is_finite(start: int) -> bool:
        block = X[start : start + BLOCK_ROWS]
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()
        return bool(np.isfinite(total) or np.isfinite(block).all())

    return all(over_pieces(block_is_finite, range(0, len(X), BLOCK_ROWS), n_jobs))


def all_within(X: Array, limit: float, *, n_jobs: int | None = None) -> bool:
    """Whether all features are numbers from ``-limit`` to ``limit``; the same pass, of extremes."""

    def block_is_within(start: int) -> bool:
        block = X[start : start + BLOCK_ROWS]
        return bool(-limit <= block.min(initial=0.0) and block.max(initial=0.0) <= limit)

    return all(over_pieces(block_is_within, range(0, len(X), BLOCK_ROWS), n_jobs))
