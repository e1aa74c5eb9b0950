"""Targeting rules, what they are expected to earn, and the rule that earns the most."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array, ArrayLike, IntArray
from unjoined._validation import (
    check_cost,
    check_not_negative,
    check_one_per_row,
    check_probability,
    check_same_length,
    check_share,
    check_vector,
)
from unjoined.errors import InputError
from unjoined.evaluate.curves import fill_from_top, group_ties
from unjoined.evaluate.rules import RuleLeaf, TreeRule, learn_rule

__all__ = [
    "Gain",
    "RuleLeaf",
    "TreeRule",
    "assign_arms",
    "budget_rule",
    "expected_gain",
    "learn_rule",
    "optimal_rule",
    "profit_rule",
    "top_share_rule",
    "treatment_rank",
]


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


def assign_arms(
    uplift: ArrayLike,
    *,
    value: float = 1.0,
    cost: ArrayLike = 0.0,
    budget: float | None = None,
) -> IntArray:
    r"""Give each person the treatment that brings the most, or none, within a budget.

    Everybody gets the treatment of the largest :math:`v u_{ij} - (1 + \lambda) c_j`, or none if
    that is not above 0, with the least price :math:`\lambda \ge 0` of money at which the budget
    holds. No other way to spend as much brings more, and what is left over is less than the cost of
    one treatment and one person's change between two of them.

    Parameters
    ----------
    uplift : array-like of shape (n, J)
        Uplift of each treatment over none, outcome units, as `ArmUplift` predicts.
    value : float, default=1.0
        What one unit of outcome is worth, money.
    cost : float or array-like of shape (J,), default=0.0
        What one person costs by each treatment, money, 0 or above.
    budget : float, optional
        Total to spend, money; at least 0. No limit by default.

    Returns
    -------
    array of shape (n,)
        0 for none, else the treatment, 1 to J. O(n J) time for each of some sixty prices.

    Examples
    --------
    >>> uplift = [[0.3, 0.5], [0.2, 0.1], [-0.1, -0.2], [0.1, 0.6]]
    >>> assign_arms(uplift, value=10.0, cost=[0.5, 2.0])
    array([2, 1, 0, 2])
    >>> assign_arms(uplift, value=10.0, cost=[0.5, 2.0], budget=3.0)
    array([1, 1, 0, 2])
    """
    matrix = np.asarray(uplift, dtype=np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise InputError(
            "uplift must hold a finite number for each person and treatment, shape (n, J), got "
            f"shape {matrix.shape}. ArmUplift.predict returns it."
        )
    worth = check_not_negative("value", value)
    costs = _check_cost(cost, matrix.shape[1])
    net = worth * matrix - costs

    def chosen(price: float) -> IntArray:
        own = net - price * costs
        best = np.argmax(own, axis=1)
        return np.where(own[np.arange(len(own)), best] > 0.0, best + 1, 0)

    def spent(arms: IntArray) -> float:
        return float(np.append(0.0, costs)[arms].sum())

    limit = np.inf if budget is None else check_not_negative("budget", budget)
    if spent(chosen(0.0)) <= limit:
        return chosen(0.0)
    low, high = 0.0, 1.0
    while spent(chosen(high)) > limit:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if spent(chosen(middle)) <= limit else (middle, high)
    arms, more = chosen(high), chosen(low)
    left = limit - spent(arms)
    each = np.append(0.0, costs)
    for i in np.flatnonzero(arms != more):  # tied at the price: as many as can be paid
        further = each[more[i]] - each[arms[i]]
        if further <= left:
            arms[i], left = more[i], left - further
    return arms


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


@dataclass(frozen=True, slots=True)
class Gain:
    """What treating by a rule is expected to earn, compared with treating nobody.

    Examples
    --------
    >>> gain = Gain(n_rows=100, n_treated=20.0, uplift_total=3.0, revenue=60.0, cost=10.0)
    >>> gain.net, gain.net_per_row, gain.net_per_treated
    (50.0, 0.5, 2.5)
    """

    n_rows: int  # people the rule decides on
    n_treated: float  # how many of them are treated, on average if the rule is random
    uplift_total: float  # outcome caused by the treatments, summed, outcome units
    revenue: float  # what that outcome is worth, money
    cost: float  # what the treatments cost, money

    @property
    def net(self) -> float:
        """Revenue less cost, money."""
        return self.revenue - self.cost

    @property
    def share_treated(self) -> float:
        """Share of the people who are treated, 0 to 1."""
        return self.n_treated / self.n_rows

    @property
    def uplift_per_row(self) -> float:
        """Average uplift of the rule, outcome units per person, treated or not."""
        return self.uplift_total / self.n_rows

    @property
    def uplift_per_treated(self) -> float:
        """Outcome caused per treatment, outcome units; nan if nobody is treated."""
        return self.uplift_total / self.n_treated if self.n_treated else math.nan

    @property
    def net_per_row(self) -> float:
        """Net gain per person, treated or not, money."""
        return self.net / self.n_rows

    @property
    def net_per_treated(self) -> float:
        """Net gain per treatment, money; nan if nobody is treated."""
        return self.net / self.n_treated if self.n_treated else math.nan


def expected_gain(
    uplift: ArrayLike, rule: ArrayLike, *, value: ArrayLike = 1.0, cost: ArrayLike = 0.0
) -> Gain:
    r"""Return what a targeting rule earns if the uplift is what it is said to be.

    .. math::

        \sum_i \pi_i (v_i u_i - c_i)

    and its parts. Needs feature rows only: no label enters once the uplift is estimated.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, outcome units: predicted, true or :func:`joint_values`.
    rule : array-like of shape (n,)
        Treatment probabilities in [0, 1], or booleans.
    value : float or array-like of shape (n,), default=1.0
        What one unit of outcome is worth, money per outcome unit; negative if the outcome is a
        loss, such as a cancelled contract.
    cost : float or array-like of shape (n,), default=0.0
        What treating the row costs, money, 0 or above.

    Returns
    -------
    Gain
        Totals over the rows and figures per person. O(n) time.

    Notes
    -----
    Assumes that treatments do not affect other people's outcomes, and that the rows respond like
    those the uplift was learned from. Predictions that also chose the rows overstate their gain:
    put in :func:`joint_values` of rows kept aside instead.

    Examples
    --------
    >>> gain = expected_gain([0.3, 0.1, -0.2], [1, 1, 0], value=20.0, cost=1.5)
    >>> gain.n_treated, gain.revenue, gain.cost, gain.net
    (2.0, 8.0, 3.0, 5.0)
    """
    uplift = check_vector("uplift", uplift)
    rule = check_probability("rule", rule)
    check_same_length(uplift=uplift, rule=rule)
    values = check_one_per_row("value", value, len(uplift))
    costs = _check_cost(cost, len(uplift))
    return Gain(
        n_rows=len(uplift),
        n_treated=float(rule.sum()),
        uplift_total=float(rule @ uplift),
        revenue=float(rule @ (values * uplift)),
        cost=float(rule @ costs),
    )


def profit_rule(
    uplift: ArrayLike,
    *,
    value: ArrayLike = 1.0,
    cost: ArrayLike = 0.0,
    budget: float | None = None,
) -> Array:
    r"""Treat wherever the treatment pays for itself, the best buys first under a budget.

    Solves :math:`\max_\pi \sum_i (v_i u_i - c_i) \pi_i` over :math:`0 \le \pi_i \le 1`, and
    :math:`\sum_i c_i \pi_i \le B` if there is a budget, exactly. Without one,
    :math:`\pi_i = 1[v_i u_i \ge c_i]`; with one, rows that pay are treated in descending order of
    net gain per cost until it is spent.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        Uplift per row, outcome units, not reduced by the cost.
    value : float or array-like of shape (n,), default=1.0
        What one unit of outcome is worth, money per outcome unit.
    cost : float or array-like of shape (n,), default=0.0
        What treating the row costs, money, 0 or above. Rows that cost nothing need no budget.
    budget : float, optional
        Total to spend on these rows, money; at least 0. No limit by default.

    Returns
    -------
    array of shape (n,)
        Treatment probabilities. Rows tied at the cut-off share one probability between 0 and
        1; all others get 0 or 1. O(n log n) time.

    Examples
    --------
    >>> profit_rule([0.3, 0.1, -0.2], value=20.0, cost=4.0)
    array([1., 0., 0.])
    >>> profit_rule([0.3, 0.4, 0.1], value=20.0, cost=1.0, budget=1.5)
    array([0.5, 1. , 0. ])
    """
    uplift = check_vector("uplift", uplift)
    values = check_one_per_row("value", value, len(uplift))
    costs = _check_cost(cost, len(uplift))
    net = values * uplift - costs
    rule = (net >= 0.0).astype(np.float64)
    if budget is None:
        return rule
    budget = check_not_negative("budget", budget)
    paid = (net >= 0.0) & (costs > 0.0)
    ties = group_ties(net[paid] / costs[paid])
    rule[paid] = fill_from_top(ties.sums(costs[paid]), budget)[ties.group]
    return rule


def _check_cost(cost: ArrayLike, n_rows: int) -> Array:
    """Return one cost per row, 0 or above."""
    clean = check_one_per_row("cost", cost, n_rows)
    wrong = clean[clean < 0.0]
    if wrong.size:
        raise InputError(
            f"cost must be 0 or above, got {wrong[:5].tolist()} in {wrong.size} row(s). Count what "
            "a treatment brings in as value, not as a negative cost."
        )
    return clean
