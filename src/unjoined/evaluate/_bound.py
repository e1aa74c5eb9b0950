"""A guarantee: an upper bound on the mean squared error of an estimated uplift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT, check_not_negative, check_two
from unjoined.evaluate._bound_inputs import (
    check_delta,
    check_gap,
    check_mapping,
    check_model_rows,
    effective_size,
    largest_norm,
    largest_outcome,
    radii,
    smallest_gap,
)
from unjoined.evaluate._trust_region import maximize_on_ball
from unjoined.moments import LabelledRows, MinMaxSystem, accumulate, assemble, label_rows

__all__ = ["ErrorBound", "SamplingTerms", "error_bound", "sampling_terms"]


@dataclass(frozen=True, slots=True)
class ErrorBound:
    r"""An upper bound on :math:`E[(f(x) - u(x))^2]` and everything it is made of.

    .. math::

        \text{bound} = \frac{\text{empirical} + \text{complexity} + \text{deviation}
        + \text{critic\_error}}{W^2}

    All terms are in squared outcome units; the proof is in the guide, ``guarantees.md``.

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

    def rate_bound(self, *, uplift_error: float = 0.0, critic_error: float | None = None) -> float:
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
        deviation = self.deviation * math.sqrt(math.log(2.0 / self.delta) / -math.log(self.delta))
        e = self.complexity + deviation
        return (2.0 * e + self.optimization_gap + epsilon_g + epsilon_f) / self.min_gap**2


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
    >>> from unjoined import MinMaxUplift, paper_problem
    >>> problem = paper_problem()
    >>> model = MinMaxUplift(basis="fourier", random_state=0)
    >>> model = model.fit(**problem.draw(1000, random_state=0))
    >>> found = error_bound(model, problem.draw(1000, random_state=1), min_gap=0.2)
    >>> round(found.n_outcome), found.is_informative
    (2000, False)
    """
    delta = check_delta(delta)
    epsilon = check_not_negative("critic_error", critic_error)
    check_mapping(data)
    rows = label_rows(**{**data, "X": check_model_rows(model, data["X"])}, several=True)
    check_two(rows.names, "error_bound found {}")
    gap = smallest_gap(rows) if min_gap is None else check_gap(min_gap)
    z = largest_outcome(rows, outcome_bound)
    radius_f, radius_g = radii(model, uplift_radius, critic_radius)
    norm, exact = largest_norm(model, rows.X, basis_norm)
    f, g = norm * radius_f, norm * radius_g
    n, n_tilde = effective_size(rows, OUTCOME), effective_size(rows, TREATMENT)
    terms = sampling_terms(z, f, g, n=n, n_tilde=n_tilde, delta=delta)
    system = _system(model, rows)
    best = maximize_on_ball(system.A.T @ model.coef_ - 2.0 * system.b, system.C, radius_g)
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
    m_z, m_w = 4.0 * z * g + g**2 / 2.0, 2.0 * f * g + g**2 / 2.0
    root, root_tilde = math.sqrt(n), math.sqrt(n_tilde)
    return SamplingTerms(
        complexity=m_z / root + m_w / root_tilde,
        # 2 (4 M_Z + M_G) R(G) + 2 (4 M_G R(F) + (4 M_F + M_G) R(G)) with R <= M / sqrt(n)
        rademacher=2.0 * (4.0 * z + g) * g / root + 2.0 * (8.0 * f + g) * g / root_tilde,
        deviation=math.sqrt(-2.0 * math.log(delta)) * math.hypot(m_z / root, m_w / root_tilde),
    )


def _system(model: Any, rows: LabelledRows) -> MinMaxSystem:
    """Return A, b, C of the rows, with b in outcome units: so are then all coefficients."""
    basis, scaling = model.basis_, model.scaling_
    system = assemble(accumulate(lambda chunk: basis(scaling(chunk)), basis.size, rows))
    return MinMaxSystem(system.A, rows.coding.scale * system.b, system.C)


def _duality_gap(system: MinMaxSystem, beta: Array, value: float, radius_f: float) -> float:
    """Return an upper bound on how far f is from the least empirical maximum over F."""
    # Whatever f, its maximum over g is at least its value at this critic; the least of those
    # over the ball is linear in alpha. The critic 0 gives the value 0.
    least = -2.0 * radius_f * float(np.linalg.norm(system.A @ beta))
    least += float(-4.0 * system.b @ beta - beta @ system.C @ beta)
    return max(value - max(least, 0.0), 0.0)
