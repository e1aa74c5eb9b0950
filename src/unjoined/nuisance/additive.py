"""Additive models of several forms, averaged by held-out likelihood; conditional means by them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit

from unjoined._threads import n_threads, one_blas_thread
from unjoined._typing import Array, IntArray
from unjoined.basis import (
    CATEGORY,
    CONSTANT,
    CURVE,
    LINE,
    PAIR,
    SQUARE,
    AdditiveBasis,
    weighted_quantile,
)
from unjoined.solve import (
    AdditiveFit,
    AdditiveRows,
    BernoulliLaw,
    Law,
    MeanLaw,
    Parts,
    Pass,
    fit_additive,
    pass_by_pieces,
    pass_in_memory,
)

NOTHING: frozenset[str] = frozenset()
LINES = frozenset({CONSTANT, LINE, CATEGORY})
CURVES = LINES | {SQUARE, CURVE}
PAIRS = CURVES | {PAIR}
MOST_WITH_PAIRS = 12  # features; beyond, there are too many pairs
MOST_FEATURES = 100  # those that go along with the labels most
CHOICE_ROWS = 20_000  # rows that choose among forms; all rows have a say afterwards
MORE_STEPS = 15  # for a form that contains one that was fitted
ALL_ROWS_STEPS = 4
NATS = 4.0  # held-out nats that change the weight of a form by a factor of e
LEAST_WEIGHT = 0.01
FAINT = 0.25  # of the likeliest form's weight: not worth passes over very many rows
CHOICE_TOL = 1e-2  # nats: forms differ by more
FINAL_TOL = 1e-6
THRESHOLDS = (6.0, 3.0, 1.5)  # of robust standard deviations
LOPSIDED = 0.3  # tails that differ by more than this share are not symmetric noise
WORTHWHILE = 0.9  # share of the variance that a threshold must bring it below
MEAN_FOLDS = 3


class Form(NamedTuple):
    """Which functions base and effect are made of."""

    name: str
    base: frozenset[str]
    effect: frozenset[str]


ALONE = ("linear base alone", "base alone")
EFFECT_FORMS = (
    Form(ALONE[0], LINES, frozenset({CONSTANT})),
    Form("lines", LINES, LINES),
    Form(ALONE[1], CURVES, frozenset({CONSTANT})),
    Form("linear effect", CURVES, LINES),
    Form("curved effect", CURVES, CURVES),
    Form("pairs", PAIRS, PAIRS),
)
MEAN_FORMS = (
    Form("lines", LINES, NOTHING),
    Form("curves", CURVES, NOTHING),
    Form("pairs", PAIRS, NOTHING),
)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Rows of one label as an additive model sees them."""

    X: Array  # (n, d)
    y: Array  # (n,) 0/1, or with mean 0 and variance 1
    exposure: Array  # (n,) probability of treatment, or its distance from the mean policy
    weight: Array  # (n,) adding up to the number of rows of equal weight that are worth as much

    @classmethod
    def of_weights(cls, X: Array, y: Array, exposure: Array, weight: Array) -> ModelRows:
        """Return rows whose weights have any scale."""
        return cls(X, y, exposure, weight * (weight.sum() / np.sum(weight**2)))

    def take(self, at: IntArray) -> ModelRows:
        """Return some of the rows."""
        return ModelRows(self.X[at], self.y[at], self.exposure[at], self.weight[at])


@dataclass(frozen=True, slots=True)
class Member:
    """One fit that has a say in the average; coefficients are those of the whole basis."""

    weight: float
    form: str
    law: Law
    base: Array  # (p,)
    effect: Array  # (p,)

    @classmethod
    def of_fit(cls, weight: float, form: str, fit: AdditiveFit, size: int) -> Member:
        """Return a fit with zeros for the functions that it does not use."""
        base, effect = np.zeros(size), np.zeros(size)
        k = len(fit.parts.base)
        base[fit.parts.base], effect[fit.parts.effect] = fit.coef[:k], fit.coef[k:]
        return cls(weight, form, fit.law, base, effect)


