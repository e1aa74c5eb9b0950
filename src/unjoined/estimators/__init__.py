"""Estimators of the uplift, with scikit-learn's conventions."""

from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.candidates import CandidateScore, CandidateTable
from unjoined.estimators.density import DensityUplift
from unjoined.estimators.gains import record_gain
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.minmax_plan import MinMaxSearch
from unjoined.estimators.minmax_problem import BoundsReport, LossReport
from unjoined.estimators.mixture import MixtureUplift
from unjoined.estimators.neural import NeuralMinMaxUplift
from unjoined.estimators.persist import is_model_file, load_model, save_model
from unjoined.estimators.plugin import (
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    PlugInUplift,
)
from unjoined.estimators.search import UpliftSearchCV
from unjoined.estimators.two_stage import TwoStageCoefficients, TwoStageUplift
from unjoined.estimators.uplift import Uplift
from unjoined.estimators.weighted import RiskPath, WeightedUplift

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
    "is_model_file",
    "load_model",
    "record_gain",
    "save_model",
]
