"""Plans as plain words and numbers, for files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array, Basis
from unjoined._validation import OUTCOME, OutcomeCoding
from unjoined.errors import InputError
from unjoined.model.basis import FourierBasis, GaussianBasis, LinearBasis, Scaling, StackedBasis
from unjoined.model.draw import PrincipalBasis
from unjoined.model.plan import CELLS, MAX_GROUPS, Centring, SmoothMeans, SumsPlan

LARGEST = 1e150  # of any number: its square is still one
MAX_DEPTH = 4  # of bases stacked on bases
PLAN = (
    *("feature_names", "populations", "coding", "n_groups", "clip"),
    *("scaling", "basis", "critic", "centring"),
)


class UnsoundError(Exception):
    """Says what is wrong inside a file; `read_sums` adds which file."""


def need(ok: bool, what: str) -> None:
    """Refuse the file unless ``ok``."""
    if not ok:
        raise UnsoundError(what)


def whole(value: Any, what: str, low: int, high: int) -> int:
    """Return a whole number in a range, both ends included."""
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    need(good, f"for {what} a whole number from {low} to {high} was expected")
    return int(value)


def number(value: Any, what: str, *, positive: bool = False) -> float:
    """Return a finite number, above 0 if asked."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    good = good and abs(value) <= LARGEST and (value > 0 or not positive)
    need(good, f"for {what} a finite number{' above 0' if positive else ''} was expected")
    return float(value)


def text(value: Any, what: str) -> str:
    """Return a text that is not empty."""
    need(isinstance(value, str) and value != "", f"for {what} a text was expected")
    return str(value)


def items(value: Any, what: str, length: int | None = None) -> list[Any]:
    """Return a list, of a given length if there is one."""
    good = isinstance(value, list) and length in (None, len(value))
    need(good, f"for {what} a list {'' if length is None else f'of {length} '}was expected")
    return list(value)


def fields(value: Any, what: str, *names: str) -> Mapping[str, Any]:
    """Return what has exactly these names."""
    good = isinstance(value, dict) and set(value) == set(names)
    need(good, f"{what} does not have the entries {', '.join(names)}")
    return dict(value)


class FileArrays:
    """The arrays of a file, each to be taken once."""

    def __init__(self, members: Mapping[str, NDArray[Any]]) -> None:
        """Refuse arrays that do not hold finite numbers."""
        self.left: dict[str, Array] = {}
        for name, array in members.items():
            good = array.dtype == np.dtype("<f8") and bool(np.all(np.abs(array) <= LARGEST))
            need(good, f"array {name!r} does not hold finite numbers")
            self.left[name] = array.astype(np.float64)

    def take(self, name: str, *shape: int | None) -> Array:
        """Return an array of a shape in which None stands for any number above 0."""
        need(name in self.left, f"array {name!r} is missing")
        array = self.left.pop(name)
        good = array.ndim == len(shape) and all(
            have == want or (want is None and have > 0)
            for have, want in zip(array.shape, shape, strict=True)
        )
        need(good, f"array {name!r} has another shape than its plan and cells call for")
        return array

    def check_empty(self) -> None:
        """Refuse arrays that nothing has asked for."""
        need(not self.left, f"nothing calls for the array {next(iter(self.left), '')!r}")


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
        "clip": plan.clip,
        "scaling": _put_scaling(plan.scaling, "scaling", arrays),
        "basis": _put_basis(plan.basis, "basis", arrays),
        "critic": None if plan.critic is plan.basis else _put_basis(plan.critic, "critic", arrays),
        "centring": [
            _put_centring(centring, f"centring{j}", arrays)
            for j, centring in enumerate(plan.centring)
        ],
    }
    return parts, arrays


def plan_from_parts(parts: Any, arrays: FileArrays) -> SumsPlan:
    """Put a plan together again.

    Raises
    ------
    UnsoundError
        Something in it is not part of a plan.
    """
    given = fields(parts, "the plan", *PLAN)
    scaling = _get_scaling(given["scaling"], "scaling", arrays, None)
    d = len(scaling.mean)
    basis = critic = _get_basis(given["basis"], "basis", arrays, d)
    if given["critic"] is not None:
        critic = _get_basis(given["critic"], "critic", arrays, d)
    n_groups = whole(given["n_groups"], "the number of groups", 1, MAX_GROUPS)
    centring = items(given["centring"], "the centring")
    need(len(centring) in (0, 1, n_groups), "the centring is neither for all groups nor for each")
    return SumsPlan(
        feature_names=_get_feature_names(given["feature_names"], d),
        populations=_get_populations(given["populations"]),
        coding=_get_coding(given["coding"]),
        scaling=scaling,
        basis=basis,
        critic=critic,
        centring=tuple(
            _get_centring(part, f"centring{j}", arrays, d) for j, part in enumerate(centring)
        ),
        n_groups=n_groups,
        clip=None if given["clip"] is None else number(given["clip"], "the clip", positive=True),
    )


