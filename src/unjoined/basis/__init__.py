"""Functions that the uplift and its critic are combinations of."""

from unjoined._typing import Basis
from unjoined.basis.additive import (
    CATEGORY,
    CONSTANT,
    CURVE,
    LINE,
    PAIR,
    SQUARE,
    AdditiveBasis,
    Curve,
    leading_features,
)
from unjoined.basis.draw import (
    BASES,
    PrincipalBasis,
    auto_centers,
    draw_basis,
    has_width,
    means_basis,
    median_width,
    rescaled,
    same_basis,
)
from unjoined.basis.functions import (
    BasisWriter,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
    basis_writer,
    has_constant,
    weighted_quantile,
)

__all__ = ["Basis", "FourierBasis", "GaussianBasis", "LinearBasis"]
