"""Evaluate tables that are gone through in pieces: what is asked of the rows, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._typing import MatrixLike
from unjoined._validation import check_option, check_positive
from unjoined.errors import InputError
from unjoined.metrics.bin_sums import BinnedTerms, BinSums, Order, Scorer, Settled, Source
from unjoined.metrics.estimate import Estimate
from unjoined.metrics.evaluation import Evaluation
from unjoined.metrics.held_out import Rules, check_rules, refuse_alike
from unjoined.metrics.ranks import ScoredRows, make_evaluation
from unjoined.metrics.ratio import GAP, OVERLAP, residual_size
from unjoined.metrics.regions import say_left_out


class Asked:
    """What is computed of each row, and in which order rows are put, for a score and its rules."""

    def __init__(self, model: Any) -> None:
        predict = getattr(model, "predict", model)
        if not callable(predict):
            raise InputError(
                "tables that are read in pieces need a model or a function of the features, got "
                f"{type(model).__name__}. Scores of rows need all rows in memory."
            )
        self.names, self.functions, self.chances = ["the score"], [predict], [False]

    def own(self, title: str, rule: Any) -> int:
        """Return the column that holds a rule's chances of treatment."""
        if not callable(rule):
            raise InputError(
                f"{title} must be a function of the features for tables that are read in pieces, "
                f"or a kind and a number such as ('share', 0.3), got {type(rule).__name__}."
            )
        return self._column(title, rule, chance=True)

    def cost(self, title: str, cost: Any) -> int | float:
        """Return the cost of treating anybody, or the column that holds each row's."""
        if callable(cost):
            return self._column(f"the cost of {title}", cost, chance=False)
        if np.ndim(cost):
            raise InputError(
                f"the cost of {title} must be a number or a function of the features for tables "
                f"that are read in pieces, got {type(cost).__name__}."
            )
        return float(check_positive(f"the cost of {title}", cost))

    def _column(self, name: str, function: Callable[[MatrixLike], Any], *, chance: bool) -> int:
        self.names.append(name)
        self.functions.append(function)
        self.chances.append(chance)
        return len(self.names) - 1

    @property
    def scorer(self) -> Scorer:
        """What computes the columns."""
        return Scorer(tuple(self.names), tuple(self.functions), tuple(self.chances))


def orders_of(rules: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Order, list[float]]]:
    """Return the order by score, under "", and one for each rule that needs its own.

    With each order go edges that must be among those of its bins.
    """
    # A score of 7 digits; the edge below a threshold leaves all who reach it above.
    cuts = [np.float32(rule[1]) for rule in rules.values() if rule[0] == "threshold"]
    edges = [0.0, *(float(np.nextafter(cut, np.float32(-np.inf))) for cut in cuts)]
    none = np.empty(0)
    orders = {"": (Order(none), edges)}
    for name, (kind, *numbers) in rules.items():
        if kind == "own":
            orders[name] = Order(none, own=numbers[0]), []
        elif kind == "budget" and isinstance(numbers[1], int):
            orders[name] = Order(none, cost=numbers[1]), [0.0]
    return orders


def evaluate_source(
    model: Any,
    data: Any,
    weight: str,
    target: MatrixLike | None,
    rules: Rules | None,
    level: float,
    shift: Any,
    sample_rows: int,
    n_jobs: int | None,
    rng: Rng,
) -> Evaluation:
    """Evaluate tables that are gone through in pieces."""
    check_option("weight", weight, (OVERLAP, GAP))
    if shift is not None:
        raise InputError(
            "shift needs all rows in memory. Leave it out for tables that are read in pieces, or "
            "read them with SeparateLabels."
        )
    asked = Asked(model)
    checked = check_rules(rules, asked.own, asked.cost)
    source = Source.look_through(data, asked.scorer, sample_rows)
    orders = orders_of(checked)
    settled = Settled.of(source, weight, list(orders.values()), target, n_jobs, rng)
    omega = settled.sample.omega(weight)
    refuse_alike(settled.sample.share * settled.sample.aim, omega, source.census.names)
    sums = settled.sum_up(source)
    size = residual_size(*sums.residual.tolist())
    binned = dict(zip(orders, zip(settled.plan.orders, sums.orders, strict=True), strict=True))
    main, plain = (_by_score(*binned[""], size, is_plain=is_plain) for is_plain in (False, True))
    of_score = {name: _of_bins(rule) for name, rule in checked.items() if name not in orders}
    found = make_evaluation(main, plain, of_score, level, rng)
    for name, (order, each) in list(binned.items())[1:]:
        for is_plain, into in ((False, found.rules), (True, found.plain)):
            into[name] = _own_order(checked[name], order, each, size, is_plain=is_plain)
    return replace(
        found,
        rules={name: found.rules[name] for name in checked},
        left_out=say_left_out(settled.sample, omega, settled.features),
        how="held-out rows, read in pieces",
        n_rows=source.census.n_rows,
    )


def _by_score(order: Order, sums: BinSums, size: float, *, is_plain: bool) -> ScoredRows:
    terms = BinnedTerms(sums, size, is_plain)
    ends = np.append(order.edges, np.inf)[terms.held]
    return ScoredRows(terms, terms.key, ends=ends)


def _of_bins(rule: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a rule by score as it is for scores of seven digits."""
    return ("threshold", float(np.float32(rule[1]))) if rule[0] == "threshold" else rule


def _own_order(
    rule: tuple[Any, ...], order: Order, sums: BinSums, size: float, *, is_plain: bool
) -> Estimate:
    """Return the gain of a rule whose rows are in an order of their own."""
    terms = BinnedTerms(sums, size, is_plain)
    if rule[0] == "own":
        found = ScoredRows(terms, terms.key)
        functional = found.everyone()
    else:  # bins of score over cost
        cost = np.where(terms.people > 0.0, terms.mean(2), 1.0)
        found = ScoredRows(terms, terms.key * cost)
        functional = found.budget(rule[1], cost)
    value = found.estimates({"it": functional})["it"]
    return Estimate(value.value, value.standard_error) if is_plain else value
