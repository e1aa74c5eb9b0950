"""What a table's sums are known by, so that no table is counted twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.errors import InputError
from unjoined.moments._plan import PlannedSums, TableId
from unjoined.moments._sums import MomentSums

__all__ = ["refuse_overlap", "tables_of"]

BITS = 16  # kept of every sum: rounding changes far smaller ones, another table far larger ones
SHIFT = 0.3183  # moves the edges of the grid away from round numbers, which many sums are


def tables_of(found: PlannedSums) -> tuple[TableId, ...]:
    """Return the identities of all tables that were added up, sorted."""
    if found.tables:
        return found.tables
    totals = {(kind, k): found.sums.total(kind, k) for kind in (OUTCOME, TREATMENT) for k in (0, 1)}
    return tuple(
        TableId(kind, k, _digest(sums)) for (kind, k), sums in totals.items() if sums.n_rows
    )


def _digest(sums: MomentSums) -> str:
    """Return 128 bits that do not depend on the order in which rows were added up.

    They are made of the sums, rounded, which are in the file anyway, and not of rows: nothing can
    be found out from them that the sums do not tell.
    """
    squares = np.diag(sums.gram)
    size = np.linalg.norm(sums.label_basis)
    digest = hashlib.sha256(str(sums.n_rows).encode())
    for part in (_rounded(squares, squares), _rounded(sums.label_basis, np.array(size))):
        digest.update(part)
    return digest.hexdigest()[:32]


def _rounded(values: Array, size: Array) -> bytes:
    """Return numbers as multiples of a small part of their size, which is a power of two."""
    _, exponent = np.frexp(size * (1.0 + SHIFT))
    steps = np.floor(np.ldexp(values, BITS - exponent) + SHIFT)
    return bytes(steps.astype("<i8"))


def refuse_overlap(parts: Sequence[PlannedSums]) -> None:
    """Refuse sums of which two hold the same table."""
    first: dict[TableId, int] = {}
    for i, part in enumerate(parts):
        for table in tables_of(part):
            if table in first:
                name = part.plan.populations[table.population]
                raise InputError(
                    f"sums {i + 1} hold the same {table.kind} rows of population {name!r} as sums "
                    f"{first[table] + 1}, and each table is to be counted once. Leave out one of "
                    "the two. If these are different rows after all, aggregate them together."
                )
            first[table] = i
