"""Uplift by columns, from separate tables: a linear projection, and averages of groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import inv, solve
from sklearn.utils import check_random_state

from unjoined._typing import Array, IntArray, RandomState
from unjoined._validation import did_you_mean, shown
from unjoined.data.fold import Additive
from unjoined.errors import InputError, TableError
from unjoined.evaluate.estimate import (
    Estimate,
    ResultTable,
    Shown,
    Totals,
    critical_value,
    draw_intervals,
    estimate_dict,
)
from unjoined.evaluate.evaluate import is_randomised, prepare
from unjoined.evaluate.ranks import Piece
from unjoined.evaluate.regions import LEVEL, NUMBER, Feature, NamedFeatures, between
from unjoined.evaluate.sensitivity import Claim
from unjoined.evaluate.terms import Sums
from unjoined.model.trees import Bounds, meets
from unjoined.words import brief, cells, in_brackets, in_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_VALUES = 5  # of a column of numbers that each make a group
MOST_GROUPS = 12  # of a column of categories


@dataclass(frozen=True, slots=True)
class Coefficient:
    """How uplift changes with a column, all others held fixed, in the best linear description.

    Attributes
    ----------
    name : str
        The column, or "constant": the uplift at the mean of all columns.
    uplift : Estimate
        Change of the uplift per unit of the column, outcome units.
    predicted : float
        The same of the model's predictions; nan without a model.
    """

    name: str
    uplift: Estimate
    predicted: float


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """Average uplift of a group of people.

    Attributes
    ----------
    where : str
        The group in words, such as "age <= 30".
    share : float
        Share of the people the numbers speak for.
    uplift : Estimate
        Average uplift, outcome units.
    predicted : float
        Mean of the model's predictions; nan without a model.
    breakdown, breakdown_sure : float
        By how much equal people may differ between populations before the uplift turns, and up to
        where its interval at the level of the summary does; outcome units. See `sensitivity`.
    """

    where: str
    share: float
    uplift: Estimate
    predicted: float
    breakdown: float
    breakdown_sure: float


@dataclass(frozen=True, eq=False, repr=False)
class EffectSummary(Shown):
    """Uplift by columns. Printing it shows all of it.

    Attributes
    ----------
    average : Estimate
        Average uplift, outcome units.
    projection : tuple of Coefficient
        The best linear description of uplift by the columns. Sandwich errors and normal
        intervals, which need policies that differ clearly.
    groups : tuple of GroupEffect
        Average uplift of groups by each column, with Fieller's intervals.
    speaks_for : float
        Share of people the numbers speak for.
    left_out : str
        Who counts less or not at all, in words.
    level : float
        Level of the intervals that are shown.
    """

    average: Estimate
    projection: tuple[Coefficient, ...]
    groups: tuple[GroupEffect, ...]
    speaks_for: float
    left_out: str
    level: float

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return coefficients, then groups."""
        rows: list[tuple[str, str, float, Coefficient | GroupEffect]] = [
            ("coefficient", c.name, math.nan, c) for c in self.projection
        ]
        rows += [("group", g.where, g.share, g) for g in self.groups]
        return [
            {
                "what": what,
                "where": where,
                "share": share,
                "predicted": effect.predicted,
                "breakdown": getattr(effect, "breakdown", math.nan),
                "breakdown_sure": getattr(effect, "breakdown_sure", math.nan),
            }
            | estimate_dict(effect.uplift, self.level)
            for what, where, share, effect in rows
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the average uplift of the groups with their intervals, and what was predicted.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        named = [(group.where, group.uplift) for group in self.groups]
        ax = draw_intervals(named, self.level, ax)
        ax.plot(
            [group.predicted for group in self.groups],
            range(len(named)),
            "x",
            color="C1",
        )
        ax.axvline(self.average.value, color="0.55", ls="--", lw=1.2)
        ax.set_xlabel(f"average uplift, {self.level:.0%} interval; crosses: predicted")
        ax.set_title(
            f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium"
        )
        return ax

    def sentences(self) -> list[str]:
        """Return the average, and for whom the numbers speak."""
        return [
            f"Average uplift {in_brackets(self.average, self.level)}; {self.level:.0%} "
            "intervals.",
            f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}",
        ]

    def result_tables(self) -> list[ResultTable]:
        """Return groups and coefficients, as text."""
        interval = f"{self.level:.0%} interval"

        def numbers(effect: Coefficient | GroupEffect) -> tuple[str, ...]:
            predicted = "" if math.isnan(effect.predicted) else brief(effect.predicted)
            return *cells(effect.uplift, self.level), predicted

        groups = [
            (g.where, f"{g.share:.0%}", *numbers(g), in_digits(g.breakdown, 3))
            for g in self.groups
        ]
        line = [(c.name, *numbers(c)) for c in self.projection]
        head = ("where", "people", "uplift", interval, "predicted", "turns at")
        per_unit = ("column", "change of uplift per unit", interval, "predicted")
        return [
            ("Average uplift of groups", head, groups),
            ("Best linear description of uplift by these columns", per_unit, line),
        ]


