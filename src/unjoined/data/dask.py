"""Rows in Dask collections: a source for fits, and lazy predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import narwhals as nw
import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array, MatrixLike
from unjoined._validation import TREATMENT
from unjoined.data.chunks import (
    Columns,
    Place,
    Table,
    check_all_treated,
    chunk_of_arrays,
)
from unjoined.data.columns import needs_encoding, some_columns
from unjoined.data.encode import TableEncoder
from unjoined.data.fold import plus
from unjoined.data.looks import LEADING, Choice, Looks, Piece, look_at, merge_profiles
from unjoined.data.rows import Chunk, NumberedRows
from unjoined.data.sources import TableSource
from unjoined.data.survey import Survey
from unjoined.data.tables import is_dask
from unjoined.errors import ClusterError, InputError, TableError


@dataclass(frozen=True, eq=False)
class DaskSource:
    """Rows of Dask DataFrames or arrays, one partition at a time.

    Nothing is computed until a fit asks for it. Sums are then made of partitions where they are:
    on the workers of a cluster if there is a current client, else by Dask's own scheduler on this
    machine. Iterating brings the partitions here, one by one.
    """

    parts: tuple[Any, ...]  # a Delayed of a checked `Chunk` for each partition
    names: tuple[str, ...] | None  # of the features
    given: TableSource | None = (
        None  # the tables that the parts come from, None for arrays
    )

    @classmethod
    def of_tables(cls, given: TableSource) -> DaskSource:
        """Take Dask DataFrames, whose divisions may be unknown and partitions empty."""
        delayed = import_extra("dask", extra="dask").delayed
        asked = given.features is not None
        tables = given
        for table in given.tables:
            frame = table.table
            if not (is_dask(frame) and hasattr(frame, "columns") and frame.ndim == 2):
                raise TableError(
                    f"{table.title} must be a Dask DataFrame as other tables are, got "
                    f"{type(frame).__name__}."
                )
        if not asked:
            first, *rest = ([*table.table.columns] for table in given.tables)
            special = {table.label for table in given.tables}
            special |= {given.population, given.sample_weight, given.cluster}
            names = [
                n
                for n in first
                if n not in special and all(n in other for other in rest)
            ]
            given = replace(given, features=tuple(names))
        kept = tuple(n for n in given.features or () if n not in given.ignore)
        given.__dict__["choice"] = Choice(kept)  # nothing is looked at here
        columns = given.columns
        make = delayed(_table_chunk, pure=False)
        parts: list[Any] = []
        for table in given.tables:
            # What Dask knows of the columns is an empty frame: checked before anything is computed.
            frame = table.table
            about = replace(table, table=None)
            known = table.table._meta
            columns.check(about, nw.from_native(known, eager_only=True), table.title)
            if asked:  # then files are not read beyond these columns
                frame = frame[
                    list(dict.fromkeys([*columns.features, *columns.special(table)]))
                ]
            parts += [
                make(part, about, columns, f"partition {i} of {table.title}")
                for i, part in enumerate(frame.to_delayed())
            ]
        features = columns.features
        if columns.encoder is not None:
            features = tuple(columns.encoder.get_feature_names_out().tolist())
        return cls(tuple(parts), features, tables)

    @classmethod
    def of_arrays(cls, columns: Mapping[str, Any]) -> DaskSource:
        """Take Dask arrays with the arguments of ``fit``, cut like ``X`` into blocks of rows."""
        delayed = import_extra("dask", extra="dask").delayed
        da = import_extra("dask.array", extra="dask")
        X = columns["X"]
        if not (hasattr(X, "chunks") and X.ndim == 2):
            raise InputError(
                f"X must be a two-dimensional Dask array, got {type(X).__name__}. Dask "
                "DataFrames go to SeparateLabels.from_tables."
            )
        rows = X.rechunk({1: -1})
        blocks = {
            name: [None] * rows.numblocks[0]
            if column is None
            else _blocks(da, name, column, rows)
            for name, column in columns.items()
            if name != "X"
        }
        make = delayed(_array_chunk, pure=False)
        parts = tuple(
            make(
                part,
                dict(zip(blocks, labels, strict=True)),
                width=rows.shape[1],
                origin=f"partition {i} of the arrays",
            )
            for i, (part, *labels) in enumerate(
                zip(rows.to_delayed().ravel(), *blocks.values(), strict=True)
            )
        )
        return cls(parts, None)

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features; arrays have none."""
        return None if self.names is None else list(self.names)

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once, one partition in memory at a time."""
        yield from self._results(self.parts)

    def _results(self, tasks: Iterable[Any]) -> Iterator[Any]:
        with connected() as client:
            for task in tasks:
                yield (
                    task.compute() if client is None else client.compute(task).result()
                )

    def numbered(self) -> DaskSource:
        """Return the source with rows that know their numbers within their tables.

        One pass counts the rows of every partition, as the numbers go on from one to the next.
        """
        dask = import_extra("dask", extra="dask")
        sizes = [
            dask.delayed(Chunk.table_sizes, pure=False)(part) for part in self.parts
        ]
        with connected() as client:
            found = (
                dask.compute(*sizes)
                if client is None
                else client.gather(client.compute(sizes))
            )
        before: Counter[tuple[str, Any]] = Counter()
        parts = []
        for part, size in zip(self.parts, found, strict=True):
            number = partial(NumberedRows.of_chunk, before=dict(before))
            parts.append(dask.delayed(number, pure=False)(part))
            before.update(size)
        return replace(self, parts=tuple(parts))

    def settled(self) -> DaskSource:
        """Return the source with columns that are not features left out; looks at some rows.

        If a value was said to mean treated, all treatments are looked at as well.
        """
        self._check_treated()
        if self.given is None or self.given.features is not None:
            return self
        given = self.given
        columns = Columns(
            given.population, given.sample_weight, given.cluster, None, {}
        )

        survey = Survey(
            given.tables,
            columns,
            self._leading,
            lambda names: self._looks(columns, names),
        )
        choice = survey.choose(given.ignore)
        choice.warn(stacklevel=4)
        return DaskSource.of_tables(replace(given, features=choice.features))

    def _leading(self) -> Iterator[Piece]:
        """Yield the first rows of each table."""
        for table in () if self.given is None else self.given.tables:
            about = replace(table, table=None)
            parts = table.table.to_delayed()
            for frame in self._results(parts):
                if len(frame):  # partitions may be empty
                    yield about, frame.head(LEADING), Place(table.title)
                    break

    def needs_encoding(self) -> bool:
        """Tell whether the first rows of a table may hold anything but amounts."""
        names = () if self.given is None else self.given.columns.features
        return any(
            needs_encoding(some_columns(frame, names))
            for _, frame, _ in self._leading()
        )

    def _check_treated(self) -> None:
        """Refuse a value that means treated if tables do not have it, or write treatments apart."""
        tables = (
            []
            if self.given is None
            else [t for t in self.given.tables if t.kind == TREATMENT]
        )
        if all(table.treated is None for table in tables):
            return
        found = (
            table.table[[table.label]].map_partitions(_distinct_rows)
            for table in tables
        )
        parts = [
            (t, part)
            for t, of in zip(tables, found, strict=True)
            for part in of.to_delayed()
        ]
        frames = self._results(part for _, part in parts)
        check_all_treated(
            (t, frame) for (t, _), frame in zip(parts, frames, strict=True)
        )

    def encoded(self, encoder: TableEncoder) -> DaskSource:
        """Return the rows with features as numbers, by an encoder that is fitted in one pass."""
        if self.given is None:
            return self
        columns = self.given.columns
        looks = self._looks(columns, columns.features)
        encoder.fit_profiles(merge_profiles(looks, columns.features))
        return DaskSource.of_tables(replace(self.given, encoder=encoder))

    def _looks(self, columns: Columns, names: Sequence[str]) -> Looks:
        """Return what columns hold in all rows, found where the partitions are."""
        look = import_extra("dask", extra="dask").delayed(_look_at_part, pure=False)
        tables = () if self.given is None else self.given.tables
        tasks = [
            look(
                part,
                replace(table, table=None),
                columns,
                tuple(names),
                f"partition {i}",
            )
            for table in tables
            for i, part in enumerate(table.table.to_delayed())
        ]
        return reduce(plus, self._results(tasks))


def _distinct_rows(frame: Any) -> Any:
    return frame.drop_duplicates()


def _look_at_part(
    frame: Any, table: Table, columns: Columns, names: Sequence[str], origin: str
) -> Looks:
    return look_at(
        [(table, frame, Place(f"{origin} of {table.title}"))], columns, names
    )


def _table_chunk(frame: Any, table: Table, columns: Columns, origin: str) -> Chunk:
    return columns.chunk(table, frame, Place(origin))


def _array_chunk(
    X: Any, labels: Mapping[str, Any], *, width: int, origin: str
) -> Chunk:
    if X.ndim == 2 and X.shape[1] != width:
        raise TableError(
            f"{origin} has {X.shape[1]} features, the array says {width}. All partitions need the "
            "same features, in the same order."
        )
    return chunk_of_arrays({"X": X, **labels}, None, Place(origin))


def _blocks(da: Any, name: str, column: Any, rows: Any) -> list[Any]:
    """Return a column's parts beside the blocks of ``rows``, as Delayed objects."""
    known = not np.isnan(rows.shape[0])
    if hasattr(
        column, "to_dask_array"
    ):  # a Dask Series: its partitions do not say their sizes
        column = column.to_dask_array()
    elif not is_dask(column):
        column = np.asarray(column)
    if known and not np.isnan(column.shape[0]):
        if column.shape != rows.shape[:1]:
            raise InputError(
                f"{name} has shape {column.shape} but X has {rows.shape[0]} rows. Pass one entry "
                "per row."
            )
        chunks = (rows.chunks[0],)
        column = (
            column.rechunk(chunks) if is_dask(column) else da.from_array(column, chunks)
        )
    elif not is_dask(column) or column.numblocks != rows.numblocks[:1]:
        raise InputError(
            f"the sizes of the blocks of X or {name} are not known, so {name} must be a Dask array "
            f"of as many blocks as X ({rows.numblocks[0]}). Or call compute_chunk_sizes() on both."
        )
    return list(column.to_delayed().ravel())


