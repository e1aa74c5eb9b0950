"""Feature maps and scalings, fixed before the first row is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unjoined._typing import Array, Basis
from unjoined._validation import (
    check_count,
    check_numbers,
    check_positive,
    check_row_width,
)
from unjoined.errors import InputError

# Standard deviations from the mean beyond which features are taken for this far away. Products of
# several still are numbers, and single precision can hold it, which forests and networks use.
FARTHEST = 1e30


TINY = 1e-140  # squares of smaller numbers lose digits


SMALLEST = (
    1e-303  # what is divided by must be larger, lest a number of size one overflow
)


TIE = 1e-9  # of the total weight: sums of weights that far apart are equal but for rounding


CHUNK_ROWS = 16_384  # a copy of all rows would cost more time than the sums


@dataclass(frozen=True, slots=True)
class Scaling:
    """Subtract ``mean`` and divide by ``scale``, feature by feature.

    A feature that never varies keeps its scale of 1, so that it becomes 0 rather than NaN.
    """

    mean: Array  # (d,) units of the features
    scale: Array  # (d,) units of the features, > 0

    def __post_init__(self) -> None:
        """Refuse lengths that differ, and scales that nothing can be divided by."""
        check_numbers("mean", self.mean, None)
        check_numbers("scale", self.scale, len(self.mean))
        if not (self.scale > 0.0).all():
            raise InputError(f"scale must be above 0, got {self.scale.min():g}.")

    @classmethod
    def identity(cls, d: int) -> Scaling:
        """Return the scaling that changes nothing."""
        return cls(np.zeros(d), np.ones(d))

    @classmethod
    def of_rows(cls, X: Array, weight: Array) -> Scaling:
        """Return the scaling under which the rows have weighted mean 0 and variance 1."""
        # Averaging distances from the first row makes a constant column exactly constant,
        # however many rows there are; plain sums of it drift.
        total = weight.sum()
        mean = X[0] + _sum_of_powers(X, X[0], weight, square=False) / total
        with np.errstate(over="ignore", under="ignore"):
            scale = np.sqrt(_sum_of_powers(X, mean, weight, square=True) / total)
        for j in np.flatnonzero(~((scale > TINY) & (scale < 1.0 / TINY))).tolist():
            scale[j] = _careful_scale(X[:, j] - mean[j], weight, j)
        return cls(mean, scale)

    def __call__(self, X: Array) -> Array:
        """Return the scaled rows, a new array, none farther away than ``FARTHEST``."""
        with np.errstate(over="ignore"):
            return within_reach((X - self.mean) / self.scale)


def within_reach(Z: Array) -> Array:
    """Return scaled features with those cut off, in place, that are too far for arithmetic."""
    return np.clip(Z, -FARTHEST, FARTHEST, out=Z)


def weighted_quantile(values: Array, weight: Array, levels: tuple[float, ...]) -> Array:
    """Return quantiles of values (n,) that count by their weights, shape (number of levels,).

    The smallest value that a share ``level`` of the weight does not exceed, or the middle of two
    where the share is met exactly. So a weight of two is the same as two equal values, and only
    ratios of weights count.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    reached /= reached[-1]
    last = len(values) - 1
    at = np.asarray(levels)
    low = np.minimum(np.searchsorted(reached, at - TIE, side="left"), last)
    high = np.minimum(np.searchsorted(reached, at + TIE, side="right"), last)
    return np.asarray((values[order][low] + values[order][high]) / 2.0)


