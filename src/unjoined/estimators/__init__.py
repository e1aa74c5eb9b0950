"""Estimators of the uplift, with scikit-learn's conventions."""

from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.density import (
    ConditionalDensity,
    DensitySearch,
    DensityUplift,
    UnmixedDensities,
    fit_densities,
    outcome_grid,
    search_density,
    trapezoid_weights,
    unmix,
)
from unjoined.estimators.em import EMUplift
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.minmax_plan import MinMaxSearch
from unjoined.estimators.minmax_problem import BoundsReport, LossReport
from unjoined.estimators.model_file import rows_held
from unjoined.estimators.neural import NeuralMinMaxUplift
from unjoined.estimators.persist import is_model_file, load_model, save_model
from unjoined.estimators.regressions import (
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    PlugInUplift,
    TwoStageCoefficients,
    TwoStageUplift,
)
from unjoined.estimators.uplift import Uplift
from unjoined.estimators.weighted import RiskPath, WeightedUplift
