"""Regression of labels on a constant, features and smooth functions, from sums alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import pinvh

from unjoined._typing import Array
from unjoined.moments._sums import MomentSums

__all__ = ["SmoothPath", "smooth_coef", "smoothest_best"]

PENALTIES = np.logspace(-6.0, 2.0, 17)  # per row
# Counting each degree of freedom 1.4 times keeps generalised cross-validation from the rough
# fits it now and then chooses (Kim and Gu, 2004).
INFLATION = 1.4
ROWS_PER_FREE = 10  # rows per feature from which on the linear part is not penalised


def smooth_coef(sums: MomentSums, square: float, n_features: int) -> Array:
    r"""Regress the label on a constant, the features (both free) and Gaussians (with a ridge).

    .. math::

        \min_{a, c} \; \sum_i r_i (l_i - a^\top (1, x_i) - c^\top \phi(x_i))^2 + \lambda \|c\|^2,

    with :math:`\lambda` from generalised cross-validation,
    :math:`RSS / (1 - 1.4\,\mathrm{df} / n)^2`. As the linear part is free, a linear function
    added to the labels adds to the fit and changes no residual. With fewer than ten rows per
    feature only the constant is free.

    Parameters
    ----------
    sums : MomentSums
        Of the basis values, linear functions first, and the label.
    square : float
        The weighted sum of squared labels.
    n_features : int
        Number of linear functions, without the constant.
    """
    n = sums.n_rows
    path = SmoothPath.of_sums(sums, n_features)
    left = n / sums.weight * square - path.v @ path.inverse @ path.v
    residual = left - 2.0 * path.shrunk @ path.u + (path.shrunk**2) @ path.values
    shares = path.values / (path.values + n * PENALTIES[:, None])
    degrees = len(path.v) + np.sum(shares, axis=1)
    score = residual / np.maximum(1.0 - INFLATION * degrees / n, 1e-2) ** 2
    coef: Array = path.coef()[:, smoothest_best(score)]
    return coef


def smoothest_best(score: Array) -> int:
    """Return the best penalty; a tie, as with a label that never varies, goes to the smoothest."""
    return len(score) - 1 - int(np.argmin(score[::-1]))


class SmoothPath(NamedTuple):
    """The regressions of `smooth_coef` for all penalties, the free part projected out."""

    inverse: Array  # (free, free) of the free part's products
    B: Array  # (free, p - free) what the free part says of the rest
    v: Array  # (free,) products of the free part and the label
    vectors: Array  # (p - free, p - free) directions of the rest
    values: Array  # (p - free,)
    u: Array  # (p - free,) products of the directions and the label
    shrunk: Array  # (n_penalties, p - free) coefficients of the directions

    @classmethod
    def of_sums(cls, sums: MomentSums, n_features: int) -> SmoothPath:
        """Solve for all penalties by one decomposition."""
        n = sums.n_rows
        G, v = (n / sums.weight * part for part in (sums.gram, sums.label_basis))
        free = 1 + (n_features if n >= ROWS_PER_FREE * (1 + n_features) else 0)
        # Frisch, Waugh and Lovell; features may be collinear.
        inverse = np.asarray(pinvh(G[:free, :free]), dtype=np.float64)
        B = inverse @ G[:free, free:]
        values, vectors = np.linalg.eigh(G[free:, free:] - G[free:, :free] @ B)
        values = np.maximum(values, 0.0)  # rounding only
        u: Array = vectors.T @ (v[free:] - B.T @ v[:free])
        shrunk = u / (values + n * PENALTIES[:, None])
        return cls(inverse, B, v[:free], vectors, values, u, shrunk)

    def coef(self) -> Array:
        """Return the coefficients of all functions, one column per penalty."""
        c = self.vectors @ self.shrunk.T
        return np.vstack([(self.inverse @ self.v)[:, None] - self.B @ c, c])
