"""Linear systems with many ridges."""

from __future__ import annotations

import numpy as np

from unjoined._compiled._library import address, library, padded
from unjoined._typing import Array
from unjoined.errors import InputError

__all__ = ["ridge_paths"]


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
