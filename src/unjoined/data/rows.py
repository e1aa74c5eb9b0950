"""Rows that passed every check: one small number says a row's kind and population."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from unjoined._typing import (
    Array,
    ArrayLike,
    BoolArray,
    CellArray,
    Frame,
    IntArray,
    MatrixLike,
    RandomState,
)
from unjoined._validation import (
    KINDS,
    NO_LABEL,
    OUTCOME,
    TREATMENT,
    CodeArray,
    OutcomeCoding,
    arm_codes,
    check_cells,
    check_cluster,
    check_count,
    check_known_policy,
    check_labels,
    check_number_type,
    check_outcome,
    check_people,
    check_population,
    check_treatment,
    check_weight,
    dose_spread,
    shown,
    unit_mean,
    warn_of_counts,
)
from unjoined.data.columns import as_floats
from unjoined.errors import InputError, LabelError, UnjoinedWarning

N_GROUPS = 5  # of the people that a row stands for, as many as there are folds
MOST_PEOPLE = 50_000  # of a table whose rows are written out
BESIDE = ("sample_weight", "cluster", "count", "policy")
OF_ALL = ("dose", "control")  # what is said of all rows in one word
MOST_UNITS = 1000  # sums that a variance is made of, where clusters are more


@dataclass(frozen=True)
class Rows:
    """Checked rows. Of m populations, outcomes have the cells 0 to m - 1, treatments the next m."""

    X: Array  # (n, d)
    label: Array  # (n,)
    cell: CellArray  # (n,) kind and population in one; 2 m for target rows
    weight: Array  # (n,) not negative
    names: list[Any]  # of the populations
    beside: ClassVar[tuple[str, ...]] = ("cluster", "count", "joint", "policy")
    # (n,) rows of one cluster depend on each other; None if no row does on another
    cluster: IntArray | None = field(default=None, kw_only=True)
    # (n,) people that a row stands for; None if every row is one
    count: Array | None = field(default=None, kw_only=True)
    # (n,) the treatment, 0 or 1, of outcome rows that have both labels, NaN elsewhere
    joint: Array | None = field(default=None, kw_only=True)
    # (n,) known probability of treatment, NaN elsewhere
    policy: Array | None = field(default=None, kw_only=True)
    # of doses, their standard deviation within populations; None if people are treated or not
    dose: float | None = field(default=None, kw_only=True)
    # names of several treatments, that of none first; labels are places among them
    arms: tuple[str, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    @cached_property
    def _positions(self) -> list[IntArray]:
        return [np.flatnonzero(self.cell == c) for c in range(2 * len(self.names))]

    def all_cells(self) -> list[IntArray]:
        """Return the positions of the rows of each cell, outcomes first."""
        return self._positions

    @property
    def tables(self) -> list[tuple[str, Any]]:
        """Kind and population of each cell, outcomes first."""
        return [(kind, name) for kind in (OUTCOME, TREATMENT) for name in self.names]

    def at(self, kind: str, population: int) -> IntArray:
        """Return the positions of the rows of one cell."""
        return self._positions[KINDS.index(kind) * len(self.names) + population]

    @cached_property
    def is_outcome(self) -> BoolArray:
        """Whether a row's label is an outcome, shape (n,)."""
        return np.asarray(self.cell < len(self.names))

    def of_kind(self, kind: str) -> IntArray:
        """Return the positions of the rows of one kind, outcome or treatment."""
        return np.flatnonzero(self.is_outcome if kind == OUTCOME else ~self.is_outcome)

    @property
    def kind(self) -> NDArray[np.str_]:
        """The kind of each row in words, for people to read."""
        return np.array(KINDS)[self.cell // len(self.names)]

    @property
    def is_used(self) -> BoolArray:
        """Whether a row has a label and a weight, shape (n,)."""
        used = (self.cell < 2 * len(self.names)) & (self.weight > 0.0)
        return np.asarray(used if self.count is None else used & (self.count > 0.0))

    def of_arm(self, X: Array, j: int) -> LabelledRows:
        """Return labelled rows in which treatment j of several stands alone.

        Their policies are real numbers once what goes with other treatments is taken out of them.
        """
        rows = replace(self.as_arm(j), dose=1.0).labelled(X)
        return replace(rows, arms=(self.arms[0], self.arms[j]))

    def as_arm(self, j: int) -> Self:
        """Return rows in which treatment j of several is 1 and every other one is 0."""
        is_it = np.where(np.isnan(self.label), np.nan, self.label == j)
        label = np.where(self.is_outcome, self.label, is_it)
        return replace(self, label=label, arms=())

    def labelled(self, X: Array) -> LabelledRows:
        """Return the rows that have a label and a weight in the inner coding, with features X.

        The weights of each cell are brought to mean 1, so that each table may have its own units.
        """
        if self.arms:
            raise InputError(
                f"these rows have {len(self.arms) - 1} treatments beside {self.arms[0]!r}, and one "
                "at a time is compared here. ArmUplift and evaluate_arms take them all; or merge "
                f"them, treated={shown(self.arms[1:])}."
            )
        used, outcome = self.is_used, self.is_outcome
        coding = check_outcome(self.label[used & outcome], self.dose)
        unit = self.dose or 1.0
        treatment = 2.0 * self.label / unit - 1.0
        label = np.where(outcome, coding.encode(self.label), treatment)
        exposure = self.known_exposure
        rows = LabelledRows(
            X,
            label,
            self.cell,
            self.weight,
            self.names,
            coding,
            cluster=self.cluster,
            count=self.count,
            joint=None if self.joint is None else self.joint / unit,
            policy=None if self.policy is None else self.policy / unit,
            exposure=None if exposure is None else exposure / unit,
            dose=self.dose,
        )
        if self.count is not None:
            at, count, group = self._groups
            weight = self.weight[at] * count
            rows = replace(rows.take(at), weight=weight, count=count, group=group)
        elif not used.all():
            rows = rows.take(used)
        if rows.exposure is not None:
            rows = rows.with_copies()
        return (
            rows if (rows.weight == 1.0).all() else replace(rows, weight=rows.relative)
        )

    @cached_property
    def known_exposure(self) -> Array | None:
        """Treatment of outcome rows or its known probability, NaN where neither is known."""
        return _known_exposure(self.joint, self.policy, self.is_outcome)

    @property
    def positions(self) -> IntArray:
        """Where each of the labelled rows comes from."""
        at = self._groups[0]
        if self.known_exposure is None:
            return at
        is_known = ~np.isnan(self.known_exposure[at]) & self.is_outcome[at]
        return np.concatenate([at, at[is_known]])

    @cached_property
    def _groups(self) -> tuple[IntArray, Array, IntArray]:
        """Positions of rows that count, once for each group of their people; sizes and groups.

        People are dealt into groups as rows are dealt into folds, so that a fit may leave out some
        of the people that a row stands for. Rows of a cluster stay together.
        """
        at = np.flatnonzero(self.is_used)
        count = np.ones(len(at)) if self.count is None else self.count[at]
        if self.count is None or self.cluster is not None:
            return at, count, np.zeros(len(at), dtype=np.int64)
        m = len(self.names)
        each = count.astype(np.int64)
        people = np.repeat(np.arange(len(at)), each)
        cell = np.repeat(self.cell[at], each)
        cells = [np.flatnonzero(cell == c) for c in range(2 * m)]
        fold = _deal_cells(cells, N_GROUPS, np.random.RandomState(0))
        sizes = np.bincount(people * N_GROUPS + fold, minlength=len(at) * N_GROUPS)
        part = np.flatnonzero(sizes)
        own = part // N_GROUPS
        return at[own], sizes[part].astype(np.float64), part % N_GROUPS

    def target(self, X: Array) -> tuple[Array, Array] | None:
        """Return features and weights (of mean 1) of rows without a label, None without any."""
        used = (self.cell == 2 * len(self.names)) & (self.weight > 0.0)
        return (X[used], unit_mean(self.weight[used])) if used.any() else None

    def take(self, at: IntArray | BoolArray | slice) -> Self:
        """Return the rows at some positions, in that order, or those that are marked."""
        beside = {
            name: column[at]
            for name in self.beside
            if (column := getattr(self, name)) is not None
        }
        return replace(
            self,
            X=self.X[at],
            label=self.label[at],
            cell=self.cell[at],
            weight=self.weight[at],
            **beside,
        )


@dataclass(frozen=True)
class LabelledRows(Rows):
    """Labelled rows of all cells in the inner coding: treatments are -1/+1, weights above 0.

    A dose t is 2 t / s - 1, s being the spread of doses. The weight of a row is that of all people
    it stands for.
    """

    coding: OutcomeCoding
    beside: ClassVar[tuple[str, ...]] = (
        *Rows.beside,
        "group",
        "exposure",
        "twin",
        "aside",
        "given",
    )
    # (n,) of the people that a row stands for, if it stands for several
    group: IntArray | None = field(default=None, kw_only=True)
    # (n,) treatment of outcome rows or its known probability, NaN elsewhere; None if nowhere known
    exposure: Array | None = field(default=None, kw_only=True)
    # (n,) the same number for an outcome row and its copy among treatment rows, -1 elsewhere
    twin: IntArray | None = field(default=None, kw_only=True)
    # (n,) what other treatments add to the outcome beyond their policies, at treatment rows
    aside: Array | None = field(default=None, kw_only=True)
    # (n,) chance of the treatment itself, where policies are what others leave of it
    given: Array | None = field(default=None, kw_only=True)

    @property
    def is_dose(self) -> bool:
        """Whether treatments are amounts, rather than one of several or yes and no."""
        return self.dose is not None and not self.arms

    def with_copies(self) -> Self:
        """Return the rows and behind them, as treatment rows, those whose exposure is known."""
        assert self.exposure is not None  # noqa: S101 - it is known somewhere
        own = np.flatnonzero(~np.isnan(self.exposure) & self.is_outcome)
        n = len(self)
        twin = np.full(n, -1, dtype=np.int64)
        twin[own] = np.arange(len(own))
        rows = replace(self, twin=twin).take(np.concatenate([np.arange(n), own]))
        label, cell, exposure = rows.label.copy(), rows.cell.copy(), self.exposure
        label[n:] = 2.0 * exposure[own] - 1.0
        cell[n:] += len(self.names)
        exposure = np.append(exposure, np.full(len(own), np.nan))
        return replace(rows, label=label, cell=cell, exposure=exposure)

    @property
    def is_copy(self) -> BoolArray:
        """Which treatment rows are copies of outcome rows, shape (n,)."""
        if self.twin is None:
            return np.zeros(len(self), dtype=bool)
        return np.asarray((self.twin >= 0) & ~self.is_outcome)

    def without_exposure(self) -> Self:
        """Return the rows with both labels as outcome rows and treatment rows, each by itself.

        Who was treated by choice may differ from who was not, so that nothing is told by comparing
        them within a population.
        """
        return replace(self, exposure=None)

    @property
    def people_weight(self) -> Array:
        """Weight of each row as somebody: copies have none, as they stand there already."""
        return np.where(self.is_copy, 0.0, self.weight)

    def without_copies(self) -> Self:
        """Return the rows without those that `with_copies` put behind them."""
        return replace(self.take(~self.is_copy), twin=None)

    @cached_property
    def people(self) -> list[int]:
        """How many people each cell has."""
        cells = self.all_cells()
        if self.count is None:
            return [len(at) for at in cells]
        return [int(self.count[at].sum()) for at in cells]

    @cached_property
    def n_units(self) -> list[int]:
        """How many rows or, if there are such, clusters each cell has."""
        if self.cluster is None:
            return [len(at) for at in self.all_cells()]
        return [len(np.unique(self.cluster[at])) for at in self.all_cells()]

    @cached_property
    def unit(self) -> IntArray | None:
        """The draw that each row belongs to, below `MOST_UNITS`; None if rows are draws themselves.

        Clusters beyond that number share one, at random: sums over several clusters are
        independent as those over one are.
        """
        if self.cluster is None:
            return None
        if 0 <= self.cluster.min(initial=0) <= self.cluster.max(initial=0) < MOST_UNITS:
            return self.cluster
        names, code = np.unique(self.cluster, return_inverse=True)
        return code if len(names) <= MOST_UNITS else unit_of_clusters(self.cluster)

    def independent(self, rng: np.random.RandomState) -> Self:
        """Return rows that are independent draws, for tests that take them for such.

        One row of each cluster in each cell, by chance. People are written out, of many some.
        Copies are left out.
        """
        if self.twin is not None:
            return self.without_copies().independent(rng)
        if self.cluster is not None:
            order = rng.permutation(len(self))
            cell = self.cell[order].astype(np.int64)
            both = np.column_stack([cell, self.cluster[order]])
            first = np.unique(both, axis=0, return_index=True)[1]
            alone = self.take(np.sort(order[first]))
            return replace(alone, cluster=None, count=None, group=None)
        if self.count is None:
            return self
        some = []
        for at in self.all_cells():
            people = np.repeat(at, self.count[at].astype(np.int64))
            some.append(people[some_rows(len(people), MOST_PEOPLE, rng)])
        return self._people_of(np.sort(np.concatenate(some)))

    def written_out(self) -> Self:
        """Return a row for each person."""
        if self.count is None:
            return self
        return self._people_of(
            np.repeat(np.arange(len(self)), self.count.astype(np.int64))
        )

    def _people_of(self, at: IntArray) -> Self:
        """Return one person of each of the rows at some positions."""
        rows = replace(self.take(at), count=None, group=None)
        count = np.ones(len(at)) if self.count is None else self.count[at]
        return replace(rows, weight=rows.weight / count)

    def deal(self, n_folds: int, rng: np.random.RandomState) -> IntArray:
        """Deal the rows of each cell evenly into folds, at most as many as it has rows.

        Outcome rows are dealt into the same folds as treatment rows, so that both terms of a ratio
        average over the same estimates. Rows of a cluster are in one fold, in whatever cells.
        """
        if self.twin is not None:
            copy = self.is_copy
            fold = np.empty(len(self), dtype=np.int64)
            fold[~copy] = self.without_copies().deal(n_folds, rng)
            of_twin = np.zeros(self.twin.max() + 1, dtype=np.int64)
            of_twin[self.twin[~copy]] = fold[~copy]
            fold[copy] = of_twin[self.twin[copy]]
            return fold
        cells = self.all_cells()
        if self.cluster is not None:
            return _deal_clusters(
                [(at, self.cluster[at]) for at in cells], n_folds, rng
            )
        if self.group is not None:
            for (
                n
            ) in self.people:  # as if people were dealt: what is drawn next is the same
                rng.permutation(n)
            return self.group % n_folds
        return _deal_cells(cells, n_folds, rng)

    @cached_property
    def population(self) -> IntArray:
        """The population of each row, 0 to m - 1."""
        return (self.cell % len(self.names)).astype(np.int64)

    @property
    def sign(self) -> Array:
        """The paper's (-1)^(k-1): +1 in the first of two populations, -1 in the second."""
        return np.where(self.population == 0, 1.0, -1.0)

    @property
    def share(self) -> Array:
        """Row weights under which each cell counts the same and each kind adds up to one."""
        share = np.empty(len(self.label))
        for at in self.all_cells():
            share[at] = self.weight[at] / (len(self.names) * self.weight[at].sum())
        return share

    @property
    def relative(self) -> Array:
        """Row weights of mean 1 in each cell, also for a sample that stands for more rows."""
        relative = np.empty(len(self.label))
        for at in self.all_cells():
            relative[at] = unit_mean(self.weight[at])
            if self.count is not None:  # of mean 1 over people
                people = float(self.count[at].sum())
                relative[at] = self.weight[at] * (people / self.weight[at].sum())
        return relative


def _known_exposure(
    joint: Array | None, policy: Array | None, is_outcome: BoolArray
) -> Array | None:
    """Return treatment or its known probability, None if no outcome row has either.

    At treatment rows it is a claim that their treatments test.
    """
    known = joint if policy is None else policy
    if known is None:
        return None
    if joint is not None:
        known = np.where(np.isnan(joint), known, joint)
    return known if (is_outcome & ~np.isnan(known)).any() else None


def unit_of_clusters(cluster: IntArray) -> IntArray:
    """Return numbers below `MOST_UNITS` that are hashed from clusters, the same in all chunks."""
    mixed = cluster.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(MOST_UNITS)).astype(np.int64)


