"""The same areas as other packages define them, for comparing with published numbers.

Names begin with the package whose definition is followed, and results are equal to its
results; `auuc` and `qini` are what we recommend instead. Where a package would divide by
zero or average nothing, an error says so. Definitions only: no package is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unjoined._typing import Array, ArrayLike, BoolArray
from unjoined._validation import (
    check_both_arms,
    check_option,
    check_outcome_is_binary,
    check_propensity,
    check_same_length,
    check_treated,
    check_vector,
)
from unjoined.errors import InputError
from unjoined.evaluate.curves import TieGroups, group_ties, trapezoid


def sklift_uplift_auc(score: ArrayLike, y: ArrayLike, treatment: ArrayLike) -> float:
    r"""Return scikit-uplift's ``uplift_auc_score``.

    The curve at the best k rows is :math:`k (\bar y_t - \bar y_c)`, the arms' means among these
    rows (0 for an arm with no row yet). The score is the area between curve and diagonal,
    divided by the same area of a "perfect" order that puts responding treated and silent
    untreated rows first. That order is no bound: small samples can score above 1.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift. Tied rows form one straight segment.
    y : array-like of shape (n,)
        Outcomes 0 or 1.
    treatment : array-like of shape (n,)
        Coded 0/1, False/True or -1/+1.

    Returns
    -------
    float
        Pure number, 0 for a random order. O(n log n) time.

    Examples
    --------
    >>> sklift_uplift_auc([4, 3, 2, 1], y=[1, 0, 0, 1], treatment=[1, 0, 1, 0])
    1.0
    """
    score, y, treated = check_rows(score, y, treatment)
    check_outcome_is_binary(y)
    control_responders = np.sum((y == 1.0) & ~treated)
    treated_silent = np.sum((y == 0.0) & treated)
    second_key = y if control_responders > treated_silent else treated
    perfect_score = 2.0 * (y == treated) + second_key

    actual = uplift_points(arms_from_top(group_ties(score), y, treated))
    perfect = uplift_points(arms_from_top(group_ties(perfect_score), y, treated))
    return share_of_area(actual, perfect)


def sklift_qini_auc(
    score: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    negative_effect: bool = True,
) -> float:
    r"""Return scikit-uplift's ``qini_auc_score``.

    The curve at the best k rows is :math:`Y_t - Y_c n_t / n_c`: responders among the treated of
    these rows, less those of the untreated scaled to the treated's number. The score is
    the area between curve and diagonal as a share of that of a "perfect" curve.

    Parameters
    ----------
    score, y, treatment : array-like of shape (n,)
        As in `sklift_uplift_auc`.
    negative_effect : bool, default=True
        Whether the perfect curve may fall: if so, it orders treated responders first and
        untreated responders last; if not, it rises with slope 1 to the overall effect (a number of
        rows) and stays there, which needs that effect to be positive.

    Returns
    -------
    float
        Pure number, 0 for a random order. O(n log n) time.

    Examples
    --------
    >>> sklift_qini_auc([4, 3, 2, 1], y=[1, 0, 0, 1], treatment=[1, 0, 1, 0])
    1.0
    """
    score, y, treated = check_rows(score, y, treatment)
    check_outcome_is_binary(y)
    actual = qini_points(arms_from_top(group_ties(score), y, treated))
    if negative_effect:
        perfect_score = np.where(treated, y, -y)
        perfect = qini_points(arms_from_top(group_ties(perfect_score), y, treated))
        return share_of_area(actual, perfect)
    effect = actual[1][-1]
    if effect <= 0.0:
        raise InputError(
            f"negative_effect=False needs a positive overall effect, got {effect:.6g} rows. "
            "Use negative_effect=True, or `qini`, which has no such limit."
        )
    plateau = (np.array([0.0, effect, len(y)]), np.array([0.0, effect, effect]))
    return share_of_area(actual, plateau)


def sklift_uplift_at_k(
    score: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    strategy: Literal["overall", "by_group"],
    k: float = 0.3,
) -> float:
    """Return scikit-uplift's ``uplift_at_k``: the arms' mean outcomes at the top, subtracted.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift. Of tied rows the *last* come first, so the row order matters.
    y : array-like of shape (n,)
        Outcomes; any real numbers (the package takes 0 and 1 only).
    treatment : array-like of shape (n,)
        Coded 0/1, False/True or -1/+1.
    strategy : {"overall", "by_group"}
        ``"overall"`` takes the best rows of both arms together, ``"by_group"`` the best of
        each arm.
    k : float or int, default=0.3
        A float strictly between 0 and 1 is a share, rounded down to whole rows; an int is a
        number of rows (of each arm with ``"by_group"``).

    Returns
    -------
    float
        Outcome units per treated row. O(n log n) time.

    Examples
    --------
    >>> sklift_uplift_at_k([4, 3, 2, 1], [1, 0, 0, 1], [1, 0, 1, 0], strategy="overall", k=0.5)
    1.0
    """
    check_option("strategy", strategy, ("overall", "by_group"))
    score, y, treated = check_rows(score, y, treatment)
    best_first = np.argsort(score, kind="stable")[::-1]
    y, treated = y[best_first], treated[best_first]
    if strategy == "overall":
        top = _whole_rows(k, len(y))
        arms = [y[:top][treated[:top]], y[:top][~treated[:top]]]
    else:
        arms = [y[arm][: _whole_rows(k, int(arm.sum()))] for arm in (treated, ~treated)]
    if min(len(arm) for arm in arms) == 0:
        raise InputError(
            f"the top rows hold {len(arms[0])} treated and {len(arms[1])} untreated rows at k={k}, "
            "and this convention needs both. Use a larger k, or `uplift_at_k`."
        )
    return float(arms[0].mean() - arms[1].mean())


def causalml_auuc(
    score: ArrayLike,
    *,
    y: ArrayLike | None = None,
    treatment: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    normalize: bool = True,
) -> float:
    r"""Return causalml's ``auuc_score`` of one model.

    The gain at the best k rows is the sum of ``tau`` over them or, without ``tau``,
    :math:`k (\bar y_t - \bar y_c)`. While an arm has no row, the difference of means is
    interpolated from 0. The score is the mean of the gains at k = 0, 1, ..., n.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift. Tied rows are taken in row order here; the package leaves their
        order to an unstable sort.
    y, treatment : array-like of shape (n,), optional
        Outcomes and treatment; needed, and used, without ``tau`` only.
    tau : array-like of shape (n,), optional
        True uplift.
    normalize : bool, default=True
        Divide by the absolute gain of treating all, which explodes when that is near 0.

    Returns
    -------
    float
        Outcome units times rows; a pure number when normalised. O(n log n) time.

    Examples
    --------
    >>> causalml_auuc([3, 2, 1], tau=[3.0, 0.0, 0.0], normalize=False)
    2.25
    """
    if tau is not None:
        score = check_vector("score", score)
        tau = check_vector("tau", tau)
        check_same_length(score=score, tau=tau)
        gain = np.concatenate(
            ([0.0], group_with_ties_in_row_order(score).sums_from_top(tau))
        )
    else:
        arms = check_and_accumulate(score, y, treatment)
        with_both = (arms.n_treated > 0.0) & (arms.n_control > 0.0)
        lift = mean_or_zero(arms.y_treated, arms.n_treated) - mean_or_zero(
            arms.y_control, arms.n_control
        )
        gain = np.arange(len(lift) + 1.0) * interpolate_from_zero(lift, with_both)
    return float(normalize_by_last(gain, normalize).mean())


def causalml_qini(
    score: ArrayLike,
    *,
    treatment: ArrayLike,
    y: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    normalize: bool = True,
) -> float:
    r"""Return causalml's ``qini_score`` of one model.

    The curve at the best k rows is :math:`Y_t - Y_c n_t / n_c` or, with ``tau``, the mean of
    ``tau`` over them times :math:`n_t`. While there is no untreated row the curve is
    interpolated from 0. The score is the mean of the curve at k = 0, 1, ..., n, less half its
    last point.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift. Tied rows are taken in row order here; the package leaves their
        order to an unstable sort.
    treatment : array-like of shape (n,)
        Coded 0/1, False/True or -1/+1. Used with ``tau`` as well.
    y : array-like of shape (n,), optional
        Outcomes; needed, and used, without ``tau`` only.
    tau : array-like of shape (n,), optional
        True uplift.
    normalize : bool, default=True
        Divide by the absolute last point, which explodes when the overall effect is near 0.

    Returns
    -------
    float
        Outcome units times treated rows; a pure number when normalised. O(n log n) time.

    Examples
    --------
    >>> causalml_qini([4, 3, 2, 1], treatment=[1, 0, 1, 0], y=[1, 0, 0, 1], normalize=False)
    0.5
    """
    if tau is not None:
        score, tau, treated = check_rows(score, tau, treatment, name="tau")
        order = group_with_ties_in_row_order(score)
        k = np.arange(1.0, len(score) + 1.0)
        treated_so_far = order.sums_from_top(treated.astype(np.float64))
        curve = np.concatenate(([0.0], order.sums_from_top(tau) / k * treated_so_far))
    else:
        arms = check_and_accumulate(score, y, treatment)
        known = arms.n_control > 0.0
        curve = interpolate_from_zero(qini_points(arms)[1][1:], known)
    curve = normalize_by_last(curve, normalize)
    return float(curve.mean() - curve[-1] / 2.0)


def pylift_q(
    score: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    propensity: ArrayLike | None = None,
    curve: Literal["qini", "cgains", "aqini"] = "qini",
) -> float:
    r"""Return pylift's ``Q_qini``, ``Q_cgains`` or ``Q_aqini``.

    With weights :math:`1/(2e_i)` for treated and :math:`1/(2(1-e_i))` for untreated rows, small
    letters for weighted sums over the best k rows and capitals for those over all, the curves are

    - ``"qini"``: :math:`y_t / N_t - y_c / N_c`,
    - ``"cgains"``: :math:`(y_t / n_t - y_c / n_c)(n_t + n_c) / N`,
    - ``"aqini"``: :math:`y_t / N_t - y_c n_t / (n_c N_t)`,

    and Q is their trapezoid sum with steps of :math:`1/N`, less half the overall lift
    :math:`Y_t/N_t - Y_c/N_c`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Predicted uplift. Tied rows are taken in row order.
    y : array-like of shape (n,)
        Outcomes 0 or 1 (the package counts signs of others).
    treatment : array-like of shape (n,)
        Coded 0/1, False/True or -1/+1.
    propensity : float or array-like of shape (n,), optional
        Probability of treatment, strictly between 0 and 1; the share treated by default.
    curve : {"qini", "cgains", "aqini"}, default="qini"
        Which of the three.

    Returns
    -------
    float
        Outcome units per row. O(n log n) time.

    Notes
    -----
    There are n steps of 1/N each, and :math:`N \ne n` unless the propensity is the share
    treated: with any other, the horizontal axis does not end at 1.

    Examples
    --------
    >>> pylift_q([4, 3, 2, 1], y=[1, 0, 0, 1], treatment=[1, 0, 1, 0])
    0.375
    """
    check_option("curve", curve, ("qini", "cgains", "aqini"))
    score, y, treated = check_rows(score, y, treatment)
    check_outcome_is_binary(y)
    e = check_propensity(treated.mean() if propensity is None else propensity, len(y))
    weight = np.where(treated, 0.5 / e, 0.5 / (1.0 - e))
    arms = arms_from_top(group_with_ties_in_row_order(score), y, treated, weight)
    n_treated, n_control = arms.n_treated[-1], arms.n_control[-1]
    total = n_treated + n_control
    if curve == "qini":
        height = arms.y_treated / n_treated - arms.y_control / n_control
    elif curve == "cgains":
        height = uplift_points(arms)[1][1:] / total
    else:
        height = qini_points(arms)[1][1:] / n_treated
    lift = arms.y_treated[-1] / n_treated - arms.y_control[-1] / n_control
    area = (height.sum() - height[-1] / 2.0) / total
    return float(area - lift / 2.0)


def _whole_rows(k: float, n_rows: int) -> int:
    """Return how many of ``n_rows`` a share (float) or a number of rows (int) means."""
    if isinstance(k, (int, np.integer)) and not isinstance(k, bool) and 0 < k <= n_rows:
        return int(k)
    if isinstance(k, (float, np.floating)) and 0.0 < k < 1.0:
        return int(n_rows * k)
    raise InputError(
        f"k must be a share strictly between 0 and 1 (float) or a number of rows from 1 to "
        f"{n_rows} (int), got {k!r}. For all rows use `average_uplift`."
    )


def group_with_ties_in_row_order(score: Array) -> TieGroups:
    """Give each row a group of its own; of tied rows the earlier one counts as better."""
    n = len(score)
    best_first = np.argsort(-score, kind="stable")
    group = np.empty(n, dtype=np.int64)
    group[best_first] = np.arange(n - 1, -1, -1)
    return TieGroups(group, np.ones(n))


@dataclass(frozen=True, slots=True)
class Arms:
    """Weighted row counts and outcome sums by arm over the best 1, 2, ... groups."""

    n_treated: Array
    n_control: Array
    y_treated: Array
    y_control: Array


def arms_from_top(
    order: TieGroups, y: Array, treated: BoolArray, weight: Array | None = None
) -> Arms:
    """Accumulate both arms from the best-scored group downwards."""
    each = np.ones(len(y)) if weight is None else weight
    treated_weight = np.where(treated, each, 0.0)
    control_weight = np.where(treated, 0.0, each)
    return Arms(
        n_treated=order.sums_from_top(treated_weight),
        n_control=order.sums_from_top(control_weight),
        y_treated=order.sums_from_top(treated_weight * y),
        y_control=order.sums_from_top(control_weight * y),
    )


def mean_or_zero(total: Array, count: Array) -> Array:
    """Return ``total / count``, and 0 where nothing has been counted."""
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0.0)


def uplift_points(arms: Arms) -> tuple[Array, Array]:
    """Return rows so far, and that number times the arms' difference of means."""
    rows = arms.n_treated + arms.n_control
    lift = mean_or_zero(arms.y_treated, arms.n_treated) - mean_or_zero(
        arms.y_control, arms.n_control
    )
    return np.concatenate(([0.0], rows)), np.concatenate(([0.0], rows * lift))


