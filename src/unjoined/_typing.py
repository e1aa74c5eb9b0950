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

Array: TypeAlias = NDArray[np.float64]  # the docstring gives its shape
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
CellArray: TypeAlias = NDArray[
    np.uint8
]  # kind and population in one; 16 bits if they are many
Frame: TypeAlias = Any  # a data frame that narwhals reads: pandas, polars or pyarrow
MatrixLike: TypeAlias = (
    Any  # what scikit-learn takes as ``X``: a matrix or a data frame
)
RandomState: TypeAlias = (
    int | np.random.RandomState | None
)  # as scikit-learn's ``random_state``


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
