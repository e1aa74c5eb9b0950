"""What a fitted model computes, as columns, functions and coefficients that others can repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, Basis
from unjoined.basis import (
    AdditiveBasis,
    Curve,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    Scaling,
    StackedBasis,
)
from unjoined.data import ColumnCode, TableEncoder
from unjoined.errors import InputError
from unjoined.estimators import MinMaxUplift, MixtureUplift, UpliftSearchCV, WeightedUplift
from unjoined.nuisance import AdditiveAverage
from unjoined.solve import BernoulliLaw

KNOWN = (AdditiveBasis, FourierBasis, GaussianBasis, LinearBasis, PrincipalBasis, StackedBasis)
SMOOTH_KNOTS = 20  # of a curve: up to so many, ranks are steps; beyond, they are interpolated
CAN = (
    "Those that can are Uplift, MixtureUplift with engine='likelihood', MinMaxUplift and "
    "WeightedUplift, on the bases of this package."
)


@dataclass(frozen=True, slots=True)
class Formula:
    """The uplift as ``link(functions of the features @ coef) @ weight``, between bounds."""

    columns: tuple[ColumnCode, ...]  # without names for a model of plain arrays: empty
    one_hot: bool  # whether categories become indicators, or codes
    fills: bool  # whether something stands for missing numbers
    n_numbers: int  # d, that the columns become
    scaling: Scaling | None  # of the numbers, before the functions
    basis: Basis
    coef: Array  # (p, m)
    weight: Array | None  # (m,) of logistic curves; None: one combination is the uplift itself
    bounds: tuple[float, float] | None  # of the uplift


def formula_of(model: Any) -> Formula:
    """Return what a fitted model computes, or say that it cannot be written down."""
    check_is_fitted(model)
    basis: Basis
    weight, bounds, fit = None, None, getattr(model, "fit_", None)
    if isinstance(model, MixtureUplift) and isinstance(fit, AdditiveAverage):
        scaling, basis = None, fit.basis
        coef, weight = _arms(fit, float(model.outcome_scaling_.scale[0]))
    elif isinstance(model, MinMaxUplift | WeightedUplift):
        scaling, basis, coef = model.scaling_, model.basis_, model.coef_[:, None]
        if getattr(model, "feature_limit_", None) is not None:
            raise InputError("models of sums with limits on the features cannot be exported yet.")
        if isinstance(model, MinMaxUplift) and model.clip and model.bounds_ is not None:
            bounds = (model.bounds_.lower, model.bounds_.upper)
    else:
        hint = " Export its best_estimator_." if isinstance(model, UpliftSearchCV) else ""
        what = "with engine='em' " if isinstance(model, MixtureUplift) else ""
        raise InputError(f"{type(model).__name__} {what}cannot be exported.{hint} {CAN}")
    _check_basis(basis)
    columns, one_hot, fills = _columns(model)
    return Formula(columns, one_hot, fills, basis.n_features, scaling, basis, coef, weight, bounds)


def _arms(fit: AdditiveAverage, scale: float) -> tuple[Array, Array | None]:
    """Return the coefficients of each member's arms with their weights, or of the mean effect."""
    base = np.column_stack([member.base for member in fit.members])
    effect = np.column_stack([member.effect for member in fit.members])
    law = fit.best.law
    if not isinstance(law, BernoulliLaw):
        return scale * (effect @ fit.weight)[:, None], None
    treated, untreated = base + (1.0 - law.split) * effect, base - law.split * effect
    return np.hstack([treated, untreated]), scale * np.concatenate([fit.weight, -fit.weight])


def _check_basis(basis: Basis) -> None:
    parts = (basis.first, basis.second) if isinstance(basis, StackedBasis) else (basis,)
    for part in parts:
        if isinstance(part, StackedBasis):
            _check_basis(part)
        elif not isinstance(part, KNOWN):
            raise InputError(
                f"a model on {type(part).__name__} cannot be exported, as only Python knows what "
                f"such functions are. {CAN}"
            )


def _columns(model: Any) -> tuple[tuple[ColumnCode, ...], bool, bool]:
    """Return how columns become numbers, whether as indicators, and whether gaps are filled."""
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        return encoder.columns_, encoder.categories == "one-hot", True
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return (), True, False
    ranges = getattr(model, "training_range_", None)
    fill = np.zeros(len(names)) if ranges is None else ranges[2]
    encoder = TableEncoder.of_numbers([str(name) for name in names], fill)
    return encoder.columns_, True, ranges is not None


@dataclass(frozen=True, slots=True)
class RankTable:
    """Pi times the rank of a feature, piece by piece: at place j = number of knots below x.

    Smooth curves are ``start + slope (x - knot)`` within the outer knots. Steps are ``start``,
    or ``hit`` where x is the knot itself.
    """

    knots: Array  # (k,)
    start: Array  # of each place
    slope: Array | None
    hit: Array | None

    @classmethod
    def of_curve(cls, curve: Curve) -> RankTable:
        """Return the pieces of a curve."""
        low, high = (np.pi / 2.0) * curve.low, (np.pi / 2.0) * curve.high
        if len(curve.knots) > SMOOTH_KNOTS:
            angle = low + high
            return cls(curve.knots, angle[:-1], np.diff(angle) / np.diff(curve.knots), None)
        below = np.concatenate([[0.0], high])
        above = np.concatenate([low, [np.pi / 2.0]])
        return cls(curve.knots, below + above, None, low + high)