def _sum_of_powers(X: Array, origin: Array, weight: Array, *, square: bool) -> Array:
    """Return the weighted sums over rows of X - origin, or of its squares, shape (d,)."""
    total = np.zeros(X.shape[1])
    for start in range(0, len(X), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        # By columns: operations on rows of ten numbers are several times as slow.
        distance = np.ascontiguousarray(X[chunk].T) - origin[:, None]
        if square:
            distance *= distance
        total += distance @ weight[chunk]
    return total


def _careful_scale(distance: Array, weight: Array, j: int) -> float:
    """Return the standard deviation of a column whose squares leave the range of numbers.

    1 if it never varies.
    """
    largest = float(np.abs(distance).max())
    if largest == 0.0:
        return 1.0
    share = distance / largest
    scale = largest * float(np.sqrt(np.average(share * share, weights=weight)))
    if not SMALLEST <= scale < np.inf:
        raise InputError(
            f"feature {j} (counting from 0) varies by {scale:g}, which nothing can be divided by. "
            "Multiply the column by a power of ten, or leave it out."
        )
    return scale


@dataclass(frozen=True, slots=True)
class BasisWriter:
    """A basis in two steps: what is cheap for many rows at once, then values of a few at a time.

    Few calls for each chunk matter where threads share Python's lock.
    """

    width: int  # w
    prepare: Callable[
        [Array, Array], None
    ]  # of rows (m, d), columns (w, m) to be overwritten
    write: Callable[
        [Any, Any], None
    ]  # of columns (w, m), values (m, p) to be overwritten

    def __call__(self, X: Array, p: int) -> Array:
        """Return the values at rows (n, d), a new array of shape (n, p)."""
        values = np.empty((len(X), p))
        columns = np.empty((self.width, len(X)))
        self.prepare(X, columns)
        self.write(columns, values)
        return values


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

    def __post_init__(self) -> None:
        """Refuse centres and widths that are not numbers."""
        check_numbers("centers", self.centers, None, None)
        check_positive("width", self.width)

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
        check_row_width(X, self.n_features)
        return self.writer(Scaling.identity(self.n_features))(X, self.size)

    @property
    def length_scale(self) -> float:
        """The width."""
        return self.width

    def rescaled(self, factor: float) -> GaussianBasis:
        """Return the same centres with another width."""
        return GaussianBasis(self.centers, factor * self.width)

    def writer(self, scaling: Scaling, *, linear: bool = False) -> BasisWriter:
        """Return what writes the values, after a constant and the features if asked."""
        return _gaussian_writer(self, scaling, linear=linear)


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

    def __post_init__(self) -> None:
        """Refuse frequencies and phases that are not as many."""
        check_numbers("phases", self.phases, None)
        check_numbers("frequencies", self.frequencies, None, len(self.phases))

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
        check_row_width(X, self.n_features)
        angle = X @ self.frequencies
        angle += self.phases
        values = np.cos(angle, out=angle)
        values *= np.sqrt(2.0 / self.size)
        return values

    @property
    def length_scale(self) -> float:
        """The width whose frequencies have this mean square."""
        return float(np.sqrt(2.0 / np.mean(self.frequencies**2)))

    def rescaled(self, factor: float) -> FourierBasis:
        """Return the same phases with frequencies divided by a factor."""
        return FourierBasis(self.frequencies / factor, self.phases)


@dataclass(frozen=True, slots=True)
class LinearBasis:
    """A constant and the features themselves.

    Examples
    --------
    >>> LinearBasis(n_features=2)(np.array([[3.0, 4.0]]))
    array([[1., 3., 4.]])
    """

    n_features: int

    def __post_init__(self) -> None:
        """Refuse what is not a number of features."""
        check_count("n_features", self.n_features)

    @property
    def size(self) -> int:
        """Number of functions p: the features and a constant."""
        return self.n_features + 1

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, d + 1)."""
        check_row_width(X, self.n_features)
        return np.column_stack([np.ones(len(X)), X])

    def writer(self, scaling: Scaling) -> BasisWriter:
        """Return what writes the values."""
        return _linear_writer(self, scaling)


@dataclass(frozen=True, slots=True)
class StackedBasis:
    """The functions of two bases side by side.

    Linear functions and Gaussians make the smooth basis. Those of the uplift and then the
    critic's let one pass over the rows serve a problem in which they differ.
    """

    first: Basis
    second: Basis

    def __post_init__(self) -> None:
        """Refuse bases of different features."""
        check_basis("second", self.second, check_basis("first", self.first))

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

    @property
    def length_scale(self) -> float:
        """That of the first functions, or else of the second."""
        first = length_scale(self.first)
        return length_scale(self.second) if np.isnan(first) else first

    def rescaled(self, factor: float) -> StackedBasis:
        """Return both with other length scales, as far as they have one."""
        return StackedBasis(rescaled(self.first, factor), rescaled(self.second, factor))

    def writer(self, scaling: Scaling) -> BasisWriter:
        """Return what writes the values; linear functions and Gaussians take one product."""
        if isinstance(self.first, LinearBasis) and isinstance(
            self.second, GaussianBasis
        ):
            return self.second.writer(scaling, linear=True)
        halves = scaled_writer(self.first, scaling), scaled_writer(self.second, scaling)
        return _stacked_writer(*halves, self.first.size)


def rescaled(basis: Basis, factor: float) -> Basis:
    """Return the basis with its length scale multiplied by ``factor``, all else the same.

    Centres and random phases stay, so that candidates of several widths differ in width only.
    Bases without a length scale are returned as they are.
    """
    method = getattr(basis, "rescaled", None)
    return basis if method is None else method(factor)


def length_scale(basis: Basis) -> float:
    """Return the distance over which functions vary, in units of the features; NaN for any."""
    return float(getattr(basis, "length_scale", np.nan))


def scaled_writer(basis: Basis, scaling: Scaling) -> BasisWriter:
    """Return what writes the values of a basis at features that are scaled first."""
    method = getattr(basis, "writer", None)
    if method is None:
        return _plain_writer(lambda X: basis(scaling(X)), basis.n_features)
    writer: BasisWriter = method(scaling)
    return writer


def has_constant(basis: Basis) -> bool:
    """Whether the functions begin with a constant and the features."""
    return isinstance(
        basis.first if isinstance(basis, StackedBasis) else basis, LinearBasis
    )


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
    writer: BasisWriter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what all chunks share."""
        check_basis("basis", self.basis, len(self.scaling.mean))
        object.__setattr__(self, "writer", scaled_writer(self.basis, self.scaling))

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from basis and scaling: the writer cannot be sent to another process."""
        return (ScaledBasis, (self.basis, self.scaling))

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
        check_row_width(X, self.n_features)
        return self.writer(X, self.size)


def check_basis(name: str, basis: Any, d: int | None = None) -> int:
    """Return the number of features of what must be a basis, of ``d`` features if given."""
    if not isinstance(basis, Basis):
        raise InputError(
            f"{name} must be a callable with size and n_features, got {basis!r}."
        )
    if d not in (None, basis.n_features):
        raise InputError(
            f"{name} must have {d} features as what it goes with, not {basis.n_features}."
        )
    return basis.n_features


def basis_writer(basis: Callable[[Array], Array], X: Array, p: int) -> BasisWriter:
    """Return what writes ``p`` values of a basis at rows such as ``X`` into the caller's arrays."""
    if isinstance(basis, Basis):
        check_row_width(X, basis.n_features)
        if basis.size != p:
            raise InputError(
                f"the basis has {basis.size} functions, but {p} were asked for."
            )
    return (
        basis.writer
        if isinstance(basis, ScaledBasis)
        else _plain_writer(basis, X.shape[1])
    )


