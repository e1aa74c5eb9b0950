"""The container of all rows: one table with holes, in memory or streamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from unjoined._threads import CHUNK_ROWS
from unjoined._typing import Array, ArrayLike, Frame, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    arm_names,
    check_count,
    check_finite_features,
    check_names,
    check_numeric_columns,
    check_population,
    check_share,
    did_you_mean,
    population_name,
    shown,
)
from unjoined.data.chunks import (
    NotNumbersError,
    Place,
    Table,
    check_all_treated,
    treatment_columns,
)
from unjoined.data.columns import (
    as_categories,
    column_names,
    column_values,
    has_numbers_only,
    stack_frames,
    take_rows,
)
from unjoined.data.dask import DaskSource, in_memory
from unjoined.data.looks import LeftOut
from unjoined.data.queries import SqlQuery
from unjoined.data.rows import (
    BESIDE,
    OF_ALL,
    Chunk,
    LabelledRows,
    Rows,
    check_rows,
    number_matrix,
    rebuild_frame,
    separate_labels,
    spread_shares,
)
from unjoined.data.sources import ArraySource, ChunkSource, IterableSource, TableSource
from unjoined.data.survey import check_categories, check_frame, check_named_columns
from unjoined.data.tables import collected, fits_in_memory, is_dask, is_lazy, read_table
from unjoined.errors import InputError, LabelError, TableError
from unjoined.words import in_digits

NO_MATRIX = (
    "SeparateLabels is not a matrix. Pass data.X for features alone; write model.fit(data) with an "
    "estimator of unjoined, and pipeline.fit(**data) with scikit-learn's parts, after "
    "sklearn.set_config(enable_metadata_routing=True)."
)
JOINT, POLICY = "both", "policy"  # what outcome rows have beside the outcome
NEEDED = ("X", "y", "treatment", "population")
COLUMNS = (*NEEDED, *BESIDE, *OF_ALL)
NOT_STREAMED = (
    "{} was given with rows that are streamed. Read the tables with stream=False."
)
ONLY_IN_MEMORY = ("count", "policy", *OF_ALL)


@dataclass(frozen=True, slots=True)
class CellSummary:
    """What one of the tables holds."""

    kind: str
    population: str
    n_rows: int  # people, if rows stand for several
    # Outcome units, or the share treated, or the mean dose; NaN for target rows.
    label_mean: float
    is_dose: bool = False

    @property
    def words(self) -> str:
        """What the labels average, in words."""
        mean = self.label_mean
        if self.kind in (OUTCOME, TARGET):
            return "no label" if self.kind == TARGET else f"mean {in_digits(mean)}"
        said = f"mean dose {in_digits(mean)}" if self.is_dose else f"{mean:.1%} treated"
        return f"{said} by policy" if self.kind == POLICY else said

    @property
    def is_all_treated(self) -> bool:
        """Whether all rows of a table of treatments were treated."""
        return not self.is_dose and self.label_mean == 1.0


class SeparateLabels(Mapping[str, Any]):
    """Rows that carry an outcome or a treatment, never both, from two populations or more.

    One table with holes: ``y`` is NaN where a row has no outcome, ``treatment`` where it has no
    treatment, and both where it is of a person to be scored. It is checked once and frozen. In
    memory it is a mapping of ``X``, ``y``, ``treatment``, ``population`` (and ``sample_weight``,
    ``cluster`` and ``count`` when given), so that ``model.fit(**data)`` is ``model.fit(data)``.
    Streamed, its rows are read from where they are, as often as an estimator asks.

    Parameters
    ----------
    X : array or data frame of shape (n_rows, n_features)
        Features in any units; either is copied. An array holds finite numbers. A data frame
        (pandas, polars, pyarrow) keeps its columns: numbers, booleans, text, categories, dates and
        times, with missing values. Estimators encode them (`TableEncoder`). A Dask array is
        streamed.
    y : array-like of shape (n_rows,)
        The outcome in the user's units, NaN where a row has none.
    treatment : array-like of shape (n_rows,)
        The treatment coded 0/1, False/True, -1/+1 or in words (yes/no, y/n, t/f,
        treated/control), NaN or None where a row has none.
    population : array-like of shape (n_rows,)
        Which of the populations, each treated by its own policy, the row comes from. Most
        estimators take two; `Uplift` takes any number. Numbers or text; dates
        become text. NaN or None for people to be scored, who have no label either.
    sample_weight : array-like of shape (n_rows,), optional
        Non-negative row weights.
    cluster : array-like of shape (n_rows,), optional
        The household, store or customer that a row belongs to, if several rows share one: rows of
        a cluster depend on each other, in whatever tables they are. Numbers or text.
    count : array-like of shape (n_rows,), optional
        How many people a row stands for, as of a table that was grouped: whole numbers. All is as
        if their rows were written out. A row may hold the share of its people who were treated, or
        who have the larger of two outcomes, 0 and 1: it becomes two rows.
    policy : array-like of shape (n_rows,), optional
        The probability with which a row's person was treated, where it is known, NaN elsewhere;
        of doses the mean dose.
    dose : bool, optional
        Whether treatments are amounts, such as a number of mails, a discount or minutes.
    control : value, optional
        The treatment that is none, where there are several others; treatments are words then.
    stream : bool or int, default=False
        Whether to hand the rows out in pieces, and of how many rows, rather than to copy them.

    Raises
    ------
    LabelError
        Labels, populations or weights are missing or malformed.
    TableError, InputError
        Features are infinite or of a type that cannot be used, or lengths differ.

    See Also
    --------
    SeparateLabels.from_tables : from data frames, files, folders, queries or Dask frames.
    SeparateLabels.from_chunks : from a function that makes pieces.

    Notes
    -----
    Checking costs one pass over the rows and one copy of them. Streamed rows are checked as they
    are read.

    Examples
    --------
    >>> nan = float("nan")
    >>> data = SeparateLabels(
    ...     X=[[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]],
    ...     y=[3.0, 1.0, 2.0, nan, nan, nan],
    ...     treatment=[nan, nan, nan, 1, 0, 0],
    ...     population=["north", "south", "south", "north", "north", "south"],
    ... )
    >>> list(data)
    ['X', 'y', 'treatment', 'population']
    >>> data
    SeparateLabels of 6 rows, 1 feature
      outcome   north: 1 row, mean 3
      outcome   south: 2 rows, mean 1.5
      treatment north: 2 rows, 50.0% treated
      treatment south: 1 row, 0.0% treated
    """

    X: MatrixLike
    y: Array
    treatment: Array
    population: NDArray[Any]
    sample_weight: Array | None
    cluster: NDArray[Any] | None
    count: Array | None
    policy: Array | None
    dose: bool | None
    control: str | None
    source: ChunkSource | DaskSource | None  # where streamed rows come from
    checked: Rows  # the same rows in memory, without features

    def __init__(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        treatment: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        count: ArrayLike | None = None,
        policy: ArrayLike | None = None,
        dose: bool | None = None,
        control: Any = None,
        *,
        stream: bool | int = False,
    ) -> None:
        beside = (sample_weight, cluster, count, policy, dose or None, control)
        columns = (X, y, treatment, population, *beside)
        given = dict(zip(COLUMNS, columns, strict=True))
        if stream or is_dask(X):
            _refuse_streaming(**{name: given[name] for name in ONLY_IN_MEMORY})
        if is_dask(X):
            self._set(source=DaskSource.of_arrays(given))
        elif stream:
            self._set(source=ArraySource(given, _chunk_rows(stream)))
        else:
            own = own_features(X)
            n = len(own) if isinstance(own, np.ndarray) else len(nw.from_native(own))
            if count is not None:
                at, given = spread_shares(given, n)
                own, n = take_rows(own, at), len(at)
            rows, names = check_rows(given, n)
            self._freeze(own, rows, names, weighted=sample_weight is not None)

    @classmethod
    def _of(cls, **attributes: Any) -> SeparateLabels:
        data = object.__new__(cls)
        data._set(**attributes)
        return data

    def _set(self, **attributes: Any) -> None:
        self.__dict__.update({"source": None, "left_out": (), **attributes})

    def _freeze(
        self, X: MatrixLike, rows: Rows, population: NDArray[Any], *, weighted: bool
    ) -> None:
        """Keep checked features and rows, and show what the rows hold as columns."""
        m = len(rows.names)
        treatment = np.where((rows.cell >= m) & (rows.cell < 2 * m), rows.label, np.nan)
        if rows.joint is not None:
            treatment = np.where(rows.is_outcome, rows.joint, treatment)
        if rows.arms:
            treatment = arm_words(treatment, rows.arms)
        columns = {
            "y": np.where(rows.is_outcome, rows.label, np.nan),
            "treatment": treatment,
            "population": np.array(population),
            "sample_weight": np.array(rows.weight) if weighted else None,
            "cluster": rows.cluster,
            "count": rows.count,
            "policy": rows.policy,
            "dose": True if rows.dose is not None else None,
            "control": rows.arms[0] if rows.arms else None,
        }
        for column in (X, *columns.values()):
            if isinstance(column, np.ndarray):
                column.setflags(write=False)
        self._set(X=X, checked=rows, **columns)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse changes: what was checked stays as it is."""
        raise AttributeError(
            f"SeparateLabels is frozen, so {name} cannot be set. Make another."
        )

    def __getattr__(self, name: str) -> Any:
        """Say that streamed rows are not in memory."""
        if name in (*COLUMNS, "checked") and self.__dict__.get("source") is not None:
            what = "they are" if name == "checked" else f"{name} is"
            raise InputError(
                f"these rows are streamed, so that {what} not in memory. Read tables with "
                "SeparateLabels.from_tables(..., stream=False), and compute Dask arrays first."
            )
        raise AttributeError(f"SeparateLabels has no attribute {name!r}")

    @classmethod
    def from_tables(
        cls,
        outcomes: Any = None,
        treatments: Any = None,
        *,
        outcome: str,
        treatment: str | None = None,
        population: str | None = None,
        treated: Any = None,
        target: Any = None,
        sample_weight: str | None = None,
        cluster: str | None = None,
        count: str | None = None,
        policies: Mapping[str, Any] | None = None,
        both: Any = None,
        dose: bool = False,
        control: Any = None,
        features: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        categories: Iterable[str] = (),
        text: Iterable[str] = (),
        stream: bool | int | None = None,
    ) -> SeparateLabels:
        """Combine tables: one per kind and population, or two that name each row's population.

        A table is a data frame (pandas, polars, pyarrow), a file, a folder or list of files, a
        `SqlQuery`, a Dask DataFrame, or a lazy frame of an engine: a DuckDB relation, a polars
        LazyFrame, a Spark DataFrame or an Ibis table, which must give its rows in the same order
        each time.

        Parameters
        ----------
        outcomes, treatments : mapping of population name to table, or table
            Two tables each, or more, under the same names; or with ``population`` one table each.
            Columns are matched by name, so their order may differ. Streamed, one party alone may
            give some of the tables, and an empty mapping or None for the rest. Populations in
            ``policies`` or ``both`` need no others.
        outcome, treatment : str
            The label's column in the outcome and in the treatment tables. Where all policies are
            known there is no treatment.
        population : str, optional
            Column with the population's name, if there is one table of each kind.
        treated : value, optional
            The treatment that means treated; all others count as untreated. Not needed for 0/1,
            -1/+1, true/false, yes/no, y/n, t/f and treated/control, in any case.
        target : table, optional
            Rows without labels, from the people to be scored; in memory only.
        sample_weight : str, optional
            Column of row weights, in every table.
        cluster : str, optional
            Column with the household, store or customer that a row belongs to, in every table.
            Rows of a cluster depend on each other, also across tables.
        count : str, optional
            Column with the number of people that a row stands for, in every table; labels may then
            be shares of them. Streamed rows are written out.
        policies : mapping of population name to number, str or callable, optional
            Known probabilities of treatment, from 0 to 1: a number, a column of the population's
            outcome table, or a function that gets the table's rows as a data frame and returns one
            for each. Such a population needs no treatment table; if it has one, `diagnose` tests
            what is claimed. In memory only.
        both : mapping of population name to table, or table, optional
            Rows with both labels, such as a panel, beside the other tables or in place of them.
            In memory only.
        dose : bool, optional
            Whether treatments are amounts, such as a number of mails, a discount or minutes: uplift
            is what one unit more does. In memory only.
        control : value, optional
            The treatment that is none, where there are several others: each of them is compared
            with it, by `ArmUplift`. In memory only.
        features : iterable of str, optional
            Columns to use as features, whatever they hold. By default all columns that all tables
            have, but for labels, weights, clusters, populations and columns that are not features,
            such as ids and constants: ``left_out`` lists these with the reason.
        ignore : iterable of str, optional
            Columns to leave out.
        categories : iterable of str, optional
            Columns that hold codes, such as numbers of stores, rather than amounts.
        text : iterable of str, optional
            Columns of text files to leave as they are written.
        stream : bool or int, optional
            Whether to leave rows where they are and read them in pieces, whenever they are
            needed, and of how many rows (65,536 at most by default). By default Dask frames,
            folders, lists of files, and files and queries that do not fit in memory are.

        Returns
        -------
        SeparateLabels
            In memory, with ``X`` in the frame type of the first table and populations as strings.

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
        (['age'], [1.0, 0.0, 0.0, 1.0, nan, nan, nan, nan])
        """
        tables = _named_tables(
            (OUTCOME, outcomes, outcome),
            (TREATMENT, treatments, treatment),
            population,
            treated,
        )
        if both is not None:
            panel = _named_tables((OUTCOME, both, outcome), None, population, treated)
            tables += [replace(table, joint=treatment) for table in panel]
        tables = [replace(table, is_dose=dose, control=control) for table in tables]
        known = _known_policies(policies, tables, population)
        labels = {
            "outcome": outcome,
            "sample_weight": sample_weight,
            "cluster": cluster,
            "count": count,
        }
        if (
            treatment is not None
            or both is not None
            or any(table.kind == TREATMENT for table in tables)
        ):
            labels["treatment"] = treatment
        if population is not None:
            labels["population"] = population
        for name, policy in known.items():
            if isinstance(policy, str):
                labels[f"policy of {name}"] = policy
        chosen, left = check_named_columns(labels, features, ignore)
        codes = check_categories(categories, labels, chosen)
        source = TableSource(
            tuple(tables),
            population,
            sample_weight,
            cluster,
            count,
            known,
            chosen,
            left,
            _chunk_rows(stream),
            categories=codes,
            text=tuple(text),
        )
        dask = stream is not False and any(is_dask(table.table) for table in tables)
        if dask or (stream is None and _is_large(tables)) or stream:
            given = {"dose": dose or None, "control": control, "policies": policies}
            _refuse_streaming(count=count if dask else None, both=both, **given)
            if target is not None:
                raise InputError(
                    "target was given with tables that are streamed. Give the people to be scored "
                    "to evaluate_uplift and diagnose instead, or read all with stream=False."
                )
            return cls._of(source=DaskSource.of_tables(source) if dask else source)
        return cls._of_tables(source, target)

    @classmethod
    def from_chunks(
        cls, factory: Callable[[], Iterable[Mapping[str, Any]]]
    ) -> SeparateLabels:
        """Stream the chunks that a function makes, from the beginning whenever it is called.

        Parameters
        ----------
        factory : callable
            Called without arguments, returns an iterable of chunks: mappings with ``X``,
            ``population``, ``y`` or ``treatment`` or both and, if wanted, ``sample_weight`` and
            ``cluster``. A generator function will do; a generator will not, as it can be gone
            through once only. Every call must give the rows of each table in the same order.

        Examples
        --------
        >>> from unjoined.data import paper_problem
        >>> problem = paper_problem()
        >>> def months():
        ...     for seed in range(3):
        ...         yield problem.draw(100, random_state=seed)
        >>> SeparateLabels.from_chunks(months)
        SeparateLabels, streamed from chunks
        """
        if not callable(factory):
            raise InputError(
                "chunks are gone through more than once, so from_chunks needs a function that "
                f"starts anew with each call, got {type(factory).__name__}. Pass the generator "
                "function itself, or lambda: iter(...)."
            )
        return cls._of(source=IterableSource(factory))

    @classmethod
    def _of_tables(cls, source: TableSource, target: Any) -> SeparateLabels:
        """Join data frames, checked one by one, population after population."""
        tables = list(source.tables)
        if target is not None:
            tables.append(Table(target, TARGET, None, ""))
            _check_table(tables[-1])
        if not tables:
            raise TableError(
                "no table was given: two outcome tables and two treatment tables are needed."
            )
        frames = in_memory(*(table.table for table in tables))
        tables = [
            replace(table, table=f) for table, f in zip(tables, frames, strict=True)
        ]
        named = filter(None, [source.population, source.cluster])
        text = {*source.text, *source.categories, *named}
        tables = list(_with_categories(read_files(tables, text), source.categories))
        source = replace(
            source, tables=tuple(table for table in tables if table.kind != TARGET)
        )
        for table in tables:
            check_frame(table)
        # An identifier may be in some tables only; a name that is in none is a typing error.
        columns = {name for table in tables for name in column_names(table.table) or ()}
        if unknown := [name for name in source.ignore if name not in columns]:
            raise TableError(
                f"ignore names {unknown[0]!r}, a column that no table has"
                f"{did_you_mean(unknown[0], columns)}"
            )
        tables, arms = _with_arms(tables)
        left_out = source.left_out
        try:
            X, chunks = stack_numbers(source, tables)
            own = rebuild_frame(X, source.feature_names, like=tables[0].table)
        except NotNumbersError:
            own, chunks = stack_columns(source, tables)
        joined = [(c.label, c.kind, c.population, c.weight) for c in chunks]
        label, kind, known, weight = (
            np.concatenate(part) for part in zip(*joined, strict=True)
        )
        _check_policies(source.policies, {*known[kind == OUTCOME].tolist()})
        clusters = None
        if source.cluster is not None:  # people to be scored need none
            clusters = np.concatenate(
                [np.arange(len(c)) if c.cluster is None else c.cluster for c in chunks]
            )
        given = separate_labels(label, kind) | {
            "population": known,
            "sample_weight": weight,
            "cluster": clusters,
        }
        joint, given["policy"] = (
            _stacked(chunks, name) for name in ("joint", "policy")
        )
        if joint is not None:
            given["treatment"] = np.where(np.isnan(joint), given["treatment"], joint)
        if arms:
            given["treatment"] = arm_words(given["treatment"], arms)
        given |= {"dose": tables[0].is_dose or None, "control": tables[0].control}
        if source.count is not None:  # each person to be scored is one
            given["count"] = np.concatenate(
                [np.ones(len(c)) if c.count is None else c.count for c in chunks]
            )
            at, given = spread_shares(given, len(label))
            own, label = take_rows(own, at), label[at]
        rows, population = check_rows(given, len(label))
        data = object.__new__(cls)
        data._freeze(own, rows, population, weighted=source.sample_weight is not None)
        data.__dict__["left_out"] = left_out
        return data

    @property
    def is_streamed(self) -> bool:
        """Whether rows are read in pieces from where they are."""
        return self.source is not None

    def chunks(self) -> ChunkSource | DaskSource:
        """Return what goes through all rows in pieces, be they streamed or in memory."""
        return (
            ArraySource(dict(self), CHUNK_ROWS) if self.source is None else self.source
        )

    def labelled(self, X: Array) -> LabelledRows:
        """Return the rows that have a label and a weight, with these numbers as features."""
        return self.checked.labelled(X)

    def __getitem__(self, key: str) -> Any:
        """Return one of the arguments of ``fit``."""
        if not isinstance(key, str):
            raise InputError(NO_MATRIX)  # scikit-learn's parts ask for the first row
        if key not in set(self):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arguments of ``fit``."""
        yield from NEEDED
        yield from (
            name for name in COLUMNS[4:] if getattr(self, name, None) is not None
        )

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
    def left_out(self) -> tuple[LeftOut, ...]:
        """Columns of tables that are not features, each with the reason."""
        own: tuple[LeftOut, ...] = self.__dict__["left_out"]
        return getattr(self.source, "left_out", own)

    @property
    def n_rows(self) -> int:
        """Number of rows of all kinds."""
        return len(self.checked)

    @property
    def kind(self) -> NDArray[np.str_]:
        """Which label each row has: "outcome", "treatment", or "target" for none."""
        return self.checked.kind

    @property
    def feature_names(self) -> list[str] | None:
        """Column names of ``X``, or None if it came as an array."""
        return (
            column_names(self.X) if self.source is None else self.source.feature_names
        )

    @property
    def populations(self) -> list[Any]:
        """The populations' names, sorted: the order estimators use."""
        return self.checked.names

    def rows(self, kind: str, population: Any = None) -> NDArray[np.int64]:
        """Return the positions of the rows of one kind, and of one population if named."""
        chosen = self.kind == kind
        if population is not None:
            names = [population_name(name) for name in self.populations]
            wanted = check_population([population], np.zeros(1, dtype=np.uint8))[0]
            if (name := population_name(wanted)) not in names:
                there = shown(self.populations)
                raise LabelError(
                    f"there is no population {population!r}; there are {there}."
                )
            chosen &= self.population == self.populations[names.index(name)]
        return np.flatnonzero(chosen)

    def take(self, rows: ArrayLike) -> SeparateLabels:
        """Return the rows at the given positions (or where a mask is true), checked anew."""
        index = np.asarray(rows)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        columns = {
            name: self[name] if name in OF_ALL else self[name][index]
            for name in self
            if name != "X"
        }
        checked, population = check_rows(columns, len(index))
        data = object.__new__(SeparateLabels)
        weighted = self.sample_weight is not None
        data._freeze(take_rows(self.X, index), checked, population, weighted=weighted)
        data.__dict__["left_out"] = self.left_out
        return data

    def summary(self) -> list[CellSummary]:
        """Return the size and the mean label of every table, outcomes first.

        Outcome means are in the user's units; treatment means are shares treated, 0 to 1,
        whatever the coding, and of doses means. Means are weighted by ``sample_weight``. Of outcome
        rows that have a treatment as well ("both"), or a known policy ("policy"), the share treated
        is given too. Of several treatments it is the share that got any.
        """
        rows = self.checked
        each = [
            (kind, name, rows.label, at)
            for (kind, name), at in zip(rows.tables, rows.all_cells(), strict=True)
        ]
        for kind, column in ((JOINT, rows.joint), (POLICY, rows.policy)):
            if column is None:
                continue
            for k, name in enumerate(rows.names):
                at = rows.at(OUTCOME, k)
                each.append((kind, name, column, at[~np.isnan(column[at])]))
        cells = []
        for kind, name, column, at in each:
            if not len(at):  # a known policy may stand for a treatment table
                continue
            weight = rows.weight[at]
            n_rows = len(at)
            if rows.count is not None:
                weight = weight * rows.count[at]
                n_rows = int(rows.count[at].sum())
            numbers = column[at] > 0.0 if rows.arms and kind != OUTCOME else column[at]
            mean = float(np.average(numbers, weights=weight))
            cells.append(CellSummary(kind, str(name), n_rows, mean, bool(self.dose)))
        if n_target := int((rows.cell == 2 * len(rows.names)).sum()):
            cells.append(CellSummary(TARGET, "", n_target, float("nan")))
        return cells

    def _lines(self) -> tuple[str, list[tuple[str, str, str, str]]]:
        """Return a title, and kind, population, rows and mean label of every table in words."""
        if self.source is not None:
            of = {TableSource: "tables", DaskSource: "Dask", IterableSource: "chunks"}
            return (
                f"SeparateLabels, streamed from {of.get(type(self.source), 'arrays')}",
                [],
            )
        names = self.feature_names
        d = np.shape(self.X)[1] if names is None else len(names)
        lines = []
        for cell in self.summary():
            rows = f"{cell.n_rows:,} row{'s' * (cell.n_rows != 1)}"
            lines.append((cell.kind, cell.population, rows, cell.words))
        return (
            f"SeparateLabels of {self.n_rows:,} rows, {d} feature{'s' * (d != 1)}",
            lines,
        )

    def __repr__(self) -> str:
        """Show the size and mean label of every table."""
        title, lines = self._lines()
        return "\n".join(
            [title, *(f"  {k:9} {p}: {rows}, {label}" for k, p, rows, label in lines)]
        )

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
        if self.source is not None:
            return partial(SeparateLabels._of, source=self.source), ()
        return (SeparateLabels, tuple(getattr(self, name) for name in COLUMNS))