def some_rows(n: int, most: int, rng: np.random.RandomState) -> IntArray:
    """Return the positions of at most so many of ``n`` rows, in order; all if they are few."""
    if n <= most:
        return np.arange(n)
    return np.sort(rng.permutation(n)[:most])


def deal_rows(n: int, n_folds: int, rng: np.random.RandomState) -> IntArray:
    """Return a fold for each of ``n`` rows, all folds of the same size to one row."""
    return np.asarray(rng.permutation(np.resize(np.arange(n_folds), n)), dtype=np.int64)


def _deal_cells(
    cells: list[IntArray], n_folds: int, rng: np.random.RandomState
) -> IntArray:
    """Return the folds of rows, those of each cell being dealt evenly."""
    fold = np.zeros(sum(map(len, cells)), dtype=np.int64)
    for at in cells:
        fold[at] = deal_rows(len(at), min(n_folds, len(at)), rng)
    m = len(cells) // 2
    for kind in (cells[:m], cells[m:]):
        if max(map(len, kind)) == 1:  # a fold of all would leave nothing to fit
            fold[np.concatenate(kind)] = np.arange(m) % n_folds
    return fold


def _deal_clusters(
    cells: list[tuple[IntArray, IntArray]], n_folds: int, rng: np.random.RandomState
) -> IntArray:
    """Return the folds of rows whose clusters are dealt, those of the smallest table first.

    Of each cell there are the rows' positions and their clusters. Large clusters go first, to and
    fro, so that folds have about as many rows.
    """
    names, code = np.unique(
        np.concatenate([cluster for _, cluster in cells]), return_inverse=True
    )
    ends = np.cumsum([len(at) for at, _ in cells])[:-1]
    codes = np.split(code, ends)
    dealt = np.full(len(names), -1, dtype=np.int64)
    for own in sorted(codes, key=lambda own: len(np.unique(own))):
        new, size = np.unique(own[dealt[own] < 0], return_counts=True)
        order = rng.permutation(len(new))
        order = order[np.argsort(-size[order], kind="stable")]
        turn = np.arange(min(n_folds, len(np.unique(own))))
        dealt[new[order]] = np.resize(np.concatenate([turn, turn[::-1]]), len(new))
    fold = np.empty(len(code), dtype=np.int64)
    fold[np.concatenate([at for at, _ in cells])] = dealt[code]
    return fold


