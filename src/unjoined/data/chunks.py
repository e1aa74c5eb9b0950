"""Arrays and data frames (pandas, polars, pyarrow) in, checked rows out, a chunk at a time."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from unjoined._typing import (
    Array,
    ArrayLike,
    BoolArray,
    CellArray,
    Frame,
    IntArray,
    MatrixLike,
)
from unjoined._validation import (
    KINDS,
    LARGEST,
    NO_LABEL,
    OUTCOME,
    TARGET,
    TREATMENT,
    check_cluster,
    check_columns,
    check_known_policy,
    check_labels,
    check_length,
    check_names,
    check_numeric_columns,
    check_people,
    check_population,
    check_weight,
    did_you_mean,
    distinct,
    is_missing,
    label_codes,
    plain_name,
    population_name,
    shown,
    treated_values,
)
from unjoined.data.columns import (
    CATEGORIES,
    NUMBERS,
    ColumnProfile,
    as_floats,
    column_names,
    column_values,
    needs_encoding,
)
from unjoined.data.encode import TableEncoder
from unjoined.data.rows import Chunk, cell_codes, number_matrix
from unjoined.errors import (
    InputError,
    LabelError,
    TableError,
    UnjoinedError,
    UnjoinedWarning,
)

WORDS = (nw.String, nw.Categorical, nw.Enum)  # columns that may hold labels in words
PLAIN = (
    nw.String,
    nw.Boolean,
    nw.Int64,
    nw.Int32,
)  # columns that are told apart all at once


class NotNumbersError(TableError):
    """Some features are not numbers, or missing, so that the table has to be encoded first."""


def feature_matrix(X: MatrixLike) -> Array:
    """Return features as a float64 matrix; booleans become 0 and 1.

    A data frame that holds text, dates, codes or missing values is encoded by a `TableEncoder` of
    its own.
    """
    if column_names(X) is None:
        return number_matrix(X)
    if not needs_encoding(X):
        matrix = number_matrix(X)
        if not np.isnan(matrix.sum()) or not np.isnan(matrix).any():
            return matrix
    return TableEncoder().fit(X).encode(X).matrix


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

    def refuse(self, values: Array, what: str, kind: type[UnjoinedError]) -> None:
        """Refuse numbers, one to a row, that are missing, infinite or too large."""
        bad: BoolArray = ~(np.abs(values) <= LARGEST)
        if not bad.any():
            return
        first = int(np.argmax(bad))
        how, remedy = f"beyond {LARGEST:g}", "Change the unit of the column."
        if np.isnan(values[first]):
            how, remedy = (
                "missing",
                "Fill in or leave out such rows; none is dropped in silence.",
            )
        elif np.isinf(values[first]):
            how, remedy = (
                "infinite",
                "Replace such numbers by real ones, or leave the rows out.",
            )
        raise kind(
            f"row {self.first_row + first:,} of {self.origin} (counting from 0): {what} {how}; "
            f"{int(bad.sum()):,} of the {len(bad):,} rows read with it cannot be used. {remedy}"
        )


def population_codes(
    column: nw.Series[Any], place: Place
) -> tuple[list[str], IntArray]:
    """Return the populations in a column as sorted text, and which of them each row is of."""
    plain = column.dtype in PLAIN
    values = column.unique().to_list() if plain else column.to_list()
    try:
        given = dict.fromkeys(values)
    except TypeError:  # lists and the like
        raise TableError(
            f"column {column.name!r} of {place.origin} holds {str(column.dtype).lower()} values; "
            "names of populations must be text or numbers."
        ) from None
    known = {v: population_name(v) for v in given if not is_missing(v)}
    check_names(known, f"column {column.name!r} of {place.origin}")
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
            f"row {place.first_row + int(missing[0]):,} of {place.origin} (counting from 0): "
            f"column {column.name!r} is missing in {len(missing):,} of {len(column):,} rows. Name "
            "the population of every row."
        )
    return names, index


def chunk_of_arrays(
    parts: Mapping[str, Any],
    names: list[str] | None,
    place: Place,
    encoder: TableEncoder | None = None,
) -> Chunk:
    """Check rows that come as the arguments of ``fit``, with the features in the order of names."""
    matrix = chunk_features(parts["X"], names, place, encoder)
    n = len(matrix)
    with place.named(n):
        label, code, joint = check_labels(parts.get("y"), parts.get("treatment"), n)
        if joint is not None or parts.get("policy") is not None:
            raise LabelError(
                "some of them have both labels, or a known policy. Such rows are not streamed: "
                "read them with stream=False."
            )
        populations = check_population(parts["population"], code)
        if (nobody := code == NO_LABEL).any():
            raise LabelError(
                f"{int(nobody.sum())} of them have neither an outcome nor a treatment. People to "
                "be scored are not streamed: leave them out here, and give them as target to "
                "evaluate_uplift or diagnose."
            )
    found = distinct(populations) or [""]
    index = np.zeros(n, dtype=np.int64)
    for k, name in enumerate(found[1:], 1):
        index[populations == name] = k
    cells = cell_codes(code, index, len(found)), found
    names = _encoded_names(names or column_names(parts["X"]), encoder)
    beside = parts.get("sample_weight"), parts.get("cluster")
    return make_chunk(matrix, label, cells, beside, names, place)


def chunk_features(
    X: MatrixLike,
    names: list[str] | None,
    place: Place,
    encoder: TableEncoder | None = None,
) -> Array:
    """Return features as a matrix in C order, their columns as named if that is known."""
    found = column_names(X)
    if found is None:
        try:
            return np.ascontiguousarray(number_matrix(X))
        except InputError as error:
            raise InputError(f"{place.origin}: {error}") from error
    if names is not None and found != names:
        check_columns(names, found, table=place.origin)
        X = nw.from_native(X, eager_only=True).select(names).to_native()
    if encoder is not None:
        with place.named(len(nw.from_native(X, eager_only=True))):
            return encoder.encode(X, table=place.origin).matrix
    try:
        check_numeric_columns(X, table=place.origin, first_row=place.first_row)
    except TableError as error:
        raise NotNumbersError(str(error)) from error
    return number_matrix(X)


def _encoded_names(
    names: list[str] | None, encoder: TableEncoder | None
) -> list[str] | None:
    """Return the names of the features as a matrix has them."""
    return names if encoder is None else encoder.get_feature_names_out().tolist()


def make_chunk(
    matrix: Array,
    label: Array,
    cells: tuple[CellArray, list[Any]],
    beside: tuple[ArrayLike | None, ArrayLike | None],
    names: list[str] | None,
    place: Place,
) -> Chunk:
    """Check some rows, and say which file and row is at fault if they will not do.

    ``beside`` are weights and clusters.
    """
    n, (cell, populations) = len(matrix), cells
    # Extremes tell at once that all is well; which row is not is looked for only if it is not.
    if not -LARGEST <= matrix.min(initial=0.0) <= matrix.max(initial=0.0) <= LARGEST:
        bad: BoolArray = ~(np.abs(matrix) <= LARGEST)
        at = np.flatnonzero(bad.any(axis=0)).tolist()
        which = shown(f"column {j}" if names is None else names[j] for j in at)
        kind = NotNumbersError if np.isnan(matrix).any() and names else TableError
        worst = matrix[np.arange(n), np.argmax(bad, axis=1)]
        place.refuse(worst, f"features in {which} are", kind)
    with place.named(n):
        weight = check_weight(beside[0], n)
        cluster = check_cluster(beside[1], n)
    known = None if names is None else tuple(names)
    return Chunk(
        matrix,
        label,
        cell,
        weight,
        populations,
        place.origin,
        place.first_row,
        known,
        cluster=cluster,
    )


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the user's, and what its rows are."""

    table: Any
    kind: str
    label: str | None  # its column; None for target rows
    population: str | None  # name of the population, or None if a column tells
    treated: Any = None  # the label that means treated, None if that is plain
    joint: str | None = (
        None  # column of the treatment, if outcome rows have both labels
    )
    is_dose: bool = False  # whether treatments are amounts
    control: Any = None  # the treatment that is none, if there are several others
    arms: tuple[str, ...] = ()  # the names of them all

    @property
    def title(self) -> str:
        """What messages call the table."""
        of = f" of population {self.population!r}" if self.population else ""
        kind = self.kind if self.joint is None else "both-labels"
        return f"the {kind} table{of}"


