"""People in words: features as users know them, regions where policies differ, who is left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.tree import DecisionTreeRegressor

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import (
    check_feature_sizes,
    check_finite_features,
    check_numeric_columns,
    did_you_mean,
    shown,
)
from unjoined.data.chunks import feature_matrix
from unjoined.data.columns import column_names
from unjoined.data.encode import ColumnCode, TableEncoder
from unjoined.errors import InputError, TableError
from unjoined.evaluate.estimate import critical_value, verdict_of
from unjoined.evaluate.terms import EvaluationRows
from unjoined.model.trees import Bounds
from unjoined.words import in_digits

NUMBER, TRUTH, DATE, LEVEL, MISSING = "number", "truth", "date", "level", "missing"
FIRST_DATE = 3650.0  # days since 1970; durations and times of day are fewer
DEPTH, SMALLEST_SHARE = 3, 0.05  # of the tree of regions, and of the people in each
LEAST_SPREAD = 0.01  # of the gap, that a split must explain
TREE_ROWS = 100_000
NOBODY = 0.995  # mean count above which nobody is called left out


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of numbers, and what it is to the user."""

    name: str  # of the column of numbers
    column: str  # of the user's table
    holds: str  # a number, a truth value, a date, a category or that a value is missing
    level: str = ""  # the category that it is 1 for
    levels: tuple[str, ...] = ()  # all categories of the user's column
    values: tuple[float, float] | None = None  # if it has two
    is_whole: bool = False  # whether all values are whole numbers


@dataclass(frozen=True, slots=True)
class NamedFeatures:
    """How a user's table becomes numbers, and what to call them."""

    columns: tuple[Feature, ...]
    encoder: TableEncoder | None  # None for a plain array

    @classmethod
    def of(cls, X: MatrixLike) -> tuple[Array, NamedFeatures]:
        """Return features as numbers; text, dates and missing values are encoded."""
        if column_names(X) is None:
            matrix = feature_matrix(X)
            named = cls.of_numbers(matrix, None)
        else:
            encoder = TableEncoder().fit(X)
            matrix = encoder.encode(X).matrix
            kinds = nw.from_native(X, eager_only=True).schema.items()
            truths = {str(name) for name, kind in kinds if kind == nw.Boolean}
            named = cls.of_numbers(matrix, encoder, truths)
        check_finite_features(matrix, named.names)
        check_feature_sizes(matrix, named.names)
        return matrix, named

    @classmethod
    def of_numbers(
        cls, matrix: Array, encoder: TableEncoder | None, truths: Collection[str] = ()
    ) -> NamedFeatures:
        """Return what to call the columns of numbers that an encoder made, or of an array."""
        names = [f"x{j + 1}" for j in range(matrix.shape[1])]
        features = [Feature(name, name, NUMBER) for name in names]
        if encoder is not None:
            features = [
                feature for code in encoder.columns_ for feature in _features_of(code)
            ]
        looked = (
            _look(feature, matrix[:, j], truths) for j, feature in enumerate(features)
        )
        return cls(tuple(looked), encoder)

    @property
    def names(self) -> list[str]:
        """Names of the columns of numbers."""
        return [feature.name for feature in self.columns]

    def numbers(self, X: MatrixLike, table: str = "target") -> tuple[Array, list[str]]:
        """Return other people with the same columns as numbers, and what is strange about them."""
        if len(X) == 0:
            raise InputError(
                f"{table} has no rows. Leave it out, or give the people in question."
            )
        names = column_names(X)
        if self.encoder is not None and names is not None:
            wanted = self.encoder.feature_names_in_.tolist()
            if missing := [name for name in wanted if name not in names]:
                raise TableError(
                    f"{table} lacks the column {missing[0]!r} that the tables have; its columns "
                    f"are {shown(names)}{did_you_mean(missing[0], names)}"
                )
            encoded = self.encoder.encode(X, table=table)
            return encoded.matrix, encoded.notes
        check_numeric_columns(X)
        matrix = feature_matrix(X)
        if matrix.shape[1] != len(self.columns):
            raise InputError(
                f"{table} has {matrix.shape[1]} columns, but the tables have {len(self.columns)} "
                "features. Give the same features in the same order."
            )
        check_finite_features(matrix, self.names, table=table)
        return matrix, []

    def in_words(self, conditions: Bounds) -> str:
        """Say conditions in words, features in the order of the table."""
        columns: dict[str, list[int]] = {}
        for j, bounds in sorted(conditions.items()):
            if np.isfinite(bounds).any():
                columns.setdefault(self.columns[j].column, []).append(j)
        words = [
            word
            for at in columns.values()
            for word in _said(
                [self.columns[j] for j in at], [conditions[j] for j in at]
            )
        ]
        return " and ".join(words) or "everyone"


