"""Data frames of pandas, polars and pyarrow in, float64 matrices out (through narwhals)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, Frame, MatrixLike
from unjoined._validation import (
    LARGEST,
    check_columns,
    check_finite_features,
    check_names,
    check_number_type,
    check_numeric_columns,
    is_missing,
    population_name,
)
from unjoined.errors import InputError, LabelError, TableError


def column_names(X: MatrixLike) -> list[str] | None:
    """Return the column names of a data frame, None for anything else."""
    if not nw.dependencies.is_into_dataframe(X):
        return None
    return list(nw.from_native(X, eager_only=True).columns)


def feature_matrix(X: MatrixLike) -> Array:
    """Return features as a float64 matrix; booleans become 0 and 1."""
    if nw.dependencies.is_into_dataframe(X):
        # Booleans with missing values have no float form; small integers do.
        frame = nw.from_native(X, eager_only=True)
        X = frame.with_columns(nw.selectors.boolean().cast(nw.Int8)).to_numpy()
    else:
        check_number_type("features", X)
    try:
        matrix: Array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"features must be numbers: {error}.") from error
    if matrix.ndim != 2:
        raise InputError(
            f"X must be two-dimensional (rows by features), got shape {matrix.shape}. "
            "Reshape a single feature with X.reshape(-1, 1)."
        )
    return matrix


def rebuild_frame(matrix: Array, names: list[str], *, like: Frame) -> Frame:
    """Return ``matrix`` as a data frame of the same library as ``like``."""
    backend = nw.from_native(like, eager_only=True).implementation
    columns = {name: matrix[:, j] for j, name in enumerate(names)}
    return nw.from_dict(columns, backend=backend).to_native()


@dataclass(frozen=True, slots=True)
class TableParts:
    """One table taken apart: features, label and weight of one kind and population."""

    frame: Frame  # feature columns only
    features: list[str]
    label: Array
    weight: Array | None
    kind: str
    population: str

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    @property
    def title(self) -> str:
        """How messages call this table."""
        of = f" of population {self.population!r}" if self.population else ""
        return f"the {self.kind} table{of}"

    def matrix(self, names: list[str]) -> Array:
        """Return the features in the order of ``names``; other or missing columns are refused."""
        check_columns(names, self.features, table=self.title)
        check_numeric_columns(self.frame, table=self.title)
        matrix = feature_matrix(
            nw.from_native(self.frame, eager_only=True).select(names).to_native()
        )
        check_finite_features(matrix, names, table=self.title)
        return matrix


def take_table(
    frame: Frame, *, kind: str, population: str, label: str | None, weight: str | None
) -> TableParts:
    """Take one data frame apart, refusing what is no table, is empty or lacks a column."""
    of = f" of population {population!r}" if population else ""
    table = f"the {kind} table{of}"
    if not nw.dependencies.is_into_dataframe(frame):
        raise TableError(
            f"{table} must be a pandas, polars or pyarrow data frame, got "
            f"{type(frame).__name__}. Arrays go to SeparateLabels(X=..., y=..., ...) directly."
        )
    native = nw.from_native(frame, eager_only=True)
    if len(native) == 0:
        raise TableError(f"{table} is empty. Each table needs at least one row.")
    special = [name for name in (label, weight) if name is not None]
    if missing := [name for name in special if name not in native.columns]:
        raise TableError(
            f"{table} has no column {missing[0]!r}; its columns are "
            f"{', '.join(map(str, native.columns))}."
        )
    features = [name for name in native.columns if name not in special]
    if not features:
        raise TableError(f"{table} has no feature columns besides {', '.join(special)}.")
    numbers = np.full(len(native), np.nan) if label is None else _numbers(native, label, table)
    return TableParts(
        frame=native.select(features).to_native(),
        features=features,
        label=numbers,
        weight=None if weight is None else _numbers(native, weight, table),
        kind=kind,
        population=population,
    )


def _numbers(frame: nw.DataFrame[Any], name: str, table: str) -> Array:
    """Return a column of labels or weights as float64; missing and infinite ones are refused."""
    check_numeric_columns(frame.select(name).to_native(), table=table, what="labels and weights")
    column = frame.get_column(name)
    if column.dtype == nw.Boolean:
        column = column.cast(nw.Int8)
    numbers: Array = np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise LabelError(
            f"column {name!r} of {table} holds NaN or infinite values in {int(bad.sum())} of "
            f"{len(numbers)} rows (first at row {int(np.argmax(bad))}, counting from 0). Remove "
            "these rows, or pass them as target rows if their label is unknown."
        )
    large = np.abs(numbers) > LARGEST
    if large.any():
        raise LabelError(
            f"column {name!r} of {table} holds numbers beyond {LARGEST:g} in {int(large.sum())} of "
            f"{len(numbers)} rows (first at row {int(np.argmax(large))}, counting from 0). If they "
            "stand for missing values, remove these rows; else divide the column by a power of ten."
        )
    return numbers


def split_by_population(frame: Frame, population: str, *, table: str) -> dict[str, Frame]:
    """Return one frame per value of the population column, without that column."""
    if not nw.dependencies.is_into_dataframe(frame):
        raise TableError(
            f"{table} must be a pandas, polars or pyarrow data frame, got {type(frame).__name__}."
        )
    native = nw.from_native(frame, eager_only=True)
    if population not in native.columns:
        raise TableError(
            f"{table} has no population column {population!r}; its columns are "
            f"{', '.join(map(str, native.columns))}."
        )
    if len(native) == 0:
        raise TableError(f"{table} is empty. It needs rows of all populations.")
    names = population_names(native.get_column(population), table=table)
    rest = native.drop(population)
    # Before the split, so that a stray word is found even if it is the other population's.
    check_numeric_columns(rest.to_native(), table=table, what="features and labels")
    return {
        name: rest.filter((names == name).tolist()).to_native()
        for name in np.unique(names).tolist()
    }


def population_names(column: nw.Series[Any], *, table: str, first_row: int = 0) -> NDArray[np.str_]:
    """Return the population of every row as text; missing names are refused with their row."""
    values = column.to_list()
    try:
        distinct = dict.fromkeys(values)
    except TypeError:  # lists and the like
        raise TableError(
            f"column {column.name!r} of {table} holds {str(column.dtype).lower()} values; names of "
            "populations must be text or numbers."
        ) from None
    names = {v: population_name(v) for v in distinct if not is_missing(v)}
    check_names(names, f"column {column.name!r} of {table}")
    missing = [i for i, v in enumerate(values) if v not in names]
    if missing:
        raise TableError(
            f"row {first_row + missing[0]:,} of {table} (counting from 0): column {column.name!r} "
            f"is missing in {len(missing):,} of {len(values):,} rows. Name the population of every "
            "row."
        )
    return np.array([names[v] for v in values], dtype=str)
