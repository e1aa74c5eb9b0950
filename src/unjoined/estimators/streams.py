"""Outcome rows as the likelihood takes them, in memory or in chunks that passes go through."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from unjoined._threads import CACHE_ROWS, over_pieces
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.dask import DaskSource
from unjoined.data.fold import Checkpoint, plus
from unjoined.data.rows import LabelledRows, NumberedRows
from unjoined.data.sources import ChunkSource
from unjoined.model.additive_basis import AdditiveBasis
from unjoined.model.averaging import (
    HeldOutSpecifications,
    hold_out_specifications,
    more_steps,
)
from unjoined.model.census import Census
from unjoined.model.crossfit import Likelihood
from unjoined.model.families import Sums
from unjoined.model.newton import (
    AdditiveFit,
    AdditiveRows,
    Parts,
    Request,
    Steps,
    sums_of_rows,
)
from unjoined.model.passes import in_cells, inner_rows, over_rows
from unjoined.model.regressors import FoldedPolicy, hold_out_mean
from unjoined.model.specifications import (
    EFFECT_SPECIFICATIONS,
    AdditiveAverage,
    ModelRows,
)

Select = Callable[
    [LabelledRows], ModelRows
]  # the rows of a chunk that a model is fitted to


def treatment_rows(population: int, factor: float, rows: LabelledRows) -> ModelRows:
    """Return the treatment rows of one population with labels 0 and 1, for its policy.

    The factor brings weights to those of the sample.
    """
    at = rows.at(TREATMENT, population)
    y = 0.5 + 0.5 * rows.label[at]
    return ModelRows(rows.X[at], y, np.zeros(len(at)), factor * rows.weight[at])


def outcome_rows(
    likelihood: Likelihood, factors: Array, rows: LabelledRows
) -> ModelRows:
    """Return the outcome rows of all populations as the outcome's law takes them.

    The populations' factors bring weights to those of the sample.
    """
    own = rows.take(rows.of_kind(OUTCOME))
    y, exposure, _ = likelihood.rows(own.X, own.label, own.population)
    return ModelRows(own.X, y, exposure, factors[own.population] * own.weight)


class Ask(NamedTuple):
    """What a pass adds up for one model: sums for each form that goes on."""

    select: Select
    basis: AdditiveBasis
    requests: tuple[tuple[Parts, Request], ...]


def sums_of_chunk(
    chunk: NumberedRows, shared: tuple[Census, tuple[Ask, ...]], n_jobs: int | None
) -> list[list[Sums]]:
    """Return the sums of one chunk, for each model and form."""
    census, asks = shared
    labelled = inner_rows(in_cells(chunk, census.names, census), census.coding, census)
    return [_sums_of_model(ask.select(labelled), ask, n_jobs) for ask in asks]


def _sums_of_model(rows: ModelRows, ask: Ask, n_jobs: int | None) -> list[Sums]:

    def add_up(start: int) -> list[Sums]:
        at = slice(start, start + CACHE_ROWS)
        values = ask.basis(rows.X[at]).T
        piece = AdditiveRows(values, rows.y[at], rows.exposure[at], rows.weight[at])
        return [
            sums_of_rows(piece, family, coef, parts)
            for parts, (family, coef) in ask.requests
        ]

    zero = [Sums.zero(len(coef)) for _, (_, coef) in ask.requests]
    pieces = over_pieces(add_up, range(0, len(rows.y), CACHE_ROWS), n_jobs)
    return reduce(plus, pieces, zero)


class Passes:
    """Passes over one source, each for all models that ask; finished ones may be kept in a file."""

    def __init__(
        self,
        source: ChunkSource | DaskSource,
        census: Census,
        n_jobs: int | None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.source, self.census, self.n_jobs = source, census, n_jobs
        self.checkpoint = (
            None if checkpoint is None else Checkpoint(checkpoint, census.digest)
        )

    def __call__(self, asks: tuple[Ask, ...]) -> list[list[Sums]]:
        """Return the sums of all rows, as far as there are any from the file."""
        if self.checkpoint is not None:
            nothing = [
                [Sums.zero(len(coef)) for _, (_, coef) in ask.requests] for ask in asks
            ]
            self.checkpoint.begin(_digest(asks), nothing)
        shared = self.census.without_samples(), asks
        sums: list[list[Sums]] = over_rows(
            self.source,
            self.census,
            sums_of_chunk,
            shared,
            self.n_jobs,
            self.checkpoint,
        )
        return sums


def _digest(asks: tuple[Ask, ...]) -> bytes:
    """Return a fingerprint of what a pass is asked for."""
    digest = hashlib.sha256()
    for ask in asks:
        for parts, (_, coef) in ask.requests:
            digest.update(parts.block.tobytes())
            # To rounding: sums of other chunks lead to coefficients that differ by it.
            digest.update(np.round(coef, 9).tobytes())
    return digest.digest()


def fit_over(
    passes: Passes, models: list[tuple[HeldOutSpecifications, Select]]
) -> list[AdditiveAverage]:
    """Fit models to all rows together: each pass adds up for all of their forms.

    Forms go on from their fits to the sample, each model with the rows that it selects.
    """
    running = [_steps(model, passes.n_jobs) for model, _ in models]
    waiting = [
        {name: next(steps) for name, (_, steps) in run.items()} for run in running
    ]
    finals: list[dict[str, AdditiveFit]] = [{} for _ in models]
    while any(waiting):
        asks = tuple(
            Ask(
                select,
                model.chooser.basis,
                tuple((run[name][0], request) for name, request in requests.items()),
            )
            for (model, select), run, requests in zip(
                models, running, waiting, strict=True
            )
        )
        results = passes(asks)
        for run, requests, result, final in zip(
            running, waiting, results, finals, strict=True
        ):
            for name, sums in zip(list(requests), result, strict=True):
                try:
                    requests[name] = run[name][1].send(sums)
                except StopIteration as stop:
                    del requests[name]
                    final[name] = stop.value
    return [
        model.finished(final) for (model, _), final in zip(models, finals, strict=True)
    ]


def _steps(
    model: HeldOutSpecifications, n_jobs: int | None
) -> dict[str, tuple[Parts, Steps]]:
    """Return the steps of each form that is kept, from its fit to the sample."""
    fits = {name: model.everyone(name, 1e-2, n_jobs) for name in model.table.kept}
    return {name: (fit.parts, more_steps(fit)) for name, fit in fits.items()}


def _without_folds(model: HeldOutSpecifications) -> tuple[AdditiveAverage, ...]:
    """Return the sample's fits without each fold."""
    return tuple(model.without(j) for j in range(model.n_folds))