def in_memory(*columns: Any) -> tuple[Any, ...]:
    """Return columns with Dask collections computed, all in one go; the rest as it is.

    Metrics that sort rows need all scores and labels in memory: 8 bytes per row and column.
    They take Dask columns as they are and compute each by itself; this computes what the
    columns have in common, such as reading files, once.

    Examples
    --------
    >>> in_memory([0.2, 0.1], None)
    ([0.2, 0.1], None)
    """
    if not any(map(is_dask, columns)):
        return columns
    return tuple(import_extra("dask", extra="dask").compute(*columns))


def predict_lazily(model: Any, X: Any) -> Any:
    """Return the predictions of a fitted model, not yet computed."""
    delayed = import_extra("dask", extra="dask").delayed
    # As a task of its own, the model goes to each worker once rather than with every partition.
    shared = delayed(model, pure=False, traverse=False)
    if hasattr(X, "columns"):
        pandas = import_extra("pandas", extra="dask")
        meta = pandas.Series(dtype=np.float64, name="uplift", index=X._meta.index)
        return X.map_partitions(_predict_part, shared, meta=meta)
    rows = X.rechunk({1: -1})
    blocks = {"drop_axis": 1, "dtype": np.float64, "meta": np.empty(0)}
    return rows.map_blocks(_predict_part, model=shared, **blocks)


