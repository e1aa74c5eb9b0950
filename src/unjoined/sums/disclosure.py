r"""What sums may tell of a single row: refusals, and noise under which no row shows.

The noise is that of the Gaussian mechanism. Features are kept within ``clip`` spreads of their
typical values and outcomes within -1 and 1, both by the agreed plan. With :math:`w` the largest
size of each function, 1 for Fourier functions, and :math:`\psi_i = \phi_i / w_i`, every row has
:math:`\|\psi\|^2 \le B^2 = 1 + d + 2`: the constant,
d features, and Fourier functions whose squares add up to at most 2. A row is part of one group of
one table. There it adds

- an outcome: :math:`\psi\psi^\top` and :math:`B\,y\,\psi`,
- a treatment: :math:`\psi\psi^\top` and :math:`t\,\psi\psi^\top`,

each of norm at most :math:`B^2`, a product off the diagonal being one number that counts
:math:`\sqrt 2` times. So all that a file holds changes by at most :math:`\sqrt 2 B^2` with one
row, added or left out.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from unjoined._typing import Array, Basis
from unjoined._validation import OUTCOME, TREATMENT, check_positive
from unjoined.basis import FourierBasis, LinearBasis, StackedBasis
from unjoined.errors import ColumnWarning, InputError
from unjoined.sums.census import Census
from unjoined.sums.moments import CellKey, GroupedSums, MomentSums, PolicySums
from unjoined.sums.plan import PlannedSums, SumsPlan, TableNoise

MOST_EPSILON, MOST_DELTA = 100.0, 0.01
SOME_MOVED, MOST_MOVED = 0.1, 0.5  # shares of rows beyond the limits of a plan
GRID = 2.0**-12  # of the noise: digits below would tell of the sum behind it
# Radians per spread: no function goes through a whole period within one spread of a feature.
MAX_FREQUENCY = 2.0 * np.pi
MAX_SPREADS = 10.0  # standard deviation of a scaled feature, else frequencies are higher than said
# Labels of two values can be solved for if there are more equations than half of the rows
# (Mangasarian and Recht, 2011).
ROWS_PER_SUM = 2


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Noise under which a file of sums is (epsilon, delta)-differentially private for each row.

    Parameters
    ----------
    epsilon : float
        Above 0: how much more likely any file may become by one row, as a logarithm.
    delta : float
        Between 0 and 1: the probability with which that may fail. Well below one in the number
        of rows, such as 1e-6.
    entropy : callable, default=os.urandom
        Returns so many random bytes; the operating system's. A test may pass those of a seeded
        generator, ``numpy.random.default_rng(0).bytes``. A seed that others know takes all
        protection away.
    """

    epsilon: float
    delta: float
    entropy: Callable[[int], bytes] = os.urandom

    def __post_init__(self) -> None:
        """Refuse numbers that protect nobody."""
        if check_positive("epsilon", self.epsilon) > MOST_EPSILON:
            raise InputError(
                f"epsilon must be at most {MOST_EPSILON:g}, beyond which it protects nobody, got "
                f"{self.epsilon!r}. Leave noise out if none is wanted."
            )
        if not 0.0 < check_positive("delta", self.delta) < 1.0:
            raise InputError(f"delta must be between 0 and 1, such as 1e-6, got {self.delta!r}.")
        if self.delta > MOST_DELTA:
            raise InputError(
                f"delta must be at most {MOST_DELTA}, as with that chance a row may be told, got "
                f"{self.delta!r}. Take less than one in the number of rows, such as 1e-6."
            )

    def draw(self, *shape: int) -> Array:
        """Return standard normal numbers."""
        n = math.prod(shape)
        whole = np.frombuffer(self.entropy(8 * n), dtype="<u8") >> np.uint64(11)
        found: Array = ndtri((whole.astype(np.float64) + 0.5) * 2.0**-53)
        return found.reshape(shape)


@lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, delta: float) -> float:
    r"""Return the least standard deviation of noise for a sensitivity of 1 (Balle and Wang, 2018).

    The mechanism is private if and only if :math:`\Phi(a - \epsilon s) - e^\epsilon
    \Phi(-a - \epsilon s) \le \delta` with :math:`a = 1 / 2s`.
    """

    def excess(log_s: float) -> float:
        s = math.exp(log_s)
        a, b = 0.5 / s - epsilon * s, -0.5 / s - epsilon * s
        return math.exp(log_ndtr(a)) - math.exp(epsilon + log_ndtr(b)) - delta

    return math.exp(float(brentq(excess, math.log(1e-4), math.log(1e16), xtol=1e-12))) * (1 + 1e-9)


def function_sizes(plan: SumsPlan) -> tuple[Array, float]:
    """Return the largest size w of each function, (p,), and B^2."""
    d, clip = plan.n_features, plan.clip
    if clip is None:
        raise InputError(
            "noise needs features within agreed limits, and the plan has none. Make a plan with "
            "clip, the number of spreads that features are kept within: fourier_plan(..., clip=3) "
            "or `unjoined plan --clip 3`; for an outcome of many values also outcome_range."
        )
    w = np.ones(plan.size)
    w[1 : d + 1] = clip
    return w, 1.0 + d + (2.0 if plan.size > d + 1 else 0.0)


