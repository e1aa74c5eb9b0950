"""What is fixed before the pass that adds up, and what is made of the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.data.rows import LabelledRows, NumberedRows
from unjoined.errors import InputError
from unjoined.model.accumulate import CellMeans, accumulate_policies, combine
from unjoined.model.basis import ScaledBasis, Scaling, StackedBasis
from unjoined.model.census import rows_digest
from unjoined.model.draw import same_basis
from unjoined.model.moments import CellKey, GroupedSums, PolicySums, n_functions, sum_policies

MAX_GROUPS = 1000
LEAST_PART = 0.2  # of the largest: populations that count less are left out if they tell nothing,
LEAST_TOLD = 0.99  # that is if the others tell this share of what all do
LEAST_F = 10.0  # of the gap in a second contrast: weaker ones would add noise alone


@dataclass(frozen=True, slots=True)
class MinMaxSystem:
    """The averages A, b, C of the paper, section 4.2, phi of the uplift and psi of the critic."""

    A: Array  # (p_f, p_g)  estimate of E[w phi psi^T]
    b: Array  # (p_g,)      estimate of E[z psi]
    C: Array  # (p_g, p_g)  estimate of E[psi psi^T]


def assemble(
    sums: GroupedSums, contrasts: Array | None = None, p_f: int | None = None
) -> MinMaxSystem:
    r"""Average the sums of all cells.

    With :math:`s_1 = 1`, :math:`s_2 = -1`, so that :math:`w = s_k t` and :math:`z = s_k y`,

    .. math::

        A = \tfrac12 \sum_k s_k \overline{t \phi\phi^\top}_k, \quad
        b = \tfrac12 \sum_k s_k \overline{y \phi}_k, \quad
        C = \tfrac14 \sum_k (\overline{\phi\phi^\top}_k + \overline{\widetilde{\phi\phi}^\top}_k),

    a bar with subscript :math:`k` being the weighted mean over one cell. This is the only place
    where cells of unequal sizes are put on an equal footing: dividing each by its own weight is
    the factor :math:`n / (2 n_k)` of the paper's appendix, and gives the formulas of its section
    4.2 when sizes are equal.

    More than two populations come with ``contrasts``, shape (J, K), whose entries take the place of
    :math:`s_k`; in C a population counts by the size of its entry in the first. Each contrast has
    a critic of its own: the J parts of A and b stand side by side. With ``p_f`` the uplift has so
    many functions, and the critic the rest.
    """
    parts = np.array([[1.0, -1.0]]) if contrasts is None else contrasts
    A = np.zeros((len(parts), sums.p, sums.p))
    b = np.zeros((len(parts), sums.p))
    C = np.zeros((sums.p, sums.p))
    for k, part in enumerate(parts.T):
        treatment, outcome = sums.total(TREATMENT, k), sums.total(OUTCOME, k)
        A += part[:, None, None] / 2.0 * treatment.label_cross / treatment.weight
        b += part[:, None] / 2.0 * outcome.label_basis / outcome.weight
        size = 0.25 * abs(part[0])
        C += size * (treatment.gram / treatment.weight + outcome.gram / outcome.weight)
    f, g = (slice(None), slice(None)) if p_f is None else (slice(p_f), slice(p_f, None))
    if len(parts) == 1:
        return MinMaxSystem(A[0, f, g], b[0, g], C[g, g])
    return MinMaxSystem(
        np.hstack(list(A[:, f, g])), b[:, g].ravel(), block_diag(*[C[g, g]] * len(b))
    )


CELLS = ((OUTCOME, 0), (OUTCOME, 1), (TREATMENT, 0), (TREATMENT, 1))


@dataclass(frozen=True, slots=True)
class SmoothMeans:
    """Four conditional means by ridge regression on one basis.

    Those of two-valued labels are kept between the two. Those of real labels are not: a bound
    would move with a function added to the label, and centring is to be blind to it.
    """

    basis: Basis
    coef: Array  # (p, 4)
    offset: Array  # (4,) added to the products
    low: Array  # (4,) -1 for labels of two values, -inf for real ones
    high: Array  # (4,)

    def __call__(self, Z: Array) -> Array:
        """Return the means at scaled features (n, d), one column per cell, shape (n, 4)."""
        return self.bounded(self.basis(Z) @ self.coef)

    def bounded(self, products: Array) -> Array:
        """Return the means from products of basis values and coefficients, in place."""
        products += self.offset
        return np.clip(products, self.low, self.high, out=products)


@dataclass(frozen=True, slots=True)
class Centring:
    r"""A fitted pair (m, q), fixed from now on, for any chunk of features.

    :math:`m(x)` is the average of the two populations' conditional means of the outcome,
    :math:`q(x)` that of the treatment, both in the inner coding.
    """

    scaling: Scaling
    means: Callable[[Array], Array]  # (n, d) -> (n, 4), the order of `CELLS`

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Return m(x) and q(x) at features as they came, shapes (n,) and (n,)."""
        m, q, _ = self.parts(X)
        return m, q

    def parts(self, X: Array) -> tuple[Array, Array, Array]:
        """Return m(x), q(x) and the policy gap e_1(x) - e_2(x), shape (n,) each."""
        return _parts(self.means(self.scaling(X)))


