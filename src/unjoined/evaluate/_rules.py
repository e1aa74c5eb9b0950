"""Targeting rules: from uplift per row to the probability of treating the row.

No rule depends on the order of the rows: where rows of equal merit compete for what is
left, all of them are treated with the same probability.
"""

from __future__ import annotations

import numpy as np

from unjoined._typing import Array, ArrayLike, IntArray
from unjoined._validation import check_cost, check_not_negative, check_share, check_vector
from unjoined.evaluate._ties import fill_from_top, group_ties

__all__ = ["budget_rule", "optimal_rule", "top_share_rule", "treatment_rank"]


def optimal_rule(uplift: ArrayLike) -> Array:
    r"""Treat whoever is not harmed: :math:`\pi(x) = 1[0 \le u(x)]`.

    With the true uplift, no rule has a larger average uplift.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, predicted or true, net of the cost of treating if there is one.

    Returns
    -------
    array of shape (n,)
        Treatment probabilities, each 0 or 1. O(n) time.

    Examples
    --------
    >>> optimal_rule([0.3, -0.1, 0.0])
    array([1., 0., 1.])
    """
    return (check_vector("uplift", uplift) >= 0.0).astype(np.float64)


def top_share_rule(uplift: ArrayLike, share: float) -> Array:
    """Treat exactly the given share of the rows, largest uplift first.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, or any score that orders the rows like it.
    share : float
        Share of the rows to treat, from 0 to 1, whatever the sign of their uplift.

    Returns
    -------
    array of shape (n,)
        Treatment probabilities; their mean is ``share``. Rows tied at the cut-off share one
        probability between 0 and 1. O(n log n) time.

    Examples
    --------
    >>> top_share_rule([0.1, 0.4, 0.1, -0.2], 0.5)
    array([0.5, 1. , 0.5, 0. ])
    """
    uplift = check_vector("uplift", uplift)
    share = check_share("share", share, zero_allowed=True)
    ties = group_ties(uplift)
    rule: Array = fill_from_top(ties.size, share * len(uplift))[ties.group]
    return rule


def budget_rule(uplift: ArrayLike, budget: float, *, cost: ArrayLike = 1.0) -> Array:
    r"""Spend a budget where it buys the most uplift.

    Solves the fractional knapsack problem
    :math:`\max_\pi \sum_i u_i \pi_i` over :math:`0 \le \pi_i \le 1` and
    :math:`\sum_i c_i \pi_i \le B` exactly: rows with positive uplift, in descending
    order of uplift per cost, until the budget is spent.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, outcome units, not reduced by the cost.
    budget : float
        Total to spend on these rows, in the units of ``cost``; at least 0. What cannot be
        spent on positive uplift is left over.
    cost : float or array-like of shape (n,), default=1.0
        Cost of treating the row, positive. With the default the budget is a number of rows.

    Returns
    -------
    array of shape (n,)
        Treatment probabilities. Rows tied at the cut-off share one probability between
        0 and 1. O(n log n) time.

    Examples
    --------
    >>> budget_rule([0.1, 0.4, 0.3, -0.2], budget=3.0, cost=[1.0, 2.0, 2.0, 1.0])
    array([0. , 1. , 0.5, 0. ])
    """
    uplift = check_vector("uplift", uplift)
    costs = check_cost(cost, len(uplift))
    budget = check_not_negative("budget", budget)
    helped = uplift > 0.0
    rule = np.zeros(len(uplift))
    ties = group_ties(uplift[helped] / costs[helped])
    rule[helped] = fill_from_top(ties.sums(costs[helped]), budget)[ties.group]
    return rule


def treatment_rank(uplift: ArrayLike) -> IntArray:
    """Return the order in which to treat: 1 for the largest uplift, n for the smallest.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, or any score that orders the rows like it.

    Returns
    -------
    array of shape (n,)
        Ranks from 1 to n, each once. A list must decide where scores are tied: the row that
        comes first goes first. O(n log n) time.

    Examples
    --------
    >>> treatment_rank([0.1, 0.4, 0.1, -0.2])
    array([2, 1, 3, 4])
    """
    order = np.argsort(-check_vector("uplift", uplift), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank
