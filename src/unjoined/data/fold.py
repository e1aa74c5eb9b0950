"""The one loop over rows: what is found in parts of them adds up to what is found in all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial, reduce
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from unjoined._support import import_extra
from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array
from unjoined.data.rows import Chunk, NumberedRows, number_rows
from unjoined.data.write import replace_file
from unjoined.errors import TableError

if TYPE_CHECKING:
    from unjoined.data.dask import DaskSource

FAN_IN = 8  # results of Dask partitions that are added up at a time
CHECKPOINT_ROWS = (
    1_000_000  # after which an unfinished pass is written to its checkpoint
)
OWNER = "unjoined-sums-of-passes"  # the array that a checkpoint begins with
Work: TypeAlias = Callable[[NumberedRows, Any, int | None], Any]


class Additive:
    """A data class of sums over rows; those of parts add up, field by field, to those of all."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        """Return the sums over the rows of both; neither argument changes."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(
            *(plus(getattr(self, name), getattr(other, name)) for name in names)
        )


def plus(one: Any, two: Any) -> Any:
    """Add up two things of a kind: numbers, arrays and sums, or lists, tuples and dicts of such."""
    if isinstance(one, Mapping):
        both = {key: plus(one[key], two[key]) for key in one if key in two}
        return {**one, **two, **both}
    if isinstance(one, list | tuple):
        return type(one)(plus(a, b) for a, b in zip(one, two, strict=True))
    return one + two


def fold(
    source: Iterable[Chunk],
    work: Work,
    shared: Any,
    *,
    n_jobs: int | None,
    n_scores: int = 0,
    checkpoint: Checkpoint | None = None,
) -> tuple[Any, int, int]:
    """Return the sum of ``work(rows, shared, n_jobs)`` over all rows that count.

    Also return how many these are and the sum of their digests; of the features the last are
    ``n_scores`` scores. A ``checkpoint`` that holds a part of the pass spares the work on its rows,
    which are read again and must be the same.
    """
    total, begin, expected = (None, 0, 0) if checkpoint is None else checkpoint.read()
    n_rows = digest = 0
    written = begin
    for numbered in number_rows(source):
        rows = numbered.take(numbered.number >= 0)
        skipped = min(max(begin - n_rows, 0), len(rows))
        if skipped:
            digest = (digest + rows_digest(rows.take(slice(skipped)), n_scores)) % 2**64
            n_rows += skipped
            if n_rows == begin and digest != expected:
                raise TableError(
                    "the source has changed since the checkpoint was written: its first rows are "
                    "not those the checkpoint has added up. Delete the checkpoint to start anew; a "
                    "query needs an ORDER BY to be resumed."
                )
            rows = rows.take(slice(skipped, None))
        if not len(rows):
            continue
        part = work(rows, shared, n_jobs)
        total = part if total is None else plus(total, part)
        digest = (digest + rows_digest(rows, n_scores)) % 2**64
        n_rows += len(rows)
        if checkpoint is not None and n_rows - written >= CHECKPOINT_ROWS:
            checkpoint.write(total, n_rows, digest)
            written = n_rows
    return total, n_rows, digest


def fold_partitions(
    source: DaskSource, work: Callable[[NumberedRows, Any], Any], shared: Any
) -> Any:
    """Return the sum of ``work(rows, shared)`` over all partitions; None if there is none.

    They are worked on in parallel, each with BLAS at one thread.
    """
    # Sources of Dask add up themselves, by `plus`.
    from unjoined.data.dask import connected

    if not source.parts:
        return None
    tree = _tree(source.parts, work, shared)
    with connected() as client:
        if client is not None:
            return client.compute(tree).result()
        # Set here as well as by every partition, so that the last one to finish puts back what was
        # there before the first began.
        with threadpool_limits(limits=1, user_api="blas"):
            return tree.compute()