def _plain_writer(basis: Callable[[Array], Array], d: int) -> BasisWriter:
    def write(columns: Array, out: Array) -> None:
        values = basis(np.ascontiguousarray(columns.T))
        check_numbers("the values of the basis", values, *out.shape)
        out[...] = values

    return BasisWriter(d, lambda X, columns: np.copyto(columns, X.T), write)


def _linear_writer(basis: LinearBasis, scaling: Scaling) -> BasisWriter:
    mean = scaling.mean[:, None]
    scale = scaling.scale[:, None]

    def prepare(X: Array, columns: Array) -> None:
        with np.errstate(over="ignore"):
            np.subtract(X.T, mean, out=columns)
            columns /= scale
        within_reach(columns)

    def write(columns: Array, out: Array) -> None:
        out[:, 0] = 1.0
        out[:, 1:] = columns.T

    return BasisWriter(basis.n_features, prepare, write)


def _stacked_writer(first: BasisWriter, second: BasisWriter, p: int) -> BasisWriter:
    w = first.width

    def prepare(X: Array, columns: Array) -> None:
        first.prepare(X, columns[:w])
        second.prepare(X, columns[w:])

    def write(columns: Array, out: Array) -> None:
        first.write(columns[:w], out[:, :p])
        second.write(columns[w:], out[:, p:])

    return BasisWriter(w + second.width, prepare, write)


def _distance_product(basis: GaussianBasis, origin: Array, *, linear: bool) -> Array:
    """Return what rows (x, |x|^2, 1) are multiplied by to give exponents, after linear functions.

    |x - c|^2 = |x|^2 - 2 x.c + |c|^2 turns the distances into one matrix product. It cancels
    digits when rows lie far from the origin, so the origin is moved among the centres first.
    """
    d = basis.n_features
    centers = (basis.centers - origin) / basis.width
    square = np.einsum("ij,ij->i", centers, centers)
    # Rounding must not make a distance negative: the squares count more by what the product of
    # d + 2 terms can be off, which is less trouble than looking at every value.
    more = 1.0 + 2.0 * (d + 2) * float(np.finfo(np.float64).eps)
    found = np.vstack([2.0 * centers.T, np.full(basis.size, -more), -more * square])
    if linear:  # a constant and the scaled features are combinations of the same rows
        affine = np.vstack([basis.width * np.eye(d), np.zeros(d), origin])
        found = np.hstack([np.eye(d + 2)[:, [d + 1]], affine, found])
    return found


def _gaussian_writer(
    basis: GaussianBasis, scaling: Scaling, *, linear: bool = False
) -> BasisWriter:
    d = basis.n_features
    first = 1 + d if linear else 0
    origin = basis.centers.mean(axis=0)
    product = _distance_product(basis, origin, linear=linear)
    shift = (scaling.mean + origin * scaling.scale)[:, None]
    factor = 1.0 / (scaling.scale * basis.width)[:, None]

    def prepare(X: Array, columns: Array) -> None:
        # By columns: operations on rows of ten numbers are several times as slow.
        x = columns[:d]
        with np.errstate(over="ignore"):
            np.subtract(X.T, shift, out=x)
            x *= factor
        within_reach(x)
        np.einsum("ij,ij->j", x, x, out=columns[d])
        columns[d + 1] = 1.0

    def write(columns: Any, out: Any) -> None:
        np.matmul(columns.T, product, out=out)
        gaussians = out[:, first:]
        np.exp(gaussians, out=gaussians)

    return BasisWriter(d + 2, prepare, write)
