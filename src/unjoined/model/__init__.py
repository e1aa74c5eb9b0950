"""Numerics on checked arrays: bases, families, cross-fits, closed forms."""

from unjoined._typing import Basis
from unjoined.model.basis import FourierBasis, GaussianBasis, LinearBasis

__all__ = ["Basis", "FourierBasis", "GaussianBasis", "LinearBasis"]
