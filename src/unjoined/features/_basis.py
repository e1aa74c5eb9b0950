"""Feature maps: fixed before the first row is read, the same for the uplift and its critic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unjoined._compiled import GaussianKernel, gaussian_kernel
from unjoined._typing import Array
from unjoined.features._principal import PrincipalBasis
from unjoined.features._scaling import Scaling

__all__ = [
    "Basis",
    "Filler",
    "FourierBasis",
    "GaussianBasis",
    "LinearBasis",
    "ScaledBasis",
    "StackedBasis",
    "filler",
    "same_basis",
]

LARGE = 1e9  # standard deviations; its square is well within single precision


@dataclass(frozen=True, slots=True)
class Filler:
    """A basis in two steps: what is cheap for many rows at once, then values of a few at a time.

    Few calls for each chunk matter where threads share Python's lock.
    """

    width: int  # w
    prepare: Callable[[Array, Array], None]  # of rows (m, d), columns (w, m) to be overwritten
    write: Callable[[Any, Any], None]  # of columns (w, m), values (m, p) to be overwritten
    # Brings columns into the range of single precision, where ``write`` takes that as well.
    narrow: Callable[[Array], None] | None = None
    kernel: GaussianKernel | None = None  # does all of it at once, where there is one

    def __call__(self, X: Array, p: int) -> Array:
        """Return the values at rows (n, d), a new array of shape (n, p)."""
        values = np.empty((len(X), p))
        if self.kernel is not None:
            self.kernel.values(np.ascontiguousarray(X, dtype=np.float64), values)
            return values
        columns = np.empty((self.width, len(X)))
        self.prepare(X, columns)
        self.write(columns, values)
        return values


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


@dataclass(frozen=True, slots=True)
class GaussianBasis:
    r"""Gaussian functions :math:`\exp(-\|x - c_l\|^2 / \text{width}^2)` around centres.

    Parameters
    ----------
    centers : array of shape (p, d)
        Centres :math:`c_l`, in the units of the features.
    width : float
        Length scale, in the units of the features. It enters squared and without a factor of
        two, as in the paper: a Gaussian of standard deviation s has ``width = sqrt(2) * s``.

    Notes
    -----
    Evaluation costs :math:`O(n p d)` time.

    Examples
    --------
    >>> basis = GaussianBasis(np.array([[0.0], [2.0]]), width=2.0)
    >>> basis(np.array([[0.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    centers: Array
    width: float

    @property
    def size(self) -> int:
        """Number of centres p."""
        return len(self.centers)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return int(self.centers.shape[1])

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p), each between 0 and 1."""
        return _gaussian_filler(self, Scaling.identity(self.n_features))(X, self.size)


@dataclass(frozen=True, slots=True)
class FourierBasis:
    r"""Random Fourier features :math:`\sqrt{2/p} \cos(\omega_l^\top x + \theta_l)`.

    With :math:`\omega_l \sim N(0, 2/\text{width}^2)` and uniform phases, inner products of these
    features approximate the Gaussian kernel of `GaussianBasis` to :math:`O(1/\sqrt p)`. No row
    of the data is part of the basis, so it can be agreed on without disclosing one.

    Parameters
    ----------
    frequencies : array of shape (d, p)
        :math:`\omega_l`, in inverse units of the features.
    phases : array of shape (p,)
        :math:`\theta_l`, radians.

    Notes
    -----
    Evaluation costs :math:`O(n p d)` time.
    """

    frequencies: Array
    phases: Array

    @property
    def size(self) -> int:
        """Number of functions p."""
        return len(self.phases)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return len(self.frequencies)

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        angle = X @ self.frequencies
        angle += self.phases
        values = np.cos(angle, out=angle)
        values *= np.sqrt(2.0 / self.size)
        return values


@dataclass(frozen=True, slots=True)
class LinearBasis:
    """A constant and the features themselves.

    Examples
    --------
    >>> LinearBasis(n_features=2)(np.array([[3.0, 4.0]]))
    array([[1., 3., 4.]])
    """

    n_features: int

    @property
    def size(self) -> int:
        """Number of functions p: the features and a constant."""
        return self.n_features + 1

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, d + 1)."""
        return np.column_stack([np.ones(len(X)), X])


@dataclass(frozen=True, slots=True)
class StackedBasis:
    """The functions of two bases side by side.

    Linear functions and Gaussians make the smooth basis. Those of the uplift and then the
    critic's let one pass over the rows serve a problem in which they differ.
    """

    first: Basis
    second: Basis

    @property
    def size(self) -> int:
        """Number of functions of both."""
        return self.first.size + self.second.size

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.first.n_features

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        return np.hstack([self.first(X), self.second(X)])


@dataclass(frozen=True, slots=True)
class ScaledBasis:
    """A basis on features as they came: scaling and basis in one, for many chunks of rows.

    Whatever does not depend on the rows is computed once, and scaling is part of the product
    that gives the distances, so that a chunk costs little more than its exponentials.

    Parameters
    ----------
    basis : Basis
        Functions of scaled features.
    scaling : Scaling
        Subtracted from and divided out of the features.

    Examples
    --------
    >>> scaling = Scaling(np.array([1.0]), np.array([2.0]))
    >>> ScaledBasis(LinearBasis(1), scaling)(np.array([[5.0]]))
    array([[1., 2.]])
    """

    basis: Basis
    scaling: Scaling
    filler: Filler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what all chunks share."""
        object.__setattr__(self, "filler", _scaled_filler(self.basis, self.scaling))

    @property
    def size(self) -> int:
        """Number of functions p."""
        return self.basis.size

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.basis.n_features

    def __call__(self, X: Array) -> Array:
        """Map features as they came (n, d) to basis values (n, p)."""
        return self.filler(X, self.size)


def same_basis(a: Basis, b: Basis) -> bool:
    """Whether two bases are equal: the same object, or the same kind with the same numbers."""
    if a is b:
        return True
    if isinstance(a, StackedBasis) and isinstance(b, StackedBasis):
        return same_basis(a.first, b.first) and same_basis(a.second, b.second)
    if isinstance(a, GaussianBasis) and isinstance(b, GaussianBasis):
        return a.width == b.width and np.array_equal(a.centers, b.centers)
    if isinstance(a, FourierBasis) and isinstance(b, FourierBasis):
        return np.array_equal(a.frequencies, b.frequencies) and np.array_equal(a.phases, b.phases)
    if isinstance(a, PrincipalBasis) and isinstance(b, PrincipalBasis):
        return np.array_equal(a.directions, b.directions)
    return isinstance(a, LinearBasis) and a == b


def filler(basis: Callable[[Array], Array], d: int) -> Filler:
    """Return what writes the values of any basis of ``d`` features into arrays of the caller."""
    if isinstance(basis, ScaledBasis):
        return basis.filler

    def write(columns: Array, out: Array) -> None:
        out[...] = basis(np.ascontiguousarray(columns.T))

    return Filler(d, _transpose, write)


def _transpose(X: Array, columns: Array) -> None:
    columns[...] = X.T


def _scaled_filler(basis: Basis, scaling: Scaling) -> Filler:
    if isinstance(basis, GaussianBasis):
        return _gaussian_filler(basis, scaling)
    if isinstance(basis, LinearBasis):
        return _linear_filler(basis, scaling)
    if isinstance(basis, StackedBasis):
        if isinstance(basis.first, LinearBasis) and isinstance(basis.second, GaussianBasis):
            return _gaussian_filler(basis.second, scaling, linear=True)
        first, second = (_scaled_filler(part, scaling) for part in (basis.first, basis.second))
        return _stacked_filler(first, second, basis.first.size)
    return filler(lambda X: basis(scaling(X)), basis.n_features)


def _linear_filler(basis: LinearBasis, scaling: Scaling) -> Filler:
    mean, scale = scaling.mean[:, None], scaling.scale[:, None]

    def prepare(X: Array, columns: Array) -> None:
        np.subtract(X.T, mean, out=columns)
        columns /= scale

    def write(columns: Array, out: Array) -> None:
        out[:, 0] = 1.0
        out[:, 1:] = columns.T

    return Filler(basis.n_features, prepare, write, _narrow)


def _narrow(columns: Array) -> None:
    if np.abs(columns).max(initial=0.0) > LARGE:  # rare, and a look is quicker than a change
        np.clip(columns, -LARGE, LARGE, out=columns)


def _stacked_filler(first: Filler, second: Filler, p: int) -> Filler:
    w = first.width

    def prepare(X: Array, columns: Array) -> None:
        first.prepare(X, columns[:w])
        second.prepare(X, columns[w:])

    def write(columns: Array, out: Array) -> None:
        first.write(columns[:w], out[:, :p])
        second.write(columns[w:], out[:, p:])

    def narrow(columns: Array) -> None:
        first.narrow(columns[:w])  # type: ignore[misc]
        second.narrow(columns[w:])  # type: ignore[misc]

    both = first.narrow is not None and second.narrow is not None
    return Filler(w + second.width, prepare, write, narrow if both else None)


def _distance_product(basis: GaussianBasis, origin: Array, *, linear: bool, dtype: Any) -> Any:
    """Return what rows (x, |x|^2, 1) are multiplied by to give exponents, after linear functions.

    |x - c|^2 = |x|^2 - 2 x.c + |c|^2 turns the distances into one matrix product. It cancels
    digits when rows lie far from the origin, so the origin is moved among the centres first.
    """
    d = basis.n_features
    centers = (basis.centers - origin) / basis.width
    square = np.einsum("ij,ij->i", centers, centers)
    # Rounding must not make a distance negative: the squares count more by what the product of
    # d + 2 terms can be off, which is less trouble than looking at every value.
    more = 1.0 + 2.0 * (d + 2) * float(np.finfo(dtype).eps)
    found = np.vstack([2.0 * centers.T, np.full(basis.size, -more), -more * square])
    if linear:  # a constant and the scaled features are combinations of the same rows
        affine = np.vstack([basis.width * np.eye(d), np.zeros(d), origin])
        found = np.hstack([np.eye(d + 2)[:, [d + 1]], affine, found])
    return found.astype(dtype)


def _gaussian_filler(basis: GaussianBasis, scaling: Scaling, *, linear: bool = False) -> Filler:
    d = basis.n_features
    first = 1 + d if linear else 0
    origin = basis.centers.mean(axis=0)
    product, single = (
        _distance_product(basis, origin, linear=linear, dtype=dtype)
        for dtype in (np.float64, np.float32)
    )
    shift = (scaling.mean + origin * scaling.scale)[:, None]
    factor = 1.0 / (scaling.scale * basis.width)[:, None]

    def prepare(X: Array, columns: Array) -> None:
        # By columns: operations on rows of ten numbers are several times as slow.
        x = columns[:d]
        np.subtract(X.T, shift, out=x)
        x *= factor
        # A distance beyond the range of numbers would meet zeros in the product.
        np.minimum(np.einsum("ij,ij->j", x, x), 1e300, out=columns[d])
        columns[d + 1] = 1.0

    def write(columns: Any, out: Any) -> None:
        np.matmul(columns.T, single if out.dtype == np.float32 else product, out=out)
        gaussians = out[:, first:]
        np.exp(gaussians, out=gaussians)

    def narrow(columns: Array) -> None:
        # Farther than LARGE from all centres is as far as can be: the square stays the largest.
        if columns[d].max(initial=0.0) > LARGE**2:
            np.clip(columns[:d], -LARGE, LARGE, out=columns[:d])
            np.minimum(columns[d], LARGE**2, out=columns[d])

    kernel = gaussian_kernel(
        shift[:, 0], factor[:, 0], product[:, first:], (basis.width, origin) if linear else None
    )
    return Filler(d + 2, prepare, write, narrow, kernel)
