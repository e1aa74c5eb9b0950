"""Uplift by columns, from separate tables: a linear projection, and averages of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import inv, solve
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, Frame, IntArray, RandomState
from unjoined._validation import did_you_mean, shown
from unjoined.data.additive import Additive
from unjoined.errors import InputError, TableError
from unjoined.evaluate.estimate import (
    Estimate,
    ResultTable,
    Shown,
    as_frame,
    cells,
    critical_value,
    draw_intervals,
    estimate_dict,
    number,
    with_interval,
)
from unjoined.evaluate.evaluate import prepare
from unjoined.evaluate.ranks import Piece
from unjoined.evaluate.regions import LEVEL, NUMBER, Conditions, Feature, NamedFeatures, between
from unjoined.evaluate.terms import Sums

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_VALUES = 5  # of a column of numbers that each make a group
MOST_GROUPS = 12  # of a column of categories
CONSTANT = "constant"


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
    """

    where: str
    share: float
    uplift: Estimate
    predicted: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    def to_frame(self, library: str | None = None) -> Frame:
        """Return coefficients and groups as a data frame, a row each.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        rows = [
            {"what": "coefficient", "where": c.name, "share": math.nan, "predicted": c.predicted}
            | estimate_dict(c.uplift, self.level)
            for c in self.projection
        ] + [
            {"what": "group", "where": g.where, "share": g.share, "predicted": g.predicted}
            | estimate_dict(g.uplift, self.level)
            for g in self.groups
        ]
        return as_frame(rows, library)

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
        ax.plot([group.predicted for group in self.groups], range(len(named)), "x", color="C1")
        ax.axvline(self.average.value, color="0.55", ls="--", lw=1.2)
        ax.set_xlabel(f"average uplift, {self.level:.0%} interval; crosses: predicted")
        ax.set_title(f"For {self.speaks_for:.0%} of people", loc="left", fontsize="medium")
        return ax

    def sentences(self) -> list[str]:
        """Return the average, and for whom the numbers speak."""
        return [
            f"Average uplift {with_interval(self.average, self.level)}; {self.level:.0%} "
            "intervals.",
            f"These numbers speak for {self.speaks_for:.0%} of people. {self.left_out}",
        ]

    def result_tables(self) -> list[ResultTable]:
        """Return groups and coefficients, as text."""
        interval = f"{self.level:.0%} interval"
        groups: list[tuple[str, ...]] = [
            (g.where, f"{g.share:.0%}", *cells(g.uplift, self.level), _said(g.predicted))
            for g in self.groups
        ]
        line: list[tuple[str, ...]] = [
            (c.name, *cells(c.uplift, self.level), _said(c.predicted)) for c in self.projection
        ]
        head = ("uplift", interval, "predicted")
        per_unit = ("column", "change of uplift per unit", interval, "predicted")
        return [
            ("Average uplift of groups", ("where", "people", *head), groups),
            ("Best linear description of uplift by these columns", per_unit, line),
        ]


def _said(value: float) -> str:
    return "" if math.isnan(value) else number(value)


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
    _, tables = prepare(models, data, {}, None, None, n_jobs, rng)
    X = tables.sample.X
    people = tables.sample.share * tables.sample.aim * tables.sample.omega()
    people = people / people.sum()
    columns = Columns(tables.features, by)
    groups, line = columns.groups(X, people), columns.line(X, people)
    weighed = tables.over(Weighing(line, tuple(groups.values())))
    line = weighed.fitted(line)
    totals = tables.over(Projecting(line, tuple(groups.values()))).totals()
    g, q = len(groups), len(line.beta)
    predicted = weighed.predicted() if models else np.full(g, math.nan)
    said = weighed.projected() if models else np.full(q, math.nan)
    error = np.sqrt(np.maximum(np.diag(totals.covariance)[2 + 2 * g :], 0.0))
    units = np.concatenate([[1.0], line.unit])
    rows = zip(
        (CONSTANT, *columns.names), line.beta / units, error / units, said / units, strict=True
    )
    return EffectSummary(
        average=totals.ratio(0, 1),
        projection=tuple(
            Coefficient(name, Estimate(float(v), float(e)), float(s)) for name, v, e, s in rows
        ),
        groups=tuple(
            GroupEffect(where, float(share), totals.ratio(2 + j, 2 + g + j), float(mean))
            for j, (where, share, mean) in enumerate(
                zip(groups, weighed.shares(), predicted, strict=True)
            )
            if share > 0.0
        ),
        speaks_for=weighed.speaks_for,
        left_out=tables.left_out(),
        level=level,
    )


@dataclass(frozen=True, eq=False)
class Line:
    """Columns about a centre in some units, and the best line in them once it is known."""

    at: IntArray  # columns of the features
    center: Array
    unit: Array
    beta: Array = field(default_factory=lambda: np.empty(0))  # (q,) a constant first
    inverse: Array = field(default_factory=lambda: np.empty((0, 0)))  # (q, q)

    def __call__(self, X: Array) -> Array:
        """Return a constant and the columns, shape (n, q)."""
        return np.column_stack([np.ones(len(X)), (X[:, self.at] - self.center) / self.unit])


@dataclass(frozen=True, slots=True, eq=False)
class Weighed(Additive):
    """What the first pass adds up of columns b and groups."""

    gram: Array  # (q, q) of people, times b b'
    bread: Array  # (q, q) of p d b b'
    right: Array  # (q,) of p n b
    scored: Array  # (q,) of people, times b and the score
    groups: Array  # (g, 2) of people, alone and times the score

    @property
    def speaks_for(self) -> float:
        """Share of people the numbers speak for."""
        return float(self.gram[0, 0])

    def fitted(self, line: Line) -> Line:
        """Return the best line in columns about their mean over all people."""
        mean = self.gram[0, 1:] / self.gram[0, 0]
        moved = self._moved(mean)
        inverse = np.asarray(inv(moved @ self.bread @ moved.T))
        center = line.center + line.unit * mean
        return replace(line, center=center, beta=inverse @ (moved @ self.right), inverse=inverse)

    def _moved(self, mean: Array) -> Array:
        """Return the matrix that takes columns to those about another centre."""
        moved = np.eye(len(mean) + 1)
        moved[1:, 0] = -mean
        return moved

    def projected(self) -> Array:
        """Return the best line in the scores."""
        moved = self._moved(self.gram[0, 1:] / self.gram[0, 0])
        return np.asarray(solve(moved @ self.gram @ moved.T, moved @ self.scored, assume_a="pos"))

    def shares(self) -> Array:
        """Return the share of people in each group."""
        return np.asarray(self.groups[:, 0] / self.speaks_for)

    def predicted(self) -> Array:
        """Return the mean score of each group."""
        people, score = self.groups.T
        return np.asarray(score / np.where(people > 0.0, people, 1.0))


@dataclass(frozen=True, eq=False)
class Weighing:
    """The first pass: people by columns and groups."""

    line: Line
    groups: tuple[Conditions, ...]

    def __call__(self, piece: Piece) -> Weighed:
        """Add up some rows."""
        rows, b = piece.rows, self.line(piece.rows.X)
        terms = rows.terms(rows.omega())
        people = terms.share * terms.aim
        score = piece.columns[:, 0] if piece.columns.shape[1] else np.zeros(len(b))
        inside = [people * meets(rows.X, group) for group in self.groups]
        return Weighed(
            (b * people[:, None]).T @ b,
            (b * (terms.share * terms.denominator)[:, None]).T @ b,
            b.T @ (terms.share * terms.numerator),
            b.T @ (people * score),
            np.array([[each.sum(), each @ score] for each in inside]).reshape(-1, 2),
        )


@dataclass(frozen=True, eq=False)
class Projecting:
    """The second pass: the average, the groups, and what rows add to the error of the line."""

    line: Line
    groups: tuple[Conditions, ...]

    def __call__(self, piece: Piece) -> Sums:
        """Add up some rows."""
        rows, b = piece.rows, self.line(piece.rows.X)
        terms = rows.terms(rows.omega())
        inside = np.column_stack(
            [np.ones(len(b)), *(meets(rows.X, group) for group in self.groups)]
        )
        left = terms.numerator - terms.denominator * (b @ self.line.beta)
        n, d = (each[:, None] * inside for each in (terms.numerator, terms.denominator))
        values = [n[:, 0], d[:, 0], n[:, 1:], d[:, 1:], (b * left[:, None]) @ self.line.inverse.T]
        C = 2 * rows.n_populations + 1
        return Sums.of_rows(rows.cell, rows.share, np.column_stack(values), C)


def meets(X: Array, conditions: Conditions) -> BoolArray:
    """Return which rows meet conditions."""
    inside = np.ones(len(X), dtype=np.bool_)
    for j, (low, high) in conditions.items():
        inside &= (X[:, j] > low) & (X[:, j] <= high)
    return inside


class Columns:
    """The columns that uplift is described by, among the features."""

    def __init__(self, features: NamedFeatures, by: Sequence[Any] | None) -> None:
        by = [by] if isinstance(by, str | int) else by
        if by is not None and not len(by):
            raise InputError("by names no column. Name one or more, or leave it out for all.")
        self.each, self.encoder = features.each, features.encoder
        columns = list(dict.fromkeys(feature.column for feature in self.each))
        if self.encoder is None:
            n = len(columns)
            if wrong := [j for j in by or () if j not in range(n)]:
                raise InputError(
                    f"by names the column {wrong[0]!r}, but the features are an array with columns "
                    f"0 to {n - 1}. Give positions, or data frames to use names."
                )
            self.chosen = columns if by is None else [columns[j] for j in by]
        else:
            self.chosen = columns if by is None else [str(name) for name in by]
            if missing := [name for name in self.chosen if name not in columns]:
                raise TableError(
                    f"by names the column {missing[0]!r}, which the tables lack; their columns are "
                    f"{shown(columns)}{did_you_mean(missing[0], columns)}"
                )
        self.names = [self.each[j].name for name in self.chosen for j in self._of(name)]

    def _of(self, column: str) -> list[int]:
        """Return the features that a column became."""
        return [j for j, feature in enumerate(self.each) if feature.column == column]

    def line(self, X: Array, people: Array) -> Line:
        """Return the columns about their mean, in units of their spread."""
        at = np.array([j for name in self.chosen for j in self._of(name)], dtype=np.int64)
        center = people @ X[:, at]
        unit = np.sqrt(people @ (X[:, at] - center) ** 2)
        varies = unit > 1e-12 * np.abs(center)
        if not varies.all():
            fixed = self.names[int(np.argmin(varies))]
            raise InputError(f"the column {fixed!r} is the same for everyone. Leave it out of by.")
        line = Line(at, center, unit)
        b = line(X)
        if np.linalg.matrix_rank((b * people[:, None]).T @ b, tol=1e-9) < b.shape[1]:
            raise InputError(
                f"the columns {shown(self.names)} are combinations of each other, so that their "
                "effects cannot be told apart. Leave one of them out of by."
            )
        return line

    def groups(self, X: Array, people: Array) -> dict[str, Conditions]:
        """Return groups of people in words, column by column, by the conditions they meet."""
        found: dict[str, Conditions] = {}
        for column in self.chosen:
            at = self._of(column)
            if self.each[at[0]].holds == LEVEL:
                found |= self._of_levels(column, at)
                continue
            known = dict.fromkeys(at[1:], (-np.inf, 0.5))  # where the value is not missing
            found |= _of_numbers(column, at[0], X, people * meets(X, known), known)
            found |= {f"{column} is missing": {j: (0.5, np.inf)} for j in at[1:]}
        return found

    def _of_levels(self, column: str, at: list[int]) -> dict[str, Conditions]:
        """Return the most frequent categories of a column; one of them has no feature."""
        code = next(c for c in self.encoder.columns_ if c.name == column) if self.encoder else None
        if code is None:
            return {}
        own = {self.each[j].level: {j: (0.5, np.inf)} for j in at}
        rest: Conditions = dict.fromkeys(at, (-np.inf, 0.5))
        frequent = np.argsort(-code.shares, kind="stable")[:MOST_GROUPS]
        places = [code.places[k] for k in frequent.tolist()]
        return {f"{column} is {place}": own.get(place, rest) for place in places}


def _of_numbers(
    name: str, j: int, X: Array, people: Array, known: Conditions
) -> dict[str, Conditions]:
    """Return the few values of a column of numbers, or its quarters, of those that are known."""
    column = X[:, j]
    values = np.unique(column[meets(X, known)])
    if len(values) <= FEW_VALUES:
        return {
            f"{name} = {v:.5g}": known | {j: (float(np.nextafter(v, -np.inf)), v)}
            for v in values.tolist()
        }
    order = np.argsort(column)
    passed = np.cumsum(people[order])
    cuts = column[order][np.searchsorted(passed, np.array([0.25, 0.5, 0.75]) * passed[-1])]
    edges = [-np.inf, *np.unique(cuts).tolist(), np.inf]
    named = Feature(name, name, NUMBER)
    return {between(named, low, high): known | {j: (low, high)} for low, high in pairwise(edges)}