def as_data(data: Any, *, stream: bool = False) -> SeparateLabels:
    """Return a container of rows that may come as another mapping of its columns."""
    if isinstance(data, SeparateLabels):
        return data
    if isinstance(data, Mapping) and "X" in data and set(data) <= set(COLUMNS):
        return SeparateLabels(**data, stream=stream)
    raise InputError(
        f"data must be a SeparateLabels, or a mapping of {', '.join(NEEDED)} and perhaps "
        f"{' and '.join(COLUMNS[4:])}; got {type(data).__name__}. Make one with "
        "SeparateLabels.from_tables."
    )


def _chunk_rows(stream: bool | int | None) -> int:
    """Return how many rows a piece has."""
    is_size = not isinstance(stream, bool) and stream is not None
    return check_count("stream", stream) if is_size else CHUNK_ROWS


def _refuse_streaming(**given: Any) -> None:
    """Refuse what only rows in memory have."""
    for name, column in given.items():
        if column is not None:
            raise InputError(NOT_STREAMED.format(name))


def _with_arms(tables: list[Table]) -> tuple[list[Table], tuple[str, ...]]:
    """Return tables that know the names of all treatments, and these, if there are several."""
    if any(table.treated is not None for table in tables):
        check_all_treated((table, table.table) for table in tables)
    control = tables[0].control
    if control is None:
        return tables, ()
    held = treatment_columns((table, table.table) for table in tables)
    arms = arm_names((value for _, column in held for value in column), control)
    return [replace(table, arms=arms) for table in tables], arms