def effect_summary(
    model: Any,
    data: Any,
    by: Sequence[Any] | None = None,
    *,
    level: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> EffectSummary:
    r"""Say how uplift depends on some columns, with intervals, whatever the model says.

    With row terms n and d and columns b it is the projection
    :math:`\beta = (\sum d_i b_i b_i')^{-1} \sum n_i b_i`, with sandwich errors from
    :math:`b_i (n_i - d_i b_i' \beta)`, and the average uplift of groups.

    Parameters
    ----------
    model : fitted model, function, array of shape (n,) or None
        Whose predictions are shown beside; they change no estimate. As in `evaluate_uplift`.
    data : SeparateLabels, mapping or source
        As in `evaluate_uplift`. Of a source, a sample says where columns are cut, and two passes
        add up all rows.
    by : sequence of column names (data frames) or positions (arrays), optional
        Columns to describe uplift by. Default: all of them.
    level, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    EffectSummary
        Columns of numbers are cut into quarters; up to five different values and up to twelve
        categories are groups of their own. Costs the cross-fitting of policies and outcomes.

    Raises
    ------
    InputError
        A column does not exist, or is a combination of others.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(1000, random_state=0)
    >>> found = effect_summary(None, data, by=[4], random_state=0)
    >>> [group.where for group in found.groups]
    ['x5 = 0', 'x5 = 1']
    """
    critical_value(level)
    models = {} if model is None else {"": model}
    rng = check_random_state(random_state)
    chance = is_randomised(models)
    options = None, None, n_jobs, rng
    _, tables = prepare(models, data, {}, *options, randomised=chance)
    X = tables.sample.X
    people = tables.sample.people / tables.sample.people.sum()
    columns = _columns(tables.features, by)
    groups = _groups(tables.features, columns, X, people)
    names = [tables.features.columns[j].name for at in columns.values() for j in at]
    line = _line(columns, names, X, people)
    weighed = tables.over(partial(_weigh, line, list(groups.values())))
    line, beta, inverse, slopes = weighed.fitted(line)
    totals = tables.over(
        partial(_project, line, list(groups.values()), beta, inverse)
    ).totals()
    q = len(beta)
    g = len(groups)
    units = np.concatenate([[1.0], line.unit])
    total, size, scores = weighed.people[0, 0], *weighed.people[[0, -1], q : q + g]
    predicted = scores / np.where(size > 0.0, size, 1.0)
    if not models:
        predicted = np.full(g, math.nan)
        slopes = np.full(q, math.nan)
    error = np.sqrt(np.maximum(totals.variance[3 + 4 * g :], 0.0))
    rows = zip(
        ("constant", *names), beta / units, error / units, slopes / units, strict=True
    )
    claims = _claims(list(groups), totals)
    return EffectSummary(
        average=totals.per_person(*np.eye(3, len(totals.value))),
        projection=tuple(
            Coefficient(name, Estimate(float(v), float(e)), float(s))
            for name, v, e, s in rows
        ),
        groups=tuple(
            GroupEffect(
                claim.name,
                float(size[j] / total),
                claim.gain,
                float(predicted[j]),
                claim.breakdown(),
                claim.breakdown(level),
            )
            for j, claim in enumerate(claims)
            if size[j] > 0.0
        ),
        speaks_for=float(total),
        left_out=tables.left_out(),
        level=level,
    )


def _claims(groups: Sequence[str], totals: Totals) -> list[Claim]:
    """Return the claims that groups gain, given what a pass has added up."""
    g = len(groups)
    N, D, counted, sway = np.split(np.arange(3, 3 + 4 * g), 4)
    size = np.abs(totals.value[D])
    each = np.divide(
        totals.value[sway], size, out=np.full(g, math.inf), where=size > 0.0
    )
    place = np.eye(len(totals.value))
    return [
        Claim(where, totals.per_person(*place[at]), 1.0, float(each[j]), math.nan)
        for j, (where, *at) in enumerate(zip(groups, N, D, counted, strict=True))
    ]


@dataclass(frozen=True, eq=False)
class Line:
    """Columns about a centre, in some units."""

    at: IntArray  # columns of the features
    center: Array
    unit: Array

    def __call__(self, X: Array) -> Array:
        """Return a constant and the columns, shape (n, q)."""
        return np.column_stack(
            [np.ones(len(X)), (X[:, self.at] - self.center) / self.unit]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Weighed(Additive):
    """What the first pass adds up."""

    people: Array  # (q + g + 1, q + g + 1) of people: products of columns b, groups and the score
    terms: Array  # (q, q + 1) of p d b b', and of p n b behind

    def fitted(self, line: Line) -> tuple[Line, Array, Array, Array]:
        """Return columns about their mean over all people, and the best lines in them.

        That of uplift, with the inverse of its matrix, and that of the score.
        """
        q = len(self.terms)
        mean = self.people[0, 1:q] / self.people[0, 0]
        moved = np.eye(q)  # takes columns to those about their mean
        moved[1:, 0] = -mean
        inverse = np.asarray(inv(moved @ self.terms[:, :q] @ moved.T))
        gram = moved @ self.people[:q, :q] @ moved.T
        slopes = np.asarray(solve(gram, moved @ self.people[:q, -1], assume_a="pos"))
        about = replace(line, center=line.center + line.unit * mean)
        return about, inverse @ (moved @ self.terms[:, q]), inverse, slopes


def _weigh(line: Line, groups: Sequence[Bounds], piece: Piece) -> Weighed:
    """Add up people by columns and groups: the first pass."""
    rows = piece.rows
    b = line(piece.rows.X)
    terms = rows.terms(rows.omega())
    score = piece.columns[:, 0] if piece.columns.shape[1] else np.zeros(len(b))
    inside = [meets(rows.X, group) for group in groups]
    columns = np.column_stack([b, *inside, score])
    values = np.column_stack([terms.denominator[:, None] * b, terms.numerator])
    return Weighed(
        (columns * (terms.share * terms.aim)[:, None]).T @ columns,
        (b * terms.share[:, None]).T @ values,
    )


def _project(
    line: Line, groups: Sequence[Bounds], beta: Array, inverse: Array, piece: Piece
) -> Sums:
    """Add up the average, the groups, and what rows add to the error of the line."""
    rows = piece.rows
    b = line(piece.rows.X)
    terms = rows.terms(rows.omega())
    inside = np.array([meets(rows.X, group) for group in groups], dtype=np.float64)
    three = terms.gain, terms.denominator, terms.counted
    left = (b * (terms.plain - terms.aim * (b @ beta))[:, None]) @ inverse.T
    columns = [
        *three,
        *(column * each for column in (*three, terms.sway) for each in inside),
        *left.T,
    ]
    C = 2 * rows.n_populations + 1
    return Sums.of_rows(rows.cell, rows.share, columns, C, rows.unit, rows.count)


def _columns(features: NamedFeatures, by: Sequence[Any] | None) -> dict[str, list[int]]:
    """Return the columns that uplift is described by, and the features that each became."""
    by = [by] if isinstance(by, str | int) else by
    if by is not None and not len(by):
        raise InputError(
            "by names no column. Name one or more, or leave it out for all."
        )
    columns: dict[str, list[int]] = {}
    for j, feature in enumerate(features.columns):
        columns.setdefault(feature.column, []).append(j)
    if by is None:
        return columns
    names = list(columns)
    if features.encoder is not None:
        chosen = [str(name) for name in by]
        if missing := [name for name in chosen if name not in columns]:
            raise TableError(
                f"by names the column {missing[0]!r}, which the tables lack; their columns are "
                f"{shown(names)}{did_you_mean(missing[0], names)}"
            )
        return {name: columns[name] for name in chosen}
    if wrong := [j for j in by if j not in range(len(names))]:
        raise InputError(
            f"by names the column {wrong[0]!r}, but the features are an array with columns "
            f"0 to {len(names) - 1}. Give positions, or data frames to use names."
        )
    return {names[j]: columns[names[j]] for j in by}


def _line(
    columns: Mapping[str, list[int]], names: Sequence[str], X: Array, people: Array
) -> Line:
    """Return the columns about their mean, in units of their spread."""
    at = np.concatenate(list(columns.values())).astype(np.int64)
    center = people @ X[:, at]
    unit = np.sqrt(people @ (X[:, at] - center) ** 2)
    varies = unit > 1e-12 * np.abs(center)
    if not varies.all():
        fixed = names[int(np.argmin(varies))]
        raise InputError(
            f"the column {fixed!r} is the same for everyone. Leave it out of by."
        )
    line = Line(at, center, unit)
    b = line(X)
    if np.linalg.matrix_rank((b * people[:, None]).T @ b, tol=1e-9) < b.shape[1]:
        raise InputError(
            f"the columns {shown(names)} are combinations of each other, so that their "
            "effects cannot be told apart. Leave one of them out of by."
        )
    return line


def _groups(
    features: NamedFeatures, columns: Mapping[str, list[int]], X: Array, people: Array
) -> dict[str, Bounds]:
    """Return groups of people in words, column by column, by the conditions they meet."""
    groups: dict[str, Bounds] = {}
    for column, at in columns.items():
        if features.columns[at[0]].holds == LEVEL:
            groups |= _category_groups(features, column, at)
            continue
        present = dict.fromkeys(
            at[1:], (-np.inf, 0.5)
        )  # where the value is not missing
        groups |= _number_groups(column, at[0], X, people * meets(X, present), present)
        groups |= {f"{column} is missing": {j: (0.5, np.inf)} for j in at[1:]}
    return groups


def _category_groups(
    features: NamedFeatures, column: str, at: list[int]
) -> dict[str, Bounds]:
    """Return the most frequent categories of a column; one of them has no feature."""
    if features.encoder is None:
        return {}
    code = next(code for code in features.encoder.columns_ if code.name == column)
    own = {features.columns[j].level: {j: (0.5, np.inf)} for j in at}
    rest: Bounds = dict.fromkeys(at, (-np.inf, 0.5))
    frequent = np.argsort(-code.shares, kind="stable")[:MOST_GROUPS]
    places = [code.places[k] for k in frequent.tolist()]
    return {f"{column} is {place}": own.get(place, rest) for place in places}


def _number_groups(
    name: str, j: int, X: Array, people: Array, present: Bounds
) -> dict[str, Bounds]:
    """Return the few values of a column of numbers, or its quarters, where they are present."""
    column = X[:, j]
    values = np.unique(column[meets(X, present)])
    if len(values) <= FEW_VALUES:
        return {
            f"{name} = {v:.5g}": present | {j: (float(np.nextafter(v, -np.inf)), v)}
            for v in values.tolist()
        }
    order = np.argsort(column)
    passed = np.cumsum(people[order])
    cuts = column[order][
        np.searchsorted(passed, np.array([0.25, 0.5, 0.75]) * passed[-1])
    ]
    edges = [-np.inf, *np.unique(cuts).tolist(), np.inf]
    named = Feature(name, name, NUMBER)
    return {
        between(named, low, high): present | {j: (low, high)}
        for low, high in pairwise(edges)
    }