ONLY_TREATED = (
    "If it only lists those who were treated, give everyone instead, with a column of 1 for them "
    "and 0 for the others."
)


class Columns(NamedTuple):
    """Which columns all tables have beside labels, and how features become numbers."""

    population: str | None  # column of names, None if every table is of one population
    weight: str | None
    cluster: str | None
    people: str | None  # how many a row stands for; labels may be shares of them
    policies: Mapping[
        str, Any
    ]  # known ones: a number, a column or a function of the rows
    features: tuple[str, ...] = ()
    encoder: TableEncoder | None = None  # None if all features are numbers

    def special(self, table: Table) -> list[str]:
        """Return the columns that are not features."""
        columns = [table.label, table.joint, self.weight]
        if table.kind != TARGET:
            columns += [self.population, self.cluster, self.people]
        if table.kind == OUTCOME and table.joint is None:  # which need no policy
            columns += [self.policies.get(name) for name in self._of(table)]
            columns = [c for c in columns if isinstance(c, str)]
        return [column for column in columns if column is not None]

    def _of(self, table: Table) -> Iterable[str]:
        """Return the populations that rows of a table may be of, and whose policy is known."""
        return self.policies if self.population is not None else [str(table.population)]

    def _known_policy(
        self,
        table: Table,
        frame: nw.DataFrame[Any],
        population: NDArray[Any],
        place: Place,
    ) -> Array | None:
        """Return the known probability of treatment of each row, NaN where there is none."""
        policy = np.full(len(frame), np.nan)
        for name in self._of(table):
            own = self.policies.get(name)
            if own is None or (isinstance(own, str) and own not in frame.columns):
                continue  # of a treatment table, which need not have the column
            if callable(own):
                values = np.asarray(own(frame.to_native()), dtype=np.float64)
                check_length(f"what the policy of {name!r} returns", values, len(frame))
            elif isinstance(own, str):
                values = _column(frame, own, place)
            else:
                values = np.full(len(frame), float(own))
            policy = np.where(population == name, values, policy)
        with place.named(len(frame)):
            return check_known_policy(policy, len(frame))

    def check(self, table: Table, frame: nw.DataFrame[Any], origin: str) -> None:
        """Refuse a table that lacks a column."""
        needed = [*self.special(table), *self.features]
        if missing := [name for name in needed if name not in frame.columns]:
            columns = ", ".join(map(str, frame.columns))
            hint = did_you_mean(missing[0], frame.columns)
            if hint == "." and table.kind == TREATMENT and missing[0] == table.label:
                hint = f". {ONLY_TREATED}"
            raise TableError(
                f"{origin} has no column {missing[0]!r}; its columns are {columns}{hint}"
            )

    def chunk(self, table: Table, frame: Frame, place: Place) -> Chunk:
        """Check some rows of a table."""
        native = nw.from_native(frame, eager_only=True)
        names = list(self.features)
        self.check(table, native, place.origin)
        matrix = chunk_features(
            native.select(names).to_native(), names, place, self.encoder
        )
        return self.labelled(
            table, native, matrix, _encoded_names(names, self.encoder), place
        )

    def labelled(
        self,
        table: Table,
        frame: nw.DataFrame[Any],
        matrix: Array,
        names: list[str] | None,
        place: Place,
    ) -> Chunk:
        """Check the labels, populations and weights of some rows, and put them beside a matrix."""
        label = np.full(len(frame), np.nan)  # of people to be scored
        if table.label is not None:
            label = _labels(frame, table, place)
        if self.population is None or table.kind == TARGET:
            known = [str(table.population)]
            index = np.zeros(len(frame), dtype=np.int64)
        else:
            known, index = population_codes(frame.get_column(self.population), place)
        cells = (
            cell_codes(KINDS.index(table.kind), index, max(len(known), 1)),
            known or [""],
        )
        weight = None if self.weight is None else _column(frame, self.weight, place)
        cluster = None
        if self.cluster is not None and table.kind != TARGET:
            cluster = frame.get_column(self.cluster).to_numpy()
        chunk = make_chunk(matrix, label, cells, (weight, cluster), names, place)
        if table.kind == TARGET:
            return chunk
        joint = policy = people = None
        if table.joint is not None:
            other = replace(table, kind=TREATMENT, label=table.joint)
            joint = _labels(frame, other, place)
        if self.policies:
            policy = self._known_policy(table, frame, chunk.population, place)
        if self.people is not None:
            with place.named(len(frame)):
                people = check_people(_column(frame, self.people, place), len(frame))
        return replace(chunk, count=people, joint=joint, policy=policy)


