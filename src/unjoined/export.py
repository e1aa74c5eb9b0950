"""A fitted model as one SQL query, for DuckDB and for warehouses that keep to the standard."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, Basis
from unjoined.data.columns import NO_VALUE
from unjoined.data.encode import ColumnCode, TableEncoder
from unjoined.data.write import replace_file
from unjoined.errors import InputError
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.model_file import rows_held
from unjoined.estimators.uplift import Uplift
from unjoined.estimators.weighted import WeightedUplift
from unjoined.evaluate.rules import WORDS, TreeRule
from unjoined.model.additive_basis import AdditiveBasis, Curve
from unjoined.model.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    Scaling,
    StackedBasis,
)
from unjoined.model.draw import PrincipalBasis
from unjoined.model.families import FARTHEST as FARTHEST_LOG
from unjoined.model.families import BernoulliFamily, PoissonFamily
from unjoined.model.trees import Bounds

__all__ = ["export_sql"]

SMOOTH_KNOTS = (
    20  # of a curve: up to so many, ranks are steps; beyond, they are interpolated
)
CAN = "Those that can are Uplift, MinMaxUplift and WeightedUplift, on the bases of this package."
MOST_CHARACTERS = 2_000_000  # of a query; warehouses take less rather than more
MOST_TERMS = 40  # of a sum in a row: databases limit how deep expressions are
FARTHEST, FARTHEST_LINE = (
    1e30,
    5.0,
)  # standard deviations, of all functions and of lines
LARGEST_EXPONENT = 700.0
FIRST_DATE = 3650.0  # days since 1970; durations and times of day are fewer
NAMELESS = (
    "the {} was fitted to plain arrays, so it does not know the names of its columns. {} a data "
    "frame or tables to export it as SQL."
)
DIGITS = 16  # of whole numbers that doubles tell apart
OUTPUT = "uplift"
FENCE = "OFFSET 0 ROWS"  # skips nothing
HEADING = "-- Uplift by {} of unjoined, in units of the outcome.\n"
ROWS_HELD = (
    "-- It holds the features of {} people of the fit, as centres of its functions.\n"
)
OF_TAKERS = (
    "-- It is the effect on those who take the offer up, not what the offer brings.\n"
)


def export_sql(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    table: str | Sequence[str] = "people",
    keep: Sequence[str] = (),
) -> str:
    """Return a fitted model as a SQL query that scores each row of a table.

    Parameters
    ----------
    model : Uplift, MinMaxUplift, WeightedUplift or TreeRule
        Fitted to a data frame or to tables; bases of this package. Or a rule of
        `learn_rule` by such.
    path : path, optional
        A file to write the query to.
    table : str or sequence of str, default="people"
        Table, view or, in DuckDB, file to score. A sequence for a name in parts, as in
        ``("crm", "people")``. Quoted, so that any name will do.
    keep : sequence of str, optional
        Columns to copy, such as an id; by default the columns of the model.

    Returns
    -------
    str
        A query without a semicolon, which may stand in brackets within another one. Its columns
        are those of ``keep`` and ``uplift``, in units of the outcome; of a rule ``treat``, 1 or 0,
        or ``treatment``, a name or NULL.

    Raises
    ------
    InputError
        The model cannot be exported, knows no names of columns, or would take more than two
        million characters; a name is empty or holds a NUL.

    Notes
    -----
    Standard SQL: subqueries, CASE, CAST, COALESCE, GREATEST, LEAST, COS and EXP. It is tested in
    DuckDB, where it equals ``predict`` to 1e-9. Missing values are NULL or NaN, or blank text.
    Codes may be text, whole numbers or doubles; dates and times are those of the database, in UTC,
    or text such as 2024-03-31. Categories are compared byte for byte.

    Examples
    --------
    >>> import pandas as pd
    >>> from unjoined import MinMaxUplift
    >>> from unjoined.data import campaign_problem
    >>> from unjoined.export import export_sql
    >>> problem = campaign_problem()
    >>> data = problem.draw(300, random_state=0)
    >>> people = pd.DataFrame(data.X, columns=problem.feature_names)
    >>> linear = MinMaxUplift(basis="linear", random_state=0)
    >>> model = linear.fit(**dict(data) | {"X": people})
    >>> print(export_sql(model, table="customers", keep=["age"]))
    -- Uplift by MinMaxUplift of unjoined, in units of the outcome.
    SELECT "_0" AS "age", ... AS "uplift"
    FROM ...
    """
    if isinstance(model, TreeRule):
        text = _rule_query(model, table, keep)
        return text if path is None else _kept_in(path, text)
    check_is_fitted(model)
    scaling, basis, coef, weight, curve = _parts(model)
    columns, one_hot, fills = _columns(model)
    names = [column.name for column in columns]
    for j, name in enumerate(names):
        if name.lower() in (alike := [other.lower() for other in names[:j]]):
            raise InputError(
                f"the columns {names[alike.index(name.lower())]!r} and {name!r} have one name in "
                "most databases, where capitals do not count. Rename one and fit again."
            )
    query = _Query(_named(table), names, list(keep) or names)
    numbers = query.layer(
        expression
        for column in columns
        for expression in _numbers(column, one_hot=one_hot, fills=fills)
    )
    if scaling is not None:
        numbers = query.layer(
            _within(f"({x} - {_number(m)}) / {_number(s)}", FARTHEST)
            for x, m, s in zip(numbers, scaling.mean, scaling.scale, strict=True)
        )
    functions = query.layer(_functions(query, basis, numbers))
    uplift = [_combination(functions, column) for column in coef.T]
    if weight is not None:
        waves = (curve.format(_within(arm, LARGEST_EXPONENT)) for arm in uplift)
        uplift = [
            f"{_number(w)} * ({wave})" for w, wave in zip(weight, waves, strict=True)
        ]
    text = HEADING.format(type(model).__name__)
    if getattr(model, "offer_", None) is not None:
        text += OF_TAKERS
    if n := rows_held(model):
        text += ROWS_HELD.format(n)
    text += query.finished(_sum(uplift))
    if len(text) > MOST_CHARACTERS:
        raise InputError(
            f"the query would have {len(text):,} characters, more than most databases take. Fit "
            "a model with fewer functions, such as MinMaxUplift with fewer n_centers."
        )
    return text if path is None else _kept_in(path, text)


def _kept_in(path: str | os.PathLike[str], text: str) -> str:
    """Write a query to a file, and return it."""
    replace_file(path, lambda file: file.write_text(text + "\n", encoding="utf-8"))
    return text


def _named(table: str | Sequence[str]) -> str:
    parts = [table] if isinstance(table, str) else list(table)
    return ".".join(map(identifier, parts))


def _rule_query(rule: TreeRule, table: str | Sequence[str], keep: Sequence[str]) -> str:
    """Return a rule as a CASE over the columns that it names."""
    encoder = rule.features.encoder
    if encoder is None:
        raise InputError(NAMELESS.format("rule", "Learn it from"))
    numbers = [
        expression
        for column in encoder.columns_
        for expression in _numbers(column, one_hot=True, fills=True)
    ]
    used = sorted({j for leaf in rule.leaves for j in leaf.bounds})
    called = {j: identifier(rule.features.columns[j].name) for j in used}
    kept = list(keep) or list(encoder.feature_names_in_)
    inner = [
        f"{identifier(name)} AS {identifier(f'_{k}')}" for k, name in enumerate(kept)
    ]
    inner += [f"{numbers[j]} AS {called[j]}" for j in used]
    single = rule.treatments[0] in WORDS
    output = "treat" if single else "treatment"
    if output in kept:
        raise InputError(
            f"the query cannot copy the column {output!r}, because it has its own of that name. "
            "Rename yours, or name other columns to keep."
        )
    cases = [
        f"WHEN {_conditions(leaf.bounds, called)} THEN {1 if single else literal(leaf.treatment)}"
        for leaf in rule.leaves
        if leaf.treatment
    ]
    case = (
        f"CASE {' '.join(cases)} ELSE {0 if single else 'NULL'} END" if cases else "0"
    )
    outer = [
        f"{identifier(f'_{k}')} AS {identifier(name)}" for k, name in enumerate(kept)
    ]
    outer.append(f"{case} AS {identifier(output)}")
    columns = ", ".join(inner) or "1"
    return (
        f"-- {' '.join(rule.sentences()[: len(rule.treatments)])}\n"
        f"SELECT {', '.join(outer)}\n"
        f"FROM (SELECT {columns}\nFROM {_named(table)}) AS {identifier('_rows')}"
    )


def _conditions(bounds: Bounds, called: dict[int, str]) -> str:
    """Return the conditions that lead to a leaf."""
    words = []
    for j, (low, high) in sorted(bounds.items()):
        words += [f"{called[j]} > {_number(low)}"] * bool(np.isfinite(low))
        words += [f"{called[j]} <= {_number(high)}"] * bool(np.isfinite(high))
    return " AND ".join(words) or "TRUE"


def _parts(model: Any) -> tuple[Scaling | None, Basis, Array, Array | None, str]:
    """Return scaling, basis, coefficients (p, m), weights (m,) and the curve of a model.

    The uplift is a combination of functions; with weights it is that of m curves of such.
    """
    if isinstance(model, Uplift):
        fit = model.fit_
        scale = float(model.outcome_scaling_.scale[0])
        (base, effect), family = fit.coefficients(), fit.best.family
        if not isinstance(family, BernoulliFamily | PoissonFamily):
            return None, fit.basis, scale * (effect @ fit.weight)[:, None], None, ""
        curve = "1e0 / (1e0 + EXP(-{}))"
        if isinstance(family, PoissonFamily):
            curve = f"EXP({_within('{}', FARTHEST_LOG)})"
        treated = base + (1.0 - family.split) * effect
        untreated = base - family.split * effect
        weight = scale * np.concatenate([fit.weight, -fit.weight])
        return None, fit.basis, np.hstack([treated, untreated]), weight, curve
    if not isinstance(model, MinMaxUplift | WeightedUplift):
        raise InputError(f"{type(model).__name__} cannot be exported. {CAN}")
    return model.scaling_, model.basis_, model.coef_[:, None], None, ""


def _columns(model: Any) -> tuple[tuple[ColumnCode, ...], bool, bool]:
    """Return how columns become numbers, whether as indicators, and whether gaps are filled."""
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        return encoder.columns_, encoder.categories == "one-hot", True
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError(NAMELESS.format("model", "Fit it to"))
    ranges = getattr(model, "training_range_", None)
    fill = np.zeros(len(names)) if ranges is None else ranges[2]
    encoder = TableEncoder.of_numbers([str(name) for name in names], fill)
    return encoder.columns_, True, ranges is not None


def identifier(name: str) -> str:
    """Return a name of a column or table in quotes."""
    if not name or "\x00" in name:
        raise InputError(f"SQL has no form for the name {name!r}. Rename it.")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return text in quotes."""
    if "\x00" in text:
        raise InputError(
            f"SQL has no form for the category {text!r}. Rename it in the table."
        )
    return "'" + text.replace("'", "''") + "'"


