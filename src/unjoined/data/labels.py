"""The container every estimator is fitted from, and folds that leave no cell of it empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from unjoined._support import in_digits
from unjoined._typing import Array, ArrayLike, Frame, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    check_cells,
    check_finite_features,
    check_kind,
    check_labels,
    check_numeric_columns,
    check_outcome,
    check_population,
    check_treatment,
    check_weight,
    is_kind,
    shown,
)
from unjoined.data.chunks import NotNumbersError, Place, Table, check_all_treated
from unjoined.data.columns import (
    column_names,
    column_values,
    has_numbers_only,
    stack_frames,
    take_rows,
)
from unjoined.data.looks import LeftOut
from unjoined.data.rows import Chunk, number_matrix, rebuild_frame
from unjoined.data.sources import TableSource
from unjoined.data.survey import check_frame
from unjoined.errors import InputError, LabelError, TableError

NO_MATRIX = (
    "SeparateLabels is not a matrix. Pass data.X for features alone; write model.fit(data) with an "
    "estimator of unjoined, and pipeline.fit(**data) with scikit-learn's parts, after "
    "sklearn.set_config(enable_metadata_routing=True)."
)


@dataclass(frozen=True, slots=True)
class CellSummary:
    """What one of the tables holds."""

    kind: str
    population: str
    n_rows: int
    label_mean: float  # outcome units, or share treated; NaN for target rows


@dataclass(frozen=True, eq=False)
class SeparateLabels(Mapping[str, Any]):
    """Rows that carry an outcome or a treatment, never both, from two populations or more.

    A checked, frozen mapping of exactly ``X``, ``y``, ``kind`` and ``population`` (and
    ``sample_weight`` when given), so that ``model.fit(**data)`` works with every estimator.

    Parameters
    ----------
    X : array or data frame of shape (n_rows, n_features)
        Features in any units; either is copied. An array holds finite numbers. A data frame
        (pandas, polars, pyarrow) keeps its columns: numbers, booleans, text, categories, dates and
        times, with missing values. Estimators encode them (`TableEncoder`).
    y : array-like of shape (n_rows,)
        Whichever label the row has: the outcome in the user's units, the treatment coded 0/1,
        False/True, -1/+1 or in words (yes/no, y/n, t/f, treated/control), or NaN for rows of kind
        "target".
    kind : array-like of shape (n_rows,)
        ``"outcome"``, ``"treatment"`` or ``"target"`` (no label: rows that describe the people
        to be scored).
    population : array-like of shape (n_rows,)
        Which of the populations, each treated by its own policy, the row comes from. Most
        estimators take two; `Uplift` takes any number. Numbers or text; dates
        become text. Ignored for target rows.
    sample_weight : array-like of shape (n_rows,), optional
        Non-negative row weights.

    Raises
    ------
    LabelError
        Labels, kinds, populations or weights are missing or malformed.
    TableError, InputError
        Features are infinite or of a type that cannot be used, or lengths differ.

    See Also
    --------
    SeparateLabels.from_tables : from four data frames.
    SeparateLabels.from_frames : from two data frames with a population column.

    Notes
    -----
    Checking costs one pass over the rows and one copy of them.

    Examples
    --------
    >>> data = SeparateLabels(
    ...     X=[[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]],
    ...     y=[3.0, 1.0, 2.0, 1, 0, 0],
    ...     kind=["outcome"] * 3 + ["treatment"] * 3,
    ...     population=["north", "south", "south", "north", "north", "south"],
    ... )
    >>> list(data)
    ['X', 'y', 'kind', 'population']
    >>> data
    SeparateLabels of 6 rows, 1 feature
      outcome   north: 1 row, mean 3
      outcome   south: 2 rows, mean 1.5
      treatment north: 2 rows, 50.0% treated
      treatment south: 1 row, 0.0% treated
    """

    X: MatrixLike
    y: ArrayLike
    kind: ArrayLike
    population: ArrayLike
    sample_weight: ArrayLike | None = None
    left_out: ClassVar[tuple[LeftOut, ...]] = ()  # columns of tables that are not features

    def __post_init__(self) -> None:
        """Check every field and freeze the arrays."""
        own = own_features(self.X)
        labels = (self.y, self.kind, self.population, self.sample_weight)
        n = len(own) if isinstance(own, np.ndarray) else len(nw.from_native(own, eager_only=True))
        self._freeze(own, n, *labels)

    def _freeze(self, X: MatrixLike, n: int, *labels: Any) -> None:
        """Check labels, kinds, populations and weights, and keep all of it beside checked ``X``."""
        y, kind, population, sample_weight = labels
        kind = check_kind(kind, n)
        population = check_population(population, kind)
        y = check_labels(y, kind)
        weight = check_weight(sample_weight, n)
        check_cells(kind, population, weight, several=True)
        check_outcome(y[is_kind(kind, OUTCOME)])
        check_treatment(y[is_kind(kind, TREATMENT)])
        columns = {"y": y, "kind": kind, "population": population}
        if sample_weight is not None:
            columns["sample_weight"] = weight
        frozen = {name: np.array(column) for name, column in columns.items()}
        if isinstance(X, np.ndarray):
            frozen["X"] = X
        for array in frozen.values():
            array.setflags(write=False)
        for name, value in ({"X": X, "sample_weight": None} | frozen).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_tables(
        cls,
        outcomes: Mapping[Any, Frame],
        treatments: Mapping[Any, Frame],
        *,
        outcome: str,
        treatment: str,
        treated: Any = None,
        target: Frame | None = None,
        sample_weight: str | None = None,
        features: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        categories: Iterable[str] = (),
    ) -> SeparateLabels:
        """Combine data frames, one per kind and population.

        Parameters
        ----------
        outcomes, treatments : mapping of population name to data frame
            Two tables each, or more, under the same names. Columns are matched by name, so their
            order may differ.
        outcome, treatment : str
            The label's column in the outcome and in the treatment tables.
        treated : value, optional
            The treatment that means treated; all others count as untreated. Not needed for 0/1,
            -1/+1, true/false, yes/no, y/n, t/f and treated/control, in any case.
        target : data frame, optional
            Rows without labels, from the people to be scored.
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

        Returns
        -------
        SeparateLabels
            With ``X`` in the frame type of the first table and populations as strings.

        Examples
        --------
        >>> import pandas as pd
        >>> data = SeparateLabels.from_tables(
        ...     outcomes={
        ...         "A": pd.DataFrame({"age": [31, 54], "visit": [1, 0]}),
        ...         "B": pd.DataFrame({"visit": [0, 1], "age": [45, 22]}),
        ...     },
        ...     treatments={
        ...         "A": pd.DataFrame({"age": [28, 61], "mailed": [1, 1]}),
        ...         "B": pd.DataFrame({"age": [39, 50], "mailed": [0, 1]}),
        ...     },
        ...     outcome="visit",
        ...     treatment="mailed",
        ... )
        >>> list(data.X.columns), data.y.tolist()
        (['age'], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
        """
        source = TableSource.from_tables(
            outcomes,
            treatments,
            outcome=outcome,
            treatment=treatment,
            treated=treated,
            sample_weight=sample_weight,
            features=features,
            ignore=ignore,
            categories=categories,
        )
        return cls._of_tables(source, target)

    @classmethod
    def from_frames(
        cls,
        outcomes: Frame,
        treatments: Frame,
        *,
        outcome: str,
        treatment: str,
        population: str,
        treated: Any = None,
        target: Frame | None = None,
        sample_weight: str | None = None,
        features: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        categories: Iterable[str] = (),
    ) -> SeparateLabels:
        """Combine two data frames that name each row's population in a column.

        Parameters
        ----------
        outcomes, treatments : data frame
            One table of outcome rows and one of treatment rows, each with rows of all
            populations.
        outcome, treatment, population : str
            Columns with the outcome, the treatment and the population's name.
        treated : value, optional
            The treatment that means treated, as in `from_tables`.
        target : data frame, optional
            Rows without labels (and without a population), from the people to be scored.
        sample_weight : str, optional
            Column of row weights, in every table.
        features, ignore, categories : iterable of str, optional
            Columns to use, to leave out and to take for codes, as in `from_tables`.

        Returns
        -------
        SeparateLabels

        Examples
        --------
        >>> import polars as pl
        >>> outcomes = pl.DataFrame({"age": [31, 54], "visit": [1, 0], "region": ["N", "S"]})
        >>> treatments = pl.DataFrame({"age": [28, 61], "mailed": [1, 0], "region": ["N", "S"]})
        >>> data = SeparateLabels.from_frames(
        ...     outcomes, treatments, outcome="visit", treatment="mailed", population="region"
        ... )
        >>> data.population.tolist()
        ['N', 'S', 'N', 'S']
        """
        source = TableSource.from_frames(
            outcomes,
            treatments,
            outcome=outcome,
            treatment=treatment,
            population=population,
            treated=treated,
            sample_weight=sample_weight,
            features=features,
            ignore=ignore,
            categories=categories,
        )
        return cls._of_tables(source, target)

    @classmethod
    def _of_tables(cls, source: TableSource, target: Frame | None) -> SeparateLabels:
        """Join data frames, checked one by one, population after population."""
        tables = list(source.tables)
        if target is not None:
            tables.append(Table(target, TARGET, None, ""))
        if not tables:
            raise TableError(
                "no table was given: two outcome tables and two treatment tables are needed."
            )
        for table in tables:
            check_frame(table)
        left_out = source.left_out
        frames = [nw.from_native(table.table, eager_only=True) for table in tables]
        try:
            X, chunks = stack_numbers(source, tables, frames)
            own = rebuild_frame(X, source.feature_names, like=tables[0].table)
        except NotNumbersError:
            own, chunks = stack_columns(source, tables, frames)
        parts = [(chunk.label, chunk.kind, chunk.population, chunk.weight) for chunk in chunks]
        y, kind, population, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        if any(table.treated is not None for table in tables):
            check_all_treated((table, table.table) for table in tables)
        data = object.__new__(cls)
        weights = None if source.sample_weight is None else weight
        data._freeze(own, len(y), y, kind, population, weights)
        object.__setattr__(data, "left_out", left_out)
        return data

    def __getitem__(self, key: str) -> Any:
        """Return one of the arguments of ``fit``."""
        if not isinstance(key, str):
            raise InputError(NO_MATRIX)  # scikit-learn's parts ask for the first row
        if key not in set(self):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arguments of ``fit``."""
        yield from ("X", "y", "kind", "population")
        if self.sample_weight is not None:
            yield "sample_weight"

    def __len__(self) -> int:
        """Return the number of arguments, as a mapping does; rows are counted by `n_rows`."""
        return sum(1 for _ in self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Refuse to pass for a matrix, which numpy would make of the names of the columns."""
        raise InputError(NO_MATRIX)

    # Two sets of rows are the same only if they are one object: comparing arrays entry by
    # entry inside ``==`` would surprise more than help.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def n_rows(self) -> int:
        """Number of rows of all kinds."""
        return len(np.asarray(self.y))

    @property
    def feature_names(self) -> list[str] | None:
        """Column names of ``X``, or None if it came as an array."""
        return column_names(self.X)

    @property
    def populations(self) -> list[Any]:
        """The populations' names, sorted: the order estimators use."""
        weight = check_weight(self.sample_weight, self.n_rows)
        names, _ = check_cells(
            np.asarray(self.kind), np.asarray(self.population), weight, several=True
        )
        return names

    def rows(self, kind: str, population: Any = None) -> NDArray[np.int64]:
        """Return the positions of the rows of one kind, and of one population if named."""
        chosen = np.asarray(self.kind) == kind
        if population is not None:
            chosen &= self._of_population(population)
        return np.flatnonzero(chosen)

    def _of_population(self, population: Any) -> NDArray[np.bool_]:
        """Return which rows are of a population, named as when the data were made."""
        known = np.asarray(self.population)
        name = check_population([population], np.array([OUTCOME]))[0]
        found = known == (str(name) if known.dtype.kind == "U" else name)
        if not np.any(found):
            there = shown(self.populations)
            raise LabelError(f"there is no population {population!r}; there are {there}.")
        return np.asarray(found)

    def take(self, rows: ArrayLike) -> SeparateLabels:
        """Return the rows at the given positions (or where a mask is true), checked anew."""
        index = np.asarray(rows)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        columns = (self.y, self.kind, self.population, self.sample_weight)
        data = object.__new__(SeparateLabels)
        data._freeze(
            take_rows(self.X, index),
            len(index),
            *(None if column is None else np.asarray(column)[index] for column in columns),
        )
        object.__setattr__(data, "left_out", self.left_out)
        return data

    def summary(self) -> list[CellSummary]:
        """Return the size and the mean label of every table, outcomes first.

        Outcome means are in the user's units; treatment means are shares treated, 0 to 1,
        whatever the coding. Means are weighted by ``sample_weight``.
        """
        weight = check_weight(self.sample_weight, self.n_rows)
        label: Array = np.array(self.y)
        treated = self.rows(TREATMENT)
        label[treated] = (check_treatment(label[treated]) + 1.0) / 2.0
        cells = []
        for kind in (OUTCOME, TREATMENT):
            for name in self.populations:
                at = self.rows(kind, name)
                mean = float(np.average(label[at], weights=weight[at]))
                cells.append(CellSummary(kind, str(name), len(at), mean))
        if n_target := len(self.rows(TARGET)):
            cells.append(CellSummary(TARGET, "", n_target, float("nan")))
        return cells

    def _lines(self) -> tuple[str, list[tuple[str, str, str, str]]]:
        """Return a title, and kind, population, rows and mean label of every table in words."""
        names = self.feature_names
        d = np.shape(self.X)[1] if names is None else len(names)
        lines = []
        for cell in self.summary():
            label = {
                OUTCOME: f"mean {in_digits(cell.label_mean)}",
                TREATMENT: f"{cell.label_mean:.1%} treated",
                TARGET: "no label",
            }[cell.kind]
            rows = f"{cell.n_rows:,} row{'s' * (cell.n_rows != 1)}"
            lines.append((cell.kind, cell.population, rows, label))
        return f"SeparateLabels of {self.n_rows:,} rows, {d} feature{'s' * (d != 1)}", lines

    def __repr__(self) -> str:
        """Show the size and mean label of every table."""
        title, lines = self._lines()
        return "\n".join([title, *(f"  {k:9} {p}: {rows}, {label}" for k, p, rows, label in lines)])

    def _repr_html_(self) -> str:
        """Show the same, and which columns are features and which are not, in a notebook."""
        title, lines = self._lines()
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        names = ", ".join(map(str, self.feature_names or ()))
        below = [f"Features: {names}"] if names else []
        below += [f"Left out: {column}" for column in self.left_out]
        text = "".join(f"<div>{escape(line)}</div>" for line in below)
        return f"<div><b>{escape(title)}</b></div><table><tbody>{body}</tbody></table>{text}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild through the checks, so that a copy is as frozen as the original."""
        fields = (self.X, self.y, self.kind, self.population, self.sample_weight)
        return (SeparateLabels, fields)


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
