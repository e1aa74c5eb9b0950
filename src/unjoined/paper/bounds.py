"""A guarantee: an upper bound on the mean squared error of an estimated uplift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

from unjoined._typing import Array, MatrixLike
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_finite_features,
    check_not_negative,
    check_positive,
    check_two,
)
from unjoined.data.chunks import feature_matrix
from unjoined.data.columns import column_names
from unjoined.data.labels import as_data
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import FourierBasis, GaussianBasis
from unjoined.model.minmax import MinMaxSystem, assemble
from unjoined.model.regressors import cross_fitted_gap


@dataclass(frozen=True, slots=True)
class ErrorBound:
    r"""An upper bound on :math:`E[(f(x) - u(x))^2]` and everything it is made of.

    .. math::

        \text{bound} = \frac{\text{empirical} + \text{complexity} + \text{deviation}
        + \text{critic\_error}}{W^2}

    All terms are in squared outcome units; the proof is in ``studies/paper/README.md``.

    Attributes
    ----------
    bound : float
        Holds with probability at least ``1 - delta`` over the draw of the rows.
    delta : float
        Chance that the bound fails.
    min_gap : float
        W, the smallest absolute policy gap.
    min_gap_is_given : bool
        False if it was estimated from the rows, which is optimistic.
    empirical : float
        The largest objective any critic in the class reaches on the rows,
        :math:`\sup_{g \in G} \hat J(f, g)`.
    complexity : float
        What over-fitting by the whole of F and G can amount to on average, for functions linear
        in their coefficients.
    rademacher : float
        The same by the paper's route for classes of any form; never smaller.
    deviation : float
        What an unlucky draw can add.
    critic_error : float
        :math:`\varepsilon_G(f)`: how far the best critic in G is from the best of all. Given.
    optimization_gap : float
        By how much, at most, the empirical maximum for this f exceeds the least of any f in F.
    outcome_bound, uplift_bound, critic_bound : float
        Suprema of \|z\|, \|f\|, \|g\|, outcome units.
    uplift_radius, critic_radius : float
        Largest norms of coefficients in F and G, outcome units.
    basis_norm : float
        Supremum of the norm of the basis, the same for f and g.
    basis_norm_is_exact : bool
        False if it was only looked up on the rows.
    n_outcome, n_treatment : float
        Effective numbers of rows of each kind; the plain ones if populations have equal
        sizes and weights are equal.
    """

    bound: float
    delta: float
    min_gap: float
    min_gap_is_given: bool
    empirical: float
    complexity: float
    rademacher: float
    deviation: float
    critic_error: float
    optimization_gap: float
    outcome_bound: float
    uplift_bound: float
    critic_bound: float
    uplift_radius: float
    critic_radius: float
    basis_norm: float
    basis_norm_is_exact: bool
    n_outcome: float
    n_treatment: float

    @property
    def rademacher_bound(self) -> float:
        """The bound of Theorem 1 with Rademacher complexities, squared outcome units."""
        return self.bound + (self.rademacher - self.complexity) / self.min_gap**2

    @property
    def trivial_bound(self) -> float:
        r"""What saying 0 for everybody guarantees, :math:`(2 M_Z)^2`, squared outcome units."""
        return 4.0 * self.outcome_bound**2

    @property
    def is_informative(self) -> bool:
        """Whether the model is guaranteed a smaller error than saying 0 for everybody."""
        return self.bound < self.trivial_bound

    def rate_bound(
        self, *, uplift_error: float = 0.0, critic_error: float | None = None
    ) -> float:
        r"""Return the bound of Theorem 3, which compares with the best function in F.

        .. math::

            \frac{2 e_{n, \delta} + \tau + \varepsilon_G^F + \varepsilon_F}{W^2}

        Parameters
        ----------
        uplift_error : float, default=0.0
            :math:`\varepsilon_F = \inf_{f \in F} E[(\mu_w f - 2\mu_z)^2]`, squared outcome
            units; 0 says that F holds the true uplift.
        critic_error : float, optional
            :math:`\varepsilon_G^F`, the largest critic error of any f in F; that of this bound
            by default.

        Returns
        -------
        float
            Squared outcome units, valid with probability at least ``1 - delta``.

        Notes
        -----
        :math:`e_{n, \delta}` is the complexity plus the deviation at ``delta / 2``, since both
        directions are needed, and :math:`\tau` the optimisation gap. But for that gap, nothing
        here depends on the labels: it tells the rate before any are seen.
        """
        epsilon_f = check_not_negative("uplift_error", uplift_error)
        epsilon_g = (
            self.critic_error
            if critic_error is None
            else check_not_negative("critic_error", critic_error)
        )
        deviation = self.deviation * math.sqrt(
            math.log(2.0 / self.delta) / -math.log(self.delta)
        )
        e = self.complexity + deviation
        return (
            2.0 * e + self.optimization_gap + epsilon_g + epsilon_f
        ) / self.min_gap**2


def error_bound(
    model: Any,
    data: Mapping[str, Any],
    delta: float = 0.05,
    *,
    min_gap: float | None = None,
    outcome_bound: float | None = None,
    uplift_radius: float | None = None,
    critic_radius: float | None = None,
    basis_norm: float | None = None,
    critic_error: float = 0.0,
) -> ErrorBound:
    r"""Bound the mean squared error of an estimated uplift, with probability 1 - delta.

    Computes Corollary 1 of the paper with constants derived anew: for every f in
    :math:`F = \{\alpha^\top\phi : \|\alpha\| \le \Lambda_F\}`, with :math:`M_F = r \Lambda_F`,
    :math:`M_G = r \Lambda_G`, :math:`M_z = 4 M_Z M_G + M_G^2/2` and
    :math:`M_w = 2 M_F M_G + M_G^2/2`,

    .. math::

        E[(f - u)^2] \le \frac{1}{W^2} \Big[ \sup_{g \in G} \hat J(f, g)
        + \frac{M_z}{\sqrt n} + \frac{M_w}{\sqrt{\tilde n}}
        + \sqrt{2 \log\tfrac1\delta \Big(\frac{M_z^2}{n} + \frac{M_w^2}{\tilde n}\Big)}
        + \varepsilon_G(f) \Big].

    Parameters
    ----------
    model : object
        Fitted, linear in its parameters: with ``coef_`` (p,) and ``critic_coef_`` (p,) in
        outcome units, ``basis_`` and ``scaling_``, as `MinMaxUplift` has them.
    data : mapping
        The arguments of ``fit``, as a `SeparateLabels` is. Best rows the model has not seen:
        basis and radii are then fixed in advance, as the theorem wants them. Weights are taken
        as fixed numbers.
    delta : float, default=0.05
        Chance that the bound fails, strictly between 0 and 1.
    min_gap : float, optional
        W, the smallest \|e_1(x) - e_2(x)\|, above 0 and at most 1. Without it, the smallest at
        any row by cross-fitted logistic regressions: an estimate of an infimum, and optimistic.
    outcome_bound : float, optional
        Largest \|y\| the outcome can take, outcome units. Without it, the largest seen. An
        outcome of two values is coded -1/+1 inside, so that half their distance is exact.
    uplift_radius : float, optional
        :math:`\Lambda_F`, outcome units; the norm of ``coef_`` by default.
    critic_radius : float, optional
        :math:`\Lambda_G`, outcome units; by default twice ``uplift_radius``, or the norm of
        ``critic_coef_`` if that is larger.
    basis_norm : float, optional
        r, the largest norm of the basis at any x. By default :math:`\sqrt p` for Gaussian
        and :math:`\sqrt 2` for Fourier functions, and the largest at these rows for others.
    critic_error : float, default=0.0
        :math:`\varepsilon_G(f)`, the mean squared distance of :math:`\mu_w f - 2\mu_z` from G,
        squared outcome units. It is unknown: 0 is an assumption, the larger ``critic_radius``
        the milder.

    Returns
    -------
    ErrorBound
        In squared outcome units, with every ingredient.

    Notes
    -----
    Costs O(n p^2 + p^3). The bound is loose, by a factor of hundreds and more: it shows what
    drives the error, not how large it is. It wants equal feature laws in both populations.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.

    Examples
    --------
    >>> from unjoined import MinMaxUplift
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem()
    >>> model = MinMaxUplift(basis="fourier", random_state=0)
    >>> model = model.fit(**problem.draw(1000, random_state=0))
    >>> found = error_bound(model, problem.draw(1000, random_state=1), min_gap=0.2)
    >>> round(found.n_outcome), found.is_informative
    (2000, False)
    """
    delta = check_delta(delta)
    epsilon = check_not_negative("critic_error", critic_error)
    tables = as_data(data)
    rows = tables.labelled(check_model_rows(model, tables.X))
    check_two(rows.names, "error_bound found {}")
    gap = smallest_gap(rows) if min_gap is None else check_gap(min_gap)
    z = largest_outcome(rows, outcome_bound)
    radius_f, radius_g = radii(model, uplift_radius, critic_radius)
    norm, exact = largest_norm(model, rows.X, basis_norm)
    f = norm * radius_f
    g = norm * radius_g
    n = effective_size(rows, OUTCOME)
    n_tilde = effective_size(rows, TREATMENT)
    terms = sampling_terms(z, f, g, n=n, n_tilde=n_tilde, delta=delta)
    system = _system(model, rows)
    best = maximize_on_ball(
        system.A.T @ model.coef_ - 2.0 * system.b, system.C, radius_g
    )
    return ErrorBound(
        bound=(best.value + terms.complexity + terms.deviation + epsilon) / gap**2,
        delta=delta,
        min_gap=gap,
        min_gap_is_given=min_gap is not None,
        empirical=best.value,
        complexity=terms.complexity,
        rademacher=terms.rademacher,
        deviation=terms.deviation,
        critic_error=epsilon,
        optimization_gap=_duality_gap(system, best.beta, best.value, radius_f),
        outcome_bound=z,
        uplift_bound=f,
        critic_bound=g,
        uplift_radius=radius_f,
        critic_radius=radius_g,
        basis_norm=norm,
        basis_norm_is_exact=exact,
        n_outcome=n,
        n_treatment=n_tilde,
    )


@dataclass(frozen=True, slots=True)
class SamplingTerms:
    """How far averages over the rows can be from the truth, squared outcome units."""

    complexity: float
    rademacher: float
    deviation: float


def sampling_terms(
    z: float, f: float, g: float, *, n: float, n_tilde: float, delta: float
) -> SamplingTerms:
    r"""Return the terms of the bound that do not depend on the labels.

    With :math:`M_z = 4 M_Z M_G + M_G^2/2` and :math:`M_w = 2 M_F M_G + M_G^2/2`, the suprema of
    the two summands of the objective; ``z``, ``f``, ``g`` are :math:`M_Z, M_F, M_G`.
    """
    m_z = 4.0 * z * g + g**2 / 2.0
    m_w = 2.0 * f * g + g**2 / 2.0
    root = math.sqrt(n)
    root_tilde = math.sqrt(n_tilde)
    return SamplingTerms(
        complexity=m_z / root + m_w / root_tilde,
        # 2 (4 M_Z + M_G) R(G) + 2 (4 M_G R(F) + (4 M_F + M_G) R(G)) with R <= M / sqrt(n)
        rademacher=2.0 * (4.0 * z + g) * g / root
        + 2.0 * (8.0 * f + g) * g / root_tilde,
        deviation=math.sqrt(-2.0 * math.log(delta))
        * math.hypot(m_z / root, m_w / root_tilde),
    )


def _system(model: Any, rows: LabelledRows) -> MinMaxSystem:
    """Return A, b, C of the rows, with b in outcome units: so are then all coefficients."""
    basis, scaling = model.basis_, model.scaling_
    system = assemble(accumulate(lambda chunk: basis(scaling(chunk)), basis.size, rows))
    return MinMaxSystem(system.A, rows.coding.scale * system.b, system.C)


def _duality_gap(
    system: MinMaxSystem, beta: Array, value: float, radius_f: float
) -> float:
    """Return an upper bound on how far f is from the least empirical maximum over F."""
    # Whatever f, its maximum over g is at least its value at this critic; the least of those
    # over the ball is linear in alpha. The critic 0 gives the value 0.
    least = -2.0 * radius_f * float(np.linalg.norm(system.A @ beta))
    least += float(-4.0 * system.b @ beta - beta @ system.C @ beta)
    return max(value - max(least, 0.0), 0.0)


def check_model_rows(model: Any, X: MatrixLike) -> Array:
    """Refuse models that are not linear in parameters, and rows they cannot take."""
    needed = ("coef_", "critic_coef_", "basis_", "scaling_")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise InputError(
            "error_bound needs a fitted model that is linear in its parameters, such as "
            f"MinMaxUplift; {type(model).__name__} has no {', '.join(missing)}. Fit it first, or "
            "choose such a model."
        )
    if getattr(model, "critic_basis_", model.basis_) is not model.basis_:
        raise InputError(
            "error_bound is proved for an uplift and a critic on one basis; this model has a "
            "critic_basis of its own. Fit it without one."
        )
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.critic_coef_).all()):
        raise InputError(
            "the model's coefficients hold NaN or infinite values. Fit it again."
        )
    names = column_names(X)
    fitted = getattr(model, "feature_names_in_", None)
    if names is not None and fitted is not None and names != list(fitted):
        raise InputError(
            f"X has the columns {', '.join(names[:5])}, but the model was fitted on "
            f"{', '.join(fitted[:5])}. Pass the same columns in the same order."
        )
    matrix = feature_matrix(X)
    if matrix.shape[1] != model.basis_.n_features:
        raise InputError(
            f"X has {matrix.shape[1]} features, but the model was fitted on "
            f"{model.basis_.n_features}. Pass the columns it was fitted on."
        )
    check_finite_features(matrix, None)
    return matrix


def radii(
    model: Any, uplift: float | None, critic: float | None
) -> tuple[float, float]:
    """Return the largest norms of coefficients in F, which must hold the model, and in G."""
    norm = float(np.linalg.norm(model.coef_))
    if uplift is None and norm == 0.0:
        raise InputError(
            "all coefficients of the model are 0, so their norm is not a radius. Pass "
            "uplift_radius."
        )
    radius_f = norm if uplift is None else check_positive("uplift_radius", uplift)
    if radius_f < norm * (1.0 - 1e-12):
        raise InputError(
            f"uplift_radius={radius_f:g} is below the norm of the fitted coefficients, {norm:g}, "
            "so that the bound does not cover this model. Pass a larger one, or shrink the model "
            "with a larger ridge_f."
        )
    if critic is not None:
        return radius_f, check_positive("critic_radius", critic)
    # With a constant policy gap and a true uplift in F the best critic of any f in F is
    # gap * (f - u), whose norm is at most this: nothing is then missing from G.
    return radius_f, max(2.0 * radius_f, float(np.linalg.norm(model.critic_coef_)))


def largest_norm(model: Any, X: Array, given: float | None) -> tuple[float, bool]:
    """Return the supremum of the basis norm, and whether it holds beyond the rows."""
    if given is not None:
        return check_positive("basis_norm", given), True
    basis = model.basis_
    if isinstance(basis, GaussianBasis):
        return math.sqrt(basis.size), True
    if isinstance(basis, FourierBasis):
        return math.sqrt(2.0), True
    largest = 0.0
    for start in range(0, len(X), 4096):
        values = basis(model.scaling_(X[start : start + 4096]))
        largest = max(largest, float(np.linalg.norm(values, axis=1).max()))
    return largest, False


def largest_outcome(rows: LabelledRows, given: float | None) -> float:
    """Return the supremum of the outcome's size in the inner coding, in outcome units."""
    seen = rows.coding.scale * float(np.abs(rows.label[rows.of_kind(OUTCOME)]).max())
    if given is None:
        return seen
    bound = check_positive("outcome_bound", given)
    if bound < seen * (1.0 - 1e-12):
        raise InputError(
            f"outcome_bound={bound:g} is below the largest outcome in the rows, {seen:g} (of an "
            "outcome of two values, half their distance). Pass the largest the outcome can take."
        )
    return bound


