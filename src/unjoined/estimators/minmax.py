"""The paper's estimator: a min-max problem with a closed-form solution."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_count, check_positive
from unjoined.data.dask import DaskSource
from unjoined.data.labels import SeparateLabels, as_data
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    basis_or,
    check_flag,
    check_verbose,
    optional,
    word_or,
)
from unjoined.estimators.minmax_problem import (
    check_bounds,
    check_loss,
    solve_in_bounds,
    solve_with_loss,
)
from unjoined.evaluate.estimate import widening
from unjoined.evaluate.scores import weighted_values
from unjoined.evaluate.strength import (
    IdentificationStrength,
    average_effect_of_sums,
    strength_of_sums,
)
from unjoined.federated import plan_digest, refuse_twins
from unjoined.model.accumulate import accumulate, combine
from unjoined.model.basis import (
    ScaledBasis,
    Scaling,
    has_constant,
    length_scale,
    rescaled,
)
from unjoined.model.census import take_sample
from unjoined.model.centring import (
    CROSS_FIT_ROWS,
    N_FOLDS,
    Means,
    center_sums,
    check_center,
    cross_fit_means,
    deal_folds,
    subtract_means,
    winsorized,
)
from unjoined.model.contrasts import contrasts_of, in_two_groups
from unjoined.model.draw import BASES, auto_centers, draw_basis
from unjoined.model.losses import LOSSES, SquaredLoss
from unjoined.model.minmax import (
    RIDGES_F,
    RIDGES_G,
    MinMaxSystem,
    assemble,
    choose_ridges,
    score_ridges,
    solve_minmax,
)
from unjoined.model.moments import MomentSums, PolicySums
from unjoined.model.passes import sum_source
from unjoined.model.plan import PlannedSums, SumsPlan
from unjoined.model.shift import weigh_shift

SAMPLE_ROWS = 10_000  # of each cell, which settle the plan where there are many
WIDTH_FACTORS = (0.5, 1.0, 2.0)  # of the median distance between rows
BASIS_ROWS = 10_000  # that a basis is chosen from, so that not all rows are ever copied
# Squares of the number of functions that are in memory while ridges are chosen: sums of every
# table and fold, the averages of each fold and of all others, factors. Counted by peak memory.
MATRICES, MATRICES_PER_THREAD = 62, 15
MUCH_MEMORY = 2.0  # gigabytes


@dataclass(frozen=True, slots=True)
class MinMaxSearch:
    """What was tried for ridges and width, and what was chosen.

    Within a width, ridges are compared by the fixed-critic score: what the best critic on the
    held-out rows can still object to. Widths are compared by the weighted risk of held-out
    predictions, as critics of different widths are no common judge. Both in squared outcome
    units; lower is better, only differences mean something.
    """

    widths: Array  # (n_w,) units of the scaled features; NaN for a basis without width
    ridges_f: Array  # (n_f,)
    ridges_g: Array  # (n_g,)
    score: Array  # (n_w, n_g, n_f) mean over folds
    standard_error: Array  # (n_w, n_g, n_f) of the difference to the width's best pair
    risk: Array  # (n_w,) of each width's chosen pair; NaN if there is one width only
    risk_standard_error: Array  # (n_w,) of the difference to the chosen width's
    chosen: tuple[int, int, int]  # positions in widths, ridges_g and ridges_f

    @property
    def width(self) -> float:
        """The width chosen."""
        return float(self.widths[self.chosen[0]])

    @property
    def ridge_g(self) -> float:
        """The critic's ridge chosen."""
        return float(self.ridges_g[self.chosen[1]])

    @property
    def ridge_f(self) -> float:
        """The uplift's ridge chosen."""
        return float(self.ridges_f[self.chosen[2]])

    def with_ridges_of(self, final: MinMaxSearch) -> MinMaxSearch:
        """Return this choice of width with the ridges that more rows chose for it."""
        best = self.chosen[0]
        score = self.score.copy()
        error = self.standard_error.copy()
        score[best], error[best] = final.score[0], final.standard_error[0]
        return replace(
            self, score=score, standard_error=error, chosen=(best, *final.chosen[1:])
        )