class _Query:
    """Subqueries within each other; each adds columns of its own names to what is kept."""

    def __init__(self, table: str, columns: list[str], keep: list[str]) -> None:
        if OUTPUT in keep:
            raise InputError(
                f"the query cannot copy the column {OUTPUT!r}, because it has its own of that "
                "name. Rename yours, or name other columns to keep."
            )
        self.kept = {name: f"_{j}" for j, name in enumerate(dict.fromkeys(keep))}
        self.n_names = len(self.kept)
        kept = [
            f"{identifier(n)} AS {identifier(alias)}" for n, alias in self.kept.items()
        ]
        one = "_one"
        while one in {*columns, *keep}:
            one += "_"
        # With nothing between, databases put the expressions of all layers into one another, which
        # are millions. One row beside each stops DuckDB, the fence PostgreSQL; rows stay the same.
        barrier = f"CROSS JOIN (SELECT 1 AS {identifier(one)}) AS {identifier(one)}"
        self.source = f"{table} AS {identifier('_rows')} {barrier}"
        self.select = kept

    def layer(self, expressions: Iterable[str]) -> list[str]:
        """Compute expressions of the last layer, and return the names they go by in the next."""
        made: dict[str, str] = {}
        for expression in expressions:
            made[f'"_{self.n_names}"'] = expression
            self.n_names += 1
        columns = [*self.select, *(f"{e} AS {name}" for name, e in made.items())]
        inner = f"SELECT {', '.join(columns)}\nFROM {self.source} {FENCE}"
        self.source = f"({inner}) AS {identifier('_rows')}"
        self.select = [identifier(alias) for alias in self.kept.values()]
        return list(made)

    def finished(self, uplift: str) -> str:
        """Return the whole query."""
        kept = [
            f"{identifier(alias)} AS {identifier(name)}"
            for name, alias in self.kept.items()
        ]
        columns = ", ".join([*kept, f"{uplift} AS {identifier(OUTPUT)}"])
        return f"SELECT {columns}\nFROM {self.source}"


