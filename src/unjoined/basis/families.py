"""Smooth functions by their roughness, products of features, and principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import eigh

from unjoined._typing import Array
from unjoined._validation import check_count, check_numbers, check_row_width
from unjoined.basis.functions import GaussianBasis
from unjoined.errors import InputError

# Directions of the kernel matrix below this share of the largest are rounding noise.
RANK_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class KernelBasis:
    r"""Gaussian functions, rotated so that a ridge penalises roughness (Nyström features).

    With :math:`K` the matrix of the Gaussian functions at their own centres, the functions are
    :math:`K^{-1/2} (\exp(-\|x - c_l\|^2 / \text{width}^2))_l`, less their mean. The sum of
    squared coefficients of a combination is its squared norm in the kernel's function space, so
    one ridge shrinks wiggles far more than slow trends, and more centres refine the space
    without changing what the ridge means.

    Parameters
    ----------
    gaussians : GaussianBasis
        Centres and width.
    rotation : array of shape (m, p)
        :math:`K^{-1/2}`, with directions below rounding left out.
    mean : array of shape (p,)
        Mean over the centres, subtracted so that the intercept stays the mean.

    Notes
    -----
    Evaluation costs :math:`O(n m (d + p))` time.
    """

    gaussians: GaussianBasis
    rotation: Array
    mean: Array

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        if not isinstance(self.gaussians, GaussianBasis):
            raise InputError(f"gaussians must be a GaussianBasis, got {self.gaussians!r}.")
        check_numbers("rotation", self.rotation, self.gaussians.size, None)
        check_numbers("mean", self.mean, self.rotation.shape[1])

    @property
    def size(self) -> int:
        """Number of functions p."""
        return len(self.mean)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.gaussians.n_features

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        values: Array = self.gaussians(X) @ self.rotation
        values -= self.mean
        return values


def draw_kernel(X: Array, n_centers: int, width: float, rng: Rng) -> KernelBasis:
    """Return the basis around ``n_centers`` of the distinct rows of ``X``, or as many as exist."""
    distinct = np.unique(X, axis=0)
    chosen = rng.permutation(len(distinct))[:n_centers]
    gaussians = GaussianBasis(distinct[chosen], width)
    at_centers = gaussians(gaussians.centers)
    values, vectors = eigh(at_centers)
    kept = values > RANK_TOLERANCE * values[-1]
    rotation = vectors[:, kept] / np.sqrt(values[kept])
    return KernelBasis(gaussians, rotation, (at_centers @ rotation).mean(axis=0))


@dataclass(frozen=True, slots=True)
class QuadraticBasis:
    r"""Squares and pairwise products :math:`x_i x_j`, :math:`i \le j`, less their means.

    They are divided by their standard deviations and by the root of their number, so that a ridge
    means about as much as it does for a `KernelBasis`: functions with coefficients of one
    standard deviation each have a variance of about one, however many features there are.

    Parameters
    ----------
    n_features : int
        Number of columns d.
    mean, scale : array of shape (d (d + 1) / 2,)
        What is subtracted and divided by.

    Notes
    -----
    Evaluation costs :math:`O(n d^2)` time.

    Examples
    --------
    >>> basis = QuadraticBasis(2, np.zeros(3), np.ones(3))
    >>> basis(np.array([[2.0, 3.0]]))
    array([[4., 6., 9.]])
    """

    n_features: int
    mean: Array
    scale: Array

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        d = check_count("n_features", self.n_features)
        check_numbers("mean", self.mean, d * (d + 1) // 2)
        check_numbers("scale", self.scale, d * (d + 1) // 2)

    @property
    def size(self) -> int:
        """Number of functions p."""
        return len(self.mean)

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, p)."""
        check_row_width(X, self.n_features)
        values = _products(np.asarray(X, dtype=np.float64))
        values -= self.mean
        values /= self.scale
        return values


def draw_quadratic(X: Array, weight: Array | None = None) -> QuadraticBasis:
    """Return the basis whose functions have mean 0 and equal variances over weighted rows."""
    values = _products(X)
    mean = np.average(values, axis=0, weights=weight)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))
    # A product that never varies, as of two levels of one category, becomes 0 rather than NaN.
    spread = np.where(spread <= 1e-12 * np.abs(values).max(axis=0), 1.0, spread)
    return QuadraticBasis(X.shape[1], mean, spread * np.sqrt(values.shape[1]))


def _products(X: Array) -> Array:
    first, second = np.triu_indices(X.shape[1])
    products: Array = X[:, first] * X[:, second]
    return products


FEW_FEATURES = 100  # up to here features enter as they are, however few rows there are


ROWS_PER_FUNCTION = 20


SAMPLE_ROWS = 5_000  # from which components are taken


@dataclass(frozen=True, slots=True)
class PrincipalBasis:
    """A constant and projections of the features on some directions.

    The projections keep the spread they have, so that a ridge on their coefficients is the ridge on
    those of the features, but for the directions left out, which it shrinks the most.

    Parameters
    ----------
    directions : array of shape (d, k)
        Orthonormal columns, in the units of the features.

    Notes
    -----
    Evaluation costs :math:`O(n d k)` time.

    Examples
    --------
    >>> PrincipalBasis(np.array([[0.6], [0.8]]))(np.array([[3.0, 4.0]]))
    array([[1., 5.]])
    """

    directions: Array

    def __post_init__(self) -> None:
        """Refuse what are no directions."""
        check_numbers("directions", self.directions, None, None)

    @property
    def size(self) -> int:
        """Number of functions p: the components and a constant."""
        return int(self.directions.shape[1]) + 1

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return len(self.directions)

    def __call__(self, X: Array) -> Array:
        """Map rows (n, d) to basis values (n, k + 1)."""
        check_row_width(X, self.n_features)
        return np.column_stack([np.ones(len(X)), X @ self.directions])


def most_linear(n_rows: int) -> int:
    """Return how many linear functions rows deserve: one for twenty of them, at least 100.

    Fits cost the square or the cube of it, and with fewer rows to each a ridge leaves little of
    the directions in which features hardly spread.

    Examples
    --------
    >>> [most_linear(n) for n in (500, 4_000, 100_000)]
    [100, 200, 5000]
    """
    return max(FEW_FEATURES, n_rows // ROWS_PER_FUNCTION)


def draw_principal(X: Array, size: int, rng: Rng, weight: Array | None = None) -> PrincipalBasis:
    """Return the ``size`` leading principal components of the rows ``X``, or as many as they have.

    Costs O(n d min(n, d)) time for at most 5,000 of the rows.
    """
    share = np.ones(len(X)) if weight is None else weight
    if len(X) > SAMPLE_ROWS:
        some = rng.choice(len(X), SAMPLE_ROWS, replace=False)
        X, share = X[some], share[some]
    centred = (X - np.average(X, axis=0, weights=share)) * np.sqrt(share)[:, None]
    n, d = centred.shape
    smaller = min(n, d)
    top = (max(smaller - size, 0), smaller - 1)
    if d <= n:
        _, vectors = eigh(centred.T @ centred, subset_by_index=top)
        return PrincipalBasis(vectors[:, ::-1])
    values, left = eigh(centred @ centred.T, subset_by_index=top)
    spreads = values > 1e-12 * values[-1]  # centred rows span one direction less than there are
    vectors = centred.T @ (left[:, spreads] / np.sqrt(values[spreads]))
    return PrincipalBasis(vectors[:, ::-1])
