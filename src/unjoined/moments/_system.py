"""From the sums of four cells to the averages of the min-max problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.moments._grouped import GroupedSums

__all__ = ["MinMaxSystem", "assemble"]


@dataclass(frozen=True, slots=True)
class MinMaxSystem:
    """The averages A, b, C of the paper, section 4.2, phi of the uplift and psi of the critic."""

    A: Array  # (p_f, p_g)  estimate of E[w phi psi^T]
    b: Array  # (p_g,)      estimate of E[z psi]
    C: Array  # (p_g, p_g)  estimate of E[psi psi^T]

    def split(self, p_f: int) -> MinMaxSystem:
        """Return the problem whose uplift has the first ``p_f`` functions, the critic the rest."""
        return MinMaxSystem(self.A[:p_f, p_f:], self.b[p_f:], self.C[p_f:, p_f:])


def assemble(sums: GroupedSums) -> MinMaxSystem:
    r"""Average the sums of the four cells.

    With :math:`s_1 = 1`, :math:`s_2 = -1`, so that :math:`w = s_k t` and :math:`z = s_k y`,

    .. math::

        A = \tfrac12 \sum_k s_k \overline{t \phi\phi^\top}_k, \quad
        b = \tfrac12 \sum_k s_k \overline{y \phi}_k, \quad
        C = \tfrac14 \sum_k (\overline{\phi\phi^\top}_k + \overline{\widetilde{\phi\phi}^\top}_k),

    a bar with subscript :math:`k` being the weighted mean over one cell. This is the only place
    where cells of unequal sizes are put on an equal footing: dividing each by its own weight is
    the factor :math:`n / (2 n_k)` of the paper's appendix, and gives the formulas of its section
    4.2 when sizes are equal.
    """
    A = np.zeros((sums.p, sums.p))
    b = np.zeros(sums.p)
    C = np.zeros((sums.p, sums.p))
    for k, sign in enumerate((1.0, -1.0)):
        treatment, outcome = sums.total(TREATMENT, k), sums.total(OUTCOME, k)
        A += sign / 2.0 * treatment.label_cross / treatment.weight
        b += sign / 2.0 * outcome.label_basis / outcome.weight
        C += 0.25 * (treatment.gram / treatment.weight + outcome.gram / outcome.weight)
    return MinMaxSystem(A, b, C)