def _number(value: float) -> str:
    """Return a double, with an exponent, lest a database take it for a decimal of few digits."""
    text = repr(float(value))
    text = text if "e" in text else f"{text}e0"
    return f"({text})" if text.startswith("-") else text


def _within(expression: str, reach: float) -> str:
    return f"LEAST(GREATEST({expression}, {_number(-reach)}), {_number(reach)})"


def _sum(terms: list[str]) -> str:
    """Return a sum in brackets, of sums if there are many terms."""
    if not terms:
        return _number(0.0)
    while len(terms) > 1:
        groups = [terms[i : i + MOST_TERMS] for i in range(0, len(terms), MOST_TERMS)]
        terms = ["(" + " + ".join(group) + ")" for group in groups]
    return terms[0]


def _combination(names: list[str], coef: Array) -> str:
    """Return a sum of columns times coefficients, without those of coefficient 0."""
    pairs = zip(names, coef, strict=True)
    return _sum([f"{_number(c)} * {name}" for name, c in pairs if c != 0.0])


def _numbers(column: ColumnCode, *, one_hot: bool, fills: bool) -> list[str]:
    """Return expressions of a user's column that are the numbers of the model."""
    name = identifier(column.name)
    if column.holds == "categories":
        return _category(name, column, one_hot=one_hot)
    value = _days(name, column) if column.holds == "times" else _as_double(name)
    for stand_in in column.stand_ins:
        value = f"NULLIF({value}, {_number(stand_in)})"
    filled = f"COALESCE({value}, {_number(column.fill)})" if fills else value
    indicator = f"CASE WHEN {value} IS NULL THEN 1e0 ELSE 0e0 END"
    return [filled, indicator] if column.indicator else [filled]


