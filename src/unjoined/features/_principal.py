"""A constant and the leading principal components, in place of very many features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import eigh

from unjoined._typing import Array
from unjoined._validation import check_numbers, check_row_width

__all__ = ["PrincipalBasis", "draw_principal", "most_linear"]

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
