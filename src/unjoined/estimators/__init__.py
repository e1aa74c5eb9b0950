"""Estimators of the uplift, with scikit-learn's conventions."""

from unjoined.estimators._base import UpliftEstimator
from unjoined.estimators._candidates import CandidateScore, CandidateTable
from unjoined.estimators._density import DensityUplift
from unjoined.estimators._minmax import MinMaxUplift
from unjoined.estimators._minmax_problem import BoundsReport, LossReport
from unjoined.estimators._minmax_select import MinMaxSearch
from unjoined.estimators._mixture import MixtureUplift
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
from unjoined.estimators._search import UpliftSearchCV
from unjoined.estimators._two_stage import TwoStageCoefficients, TwoStageUplift
from unjoined.estimators._uplift import Uplift
from unjoined.estimators._weighted import RiskPath, WeightedUplift

__all__ = [
    "BoundsReport",
    "CandidateScore",
    "CandidateTable",
    "DensityUplift",
    "FourLogistic",
    "FourNNC",
    "FourNNR",
    "FourRidge",
    "LossReport",
    "MinMaxGau",
    "MinMaxSearch",
    "MinMaxUplift",
    "MixtureUplift",
    "NeuralMinMaxUplift",
    "PlugInUplift",
    "RiskPath",
    "TwoStageCoefficients",
    "TwoStageUplift",
    "Uplift",
    "UpliftEstimator",
    "UpliftSearchCV",
    "WeightedUplift",
    "load_model",
    "save_model",
]
