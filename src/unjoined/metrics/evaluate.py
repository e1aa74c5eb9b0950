"""Evaluate predicted uplift on separate tables: averages, rules, curves, bins, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.utils import check_random_state

from unjoined._typing import Array, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_option, check_positive, check_vector
from unjoined.data import is_dask, take_rows
from unjoined.errors import InputError
from unjoined.metrics.bin_sums import BinnedTerms, BinSums, Order
from unjoined.metrics.estimate import Estimate, critical_value
from unjoined.metrics.evaluation import Evaluation
from unjoined.metrics.held_out import HeldOutTables, Rules, Scores, check_rules, refuse_alike
from unjoined.metrics.people import say_left_out
from unjoined.metrics.pieces import SAMPLE_ROWS, Scorer, Settled, Source
from unjoined.metrics.ranks import ScoredRows, make_evaluation
from unjoined.metrics.ratio import (
    GAP,
    N_FOLDS,
    OVERLAP,
    EvaluationRows,
    evaluation_rows,
    residual_size,
)
from unjoined.nuisance import check_folds, deal_evaluation_folds


def evaluate_uplift(
    model_or_scores: Any,
    data: Any,
    *,
    weight: str = OVERLAP,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    sample_rows: int = SAMPLE_ROWS,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    r"""Say what predicted uplift is worth, from separate tables, with an interval on every number.

    The model must not have been fitted to these rows: keep some aside, or use `cross_evaluate`.

    Parameters
    ----------
    model_or_scores : fitted model, function or array of shape (n,)
        A model with ``predict``, a function of the features, or the score of each row of the
        data: predicted uplift, or anything that orders people. Models and functions get the
        features as they are in the data.
    data : SeparateLabels, mapping, TableSource, DaskSource or function that returns chunks
        ``X``, ``y``, ``kind``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more; data frames may hold text, dates and missing values. A
        source, as ``fit_chunks`` takes it, is gone through in pieces; see Notes.
    weight : {"overlap", "gap"}, default="overlap"
        Whom the answer speaks for. "overlap" counts people fully where treatment probabilities
        differ by 0.2 or more, and less by the square of the difference below. "gap" counts them
        by the squared difference: the shortest intervals, for a narrower group.
    target : array or data frame of shape (m, d), optional
        The people the answer is for. Default: rows of kind "target" if there are any, else the
        people in the tables.
    rules : mapping of str to rule, optional
        Whom to treat: ``("share", 0.3)``, ``("threshold", 0.02)`` in units of the score,
        ``("budget", 0.5, cost)`` with the amount per person and the cost of treating (a number, an
        array or a function of the features; 1 by default), a function of the features or an
        array with the probability of treatment of each row. Default: the best 10 % and 30 %, and
        all whose score is not below 0.
    level : float, default=0.95
        Level of the band and of the intervals that are shown.
    shift : {None, "classifier", "rulsif"}, default=None
        How tables are weighted to the people in question, as in `MinMaxUplift`. None takes all
        tables for the same people; small differences then do little harm.
    sample_rows : int, default=20000
        Of a source: rows of each table that settle models of policies and outcomes.
    n_jobs : int or None, default=None
        Threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed for folds and for the width of the band.

    Returns
    -------
    Evaluation
        Print it, or read ``average``, ``rules``, ``curve``, ``auuc``, ``qini``, ``bins``.

    Raises
    ------
    InputError
        Scores, rules or tables do not fit together, or a table has fewer rows than folds.

    See Also
    --------
    cross_evaluate : the same without rows kept aside.
    compare_uplift : differences of several models on the same rows.
    diagnose : whether the tables can tell uplift at all.

    Notes
    -----
    Every number is a ratio of two sums over the rows, with Fieller's interval, which holds
    however little the policies differ; it may be unbounded. Costs the cross-fitting of policies
    and outcomes, a second or two for 20,000 rows, and a sort of the scores.

    Of a source, a first look says what the columns hold and a second pass keeps a sample, which
    settles policies, outcome models and a thousand bins of the score. A third adds up all rows,
    on Dask where the partitions are; scores within a bin count as tied. Memory is the sample and
    a chunk. The order of rows and how they are cut change nothing but rounding. Scores and rules
    are then models and functions, scores have seven digits, and ``shift`` is not to be had.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> model = WeightedUplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    >>> found = evaluate_uplift(model, problem.draw(1000, random_state=1), random_state=0)
    >>> low, high = found.average.interval(0.95)
    >>> bool(low < 0.07 < high)  # the truth
    True
    """
    critical_value(level)
    rng = check_random_state(random_state)
    if not isinstance(data, Mapping) or is_dask(data.get("X")):
        return evaluate_source(
            model_or_scores, data, weight, target, rules, level, shift, sample_rows, n_jobs, rng
        )
    tables = HeldOutTables.of(data, target)
    score = tables.scores(model_or_scores)
    checked = tables.rules(rules)
    rows = evaluation_rows(
        tables.rows, target=tables.target_rows, shift=shift, n_jobs=n_jobs, rng=rng, stacklevel=3
    )
    return Scores(tables, rows, weight).evaluate(score, checked, level, rng)


def cross_evaluate(
    estimator: Any,
    data: Mapping[str, Any],
    n_folds: int = N_FOLDS,
    *,
    weight: str = OVERLAP,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    """Evaluate an estimator on the rows it is fitted to, each by a fit that has not seen it.

    The estimator, the policies and the outcome models are all fitted without each fold in turn.
    Rows are ranked within their fold, since scores of different fits may not compare.

    Parameters
    ----------
    estimator : estimator
        Not fitted, or fitted to anything: a copy of it is fitted ``n_folds`` times.
    data : SeparateLabels or mapping
        As in `evaluate_uplift`, in memory.
    n_folds : int, default=5
        At least 2, and at most the rows of the smallest table.
    weight, target, rules, level, shift, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    Evaluation
        Of fits to all folds but one, which are a little worse than a fit to all rows. Costs
        ``n_folds`` fits more than `evaluate_uplift`.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> found = cross_evaluate(WeightedUplift(random_state=0), data, random_state=0)
    >>> found.how
    'rows left out of each fit, 5 folds'
    """
    critical_value(level)
    tables = HeldOutTables.of(data, target)
    rng = check_random_state(random_state)
    checked = tables.rules(rules)
    check_folds(tables.rows, n_folds, (OUTCOME, TREATMENT))
    fold = deal_evaluation_folds(tables.rows, n_folds, rng)
    rows = evaluation_rows(
        tables.rows,
        target=tables.target_rows,
        shift=shift,
        fold=fold,
        n_jobs=n_jobs,
        rng=rng,
        stacklevel=3,
    )
    score = out_of_fold_scores(estimator, tables, rows)
    how = f"rows left out of each fit, {n_folds} folds"
    return Scores(tables, rows, weight, rows.fold, how).evaluate(score, checked, level, rng)


def out_of_fold_scores(estimator: Any, tables: HeldOutTables, rows: EvaluationRows) -> Array:
    """Return the score of each row by a fit without the row's fold."""
    data, at = tables.data, np.flatnonzero(tables.used)
    inside = np.flatnonzero(tables.asked)
    fold, n = rows.fold[: len(at)], len(at)
    score = np.empty(len(rows.cell))
    for j in range(int(fold.max()) + 1):
        train = np.ones(data.n_rows, dtype=np.bool_)
        train[at[fold == j]] = False
        model = clone(estimator).fit(**data.take(train))
        own = np.flatnonzero(rows.fold == j)
        asked = own[own >= n] - n
        score[own[own < n]] = model.predict(_take(data.X, at[own[own < n]]))
        if len(asked):
            X = _take(data.X, inside[asked]) if tables.target is None else tables.target
            found = model.predict(X)
            score[asked + n] = found if tables.target is None else found[asked]
    return check_vector("the model's predictions", score)


def _take(X: MatrixLike, at: IntArray) -> MatrixLike:
    """Return some rows of an array or a data frame."""
    return X[at] if isinstance(X, np.ndarray) else take_rows(X, at)


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
