"""Tables under one another: the features of a data set, checked, in a matrix or a data frame."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._typing import Array, Frame, MatrixLike
from unjoined._validation import check_finite_features, check_numeric_columns, shown
from unjoined.data.chunks import Place, Table
from unjoined.data.columns import (
    column_names,
    column_values,
    has_numbers_only,
    stack_frames,
    take_rows,
)
from unjoined.data.rows import Chunk, number_matrix, rebuild_frame
from unjoined.data.sources import TableSource
from unjoined.errors import TableError


def own_features(X: MatrixLike) -> MatrixLike:
    """Return checked features of our own: changing the caller's later must not change them."""
    names = column_names(X)
    if names is None or has_numbers_only(X):
        check_numeric_columns(X)
        matrix = number_matrix(X, order="F")
        if names is None or not np.isnan(matrix).any():
            check_finite_features(matrix, names)
            return np.array(matrix) if names is None else rebuild_frame(matrix, names, like=X)
    frame = nw.from_native(X, eager_only=True)
    for name in frame.columns:
        column_values(frame.get_column(name))
    return take_rows(frame.clone().to_native(), slice(None))


def stack_numbers(
    source: TableSource, tables: list[Table], frames: list[nw.DataFrame[Any]]
) -> tuple[Array, list[Chunk]]:
    """Return the features of tables of numbers in one matrix, and their other parts."""
    sizes, columns = [len(frame) for frame in frames], source.columns
    X = np.empty((sum(sizes), len(columns.features)), order="F")  # columns are those of a frame
    chunks = []
    for table, stop in zip(tables, np.cumsum(sizes).tolist(), strict=True):
        chunk = columns.chunk(table, table.table, Place(table.title))
        if source.population is not None:
            chunk = chunk.take(np.argsort(chunk.cell, kind="stable"))
        X[stop - len(chunk) : stop] = chunk.X
        chunks.append(replace(chunk, X=np.empty((len(chunk), 0))))
    return X, chunks


def stack_columns(
    source: TableSource, tables: list[Table], frames: list[nw.DataFrame[Any]]
) -> tuple[Frame, list[Chunk]]:
    """Return the features of tables of any columns in one data frame, and their other parts."""
    chunks, parts, columns = [], [], source.columns
    names = list(columns.features)
    for table, frame in zip(tables, frames, strict=True):
        columns.check(table, frame, table.title)
        for name in names:
            column_values(frame.get_column(name), table.title)
        nothing = np.empty((len(frame), 0))
        chunk = columns.labelled(table, frame, nothing, [], Place(table.title))
        order = np.arange(len(chunk))
        if source.population is not None:
            order = np.argsort(chunk.cell, kind="stable")
        chunks.append(chunk.take(order))
        parts.append(frame.select(names)[order])
    return stack_frames(parts, names).to_native(), chunks


def check_frame(table: Table) -> None:
    """Refuse what is not a data frame, or one without rows."""
    given = table.table
    is_frame = nw.dependencies.is_into_dataframe(given)
    if (names := column_names(given) if is_frame else None) is None:
        remedy = "Arrays go to SeparateLabels(X=..., y=..., ...)."
        if isinstance(given, str | os.PathLike):
            remedy = "Read files with unjoined.read_table, or stream them with TableSource."
        elif hasattr(given, "collect"):
            remedy = "Call its collect() first."
        raise TableError(
            f"{table.title} must be a pandas, polars or pyarrow data frame, got "
            f"{type(given).__name__}. {remedy}"
        )
    if odd := [name for name in names if not isinstance(name, str)]:
        raise TableError(
            f"columns of {table.title} must be named by text, got {shown(odd)}. Rename them, such "
            "as with frame.columns = [str(name) for name in frame.columns]."
        )
    if len(nw.from_native(table.table, eager_only=True)) == 0:
        rows = "rows of all populations" if table.population is None else "at least one row"
        raise TableError(f"{table.title} is empty. It needs {rows}.")
