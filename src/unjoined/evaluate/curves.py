"""Uplift curves and the areas under them, with standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray
from unjoined._validation import (
    check_both_arms,
    check_option,
    check_probability,
    check_propensity,
    check_same_length,
    check_share,
    check_treated,
    check_vector,
    check_weight,
    unit_mean,
)
from unjoined.errors import InputError
from unjoined.evaluate.estimate import Estimate


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
        True uplift, or ``joint_values``, in outcome units. Ordering the rows by them gives the
        perfect curve: with the true uplift what an oracle earns, with ``joint_values`` a bound
        out of reach, as it sorts by the noise as well.
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
    score, values, weight = _checked(score, values, sample_weight)
    ties = group_ties(score, weight)
    k = np.cumsum(ties.size[::-1])
    gain = ties.sums_from_top(weight * values) / k[-1]
    return UpliftCurve(
        share=np.concatenate(([0.0], k / k[-1])),
        gain=np.concatenate(([0.0], gain)),
        standard_error=np.concatenate(
            ([0.0], _gain_errors(ties, values, weight, gain))
        ),
    )


def _gain_errors(ties: TieGroups, values: Array, weight: Array, gain: Array) -> Array:
    """Return the standard error of the gain after each group, that of a mean of v 1[top k]."""
    n = len(values)
    if n < 2:
        return np.full(1, math.nan)
    # Squares of v about the gain at the top, and of the gain itself below. From columns centred
    # beforehand: plain sums of squares lose all digits when the mean is large against the spread.
    mean = np.average(values, weights=weight)
    centred = values - mean
    square = weight**2
    weights = ties.sums_from_top(square)
    first = ties.sums_from_top(square * centred)
    second = ties.sums_from_top(square * centred**2)
    shift = mean - gain
    scatter = second + 2.0 * shift * first + shift**2 * weights
    scatter += gain**2 * np.maximum(weights[-1] - weights, 0.0)
    return np.asarray(np.sqrt(np.maximum(scatter, 0.0) * n / (n - 1)) / weight.sum())


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
    score, values, sample_weight : array-like of shape (n,)
        As in `uplift_curve`.
    ties : {"half", "paper"}, default="half"
        How pairs of equal score count, a row with itself included. ``"half"`` counts them
        half and is the trapezoid area under :func:`uplift_curve`. ``"paper"`` counts them
        fully, as printed: a constant score then earns the whole mean uplift, where a random
        order earns half of it.

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
    score, values, sample_weight : array-like of shape (n,)
        As in `uplift_curve`.
    normalize : bool, default=False
        Divide by the Qini of ordering by ``values`` themselves. With the true uplift that is the
        share of the oracle: 0 for a random order, 1 for the true one, -1 for the reverse. With
        ``joint_values`` the divisor is mostly noise and 1 is out of reach.

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
    return estimate_from_influence(
        ratio, (influence - ratio * best_influence) / best, weight
    )


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
    score, values, sample_weight : array-like of shape (n,)
        As in `uplift_curve`.

    Returns
    -------
    Estimate
        Outcome units; twice :func:`qini`. 0 for a constant or random score. O(n log n) time.

    Examples
    --------
    >>> rank_score([9, 8, 7, 6], [2.0, 1.0, 0.0, -1.0]).value
    0.625
    """
    return qini(score, values, sample_weight=sample_weight).times(2.0)


def uplift_at_k(
    score: ArrayLike,
    values: ArrayLike,
    k: float,
    *,
    sample_weight: ArrayLike | None = None,
) -> Estimate:
    """Return the mean uplift of the best-scored share of the rows.

    Parameters
    ----------
    score, values, sample_weight : array-like of shape (n,)
        As in `uplift_curve`.
    k : float
        Share of the rows, 0 < k <= 1, or of their weight. Where the cut falls inside a row or a
        group of tied rows, each of them counts with the same fraction.

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
    chosen = (
        row_weight * fill_from_top(ties.size, k * float(row_weight.sum()))[ties.group]
    )
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
    below = np.concatenate(
        ([0.0], np.cumsum(ties.size)[:-1])
    )  # (g,) rows of lower score
    rank = (below + tie_weight * ties.size) / n  # (g,) mean over i of K(f_i, f_j)
    total = ties.sums(weight * values)
    above = np.concatenate(
        (np.cumsum(total[::-1])[-2::-1], [0.0])
    )  # (g,) sums of higher score
    beaten = (above + tie_weight * total) / n  # (g,) mean over j of K(f_i, f_j) v_j
    weighted = values * rank[ties.group]
    area = float(np.average(weighted, weights=weight))
    return area, weighted + beaten[ties.group] - 2.0 * area


def _qini_and_influence(
    score: Array, values: Array, weight: Array
) -> tuple[float, Array]:
    """Return the area above random and the influence of each row (n,)."""
    # Ranks with ties counted half average to exactly 1/2, so centring the values
    # subtracts the random line without a difference of two large numbers.
    centred = values - np.average(values, weights=weight)
    area, influence = _area_and_influence(score, centred, weight, 0.5)
    return area, influence - centred / 2.0


@dataclass(frozen=True, slots=True)
class TieGroups:
    """Rows of equal score, numbered from the lowest score (0) to the highest."""

    group: IntArray  # (n,) number of the row's group
    size: Array  # (g,) rows in each group, or their weight

    def sums(self, column: Array) -> Array:
        """Return the sum of ``column`` in each group, lowest score first."""
        per_group = np.bincount(self.group, weights=column, minlength=len(self.size))
        return per_group.astype(np.float64, copy=False)

    def sums_from_top(self, column: Array) -> Array:
        """Return the sums of ``column`` over the best group, the two best, and so on."""
        running: Array = np.cumsum(self.sums(column)[::-1])
        return running


def group_ties(score: Array, weight: Array | None = None) -> TieGroups:
    """Group rows of exactly equal score, in O(n log n); groups are as large as their weight."""
    _, group, size = np.unique(score, return_inverse=True, return_counts=True)
    if weight is not None:
        size = np.bincount(group, weights=weight)
    return TieGroups(group.astype(np.int64), size.astype(np.float64))


def fill_from_top(demand: Array, capacity: float) -> Array:
    """Return which share of each group's demand is met, from the last on, until all is used up."""
    best_first = demand[::-1]
    used = np.concatenate(([0.0], np.cumsum(best_first)[:-1]))
    met: Array = np.clip((capacity - used) / best_first, 0.0, 1.0)[::-1]
    return met