@dataclass(frozen=True, slots=True)
class FormTable:
    """Every form that was tried, the likeliest first."""

    name: tuple[str, ...]
    loss: Array  # held-out minus log-likelihood, nats over all rows that choose
    difference: Array  # to the first
    standard_error: Array  # of that difference, rows being independent
    weight: Array  # in the average

    @classmethod
    def of_losses(cls, losses: dict[str, Array], *, average: bool) -> FormTable:
        """Weigh the forms by their losses, row by row; without ``average`` the first wins."""
        total = {name: float(loss.sum()) for name, loss in losses.items()}
        order = sorted(total, key=lambda name: total[name])
        gaps = [losses[name] - losses[order[0]] for name in order]
        difference = np.array([gap.sum() for gap in gaps])
        error = np.array([np.sqrt(len(gap)) * gap.std() for gap in gaps])
        weight = np.exp(-difference / NATS) if average else 1.0 * (difference == difference[0])
        weight /= weight.sum()
        weight[weight < LEAST_WEIGHT] = 0.0
        loss = np.array([total[name] for name in order])
        return cls(tuple(order), loss, difference, error, weight / weight.sum())

    @property
    def kept(self) -> dict[str, float]:
        """The forms that are averaged, the likeliest first, with their weights."""
        pairs = zip(self.name, self.weight.tolist(), strict=True)
        return {name: weight for name, weight in pairs if weight > 0.0}

    def sharpened(self, factor: float) -> FormTable:
        """Return the weights that ``factor`` times as many rows would give, faint ones left out."""
        weight = np.where(self.weight > 0.0, np.exp(-factor * self.difference / NATS), 0.0)
        weight[weight < FAINT] = 0.0
        return replace(self, weight=weight / weight.sum())

    def gain_over(self, names: tuple[str, ...]) -> tuple[float, float]:
        """Return by how many nats the likeliest form beats the best of some, and the error."""
        j = min(self.name.index(name) for name in names)
        return float(self.difference[j]), float(self.standard_error[j])


@dataclass(frozen=True, slots=True)
class AdditiveAverage:
    """The fits that are averaged, and the likeliest form fitted to all rows that choose."""

    basis: AdditiveBasis
    members: tuple[Member, ...]
    forms: FormTable
    best: AdditiveFit

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return base and effect of each member at rows, shape (n, members) each."""
        values = self.basis(X)
        base = np.column_stack([member.base for member in self.members])
        effect = np.column_stack([member.effect for member in self.members])
        return values @ base, values @ effect

    def mean_effect(self, X: Array) -> Array:
        """Return the average of the members' effects: exactly the same at all rows if constant."""
        coef = self.weight @ np.array([member.effect for member in self.members])
        return np.asarray(self.basis(X) @ coef)

    @property
    def converged(self) -> bool:
        """Whether the likeliest form's last steps, with scales fixed, found their minimum."""
        return self.best.converged

    @property
    def objective(self) -> Array:
        """Penalised loss of these steps, nats; never rising."""
        return self.best.objective

    @property
    def weight(self) -> Array:
        """Of each member."""
        return np.array([member.weight for member in self.members])

    def log_likelihood(self, rows: ModelRows) -> Array:
        """Return the log-likelihood of each row under the averaged law, nats."""
        base, effect = self(rows.X)
        parts = [
            np.log(member.weight) - nats(member.law, rows, base[:, j], effect[:, j])
            for j, member in enumerate(self.members)
        ]
        return np.asarray(np.logaddexp.reduce(parts, axis=0))


def nats(law: Law, rows: ModelRows, base: Array, effect: Array) -> Array:
    """Return minus the log-likelihood of each row; that of a mean as if its noise were normal."""
    loss = law(rows.y, rows.exposure, base, effect).loss
    return loss + 0.5 * np.log(2.0 * np.pi * law.variance) if isinstance(law, MeanLaw) else loss


