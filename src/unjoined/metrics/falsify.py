r"""What the tables can refute: a shared law of outcomes, and chances between 0 and 1.

Uplift is read off the tables as if outcomes depended on features and treatment in the same way in
every population. With two populations most violations cannot be seen. Two consequences can.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import chi2, norm

from unjoined._typing import Array, BoolArray
from unjoined.metrics.balance import Check
from unjoined.metrics.ratio import GAP, EvaluationRows, RatioTerms

ROWS_PER_MOMENT = 50  # of the smallest table, for each further feature of the test
LEAST_ROWS = 30  # outcome rows in a group whose implied mean is tested


@dataclass(frozen=True, slots=True)
class Implied:
    """Mean outcomes without and with treatment that the tables imply, cross-fitted."""

    plug_in: Array  # (n, 2) from a model of each population's outcomes: may leave the range
    mean: Array  # (n,) mean outcome at the mean policy, outcome units
    low: float  # the smaller of the two outcomes
    high: float

    @property
    def outside(self) -> Array:
        """Which rows imply a mean outside of the range, without or with treatment, (n,)."""
        beyond = (self.plug_in < self.low) | (self.plug_in > self.high)
        return np.asarray(beyond.any(axis=1))


def implied_means(rows: EvaluationRows, outcomes: Array) -> Array:
    r"""Solve the populations' mean outcomes (n, K) for those without and with treatment, (n, 2).

    By least squares over the populations: the mean at treatment t is
    :math:`\sum_k a_k \mu_k` with :math:`a_k = p_k + (t - \tilde e) c_k`.
    """
    p = rows.size / rows.size.sum()
    middle = rows.policies @ p
    apart = rows.policies - middle[:, None]
    spread = np.maximum(apart**2 @ p, 1e-12)
    slope = (apart * outcomes) @ p / spread
    base = outcomes @ p
    return np.column_stack([base - middle * slope, base + (1.0 - middle) * slope])


def check_bounds(rows: EvaluationRows, terms: RatioTerms, implied: Implied) -> Check:
    r"""Test that no implied mean of a two-valued outcome lies beyond its two values.

    Rows whose cross-fitted implied mean is below the smaller value, or above the larger one, form
    a group, without and with treatment: four groups. The mean of each group, weighted by the
    squared gap, is estimated with the doubly robust score and tested one-sidedly; the smallest
    p-value times four is the p-value.
    """
    found = []
    for t in (0, 1):
        for side, bound in ((-1.0, implied.low), (1.0, implied.high)):
            beyond = side * (implied.plug_in[:, t] - bound) > 0.0
            if np.count_nonzero(beyond & (rows.cell < rows.n_populations)) >= LEAST_ROWS:
                found.append(_excess(rows, terms, implied.mean, float(t), beyond, side, bound))
    z = max(found, default=0.0)
    p_value = min(4.0 * float(norm.sf(z)), 1.0) if found else 1.0
    return Check("implied means within the outcome's range", "all tables", z, p_value)


def _excess(
    rows: EvaluationRows,
    terms: RatioTerms,
    mean: Array,
    t: float,
    group: BoolArray,
    side: float,
    bound: float,
) -> float:
    """Return by how many standard errors a group's implied mean lies beyond a bound."""
    K = rows.n_populations
    p = rows.size / rows.size.sum()
    population = rows.cell % K
    a = np.where(rows.is_labelled, p[population], 0.0) + (t - rows.policies @ p) * rows.contrast()
    own = np.where(rows.cell < K, 1.0, -rows.effect) * a * rows.ratio * rows.residual
    at_t = mean + (t - rows.policies.mean(axis=1)) * rows.effect
    column = rows.omega(GAP) * group * (own + rows.aim * (at_t - bound))
    total = terms.totals(column)
    error = np.sqrt(total.covariance[0, 0])
    return float(side * total.value[0] / error) if error > 0.0 else 0.0


def check_shared_law(rows: EvaluationRows, terms: RatioTerms, Z: Array) -> list[Check]:
    r"""Test that three populations or more share the law of outcomes, given features and treatment.

    For a reference pair (a, b) and each other population k, the contrast
    :math:`c = (e_b - e_k, e_k - e_a, e_a - e_b)` cancels both the base and the uplift, so that the
    moments of :math:`c_j b(x)` times the outcomes are 0. The pair is the one whose policies differ
    most. With b = 1, and with b = (1, x), the scaled features Z, if rows allow.
    """
    K = rows.n_populations
    if K < 3:
        return []
    e, population = rows.policies, rows.cell % K
    pairs = list(combinations(range(K), 2))
    a, b = pairs[int(np.argmax([np.mean((e[:, i] - e[:, j]) ** 2) for i, j in pairs]))]
    own = np.where(rows.cell < K, 1.0, -rows.effect) * rows.ratio * rows.residual
    own = np.where(rows.is_labelled, own, 0.0)
    moments = []
    for k in (k for k in range(K) if k not in (a, b)):
        contrast = np.zeros_like(e)
        contrast[:, a], contrast[:, b] = e[:, b] - e[:, k], e[:, k] - e[:, a]
        contrast[:, k] = e[:, a] - e[:, b]
        moments.append(contrast[np.arange(len(e)), population] * own)
    fewest = min(np.bincount(rows.cell[rows.is_labelled]))
    functions = {"average": np.ones((len(Z), 1))}
    if fewest >= ROWS_PER_MOMENT * Z.shape[1] * (K - 2):
        functions["average and features"] = np.column_stack([np.ones(len(Z)), Z])
    checks = []
    for name, B in functions.items():
        columns = np.hstack([moment[:, None] * B for moment in moments])
        statistic, degrees = terms.totals(columns).chi_square(slice(None))
        p_value = float(chi2.sf(statistic, degrees))
        checks.append(Check(f"one law of outcomes ({name})", "all tables", statistic, p_value))
    return checks
