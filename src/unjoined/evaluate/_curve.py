"""The uplift curve: what is gained when the best share of the rows is treated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, ArrayLike
from unjoined._validation import check_same_length, check_vector
from unjoined.errors import InputError
from unjoined.evaluate._estimate import rows_that_count
from unjoined.evaluate._ties import TieGroups, group_ties
from unjoined.evaluate._value import treat_all

__all__ = ["UpliftCurve", "perfect_curve", "random_curve", "trapezoid", "uplift_curve"]


def trapezoid(x: Array, y: Array) -> float:
    """Return the area under the straight segments between the points."""
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1])) / 2.0)


@dataclass(frozen=True, slots=True, eq=False)
class UpliftCurve:
    """Gain from treating the best share of the rows, as points joined by straight lines.

    Attributes
    ----------
    share : array of shape (p,)
        Share of the rows treated, from 0 to 1.
    gain : array of shape (p,)
        Mean outcome above treating nobody, outcome units per row (of all rows, treated
        or not). The first is 0, the last is the gain of treating everybody.
    standard_error : array of shape (p,)
        Standard error of each ``gain`` alone, with the cut-off score held fixed: it answers
        for "treat whoever scores at least this much", not for the exact share, and not
        for the curve as a whole. nan (but for the first) when there is one row only.
    """

    share: Array
    gain: Array
    standard_error: Array

    def at(self, share: ArrayLike) -> Array:
        """Return the gain at the given share(s), interpolated, in O(log p) each.

        Parameters
        ----------
        share : float or array-like
            Shares of the rows, from 0 to 1.

        Returns
        -------
        array
            Gains in outcome units per row, of the shape of ``share``.

        Examples
        --------
        >>> uplift_curve([3, 2, 1, 0], [4.0, 2.0, 0.0, -2.0]).at([0.25, 0.5, 0.625])
        array([1. , 1.5, 1.5])
        """
        wanted = np.asarray(share, dtype=np.float64)
        if not ((wanted >= 0.0) & (wanted <= 1.0)).all():
            raise InputError(
                f"share must lie in [0, 1], got {wanted.tolist()}. "
                "It is a share of the rows: write 0.3 for 30 percent."
            )
        gain: Array = np.interp(wanted, self.share, self.gain)
        return gain

    def area(self) -> float:
        """Return the area under the curve: ``auuc`` with ties counted half, O(p).

        Returns
        -------
        float
            Outcome units per row.
        """
        return trapezoid(self.share, self.gain)


def uplift_curve(
    score: ArrayLike, values: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> UpliftCurve:
    r"""Return the gain from treating the best-scored rows, at every share.

    After the best :math:`k` of :math:`n` rows the gain is
    :math:`\frac1n \sum_{i \le k} v_{(i)}`. Tied scores form one straight segment: whoever
    cannot tell rows apart treats a random part of them. So the curve does not depend on
    the order of the rows.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift, or any score; larger means treated earlier. Must come from a
        model fitted on other rows.
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not. Shares are
        then shares of the weight.

    Returns
    -------
    UpliftCurve
        One point per distinct score, and the origin. O(n log n) time, O(n) memory.

    See Also
    --------
    auuc : The area under this curve with its standard error.

    Examples
    --------
    >>> curve = uplift_curve([0.9, 0.5, 0.5, 0.1], [2.0, 1.0, 0.0, -1.0])
    >>> curve.share
    array([0.  , 0.25, 0.75, 1.  ])
    >>> curve.gain
    array([0.  , 0.5 , 0.75, 0.5 ])
    """
    score = check_vector("score", score)
    values = check_vector("values", values)
    check_same_length(score=score, values=values)
    used, weight = rows_that_count(sample_weight, len(values))
    score, values = score[used], values[used]
    ties = group_ties(score, weight)
    k = np.cumsum(ties.size[::-1])
    gain = ties.sums_from_top(weight * values) / k[-1]
    return UpliftCurve(
        share=np.concatenate(([0.0], k / k[-1])),
        gain=np.concatenate(([0.0], gain)),
        standard_error=np.concatenate(([0.0], _gain_errors(ties, values, weight, gain))),
    )


def _gain_errors(ties: TieGroups, values: Array, weight: Array, gain: Array) -> Array:
    """Return the standard error of the gain after each group, that of a mean of v 1[top k]."""
    n = len(values)
    if n < 2:
        return np.full(1, math.nan)
    # Squares of v about the gain at the top, and of the gain itself below. From columns centred
    # beforehand: plain sums of squares lose all digits when the mean is large against the spread.
    mean = np.average(values, weights=weight)
    centred, square = values - mean, weight**2
    weights = ties.sums_from_top(square)
    first = ties.sums_from_top(square * centred)
    second = ties.sums_from_top(square * centred**2)
    shift = mean - gain
    scatter = second + 2.0 * shift * first + shift**2 * weights
    scatter += gain**2 * np.maximum(weights[-1] - weights, 0.0)
    return np.asarray(np.sqrt(np.maximum(scatter, 0.0) * n / (n - 1)) / weight.sum())


def perfect_curve(values: ArrayLike, *, sample_weight: ArrayLike | None = None) -> UpliftCurve:
    """Return the curve of ordering the rows by their own values.

    With the true uplift this is the oracle: what a model that knows it would earn. With
    ``joint_values`` it sorts by the noise as well and is an upper bound that no
    model can reach, usually by far; do not read it as a target.

    Parameters
    ----------
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    UpliftCurve
        The largest possible curve of these rows, at every share. O(n log n) time.

    Examples
    --------
    >>> perfect_curve([0.0, 2.0, -1.0, 1.0]).gain
    array([0.  , 0.5 , 0.75, 0.75, 0.5 ])
    """
    return uplift_curve(values, values, sample_weight=sample_weight)


def random_curve(values: ArrayLike, *, sample_weight: ArrayLike | None = None) -> UpliftCurve:
    """Return the curve of treating rows at random: a straight line to treating all.

    Parameters
    ----------
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    UpliftCurve
        Two points. O(n) time.

    Examples
    --------
    >>> random_curve([0.0, 2.0, -1.0, 1.0]).gain
    array([0. , 0.5])
    """
    everyone = treat_all(values, sample_weight=sample_weight)
    return UpliftCurve(
        share=np.array([0.0, 1.0]),
        gain=np.array([0.0, everyone.value]),
        standard_error=np.array([0.0, everyone.standard_error]),
    )
