r"""Evaluation of tables that do not fit in memory, from sums over chunks or Dask partitions.

A sample of rows settles what every row is met with: cross-fitted policies and outcome models, and
fine bins of the score. One pass then adds up, for each table and bin, the rows' two numbers and
their products. Ranks, curves, areas and deciles follow from the bins, with the same formulas as
from rows; a bin is one rank. Rows of the sample are met by the fits that have not seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, IntArray, MatrixLike
from unjoined._validation import KINDS, OUTCOME, check_count, check_probability, check_vector
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
from unjoined.metrics.bin_sums import Order, PassSums
from unjoined.metrics.people import NamedFeatures
from unjoined.metrics.ratio import (
    N_FOLDS,
    EvaluationRows,
    labelled_part,
    with_target,
)
from unjoined.nuisance import EffectModels, cross_fit_effects
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
    """What is computed of each row's features: the score, then a column for each own rule."""

    names: tuple[str, ...]  # for messages; the score first
    functions: tuple[Callable[[MatrixLike], Any], ...]
    chances: tuple[bool, ...]  # whether a column must lie in [0, 1]

    def __call__(self, X: MatrixLike) -> Array:
        """Return the columns, shape (n, k)."""
        n = len(X)
        columns = [np.empty((n, 0))]
        for name, function, chance in zip(self.names, self.functions, self.chances, strict=True):
            values = check_vector(name, function(X)) if n else np.empty(0)
            if len(values) != n:
                raise InputError(f"{name} must be one number per row: {n:,}, got {len(values):,}.")
            columns.append(check_probability(name, values) if chance else values)
        # Seven digits: the last ones of a prediction depend on the rows it is computed with, and
        # rows are dealt by their content.
        return np.column_stack(columns).astype(np.float32).astype(np.float64)


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
        return np.array([*names, *self.scorer.names], dtype=object)


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
    def look_through(cls, source: Any, scorer: Scorer, sample_rows: int) -> Source:
        """Take the census of a source: cells, codes, and a sample of each cell."""
        partitions = as_dask_source(source)
        rows: Any = as_source(source) if partitions is None else partitions.settled()
        encoder = None
        if rows.feature_names is not None and hasattr(rows, "encoded"):
            scoring = ScoringEncoder(scorer)
            rows, encoder = rows.encoded(scoring), scoring.encoder
        look = take_census if partitions is None else dask_census
        census = look(rows, sample_rows=check_count("sample_rows", sample_rows))
        census.check_complete()
        return cls(rows, scorer, census, encoder)


NO_SCORES = Scorer((), (), ())


def split_columns(X: Array, scorer: Scorer, *, has_scores: bool) -> tuple[Array, Array]:
    """Return features and the scorer's columns, which arrays do not hold yet."""
    if not has_scores:
        return X, scorer(X)
    d = X.shape[1] - len(scorer.names)
    return np.ascontiguousarray(X[:, :d]), X[:, d:]


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """All that turns a chunk into sums; travels to workers."""

    scorer: Scorer
    has_scores: bool  # whether chunks hold the scorer's columns
    census: Census  # without its samples
    repeated: dict[tuple[str, Any], Any]  # hashes of rows that occur more than once in the sample
    models: EffectModels
    weight: str
    coding: Any
    total: Array  # (2 K,) weight of each cell
    size: Array  # (K,) outcome rows
    aims: Array  # (2 K,) share of the cell among the people in question
    orders: tuple[Order, ...]
    n_jobs: int | None

    def rows(self, chunk: Chunk) -> tuple[EvaluationRows, Array, Array]:
        """Return the rows with nuisances, the scorer's columns, and how often each counts."""
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
        return (
            replace(rows, share=share, size=self.size, aim=self.aims[chunk.cell]),
            columns,
            times,
        )

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


