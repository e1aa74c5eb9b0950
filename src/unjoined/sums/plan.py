"""What is fixed before the pass that adds up, and what is made of the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.linalg import block_diag, pinvh

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, Basis, IntArray
from unjoined._validation import OUTCOME, TREATMENT, OutcomeCoding
from unjoined.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    ScaledBasis,
    Scaling,
    StackedBasis,
    same_basis,
)
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.sums.add_up import CellMeans, accumulate_policies, combine
from unjoined.sums.moments import CellKey, GroupedSums, MomentSums
from unjoined.sums.policies import PolicySums, best_contrasts, group_names


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


MAX_GROUPS = 1000


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
    contrasts : array of shape (J, number of populations), optional
        How populations are held against each other, if there are more than two; settled by the
        sums, and not part of what is agreed on.
    """

    feature_names: tuple[str, ...] | None
    populations: tuple[Any, ...]
    coding: OutcomeCoding
    scaling: Scaling
    basis: Basis
    critic: Basis
    centring: tuple[Centring, ...]
    n_groups: int
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
    ) -> tuple[GroupedSums, PolicySums]:
        """Add up checked rows with labels not yet centred; ``group`` is None if all are one.

        Centring on the basis of the sums is part of their pass; any other comes before it.
        """
        means, centred = self._means(), None
        if self.centring and means is None:
            centred = self.centred(rows, group, n_jobs=n_jobs)
        return accumulate_policies(
            self.values,
            self.size,
            rows,
            self.scaling,
            groups=group,
            means=means,
            centred=centred,
            n_jobs=n_jobs,
        )

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


def means_basis(basis: Basis) -> Basis | None:
    """Return the functions on which labels are centred along with the sums on ``basis``.

    A constant and the features come first, as `smooth_coef` wants them. None for a basis that
    need not be fit to predict labels: linear functions, which leave what bends in the labels'
    means (where features are distributed differently, that biases the uplift), and those of
    unknown kind.
    """
    if isinstance(basis, StackedBasis):
        return basis if isinstance(basis.first, LinearBasis | PrincipalBasis) else None
    if isinstance(basis, GaussianBasis | FourierBasis):
        return StackedBasis(LinearBasis(basis.n_features), basis)
    return None


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


def has_constant(basis: Basis) -> bool:
    """Whether the functions begin with a constant and the features."""
    return isinstance(basis.first if isinstance(basis, StackedBasis) else basis, LinearBasis)


def center_sums(sums: GroupedSums, basis: Basis, contrasts: Array | None = None) -> GroupedSums:
    r"""Subtract from labels what the functions predict of them, when they are added up already.

    With :math:`m(x) = c^\top \phi(x)` the sums of :math:`(y - m) \phi` are those of
    :math:`y \phi` less the products of functions times c, exactly. What it takes for a function
    q(x) of treatments is not in the sums, but for a constant. As in `center_rows`, m is the average
    of the populations' regressions, each fitted without the group of rows it is subtracted from;
    the penalty is the one that predicts the labels of groups left out best. ``basis`` are the first
    of the functions of the sums: a constant and the features, then any others.
    """
    p, d = basis.size, basis.n_features
    parts = (0.5, 0.5) if contrasts is None else np.abs(contrasts[0]) / 2.0
    start = np.zeros(p)
    # Else sums of labels far from 0 would cancel in the regressions.
    start[0] = sum(part * _mean_label(sums, OUTCOME, k) for k, part in enumerate(parts))
    near = _shifted(sums, dict.fromkeys(sums.groups, start))
    coefs = [_coef_without(near, p, d, k) for k in range(len(parts))]
    means = {g: sum(part * c[g] for part, c in zip(parts, coefs, strict=True)) for g in sums.groups}
    found = _shifted(near, means)
    share = sum(part * _mean_label(sums, TREATMENT, k) for k, part in enumerate(parts))
    cells = dict(found.cells)
    for key, cell in cells.items():
        if key.kind == TREATMENT:
            label = cell.label_basis - share * cell.gram[0]
            cross = cell.label_cross - share * cell.gram
            cells[key] = replace(cell, label_basis=label, label_cross=cross)
    return GroupedSums(sums.p, cells)


def _mean_label(sums: GroupedSums, kind: str, population: int) -> float:
    """Return the mean label of one cell, by the constant among the functions."""
    total = sums.total(kind, population)
    return float(total.label_basis[0] / total.weight)


def _shifted(sums: GroupedSums, coef: dict[int, Array]) -> GroupedSums:
    """Return the sums with outcomes less a combination of the first functions, by group."""
    cells = dict(sums.cells)
    for key, cell in cells.items():
        if key.kind == OUTCOME:
            c = coef[key.group]
            label = cell.label_basis - cell.gram[:, : len(c)] @ c
            cells[key] = replace(cell, label_basis=label)
    return GroupedSums(sums.p, cells)


