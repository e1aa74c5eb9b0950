"""Additive models of several forms, averaged by held-out likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from scipy.optimize import least_squares

from unjoined._support import PROGRESS
from unjoined._threads import (
    CACHE_ROWS,
    Scratch,
    n_threads,
    one_blas_thread,
    over_pieces,
)
from unjoined._typing import Array, IntArray
from unjoined.data.rows import some_rows
from unjoined.model.additive_basis import (
    CURVE,
    PAIR,
    SQUARE,
    AdditiveBasis,
    leading_features,
)
from unjoined.model.boxes import OF_BASE, OF_EFFECT, Rule, find_rules, write_rules
from unjoined.model.families import (
    BernoulliFamily,
    Family,
    MeanFamily,
    Sums,
    choose_threshold,
    robust_deviation,
    with_noise,
)
from unjoined.model.newton import (
    DEAR,
    AdditiveFit,
    AdditiveRows,
    Parts,
    Pass,
    Steps,
    fit_additive,
    fit_steps,
    fits_without,
    pass_by_pieces,
    pass_in_memory,
)
from unjoined.model.specifications import (
    ALIKE,
    CURVES,
    EFFECT_RULE,
    FOUND,
    NOTHING,
    AdditiveAverage,
    Member,
    ModelRows,
    Specification,
    SpecificationTable,
    grow,
    squared_slopes,
    topic,
)

UNUSED = "unused"  # what was screened out
IDLE = 0.02  # log-odds or standard deviations of the outcome that are not missed
ALL_PAIRS = 66  # more are screened: those of 12 features have all a say
ALL_BENDS = 12  # features; of more, those are bent that show it
KEPT = {
    PAIR: 10,
    CURVE: 6,
}  # of what is screened: for the base, and as many for the effect
CHOICE_ROWS = 20_000  # rows that choose among forms; all rows have a say afterwards
MORE_STEPS = 15  # for a form that contains one that was fitted
SAMPLE_STEPS = 3  # the same, if more rows than choose have the last word
CHOICE_TOL = 1e-2  # nats: forms differ by more
MOST_TRIED = 2  # forms that are fitted to more rows than choose
OVER_ALL: Any = {
    "n_steps": 2,
    "near": True,
    "dear": True,
    "tol": 0.01,
}  # for a fit to a sample, over all rows
FINAL_TOL = 1e-6
SHIFT_PRECISION = 0.1  # of the shift that levels an effect, log-odds: next to nothing
TINY = 1e-12
Fits = dict[str, AdditiveFit]  # by form
GROSS = 3.0  # robust standard deviations of the outcome


@dataclass(frozen=True, slots=True)
class Chooser:
    """Rows that choose among forms, with the values of all functions at them."""

    rows: ModelRows
    family: Family
    basis: AdditiveBasis
    values: Array  # (p, n)
    features: frozenset[int] | None = None  # columns that may be used; None for all
    more_steps: int = MORE_STEPS  # for a form that contains one that was fitted
    rules: dict[Rule, str] = field(default_factory=dict)  # that may be used, by group

    @classmethod
    def of_rows(
        cls,
        rows: ModelRows,
        family: Family,
        categorical: tuple[int, ...],
        leading: Sequence[frozenset[int] | None],
        *,
        with_products: bool,
        n_jobs: int | None,
    ) -> Chooser:
        """Draw the functions for these rows, and bound the pull of gross outcomes if it pays.

        ``leading`` are the features that the fits without each fold may use.
        """
        some = None
        if leading[0] is not None:
            some = np.array(
                sorted(frozenset().union(*(each for each in leading if each)))
            )
        basis = AdditiveBasis.of_rows(
            rows.X,
            rows.weight,
            categorical=categorical,
            features=some,
            with_products=with_products,
        )
        chooser = cls(rows, family, basis, basis(rows.X).T, leading[0])
        if isinstance(family, MeanFamily):
            specification = Specification(
                "", CURVES, CURVES if rows.exposure.any() else NOTHING
            )
            # Gross outcomes would spoil the residuals by which they are to be judged.
            bound = GROSS * robust_deviation(rows.y, rows.weight) or np.inf
            fit = replace(chooser, family=MeanFamily(bound)).fit(
                specification, np.arange(len(rows.y)), CHOICE_TOL, n_jobs=n_jobs
            )
            base, effect = fit(chooser.values.T)
            pull = rows.exposure * effect
            threshold = choose_threshold(rows.y - base - pull, rows.weight, pull)
            chooser = replace(chooser, family=MeanFamily(threshold))
        return chooser

    def fit(
        self,
        specification: Specification,
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
        parts = self.parts_of(specification, at, simpler) if like is None else like
        rows = self.rows.take(at)
        inner = parts.within()
        values = self.values[np.ix_(parts.base, at)]
        data = AdditiveRows(values, rows.y, rows.exposure, rows.weight)
        pass_over = pass_in_memory(data, inner, n_jobs)
        start = np.zeros(len(parts.block))
        n = float(rows.people.sum())  # as if people were written out
        options: Any = {"dear": n > DEAR * len(start), "tol": tol}
        if simpler is None:
            start[0] = self.family.intercept(
                float(np.average(rows.y, weights=rows.weight))
            )
            fit = fit_additive(pass_over, inner, self.family, start, **options)
        else:
            k = len(simpler.parts.base)
            p = len(parts.base)
            for ours, theirs, to, known in (
                (parts.base, simpler.parts.base, start[:p], simpler.coef[:k]),
                (parts.effect, simpler.parts.effect, start[p:], simpler.coef[k:]),
            ):
                _, here, there = np.intersect1d(ours, theirs, return_indices=True)
                to[here] = known[there]
            scales = simpler.scales.carried(simpler.parts, parts)
            fit = fit_additive(
                pass_over,
                inner,
                simpler.family,
                start,
                scales,
                n_steps=self.more_steps,
                near=True,
                **options,
            )
        return replace(fit, parts=parts)

    def grow(self, fit: AdditiveFit, at: IntArray, tol: float) -> AdditiveFit:
        """Fit an effect that goes with the base of a fit to some of the rows."""
        return grow(
            fit, self.rows.take(at), self.values[np.ix_(fit.parts.base, at)], tol
        )

    def parts_of(
        self, specification: Specification, at: IntArray, simpler: AdditiveFit | None
    ) -> Parts:
        """Return the functions of a form: of very many, those that some rows ask for most."""
        block, groups, columns = self.basis.blocks()
        own = (self.rules.get(rule, UNUSED) for rule in self.basis.rules)
        groups = (*groups[: len(groups) - len(self.basis.rules)], *own)
        if self.features is not None:
            allowed = self.features.union(
                column for column, _, _ in self.basis.categories
            )
            groups = tuple(
                group if allowed.issuperset(of) else UNUSED
                for group, of in zip(groups, columns, strict=True)
            )
        if simpler is not None:
            groups = self._screened(block, groups, specification, simpler, at)
        return Parts.of_groups(
            block, groups, specification.base, specification.effect, specification.few
        )

    def _screened(
        self,
        block: IntArray,
        groups: tuple[str, ...],
        specification: Specification,
        fit: AdditiveFit,
        at: IntArray,
    ) -> tuple[str, ...]:
        """Name what can be done without: bends that a fit shrank, functions it does not ask for."""
        named = np.array(groups)
        used = np.full(len(groups), True)
        size = np.zeros(len(groups))
        np.add.at(
            size, block[np.concatenate([fit.parts.base, fit.parts.effect])], fit.coef**2
        )
        bends = (named == SQUARE) | (named == CURVE)
        has_bends = bool(bends[block[fit.parts.base]].any())
        if has_bends and len(self.basis.bent) > ALL_BENDS:
            used = ~bends | (size > IDLE**2)
            if (
                CURVE in specification.effect
                and not bends[block[fit.parts.effect]].any()
            ):
                best = self._asked_for(CURVE, block, named, fit, at)[-1]
                squares = np.flatnonzero(named == SQUARE)
                curves = np.flatnonzero(named == CURVE)
                used[np.concatenate([squares[best], curves[best]])] = True
        if PAIR in specification.base and len(self.basis.pairs) > ALL_PAIRS:
            places = np.flatnonzero(named == PAIR)
            used[places] = False
            both = PAIR in specification.effect
            for best in self._asked_for(PAIR, block, named, fit, at, both=both):
                used[places[best]] = True
        return tuple(np.where(used, named, UNUSED).tolist())

    def _asked_for(
        self,
        kind: str,
        block: IntArray,
        named: Array,
        fit: AdditiveFit,
        at: IntArray,
        *,
        both: bool = True,
    ) -> list[IntArray]:
        """Return which blocks of a kind would change a fit's base, and effect, most."""
        places = np.flatnonzero(named == kind)
        wanted = np.isin(block, places)
        of_block = np.searchsorted(places, block[wanted])
        found = []
        values = self.values
        for slope, variance in squared_slopes(
            fit, self.rows, values, at, wanted, both=both
        ):
            score = np.bincount(of_block, slope) / np.bincount(of_block, variance)
            found.append(np.argsort(-score, kind="stable")[: KEPT[kind]])
        return found

    def fit_all(
        self,
        held: IntArray,
        n_jobs: int,
        fits: Fits,
        *,
        specifications: tuple[Specification, ...],
    ) -> Fits:
        """Fit forms without some rows, each from where the last one that it contains ended.

        ``fits`` are those of forms that are fitted already; they are returned with the others.
        """
        rest = np.delete(np.arange(len(self.rows.y)), held)
        fits = dict(fits)
        for k, specification in enumerate(specifications):
            if specification.name in fits:
                continue
            if specification.grows:
                fits[specification.name] = self.grow(
                    fits[specification.grows], rest, CHOICE_TOL
                )
                continue
            inside = _inside(specification, specifications[:k])
            simpler = fits[inside[-1]] if inside else None
            fits[specification.name] = self.fit(
                specification, rest, CHOICE_TOL, simpler=simpler, n_jobs=n_jobs
            )
        return fits

    def found_rules(
        self, held: IntArray, fit: AdditiveFit, *, group: str
    ) -> dict[Rule, str]:
        """Return the rules that a form may use, and a group of those that a simpler one lacks.

        By the rows that a fit may see: those that judge it must not choose its rules.
        """
        rest = np.delete(np.arange(len(self.rows.y)), held)
        rows = self.rows.take(rest)
        base, effect = fit(self.values[:, rest].T)
        features = self.basis.features
        found = find_rules(
            (rows.X, rows.y, rows.exposure, rows.weight),
            [c for c in features if self.features is None or c in self.features],
            fit.family,
            base,
            effect,
            OF_EFFECT if group == EFFECT_RULE else OF_BASE,
        )
        return self.rules | dict.fromkeys(found, group)

    def with_rules(self, rules: Iterable[Rule]) -> Chooser:
        """Return the same with the values of more functions."""
        new = tuple(dict.fromkeys(r for r in rules if r not in self.basis.rules))
        more = np.empty((len(new), len(self.rows.y)))
        write_rules(new, self.rows.X, more)
        basis = replace(self.basis, rules=(*self.basis.rules, *new))
        return replace(self, basis=basis, values=np.vstack([self.values, more]))

    def losses(self, fits: Fits, held: IntArray) -> dict[str, Array]:
        """Return the losses of rows that the fits have not seen."""
        rows = self.rows.take(held)
        values = self.values[:, held].T
        losses = {}
        noise = min(getattr(fit.family, "variance", 1.0) for fit in fits.values())
        for name, fit in fits.items():
            family = with_noise(fit.family, noise)
            losses[name] = (
                rows.weight * family(rows.y, rows.exposure, *fit(values)).loss
            )
        return losses