@dataclass(frozen=True)
class Chunk(Rows):
    """Some consecutive rows of a source, checked, and where they come from.

    Labels are as the user has them, NaN for target rows. ``names`` are the populations found in
    this chunk.
    """

    origin: str  # what messages call the file, table or chunk
    first_row: int  # position of the first row there, counting from 0
    # Of the features; None if they have none, () if only the source can tell.
    feature_names: tuple[str, ...] | None = ()

    @property
    def population(self) -> NDArray[Any]:
        """The name of each row's population; of target rows it means nothing."""
        return np.asarray(self.names)[self.cell % len(self.names)]

    def counted(self) -> list[IntArray]:
        """Return the positions of the rows of each cell that have a weight, outcomes first."""
        return [at[self.weight[at] > 0.0] for at in self.all_cells()]

    def written_out(self, most: int) -> Iterator[Self]:
        """Yield a row for each person, at most so many at a time; all rows are of one kind."""
        if self.count is None or not len(self):
            yield replace(self, count=None)
            return
        label = "y" if self.is_outcome.all() else "treatment"
        columns = {label: self.label, "count": self.count}
        at, given = spread_shares(columns, len(self))
        ends = np.cumsum(given["count"].astype(np.int64))
        for start in range(0, int(ends[-1]), most):
            people = np.arange(start, min(start + most, int(ends[-1])))
            own = np.searchsorted(ends, people, side="right")
            yield replace(self.take(at[own]), label=given[label][own], count=None)

    def table_sizes(self) -> Counter[tuple[str, Any]]:
        """Return how many rows of each table count."""
        return Counter(dict(zip(self.tables, map(len, self.counted()), strict=True)))