def _parts(mean: Array) -> tuple[Array, Array, Array]:
    """Return m, q and the policy gap from the means of the four cells (n, 4)."""
    m = (mean[:, 0] + mean[:, 1]) / 2.0
    q = (mean[:, 2] + mean[:, 3]) / 2.0
    return m, q, (mean[:, 2] - mean[:, 3]) / 2.0


def by_chunks(
    centring: Centring, X: Array, at: IntArray, n_jobs: int | None
) -> tuple[Array, Array, Array]:
    """Return m, q and the gap at some rows, never holding basis values of all of them."""
    # Models have their own ways with threads and chunks; a single chunk needs neither.
    if len(at) <= CACHE_ROWS or not isinstance(centring.means, SmoothMeans):
        return centring.parts(X[at])
    means = centring.means
    values = ScaledBasis(means.basis, centring.scaling)
    raw = combine(values, means.coef, X, at=None if len(at) == len(X) else at, n_jobs=n_jobs)
    return _parts(means.bounded(raw))


def shared_means(centring: Centring, basis: Basis, scaling: Scaling) -> dict[str, CellMeans] | None:
    """Return what is subtracted from labels in terms of a pass over ``basis``, if it can be."""
    means, d = centring.means, len(scaling.mean)
    if not isinstance(means, SmoothMeans) or not _same_scaling(centring.scaling, scaling):
        return None
    if same_basis(means.basis, basis):
        linear, coef = None, means.coef
    elif isinstance(means.basis, StackedBasis) and same_basis(means.basis.second, basis):
        linear, coef = means.coef[: d + 1], means.coef[d + 1 :]
    else:
        return None
    found = {}
    for kind in (OUTCOME, TREATMENT):
        at = [c for c, cell in enumerate(CELLS) if cell[0] == kind]
        offset, bound = means.offset[at], float(means.high[at[0]])
        slope = None
        if linear is not None:
            slope = linear[1:, at] / scaling.scale[:, None]
            offset = offset + linear[0, at] - scaling.mean @ slope
        mean = CellMeans(coef[:, at], slope, offset, bound)
        found[kind] = mean if bound < np.inf else mean.averaged()
    return found


def _same_scaling(a: Scaling, b: Scaling) -> bool:
    return np.array_equal(a.mean, b.mean) and np.array_equal(a.scale, b.scale)