def arm_words(place: Array, arms: Sequence[str]) -> NDArray[Any]:
    """Return treatments by name, None where a row has none; ``place`` is that among the names."""
    at = np.where(np.isnan(place), -1.0, place).astype(np.int64)
    return np.array([*arms, None], dtype=object)[at]


def _stacked(chunks: Iterable[Chunk], name: str) -> Array | None:
    """Return a column that some tables have, NaN where they do not; None if none has it."""
    columns = [getattr(chunk, name) for chunk in chunks]
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.full(len(chunk), np.nan) if column is None else column
            for chunk, column in zip(chunks, columns, strict=True)
        ]
    )


def _known_policies(
    policies: Mapping[str, Any] | None, tables: list[Table], population: str | None
) -> dict[str, Any]:
    """Return known policies by name of population, each a number, a column or a function."""
    if policies is None:
        return {}
    if not isinstance(policies, Mapping):
        raise TableError(
            "policies must be a mapping of populations to probabilities, such as {'north': 0.3}, "
            f"got {type(policies).__name__}."
        )
    known = {population_name(name): policy for name, policy in policies.items()}
    names = {str(table.population) for table in tables if table.kind == OUTCOME}
    if population is None:
        _check_policies(known, names)
    for name, policy in known.items():
        if not (isinstance(policy, str) or callable(policy)):
            check_share(f"the policy of {name!r}", policy, zero_allowed=True)
    return known


