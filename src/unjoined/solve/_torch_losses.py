"""Losses of the neural estimator: conjugates on tensors, checked on a grid before training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from unjoined._typing import Array
from unjoined.errors import InputError
from unjoined.solve._network import import_torch
from unjoined.solve._three_player import ThreePlayerLoss, check_conjugates

__all__ = ["checked_biconjugate", "checked_conjugate"]


def checked_biconjugate(loss: Any) -> Callable[[Any, Any], Any] | None:
    """Return the second of two conjugates a user gave, checked; None for two-player losses."""
    if not isinstance(loss, tuple):
        return None
    if len(loss) != 2 or not all(callable(part) for part in loss):
        raise InputError(
            "a loss of three players is a pair of callables on tensors, the conjugate of (s, y') "
            f"and the biconjugate of (g, h); got {loss!r}."
        )
    conjugate, biconjugate = loss
    check_conjugates(
        ThreePlayerLoss(
            conjugate=_on_arrays(conjugate),
            biconjugate=_on_arrays(biconjugate),
            slope_g=_slope(biconjugate, 0),
            slope_h=_slope(biconjugate, 1),
        )
    )
    return cast("Callable[[Any, Any], Any]", biconjugate)


def _on_arrays(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    torch = import_torch()

    def value(first: Array, second: Array) -> Array:
        found = function(torch.as_tensor(first), torch.as_tensor(second))
        return np.asarray(found.detach().numpy())

    return value


def _slope(function: Callable[[Any, Any], Any], which: int) -> Callable[[Array, Array], Array]:
    torch = import_torch()

    def slope(first: Array, second: Array) -> Array:
        arguments = [torch.as_tensor(x).clone().requires_grad_() for x in (first, second)]
        (found,) = torch.autograd.grad(function(*arguments).sum(), arguments[which])
        return np.asarray(found.numpy())

    return slope


def checked_conjugate(loss: Any) -> Callable[[Any], Any] | None:
    """Return the conjugate a user gave, checked; None for the squared loss."""
    if isinstance(loss, tuple) or loss == "squared":
        return None
    if not callable(loss):
        raise InputError(
            f"loss must be 'squared', the convex conjugate of a loss (a callable on tensors), or a "
            f"pair of conjugates; got {loss!r}."
        )
    _check_convex(loss)
    return cast("Callable[[Any], Any]", loss)


def _check_convex(conjugate: Callable[[Any], Any]) -> None:
    """Refuse a function that is no convex conjugate: not elementwise, not convex, not finite at 0.

    Looked at on a grid from -8 to 8, in units of the standardised outcome. It may be infinite
    outside of an interval around 0, as those of the Huber and absolute losses are.
    """
    torch = import_torch()
    grid = torch.linspace(-8.0, 8.0, 513, dtype=torch.float64)
    values = conjugate(grid)
    if not isinstance(values, torch.Tensor) or values.shape != grid.shape:
        found = tuple(values.shape) if hasattr(values, "shape") else type(values).__name__
        raise InputError(
            "loss must map a tensor to a tensor of the same shape, element by element; for shape "
            f"{tuple(grid.shape)} it gave {found}."
        )
    v = values.detach().numpy()
    g = grid.numpy()
    finite = np.isfinite(v)
    if np.isnan(v).any() or (v == -np.inf).any() or not finite[len(v) // 2]:
        raise InputError(
            "loss must be the convex conjugate of a loss: finite at 0 and nowhere NaN or -inf. At "
            f"0 it is {v[len(v) // 2]:g}."
        )
    # On an even grid, convexity of every pair's midpoint follows from that of neighbours.
    with np.errstate(invalid="ignore"):
        bend = v[:-2] + v[2:] - 2.0 * v[1:-1]
    tolerance = 1e-12 * (1.0 + np.abs(v[finite]).max())
    wrong = np.flatnonzero(bend < -tolerance)
    inside = np.flatnonzero(finite)
    hole = np.flatnonzero(~finite[inside[0] : inside[-1] + 1])
    if len(wrong) or len(hole):
        at = g[1:-1][wrong[0]] if len(wrong) else g[inside[0] + hole[0]]
        raise InputError(
            f"loss must be the convex conjugate of a loss, but it is not convex near g = {at:g}. "
            "For rho(r) = r**2 pass lambda g: g**2 / 4."
        )
