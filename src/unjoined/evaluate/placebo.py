r"""Outcomes that treatment cannot have changed: of an earlier time, or of another kind.

By such an outcome treatment must seem to gain nothing. What it seems to gain is a difference of
equal people, :math:`|\theta| / G`, and says how large such differences are (see
`unjoined.evaluate.sensitivity`). If populations differ now as they did at an earlier time, when
nobody was treated, the earlier outcomes take the difference off:

.. math:: N(h) - N_b(h), \qquad
   N_b(h) = \sum_k E_k[\omega h c_k (y_b - m_k)] + E\Big[\omega h \sum_k c_k m_k\Big],

where :math:`m_k` is the mean of the earlier outcome in population k, fitted without the row's fold.
Then bases may differ by any function of the features that stays the same over time. The price is
the noise of the earlier tables: as much again if they are as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from scipy.stats import norm

from unjoined._typing import Array, ArrayLike
from unjoined._validation import OUTCOME, check_vector
from unjoined.data.columns import take_rows
from unjoined.data.labels import SeparateLabels, as_data
from unjoined.data.rows import LabelledRows, deal_rows
from unjoined.errors import InputError
from unjoined.evaluate.estimate import Estimate, Totals
from unjoined.evaluate.ranks import Functional
from unjoined.evaluate.sensitivity import (
    EVERYONE,
    Placebo,
    Sensitivity,
    average_claim,
    spread_left,
)
from unjoined.evaluate.tables import Asked, HeldOutTables, scored_rows
from unjoined.evaluate.terms import N_FOLDS, EvaluationRows
from unjoined.model.crossfit import CrossFit
from unjoined.model.regressors import means_without_folds

EARLIER = "the earlier outcome"


class Earlier(NamedTuple):
    """Outcome rows of an earlier time as rows of an evaluation, and what is expected of them."""

    rows: EvaluationRows  # whose residuals are those from the earlier means
    expected: Array  # (n, K) mean earlier outcome of each population at the rows of now
    data: SeparateLabels


def earlier_rows(
    before: Any,
    held: HeldOutTables,
    rows: EvaluationRows,
    crossfit: CrossFit,
    *,
    n_jobs: int | None,
    rng: Rng,
) -> Earlier:
    """Check rows of an earlier time; meet them with the policies of now and the means of then."""
    data = _as_outcomes(before)
    X, _ = held.features.numbers(data.X, table="before")
    labelled = data.labelled(X)
    then = _in_order(labelled.take(labelled.is_outcome), held.rows)
    used = data.checked.positions[labelled.is_outcome]
    given = take_rows(data.X, used)
    nuisances, _ = crossfit.elsewhere(then.X, given, n_jobs=n_jobs, rng=rng)
    fold = then.deal(N_FOLDS, rng)
    of_now = deal_rows(len(rows.cell), N_FOLDS, rng)
    n, K = len(then), rows.n_populations
    own, share = np.empty(n), np.empty(n)
    expected = np.empty((len(rows.cell), K))
    for k in range(K):
        at = then.at(OUTCOME, k)
        share[at] = then.weight[at] / then.weight[at].sum()
        means = means_without_folds(
            then, at, None, then.X, fold, n_jobs=n_jobs, rng=rng
        )
        for j, mean in enumerate(means):
            inside = at[fold[at] == j]
            own[inside] = mean(then.X[inside])
            expected[of_now == j, k] = mean(rows.X[of_now == j])
    scale, zeros = then.coding.scale / rows.dose, np.zeros(n)
    met = replace(
        rows,
        X=then.X,
        cell=then.population,
        fold=fold,
        share=share,
        residual=scale * (then.label - own),
        ratio=np.ones(n),
        aim=zeros,
        policies=nuisances.policies,
        effect=zeros,
        untreated=zeros,
        exposure=None,
        aside=None,
        given=None,
        unit=then.unit,
        count=then.count,
    )
    level = then.coding.offset / rows.dose
    return Earlier(met, level + scale * expected, data.take(used))


def _as_outcomes(before: Any) -> SeparateLabels:
    """Return rows of which nobody was treated."""
    if not isinstance(before, SeparateLabels):
        if not isinstance(before, Mapping) or not {"X", "y", "population"} <= set(
            before
        ):
            raise InputError(
                "before must be a mapping of X, y and population: outcomes of an earlier time, "
                f"when nobody was treated, got {type(before).__name__}."
            )
        before = as_data(dict(before) | {"policy": np.zeros(len(before["y"]))})
    if not np.isnan(before.treatment).all():
        raise InputError(
            "before holds treatments. Give outcomes of a time when nobody was treated, and leave "
            "out treatment."
        )
    checked: SeparateLabels = before
    return checked


def _in_order(then: LabelledRows, now: LabelledRows) -> LabelledRows:
    """Return earlier rows with the populations of now, in their order."""
    names = [str(name) for name in now.names]
    mine = [str(name) for name in then.names]
    if sorted(mine) != sorted(names):
        raise InputError(
            f"before has outcomes of the populations {', '.join(mine)}, but the tables are of "
            f"{', '.join(names)}. Give earlier outcomes of each of them."
        )
    place = np.array([names.index(name) for name in mine])
    cell = place[then.population].astype(then.cell.dtype)
    return replace(then, cell=cell, names=list(now.names), exposure=None, twin=None)


def with_earlier(
    found: Sensitivity,
    asked: Asked,
    columns: Array,
    rows: EvaluationRows,
    earlier: Earlier,
) -> Sensitivity:
    """Add what earlier outcomes say by themselves, and claims with that taken off."""
    p = rows.population_share
    terms = rows.terms(rows.omega())
    spread = np.where(rows.spread > 0.0, rows.spread, 1.0)
    contrast = rows.apart * p / spread[:, None]
    then = terms.aim * (contrast * earlier.expected).sum(axis=1)
    off = earlier.rows.terms(earlier.rows.omega())
    shift = float(terms.share @ terms.denominator) / terms.speaks_for
    claims = {claim.name: claim for claim in found.claims}
    differenced, placebos = [], list(found.placebos)
    for name, (h, rank), h_then in _taken(asked, columns, rows, earlier):
        gain = terms.gain * h + shift * terms.aim * rank
        now = terms.totals(gain, then * h, terms.denominator, terms.counted)
        before = earlier.rows.totals(off.numerator * h_then)
        place = np.eye(4)
        did = now.combined(np.array([place[0] - place[1], *place[2:]]))
        differenced.append(replace(claims[name], gain=_added(did, before, -1.0)))
        if name == EVERYONE:
            alone = now.combined(place[[1, 2, 2]])
            sway = claims[name].sway
            gain_then = _added(alone, before, 1.0)
            placebos.append(placebo_of(EARLIER, gain_then, sway, 1.0, found.level))
    return replace(found, placebos=tuple(placebos), differenced=tuple(differenced))


def _added(totals: Totals, before: Totals, sign: float) -> Estimate:
    """Return the first of three totals per person, once independent rows are added to it."""
    value, ways = totals.value.copy(), totals.ways.copy()
    value[0] += sign * before.value[0]
    ways[:, 0, 0] += before.variance[0]
    return Totals(value, ways).per_person(*np.eye(3))


def _taken(
    asked: Asked, columns: Array, rows: EvaluationRows, earlier: Earlier
) -> Iterator[tuple[str, Functional, Array | float]]:
    """Yield whom each rule takes of now, and of the earlier rows, the same scores."""
    yield EVERYONE, (1.0, 0.0), 1.0
    if not asked.models:
        return
    theirs = []
    for name, given, check in asked.columns:
        if not callable(given):
            raise InputError(
                f"{name} must be a function of the features, or a model, if before is given: it "
                f"has to be known of the earlier rows as well. Got {type(given).__name__}."
            )
        values = check_vector(name, given(earlier.data.X))
        theirs.append(values if check is None else check(values))
    n = len(rows.cell)
    both = np.concatenate([columns, np.column_stack(theirs)])
    people = np.concatenate([rows.people, np.zeros(len(both) - n)])
    effect = np.concatenate([rows.effect, np.zeros(len(both) - n)])
    scored = scored_rows(effect, people, both, asked.orders)
    for name, (h, rank), _, own in asked.functionals(0, scored):
        rule = h * np.ones(len(both))
        rule = rule if own is None else rule * both[:, own]
        rank = rank * np.ones(len(both))
        yield name, (rule[:n], rank[:n]), rule[n:]


def placebo_of(
    name: str, gain: Estimate, sway: float, scale: float, level: float
) -> Placebo:
    """Return what an outcome seems to gain, as a difference of equal people.

    ``scale`` takes its units to those of the outcome in question.
    """
    ends = np.abs(gain.interval(level))
    ratio = gain.ratio
    z = 0.0
    if ratio is not None and ratio.numerator_variance > 0.0:
        z = ratio.numerator / math.sqrt(ratio.numerator_variance)
    return Placebo(
        name=name,
        gain=gain,
        delta=scale * abs(gain.value) / sway,
        largest=scale * float(ends.max()) / sway,
        p_value=float(2.0 * norm.sf(abs(z))),
    )


def control_placebo(
    name: str,
    values: ArrayLike,
    data: SeparateLabels,
    sigma: float,
    *,
    level: float,
    n_jobs: int | None,
    rng: Rng,
) -> Placebo:
    """Return what another outcome of the same rows seems to gain, in spreads of the outcome."""
    y = np.asarray(values, dtype=np.float64)
    if y.shape != (data.n_rows,):
        raise InputError(
            f"controls[{name!r}] must have a number for each of the {data.n_rows:,} rows of the "
            f"data, NaN where there is none, got shape {y.shape}."
        )
    y = np.where(np.isnan(data.y), np.nan, y)
    if np.isnan(y).all() or (np.isnan(y) & ~np.isnan(data.y)).any():
        raise InputError(
            f"controls[{name!r}] must be known of every row that has an outcome. Leave out rows "
            "without it, or take another one."
        )
    tables = as_data(dict(data) | {"y": y})
    rows = HeldOutTables.of(tables, None).evaluated(None, n_jobs=n_jobs, rng=rng)
    claim = average_claim(rows)
    scale = sigma / spread_left(rows)
    return placebo_of(name, claim.gain, claim.sway, scale, level)
