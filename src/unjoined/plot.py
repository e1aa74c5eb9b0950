"""Figures: the uplift curve, and how uplift is spread. Each takes data and ``ax``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import ArrayLike
from unjoined.errors import InputError
from unjoined.evaluate.curves import UpliftCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_uplift_curve", "plot_uplift_histogram"]


def plot_uplift_curve(
    curves: UpliftCurve | Mapping[str, UpliftCurve],
    *,
    perfect: UpliftCurve | None = None,
    random: bool = True,
    treat_all: bool = True,
    band: float = 1.0,
    unit: str = "outcome units",
    ax: Axes | None = None,
) -> Axes:
    """Draw uplift curves; nothing is computed here and no global style is touched.

    Parameters
    ----------
    curves : UpliftCurve, or mapping of label to UpliftCurve
        One or several curves over the same rows.
    perfect : UpliftCurve, optional
        The best any ordering could do, the curve of ordering by the true uplift.
    random : bool, default=True
        Draw the straight line that a random order follows on average.
    treat_all : bool, default=True
        Mark the gain of treating everyone.
    band : float, default=1.0
        Half-width of the shaded band in standard errors; 0 draws none.
    unit : str, default="outcome units"
        What the gain is measured in, for the axis.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from unjoined.data import paper_problem
    >>> from unjoined.evaluate import uplift_curve
    >>> rows = paper_problem().draw_joint(500, random_state=0)
    >>> curve = uplift_curve(rows.uplift, rows.uplift)
    >>> ax = plot_uplift_curve(curve, perfect=curve)
    >>> ax.get_xlabel()
    'share of people treated, best first'
    """
    ax = ax or _new_axes(4.4)
    named = {"estimate": curves} if isinstance(curves, UpliftCurve) else dict(curves)
    if perfect is not None:
        ax.plot(
            perfect.share,
            perfect.gain,
            color="0.25",
            ls=":",
            lw=1.6,
            label="perfect order",
        )
    for label, curve in named.items():
        (line,) = ax.plot(curve.share, curve.gain, lw=1.8, label=label)
        if band > 0.0:
            width = band * curve.standard_error
            low = curve.gain - width
            high = curve.gain + width
            color = line.get_color()
            ax.fill_between(curve.share, low, high, color=color, alpha=0.15, lw=0)
    everyone = float(next(iter(named.values())).gain[-1])
    if random:
        ax.plot(
            [0.0, 1.0],
            [0.0, everyone],
            color="0.55",
            ls="--",
            lw=1.2,
            label="random order",
        )
    if treat_all:
        ax.plot(
            [1.0], [everyone], "o", color="0.25", ms=5, label="treat all", clip_on=False
        )
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xlim(0.0, 1.0)
    ax.set_xticks(
        np.linspace(0.0, 1.0, 6), [f"{p:.0%}" for p in np.linspace(0.0, 1.0, 6)]
    )
    ax.set_xlabel("share of people treated, best first")
    ax.set_ylabel(f"gain over treating nobody\n({unit} per person)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_uplift_histogram(
    uplift: ArrayLike,
    *,
    bins: int = 50,
    unit: str = "outcome units",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many people have which uplift, those who would be harmed in another colour.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Estimated or true uplift, outcome units.
    bins : int, default=50
        Number of bars over the range.
    unit : str, default="outcome units"
        What the uplift is measured in, for the axis.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        Nothing to draw, or values that are not finite.
    MissingExtraError
        matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> plot_uplift_histogram([0.1, 0.2, -0.1], unit="purchases").get_xlabel()
    'uplift (purchases per person)'
    """
    values = np.asarray(uplift, dtype=np.float64).ravel()
    if values.size == 0 or not np.isfinite(values).all():
        raise InputError("uplift must hold at least one value, and only finite ones.")
    ax = ax or _new_axes(3.6)
    edges = np.histogram_bin_edges(values, bins).tolist()
    gains = values[values >= 0.0]
    ax.hist(
        gains,
        edges,
        color="C0",
        label=f"gain from treatment: {len(gains) / len(values):.0%}",
    )
    if len(gains) < len(values):
        harmed = values[values < 0.0]
        share = f"{len(harmed) / len(values):.0%}"
        ax.hist(harmed, edges, color="C3", label=f"lose from treatment: {share}")
    mean = float(values.mean())
    ax.axvline(mean, color="0.25", ls="--", lw=1.2, label=f"mean {mean:.3g}")
    ax.set_xlabel(f"uplift ({unit} per person)")
    ax.set_ylabel("people")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _new_axes(height: float) -> Axes:
    pyplot = import_extra("matplotlib.pyplot", extra="plot")
    ax: Axes = pyplot.figure(figsize=(6.4, height), layout="constrained").add_subplot()
    return ax
