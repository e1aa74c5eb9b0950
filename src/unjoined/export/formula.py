"""What a fitted model computes, as a formula that others can repeat; and that as an ONNX graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import unjoined
from unjoined._support import import_extra
from unjoined._typing import Array, Basis
from unjoined.basis import (
    AdditiveBasis,
    Curve,
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    PrincipalBasis,
    Scaling,
    StackedBasis,
)
from unjoined.data import ColumnCode, TableEncoder, replace_file
from unjoined.errors import InputError
from unjoined.estimators import MinMaxUplift, MixtureUplift, UpliftSearchCV, WeightedUplift
from unjoined.nuisance import AdditiveAverage
from unjoined.solve import BernoulliLaw

KNOWN = (AdditiveBasis, FourierBasis, GaussianBasis, LinearBasis, PrincipalBasis, StackedBasis)
SMOOTH_KNOTS = 20  # of a curve: up to so many, ranks are steps; beyond, they are interpolated
CAN = (
    "Those that can are Uplift, MixtureUplift with engine='likelihood', MinMaxUplift and "
    "WeightedUplift, on the bases of this package."
)


@dataclass(frozen=True, slots=True)
class Formula:
    """The uplift as ``link(functions of the features @ coef) @ weight``, between bounds."""

    columns: tuple[ColumnCode, ...]  # without names for a model of plain arrays: empty
    one_hot: bool  # whether categories become indicators, or codes
    fills: bool  # whether something stands for missing numbers
    n_numbers: int  # d, that the columns become
    scaling: Scaling | None  # of the numbers, before the functions
    basis: Basis
    coef: Array  # (p, m)
    weight: Array | None  # (m,) of logistic curves; None: one combination is the uplift itself
    bounds: tuple[float, float] | None  # of the uplift


def formula_of(model: Any) -> Formula:
    """Return what a fitted model computes, or say that it cannot be written down."""
    check_is_fitted(model)
    basis: Basis
    weight, bounds, fit = None, None, getattr(model, "fit_", None)
    if isinstance(model, MixtureUplift) and isinstance(fit, AdditiveAverage):
        scaling, basis = None, fit.basis
        coef, weight = _arms(fit, float(model.outcome_scaling_.scale[0]))
    elif isinstance(model, MinMaxUplift | WeightedUplift):
        scaling, basis, coef = model.scaling_, model.basis_, model.coef_[:, None]
        if getattr(model, "feature_limit_", None) is not None:
            raise InputError("models of sums with limits on the features cannot be exported yet.")
        if isinstance(model, MinMaxUplift) and model.clip and model.bounds_ is not None:
            bounds = (model.bounds_.lower, model.bounds_.upper)
    else:
        hint = " Export its best_estimator_." if isinstance(model, UpliftSearchCV) else ""
        what = "with engine='em' " if isinstance(model, MixtureUplift) else ""
        raise InputError(f"{type(model).__name__} {what}cannot be exported.{hint} {CAN}")
    _check_basis(basis)
    columns, one_hot, fills = _columns(model)
    return Formula(columns, one_hot, fills, basis.n_features, scaling, basis, coef, weight, bounds)


def _arms(fit: AdditiveAverage, scale: float) -> tuple[Array, Array | None]:
    """Return the coefficients of each member's arms with their weights, or of the mean effect."""
    (base, effect), law = fit.coefficients(), fit.best.law
    if not isinstance(law, BernoulliLaw):
        return scale * (effect @ fit.weight)[:, None], None
    treated, untreated = base + (1.0 - law.split) * effect, base - law.split * effect
    return np.hstack([treated, untreated]), scale * np.concatenate([fit.weight, -fit.weight])


def _check_basis(basis: Basis) -> None:
    parts = (basis.first, basis.second) if isinstance(basis, StackedBasis) else (basis,)
    for part in parts:
        if isinstance(part, StackedBasis):
            _check_basis(part)
        elif not isinstance(part, KNOWN):
            raise InputError(
                f"a model on {type(part).__name__} cannot be exported, as only Python knows what "
                f"such functions are. {CAN}"
            )


def _columns(model: Any) -> tuple[tuple[ColumnCode, ...], bool, bool]:
    """Return how columns become numbers, whether as indicators, and whether gaps are filled."""
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        return encoder.columns_, encoder.categories == "one-hot", True
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return (), True, False
    ranges = getattr(model, "training_range_", None)
    fill = np.zeros(len(names)) if ranges is None else ranges[2]
    encoder = TableEncoder.of_numbers([str(name) for name in names], fill)
    return encoder.columns_, True, ranges is not None


