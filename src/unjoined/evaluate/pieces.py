"""Tables that do not fit in memory, from chunks or Dask partitions.

A sample of rows settles what every row is met with: cross-fitted policies and outcome models, and
fine bins of the score. Rows of the sample are met by the fits that have not seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, MatrixLike
from unjoined._validation import OUTCOME, check_vector
from unjoined.data.dask import DaskSource
from unjoined.data.encode import Encoded, TableEncoder
from unjoined.data.fold import plus
from unjoined.data.labels import CellSummary, as_data
from unjoined.data.rows import NumberedRows
from unjoined.data.sources import ChunkSource
from unjoined.errors import InputError
from unjoined.evaluate.ranks import (
    EvaluatedTables,
    Order,
    Piece,
    Scored,
    T,
    count_people,
)
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.tables import Computed
from unjoined.evaluate.terms import N_FOLDS, labelled_part, refuse_few, with_target
from unjoined.model.census import Census, deal_groups
from unjoined.model.crossfit import CrossFit, EffectModels
from unjoined.model.passes import in_cells, inner_rows, look_through, over_rows

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
                raise InputError(
                    f"{name} must be one number per row: {n:,}, got {len(values):,}."
                )
            found.append(values if check is None else check(values))
        # Seven digits: the last ones of a prediction depend on the rows it is computed with, and
        # rows come in whatever chunks.
        return np.column_stack(found).astype(np.float32).astype(np.float64)


class ScoringEncoder:
    """Turns pieces of a data frame into numbers, with the scorer's columns behind them."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.encoder = TableEncoder()

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
        return np.array(
            [*names, *(column.name for column in self.scorer.columns)], dtype=object
        )


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
        for (kind, name), at in zip(sample.tables, sample.all_cells(), strict=True):
            mean = float(np.average(sample.label[at], weights=sample.weight[at]))
            coding = sample.coding
            mean = (
                coding.offset + coding.scale * mean
                if kind == OUTCOME
                else 0.5 + 0.5 * mean
            )
            found.append(
                CellSummary(kind, str(name), self.census.cells[kind, name].n_rows, mean)
            )
        return found

    @classmethod
    def look_through(cls, data: Any, scorer: Scorer) -> Source:
        """Take the census of streamed rows: cells, codes, and a sample of each cell."""
        rows = as_data(data).chunks()
        rows = rows.settled() if isinstance(rows, DaskSource) else rows
        encoder = None
        if rows.feature_names is not None:
            scoring: Any = ScoringEncoder(scorer)
            rows = rows.encoded(scoring)
            encoder = scoring.encoder
        n_scores = 0 if encoder is None else len(scorer.columns)
        rows, census = look_through(rows, sample_rows=SAMPLE_ROWS, n_scores=n_scores)
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
    models: EffectModels
    total: Array  # (2 K,) weight of each cell
    size: Array  # (K,) outcome rows
    aims: Array  # (2 K,) share of the cell among the people in question
    arms: tuple[int, int] | None = None  # of an offer, if that is what is looked at

    def piece(self, chunk: NumberedRows, n_jobs: int | None) -> Piece:
        """Return the rows with nuisances and the scorer's columns.

        Every row is met by the fits without its fold; of those not in the sample any would do.
        """
        chunk = in_cells(chunk, self.census.names, self.census)
        fold = deal_groups(chunk.number, self.models.n_folds, chunk.cluster)
        X, columns = split_columns(chunk.X, self.scorer, has_scores=self.has_scores)
        inner = replace(inner_rows(chunk, self.census.coding, self.census), X=X)
        nuisances = self.models(X, fold, n_jobs=n_jobs)
        rows = labelled_part(inner, fold, nuisances)
        share = chunk.weight / self.total[chunk.cell]
        rows = replace(rows, share=share, size=self.size, aim=self.aims[chunk.cell])
        return Piece(rows if self.arms is None else rows.offered(self.arms), columns)


def work_on_chunk(
    chunk: NumberedRows,
    shared: tuple[ChunkPlan, Callable[[Piece], T]],
    n_jobs: int | None,
) -> T:
    """Return what a pass finds in one chunk."""
    plan, work = shared
    return work(plan.piece(chunk, n_jobs))


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
        X, columns = split_columns(
            sample.X, source.scorer, has_scores=source.encoder is not None
        )
        sample = replace(sample, X=X)
        crossfit = CrossFit.of_rows(sample, fold=fold, n_jobs=n_jobs, rng=rng)
        cells = [census.cells[table] for table in sample.tables]
        total = np.array([cell.total_weight for cell in cells])
        size = np.array([float(cell.n_rows) for cell in cells[: len(census.names)]])
        aims = total / total.sum() if target is None else np.zeros(len(total))
        rows = labelled_part(sample, fold, crossfit.nuisances)
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
        self.coding = sample.coding
        self.n_rows = census.n_rows
        self.plan = ChunkPlan(
            scorer=source.scorer,
            has_scores=source.encoder is not None,
            census=census.without_samples(),
            models=crossfit.models,
            total=total,
            size=size,
            aims=aims,
        )
        self.n_jobs = n_jobs
        self.refuse_alike()

    def become_offers(self) -> None:
        """Look at the rows as those of a trial of an offer from here on."""
        self.plan = replace(self.plan, arms=self.sample.arms)
        super().become_offers()

    def over(self, work: Callable[[Piece], T]) -> T:
        """Return the sum of what a pass finds in all chunks, and in the target if it is given."""
        shared = self.plan, work
        found: T = over_rows(
            self.source.chunks, self.source.census, work_on_chunk, shared, self.n_jobs
        )
        at = np.flatnonzero(~self.sample.is_labelled)
        if len(at):
            found = plus(found, work(Piece(self.sample.take(at), self.columns[at])))
        return found

    def scored(
        self, orders: Sequence[Order], extra: Sequence[Sequence[float]]
    ) -> list[Scored]:
        """Return the places of each order, fine bins that a sample has settled."""
        people = self.sample.share * self.sample.aim * self.sample.omega()
        pairs = zip(orders, extra, strict=True)
        settled = tuple(
            order.in_bins(self.columns, people, edges) for order, edges in pairs
        )
        found = self.over(partial(count_people, settled))
        ends = np.cumsum([order.n_bins for order in settled])
        parts = np.split(found, ends[:-1])
        return [_in_bins(*each) for each in zip(settled, parts, strict=True)]


def _in_bins(order: Order, sums: Array) -> Scored:
    """Return the bins that have rows as places."""
    ends = np.append(np.empty(0) if order.edges is None else order.edges, np.inf)
    held = sums[:, 0] > 0.0
    mass, total, people, effect, key, cost = sums[held].T
    own = np.where(people > 0.0, people, 1.0)
    score = np.where(people > 0.0, key / own, total / mass)
    price = np.ones(len(own))
    if order.cost is not None:
        price = np.where(people > 0.0, cost / own, 1.0)
        score = score * price
    order = replace(order, edges=ends[held][:-1])
    return Scored(
        order, score, people / people.sum(), effect / own, None, ends[held], price
    )
