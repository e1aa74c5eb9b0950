"""Where rows come from: arrays, chunks, data frames, files, folders and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import getattr_static
from logging import DEBUG
from typing import Any, Protocol, cast, runtime_checkable

import narwhals as nw
import numpy as np

from unjoined._support import PROGRESS
from unjoined._threads import CHUNK_ROWS
from unjoined._typing import ArrayLike, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_count,
    check_names,
    population_name,
    treated_values,
)
from unjoined.data.chunks import Columns, Place, Table, check_all_treated, chunk_of_arrays
from unjoined.data.columns import (
    NUMBERS,
    WORDS,
    ColumnProfile,
    as_categories,
    column_names,
    needs_encoding,
    some_columns,
)
from unjoined.data.encode import TableEncoder, profile_frame
from unjoined.data.fold import plus
from unjoined.data.looks import LEADING, Choice, LeftOut, Looks, Piece, look_at, merge_profiles
from unjoined.data.queries import SqlQuery
from unjoined.data.rows import Chunk, number_matrix
from unjoined.data.survey import Survey, check_categories, check_named_columns
from unjoined.data.tables import Reading, estimate_rows, scan_table
from unjoined.errors import InputError, TableError


@runtime_checkable
class ChunkSource(Protocol):
    """Rows that can be gone through from the beginning as often as asked.

    Iterating yields `Chunk` objects; those of no rows are allowed. Two iterations must yield the
    rows of each table, that is each kind and population, in the same order. How they are cut into
    chunks, and which table comes first, does not matter. A pass over the rows is one iteration, and
    nothing else is asked of a source whose chunks say their ``feature_names``.
    """

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, or None if they have none; may read the first rows."""
        ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Rows in memory, handed out in pieces; nothing is copied beyond one piece.

    Parameters
    ----------
    X, y, kind, population, sample_weight
        As in ``fit``: ``ArraySource(**data)`` takes a `SeparateLabels`.
    chunk_rows : int, default=65536
        Rows to a piece, at most.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> source = ArraySource(**paper_problem().draw(500, random_state=0), chunk_rows=600)
    >>> [len(chunk) for chunk in source]
    [600, 600, 600, 200]
    """

    X: MatrixLike
    y: ArrayLike
    kind: ArrayLike
    population: ArrayLike
    sample_weight: ArrayLike | None = None
    chunk_rows: int = CHUNK_ROWS
    encoder: TableEncoder | None = None  # of features that are not all numbers

    @property
    def feature_names(self) -> list[str] | None:
        """Column names of ``X`` if it is a data frame."""
        return column_names(self.X)

    def needs_encoding(self) -> bool:
        """Tell whether features are a data frame that may hold anything but amounts."""
        return self.feature_names is not None and needs_encoding(self.X)

    def encoded(self, encoder: TableEncoder) -> ArraySource:
        """Return the rows with features as numbers, by an encoder that is fitted to them."""
        return replace(self, encoder=encoder.fit(self.X))

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        size = check_count("chunk_rows", self.chunk_rows)
        names = self.feature_names
        X: Any = nw.from_native(self.X, eager_only=True) if names else number_matrix(self.X)
        y, kind = np.asarray(self.y), np.asarray(self.kind)
        # As objects, for else numpy would make text of 1 beside "1".
        is_array = hasattr(self.population, "dtype")
        population = np.asarray(self.population, dtype=None if is_array else object)
        weight = None if self.sample_weight is None else np.asarray(self.sample_weight)
        for name, part in (("y", y), ("kind", kind), ("population", population)):
            if len(part) != len(X):
                raise InputError(f"{name} has {len(part)} entries but X has {len(X)} rows.")
        for start in range(0, len(X), size):
            at = slice(start, start + size)
            piece = X[at]
            parts = {
                "X": piece.to_native() if names else piece,
                "y": y[at],
                "kind": kind[at],
                "population": population[at],
                "sample_weight": None if weight is None else weight[at],
            }
            yield chunk_of_arrays(parts, names, Place("the arrays", start), self.encoder)


@dataclass(frozen=True, eq=False)
class IterableSource:
    """Chunks that a function makes, from the beginning whenever it is called.

    Parameters
    ----------
    factory : callable
        Called without arguments, returns an iterable of chunks: mappings with ``X``, ``y``,
        ``kind``, ``population`` and, if wanted, ``sample_weight``. A generator function will do;
        a generator will not, as it can be gone through once only.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> def months():
    ...     for seed in range(3):
    ...         yield problem.draw(100, random_state=seed)
    >>> sum(len(chunk) for chunk in IterableSource(months))
    1200
    """

    factory: Callable[[], Iterable[Mapping[str, Any]]]
    encoder: TableEncoder | None = None  # of features that are not all numbers

    def encoded(self, encoder: TableEncoder) -> IterableSource:
        """Return the chunks with features as numbers, by an encoder that is fitted in one pass."""
        profiles: dict[str, ColumnProfile] = {}
        for i, parts in enumerate(self._mappings()):
            profiles = plus(profiles, profile_frame(parts["X"], table=f"chunk {i}"))
        return replace(self, encoder=encoder.fit_profiles(profiles))

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the first chunk's features."""
        for chunk in self._mappings():
            return column_names(chunk["X"])
        return None

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        names: list[str] | None = None
        width: int | None = None
        for i, parts in enumerate(self._mappings()):
            origin = f"chunk {i}"
            names = column_names(parts["X"]) if width is None else names
            chunk = chunk_of_arrays(parts, names, Place(origin), self.encoder)
            width = chunk.X.shape[1] if width is None else width
            if chunk.X.shape[1] != width:
                raise TableError(
                    f"{origin} has {chunk.X.shape[1]} features, those before it have {width}. "
                    "All chunks need the same features, in the same order."
                )
            yield chunk

    def _mappings(self) -> Iterator[Mapping[str, Any]]:
        if not callable(self.factory):
            raise InputError(
                f"chunks are gone through twice, so IterableSource needs a function that starts "
                f"anew with each call, got {type(self.factory).__name__}. Pass the generator "
                "function itself, or lambda: iter(...)."
            )
        for i, parts in enumerate(self.factory()):
            if missing := [
                name for name in ("X", "y", "kind", "population") if name not in set(parts)
            ]:
                raise InputError(
                    f"chunk {i} lacks {missing[0]!r}: a chunk is a mapping of X, y, kind, "
                    "population and, if wanted, sample_weight."
                )
            yield parts


