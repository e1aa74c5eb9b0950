"""Scores of an uplift estimate that need no row with both labels."""

from __future__ import annotations

from typing import Any

from unjoined._typing import ArrayLike, MatrixLike
from unjoined._validation import OUTCOME, TREATMENT, check_two
from unjoined.evaluate._held_out import HeldOutRows, aligned_values, labelled_rows
from unjoined.evaluate._nuisances import cross_fitted_gap

__all__ = [
    "cross_fitted_gap",
    "fixed_critic_score",
    "minmax_objective",
    "outcome_risk",
    "weighted_risk",
]


def minmax_objective(
    uplift: ArrayLike,
    critic: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Return the paper's empirical objective :math:`\hat J(f, g)` of any two functions.

    .. math::

        \hat J(f, g) = 2 \hat E[w f g] - 4 \hat E[z g]
        - \tfrac12 \hat E_z[g^2] - \tfrac12 \hat E_w[g^2]

    averages being over the treatment and the outcome rows, each population counting half.

    Parameters
    ----------
    uplift, critic : array-like of shape (n,)
        Values of f and g at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        As in ``fit``, of two populations; pass ``**data`` with a `SeparateLabels`. Outcomes are
        taken in the coding estimators use (an outcome of two values as -1/+1) and converted back.

    Returns
    -------
    float
        In squared outcome units.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(500, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> minmax_objective(u, 0.0 * u, **data)
    0.0
    """
    rows, used = labelled_rows(X, y, kind, population, sample_weight)
    instead = "use weighted_risk, outcome_risk or fixed_critic_score, which take any number"
    check_two(rows.names, f"found {{}} in n_samples={len(used)} rows", instead)
    scale = rows.coding.scale
    f = aligned_values("uplift", uplift, used) / scale
    g = aligned_values("critic", critic, used) / scale
    treatment, outcome = rows.of_kind(TREATMENT), rows.of_kind(OUTCOME)
    signed = rows.sign * rows.share * rows.label
    cross = signed[treatment] @ (f * g)[treatment]
    linear = signed[outcome] @ g[outcome]
    square = 0.5 * (rows.share @ g**2)
    return float(scale**2 * (2.0 * cross - 4.0 * linear - square))


def weighted_risk(
    uplift: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    policy_model: Any = None,
    outcome_model: Any = None,
    n_folds: int = 5,
) -> float:
    r"""Return a risk that the true uplift minimises, from rows the estimate has not seen.

    .. math::

        R(f) = E[w \nu f^2] - 4 E[z \nu f] = E[\mu_w \nu (f - u)^2] + \text{const}

    where :math:`\nu` estimates the policy gap :math:`\mu_w(x)`, cross-fitted on the treatment
    rows. Nothing is divided and nothing maximised: the true uplift is the minimum as long as
    :math:`\nu` has the sign of :math:`\mu_w`. Differences between two estimates on the same
    rows are meaningful, the level is not. Notes say what it is for more than two populations.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        The estimate at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        Held-out rows, as in ``fit``; pass ``**data`` with a `SeparateLabels`.
    policy_model, outcome_model, n_folds
        Models of each policy and of the outcome in each population, and the folds they are
        cross-fitted on; see `HeldOutRows.from_data`.

    Returns
    -------
    float
        In squared outcome units; smaller is better.

    See Also
    --------
    outcome_risk : less noise, but needs the policies themselves to be right.
    HeldOutRows : scores many estimates on the same rows, with standard errors.

    Notes
    -----
    Labels are centred: the mean over all populations of the conditional mean given x is
    subtracted from outcomes and from treatments. A function of x alone cancels between the
    populations and only adds noise.

    Of K populations, :math:`\pm\nu` becomes :math:`\nu_k`, the estimate of
    :math:`2 (e_k - \bar e)` with :math:`\bar e` the mean of the policies. As the :math:`\nu_k` add
    up to 0 at every x,

    .. math::

        R(f) = \frac1K \sum_k \bigl(E_k[t \nu_k f^2] - 4 E_k[y \nu_k f]\bigr)
        = E\Bigl[\frac2K \sum_k (e_k - \bar e) \nu_k (f - u)^2\Bigr] + \text{const}

    with t coded -1/+1, which the true uplift minimises as long as the sum over k is above 0 at
    every x.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(2000, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> weighted_risk(u, **data) < weighted_risk(0.0 * u, **data) < weighted_risk(-u, **data)
    True
    """
    held = HeldOutRows.from_data(
        X,
        y,
        kind=kind,
        population=population,
        sample_weight=sample_weight,
        policy_model=policy_model,
        outcome_model=outcome_model,
        n_folds=n_folds,
    )
    return held.score(uplift, "weighted_risk")


def outcome_risk(
    uplift: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    policy_model: Any = None,
    outcome_model: Any = None,
    n_folds: int = 5,
) -> float:
    r"""Return the squared error of held-out outcomes that an uplift leaves.

    .. math::

        R(f) = E\bigl[(y - m(x) - (e_k(x) - \bar e(x)) f(x))^2\bigr]

    where :math:`e_k` is the policy of the row's population, :math:`\bar e` the mean of all
    policies and :math:`m` the mean of all populations' conditional means of the outcome, all
    cross-fitted, and each population counts the same. Since
    :math:`E_k[y \mid x] = m(x) + (e_k(x) - \bar e(x)) u(x)`, the true uplift is the minimum over
    all functions.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        The estimate at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        Held-out rows, as in ``fit``; pass ``**data`` with a `SeparateLabels`.
    policy_model, outcome_model, n_folds
        Models of each policy and of the outcome in each population, and the folds they are
        cross-fitted on; see `HeldOutRows.from_data`.

    Returns
    -------
    float
        In squared outcome units; smaller is better. Never negative.

    See Also
    --------
    weighted_risk : the same minimum with less trust in the policy models.
    HeldOutRows : scores many estimates on the same rows, with standard errors.

    Notes
    -----
    Four times this is, but for a constant, the weighted risk with :math:`\nu` in the place of
    the treatment label: no treatment row's noise enters. In return an error of
    :math:`\nu` moves the minimum to :math:`u \mu_w / \nu`.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(2000, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> outcome_risk(u, **data) < outcome_risk(0.0 * u, **data) < outcome_risk(-u, **data)
    True
    """
    held = HeldOutRows.from_data(
        X,
        y,
        kind=kind,
        population=population,
        sample_weight=sample_weight,
        policy_model=policy_model,
        outcome_model=outcome_model,
        n_folds=n_folds,
    )
    return held.score(uplift, "outcome_risk")


def fixed_critic_score(
    uplift: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
    policy_model: Any = None,
    outcome_model: Any = None,
    n_folds: int = 5,
) -> float:
    r"""Return what a fixed family of critics finds to object to in an uplift.

    .. math::

        \max_{g \in G} \; 2 E[w f g] - 4 E[z g] - E_z[g^2] / 2 - E_w[g^2] / 2 - \lambda \|g\|^2

    The maximum is the squared length of the projection of :math:`\mu_w (f - u)` on the family,
    so it is smallest at the true uplift. The family is a constant, the features and 50 Gaussians
    drawn from the rows with a fixed seed: the same for every estimate, unlike the critic an
    estimator brings along. What noise alone would yield is subtracted (see Notes). More than two
    populations have a critic for each of K - 1 orthogonal contrasts, which replace the sign in w
    and z; what they find adds up.

    Parameters
    ----------
    uplift : array-like of shape (n,)
        The estimate at each row of ``X``, in outcome units.
    X, y, kind, population, sample_weight
        Held-out rows, as in ``fit``; pass ``**data`` with a `SeparateLabels`.
    policy_model, outcome_model, n_folds
        Models of each policy and of the outcome in each population, and the folds they are
        cross-fitted on; see `HeldOutRows.from_data`.

    Returns
    -------
    float
        In squared outcome units; smaller is better, and about 0 for the true uplift.

    See Also
    --------
    minmax_objective : the objective for two given functions.

    Notes
    -----
    With :math:`a_i` the rows' terms linear in the critic's coefficients and M its quadratic
    form, the maximum is :math:`\frac12 a^\top M^{-1} a` with :math:`a = \sum_i a_i`. The part
    :math:`\frac12 \sum_i a_i^\top M^{-1} a_i` is there even if a is noise, and grows with f; it
    is left out, which makes the score a U-statistic. It may be negative. Labels are centred as
    in `weighted_risk`.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(2000, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> fixed_critic_score(u, **data) < fixed_critic_score(0.0 * u, **data)
    True
    """
    held = HeldOutRows.from_data(
        X,
        y,
        kind=kind,
        population=population,
        sample_weight=sample_weight,
        policy_model=policy_model,
        outcome_model=outcome_model,
        n_folds=n_folds,
    )
    return held.score(uplift, "fixed_critic")
