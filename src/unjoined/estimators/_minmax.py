"""The paper's estimator: a min-max problem with a closed-form solution."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, ArrayLike, MatrixLike, RandomState
from unjoined._validation import check_count, check_option, check_positive
from unjoined.errors import InputError
from unjoined.estimators._base import UpliftEstimator
from unjoined.features import BASES, Basis, Scaling, draw_basis
from unjoined.moments import accumulate, assemble
from unjoined.solve import solve_minmax

__all__ = ["MinMaxGau", "MinMaxUplift"]


class MinMaxUplift(UpliftEstimator):
    r"""Uplift from separate labels by the paper's closed-form min-max estimator.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` from rows that carry a treatment label or
    an outcome label, never both, from two populations that were treated by different policies.
    No policy is modelled and no estimate is divided by another: a function :math:`f` is sought
    that leaves a critic :math:`g` nothing to object to,

    .. math::

        \min_f \max_g \; 2 E[w f g] - 4 E[z g] - E[g^2] + \lambda_f \|f\|^2 - \lambda_g \|g\|^2,

    with :math:`w = \pm t` and :math:`z = \pm y`, the sign telling the populations apart.

    Parameters
    ----------
    basis : {"gaussian", "fourier", "linear"} or Basis, default="gaussian"
        Functions that both :math:`f` and :math:`g` are combinations of. A given `Basis` is used
        as it is, on the standardised features if ``standardize`` is on.
    n_centers : int or "auto", default="auto"
        Number of Gaussian centres, drawn without replacement from the rows given to ``fit``,
        or of Fourier features; "auto" is 100, or as many as there are rows. Not used by the
        linear basis.
    width : float or "median", default="median"
        Length scale of the Gaussian, :math:`\exp(-\|x - c\|^2 / \text{width}^2)`, in units of
        the (standardised) features; "median" is the median distance between rows.
    ridge_f, ridge_g : float, default=0.01
        Penalties on the coefficients of the uplift and of the critic. They have no units: the
        uplift found scales with the outcome.
    standardize : bool, default=True
        Whether features are brought to mean 0 and variance 1 first.
    n_jobs : int or None, default=-1
        Threads for the pass over the rows; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for the centres; the same seed gives the same bits.

    Attributes
    ----------
    coef_ : array of shape (p,)
        Coefficients of the uplift on the basis, outcome units.
    critic_coef_ : array of shape (p,)
        Coefficients of the critic, outcome units.
    basis_ : Basis
        The basis, on scaled features.
    scaling_ : Scaling
        What was subtracted from and divided out of the features.
    singular_values_ : array of shape (p,)
        Of the whitened problem; how well each direction of :math:`f` is determined.
    identification_ : IdentificationStrength
        How different the two policies are.
    populations_ : list
        The two populations' names; the first has the positive sign.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    MinMaxGau : this estimator with the settings of the paper.
    PlugInUplift : four regressions and a ratio.

    Notes
    -----
    Fitting costs :math:`O(n p^2 + p^3)` time for n rows and p basis functions, and
    :math:`O(p^2)` memory beside the rows. Treatment is recoded to -1/+1 and an outcome of two
    values to -1/+1 as in the paper, whichever coding they come in, so that the same ridge means
    the same penalty; predictions are converted back to the units of the outcome.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined import MinMaxUplift, paper_problem
    >>> problem = paper_problem(b=5.0)
    >>> data = problem.draw(2000, random_state=0)
    >>> model = MinMaxUplift(random_state=0).fit(**data)
    >>> X_new = problem.draw_joint(5000, random_state=1).X
    >>> bool(np.corrcoef(model.predict(X_new), problem.uplift(X_new))[0, 1] > 0.7)
    True
    """

    coef_: Array
    critic_coef_: Array
    basis_: Basis
    scaling_: Scaling
    singular_values_: Array

    def __init__(
        self,
        *,
        basis: str | Basis = "gaussian",
        n_centers: int | str = "auto",
        width: float | str = "median",
        ridge_f: float = 1e-2,
        ridge_g: float = 1e-2,
        standardize: bool = True,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
    ) -> None:
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.ridge_f = ridge_f
        self.ridge_g = ridge_g
        self.standardize = standardize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate the uplift from rows that carry one label each.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, finite numbers.
        y : array-like of shape (n,)
            Whichever label the row has; NaN for target rows.
        kind : array-like of shape (n,)
            "outcome", "treatment" or "target".
        population : array-like of shape (n,)
            Which of the two populations the row comes from.
        sample_weight : array-like of shape (n,), optional
            Non-negative row weights.

        Returns
        -------
        MinMaxUplift
            Itself.
        """
        ridge_f = check_positive("ridge_f", self.ridge_f)
        ridge_g = check_positive("ridge_g", self.ridge_g)
        self._check_basis_parameters()
        rows = self._check_fit_rows(X, y, kind, population, sample_weight)
        rng = check_random_state(self.random_state)
        scaling = (
            Scaling.of_rows(rows.X, rows.weight)
            if self.standardize
            else Scaling.identity(rows.X.shape[1])
        )
        sample = _some_rows(rows.X, self.n_centers, rng)
        basis = draw_basis(
            self.basis, scaling(sample), n_centers=self.n_centers, width=self.width, rng=rng
        )
        sums = accumulate(lambda chunk: basis(scaling(chunk)), basis.size, rows, n_jobs=self.n_jobs)
        solution = solve_minmax(assemble(sums), ridge_f=ridge_f, ridge_g=ridge_g)
        self.basis_ = basis
        self.scaling_ = scaling
        self.coef_ = rows.coding.scale * solution.alpha
        self.critic_coef_ = rows.coding.scale * solution.beta
        self.singular_values_ = solution.singular_values
        return self

    def predict(self, X: MatrixLike) -> Array:
        """Return the estimated uplift at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n,)
            Uplift in the units of the outcome; for a 0/1 outcome, probability points.
        """
        return self._combine(X, "coef_")

    def critic(self, X: MatrixLike) -> Array:
        """Return the critic g(x): where it is far from 0, the fit is still contradicted.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n,)
            In the units of the outcome.
        """
        return self._combine(X, "critic_coef_")

    def _combine(self, X: MatrixLike, coefficients: str) -> Array:
        check_is_fitted(self)
        matrix = self._check_features(X, reset=False)
        values: Array = self.basis_(self.scaling_(matrix)) @ getattr(self, coefficients)
        return values

    def _check_basis_parameters(self) -> None:
        if isinstance(self.basis, str):
            check_option("basis", self.basis, BASES)
        elif not isinstance(self.basis, Basis):
            raise InputError(
                f"basis must be a name, or a callable with size and n_features, got {self.basis!r}."
            )
        if isinstance(self.n_centers, str):
            check_option("n_centers", self.n_centers, ["auto"])
        else:
            check_count("n_centers", self.n_centers)
        if isinstance(self.width, str):
            check_option("width", self.width, ["median"])
        else:
            check_positive("width", self.width)