def _labels(frame: nw.DataFrame[Any], table: Table, place: Place) -> Array:
    """Return outcomes as numbers and treatments as 0 and 1, whichever way they are written."""
    column = frame.get_column(str(table.label))
    if table.arms and table.kind == TREATMENT:
        return _places(column, table.arms, place)
    treated = table.treated if table.kind == TREATMENT else None
    if treated is None and column.dtype not in WORDS:
        return _column(frame, column.name, place)
    is_amount = table.kind == OUTCOME or table.is_dose
    if is_amount and (amounts := _amounts(column, place)) is not None:
        return amounts
    values = [value for value in column.unique().to_list() if not is_missing(value)]
    try:
        codes = label_codes(values, table.kind, treated)
    except LabelError as error:
        where = _first_odd(column, values, table.kind, place)
        raise TableError(
            f"column {column.name!r} of {place.origin}{where}: {error}"
        ) from None
    counts = Counter(codes.values())
    if treated is not None and counts[1.0] and counts[0.0] > 1:
        warnings.warn(
            f"column {column.name!r} of {place.origin} holds more than two values; all but "
            f"{shown(treated_values(treated))} count as untreated.",
            UnjoinedWarning,
            stacklevel=2,
        )
    numbers = np.full(len(column), np.nan)
    for value, code in codes.items():
        numbers[(column == value).fill_null(False).to_numpy()] = code
    place.refuse(numbers, f"column {column.name!r} is", LabelError)
    return numbers


