"""Types used throughout the package."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Array",
    "ArrayLike",
    "Basis",
    "BoolArray",
    "CellArray",
    "Frame",
    "IntArray",
    "MatrixLike",
    "RandomState",
]


Array: TypeAlias = NDArray[np.float64]


"""Float64 array; the docstring gives its shape."""


IntArray: TypeAlias = NDArray[np.int64]


BoolArray: TypeAlias = NDArray[np.bool_]


CellArray: TypeAlias = NDArray[np.uint8]


"""The cell of each row, of two populations: 2 for treatments and 1 for the second, added up."""


Frame: TypeAlias = Any


"""A data frame that narwhals reads: pandas, polars or pyarrow."""


MatrixLike: TypeAlias = Any


"""What scikit-learn takes as ``X``: a two-dimensional array or a data frame."""


RandomState: TypeAlias = int | np.random.RandomState | None


"""What scikit-learn takes as ``random_state``."""


@runtime_checkable
class Basis(Protocol):
    """A feature map that is fixed before the first chunk is read."""

    @property
    def size(self) -> int:
        """Number of functions p."""
        ...

    @property
    def n_features(self) -> int:
        """Number of columns d that ``X`` must have."""
        ...

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        ...
