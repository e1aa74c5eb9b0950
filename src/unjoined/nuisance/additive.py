"""Additive models of several forms, averaged by held-out likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._support import PROGRESS
from unjoined._threads import n_threads, one_blas_thread
from unjoined._typing import Array, IntArray
from unjoined.basis import CURVE, PAIR, SQUARE, AdditiveBasis, leading_features
from unjoined.nuisance.forms import (
    CURVES,
    NOTHING,
    AdditiveAverage,
    Form,
    FormTable,
    Member,
    ModelRows,
    grow,
    squared_slopes,
    topic,
)
from unjoined.solve import (
    AdditiveFit,
    AdditiveRows,
    Law,
    MeanLaw,
    Parts,
    Steps,
    choose_threshold,
    fit_additive,
    fit_steps,
    pass_by_pieces,
    pass_in_memory,
    robust_deviation,
)

UNUSED = "unused"  # what was screened out
IDLE = 0.02  # log-odds or standard deviations of the outcome that are not missed
ALL_PAIRS = 66  # more are screened: those of 12 features have all a say
ALL_BENDS = 12  # features; of more, those are bent that show it
KEPT = {PAIR: 10, CURVE: 6}  # of what is screened: for the base, and as many for the effect
CHOICE_ROWS = 20_000  # rows that choose among forms; all rows have a say afterwards
MORE_STEPS = 15  # for a form that contains one that was fitted
CHOICE_TOL = 1e-2  # nats: forms differ by more
OVER_ALL: Any = {"n_steps": 4, "tol": CHOICE_TOL}  # for a fit to a sample, over all rows
FINAL_TOL = 1e-6
Fits = dict[str, AdditiveFit]  # by form
GROSS = 3.0  # robust standard deviations of the outcome


@dataclass(frozen=True, slots=True)
class Chooser:
    """Rows that choose among forms, with the values of all functions at them."""

    rows: ModelRows
    law: Law
    basis: AdditiveBasis
    values: Array  # (p, n)

    @classmethod
    def of_rows(
        cls,
        rows: ModelRows,
        law: Law,
        categorical: tuple[int, ...],
        *,
        with_products: bool,
        n_jobs: int | None,
    ) -> Chooser:
        """Draw the functions for these rows, and bound the pull of gross outcomes if it pays."""
        basis = AdditiveBasis.of_rows(
            rows.X,
            rows.weight,
            categorical=categorical,
            features=leading_features(rows.X, rows.y, rows.exposure, rows.weight),
            with_products=with_products,
        )
        chooser = cls(rows, law, basis, basis(rows.X).T)
        if isinstance(law, MeanLaw):
            form = Form("", CURVES, CURVES if rows.exposure.any() else NOTHING)
            # Gross outcomes would spoil the residuals by which they are to be judged.
            bound = GROSS * robust_deviation(rows.y, rows.weight) or np.inf
            fit = replace(chooser, law=MeanLaw(bound)).fit(
                form, np.arange(len(rows.y)), CHOICE_TOL, n_jobs=n_jobs
            )
            base, effect = fit(chooser.values.T)
            pull = rows.exposure * effect
            threshold = choose_threshold(rows.y - base - pull, rows.weight, pull)
            chooser = replace(chooser, law=MeanLaw(threshold))
        return chooser

    def fit(
        self,
        form: Form,
        at: IntArray,
        tol: float,
        *,
        simpler: AdditiveFit | None = None,
        like: Parts | None = None,
        n_jobs: int | None = 1,
    ) -> AdditiveFit:
        """Fit a form to some of the rows, from where a simpler one ended if that is given.

        ``like`` are the functions to use, if they are known.
        """
        parts = self.parts_of(form, at, simpler) if like is None else like
        rows, inner = self.rows.take(at), parts.within()
        values = self.values[np.ix_(parts.base, at)]
        data = AdditiveRows(values, rows.y, rows.exposure, rows.weight)
        pass_over = pass_in_memory(data, inner, n_jobs)
        start = np.zeros(len(parts.block))
        if simpler is None:
            start[0] = self.law.intercept(float(np.average(rows.y, weights=rows.weight)))
            fit = fit_additive(pass_over, inner, self.law, start, tol=tol)
        else:
            k, p = len(simpler.parts.base), len(parts.base)
            for ours, theirs, to, known in (
                (parts.base, simpler.parts.base, start[:p], simpler.coef[:k]),
                (parts.effect, simpler.parts.effect, start[p:], simpler.coef[k:]),
            ):
                _, here, there = np.intersect1d(ours, theirs, return_indices=True)
                to[here] = known[there]
            scales = simpler.scales.carried(simpler.parts, parts)
            fit = fit_additive(
                pass_over, inner, simpler.law, start, scales, n_steps=MORE_STEPS, tol=tol
            )
        return replace(fit, parts=parts)

    def grow(self, fit: AdditiveFit, at: IntArray, tol: float) -> AdditiveFit:
        """Fit an effect that goes with the base of a fit to some of the rows."""
        return grow(fit, self.rows.take(at), self.values[np.ix_(fit.parts.base, at)], tol)

    def parts_of(self, form: Form, at: IntArray, simpler: AdditiveFit | None) -> Parts:
        """Return the functions of a form: of very many, those that some rows ask for most."""
        block, groups, _ = self.basis.blocks()
        if simpler is not None:
            groups = self._screened(block, groups, form, simpler, at)
        return Parts.of_groups(block, groups, form.base, form.effect, form.few)

    def _screened(
        self, block: IntArray, groups: tuple[str, ...], form: Form, fit: AdditiveFit, at: IntArray
    ) -> tuple[str, ...]:
        """Name what can be done without: bends that a fit shrank, functions it does not ask for."""
        named = np.array(groups)
        used, size = np.full(len(groups), True), np.zeros(len(groups))
        np.add.at(size, block[np.concatenate([fit.parts.base, fit.parts.effect])], fit.coef**2)
        bends = (named == SQUARE) | (named == CURVE)
        has_bends = bool(bends[block[fit.parts.base]].any())
        if has_bends and len(self.basis.bent) > ALL_BENDS:
            used = ~bends | (size > IDLE**2)
            if CURVE in form.effect and not bends[block[fit.parts.effect]].any():
                best = self._asked_for(CURVE, block, named, fit, at)[-1]
                squares, curves = np.flatnonzero(named == SQUARE), np.flatnonzero(named == CURVE)
                used[np.concatenate([squares[best], curves[best]])] = True
        if PAIR in form.base and len(self.basis.pairs) > ALL_PAIRS:
            places = np.flatnonzero(named == PAIR)
            used[places] = False
            for best in self._asked_for(PAIR, block, named, fit, at):
                used[places[best]] = True
        return tuple(np.where(used, named, UNUSED).tolist())

    def _asked_for(
        self, kind: str, block: IntArray, named: Array, fit: AdditiveFit, at: IntArray
    ) -> list[IntArray]:
        """Return which blocks of a kind would change base and effect of a fit most."""
        places = np.flatnonzero(named == kind)
        wanted = np.isin(block, places)
        of_block = np.searchsorted(places, block[wanted])
        found = []
        for slope, variance in squared_slopes(fit, self.rows.take(at), self.values[:, at], wanted):
            score = np.bincount(of_block, slope) / np.bincount(of_block, variance)
            found.append(np.argsort(-score, kind="stable")[: KEPT[kind]])
        return found

    def fit_all(self, held: IntArray, n_jobs: int, *, forms: tuple[Form, ...]) -> Fits:
        """Fit forms without some rows, each from where the last one that it contains ended."""
        rest = np.delete(np.arange(len(self.rows.y)), held)
        fits: Fits = {}
        for k, form in enumerate(forms):
            if form.grows:
                fits[form.name] = self.grow(fits[form.grows], rest, CHOICE_TOL)
                continue
            inside = [f.name for f in forms[:k] if f.base <= form.base and f.effect <= form.effect]
            simpler = fits[inside[-1]] if inside else None
            fits[form.name] = self.fit(form, rest, CHOICE_TOL, simpler=simpler, n_jobs=n_jobs)
        return fits

    def losses(self, fits: Fits, held: IntArray) -> dict[str, Array]:
        """Return the losses of rows that the fits have not seen."""
        rows, values = self.rows.take(held), self.values[:, held].T
        losses = {}
        # One noise for all forms: a bounded loss is no density that each could have its own of.
        noise = min(getattr(fit.law, "variance", 1.0) for fit in fits.values())
        for name, fit in fits.items():
            law = replace(fit.law, variance=noise) if isinstance(fit.law, MeanLaw) else fit.law
            losses[name] = rows.weight * law(rows.y, rows.exposure, *fit(values)).loss
        return losses


@dataclass(frozen=True, slots=True)
class HeldOutForms:
    """Every form fitted without each fold in turn, and how the forms did there."""

    chooser: Chooser
    forms: dict[str, Form]
    fits: dict[str, list[AdditiveFit]]  # of each form, without each fold
    table: FormTable

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.fits[self.table.name[0]])

    def trimmed(self) -> HeldOutForms:
        """Return the forms that are kept, without the pairs that none of them uses."""
        used = np.full(self.chooser.basis.size, False)
        fits = {name: self.fits[name] for name in self.table.kept}
        for fit in (fit for each in fits.values() for fit in each):
            used[fit.parts.base] = used[fit.parts.effect] = True
        basis, left = self.chooser.basis.trimmed(used)
        place = np.cumsum(left) - 1
        for name, each in fits.items():
            fits[name] = [replace(fit, parts=fit.parts.moved(place)) for fit in each]
        chooser = replace(self.chooser, basis=basis, values=self.chooser.values[left])
        return replace(self, chooser=chooser, fits=fits)

    def without(self, j: int) -> AdditiveAverage:
        """Return the average of the fits that have not seen fold ``j``."""
        basis, fits = self.chooser.basis, self.fits
        kept = self.table.kept.items()
        members = (Member.of_fit(w, name, fits[name][j], basis.size) for name, w in kept)
        best = fits[self.table.name[0]][j]
        return AdditiveAverage(basis, tuple(members), self.table, best)

    def average(self) -> AdditiveAverage:
        """Return the average of all fits without one fold."""
        each = [self.without(j) for j in range(self.n_folds)]
        members = [replace(m, weight=m.weight / len(each)) for one in each for m in one.members]
        return replace(each[0], members=tuple(members))

    def for_more(self, factor: float) -> HeldOutForms:
        """Return the same with the weights that ``factor`` times as many rows would give."""
        return replace(self, table=self.table.sharpened(factor))

    def finished(self, finals: Fits) -> AdditiveAverage:
        """Return the average of the forms that are kept, as fitted to all rows."""
        basis, kept = self.chooser.basis, self.table.kept
        members = (Member.of_fit(w, name, finals[name], basis.size) for name, w in kept.items())
        return AdditiveAverage(basis, tuple(members), self.table, finals[self.table.name[0]])

    def everyone(
        self, name: str, tol: float, n_jobs: int | None, *, near: AdditiveFit | None = None
    ) -> AdditiveFit:
        """Fit a form to all rows that choose, from nothing or from a fit that is near."""
        at, form, chooser = np.arange(len(self.chooser.rows.y)), self.forms[name], self.chooser
        like = (near or self.fits[name][0]).parts
        with one_blas_thread():
            if form.grows:
                base = chooser.fit(form, at, tol, like=like.alone(), n_jobs=n_jobs)
                return chooser.grow(base, at, tol)
            return chooser.fit(form, at, tol, simpler=near, like=like, n_jobs=n_jobs)


def hold_out_forms(
    rows: ModelRows,
    law: Law,
    forms: tuple[Form, ...],
    fold: IntArray,
    *,
    categorical: tuple[int, ...] = (),
    average: bool = True,
    exposures: Sequence[Array] | None = None,
    n_jobs: int | None,
) -> HeldOutForms:
    """Fit every form without each fold in turn, on threads, and weigh the forms.

    ``exposures`` are those of the rows for the fits without each fold, if they are not the same.
    Costs a fit for each form and fold, of 25 passes over the rows or so.
    """
    products = any(PAIR in form.base for form in forms)
    with one_blas_thread():
        chooser = Chooser.of_rows(rows, law, categorical, with_products=products, n_jobs=n_jobs)
    groups = chooser.basis.blocks()[1]
    named = {f.name: f for f in forms if PAIR in groups or PAIR not in f.base}
    folds = [np.flatnonzero(fold == j) for j in range(int(fold.max()) + 1)]
    choosers = [chooser] * len(folds)
    if exposures is not None:
        choosers = [replace(chooser, rows=replace(rows, exposure=each)) for each in exposures]
    # Folds share the threads: those that are left over after whole rounds have several each.
    threads, found = n_threads(n_jobs), []
    left = len(folds) % threads
    inner = [1] * (len(folds) - left) + [threads // max(left, 1)] * left
    fit_all = partial(Chooser.fit_all, forms=tuple(named.values()))
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for fitted in pool.map(fit_all, choosers, folds, inner):
            found.append(fitted)
            PROGRESS.debug("%s: %d of %d", topic(forms), len(found), len(folds))
    fits = {name: [fit[name] for fit in found] for name in named}
    losses = {name: np.full(len(rows.y), f.price / len(rows.y)) for name, f in named.items()}
    for j, held in enumerate(folds):
        of_fold = choosers[j].losses({name: fits[name][j] for name in named}, held)
        for name, loss in of_fold.items():
            losses[name][held] += loss
    table = FormTable.of_losses(losses, average=average)
    return HeldOutForms(chooser, named, fits, table).trimmed()


def average_forms(
    rows: ModelRows,
    law: Law,
    forms: tuple[Form, ...],
    fold: IntArray,
    *,
    categorical: tuple[int, ...] = (),
    average: bool = True,
    n_jobs: int | None,
    rng: Rng,
) -> tuple[AdditiveAverage, HeldOutForms]:
    """Weigh forms by held-out likelihood on a sample, then let all rows have their say.

    Up to 20,000 rows the average is over the fits without each fold, which do better together
    than one fit to all. Also return the fits without each fold: of rows beyond the sample, none
    of these has seen any.
    """
    n = len(rows.y)
    at = np.sort(rng.permutation(n)[:CHOICE_ROWS])
    held = hold_out_forms(
        rows.take(at),
        law,
        forms if n <= CHOICE_ROWS else tuple(form for form in forms if not form.grows),
        fold[at],
        categorical=categorical,
        average=average,
        n_jobs=n_jobs,
    )
    if n <= CHOICE_ROWS:
        together = held.average()
        if not any(form.effect for form in forms):
            return together, held  # no one asks for the error of a mean
        best = held.everyone(held.table.name[0], FINAL_TOL, n_jobs, near=together.best)
        return replace(together, best=best), held
    held = held.for_more(n / len(at))
    data = AdditiveRows(rows.X.T, rows.y, rows.exposure, rows.weight)
    finals = {}
    for name in held.table.kept:
        fit = held.everyone(name, CHOICE_TOL, n_jobs)
        over_all = pass_by_pieces(held.chooser.basis, data, fit.parts, n_jobs)
        with one_blas_thread():
            finals[name] = fit_additive(
                over_all, fit.parts, fit.law, fit.coef, fit.scales, **OVER_ALL
            )
    return held.finished(finals), held


def more_steps(fit: AdditiveFit) -> Steps:
    """Return a few more steps over other rows, from where a fit ended."""
    return fit_steps(fit.parts, fit.law, fit.coef, fit.scales, **OVER_ALL)
