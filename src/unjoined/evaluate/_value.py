r"""Row values whose mean is uplift, and the value of targeting rules.

The metrics need, per row, a number :math:`v_i` with :math:`E[v_i \mid x_i] = u(x_i)`: the true
uplift where data are simulated, and :func:`joint_values` where a trial carries
treatment and outcome on the same row.
"""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array, ArrayLike
from unjoined._validation import (
    check_both_arms,
    check_probability,
    check_propensity,
    check_same_length,
    check_treated,
    check_vector,
)
from unjoined.evaluate._estimate import Estimate, estimate_mean, rows_that_count

__all__ = ["average_uplift", "joint_values", "treat_all"]


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
        Mean outcome above treating nobody, outcome units per row (treated or not). The
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
    return estimate_mean((values * rule)[used], weight)


def treat_all(values: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return the average uplift of treating every row: the average treatment effect.

    Parameters
    ----------
    values : array-like of shape (n,)
        True uplift, or :func:`joint_values`, in outcome units.
    sample_weight : array-like of shape (n,), optional
        Non-negative row weights; only their ratios count, and rows of weight 0 do not.

    Returns
    -------
    Estimate
        Mean outcome above treating nobody, outcome units per row; where every uplift
        curve of these rows ends. O(n) time.

    Examples
    --------
    >>> treat_all([2.0, -1.0, 1.0, 0.0]).value
    0.5
    """
    values = check_vector("values", values)
    used, weight = rows_that_count(sample_weight, len(values))
    return estimate_mean(values[used], weight)
