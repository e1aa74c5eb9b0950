"""Tables that do not fit in memory, from chunks or Dask partitions.

A sample of rows settles what every row is met with: cross-fitted policies and outcome models, and
fine bins of the score. Rows of the sample are met by the fits that have not seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, IntArray, MatrixLike
from unjoined._validation import KINDS, OUTCOME, check_vector
from unjoined.data import (
    CellSummary,
    Chunk,
    ChunkSource,
    DaskSource,
    Encoded,
    LabelledRows,
    TableEncoder,
    as_dask_source,
    as_source,
)
from unjoined.errors import InputError, TableError
from unjoined.metrics.passes import EvaluatedTables, Order, Piece, Placing, T
from unjoined.metrics.people import NamedFeatures
from unjoined.metrics.ranks import Scored
from unjoined.metrics.rows import N_FOLDS, labelled_part, refuse_few, with_target
from unjoined.metrics.tables import Computed
from unjoined.nuisance import CrossFit, EffectModels
from unjoined.sums import (
    Census,
    dask_census,
    hash_features,
    hash_with,
    in_cells,
    inner_outcomes,
    over_partitions,
    take_census,
)

SAMPLE_ROWS = 20_000  # of each table


@dataclass(frozen=True)
class Scorer:
    """Computes columns of numbers of each row's features."""

    columns: tuple[Computed, ...] = ()

    def __call__(self, X: MatrixLike) -> Array:
        """Return the columns, shape (n, k)."""
        n = len(X)
        found = [np.empty((n, 0))]
        for name, function, check in self.columns:
            values = check_vector(name, function(X)) if n else np.empty(0)
            if len(values) != n:
                raise InputError(f"{name} must be one number per row: {n:,}, got {len(values):,}.")
            found.append(values if check is None else check(values))
        # Seven digits: the last ones of a prediction depend on the rows it is computed with, and
        # rows are dealt by their content.
        return np.column_stack(found).astype(np.float32).astype(np.float64)


class ScoringEncoder:
    """Turns pieces of a data frame into numbers, with the scorer's columns behind them."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.encoder = scorer, TableEncoder()

    def fit(self, X: MatrixLike) -> ScoringEncoder:
        """Learn how columns become numbers."""
        self.encoder.fit(X)
        return self

    def fit_profiles(self, profiles: Any) -> ScoringEncoder:
        """Do the same from what a pass found in the columns."""
        self.encoder.fit_profiles(profiles)
        return self

    def encode(self, X: MatrixLike, *, table: str = "X") -> Encoded:
        """Return features as numbers, then the scorer's columns."""
        found = self.encoder.encode(X, table=table)
        return found._replace(matrix=np.hstack([found.matrix, self.scorer(X)]))

    def get_feature_names_out(self) -> Any:
        """Return the names of all columns."""
        names = self.encoder.get_feature_names_out().tolist()
        return np.array([*names, *(column.name for column in self.scorer.columns)], dtype=object)


