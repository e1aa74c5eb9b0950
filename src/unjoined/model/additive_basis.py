"""Sums of functions of single features, in blocks that share a scale each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from unjoined._threads import CACHE_ROWS, Scratch
from unjoined._typing import Array, BoolArray, IntArray
from unjoined._validation import check_row_width
from unjoined.errors import InputError
from unjoined.model.basis import Scaling, weighted_quantile
from unjoined.model.boxes import Rule, write_rules

CONSTANT, LINE, SQUARE, CURVE = "constant", "line", "square", "curve"
CATEGORY, PAIR, RULE = "category", "pair", "rule"
FARTHEST = 5.0  # standard deviations: lines and squares stay where they are beyond
N_KNOTS = 201
FEW_VALUES = (
    20  # a feature with at most so many values among its knots is ranked by steps
)
SPIKE = 0.2  # share of the rows with one value, such as 0 spent, that makes it a level of its own
MOST_COSINES = 8
MOST_FACTORS = (
    24  # features and levels of categories in pairs; more have too many pairs
)
MOST_FEATURES = 100  # those that go along with the labels most
FEWEST_COSINES = 2
MOST_FUNCTIONS = 240  # of single features: beyond, curves get fewer cosines
_SCRATCH = Scratch()


@dataclass(frozen=True, slots=True)
class Curve:
    """Ranks of one feature between 0 and 1, and how many cosines of them are functions."""

    knots: Array  # (k,) distinct quantiles, rising
    low: Array  # (k,) rank just below each knot
    high: Array  # (k,) rank just above it
    n_cosines: int

    def __post_init__(self) -> None:
        """Refuse ranks that do not belong to the knots, as a file may hold them."""
        ranks = np.array([self.low, self.high])
        rising = np.isfinite(self.knots).all() and (np.diff(self.knots) > 0.0).all()
        if not rising or ranks.shape != (2, max(len(self.knots), 1)):
            raise InputError(
                "the knots of a curve must rise, with two ranks for each of them"
            )
        if not (ranks >= 0.0).all() or not (ranks <= 1.0).all() or self.n_cosines < 0:
            raise InputError("the ranks of a curve must lie between 0 and 1")

    @classmethod
    def of_values(cls, values: Array, weight: Array, most: int) -> Curve:
        """Return the ranks of a feature whose values count by their weights."""
        levels = np.linspace(0.0, 1.0, N_KNOTS)
        quantiles = weighted_quantile(values, weight, tuple(levels.tolist()))
        knots, first = np.unique(quantiles, return_index=True)
        last = np.append(first[1:], N_KNOTS) - 1
        # Quantiles between two values may lie halfway, so that few values have twice the knots.
        distinct = len(np.unique(values)) if len(knots) < 2 * most else len(knots)
        return cls(knots, levels[first], levels[last], min(most, distinct - 1))

    def spikes(self) -> Array:
        """Return the values that many rows share, of a feature that has many values."""
        return self.knots[
            (self.high - self.low >= SPIKE) & (len(self.knots) > FEW_VALUES)
        ]

    def angle(self, x: Array) -> Array:
        """Return pi times the rank of each value."""
        if len(self.knots) > FEW_VALUES:
            return np.interp(x, self.knots, (np.pi / 2.0) * (self.low + self.high))
        at = np.searchsorted(self.knots, x, "left")
        inside = np.minimum(at, len(self.knots) - 1)
        hit = self.knots[inside] == x
        below = np.where(at > 0, self.high[at - 1], 0.0)
        above = np.where(at < len(self.knots), self.low[inside], 1.0)
        low = np.where(hit, self.low[inside], below)
        high = np.where(hit, self.high[inside], above)
        return np.asarray((np.pi / 2.0) * (low + high))


@dataclass(frozen=True, slots=True)
class AdditiveBasis:
    """A constant; of each feature a line, a square and a curve; products of pairs; rules.

    A curve is a sum of cosines of the feature's rank, the j-th of them divided by j. A feature of
    two values has a line only. A categorical feature is one block of indicators. So are the values
    of a numeric feature that many rows share: those who spent 0 may differ from all who spent. The
    factors of pairs are first cosines of features and indicators of levels. A rule is 1 inside of a
    box and 0 elsewhere; fits bring their own.
    """

    scaling: Scaling
    features: tuple[int, ...]  # columns with a line
    curves: tuple[Curve, ...]  # one for each of them
    categories: tuple[
        tuple[int, Array, Array], ...
    ]  # column, codes or spikes, shares of the rows
    pairs: tuple[
        tuple[int, int], ...
    ]  # places among ``features``, and among ``levels`` beyond
    n_features: int
    levels: tuple[
        tuple[int, int], ...
    ] = ()  # places among ``categories`` and among their codes
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rules of columns that are not there, as a file may hold them."""
        bounds = (bound for rule in self.rules for bound in rule)
        if not all(
            0 <= c < self.n_features and np.isfinite(cut) for c, cut, _ in bounds
        ):
            raise InputError("the rules of a basis must cut its features at numbers")

    @classmethod
    def of_rows(
        cls,
        X: Array,
        weight: Array,
        *,
        categorical: tuple[int, ...] = (),
        features: IntArray | None = None,
        with_products: bool = False,
        n_cosines: int | None = None,
    ) -> AdditiveBasis:
        """Return the functions that suit rows which count by their weights."""
        d = X.shape[1]
        some = range(d) if features is None else features.tolist()
        numeric = [c for c in some if c not in categorical and np.ptp(X[:, c]) > 0.0]
        if n_cosines is None:
            room = MOST_FUNCTIONS / max(len(numeric), 1) - 2
            n_cosines = int(np.clip(room, FEWEST_COSINES, MOST_COSINES))
        curves = tuple(Curve.of_values(X[:, c], weight, n_cosines) for c in numeric)
        categories = []
        for c in categorical:
            codes, place = np.unique(X[:, c], return_inverse=True)
            share = np.bincount(place, weights=weight) / weight.sum()
            categories.append((c, codes, share))
        for c, curve in zip(numeric, curves, strict=True):
            if len(codes := curve.spikes()):
                share = (X[:, c] == codes[:, None]) @ weight / weight.sum()
                categories.append((c, codes, share))
        levels: tuple[tuple[int, int], ...] = ()
        pairs: tuple[tuple[int, int], ...] = ()
        if with_products and len(numeric) <= MOST_FACTORS:
            levels = _levels(categories, MOST_FACTORS - len(numeric))
            factors = [*numeric, *(categories[i][0] for i, _ in levels)]
            pairs = tuple(
                (a, b)
                for a, b in combinations(range(len(factors)), 2)
                if factors[a] != factors[b]
            )
        scaling = Scaling.of_rows(X, weight)
        return cls(scaling, tuple(numeric), curves, tuple(categories), pairs, d, levels)

    @property
    def bent(self) -> tuple[int, ...]:
        """Places among ``features`` of those that have a square and a curve."""
        return tuple(j for j, curve in enumerate(self.curves) if curve.n_cosines > 1)

    def blocks(self) -> tuple[IntArray, tuple[str, ...], tuple[tuple[int, ...], ...]]:
        """Return the block of each function, and the group and the columns of each block."""
        sizes, groups = [1], [CONSTANT]
        columns: list[tuple[int, ...]] = [()]
        bent = [self.features[j] for j in self.bent]
        for group, where in ((LINE, self.features), (SQUARE, bent)):
            sizes += [1] * len(where)
            groups += [group] * len(where)
            columns += [(c,) for c in where]
        for j in self.bent:
            sizes.append(self.curves[j].n_cosines)
            groups.append(CURVE)
            columns.append((self.features[j],))
        for c, codes, _ in self.categories:
            sizes.append(len(codes))
            groups.append(LINE if c in self.features else CATEGORY)
            columns.append((c,))
        factors = [*self.features, *(self.categories[i][0] for i, _ in self.levels)]
        sizes += [1] * len(self.pairs)
        groups += [PAIR] * len(self.pairs)
        columns += [(factors[a], factors[b]) for a, b in self.pairs]
        sizes += [1] * len(self.rules)
        groups += [RULE] * len(self.rules)
        columns += [tuple(sorted({c for c, _, _ in rule})) for rule in self.rules]
        return np.repeat(np.arange(len(sizes)), sizes), tuple(groups), tuple(columns)

    @property
    def size(self) -> int:
        """Number of functions p."""
        bent = self.bent
        size = (
            1
            + len(self.features)
            + len(bent)
            + sum(self.curves[j].n_cosines for j in bent)
        )
        size += sum(len(codes) for _, codes, _ in self.categories)
        return size + len(self.pairs) + len(self.rules)

    def trimmed(self, used: BoolArray) -> tuple[AdditiveBasis, BoolArray]:
        """Return the basis without unused pairs and rules, and which functions are left."""
        left = used.copy()
        r = self.size - len(self.rules)
        k = r - len(self.pairs)
        left[:k] = True
        pairs = tuple(
            pair for pair, use in zip(self.pairs, left[k:r], strict=True) if use
        )
        rules = tuple(
            rule for rule, use in zip(self.rules, left[r:], strict=True) if use
        )
        return replace(self, pairs=pairs, rules=rules), left

    def waves(self, X: Array) -> Array:
        """Return the first cosine of each feature's rank, which takes longest, (n, features)."""
        waves = np.empty((len(self.features), len(X)))
        for j, (c, curve) in enumerate(zip(self.features, self.curves, strict=True)):
            if curve.n_cosines > 1 or self.pairs:
                np.cos(curve.angle(X[:, c]), out=waves[j])
        return waves.T

    def __call__(
        self, X: Array, waves: Array | None = None, *, out: Array | None = None
    ) -> Array:
        """Map rows (n, d) to the values of the functions (n, p), given their waves if known.

        ``out``, (p, n), is written over if it is given; the values are then a view of it.
        """
        check_row_width(X, self.n_features)
        waves = self.waves(X) if waves is None else waves
        # Function by function: columns are written in one go.
        values = np.empty((self.size, len(X))) if out is None else out
        values[0] = 1.0
        k = len(self.features)
        lines = values[1 : 1 + k]
        places = list(self.features)
        np.subtract(X.T[places], self.scaling.mean[places, None], out=lines)
        with np.errstate(over="ignore"):  # beyond all numbers is far enough
            lines /= self.scaling.scale[places, None]
        np.clip(lines, -FARTHEST, FARTHEST, out=lines)
        bent = self.bent
        at = 1 + k + len(bent)
        values[1 + k : at] = (lines[list(bent)] ** 2 - 1.0) / np.sqrt(2.0)
        first = np.empty((k + len(self.levels) if self.pairs else 0, len(X)))
        for j, (curve, wave) in enumerate(zip(self.curves, waves.T, strict=True)):
            if self.pairs:
                np.multiply(wave, np.sqrt(2.0), out=first[j])
            if curve.n_cosines > 1:
                _write_cosines(wave, values[at : at + curve.n_cosines])
                at += curve.n_cosines
        for c, codes, share in self.categories:
            block = values[at : at + len(codes)]
            np.subtract(X[:, c] == codes[:, None], share[:, None], out=block)
            at += len(codes)
        for j in range(k, len(first)):
            c, codes, share = self.categories[self.levels[j - k][0]]
            level = self.levels[j - k][1]
            first[j] = 2.0 * ((X[:, c] == codes[level]) - share[level])
        for a, b in self.pairs:
            np.multiply(first[a], first[b], out=values[at])
            at += 1
        write_rules(self.rules, X, values[at:])
        return values.T

    def combined(self, X: Array, *coef: Array) -> list[Array]:
        """Return the functions at rows times matrices of coefficients, (n, columns) each.

        By pieces: the values of all functions at many rows would fill memory that is dear to get.
        """
        found = [np.empty((len(X), each.shape[1])) for each in coef]
        for start in range(0, len(X), CACHE_ROWS):
            at = slice(start, start + CACHE_ROWS)
            rows = X[at]
            values = self(rows, out=_SCRATCH.array("values", self.size, len(rows)))
            for to, each in zip(found, coef, strict=True):
                np.matmul(values, each, out=to[at])
        return found