@dataclass(frozen=True, kw_only=True)
class NumberedRows(Chunk):
    """A chunk whose rows know their numbers within their tables.

    A table is a kind and a population. Rows with a label and a weight count, in the order in which
    the source gives them. So numbers depend neither on how rows are cut into chunks nor on which
    table comes first.
    """

    number: IntArray  # (n,) counting from 0; -1 for rows that do not count

    @classmethod
    def of_chunk(
        cls, chunk: Chunk, before: Mapping[tuple[str, Any], int]
    ) -> NumberedRows:
        """Return a chunk with numbers, of whose tables so many rows came before."""
        number = np.full(len(chunk), -1, dtype=np.int64)
        for table, at in zip(chunk.tables, chunk.counted(), strict=True):
            number[at] = before.get(table, 0) + np.arange(len(at))
        return cls(
            chunk.X,
            chunk.label,
            chunk.cell,
            chunk.weight,
            chunk.names,
            chunk.origin,
            chunk.first_row,
            chunk.feature_names,
            number=number,
            cluster=chunk.cluster,
        )

    def take(self, at: IntArray | BoolArray | slice) -> Self:
        """Return the rows at some positions, in that order, or those that are marked."""
        return replace(super().take(at), number=self.number[at])


def number_rows(chunks: Iterable[Chunk]) -> Iterator[NumberedRows]:
    """Yield the chunks of a source with the numbers of their rows."""
    before: Counter[tuple[str, Any]] = Counter()
    for chunk in chunks:
        yield NumberedRows.of_chunk(chunk, before)
        before.update(chunk.table_sizes())


