"""Estimators of the uplift, with scikit-learn's conventions."""

from unjoined.estimators._base import UpliftEstimator
from unjoined.estimators._minmax import MinMaxGau, MinMaxUplift
from unjoined.estimators._persist import load_model, save_model
from unjoined.estimators._plugin import PlugInUplift
from unjoined.estimators._presets import FourLogistic, FourNNC, FourNNR, FourRidge

__all__ = [
    "FourLogistic",
    "FourNNC",
    "FourNNR",
    "FourRidge",
    "MinMaxGau",
    "MinMaxUplift",
    "PlugInUplift",
    "UpliftEstimator",
    "load_model",
    "save_model",
]