def qini_points(arms: Arms) -> tuple[Array, Array]:
    """Return rows so far, and responders less those expected from the untreated."""
    rows = arms.n_treated + arms.n_control
    gain = arms.y_treated - mean_or_zero(
        arms.y_control * arms.n_treated, arms.n_control
    )
    return np.concatenate(([0.0], rows)), np.concatenate(([0.0], gain))


def share_of_area(actual: tuple[Array, Array], perfect: tuple[Array, Array]) -> float:
    """Return the area above the diagonal as a share of the perfect curve's."""
    diagonal = float(perfect[0][-1] * perfect[1][-1]) / 2.0
    best = trapezoid(*perfect) - diagonal
    if best == 0.0:
        raise InputError(
            "the perfect curve of this convention is the diagonal, an area of 0 to divide by. "
            "Evaluate on rows where outcomes differ, or use `qini`."
        )
    return (trapezoid(*actual) - diagonal) / best


def interpolate_from_zero(curve: Array, known: BoolArray) -> Array:
    """Return the curve with a 0 put first and unknown points on straight lines."""
    position = np.arange(1.0, len(curve) + 1.0)
    filled: Array = np.interp(
        np.concatenate(([0.0], position)),
        np.concatenate(([0.0], position[known])),
        np.concatenate(([0.0], curve[known])),
    )
    return filled