def cell_codes(code: CodeArray | int, index: IntArray, m: int) -> CellArray:
    """Return the cells of rows of a kind each, or all of one, and populations 0 to m - 1."""
    populations = np.where(np.asarray(code) == NO_LABEL, 0, index)
    cells = np.multiply(code, m, dtype=np.int64) + populations
    return np.asarray(cells).astype(np.uint8 if m < 128 else np.uint16)


def separate_labels(label: ArrayLike, kind: ArrayLike) -> dict[str, Any]:
    """Return a column of labels of the kinds named as two, ``y`` and ``treatment``."""
    kinds = np.asarray(kind)
    return {
        "y": np.where(kinds == OUTCOME, label, np.nan),
        "treatment": np.where(kinds == TREATMENT, label, np.nan),
    }


def spread_shares(
    columns: Mapping[str, Any], n: int
) -> tuple[IntArray, dict[str, Any]]:
    """Return columns in which a row that holds a share of its people is two, and their positions.

    A share of outcomes 0 and 1, or of those treated, becomes a row of ones and one of zeros.
    """
    count = check_people(columns.get("count"), n)
    assert count is not None  # noqa: S101 - there is one
    given = {"y": None, "treatment": None, **columns, "count": count}
    at = np.arange(n)
    ones = count.copy()  # people whose label is the one given
    shares: dict[str, BoolArray] = {}
    is_named = columns.get("dose") or columns.get("control") is not None
    for name in ("y",) if is_named else ("treatment", "y"):
        label = np.asarray(columns.get(name))
        if label.dtype.kind not in "fiub":  # words
            continue
        values = label.astype(np.float64)
        between = (values > 0.0) & (values < 1.0)
        outside = (values < 0.0) | (values > 1.0)
        if not between.any() or (name == "y" and outside.any()):
            continue  # an amount, or no share at all
        some = values * count
        off = between & (np.abs(some - np.round(some)) > 1e-6 * np.maximum(count, 1.0))
        if off.any() and name == "y":
            first = int(np.argmax(off))
            warnings.warn(
                f"the outcome of row {first} is {values[first]:g}, which is no share of its "
                f"{count[first]:g} people: outcomes are taken for amounts that each of them has, "
                "and errors come out too small. Give shares with all of their digits, or 0 and 1.",
                UnjoinedWarning,
                stacklevel=3,
            )
            continue
        if off.any():
            first = int(np.argmax(off))
            raise LabelError(
                f"row {first} holds a share of {values[first]:g} of {count[first]:g} people, which "
                f"is {some[first]:g} of them. Give shares with all of their digits, or 0 and 1."
            )
        shares[name] = between
        ones = np.where(between, np.round(some), ones)
        given[name] = np.where(between, 1.0, values)
    _refuse_shares_of_both(shares, columns)
    two = np.flatnonzero(ones < count)
    order = np.argsort(np.concatenate([at, two]), kind="stable")
    index = np.concatenate([at, two])[order]
    given = {
        name: v if v is None or name in OF_ALL else np.asarray(v)[index]
        for name, v in given.items()
        if name != "X"
    }
    is_rest = order >= n
    given["count"] = np.where(is_rest, (count - ones)[index], ones[index])
    for name, between in shares.items():
        given[name] = np.where(is_rest & between[index], 0.0, given[name])
    return index, given


