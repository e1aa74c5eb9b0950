"""Functions on a basis at many rows: their values, and the rows that leave a range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unjoined._compiled import plain
from unjoined._threads import Scratch, over_pieces
from unjoined._typing import Array, IntArray
from unjoined.basis import filler
from unjoined.errors import InputError
from unjoined.sums.add_up import PIECE_ROWS, chunk_rows

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


@dataclass(frozen=True, slots=True)
class Violations:
    """The rows at which ``lower <= phi(x)^T coef <= upper`` fails worst."""

    index: IntArray  # (k,) positions of the worst rows
    phi: Array  # (k, p) their basis values
    worst: float  # largest excess over a bound, 0 if there is none
    count: int  # rows that fail, including those not listed


@dataclass(frozen=True, slots=True)
class RowScan:
    """All rows of a fit, looked through chunk by chunk whenever a solver asks.

    Each call costs one pass: O(n p (d + 1)) time, O(chunk p) memory per thread.
    """

    basis: Callable[[Array], Array]
    X: Array  # (n, d)
    n_jobs: int | None = None

    def __call__(self, coef: Array, lower: float, upper: float, *, most: int) -> Violations:
        """Return at most ``most`` of the rows that violate the bounds, the worst first."""
        value = combine(self.basis, coef, self.X, n_jobs=self.n_jobs)
        over = np.maximum(value - upper, lower - value)
        failing = np.flatnonzero(over > 0.0)
        order = np.argsort(-over[failing], kind="stable")[:most]
        index = failing[order]
        worst = float(over[index[0]]) if index.size else 0.0
        return Violations(index, self.basis(self.X[index]), worst, len(failing))
