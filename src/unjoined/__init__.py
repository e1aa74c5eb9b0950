"""Whom to treat, when treatment and outcome labels can never be joined.

Four tables, no common key: outcomes and treatments, each of two populations that were treated
by different policies. The package estimates each individual's uplift from them, says whether
the data can identify it, evaluates the estimate and turns it into a targeting list.

The estimators and what the first steps need are here. The rest is in public submodules:
``data``, ``datasets``, ``metrics``, ``targeting``, ``sums``, ``losses``, ``basis``, ``errors``,
``export``, ``plot`` and ``report``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unjoined import (
        basis,
        data,
        datasets,
        errors,
        export,
        losses,
        metrics,
        plot,
        report,
        sums,
        targeting,
    )
    from unjoined.data import SeparateLabels, TableSource, read_table
    from unjoined.estimators import (
        DensityUplift,
        EMUplift,
        FourLogistic,
        FourNNC,
        FourNNR,
        FourRidge,
        MinMaxGau,
        MinMaxUplift,
        NeuralMinMaxUplift,
        PlugInUplift,
        TwoStageUplift,
        Uplift,
        WeightedUplift,
        load_model,
        save_model,
    )
    from unjoined.metrics import identification_strength, record_gain

__version__ = "0.1.0"

__all__ = [
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
    "TableSource",
    "TwoStageUplift",
    "Uplift",
    "WeightedUplift",
    "__version__",
    "basis",
    "data",
    "datasets",
    "errors",
    "export",
    "identification_strength",
    "load_model",
    "losses",
    "metrics",
    "plot",
    "read_table",
    "record_gain",
    "report",
    "save_model",
    "sums",
    "targeting",
]

# Names are imported when they are first used, so that the command line answers at once. A name
# is a submodule, or is found in one: in ``estimators``, unless it is said here.
_SUBMODULES = {
    *("basis", "data", "datasets", "errors", "export"),
    *("losses", "metrics", "plot", "report", "sums", "targeting"),
}
_HOMES = {
    "SeparateLabels": "data",
    "TableSource": "data",
    "identification_strength": "metrics",
    "read_table": "data",
    "record_gain": "metrics",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in __all__:
        raise AttributeError(f"module 'unjoined' has no attribute {name!r}")
    if name in _SUBMODULES:
        return import_module(f"unjoined.{name}")
    value = getattr(import_module(f"unjoined.{_HOMES.get(name, 'estimators')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