def joint_values(
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    propensity: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Array:
    r"""Return per-row values whose conditional mean is the uplift.

    .. math::

        v_i = \frac{y_i t_i}{e_i} - \frac{y_i (1 - t_i)}{1 - e_i}, \qquad
        E[v_i \mid x_i] = u(x_i)

    where :math:`t_i` is 1 for treated rows and :math:`e_i` the probability of being treated.

    Parameters
    ----------
    y : array-like of shape (n,)
        Outcomes, any real numbers.
    treatment : array-like of shape (n,)
        Coded 0/1, False/True or -1/+1.
    propensity : float or array-like of shape (n,), optional
        Probability of treatment, strictly between 0 and 1. Without it, the share treated in
        these rows: right for a randomised trial with one treatment probability.
    sample_weight : array-like of shape (n,), optional
        Row weights, by which the share treated is taken if ``propensity`` is not given. Pass the
        same to the metrics: the values themselves are not multiplied by them.

    Returns
    -------
    array of shape (n,)
        Values in outcome units. One alone is very noisy; only averages mean anything.
        O(n) time and memory.

    Notes
    -----
    Standard errors computed from these values take the propensity as known. When it is
    the share treated in the same rows, the mean of the values is exactly the difference
    between the arms' mean outcomes, and these standard errors are too large rather than too
    small (in large samples): estimating a known constant removes variance.

    Examples
    --------
    >>> joint_values([1.0, 0.0, 3.0, 1.0], [1, 1, 0, 0])
    array([ 2.,  0., -6., -2.])
    >>> joint_values([1.0, 0.0, 3.0, 1.0], [1, 1, -1, -1], propensity=0.25)
    array([ 4.        ,  0.        , -4.        , -1.33333333])
    """
    y = check_vector("y", y)
    treated = check_treated(treatment)
    check_same_length(y=y, treatment=treated.astype(np.float64))
    used, weight = rows_that_count(sample_weight, len(y))
    if propensity is None:
        check_both_arms(treated[used])
        e = np.full(len(y), np.average(treated[used], weights=weight))
    else:
        e = check_propensity(propensity, len(y))
    return np.where(treated, y / e, -y / (1.0 - e))


def average_uplift(
    values: ArrayLike, rule: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    r"""Return the average uplift of a targeting rule, :math:`U(\pi) = E[u(x) \pi(x)]`.

    Parameters
    ----------
    values : array-like of shape (n,)
        True uplift, or :func:`joint_values`, in outcome units.
    rule : array-like of shape (n,)
        Treatment probabilities in [0, 1], or booleans.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Mean outcome above treating nobody, outcome units per row (treated or not); of a rule that
        treats everyone it is the average treatment effect, where every uplift curve ends. The
        standard error holds the rule fixed, so the rule must come from other rows.
        O(n) time.

    See Also
    --------
    optimal_rule, top_share_rule, budget_rule : Rules from predicted uplift.

    Examples
    --------
    >>> average_uplift([2.0, -1.0, 1.0, 0.0], [True, False, True, True]).value
    0.75
    """
    values = check_vector("values", values)
    rule = check_probability("rule", rule)
    check_same_length(values=values, rule=rule)
    used, weight = rows_that_count(sample_weight, len(values))
    gains = (values * rule)[used]
    return estimate_from_influence(
        float(np.average(gains, weights=weight)), gains, weight
    )
