"""Rows that come in pieces: one checked piece, and what yields them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, ArrayLike, BoolArray, MatrixLike
from unjoined._validation import (
    TARGET,
    check_columns,
    check_feature_sizes,
    check_kind,
    check_labels,
    check_number_type,
    check_numeric_columns,
    check_population,
    check_weight,
)
from unjoined.data.frames import column_names, feature_matrix
from unjoined.errors import InputError, LabelError, TableError, UnjoinedError

# Of ten features, 5 MB: large enough for a pass to be busy with sums rather than with chunks.
CHUNK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive rows of a source, checked, and where they come from."""

    X: Array  # (n, d) finite
    label: Array  # (n,) as the user has it; NaN for target rows
    kind: NDArray[np.str_]  # (n,)
    population: NDArray[Any]  # (n,)
    weight: Array  # (n,) not negative
    origin: str  # what messages call the file, table or chunk
    first_row: int  # position of the first row there, counting from 0
    # Of the features; None if they have none, () if only the source can tell.
    names: tuple[str, ...] | None = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    def cut(self, start: int, stop: int) -> Chunk:
        """Return the rows from ``start`` up to ``stop``, as views."""
        at = slice(start, stop)
        return Chunk(
            self.X[at],
            self.label[at],
            self.kind[at],
            self.population[at],
            self.weight[at],
            self.origin,
            self.first_row + start,
            self.names,
        )


@runtime_checkable
class ChunkSource(Protocol):
    """Rows that can be gone through from the beginning as often as asked.

    Iterating yields `Chunk` objects; those of no rows are allowed. Two iterations must yield the
    same rows. Their order and how they are cut does not matter. A pass over the rows is one
    iteration, and nothing else is asked of a source whose chunks say their ``names``.
    """

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, or None if they have none; may read the first rows."""
        ...


def make_chunk(
    X: MatrixLike,
    y: ArrayLike | None,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    names: list[str] | None,
    origin: str,
    first_row: int = 0,
) -> Chunk:
    """Check some rows, and say which file and row is at fault if they will not do.

    Parameters
    ----------
    X : array or data frame of shape (n, d)
        Features.
    y, kind, population, sample_weight
        As in ``fit``; ``y`` may be None for target rows.
    names : list of str or None
        Features expected, in this order; None takes what there is.
    origin : str
        What messages call the source of these rows.
    first_row : int, default=0
        Position of the first row there.

    Raises
    ------
    TableError, LabelError, InputError
        With ``origin``, and the row if there is one to blame.
    """
    matrix = _features(X, names, origin, first_row)
    n = len(matrix)
    try:
        kinds = check_kind(kind, n)
        populations = check_population(population, kinds)
        if y is not None:
            check_number_type("labels", y, LabelError)
        labels = np.full(n, np.nan) if y is None else np.asarray(y, dtype=np.float64)
        finite: BoolArray = np.asarray(np.isfinite(matrix).all(axis=1))
        _refuse_rows(~finite, "features", origin, first_row)
        check_feature_sizes(matrix, column_names(X))
        if labels.shape == (n,):
            bad = ~np.isfinite(labels) & (kinds != TARGET)
            _refuse_rows(bad, "the label", origin, first_row)
        weight = np.ones(n) if n == 0 else check_weight(sample_weight, n)
        labels = labels if n == 0 else check_labels(labels, kinds)
    except _PlacedError as placed:
        raise placed.error from None
    except UnjoinedError as error:
        place = f"{origin}, rows {first_row:,} to {first_row + n - 1:,}"
        raise type(error)(f"{place}: {error}") from error
    except (TypeError, ValueError) as error:
        raise LabelError(
            f"{origin}, rows {first_row:,} to {first_row + n - 1:,}: labels must be numbers "
            f"({error})."
        ) from error
    found = column_names(X)
    known = None if found is None else tuple(found if names is None else names)
    return Chunk(matrix, labels, kinds, populations, weight, origin, first_row, known)


class _PlacedError(Exception):
    """Carries an error that already says where it is."""

    def __init__(self, error: UnjoinedError) -> None:
        super().__init__()
        self.error = error


def _features(X: MatrixLike, names: list[str] | None, origin: str, first_row: int) -> Array:
    """Return the features in the expected order, as a matrix that nobody else will change."""
    found = column_names(X)
    if found is None:
        try:
            return np.ascontiguousarray(feature_matrix(X))
        except InputError as error:
            raise InputError(f"{origin}: {error}") from error
    check_numeric_columns(X, table=origin, first_row=first_row)
    if names is not None and found != names:
        check_columns(names, found, table=origin)
        order = [found.index(name) for name in names]
        return np.ascontiguousarray(feature_matrix(X)[:, order])
    return np.ascontiguousarray(feature_matrix(X))


def _refuse_rows(bad: BoolArray, what: str, origin: str, first_row: int) -> None:
    if not bad.any():
        return
    at = first_row + int(np.argmax(bad))
    kind = LabelError if what == "the label" else TableError
    raise _PlacedError(
        kind(
            f"row {at:,} of {origin} (counting from 0): {what} missing or infinite, as in "
            f"{int(bad.sum()):,} of the {len(bad):,} rows read with it. Remove or impute such "
            "rows; none is dropped silently."
        )
    )