@dataclass(frozen=True, slots=True)
class Chooser:
    """Rows that choose among forms, with the values of all functions at them."""

    rows: ModelRows
    law: Law
    basis: AdditiveBasis
    values: Array  # (p, n)

    @classmethod
    def of_rows(
        cls, rows: ModelRows, law: Law, categorical: tuple[int, ...], *, with_pairs: bool
    ) -> Chooser:
        """Draw the functions for these rows, and bound the pull of gross outcomes if it pays."""
        basis = AdditiveBasis.of_rows(
            rows.X,
            rows.weight,
            categorical=categorical,
            features=leading_features(rows),
            with_pairs=with_pairs and rows.X.shape[1] <= MOST_WITH_PAIRS,
        )
        chooser = cls(rows, law, basis, basis(rows.X).T)
        if isinstance(law, MeanLaw):
            form = Form("", CURVES, CURVES if rows.exposure.any() else NOTHING)
            fit = chooser.fit(form, np.arange(len(rows.y)), CHOICE_TOL)
            base, effect = fit(chooser.values.T)
            residual = rows.y - base - rows.exposure * effect
            chooser = replace(chooser, law=MeanLaw(choose_threshold(residual, rows.weight)))
        return chooser

    def fit(
        self,
        form: Form,
        at: IntArray,
        tol: float,
        *,
        simpler: AdditiveFit | None = None,
        n_jobs: int | None = 1,
    ) -> AdditiveFit:
        """Fit a form to some of the rows, from where a simpler one ended if that is given."""
        block, groups, _ = self.basis.blocks()
        parts = Parts.of_groups(block, groups, form.base, form.effect)
        rows, inner = self.rows.take(at), parts.within()
        values = self.values[np.ix_(parts.base, at)]
        data = AdditiveRows(values, rows.y, rows.exposure, rows.weight)
        pass_over = pass_in_memory(data, inner, n_jobs)
        start = np.zeros(len(parts.block))
        if simpler is None:
            start[0] = self.law.intercept(float(np.average(rows.y, weights=rows.weight)))
            fit = fit_additive(pass_over, inner, self.law, start, tol=tol)
        else:
            k = len(simpler.parts.base)
            start[np.searchsorted(parts.base, simpler.parts.base)] = simpler.coef[:k]
            of_effect = np.searchsorted(parts.effect, simpler.parts.effect)
            start[len(parts.base) + of_effect] = simpler.coef[k:]
            scales = simpler.scales.extended(simpler.parts, parts)
            fit = fit_additive(
                pass_over, inner, simpler.law, start, scales, n_steps=MORE_STEPS, tol=tol
            )
        return replace(fit, parts=parts)

    def fit_chain(
        self, forms: Iterable[Form], at: IntArray, n_jobs: int | None = 1
    ) -> dict[str, AdditiveFit]:
        """Fit forms to some of the rows, each from where the last one ended that it contains."""
        fits: dict[str, AdditiveFit] = {}
        last: Form | None = None
        for form in forms:
            nested = last is not None and last.base <= form.base and last.effect <= form.effect
            simpler = fits[last.name] if last is not None and nested else None
            fits[form.name] = self.fit(form, at, CHOICE_TOL, simpler=simpler, n_jobs=n_jobs)
            last = form
        return fits

    def hold_out(
        self, forms: Iterable[Form], held: IntArray
    ) -> tuple[dict[str, AdditiveFit], dict[str, Array]]:
        """Fit forms without some rows, and return the losses of these."""
        rest = np.delete(np.arange(len(self.rows.y)), held)
        rows, values = self.rows.take(held), self.values[:, held].T
        fits = self.fit_chain(forms, rest)
        losses = {}
        # One noise for all forms: a bounded loss is no density that each could have its own of.
        noise = min(getattr(fit.law, "variance", 1.0) for fit in fits.values())
        for name, fit in fits.items():
            law = replace(fit.law, variance=noise) if isinstance(fit.law, MeanLaw) else fit.law
            losses[name] = rows.weight * law(rows.y, rows.exposure, *fit(values)).loss
        return fits, losses


@dataclass(frozen=True, slots=True)
class HeldOutForms:
    """Every form fitted without each fold in turn, and how the forms did there."""

    chooser: Chooser
    forms: dict[str, Form]
    fits: dict[str, list[AdditiveFit]]  # of each form, without each fold
    table: FormTable

    def without(self, j: int) -> AdditiveAverage:
        """Return the average of the fits that have not seen fold ``j``."""
        basis, fits = self.chooser.basis, self.fits
        kept = self.table.kept.items()
        members = (Member.of_fit(w, name, fits[name][j], basis.size) for name, w in kept)
        return AdditiveAverage(basis, tuple(members), self.table, fits[self.table.name[0]][j])

    def average(self) -> AdditiveAverage:
        """Return the average of all fits without one fold."""
        each = [self.without(j) for j in range(len(self.fits[self.table.name[0]]))]
        members = [replace(m, weight=m.weight / len(each)) for one in each for m in one.members]
        return replace(each[0], members=tuple(members))

    def everyone(self, name: str, tol: float, n_jobs: int | None) -> AdditiveFit:
        """Fit a form to all rows that choose."""
        at = np.arange(len(self.chooser.rows.y))
        with one_blas_thread():
            return self.chooser.fit(self.forms[name], at, tol, n_jobs=n_jobs)


