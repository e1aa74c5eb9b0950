"""The symmetric update that every row goes through: S + phi^T phi, one triangle of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

from unjoined._typing import Array, BoolArray, SingleArray
from unjoined.errors import InputError

__all__ = ["add_gram", "mirrored"]


def _signature(letter: str) -> str:
    # What scipy calls the arguments of BLAS syrk; a build with other integers would differ.
    number = f"__pyx_t_5scipy_6linalg_11cython_blas_{letter}"
    return (
        f"void (char *, char *, int *, int *, {number} *, {number} *, int *, {number} *, "
        f"{number} *, int *)"
    )


def find_syrk(
    api: Mapping[str, Any], letter: str, signature: str | None = None
) -> Callable[..., None] | None:
    """Return BLAS dsyrk ("d") or ssyrk ("s") out of what scipy offers to compiled code, or None.

    Called this way it leaves Python's lock to other threads, which
    ``scipy.linalg.blas.dsyrk`` does not, and updates one triangle in place, which numpy's
    product of a matrix with its own transpose does not: a tenth of the time of the update.
    """
    capsule, python = api.get(f"{letter}syrk"), ctypes.pythonapi
    known = (signature or _signature(letter)).encode()
    python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if capsule is None or not python.PyCapsule_IsValid(capsule, known):
        return None
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = python.PyCapsule_GetPointer(capsule, known)
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, text, text, *[pointer] * 8)(address)


_dsyrk, _ssyrk = (find_syrk(cython_blas.__pyx_capi__, letter) for letter in "ds")
_ONE, _ONE_SINGLE, _ZERO_SINGLE = ctypes.c_double(1.0), ctypes.c_float(1.0), ctypes.c_float(0.0)


def add_gram(phi: Array | SingleArray, total: Array) -> None:
    """Add phi^T phi to the upper triangle of ``total``; the lower one is left to chance.

    Parameters
    ----------
    phi : array of shape (m, p)
        In C order. In single precision the product is too, and is then added in double.
    total : array of shape (p, p)
        In Fortran order; changed in place.
    """
    m, p = phi.shape
    if total.shape != (p, p) or not (phi.flags.c_contiguous and total.flags.f_contiguous):
        raise InputError(
            f"rows in C order, shape ({m}, {p}), are added up in Fortran order, shape ({p}, {p}), "
            f"got shape {total.shape}."
        )
    size, rows = ctypes.byref(ctypes.c_int(p)), ctypes.byref(ctypes.c_int(m))
    # C order read as Fortran order is the transpose, of p rows and m columns.
    if phi.dtype == np.float64 and _dsyrk is not None:
        one = ctypes.byref(_ONE)
        _dsyrk(b"U", b"N", size, rows, one, phi.ctypes.data, size, one, total.ctypes.data, size)
    elif phi.dtype == np.float32 and _ssyrk is not None:
        part = np.zeros((p, p), dtype=np.float32, order="F")
        one, zero = ctypes.byref(_ONE_SINGLE), ctypes.byref(_ZERO_SINGLE)
        _ssyrk(b"U", b"N", size, rows, one, phi.ctypes.data, size, zero, part.ctypes.data, size)
        total += part
    else:
        total += phi.T @ phi


def mirrored(total: Array) -> Array:
    """Return the symmetric matrix with the upper triangle of ``total``, in C order."""
    return np.where(_upper(len(total)), total, total.T)


@lru_cache(maxsize=8)
def _upper(p: int) -> BoolArray:
    return np.tri(p, dtype=bool).T