def sums_of_chunk(chunk: Chunk, plan: ChunkPlan) -> PassSums:
    """Return the sums of one chunk."""
    if (chunk.cell >= 2 * len(chunk.names)).any():
        raise InputError(
            f"{chunk.origin} holds rows of kind 'target'. From chunks, give the people in question "
            "as target, an array or a data frame in memory."
        )
    return PassSums.of_rows(*plan.rows(chunk), plan.orders, plan.weight)


def merge_sums(parts: list[PassSums]) -> PassSums:
    """Return the sums of all parts."""
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part)
    return total


def sum_rows(source: Source, plan: ChunkPlan) -> PassSums:
    """Go through a source once more and add up all rows."""
    if isinstance(source.chunks, DaskSource):
        found: PassSums | None = over_partitions(
            source.chunks, sums_of_chunk, replace(plan, n_jobs=1), merge_sums
        )
    else:
        found = None
        for chunk in source.chunks:
            part = sums_of_chunk(chunk, plan)
            found = part if found is None else found.plus(part)
    n_rows = 0 if found is None else round(found.n_rows)
    if found is None or n_rows != source.census.n_rows:
        raise TableError(
            f"the source has changed between two passes: {source.census.n_rows:,} labelled rows, "
            f"then {n_rows:,}. Make sure that it yields the same rows each time."
        )
    return found


@dataclass(frozen=True, eq=False)
class Settled:
    """What a sample has settled: the plan of the pass, and the sample with its nuisances."""

    plan: ChunkPlan
    sample: EvaluationRows
    columns: Array  # of the scorer, at the rows of the sample
    features: NamedFeatures

    @classmethod
    def of(
        cls,
        source: Source,
        weight: str,
        orders: Sequence[tuple[Order, Sequence[float]]],
        target: MatrixLike | None,
        n_jobs: int | None,
        rng: Rng,
    ) -> Settled:
        """Cross-fit policies and outcome models to the sample, and cut the scores into bins."""
        census = source.census
        sample, fold = census.sample(N_FOLDS)
        X, columns = split_columns(sample.X, source.scorer, has_scores=source.encoder is not None)
        features = NamedFeatures.of_numbers(X, source.encoder)
        sample = replace(sample, X=X)
        models = cross_fit_effects(sample, fold, n_jobs=n_jobs, rng=rng)
        names = [(kind, name) for kind in KINDS[:2] for name in census.names]
        total = np.array([census.cells[cell].total_weight for cell in names])
        size = np.array([float(census.cells[cell].n_rows) for cell in names[: len(census.names)]])
        aims = total / total.sum() if target is None else np.zeros(len(total))
        rows = labelled_part(sample, fold, models(X, fold, n_jobs=n_jobs), np.ones(len(X)), None)
        rows = replace(rows, size=size, aim=aims[sample.cell])
        if target is not None:
            people = features.numbers(target)[0]
            dealt = np.resize(np.arange(N_FOLDS), len(people))
            found = models(people, dealt, n_jobs=n_jobs)
            rows = with_target(rows, people, np.ones(len(people)), dealt, found, sample)
            columns = np.concatenate([columns, source.scorer(target)])
        people = rows.share * rows.aim * rows.omega(weight)
        plan = ChunkPlan(
            scorer=source.scorer,
            has_scores=source.encoder is not None,
            census=census.without_samples(),
            repeated={cell: census.cells[cell].repeated().keys for cell in names},
            models=models,
            weight=weight,
            coding=sample.coding,
            total=total,
            size=size,
            aims=aims,
            orders=tuple(order.settled(columns, people, extra) for order, extra in orders),
            n_jobs=n_jobs,
        )
        return cls(plan, rows, columns, features)

    def sum_up(self, source: Source) -> PassSums:
        """Add up all rows, and the people in question if they are others."""
        found = sum_rows(source, self.plan)
        if len(self.sample.cell) and not self.sample.is_labelled.all():
            at = np.flatnonzero(~self.sample.is_labelled)
            aside = self.sample.take(at), self.columns[at], np.ones(len(at))
            found = found.plus(PassSums.of_rows(*aside, self.plan.orders, self.plan.weight))
        return found