def hold_out_forms(
    rows: ModelRows,
    law: Law,
    forms: tuple[Form, ...],
    fold: IntArray,
    *,
    categorical: tuple[int, ...] = (),
    average: bool = True,
    n_jobs: int | None,
) -> HeldOutForms:
    """Fit every form without each fold in turn, on threads, and weigh the forms.

    Costs a fit for each form and fold, of 25 passes over the rows or so.
    """
    with_pairs = any(PAIR in form.base for form in forms)
    with one_blas_thread():
        chooser = Chooser.of_rows(rows, law, categorical, with_pairs=with_pairs)
    named = {f.name: f for f in forms if chooser.basis.pairs or PAIR not in f.base}
    folds = [np.flatnonzero(fold == j) for j in range(int(fold.max()) + 1)]
    with one_blas_thread(), ThreadPoolExecutor(n_threads(n_jobs)) as pool:
        results = list(pool.map(lambda held: chooser.hold_out(named.values(), held), folds))
    fits = {name: [each[name] for each, _ in results] for name in named}
    losses = {name: np.zeros(len(rows.y)) for name in named}
    for held, (_, loss) in zip(folds, results, strict=True):
        for name in named:
            losses[name][held] = loss[name]
    return HeldOutForms(chooser, named, fits, FormTable.of_losses(losses, average=average))


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
) -> AdditiveAverage:
    """Weigh forms by held-out likelihood on a sample, then let all rows have their say.

    Up to 20,000 rows the average is over the fits without each fold, which do better together
    than one fit to all.
    """
    n = len(rows.y)
    at = np.sort(rng.permutation(n)[:CHOICE_ROWS])
    held = hold_out_forms(
        rows.take(at),
        law,
        forms,
        fold[at],
        categorical=categorical,
        average=average,
        n_jobs=n_jobs,
    )
    if n <= CHOICE_ROWS:
        best = held.everyone(held.table.name[0], FINAL_TOL, n_jobs)
        return replace(held.average(), best=best)
    basis, table = held.chooser.basis, held.table.sharpened(n / len(at))
    data = AdditiveRows(rows.X.T, rows.y, rows.exposure, rows.weight)
    finals = {}
    for name in table.kept:
        fit = held.everyone(name, CHOICE_TOL, n_jobs)
        finals[name] = continue_fit(pass_by_pieces(basis, data, fit.parts, n_jobs), fit)
    members = [Member.of_fit(w, name, finals[name], basis.size) for name, w in table.kept.items()]
    return AdditiveAverage(basis, tuple(members), table, finals[table.name[0]])


def continue_fit(pass_over: Pass, fit: AdditiveFit) -> AdditiveFit:
    """Take a few more steps over other rows, from where a fit ended."""
    with one_blas_thread():
        return fit_additive(
            pass_over,
            fit.parts,
            fit.law,
            fit.coef,
            fit.scales,
            n_steps=ALL_ROWS_STEPS,
            tol=CHOICE_TOL,
        )


def leading_features(rows: ModelRows) -> IntArray | None:
    """Return the columns that go along with the labels most, if there are very many."""
    if rows.X.shape[1] <= MOST_FEATURES:
        return None
    weight = rows.weight / rows.weight.sum()
    y = rows.y - weight @ rows.y
    score = np.zeros(rows.X.shape[1])
    for signal in (y, (rows.exposure - weight @ rows.exposure) * y):
        pull = rows.X.T @ (weight * signal) - (weight @ rows.X) * (weight @ signal)
        score = np.maximum(score, np.abs(pull) / max(np.sqrt(weight @ signal**2), 1e-300))
    spread = np.sqrt(np.maximum(weight @ rows.X**2 - (weight @ rows.X) ** 2, 0.0))
    score = np.divide(score, spread, out=np.zeros_like(score), where=spread > 0.0)
    return np.sort(np.argsort(-score, kind="stable")[:MOST_FEATURES])


