"""Feature maps: fixed before the first row is read, the same for the uplift and its critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from unjoined._typing import Array

__all__ = ["Basis", "FourierBasis", "GaussianBasis", "LinearBasis", "StackedBasis"]


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
        # |x - c|^2 = |x|^2 - 2 x.c + |c|^2 turns the distances into one matrix product. It
        # cancels digits when rows lie far from the origin, so the origin is moved among the
        # centres first.
        origin = self.centers.mean(axis=0)
        rows = (X - origin) / self.width
        centers = (self.centers - origin) / self.width
        exponent = rows @ (2.0 * centers.T)  # (n, p); everything below happens in place
        exponent -= np.einsum("ij,ij->i", rows, rows)[:, None]
        exponent -= np.einsum("ij,ij->i", centers, centers)
        np.minimum(exponent, 0.0, out=exponent)  # rounding must not make a distance negative
        values: Array = np.exp(exponent, out=exponent)
        return values


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
