"""How estimators take columns, and what a fit is known by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.evaluate.tables import row_fingerprint
from unjoined.model.plan import PlannedSums

MOST_NAMED = 5  # features
COLUMNS = ("X", "y", "kind", "population", "sample_weight")
ROUTING = (
    "In GridSearchCV, cross_validate or a Pipeline, call "
    "sklearn.set_config(enable_metadata_routing=True) first, and pass kind and population to "
    "their fit"
)


class GivenRows(NamedTuple):
    """The columns that a method was called with."""

    X: Any
    y: Any
    kind: Any
    population: Any
    sample_weight: Any = None

    @classmethod
    def of_call(
        cls, X: Any, y: Any, kind: Any, population: Any, sample_weight: Any, *, method: str
    ) -> GivenRows:
        """Return the columns, which may come in one mapping such as `SeparateLabels`."""
        labels = {"y": y, "kind": kind, "population": population}
        whole = isinstance(X, Mapping) and not issparse(X)  # some sparse matrices are mappings
        if whole and set(X) <= set(COLUMNS) and "X" in X:
            given = {name for name, value in labels.items() if value is not None}
            if given or sample_weight is not None:
                raise InputError(
                    f"{method} was given a data set and other columns as well. Write "
                    f"{method}(data), or {method}(X, y, kind=..., population=...)."
                )
            X, labels = (
                X["X"],
                {name: X.get(name) for name in labels} | {"sample_weight": X.get("sample_weight")},
            )
            sample_weight = labels.pop("sample_weight")
        if y is None and kind is not None and not whole:
            raise InputError(f"{method} requires y to be passed, but the target y is None.")
        if missing := [name for name, value in labels.items() if value is None]:
            raise InputError(
                f"{method} needs {', '.join(missing)} beside the features: write {method}(data) "
                f"with a SeparateLabels, or {method}(X, y, kind=..., population=...). {ROUTING}."
            )
        return cls(X, labels["y"], labels["kind"], labels["population"], sample_weight)


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of what computes."""
    packages = ("unjoined", "numpy", "scipy", "scikit-learn")
    return {name: version(name) for name in packages} | {"python": python_version()}


def fingerprint(rows: LabelledRows | PlannedSums) -> str:
    """Return 16 hexadecimal digits that change with the rows, but not with their order."""
    if isinstance(rows, LabelledRows):
        return row_fingerprint(rows)
    sums = rows.sums
    label, trace = sums.label_basis.sum(axis=-1), np.trace(sums.gram, axis1=-2, axis2=-1)
    cells = [
        (*cell, n_rows, f"{label[cell]:.6g}", f"{trace[cell]:.6g}")
        for cell, n_rows in np.ndenumerate(sums.n_rows)
    ]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]
