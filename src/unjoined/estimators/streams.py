"""Outcome rows as the likelihood takes them, in memory or in chunks that passes go through."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._threads import CACHE_ROWS, over_pieces
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.additive import plus
from unjoined.data.dask import DaskSource
from unjoined.data.rows import LabelledRows, NumberedRows
from unjoined.data.sources import ChunkSource
from unjoined.data.write import replace_file
from unjoined.errors import TableError
from unjoined.model.additive_basis import AdditiveBasis
from unjoined.model.averaging import HeldOutForms, hold_out_forms, more_steps
from unjoined.model.census import Census
from unjoined.model.crossfit import Likelihood
from unjoined.model.families import Sums
from unjoined.model.newton import AdditiveFit, AdditiveRows, Parts, Request, Steps, sums_of_rows
from unjoined.model.passes import in_cells, inner_rows, over_rows
from unjoined.model.regressors import FoldedPolicy, hold_out_mean
from unjoined.model.specifications import EFFECT_FORMS, AdditiveAverage, ModelRows

FIRST = "unjoined-sums-of-passes"  # the part that a checkpoint begins with
Select = Callable[[LabelledRows], ModelRows]  # the rows of a chunk that a model is fitted to


@dataclass(frozen=True, slots=True)
class TreatmentRows:
    """The treatment rows of one population, for its policy."""

    population: int
    factor: float  # brings weights to those of the sample

    def __call__(self, rows: LabelledRows) -> ModelRows:
        """Return them with labels 0 and 1."""
        at = rows.at(TREATMENT, self.population)
        y = 0.5 + 0.5 * rows.label[at]
        return ModelRows(rows.X[at], y, np.zeros(len(at)), self.factor * rows.weight[at])


@dataclass(frozen=True, slots=True)
class OutcomeRows:
    """The outcome rows of all populations."""

    likelihood: Likelihood
    factors: Array  # (m,) bring weights to those of the sample

    def __call__(self, rows: LabelledRows) -> ModelRows:
        """Return them as the outcome's law takes them."""
        own = rows.take(rows.of_kind(OUTCOME))
        y, exposure, _ = self.likelihood.rows(own.X, own.label, own.population)
        return ModelRows(own.X, y, exposure, self.factors[own.population] * own.weight)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pass adds up for one model: sums for each form that goes on."""

    select: Select
    basis: AdditiveBasis
    requests: tuple[tuple[Parts, Request], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """All that a chunk needs to become sums; travels to workers."""

    census: Census  # without its samples
    asks: tuple[Ask, ...]


def sums_of_chunk(chunk: NumberedRows, work: Work, n_jobs: int | None) -> list[list[Sums]]:
    """Return the sums of one chunk, for each model and form."""
    census = work.census
    labelled = inner_rows(in_cells(chunk, census.names, census), census.coding, census)
    return [_sums_of_model(ask.select(labelled), ask, n_jobs) for ask in work.asks]


def _sums_of_model(rows: ModelRows, ask: Ask, n_jobs: int | None) -> list[Sums]:

    def add_up(start: int) -> list[Sums]:
        at = slice(start, start + CACHE_ROWS)
        values = ask.basis(rows.X[at]).T
        piece = AdditiveRows(values, rows.y[at], rows.exposure[at], rows.weight[at])
        return [sums_of_rows(piece, law, coef, parts) for parts, (law, coef) in ask.requests]

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
        self.file = None if checkpoint is None else Path(checkpoint)
        self.arrays: dict[str, Array] = {FIRST: np.array([float(census.digest)])}
        self.n_passes = 0
        if self.file is not None and self.file.exists():
            kept = _read(self.file)
            if not np.array_equal(kept[FIRST], self.arrays[FIRST]):
                raise self._other()
            self.arrays = kept

    def __call__(self, asks: tuple[Ask, ...]) -> list[list[Sums]]:
        """Return the sums of all rows, from the file if the pass was made before."""
        key, self.n_passes = f"{self.n_passes:03}", self.n_passes + 1
        digest = _digest(asks)
        if f"{key}.digest" in self.arrays:
            if not np.array_equal(self.arrays[f"{key}.digest"], digest):
                raise self._other()
            return _unpack(self.arrays, key, asks)
        work = Work(self.census.without_samples(), asks)
        result: list[list[Sums]] = over_rows(
            self.source, self.census, sums_of_chunk, work, self.n_jobs
        )
        if self.file is not None:
            self.arrays |= {f"{key}.digest": digest, **_packed(key, result)}
            replace_file(self.file, self._write)
        return result

    def _other(self) -> TableError:
        return TableError(
            f"the checkpoint {str(self.file)!r} belongs to another fit, or the source has changed "
            "since it was written. Delete it to start anew."
        )

    def _write(self, file: Path) -> None:
        with file.open("wb") as out:
            np.savez(out, allow_pickle=False, **self.arrays)


def _digest(asks: tuple[Ask, ...]) -> Array:
    """Return a fingerprint of what a pass is asked for."""
    digest = hashlib.sha256()
    for ask in asks:
        for parts, (_, coef) in ask.requests:
            digest.update(parts.block.tobytes())
            # To rounding: sums of other chunks lead to coefficients that differ by it.
            digest.update(np.round(coef, 9).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8).astype(np.float64)


def _packed(key: str, result: list[list[Sums]]) -> dict[str, Array]:
    arrays = {}
    for i, model in enumerate(result):
        for j, sums in enumerate(model):
            numbers = np.array([sums.loss, sums.square, sums.counted])
            arrays[f"{key}.{i}.{j}.sums"] = np.concatenate([numbers, sums.gradient])
            arrays[f"{key}.{i}.{j}.curvature"] = sums.curvature
    return arrays


def _unpack(arrays: dict[str, Array], key: str, asks: tuple[Ask, ...]) -> list[list[Sums]]:
    result = []
    for i, ask in enumerate(asks):
        model = []
        for j in range(len(ask.requests)):
            (loss, square, counted), gradient = np.split(arrays[f"{key}.{i}.{j}.sums"], [3])
            curvature = arrays[f"{key}.{i}.{j}.curvature"]
            model.append(Sums(float(loss), gradient, curvature, float(square), float(counted)))
        result.append(model)
    return result


def _read(file: Path) -> dict[str, Array]:
    """Return what a checkpoint holds."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in (FIRST, *archive.files)}
    # Whatever else goes wrong in a file that is damaged, or not a checkpoint, is its fault.
    except Exception as error:
        raise TableError(
            f"{str(file)!r} is not a checkpoint of this fit ({type(error).__name__}: {error}). "
            "Delete it, or name another file."
        ) from error