def smallest_gap(rows: LabelledRows) -> float:
    """Return the smallest estimated policy gap at any row; an optimistic stand-in for W."""
    gap = cross_fitted_gap(rows, LogisticRegression(), 5)
    if gap.min() <= 0.0 <= gap.max():
        raise InputError(
            "the policies cross: the estimated policy gap runs from "
            f"{gap.min():.3g} to {gap.max():.3g}, so that its smallest size is 0 and no bound "
            "exists. Leave out the rows between, or pass min_gap if you know that it is above 0."
        )
    return float(np.abs(gap).min())


def check_gap(min_gap: Any) -> float:
    """Return W: a difference of probabilities above 0."""
    gap = check_positive("min_gap", min_gap)
    if gap > 1.0:
        raise InputError(
            f"min_gap must be at most 1, got {min_gap!r}. It is a difference of probabilities."
        )
    return gap


def check_delta(delta: Any) -> float:
    """Return the chance that the bound fails."""
    if not isinstance(delta, Real) or not 0.0 < float(delta) < 1.0:
        raise InputError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. It is the chance that the "
            "bound fails: write 0.05 for 5 percent."
        )
    return float(delta)


def effective_size(rows: LabelledRows, kind: str) -> float:
    """Return 1 / sum of squared shares: the n of equal shares with the same precision."""
    share = rows.share[rows.of_kind(kind)]
    return float(1.0 / np.sum(share**2))