@dataclass(frozen=True, slots=True)
class SumsPlan:
    """Everything that turns a row into its share of the sums, fixed before the first row.

    Parties that agree on a plan can add up their rows apart and merge the sums.

    Parameters
    ----------
    feature_names : tuple of str or None
        The features, in order.
    populations : tuple
        Names of the populations, two or more, sorted; of two the first has the positive sign.
    coding : OutcomeCoding
        How outcomes are written inside.
    scaling : Scaling
        Subtracted from and divided out of the features.
    basis, critic : Basis
        Functions of the uplift and of the critic on scaled features, usually the same object.
    centring : tuple of Centring
        Empty for labels as they are; else one for each group, fitted without its rows, or one
        for all.
    n_groups : int
        Groups rows are dealt into, by which ridges are chosen.
    clip : float, optional
        Spreads that features are kept within; outcomes are then kept within -1 and 1 inside.
    contrasts : array of shape (J, K), optional
        How more than two populations are held against each other; settled by the sums, and not
        agreed on.
    """

    feature_names: tuple[str, ...] | None
    populations: tuple[Any, ...]
    coding: OutcomeCoding
    scaling: Scaling
    basis: Basis
    critic: Basis
    centring: tuple[Centring, ...]
    n_groups: int
    clip: float | None = None
    contrasts: Array | None = None

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.scaling.mean)

    @property
    def size(self) -> int:
        """Number of functions of the uplift and, if they differ, of the critic."""
        return self.basis.size + (0 if self.critic is self.basis else self.critic.size)

    @property
    def values(self) -> Callable[[Array], Array]:
        """Maps features as they came (n, d) to basis values (n, size)."""
        both = self.basis if self.critic is self.basis else StackedBasis(self.basis, self.critic)
        return ScaledBasis(both, self.scaling)

    def sums(
        self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None
    ) -> PlannedSums:
        """Add up checked rows with labels not yet centred; ``group`` is None if all are one.

        Centring on the basis of the sums is part of their pass; any other comes before it.
        """
        means, centred = self._means(), None
        if self.centring and means is None:
            centred = self.centred(rows, group, n_jobs=n_jobs)
        sums, policy = accumulate_policies(
            self.values,
            self.size,
            rows,
            self.scaling,
            groups=group,
            means=means,
            centred=centred,
            n_jobs=n_jobs,
        )
        return PlannedSums(self, sums, policy)

    def _means(self) -> dict[CellKey, CellMeans] | None:
        """Return what the pass subtracts from labels by itself, if it can."""
        if not self.centring or self.critic is not self.basis:
            return None
        found = {}
        for group in range(self.n_groups):
            centring = self.centring[group if len(self.centring) > 1 else 0]
            means = shared_means(centring, self.basis, self.scaling)
            if means is None:
                return None
            for kind, k in product(means, range(len(self.populations))):
                found[CellKey(kind, k, group)] = means[kind]
        return found

    def centred(self, rows: LabelledRows, group: IntArray | None, *, n_jobs: int | None) -> Array:
        """Return labels less what the features predict of them, a new array."""
        found = rows.label.copy()
        for j, centring in enumerate(self.centring):
            several = len(self.centring) > 1
            at = np.flatnonzero(group == j) if several else np.arange(len(rows))
            if len(at):
                m, q, _ = by_chunks(centring, rows.X, at, n_jobs)
                found[at] -= np.where(rows.is_outcome[at], m, q)
        return found


