r"""What tables say of uplift where policies do not differ, or are not to be compared.

Of outcomes 0 or 1, all people of some features have the mean :math:`m = m_0 + e u` with the chance
e of treatment. Both :math:`m_0` and :math:`m_0 + u` are chances, so that

.. math:: \max\Big(\frac{-m}{1 - e}, \frac{m - 1}{e}\Big) \le u
          \le \min\Big(\frac{m}{e}, \frac{1 - m}{1 - e}\Big),

and without a difference of policies every number between is possible: the bounds are sharp. They
need no population to be like another but in the effect itself: m and e are means over the
populations, whose bases may differ by anything. If treatment never harms, the lower bound is 0.

Which of two terms is the smaller is told by fits without the row's fold. If they err, the bound is
wider than it has to be. A bound is a mean over people of a function of m and e, corrected by
outcome and treatment rows, times its slope in m and in e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, MatrixLike, RandomState
from unjoined.errors import InputError
from unjoined.evaluate.estimate import Estimate, ResultTable, Shown, critical_value
from unjoined.evaluate.sensitivity import EVERYONE
from unjoined.evaluate.tables import (
    Asked,
    HeldOutTables,
    Rules,
    is_source,
    scored_rows,
    was_fitted_to,
)
from unjoined.evaluate.terms import EvaluationRows
from unjoined.model.crossfit import CrossFit
from unjoined.words import brief, span


@dataclass(frozen=True, slots=True)
class Bound:
    """Between what the gain of treating some people lies, per person, treated or not.

    Attributes
    ----------
    name : str
        Who is treated: "everyone", or the name of a rule.
    treated : float
        Share of people who are.
    low, high : Estimate
        Both bounds, outcome units. What lies between cannot be told by more rows.
    """

    name: str
    treated: float
    low: Estimate
    high: Estimate

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that holds the gain in as many draws of the tables, at the least.

        Parameters
        ----------
        level : float, default=0.95
            Strictly between 0 and 1.

        Returns
        -------
        tuple of float
            Outcome units.
        """
        return self.low.interval(level)[0], self.high.interval(level)[1]


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Shown):
    """Between what gains lie, whether or not policies differ. Printing it shows all of it.

    Attributes
    ----------
    bounds : tuple of Bound
        The average over all people first, then each rule.
    never_harms : bool
        Whether treatment was taken to harm nobody.
    level : float
        Level of the intervals that are shown.
    """

    bounds: tuple[Bound, ...]
    never_harms: bool
    level: float

    @property
    def average(self) -> Bound:
        """Bounds of the average uplift of all people."""
        return self.bounds[0]

    def sentences(self) -> list[str]:
        """Return the bounds of the average and what they rest on, in words."""
        low, high = self.average.low.value, self.average.high.value
        ends = span(*self.average.interval(self.level), brief)
        rests = "nobody was picked for what they gain"
        if self.never_harms:
            rests = f"treatment never harms and {rests}"
        return [
            "Whatever else the populations differ in, the average effect on all people lies "
            f"between {brief(low)} and {brief(high)} ({self.level:.0%} interval {ends}), if "
            f"{rests}. More rows would not bring the two closer."
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return each bound with its interval."""
        return [
            {"what": each.name, "treated": each.treated}
            | {"low": each.low.value, "high": each.high.value}
            | dict(
                zip(
                    ("surely_from", "surely_to"), each.interval(self.level), strict=True
                )
            )
            for each in self.bounds
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        return super().to_dict() | {
            "bounds": self.frame_rows(),
            "words": self.sentences(),
        }

    def result_tables(self) -> list[ResultTable]:
        """Return the bounds, as text."""
        rows = [
            (
                each.name,
                brief(each.low.value),
                brief(each.high.value),
                span(*each.interval(self.level), brief),
            )
            for each in self.bounds
        ]
        columns = ("treat", "from", "to", f"{self.level:.0%} interval")
        return [
            (
                "Gain per person over treating nobody, at least and at most",
                columns,
                rows,
            )
        ]


def uplift_bounds(
    model: Any,
    data: Any,
    *,
    rules: Rules | None = None,
    never_harms: bool = False,
    target: MatrixLike | None = None,
    level: float = 0.95,
    crossfit: CrossFit | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Bounds:
    """Say between what uplift lies if policies do not differ or cannot be compared.

    For outcomes of 0 or 1. They rest on less than an estimate does: people may respond unalike in
    different populations, as long as treatment adds the same.

    Parameters
    ----------
    model : fitted model, function, array of shape (n,) or None
        Whose order rules take, as in `evaluate_uplift`; of one that was fitted to these very rows,
        that of its cross-fit. None: the average alone.
    data : SeparateLabels or mapping
        As in `evaluate_uplift`, in memory; policies may be the same.
    rules : mapping of str to rule, optional
        As in `evaluate_uplift`. Whom a rule takes is taken as given.
    never_harms : bool, default=False
        Whether treatment can do nobody harm, so that no uplift is below 0.
    target, level, crossfit, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    Bounds
        Of all people, also those whom the populations treat alike. Costs the cross-fitting of
        policies and outcomes, or nothing with ``crossfit``.

    Raises
    ------
    InputError
        Outcomes are not 0 and 1, or as `evaluate_uplift`.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> average = uplift_bounds(None, data, never_harms=True, random_state=0).average
    >>> average.low.value == 0.0 < average.high.value
    True
    """
    critical_value(level)
    if is_source(data):
        raise InputError(
            "uplift_bounds needs all rows in memory. Give it a sample of the tables as "
            "SeparateLabels without stream."
        )
    rng = check_random_state(random_state)
    held = HeldOutTables.of(data, target)
    if not held.rows.coding.is_rate:
        raise InputError(
            "bounds need outcomes of 0 and 1, since other outcomes have no largest value. Give "
            "whether something happened as outcome, or a column that says whether it is above some "
            "amount."
        )
    asked = Asked(
        {} if model is None else {"": model}, rules if model else {}, in_pieces=False
    )
    columns = held.computed(asked.columns)
    rows = held.evaluated(crossfit, n_jobs=n_jobs, rng=rng, stacklevel=2)
    people = rows.share * rows.aim
    if was_fitted_to(model, data):
        columns[:, 0] = rows.effect  # by fits that have not seen the row
    scored = scored_rows(rows.effect, people, columns, asked.orders)
    taken: dict[str, Array] = {}
    for name, (h, _), _, own in asked.functionals(0, scored):
        rule = h * np.ones(len(people))
        taken[name] = rule if own is None else rule * columns[:, own]
    return bounds_of(rows, taken, never_harms=never_harms, level=level)


def bounds_of(
    rows: EvaluationRows,
    taken: Mapping[str, Array],
    *,
    never_harms: bool,
    level: float,
) -> Bounds:
    """Return the bounds of the average and of rules (n,), given evaluation rows of 0/1 outcomes."""
    p = rows.population_share
    e = rows.policies @ p
    m = np.clip(rows.untreated + e * rows.effect, 0.0, 1.0)
    value, by_mean, by_policy = _most(m, e)
    high = _column(rows, value, by_mean, by_policy)
    value, by_mean, by_policy = _most(m, 1.0 - e)
    low = _column(rows, -value, -by_mean, by_policy)
    people = rows.share * rows.aim
    found = []
    for name, h in {EVERYONE: np.ones(len(m)), **taken}.items():
        total = rows.totals(h * low, h * high)
        error = np.sqrt(np.maximum(total.variance, 0.0))
        pairs = zip(total.value.tolist(), error.tolist(), strict=True)
        ends = [Estimate(each, its_error) for each, its_error in pairs]
        if never_harms:
            ends[0] = Estimate(0.0, 0.0)
        found.append(Bound(name, float(people @ h / people.sum()), *ends))
    return Bounds(tuple(found), never_harms, level)


def _most(m: Array, e: Array) -> tuple[Array, Array, Array]:
    """Return the largest uplift at a mean outcome and a policy, and its slopes in both."""
    few = m <= e  # nobody without treatment, else everybody with it
    value = np.where(few, m / e, (1.0 - m) / (1.0 - e))
    by_mean = np.where(few, 1.0 / e, -1.0 / (1.0 - e))
    by_policy = np.where(few, -m / e**2, (1.0 - m) / (1.0 - e) ** 2)
    return value, by_mean, by_policy


def _column(
    rows: EvaluationRows, value: Array, by_mean: Array, by_policy: Array
) -> Array:
    """Return each row's share of the mean of a function of m and e over people."""
    own = rows.population_share[rows.cell % rows.n_populations]
    slope = np.where(rows.cell < rows.n_populations, by_mean, by_policy)
    corrected = own * slope * rows.ratio * rows.residual
    return rows.aim * value + np.where(rows.is_labelled, corrected, 0.0)
