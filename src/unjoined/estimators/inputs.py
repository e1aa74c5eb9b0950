"""How estimators take columns, and what a fit is known by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from scipy.sparse import issparse

from unjoined._typing import MatrixLike
from unjoined.data.labels import COLUMNS, SeparateLabels, as_data
from unjoined.data.rows import LabelledRows, Rows
from unjoined.errors import InputError
from unjoined.evaluate.tables import row_fingerprint
from unjoined.model.plan import PlannedSums

MOST_NAMED = 5  # features
ROUTING = (
    "In GridSearchCV, cross_validate or a Pipeline, call "
    "sklearn.set_config(enable_metadata_routing=True) first, and pass treatment and population to "
    "their fit"
)


def columns_of(
    X: Any, columns: tuple[Any, ...], *, method: str
) -> tuple[MatrixLike | SeparateLabels, Rows | None]:
    """Return the features, and checked rows if they came with them in one container.

    Of streamed rows the container itself stands for both. ``columns`` are y, treatment, population
    and the others as they were given beside ``X``.
    """
    given = dict(zip(COLUMNS[1:], columns, strict=True))
    is_data = isinstance(X, SeparateLabels)
    if (
        not is_data and isinstance(X, Mapping) and not issparse(X)
    ):  # some of these are mappings
        is_data = "X" in X and set(X) <= set(COLUMNS)
    if is_data:
        if any(column is not None for column in columns):
            raise InputError(
                f"{method} was given a data set and other columns as well. Write {method}(data), "
                f"or {method}(X, y, treatment=..., population=...)."
            )
        data = as_data(X)
        if data.is_streamed and method != "fit":
            raise InputError(
                f"{method} needs all rows in memory, and these are streamed."
            )
        return (data, None) if data.is_streamed else (data.X, data.checked)
    if given["y"] is None and given["treatment"] is not None:
        raise InputError(f"{method} requires y to be passed, but the target y is None.")
    if missing := [name for name in COLUMNS[1:4] if given[name] is None]:
        raise InputError(
            f"{method} needs {', '.join(missing)} beside the features: write {method}(data) with a "
            f"SeparateLabels, or {method}(X, y, treatment=..., population=...), with NaN where a "
            f"row has no such label. {ROUTING}."
        )
    if given["count"] is not None:
        data = SeparateLabels(X, **given)  # labels may be shares, which it writes out
        return data.X, data.checked
    return X, None


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
    label = sums.label_basis.sum(axis=-1)
    trace = np.trace(sums.gram, axis1=-2, axis2=-1)
    cells = [
        (*cell, n_rows, f"{label[cell]:.6g}", f"{trace[cell]:.6g}")
        for cell, n_rows in np.ndenumerate(sums.n_rows)
    ]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]
