"""Whether the policies differ enough for the data to determine the uplift."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import eigh

from unjoined._typing import Array, ArrayLike, MatrixLike
from unjoined.data import LabelledRows, feature_matrix, label_rows
from unjoined.errors import WeakIdentificationWarning
from unjoined.sums import PolicySums, n_functions, sum_policies

# Staiger and Stock (1997): below a first-stage F of about ten, instrumental-variable estimates
# are unreliable whatever the nominal sample size.
WEAK_F = 10.0


@dataclass(frozen=True, slots=True)
class IdentificationStrength:
    """How far apart the policies are, as far as the treatment rows can tell.

    All gaps are differences in the probability of treatment. For two populations they are
    e_1(x) - e_2(x), between -1 and 1. For more they are twice the standard deviation of e_k over
    the populations, each with its share of the treatment rows: between 0 and 1, and the
    difference again if there are two of the same size.
    """

    mean_gap: float  # in the share treated
    rms_gap: float  # root mean square of the gap over x, corrected for noise; 0 if not detectable
    f_statistic: float  # first-stage F: that the policies are the same at every x
    degrees: int  # functions of x the gap was projected on, times the populations less one
    populations: tuple[Any, ...] = ()  # their names
    pairs: tuple[IdentificationStrength, ...] = ()  # of each two, if there are more than two

    @property
    def is_weak(self) -> bool:
        """Whether the first-stage F is below 10, the usual threshold for instruments."""
        return self.f_statistic < WEAK_F

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of a table of all pairs of populations, ready for a data frame."""
        pairs = self.pairs or (self,)
        numbers = ("mean_gap", "rms_gap", "f_statistic", "degrees", "is_weak")
        return {
            "first": [pair.populations[0] for pair in pairs],
            "second": [pair.populations[1] for pair in pairs],
        } | {name: [getattr(pair, name) for pair in pairs] for name in numbers}