def _as_double(name: str) -> str:
    """Return a number, NULL for what is blank, says that there is no value, or is not a number."""
    words = ", ".join(map(literal, ["", *sorted(NO_VALUE)]))
    given = f"CAST({name} AS DOUBLE PRECISION)"
    text = f"LOWER(TRIM(CAST({name} AS VARCHAR)))"
    there = f"CASE WHEN {text} IN ({words}) THEN NULL ELSE {given} END"
    return f"NULLIF({there}, CAST('NaN' AS DOUBLE PRECISION))"


def _days(name: str, column: ColumnCode) -> str:
    """Return a date or time in days since 1970, a time of day or a duration in days.

    Which of them it is the model does not know if the mean is within ten years of 1970. There the
    cell itself tells, as it is written.
    """
    stamp = f"EXTRACT(EPOCH FROM CAST({name} AS TIMESTAMP)) / 86400e0"
    if not 0.0 <= column.fill < FIRST_DATE:
        return stamp
    text = f"CAST({name} AS VARCHAR)"
    return (
        f"CASE WHEN {text} LIKE '%-__-__%' THEN EXTRACT(EPOCH FROM CAST({text} AS TIMESTAMP)) "
        f"WHEN {text} LIKE '__:__%' THEN EXTRACT(EPOCH FROM CAST({text} AS TIME)) "
        f"ELSE EXTRACT(EPOCH FROM CAST({text} AS INTERVAL)) END / 86400e0"
    )


