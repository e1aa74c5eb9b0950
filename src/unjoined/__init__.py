"""Whom to treat, when treatment and outcome labels can never be joined.

Four tables, no common key: outcomes and treatments, each of two populations that were treated
by different policies. The package estimates each individual's uplift from them, says whether
the data can identify it, evaluates the estimate and turns it into a targeting list.

The estimators and what the first steps need are here. The rest is in public submodules:
``data``, ``datasets``, ``metrics``, ``targeting``, ``sums``, ``losses``, ``basis``, ``errors`` and
``plot``.
"""

from unjoined import basis, data, datasets, errors, losses, metrics, plot, sums, targeting
from unjoined.data import SeparateLabels, TableSource, read_table
from unjoined.estimators import (
    DensityUplift,
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    MinMaxUplift,
    MixtureUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    UpliftSearchCV,
    WeightedUplift,
    load_model,
    record_gain,
    save_model,
)
from unjoined.metrics import identification_strength

__version__ = "0.1.0"

__all__ = [
    "DensityUplift",
    "FourLogistic",
    "FourNNC",
    "FourNNR",
    "FourRidge",
    "MinMaxGau",
    "MinMaxUplift",
    "MixtureUplift",
    "NeuralMinMaxUplift",
    "PlugInUplift",
    "SeparateLabels",
    "TableSource",
    "TwoStageUplift",
    "Uplift",
    "UpliftSearchCV",
    "WeightedUplift",
    "__version__",
    "basis",
    "data",
    "datasets",
    "errors",
    "identification_strength",
    "load_model",
    "losses",
    "metrics",
    "plot",
    "read_table",
    "record_gain",
    "save_model",
    "sums",
    "targeting",
]