class TableId(NamedTuple):
    """What the sums of one table are known by."""

    kind: str
    population: int
    digest: str  # 32 hexadecimal digits


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pass has come: rows read, and the sum of their digests to know them by."""

    n_rows: int = 0
    digest: int = 0  # modulo 2^64

    def after(self, rows: NumberedRows) -> Position:
        """Return the position behind further rows."""
        return Position(self.n_rows + len(rows), (self.digest + rows_digest(rows)) % 2**64)


@dataclass(frozen=True, slots=True)
class PlannedSums:
    """Sums and the plan they were made by: all that `MinMaxUplift.fit_moments` needs."""

    plan: SumsPlan
    sums: GroupedSums
    policy: PolicySums
    tables: tuple[TableId, ...] = ()  # those merged; empty for sums of one pass

    @classmethod
    def of_no_rows(cls, plan: SumsPlan) -> PlannedSums:
        """Return a plan without sums, to be agreed on or added to."""
        policy = PolicySums.zero(plan.n_features, len(plan.populations))
        return cls(plan, GroupedSums(plan.size), policy)

    @property
    def contrasts(self) -> Array | None:
        """How more than two populations are held against each other; None for two."""
        names = self.plan.populations
        if len(names) == 2:
            return None
        size = [self.sums.total(OUTCOME, k).effective_rows for k in range(len(names))]
        return best_contrasts(self.policy, np.array(size), self.plan.n_features)

    def in_two_groups(self) -> PlannedSums:
        """Return the sums of the two groups of populations whose contrast tells the most."""
        if (contrasts := self.contrasts) is None:
            return self
        names = tuple(group_names(self.plan.populations, contrasts[0]))
        plan = replace(self.plan, populations=names)
        return replace(self, plan=plan, sums=self.sums.in_two_groups(contrasts[0]))

    def __add__(self, other: PlannedSums) -> PlannedSums:
        """Return these sums with further ones by the same plan."""
        return replace(self, sums=self.sums + other.sums, policy=self.policy + other.policy)

    def n_rows(self, kind: str, population: int) -> int:
        """Return the number of rows of one cell."""
        cells = self.sums.cells.items()
        return sum(s.n_rows for k, s in cells if (k.kind, k.population) == (kind, population))

    def check_complete(self, *, groups: bool) -> None:
        """Refuse sums without one of the cells, or of a group if those are needed."""
        for k, name in enumerate(self.plan.populations):
            for kind in (OUTCOME, TREATMENT):
                if self.n_rows(kind, k) == 0:
                    raise InputError(
                        f"the sums hold no {kind} rows of population {name!r}. Merge the file "
                        "of the party that has them."
                    )
                present = {
                    key.group for key in self.sums.cells if (key.kind, key.population) == (kind, k)
                }
                if groups and len(present) < self.plan.n_groups:
                    raise InputError(
                        f"ridges are chosen by {self.plan.n_groups} groups of rows, but the "
                        f"{kind} rows of population {name!r} fill {len(present)} of them "
                        f"({self.n_rows(kind, k)} rows). Give more rows, or numbers for ridge_f "
                        "and ridge_g; tables that fit in memory are better fitted with fit."
                    )


def tables_of(found: PlannedSums) -> tuple[TableId, ...]:
    """Return the identities of all tables that were added up, sorted."""
    if found.tables:
        return found.tables
    tables = sorted({key[:2] for key in found.sums.cells})
    return tuple(TableId(*table, found.sums.total(*table).digest()) for table in tables)


def best_contrasts(policy: PolicySums, size: Array, n_features: int) -> Array:
    r"""Return fixed combinations of populations that tell of the uplift, shape (J, K).

    Of all :math:`a` that add up to 0 the first has the largest
    :math:`E[(\sum_k a_k e_k(x))^2] / \sum_k a_k^2 / n_k`, the information that the contrast of
    outcomes carries: never less than that of any pair or subset of the populations, but for one
    percent at most, where populations that tell nothing are left out. Its positive
    entries add up to 1, the negative ones to -1. The others have the most of what is left, their
    noise is of the same size and uncorrelated, and they are there only if the populations'
    policies clearly differ in them. Policies :math:`e_k` are regressions of the treatments, and
    what their noise adds to the expectation is taken off. ``size`` are the effective numbers of
    outcome rows.
    """
    K, p = len(size), size / size.sum()
    spread, noise = _spread(policy, n_functions(int(policy.n_rows.min()), n_features))
    apart = np.eye(K) - p  # takes the mean over all populations off
    left = apart @ (spread - np.diag(noise)) @ apart.T
    root = np.sqrt(p)
    found = root * np.linalg.eigh(root[:, None] * left * root)[1].T[::-1]  # the best one first
    found -= np.outer(found.sum(axis=1), p)  # adds up to 0 but for rounding
    if not np.abs(found[0]).max() > 1e-9:  # no policy differs
        return np.array([_with_sides_of_one(np.eye(K)[0] - p)])
    first, fewer = _with_sides_of_one(found[0]), _with_sides_of_one(found[0], LEAST_PART)
    if _told(fewer, left, p) >= LEAST_TOLD * _told(first, left, p):
        first = fewer
    others = found[1:] * np.sqrt(np.sum(first**2 / p) / np.sum(found[0] ** 2 / p))
    F = np.einsum("jk,kl,jl->j", others, spread, others) / (others**2 @ noise + 1e-300)
    return np.vstack([first, others[F > LEAST_F]])


def _spread(policy: PolicySums, q: int) -> tuple[Array, Array]:
    """Return the mean products of the policies, (K, K), and what noise adds to the squares."""
    each = policy.weight[:, None, None]
    G, V = policy.gram[:, :q, :q] / each, policy.square[:, :q, :q] / each**2
    inverse = np.array([np.linalg.pinv(part, rcond=1e-10, hermitian=True) for part in G])
    coef = np.einsum("kij,kj->ki", inverse, policy.label[:, :q] / policy.weight[:, None])
    left = np.maximum(1.0 - np.einsum("ki,kij,kj->k", coef, G, coef), 0.0)  # t^2 is 1
    mean = G.mean(axis=0)
    noise = left * np.einsum("ij,kjl,klm,kmi->k", mean, inverse, V, inverse, optimize=True)
    return coef @ mean @ coef.T, noise


def _told(contrast: Array, spread: Array, p: Array) -> float:
    """Return the information of a contrast, in units that all contrasts share."""
    return float(contrast @ spread @ contrast / np.sum(contrast**2 / p))


def _with_sides_of_one(contrast: Array, least: float = 1e-6) -> Array:
    """Return a contrast whose entries of either sign add up to one, the first being positive."""
    contrast = np.where(np.abs(contrast) < least * np.abs(contrast).max(), 0.0, contrast)
    contrast *= np.sign(contrast[np.flatnonzero(contrast)[0]])
    side = contrast > 0.0
    totals = np.where(side, contrast[side].sum(), -contrast[~side].sum())
    return np.asarray(contrast / totals)


def contrasts_of(rows: LabelledRows, *, n_jobs: int | None = None) -> Array:
    """Return the contrasts of rows of several populations."""
    cells = [rows.weight[rows.at(OUTCOME, k)] for k in range(len(rows.names))]
    size = np.array([weight.sum() ** 2 / (weight @ weight) for weight in cells])
    return best_contrasts(sum_policies(rows, n_jobs=n_jobs), size, rows.X.shape[1])


def in_two_groups(rows: LabelledRows, contrast: Array) -> tuple[LabelledRows, IntArray]:
    """Return rows of several populations as rows of two groups of them, and their positions.

    Populations with a positive part of the contrast are one group, those with a negative part the
    other, each counting by its part, alike in its two tables. The two groups differ in their
    policies, and share the law of outcomes, as two populations do.
    """
    weight = np.zeros(len(rows.label))
    for at, part in zip(rows.all_cells(), np.tile(np.abs(contrast), 2), strict=True):
        weight[at] = part * rows.weight[at] / rows.weight[at].sum()
    second = contrast[rows.population] < 0.0
    cell = (np.where(rows.is_outcome, 0, 2) + second).astype(rows.cell.dtype)
    merged = replace(rows, cell=cell, weight=weight, names=group_names(rows.names, contrast))
    used = np.flatnonzero(contrast[rows.population])
    merged = merged.take(used)
    return replace(merged, weight=merged.relative), used


def group_names(names: Sequence[Any], contrast: Array) -> list[str]:
    """Return what the two groups are called: the populations of each, with a plus between."""
    groups = [[n for n, c in zip(names, contrast, strict=True) if c * s > 0] for s in (1, -1)]
    return [" + ".join(map(str, group)) for group in groups]
