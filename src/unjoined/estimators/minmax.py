"""The paper's estimator: a min-max problem with a closed-form solution."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state

from unjoined._support import narrated
from unjoined._typing import Array, Basis, MatrixLike, RandomState
from unjoined._validation import check_count, check_positive
from unjoined.data.dask import DaskSource, as_dask_source
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    basis_or,
    check_flag,
    check_verbose,
    optional,
    word_or,
)
from unjoined.estimators.minmax_plan import (
    MinMaxPlanner,
    MinMaxSearch,
    Settled,
    as_two_groups,
    average,
    check_groups,
    deal_groups,
)
from unjoined.estimators.minmax_problem import (
    SummedRows,
    check_bounds,
    check_loss,
    solve_in_bounds,
    solve_with_loss,
)
from unjoined.evaluate.strength import (
    IdentificationStrength,
    average_effect_of_sums,
    strength_of_sums,
    widening,
)
from unjoined.federated.agree import refuse_twins
from unjoined.model.accumulate import combine
from unjoined.model.basis import ScaledBasis, has_constant
from unjoined.model.census import take_sample
from unjoined.model.centring import (
    CROSS_FIT_ROWS,
    N_FOLDS,
    center_sums,
    check_center,
    cut_down,
    deal_folds,
)
from unjoined.model.draw import BASES
from unjoined.model.losses import LOSSES, SquaredLoss
from unjoined.model.minmax import solve_minmax
from unjoined.model.passes import dask_sums, sum_source
from unjoined.model.plan import PlannedSums
from unjoined.model.shift import ShiftReport, weigh_shift

SAMPLE_ROWS = 10_000  # of each cell, which settle the plan where there are many


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
    feature_limit_ : float or None
        Spreads that features are kept within, if the plan of the sums says so.
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
    unjoined.metrics.weighted_risk : the score that compares widths.

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

    def fit_chunks(
        self,
        source: Any,
        *,
        sample_rows: int = SAMPLE_ROWS,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Estimate the uplift from rows that come in chunks, in two passes.

        The first pass looks at the labels and keeps a sample, which fixes scaling, centres,
        width and what is subtracted from the labels. The second adds up the sums, from which
        ridges are chosen and the problem is solved.

        Parameters
        ----------
        source : ChunkSource, mapping or callable
            A `TableSource` (files, folders, queries, data frames), a `SeparateLabels`, a
            function that returns an iterable of chunks, or a `DaskSource`. Each of the two passes
            goes through it once, so that a function is called twice.
        sample_rows : int, default=10000
            Distinct rows of each of the tables that are kept from the first pass.
        checkpoint : path, optional
            A file that is written about every million rows of the second pass and removed at
            its end. If it exists, the pass goes on from there, to the same bits; the first pass
            is made again. Needs an integer ``random_state``.

        Returns
        -------
        MinMaxUplift
            Itself.

        Raises
        ------
        TableError, LabelError, InputError
            A chunk is malformed (the message names file and row), a cell is missing, or a
            parameter needs all rows in memory: ``loss``, ``bounds`` or ``shift``.

        Notes
        -----
        Memory is the sample, one batch of 65,536 rows and O(p^2) per table and group, whatever the
        number of rows. The result does not depend on chunks or threads. On the order of rows it
        depends as on a seed: sample and groups go by the rows' numbers within their tables. It is
        not that of ``fit`` to the last digit: centres are drawn from the sample.
        """
        with narrated(self, "rows in chunks"):
            sums, search = self._collect(source, sample_rows, checkpoint)
        self._conclude_sums(sums, search)
        if checkpoint is not None:
            Path(checkpoint).unlink(missing_ok=True)
        return self

    def collect_sums(
        self,
        source: Any,
        *,
        sample_rows: int = SAMPLE_ROWS,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> PlannedSums:
        """Return the sums that ``fit_chunks`` would solve from, without solving.

        They are for `write_sums` and ``fit_moments``. The checkpoint is left where it is.
        """
        return self._collect(source, sample_rows, checkpoint)[0]

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
        self._conclude_sums(sums, None)
        return self

    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength | None:
        rng, planner, shift = check_random_state(self.random_state), self._planner, None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            how = {"clip": self.shift_clip, "rng": rng, "target_weight": weight}
            rows, shift = weigh_shift(rows, X, self.shift, **how, stacklevel=4)
        many, several = len(rows.X) > CROSS_FIT_ROWS, len(rows.names) > 2
        whole: tuple[LabelledRows, Any] = rows, slice(None)
        sample, at = take_sample(rows, SAMPLE_ROWS, rng) if many else whole
        two, used = as_two_groups(sample, self.n_jobs)
        tried = planner.draw(two, len(rows.X), rng, self._feature_names)
        deal = deal_groups if many else deal_folds
        group: Any = deal(rows, rng) if planner.holds_out(tried) else None
        fold: Any = None if group is None else group[at][used]
        seen = two if self._is_squared else cut_down(two)
        fit_means = planner.fit_means if many else planner.fit_own_means
        found = planner.settle(tried, two, fold, partial(fit_means, seen, fold, rng))
        n_groups = 1 if group is None else int(group.max()) + 1
        plan = replace(found.plan, populations=tuple(rows.names), n_groups=n_groups)
        if found.sums is None or many or several:
            planned, found = plan.sums(rows, group, n_jobs=self.n_jobs), Settled(plan, found.search)
        else:
            planned = replace(PlannedSums.of_no_rows(plan), sums=found.sums)
        behind = None if self._is_closed else SummedRows(rows, group, self.n_jobs)
        self._fit_sums(planned, found, shift, behind)
        if not many or several or shift is not None:  # policies were not told by the rows' weights
            return None
        return strength_of_sums(planned.policy, plan.populations)

    def _collect(
        self, source: Any, sample_rows: int, checkpoint: str | os.PathLike[str] | None
    ) -> tuple[PlannedSums, MinMaxSearch | None]:
        """Settle the plan in a first pass over the source, and add up in a second."""
        self._check_parameters()
        self._check_sums_suffice()
        if checkpoint is not None and as_dask_source(source) is not None:
            raise InputError(
                "a checkpoint is for rows that are read in order; Dask computes lost "
                "partitions again by itself. Leave checkpoint out."
            )
        rows, census = self._look_through(source, check_count("sample_rows", sample_rows))
        census.check_complete()
        rng, planner = check_random_state(self.random_state), self._planner
        sample, group = census.sample(N_FOLDS)
        two, used = as_two_groups(sample, self.n_jobs)
        group = group[used]
        tried = planner.draw(two, census.n_rows, rng, census.feature_names)
        if planner.is_centred or len(tried) > 1:
            check_groups(two, group)
        found = planner.settle(tried, two, group, partial(planner.fit_means, two, group, rng))
        plan = replace(found.plan, populations=census.names)
        if isinstance(rows, DaskSource):
            return dask_sums(rows, plan, census), found.search
        return sum_source(rows, plan, census, checkpoint, self.n_jobs), found.search

    def _fit_sums(
        self,
        planned: PlannedSums,
        found: Settled,
        shift: ShiftReport | None = None,
        rows: SummedRows | None = None,
    ) -> None:
        """Choose ridges by sums of all rows, unless they have chosen already, and solve.

        Bounds, and losses other than the square, need the ``rows`` behind the sums.
        """
        self._forget()
        planner, search, coef = self._planner, found.search, found.group_coef
        planned.check_complete(groups=planner.chooses_ridges)
        contrasts, sums = planned.contrasts, planned.sums
        plan = replace(planned.plan, contrasts=contrasts)
        if planner.is_centred and not plan.centring and has_constant(plan.basis):
            sums = center_sums(sums, plan.basis, contrasts)
        if coef is None:
            search, coef = planner.choose_ridges(plan, sums, search)
        f, g = (self.ridge_f, self.ridge_g) if search is None else (search.ridge_f, search.ridge_g)
        ridges = {"ridge_f": float(f), "ridge_g": float(g)}
        system, self.bounds_, self.loss_ = average(plan, sums), None, None
        if rows is None:
            solution = solve_minmax(system, **ridges)
        elif self._is_squared:
            solution, self.bounds_ = solve_in_bounds(plan, system, rows, self.bounds, ridges)
        else:
            solution, self.loss_ = solve_with_loss(plan, system, rows, self.loss, ridges)
        if contrasts is not None:
            self.contrast_ = contrasts[0]
        scale, self.shift_, self.feature_limit_ = plan.coding.scale, shift, plan.clip
        self.basis_, self.critic_basis_, self.scaling_ = plan.basis, plan.critic, plan.scaling
        self.ridge_f_, self.ridge_g_, self.search_ = ridges["ridge_f"], ridges["ridge_g"], search
        self.coef_, self.critic_coef_ = scale * solution.alpha, scale * solution.beta
        self.group_coef_ = scale * coef if coef is not None and self._is_closed else None
        self.singular_values_ = solution.singular_values

    def _conclude_sums(self, sums: PlannedSums, search: MinMaxSearch | None) -> None:
        """Solve by sums alone, and become fitted."""
        self._fit_sums(sums, Settled(sums.plan, search))
        # Sums may be of other columns than those of an earlier fit.
        known = self._feature_names == sums.plan.feature_names
        encoder = getattr(self, "encoder_", None) if known else None
        self._set_features(sums.plan.n_features, sums.plan.feature_names, encoder)
        self.average_effect_ = average_effect_of_sums(sums)
        self._conclude(sums, strength_of_sums(sums.policy, sums.plan.populations), stacklevel=4)

    def _row_errors(self, matrix: Array) -> Array:
        groups = self.group_coef_
        if groups is None:
            return super()._row_errors(matrix)
        G, each = len(groups), np.array([self._combine(matrix, self.basis_, c) for c in groups])
        return np.asarray(widening(G) * np.sqrt(G - 1) * each.std(axis=0))

    @property
    def _planner(self) -> MinMaxPlanner:
        return MinMaxPlanner(*(getattr(self, field.name) for field in fields(MinMaxPlanner)))

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
        matrix = self.scaling_.clipped(matrix, self.feature_limit_)
        return combine(ScaledBasis(basis, self.scaling_), coef, matrix, n_jobs=self.n_jobs)

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