def sensitivity(plan: SumsPlan) -> float:
    """Return how much one row can change what a file holds, in the norm that noise is scaled by."""
    return math.sqrt(2.0) * function_sizes(plan)[1]


def product_variance(plan: SumsPlan) -> Array:
    """Return the variance of the noise in sums of products, (p, p), for a multiplier of 1."""
    w, B2 = function_sizes(plan)
    halved = np.where(np.eye(len(w), dtype=bool), 1.0, 0.5)
    return np.asarray(2.0 * B2**2 * np.outer(w, w) ** 2 * halved)


def with_noise(found: PlannedSums, noise: GaussianNoise) -> PlannedSums:
    """Return sums of clipped rows with noise on each of them, and what it protects."""
    multiplier = noise_multiplier(float(noise.epsilon), float(noise.delta))
    plan, cells = found.plan, {}
    w, B2 = function_sizes(plan)
    product = multiplier * np.sqrt(product_variance(plan))
    for key in sorted(found.sums.cells):
        cell = found.sums.cells[key]
        gram = _noisy_product(cell.gram, product, noise)
        if key.kind == TREATMENT:
            cross = _noisy_product(cell.label_cross, product, noise)
            label = cross[0].copy()
        else:
            cross = cell.label_cross
            label = _noisy(cell.label_basis, multiplier * math.sqrt(2.0 * B2) * w, noise)
        n = float(gram[0, 0])
        if n < 3.0 * product[0, 0]:
            raise InputError(
                f"noise of {product[0, 0]:.3g} rows hides group {key.group} of the {key.kind} "
                f"rows of population {plan.populations[key.population]!r} altogether. Nothing was "
                "written. Give more rows, a larger epsilon, or agree on fewer groups or features."
            )
        cells[key] = MomentSums(math.ceil(n), n, cross, label, gram, n)
    tables = sorted({key[:2] for key in cells})
    return with_policies_of_sums(
        replace(
            found,
            sums=GroupedSums(plan.size, cells),
            noise=tuple(TableNoise(*table, noise.epsilon, noise.delta) for table in tables),
        )
    )


def _noisy(values: Array, scale: Array, noise: GaussianNoise) -> Array:
    """Return numbers with noise, on a grid: the digits of sums and noise end at the same place."""
    step = np.exp2(np.floor(np.log2(scale * GRID)))
    drawn = scale * noise.draw(*values.shape)
    return np.asarray(step * (np.rint(values / step) + np.rint(drawn / step)))


def _noisy_product(values: Array, scale: Array, noise: GaussianNoise) -> Array:
    upper = np.triu(_noisy(values, scale, noise))
    return np.asarray(upper + np.triu(upper, 1).T)


def multipliers(plan: SumsPlan, noise: Sequence[TableNoise], kind: str) -> Array:
    """Return for each population the squared multipliers of its tables of a kind, added up."""
    found = np.zeros(len(plan.populations))
    for table in noise:
        if table.kind == kind:
            found[table.population] += noise_multiplier(table.epsilon, table.delta) ** 2
    return found


def with_policies_of_sums(found: PlannedSums) -> PlannedSums:
    """Return noisy sums with the policies' sums made from them: a constant and the features.

    The known variance of the noise is added to that of the rows.
    """
    plan, q = found.plan, found.plan.n_features + 1
    totals = [found.sums.total(TREATMENT, k) for k in range(len(plan.populations))]
    variance = np.diag(product_variance(plan)[0, :q])
    added = plan.n_groups * multipliers(plan, found.noise, TREATMENT)[:, None, None] * variance
    gram = np.array([total.gram[:q, :q] for total in totals])
    policy = PolicySums(
        np.array([total.n_rows for total in totals]),
        np.array([total.weight for total in totals]),
        np.array([total.label_basis[:q] for total in totals]),
        gram,
        gram + added,
    )
    return replace(found, policy=policy)


def noise_in_scores(plan: SumsPlan, sums: GroupedSums, C: Array, ridge: float) -> Array:
    """Return P with alpha^T P alpha what noise on A adds to the score of each fold, (folds, p, p).

    With J = (C + r I)^-1 and noise of variance v on a symmetric matrix, its quadratic form J has
    the expectation sum_i alpha_i^2 sum_l J_ll v_il + sum_{i != l} alpha_i alpha_l J_il v_il.
    """
    p, K = plan.size, len(plan.populations)
    J = np.linalg.inv(C[:p, :p] + ridge * np.eye(p))
    parts = np.ones(K) if plan.contrasts is None else np.sum(plan.contrasts**2, axis=0)
    v, found = product_variance(plan), []
    coupled = np.diag(v @ np.diag(J)) + np.where(np.eye(p, dtype=bool), 0.0, J * v)
    for group in sums.groups:
        held = sums.of_group(group)
        weight = np.array([held.total(TREATMENT, k).weight for k in range(K)])
        found.append(coupled * float(np.sum(parts * np.asarray(plan.noise) / weight**2)) / 4.0)
    return np.array(found)