def _check_policies(policies: Iterable[str], names: Collection[str]) -> None:
    """Refuse policies of populations that have no outcome rows."""
    for name in policies:
        if name not in names:
            raise TableError(
                f"policies names {name!r}, a population without an outcome table; there are "
                f"{shown(sorted(names))}{did_you_mean(name, sorted(names))}"
            )


def _named_tables(
    outcomes: tuple[str, Any, str],
    treatments: tuple[str, Any, str | None] | None,
    population: str | None,
    treated: Any,
) -> list[Table]:
    """Return the tables of both kinds with what their rows are."""
    tables = []
    for kind, given, label in filter(None, (outcomes, treatments)):
        if population is not None:
            if isinstance(given, Mapping):
                raise TableError(
                    f"{kind}s is a mapping of several tables, but population names a column. Give "
                    "one table of each kind, or leave out population."
                )
            tables += (
                [] if given is None else [Table(given, kind, label, None, treated)]
            )
            continue
        if given is None:
            continue
        if not isinstance(given, Mapping):
            raise TableError(
                f"{kind}s must be a mapping of population names to tables, such as {{'north': "
                f"a, 'south': b}}, got {type(given).__name__}. With one table of each kind, name "
                "the column that tells populations apart: population='region'."
            )
        check_names(given, f"{kind} tables")
        tables += [
            Table(table, kind, label, population_name(name), treated)
            for name, table in given.items()
        ]
    for table in tables:
        _check_table(table)
    return tables