@dataclass(frozen=True, slots=True)
class BallMaximum:
    """Where the maximum lies, how large it is, and how hard the ball presses."""

    beta: Array  # (p,)
    value: float
    multiplier: float  # nu >= 0; 0 if the ball does not bind


def maximize_on_ball(a: Array, C: Array, radius: float) -> BallMaximum:
    r"""Maximise :math:`2 a^\top\beta - \beta^\top C \beta` over :math:`\|\beta\| \le \Lambda`.

    The maximiser solves :math:`(C + \nu I)\beta = a` with :math:`\nu \ge 0` and
    :math:`\nu(\Lambda - \|\beta\|) = 0`. As the quadratic is concave, these conditions are
    sufficient. With eigenvalues :math:`d_i` of C and :math:`\tilde a` in its eigenvectors, the
    multiplier is 0 or the root of :math:`\sum_i \tilde a_i^2 / (d_i + \nu)^2 = \Lambda^2`.

    Arguments are trusted: ``a`` (p,), ``C`` (p, p) symmetric positive semi-definite, radius > 0.
    Costs O(p^3).
    """
    values, vectors = eigh(C)
    d = np.maximum(values, 0.0)  # rounding must not make the quadratic convex
    rotated = vectors.T @ a
    nu = _multiplier(rotated, d, radius)
    at = _divide(rotated, d + nu)
    value = float(np.sum(2.0 * rotated * at - d * at**2))
    return BallMaximum(vectors @ at, value, nu)


def _divide(rotated: Array, shifted: Array) -> Array:
    """Return the quotient, 0 where there is nothing to gain and nothing to lose."""
    idle = (rotated == 0.0) & (shifted == 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # infinite: the ball will bind
        return np.where(idle, 0.0, rotated / np.where(idle, 1.0, shifted))


def _multiplier(rotated: Array, d: Array, radius: float) -> float:
    """Return the root of the secular equation, or 0 if the free maximum lies in the ball."""

    def excess(nu: float) -> float:
        # The inverse of the norm is nearly a straight line in nu, the norm itself has a pole.
        return 1.0 / _norm(_divide(rotated, d + nu)) - 1.0 / radius

    if _norm(_divide(rotated, d)) <= radius:
        return 0.0
    upper = _norm(rotated) / radius  # |beta| <= |a| / nu
    # Rounding can put the root a hair outside when the curvature is 0.
    if excess(upper) <= 0.0:
        return upper
    # Roots can lie many powers of ten below the bracket's end when C is nearly singular.
    return float(brentq(excess, 0.0, upper, xtol=1e-300, rtol=1e-15, maxiter=2000))


def _norm(vector: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(vector))