def _levels(
    categories: list[tuple[int, Array, Array]], most: int
) -> tuple[tuple[int, int], ...]:
    """Return the levels of the categories that fit among ``most``, those of few levels first."""
    levels: list[tuple[int, int]] = []
    for i in sorted(range(len(categories)), key=lambda i: len(categories[i][1])):
        n = len(categories[i][1])
        if len(levels) + n <= most:
            levels += [(i, j) for j in range(n)]
    return tuple(levels)


def _write_cosines(wave: Array, out: Array) -> None:
    """Write sqrt(2) cos(j angle) / j, where wave is cos(angle), by the Chebyshev recurrence."""
    twice = 2.0 * wave
    out[0] = wave
    for j in range(1, len(out)):
        np.multiply(twice, out[j - 1], out=out[j])
        out[j] -= out[j - 2] if j > 1 else 1.0
    for j, row in enumerate(out):
        row *= np.sqrt(2.0) / (j + 1)


def leading_features(
    X: Array, y: Array, exposure: Array, weight: Array
) -> frozenset[int] | None:
    """Return the columns that go along with labels most, or None for all if they are not many."""
    if X.shape[1] <= MOST_FEATURES:
        return None
    weight = weight / weight.sum()
    apart = y - weight @ y
    score = np.zeros(X.shape[1])
    for signal in (apart, (exposure - weight @ exposure) * apart):
        pull = X.T @ (weight * signal) - (weight @ X) * (weight @ signal)
        score = np.maximum(
            score, np.abs(pull) / max(np.sqrt(weight @ signal**2), 1e-300)
        )
    spread = np.sqrt(np.maximum(weight @ X**2 - (weight @ X) ** 2, 0.0))
    score = np.divide(score, spread, out=np.zeros_like(score), where=spread > 0.0)
    return frozenset(np.argsort(-score, kind="stable")[:MOST_FEATURES].tolist())