def _check_table(table: Table) -> None:
    """Refuse what is neither a data frame nor files nor a query."""
    given = table.table
    files = given if isinstance(given, list | tuple) and given else [given]
    if _is_frame(given) or isinstance(given, SqlQuery):
        return
    if all(isinstance(file, str | os.PathLike) for file in files):
        return
    remedy = "Arrays go to SeparateLabels(X=..., y=..., ...)."
    if hasattr(given, "collect"):
        remedy = "Call its collect() first."
    raise TableError(
        f"{table.title} must be a data frame (pandas, polars, pyarrow, Dask), a file, a folder, a "
        f"list of files or a SqlQuery, got {type(given).__name__}. {remedy}"
    )


def _is_large(tables: Sequence[Table]) -> bool:
    """Tell whether tables are to be streamed: several files in one, or more than fit in memory."""
    files = [
        table.table
        for table in tables
        if not _is_frame(table.table) or is_lazy(table.table)
    ]
    if any(isinstance(file, list | tuple) or _is_folder(file) for file in files):
        return True
    return bool(files) and not fits_in_memory(files)


def _is_folder(file: Any) -> bool:
    return isinstance(file, str | os.PathLike) and Path(file).is_dir()


def _is_frame(table: Any) -> bool:
    return (
        is_dask(table)
        or is_lazy(table)
        or bool(nw.dependencies.is_into_dataframe(table))
    )