@dataclass(frozen=True, slots=True)
class Model:
    """Forms that a sample has settled, and the rows that they go on with."""

    held: HeldOutForms
    select: Select

    @property
    def without(self) -> tuple[AdditiveAverage, ...]:
        """The sample's fits without each fold."""
        return tuple(self.held.without(j) for j in range(self.held.n_folds))

    def steps(self, n_jobs: int | None) -> dict[str, tuple[Parts, Steps]]:
        """Return the steps of each form that is kept, from its fit to the sample."""
        fits = {name: self.held.everyone(name, 1e-2, n_jobs) for name in self.held.table.kept}
        return {name: (fit.parts, more_steps(fit)) for name, fit in fits.items()}


def fit_over(passes: Passes, models: list[Model]) -> list[AdditiveAverage]:
    """Fit models to all rows together: each pass adds up for all of their forms."""
    running = [model.steps(passes.n_jobs) for model in models]
    waiting = [{name: next(steps) for name, (_, steps) in run.items()} for run in running]
    finals: list[dict[str, AdditiveFit]] = [{} for _ in models]
    while any(waiting):
        asks = tuple(
            Ask(
                model.select,
                model.held.chooser.basis,
                tuple((run[name][0], request) for name, request in requests.items()),
            )
            for model, run, requests in zip(models, running, waiting, strict=True)
        )
        results = passes(asks)
        for run, requests, result, final in zip(running, waiting, results, finals, strict=True):
            for name, sums in zip(list(requests), result, strict=True):
                try:
                    requests[name] = run[name][1].send(sums)
                except StopIteration as stop:
                    del requests[name]
                    final[name] = stop.value
    return [model.held.finished(final) for model, final in zip(models, finals, strict=True)]


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

    def policies(self, rng: Rng, *, categorical: tuple[int, ...]) -> tuple[FoldedPolicy, ...]:
        """Fit every population's policy to all of its treatment rows, in the same passes."""
        models, folds, rows, m = {}, {}, self.rows, len(self.rows.names)
        for k in range(m):
            at = rows.at(TREATMENT, k)
            chance, weight = 0.5 + 0.5 * rows.label[at], rows.weight[at]
            if chance.min() < chance.max():
                n_jobs = self.passes.n_jobs
                held, folds[k] = hold_out_mean(
                    rows.X[at], chance, weight, n_jobs=n_jobs, rng=rng, categorical=categorical
                )
                select = TreatmentRows(k, self._factor(TREATMENT, k, weight))
                models[k] = Model(held.for_passes(), select)
        fits = dict(zip(models, fit_over(self.passes, list(models.values())), strict=True))
        known = [0.5 + 0.5 * rows.label[rows.at(TREATMENT, k)] for k in range(m)]
        return tuple(
            FoldedPolicy.of_forms(fits[k], models[k].without, folds[k])
            if k in fits
            else FoldedPolicy.constant(float(known[k][0]), np.arange(len(known[k])) % 3)
            for k in range(m)
        )

    def outcomes(
        self, likelihood: Likelihood, *, categorical: tuple[int, ...]
    ) -> tuple[AdditiveAverage, tuple[AdditiveAverage, ...]]:
        """Fit base and effect to all outcome rows; also return the sample's fits without folds."""
        rows, at = self.rows, self.rows.of_kind(OUTCOME)
        few, chance = likelihood.outcomes(rows, at)
        held = hold_out_forms(
            few,
            likelihood.law(chance, few.weight),
            EFFECT_FORMS,
            self.fold[at],
            categorical=categorical,
            n_jobs=self.passes.n_jobs,
        ).for_passes()
        factors = [self._factor(OUTCOME, k, rows.weight[at]) for k in range(len(rows.names))]
        model = Model(held, OutcomeRows(likelihood, np.array(factors)))
        (fit,) = fit_over(self.passes, [model])
        return fit, model.without
