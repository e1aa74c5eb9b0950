"""Compiled Gaussian values and sums, labels, and ridges, each checked before it is called."""

from __future__ import annotations

from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unjoined._compiled.library import (
    Basis,
    LabelBlock,
    Labels,
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
from unjoined.errors import InputError


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
        if d > functions.max_features or g < functions.min_gaussians:
            raise InputError(
                f"compiled arithmetic takes at most {functions.max_features} features and at least "
                f"{functions.min_gaussians} Gaussians, got {d} and {g}."
            )
        width, origin = linear or (1.0, np.zeros(d))
        # The arrays are kept: the structure holds their addresses only.
        self._arrays = [plain(array) for array in (shift, factor, product, origin)]
        shapes = {"shift": (d,), "factor": (d,), "product": (d + 2, g), "origin": (d,)}
        addresses = [
            address(name, array, *shape)
            for array, (name, shape) in zip(self._arrays, shapes.items(), strict=True)
        ]
        self.d = d
        self.p = g + (0 if linear is None else 1 + d)
        self.stride = padded(self.p, functions.stride_lanes)
        self.design_stride = padded(2 * d + 2, functions.stride_lanes)
        self._basis = Basis(d, self.p, g, width, *addresses)
        self._library = functions
        self._given = (shift, factor, product, linear)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and send what it was made from: addresses mean nothing elsewhere."""
        return gaussian_kernel, self._given

    def values(self, X: Array, out: Array) -> None:
        """Write the values at rows (n, d) into ``out`` (n, p), both in C order."""
        n = len(X)
        rows = Rows(address("X", X, n, self.d), None, n, None, None)
        to = address("out", out, n, self.p, written=True)
        self._library.values(self._library.level, byref(rows), byref(self._basis), to)

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
        n, m, r = len(X), len(X if at is None else at), len(coef)
        rows = Rows(address("X", X, n, self.d), _positions(where, n), m, None, None)
        phi = np.empty(self._library.rows * self.p)
        to = address("out", out, *((m,) if out.ndim == 1 and r == 1 else (m, r)), written=True)
        self._library.combine(
            self._library.level,
            *(byref(rows), byref(self._basis)),
            *(address("coef", coef, r, self.p), r, address("phi", phi, len(phi)), to),
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
        n, s, cross = len(rows.X), self.stride, sums.label_cross
        found = Sums(
            *(0, 0.0, address("label_basis", sums.label_basis, self.p, written=True)),
            address("gram", sums.gram, s, s, written=True),
            None if cross is None else address("label_cross", cross, s, s, written=True),
        )
        given = Rows(
            *(address("X", rows.X, n, self.d), _positions(rows.at, n), len(rows.at)),
            address("label", rows.label, n),
            None if rows.weight is None else address("weight", rows.weight, n),
        )
        scratch = address("room", room, self.room, written=True)
        self._library.add_up(
            self._library.level,
            *(byref(given), byref(self._basis), self._means(means)),
            *(s, scratch, byref(found), self._policies(policies, n)),
        )
        return found.weight, bool(found.unit)

    def _means(self, means: MeanArrays | None) -> Any:
        if means is None:
            return None
        r, slope = len(means.offset), means.slope
        return byref(
            Means(
                *(r, means.bound, address("coef", means.coef, r, self.p)),
                None if slope is None else address("slope", slope, r, self.d),
                address("offset", means.offset, r),
            )
        )

    def _policies(self, policies: PolicyArrays | None, n: int) -> Any:
        if policies is None:
            return None
        d, s = self.d, self.design_stride
        return byref(
            Policies(
                *(d, s, address("shift", policies.shift, d), address("factor", policies.factor, d)),
                address("treatment", policies.treatment, n),
                address("gram", policies.gram, s, s, written=True),
                address("square", policies.square, s, s, written=True),
            )
        )


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


def _positions(at: IntArray | None, n: int) -> int | None:
    """Return where positions lie that are all among ``n`` rows."""
    if at is None:
        return None
    if len(at) and not 0 <= at.min() <= at.max() < n:
        raise InputError(f"positions must be from 0 to {n - 1}, got {at.min()} to {at.max()}.")
    return address("at", at, len(at), dtype=np.int64)


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


def ridge_paths(G: Array, h: Array, ridges: Array) -> Array | None:
    r"""Return :math:`(G + f I)^{-1} h` for several matrices and every ridge f, if compiled.

    Parameters
    ----------
    G : array of shape (k, p, p)
        Symmetric, without negative eigenvalues but for rounding.
    h : array of shape (k, p)
        Right-hand sides.
    ridges : array of shape (n_f,)
        Positive.

    Returns
    -------
    array of shape (k, p, n_f) or None

    Notes
    -----
    Reflections turn G into a tridiagonal matrix, to whose diagonal any ridge is added: O(p^3)
    for each matrix, a small part of what its eigenvectors cost, and O(p^2) for each ridge.
    """
    functions = library()
    if functions is None:
        return None
    k, p = h.shape
    if G.shape != (k, p, p) or ridges.ndim != 1:
        raise InputError(
            f"matrices, right-hand sides and ridges must be of shapes (k, p, p), (k, p) and (n,), "
            f"got {G.shape}, {h.shape} and {ridges.shape}."
        )
    stride, n_f = padded(p, functions.stride_lanes), len(ridges)
    A, right = np.zeros((k, stride, stride)), np.zeros((k, stride))
    A[:, :p, :p], right[:, :p] = G, h
    several = np.ones(-(-n_f // functions.stride_lanes) * functions.stride_lanes)
    several[:n_f] = ridges
    found, room = np.empty((k, p, len(several))), np.empty((p + 3) * stride + p * len(several))
    functions.ridge_paths(
        functions.level,
        *(k, address("A", A, k, stride, stride), p, stride),
        *(address("right", right, k, stride), address("ridges", several, len(several))),
        *(len(several), address("room", room, len(room)), address("x", found, *found.shape)),
    )
    return found[..., :n_f]