def _features_of(code: ColumnCode) -> Iterator[Feature]:
    """Yield what each column of numbers says of the user's column."""
    names = code.names("one-hot")
    if code.holds == "categories":
        places = [place for j, place in enumerate(code.places) if j != code.base]
        for name, place in zip(names, places, strict=True):
            yield Feature(name, code.name, LEVEL, place, code.places)
        return
    yield Feature(names[0], code.name, DATE if code.holds == "times" else NUMBER)
    for name in names[1:]:
        yield Feature(name, code.name, MISSING)


def _look(feature: Feature, values: Array, truths: Collection[str]) -> Feature:
    """Add what the values of a feature tell of it."""
    low = float(values.min(initial=np.inf))
    high = float(values.max(initial=-np.inf))
    two = low < high and bool(np.all((values == low) | (values == high)))
    holds = feature.holds
    if holds == DATE and low < FIRST_DATE:
        holds = NUMBER
    if holds == NUMBER and feature.column in truths:
        holds = TRUTH
    whole = not two and bool(np.all(values == np.floor(values)))
    ends = (low, high) if two else None
    return replace(feature, holds=holds, values=ends, is_whole=whole)


def _said(
    features: Sequence[Feature], bounds: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """Say the conditions on one column of the user's table."""
    column = features[0].column
    if features[0].holds == LEVEL:
        is_it = [low >= 0.0 for low, _ in bounds]
        chosen = [f.level for f, yes in zip(features, is_it, strict=True) if yes]
        excluded = {feature.level for feature in features}
        left = [level for level in features[0].levels if level not in excluded]
        yield f"{column} is {_listed(chosen or left, excluded if not chosen else set())}"
        return
    for feature, (low, high) in zip(features, bounds, strict=True):
        if feature.holds == MISSING:
            yield f"{column} is {'missing' if low >= 0.0 else 'known'}"
        elif feature.values is not None:
            value = feature.values[int(feature.values[0] <= low)]
            truth = {0.0: "false", 1.0: "true"}.get(value, f"{value:.5g}")
            plain = f"{column} is {_shown(feature, value)}"
            yield f"{column} is {truth}" if feature.holds == TRUTH else plain
        else:
            yield between(feature, low, high)


def _listed(left: list[str], excluded: set[str]) -> str:
    """Say which categories are left, or which are not if these are fewer."""
    if len(left) == 1 or not excluded:
        return " or ".join(left)
    if len(left) < len(excluded):
        return "one of " + ", ".join(left)
    return "not " + " or ".join(sorted(excluded))


def between(feature: Feature, low: float, high: float) -> str:
    """Say between what a number or a date lies."""
    if not np.isfinite(low):
        return f"{feature.column} is at most {_shown(feature, high)}"
    if not np.isfinite(high):
        return f"{feature.column} is above {_shown(feature, low)}"
    if feature.is_whole and feature.holds == NUMBER:
        first, last = (f"{np.floor(end):.0f}" for end in (low + 1.0, high))
        return f"{feature.column} is {first}" + f" to {last}" * (first != last)
    return f"{feature.column} is above {_shown(feature, low)}, at most {_shown(feature, high)}"


def _shown(feature: Feature, value: float) -> str:
    if feature.holds == DATE:
        return str(np.datetime64(int(np.floor(value)), "D"))
    if feature.is_whole:
        return f"{np.floor(value):.0f}"
    return in_digits(value, 4)


@dataclass(frozen=True, slots=True)
class Region:
    """People whom the same few conditions on features describe.

    Attributes
    ----------
    where : str
        The conditions in words, such as "age is at most 30 and member is 1".
    share : float
        Share of the people in the tables, or of the target.
    gap : float
        Mean difference of the treatment probabilities: e_1 - e_2 for two populations; for more,
        the root mean square of the differences of any two.
    strength : float
        Of that gap: its square over its variance; for more than two populations of what the gap
        is the root of.
    standard_error : float
        Of the gap; infinite where it is 0 for more than two populations.
    """

    where: str
    share: float
    gap: float
    strength: float
    standard_error: float

    @property
    def verdict(self) -> str:
        """One of "identified", "weakly identified" and "not identified", by the strength."""
        return verdict_of(self.strength)

    @property
    def gap_words(self) -> str:
        """The gap, and how far it may be off at a level of 95 percent."""
        off = critical_value(0.95) * self.standard_error
        return (
            f"{self.gap:+.2f} ± {off:.2f}"
            if np.isfinite(off)
            else f"{self.gap:+.2f}, no bound"
        )


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of all people, and the tree they are the leaves of."""

    leaves: tuple[Region, ...]
    leaf: IntArray  # (regions,) their nodes in the tree
    leaf_of: IntArray  # (n,) node of each row
    children: IntArray  # (nodes, 2) -1 for leaves
    conditions: tuple[Bounds, ...]  # that lead to each node
    features: NamedFeatures

    def name(self, verdicts: Sequence[str]) -> tuple[str, float]:
        """Return the regions of some verdicts in as few words as the tree has, and their share."""
        chosen = {
            int(node): region.share
            for node, region in zip(self.leaf, self.leaves, strict=True)
            if region.verdict in verdicts
        }
        return self.words(chosen), sum(chosen.values())

    def words(self, chosen: Collection[int]) -> str:
        """Return some leaves in as few words as the tree has: its topmost nodes that they fill."""
        filled = set(chosen)
        below: set[int] = set()
        for node in range(len(self.children))[
            ::-1
        ]:  # children come after their parents
            pair = self.children[node].tolist()
            if filled.issuperset(pair):
                filled.add(node)
                below.update(pair)
        boxes = [self.conditions[node] for node in sorted(filled - below)]
        return "; or where ".join(map(self.features.in_words, _joined(boxes)))


def find_regions(rows: EvaluationRows, features: NamedFeatures) -> Regions:
    """Split people by a tree of depth 3 on the cross-fitted policies, and measure each leaf.

    The gap of a leaf is measured by D with g = 1 inside the leaf: the difference of the shares
    treated, which rows outside of the fold's fits correct. For more than two populations each
    counts by how far its policy is from the mean policy in the leaf.
    """
    people = rows.share * rows.aim  # adds up to 1 over the target
    apart = rows.policies - rows.policies.mean(axis=1, keepdims=True)
    # Two outputs, half of the gap each.
    tree = _split(rows.X, apart, people, LEAST_SPREAD**2 / 4.0, features)
    regions = []
    for leaf in tree.leaf:
        inside = tree.leaf_of == leaf
        words = features.in_words(tree.conditions[leaf])
        share = float(people[inside].sum())
        regions.append(Region(words, share, *_measure(rows, inside, people)))
    return replace(tree, leaves=tuple(regions))


def say_left_out(rows: EvaluationRows, omega: Array, features: NamedFeatures) -> str:
    """Say who counts less than half as much as others, by features."""
    people = rows.share * rows.aim
    if float(people @ omega) > NOBODY:
        return "Nobody is left out."
    tree = _split(rows.X, omega, people, LEAST_SPREAD**2, features)
    size, count = (
        np.bincount(tree.leaf_of, weights=w, minlength=len(tree.children))[tree.leaf]
        for w in (people, people * omega)
    )
    mean = count / size
    few = mean < 0.5 * mean.max()
    if not few.any():
        return (
            "People whom the populations treat alike count less. No simple condition on the "
            "features tells who they are."
        )
    words = tree.words(tree.leaf[few].tolist())
    return (
        f"People where {words} count for {count[few].sum() / size[few].sum():.0%} each, because "
        f"the populations treat them alike; they are {size[few].sum():.0%} of the people evaluated."
    )


def _split(
    X: Array, outputs: Array, people: Array, least: float, features: NamedFeatures
) -> Regions:
    """Grow the tree on the rows that stand for the people the answer is for."""
    at = np.flatnonzero(people > 0.0)
    at = at[:: max(len(at) // TREE_ROWS, 1)]
    tree = DecisionTreeRegressor(
        max_depth=DEPTH,
        min_weight_fraction_leaf=SMALLEST_SHARE,
        min_impurity_decrease=least,
        random_state=0,
    ).fit(X[at], outputs[at], sample_weight=people[at])
    leaf_of = tree.apply(X)
    nodes = tree.tree_
    return Regions(
        leaves=(),
        leaf=np.unique(leaf_of[people > 0.0]),
        leaf_of=leaf_of,
        children=np.column_stack([nodes.children_left, nodes.children_right]),
        conditions=tuple(tree_conditions(nodes)),
        features=features,
    )


def _measure(
    rows: EvaluationRows, inside: BoolArray, people: Array
) -> tuple[float, float, float]:
    """Return the mean gap inside a region, its strength and its standard error."""
    p, K = rows.population_share, rows.n_populations
    share = people[inside].sum()
    mean = people[inside] @ rows.policies[inside] / share
    is_signed = K == 2 and not rows.known[:, 0].any()
    contrast = np.array([1.0, -1.0]) if is_signed else p * (mean - p @ mean)
    reach = np.where(rows.is_treatment, contrast[rows.cell % K] * rows.ratio, 0.0)
    level = rows.policies @ contrast + rows.within
    column = inside * (reach * rows.residual + rows.aim * level)
    D, V = rows.total_given_target(column, np.where(inside, reach, 0.0))
    gap = float(D / share)
    error = float(np.sqrt(V) / share)
    if not is_signed:
        gap = float(np.sqrt(max(gap, 0.0) / rows.pairs))
        error = error / (2.0 * rows.pairs * gap) if gap > 0.0 else np.inf
    if D > 0.0 and np.all(rows.known[:, 0] == 1.0):
        return gap, np.inf, 0.0
    return gap, D**2 / V if V > 0.0 else 0.0, error


def tree_conditions(tree: Any) -> list[Bounds]:
    """Return the conditions that lead to each node of a fitted tree."""
    conditions: list[Bounds] = [{} for _ in range(tree.node_count)]
    for node in range(tree.node_count):  # parents come before their children
        j = int(tree.feature[node])
        cut = float(tree.threshold[node])
        if tree.children_left[node] < 0:
            continue
        low, high = conditions[node].get(j, (-np.inf, np.inf))
        conditions[tree.children_left[node]] = conditions[node] | {j: (low, cut)}
        conditions[tree.children_right[node]] = conditions[node] | {j: (cut, high)}
    return conditions


def _joined(boxes: list[Bounds]) -> list[Bounds]:
    """Join boxes that lie side by side: equal but for one feature, whose ranges touch."""
    for one, two in permutations(boxes, 2):
        differ = [j for j in {*one, *two} if one.get(j) != two.get(j)]
        if len(differ) == 1 and differ[0] in one and differ[0] in two:
            (low, middle), (again, high) = one[differ[0]], two[differ[0]]
            if middle == again:
                others = [box for box in boxes if box not in (one, two)]
                return _joined([*others, one | {differ[0]: (low, high)}])
    return boxes