def _tree(
    parts: tuple[Any, ...], work: Callable[[NumberedRows, Any], Any], shared: Any
) -> Any:
    """Return the unevaluated tree: a leaf for each partition, then sums of eight."""
    delayed = import_extra("dask", extra="dask").delayed
    # A task of its own goes to each worker once, as scattered data would. Unlike those it can be
    # made again when all workers that hold it are lost.
    once = delayed(partial(_same, shared), pure=False)()
    leaf = delayed(work, pure=False)
    join = delayed(partial(reduce, plus), pure=False)
    level = [leaf(part, once) for part in parts]
    while len(level) > 1:
        level = [join(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    return level[0]


def _same(shared: Any) -> Any:
    return shared


class Checkpoint:
    """A file of what passes over one source have found, the last of them as far as it has come."""

    def __init__(self, path: str | os.PathLike[str], owner: int) -> None:
        """Read the file, if there is one; ``owner`` is a fingerprint of the source."""
        self.path = Path(path)
        self.arrays: dict[str, Any] = {OWNER: np.array([owner], dtype=np.uint64)}
        self.n_passes = 0
        if self.path.exists():
            kept = _read_arrays(self.path)
            if not np.array_equal(kept[OWNER], self.arrays[OWNER]):
                raise self._other()
            self.arrays = kept

    def begin(self, question: bytes, like: Any) -> None:
        """Begin the next pass, whose sums have the shape of ``like``.

        A file in which this pass was asked for something else is refused.
        """
        self.key, self.like = f"{self.n_passes:03}", like
        self.n_passes += 1
        self.question = np.frombuffer(question, dtype=np.uint8)
        asked = self.arrays.get(f"{self.key}.question")
        if asked is not None and not np.array_equal(asked, self.question):
            raise self._other()

    def read(self) -> tuple[Any, int, int]:
        """Return the sums so far, how many rows they are of, and the sum of their digests."""
        if f"{self.key}.question" not in self.arrays:
            return None, 0, 0
        leaves = (
            self.arrays[f"{self.key}.{i}"] for i in range(len(_leaves(self.like)))
        )
        n_rows, digest = self.arrays[f"{self.key}.position"]
        return _rebuilt(self.like, leaves), int(n_rows), int(digest)

    def write(self, total: Any, n_rows: int, digest: int) -> None:
        """Write the sums of the rows up to a position."""
        position = np.array([n_rows, digest], dtype=np.uint64)
        self.arrays[f"{self.key}.question"] = self.question
        self.arrays[f"{self.key}.position"] = position
        for i, leaf in enumerate(_leaves(total)):
            self.arrays[f"{self.key}.{i}"] = leaf
        replace_file(self.path, self._save)

    def _save(self, file: Path) -> None:
        with file.open("wb") as out:
            np.savez(out, **self.arrays)

    def _other(self) -> TableError:
        return TableError(
            f"the checkpoint {str(self.path)!r} belongs to another fit, or the source has changed "
            "since it was written. Delete it to start anew."
        )


def _read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Return what a checkpoint holds."""
    try:
        with np.load(BytesIO(file.read_bytes()), allow_pickle=False) as archive:
            return {name: archive[name] for name in (OWNER, *archive.files)}
    # Whatever else goes wrong in a file that is damaged, or not a checkpoint, is its fault.
    except Exception as error:
        raise TableError(
            f"{str(file)!r} is not a checkpoint of this fit ({type(error).__name__}: {error}). "
            "Delete it, or name another file."
        ) from error


def _leaves(value: Any) -> list[NDArray[Any]]:
    """Return the arrays and numbers of sums, or of lists and tuples of them, in order."""
    if isinstance(value, Additive):
        value = [getattr(value, field.name) for field in fields(value)]  # type: ignore[arg-type]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [np.asarray(value)]


def _rebuilt(like: Any, leaves: Iterator[NDArray[Any]]) -> Any:
    """Return leaves as sums of the same shape as ``like``."""
    if isinstance(like, Additive):
        names = [field.name for field in fields(like)]  # type: ignore[arg-type]
        return type(like)(*(_rebuilt(getattr(like, name), leaves) for name in names))
    if isinstance(like, list | tuple):
        return type(like)(_rebuilt(part, leaves) for part in like)
    leaf = next(leaves)
    return leaf if isinstance(like, np.ndarray) else type(like)(leaf)


HashArray: TypeAlias = NDArray[np.uint64]
# Odd 64-bit constants of the SplitMix64 finaliser (Steele, Lea and Flood, 2014).
GOLDEN, MIX_1, MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def rows_digest(rows: NumberedRows, n_scores: int = 0) -> int:
    """Return what rows are known by: the sum of hashes of what each holds and where it stands.

    Of the features the last are ``n_scores`` scores, which may differ in the last digit from pass
    to pass and have no say.
    """
    tables = [
        hashlib.sha256(f"{kind} {name}".encode()).digest() for kind, name in rows.tables
    ]
    seeds = np.array([int.from_bytes(table[:8]) for table in tables], dtype=np.uint64)
    state = hash_features(rows.X[:, : rows.X.shape[1] - n_scores]) ^ seeds[rows.cell]
    number = rows.number.astype(np.float64)
    return int(hash_with(state, rows.label, rows.weight, number).sum(dtype=np.uint64))


def hash_features(X: Array) -> HashArray:
    """Return 64 bits for each row that depend on its features alone, shape (n,)."""
    state: HashArray = np.zeros(len(X), dtype=np.uint64)
    for start in range(0, len(X), CACHE_ROWS):
        some = state[start : start + CACHE_ROWS]
        for column in X[start : start + CACHE_ROWS].T:
            _absorb(some, column)
    return state


def hash_with(state: HashArray, *columns: Array) -> HashArray:
    """Return the hashes of rows that have further columns (n,), from those without."""
    hashes = state.copy()
    for start in range(0, len(hashes), CACHE_ROWS):
        for column in columns:
            _absorb(
                hashes[start : start + CACHE_ROWS], column[start : start + CACHE_ROWS]
            )
    return hashes


def _absorb(state: HashArray, column: Array) -> None:
    """Scramble a column into 64-bit integers in place; every input bit moves every output bit."""
    # Adding 0.0 turns -0.0 into 0.0: they are equal and must not differ in bits.
    state ^= (column + 0.0).view(np.uint64)
    state += GOLDEN
    state ^= state >> np.uint64(30)
    state *= MIX_1
    state ^= state >> np.uint64(27)
    state *= MIX_2
    state ^= state >> np.uint64(31)