def identification_strength(
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> IdentificationStrength:
    """Measure how different the policies are, the strength of the "instrument".

    The paper's w = +-t has conditional mean e_1(x) - e_2(x), the policy gap. It is projected on
    a constant, the features and their squares, and tested against zero. Of more than two
    populations, what identifies uplift is the spread of their policies: the projections of all
    of them are tested for being equal.

    Parameters
    ----------
    X, y, kind, population, sample_weight
        As in ``fit``; pass ``**data`` with a `SeparateLabels`. Only treatment rows are used.

    Returns
    -------
    IdentificationStrength
        With the strength of each pair of populations in ``pairs`` if there are more than two, and
        as columns of a table in ``to_dict()``.

    Notes
    -----
    Costs O(n d^2), and O(d^3) for each pair of populations. With equal policies w is +1 or -1
    with even odds at every x, so that the covariance under the hypothesis is known exactly and
    the first-stage F (a chi-square divided by its degrees) is about 1. A gap that is neither
    constant, linear nor quadratic in any feature goes unseen. With many features and few rows,
    squares and then slopes are left out so that there are ten rows to each degree of freedom;
    squares also with more than 500 features.

    Of K > 2 populations, p_k being their shares of the treatment rows, the gap at x is
    2 sqrt(sum_k p_k (e_k(x) - e(x))^2) with e = sum_k p_k e_k. The statistic has K - 1 times as
    many degrees of freedom as there are functions.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> far = identification_strength(**paper_problem(b=5.0).draw(1000, random_state=0))
    >>> same = identification_strength(**paper_problem(b=0.0).draw(1000, random_state=0))
    >>> far.is_weak, same.is_weak
    (False, True)
    """
    rows = label_rows(
        feature_matrix(X),
        y,
        kind=kind,
        population=population,
        sample_weight=sample_weight,
        several=True,
    )
    return strength_of(rows)


def strength_of(rows: LabelledRows, *, n_jobs: int | None = None) -> IdentificationStrength:
    """Measure the strength from checked rows of two populations or more."""
    policy = sum_policies(rows, n_jobs=n_jobs)
    return strength_of_sums(policy, rows.names, rows.X.shape[1])


def strength_of_sums(
    policy: PolicySums, names: Sequence[Any], n_features: int | None = None
) -> IdentificationStrength:
    """Measure the strength from sums over the treatment rows of the populations of these names."""
    d = (policy.label.shape[1] - 1) // 2 if n_features is None else n_features
    if len(names) > 2:
        return _strength_of_several(policy, names, d)
    sign = np.array([1.0, -1.0])
    half = 1.0 / (2.0 * policy.weight)  # each population counts half, whatever its size
    # Estimates of E[w d] and, when the policies are equal, as w^2 = 1, of its covariance.
    a = (sign * half) @ policy.label
    G = np.tensordot(half, policy.gram, axes=1)
    V = np.tensordot(half**2, policy.square, axes=1)
    q = n_functions(int(policy.n_rows.sum()), d)
    a, G, V = a[:q], G[:q, :q], V[:q, :q]
    chi_square, degrees, _ = against_zero(a, V)
    inverse = np.linalg.pinv(G, rcond=1e-10, hermitian=True)
    signal = float(a @ inverse @ a - np.trace(inverse @ V))
    return IdentificationStrength(
        mean_gap=float(a[0]),
        rms_gap=float(np.sqrt(max(signal, 0.0))),
        f_statistic=chi_square / degrees,
        degrees=degrees,
        populations=tuple(names),
    )


def _strength_of_several(
    policy: PolicySums, names: Sequence[Any], d: int
) -> IdentificationStrength:
    """Measure the strength from sums over the treatment rows of more than two populations."""
    each = range(len(names))
    n = policy.n_rows
    q = n_functions(int(n.sum()) // (len(names) - 1), d)
    p = n / n.sum()
    B = policy.label[:, :q] / policy.weight[:, None]  # (m, q) estimates of E_k[t d]
    V = policy.square[:, :q, :q] / policy.weight[:, None, None] ** 2  # covariances if t^2 = 1
    G = np.tensordot(p / policy.weight, policy.gram[:, :q, :q], axes=1)
    apart = B - p @ B
    inverse = np.linalg.pinv(G, rcond=1e-10, hermitian=True)
    # Noise alone adds p_k (1 - p_k) V_k to the expectation of the spread of the estimates.
    noise = np.trace(inverse @ np.tensordot(p * (1.0 - p), V, axes=1))
    signal = float(np.sum(p * np.einsum("kq,qr,kr->k", apart, inverse, apart)) - noise)
    chi_square, degrees = _against_each_other(B, V)
    return IdentificationStrength(
        mean_gap=float(np.sqrt(p @ apart[:, 0] ** 2)),
        rms_gap=float(np.sqrt(max(signal, 0.0))),
        f_statistic=chi_square / degrees,
        degrees=degrees,
        populations=tuple(names),
        pairs=tuple(
            strength_of_sums(policy.of(i, j), (names[i], names[j]), d)
            for i, j in combinations(each, 2)
        ),
    )


def against_zero(a: Array, V: Array) -> tuple[float, int, Array]:
    """Return the chi-square of an estimate with covariance V, its degrees and V's inverse."""
    values, vectors = eigh(V)
    kept = values > 1e-10 * values[-1]  # squares of 0/1 features repeat the features
    root = vectors[:, kept] / np.sqrt(values[kept])  # root root^T = V^+
    return float(np.sum((root.T @ a) ** 2)), int(kept.sum()), root @ root.T


def _against_each_other(B: Array, V: Array) -> tuple[float, int]:
    """Return the chi-square, and its degrees, of independent estimates being of one vector.

    Each estimate is compared with the best mean of those before it. These differences are
    independent, so that their chi-squares add up to that of all estimates, and covariances need
    not be regular.
    """
    mean, covariance = B[0], V[0]
    total, degrees = 0.0, 0
    for b, own in zip(B[1:], V[1:], strict=True):
        chi_square, kept, inverse = against_zero(b - mean, own + covariance)
        total, degrees = total + chi_square, degrees + kept
        gain = covariance @ inverse
        mean = mean + gain @ (b - mean)
        covariance = covariance - gain @ covariance
    return total, degrees


def warn_if_weak(strength: IdentificationStrength, *, stacklevel: int = 3) -> None:
    """Warn the caller of ``fit`` if the policies can hardly be told apart."""
    if strength.is_weak:
        m = len(strength.populations)
        who, gap = ("two", "+.3f") if m <= 2 else (str(m), ".3f")
        warnings.warn(
            f"the {who} populations' policies can hardly be told apart: treatment probabilities "
            f"differ by {strength.mean_gap:{gap}} on average (first-stage F = "
            f"{strength.f_statistic:.1f}, "
            f"below {WEAK_F:g}). Uplift is weakly identified and its error grows like the inverse "
            "of that gap. See `unjoined.identification_strength`.",
            WeakIdentificationWarning,
            stacklevel=stacklevel,
        )
