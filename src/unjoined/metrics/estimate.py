"""A number with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray
from unjoined._validation import check_weight, unit_mean
from unjoined.errors import InputError


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


def rows_that_count(sample_weight: ArrayLike | None, n: int) -> tuple[BoolArray, Array]:
    """Return which of ``n`` rows have a weight above 0, and their weights, of mean 1."""
    weight = check_weight(sample_weight, n)
    used: BoolArray = weight > 0.0
    if not used.any():
        raise InputError(
            f"sample_weight is 0 in all {n} rows, so that there is nothing to average. Give the "
            "rows that should count a positive weight."
        )
    return used, unit_mean(weight[used])


def estimate_from_influence(value: float, influence: Array, weight: Array) -> Estimate:
    r"""Return ``value`` with the standard error its per-row influence (n,) implies.

    With weights w it is :math:`\frac{n}{n - 1} \sum_i w_i^2 (\psi_i - \bar\psi)^2 / (\sum w)^2`
    under the root: weights are taken as given, and rows as drawn independently.
    """
    n = len(influence)
    if n < 2:
        return Estimate(float(value), math.nan)
    off = weight * (influence - np.average(influence, weights=weight))
    scatter = n / (n - 1) * float(off @ off)
    return Estimate(float(value), math.sqrt(scatter) / float(weight.sum()))


def estimate_mean(per_row: Array, weight: Array) -> Estimate:
    """Return the weighted mean of ``per_row`` (n,), whose influence is the column itself."""
    return estimate_from_influence(float(np.average(per_row, weights=weight)), per_row, weight)
