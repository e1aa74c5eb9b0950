"""Whether the two policies differ enough for the data to determine the uplift."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from scipy.linalg import eigh

from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike
from unjoined._validation import TREATMENT
from unjoined.data._frames import feature_matrix
from unjoined.errors import WeakIdentificationWarning
from unjoined.features import Scaling
from unjoined.moments import LabelledRows, label_rows
from unjoined.moments._policy_sums import PolicySums
from unjoined.moments._threads import over_pieces

__all__ = [
    "IdentificationStrength",
    "identification_strength",
    "strength_of",
    "strength_of_sums",
    "warn_if_weak",
]

# Staiger and Stock (1997): below a first-stage F of about ten, instrumental-variable estimates
# are unreliable whatever the nominal sample size.
WEAK_F = 10.0
PIECE_ROWS = 16_384  # rows that one thread takes at a time
SCALING_ROWS = 20_000
MOST_SQUARES = 500  # features; beyond, products of all of them and their squares fill the memory


@dataclass(frozen=True, slots=True)
class IdentificationStrength:
    """How far apart the two policies are, as far as the treatment rows can tell.

    All gaps are differences in the probability of treatment, e_1(x) - e_2(x), between -1 and 1.
    """

    mean_gap: float  # difference in the share treated
    rms_gap: float  # root mean square of the gap over x, corrected for noise; 0 if not detectable
    f_statistic: float  # of the hypothesis that the policies are the same at every x
    degrees: int  # functions of x the gap was projected on

    @property
    def is_weak(self) -> bool:
        """Whether the F statistic is below 10, the usual threshold for instruments."""
        return self.f_statistic < WEAK_F


def identification_strength(
    X: MatrixLike,
    y: ArrayLike,
    *,
    kind: ArrayLike,
    population: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> IdentificationStrength:
    """Measure how different the two policies are, the strength of the "instrument".

    The paper's w = +-t has conditional mean e_1(x) - e_2(x), the policy gap. It is projected on
    a constant, the features and their squares, and tested against zero.

    Parameters
    ----------
    X, y, kind, population, sample_weight
        As in ``fit``; pass ``**data`` with a `SeparateLabels`. Only treatment rows are used.

    Returns
    -------
    IdentificationStrength

    Notes
    -----
    Costs O(n d^2). With equal policies w is +1 or -1 with even odds at every x, so that the
    covariance under the hypothesis is known exactly and the F statistic (a chi-square divided
    by its degrees) is about 1. A gap that is neither constant, linear nor quadratic in any
    feature goes unseen. With many features and few rows, squares and then slopes are left out
    so that there are ten rows to each function; squares also with more than 500 features.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> far = identification_strength(**paper_problem(b=5.0).draw(1000, random_state=0))
    >>> same = identification_strength(**paper_problem(b=0.0).draw(1000, random_state=0))
    >>> far.is_weak, same.is_weak
    (False, True)
    """
    rows = label_rows(
        feature_matrix(X), y, kind=kind, population=population, sample_weight=sample_weight
    )
    return strength_of(rows)


def strength_of(rows: LabelledRows, *, n_jobs: int | None = None) -> IdentificationStrength:
    """Measure the strength from checked rows; of several populations, that of the best pair."""
    if len(rows.names) > 2:
        pairs = combinations(range(len(rows.names)), 2)
        strengths = [strength_of(rows.pair(*pair), n_jobs=n_jobs) for pair in pairs]
        return max(strengths, key=lambda strength: strength.f_statistic)
    cells = [rows.at(TREATMENT, k) for k in (0, 1)]
    # The functions span the same whatever features are scaled by; some rows do to keep digits.
    some = np.concatenate([at[:: max(len(at) // SCALING_ROWS, 1)] for at in cells])
    scaling = Scaling.of_rows(rows.X[some], np.ones(len(some)))
    pieces = [
        (k, at[start : start + PIECE_ROWS])
        for k, at in enumerate(cells)
        for start in range(0, len(at), PIECE_ROWS)
    ]

    # Products of functions that the rows cannot carry anyway would fill the memory.
    q = _n_functions(sum(map(len, cells)), rows.X.shape[1])

    def sums(piece: tuple[int, IntArray]) -> PolicySums:
        k, at = piece
        return PolicySums.of_rows(rows.X[at], scaling, rows.label[at], rows.weight[at], k, q)

    parts = over_pieces(sums, pieces, n_jobs)
    return _strength_of_sums(reduce(PolicySums.merge, parts), q)


def strength_of_sums(policy: PolicySums) -> IdentificationStrength:
    """Measure the strength from sums over the treatment rows of two populations."""
    d = (policy.label.shape[1] - 1) // 2
    return _strength_of_sums(policy, _n_functions(int(policy.n_rows.sum()), d))


def _strength_of_sums(policy: PolicySums, q: int) -> IdentificationStrength:
    """Measure the strength by the first ``q`` functions."""
    sign = np.array([1.0, -1.0])
    half = 1.0 / (2.0 * policy.weight)  # each population counts half, whatever its size
    # Estimates of E[w d] and, when the policies are equal, as w^2 = 1, of its covariance.
    a = (sign * half) @ policy.label
    G = np.tensordot(half, policy.gram, axes=1)
    V = np.tensordot(half**2, policy.square, axes=1)
    return _strength(a[:q], G[:q, :q], V[:q, :q])


def _strength(a: Array, G: Array, V: Array) -> IdentificationStrength:
    """Measure the strength from averages over treatment rows, of functions d that start with 1.

    Parameters
    ----------
    a : array of shape (q,)
        Estimate of E[w d].
    G : array of shape (q, q)
        Estimate of E[d d^T].
    V : array of shape (q, q)
        Covariance of ``a`` when the policies are equal.
    """
    values, vectors = eigh(V)
    kept = values > 1e-10 * values[-1]  # squares of 0/1 features repeat the features
    root = vectors[:, kept] / np.sqrt(values[kept])  # root root^T = V^+
    degrees = int(kept.sum())
    inverse = np.linalg.pinv(G, rcond=1e-10, hermitian=True)
    signal = float(a @ inverse @ a - np.trace(inverse @ V))
    return IdentificationStrength(
        mean_gap=float(a[0]),
        rms_gap=float(np.sqrt(max(signal, 0.0))),
        f_statistic=float(np.sum((root.T @ a) ** 2)) / degrees,
        degrees=degrees,
    )


def _n_functions(n: int, d: int) -> int:
    """Return how many functions the rows can carry: ten rows to each, squares of 500 at most."""
    if 10 * (1 + d) > n:
        return 1
    return 1 + d if d > MOST_SQUARES or 10 * (1 + 2 * d) > n else 1 + 2 * d


def warn_if_weak(strength: IdentificationStrength, *, stacklevel: int = 3) -> None:
    """Warn the caller of ``fit`` if the policies can hardly be told apart."""
    if strength.is_weak:
        warnings.warn(
            "the two populations' policies can hardly be told apart: treatment probabilities "
            f"differ by {strength.mean_gap:+.3f} on average (F = {strength.f_statistic:.1f}, "
            f"below {WEAK_F:g}). Uplift is weakly identified and its error grows like the inverse "
            "of that gap. See `unjoined.identification_strength`.",
            WeakIdentificationWarning,
            stacklevel=stacklevel,
        )
