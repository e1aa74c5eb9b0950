r"""Areas under and between uplift curves, with standard errors.

All are averages over pairs of rows (V-statistics)

.. math::

    \mathrm{AUUC} = \frac1{n^2} \sum_{i,j} K(f_i, f_j) v_j, \qquad
    K(a, b) = 1[a < b] + c \, 1[a = b],

with :math:`c = 1` in the paper's form and :math:`c = 1/2` in the half-tie form; with weights
:math:`w_i w_j / (\sum w)^2` takes the place of :math:`1 / n^2`. Standard
errors come from the Hajek projection: the influence of row i is the sum of the averages of
the kernel over the other row, with i in the first and in the second place, less twice the mean.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from unjoined._typing import Array, ArrayLike
from unjoined._validation import check_option, check_same_length, check_share, check_vector
from unjoined.errors import InputError
from unjoined.evaluate._estimate import Estimate, estimate_from_influence, rows_that_count
from unjoined.evaluate._ties import fill_from_top, group_ties

__all__ = ["auuc", "qini", "rank_score", "uplift_at_k"]

_TIE_WEIGHT = {"half": 0.5, "paper": 1.0}


def auuc(
    score: ArrayLike,
    values: ArrayLike,
    *,
    ties: Literal["half", "paper"] = "half",
    sample_weight: ArrayLike | None = None,
) -> Estimate:
    r"""Return the area under the uplift curve with its standard error.

    .. math::

        \mathrm{AUUC}(f) = E\bigl[1[f(x) \le f(x')] \, u(x')\bigr]
        \approx \frac1{n^2} \sum_{i,j} K(f_i, f_j) v_j

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift, or any score, from a model fitted on other rows.
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    ties : {"half", "paper"}, default="half"
        How pairs of equal score count, a row with itself included. ``"half"`` counts them
        half and is the trapezoid area under :func:`uplift_curve`. ``"paper"`` counts them
        fully, as printed: a constant score then earns the whole mean uplift, where a random
        order earns half of it.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Outcome units per row. A random order has half the mean of ``values``. O(n log n) time.

    Notes
    -----
    Without tied scores the forms differ by ``mean(values) / (2 n)``, which is the
    pairs of a row with itself. The standard error treats score and propensity as given.

    Examples
    --------
    >>> auuc([3, 2, 1], [3.0, 0.0, 0.0]).value
    0.833...
    >>> auuc([1, 1, 1], [3.0, 0.0, 0.0]).value, auuc([1, 1, 1], [3.0, 0.0, 0.0], ties="paper").value
    (0.5, 1.0)
    """
    check_option("ties", ties, tuple(_TIE_WEIGHT))
    score, values, weight = _checked(score, values, sample_weight)
    area, influence = _area_and_influence(score, values, weight, _TIE_WEIGHT[ties])
    return estimate_from_influence(area, influence, weight)


def qini(
    score: ArrayLike,
    values: ArrayLike,
    *,
    normalize: bool = False,
    sample_weight: ArrayLike | None = None,
) -> Estimate:
    r"""Return the area between the uplift curve and the random line.

    :math:`Q(f) = \mathrm{AUUC}(f) - \frac12 E[u]` with ties counted half, so that a constant score
    has 0; normalised, :math:`Q(f) / Q(u)`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift, or any score, from a model fitted on other rows.
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    normalize : bool, default=False
        Divide by the Qini of ordering by ``values`` themselves. With the true uplift that is the
        share of the oracle: 0 for a random order, 1 for the true one, -1 for the reverse. With
        ``joint_values`` the divisor is mostly noise and 1 is out of reach.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Outcome units per row, or a pure number when normalised. Adding a constant to the
        values changes nothing. O(n log n) time.

    Notes
    -----
    The influence of a row is that of the AUUC less half its distance from the mean value.
    For the normalised form the delta method applies, numerator and divisor varying together.

    Examples
    --------
    >>> uplift = [2.0, 1.0, 0.0, -1.0]
    >>> qini([9, 8, 7, 6], uplift).value, qini([1, 1, 1, 1], uplift).value
    (0.3125, 0.0)
    >>> qini([9, 7, 8, 6], uplift, normalize=True).value
    0.8
    """
    score, values, weight = _checked(score, values, sample_weight)
    area, influence = _qini_and_influence(score, values, weight)
    if not normalize:
        return estimate_from_influence(area, influence, weight)
    if values.min() == values.max():
        raise InputError(
            f"all {len(values)} entries of values equal {values[0]}, so no order of the rows is "
            "better than another and there is nothing to normalise by. Use normalize=False."
        )
    best, best_influence = _qini_and_influence(values, values, weight)
    ratio = area / best
    return estimate_from_influence(ratio, (influence - ratio * best_influence) / best, weight)


def rank_score(
    score: ArrayLike, values: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    r"""Return how well the score ranks: the mean uplift gap of pairs, better-scored first.

    .. math::

        \mathrm{Rank}(f) = E\bigl[1[f(x) \ge f(x')] (u(x) - u(x'))\bigr]
        = 2 \, \mathrm{AUUC}(f) - E[u]

    Tied pairs cancel, so the identity is exact for the half-tie AUUC, ties or not.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift, or any score, from a model fitted on other rows.
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Outcome units; twice :func:`qini`. 0 for a constant or random score. O(n log n) time.

    Examples
    --------
    >>> rank_score([9, 8, 7, 6], [2.0, 1.0, 0.0, -1.0]).value
    0.625
    """
    half = qini(score, values, sample_weight=sample_weight)
    return Estimate(2.0 * half.value, 2.0 * half.standard_error)


def uplift_at_k(
    score: ArrayLike, values: ArrayLike, k: float, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Return the mean uplift of the best-scored share of the rows.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift, or any score, from a model fitted on other rows.
    values : array-like of shape (n,)
        True uplift, or ``joint_values``, in outcome units.
    k : float
        Share of the rows, 0 < k <= 1, or of their weight. Where the cut falls inside a row or a
        group of tied rows, each of them counts with the same fraction.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Outcome units per *treated* row: the gain of the uplift curve at ``k``, divided by ``k``.
        The standard error is that of the mean of the chosen rows, with the cut-off score held
        fixed; nan if a single row is chosen. O(n log n) time.

    Examples
    --------
    >>> uplift_at_k([0.9, 0.5, 0.5, 0.1], [2.0, 1.0, 0.0, -1.0], 0.5).value
    1.25
    """
    score, values, row_weight = _checked(score, values, sample_weight)
    k = check_share("k", k, zero_allowed=False)
    ties = group_ties(score, row_weight)
    chosen = row_weight * fill_from_top(ties.size, k * float(row_weight.sum()))[ties.group]
    weight = chosen / chosen.sum()
    mean = float(weight @ values)
    squared = float(weight @ weight)
    if np.count_nonzero(weight) < 2:
        return Estimate(mean, math.nan)
    # 1 - sum w^2 is (m - 1)/m for m rows of equal weight: the usual correction for
    # the mean having been fitted to the same rows.
    variance = float(weight**2 @ (values - mean) ** 2) / (1.0 - squared)
    return Estimate(mean, math.sqrt(variance))


def _checked(
    score: ArrayLike, values: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return both columns clean and of one length, and weights of mean 1, of rows that count."""
    clean_score = check_vector("score", score)
    clean_values = check_vector("values", values)
    check_same_length(score=clean_score, values=clean_values)
    used, weight = rows_that_count(sample_weight, len(clean_values))
    return clean_score[used], clean_values[used], weight


def _area_and_influence(
    score: Array, values: Array, weight: Array, tie_weight: float
) -> tuple[float, Array]:
    """Return the AUUC and the influence of each row (n,), which averages to zero."""
    n = float(weight.sum())
    ties = group_ties(score, weight)
    below = np.concatenate(([0.0], np.cumsum(ties.size)[:-1]))  # (g,) rows of lower score
    rank = (below + tie_weight * ties.size) / n  # (g,) mean over i of K(f_i, f_j)
    total = ties.sums(weight * values)
    above = np.concatenate((np.cumsum(total[::-1])[-2::-1], [0.0]))  # (g,) sums of higher score
    beaten = (above + tie_weight * total) / n  # (g,) mean over j of K(f_i, f_j) v_j
    weighted = values * rank[ties.group]
    area = float(np.average(weighted, weights=weight))
    return area, weighted + beaten[ties.group] - 2.0 * area


def _qini_and_influence(score: Array, values: Array, weight: Array) -> tuple[float, Array]:
    """Return the area above random and the influence of each row (n,)."""
    # Ranks with ties counted half average to exactly 1/2, so centring the values
    # subtracts the random line without a difference of two large numbers.
    centred = values - np.average(values, weights=weight)
    area, influence = _area_and_influence(score, centred, weight, 0.5)
    return area, influence - centred / 2.0
