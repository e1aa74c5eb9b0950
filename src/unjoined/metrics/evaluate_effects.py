"""Uplift by columns, from separate tables: a linear projection, and averages of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, Frame, RandomState
from unjoined._validation import shown
from unjoined.data import TableEncoder, column_names, own_columns
from unjoined.errors import InputError
from unjoined.metrics.estimate import (
    Estimate,
    ResultTable,
    Shown,
    as_frame,
    cells,
    critical_value,
    estimate_dict,
    number,
    with_interval,
)
from unjoined.metrics.held_out import HeldOutTables, Scores
from unjoined.metrics.people import range_in_words
from unjoined.metrics.ratio import OVERLAP, RatioTerms, evaluation_rows

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

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        return {
            "level": self.level,
            "speaks_for": self.speaks_for,
            "left_out": self.left_out,
            "average": estimate_dict(self.average, self.level),
            "projection": [
                {"name": c.name, "predicted": c.predicted}
                | {"uplift": estimate_dict(c.uplift, self.level)}
                for c in self.projection
            ],
            "groups": [
                {"where": g.where, "share": g.share, "predicted": g.predicted}
                | {"uplift": estimate_dict(g.uplift, self.level)}
                for g in self.groups
            ],
        }

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
    data: Mapping[str, Any],
    by: Sequence[Any] | None = None,
    *,
    weight: str = OVERLAP,
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
    data : SeparateLabels or mapping
        As in `evaluate_uplift`.
    by : sequence of column names (data frames) or positions (arrays), optional
        Columns to describe uplift by. Default: all of them.
    weight, level, n_jobs, random_state
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
    tables = HeldOutTables.of(data, None)
    columns = Columns(tables, by)
    score = None if model is None else tables.scores(model)
    rng = check_random_state(random_state)
    rows = evaluation_rows(
        tables.rows, target=tables.target_rows, n_jobs=n_jobs, rng=rng, stacklevel=3
    )
    people = Scores(tables, rows, weight)
    terms = people.terms
    share = terms.share * terms.aim / terms.speaks_for
    groups = [
        GroupEffect(where, float(share @ inside), terms.group(inside), _mean(share, score, inside))
        for where, inside in columns.groups(share)
    ]
    return EffectSummary(
        average=terms.average(),
        projection=project(terms, share, *columns.numbers(share), score),
        groups=tuple(groups),
        speaks_for=terms.speaks_for,
        left_out=people.left_out(),
        level=level,
    )


def _mean(share: Array, score: Array | None, inside: BoolArray) -> float:
    if score is None:
        return math.nan
    return float(np.average(score[inside], weights=share[inside]))


def project(
    terms: RatioTerms, share: Array, B: Array, names: Sequence[str], score: Array | None
) -> tuple[Coefficient, ...]:
    """Return the best linear projection of uplift on a constant and columns, shape (n, p)."""
    size = np.sqrt(share @ B**2)
    if not (size > 0.0).all():
        fixed = [name for name, s in zip(names, size, strict=True) if not s > 0.0]
        raise InputError(f"the column {fixed[0]!r} is the same for everyone. Leave it out of by.")
    b = np.column_stack([np.ones(len(B)), B / size])
    if np.linalg.matrix_rank((b * share[:, None]).T @ b, tol=1e-9) < b.shape[1]:
        raise InputError(
            f"the columns {shown(names)} are combinations of each other, so that their effects "
            "cannot be told apart. Leave one of them out of by."
        )
    units = np.concatenate([[1.0], size])
    A = (b * (terms.share * terms.denominator)[:, None]).T @ b
    beta = np.linalg.solve(A, b.T @ (terms.share * terms.numerator))
    left = terms.numerator - terms.denominator * (b @ beta)
    meat = terms.totals(b * left[:, None]).covariance
    bread = np.linalg.inv(A)
    error = np.sqrt(np.maximum(np.diag(bread @ meat @ bread.T), 0.0)) / units
    said = np.full(len(beta), math.nan)
    if score is not None:
        said = np.linalg.solve((b * share[:, None]).T @ b, b.T @ (share * score)) / units
    rows = zip((CONSTANT, *names), beta / units, error, said, strict=True)
    return tuple(
        Coefficient(name, Estimate(float(v), float(e)), float(s)) for name, v, e, s in rows
    )


class Columns:
    """The columns that uplift is described by, at the rows of an evaluation."""

    def __init__(self, tables: HeldOutTables, by: Sequence[Any] | None) -> None:
        X, names = tables.data.X, column_names(tables.data.X)
        if isinstance(by, str | int):
            by = [by]
        if by is not None and not len(by):
            raise InputError("by names no column. Name one or more, or leave it out for all.")
        at = np.concatenate([np.flatnonzero(tables.used), np.flatnonzero(tables.asked)])
        self.encoder: TableEncoder | None = None
        if names is not None:
            chosen = own_columns(X, [str(name) for name in by or names])
            self.encoder = TableEncoder(categories="codes").fit(chosen)
            self.names = [str(name) for name in self.encoder.get_feature_names_out()]
            self.matrix = self.encoder.encode(chosen).matrix[at]
            one_hot = TableEncoder().fit(chosen)
            self.wide = one_hot.encode(chosen).matrix[at]
            self.wide_names = [str(name) for name in one_hot.get_feature_names_out()]
            return
        matrix = np.asarray(X, dtype=np.float64)
        places = list(range(matrix.shape[1])) if by is None else list(by)
        if wrong := [j for j in places if j not in range(matrix.shape[1])]:
            raise InputError(
                f"by names the column {wrong[0]!r}, but the features are an array with columns 0 "
                f"to {matrix.shape[1] - 1}. Give positions, or data frames to use names."
            )
        self.names = self.wide_names = [f"x{j + 1}" for j in places]
        self.matrix = self.wide = matrix[at][:, np.asarray(places, dtype=np.int64)]

    def numbers(self, share: Array) -> tuple[Array, list[str]]:
        """Return the columns as numbers about their mean, and their names."""
        return self.wide - share @ self.wide, self.wide_names

    def groups(self, share: Array) -> Iterator[tuple[str, BoolArray]]:
        """Yield groups of people in words, column by column, that have anybody in them."""
        for j, name in enumerate(self.names):
            for where, inside in self._of_column(j, name, share):
                if float(share @ inside) > 0.0:
                    yield where, inside

    def _of_column(self, j: int, name: str, share: Array) -> Iterator[tuple[str, BoolArray]]:
        column = self.matrix[:, j]
        if self.encoder is not None and j in self.encoder.codes_at:
            code = next(c for c in self.encoder.columns_ if c.name == name)
            for k in np.argsort(-code.shares, kind="stable")[:MOST_GROUPS].tolist():
                yield f"{name} is {code.places[k]}", column == k
            return
        if self.encoder is not None and name.endswith(" missing"):
            yield f"{name.removesuffix(' missing')} is missing", column == 1.0
            return
        there = np.ones(len(column), dtype=np.bool_)
        if (indicator := f"{name} missing") in self.names:
            there = self.matrix[:, self.names.index(indicator)] == 0.0
        values = np.unique(column[there])
        if len(values) <= FEW_VALUES:
            for value in values.tolist():
                yield f"{name} = {value:.5g}", there & (column == value)
            return
        order = np.argsort(column)
        passed = np.cumsum((share * there)[order])
        cuts = column[order][np.searchsorted(passed, np.array([0.25, 0.5, 0.75]) * passed[-1])]
        edges = [-np.inf, *np.unique(cuts).tolist(), np.inf]
        for low, high in pairwise(edges):
            words = range_in_words(name, low, high)
            yield words, there & (column > low) & (column <= high)
