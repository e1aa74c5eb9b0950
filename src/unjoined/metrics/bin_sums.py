r"""Evaluation of tables that do not fit in memory, from sums over chunks or Dask partitions.

A sample of rows settles what every row is met with: cross-fitted policies and outcome models, and
fine bins of the score. One pass then adds up, for each table and bin, the rows' two numbers and
their products. Ranks, curves, areas and deciles follow from the bins, with the same formulas as
from rows; a bin is one rank. Rows of the sample are met by the fits that have not seen them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import KINDS, check_count, check_probability, check_vector
from unjoined.data import (
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
from unjoined.metrics.estimate import Totals
from unjoined.metrics.named import NamedFeatures, refuse_no_target
from unjoined.metrics.ratio import (
    FEWEST,
    N_FOLDS,
    Column,
    EvaluationRows,
    labelled_part,
    residual_sums,
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

FINE_BINS = 1000  # of the score; treated as tied inside
FEW_SCORES = 2000  # different scores that each have a bin of their own
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
        columns = []
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
        census.check_complete(several=True)
        return cls(rows, scorer, census, encoder)


def split_columns(X: Array, scorer: Scorer, *, has_scores: bool) -> tuple[Array, Array]:
    """Return features and the scorer's columns, which arrays do not hold yet."""
    if not has_scores:
        return X, scorer(X)
    d = X.shape[1] - len(scorer.names)
    return np.ascontiguousarray(X[:, :d]), X[:, d:]


@dataclass(frozen=True, eq=False)
class Order:
    """Bins of the rows by a key, and which of their vectors are added up."""

    edges: Array  # (b - 1,) greatest key of all bins but the last
    own: int | None = None  # column of the scorer that rows are treated by
    cost: int | None = None  # column of the scorer that the score is divided by

    def key(self, columns: Array) -> Array:
        """Return what rows are ordered by, from the scorer's columns."""
        score = columns[:, 0]
        if self.cost is None:
            return score
        return np.where(score > 0.0, score / columns[:, self.cost], 0.0)

    def settled(self, columns: Array, people: Array, extra: Sequence[float]) -> Order:
        """Return the order with edges that cut a sample into fine bins of equal shares."""
        if self.own is not None:
            return self
        key = self.key(columns)
        values = np.unique(key)
        if len(values) > FEW_SCORES:
            by_key = np.argsort(key, kind="stable")
            mass = np.cumsum(people[by_key])
            wanted = np.arange(1, FINE_BINS) / FINE_BINS * mass[-1]
            at = np.minimum(np.searchsorted(mass, wanted), len(key) - 1)
            values = np.unique(key[by_key][at])
        return replace(self, edges=np.unique([*values.tolist(), *extra]))


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


