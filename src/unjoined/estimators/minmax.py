"""The paper's estimator: a min-max problem with a closed-form solution."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray, MatrixLike, RandomState
from unjoined._validation import check_count, check_option, check_positive
from unjoined.basis import BASES, ScaledBasis, Scaling
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.minmax_chunks import ChunkFitting
from unjoined.estimators.minmax_plan import draw_spaces, is_centred, ridge_grids
from unjoined.estimators.minmax_problem import (
    BoundsReport,
    LossReport,
    MinMaxProblem,
    check_bounds,
    check_loss,
)
from unjoined.estimators.minmax_search import MinMaxSearch, Spaces, candidates, search
from unjoined.losses import SquaredLoss
from unjoined.metrics import IdentificationStrength
from unjoined.nuisance import (
    CROSS_FIT_ROWS,
    ShiftReport,
    center_rows,
    check_center,
    deal_folds,
    weigh_shift,
)
from unjoined.solve import MinMaxSolution
from unjoined.sums import MinMaxSystem, combine


class MinMaxUplift(ChunkFitting, UpliftEstimator):
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
    basis : {"smooth", "gaussian", "fourier", "linear"} or Basis, default="smooth"
        Functions that both :math:`f` and :math:`g` are combinations of; "smooth" is a constant,
        the features (many of them by their components, see Notes) and Gaussians. A given `Basis`
        is used as it is, on the standardised features if ``standardize`` is on.
    n_centers : int or "auto", default="auto"
        Number of Gaussian centres, drawn without replacement from the rows given to ``fit``,
        or of Fourier features; "auto" is 100, or as many as there are rows, and for the smooth
        basis :math:`10 n^{1/4}`, at most 200. Not used by the linear basis.
    width : float, "median" or "auto", default="auto"
        Length scale of the Gaussian, :math:`\exp(-\|x - c\|^2 / \text{width}^2)`, in units of
        the (standardised) features; "median" is the median distance between rows, "auto"
        chooses among a half, one and two of it.
    ridge_f, ridge_g : float or "auto", default="auto"
        Penalties on the coefficients of the uplift and of the critic. They have no units: the
        uplift found scales with the outcome. "auto" chooses by rows held out in turn, for the
        squared loss without bounds, whatever ``loss`` and ``bounds``.
    center : bool or scikit-learn regressor, default=True
        Whether what the features predict of the labels is subtracted first, which changes no
        expectation and takes away most of the noise; see the guide on centring. A regressor is
        used for outcomes and treatments alike.
    critic_basis, critic_width : as ``basis`` and ``width``, default=None
        The critic's functions, if they are to differ from the uplift's. A critic finer than the
        uplift is what makes robust losses robust. ``critic_width`` is a number or "median".
    loss : {"squared", "absolute", "huber", "pinball", "log-cosh"} or loss object, default="squared"
        How differences between the populations that the uplift does not explain are counted.
        "squared" has the closed form; others are solved by convex optimisation over the rows.
        See the guide on losses.
    bounds : None, "auto" or pair of float, default=None
        Range the uplift is kept in at every training row, outcome units, by a quadratic
        programme; "auto" takes what the outcome's range allows (-1 to 1 for a 0/1 outcome).
        Needs the squared loss.
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
        Threads for passes over rows, in predictions too; -1 uses all cores. Results do not
        depend on it.
    random_state : int, RandomState or None, default=None
        Seed for the centres and the folds; the same seed gives the same bits.

    Attributes
    ----------
    coef_, critic_coef_ : arrays of shape (p_f,) and (p_g,)
        Coefficients of the uplift and of the critic on their bases, outcome units.
    basis_, critic_basis_ : Basis
        Functions of the uplift and of the critic, on scaled features.
    scaling_ : Scaling
        What was subtracted from and divided out of the features.
    singular_values_ : array
        Of the whitened problem: how well each direction of :math:`f` is determined. Empty for
        losses other than the squared one.
    ridge_f_, ridge_g_ : float
        Penalties in use.
    search_ : MinMaxSearch or None
        What was tried for ridges and width, if any was "auto".
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
    weighted_risk : the score that compares widths.

    Notes
    -----
    Fitting costs :math:`O(n p^2 + p^3)` time for n rows and p basis functions, and
    :math:`O(p^2)` memory beside the rows; centring doubles it and the search over widths takes
    one pass for each. Four tables of 10,000 rows take one to two seconds on one core. Choosing
    ridges holds some 80 matrices of p x p numbers, 0.6 GB for 1,000 functions; from 2 GB on a
    warning says so first. In the smooth basis more than 100 features, if they are more than a
    twentieth of the rows (of 10,000 if there are more), enter by so many leading components.

    Rows are dealt into five folds, table by table. Centring takes the average over the two
    populations of the conditional means of the outcome, and of the treatment, at each row from
    models that did not see its fold. Ridges are compared by what the best critic on the rows of a
    fold can object to the uplift fitted without them, and the middle of all pairs within one
    standard error of the best is taken; widths are compared by `weighted_risk`.

    Above 100,000 rows, for the squared loss without bounds, scaling, centres and width are settled
    by 10,000 rows of each table and the means by 5,000, once; one pass over all rows does the rest.

    Treatment is recoded to -1/+1 and an outcome of two values to -1/+1 as in the paper, whichever
    coding they come in, so that the same ridge means the same penalty; predictions are converted
    back to the units of the outcome.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined import MinMaxUplift
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem(b=5.0)
    >>> data = problem.draw(2000, random_state=0)
    >>> model = MinMaxUplift(random_state=0).fit(**data)
    >>> X_new = problem.draw_joint(5000, random_state=1).X
    >>> bool(np.corrcoef(model.predict(X_new), problem.uplift(X_new))[0, 1] > 0.8)
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
    search_: MinMaxSearch | None
    ridge_f_: float
    ridge_g_: float

    def __init__(
        self,
        *,
        basis: str | Basis = "smooth",
        n_centers: int | str = "auto",
        width: float | str = "auto",
        ridge_f: float | str = "auto",
        ridge_g: float | str = "auto",
        center: Any = True,
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
        self.center = center
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

    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength | None:
        rng = check_random_state(self.random_state)
        rows, shift_report = self._weigh(rows, target, rng)
        sums_suffice = isinstance(check_loss(self.loss), SquaredLoss) and self.bounds is None
        if len(rows.X) > CROSS_FIT_ROWS and sums_suffice:
            strength = self._fit_in_one_pass(rows, rng)
            self.shift_ = shift_report
            return strength if self.shift is None else None  # weights are not the rows' own
        scaling = (
            Scaling.of_rows(rows.X, rows.share)
            if self.standardize
            else Scaling.identity(rows.X.shape[1])
        )
        tried = candidates(
            draw_spaces(self, scaling, rows, len(rows.X), rng),
            self.width if isinstance(self.basis, str) else "median",  # a given one stays as it is
            critic=self.critic_width is None and isinstance(self.critic_basis, str),
        )
        used, gap, fold = self._hold_out(rows, rng, n_widths=len(tried))
        spaces, system, report = self._choose(tried, used, gap, fold)
        ridge_f = float(self.ridge_f) if report is None else report.ridge_f
        ridge_g = float(self.ridge_g) if report is None else report.ridge_g
        problem = MinMaxProblem(
            system,
            rows,
            used.label,
            ScaledBasis(spaces.uplift, scaling),
            ScaledBasis(spaces.critic, scaling),
            ridge_f,
            ridge_g,
            self.n_jobs,
        )
        solution, bounds_report, loss_report = self._solve(problem)
        self.bounds_, self.loss_, self.shift_ = bounds_report, loss_report, shift_report
        self.basis_, self.critic_basis_ = spaces.uplift, spaces.critic
        self.ridge_f_, self.ridge_g_, self.search_ = ridge_f, ridge_g, report
        self.scaling_ = scaling
        self.coef_ = rows.coding.scale * solution.alpha
        self.critic_coef_ = rows.coding.scale * solution.beta
        self.singular_values_ = solution.singular_values
        return None

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

    def _hold_out(
        self, rows: LabelledRows, rng: np.random.RandomState, *, n_widths: int
    ) -> tuple[LabelledRows, Array | None, IntArray | None]:
        """Return rows labelled as asked, the policy gap at each and its fold, as far as needed."""
        centred = is_centred(self)
        if not (centred or n_widths > 1 or self._chooses_ridges):
            return rows, None, None
        fold = deal_folds(rows, rng)
        if not centred and n_widths == 1:
            return rows, None, fold
        model = None if isinstance(self.center, bool) else self.center
        robust = not isinstance(check_loss(self.loss), SquaredLoss)
        found = center_rows(rows, fold, rng, model=model, robust=robust, n_jobs=self.n_jobs)
        return (found.rows if centred else rows), (found.gap if n_widths > 1 else None), fold

    @property
    def _chooses_ridges(self) -> bool:
        return isinstance(self.ridge_f, str) or isinstance(self.ridge_g, str)

    def _choose(
        self, tried: list[Spaces], rows: LabelledRows, gap: Array | None, fold: IntArray | None
    ) -> tuple[Spaces, MinMaxSystem, MinMaxSearch | None]:
        """Settle what is "auto", and average A, b and C over all rows."""
        if fold is None or not (len(tried) > 1 or self._chooses_ridges):
            sums = tried[0].sums(rows, groups=None, n_jobs=self.n_jobs)
            return tried[0], tried[0].system(sums), None
        f, g = ridge_grids(self)
        return search(tried, rows, fold, gap, ridges_f=f, ridges_g=g, n_jobs=self.n_jobs)

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
        return combine(ScaledBasis(basis, self.scaling_), coef, matrix, n_jobs=self.n_jobs)

    def _check_parameters(self) -> None:
        for name, ridge in (("ridge_f", self.ridge_f), ("ridge_g", self.ridge_g)):
            if isinstance(ridge, str):
                check_option(name, ridge, ["auto"])
            else:
                check_positive(name, ridge)
        check_center(self.center)
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
        critic_width = "median" if self.critic_width is None else self.critic_width
        for name, width, words in (
            ("width", self.width, ["auto", "median"]),
            ("critic_width", critic_width, ["median"]),
        ):
            if isinstance(width, str):
                check_option(name, width, words)
            else:
                check_positive(name, width)
