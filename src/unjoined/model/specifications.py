"""Forms of base and effect, and fits of several forms that are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, BoolArray, IntArray
from unjoined.model.additive_basis import (
    CATEGORY,
    CONSTANT,
    CURVE,
    LINE,
    PAIR,
    SQUARE,
    AdditiveBasis,
)
from unjoined.model.families import Family, MeanFamily, PoissonFamily
from unjoined.model.newton import (
    AdditiveFit,
    AdditiveRows,
    Parts,
    fit_additive,
    pass_in_memory,
)

NOTHING: frozenset[str] = frozenset()
LINES = frozenset({CONSTANT, LINE, CATEGORY})
CURVES = LINES | {SQUARE, CURVE}
PAIRS = CURVES | {PAIR}
BASE_RULE, EFFECT_RULE = "base rule", "effect rule"  # found beside simpler forms
FOUND = frozenset({BASE_RULE, EFFECT_RULE})
RULED = LINES | {EFFECT_RULE}
ALIKE = frozenset({CONSTANT})  # an effect that is the same for all
NATS = 4.0  # held-out nats that change the weight of a form by a factor of e
LEAST_WEIGHT = 0.01
FEATURE_ROWS = 2_000  # about, that tell how far the uplift varies with each feature
FAINT = 0.25  # of the likeliest form's weight: not worth passes over very many rows


class Specification(NamedTuple):
    """Which functions base and effect are made of."""

    name: str
    base: frozenset[str]
    effect: frozenset[str]
    few: frozenset[str] = NOTHING  # groups in which few blocks are expected to matter
    grows: str = (
        ""  # the form whose base the effect is a multiple of, but for a constant
    )
    price: float = (
        0.0  # nats by which held-out rows must be likelier, for the same weight
    )


ALONE = (
    "linear base alone",
    "base alone",
    "base with pairs alone",
    "base with rules alone",
)
# Every kind of base stands alone too: what a base lacks would pass for an effect that differs.
EFFECT_SPECIFICATIONS = (
    Specification(ALONE[0], LINES, ALIKE, LINES),
    Specification("lines", LINES, LINES),
    Specification("few lines", LINES, LINES, LINES),
    Specification(ALONE[1], CURVES, ALIKE, LINES),
    Specification("linear effect", CURVES, LINES),
    Specification("few linear effects", CURVES, LINES, LINES),
    Specification("curved effect", CURVES, CURVES, LINES),
    Specification(ALONE[2], PAIRS, ALIKE, LINES),
    Specification("pairs", PAIRS, PAIRS, LINES),
    Specification(ALONE[3], PAIRS | {BASE_RULE}, ALIKE, LINES | FOUND),
    Specification("rules", PAIRS | FOUND, RULED, LINES | FOUND),
)
# For rows that are few. Of many, the forms above follow such an effect as well. At no price they
# would win by chance too often where the effect has nothing to do with the base.
GROWING_SPECIFICATIONS = (
    Specification("growing with lines", LINES, LINES, grows=ALONE[0], price=NATS),
    Specification("growing with curves", CURVES, CURVES, grows=ALONE[1], price=NATS),
    Specification("growing with pairs", PAIRS, PAIRS, grows="pairs", price=NATS),
)
IN_WORDS = {
    "lines": "the base and the effect are straight lines in the features",
    "few lines": "the base and the effect are straight lines in few of the features",
    "linear effect": "the base bends with the features and the effect is a straight line in them",
    "few linear effects": (
        "the base bends with the features and the effect is a straight line in few of them"
    ),
    "curved effect": "the base and the effect bend with single features",
    "pairs": "the base and the effect bend with the features and with pairs of them",
    "rules": (
        "the base bends with the features and with pairs of them, and base and effect jump where "
        "features pass a value"
    ),
    "growing with lines": (
        "the base is a straight line in the features, and the effect goes up or down with it"
    ),
    "growing with curves": (
        "the base bends with the features, and the effect goes up or down with it"
    ),
    "growing with pairs": (
        "the base bends with the features and with pairs of them, and the effect goes up or down "
        "with it"
    ),
}
MEAN_SPECIFICATIONS = (
    Specification("lines", LINES, NOTHING),
    Specification("curves", CURVES, NOTHING),
    Specification("pairs", PAIRS, NOTHING),
)


# Level and size of a base, and an effect that is a constant plus a multiple of it.
MULTIPLE = Parts(
    np.array([0, 1]),
    np.array([0, 1]),
    np.arange(4),
    np.array([0, 1, -1, -2]),
    np.array([0, 0, 1, 2]),
    (("base", CONSTANT), ("effect", CONSTANT), ("effect", LINE)),
)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Rows of one label as an additive model sees them."""

    X: Array  # (n, d)
    y: Array  # (n,) 0/1, or with mean 0 and variance 1
    exposure: (
        Array  # (n,) probability of treatment, or its distance from the mean policy
    )
    weight: Array  # (n,) adding up to the number of rows of equal weight that are worth as much
    # (n,) the draw that a row belongs to, None if it is one
    unit: IntArray | None = None
    count: Array | None = None  # (n,) people that a row stands for, None if it is one

    @classmethod
    def of_weights(
        cls,
        X: Array,
        y: Array,
        exposure: Array,
        weight: Array,
        unit: IntArray | None = None,
        count: Array | None = None,
    ) -> ModelRows:
        """Return rows whose weights have any scale."""
        square = np.sum(weight**2 if count is None else weight**2 / count)
        return cls(X, y, exposure, weight * (weight.sum() / square), unit, count)

    @property
    def people(self) -> Array:
        """How many people each row stands for."""
        return np.ones(len(self.y)) if self.count is None else self.count

    def take(self, at: IntArray) -> ModelRows:
        """Return some of the rows."""
        return replace(
            self,
            X=self.X[at],
            y=self.y[at],
            exposure=self.exposure[at],
            weight=self.weight[at],
            unit=None if self.unit is None else self.unit[at],
            count=None if self.count is None else self.count[at],
        )


