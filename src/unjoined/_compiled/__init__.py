"""Compiled arithmetic of rows, for processors with AVX2; elsewhere numpy does the same.

`gaussian_kernel`, `label_kernel` and `ridge_paths` return None where the library was not built, or
the processor is another one, or ``UNJOINED_COMPILED=0`` is set: whoever calls them goes on in
numpy, and comes to the same result but for rounding.
"""

from unjoined._compiled.kernels import (
    GaussianKernel,
    LabelKernel,
    MeanArrays,
    PolicyArrays,
    RowArrays,
    ScannedLabels,
    SumArrays,
    gaussian_kernel,
    label_kernel,
    ridge_paths,
)
from unjoined._compiled.library import plain

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
