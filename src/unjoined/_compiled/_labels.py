"""A look at columns of labels."""

from __future__ import annotations

from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._compiled._library import LabelBlock, Labels, Library, address, library
from unjoined._typing import Array
from unjoined.errors import InputError

__all__ = ["LabelKernel", "ScannedLabels", "label_kernel"]

CODES = (0.0, 1.0, -1.0)


class ScannedLabels(NamedTuple):
    """What some rows hold."""

    cells: frozenset[int]  # 2 for treatments and 1 for the second population, added up
    outcomes: tuple[float, ...]  # different ones, at most three
    codes: frozenset[float]  # of treatments


class LabelKernel:
    """Columns of labels of two kinds and populations.

    Parameters
    ----------
    functions : Library
        The loaded functions.
    y : array of shape (n,)
        Labels.
    kind, population : arrays of shape (n,)
        Words or numbers.
    kinds, populations : pairs
        The two that either may hold, in the order in which they are numbered.
    """

    def __init__(
        self,
        functions: Library,
        y: Array,
        kind: NDArray[Any],
        population: NDArray[Any],
        kinds: tuple[str, str],
        populations: tuple[Any, Any],
    ) -> None:
        words = [np.array([word], dtype=kind.dtype) for word in kinds]
        names = [np.array([name], dtype=population.dtype) for name in populations]
        self._arrays = [y, kind, population, *words, *names]  # kept for their addresses
        self._n = len(y)
        self._labels = Labels(
            address("y", y, self._n),
            address("kind", kind, self._n, dtype=words[0].dtype),
            address("population", population, self._n, dtype=names[0].dtype),
            *(kind.itemsize, population.itemsize),
            *(address("a word", array, 1, dtype=array.dtype) for array in (*words, *names)),
        )
        self._scan = functions.scan

    def __call__(self, start: int, stop: int, cell: NDArray[np.uint8]) -> ScannedLabels | None:
        """Return what rows hold and write their cells, or None if a row is unusual."""
        if not 0 <= start <= stop <= self._n:
            raise InputError(f"rows must be from 0 to {self._n}, got {start} to {stop}.")
        found, to = LabelBlock(), address("cell", cell, self._n, dtype=np.uint8, written=True)
        if not self._scan(byref(self._labels), start, stop, to, byref(found)):
            return None
        return ScannedLabels(
            frozenset(c for c in range(4) if found.cells >> c & 1),
            tuple(found.values[: found.n_values]),
            frozenset(code for c, code in enumerate(CODES) if found.codes >> c & 1),
        )


def label_kernel(
    y: Array,
    kind: NDArray[Any],
    population: NDArray[Any],
    kinds: tuple[str, str],
    populations: tuple[Any, Any],
) -> LabelKernel | None:
    """Return a compiled look at columns, or None: see `LabelKernel` for the arguments."""
    functions = library()
    columns = (y, kind, population)
    as_needed = all(a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative for a in columns)
    # Shorter words would be cut off and found where they are not.
    if functions is None or not as_needed or kind.itemsize < 4 * max(map(len, kinds)):
        return None
    return LabelKernel(functions, y, kind, population, kinds, populations)
