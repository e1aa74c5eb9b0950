r"""What must hold if tables are to identify uplift, and can be refuted by them.

Tables of one population describe the same people; no table was given twice; implied chances lie
between 0 and 1; three populations or more share the law of outcomes. With two populations most
violations of the last cannot be seen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import binom, f, norm, t
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, IntArray
from unjoined._validation import KINDS, TREATMENT
from unjoined.data.fold import hash_features, hash_with
from unjoined.data.rows import LabelledRows
from unjoined.errors import UnjoinedWarning
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.strength import against_zero
from unjoined.evaluate.terms import EvaluationRows
from unjoined.model.basis import Scaling
from unjoined.model.shift import effective_size

ROWS_PER_MOMENT = 50  # of the smallest table, for each further feature of the test
LEAST_ROWS = 30  # outcome rows in a group whose implied mean is tested
CUT = (
    4.0  # standard deviations: means of features that are cut are normal for fewer rows
)
ROWS_PER_FUNCTION = 10
SPLIT_ROWS = 20_000  # of each table, that the classifier sees
CHANCE = 1e-6  # of tables drawn apart that are taken for copies
TOLD_ROWS = 50  # different rows of a table that tell whether all of them were repeated
ALL_TABLES = "all tables"  # where the law of outcomes is tested
PANEL = "rows with both labels agree with the tables"
CLAIMED = "treatments follow the known policy"
ALIKE = "as many were treated as in the treatment table"
COPIED, REPEATED, WILD_WEIGHTS = "one table twice", "rows repeated", "weights"
MOST_POOLED = 100_000  # outcome rows that periods and regions are looked for in
MOST_VALUES = 100  # of a column that says of which period or region a row is
NEARLY_APART = 0.99  # share of people whose period or region is of one population alone
EFFECTIVE_ROWS = 10.0  # of a table; with fewer, a row or two decide everything


@dataclass(frozen=True, slots=True)
class Check:
    """A test of something that must hold if the tables are to identify uplift.

    Attributes
    ----------
    what : str
        What is tested, such as "means and squares of features".
    where : str
        Whose rows are tested.
    statistic : float
        The test statistic.
    p_value : float
        Of this test alone; nan if there were too few rows to test.
    corrected : float
        The p-value by Holm's method for all tests of the same table of results: rejecting
        what is below 0.05 is wrong anywhere in the table with probability 0.05 at most.
    """

    what: str
    where: str
    statistic: float
    p_value: float
    corrected: float = math.nan

    @property
    def is_rejected(self) -> bool:
        """Whether the corrected p-value is below 0.05."""
        return self.corrected < 0.05


def correct(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return the checks with p-values corrected by Holm's method, those without one left out."""
    p = np.array([check.p_value for check in checks])
    order = np.argsort(p)[: np.isfinite(p).sum()]
    steps = np.arange(len(order), 0, -1)
    holm = np.minimum(np.maximum.accumulate(steps * p[order]), 1.0)
    corrected = np.full(len(p), np.nan)
    corrected[order] = holm
    return tuple(
        replace(check, corrected=float(c))
        for check, c in zip(checks, corrected, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Balance:
    """How far the features of two groups of rows are apart.

    Attributes
    ----------
    where : str
        The two groups that are compared.
    difference : float
        The largest difference of a feature's means, in its standard deviations.
    feature : str
        The feature it is found in.
    told_apart : float
        Chance that boosted trees put a row of each in the right order, on rows they did not learn
        from: 0.5 if they cannot tell the two apart, 1 if always; nan for too few rows.
    checks : tuple of Check
        Tests that the two are drawn from one law.
    """

    where: str
    difference: float
    feature: str
    told_apart: float
    checks: tuple[Check, ...]


def compare(
    where: str, one: LabelledRows, two: LabelledRows, names: Sequence[str], rng: Rng
) -> Balance:
    """Compare the features of two samples, by three tests.

    Features are cut at four standard deviations, so that a few large values do not decide. If the
    two have the same law, the mean of any function of the features is the same in both.
    """
    scaling = Scaling.of_rows(np.concatenate([one.X, two.X]), _shares((one, two)))
    d = one.X.shape[1]
    fewest = min(effective_size(s.weight) for s in (one, two))
    with_squares = fewest >= ROWS_PER_FUNCTION * 2 * d
    moments = [
        _Moments.of_sample(s, scaling, with_squares=with_squares) for s in (one, two)
    ]
    first, second = (sample.leading(d) for sample in moments)
    apart, variance, n = _difference(first, second)
    spread = np.sqrt(np.maximum(first.variance + second.variance, 0.0) / 2.0)
    varies = spread > 1e-12
    # A feature that varies in neither may still differ: then in standard deviations of both.
    size = np.divide(apart, spread, out=apart.copy(), where=varies)
    worst = int(np.argmax(np.abs(size)))
    sure = np.where(np.abs(apart) > 1e-9, np.inf, 0.0)
    z = np.divide(apart, np.sqrt(variance), out=sure, where=varies & (variance > 0.0))
    tail = 2.0 * t.sf(float(np.abs(z).max()), max(n - 2.0, 1.0))
    classifier, told_apart = _split_classifier(where, one, two, scaling, rng)
    checks = (
        _hotelling(where, moments[0], moments[1], d),
        Check(
            "means of features, one by one",
            where,
            float(np.abs(z).max()),
            min(tail * max(int(varies.sum()), 1), 1.0),
        ),
        classifier,
    )
    return Balance(where, float(size[worst]), names[worst], told_apart, checks)


class _Moments(NamedTuple):
    """Means and covariances of functions of the features of one sample."""

    mean: Array  # (p,)
    covariance: Array  # (p, p)
    size: float  # rows of equal weight behind them

    @classmethod
    def of_sample(
        cls,
        sample: LabelledRows,
        scaling: Scaling | None,
        *,
        with_squares: bool = False,
    ) -> _Moments:
        """Add up features, scaled and cut unless there is no scaling, and perhaps their squares.

        By pieces, in one go. As distances from the first row: what never varies has no variance.
        """
        total = square = np.zeros(())
        origin = None
        for start in range(0, len(sample.X), CACHE_ROWS):
            at = slice(start, start + CACHE_ROWS)
            columns = np.ascontiguousarray(_cut(sample.X[at], scaling).T)
            if with_squares:
                columns = np.vstack([columns, columns**2])
            origin = columns[:, :1].copy() if origin is None else origin
            columns = columns - origin  # a new array: those of scores are a view
            weighted = columns * sample.weight[at]
            total = total + weighted.sum(axis=1)
            square = square + weighted @ columns.T
        weight = sample.weight.sum()
        mean = total / weight
        first = np.zeros(1) if origin is None else origin[:, 0]
        covariance = square / weight - np.multiply.outer(mean, mean)
        return cls(first + mean, covariance, effective_size(sample.weight))

    @property
    def variance(self) -> Array:
        """Of each function."""
        return np.maximum(np.diag(self.covariance), 0.0)

    def leading(self, p: int) -> _Moments:
        """Return the moments of the first functions."""
        return _Moments(self.mean[:p], self.covariance[:p, :p], self.size)


def _cut(X: Array, scaling: Scaling | None) -> Array:
    """Return features in standard deviations, cut, or as they are without a scaling."""
    return X if scaling is None else np.clip(scaling(X), -CUT, CUT)


def _difference(one: _Moments, two: _Moments) -> tuple[Array, Array, float]:
    """Return the differences of means, their variances, and the rows of equal weight behind."""
    variance = [sample.variance / max(sample.size - 1.0, 1.0) for sample in (one, two)]
    return one.mean - two.mean, variance[0] + variance[1], one.size + two.size


def _hotelling(where: str, one: _Moments, two: _Moments, d: int) -> Check:
    """Test that features and their squares have the same means, by Hotelling's T-square."""
    what = (
        "means of features and of squares" if len(one.mean) > d else "means of features"
    )
    if min(one.size, two.size) < ROWS_PER_FUNCTION * d:
        return Check("means of features and of squares", where, math.nan, math.nan)
    V = np.asarray(
        sum(sample.covariance / (sample.size - 1.0) for sample in (one, two))
    )
    if not np.any(np.diag(V) > 0.0):
        return Check(what, where, math.nan, math.nan)
    square, p, _ = against_zero(one.mean - two.mean, V)
    free = (
        one.size + two.size - 2.0
    )  # Hotelling: T^2 (free - p + 1) / (p free) has an F law
    statistic = square * (free - p + 1.0) / (p * free)
    return Check(what, where, statistic, float(f.sf(statistic, p, free - p + 1.0)))


def _split_classifier(
    where: str, one: LabelledRows, two: LabelledRows, scaling: Scaling, rng: Rng
) -> tuple[Check, float]:
    """Test whether trees that learnt on half of the rows tell the other half apart.

    One split, not folds: the scores of folds depend on each other, which makes a test of them
    reject too often.
    """
    what = "boosted trees cannot tell them apart"
    chosen = [s.take(rng.permutation(len(s.X))[:SPLIT_ROWS]) for s in (one, two)]
    middle = [(len(s.X) + 1) // 2 for s in chosen]
    learnt = [s.take(slice(n)) for s, n in zip(chosen, middle, strict=True)]
    tested = [s.take(slice(n, None)) for s, n in zip(chosen, middle, strict=True)]
    if min(len(s.X) for s in tested) < ROWS_PER_FUNCTION:
        return Check(what, where, math.nan, math.nan), math.nan
    trees = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, max_bins=32, early_stopping=False, random_state=0
    )
    X = _cut(np.concatenate([s.X for s in learnt]), scaling)
    with threadpool_limits(limits=1):  # so few rows gain nothing from threads
        trees.fit(X, _sides(learnt), sample_weight=len(X) / 2.0 * _shares(learnt))
        score = trees.decision_function(
            _cut(np.concatenate([s.X for s in tested]), scaling)
        )
    first, second = np.split(score[:, None], [len(tested[0].X)])
    scored = [replace(s, X=X) for s, X in zip(tested, (first, second), strict=True)]
    apart, variance, n = _difference(*(_Moments.of_sample(s, None) for s in scored))
    z = float(apart[0] / np.sqrt(variance[0])) if variance[0] > 0.0 else 0.0
    told = roc_auc_score(_sides(tested), score, sample_weight=_shares(tested))
    return Check(what, where, z, float(t.sf(z, n - 2.0))), float(told)


def _sides(samples: Sequence[LabelledRows]) -> IntArray:
    """Return 1 for the rows of the first of two samples, 0 for those of the second."""
    return np.repeat([1, 0], [len(sample.X) for sample in samples])


def _shares(samples: Sequence[LabelledRows]) -> Array:
    """Return the weights of all rows, as shares of their own sample."""
    return np.concatenate([sample.weight / sample.weight.sum() for sample in samples])


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many rows two tables have in common beyond what chance explains.

    Attributes
    ----------
    where : str
        The two tables.
    share : float
        Share of the smaller table's rows whose twin, equal in all features, is in the other.
    same_labels : bool or None
        Whether twins have the same label too, in tables of the same kind: then rows were
        copied. False if people are in both tables with labels of their own; None if one table
        holds outcomes and the other treatments.
    """

    where: str
    share: float
    same_labels: bool | None


def shared_rows(
    where: str, X: Sequence[Array], labels: Sequence[Array] | None
) -> Sharing:
    """Return how many rows two tables share; with ``labels`` if they are of one kind.

    Rows that occur exactly twice tell it. If tables are drawn apart, both copies of a row are in
    one table as often as chance has it; if rows were copied from table to table, hardly ever.
    Where rows repeat often, as with a few 0/1 features, only a whole copy can be told: both tables
    then hold every row equally often.
    """
    keys = [hash_features(x) for x in X]
    share = _surplus(*keys)
    if share == 0.0 or labels is None:
        return Sharing(where, share, same_labels=None)
    shared = _surplus(*(hash_with(k, y) for k, y in zip(keys, labels, strict=True)))
    y = np.concatenate(labels)
    _, count = np.unique(y, return_counts=True)
    agree = float(
        np.sum((count / len(y)) ** 2)
    )  # of twins whose labels are drawn apart
    return Sharing(where, share, same_labels=shared / share > 0.9 + 0.1 * agree)


def _surplus(one: NDArray[np.uint64], two: NDArray[np.uint64]) -> float:
    """Return the share of the smaller table in twins beyond chance, 0 if chance may explain it."""
    n1 = len(one)
    n2 = len(two)
    n = n1 + n2
    _, group = np.unique(np.concatenate([one, two]), return_inverse=True)
    a = np.bincount(group[:n1], minlength=group.max() + 1)
    count = np.bincount(group)
    if n1 == n2 and np.array_equal(2 * a, count):
        # The chance that n1 of the n rows, drawn at random, take half of each kind.
        log_propensity = (
            np.sum(_log_choose(count, a))
            - _log_choose(np.array([n]), np.array([n1]))[0]
        )
        if log_propensity < np.log(CHANCE):
            return 1.0
    pairs = count == 2
    n_pairs = int(pairs.sum())
    n_split = int((pairs & (a == 1)).sum())
    split = (
        2.0 * n1 * n2 / (n * (n - 1.0))
    )  # chance that two rows are in different tables
    if n_pairs == 0 or binom.sf(n_split - 1, n_pairs, split) > CHANCE:
        return 0.0
    twins = n_split - (n_pairs - n_split) * split / (1.0 - split)
    return float(np.clip(twins / min(n1, n2), 0.0, 1.0))


class Doubt(NamedTuple):
    """What is wrong with tables by themselves, whatever is estimated from them."""

    what: str
    text: str
    remedy: str

    def __str__(self) -> str:
        """Return both sentences."""
        return f"{self.text} {self.remedy}"


def table_doubts(rows: LabelledRows) -> list[Doubt]:
    """Return which tables are there twice, hold all rows several times, or have wild weights."""
    rows = rows.independent(Rng(0))  # rows of a customer may well be alike
    keys = hash_with(hash_features(rows.X), rows.label)
    K = len(rows.names)
    doubts = []
    seen: dict[tuple[str, int, int], str] = {}
    for c, at in enumerate(rows.all_cells()):
        if not len(at):  # a known policy stands for treatments
            continue
        kind = KINDS[c // K]
        own = keys[at]
        title = f"the {kind} table of {rows.names[c % K]}"
        _, count = np.unique(own, return_counts=True)
        told = len(count) >= TOLD_ROWS
        twin = seen.setdefault((kind, len(at), int(own.sum(dtype=np.uint64))), title)
        if told and twin != title:
            text = f"{twin} and {title} have all rows in common, as if one file was given twice."
            doubts.append(Doubt(COPIED, text, "Give each population its own rows."))
        if told and (times := int(np.gcd.reduce(count))) > 1:
            text = f"{title} holds each of its rows {times} times, as if it had been copied."
            remedy = (
                "Give each row once: intervals take copies for people. If they are of the same "
                "household, store or customer, say so: cluster names its column."
            )
            doubts.append(Doubt(REPEATED, text, remedy))
        size = effective_size(rows.weight[at])
        if size < EFFECTIVE_ROWS and len(at) >= 2.0 * EFFECTIVE_ROWS:
            text = f"the weights of {title} make its {len(at):,} rows worth {size:.1f}."
            doubts.append(
                Doubt(WILD_WEIGHTS, text, "Look for weights that are far too large.")
            )
    return doubts


def warn_of_tables(rows: LabelledRows, *, stacklevel: int) -> list[Doubt]:
    """Warn of tables that make every answer wrong, and return what is wrong with them."""
    doubts = table_doubts(rows)
    for doubt in doubts:
        warnings.warn(str(doubt), UnjoinedWarning, stacklevel=stacklevel + 1)
    return doubts


def _log_choose(n: IntArray, k: IntArray) -> Array:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def implied_means(rows: EvaluationRows, outcomes: Array) -> Array:
    r"""Solve the populations' mean outcomes (n, K) for those without and with treatment, (n, 2).

    By least squares over the populations: the mean at treatment t is
    :math:`\sum_k a_k \mu_k` with :math:`a_k = p_k + (t - \tilde e) c_k`.
    """
    p = rows.population_share
    middle = rows.policies @ p
    slope = (rows.apart * outcomes) @ p / np.maximum(rows.between, 1e-12)
    base = outcomes @ p
    return np.column_stack([base - middle * slope, base + (1.0 - middle) * slope])


def check_bounds(
    rows: EvaluationRows, implied: Array, mean: Array, bounds: tuple[float, float]
) -> Check:
    r"""Test that no implied mean of a two-valued outcome lies beyond its two values.

    Rows whose cross-fitted ``implied`` mean (n, 2) is below the smaller of the ``bounds``, or above
    the larger one, form a group, without and with treatment: four groups. The mean of each group,
    weighted by the squared gap, is estimated with the doubly robust score and tested one-sidedly;
    the smallest p-value times four is the p-value. ``mean`` (n,) is the mean outcome at the mean
    policy, outcome units.
    """
    outcome = rows.cell < rows.n_populations
    own = np.where(
        rows.is_labelled, rows.population_share[rows.cell % rows.n_populations], 0.0
    )
    middle = rows.policies @ rows.population_share
    contrast = rows.contrast()
    square = rows.gap**2
    residual = np.where(outcome, 1.0, -rows.effect) * rows.ratio * rows.correction
    z = []
    for arm in (0, 1):
        at_arm = mean + (arm - rows.policies.mean(axis=1)) * rows.effect
        corrected = (own + (arm - middle) * contrast) * residual
        for side, bound in zip((-1.0, 1.0), bounds, strict=True):
            beyond = side * (implied[:, arm] - bound) > 0.0
            if np.count_nonzero(beyond & outcome) < LEAST_ROWS:
                continue
            total = rows.totals(
                square * beyond * (corrected + rows.aim * (at_arm - bound))
            )
            error = np.sqrt(total.covariance[0, 0])
            z.append(float(side * total.value[0] / error) if error > 0.0 else 0.0)
    largest = max(z, default=0.0)
    p_value = min(4.0 * float(norm.sf(largest)), 1.0) if z else 1.0
    return Check(
        "implied means within the outcome's range", ALL_TABLES, largest, p_value
    )


def check_panel(rows: EvaluationRows, Z: Array) -> list[Check]:
    r"""Test that rows with both labels say of uplift what the populations say.

    Populations tell if people respond alike in all of them, rows with both labels if treatment had
    no hidden reason: within a population, :math:`(t - e_k) / v` times the residual measures what
    :math:`c_k` times it does between them. Their difference is 0 on average, and along the scaled
    features Z if rows allow.
    """
    K = rows.n_populations
    if rows.exposure is None or K < 2:
        return []
    joint = (rows.exposure == 0.0) | (rows.exposure == 1.0)
    if joint.sum() < LEAST_ROWS:
        return []
    population = rows.cell % K
    share = np.bincount(population[joint], rows.share[joint], K)
    p = np.where(share > 0.0, rows.population_share, 0.0)
    p /= p.sum()
    mine = rows.policies[np.arange(len(population)), population]
    variance = (rows.policies * (1.0 - rows.policies)) @ p
    part = np.divide(p, share, out=np.zeros(K), where=share > 0.0)
    within = part[population] * (rows.exposure - mine) / variance
    alone = replace(rows, exposure=None, known=rows.known * [0.0, 1.0])
    correction = np.where(rows.is_treatment, -rows.effect * rows.known_rest, 1.0)
    each = correction * alone.contrast() - np.where(joint, within, 0.0)
    moment = alone.omega() * rows.ratio * each * rows.residual
    functions = {"average": np.ones((len(Z), 1))}
    if joint.sum() >= ROWS_PER_MOMENT * Z.shape[1]:
        functions["average and features"] = np.column_stack([np.ones(len(Z)), Z])
    return [
        Check(
            f"{PANEL} ({name})",
            ALL_TABLES,
            *rows.totals(moment[:, None] * B).chi_square(),
        )
        for name, B in functions.items()
    ]


def check_treated(
    rows: EvaluationRows, labelled: LabelledRows, Z: Array
) -> list[Check]:
    """Test that treatments follow the policy that is known, and are alike in all that tells them.

    The treatment table of a population and its rows with both labels are two samples of who was
    treated. So policies would be fitted to a mixture of the two if they were not.
    """
    checks: list[Check] = []
    is_copy = labelled.is_copy
    own = 0.5 + 0.5 * labelled.label
    for k, name in enumerate(labelled.names):
        cell = labelled.at(TREATMENT, k)
        table, copies = cell[~is_copy[cell]], cell[is_copy[cell]]
        if labelled.joint is not None:
            copies = copies[~np.isnan(labelled.joint[copies])]
        else:
            copies = copies[:0]
        if labelled.policy is not None:
            known = np.concatenate([table, copies])
            known = known[~np.isnan(labelled.policy[known])]
            off = np.zeros(len(labelled))
            off[known] = own[known] - labelled.policy[known]
            where = "the treatment table" if len(table) else "the rows with both labels"
            checks += _check_mean(rows, CLAIMED, f"{where} of {name}", known, off, Z)
        if min(len(table), len(copies)) < LEAST_ROWS:
            continue
        at = np.concatenate([table, copies])
        off = np.zeros(len(labelled))
        for sign, some in ((1.0, table), (-1.0, copies)):
            off[some] = sign * rows.residual[some] / rows.share[some].sum()
        where = f"the rows with both labels of {name}"
        checks += _check_mean(rows, ALIKE, where, at, off, Z)
    return checks


def _check_mean(
    rows: EvaluationRows,
    what: str,
    where: str,
    at: IntArray,
    off: Array,
    Z: Array,
) -> list[Check]:
    """Test that a column is 0 on average and, if some rows allow, along the features."""
    if len(at) < LEAST_ROWS or not np.any(off):
        return []
    B = np.ones((len(Z), 1))
    if len(at) >= ROWS_PER_MOMENT * Z.shape[1]:
        B = np.column_stack([B, Z])
    return [Check(what, where, *rows.totals(off[:, None] * B).chi_square())]


def check_shared_outcomes(rows: EvaluationRows, Z: Array) -> list[Check]:
    r"""Test that three populations or more share the law of outcomes, given features and treatment.

    For a reference pair (a, b) and each other population k, the contrast
    :math:`c = (e_b - e_k, e_k - e_a, e_a - e_b)` cancels both the base and the uplift, so that the
    moments of :math:`c_j b(x)` times the outcomes are 0. The pair is the one whose policies differ
    most. With b = 1, and with b = (1, x), the scaled features Z, if rows allow.
    """
    K = rows.n_populations
    if K < 3:
        return []
    e = rows.policies
    population = rows.cell % K
    pairs = list(combinations(range(K), 2))
    a, b = pairs[int(np.argmax([np.mean((e[:, i] - e[:, j]) ** 2) for i, j in pairs]))]
    own = np.where(rows.cell < K, 1.0, -rows.effect) * rows.ratio * rows.correction
    own = np.where(rows.is_labelled, own, 0.0)
    moments = []
    for k in sorted({*range(K)} - {a, b}):
        contrast = np.zeros_like(e)
        contrast[:, [a, b, k]] = e[:, [b, k, a]] - e[:, [k, a, b]]
        moments.append(contrast[np.arange(len(e)), population] * own)
    fewest = min(np.bincount(rows.cell[rows.is_labelled]))
    functions = {"average": np.ones((len(Z), 1))}
    if fewest >= ROWS_PER_MOMENT * Z.shape[1] * (K - 2):
        functions["average and features"] = np.column_stack([np.ones(len(Z)), Z])
    checks = []
    for name, B in functions.items():
        columns = np.hstack([moment[:, None] * B for moment in moments])
        test = rows.totals(columns).chi_square()
        checks.append(Check(f"one law of outcomes ({name})", ALL_TABLES, *test))
    return checks


class Pooled(NamedTuple):
    """Periods or regions of one population whose people respond unalike, as equal people would."""

    column: str  # that names the period or region
    population: str
    difference: float  # largest of the mean outcome at equal features and treatment, outcome units
    p_value: float  # corrected by Holm's method


def _alike(values: Array) -> IntArray:
    """Return a number for each row (n, k), from 0, the same for rows of the same values."""
    place = np.zeros(len(values), dtype=np.int64)
    for column in values.T:
        _, code = np.unique(column, return_inverse=True)
        _, place = np.unique(place * (code.max() + 1) + code, return_inverse=True)
    return place


def find_pooled(
    rows: EvaluationRows, features: NamedFeatures, names: Sequence[Any]
) -> tuple[Pooled, ...]:
    """Return columns that split populations into periods or regions with other bases.

    Such a column has values that are of one population alone. No equal people can be compared
    then, and without the column nothing would tell that bases differ. That they do within a
    population is seen by its outcomes less what treatment adds to them, at equal other features.
    Costs O(n log n) for each column, of n rows at most, and a regression for each that splits.
    """
    K = rows.n_populations
    if K == 1:
        return ()
    outcome = np.flatnonzero(rows.cell < K)
    outcome = outcome[:: max(len(outcome) // MOST_POOLED, 1)]
    tests, sizes = [], []
    for column in dict.fromkeys(each.column for each in features.columns):
        own = np.array([each.column == column for each in features.columns])
        values = rows.X[np.ix_(outcome, own)]
        if _alike(values[:SPLIT_ROWS]).max() >= MOST_VALUES:
            continue
        place = _alike(values)
        people = np.zeros((int(place.max()) + 1, K))
        np.add.at(people, (place, rows.cell[outcome]), 1.0)
        if people.max(axis=1).sum() < NEARLY_APART * people.sum():
            continue
        for k, name in enumerate(names):
            told = np.flatnonzero(people[:, k] >= LEAST_ROWS)
            inside = (rows.cell[outcome] == k) & np.isin(place, told)
            if len(told) > 1:
                member = (place[inside, None] == told[1:]) * 1.0
                difference, test = _unalike(rows, outcome[inside], ~own, member)
                tests.append(Check(column, str(name), *test))
                sizes.append(difference)
    return tuple(
        Pooled(test.what, test.where, size, test.corrected)
        for test, size in zip(correct(tests), sizes, strict=True)
    )


def _unalike(
    rows: EvaluationRows, at: IntArray, others: NDArray[np.bool_], member: Array
) -> tuple[float, tuple[float, float]]:
    """Return by how much groups of a population's outcome rows differ, and a test that they do.

    ``others`` (d,) are the features that people of two groups are compared at, and ``member``
    (m, G - 1) says who is in which group. What treatment adds is what these features say of it.
    """
    share = rows.share[at]
    Z = np.clip(Scaling.of_rows(rows.X[at], share)(rows.X[at]), -CUT, CUT)[:, others]
    B = np.column_stack([np.ones(len(at)), Z, Z**2])
    root = np.sqrt(share)[:, None]

    def left(values: Array) -> Array:
        """Return what the features leave of columns (m, q)."""
        beta = np.linalg.lstsq(root * B, root * values, rcond=None)[0]
        return np.asarray(values - B @ beta)

    own = rows.met[at] * left(rows.effect[at, None])[:, 0]
    base = rows.dose * (rows.untreated[at] + rows.residual[at]) + own
    apart, rest = left(member), left(base[:, None])
    level = np.linalg.lstsq(root * apart, root * rest, rcond=None)[0][:, 0]
    scores = np.zeros((len(rows.cell), member.shape[1]))
    scores[at] = apart * rest
    return float(np.ptp(np.append(level, 0.0))), rows.totals(scores).chi_square()
