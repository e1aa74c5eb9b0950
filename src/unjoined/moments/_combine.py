"""Combinations of basis functions at many rows: chunk by chunk, on all cores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unjoined._compiled import plain
from unjoined._typing import Array, IntArray
from unjoined.errors import InputError
from unjoined.features._basis import filler
from unjoined.moments._accumulate import chunk_rows
from unjoined.moments._pieces import PIECE_ROWS
from unjoined.moments._threads import Scratch, over_pieces

__all__ = ["combine"]

FEW = 8  # combinations; a product with more of them is left to BLAS


def combine(
    basis: Callable[[Array], Array],
    coef: Array,
    X: Array,
    *,
    at: IntArray | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Return combinations of basis functions at every row, shape (n,) or (n, r).

    Parameters
    ----------
    basis : callable
        Maps features (m, d) to basis values (m, p). A `ScaledBasis` is the fastest.
    coef : array of shape (p,) or (p, r)
        Coefficients of one combination, or of several.
    X : array of shape (n, d)
        Features.
    at : array of int, optional
        Positions of the rows that are wanted, if not all.
    n_jobs : int or None, default=None
        Threads. The result does not depend on it, to the bit.

    Notes
    -----
    Costs O(n p d) time. Basis values of one megabyte for each thread are in memory, never
    those of all rows.
    """
    p, writer, scratch = len(coef), filler(basis, X, len(coef)), Scratch()
    n = len(X) if at is None else len(at)
    if at is not None and n and not 0 <= at.min() <= at.max() < len(X):
        raise InputError(f"positions must be from 0 to {len(X) - 1}, got {at.min()} to {at.max()}.")
    found, size = np.empty((n, *coef.shape[1:])), chunk_rows(p)
    transpose = plain(np.atleast_2d(coef.T))
    as_needed = plain(X) is X and len(transpose) <= FEW
    kernel = writer.kernel if as_needed else None

    def piece(start: int) -> None:
        stop = min(start + PIECE_ROWS, n)
        if kernel is not None:
            some, where = (X[start:stop], None) if at is None else (X, at[start:stop])
            kernel.combine(some, where, transpose, found[start:stop])
            return
        values = scratch.array("values", min(size, stop - start), p)
        columns = scratch.array("columns", writer.width, stop - start)
        writer.prepare(X[start:stop] if at is None else X[at[start:stop]], columns)
        for first in range(start, stop, size):
            last = min(first + size, stop)
            phi = values[: last - first]
            writer.write(columns[:, first - start : last - start], phi)
            np.matmul(phi, coef, out=found[first:last])

    for _ in over_pieces(piece, range(0, n, PIECE_ROWS), n_jobs):
        pass
    return found
