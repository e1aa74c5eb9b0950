"""Evaluate predicted uplift on separate tables: averages, rules, curves, bins, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    check_cost,
    check_finite,
    check_not_negative,
    check_option,
    check_probability,
    check_share,
    check_vector,
    shown,
)
from unjoined.data import (
    LabelledRows,
    SeparateLabels,
    take_rows,
)
from unjoined.errors import InputError
from unjoined.metrics.estimate import Estimate, critical_value
from unjoined.metrics.evaluate_ranks import (
    Functional,
    ScoredRows,
    at_share,
    calibration_line,
    residual_size,
    rule_of,
    score_bins,
)
from unjoined.metrics.evaluation import Evaluation
from unjoined.metrics.named import NamedFeatures
from unjoined.metrics.ratio import (
    N_FOLDS,
    OVERLAP,
    PLAIN,
    RATIO,
    EvaluationRows,
    evaluation_rows,
)
from unjoined.metrics.regions import say_left_out
from unjoined.metrics.scores import labelled_rows
from unjoined.nuisance import check_folds, deal_evaluation_folds

Rules = Mapping[str, Any]
DEFAULT_RULES: dict[str, tuple[str, float]] = {
    "best 10%": ("share", 0.1),
    "best 30%": ("share", 0.3),
    "predicted to gain": ("threshold", 0.0),
}
AT_K = (0.1, 0.2, 0.3, 0.5)
N_BINS = 10


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
            own, _ = features.numbers(target, table="target")
            if len(own) == 0:
                raise InputError(
                    "target has no rows. Leave it out, or give the people in question."
                )
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
        if rules is None:
            return dict(DEFAULT_RULES)
        if not isinstance(rules, Mapping):
            raise InputError(
                "rules must be a mapping of names to rules, such as "
                f"{{'best 30%': ('share', 0.3)}}, got {type(rules).__name__}."
            )
        if taken := [name for name in rules if name in ("average", "auuc", "qini")]:
            raise InputError(f"a rule cannot be called {taken[0]!r}. Choose another name.")
        return {str(name): self._rule(str(name), rule) for name, rule in rules.items()}

    def _rule(self, name: str, rule: Any) -> tuple[Any, ...]:
        title = f"rule {name!r}"
        if callable(rule):
            return "own", check_probability(title, self.called(title, rule))
        if not (isinstance(rule, tuple | list) and rule and isinstance(rule[0], str)):
            return "own", check_probability(title, self.aligned(title, rule))
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
        cost = rule[2] if len(rule) == 3 else 1.0
        if callable(cost):
            cost = self.called(title, cost)
        elif np.ndim(cost):
            cost = self.aligned(title, cost)
        n = len(self.rows) + (0 if self.target_rows is None else len(self.target_rows[0]))
        return "budget", check_not_negative(title, rule[1]), check_cost(cost, n)


def evaluate_uplift(
    model_or_scores: Any,
    data: Mapping[str, Any],
    *,
    weight: str = OVERLAP,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
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
    data : SeparateLabels or mapping
        ``X``, ``y``, ``kind``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more; data frames may hold text, dates and missing values.
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
    tables = HeldOutTables.of(data, target)
    rng = check_random_state(random_state)
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
        As in `evaluate_uplift`.
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
        if not self.terms.speaks_for > 0.0:
            raise InputError(
                f"the populations {shown(tables.rows.names)} treat everyone alike, as far as these "
                "tables tell, so that no number can be given. Uplift needs policies that differ."
            )

    def scored(self, score: Array, form: str = RATIO) -> ScoredRows:
        """Return the row terms with a score."""
        terms = self.terms if form == RATIO else self.rows.terms(self.omega, form=form)
        return ScoredRows(terms, score, self.fold)

    def evaluate(
        self, score: Array, rules: Mapping[str, tuple[Any, ...]], level: float, rng: Rng
    ) -> Evaluation:
        """Return all that is said of a score."""
        rows = self.scored(score)
        named = functionals(rows, rules)
        found = rows.estimates(named)
        curve, points = rows.curve(level, rng)
        bins, p_value = score_bins(rows, self._floor(), N_BINS)
        plain = self.scored(score, PLAIN).estimates(named)
        average = found.pop("average")
        return Evaluation(
            average=average,
            auuc=found.pop("auuc"),
            qini=found.pop("qini"),
            rules=found,
            curve=curve,
            at_k={k: at_share(points[k], k) for k in AT_K},
            bins=bins,
            calibration=calibration_line(rows, average, p_value),
            speaks_for=self.terms.speaks_for,
            left_out=self.left_out(),
            plain={n: Estimate(e.value, e.standard_error) for n, e in plain.items()},
            level=level,
            how=self.how,
        )

    def left_out(self) -> str:
        """Say who counts less, in words."""
        return say_left_out(self.rows, self.omega, self.tables.features)

    def _floor(self) -> Array:
        """Return how far an unseen residual would move a row's numerator, shape (n,)."""
        rows = self.rows
        outcome = rows.cell < rows.n_populations
        size = residual_size(rows.residual[outcome], rows.share[outcome])
        return np.where(outcome, self.omega * rows.contrast() * rows.ratio * size, 0.0)


def functionals(rows: ScoredRows, rules: Mapping[str, tuple[Any, ...]]) -> dict[str, Functional]:
    """Return the average, both areas and the rules, by name."""
    area = rows.area()
    named = {
        "average": rows.everyone(),
        "auuc": area,
        "qini": Functional(area.weight - 0.5, area.rank),
    }
    return named | {name: rule_of(rows, rule) for name, rule in rules.items()}
