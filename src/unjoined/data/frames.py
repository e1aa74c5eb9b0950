"""Data frames of pandas, polars and pyarrow in, float64 matrices out (through narwhals)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray, CellArray, Frame, IntArray, MatrixLike
from unjoined._validation import (
    KINDS,
    LARGEST,
    TARGET,
    check_columns,
    check_feature_sizes,
    check_finite_features,
    check_kind,
    check_labels,
    check_names,
    check_number_type,
    check_numeric_columns,
    check_population,
    check_weight,
    distinct,
    is_kind,
    is_missing,
    population_name,
)
from unjoined.data.rows import Chunk, cell_codes
from unjoined.errors import InputError, LabelError, TableError, UnjoinedError


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
    names, index = population_codes(native.get_column(population), table=table)
    rest = native.drop(population)
    # Before the split, so that a stray word is found even if it is the other population's.
    check_numeric_columns(rest.to_native(), table=table, what="features and labels")
    return {name: rest.filter((index == k).tolist()).to_native() for k, name in enumerate(names)}


PLAIN = (nw.String, nw.Boolean, nw.Int64, nw.Int32)  # columns that are told apart all at once


def population_codes(
    column: nw.Series[Any], *, table: str, first_row: int = 0
) -> tuple[list[str], IntArray]:
    """Return the populations in a column as sorted text, and which of them each row is of."""
    plain = column.dtype in PLAIN
    values = column.unique().to_list() if plain else column.to_list()
    try:
        given = dict.fromkeys(values)
    except TypeError:  # lists and the like
        raise TableError(
            f"column {column.name!r} of {table} holds {str(column.dtype).lower()} values; names of "
            "populations must be text or numbers."
        ) from None
    known = {v: population_name(v) for v in given if not is_missing(v)}
    check_names(known, f"column {column.name!r} of {table}")
    names = sorted(set(known.values()))
    index: IntArray = np.full(len(column), -1, dtype=np.int64)
    if plain:
        for value, name in known.items():
            index[(column == value).fill_null(False).to_numpy()] = names.index(name)
    else:
        index[:] = [names.index(known[v]) if v in known else -1 for v in values]
    missing = np.flatnonzero(index < 0)
    if len(missing):
        raise TableError(
            f"row {first_row + int(missing[0]):,} of {table} (counting from 0): column "
            f"{column.name!r} is missing in {len(missing):,} of {len(column):,} rows. Name the "
            "population of every row."
        )
    return names, index


class Place(NamedTuple):
    """Where some rows come from, for messages."""

    origin: str  # what messages call the file, table or chunk
    first_row: int = 0  # position of the first row there

    @contextmanager
    def named(self, n: int) -> Iterator[None]:
        """Say in front of any complaint which ``n`` rows it is about."""
        where = f"{self.origin}, rows {self.first_row:,} to {self.first_row + n - 1:,}"
        try:
            yield
        except UnjoinedError as error:
            raise type(error)(f"{where}: {error}") from error
        except (TypeError, ValueError) as error:
            raise LabelError(f"{where}: labels must be numbers ({error}).") from error

    def refuse(self, bad: BoolArray, what: str, kind: type[UnjoinedError]) -> None:
        """Refuse rows that are marked, naming the first."""
        if bad.any():
            raise kind(
                f"row {self.first_row + int(np.argmax(bad)):,} of {self.origin} (counting from 0): "
                f"{what} missing or infinite, as in {int(bad.sum()):,} of the {len(bad):,} rows "
                "read with it. Remove or impute such rows; none is dropped silently."
            )


def chunk_of_arrays(parts: Mapping[str, Any], names: list[str] | None, place: Place) -> Chunk:
    """Check rows that come as the arguments of ``fit``, with the features in the order of names."""
    matrix = chunk_features(parts["X"], names, place)
    n = len(matrix)
    with place.named(n):
        kinds = check_kind(parts["kind"], n)
        populations = check_population(parts["population"], kinds)
    found = distinct(populations[~is_kind(kinds, TARGET)]) or [""]
    index = np.zeros(n, dtype=np.int64)
    for k, name in enumerate(found[1:], 1):
        index[populations == name] = k
    cells = cell_codes(kinds, index, len(found)), found
    names = names or column_names(parts["X"])
    return make_chunk(matrix, parts["y"], cells, parts.get("sample_weight"), names, place)


def chunk_features(X: MatrixLike, names: list[str] | None, place: Place) -> Array:
    """Return features as a matrix in C order, their columns as named if that is known."""
    found = column_names(X)
    if found is None:
        try:
            return np.ascontiguousarray(feature_matrix(X))
        except InputError as error:
            raise InputError(f"{place.origin}: {error}") from error
    check_numeric_columns(X, table=place.origin, first_row=place.first_row)
    if names is not None and found != names:
        check_columns(names, found, table=place.origin)
        return np.ascontiguousarray(feature_matrix(X)[:, [found.index(name) for name in names]])
    return np.ascontiguousarray(feature_matrix(X))


def make_chunk(
    matrix: Array,
    y: ArrayLike | None,
    cells: tuple[CellArray, list[Any]],
    sample_weight: ArrayLike | None,
    names: list[str] | None,
    place: Place,
) -> Chunk:
    """Check some rows, and say which file and row is at fault if they will not do."""
    n, (cell, populations) = len(matrix), cells
    m = len(populations)
    # Extremes tell at once that all is well; which row is not is looked for only if it is not.
    if not -LARGEST <= matrix.min(initial=0.0) <= matrix.max(initial=0.0) <= LARGEST:
        finite: BoolArray = np.asarray(np.isfinite(matrix).all(axis=1))
        place.refuse(~finite, "features", TableError)
    with place.named(n):
        check_feature_sizes(matrix, names)
        if y is not None:
            check_number_type("labels", y, LabelError)
        label: Array = np.full(n, np.nan) if y is None else np.asarray(y, dtype=np.float64)
        weight = check_weight(sample_weight, n)
    good = label.shape == (n,) and -LARGEST <= label.min(initial=0.0) <= label.max(initial=0.0)
    if not (good and label.max(initial=0.0) <= LARGEST) or cell.max(initial=0) >= 2 * m:
        kinds = np.array(KINDS)[cell // m]
        if label.shape == (n,):
            place.refuse(~np.isfinite(label) & ~is_kind(kinds, TARGET), "the label", LabelError)
        with place.named(n):
            label = check_labels(label, kinds)
    known = None if names is None else tuple(names)
    return Chunk(matrix, label, cell, weight, populations, place.origin, place.first_row, known)