def _spellings(level: str) -> list[str]:
    """Return how databases write a category: a whole number may be a double there, 5 or 5.0."""
    if (
        level.lstrip("-").isdecimal()
        and str(int(level)) == level
        and len(level) < DIGITS
    ):
        return [level, repr(float(level))]
    return [level]


def _category(name: str, column: ColumnCode, *, one_hot: bool) -> list[str]:
    """Return the code of a category, or its indicators, as expressions."""
    places = [_spellings(level) for level in column.levels]
    if column.rare and not column.is_open:  # else all that are not levels are rare
        places.append([word for level in column.rare for word in _spellings(level)])
    # Byte for byte, whatever the database takes for equal.
    text = f'CAST({name} AS VARCHAR) COLLATE "C"'
    blank = f"{name} IS NULL OR TRIM({text}) = '' OR LOWER({text}) = 'nan'"

    def case(values: list[float], unseen: float) -> str:
        other = values[len(column.levels)] if column.is_open else unseen
        missing = values[-1] if column.has_missing else unseen
        parts = [f"WHEN {blank} THEN {_number(missing)}"]
        for levels, value in zip(places, values, strict=False):
            listed = ", ".join(map(literal, levels))
            parts.append(f"WHEN {text} IN ({listed}) THEN {_number(value)}")
        return f"CASE {' '.join(parts)} ELSE {_number(other)} END"

    n = len(column.places)
    if not one_hot:
        return [case([float(j) for j in range(n)], -1.0)]
    others = [j for j in range(n) if j != column.base]
    return [
        case([float(i == j) for i in range(n)], float(column.shares[j])) for j in others
    ]


def _functions(query: _Query, basis: Basis, numbers: list[str]) -> list[str]:
    """Return expressions of the values of the functions, in the order of the basis."""
    if isinstance(basis, AdditiveBasis):
        return _additive(query, basis, numbers)
    if isinstance(basis, StackedBasis):
        parts = (basis.first, basis.second)
        return [value for part in parts for value in _functions(query, part, numbers)]
    if isinstance(basis, FourierBasis):
        height = _number(np.sqrt(2.0 / basis.size))
        angles = zip(basis.frequencies.T, basis.phases, strict=True)
        return [
            f"{height} * COS({_combination(numbers, f)} + {_number(phase)})"
            for f, phase in angles
        ]
    if isinstance(basis, GaussianBasis):
        return [_gaussian(center, basis.width, numbers) for center in basis.centers]
    if isinstance(basis, PrincipalBasis):
        return [
            "1e0",
            *(_combination(numbers, column) for column in basis.directions.T),
        ]
    if isinstance(basis, LinearBasis):
        return ["1e0", *numbers]
    raise InputError(
        f"a model on {type(basis).__name__} cannot be exported, as only Python knows what such "
        f"functions are. {CAN}"
    )


def _gaussian(center: Array, width: float, numbers: list[str]) -> str:
    """Return exp(-|z - c|^2 / width^2) as an expression."""
    apart = [f"({z} - {_number(c)})" for z, c in zip(numbers, center, strict=True)]
    square = _sum([f"{a} * {a}" for a in apart])
    exponent = f"{square} / {_number(width * width)}"
    return f"EXP(-LEAST({exponent}, {_number(LARGEST_EXPONENT)}))"


