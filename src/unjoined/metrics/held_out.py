"""The tables of an evaluation in memory, what is asked of them, and whom they speak for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike
from unjoined._validation import (
    TARGET,
    check_cost,
    check_finite,
    check_not_negative,
    check_option,
    check_probability,
    check_share,
    check_vector,
    shown,
)
from unjoined.data import LabelledRows, SeparateLabels
from unjoined.errors import InputError
from unjoined.metrics.evaluation import Evaluation
from unjoined.metrics.people import NamedFeatures, say_left_out
from unjoined.metrics.ranks import ScoredRows, make_evaluation
from unjoined.metrics.ratio import PLAIN, RATIO, EvaluationRows
from unjoined.metrics.scores import labelled_rows

Rules = Mapping[str, Any]
DEFAULT_RULES: dict[str, tuple[str, float]] = {
    "best 10%": ("share", 0.1),
    "best 30%": ("share", 0.3),
    "predicted to gain": ("threshold", 0.0),
}


@dataclass(frozen=True, eq=False)
class HeldOutTables:
    """The tables of an evaluation: features as they were given, and as numbers for nuisances."""

    data: SeparateLabels
    features: NamedFeatures
    rows: LabelledRows
    used: BoolArray  # rows of the data with a label and a weight
    asked: BoolArray  # rows of the data that stand for the target
    target: MatrixLike | None  # other people the answer is for, as given
    target_rows: tuple[Array, Array] | None  # the same or the target rows, as numbers; weights

    @classmethod
    def of(cls, data: Mapping[str, Any], target: MatrixLike | None) -> HeldOutTables:
        """Check tables and target, and encode what is not a number."""
        tables = data if isinstance(data, SeparateLabels) else SeparateLabels(**data)
        matrix, features = NamedFeatures.of(tables.X)
        rest = (tables.y, tables.kind, tables.population, tables.sample_weight)
        rows, used = labelled_rows(matrix, *rest)
        weight = np.ones(tables.n_rows)
        if tables.sample_weight is not None:
            weight = np.asarray(tables.sample_weight)
        asked = (np.asarray(tables.kind) == TARGET) & (weight > 0.0) & (target is None)
        aim = (matrix[asked], weight[asked] / weight[asked].mean()) if asked.any() else None
        if target is not None:
            own, _ = features.numbers(target)
            aim = own, np.ones(len(own))
        return cls(tables, features, rows, used, asked, target, aim)

    def aligned(self, name: str, values: Any) -> Array:
        """Return a number per row of the data as the rows of an evaluation have it."""
        clean = check_vector(name, values)
        if len(clean) != self.data.n_rows:
            raise InputError(
                f"{name} must have a number for each of the {self.data.n_rows:,} rows of the data, "
                f"got {len(clean):,}."
            )
        if self.target is not None:
            raise InputError(
                f"{name} was given for the rows of the data, but target asks about other people. "
                "Give a model or a function, or put the target into the data as rows of kind "
                "'target'."
            )
        return np.concatenate([clean[self.used], clean[self.asked]])

    def called(self, name: str, function: Callable[[MatrixLike], Any]) -> Array:
        """Return the values of a function of the features, given as they came."""
        values = check_vector(name, function(self.data.X))
        if self.target is None:
            return self.aligned(name, values)
        return np.concatenate([values[self.used], check_vector(name, function(self.target))])

    def scores(self, model: Any) -> Array:
        """Return the score of each row: a model's predictions, a function's, or those given."""
        if hasattr(model, "predict"):
            return self.called("the model's predictions", model.predict)
        if callable(model):
            return self.called("scores", model)
        return self.aligned("scores", model)

    def rules(self, rules: Rules | None) -> dict[str, tuple[Any, ...]]:
        """Check rules and give each its kind and numbers, one per row where they differ."""
        n = len(self.rows) + (0 if self.target_rows is None else len(self.target_rows[0]))

        def values(title: str, given: Any) -> Array:
            return self.called(title, given) if callable(given) else self.aligned(title, given)

        def cost(title: str, given: Any) -> Array:
            each = values(title, given) if callable(given) or np.ndim(given) else given
            return check_cost(each, n)

        return check_rules(
            rules, lambda title, given: check_probability(title, values(title, given)), cost
        )


def check_rules(
    rules: Rules | None, own: Callable[[str, Any], Any], cost: Callable[[str, Any], Any]
) -> dict[str, tuple[Any, ...]]:
    """Check rules; ``own`` and ``cost`` make what differs between rows of what was given."""
    if rules is None:
        return dict(DEFAULT_RULES)
    if not isinstance(rules, Mapping):
        raise InputError(
            "rules must be a mapping of names to rules, such as "
            f"{{'best 30%': ('share', 0.3)}}, got {type(rules).__name__}."
        )
    if taken := [name for name in rules if name in ("average", "auuc", "qini")]:
        raise InputError(f"a rule cannot be called {taken[0]!r}. Choose another name.")
    return {str(name): _check_rule(str(name), rule, own, cost) for name, rule in rules.items()}


def _check_rule(
    name: str, rule: Any, own: Callable[[str, Any], Any], cost: Callable[[str, Any], Any]
) -> tuple[Any, ...]:
    title = f"rule {name!r}"
    if not (isinstance(rule, tuple | list) and rule and isinstance(rule[0], str)):
        return "own", own(title, rule)
    check_option(f"kind of {title}", rule[0], ("share", "threshold", "budget"))
    if len(rule) != 2 and not (rule[0] == "budget" and len(rule) == 3):
        raise InputError(
            f"{title} must be a kind and a number, such as ('share', 0.3), or ('budget', "
            f"amount per person, cost of each row), got {len(rule)} entries."
        )
    if rule[0] == "share":
        return "share", check_share(title, rule[1], zero_allowed=True)
    if rule[0] == "threshold":
        return "threshold", check_finite(title, rule[1])
    each = cost(title, rule[2] if len(rule) == 3 else 1.0)
    return "budget", check_not_negative(title, rule[1]), each


class Scores:
    """The rows of an evaluation with the people they speak for, ready for any number of scores."""

    def __init__(
        self,
        tables: HeldOutTables,
        rows: EvaluationRows,
        weight: str,
        fold: IntArray | None = None,
        how: str = "held-out rows",
    ) -> None:
        self.tables, self.rows, self.fold, self.how = tables, rows, fold, how
        self.omega = rows.omega(weight)
        self.terms = rows.terms(self.omega)
        refuse_alike(rows.share * rows.aim, self.omega, tables.rows.names)

    def scored(self, score: Array, form: str = RATIO) -> ScoredRows:
        """Return the row terms with a score."""
        terms = self.terms if form == RATIO else self.rows.terms(self.omega, form=form)
        return ScoredRows(terms, score, self.fold)

    def evaluate(
        self, score: Array, rules: Mapping[str, tuple[Any, ...]], level: float, rng: Rng
    ) -> Evaluation:
        """Return all that is said of a score."""
        forms = self.scored(score), self.scored(score, PLAIN)
        found = make_evaluation(*forms, rules, level, rng)
        return replace(found, left_out=self.left_out(), how=self.how, n_rows=len(self.tables.rows))

    def left_out(self) -> str:
        """Say who counts less, in words."""
        return say_left_out(self.rows, self.omega, self.tables.features)


def refuse_alike(people: Array, omega: Array, names: Sequence[Any]) -> None:
    """Refuse populations whose policies are equal for everyone."""
    if not float(people @ omega) > 0.0:
        raise InputError(
            f"the populations {shown(names)} treat everyone alike, as far as these tables tell, so "
            "that no number can be given. Uplift needs policies that differ."
        )