def _predict_part(X: MatrixLike, model: Any) -> Any:
    """Return predictions for one partition, which may be empty, in the form it came in."""
    values: Array = model.predict(X) if len(X) else np.empty(0)
    if not hasattr(X, "columns"):
        return values
    return type(X.iloc[:, 0])(values, index=X.index, name="uplift")


@contextmanager
def told_if_lost(client: Any) -> Iterator[None]:
    """Turn what Dask raises about a lost scheduler or worker into one message."""
    distributed = import_extra("distributed", extra="dask")
    if client.status != "running":
        raise InputError(
            f"the Dask client is {client.status}, so it has no cluster to work on. Pass one that "
            "is connected."
        )
    try:
        yield
    except (
        CancelledError,
        distributed.comm.core.CommClosedError,
        distributed.core.RPCClosed,
        distributed.scheduler.KilledWorker,
    ) as error:
        raise ClusterError(
            f"the Dask cluster was lost before it had finished ({type(error).__name__}: {error}). "
            "Check that the scheduler and its workers run, start them again if not, and repeat the "
            "fit with a new client. Workers that run out of memory need smaller partitions."
        ) from error


SECONDS = 10  # to wait for the first worker


@contextmanager
def connected() -> Iterator[Any]:
    """Yield the current client if it has workers, or None where Dask computes on this machine."""
    found = import_extra("dask.base", extra="dask").get_scheduler()
    client: Any = getattr(found, "__self__", None)  # the method ``get`` of a client
    if not type(client).__module__.startswith("distributed"):
        yield None
        return
    with told_if_lost(client):
        try:
            client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError as error:
            raise InputError(
                f"the Dask scheduler at {client.scheduler.address!r} has no workers, and none came "
                f"within {SECONDS} seconds. Start at least one (adaptive clusters: minimum=1)."
            ) from error
        yield client