def _additive(query: _Query, basis: AdditiveBasis, numbers: list[str]) -> list[str]:
    """Return expressions of lines, squares, cosines, indicators, pairs and rules."""
    mean, scale = basis.scaling.mean, basis.scaling.scale
    lines, angles = [], []
    for c, curve in zip(basis.features, basis.curves, strict=True):
        apart = f"({numbers[c]} - {_number(mean[c])}) / {_number(scale[c])}"
        lines.append(_within(apart, FARTHEST_LINE))
        used = basis.pairs or curve.n_cosines > 1
        angles.append(_angle(curve, numbers[c]) if used else "0e0")
    codes = [numbers[c] for c, _, _ in basis.categories]
    cut = sorted({c for rule in basis.rules for c, _, _ in rule})
    named = query.layer([*lines, *angles, *codes, *(numbers[c] for c in cut)])
    k = len(lines)
    lines = named[:k]
    angles = named[k : 2 * k]
    codes = named[2 * k : 2 * k + len(codes)]
    column = dict(zip(cut, named[2 * k + len(codes) :], strict=True))
    root = _number(np.sqrt(2.0))
    values = ["1e0", *lines]
    values += [f"({lines[j]} * {lines[j]} - 1e0) / {root}" for j in basis.bent]
    for j in basis.bent:
        for n in range(1, 1 + basis.curves[j].n_cosines):
            height = _number(np.sqrt(2.0) / n)
            values.append(f"{height} * COS({_number(n)} * {angles[j]})")
    indicators = [
        [
            f"CASE WHEN {code} = {_number(level)} THEN 1e0 ELSE 0e0 END - {_number(s)}"
            for level, s in zip(levels, share, strict=True)
        ]
        for code, (_, levels, share) in zip(codes, basis.categories, strict=True)
    ]
    values += [indicator for each in indicators for indicator in each]
    factors = [f"{root} * COS({angle})" for angle in angles]
    factors += [f"2e0 * ({indicators[i][level]})" for i, level in basis.levels]
    values += [f"{factors[a]} * {factors[b]}" for a, b in basis.pairs]
    boxes = [
        " AND ".join(
            f"{column[c]} {'>' if above else '<='} {_number(cut)}"
            for c, cut, above in rule
        )
        for rule in basis.rules
    ]
    values += [f"CASE WHEN {box} THEN 1e0 ELSE 0e0 END" for box in boxes]
    return values


def _angle(curve: Curve, x: str) -> str:
    """Return pi times the rank of a feature, by halving the knots again and again.

    A smooth curve is a line between knots. Steps have a value of their own at each knot.
    """
    knots = curve.knots
    low = (np.pi / 2.0) * curve.low
    high = (np.pi / 2.0) * curve.high
    at_knots = low + high
    if len(knots) > SMOOTH_KNOTS:
        slopes = np.diff(at_knots) / np.diff(knots)
        end = at_knots[-2] + slopes[-1] * (knots[-1] - knots[-2])
        pieces = [
            f"{_number(start)} + {_number(slope)} * ({x} - {_number(knot)})"
            for start, slope, knot in zip(
                at_knots[:-1], slopes, knots[:-1], strict=True
            )
        ]
        return _halved([_number(at_knots[0]), *pieces, _number(end)], knots, x, "<")
    between = np.append(0.0, high) + np.append(low, np.pi / 2.0)
    cases = " ".join(
        f"WHEN {x} = {_number(knot)} THEN {_number(hit)}"
        for knot, hit in zip(knots, at_knots, strict=True)
    )
    return (
        f"CASE {cases} ELSE {_halved(list(map(_number, between)), knots, x, '<=')} END"
    )


def _halved(pieces: list[str], edges: Array, x: str, sign: str) -> str:
    """Return the piece that x falls into, by a CASE within a CASE."""
    if len(pieces) == 1:
        return pieces[0]
    middle = len(pieces) // 2
    left = _halved(pieces[:middle], edges[: middle - 1], x, sign)
    right = _halved(pieces[middle:], edges[middle:], x, sign)
    return f"CASE WHEN {x} {sign} {_number(edges[middle - 1])} THEN {left} ELSE {right} END"