def _refuse_shares_of_both(
    shares: Mapping[str, BoolArray], columns: Mapping[str, Any]
) -> None:
    """Refuse a share of people treated beside their outcome: it does not say whose is whose."""
    if "treatment" not in shares or columns.get("y") is None:
        return
    y = np.asarray(columns["y"])
    if y.dtype.kind not in "fiub":
        return
    if (both := shares["treatment"] & ~np.isnan(y.astype(np.float64))).any():
        raise LabelError(
            f"{int(both.sum())} rows have an outcome, and a share of their people were treated "
            f"(first at row {int(np.argmax(both))}). That does not say whose outcome it is: give "
            "the treated and the others in rows of their own."
        )


def check_rows(
    columns: Mapping[str, ArrayLike | None], n: int
) -> tuple[Rows, NDArray[Any]]:
    """Check the labels of ``n`` rows, and return the rows without features, and populations.

    ``columns`` are the arguments of ``fit`` beside the features. Treatments become 0 and 1. The
    population of a row without a label is empty, or None beside numbers.
    """
    population = columns.get("population")
    if population is None:
        raise InputError("population is missing: name the population of every row.")
    known = (*BESIDE, *OF_ALL)
    if unknown := set(columns) - {"X", "y", "treatment", "population", *known}:
        raise InputError(
            f"{sorted(unknown)[0]!r} is no column of rows; there are {', '.join(known)}."
        )
    is_dose = bool(columns.get("dose"))
    columns = dict(columns)
    arms: tuple[str, ...] = ()
    if (control := columns.get("control")) is not None:
        columns["treatment"], arms = arm_codes(columns.get("treatment"), control, n)
        _check_arms(columns)
    label, code, joint = check_labels(columns.get("y"), columns.get("treatment"), n)
    populations = check_population(population, code)
    policy = check_known_policy(columns.get("policy"), n, is_dose=is_dose)
    weight = check_weight(columns.get("sample_weight"), n)
    count = check_people(columns.get("count"), n)
    if count is None:
        warn_of_counts(weight, stacklevel=4)
    else:
        weight = np.where(count > 0.0, weight, 0.0)
    treated = (code == KINDS.index(TREATMENT)) & (weight > 0.0)
    both = treated & False if joint is None else ~np.isnan(joint) & (weight > 0.0)
    codes = label[treated] if joint is None else np.append(label[treated], joint[both])
    if not (is_dose or arms):
        codes = (check_treatment(codes) + 1.0) / 2.0
        label[treated] = codes[: int(treated.sum())]
        if joint is not None:
            joint[both] = codes[int(treated.sum()) :]
    exposure = _known_exposure(joint, policy, code == KINDS.index(OUTCOME))
    names, index = check_cells(code, populations, weight, exposure)
    dose = None
    if is_dose:
        own = np.append(index[treated], index[both])
        if exposure is not None:  # where no treatment shows how far doses spread
            there = ~np.isnan(exposure) & ~both & (weight > 0.0)
            codes, own = (
                np.append(codes, exposure[there]),
                np.append(own, index[there]),
            )
        dose = dose_spread(codes, own)
    rows = Rows(
        np.empty((n, 0)),
        label,
        cell_codes(code, index, len(names)),
        weight,
        names,
        cluster=check_cluster(columns.get("cluster"), n),
        count=count,
        joint=joint,
        policy=policy,
        dose=dose,
        arms=arms,
    )
    check_clusters(rows)
    check_outcome(label[rows.is_used & rows.is_outcome], dose)
    if (target := code == NO_LABEL).any():
        is_text = populations.dtype.kind == "U"
        populations = populations.copy() if is_text else populations.astype(object)
        populations[target] = "" if is_text else None
    return rows, populations