def _get_feature_names(names: Any, d: int) -> tuple[str, ...] | None:
    """Return one name for each feature, or None if they have none."""
    if names is None:
        return None
    found = tuple(text(name, "a feature name") for name in items(names, "the feature names", d))
    need(len(set(found)) == d, "two features have the same name")
    return found


def _get_populations(names: Any) -> tuple[Any, ...]:
    """Return the names of two populations or more."""
    found = items(names, "the populations")
    need(len(found) > 1, "it has a single population")
    for name in found:
        need(isinstance(name, str | int | float), f"{name!r} is not a name of a population")
        need(
            isinstance(name, str) or abs(name) <= LARGEST, f"{name!r} is not a name of a population"
        )
    need(len(set(found)) == len(found), "two populations have the same name")
    return tuple(found)


def _get_coding(coding: Any) -> OutcomeCoding:
    """Return how outcomes are written inside."""
    offset, scale, is_binary = items(coding, "the coding of outcomes", 3)
    need(isinstance(is_binary, bool), "the coding of outcomes is unclear")
    return OutcomeCoding(
        number(offset, "the offset of outcomes"),
        number(scale, "the scale of outcomes", positive=True),
        is_binary=is_binary,
    )


def _put_scaling(scaling: Scaling, name: str, arrays: dict[str, Array]) -> str:
    arrays[f"{name}.mean"], arrays[f"{name}.scale"] = scaling.mean, scaling.scale
    return "standard"


def _get_scaling(part: Any, name: str, arrays: FileArrays, d: int | None) -> Scaling:
    need(part == "standard", "the scaling is of an unknown kind")
    mean = arrays.take(f"{name}.mean", d)
    scale = arrays.take(f"{name}.scale", len(mean))
    need(bool(np.all(scale > 0.0)), "a feature has a scale that is not above 0")
    return Scaling(mean, scale)


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


def _get_basis(part: Any, name: str, arrays: FileArrays, d: int, depth: int = 0) -> Basis:
    need(depth < MAX_DEPTH, "a basis is stacked too deeply")
    match part.get("type") if isinstance(part, dict) else None:
        case "gaussian":
            given = fields(part, "a Gaussian basis", "type", "width")
            width = number(given["width"], "a width", positive=True)
            return GaussianBasis(arrays.take(f"{name}.centers", None, d), width)
        case "fourier":
            fields(part, "a Fourier basis", "type")
            frequencies = arrays.take(f"{name}.frequencies", d, None)
            phases = arrays.take(f"{name}.phases", frequencies.shape[1])
            return FourierBasis(frequencies, phases)
        case "principal":
            fields(part, "a basis of components", "type")
            return PrincipalBasis(arrays.take(f"{name}.directions", d, None))
        case "linear":
            given = fields(part, "a linear basis", "type", "n_features")
            return LinearBasis(whole(given["n_features"], "the features of a basis", d, d))
        case "stacked":
            given = fields(part, "a stacked basis", "type", "first", "second")
            first, second = (
                _get_basis(given[half], f"{name}.{half}", arrays, d, depth + 1)
                for half in ("first", "second")
            )
            return StackedBasis(first, second)
        case _:
            raise UnsoundError("a basis is of an unknown kind")


def _put_centring(centring: Centring, name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    means = centring.means
    if not isinstance(means, SmoothMeans):
        raise InputError(
            "a file of sums cannot hold the regressor given as center, which another program "
            "could not run. Use center=True or center=False."
        )
    scaling = _put_scaling(centring.scaling, f"{name}.scaling", arrays)
    for field in ("coef", "offset"):
        arrays[f"{name}.{field}"] = getattr(means, field)
    # Only the upper limits are kept, the lower ones being their negatives; JSON has no inf.
    limits = [None if np.isinf(high) else float(high) for high in means.high]
    basis = _put_basis(means.basis, f"{name}.basis", arrays)
    return {"scaling": scaling, "basis": basis, "high": limits}


def _get_centring(part: Any, name: str, arrays: FileArrays, d: int) -> Centring:
    given = fields(part, "the centring", "scaling", "basis", "high")
    scaling = _get_scaling(given["scaling"], f"{name}.scaling", arrays, d)
    basis = _get_basis(given["basis"], f"{name}.basis", arrays, d)
    limits = items(given["high"], "the limits of the centring", len(CELLS))
    for limit, (kind, _) in zip(limits, CELLS, strict=True):
        good = limit == 1.0 or (limit is None and kind == OUTCOME)
        need(good, "the centring has limits other than those of its labels")
    high = np.array([np.inf if limit is None else 1.0 for limit in limits])
    coef = arrays.take(f"{name}.coef", basis.size, len(CELLS))
    offset = arrays.take(f"{name}.offset", len(CELLS))
    return Centring(scaling, SmoothMeans(basis, coef, offset, -high, high))


def plan_digest(plan: SumsPlan) -> str:
    """Return a SHA-256 of everything in a plan: equal for equal plans only."""
    parts, arrays = plan_parts(plan)
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.shape}".encode())
        digest.update(little(array).tobytes())
    return digest.hexdigest()


def little(array: Array) -> Array:
    """Return numbers as every machine writes them."""
    return np.ascontiguousarray(array, dtype="<f8")
