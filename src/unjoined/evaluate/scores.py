"""Scores of an uplift estimate that need no row with both labels."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import MetadataRequest

from unjoined._typing import Array, ArrayLike, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_length,
    check_option,
    check_two,
)
from unjoined.data.chunks import feature_matrix
from unjoined.data.rows import OF_ALL, LabelledRows, Rows
from unjoined.errors import InputError
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.terms import labelled_rows
from unjoined.model.basis import Scaling
from unjoined.model.draw import draw_basis
from unjoined.model.regressors import Nuisances, cross_fit

CRITIC_CENTERS = 50
CRITIC_RIDGE = 1e-3


def minmax_objective(
    uplift: ArrayLike,
    critic: ArrayLike,
    X: MatrixLike,
    y: ArrayLike,
    **columns: ArrayLike | None,
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
    X, y, **columns
        As in ``fit``: treatment, population and perhaps others, of two populations; pass
        ``**data`` with a `SeparateLabels`. Outcomes are taken in the coding estimators use (an
        outcome of two values as -1/+1) and converted back.

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
    rows, given = labelled_rows(X, y=y, **columns)
    instead = (
        "use weighted_risk, outcome_risk or fixed_critic_score, which take any number"
    )
    check_two(rows.names, f"found {{}} in n_samples={len(given)} rows", instead)
    scale = rows.coding.scale
    f = aligned_values("uplift", uplift, given) / scale
    g = aligned_values("critic", critic, given) / scale
    treatment = rows.of_kind(TREATMENT)
    outcome = rows.of_kind(OUTCOME)
    signed = rows.sign * rows.share * rows.label
    cross = signed[treatment] @ (f * g)[treatment]
    linear = signed[outcome] @ g[outcome]
    square = 0.5 * (rows.share @ g**2)
    return float(scale**2 * (2.0 * cross - 4.0 * linear - square))


def weighted_risk(
    uplift: ArrayLike, X: MatrixLike, y: ArrayLike, **others: Any
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
    X, y
        Held-out rows, as in ``fit``; pass ``**data`` with a `SeparateLabels`.
    **others
        The rest that `HeldOutRows.from_data` takes: ``treatment``, ``population``,
        ``sample_weight``, and models and folds of the cross-fitting.

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
    >>> data = problem.draw(300, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> weighted_risk(u, **data) < weighted_risk(0.0 * u, **data)
    True
    """
    return HeldOutRows.from_data(X, y, **others).score(uplift, "weighted_risk")


