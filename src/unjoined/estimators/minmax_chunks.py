"""`MinMaxUplift` from rows that come in chunks, and from sums alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import IntArray
from unjoined._validation import check_count
from unjoined.data import DaskSource, LabelledRows, as_dask_source, as_source
from unjoined.errors import InputError
from unjoined.estimators.minmax_plan import (
    SAMPLE_ROWS,
    fit_means,
    is_centred,
    plan_rows,
    plan_sums,
    ridge_grids,
)
from unjoined.estimators.minmax_problem import check_loss
from unjoined.estimators.minmax_search import MinMaxSearch, Spaces, _folds, _width
from unjoined.losses import SquaredLoss
from unjoined.metrics import IdentificationStrength, strength_of_sums, warn_if_weak
from unjoined.nuisance import N_FOLDS
from unjoined.solve import choose_ridges, score_folds, solve_minmax
from unjoined.sums import (
    Census,
    PlannedSums,
    SumsPlan,
    center_sums,
    dask_census,
    dask_sums,
    has_constant,
    sum_with_checkpoint,
    take_census,
)


class ChunkFitting:
    """What `MinMaxUplift` can do without all rows in memory."""

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
            Distinct rows of each of the four tables that are kept from the first pass.
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

        Warns
        -----
        WeakIdentificationWarning
            The two policies can hardly be told apart.

        Notes
        -----
        Time is that of ``fit`` with a fixed width and a second reading of the rows. Memory is
        the sample, one batch of 65,536 rows and O(p^2) per table and group, whatever the number
        of rows. The result does not depend on the order of rows or on chunks but for rounding,
        and not at all on threads. It is not that of ``fit`` to the last digit: centres are
        drawn from the sample, and groups go by the rows' content.
        """
        found, report = self._collect(source, sample_rows, checkpoint)
        warn_if_weak(self._fit_sums(found, report), stacklevel=3)
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

        Parameters
        ----------
        source, sample_rows, checkpoint
            As in ``fit_chunks``; the checkpoint is left where it is.

        Returns
        -------
        PlannedSums
            For `write_sums` and ``fit_moments``.
        """
        return self._collect(source, sample_rows, checkpoint)[0]

    def fit_moments(self, sums: PlannedSums) -> Self:
        """Estimate the uplift from sums alone.

        Parameters
        ----------
        sums : PlannedSums
            Of all four cells, from ``collect_sums``, or read from files and merged. Their basis
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
            A cell is missing, or a parameter needs rows: ``loss``, ``bounds``, ``shift``, or a
            regressor as ``center``.

        Notes
        -----
        Costs O(p^3), whatever the number of rows.
        """
        _check_chunkable(self)
        center = self.center  # type: ignore[attr-defined]
        if not isinstance(center, bool) and not sums.plan.centring:
            raise InputError(
                "a regressor as center needs rows, and sums are not enough. Pass center=True, "
                "which uses the functions of the sums, or center=False."
            )
        warn_if_weak(self._fit_sums(sums, None), stacklevel=3)
        return self

    def _collect(
        self, source: Any, sample_rows: int, checkpoint: str | os.PathLike[str] | None
    ) -> tuple[PlannedSums, MinMaxSearch | None]:
        _check_chunkable(self)
        size = check_count("sample_rows", sample_rows)
        if (parts := as_dask_source(source)) is not None:
            return _collect_partitions(self, parts, size, checkpoint)
        rows = as_source(source)
        census = take_census(rows, sample_rows=size)
        census.check_complete()
        plan, report = plan_chunks(self, census)
        n_jobs = self.n_jobs  # type: ignore[attr-defined]
        return sum_with_checkpoint(rows, plan, census, checkpoint, n_jobs=n_jobs), report

    def _fit_in_one_pass(
        self, rows: LabelledRows, rng: np.random.RandomState
    ) -> IdentificationStrength:
        """Fit as ``fit_chunks`` does: by a sample, and one pass over rows in memory."""
        plan, group, report = plan_rows(self, rows, rng)
        n_jobs = self.n_jobs  # type: ignore[attr-defined]
        sums, policy = plan.sums(rows, group, n_jobs=n_jobs)
        return self._fit_sums(PlannedSums(plan, sums, policy), report)

    def _fit_sums(self, found: PlannedSums, report: MinMaxSearch | None) -> IdentificationStrength:
        model: Any = self  # the attributes are those of MinMaxUplift
        if hasattr(model, "identification_"):
            del model.identification_
        plan = found.plan
        found.check_complete(groups=model._chooses_ridges)
        if is_centred(model) and not plan.centring and has_constant(plan.basis):
            found = replace(found, sums=center_sums(found.sums, plan.basis))
        spaces = Spaces(plan.scaling, plan.basis, plan.critic)
        system = spaces.system(found.sums)
        report = _choose_ridges(model, found, spaces, report)
        model.ridge_f_ = float(model.ridge_f) if report is None else report.ridge_f
        model.ridge_g_ = float(model.ridge_g) if report is None else report.ridge_g
        solution = solve_minmax(system, ridge_f=model.ridge_f_, ridge_g=model.ridge_g_)
        strength = strength_of_sums(found.policy, found.plan.populations)
        model.bounds_ = model.loss_ = model.shift_ = None
        model.basis_, model.critic_basis_ = plan.basis, plan.critic
        model.search_, model.scaling_ = report, plan.scaling
        model.coef_ = plan.coding.scale * solution.alpha
        model.critic_coef_ = plan.coding.scale * solution.beta
        model.singular_values_ = solution.singular_values
        model.n_features_in_ = plan.n_features
        if plan.feature_names is not None:
            model.feature_names_in_ = np.array(plan.feature_names, dtype=object)
        elif hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
        model.populations_ = list(plan.populations)
        model.identification_ = strength
        return strength


def _check_chunkable(model: Any) -> None:
    model._check_parameters()
    for name, off in (("bounds", model.bounds is None), ("shift", model.shift is None)):
        if not off:
            raise InputError(
                f"{name} needs all rows in memory, and sums are not enough. Leave {name} out, or "
                "use fit."
            )
    if not isinstance(check_loss(model.loss), SquaredLoss):
        raise InputError(
            "losses other than 'squared' need all rows in memory, and sums are not enough. Use "
            "loss='squared', or fit."
        )


def _collect_partitions(
    model: Any, source: DaskSource, sample_rows: int, checkpoint: Any
) -> tuple[PlannedSums, MinMaxSearch | None]:
    if checkpoint is not None:
        raise InputError(
            "a checkpoint is for rows that are read in order; Dask computes lost partitions again "
            "by itself. Leave checkpoint out."
        )
    census = dask_census(source, sample_rows=sample_rows)
    census.check_complete()
    plan, report = plan_chunks(model, census)
    return dask_sums(source, plan, census), report


def plan_chunks(model: Any, census: Census) -> tuple[SumsPlan, MinMaxSearch | None]:
    """Fix basis, scaling and centring by the sample of a census.

    Returns
    -------
    SumsPlan, MinMaxSearch or None
        The search is that over widths on the sample, if there was one.
    """
    rows, group = census.sample(N_FOLDS)
    many_widths = model.width == "auto" and model.basis in ("smooth", "gaussian", "fourier")
    if is_centred(model) or many_widths:
        _check_groups(rows, group)
    rng = check_random_state(model.random_state)
    return plan_sums(
        model,
        rows,
        group,
        rng,
        n_rows=census.n_rows,
        feature_names=census.feature_names,
        n_groups=N_FOLDS,
        centre=lambda spaces: fit_means(model, spaces, rows, group, rng),
    )


def _check_groups(rows: LabelledRows, group: IntArray) -> None:
    """Refuse tables so small that a group hashed from content has no rows."""
    for kind in np.unique(rows.kind):
        for k, name in enumerate(rows.names):
            at = rows.at(str(kind), k)
            if len(np.unique(group[at])) < N_FOLDS:
                raise InputError(
                    f"centring and the choice of width hold out {N_FOLDS} groups of rows in turn, "
                    f"but the {len(at)} {kind} rows of population {name!r} do not fill them. "
                    "Tables as small as this are fitted with fit; or pass center=False and a "
                    "number for width."
                )


def _choose_ridges(
    model: Any, found: PlannedSums, spaces: Spaces, report: MinMaxSearch | None
) -> MinMaxSearch | None:
    """Choose ridges by the sums of all rows, and put that in the place of the sample's choice."""
    if not model._chooses_ridges:
        return report
    ridges_f, ridges_g = ridge_grids(model)
    C = spaces.system(found.sums).C
    scores = score_folds(
        _folds(spaces, found.sums),
        C,
        ridges_f=ridges_f,
        ridges_g=ridges_g,
        n_jobs=model.n_jobs,
    )
    choice = choose_ridges(scores.score)
    scale = found.plan.coding.scale**2
    final = MinMaxSearch(
        widths=np.array([_width(spaces.uplift)]),
        ridges_f=ridges_f,
        ridges_g=ridges_g,
        score=scale * choice.mean[None],
        standard_error=scale * choice.standard_error[None],
        risk=np.array([np.nan]),
        risk_standard_error=np.array([np.nan]),
        chosen=(0, *choice.chosen),
    )
    return final if report is None else report.with_ridges_of(final)