def read_files(tables: Sequence[Table], text: set[str]) -> list[Table]:
    """Read files and queries; columns that are text in one of several files are text in all."""

    def read(text: set[str]) -> list[Table]:
        return [
            replace(table, table=read_table(table.table, text=text))
            if is_file
            else table
            for table, is_file in zip(tables, files, strict=True)
        ]

    tables = [
        replace(table, table=collected(table.table)) if is_lazy(table.table) else table
        for table in tables
    ]
    files = [not _is_frame(table.table) for table in tables]
    if not any(files):
        return list(tables)
    found = read(text)
    # Where one file holds words, 1.10 of another must not have become 1.1.
    kinds: dict[str, set[bool]] = {}
    for table, was_file in zip(found, files, strict=True):
        for field in table.table.schema if was_file else ():
            kinds.setdefault(field.name, set()).add(str(field.type) == "string")
    special = {table.label for table in tables}
    mixed = {name for name, types in kinds.items() if len(types) > 1} - special
    return read(text | mixed) if mixed else found


def _with_categories(tables: Iterable[Table], names: Sequence[str]) -> Iterator[Table]:
    """Yield tables, data frames with some columns as categories."""
    for table in tables:
        is_frame = names and nw.dependencies.is_into_dataframe(table.table)
        yield (
            replace(table, table=as_categories(table.table, names))
            if is_frame
            else table
        )