def check_plan(plan: SumsPlan) -> None:
    """Refuse a plan whose functions could be aimed at a row."""
    found = _functions_of(plan)
    if found is not None:
        raise InputError(
            f"the plan holds {found}, by which a single row could be singled out, and nothing was "
            "added up. A plan may hold a constant, the features and Fourier functions that are not "
            "too fine. Make one with fourier_plan or `unjoined plan`."
        )


def _functions_of(plan: SumsPlan) -> str | None:
    """Return what a plan holds that is not accepted, None if there is no such thing."""
    first: Basis = plan.basis
    second: Basis | None = None
    if isinstance(plan.basis, StackedBasis):
        first, second = plan.basis.first, plan.basis.second
    if plan.critic is not plan.basis:
        return "functions of the critic's own"
    if plan.centring:
        return "functions to be subtracted from the labels"
    if not isinstance(first, LinearBasis) or not isinstance(second, FourierBasis | None):
        names = [type(part).__name__ for part in (first, second) if part is not None]
        return f"functions of other kinds ({' and '.join(names)})"
    if second is not None and np.abs(second.frequencies).max() > MAX_FREQUENCY:
        highest = float(np.abs(second.frequencies).max())
        return (
            f"frequencies of up to {highest:.3g} per spread, where {MAX_FREQUENCY:.3g} is allowed"
        )
    return None


def check_counts(found: PlannedSums, min_count: int) -> None:
    """Refuse sums over few effective rows, and scales far from the rows' own."""
    tables = {key[:2] for key in found.sums.cells}
    none = MomentSums.zero(found.plan.size)
    for key in sorted(CellKey(*table, g) for table in tables for g in range(found.plan.n_groups)):
        cell = found.sums.cells.get(key, none)
        p = found.plan.size
        sums = p if key.kind == OUTCOME else p * (p + 1) // 2
        least = max(min_count, ROWS_PER_SUM * sums)
        if cell.effective_rows < least * (1.0 - 1e-9):
            raise InputError(
                f"{place_of(key, found.plan)} has {cell.n_rows} rows, worth "
                f"{cell.effective_rows:.1f} of equal weight, fewer than the minimum of {least}: "
                f"{min_count} in any case, and {ROWS_PER_SUM} for each of its {sums} sums of "
                "labels, which could else be solved for the labels. Nothing was written. Agree on "
                "fewer functions or groups, or give more rows."
            )
    _check_spreads(found)


def _check_spreads(found: PlannedSums) -> None:
    """Refuse spreads that are far too small: functions would vary from row to row."""
    plan = found.plan
    linear = slice(1, plan.n_features + 1)  # behind the constant
    for kind in (OUTCOME, TREATMENT):
        for k, name in enumerate(plan.populations):
            total = found.sums.total(kind, k)
            if not total.n_rows:
                continue
            away = np.sqrt(np.diag(total.gram)[linear] / total.weight)
            j = int(np.argmax(away))
            if away[j] > MAX_SPREADS:
                raise InputError(
                    f"the plan says that feature {feature_name(plan, j)} is about "
                    f"{plan.scaling.mean[j]:.3g}, give or take {plan.scaling.scale[j]:.3g}, but "
                    f"the {kind} rows of population {name!r} are {away[j]:.3g} times as far away. "
                    "Functions that are so fine for the rows could single one out. Nothing was "
                    "written. Agree on a plan with about the right value and spread."
                )


def place_of(key: CellKey, plan: SumsPlan) -> str:
    """Return what messages call a cell."""
    population = plan.populations[key.population]
    return f"group {key.group} of the {key.kind} rows of population {population!r}"


def check_limits(census: Census, plan: SumsPlan) -> None:
    """Tell of rows that a plan's limits move; most of them are refused, as rows in other units."""
    for (kind, name), sketch in census.cells.items() if plan.clip is not None else ():
        moved = {
            f"feature {feature_name(plan, j)}": column
            for j, column in enumerate((plan.scaling.clipped(sketch.X, plan.clip) != sketch.X).T)
        }
        if kind == OUTCOME:
            inner = (sketch.label - plan.coding.offset) / plan.coding.scale
            moved["outcome"] = np.abs(inner) > 1.0 + 1e-9
        for what, column in moved.items():
            share = float(sketch.count[column].sum() / max(sketch.count.sum(), 1))
            said = (
                f"{share:.0%} of the {kind} rows of population {name!r} have their {what} beyond "
                "the limits of the plan"
            )
            if share > MOST_MOVED:
                raise InputError(
                    f"{said}. Nothing was written. Use the units of the plan, or agree on limits "
                    "that hold most rows."
                )
            if share > SOME_MOVED:
                warnings.warn(f"{said} and are moved there.", ColumnWarning, stacklevel=3)


def feature_name(plan: SumsPlan, j: int) -> str:
    """Return what messages call a feature."""
    return repr(plan.feature_names[j]) if plan.feature_names else str(j)