@dataclass(frozen=True, slots=True)
class RankTable:
    """Pi times the rank of a feature, piece by piece: at place j = number of knots below x.

    Smooth curves are ``start + slope (x - knot)`` within the outer knots. Steps are ``start``,
    or ``hit`` where x is the knot itself.
    """

    knots: Array  # (k,)
    start: Array  # of each place
    slope: Array | None
    hit: Array | None

    @classmethod
    def of_curve(cls, curve: Curve) -> RankTable:
        """Return the pieces of a curve."""
        low, high = (np.pi / 2.0) * curve.low, (np.pi / 2.0) * curve.high
        if len(curve.knots) > SMOOTH_KNOTS:
            angle = low + high
            return cls(curve.knots, angle[:-1], np.diff(angle) / np.diff(curve.knots), None)
        below = np.concatenate([[0.0], high])
        above = np.concatenate([low, [np.pi / 2.0]])
        return cls(curve.knots, below + above, None, low + high)


OPSET, ML_OPSET, IR = 17, 3, 8  # old enough for any onnxruntime since 2022
FARTHEST, FARTHEST_LINE = 1e30, 5.0  # standard deviations, of all functions and of lines
OUTPUT = "uplift"


def export_onnx(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted model as an ONNX graph, which scores rows without this package.

    Parameters
    ----------
    model : Uplift, MixtureUplift, MinMaxUplift or WeightedUplift
        Fitted. Of `MixtureUplift` the likelihood engine; bases of this package.
    path : path
        The file to write.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        The model cannot be exported; the message names those that can.
    MissingExtraError
        onnx is not installed: ``pip install "unjoined[onnx]"``.

    Notes
    -----
    The output is called ``uplift`` and has shape (n, 1), in units of the outcome. It equals
    ``predict`` but for rounding. A model of a data frame has one input of shape (n, 1) for each
    column, under its name: numbers as doubles, NaN where there is none; text as strings, "" where
    there is none; dates as days since 1970, as doubles. Columns are encoded and missing values
    filled inside the graph. A model of plain arrays has one input, ``X``, of shape (n, d).

    The file is a few thousand numbers. Scoring costs about as much as ``predict``.

    Examples
    --------
    >>> import tempfile
    >>> from unjoined import MinMaxUplift
    >>> from unjoined.data import campaign_problem
    >>> from unjoined.export import export_onnx
    >>> data = campaign_problem().draw(300, random_state=0)
    >>> model = MinMaxUplift(basis="linear", random_state=0).fit(**data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    formula = formula_of(model)
    onnx = import_extra("onnx", extra="onnx")
    graph = _Graph(onnx, [column.name for column in formula.columns])
    numbers = _matrix(graph, formula) if formula.columns else graph.input("X", formula.n_numbers)
    if formula.scaling is not None:
        numbers = graph.scaled(numbers, formula.scaling.mean, formula.scaling.scale, FARTHEST)
    values = _functions(graph, formula.basis, numbers)
    uplift = graph.add("MatMul", values, graph.constant(formula.coef))
    if formula.weight is not None:
        weight = graph.constant(formula.weight[:, None])
        uplift = graph.add("MatMul", graph.add("Sigmoid", uplift), weight)
    low, high = formula.bounds or (-np.inf, np.inf)
    uplift = graph.add("Clip", uplift, graph.constant(low), graph.constant(high))
    made = graph.finished(uplift, f"Uplift by {type(model).__name__} of unjoined.")
    return replace_file(path, lambda file: file.write_bytes(made.SerializeToString()))


class _Graph:
    """A graph that grows node by node; names of its own stay clear of the user's."""

    def __init__(self, onnx: Any, taken: list[str]) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.output = OUTPUT
        self.prefix = "/"
        while self.output in taken:
            self.output += "_"
        while any(name.startswith(self.prefix) for name in taken):
            self.prefix += "/"

    def _new_name(self) -> str:
        return f"{self.prefix}{len(self.nodes) + len(self.constants)}"

    def input(self, name: str, width: int, *, text: bool = False) -> str:
        """Take a matrix of doubles, or of strings, from the user."""
        kind = self.onnx.TensorProto.STRING if text else self.onnx.TensorProto.DOUBLE
        make = self.onnx.helper.make_tensor_value_info
        self.inputs.append(make(name, kind, ["rows", width]))
        return name

    def constant(self, value: Any) -> str:
        """Return the name of an array that is part of the graph; numbers are doubles."""
        array = np.asarray(value)
        array = array if array.dtype in (np.int64, np.bool_) else array.astype(np.float64)
        name = self._new_name()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of what it gives."""
        name = self._new_name()
        self.nodes.append(
            self.onnx.helper.make_node(operator, inputs, [name], domain=domain, **attributes)
        )
        return name

    def double(self, tensor: str) -> str:
        """Return truth values or codes as doubles."""
        return self.add("Cast", tensor, to=self.onnx.TensorProto.DOUBLE)

    def join(self, parts: list[str]) -> str:
        """Return matrices side by side."""
        return self.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def take(self, matrix: str, columns: Any) -> str:
        """Return some columns of a matrix."""
        at = np.asarray(columns, dtype=np.int64)
        return self.add("Gather", matrix, self.constant(at), axis=1)

    def scaled(self, matrix: str, mean: Array, scale: Array, reach: float) -> str:
        """Return columns less their means over their scales, none farther away than ``reach``."""
        apart = self.add("Sub", matrix, self.constant(mean))
        apart = self.add("Div", apart, self.constant(scale))
        return self.add("Clip", apart, self.constant(-reach), self.constant(reach))

    def finished(self, uplift: str, words: str) -> Any:
        """Return the model, checked."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [uplift], [self.output]))
        output = helper.make_tensor_value_info(self.output, kind, ["rows", 1])
        graph = helper.make_graph(self.nodes, OUTPUT, self.inputs, [output], self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR, doc_string=words)
        made.producer_name, made.producer_version = "unjoined", unjoined.__version__
        self.onnx.checker.check_model(made)
        return made


def _matrix(graph: _Graph, formula: Formula) -> str:
    """Turn the user's columns into the matrix of numbers that the model works with."""
    parts: list[str] = []
    for column in formula.columns:
        if column.holds == "categories":
            parts += _category(graph, column, one_hot=formula.one_hot)
            continue
        given = graph.input(column.name, 1)
        if not formula.fills:
            parts.append(given)
            continue
        gone = graph.add("IsNaN", given)
        for stand_in in column.stand_ins:
            gone = graph.add("Or", gone, graph.add("Equal", given, graph.constant([[stand_in]])))
        parts.append(graph.add("Where", gone, graph.constant([[column.fill]]), given))
        if column.indicator:
            parts.append(graph.double(gone))
    return graph.join(parts)


def _category(graph: _Graph, column: ColumnCode, *, one_hot: bool) -> list[str]:
    """Turn a column of text into codes, or into indicators."""
    given = graph.input(column.name, 1, text=True)
    places = {level: j for j, level in enumerate(column.levels)}
    places |= dict.fromkeys(column.rare, len(column.levels))
    places[""] = len(column.places) - 1 if column.has_missing else -1
    words: dict[str, Any] = {
        "keys_strings": list(places),
        "values_int64s": list(places.values()),
        "default_int64": len(column.levels) if column.is_open else -1,
    }
    code = graph.double(graph.add("LabelEncoder", given, domain="ai.onnx.ml", **words))
    if not one_hot:
        return [code]
    others = [j for j in range(len(column.places)) if j != column.base]
    if not others:
        return []
    is_level = graph.double(
        graph.add("Equal", code, graph.constant(np.array([others], dtype=np.float64)))
    )
    unseen = graph.add("Less", code, graph.constant([[0.0]]))
    return [graph.add("Where", unseen, graph.constant(column.shares[None, others]), is_level)]


def _functions(graph: _Graph, basis: Basis, Z: str) -> str:
    """Return the values of the functions of a basis, in its order."""
    if isinstance(basis, AdditiveBasis):
        return graph.join(_additive(graph, basis, Z))
    if isinstance(basis, StackedBasis):
        return graph.join([_functions(graph, part, Z) for part in (basis.first, basis.second)])
    if isinstance(basis, FourierBasis):
        angle = graph.add("MatMul", Z, graph.constant(basis.frequencies))
        waves = graph.add("Cos", graph.add("Add", angle, graph.constant(basis.phases)))
        # One number for each function: onnxruntime keeps a single factor in single precision.
        height = np.full(basis.size, np.sqrt(2.0 / basis.size))
        return graph.add("Mul", waves, graph.constant(height))
    if isinstance(basis, GaussianBasis):
        return _gaussians(graph, basis, Z)
    linear = Z
    if isinstance(basis, PrincipalBasis):
        linear = graph.add("MatMul", Z, graph.constant(basis.directions))
    return graph.join([_ones(graph, Z), linear])


def _ones(graph: _Graph, matrix: str) -> str:
    """Return a column of ones as long as a matrix."""
    first = graph.add("Mul", graph.take(matrix, [0]), graph.constant(0.0))
    return graph.add("Add", first, graph.constant(1.0))


def _gaussians(graph: _Graph, basis: GaussianBasis, Z: str) -> str:
    """Return exp(-|z - c|^2 / width^2), by |z|^2 - 2 z.c + |c|^2 around the centres' mean."""
    origin = basis.centers.mean(axis=0)
    centers = (basis.centers - origin) / basis.width
    z = graph.scaled(Z, origin, np.full_like(origin, basis.width), FARTHEST)
    axis = graph.constant(np.array([1], dtype=np.int64))
    square = graph.add("ReduceSum", graph.add("Mul", z, z), axis, keepdims=1)
    product = graph.add("MatMul", z, graph.constant(2.0 * centers.T))
    exponent = graph.add(
        "Sub",
        graph.add("Sub", product, square),
        graph.constant(np.einsum("ij,ij->i", centers, centers)),
    )
    return graph.add("Exp", graph.add("Min", exponent, graph.constant(0.0)))


def _additive(graph: _Graph, basis: AdditiveBasis, X: str) -> list[str]:
    """Return the functions of the basis, in its order."""
    places, bent, parts = list(basis.features), list(basis.bent), [_ones(graph, X)]
    if places:
        mean, scale = basis.scaling.mean[places], basis.scaling.scale[places]
        parts.append(graph.scaled(graph.take(X, places), mean, scale, FARTHEST_LINE))
    if bent:
        some = graph.take(parts[-1], bent)
        apart = graph.add("Sub", graph.add("Mul", some, some), graph.constant(1.0))
        parts.append(graph.add("Div", apart, graph.constant(np.full(len(bent), np.sqrt(2.0)))))
    angles = {
        j: _angle(graph, RankTable.of_curve(basis.curves[j]), graph.take(X, [places[j]]))
        for j in (range(len(places)) if basis.pairs else bent)
    }
    for j in bent:
        n = np.arange(1.0, 1.0 + basis.curves[j].n_cosines)
        waves = graph.add("Cos", graph.add("Mul", angles[j], graph.constant(n[None])))
        parts.append(graph.add("Mul", waves, graph.constant(np.sqrt(2.0) / n)))
    indicators = []
    for c, codes, share in basis.categories:
        hit = graph.double(graph.add("Equal", graph.take(X, [c]), graph.constant(codes[None])))
        indicators.append(graph.add("Sub", hit, graph.constant(share)))
    parts += indicators
    if basis.pairs:
        factors = [graph.add("Cos", angle) for angle in angles.values()]
        factors += [graph.take(indicators[i], [level]) for i, level in basis.levels]
        heights = [np.sqrt(2.0)] * len(angles) + [2.0] * len(basis.levels)
        first = graph.add("Mul", graph.join(factors), graph.constant(np.array(heights)))
        a, b = (graph.take(first, [pair[i] for pair in basis.pairs]) for i in (0, 1))
        parts.append(graph.add("Mul", a, b))
    return parts


def _angle(graph: _Graph, table: RankTable, x: str) -> str:
    """Return pi times the rank of one feature, shape (n, 1)."""
    knots = table.knots
    smooth = table.slope is not None
    if smooth:
        x = graph.add("Clip", x, graph.constant(knots[0]), graph.constant(knots[-1]))
    # Smooth: the last knot that does not exceed x, but for the last of all. Steps: knots below x.
    edges = knots[1:-1] if smooth else knots
    compare = graph.add("GreaterOrEqual" if smooth else "Greater", x, graph.constant(edges[None]))
    axis = graph.constant(np.array([1], dtype=np.int64))
    counted = graph.add("ReduceSum", graph.double(compare), axis, keepdims=1)
    place = graph.add("Cast", counted, to=graph.onnx.TensorProto.INT64)
    start = graph.add("Gather", graph.constant(table.start), place)
    if table.slope is not None:
        slope = graph.add("Gather", graph.constant(table.slope), place)
        beyond = graph.add("Sub", x, graph.add("Gather", graph.constant(knots[:-1]), place))
        return graph.add("Add", start, graph.add("Mul", slope, beyond))
    padded = np.append(knots, np.inf)
    hit = graph.add("Equal", x, graph.add("Gather", graph.constant(padded), place))
    at_knot = np.append(np.empty(0) if table.hit is None else table.hit, 0.0)
    return graph.add("Where", hit, graph.add("Gather", graph.constant(at_knot), place), start)
