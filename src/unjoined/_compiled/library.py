"""The compiled library: found, loaded, and its structures as kernels.c declares them."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unjoined.errors import InputError


class Rows(Structure):
    """Rows of a table, or those at some positions."""

    _fields_ = (
        ("X", c_void_p),
        ("at", c_void_p),
        ("n", c_int64),
        ("label", c_void_p),
        ("weight", c_void_p),
    )


class Basis(Structure):
    """Gaussian functions, and linear ones before them."""

    _fields_ = (
        ("d", c_int32),
        ("p", c_int32),
        ("n_gaussians", c_int32),
        ("width", c_double),
        ("shift", c_void_p),
        ("factor", c_void_p),
        ("product", c_void_p),
        ("origin", c_void_p),
    )


class Means(Structure):
    """What is subtracted from labels."""

    _fields_ = (
        ("r", c_int32),
        ("bound", c_double),
        ("coef", c_void_p),
        ("slope", c_void_p),
        ("offset", c_void_p),
    )


class Sums(Structure):
    """Where sums are added to."""

    _fields_ = (
        ("unit", c_int32),
        ("weight", c_double),
        ("label_basis", c_void_p),
        ("gram", c_void_p),
        ("label_cross", c_void_p),
    )


class Policies(Structure):
    """Where sums that tell policies apart are added to."""

    _fields_ = (
        ("d", c_int32),
        ("stride", c_int32),
        ("shift", c_void_p),
        ("factor", c_void_p),
        ("treatment", c_void_p),
        ("gram", c_void_p),
        ("square", c_void_p),
    )


class Labels(Structure):
    """Columns of labels, and the words and numbers they may hold."""

    _fields_ = (
        ("y", c_void_p),
        ("kind", c_void_p),
        ("population", c_void_p),
        ("kind_size", c_int64),
        ("population_size", c_int64),
        ("outcome", c_void_p),
        ("treatment", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
    )


class LabelBlock(Structure):
    """What some rows were found to hold."""

    _fields_ = (
        ("cells", c_int32),
        ("codes", c_int32),
        ("n_values", c_int32),
        ("values", c_double * 3),
    )


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded functions, and what they ask of arrays."""

    level: int
    values: Any
    combine: Any
    add_up: Any
    scan: Any
    ridge_paths: Any
    max_features: int
    min_gaussians: int
    rows: int  # basis values of so many are computed together
    block_rows: int  # added up together
    stride_lanes: int  # strides of matrices are multiples of this


@cache
def library() -> Library | None:
    """Return the library, or None if there is none for this machine."""
    spec = find_spec("unjoined._compiled._kernels")
    if os.environ.get("UNJOINED_COMPILED") == "0" or spec is None or spec.origin is None:
        return None
    loaded = ctypes.CDLL(spec.origin)
    level = int(loaded.unjoined_level())
    if level == 0:
        return None
    rows, basis = POINTER(Rows), POINTER(Basis)
    names = ("values", "combine", "add_up", "scan", "ridge_paths")
    values, combine, add_up, scan, paths = (getattr(loaded, f"unjoined_{name}") for name in names)
    values.argtypes = [c_int32, rows, basis, c_void_p]
    combine.argtypes = [c_int32, rows, basis, c_void_p, c_int32, c_void_p, c_void_p]
    add_up.argtypes = [
        *(c_int32, rows, basis, POINTER(Means), c_int32, c_void_p),
        *(POINTER(Sums), POINTER(Policies)),
    ]
    paths.argtypes = [
        *(c_int32, c_int32, c_void_p, c_int32, c_int32, c_void_p),
        *(c_void_p, c_int32, c_void_p, c_void_p),
    ]
    for function in (values, combine, add_up, paths):
        function.restype = None
    scan.argtypes = [POINTER(Labels), c_int64, c_int64, c_void_p, POINTER(LabelBlock)]
    limits = ("max_features", "min_gaussians", "rows", "block_rows", "stride_lanes")
    numbers = {name: int(getattr(loaded, f"unjoined_{name}")()) for name in limits}
    return Library(level, values, combine, add_up, scan, paths, **numbers)


def padded(columns: int, lanes: int) -> int:
    """Return the length of a row in memory: whole vectors, and not a multiple of 4096 bytes.

    Rows that far apart would share few places of the cache.
    """
    stride = -(-columns // lanes) * lanes
    return stride if stride % 512 else stride + lanes


def plain(array: Any) -> NDArray[np.float64]:
    """Return numbers as compiled code reads them, without a copy if they are that already."""
    return np.require(array, dtype=np.float64, requirements=["C", "A"])


def address(
    name: str,
    array: NDArray[Any],
    *shape: int,
    dtype: DTypeLike = np.float64,
    written: bool = False,
) -> int:
    """Return where the numbers of an array lie; whoever asks keeps the array.

    Compiled code believes whatever it is told of shapes, so that this is where they are checked.
    """
    flags = array.flags
    fits = array.shape == shape and array.dtype == dtype and flags.c_contiguous and flags.aligned
    if not fits or (written and not flags.writeable):
        raise InputError(
            f"compiled arithmetic takes {name} as {np.dtype(dtype)} of shape {shape}"
            f"{', writeable' * written}, whose numbers lie side by side in C order, got "
            f"{array.dtype} of shape {array.shape} with strides {array.strides}."
        )
    return int(array.ctypes.data)
