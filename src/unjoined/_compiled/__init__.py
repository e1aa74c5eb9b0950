"""Compiled arithmetic of rows, for processors with AVX2; elsewhere numpy does the same.

`gaussian_kernel`, `label_kernel` and `ridge_paths` return None where the library was not built, or
the processor is another one, or ``UNJOINED_COMPILED=0`` is set: whoever calls them goes on in
numpy, and comes to the same result but for rounding.
"""

from unjoined._compiled._gaussians import (
    GaussianKernel,
    MeanArrays,
    PolicyArrays,
    RowArrays,
    SumArrays,
    gaussian_kernel,
)
from unjoined._compiled._labels import LabelKernel, ScannedLabels, label_kernel
from unjoined._compiled._library import plain
from unjoined._compiled._ridges import ridge_paths

__all__ = [
    "GaussianKernel",
    "LabelKernel",
    "MeanArrays",
    "PolicyArrays",
    "RowArrays",
    "ScannedLabels",
    "SumArrays",
    "gaussian_kernel",
    "label_kernel",
    "plain",
    "ridge_paths",
]
