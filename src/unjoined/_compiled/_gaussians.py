"""Gaussian basis values, their combinations and their sums."""

from __future__ import annotations

from ctypes import byref
from typing import Any, NamedTuple

import numpy as np

from unjoined._compiled._library import (
    Basis,
    Library,
    Means,
    Policies,
    Rows,
    Sums,
    address,
    library,
    padded,
    plain,
)
from unjoined._typing import Array, IntArray

__all__ = [
    "GaussianKernel",
    "MeanArrays",
    "PolicyArrays",
    "RowArrays",
    "SumArrays",
    "gaussian_kernel",
]


class RowArrays(NamedTuple):
    """Rows at some positions of a table in memory."""

    X: Array  # (n, d), in C order
    at: IntArray  # (m,)
    label: Array  # (n,)
    weight: Array | None  # (n,), None for ones


class MeanArrays(NamedTuple):
    """What is subtracted from labels: the average of r means, each within a bound."""

    coef: Array  # (r, p) of the basis values
    slope: Array | None  # (r, d) of the features
    offset: Array  # (r,)
    bound: float


class PolicyArrays(NamedTuple):
    """Sums that tell policies apart, added to; of the matrices the lower triangle."""

    shift: Array  # (d,) subtracted from the features
    factor: Array  # (d,) by which they are multiplied then
    treatment: Array  # (n,) of all rows
    # (s, s) in C order, s being `GaussianKernel.design_stride`; after the 2 d + 1 functions of
    # the design comes the treatment, then zeros.
    gram: Array
    square: Array  # the same with weights squared; not touched if they are ones


class SumArrays(NamedTuple):
    """Sums added to; of the matrices the lower triangle."""

    label_basis: Array  # (p,)
    gram: Array  # (s, s) in C order, s being `GaussianKernel.stride`; zeros beyond p
    label_cross: Array | None  # (s, s) in C order; None if not wanted


class GaussianKernel:
    r"""Gaussian functions, and linear ones before them, of features as they came.

    Parameters
    ----------
    functions : Library
        The loaded functions.
    shift, factor : arrays of shape (d,)
        Subtracted from the features, and what they are multiplied by then.
    product : array of shape (d + 2, g)
        What rows (z, \|z\|^2, 1) of prepared features are multiplied by to give exponents.
    linear : tuple (width, origin) or None
        If there are linear functions, a constant and ``z * width + origin``.
    """

    def __init__(
        self,
        functions: Library,
        shift: Array,
        factor: Array,
        product: Array,
        linear: tuple[float, Array] | None,
    ) -> None:
        d, g = len(shift), product.shape[1]
        width, origin = linear or (1.0, np.zeros(d))
        # The arrays are kept: the structure holds their addresses only.
        self._arrays = [plain(array) for array in (shift, factor, product, origin)]
        self.p = g + (0 if linear is None else 1 + d)
        self.stride = padded(self.p, functions.stride_lanes)
        self.design_stride = padded(2 * d + 2, functions.stride_lanes)
        addresses = [address(array) for array in self._arrays]
        self._basis = Basis(d, self.p, g, width, *addresses)
        self._library = functions
        self._given = (shift, factor, product, linear)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and send what it was made from: addresses mean nothing elsewhere."""
        return gaussian_kernel, self._given

    def values(self, X: Array, out: Array) -> None:
        """Write the values at rows (n, d) into ``out`` (n, p), both in C order."""
        rows = Rows(address(X), None, len(X), None, None)
        self._library.values(self._library.level, byref(rows), byref(self._basis), address(out))

    def combine(self, X: Array, at: IntArray | None, coef: Array, out: Array) -> None:
        """Write values at rows, or at some of them, times coefficients.

        Parameters
        ----------
        X : array of shape (n, d)
            In C order.
        at : array of shape (m,) or None
            Positions, if not all are wanted.
        coef : array of shape (r, p)
            In C order, which is the transpose of what a product takes.
        out : array of shape (m, r) or (m,)
            In C order; written over.
        """
        where = None if at is None else np.ascontiguousarray(at, dtype=np.int64)
        rows = Rows(address(X), address(where), len(X if at is None else at), None, None)
        phi = np.empty(self._library.rows * self.p)
        self._library.combine(
            self._library.level,
            *(byref(rows), byref(self._basis)),
            *(address(coef), len(coef), address(phi), address(out)),
        )

    @property
    def room(self) -> int:
        """How many numbers `add_up` writes over."""
        rows = 2 * self._library.block_rows + self._library.rows
        return rows * max(self.stride, self.design_stride)

    def add_up(
        self,
        rows: RowArrays,
        means: MeanArrays | None,
        sums: SumArrays,
        policies: PolicyArrays | None,
        room: Array,
    ) -> tuple[float, bool]:
        """Add rows to sums and, if wanted, to those of policies.

        Parameters
        ----------
        rows, means, sums, policies
            Arrays read and added to.
        room : array of shape (`room`,)
            Written over.

        Returns
        -------
        float, bool
            The sum of weights; and whether labels were all -1 or +1 and nothing was subtracted,
            in which case ``label_cross`` was left alone, for it is ``gram`` but for the sign.
        """
        found = Sums(0, 0.0, *(address(array) for array in sums))
        given = Rows(
            *(address(rows.X), address(rows.at), len(rows.at)),
            *(address(rows.label), address(rows.weight)),
        )
        self._library.add_up(
            self._library.level,
            *(byref(given), byref(self._basis), _mean_structure(means)),
            *(self.stride, address(room), byref(found), _policy_structure(policies)),
        )
        return found.weight, bool(found.unit)


def gaussian_kernel(
    shift: Array, factor: Array, product: Array, linear: tuple[float, Array] | None
) -> GaussianKernel | None:
    """Return compiled Gaussian functions, or None: see `GaussianKernel` for the arguments."""
    found = library()
    if found is None:
        return None
    if len(shift) > found.max_features or product.shape[1] < found.min_gaussians:
        return None
    return GaussianKernel(found, shift, factor, product, linear)


def _mean_structure(means: MeanArrays | None) -> Any:
    if means is None:
        return None
    addresses = (address(a) for a in (means.coef, means.slope, means.offset))
    return byref(Means(len(means.offset), means.bound, *addresses))


def _policy_structure(policies: PolicyArrays | None) -> Any:
    if policies is None:
        return None
    d, stride = len(policies.shift), len(policies.gram)
    return byref(Policies(d, stride, *(address(array) for array in policies)))
