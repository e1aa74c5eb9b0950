"""The paper's estimator: a min-max problem with a closed-form solution."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from unjoined._typing import Array, MatrixLike, RandomState
from unjoined._validation import check_count, check_option, check_positive
from unjoined.errors import InputError
from unjoined.estimators._base import UpliftEstimator
from unjoined.estimators._minmax_problem import (
    BoundsReport,
    LossReport,
    MinMaxProblem,
    check_bounds,
    check_loss,
)
from unjoined.features import BASES, Basis, Scaling, StackedBasis, draw_basis
from unjoined.moments import (
    LabelledRows,
    MinMaxSystem,
    ShiftReport,
    accumulate,
    assemble,
    weigh_shift,
)
from unjoined.solve import MinMaxSolution, SquaredLoss

__all__ = ["MinMaxUplift"]

PREDICT_ROWS = 65_536


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
    critic_basis, critic_width : as ``basis`` and ``width``, default=None
        The critic's functions, if they are to differ from the uplift's. A critic finer than the
        uplift is what makes robust losses robust.
    loss : {"squared", "absolute", "huber", "pinball", "log-cosh"} or loss object, default="squared"
        How differences between the populations that the uplift does not explain are counted.
        "squared" has the closed form; others are solved by convex optimisation over the rows.
        See the guide on losses.
    bounds : None, "auto" or pair of float, default=None
        Range the uplift is kept in at every training row, outcome units, by a quadratic
        programme; "auto" takes what the outcome's range allows (-1 to 1 for a 0/1 outcome).
        Needs the extra "convex" and the squared loss.
    clip : bool, default=False
        Whether predictions are clipped to the bounds, which hold at training rows only.
    shift : None, "classifier", "rulsif" or scikit-learn classifier, default=None
        How rows are weighted when the four tables describe different people: each table by the
        ratio of the target's density to its own, the target being the rows of kind "target",
        or all rows. Known ratios go into ``sample_weight`` instead.
    shift_clip : float or None, default=None
        Cap on those ratios, at least 1.
    standardize : bool, default=True
        Whether features are brought to mean 0 and variance 1 first.
    n_jobs : int or None, default=-1
        Threads for the pass over the rows; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for the centres; the same seed gives the same bits.

    Attributes
    ----------
    coef_ : array of shape (p_f,)
        Coefficients of the uplift on its basis, outcome units.
    critic_coef_ : array of shape (p_g,)
        Coefficients of the critic, outcome units.
    basis_, critic_basis_ : Basis
        Functions of the uplift and of the critic, on scaled features.
    scaling_ : Scaling
        What was subtracted from and divided out of the features.
    singular_values_ : array
        Of the whitened problem: how well each direction of :math:`f` is determined. Empty for
        losses other than the squared one.
    bounds_ : BoundsReport or None
        Range in use, rounds of the quadratic programme, rows that entered and that bind.
    loss_ : LossReport or None
        Duality gap and rounds, for losses other than the squared one.
    shift_ : ShiftReport or None
        Effective size, largest weight and clipped rows of every table, if ``shift`` was on.
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
    critic_basis_: Basis
    scaling_: Scaling
    singular_values_: Array
    bounds_: BoundsReport | None
    loss_: LossReport | None
    shift_: ShiftReport | None

    def __init__(
        self,
        *,
        basis: str | Basis = "gaussian",
        n_centers: int | str = "auto",
        width: float | str = "median",
        ridge_f: float = 1e-2,
        ridge_g: float = 1e-2,
        critic_basis: str | Basis | None = None,
        critic_width: float | str | None = None,
        loss: Any = "squared",
        bounds: Any = None,
        clip: bool = False,
        shift: Any = None,
        shift_clip: float | None = None,
        standardize: bool = True,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
    ) -> None:
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.ridge_f = ridge_f
        self.ridge_g = ridge_g
        self.critic_basis = critic_basis
        self.critic_width = critic_width
        self.loss = loss
        self.bounds = bounds
        self.clip = clip
        self.shift = shift
        self.shift_clip = shift_clip
        self.standardize = standardize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        rows, shift_report = self._weigh(rows, target, rng)
        scaling = (
            Scaling.of_rows(rows.X, rows.weight)
            if self.standardize
            else Scaling.identity(rows.X.shape[1])
        )
        basis, critic_basis = self._draw_bases(scaling, rows.X, rng)
        problem = MinMaxProblem(
            self._average(rows, scaling, basis, critic_basis),
            rows,
            lambda chunk: basis(scaling(chunk)),
            lambda chunk: critic_basis(scaling(chunk)),
            float(self.ridge_f),
            float(self.ridge_g),
            self.n_jobs,
        )
        solution, bounds_report, loss_report = self._solve(problem)
        self.bounds_, self.loss_, self.shift_ = bounds_report, loss_report, shift_report
        self.basis_, self.critic_basis_ = basis, critic_basis
        self.scaling_ = scaling
        self.coef_ = rows.coding.scale * solution.alpha
        self.critic_coef_ = rows.coding.scale * solution.beta
        self.singular_values_ = solution.singular_values

    def _weigh(
        self,
        rows: LabelledRows,
        target: tuple[Array, Array] | None,
        rng: np.random.RandomState,
    ) -> tuple[LabelledRows, ShiftReport | None]:
        """Weight every cell to the target's distribution of features, if asked."""
        if self.shift is None:
            return rows, None
        X, weight = (None, None) if target is None else target
        return weigh_shift(
            rows,
            X,
            self.shift,
            clip=self.shift_clip,
            rng=rng,
            target_weight=weight,
            stacklevel=5,
        )

    def _draw_bases(
        self, scaling: Scaling, X: Array, rng: np.random.RandomState
    ) -> tuple[Basis, Basis]:
        """Return the basis of the uplift and that of the critic, usually the same object."""
        sample = scaling(_some_rows(X, self.n_centers, rng))
        basis = draw_basis(self.basis, sample, n_centers=self.n_centers, width=self.width, rng=rng)
        if self.critic_basis is None:
            return basis, basis
        width = self.width if self.critic_width is None else self.critic_width
        critic_basis = draw_basis(
            self.critic_basis, sample, n_centers=self.n_centers, width=width, rng=rng
        )
        return basis, critic_basis

    def _average(
        self, rows: LabelledRows, scaling: Scaling, basis: Basis, critic_basis: Basis
    ) -> MinMaxSystem:
        """Pass over the rows once, for A, b and C."""
        same = critic_basis is basis
        both = basis if same else StackedBasis(basis, critic_basis)
        sums = accumulate(lambda chunk: both(scaling(chunk)), both.size, rows, n_jobs=self.n_jobs)
        system = assemble(sums)
        return system if same else system.split(basis.size)

    def _solve(
        self, problem: MinMaxProblem
    ) -> tuple[MinMaxSolution, BoundsReport | None, LossReport | None]:
        """Call the solver that the loss and the bounds need."""
        loss = check_loss(self.loss)
        if not isinstance(loss, SquaredLoss):
            solution, loss_report = problem.with_loss(loss, is_named=isinstance(self.loss, str))
            return solution, None, loss_report
        bounds = check_bounds(self.bounds, problem.rows)
        if bounds is not None:
            return *problem.bounded(*bounds), None
        return problem.closed_form(), None, None

    def _predict_rows(self, matrix: Array) -> Array:
        uplift = self._combine(matrix, self.basis_, self.coef_)
        if self.clip and self.bounds_ is not None:
            return np.clip(uplift, self.bounds_.lower, self.bounds_.upper)
        return uplift

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
        matrix = self._check_features(X, reset=False)
        return self._combine(matrix, self.critic_basis_, self.critic_coef_)

    def _combine(self, matrix: Array, basis: Basis, coef: Array) -> Array:
        # Chunk by chunk, so that basis values of all rows are never in memory together.
        starts = range(0, len(matrix), PREDICT_ROWS)
        chunks = (matrix[start : start + PREDICT_ROWS] for start in starts)
        return np.concatenate([basis(self.scaling_(chunk)) @ coef for chunk in chunks])

    def _check_parameters(self) -> None:
        check_positive("ridge_f", self.ridge_f)
        check_positive("ridge_g", self.ridge_g)
        self._check_basis_parameters()
        loss = check_loss(self.loss)
        if self.bounds is not None and not isinstance(loss, SquaredLoss):
            raise InputError(
                "bounds are enforced with the squared loss only; leave bounds out, or use "
                "loss='squared'."
            )
        if self.clip and self.bounds is None:
            raise InputError("clip=True needs bounds to clip to: pass bounds='auto' or a pair.")

    def _check_basis_parameters(self) -> None:
        for name, basis in (("basis", self.basis), ("critic_basis", self.critic_basis or "linear")):
            if isinstance(basis, str):
                check_option(name, basis, BASES)
            elif not isinstance(basis, Basis):
                raise InputError(
                    f"{name} must be a name, or a callable with size and n_features, got {basis!r}."
                )
        if isinstance(self.n_centers, str):
            check_option("n_centers", self.n_centers, ["auto"])
        else:
            check_count("n_centers", self.n_centers)
        for name, width in (("width", self.width), ("critic_width", self.critic_width or "median")):
            if isinstance(width, str):
                check_option(name, width, ["median"])
            else:
                check_positive(name, width)


def _some_rows(X: Array, n_centers: int | str, rng: np.random.RandomState) -> Array:
    """Return enough rows to choose a basis from, so that the full matrix is never copied."""
    enough = max(10_000, 0 if isinstance(n_centers, str) else n_centers)
    if len(X) <= enough:
        return X
    chosen: Array = X[sample_without_replacement(len(X), enough, random_state=rng)]
    return chosen
