"""Functions that the uplift and its critic are combinations of."""

from unjoined._typing import Basis
from unjoined.basis.draw import (
    BASES,
    LeadingBasis,
    auto_centers,
    draw_basis,
    draw_pool,
    has_width,
    kernel_size,
    median_width,
    rescaled,
    same_basis,
)
from unjoined.basis.families import (
    KernelBasis,
    PrincipalBasis,
    QuadraticBasis,
    draw_kernel,
    draw_quadratic,
)
from unjoined.basis.functions import (
    Filler,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
    filler,
    weighted_quantile,
)

__all__ = [
    "BASES",
    "Basis",
    "Filler",
    "FourierBasis",
    "GaussianBasis",
    "KernelBasis",
    "LeadingBasis",
    "LinearBasis",
    "PrincipalBasis",
    "QuadraticBasis",
    "ScaledBasis",
    "Scaling",
    "StackedBasis",
    "auto_centers",
    "draw_basis",
    "draw_kernel",
    "draw_pool",
    "draw_quadratic",
    "filler",
    "has_width",
    "kernel_size",
    "median_width",
    "rescaled",
    "same_basis",
    "weighted_quantile",
]