class MinMaxUplift(UpliftEstimator):
    r"""Uplift from separate labels by the paper's closed-form min-max estimator.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` from rows that carry a treatment label or
    an outcome label, never both, from two populations or more that were treated by different
    policies.
    No policy is modelled and no estimate is divided by another: :math:`f` is sought that leaves a
    critic :math:`g` nothing to object to,

    .. math::

        \min_f \max_g \; 2 E[w f g] - 4 E[z g] - E[g^2] + \lambda_f \|f\|^2 - \lambda_g \|g\|^2,

    with :math:`w = \pm t` and :math:`z = \pm y`, the sign telling the populations apart.

    Parameters
    ----------
    basis : {"smooth", "means", "gaussian", "fourier", "linear"} or Basis, default="smooth"
        Functions that both :math:`f` and :math:`g` are combinations of; "smooth" is a constant,
        the features (many of them by their components, see Notes) and Gaussians, whose centres
        are rows of the fit: the model, saved or exported, then holds these people's features.
        "means" is the same with centres that are means of 20 rows or more. A given `Basis` is
        used as it is, on the standardised features if ``standardize`` is on.
    n_centers : int or "auto", default="auto"
        Number of Gaussian centres, drawn without replacement from the rows given to ``fit``
        unless ``basis="means"``, or of Fourier features; "auto" is 100, or as many as there are
        rows, and for "smooth" and "means" :math:`10 n^{1/4}`, at most 200. Not used by the linear
        basis.
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
        expectation and takes away most of the noise; see the guide. A regressor is
        used for outcomes and treatments alike.
    critic_basis : as ``basis``, default=None
        The critic's functions, if they are to differ from the uplift's; ``width`` is theirs too.
        A critic finer than the uplift is what makes robust losses robust.
    loss : {"squared", "absolute", "huber", "pinball"} or loss object, default="squared"
        How differences between the populations that the uplift does not explain are counted.
        "squared" has the closed form; others are solved by convex optimisation over the rows.
        See the guide on the min-max estimator.
    bounds : None, "auto" or pair of float, default=None
        Range the uplift is kept in at every training row, outcome units, by a quadratic
        programme; "auto" takes what the outcome's range allows (-1 to 1 for a 0/1 outcome).
        Needs the squared loss.
    shift : None, "classifier" or scikit-learn classifier, default=None
        How rows are weighted when the four tables describe different people: each table by the
        ratio of the target's density to its own, the target being the rows without a label,
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
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told: 1 shows the steps of a fit,
        2 how far each of them is.

    Attributes
    ----------
    coef_, critic_coef_ : arrays of shape (p_f,) and (p_g,)
        Coefficients of the uplift and of the critic on their bases, outcome units.
    basis_, critic_basis_, scaling_ : Basis, Basis and Scaling
        Functions of the uplift and of the critic, and what features are scaled by first.
    group_coef_ : array of shape (groups, p) or None
        Coefficients without each group of rows, behind `predict_interval`; None unless the rows
        choose a ridge, and for bounds and other losses.
    average_effect_ : Estimate
        Average uplift of the people for whom policies differ enough to tell, in units of the
        outcome, with Fieller's interval. From chunks and sums it comes from the sums.
    contrast_ : array of shape (number of populations,)
        If there are more than two: how each counts in the contrast that tells the most. Further
        contrasts in which policies clearly differ have critics of their own, for the squared loss
        without bounds.
    singular_values_ : array
        Of the whitened problem: how well each direction of :math:`f` is determined. Empty for
        losses other than the squared one.
    ridge_f_, ridge_g_, search_ : float, float, and MinMaxSearch or None
        Penalties in use, and what was tried for ridges and width if any was "auto".
    bounds_ : BoundsReport or None
        Range in use, rounds of the quadratic programme, rows that entered and that bind.
    loss_ : LossReport or None
        Duality gap and rounds, for losses other than the squared one.
    shift_ : ShiftReport or None
        Effective size, largest weight and clipped rows of every table, if ``shift`` was on.
    identification_ : IdentificationStrength
        How different the two policies are.
    populations_ : list
        The populations' names; of two the first has the positive sign.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    MinMaxGau : this estimator with the settings of the paper.
    unjoined.evaluate.weighted_risk : the score that compares widths.

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

    Above 100,000 rows, scaling, centres, width and means are settled by 10,000 rows of each table;
    one pass over all rows does the rest.
    Treatments and outcomes of two values are recoded to -1/+1, so that the same ridge means the
    same penalty; predictions are in the units of the outcome.

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

    _parameters: ClassVar[dict[str, Check]] = {
        "basis": basis_or(*BASES),
        "n_centers": word_or(check_count, "auto"),
        "width": word_or(check_positive, "auto", "median"),
        "ridge_f": word_or(check_positive, "auto"),
        "ridge_g": word_or(check_positive, "auto"),
        "center": lambda name, value: check_center(value),
        "critic_basis": optional(basis_or(*BASES)),
        "loss": word_or(check_loss, *LOSSES),
        "bounds": optional(check_bounds),
        "standardize": check_flag,
        "verbose": check_verbose,
    }

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
        loss: Any = "squared",
        bounds: Any = None,
        shift: Any = None,
        shift_clip: float | None = None,
        standardize: bool = True,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.ridge_f = ridge_f
        self.ridge_g = ridge_g
        self.center = center
        self.critic_basis = critic_basis
        self.loss = loss
        self.bounds = bounds
        self.shift = shift
        self.shift_clip = shift_clip
        self.standardize = standardize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit_stream(
        self, data: SeparateLabels, checkpoint: str | os.PathLike[str] | None
    ) -> None:
        """Fit in two passes: a sample fixes the plan, then sums are added up and solved."""
        sums, search = self._collect(data, checkpoint, stacklevel=4)
        self._conclude_sums(sums, search, stacklevel=4)

    def collect_sums(
        self, data: SeparateLabels, *, checkpoint: str | os.PathLike[str] | None = None
    ) -> PlannedSums:
        """Return the sums that ``fit`` would solve from if it streamed the rows, without solving.

        They are for `write_sums` and ``fit_moments``. The checkpoint is left where it is.
        """
        return self._collect(as_data(data), checkpoint, stacklevel=3)[0]

    def fit_moments(self, sums: PlannedSums) -> Self:
        """Estimate the uplift from sums alone.

        Parameters
        ----------
        sums : PlannedSums
            Of all cells, from ``collect_sums``, or read from files and merged. Their basis
            and scaling are used, whatever the parameters of this model; ridges are those of
            this model, and "auto" chooses them by the groups. Labels that were not centred when
            they were added up are now, unless ``center=False``: outcomes by what the functions
            of the sums predict of them, treatments by a constant. That takes functions that
            begin with a constant and the features, as those of `fourier_plan` do.

        Returns
        -------
        MinMaxUplift
            Itself.

        Raises
        ------
        InputError
            A cell is missing, one table stands for two populations, or a parameter needs rows:
            ``loss``, ``bounds``, ``shift``, or a regressor as ``center``.

        Notes
        -----
        Costs O(p^3), whatever the number of rows.
        """
        self._check_parameters()
        self._check_sums_suffice()
        if not (sums.plan.centring or isinstance(self.center, bool)):
            raise InputError(
                "a regressor as center needs rows, and sums are not enough. Pass center=True, "
                "which uses the functions of the sums, or center=False."
            )
        refuse_twins(sums)
        self._conclude_sums(sums, None, stacklevel=3)
        return self

    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength | None:
        rng = check_random_state(self.random_state)
        shift = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            how = {"clip": self.shift_clip, "rng": rng, "target_weight": weight}
            rows, shift = weigh_shift(rows, X, self.shift, **how, stacklevel=4)
        many = len(rows.X) > CROSS_FIT_ROWS
        several = len(rows.names) > 2
        whole: tuple[LabelledRows, Any] = rows, slice(None)
        sample, at = take_sample(rows, SAMPLE_ROWS, rng) if many else whole
        two, used = as_two_groups(sample, self.n_jobs)
        tried = self._draw_plans(
            two, len(rows.X), rng, self._feature_names, stacklevel=4
        )
        group: Any = None
        if self._is_centred or len(tried) > 1 or self._chooses_ridges:
            group = deal_folds(rows, rng)
        fold: Any = None if group is None else group[at][used]
        seen = two if self._is_squared else winsorized(two)
        plan, search, sums, coef = self._settle(tried, two, fold, rng, seen)
        n_groups = 1 if group is None else int(group.max()) + 1
        plan = replace(plan, populations=tuple(rows.names), n_groups=n_groups)
        if many or several:  # the sums that chose the width are not those of all rows
            planned = plan.sums(rows, group, n_jobs=self.n_jobs)
            coef = None
        else:
            sums = (
                plan.moments(rows, group, n_jobs=self.n_jobs) if sums is None else sums
            )
            planned = PlannedSums(plan, sums, PolicySums.zero(plan.n_features))
        self._fit_sums(planned, search, coef, rows=rows, group=group)
        self.shift_ = shift
        if (
            not many or several or shift is not None
        ):  # policies were not told by the rows' weights
            return None
        return strength_of_sums(planned.policy, plan.populations)

    def _collect(
        self,
        data: SeparateLabels,
        checkpoint: str | os.PathLike[str] | None,
        *,
        stacklevel: int,
    ) -> tuple[PlannedSums, MinMaxSearch | None]:
        """Settle the plan in a first pass over the rows, and add up in a second."""
        self._check_parameters()
        self._check_sums_suffice()
        if checkpoint is not None and isinstance(data.source, DaskSource):
            raise InputError(
                "a checkpoint is for rows that are read in order; Dask computes lost "
                "partitions again by itself. Leave checkpoint out."
            )
        rows, census = self._look_through(data, SAMPLE_ROWS)
        census.check_complete()
        rng = check_random_state(self.random_state)
        sample, group = census.sample(N_FOLDS)
        two, used = as_two_groups(sample, self.n_jobs)
        group = group[used]
        names = census.feature_names
        tried = self._draw_plans(
            two, census.n_rows, rng, names, stacklevel=stacklevel + 1
        )
        if self._is_centred or len(tried) > 1:
            check_groups(two, group)
        plan, search, _, _ = self._settle(tried, two, group, rng)
        plan = replace(plan, populations=census.names)
        question = b"" if checkpoint is None else plan_digest(plan).encode()
        sums = sum_source(
            rows, plan, census, checkpoint, self.n_jobs, question=question
        )
        return sums, search

    def _fit_sums(
        self,
        planned: PlannedSums,
        search: MinMaxSearch | None,
        coef: Array | None = None,
        *,
        rows: LabelledRows | None = None,
        group: IntArray | None = None,
    ) -> None:
        """Choose ridges by sums of all rows, unless ``coef`` says that they are chosen, and solve.

        Bounds, and losses other than the square, need the ``rows`` behind the sums.
        """
        self._forget()
        planned.check_complete(groups=self._chooses_ridges)
        contrasts, sums, plan = planned.contrasts, planned.sums, planned.plan
        if self._is_centred and not plan.centring and has_constant(plan.basis):
            sums = center_sums(sums, plan.basis, contrasts)
        if coef is None:
            search, coef = self._choose_ridges(plan, sums, contrasts, search)
        f, g = (
            (self.ridge_f, self.ridge_g)
            if search is None
            else (search.ridge_f, search.ridge_g)
        )
        ridges = {"ridge_f": float(f), "ridge_g": float(g)}
        system = average(plan, sums, contrasts)
        self.bounds_ = None
        self.loss_ = None
        if rows is None or self._is_closed:
            solution = solve_minmax(system, **ridges)
        elif self._is_squared:
            solution, self.bounds_ = solve_in_bounds(
                plan, system, rows, self.bounds, ridges, self.n_jobs
            )
        else:
            label = rows.label
            if plan.centring:
                label, _ = subtract_means(
                    rows, plan.centring, group, n_jobs=self.n_jobs
                )
            solution, self.loss_ = solve_with_loss(
                plan, system, rows, label, self.loss, ridges, self.n_jobs
            )
        if contrasts is not None:
            self.contrast_ = contrasts[0]
        scale, self.shift_ = plan.coding.scale, None
        self.basis_, self.critic_basis_, self.scaling_ = (
            plan.basis,
            plan.critic,
            plan.scaling,
        )
        self.ridge_f_ = ridges["ridge_f"]
        self.ridge_g_ = ridges["ridge_g"]
        self.search_ = search
        self.coef_ = scale * solution.alpha
        self.critic_coef_ = scale * solution.beta
        self.group_coef_ = (
            scale * coef if coef is not None and self._is_closed else None
        )
        self.singular_values_ = solution.singular_values

    def _conclude_sums(
        self, sums: PlannedSums, search: MinMaxSearch | None, *, stacklevel: int
    ) -> None:
        """Solve by sums alone, and become fitted."""
        self._fit_sums(sums, search)
        # Sums may be of other columns than those of an earlier fit.
        known = self._feature_names == sums.plan.feature_names
        encoder = getattr(self, "encoder_", None) if known else None
        self._set_features(sums.plan.n_features, sums.plan.feature_names, encoder)
        self.average_effect_ = average_effect_of_sums(sums)
        strength = strength_of_sums(sums.policy, sums.plan.populations)
        self._conclude(sums, strength, stacklevel=stacklevel + 1)

    def _row_errors(self, matrix: Array) -> Array:
        groups = self.group_coef_
        if groups is None:
            return super()._row_errors(matrix)
        G = len(groups)
        each = np.array([self._combine(matrix, self.basis_, c) for c in groups])
        return np.asarray(widening(G) * np.sqrt(G - 1) * each.std(axis=0))

    @property
    def _is_centred(self) -> bool:
        """Whether what features predict of the labels is subtracted."""
        return not isinstance(self.center, bool) or self.center

    @property
    def _chooses_ridges(self) -> bool:
        """Whether rows choose one of the ridges."""
        return isinstance(self.ridge_f, str) or isinstance(self.ridge_g, str)

    def _draw_plans(
        self,
        rows: LabelledRows,
        n_rows: int,
        rng: np.random.RandomState,
        feature_names: tuple[str, ...] | None,
        *,
        stacklevel: int,
    ) -> list[SumsPlan]:
        """Draw the functions from some of ``n_rows`` rows: one plan for each width to be tried."""
        scaling = Scaling.identity(rows.X.shape[1])
        if self.standardize:
            scaling = Scaling.of_rows(rows.X, rows.share)
        enough = int(max([BASIS_ROWS, *_numbers(self.n_centers)]))
        at: Any = slice(None)
        if len(rows.X) > enough:
            at = sample_without_replacement(len(rows.X), enough, random_state=rng)
        sample = scaling(rows.X[at])
        weight = rows.relative[at]

        def draw(basis: str | Basis, width: float | str) -> Basis:
            smooth = (
                isinstance(basis, str)
                and basis in ("smooth", "means")
                and self.n_centers == "auto"
            )
            n = min(auto_centers(n_rows), len(sample)) if smooth else self.n_centers
            return draw_basis(
                basis, sample, n_centers=n, width=width, rng=rng, weight=weight
            )

        basis = critic = draw(self.basis, self.width)
        if self.critic_basis is not None:
            critic = draw(self.critic_basis, self.width)
        names = tuple(rows.names)
        plan = SumsPlan(
            feature_names, names, rows.coding, scaling, basis, critic, (), N_FOLDS
        )
        warn_if_large(plan.size, n_threads(self.n_jobs), stacklevel=stacklevel + 1)
        # A basis that was given stays as it is.
        if (
            self.width != "auto"
            or not isinstance(self.basis, str)
            or np.isnan(length_scale(basis))
        ):
            return [plan]
        both = isinstance(self.critic_basis, str)
        return [_widened(plan, factor, critic=both) for factor in WIDTH_FACTORS]

    def _settle(
        self,
        tried: Sequence[SumsPlan],
        rows: LabelledRows,
        fold: IntArray | None,
        rng: np.random.RandomState,
        seen: LabelledRows | None = None,
    ) -> tuple[SumsPlan, MinMaxSearch | None, MomentSums | None, Array | None]:
        """Choose the width, and fit what is subtracted from labels, to ``seen`` if it is given.

        Return the plan and, if a width was chosen, how, the sums by which, and the coefficients
        without each fold.
        """
        plan = tried[len(tried) // 2]
        if fold is None or not (self._is_centred or len(tried) > 1):
            return plan, None, None, None
        model = None if isinstance(self.center, bool) else self.center
        means: list[Means] = cross_fit_means(
            rows if seen is None else seen, fold, rng, model=model, n_jobs=self.n_jobs
        )
        centring = tuple(means) if self._is_centred else ()
        if len(tried) == 1:
            return replace(plan, centring=centring), None, None, None
        label, gap = subtract_means(rows, means, fold, n_jobs=self.n_jobs)
        used = replace(rows, label=label) if self._is_centred else rows
        best, search, sums, coef = self._choose_width(tried, used, fold, gap)
        return replace(tried[best], centring=centring), search, sums, coef

    def _choose_ridges(
        self,
        plan: SumsPlan,
        sums: MomentSums,
        contrasts: Array | None,
        search: MinMaxSearch | None,
    ) -> tuple[MinMaxSearch | None, Array | None]:
        """Choose ridges by the sums of all rows, if asked, in the place of a sample's choice.

        Also return the coefficients without each group of rows.
        """
        if not self._chooses_ridges:
            return search, None
        final, coef = self._search_ridges(plan, sums, contrasts)
        return (final if search is None else search.with_ridges_of(final)), coef

    def _search_ridges(
        self, plan: SumsPlan, sums: MomentSums, contrasts: Array | None = None
    ) -> tuple[MinMaxSearch, Array]:
        """Choose ridges by leaving out groups of the sums."""
        f = np.array(_numbers(self.ridge_f) or RIDGES_F)
        g = np.array(_numbers(self.ridge_g) or RIDGES_G)
        C = average(plan, sums, contrasts).C
        # Of each fold the averages over the other rows and over its own.
        folds = [
            (
                average(plan, sums.without(j), contrasts),
                average(plan, sums.of_group(j), contrasts),
            )
            for j in sums.groups
        ]
        score, alpha = score_ridges(
            folds, C, ridges_f=f, ridges_g=g, n_jobs=self.n_jobs
        )
        scale = plan.coding.scale**2
        mean, error, chosen = choose_ridges(score)
        search = MinMaxSearch(
            widths=np.array([length_scale(plan.basis)]),
            ridges_f=f,
            ridges_g=g,
            score=scale * mean[None],
            standard_error=scale * error[None],
            risk=np.array([np.nan]),
            risk_standard_error=np.array([np.nan]),
            chosen=(0, *chosen),
        )
        return search, alpha[:, *chosen]

    def _choose_width(
        self, tried: Sequence[SumsPlan], rows: LabelledRows, fold: IntArray, gap: Array
    ) -> tuple[int, MinMaxSearch, MomentSums, Array]:
        """Choose among plans of different widths by the weighted risk of held-out predictions.

        ``rows`` have labels as they enter the sums; ``gap`` is the policy gap at every row from
        models that did not see it. One pass per width over the rows, and one for predictions.
        """
        sums, searches, coefs, risks = [], [], [], []
        for plan in tried:
            sums.append(
                accumulate(
                    plan.values, plan.size, rows, groups=fold, n_jobs=self.n_jobs
                )
            )
            search, coef = self._search_ridges(plan, sums[-1])
            searches.append(search)
            coefs.append(coef)
            risks.append(_risks(plan, rows, fold, gap, coef, self.n_jobs))
        risk = tried[0].coding.scale ** 2 * np.array(risks)  # (n_w, n_folds)
        best = int(np.argmin(risk.mean(axis=1)))
        report = replace(
            searches[0],
            widths=np.concatenate([one.widths for one in searches]),
            score=np.concatenate([one.score for one in searches]),
            standard_error=np.concatenate([one.standard_error for one in searches]),
            risk=risk.mean(axis=1),
            risk_standard_error=(risk - risk[best]).std(axis=1, ddof=1)
            / np.sqrt(risk.shape[1]),
            chosen=(best, *searches[best].chosen[1:]),
        )
        return best, report, sums[best], coefs[best]

    @property
    def _is_squared(self) -> bool:
        return isinstance(self.loss, SquaredLoss) or self.loss == "squared"

    @property
    def _is_closed(self) -> bool:
        """Whether the solution has a closed form, so that sums suffice."""
        return self._is_squared and self.bounds is None

    @property
    def _as_two_groups(self) -> bool:
        return not self._is_closed

    def _predict_rows(self, matrix: Array) -> Array:
        return self._combine(matrix, self.basis_, self.coef_)

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
        return combine(
            ScaledBasis(basis, self.scaling_), coef, matrix, n_jobs=self.n_jobs
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bounds is not None and not self._is_squared:
            raise InputError(
                "bounds are enforced with the squared loss only; leave bounds out, or use "
                "loss='squared'."
            )

    def _check_sums_suffice(self) -> None:
        """Refuse parameters that need all rows in memory."""
        for name in ("bounds", "shift"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"{name} needs all rows in memory, and sums are not enough. Leave {name} out, "
                    "or use fit."
                )
        if not self._is_squared:
            raise InputError(
                "losses other than 'squared' need all rows in memory, and sums are not enough. Use "
                "loss='squared', or fit."
            )


def _numbers(value: float | str) -> list[float]:
    """Return a number as a list, which is empty for a word such as "auto"."""
    return [] if isinstance(value, str) else [float(value)]


def _widened(plan: SumsPlan, factor: float, *, critic: bool) -> SumsPlan:
    """Return the plan with the same centres and another width, of the critic too if asked."""
    basis = rescaled(plan.basis, factor)
    if plan.critic is plan.basis:
        return replace(plan, basis=basis, critic=basis)
    return replace(
        plan,
        basis=basis,
        critic=rescaled(plan.critic, factor) if critic else plan.critic,
    )


def as_two_groups(rows: LabelledRows, n_jobs: int | None) -> tuple[LabelledRows, Any]:
    """Return rows of several populations as those of two groups, and which rows these are."""
    if len(rows.names) == 2:
        return rows, slice(None)
    return in_two_groups(rows, contrasts_of(rows, n_jobs=n_jobs)[0])


def check_groups(rows: LabelledRows, group: IntArray) -> None:
    """Refuse samples so small that a group has no rows of a table."""
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(rows.names):
            at = rows.at(kind, k)
            if len(np.unique(group[at])) < N_FOLDS:
                raise InputError(
                    f"centring and the choice of width hold out {N_FOLDS} groups of rows in turn, "
                    f"but the {len(at)} {kind} rows of population {name!r} do not fill them. "
                    "Tables as small as this are fitted with fit; or pass center=False and a "
                    "number for width."
                )


def warn_if_large(size: int, threads: int, *, stacklevel: int) -> None:
    """Warn, before anything is computed, if the sums of all folds will fill much memory."""
    gigabytes = (MATRICES + MATRICES_PER_THREAD * threads) * 8.0 * size**2 / 1e9
    if gigabytes > MUCH_MEMORY:
        warnings.warn(
            f"this fit multiplies {size} functions with each other and will take about "
            f"{gigabytes:.1f} GB of memory, and time that grows with the cube of their number. "
            "Lower n_centers, pass fewer features, or take basis='smooth', which needs at most one "
            "linear function for twenty rows.",
            UnjoinedWarning,
            stacklevel=stacklevel,
        )


def average(
    plan: SumsPlan, sums: MomentSums, contrasts: Array | None = None
) -> MinMaxSystem:
    """Average the sums to A, b and C."""
    p_f = None if plan.critic is plan.basis else plan.basis.size
    return assemble(sums, contrasts, p_f)


def _risks(
    plan: SumsPlan,
    rows: LabelledRows,
    fold: IntArray,
    gap: Array,
    alphas: Array,
    n_jobs: int | None,
) -> Array:
    """Return the weighted risk of each fold's predictions, from coefficients without it.

    R(f) = E[w nu f^2] - 4 E[z nu f], as `unjoined.evaluate.weighted_risk` has it, nu being the gap.
    """
    values = ScaledBasis(plan.basis, plan.scaling)
    risks = []
    for j, alpha in enumerate(alphas):
        at = np.flatnonzero(fold == j)
        held_out = rows.take(at)
        f = combine(values, alpha, held_out.X, n_jobs=n_jobs)
        risks.append(
            held_out.share @ weighted_values(f, held_out, held_out.sign * gap[at])
        )
    return np.array(risks)