@dataclass(frozen=True, slots=True, eq=False)
class BinSums:
    """Sums over the rows of each cell and bin of one order; those of parts add up."""

    count: Array  # (C, B) rows
    first: Array  # (C, B, 5) of p v, v being 1, numerator, denominator, aim, and q
    second: Array  # (C, B, 5, 5) of p^2 v v'
    floor: Array  # (C, B) of the squared reach of an unseen residual
    people: Array  # (B, 3) of p aim times effect, key and cost
    key: Array  # (B, 2) of p and p times key

    @classmethod
    def of_rows(
        cls, rows: EvaluationRows, omega: Array, columns: Array, times: Array, order: Order
    ) -> BinSums:
        """Add up rows; q is what treatment rows take off the numerator of the plain score."""
        terms, K = rows.terms(omega), rows.n_populations
        C, B = 2 * K + 1, len(order.edges) + 1
        key = order.key(columns)
        at = rows.cell * B + np.searchsorted(order.edges, key, side="left")
        reach = omega * rows.contrast() * rows.ratio
        treated = (rows.cell >= K) & rows.is_labelled
        rule = 1.0 if order.own is None else columns[:, order.own]
        v = np.column_stack(
            [
                np.ones(len(at)),
                terms.numerator * rule,
                terms.denominator,
                terms.aim,
                np.where(treated, rows.effect * reach * rows.residual, 0.0) * rule,
            ]
        )
        p = terms.share * times
        square = terms.share * p

        def add(values: Array) -> Array:
            total = np.bincount(at, weights=values, minlength=C * B)
            return total.astype(np.float64, copy=False).reshape(C, B)

        k = v.shape[1]
        second = np.empty((C, B, k, k))
        for i in range(k):
            for j in range(i + 1):
                second[..., i, j] = second[..., j, i] = add(square * v[:, i] * v[:, j])
        cost = columns[:, order.cost] if order.cost is not None else np.zeros(len(at))
        aim = p * terms.aim
        outcome = np.where(rows.cell < K, reach, 0.0)
        return cls(
            add(times),
            np.stack([add(p * v[:, i]) for i in range(k)], axis=-1),
            second,
            add(square * outcome**2),
            np.stack([add(aim * x).sum(axis=0) for x in (terms.effect, key, cost)], axis=-1),
            np.stack([add(p * x).sum(axis=0) for x in (np.ones(len(at)), key)], axis=-1),
        )

    def plus(self, other: BinSums) -> BinSums:
        """Return the sums of the rows of both."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return BinSums(*(one + two for one, two in pairs))


@dataclass(frozen=True, slots=True, eq=False)
class PassSums:
    """What one pass adds up: the sums of each order, and the size of residuals."""

    orders: tuple[BinSums, ...]
    residual: Array  # (2,) sums of squares and of fourth powers, over outcome rows
    n_rows: float

    @classmethod
    def of_rows(
        cls, rows: EvaluationRows, columns: Array, times: Array, plan: ChunkPlan
    ) -> PassSums:
        """Add up rows for all orders."""
        omega = rows.omega(plan.weight)
        at = rows.cell < rows.n_populations
        return cls(
            tuple(BinSums.of_rows(rows, omega, columns, times, each) for each in plan.orders),
            np.array(residual_sums(rows.residual[at], (rows.share * times)[at])),
            float(times.sum()),
        )

    def plus(self, other: PassSums) -> PassSums:
        """Return the sums of the rows of both."""
        orders = zip(self.orders, other.orders, strict=True)
        return PassSums(
            tuple(one.plus(two) for one, two in orders),
            self.residual + other.residual,
            self.n_rows + other.n_rows,
        )


def sums_of_chunk(chunk: Chunk, plan: ChunkPlan) -> PassSums:
    """Return the sums of one chunk."""
    if (chunk.cell >= 2 * len(chunk.names)).any():
        raise InputError(
            f"{chunk.origin} holds rows of kind 'target'. From chunks, give the people in question "
            "as target, an array or a data frame in memory."
        )
    return PassSums.of_rows(*plan.rows(chunk), plan)


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
class BinnedTerms:
    """Terms of the bins that have rows, as `RatioTerms` are of rows."""

    sums_of: BinSums
    size: float  # of residuals
    is_plain: bool = False

    @cached_property
    def held(self) -> BoolArray:
        """Which bins have rows."""
        return np.asarray(self.sums_of.count.sum(axis=0) > 0.0)

    @property
    def speaks_for(self) -> float:
        """Share of the target that the answer speaks for, E[omega]."""
        return float(self.sums_of.first[..., 3].sum())

    @property
    def people(self) -> Array:
        """Share of the people spoken for in each bin; they add up to 1."""
        return np.asarray(self.sums_of.first[:, self.held, 3].sum(axis=0) / self.speaks_for)

    def mean(self, column: int) -> Array:
        """Return a mean over the people of each bin: of the effect, the key or the cost."""
        total = self.sums_of.people[self.held, column]
        mass = self.sums_of.first[:, self.held, 3].sum(axis=0)
        mean: Array = np.divide(total, mass, out=np.zeros(len(mass)), where=mass > 0.0)
        return mean

    @property
    def effect(self) -> Array:
        """Mean nuisance uplift of each bin."""
        return self.mean(0)

    @property
    def key(self) -> Array:
        """Mean key of each bin, by people if it has any."""
        mass, total = self.sums_of.key[self.held].T
        return np.where(self.people > 0.0, self.mean(1), total / mass)

    def sums(self, columns: Sequence[Column]) -> Totals:
        """Return the totals of columns, and their covariance."""
        B = int(self.held.sum())
        C = np.zeros((len(columns), B, 5))
        for c, (numerator, denominator, aim) in zip(C, columns, strict=True):
            if self.is_plain:
                c[:, 1], c[:, 4], c[:, 3] = numerator, -np.asarray(numerator), denominator + aim
            else:
                c[:, 1], c[:, 2], c[:, 3] = numerator, denominator, aim
        flat = C.reshape(len(columns), -1)
        value, covariance = np.zeros(len(columns)), np.zeros((len(columns),) * 2)
        for cell in np.flatnonzero(self.sums_of.count.sum(axis=1) > 0.0).tolist():
            n = float(self.sums_of.count[cell].sum())
            second = self.sums_of.second[cell, self.held]
            mean = flat @ self.sums_of.first[cell, self.held].ravel()
            once = flat @ second[..., 0].ravel()  # of p^2 times the column
            both = np.einsum("mbk,bkl->mbl", C, second).reshape(len(columns), -1) @ flat.T
            off = both - np.outer(mean, once) - np.outer(once, mean)
            off += np.outer(mean, mean) * float(second[..., 0, 0].sum())
            value += mean
            covariance += off * (n / (n - 1.0) if n > 1.0 else math.nan)
        return Totals(value, covariance)

    def least_variance(self, inside: BoolArray) -> float:
        """Return the least variance of a group's numerator; nan if a table has too few rows."""
        least = 0.0
        for cell in np.flatnonzero(self.sums_of.count.sum(axis=1) > 0.0).tolist():
            n = float(self.sums_of.count[cell, self.held][inside].sum())
            if n < FEWEST:
                return math.nan
            floor = float(self.sums_of.floor[cell, self.held][inside].sum())
            least += floor * self.size**2 / n
        return least


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
            people = features.numbers(target, table="target")[0]
            refuse_no_target(people)
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
            found = found.plus(PassSums.of_rows(*aside, self.plan))
        return found
