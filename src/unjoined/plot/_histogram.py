"""How uplift is spread over people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unjoined._optional import import_extra
from unjoined._typing import ArrayLike
from unjoined.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_uplift_histogram"]


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
    if ax is None:
        ax = (
            import_extra("matplotlib.pyplot", extra="plot")
            .figure(figsize=(6.4, 3.6), layout="constrained")
            .add_subplot()
        )
    edges = np.histogram_bin_edges(values, bins).tolist()
    gains = values[values >= 0.0]
    ax.hist(gains, edges, color="C0", label=f"gain from treatment: {len(gains) / len(values):.0%}")
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
