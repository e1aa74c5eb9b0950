"""Error of the sums against exact arithmetic, over a hundred million rows.

Run: python benchmarks/exact_sums.py [--rows 100_000_000]

Rows come in chunks. Their features are whole numbers of 2^-16, so that products of two have at most
40 binary digits. Sums of 250,000 of them fit into int64, and Python's whole numbers add those up,
so that the true sums are known. What differs is the rounding of our additions: printed is the
largest error of a sum, relative to the sum of the absolute values of what was added.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction

import numpy as np

from unjoined._typing import Array
from unjoined.data.rows import LabelledRows, label_rows, separate_labels
from unjoined.model import LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.moments import MomentSums

CHUNK, UNIT = 1_000_000, 2**16
CELLS = (("outcome", "a"), ("outcome", "b"), ("treatment", "a"), ("treatment", "b"))
BASIS = LinearBasis(2)


def draw(seed: int, n: int) -> tuple[LabelledRows, Array]:
    """Return rows in four cells by turns, and their basis values as whole numbers of 2^-16."""
    rng = np.random.default_rng(seed)
    # Far from 0, so that sums grow and rounding shows.
    whole = rng.integers(8 * UNIT, 16 * UNIT, (n, 2))
    y = rng.integers(0, 2, n) * 2.0 - 1.0
    at = np.arange(n) % 4
    kind, population = (np.array([cell[i] for cell in CELLS])[at] for i in (0, 1))
    rows = label_rows(whole / UNIT, **separate_labels(y, kind), population=population)
    return rows, np.column_stack([np.full(n, UNIT), whole])


def exact_sums(phi: Array, label: Array) -> Array:
    """Return sums of phi phi^T and of label phi phi^T as whole numbers, shape (2, p, p)."""
    return np.array(
        [phi.T @ phi, (phi * label.astype(np.int64)[:, None]).T @ phi]
    ).astype(object)


def largest_error(total: MomentSums, exact: dict[int, Array]) -> float:
    """Return the largest error of a sum, relative to the sum of absolute values."""
    worst = Fraction(0)
    for i, (kind, name) in enumerate(CELLS):
        found = total.total(kind, "ab".index(name))
        # Of outcome rows label times phi is asked for, which is the constant's row of the products.
        labels = found.label_cross if kind == "treatment" else found.label_basis[None]
        for ours, true in zip((found.gram, labels), exact[i], strict=True):
            for at in np.ndindex(ours.shape):
                error = abs(Fraction(float(ours[at])) - Fraction(true[at], UNIT**2))
                worst = max(worst, error / Fraction(exact[i][0][at], UNIT**2))
    return float(worst)


def study(n_chunks: int) -> float:
    """Add up so many chunks, and return the largest error."""
    total, exact = MomentSums.zero(BASIS.size, 2, 2, 1), dict.fromkeys(range(4), 0)
    for seed in range(n_chunks):
        rows, phi = draw(seed, CHUNK)
        total = total + accumulate(BASIS, BASIS.size, rows, n_jobs=1)
        exact = {i: exact[i] + exact_sums(phi[i::4], rows.label[i::4]) for i in exact}
    return largest_error(total, exact)


def main() -> None:
    """Add up, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    given = parser.parse_args()
    start = time.monotonic()
    error = study(given.rows // CHUNK)
    print(
        f"{given.rows // CHUNK * CHUNK:,} rows in chunks of {CHUNK:,}: the largest error is "
        f"{error:.1e} of the absolute values added up, {error * 2**53:.1f} units of 2^-53 "
        f"({time.monotonic() - start:.0f} s)"
    )


if __name__ == "__main__":
    main()