def _check_arms(columns: Mapping[str, Any]) -> None:
    """Refuse what several treatments cannot have."""
    for name, what in (("dose", "doses"), ("policy", "known policies")):
        if columns.get(name) is not None:
            raise InputError(
                f"several treatments (control={columns['control']!r}) cannot have {what} yet. "
                f"Leave {name} out."
            )


def check_clusters(rows: Rows) -> None:
    """Refuse a table that is one cluster, whose spread nothing would show."""
    if rows.cluster is None:
        return
    for (kind, name), at in zip(rows.tables, rows.all_cells(), strict=True):
        if len(at) and len(np.unique(rows.cluster[at])) == 1:
            raise LabelError(
                f"all {len(at):,} rows of the {kind} table of population {name!r} are in one "
                "cluster. Rows of a cluster count as one draw, so that every table needs two "
                "clusters or more, better thirty. Give the households, stores or customers that "
                "rows belong to, not the population."
            )


def label_rows(X: Array, **columns: ArrayLike | None) -> LabelledRows:
    """Check labels and return the rows that carry one, in the inner coding; ``X`` is trusted."""
    return check_rows(columns, len(X))[0].labelled(X)


def number_matrix(X: MatrixLike, order: Literal["C", "F"] = "C") -> Array:
    """Return features that are numbers or booleans as a float64 matrix, NaN where there is none."""
    try:
        if nw.dependencies.is_into_dataframe(X):
            frame = nw.from_native(X, eager_only=True)
            matrix = np.empty(frame.shape, order=order)
            for j, name in enumerate(frame.columns):
                matrix[:, j] = as_floats(frame.get_column(name))
            return matrix
        check_number_type("features", X)
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"features must be numbers: {error}.") from error
    if matrix.ndim != 2:
        raise InputError(
            f"X must be two-dimensional (rows by features), got shape {matrix.shape}. "
            "Reshape a single feature with X.reshape(-1, 1)."
        )
    return matrix