@dataclass(frozen=True, slots=True)
class Member:
    """One fit that has a say in the average; coefficients are those of the whole basis."""

    weight: float
    specification: str
    family: Family
    base: Array = field(repr=False)  # (p,)
    effect: Array = field(repr=False)  # (p,)

    @classmethod
    def of_fit(
        cls, weight: float, specification: str, fit: AdditiveFit, size: int
    ) -> Member:
        """Return a fit with zeros for the functions that it does not use."""
        base = np.zeros(size)
        effect = np.zeros(size)
        k = len(fit.parts.base)
        base[fit.parts.base], effect[fit.parts.effect] = fit.coef[:k], fit.coef[k:]
        return cls(weight, specification, fit.family, base, effect)


def _error_of_sum(values: Array, people: Array, unit: IntArray | None = None) -> float:
    """Return the standard error of a sum over rows of so many people, or of the draws named."""
    apart = values - people * (values.sum() / people.sum())
    if unit is not None:
        sums = np.bincount(unit, apart)
        return float(np.sqrt(sums @ sums))
    return float(np.sqrt(apart @ (apart / people)))


@dataclass(frozen=True, slots=True, repr=False)
class SpecificationTable:
    """Every form that was tried, the likeliest first.

    Printing it shows one line for each form; notebooks show a table.
    """

    name: tuple[str, ...]
    loss: (
        Array  # held-out minus log-likelihood and price, nats over all rows that choose
    )
    difference: Array  # to the first
    standard_error: Array  # of that difference, rows being independent
    weight: Array  # in the average

    @classmethod
    def of_losses(
        cls, losses: dict[str, Array], rows: ModelRows | None = None
    ) -> SpecificationTable:
        """Weigh the forms by their losses, row by row; ``rows`` say what is a draw.

        Rows that depend on each other say the same more than once: differences are divided by the
        design effect, by how much more sums of draws vary than those of as many single rows.
        """
        total = {name: float(loss.sum()) for name, loss in losses.items()}
        order = sorted(total, key=lambda name: total[name])
        gaps = [losses[name] - losses[order[0]] for name in order]
        difference = np.array([gap.sum() for gap in gaps])
        people = np.ones(len(gaps[0])) if rows is None else rows.people
        error = np.array([_error_of_sum(gap, people) for gap in gaps])
        effect = 1.0
        if rows is not None and rows.unit is not None:
            alone = error
            error = np.array([_error_of_sum(gap, people, rows.unit) for gap in gaps])
            effect = max(float(error @ error / max(alone @ alone, 1e-300)), 1.0)
        weight = np.exp(-difference / (effect * NATS))
        weight /= weight.sum()
        weight[weight < LEAST_WEIGHT] = 0.0
        loss = np.array([total[name] for name in order])
        return cls(tuple(order), loss, difference, error, weight / weight.sum())

    @property
    def kept(self) -> dict[str, float]:
        """The forms that are averaged, the likeliest first, with their weights."""
        pairs = zip(self.name, self.weight.tolist(), strict=True)
        return {name: weight for name, weight in pairs if weight > 0.0}

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns, ready for a data frame; losses in nats over all rows that choose."""
        numbers = ("weight", "loss", "difference", "standard_error")
        return {"name": list(self.name)} | {
            name: getattr(self, name).tolist() for name in numbers
        }

    def _lines(self) -> list[tuple[str, ...]]:
        """Return the table as words, its heading first."""
        columns = self.to_dict().values()
        return [
            ("form", "weight", "held-out loss", "behind best", "std. error"),
            *(
                (name, f"{weight:.1%}", f"{loss:.1f}", f"{behind:.2f}", f"{error:.2f}")
                for name, weight, loss, behind, error in zip(*columns, strict=True)
            ),
        ]

    def __repr__(self) -> str:
        """Return the table as text."""
        lines = self._lines()
        first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
        return "\n".join(
            "  ".join(
                [
                    name.ljust(first),
                    *(n.rjust(w) for n, w in zip(numbers, widths, strict=True)),
                ]
            )
            for name, *numbers in lines
        )

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        heading, *rows = (
            "".join(f"<{tag}>{escape(word)}</{tag}>" for word in line)
            for tag, line in zip(
                ["th", *["td"] * len(self.name)], self._lines(), strict=True
            )
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"

    def leading(self) -> SpecificationTable:
        """Return the table without forms that are faint beside the first."""
        weight = np.where(self.weight < FAINT * self.weight.max(), 0.0, self.weight)
        return replace(self, weight=weight / weight.sum())


@dataclass(frozen=True, slots=True, repr=False)
class AdditiveAverage:
    """The fits that are averaged, and the likeliest form fitted to all rows that choose."""

    basis: AdditiveBasis
    members: tuple[Member, ...]
    specifications: SpecificationTable
    best: AdditiveFit

    def __repr__(self) -> str:
        """Return what is averaged, without its numbers."""
        kept = ", ".join(
            f"{name} {weight:.1%}" for name, weight in self.specifications.kept.items()
        )
        return f"AdditiveAverage({len(self.members)} fits of {self.basis.size} functions: {kept})"

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return base and effect of each member at rows, shape (n, members) each."""
        base, effect = self.basis.combined(X, *self.coefficients())
        return base, effect

    def base(self, X: Array) -> Array:
        """Return the base of each member at rows, shape (n, members)."""
        return self.basis.combined(X, self.coefficients()[0])[0]

    def coefficients(self) -> tuple[Array, Array]:
        """Return those of base and effect, (p, members) each."""
        base = np.column_stack([member.base for member in self.members])
        return base, np.column_stack([member.effect for member in self.members])

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

    def means(self, X: Array, propensity: Array) -> tuple[Array, Array]:
        """Return the mean with and without treatment, given the mean policy at each row."""
        base, effect = self(X)
        treated, untreated = self.best.family.arms(base, effect, propensity[:, None])
        return treated @ self.weight, untreated @ self.weight

    def uplift(self, X: Array) -> Array:
        """Return the average of the members' differences of the means with and without."""
        return np.asarray(self.best.family.uplift(*self(X)) @ self.weight)

    def raised(self, change: float) -> AdditiveAverage:
        """Return the same with effects that are larger by ``change`` for everybody."""
        first = np.eye(1, self.basis.size)[0]  # the constant
        members = (
            replace(each, effect=each.effect + change * first) for each in self.members
        )
        coef = self.best.coef.copy()
        coef[len(self.best.parts.base)] += change
        return replace(self, members=tuple(members), best=replace(self.best, coef=coef))

    def uplift_errors(self, X: Array) -> Array:
        """Return how far the uplift may move at each row, as a standard deviation.

        By the covariance of the likeliest form's coefficients, and by how far the members are
        from each other. Costs O(n p^2).
        """
        values = self.basis(X)
        parts = self.best.parts
        by_base, by_effect = self.best.family.slopes(*self.best(values))
        gradient = np.hstack(
            [
                by_base[:, None] * values[:, parts.base],
                by_effect[:, None] * values[:, parts.effect],
            ]
        )
        variance = np.einsum("ij,ij->i", gradient @ self.best.covariance, gradient)
        uplift = self.best.family.uplift(*self(X))
        between = (uplift - (uplift @ self.weight)[:, None]) ** 2 @ self.weight
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + between))

    def mean_change(self, before: Array, after: Array) -> tuple[float, float]:
        """Return by how much the mean uplift changes if rows change, and its error.

        The error is that of the likeliest form's coefficients and of the members' disagreement.
        """
        means = (self._mean(X, np.ones(len(X))) for X in (before, after))
        return self._known(*(b - a for a, b in zip(*means, strict=True)))

    def mean_uplift(self, X: Array, weight: Array) -> tuple[float, float]:
        """Return the mean uplift of rows that count by weights, and its error, as above."""
        return self._known(*self._mean(X, weight))

    def _known(self, members: Array, gradient: Array) -> tuple[float, float]:
        """Return the average of a number of each member, and its error."""
        value = float(self.weight @ members)
        between = self.weight @ (members - value) ** 2
        return value, float(
            np.sqrt(gradient @ self.best.covariance @ gradient + between)
        )

    def _mean(self, X: Array, weight: Array) -> tuple[Array, Array]:
        """Return each member's mean uplift of rows, and how the likeliest form's one slopes."""
        values = self.basis(X)
        parts = self.best.parts
        share = weight / weight.sum()
        uplift = self.best.family.uplift(
            *(values @ coef for coef in self.coefficients())
        )
        by_base, by_effect = (
            share * slope for slope in self.best.family.slopes(*self.best(values))
        )
        of_base = by_base @ values[:, parts.base]
        of_effect = by_effect @ values[:, parts.effect]
        return share @ uplift, np.concatenate([of_base, of_effect])

    def features(self, rows: ModelRows) -> Array:
        """Return how far the uplift varies with each feature, pairs counting for both, (d,).

        The standard deviation of what the uplift changes by if all that a feature adds to base and
        effect is the same for all. Costs d predictions of some of the rows.
        """
        rows = rows.take(np.arange(0, len(rows.y), 1 + len(rows.y) // FEATURE_ROWS))
        values = self.basis(rows.X)
        share = rows.weight / rows.weight.sum()
        block, columns = self._blocks()
        spread = np.zeros(self.basis.n_features)
        found = {j for b in {*block.tolist()} - {-1} for j in columns[b]}
        each = {
            j: np.array([j in at for at in columns])[block] & (block >= 0)
            for j in found
        }
        changes = self._changes(values, share @ values, each.values())
        for j, change in zip(each, changes, strict=True):
            spread[j] = np.sqrt(share @ (change - share @ change) ** 2)
        return spread

    def usual(self, rows: ModelRows) -> Array:
        """Return the means of the functions over rows, (p,)."""
        return np.asarray(rows.weight / rows.weight.sum() @ self.basis(rows.X))

    def parts(self, X: Array, usual: Array) -> tuple[Array, float]:
        """Return what each feature adds to the uplift of rows beside the usual one, and that.

        Shape (n, d). Pairs count for half in both features. If the uplift is linear in the effect,
        it is the usual one and the parts.
        """
        block, columns = self._blocks()
        values = self.basis(X)
        parts = np.zeros((len(X), self.basis.n_features))
        used = sorted({*block.tolist()} - {-1})
        changes = self._changes(values, usual, (block == b for b in used))
        for b, change in zip(used, changes, strict=True):
            for j in columns[b]:
                parts[:, j] += change / len(columns[b])
        base, effect = (usual @ coef for coef in self.coefficients())
        return parts, float(self.best.family.uplift(base, effect) @ self.weight)

    def _blocks(self) -> tuple[IntArray, tuple[tuple[int, ...], ...]]:
        """Return the block of each function, -1 if nothing uses it, and the features of blocks."""
        block, _, columns = self.basis.blocks()
        used = np.any(
            [np.any(coef != 0.0, axis=1) for coef in self.coefficients()], axis=0
        )
        has_feature = np.array([bool(at) for at in columns])[block]
        return np.where(used & has_feature, block, -1), columns

    def _changes(
        self, values: Array, usual: Array, groups: Iterable[BoolArray]
    ) -> Iterator[Array]:
        """Yield by how much uplift differs from that with the usual functions of each group."""
        apart = values - usual
        coef = self.coefficients()
        parts = [values @ each for each in coef]
        uplift = self.best.family.uplift(*parts)
        for group in groups:
            at = np.flatnonzero(group)
            rest = (
                part - apart[:, at] @ each[at]
                for part, each in zip(parts, coef, strict=True)
            )
            yield (uplift - self.best.family.uplift(*rest)) @ self.weight

    def log_likelihood(self, rows: ModelRows) -> Array:
        """Return the log-likelihood of each row under the averaged law, nats."""
        base, effect = self(rows.X)
        parts = [
            np.log(member.weight) - nats(member.family, rows, base[:, j], effect[:, j])
            for j, member in enumerate(self.members)
        ]
        return np.asarray(np.logaddexp.reduce(parts, axis=0))


def uplift_of_fits(fits: Sequence[AdditiveAverage], X: Array) -> list[Array]:
    """Return the uplift at rows by several fits; those of one basis evaluate it once."""
    found: dict[int, Array] = {}
    for basis in {id(fit.basis): fit.basis for fit in fits}.values():
        alike = {j: fit for j, fit in enumerate(fits) if fit.basis is basis}
        values = basis.combined(
            X, *(c for fit in alike.values() for c in fit.coefficients())
        )
        pairs = zip(values[::2], values[1::2], strict=True)
        for (j, fit), (base, effect) in zip(alike.items(), pairs, strict=True):
            found[j] = np.asarray(fit.best.family.uplift(base, effect) @ fit.weight)
    return [found[j] for j in range(len(fits))]


def nats(family: Family, rows: ModelRows, base: Array, effect: Array) -> Array:
    """Return minus the log-likelihood of each row; that of a mean as if its noise were normal.

    That of amounts is the extended quasi-likelihood, but for what depends on outcomes alone.
    """
    loss = family(rows.y, rows.exposure, base, effect).loss
    return (
        loss + 0.5 * np.log(2.0 * np.pi * family.variance)
        if isinstance(family, MeanFamily | PoissonFamily)
        else loss
    )


def grow(fit: AdditiveFit, rows: ModelRows, values: Array, tol: float) -> AdditiveFit:
    """Fit an effect that is a constant plus a multiple of a fit's base, whose functions are given.

    The base keeps its shape: its level and size are fitted again, with the constant and the
    multiple. ``values`` are (k, n), the constant first. The covariance allows for the error of
    the base's shape. Its scales are those of the four coefficients.
    """
    k = len(fit.parts.base)
    weight = rows.weight / rows.weight.sum()
    shape = fit.coef[:k].copy()
    shape[0] = 0.0
    along = shape @ values
    level = float(weight @ along)
    size = float(np.sqrt(weight @ (along - level) ** 2)) or 1.0
    shape /= size
    shape[0] = -level / size
    both = np.vstack([values[:1], shape @ values])
    lines = AdditiveRows(both, rows.y, rows.exposure, rows.weight)
    start = np.array([fit.coef[0] + level, size, fit.coef[k], 0.0])
    found = fit_additive(
        pass_in_memory(lines, MULTIPLE, 1), MULTIPLE, fit.family, start, tol=tol
    )
    turn = np.zeros((2 * k, 4))
    turn[0, 0] = turn[k, 2] = 1.0
    turn[:k, 1] = turn[k:, 3] = shape
    lean = np.kron(found.coef[[1, 3]][:, None], np.eye(k)) / size
    lean[:, 0] = 0.0
    covariance = (
        turn @ found.covariance @ turn.T + lean @ fit.covariance[:k, :k] @ lean.T
    )
    # The noise is that of the fit, which counts all coefficients of the base.
    return replace(
        found,
        parts=fit.parts.doubled(),
        family=fit.family,
        coef=turn @ found.coef,
        covariance=covariance,
        converged=found.converged and fit.converged,
    )


def topic(specifications: tuple[Specification, ...]) -> str:
    """Say what forms are models of."""
    return (
        "models of outcomes"
        if any(f.effect for f in specifications)
        else "models of who is treated"
    )


def in_words(name: str, *, is_curved: bool) -> str:
    """Say what a form is; one effect on log-odds, or on logarithms, is not the same for all."""
    if name not in ALONE:
        return IN_WORDS[name]
    by_base = "so that people are ranked by their base alone"
    return f"the effect is the same for all, {by_base if is_curved else 'which ranks nobody'}"


def squared_slopes(
    fit: AdditiveFit,
    rows: ModelRows,
    values: Array,
    at: IntArray,
    wanted: BoolArray,
    *,
    both: bool,
) -> list[tuple[Array, Array]]:
    """Return squared slopes of the loss by functions that a fit lacks, and their variances.

    First in its base, then in its effect if ``both`` are asked for and it has one, at some of the
    rows, in pieces that stay in the cache.
    What the fit's own functions explain is taken off the variance: the ratio is about 1 where
    nothing is missed.
    """
    n_ways = 1 + (both and len(fit.parts.effect) > 0)
    sums: list[list[Array]] = [[np.zeros(())] * 3 for _ in range(n_ways)]
    for start in range(0, len(at), CACHE_ROWS):
        here = at[start : start + CACHE_ROWS]
        piece = _slope_sums(fit, rows.take(here), values[:, here], wanted, n_ways)
        pairs = zip(sums, piece, strict=True)
        sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
    found = []
    for slope, total, cross in sums:
        known = np.einsum("ij,ij->i", cross @ fit.covariance, cross)
        found.append((slope**2, np.maximum(total - known, 1e-3 * total + 1e-300)))
    return found


def _slope_sums(
    fit: AdditiveFit, rows: ModelRows, values: Array, wanted: BoolArray, n_ways: int
) -> list[list[Array]]:
    """Return slopes and curvatures by wanted functions, and these with the fit's own ones."""
    more = values[wanted]
    parts = fit.parts
    t = fit.family(rows.y, rows.exposure, *fit(values.T))
    w = rows.weight
    own = (values[parts.base].T, values[parts.effect].T)
    ways = (
        (t.by_base, t.base_base, t.base_base, t.base_effect),
        (t.by_effect, t.effect_effect, t.base_effect, t.effect_effect),
    )[:n_ways]
    square = more**2
    return [
        [
            more @ (w * slope),
            square @ (w * curvature),
            np.hstack(
                [(more * (w * with_base)) @ own[0], (more * (w * with_effect)) @ own[1]]
            ),
        ]
        for slope, curvature, with_base, with_effect in ways
    ]