def normalize_by_last(curve: Array, normalize: bool) -> Array:
    """Divide by the absolute last point if asked to."""
    if not normalize:
        return curve
    if curve[-1] == 0.0:
        raise InputError(
            "the gain of treating all rows is 0, so that the curve cannot be normalised by it. "
            "Use normalize=False."
        )
    normalized: Array = curve / abs(curve[-1])
    return normalized


def check_rows(
    score: ArrayLike, y: ArrayLike, treatment: ArrayLike, *, name: str = "y"
) -> tuple[Array, Array, BoolArray]:
    """Return score, outcome (or the column called ``name``) and treated rows, clean."""
    clean_score = check_vector("score", score)
    clean_y = check_vector(name, y)
    treated = check_treated(treatment)
    check_same_length(
        **{"score": clean_score, name: clean_y, "treatment": treated.astype(np.float64)}
    )
    check_both_arms(treated)
    return clean_score, clean_y, treated


def check_and_accumulate(
    score: ArrayLike, y: ArrayLike | None, treatment: ArrayLike | None
) -> Arms:
    """Return the arms row by row, from the best score downwards."""
    if y is None or treatment is None:
        raise InputError(
            "without tau, both y and treatment are needed, and one of them is None. "
            "Pass the true uplift as tau, or outcomes and treatment."
        )
    score, y, treated = check_rows(score, y, treatment)
    return arms_from_top(group_with_ties_in_row_order(score), y, treated)