def _inside(specification: Specification, others: Iterable[Specification]) -> list[str]:
    """Return the names of the forms that another one contains."""
    return [
        f.name
        for f in others
        if f.base <= specification.base and f.effect <= specification.effect
    ]


@dataclass(frozen=True, slots=True)
class HeldOutSpecifications:
    """Every form fitted without each fold in turn, and how the forms did there."""

    chooser: Chooser
    specifications: dict[str, Specification]
    fits: dict[str, list[AdditiveFit]]  # of each form, without each fold
    table: SpecificationTable
    others: tuple[SpecificationTable, ...]  # of each fold, by the rows of all others

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.others)

    def trimmed(self) -> HeldOutSpecifications:
        """Return the forms that are kept, without the pairs that none of them uses."""
        used = np.full(self.chooser.basis.size, False)
        kept = dict.fromkeys(
            name for table in (self.table, *self.others) for name in table.kept
        )
        fits = {name: self.fits[name] for name in (kept | dict.fromkeys(self.leading))}
        for fit in (fit for each in fits.values() for fit in each):
            used[fit.parts.base] = used[fit.parts.effect] = True
        basis, left = self.chooser.basis.trimmed(used)
        place = np.cumsum(left) - 1
        for name, each in fits.items():
            fits[name] = [replace(fit, parts=fit.parts.moved(place)) for fit in each]
        chooser = replace(self.chooser, basis=basis, values=self.chooser.values[left])
        return replace(self, chooser=chooser, fits=fits)

    def without(self, j: int) -> AdditiveAverage:
        """Return the average of the fits without fold ``j``, by the losses of all other rows."""
        return self._averaged(self.others[j], j)

    def average(self) -> AdditiveAverage:
        """Return the average of all fits without one fold."""
        each = [self._averaged(self.table, j) for j in range(self.n_folds)]
        members = [
            replace(m, weight=m.weight / len(each)) for one in each for m in one.members
        ]
        return replace(each[0], members=tuple(members))

    def _averaged(self, table: SpecificationTable, j: int) -> AdditiveAverage:
        """Return the average of the fits without fold ``j`` by the weights of a table."""
        basis, fits = self.chooser.basis, self.fits
        kept = table.kept.items()
        members = (
            Member.of_fit(w, name, fits[name][j], basis.size) for name, w in kept
        )
        return AdditiveAverage(basis, tuple(members), table, fits[table.name[0]][j])

    def for_passes(self) -> HeldOutSpecifications:
        """Return the forms that are worth passes over very many rows, by their present weights."""
        return replace(self, table=self.table.leading())

    @property
    def leading(self) -> tuple[str, ...]:
        """The likeliest form and those that contain it, which may do better with more rows.

        Where these leave the effect the same for all, so few rows say nothing of it: then the
        likeliest one with an effect that varies is tried as well.
        """
        first = self.specifications[self.table.name[0]]

        def containing(base: frozenset[str]) -> list[Specification]:
            every = (self.specifications[name] for name in self.table.name)
            return [s for s in every if s.base >= base and s.effect >= first.effect]

        tried = [first, *(s for s in containing(first.base) if s != first)][:MOST_TRIED]
        if all(s.effect == first.effect == ALIKE for s in tried):
            richest = frozenset().union(*(s.base for s in tried))
            tried += [s for s in containing(richest) if s.effect > ALIKE][:1]
        return tuple(s.name for s in tried)

    def finished(self, finals: Fits) -> AdditiveAverage:
        """Return the average of the forms that are kept, as fitted to all rows."""
        basis, kept = self.chooser.basis, self.table.kept
        members = (
            Member.of_fit(w, name, finals[name], basis.size) for name, w in kept.items()
        )
        return AdditiveAverage(
            basis, tuple(members), self.table, finals[self.table.name[0]]
        )

    def everyone(
        self,
        name: str,
        tol: float,
        n_jobs: int | None,
        *,
        near: AdditiveFit | None = None,
    ) -> AdditiveFit:
        """Fit a form to all rows that choose, from nothing or from a fit that is near."""
        at = np.arange(len(self.chooser.rows.y))
        specification = self.specifications[name]
        chooser = self.chooser
        like = (near or self.fits[name][0]).parts
        with one_blas_thread():
            if specification.grows:
                base = chooser.fit(
                    specification, at, tol, like=like.alone(), n_jobs=n_jobs
                )
                return chooser.grow(base, at, tol)
            return chooser.fit(
                specification, at, tol, simpler=near, like=like, n_jobs=n_jobs
            )