def _places(column: nw.Series[Any], arms: tuple[str, ...], place: Place) -> Array:
    """Return treatments as their places among the names of all."""
    numbers = np.full(len(column), np.nan)
    for value in column.unique().to_list():
        if not is_missing(value):
            at = (column == value).fill_null(False).to_numpy()
            numbers[at] = arms.index(population_name(value))
    place.refuse(numbers, f"column {column.name!r} is", LabelError)
    return numbers


def _amounts(column: nw.Series[Any], place: Place) -> Array | None:
    """Return outcomes in text as numbers, whatever their marks separate; None if some are words."""
    values = column_values(column, place.origin)
    holds, form, doubt = ColumnProfile.of_values(values).settled()
    if doubt and holds == CATEGORIES:
        raise LabelError(f"column {column.name!r} of {place.origin} {doubt}.")
    numbers = values.read(holds, form) if holds == NUMBERS else np.empty(0)
    if holds != NUMBERS or np.isnan(numbers[values.values >= 0]).any():
        return None
    place.refuse(numbers, f"column {column.name!r} is", LabelError)
    return numbers


def _first_odd(
    column: nw.Series[Any], values: list[Any], kind: str, place: Place
) -> str:
    """Say in how many rows a label is none, if most labels are such."""

    def is_odd(value: Any) -> bool:
        try:
            return not label_codes([value], kind)
        except LabelError:
            return True

    odd = [value for value in values if is_odd(value)]
    if len(odd) == len(values):
        return ""
    at = np.flatnonzero(column.is_in(odd).fill_null(False).to_numpy())
    first = place.first_row + int(at[0])
    return f" in {len(at):,} of {len(column):,} rows (first at row {first:,}, counting from 0)"


def treatment_columns(
    pieces: Iterable[tuple[Table, Frame]],
) -> Iterator[tuple[Table, nw.Series[Any]]]:
    """Yield the tables that have treatments with the different values of these."""
    for table, frame in pieces:
        own = table
        if table.joint is not None:
            own = replace(table, kind=TREATMENT, label=table.joint)
        if own.kind == TREATMENT:
            column = nw.from_native(frame, eager_only=True).get_column(str(own.label))
            yield own, column.unique()


def check_all_treated(pieces: Iterable[tuple[Table, Frame]]) -> None:
    """Refuse a value that means treated and is in no table, or tables that write otherwise."""
    found: dict[
        str, dict[Any, Any]
    ] = {}  # by table: values as they are compared, and as they are
    for table, values in treatment_columns(pieces):
        there = {
            plain_name(v): v
            for v in sorted(values.to_list(), key=str)
            if not is_missing(v)
        }
        found.setdefault(table.title, {}).update(there)
        label = table.label
        wanted = treated_values(table.treated)
    known = {name: value for of in found.values() for name, value in of.items()}
    for value in wanted:
        if plain_name(value) not in known:
            raise LabelError(
                f"treated={value!r} is in no treatment table: column {label!r} holds "
                f"{shown(known.values())}{did_you_mean(value, known.values())}"
            )
    names = set(map(plain_name, wanted))
    if names >= set(known):
        held = f"treated names all that column {label!r} holds, so that nobody is untreated."
        raise LabelError(f"{held} Name only what means treated.")
    usual = {name for of in found.values() if names & set(of) for name in of}
    for title, of in found.items():
        if odd := [value for name, value in of.items() if name not in usual]:
            raise LabelError(
                f"column {label!r} of {title} holds {shown(odd)}, where other tables hold "
                f"{shown(v for n, v in known.items() if n in usual)}. Write treatments alike in "
                "all tables."
            )


def _column(frame: nw.DataFrame[Any], name: str, place: Place) -> Array:
    """Return numbers, of labels or weights; missing ones are refused with their row."""
    check_numeric_columns(
        frame.select(name).to_native(),
        table=place.origin,
        what="labels and weights",
        first_row=place.first_row,
    )
    numbers: Array = np.asarray(as_floats(frame.get_column(name)), dtype=np.float64)
    place.refuse(numbers, f"column {name!r} is", LabelError)
    return numbers