@dataclass(frozen=True, eq=False)
class Source:
    """A source whose chunks can be scored, and the sample that the first pass kept."""

    chunks: ChunkSource | DaskSource
    scorer: Scorer
    census: Census
    encoder: TableEncoder | None  # None for arrays, whose chunks hold no score yet

    def summary(self) -> list[CellSummary]:
        """Return the size of each table, and the mean label of its sample."""
        sample, _ = self.census.sample(N_FOLDS)
        found = []
        for code, at in enumerate(sample.all_cells()):
            kind, k = KINDS[code // len(sample.names)], code % len(sample.names)
            mean = float(np.average(sample.label[at], weights=sample.weight[at]))
            coding = sample.coding
            mean = coding.offset + coding.scale * mean if kind == OUTCOME else 0.5 + 0.5 * mean
            name = sample.names[k]
            found.append(CellSummary(kind, str(name), self.census.cells[kind, name].n_rows, mean))
        return found

    @classmethod
    def look_through(cls, source: Any, scorer: Scorer) -> Source:
        """Take the census of a source: cells, codes, and a sample of each cell."""
        partitions = as_dask_source(source)
        rows: Any = as_source(source) if partitions is None else partitions.settled()
        encoder = None
        if rows.feature_names is not None and hasattr(rows, "encoded"):
            scoring = ScoringEncoder(scorer)
            rows, encoder = rows.encoded(scoring), scoring.encoder
        look = take_census if partitions is None else dask_census
        census = look(rows, sample_rows=SAMPLE_ROWS)
        census.check_complete()
        return cls(rows, scorer, census, encoder)


def split_columns(X: Array, scorer: Scorer, *, has_scores: bool) -> tuple[Array, Array]:
    """Return features and the scorer's columns, which arrays do not hold yet."""
    if not has_scores:
        return X, scorer(X)
    d = X.shape[1] - len(scorer.columns)
    return np.ascontiguousarray(X[:, :d]), X[:, d:]


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """All that turns a chunk into a piece of an evaluation; travels to workers."""

    scorer: Scorer
    has_scores: bool  # whether chunks hold the scorer's columns
    census: Census  # without its samples
    repeated: dict[tuple[str, Any], Any]  # hashes of rows that occur more than once in the sample
    models: EffectModels
    coding: Any
    total: Array  # (2 K,) weight of each cell
    size: Array  # (K,) outcome rows
    aims: Array  # (2 K,) share of the cell among the people in question
    n_jobs: int | None

    def piece(self, chunk: Chunk) -> Piece:
        """Return the rows with nuisances, the scorer's columns, and how often each counts."""
        if (chunk.cell >= 2 * len(chunk.names)).any():
            raise InputError(
                f"{chunk.origin} holds rows of kind 'target'. From chunks, give the people in "
                "question as target, an array or a data frame in memory."
            )
        chunk = in_cells(chunk, self.census.names, self.census)
        fold, at, times = self._folds(chunk)
        chunk = chunk.take(at)
        X, columns = split_columns(chunk.X, self.scorer, has_scores=self.has_scores)
        label = np.where(
            chunk.is_outcome,
            inner_outcomes(chunk, self.coding),
            self.census.treatment(chunk.label),
        )
        inner = LabelledRows(X, label, chunk.cell, chunk.weight, chunk.names, self.coding)
        nuisances = self.models(X, fold, n_jobs=self.n_jobs)
        rows = labelled_part(inner, fold, nuisances, np.ones(len(X)), None)
        share = chunk.weight / self.total[chunk.cell]
        rows = replace(rows, share=share, size=self.size, aim=self.aims[chunk.cell])
        return Piece(rows, columns, times)

    def _folds(self, chunk: Chunk) -> tuple[IntArray, IntArray, Array]:
        """Return folds, positions and shares of the rows of a chunk.

        A row of the sample is met by the fits without its fold, which follows from its content.
        Copies of a row are in all folds of the sample: each counts as a fifth in every one of
        them. Rows that are not in the sample may be met by any fit.
        """
        J = self.models.n_folds
        state = hash_features(chunk.X)
        fold = (self.census.places(chunk, state) % np.uint64(J)).astype(np.int64)
        keys = hash_with(state, chunk.label)
        several = np.zeros(len(chunk), dtype=np.bool_)
        cells = [(kind, name) for kind in KINDS[:2] for name in chunk.names]
        for cell, at in zip(cells, chunk.all_cells(), strict=True):
            several[at] = np.isin(keys[at], self.repeated[cell])
        again = np.flatnonzero(several)
        once = np.flatnonzero(~several)
        return (
            np.concatenate([fold[once], np.repeat(np.arange(J), len(again))]),
            np.concatenate([once, np.tile(again, J)]),
            np.concatenate([np.ones(len(once)), np.full(J * len(again), 1.0 / J)]),
        )


def work_on_chunk(chunk: Chunk, shared: tuple[ChunkPlan, Callable[[Piece], T]]) -> T:
    """Return what a pass finds in one chunk."""
    plan, work = shared
    return work(plan.piece(chunk))


def add_parts(parts: list[Any]) -> Any:
    """Return the sums of all parts."""
    return reduce(add, parts)


class RowsInPieces(EvaluatedTables):
    """The rows of a source, and a sample of them that has settled what every row is met with."""

    how = "held-out rows, read in pieces"

    def __init__(
        self,
        source: Source,
        target: MatrixLike | None,
        n_jobs: int | None,
        rng: Rng,
    ) -> None:
        """Cross-fit policies and outcome models to the sample."""
        census = source.census
        sample, fold = census.sample(N_FOLDS)
        refuse_few(sample)
        X, columns = split_columns(sample.X, source.scorer, has_scores=source.encoder is not None)
        sample = replace(sample, X=X)
        crossfit = CrossFit.of_rows(sample, fold=fold, n_jobs=n_jobs, rng=rng)
        names = [(kind, name) for kind in KINDS[:2] for name in census.names]
        total = np.array([census.cells[cell].total_weight for cell in names])
        size = np.array([float(census.cells[cell].n_rows) for cell in names[: len(census.names)]])
        aims = total / total.sum() if target is None else np.zeros(len(total))
        rows = labelled_part(sample, fold, crossfit.nuisances, np.ones(len(X)), None)
        rows = replace(rows, size=size, aim=aims[sample.cell])
        self.features = NamedFeatures.of_numbers(X, source.encoder)
        if target is not None:
            people = self.features.numbers(target)[0]
            dealt = np.resize(np.arange(N_FOLDS), len(people))
            found = crossfit.models(people, dealt, n_jobs=n_jobs)
            rows = with_target(rows, people, np.ones(len(people)), dealt, found, sample)
            columns = np.concatenate([columns, source.scorer(target)])
        self.source = source
        self.sample = rows
        self.columns = columns
        self.names = census.names
        self.n_rows = census.n_rows
        self.plan = ChunkPlan(
            scorer=source.scorer,
            has_scores=source.encoder is not None,
            census=census.without_samples(),
            repeated=census.repeated,
            models=crossfit.models,
            coding=sample.coding,
            total=total,
            size=size,
            aims=aims,
            n_jobs=n_jobs,
        )
        self.refuse_alike()

    def over(self, work: Callable[[Piece], T]) -> T:
        """Return the sum of what a pass finds in all chunks, and in the target if it is given."""
        chunks = self.source.chunks
        if isinstance(chunks, DaskSource):
            shared = replace(self.plan, n_jobs=1), work
            found: Any = over_partitions(chunks, work_on_chunk, shared, add_parts)
        else:
            found = None
            for chunk in chunks:
                part: Any = work_on_chunk(chunk, (self.plan, work))
                found = part if found is None else found + part
        n_rows = 0 if found is None else round(found.n_rows)
        if n_rows != self.n_rows:
            raise TableError(
                f"the source has changed between two passes: {self.n_rows:,} labelled rows, "
                f"then {n_rows:,}. Make sure that it yields the same rows each time."
            )
        at = np.flatnonzero(~self.sample.is_labelled)
        total: T = found + work(Piece(self.sample.take(at), self.columns[at])) if len(at) else found
        return total

    def scored(self, orders: Sequence[Order], extra: Sequence[Sequence[float]]) -> list[Scored]:
        """Return the places of each order, fine bins that a sample has settled."""
        people = self.sample.share * self.sample.aim * self.sample.omega()
        pairs = zip(orders, extra, strict=True)
        settled = tuple(order.in_bins(self.columns, people, edges) for order, edges in pairs)
        found = self.over(Placing(settled)).places
        ends = np.cumsum([order.n_bins for order in settled])
        parts = np.split(found, ends[:-1])
        return [_in_bins(*each) for each in zip(settled, parts, strict=True)]


def _in_bins(order: Order, sums: Array) -> Scored:
    """Return the bins that have rows as places."""
    ends = np.append(np.empty(0) if order.edges is None else order.edges, np.inf)
    held = sums[:, 0] > 0.0
    mass, total, people, effect, key, cost = sums[held].T
    own = np.where(people > 0.0, people, 1.0)
    score, price = np.where(people > 0.0, key / own, total / mass), np.ones(len(own))
    if order.cost is not None:
        price = np.where(people > 0.0, cost / own, 1.0)
        score = score * price
    order = replace(order, edges=ends[held][:-1])
    return Scored(order, score, people / people.sum(), effect / own, None, ends[held], price)