@dataclass(frozen=True, slots=True)
class Sampled:
    """Rows that the first pass has kept, which settle what all rows are fitted with."""

    rows: LabelledRows
    fold: IntArray
    passes: Passes

    def _factor(self, kind: str, k: int, weight: Array) -> float:
        """Return what brings weights of a cell to those of its sample, as rows that are worth."""
        cell = self.passes.census.cells[kind, self.rows.names[k]]
        return float(cell.n_rows / cell.total_weight * weight.sum() / np.sum(weight**2))

    def policies(self, *, categorical: tuple[int, ...]) -> tuple[FoldedPolicy, ...]:
        """Fit every population's policy to all of its treatment rows, in the same passes."""
        rows = self.rows
        models: dict[int, tuple[HeldOutSpecifications, Select]] = {}
        propensities = [
            0.5 + 0.5 * rows.label[rows.at(TREATMENT, k)]
            for k in range(len(rows.names))
        ]
        for k, propensity in enumerate(propensities):
            at = rows.at(TREATMENT, k)
            weight = rows.weight[at]
            if propensity.min() < propensity.max():
                held_out = hold_out_mean(
                    rows.X[at],
                    propensity,
                    weight,
                    self.fold[at],
                    n_jobs=self.passes.n_jobs,
                    categorical=categorical,
                )
                select = partial(treatment_rows, k, self._factor(TREATMENT, k, weight))
                models[k] = held_out.for_passes(), select
        fits = dict(
            zip(models, fit_over(self.passes, list(models.values())), strict=True)
        )
        return tuple(
            FoldedPolicy.of_specifications(
                fits[k], _without_folds(models[k][0]), self.fold[rows.at(TREATMENT, k)]
            )
            if k in fits
            else FoldedPolicy.constant(
                float(propensity[0]), self.fold[rows.at(TREATMENT, k)]
            )
            for k, propensity in enumerate(propensities)
        )

    def outcomes(
        self, likelihood: Likelihood, *, categorical: tuple[int, ...]
    ) -> tuple[AdditiveAverage, tuple[AdditiveAverage, ...]]:
        """Fit base and effect to all outcome rows; also return the sample's fits without folds."""
        rows = self.rows
        at = self.rows.of_kind(OUTCOME)
        few, propensity = likelihood.outcomes(rows, at)
        held_out = hold_out_specifications(
            few,
            likelihood.family_at(propensity, few.weight),
            EFFECT_SPECIFICATIONS,
            self.fold[at],
            categorical=categorical,
            n_jobs=self.passes.n_jobs,
        ).for_passes()
        factors = [
            self._factor(OUTCOME, k, rows.weight[at]) for k in range(len(rows.names))
        ]
        select = partial(outcome_rows, likelihood, np.array(factors))
        (fit,) = fit_over(self.passes, [(held_out, select)])
        return fit, _without_folds(held_out)
