"""Where rows come from: arrays, chunks, data frames, files, folders and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from logging import DEBUG
from typing import Any, Protocol, Self

import narwhals as nw
import numpy as np

from unjoined._support import PROGRESS
from unjoined._threads import CHUNK_ROWS
from unjoined._validation import TREATMENT, treated_values
from unjoined.data.chunks import (
    Columns,
    Place,
    Table,
    check_all_treated,
    chunk_of_arrays,
)
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
from unjoined.data.looks import (
    LEADING,
    Choice,
    LeftOut,
    Looks,
    Piece,
    look_at,
    merge_profiles,
)
from unjoined.data.queries import SqlQuery
from unjoined.data.rows import Chunk, number_matrix
from unjoined.data.survey import Survey
from unjoined.data.tables import estimate_rows, is_lazy, scan_table
from unjoined.errors import InputError, TableError


class ChunkSource(Protocol):
    """Rows that can be gone through from the beginning as often as asked.

    Iterating yields `Chunk` objects; those of no rows are allowed. Two iterations must yield the
    rows of each table, that is each kind and population, in the same order. How they are cut into
    chunks, and which table comes first, does not matter.
    """

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, or None if they have none; may read the first rows."""
        ...

    def needs_encoding(self) -> bool:
        """Tell whether features may be anything but numbers."""
        ...

    def encoded(self, encoder: TableEncoder) -> Self:
        """Return the rows with features as numbers, by an encoder that is fitted to them."""
        ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Rows in memory, handed out in pieces; nothing is copied beyond one piece."""

    columns: Mapping[str, Any]  # as ``fit`` takes them
    chunk_rows: int
    encoder: TableEncoder | None = None  # of features that are not all numbers

    @property
    def feature_names(self) -> list[str] | None:
        """Column names of the features if they are a data frame."""
        return column_names(self.columns["X"])

    def needs_encoding(self) -> bool:
        """Tell whether features are a data frame that may hold anything but amounts."""
        return self.feature_names is not None and needs_encoding(self.columns["X"])

    def encoded(self, encoder: TableEncoder) -> ArraySource:
        """Return the rows with features as numbers, by an encoder that is fitted to them."""
        return replace(self, encoder=encoder.fit(self.columns["X"]))

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once."""
        names = self.feature_names
        given = self.columns["X"]
        X: Any = (
            nw.from_native(given, eager_only=True) if names else number_matrix(given)
        )
        columns = {}
        for name, column in self.columns.items():
            if name == "X" or column is None:
                continue
            # As objects, for else numpy would make text of 1 beside "1".
            is_array = hasattr(column, "dtype")
            columns[name] = np.asarray(column, dtype=None if is_array else object)
            if len(columns[name]) != len(X):
                raise InputError(
                    f"{name} has {len(columns[name])} entries but X has {len(X)} rows."
                )
        for start in range(0, len(X), self.chunk_rows):
            at = slice(start, start + self.chunk_rows)
            parts = {"X": X[at].to_native() if names else X[at]}
            parts |= {name: column[at] for name, column in columns.items()}
            yield chunk_of_arrays(
                parts, names, Place("the arrays", start), self.encoder
            )


@dataclass(frozen=True, eq=False)
class IterableSource:
    """Chunks that a function makes, from the beginning whenever it is called."""

    factory: Callable[[], Iterable[Mapping[str, Any]]]
    encoder: TableEncoder | None = None  # of features that are not all numbers

    def needs_encoding(self) -> bool:
        """Tell nothing: the first chunk that does not hold numbers will say so."""
        return False

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
        for i, parts in enumerate(self.factory()):
            if missing := [
                name for name in ("X", "population") if name not in set(parts)
            ]:
                raise InputError(
                    f"chunk {i} lacks {missing[0]!r}: a chunk is a mapping of X, population, y or "
                    "treatment or both and, if wanted, sample_weight and cluster."
                )
            yield parts


@dataclass(frozen=True, eq=False)
class TableSource:
    """Rows of tables, streamed from where they are.

    A table is a data frame (pandas, polars, pyarrow), a Parquet or CSV file, a folder or list of
    such files, or a `SqlQuery`. Files and queries are read by DuckDB, a batch of rows at a time.
    """

    tables: tuple[Table, ...]
    population: str | None
    sample_weight: str | None
    cluster: str | None
    count: str | None
    policies: Mapping[str, Any]  # known ones, by population
    features: tuple[str, ...] | None
    ignore: tuple[str, ...] = ()
    chunk_rows: int = CHUNK_ROWS
    encoder: TableEncoder | None = None  # of features that are not all numbers
    categories: tuple[str, ...] = ()  # columns that are such, whatever they hold
    text: tuple[
        str, ...
    ] = ()  # columns of text files that are left as they are written

    @cached_property
    def choice(self) -> Choice:
        """Which columns are features and which are not, settled by a first look at the tables."""
        columns = self.beside
        if self.features is not None:
            survey = Survey(self.tables, columns, self._leading, None)
            choice = survey.named(self.features, self.ignore)
            choice.warn(stacklevel=6)
            return choice
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

    @property
    def is_lazy(self) -> bool:
        """Whether all tables are lazy frames, whose engines can add up."""
        return bool(self.tables) and all(is_lazy(t.table) for t in self.tables)

    @property
    def is_asked(self) -> bool:
        """Whether all tables are queries, and rows have nothing but features and labels."""
        plain = self.sample_weight is None and self.cluster is None
        return plain and all(isinstance(t.table, SqlQuery) for t in self.tables)

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
        mixed = [
            name for name, found in profiles.items() if {NUMBERS, WORDS} <= found.holds
        ]
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
        return self.beside._replace(features=self.choice.features, encoder=self.encoder)

    @property
    def beside(self) -> Columns:
        """The same before features are chosen."""
        return Columns(
            self.population,
            self.sample_weight,
            self.cluster,
            self.count,
            self.policies,
        )

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: those asked for, or those that the tables have."""
        return list(self.choice.features)

    def __iter__(self) -> Iterator[Chunk]:
        """Go through all rows once, table by table, file by file."""
        columns = self.columns
        seen: dict[
            str, bool
        ] = {}  # tables for which a value means treated, and whether it came
        for table, frame, place in self._pieces():
            chunk = columns.chunk(table, frame, place)
            if table.treated is not None and table.kind == TREATMENT:
                seen[table.title] = seen.get(table.title, False) or bool(
                    chunk.label.any()
                )
            yield from chunk.written_out(CHUNK_ROWS)
        several = any(len(treated_values(table.treated)) > 1 for table in self.tables)
        if not all(seen.values()) or several:  # one of several may be in no table
            check_all_treated((table, frame) for table, frame, _ in self._pieces())

    def _pieces(self, *, least: int = 1) -> Iterator[Piece]:
        """Go through all tables, and say how far it is if anybody listens."""
        told = PROGRESS.isEnabledFor(DEBUG)
        done = 0
        total = sum(estimate_rows(table.table) for table in self.tables) if told else 0
        for table in self.tables:
            for piece in self._pieces_of(table, least):
                yield piece
                if told:
                    done += len(piece[1])
                    PROGRESS.debug(
                        "%s: %d of %d", "reading rows", done, max(done, total)
                    )

    def _pieces_of(self, table: Table, least: int) -> Iterator[Piece]:
        size = max(self.chunk_rows, least)
        names = filter(None, [self.population, self.cluster])
        text = {*self.text, *self.categories, *names}
        for frame, place in scan_table(table.table, table.title, size, text):
            yield (
                table,
                as_categories(frame, self.categories) if self.categories else frame,
                place,
            )

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
