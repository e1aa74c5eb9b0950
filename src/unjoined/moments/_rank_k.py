"""The symmetric update that every row goes through: S + phi^T phi, one triangle of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

from unjoined._typing import Array

__all__ = ["add_gram", "mirrored"]

# What scipy calls the arguments of BLAS dsyrk; a build with other integers would differ.
_NUMBER = "__pyx_t_5scipy_6linalg_11cython_blas_d"
SIGNATURE = (
    f"void (char *, char *, int *, int *, {_NUMBER} *, {_NUMBER} *, int *, {_NUMBER} *, "
    f"{_NUMBER} *, int *)"
)
_ONE = ctypes.c_double(1.0)


def find_dsyrk(api: Mapping[str, Any], signature: str = SIGNATURE) -> Callable[..., None] | None:
    """Return BLAS dsyrk out of the functions scipy offers to compiled code, or None.

    Called this way it leaves Python's lock to other threads, which
    ``scipy.linalg.blas.dsyrk`` does not, and updates one triangle in place, which numpy's
    product of a matrix with its own transpose does not: a tenth of the time of the update.
    """
    capsule, python = api.get("dsyrk"), ctypes.pythonapi
    python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if capsule is None or not python.PyCapsule_IsValid(capsule, signature.encode()):
        return None
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = python.PyCapsule_GetPointer(capsule, signature.encode())
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, text, text, *[pointer] * 8)(address)


_dsyrk = find_dsyrk(cython_blas.__pyx_capi__)


def add_gram(phi: Array, total: Array) -> None:
    """Add phi^T phi to the upper triangle of ``total``; the lower one is left to chance.

    Parameters
    ----------
    phi : array of shape (m, p)
        In C order.
    total : array of shape (p, p)
        In Fortran order; changed in place.
    """
    if _dsyrk is None:
        total += phi.T @ phi
        return
    m, p = phi.shape
    size, rows = ctypes.byref(ctypes.c_int(p)), ctypes.byref(ctypes.c_int(m))
    alpha = ctypes.byref(_ONE)
    # C order read as Fortran order is the transpose, of p rows and m columns.
    _dsyrk(b"U", b"N", size, rows, alpha, phi.ctypes.data, size, alpha, total.ctypes.data, size)


def mirrored(total: Array) -> Array:
    """Return the symmetric matrix with the upper triangle of ``total``, in C order."""
    upper = np.triu(total)
    return np.ascontiguousarray(upper + np.triu(total, 1).T)
