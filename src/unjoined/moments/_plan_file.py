"""Plans as plain words and numbers, for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OutcomeCoding
from unjoined.errors import InputError
from unjoined.features import (
    Basis,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    Scaling,
    StackedBasis,
)
from unjoined.moments._center import Centring, SmoothMeans
from unjoined.moments._plan import SumsPlan

__all__ = ["plan_from_parts", "plan_parts"]


def plan_parts(plan: SumsPlan) -> tuple[dict[str, Any], dict[str, Array]]:
    """Take a plan apart into what JSON can hold, and arrays by name.

    Raises
    ------
    InputError
        The basis or the centring is of a kind that files do not hold.
    """
    arrays: dict[str, Array] = {}
    for name in plan.populations:
        if not isinstance(name, str | int | float | bool):
            raise InputError(f"populations need names of text or numbers in a file, got {name!r}.")
    parts: dict[str, Any] = {
        "feature_names": None if plan.feature_names is None else list(plan.feature_names),
        "populations": list(plan.populations),
        "coding": [plan.coding.offset, plan.coding.scale, plan.coding.is_binary],
        "n_groups": plan.n_groups,
        "scaling": _put_scaling(plan.scaling, "scaling", arrays),
        "basis": _put_basis(plan.basis, "basis", arrays),
        "critic": None if plan.critic is plan.basis else _put_basis(plan.critic, "critic", arrays),
        "centring": [
            _put_centring(centring, f"centring{j}", arrays)
            for j, centring in enumerate(plan.centring)
        ],
    }
    if plan.single:  # double is not mentioned: files were written before there was a choice
        parts["precision"] = "single"
    return parts, arrays


def plan_from_parts(parts: Mapping[str, Any], arrays: Mapping[str, Array]) -> SumsPlan:
    """Put a plan together again."""
    offset, scale, is_binary = parts["coding"]
    basis = _get_basis(parts["basis"], "basis", arrays)
    names = parts["feature_names"]
    first, second = parts["populations"]
    return SumsPlan(
        feature_names=None if names is None else tuple(names),
        populations=(first, second),
        coding=OutcomeCoding(offset, scale, is_binary=is_binary),
        scaling=_get_scaling("scaling", arrays),
        basis=basis,
        critic=basis if parts["critic"] is None else _get_basis(parts["critic"], "critic", arrays),
        centring=tuple(
            _get_centring(part, f"centring{j}", arrays) for j, part in enumerate(parts["centring"])
        ),
        n_groups=parts["n_groups"],
        single=parts.get("precision") == "single",
    )


def _put_scaling(scaling: Scaling, name: str, arrays: dict[str, Array]) -> str:
    arrays[f"{name}.mean"], arrays[f"{name}.scale"] = scaling.mean, scaling.scale
    return "standard"


def _get_scaling(name: str, arrays: Mapping[str, Array]) -> Scaling:
    return Scaling(arrays[f"{name}.mean"], arrays[f"{name}.scale"])


def _put_basis(basis: Basis, name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    if isinstance(basis, GaussianBasis):
        arrays[f"{name}.centers"] = basis.centers
        return {"type": "gaussian", "width": float(basis.width)}
    if isinstance(basis, FourierBasis):
        arrays[f"{name}.frequencies"], arrays[f"{name}.phases"] = basis.frequencies, basis.phases
        return {"type": "fourier"}
    if isinstance(basis, PrincipalBasis):
        arrays[f"{name}.directions"] = basis.directions
        return {"type": "principal"}
    if isinstance(basis, LinearBasis):
        return {"type": "linear", "n_features": int(basis.n_features)}
    if isinstance(basis, StackedBasis):
        return {
            "type": "stacked",
            "first": _put_basis(basis.first, f"{name}.first", arrays),
            "second": _put_basis(basis.second, f"{name}.second", arrays),
        }
    raise InputError(
        f"a file of sums holds Gaussian, Fourier, linear and stacked bases, not "
        f"{type(basis).__name__}."
    )


def _get_basis(part: Mapping[str, Any], name: str, arrays: Mapping[str, Array]) -> Basis:
    match part["type"]:
        case "gaussian":
            return GaussianBasis(arrays[f"{name}.centers"], part["width"])
        case "fourier":
            return FourierBasis(arrays[f"{name}.frequencies"], arrays[f"{name}.phases"])
        case "principal":
            return PrincipalBasis(arrays[f"{name}.directions"])
        case "linear":
            return LinearBasis(part["n_features"])
        case _:
            return StackedBasis(
                _get_basis(part["first"], f"{name}.first", arrays),
                _get_basis(part["second"], f"{name}.second", arrays),
            )


def _put_centring(centring: Centring, name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    means = centring.means
    if not isinstance(means, SmoothMeans):
        raise InputError(
            "a file of sums cannot hold the regressor given as center, which another program "
            "could not run. Use center=True or center=False."
        )
    _put_scaling(centring.scaling, f"{name}.scaling", arrays)
    for field in ("coef", "offset"):
        arrays[f"{name}.{field}"] = getattr(means, field)
    # Only the upper limits are kept, the lower ones being their negatives; inf is no JSON.
    limits = [None if np.isinf(high) else float(high) for high in means.high]
    return {"basis": _put_basis(means.basis, f"{name}.basis", arrays), "high": limits}


def _get_centring(part: Mapping[str, Any], name: str, arrays: Mapping[str, Array]) -> Centring:
    high = np.array([np.inf if limit is None else limit for limit in part["high"]])
    means = SmoothMeans(
        _get_basis(part["basis"], f"{name}.basis", arrays),
        arrays[f"{name}.coef"],
        arrays[f"{name}.offset"],
        -high,
        high,
    )
    return Centring(_get_scaling(f"{name}.scaling", arrays), means)