def own_features(X: MatrixLike) -> MatrixLike:
    """Return checked features of our own: changing the caller's later must not change them."""
    names = column_names(X)
    if names is None or has_numbers_only(X):
        check_numeric_columns(X)
        matrix = number_matrix(X, order="F")
        if names is None or not np.isnan(matrix).any():
            check_finite_features(matrix, names)
            return (
                np.array(matrix)
                if names is None
                else rebuild_frame(matrix, names, like=X)
            )
    frame = nw.from_native(X, eager_only=True)
    for name in frame.columns:
        column_values(frame.get_column(name))
    return take_rows(frame.clone().to_native(), slice(None))


def stack_numbers(
    source: TableSource, tables: list[Table]
) -> tuple[Array, list[Chunk]]:
    """Return the features of tables of numbers in one matrix, and their other parts."""
    columns = source.columns
    sizes = [len(nw.from_native(table.table, eager_only=True)) for table in tables]
    X = np.empty(
        (sum(sizes), len(columns.features)), order="F"
    )  # columns are those of a frame
    chunks = []
    for table, stop in zip(tables, np.cumsum(sizes).tolist(), strict=True):
        chunk = columns.chunk(table, table.table, Place(table.title))
        if source.population is not None:
            chunk = chunk.take(np.argsort(chunk.cell, kind="stable"))
        X[stop - len(chunk) : stop] = chunk.X
        chunks.append(replace(chunk, X=np.empty((len(chunk), 0))))
    return X, chunks


def stack_columns(
    source: TableSource, tables: list[Table]
) -> tuple[Frame, list[Chunk]]:
    """Return the features of tables of any columns in one data frame, and their other parts."""
    chunks, parts, columns = [], [], source.columns
    names = list(columns.features)
    for table in tables:
        frame = nw.from_native(table.table, eager_only=True)
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
