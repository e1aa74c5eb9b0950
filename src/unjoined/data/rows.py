"""Rows that passed every check: one small number says a row's kind and population."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from unjoined._threads import CHUNK_ROWS, over_pieces
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
    LARGEST,
    OUTCOME,
    SMALLEST,
    TARGET,
    TREATMENT,
    OutcomeCoding,
    check_cells,
    check_count,
    check_kind,
    check_labels,
    check_names,
    check_number_type,
    check_outcome,
    check_population,
    check_treatment,
    check_weight,
    is_kind,
    unit_mean,
)
from unjoined.data.columns import as_floats
from unjoined.errors import InputError

SOME_ROWS = 1000  # from first to last: these usually show both populations


@dataclass(frozen=True)
class Rows:
    """Checked rows. Of m populations, outcomes have the cells 0 to m - 1, treatments the next m."""

    X: Array  # (n, d)
    label: Array  # (n,)
    cell: CellArray  # (n,) kind and population in one; 2 m for target rows
    weight: Array  # (n,) not negative
    names: list[Any]  # of the populations

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

    def take(self, at: IntArray | BoolArray | slice) -> Self:
        """Return the rows at some positions, in that order, or those that are marked."""
        return replace(
            self, X=self.X[at], label=self.label[at], cell=self.cell[at], weight=self.weight[at]
        )


@dataclass(frozen=True)
class LabelledRows(Rows):
    """Labelled rows of all cells in the inner coding: treatments are -1/+1, weights above 0."""

    coding: OutcomeCoding

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
        return relative


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
    def of_chunk(cls, chunk: Chunk, before: Mapping[tuple[str, Any], int]) -> NumberedRows:
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


def cell_codes(kind: NDArray[np.str_] | str, index: IntArray, m: int) -> CellArray:
    """Return the cells of rows of a kind each, or all of one, and populations 0 to m - 1."""
    if isinstance(kind, str):
        code: Any = KINDS.index(kind) * m
        index = np.zeros_like(index) if kind == TARGET else index
    else:
        target = is_kind(kind, TARGET)
        code = is_kind(kind, TREATMENT) * m + target * 2 * m
        index = np.where(target, 0, index)
    return np.asarray(code + index).astype(np.uint8 if m < 128 else np.uint16)


def label_rows(
    X: Array,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    several: bool = False,
    n_jobs: int | None = None,
) -> LabelledRows:
    """Check labels and return the rows that carry one, in the inner coding; ``X`` is trusted.

    Target rows and rows of weight 0 are left out: neither has a say in what the labels tell. The
    weights of each cell are brought to mean 1, so that each table may have its own units.
    """
    n = len(X)
    clean = None if sample_weight is not None else scan_labels(y, kind, population, n, n_jobs)
    if clean is not None:
        check_names(clean.names)
        return LabelledRows(X, clean.label, clean.cell, np.ones(n), clean.names, clean.coding)
    kinds = check_kind(kind, n)
    labels = check_labels(y, kinds)
    populations = check_population(population, kinds)
    weight = check_weight(sample_weight, n)
    names, index = check_cells(kinds, populations, weight, several=several)
    cell, m = cell_codes(kinds, index, len(names)), len(names)
    used = (cell < 2 * m) & (weight > 0.0)
    outcome, treatment = used & (cell < m), used & (cell >= m)
    coding = check_outcome(labels[outcome])
    label = labels.copy()
    label[outcome] = coding.encode(labels[outcome])
    label[treatment] = check_treatment(labels[treatment])
    rows = LabelledRows(X, label, cell, weight, names, coding)
    if not used.all():
        rows = rows.take(used)
    return rows if sample_weight is None else replace(rows, weight=rows.relative)


def target_rows(
    X: Array, kind: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Array, Array] | None:
    """Return features and weights (of mean 1) of the target rows that count, None without any."""
    weight = check_weight(sample_weight, len(X))
    used = is_kind(check_kind(kind, len(X)), TARGET) & (weight > 0.0)
    return (X[used], unit_mean(weight[used])) if used.any() else None


class ScannedLabels(NamedTuple):
    """What some rows hold."""

    cells: frozenset[int]  # 2 for treatments and 1 for the second population, added up
    outcomes: tuple[float, ...]  # different ones, at most three
    codes: frozenset[float]  # of treatments


class CleanLabels(NamedTuple):
    """Labels in the inner coding, and what their columns were found to hold."""

    label: Array  # (n,)
    cell: CellArray  # (n,)
    names: list[Any]
    coding: OutcomeCoding


def scan_labels(
    y: Any, kind: Any, population: Any, n: int, n_jobs: int | None = None
) -> CleanLabels | None:
    """Return plain labels of two populations in one pass, or None if anything is unusual."""
    if not _plain(y, kind, population, n):
        return None
    names = np.unique(population[:: max(n // SOME_ROWS, 1)])
    if len(names) != 2:
        return None
    number, cell = np.asarray(y, dtype=np.float64), np.empty(n, dtype=np.uint8)
    if not -LARGEST <= number.min() <= number.max() <= LARGEST:
        return None
    both = (names[0], names[1])

    def look(start: int) -> ScannedLabels | None:
        block = slice(start, start + CHUNK_ROWS)
        return _look(number[block], kind[block], population[block], both, cell[block])

    starts = range(0, n, CHUNK_ROWS)
    found = list(over_pieces(look, starts, n_jobs))
    blocks = [block for block in found if block is not None]
    if len(blocks) < len(found) or len(frozenset().union(*(b.cells for b in blocks))) < 4:
        return None
    coding = _coding([value for block in blocks for value in block.outcomes])
    codes = frozenset().union(*(block.codes for block in blocks))
    if coding is None or not (codes <= {0.0, 1.0} or codes <= {-1.0, 1.0}):
        return None
    label = np.empty(n)

    def encode(start: int) -> None:
        block = slice(start, start + CHUNK_ROWS)
        raw, of_cell = number[block], cell[block]
        treatment = np.where(raw > 0.0, 1.0, -1.0)  # in either coding
        label[block] = np.where(of_cell < 2, coding.encode(raw), treatment)

    for _ in over_pieces(encode, starts, n_jobs):
        pass
    return CleanLabels(label, cell, names.tolist(), coding)


def _coding(outcomes: list[float]) -> OutcomeCoding | None:
    """Return the coding of outcomes of which some are known, more than two if there are more."""
    values = np.unique(outcomes)
    if len(values) < 2 or values[-1] - values[0] < SMALLEST:
        return None
    if len(values) > 2:
        return OutcomeCoding(0.0, 1.0, is_binary=False)
    low, high = values.tolist()
    return OutcomeCoding((low + high) / 2.0, (high - low) / 2.0, is_binary=True)


def _plain(y: Any, kind: Any, population: Any, n: int) -> bool:
    """Whether the columns are arrays of n numbers, words, and whole numbers or words."""
    columns = (y, kind, population)
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in columns):
        return False
    return (
        len(y) == len(kind) == len(population) == n
        and y.dtype.kind in "biuf"
        and kind.dtype.kind == "U"
        and population.dtype.kind in "biuU"
    )


def _look(
    y: Array, kind: NDArray[np.str_], population: NDArray[Any], names: Any, cell: CellArray
) -> ScannedLabels | None:
    """Return what a block holds and write its cells, or None if a row is unusual."""
    outcome, second = kind == OUTCOME, population == names[1]
    treatment = ~outcome
    if not (outcome | (kind == TREATMENT)).all() or not (second | (population == names[0])).all():
        return None
    outcomes, codes = y[outcome], y[treatment]
    zeros, ones = codes == 0, codes == 1
    if not (zeros | ones).all() and not (ones | (codes == -1)).all():
        return None
    np.multiply(treatment, 2, out=cell, casting="unsafe")
    cell += second
    cells = frozenset(np.flatnonzero(np.bincount(cell)).tolist())
    return ScannedLabels(cells, _some(outcomes), frozenset(_distinct(codes, zeros, ones)))


def _distinct(codes: NDArray[Any], zeros: Any, ones: Any) -> set[float]:
    found = {1.0} if ones.any() else set()
    if len(codes) and not ones.all():
        found.add(0.0 if zeros.any() else -1.0)
    return found


def _some(outcomes: NDArray[Any]) -> tuple[float, ...]:
    """Return the least and the greatest value and, if there are more than two, another one."""
    if not len(outcomes):
        return ()
    low, high = outcomes.min(), outcomes.max()
    between = (outcomes != low) & (outcomes != high)
    ends = (float(low), float(high))
    return (*ends, float(outcomes[np.argmax(between)])) if between.any() else ends


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
    columns = {name: matrix[:, j] for j, name in enumerate(names)}  # names may be numbers
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
    __metadata_request__split = {"kind": True, "population": True, "sample_weight": False}  # noqa: RUF012

    def __init__(self, n_splits: int = 5, *, random_state: RandomState = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def split(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        groups: Any = None,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the positions of training and held-out rows, fold after fold.

        Parameters
        ----------
        X, y, groups, sample_weight
            Not looked at, but for the number of rows.
        kind, population : array-like of shape (n,)
            As in ``fit``. Target rows are dealt out as well.
        """
        n_splits = check_count("n_splits", self.n_splits)
        n = len(np.asarray(kind))
        kinds = check_kind(kind, n)
        populations = check_population(population, kinds)
        cells = np.where(kinds == TARGET, "", populations.astype(str))
        rng = check_random_state(self.random_state)
        fold = np.empty(n, dtype=np.int64)
        # Sorted, since sets of strings come in another order in every process.
        for name, cell in sorted({*zip(kinds.tolist(), cells.tolist(), strict=True)}):
            at = np.flatnonzero((kinds == name) & (cells == cell))
            if n_splits < 2 or (len(at) < n_splits and name != TARGET):
                raise InputError(
                    f"n_splits={n_splits} must be at least 2 and at most the rows of the smallest "
                    f"table; the {name} table of population {cell!r} has {len(at)}."
                )
            fold[at] = rng.permutation(np.resize(np.arange(n_splits), len(at)))
        for j in range(n_splits):
            yield np.flatnonzero(fold != j), np.flatnonzero(fold == j)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, **_: Any) -> int:
        """Return the number of folds."""
        return self.n_splits