@dataclass(frozen=True, eq=False)
class TableSource:
    """Rows of two or four tables, streamed from where they are.

    Made by `from_tables` or `from_frames`. A table is a data frame (pandas, polars, pyarrow), a
    Parquet or CSV file, a folder or list of such files, or a `SqlQuery`. Files and queries are
    read by DuckDB, a batch of rows at a time.
    """

    tables: tuple[Table, ...]
    population: str | None
    sample_weight: str | None
    features: tuple[str, ...] | None
    ignore: tuple[str, ...] = ()
    chunk_rows: int = CHUNK_ROWS
    threads: int | None = None
    memory_limit: str | None = None
    encoder: TableEncoder | None = None  # of features that are not all numbers
    categories: tuple[str, ...] = ()  # columns that are such, whatever they hold
    text: tuple[str, ...] = ()  # columns of text files that are left as they are written

    @classmethod
    def from_tables(
        cls,
        outcomes: Mapping[Any, Any],
        treatments: Mapping[Any, Any],
        *,
        outcome: str,
        treatment: str,
        treated: Any = None,
        sample_weight: str | None = None,
        features: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        categories: Iterable[str] = (),
        chunk_rows: int = CHUNK_ROWS,
        threads: int | None = None,
        memory_limit: str | None = None,
    ) -> TableSource:
        """Stream tables that each hold one kind and population.

        Parameters
        ----------
        outcomes, treatments : mapping of population name to table
            One party alone may give some of the four and an empty mapping for the rest.
        outcome, treatment : str
            The label's column.
        treated : value, optional
            The treatment that means treated; all others count as untreated. Not needed for 0/1,
            -1/+1, true/false, yes/no, y/n, t/f and treated/control, in any case.
        sample_weight : str, optional
            Column of row weights, in every table.
        features : iterable of str, optional
            Columns to use as features, whatever they hold. By default all columns that all tables
            have, but for labels, weights, populations and columns that are not features, such as
            ids and constants: ``left_out`` lists these with the reason.
        ignore : iterable of str, optional
            Columns to leave out.
        categories : iterable of str, optional
            Columns that hold codes, such as numbers of stores, rather than amounts.
        chunk_rows : int, default=65536
            Rows to a piece, at most.
        threads, memory_limit : int and str, optional
            What DuckDB may use, such as 4 and "2GB"; by default what it takes by itself.

        Examples
        --------
        >>> import pandas as pd
        >>> source = TableSource.from_tables(
        ...     {"A": pd.DataFrame({"age": [31.0, 54.0], "visit": [1, 0]})},
        ...     {"A": pd.DataFrame({"age": [28.0], "mailed": [1]})},
        ...     outcome="visit",
        ...     treatment="mailed",
        ... )
        >>> [(str(chunk.kind[0]), len(chunk)) for chunk in source]
        [('outcome', 2), ('treatment', 1)]
        """
        for kind, given in ((OUTCOME, outcomes), (TREATMENT, treatments)):
            if not isinstance(given, Mapping):
                raise TableError(
                    f"{kind}s must be a mapping of population names to tables, such as {{'north': "
                    f"a, 'south': b}}, got {type(given).__name__}. Two tables that name the "
                    "population in a column go to from_frames."
                )
            check_names(given, f"{kind} tables")
        tables = [
            Table(table, kind, label, population_name(name), treated)
            for kind, group, label in (
                (OUTCOME, outcomes, outcome),
                (TREATMENT, treatments, treatment),
            )
            for name, table in group.items()
        ]
        labels = {"outcome": outcome, "treatment": treatment, "sample_weight": sample_weight}
        chosen, left = check_named_columns(labels, features, ignore)
        reading = (chunk_rows, threads, memory_limit)
        codes = check_categories(categories, labels, chosen)
        return cls(
            tuple(_with_categories(tables, codes)),
            None,
            sample_weight,
            chosen,
            left,
            *reading,
            categories=codes,
        )

    @classmethod
    def from_frames(
        cls,
        outcomes: Any,
        treatments: Any,
        *,
        outcome: str,
        treatment: str,
        population: str,
        treated: Any = None,
        sample_weight: str | None = None,
        features: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        categories: Iterable[str] = (),
        chunk_rows: int = CHUNK_ROWS,
        threads: int | None = None,
        memory_limit: str | None = None,
    ) -> TableSource:
        """Stream two tables that name each row's population in a column.

        Parameters
        ----------
        outcomes, treatments : table or None
            None if a party has no such table.
        outcome, treatment, population : str
            Columns with the outcome, the treatment and the population's name.
        treated, sample_weight, features, ignore, categories, chunk_rows, threads, memory_limit
            As in `from_tables`.
        """
        tables = [
            Table(table, kind, label, None, treated)
            for kind, table, label in (
                (OUTCOME, outcomes, outcome),
                (TREATMENT, treatments, treatment),
            )
            if table is not None
        ]
        labels = {"outcome": outcome, "treatment": treatment, "sample_weight": sample_weight}
        labels |= {"population": population}
        chosen, left = check_named_columns(labels, features, ignore)
        reading = (chunk_rows, threads, memory_limit)
        codes = check_categories(categories, labels, chosen)
        return cls(
            tuple(_with_categories(tables, codes)),
            population,
            sample_weight,
            chosen,
            left,
            *reading,
            categories=codes,
        )

    @cached_property
    def choice(self) -> Choice:
        """Which columns are features and which are not, settled by a first look at the tables."""
        if self.features is not None:
            return Choice(tuple(name for name in self.features if name not in self.ignore))
        columns = Columns(self.population, self.sample_weight)
        frames = [table.table for table in self.tables]
        known = all(map(nw.dependencies.is_into_dataframe, frames)) and all(
            len(nw.from_native(frame, eager_only=True)) <= LEADING for frame in frames
        )

        def whole(names: Sequence[str]) -> Looks:
            return look_at(self._pieces(least=CHUNK_ROWS), columns, names)

        survey = Survey(self.tables, columns, self._leading, None if known else whole)
        choice = survey.choose(self.ignore, self.categories)
        choice.warn(stacklevel=6)
        return choice

    def needs_encoding(self) -> bool:
        """Tell whether the first rows of a table may hold anything but amounts."""
        return any(
            needs_encoding(some_columns(frame, self.choice.features))
            for _, frame, _ in self._leading()
        )

    def encoded(self, encoder: TableEncoder) -> TableSource:
        """Return the rows with features as numbers, by an encoder that is fitted in one pass."""
        columns = self.columns
        looks = look_at(self._pieces(least=CHUNK_ROWS), columns, columns.features)
        for name in columns.features:
            if name not in looks:  # which says so with the table and its columns
                return self
        profiles = merge_profiles(looks, columns.features)
        # A column of a text file may read as numbers in one piece and not in another.
        mixed = [name for name, found in profiles.items() if {NUMBERS, WORDS} <= found.holds]
        if set(mixed) - set(self.text):
            source = replace(self, text=(*self.text, *mixed))
            source.__dict__["choice"] = self.choice
            return source.encoded(encoder)
        encoder.fit_profiles(profiles)
        source = replace(self, encoder=encoder)
        source.__dict__["choice"] = self.choice
        return source

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Columns that are not features, each with the reason."""
        return self.choice.left_out

    @property
    def columns(self) -> Columns:
        """Which columns the tables have beside labels."""
        return Columns(self.population, self.sample_weight, self.choice.features, self.encoder)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: those asked for, or those that the tables have."""
        return list(self.choice.features)

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once, table by table, file by file."""
        columns = self.columns
        seen: dict[str, bool] = {}  # tables for which a value means treated, and whether it came
        for table, frame, place in self._pieces():
            chunk = columns.chunk(table, frame, place)
            if table.treated is not None and table.kind == TREATMENT:
                seen[table.title] = seen.get(table.title, False) or bool(chunk.label.any())
            yield chunk
        several = any(len(treated_values(table.treated)) > 1 for table in self.tables)
        if not all(seen.values()) or several:  # one of several may be in no table
            check_all_treated((table, frame) for table, frame, _ in self._pieces())

    def _pieces(self, *, least: int = 1) -> Iterator[Piece]:
        """Go through all tables, and say how far it is if anybody listens."""
        told, done = PROGRESS.isEnabledFor(DEBUG), 0
        total = sum(estimate_rows(table.table) for table in self.tables) if told else 0
        for table in self.tables:
            for piece in self._pieces_of(table, least):
                yield piece
                if told:
                    done += len(piece[1])
                    PROGRESS.debug("%s: %d of %d", "reading rows", done, max(done, total))

    def _pieces_of(self, table: Table, least: int) -> Iterator[Piece]:
        size = check_count("chunk_rows", self.chunk_rows)
        reading = Reading(max(size, least), self.threads, self.memory_limit)
        text = {*self.text, *self.categories, *filter(None, [self.population])}
        for frame, place in scan_table(table.table, table.title, reading, text):
            yield table, as_categories(frame, self.categories) if self.categories else frame, place

    def _leading(self) -> Iterator[Piece]:
        """Yield the first rows of each table."""
        for table in self.tables:
            left = LEADING
            for _, frame, place in self._pieces_of(table, CHUNK_ROWS):
                some = nw.from_native(frame, eager_only=True).head(left)
                left -= len(some)
                yield table, some.to_native(), place
                if not left:
                    break


def _with_categories(tables: Iterable[Table], names: Sequence[str]) -> Iterator[Table]:
    """Yield tables, data frames with some columns as categories; files are read so later."""
    for table in tables:
        is_frame = names and nw.dependencies.is_into_dataframe(table.table)
        yield replace(table, table=as_categories(table.table, names)) if is_frame else table


def as_source(source: Any) -> ChunkSource:
    """Return what ``fit_chunks`` can go through, or say what it takes."""
    if isinstance(source, Mapping):
        return ArraySource(**source)
    if isinstance(source, SqlQuery) or nw.dependencies.is_into_dataframe(source):
        raise InputError(
            f"a single {type(source).__name__} does not say which rows carry which label. Make a "
            "source of it with TableSource.from_frames or TableSource.from_tables."
        )
    # Looked up without being evaluated: a source may read rows to tell its names, and an error on
    # the way would make it look like no source.
    absent = object()
    parts = (getattr_static(source, name, absent) for name in ("__iter__", "feature_names"))
    if not isinstance(source, type) and all(part is not absent for part in parts):
        return cast("ChunkSource", source)
    if callable(source):
        return IterableSource(source)
    raise InputError(
        f"source must be a TableSource, a SeparateLabels, or a function that returns chunks, got "
        f"{type(source).__name__}."
    )