def hold_out_specifications(
    rows: ModelRows,
    family: Family,
    specifications: tuple[Specification, ...],
    fold: IntArray,
    *,
    categorical: tuple[int, ...] = (),
    is_sample: bool = False,
    n_jobs: int | None,
) -> HeldOutSpecifications:
    """Fit every form without each fold in turn, on threads, and weigh the forms.

    Of a sample of more rows, fits stop earlier: the others will have the last word. Costs a fit for
    each form and fold, of 25 passes over the rows or so.
    """
    products = any(PAIR in specification.base for specification in specifications)
    folds = [np.flatnonzero(fold == j) for j in range(int(fold.max()) + 1)]
    # By the rows that a fit may see: those that judge it must not choose its features.
    leading = [
        leading_features(rows.X, rows.y, rows.exposure, rows.weight * (fold != j))
        for j in range(len(folds))
    ]
    with one_blas_thread():
        chooser = Chooser.of_rows(
            rows, family, categorical, leading, with_products=products, n_jobs=n_jobs
        )
    groups = chooser.basis.blocks()[1]
    named = {
        f.name: f
        for f in specifications
        if PAIR in groups or PAIR not in f.base or f.base & FOUND
    }
    if is_sample:
        chooser = replace(chooser, more_steps=SAMPLE_STEPS)
    choosers = [replace(chooser, features=some) for some in leading]
    # Folds share the threads: those that are left over after whole rounds have several each.
    threads = n_threads(n_jobs)
    left = len(folds) % threads
    inner = [1] * (len(folds) - left) + [threads // max(left, 1)] * left
    forms = tuple(f for f in named.values() if not f.base & FOUND)
    fits_of: list[Fits] = []
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        fit_all = partial(Chooser.fit_all, specifications=forms)
        for fitted in pool.map(fit_all, choosers, folds, inner, [{}] * len(folds)):
            fits_of.append(fitted)
            PROGRESS.debug(
                "%s: %d of %d", topic(specifications), len(fits_of), len(folds)
            )
        known = NOTHING  # groups of rules
        for form in (f for f in named.values() if f.base & FOUND):
            (group,) = (form.base & FOUND) - known
            known |= {group}
            start = _inside(form, forms)[-1]
            find = partial(Chooser.found_rules, group=group)
            rules = list(
                pool.map(find, choosers, folds, [fits[start] for fits in fits_of])
            )
            chooser = chooser.with_rules(rule for own in rules for rule in own)
            choosers = [
                replace(chooser, features=some, rules=own)
                for some, own in zip(leading, rules, strict=True)
            ]
            forms += (form,)
            fit_all = partial(Chooser.fit_all, specifications=forms)
            fits_of = list(pool.map(fit_all, choosers, folds, inner, fits_of))
    fits = {name: [fit[name] for fit in fits_of] for name in named}
    losses = {
        name: f.price * rows.people / rows.people.sum() for name, f in named.items()
    }
    for j, held in enumerate(folds):
        lost = choosers[j].losses({name: fits[name][j] for name in named}, held)
        for name, loss in lost.items():
            losses[name][held] += loss
    table = SpecificationTable.of_losses(losses, rows)
    others = tuple(
        SpecificationTable.of_losses(
            {name: np.delete(loss, at) for name, loss in losses.items()},
            rows.take(np.delete(np.arange(len(rows.y)), at)),
        )
        for at in folds
    )
    return HeldOutSpecifications(chooser, named, fits, table, others).trimmed()


def levelled(held: HeldOutSpecifications, fold: IntArray) -> HeldOutSpecifications:
    """Shift base and effect so that the average uplift is the one that held-out outcomes show.

    Where the scales shrink a base of log-odds, chances come out less extreme than they are. An
    effect would make them less extreme still, so that the likelihood asks for less of it: up to
    half of the average is lost at 4 x 100 rows. One shift of all bases and one of all effects make
    up for it: with them the residuals of rows that a fit has not seen add up to nothing, by
    themselves and times each row's chance of treatment. A mean of a real outcome needs no shift and
    has none.
    """
    family = held.chooser.family
    rows = held.chooser.rows
    names = list(held.fits)
    if not isinstance(family, BernoulliFamily):
        return held
    base, effect, weight = (np.empty((len(rows.y), len(names))) for _ in range(3))
    for j, table in enumerate(held.others):
        at = np.flatnonzero(fold == j)
        weight[at] = [table.kept.get(name, 0.0) for name in names]
        for i, name in enumerate(names):
            base[at, i], effect[at, i] = held.fits[name][j](
                held.chooser.values[:, at].T
            )
    apart = rows.exposure - family.split

    def mixed(shift: Array) -> Array:
        treated, untreated = family.arms(base + shift[0], effect + shift[1], base)
        means = untreated + rows.exposure[:, None] * (treated - untreated)
        return np.asarray(np.einsum("ij,ij->i", means, weight))

    propensity = mixed(np.zeros(2))
    noise = rows.weight * propensity * (1.0 - propensity)
    per = np.sqrt(np.maximum([noise.sum(), apart**2 @ noise], TINY))

    def left(shift: Array) -> Array:
        residual = rows.weight * (rows.y - mixed(shift))
        sums = np.array([residual.sum(), apart @ residual]) / per
        return np.append(sums, np.sqrt(SHIFT_PRECISION) * shift[1])

    shift = least_squares(left, np.zeros(2)).x
    fits = {
        name: [_shifted(fit, *shift) for fit in each]
        for name, each in held.fits.items()
    }
    return replace(held, fits=fits)


def _shifted(fit: AdditiveFit, base: float, effect: float) -> AdditiveFit:
    """Add to the constants of base and effect, which come first in each."""
    coef = fit.coef.copy()
    coef[[0, len(fit.parts.base)]] += base, effect
    return replace(fit, coef=coef)


def average_specifications(
    rows: ModelRows,
    family: Family,
    specifications: tuple[Specification, ...],
    fold: IntArray,
    *,
    categorical: tuple[int, ...] = (),
    n_jobs: int | None,
    rng: Rng,
) -> tuple[AdditiveAverage, tuple[AdditiveAverage, ...], IntArray]:
    """Weigh forms by held-out likelihood and average them.

    Also return the fits without each fold, and the fold of each row. Up to 20,000 rows the average
    is over these fits, which do better together than one fit to all. Of more rows, a sample says
    which forms are tried over all.
    """
    n = len(rows.y)
    at = some_rows(n, CHOICE_ROWS, rng)
    held = hold_out_specifications(
        rows.take(at),
        family,
        specifications
        if n <= CHOICE_ROWS
        else tuple(
            specification for specification in specifications if not specification.grows
        ),
        fold[at],
        categorical=categorical,
        is_sample=n > CHOICE_ROWS,
        n_jobs=n_jobs,
    )
    if n > CHOICE_ROWS:
        return _over_all(held, rows, at, fold, n_jobs=n_jobs)
    if not any(
        specification.effect for specification in specifications
    ):  # of a mean, whose error no one asks for
        together = held.average()
    else:
        name = held.table.name[0]
        best = held.everyone(name, FINAL_TOL, n_jobs, near=held.fits[name][0])
        held = levelled(held, fold)
        together = replace(held.average(), best=best)
    return together, tuple(held.without(j) for j in range(held.n_folds)), fold


class PassByFolds:
    """A pass over all rows that remembers what each fold added at the last coefficients."""

    def __init__(self, folds: Sequence[Pass]) -> None:
        self.folds = folds
        self.last: tuple[Family, Array, list[Sums]] | None = None

    def at(self, family: Family, coef: Array) -> list[Sums]:
        """Return the sums of each fold at coefficients."""
        if (
            self.last is None
            or self.last[0] != family
            or not np.array_equal(self.last[1], coef)
        ):
            self.last = (
                family,
                coef,
                [pass_over(family, coef) for pass_over in self.folds],
            )
        return self.last[2]

    def __call__(self, family: Family, coef: Array) -> Sums:
        """Return the sums of all rows at coefficients."""
        return reduce(add, self.at(family, coef))


def _over_all(
    held: HeldOutSpecifications,
    rows: ModelRows,
    at: IntArray,
    fold: IntArray,
    *,
    n_jobs: int | None,
) -> tuple[AdditiveAverage, tuple[AdditiveAverage, ...], IntArray]:
    """Fit the forms that a sample, ``at``, leads with to all rows, and weigh them there.

    A fit without a fold is one step from the fit to all rows, exact but for the square of a small
    change. Rows of the sample have chosen the functions: they are met by the sample's own fits,
    whose folds come first. All others are met by fits to all rows but theirs.
    """
    basis = held.chooser.basis
    K = held.n_folds
    d = rows.X.shape[1]
    starts = range(0, len(rows.y), CACHE_ROWS)
    waves = over_pieces(
        lambda at: basis.waves(rows.X[at : at + CACHE_ROWS]), starts, n_jobs
    )
    wide = np.hstack([rows.X, np.concatenate(list(waves))])

    scratch = Scratch()

    def values(X: Array) -> Array:
        out = scratch.array("values", basis.size, len(X))
        return basis(X[:, :d], X[:, d:], out=out)

    data = AdditiveRows(wide.T, rows.y, rows.exposure, rows.weight)
    folds = [np.flatnonzero(fold == j) for j in range(K)]
    parts = [AdditiveRows(*(array[..., inside] for array in data)) for inside in folds]
    finals: Fits = {}
    without: dict[str, list[AdditiveFit]] = {}
    with one_blas_thread():
        for name in held.leading:
            first = held.fits[name][0]
            near = held.everyone(name, CHOICE_TOL, n_jobs, near=first)
            passes = PassByFolds(
                [pass_by_pieces(values, part, near.parts, n_jobs) for part in parts]
            )
            fit = fit_additive(
                passes, near.parts, near.family, near.coef, near.scales, **OVER_ALL
            )
            finals[name], without[name] = (
                fit,
                fits_without(fit, passes.at(fit.family, fit.coef)),
            )
    losses = _row_losses(values, replace(rows, X=wide), fold, without, n_jobs)
    beyond = np.delete(np.arange(len(rows.y)), at)
    tables = [
        SpecificationTable.of_losses(
            {name: loss[some] for name, loss in losses.items()}, rows.take(some)
        )
        for some in (beyond, *(beyond[fold[beyond] != j] for j in range(K)))
    ]
    all_rows = replace(held, fits=without, table=tables[0], others=tuple(tables[1:]))
    each = (
        *(held.without(j) for j in range(K)),
        *(all_rows.without(j) for j in range(K)),
    )
    place = fold + K
    place[at] = fold[at]
    return all_rows.finished(finals), each, place


def _row_losses(
    basis: Callable[[Array], Array],
    rows: ModelRows,
    fold: IntArray,
    without: dict[str, list[AdditiveFit]],
    n_jobs: int | None,
) -> dict[str, Array]:
    """Return the loss of every row by each form's fit without its fold."""
    losses = {name: np.empty(len(rows.y)) for name in without}
    noise = min(getattr(fits[0].family, "variance", 1.0) for fits in without.values())

    def fill(start: int) -> None:
        at = slice(start, start + CACHE_ROWS)
        values = basis(rows.X[at])
        own = fold[at]
        for name, fits in without.items():
            family = with_noise(fits[0].family, noise)
            row = np.arange(len(own))
            members = [Member.of_fit(1.0, name, fit, values.shape[1]) for fit in fits]
            base = values @ np.column_stack([member.base for member in members])
            effect = values @ np.column_stack([member.effect for member in members])
            terms = family(
                rows.y[at], rows.exposure[at], base[row, own], effect[row, own]
            )
            losses[name][at] = rows.weight[at] * terms.loss

    for _ in over_pieces(fill, range(0, len(rows.y), CACHE_ROWS), n_jobs):
        pass
    return losses


def more_steps(fit: AdditiveFit) -> Steps:
    """Return a few more steps over other rows, from where a fit ended."""
    return fit_steps(fit.parts, fit.family, fit.coef, fit.scales, **OVER_ALL)
