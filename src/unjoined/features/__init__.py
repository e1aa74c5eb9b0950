"""Feature maps for the uplift and its critic, and how they are chosen for given rows."""

from unjoined.features._basis import (
    Basis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    StackedBasis,
)
from unjoined.features._draw import (
    BASES,
    auto_centers,
    draw_basis,
    has_width,
    median_width,
    rescaled,
)
from unjoined.features._kernel import KernelBasis, draw_kernel
from unjoined.features._models import fit_weighted, seeded_clone, takes_weights, unit_mean
from unjoined.features._pool import LeadingBasis, draw_pool, kernel_size
from unjoined.features._principal import PrincipalBasis
from unjoined.features._quadratic import QuadraticBasis, draw_quadratic
from unjoined.features._scaling import Scaling, weighted_quantile

__all__ = [
    "BASES",
    "Basis",
    "FourierBasis",
    "GaussianBasis",
    "KernelBasis",
    "LeadingBasis",
    "LinearBasis",
    "PrincipalBasis",
    "QuadraticBasis",
    "Scaling",
    "StackedBasis",
    "auto_centers",
    "draw_basis",
    "draw_kernel",
    "draw_pool",
    "draw_quadratic",
    "fit_weighted",
    "has_width",
    "kernel_size",
    "median_width",
    "rescaled",
    "seeded_clone",
    "takes_weights",
    "unit_mean",
    "weighted_quantile",
]