def _coef_without(sums: GroupedSums, p: int, d: int, population: int) -> dict[int, Array]:
    """Return for each group the regression of one population's outcomes in the other groups."""
    own = {
        key.group: replace(cell, label_basis=cell.label_basis[:p], gram=cell.gram[:p, :p])
        for key, cell in sums.cells.items()
        if (key.kind, key.population) == (OUTCOME, population)
    }
    paths, score = {}, 0.0
    for group in sums.groups:
        # Of one group alone nothing can be left out.
        rest = [cell for other, cell in own.items() if other != group] or list(own.values())
        paths[group] = C = SmoothPath.of_sums(reduce(MomentSums.merge, rest), d).coef()
        if group in own and len(own) > 1:
            held = own[group]
            # Squared errors of the held-out labels, less the sum of their squares.
            score = score + np.sum(C * (held.gram @ C - 2.0 * held.label_basis[:, None]), axis=0)
    best = smoothest_best(np.asarray(score)) if len(own) > 1 else -1
    return {group: C[:, best] for group, C in paths.items()}


def cell_positions(rows: LabelledRows, *, n_jobs: int | None = None) -> list[IntArray]:
    """Return the positions of the rows of each of the four cells, outcomes first."""
    return rows.all_cells()


def sample_cells(cells: list[IntArray], most: int, rng: Rng) -> list[IntArray]:
    """Return the positions of at most ``most`` rows of each cell, in order."""
    chosen = []
    for at in cells:
        n = min(len(at), most)
        # One row out of each of as many strips: distinct, and soon done. Strips differ by a row
        # in length, so that they start at random, or rows would not be equally likely.
        edges = np.arange(n + 1) * len(at) // n
        some = edges[:-1] + (rng.random_sample(n) * np.diff(edges)).astype(np.int64)
        chosen.append(at[np.sort((some + rng.randint(len(at))) % len(at))])
    return chosen


def take_sample(rows: LabelledRows, cells: list[IntArray], most: int, rng: Rng) -> LabelledRows:
    """Return at most ``most`` rows of each cell, with the weight of all of them."""
    chosen = sample_cells(cells, most, rng)
    more = [np.full(len(at), len(c) / len(at)) for at, c in zip(chosen, cells, strict=True)]
    sample = rows.take(np.concatenate(chosen))
    return replace(sample, weight=sample.weight * np.concatenate(more))


PENALTIES = np.logspace(-6.0, 2.0, 17)  # per row
# Counting each degree of freedom 1.4 times keeps generalised cross-validation from the rough
# fits it now and then chooses (Kim and Gu, 2004).
INFLATION = 1.4
ROWS_PER_FREE = 10  # rows per feature from which on the linear part is not penalised


def smooth_coef(sums: MomentSums, square: float, n_features: int) -> Array:
    r"""Regress the label on a constant, the features (both free) and Gaussians (with a ridge).

    .. math::

        \min_{a, c} \; \sum_i r_i (l_i - a^\top (1, x_i) - c^\top \phi(x_i))^2 + \lambda \|c\|^2,

    with :math:`\lambda` from generalised cross-validation,
    :math:`RSS / (1 - 1.4\,\mathrm{df} / n)^2`, ``square`` being the weighted sum of squared labels.
    As the linear part is free, a linear function added to the labels adds to the fit and changes no
    residual. With fewer than ten rows per feature only the constant is free.
    """
    n = sums.n_rows
    path = SmoothPath.of_sums(sums, n_features)
    left = n / sums.weight * square - path.v @ path.inverse @ path.v
    residual = left - 2.0 * path.shrunk @ path.u + (path.shrunk**2) @ path.values
    shares = path.values / (path.values + n * PENALTIES[:, None])
    degrees = len(path.v) + np.sum(shares, axis=1)
    score = residual / np.maximum(1.0 - INFLATION * degrees / n, 1e-2) ** 2
    coef: Array = path.coef()[:, smoothest_best(score)]
    return coef


def smoothest_best(score: Array) -> int:
    """Return the best penalty; a tie, as with a label that never varies, goes to the smoothest."""
    return len(score) - 1 - int(np.argmin(score[::-1]))


class SmoothPath(NamedTuple):
    """The regressions of `smooth_coef` for all penalties, the free part projected out."""

    inverse: Array  # (free, free) of the free part's products
    B: Array  # (free, p - free) what the free part says of the rest
    v: Array  # (free,) products of the free part and the label
    vectors: Array  # (p - free, p - free) directions of the rest
    values: Array  # (p - free,)
    u: Array  # (p - free,) products of the directions and the label
    shrunk: Array  # (n_penalties, p - free) coefficients of the directions

    @classmethod
    def of_sums(cls, sums: MomentSums, n_features: int) -> SmoothPath:
        """Solve for all penalties by one decomposition."""
        n = sums.n_rows
        G, v = (n / sums.weight * part for part in (sums.gram, sums.label_basis))
        free = 1 + (n_features if n >= ROWS_PER_FREE * (1 + n_features) else 0)
        # Frisch, Waugh and Lovell; features may be collinear.
        inverse = np.asarray(pinvh(G[:free, :free]), dtype=np.float64)
        B = inverse @ G[:free, free:]
        values, vectors = np.linalg.eigh(G[free:, free:] - G[free:, :free] @ B)
        values = np.maximum(values, 0.0)  # rounding only
        u: Array = vectors.T @ (v[free:] - B.T @ v[:free])
        shrunk = u / (values + n * PENALTIES[:, None])
        return cls(inverse, B, v[:free], vectors, values, u, shrunk)

    def coef(self) -> Array:
        """Return the coefficients of all functions, one column per penalty."""
        c = self.vectors @ self.shrunk.T
        return np.vstack([(self.inverse @ self.v)[:, None] - self.B @ c, c])


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