def outcome_risk(
    uplift: ArrayLike, X: MatrixLike, y: ArrayLike, **others: Any
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
    uplift, X, y, **others
        As in `weighted_risk`.

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
    >>> data = problem.draw(300, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> outcome_risk(u, **data) < outcome_risk(0.0 * u, **data)
    True
    """
    return HeldOutRows.from_data(X, y, **others).score(uplift, "outcome_risk")


def fixed_critic_score(
    uplift: ArrayLike, X: MatrixLike, y: ArrayLike, **others: Any
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
    uplift, X, y, **others
        As in `weighted_risk`.

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
    >>> data = problem.draw(300, random_state=0)
    >>> u = problem.uplift(data.X)
    >>> fixed_critic_score(u, **data) < fixed_critic_score(0.0 * u, **data)
    True
    """
    return HeldOutRows.from_data(X, y, **others).score(uplift, "fixed_critic")


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Rows with the cross-fitted policies and outcome means that scores need, computed once.

    Scoring a further estimate then costs one pass over the rows. Build it with
    `HeldOutRows.from_data`; the estimates to score must not have seen the rows.

    Attributes
    ----------
    rows : LabelledRows
        Rows that carry a label and a weight, in the inner coding.
    nuisances : Nuisances
        Policies and outcome mean at each of these rows.
    given : Rows
        All rows as they were given.

    Examples
    --------
    Which of two functions is closer to the uplift, and is that more than chance?

    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> data = problem.draw(500, random_state=0)
    >>> held = HeldOutRows.from_data(**data)
    >>> u = problem.uplift(data.X)
    >>> gain = held.difference(0.5 * u, u, "outcome_risk")
    >>> gain.value > 2 * gain.standard_error
    True
    """

    rows: LabelledRows
    nuisances: Nuisances
    given: Rows

    @classmethod
    def from_data(
        cls,
        X: MatrixLike,
        y: ArrayLike,
        *,
        policy_model: Any = None,
        outcome_model: Any = None,
        n_folds: int = 5,
        **columns: Any,
    ) -> HeldOutRows:
        """Check the rows and cross-fit the policies and outcome means on them.

        Parameters
        ----------
        X, y, **columns
            As in ``fit``: treatment, population and perhaps others; pass ``**data`` with a
            `SeparateLabels`. Target rows are left out.
        policy_model, outcome_model : scikit-learn classifier or regressor, optional
            Models of a policy and of the outcome in one population, on standardised features.
            Default: additive models, as `Uplift` has for its policies. Models without a
            seed get one.
        n_folds : int, default=5
            Folds of the cross-fitting, at most the rows of the smallest table.

        Returns
        -------
        HeldOutRows
            Costs ``2 * n_folds`` fits for each population; about half a second for two
            populations and 8,000 rows.
        """
        rows, given = labelled_rows(X, y=y, **columns)
        nuisances = cross_fit(
            rows,
            policy_model=policy_model,
            outcome_model=outcome_model,
            n_folds=n_folds,
            rng=check_random_state(0),
        )
        return cls(rows, nuisances, given)

    def score(self, uplift: ArrayLike, name: str) -> float:
        """Return one score of an estimate; smaller is better.

        Parameters
        ----------
        uplift : array-like of shape (n,)
            The estimate at each row given to ``from_data``, outcome units.
        name : {"weighted_risk", "fixed_critic", "outcome_risk"}
            Which score; see the functions of these names.

        Returns
        -------
        float
            In squared outcome units.
        """
        return float(self.rows.share @ self.values(uplift, name))

    def difference(self, uplift: ArrayLike, other: ArrayLike, name: str) -> Estimate:
        """Return how much larger the score of ``uplift`` is than that of ``other``.

        Parameters
        ----------
        uplift, other : array-like of shape (n,)
            Two estimates at each row given to ``from_data``, outcome units.
        name : {"weighted_risk", "fixed_critic", "outcome_risk"}
            Which score.

        Returns
        -------
        Estimate
            In squared outcome units. The standard error is that of a difference on the same
            rows; it takes the policies, the outcome means and both estimates as given.
        """
        values = self.values(uplift, name) - self.values(other, name)
        share, variance = self.rows.share, 0.0
        for at in (
            self.rows.all_cells()
        ):  # drawn by themselves: only the spread within counts
            n = len(at)
            off = share[at] * (values[at] - np.average(values[at], weights=share[at]))
            variance += n / (n - 1) * float(off @ off) if n > 1 else math.nan
        return Estimate(float(share @ values), math.sqrt(variance))

    def values(self, uplift: ArrayLike, name: str) -> Array:
        """Return the score's value at each labelled row, squared outcome units.

        The score is their sum under the rows' shares. Takes ``uplift`` and ``name`` as ``score``.
        """
        check_option("name", name, SCORES)
        scale = self.rows.coding.scale
        f = aligned_values("uplift", uplift, self.given) / scale
        return scale**2 * SCORES[name](f, self.rows, self.nuisances)


def weighted_values(
    f: Array, rows: LabelledRows, gap: Array, center: Array | float = 0.0
) -> Array:
    r"""Return :math:`t \nu_k f^2` at treatment rows and :math:`-4 y \nu_k f` at outcome rows.

    ``gap`` (n,) is :math:`\nu_k` of the row's population. Of two populations it is
    :math:`\pm\nu`, which makes them :math:`w \nu f^2` and :math:`-4 z \nu f`. Labels are taken
    about ``center``: a function of x alone cancels between the populations and would add noise.
    """
    return (rows.label - center) * gap * np.where(rows.is_outcome, -4.0 * f, f**2)


def _centred_risk(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    """Return the rows' part in the weighted risk, by cross-fitted gaps and means."""
    return weighted_values(
        f, rows, nuisances.contrast(rows.population), _center(rows, nuisances)
    )


def _center(rows: LabelledRows, nuisances: Nuisances) -> Array:
    """Return the mean over the populations of the label's conditional mean at each row."""
    return np.where(rows.is_outcome, nuisances.outcome_mean, nuisances.treatment_mean)


def outcome_values(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    r"""Return :math:`(y - m - (e_k - \bar e) f)^2` at outcome rows, 0 at treatment rows."""
    apart = 0.5 * nuisances.contrast(rows.population)
    residual = rows.label - nuisances.outcome_mean - apart * f
    return np.where(rows.is_outcome, residual**2, 0.0)


def critic_values(f: Array, rows: LabelledRows, nuisances: Nuisances) -> Array:
    r"""Return the rows' part in :math:`\max_g J(f, g) - \lambda \|g\|^2`, noise taken out.

    With :math:`a = \sum_i a_i` the coefficients of :math:`\beta` and M its quadratic form, the
    maximum is :math:`\tfrac12 a^\top M^{-1} a`. Noise alone makes that positive, the more so
    the larger f; its expectation is :math:`\tfrac12 \sum_i a_i^\top M^{-1} a_i`, which goes off.
    More than two populations have a critic for each of their contrasts.
    """
    share = rows.share
    Psi = _critic_basis(rows)  # (n, q)
    M = (Psi * share[:, None]).T @ Psi + 2.0 * CRITIC_RIDGE * np.eye(Psi.shape[1])
    # In whitened coordinates M is the identity, and so is every inner product needed.
    Psi = solve_triangular(cholesky(M, lower=True), Psi.T, lower=True).T
    term = (rows.label - _center(rows, nuisances)) * np.where(
        rows.is_outcome, -4.0, 2.0 * f
    )
    total = np.zeros(len(f))
    for contrast in _contrasts(len(rows.names)):
        signed = contrast[rows.population] * term
        beta = (share * signed) @ Psi  # (q,) maximiser
        g = Psi @ beta
        noise = 0.5 * share * signed**2 * np.einsum("ij,ij->i", Psi, Psi)
        # By the envelope theorem a row moves the maximum by its own term in J at the maximiser.
        # The ridge's part belongs to no row: it is spread evenly (the shares add up to 2).
        penalty = 0.5 * (0.5 * (beta @ beta) - 0.5 * (share @ g**2))
        total += signed * g - 0.5 * g**2 - noise - penalty
    return total


def _contrasts(n: int) -> Array:
    """Return orthogonal weights of n populations, shape (n - 1, n), with mean 0 and mean square 1.

    Of two populations they are +1 and -1, the paper's sign. Which orthogonal ones are taken does
    not change the sum of what their critics find.
    """
    j = np.arange(1.0, n)
    rows = (
        np.tri(n - 1, n) - np.diag(j, 1)[:-1]
    )  # 1 -1 0 0, 1 1 -2 0, 1 1 1 -3 and so on
    return rows * np.sqrt(n / (j * (j + 1.0)))[:, None]


def _critic_basis(rows: LabelledRows) -> Array:
    """Return the critic's functions at each row: the same for every estimate, by a fixed seed."""
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    size = min(CRITIC_CENTERS, len(Z))
    rng = check_random_state(0)
    critic = draw_basis(
        "smooth", Z, n_centers=size, width="median", rng=rng, weight=rows.relative
    )
    return critic(Z)


SCORES: dict[str, Callable[[Array, LabelledRows, Nuisances], Array]] = {
    "weighted_risk": _centred_risk,
    "fixed_critic": critic_values,
    "outcome_risk": outcome_values,
}


def aligned_values(name: str, values: ArrayLike, given: Rows) -> Array:
    """Check a function's values at rows, and leave out those of rows without a label."""
    array: Array = np.asarray(values, dtype=np.float64)
    check_length(name, array, len(given))
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinite values.")
    return array[given.positions]


# As many sets of held-out rows as a search usually has folds; a search comes back to each of
# them once per candidate.
REMEMBERED = 16


class UpliftScorer:
    """Minus a held-out score of an uplift estimator's predictions; higher is better.

    Made by `uplift_scorer`. Remembers the policies and outcome means of the last 16 sets of rows,
    so that they are cross-fitted once per fold and not once per candidate.
    """

    def __init__(self, name: str, *, weighted: bool = False) -> None:
        self.name = name
        self.weighted = weighted
        self._held: dict[bytes, HeldOutRows] = {}

    def __call__(
        self,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike,
        **columns: Any,
    ) -> float:
        """Return the score of a fitted estimator on held-out rows, squared outcome units."""
        rows = pickle.dumps((feature_matrix(X), y, sorted(columns.items())))
        key = hashlib.blake2b(rows, digest_size=16).digest()
        if key not in self._held:
            while len(self._held) >= REMEMBERED:
                del self._held[next(iter(self._held))]  # the oldest
            self._held[key] = HeldOutRows.from_data(X, y, **columns)
        return -self._held[key].score(estimator.predict(X), self.name)

    def get_metadata_routing(self) -> Any:
        """Return what the scorer asks for: treatment, population, and weights if it is weighted."""
        request = MetadataRequest(owner=repr(self))
        for name in ("treatment", "population"):
            request.score.add_request(param=name, alias=True)
        request.score.add_request(param="sample_weight", alias=self.weighted)
        for name in ("cluster", "count", "policy"):
            request.score.add_request(param=name, alias=False)
        for name in OF_ALL:
            request.score.add_request(param=name, alias=True)
        return request

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the rows, which need not travel to other processes."""
        return {"name": self.name, "weighted": self.weighted, "_held": {}}

    def __repr__(self) -> str:
        """Return how the scorer was made."""
        return (
            f"uplift_scorer({self.name!r}{', weighted=True' if self.weighted else ''})"
        )


def uplift_scorer(name: str, *, weighted: bool = False) -> UpliftScorer:
    """Return a score without joint labels as ``scoring`` for `GridSearchCV` and its like.

    Parameters
    ----------
    name : {"weighted_risk", "fixed_critic", "outcome_risk"}
        Which score; see `weighted_risk`, `fixed_critic_score` and `outcome_risk`.
    weighted : bool, default=False
        Whether the scorer asks for ``sample_weight``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, *, treatment, population, sample_weight=None)`` returns minus the
        score, in squared outcome units: higher is better. It asks for treatment and population
        through metadata routing, which must be on, and works with `CellKFold`.

    See Also
    --------
    HeldOutRows : differences of two scores, with standard errors.

    Examples
    --------
    >>> from sklearn import config_context
    >>> from sklearn.model_selection import GridSearchCV
    >>> from unjoined import MinMaxUplift
    >>> from unjoined.data import CellKFold, paper_problem
    >>> data = paper_problem().draw(200, random_state=0)
    >>> with config_context(enable_metadata_routing=True):
    ...     search = GridSearchCV(
    ...         MinMaxUplift(basis="linear"),
    ...         {"ridge_f": [0.01, 100.0]},
    ...         scoring=uplift_scorer("outcome_risk"),
    ...         cv=CellKFold(3),
    ...     ).fit(**data)
    >>> search.best_params_
    {'ridge_f': 0.01}
    """
    check_option("name", name, SCORES)
    return UpliftScorer(name, weighted=weighted)