def choose_threshold(residual: Array, weight: Array) -> float:
    """Return where the squared loss of a real outcome should turn linear; usually nowhere.

    Gross values on both sides make a mean very noisy; bounding their pull then lowers the variance
    of the fit, to E[psi^2] / E[psi']^2 for the bounded residual psi. That is done if both tails
    are alike: with a long tail on one side (sums of money), bounding would change what is
    estimated. In the units of the residual; infinity for the squared loss itself.
    """
    median = weighted_quantile(residual, weight, (0.5,))[0]
    spread = float(weighted_quantile(np.abs(residual - median), weight, (0.5,))[0]) / 0.6745
    best, chosen = float(np.average(residual**2, weights=weight)), np.inf
    for factor in THRESHOLDS:
        threshold = factor * spread
        upper = float(weight @ np.maximum(residual - threshold, 0.0))
        lower = float(weight @ np.maximum(-residual - threshold, 0.0))
        if spread == 0.0 or abs(upper - lower) > LOPSIDED * (upper + lower):
            break
        inside = float(np.average(np.abs(residual) < threshold, weights=weight))
        bounded = np.clip(residual, -threshold, threshold)
        variance = float(np.average(bounded**2, weights=weight)) / inside**2
        if variance < WORTHWHILE * best:
            best, chosen = variance, threshold
    return chosen


@dataclass(frozen=True, slots=True)
class AdditiveMean:
    """An estimate of E[label | x] by additive models; a chance if the label has two values."""

    model: AdditiveAverage
    offset: float
    scale: float
    is_binary: bool

    def __call__(self, X: Array) -> Array:
        """Return the mean at each row, in units of the label."""
        base, _ = self.model(X)
        mean = (expit(base) if self.is_binary else base) @ self.model.weight
        return np.asarray(self.offset + self.scale * mean)


def _coded(X: Array, label: Array, weight: Array) -> tuple[ModelRows, Law, float, float]:
    """Return rows of one label, which must vary, with its law, offset and scale."""
    low, high = float(label.min()), float(label.max())
    law: Law = BernoulliLaw(0.5)
    offset, scale = low, high - low
    if not np.all((label == low) | (label == high)):
        law = MeanLaw()
        offset = float(np.average(label, weights=weight))
        scale = float(np.sqrt(np.average((label - offset) ** 2, weights=weight)))
    rows = ModelRows.of_weights(X, (label - offset) / scale, np.zeros(len(label)), weight)
    return rows, law, offset, scale


def fit_additive_mean(
    X: Array, label: Array, weight: Array, *, n_jobs: int | None, rng: Rng
) -> AdditiveMean:
    """Fit the mean of one label, which must vary."""
    rows, law, offset, scale = _coded(X, label, weight)
    fold = deal(np.zeros(len(label), dtype=np.int64), MEAN_FOLDS, rng)
    model = average_forms(rows, law, MEAN_FORMS, fold, n_jobs=n_jobs, rng=rng)
    return AdditiveMean(model, offset, scale, isinstance(law, BernoulliLaw))


def cross_fit_additive_means(
    X: Array, label: Array, weight: Array, fold: IntArray, *, n_jobs: int | None, rng: Rng
) -> list[AdditiveMean]:
    """Fit the mean of one label, which must vary, without each fold in turn."""
    rows, law, offset, scale = _coded(X, label, weight)
    at = np.sort(rng.permutation(len(label))[:CHOICE_ROWS])
    held = hold_out_forms(rows.take(at), law, MEAN_FORMS, fold[at], n_jobs=n_jobs)
    is_binary = isinstance(law, BernoulliLaw)
    n_folds = int(fold.max()) + 1
    return [AdditiveMean(held.without(j), offset, scale, is_binary) for j in range(n_folds)]


def deal(cell: IntArray, n_folds: int, rng: Rng) -> IntArray:
    """Deal the rows of each cell evenly into folds, at most as many as there are rows."""
    fold = np.empty(len(cell), dtype=np.int64)
    names = np.unique(cell)
    if len(names) == len(cell):  # a fold of all of them would leave nothing to fit
        return np.arange(len(cell)) % n_folds
    for k in names:
        at = np.flatnonzero(cell == k)
        fold[at] = rng.permutation(np.resize(np.arange(min(n_folds, len(at))), len(at)))
    return fold
