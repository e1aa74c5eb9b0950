"""Smooth functions whose squared coefficients measure their roughness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import eigh

from unjoined._typing import Array
from unjoined._validation import check_numbers
from unjoined.errors import InputError
from unjoined.features._basis import GaussianBasis

__all__ = ["KernelBasis", "draw_kernel"]

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
