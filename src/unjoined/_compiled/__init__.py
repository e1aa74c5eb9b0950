"""Compiled arithmetic of rows; where there is none, numpy does the same but for rounding.

`gaussian_kernel` returns None where the extension was not built, is of no use to the processor, or
is not wanted (``UNJOINED_COMPILED=0``): whoever calls it goes on in numpy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, IntArray

__all__ = ["GaussianKernel", "MeanArrays", "arithmetic", "gaussian_kernel", "plain"]

MAX_FEATURES, MIN_GAUSSIANS = 64, 16  # as in kernels.c


@cache
def extension() -> Any:
    """Return the extension module, or None if there is none or it is not wanted."""
    if os.environ.get("UNJOINED_COMPILED") == "0":
        return None
    try:
        found = import_module("unjoined._compiled._rows")
    except ImportError:
        return None
    return found if found.level() else None


def level() -> int:
    """Return what is made use of: 1 for AVX2 or what the processor has in its place, 2 AVX-512."""
    return int(extension().level())


def arithmetic() -> str:
    """Return what does the arithmetic of rows here: "compiled" or "numpy only"."""
    return "numpy only" if extension() is None else "compiled"


def plain(array: Any) -> NDArray[np.float64]:
    """Return numbers as compiled code reads them, without a copy if they are that already."""
    return np.require(array, dtype=np.float64, requirements=["C", "A"])


class MeanArrays(NamedTuple):
    """What is subtracted from labels: the average of r means, each within a bound; or nothing."""

    coef: Array | None = None  # (r, p) of the basis values
    slope: Array | None = None  # (r, d) of the features
    offset: Array | None = None  # (r,)
    bound: float = np.inf


@dataclass(frozen=True, slots=True)
class GaussianKernel:
    r"""Gaussian functions, and linear ones before them, of features as they came."""

    shift: Array  # (d,) subtracted from the features
    factor: Array  # (d,) by which they are multiplied then
    product: Array  # (d + 2, g) by which rows (z, \|z\|^2, 1) are multiplied to give exponents
    width: float  # linear functions are a constant and ``z * width + origin``
    origin: Array | None  # (d,), None without linear functions
    level: int  # of the processor

    @property
    def p(self) -> int:
        """Number of functions."""
        return int(self.product.shape[1]) + (0 if self.origin is None else 1 + len(self.shift))

    @property
    def _basis(self) -> tuple[Any, ...]:
        return self.shift, self.factor, self.product, self.width, self.origin

    def combine(self, X: Array, at: IntArray | None, coef: Array, out: Array) -> None:
        """Write values at rows (n, d), or at some of them, times ``coef`` (r, p) into ``out``."""
        where = None if at is None else np.ascontiguousarray(at, dtype=np.int64)
        columns = out[:, None] if out.ndim == 1 else out
        extension().combine(self.level, self._basis, X, where, coef, columns)

    def add_up(
        self,
        rows: tuple[Array, IntArray, Array, Array | None],
        sums: tuple[Array, Array, Array | None],
        means: MeanArrays,
    ) -> tuple[float, bool]:
        """Add rows (X, positions, labels, weights) to sums (label_basis, gram, label_cross).

        Of matrices the lower triangles are added to. Returns the sum of weights; and whether
        labels were all -1 or +1 and nothing was subtracted, in which case ``label_cross`` was left
        alone, for it is ``gram`` but for the sign.
        """
        found: tuple[float, bool] = extension().add_up(self.level, self._basis, rows, means, sums)
        return found


def gaussian_kernel(
    shift: Array, factor: Array, product: Array, linear: tuple[float, Array] | None
) -> GaussianKernel | None:
    """Return compiled Gaussian functions, with linear ones if given a width and an origin."""
    d, g = len(shift), product.shape[1]
    if extension() is None or d > MAX_FEATURES or g < MIN_GAUSSIANS:
        return None
    width, origin = linear or (1.0, None)
    own = None if origin is None else plain(origin)
    return GaussianKernel(plain(shift), plain(factor), plain(product), width, own, level())
