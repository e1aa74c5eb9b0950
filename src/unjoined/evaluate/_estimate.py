"""A number with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from unjoined._typing import Array
from unjoined.errors import InputError

__all__ = ["Estimate", "estimate_from_influence", "estimate_mean"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard error, both in the same units.

    Attributes
    ----------
    value : float
        The estimate.
    standard_error : float
        Standard deviation the estimate would have over repeated draws of the rows; nan
        where the rows are too few to tell.

    Examples
    --------
    >>> low, high = Estimate(0.12, 0.05).interval(0.95)
    >>> round(low, 3), round(high, 3)
    (0.022, 0.218)
    """

    value: float
    standard_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the normal-approximation confidence interval, in the units of ``value``.

        Parameters
        ----------
        level : float, default=0.95
            Share of repeated draws whose interval covers the truth, strictly between 0 and 1.

        Returns
        -------
        tuple of float
            Lower and upper end.
        """
        if not 0.0 < level < 1.0:
            raise InputError(
                f"level must lie strictly between 0 and 1, got {level}. Write 0.95 for 95 percent."
            )
        half_width = NormalDist().inv_cdf(0.5 + level / 2.0) * self.standard_error
        return self.value - half_width, self.value + half_width


def estimate_from_influence(value: float, influence: Array) -> Estimate:
    """Return ``value`` with the standard error its per-row influence (n,) implies."""
    n = len(influence)
    if n < 2:
        return Estimate(float(value), math.nan)
    return Estimate(float(value), float(np.std(influence, ddof=1) / math.sqrt(n)))


def estimate_mean(per_row: Array) -> Estimate:
    """Return the mean of ``per_row`` (n,), whose influence is the column itself."""
    return estimate_from_influence(float(per_row.mean()), per_row)