def rebuild_frame(matrix: Array, names: Sequence[str], *, like: Frame) -> Frame:
    """Return ``matrix`` as a data frame of the same library as ``like``."""
    backend = nw.from_native(like, eager_only=True).implementation
    columns = {
        name: matrix[:, j] for j, name in enumerate(names)
    }  # names may be numbers
    return nw.from_dict(columns, backend=backend).to_native()


class CellKFold(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn carries no types
    """K folds that deal the rows of each kind and population out evenly.

    Separate labels usually come table after table, so that plain `KFold` would leave whole
    tables out. Pass ``cv=CellKFold(5)`` to `GridSearchCV`, with metadata routing on.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2 and at most the rows of the smallest table.
    random_state : int, RandomState or None, default=0
        Seed for the dealing.

    Examples
    --------
    >>> from unjoined.data import CellKFold, paper_problem
    >>> data = paper_problem().draw(10, random_state=0)
    >>> train, test = next(CellKFold(5).split(**data))
    >>> data.take(test)
    SeparateLabels of 8 rows, 2 features
      outcome   1: 2 rows, mean ...
    """

    # How scikit-learn lets a splitter ask for metadata.
    __metadata_request__split = {  # noqa: RUF012
        "treatment": True,
        "population": True,
        "sample_weight": False,
        "cluster": False,
        "count": False,
        "policy": False,
    }

    def __init__(self, n_splits: int = 5, *, random_state: RandomState = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def split(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        groups: Any = None,
        *,
        treatment: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        count: ArrayLike | None = None,
        policy: ArrayLike | None = None,
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the positions of training and held-out rows, fold after fold.

        Parameters
        ----------
        X, groups, sample_weight, count, policy
            Not looked at.
        y, treatment, population : array-like of shape (n,)
            As in ``fit``. Rows without a label are dealt out as well.
        cluster : array-like of shape (n,), optional
            Rows of one cluster are held out together.
        """
        n_splits = check_count("n_splits", self.n_splits)
        n = len(np.asarray(population))
        _, code, _ = check_labels(y, treatment, n)
        populations = check_population(population, code)
        cells = np.where(code == NO_LABEL, "", populations.astype(str))
        rng = check_random_state(self.random_state)
        fold = np.empty(n, dtype=np.int64)
        kinds = np.array(KINDS)[code]
        keys = check_cluster(cluster, n)
        clusters: list[tuple[IntArray, IntArray]] = []
        # Sorted, since sets of strings come in another order in every process.
        for name, cell in sorted({*zip(kinds.tolist(), cells.tolist(), strict=True)}):
            at = np.flatnonzero((kinds == name) & (cells == cell))
            n_units = len(at) if keys is None else len(np.unique(keys[at]))
            if n_splits < 2 or (n_units < n_splits and cell):
                units = "rows" if keys is None else "clusters"
                raise InputError(
                    f"n_splits={n_splits} must be at least 2 and at most the {units} of the "
                    f"smallest table; the {name} table of population {cell!r} has {n_units}."
                )
            if keys is None:
                fold[at] = deal_rows(len(at), n_splits, rng)
            else:
                clusters.append((at, keys[at]))
        if keys is not None:
            fold = _deal_clusters(clusters, n_splits, rng)
        for j in range(n_splits):
            yield np.flatnonzero(fold != j), np.flatnonzero(fold == j)

    def get_n_splits(
        self, X: Any = None, y: Any = None, groups: Any = None, **_: Any
    ) -> int:
        """Return the number of folds."""
        return self.n_splits
