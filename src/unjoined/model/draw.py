"""Choose a basis for given rows: centres, frequencies, width, principal components."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import eigh
from scipy.spatial.distance import pdist

from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import check_numbers, check_row_width
from unjoined.errors import InputError
from unjoined.model.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    StackedBasis,
    weighted_quantile,
)

DEFAULT_SIZE = 100
MOST_CENTERS = 200
FEW_FEATURES = 100  # up to here features enter as they are, however few rows there are
ROWS_PER_FUNCTION = 20
SAMPLE_ROWS = 5_000  # from which components are taken
# The median of a few thousand pairs is known to about one percent, far finer than a width
# needs to be; more rows would only cost time.
WIDTH_SAMPLE = 300
NOBODY_ROWS = 20  # of which a centre that is nobody's row is the mean


def median_width(X: Array, rng: Rng, weight: Array | None = None) -> float:
    """Return the median distance between rows, the usual first guess of a kernel width.

    Taken over the pairs of at most 300 randomly drawn rows; rows that coincide are left out,
    so that discrete features do not make the width 0. In the units of the features. Pairs count,
    and rows are drawn, by their weights.
    """
    if len(X) > WIDTH_SAMPLE:
        X = X[_choose(len(X), WIDTH_SAMPLE, weight, rng)]
        weight = None
    distances = pdist(X)
    apart = distances > 0.0
    if not apart.any():
        return (
            1.0  # rows that are all the same leave nothing to resolve: any width serves
        )
    if weight is None:
        return float(np.median(distances[apart]))
    first, second = np.triu_indices(len(X), 1)  # the pairs in the order of pdist
    pair = (weight[first] * weight[second])[apart]
    return float(weighted_quantile(distances[apart], pair, (0.5,))[0])


def _choose(n: int, size: int, weight: Array | None, rng: Rng) -> IntArray:
    """Draw positions without replacement, by weights unless these are all the same."""
    propensity = None
    if weight is not None and weight.min() < weight.max():
        propensity = weight / weight.sum()
    return np.asarray(rng.choice(n, size, replace=False, p=propensity))


def auto_centers(n_rows: int) -> int:
    """Return the number of centres of the smooth basis: 10 n^(1/4), at most 200.

    50 at 600 rows, 100 at 10,000, 200 from 160,000 on. It grows slowly since the ridges, not the
    number of functions, decide how rough an estimate may be; more functions only cost time.

    Examples
    --------
    >>> [auto_centers(n) for n in (8, 600, 10_000, 1_000_000)]
    [8, 49, 100, 200]
    """
    return min(round(10.0 * math.sqrt(math.sqrt(n_rows))), MOST_CENTERS, n_rows)


def _size(n_centers: int | str, n_rows: int) -> int:
    if isinstance(n_centers, str):
        return min(DEFAULT_SIZE, n_rows)
    return n_centers


def _gaussian(
    X: Array, n_centers: int | str, width: float | str, rng: Rng, weight: Array | None
) -> Basis:
    size = _size(n_centers, len(X))
    if size > len(X):
        raise InputError(
            f"n_centers={size} centres are drawn from the rows without replacement, but there "
            f"are only {len(X)} (n_samples={len(X)}). Pass n_centers='auto' or at most {len(X)}."
        )
    scale = median_width(X, rng, weight) if isinstance(width, str) else float(width)
    return GaussianBasis(X[_choose(len(X), size, weight, rng)], scale)


def _fourier(
    X: Array, n_centers: int | str, width: float | str, rng: Rng, weight: Array | None
) -> Basis:
    size = DEFAULT_SIZE if isinstance(n_centers, str) else n_centers
    scale = median_width(X, rng, weight) if isinstance(width, str) else float(width)
    frequencies = rng.standard_normal((X.shape[1], size)) * (np.sqrt(2.0) / scale)
    return FourierBasis(frequencies, rng.uniform(0.0, 2.0 * np.pi, size))


def _linear(
    X: Array, n_centers: int | str, width: float | str, rng: Rng, weight: Array | None
) -> Basis:
    return LinearBasis(X.shape[1])


def _smooth(
    X: Array, n_centers: int | str, width: float | str, rng: Rng, weight: Array | None
) -> Basis:
    size = auto_centers(len(X)) if isinstance(n_centers, str) else n_centers
    linear = draw_linear(X, len(X), rng, weight)
    return StackedBasis(linear, _gaussian(X, size, width, rng, weight))


def _means(
    X: Array, n_centers: int | str, width: float | str, rng: Rng, weight: Array | None
) -> Basis:
    size = auto_centers(len(X)) if isinstance(n_centers, str) else n_centers
    linear = draw_linear(X, len(X), rng, weight)
    scale = median_width(X, rng, weight) if isinstance(width, str) else float(width)
    there = X if weight is None else X[weight > 0.0]
    return StackedBasis(linear, GaussianBasis(mean_centers(there, size), scale))


def mean_centers(X: Array, size: int) -> Array:
    """Return means of at most ``size`` groups of 20 rows or more, none of which is a row.

    The largest group is halved at the median of the feature that varies most within it, again
    and again. Costs O(n d log size) time.
    """
    if len(X) < NOBODY_ROWS:
        raise InputError(
            f"basis='means' takes centres that are means of {NOBODY_ROWS} rows or more, got "
            f"{len(X)} rows. Give more rows, or use basis='linear'."
        )
    groups = [X]
    while len(groups) < size and len(groups[0]) >= 2 * NOBODY_ROWS:
        largest = groups.pop(0)
        order = np.argsort(largest[:, np.argmax(largest.var(axis=0))], kind="stable")
        half = len(order) // 2
        groups += [largest[order[:half]], largest[order[half:]]]
        groups.sort(key=len, reverse=True)
    return np.array([group.mean(axis=0) for group in groups])


def draw_linear(X: Array, n_rows: int, rng: Rng, weight: Array | None = None) -> Basis:
    """Return a constant and the features, or their leading components if they are very many.

    ``n_rows`` are the rows of the fit, of which ``X`` may be some; see `most_linear`.
    """
    most = most_linear(n_rows)
    return (
        LinearBasis(X.shape[1])
        if X.shape[1] <= most
        else draw_principal(X, most, rng, weight)
    )


BASES: dict[
    str, Callable[[Array, int | str, float | str, Rng, Array | None], Basis]
] = {
    "smooth": _smooth,
    "means": _means,
    "gaussian": _gaussian,
    "fourier": _fourier,
    "linear": _linear,
}


def draw_basis(
    basis: str | Basis,
    X: Array,
    *,
    n_centers: int | str,
    width: float | str,
    rng: Rng,
    weight: Array | None = None,
) -> Basis:
    """Return the basis called ``basis`` for the rows ``X``, or check one that was given.

    Parameters
    ----------
    basis : {"smooth", "means", "gaussian", "fourier", "linear"} or Basis
        A name, or a basis that is fixed already. "smooth" is a constant, the features
        themselves (of more than 100, and more than a twentieth of the rows, their leading
        principal components) and Gaussians. Centres of Gaussians are rows, those of "means" are
        means of 20 rows or more.
    X : array of shape (n, d)
        Rows from which centres and the width are taken.
    n_centers : int or "auto"
        Number of centres or Fourier features; "auto" is 100, or all rows if there are fewer,
        and for the smooth basis `auto_centers`.
    width : float, "median" or "auto"
        Length scale in the units of ``X``, or the median distance between rows. "auto" begins
        there too; who searches goes on with `rescaled`.
    rng : RandomState
        Source of randomness.
    weight : array of shape (n,), optional
        How much each row counts in the median distance, and how likely it becomes a centre.
    """
    if isinstance(basis, str):
        return BASES[basis](X, n_centers, width, rng, weight)
    if basis.n_features != X.shape[1]:
        raise InputError(
            f"the given basis takes {basis.n_features} features, but X has {X.shape[1]}."
        )
    return basis


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
        """Refuse directions that are not numbers."""
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


def draw_principal(
    X: Array, size: int, rng: Rng, weight: Array | None = None
) -> PrincipalBasis:
    """Return the ``size`` leading principal components of the rows ``X``, or as many as they have.

    Costs O(n d min(n, d)) time for at most 5,000 of the rows.
    """
    share = np.ones(len(X)) if weight is None else weight
    if len(X) > SAMPLE_ROWS:
        some = rng.choice(len(X), SAMPLE_ROWS, replace=False)
        X = X[some]
        share = share[some]
    centred = (X - np.average(X, axis=0, weights=share)) * np.sqrt(share)[:, None]
    n, d = centred.shape
    smaller = min(n, d)
    top = (max(smaller - size, 0), smaller - 1)
    if d <= n:
        _, vectors = eigh(centred.T @ centred, subset_by_index=top)
        return PrincipalBasis(np.ascontiguousarray(vectors[:, ::-1]))
    values, left = eigh(centred @ centred.T, subset_by_index=top)
    spreads = (
        values > 1e-12 * values[-1]
    )  # centred rows span one direction less than there are
    vectors = centred.T @ (left[:, spreads] / np.sqrt(values[spreads]))
    return PrincipalBasis(np.ascontiguousarray(vectors[:, ::-1]))
