"""The paper's other estimators, general losses, and the bound on the error of its estimate."""

from unjoined.model.losses import (
    AbsoluteLoss,
    HuberLoss,
    PinballLoss,
    SmoothLoss,
    SquaredLoss,
    ThreePlayerLoss,
)
from unjoined.paper.bounds import ErrorBound, error_bound

__all__ = [
    "AbsoluteLoss",
    "ErrorBound",
    "HuberLoss",
    "PinballLoss",
    "SmoothLoss",
    "SquaredLoss",
    "ThreePlayerLoss",
    "error_bound",
]