def _some_rows(X: Array, n_centers: int | str, rng: np.random.RandomState) -> Array:
    """Return enough rows to choose a basis from, so that the full matrix is never copied."""
    enough = max(10_000, 0 if isinstance(n_centers, str) else n_centers)
    if len(X) <= enough:
        return X
    chosen: Array = X[sample_without_replacement(len(X), enough, random_state=rng)]
    return chosen


def MinMaxGau(  # noqa: N802 - the paper's name
    *,
    width: float = 25.0,
    ridge_f: float = 1e-4,
    ridge_g: float = 1e-2,
    random_state: RandomState = None,
) -> MinMaxUplift:
    r"""Return `MinMaxUplift` with the settings of the paper's experiments.

    100 Gaussian centres among the training rows, width 25, features as they are.

    Parameters
    ----------
    width : float, default=25.0
        The paper's :math:`\sigma` in :math:`\exp(-\|x - c\|^2 / \sigma^2)`, units of the features.
        Read as :math:`\sigma^2 = 25` the width would be 5, and results differ much.
    ridge_f, ridge_g : float, default=1e-4 and 0.01
        Penalties, as in `MinMaxUplift`. The paper does not state its own; these do well on its
        synthetic data at every b from 1 to 5, which is knowledge a user does not have.
    random_state : int, RandomState or None, default=None
        Seed for the centres.

    Examples
    --------
    >>> MinMaxGau(width=5.0)
    MinMaxUplift(n_centers=100, ridge_f=0.0001, standardize=False, width=5.0)
    """
    return MinMaxUplift(
        basis="gaussian",
        n_centers=100,
        width=width,
        ridge_f=ridge_f,
        ridge_g=ridge_g,
        standardize=False,
        random_state=random_state,
    )
