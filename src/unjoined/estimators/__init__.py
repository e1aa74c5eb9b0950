"""Estimators of the uplift, with scikit-learn's conventions."""

from unjoined.estimators._base import UpliftEstimator
from unjoined.estimators._density import DensityUplift
from unjoined.estimators._minmax import MinMaxUplift
from unjoined.estimators._minmax_problem import BoundsReport, LossReport
from unjoined.estimators._neural import NeuralMinMaxUplift
from unjoined.estimators._persist import load_model, save_model
from unjoined.estimators._plugin import PlugInUplift
from unjoined.estimators._presets import (
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
)
from unjoined.estimators._two_stage import TwoStageCoefficients, TwoStageUplift

__all__ = [
    "BoundsReport",
    "DensityUplift",
    "FourLogistic",
    "FourNNC",
    "FourNNR",
    "FourRidge",
    "LossReport",
    "MinMaxGau",
    "MinMaxUplift",
    "NeuralMinMaxUplift",
    "PlugInUplift",
    "TwoStageCoefficients",
    "TwoStageUplift",
    "UpliftEstimator",
    "load_model",
    "save_model",
]
