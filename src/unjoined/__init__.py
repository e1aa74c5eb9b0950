"""Whom to treat, when treatment and outcome labels can never be joined.

Four tables, no common key: outcomes and treatments, each of two populations that were treated
by different policies. The package estimates each individual's uplift from them, says whether
the data can identify it, evaluates the estimate and turns it into a targeting list.

The estimators and what the first steps need are here. The rest is in public submodules:
``data``, ``evaluate``, ``targeting``, ``report``, ``plot``, ``export``, ``federated``,
``warehouse``, ``paper``, ``model``, ``datasets`` and ``errors``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unjoined import (
        data,
        datasets,
        errors,
        evaluate,
        export,
        federated,
        model,
        paper,
        plot,
        report,
        targeting,
        warehouse,
    )
    from unjoined.data import SeparateLabels, read_table
    from unjoined.estimators.em import EMUplift
    from unjoined.estimators.minmax import MinMaxUplift
    from unjoined.estimators.persist import load_model, save_model
    from unjoined.estimators.uplift import Uplift
    from unjoined.estimators.weighted import WeightedUplift
    from unjoined.evaluate import identification_strength, record_gain
    from unjoined.paper.density import DensityUplift
    from unjoined.paper.neural import NeuralMinMaxUplift
    from unjoined.paper.plugin import (
        FourLogistic,
        FourNNC,
        FourNNR,
        FourRidge,
        MinMaxGau,
        PlugInUplift,
        TwoStageUplift,
    )

__version__ = "0.1.0"

__all__ = [
    "ArmUplift",
    "DensityUplift",
    "EMUplift",
    "FourLogistic",
    "FourNNC",
    "FourNNR",
    "FourRidge",
    "MinMaxGau",
    "MinMaxUplift",
    "NeuralMinMaxUplift",
    "PlugInUplift",
    "SeparateLabels",
    "TwoStageUplift",
    "Uplift",
    "WeightedUplift",
    "__version__",
    "data",
    "datasets",
    "errors",
    "evaluate",
    "export",
    "federated",
    "identification_strength",
    "load_model",
    "model",
    "paper",
    "plot",
    "read_table",
    "record_gain",
    "report",
    "save_model",
    "targeting",
    "warehouse",
]

# Names are imported when they are first used, so that the command line answers at once.
_HOMES = {
    **dict.fromkeys(("SeparateLabels", "read_table"), "data"),
    **dict.fromkeys(("identification_strength", "record_gain"), "evaluate"),
    "ArmUplift": "estimators.arms",
    "DensityUplift": "paper.density",
    "EMUplift": "estimators.em",
    "MinMaxUplift": "estimators.minmax",
    "NeuralMinMaxUplift": "paper.neural",
    "Uplift": "estimators.uplift",
    "WeightedUplift": "estimators.weighted",
    **dict.fromkeys(("load_model", "save_model"), "estimators.persist"),
    **dict.fromkeys(
        ("FourLogistic", "FourNNC", "FourNNR", "FourRidge"), "paper.plugin"
    ),
    **dict.fromkeys(("MinMaxGau", "PlugInUplift", "TwoStageUplift"), "paper.plugin"),
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in __all__:
        raise AttributeError(f"module 'unjoined' has no attribute {name!r}")
    if name not in _HOMES:
        return import_module(f"unjoined.{name}")
    value = getattr(import_module(f"unjoined.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
