"""Feature maps for the uplift and its critic, and how they are chosen for given rows."""

from unjoined.features._basis import (
    Basis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    StackedBasis,
)
from unjoined.features._draw import BASES, draw_basis, median_width
from unjoined.features._models import fit_weighted, seeded_clone
from unjoined.features._scaling import Scaling

__all__ = [
    "BASES",
    "Basis",
    "FourierBasis",
    "GaussianBasis",
    "LinearBasis",
    "Scaling",
    "StackedBasis",
    "draw_basis",
    "fit_weighted",
    "median_width",
    "seeded_clone",
]
